"""The registry: `<registry>/<model>/<version>/`, as TensorFlow Serving reads it, and the journal of what changed.

The version with the highest number is in service, since that is the one TensorFlow Serving loads; so a
rollback publishes the old bytes once more, under a new number. A version appears whole (how: `shelf` on a disk,
`remote_shelf` in a bucket), and is never changed afterwards. Beside the model each version holds `version.json`,
which says how it came about; the journal is the list of these, so that a line lost to a crash can be written again.
"""

import contextlib
import dataclasses
import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import TRAINING_FOLDERS, exported_folder, model_digest, model_files
from voxline.registry.backends import INCOMING, VERSION, RemoteShelf, Shelf
from voxline.registry.journal import RegistryEvent as Change
from voxline.registry.journal import format_utc
from voxline.registry.training_data import TRAINED_ON
from voxline.store.bucket_cache import localize
from voxline.store.files import write_json
from voxline.store.objects import is_remote, open_store

MODEL_CARD = "model_card.md"
PROVENANCE = "provenance.json"
EVALUATION = "evaluation"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""A version: short of the 64 bits that TensorFlow Serving reads."""
_ODD_NUMBER = re.compile(r"0[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Registry:
    """The versions of one model.

    Args:
      root: the folder that holds a folder for each model, or gs://…; made when the first version is published.
      model: the model's name: letters, digits, `.`, `_`, `-`.

    Attributes:
      folder: of the model, on this machine; of a bucket its mirror.
      uri: the same, as a person is told: a path, or gs://…
    """

    def __init__(self, root: Path | str, model: str) -> None:
        if "://" in str(root) and not is_remote(root):
            raise SettingsError(f"registry {root}: a folder is accepted, or one in a bucket: gs://BUCKET/FOLDER")
        if not _NAME.fullmatch(model):
            raise SettingsError(f"model name {model!r}: letters, digits, '.', '_' and '-' are accepted, up to 100")
        self.model = model
        self._shelf: Shelf | RemoteShelf = (
            RemoteShelf(f"{str(root).rstrip('/')}/{model}") if is_remote(root) else Shelf(Path(root).absolute() / model)
        )
        self._journal = self._shelf.journal
        self.uri = self._shelf.place

    @property
    def folder(self) -> Path:
        return self._shelf.folder

    def versions(self) -> list[int]:
        """The versions that are there, oldest first.

        Raises:
          WorkError: a folder is named like `007`, which TensorFlow Serving takes for version 7.
        """
        names = self._shelf.names()
        odd = sorted(name for name in names if _ODD_NUMBER.fullmatch(name))
        if odd:
            raise WorkError(
                f"{self.uri}/{odd[0]}: TensorFlow Serving takes this folder for version {int(odd[0])}; "
                f"rename it to {int(odd[0])} if it is that, or move it away"
            )
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def in_service(self) -> int | None:
        """The version that TensorFlow Serving loads: the highest; None where there is none."""
        return max(self.versions(), default=None)

    def path(self, version: int) -> Path:
        """The folder of a version, on this machine: from a bucket it is brought first.

        Raises:
          WorkError: there is no such version.
        """
        self._check_is_there(version)
        return self._shelf.fetch(str(version))

    def read_file(self, version: int, file: str) -> bytes | None:
        """A file that lies beside a version's model, such as its provenance, without the model; None: there is none.

        Raises:
          WorkError: there is no such version.
        """
        self._check_is_there(version)
        return self._shelf.read(str(version), file)

    def event(self, version: int) -> Change:
        """How a version came about.

        Raises:
          WorkError: there is no such version, or what says so is damaged and in no line of the journal either.
        """
        self._check_is_there(version)
        told = self._shelf.read(str(version), VERSION)
        if told is not None:
            change = self._told_by(told, version)
            if change.version == version:  # else the folder is a copy of another version's
                return change
        since, found = self._shelf.since(str(version)), _digest_if_any(self._shelf.fetch(str(version)))
        return Change(version, "import", format_utc(since), found, note="put here by hand")

    def is_intact(self, version: int) -> bool:
        """Whether the model's files are still those that were published."""
        return _digest_if_any(self.path(version)) == self.event(version).digest

    def journal(self) -> list[Change]:
        """Every change, in order. Lines that a crash kept from being written are there too."""
        changes = self._journal.read()
        return changes + self._unwritten(changes)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the registry of this model against other processes, and mends what a killed one left.

        Raises:
          WorkError: it cannot be written: no permission, no space.
        """
        try:
            with self._shelf.locked(self.model):
                self._journal.append(self._unwritten(self._journal.read()))
                yield
        except OSError as error:
            raise WorkError(
                f"{self.uri}: the registry cannot be changed ({error.strerror or error}: {error.filename}); "
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
        incoming = self.folder / f"{INCOMING}{version}-{secrets.token_hex(4)}"
        try:
            for part in model_files(source):
                (incoming / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / part, incoming / part)
            if model_digest(incoming) != expected_digest:
                raise WorkError(
                    f"{source}: its bytes are not those that were judged; nothing was published, evaluate again"
                )
            yield version, incoming
            change = Change(version, action, format_utc(time.time()), expected_digest, self.in_service(), **details)
            write_json(incoming / VERSION, dataclasses.asdict(change))
            self._shelf.publish(incoming, change)
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
            raise WorkError(f"{self.uri}: no version yet, so nothing to roll back; push one first")
        with self.locked():
            present = max(self.versions())
            target = self._before(present) if to is None else to
            old, now = self.event(target), self.event(present)
            if old.digest == now.digest and self.is_intact(present):
                raise WorkError(
                    f"version {target} of {self.model} is what version {present} serves already; give another"
                )
            if not self.is_intact(target):
                raise WorkError(f"{self.uri}/{target}: damaged since it was published; roll back to another version")
            details = {"copy_of": self._origin(target), "metrics": old.metrics, "note": note}
            with self.publishing(self.path(target), old.digest, "rollback", **details) as (version, incoming):
                for name in (MODEL_CARD, PROVENANCE, TRAINED_ON):
                    if (self.path(target) / name).is_file():
                        shutil.copyfile(self.path(target) / name, incoming / name)
                if (self.path(target) / EVALUATION).is_dir():
                    shutil.copytree(self.path(target) / EVALUATION, incoming / EVALUATION)
            return self.event(version)

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
        return self.event(version).copy_of or version

    def _before(self, present: int) -> int:
        serving = self.event(present).digest
        older = [v for v in self.versions() if v < self._origin(present) and self.event(v).digest != serving]
        if not older:
            raise WorkError(f"{self.uri}: nothing older than version {self._origin(present)} to roll back to")
        return self._origin(older[-1])

    def _next(self) -> int:
        """The next number; numbers of versions that were deleted are not used again, nor what is no folder."""
        taken = [int(name) for name in self._shelf.taken() if _NUMBER.fullmatch(name)]
        version = max([*taken, *(change.version for change in self.journal())], default=0) + 1
        if not _NUMBER.fullmatch(str(version)):
            raise WorkError(f"{self.uri}: no number is left after {version - 1}; rename that version to a lower one")
        return version

    def _check_is_there(self, version: int) -> None:
        there = self.versions()
        if version not in there:
            raise WorkError(f"{self.uri}: no version {version}; there: {', '.join(map(str, there)) or 'none'}")

    def _told_by(self, told: bytes, version: int) -> Change:
        """What `version.json` says or, where that is damaged, the journal."""
        try:
            return Change.of(json.loads(told))
        except (ValueError, TypeError, AttributeError) as error:
            for change in self._journal.read():
                if change.version == version:
                    return change
            raise WorkError(
                f"{self.uri}/{version}/{VERSION}: damaged ({error}), and the journal has no line of version "
                f"{version}; remove that file, and the model counts as put there by hand"
            ) from None

    def _unwritten(self, changes: list[Change]) -> list[Change]:
        known = {change.version for change in changes}
        return [self.event(version) for version in self.versions() if version not in known]


def model_names(root: Path | str) -> list[str]:
    """The names of the models in a registry.

    Raises:
      SettingsError: it is no place of ours.
      WorkError: there is no such folder.
    """
    if "://" in str(root) and not is_remote(root):
        raise SettingsError(f"registry {root}: a folder is accepted, or one in a bucket: gs://BUCKET/FOLDER")
    if is_remote(root):
        names = list(open_store(str(root)).list_folders())
    else:
        root = Path(root).absolute()
        names = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    if not names and not (isinstance(root, Path) and root.is_dir()):
        raise WorkError(
            f"{root}: no such folder, so no registry here; give the one that runs push to (the first push makes it)"
        )
    return sorted(name for name in names if _NAME.fullmatch(name) and Registry(root, name).versions())


def find_model(location: Path | str) -> Path:
    """Finds an exported model, and returns its folder on this machine.

    Args:
      location: an exported model, train's output, a version's folder in a registry, or `<registry>/<model>` for the
        version in service; a folder, or one in a bucket.

    Raises:
      WorkError: the location holds no model.
    """
    location = str(location) if is_remote(location) else str(Path(location).absolute())
    if not _is_exported(location):
        root, _, name = location.rstrip("/").rpartition("/")
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None:
            return registry.path(version)
    return exported_folder(localize(location, without=TRAINING_FOLDERS))


def _is_exported(location: str) -> bool:
    """Whether it cannot be `<registry>/<model>`: it holds an exported model, or no folder is there."""
    if is_remote(location):
        return any(open_store(location).stat(name) for name in ("saved_model.pb", "model/saved_model.pb"))
    folder = Path(location)
    return not folder.is_dir() or (folder / "saved_model.pb").exists() or (folder / "model").exists()


def _digest_if_any(folder: Path) -> str:
    try:
        return model_digest(folder)
    except WorkError:
        return ""
