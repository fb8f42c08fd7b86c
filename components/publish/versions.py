"""The published versions of a dataset: `<datasets>/<name>/<number>/`, whole or absent, never changed.

A version holds what extract wrote for it, and `version.json`, which says when it came about and what it replaced.
It appears by the rename of a hidden folder; numbers only grow.
"""

import contextlib
import dataclasses
import fcntl
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.journal import sync_folder
from components.speech.progress import say
from components.speech.storage import read_json, write_json

VERSION = "version.json"
_INCOMING = ".incoming-"
_LOCK = ".lock"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclasses.dataclass(frozen=True)
class Published:
    """What `version.json` says.

    Attributes:
      number: of the version.
      key: names its content, by what went into it.
      at: when it was published, UTC.
      replaces: the version before it; None for the first.
      note: in words, why.
    """

    number: int
    key: str
    at: str
    replaces: int | None = None
    note: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


class Versions:
    """The versions of one dataset.

    Args:
      root: the folder that holds a folder for each dataset; made when the first version is published.
      name: the dataset's name.
    """

    def __init__(self, root: Path | str, name: str) -> None:
        self.name = name
        self.folder = Path(root).absolute() / name

    def numbers(self) -> list[int]:
        """The versions that are there, oldest first."""
        if not self.folder.is_dir():
            return []
        found = [path.name for path in self.folder.iterdir() if _NUMBER.fullmatch(path.name)]
        return sorted(int(number) for number in found if (self.folder / number / VERSION).is_file())

    def latest(self) -> Published | None:
        return self.published(self.numbers()[-1]) if self.numbers() else None

    def path(self, number: int) -> Path:
        """The folder of a version.

        Raises:
          WorkError: there is no such version.
        """
        if number not in self.numbers():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise WorkError(f"{self.folder}: no version {number}; there: {there}")
        return self.folder / str(number)

    def published(self, number: int) -> Published:
        """How a version came about.

        Raises:
          WorkError: there is no such version, or what says so is damaged.
        """
        file = self.path(number) / VERSION
        try:
            return Published(**read_json(file))
        except (ValueError, TypeError) as error:
            raise WorkError(f"{file}: damaged ({error}); remove that version's folder, and publish again") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds these versions against other processes; the lock goes when its process does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that is publishing a version of {self.name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            for path in self.folder.glob(f"{_INCOMING}*"):  # of a process that was killed
                shutil.rmtree(path, ignore_errors=True)
            yield

    def publish(self, write: Callable[[Path, Path], None], published: Published) -> Path:
        """Publishes a version; to be called with the lock held.

        Args:
          write: puts the version's files into a folder: (the hidden one, the one that it will become).
          published: with the number that `next_number` gave.
        """
        target = self.folder / str(published.number)
        incoming = self.folder / f"{_INCOMING}{published.number}-{secrets.token_hex(4)}"
        try:
            incoming.mkdir()
            write(incoming, target)
            write_json(incoming / VERSION, dataclasses.asdict(published))
            sync_folder(incoming)
            incoming.rename(target)
            sync_folder(self.folder)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        return target

    def next_number(self) -> int:
        """One above all that were ever there and are not wholly gone."""
        taken = [int(path.name) for path in self.folder.iterdir() if _NUMBER.fullmatch(path.name)]
        return max(taken, default=0) + 1
