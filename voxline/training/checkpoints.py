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

    The next call reports the outcome in the thread that trains: it calls `on_written`, or raises the error. At the end
    of the context no write is in progress. If another error ends it, that one stays, and a failed write is printed.

    Args:
      on_written: called after each checkpoint.
    """

    def __init__(self, checkpoints: Checkpoints, on_written: Callable[[], None] = lambda: None) -> None:
        self._checkpoints = checkpoints
        self._on_written = on_written
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: concurrent.futures.Future[None] | None = None
        self._step = 0

    def begin(self, step: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Begins to write one, once the one before is written. Nobody may change the arrays or the state any more."""
        self.finish()
        self._step = step
        self._writing = self._thread.submit(self._checkpoints.write, step, arrays, state)

    def poll(self) -> None:
        """Like `finish`, where the write has ended already; else training continues."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Waits for the write in progress, if there is one.

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
        self._on_written()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except Exception as failure:
            if error is None:
                raise
            print_status(f"train: the checkpoint of step {self._step} was not saved: {failure}")
        finally:
            self._thread.shutdown()
