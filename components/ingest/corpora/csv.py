"""Tables with a header: Mozilla DeepSpeech's and Coqui STT's CSV, SpeechBrain's, one's own.

https://deepspeech.readthedocs.io/en/latest/TRAINING.html. The header tells the separator: a comma, a semicolon, a tab
or a bar. Every `*.csv` and `*.tsv` below the root whose header names
a recording and a text is read, under the usual names (`USUAL_COLUMNS`) or those of `corpus.columns`; the name of
the file is the split (`train.csv`, `dev.csv`, `test.csv`) unless a column gives it. A CSV is quoted as spreadsheets
quote; a TSV is not quoted.
"""

import csv
import itertools
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.audio.containers import CHANNEL_KEY
from voxline.components.ingest.corpus import Corpus, CorpusEntry, whole_recording
from voxline.components.ingest.table_columns import (
    USUAL_COLUMNS,
    describe_sides,
    describe_times,
    end_column,
    map_columns,
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

_STATED_SEPARATOR = re.compile(r'"?sep=(.)"?[,;\t]*', re.IGNORECASE)

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
    columns = map_columns(header, corpus.settings.columns)
    if not {"audio_filepath", "text"} <= columns.keys():
        if sides := describe_sides(header):
            raise WorkError(f"{corpus.root / path}: {sides}")
        print_status(f"{path}: left out: its header names no recording and text; {_accepted(corpus)}")
        return None
    if repeated := {name for name in columns.values() if header.count(name) > 1}:
        names = ", ".join(sorted(repeated))
        raise WorkError(f"{corpus.root / path}: its header has {names} more than once; give each column its own name")
    if times := describe_times(header, columns):
        print_status(f"{path}: {times}")
    read = _row_entries(rows, header, columns, corpus, path, split)
    return map(whole_recording, read) if is_whole and "offset" not in columns else read


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
) -> Iterator[CorpusEntry | Reject]:
    number = 1
    try:
        for number, row in enumerate(rows, start=2):
            if any(field.strip() for field in row):
                yield _entry(row, header, columns, path, f"{path}, row {number}", split)
    except csv.Error as error:
        raise WorkError(f"{corpus.root / path}: after row {number}: {error}; is a quotation mark not closed?") from None


def _entry(
    row: list[str], header: list[str], columns: dict[str, str], path: PurePosixPath, source: str, split: str
) -> CorpusEntry | Reject:
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

    # Seconds, as offset and duration or as start and end. Rounding keeps 3.2 - 0.5 from being 2.7000000000000002.
    timed_by = {key: name for key, name in columns.items() if key != "duration" or fields[key]}
    try:
        offset, duration = (float(fields.get(key) or "0") for key in ("offset", "duration"))
        if (end := end_column(header, timed_by)) and (until := values[end].strip()):
            duration = round(float(until) - offset, 6)
            if duration <= 0:
                raise ValueError
    except ValueError:
        timed = [*(columns.get(key, "") for key in ("offset", "duration")), end_column(header, timed_by)]
        times = ", ".join(f"{name} {values[name].strip()!r}" for name in timed if name)
        point = "; write a point where the fraction begins, as in 0.5" if re.search(r"\d,\d", times) else ""
        return Reject(audio, Reason.BAD_ENTRY, f"{source}: {times}; seconds are accepted{point}")

    further = {name: value for name, value in values.items() if name not in {*columns.values(), SIZE, ""}}
    own = (*UTTERANCE_KEYS, CHANNEL_KEY)
    extra = {f"corpus_{name}" if name in own else name: value for name, value in further.items()}
    if channel := fields.get("channel"):
        extra[CHANNEL_KEY] = channel
    return CorpusEntry(
        id=fields.get("id", ""),
        audio=audio,
        text=text,
        speaker=fields.get("speaker", ""),
        split=fields.get("split", "") or split,
        relative_to=path.parent.as_posix(),
        offset=offset,
        duration=duration or None,
        size=int(size) if SIZE in values else None,
        source=source,
        extra=extra,
    )
