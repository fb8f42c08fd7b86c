"""Mozilla Common Voice: read sentences in hundreds of languages, MP3, validated by volunteers, CC0.

https://commonvoice.mozilla.org; releases come from the Mozilla Data Collective. Every folder below the root with a
`validated.tsv` is a release of a language; several releases may lie side by side, a full one and its deltas:

    cv-corpus-21.0-2025-03-14/en/validated.tsv, invalidated.tsv, train.tsv, …, clips/common_voice_en_1.mp3
    cv-corpus-22.0-delta-2025-06-20/en/validated.tsv, invalidated.tsv, clips/common_voice_en_2.mp3

The newest release that lists a clip decides: a clip that a later release lists as invalidated is rejected
(`invalidated`). A clip keeps its id from release to release, so a new release costs what is new in it.

Mozilla draws train, dev and test again in each release. So with this format `corpus.split.by` is `speaker`, unless
a config says otherwise: a speaker's hash decides, and each speaker stays where they are. With `by: corpus` the names
are those of Mozilla's lists, and `unlisted` for clips that are in none of them.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from voxline.components.ingest.corpora.csv import count_fault, read_table
from voxline.components.ingest.corpus import Corpus, CorpusEntry
from voxline.components.ingest.file_index import temporary_database
from voxline.errors import WorkError
from voxline.rejects import Reason, Reject

VALIDATED = "validated.tsv"
INVALIDATED = "invalidated.tsv"
OFFICIAL_SPLITS = ("train", "dev", "test")
CHANGING_COLUMNS = frozenset(("up_votes", "down_votes"))
"""Every release has other votes; they would make each row of a dataset a changed one."""

_RELEASE = re.compile(r"cv-corpus-(?P<number>\d+(?:\.\d+)*).*?(?P<date>\d{4}-\d{2}-\d{2})?$")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')

Row = dict[str, str]


def entries(corpus: Corpus) -> Iterator[CorpusEntry | Reject]:
    """Yields every validated clip once, by its newest release.

    Raises:
      WorkError: there is no validated.tsv, or its columns are others.
    """
    releases = [path.parent for path in corpus.find(".tsv") if path.name == VALIDATED]
    if not releases:
        raise WorkError(f"{corpus.path}: no {VALIDATED} in this folder; check corpus.format")

    # Newest first: the first line about a clip decides, and older ones are ignored.
    releases.sort(key=_age, reverse=True)
    keep_splits = corpus.settings.split.by == "corpus"
    clips = temporary_database(
        "clips (name PRIMARY KEY, release, valid) WITHOUT ROWID", "splits (name PRIMARY KEY, split)"
    )

    for release in releases:
        # Two languages may have a clip of the same name: the second is not an older one of the first.
        language = _language(release)
        if keep_splits:
            for split in OFFICIAL_SPLITS:
                names = ((language + _name(row), split) for row, _, _ in _rows(corpus, release / f"{split}.tsv"))
                clips.executemany("INSERT OR IGNORE INTO splits VALUES (?, ?)", names)

        invalidated = ((language + _name(row), str(release)) for row, _, _ in _rows(corpus, release / INVALIDATED))
        clips.executemany("INSERT OR IGNORE INTO clips VALUES (?, ?, 0)", invalidated)

        lines = iter(_rows(corpus, release / VALIDATED))
        following = next(lines, None)
        while following:
            row, source, fault = following
            following = next(lines, None)
            name = _name(row)
            # Where the sentence ends the line, a line feed within it leaves all fields.
            is_cut = following is not None and following[2] and len(following[0]) == 1
            rest = "".join(following[0].values()) if following and is_cut else ""
            if not fault and rest and [*row][-1] == "sentence":
                fault = f"its text seems to go on in the next line, {rest[:60]!r}; write it in one line"
            if fault:
                yield Reject(name or source, Reason.BAD_ENTRY, f"{source}: {fault}")
                continue
            row_of_clip = clips.execute(
                "SELECT release, valid FROM clips WHERE name = ?", (language + name,)
            ).fetchone()
            if not name:
                yield Reject(source, Reason.BAD_ENTRY, f"{source}: no path")
            elif row_of_clip is None:
                clips.execute("INSERT INTO clips VALUES (?, ?, 1)", (language + name, str(release)))
                listed = clips.execute("SELECT split FROM splits WHERE name = ?", (language + name,)).fetchone()
                split = (listed[0] if listed else "unlisted") if keep_splits else ""
                yield _entry(corpus, row, name, release, releases, split, source)
            elif row_of_clip[1] and row_of_clip[0] == str(release):
                yield Reject(name, Reason.DUPLICATE_ID, f"{source}: an earlier line of this list has the same clip")
            elif not row_of_clip[1]:
                detail = f"{source}: {PurePosixPath(row_of_clip[0]) / INVALIDATED} lists it; the newest release decides"
                yield Reject(name, Reason.INVALIDATED, detail)


def _language(folder: PurePosixPath) -> str:
    """The folder of a language within a release, `en/`; empty if the release has none."""
    return f"{folder.name}/" if any(map(_RELEASE.match, folder.parts[:-1])) else ""


def _age(folder: PurePosixPath) -> tuple[list[int], str, str]:
    """Sorts releases from old to new: by number, then by date (a delta has the number of its full release)."""
    for part in reversed(folder.parts):
        if release := _RELEASE.match(part):
            return [int(number) for number in release["number"].split(".")], release["date"] or "", str(folder)
    return [], "", str(folder)


def _rows(corpus: Corpus, table: PurePosixPath) -> Iterator[tuple[Row, str, str]]:
    """The rows of a list with the file and line of each, and its fault; none where the release does not have it.

    Of a row with a fault, the first columns may be right: the clip that an invalidated one names stays invalidated.
    """
    if not corpus.has(str(table)):
        return
    # client_id  path                     sentence_id  sentence      …  up_votes  down_votes  age  gender  accents  …
    # 3f2a…      common_voice_en_1.mp3    9d0c…        Good morning.    2         0
    rows = read_table(corpus, table)
    header = next(rows, [])
    if not {"client_id", "path", "sentence"} <= set(header):
        raise WorkError(
            f"{corpus.root / table}: its columns are {', '.join(header)[:200]}; accepted: client_id, path, sentence "
            "and others, separated by tabs; check corpus.format"
        )

    for number, row in enumerate(rows, start=2):
        if not any(row):
            continue
        yield dict(zip(header, row, strict=False)), f"{table}:{number}", count_fault(row, header)


def _name(row: Row) -> str:
    """The clip's name, which no other clip of any release has: its file without extension."""
    return PurePosixPath(row.get("path", "")).stem


def _entry(
    corpus: Corpus, row: Row, name: str, release: PurePosixPath, releases: list[PurePosixPath], split: str, source: str
) -> CorpusEntry | Reject:
    sentence = row.get("sentence", "")
    file = row["path"] if PurePosixPath(row["path"]).suffix else f"{row['path']}.mp3"  # releases before 4 omit it

    # A delta lists clips that only the full release has.
    folders = [release, *(other for other in releases if other != release)]
    audio = next((path for folder in folders if corpus.has(path := str(folder / "clips" / file))), "")

    used_columns = {"client_id", "path", "sentence", *CHANGING_COLUMNS}
    return CorpusEntry(
        id=name,
        audio=audio or str(release / "clips" / file),
        text=_unquote(sentence),
        speaker=row.get("client_id", ""),
        split=split,
        source=source,
        extra={key: value for key, value in row.items() if value and key not in used_columns},
    )


def _unquote(sentence: str) -> str:
    """The sentence without the quoting of its release: some double quotation marks, some quote the field as well.

    >>> _unquote('\"\"\"Yes,\"\" he said.\"'), _unquote('\"\"Yes,\"\" he said.'), _unquote('Yes.')
    ('"Yes," he said.', '"Yes," he said.', 'Yes.')
    """
    quoted = _QUOTED.fullmatch(sentence)
    return (quoted[1] if quoted else sentence).replace('""', '"')
