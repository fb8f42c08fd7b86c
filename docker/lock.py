"""Resolves each image's requirements into its requirements.lock, within the versions of the project's own locks.

    python docker/lock.py [IMAGE ...]

The images run one Python on Linux, so their locks are not universal. Two images cannot have all of the project's
versions; `Image.free` lists the exceptions.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = ("requirements.lock", "requirements.bootstrap")
PYTHON = "3.12"
"""That of the base; the Dockerfile refuses another."""


@dataclass(frozen=True)
class Image:
    """How to resolve one image's lock.

    Attributes:
      overrides: uv's override files, relative to this folder; they replace the requirements of packages.
      free: packages that need not have the version of the project's locks.
      platform: the oldest Linux that the image supports.
    """

    overrides: tuple[str, ...] = ("requirements.override",)
    free: frozenset[str] = field(default_factory=frozenset)
    platform: str = "x86_64-manylinux_2_28"


IMAGES = {
    "tools": Image(),
    # The client calls servers, so it keeps what the images of steps leave out.
    "cli": Image(overrides=("../requirements.override",)),
    "data": Image(overrides=("requirements.override", "data/requirements.override")),
    "model": Image(),
    "model-gpu": Image(),
    # TensorFlow for TPUs is one version behind, and requires a TensorBoard of that version.
    "model-tpu": Image(free=frozenset({"tensorboard"}), platform="x86_64-manylinux_2_31"),
    # TFDV requires absl-py below 2, and its wheels require glibc 2.39.
    "validate": Image(
        overrides=("validate/requirements.override",), free=frozenset({"absl-py"}), platform="x86_64-manylinux_2_39"
    ),
}


def lock(name: str, image: Image) -> None:
    """Writes docker/<name>/requirements.lock."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--generate-hashes", "--python-version", PYTHON, "--python-platform", image.platform]
    for override in image.overrides:
        command += ["--override", str(HERE / override)]
    command += ["--constraint", "-", str(HERE / name / "requirements.in")]
    command += ["--output-file", str(HERE / name / "requirements.lock")]
    subprocess.run(command, input="\n".join(constraints(image)), text=True, check=True)  # noqa: S603 - uv, a list


def constraints(image: Image) -> list[str]:
    """The versions of the project's locks, without hashes: `numpy==2.4.6`, with its marker if it has one."""
    lines = "\n".join((HERE.parent / name).read_text(encoding="utf-8") for name in LOCKS)
    pinned = re.findall(r"^(([a-z0-9._-]+)==[^\\\n]+?) *\\?$", lines, flags=re.MULTILINE)
    return [line for line, package in pinned if package not in image.free]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or IMAGES:
        if chosen not in IMAGES:
            sys.exit(f"lock: image {chosen!r}: accepted: {', '.join(IMAGES)}")
        lock(chosen, IMAGES[chosen])
