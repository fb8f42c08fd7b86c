"""Rebuilds the journal of a model from what the registry still holds.

Each version's `version.json` repeats its line of the journal, and `provenance.json` says when it was pushed. Promotions
and withdrawals are in the journal alone. So a person names the version in production; no line is guessed. The damaged
file stays, as `journal.damaged-<time>.jsonl`.
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.registry.journal import (
    CANDIDATE,
    PRODUCTION,
    PROMOTE,
    WITHDRAW,
    History,
    Journal,
    JournalError,
    RegistryEvent,
    format_utc,
)
from voxline.registry.models_config import served_versions, write_models_config
from voxline.registry.registry import PROVENANCE, UNSIGNED, VERSION_FILE, Registry
from voxline.registry.signing import check_digest, digest_or_empty
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT


@dataclasses.dataclass(frozen=True)
class FoundVersion:
    """A version of which the journal may have no line.

    Attributes:
      event: the line that it gets.
      source: the record that the event comes from: the journal, `version.json`, or the files themselves.
      intact: whether the model's files are the ones that this record names.
    """

    event: RegistryEvent
    source: str
    intact: bool


def recover_journal(
    root: Path | str, model: str, production: int, candidate: int | None = None, note: str = ""
) -> list[RegistryEvent]:
    """Writes the journal again, whole or not at all. Returns its events.

    Lines that can still be read stay. Each version without a line gets that of its `version.json`.

    Args:
      production: the version that is in production from now on.
      candidate: the version that waits; None for none, also if one was waiting.
      note: the reason, for the journal.

    Raises:
      WorkError: the journal is whole; or a version does not exist, or its files are not the ones that were published.
      PreconditionError: another process changed the registry meanwhile; nothing was recovered.
    """
    registry = Registry(root, model)
    store = open_store(root) / model

    if candidate == production:
        raise WorkError(f"version {production} of {model} cannot be in production and wait as the candidate")
    with registry.rebuilding() as journal:
        try:
            registry.journal()
        except JournalError:
            pass
        else:
            raise WorkError(
                f"{registry.uri}: the journal is whole, so nothing was recovered; to change what is in production, use "
                "voxline models promote or rollback"
            )
        events, damaged = journal.salvage()
        versions = _find_versions(registry, events)
        by_number = {version.event.version: version for version in versions}
        for number in (production, candidate):
            if number is not None:
                registry.resolve(number)
                check_digest(registry.path(number), by_number[number].event.digest, UNSIGNED)

        for version in versions:
            if version.source != "journal":
                _insert(events, version.event)
        # The person names both aliases; nothing is concluded from the lines that are left.
        reason = f"journal recovered{': ' * bool(note)}{note}"
        for alias, number in ((PRODUCTION, production), (CANDIDATE, candidate)):
            _point(events, set(by_number), alias, number, reason)

        # The damaged file stays beside the new one; on condition that no earlier copy has its name.
        timestamp = format_utc(time.time())
        if damaged:
            backup = f"journal.damaged-{timestamp.replace('-', '').replace(':', '')}.jsonl"
            store.write(backup, damaged, if_version=ABSENT)
        journal.rebuild(events)

    write_models_config(root)
    return registry.journal()


def describe_recovery(root: Path | str, model: str) -> list[str]:
    """A line for each version, and what `models.config` says: for a person who names the version in production."""
    events, _ = Journal(open_store(root) / model).salvage()
    lines = []
    for version in _find_versions(Registry(root, model), events):
        event = version.event
        state = "intact" if version.intact else "damaged"
        replaced = "" if event.replaces is None else f", replaced version {event.replaces}"
        lines.append(
            f"version {event.version}  {event.at}  {event.action} to {event.alias}{replaced}; {state}; "
            f"from {version.source}"
        )

    served = served_versions(root)
    for name, alias in ((model, PRODUCTION), (f"{model}@{CANDIDATE}", CANDIDATE)):
        number = served.get(name)
        in_config = "nothing" if number is None else f"version {number}"
        lines.append(f"models.config, written after each change, names as {alias}: {in_config}")
    return lines


def _find_versions(registry: Registry, events: list[RegistryEvent]) -> list[FoundVersion]:
    lines = {event.version: event for event in events if event.makes_version}
    return [_find_version(registry, number, lines.get(number)) for number in registry.versions()]


def _find_version(registry: Registry, number: int, line: RegistryEvent | None) -> FoundVersion:
    digest = digest_or_empty(registry.path(number))
    if line:
        return FoundVersion(line, "journal", digest == line.digest)
    try:
        event = RegistryEvent.of(json.loads(registry.read_file(number, VERSION_FILE) or b""))
        if event.version == number:
            return FoundVersion(event, VERSION_FILE, digest == event.digest)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass  # the version counts as copied here by hand

    # Without `version.json`, provenance is the best record; without that, only the files themselves.
    pushed = _read_provenance(registry, number)
    published = str(pushed.get("digest") or digest)
    replaces = pushed.get("replaces") if pushed.get("version") == number else None  # a rollback copies the file
    source = PROVENANCE if "digest" in pushed else "its files"
    event = RegistryEvent(
        number,
        "import",
        str(pushed.get("pushed_at", "")),
        published,
        replaces if isinstance(replaces, int) else None,
        note=f"its {VERSION_FILE} was lost; the digest is from {source}",
    )
    return FoundVersion(event, source, bool(digest) and digest == published)


def _read_provenance(registry: Registry, number: int) -> dict[str, Any]:
    try:
        values = json.loads(registry.read_file(number, PROVENANCE) or b"")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _insert(events: list[RegistryEvent], event: RegistryEvent) -> None:
    """Puts the line of a version before those of higher versions and of later times."""
    # A version's number and the time of its event both place it; either may be all there is.
    later = (
        index
        for index, other in enumerate(events)
        if (other.makes_version and other.version > event.version) or (event.at and other.at > event.at)
    )
    events.insert(next(later, len(events)), event)


def _point(events: list[RegistryEvent], versions: set[int], alias: str, number: int | None, note: str) -> None:
    """Adds the event that makes an alias point at a version, if it does not."""
    history = History(events, versions)

    present = history.in_service if alias == PRODUCTION else history.candidate
    if present == number:
        return
    action = WITHDRAW if number is None else PROMOTE
    version = next(
        event for event in events if event.makes_version and event.version == (present if number is None else number)
    )
    at = format_utc(time.time())
    events.append(RegistryEvent(version.version, action, at, version.digest, note=note, alias=alias))
