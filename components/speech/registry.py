"""The registry: `<registry>/<model>/<version>/`, as TensorFlow Serving reads it, and the journal of what changed.

The version with the highest number is in service, since that is the one TensorFlow Serving loads; so a
rollback publishes the old bytes once more, under a new number. A version appears whole, by the rename of
a hidden folder, and is never changed afterwards. Beside the model each version holds `version.json`, which
says how it came about; the journal is the list of these, so that a line lost to a crash can be written again.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import SettingsError, WorkError
from components.speech.exported import digest, exported_folder, parts
from components.speech.journal import Change as Change
from components.speech.journal import Journal, sync_folder, utc
from components.speech.progress import say
from components.speech.storage import read_json, write_json

VERSION = "version.json"
JOURNAL = "journal.jsonl"
CARD = "model_card.md"
PROVENANCE = "provenance.json"
EVALUATION = "evaluation"
_INCOMING = ".incoming-"
_LOCK = ".lock"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""A version: short of the 64 bits that TensorFlow Serving reads."""
_ODD_NUMBER = re.compile(r"0[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Registry:
    """The versions of one model.

    Args:
      root: the folder that holds a folder for each model; made when the first version is published.
      model: the model's name: letters, digits, `.`, `_`, `-`.
    """

    def __init__(self, root: Path | str, model: str) -> None:
        if "://" in str(root):
            raise SettingsError(f"registry {root}: a folder is accepted, or a bucket mounted as one")
        if not _NAME.fullmatch(model):
            raise SettingsError(f"model name {model!r}: letters, digits, '.', '_' and '-' are accepted, up to 100")
        self.model = model
        self.folder = Path(root).absolute() / model
        self._journal = Journal(self.folder / JOURNAL)

    def versions(self) -> list[int]:
        """The versions that are there, oldest first.

        Raises:
          WorkError: a folder is named like `007`, which TensorFlow Serving takes for version 7.
        """
        if not self.folder.is_dir():
            return []
        odd = sorted(path.name for path in self.folder.iterdir() if _ODD_NUMBER.fullmatch(path.name) and path.is_dir())
        if odd:
            raise WorkError(
                f"{self.folder / odd[0]}: TensorFlow Serving takes this folder for version {int(odd[0])}; "
                f"rename it to {int(odd[0])} if it is that, or move it away"
            )
        return sorted(int(path.name) for path in self.folder.iterdir() if _is_version(path))

    def in_service(self) -> int | None:
        """The version that TensorFlow Serving loads: the highest; None where there is none."""
        return max(self.versions(), default=None)

    def path(self, version: int) -> Path:
        """The folder of a version.

        Raises:
          WorkError: there is no such version.
        """
        if version not in self.versions():
            there = ", ".join(map(str, self.versions())) or "none"
            raise WorkError(f"{self.folder}: no version {version}; there: {there}")
        return self.folder / str(version)

    def change(self, version: int) -> Change:
        """How a version came about.

        Raises:
          WorkError: there is no such version, or what says so is damaged and in no line of the journal either.
        """
        folder = self.path(version)
        if (folder / VERSION).is_file():
            change = self._told_by(folder, version)
            if change.version == version:  # else the folder is a copy of another version's
                return change
        return Change(version, "found", utc(folder.stat().st_mtime), _digest_if_any(folder), note="put here by hand")

    def is_whole(self, version: int) -> bool:
        """Whether the model's files are still those that were published."""
        return _digest_if_any(self.path(version)) == self.change(version).digest

    def journal(self) -> list[Change]:
        """Every change, in order. Lines that a crash kept from being written are there too."""
        changes = self._journal.read()
        return changes + self._unwritten(changes)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the registry of this model against other processes, and mends what a killed one left.

        The lock goes when its process does, however that ends.

        Raises:
          WorkError: it cannot be written: no permission, no space.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / _LOCK, "ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say(f"waiting for another process that is changing {self.model} in the registry")
                    fcntl.flock(lock, fcntl.LOCK_EX)
                self._mend()
                yield
        except OSError as error:
            raise WorkError(
                f"{self.folder}: the registry cannot be changed ({error.strerror or error}: {error.filename}); "
                "what is in service stays so; mend that and try again"
            ) from error

    @contextlib.contextmanager
    def publishing(
        self, model: Path | str, expected_digest: str, action: str, **details: Any
    ) -> Iterator[tuple[int, Path]]:
        """Publishes a version; to be called with the lock held.

        The block gets the new version's number and its still hidden folder, with the model already copied
        there, and may add files. When it ends without an error the version appears.

        Args:
          model: an exported model.
          expected_digest: what was judged; other bytes are not published.
          action, details: of the `Change`.

        Raises:
          WorkError: the bytes are not those that were judged.
        """
        source = exported_folder(model)
        version = self._next()
        incoming = self.folder / f"{_INCOMING}{version}-{secrets.token_hex(4)}"
        try:
            for part in parts(source):
                (incoming / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / part, incoming / part)
            if digest(incoming) != expected_digest:
                raise WorkError(
                    f"{source}: its bytes are not those that were judged; nothing was published, evaluate again"
                )
            yield version, incoming
            change = Change(version, action, utc(time.time()), expected_digest, self.in_service(), **details)
            write_json(incoming / VERSION, dataclasses.asdict(change))
            _sync(incoming)
            incoming.rename(self.folder / str(version))
            sync_folder(self.folder)
            self._journal.append(change)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def rollback(self, to: int | None = None, note: str = "") -> Change:
        """Puts an older version's bytes back in service, as a new version.

        Args:
          to: the version; None: the one in service before the present one (after a rollback: the one
            before that which was rolled back to, so that rolling back twice goes two steps back).

        Raises:
          WorkError: there is nothing to go back to, or that version was damaged.
        """
        if self.in_service() is None:
            raise WorkError(f"{self.folder}: no version yet, so nothing to roll back; push one first")
        with self.locked():
            present = max(self.versions())
            target = self._before(present) if to is None else to
            old, now = self.change(target), self.change(present)
            if old.digest == now.digest and self.is_whole(present):
                raise WorkError(
                    f"version {target} of {self.model} is what version {present} serves already; give another"
                )
            if not self.is_whole(target):
                raise WorkError(f"{self.path(target)}: damaged since it was published; roll back to another version")
            details = {"copy_of": self._origin(target), "wer": old.wer, "figures": old.figures, "note": note}
            with self.publishing(self.path(target), old.digest, "rollback", **details) as (version, incoming):
                for name in (CARD, PROVENANCE):
                    if (self.path(target) / name).is_file():
                        shutil.copyfile(self.path(target) / name, incoming / name)
                if (self.path(target) / EVALUATION).is_dir():
                    shutil.copytree(self.path(target) / EVALUATION, incoming / EVALUATION)
            return self.change(version)

    def rolled_back(self) -> dict[str, int]:
        """Models that a person took out of service: digest → the version that was rolled back."""
        changes = {change.version: change for change in self.journal()}
        found: dict[str, int] = {}
        for change in changes.values():
            if change.action == "rollback" and change.replaces in changes:
                found[changes[change.replaces].digest] = change.replaces
            found.pop(change.digest, None)
        return found

    def _origin(self, version: int) -> int:
        return self.change(version).copy_of or version

    def _before(self, present: int) -> int:
        serving = self.change(present).digest
        older = [v for v in self.versions() if v < self._origin(present) and self.change(v).digest != serving]
        if not older:
            raise WorkError(f"{self.folder}: nothing older than version {self._origin(present)} to roll back to")
        return self._origin(older[-1])

    def _next(self) -> int:
        """The next number; numbers of versions that were deleted are not used again, nor what is no folder."""
        taken = [int(path.name) for path in self.folder.iterdir() if _NUMBER.fullmatch(path.name)]
        version = max([*taken, *(change.version for change in self.journal())], default=0) + 1
        if not _NUMBER.fullmatch(str(version)):
            raise WorkError(f"{self.folder}: no number is left after {version - 1}; rename that version to a lower one")
        return version

    def _told_by(self, folder: Path, version: int) -> Change:
        """What `version.json` says or, where that is damaged, the journal."""
        try:
            return Change.of(read_json(folder / VERSION))
        except (ValueError, TypeError, AttributeError) as error:
            for change in self._journal.read():
                if change.version == version:
                    return change
            raise WorkError(
                f"{folder / VERSION}: damaged ({error}), and the journal has no line of version {version}; "
                "remove that file, and the model counts as put there by hand"
            ) from None

    def _unwritten(self, changes: list[Change]) -> list[Change]:
        known = {change.version for change in changes}
        return [self.change(version) for version in self.versions() if version not in known]

    def _mend(self) -> None:
        """Removes what a killed push left half copied, and writes the line that it did not come to write."""
        for path in self.folder.glob(f"{_INCOMING}*"):
            shutil.rmtree(path, ignore_errors=True)
        self._journal.cut_unfinished_line()
        for change in self._unwritten(self._journal.read()):
            self._journal.append(change)


def models(root: Path | str) -> list[str]:
    """The names of the models in a registry.

    Raises:
      WorkError: there is no such folder.
    """
    root = Path(root).absolute()
    if not root.is_dir():
        raise WorkError(
            f"{root}: no such folder, so no registry here; give the one that runs push to (the first push makes it)"
        )
    names = [path.name for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(name for name in names if Registry(root, name).versions())


def _is_version(path: Path) -> bool:
    return _NUMBER.fullmatch(path.name) is not None and path.is_dir()


def _digest_if_any(folder: Path) -> str:
    try:
        return digest(folder)
    except WorkError:
        return ""


def _sync(folder: Path) -> None:
    """Sends all files of a folder to the disk, so that its rename cannot outrun them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)
