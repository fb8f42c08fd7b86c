"""A manifest read in pieces: the lines that begin within a range of its bytes, each with its place in the file."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.utterances import FIELDS, is_seconds, utterance_of

_scan = json.JSONDecoder().raw_decode
"""As `json.loads` without what it does around: a manifest is many short lines."""

_TEXTS = tuple(name for name in FIELDS if name in ("speaker", "split", "audio_hash"))


def each_line(manifest: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place, values) of each line that begins at these bytes; several ranges that touch have each line once.

    `audio_filepath` stays as it stands in the file.

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
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise WorkError(
                    f"{manifest}: no manifest: not UTF-8 (byte {place + error.start}); give what ingest or convert made"
                ) from None
            if not text.isspace():
                yield place, _values_of(text, manifest, place)
            place += len(line)


def ranges(manifest: Path, length: int) -> list[tuple[int, int]]:
    """The bytes of a manifest in pieces of this length."""
    size = manifest.stat().st_size
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def _values_of(text: str, manifest: Path, place: int) -> dict[str, Any]:
    """What the line says; whatever is not plainly in order is looked at with care, and told with its number."""
    try:
        values, end = _scan(text)
        if _is_plain(values) and "\\u" not in text and (end == len(text) or text[end:].isspace()):
            found: dict[str, Any] = values
            return found
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return utterance_of(text, f"{manifest}:{_number(manifest, place)}", os.path.abspath(manifest.parent)).as_line()


def _is_plain(values: dict[str, Any]) -> bool:
    return (
        type(values["id"]) is str
        and type(values["text"]) is str
        and type(values["audio_filepath"]) is str
        and is_seconds(values["duration"])
        and is_seconds(values.get("offset", 0.0))
        and type(values.get("measured", _NOTHING)) is dict
        and all(type(values.get(name, "")) is str for name in _TEXTS)
    )


_NOTHING: dict[str, Any] = {}


def _number(manifest: Path, place: int) -> int:
    """The number of a line, empty ones not counted."""
    number, passed = 1, 0
    with open(manifest, "rb") as file:
        for line in file:
            if passed >= place:
                break
            passed += len(line)
            number += not line.isspace()
    return number
