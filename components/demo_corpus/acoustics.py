"""Recording conditions: silence, reverberation, background noise and level, on float32 samples `[samples]`.

The caller seeds the generator of random numbers.
"""

import numpy as np
import numpy.typing as npt

from voxline.audio.fft import convolve

Samples = npt.NDArray[np.float32]

MARGIN_SECONDS = 0.05
"""The silence at both ends of a recording that is cut closely."""


def trim_silence(samples: Samples, rate: int, *, keep: float = 0.1, threshold_db: float = -55.0) -> Samples:
    """Cuts (or pads) the silence at both ends to `keep` seconds each.

    A sample is sound if it is above `threshold_db` relative to the loudest one. The threshold is low, since words
    begin and end with sounds as soft as "f" and "th".

    >>> tone = np.concatenate([np.zeros(4000), np.ones(8000), np.zeros(300)]).astype(np.float32)
    >>> len(trim_silence(tone, 16000))
    11200
    """
    # Padded first, so that a recording with less silence than `keep` gets as much as all others.
    margin = round(keep * rate)
    loud = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (threshold_db / 20))
    padded = np.pad(samples, margin)
    return padded[loud[0] : loud[-1] + 1 + 2 * margin]


def draw_impulse_response(rng: np.random.Generator, rate: int, reverberation: float) -> Samples:
    """Draws a room's impulse response: the direct sound, early reflections, and a tail of decaying noise.

    The direct sound is at sample 0 with strength 1, so the speech is not delayed. All else has 4 to 12 dB less energy:
    the speaker is close to the microphone.

    Args:
      reverberation: RT60, the seconds until the tail has fallen by 60 dB.
    """
    # A tail of noise that falls by 60 dB over its length: [samples].
    length = max(round(reverberation * rate), 2)
    decay = 10.0 ** (-3.0 * np.arange(length) / length)
    response = 0.3 * rng.standard_normal(length) * decay

    # Six reflections within the first 20 ms, as by walls and a table, louder than the tail and of either sign.
    early = min(round(0.02 * rate), length - 1)
    reflections = rng.integers(1, early + 1, size=6)
    response[reflections] += rng.choice((-1.0, 1.0), size=6) * rng.uniform(1, 3, size=6) * decay[reflections]

    # Scaled without the direct sound, by which its energy is measured.
    response[0] = 0.0
    response *= 10 ** (-rng.uniform(4, 12) / 20) / np.sqrt(np.sum(response**2))
    response[0] = 1.0
    return response.astype(np.float32)


def reverberate(samples: Samples, response: Samples) -> Samples:
    """Convolves samples with a room's response, cut to their own length."""
    return convolve(samples, response)[: len(samples)]


def generate_noise(rng: np.random.Generator, kind: str, length: int, rate: int) -> Samples:
    """Noise of unit power: "white", "pink" (−3 dB per octave) or "hum" (a mains transformer in faint pink noise)."""
    if kind == "white":
        raw = rng.standard_normal(length)
    elif kind == "pink":
        raw = _pink(rng, length)
    elif kind == "hum":
        raw = _hum(rng, length, rate) + 0.3 * _unit(_pink(rng, length))
    else:
        raise ValueError(f"noise kind {kind!r}; accepted: white, pink, hum")
    return _unit(raw).astype(np.float32)


def mix_at_snr(speech: Samples, background: Samples, snr_db: float) -> Samples:
    """Adds a background of unit power at a signal-to-noise ratio, averaged over the utterance.

    >>> speech = np.full(16000, 0.5, np.float32)
    >>> added = mix_at_snr(speech, np.ones(16000, np.float32), 20.0) - speech
    >>> print(f"{added[0]:.3f}")
    0.050
    """
    # In float64: a sum of squares over many samples loses digits in float32.
    level = np.sqrt(np.mean(speech.astype(np.float64) ** 2)) * 10 ** (-snr_db / 20)
    mixed: Samples = (speech + level * background).astype(np.float32)
    return mixed


def normalize_peak(samples: Samples, peak_db: float) -> Samples:
    """Scales to a peak in dB below full scale.

    >>> print(np.abs(normalize_peak(np.array([0.1, -0.2], np.float32), -6.0)).max().round(3))
    0.501
    """
    scaled: Samples = (samples * (10 ** (peak_db / 20) / np.abs(samples).max())).astype(np.float32)
    return scaled


def quantize_samples(samples: Samples) -> npt.NDArray[np.int16]:
    """Scales samples in [-1, 1] to 16-bit numbers."""
    return np.rint(samples * 32767).astype(np.int16)


def _pink(rng: np.random.Generator, length: int) -> npt.NDArray[np.float64]:
    # White noise whose amplitudes fall with the root of the frequency, and so its power by 3 dB an octave.
    spectrum = np.fft.rfft(rng.standard_normal(length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    spectrum[0] = 0
    samples: npt.NDArray[np.float64] = np.fft.irfft(spectrum, length)
    return samples


def _hum(rng: np.random.Generator, length: int, rate: int) -> npt.NDArray[np.float64]:
    # Sines at multiples of 50 or 60 Hz, [harmonics, samples], the n-th with 1/n of the amplitude.
    mains = rng.choice((50.0, 60.0))
    harmonics = np.arange(1, 9)
    phases = rng.uniform(0, 2 * np.pi, size=(len(harmonics), 1))
    turns = 2 * np.pi * mains * harmonics[:, None] * np.arange(length) / rate
    return _unit((np.sin(turns + phases) / harmonics[:, None]).sum(axis=0))


def _unit(samples: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    scaled: npt.NDArray[np.float64] = samples / np.sqrt(np.mean(samples**2))
    return scaled
