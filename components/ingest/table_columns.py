"""Which column of a corpus' table holds which value of a manifest's line, and the times that a row has.

Usual names are read as they are (`USUAL_COLUMNS`). Of times, channels and speakers, other names are read too, where
name and values agree on what they are: `tmin` and `tmax`, `start_ms` and `end_ms`, `audio_channel`, `Speaker Name`. A
column that looks like one of these, and is not read, is named (`describe_unread`).
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from voxline.audio.containers import parse_channel
from voxline.components.ingest.row_marks import describe_verdicts
from voxline.components.ingest.settings import ColumnNames
from voxline.rejects import DURATION_TOLERANCE_SECONDS
from voxline.text.lazy_pattern import lazy_pattern

USUAL_COLUMNS = {
    "id": ("id", "utt_id", "utterance_id", "uttid"),
    "audio_filepath": (
        *("audio_filepath", "audio", "audio_path", "wav_filename", "path", "file_name", "filename", "file", "wav"),
        "audio_file",
    ),
    "text": ("text", "transcript", "transcription", "sentence", "wrd", "normalized_text", "raw_text", "txt"),
    "speaker": (
        *("speaker", "speaker_id", "spk_id", "spk", "client_id", "speakerid", "speaker_name", "reader_id"),
        "user_id",
    ),
    "split": ("split", "subset"),
    "channel": ("channel", "channel_selector", "ch", "chan"),
    "offset": ("offset", "start", "start_time", "begin", "begin_time", "start_sec", "start_s"),
    "duration": ("duration", "dur"),
}
"""The names under which corpora have the values of a manifest's line, the most usual first."""
TIMES = ("offset", "end", "duration")
"""Keys of `map_columns` whose columns hold times."""
MOST = 0.9
"""Share of a column's values that look like a time, where it is taken for one."""
LONGEST_SECONDS = 1e6
"""A larger number is no time in a recording, but a date since 1970, say."""

_ENDS = ("end", "end_time", "stop", "stop_time", "end_sec", "end_s")
_SECONDS = "seconds"
_SAMPLES = "samples"
_UNITS = {_SECONDS: 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
"""Of times, in seconds. Samples depend on the recording."""
_WORDS = {
    "start": r"starts?|starting|begins?|beginning|onset|offset|from|[tx] ?min|t ?0|anfang|beginn|von|d[eé]but|in[ií]cio"
    r"|开始|起始|開始|начало",
    "end": r"ends?|ending|stops?|finish|finishes|until|till|to|[tx] ?max|t ?1|ende|bis|fin|конец|结束|終止|终止|終了",
    "length": r"durations?|dur|length|len|(?:num|nb|n|number of)(?= ?samples?)|dauer|dur[eé]e|duraci[oó]n|时长|長さ",
}
_UNIT_WORDS = {
    _SECONDS: r"s|secs?|seconds?|ss|秒",
    "milliseconds": r"ms|msecs?|millis?|milli ?seconds?|毫秒",
    "microseconds": r"us|usecs?|micros?|micro ?seconds?",
    "nanoseconds": r"ns|nanos?|nano ?seconds?",
    _SAMPLES: r"samples?|smpl",
    "frames": r"frames?",
    "a clock's": r"hh ?mm ?ss(?: ?(?:ms|msec|fff))?|hms",
}
_PARTS = (
    "times?|time ?stamps?|t|ts|segments?|seg|utterances?|utt|audio|clip|speech|chunk|wav|cut|span|turn|interval|cue|"
    "supervision|subtitle|rec|recording|file|media|video|total|时间|時間|время|tiempo"
)
"""Words beside these in a name that leave it one of a time."""
_ROLE = lazy_pattern(
    rf"(?P<before>(?:(?:{_PARTS}|{'|'.join(_UNIT_WORDS.values())}) ?)*?)"
    rf"(?:{'|'.join(f'(?P<{role}>{words})' for role, words in _WORDS.items())})"
    rf"(?P<after>(?: ?(?:{_PARTS}|pos|position|point|at|in|{'|'.join(_UNIT_WORDS.values())}))*)"
)
_WHOLE = lazy_pattern(r"\b(?:audio|wav|file|rec|recording|media|video|total|clip)\b")
"""In the name of a length: it is that of the recording."""
_TIMELIKE = lazy_pattern(
    rf"(?:(?:{_PARTS}) ?)*(?:times?|time ?stamps?|ts|tc|time ?codes?|(?:time ?)?(?:ranges?|spans?))"
)
"""Names of times that say neither start nor end."""
_BEGINS_OR_ENDS = lazy_pattern(r"\b(?:start|begin|onset|end|stop|finish)\b")
"""In the name of a column that may be of times, whatever its other words are."""
PAIRS = 3
"""Rows from which on two columns of fractions, the second always larger, look like times."""
_RANGELIKE = lazy_pattern(r"segments?|intervals?|ranges?|spans?|cues?|positions?|parts?|sections?")
"""Names of times where their values are ranges."""

_PLAIN = lazy_pattern(r"\+?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CLOCK = lazy_pattern(r"(?:(\d+):)?([0-5]?\d):([0-5]?\d(?:[.,]\d+)?)")
_CLOCK_OF_FILM = lazy_pattern(r"[\d:]+:\d+[.,]\d+|\d{1,2}:\d\d:\d\d[:;]\d\d")
_RANGE = lazy_pattern(r"[\[(]?\s*(\S+?)\s*(?:-->|\.\.|–|—|-|,|;|\s)\s*(\S+?)\s*[\])]?")

_CHANNEL = lazy_pattern(
    r"(?:(?:audio|wav|recording|rec|file|speaker|speech|mic|stereo|call) ?)*"
    r"(?:channels?|chans?|ch|side|声道|通道|канал|kanal|canal)(?: ?(?:id|index|idx|number|no|nr|num|selector|name))?"
)
_SIDED = lazy_pattern(r"(?:mic|microphone|track|leg|party|direction|position)(?: ?(?:id|name|type))?")
_SPEAKER = lazy_pattern(
    r"(?:speaker|spkr?|talker|narrator|reader|participant|subject|informant|client|contributor|actor|actress|"
    r"voice actor|voice talent|user|voice|sprecher(?:in)?|locuteur|locutrice|hablante|locutor|parlante|"
    r"spreker|диктор|спикер|说话人|發言人|发言人|话者|話者)"
    r"(?: ?(?:id|name|code|key|label|number|no|nr|num|index|idx|uid|uuid|hash|pseudonym|alias|编号))?"
)
_ABOUT_SPEAKER = lazy_pattern(
    r"\b(?:age|sex|gender|accent|dialect|language|lang|native|country|region|count|rate|turn|embedding|role|type|"
    r"consent|email|age group|education|birth|year|level|emotion|style)s?\b"
)
_SEXES = frozenset("m f w male female man woman boy girl männlich weiblich 男 女".split())  # noqa: SIM905
_SPEAKER_WORD = lazy_pattern(r"\b(?:speaker|spkr?|talker|narrator|说话人|话者)s?\b")
_SPLIT = lazy_pattern(
    r"(?:data ?)?(?:sets?|splits?|partition|fold|subset|usage)(?: ?(?:name|id|type))?"
    r"|(?:ml|data ?set|corpus) ?(?:split|use|usage)"
)
_SPLIT_VALUE = lazy_pattern(
    r"(?:train(?:ing)?|dev(?:elopment)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?)"
    r"(?:[-_ ]?(?:set|split|data|clean|other|[0-9]{1,4})){0,3}",
    re.IGNORECASE,
)
"""Not "device", nor names of corpora such as test_ted."""
_COUNT = lazy_pattern(r"channels|chans")
"""Names that count the channels, unless a list says which."""
_CHANNEL_WORDS = frozenset(
    """
    both stereo mono mixed inbound outbound agent customer caller callee client rx tx incoming outgoing near far
    near-end far-end local remote
    """.split()  # noqa: SIM905 - a table in lines
)
"""Values that name a channel for people, and not by number."""


class _Role(NamedTuple):
    """The sense of a name of a time.

    Attributes:
      kind: "start", "end" or "length".
      unit: of `_UNITS`, or samples; others are known, and not read.
      around: the other words of the name, by which a start finds its end.
    """

    kind: str
    unit: str
    around: str

    @property
    def is_readable(self) -> bool:
        return self.unit in _UNITS or self.unit == _SAMPLES


def _words(name: str) -> str:
    """The words of a name, in small letters: `StartTime (ms)` is "start time ms"."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return " ".join(re.findall(r"[^\W_]+", spaced.lower()))


@functools.lru_cache(1_024)
def _time_role(name: str) -> _Role | None:
    """The sense of a name of a time; None if it is another name.

    >>> _time_role("StartTime (ms)"), _time_role("Begin Time - ss.msec").unit, _time_role("sentence")
    (_Role(kind='start', unit='milliseconds', around='time ms'), 'seconds', None)
    """
    words = _words(name)
    match = _ROLE.fullmatch(words)
    if not match:
        return None
    kind = next(kind for kind in _WORDS if match[kind])
    around = f"{match['before']} {match['after']}"
    around = " ".join(around.split())
    # `ss.msec` are seconds with a fraction, so the first unit counts.
    units = {
        unit: place[0].start()
        for unit, words in _UNIT_WORDS.items()
        if (place := list(re.finditer(rf"\b(?:{words})\b", around)))
    }
    unit = min(units, key=lambda unit: (units[unit], unit == _SECONDS)) if units else _SECONDS
    return _Role(kind, _SECONDS if unit == "a clock's" else unit, around)


def parse_seconds(value: Any) -> float | None:
    """The number of a time: 1.5, "1.5" or a clock's "00:00:01,500"; None if it is none from 0 on.

    >>> [parse_seconds(value) for value in (1, "0.5", "1:02.5", "01:00:00,250", "1_0", "0,5", True, "nan", -1)]
    [1.0, 0.5, 62.5, 3600.25, None, None, None, None, None]
    """
    if isinstance(value, int | float):
        return float(value) if not isinstance(value, bool) and 0 <= value < float("inf") else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _PLAIN.fullmatch(text):
        number = float(text)
        return number if number < float("inf") else None
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = clock.groups()
        return 3_600 * int(hours or 0) + 60 * int(minutes) + float(seconds.replace(",", "."))
    return None


def parse_range(value: Any) -> tuple[float, float] | None:
    """The start and the end that one value holds, as in [0.5, 1.5] or "00:00:00.5 --> 00:00:01.5"; None if it is none.

    >>> (
    ...     parse_range([0.5, 1]),
    ...     parse_range("(0.5, 1.5)"),
    ...     parse_range("0:01.5-0:02.5"),
    ...     parse_range("1-2"),
    ...     parse_range("a b"),
    ... )
    ((0.5, 1.0), (0.5, 1.5), (1.5, 2.5), (1.0, 2.0), None)
    """
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        value = list(match.groups()) if match else None
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    start, end = map(parse_seconds, value)
    return (start, end) if start is not None and end is not None and start < end else None


Sample = Mapping[str, Sequence[Any]]
"""The first values of each column; blank ones are left out."""


def map_columns(names: Iterable[str], column_names: ColumnNames, sample: Sample | None = None) -> dict[str, str]:
    """The column that holds each value of a manifest's line, for the values that have one; and `end`, of a time.

    Args:
      names: of the table's columns, or the keys of a JSON line; their case does not matter.
      column_names: `corpus.columns`.
      sample: tells whether a column with another name holds times or channels; None: such columns are not read.

    >>> map_columns(["Path", "sentence", "client_id", "accent"], ColumnNames(speaker="accent"))
    {'audio_filepath': 'Path', 'text': 'sentence', 'speaker': 'accent'}
    >>> map_columns(["tmin", "tmax"], ColumnNames(), {"tmin": ["0.5"], "tmax": ["1.5"]})
    {'offset': 'tmin', 'end': 'tmax'}
    """
    # The usual names first, the most usual one of each value.
    by_lower = {name.lower(): name for name in names}
    names = list(by_lower.values())
    columns = {}
    for key, usual in USUAL_COLUMNS.items():
        own = getattr(column_names, key)
        for name in (own,) if own else usual:
            if name.lower() in by_lower and not (key == "speaker" and _are_mappings(by_lower[name.lower()], sample)):
                columns[key] = by_lower[name.lower()]
                break

    # WeNet's {"key": ..., "wav": ..., "txt": ...}; elsewhere a key may be of anything.
    if columns.get("audio_filepath", "").lower() == "wav" and "key" in by_lower and not column_names.id:
        columns.setdefault("id", by_lower["key"])

    # Then other names, whose values must fit.
    _map_times(names, columns, column_names, sample or {})
    if sample and not column_names.channel and "channel" not in columns:
        named = (name for name in names if name not in columns.values() and _CHANNEL.fullmatch(_words(name)))
        if channel := next((name for name in named if _holds_channels(name, sample)), ""):
            columns["channel"] = channel
    if sample and not column_names.split and "split" not in columns:
        named = (name for name in names if name not in columns.values() and _SPLIT.fullmatch(_words(name)))
        if split := next((name for name in named if _holds_splits(name, sample)), ""):
            columns["split"] = split
    if sample and not column_names.speaker and "speaker" not in columns:
        named = (name for name in names if name not in columns.values() and _SPEAKER.fullmatch(_words(name)))
        if speaker := next((name for name in named if _holds_speakers(name, sample)), ""):
            columns["speaker"] = speaker
    return columns


def _map_times(names: Sequence[str], columns: dict[str, str], column_names: ColumnNames, sample: Sample) -> None:
    """Adds the columns of start, end and duration, or moves them where names have another sense beside each other."""
    # Frames have no length that a table says, so that they are named, and not read.
    roles = {name: role for name in names if (role := _time_role(name)) and role.is_readable}

    # Of sounds, people write onset and offset.
    onset = next((name for name in roles if "onset" in _words(name)), "")
    if onset and not column_names.offset and (sample or onset.lower() in _ENDS):
        roles |= {name: role._replace(kind="end") for name, role in roles.items() if "offset" in _words(name)}
        if columns.get("offset") in roles and roles[columns["offset"]].kind == "end":
            del columns["offset"]

    def candidates(kind: str) -> list[str]:
        fit = [name for name, role in roles.items() if role.kind == kind and name not in columns.values()]
        return sorted((name for name in fit if _holds_times(name, sample)), key=lambda name: _preference(roles[name]))

    def end_of(start: str) -> str:
        """The end whose name is that of the start but for one word, or else the most usual one."""
        own = roles[start].around if start in roles else None
        ends = [name for name in names if name.lower() in _ENDS and name not in columns.values()]
        ends = [*sorted(ends, key=lambda name: _ENDS.index(name.lower())), *candidates("end")]
        return next((name for name in ends if name in roles and roles[name].around == own), ends[0] if ends else "")

    def length_of(start: str) -> str:
        """The length beside a start. One in samples may be the recording's, unless the start is in samples too."""
        own = roles.get(start)
        for name in candidates("length"):
            role = roles[name]
            counts = role.unit != _SAMPLES or (own is not None and own.unit == _SAMPLES)
            if counts and ((own and role.around == own.around) or not _WHOLE.search(role.around)):
                return name
        return ""

    # A start alone has a usual name; with another name it has an end, or a duration, beside it.
    if "offset" not in columns and not column_names.offset:
        for start in candidates("start"):
            if end_of(start) or "duration" in columns or length_of(start):
                columns["offset"] = start
                break
    if "offset" not in columns:
        return
    if end := end_of(columns["offset"]):
        columns["end"] = end
    elif "duration" not in columns and not column_names.duration and (name := length_of(columns["offset"])):
        columns["duration"] = name


def _preference(role: _Role) -> int:
    return [*_UNITS, _SAMPLES].index(role.unit)


def _holds_times(name: str, sample: Sample) -> bool:
    """True if most of a column's values are times that a recording may have."""
    values = sample.get(name, ())
    role = _time_role(name)
    longest = LONGEST_SECONDS / _UNITS.get(role.unit if role else _SECONDS, _UNITS["microseconds"])
    times = [value for value in values if (number := parse_seconds(value)) is not None and number < longest]
    return bool(times) and len(times) >= MOST * len(values)


def _holds_ranges(name: str, sample: Sample) -> bool:
    values = sample.get(name, ())
    ranges = [value for value in values if parse_range(value)]
    return bool(ranges) and len(ranges) >= MOST * len(values)


def _holds_channels(name: str, sample: Sample) -> bool:
    """True if most of a column's values name a channel; a number beside `channels` is how many there are."""
    values = sample.get(name, ())
    counts = _COUNT.fullmatch(_words(name)) is not None
    channels = [
        value
        for value in values
        if parse_channel(single(value)) is not None and (isinstance(value, list) or not counts)
    ]
    return bool(channels) and len(channels) >= MOST * len(values)


def _are_mappings(name: str, sample: Sample | None) -> bool:
    """True if a column holds mappings, as in {"speaker": {"id": "ann"}}: a name within them is read."""
    values = sample.get(name, ()) if sample else ()
    return bool(values) and all(isinstance(value, dict) for value in values)


def _holds_splits(name: str, sample: Sample) -> bool:
    """True if a column's values are names of splits, such as Training and val."""
    values = sample.get(name, ())
    return bool(values) and all(isinstance(value, str) and _SPLIT_VALUE.fullmatch(value.strip()) for value in values)


def _holds_speakers(name: str, sample: Sample) -> bool:
    """True if a column's values are names or whole numbers; of a voice, male and female name nobody."""
    values = sample.get(name, ())
    if {str(value).strip().lower() for value in values} <= _SEXES:
        return False
    return bool(values) and all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)


def single(value: Any) -> Any:
    """The one element of a list, as in `channels: [0]`; any other value as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def unit_of(name: str) -> str:
    """The unit of a column's times: that of its name, or seconds."""
    role = _time_role(name)
    return role.unit if role and role.is_readable else _SECONDS


def name_columns(columns: Mapping[str, str]) -> str:
    """Names the columns of times (with units), channels and speakers whose names are not the usual ones.

    >>> name_columns({"offset": "start_ms", "end": "end", "channel": "side"})
    'times are read from start_ms (milliseconds) and end (seconds); channels are read from side'
    """
    usual = {**USUAL_COLUMNS, "end": _ENDS}
    other = {
        key
        for key in (*TIMES, "channel", "speaker", "split")
        if key in columns and columns[key].lower() not in usual[key]
    }
    remarks = []
    if other & {*TIMES}:
        times = [f"{columns[key]} ({unit_of(columns[key])})" for key in TIMES if key in columns]
        remarks.append(f"times are read from {' and '.join(times)}")
    if "channel" in other:
        remarks.append(f"channels are read from {columns['channel']}")
    if "speaker" in other:
        remarks.append(f"speakers are read from {columns['speaker']}")
    if "split" in other:
        remarks.append(f"splits are read from {columns['split']}")
    return "; ".join(remarks)


def read_times(
    values: Mapping[str, Any], columns: Mapping[str, str], column_names: ColumnNames, sample_rate: Callable[[], int]
) -> tuple[float, float | None]:
    """The start of a row's utterance in its recording and its duration, in seconds; None: to the end of it.

    Args:
      columns: `map_columns` of the row.
      sample_rate: of the recording, in Hz; 0 if it cannot be opened. Times in samples ask for it.

    Raises:
      ValueError: a value is no time, or they contradict each other; the message has all of them.
    """
    # Each value by itself; a blank one says nothing.
    names = {key: columns[key] for key in TIMES if key in columns}
    seconds: dict[str, float] = {}
    for key, name in names.items():
        value = values[name]
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        number = parse_seconds(value)
        if number is None:
            point = "; write a point where the fraction begins, as in 0.5" if re.search(r"\d,\d", str(value)) else ""
            raise ValueError(f"{_quoted(values, names)}; seconds are accepted{point}")
        unit = unit_of(name)
        scale = 1 / (sample_rate() or 1) if unit == _SAMPLES else _UNITS[unit]
        seconds[key] = number if unit == _SECONDS else round(number * scale, 6)

    # Then against each other: without a start, an end may be of anything.
    offset = seconds.get("offset", 0.0)
    duration = seconds.get("duration") or None
    end = seconds.get("end")
    if end is None:
        return offset, duration
    if "offset" not in seconds:
        raise ValueError(f"{_quoted(values, names)}; an end without a start")
    if end <= offset:
        raise ValueError(f"{_quoted(values, names)}; seconds are accepted, the end after the start")
    if duration is None:
        return offset, round(end - offset, 6)  # keeps 3.2 - 0.5 from being 2.7000000000000002
    if not column_names.duration and abs(offset + duration - end) > DURATION_TOLERANCE_SECONDS:
        raise ValueError(
            f"{_quoted(values, names)} contradict each other: from start to end it is {end - offset:g} s; if "
            f"{names['duration']} is that of the recording, give corpus.columns.duration a name that no column has"
        )
    return offset, duration


def _quoted(values: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Names and values of a row's times."""
    texts = {name: values[name] for name in names.values()}
    return ", ".join(f"{name} {(text.strip() if isinstance(text, str) else text)!r}" for name, text in texts.items())


def describe_unread(names: Iterable[str], columns: Mapping[str, str], sample: Sample) -> list[str]:
    """Names columns that look like times, channels or speakers, by name and values, and are not read.

    >>> describe_unread(["end"], {}, {"end": ["1.5"]})[0][:40]
    'end is kept, and cuts no recording: seco'
    >>> describe_unread(["side"], {}, {"side": ["agent"]})[0][:43]
    'side is kept, and selects no channel (agent'
    >>> describe_unread(["start_frame", "end"], {}, {"start_frame": ["7"], "end": ["of file"]})[0][:40]
    'start_frame is kept, and cuts no recordi'
    """
    # Times that say what those that are read say, in another unit perhaps, are no loss.
    names = list(names)
    further = [name for name in names if name not in columns.values()]
    remarks = []
    pairs = {name for pair in itertools.pairwise(names) if _look_like_spans(pair, sample) for name in pair}
    timed = [name for name in further if name in pairs or _looks_like_times(name, sample)]
    timed = [name for name in timed if not _CHANNEL.fullmatch(_words(name))]  # [0, 1] are no range
    times = [name for name in timed if not _agrees(name, columns, sample)]
    if times:
        verb = "are kept, and cut" if len(times) > 1 else "is kept, and cuts"
        remarks.append(
            f"{' and '.join(times)} {verb} no recording: seconds are read from {USUAL_COLUMNS['offset'][0]} or "
            f"{USUAL_COLUMNS['offset'][1]}, and from duration or end; corpus.columns.offset names another column"
        )

    # Of the column of channels, only values that cannot be read; of others, all that name a channel.
    for name in names:
        if not _CHANNEL.fullmatch(_words(name)) or (name in columns.values() and name != columns.get("channel")):
            continue
        unread = [value for value in sample.get(name, ()) if _is_other_channel(value, name == columns.get("channel"))]
        if unread and not (_COUNT.fullmatch(_words(name)) and not isinstance(unread[0], list)):
            remarks.append(
                f"{name} is kept, and selects no channel ({unread[0]}): a number from 0, A or B, left or right is read "
                f"from {USUAL_COLUMNS['channel'][0]}; corpus.columns.channel names another column"
            )

    # A microphone may be of anything, but for its values.
    for name in further:
        values = {str(value).strip().lower() for value in sample.get(name, ())}
        if _SIDED.fullmatch(_words(name)) and values and values <= {"left", "right"}:
            remarks.append(
                f"{name} is kept, and selects no channel ({sample[name][0]}); corpus.columns.channel names the column"
            )

    # A set may be of anything, such as the corpora of a collection.
    if "split" not in columns:
        splits = [name for name in further if _SPLIT.fullmatch(_words(name)) and sample.get(name)]
        splits = [name for name in splits if _words(name) not in ("set", "sets", "dataset", "data set")]
        remarks += [
            f"{name} is kept, and no split is read from it ({sample[name][0]}): train, dev or test are read from "
            f"{USUAL_COLUMNS['split'][0]}; corpus.columns.split names another column"
            for name in splits
        ]
    # Tools for annotation keep the rows that nobody wanted.
    remarks += describe_verdicts(further, sample)

    # Only where no column names the speakers.
    if "speaker" not in columns and (speakers := [name for name in further if _looks_like_speakers(name, sample)]):
        remarks.append(
            f"{' and '.join(speakers)} {'are' if len(speakers) > 1 else 'is'} kept, and no speaker is read: "
            "corpus.columns.speaker names the column"
        )
    return remarks


def _looks_like_speakers(name: str, sample: Sample) -> bool:
    words = _words(name)
    is_named = bool(_SPEAKER.fullmatch(words) or (_SPEAKER_WORD.search(words) and not _ABOUT_SPEAKER.search(words)))
    return is_named and bool(sample.get(name))


def _looks_like_times(name: str, sample: Sample) -> bool:
    # A clock with a fraction, or with frames, is a time whatever its column is called; `12:30` is one of a day.
    values = sample.get(name, ())
    clocks = [value for value in values if isinstance(value, str) and _CLOCK_OF_FILM.fullmatch(value.strip())]
    has_clocks = bool(clocks) and len(clocks) >= MOST * len(values)
    if role := _time_role(name):
        return role.kind != "length" and (has_clocks or _holds_times(name, sample))
    words = _words(name)
    if (_TIMELIKE.fullmatch(words) or _BEGINS_OR_ENDS.search(words)) and _holds_times(name, sample):
        return True
    if _holds_ranges(name, sample):
        is_text = all(isinstance(value, str) and ":" not in value for value in values)
        return not is_text or bool(_TIMELIKE.fullmatch(words) or _RANGELIKE.fullmatch(words))
    return has_clocks


@functools.lru_cache(1_024)
def may_be_read(name: str) -> bool:
    """True if a column of this name may hold times, channels or speakers, or a mapping that has them.

    >>> may_be_read("segment"), may_be_read("side"), may_be_read("accent")
    (True, True, False)
    """
    words = _words(name)
    patterns = (_TIMELIKE, _RANGELIKE, _CHANNEL, _SPEAKER, re.compile(_PARTS))
    return bool(
        _SPEAKER_WORD.search(words)
        or _time_role(name)
        or _BEGINS_OR_ENDS.search(words)
        or any(each.fullmatch(words) for each in patterns)
    )


def _look_like_spans(pair: tuple[str, str], sample: Sample) -> bool:
    """True if two columns have fractions, and the second is larger in every row, as `in` and `out` are."""
    # By their names, in and out are marks of an editor.
    first, second = map(_words, pair)
    are_marks = "out" in second.split() and re.sub(r"\bout\b", "in", second) == first
    starts, ends = (sample.get(name, ()) for name in pair)
    if len(starts) < (1 if are_marks else PAIRS) or len(starts) != len(ends):
        return False
    spans = [parse_range([start, end]) for start, end in zip(starts, ends, strict=True)]
    numbers = [number for span in spans if span for number in span]
    return all(spans) and (are_marks or sum(number % 1 > 0 for number in numbers) * 2 >= len(numbers))


def _agrees(name: str, columns: Mapping[str, str], sample: Sample) -> bool:
    """True if the times of a column say what those that are read say, perhaps in another unit."""
    role = _time_role(name)
    if "offset" not in columns:
        return False
    if role is None or not role.is_readable:
        return True  # the row has its times already
    read = columns.get("offset" if role.kind == "start" else "end", "")
    if read not in sample or _SAMPLES in (role.unit, unit_of(read)):
        return read in sample
    pairs = zip(sample[name], sample[read], strict=False)
    scale, read_scale = _UNITS[role.unit], _UNITS[unit_of(read)]
    return all(
        abs((parse_seconds(value) or 0.0) * scale - (parse_seconds(other) or 0.0) * read_scale)
        < DURATION_TOLERANCE_SECONDS
        for value, other in pairs
    )


def _is_other_channel(value: Any, is_read: bool) -> bool:
    """True if a value says which channel, and not in a way that is read."""
    if isinstance(value, list):
        return len(value) != 1 or not is_read
    if isinstance(value, str) and value.strip().lower() in _CHANNEL_WORDS:
        return True
    return not is_read and parse_channel(value) is not None


_TEXT_WORDS = frozenset(("text", "txt", "transcript", "transcription", "sentence", "wrd"))
_ABOUT_TEXT = frozenset(
    """
    id length len count language lang path file domain hash type source chars confidence conf score probability prob
    logprob quality rating wer cer number num no nr index idx key start end time timestamp duration date version status
    pred predicted prediction predictions hyp hypothesis
    """.split()  # noqa: SIM905 - a table in lines
)
"""Words of names of columns that tell something else of a text."""


@functools.lru_cache(1_024)
def is_text_name(name: str) -> bool:
    """True if a column of this name may hold what is said.

    >>> is_text_name("clean_text"), is_text_name("Transcript"), is_text_name("text_id"), is_text_name("text_score")
    (True, True, False, False)
    """
    words = set(_words(name).split())
    return bool(words & _TEXT_WORDS) and not words & _ABOUT_TEXT


def describe_texts(columns: Mapping[str, str], column_names: ColumnNames, rows: Iterable[Mapping[str, Any]]) -> str:
    """Says that another column of text differs from the one that is read, with an example; empty if none does.

    >>> describe_texts({"text": "text"}, ColumnNames(), [{"text": "17", "Transcript": "Good day."}])[:67]
    "the text is read from text, and Transcript differs: 'Good day.' bes"
    """
    read = columns.get("text", "")
    if column_names.text or not read:
        return ""
    for values in rows:
        for name, value in values.items():
            is_text = name not in columns.values() and is_text_name(name)
            if is_text and isinstance(value, str) and value.strip() and value.strip() != str(values[read]).strip():
                example = f"{value.strip()[:40]!r} beside {str(values[read]).strip()[:40]!r}"
                return f"the text is read from {read}, and {name} differs: {example}; corpus.columns.text names one"
    return ""


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
