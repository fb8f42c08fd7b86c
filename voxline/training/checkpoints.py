"""Checkpoints, each whole or absent: a folder that gets its name once all of it is on disk.

checkpoints/step-00001200/arrays.npz   weights and the moments of the optimizer
checkpoints/step-00001200/state.json   progress of training, and the hash of arrays.npz
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

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
