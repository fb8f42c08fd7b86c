"""The files that evaluate writes and push reads: `metrics.json` of a test split, and a line for each utterance of it.

A line of `utterances.jsonl`:
  {"id": "1988-0001", "speaker": "1988", "duration": 3.2,
   "slices": {"speaker": "1988", "duration": "2-4 s"},
   "metrics": {"wer": [1, 5], "cer": [2, 21]}, "champion": {"wer": [0, 5], "cer": [0, 21]}, …}
A metric holds what this utterance adds to the sum and to the weight (`bootstrap.SumAndWeight`). `champion` holds the
same for the model in service, `anchor` for the anchor; null if there was none, or if the anchor is the model in
service. All further keys are a family's own, for people: texts, edits.

`metrics.json` is one schema for every family, `EvaluationInfo`; a family has types of its own for `details` and
`smoke_test` in it.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from voxline.errors import WorkError
from voxline.inference.model_info import ModelInfo
from voxline.metrics.bootstrap import Bootstrap, BootstrapInfo, Interval, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG
from voxline.store.files import atomic_write, read_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import iter_bounded_lines, open_regular
from voxline.store.versioned_json import FilePart, PartT, VersionedFile, parse_part, parse_versioned

METRICS_FILE = "metrics.json"
UTTERANCES_FILE = "utterances.jsonl"
PARENT_FILE = "parent_utterances.jsonl"
"""The results on the test split of a model's parent, which is there in the place of the champion. Only the gate reads
it; the registry keeps no copy."""
BEFORE_FILE = "before_utterances.jsonl"
"""The results of a model beside those of its untouched parent, which is there in the place of the champion. Like
`PARENT_FILE`, only the gate reads it. The slice `PART` is what they were measured on."""
PART = "part"
PROBE = "probe"
"""The part of a corpus that a person names (`evaluate.probe`); other parts are splits."""
REPORT_FILE = "report.html"
RTF = "rtf"
"""The real-time factor among the metrics: seconds of computing per second of speech."""
ONNX_WER = "onnx_wer"
"""The key of an utterance's errors and words by the model's ONNX graph, in its details."""
CLIP_FILE = "clip.wav"
CLIP_MELS_FILE = "clip.npy"
"""The mels of the smoke test, float32 [frames, mels]: of a voice those that it made, of a vocoder those it reads."""
VERDICT_SLOT = "verdict"
HISTORY_SLOT = "history"
"""Parts of the report that push fills in, as the one above."""
RUN_SLOT = "run"
RUN_DETAILS_SLOT = "run details"
"""Parts of the report that the run fills in, as the one above."""
Values = dict[str, SumAndWeight]
"""The share of an utterance in each metric, by name."""


class IntervalInfo(FilePart, forbid_unknown_fields=False):
    """An interval of a metric or of a difference.

    Attributes:
      low, high: None if nothing is known.
      over: what was resampled, "utterances" or "speakers".
      units: how many of them.
    """

    low: float | None
    high: float | None
    over: str
    units: int

    @classmethod
    def of(cls, interval: Interval) -> "IntervalInfo":
        # JSON has no infinity, which stands for "nothing is known": null takes its place.
        low = interval.low if math.isfinite(interval.low) else None
        high = interval.high if math.isfinite(interval.high) else None
        return cls(low=low, high=high, over=interval.over, units=interval.units)


# A figure of the whole run, such as its speed, has nothing to resample.
UNKNOWN_INTERVAL = IntervalInfo(low=None, high=None, over="utterances", units=0)


class ComparisonInfo(FilePart, forbid_unknown_fields=False):
    """A metric beside that of the model in service.

    Attributes:
      difference: the new model's value minus the champion's.
      interval: of the difference.
      probability_worse: share of resamples in which the new model is worse.
      measured: utterances, or speakers, that both models were measured on.
    """

    champion_value: float | None
    champion_interval: IntervalInfo
    difference: float | None
    interval: IntervalInfo
    probability_worse: float | None
    measured: int


class MetricInfo(FilePart, forbid_unknown_fields=False):
    """A metric over some utterances.

    Attributes:
      value: None if it was measured on none of them.
      measured: utterances that it was measured on.
      comparison: None without a model in service.
    """

    value: float | None
    measured: int
    interval: IntervalInfo
    comparison: ComparisonInfo | None


class BaselineInfo(FilePart, forbid_unknown_fields=False):
    """A metric of a baseline, such as Griffin-Lim.

    Attributes:
      difference: the model's value minus the baseline's, paired by utterance.
      interval: of the difference.
    """

    value: float | None
    difference: float | None
    interval: IntervalInfo


class SummaryInfo(FilePart, forbid_unknown_fields=False):
    """The metrics over the utterances of a slice.

    Attributes:
      seconds: of speech.
      metrics: by name.
    """

    utterances: int
    seconds: float
    metrics: dict[str, MetricInfo]


class EvaluatedModel(FilePart, forbid_unknown_fields=False):
    """The model that was evaluated.

    Attributes:
      name: in the registry.
      about: its `model.json`.
      dataset: the published version that it was trained on, such as digits@7; empty if that is not known.
    """

    digest: str
    name: str
    about: ModelInfo
    dataset: str = ""


class EvaluatedSplit(FilePart, forbid_unknown_fields=False):
    """The utterances that a model was evaluated on.

    Attributes:
      split: "test" or "dev".
      speakers: known ones.
      also_in_train: utterances whose sentence train contains too.
      dataset: the published version that they are of, such as digits@7; empty of a corpus.
    """

    split: str
    fingerprint: str
    speakers: int
    also_in_train: int
    dataset: str = ""


class SplitCounts(FilePart, forbid_unknown_fields=False):
    """The size of a split of the corpus; `seconds` of speech, known speakers."""

    utterances: int
    seconds: float
    speakers: int


class RegisteredModel(FilePart, forbid_unknown_fields=False):
    """A version in the registry, as the evaluation of another model names it."""

    name: str
    version: int
    digest: str


class ParentInfo(FilePart, forbid_unknown_fields=False):
    """The model that this one started from, and the metrics of both on its test split.

    Attributes:
      version: None of a parent that was in no registry.
      dataset: key of the parent's dataset; empty of a file of published weights.
      utterances: measured ones.
      listed: how many the test split has.
      missing: why some or all were not measured.
      metrics: of this model, with the parent in the place of the champion.
    """

    name: str
    version: int | None
    digest: str
    dataset: str
    label: str
    utterances: int
    listed: int
    missing: str
    metrics: dict[str, MetricInfo]


class ProbeInfo(FilePart, forbid_unknown_fields=False):
    """The corpus that a person names to see what a model forgot.

    Attributes:
      location: of its manifest.
      listed: its utterances.
      fingerprint: of those that were measured.
      missing: why some were left out; empty if none was.
    """

    location: str
    listed: int
    fingerprint: str
    missing: str = ""


class BeforeInfo(FilePart, forbid_unknown_fields=False):
    """The model that this one started from, as it came, and the metrics of both.

    Attributes:
      version: in the registry; None of a public model that is in none.
      label, revision, licence: as of `Ancestor`.
      published: whether it is a public model, which must be measured; another one is measured on a probe alone.
      transcribes: whether it works without tuning. Whisper's encoder, under CTC, has no output layer for that.
      missing: why it was not measured; empty if it was.
      parts: metrics of this model, with the untouched parent in the place of the champion: by split, and of `PROBE`.
    """

    name: str
    version: int | None
    digest: str
    label: str
    revision: str = ""
    licence: str = ""
    published: bool = True
    transcribes: bool = True
    missing: str = ""
    parts: dict[str, SummaryInfo] = msgspec.field(default_factory=dict)
    probe: ProbeInfo | None = None


class OnnxDifference(FilePart, forbid_unknown_fields=False):
    """A text that a recognizer's graph writes otherwise than the SavedModel does."""

    id: str
    saved_model: str
    onnx: str


class OnnxInfo(FilePart, forbid_unknown_fields=False):
    """A model's ONNX graph beside its SavedModel.

    Attributes:
      rtf: seconds of computing per second of speech; None: not measured.
      precision: of its weights, "float32" or "int8".
      largest: of a graph that makes mels or waveforms: the largest difference, which is that of the utterance `id`.
      unit, limit: of `largest`.
      count: of a recognizer's graph: the number of other texts.
      different: the first of these.
      lookahead_ms, chunk_ms, algorithmic_ms: of a streaming graph; see `Latency`.
    """

    lookahead_ms: float | None = None
    chunk_ms: float | None = None
    algorithmic_ms: float | None = None
    rtf: float | None = None
    precision: str = ""
    largest: float | None = None
    id: str = ""
    unit: str = ""
    limit: float = 0.0
    count: int | None = None
    different: list[OnnxDifference] | None = None


class FamilyDetails(FilePart, forbid_unknown_fields=False):
    """The keys of `details` in `metrics.json` that all families share; each has a subclass with its own.

    Attributes:
      onnx: None of a model without an ONNX graph.
      streaming: of the ONNX graph for speech that arrives.
    """

    onnx: OnnxInfo | None = None
    streaming: OnnxInfo | None = None


DetailsT = TypeVar("DetailsT", bound=FamilyDetails)
SmokeTestT = TypeVar("SmokeTestT", bound=FilePart)


class EvaluationInfo(VersionedFile, forbid_unknown_fields=False):
    """The contents of `metrics.json`.

    Attributes:
      key: of the evaluation.
      bootstrap: the resampling behind the intervals.
      utterances, seconds, metrics: over the whole split; see `SummaryInfo`.
      slices: by slicing, and by the name of the slice.
      data: by split.
      champion: the model in service; None without one.
      anchor: the second version to compare with; None without one.
      parent: None of a model trained from random weights.
      before: the untouched parent; None of a model from random weights, and of one from another model of ours where no
        probe is named.
      auxiliary_models: what the family named; None of one that the settings leave out.
      details: the family's own; `Evaluation.details` reads them.
      smoke_test: what a fresh process must repeat; None after a purge of its utterance.
      settings: of evaluate.
      revision: of evaluate; 0: of a release that did not say.
    """

    REMEDY: ClassVar[str] = "run evaluate again"

    family: str
    key: str
    bootstrap: BootstrapInfo
    utterances: int
    seconds: float
    metrics: dict[str, MetricInfo]
    slices: dict[str, dict[str, SummaryInfo]]
    model: EvaluatedModel
    test: EvaluatedSplit
    data: dict[str, SplitCounts]
    champion: RegisteredModel | None
    anchor: RegisteredModel | None
    parent: ParentInfo | None
    auxiliary_models: dict[str, RegisteredModel | None]
    details: dict[str, Any]
    smoke_test: dict[str, Any] | None
    settings: dict[str, Any]
    before: BeforeInfo | None = None
    revision: int = 0

    def measured(self, metric: str) -> MetricInfo:
        """A metric over the whole split.

        Raises:
          KeyError: the model was not measured by it.
        """
        return self.metrics[metric]

    def family_details(self, kind: type[DetailsT]) -> DetailsT:
        """The family's own part.

        Args:
          kind: `FamilyDetails`, or the family's class for it.

        Raises:
          WorkError: a key is absent or has a value of another type; naming it.
        """
        return parse_part(self.details, kind, f"{METRICS_FILE}: details", self.REMEDY)


@dataclasses.dataclass(frozen=True, slots=True)
class UtteranceResult:
    """One utterance, as a model did on it.

    Attributes:
      duration: seconds.
      slices: the slice that it belongs to, by the name of the slicing.
      metrics: by name.
      champion: the same for the model in service.
      details: further keys of the line.
      anchor: the metrics of the anchor.
    """

    id: str
    speaker: str
    duration: float
    slices: dict[str, str]
    metrics: dict[str, SumAndWeight]
    champion: dict[str, SumAndWeight] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    anchor: Values | None = None

    def measured(self, metric: str) -> SumAndWeight:
        """What this utterance adds to a metric.

        Raises:
          KeyError: the model was not measured by it.
        """
        return self.metrics[metric]

    def to_line(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "details"}
        return {**values, **self.details}

    @classmethod
    def from_line(cls, values: dict[str, Any]) -> "UtteranceResult":
        # All keys that are no field are the family's own.
        fields = {field.name for field in dataclasses.fields(cls)}
        champion = values["champion"]
        anchor = values.get("anchor")
        where = f"utterance {values['id']!r}"
        if not _is_number(values["duration"]):
            raise ValueError(f"{where}: duration {values['duration']!r} is not a number of seconds")
        texts = (values["id"], values["speaker"], *_mapping(values["slices"], f"{where}: slices").values())
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{where}: the id, the speaker and the slices are texts, not {texts!r}")
        return cls(
            **{name: values[name] for name in ("id", "speaker", "duration", "slices")},
            metrics=_metrics_from_line(values["metrics"], where),
            champion=None if champion is None else _metrics_from_line(champion, where),
            details={name: value for name, value in values.items() if name not in fields},
            anchor=None if anchor is None else _metrics_from_line(anchor, where),
        )


def _metrics_from_line(metrics: Any, where: str) -> dict[str, SumAndWeight]:
    for name, value in _mapping(metrics, f"{where}: metrics").items():
        if not (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))):
            raise ValueError(f"{where}: metric {name!r} {value!r} is not a pair of numbers, a sum and a weight")
    return {name: SumAndWeight(*value) for name, value in metrics.items()}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{where} {value!r} is not a mapping")
    return value


def _is_number(value: Any) -> bool:
    # To Python True is an int, and `json` reads NaN and integers that no float holds.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An exported model, measured on one test split.

    Attributes:
      folder: evaluate's output.
      info: the contents of `metrics.json`.
      results: in the order of the manifest.
    """

    folder: Path
    info: EvaluationInfo
    results: list[UtteranceResult]

    @classmethod
    def read(cls, folder: Path | str) -> "Evaluation":
        """Reads evaluate's output, or its copy in a version of the registry.

        Raises:
          WorkError: it is missing or damaged.
        """
        folder = Path(folder).absolute()
        # The report and the clips may be absent: nothing is computed from them.
        missing = [name for name in (METRICS_FILE, UTTERANCES_FILE) if not (folder / name).is_file()]
        if missing:
            raise WorkError(f"{folder}: no {' and no '.join(missing)}, so not an evaluation; run evaluate first")
        try:
            info = parse_versioned(read_json(folder / METRICS_FILE), EvaluationInfo, folder / METRICS_FILE)

            # Both files are written by one step: another number of lines means that one was cut or exchanged.
            results = _read_results(folder / UTTERANCES_FILE)
            if not results or len(results) != info.utterances:
                raise ValueError(f"{len(results)} of {info.utterances} utterances")
            return cls(folder, info, results)
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{folder}: damaged ({type(error).__name__}: {error}); run evaluate again") from None

    def parent_results(self) -> list[UtteranceResult]:
        """The results on the test split of the model's parent; [] without a parent, and in the registry.

        Raises:
          WorkError: they are damaged.
        """
        return self._further_results(PARENT_FILE)

    def before_results(self, part: str) -> list[UtteranceResult]:
        """The results beside the untouched parent on a split or on the probe; [] if it was not measured there.

        Raises:
          WorkError: they are damaged.
        """
        return group_by_slice(self._further_results(BEFORE_FILE), PART).get(part, [])

    def _further_results(self, name: str) -> list[UtteranceResult]:
        file = self.folder / name
        try:
            return _read_results(file) if file.is_file() else []
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{file}: damaged ({type(error).__name__}: {error}); run evaluate again") from None

    def check_figures(self) -> None:
        """Computes the figures of `metrics.json` again, from what each utterance adds to them.

        Not the intervals: the gate resamples for itself. Nor figures of a whole run, such as the real-time factor.

        Raises:
          WorkError: a figure is another one, or one is absent; naming it, and both values.
        """
        # The whole split, each slice, and the test of the parent, each from its own lines.
        info = self.info
        wrong = _wrong_figures(info.utterances, info.metrics, self.results)
        for slicing, slices in info.slices.items():
            groups = group_by_slice(self.results, slicing)
            for name, summary in slices.items():
                faults = _wrong_figures(summary.utterances, summary.metrics, groups.get(name, []))
                wrong += [f"{slicing} {name}, {fault}" for fault in faults]
        if parent := info.parent:
            faults = _wrong_figures(parent.utterances, parent.metrics, self.parent_results())
            wrong += [f"the parent's test, {fault}" for fault in faults]
        for part, summary in (info.before.parts if info.before else {}).items():
            faults = _wrong_figures(summary.utterances, summary.metrics, self.before_results(part))
            wrong += [f"before and after, {part}, {fault}" for fault in faults]
        if wrong:
            raise WorkError(
                f"{self.folder / METRICS_FILE}: its figures are not those of {UTTERANCES_FILE} beside it: "
                f"{'; '.join(wrong[:3])}; nothing is judged by them, run evaluate again (--force evaluate)"
            )

    def content_digest(self) -> str:
        """The hash of what the gate judges by: metrics, utterances, and the results beside a parent."""
        # Not the report, whose slots push fills in afterwards.
        names = (METRICS_FILE, UTTERANCES_FILE, PARENT_FILE, BEFORE_FILE)
        return hash_value([[name, hash_file(self.folder / name)] for name in names if (self.folder / name).is_file()])

    def details(self, kind: type[DetailsT]) -> DetailsT:
        """The family's own part of `metrics.json`.

        Args:
          kind: `FamilyDetails`, or the family's class for it.

        Raises:
          WorkError: a key is absent or has a value of another type; naming it.
        """
        return self._convert(self.info.details, kind, "details")

    def smoke_test(self, kind: type[SmokeTestT]) -> SmokeTestT:
        """The output that a fresh process must repeat, and its input.

        Args:
          kind: the family's class for it.

        Raises:
          WorkError: a key is absent or has a value of another type, or a purge removed the utterance.
        """
        return self._convert(self.info.smoke_test, kind, "smoke_test")

    def _convert(self, values: Any, kind: type[PartT], key: str) -> PartT:
        return parse_part(values, kind, f"{self.folder / METRICS_FILE}: {key}", EvaluationInfo.REMEDY)

    @property
    def digest(self) -> str:
        """The digest of the model that was evaluated."""
        return self.info.model.digest

    @property
    def model_info(self) -> ModelInfo:
        """`model.json` of the model that was evaluated."""
        return self.info.model.about

    @property
    def champion_digest(self) -> str | None:
        """The digest of the model that it was compared with."""
        champion = self.info.champion
        return None if champion is None else champion.digest

    @property
    def test_fingerprint(self) -> str:
        return self.info.test.fingerprint

    def value(self, name: str) -> float | None:
        """A metric over all utterances; None if it was not measured."""
        return self.info.metrics[name].value if name in self.info.metrics else None

    def values(self) -> dict[str, float]:
        """Every metric that was measured, over all utterances."""
        return {name: metric.value for name, metric in self.info.metrics.items() if metric.value is not None}

    def bootstrap(self, confidence: float) -> Bootstrap:
        """The resampling that evaluate used, at another confidence."""
        stated = self.info.bootstrap
        return Bootstrap(confidence, stated.samples, stated.seed, stated.min_speakers)


def _read_results(file: Path) -> list[UtteranceResult]:
    with open_regular(file) as lines:
        return [UtteranceResult.from_line(json.loads(line)) for _, line in iter_bounded_lines(lines, file)]


def _wrong_figures(utterances: int, metrics: Mapping[str, MetricInfo], results: Sequence[UtteranceResult]) -> list[str]:
    """The figures of a summary that do not follow from the results, each with both values."""
    wrong = []
    if utterances != len(results):
        wrong.append(f"utterances {utterances:,}, and {len(results):,} are there")

    # A parent whose test split could not be measured has neither utterances nor metrics.
    if not results or (not utterances and not metrics):
        return wrong

    champions = [result.champion for result in results if result.champion is not None]
    # Every metric that the utterances have must be stated, and they must have each that is. Speed is of the whole run.
    for name in [
        name for name in CATALOG if name in results[0].metrics or (name in metrics and CATALOG[name].comparable)
    ]:
        metric = CATALOG[name]
        if name not in metrics:
            wrong.append(f"{metric.title} is absent")
            continue
        lacking = [
            result.id
            for result in results
            if name not in result.metrics or (result.champion is not None and name not in result.champion)
        ]
        if lacking:
            wrong.append(f"{metric.title} is absent in the line of utterance {lacking[0]!r}")
            continue

        stated = metrics[name]
        compared = stated.comparison
        figures = [
            ("", stated.value, [result.metrics[name] for result in results]),
            (
                " of the model in service",
                compared.champion_value if compared else None,
                [champion[name] for champion in champions],
            ),
        ]
        for role, value, shares in figures:
            computed = aggregate(shares, metric.kind) if shares else None
            if not _same_figure(value, computed):
                wrong.append(f"{metric.title}{role} {metric.format(value)}, computed {metric.format(computed)}")
    return wrong


def _same_figure(stated: float | None, computed: float | None) -> bool:
    if stated is None or computed is None:
        return stated is computed
    # Another release of NumPy may add up in another order.
    return math.isclose(stated, computed, rel_tol=1e-9, abs_tol=1e-12)


def write_results(path: Path, results: Iterable[UtteranceResult]) -> None:
    with atomic_write(path, "w") as file:
        # JSON has no NaN, and readers in other languages refuse it.
        for result in results:
            file.write(json.dumps(result.to_line(), ensure_ascii=False, allow_nan=False) + "\n")


def group_by_slice(results: Sequence[UtteranceResult], name: str) -> dict[str, list[UtteranceResult]]:
    """The results of each slice of a slicing, in the order in which the slices first appear."""
    groups: dict[str, list[UtteranceResult]] = {}
    for result in results:
        if name in result.slices:
            groups.setdefault(result.slices[name], []).append(result)
    return groups
