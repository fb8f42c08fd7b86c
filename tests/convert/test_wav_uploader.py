"""New WAVs are uploaded while others are converted; a refused upload stops the step."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.waiting import wait_until
from voxline.components.convert.jobs import Converted, RejectedRecording
from voxline.components.convert.wav_pool import WavUploader
from voxline.errors import WorkError
from voxline.rejects import Reason
from voxline.store.objects import ObjectStore, open_store

WHOLE = Converted(1_000, {})


@pytest.fixture
def pool(gcs: Storage, fresh_pod: Callable[[], Path]) -> ObjectStore:
    """A pool with ten WAVs and a log."""
    fresh_pod()
    mirror = open_store(f"{gcs.uri}/store/wavs")
    for number in range(10):
        (mirror.local_path() / "ab").mkdir(parents=True, exist_ok=True)
        (mirror.local_path() / "ab" / f"{number}.wav").write_text(str(number), encoding="utf-8")
    (mirror.local_path() / "log").mkdir()
    (mirror.local_path() / "log" / "key.jsonl").write_text("{}\n", encoding="utf-8")
    return mirror


def wavs(pool: ObjectStore) -> list[Path]:
    return sorted((pool.local_path() / "ab").iterdir())


def send_all(pool: ObjectStore) -> None:
    with WavUploader(pool, pool.local_path() / "log" / "key.jsonl", first=2) as sent:
        for wav in wavs(pool):
            sent.add(wav, WHOLE)


def test_wavs_are_uploaded_while_others_are_converted(gcs: Storage, pool: ObjectStore) -> None:
    made = wavs(pool)
    with WavUploader(pool, pool.local_path() / "log" / "key.jsonl", first=2) as sent:
        for wav in made[:4]:
            sent.add(wav, WHOLE)
        wait_until(lambda: len(gcs.names()) >= 3, "two WAVs and the log", 0.05)
        for wav in made[4:]:
            sent.add(wav, WHOLE)
        sent.add(pool.local_path() / "ab" / "bad.wav", RejectedRecording(Reason.SILENT, ""))
    assert len(gcs.names()) == 11
    assert pool.read("ab/9.wav") == b"9"


def test_a_refused_upload_stops_the_step(gcs: Storage, pool: ObjectStore) -> None:
    gcs.fails("status", "POST", times=1_000, code=403)
    with pytest.raises(WorkError, match="permission denied"):
        send_all(pool)


def test_a_pool_in_a_folder_uploads_nothing(tmp_path: Path) -> None:
    with WavUploader(open_store(tmp_path), tmp_path / "log.jsonl") as sent:
        sent.add(tmp_path / "a.wav", WHOLE)
