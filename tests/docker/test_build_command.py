"""`python -m voxline.pipelines.images`: what it asks Docker for, and what it refuses before it does.

Docker is a stand-in that writes down how it was called; the images themselves are built in tests/containers.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from voxline.pipelines import images
from voxline.pipelines.images import content_tag

ROOT = Path(__file__).parent.parent.parent
# A line with #! takes no interpreter whose path has a space in it.
STARTS_IT = f"""#!/bin/sh
exec "{sys.executable}" "$0.py" "$@"
"""
STAND_IN = """import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
if sys.argv[1:3] == ["image", "inspect"]:
    print("sha256:0123 4567")
"""

Build = Callable[..., "tuple[subprocess.CompletedProcess[str], list[list[str]]]"]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Runs `python -m voxline.pipelines.images build …`; how it ended, and how Docker was called."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker.py").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "bin" / "docker").write_text(STARTS_IT, encoding="utf-8")
    (tmp_path / "bin" / "docker").chmod(0o755)

    def run(*arguments: str, **variables: str) -> "tuple[subprocess.CompletedProcess[str], list[list[str]]]":
        calls = tmp_path / "calls"
        calls.write_text("", encoding="utf-8")
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "voxline.pipelines.images",
                "build",
                "--output",
                tmp_path / "dist",
                *arguments,
            ],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls), **variables},
            capture_output=True,
            text=True,
        )
        return ended, [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()]

    return run


@pytest.mark.slow
def test_the_last_line_of_a_build_sets_registry_and_tag_for_compile(build: Build) -> None:
    base = "python:3.12-slim-trixie@sha256:" + "ab" * 32
    ended, calls = build("data", "--", "--quiet", VOXLINE_IMAGE_REGISTRY="ghcr.io/team/", VOXLINE_IMAGE_BASE=base)
    assert ended.returncode == 0, ended.stderr
    tag = content_tag(ROOT, base)
    assert ended.stdout.splitlines()[-1] == f"VOXLINE_IMAGE_REGISTRY=ghcr.io/team VOXLINE_IMAGE_TAG={tag}"
    built = calls[0]
    assert built[built.index("--tag") + 1] == f"ghcr.io/team/data:{tag}"
    assert {f"BASE={base}", "IMAGE=data", f"VERSION={tag}"} <= set(built)
    assert built[-2:] == ["--quiet", str(ROOT)]


def test_a_base_or_builder_with_another_python_is_refused_before_anything_is_installed() -> None:
    """What the Dockerfile runs first in both, run here with this Python."""
    recipe = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    stages = recipe.split("\nFROM ")
    for stage, name in ((stages[1], "BUILDER (by default BASE)"), (stages[-1], "BASE")):
        first = re.findall(r"^RUN (.*)$", stage, re.MULTILINE)[0]
        (check,) = re.findall(r'^python3 -B -c ".*?"', first)
        for locked, status in ((f"{sys.version_info.major}.{sys.version_info.minor}", 0), ("3.1", 1)):
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            ended = subprocess.run(
                ["sh", "-c", check], env={**os.environ, "PATH": path, "PYTHON": locked}, capture_output=True, text=True
            )
            here = f"{name} has Python {platform.python_version()}, and the locks are for {locked}\n"
            assert (ended.returncode, ended.stderr) == (status, here if status else "")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["data", "modle"], "image 'modle': accepted: data, model, validate, model-gpu, model-tpu"),
        (["../docker/data"], "image '../docker/data': accepted"),
        (["--registry", "https://ghcr.io/team"], "'registry' is 'https://ghcr.io/team'; accepted: a host and a path"),
        (["--registry", "ghcr.io/Team"], "'registry' is 'ghcr.io/Team'"),
        (["--tag", "latest"], "'tag' is 'latest'; a compiled pipeline must run the same code"),
        (["--tag", "a b"], "'tag' is 'a b'; accepted: at most 128 letters"),
    ],
)
def test_invalid_arguments_are_refused_before_a_build(build: Build, wrong: list[str], told: str) -> None:
    ended, calls = build(*wrong)
    assert (ended.returncode, calls) == (2, [])
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_docker_is_reported(build: Build, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    ended, _ = build("data", "--tag", "7", PATH=str(tmp_path / "none"))
    assert (ended.returncode, ended.stderr) == (1, "images: not on the PATH; install it: docker\n")


def test_the_revision_marks_a_dirty_tree_and_ignores_another_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=tmp_path, check=True)

    copy = tmp_path / "a copy é"
    copy.mkdir()
    (copy / "pyproject.toml").touch()
    assert images.revision(copy) == ""
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "theirs")
    assert images.revision(copy) == ""
    git("add", ".")
    git("commit", "--quiet", "--message", "ours")
    commit = images.revision(copy)
    assert len(commit) == 40
    (copy / "new.py").touch()
    assert images.revision(copy) == f"{commit}-dirty"
