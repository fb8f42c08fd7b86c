"""JSON lines as NVIDIA NeMo reads and writes them, an utterance a line: a manifest.

https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html. Voxline's
own manifests are such files too. Every `*.jsonl` and `*manifest*.json` below the root is read, gzipped or not, also
where it is one list of all utterances, or a mapping with one; the name of the file is the split (`train.jsonl`,
`test_manifest.json`) unless the line has a `split`. Other names of keys, such as `transcript` or `speaker_id`, are
understood where the usual ones are absent (`USUAL_COLUMNS`).
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from voxline.components.ingest.corpora.csv import translation_fault
from voxline.components.ingest.corpus import Corpus, CorpusEntry, whole_recording
from voxline.components.ingest.settings import ColumnNames
from voxline.components.ingest.table_columns import (
    TIMES,
    USUAL_COLUMNS,
    describe_sides,
    describe_texts,
    describe_unread,
    is_text_name,
    map_columns,
    may_be_read,
    name_columns,
    parse_seconds,
    read_times,
    single,
)
from voxline.data.json_codec import is_seconds, parse_json
from voxline.data.manifest import REJECTS_FILE, UTTERANCE_KEYS
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

EXTENSIONS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
MAX_LIST_CHARACTERS = 200_000_000
"""Of a file that is one list, which is read as a whole."""


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of every manifest.

    Raises:
      WorkError: there is no manifest.
    """
    manifests = [path for path in corpus.find(*EXTENSIONS) if corpus.table or _is_manifest(path)]
    if not manifests:
        raise WorkError(f"{corpus.root}: no manifest (*.jsonl or *manifest*.json) in this folder; check corpus.format")

    read_line = LineReader(corpus.settings.columns, describe=True, sample_rate=corpus.sample_rate)
    for path in manifests:
        # Paths are relative to the manifest; offset, speaker and id may be absent, other keys are kept:
        #   {"audio_filepath": "talk/1.wav", "duration": 3.2, "text": "good morning", "offset": 61.5, "accent": "us"}
        name = str(path)
        folder = path.parent.as_posix()
        split = path.name.partition(".json")[0]
        first = [line for _, line in itertools.islice(corpus.read_lines(name), 2)]
        if first and _is_one_value(first[0], is_alone=len(first) == 1):
            for place, values in enumerate(_read_list(corpus, name), 1):
                source = f"{name}, element {place}"
                yield read_line.checked(values, source, folder, split)
            continue
        for number, line in corpus.read_lines(name):
            yield read_line(line, f"{name}:{number}", folder, split)


def _is_one_value(first: str, is_alone: bool) -> bool:
    """True if a file with this first line is one value over several lines, or a mapping that holds all utterances.

    Args:
      is_alone: no line is behind it.
    """
    first = first.strip()
    if not first.startswith("{"):
        return first.startswith("[")
    try:
        return _list_key(_parse(first)) != "" and is_alone
    except (ValueError, RecursionError):
        return first == "{" or first.endswith((",", "[", "{"))  # a line that is cut is a reject, and no more


def _list_key(value: Any) -> str:
    """The key of a mapping's one list of mappings, as in {"data": [{…}, …]}; empty if it names a recording."""
    if not isinstance(value, dict) or "audio_filepath" in map_columns(value, ColumnNames()):
        return ""
    lists = [key for key, values in value.items() if isinstance(values, list) and values]
    return lists[0] if len(lists) == 1 and all(isinstance(element, dict) for element in value[lists[0]]) else ""


def _read_list(corpus: Corpus, name: str) -> list[Any]:
    """The elements of a file that is one value in JSON: a list, a mapping that holds it, or one utterance.

    Raises:
      WorkError: it is too large to be read as a whole, or no such value.
    """
    lines = []
    characters = 0
    for line in corpus.iter_text(name, newline="\n"):
        characters += len(line)
        if characters > MAX_LIST_CHARACTERS:
            break
        lines.append(line)
    if characters > MAX_LIST_CHARACTERS:
        fault = f"more than the {MAX_LIST_CHARACTERS:,} characters that are read"
    else:
        try:
            values = _parse("".join(lines))
            if key := _list_key(values):
                print_status(f"{name}: one mapping; its utterances are the list {key!r}")
                values = values[key]
            if isinstance(values, list):
                return values
            # One utterance; lists would be columns.
            is_utterance = "audio_filepath" in map_columns(values, corpus.settings.columns)
            if is_utterance and not any(isinstance(value, list) for value in values.values()):
                return [values]
            fault = f"a mapping of {', '.join(values)[:80]}, and no list of utterances"
        except (ValueError, RecursionError) as error:
            fault = str(error)
    raise WorkError(
        f"{corpus.root / name}: it is one value in JSON over several lines, and cannot be read as utterances "
        f"({fault}); write one utterance a line, as in: jq -c '.[]' OLD > NEW (for a list), or jq -c . OLD > NEW"
    )


def _is_manifest(path: PurePosixPath) -> bool:
    name = path.name.lower().removesuffix(".gz")
    return (name.endswith(".jsonl") and name != REJECTS_FILE) or (name.endswith(".json") and "manifest" in name)


class _Plan(NamedTuple):
    """The values that a set of keys holds.

    Attributes:
      columns: `map_columns`.
      is_plain: all keys have a manifest's own names already, and nothing is computed.
      has_times: times are in other units, or have an end: they are computed.
      has_texts: another key is of a text too.
    """

    columns: dict[str, str]
    is_plain: bool
    has_times: bool
    has_texts: bool


class LineReader:
    """Reads lines of JSON as entries.

    Args:
      columns: the names of keys that a person chose.
      is_whole: the duration of a line without an offset is only kept: its recording is the utterance.
      describe: says once which further keys look like times, channels or texts, and how they are read.
      sample_rate: of a recording by its path and the folder of that, in Hz; None: times in samples are rejects.
    """

    def __init__(
        self,
        columns: ColumnNames,
        is_whole: bool = False,
        describe: bool = False,
        sample_rate: Callable[[str, str], int] | None = None,
    ) -> None:
        self._columns = columns
        self._is_whole = is_whole
        self._describe = describe
        self._sample_rate = sample_rate
        self._chosen = columns != ColumnNames()
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], _Plan] = {}
        self._as_they_are: set[tuple[str, ...]] = set()
        self._told: set[str] = set()

    def __call__(self, line: str, source: str, folder: str, file_split: str) -> CorpusEntry | Reject:
        """The entry of a line.

        Args:
          source: the file and line, for messages.
          folder: that paths are relative to.
          file_split: the split where the line has none.
        """
        try:
            values = _parse(line)
        except (ValueError, RecursionError) as error:
            return Reject(source, Reason.BAD_ENTRY, f"{source}: not a line of JSON ({error})")
        # Most lines have as many names as keys, so that only others are read again, more slowly.
        if isinstance(values, dict) and _count_names(line) > len(values) and (key := _repeated_key(line)):
            return Reject(source, Reason.BAD_ENTRY, f"{source}: the key `{key}` is there twice, with two values")
        return self.checked(values, source, folder, file_split)

    def checked(self, values: Any, source: str, folder: str, file_split: str) -> CorpusEntry | Reject:
        """The entry of a value; a reject where it is no mapping."""
        if not isinstance(values, dict):
            return Reject(source, Reason.BAD_ENTRY, f"{source}: a mapping is accepted, not {type(values).__name__}")
        return self.entry(values, source, folder, file_split)

    def entry(self, values: dict[str, Any], source: str, folder: str, file_split: str) -> CorpusEntry | Reject:
        """The entry of a line's values."""
        if self._chosen or not values.keys() <= _KNOWN:
            try:
                values = self._renamed(values, source, folder)
            except ValueError as error:
                named = values.get("id") or source
                return Reject(str(named), Reason.BAD_ENTRY, f"{source}: {error}")

            if translated := translation_fault(values):
                return Reject(str(values.get("id") or source), Reason.BAD_ENTRY, f"{source}: {translated}")

        # As pandas writes whole numbers beside empty cells, and as clocks: tables have both.
        if isinstance(values.get("speaker"), float) or {str} & {
            type(values.get(key)) for key in ("offset", "duration")
        }:
            values = {**values, **_as_tables_have_them(values)}
        get = values.get
        id = get("id")
        audio = get("audio_filepath")
        text = get("text")
        speaker = get("speaker")
        split = get("split")
        offset = get("offset")
        duration = get("duration")

        # Nearly all lines pass this fast check; the others are checked value by value.
        plain = type(id) is type(audio) is type(text) is type(speaker) is type(split) is str and audio
        if not (plain and _is_seconds(offset) and _is_seconds(duration)) and (fault := self._fault(values, source)):
            return fault
        extra = {} if values.keys() <= _KNOWN else {key: value for key, value in values.items() if key not in _KNOWN}
        entry = CorpusEntry(
            "" if id is None else str(id),
            str(audio),
            str(text),
            "" if speaker is None else str(speaker),
            split or file_split,
            folder,
            float(offset or 0),
            None if duration is None else float(duration),
            None,
            source,
            extra,
        )
        return whole_recording(entry) if self._is_whole and offset is None else entry

    def _renamed(self, values: dict[str, Any], source: str, folder: str) -> dict[str, Any]:
        """The values under a manifest's own names; one that such a name held before is kept as `corpus_<name>`.

        Raises:
          ValueError: of `read_times`.
        """
        # Sets of keys are remembered: most lines of a manifest have the same ones, and few of them have other names.
        keys = tuple(values)
        if keys in self._as_they_are and None not in values.values():
            return values
        flat = values
        lists: tuple[str, ...] = ()
        kinds = set(map(type, values.values()))
        if dict in kinds:
            flat = _flattened(values)
        if list in kinds:
            lists = tuple(name for name, value in values.items() if type(value) is list)
        present = tuple(flat)
        if type(None) in kinds:
            present = tuple(name for name in present if flat[name] is not None)
        plan = self._plans.get((present, lists))
        if plan is None:
            plan = self._plan(present, flat, source)
            if len(self._plans) < _MAX_USUAL:
                self._plans[present, lists] = plan

        # Texts may differ in some lines alone, so that each is looked at until one does.
        columns = plan.columns
        plain = plan.is_plain and not plan.has_texts and not any(map(may_be_read, keys))
        if plain and type(None) not in kinds and len(self._as_they_are) < _MAX_USUAL:
            self._as_they_are.add(keys)
        if plan.has_texts and self._describe:
            self._tell(source, describe_texts(columns, self._columns, [flat]))
        if plan.is_plain:
            return values

        # The end is kept beside the duration that it gives.
        renamed = {key: flat[name] for key, name in columns.items() if key != "end"}
        audio = renamed.get("audio_filepath")
        if isinstance(audio, dict) and isinstance(audio.get("path"), str):  # as the Hub's rows are dumped
            renamed["audio_filepath"] = audio["path"]
            renamed["corpus_audio"] = {name: value for name, value in audio.items() if name not in ("path", "array")}
        if "channel" in renamed:
            renamed["channel"] = single(renamed["channel"])
        if plan.has_times:
            renamed["offset"], renamed["duration"] = read_times(
                flat, columns, self._columns, lambda: self._rate(renamed.get("audio_filepath"), folder)
            )
        moved = {name for key, name in columns.items() if key != "end"}
        for name, value in values.items():
            if name not in moved and not (value is None and name in USUAL_COLUMNS):
                renamed[f"corpus_{name}" if name in USUAL_COLUMNS else name] = value
        return renamed

    def _plan(self, present: tuple[str, ...], flat: dict[str, Any], source: str) -> _Plan:
        sample = {name: [flat[name]] for name in present}
        columns = map_columns(present, self._columns, sample)
        if self._describe:
            for line in (name_columns(columns), *describe_unread(present, columns, sample)):
                self._tell(source, line)
        usual = all(columns[key].lower() in USUAL_COLUMNS[key] for key in TIMES if key in columns and key != "end")
        has_texts = sum(map(is_text_name, present)) > 1
        has_times = "end" in columns or not usual
        as_they_are = len(present) == len(flat) and all(key == name for key, name in columns.items())
        return _Plan(columns, as_they_are and not has_times and not self._chosen, has_times, has_texts)

    def _tell(self, source: str, line: str) -> None:
        """Prints a remark about a line's keys, once."""
        # Examples differ from line to line.
        subject = line.partition(": ")[0]
        if line and subject not in self._told and len(self._told) < _MAX_USUAL:
            self._told.add(subject)
            print_status(f"{source}: {line}")

    def _rate(self, audio: Any, folder: str) -> int:
        if self._sample_rate is None or not isinstance(audio, str):
            raise ValueError("times in samples, which are read in the formats manifest and csv; write seconds")
        return self._sample_rate(audio, folder)

    def _fault(self, values: dict[str, Any], source: str) -> Reject | None:
        """Checks the values of a line one by one."""
        id = values.get("id")
        named = str(id) if id not in (None, "") else source
        if values.get("text") is None:
            sides = describe_sides(values)
            return Reject(named, Reason.TRANSCRIPT_MISSING, f"{source}: {sides or self._missing('text')}")
        if values.get("audio_filepath") is None:
            return Reject(named, Reason.BAD_ENTRY, f"{source}: {self._missing('audio_filepath')}")

        faults = [
            f"`{key}` is {values.get(key)!r}, {accepted}"
            for key, accepted, fits in _CHECKS
            if not fits(values.get(key))
        ]
        return Reject(named, Reason.BAD_ENTRY, f"{source}: {'; '.join(faults)}") if faults else None

    def _missing(self, key: str) -> str:
        name = getattr(self._columns, key) or key
        return f"no `{name}`; corpus.columns.{key} names the key that holds it, if it is another one"


def _as_tables_have_them(values: dict[str, Any]) -> dict[str, Any]:
    """A speaker that is a whole number with a point, and times that are texts, as a manifest has them.

    >>> _as_tables_have_them({"speaker": 1.0, "duration": "0:01", "offset": "soon"})
    {'speaker': '1', 'duration': 1.0}
    """
    speaker = values.get("speaker")
    times = {key: parse_seconds(values[key]) for key in ("offset", "duration") if isinstance(values.get(key), str)}
    plain: dict[str, Any] = {}
    if isinstance(speaker, float):
        plain["speaker"] = None if math.isnan(speaker) else str(int(speaker)) if speaker.is_integer() else speaker
    return plain | {key: seconds for key, seconds in times.items() if seconds is not None}


def _parse(line: str) -> Any:
    """Decodes a line; also one with NaN or half a surrogate pair, so that its reject has its id and names the value."""
    try:
        return parse_json(line)
    except ValueError:
        return json.loads(line)


def _count_names(line: str) -> int:
    """How many keys a line seems to have, also within its values."""
    return line.count('":') + line.count('" :')


def _repeated_key(line: str) -> str:
    """The first key that is there twice in one mapping, with different values; empty if there is none."""
    repeated: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values and values[key] != value:
                repeated.append(key)
            values[key] = value
        return values

    json.loads(line, object_pairs_hook=check)
    return repeated[0] if repeated else ""


def _flattened(values: dict[str, Any]) -> dict[str, Any]:
    """The values, and those of its mappings: `segment.start` of {"segment": {"start": 0.5}}."""
    flat = dict(values)
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items() if f"{name}.{key}" not in values}
    return flat


def _is_seconds(value: Any) -> bool:
    return value is None or is_seconds(value)


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


_MAX_USUAL = 64
"""Sets of keys that a reader remembers; a corpus has a few."""
_KNOWN = frozenset(UTTERANCE_KEYS)
_CHECKS = (
    ("id", "a text or a whole number is accepted", _is_name),
    ("audio_filepath", "a path is accepted", lambda value: isinstance(value, str) and value != ""),
    ("text", "a text is accepted", lambda value: isinstance(value, str)),
    ("speaker", "a text or a whole number is accepted", _is_name),
    ("split", "a text is accepted", lambda value: value is None or isinstance(value, str)),
    ("offset", "seconds from 0 on are accepted", _is_seconds),
    ("duration", "seconds from 0 on are accepted", _is_seconds),
)
