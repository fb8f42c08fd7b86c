"""Tables with a header: Mozilla DeepSpeech's and Coqui STT's CSV, SpeechBrain's, one's own.

https://deepspeech.readthedocs.io/en/latest/TRAINING.html. The header tells the separator: a comma, a semicolon, a tab
or a bar. Every `*.csv` and `*.tsv` below the root whose header names
a recording and a text is read, under the usual names (`USUAL_COLUMNS`) or those of `corpus.columns`; the name of
the file is the split (`train.csv`, `dev.csv`, `test.csv`) unless a column gives it. A CSV is quoted as spreadsheets
quote; a TSV is not, unless all fields with quotation marks in its first rows are quoted as Excel quotes them.
"""

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from voxline.audio.containers import CHANNEL_KEY
from voxline.components.ingest.corpus import (
    AUDIO_EXTENSIONS,
    Corpus,
    CorpusEntry,
    UnusableEntryError,
    cut_text,
    is_like_a_name,
    whole_recording,
)
from voxline.components.ingest.table_columns import (
    MOST,
    TIMES,
    USUAL_COLUMNS,
    Sample,
    describe_sides,
    describe_texts,
    describe_unread,
    map_columns,
    name_columns,
    read_times,
)
from voxline.data.manifest import UTTERANCE_KEYS
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

SIZE = "wav_filesize"
"""DeepSpeech's column of the file's bytes."""
SEPARATORS = (",", ";", "\t", "|")
"""Of a table whose name ends in .csv; spreadsheets write semicolons where a comma begins a fraction."""
MAX_SIZE_DIGITS = 18
"""Python refuses to parse numbers of thousands of digits."""
SAMPLE = 200
"""Rows of a table by whose values its columns are distinguished."""

_STATED_SEPARATOR = re.compile(r'"?sep=(.)"?[,;\t]*', re.IGNORECASE)
_LANGUAGES = (("source_lang", "target_lang"), ("src_lang", "tgt_lang"))
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

# The reader's own limit on a field (131,072 characters) would end the whole table; staging.py rejects such a text.
csv.field_size_limit(2**31 - 1)


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every row of every table that names recordings and texts.

    Raises:
      WorkError: no table does, or a quotation mark is never closed.
    """
    tables = 0
    for path in corpus.find(".csv", ".tsv"):
        # Paths are relative to the table, or absolute; further columns are kept:
        #   wav_filename,wav_filesize,transcript
        #   wavs/a-0001.wav,102444,experience proves this
        if (from_table := table_entries(corpus, path, path.stem)) is not None:
            tables += 1
            yield from from_table

    if not tables:
        raise WorkError(
            f"{corpus.path}: no CSV or TSV with a header that names recordings and texts; {_accepted(corpus)}; "
            "check corpus.format and corpus.columns"
        )


def read_table(corpus: Corpus, path: PurePosixPath) -> "Iterator[list[str]]":
    """The rows of a table, the header first, without blank lines before it and without Excel's `sep=;`."""
    if path.suffix.lower() == ".tsv":
        # csv.reader would end the table at a carriage return within a line.
        header, lines, _ = _at_header(corpus.iter_text(str(path), newline="\n"))
        if "\r" in header.rstrip("\r\n") and not header.endswith("\n"):  # unless it ends each, as on old Macs
            _, lines, _ = _at_header(corpus.iter_text(str(path), newline="\r"))
        return (line.rstrip("\r\n").split("\t") for line in lines)
    header, lines, separator = _at_header(corpus.iter_text(str(path), newline=""))
    return csv.reader(lines, delimiter=separator or _separator(header, corpus), strict=True)


def _at_header(lines: Iterator[str]) -> tuple[str, Iterator[str], str]:
    """The header, the lines from it on, and the separator that a line before it names; empty where none does."""
    separator = ""
    for line in lines:
        if stated := _STATED_SEPARATOR.fullmatch(line.strip("\r\n")):
            separator = stated[1]
        elif line.strip(" ,;\t|\r\n"):
            return line, itertools.chain([line], lines), separator
    return "", iter(()), separator


def _separator(header: str, corpus: Corpus) -> str:
    """The first separator that gives a header with a recording and a text; a comma if none does."""
    for separator in SEPARATORS:
        names = [name.strip().strip('"') for name in header.split(separator)]
        if {"audio_filepath", "text"} <= map_columns(names, corpus.settings.columns).keys():
            return separator
    return SEPARATORS[0]


def count_fault(row: list[str], header: list[str]) -> str:
    """The fault of a row whose number of fields is another than the header's, for a reject; empty if it has none.

    A separator or a line feed within a text shifts all that follows: no field of such a row can be trusted.
    """
    return f"{len(row)} fields, the header has {len(header)}" if len(row) != len(header) else ""


def translation_fault(values: Mapping[str, Any]) -> str:
    """Says that a text is a translation of what is spoken, as in the manifests of Canary; empty if none says so.

    >>> translation_fault({"source_lang": "en", "target_lang": "de"})
    'source_lang is en and target_lang de: a translation is no transcript'
    >>> translation_fault({"source_lang": "en", "target_lang": "en-US"})
    ''
    """
    for source, target in _LANGUAGES:
        pair = [values.get(source), values.get(target)]
        languages = [value.strip().lower() for value in pair if isinstance(value, str) and value.strip()]
        if len(languages) == 2 and len({re.split("[-_]", language)[0] for language in languages}) > 1:
            return f"{source} is {pair[0]} and {target} {pair[1]}: a translation is no transcript"
    return ""


def _accepted(corpus: Corpus) -> str:
    """Names of columns that are accepted, for messages."""
    columns = corpus.settings.columns
    names = [getattr(columns, key) or " or ".join(USUAL_COLUMNS[key]) for key in ("audio_filepath", "text")]
    return f"accepted: {names[0]}; and {names[1]}"


def table_entries(
    corpus: Corpus, path: PurePosixPath, split: str, is_whole: bool = False
) -> Iterator[CorpusEntry | Reject] | None:
    """The entries of a table; None, and a line that says so, if its header names no recording and text.

    Args:
      split: of rows that name none.
      is_whole: durations are only kept in a table without offsets: each recording is an utterance.

    Raises:
      WorkError: a quotation mark is never closed, two columns have the name of one that is used, or two hold the sides
        of a call.
    """
    rows = read_table(corpus, path)
    try:
        header = _own_names([column.strip() for column in next(rows, [])], corpus)
    except csv.Error as error:
        print_status(f"{path}: left out: its header cannot be read ({error})")
        return None
    column_names = corpus.settings.columns
    columns = map_columns(header, column_names)
    if not {"audio_filepath", "text"} <= columns.keys():
        if sides := describe_sides(header):
            raise WorkError(f"{corpus.root / path}: {sides}")
        print_status(f"{path}: left out: its header names no recording and text; {_accepted(corpus)}")
        return None
    if repeated := {name for name in columns.values() if header.count(name) > 1}:
        names = ", ".join(sorted(repeated))
        raise WorkError(f"{corpus.root / path}: its header has {names} more than once; give each column its own name")

    # The first rows tell what the columns hold.
    first, rows = _peek(rows)
    if path.suffix.lower() == ".tsv" and _are_quoted(first):
        first = list(map(_unquote, first))
        rows = map(_unquote, rows)
    whole = [dict(zip(header, row, strict=True)) for row in first if not count_fault(row, header)]
    sample: Sample = {name: [value for row in whole if (value := row[name].strip())] for name in header}
    columns = map_columns(header, column_names, sample)
    remarks = [
        name_columns(columns),
        *describe_unread(header, columns, sample),
        describe_texts(columns, column_names, whole),
    ]
    for line in filter(None, remarks):
        print_status(f"{path}: {line}")

    paths = sample[columns["audio_filepath"]]
    have_endings = sum(name.lower().endswith(AUDIO_EXTENSIONS) for name in paths) >= MOST * max(1, len(paths))
    have_times = len(sample.get(columns.get("offset", ""), ())) > len(whole) / 2
    read = _row_entries(rows, header, columns, corpus, path, split, have_endings, have_times)
    return map(whole_recording, read) if is_whole and "offset" not in columns else read


def _peek(rows: Iterator[list[str]]) -> tuple[list[list[str]], Iterator[list[str]]]:
    """The first rows, and all of them; a fault within the first is raised where it is met again."""
    first: list[list[str]] = []
    try:
        first.extend(itertools.islice(rows, SAMPLE))
    except csv.Error as error:
        return first, itertools.chain(first, _failing(error))
    return first, itertools.chain(first, rows)


def _failing(error: csv.Error) -> Iterator[list[str]]:
    yield from ()
    raise error


def _are_quoted(rows: Sequence[list[str]]) -> bool:
    """True if fields with quotation marks are quoted, and have them doubled, as Excel writes a TSV."""
    # One text with a mark that is not doubled, and the marks are the table's own.
    marked = [field.strip() for row in rows for field in row if '"' in field]
    return all(map(_QUOTED.fullmatch, marked)) and any('""' in field[1:-1] for field in marked)


def _unquote(row: list[str]) -> list[str]:
    return [field.strip()[1:-1].replace('""', '"') if _QUOTED.fullmatch(field.strip()) else field for field in row]


def _own_names(header: list[str], corpus: Corpus) -> list[str]:
    """The header, in which a further column of the same name has a number, so that both values are kept."""
    used = map_columns(header, corpus.settings.columns).values()
    return [
        f"{name}_{again + 1}" if name and name not in used and (again := header[:place].count(name)) else name
        for place, name in enumerate(header)
    ]


def _row_entries(
    rows: "Iterator[list[str]]",
    header: list[str],
    columns: dict[str, str],
    corpus: Corpus,
    path: PurePosixPath,
    split: str,
    have_endings: bool,
    have_times: bool,
) -> Iterator[CorpusEntry | Reject]:
    """
    Args:
      have_endings: most recordings are named with theirs.
      have_times: most rows name a start.
    """
    number = 1
    last: CorpusEntry | Reject | None = None
    try:
        for number, row in enumerate(rows, start=2):
            if not any(field.strip() for field in row):
                continue
            # A row whose text ends the line has all its fields, also where a line feed within the text has cut it.
            if last and header[-1] == columns["text"] and _goes_on(row, header, columns, corpus, path, have_endings):
                last = cut_text(last, " ".join(row))
            if last:
                yield last
            last = _entry(row, header, columns, corpus, path, f"{path}, row {number}", split, have_times)
    except csv.Error as error:
        raise WorkError(f"{corpus.root / path}: after row {number}: {error}; is a quotation mark not closed?") from None
    if last:
        yield last


def _swallowed_row(values: dict[str, str], place: int, corpus: Corpus, path: PurePosixPath) -> str:
    """A row within a field, which a quotation mark opened, and an inch mark of a later row closed; empty without one.

    Args:
      place: of the column of recordings.
    """
    lines = (line for value in values.values() if "\n" in value for line in value.split("\n")[1:])
    for line in lines:
        for separator in SEPARATORS:
            fields = line.split(separator)
            name = fields[place].strip() if place < len(fields) and len(fields) > 1 else ""
            if name and _is_recording(name, corpus, path):
                return line
    return ""


def _is_recording(name: str, corpus: Corpus, path: PurePosixPath) -> bool:
    if name.lower().endswith(AUDIO_EXTENSIONS):
        return True
    try:
        corpus.locate(name, path.parent.as_posix())
    except UnusableEntryError:
        return False
    return True


def _goes_on(
    row: list[str],
    header: list[str],
    columns: dict[str, str],
    corpus: Corpus,
    path: PurePosixPath,
    have_endings: bool,
) -> bool:
    """True if a row seems to be the rest of the text in the row before: it names no recording."""
    place = header.index(columns["audio_filepath"])
    name = row[place].strip() if place < len(row) else ""
    # A row of all fields may name a recording that is absent, or none.
    if len(row) >= len(header) and not (name and (have_endings or re.search(r"\s", name))):
        return False
    # A short row of one word with a digit may be a recording without its text, unless all have endings.
    is_named = is_like_a_name(name) and not (have_endings and len(row) < len(header))
    return not is_named and not _is_recording(name, corpus, path)


def _entry(
    row: list[str],
    header: list[str],
    columns: dict[str, str],
    corpus: Corpus,
    path: PurePosixPath,
    source: str,
    split: str,
    have_times: bool,
) -> CorpusEntry | Reject:
    """
    Args:
      have_times: most rows name a start.
    """
    if fault := count_fault(row, header):
        return Reject(source, Reason.BAD_ENTRY, f"{source}: {fault}")

    values = dict(zip(header, row, strict=True))
    fields = {key: values[column].strip() for key, column in columns.items()}
    audio = fields["audio_filepath"]
    text = fields["text"]
    size = values.get(SIZE, "0").strip()
    if not audio or not (size.isdecimal() and len(size) <= MAX_SIZE_DIGITS):
        sized = f", {SIZE} {size[:80]!r}" if SIZE in values else ""
        return Reject(audio or source, Reason.BAD_ENTRY, f"{source}: {columns['audio_filepath']} {audio!r}{sized}")

    if "\n" in text:
        detail = f"{source}: a transcript over several lines; is a quotation mark not closed, and rows swallowed?"
        return Reject(audio, Reason.BAD_ENTRY, detail)

    if swallowed := _swallowed_row(values, header.index(columns["audio_filepath"]), corpus, path):
        detail = f"{source}: a field holds the row {swallowed[:80]!r}; a quotation mark before it is not closed"
        return Reject(audio, Reason.BAD_ENTRY, detail)

    try:
        offset, duration = read_times(
            values, columns, corpus.settings.columns, lambda: corpus.sample_rate(audio, path.parent.as_posix())
        )
    except ValueError as error:
        return Reject(audio, Reason.BAD_ENTRY, f"{source}: {error}")

    if fault := translation_fault(values):
        return Reject(audio, Reason.BAD_ENTRY, f"{source}: {fault}")

    times = [values[name].strip() for key, name in columns.items() if key in TIMES]
    if "offset" in columns and have_times and not any(times):
        detail = f"{source}: its times are blank, and other rows have some; remove it, or give it a start and an end"
        return Reject(audio, Reason.BAD_ENTRY, detail)

    # The end stays, beside the duration that it gave.
    used = {name for key, name in columns.items() if key != "end"}
    further = {name: value for name, value in values.items() if name not in {*used, SIZE, ""}}
    own = (*UTTERANCE_KEYS, CHANNEL_KEY)
    extra = {f"corpus_{name}" if name in own else name: value for name, value in further.items()}
    if channel := fields.get("channel"):
        extra[CHANNEL_KEY] = channel
    return CorpusEntry(
        id=fields.get("id", ""),
        audio=audio,
        text=text,
        # pandas writes whole numbers beside empty cells as 12.0.
        speaker=re.sub(r"^(\d+)\.0$", r"\1", fields.get("speaker", "")),
        split=fields.get("split", "") or split,
        relative_to=path.parent.as_posix(),
        offset=offset,
        duration=duration,
        size=int(size) if SIZE in values else None,
        source=source,
        extra=extra,
    )
