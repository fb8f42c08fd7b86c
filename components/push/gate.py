"""The gate: checks that a model passes or fails, each with the measured value and the accepted one.

One gate serves every family: any metric is held to a limit, and compared with the model in service, as a whole and
in slices, and with the anchor, so that margins do not add up over many pushes. docs/decisions/0007-the-gate.md
explains the statistics.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from voxline.components.push.settings import MAX_MARGIN, PushSettings
from voxline.data.drafts import describe_drafts
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.metrics.bootstrap import MIN_UNITS, Bootstrap, Comparison, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.metrics.evaluation import (
    ONNX_WER,
    PROBE,
    Evaluation,
    FamilyDetails,
    OnnxInfo,
    ProbeInfo,
    UtteranceResult,
    group_by_slice,
)
from voxline.metrics.paired import FEW_DIFFERENCES, PairedCounts, look_confidence
from voxline.registry.journal import PRODUCTION
from voxline.registry.parents import ancestors_of

MAX_SLICES_NAMED = 3
"""Worse slices named in a reason, worst first; the report has them all."""

LEAST_OF_PARENT_TEST = 0.9
"""Share of the utterances that a model's parent was judged by; fewer may be those that the model still knows."""

ERASURE_MARGINS = 2.0
"""By how many margins a model without an erased speaker must be shown to be no worse; as measured, by one."""

BITS = {"int8": 8}
"""Precision of an ONNX graph whose weights are integers → how many bits they have."""

OtherMetrics = Mapping[str, Mapping[str, SumAndWeight]]
"""The model to compare with: the utterance's id → metric → its value."""
Status = Literal["passed", "failed", "not checked"]


@dataclasses.dataclass(frozen=True)
class Opponent:
    """A version that a model is compared with.

    Attributes:
      role: "the model in service", "the anchor", "its parent" or "the SavedModel".
      margins: how many times the margins of the settings are accepted.
      where: what they are compared on, if it is not the test split of the evaluation.
      name: as messages name it; empty: by its version.
      look: the number of the comparison among those with the model in service, which share one error; 0: of its own.
      after_erasure: models that replace one that knows an erased speaker are counted by themselves.
    """

    role: str
    version: int
    metrics: OtherMetrics
    margins: float = 1.0
    where: str = ""
    name: str = ""
    look: int = 0
    after_erasure: bool = False

    def confidence(self, settings: PushSettings) -> float:
        """The confidence that the comparison needs."""
        return look_confidence(settings.confidence, self.look) if self.look else settings.confidence


@dataclasses.dataclass(frozen=True)
class GateCheck:
    """One requirement.

    Attributes:
      passed: None if there was nothing to compare or to measure, so that nothing was checked.
      measured, limit: None if the check is not about a number.
      detail: a sentence for a person: the finding and, if it failed, what is accepted.
      metric: name of the metric of a comparison with another model; empty: no comparison.
      difference: by which the model was measured worse than the other one, not the bound that is judged.
    """

    name: str
    passed: bool | None
    detail: str
    measured: float | None = None
    limit: float | None = None
    metric: str = ""
    difference: float | None = None

    @property
    def status(self) -> Status:
        return "not checked" if self.passed is None else "passed" if self.passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        """The values of the check in verdict.json and provenance.json."""
        return {**dataclasses.asdict(self), "status": self.status}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The gate's decision on a model, and the version that it became.

    Attributes:
      pushed: the model was published as a new version.
      version: the new version; if the same model was in service or the candidate already, that version.
      model: the folder of that version.
      in_service: the version in service when the model was judged.
      reasons: why the model was not pushed; empty if it was.
      alias: at which the new version went: "production" or "candidate".
      unjudged: why nothing independent has judged the model that was pushed; empty if something has.
    """

    pushed: bool
    version: int | None
    model: str | None
    in_service: int | None
    reasons: list[str]
    checks: list[GateCheck]
    alias: str = PRODUCTION
    unjudged: str = ""

    @property
    def heading(self) -> str:
        if self.pushed:
            waits = "" if self.alias == PRODUCTION else ", a candidate: voxline models promote puts it into service"
            doubt = f", not judged: {self.unjudged}" if self.unjudged else ""
            return f"Pushed as version {self.version}{waits}{doubt}"
        return f"Not pushed: {'; '.join(self.reasons)}"


def blame_drafts(evaluation: Evaluation, checks: Sequence[GateCheck]) -> list[str]:
    """Names the drafts behind a model whose metrics are refused, and how to train without them; [] without drafts."""
    # Only what was measured may be the fault of drafts: a model that was rolled back, or does not load, is not.
    drafts = describe_drafts(evaluation.model_info.dataset.drafts)
    if not drafts or not any(check.passed is False and check.measured is not None for check in checks):
        return []
    return [f"it was trained on {drafts}; --set corpus.pseudo.uri= trains without them"]


def check_onnx(evaluation: Evaluation, settings: PushSettings, model: Path) -> list[GateCheck]:
    """Compares a model's ONNX graphs with its SavedModel, on every utterance; [] without such graphs.

    A graph in the model's folder that the evaluation does not name fails.

    Recognizers write the same texts. The mels of a voice and the waveforms of a vocoder differ by roundings only.

    One of 8-bit weights may write something else: it is held to the limit, and compared with the SavedModel
    as a model is with the one in service.

    Args:
      model: the exported model's folder.
    """
    details = evaluation.details(FamilyDetails)
    graphs = (
        ("ONNX", ONNX_FILE, "onnx to none", details.onnx),
        ("streaming", STREAM_FILE, "streaming to false", details.streaming),
    )
    checks = []
    for title, file, setting, comparison in graphs:
        # What ships decides, not what the evaluation says of it.
        graph = comparison or (OnnxInfo() if (model / file).is_file() else None)
        if graph is None:
            continue

        bits = BITS.get(graph.precision)
        if bits and all(ONNX_WER in result.details for result in evaluation.results):
            checks += _check_integers(evaluation, settings, bits)
        elif graph.largest is not None:
            checks.append(_check_difference(graph, graph.largest))
        else:
            checks.append(_check_texts(graph, title, setting, len(evaluation.results)))
    return checks


def _check_texts(graph: OnnxInfo, title: str, setting: str, utterances: int) -> GateCheck:
    """Checks that a recognizer's graph wrote the text of the SavedModel for every utterance.

    Args:
      setting: the key of `train.export` and the value that leaves the graph out.
    """
    if graph.count is None:
        detail = (
            f"the {title} graph was not compared with the SavedModel; let the family's compare_onnx do it and "
            f"run evaluate again (--force evaluate), or set train.export.{setting}"
        )
        return GateCheck(title, False, detail)
    if graph.count == 0:
        return GateCheck(title, True, f"the {title} graph wrote the same text for all {utterances:,}")
    examples = [f"{text.id}: {text.onnx!r}, not {text.saved_model!r}" for text in graph.different or []]
    detail = (
        f"the {title} graph wrote another text than the SavedModel for {graph.count:,} of {utterances:,} utterances, "
        f"such as {'; '.join(examples[:1])}; set train.export.{setting}, and report it"
    )
    return GateCheck(title, False, detail, graph.count, 0)


def _check_difference(graph: OnnxInfo, largest: float) -> GateCheck:
    """Checks the largest difference between what a voice or a vocoder makes in its two forms."""
    limit = graph.limit
    difference = f"from the SavedModel by {largest:.2g} {graph.unit} at most, for the utterance {graph.id}"
    if largest <= limit:
        detail = f"the ONNX graph differs {difference}; up to {limit:g} is accepted"
        return GateCheck("ONNX", True, detail, largest, limit)
    advice = "set train.export.onnx to none, and report it"
    if graph.precision not in ("", "float32"):
        advice = (
            f"set evaluate.round_trip_recognizer, which judges {graph.precision} by its words, or train.export.onnx to "
            "none"
        )
    detail = f"the ONNX graph differs {difference}; at most {limit:g} is accepted; {advice}"
    return GateCheck("ONNX", False, detail, largest, limit)


def _check_integers(evaluation: Evaluation, settings: PushSettings, bits: int) -> list[GateCheck]:
    """Checks the word error rate of a graph of so many bits, or a voice's of its round trip.

    It must be within the limit, and within the margin of the SavedModel's.
    """
    name = next(name for name in ("wer", "round_trip_wer") if name in evaluation.results[0].metrics)
    wer = CATALOG[name]

    # The graph's errors and words take the place of the SavedModel's, as if it were a model of its own.
    results = [
        dataclasses.replace(result, metrics={name: SumAndWeight(*result.details[ONNX_WER])})
        for result in evaluation.results
    ]
    value = aggregate([result.metrics[name] for result in results], wer.kind)
    checks = []
    if value is not None and (limit := settings.limits.get(name)) is not None:
        detail = (
            f"{wer.title} of the {bits}-bit ONNX graph {wer.format(value)}; at most {wer.format(limit)} is accepted"
        )
        checks.append(
            GateCheck(f"{wer.title}, {bits}-bit ONNX", value <= limit, f"{detail}: limits.{name}", value, limit)
        )

    metrics = {result.id: result.metrics for result in evaluation.results}
    opponent = Opponent("the SavedModel", 0, metrics, name="the SavedModel")
    bootstrap = evaluation.bootstrap(settings.confidence)
    return [*checks, _check_metric(results, value, opponent, wer, bootstrap, settings)]


def check_regression(evaluation: Evaluation, opponent: Opponent, settings: PushSettings) -> list[GateCheck]:
    """Checks that no metric is worse than in the other version by more than its margin, with the needed confidence."""
    bootstrap = evaluation.bootstrap(opponent.confidence(settings))
    values = {name: evaluation.value(name) for name in settings.compared_metrics()}
    return [
        _check_metric(evaluation.results, value, opponent, CATALOG[name], bootstrap, settings)
        for name, value in values.items()
    ]


def check_after_erasure(evaluation: Evaluation, opponent: Opponent, settings: PushSettings) -> list[GateCheck]:
    """Checks that no metric was measured worse by more than its margin, or may be worse by `ERASURE_MARGINS` of them.

    The measured value alone would let a model that is worse by twice the margin pass by luck, on one of many nights.
    """
    with_confidence = dataclasses.replace(opponent, margins=ERASURE_MARGINS, after_erasure=True)
    return _check_as_measured(evaluation, opponent, settings) + check_regression(evaluation, with_confidence, settings)


def _check_as_measured(evaluation: Evaluation, opponent: Opponent, settings: PushSettings) -> list[GateCheck]:
    bootstrap = evaluation.bootstrap(settings.confidence)
    checks = []
    for name in settings.compared_metrics():
        metric = CATALOG[name]
        title = f"{metric.title}, against {opponent.role}, as measured"
        if evaluation.value(name) is None:
            checks.append(GateCheck(title, None, f"{metric.title}: not measured, so it is not compared"))
            continue
        compared = _compare(evaluation.results, opponent.metrics, metric, bootstrap)
        if not compared.interval.units:
            detail = f"{metric.title}: not measured on any utterance for both this model and version {opponent.version}"
            checks.append(GateCheck(title, None, detail))
            continue

        # The difference itself, and not its bound.
        difference = compared.difference
        before = _value(evaluation.results, opponent.metrics, metric)
        margin = settings.margin(metric.name, before)
        detail = (
            f"{metric.title} {metric.format_difference(metric.sign * difference)} against version {opponent.version} "
            f"({metric.format(before)}), as measured; {metric.format_difference(metric.sign * margin)} is accepted: "
            f"{settings.describe_margin(metric.name)}"
        )
        checks.append(GateCheck(title, difference <= margin, detail, difference, margin, name, difference))
    return checks


def check_forgetting(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """Checks that a model is no worse than the one that it started from, on the test split of that one.

    Its own test split need not show what it forgot: it may be of the new part of a corpus alone.
    """
    title = "against its parent"
    parent = evaluation.info.parent
    if parent is None:
        return []
    where = f"the test split of {parent.label}, which it started from"
    if not parent.dataset:  # Ancestor.is_published
        if _probe_of(evaluation) or evaluation.model_info.is_as_published:
            return []
        detail = f"what it forgot is not known: {parent.missing}; name a corpus that shows it (evaluate.probe)"
        return [GateCheck(title, None, detail)]

    # Those that could be measured on both may be the easy ones, so too few of them fail the model.
    results = [result for result in evaluation.parent_results() if result.champion is not None]
    if len(results) < LEAST_OF_PARENT_TEST * parent.listed or not results:
        measured = f"{len(results):,} of its {parent.listed:,} utterances do not show" if results else "nothing shows"
        detail = (
            f"{measured} what it forgot: {parent.missing}; evaluate on a corpus that has {where}, or train from "
            "random weights (train.start.model: '')"
        )
        return [GateCheck(title, False, detail)]

    # Its parent is in service, and both test splits are the same: `check_regression` makes this comparison.
    test_results = {result.id: result for result in evaluation.results}
    if evaluation.champion_digest == parent.digest and {result.id: result for result in results} == test_results:
        return [GateCheck(title, None, f"{where}, is the comparison with the model in service")]

    parent_name = "" if parent.version is not None else parent.label
    opponent = Opponent("its parent", parent.version or 0, _champions(results), where=where, name=parent_name)
    checks = _check_beside(evaluation, results, opponent, settings)
    return [*checks, *([GateCheck(title, None, parent.missing)] if parent.missing else [])]


def check_probe(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """Checks that a model is no worse than the one that it started from, on the corpus that a person named for that."""
    title = "against its parent, probe"
    before = evaluation.info.before
    probe = _probe_of(evaluation)
    if before is None or probe is None:
        return []
    if not before.transcribes:
        return [GateCheck(title, None, f"{before.missing}: the probe cannot show what it forgot")]

    # As on the parent's own test split: too few may be those that the model still knows.
    results = evaluation.before_results(PROBE)
    if len(results) < LEAST_OF_PARENT_TEST * probe.listed or not results:
        missing = before.missing or probe.missing
        detail = (
            f"{len(results):,} of the {probe.listed:,} utterances of the probe {probe.location} do not show what it "
            f"forgot: {missing}; name recordings that are in no training (evaluate.probe)"
        )
        return [GateCheck(title, False, detail)]

    where = f"the probe {probe.location}"
    opponent = Opponent("its parent", before.version or 0, _champions(results), where=where, name=before.label)
    checks = _check_beside(evaluation, results, opponent, settings)
    return [*checks, *([GateCheck(title, None, probe.missing)] if probe.missing else [])]


def check_before(evaluation: Evaluation, settings: PushSettings) -> list[GateCheck]:
    """Checks that a model is no worse than the public one that it started from was before, on the same test split."""
    title = "against its parent before tuning"
    warns = settings.below_parent == "warn"
    ancestors = ancestors_of(evaluation.model_info)
    if not ancestors or not ancestors[0].is_published or evaluation.model_info.is_as_published:
        return []

    # A model without a comparison may be worse than what was there for nothing.
    before = evaluation.info.before
    if before is None or before.digest != ancestors[0].digest:
        detail = f"{ancestors[0].label} was not measured before tuning; evaluate again (--force evaluate)"
        return [GateCheck(title, None if warns else False, detail)]
    if not before.transcribes:
        return [GateCheck(title, None, f"there is no before: {before.missing}")]

    split = evaluation.info.test.split
    results = evaluation.before_results(split)
    if len(results) != len(evaluation.results):
        missing = before.missing or "it was measured on other utterances"
        detail = (
            f"{before.label} was not measured before tuning: {missing}; evaluate again where it can be opened, or set "
            "push.below_parent to warn"
        )
        return [GateCheck(title, None if warns else False, detail)]

    where = f"the split {split!r}"
    role = "its parent before tuning"
    opponent = Opponent(role, before.version or 0, _champions(results), where=where, name=before.label)
    checks = _check_beside(evaluation, results, opponent, settings)
    if warns:
        checks = [
            dataclasses.replace(check, passed=None, detail=f"warning: {check.detail} (push.below_parent: warn)")
            if check.passed is False
            else check
            for check in checks
        ]
    return checks


def _probe_of(evaluation: Evaluation) -> ProbeInfo | None:
    before = evaluation.info.before
    return before.probe if before else None


def _champions(results: Sequence[UtteranceResult]) -> OtherMetrics:
    """The metrics of the model that was measured in the place of the champion."""
    return {result.id: result.champion or {} for result in results}


def _check_beside(
    evaluation: Evaluation, results: Sequence[UtteranceResult], opponent: Opponent, settings: PushSettings
) -> list[GateCheck]:
    """Compares every metric that has a margin, on results other than those of the test split."""
    bootstrap = evaluation.bootstrap(settings.confidence)
    names = [name for name in settings.compared_metrics() if name in results[0].metrics]
    return [
        _check_metric(
            results,
            aggregate([result.metrics[name] for result in results], CATALOG[name].kind),
            opponent,
            CATALOG[name],
            bootstrap,
            settings,
        )
        for name in names
    ]


def _check_metric(
    results: Sequence[UtteranceResult],
    value: float | None,
    opponent: Opponent,
    metric: Metric,
    bootstrap: Bootstrap,
    settings: PushSettings,
) -> GateCheck:
    """Compares one metric with an opponent's: even the highest difference must be within the margin.

    Args:
      value: over all results, for the message; None if it was not measured.
    """
    title = f"{metric.title}, against {opponent.role}"
    if value is None:
        return GateCheck(title, None, f"{metric.title}: not measured, so it is not compared")
    version = opponent.name or f"version {opponent.version}"
    compared = _compare(results, opponent.metrics, metric, bootstrap)
    if not compared.interval.units:
        detail = (
            f"{metric.title}: not measured on any utterance for both this model and {version}, whose "
            f"features may differ; remove max_regression.{metric.name}, or judge by mcd"
        )
        return GateCheck(title, False, detail)

    before = _value(results, opponent.metrics, metric)
    margin = opponent.margins * settings.margin(metric.name, before)
    counts = _count_differences(results, opponent.metrics, metric, compared)
    highest = compared.highest if counts is None else counts.highest(bootstrap.confidence)
    passed = highest <= margin

    # Differences count up in the direction of worse; people read them in the direction of the metric.
    bound = "at most" if metric.sign > 0 else "at least"
    times = f"{opponent.margins:g} times " if opponent.margins != 1 else ""
    setting = settings.describe_margin(metric.name)
    where = f" on {opponent.where} ({len(results):,} utterances)," if opponent.where else ""
    counted = "since the erasure" if opponent.after_erasure else "with what is in service"
    look = f" (comparison {opponent.look} {counted})" if opponent.look > 1 else ""
    detail = (
        f"{metric.title}{where} {metric.format_difference(metric.sign * compared.difference)} against "
        f"{version} ({metric.format(before)}), with {100 * bootstrap.confidence:.4g}% confidence{look} {bound} "
        f"{metric.format_difference(metric.sign * highest)}; "
        f"{metric.format_difference(metric.sign * margin)} is accepted: {times}{setting}"
    )
    # A model that was measured worse by more than the margin is not helped by more utterances.
    if not passed and compared.difference <= margin:
        needed = _utterances_needed(compared, counts, highest, margin, bootstrap.confidence)
        detail += "; it may be as good, and the test split is too small to show it"
        wider = highest / opponent.margins if compared.interval.units >= MIN_UNITS else math.inf
        detail += _describe_need(metric, needed, wider)
    # JSON has no infinity, which is the bound of too few utterances.
    measured = highest if math.isfinite(highest) else None
    return GateCheck(title, passed, detail, measured, margin, metric.name, compared.difference)


def _count_differences(
    results: Sequence[UtteranceResult], other: OtherMetrics, metric: Metric, compared: Comparison
) -> PairedCounts | None:
    """The counts of an exact test; None where resampling tells more: of a mean, of many differences, of no units."""
    if metric.kind != "rate" or not math.isfinite(compared.highest) or compared.interval.units < MIN_UNITS:
        return None
    speakers = [result.speaker for result in results] if compared.interval.over == "speakers" else None
    values = [result.metrics[metric.name] for result in results]
    baseline = [other[result.id][metric.name] for result in results]

    # Events of a rate that is better higher are the merits of a model: fewer of them are its errors.
    models = (values, baseline) if metric.sign > 0 else (baseline, values)
    counts = PairedCounts.of(*models, units=speakers)
    return counts if counts.differing < FEW_DIFFERENCES else None


def _utterances_needed(
    compared: Comparison, counts: PairedCounts | None, highest: float, margin: float, confidence: float
) -> int | None:
    """About how many utterances would show that a model is within the margin; None if that is not known."""
    if counts is not None:
        return counts.utterances_needed(margin, confidence)
    if not math.isfinite(highest) or compared.difference >= margin or compared.interval.over == "speakers":
        return None

    # The distance of the bound falls with the root of the number.
    factor = ((highest - compared.difference) / (margin - compared.difference)) ** 2
    return math.ceil(factor * compared.interval.units)


def _describe_need(metric: Metric, utterances: int | None, margin: float) -> str:
    """Names what would show it.

    Args:
      utterances: a number of them that would; None: not known.
      margin: one that would; infinite: none.
    """
    if not math.isfinite(margin):
        return f": fewer than {MIN_UNITS} utterances show nothing; add test utterances"
    enough = f"about {utterances:,} test utterances like these" if utterances else "more test utterances"
    wider = math.ceil(1000 * margin) / 1000
    # A share cannot be worse by more than all of it.
    too_wide = metric.unit == "%" and wider > MAX_MARGIN
    return f": {enough} would" + ("" if too_wide else f", or max_regression.{metric.name}: {wider:g}")


def check_slice_regression(evaluation: Evaluation, opponent: Opponent, settings: PushSettings) -> list[GateCheck]:
    """Checks that no slice is both worse than in the other version by more than its margin and significantly worse."""
    return [
        _check_slices(evaluation, opponent, CATALOG[name], settings)
        for name in settings.compared_metrics(in_slice=True)
        if evaluation.value(name) is not None
    ]


def _check_slices(evaluation: Evaluation, opponent: Opponent, metric: Metric, settings: PushSettings) -> GateCheck:
    """Compares one metric in every slice that is large enough; `measured` is the largest difference of any."""
    worse: list[tuple[float, str]] = []
    judged = 0
    small = 0
    highest: float | None = None
    bootstrap = evaluation.bootstrap(settings.confidence)
    for name in settings.slices:
        for value, results in group_by_slice(evaluation.results, name).items():
            if len(results) < settings.min_slice_utterances:
                small += 1
                continue
            compared = _compare(results, opponent.metrics, metric, bootstrap)
            if not compared.interval.units:
                continue

            # Many slices are compared, and some are worse by chance: the margin alone would fail good models.
            judged += 1
            before = _value(results, opponent.metrics, metric)
            highest = max(compared.difference, compared.difference if highest is None else highest)
            if compared.difference > settings.margin(metric.name, before, in_slice=True) and compared.lowest > 0:
                after = aggregate([result.metrics[metric.name] for result in results], metric.kind)
                values = f"{metric.format(after)}, was {metric.format(before)}"
                worse.append((compared.difference, f"{name} {value}: {values} on {len(results):,} utterances"))

    title = f"{metric.title}, in slices"
    limit = settings.describe_margin(metric.name, in_slice=True)
    skipped = f"{small:,} with fewer than {settings.min_slice_utterances} utterances skipped (min_slice_utterances)"
    if worse:
        named = [text for _, text in sorted(worse, reverse=True)[:MAX_SLICES_NAMED]]
        named += [f"{len(worse) - len(named)} more"] if len(worse) > len(named) else []
        detail = (
            f"{metric.title}: worse than version {opponent.version} by more than {limit} in {len(worse)} of {judged} "
            f"slices: {' and '.join(named)}"
        )
        return GateCheck(title, False, detail, highest)
    if not judged:
        return GateCheck(title, None, f"{metric.title}: no slice is compared; {skipped}")
    detail = (
        f"{metric.title}: no slice is worse than in version {opponent.version} by more than {limit}; {judged:,} slices "
        f"compared, {skipped}"
    )
    return GateCheck(title, True, detail, highest)


def is_better(evaluation: Evaluation, anchor: OtherMetrics, settings: PushSettings) -> bool:
    """Returns whether a model is at least as good as the anchor, by the first metric that both were measured on."""
    for name in settings.compared_metrics():
        metric = CATALOG[name]
        if evaluation.value(name) is None:
            continue
        paired = [result for result in evaluation.results if name in anchor.get(result.id, {})]
        compared = _compare(paired, anchor, metric, evaluation.bootstrap(settings.confidence))
        if compared.interval.units:
            return compared.difference <= 0
    return False


def _compare(
    results: Sequence[UtteranceResult], other: OtherMetrics, metric: Metric, bootstrap: Bootstrap
) -> Comparison:
    """Compares one metric by utterance; a positive difference is worse, whichever direction of the metric is better."""
    return bootstrap.compare(
        [result.metrics[metric.name] for result in results],
        [other[result.id][metric.name] for result in results],
        [result.speaker for result in results],
        metric.kind,
        sign=metric.sign,
    )


def _value(results: Sequence[UtteranceResult], other: OtherMetrics, metric: Metric) -> float:
    return aggregate([other[result.id][metric.name] for result in results], metric.kind) or 0.0


@dataclasses.dataclass(frozen=True)
class RepeatedOutput:
    """A model's output in a fresh process, compared with the one that evaluate recorded.

    Attributes:
      passed: None if there was nothing to compare.
      detail: a sentence for a person.
      difference: in the unit of the family's tolerance.
    """

    passed: bool | None
    detail: str
    difference: float | None = None

    @classmethod
    def by_difference(
        cls, passed: bool, action: str, finding: str, difference: float, accepted: str
    ) -> "RepeatedOutput":
        """The result of a family whose outputs are sounds, which differ by roundings even if all is well.

        Args:
          action: of the fresh process, such as "vocoded the mels".
          finding: sizes of both outputs, and how far they are apart.
          accepted: the largest accepted difference, as the message writes it.
        """
        if passed:
            return cls(True, f"a fresh process loaded the model and {action}: {finding}", difference)
        detail = f"a fresh process {action} differently: {finding}; at most {accepted} is accepted"
        return cls(False, detail, difference)
