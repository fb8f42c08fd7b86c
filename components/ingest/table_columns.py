"""Which column of a corpus' table holds which value of a manifest's line."""

import re
from collections.abc import Iterable

from voxline.components.ingest.settings import ColumnNames

USUAL_COLUMNS = {
    "id": ("id", "utt_id", "utterance_id", "uttid"),
    "audio_filepath": (
        *("audio_filepath", "audio", "audio_path", "wav_filename", "path", "file_name", "filename", "file", "wav"),
        "audio_file",
    ),
    "text": ("text", "transcript", "transcription", "sentence", "wrd", "normalized_text", "raw_text"),
    "speaker": ("speaker", "speaker_id", "spk_id", "spk", "client_id"),
    "split": ("split", "subset"),
    "channel": ("channel", "channel_selector", "ch", "chan"),
    "offset": ("offset", "start", "start_time", "begin", "begin_time", "start_sec", "start_s"),
    "duration": ("duration", "dur"),
}
"""The names under which corpora have the values of a manifest's line, the most usual first."""
_ENDS = ("end", "end_time", "stop", "stop_time", "end_sec", "end_s")
_BEGIN = re.compile(r"(?:(?:segment|utt(?:erance)?|audio)[_ ]?)?(?:start|begin|onset|offset)", re.IGNORECASE)
_TIME = re.compile(
    r"(?:(?:segment|utt(?:erance)?|audio)[_ ]?)?(?:start|begin|onset|offset|from|end|stop|to|xmin|xmax)"
    r"(?:[_ ]?(?:time|ms|msec|millis(?:econds)?|s|sec(?:onds)?|samples?|frames?))*",
    re.IGNORECASE,
)


def map_columns(names: Iterable[str], column_names: ColumnNames) -> dict[str, str]:
    """The column that holds each value of a manifest's line, for the values that have one.

    Args:
      names: of the table's columns, or the keys of a JSON line; their case does not matter.
      column_names: `corpus.columns`.

    >>> map_columns(["Path", "sentence", "client_id", "accent"], ColumnNames(speaker="accent"))
    {'audio_filepath': 'Path', 'text': 'sentence', 'speaker': 'accent'}
    """
    by_lower = {name.lower(): name for name in names}
    columns = {}
    for key, usual in USUAL_COLUMNS.items():
        own = getattr(column_names, key)
        for name in (own,) if own else usual:
            if name.lower() in by_lower:
                columns[key] = by_lower[name.lower()]
                break
    return columns


def end_column(names: Iterable[str], columns: dict[str, str]) -> str:
    """The column of an utterance's end in its recording, where there is one of its start and none of its duration.

    >>> end_column(["path", "Start", "End"], {"audio_filepath": "path", "offset": "Start"})
    'End'
    """
    if "offset" not in columns or "duration" in columns:
        return ""
    return next((name for name in names if name.lower() in _ENDS), "")


def describe_times(names: Iterable[str], columns: dict[str, str]) -> str:
    """Names columns that look like times of an utterance in its recording, where none is used; empty without them.

    >>> describe_times(["path", "text", "start_ms", "end_ms"], {})[:49]
    'start_ms and end_ms are kept, and cut no recordin'
    >>> describe_times(["path", "text", "start", "end"], {"offset": "start"})
    ''
    >>> describe_times(["start_ms", "duration"], {"duration": "duration"})[:47]
    'start_ms is kept, and cuts no recording: second'
    """
    if "offset" in columns:
        return ""
    times = [name for name in names if _TIME.fullmatch(name)]
    # Beside a duration that is read, a start alone matters too.
    if len(times) < 2 and not (times and "duration" in columns and _BEGIN.match(times[0])):
        return ""
    kept = "are kept, and cut" if len(times) > 1 else "is kept, and cuts"
    return (
        f"{' and '.join(times)} {kept} no recording: seconds are read from {USUAL_COLUMNS['offset'][0]} or "
        f"{USUAL_COLUMNS['offset'][1]}, and from duration or end; corpus.columns.offset names another column"
    )


SIDES = (("inbound", "outbound"), ("left", "right"), ("agent", "customer"), ("caller", "callee"), ("ch0", "ch1"))
"""Names of the two sides of a call."""


def describe_sides(names: Iterable[str]) -> str:
    """Names the columns that hold the texts of both sides of a call in one row, and what to do; empty without them.

    >>> describe_sides(["path", "transcript_inbound", "transcript_outbound"])[:72]
    'transcript_inbound and transcript_outbound are the two sides of a call: '
    >>> describe_sides(["path", "left_channel", "right_channel"])
    ''
    """
    texts = "|".join(USUAL_COLUMNS["text"])
    by_side: dict[str, str] = {}
    for name in names:
        words = re.sub(rf"({texts})s?", "", name.lower())
        if words != name.lower() and (side := words.strip("_-. ")):
            by_side[side] = name
    for first, second in SIDES:
        if first in by_side and second in by_side:
            return (
                f"{by_side[first]} and {by_side[second]} are the two sides of a call: give each a row of its own, with "
                "the same recording, a column channel of 0 or 1, and one column of the text"
            )
    return ""
