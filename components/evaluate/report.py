"""The report of an evaluation: one page for every family, with the family's own sections in it."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.measurement import SLICES
from voxline.data.drafts import describe_drafts
from voxline.data.licences import NOT_STATED, describe_licences
from voxline.inference.model_info import ModelInfo
from voxline.metrics.bootstrap import MIN_UNITS
from voxline.metrics.catalog import CATALOG, Metric, headline_metrics
from voxline.metrics.evaluation import (
    HISTORY_SLOT,
    RTF,
    RUN_DETAILS_SLOT,
    RUN_SLOT,
    VERDICT_SLOT,
    BaselineInfo,
    BeforeInfo,
    EvaluationInfo,
    IntervalInfo,
    SummaryInfo,
)
from voxline.metrics.summaries import before_cells
from voxline.report import (
    Block,
    Page,
    bar_plot,
    data_table,
    details,
    figure,
    format_duration,
    line_plot,
    paragraphs,
    plural,
    sentence_case,
    side_by_side,
    slot,
    small_print,
    stat_cards,
)

ERROR_KINDS = ("substitution_rate", "deletion_rate", "insertion_rate")
SLICING_TITLES = {"snr": "signal-to-noise ratio (estimate)", "level": "level", "words": "length in words"}
MAX_SLICES = 30
"""Slices drawn in one plot; the table below it has up to ten times as many."""


def write_report(
    path: Path,
    info: EvaluationInfo,
    sections: Sequence[tuple[str, list[Block]]],
    method: str,
    curves: dict[str, Any] | None,
) -> None:
    """Writes the page. Push fills the slots of its verdict and of the history, the run that of its facts.

    Args:
      info: the contents of `metrics.json`.
      sections: the family's own; (SLICES, []) among them is the place of the shared section.
      method: how the family measures, in paragraphs.
      curves: the contents of train's `curves.json`.
    """
    model = info.model
    page = Page(
        f"Evaluation of {model.name}",
        lead=f"Model {model.digest[:12]} on {info.utterances:,} utterances of the split “{info.test.split}”, "
        f"{format_duration(info.seconds)} by {plural(info.test.speakers, 'speaker')}.",
        footer=f"Evaluation {info.key}. Model {model.digest}. Test utterances {info.test.fingerprint}.",
    )
    verdict = slot(VERDICT_SLOT, small_print("Not judged yet; push writes its verdict here."))
    page.add_opening(slot(RUN_SLOT), verdict, _cards(info), slot(RUN_DETAILS_SLOT))
    page.add_section("Metrics", *_metrics_table(info))
    page.add_section("Comparison with the model in service", *_comparison(info))

    if info.before:
        page.add_section("Before and after tuning", *_before_and_after(info, info.before))

    # A family that names no place for the slices gets them behind its own sections.
    if SLICES not in dict(sections):
        sections = [*sections, (SLICES, [])]
    for heading, blocks in sections:
        page.add_section(heading, *(_slices(info) if heading == SLICES else blocks))

    # A model that was converted or imported has no curves.
    if curves and curves["train"]:
        page.add_section("Training", *_training(curves, model.about))
    page.add_section("Data", *_data(info))
    page.add_section("History", slot(HISTORY_SLOT, small_print("Push lists the versions of the registry here.")))
    page.add_section("How this was measured", paragraphs(f"{method}\n\n{_describe_intervals(info)}"))
    page.write(path)


def _training(curves: dict[str, Any], info: ModelInfo) -> list[Block]:
    """The curves of the training, with the checkpoint that was exported."""
    train = curves["train"]
    dev = curves["dev"]
    best = info.provenance.trained.get("best_step")
    mark = None if best is None else (float(best), "checkpoint")
    steps = sorted({float(point["step"]) for point in (*train, *dev)})
    plots = [_curve(steps, {"train": train, "dev": dev}, "loss", mark)]
    names = [name for name in (dev[0] if dev else {}) if name not in ("epoch", "step", "loss")]
    plots += [_curve(steps, {"dev": dev}, name, mark) for name in names[:3]]

    # Figures of the optimizer are folded away: they matter once the curves above look wrong.
    optimizer = [name for name in ("learning_rate", "gradient_norm") if name in train[0]]
    more = [_curve(steps, {"train": train}, name, mark) for name in optimizer]
    blocks: list[Block] = [side_by_side(*plots)]
    if best is not None:
        blocks.insert(0, small_print(f"The weights of step {best:,} were exported: the best on dev."))
    return [*blocks, details("Learning rate and gradient norm", side_by_side(*more))] if more else blocks


def _curve(
    steps: list[float], points: dict[str, list[dict[str, float]]], name: str, mark: tuple[float, str] | None
) -> Block:
    columns: dict[str, list[float]] = {}
    for series, measured in points.items():
        by_step = {float(point["step"]): point[name] for point in measured if name in point}
        if by_step:
            columns[series] = [by_step.get(step, math.nan) for step in steps]
    metric = CATALOG.get(name)
    title = f"dev {metric.title}" if metric else name.replace("_", " ")
    connected = {series: _without_gaps(column) for series, column in columns.items()}
    plot = line_plot(steps, connected, "step", title, percent=bool(metric and metric.unit == "%"), mark=mark)
    return figure(plot, f"{sentence_case(title)} by training step.")


def _without_gaps(values: list[float]) -> list[float]:
    """Interpolates between known values, since train and dev are measured at different steps."""
    measured = [index for index, value in enumerate(values) if math.isfinite(value)]
    filled = list(values)
    for left, right in itertools.pairwise(measured):
        for index in range(left + 1, right):
            share = (index - left) / (right - left)
            filled[index] = values[left] + share * (values[right] - values[left])
    return filled


def _data(info: EvaluationInfo) -> list[Block]:
    rows = [
        [split, counts.utterances, format_duration(counts.seconds), counts.speakers or None]
        for split, counts in info.data.items()
    ]
    seen = info.test.also_in_train
    share = seen / info.utterances
    note = f"{seen:,} of the {info.utterances:,} test utterances have a sentence that train contains too ({share:.0%})."
    table = data_table(["split", "utterances", "audio", "speakers"], rows, label="Data by split")
    dataset = info.model.about.dataset
    drafts = describe_drafts(dataset.drafts)
    trained = [small_print(f"Of train, {drafts}: no person transcribed these.")] if drafts else []
    licences = small_print(f"Licences of train and dev: {describe_licences(dataset.licences) or NOT_STATED}.")
    version = [small_print(f"Dataset {info.test.dataset}.")] if info.test.dataset else []
    return [table, *version, *trained, licences, small_print(note)]


def _headline(info: EvaluationInfo) -> list[Metric]:
    return [metric for metric in headline_metrics(info.family) if metric.name in info.metrics]


def _cards(info: EvaluationInfo) -> Block:
    # Speed is the inverse of the real-time factor: more is better, as a person expects of a speed.
    cards = {metric.title: metric.format(info.metrics[metric.name].value) for metric in _headline(info)}
    rtf = info.metrics[RTF].value
    speed = "—" if not rtf else f"{1 / rtf:,.0f}" if rtf < 0.01 else f"{1 / rtf:.3g}"
    return stat_cards({**cards, "speed, × real time": speed})


def _metrics_table(info: EvaluationInfo) -> list[Block]:
    columns = ["metric", "measured", f"{100 * info.bootstrap.confidence:g}% interval", "utterances"]
    if info.champion:
        columns += [f"version {info.champion.version}", "difference", "worse with probability"]
    rows = []
    for name, measured in info.metrics.items():
        metric = CATALOG[name]
        row: list[Any] = [
            metric.title,
            metric.format(measured.value),
            metric.format_range(measured.interval.low, measured.interval.high),
            measured.measured,
        ]
        if info.champion:
            # A metric of the new model alone leaves these cells empty.
            compared = measured.comparison
            worse = compared and compared.probability_worse
            row += [
                metric.format(compared.champion_value) if compared else None,
                metric.format_difference(compared.difference) if compared else None,
                None if worse is None else f"{worse:.0%}",
            ]
        rows.append(row)
    return [data_table(columns, rows, label="Metrics")]


def baseline_table(info: EvaluationInfo, baseline: dict[str, BaselineInfo], name: str) -> Block:
    """The metrics of this model beside those of a baseline.

    Args:
      baseline: as `compare_with` returned it.
      name: of the baseline.
    """
    rows = []
    for key, compared in baseline.items():
        metric = CATALOG[key]
        interval = compared.interval
        rows.append(
            [
                metric.title,
                metric.format(compared.value),
                metric.format(info.metrics[key].value),
                metric.format_difference(compared.difference),
                "—" if interval.low is None or interval.high is None else _difference_range(metric, interval),
            ]
        )
    confidence = f"{100 * info.bootstrap.confidence:g}%"
    columns = ["metric", name, "this model", "difference", f"{confidence} interval of the difference"]
    return data_table(columns, rows, label=f"This model beside {name}")


def _difference_range(metric: Metric, interval: IntervalInfo) -> str:
    """Writes the ends of an interval of a difference."""
    return f"{metric.format_difference(interval.low)} to {metric.format_difference(interval.high)}"


def _comparison(info: EvaluationInfo) -> list[Block]:
    """The first headline metric of both models."""
    headline = _headline(info)
    measured = info.metrics[headline[0].name] if headline else None
    if not info.champion or measured is None or measured.comparison is None:
        return [small_print("No other model is in service under this name, so there is nothing to compare with.")]

    metric = headline[0]
    version = f"version {info.champion.version}"
    compared = measured.comparison
    worse = compared.probability_worse
    blocks = [
        stat_cards(
            {
                f"{metric.title}, {version}": metric.format(compared.champion_value),
                "difference": metric.format_difference(compared.difference),
                "interval of the difference": _difference_range(metric, compared.interval),
                "probability of being worse": "—" if worse is None else f"{worse:.0%}",
            }
        )
    ]
    if measured.value is not None and compared.champion_value is not None:
        values = {"this model": measured.value, version: compared.champion_value}
        intervals = {"this model": measured.interval, version: compared.champion_interval}
        caption = f"{sentence_case(metric.title)} of both models on the same utterances, with intervals."
        blocks.append(figure(_bars(metric, values, intervals), caption))
    better = "Above zero is worse" if metric.better == "lower" else "Below zero is worse"
    return [*blocks, small_print(f"The difference is computed utterance by utterance. {better}.")]


def _before_and_after(info: EvaluationInfo, before: BeforeInfo) -> list[Block]:
    """The untouched parent and this model, on each split and on the probe."""
    if not before.parts:
        return [small_print(f"{before.label} was not measured before tuning: {before.missing}.")]
    rows = [
        [part, summary.utterances, *cells]
        for part, summary in before.parts.items()
        for cells in before_cells(info.family, summary)
    ]
    columns = ["on", "utterances", "metric", "before", "after", "difference"]
    columns.append(f"{100 * info.bootstrap.confidence:g}% interval of the difference")
    licence = f"licence: {before.licence or 'not stated'}"
    notes = [f"Before is {before.label} as it comes ({licence}); after is this model, on the same utterances."]
    if before.published:
        notes.append("Capitals and marks that no transcript has do not count as errors of the model before tuning.")
    if before.probe:
        notes.append(f"The probe is {before.probe.location}. {before.probe.missing}".rstrip())
    return [data_table(columns, rows, label="Before and after tuning"), small_print(" ".join(notes))]


def _slices(info: EvaluationInfo) -> list[Block]:
    plots: list[Block] = []
    tables: list[Block] = []
    headline = _headline(info)
    for name, slices in info.slices.items():
        title = SLICING_TITLES.get(name, name.replace("_", " "))
        if headline:
            metric = headline[0]
            values = {value: summary.metrics[metric.name].value or 0.0 for value, summary in slices.items()}
            intervals = {value: summary.metrics[metric.name].interval for value, summary in slices.items()}

            # A plot of hundreds of speakers shows nothing: the worst are drawn, in their order.
            drawn = values
            note = ""
            if len(values) > MAX_SLICES:
                worst = sorted(values, key=lambda value: -metric.sign * values[value])[:MAX_SLICES]
                drawn = {value: values[value] for value in worst}
                note = f", the {MAX_SLICES} worst of {len(values):,}"
            caption = f"{sentence_case(metric.title)} by {title}{note}, with intervals."
            plots.append(figure(_bars(metric, drawn, intervals), caption))
        table = _slice_table(title, list(slices.items())[: 10 * MAX_SLICES], info)
        tables.append(details(f"Table by {title}", table))
    return [side_by_side(*plots), *tables] if plots else tables


def _slice_table(title: str, slices: Sequence[tuple[str, SummaryInfo]], info: EvaluationInfo) -> Block:
    headline = [metric for metric in _headline(info) if metric.comparable]
    kinds = [CATALOG[name] for name in ERROR_KINDS if name in info.metrics]
    rows = []
    for value, summary in slices:
        row: list[Any] = [value, summary.utterances]
        row += [metric.format(summary.metrics[metric.name].value) for metric in headline]
        if headline:
            main = summary.metrics[headline[0].name]
            row.append(headline[0].format_range(main.interval.low, main.interval.high))
            row += [metric.format(summary.metrics[metric.name].value) for metric in kinds]
            if info.champion:
                row.append(headline[0].format_difference(main.comparison.difference if main.comparison else None))
        rows.append(row)

    # The columns follow the order in which a row was filled.
    columns = [title, "utterances", *(metric.title for metric in headline)]
    if headline:
        columns += ["interval", *(metric.title.partition(" ")[0] for metric in kinds)]
        columns += [f"over version {info.champion.version}"] if info.champion else []
    return data_table(columns, rows, label=f"Metrics by {title}")


def _bars(metric: Metric, values: dict[str, float], intervals: dict[str, IntervalInfo]) -> Block:
    # The interval of a few utterances is the widest possible, and would flatten the other bars.
    ends = {name: (intervals[name].low, intervals[name].high) for name in values if intervals[name].units >= MIN_UNITS}
    drawn = {name: (low, high) for name, (low, high) in ends.items() if low is not None and high is not None}
    return bar_plot(values, metric.title, intervals=drawn, percent=metric.unit == "%")


def _describe_intervals(info: EvaluationInfo) -> str:
    bootstrap = info.bootstrap
    headline = _headline(info)
    over = info.metrics[headline[0].name].interval.over if headline else "utterances"
    return (
        f"Intervals contain {100 * bootstrap.confidence:g}% of {bootstrap.samples:,} resamples over "
        f"{over} (seed {bootstrap.seed}). With {bootstrap.min_speakers} known speakers or more, speakers "
        "are resampled instead of utterances, because the utterances of a speaker are correlated. With fewer than five "
        "of either, the interval is the widest possible. If no error was counted, its upper end is the exact binomial "
        "bound.\n\n"
        "The probability of being worse is the share of resamples in which this model is worse than the model in "
        "service; ties count half. The real-time factor is seconds of computing per second of speech on the machine "
        "that evaluated; it is not compared."
    )
