"""Container images as archives, for `ctr images import`.

The tests write their own without an engine: a layer and its configuration. `python -m tests.kubeflow.images FOLDER`
builds those of docker/ with an engine, and writes them to the folder; VOXLINE_KUBEFLOW_IMAGES names it to the tests.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from tests.containers.base_image import NoBaseError, base_image, builder_image
from tests.containers.engine import NoEngineError, docker, engine
from voxline.pipelines.images import IMAGES, build_image

NOTHING_BUILT = 3
"""The exit status where there is nothing to build with."""
ROOT = Path(__file__).resolve().parents[2]
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
"""What Debian has at the top, beside /usr."""
CODE, LIBRARIES = "/opt/voxline-code", "/opt/voxline"


def write_image(
    file: Path, names: Iterable[str], contents: dict[str, Path], *, entry: Iterable[str] = (), links: bool = False,
    environment: Iterable[str] = (), user: str = "65532:65532",
) -> None:  # fmt: skip
    """Writes an archive with one image.

    Args:
      names: its references.
      contents: path within the image → a file or a folder.
      links: whether its /bin and /lib are those of /usr, which the node mounts.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("tmp", "etc", "proc", "sys", "dev", "usr", "opt"):
            entry_ = tarfile.TarInfo(folder)
            entry_.type, entry_.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry_)
        for name, target in LINKS.items() if links else ():
            entry_ = tarfile.TarInfo(name)
            entry_.type, entry_.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry_)
        text = b"root:x:0:0::/:/sbin/nologin\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(text)
        tar.addfile(passwd, io.BytesIO(text))
        for path, source in contents.items():
            tar.add(source, path.lstrip("/"), filter=_owned_by_root)
    data = layer.getvalue()
    path = "PATH=/opt/voxline/bin:/usr/local/bin:/usr/bin:/bin"
    configuration = {
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [_digest(data)]},
        "config": {"Env": [path, *environment], "Entrypoint": list(entry), "User": user, "WorkingDir": "/tmp"},
        "history": [],
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as tar:
        for name, content in (
            ("config.json", json.dumps(configuration).encode()),
            ("layer.tar", data),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry_ = tarfile.TarInfo(name)
            entry_.size = len(content)
            tar.addfile(entry_, io.BytesIO(content))


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.mode |= 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)
    return entry


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def unpack_wheel(folder: Path) -> Path:
    """The project's code as a wheel installs it. Returns the folder with the package."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "wheel")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--target",
        str(folder / "code"),
    ]
    subprocess.run([*install, str(wheel)], check=True)
    return folder / "code"


def write_built_images(folder: Path) -> None:
    """Builds the images of docker/ under the names that the cluster's tests ask for, and writes NAME.tar of each.

    Raises:
      NoEngineError: no Docker engine answers, and none can be started.
      NoBaseError: no base image can be pulled, and none can be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with engine():
        base = base_image()
        builder = builder_image(base)
        for image in IMAGES:
            more = ["--quiet", "--network", "host"]
            source = "https://example.org/voxline"
            name = build_image(image, registry="voxline", tag="1", base=base, builder=builder, source=source, more=more)
            unfinished = folder / f".{image}.tar"
            docker("save", "--output", str(unfinished), name)
            unfinished.rename(folder / f"{image}.tar")
            print(f"{name}: {(folder / f'{image}.tar').stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    try:
        write_built_images(Path(sys.argv[1]))
    except (NoEngineError, NoBaseError) as error:
        print(f"skipped: {error}")
        raise SystemExit(NOTHING_BUILT) from None
