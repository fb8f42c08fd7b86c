"""LJSpeech: 24 hours of one voice reading seven non-fiction books of 1884 to 1964, 22.05 kHz WAV.

By Keith Ito and Linda Johnson, https://keithito.com/LJ-Speech-Dataset, public domain. Many corpora for
synthesis copy its layout:

    LJSpeech-1.1/metadata.csv
    LJSpeech-1.1/wavs/LJ001-0001.wav

The root may be that folder or one above it. The corpus does not name the speaker, so the name of the folder does. An
id up to its last hyphen is a section of a book (LJ001), and counts as a split of the corpus:
`splits: {test: [LJ001], dev: [LJ002], train: [LJ00[3-9], LJ0[1-5]?]}`; or split by utterance.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpus import Corpus, CorpusEntry, normalized_name, recordings_by_name
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

METADATA = "metadata.csv"
WAVS = "wavs"


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every line of every metadata.csv, and rejects every recording next to one that no line names.

    Raises:
      WorkError: there is no metadata.csv.
    """
    tables = [path for path in corpus.find(METADATA) if path.name == METADATA]
    if not tables:
        raise WorkError(f"{corpus.root}: no {METADATA} in this folder; check corpus.format")
    recordings = recordings_by_name(corpus)
    named: set[str] = set()

    for table in tables:
        for number, line in corpus.read_lines(str(table)):
            entry = _entry(line, corpus, table, recordings, f"{table}:{number}")
            named.add(normalized_name(table.parent / WAVS / entry.id))
            yield entry

    # Only beside a table: other folders may hold recordings that are not of this layout.
    folders = {table.parent / WAVS for table in tables}
    for name, audio in recordings.items():
        if name not in named and audio.parent in folders:
            detail = f"{audio}: no line of {audio.parents[1] / METADATA} names it"
            yield Reject(audio.stem, Reason.TRANSCRIPT_MISSING, detail)


def _entry(
    line: str, corpus: Corpus, table: PurePosixPath, recordings: dict[str, PurePosixPath], source: str
) -> CorpusEntry | Reject:
    # An id, the text as printed and the text as read, separated by | and never quoted:
    #   LJ001-0007|the earliest book printed, about 1455,|the earliest book printed, about fourteen fifty-five,
    id, *texts = (field.strip() for field in line.split("|"))
    if len(texts) != 2 or not id:
        # Without any | the first field is the whole line, not an id.
        fields = f"{source}: {1 + len(texts)} fields in {line[:80]!r}"
        detail = f"{fields}; accepted: id|text|normalized text, separated by |"
        return Reject((id if texts else "") or source, Reason.BAD_ENTRY, detail)

    raw, normalized = texts
    if not normalized:
        return Reject(id, Reason.TRANSCRIPT_MISSING, f"{source}: the third field, the normalized text, is empty")

    file = table.parent / WAVS / id
    return CorpusEntry(
        id=id,
        audio=recordings.get(normalized_name(file), table.parent / WAVS / f"{id}.wav").as_posix(),
        text=normalized,
        speaker=table.parent.name or corpus.name,
        split=id.rpartition("-")[0],
        source=source,
        extra={"raw": raw},
    )
