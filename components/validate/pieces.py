"""A manifest read in pieces: the lines that begin within a range of its bytes, each with its place in the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.lines import values_of


def each_line(manifest: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place, values) of each line that begins at these bytes; several ranges that touch have each line once.

    Raises:
      WorkError: naming the line, when the manifest is absent or not one of ours.
    """
    if not manifest.is_file():
        raise WorkError(f"{manifest}: no such manifest; run the step that writes it first")
    with open(manifest, "rb") as file:
        if start:  # the line that this byte is in the middle of is another's
            file.seek(start - 1)
            file.readline()
        place = file.tell()
        for line in file:
            if stop is not None and place >= stop:
                break
            if not line.isspace():
                yield place, _values_of(line, manifest, place)
            place += len(line)


def ranges(manifest: Path, length: int) -> list[tuple[int, int]]:
    """The bytes of a manifest in pieces of this length."""
    size = manifest.stat().st_size
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def _values_of(line: bytes, manifest: Path, place: int) -> dict[str, Any]:
    try:
        return values_of(line, "")
    except WorkError:
        return values_of(line, f"{manifest}:{_number(manifest, place)}")  # once more, for what it says


def _number(manifest: Path, place: int) -> int:
    """The number of the line that begins there, which nobody counts as long as all is well."""
    number, passed = 1, 0
    with open(manifest, "rb") as file:
        for line in file:
            if passed >= place:
                break
            passed += len(line)
            number += 1
    return number
