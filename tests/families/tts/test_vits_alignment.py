"""Frames of symbols by a parent's speech: their ends are carried over, and sum to the recording."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.families.tts.test_vits import SMALL, write_piper_voice
from tests.families.tts.test_vits_training import HOW, ONE, SIZES, SPOKEN, make_dataset, settings, train_batches
from tests.training.tones import FEATURES
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.tts.family import TtsFamily
from voxline.families.tts.vits.alignment import align_split, carry_durations, comparable_frames, whole_durations
from voxline.families.tts.vits.task import VitsTask
from voxline.families.tts.vits.train_module import VitsTrainModule
from voxline.training.warm_start import read_parent, start_from

Array = npt.NDArray[Any]
SPEECH = FeatureSettings(sample_rate=16_000, mels=40, window_seconds=0.032, hop_seconds=0.008)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("tones"))


def say(durations: Array, numbers: Array, how: FeatureSettings, shift: float = 1.0, seed: int = 0) -> Array:
    """A chord of three tones for each symbol, of its number, for its frames; `shift` multiplies all frequencies."""
    random = np.random.default_rng(seed)
    chords = np.random.default_rng(3).uniform(200, 0.3 * how.sample_rate, (64, 3)) * shift
    hertz = np.repeat(chords[numbers], durations * how.hop_length, axis=0)
    waves = np.sin(2 * np.pi * np.cumsum(hertz, axis=0) / how.sample_rate).sum(axis=1)
    samples = 0.2 * waves + 0.005 * random.standard_normal(len(waves))
    return np.asarray(samples, np.float32)


def ends_off(durations: Array, true: Array) -> float:
    """Frames between ends, in the mean."""
    return float(np.abs(np.cumsum(durations) - np.cumsum(true)).mean())


def test_ends_of_symbols_are_carried_from_speech_to_a_recording_of_another_pace_and_pitch() -> None:
    random = np.random.default_rng(1)
    numbers = random.permutation(64)[:24]
    of_speech, of_recording = (random.integers(3, 16, 24) for _ in range(2))
    for shift in (1.0, 1.06):
        speech = say(of_speech, numbers, SPEECH)
        recording = 0.1 * say(of_recording, numbers, SPEECH, shift, seed=2)
        frames = [comparable_frames(samples, SPEECH) for samples in (speech, recording.astype(np.float32))]
        carried = carry_durations(frames[0], frames[1], of_speech)
        assert carried.sum() == of_recording.sum()
        assert ends_off(carried, of_recording) < 1

        # Both of these are errors that it must see: ends that are late, and durations in proportion.
        late = carry_durations(frames[0], frames[1], np.roll(of_speech, 1))
        scaled = whole_durations(np.cumsum(of_speech) * of_recording.sum() / of_speech.sum(), int(of_recording.sum()))
        assert min(ends_off(late, of_recording), ends_off(scaled, of_recording)) > 2.5


def test_whole_durations_are_nearest_to_the_ends_of_all_that_give_each_symbol_a_frame() -> None:
    random = np.random.default_rng(4)
    for symbols, frames in itertools.product(range(1, 6), range(5, 11)):
        ends = np.sort(random.uniform(-1, frames + 1, symbols))
        durations = whole_durations(ends, frames)
        assert durations.sum() == frames
        assert durations.min() >= 1
        every = np.array([[*inner, frames] for inner in itertools.combinations(range(1, frames), symbols - 1)])
        errors = np.square(every - ends)[:, :-1].sum(axis=1)
        assert np.square(np.cumsum(durations) - ends)[:-1].sum() == pytest.approx(errors.min())


def test_speech_that_was_cut_off_still_gives_each_symbol_a_frame() -> None:
    frames = comparable_frames(say(np.array([5, 5, 5, 5]), np.array([1, 2, 3, 4]), SPEECH), SPEECH)
    durations = carry_durations(frames[:8], frames, np.array([5, 5, 5, 5]))
    assert (len(durations), durations.sum(), durations.min()) == (4, 20, 1)


def test_a_split_is_aligned_once_and_its_batches_have_the_symbol_of_each_frame(
    dataset: Dataset, tmp_path: Path
) -> None:
    batches = train_batches(dataset, needed_frames=lambda symbols: 2 * symbols + 3)
    plain = batches.read(np.arange(4))
    rows = []

    def rehearse(batch: Any, row: int, max_frames: int) -> tuple[Array, Array]:
        rows.append(batch.ids[row])
        numbers = np.concatenate([[9, 8], np.stack([batch.labels[row], batch.labels[row] + 8], 1).ravel(), [9]])
        numbers = numbers[: 2 * batch.counts[row] + 3]
        durations = np.full(len(numbers), 2)
        return say(durations, numbers, FEATURES), durations

    symbols = align_split(batches, tmp_path, "train", rehearse, FEATURES)
    assert len(rows) == batches.utterances
    again = align_split(batches, tmp_path, "train", rehearse, FEATURES)
    assert len(rows) == batches.utterances
    for row in range(batches.utterances):
        np.testing.assert_array_equal(symbols[row], again[row])

    batches.symbols = again
    batch = batches.read(np.arange(4))
    np.testing.assert_array_equal(batch.features[..., :-1], plain.features)
    for row, frames in enumerate(batch.frames):
        numbers = batch.features[row, :frames, -1]
        assert numbers[0] == 0
        assert numbers[-1] == 2 * batch.counts[row] + 2
        assert set(np.diff(numbers).tolist()) <= {0, 1}
    with pytest.raises(ValueError, match="the split has"):
        align_split(train_batches(dataset, needed_frames=lambda symbols: 12), tmp_path, "train", rehearse, FEATURES)


def test_durations_are_learned_from_the_symbols_of_frames_and_not_searched(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = VitsTrainModule(settings(model={**SIZES, "durations": "fixed"}), dataset, ONE)
    learned = []

    def duration_loss(text: Any, rows: Any, durations: Any, speaker: Any, noise: Any) -> Any:
        learned.append(np.asarray(durations))
        return durations[:, 0]

    monkeypatch.setattr(module, "_duration_loss", duration_loss)
    batches = train_batches(dataset)
    plain = batches.read(np.arange(2))
    symbols = np.zeros((*plain.features.shape[:2], 1), np.float32)
    for row, (frames, count) in enumerate(zip(plain.frames, plain.counts, strict=True)):
        symbols[row, :frames, 0] = np.minimum(np.arange(frames) // 2, 2 * count + 2)
    features = np.concatenate([plain.features, symbols], axis=2)
    tensors = module._to_tensors(plain)[0]

    module.aligned = True
    agreement = module._agree(tensors._replace(features=tf.constant(features)), None)
    for row, frames in enumerate(plain.frames):
        expected = np.bincount(symbols[row, :frames, 0].astype(int), minlength=learned[0].shape[1])
        np.testing.assert_array_equal(learned[0][row], expected)

    # The recording is read without them.
    module.aligned = False
    searched = module._agree(tensors, None)
    np.testing.assert_array_equal(agreement.latent, searched.latent)
    assert not np.array_equal(learned[0], learned[1])


def test_only_a_whole_voice_without_a_posterior_encoder_is_aligned_by(dataset: Dataset) -> None:
    start: dict[str, Any] = {"model": "voice.onnx"}
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"start": start}, True),
        ({}, False),
        ({"start": start, "vits": {**HOW, "alignment": "search"}}, False),
        ({"start": {**start, "keep": "encoder"}}, False),
        ({"start": {**start, "shrink": 0.5}}, False),
    ]
    for changes, aligned in cases:
        values = settings(**changes)
        assert values.aligns_by_parent is aligned
        assert ("alignment" in TtsFamily().training_inputs(values, dataset)) is aligned
        task = VitsTask(values, dataset)
        task.take_over({})
        assert task.module.aligned is aligned
    with pytest.raises(SettingsError, match=r"alignment"):
        settings(vits={**HOW, "alignment": "guess"})


@pytest.mark.parametrize(("letters", "aligned"), [pytest.param("d", True, marks=pytest.mark.slow), ("dc", False)])
def test_a_voice_that_lacks_symbols_of_the_texts_aligns_none_of_them(
    letters: str, aligned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Piper voice of "d", without "a", "b" and "c": all are in the alphabet, and count where a text has them."""
    file, _ = write_piper_voice(tmp_path / "voice")
    how = FeatureSettings.of({"sample_rate": 8_000, "hop_seconds": SMALL.hop / 8_000, "window_seconds": 0.004}, "test")
    spoken = [dataclasses.replace(each, text=letters) for each in SPOKEN]
    dataset = make_dataset(tmp_path, how, spoken)
    values = settings(model=SMALL.plain(), start={"model": str(file)})
    parent = TtsFamily().public_parent(str(file))
    assert parent is not None
    task = VitsTask(values, dataset)
    start_from(task, read_parent(parent))
    assert task.new_symbols == ["a", "b", "c"]
    assert task.module.aligned is aligned

    said = capsys.readouterr().out
    lacking = ", ".join(repr(letter) for letter in sorted(set(letters) - {"d"}))
    expected = f"train: the parent lacks the symbols {lacking}, which 8 of 8 utterances of train have (accepted: 1%)"
    assert (expected in said) is not aligned
    task.encode_frozen_parts(tmp_path / "encodings")
    assert (tmp_path / "encodings" / "train.symbols.npy").exists() is aligned


@pytest.mark.parametrize(("count", "aligned"), [(0, True), (2, True), (3, False)])
def test_a_few_utterances_with_symbols_that_the_parent_lacks_are_aligned_too(
    count: int, aligned: bool, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = VitsTask(settings(start={"model": "voice.onnx"}), dataset)
    texts = ["ab"] * (200 - count) + ["dc"] * count
    monkeypatch.setattr(type(task.train), "texts", property(lambda batches: texts))
    task.new_symbols = ["d"]
    task.take_over({})
    assert task.module.aligned is aligned
