"""The models that evaluate measures, what it measures of each, and the slices of a test split."""

import abc
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.inference.onnx_model import ONNX_FILE, Engine
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.metrics.bootstrap import Bootstrap, aggregate
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import (
    BaselineInfo,
    DetailsT,
    EvaluationInfo,
    FamilyDetails,
    IntervalInfo,
    OnnxInfo,
    RegisteredModel,
    SplitCounts,
    UtteranceResult,
    Values,
)
from voxline.progress import print_status
from voxline.store.versioned_json import FilePart

if TYPE_CHECKING:
    from voxline.report import Block

ModelT = TypeVar("ModelT")
"""A model, loaded: a recognizer, a synthesizer."""
RecordT = TypeVar("RecordT")
"""One utterance, as a model did on it, with more than the metrics have."""

SLICES = "Slices"
"""The heading of the shared section. A family puts (SLICES, []) among its own where that section is to be."""

Slicing = Callable[[Utterance], tuple[Any, str]]
"""An utterance → a key to sort slices by, and the name of its slice."""


@dataclasses.dataclass(frozen=True)
class TestSplit:
    """The utterances to measure on, and what the manifest has beside them.

    Attributes:
      seen: the sentences of the split that train contains too.
      data: the size of every split.
    """

    utterances: Sequence[Utterance]
    seen: frozenset[str]
    data: dict[str, SplitCounts]


@dataclasses.dataclass(frozen=True)
class EvaluationJob:
    """A model to measure.

    Attributes:
      model: the exported model's folder.
      output: the folder for the clip of the smoke test.
      slices: of each utterance, by the name of the slicing.
      champion: the model in service, if any, to measure on the same utterances.
      auxiliary_models: those that the family named.
      settings: of the family.
      anchor: a further version to measure on the same utterances; None if there is none, or if it is the champion.
      anchor_values: id → metrics of the anchor, if it was measured on these utterances before; else None.
    """

    model: Path
    output: Path
    utterances: Sequence[Utterance]
    slices: Sequence[dict[str, str]]
    champion: ModelVersion | None
    auxiliary_models: Mapping[str, ModelVersion | None]
    settings: Any
    anchor: ModelVersion | None = None
    anchor_values: Mapping[str, Values] | None = None

    @property
    def auxiliary_info(self) -> dict[str, RegisteredModel | None]:
        """The auxiliary models, as metrics.json names them."""
        return {name: version.info if version else None for name, version in self.auxiliary_models.items()}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model that is measured: the new one, or a version that it is compared with.

    Attributes:
      unit: the plural that the progress line counts, such as "utterances transcribed by the anchor".
      version: in the registry; None of the new model.
      role: of the version: "the model in service", "the anchor".
    """

    unit: str
    version: ModelVersion | None = None
    role: str = "the new model"

    @property
    def is_new(self) -> bool:
        return self.version is None

    @property
    def label(self) -> str:
        """Names it in messages.

        >>> Candidate("utterances", ModelVersion("digits", 3, "9f", Path("digits/3")), "the anchor").label
        'version 3 of digits, the anchor'
        """
        return f"{self.version.label}, {self.role}" if self.version else self.role


@dataclasses.dataclass(frozen=True)
class MeasuredModel(Generic[RecordT]):
    """A model, measured on every utterance of a job, in their order.

    Attributes:
      values: what each utterance adds to each metric.
      rtf: seconds of computing per second of speech; None: not measured.
      details: further keys of each utterance's line, if this is the new model.
      champion_details: further keys of each utterance's line, if this is the model in service.
      records: the family's own, for its details, report and smoke test.
    """

    values: Sequence[Values]
    rtf: float | None = None
    details: Sequence[dict[str, Any]] = ()
    champion_details: Sequence[dict[str, Any]] = ()
    records: Sequence[RecordT] = ()


@dataclasses.dataclass(frozen=True)
class MeasuredGraph:
    """The ONNX graph of the new model, compared with its SavedModel.

    Attributes:
      streaming: the same of the graph for speech that arrives; None without one.
      details: further keys of each utterance's line.
    """

    onnx: OnnxInfo
    streaming: OnnxInfo | None = None
    details: Sequence[dict[str, Any]] = ()


class Evaluator(abc.ABC, Generic[ModelT, RecordT, DetailsT]):
    """Measures the models of one job; the family's `EvaluateFamily.evaluator` makes it.

    It holds what the models share: recognizers that listen, baselines, recordings that were read.

    Args:
      job: the utterances, and the auxiliary models.
      model: the new model, as `EvaluateFamily.load` returned it.
    """

    def __init__(self, job: EvaluationJob, model: ModelT) -> None:
        self.job = job
        self.model = model

    @abc.abstractmethod
    def measure(self, model: ModelT, candidate: Candidate) -> MeasuredModel[RecordT]:
        """Runs a model on every utterance. The new model comes first.

        Returns:
          A row for each utterance, in their order; the rows of details may be left out.

        Raises:
          WorkError: a recording cannot be read.
          SettingsError: a version cannot be compared with the new model; naming `candidate.label`.
        """

    def compare_onnx(self, graph: ModelT, measured: MeasuredModel[RecordT], unit: str) -> MeasuredGraph | None:
        """Compares the ONNX graphs of the new model with its SavedModel; it is called if there is a graph.

        A graph that is not compared fails push's gate, and so does every graph if this returns None.

        Args:
          graph: the new model, loaded from its graph.
          measured: the new model.
          unit: for the progress line.

        Raises:
          WorkError: one of the two makes NaN or infinity.
        """
        return None

    def details(self, measured: MeasuredModel[RecordT]) -> DetailsT | FamilyDetails:
        """The family's part of `metrics.json`, as the type that `describe_method` takes.

        `onnx` and `streaming` stay empty: evaluate adds them.

        Args:
          measured: the new model.
        """
        return FamilyDetails()

    @abc.abstractmethod
    def smoke_test(self, measured: MeasuredModel[RecordT]) -> FilePart:
        """An output of the new model that push expects from a fresh process, and its input.

        It may write `CLIP_FILE` and `CLIP_MELS_FILE` into `job.output`.
        """

    def figures(self, measured: MeasuredModel[RecordT]) -> dict[str, float]:
        """Metrics of the whole run, which have no value for each utterance (`Metric.comparable`).

        Args:
          measured: the new model.
        """
        return {}

    def counts(self, measured: MeasuredModel[RecordT]) -> dict[str, int]:
        """Sizes for run.json, beside the number of utterances.

        Args:
          measured: the new model.
        """
        return {}

    def report_sections(
        self, results: Sequence[UtteranceResult], info: EvaluationInfo
    ) -> list[tuple[str, list["Block"]]]:
        """The family's own sections of the report: headings and blocks.

        Args:
          info: the contents of `metrics.json`.
        """
        return []

    @abc.abstractmethod
    def describe_method(self, details: DetailsT) -> str:
        """Says how the metrics were measured, for the end of the report; an empty line separates paragraphs."""


@dataclasses.dataclass(frozen=True)
class Measurements:
    """The models of a job, measured.

    Attributes:
      measured: the new model.
      graph: its ONNX graphs; None without one.
      champion_rtf: the real-time factor of the model in service; None: not measured.
      results: in the order of the utterances.
    """

    evaluator: Evaluator[Any, Any, Any]
    measured: MeasuredModel[Any]
    graph: MeasuredGraph | None
    champion_rtf: float | None
    results: list[UtteranceResult]

    def details(self) -> FamilyDetails:
        """The family's part of `metrics.json`, with the comparisons of the graphs."""
        # A family that forgot them would otherwise hide from the gate that a graph writes something else.
        details: FamilyDetails = self.evaluator.details(self.measured)
        if self.graph is None:
            return details
        return msgspec.structs.replace(details, onnx=self.graph.onnx, streaming=self.graph.streaming)


class MeasuredFamily(Protocol):
    """The part of `EvaluateFamily` that `measure_models` needs; that class names the types of this module."""

    @property
    def activity(self) -> str: ...

    @property
    def participle(self) -> str: ...

    def load(self, folder: Path, settings: Any, engine: Engine) -> Any: ...

    def evaluator(self, job: EvaluationJob, model: Any) -> Evaluator[Any, Any, Any]: ...


def measure_models(family: MeasuredFamily, job: EvaluationJob) -> Measurements:
    """Measures the new model, its ONNX graph, the model in service and the anchor.

    Raises:
      WorkError: a model or a recording cannot be read.
      SettingsError: a version cannot be compared with the new model.
    """
    # The new model is first: the evaluator takes from it what the others are measured by.
    count = len(job.utterances)
    unit = f"utterances {family.participle}"
    print_status(f"evaluate: {family.activity} {count:,} utterances of the split {job.settings.split!r}")
    model = family.load(job.model, job.settings, "tensorflow")
    evaluator = family.evaluator(job, model)
    measured = _measure(evaluator, model, Candidate(unit))

    graph = _compare_graphs(family, evaluator, measured, f"{unit} by ONNX Runtime")

    # Beside the new model, and its graph if the family keeps that, one version at a time is in memory: the results
    # of a version do not hold its model.
    champion = _measure_version(family, evaluator, job.champion, "the model in service")

    # An anchor that was measured before is not run again, unless it lacks a metric: push could never judge by it.
    anchor: Sequence[Values] | None = None
    if job.anchor_values is not None:
        anchor = [job.anchor_values[utterance.id] for utterance in job.utterances]
    if anchor is None or not all(map(_is_comparable, measured.values, anchor)):
        anchored = _measure_version(family, evaluator, job.anchor, "the anchor")
        anchor = anchored.values if anchored else None

    return Measurements(
        evaluator=evaluator,
        measured=measured,
        graph=graph,
        champion_rtf=champion.rtf if champion else None,
        results=_results(job, measured, graph, champion, anchor),
    )


def _compare_graphs(
    family: MeasuredFamily, evaluator: Evaluator[Any, Any, Any], measured: MeasuredModel[Any], unit: str
) -> MeasuredGraph | None:
    """Compares the ONNX graphs of the new model with its SavedModel; None without a graph."""
    model = evaluator.job.model
    if not (model / ONNX_FILE).is_file():
        return None

    # The SavedModel and its graph are two forms of one model, so push only asks whether they agree.
    print_status(f"evaluate: {family.activity} them with the model's ONNX graph")
    loaded = family.load(model, evaluator.job.settings, "onnx")
    graph = evaluator.compare_onnx(loaded, measured, unit)

    # An empty comparison fails the gate: a graph ships with the model, so none may be left out.
    graph = graph or MeasuredGraph(OnnxInfo())
    _require_rows(evaluator, "compare_onnx", "the ONNX graph", "details", graph.details, optional=True)
    if graph.streaming is None and (model / STREAM_FILE).is_file():
        graph = dataclasses.replace(graph, streaming=OnnxInfo())
    return graph


def _measure_version(
    family: MeasuredFamily,
    evaluator: Evaluator[Any, Any, Any],
    version: ModelVersion | None,
    role: str,
) -> MeasuredModel[Any] | None:
    """Measures a version of the registry; None without one."""
    if version is None:
        return None
    print_status(f"evaluate: {family.activity} them with {version.label}, {role}")
    try:
        model = family.load(version.folder, evaluator.job.settings, "tensorflow")
    except WorkError as error:
        raise version.unusable(error) from None
    unit = f"utterances {family.participle} by {role}"
    return _measure(evaluator, model, Candidate(unit, version, role))


def measure_beside(
    family: MeasuredFamily, job: EvaluationJob, model: Any, measured_values: Sequence[Values], role: str
) -> list[UtteranceResult]:
    """Measures a loaded model and another version on the same utterances, without ONNX graphs.

    Args:
      job: the version is its champion.
      model: the new one, as `family.load` returned it.
      measured_values: what the new model did on the first utterances of the job; only the others are measured.
      role: of the version.

    Raises:
      WorkError: a model or a recording cannot be read.
      SettingsError: the version cannot be compared with the new model.
    """
    values = list(measured_values)
    if rest := job.utterances[len(measured_values) :]:
        others = dataclasses.replace(job, utterances=rest, slices=job.slices[len(measured_values) :])
        unit = f"utterances {family.participle}"
        values += _measure(family.evaluator(others, model), model, Candidate(unit)).values

    before = _measure_version(family, family.evaluator(job, model), job.champion, role)
    return _results(job, MeasuredModel(values), None, before, None)


def _measure(evaluator: Evaluator[Any, Any, Any], model: Any, candidate: Candidate) -> MeasuredModel[Any]:
    """Measures a model, and refuses too few or too many rows."""
    measured = evaluator.measure(model, candidate)
    _require_rows(evaluator, "measure", candidate.label, "values", measured.values)
    for field, rows in (("details", measured.details), ("champion_details", measured.champion_details)):
        _require_rows(evaluator, "measure", candidate.label, field, rows, optional=True)
    return measured


def _require_rows(
    evaluator: Evaluator[Any, Any, Any],
    method: str,
    label: str,
    field: str,
    rows: Sequence[Any],
    *,
    optional: bool = False,
) -> None:
    """Refuses rows of a family that are not one for each utterance: they would be paired with the wrong ones.

    Args:
      method: of the evaluator, that returned them.
      label: of the model.
      field: of what the method returned.
      optional: no rows at all are accepted.

    Raises:
      WorkError: naming the method and both numbers.
    """
    count = len(evaluator.job.utterances)
    if len(rows) == count or (optional and not rows):
        return
    raise WorkError(
        f"evaluate: {type(evaluator).__name__}.{method} returned {len(rows):,} {field} of {label} for {count:,} "
        "utterances; it must return one for each, in their order"
    )


def _is_comparable(measured: Values, before: Values) -> bool:
    """Returns whether an earlier evaluation of an utterance has all metrics of this one, in the same units."""
    # A rate over other words or characters, as of another normalization, cannot be paired; a mean has no units.
    return all(
        name in before and (CATALOG[name].kind == "mean" or before[name].weight == value.weight)
        for name, value in measured.items()
    )


def _results(
    job: EvaluationJob,
    measured: MeasuredModel[Any],
    graph: MeasuredGraph | None,
    champion: MeasuredModel[Any] | None,
    anchor: Sequence[Values] | None,
) -> list[UtteranceResult]:
    """A result for each utterance, from what each model made of it."""
    results = []
    for index, utterance in enumerate(job.utterances):
        # A family that has nothing to add leaves the list empty. Later keys win: the champion's fill those left null.
        details: dict[str, Any] = {}
        for rows in (measured.details, graph.details if graph else (), champion.champion_details if champion else ()):
            details |= rows[index] if rows else {}
        results.append(
            UtteranceResult(
                utterance.id,
                utterance.speaker,
                utterance.duration,
                job.slices[index],
                dict(measured.values[index]),
                dict(champion.values[index]) if champion else None,
                details,
                dict(anchor[index]) if anchor else None,
            )
        )
    return results


def slice_by_sentence(seen: frozenset[str]) -> Slicing:
    """Slices by whether train contains the same sentence; the score on seen ones says little about new text."""

    def slicing(utterance: Utterance) -> tuple[Any, str]:
        label = "also in train" if utterance.text in seen else "not in train"
        return label, label

    return slicing


def slice_by_field(name: str) -> Slicing:
    """Slices by the speaker, or by a further field of the manifest."""

    # Without a value it is a slice of its own, so that the slices add up to the split.
    def slicing(utterance: Utterance) -> tuple[Any, str]:
        value = utterance.speaker if name == "speaker" else utterance.extra.get(name)
        label = ("(unknown)" if name == "speaker" else "(none)") if value in (None, "") else str(value)
        return label, label

    return slicing


def slice_by_band(value: Callable[[Utterance], float], bounds: Sequence[float], unit: str) -> Slicing:
    """Slices by the band that a number falls in; a bound belongs to the band above it."""
    names = band_names(bounds, unit)

    def slicing(utterance: Utterance) -> tuple[Any, str]:
        band = sum(value(utterance) >= bound for bound in bounds)
        return band, names[band]

    return slicing


def band_names(bounds: Sequence[float], unit: str) -> list[str]:
    """The names of the bands between bounds; whole numbers if all bounds are written as such.

    >>> band_names([-30.0, -20.0], "dB")
    ['under -30 dB', '-30 to -20 dB', '-20 dB and over']

    >>> band_names([1.0, 2.5], "s")
    ['under 1 s', '1-2.5 s', '2.5 s and over']
    >>> band_names([1, 2, 5], "words")
    ['under 1 words', '1 words', '2-4 words', '5 words and over']
    """
    # Between whole numbers a band ends one before the next begins: "2-4 words".
    whole = all(isinstance(bound, int) for bound in bounds)
    names = [f"under {bounds[0]:g} {unit}"]
    for low, high in itertools.pairwise(bounds):
        last = high - 1 if whole else high
        to = " to " if low < 0 else "-"  # "-30--20" cannot be read
        names.append(f"{low:g} {unit}" if last == low else f"{low:g}{to}{last:g} {unit}")
    return [*names, f"{bounds[-1]:g} {unit} and over"]


def all_slicings(own: dict[str, Slicing], split: TestSplit, settings: Any) -> dict[str, Slicing]:
    """The family's slicings, the one by sentence, and those that the settings add.

    Raises:
      SettingsError: no utterance has a field, naming those that exist.
    """
    # Checked against the whole split, so that a misspelt field is found before a model is loaded.
    slicings = own | {"sentence": slice_by_sentence(split.seen)}
    fields = {"speaker", *(field for utterance in split.utterances for field in utterance.extra)}
    unknown = [name for name in settings.slices if name not in fields | slicings.keys()]
    if unknown:
        raise SettingsError(
            f"evaluate: 'slices' is {settings.slices!r}; no utterance of the split has {', '.join(unknown)}; "
            f"besides {', '.join(slicings)} they have {', '.join(sorted(fields - slicings.keys())) or 'no other field'}"
        )

    # A run over several corpora is always reported by corpus.
    of_corpora = ["corpus"] if "corpus" in fields else []
    return slicings | {name: slice_by_field(name) for name in (*of_corpora, *settings.slices) if name not in slicings}


def slice_order(slicings: Mapping[str, Slicing], utterances: Sequence[Utterance]) -> dict[str, list[str]]:
    """The slices of each slicing in order: bands from the lowest, anything else by name."""
    return {
        name: [label for _, label in sorted({slicing(utterance) for utterance in utterances})]
        for name, slicing in slicings.items()
    }


def bootstrap_of(settings: EvaluateSettings) -> Bootstrap:
    """The resampling that the settings describe."""
    return Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed, settings.min_speakers)


def compare_with(
    baseline: Sequence[Values], measured: Sequence[Values], speakers: Sequence[str], settings: EvaluateSettings
) -> dict[str, BaselineInfo]:
    """Compares the model with a baseline on the same utterances, metric by metric.

    Args:
      measured: of the model; it has all metrics of the baseline.
    """
    bootstrap = bootstrap_of(settings)
    compared = {}
    for name in baseline[0]:
        metric = CATALOG[name]
        values = [metrics[name] for metrics in measured]
        before = [metrics[name] for metrics in baseline]
        difference = bootstrap.compare(values, before, speakers, metric.kind, sign=metric.sign)

        # The bootstrap counts in "worse"; the file has the difference of the values, whichever direction is better.
        low, high = sorted(metric.sign * end for end in (difference.interval.low, difference.interval.high))
        paired = difference.interval.units > 0
        compared[name] = BaselineInfo(
            value=aggregate(before, metric.kind),
            difference=metric.sign * difference.difference if paired else None,
            interval=IntervalInfo.of(dataclasses.replace(difference.interval, low=low, high=high)),
        )
    return compared
