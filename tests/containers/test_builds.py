"""What a build takes in, and what it gives twice."""

import json
import subprocess
from pathlib import Path

from pipelines import images
from pipelines.image_content import context_files
from tests.containers.base_image import builder_image
from tests.containers.engine import docker

ROOT = Path(__file__).parent.parent.parent


def test_the_content_tag_reads_the_files_that_docker_sends(running_engine: str, tmp_path: Path) -> None:
    recipe = "FROM scratch\nCOPY . /\n"
    name = "voxline-test/context:all"
    building = ["docker", "build", "--quiet", "--tag", name, "--file", "-", str(ROOT)]
    subprocess.run(building, input=recipe, text=True, check=True, capture_output=True)
    container = docker("create", name, "nothing")
    try:
        docker("export", "--output", str(tmp_path / "all.tar"), container)
    finally:
        docker("rm", container)
    listed = subprocess.run(["tar", "-tf", tmp_path / "all.tar"], capture_output=True, text=True, check=True).stdout
    engines = ("dev/", "etc/", "proc/", "sys/", ".dockerenv")
    sent = {line for line in listed.splitlines() if not line.endswith("/") and not line.startswith(engines)}
    assert sent == set(context_files(ROOT))


def test_two_builds_without_a_cache_have_the_same_layers(base: str) -> None:
    """By the whole recipe, with the smallest lock that there is: what only builds, itself as an image.

    But for the layer that removes the base's pip: it holds nothing but marks of what is gone, dated by the engine.
    """
    builder = builder_image(base)
    layers = []
    for number in (1, 2):
        name = images.build(
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
