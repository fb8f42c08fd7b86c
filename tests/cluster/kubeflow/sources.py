"""Kubeflow Pipelines' own code, built from its source with the tests beside this file, and run on what we compile.

The sources are those of $VOXLINE_KUBEFLOW_SOURCES, else of `../shared/kubeflow` beside the checkout, else a clone of
the upstream tag. What is built is kept in `.cluster-tools/kubeflow`, by a hash of the sources and of the tests.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cluster.k8s.fetched import TOOLS

PIPELINES, ARGO = "pipelines-2.17.0.tar.xz", "argo-workflows-4.0.5.tar.xz"
CLONED = ("https://github.com/kubeflow/pipelines", "2.17.0")
POD_SECURITY = "k8s.io/pod-security-admission@v0.35.4"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TESTS = {
    "pods_test.go": "backend/src/v2/driver",
    "launcher_test.go": "backend/src/v2/component",
    "answers_test.go": "backend/src/apiserver/server",
}
"""Each test, and the folder of the package whose inner functions it calls."""
WITH_C = ("answers_test.go",)
"""For SQLite; the others share what `make test-kubeflow` compiles without C."""
BUILD_SECONDS = 7200


def run(test: str, folder: Path, **environment: str) -> None:
    """Runs a test; it writes into `folder`. Skips where it cannot be built, and says why."""
    binary, sources = built(test)
    values = {"VOXLINE_OUT": str(folder), "VOXLINE_KFP": str(sources), **environment}
    command = [str(binary), "-test.v", "-test.count=1"]
    done = subprocess.run(
        command, cwd=sources, env={**os.environ, **values}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@functools.cache
def built(test: str) -> tuple[Path, Path]:
    """The binary of a test, and the folder of the sources."""
    if os.environ.get("VOXLINE_KUBEFLOW_BUILD") == "0" and not (TOOLS / "kubeflow").is_dir():
        pytest.skip("Kubeflow Pipelines is not built here; `make test-cluster` builds it once, which takes a while")
    if shutil.which("go") is None:
        pytest.skip("no Go on the PATH, which builds Kubeflow Pipelines from its source")
    sources = unpacked()
    text = (HERE / test).read_bytes()
    binary = sources.parent / "bin" / f"{test.removesuffix('.go')}-{hashlib.sha256(text).hexdigest()[:16]}"
    if binary.is_file():
        return binary, sources
    target = sources / TESTS[test]
    for old in target.glob("zz_voxline_*_test.go"):
        old.unlink()
    (target / f"zz_voxline_{test}").write_bytes(text)
    if "pod-security-admission" not in (sources / "go.mod").read_text() and test == "pods_test.go":
        go("get", POD_SECURITY, folder=sources)
    partial = binary.with_suffix(".partial")
    flags = ("-c", "-vet=off", "-ldflags", "-s -w", "-o", str(partial))
    go("test", *flags, f"./{TESTS[test]}", folder=sources, static=test not in WITH_C)
    partial.rename(binary)
    return binary, sources


def available() -> bool:
    """Whether the sources are there, or may be fetched."""
    return bool(_archives()) or (TOOLS / "kubeflow").is_dir() or os.environ.get("VOXLINE_KUBEFLOW_BUILD") != "0"


@functools.cache
def unpacked() -> Path:
    """The folder of KFP's sources, with Argo's beside it."""
    archives = _archives()
    key = "upstream-" + CLONED[1]
    if archives:
        key = hashlib.sha256(b"".join(hashlib.sha256(one.read_bytes()).digest() for one in archives)).hexdigest()[:16]
    folder = TOOLS / "kubeflow" / key
    if folder.is_dir():
        return folder / "pipelines"
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    (partial / "bin").mkdir(parents=True)
    if archives:
        for archive, name in zip(archives, ("pipelines", "argo-workflows"), strict=True):
            with tarfile.open(archive) as opened:
                opened.extractall(partial / name, filter="data")
    else:
        clone = [
            "git",
            "clone",
            "--quiet",
            "--depth",
            "1",
            "--branch",
            CLONED[1],
            CLONED[0],
            str(partial / "pipelines"),
        ]
        done = subprocess.run(clone, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode:
            shutil.rmtree(partial)
            pytest.skip(f"no sources of Kubeflow Pipelines: {done.stderr.strip()[-200:]}; set VOXLINE_KUBEFLOW_SOURCES")
    partial.rename(folder)
    return folder / "pipelines"


def _archives() -> list[Path]:
    for folder in (os.environ.get("VOXLINE_KUBEFLOW_SOURCES"), str(ROOT.parent / "shared" / "kubeflow")):
        if folder and all((Path(folder) / name).is_file() for name in (PIPELINES, ARGO)):
            return [Path(folder) / PIPELINES, Path(folder) / ARGO]
    return []


def go(*arguments: str, folder: Path, static: bool = False) -> str:
    """Calls Go in a folder of the sources. Returns what it printed.

    Args:
      static: without C, for a binary that any image can hold.
    """
    environment = {
        **os.environ,
        "GOMODCACHE": str(TOOLS / "modules"),
        "GOCACHE": str(TOOLS / "cache"),
        "GOFLAGS": "-modcacherw -mod=mod",
        "GOTOOLCHAIN": "local",
        "GOSUMDB": "off",  # every hash but that of POD_SECURITY is in go.sum
    }
    if static:
        environment["CGO_ENABLED"] = "0"
    done = subprocess.run(
        ["nice", "go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=BUILD_SECONDS,
    )  # fmt: skip
    if done.returncode and any(word in done.stderr for word in ("dial tcp", "no such host", "requires go >=")):
        pytest.skip(f"Kubeflow Pipelines cannot be built here: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
