"""Log-mel features on one core, against librosa's mel spectrogram, which lacks the logarithm.

python -m benchmarks.features
"""

import statistics
import time
from collections.abc import Callable, Sequence

import librosa
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import FloatArray, compute_features

UTTERANCES = 24
ROUNDS = 15
SETTINGS = FeatureSettings(mels=80, fft_size=512)


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
    print_table([log_mel()])


if __name__ == "__main__":
    main()
