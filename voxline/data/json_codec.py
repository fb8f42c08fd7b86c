"""A line of a manifest: read with all checks, and written, as quickly as a corpus of millions wants it.

What is written is what `json.dumps` writes of it, byte by byte; only the way there is shorter.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.store.hashing import canonical_json

REQUIRED_KEYS = ("id", "audio_filepath", "duration", "text")
IDENTITY_KEYS = ("audio_hash", "duration", "id", "offset", "speaker", "split", "text")
TEXT_KEYS = ("id", "audio_filepath", "text", "speaker", "split", "audio_hash")

encode_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False).encode
"""As `json.dumps`, which would make an encoder anew for each line."""

encode_string: Callable[[str], str] = json.encoder.encode_basestring
"""A text as JSON has it."""

_scan: Callable[[str, int], tuple[Any, int]] = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[attr-defined]
_BLANK = " \t\r\n"


def iter_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, as they stand there, numbered from 1."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.isspace():
                yield number, line


def parse_line(line: bytes | str, where: str) -> dict[str, Any]:
    """What a line says, once it is known to be an utterance's.

    Args:
      where: names the line to a person.

    Raises:
      WorkError: it is not JSON, or no utterance.
    """
    text = line if isinstance(line, str) else _text(line, where)
    try:
        values = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise _no_json(where, error) from None
    if "\\u" in text:
        try:
            encode_json(values).encode()  # half a surrogate pair is JSON, and no text
        except UnicodeEncodeError as error:
            raise _no_json(where, error) from None
    if not isinstance(values, dict):
        raise WorkError(
            f"{where}: {text.strip()[:80]}; a line of a manifest is a mapping with {', '.join(REQUIRED_KEYS)}"
        )
    get = values.get
    if (
        type(get("id")) is type(get("audio_filepath")) is type(get("text")) is str
        and type(get("speaker", "")) is type(get("split", "")) is type(get("audio_hash", "")) is str
        and is_seconds(get("duration"))
        and ("offset" not in values or is_seconds(values["offset"]))
        and ("measured" not in values or type(values["measured"]) is dict)
    ):
        return values
    raise _no_utterance(values, where)


def parse_json(text: str) -> Any:
    """As `json.loads`, which takes twice as long for a line.

    Raises:
      ValueError: it is not JSON.
    """
    try:
        value, end = _scan(text, 0)
        if not text[end:].strip(_BLANK):
            return value
    except StopIteration:
        pass
    return json.loads(text)  # for what begins with a blank; of what is none, this says why


def absolute_path(folder: str, path: str) -> str:
    """The absolute path of what a manifest in an absolute folder names.

    >>> absolute_path("/store/convert/key", "../../wavs/a.wav"), absolute_path("/store", "/corpus/a.wav")
    ('/store/wavs/a.wav', '/corpus/a.wav')
    """
    if path.startswith("/"):
        # Nearly all are plain, and to normalise one takes as long as to parse a line.
        return os.path.normpath(path) if "//" in path or "/." in path or path.endswith("/") else path
    return os.path.normpath(f"{folder}/{path}")


def encode_number(value: float) -> str:
    """A number as JSON has it."""
    return repr(value) if type(value) is float and value - value == 0 else encode_json(value)


@functools.lru_cache(maxsize=256)
def identity_format(extra: tuple[str, ...], offset: bool) -> str:
    """A format for an utterance's identity as JSON with sorted keys, of `IDENTITY_KEYS` and then of further keys.

    >>> identity_format(("accent",), False).format('""', "1.5", '"a"', "0.0", '""', '"test"', '"one"', '"us"')
    '{"accent":"us","audio_hash":"","duration":1.5,"id":"a","speaker":"","split":"test","text":"one"}'
    """
    keys = [(key, place) for place, key in enumerate(IDENTITY_KEYS + extra) if offset or key != "offset"]
    pairs = (canonical_json(key).replace("{", "{{").replace("}", "}}") + f":{{{place}}}" for key, place in sorted(keys))
    return "{{" + ",".join(pairs) + "}}"


def is_seconds(value: Any) -> bool:
    """Whether a value of a manifest is a time: from 0 on, and short of thirty years (`1e400` is valid JSON)."""
    return type(value) in (float, int) and 0 <= value < 1e9


def _text(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise WorkError(
            f"{where}: no manifest: not UTF-8 (byte {error.start}); give what ingest or convert made"
        ) from None


def _no_json(where: str, error: Exception) -> WorkError:
    return WorkError(f"{where}: not a JSON line ({error}); the manifest was damaged or half copied")


def _no_utterance(values: dict[str, Any], where: str) -> WorkError:
    if missing := [key for key in REQUIRED_KEYS if key not in values]:
        return WorkError(f"{where}: no {', '.join(missing)}; an utterance has at least {', '.join(REQUIRED_KEYS)}")
    faults = [f"`{key}` is {values[key]!r}" for key, fits in _FITS.items() if key in values and not fits(values[key])]
    return WorkError(
        f"{where}: {', '.join(faults)}; seconds are numbers from 0 on, the others are text; "
        "a manifest that somebody else wrote goes through ingest (corpus.format: manifest)"
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(TEXT_KEYS, lambda value: isinstance(value, str)),
    **dict.fromkeys(("duration", "offset"), is_seconds),
    "measured": lambda value: isinstance(value, dict),
}
