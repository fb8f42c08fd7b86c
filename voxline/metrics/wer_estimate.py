"""The word error rate of recordings that nobody transcribed, from the model's confidences.

On the model's own test split, whose transcripts are known, a logistic curve is fitted that says of a confidence how
many of the words are wrong. A prior worth a few words says that a word of confidence c is wrong with probability 1 - c;
it matters only where the test split has few errors. The curve is then applied to the confidences of new recordings.

How far it can be trusted is measured: each slice of the test split is estimated with a curve fitted to all others, and
compared with what it really is. That error is part of the interval. On audio unlike all of the test split (noise, half
the band) networks are surer than they should be: the estimate says that it is worse, and not how much.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from voxline.metrics.evaluation import UtteranceResult

MIN_SLICE = 20
"""Utterances of a slice that is estimated in the back-test."""
_PRIOR = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Confidences of the words of the prior."""
_STEPS = 50
_Z = 1.96
_RESAMPLES = 200

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class HeardClip:
    """The values of a recording that the estimate needs.

    Attributes:
      words: in the hypothesis.
      confidence: of it; None without words.
      errors, reference_words: if a transcript is known.
    """

    words: int
    confidence: float | None
    errors: float = math.nan
    reference_words: float = math.nan


@dataclasses.dataclass(frozen=True)
class WerCurve:
    """Errors and words that hypotheses stand for.

    Attributes:
      offset, slope: errors per word of the hypothesis are sigmoid(offset + slope · logit(confidence)).
      length: words of the reference per word of a hypothesis.
      empty_words: words of the reference of a recording in which nothing was heard, all of them errors.
    """

    offset: float
    slope: float
    length: float
    empty_words: float

    @classmethod
    def fit(cls, clips: Sequence[HeardClip]) -> "WerCurve":
        """Fits the curve to recordings with transcripts, by weighted logistic regression (Newton's method)."""
        # Utterances without words have no confidence; they are counted apart, by `empty_words`.
        clips_with_words = [clip for clip in clips if clip.words and clip.confidence is not None]
        empty = [clip for clip in clips if not clip.words]

        # [clips + prior]; the prior keeps the slope finite when no clip has errors.
        logits = np.array(
            [_logit(clip.confidence or 0.0) for clip in clips_with_words] + [_logit(rate) for rate in _PRIOR]
        )
        weights = np.array([float(clip.words) for clip in clips_with_words] + [1.0] * len(_PRIOR))
        rates = np.array(
            [min(clip.errors / clip.words, 1.0) for clip in clips_with_words] + [1 - rate for rate in _PRIOR]
        )

        # [clips + prior, 2]
        design = np.stack([np.ones_like(logits), logits], axis=1)
        coefficients = np.array([0.0, -1.0])
        for _ in range(_STEPS):
            # One step of Newton's method on the weighted log likelihood.
            expected = _sigmoid(design @ coefficients)
            gradient = design.T @ (weights * (rates - expected))
            curvature = design.T @ (design * (weights * np.maximum(expected * (1 - expected), 1e-6))[:, None])
            step = np.linalg.solve(curvature + 1e-9 * np.eye(2), gradient)
            # A step in the logit is bounded: far from the optimum, Newton's method may overshoot to infinity.
            coefficients = coefficients + np.clip(step, -2, 2)
            if np.abs(step).max() < 1e-9:
                break

        # Words of the reference differ from those of the hypothesis by deletions and insertions.
        words = sum(clip.words for clip in clips_with_words)
        length = sum(clip.reference_words for clip in clips_with_words) / words if words else 1.0
        missed = sum(clip.reference_words for clip in empty) / len(empty) if empty else 0.0
        usual = sum(clip.reference_words for clip in clips) / len(clips) if clips else 1.0
        return cls(float(coefficients[0]), float(coefficients[1]), length, missed or usual)

    def counts(self, clips: Sequence[HeardClip]) -> tuple[Floats, Floats]:
        """The expected errors and words of each recording, float64 [clips]."""
        # [clips]
        words = np.array([float(clip.words) for clip in clips])
        logits = np.array([_logit(clip.confidence or 0.0) for clip in clips])
        errors = _sigmoid(self.offset + self.slope * logits) * words
        empty = words == 0
        return np.where(empty, self.empty_words, errors), np.where(empty, self.empty_words, words * self.length)

    def wer(self, clips: Sequence[HeardClip]) -> float:
        """The estimated word error rate of recordings."""
        errors, words = self.counts(clips)
        return float(errors.sum() / max(words.sum(), 1e-9))


@dataclasses.dataclass(frozen=True)
class BackTest:
    """The accuracy of estimates of each slice of the test split from all others.

    Attributes:
      slices: (slicing, slice, estimated, actual) of each.
      mean_error: mean distance between estimated and actual, as a share of words.
      deviation: its root mean square.
    """

    slices: list[tuple[str, str, float, float]]
    mean_error: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class WerEstimate:
    """An estimated word error rate, with the interval that has it in 95 of 100 cases if the back-test is right."""

    value: float
    low: float
    high: float
    back_test: BackTest


def clip_of_result(result: UtteranceResult) -> HeardClip | None:
    """An utterance of an evaluation; None if that was made by an earlier release, without confidences."""
    if "confidence" not in result.details:
        return None

    errors, words = result.measured("wer")
    hypothesis = str(result.details["hypothesis"]).split()
    return HeardClip(len(hypothesis), result.details["confidence"], float(errors), float(words))


def back_test(clips: Sequence[HeardClip], slices: Sequence[Mapping[str, str]]) -> BackTest:
    """Estimates each slice with at least `MIN_SLICE` utterances from all utterances that are not in it.

    Args:
      slices: of each clip, the slice by the name of the slicing.
    """
    members: dict[tuple[str, str], list[int]] = {}
    for index, values_of_clip in enumerate(slices):
        for slicing, value in values_of_clip.items():
            members.setdefault((slicing, value), []).append(index)

    estimates = []
    for (slicing, value), inside in sorted(members.items()):
        # The curve must not have seen the slice, else the test would flatter it.
        left = set(range(len(clips))) - set(inside)
        words = sum(clips[index].reference_words for index in inside)
        if len(inside) >= MIN_SLICE and len(left) >= MIN_SLICE and words:
            curve = WerCurve.fit([clips[index] for index in sorted(left)])
            actual = sum(clips[index].errors for index in inside) / words
            estimates.append((slicing, value, curve.wer([clips[index] for index in inside]), actual))
    errors = np.array([estimated - actual for *_, estimated, actual in estimates])
    if not len(errors):
        return BackTest([], math.nan, math.nan)
    return BackTest(estimates, float(np.abs(errors).mean()), float(np.sqrt((errors**2).mean())))


def estimate_wer(
    judged: Sequence[HeardClip], slices: Sequence[Mapping[str, str]], new: Sequence[HeardClip], seed: int = 0
) -> WerEstimate:
    """Estimates the word error rate of new recordings.

    Args:
      judged: of the test split, with transcripts.
      slices: of these.
      new: at least one.
    """
    curve = WerCurve.fit(judged)
    tested = back_test(judged, slices)
    value = curve.wer(new)

    # Both samples are drawn again: the clips of the curve, and the new ones.
    random = np.random.default_rng(seed)
    resampled = [
        WerCurve.fit([judged[index] for index in random.integers(0, len(judged), len(judged))]).wer(
            [new[index] for index in random.integers(0, len(new), len(new))]
        )
        for _ in range(_RESAMPLES)
    ]

    # Two independent errors: of the sample, and of the curve on a slice that it has not seen.
    spread = math.hypot(float(np.std(resampled)), 0.0 if math.isnan(tested.deviation) else tested.deviation)
    return WerEstimate(value, max(value - _Z * spread, 0.0), value + _Z * spread, tested)


def _logit(confidence: float) -> float:
    # Bounds keep the logarithm finite at 0 and 1.
    inside = min(max(confidence, 1e-4), 1 - 1e-4)
    return math.log(inside / (1 - inside))


def _sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))
