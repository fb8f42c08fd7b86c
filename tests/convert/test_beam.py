"""convert by a Beam pipeline: its output is that of the processes of one machine, faults included."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.buckets.emulator import Storage
from tests.buckets.pods import workers_elsewhere
from tests.convert.conftest import RECORDINGS, good_flac, manifest_of, utterance
from voxline.components.convert import beam as distributed
from voxline.components.convert.beam import convert_groups, convert_with_beam
from voxline.components.convert.jobs import ConversionJob, Converted, JobGroup, convert_in_processes
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE, read_manifest, read_rejects
from voxline.store.localize import localize
from voxline.store.objects import open_store

ALONE = ConvertSettings(max_reject_share=1.0, max_seconds=10, workers=2)
CRASH = """
import os, signal, sys
if "voxline.audio.process_pool" in sys.orig_argv:
    import soundfile
    opened = soundfile.SoundFile._open
    def crash(self, file, *rest):
        if str(file).endswith("/3.flac"):
            os.kill(os.getpid(), signal.SIGSEGV)
        return opened(self, file, *rest)
    soundfile.SoundFile._open = crash
"""
CONVERT = """
import sys
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.step import run
print(run(sys.argv[1], sys.argv[2], ConvertSettings.of(sys.argv[3])).folder)
"""


def by(runner: str) -> ConvertSettings:
    return ALONE.model_copy(update={"runner": runner, "beam_from_megabytes": 0.0})


@pytest.mark.parametrize("runner", ["FnApiRunner", pytest.param("multi_process", marks=pytest.mark.slow)])
def test_a_beam_pipeline_writes_the_same_manifest_and_rejects(recordings: Path, tmp_path: Path, runner: str) -> None:
    manifest = manifest_of(tmp_path / "in", [utterance(recordings / name) for name in RECORDINGS])
    alone, spread = run(manifest, tmp_path / "alone", ALONE), run(manifest, tmp_path / "spread", by(runner))
    assert spread.key == alone.key
    assert spread.counts == alone.counts
    for file in (MANIFEST_FILE, REJECTS_FILE):
        assert (spread.folder / file).read_bytes() == (alone.folder / file).read_bytes()
    assert pool(tmp_path / "spread") == pool(tmp_path / "alone")
    assert not (spread.folder / "unfinished").exists()


def test_batches_have_the_results_of_one_process(recordings: Path, tmp_path: Path) -> None:
    def jobs(folder: str) -> list[JobGroup]:
        given = enumerate(utterance(recordings / name) for name in RECORDINGS)
        return [(job(one.audio_filepath, one.audio_hash, tmp_path / folder / f"{at}.wav"),) for at, one in given]

    spread = convert_with_beam(jobs("spread"), by("FnApiRunner"), tmp_path / "spread", tmp_path / "unfinished", 5)
    assert dict(spread) == dict(convert_in_processes(jobs("alone"), 2, 300, 0))
    assert len(list((tmp_path / "spread").glob("*.wav"))) == len(list((tmp_path / "alone").glob("*.wav"))) >= 5


def job(source: str, audio_hash: str, wav: Path, duration: float | None = None) -> ConversionJob:
    return ConversionJob(source, audio_hash, 0.0, duration, wav, 16_000, -60.0)


def pool(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.glob("wavs/??/*.wav")}


@pytest.mark.slow
def test_a_recording_that_crashes_its_reader_is_one_reject_and_the_worker_survives(tmp_path: Path) -> None:
    for number in range(8):
        good_flac(tmp_path / f"{number}.flac", seed=number)
    manifest = manifest_of(tmp_path / "in", [utterance(tmp_path / f"{number}.flac") for number in range(8)])
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(CRASH)
    path = os.pathsep.join([str(tmp_path / "hook"), str(Path.cwd())])
    how = by("multi_process").model_dump_json()
    command = [sys.executable, "-c", CONVERT, str(manifest), str(tmp_path / "store"), how]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    [reject] = read_rejects(Path(done.stdout.splitlines()[-1]))
    assert (reject.id, reject.reason, "SIGSEGV" in reject.detail) == ("3.flac", "unreadable", True)


@pytest.mark.slow
def test_workers_that_share_no_disk_fill_the_pool_in_the_bucket(
    gcs: Storage, fresh_pod: Callable[[], Path], tmp_path: Path
) -> None:
    fresh_pod()
    corpus = open_store(f"{gcs.uri}/corpus")
    corpus.local_path().mkdir(parents=True)
    for number in range(6):
        good_flac(corpus.local_path() / f"{number}.flac", seed=number)
    manifest_of(corpus.local_path(), [utterance(corpus.local_path() / f"{number}.flac") for number in range(6)])
    corpus.push(["manifest.jsonl", *(f"{number}.flac" for number in range(6))])
    alone = run(corpus.local_path(), tmp_path / "store", ALONE)

    with workers_elsewhere(tmp_path / "worker") as here:
        work = run(f"{gcs.uri}/corpus", f"{gcs.uri}/store", by("multi_process").model_copy(update={"workers": 1}))
        assert not list(here.rglob("*.wav"))
    assert list((tmp_path / "worker").rglob("*.wav"))
    hashes = [one.audio_hash for one in read_manifest(alone.folder)]
    assert [one.audio_hash for one in read_manifest(localize(work.uri))] == hashes
    sent = {name.rpartition("/")[2] for name in gcs.names() if "/wavs/" in name and name.endswith(".wav")}
    assert sent == {f"{one}.wav" for one in hashes}
    assert not [name for name in gcs.names() if "/unfinished/" in name]


def test_a_small_corpus_is_converted_without_beam(tmp_path: Path) -> None:
    good_flac(tmp_path / "a.flac")
    one = utterance(tmp_path / "a.flac")
    group = (job(one.audio_filepath, one.audio_hash, tmp_path / "wavs" / "aa" / "a.wav"),)
    settings = ConvertSettings(runner="NoRunner", beam_from_megabytes=1.0)
    [(_, [result])] = convert_groups([group], settings, tmp_path / "wavs", tmp_path / "unfinished")
    assert isinstance(result, Converted)


def test_a_long_recording_has_a_batch_to_itself() -> None:
    groups = [(job("a.wav", "", Path("a.wav"), seconds),) for seconds in (5.0, None, 3_600.0, 5.0)]
    batches = list(distributed._split_batches(groups))
    assert [(first, len(batch)) for first, batch in batches] == [(0, 2), (2, 1), (3, 1)]
