"""Checkpoints, each whole or absent: a folder that gets its name once all of it is on disk.

checkpoints/step-00001200/arrays.npz   weights and the moments of the optimizer
checkpoints/step-00001200/state.json   progress of training, and the hash of arrays.npz
"""

import concurrent.futures
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from voxline.progress import print_status
from voxline.store.files import atomic_folder, atomic_write, read_json, remove_folder, remove_unfinished, write_json
from voxline.store.hashing import hash_file
from voxline.store.size_limits import load_npz

Arrays = dict[str, Any]
"""numpy arrays by name."""
ARRAYS_FILE = "arrays.npz"
STATE_FILE = "state.json"


class Checkpoints:
    """The checkpoints in a folder; only the newest `limit` remain, or with 0 those that `keep` names."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def write(self, step: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Writes one, then removes the oldest."""
        remove_unfinished(self.folder, older_than=0)
        # A run that resumed from an older checkpoint writes this step again.
        with atomic_folder(self._path(step)) as unfinished:
            with atomic_write(unfinished / ARRAYS_FILE) as file:
                np.savez(file, **arrays)
            write_json(unfinished / STATE_FILE, {**state, "arrays": hash_file(unfinished / ARRAYS_FILE)})
        if self.limit:
            self.keep(self.steps()[-self.limit :])

    def keep(self, steps: Collection[int]) -> None:
        """Removes the checkpoints of all other steps."""
        for step in set(self.steps()) - set(steps):
            remove_folder(self._path(step))

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, oldest first."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    def newest(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and state of the newest checkpoint that is not damaged."""
        for step in reversed(self.steps()):
            try:
                return self.read(step)
            except (OSError, ValueError, KeyError) as error:
                print_status(f"train: checkpoint of step {step} is damaged ({error}); trying the previous one")
        return None

    def read(self, step: int) -> tuple[Arrays, dict[str, Any]]:
        """One checkpoint.

        Raises:
          OSError, ValueError, KeyError: it is absent or damaged.
        """
        folder = self._path(step)
        state: dict[str, Any] = read_json(folder / STATE_FILE)

        # The hash tells a file that was cut off or changed from a whole one.
        if hash_file(folder / ARRAYS_FILE) != state.pop("arrays"):
            raise ValueError(f"{folder / ARRAYS_FILE} does not match its hash in {STATE_FILE}")
        return load_npz(folder / ARRAYS_FILE), state

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


class CheckpointWriter:
    """Writes checkpoints in a thread, so that training continues meanwhile; one at a time.

    A later call of the thread that trains learns the outcome: it raises the error, or calls `on_written`. At the end of
    the context no write is in progress. If another error ends it, that one stays, and failures are printed.

    Args:
      on_written: called once a checkpoint is written; if the next one begins before, one call is for both.

    Attributes:
      written: the step of the last checkpoint that it wrote whole; None: it wrote none.
    """

    def __init__(self, checkpoints: Checkpoints, on_written: Callable[[], None] = lambda: None) -> None:
        self._checkpoints = checkpoints
        self._on_written = on_written
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: concurrent.futures.Future[None] | None = None
        self._step = 0
        self._reported = True
        self.written: int | None = None

    def begin(self, step: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Begins to write one, once the one before is written. Nobody may change the arrays or the state any more.

        Raises:
          OSError: the one before could not be written.
        """
        self.wait()
        self._step = step
        self._writing = self._thread.submit(self._checkpoints.write, step, arrays, state)

    def poll(self) -> None:
        """Like `finish`, where the write has ended already; else training continues."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Waits for the write in progress, if there is one, and calls `on_written` if it was not called since.

        Raises:
          OSError: it could not be written.
        """
        self.wait()
        if not self._reported:
            self._reported = True
            self._on_written()

    def wait(self) -> None:
        """Waits for the write in progress, if there is one; the next `finish` calls `on_written`.

        Raises:
          OSError: it could not be written.
        """
        if self._writing is None:
            return
        # An interrupt of the wait leaves it to `__exit__`, which waits again.
        concurrent.futures.wait([self._writing])
        writing = self._writing
        self._writing = None
        writing.result()
        self._reported = False
        self.written = self._step

    def wait_or_print(self) -> None:
        """Like `wait`; the error of a write that failed is printed."""
        try:
            self.wait()
        except Exception as error:
            print_status(f"train: the checkpoint of step {self._step} was not saved: {error}")

    def finish_or_print(self) -> None:
        """Like `finish`; the error of a write that failed, or of `on_written`, is printed."""
        self.wait_or_print()
        try:
            self.finish()
        except Exception as error:
            print_status(f"train: the checkpoint of step {self.written} is saved here, and was not uploaded: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
            else:
                self.finish_or_print()
        finally:
            self._thread.shutdown()
