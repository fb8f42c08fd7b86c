"""Code of Kubeflow's operators, built from their modules with the Go tests beside this file, and called on our objects.

The modules are pinned in fetched.py. What is built is kept in `.cluster-tools/operators`, by a hash of the tests.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.k8s.fetched import TOOLS, go, module

HERE = Path(__file__).resolve().parent
TRAINER = "github.com/kubeflow/trainer/v2@v2.1.0"
KATIB = "github.com/kubeflow/katib@v0.19.0"
TESTS = {
    TRAINER: ("trainer_test.go", "pkg/controller"),
    KATIB: ("katib_test.go", "pkg/webhook/v1beta1/experiment"),
}
"""By module: the test, and the folder whose package it is in."""
REQUIRED = re.compile(r"^\t(\S+) (v\S+)", re.MULTILINE)


def run(name: str, folder: Path) -> None:
    """Runs a module's test; it reads and writes in `folder`. Skips where it cannot be built, and says why."""
    command = [str(built(name)), "-test.run", "TestVoxline", "-test.v"]
    values = {**os.environ, "VOXLINE_OUT": str(folder)}
    done = subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@functools.cache
def built(name: str) -> Path:
    """The binary of a module's test."""
    test, inside = TESTS[name]
    text = name.encode() + (HERE / test).read_bytes()
    binary = TOOLS / "operators" / f"{Path(test).stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if binary.is_file():
        return binary
    if os.environ.get("VOXLINE_KUBEFLOW_BUILD") == "0":
        pytest.skip(f"{name} is not built here; `make test-cluster` builds it once, which takes minutes")
    folder = binary.with_suffix(".src")
    _copy(module(name), folder)
    shutil.copy(HERE / test, folder / inside / f"zz_voxline_{test}")
    partial = binary.with_suffix(f".partial-{os.getpid()}")
    flags = ("-c", "-vet=off", "-ldflags", "-s -w", "-o", str(partial))
    done = go("-C", str(folder), "test", *flags, f"./{inside}")
    if any(word in done.stderr for word in ("dial tcp", "no such host", "requires go >=")):
        pytest.skip(f"{name} cannot be built here: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr[-4000:]
    partial.rename(binary)
    shutil.rmtree(folder)
    return binary


def _copy(source: Path, folder: Path) -> None:
    """The Go part of a module; Go lets nobody add files to its cache.

    All are built with the libraries of Trainer, whose versions are the newest: most of it is then compiled once.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(source / "pkg", folder / "pkg")
    libraries = module(TRAINER)
    versions = dict(REQUIRED.findall((libraries / "go.mod").read_text()))
    text = (source / "go.mod").read_text()
    changed = REQUIRED.sub(lambda found: f"\t{found[1]} {versions.get(found[1], found[2])}", text)
    (folder / "go.mod").write_text(changed)
    sums = {*(source / "go.sum").read_text().splitlines(), *(libraries / "go.sum").read_text().splitlines()}
    (folder / "go.sum").write_text("\n".join(sorted(sums)) + "\n")
