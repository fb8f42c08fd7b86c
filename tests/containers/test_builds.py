"""What a build takes in, and what it gives twice."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.containers.base_image import builder_image
from tests.containers.engine import docker
from tests.pipelines.test_image_content import LEFT_BEHIND
from voxline.pipelines import images
from voxline.pipelines.images import context_files

ROOT = Path(__file__).parent.parent.parent


def sent(root: Path, scratch: Path) -> set[str]:
    """The files of a folder that docker sends to a builder."""
    name = "voxline-test/context:all"
    building = ["docker", "build", "--quiet", "--tag", name, "--file", "-", str(root)]
    subprocess.run(building, input="FROM scratch\nCOPY . /\n", text=True, check=True, capture_output=True)
    container = docker("create", name, "nothing")
    try:
        docker("export", "--output", str(scratch / "all.tar"), container)
    finally:
        docker("rm", container)
    listed = subprocess.run(["tar", "-tf", scratch / "all.tar"], capture_output=True, text=True, check=True).stdout
    engines = ("dev/", "etc/", "proc/", "sys/", ".dockerenv")
    return {line for line in listed.splitlines() if not line.endswith("/") and not line.startswith(engines)}


def test_the_content_tag_reads_the_files_that_docker_sends(running_engine: str, tmp_path: Path) -> None:
    assert sent(ROOT, tmp_path) == set(context_files(ROOT))


def test_docker_sends_no_key_from_a_code_folder(running_engine: str, tmp_path: Path) -> None:
    project = tmp_path / "a project é"
    for name in (*LEFT_BEHIND, "components/ingest/step.py", "docker/data/requirements.lock"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    shutil.copy(ROOT / ".dockerignore", project)
    assert sent(project, tmp_path) == {"components/ingest/step.py", "docker/data/requirements.lock"}


@pytest.fixture
def base_apart(base: str, tmp_path: Path) -> str:
    """The base under another label; otherwise later builds would start from these layers and reinstall everything."""
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nLABEL voxline.test=apart\n", encoding="utf-8")
    docker("build", "--quiet", "--tag", "voxline-test/base:apart", str(tmp_path))
    return "voxline-test/base:apart"


def test_two_builds_without_a_cache_have_the_same_layers(base_apart: str) -> None:
    """By the whole recipe, with the smallest lock that there is: what only builds, itself as an image.

    But for the layer that removes the base's pip: it holds nothing but marks of what is gone, dated by the engine.
    """
    base, builder = base_apart, builder_image(base_apart)
    layers = []
    for number in (1, 2):
        name = images.build_image(
            "tools",
            registry="voxline-test",
            tag=f"build-{number}",
            base=base,
            builder=builder,
            source="",
            more=["--quiet", "--no-cache", "--network", "host"],
        )
        layers.append(json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name)))
    below = base_layers(base)
    assert layers[0][:below] == layers[1][:below]
    assert layers[0][below + 1 :] == layers[1][below + 1 :]
    assert len(layers[0]) == below + 3


def base_layers(base: str) -> int:
    return len(json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", base)))
