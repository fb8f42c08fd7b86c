"""JSON lines: decoded with all checks and encoded, fast enough for manifests of millions of lines.

msgspec does the work: it reads a line in a third of the time of `json`, and writes one in a quarter. Identity hashes
do not come from here: they keep the spelling of `json` (voxline/store/hashing.py), since msgspec writes 1e16 as
`1e16` and `json` as `1e+16`.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.errors import WorkError
from voxline.store.size_limits import iter_bounded_lines, open_regular

REQUIRED_KEYS = ("id", "audio_filepath", "duration", "text")
TEXT_KEYS = ("id", "audio_filepath", "text", "speaker", "split", "audio_hash")

_encoder = msgspec.json.Encoder()
parse_json: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode
"""Decodes one JSON value.

Raises:
  ValueError: it is not JSON. NaN, Infinity, numbers beyond a double and lone surrogates are not.
  RecursionError: it is nested too deep.
"""


def encode_json(value: Any) -> str:
    """Encodes a value as one line of JSON, without its end.

    Raises:
      ValueError: it holds a number that JSON does not have, such as NaN.

    >>> encode_json({"text": "naïve", "duration": 1.5})
    '{"text":"naïve","duration":1.5}'
    """
    data = _encoder.encode(value)
    if b"null" in data:  # perhaps a NaN, which msgspec writes so; perhaps a None, or the word in a text
        json.dumps(value, allow_nan=False, default=_skip)
    return data.decode()


def iter_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file that are not blank, unchanged, with their numbers from 1.

    Raises:
      WorkError: a line is longer than `MAX_LINE_BYTES`, or the file is not a regular one.
    """
    with open_regular(path) as file:
        for number, line in iter_bounded_lines(file, path):
            if not line.isspace():
                yield number, line


def parse_line(line: bytes | str, where: str) -> dict[str, Any]:
    """Decodes a line of a manifest and checks that it is an utterance.

    Args:
      where: names the line in messages.

    Raises:
      WorkError: the line is not JSON, or not an utterance.
    """
    try:
        values = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise _not_json(line, where, error) from None
    if not isinstance(values, dict):
        text = line if isinstance(line, str) else line.decode()
        raise WorkError(
            f"{where}: {text.strip()[:80]}; a line of a manifest is a mapping with {', '.join(REQUIRED_KEYS)}"
        )

    # One chained comparison instead of a loop over `_CHECKS`: this runs for each of millions of lines. Exact types,
    # since a bool is an int. On failure `_not_an_utterance` runs the slow checks to name the keys.
    get = values.get
    if (
        type(get("id")) is type(get("audio_filepath")) is type(get("text")) is str
        and type(get("speaker", "")) is type(get("split", "")) is type(get("audio_hash", "")) is str
        and is_seconds(get("duration"))
        and ("offset" not in values or is_seconds(values["offset"]))
        and ("measured" not in values or type(values["measured"]) is dict)
    ):
        return values
    raise _not_an_utterance(values, where)


def absolute_path(folder: str, path: str) -> str:
    """The absolute path of a file that a manifest in an absolute folder names.

    >>> absolute_path("/store/convert/key", "../../wavs/a.wav"), absolute_path("/store", "/corpus/a.wav")
    ('/store/wavs/a.wav', '/corpus/a.wav')
    """
    if path.startswith("/"):
        # Nearly all are normal already, and normpath takes as long as parsing the line.
        return os.path.normpath(path) if "//" in path or "/." in path or path.endswith("/") else path
    return os.path.normpath(f"{folder}/{path}")


def is_seconds(value: Any) -> bool:
    """Returns whether a value of a manifest is a time: at least 0, and less than thirty years."""
    # A bool is an int too, and `true` is no duration; hence the exact type.
    return type(value) in (float, int) and 0 <= value < 1e9


def _skip(_: object) -> None:
    """Passes over a value that `json` cannot encode: a `msgspec.Raw`, which is JSON already."""


def _not_json(line: bytes | str, where: str, error: Exception) -> WorkError:
    # msgspec's message for bytes that are not UTF-8 names no position.
    try:
        if isinstance(line, bytes):
            line.decode()
    except UnicodeDecodeError as odd:
        return WorkError(
            f"{where}: not a manifest: not UTF-8 (byte {odd.start}); give the manifest that ingest or convert wrote"
        )
    try:  # msgspec calls half a surrogate pair truncated; `json` says what is wrong
        encode_json(json.loads(line))
    except (ValueError, RecursionError) as clearer:
        error = clearer
    return WorkError(
        f"{where}: not a JSON line ({error}); it was damaged or half copied, or holds a value that JSON does not have, "
        "such as NaN (ingest with corpus.format: manifest makes a reject of such a line)"
    )


def _not_an_utterance(values: dict[str, Any], where: str) -> WorkError:
    if missing := [key for key in REQUIRED_KEYS if key not in values]:
        return WorkError(f"{where}: no {', '.join(missing)}; an utterance has at least {', '.join(REQUIRED_KEYS)}")
    faults = [f"`{key}` is {values[key]!r}" for key, fits in _CHECKS.items() if key in values and not fits(values[key])]
    return WorkError(
        f"{where}: {', '.join(faults)}; seconds are numbers from 0 on, the others are text; "
        "read a manifest of another program with ingest (corpus.format: manifest)"
    )


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(TEXT_KEYS, lambda value: isinstance(value, str)),
    **dict.fromkeys(("duration", "offset"), is_seconds),
    "measured": lambda value: isinstance(value, dict),
}
