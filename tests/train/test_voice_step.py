"""The train step of a voice as a whole: trained, killed and started again, exported, loaded by others."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from components.convert import step as convert
from components.convert.settings import ConvertSettings
from components.extract import step as extract
from components.extract.settings import ExtractSettings
from components.generate.voice import Voice, speak
from components.speech.dataset import Dataset
from components.speech.utterances import Utterance, write_manifest
from components.speech.work import DONE, Work, read_done
from components.train.batches import Batches
from components.train.step import run
from components.train.synthesis.learner import FREE_NOISE, build
from components.train.synthesis.settings import SynthesisSettings
from tests.train.tones import LETTERS, tiny_voice

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["components.train.loop", "components.train.synthesis.export"])


@pytest.fixture(scope="module")
def trained(tones: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Work, SynthesisSettings]:
    stages = [{"step": 0, "reduction": 3}, {"step": 10, "reduction": 2}]
    settings = tiny_voice(epochs=1, reductions=stages, guided_attention={"weight": 0.3})
    return run(tones.folder, tmp_path_factory.mktemp("store"), settings), settings


def test_model_json_says_how_to_speak(trained: tuple[Work, SynthesisSettings], tones: Dataset) -> None:
    work, settings = trained
    said = json.loads((work.path("model") / "model.json").read_text())
    assert said["kind"] == "tacotron2"
    assert said["alphabet"] == LETTERS
    assert said["reading"] == tones.reading
    assert said["settings"] == settings.plain()
    frames = tones.features.frames(round(settings.max_seconds * tones.features.sample_rate))
    assert said["max_steps"] == -(-frames // settings.reduction(int(work.metrics["best_step"])))
    assert said["provenance"]["trained"]["dev_mel_dtw"] == work.metrics["dev_mel_dtw"]


def test_the_export_equals_the_model_that_was_trained(trained: tuple[Work, SynthesisSettings], tones: Dataset) -> None:
    work, settings = trained
    model, step = build(settings, tones), int(work.metrics["best_step"])
    with np.load(work.folder / "best" / f"step-{step:08d}" / "arrays.npz") as arrays:
        for index, variable in enumerate(model.weights):
            variable.assign(arrays[f"model/{index}"])
    reduction = settings.reduction(step)
    exported = tf.saved_model.load(str(work.path("model")))
    batch = next(Batches(tones, "dev", batch_size=4).epoch(0))
    text = {"symbols": tf.constant(batch.labels), "lengths": tf.constant(batch.counts)}
    steps = json.loads((work.path("model") / "model.json").read_text())["max_steps"]

    ours = model.speak(batch.labels, batch.counts, max_steps=steps, noise=tf.constant(FREE_NOISE), reduction=reduction)
    found = exported.signatures["synthesize"](**text)
    np.testing.assert_array_equal(found["frames"], ours.frames)
    np.testing.assert_array_equal(found["hit_limit"], ours.hit_limit)
    np.testing.assert_allclose(found["alignments"], ours.alignment, atol=1e-4)
    mels = np.asarray(model.restore(ours.mels))
    for row, frames in enumerate(found["frames"].numpy()):
        np.testing.assert_allclose(found["mels"][row, :frames], mels[row, :frames], atol=1e-4)
        assert found["samples"][row] == tones.features.samples(int(frames))

    forced = exported.signatures["teacher_forced"](
        **text, features=tf.constant(batch.features), frames=tf.constant(batch.frames)
    )
    wanted = model.normalise(batch.features)
    ours = model(batch.labels, batch.counts, wanted, batch.frames, noise=tf.constant(FREE_NOISE), reduction=reduction)
    mels = np.asarray(model.restore(ours.mels))
    for row, frames in enumerate(batch.frames):
        np.testing.assert_allclose(forced["mels"][row, :frames], mels[row, :frames], atol=1e-4)
        error = np.abs(mels[row, :frames] - batch.features[row, :frames]).mean()
        assert forced["mel_l1"][row] == pytest.approx(error, rel=1e-4)


def test_a_text_sounds_the_same_alone_and_among_others(trained: tuple[Work, SynthesisSettings], tones: Dataset) -> None:
    work, _ = trained
    voice = tf.saved_model.load(str(work.path("model"))).signatures["synthesize"]
    batch = next(Batches(tones, "dev", batch_size=4).epoch(0))
    together = voice(symbols=tf.constant(batch.labels), lengths=tf.constant(batch.counts))
    again = voice(symbols=tf.constant(batch.labels), lengths=tf.constant(batch.counts))
    np.testing.assert_array_equal(together["mels"], again["mels"])


FRESH = """
import json, sys
import tensorflow as tf
voice = tf.saved_model.load(sys.argv[1]).signatures["synthesize"]
made = voice(symbols=tf.constant([[0, 1, 2, 3]]), lengths=tf.constant([4]))
ours = [name for name in sys.modules if name.startswith("components")]
mean = float(tf.reduce_mean(made["mels"]))
print(json.dumps({"frames": made["frames"].numpy().tolist(), "mean": mean, "ours": ours}))
"""


def test_a_fresh_process_without_our_code_speaks(trained: tuple[Work, SynthesisSettings], tmp_path: Path) -> None:
    work, _ = trained
    found = subprocess.run(
        [sys.executable, "-P", "-c", FRESH, str(work.path("model"))], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-2_000:]
    said = json.loads(found.stdout.splitlines()[-1])
    voice = tf.saved_model.load(str(work.path("model"))).signatures["synthesize"]
    made = voice(symbols=tf.constant([[0, 1, 2, 3]]), lengths=tf.constant([4]))
    assert said["ours"] == []
    assert said["frames"] == made["frames"].numpy().tolist()
    assert said["mean"] == pytest.approx(float(tf.reduce_mean(made["mels"])), abs=1e-4)


def test_generated_speech_becomes_a_voice(tmp_path: Path) -> None:
    texts = ["one five", "two six", "three seven", "four eight"]
    recordings, rate = speak(Voice("en-us", "m3"), texts * 2)
    utterances = []
    for number, samples in enumerate(recordings):
        path = tmp_path / "corpus" / f"{number}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, samples, rate, subtype="PCM_16")
        split = "train" if number < 6 else "dev"
        utterances.append(
            Utterance(
                id=f"u{number}",
                audio_filepath=str(path),
                duration=len(samples) / rate,
                text=(texts * 2)[number],
                speaker="m3",
                split=split,
            )
        )
    write_manifest(tmp_path / "corpus" / "manifest.jsonl", utterances)
    store = tmp_path / "store"
    converted = convert.run(tmp_path / "corpus" / "manifest.jsonl", store, ConvertSettings(workers=1))
    features = {"hop_seconds": 0.0125, "window_seconds": 0.05, "mels": 20, "spectrum": "magnitude", "log_floor": 1e-5}
    extracted = extract.run(converted.folder, store, ExtractSettings.of({"features": features}))
    work = run(extracted.folder, store, tiny_voice(epochs=2, batch_size=4, max_seconds=1.0))
    voice = tf.saved_model.load(str(work.path("model"))).signatures["synthesize"]
    made = voice(symbols=tf.constant([[1, 2, 3]]), lengths=tf.constant([3]))
    assert np.isfinite(made["waveforms"]).all()
    assert work.counts["utterances"] == 6


def test_a_run_killed_at_any_moment_ends_as_if_it_had_not_been(tones: Dataset, tmp_path: Path) -> None:
    settings = tiny_voice(
        epochs=5,
        evaluate_steps=25,
        checkpoint_steps=7,
        summary_steps=5,
        guided_attention={"weight": 0.5, "decay_steps": 50},
        mutual_information={"weight": 0.1, "units": 8},
        reductions=[{"step": 0, "reduction": 3}, {"step": 40, "reduction": 2}],
        model={"dropped_frames": 0.1},
    )
    whole = _start(tones, tmp_path / "whole", settings, tmp_path / "whole.log")
    whole.join()
    assert whole.exitcode == 0, _read(tmp_path / "whole.log")
    kills, log = 0, tmp_path / "killed.log"
    for _ in range(8):
        process, before = _start(tones, tmp_path / "killed", settings, log), _read(log)
        while process.is_alive() and "▹" not in _read(log)[len(before) :]:
            time.sleep(0.02)
        if kills < 2 and process.is_alive():
            time.sleep(0.3)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.join()
        if process.exitcode == 0:
            break
    assert process.exitcode == 0, _read(log)
    assert "going on from the checkpoint" in _read(log)
    one, two = (next((tmp_path / name).glob(f"train/*/{DONE}")).parent for name in ("whole", "killed"))
    expected, found = read_done(one), read_done(two)
    assert found["counts"] == expected["counts"]
    assert found["metrics"] == pytest.approx(expected["metrics"], rel=1e-3)
    curves = [json.loads((folder / "logs" / "curves.json").read_text()) for folder in (one, two)]
    for left, right in zip(curves[0]["train"], curves[1]["train"], strict=True):
        assert left == pytest.approx(right, rel=1e-3)


def _start(dataset: Dataset, store: Path, settings: SynthesisSettings, log: Path) -> Any:
    process = PROCESSES.Process(
        target=train_in_its_own_process, args=(str(dataset.folder), str(store), settings.plain(), str(log))
    )
    process.start()
    return process


def train_in_its_own_process(dataset: str, store: str, settings: dict[str, Any], log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    run(dataset, store, SynthesisSettings.of(settings))


def _read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
