"""The figures by which models are judged: what each is called, which way is better, and how it is written.

What each measures of a voice, and by which formula: docs/metrics.md.
"""

import dataclasses
import math
from typing import Any, Literal

from voxline.metrics.bootstrap import MetricKind


@dataclasses.dataclass(frozen=True)
class Metric:
    """One thing that is measured of every utterance.

    Attributes:
      name: its key in metrics.json, in run.json and in a config.
      title: as a person reads it.
      kind: what its interval is made by.
      better: which way it is better.
      unit: "%" for a share, else what stands behind the number; may be empty.
    """

    name: str
    title: str
    kind: MetricKind = "mean"
    better: Literal["lower", "higher"] = "lower"
    unit: str = ""

    @property
    def sign(self) -> int:
        """1 where a higher value is worse, -1 where it is better."""
        return 1 if self.better == "lower" else -1

    def shown(self, value: float | None) -> str:
        """A value of it.

        >>> CATALOG["wer"].shown(0.031), CATALOG["mcd"].shown(6.123), CATALOG["mcd"].shown(None)
        ('3.10%', '6.12 dB', '—')
        """
        if value is None or not math.isfinite(value):
            return "—"
        if self.unit == "%":
            return f"{value:.2%}"
        return f"{value:.3g} {self.unit}".rstrip()

    def range(self, interval: dict[str, Any]) -> str:
        """An interval as it stands in metrics.json; a bound that is not known is null there."""
        low, high = interval["low"], interval["high"]
        return "—" if low is None or high is None else f"{self.shown(low)} to {self.shown(high)}"

    def change(self, difference: float | None) -> str:
        """A difference of two values.

        >>> CATALOG["wer"].change(0.012), CATALOG["mcd"].change(-0.5)
        ('+1.20 points', '-0.5 dB')
        """
        if difference is None or not math.isfinite(difference):
            return "—"
        if self.unit == "%":
            return f"{100 * difference:+.2f} points"
        return f"{difference:+.3g} {self.unit}".rstrip()


ASR_METRICS = (
    Metric("wer", "word error rate", "rate", unit="%"),
    Metric("cer", "character error rate", "rate", unit="%"),
)

TTS_METRICS = (
    Metric("round_trip_wer", "words that the listener gets wrong", "rate", unit="%"),
    Metric("round_trip_cer", "characters that the listener gets wrong", "rate", unit="%"),
    Metric("mel_l1", "mel distance, teacher-forced"),
    Metric("mel_dtw", "mel distance, free-running, after time warping"),
    Metric("mcd", "mel cepstral distortion", unit="dB"),
    Metric("f0_rmse", "F0 error", unit="Hz"),
    Metric("f0_rmse_cents", "F0 error, in cents", unit="cents"),
    Metric("voicing_error", "frames voiced in one and not in the other", unit="%"),
    Metric("duration_ratio", "duration, spoken over recorded", unit="%"),
    Metric("duration_error", "duration off by", unit="%"),
    Metric("attention_diagonality", "attention near the diagonal", better="higher", unit="%"),
    Metric("attention_coverage", "symbols attended", better="higher", unit="%"),
    Metric("repeats", "repeats an utterance", "rate"),
    Metric("skips", "skips an utterance", "rate"),
    Metric("hit_limit", "utterances that ran into the step limit", "rate", unit="%"),
)

SPEED_METRICS = (Metric("rtf", "real-time factor"),)
"""Depends on the machine and its load: told, and held to a limit where a config asks for it; never compared."""

CATALOG = {figure.name: figure for figure in (*ASR_METRICS, *TTS_METRICS, *SPEED_METRICS)}

NOT_COMPARED = ("duration_ratio",)
"""Neither low nor high is good: `duration_error`, how far it is from 1, is what may be judged."""
