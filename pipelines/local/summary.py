"""The result of a run: its metrics, the verdict, its report, and the last lines that the command prints."""

import shutil
from pathlib import Path

from voxline.components.publish.diff import describe_comparability, diff_datasets
from voxline.components.publish.diff_report import counts_table, utterance_lists
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.metrics.catalog import headline_metrics
from voxline.pipelines.local.failure_page import failure_page, find_fresh
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.report import Block, Page, data_table, small_print, stat_cards, verdict_banner
from voxline.store.files import read_json
from voxline.store.localize import localize
from voxline.store.uris import is_remote

REPORT = "report.html"
REPORT_STEPS = ("push", "evaluate", "validate")
"""Steps that write a report. The run's report is that of the first one here that finished."""


def finalize(record: RunRecord) -> None:
    """Fills in the results of the steps that finished."""
    evaluated, pushed = record.step("evaluate"), record.step("push")
    if evaluated:
        record.metrics = dict(evaluated.metrics)
    if pushed and pushed.status == "succeeded":
        verdict = read_json(localize(pushed.outputs["verdict"]))
        record.pushed = bool(verdict["pushed"])
        record.reason = verdict["heading"]
        record.model = verdict["model"]
    published = record.step("publish")
    if published and published.status == "succeeded":
        record.dataset = published.folder
        record.reason = _publish_reason(record, published)

        refresh_page(record, published).write(record.run_dir / REPORT)
        record.report = REPORT
        return
    page = _report_page(record)
    failed = record.status == "failed" and record.failed_step
    if failed and (page is None or find_fresh(record, str(failed), REPORT) is None):
        failure_page(record).write(record.run_dir / REPORT)
        record.report = REPORT
    elif page is None:
        (record.run_dir / REPORT).unlink(missing_ok=True)
    else:
        shutil.copyfile(page, record.run_dir / REPORT)
        record.report = REPORT


def _publish_reason(record: RunRecord, step: StepRecord) -> str:
    name, number = record.config["publish"]["name"], step.counts["version"]
    if step.reused:
        return f"Nothing has changed since version {number} of {name}"
    return f"Published as version {number} of {name}"


def _report_page(record: RunRecord) -> Path | None:
    for name in REPORT_STEPS:
        step = record.step(name)
        if step is None:
            continue
        if "report" in step.outputs and (page := _existing(step.outputs["report"])):
            return page
        if step.status == "failed" and (fresh := find_fresh(record, name, REPORT)):
            return fresh
    return None


def _existing(uri: str) -> Path | None:
    try:
        page = localize(uri)
    except WorkError:
        return None
    return page if page.is_file() else None


def summary_lines(record: RunRecord) -> list[str]:
    """The last lines of a run; the verdict comes last."""
    minutes, seconds = divmod(round(record.seconds), 60)
    reused = [step.name for step in record.steps if step.reused]
    lines = [""]
    lines += _metric_lines(record)
    lines.append(f"time             {minutes} min {seconds} s" if minutes else f"time             {seconds} s")
    if reused:
        lines.append(f"reused           {', '.join(reused)}: unchanged input")
    if record.report:
        lines.append(f"report           {_relative(record.run_dir / record.report)}")
    lines.append(f"log              {_relative(record.run_dir / 'run.log')}")
    if record.model:
        lines.append(f"in service       {_relative(record.model)}")
    if record.dataset:
        lines.append(f"dataset          {_relative(record.dataset)}")
    if record.status == "succeeded":
        lines.append(record.reason)
    return lines


def _metric_lines(record: RunRecord) -> list[str]:
    """A line for each headline metric, with its interval if it is known."""
    if published := record.step("publish"):
        splits = [
            f"{published.counts[split]:,} {split}" for split in ("train", "dev", "test") if split in published.counts
        ]
        return [f"{'utterances':<17}{', '.join(splits)}"] if splits else []
    if not record.metrics:
        return []
    confidence = f"{100 * record.config['evaluate']['confidence']:g}%"
    lines = []
    for metric in headline_metrics(record.pipeline):
        value, low, high = (record.metrics.get(metric.name + end) for end in ("", "_low", "_high"))
        if value is None:
            lines += [f"{metric.label:<17}not measured: set {metric.setting}"] if metric.setting else []
            continue
        interval = f"  ({confidence} interval {metric.format(low)} to {metric.format(high)})"
        lines.append(f"{metric.label:<17}{metric.format(value)}{'' if low is None or high is None else interval}")
    return lines


def _relative(path: Path | str) -> str:
    """The path relative to the current folder, if it is below it."""
    if is_remote(str(path)):
        return str(path)
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def refresh_page(record: RunRecord, published: StepRecord) -> Page:
    """The report of a refresh that finished."""
    version = Dataset.read(published.folder, shards=False)
    counts = published.counts
    page = Page(
        record.reason, lead=f"The content of {record.config['corpus']['uri']} as a dataset.", footer=published.folder
    )
    page.add_opening(
        verdict_banner(record.reason, f"{counts['utterances']:,} utterances in version {counts['version']:,}.", "good"),
        stat_cards({"hours": sum(version.seconds.values()) / 3600, **version.counts}),
    )
    page.add_section("What changed", *_change_blocks(published, version))
    page.add_section("Steps", _step_table(record.steps))
    page.add_section("Checks", *_check_blocks(record))
    return page


def _change_blocks(published: StepRecord, version: Dataset) -> list[Block]:
    if published.reused:
        return [small_print(f"Nothing has changed since version {published.counts['version']:,} was published.")]
    replaced = read_json(localize(published.outputs["version"]))["replaces"]
    if replaced is None:
        return [small_print("This is the first version.")]
    folder = published.folder.rpartition("/")[0]
    diff = diff_datasets(Dataset.read(f"{folder}/{replaced}", shards=False), version)
    return [
        counts_table(diff, f"since version {replaced}"),
        small_print(describe_comparability(diff)),
        *utterance_lists(diff),
    ]


def _step_table(steps: list[StepRecord]) -> Block:
    rows = []
    for step in steps:
        counts = ", ".join(f"{count:,} {what}" for what, count in step.counts.items() if what != "version")
        rows.append((step.name, f"{step.seconds:.1f}", step.reused, counts))
    return data_table(["step", "seconds", "reused", "counts"], rows)


def _check_blocks(record: RunRecord) -> list[Block]:
    validated = record.step("validate")
    if validated is None or "validation" not in validated.outputs:
        return [small_print("Validate wrote no results.")]
    validation = read_json(localize(validated.outputs["validation"]))
    rows = [
        (check["name"], check["severity"], check["detail"])
        for check in validation["checks"]
        if check["outcome"] == "failed"
    ]
    page = f"All checks, with plots and players: {validated.outputs['report']}"
    return (
        [data_table(["check", "severity", "detail"], rows), small_print(page)]
        if rows
        else [small_print("No warnings."), small_print(page)]
    )
