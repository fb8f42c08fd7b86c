"""Training a vocoder: its segments, its two optimizers, what it refuses, and what it exports."""

import dataclasses
import json
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.closeness import assert_close, assert_pinned
from tests.tone_asr_model import minimal_model_json
from tests.training.tones import FEATURES, ToneUtterance, make_utterances, write_dataset
from voxline.audio.features import compute_features
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.tts import voice_mels
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.families.vocoder.train_module import VocoderTrainModule, build_vocoder
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import model_digest
from voxline.inference.vocoder import Vocoder
from voxline.store.step_cache import StepWouldRunError, plan_steps
from voxline.training.batches import ReplicaShare
from voxline.training.segments import SegmentBatches, split_segments

FRAMES, MELS, HOP = 16, FEATURES.mels, FEATURES.hop_length
LONG = 26
"""Frames of a segment for ESTOI."""
SPOKEN = make_utterances(10, 3, seed=3)
NETWORK = {"kind": "vocos", "channels": 8, "hidden": 8, "layers": 1}
HIFIGAN = {
    "kind": "hifigan", "channels": 8, "upsample_rates": [16, 8], "upsample_kernels": [32, 16],
    "residual_kernels": [3], "residual_dilations": [[1]], "residual_block": "single",
}  # fmt: skip
WAVEGLOW = {"kind": "waveglow", "flows": 2, "early_every": 1, "layers": 1, "channels": 4}


def settings(**changes: Any) -> VocoderTrainSettings:
    judges = {"start_step": 1, "periods": [3], "scales": 0, "width": 0.01}
    judges = {} if changes.get("model") == WAVEGLOW else judges
    defaults = {"model": NETWORK, "discriminators": judges, "segment_frames": FRAMES, "batch_size": 4, "epochs": 1}
    return VocoderTrainSettings.of({**defaults, "strategy": "one", "evaluate_steps": 0, "warm_up_steps": 0, **changes})


def place_recordings(dataset: Dataset, spoken: list[ToneUtterance]) -> None:
    """Writes the WAVs where convert does: in the store of the shards, by their hash."""
    for utterance, file in zip(spoken, dataset.recordings([each.id for each in spoken]), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, utterance.waveform, FEATURES.sample_rate, subtype="FLOAT")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = write_dataset(tmp_path_factory.mktemp("tones") / "store" / "dataset", SPOKEN)
    place_recordings(made, SPOKEN)
    return made


@pytest.fixture(scope="module")
def module(dataset: Dataset) -> VocoderTrainModule:
    losses = {"stft": 0, "estoi": 1}
    return VocoderTrainModule(settings(loss=losses, segment_frames=LONG), dataset, tf.distribute.get_strategy())


def train_batches(dataset: Dataset, frames: int = FRAMES, **options: Any) -> SegmentBatches:
    return SegmentBatches(dataset, "train", frames, batch_size=4, seed=1, shuffled=True, **options)


def test_a_segment_has_the_mels_and_the_samples_of_one_place(dataset: Dataset) -> None:
    waveforms = {each.id: each.waveform for each in SPOKEN}
    shorter = 0
    for batch in train_batches(dataset).epoch(0):
        mels, samples = split_segments(batch.features, MELS)
        assert mels.shape[1:] == (FRAMES, MELS)
        for name, of_one, heard in zip(batch.ids, mels, samples.reshape(len(mels), -1), strict=True):
            whole, waveform = compute_features(waveforms[name], FEATURES), waveforms[name]
            (first,) = (n for n in range(max(len(whole) - FRAMES, 0) + 1) if np.array_equal(whole[n], of_one[0]))
            frames = min(FRAMES, len(whole))
            np.testing.assert_array_equal(of_one[:frames], whole[first : first + frames])
            np.testing.assert_array_equal(
                heard[: (frames - 1) * HOP], waveform[first * HOP : (first + frames - 1) * HOP]
            )
            assert not heard[(frames - 1) * HOP :].any()
            assert (of_one[frames:] == np.float32(np.log(FEATURES.log_floor))).all()
            shorter += frames < FRAMES
    assert shorter


def test_segments_follow_from_seed_epoch_and_utterance(dataset: Dataset) -> None:
    batches, again = train_batches(dataset), train_batches(dataset)
    assert {name for batch in batches.epoch(1) for name in batch.ids} == {
        one.id for one in SPOKEN if one.split == "train"
    }
    for batch, same in zip(list(batches.epoch(3))[1:], again.epoch(3, first=1), strict=True):
        assert batch.ids == same.ids
        np.testing.assert_array_equal(batch.features, same.features)
    starts = [next(b.features[b.ids.index(i)] for b in batches.epoch(e) if i in b.ids)
              for e in (0, 1) for i in ["train-000", "train-001", "train-002", "train-003"]]  # fmt: skip
    assert any(not np.array_equal(one, other) for one, other in zip(starts[:4], starts[4:], strict=True))
    mine = train_batches(dataset, share=ReplicaShare(1, 1, 2))
    whole, part = next(batches.epoch(0)), next(mine.epoch(0))
    np.testing.assert_array_equal(part.features, whole.features[1::2])


def test_what_a_vocoder_cannot_learn_from_is_refused_by_name(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"extract\.speeds is \[0\.9, 1\.0\].*\[1\.0\]"):
        train_batches(dataclasses.replace(dataset, speeds=[0.9, 1.0]))
    hifigan = settings(model={**HIFIGAN, "upsample_rates": [8, 8], "upsample_kernels": [16, 16]})
    with pytest.raises(SettingsError, match=r"upsample_rates 8·8 make 64 .*hop_seconds is 128 samples; .* 0\.008"):
        build_vocoder(hifigan, dataset)
    for kind in ("mfcc", "mel_and_prosody"):
        other = dataclasses.replace(dataset, features=FEATURES.model_copy(update={"kind": kind}))
        with pytest.raises(SettingsError, match=rf"extract\.features\.kind is '{kind}', .*; set it to 'log_mel'"):
            build_vocoder(settings(), other)
    close = dataclasses.replace(dataset, features=FEATURES.model_copy(update={"hop_seconds": 0.004}))
    with pytest.raises(SettingsError, match=r"train\.segment_frames is 16, .* 480 samples; .* 1,200: set it to 39 or"):
        build_vocoder(settings(), close)
    with pytest.raises(
        SettingsError, match=r"train\.segment_frames is 16, .* 1,920 .* 3,163: set segment_frames to 26 or"
    ):
        build_vocoder(settings(loss={"stft": 0, "estoi": 1}), dataset)
    settings(loss={"estoi": 1}, segment_frames=26).check_features(dataset.features)
    alone = write_dataset(tmp_path / "store" / "dataset", SPOKEN[:4])
    with pytest.raises(WorkError, match=r"recordings of 4 of 4 utterances of train are not in .*wavs: train-0"):
        train_batches(alone)
    place_recordings(alone, [dataclasses.replace(one, waveform=one.waveform[:200]) for one in SPOKEN[:4]])
    with pytest.raises(WorkError, match=r"samples of train-0.* were expected.*; run extract again"):
        list(train_batches(alone).epoch(0))


@pytest.mark.slow
def test_discriminators_begin_at_their_step(dataset: Dataset, module: VocoderTrainModule) -> None:
    batch = next(train_batches(dataset, LONG).epoch(0))
    before = module.state()
    first = module.train_step(batch, 1e-3, 0)
    assert set(first.losses) == {"mel", "estoi"}
    assert 0 < first.losses["estoi"] < 2
    after = module.state()
    assert all(np.array_equal(before[name], after[name]) for name in before if name.startswith("discriminators"))
    second = module.train_step(batch, 1e-3, 1)
    assert set(second.losses) == {"mel", "estoi", "adversarial", "feature_matching", "discriminator"}
    trained = module.state()
    assert_pinned("hifigan", before, trained, loss=second.loss, gradient_norm=second.gradient_norm)
    assert second.loss == pytest.approx(sum(second.losses.values()) - second.losses["discriminator"], rel=1e-4)
    assert not any(
        np.array_equal(after[name], trained[name])
        for name in after
        if name.startswith("discriminators") and after[name].ndim > 1
    )


@pytest.mark.slow
def test_judges_learn_beside_a_generator_that_is_frozen_in_part_or_whose_head_comes_first(dataset: Dataset) -> None:
    batch = next(train_batches(dataset).epoch(0))
    chosen = settings(freeze=["blocks"], rates={"head": 0.5}, start={"model": "parent"})
    module = VocoderTrainModule(chosen, dataset, tf.distribute.get_strategy())
    heads = [name for name in module.weight_names() if name.startswith("head/")]
    module.train_head_first(heads, 2)

    def changes(step: int) -> set[str]:
        before = module.state()
        assert module.train_step(batch, 1e-3, step).accepted
        names = dict(zip(module.weights(), module.weight_names(), strict=True))
        after = module.state()
        changed = {name for name in before if not np.array_equal(before[name], after[name])}
        assert any(name.startswith("discriminators") for name in changed)
        return {names[name].partition("/")[0] for name in changed & names.keys()}

    assert changes(1) == {"head"}
    assert changes(2) == {"embedding", "first_norm", "last_norm", "head"}


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_nothing_and_a_resumed_run_repeats(
    dataset: Dataset, module: VocoderTrainModule
) -> None:
    batches = list(train_batches(dataset, LONG).epoch(0))
    module.train_step(batches[0], 1e-3, 1)
    saved = module.state()
    broken = dataclasses.replace(batches[1], features=batches[1].features * np.float32(np.nan))
    assert not module.train_step(broken, 1e-3, 2).accepted
    assert all(np.array_equal(saved[name], value) for name, value in module.state().items())
    module.train_step(batches[1], 1e-3, 3)
    wanted = module.state()
    module.restore(saved)
    module.train_step(batches[1], 1e-3, 3)
    assert all(np.array_equal(wanted[name], value) for name, value in module.state().items())


@pytest.mark.slow
def test_the_step_exports_what_it_trained(dataset: Dataset, tmp_path: Path) -> None:
    chosen = settings(discriminators={}, export={"onnx": "float32"})
    output = run(dataset.folder, tmp_path, chosen)
    assert not (output.path("model") / ONNX_FILE).exists()
    about = json.loads((output.path("model") / "model.json").read_text())
    assert (about["family"], about["kind"]) == ("vocoder", chosen.model.kind)
    assert about["provenance"]["trained"]["dev_log_stft"] == output.metrics["dev_log_stft"]
    exported = tf.saved_model.load(str(output.path("model")))
    model = build_vocoder(chosen, dataset)
    with np.load(output.folder / "best" / f"step-{int(output.metrics['best_step']):08d}" / "arrays.npz") as arrays:
        for index, variable in enumerate(model.weights):
            variable.assign(arrays[f"model/{index}"])
    mels = compute_features(SPOKEN[0].waveform, FEATURES)[None, :9]
    mels, frames = np.concatenate([mels, mels]), np.array([9, 5], np.int32)
    made = exported.signatures["vocode"](mels=tf.constant(mels), frames=tf.constant(frames))
    assert made["samples"].numpy().tolist() == [8 * HOP, 4 * HOP]
    assert_close(made["waveforms"][0], model(mels)[0], relative_to_peak=1e-5)
    assert not made["waveforms"][1, 4 * HOP :].numpy().any()
    vocoder = Vocoder(export(output.folder, tmp_path, chosen).path("model"))
    assert vocoder.engine == "onnx"
    for row, found in enumerate(vocoder.vocode([mels[0], mels[1, :5]])):
        assert_close(found, made["waveforms"][row, : len(found)], relative_to_peak=1e-5)


@pytest.mark.slow
def test_a_waveglow_learns_by_likelihood_alone_and_says_that_it_does_not_stream(
    dataset: Dataset, tmp_path: Path
) -> None:
    output = run(dataset.folder, tmp_path, settings(model=WAVEGLOW, epochs=3, learning_rate=0.01, evaluate_epochs=1))
    curves = json.loads((output.folder / "curves.json").read_text())
    likelihoods = [validation["negative_log_likelihood"] for validation in curves["dev"]]
    assert len(likelihoods) == 3
    assert likelihoods == sorted(likelihoods, reverse=True)
    vocoder = Vocoder(output.path("model"))
    mels = compute_features(SPOKEN[0].waveform, FEATURES)
    long, short = vocoder.vocode([mels[:9], mels[:5]])
    assert (len(long), len(short)) == (8 * HOP, 4 * HOP)
    assert_close(short, vocoder.vocode([mels[:5]])[0], relative_to_peak=1e-5)
    with pytest.raises(WorkError, match=r"is a waveglow, .*cannot be cut in chunks; use vocode"):
        next(vocoder.stream([mels]))


class Voice:
    """Stands for an exported voice: its mels are the recordings', shifted."""

    spoken = 0
    heard: ClassVar[list[Any]] = []
    said_by: ClassVar[list[str]] = []
    speakers: ClassVar[list[str]] = []
    features = FEATURES

    def __init__(self, folder: Path) -> None:
        self.text = types.SimpleNamespace(check_symbols=lambda text: None)

    def teacher_forced(self, symbols: list[str], features: list[Any], speakers: list[str]) -> list[Any]:
        Voice.spoken += len(symbols)
        Voice.heard += features
        Voice.said_by += speakers
        return [types.SimpleNamespace(mels=one[:, :MELS] + 1) for one in features]


def test_a_vocoder_learns_from_the_mels_of_a_voice(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_mels, "Synthesizer", Voice)
    recorded, spoken = train_batches(dataset), train_batches(dataset)
    for _ in range(2):  # the second one finds the mels of the first
        voice_mels.use_mels_of_voice(spoken, tmp_path, FEATURES, tmp_path / "mels" / "train")
    assert Voice.spoken == 10
    for one, other in zip(recorded.epoch(2), spoken.epoch(2), strict=True):
        for mine, its in zip(one.features, other.features, strict=True):
            real = (mine[:, :MELS] != np.float32(np.log(FEATURES.log_floor))).any(1)
            np.testing.assert_array_equal(mine[real, :MELS] + 1, its[real, :MELS])
            np.testing.assert_array_equal(mine[:, MELS:], its[:, MELS:])
    monkeypatch.setattr(Voice, "features", FEATURES.model_copy(update={"log_floor": 1e-3}))
    with pytest.raises(SettingsError, match=r"train\.voice: .*the voice .* has: .*extract\.features\.log_floor"):
        voice_mels.use_mels_of_voice(spoken, tmp_path, FEATURES, tmp_path / "others")


def test_a_voice_of_several_says_each_text_as_its_own_speaker(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_mels, "Synthesizer", Voice)
    monkeypatch.setattr(Voice, "speakers", ["eve", "tone"])
    monkeypatch.setattr(Voice, "said_by", [])
    batches = train_batches(dataset)
    voice_mels.use_mels_of_voice(batches, tmp_path, FEATURES, tmp_path / "mels")
    assert Voice.said_by == ["tone"] * batches.utterances
    monkeypatch.setattr(Voice, "speakers", ["eve", "joe"])
    with pytest.raises(SettingsError, match=r"train\.voice does not speak as tone, who says train-\d+; .* eve, joe"):
        voice_mels.use_mels_of_voice(batches, tmp_path, FEATURES, tmp_path / "others")


def test_a_voice_that_reads_pitch_gets_that_of_the_recordings(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocoder's own dataset has no F0."""
    how = FEATURES.model_copy(update={"kind": "mel_and_prosody"})
    monkeypatch.setattr(voice_mels, "Synthesizer", Voice)
    monkeypatch.setattr(Voice, "features", how)
    monkeypatch.setattr(Voice, "heard", [])
    batches = train_batches(dataset)
    voice_mels.use_mels_of_voice(batches, tmp_path, FEATURES, tmp_path / "mels")
    waveforms = {each.id: each.waveform for each in SPOKEN}
    voiced = 0
    for row, found in enumerate(Voice.heard):
        wanted = compute_features(waveforms[batches.example(row).id], how)
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found[:, how.mel_columns], wanted[:, how.mel_columns])
        same = np.isclose(found[:, how.prosody_columns], wanted[:, how.prosody_columns], atol=1e-3).all(axis=1)
        assert same[:-3].all()  # the last frames see the samples behind the last hop
        voiced += int(found[:, MELS + 1].sum())
    assert voiced > 50


def test_a_voice_is_in_the_key_by_its_digest(dataset: Dataset, tmp_path: Path) -> None:
    keys = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "saved_model.pb").write_bytes(name.encode())
        about = minimal_model_json("anna", "tts")
        (folder / "model.json").write_text(json.dumps(about))
        with plan_steps(), pytest.raises(StepWouldRunError) as found:
            run(dataset.folder, tmp_path / "store", settings(voice=str(folder)))
        assert found.value.named_by["inputs"]["voice"] == model_digest(folder)
        keys.append(found.value.key)
    assert keys[0] != keys[1]
    with plan_steps(), pytest.raises(StepWouldRunError) as without:
        run(dataset.folder, tmp_path / "store", settings())
    assert "voice" not in {*without.value.named_by["inputs"], *without.value.named_by["settings"]}
