"""The page of a refresh: what changed since the version before, what it cost, and what the checks found."""

from components.publish.difference import difference, for_the_gate
from components.publish.page import counted, named
from components.speech.dataset import Dataset
from components.speech.mirror import local
from components.speech.pages import Block, Page, facts, note, table, verdict
from components.speech.storage import read_json
from pipelines.record import RunRecord, StepRecord


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
    return [counted(found, f"since version {replaced}"), note(for_the_gate(found)), *named(found)]


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
