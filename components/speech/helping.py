"""What machines do that have no claim to a piece of work: help the one that has it, or see whether it is done."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.speech.buckets import is_remote
from components.speech.mirror import DONE, Mirror, address_of
from components.speech.remote_work import RemoteWork
from components.speech.settings import Settings
from components.speech.work import Work, named_work


def is_finished(store: Path | str, folder: Path) -> bool:
    """Whether the store holds the result of a piece of work.

    Args:
      folder: as `named_work` gave it.
    """
    if is_remote(store):
        return Mirror.of(address_of(folder)).bucket.stat(DONE) is not None
    return (folder / DONE).is_file()


@contextlib.contextmanager
def helping(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], *, revision: int = 1
) -> Iterator[Work]:
    """The same work for a machine that helps the one that has claimed it: nothing of what it writes counts."""
    _, folder = named_work(store, step, settings, inputs, revision)
    work = Work(step, folder, folder.name, reused=is_finished(store, folder))
    if is_remote(store) and not work.reused:
        work.remote = RemoteWork(Mirror.of(address_of(folder)))
        work.remote.go_along()
        work.folder = work.remote.folder
    yield work
    if work.remote:
        shutil.rmtree(work.folder, ignore_errors=True)
