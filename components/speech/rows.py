"""The rows of a dataset: who says what in which split, a line of JSON an utterance, sorted by id.

  {"id": "1988-24833-0000", "split": "train", "speaker": "1988", "text": "a word", "duration": 3.2,
   "offset": 0.0, "audio_hash": "9f…", "accent": "us"}

Nothing in them says where features lie, so the same content is the same file, byte by byte, whatever happened to
the shards. Unknown keys of the manifest are kept.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError

ROWS = "rows.jsonl"
NOT_CONTENT = ("audio_filepath", "measured")
"""Keys of a manifest's line that say where it lies and what was measured."""


_KEYS = {"id", "split", "speaker", "text", "duration", "offset", "audio_hash", *NOT_CONTENT}

_text, _value = json.encoder.encode_basestring, json.JSONEncoder(ensure_ascii=False).encode
"""As `json.dumps`, of which one call for each line takes five times as long as all of the rest."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One utterance of a dataset.

    Attributes:
      number: its place in the file, from 0 on; the row of the dataset's places.
      duration, offset: seconds, in the audio that `audio_hash` names.
      extra: other keys.
    """

    number: int
    id: str
    split: str
    speaker: str
    text: str
    duration: float
    offset: float
    audio_hash: str
    extra: dict[str, Any]


def row_line(values: Mapping[str, Any]) -> str:
    """The line of an utterance, of the values of a manifest's line.

    >>> row_line({"id": "a", "audio_filepath": "a.wav", "text": "b", "duration": 1, "audio_hash": "c", "accent": "us"})
    '{"id": "a", "split": "train", "speaker": "", "text": "b", "duration": 1, "offset": 0.0, "audio_hash": "c", \
"accent": "us"}\\n'
    """
    line = (
        f'{{"id": {_text(values["id"])}, "split": {_text(values.get("split", "train"))}, '
        f'"speaker": {_text(values.get("speaker", ""))}, "text": {_text(values["text"])}, '
        f'"duration": {values["duration"]!r}, "offset": {values.get("offset", 0.0)!r}, '
        f'"audio_hash": {_text(values.get("audio_hash", ""))}'
    )
    for key in sorted(values.keys() - _KEYS):
        line += f", {_text(key)}: {_value(values[key])}"
    return line + "}\n"


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file.

    Raises:
      WorkError: naming the line that is no row.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            try:
                values = json.loads(line)
                row = Row(
                    number,
                    id=values.pop("id"),
                    split=values.pop("split"),
                    speaker=values.pop("speaker"),
                    text=values.pop("text"),
                    duration=values.pop("duration"),
                    offset=values.pop("offset"),
                    audio_hash=values.pop("audio_hash"),
                    extra=values,
                )
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise WorkError(f"{path}:{number + 1}: no row of a dataset ({error}); run extract again") from None
            yield row
