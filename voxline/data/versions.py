"""The published versions of a dataset: `<datasets>/<name>/<number>/`, whole or absent, never changed.

A version holds the files that extract wrote for it and `version.json`, which says when it was published and what it
replaced. `version.json` appears last, so a folder without one is not a version. Numbers only grow. In a bucket a number
is reserved by the first object in its folder; a number whose process died stays unused.
"""

import contextlib
import dataclasses
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.store.files import read_json, write_json
from voxline.store.objects import ObjectStore, open_store
from voxline.store.step_cache import StepOutput
from voxline.store.store_locks import shared_store_lock

VERSION_FILE = "version.json"
PURGED_FILE = "purged.jsonl"
"""In a version that a purge changed: when, and how many rows it removed."""
PURGE_STAGING = ".purged-"
"""Of a version without a speaker's rows, until it replaces the version of that number."""
_STAGING = ".incoming-"
_LOCK = ".lock"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LATEST = "latest"
REFERENCE = re.compile(rf"(?P<name>{_NAME.pattern})@(?P<number>{_NUMBER.pattern}|{LATEST})")
"""How a config names a version: digits@7, or digits@latest."""

WriteFiles = Callable[[Path, Path], None]
"""Writes the files of a version: (the folder to write to, the folder that it will be)."""


@dataclasses.dataclass(frozen=True)
class VersionInfo:
    """The content of `version.json`.

    Attributes:
      number: of the version.
      key: names the content by its inputs.
      at: time of publication, UTC.
      replaces: the version before; None for the first.
      note: the reason, in words, if the content is not new.
      counts: utterances by split.
      changes: utterances added, removed and changed since the version before.
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
        """Parses a `version.json`, ignoring keys that a later release of Voxline added.

        Raises:
          TypeError, AttributeError: the values are not a version's.
        """
        fields = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in fields})


@dataclasses.dataclass
class PublishedVersion(StepOutput):
    """The folder of a version, whose URI follows from its number rather than from a step key."""

    version_uri: str = ""

    @property
    def uri(self) -> str:
        return self.version_uri


class DatasetVersions:
    """The versions of one dataset.

    Args:
      root: folder or bucket URI that holds a folder for each dataset. The first publication creates it.
      name: the dataset's name.

    Attributes:
      uri: the dataset's folder or bucket URI.
      folder: the dataset's folder on this machine; for a bucket, its cache.
    """

    def __init__(self, root: Path | str, name: str) -> None:
        self.name = name
        self._root = root
        self._store = open_store(root) / name
        self.uri, self.folder = self._store.uri, self._store.local_path()
        self._here = open_store(self.folder)

    def numbers(self) -> list[int]:
        """The versions that exist, in ascending order."""
        # `<number>/version.json` alone makes a version: folders of uploads that died have none.
        names = (info.name.split("/") for info in self._store.list())
        return sorted(int(name[0]) for name in names if name[1:] == [VERSION_FILE] and _NUMBER.fullmatch(name[0]))

    def latest(self) -> VersionInfo | None:
        numbers = self.numbers()
        return self.info(numbers[-1]) if numbers else None

    def uri_of(self, number: int) -> str:
        return self._store.uri_of(str(number))

    def path(self, number: int) -> Path:
        """The folder of a version on this machine. From a bucket it is downloaded.

        Raises:
          WorkError: the version does not exist.
        """
        numbers = self.numbers()
        if number not in numbers:
            raise WorkError(f"{self.uri}: no version {number}; existing: {', '.join(map(str, numbers)) or 'none'}")
        return self._store.localize(str(number))

    def info(self, number: int) -> VersionInfo:
        """Returns how a version was published.

        Raises:
          WorkError: the version does not exist, or its `version.json` is damaged.
        """
        file = self.path(number) / VERSION_FILE
        try:
            return VersionInfo.of(read_json(file))
        except (ValueError, TypeError, AttributeError) as error:
            raise WorkError(f"{file}: damaged ({error}); remove that version's folder, and publish again") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the versions against other processes of this machine, and in a bucket against a purge anywhere."""
        # Always the store's lock first: two processes with opposite orders would wait for each other.
        with shared_store_lock(self._root), self.locked_here():
            yield

    @contextlib.contextmanager
    def locked_here(self) -> Iterator[None]:
        """Locks the versions against other processes of this machine, and removes what killed ones left here."""
        waiting = f"waiting for another process that is publishing a version of {self.name}"
        with self._here.lock(_LOCK, waiting):
            # Nobody else can be writing here while the lock is held, so every staging folder is a dead process'.
            for path in self.folder.glob(f"{_STAGING}*"):
                shutil.rmtree(path, ignore_errors=True)
            yield

    def publish(self, write_files: WriteFiles, describe: Callable[[int], VersionInfo]) -> Path:
        """Publishes a version under the next number. Call it with the lock held. Returns the version's folder.

        Args:
          describe: the content of `version.json`, given the number.
        """
        # The number is reserved first, so that two machines never write to one folder of a bucket.
        number = self._reserve_number()
        target = self.folder / str(number)
        staging = self.folder / f"{_STAGING}{number}-{secrets.token_hex(4)}"
        try:
            staging.mkdir(parents=True)
            write_files(staging, target)
            write_json(staging / VERSION_FILE, dataclasses.asdict(describe(number)))
            if target.exists():  # only an outdated copy of a bucket: on a disk the number would not be free
                shutil.rmtree(target)

            # The rename makes it a version on a disk; in a bucket `version.json`, uploaded last, does.
            self._here.upload_folder(staging.name)
            self._here.move_folder(staging.name, target.name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._store.upload_folder(str(number), last=(VERSION_FILE,))
        return target

    def _reserve_number(self) -> int:
        used = [name for name in self._store.list_folders() if _NUMBER.fullmatch(name)]
        number = max(map(int, used), default=0) + 1

        # Another machine may have taken the number since the listing; reserving is atomic.
        while not self._store.reserve(str(number)):
            number += 1
        return number


def find_version(root: Path | str, reference: str) -> tuple[DatasetVersions, int]:
    """The published version that a reference names.

    Args:
      root: folder or bucket URI of all published datasets.
      reference: digits@7, or digits@latest.

    Raises:
      SettingsError: the version does not exist; names those that do.
    """
    named = REFERENCE.fullmatch(reference)
    if named is None:
        raise SettingsError(f"{reference!r}: a name and a version are accepted, such as digits@7 or digits@latest")
    versions = DatasetVersions(root, named["name"])
    numbers = versions.numbers()
    if not numbers:
        raise SettingsError(
            f"{reference}: {versions.uri} has no version; give the `datasets` of the refresh that publishes it "
            "(voxline run refresh)"
        )
    number = numbers[-1] if named["number"] == LATEST else int(named["number"])
    if number not in numbers:
        raise SettingsError(f"{reference}: no such version in {versions.uri}; existing: {', '.join(map(str, numbers))}")
    return versions, number


def version_name(folder: Path) -> str:
    """The name of a version by its folder on this machine, such as digits@7; empty if it is the folder of none."""
    is_version = (folder / VERSION_FILE).is_file() and _NUMBER.fullmatch(folder.name)
    return f"{folder.parent.name}@{folder.name}" if is_version else ""


def check_datasets(root: Path | str) -> None:
    """Checks that datasets are published to a location, before what they do not need is deleted.

    Raises:
      SettingsError: nothing in it is a dataset's version.
    """
    store = open_store(root)
    if not any(_holds_version(store, name) for name in store.list_folders() if _NAME.fullmatch(name)):
        raise SettingsError(
            f"{root}: no dataset is published here, as <name>/<number>/{VERSION_FILE}; give the `datasets` of the "
            "runs' config"
        )


def _holds_version(store: ObjectStore, name: str) -> bool:
    """Returns whether a folder is a dataset's, also if a killed purge left its only version half replaced."""
    folders = (store / name).list_folders()
    return any(_NUMBER.fullmatch(entry) and store.stat(f"{name}/{entry}/{VERSION_FILE}") for entry in folders) or any(
        entry.startswith(PURGE_STAGING) for entry in folders
    )


def list_datasets(root: Path | str) -> list[str]:
    """The names of the datasets that have a version.

    Raises:
      WorkError: the folder does not exist.
    """
    store = open_store(root)

    # An absent folder and an empty one look alike in a bucket.
    names = store.list_folders()
    if not names and not store.exists():
        raise WorkError(f"{root}: there are no datasets here; give the folder that refresh publishes to")
    return sorted(name for name in names if _NAME.fullmatch(name) and DatasetVersions(root, name).numbers())
