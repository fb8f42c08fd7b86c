"""extract on real files: what TensorFlow reads, what fails, and what happens when it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.extract.conftest import write_wav
from tests.waiting import PATIENCE_SECONDS
from voxline.audio.features import compute_features
from voxline.components.extract.clip_features import change_speed, read_samples
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, read_rejects, write_manifest
from voxline.data.shards import clip_name
from voxline.data.tfrecord import decode_example, read_record_at, read_tfrecords
from voxline.errors import SettingsError, WorkError
from voxline.rejects import Reason
from voxline.store.hashing import hash_file
from voxline.store.step_cache import StepOutput

Corpus = Callable[..., list[Utterance]]
SMALL = ExtractSettings(shard_megabytes=0.1)
BEAM = ExtractSettings(shard_megabytes=0.1, beam_from_megabytes=0)


def read(work: StepOutput) -> dict[tuple[str, float], dict[str, Any]]:
    """All records of a dataset, by id and speed; checks its shards too."""
    dataset = Dataset.read(work.folder)
    places = dataset.read_record_locations()
    for shard, file in zip(dataset.shards, dataset.files(), strict=True):
        assert (shard.bytes, shard.checksum) == (file.stat().st_size, hash_file(file))
        assert shard.examples == len(list(read_tfrecords(file)))
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for row in dataset.rows():
        for column, speed in enumerate(dataset.speeds):
            shard, offset, size, frames = places[row.number, column].item()
            if shard < 0:
                continue
            file = dataset.file(dataset.shards[shard])
            with open(file, "rb") as records:
                example: dict[str, Any] = decode_example(read_record_at(records.fileno(), offset, size, file))
            assert example["clip"] == [clip_name(row.audio_hash, row.offset, row.duration, speed).encode()]
            assert round(example["speed"][0], 4) == speed
            made = np.frombuffer(example["features"][0], "<f4").reshape(frames, dataset.features.bins)
            found[row.id, speed] = {"features": made, "split": row.split, "text": row.text, "speaker": row.speaker}
    return found


def files(folder: Path) -> dict[str, bytes]:
    """All files of a store, without times and locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "done.json" and path.suffix != ".lock" and ".damaged" not in str(path)
    }


def test_real_speech_is_read_back_by_tensorflow_with_equal_features(real_data: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    texts = {
        line.split(" ", 1)[0]: line.split(" ", 1)[1].lower()
        for file in real_data.glob("LibriSpeech/**/*.trans.txt")
        for line in file.read_text().splitlines()
    }
    utterances = [
        Utterance(
            p.stem, str(p), soundfile.info(p).duration, texts[p.stem], p.parts[-3], split="dev", audio_hash=p.stem
        )
        for p in sorted(real_data.glob("LibriSpeech/**/*.flac"))
    ]
    assert len(utterances) == 10
    write_manifest(tmp_path / "manifest.jsonl", utterances)
    work = run(tmp_path, tmp_path / "store", SMALL)
    dataset = Dataset.read(work.folder)
    assert dataset.counts == {"dev": 10}
    assert (dataset.mean, dataset.deviation) == ([0.0] * 80, [1.0] * 80)  # nothing to learn them from

    layout = {
        **{name: tf.io.FixedLenFeature([], tf.string) for name in ("clip", "features")},
        "frames": tf.io.FixedLenFeature([], tf.int64),
        "speed": tf.io.FixedLenFeature([], tf.float32),
    }
    by_clip = {clip_name(u.audio_hash, u.offset, u.duration, 1.0): u for u in utterances}
    for record in tf.data.TFRecordDataset([str(path) for path in dataset.files()]):
        example = tf.io.parse_single_example(record, layout)
        utterance = by_clip.pop(example["clip"].numpy().decode())
        samples, rate = soundfile.read(utterance.audio_filepath, dtype="float32")
        assert rate == 16_000
        made = tf.reshape(tf.io.decode_raw(example["features"], tf.float32), [example["frames"], 80])
        np.testing.assert_array_equal(made, compute_features(samples, dataset.features))
        assert example["speed"].numpy() == 1.0
    assert not by_clip
    assert [(row.id, row.text, row.speaker) for row in dataset.rows()] == sorted(
        (u.id, u.text, u.speaker) for u in utterances
    )


@pytest.mark.parametrize("kind", ["mel_and_linear", "log_mel", "mel_and_prosody"])
def test_a_recording_for_a_voice_is_read_back_with_its_features_and_statistics(
    real_data: Path, tmp_path: Path, kind: str
) -> None:
    how = ExtractSettings.of(
        {
            "features": {
                "kind": kind,
                "sample_rate": 22_050,
                "window_seconds": 0.05,
                "hop_seconds": 0.0125,
                "fft_size": 2_048,
                "spectrum": "magnitude",
                "log_floor": 1e-5,
            }
        }
    )
    files = [real_data / "LJSpeech-1.1" / "wavs" / f"LJ001-{number:04}.wav" for number in (2, 8)]
    texts = ["in being comparatively modern", "has never been surpassed"]
    write_manifest(
        tmp_path / "manifest.jsonl",
        [
            Utterance(path.stem, str(path), soundfile.info(path).duration, text, "lj", "train", path.stem)
            for path, text in zip(files, texts, strict=True)
        ],
    )
    work = run(tmp_path, tmp_path / "store", how)
    found, dataset = read(work), Dataset.read(work.folder)
    made = [compute_features(soundfile.read(path, dtype="float32")[0], dataset.features) for path in files]
    assert dataset.features.bins == {"mel_and_linear": 80 + 1_025, "log_mel": 80, "mel_and_prosody": 83}[kind]
    for path, expected in zip(files, made, strict=True):
        np.testing.assert_array_equal(found[path.stem, 1.0]["features"], expected)
    every = np.concatenate(made).astype(np.float64)
    np.testing.assert_allclose(dataset.mean, every.mean(axis=0), rtol=1e-6, atol=1e-9)
    assert len(dataset.deviation) == dataset.features.bins
    assert min(dataset.deviation) > 0


def test_a_dataset_with_prosody_has_shards_of_its_own_and_reuses_them(corpus: Corpus, tmp_path: Path) -> None:
    kinds = [ExtractSettings.of({"features": {"kind": kind}}) for kind in ("log_mel", "mel_and_prosody")]
    corpus(6)
    plain, first = (run(tmp_path / "converted", tmp_path / "store", how) for how in kinds)
    corpus(9)
    again, second = (run(tmp_path / "converted", tmp_path / "store", how) for how in kinds)
    assert [work.counts["extracted"] for work in (plain, first, again, second)] == [6, 6, 3, 3]
    assert len(list((tmp_path / "store" / "shards").glob("*/"))) == 2
    mels, both, before = read(again), read(second), read(first)
    for name, found in both.items():
        np.testing.assert_array_equal(found["features"][:, :80], mels[name]["features"])
        if name in before:
            np.testing.assert_array_equal(found["features"], before[name]["features"])


def test_only_the_training_split_has_copies_and_statistics_ignore_them(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(30)
    how = ExtractSettings(shard_megabytes=0.1, speeds=[0.9, 1.0, 1.1])
    work = run(tmp_path / "converted", tmp_path / "store", how)
    found, dataset = read(work), Dataset.read(work.folder)
    train = [u for u in utterances if u.split == "train"]
    assert set(found) == {(u.id, 1.0) for u in utterances} | {(u.id, s) for u in train for s in (0.9, 1.1)}
    for utterance in train:
        samples = change_speed(read_samples(utterance, 16_000), 0.9)
        assert len(samples) == pytest.approx(utterance.duration * 16_000 / 0.9, abs=2)
        np.testing.assert_array_equal(found[utterance.id, 0.9]["features"], compute_features(samples, how.features))
    every = np.concatenate([found[u.id, 1.0]["features"] for u in train]).astype(np.float64)
    np.testing.assert_allclose(dataset.mean, every.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(dataset.deviation, every.std(axis=0), rtol=1e-6)
    assert (
        dataset.counts
        == {"train": 18, "dev": 6, "test": 6}
        == {split: sum(u.split == split for u in utterances) for split in ("train", "dev", "test")}
    )
    assert dataset.seconds["train"] == pytest.approx(sum(u.duration for u in train), abs=1e-3)
    assert sum(shard.live for shard in dataset.shards) == len(found)
    assert work.counts["examples"] == len(found) == 30 + 2 * 18


def poison(utterances: list[Utterance], place: Path) -> tuple[list[Utterance], dict[str, Reason]]:
    """Damages the first recordings of a corpus, each in another way."""
    spoilt = [Path(utterance.audio_filepath) for utterance in utterances[:6]]
    noise = np.random.default_rng(0).standard_normal(8_000) / 10
    spoilt[0].unlink()
    spoilt[1].write_bytes(b"no audio at all, whatever its name says")
    write_wav(spoilt[2], noise, rate=8_000)
    write_wav(spoilt[3], noise, channels=2)
    spoilt[4].write_bytes(spoilt[4].read_bytes()[:-2_000])
    soundfile.write(spoilt[5], np.array([0.1, np.nan] * 4_000), 16_000, subtype="FLOAT")
    changed = list(utterances)
    for which, seconds in ((2, 1.0), (3, 0.5), (5, 0.5)):
        changed[which] = changed[which].replace(duration=seconds)
    changed[6] = changed[6].replace(text="½")
    changed[7] = changed[7].replace(text="")
    write_manifest(place / "manifest.jsonl", changed)
    reasons = [
        Reason.MISSING_FILE,
        Reason.UNREADABLE,
        Reason.WRONG_FORMAT,
        Reason.WRONG_FORMAT,
        Reason.TRUNCATED,
        Reason.UNREADABLE,
        Reason.OUTSIDE_ALPHABET,
        Reason.TRANSCRIPT_EMPTY,
    ]
    return changed, {utterance.id: reason for utterance, reason in zip(changed, reasons, strict=False)}


def test_bad_recordings_are_rejects_and_nothing_is_lost(corpus: Corpus, tmp_path: Path) -> None:
    utterances, expected = poison(corpus(40), tmp_path / "converted")
    how = ExtractSettings(shard_megabytes=0.1, speeds=[1.0, 1.1], max_reject_share=0.5)
    work = run(tmp_path / "converted", tmp_path / "store", how)
    rejects = read_rejects(work.folder)
    assert {reject.id: reject.reason for reject in rejects} == expected
    assert len(rejects) == len(expected) == work.counts["rejects"]
    found = read(work)
    assert {identity for identity, _ in found} | set(expected) == {u.id for u in utterances}
    assert work.counts["utterances"] + work.counts["rejects"] == 40
    assert sum(Dataset.read(work.folder).counts.values()) == 32


def test_too_many_rejects_fail_the_step_and_leave_the_list(corpus: Corpus, tmp_path: Path) -> None:
    poison(corpus(40), tmp_path / "converted")
    with pytest.raises(WorkError, match=r"(?s)8 of 40 utterances were rejected.*rejects\.jsonl"):
        run(tmp_path / "converted", tmp_path / "store", ExtractSettings(max_reject_share=0.1))
    (list_,) = (tmp_path / "store").glob("extract/*/rejects.jsonl")
    assert len(read_rejects(list_)) == 8
    assert not list((tmp_path / "store").glob("extract/*/done.json"))


def test_a_repaired_recording_gets_a_shard_of_another_name(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(20)
    gone = Path(utterances[0].audio_filepath)
    away = gone.rename(tmp_path / "away.wav")
    with pytest.raises(WorkError, match="1 of 20"):
        run(tmp_path / "converted", tmp_path / "store", SMALL)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*.tfrecord")}
    away.rename(gone)
    work = run(tmp_path / "converted", tmp_path / "store", SMALL)
    assert len(read(work)) == 20
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len({*(tmp_path / "store").rglob("*.tfrecord")} - set(before)) == 1


def test_another_sample_rate_is_refused_naming_both(corpus: Corpus, tmp_path: Path) -> None:
    corpus(3)
    with pytest.raises(SettingsError, match=r"'features\.sample_rate' is 8000 Hz .* 16000 Hz"):
        run(tmp_path / "converted", tmp_path / "store", ExtractSettings.of({"features": {"sample_rate": 8_000}}))


def test_an_unknown_beam_runner_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    corpus(1)
    with pytest.raises(SettingsError, match=r"'runner' is 'NoSuchRunner': .*FlinkRunner"):
        run(tmp_path / "converted", tmp_path / "store", ExtractSettings(runner="NoSuchRunner", beam_from_megabytes=0))


@pytest.mark.parametrize("how", [BEAM, SMALL])
def test_a_read_only_store_fails_the_step_naming_it(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: ExtractSettings
) -> None:
    corpus(1)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "shards").write_text("a file where the folder of shards would be")
    with pytest.raises(WorkError, match=r"extract: .*store/shards"):
        run(tmp_path / "converted", tmp_path / "store", how)
    assert not list((tmp_path / "store").rglob("done.json"))
    assert "Traceback" not in caplog.text


def test_a_store_where_no_folder_can_be_made_fails_the_step_naming_it(corpus: Corpus, tmp_path: Path) -> None:
    corpus(1)
    with pytest.raises(WorkError, match="extract: /proc/x: no folder can be made there; set `store`"):
        run(tmp_path / "converted", "/proc/x", SMALL)


def test_a_manifest_without_an_utterance_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.jsonl", [])
    with pytest.raises(WorkError, match="the corpus has no utterance"):
        run(tmp_path, tmp_path / "store", SMALL)


def test_a_manifest_that_was_not_converted_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.jsonl", [corpus(1)[0].replace(audio_hash="")])
    with pytest.raises(WorkError, match="speaker0-0000 has no audio_hash"):
        run(tmp_path, tmp_path / "store", SMALL)


@pytest.mark.slow
def test_two_runs_and_other_workers_write_the_same_bytes(corpus: Corpus, tmp_path: Path) -> None:
    corpus(40)
    how = {"shard_megabytes": 0.1, "speeds": [1.0, 1.1]}
    works = [
        run(tmp_path / "converted", tmp_path / "ein Spaß mit Leerzeichen", ExtractSettings.of(how)),
        run(tmp_path / "converted", tmp_path / "two", ExtractSettings.of(how, beam_from_megabytes=0)),
        run(
            tmp_path / "converted",
            tmp_path / "three",
            ExtractSettings.of(how, beam_from_megabytes=0, runner="multi_process", workers=2),
        ),
    ]
    stores = [files(work.folder.parent.parent) for work in works]
    assert len(stores[0]) > 10
    assert stores[0] == stores[1] == stores[2]


def test_work_is_not_repeated_and_a_changed_corpus_costs_its_change(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(40)
    store = tmp_path / "store"
    first = run(tmp_path / "converted", store, SMALL)
    written = {path: path.stat().st_mtime_ns for path in store.rglob("*.tfrecord")}
    assert run(tmp_path / "converted", store, SMALL).reused
    changed = [utterances[0].replace(text="another word"), *utterances[1:-1]]
    write_manifest(tmp_path / "converted" / "manifest.jsonl", changed)
    second = run(tmp_path / "converted", store, SMALL)
    assert not second.reused
    assert {u.id for u in changed} == {identity for identity, _ in read(second)}
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())
    assert not {*store.rglob("*.tfrecord")} - set(written)
    assert second.counts["extracted"] == 0
    assert read(second)[changed[0].id, 1.0]["text"] == "another word"
    assert len(read(first)) == 40


def test_a_shard_that_was_lost_is_made_again(corpus: Corpus, tmp_path: Path) -> None:
    corpus(20)
    work = run(tmp_path / "converted", tmp_path / "store", SMALL)
    before = files(tmp_path / "store")
    shards = sorted((tmp_path / "store").rglob("*.tfrecord"))
    shards[0].unlink()
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    again = run(tmp_path / "converted", tmp_path / "store", SMALL)
    assert not again.reused
    assert again.key == work.key
    assert files(tmp_path / "store") == before


@pytest.mark.slow
def test_a_killed_run_that_is_started_again_ends_the_same(corpus: Corpus, tmp_path: Path) -> None:
    corpus(150, seconds=2)
    how = {"shard_megabytes": 0.6, "speeds": [0.9, 1.0]}
    script = (
        "import sys; from voxline.components.extract.step import run; "
        "from voxline.components.extract.settings import ExtractSettings;"
        "run(sys.argv[1], sys.argv[2], ExtractSettings.of(sys.argv[3]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "converted"), str(tmp_path / "killed"), json.dumps(how)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    finished: list[Path] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(finished) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
        finished = list((tmp_path / "killed" / "shards").glob("*/*/*.json"))
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not list((tmp_path / "killed").rglob("done.json"))
    times = {path: path.stat().st_mtime_ns for path in finished}
    assert len(times) >= 3

    work = run(tmp_path / "converted", tmp_path / "killed", ExtractSettings.of(how))
    undisturbed = run(tmp_path / "converted", tmp_path / "undisturbed", ExtractSettings.of(how))
    assert files(tmp_path / "killed") == files(tmp_path / "undisturbed")
    assert {**work.counts, "extracted": 240} == undisturbed.counts
    assert 0 < work.counts["extracted"] < 240
    assert len(times) < work.counts["shards"]
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())


def test_the_step_imports_no_heavy_module() -> None:
    script = (
        "import sys; import voxline.components.convert.step, voxline.components.extract.step;"
        "print({name.split('.')[0] for name in sys.modules}"
        " & {'numpy', 'apache_beam', 'tensorflow', 'kfp', 'librosa', 'scipy', 'soxr', 'google.protobuf'})"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "set()"


@pytest.mark.slow
def test_workers_start_if_the_interpreters_path_has_a_space(corpus: Corpus, tmp_path: Path) -> None:
    corpus(8)
    interpreter = tmp_path / "a folder" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.parent.parent.joinpath("pyvenv.cfg").write_bytes(Path(sys.prefix, "pyvenv.cfg").read_bytes())
    interpreter.symlink_to(sys.executable)
    Path(interpreter.parent.parent, "lib").symlink_to(Path(sys.prefix, "lib"))
    program = (
        "import sys; "
        "from voxline.components.extract.settings import ExtractSettings; "
        "from voxline.components.extract.step import run; "
        "run(sys.argv[1], sys.argv[2], ExtractSettings(runner='multi_process', workers=2, beam_from_megabytes=0))"
    )
    command: list[str | Path] = [interpreter, "-c", program, tmp_path / "converted", tmp_path / "store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "8 utterances in" in done.stdout
