"""Files and folders that are written whole or not at all.

Each appears by rename, after its bytes have reached the disk: a killed process leaves the old one or the new one, never
half of either.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from voxline.errors import SettingsError, WorkError
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import FILE_BUFFER, read_bounded

ABANDONED_SECONDS = 86_400.0
"""An unfinished file this old belongs to a process that was killed."""

USER_FIXABLE_ERRNOS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
)
"""A full disk, missing permissions, a file where a folder should be."""


UMASK_ENV = "VOXLINE_USERS_UMASK"
"""The umask of the user's shell, in octal, for the processes that a process with a private one starts."""


def use_private_umask() -> None:
    """Lets this process and those that it starts write files that other users cannot read.

    The group keeps its rights: pods of different users share a volume by its group (fsGroup).
    """
    # `umask` returns the old value, which the user's shell had.
    umask = os.umask(0o077)
    os.umask(umask | 0o007)
    os.environ.setdefault(UMASK_ENV, f"{umask:o}")


@contextlib.contextmanager
def users_umask() -> Iterator[None]:
    """Writes with the umask of the user's shell again: a server under another user reads a registry."""
    if UMASK_ENV not in os.environ:  # it was never changed
        yield
        return
    umask = int(os.environ[UMASK_ENV], 8)
    os.umask(umask)
    try:
        yield
    finally:
        os.umask(umask | 0o007)


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "wb", *, durable: bool = True) -> Iterator[IO[Any]]:
    """Opens a file for writing that takes its name only when the block ends without an error.

    Code that writes thousands of files that nothing refers to yet can pass durable=False and wait for the disk once, at
    the end (`os.sync()`): only a power failure in between makes a difference.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target, "w") as file:
    ...     _ = file.write("all of it")
    >>> target.read_text()
    'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)

    # In the same folder, so that the rename stays on one disk.
    unfinished = _unfinished_path(path)
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    try:
        with open(unfinished, mode, FILE_BUFFER, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        # On the disk before it has its name: a power failure leaves the old file or the new one.
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder to write into, which takes the name of `folder` when the block ends without an error.

    It replaces an earlier folder of that name. A process that is killed while it replaces one may leave neither, so
    something else must say that the folder is there: the marker of a step, or an entry of a list.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "model"
    >>> with atomic_folder(target) as unfinished:
    ...     _ = (unfinished / "weights").write_text("0.5")
    >>> [file.name for file in target.iterdir()]
    ['weights']
    """
    # No other process writes this folder now, so what is unfinished was left by a killed one.
    remove_unfinished(folder.parent, f".{folder.name}.*.part", older_than=0)
    unfinished = _unfinished_path(folder)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished

        # What is in the folder, then the rename, then the entry in the parent.
        _fsync_folder(unfinished)
        if folder.exists():
            remove_folder(folder)
        os.replace(unfinished, folder)
        fsync_path(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def link_or_copy(file: Path | str, copy: Path | str) -> None:
    """Copies a file that is only ever replaced by rename: it gets a second name where the disk has such names."""
    try:
        os.link(file, copy)
    except OSError:
        shutil.copyfile(file, copy)


def link_or_copy_tree(source: Path, target: Path) -> None:
    """Copies a folder whose files are only ever replaced by rename, as `link_or_copy` does.

    Args:
      target: does not exist, or has none of the files.
    """
    shutil.copytree(source, target, copy_function=link_or_copy, dirs_exist_ok=True)


@contextlib.contextmanager
def new_folder(folder: Path, option: str) -> Iterator[Path]:
    """Yields an empty folder to write into, which takes the name of `folder` when the block ends without an error.

    Unlike `atomic_folder` it never replaces what a person has: a folder with something in it is refused, at once and
    again at the end.

    Args:
      option: that names the folder, for messages.

    Raises:
      SettingsError: the folder holds something, is a file, or is the current one.
      WorkError: the disk is full, or not for this person to write.
    """
    refusal = SettingsError(f"{option} {folder}: it exists and is not empty; give a folder that does not exist yet")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise refusal
    # Another folder takes its name: the shell would be left in one that is gone.
    if Path(os.path.abspath(folder)) == Path.cwd():
        raise SettingsError(f"{option} {folder}: the current folder; give a folder that does not exist yet")
    unfinished = _unfinished_path(folder.absolute())
    with explain_disk_errors("export", folder):
        try:
            unfinished.mkdir(parents=True)
            yield unfinished

            _fsync_folder(unfinished)
            try:
                unfinished.rename(folder.absolute())  # takes the place of an empty folder alone
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise refusal from None
                raise
            fsync_path(folder.absolute().parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _fsync_folder(folder: Path) -> None:
    """Each file, then the folder's own entries."""
    for path in folder.rglob("*"):
        fsync_path(path)
    fsync_path(folder)


def remove_folder(folder: Path) -> None:
    """Removes a folder; it loses its name first, so that no one takes a half-removed folder for a whole one."""
    # A rename first: readers find all of the folder or nothing.
    doomed = _unfinished_path(folder)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _unfinished_path(path: Path) -> Path:
    # Hidden, with a random part: neither a reader nor a second writer takes it for the file.
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")


def is_unfinished(path: Path) -> bool:
    """Returns whether a process of this machine is writing or downloading a file, or was killed at it."""
    return path.name.startswith(".") and path.suffix in (".part", ".ranges")


def remove_unfinished(folder: Path, pattern: str = ".*.part", *, older_than: float = ABANDONED_SECONDS) -> None:
    """Removes the files and folders that killed processes left half written in a folder.

    Args:
      older_than: seconds; 0 only where no other process can be writing. A file from the future (a clock was set
        back) is left.
    """
    for path in list(folder.glob(pattern)):  # a folder that goes meanwhile would end the search
        with contextlib.suppress(FileNotFoundError):  # its process has just finished it
            if older_than and _newest_change(path) >= time.time() - older_than:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _newest_change(path: Path) -> float:
    """The newest modification time of a file, or of a folder and all that is in it, in seconds since the epoch."""
    times = [path.lstat().st_mtime]
    if path.is_dir() and not path.is_symlink():
        times += [inner.lstat().st_mtime for inner in path.rglob("*")]
    return max(times)


def age_seconds(path: Path) -> float:
    """Seconds since a file or folder, or anything in it, was last modified."""
    return time.time() - _newest_change(path)


def fsync_path(path: Path) -> None:
    """Sends to the disk the bytes of a file, or the names that a folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    with atomic_write(path, "w") as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON document.

    Raises:
      OSError: it cannot be read.
      ValueError: it is not JSON, or larger than `MAX_JSON_BYTES`, or not a regular file.
    """
    try:
        return json.loads(read_bounded(path).decode("utf-8"))
    except RecursionError:
        raise ValueError(f"{path}: the JSON is nested too deeply") from None


def file_sizes(folder: Path, files: Iterable[str]) -> dict[str, int]:
    """Bytes of those that are files, to notice one that was written or copied in part since."""
    return {file: (folder / file).stat().st_size for file in files if (folder / file).is_file()}


def hash_folder(folder: Path) -> str:
    """The hash of a folder's content: relative paths and bytes of every file below it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hash_value([[path.relative_to(folder).as_posix(), hash_file(path)] for path in files])


@contextlib.contextmanager
def explain_disk_errors(step: str, folder: Path) -> Iterator[None]:
    """Turns errors of the disk that a person can fix into WorkErrors."""
    try:
        yield
    except OSError as error:
        # A disk error that no person can mend, such as EIO, is raised as it is.
        if error.errno not in USER_FIXABLE_ERRNOS:
            raise
        raise WorkError(
            f"{step}: {error.filename or folder}: {error.strerror}; make room there or fix its permissions "
            "(or set `store` to another folder), and start again"
        ) from error


DONE = "done.json"
"""The marker of finished work. In a bucket it names the attempt that counts."""
SEAL = "seal"
"""The key of a marker that has the hash of all its other keys."""


def seal_marker(marker: dict[str, Any]) -> dict[str, Any]:
    """A marker with the hash of all that it says."""
    values = {name: value for name, value in marker.items() if name != SEAL}
    return {**values, SEAL: hash_value(values)}


def check_seal(marker: dict[str, Any]) -> None:
    """Compares a marker with its own hash, if it has one.

    Raises:
      ValueError: it has changed since it was written.
    """
    if SEAL in marker and seal_marker(marker)[SEAL] != marker[SEAL]:
        raise ValueError("it is not what was written: its seal is another")
