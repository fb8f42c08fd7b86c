"""A corpus folder that appears whole: who may write it, when it counts as finished, what may be replaced.

All is written into `.<name>.part` beside the folder, which takes the folder's name at the end. The
marker in it lists every file with its size, so that a folder somebody took files out of is seen, and
one that somebody put files into is not deleted.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.files import read_json, write_json

MARKER = "generated.json"


@contextlib.contextmanager
def exclusive_output(folder: Path, key: str) -> Iterator[Path | None]:
    """Gives an empty folder to write into, or None when `folder` holds the work named `key` already.

    Two processes that want the same folder take turns. What a killed one left is cleared away.

    Raises:
      WorkError: the folder holds what is not ours to replace.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.part")
    while True:
        if is_complete(folder, key):
            yield None
            return
        check_replaceable(folder)
        unfinished.mkdir(exist_ok=True)
        try:
            descriptor = os.open(unfinished, os.O_RDONLY)
        except FileNotFoundError:
            continue  # renamed by another process just now
        try:
            # The lock is on the folder itself: it goes with the process, and leaves no file behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_at(descriptor, unfinished):
                continue  # the one before us finished and renamed it: look again
            for left in unfinished.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            try:
                yield unfinished
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            return
        finally:
            os.close(descriptor)


def commit_output(unfinished: Path, folder: Path, about: dict[str, Any]) -> None:
    """Writes the marker and gives the unfinished folder its name, in place of what was there before."""
    write_json(unfinished / MARKER, {**about, "files": _sizes(unfinished)})
    before = folder.with_name(f".{folder.name}.before")
    if before.exists():
        shutil.rmtree(before)
    if folder.exists():
        check_replaceable(folder)
        folder.rename(before)
    unfinished.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def is_complete(folder: Path, key: str) -> bool:
    """Whether the folder holds the work of that key, no file of it missing or cut."""
    if not (folder / MARKER).is_file():
        return False
    marker = read_marker(folder)
    if marker["key"] != key:
        print_status(f"generate: {folder} holds a corpus of other settings")
        return False
    present = _sizes(folder)
    damaged = [name for name, size in marker["files"].items() if present.get(name) != size]
    if damaged:
        print_status(f"generate: {len(damaged)} files of {folder} are gone or changed ({damaged[0]}); it is made anew")
    return not damaged


def check_replaceable(folder: Path) -> None:
    """Raises WorkError unless the folder is absent, empty, or holds only files that were generated."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WorkError(f"{folder}: a file lies where the corpus is to go; name another folder")
    known = read_marker(folder)["files"] if (folder / MARKER).is_file() else {}
    foreign = sorted(set(_sizes(folder)) - set(known))
    if foreign:
        raise WorkError(
            f"{folder}: holds {len(foreign)} files that were not generated ({foreign[0]}), and they are not "
            "overwritten; name another folder, or move them away"
        )


def read_marker(folder: Path) -> dict[str, Any]:
    try:
        marker: dict[str, Any] = read_json(folder / MARKER)
        marker["key"], marker["counts"], marker["files"].items()
    except (ValueError, KeyError, AttributeError, TypeError):
        raise WorkError(
            f"{folder / MARKER}: not a marker of a generated corpus; name another folder, or delete this one"
        ) from None
    return marker


def _sizes(folder: Path) -> dict[str, int]:
    """Every file below the folder but the marker, with its bytes."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir() and path != folder / MARKER)
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in files}


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        at_path = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)
