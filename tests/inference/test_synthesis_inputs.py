"""Inputs of a synthesis in place of a model's settings: WaveGlow's noise and denoiser, Griffin-Lim's iterations."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.families.test_exported_ops import FEATURES, SIZES_OF_VOCODERS, dataset_of, vocoder, weights_of
from tests.tone_tts_model import FEATURES as TONES
from tests.tone_tts_model import MakeTtsModel, add_onnx_graph
from voxline.audio.griffin_lim import features_to_waveform
from voxline.errors import SettingsError
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.families.vocoder.task import export_vocoder
from voxline.families.vocoder.train_module import build_vocoder
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.timing import TimingInput, time_model
from voxline.inference.vocoder import Sampling, Vocoder

SIZES = SIZES_OF_VOCODERS["waveglow"]
MELS = np.random.default_rng(0).standard_normal((9, FEATURES.mels)).astype(np.float32)


def write_glow(folder: Path, **sampling: float) -> Path:
    """A WaveGlow with a tone of its own; with its initial weights each flow is the identity, and has none."""
    settings = VocoderTrainSettings.of({"model": {"kind": "waveglow", **SIZES, **sampling}})
    dataset = dataset_of(FEATURES)
    random = np.random.default_rng(1)
    weights = {
        name: value + 0.1 * random.standard_normal(value.shape).astype(np.float32)
        for name, value in weights_of(build_vocoder(settings, dataset, "float32")).items()
    }
    export_vocoder(folder, settings, dataset, weights, {})
    return folder


@pytest.fixture(scope="module")
def glow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glow(tmp_path_factory.mktemp("vocoders") / "glow", denoiser=0)


def test_sigma_and_denoiser_are_inputs_of_a_waveglow(glow: Path, tmp_path: Path) -> None:
    (wanted,) = Vocoder(write_glow(tmp_path / "fixed", sampling_sigma=0.9, denoiser=0.3)).vocode([MELS])
    (sampled,) = Vocoder(glow, sampling=Sampling(0.9, 0.3)).vocode([MELS])
    (own,) = Vocoder(glow).vocode([MELS])
    assert_close(sampled, wanted, relative_to_peak=1e-5)
    assert np.abs(own - wanted).max() > 1e-3

    # What is not given is the model's own.
    (denoised,) = Vocoder(glow, sampling=Sampling(denoiser=0.3)).vocode([MELS])
    (louder,) = Vocoder(glow, sampling=Sampling(sigma=0.9)).vocode([MELS])
    assert len({waveform.tobytes() for waveform in (own, sampled, denoised, louder)}) == 4


def test_inputs_of_another_vocoder_are_refused(glow: Path, tmp_path: Path) -> None:
    vocoder(kind="vocos", **SIZES_OF_VOCODERS["vocos"])(tmp_path / "vocos")
    with pytest.raises(SettingsError, match="sigma and denoiser are of a WaveGlow, and this vocoder is of the kind"):
        Vocoder(tmp_path / "vocos", sampling=Sampling(sigma=0.5))
    measured = time_model(glow, TimingInput(iterations=1, length=0.2), sampling=Sampling(sigma=0.5))
    assert measured["stages"]


def test_a_voice_speaks_in_chunks_by_its_vocoder(make_tts_model: MakeTtsModel, tmp_path: Path) -> None:
    vocoder(TONES, kind="vocos", **SIZES_OF_VOCODERS["vocos"])(tmp_path / "vocos")
    model = add_onnx_graph(shutil.copytree(make_tts_model(), tmp_path / "model"))
    voice = Synthesizer(model, vocoder=tmp_path / "vocos")
    assert voice.vocoder
    text = '<speak>12.<break time="40ms"/><prosody rate="70%">3456</prosody></speak>'
    parts = list(voice.stream(text, first_seconds=0.1))
    spoken = sum(len(part.waveform) for part in parts if part.pieces)
    assert voice.audio_seconds == pytest.approx(spoken / voice.sample_rate)
    assert_close(np.concatenate([part.waveform for part in parts]), voice.speak(text).waveform, relative_to_peak=1e-5)
    hop = voice.features.hop_length
    lengths = [len(part.waveform) // hop for part in parts]
    first = round(0.1 * voice.sample_rate / hop)
    assert lengths[0] == first
    assert 2 * first in lengths  # and then twice as many

    # One that cannot be cut speaks whole sentences, and so does Griffin-Lim.
    vocoder(TONES, kind="waveglow", **SIZES)(tmp_path / "glow")
    for whole in (Synthesizer(model, vocoder=tmp_path / "glow"), Synthesizer(model)):
        (part,) = whole.stream("12.", first_seconds=0.1)
        assert_close(part.waveform, whole.speak("12.").waveform, relative_to_peak=1e-6)


def test_iterations_are_an_input_of_a_voice(make_tts_model: MakeTtsModel, glow: Path) -> None:
    model = make_tts_model()
    fewer = Synthesizer(model, iterations=1).synthesize("12.")
    own = Synthesizer(model).synthesize("12.")
    np.testing.assert_array_equal(fewer.mels, own.mels)
    features = Synthesizer(model).features
    how = Synthesizer(model).info.settings.get("griffin_lim", {})
    assert_close(
        fewer.waveform, features_to_waveform(own.mels, features, **{**how, "iterations": 1}), relative_to_peak=1e-5
    )
    with pytest.raises(SettingsError, match="sigma and denoiser are of a WaveGlow, and this voice speaks by Griffin-L"):
        Synthesizer(model, sampling=Sampling(sigma=0.5))
