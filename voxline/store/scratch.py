"""Temporary folders that the next process removes if theirs was killed.

A process keeps its temporary files in one folder, `<tmp>/voxline-scratch-<random>/`, and holds a lock on a file in it.
The system releases the lock however the process ends, so a folder that can be locked belongs to nobody any more.
"""

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

from voxline.store.file_locks import try_lock
from voxline.store.files import ABANDONED_SECONDS, age_seconds

PREFIX = "voxline-scratch-"
_LOCK = ".lock"
_roots: dict[str, Path] = {}
"""By the folder of all temporary files."""
_mutex = threading.Lock()


def scratch_root() -> Path:
    """The folder for the temporary files of this process; made at the first call, removed when the process ends.

    The first call also removes the folders of processes of the same user that were killed. Forks share the folder of
    the process that they were forked from.

    >>> with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
    ...     Path(folder).parent.name.startswith("voxline-scratch-")
    True
    """
    parent = tempfile.gettempdir()
    with _mutex:
        root = _roots.get(parent)
        if root is None or not (root / _LOCK).is_file():  # some systems clear old files from /tmp
            # Folders of killed processes are removed when the next one begins, since nobody else would.
            remove_abandoned(Path(parent))
            root = _roots[parent] = _make_root(parent)
            atexit.register(_remove_own, root, os.getpid())
        return root


def remove_abandoned(parent: Path) -> None:
    """Removes the scratch folders of killed processes; never that of a live process or of another user, or a link."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another process removes it, or it cannot be removed
            # A link, or a folder of another user, is not ours to follow or to delete.
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            try:
                lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            except FileNotFoundError:  # its process is about to make the lock, or was killed before
                if age_seconds(path) > ABANDONED_SECONDS:
                    path.rmdir()
                continue
            # The lock is free: its process is gone.
            try:
                if try_lock(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _make_root(parent: str) -> Path:
    while True:
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))

        # Between making the folder and locking it, another process may take it for abandoned.
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(lock) and (root / _LOCK).is_file():
            return root  # the lock stays open as long as the process lives
        os.close(lock)  # another process took it for abandoned before it was locked


def _remove_own(root: Path, process: int) -> None:
    if os.getpid() == process:  # a fork leaves it to the process that it was forked from
        shutil.rmtree(root, ignore_errors=True)
