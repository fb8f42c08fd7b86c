"""What all tests share: where real recordings lie, and a quiet, repeatable process."""

import os
import sys
from pathlib import Path

import hypothesis
import pytest

from tests.buckets.emulator import gcs as gcs  # a fixture
from tests.buckets.emulator import gcs_proxy as gcs_proxy  # a fixture
from tests.buckets.pods import fresh_pod as fresh_pod  # a fixture
from tests.buckets.s3_server import s3 as s3  # a fixture
from tests.buckets.s3_server import s3_proxy as s3_proxy  # a fixture
from tests.buckets.storages import storage as storage  # a fixture
from tests.tone_asr_model import make_asr_model as make_asr_model  # a fixture
from tests.tone_tts_model import make_tts_model as make_tts_model  # a fixture

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# The tests start hundreds of processes. Without byte code each compiles TensorFlow again: 14 s instead of 6.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine is slow, which is not a failure of the property.
hypothesis.settings.register_profile("voxline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("voxline")

ROOT = Path(__file__).parent.parent
REAL_DATA = ROOT.parent / "shared" / "data"

SLOWEST = [
    "tests/pipelines/test_run.py",
    "tests/families/asr/test_step.py",
    "tests/families/tts/test_step.py",
    "tests/pipelines/test_tts_run.py",
    "tests/serving/test_canary.py",
    "tests/serving/test_restart.py",
    "tests/feedback/test_loop.py",
    "tests/operations/test_purge_in_a_bucket.py",
    "tests/families/",
    "tests/push/",
    "tests/faults/",
    "tests/registry/",
    "tests/evaluate/",
    "tests/serving/",
    "tests/pipelines/test_no_network.py",
    "tests/pipelines/test_run_on_a_bucket.py",
    "tests/pipelines/test_refresh_run.py",
    "tests/store/test_conformance.py",
    "tests/training/",
    "tests/train/",
    "tests/convert/",
    "tests/extract/",
    "tests/demo_corpus/",
    "tests/pipelines/",
    "tests/validate/",
]
"""Files and folders that take longest, which begin first: one that begins last would run alone at the end."""


TEST_PARENTS = "VOXLINE_TEST_PARENTS"
"""Environment variable of `make test-parents`."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders the files for processes that take one after the other; one process alone keeps the order as it is.

    Tests of public parents that take minutes are skipped, but for `make test-parents`.
    """
    if not os.environ.get(TEST_PARENTS):
        for item in items:
            if item.get_closest_marker("parents"):
                item.add_marker(pytest.mark.skip(reason="trains from public models for minutes: make test-parents"))

    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, place in enumerate(SLOWEST) if item.nodeid.startswith(place)), len(SLOWEST))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real recordings: FSDD, ten LibriSpeech utterances, sixteen of LJSpeech."""
    if not REAL_DATA.is_dir():
        pytest.skip(
            "no ../shared/data beside the project: put FSDD, LibriSpeech and LJSpeech samples there to run this"
        )
    return REAL_DATA
