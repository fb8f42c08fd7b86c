"""Where the versions of one model lie on a disk, and how one appears there whole: by the rename of a hidden folder."""

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.progress import print_status
from voxline.registry.journal import Journal, RegistryEvent, RemoteJournal, fsync_folder
from voxline.store.bucket_cache import local_path
from voxline.store.bucket_locks import exclusive_lease
from voxline.store.objects import ABSENT, ObjectStore, open_store

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
                print_status(waiting_for(model))
                fcntl.flock(lock, fcntl.LOCK_EX)
            for path in self.folder.glob(f"{INCOMING}*"):
                shutil.rmtree(path, ignore_errors=True)
            self.journal.cut_unfinished_line()
            yield

    def publish(self, incoming: Path, change: RegistryEvent) -> None:
        """Lets a version appear, and writes it down; to be called with the lock held."""
        _sync(incoming)
        incoming.rename(self.folder / str(change.version))
        fsync_folder(self.folder)
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
            fsync_folder(path)
    fsync_folder(folder)


_COMES_LAST = ("saved_model.pb", VERSION)
_INCOMING = re.compile(re.escape(INCOMING) + r"([0-9]+)-.*")


class RemoteShelf:
    """A folder of versions, in a bucket.

    Attributes:
      folder: its mirror on this machine.
      place: gs://…
      journal: of the changes.
    """

    def __init__(self, place: str) -> None:
        self.bucket = open_store(place)
        self.place = self.bucket.uri
        self.journal = RemoteJournal(self.bucket, JOURNAL)

    @functools.cached_property
    def folder(self) -> Path:
        return local_path(self.place)

    def names(self) -> list[str]:
        """The folders that are there, whole: versions, and whatever else a person put there."""
        folders: dict[str, set[str]] = {}
        for entry in self.bucket.list():
            folder, _, rest = entry.name.partition("/")
            if rest and not folder.startswith(INCOMING):
                folders.setdefault(folder, set()).add(rest)
        unmarked = {folder for folder, names in folders.items() if VERSION not in names}
        # One of those is on its way if what it is copied from is still there, and was put there by hand if not. To be
        # asked only now: whoever is done between the two questions has finished.
        unfinished = {found[1] for found in map(_INCOMING.fullmatch, self._incoming()) if found} if unmarked else set()
        return sorted(folders.keys() - (unmarked & unfinished))

    def taken(self) -> list[str]:
        """All names that are there, of folders or not."""
        return sorted({entry.name.partition("/")[0] for entry in self.bucket.list()})

    def fetch(self, name: str) -> Path:
        """A version's folder on this machine: what the bucket holds of it, and nothing else."""
        folder, bucket = self.folder / name, self.bucket / name
        entries = list(bucket.list())
        bucket.download(entries, folder)
        there = {folder / entry.name for entry in entries}
        for path in folder.rglob("*"):
            if path.is_file() and path not in there:
                path.unlink(missing_ok=True)
        return folder

    def read(self, name: str, file: str) -> bytes | None:
        """A file of a version; None where there is none."""
        try:
            return self.bucket.read(f"{name}/{file}")
        except FileNotFoundError:
            return None

    def since(self, name: str) -> float:
        """When a version's folder changed last, in seconds since the epoch."""
        return max(entry.updated.timestamp() for entry in self.bucket.list(f"{name}/"))

    @contextlib.contextmanager
    def locked(self, model: str) -> Iterator[None]:
        """Holds the shelf against other processes, and finishes or removes what a killed one left.

        Should the lock be lost, what is published under it fails: the journal is fenced.

        Raises:
          Changed: another process changed it at the same time.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lease(self.bucket, LOCK, waiting_for(model)):
            self.journal.fence()  # from here on nobody else can decide anything, so what is undecided stays so
            decided = {change.version: change for change in self.journal.read()}
            for incoming in self._incoming():
                self._settle(incoming, decided)
            yield

    def publish(self, incoming: Path, change: RegistryEvent) -> None:
        """Lets a version appear, and writes it down; to be called with the lock held.

        Raises:
          Changed: another process has taken the lock over; nothing was published.
          Interruption: it is decided and not there yet; whoever changes the registry next finishes it.
        """
        names = sorted(path.relative_to(incoming).as_posix() for path in incoming.rglob("*") if path.is_file())
        (self.bucket / incoming.name).upload(incoming, names)
        self.journal.append([change])
        try:
            self._appear(incoming.name, change.version)
        except WorkError as error:
            raise TransientError(
                f"{self.place}/{change.version}: decided, and not all of it there yet ({error}); "
                "push or roll back again, and it is finished first"
            ) from error
        with contextlib.suppress(OSError):  # it is in the mirror already then
            incoming.rename(self.folder / str(change.version))

    def _incoming(self) -> list[str]:
        return [name for name in self.bucket.list_folders() if name.startswith(INCOMING)]

    def _settle(self, incoming: str, decided: dict[int, RegistryEvent]) -> None:
        """Finishes a version that was decided; removes one that was not."""
        found, told = _INCOMING.fullmatch(incoming), self.read(incoming, VERSION)
        version = int(found[1]) if found else 0
        if told is not None and version in decided and _tells_of(told, decided[version]):
            print_status(f"{self.place}: finishing version {version}, which another process had decided on")
            self._appear(incoming, version)
        else:
            self._remove(incoming)

    def _appear(self, incoming: str, version: int) -> None:
        """Copies a version to where it is served from; two processes may do it at once, since they do the same."""
        source, target = self.bucket / incoming, self.bucket / str(version)
        if target.stat(VERSION) is None:
            names = [entry.name for entry in source.list()]
            first = [name for name in names if name not in _COMES_LAST]
            self.bucket.map(functools.partial(_copied, source, target), first)
            for name in _COMES_LAST:
                _copied(source, target, name)
            if target.stat(VERSION) is None:
                raise WorkError(f"{source.uri}: is not whole, and {target.uri} neither; remove both, and push again")
        self._remove(incoming)

    def _remove(self, incoming: str) -> None:
        """Removes a hidden folder, what says that it is a version first: so no part of one is taken for all of it."""
        self.bucket.delete(f"{incoming}/{VERSION}")
        _delete(self.bucket, [entry.name for entry in self.bucket.list(f"{incoming}/")])


def _copied(source: ObjectStore, target: ObjectStore, name: str) -> None:
    """Copies an object, unless another process did so already, and perhaps removed what it came from."""
    try:
        source.copy(name, target, if_version=ABSENT)
    except FileNotFoundError:
        return
    except PreconditionError:
        there, ours = target.stat(name), source.stat(name)
        if ours and (there is None or (there.size, there.checksum) != (ours.size, ours.checksum)):
            raise WorkError(
                f"{target.uri_of(name)}: holds other bytes than the version that was decided; remove that object, and "
                "push or roll back again"
            ) from None


def _delete(bucket: ObjectStore, names: Iterable[str]) -> None:
    bucket.map(bucket.delete, names)


def _tells_of(told: bytes, change: RegistryEvent) -> bool:
    try:
        return RegistryEvent.of(json.loads(told)) == change
    except (ValueError, TypeError, AttributeError):
        return False
