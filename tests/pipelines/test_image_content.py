"""The images' content tag: the same content has the same tag, and what no image holds does not change it."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.images import content_tag, context_files

ROOT = Path(__file__).parent.parent.parent
RULES = "# allow-list\n*\n!code\n!docker\n!pyproject.toml\ndocker/*.hcl\ndocker/**/*.in\n**/__pycache__\n**/.*\n"
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.3"\n',
    "code/step.py": "pass\n",
    "code/deep/page.css": "p {}\n",
    "docker/Dockerfile": "FROM base\n",
    "docker/data/requirements.lock": "numpy==2\n",
}
KEPT_OUT = ["README.md", "code/__pycache__/step.pyc", "code/.secret", "docker/bake.hcl", "docker/data/requirements.in"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {**FILES, ".dockerignore": RULES}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_tag_is_the_version_and_a_hash_that_yaml_reads_as_text(project: Path) -> None:
    assert re.fullmatch(r"1\.2\.3-[0-9a-f]{12}", content_tag(project))
    assert content_tag(project) == content_tag(project)


@pytest.mark.parametrize("name", KEPT_OUT)
def test_excluded_files_do_not_change_the_tag(project: Path, name: str) -> None:
    before = content_tag(project)
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("anything", encoding="utf-8")
    assert context_files(project) == sorted(FILES)
    assert content_tag(project) == before


def _edit(project: Path) -> None:
    (project / "code/step.py").write_text("pass  # for now\n", encoding="utf-8")


def _rename(project: Path) -> None:
    (project / "code/step.py").rename(project / "code/steps.py")


def _add(project: Path) -> None:
    (project / "code/new.py").touch()


@pytest.mark.parametrize("change", [_edit, _rename, _add])
def test_any_change_of_the_content_changes_the_tag(project: Path, change: Callable[[Path], None]) -> None:
    before = content_tag(project)
    change(project)
    assert content_tag(project) != before


def test_another_base_is_another_tag(project: Path) -> None:
    assert content_tag(project, "python:3.12@sha256:aa") != content_tag(project)


def test_a_wildcard_in_a_folder_that_is_not_admitted_is_refused(project: Path) -> None:
    (project / ".dockerignore").write_text("*\n!code/*.py\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"\.dockerignore, line 2: '!code/\*\.py'"):
        context_files(project)


def test_one_file_type_of_an_admitted_folder_can_be_admitted(project: Path) -> None:
    """As our own list does: what it keeps out of a folder by a wildcard, it lets in again by a narrower one."""
    rules = "*\n!code\n!pyproject.toml\ncode/**/*.*\n!code/**/*.py\n**/.*\n"
    (project / ".dockerignore").write_text(rules, encoding="utf-8")
    for name in ("code/deep/key.json", "code/deep/.env.py", "code/deep/more.py"):
        (project / name).touch()
    assert context_files(project) == ["code/deep/more.py", "code/step.py", "pyproject.toml"]


LEFT_BEHIND = (
    ".env",
    "voxline/report/key.json",
    "voxline/store/key.json",
    "components/credentials.pem",
    "components/.netrc",
    "components/ingest/notes.txt",
    "voxline/store/__pycache__/files.cpython-311.pyc",
    "configs/asr/demo.yaml",
    "configs/validation/.token",
    "configs/validation/key.json",
    "docker/data/pip.conf",
    "docker/data/requirements.in",
    "docker/id_rsa",
    "docker/model/ca.crt",
    "pipelines/service-account.json",
    "runs/demo/run.json",
    "tests/conftest.py",
)
"""What a person, a run or a build may leave in the project's folder."""


def test_keys_and_notes_in_code_folders_are_excluded(tmp_path: Path) -> None:
    ours = ("components/ingest/step.py", "docker/data/requirements.lock", "voxline/report/style.css")
    for name in (*LEFT_BEHIND, *ours):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    assert context_files(tmp_path) == sorted(ours)


def test_all_tracked_code_is_in_the_build_context() -> None:
    """A new kind of file, or an image of its own, asks for a line of .dockerignore."""
    folders = ("components", "pipelines", "voxline", "configs/validation", "docker/*/requirements.lock")
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *folders],
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("no git, or no clone of it")
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert there - set(context_files(ROOT)) == set()


def test_no_test_document_or_run_is_in_the_build_context() -> None:
    files = context_files(ROOT)
    assert {file.split("/")[0] for file in files} == {
        "LICENSE",
        "components",
        "configs",
        "docker",
        "pipelines",
        "pyproject.toml",
        "voxline",
    }
    assert "docker/data/requirements.lock" in files
    assert not [file for file in files if file.endswith((".pyc", ".in", ".hcl"))]
