"""A piece of work in a bucket: what a process makes lies apart until the marker names it, so no two can be mixed.

  <store>/<step>/<key>/done.json       which attempt counts, and all that a step tells; written last
  <store>/<step>/<key>/progress.json   which attempt may be gone on with, and its files, each of them whole
  <store>/<step>/<key>/used.json       of an extracted dataset: when it was wanted last; a collection looks at its age
  <store>/<step>/<key>/<attempt>/…     what one process made; no other ever writes there

Two machines that do the same work at once waste time and harm nothing: the marker is written on condition that it is
still what it was when the work began, and whoever comes second takes the first one's result for its own.
"""

import contextlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError, TransientError, WorkError
from voxline.progress import print_status
from voxline.store.files import DONE, write_json, write_text
from voxline.store.objects import ABSENT, ObjectStore, invalid_name_reason, open_store

PROGRESS_FILE = "progress.json"
LAST_USE_FILE = "used.json"
"""Written anew whenever finished work is wanted again: its age says for how long it was not."""
_HERE = ".attempt"
"""The attempt that was begun on this machine; its process is gone once the folder's lock is free."""

_ATTEMPT = re.compile(r"[0-9a-f]{12}")

SAVE_SECONDS = 30.0
"""From the end of one save to the next, at least; and nine times as long as a save takes."""


class BucketStep:
    """The folder of a piece of work, in a bucket and here.

    Attributes:
      store: of `<store>/<step>/<key>`.
      attempt: the one that `folder` is of.
      done: the marker, where the work is finished.
    """

    def __init__(self, uri: str) -> None:
        self.store, self.attempt = open_store(uri), ""
        self.done: dict[str, Any] | None = None
        self._version = ABSENT
        self._sent: dict[str, tuple[int, int]] = {}
        self._taken_over = ""
        self._next_save = 0.0

    @property
    def folder(self) -> Path:
        return self.store.local_path() / self.attempt

    @property
    def place(self) -> str:
        """The attempt's folder in the bucket."""
        return f"{self.store.uri}/{self.attempt}"

    def look(self) -> None:
        """Sees whether the work is finished; `folder` is that of the finished attempt then."""
        try:
            data, entry = self.store.read_with_info(DONE)
        except FileNotFoundError:
            self.done, self._version = None, ABSENT
            return
        self._version = entry.version
        try:
            self.done = _checked(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            print_status(f"{self.store.uri_of(DONE)}: damaged ({error}); the work is done again")
            self.done = None
        else:
            self.attempt = self.done["attempt"]

    def absent(self, outputs: Iterable[str]) -> list[str]:
        """Which of the finished attempt's outputs are not in the bucket."""
        there = [entry.name for entry in self._attempt_bucket().list()]
        return [one for one in outputs if not any(name == one or name.startswith(f"{one}/") for name in there)]

    def note_use(self) -> None:
        """Lets a collection know that this work is wanted still; a bucket that may only be read does not learn it."""
        with contextlib.suppress(WorkError):
            self.store.write(LAST_USE_FILE, b"{}\n")

    def begin(self, alone: bool = True) -> None:
        """Makes an attempt's folder: the one left unfinished here, or one that goes on with another machine's.

        Args:
          alone: False: never the one left here.
        """
        left = self._left_here() if alone else ""
        saved = self._saved()
        if left and (saved is None or saved["attempt"] == left):
            self.attempt = left
            return
        self.attempt = secrets.token_hex(6)
        self.folder.mkdir(parents=True)
        write_text(self.store.local_path() / _HERE, self.attempt)
        if left:
            shutil.rmtree(self.store.local_path() / left, ignore_errors=True)
        if saved:
            self._take_over(saved)
            self._taken_over = saved["attempt"]

    def go_along(self) -> None:
        """Makes a folder for a machine that helps the one whose attempt it is: with what that one saved so far."""
        self.attempt = secrets.token_hex(6)
        self.folder.mkdir(parents=True)
        if saved := self._saved():
            self._take_over(saved)

    def save(self) -> None:
        """Sends what is in the folder so far, so that another machine can go on from it.

        A storage that does not answer for now is no reason to stop: the next save sends more.
        """
        began = time.monotonic()
        if began < self._next_save:
            return
        try:
            self._save()
        except TransientError as error:
            print_status(f"not saved for other machines, the work goes on: {error}")
        self._next_save = time.monotonic() + max(SAVE_SECONDS, 9 * (time.monotonic() - began))

    def _save(self) -> None:
        names = self._files()
        self._send(names)
        self.store.write(PROGRESS_FILE, _json({"attempt": self.attempt, "files": names}))
        stays = self._addresses(names)
        self._tidy(name for name in self._there(self.attempt) if name not in stays)
        if self._taken_over:
            self._tidy(self._there(self._taken_over))
            self._taken_over = ""

    def finish(self, marker: dict[str, Any], without: tuple[str, ...] = ()) -> bool:
        """Sends the files, then the marker. Returns whether the result is ours: False where another came first.

        Args:
          marker: all that the step tells of its work.
          without: names of folders that only served to make the rest.
        """
        names = [name for name in self._files() if name.partition("/")[0] not in without]
        self._send(names)
        there, ours = self._there(), self._addresses(names)
        if not ours <= set(there):  # whoever finished before us has tidied, and then the marker was taken away
            self._sent.clear()
            self._send(names)
        # What the marker named so far stays: somebody may be reading it.
        stays = (DONE, f"{self.done['attempt']}/" if self.done else DONE)
        passed = [name for name in there if name not in ours and not name.startswith(stays)]
        marker = {**marker, "attempt": self.attempt}
        try:
            entry = self.store.write(DONE, _json(marker), if_version=self._version)
        except PreconditionError:
            mine = self.attempt
            self.look()
            if self.done is None:  # it was taken away meanwhile
                return self.finish(marker, without)
            self._adopt(mine)
            return False
        self._version, self.done = entry.version, marker
        write_json(self.store.local_path() / DONE, marker)
        (self.store.local_path() / _HERE).unlink(missing_ok=True)
        self._tidy(passed)
        return True

    def leave(self) -> None:
        """Sends what failed work wrote (its rejects, its report), for a person to look at; no marker names it."""
        try:
            self._send(self._files())
        except WorkError as error:
            print_status(f"what it wrote so far could not be sent: {error}")
        else:
            print_status(f"what it wrote so far is at {self.place}")

    def _adopt(self, mine: str) -> None:
        print_status(f"{self.store.uri}: another machine finished this very work first; its result is taken")
        (self.store.local_path() / _HERE).unlink(missing_ok=True)
        shutil.rmtree(self.store.local_path() / mine, ignore_errors=True)
        self.store.pull(list(self.store.list(f"{self.attempt}/")))
        write_json(self.store.local_path() / DONE, self.done)
        self._tidy(self._there(mine))

    def _left_here(self) -> str:
        file = self.store.local_path() / _HERE
        left = file.read_text(encoding="utf-8") if file.is_file() else ""
        return left if _ATTEMPT.fullmatch(left) and (self.store.local_path() / left).is_dir() else ""

    def _saved(self) -> dict[str, Any] | None:
        try:
            return _checked(json.loads(self.store.read(PROGRESS_FILE)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            print_status(f"{self.store.uri_of(PROGRESS_FILE)}: damaged ({error}); the work begins anew")
            return None

    def _take_over(self, saved: dict[str, Any]) -> None:
        try:
            open_store(self.store.uri_of(saved["attempt"])).download(saved["files"], self.folder)
        except TransientError:
            raise
        except WorkError as error:
            print_status(f"what another machine had done so far is not there any more ({error}); the work begins anew")
            shutil.rmtree(self.folder)
            self.folder.mkdir()

    def _files(self) -> list[str]:
        """Names of the attempt's files, relative to its folder; what is hidden is not whole yet."""
        found = (path.relative_to(self.folder) for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts)]

    def _send(self, names: list[str]) -> None:
        """Sends those that are not there as they are now."""
        stamps = {name: (self.folder / name).stat() for name in names}
        now = {name: (stamp.st_size, stamp.st_mtime_ns) for name, stamp in stamps.items()}
        self._attempt_bucket().upload(self.folder, [name for name in names if self._sent.get(name) != now[name]])
        self._sent.update(now)

    def _addresses(self, names: list[str]) -> set[str]:
        return {f"{self.attempt}/{name}" for name in names}

    def _there(self, attempt: str = "") -> list[str]:
        return [entry.name for entry in self.store.list(f"{attempt}/" if attempt else "")]

    def _tidy(self, names: Iterable[str]) -> None:
        """Removes what nothing leads to any more; that it stays is a waste and no fault."""
        try:
            for name in names:
                self.store.delete(name)
        except WorkError as error:
            print_status(f"what is not needed any more stays in the bucket: {error}")

    def _attempt_bucket(self) -> ObjectStore:
        return open_store(self.place)


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """A marker, if it leads nowhere but into its attempt's folder.

    Raises:
      ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    if not _ATTEMPT.fullmatch(values["attempt"]):
        raise ValueError(f"attempt {values['attempt']!r}")
    for name in (*values.get("outputs", {}).values(), *values.get("files", [])):
        if fault := invalid_name_reason(name):
            raise ValueError(f"{name!r} {fault}")
    return values


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()
