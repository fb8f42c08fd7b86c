"""A Go program that imports Kubeflow Trainer and JobSet as modules, and calls their controllers on our objects.

Their versions and hashes are in `trainer_build/go.mod` and `go.sum`. The program is kept in
`.cluster-tools/operators`, by a hash of its source.
"""

import functools
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.k8s.fetched import TOOLS, go

SOURCE = Path(__file__).resolve().parent / "trainer_build"
TRAINER = "github.com/kubeflow/trainer/v2@v2.1.0"


def run(folder: Path) -> None:
    """Runs the program; it reads and writes in `folder`. Skips where it cannot be built, and says why."""
    command = [str(built()), "-test.run", "TestVoxline", "-test.v"]
    values = {**os.environ, "VOXLINE_OUT": str(folder)}
    done = subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@functools.cache
def built() -> Path:
    """The program's file, built where it is not there yet."""
    text = b"".join((SOURCE / name).read_bytes() for name in ("trainer_test.go", "go.mod", "go.sum"))
    binary = TOOLS / "operators" / f"trainer-{hashlib.sha256(text).hexdigest()[:16]}"
    if binary.is_file():
        return binary
    if os.environ.get("VOXLINE_TRAINER_BUILD") == "0":
        pytest.skip("Kubeflow Trainer is not built here; `make test-cluster` builds it once, which takes minutes")
    binary.parent.mkdir(parents=True, exist_ok=True)
    partial = binary.with_suffix(f".partial-{os.getpid()}")
    flags = ("-c", "-vet=off", "-mod=readonly", "-ldflags", "-s -w", "-o", str(partial))
    done = go("-C", str(SOURCE), "test", *flags, ".")
    if any(word in done.stderr for word in ("dial tcp", "no such host", "requires go >=")):
        pytest.skip(f"Kubeflow Trainer cannot be built here: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr[-4000:]
    partial.rename(binary)
    return binary
