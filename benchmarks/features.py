"""Log-mel features and F0 on one core, against librosa's mel spectrogram, which lacks the logarithm, and its pYIN.

python -m benchmarks.features
"""

import statistics
import time
from collections.abc import Callable, Sequence

import librosa
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, compute_features
from voxline.audio.prosody import HIGHEST_HZ, LOWEST_HZ, find_f0
from voxline.components.demo_corpus.espeak import EspeakVoice, speak

UTTERANCES = 24
ROUNDS = 15
SETTINGS = FeatureSettings(mels=80, fft_size=512)
VOICES = (("m3", 75), ("m3", 120), ("m8", 95), ("m8", 150), ("f2", 200), ("f4", 330), ("f5", 240))
"""Voices of espeak-ng, and the F0 in Hz that each is made to keep."""
SENTENCES = ("the quick brown fox jumps over the lazy dog", "seven four nine one two", "she sells sea shells")


def log_mel() -> Row:
    """Measures the processor time of both alternately, utterance by utterance as in a pipeline."""
    random = np.random.default_rng(1)
    recordings = [
        (0.1 * random.standard_normal(int(seconds * SETTINGS.sample_rate))).astype(np.float32)
        for seconds in random.uniform(2, 15, UTTERANCES)
    ]
    _check_equal(compute_features(recordings[0], SETTINGS), _librosa(recordings[0]))
    ours, peer = [], []
    with threadpool_limits(1):
        for _ in range(ROUNDS):
            ours.append(_seconds(lambda samples: compute_features(samples, SETTINGS), recordings))
            peer.append(_seconds(_librosa, recordings))
    frames = sum(SETTINGS.count_frames(len(samples)) for samples in recordings)
    return Row.of(
        "log-mel, one core, 80 bins, x librosa.feature.melspectrogram",
        f"{statistics.median(ours) / frames * 1e6:.2f} µs a frame",
        f"{statistics.median(peer) / frames * 1e6:.2f} µs a frame",
        statistics.median(theirs / mine for mine, theirs in zip(ours, peer, strict=True)),
        ">=",
        2.2,
    )


def f0() -> list[Row]:
    """Measures F0 of generated speech, whose true F0 is what the generator keeps."""
    import soxr

    rate, hop = SETTINGS.sample_rate, SETTINGS.hop_length
    given, recordings = [], []
    for variant, hertz in VOICES:
        spoken, made = speak(EspeakVoice("en-us", variant, constant_hz=hertz), SENTENCES)
        given += [hertz] * len(spoken)
        recordings += [soxr.resample(samples, made, rate) for samples in spoken]

    def ours(samples: FloatArray) -> FloatArray:
        return find_f0(samples, rate, hop)

    def pyin(samples: FloatArray) -> FloatArray:
        found, _, _ = librosa.pyin(
            samples, fmin=LOWEST_HZ, fmax=HIGHEST_HZ, sr=rate, frame_length=1_024, hop_length=hop
        )
        return np.nan_to_num(found).astype(np.float32)

    pyin(recordings[0])  # compiles
    seconds = sum(map(len, recordings)) / rate
    with threadpool_limits(1):
        mine, theirs = (seconds / _seconds(compute, recordings) for compute in (ours, pyin))
    right = [
        np.concatenate([_within(compute(one), hertz) for one, hertz in zip(recordings, given, strict=True)]).mean()
        for compute in (ours, pyin)
    ]
    return [
        Row.of("F0, one core, x librosa.pyin", f"{mine:.0f} x real time", f"{theirs:.1f}", mine / theirs, ">=", 5),
        Row.of(
            "F0 of generated speech, share of voiced frames within 1%; x librosa.pyin",
            *(f"{share:.1%}" for share in right),
            right[0] / right[1],
            ">=",
            1,
        ),
    ]


def _within(found: FloatArray, hertz: float) -> npt.NDArray[np.bool_]:
    """Which voiced frames are within 1% of the true F0."""
    return np.abs(found[found > 0] / hertz - 1) < 0.01


def _librosa(samples: FloatArray) -> FloatArray:
    mels: FloatArray = librosa.feature.melspectrogram(
        y=samples,
        sr=SETTINGS.sample_rate,
        n_fft=SETTINGS.n_fft,
        win_length=SETTINGS.win_length,
        hop_length=SETTINGS.hop_length,
        n_mels=SETTINGS.mels,
    )
    return mels


def _check_equal(ours: FloatArray, theirs: FloatArray) -> None:
    if not np.allclose(ours, np.log(np.maximum(theirs.T, SETTINGS.log_floor)), atol=1e-3):
        raise SystemExit("benchmarks.features: the two compute different values, so their times cannot be compared")


def _seconds(compute: Callable[[FloatArray], FloatArray], recordings: Sequence[FloatArray]) -> float:
    start = time.process_time()
    for samples in recordings:
        compute(samples)
    return time.process_time() - start


def main() -> None:
    print_table([log_mel(), *f0()])


if __name__ == "__main__":
    main()
