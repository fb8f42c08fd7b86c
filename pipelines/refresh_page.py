"""The page of a refresh: what changed since the version before, what it cost, and what the checks found."""

from typing import Any

from components.publish.difference import Changed, Difference, Line, difference, word_difference
from components.speech.dataset import Dataset
from components.speech.mirror import local
from components.speech.pages import Block, Page, details, facts, note, table, verdict
from components.speech.storage import read_json
from pipelines.record import RunRecord, StepRecord

MOST_NAMED = 200
"""Utterances of a kind that stand on the page; `voxline diff` names more."""


def refresh_page(record: RunRecord, published: StepRecord) -> Page:
    """The page of a refresh that came to its end."""
    version = Dataset.read(local(published.folder), shards=False)
    counts = published.counts
    made = Page(
        record.reason, lead=f"What {record.config['corpus']['uri']} held, as a dataset.", footer=published.folder
    )
    made.opening(
        verdict(record.reason, f"{counts['utterances']:,} utterances in version {counts['version']:,}.", "good"),
        facts({"hours": sum(version.seconds.values()) / 3600, **version.counts}),
    )
    made.section("What changed", *_changes(published, version))
    made.section("What it cost", _steps(record.steps))
    made.section("What the checks found", *_checks(record))
    return made


def _changes(published: StepRecord, version: Dataset) -> list[Block]:
    if published.reused:
        return [note(f"Nothing has, since version {published.counts['version']:,} was published.")]
    replaced = read_json(local(published.outputs["version"]))["replaces"]
    if replaced is None:
        return [note("This is the first version.")]
    place = published.folder.rpartition("/")[0]
    found = difference(Dataset.read(local(f"{place}/{replaced}"), shards=False), version)
    rows = [(kind.replace("_", " "), count) for kind, count in found.counts().items()]
    told = (
        "The test set changed: figures of models that were measured on either version cannot be compared."
        if found.test_changed()
        else "The test set is the same: figures measured on either version can be compared."
    )
    return [table(["utterances", "since version " + str(replaced)], rows, told), *_named(found)]


def _named(found: Difference) -> list[Block]:
    """The utterances of each kind, to be unfolded."""
    lines = {"Added": found.added, "Removed": found.removed}
    changes = {"Text changed": found.texts, "Audio changed": found.audio, "Moved to another split": found.moved}
    return [
        *(
            _folded(kind, ["utterance", "split", "text"], [_line(one) for one in some])
            for kind, some in lines.items()
            if some
        ),
        *(
            _folded(kind, ["utterance", "split", "text"], [_change(one) for one in some])
            for kind, some in changes.items()
            if some
        ),
    ]


def _folded(kind: str, columns: list[str], rows: list[tuple[Any, ...]]) -> Block:
    more = (
        f"The first {MOST_NAMED:,} of {len(rows):,}; `voxline diff` names them all." if len(rows) > MOST_NAMED else ""
    )
    return details(f"{kind}: {len(rows):,}", table(columns, rows[:MOST_NAMED], more))


def _line(line: Line) -> tuple[str, str, str]:
    return line["id"], line["split"], line["text"]


def _change(one: Changed) -> tuple[str, str, str]:
    before, after = one.before, one.after
    split = after["split"] if before["split"] == after["split"] else f"{before['split']} → {after['split']}"
    return one.id, split, word_difference(before["text"], after["text"])


def _steps(steps: list[StepRecord]) -> Block:
    rows = []
    for step in steps:
        counted = ", ".join(f"{n:,} {what}" for what, n in step.counts.items() if what != "version")
        rows.append((step.name, f"{step.seconds:.1f}", step.reused, counted))
    return table(["step", "seconds", "reused", "what it counted"], rows)


def _checks(record: RunRecord) -> list[Block]:
    validated = record.step("validate")
    if validated is None or "validation" not in validated.outputs:
        return [note("Validate left nothing to read.")]
    found = read_json(local(validated.outputs["validation"]))
    rows = [
        (check["name"], check["severity"], check["detail"]) for check in found["checks"] if check["outcome"] == "failed"
    ]
    page = f"All of them, with plots and players: {validated.outputs['report']}"
    return [table(["check", "severity", "in words"], rows), note(page)] if rows else [note("No warnings."), note(page)]
