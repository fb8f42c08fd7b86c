"""The Kubeflow that these tests run on. It is given; nothing of it is built here.

Either a running server, by these variables:

- KUBEFLOW_ENDPOINT: the address of its API, http://127.0.0.1:8888.
- KUBEFLOW_KUBECONFIG: an administrator of its cluster. Without it only the tests of the API run.
- KUBEFLOW_NAMESPACE: where it is installed; `kubeflow` if unset.
- KUBEFLOW_VOLUMES: a folder that has the same path here and on every node. Without it no test runs pods.
- KUBEFLOW_UI: the address of its page.

Or KUBEFLOW_PROGRAMS, a folder with the programs of KFP 2.17, Argo, Kubernetes and the operators (`PROGRAMS_NEEDED`) and
with `pipelines/`, which holds KFP's manifests and configuration. The tests start them in namespaces of their own.
MariaDB and the CNI plug-ins are then Debian packages, unpacked, and ML Metadata is a wheel.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.k8s.fetched import TOOLS

ENDPOINT = os.environ.get("KUBEFLOW_ENDPOINT", "").rstrip("/")
KUBECONFIG = os.environ.get("KUBEFLOW_KUBECONFIG", "")
VOLUMES = os.environ.get("KUBEFLOW_VOLUMES", "")
UI = os.environ.get("KUBEFLOW_UI", "").rstrip("/")
PROGRAMS = os.environ.get("KUBEFLOW_PROGRAMS", "")
NOTHING_GIVEN = (
    "no Kubeflow is given: set KUBEFLOW_ENDPOINT and KUBEFLOW_KUBECONFIG to a server that runs, "
    "or KUBEFLOW_PROGRAMS to a folder of its programs (docs/cluster/README.md)"
)
API_PROGRAMS = ("apiserver",)
SERVER_PROGRAMS = (
    "apiserver", "persistence", "scheduledworkflow", "driver", "launcher-v2", "workflow-controller",
    "kube-apiserver", "etcd",
)  # fmt: skip
NODE_PROGRAMS = ("argoexec", "kube-controller-manager", "kube-scheduler", "kubelet", "pause")
OPERATOR_PROGRAMS = ("trainer", "jobset")
PROGRAMS_NEEDED = (*SERVER_PROGRAMS, *NODE_PROGRAMS, *OPERATOR_PROGRAMS)
COMMANDS = ("kubectl", "openssl", "ip", "unshare", "dpkg-deb")
DEBIAN = TOOLS / "debian"
DEBIAN_PACKAGES = ("mariadb-server-core", "containerd", "runc", "containernetworking-plugins")
CNI_PLUGINS = DEBIAN / "usr/lib/cni"
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
FETCH_SECONDS = 900


def program(name: str) -> Path:
    """The file of a program in KUBEFLOW_PROGRAMS."""
    return Path(PROGRAMS).resolve() / name


def pipelines_folder() -> Path:
    """The folder with KFP's `manifests/kustomize` and `backend/src/apiserver/config/config.json`."""
    return program("pipelines")


def missing_api() -> str:
    """What is not there to ask KFP's API server; "" where nothing is missing."""
    if ENDPOINT:
        return ""
    return _missing(API_PROGRAMS, [MARIADB])


def missing_cluster() -> str:
    """What is not there for a server with its Kubernetes; "" where nothing is missing."""
    if ENDPOINT:
        return "" if KUBECONFIG else f"no cluster: KUBEFLOW_KUBECONFIG names no administrator of that of {ENDPOINT}"
    return _missing(SERVER_PROGRAMS, [MARIADB, METADATA / "bin" / "python"])


def missing_node() -> str:
    """What is not there to run pods; "" where nothing is missing."""
    if what := missing_cluster():
        return what
    if ENDPOINT:
        return "" if VOLUMES else "no volumes: KUBEFLOW_VOLUMES names no folder that the nodes share"
    return _missing((*SERVER_PROGRAMS, *NODE_PROGRAMS), [])


def missing_operators() -> str:
    """What is not there to start Trainer and JobSet; "" where nothing is missing."""
    return "" if ENDPOINT else _missing(OPERATOR_PROGRAMS, [])


def missing_own_processes(what: str) -> str:
    """Why a test that stops, starts or opens the server's own processes cannot run; "" where it can.

    Args:
      what: what it does with them.
    """
    if not PROGRAMS:
        return f"{what}, for which the server has to be started here: set KUBEFLOW_PROGRAMS"
    return missing_cluster()


def _missing(programs: tuple[str, ...], files: list[Path]) -> str:
    if not PROGRAMS:
        return NOTHING_GIVEN
    if what := _unsuitable():
        return what
    absent = [str(file) for file in (*map(program, programs), *files) if not file.is_file()]
    return f"KUBEFLOW_PROGRAMS is given, and not there: {', '.join(absent)}" if absent else ""


def _unsuitable() -> str:
    if sys.platform != "linux" or os.geteuid():
        return "KUBEFLOW_PROGRAMS needs Linux and root, for namespaces and cgroups of its own"
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(absent)}" if absent else ""


def fetch_packages() -> str:
    """Fetches the packages that the programs need, where they are not there yet.

    Returns:
      Why they cannot be fetched here, or "".
    """
    return _unsuitable() or _unpack_debian() or _install_metadata()


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
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
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
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps"]
    command = [*install, "--python", str(partial / "bin/python"), *METADATA_PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    if done.returncode:
        return f"ML Metadata cannot be installed: {done.stderr.strip()[-300:]}"
    partial.rename(METADATA)
    return ""


def debian_environment() -> dict[str, str]:
    """An environment in which the unpacked packages find their libraries and each other."""
    folders = [str(DEBIAN / folder) for folder in ("usr/sbin", "usr/bin", "sbin", "bin")]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(DEBIAN / "usr/lib/x86_64-linux-gnu"),
    }


if __name__ == "__main__":
    if reason := fetch_packages():
        print(f"test-kubeflow: {reason}", file=sys.stderr)
        sys.exit(1)
