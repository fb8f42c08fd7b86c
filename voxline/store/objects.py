"""Object stores: folders of named objects, on a disk or in a bucket, behind one interface.

`open_store(uri)` opens one. A scheme is one line of `SCHEMES` (uris.py) and one class; see docs/extend/storage.md.
"""

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError
from voxline.store import transfer
from voxline.store.bucket_cache import local_path
from voxline.store.files import is_unfinished
from voxline.store.leases import exclusive_lease
from voxline.store.storage import ABSENT, ObjectInfo, Storage
from voxline.store.uris import SCHEMES, scheme_of

CLAIM = "claim.json"
"""Reserves the folder that it is in."""


def open_store(uri: Path | str) -> "ObjectStore":
    """Opens a folder, or a folder of a bucket. No request is made, and no folder.

    Raises:
      SettingsError: the URI is malformed, or its scheme is not known.
    """
    scheme = scheme_of(uri)

    # Imported by name, so that a run on a disk imports no client of a bucket.
    module, _, name = (SCHEMES[scheme] if scheme else "voxline.store.local:LocalStore").partition(":")
    store: ObjectStore = getattr(importlib.import_module(module), name)(uri)
    return store


class ObjectStore(Storage):
    """A folder of objects, and what is done with many of them at a time."""

    def delete_folder(self, name: str, first: Sequence[str] = ()) -> None:
        """Deletes all objects of a folder.

        Args:
          first: objects that go first, so that a part of the folder is never taken for all of it.
        """
        transfer.delete_folder(self, name, first)

    def download(
        self,
        objects: Iterable[str | ObjectInfo],
        folder: Path | str,
        *,
        name_of: Callable[[ObjectInfo], str] | None = None,
    ) -> Sequence[ObjectInfo]:
        """Downloads objects into a folder, under their names or those that `name_of` gives. See `transfer.download`."""
        return transfer.download(self, objects, Path(folder), name_of)

    def upload(self, folder: Path | str, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Uploads files of a folder under their names. See `transfer.upload`."""
        return transfer.upload(self, Path(folder), names, absent_only=absent_only)

    def upload_folder(self, name: str, last: Sequence[str] = ()) -> None:
        """Uploads the folder `local_path(name)`; of a disk: waits until its files have reached it.

        Args:
          last: files that are uploaded last, in this order.
        """
        root = self.local_path(name)
        files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

        (self / name).upload(root, [file for file in files if file not in last])
        for file in last:
            if file in files:
                (self / name).upload(root, [file])

    def local_path(self, name: str = "") -> Path:
        """The file or folder on this machine: its place in the bucket cache, or itself. Nothing is downloaded."""
        return local_path(self.uri_of(name) if name else self.uri)

    def pull(self, objects: Iterable[str | ObjectInfo]) -> None:
        """Downloads objects to `local_path()`; files that hold those bytes already stay. A folder has them there.

        Raises:
          WorkError: one does not exist; then nothing was downloaded.
        """
        self.download(objects, self.local_path())

    def push(self, names: Iterable[str], *, absent_only: bool = False) -> Sequence[ObjectInfo]:
        """Uploads files of `local_path()`. A folder has them there. Returns the objects as they are now.

        Args:
          absent_only: objects that exist stay, whatever they hold.
        """
        return self.upload(self.local_path(), names, absent_only=absent_only)

    def upload_new(self, paths: Iterable[Path | str]) -> None:
        """Uploads files whose names identify their content, unless they are there; files elsewhere are left alone.

        If another machine was faster, its bytes count (floating point differs between processors) and replace the
        file. A folder has them there.
        """
        # Files elsewhere, such as those of a local step, are nobody's business here.
        root = self.local_path()
        names = {Path(path).relative_to(root).as_posix() for path in paths if Path(path).is_relative_to(root)}
        self.pull(self.push(sorted(names), absent_only=True))

    def localize(self, name: str) -> Path:
        """A folder on this machine with exactly the objects below `name`: an updated copy, or the folder itself.

        Or the file of this name; where there is neither, its path.
        """
        folder = self.local_path(name)
        store = self / name
        objects = list(store.list())

        if not objects and self.stat(name):
            self.pull([name])
            return folder
        store.download(objects, folder)
        # An updated copy: what the bucket does not have any more goes.
        current = {folder / info.name for info in objects}
        for path in folder.rglob("*"):
            if path.is_file() and path not in current and not is_unfinished(path):
                path.unlink(missing_ok=True)
        return folder

    def lock(self, name: str, waiting: str) -> AbstractContextManager[None]:
        """Holds the lock of this name against other processes, and waits while another one holds it.

        Args:
          waiting: is printed where another one holds it.
        """
        return exclusive_lease(self, name, waiting)

    def reserve(self, name: str) -> bool:
        """Reserves a new folder's name; if True, no other process gets it, even if we never fill it."""
        try:
            self.write(f"{name}/{CLAIM}", b"{}\n", if_version=ABSENT)
        except PreconditionError:
            return False
        return True

    def move_folder(self, source: str, target: str, last: Sequence[str] = ()) -> None:
        """Moves a folder to where none is. Two processes that do the same at once do not disturb each other.

        Args:
          last: objects that are written last, in this order: without them the folder does not count.

        Raises:
          WorkError: the target holds other bytes, or neither folder is whole.
        """
        transfer.move_folder(self, source, target, last)

    def map(self, function: Callable[[Any], Any], arguments: Iterable[Any]) -> Sequence[Any]:
        """The results of a function that makes requests, several at a time. The first error ends it."""
        return transfer.run_jobs([functools.partial(function, argument) for argument in arguments])
