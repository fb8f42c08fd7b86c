"""What the frozen parts of a network compute of each utterance: once before training, instead of in every epoch.

  encodings/train.values      float32 [positions of all utterances, units], one utterance after the other
  encodings/train.places.npy  int64 [utterances + 1, 2], the first position of each and how many it has; of the last
                              row, all positions and units. Written last

It is worth it where the frozen parts come first in the network and nothing changes their input: no augmentation, no
dropout within them. An hour of Whisper tiny takes 276 MB, and where its decoder is trained, for which recordings are
padded to 30 seconds, each of them takes 2.3 MB.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write
from voxline.store.size_limits import load_npy
from voxline.training.batches import Array, Batches

FRAMES = 6_000
"""Feature frames that are encoded at a time, padding included."""


class StagedNetwork(Protocol):
    """A network whose stages can be computed one after the other, by different calls."""

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of each stage, in the order in which they are computed; the output layer is the last."""

    def begin(self, features: Any, frames: Any, last: int) -> tuple[Any, Any]:
        """Computes the stages before `last`: values [batch, positions, units], and int32 [batch], the real ones."""

    def resume(
        self, values: Any, frames: Any, first: int, training: bool = False, noise: Any | None = None
    ) -> tuple[Any, Any]:
        """Computes the stages from `first` on: logits, and int32 [batch], the real output frames."""


def frozen_stages(network: Any) -> int:
    """Counts the stages at the beginning of a network that are frozen; 0 if it has no stages."""
    stages = getattr(network, "stages", None)
    if stages is None:
        return 0
    trained = (number for number, variables in enumerate(stages) if any(variable.trainable for variable in variables))
    return next(trained, len(stages) - 1)


class Encodings:
    """The stored encodings of one split.

    Args:
      folder: as `write` filled it.
      split: its name.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._places = load_npy(folder / f"{split}.places.npy")
        shape = tuple(self._places[-1].tolist())
        self._values = np.memmap(folder / f"{split}.values", np.float32, "r", shape=shape)

    def __getitem__(self, row: int) -> Array:
        """The encoding of a row of the split's batches, float32 [positions, units]."""
        first, count = self._places[row].tolist()
        return np.array(self._values[first : first + count])


def encode_split(
    batches: Batches,
    folder: Path,
    split: str,
    encode: Callable[[Array, npt.NDArray[np.int32]], tuple[Array, Array]],
    least_frames: int = 0,
) -> Encodings | None:
    """Encodes all utterances of a split, or finds them encoded already.

    Args:
      batches: of the split, with an utterance or more.
      encode: from features [batch, frames, bins] and their real frames to values [batch, positions, units] and the real
        positions of each row.
      least_frames: to which `encode` pads shorter recordings.

    Returns:
      None if they would take more than half of the free space.
    """
    count = batches.utterances
    places_file = folder / f"{split}.places.npy"
    if places_file.is_file():
        return Encodings(folder, split)

    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress("utterances encoded", count)
    places = np.zeros((count + 1, 2), np.int64)
    total = 0
    padded_frames = [max(batches.frames(row), least_frames) for row in range(count)]
    free = shutil.disk_usage(folder).free
    with atomic_write(folder / f"{split}.values") as file:
        for rows in _groups(padded_frames):
            features = [batches.features(row) for row in rows]
            frames = np.array([len(of_row) for of_row in features], np.int32)
            padded = np.zeros((len(rows), int(frames.max()), features[0].shape[1]), np.float32)
            for number, of_row in enumerate(features):
                padded[number, : len(of_row)] = of_row

            # [rows, positions, units], and the real positions of each row
            values, positions = encode(padded, frames)
            stored = int(positions.sum()) * values.shape[-1] * 4
            needed = stored * sum(padded_frames) // sum(padded_frames[row] for row in rows)
            if total == 0 and needed > free / 2:
                print_status(
                    f"train: what the frozen parts compute of {split} would take {needed / 1e9:,.1f} GB, and "
                    f"{free / 1e9:,.1f} GB are free: each step computes it"
                )
                return None

            for number, row in enumerate(rows):
                length = int(positions[number])
                places[row] = total, length
                places[-1] = total + length, values.shape[-1]
                total += length
                file.write(np.ascontiguousarray(values[number, :length], np.float32).tobytes())
            progress.advance(len(rows))

    with atomic_write(places_file) as file:
        np.save(file, places, allow_pickle=False)

    megabytes = total * int(places[-1, 1]) * 4 / 1e6
    print_status(f"train: the frozen parts encoded {count:,} utterances of {split} once: {megabytes:,.0f} MB")
    return Encodings(folder, split)


def _groups(frames: Sequence[int]) -> list[list[int]]:
    """Rows by their length, as many at a time as `FRAMES` allow."""
    groups: list[list[int]] = []
    for row in sorted(range(len(frames)), key=frames.__getitem__):
        if not groups or frames[row] * (len(groups[-1]) + 1) > FRAMES:
            groups.append([])
        groups[-1].append(row)
    return groups
