"""Where in the shards of a dataset the features of each row lie: the file of places that stands beside its rows.

It has the name of its content, so that a reader never mixes the places of one layout with the shards of another.
"""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.speech.errors import WorkError
from components.speech.storage import hash_bytes, whole_file

Places = npt.NDArray[np.int64]
"""`[rows, speeds, 4]`; the last axis as `components.speech.dataset` counts it."""


def read_places(folder: Path, name: str) -> Places:
    """The places in a folder, by the name that dataset.json gives them.

    Raises:
      WorkError: the file is absent, or its content is not what its name says.
    """
    file = folder / name
    try:
        data = file.read_bytes()
    except OSError as error:
        raise WorkError(f"{file}: {error.strerror}; run extract again") from None
    if name != _named(data):
        raise WorkError(f"{file}: damaged, its content is not what its name says; run extract again")
    places: Places = np.load(io.BytesIO(data), allow_pickle=False)
    return places


def save_places(folder: Path, places: Places) -> str:
    """Writes places under the name of their content, and returns it."""
    written = io.BytesIO()
    np.save(written, places, allow_pickle=False)
    name = _named(written.getvalue())
    with whole_file(folder / name) as file:
        file.write(written.getvalue())
    return name


def _named(data: bytes) -> str:
    return f"places-{hash_bytes(data)[:16]}.npy"
