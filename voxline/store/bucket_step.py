"""The output of a step in a bucket: each process writes to an attempt of its own until the marker names one.

  <store>/<step>/<key>/done.json       which attempt counts, and the step's counts, metrics and outputs; written last
  <store>/<step>/<key>/progress.json   which attempt can be resumed, and its files, each of them whole
  <store>/<step>/<key>/used.json       of an extracted dataset: when it was last used, for the garbage collection
  <store>/<step>/<key>/<attempt>/…     what one process wrote; no other ever writes there

Two machines that do the same work at once waste time and harm nothing: the marker is written on condition that it is
still what it was when the work began, and the machine that comes second takes the first one's result.
"""

import contextlib
import datetime
import fnmatch
import functools
import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.progress import print_status
from voxline.store.files import DONE, check_seal, link_or_copy, seal_marker, write_json, write_text
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ABSENT
from voxline.store.uris import invalid_name_reason

PROGRESS_FILE = "progress.json"
LAST_USE_FILE = "used.json"
"""Its age says how long finished work has not been used."""
FRESH_SECONDS = 3_600.0
"""For which its marker alone says that work is in use."""
_SNAPSHOT = ".uploading"
"""The changed files of an attempt as they were when a partial upload began: the training continues meanwhile."""
_APPENDED = "*tfevents*"
"""TensorBoard's files, which grow; all others are replaced by rename."""
_ATTEMPT_FILE = ".attempt"
"""Names the attempt that was started on this machine; its process is gone once the folder's lock is free."""

_ATTEMPT = re.compile(r"[0-9a-f]{12}")

SAVE_SECONDS = 30.0
"""From the end of one partial upload to the next, at least; and nine times as long as one takes."""


class BucketStep:
    """The output folder of a step, in a bucket and on this machine.

    Attributes:
      store: of `<store>/<step>/<key>`.
      attempt: whose files `folder` holds.
      done: the marker, if the work is finished.
    """

    def __init__(self, uri: str) -> None:
        self.store = open_store(uri)
        self.attempt = ""
        self.done: dict[str, Any] | None = None
        self._version = ABSENT
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._resumed = ""
        self._next_save = 0.0
        self._unsaved = False

    @property
    def folder(self) -> Path:
        return self._root / self.attempt

    @property
    def uri(self) -> str:
        """The attempt's folder in the bucket."""
        return self.store.uri_of(self.attempt)

    def load_marker(self) -> None:
        """Checks whether the work is finished; `folder` is that of the finished attempt then."""
        try:
            data, self._version = self.store.read_with_version(DONE)
        except FileNotFoundError:
            self.done = None
            self._version = ABSENT
            return

        # A damaged marker is replaced like an absent one, but on condition of its version.
        try:
            self.done = _checked(json.loads(data))
            check_seal(self.done)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            print_status(f"{self.store.uri_of(DONE)}: damaged ({error}); the work is done again")
            self.done = None
        else:
            self.attempt = self.done["attempt"]

    def missing_outputs(self, outputs: Iterable[str]) -> list[str]:
        """Those of the finished attempt's outputs that are not in the bucket."""
        names = [info.name for info in self._attempt_store().list()]
        return [
            output for output in outputs if not any(name == output or name.startswith(f"{output}/") for name in names)
        ]

    def record_use(self) -> None:
        """Tells the garbage collection that this work is still used; does nothing if the bucket is read-only."""
        with contextlib.suppress(KeyError, TypeError, ValueError):  # of a marker that does not say when
            # A listing for each reuse would cost more than the age that it keeps.
            finished = datetime.datetime.fromisoformat((self.done or {})["finished"])
            if time.time() - finished.timestamp() < FRESH_SECONDS:
                return
        with contextlib.suppress(WorkError):
            self.store.write(LAST_USE_FILE, f'{{"nonce": "{secrets.token_hex(8)}"}}\n'.encode())

    def start(self, exclusive: bool = True) -> None:
        """Makes an attempt's folder: the one left unfinished here, or a new one with what another machine uploaded.

        Args:
          exclusive: False: never the one left here.
        """
        # What is on this disk is newer than what was uploaded, if it is of the same attempt.
        left = self._left_here() if exclusive else ""
        partial = self._partial()
        if left and (partial is None or partial["attempt"] == left):
            self.attempt = left
            shutil.rmtree(self.folder / _SNAPSHOT, ignore_errors=True)  # of a killed process
            return

        self._new_attempt()
        write_text(self._root / _ATTEMPT_FILE, self.attempt)
        if left:
            shutil.rmtree(self._root / left, ignore_errors=True)

        # An attempt of another machine is copied, not continued: that machine may still be at work.
        if partial:
            self._resume(partial)
            self._resumed = partial["attempt"]

    def join(self) -> None:
        """Makes a folder for a machine that helps another one's attempt, with what that one has uploaded so far."""
        self._new_attempt()
        if partial := self._partial():
            self._resume(partial)

    def begin_partial(self) -> Callable[[], None] | None:
        """Notes what is in the folder now, and returns what uploads it so that another machine can resume.

        The upload may be called in a thread: work in the folder continues. Nothing else may be called before it ends.
        If the storage does not answer, it prints so, and the next one uploads more. None: too soon after the last one.

        Raises:
          OSError: the disk is full.
        """
        self._unsaved = time.monotonic() < self._next_save
        if self._unsaved:
            return None
        files = self._files()
        versions = self._changed(files)
        self._take_snapshot(versions)
        return functools.partial(self._upload_partial, files, versions)

    def upload_unsaved(self) -> None:
        """Uploads what the last `begin_partial` left out because it came too soon: this process ends now."""
        if self._unsaved:
            self._next_save = 0.0
            upload = self.begin_partial()
            if upload is not None:
                upload()

    def commit(self, marker: dict[str, Any], without: tuple[str, ...] = ()) -> bool:
        """Uploads the files, then the marker. Returns whether our result counts: False if another process was first.

        Args:
          marker: what the step says of its work.
          without: names of folders that were only needed to make the rest.
        """
        # All files, then the marker: what it names is there.
        files = [name for name in self._files() if name.partition("/")[0] not in without]
        self._upload(files)
        existing = self._names()
        own_names = self._own_names(files)
        if not own_names <= set(
            existing
        ):  # a process that finished before us has tidied up, and its marker was deleted
            self._uploaded.clear()
            self._upload(files)
        # What the marker named so far stays: a process may be reading it.
        protected = (DONE, f"{self.done['attempt']}/" if self.done else DONE)
        obsolete = [name for name in existing if name not in own_names and not name.startswith(protected)]
        marker = seal_marker({**marker, "attempt": self.attempt})
        try:
            info = self.store.write(DONE, _json(marker), if_version=self._version)
        except PreconditionError:
            attempt = self.attempt
            self.load_marker()
            if self.done is None:  # deleted meanwhile
                return self.commit(marker, without)
            self.take_winner(attempt)
            return False

        # From here on our attempt counts, for every machine.
        self._version = info.version
        self.done = marker
        write_json(self._root / DONE, marker)
        (self._root / _ATTEMPT_FILE).unlink(missing_ok=True)
        self._delete(obsolete)
        return True

    def upload_failed(self) -> None:
        """Uploads what failed work wrote (its rejects, its report) for a person to look at; no marker names it."""
        try:
            # A report of a failure is worth an upload; its own failure must not hide the first.
            self._upload(self._files())
        except WorkError as error:
            print_status(f"what it wrote so far could not be uploaded: {error}")
        else:
            print_status(f"what it wrote so far is at {self.uri}")

    def take_winner(self, attempt: str) -> None:
        """Replaces our attempt by the one that the marker names."""
        print_status(f"{self.store.uri}: another machine finished the same work first; its result is used")
        (self._root / _ATTEMPT_FILE).unlink(missing_ok=True)
        shutil.rmtree(self._root / attempt, ignore_errors=True)

        self.store.pull(list(self.store.list(f"{self.attempt}/")))
        write_json(self._root / DONE, self.done)
        self._delete(self._names(attempt))

    @property
    def _root(self) -> Path:
        return self.store.local_path()

    def _new_attempt(self) -> None:
        self.attempt = secrets.token_hex(6)
        self.folder.mkdir(parents=True)

    def _left_here(self) -> str:
        file = self._root / _ATTEMPT_FILE
        left = file.read_text(encoding="utf-8") if file.is_file() else ""
        return left if _ATTEMPT.fullmatch(left) and (self._root / left).is_dir() else ""

    def _partial(self) -> dict[str, Any] | None:
        # Names from the bucket are checked before any becomes a path.
        try:
            return _checked(json.loads(self.store.read(PROGRESS_FILE)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            print_status(f"{self.store.uri_of(PROGRESS_FILE)}: damaged ({error}); the work starts over")
            return None

    def _resume(self, partial: dict[str, Any]) -> None:
        try:
            (self.store / partial["attempt"]).download(partial["files"], self.folder)
        except TransientError:
            raise
        except WorkError as error:
            print_status(f"what another machine had uploaded is gone ({error}); the work starts over")
            shutil.rmtree(self.folder)
            self.folder.mkdir()

    def _take_snapshot(self, names: Iterable[str]) -> None:
        """Gives the files a second name, which stays when the first one is removed or goes to other bytes."""
        snapshot = self.folder / _SNAPSHOT
        shutil.rmtree(snapshot, ignore_errors=True)
        for name in names:
            target = snapshot / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if fnmatch.fnmatch(target.name, _APPENDED):
                shutil.copyfile(self.folder / name, target)
            else:
                link_or_copy(self.folder / name, target)

    def _upload_partial(self, files: list[str], versions: dict[str, tuple[int, int]]) -> None:
        """Uploads the snapshot; the next one begins after a while."""
        began = time.monotonic()
        try:
            self._send_partial(files, versions)
        except TransientError as error:
            print_status(f"not uploaded for other machines, the work continues: {error}")
        finally:
            shutil.rmtree(self.folder / _SNAPSHOT, ignore_errors=True)
            self._next_save = time.monotonic() + max(SAVE_SECONDS, 9 * (time.monotonic() - began))

    def _send_partial(self, files: list[str], versions: dict[str, tuple[int, int]]) -> None:
        # Files first, then the list of them: what the list names has arrived whole.
        self._attempt_store().upload(self.folder / _SNAPSHOT, versions)
        self._uploaded.update(versions)
        self.store.write(PROGRESS_FILE, _json({"attempt": self.attempt, "files": files}))
        own_names = self._own_names(files)
        self._delete(name for name in self._names(self.attempt) if name not in own_names)

        # The attempt that this one resumed is now contained in it.
        if self._resumed:
            self._delete(self._names(self._resumed))
            self._resumed = ""

    def _files(self) -> list[str]:
        """The attempt's files, relative to its folder, without hidden ones: those are not whole yet."""
        files = (path.relative_to(self.folder) for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts)]

    def _upload(self, files: list[str]) -> None:
        """Uploads those that have changed since their last upload."""
        versions = self._changed(files)
        self._attempt_store().upload(self.folder, versions)
        self._uploaded.update(versions)

    def _changed(self, files: list[str]) -> dict[str, tuple[int, int]]:
        """Size and time of those that have changed since their last upload; written by rename, one has another time."""
        stats = {name: (self.folder / name).stat() for name in files}
        versions = {name: (status.st_size, status.st_mtime_ns) for name, status in stats.items()}
        return {name: version for name, version in versions.items() if self._uploaded.get(name) != version}

    def _own_names(self, files: list[str]) -> set[str]:
        return {f"{self.attempt}/{name}" for name in files}

    def _names(self, attempt: str = "") -> list[str]:
        return [info.name for info in self.store.list(f"{attempt}/" if attempt else "")]

    def _delete(self, names: Iterable[str]) -> None:
        """Deletes what nothing leads to any more; if it stays, that is waste and no error."""
        try:
            for name in names:
                self.store.delete(name)
        except WorkError as error:
            print_status(f"what is no longer needed stays in the bucket: {error}")

    def _attempt_store(self) -> ObjectStore:
        return self.store / self.attempt


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """A marker whose names stay in its attempt's folder.

    Raises:
      ValueError, KeyError, TypeError, AttributeError: it is not one.
    """
    if not _ATTEMPT.fullmatch(values["attempt"]):
        raise ValueError(f"attempt {values['attempt']!r}")
    for name in (*values.get("outputs", {}).values(), *values.get("files", [])):
        if reason := invalid_name_reason(name):
            raise ValueError(f"{name!r} {reason}")
    return values


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()
