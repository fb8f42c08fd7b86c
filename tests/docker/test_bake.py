"""The bake file builds the images that the project has, by the recipe that `make images` follows."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from voxline.pipelines.images import IMAGES, VARIANTS

ROOT = Path(__file__).parent.parent.parent
BAKE = ROOT / "docker" / "docker-bake.hcl"
RECIPE = BAKE.read_text(encoding="utf-8")


def test_every_image_has_a_target_and_a_lock() -> None:
    groups = dict(re.findall(r'^group "(\w+)" { targets = (\[.*?\]) }$', RECIPE, re.MULTILINE))
    assert tuple(json.loads(groups["default"])) == IMAGES
    assert tuple(json.loads(groups["all"])) == IMAGES + VARIANTS
    assert all((ROOT / "docker" / image / "requirements.lock").is_file() for image in IMAGES + VARIANTS)


def test_its_defaults_equal_those_of_the_dockerfile() -> None:
    defaults = dict(re.findall(r'^variable "(\w+)" { default = "(.*?)" }', RECIPE, re.MULTILINE))
    recipe = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", recipe, flags=re.MULTILINE))
    for name in ("BASE", "REVISION", "SOURCE", "SOURCE_DATE_EPOCH"):
        assert defaults[name] == arguments[name], name


def test_bake_accepts_the_file() -> None:
    buildx = shutil.which("docker-buildx") or shutil.which("buildx")
    if buildx is None:
        pytest.skip("no buildx on the PATH")
    asked = subprocess.run(
        [buildx, "bake", "--file", BAKE, "--print", "all"],
        capture_output=True,
        env={**os.environ, "TAG": "1-a"},
        cwd=ROOT,
    )
    targets = json.loads(asked.stdout)["target"]
    assert {name: target["tags"] for name, target in targets.items()} == {
        name: [f"voxline/{name}:1-a"] for name in IMAGES + VARIANTS
    }
    assert all(target["args"]["IMAGE"] == name for name, target in targets.items())
