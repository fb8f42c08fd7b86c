"""Checkpoints that are whole or absent: a folder each, which takes its name when all of it is on the disk.

checkpoints/step-00001200/arrays.npz   weights and the optimiser's moments
checkpoints/step-00001200/state.json   where training stood, and the hash of arrays.npz
"""

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from voxline.progress import print_status
from voxline.store.files import atomic_write, read_json, write_json
from voxline.store.hashing import hash_file

Arrays = dict[str, Any]
"""By name, numpy arrays."""
ARRAYS_FILE, STATE_FILE = "arrays.npz", "state.json"


class Checkpoints:
    """The checkpoints in a folder, of which the newest `kept` stay."""

    def __init__(self, folder: Path, kept: int) -> None:
        self.folder, self.kept = folder, kept

    def write(self, step: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Writes one, then removes those that are too old."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for unfinished in self.folder.glob(".*.part"):
            shutil.rmtree(unfinished, ignore_errors=True)
        target = self._path(step)
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
        unfinished.mkdir()
        with atomic_write(unfinished / ARRAYS_FILE) as file:
            np.savez(file, **arrays)
        write_json(unfinished / STATE_FILE, {**state, "arrays": hash_file(unfinished / ARRAYS_FILE)})
        if target.exists():  # a run that went back to an older checkpoint comes by here again
            self._remove(step)
        os.replace(unfinished, target)
        _sync(self.folder)
        for old in self.steps()[: -self.kept]:
            self._remove(old)

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, oldest first."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    def newest(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The newest checkpoint that is undamaged: arrays and state."""
        for step in reversed(self.steps()):
            try:
                return self.read(step)
            except (OSError, ValueError, KeyError) as error:
                print_status(f"train: checkpoint of step {step} is damaged ({error}), going back to the one before")
        return None

    def read(self, step: int) -> tuple[Arrays, dict[str, Any]]:
        """One checkpoint.

        Raises:
          OSError, ValueError, KeyError: it is absent or damaged.
        """
        folder = self._path(step)
        state: dict[str, Any] = read_json(folder / STATE_FILE)
        if hash_file(folder / ARRAYS_FILE) != state.pop("arrays"):
            raise ValueError(f"{folder / ARRAYS_FILE} is not what was written")
        with np.load(folder / ARRAYS_FILE) as stored:
            return {name: stored[name] for name in stored.files}, state

    def _remove(self, step: int) -> None:
        """Takes the name away first: what is half deleted must not look like a checkpoint."""
        path = self._path(step)
        doomed = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
        os.replace(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def _sync(folder: Path) -> None:
    """Brings a rename to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
