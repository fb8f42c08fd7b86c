"""`report.html` in a run's folder: the page of the last step that wrote one, with what only the run knows.

That is the run's name and date, the revision of the code, the settings that differ from the last run in this folder,
and the warnings of validate, whose page is copied beside it. A failed run has the page of `failure_page`.
"""

import contextlib
import shutil
import time
from pathlib import Path

from voxline.components.publish.diff import describe_comparability, diff_datasets
from voxline.components.publish.diff_report import counts_table, utterance_lists
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.forecast.run_forecast import format_figure, title_of
from voxline.metrics.evaluation import RUN_DETAILS_SLOT, RUN_SLOT, VERDICT_SLOT
from voxline.notify.cost import cost_phrases
from voxline.pipelines.config.locations import corpus_uris
from voxline.pipelines.local.failure_page import failure_page, find_fresh, steps_table
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.pipelines.steps import STEPS, Step, writer_of
from voxline.provenance import git_revision
from voxline.report import (
    Block,
    Page,
    badge,
    data_table,
    details,
    fill_slot,
    format_duration,
    link,
    plural,
    retitle,
    small_print,
    stat_cards,
    verdict_banner,
)
from voxline.settings import changed_settings
from voxline.store.files import read_json, write_text

REPORT = "report.html"


def write_run_report(record: RunRecord) -> None:
    """Writes the run's page, and notes it in the record. It never makes a run fail."""
    # The last page about the model is worth showing of any run; the others only of one that ended well. A step with a
    # page of its own explains its failure there.
    stopped = record.status in ("failed", "interrupted")
    reporting = [step for step in reversed(STEPS.values()) if step.report and (step.judges or not stopped)]
    failed_step = STEPS.get(record.failed_step or "")
    candidates = [failed_step] if failed_step and failed_step.page else reporting
    source = next(((step, page) for step in candidates if (page := _page_of(record, step.name))), None)

    # A page that becomes the run's report is not in the folder a second time; nor is one of the run before.
    for step in STEPS.values():
        if step.page:
            (record.run_dir / step.page).unlink(missing_ok=True)
            if source is None or source[0] != step:
                _copy_page(record, step)

    published = record.step(writer_of("datasets"))
    if published and published.status == "succeeded" and record.steps[-1] is published:
        refresh_page(record, published).write(record.run_dir / REPORT)
    elif source:
        step, page = source
        write_text(record.run_dir / REPORT, _with_run(page.read_text(encoding="utf-8"), record, step))
    elif record.status == "failed" and record.steps:
        failure_page(record).write(record.run_dir / REPORT)
    else:
        (record.run_dir / REPORT).unlink(missing_ok=True)
        return
    record.report = REPORT


def name_logs(record: RunRecord) -> None:
    """Copies train's TensorBoard files to `tensorboard/` in the run's folder, under a name for people.

    The name holds the run, the date and the main settings, so `tensorboard --logdir RUN_DIR/tensorboard` compares the
    runs of this folder. A training that is reused keeps its first name.
    """
    trained = record.step_with("logs")
    if trained is None or trained.status != "succeeded":
        return

    # The key at the end of the name tells trainings apart whose main settings are the same.
    folder = record.run_dir / "tensorboard"
    short_key = trained.key[:6]
    if any(folder.glob(f"*{short_key}")):
        return

    settings = record.config[STEPS[trained.name].config_section]
    kind = settings.get("model", {}).get("kind", record.pipeline)
    summary = f"{kind}, {settings['epochs']} epochs, rate {settings['learning_rate']:g}, seed {settings['seed']}"
    date = time.strftime("%Y-%m-%d %H.%M", time.gmtime(record.started))
    with contextlib.suppress(WorkError, OSError):  # a nicety: the logs stay in the store
        shutil.copytree(trained.output("logs"), folder / f"{record.name} {date}, {summary}, {short_key}")


def refresh_page(record: RunRecord, published: StepRecord) -> Page:
    """The report of a refresh that finished."""
    version = Dataset.read(published.folder, shards=False)
    counts = published.counts
    page = Page(
        _title(record, record.reason),
        lead=f"The content of {corpus_uris(record.config)} as a dataset.",
        footer=published.folder,
    )

    # The figures of the version, not of the run: a refresh that found nothing new shows the version in use.
    page.add_opening(
        _facts(record),
        _anomalies(record),
        verdict_banner(record.reason, f"{counts['utterances']:,} utterances in version {counts['version']:,}.", "good"),
        stat_cards({"audio": format_duration(sum(version.seconds.values())), **version.counts}),
    )

    page.add_section("What changed", *_change_blocks(published, version))
    page.add_section("Steps", steps_table(record.steps))
    page.add_section("Checks", _warnings(record))
    return page


def _title(record: RunRecord, subject: str) -> str:
    return f"{record.name}: {subject}"


def _date(started: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(started))


def _with_run(html: str, record: RunRecord, step: Step) -> str:
    """A step's page with the run's name and facts."""
    model = record.config["model"] or "the model"
    subject = step.report.format(model=model)
    with contextlib.suppress(WorkError):  # validate's page has no slot
        html = fill_slot(html, RUN_SLOT, _facts(record))
        if record.published:  # push has no page: it published the model, and did not end
            html = fill_slot(
                html, VERDICT_SLOT, verdict_banner("In service, but push did not end", record.reason, "bad")
            )
        html = fill_slot(html, RUN_DETAILS_SLOT, _anomalies(record) + _warnings(record) + _differences(record))
    return retitle(html, _title(record, subject))


def _facts(record: RunRecord) -> Block:
    revision = git_revision() or "unknown"
    dirty = " with local changes" if revision.endswith("+changes") else ""
    facts = [
        f"Run {record.name}, {_date(record.started)}",
        f"{format_duration(time.time() - record.started)}",
        f"corpus {corpus_uris(record.config)}",
        *cost_phrases(record.cost.to_dict() if record.cost else None),
        f"code {revision.removesuffix('+changes')[:12]}{dirty}",
    ]
    return small_print(" · ".join(facts))


def _differences(record: RunRecord) -> Block:
    """The settings that differ from the last run in this folder."""
    if record.previous is None:
        return Block("")
    # config.yaml leaves `cluster` out, which says nothing about a run on this machine.
    before = {**record.previous["config"], "cluster": {}}
    after = {**record.config, "cluster": {}}
    changed = changed_settings(before, after)

    last = f"the last run here ({record.previous['started']})"
    if not changed:
        return small_print(f"The same settings as in {last}.")
    table = data_table(["setting", "last run", "this run"], changed, label="Settings that differ from the last run")
    return details(f"{plural(len(changed), 'setting')} changed since {last}", table)


def _anomalies(record: RunRecord) -> Block:
    """The figures that stand out from the runs before."""
    if not record.anomalies:
        return Block("")
    rows = [
        (
            title_of(anomaly.figure),
            format_figure(anomaly.figure, anomaly.value),
            f"{format_figure(anomaly.figure, anomaly.expected)} ± {format_figure(anomaly.figure, anomaly.deviation)}",
        )
        for anomaly in record.anomalies
    ]
    table = data_table(["figure", "this run", "expected"], rows, label="Figures that stand out")
    heading = f"{plural(len(rows), 'figure')} outside what the runs before lead to expect"
    return details(heading, table, opened=True)


def _warnings(record: RunRecord) -> Block:
    """Validate's warnings, with a link to its page."""
    validated = record.step_with("validation")
    if validated is None:
        return small_print("Validate wrote no results.")
    try:
        validation = read_json(validated.output("validation"))
    except WorkError:
        return small_print("Validate's results cannot be read.")

    # A check whose severity is "error" has failed the step; the others warn.
    failed = [check for check in validation["checks"] if check["outcome"] == "failed"]
    rows = [
        (
            badge("failed", "bad") if check["severity"] == "error" else badge("warning", "caution"),
            check["name"],
            check["detail"],
        )
        for check in failed
    ]

    page_link = link("All checks of the corpus, with plots and players", STEPS[validated.name].page)
    page = small_print(Block("{}.").format(page_link))
    if not rows:
        return small_print("Validate found nothing to warn of.") + page
    table = data_table(["result", "check", "finding"], rows, label="Warnings of validate")
    return details(f"{plural(len(rows), 'warning')} about the corpus", table, page, opened=True)


def _copy_page(record: RunRecord, step: Step) -> None:
    """Copies a step's page, so that the folder is complete without the store."""
    if page := _page_of(record, step.name):
        shutil.copyfile(page, record.run_dir / step.page)


def _page_of(record: RunRecord, name: str) -> Path | None:
    """The file of a step's page; None if the step did not run, or its page is gone."""
    step = record.step(name)
    if step is None:
        return None
    if "report" in step.outputs:
        with contextlib.suppress(WorkError):
            page = step.output("report")
            return page if page.is_file() else None
    # A failed step has no recorded folder; its report is the one written since this run started.
    return find_fresh(record, name, REPORT) if step.status == "failed" else None


def _change_blocks(published: StepRecord, version: Dataset) -> list[Block]:
    """The differences of a dataset version from the one that it replaces."""
    if published.reused:
        return [small_print(f"Nothing has changed since version {published.counts['version']:,} was published.")]
    replaced = read_json(published.output("version"))["replaces"]
    if replaced is None:
        return [small_print("This is the first version.")]

    # Versions are folders beside each other, named by their numbers.
    folder = published.folder.rpartition("/")[0]
    diff = diff_datasets(Dataset.read(f"{folder}/{replaced}", shards=False), version)
    return [
        counts_table(diff, f"since version {replaced}"),
        small_print(describe_comparability(diff)),
        *utterance_lists(diff),
    ]
