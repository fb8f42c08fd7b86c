"""The metrics of all model families: what each is called, which direction is better, and how it is written.

A metric is an entry here, or in `Family.metrics` of the family that computes it, and a value for each utterance in
`voxline/families/<family>/evaluate.py`; metrics.json, the report, the model card, the gate and the command then have
it. docs/extend/metric.md shows one being added. The formulas are in docs/metrics.md.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from voxline.errors import SettingsError, WorkError
from voxline.metrics.bootstrap import MetricKind
from voxline.plugins import FAMILIES, find_plugins, load_plugin

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
      comparable: False of a figure of the whole run, such as its speed: it has no value for each utterance, and is
        never compared between models.
      label: a short title for the terminal.
      setting: the setting that switches it on, for messages.
      optional: whether the terminal has no line for it where it was not measured.
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
    optional: bool = False

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
_PUBLIC = "evaluate.public_recognizer"
_SPEAKER = "evaluate.speaker_encoder"
_ACTIVITY = "evaluate.voice_activity"

_METRICS = (
    Metric("wer", "word error rate", ASR, "rate", unit="%", headline=True, label="word error rate"),
    # Of recognizers that write capitals and marks; see `evaluate.normalization`.
    Metric("wer_normalized", "word error rate, normalized", ASR, "rate", unit="%", headline=True, label="  normalized"),
    Metric("cer", "character error rate", ASR, "rate", unit="%", headline=True, label="character errors"),
    Metric(
        "cer_normalized", "character error rate, normalized", ASR, "rate", unit="%", headline=True,
        label="  normalized",
    ),
    Metric("substitution_rate", "substitutions per reference word", ASR, "rate", unit="%"),
    Metric("deletion_rate", "deletions per reference word", ASR, "rate", unit="%"),
    Metric("insertion_rate", "insertions per reference word", ASR, "rate", unit="%"),
    Metric("syllable_error_rate", "syllables wrong, whatever the tone (Mandarin)", ASR, "rate", unit="%"),
    Metric("tone_error_rate", "right syllables with a wrong tone (Mandarin)", ASR, "rate", unit="%"),
    Metric("sentence_error_rate", "utterances with an error", ASR, "rate", unit="%"),
    # Of utterances without a word, such as noise.
    Metric("silence_words", "words written into a minute without speech", ASR, "rate", unit="words/min"),
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
    Metric("public_wer", "word error rate by the public recognizer", TTS, "rate", unit="%", headline=True,
           label="public WER", setting=_PUBLIC, optional=True),
    # One that hears the recordings badly, too, says little by its own rate.
    Metric("public_wer_added", "word error rate by the public recognizer, beyond that of the recordings", TTS, unit="%",
           setting=_PUBLIC),
    # Of the own recognizer and the public one, whichever words were to be said.
    Metric("recognizer_agreement", "sentences that both recognizers write alike", TTS, better="higher", unit="%",
           headline=True, label="  both alike", setting=_PUBLIC, optional=True),
    Metric("recognizer_disagreement", "words that the recognizers write otherwise", TTS, "rate", unit="%",
           setting=_PUBLIC),
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
    # Ratios of means over utterances: what a voice may lose depends on how its speaker was recorded.
    Metric("dnsmos_share", "predicted opinion of listeners (DNSMOS), synthesized over recorded", TTS, better="higher",
           unit="%", setting=_MOS),
    Metric("f0_spread", "spread of F0, synthesized over recorded", TTS, better="higher", unit="%", setting=_F0),
    Metric("speaker_likeness", "likeness to the speaker's recordings (cosine)", TTS, better="higher", headline=True,
           label="likeness", setting=_SPEAKER, optional=True),
    Metric("speaker_likeness_share", "likeness to the speaker's recordings, synthesized over recorded", TTS,
           better="higher", unit="%", setting=_SPEAKER),
    Metric("same_speaker_rate", "utterances that are of their speaker", TTS, better="higher", unit="%",
           setting=_SPEAKER),
    Metric("speech_share", "share of time that is speech, synthesized over recorded", TTS, better="higher", unit="%",
           setting=_ACTIVITY),
    Metric("trailing_silence", "silence after the last speech", TTS, unit="s", setting=_ACTIVITY),
    Metric("trailing_silence_added", "silence after the last speech, beyond that of the recording", TTS, unit="s",
           setting=_ACTIVITY),
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
    Metric("wrong_length", "utterances that stop at once, or go on after their text", TTS, "rate", unit="%",
           label="wrong length"),
    Metric(
        "joined_wer", "word error rate of utterances joined with pauses", ASR, unit="%", headline=True,
        comparable=False, label="  joined", setting="evaluate.joined_seconds",
    ),
    Metric(
        "pause_words", "words written into a minute of pauses", ASR, unit="words/min", comparable=False,
        setting="evaluate.joined_seconds",
    ),
    Metric("rtf", "real-time factor", comparable=False, label="real-time factor"),
)  # fmt: skip


_VOXLINE = ""
"""The owner of the metrics above, which no family can remove."""


class UnknownMetricError(WorkError, KeyError):
    """No installed package registers the metric."""

    # `KeyError` prints the repr of its message, with quotes around it.
    __str__ = WorkError.__str__


class Catalog(Mapping[str, Metric]):
    """Metrics by name, in the order of reports: those above, and those that families declare.

    Every process that reads metrics.json has the same metrics: the first name that is not above, and any list of all
    metrics, reads the families that are installed.

    Every metric has owners: Voxline, or the families that declare it. It stays until the last of them is gone.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_name: dict[str, Metric] = {}
        self._owners: dict[str, set[str]] = {}
        self._has_families = False
        self._add(metrics, _VOXLINE)

    def register(self, metrics: Iterable[Metric], family: str) -> None:
        """Makes these the metrics of a family in this process, in place of those that it had.

        Two families may share a metric, by declaring equal ones.

        Raises:
          SettingsError: another family has another metric of the name of one of them. Nothing was changed.
        """
        # First the installed families, so that a clash with one of theirs is found here.
        self._read_families()
        self._add(metrics, family)

    def _add(self, metrics: Iterable[Metric], family: str) -> None:
        # An edited family may change a metric that it alone has.
        added = {metric.name: metric for metric in metrics}
        for name, metric in added.items():
            present = self._by_name.get(name, metric)
            if present != metric and self._owners[name] != {family}:
                raise SettingsError(
                    f"metric {name!r} ({metric.title}) of {_declared_by(metric)}: {_declared_by(present)} has another "
                    f"one of this name ({present.title}); give it a name that no other family uses"
                )
        self.unregister(family)
        self._by_name |= added
        for name in added:
            self._owners.setdefault(name, set()).add(family)

    def unregister(self, family: str) -> None:
        """Removes the metrics that a family alone has from this process."""
        for name, owners in list(self._owners.items()):
            owners.discard(family)
            if not owners:
                del self._owners[name]
                del self._by_name[name]

    def find(self, name: str) -> Metric | None:
        """A metric, for a view; None if no family that can be read registers it."""
        metrics = self.select([name])
        return metrics[0] if metrics else None

    def select(self, names: Iterable[str]) -> list[Metric]:
        """The metrics of these names, in the order of reports, for a view of runs or versions.

        A name that no family registers is left out, and so is one of a family that cannot be read: a faulty package
        must not hide the runs of other families. What judges models looks metrics up, and is refused.
        """
        chosen = frozenset(names)
        if not chosen <= self._by_name.keys():
            with contextlib.suppress(SettingsError):
                self._read_families()
        return [metric for metric in self._in_order() if metric.name in chosen]

    def _in_order(self) -> list[Metric]:
        # What depends on the machine comes last, after the metrics of families too.
        return sorted(self._by_name.values(), key=lambda metric: not metric.comparable)

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
        return iter([metric.name for metric in self._in_order()])

    def __len__(self) -> int:
        self._read_families()
        return len(self._by_name)

    def _read_families(self) -> None:
        if self._has_families:
            return
        # All are read before the first fault is raised, so that a faulty one hides no other from a view.
        faults = []
        for point in find_plugins(FAMILIES).values():
            try:
                family = load_plugin(point)
                self._add(family.metrics, family.name)
            except SettingsError as error:
                faults.append(error)

        # A family that cannot be imported, or whose metrics clash, is reported by each call.
        if faults:
            raise faults[0]
        self._has_families = True


def _declared_by(metric: Metric) -> str:
    return f"the family {' and '.join(metric.families)}" if metric.families else "Voxline"


CATALOG = Catalog(_METRICS)
"""Every metric by its name, in the order of reports."""


def family_metrics(family: str) -> list[Metric]:
    """The metrics of a family, in the order of reports."""
    return [metric for metric in CATALOG.values() if not metric.families or family in metric.families]


def headline_metrics(family: str) -> list[Metric]:
    """The metrics that sum up a model of a family, the most important first."""
    return [metric for metric in family_metrics(family) if metric.headline]
