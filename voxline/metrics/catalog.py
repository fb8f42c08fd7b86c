"""The metrics of all model families: what each is called, which direction is better, and how it is written.

A metric is an entry here, or in `Family.metrics` of the family that computes it, and a value for each utterance in
`voxline/families/<family>/evaluate.py`; metrics.json, the report, the model card, the gate and the command then have
it. docs/extend/metric.md shows one being added. The formulas are in docs/metrics.md.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from voxline.errors import SettingsError, WorkError
from voxline.metrics.bootstrap import MetricKind
from voxline.plugins import FAMILIES, load_plugins

ASR = ("asr",)
TTS = ("tts",)
VOCODER = ("vocoder",)
SPEECH = TTS + VOCODER


@dataclasses.dataclass(frozen=True)
class Metric:
    """One property measured on every utterance.

    Attributes:
      name: its key in metrics.json, run.json and a config.
      title: for reports.
      families: the model families that are measured by it; empty: all of them.
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
    families: tuple[str, ...] = ()
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
        # A mean over no utterance is not a number; JSON has null for it.
        if value is None or not math.isfinite(value):
            return "—"
        if self.unit == "%":
            return f"{value:.2%}"
        return f"{value:.3g} {self.unit}".rstrip()

    def format_range(self, low: float | None, high: float | None) -> str:
        """Writes the ends of an interval; None is an unknown end."""
        return "—" if low is None or high is None else f"{self.format(low)} to {self.format(high)}"

    def format_difference(self, difference: float | None) -> str:
        """Writes the difference of two values.

        >>> CATALOG["wer"].format_difference(0.012), CATALOG["mcd"].format_difference(-0.5)
        ('+1.20 points', '-0.5 dB')
        """
        # Two shares differ by percentage points: "1.2%" could also mean relative.
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
    Metric("rtf", "real-time factor", comparable=False, label="real-time factor"),
)  # fmt: skip


class UnknownMetricError(WorkError, KeyError):
    """No installed package registers the metric."""

    # `KeyError` prints the repr of its message, with quotes around it.
    __str__ = WorkError.__str__


class Catalog(Mapping[str, Metric]):
    """Metrics by name, in the order of reports: those above, and those that families declare.

    Every process that reads metrics.json has the same metrics: the first name that is not above, and any list of all
    metrics, reads the families that are installed.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_name: dict[str, Metric] = {}
        self._has_families = False
        self._add(metrics)

    def register(self, metrics: Iterable[Metric]) -> None:
        """Adds metrics in this process; one that is already there, and equal, is left alone.

        Raises:
          SettingsError: another metric has the name of one of them. None was added.
        """
        # First the installed families, so that a clash with one of theirs is found here.
        self._read_families()
        self._add(metrics)

    def _add(self, metrics: Iterable[Metric]) -> None:
        # Two families may share a metric, by declaring equal ones.
        added = {metric.name: metric for metric in metrics}
        for name, metric in added.items():
            present = self._by_name.get(name, metric)
            if present != metric:
                raise SettingsError(
                    f"metric {name!r} ({metric.title}) of {_owners(metric)}: {_owners(present)} has another one of "
                    f"this name ({present.title}); give it a name that no other family uses"
                )
        self._by_name |= added

    def unregister(self, metrics: Iterable[Metric]) -> None:
        """Removes metrics from this process."""
        for metric in metrics:
            self._by_name.pop(metric.name, None)

    def __getitem__(self, name: str) -> Metric:
        # The metrics above need no search through the installed packages, which takes a third of a second.
        if name not in self._by_name:
            self._read_families()
        if name not in self._by_name:
            raise UnknownMetricError(
                f"metric {name!r}, which no installed package registers; install the package of the family that was "
                f"measured by it; registered: {', '.join(self)}"
            )
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        self._read_families()
        # What depends on the machine comes last, after the metrics of families too.
        return iter(sorted(self._by_name, key=lambda name: not self._by_name[name].comparable))

    def __len__(self) -> int:
        self._read_families()
        return len(self._by_name)

    def _read_families(self) -> None:
        if self._has_families:
            return
        for family in load_plugins(FAMILIES).values():
            self._add(family.metrics)

        # Only now: a family that cannot be imported, or whose metrics clash, is reported by each call.
        self._has_families = True


def _owners(metric: Metric) -> str:
    return f"the family {' and '.join(metric.families)}" if metric.families else "Voxline"


CATALOG = Catalog(_METRICS)
"""Every metric by its name, in the order of reports."""


def family_metrics(family: str) -> list[Metric]:
    """The metrics of a family, in the order of reports."""
    return [metric for metric in CATALOG.values() if not metric.families or family in metric.families]


def headline_metrics(family: str) -> list[Metric]:
    """The metrics that sum up a model of a family, the most important first."""
    return [metric for metric in family_metrics(family) if metric.headline]
