"""The journal of a model in the registry: one line of JSON per event, oldest first.

Each change replaces the whole file, on condition that no other process replaced it since this one fenced it. The last
line may be a fence, `{"fence": "<random>"}`, which readers skip: it makes each fence a new content, since on S3 equal
contents have equal version tokens.
"""

import contextlib
import dataclasses
import functools
import json
import secrets
import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from voxline.errors import PreconditionError, WorkError
from voxline.store.objects import ObjectStore
from voxline.store.storage import ABSENT

JOURNAL_FILE = "journal.jsonl"
PRODUCTION = "production"
CANDIDATE = "candidate"
ALIASES = (PRODUCTION, CANDIDATE)
"""Names that point at versions: the one that callers get, and the one that passed the gate and waits."""
PROMOTE = "promote"
"""The action of an event that moves an alias and makes no version."""
WITHDRAW = "withdraw"
"""The action of an event that takes the alias `candidate` from a version and gives it to none."""


class JournalError(WorkError):
    """The journal was lost or damaged, so nobody knows from it which version is in production."""

    def __init__(self, uri: str, reason: str, line: int | None = None) -> None:
        # The message is for the person who finds nothing in service: it says what restores the file.
        root, _, model = uri.rpartition("/")
        place = "" if line is None else f":{line}"
        super().__init__(
            f"{uri}/{JOURNAL_FILE}{place}: {reason}; restore the file from a backup, or rebuild it: "
            f"voxline models recover {model} --registry {root} (it shows what is there, and asks for the version in "
            "production)"
        )


@dataclasses.dataclass(frozen=True)
class RegistryEvent:
    """One line of the journal, and, if it makes a version, the content of that version's `version.json`.

    Attributes:
      version: the version that appeared, was promoted, or was withdrawn.
      action: "push", "rollback", "promote", "withdraw", or "import" for a version that a person copied here.
      at: time of the event, UTC.
      digest: of the exported model.
      replaces: the version in service before.
      copy_of: the older version that a rollback copied.
      note: the reason, in words.
      metrics: of the evaluation before the push.
      anchor: the version that later ones are compared with beside the one in service; None: this one.
      alias: "production" or "candidate", which points at the version from now on; of "withdraw": did so until now.
    """

    version: int
    action: str
    at: str
    digest: str
    replaces: int | None = None
    copy_of: int | None = None
    note: str = ""
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    anchor: int | None = None
    alias: str = PRODUCTION

    @classmethod
    def of(cls, values: dict[str, Any]) -> "RegistryEvent":
        """Parses a line or a `version.json`, ignoring keys that a later release of Voxline added.

        Raises:
          TypeError, AttributeError: the values are not an event.
        """
        fields = {field.name for field in dataclasses.fields(cls)}
        event = cls(**{name: value for name, value in values.items() if name in fields})
        if not (isinstance(event.version, int) and isinstance(event.digest, str)):
            raise TypeError(f"version {event.version!r} with digest {event.digest!r}")
        return event

    @property
    def makes_version(self) -> bool:
        """Returns whether the version appeared with this event; a promotion or a withdrawal finds it there."""
        return self.action not in (PROMOTE, WITHDRAW)

    def equals(self, data: bytes) -> bool:
        """Returns whether the content of a `version.json` is this event."""
        try:
            return RegistryEvent.of(json.loads(data)) == self
        except (ValueError, TypeError, AttributeError):
            return False


_NOT_AN_EVENT = (ValueError, TypeError, AttributeError, RecursionError)


class Journal:
    """The journal of one model. A line that a crash cut short counts as not written.

    Args:
      store: the model's folder.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lines = b""
        self._version: str | None = None

    def read(self) -> list[RegistryEvent]:
        """All events.

        Raises:
          JournalError: a line is not an event.
        """
        return self._parse(self._load()[0])

    def salvage(self) -> tuple[list[RegistryEvent], bytes | None]:
        """The events of the lines that can be read, and the whole file; None if it is lost. Needed by `rebuild`."""
        # The token of the damaged file: `rebuild` replaces this content and no other.
        try:
            data, self._version = self._store.read_with_version(JOURNAL_FILE)
        except FileNotFoundError:
            self._version = None
            return [], None
        events = []
        for line in data.splitlines():
            with contextlib.suppress(*_NOT_AN_EVENT):
                events.append(RegistryEvent.of(json.loads(line)))
        return events, data

    def rebuild(self, events: Sequence[RegistryEvent]) -> None:
        """Replaces the file by these events. Call `salvage` first.

        Raises:
          PreconditionError: another process changed the journal since.
        """
        self._lines = b""
        self.append(list(events))

    def fence(self) -> list[RegistryEvent]:
        """Takes the journal over: a process that fenced it earlier can no longer append. Returns all events.

        Raises:
          PreconditionError: another process changed the journal at the same time.
        """
        lines, self._version = self._load()

        # The fence changes the content, and so the version that every other process has to expect.
        self._replace(lines, json.dumps({"fence": secrets.token_hex(8)}).encode() + b"\n")
        return self._parse(lines)

    def append(self, events: list[RegistryEvent]) -> None:
        """Adds a line for each event, all or none. Call `fence` first.

        Raises:
          PreconditionError: another process fenced the journal since.
        """
        if events:
            lines = (json.dumps(dataclasses.asdict(event), ensure_ascii=False) + "\n" for event in events)
            self._replace(self._lines + "".join(lines).encode())

    def _load(self) -> tuple[bytes, str | None]:
        """The whole lines of events, and the version token of the file."""
        try:
            data, version = self._store.read_with_version(JOURNAL_FILE)
        except FileNotFoundError:
            return b"", None

        # A line without its end was cut short by a crash, and counts as not written. A fence is no event.
        lines = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
        return b"".join(line for line in lines if not line.startswith(b'{"fence"')), version

    def _replace(self, lines: bytes, fence: bytes = b"") -> None:
        try:
            info = self._store.write(JOURNAL_FILE, lines + fence, if_version=self._version or ABSENT)
        except PreconditionError as error:
            raise PreconditionError(
                f"{self._store.uri}: another process changed the registry meanwhile, so this one did not; start again"
            ) from error

        # What is expected from now on is what was just written.
        self._lines = lines
        self._version = info.version

    def _parse(self, lines: bytes) -> list[RegistryEvent]:
        events = []
        for number, line in enumerate(lines.splitlines(), start=1):
            try:
                events.append(RegistryEvent.of(json.loads(line)))
            except _NOT_AN_EVENT as error:
                raise JournalError(self._store.uri, f"not a line of a journal ({error})", number) from None
        return events


class Existing(Container[int]):
    """The versions of a model that exist.

    A listing of a bucket may be older than the journal, so a version that it lacks is looked up by its marker's name.

    Args:
      listed: the versions in the listing.
      has_marker: whether a version's marker exists.
    """

    def __init__(self, listed: Sequence[int], has_marker: Callable[[int], bool]) -> None:
        self._listed = frozenset(listed)

        # Each version is looked up once, since a listing may lack many.
        self._has_marker = functools.cache(has_marker)

    def __contains__(self, version: object) -> bool:
        return version in self._listed or (isinstance(version, int) and self._has_marker(version))


class History:
    """The state of a model after the events of its journal.

    Args:
      events: all, oldest first.
      existing: the versions that exist.

    >>> pushed = [RegistryEvent(1, "push", "", "one"), RegistryEvent(2, "push", "", "two", alias="candidate")]
    >>> History(pushed, {1, 2}).production, History(pushed, {1, 2}).candidate
    ([1], 2)
    >>> promoted = History([*pushed, RegistryEvent(2, "promote", "", "two", replaces=1)], {1, 2})
    >>> promoted.production, promoted.candidate
    ([1, 2], None)
    """

    def __init__(self, events: Sequence[RegistryEvent], existing: Container[int]) -> None:
        self._events = events
        self._existing = existing

    @property
    def production(self) -> list[int]:
        """The versions that were in production one after the other, of those that still exist; the last one is now."""
        moves = (event for event in self._moves() if event.alias == PRODUCTION)
        return [event.version for event in moves if event.version in self._existing]

    @property
    def in_service(self) -> int | None:
        """The last of `production`, without a look at the ones before."""
        moves = (event for event in reversed([*self._moves()]) if event.alias == PRODUCTION)
        return next((event.version for event in moves if event.version in self._existing), None)

    @property
    def lost(self) -> int | None:
        """The version that was put into production last, if it does not exist any more."""
        moves = (event.version for event in reversed([*self._moves()]) if event.alias == PRODUCTION)
        last = next(moves, None)
        return None if last is None or last in self._existing else last

    @property
    def earlier_production(self) -> list[int]:
        """The versions that were in production before the present one, the latest first, without any rolled back."""
        # Digests, since a rollback publishes the same bytes under a new number.
        digest = {event.version: event.digest for event in self._events if event.makes_version}
        refused = self.rolled_back
        versions = dict.fromkeys(reversed(self.production))  # each once, in this order
        present = next(iter(versions), None)
        return [version for version in versions if version != present and digest.get(version) not in refused]

    @property
    def candidate(self) -> int | None:
        """The version that waits, if any: neither promoted, nor withdrawn, nor overtaken by a push to production."""
        version = None

        # Events in order: the last one that concerns the candidate decides.
        for event in self._moves():
            if event.action == WITHDRAW:
                version = None if event.version == version else version
            elif event.alias == CANDIDATE:
                version = event.version
            elif event.version == version or event.action == "push":
                version = None
        return version if version is not None and version in self._existing else None

    @property
    def rolled_back(self) -> dict[str, int]:
        """Digests of models that were taken out of production for an older one or withdrawn, each with its version.

        One that a person promotes or names the candidate afterwards is wanted again.
        """
        digest = {event.version: event.digest for event in self._events if event.makes_version}
        origin = {event.version: event.copy_of or event.version for event in self._events if event.makes_version}
        versions: dict[str, int] = {}
        withdrawn: set[str] = set()
        for event in self._events:
            if event.action == WITHDRAW:
                versions[event.digest] = event.version
                withdrawn.add(event.digest)
                continue
            if event.alias != PRODUCTION:
                if event.digest in withdrawn:
                    versions.pop(event.digest, None)
                continue

            # A rollback, or a promotion of an older version, withdraws what was in production before it.
            before = event.replaces
            if before in digest and (
                event.action == "rollback" or (not event.makes_version and event.version < origin[before])
            ):
                versions[digest[before]] = before
            versions.pop(event.digest, None)
        return versions

    def _moves(self) -> Iterator[RegistryEvent]:
        """The events that moved an alias. A line of an older version that was restored later moves none."""
        # A line that was restored late is at the end of the file, and must not move an alias back.
        newest = -1
        for event in self._events:
            if not event.makes_version or event.version > newest:
                yield event
            newest = max(newest, event.version)


def format_utc(seconds: float) -> str:
    """Formats a time since the epoch as the journal does.

    >>> format_utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
