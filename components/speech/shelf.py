"""Where the versions of one model lie on a disk, and how one appears there whole: by the rename of a hidden folder."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from components.speech.journal import Change, Journal, sync_folder
from components.speech.progress import say

JOURNAL = "journal.jsonl"
VERSION = "version.json"
INCOMING = ".incoming-"
LOCK = ".lock"


class Shelf:
    """A folder of versions. `RemoteShelf` is one in a bucket, with the same methods.

    Attributes:
      folder: holds a folder for each version, by its number.
      place: the same, as a person is told.
      journal: of the changes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, str(folder)
        self.journal = Journal(folder / JOURNAL)

    def names(self) -> list[str]:
        """The folders that are there, whole: versions, and whatever else a person put there."""
        return [path.name for path in self.folder.iterdir() if path.is_dir()] if self.folder.is_dir() else []

    def taken(self) -> list[str]:
        """All names that are there, of folders or not."""
        return [path.name for path in self.folder.iterdir()]

    def fetch(self, name: str) -> Path:
        """A version's folder on this machine."""
        return self.folder / name

    def read(self, name: str, file: str) -> bytes | None:
        """A file of a version; None where there is none."""
        path = self.folder / name / file
        return path.read_bytes() if path.is_file() else None

    def since(self, name: str) -> float:
        """When a version's folder changed last, in seconds since the epoch."""
        return (self.folder / name).stat().st_mtime

    @contextlib.contextmanager
    def locked(self, model: str) -> Iterator[None]:
        """Holds the shelf against other processes; the lock goes when its process does, however that ends.

        What a killed one left half copied is removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / LOCK, "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(waiting_for(model))
                fcntl.flock(lock, fcntl.LOCK_EX)
            for path in self.folder.glob(f"{INCOMING}*"):
                shutil.rmtree(path, ignore_errors=True)
            self.journal.cut_unfinished_line()
            yield

    def publish(self, incoming: Path, change: Change) -> None:
        """Lets a version appear, and writes it down; to be called with the lock held."""
        _sync(incoming)
        incoming.rename(self.folder / str(change.version))
        sync_folder(self.folder)
        self.journal.append([change])


def waiting_for(model: str) -> str:
    return f"waiting for another process that is changing {model} in the registry"


def _sync(folder: Path) -> None:
    """Sends all files of a folder to the disk, so that its rename cannot outrun them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)
