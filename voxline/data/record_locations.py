"""Where the features of each row of a dataset are: which shard, and which bytes of it.

  record-locations-<hash>.npy  int64 [rows, speeds, 4]

A module of its own, since it imports numpy and checking whether a dataset exists must not.
"""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.data.tfrecord import RECORD_OVERHEAD
from voxline.errors import WorkError
from voxline.store.files import atomic_write
from voxline.store.hashing import hash_bytes
from voxline.store.size_limits import load_npy

RECORD_LOCATION = np.dtype([("shard", np.int64), ("offset", np.int64), ("size", np.int64), ("frames", np.int64)])
"""Where a record is: the number of a shard in dataset.json's list (-1: nowhere), the byte at which the record begins,
the bytes of its data, its frames."""

RecordLocations = npt.NDArray[np.void]
"""`[rows, speeds]` of RECORD_LOCATION; `locations["shard"]` is an int64 array."""


def read_record_locations(folder: Path, name: str) -> RecordLocations:
    """The record locations in a folder, by the name that dataset.json gives them.

    Raises:
      WorkError: the file is absent, or its content does not match its name.
    """
    file = folder / name
    try:
        data = file.read_bytes()
    except OSError as error:
        raise WorkError(f"{file}: {error.strerror}; run extract again") from None

    # The name holds the hash, so a file of another dataset is refused too.
    if name != _name_locations(data):
        raise WorkError(f"{file}: damaged, its content does not match its name; run extract again")
    columns: npt.NDArray[np.int64] = load_npy(data, str(file))
    return columns.view(RECORD_LOCATION)[..., 0]


def write_record_locations(folder: Path, locations: RecordLocations) -> str:
    """Writes record locations as int64 `[rows, speeds, 4]`, named by their content. Returns the name."""
    # Four int64 of a location have the same bytes as a row of four columns; numpy's own readers need no dtype of ours.
    buffer = io.BytesIO()
    columns = np.ascontiguousarray(locations).view(np.int64).reshape(*locations.shape, 4)
    np.save(buffer, columns, allow_pickle=False)
    name = _name_locations(buffer.getvalue())
    with atomic_write(folder / name) as file:
        file.write(buffer.getvalue())
    return name


def count_live(locations: RecordLocations, shards: int) -> tuple[list[int], list[int]]:
    """The records of each shard that a dataset needs, and their bytes. A record that rows share counts once."""
    # Rows with the same audio share a record: count each (shard, offset) once.
    existing = locations[locations["shard"] >= 0]
    order = np.lexsort((existing["size"], existing["offset"], existing["shard"]))  # np.unique compares rows far slower
    columns = np.stack([existing[name][order] for name in ("shard", "offset", "size")])  # [3, records]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)

    shard, _, size = columns[:, is_new]
    live = np.bincount(shard, minlength=shards)
    live_bytes = np.bincount(shard, size + RECORD_OVERHEAD, shards).astype(int)
    return live.tolist(), live_bytes.tolist()


def _name_locations(data: bytes) -> str:
    return f"record-locations-{hash_bytes(data)[:16]}.npy"
