"""The workflows of .github: pinned, with no more rights than they need, and calling what there is to call."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from voxline.pipelines.config.load import load_config
from voxline.pipelines.images import IMAGES, VARIANTS

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WRITES = {
    "kubeflow.yml": set(),
    "images.yml": {"contents", "packages", "id-token", "attestations"},
    "refresh.yml": {"id-token"},
    "scan.yml": set(),
    "site.yml": {"pages", "id-token"},
    "tests.yml": set(),
    "models.yml": {"contents", "id-token", "attestations"},
    "wheel.yml": {"contents", "id-token", "attestations"},
}
"""Workflow → what its jobs may write; the repository's code nowhere."""


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def file(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def workflow(file: Path) -> Any:
    return yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - `on` is no boolean; only text


def load_workflow(name: str) -> Any:
    return yaml.load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_each_workflow_has_its_rights_listed_here() -> None:
    assert {file.name for file in FILES} == set(WRITES)


def test_actions_are_pinned_by_commit_with_their_version_beside(file: Path, workflow: Any) -> None:
    used = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert used
    for line in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_rights_are_those_that_are_needed(file: Path, workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    written = {
        right for job in workflow["jobs"].values() for right, value in job.get("permissions", {}).items()
        if value == "write"
    }  # fmt: skip
    assert written == WRITES[file.name]


def test_each_job_ends_and_each_workflow_runs_once_at_a_time(workflow: Any) -> None:
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert int(job["timeout-minutes"]) <= 360


def test_nothing_from_outside_is_pasted_into_a_shell_and_no_secret_is_written_out(file: Path, workflow: Any) -> None:
    for step in steps(workflow):
        assert "${{" not in step.get("run", ""), "give it by env"
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"AKIA|ghp_|-----BEGIN|AIza", text)
    assert "pull_request_target" not in text


def test_credentials_of_the_checkout_are_not_kept(workflow: Any) -> None:
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_what_they_call_is_there(workflow: Any) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in steps(workflow):
        for line in step.get("run", "").replace("\\\n", "").splitlines():
            words = shlex.split(line.strip(), comments=True) if line.count("'") % 2 == 0 else []
            if words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
            if words[:1] == ["voxline"]:
                assert words[1] in ("doctor", "submit")


def test_the_server_of_the_kubeflow_tests_has_one_version_and_gives_what_they_read() -> None:
    (job,) = load_workflow("kubeflow.yml")["jobs"].values()
    scripts = "\n".join(step.get("run", "") for step in job["steps"])
    manifests = re.findall(r"github\.com/kubeflow/pipelines/\S+", scripts)
    assert manifests
    assert all(address.endswith('?ref=$KFP_VERSION"') for address in manifests), manifests
    assert re.fullmatch(r"\d+\.\d+\.\d+", job["env"]["KFP_VERSION"])
    read = set(re.findall(r'"(KUBEFLOW_\w+)"', (ROOT / "tests/kubeflow/given.py").read_text(encoding="utf-8")))
    variables = {name for name in job["env"] if name.startswith("KUBEFLOW_")}
    assert {"KUBEFLOW_ENDPOINT", "KUBEFLOW_KUBECONFIG", "KUBEFLOW_VOLUMES"} <= variables <= read
    assert job["steps"][-1]["run"].splitlines()[-1] == "make test-kubeflow"


def test_images_of_a_release_stand_on_one_base_by_its_digest() -> None:
    jobs = load_workflow("images.yml")["jobs"]
    assert jobs["build"]["needs"] == "base"
    assert jobs["build"]["env"]["VOXLINE_IMAGE_BASE"] == "${{ needs.base.outputs.image }}"
    naming = jobs["base"]["steps"][-1]
    assert jobs["base"]["outputs"] == {"image": f"${{{{ steps.{naming['id']}.outputs.image }}}}"}
    assert "RepoDigests" in naming["run"]
    recipe = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = [line.removeprefix("ARG BASE=") for line in recipe if line.startswith("ARG BASE=")]  # what sed finds there
    assert len(bases) == 1


def test_the_job_that_installs_packages_may_write_nothing_and_the_one_that_publishes_runs_none_of_them() -> None:
    jobs = load_workflow("images.yml")["jobs"]
    installing = ("base", "test", "build")
    assert jobs.keys() == {*installing, "publish"}
    assert not any("permissions" in jobs[name] for name in installing)
    assert not any("secrets." in str(step) for name in installing for step in jobs[name]["steps"])
    used = [step.get("uses", "").partition("@")[0] for step in jobs["publish"]["steps"]]
    assert not {"actions/checkout", "actions/setup-python"} & {*used}
    assert {"actions/attest-build-provenance", "actions/attest-sbom"} <= {*used}


def test_images_are_tested_in_containers_before_they_are_published() -> None:
    jobs = load_workflow("images.yml")["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert jobs["test"]["steps"][-1] == {"run": "make test-containers"}
    assert jobs["test"]["env"]["VOXLINE_IMAGE_BASE"] == jobs["build"]["env"]["VOXLINE_IMAGE_BASE"]
    assert "VOXLINE_ALLOW_SKIP" not in str(jobs), "a release on tests that were skipped"


@pytest.mark.parametrize(("name", "job"), [("images.yml", "build"), ("scan.yml", "images")])
def test_each_image_and_its_bill_of_materials_are_scanned_high_severities_included(name: str, job: str) -> None:
    scanned = load_workflow(name)["jobs"][job]
    scans = [step["with"] for step in scanned["steps"] if step.get("uses", "").startswith("anchore/scan-action@")]
    assert [{"image", "sbom"} & scan.keys() for scan in scans] == [{"image"}, {"sbom"}]
    for scan in scans:
        assert (scan["severity-cutoff"], scan["fail-build"]) == ("high", "true")
    assert set(scanned["strategy"]["matrix"]["image"]) == {*IMAGES, *VARIANTS}
    assert not any("continue-on-error" in step for step in scanned["steps"])


def test_locks_and_images_are_scanned_when_a_lock_changes_and_each_week() -> None:
    workflow = load_workflow("scan.yml")
    (schedule,) = workflow["on"]["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", schedule["cron"])
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    locks = [file for file in tracked if file.endswith(".lock") or file.startswith("requirements.")]
    assert "requirements.lock" in locks
    for event in ("push", "pull_request"):
        patterns = [re.compile(as_expression(path)) for path in workflow["on"][event]["paths"]]
        assert [file for file in locks if not any(pattern.fullmatch(file) for pattern in patterns)] == []
    (audit,) = (step for step in workflow["jobs"]["locks"]["steps"] if "pip-audit" in step.get("uses", ""))
    assert "requirements.lock" in audit["with"]["inputs"].split()
    assert "ignore-vulns" not in audit["with"]


def as_expression(pattern: str) -> str:
    """A path pattern of a workflow as a regular expression."""
    return re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")


def test_the_wheel_of_a_release_is_signed_by_a_job_that_runs_none_of_its_code() -> None:
    workflow = load_workflow("wheel.yml")
    assert workflow["on"] == {"release": {"types": ["published"]}}
    build = workflow["jobs"]["build"]
    sign = workflow["jobs"]["sign"]
    assert "permissions" not in build
    assert "secrets." not in str(build)
    assert (workflow["jobs"]["install"]["needs"], sign["needs"]) == ("build", "install")
    used = [step["uses"].partition("@")[0] for step in sign["steps"] if "uses" in step]
    assert used == ["actions/download-artifact", "actions/attest-build-provenance"]
    attested = next(step["with"] for step in sign["steps"] if "attest" in step.get("uses", ""))
    assert attested == {"subject-path": "dist/*.whl"}
    assert "dist/*.whl" in sign["steps"][-1]["run"], "what is signed is what is attached"


def test_the_wheel_goes_to_pypi_after_each_python_installed_it_and_without_a_token() -> None:
    jobs = load_workflow("wheel.yml")["jobs"]
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert jobs["install"]["strategy"]["matrix"]["python"] == supported
    upload = jobs["upload"]
    assert (upload["needs"], upload["environment"], upload["permissions"]) == ("sign", "pypi", {"id-token": "write"})
    used = [step["uses"].partition("@")[0] for step in upload["steps"]]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert "secrets." not in str(upload)


def test_what_needs_an_environment_of_its_own_is_tested_at_every_change() -> None:
    """`make test-all` installs nothing, so each of these has a line."""
    workflow = load_workflow("tests.yml")
    called = {step["run"].removeprefix("make ") for step in steps(workflow) if "run" in step}
    assert called >= {"test-extras", "test-tracking", "test-tfx", "test-vertex", "docs"}


def test_the_page_of_the_package_leads_to_the_release(tmp_path: Path) -> None:
    """An index shows the README alone, where a path beside it leads nowhere."""
    for name in ("README.md", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    steps = load_workflow("wheel.yml")["jobs"]["build"]["steps"]
    (build,) = [step for step in steps if "hatchling build" in step.get("run", "")]
    command = build["run"].splitlines()[0]
    assert command == '.venv/bin/python .ci/package_page.py "$GITHUB_REPOSITORY" "$TAG"'
    arguments = [str(ROOT / ".ci/package_page.py"), "owner/voxline", "v0.1.0"]
    subprocess.run([sys.executable, *arguments], cwd=tmp_path, check=True)

    shown = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    metadata = json.loads(shown.stdout)
    assert metadata["urls"]["Repository"] == "https://github.com/owner/voxline"
    address = re.compile(r"https://github\.com/owner/voxline/(blob|raw)/v0\.1\.0/([^#]+)(#.*)?")
    targets = re.findall(r"\]\(([^)]+)\)", metadata["readme"]["text"])
    ours = [match for target in targets if (match := address.fullmatch(target))]
    assert len(ours) > 30
    assert all(target.startswith("https://") for target in targets)
    assert all((ROOT / match[2]).exists() for match in ours)
    assert [match[2] for match in ours if match[1] == "raw"] == ["docs/gallery/evaluation.webp"]


def test_the_data_image_is_built_for_arm64_too() -> None:
    """docs/images.md says why no other image is."""
    jobs = load_workflow("images.yml")["jobs"]
    for name in ("build", "publish"):
        matrix = jobs[name]["strategy"]["matrix"]
        assert (matrix["arch"], matrix["include"]) == (["amd64"], [{"image": "data", "arch": "arm64"}])
    building = next(step["run"] for step in jobs["build"]["steps"] if step.get("name") == "Build")
    assert '-- --platform "linux/$ARCH"' in building
    handed = [step["with"]["name"] for step in jobs["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    taken = [step["with"]["name"] for step in jobs["publish"]["steps"] if "download-artifact" in step.get("uses", "")]
    assert handed == taken == ["image-${{ matrix.image }}-${{ matrix.arch }}"]


def test_a_refresh_is_called_by_other_repositories_and_waits_for_its_end() -> None:
    """tests/cluster/test_refresh_workflow.py runs its steps."""
    workflow = load_workflow("refresh.yml")
    assert set(workflow["on"]) == {"workflow_call"}
    assert workflow["concurrency"]["cancel-in-progress"] == "false"
    assert 'voxline submit "$PIPELINE" "${configs[@]}" --wait' in steps(workflow)[-1]["run"]


@pytest.mark.parametrize("config", sorted((ROOT / "configs" / "refresh").glob("*.yaml")), ids=lambda file: file.stem)
@pytest.mark.parametrize("overlay", sorted((ROOT / "configs" / "cluster").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_refresh_passes_each_config_and_overlay_of_this_repository(
    config: Path, overlay: Path, tmp_path: Path
) -> None:
    """The script's own lines, run by bash with `voxline` in place of the one that submits."""
    lines = steps(load_workflow("refresh.yml"))[-1]["run"].splitlines()
    script = "\n".join(line for line in lines if line.lstrip().startswith(("read -r", "configs=", "voxline")))
    fake = tmp_path / "bin" / "voxline"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> calls\n')
    fake.chmod(0o755)
    files = f"{config.relative_to(ROOT)} {overlay.relative_to(ROOT)}"
    environment = {
        **os.environ,
        "PATH": f"{fake.parent}:{os.environ['PATH']}",
        "CONFIGS": files,
        "PIPELINE": "refresh",
    }
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, check=True)
    given = [word.removeprefix("--config=") for word in (tmp_path / "calls").read_text().split() if "=" in word]
    assert given == files.split() * 2  # for doctor, then for submit
    cluster = load_config([ROOT / file for file in files.split()], pipeline="refresh")
    assert cluster.unmounted_paths().keys() <= {"corpus.uri"}
