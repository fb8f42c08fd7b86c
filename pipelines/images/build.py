"""Builds the container images with `docker`, by whichever builder the engine has.

    python -m voxline.pipelines.images.build tag
    python -m voxline.pipelines.images.build build [data model ...] [-- more arguments for docker build]

Beside each image, dist/images/ gets its software bill of materials (CycloneDX), and images.json says what was built.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from voxline.components.images import IMAGE_REGISTRY
from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.config.cluster import ImageSettings
from voxline.pipelines.images.content_tag import content_tag
from voxline.store.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("data", "model", "validate")
VARIANTS = ("model-gpu", "model-tpu")
SBOM = "/opt/voxline/sbom.cdx.json"


def build_image(image: str, *, registry: str, tag: str, base: str, builder: str, source: str, more: list[str]) -> str:
    """Builds one image, and returns its name.

    Args:
      image: a folder of docker/ that holds a requirements.lock.
      registry: what stands before the image's name.
      tag: of the image.
      base: the base image; empty: the Dockerfile's.
      builder: the image that installs; empty: the base.
      source: where the code is published, for the label.
      more: arguments for `docker build`.

    Raises:
      SettingsError: there is no such image.
      WorkError: the build failed.
    """
    if not (ROOT / "docker" / image / "requirements.lock").is_file():
        raise SettingsError(f"there is no {image!r}; accepted: {', '.join(IMAGES + VARIANTS)}")
    name = f"{registry}/{image}:{tag}"
    arguments = {
        "IMAGE": image,
        "BASE": base,
        "BUILDER": builder,
        "REVISION": revision(),
        "SOURCE": source,
        "VERSION": tag,
    }
    given = [part for key, value in arguments.items() if value for part in ("--build-arg", f"{key}={value}")]
    _docker("build", "--file", str(ROOT / "docker" / "Dockerfile"), *given, "--tag", name, *more, str(ROOT))
    return name


def record_image(name: str, folder: Path) -> dict[str, Any]:
    """Copies the image's bill of materials into `folder`, and tells images.json there of the image."""
    image = name.rpartition("/")[2].partition(":")[0]
    folder.mkdir(parents=True, exist_ok=True)
    container = _docker_output("create", "--network", "none", name)
    try:
        _docker("cp", f"{container}:{SBOM}", str(folder / f"{image}.cdx.json"), quiet=True)
    finally:
        _docker("rm", container, quiet=True)
    identity, size = _docker_output("image", "inspect", "--format", "{{.Id}} {{.Size}}", name).split()
    record = folder / "images.json"
    known = read_json(record) if record.is_file() else {}
    known[image] = {"name": name, "id": identity, "bytes": int(size), "sbom": f"{image}.cdx.json"}
    write_json(record, known)
    entry: dict[str, Any] = known[image]
    return entry


def revision() -> str:
    """The commit, with `-dirty` where the tree differs from it; empty where git cannot say.

    A copy that lies unpacked in somebody else's repository is none of its commits.
    """
    try:
        _git("ls-files", "--error-unmatch", "pyproject.toml")
        commit = _git("rev-parse", "HEAD")
        return commit + ("-dirty" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def source_url() -> str:
    """The https address that the code was cloned from; empty where it cannot be told."""
    try:
        return https_url(_git("remote", "get-url", "origin"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def https_url(remote: str) -> str:
    """Where a git remote can be read, without what may stand before its host; empty where that is no host.

    >>> https_url("https://name:token@git.example.org:8443/team/voxline.git")
    'https://git.example.org:8443/team/voxline'
    >>> https_url("git@git.example.org:team/voxline.git"), https_url("/srv/voxline.git")
    ('https://git.example.org/team/voxline', '')
    """
    found = re.fullmatch(r"(?:https://(?:[^/@]*@)?([^/@]+)/|git@([^/@:]+):)(.+?)(?:\.git)?/?", remote)
    return f"https://{found[1] or found[2]}/{found[3]}" if found else ""


def main(arguments: list[str]) -> None:
    """Parses the command line, and does what it says."""
    parser = argparse.ArgumentParser(
        prog="python -m voxline.pipelines.images.build", description=__doc__.split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tagging = commands.add_parser("tag", help="print the content tag")
    building = commands.add_parser("build", help="build images")
    for command in (tagging, building):
        command.add_argument(
            "--base", default=os.environ.get("VOXLINE_IMAGE_BASE", ""), help="the base image, best by digest"
        )
    building.add_argument("images", nargs="*", default=list(IMAGES), metavar="IMAGE", help=", ".join(IMAGES + VARIANTS))
    building.add_argument("--builder", default="", help="the image that installs: the base, and your network's needs")
    building.add_argument("--registry", default=IMAGE_REGISTRY, help="what stands before an image's name")
    building.add_argument("--tag", default="", help="instead of the content tag")
    building.add_argument("--source", default=source_url(), help="the label org.opencontainers.image.source")
    building.add_argument("--output", type=Path, default=ROOT / "dist" / "images", help="where the records go")
    ours, more = _split(arguments)
    chosen = parser.parse_args(ours)
    if chosen.command == "tag":
        print(content_tag(ROOT, chosen.base))
        return
    if unknown := [image for image in chosen.images if image not in IMAGES + VARIANTS]:
        raise SettingsError(f"there is no {unknown[0]!r}; accepted: {', '.join(IMAGES + VARIANTS)}")
    names = ImageSettings.of({"registry": chosen.registry, "tag": chosen.tag}, "the names of images")
    registry, tag = names.registry.rstrip("/") or IMAGE_REGISTRY, names.tag or content_tag(ROOT, chosen.base)
    for image in chosen.images:
        name = build_image(
            image,
            registry=registry,
            tag=tag,
            base=chosen.base,
            builder=chosen.builder,
            source=chosen.source,
            more=more,
        )
        written = record_image(name, chosen.output)
        print(f"{name}  {written['bytes'] / 1e6:,.0f} MB  {written['id']}")
    print(f"VOXLINE_IMAGE_REGISTRY={registry} VOXLINE_IMAGE_TAG={tag}")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _docker(*arguments: str, quiet: bool = False) -> None:
    out = subprocess.DEVNULL if quiet else None
    ended = subprocess.run([_program("docker"), *arguments], stdout=out, check=False)  # noqa: S603 - a list
    if ended.returncode:
        raise WorkError(f"docker {arguments[0]} ended with status {ended.returncode}; what it printed says why")


def _docker_output(*arguments: str) -> str:
    """What docker answers, in a line."""
    ended = subprocess.run(  # noqa: S603 - a list
        [_program("docker"), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        raise WorkError(f"docker {arguments[0]} ended with status {ended.returncode}; what it printed says why")
    return ended.stdout.strip()


def _git(*arguments: str) -> str:
    command = [_program("git"), "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - a list


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(2, "not on the PATH; install it", name)
    return found


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VoxlineError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except FileNotFoundError as error:
        print(f"images: {error.strerror}: {error.filename}", file=sys.stderr)
        sys.exit(1)
