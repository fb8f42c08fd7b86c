"""Prosody of a recording: its F0, its level in each frame, and where speech begins and ends. In numpy, no librosa.

  found = find_f0(samples, 16_000, hop_length=160)     # float32 [frames], Hz; 0 where unvoiced
  onset, offset = find_speech(samples, 16_000)             # seconds

F0 is found by the autocorrelation method of Boersma 1993, "Accurate short-term analysis of the fundamental frequency
and the harmonics-to-noise ratio of a sampled sound" (IFA Proceedings 17, 97-110). `voxline.metrics.f0`, which compares
voices, uses librosa's pYIN: it is more tolerant of the hoarse speech that vocoders make, and far slower.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from voxline.audio.fft import BLOCK_FRAMES, rfft

FloatArray = npt.NDArray[np.float32]

LOWEST_HZ = 65.0
HIGHEST_HZ = 500.0
"""Where F0 is searched, as for a speaker who is not known."""

SUMMARY_HOP_SECONDS = 0.010

RANGE = (0.75, 2.0)
"""The speaker's range: these times the first and the third quartile."""
PERIODS = 3
"""Periods of the lowest F0 in a window, as in the paper."""
MAX_CANDIDATES = 15
"""Of a frame."""
OCTAVE_COST = 0.02
OCTAVE_JUMP_COST = 0.35
VOICING_CHANGE_COST = 0.14
VOICING_THRESHOLD = 0.45
SILENCE_THRESHOLD = 0.03
"""Praat's, where costs of a change are for 10 ms; but its octave cost is 0.01, with which rough voices, whose periods
differ in turns, fall by an octave."""

SPEECH_DB = -55.0
NOISE_DB = 10.0
"""Speech is above the first relative to the loudest 10 ms, and above the second relative to the noise."""
EMPHASIS = 0.97
"""Of high frequencies where speech begins or ends: fricatives are soft, and most noise is low."""
LEVEL_SECONDS = 0.010
LEVEL_STEP_SECONDS = 0.001
NOISE_SECONDS = 0.020
"""The quietest of this length is the noise: most clips have a pause of it, also those that are trimmed closely."""
SURELY_DB = 20.0
"""What is within this of the loudest 10 ms is speech, whatever the noise seems to be: the clip may have no pause."""
SOUND_SECONDS = 0.030
SOUND_SHARE = 0.6
"""Of what follows the onset, this share is loud: a click is no speech."""
LOWEST_DB = -120.0
FRAME_SECONDS = 0.025


class Prosody(NamedTuple):
    """The prosody of a recording, in frames.

    Attributes:
      f0: float32 [frames], Hz; 0 where unvoiced.
      energy: float32 [frames], level in dB of full scale (RMS), -120 and more.
      onset, offset: of speech, seconds; both 0 for silence.
    """

    f0: FloatArray
    energy: FloatArray
    onset: float
    offset: float


def compute_prosody(samples: FloatArray, sample_rate: int, hop_length: int) -> Prosody:
    """The prosody of a recording, in the frames of its features.

    Args:
      samples: float32 `[samples]`, mono, full scale 1.
      sample_rate: Hz.
      hop_length: samples from one frame to the next; frame n is centered on sample n * hop_length.

    >>> tone = np.sin(2 * np.pi * 200 * np.arange(8_000) / 16_000).astype(np.float32)
    >>> found = compute_prosody(np.pad(tone, 4_000), 16_000, 1_600)
    >>> found.f0.round(1).tolist()
    [0.0, 0.0, 0.0, 200.0, 200.0, 200.0, 200.0, 200.0, 0.0, 0.0, 0.0]
    >>> found.energy.round().tolist()[2:6], round(found.onset, 2), round(found.offset, 2)
    ([-120.0, -3.0, -3.0, -3.0], 0.25, 0.75)
    """
    return Prosody(
        find_f0(samples, sample_rate, hop_length),
        frame_levels(samples, sample_rate, hop_length),
        *find_speech(samples, sample_rate),
    )


def summarize_prosody(samples: FloatArray, sample_rate: int) -> dict[str, float]:
    """The prosody of a recording in a few numbers, for its line of a manifest.

    Args:
      samples: float32 `[samples]`, mono, full scale 1.
      sample_rate: Hz.

    Returns:
      onset_seconds, offset_seconds: where speech begins and ends.
      speech_db: level between them, dB of full scale (RMS).
      voiced_share: share of frames of 10 ms between them that are voiced.
      f0_hz, f0_low_hz, f0_high_hz: median, 5th and 95th percentile of F0; absent if no frame is voiced.
    """
    hop = round(SUMMARY_HOP_SECONDS * sample_rate)
    prosody = compute_prosody(samples, sample_rate, hop)

    # Pauses before and after speech would lower the level.
    speech = samples[round(prosody.onset * sample_rate) : round(prosody.offset * sample_rate)]
    power = float(np.square(speech, dtype=np.float64).mean()) if len(speech) else 0.0
    frames = prosody.f0[
        math.ceil(prosody.onset * sample_rate / hop) : math.floor(prosody.offset * sample_rate / hop) + 1
    ]
    voiced = prosody.f0[prosody.f0 > 0]
    summary = {
        "onset_seconds": prosody.onset,
        "offset_seconds": prosody.offset,
        "speech_db": round(max(10 * math.log10(max(power, 1e-13)), LOWEST_DB), 2),
        "voiced_share": round(float((frames > 0).mean()), 4) if len(frames) else 0.0,
    }
    if len(voiced):
        low, middle, high = np.percentile(voiced, (5, 50, 95)).tolist()
        summary |= {"f0_hz": round(middle, 2), "f0_low_hz": round(low, 2), "f0_high_hz": round(high, 2)}
    return summary


def find_f0(
    samples: FloatArray,
    sample_rate: int,
    hop_length: int,
    lowest: float = LOWEST_HZ,
    highest: float = HIGHEST_HZ,
) -> FloatArray:
    """F0 of each frame in Hz, float32 `[1 + samples // hop_length]`; 0 where unvoiced.

    A candidate is a peak of the autocorrelation of a windowed frame, divided by that of the window. The path through
    the candidates of all frames is the one with the greatest strength less the costs of changes (Viterbi). A second
    pass searches the speaker's own range (Hirst 2011, "The analysis by synthesis of speech melody"), which for most
    speakers needs shorter windows and has fewer octaves to confuse.

    Args:
      samples: float32 `[samples]`, mono.
      sample_rate: Hz.
      hop_length: samples from one frame to the next; frame n is centered on sample n * hop_length.
      lowest, highest: the range to search, in Hz.
    """
    f0 = _search(samples, sample_rate, hop_length, lowest, highest)
    if not f0.any():
        return f0

    # The second pass: around the quartiles of the first one.
    first, third = np.percentile(f0[f0 > 0], (25, 75)).tolist()
    return _search(
        samples, sample_rate, hop_length, max(lowest, RANGE[0] * first), min(highest, max(RANGE[1] * third, 2 * first))
    )


def _search(samples: FloatArray, sample_rate: int, hop_length: int, lowest: float, highest: float) -> FloatArray:
    """One pass of `find_f0`."""
    count = 1 + len(samples) // hop_length

    # The mean is no sound: an offset would make silence loud.
    peak = float(np.abs(samples - samples.mean()).max()) if len(samples) else 0.0
    if not peak:
        return np.zeros(count, np.float32)
    window = round(PERIODS * sample_rate / lowest)
    padded = np.pad(samples.astype(np.float32), (window // 2, window))

    # [frames, window], a view
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop_length][:count]

    # [frames, candidates]
    hertz = np.zeros((count, MAX_CANDIDATES), np.float32)
    strength = np.full((count, MAX_CANDIDATES), -np.inf, np.float32)
    for start in range(0, count, BLOCK_FRAMES):
        rows = slice(start, start + BLOCK_FRAMES)
        candidates = _candidates(frames[rows], peak, sample_rate, lowest, highest)
        hertz[rows, : candidates[0].shape[1]], strength[rows, : candidates[1].shape[1]] = candidates
    return _best_path(hertz, strength, hop_length / sample_rate)


def _candidates(
    frames: FloatArray, peak: float, sample_rate: int, lowest: float, highest: float
) -> tuple[FloatArray, FloatArray]:
    """Frequencies in Hz and strengths of up to MAX_CANDIDATES candidates of each frame; the first is "unvoiced", 0 Hz.

    Args:
      peak: the greatest amplitude of the recording.
    """
    window = frames.shape[1]
    frames = frames - frames.mean(axis=1, keepdims=True)

    # [frames]
    silence = np.abs(frames).max(axis=1) / peak / (SILENCE_THRESHOLD / (1 + VOICING_THRESHOLD))
    first = math.floor(sample_rate / highest)
    last = math.ceil(sample_rate / lowest)

    # [window]
    phase = 2 * np.pi * (np.arange(window) + 0.5) / window
    hann = (0.5 - 0.5 * np.cos(phase)).astype(np.float32)

    # Room for the longest lag, so that the circular correlation does not wrap around.
    size = 1 << (window + last).bit_length()
    block = np.zeros((len(frames), size), np.float32)
    np.multiply(frames, hann, out=block[:, :window])
    parts = rfft(block)
    power = np.square(parts.real) + np.square(parts.imag)

    # [frames, lags]: the autocorrelation is the transform of the power (Wiener and Khinchin).
    correlation = np.fft.irfft(power, axis=1)[:, first - 1 : last + 2].astype(np.float32)
    lags = np.arange(first - 1, last + 2)

    # Boersma 1993: divide by the autocorrelation of the window.
    correlation /= _hann_autocorrelation(lags / window).astype(np.float32)
    correlation /= np.maximum(power.sum(axis=1) * 2 - power[:, 0] - power[:, -1], 1e-20)[:, None] / size
    left = correlation[:, :-2]
    middle = correlation[:, 1:-1]
    right = correlation[:, 2:]

    # A higher octave has to be stronger by a cost.
    strength = middle - OCTAVE_COST * np.log2(lowest * lags[1:-1] / sample_rate).astype(np.float32)
    strength = np.where((middle > left) & (middle >= right) & (middle > 0.5 * VOICING_THRESHOLD), strength, -np.inf)

    # [frames, candidates]: the strongest peaks
    count = min(MAX_CANDIDATES - 1, strength.shape[1])
    best = np.argpartition(strength, -count, axis=1)[:, -count:]
    peaks = np.take_along_axis(strength, best, axis=1)
    before, at, after = (np.take_along_axis(values, best, axis=1) for values in (left, middle, right))
    bend = np.where(np.isfinite(peaks), 2 * at - before - after, 1.0)
    shift = np.where(np.isfinite(peaks), 0.5 * (after - before) / bend, 0.0)  # the top of a parabola
    peaks = peaks + 0.25 * (after - before) * shift
    hertz = np.clip(sample_rate / (lags[1:-1][best] + shift), lowest, highest)

    # Strength of "unvoiced": the greater, the softer the frame is beside the recording's peak.
    unvoiced = VOICING_THRESHOLD + np.maximum(0, 2 - silence)
    return (
        np.concatenate([np.zeros((len(frames), 1)), hertz], axis=1).astype(np.float32),
        np.concatenate([unvoiced[:, None], peaks], axis=1).astype(np.float32),
    )


def _hann_autocorrelation(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The normalized autocorrelation of a Hann window at lags given as shares of its length (equation 8)."""
    turns = 2 * np.pi * share
    result: npt.NDArray[np.float64] = (1 - share) * (2 / 3 + np.cos(turns) / 3) + np.sin(turns) / (2 * np.pi)
    return result


def _best_path(hertz: FloatArray, strength: FloatArray, hop_seconds: float) -> FloatArray:
    """The frequency of each frame along the best path, float32 `[frames]`."""
    # Costs are for frames of 10 ms; shorter ones add up to the same for a second.
    scale = 0.01 / hop_seconds
    voiced = hertz > 0
    octaves = np.log2(np.where(voiced, hertz, 1.0))

    # [candidates] the best sum of a path that ends in each
    total = strength[0]
    origins = np.zeros(hertz.shape, np.intp)
    changed = VOICING_CHANGE_COST * scale
    jump = OCTAVE_JUMP_COST * scale
    for frame in range(1, len(hertz)):
        # [candidates before, candidates now]
        costs = np.abs(octaves[frame - 1, :, None] - octaves[frame])
        costs *= jump
        costs[0] = changed
        costs[:, 0] = changed
        costs[0, 0] = 0
        reached = total[:, None] - costs
        origins[frame] = reached.argmax(axis=0)
        total = reached.max(axis=0) + strength[frame]

    # Backtracking.
    path = np.empty(len(hertz), np.intp)
    path[-1] = total.argmax()
    for frame in range(len(hertz) - 1, 0, -1):
        path[frame - 1] = origins[frame, path[frame]]
    return hertz[np.arange(len(hertz)), path]


def frame_levels(samples: FloatArray, sample_rate: int, hop_length: int) -> FloatArray:
    """The level of 25 ms around each frame in dB of full scale (RMS), float32 `[1 + samples // hop_length]`."""
    # [frames] centers in samples
    count = 1 + len(samples) // hop_length
    return _levels(samples, round(FRAME_SECONDS * sample_rate), np.arange(count) * hop_length)


def find_speech(samples: FloatArray, sample_rate: int) -> tuple[float, float]:
    """Seconds at which speech begins and ends; both 0 for digital silence.

    After pre-emphasis, speech is within 55 dB of the loudest 10 ms (RMS), and more than 10 dB above the quietest 20 ms;
    all within 20 dB of the loudest 10 ms is speech. What lasts less than 20 ms at either end, such as a click, is none.

    Args:
      samples: float32 `[samples]`, mono, full scale 1.
      sample_rate: Hz.
    """
    # Pre-emphasis: speech has more high frequencies than hum.
    samples = np.append(samples[:1], samples[1:] - np.float32(EMPHASIS) * samples[:-1])
    step = max(1, round(LEVEL_STEP_SECONDS * sample_rate))
    centers = np.arange(0, len(samples), step)
    levels = _levels(samples, round(LEVEL_SECONDS * sample_rate), centers)
    loudest = float(levels.max(initial=LOWEST_DB))
    if loudest <= LOWEST_DB:
        return 0.0, 0.0

    # Windows that are wholly inside: zeros beyond the ends would pass for a quiet room.
    whole = round(NOISE_SECONDS / 2 * sample_rate)
    inside = centers[(centers >= whole) & (centers < len(samples) - whole)]
    quietest = float(_levels(samples, 2 * whole, inside).min(initial=loudest))

    loud = levels > min(max(loudest + SPEECH_DB, quietest + NOISE_DB), loudest - SURELY_DB)

    # Running sums give the number of loud steps in any span.
    ones = np.concatenate([[0], np.cumsum(loud)])
    span = round(SOUND_SECONDS / LEVEL_STEP_SECONDS)
    at = np.flatnonzero(loud)
    after = ones[np.minimum(at + span, len(loud))] - ones[at]
    before = ones[at + 1] - ones[np.maximum(at + 1 - span, 0)]
    starts = at[after >= SOUND_SHARE * span]
    ends = at[before >= SOUND_SHARE * span]

    # Nothing but clicks: their ends, rather than none.
    first, last = (starts[0], ends[-1]) if len(starts) and len(ends) else (at[0], at[-1])
    # A window reaches the threshold when its edge is in the sound, half a window before or after its center.
    half = round(LEVEL_SECONDS / 2 * sample_rate)
    onset = min(int(centers[first]) + half, len(samples))
    offset = max(int(centers[last]) - half, 0)

    # A sound shorter than the window would end before it begins.
    return round(min(onset, offset) / sample_rate, 4), round(max(onset, offset) / sample_rate, 4)


def _levels(samples: FloatArray, window: int, centers: npt.NDArray[np.int64]) -> FloatArray:
    """The level of windows in dB of full scale (RMS), float32 `[centers]`; beyond the ends is silence."""
    # [samples + 1] running sums, so that a window's energy is a difference.
    energies = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    first = np.clip(centers - window // 2, 0, len(samples))
    last = np.clip(centers - window // 2 + window, 0, len(samples))
    power = (energies[last] - energies[first]) / window
    levels: FloatArray = np.maximum(10 * np.log10(np.maximum(power, 1e-13)), LOWEST_DB).astype(np.float32)
    return levels
