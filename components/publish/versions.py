"""The published versions of a dataset: `<datasets>/<name>/<number>/`, whole or absent, never changed.

A version holds what extract wrote for it, and `version.json`, which says when it came about and what it replaced.
In a folder it appears by the rename of a hidden one; in a bucket its number is claimed first, and `version.json` is
written last, so that what has none is no version. Numbers only grow.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError, WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import local_path, localize
from voxline.store.bucket_locks import shared_store_lock
from voxline.store.files import fsync_folder, read_json, write_json
from voxline.store.objects import ABSENT, is_remote, open_store

VERSION_FILE, CLAIM = "version.json", "claim.json"
PURGED_FILE = "purged.jsonl"
"""Beside them, where a purge has changed a version: when, and how many rows went."""
SET_ASIDE = ".unpurged-"
"""Begins the name of a version that a purge has set aside, and not yet put back without a speaker."""
_INCOMING = ".incoming-"
_LOCK = ".lock"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Write = Callable[[Path, Path], None]
"""Puts a version's files into a folder: (that folder, the one that it will be)."""


@dataclasses.dataclass(frozen=True)
class VersionInfo:
    """What `version.json` says.

    Attributes:
      number: of the version.
      key: names its content, by what went into it.
      at: when it was published, UTC.
      replaces: the version before it; None for the first.
      note: in words, why, where it is not a new content.
      counts: utterances by split.
      changes: how many were added, removed and changed since the version that it replaces.
    """

    number: int
    key: str
    at: str
    replaces: int | None = None
    note: str = ""
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    changes: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "VersionInfo":
        """Reads it; keys that a later version of Voxline added are passed over.

        Raises:
          TypeError, AttributeError: it is none.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


class DatasetVersions:
    """The versions of one dataset.

    Args:
      root: the folder that holds a folder for each dataset, or gs://…; made when the first version is published.
      name: the dataset's name.
    """

    def __init__(self, root: Path | str, name: str) -> None:
        self.name = name
        self._root = root
        self._bucket = open_store(f"{root}/{name}") if is_remote(root) else None
        self.uri = self._bucket.uri if self._bucket else str(Path(root).absolute() / name)
        self.folder = local_path(self.uri)

    def numbers(self) -> list[int]:
        """The versions that are there, oldest first."""
        if self._bucket:
            found = [entry.name.split("/") for entry in self._bucket.list()]
            numbers = [number for number, *file in found if _NUMBER.fullmatch(number) and file == [VERSION_FILE]]
        else:
            numbers = [number for number in self._taken() if (self.folder / number / VERSION_FILE).is_file()]
        return sorted(map(int, numbers))

    def uri_of(self, number: int) -> str:
        return f"{self.uri}/{number}"

    def latest(self) -> VersionInfo | None:
        numbers = self.numbers()
        return self.info(numbers[-1]) if numbers else None

    def path(self, number: int) -> Path:
        """The folder of a version, on this machine.

        Raises:
          WorkError: there is no such version.
        """
        numbers = self.numbers()
        if number not in numbers:
            raise WorkError(f"{self.uri}: no version {number}; there: {', '.join(map(str, numbers)) or 'none'}")
        return localize(f"{self.uri}/{number}")

    def info(self, number: int) -> VersionInfo:
        """How a version came about.

        Raises:
          WorkError: there is no such version, or what says so is damaged.
        """
        file = self.path(number) / VERSION_FILE
        try:
            return VersionInfo.of(read_json(file))
        except (ValueError, TypeError, AttributeError) as error:
            raise WorkError(f"{file}: damaged ({error}); remove that version's folder, and publish again") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds these versions against other processes of this machine; the lock goes when its process does.

        In a bucket it holds them against a purge too.
        """
        with shared_store_lock(self._root), self.locked_here():
            yield

    @contextlib.contextmanager
    def locked_here(self) -> Iterator[None]:
        """Holds them against other processes of this machine alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print_status(f"waiting for another process that is publishing a version of {self.name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            for path in self.folder.glob(f"{_INCOMING}*"):  # of a process that was killed
                shutil.rmtree(path, ignore_errors=True)
            yield

    def publish(self, write: Write, described: Callable[[int], VersionInfo]) -> Path:
        """Publishes a version under the next number; to be called with the lock held.

        Args:
          described: what `version.json` is to say, given the number.
        """
        number = self._claimed() if self._bucket else max(map(int, self._taken()), default=0) + 1
        target = self.folder / str(number)
        incoming = self.folder / f"{_INCOMING}{number}-{secrets.token_hex(4)}"
        try:
            incoming.mkdir(parents=True)
            write(incoming, target)
            files = [path.name for path in incoming.iterdir()]
            write_json(incoming / VERSION_FILE, dataclasses.asdict(described(number)))
            _sync(incoming)
            if self._bucket:
                shutil.rmtree(target, ignore_errors=True)
            incoming.rename(target)
            fsync_folder(self.folder)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        if self._bucket:
            self._bucket.upload(self.folder, [f"{number}/{name}" for name in files])
            self._bucket.write(f"{number}/{VERSION_FILE}", (target / VERSION_FILE).read_bytes(), if_version=ABSENT)
        return target

    def _claimed(self) -> int:
        """The next number of a bucket, which no other process will get; one whose process dies stays unused."""
        bucket = self._bucket or open_store(self.uri)
        number = max((int(name) for name in bucket.list_folders() if _NUMBER.fullmatch(name)), default=0) + 1
        while True:
            try:
                bucket.write(f"{number}/{CLAIM}", json.dumps({"version": number}).encode(), if_version=ABSENT)
            except PreconditionError:
                number += 1
            else:
                return number

    def _taken(self) -> list[str]:
        """Numbers that are used, or were by what is not wholly gone."""
        if not self.folder.is_dir():
            return []
        found = {path.name.removeprefix(SET_ASIDE) for path in self.folder.iterdir()}
        return [name for name in found if _NUMBER.fullmatch(name)]


def list_datasets(root: Path | str) -> list[str]:
    """The datasets that have a version.

    Raises:
      WorkError: there is no such folder.
    """
    if is_remote(root):
        found = list(open_store(str(root)).list_folders())
    elif Path(root).is_dir():
        found = [path.name for path in Path(root).iterdir()]
    else:
        raise WorkError(f"{root}: no such folder, so no datasets here; give the one that refresh publishes to")
    return sorted(name for name in found if _NAME.fullmatch(name) and DatasetVersions(root, name).numbers())


def _sync(folder: Path) -> None:
    """Sends all files to the disk, so that the rename cannot outrun them."""
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    fsync_folder(folder)
