"""The rows of a dataset: its utterances as JSON lines, sorted by id.

  {"id": "1988-24833-0000", "split": "train", "speaker": "1988", "text": "a word", "duration": 3.2,
   "offset": 0.0, "audio_hash": "9f…", "accent": "us"}

A row does not say where its features are, so equal content gives an equal file, byte by byte, whatever happens to the
shards. Unknown keys of the manifest are kept.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from voxline.data.json_codec import encode_json, parse_json
from voxline.errors import WorkError
from voxline.store.size_limits import iter_bounded_lines, open_regular

ROWS_FILE = "rows.jsonl"
NON_CONTENT_KEYS = ("audio_filepath", "measured")
"""Keys of a manifest's line that are not content: the path and the measurements."""

_KEYS = {"id", "split", "speaker", "text", "duration", "offset", "audio_hash", *NON_CONTENT_KEYS}


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetRow:
    """One utterance of a dataset.

    Attributes:
      number: of the row, from 0; index into the dataset's record locations.
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


def encode_row(values: Mapping[str, Any]) -> str:
    """Encodes a row from the values of a manifest's line.

    >>> encode_row({"id": "a", "audio_filepath": "a.wav", "text": "b", "duration": 1, "audio_hash": "c", "sex": "F"})
    '{"id":"a","split":"train","speaker":"","text":"b","duration":1,"offset":0.0,"audio_hash":"c","sex":"F"}\\n'
    """
    # The order of keys is fixed, for files that are equal byte by byte.
    row = {
        "id": values["id"],
        "split": values.get("split", "train"),
        "speaker": values.get("speaker", ""),
        "text": values["text"],
        "duration": values["duration"],
        "offset": values.get("offset", 0.0),
        "audio_hash": values.get("audio_hash", ""),
    }
    for key in sorted(values.keys() - _KEYS):
        row[key] = values[key]
    return encode_json(row) + "\n"


def read_rows(path: Path) -> Iterator[DatasetRow]:
    """Yields the rows of a file.

    Raises:
      WorkError: a line is not a row.
    """
    with open_regular(path) as file:
        for number, (_, line) in enumerate(iter_bounded_lines(file, path)):
            try:
                values = parse_json(line)
                row = DatasetRow(
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
                raise WorkError(f"{path}:{number + 1}: not a row of a dataset ({error}); run extract again") from None
            yield row
