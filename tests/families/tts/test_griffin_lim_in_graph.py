"""Griffin-Lim in a graph against the NumPy implementation, on real speech; rows of a batch are independent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.closeness import assert_close
from voxline.audio import griffin_lim
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, compute_features, magnitude_spectrogram, preemphasize
from voxline.families.tts.griffin_lim import reconstruct_waveforms

TACOTRON = FeatureSettings.of(
    {"kind": "mel_and_linear", "window_seconds": 0.05, "hop_seconds": 0.0125, "fft_size": 2_048, "mels": 80}
)
TACOTRON_2 = FeatureSettings.of(
    {
        "sample_rate": 22_050,
        "window_seconds": 1_024 / 22_050,
        "hop_seconds": 256 / 22_050,
        "highest_hz": 8_000,
        "spectrum": "magnitude",
        "log_floor": 1e-5,
    }
)
KINDS = [(TACOTRON, "mel"), (TACOTRON, "linear"), (TACOTRON_2, "mel"), (FeatureSettings(), "mel")]


def speech(real_data: Path, how: FeatureSettings, part: str) -> FloatArray:
    """Features of a second and a half."""
    import soxr

    samples, rate = soundfile.read(real_data / "LJSpeech-1.1" / "wavs" / "LJ001-0002.wav", dtype="float32")
    samples = soxr.resample(samples, rate, how.sample_rate).astype(np.float32)[: 3 * how.sample_rate // 2]
    return compute_features(samples, how)[:, how.mel_columns if part == "mel" else how.linear_columns]


def graph(how: FeatureSettings, bins: int, iterations: int) -> Any:
    """One trace for any batch and any time."""
    signature = [tf.TensorSpec([None, None, bins], tf.float32), tf.TensorSpec([None], tf.int32)]
    return tf.function(
        lambda raw, frames: reconstruct_waveforms(raw, frames, how, iterations),
        input_signature=signature,
        autograph=False,
    )


def convergence(made: FloatArray, magnitudes: FloatArray, how: FeatureSettings) -> float:
    """In decibels."""
    found = magnitude_spectrogram(preemphasize(made, how), how)
    return float(20 * np.log10(np.linalg.norm(found - magnitudes) / np.linalg.norm(magnitudes)))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "part"), KINDS)
def test_equals_the_numpy_implementation(real_data: Path, how: FeatureSettings, part: str) -> None:
    raw = speech(real_data, how, part)
    for iterations, within in ((0, 1e-5), (1, 1e-2)):
        ours = griffin_lim.features_to_waveform(raw, how, iterations=iterations)
        made, samples = graph(how, raw.shape[1], iterations)(raw[None], [len(raw)])
        assert samples.numpy().tolist() == [len(ours)]
        np.testing.assert_allclose(made[0], ours, rtol=0, atol=within * np.abs(ours).max())
    ours = griffin_lim.features_to_waveform(raw, how)
    made, _ = graph(how, raw.shape[1], 60)(raw[None], [len(raw)])
    invert = griffin_lim.linear_to_magnitude if part == "linear" else griffin_lim.mel_to_magnitude
    wanted = invert(raw, how)
    assert convergence(made[0].numpy(), wanted, how) == pytest.approx(convergence(ours, wanted, how), abs=0.15)


@pytest.mark.slow
def test_a_row_does_not_depend_on_the_rest_of_the_batch_or_on_padding(real_data: Path) -> None:
    raw = speech(real_data, TACOTRON_2, "mel")
    short = 40
    batch = np.stack([raw, raw, raw])
    batch[1, short:] = np.nan
    made, samples = graph(TACOTRON_2, 80, 1)(batch, [len(raw), short, 0])
    alone, _ = graph(TACOTRON_2, 80, 1)(raw[None, :short], [short])
    assert samples.numpy().tolist() == [(len(raw) - 1) * 256, (short - 1) * 256, 0]
    assert_close(made[1, : samples[1]], alone[0], relative_to_peak=1e-5)
    assert not made[1, samples[1] :].numpy().any()
    assert not made[2].numpy().any()
    np.testing.assert_allclose(made[0], griffin_lim.features_to_waveform(raw, TACOTRON_2, iterations=1), atol=1e-2)


@pytest.mark.parametrize("time", [0, 1, 2])
def test_short_inputs_give_the_right_number_of_samples(time: int) -> None:
    made, samples = graph(TACOTRON, 1_025, 2)(np.full((2, time, 1_025), 0.5, np.float32), [time, 0])
    assert made.shape == (2, max(time - 1, 0) * 200)
    assert samples.numpy().tolist() == [max(time - 1, 0) * 200, 0]
    assert np.isfinite(made).all()


@pytest.mark.slow
def test_a_saved_model_gives_the_same_waveform(real_data: Path, tmp_path: Path) -> None:
    raw = speech(real_data, TACOTRON, "linear")
    module = tf.Module()
    module.speak = graph(TACOTRON, 1_025, 5)
    tf.saved_model.save(module, str(tmp_path))
    before, after = (
        speak(raw[None], [len(raw)])[0] for speak in (module.speak, tf.saved_model.load(str(tmp_path)).speak)
    )
    np.testing.assert_array_equal(before, after)


def test_frames_with_the_wrong_number_of_bins_are_refused() -> None:
    with pytest.raises(ValueError, match=r"frames of 40 bins; 80 \(mels\) or 1025 \(linear\)"):
        reconstruct_waveforms(tf.zeros([1, 5, 40]), tf.constant([5]), TACOTRON)
