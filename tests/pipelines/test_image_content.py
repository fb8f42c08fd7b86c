"""The images' content tag: the same content has the same tag, and what no image holds does not change it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from components.speech.errors import SettingsError
from pipelines.image_content import content_tag, context_files

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
def test_what_the_allow_list_keeps_out_does_not_change_the_tag(project: Path, name: str) -> None:
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
def test_any_change_of_what_goes_in_changes_the_tag(project: Path, change: Callable[[Path], None]) -> None:
    before = content_tag(project)
    change(project)
    assert content_tag(project) != before


def test_another_base_is_another_tag(project: Path) -> None:
    assert content_tag(project, "python:3.11@sha256:aa") != content_tag(project)


def test_a_wildcard_in_the_allow_list_is_refused_with_its_line(project: Path) -> None:
    (project / ".dockerignore").write_text("*\n!code/*.py\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"\.dockerignore, line 2: '!code/\*\.py'"):
        context_files(project)


def test_no_test_document_or_run_of_ours_goes_in() -> None:
    files = context_files(ROOT)
    assert {file.split("/")[0] for file in files} == {
        "LICENSE",
        "components",
        "configs",
        "docker",
        "pipelines",
        "pyproject.toml",
    }
    assert "docker/data/requirements.lock" in files
    assert not [file for file in files if file.endswith((".pyc", ".in", ".hcl"))]
