"""Tries each corpus format on a folder; where none reads it, names the layout that the folder almost has.

Each check looks for the files of one layout, and names the file, the column or the line that is missing or wrong.
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from voxline.components.ingest.corpora import load_format
from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, CorpusEntry, UnusableEntryError
from voxline.components.ingest.settings import ColumnNames
from voxline.components.ingest.table_columns import USUAL_COLUMNS, describe_sides, map_columns
from voxline.errors import VoxlineError
from voxline.rejects import Reject

ENTRIES_READ = 5_000
"""Utterances looked at; of a larger corpus, the first ones."""
MOST_TEXTS = 50_000
"""Utterances whose transcripts are read for their characters and words."""
FROM_FILE_NAMES = "fsdd"
"""The format without transcripts, which any other one is preferred to."""
NO_FILES = "check corpus.format"
"""In the message of a format that has none of its files here; a message without it is about a file."""
MOST_FILES = 200
"""Tables that are looked into."""
MOST_COLUMNS = 12
"""Columns that a message names."""
KALDI = ("wav.scp", "text")
TIMED = (".srt", ".vtt", ".stm", ".ctm", ".textgrid", ".eaf", ".trs", ".lrc", ".sbv", ".ass", ".ttml")
"""Subtitles, and labels of speech research."""


@dataclasses.dataclass(frozen=True)
class FormatAttempt:
    """The lines of a folder as one format reads them.

    Attributes:
      entries: those whose recording is in the folder.
      missing: those whose recording is not, or cannot be used.
      rejects: lines that the format cannot read.
      complete: False if there are more than `ENTRIES_READ`.
      fault: the message with which the format gave up; empty if it did not.
    """

    format: str
    entries: list[CorpusEntry]
    missing: list[Reject]
    rejects: list[Reject]
    complete: bool
    fault: str = ""

    @property
    def rank(self) -> tuple[bool, int, bool]:
        bad = len(self.missing) + len(self.rejects)
        return bool(self.entries), len(self.entries) - bad, self.format != FROM_FILE_NAMES


def try_format(format: str, corpus: Corpus) -> FormatAttempt:
    """Reads the lines of a folder as a format does, and looks for the recordings that they name."""
    attempt = FormatAttempt(format, [], [], [], complete=True)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # what they print is about other formats' files
            lines = list(itertools.islice(load_format(format)(corpus), ENTRIES_READ + 1))
    except (VoxlineError, OSError, ValueError) as error:
        return dataclasses.replace(attempt, fault=str(error))

    for line in lines:
        if isinstance(line, Reject):
            attempt.rejects.append(line)
            continue
        try:
            corpus.locate(line.audio, line.relative_to)
        except UnusableEntryError as error:
            attempt.missing.append(Reject(line.id or line.audio, error.reason, f"{line.source}: {error.detail}"))
        else:
            attempt.entries.append(line)
    return dataclasses.replace(attempt, complete=len(lines) <= ENTRIES_READ)


def read_further_texts(format: str, corpus: Corpus) -> list[str]:
    """The transcripts after the first `ENTRIES_READ` lines, up to `MOST_TEXTS`."""
    with contextlib.redirect_stdout(io.StringIO()):
        lines = itertools.islice(load_format(format)(corpus), ENTRIES_READ + 1, MOST_TEXTS)
        return [line.text for line in lines if isinstance(line, CorpusEntry)]


class NearMiss(NamedTuple):
    """A layout that a folder almost has.

    Attributes:
      closeness: 5 of a file that only has to be renamed or repaired, to 1 of one that may be anything.
      detail: what is missing or wrong, with its file.
    """

    closeness: int
    format: str
    detail: str


def nearest_miss(corpus: Corpus, attempts: Sequence[FormatAttempt]) -> NearMiss | None:
    """Finds the layout that a folder comes closest to; None where it has no file of any.

    Args:
      attempts: what each format read.
    """
    # What the formats said comes first: of misses that are as close, theirs have the line.
    misses = [*_missing_recordings(corpus, attempts), *_unreadable_lines(attempts)]
    for check in CHECKS:
        try:
            misses += check(corpus)
        except (VoxlineError, OSError, csv.Error):
            continue  # a file that cannot be read; the format that reads it has said so
    return max(misses, key=lambda miss: miss.closeness, default=None)  # the first of equal ones


def _missing_recordings(corpus: Corpus, attempts: Sequence[FormatAttempt]) -> Iterator[NearMiss]:
    """Transcripts that a format reads, and whose recordings are elsewhere or not there."""
    for attempt in attempts:
        if not attempt.missing:
            continue
        first = attempt.missing[0]
        # A table that was moved, or recordings that were: only the folder differs then.
        by_name = {path.stem: path for path in corpus.find_audio()}
        path = first.detail.partition(": ")[2].partition(" is not in")[0].partition(" (from")[0]
        elsewhere = by_name.get(PurePosixPath(path).stem)
        hint = f"; the recording of that name is {elsewhere}" if elsewhere else ""
        count = f"{len(attempt.missing):,} transcripts without a recording"
        yield NearMiss(4, attempt.format, f"{count}, such as {first.detail}{hint}")


def _unreadable_lines(attempts: Sequence[FormatAttempt]) -> Iterator[NearMiss]:
    """Tables that a format reads as its own, and each line of which it rejects."""
    for attempt in attempts:
        if attempt.fault and NO_FILES not in attempt.fault:
            yield NearMiss(5, attempt.format, attempt.fault)

        # These two reject any recording, whatever is beside it.
        if attempt.rejects and attempt.format not in ("fsdd", "librispeech"):
            first = attempt.rejects[0]
            lines = f"{len(attempt.rejects):,} lines cannot be read"
            yield NearMiss(4, attempt.format, f"{lines}, such as {first.detail}")


def _common_voice(corpus: Corpus) -> Iterator[NearMiss]:
    tables = _headers(corpus, ".tsv")
    # A release that was unpacked in part, or of which only train.tsv was copied.
    folders = {path.parent for path, _ in tables if path.name == "validated.tsv"}
    for path, header in tables:
        lacking = [name for name in ("client_id", "path", "sentence") if name not in header]
        if path.name == "validated.tsv" and 0 < len(lacking) < 3:
            yield NearMiss(5, "common_voice", f"{path} has no column {' and '.join(lacking)}; {_columns(header)}")
        elif path.parent not in folders and not lacking:
            yield NearMiss(5, "common_voice", f"{path} is there, and {path.parent / 'validated.tsv'} is missing")


def _kaldi(corpus: Corpus) -> Iterator[NearMiss]:
    folders = {path.parent: path for path in corpus.find(*KALDI) if path.name in KALDI}
    for folder in folders:
        # The other tables may be absent: without segments and utt2spk a folder is read.
        there = [name for name in KALDI if corpus.has(str(folder / name))]
        if len(there) == 1:
            (lacking,) = {*KALDI} - {*there}
            yield NearMiss(5, "kaldi", f"{folder / there[0]} is there, and {folder / lacking} is missing")


def _manifest(corpus: Corpus) -> Iterator[NearMiss]:
    for path in _few(corpus.find(".jsonl", ".json", ".txt", ".manifest")):
        _, line = next(corpus.read_lines(str(path)), (0, ""))
        # Only the first line: the others are as it is, or their rejects say more.
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        values = values[0] if isinstance(values, list) and values else values
        if not isinstance(values, dict):
            continue

        # The same names of keys as the reader accepts.
        columns = map_columns(values, ColumnNames())
        if lacking := _lacking(columns):
            lacking = describe_sides(values) or lacking
            keys = f"{path}:1 has the keys {', '.join(list(values)[:MOST_COLUMNS])}"
            yield NearMiss(5 if columns else 1, "manifest", f"{keys}, and {lacking}")
        elif path.suffix.lower() != ".jsonl":
            yield NearMiss(
                5, "manifest", f"{path} has its lines, and not its name: *.jsonl and *manifest*.json are read"
            )


def _lhotse(corpus: Corpus) -> Iterator[NearMiss]:
    for path in corpus.find(".jsonl", ".jsonl.gz"):
        if "supervisions" in path.name.lower():
            yield NearMiss(5, "lhotse", f"{path} is there, and cuts are missing: `lhotse cut simple` makes them of it")


def _csv(corpus: Corpus) -> Iterator[NearMiss]:
    for path, header in _headers(corpus, ".csv", ".tsv"):
        if "|" in header[0]:
            continue  # LJSpeech's, which has no names of columns: `id|text|normalized text`
        columns = map_columns(header, ColumnNames())
        if not (lacking := _lacking(columns)):
            continue
        # A first row that names a recording is data.
        if any(cell.lower().endswith(AUDIO_EXTENSIONS) for cell in header):
            detail = f"{path}: its first row is {', '.join(header)[:80]}; the names of the columns are needed above it"
            yield NearMiss(4, "csv", detail)
        else:
            lacking = describe_sides(header) or lacking
            yield NearMiss(4 if columns else 1, "csv", f"{path}: {lacking}; {_columns(header)}")


def _ljspeech(corpus: Corpus) -> Iterator[NearMiss]:
    for path in _few(corpus.find(".csv", ".txt")):
        _, line = next(corpus.read_lines(str(path)), (0, ""))
        if path.name != "metadata.csv" and line.count("|") in (1, 2):
            detail = f"{path} has its fields, separated by |, and not its name: {path.parent / 'metadata.csv'} is read"
            yield NearMiss(3, "ljspeech", detail)


def _librispeech(corpus: Corpus) -> Iterator[NearMiss]:
    # A line is the name of a recording beside it, and its words: `1988-24833-0000 THE CATS`.
    stems = {(path.parent, path.stem) for path in corpus.find_audio()}
    for path in _few(corpus.find(".txt")):
        _, line = next(corpus.read_lines(str(path)), (0, ""))
        id, *text = line.split(maxsplit=1)[:2] or [""]
        if text and (path.parent, id) in stems and not path.name.endswith(".trans.txt"):
            accepted = path.parent / f"{path.stem}.trans.txt"
            yield NearMiss(4, "librispeech", f"{path} has its lines, and not its name: {accepted} is read")


def _timed(corpus: Corpus) -> Iterator[NearMiss]:
    # Files of times that many programs write, and that only they read.
    for path in _few(corpus.find(*TIMED)):
        detail = (
            f"{path} has texts with times, and no format reads such files: write each part of it as a line with text"
        )
        yield NearMiss(2, "manifest", f"{detail}, offset and duration in seconds")


CHECKS: tuple[Callable[[Corpus], Iterator[NearMiss]], ...] = (
    *(_common_voice, _kaldi, _lhotse, _manifest),
    *(_csv, _ljspeech, _librispeech, _timed),
)


def _few(paths: Iterator[PurePosixPath]) -> list[PurePosixPath]:
    return [path for path, _ in zip(paths, range(MOST_FILES), strict=False)]


def _headers(corpus: Corpus, *suffixes: str) -> list[tuple[PurePosixPath, list[str]]]:
    """The first row of each table that has one."""
    headers = []
    for path in _few(corpus.find(*suffixes)):
        _, line = next(corpus.read_lines(str(path)), (0, ""))
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=line.count)
        cells = [cell.strip().strip('"') for cell in line.split(delimiter)]
        if any(cells):
            headers.append((path, cells))
    return headers


def _lacking(columns: dict[str, str]) -> str:
    """Says which of a recording and a text no column names; empty if none is lacking."""
    lacking = []
    for key, noun in (("audio_filepath", "recording"), ("text", "text")):
        if key not in columns:
            names = ", ".join(USUAL_COLUMNS[key][:4])
            lacking.append(f"none names the {noun} ({names}, …; corpus.columns.{key} says which does)")
    return " and ".join(lacking)


def _columns(header: list[str]) -> str:
    return f"its columns are {', '.join(header[:MOST_COLUMNS])[:200]}"
