"""Griffin-Lim with momentum, 60 iterations on one core, against librosa.griffinlim, at equal quality.

Quality is spectral convergence: the difference between the magnitudes of the waveform and the given ones, relative to
their norm. The two start from different phases, so their convergence differs by a few percent per recording, in
either direction; the means over the recordings must agree within one percent.

  python -m benchmarks.griffin_lim
  python -m benchmarks.griffin_lim --closeness FOLDER_OF_WAVS    # how near each number of iterations comes
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import librosa
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.table import Row, print_table
from voxline.audio.decoding import load_audio
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, compute_features, magnitude_spectrogram
from voxline.audio.griffin_lim import features_to_waveform, griffin_lim

RECORDINGS = 12
ROUNDS = 3
ITERATIONS = 60
MOMENTUM = 0.99
EQUAL = 1.01
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


def inversion() -> Row:
    """Measures the processor time of both alternately, on the spectrograms of generated recordings."""
    how = TACOTRON_2
    spectrograms = [magnitude_spectrogram(_voice(seed, how.sample_rate), how) for seed in range(RECORDINGS)]
    ours, peer, quality = [], [], []
    with threadpool_limits(1):
        _librosa(spectrograms[0]), griffin_lim(spectrograms[0], how)  # what either prepares once
        for number in range(ROUNDS):
            mine, made = _timed(lambda magnitudes: griffin_lim(magnitudes, how, ITERATIONS, MOMENTUM), spectrograms)
            theirs, other = _timed(_librosa, spectrograms)
            ours.append(mine)
            peer.append(theirs)
            if number == 0:
                quality = [
                    statistics.fmean(_convergence(*pair) for pair in zip(waves, spectrograms, strict=True))
                    for waves in (made, other)
                ]
    if quality[0] > EQUAL * quality[1]:
        raise SystemExit(f"benchmarks.griffin_lim: convergence {quality[0]:.4f}, librosa's is {quality[1]:.4f}")
    seconds = sum(how.count_samples(len(magnitudes)) for magnitudes in spectrograms) / how.sample_rate
    return Row.of(
        "Griffin-Lim, 60 iterations, one core, x librosa.griffinlim",
        f"{statistics.median(ours) / seconds * 1e3:.0f} ms a second of speech",
        f"{statistics.median(peer) / seconds * 1e3:.0f} ms a second of speech",
        statistics.median(theirs / mine for mine, theirs in zip(ours, peer, strict=True)),
        ">=",
        1.5,
    )


def closeness(folder: Path) -> None:
    """Prints the distance between given features and those of the waveforms inverted from them."""
    print("| features | inverted from | momentum | iterations | mel, dB | linear, dB | convergence, dB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, how, parts in (
        ("Tacotron, 16 kHz", TACOTRON, ("mel", "linear")),
        ("Tacotron 2, 22.05 kHz", TACOTRON_2, ("mel",)),
    ):
        recordings = [load_audio(path, how.sample_rate) for path in sorted(folder.glob("*.wav"))]
        for part in parts:
            for momentum in (0.0, 0.99):
                for iterations in (30, 60, 100):
                    found = [_distances(samples, how, part, iterations, momentum) for samples in recordings]
                    mel, linear, convergence = (f"{statistics.fmean(f):.2f}" for f in zip(*found, strict=True))
                    print(f"| {name} | {part} | {momentum:g} | {iterations} | {mel} | {linear} | {convergence} |")


def _distances(
    samples: FloatArray, how: FeatureSettings, part: str, iterations: int, momentum: float
) -> tuple[float, float, float]:
    """Mean absolute error of mels and of the linear spectrum, and spectral convergence, all in decibels."""
    wanted = compute_features(samples, how)
    columns = how.mel_columns if part == "mel" else how.linear_columns
    made = features_to_waveform(wanted[:, columns], how, iterations=iterations, momentum=momentum)
    decibels = -how.floor_db if how.kind == "mel_and_linear" else 20 / np.log(10)
    mel = float(np.abs(compute_features(made, how) - wanted)[:, how.mel_columns].mean() * decibels)
    before, after = (magnitude_spectrogram(audio, how) for audio in (samples, made))
    levels = (20 * np.log10(np.maximum(magnitudes, 1e-4)) for magnitudes in (before, after))
    linear = float(np.abs(np.subtract(*levels)).mean())
    return mel, linear, float(20 * np.log10(np.linalg.norm(after - before) / np.linalg.norm(before)))


def _librosa(magnitudes: FloatArray) -> FloatArray:
    how = TACOTRON_2
    made: FloatArray = librosa.griffinlim(
        magnitudes.T,
        n_iter=ITERATIONS,
        hop_length=how.hop_length,
        win_length=how.win_length,
        n_fft=how.n_fft,
        momentum=MOMENTUM,
        random_state=0,
    )
    return made


def _timed(
    invert: Callable[[FloatArray], FloatArray], spectrograms: Sequence[FloatArray]
) -> tuple[float, list[FloatArray]]:
    start = time.process_time()
    made = [invert(magnitudes) for magnitudes in spectrograms]
    return time.process_time() - start, made


def _convergence(made: FloatArray, magnitudes: FloatArray) -> float:
    return float(np.linalg.norm(magnitude_spectrogram(made, TACOTRON_2) - magnitudes) / np.linalg.norm(magnitudes))


def _voice(seed: int, rate: int) -> FloatArray:
    """Two to six seconds of harmonics with a varying pitch and noise in between; as hard to invert as speech."""
    random = np.random.default_rng(seed)
    samples = int(random.uniform(2, 6) * rate)
    time_ = np.arange(samples) / rate
    pitch = random.uniform(90, 220) * (1 + 0.15 * np.sin(2 * np.pi * random.uniform(0.5, 2) * time_))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voiced = sum(np.sin(number * phase + random.uniform(0, 6)) / number for number in range(1, 30))
    gate = (np.sin(2 * np.pi * random.uniform(1.5, 4) * time_) > -0.4) * np.abs(np.sin(2 * np.pi * 3 * time_))
    made: FloatArray = (0.1 * gate * voiced + 0.01 * random.standard_normal(samples)).astype(np.float32)
    return made


def main() -> None:
    if sys.argv[1:2] == ["--closeness"]:
        closeness(Path(sys.argv[2]))
    else:
        print_table([inversion()])


if __name__ == "__main__":
    main()
