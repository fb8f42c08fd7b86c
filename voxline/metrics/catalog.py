"""The metrics of all model families: what each is called, which direction is better, and how it is written.

A metric is an entry here and a value for each utterance in `components/evaluate/<family>`; metrics.json, the report,
the model card, the gate and the command then have it. docs/extend/metric.md shows one being added. The formulas of the
TTS metrics are in docs/decisions/0017-how-tts-is-judged.md.
"""

import dataclasses
import math
from typing import Any, Literal

from voxline.metrics.bootstrap import MetricKind

ASR = ("asr",)
TTS = ("tts",)
VOCODER = ("vocoder",)
INTENTS = ("intents",)
SPEECH = TTS + VOCODER


@dataclasses.dataclass(frozen=True)
class Metric:
    """One property measured on every utterance.

    Attributes:
      name: its key in metrics.json, run.json and a config.
      title: for reports.
      families: the model families that are measured by it.
      kind: how its interval is computed; see `bootstrap`.
      better: the better direction. "neither" cannot be gated on.
      unit: "%" for a share, otherwise written after the number.
      headline: shown first, and with its interval at the end of a run.
      comparable: False if it depends on the machine, not on the model alone; it is never compared between models.
      label: a short title for the terminal.
      setting: the setting that switches it on, for messages.
    """

    name: str
    title: str
    families: tuple[str, ...]
    kind: MetricKind = "mean"
    better: Literal["lower", "higher", "neither"] = "lower"
    unit: str = ""
    headline: bool = False
    comparable: bool = True
    label: str = ""
    setting: str = ""

    @property
    def sign(self) -> int:
        """1 if a higher value is worse, -1 if it is better."""
        return -1 if self.better == "higher" else 1

    def format(self, value: float | None) -> str:
        """Writes a value.

        >>> CATALOG["wer"].format(0.031), CATALOG["mcd"].format(6.123), CATALOG["mcd"].format(None)
        ('3.10%', '6.12 dB', '—')
        """
        if value is None or not math.isfinite(value):
            return "—"
        if self.unit == "%":
            return f"{value:.2%}"
        return f"{value:.3g} {self.unit}".rstrip()

    def format_interval(self, interval: dict[str, Any]) -> str:
        """Writes an interval of metrics.json, in which an unknown bound is null."""
        low = interval["low"]
        high = interval["high"]
        return "—" if low is None or high is None else f"{self.format(low)} to {self.format(high)}"

    def format_difference(self, difference: float | None) -> str:
        """Writes the difference of two values.

        >>> CATALOG["wer"].format_difference(0.012), CATALOG["mcd"].format_difference(-0.5)
        ('+1.20 points', '-0.5 dB')
        """
        if difference is None or not math.isfinite(difference):
            return "—"
        if self.unit == "%":
            return f"{100 * difference:+.2f} points"
        return f"{difference:+.3g} {self.unit}".rstrip()


_ROUND_TRIP = "evaluate.round_trip_recognizer"
_F0 = "evaluate.f0_utterances"
_MOS = "evaluate.mos_utterances"

_METRICS = (
    Metric("wer", "word error rate", ASR, "rate", unit="%", headline=True, label="word error rate"),
    Metric("cer", "character error rate", ASR, "rate", unit="%", headline=True, label="character errors"),
    Metric("substitution_rate", "substitutions per reference word", ASR, "rate", unit="%"),
    Metric("deletion_rate", "deletions per reference word", ASR, "rate", unit="%"),
    Metric("insertion_rate", "insertions per reference word", ASR, "rate", unit="%"),
    Metric("syllable_error_rate", "syllables wrong, whatever the tone (Mandarin)", ASR, "rate", unit="%"),
    Metric("tone_error_rate", "right syllables with a wrong tone (Mandarin)", ASR, "rate", unit="%"),
    Metric("sentence_error_rate", "utterances with an error", ASR, "rate", unit="%"),
    Metric("ctc_loss", "CTC loss of an utterance", ASR, unit="nats"),
    Metric(
        "intent_error_rate", "intent error rate of what was heard", ASR + INTENTS, "rate", unit="%", headline=True,
        label="intents wrong",
    ),
    Metric(
        "text_intent_error_rate", "intent error rate of the reference texts", INTENTS, "rate", unit="%", headline=True,
        label="of the texts",
    ),
    Metric("log_stft", "log-STFT distance", VOCODER, unit="dB", headline=True, label="log-STFT distance"),
    Metric(
        "log_stft_reduction", "log-STFT distance less than Griffin-Lim's", VOCODER, better="higher", unit="%",
        headline=True, label="less than Griffin-Lim's",
    ),
    Metric("spectral_convergence", "spectral convergence", VOCODER),
    Metric("mel_distance", "mel distance", VOCODER, unit="dB"),
    Metric("estoi", "intelligibility (ESTOI)", VOCODER, better="higher"),
    Metric("estoi_gain", "intelligibility (ESTOI) above Griffin-Lim's", VOCODER, better="higher"),
    Metric(
        "round_trip_wer", "round-trip word error rate", SPEECH, "rate", unit="%", headline=True, label="round-trip WER",
        setting=_ROUND_TRIP,
    ),
    Metric("round_trip_cer", "round-trip character error rate", SPEECH, "rate", unit="%", setting=_ROUND_TRIP),
    Metric("round_trip_syllable_error_rate", "round-trip syllables wrong, whatever the tone (Mandarin)", TTS, "rate",
           unit="%", setting=_ROUND_TRIP),
    Metric("round_trip_tone_error_rate", "round-trip right syllables with a wrong tone (Mandarin)", TTS, "rate",
           unit="%", setting=_ROUND_TRIP),
    Metric("mel_l1", "mel distance, teacher-forced", TTS),
    Metric("mel_dtw", "mel distance, autoregressive, along the DTW path", TTS),
    Metric("mcd", "mel cepstral distortion", TTS, unit="dB", headline=True, label="distortion"),
    # More than the recording has is no merit; `mcd` tells detail from noise.
    Metric("sharpness", "sharpness of mels across bins, synthesized over recorded", TTS, better="higher", unit="%"),
    Metric("change_over_time", "change of mels over time, synthesized over recorded", TTS, better="higher", unit="%"),
    Metric("f0_rmse", "F0 error", SPEECH, unit="Hz", setting=_F0),
    Metric("f0_rmse_cents", "F0 error, in cents", SPEECH, unit="cents", setting=_F0),
    Metric("voicing_error", "frames voiced in only one of the two", SPEECH, unit="%", setting=_F0),
    Metric("dnsmos", "predicted opinion of listeners (DNSMOS, 1 to 5)", SPEECH, better="higher", setting=_MOS),
    # Neither a low nor a high ratio is good; its distance from 1 is what the gate may judge.
    Metric("duration_ratio", "duration, synthesized over recorded", TTS, better="neither", unit="%"),
    Metric("duration_error", "duration error", TTS, unit="%"),
    Metric(
        "attention_diagonality", "attention near the diagonal", TTS, better="higher", unit="%", headline=True,
        label="diagonality",
    ),
    Metric("attention_coverage", "symbols attended", TTS, better="higher", unit="%"),
    Metric("repeats", "repeats per utterance", TTS, "rate"),
    Metric("skips", "skips per utterance", TTS, "rate"),
    Metric("hit_limit", "utterances cut off at the step limit", TTS, "rate", unit="%", headline=True, label="cut off"),
    Metric("rtf", "real-time factor", (*ASR, *SPEECH, *INTENTS), comparable=False, label="real-time factor"),
)  # fmt: skip

CATALOG = {metric.name: metric for metric in _METRICS}
"""Every metric by its name, in the order of reports."""


def family_metrics(family: str) -> list[Metric]:
    """The metrics of a family, in the order of reports."""
    return [metric for metric in CATALOG.values() if family in metric.families]


def headline_metrics(family: str) -> list[Metric]:
    """The metrics that sum up a model of a family, the most important first."""
    return [metric for metric in family_metrics(family) if metric.headline]
