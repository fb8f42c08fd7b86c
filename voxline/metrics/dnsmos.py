"""DNSMOS P.835: a prediction of the opinion that listeners would have of speech, without a recording beside it.

From 1 (bad) to 5 (excellent), of the whole impression ("overall"). After Reddy, Gopal and Cutler 2022, "DNSMOS P.835:
A Non-Intrusive Perceptual Objective Speech Quality Metric to Evaluate Noise Suppressors" (ICASSP). The network and its
weights are a file of Microsoft's package `speechmos`, whose code is not run: it also computes another score, imports
librosa, and lets ONNX Runtime's threads spin. It learned from noisy and denoised speech of people: read it as a
comparison of two models on the same texts, not as a mark.
"""

import functools
from collections.abc import Iterable
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RATE = 16_000
SHORTEST = 0.1
WINDOW = 9.01
"""Seconds: of a clip, and of what the network hears at a time."""
OPINION = (-0.06766283, 1.11546468, 0.04602535)
"""Polynomial, highest power first, that its authors fitted to the scale of listeners."""


def dnsmos(samples: "npt.NDArray[np.float32]", sample_rate: int) -> float | None:
    """Predicts the opinion of a clip, float32 [samples], clipped to -1..1: the mean of windows that begin each second.

    A clip that is shorter than a window is doubled until it is not, so it has one to nine of them. Each takes 0.5 s of
    processor time.

    Returns:
      None for less than a tenth of a second.

    >>> import numpy as np
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal(9_100).astype(np.float32)
    >>> 1 < dnsmos(noise, 16_000) < 1.5, dnsmos(noise[:1_000], 16_000)
    (True, None)
    """
    if len(samples) < SHORTEST * sample_rate:
        return None
    import numpy as np

    from voxline.audio.decoding import resample

    # The network takes 16 kHz; other rates are resampled first.
    signal = samples if sample_rate == RATE else resample(samples, sample_rate, RATE)
    signal = np.clip(signal, -1, 1).astype(np.float32)
    size = int(WINDOW * RATE)
    # Doubling, as the authors' code does: silence behind the clip would be judged too.
    while len(signal) < size:
        signal = np.concatenate([signal, signal])
    # As the package does, with its roundings: windows that come out a sample short do not count.
    ends = [(second, int((second + WINDOW) * RATE)) for second in range(int(len(signal) // RATE - WINDOW) + 1)]
    windows = [signal[second * RATE : end] for second, end in ends if end - second * RATE == size]

    # The network's third output is the whole impression; [windows]
    opinions = [np.polyval(OPINION, _network().run(None, {"input_1": window[None]})[0][0, 2]) for window in windows]
    return float(np.mean(opinions))


def mean_dnsmos(clips: "Iterable[npt.NDArray[np.float32]]", sample_rate: int) -> float | None:
    """The mean of clips; None if none of them is long enough."""
    scores = [score for clip in clips if (score := dnsmos(clip, sample_rate)) is not None]
    return sum(scores) / len(scores) if scores else None


@functools.cache
def _network() -> Any:
    """The paper's primary model; of each window it gives the opinions of speech, background, and the whole."""
    from voxline.inference.onnx_model import load_session

    with as_file(files("speechmos") / "dnsmos_models" / "sig_bak_ovr.onnx") as file:
        return load_session(file, threads=None)
