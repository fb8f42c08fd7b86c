"""Locks on files and folders, which end with their process however that ends (flock)."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from voxline.errors import WorkError
from voxline.progress import print_status


@contextlib.contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Locks the folder for this process. The lock ends with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # of /proc and the like
        raise WorkError(
            f"{folder.parent.name}: {error.filename}: no folder can be made there; set `store` to another one"
        ) from error

    # Beside the folder: a lock within it would go when the folder is emptied.
    descriptor = open_lock_file(folder.with_name(folder.name + ".lock"))
    try:
        wait_for_lock(descriptor, f"waiting for another process that is making {folder.parent.name}/{folder.name[:8]}")
        yield
    finally:
        os.close(descriptor)


def try_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Locks an open file until it is closed; False if another process has it locked."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(file: int | IO[Any], waiting: str, *, shared: bool = False) -> None:
    """Locks an open file until it is closed; prints `waiting` and waits if another process has it locked."""
    # First without waiting, so that the wait can be announced.
    if not try_lock(file, shared=shared):
        print_status(waiting)
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def open_lock_file(lock: Path) -> int:
    """Opens a lock's file, read-only where it must be: finished work is reused on a read-only disk."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES) or not lock.exists():
            raise
        return os.open(lock, os.O_RDONLY)
