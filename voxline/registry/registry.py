"""The model registry: `<registry>/<model>/<version>/`, as TensorFlow Serving reads it, and a journal of all changes.

The version in service is the one that the alias `production` points at. The journal says which that is: the last one
that was pushed to production, rolled back to, or promoted. `models_config` tells TensorFlow Serving. A rollback
publishes the old bytes again under a new number, so that a server which loads the highest number goes back as well.

A version appears whole or not at all, in a folder and in a bucket alike:

  1. its files are written to the staging folder `.incoming-<version>-<random>/`;
  2. the event is appended to the journal, which decides that the version will exist;
  3. the staging folder becomes `<version>/`: by a rename in a folder, by copies within the storage in a bucket.

A process killed before step 2 leaves a staging folder, which the next change removes. A process killed after it leaves
a decided version, which the next change completes. A version never changes afterwards. Its `version.json` repeats the
event, so that a line missing from the journal can be restored.
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

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.inference.saved_model import exported_folder, model_digest, model_files
from voxline.progress import print_status
from voxline.registry.journal import (
    ALIASES,
    CANDIDATE,
    PRODUCTION,
    PROMOTE,
    WITHDRAW,
    Existing,
    History,
    Journal,
    JournalError,
    RegistryEvent,
    format_utc,
)
from voxline.registry.signing import SIGNATURE, check_digest, check_signature, digest_or_empty, sign_version
from voxline.registry.training_data import TRAINED_ON
from voxline.store.files import users_umask, write_json
from voxline.store.objects import open_store

VERSION_FILE = "version.json"
MODEL_CARD = "model_card.md"
PROVENANCE = "provenance.json"
EVALUATION = "evaluation"
UNSIGNED = (VERSION_FILE, MODEL_CARD, PROVENANCE, EVALUATION, TRAINED_ON)
"""What a version holds beside its model; a purge may change it."""
STAGING = ".incoming-"
_STAGING_FOLDER = re.compile(re.escape(STAGING) + r"([0-9]+)-.*")
_LOCK = ".lock"
_LAST_FILES = ("saved_model.pb", VERSION_FILE)
"""TensorFlow Serving looks for the first, this registry for the second: both appear when all other files are there."""
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
"""Below the 64 bits that TensorFlow Serving reads."""
_LEADING_ZERO = re.compile(r"0[0-9]+")
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Registry:
    """The versions of one model.

    Args:
      root: folder or bucket URI of the registry. The first push creates it.
      model: the model's name: letters, digits, `.`, `_`, `-`.

    Attributes:
      uri: the model's folder or bucket URI.
      folder: the model's folder on this machine; for a bucket, its cache.

    Raises:
      SettingsError: the name or the URI is not accepted.
    """

    def __init__(self, root: Path | str, model: str) -> None:
        if not MODEL_NAME.fullmatch(model):
            raise SettingsError(f"model name {model!r}: letters, digits, '.', '_' and '-' are accepted, up to 100")
        self.model = model
        self._store = open_store(root) / model
        self._journal = Journal(self._store)
        self.uri = self._store.uri

    @property
    def root(self) -> str:
        """The registry of all models."""
        return self.uri.rpartition("/")[0]

    @property
    def folder(self) -> Path:
        return self._store.local_path()

    def versions(self) -> list[int]:
        """The versions that exist, in ascending order.

        Raises:
          WorkError: a folder has a name like `007`, which TensorFlow Serving would load as version 7.
        """
        names = self._store.list_folders()
        if ambiguous := sorted(name for name in names if _LEADING_ZERO.fullmatch(name)):
            raise WorkError(
                f"{self._store.uri_of(ambiguous[0])}: TensorFlow Serving takes this folder for version "
                f"{int(ambiguous[0])}; rename it to {int(ambiguous[0])} if it is that, or move it away"
            )
        staged = {match[1] for match in map(_STAGING_FOLDER.fullmatch, names) if match}
        # A folder without a marker is incomplete while its staging folder exists, else a person put it there.
        incomplete = {name for name in staged & set(names) if self._store.stat(f"{name}/{VERSION_FILE}") is None}
        return sorted(int(name) for name in names if _VERSION.fullmatch(name) and name not in incomplete)

    def in_service(self) -> int | None:
        """The version that callers get, at which `production` points; None if there is none."""
        return self.history().in_service

    def candidate(self) -> int | None:
        """The version that passed the gate and waits to be promoted; None if there is none."""
        return self.history().candidate

    def resolve(self, version: int | str) -> int:
        """The number of a version that is named by its number or by an alias.

        Raises:
          WorkError: no version has that number or alias.
          SettingsError: the alias is unknown.
        """
        if str(version).isdecimal():
            return self._check_exists(int(version))
        if version not in ALIASES:
            raise SettingsError(f"version {version!r}: a number, {' or '.join(ALIASES)} is accepted")
        number = self.in_service() if version == PRODUCTION else self.candidate()
        if number is None:
            raise WorkError(f"{self.uri}: no version is {version} now; name one by its number")
        return number

    def path(self, version: int) -> Path:
        """The folder of a version on this machine. From a bucket it is downloaded.

        Raises:
          WorkError: the version does not exist.
        """
        return self._store.localize(str(self._check_exists(version)))

    def read_file(self, version: int, name: str) -> bytes | None:
        """A file of a version, without downloading the model; None if the version has no such file.

        Raises:
          WorkError: the version does not exist.
        """
        return self._read(f"{self._check_exists(version)}/{name}")

    def file_versions(self, version: int) -> list[str]:
        """Tokens of a version's files, which change with them."""
        return [f"{info.name} {info.version}" for info in self._store.list(f"{version}/")]

    def event(self, version: int) -> RegistryEvent:
        """The event that created a version.

        Raises:
          WorkError: the version does not exist.
          JournalError: its `version.json` is damaged, and the journal lacks its line.
        """
        # `version.json` first: it is of the version, whatever happened to the journal since.
        self._check_exists(version)
        data = self._read(f"{version}/{VERSION_FILE}")
        if data is not None:
            event = self._parse_event(data, version)
            if event.version == version:  # else a person copied the folder of another version
                return event
        if (published := self._published(version)) is not None:
            return published  # what is there now need not be what was published

        # Neither the journal nor the version says how it came here, so a person copied it.
        updated = max((info.updated.timestamp() for info in self._store.list(f"{version}/")), default=0.0)
        digest = digest_or_empty(self._store.localize(str(version)))
        return RegistryEvent(version, "import", format_utc(updated), digest, note="copied here by hand")

    def is_intact(self, version: int) -> bool:
        """Returns whether the model's files are the ones that were published."""
        return digest_or_empty(self.path(version)) == self.event(version).digest

    def intact_path(self, version: int) -> Path:
        """The folder of a version whose model is to be loaded.

        Raises:
          WorkError: the version does not exist, or its files are not the ones that were published.
        """
        return check_digest(self.path(version), self.event(version).digest, UNSIGNED)

    def journal(self) -> list[RegistryEvent]:
        """All events in order, including one that a crash kept out of the journal file.

        Raises:
          JournalError: the journal is damaged, or lacks lines of several versions, or all of them.
        """
        events = self._journal.read()

        # One missing line is what a crash leaves; several, or all, mean that the file was lost.
        missing = self._missing(events)
        published = [event.version for event in missing if event.action != "import"]
        if published and (not events or len(published) > 1):
            if self._journal.read() != events:  # another process has published meanwhile
                return self.journal()
            numbers = ", ".join(map(str, published))
            raise JournalError(self.uri, f"lost, or cut short: it has no line of version {numbers}")
        return events + missing

    def history(self) -> History:
        """Returns the versions in service, before it, and waiting."""
        return History(self.journal(), self.existing())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the model against other processes, and completes or removes what a killed process left.

        If a lock in a bucket is lost, publishing under it fails, because the journal is fenced.

        Raises:
          WorkError: the registry cannot be written: no permission, no space.
          PreconditionError: another process changed the registry at the same time.
          JournalError: the journal is damaged or lost.
        """
        try:
            with users_umask(), self._exclusive():
                self.journal()  # a damaged one is not written again
                self._recover(self._journal.fence())  # nobody else can decide anything from here on
                self._journal.append(self._missing(self._journal.read()))
                yield
        except OSError as error:
            raise WorkError(
                f"{self.uri}: the registry cannot be changed ({error.strerror or error}: {error.filename}); "
                "the version in service has not changed; fix that and try again"
            ) from error

    @contextlib.contextmanager
    def rebuilding(self) -> Iterator[Journal]:
        """Locks the model, and gives its damaged journal. Other processes change nothing meanwhile."""
        with users_umask(), self._exclusive():
            yield self._journal

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        return self._store.lock(_LOCK, f"waiting for another process that is changing {self.model} in the registry")

    @contextlib.contextmanager
    def publishing(
        self, model: Path | str, expected_digest: str, action: str, **details: Any
    ) -> Iterator[tuple[int, Path]]:
        """Publishes a version. Call it with the lock held.

        The block gets the version's number and its staging folder, which already holds the model, and may add files.
        The version appears when the block ends without an error.

        Args:
          model: an exported model.
          expected_digest: of the model that was evaluated; other bytes are refused.
          action, details: fields of the `RegistryEvent`.

        Raises:
          WorkError: the bytes are not those that were evaluated.
          PreconditionError: another process took the lock over; nothing was published.
          TransientError: the version is decided but incomplete; the next change of the registry completes it.
        """
        source = exported_folder(model)
        version = self._next_version()
        name = f"{STAGING}{version}-{secrets.token_hex(4)}"
        staging = self._store.local_path(name)
        decided = False

        # Copied first and then verified: what is published is what was looked at, whatever happens to the source.
        try:
            for part in model_files(source):
                (staging / part).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / part, staging / part)
            if model_digest(staging) != expected_digest:
                raise WorkError(
                    f"{source}: its bytes are not those that were evaluated; nothing was published, evaluate again"
                )
            yield version, staging

            # Signed with all files that the model has, and before `version.json`, which the signature does not cover.
            sign_version(staging, UNSIGNED)
            event = RegistryEvent(
                version, action, format_utc(time.time()), expected_digest, self.in_service(), **details
            )
            write_json(staging / VERSION_FILE, dataclasses.asdict(event))
            self._store.upload_folder(name, last=(VERSION_FILE,))
            # The decision: before this line nothing has happened, after it the version exists.
            self._journal.append([event])
            decided = True  # what is staged on a disk is all there is of the version now
            self._complete(name, version)
            shutil.rmtree(staging, ignore_errors=True)  # the copy of what is in a bucket
        # Undecided files belong to nobody.
        finally:
            if not decided:
                shutil.rmtree(staging, ignore_errors=True)

    def rollback(self, to: int | None = None, note: str = "") -> RegistryEvent:
        """Puts the bytes of an older version back into service, as a new version.

        Args:
          to: the version; None for the one in service before the present one, but none that was rolled back itself.
            After a rollback that is the one before the version rolled back to, so that two rollbacks go two steps back.

        Raises:
          WorkError: there is no older version, its files are damaged, or a public key is configured that did not sign
            them.
        """
        if self.in_service() is None:
            raise WorkError(f"{self.uri}: no version yet, so nothing to roll back; push one first")
        with self.locked():
            # Read again under the lock: another process may have pushed meanwhile.
            present = self.resolve(PRODUCTION)
            target = self._version_before(present) if to is None else to
            target_event = self.event(target)
            present_event = self.event(present)
            if target_event.digest == present_event.digest and self.is_intact(present):
                raise WorkError(
                    f"version {target} of {self.model} is what version {present} serves already; give another"
                )
            folder = self._servable(target, "roll back to another version")

            details = {
                "copy_of": self._origin(target), "metrics": target_event.metrics, "note": note,
                "anchor": target_event.anchor or self._origin(target),
            }  # fmt: skip
            with self.publishing(folder, target_event.digest, "rollback", **details) as (version, staging):
                for name in (MODEL_CARD, PROVENANCE, TRAINED_ON, SIGNATURE):
                    if (folder / name).is_file():
                        shutil.copyfile(folder / name, staging / name)
                if (folder / EVALUATION).is_dir():
                    shutil.copytree(folder / EVALUATION, staging / EVALUATION)
            return self.event(version)

    def promote(self, version: int | str, alias: str = PRODUCTION, note: str = "") -> RegistryEvent:
        """Points an alias at a version. The version's files stay as they are.

        Args:
          version: its number, or an alias that points at it.

        Raises:
          WorkError: the version does not exist, it has the alias or is production already, or it is damaged or not
            signed.
          SettingsError: an alias is unknown.
        """
        if alias not in ALIASES:
            raise SettingsError(f"alias {alias!r}: {' or '.join(ALIASES)} is accepted")
        self.resolve(version)  # before a lock that would create the model's folder
        with self.locked():
            target = self.resolve(version)
            present = self.in_service()

            # A version that has the alias, or is in production already, would be moved nowhere.
            held = PRODUCTION if target == present else CANDIDATE if target == self.candidate() else ""
            if held in (alias, PRODUCTION):
                raise WorkError(f"version {target} of {self.model} is {held} already; name another version")
            self._servable(target, "promote another version")
            target_event = self.event(target)
            event = RegistryEvent(
                target, PROMOTE, format_utc(time.time()), target_event.digest, present, note=note,
                metrics=target_event.metrics, anchor=target_event.anchor, alias=alias,
            )  # fmt: skip
            self._journal.append([event])
            return event

    def withdraw(self, version: int, note: str = "") -> RegistryEvent:
        """Takes the alias `candidate` from a version, which stays in the registry.

        Raises:
          WorkError: the version is not the candidate, or not any more.
        """
        with self.locked():
            if self.candidate() != version:
                raise WorkError(f"version {version} of {self.model} is not the candidate; nothing was withdrawn")

            candidate_event = self.event(version)
            event = RegistryEvent(
                version, WITHDRAW, format_utc(time.time()), candidate_event.digest, self.in_service(), note=note,
                metrics=candidate_event.metrics, anchor=candidate_event.anchor, alias=CANDIDATE,
            )  # fmt: skip
            self._journal.append([event])
            return event

    def _servable(self, version: int, advice: str) -> Path:
        """The folder of a version that is about to be served; one that is damaged or not signed is refused."""
        if not self.is_intact(version):
            raise WorkError(f"{self._store.uri_of(str(version))}: damaged since it was published; {advice}")
        folder = self.path(version)
        check_signature(folder, UNSIGNED)  # else it would be served, and signed where there is a private key
        return folder

    def _recover(self, events: list[RegistryEvent]) -> None:
        """Completes decided versions and removes undecided ones, which killed processes left in staging folders."""
        # Decided by the journal, and staged with the very event: both must agree.
        decided = {event.version: event for event in events if event.makes_version}
        for name in self._store.list_folders():
            if not name.startswith(STAGING):
                continue
            match = _STAGING_FOLDER.fullmatch(name)
            event = decided.get(int(match[1])) if match else None
            data = self._read(f"{name}/{VERSION_FILE}")
            if event and data is not None and event.equals(data):
                print_status(f"{self.uri}: completing version {event.version}, which another process had decided on")
                self._complete(name, event.version)
            # Undecided: the journal has no such event, so no reader has seen the version.
            else:
                self._store.delete_folder(name, first=(VERSION_FILE,))

    def _complete(self, staging: str, version: int) -> None:
        """Turns a staging folder into a version. Two processes may do so at once, since they do the same."""
        try:
            # Copies in a bucket, with the files last that servers look for; a rename on a disk.
            self._store.move_folder(staging, str(version), last=_LAST_FILES)
        except WorkError as error:
            raise TransientError(
                f"{self._store.uri_of(str(version))}: decided but incomplete ({error}); "
                "push or roll back again, which completes it first"
            ) from error

    def _read(self, name: str) -> bytes | None:
        try:
            return self._store.read(name)
        except FileNotFoundError:
            return None

    def _parse_event(self, data: bytes, version: int) -> RegistryEvent:
        """The event of a `version.json`; if that file is damaged, of the journal."""
        try:
            return RegistryEvent.of(json.loads(data))
        except (ValueError, TypeError, AttributeError) as error:
            if (published := self._published(version)) is not None:
                return published
            reason = f"has no line of version {version}, and {version}/{VERSION_FILE} is damaged ({error})"
            raise JournalError(self.uri, reason) from None

    def _published(self, version: int) -> RegistryEvent | None:
        """The journal's line of a version that this registry published."""
        # An import is a note of what is there, not of what was published.
        lines = (event for event in self._journal.read() if event.version == version and event.makes_version)
        return next((event for event in lines if event.action != "import"), None)

    def _missing(self, events: list[RegistryEvent]) -> list[RegistryEvent]:
        """Events of versions that are not among these."""
        versions = {event.version for event in events if event.makes_version}
        return [self.event(version) for version in self.versions() if version not in versions]

    def _origin(self, version: int) -> int:
        return self.event(version).copy_of or version

    def _version_before(self, present: int) -> int:
        # Bytes that are in production, or were rolled back, are not gone back to.
        digest = self.event(present).digest
        origin = self._origin(present)
        history = self.history()
        bad = {digest, *history.rolled_back}
        older = [v for v in sorted({*history.production}) if v < origin and self.event(v).digest not in bad]
        if not older:
            raise WorkError(f"{self.uri}: nothing older than version {origin} to roll back to")
        return self._origin(older[-1])

    def _next_version(self) -> int:
        """The next number. Numbers of deleted versions are not used again, nor names that a file has."""
        # A number that a deleted version had may still be in a server's memory or in a report.
        names = {info.name.partition("/")[0] for info in self._store.list()} | set(self._store.list_folders())
        used = [int(name) for name in names if _VERSION.fullmatch(name)]
        version = max([*used, *(event.version for event in self.journal())], default=0) + 1
        if not _VERSION.fullmatch(str(version)):
            raise WorkError(f"{self.uri}: no number is left after {version - 1}; rename that version to a lower one")
        return version

    def existing(self) -> Existing:
        """The versions that exist, also those that a stale listing of a bucket lacks."""
        return Existing(self.versions(), lambda version: self._store.stat(f"{version}/{VERSION_FILE}") is not None)

    def _check_exists(self, version: int) -> int:
        if version in self.existing():
            return version
        raise WorkError(f"{self.uri}: no version {version}; existing: {', '.join(map(str, self.versions())) or 'none'}")
