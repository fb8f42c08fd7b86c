"""What `make test-kubeflow` runs: fetched and built once, into `.cluster-tools`; nothing is installed on the machine.

Go builds etcd, Kubernetes, Kubeflow Pipelines and Argo from source. MariaDB and the CNI plug-ins are Debian packages,
unpacked; containerd and runc too, where the machine has none. ML Metadata is a wheel, in an environment of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.k8s.api_server import ETCD, NODE_BINARIES, SERVER, build_kubernetes
from tests.cluster.k8s.fetched import TOOLS
from tests.cluster.kubeflow import sources

PIPELINES_PACKAGES = {
    "apiserver": "./backend/src/apiserver",
    "persistence": "./backend/src/agent/persistence",
    "scheduledworkflow": "./backend/src/crd/controller/scheduledworkflow",
    "driver": "./backend/src/v2/cmd/driver",
    "launcher-v2": "./backend/src/v2/cmd/launcher-v2",
}
ARGO_PACKAGES = {"workflow-controller": "./cmd/workflow-controller", "argoexec": "./cmd/argoexec"}
DEBIAN = TOOLS / "debian"
DEBIAN_PACKAGES = ("mariadb-server-core", "containerd", "runc", "containernetworking-plugins")
CNI_PLUGINS = DEBIAN / "usr/lib/cni"
PAUSE_BINARY = TOOLS / "bin" / "pause"
MARIADB = DEBIAN / "usr/sbin/mariadbd"
METADATA = TOOLS / "metadata"
METADATA_PACKAGES = (
    "ml-metadata==1.17.0",
    "protobuf==4.25.9",
    "grpcio==1.85.1",
    "absl-py==2.5.1",
    "attrs==26.1.0",
    "six==1.17.0",
    "typing_extensions==4.16.0",
)
"""All that it needs for a database connection; its own bounds are older."""


def pipelines_sources() -> Path:
    """The folder of Kubeflow Pipelines' sources; `bin` beside it has the binaries."""
    return sources.unpacked()


def pipelines_binary(name: str) -> Path:
    return pipelines_sources().parent / "bin" / name


def build() -> str:
    """Builds what is not there yet.

    Returns:
      Why the tests cannot run here, or "".
    """
    if why := _unsuitable():
        return why
    if os.environ.get("VOXLINE_KUBEFLOW_BUILD") == "0":
        return ""
    try:
        folder = pipelines_sources()
        for packages, within in ((PIPELINES_PACKAGES, folder), (ARGO_PACKAGES, folder.parent / "argo-workflows")):
            for name, package in packages.items():
                if not pipelines_binary(name).is_file():
                    print(f"test-kubeflow: building {name}", flush=True)
                    partial = pipelines_binary(f"{name}.partial")
                    flags = ["-ldflags", "-s -w", "-overlay", str(_overlay(folder)), "-o", str(partial)]
                    sources.go("build", *flags, package, folder=within, static=True)
                    partial.rename(pipelines_binary(name))
    except pytest.skip.Exception as skipped:
        return str(skipped)
    build_kubernetes(NODE_BINARIES)
    if not PAUSE_BINARY.is_file():
        sources.go(
            "build", "-o", str(PAUSE_BINARY), str(Path(__file__).with_name("pause.go")), folder=folder, static=True
        )
    return _unpack_debian() or _install_metadata()


def _overlay(folder: Path) -> Path:
    """A file for `go build -overlay`: the API server without a check of SQLite's errors, which exist with C alone."""
    original = folder / "backend/src/apiserver/storage/db.go"
    changed = folder.parent / "db.go"
    text = original.read_text()
    for old, new in {
        'sqlite3 "github.com/mattn/go-sqlite3"': "",
        "sqlError, ok := err.(sqlite3.Error)": "",
        "return ok && sqlError.Code == sqlite3.ErrConstraint": "return false",
    }.items():
        assert old in text, f"{original} is not what it was: {old}"
        text = text.replace(old, new)
    changed.write_text(text)
    file = folder.parent / "overlay.json"
    file.write_text(json.dumps({"Replace": {str(original): str(changed)}}))
    return file


def missing_api() -> str:
    """What is not there to start KFP's API server alone; "" where nothing is."""
    return _unsuitable() or _absent(["apiserver"], [MARIADB])


def missing_cluster() -> str:
    """What is not there to start everything but pods; "" where nothing is."""
    names = [*PIPELINES_PACKAGES, "workflow-controller"]
    return _unsuitable() or _absent(names, [SERVER, ETCD, MARIADB, METADATA / "bin" / "python"])


def missing_node() -> str:
    """What is not there to run pods; "" where nothing is."""
    return missing_cluster() or _absent([*PIPELINES_PACKAGES, *ARGO_PACKAGES], [*NODE_BINARIES, PAUSE_BINARY])


def _absent(names: list[str], files: list[Path]) -> str:
    try:
        wanted = [*(pipelines_binary(name) for name in names), *files]
    except pytest.skip.Exception as skipped:
        return str(skipped)
    absent = [file.name for file in wanted if not file.is_file()]
    return f"no {', '.join(absent)}; `python -m tests.kubeflow.build` makes them" if absent else ""


def _unsuitable() -> str:
    if sys.platform != "linux" or os.geteuid():
        return "needs Linux and root, for namespaces and cgroups of its own"
    absent = [name for name in ("go", "kubectl", "openssl", "ip", "unshare", "dpkg-deb") if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(absent)}" if absent else ""


def _unpack_debian() -> str:
    if MARIADB.is_file() and (CNI_PLUGINS / "bridge").is_file():
        return ""
    print(f"test-kubeflow: fetching {', '.join(DEBIAN_PACKAGES)}", flush=True)
    archives = TOOLS / "debian-archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = (
        "-y",
        "-qq",
        "--no-install-recommends",
        "-o",
        "Debug::NoLocking=1",
        "-o",
        f"Dir::Cache::archives={archives}",
    )
    command = ["apt-get", *options, "--download-only", "install", *DEBIAN_PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        return f"no Debian packages here (run apt-get update): {done.stderr.strip()[-300:]}"
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(DEBIAN)], check=True)
    return ""


def _install_metadata() -> str:
    python = METADATA / "bin" / "python"
    if python.is_file():
        return ""
    if sys.version_info[:2] != (3, 11):
        return "ml-metadata has wheels for Python 3.11 only"
    print("test-kubeflow: installing ML Metadata", flush=True)
    partial = METADATA.with_name("metadata.partial")
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(partial)], check=True)
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--python",
        str(partial / "bin/python"),
    ]
    done = subprocess.run([*install, *METADATA_PACKAGES], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        return f"ML Metadata cannot be installed: {done.stderr.strip()[-300:]}"
    partial.rename(METADATA)
    return ""


def debian_environment() -> dict[str, str]:
    """An environment in which the unpacked packages find their libraries and each other."""
    folders = [str(DEBIAN / one) for one in ("usr/sbin", "usr/bin", "sbin", "bin")]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(DEBIAN / "usr/lib/x86_64-linux-gnu"),
    }


if __name__ == "__main__":
    from tests.kubeflow import operators, ui

    if reason := build():
        print(f"test-kubeflow: skipped, {reason}")
        sys.exit(3)
    if reason := "" if os.environ.get("VOXLINE_KUBEFLOW_BUILD") == "0" else operators.build():
        print(f"test-kubeflow: without Trainer and Katib, {reason}")
    if reason := "" if os.environ.get("VOXLINE_KUBEFLOW_BUILD") == "0" else ui.build():
        print(f"test-kubeflow: without the UI, {reason}")
