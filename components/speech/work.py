"""Work named by its input: where a step's output lies, whether it is there already, and how it is claimed.

A store is a folder that runs share. The output of a step lies at `<store>/<step>/<key>/`, where the
key is the hash of the step's inputs, its settings and its revision. `done.json` is written last:
a folder without it is unfinished, and the next run of the same work goes on from there.
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.progress import say
from components.speech.settings import Settings
from components.speech.storage import A_PERSON_MENDS, hash_value, read_json, write_json

DONE = "done.json"


@dataclasses.dataclass
class Work:
    """A step's output folder, and what is to be told about it.

    Attributes:
      folder: `<store>/<step>/<key>`.
      key: the hash that names it.
      reused: it was there already.
      seconds: what this call took (reading the marker only, when reused).
      counts: how many of what, filled in by the step: {"utterances": 40, "rejects": 2}.
      metrics: figures that a person compares between runs: {"wer": 0.03}.
      outputs: named files, relative to the folder: {"manifest": "manifest.jsonl"}.
    """

    step: str
    folder: Path
    key: str
    reused: bool = False
    seconds: float = 0.0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    outputs: dict[str, str] = dataclasses.field(default_factory=dict)

    def path(self, output: str) -> Path:
        """The path of a named output."""
        return self.folder / self.outputs[output]

    def publish(self, folder: Any, *, html: Any = None, metrics: Any = None) -> "Work":
        """Hands the work to KFP artifacts (duck-typed: this file does not import kfp).

        The folder artifact points at the store; an HTML page is copied to where the UI reads it.
        """
        folder.uri = str(self.folder)
        folder.metadata.update(
            step=self.step,
            key=self.key,
            reused=self.reused,
            seconds=round(self.seconds, 3),
            counts=self.counts,
            metrics=self.metrics,
            outputs=self.outputs,
        )
        if html is not None:
            Path(html.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path("report"), html.path)
        if metrics is not None:
            for name, value in self.metrics.items():
                metrics.log_metric(name, value)
        return self


@contextlib.contextmanager
def keyed_work(
    store: Path | str,
    step: str,
    settings: Settings,
    inputs: dict[str, Any],
    *,
    revision: int = 1,
    check: Callable[[Path], object] = lambda folder: None,
) -> Iterator[Work]:
    """Claims the output folder of one piece of work; the block does it, unless `work.reused`.

    Args:
      store: the folder that holds all keyed work.
      step: the step's name.
      settings: all of them take part in the key.
      inputs: what names the inputs (fingerprints, keys), never paths.
      revision: raised whenever the step's code changes what it writes.
      check: looks at the folder of finished work before it is reused, and raises WorkError where something that it
        leads to is gone; it is made again then, as it is where one of its own outputs is gone.

    Two processes that want the same work take turns; the second one finds it done.

    >>> import tempfile
    >>> store = tempfile.mkdtemp()
    >>> for _ in range(2):
    ...     with keyed_work(store, "count", Settings(), {"corpus": "ab"}) as work:
    ...         if not work.reused:
    ...             work.counts["utterances"] = 3
    ...     print(work.reused, work.counts)
    False {'utterances': 3}
    ▸ count: reused, nothing changed since it was made
    True {'utterances': 3}

    Raises:
      WorkError: the store cannot be written, or the disk is full.
    """
    start = time.monotonic()
    named_by, folder = named_work(store, step, settings, inputs, revision)
    key = folder.name
    with _told_of_the_disk(step, folder), _claimed(folder):
        work = Work(step, folder, key)
        if done := _reusable(step, folder, check):
            work.reused = True
            work.counts, work.metrics, work.outputs = done["counts"], done["metrics"], done["outputs"]
            say(f"{step}: reused, nothing changed since it was made")
            yield work
            work.seconds = time.monotonic() - start
            return
        yield work
        work.seconds = time.monotonic() - start
        lost = [name for name, file in work.outputs.items() if not (folder / file).exists()]
        if lost:
            raise WorkError(f"{step}: promised {', '.join(lost)} in {folder} and did not write it; this is a bug")
        write_json(
            folder / DONE,
            {
                **named_by,
                "key": key,
                "seconds": round(work.seconds, 3),
                "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "counts": work.counts,
                "metrics": work.metrics,
                "outputs": work.outputs,
            },
        )


def named_work(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], revision: int
) -> tuple[dict[str, Any], Path]:
    """What names a piece of work, and the folder that it has by that name, without claiming it."""
    named_by = {"step": step, "revision": revision, "settings": settings.plain(), "inputs": inputs}
    return named_by, Path(store).absolute() / step / hash_value(named_by)


def read_done(folder: Path) -> dict[str, Any]:
    """The marker of finished work.

    Raises:
      WorkError: the folder holds no finished work.
    """
    if not (Path(folder) / DONE).is_file():
        raise WorkError(f"{folder}: no {DONE}, so this is not the output of a finished step; run the step first")
    try:
        done: dict[str, Any] = read_json(Path(folder) / DONE)
    except ValueError as error:
        raise WorkError(f"{Path(folder) / DONE}: damaged ({error}); run the step that made it again") from None
    return done


def _reusable(step: str, folder: Path, check: Callable[[Path], object]) -> dict[str, Any] | None:
    """The marker of work that is finished and still whole; removes one that vouches for what is gone."""
    if not (folder / DONE).is_file():
        return None
    try:
        done = read_done(folder)
        if gone := [file for file in done["outputs"].values() if not (folder / file).exists()]:
            raise WorkError(f"{folder}: {', '.join(gone)} is gone")
        check(folder)
    except WorkError as damage:
        say(f"{step}: making it again: {damage}")
        (folder / DONE).unlink()
        return None
    return done


@contextlib.contextmanager
def _told_of_the_disk(step: str, folder: Path) -> Iterator[None]:
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
def _claimed(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the lock goes when the process does, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # /proc and its like hold no folders of ours, and say that they are not there
        raise WorkError(
            f"{folder.parent.name}: {error.filename}: no folder can be made there; set `store` to another one"
        ) from error
    descriptor = os.open(folder.with_name(folder.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is making {folder.parent.name}/{folder.name[:8]}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
