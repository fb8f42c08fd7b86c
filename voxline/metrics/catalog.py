"""The figures by which models are judged: what each is called, which way is better, and how it is written.

What each measures of a voice, and by which formula: docs/decisions/0034-judging-a-voice.md.
"""

import dataclasses
import math
from typing import Any, Literal

from voxline.metrics.bootstrap import Kind


@dataclasses.dataclass(frozen=True)
class Figure:
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
    kind: Kind = "mean"
    better: Literal["lower", "higher"] = "lower"
    unit: str = ""

    @property
    def sign(self) -> int:
        """1 where a higher value is worse, -1 where it is better."""
        return 1 if self.better == "lower" else -1

    def shown(self, value: float | None) -> str:
        """A value of it.

        >>> FIGURES["wer"].shown(0.031), FIGURES["mcd"].shown(6.123), FIGURES["mcd"].shown(None)
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

        >>> FIGURES["wer"].change(0.012), FIGURES["mcd"].change(-0.5)
        ('+1.20 points', '-0.5 dB')
        """
        if difference is None or not math.isfinite(difference):
            return "—"
        if self.unit == "%":
            return f"{100 * difference:+.2f} points"
        return f"{difference:+.3g} {self.unit}".rstrip()


RECOGNITION = (
    Figure("wer", "word error rate", "rate", unit="%"),
    Figure("cer", "character error rate", "rate", unit="%"),
)

SYNTHESIS = (
    Figure("round_trip_wer", "words that the listener gets wrong", "rate", unit="%"),
    Figure("round_trip_cer", "characters that the listener gets wrong", "rate", unit="%"),
    Figure("mel_l1", "mel distance, teacher-forced"),
    Figure("mel_dtw", "mel distance, free-running, after time warping"),
    Figure("mcd", "mel cepstral distortion", unit="dB"),
    Figure("f0_rmse", "F0 error", unit="Hz"),
    Figure("f0_rmse_cents", "F0 error, in cents", unit="cents"),
    Figure("voicing_error", "frames voiced in one and not in the other", unit="%"),
    Figure("duration_ratio", "duration, spoken over recorded", unit="%"),
    Figure("duration_error", "duration off by", unit="%"),
    Figure("attention_diagonality", "attention near the diagonal", better="higher", unit="%"),
    Figure("attention_coverage", "symbols attended", better="higher", unit="%"),
    Figure("repeats", "repeats an utterance", "rate"),
    Figure("skips", "skips an utterance", "rate"),
    Figure("hit_limit", "utterances that ran into the step limit", "rate", unit="%"),
)

MACHINE = (Figure("rtf", "real-time factor"),)
"""Depends on the machine and its load: told, and held to a limit where a config asks for it; never compared."""

FIGURES = {figure.name: figure for figure in (*RECOGNITION, *SYNTHESIS, *MACHINE)}

NOT_JUDGED = ("duration_ratio",)
"""Neither low nor high is good: `duration_error`, how far it is from 1, is what may be judged."""
