"""A folder that one process of this machine works in, and what the system says of its disk, told to a person."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from components.speech.errors import WorkError
from components.speech.progress import say
from components.speech.storage import A_PERSON_MENDS


@contextlib.contextmanager
def told_of_the_disk(step: str, folder: Path) -> Iterator[None]:
    """Tells what the system says of the disk as something to mend."""
    try:
        yield
    except OSError as error:
        if error.errno not in A_PERSON_MENDS:
            raise
        raise WorkError(
            f"{step}: {error.filename or folder}: {error.strerror}; make room there or mend its permissions "
            "(or set `store` to another folder), and start again"
        ) from error


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the lock goes when the process does, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # /proc and its like hold no folders of ours, and say that they are not there
        raise WorkError(
            f"{folder.parent.name}: {error.filename}: no folder can be made there; set `store` to another one"
        ) from error
    descriptor = opened_lock(folder.with_name(folder.name + ".lock"))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is making {folder.parent.name}/{folder.name[:8]}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def opened_lock(lock: Path) -> int:
    """The lock's file, which is also held where it may only be read: finished work is reused there."""
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES) or not lock.exists():
            raise
        return os.open(lock, os.O_RDONLY)
