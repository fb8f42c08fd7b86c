"""convert on a Flink session cluster: the output of one machine, also if a machine dies."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extract.deadly import DEADLY, written_deadly
from tests.flink.cluster import Cluster
from tests.flink.conftest import UTTERANCES, make_corpus
from voxline.components.convert.beam import BATCH_RECORDINGS
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE, read_rejects
from voxline.store.hashing import hash_file
from voxline.store.step_cache import StepOutput

pytestmark = pytest.mark.timeout(1_800)

ALONE = ConvertSettings(max_reject_share=0.1, workers=2)
RECORDINGS = max(UTTERANCES // 4, 2 * BATCH_RECORDINGS + 200)
CUT, EMPTY, KILLS = 20, 40, 60


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """Recordings; one is truncated and one is empty."""
    folder = tmp_path / "corpus"
    make_corpus(folder, RECORDINGS)
    for number, size in ((CUT, 1_000), (EMPTY, 0)):
        file = folder / "wavs" / f"{number}.wav"
        was = hash_file(file)
        file.write_bytes(file.read_bytes()[:size])
        manifest = folder / "manifest.jsonl"
        manifest.write_text(manifest.read_text().replace(was, hash_file(file)))
    return folder


def on(cluster: Cluster) -> ConvertSettings:
    update = {"runner": "FlinkRunner", "beam_options": cluster.beam_options(2), "beam_from_megabytes": 0.0}
    return ALONE.model_copy(update=update)


def is_the_same(made: StepOutput, alone: StepOutput) -> None:
    assert made.key == alone.key
    for file in (MANIFEST_FILE, REJECTS_FILE):
        assert (made.folder / file).read_bytes() == (alone.folder / file).read_bytes()
    assert wavs(made) == wavs(alone)


def wavs(work: StepOutput) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in work.folder.parent.parent.glob("wavs/??/*.wav")}


def as_soon_as(store: Path, wavs: int, do: Callable[[], None]) -> None:
    def watch() -> None:
        while sum(1 for _ in store.glob("wavs/??/*.wav")) < wavs:
            time.sleep(0.05)
        do()

    threading.Thread(target=watch, daemon=True).start()


def test_a_killed_task_manager_does_not_change_the_output(spoilt: Path, tmp_path: Path) -> None:
    alone = run(spoilt, tmp_path / "alone", ALONE)
    with Cluster(tmp_path / "flink") as cluster:
        as_soon_as(tmp_path / "store", RECORDINGS // 4, lambda: cluster.kill_task_manager(1))
        work = run(spoilt, tmp_path / "store", on(cluster))
        (job,) = cluster.jobs()
        assert cluster.restarts() >= 1
    assert job["state"] == "FINISHED"
    assert work.counts["rejects"] == 2
    is_the_same(work, alone)


def test_a_recording_that_crashes_its_reader_is_one_reject_and_no_job_restarts(tmp_path: Path) -> None:
    utterances = make_corpus(tmp_path / "corpus", 100)
    manifest = tmp_path / "corpus" / "manifest.jsonl"
    (tmp_path / "corpus" / "wavs" / f"{KILLS}.wav").rename(tmp_path / "corpus" / "wavs" / DEADLY)
    manifest.write_text(manifest.read_text().replace(f"wavs/{KILLS}.wav", f"wavs/{DEADLY}"))
    with Cluster(tmp_path / "flink", python_path=[written_deadly(tmp_path / "hook")]) as cluster:
        work = run(tmp_path / "corpus", tmp_path / "store", on(cluster))
        assert cluster.restarts() == 0
    (reject,) = read_rejects(work.folder)
    assert (reject.id, reject.reason) == (utterances[KILLS].id, "unreadable")
    assert "SIGKILL" in reject.detail
