"""What holds for every test and doctest of the product."""

import gc
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

# Before numpy and TensorFlow start their pools of threads, here and in the processes that tests start. What tests
# compute is tiny: more threads only wait for work in busy loops, which takes a fifth of a test's processor time.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(name, "1")

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests import ONNX Runtime themselves, as an oracle

# In memory where there is plenty: the tests write very many files, and a disk makes them wait for each fsync.
MEMORY = Path("/dev/shm")  # noqa: S108  # pytest makes folders that nobody else can open
if (
    MEMORY.is_dir()
    and os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free > 1 << 30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # tests start programs that they write
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from _pytest.doctest import DoctestItem  # noqa: E402

from voxline.garbage import collect_rarely  # noqa: E402
from voxline.inference.tensorflow_import import hidden_packages  # noqa: E402

collect_rarely()

# A busy machine is no reason to fail: an example may take any time.
hypothesis.settings.register_profile("voxline", deadline=None)
hypothesis.settings.load_profile("voxline")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keras is collected as a training imports it, without packages that cost a third of its time."""
    with hidden_packages("sklearn", "matplotlib"):
        return (yield)


def pytest_collection_finish() -> None:
    """Keeps all that was imported out of later garbage collections: each would look through 600,000 objects again.

    TensorFlow does not optimize the graphs of this process, which are called a few times: that takes a quarter of the
    time of such a test. Runs of the steps in processes of their own do as in production.
    """
    gc.collect()
    gc.freeze()
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture(autouse=True)
def _run_doctests_in_an_empty_folder(request: pytest.FixtureRequest) -> None:
    """Lets examples write files under short names."""
    if isinstance(request.node, DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
