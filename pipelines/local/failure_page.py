"""The report of a run that failed: which step, why, what it rejected, and how far the run came."""

import contextlib
import time
from pathlib import Path

from voxline.data.manifest import iter_manifest, read_rejects
from voxline.errors import VoxlineError
from voxline.pipelines.config.locations import corpus_uris
from voxline.pipelines.graphs import graph_of, optional_steps
from voxline.pipelines.local.run_record import RunRecord, StepRecord
from voxline.rejects import RejectSummary, summarize_rejects
from voxline.report import Block, Page, PlayerBudget, badge, data_table, paragraphs, small_print, verdict_banner
from voxline.store.objects import open_store

REJECTS = "rejects.jsonl"
MAX_PLAYERS = 8


def failure_page(record: RunRecord) -> Page:
    """The page of a failed run."""
    step = record.failed_step or "the graph"
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.started))
    page = Page(
        f"{record.name}: failed in {step}",
        lead=f"Pipeline {record.pipeline}, started {started}, corpus {corpus_uris(record.config)}.",
        footer=str(record.run_dir),
    )

    # The first line of a message is the fault; the lines after it are details, and the rejects are its evidence.
    fault, _, explanation = record.reason.partition("\n")
    page.add_opening(verdict_banner(f"{step} failed", fault, "bad"))
    if explanation:
        page.add_section("Why", paragraphs("\n\n".join(line.strip() for line in explanation.splitlines())))
    if rejects := _reject_blocks(record, step):
        page.add_section("Rejected utterances by reason", *rejects)

    log = small_print(f"All output of all steps: {record.run_dir / 'run.log'}")
    page.add_section("Steps", steps_table(record.steps), log)
    page.add_section(
        "What to do next",
        paragraphs(
            "Correct the cause and run the same command again: steps that succeeded are reused, and a step that was "
            "stopped resumes."
        ),
    )
    return page


def find_fresh(record: RunRecord, step: str, name: str) -> Path | None:
    """The file of that name that a step without a recorded folder has written since the run started.

    The store may be other runs' too, so it counts only if the step's message names it.
    """
    store = open_store(record.config["store"]) / step
    folder = store.local_path()
    fresh = [file for file in folder.glob(f"**/{name}") if file.stat().st_mtime >= record.started]

    # A message names a file of a bucket by its URI, and one on this machine by its path.
    spellings = {file: (str(file), store.uri_of(file.relative_to(folder).as_posix())) for file in fresh}
    named = [file for file in fresh if any(spelling in record.reason for spelling in spellings[file])]
    return max(named, key=lambda file: file.stat().st_mtime, default=None)


def _reject_blocks(record: RunRecord, step: str) -> list[Block]:
    file = find_fresh(record, step, REJECTS)
    if file is None:
        return []
    with contextlib.suppress(VoxlineError):  # a damaged file leaves the page without these blocks
        summaries = summarize_rejects(read_rejects(file))
        players = _players(record, step, summaries)
        rows = [
            [
                summary.reason,
                summary.count,
                summary.example.id,
                summary.example.detail,
                summary.remedy,
                players.get(summary.example.id, ""),
            ]
            for summary in summaries
        ]
        columns = ["reason", "utterances", "example", "detail", "what helps", "recording"]
        return [data_table(columns, rows), small_print(f"All of them: {file}")] if rows else []
    return []


def _players(record: RunRecord, step: str, summaries: list[RejectSummary]) -> dict[str, Block]:
    """A player for the example of each reason, by its id."""
    # Rejects name utterances; their audio is in the manifest that the step read.
    graph = graph_of(record.pipeline, optional_steps(record.pipeline))
    source = record.step(graph.get(step, {}).get("manifest", ""))
    if source is None or "manifest" not in source.outputs:
        return {}

    example_ids = {summary.example.id for summary in summaries[:MAX_PLAYERS]}
    budget = PlayerBudget()
    players = {}
    for utterance in iter_manifest(source.output("manifest")):
        if utterance.id in example_ids:
            players[utterance.id] = budget.player(
                Path(utterance.audio_filepath),
                utterance.id,
                offset=utterance.offset,
                duration=utterance.duration or None,
            )
    return players


def steps_table(steps: list[StepRecord]) -> Block:
    """A row for each step that ran: its result, seconds and counts."""
    rows = []
    for step in steps:
        # The number of a dataset version is among publish's counts, but counts nothing.
        counts = ", ".join(f"{count:,} {name}" for name, count in step.counts.items() if name != "version")
        state = badge("reused") if step.reused else badge(step.status, "good" if step.status == "succeeded" else "bad")
        rows.append((step.name, state, f"{step.seconds:.1f}", counts or "none"))
    return data_table(["step", "result", "seconds", "counts"], rows, label="Steps")
