"""validate with everything in a bucket: workers that share no disk find what one machine finds."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.pods import workers_elsewhere
from tests.validate.takes import SMALL, fit, written
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.store.objects import open_store


@pytest.mark.slow
def test_workers_that_share_no_disk_find_what_one_machine_finds(
    gcs: Storage, fresh_pod: Callable[[], Path], tmp_path: Path
) -> None:
    corpus = written(tmp_path / "corpus", fit())
    alone = run(corpus, tmp_path / "store", ValidateSettings.of(SMALL))
    fresh_pod()
    mirror = open_store(f"{gcs.uri}/converted")
    shutil.copytree(corpus, mirror.local_path())
    mirror.push([path.name for path in mirror.local_path().iterdir()])
    by_workers = ValidateSettings.of({**SMALL, "runner": "multi_process", "workers": 1, "beam_from_megabytes": 0})
    with workers_elsewhere(tmp_path / "worker"):
        spread = run(f"{gcs.uri}/converted", f"{gcs.uri}/store", by_workers)
        assert spread.path("validation").read_bytes() == alone.path("validation").read_bytes()
    assert spread.key == alone.key
    assert list((tmp_path / "worker").rglob("manifest.jsonl"))
    assert not [name for name in gcs.names() if "tallies" in name]
