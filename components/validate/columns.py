"""Columns of a manifest: numbers, hashes, and strings with many repetitions."""

import array
import base64
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

RowIndices = npt.NDArray[np.int64]
"""Indices of utterances in the manifest, from 0."""

Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class StringColumn:
    """A column of strings with many repetitions: each distinct string is stored once, and rows hold its number.

    Attributes:
      names: the distinct strings, in order of appearance.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._codes = array.array("i")

    def append(self, name: str) -> None:
        number = self._numbers.get(name)
        self._codes.append(self._number(name) if number is None else number)

    def extend(self, other: "StringColumn") -> None:
        """Appends another column."""
        self.extend_coded(other.names, other._codes)

    def extend_coded(self, names: Sequence[str], codes: Sequence[int]) -> None:
        """Appends rows, each given as the number of its name."""
        # By the number of a name there, the number that it has in this column. No array of NumPy: most columns that are
        # appended are those of a few lines.
        numbers = [self._number(name) for name in names]
        if len(numbers) == 1:  # such as that of drafts, where there are none
            self._codes.extend(array.array("i", numbers) * len(codes))
        else:
            self._codes.extend([numbers[code] for code in codes])

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, row: int) -> str:
        return self.names[self._codes[row]]

    @functools.cached_property
    def codes(self) -> Codes:
        """`[utterances]` the number of each row's string. Read it only when all rows are appended."""
        return np.array(self._codes, dtype=np.int32)

    def values(self) -> list[str]:
        """The string of each row."""
        return [self.names[code] for code in self._codes]

    def number(self, name: str) -> int:
        """The number of a string; -1 if no row has it."""
        return self._numbers.get(name, -1)

    def _number(self, name: str) -> int:
        # A new name gets the next number, and goes to the list by which numbers become names again.
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def to_json(self) -> dict[str, Any]:
        return {"names": self.names, "codes": encode_base64(self._codes.tobytes())}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "StringColumn":
        strings = cls()
        strings.names = list(plain["names"])
        strings._numbers = {name: number for number, name in enumerate(strings.names)}
        strings._codes.frombytes(decode_base64(plain["codes"]))
        return strings


class HashColumn:
    """A column of hashes; 0 for unknown."""

    def __init__(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._hashes = hashes

    @functools.cached_property
    def codes(self) -> Codes:
        """`[utterances]` numbers from 0 in order of appearance; -1 for unknown."""
        # `np.unique` numbers by value; `order` turns these numbers into those of first appearance.
        _, first, inverse = np.unique(self._hashes, return_index=True, return_inverse=True)
        order = np.empty(len(first), dtype=np.int32)
        order[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        codes: Codes = order[inverse]
        codes[self._hashes == 0] = -1
        return codes

    @functools.cached_property
    def distinct(self) -> int:
        return count_distinct(self._hashes[self._hashes != 0])

    @property
    def known(self) -> RowIndices:
        """The rows with a hash."""
        return np.flatnonzero(self._hashes)


def count_distinct(values: npt.NDArray[Any]) -> int:
    """The number of distinct values.

    `np.unique` would import `numpy.ma`, to check whether the array is masked.
    """
    ordered = np.sort(values)
    return int((ordered[1:] != ordered[:-1]).sum()) + bool(len(ordered))


def median(values: Floats) -> float:
    """Computes `np.median` without importing `numpy.ma`."""
    ordered = np.sort(values)
    # One value in the middle, or two whose mean it is.
    middle = len(values) // 2
    return float(np.mean(ordered[middle - (len(values) % 2 == 0) : middle + 1]))


def encode_base64(data: bytes | bytearray) -> str:
    """Bytes as text for JSON."""
    return base64.b64encode(data).decode("ascii")


def decode_base64(text: str) -> bytes:
    return base64.b64decode(text)
