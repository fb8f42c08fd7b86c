"""CSV of Mozilla DeepSpeech and Coqui STT, with the header `wav_filename,wav_filesize,transcript`.

https://deepspeech.readthedocs.io/en/latest/TRAINING.html. Every CSV below the root with that header is read; the
name of the file is the split (`train.csv`, `dev.csv`, `test.csv`).
"""

import csv
from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.data.manifest import UTTERANCE_KEYS
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject

COLUMNS = ("wav_filename", "wav_filesize", "transcript")
MAX_SIZE_DIGITS = 18
"""Python refuses to parse numbers of thousands of digits."""

# The reader's own limit on a field (131,072 characters) would end the whole table; staging.py rejects such a text.
csv.field_size_limit(2**31 - 1)


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every row of every CSV with the three columns.

    Raises:
      WorkError: no CSV has them, or a quotation mark is never closed.
    """
    tables = 0
    for path in corpus.find(".csv"):
        # Paths are relative to the CSV, or absolute; further columns are kept:
        #   wav_filename,wav_filesize,transcript
        #   wavs/a-0001.wav,102444,experience proves this
        rows = csv.reader(corpus.iter_text(str(path), newline=""), strict=True)
        try:
            header = [column.strip() for column in next(rows, [])]
        except csv.Error as error:
            print_status(f"{path}: left out: its header cannot be read ({error})")
            continue
        if not set(COLUMNS) <= set(header):
            print_status(f"{path}: left out: its header is not {','.join(COLUMNS)}")
            continue
        tables += 1
        yield from _rows(rows, header, corpus, path)
    if not tables:
        raise WorkError(f"{corpus.root}: no CSV with the header {','.join(COLUMNS)}; check corpus.format")


def _rows(
    rows: "Iterator[list[str]]", header: list[str], corpus: Corpus, path: PurePosixPath
) -> Iterator[CorpusEntry | Reject]:
    number = 1
    try:
        for number, row in enumerate(rows, start=2):
            if any(field.strip() for field in row):
                yield _entry(row, header, path, f"{path}, row {number}")
    except csv.Error as error:
        raise WorkError(f"{corpus.root / path}: after row {number}: {error}; is a quotation mark not closed?") from None


def _entry(row: list[str], header: list[str], path: PurePosixPath, source: str) -> CorpusEntry | Reject:
    if len(row) != len(header):
        return Reject(source, Reason.BAD_ENTRY, f"{source}: {len(row)} fields, the header has {len(header)}")
    values = dict(zip(header, row, strict=True))
    audio, size, text = (values[column].strip() for column in COLUMNS)
    if not audio or not (size.isdecimal() and len(size) <= MAX_SIZE_DIGITS):
        return Reject(
            audio or source, Reason.BAD_ENTRY, f"{source}: wav_filename {audio!r}, wav_filesize {size[:80]!r}"
        )
    if "\n" in text:
        detail = f"{source}: a transcript over several lines; is a quotation mark not closed, and rows swallowed?"
        return Reject(audio, Reason.BAD_ENTRY, detail)
    return CorpusEntry(
        id=values.get("id", "").strip(),
        audio=audio,
        text=text,
        speaker=values.get("speaker", "").strip(),
        split=path.stem,
        relative_to=path.parent.as_posix(),
        size=int(size),
        source=source,
        extra={key: value for key, value in values.items() if key not in (*COLUMNS, *UTTERANCE_KEYS, "")},
    )
