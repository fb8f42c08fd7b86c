"""Checkpoints, each whole or absent: a folder that gets its name once all of it is on disk.

checkpoints/step-00001200/arrays.npz   weights and the moments of the optimizer
checkpoints/step-00001200/state.json   progress of training, and the hash of arrays.npz
"""

import concurrent.futures
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

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


class BestWeights(NamedTuple):
    """Weights of one of the best validations.

    Attributes:
      step: of the validation.
      arrays: nobody may change them any more.
      needed: the steps whose weights are needed; those of all others go once these are on disk.
    """

    step: int
    arrays: Arrays
    needed: Collection[int]


Work = Callable[[], None]


class CheckpointWriter:
    """Writes checkpoints in a thread, so that training continues meanwhile, and uploads them in another one.

    One write and one upload at a time. A later call of the thread that trains learns the outcome: it raises the error,
    or begins the upload. At the end of the context neither is in progress, and what was written has been uploaded. If
    another error ends it, that one stays, and failures are printed.

    Args:
      best: the weights of the best validations, which the last of the checkpoints refer to.
      on_written: called by the thread that trains once a checkpoint is written, while none is being written and no
        upload is in progress; if the next one begins before, one call is for both. Returns the upload for the thread,
        or None. Training changes the folders meanwhile.

    Attributes:
      written: the step of the last checkpoint that it wrote whole; None: it wrote none.
    """

    def __init__(
        self, checkpoints: Checkpoints, best: Checkpoints, on_written: Callable[[], Work | None] = lambda: None
    ) -> None:
        self._checkpoints = checkpoints
        self._best = best
        self._on_written = on_written
        self._threads = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="checkpoints")
        self._writing: concurrent.futures.Future[None] | None = None
        self._uploading: concurrent.futures.Future[None] | None = None
        self._step = 0
        self._upload_step: int | None = None
        self._unwritten_best: BestWeights | None = None
        self._reported = True
        self.written: int | None = None

    def begin(self, step: int, arrays: Arrays, state: dict[str, Any], best: BestWeights | None = None) -> None:
        """Begins to write one, once the one before is written. Nobody may change the arrays or the state any more.

        Args:
          best: weights that the state refers to; they are on disk before it is, even if this write fails and only a
            later one succeeds.

        Raises:
          OSError: the one before could not be written.
        """
        self.wait()
        self._step = step
        self._unwritten_best = best or self._unwritten_best
        self._writing = self._threads.submit(self._write, step, arrays, state, self._unwritten_best)

    def poll(self) -> None:
        """Raises the error of a write or an upload that has ended, or begins the upload; else training continues."""
        if self._uploading is not None and self._uploading.done():
            self._end_upload()
        if self._writing is None or self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Waits for the write in progress, if there is one; begins the upload if none is in progress.

        Raises:
          OSError: it could not be written.
        """
        self.wait()
        if not self._reported and self._uploading is None:
            self._reported = True
            self._upload_step = self.written
            upload = self._on_written()
            if upload is not None:
                self._uploading = self._threads.submit(upload)

    def finish_uploads(self) -> None:
        """Like `finish`, and waits until the last checkpoint is uploaded, behind an upload that is in progress.

        Raises:
          OSError, WorkError: one could not be written or uploaded.
        """
        self.wait()
        self._end_upload()
        self.finish()
        self._end_upload()

    def wait(self) -> None:
        """Waits for the write in progress, if there is one; the next `finish` begins its upload.

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
        self._unwritten_best = None
        self._reported = False
        self.written = self._step

    def wait_or_print(self) -> None:
        """Like `wait`; the error of a write that failed is printed."""
        try:
            self.wait()
        except Exception as error:
            print_status(f"train: the checkpoint of step {self._step} was not saved: {error}")

    def finish_or_print(self) -> None:
        """Like `finish_uploads`; the errors of a write and of uploads that failed are printed."""
        self.wait_or_print()
        for finish in (self._end_upload, self.finish_uploads):
            try:
                finish()
            except Exception as error:
                print_status(
                    f"train: the checkpoint of step {self._upload_step} is saved here, and was not uploaded: {error}"
                )

    def _write(self, step: int, arrays: Arrays, state: dict[str, Any], best: BestWeights | None) -> None:
        # The weights first: no checkpoint refers to some that are not there.
        if best is not None:
            self._best.write(best.step, best.arrays, {})
            self._best.keep(best.needed)
        self._checkpoints.write(step, arrays, state)

    def _end_upload(self) -> None:
        """Waits for the upload in progress, if there is one, and raises its error."""
        if self._uploading is None:
            return
        concurrent.futures.wait([self._uploading])
        uploading = self._uploading
        self._uploading = None
        uploading.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish_uploads()
            else:
                self.finish_or_print()
        finally:
            self._threads.shutdown()
