"""Builds the container images with `docker`, with the builder that the engine has.

    python -m voxline.pipelines.images tag
    python -m voxline.pipelines.images build [data model ...] [-- more arguments for docker build]

For each image, dist/images/ gets a software bill of materials (CycloneDX), and images.json lists what was built.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.components.images import IMAGE_REGISTRY
from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.config.cluster import ImageSettings
from voxline.store.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("data", "model", "validate")
VARIANTS = ("model-gpu", "model-tpu", "cli")
SBOM = "/opt/voxline/sbom.cdx.json"


def build_image(image: str, *, registry: str, tag: str, base: str, builder: str, source: str, more: list[str]) -> str:
    """Builds one image, and returns its name.

    Args:
      image: a folder of docker/ that holds a requirements.lock.
      registry: the part before the image's name.
      tag: the image's tag.
      base: the base image; empty: the Dockerfile's.
      builder: the image that installs the requirements; empty: the base.
      source: the URL of the code, for the label.
      more: arguments for `docker build`.

    Raises:
      SettingsError: the image is unknown.
      WorkError: the build failed.
    """
    if not (ROOT / "docker" / image / "requirements.lock").is_file():
        raise SettingsError(f"image {image!r}: accepted: {', '.join(IMAGES + VARIANTS)}")
    name = f"{registry}/{image}:{tag}"
    arguments = {
        "IMAGE": image,
        "BASE": base,
        "BUILDER": builder,
        "REVISION": revision(),
        "SOURCE": source,
        "VERSION": tag,
    }
    # An empty value would replace the Dockerfile's default, so it is not passed on.
    options = [part for key, value in arguments.items() if value for part in ("--build-arg", f"{key}={value}")]
    _docker("build", "--file", str(ROOT / "docker" / "Dockerfile"), *options, "--tag", name, *more, str(ROOT))
    return name


def record_image(name: str, folder: Path) -> dict[str, Any]:
    """Copies the image's bill of materials into `folder`, and adds the image to images.json there."""
    image = name.rpartition("/")[2].partition(":")[0]
    folder.mkdir(parents=True, exist_ok=True)

    # Files can be copied from a container, not from an image; this one is never started.
    container = _docker_output("create", "--network", "none", name)
    try:
        _docker("cp", f"{container}:{SBOM}", str(folder / f"{image}.cdx.json"), quiet=True)
    finally:
        _docker("rm", container, quiet=True)

    # Images that were built before, by other calls, stay in the list.
    identity, size = _docker_output("image", "inspect", "--format", "{{.Id}} {{.Size}}", name).split()
    record = folder / "images.json"
    images = read_json(record) if record.is_file() else {}
    images[image] = {"name": name, "id": identity, "bytes": int(size), "sbom": f"{image}.cdx.json"}
    write_json(record, images)
    entry: dict[str, Any] = images[image]
    return entry


def revision(root: Path = ROOT) -> str:
    """The commit, with `-dirty` if the tree differs from it; empty if git does not track this code."""
    try:
        _git("ls-files", "--error-unmatch", "pyproject.toml", root=root)
        commit = _git("rev-parse", "HEAD", root=root)
        return commit + ("-dirty" if _git("status", "--porcelain", root=root) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def source_url() -> str:
    """The https URL that the code was cloned from; empty if unknown."""
    try:
        return https_url(_git("remote", "get-url", "origin"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def https_url(remote: str) -> str:
    """The https URL of a git remote, without credentials; empty if the remote has no host.

    >>> https_url("https://name:token@git.example.org:8443/team/voxline.git")
    'https://git.example.org:8443/team/voxline'
    >>> https_url("git@git.example.org:team/voxline.git"), https_url("/srv/voxline.git")
    ('https://git.example.org/team/voxline', '')
    """
    match = re.fullmatch(r"(?:https://(?:[^/@]*@)?([^/@]+)/|git@([^/@:]+):)(.+?)(?:\.git)?/?", remote)
    return f"https://{match[1] or match[2]}/{match[3]}" if match else ""


def main(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m voxline.pipelines.images", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    # Both commands take the base, because the tag depends on it.
    tagging = commands.add_parser("tag", help="print the content tag")
    building = commands.add_parser("build", help="build images")
    for command in (tagging, building):
        command.add_argument(
            "--base", default=os.environ.get("VOXLINE_IMAGE_BASE", ""), help="the base image, best by digest"
        )

    building.add_argument("images", nargs="*", default=list(IMAGES), metavar="IMAGE", help=", ".join(IMAGES + VARIANTS))
    building.add_argument(
        "--builder",
        default="",
        help="the image that installs the requirements, if your network needs a CA or pip.conf that the base lacks",
    )
    building.add_argument("--registry", default=IMAGE_REGISTRY, help="the part before an image's name")
    building.add_argument("--tag", default="", help="instead of the content tag")
    building.add_argument("--source", default=source_url(), help="the label org.opencontainers.image.source")
    building.add_argument("--output", type=Path, default=ROOT / "dist" / "images", help="folder for the records")

    own_arguments, docker_arguments = _split(arguments)
    options = parser.parse_args(own_arguments)
    if options.command == "tag":
        print(content_tag(ROOT, options.base))
        return
    if unknown := [image for image in options.images if image not in IMAGES + VARIANTS]:
        raise SettingsError(f"image {unknown[0]!r}: accepted: {', '.join(IMAGES + VARIANTS)}")

    # Checked as a config's names are: what is built under another name could not be run.
    names = ImageSettings.of({"registry": options.registry, "tag": options.tag}, "the names of images")
    registry = names.registry.rstrip("/") or IMAGE_REGISTRY
    tag = names.tag or content_tag(ROOT, options.base)
    for image in options.images:
        name = build_image(
            image,
            registry=registry,
            tag=tag,
            base=options.base,
            builder=options.builder,
            source=options.source,
            more=docker_arguments,
        )
        entry = record_image(name, options.output)
        print(f"{name}  {entry['bytes'] / 1e6:,.0f} MB  {entry['id']}")

    # The last line can be put before `voxline compile`, or into a CI job's environment.
    print(f"VOXLINE_IMAGE_REGISTRY={registry} VOXLINE_IMAGE_TAG={tag}")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and those after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _docker(*arguments: str, quiet: bool = False) -> None:
    out = subprocess.DEVNULL if quiet else None
    ended = subprocess.run([_program("docker"), *arguments], stdout=out, check=False)  # noqa: S603 - a list
    if ended.returncode:
        raise WorkError(f"docker {arguments[0]} ended with status {ended.returncode}; see its output above")


def _docker_output(*arguments: str) -> str:
    """The output of a docker command, stripped."""
    ended = subprocess.run(  # noqa: S603 - a list
        [_program("docker"), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        raise WorkError(f"docker {arguments[0]} ended with status {ended.returncode}; see its output above")
    return ended.stdout.strip()


def _git(*arguments: str, root: Path = ROOT) -> str:
    command = [_program("git"), "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - a list


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(2, "not on the PATH; install it", name)
    return path


IGNORE_FILE = ".dockerignore"


def content_tag(root: Path, base: str = "") -> str:
    """The tag of all images: the version and a hash of what goes into them, such as `0.1.0-3f9c1d2e4b5a`.

    The hash covers the files that .dockerignore admits, and the base. A compiled pipeline has one registry and one tag,
    so all images share the tag. YAML never reads it as a number.

    Args:
      root: the project's folder.
      base: the base image, if it is not the Dockerfile's own.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    # Paths are in the hash too, so that a file that moves changes it.
    content = hashlib.sha256(base.encode())
    for path in context_files(root):
        file = root / path
        data = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
        content.update(f"\n{hashlib.sha256(data).hexdigest()} {path}".encode())
    return f"{version}-{content.hexdigest()[:12]}"


def context_files(root: Path) -> list[str]:
    """The sorted paths, relative to `root`, of the files that .dockerignore admits to a build.

    Raises:
      SettingsError: the file is not an allow-list of plain paths.
    """
    import pathspec

    patterns, admitted = _read_ignore_file(root / IGNORE_FILE)
    # The rule is the same as git's: the last line that matches the path, or a folder above it, decides.
    ignored = pathspec.GitIgnoreSpec.from_lines(patterns)
    files = {file.relative_to(root).as_posix() for path in admitted for file in _walk(root / path)}
    return sorted(path for path in files if not ignored.match_file(path))


def _read_ignore_file(file: Path) -> tuple[list[str], list[str]]:
    """The lines as git would write them, anchored at the root, and the paths that are admitted as they are."""
    # An allow-list: a file that nobody thought of stays out of the images.
    patterns: list[str] = []
    admitted: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue

        negation = "!" if text.startswith("!") else ""
        path = text.removeprefix("!").strip("/")
        if re.search(r"[\[\\]", path):
            raise SettingsError(f"{file}, line {number}: {line!r}: the only wildcards accepted are *, ** and ?")
        if negation and not re.search(r"[*?]", path):
            admitted.append(path)
        elif negation and not path.startswith(tuple(f"{folder}/" for folder in admitted)):
            # Docker's classic builder does not look for such a file in a folder that it skips.
            raise SettingsError(
                f"{file}, line {number}: {line!r}: admit the folder by its path first, and then a kind of file in it"
            )

        patterns.append(f"{negation}/{path}")
    return patterns, admitted


def _walk(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            yield from _walk(entry)
    elif path.is_symlink() or path.exists():
        yield path


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except VoxlineError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except FileNotFoundError as error:
        print(f"images: {error.strerror}: {error.filename}", file=sys.stderr)
        sys.exit(1)
