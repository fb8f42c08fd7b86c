"""The journal of a model in the registry: one line of JSON for every change, oldest first.

On a disk it is a file that grows; in a bucket an object that is written anew, on condition that nobody else did so.
"""

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError, WorkError
from voxline.store.files import fsync_folder as fsync_folder
from voxline.store.objects import ABSENT, ObjectStore


@dataclasses.dataclass(frozen=True)
class RegistryEvent:
    """One line of the journal.

    Attributes:
      version: the version that appeared.
      action: "push", "rollback", or "import" for a version that somebody copied there by hand.
      at: when, UTC.
      digest: of the exported model.
      replaces: the version in service until then.
      copy_of: the older version whose bytes these are (a rollback).
      metrics: of the evaluation before it was pushed.
      note: in words, why.
    """

    version: int
    action: str
    at: str
    digest: str
    replaces: int | None = None
    copy_of: int | None = None
    note: str = ""
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "RegistryEvent":
        """Reads a line or a `version.json`; keys that a later version of Voxline added are passed over.

        Raises:
          TypeError, AttributeError: it is none.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        change = cls(**{name: value for name, value in values.items() if name in known})
        if not (isinstance(change.version, int) and isinstance(change.digest, str)):
            raise TypeError(f"version {change.version!r} with digest {change.digest!r}")
        return change


class Journal:
    """A file of changes. A line that a crash cut short counts as not written."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> list[RegistryEvent]:
        """The changes written so far.

        Raises:
          WorkError: naming the line that is none of ours.
        """
        return _changes(self._whole_lines(), str(self.file))

    def append(self, changes: list[RegistryEvent]) -> None:
        """Writes a line for each, and returns when they are on the disk."""
        if not changes:
            return
        with open(self.file, "ab") as file:
            file.write(b"".join(map(_line, changes)))
            file.flush()
            os.fsync(file.fileno())
        fsync_folder(self.file.parent)

    def cut_unfinished_line(self) -> None:
        """Removes the line that a crash cut short, so that the next one does not continue it."""
        whole = sum(map(len, self._whole_lines()))
        if self.file.is_file() and self.file.stat().st_size != whole:
            os.truncate(self.file, whole)

    def _whole_lines(self) -> list[bytes]:
        return _whole(self.file.read_bytes() if self.file.is_file() else b"")


class RemoteJournal:
    """An object of changes. Who has fenced it alone can append, until another one fences it.

    Args:
      bucket: the folder of the model.
      name: of the object.
    """

    def __init__(self, bucket: ObjectStore, name: str) -> None:
        self.bucket, self.name = bucket, name
        self._data, self._generation = b"", ABSENT

    def read(self) -> list[RegistryEvent]:
        """The changes written so far.

        Raises:
          WorkError: naming the line that is none of ours.
        """
        return _changes(_whole(self._read()[0]), self.bucket.uri_of(self.name))

    def fence(self) -> None:
        """Writes it anew as it is: whoever fenced it before can append no more.

        Raises:
          Changed: another one did so at the same time.
        """
        data, self._generation = self._read()
        self._write(b"".join(_whole(data)))

    def append(self, changes: list[RegistryEvent]) -> None:
        """Writes a line for each, all or none.

        Raises:
          Changed: another one has fenced it since.
        """
        if changes:
            self._write(self._data + b"".join(map(_line, changes)))

    def _read(self) -> tuple[bytes, str]:
        try:
            data, entry = self.bucket.read_with_info(self.name)
        except FileNotFoundError:
            return b"", ABSENT
        return data, entry.version

    def _write(self, data: bytes) -> None:
        try:
            self._generation = self.bucket.write(self.name, data, if_version=self._generation).version
        except PreconditionError as error:
            raise PreconditionError(
                f"{self.bucket.uri}: another process changed the registry meanwhile, so this one did not; start again"
            ) from error
        self._data = data


def _changes(lines: list[bytes], source: str) -> list[RegistryEvent]:
    changes = []
    for number, line in enumerate(lines, start=1):
        try:
            changes.append(RegistryEvent.of(json.loads(line)))
        except (ValueError, TypeError, AttributeError) as error:
            raise WorkError(f"{source}:{number}: no line of a journal ({error}); mend or remove that line") from None
    return changes


def _line(change: RegistryEvent) -> bytes:
    return (json.dumps(dataclasses.asdict(change), ensure_ascii=False) + "\n").encode()


def _whole(data: bytes) -> list[bytes]:
    lines = data.splitlines(keepends=True)
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def format_utc(seconds: float) -> str:
    """A time since the epoch as it stands in the journal.

    >>> format_utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
