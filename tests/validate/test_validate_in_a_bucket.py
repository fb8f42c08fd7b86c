"""validate with everything in a bucket: workers that share no disk find what one machine finds."""

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.validate.takes import SMALL, fit, written
from voxline.components.validate import beam as pipeline
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.store.objects import open_store


def test_workers_that_share_no_disk_find_what_one_machine_finds(
    gcs: Storage, fresh_pod: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    from voxline.beam import run as beam

    def elsewhere(settings: ValidateSettings) -> FnApiRunner:
        command = f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
        other_disk = f"env VOXLINE_BUCKET_CACHE={shlex.quote(str(tmp_path / 'worker'))} {command}"
        return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(other_disk))

    corpus = written(tmp_path / "corpus", fit())
    alone = run(corpus, tmp_path / "store", ValidateSettings.of(SMALL))
    fresh_pod()
    mirror = open_store(f"{gcs.uri}/converted")
    shutil.copytree(corpus, mirror.local_path())
    mirror.push([path.name for path in mirror.local_path().iterdir()])
    fresh_pod()
    monkeypatch.setattr(beam, "_runner", elsewhere)
    monkeypatch.setattr(pipeline, "RANGE_BYTES", 4_000)
    by_workers = ValidateSettings.of({**SMALL, "runner": "multi_process", "workers": 1, "beam_from_megabytes": 0})
    spread = run(f"{gcs.uri}/converted", f"{gcs.uri}/store", by_workers)
    assert spread.key == alone.key
    assert spread.path("validation").read_bytes() == alone.path("validation").read_bytes()
    assert not [name for name in gcs.names() if "tallies" in name]
