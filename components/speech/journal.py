"""The journal of a model in the registry: one line of JSON for every change, oldest first."""

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError


@dataclasses.dataclass(frozen=True)
class Change:
    """One line of the journal.

    Attributes:
      version: the version that appeared.
      action: "push", "rollback", or "found" for a version that somebody put there by hand.
      at: when, UTC.
      digest: of the exported model.
      replaces: the version in service until then.
      copy_of: the older version whose bytes these are (a rollback).
      wer: as evaluated before it was pushed; None for a voice.
      figures: all figures of that evaluation.
      note: in words, why.
    """

    version: int
    action: str
    at: str
    digest: str
    replaces: int | None = None
    copy_of: int | None = None
    wer: float | None = None
    note: str = ""
    figures: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Change":
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

    def read(self) -> list[Change]:
        """The changes written so far.

        Raises:
          WorkError: naming the line that is none of ours.
        """
        changes = []
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                changes.append(Change.of(json.loads(line)))
            except (ValueError, TypeError, AttributeError) as error:
                raise WorkError(
                    f"{self.file}:{number}: no line of a journal ({error}); mend or remove that line"
                ) from None
        return changes

    def append(self, change: Change) -> None:
        """Writes one line, and returns when it is on the disk."""
        line = json.dumps(dataclasses.asdict(change), ensure_ascii=False) + "\n"
        with open(self.file, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.file.parent)

    def cut_unfinished_line(self) -> None:
        """Removes the line that a crash cut short, so that the next one does not continue it."""
        whole = sum(map(len, self._whole_lines()))
        if self.file.is_file() and self.file.stat().st_size != whole:
            os.truncate(self.file, whole)

    def _whole_lines(self) -> list[bytes]:
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.is_file() else []
        return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def utc(seconds: float) -> str:
    """A time since the epoch as it stands in the journal.

    >>> utc(0)
    '1970-01-01T00:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sync_folder(folder: Path) -> None:
    """Sends to the disk which names a folder holds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
