"""The staging table: a corpus' entries on their way to a manifest, each with its recording and its id, or rejected.

All of it is in a private SQLite database beside the file index, so memory does not grow with the corpus.
"""

import functools
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from voxline.audio.containers import CHANNEL_KEY, parse_channel
from voxline.components.ingest.audio_probe import ProbeRecord, ProbeResult
from voxline.components.ingest.corpus import (
    Corpus,
    CorpusEntry,
    UnusableEntryError,
    escape_surrogates,
    text_doubt,
)
from voxline.components.ingest.file_index import FileIndex
from voxline.components.ingest.row_marks import row_marks
from voxline.components.ingest.table_columns import single
from voxline.data.json_codec import encode_json
from voxline.data.manifest import TEXT_DOUBT
from voxline.progress import print_status
from voxline.rejects import DURATION_TOLERANCE_SECONDS, Reason, Reject
from voxline.store.hashing import hash_bytes

MAX_TEXT_CHARACTERS = 131_072
"""A longer text is not one utterance's transcript, but a table whose lines run into each other."""
COUNTS_FROM_0 = ("kaldi", "lhotse")
"""Formats that say how channels are counted."""
MOST_CHANNELS = 8
"""Of a recording whose channels may be counted from 1; a larger number is something else."""
ALL_CHANNELS = ("", "both", "stereo", "mono", "mixed", "mix", "all", "nan", "none")
"""Values of a channel that stand for all of them, mixed, or for none that is named."""
OFTEN = 0.1
"""Share of utterances that begin later in their recordings, from which on a corpus has parts of recordings."""
FEWEST_WHOLE = 3
"""Utterances at whole seconds from which on ingest prints a line of them."""
MOST_WHOLE = 0.9
"""Share of the utterances with times that are at whole seconds, from which on these are rounded."""
NOBODY = frozenset(
    name
    for word in (
        "nan",
        "none",
        "null",
        "na",
        "n/a",
        "<na>",
        "#n/a",
        "unknown",
        "unk",
        "undefined",
        "anonymous",
        "male",
        "female",
        "m",
        "f",
        "男",
        "女",
        "?",
        "-",
    )
    for name in (word, word.upper(), *([word.capitalize()] if len(word) > 3 else []), "NaN")
)
"""Speakers who are none, as empty cells are written. Nan and Na are people."""
_SOURCE = re.compile(r"(.*?)(?:, (?:row|element) |:)\d+", re.DOTALL)
_ROUNDED = re.compile(r"\d(?:[.,]\d+)?[eE]\+\d{2}")
"""The speaker's number as spreadsheets round it: several speakers may have it."""
_PROBE_BATCH = 4_096
"""Recordings that are probed at a time."""


class ResolvedEntry(NamedTuple):
    """An entry whose recording exists. Texts are in NFC, and can be encoded as JSON in UTF-8.

    Attributes:
      path: of the recording, relative to the corpus.
      file_number: of the recording in the file index.
      duration: seconds, 0.0 where the corpus does not say.
      split: the corpus' own.
      extra: further keys of the line, as a JSON mapping; empty where there are none.
      raw_id: the corpus' own name of the entry.
    """

    id: str
    path: str
    file_number: int
    offset: float
    duration: float
    text: str
    speaker: str
    split: str
    source: str
    extra: str
    raw_id: str


class ProbedUtterance(NamedTuple):
    """A `ResolvedEntry` with what the probe of its recording gave.

    Attributes:
      hash: of the recording.
      seconds: of the recording, 0.0 where its header does not say.
      fault: the system's message where the recording could not be read.
    """

    id: str
    path: str
    offset: float
    duration: float
    text: str
    speaker: str
    split: str
    source: str
    extra: str
    hash: str
    seconds: float
    fault: str | None

    def cut_short(self) -> Reject | None:
        """A reject, where the recording ends before the utterance should."""
        end = self.offset + self.duration
        if not self.seconds or (end <= self.seconds + DURATION_TOLERANCE_SECONDS and self.offset < self.seconds):
            return None
        detail = f"{self.source}: {self.path} has {self.seconds:.2f} s, the utterance should end at {end:.2f} s"
        return Reject(self.id, Reason.TRUNCATED, detail)


class SplitKey(NamedTuple):
    """The key that decides in which split an utterance is."""

    id: str
    speaker: str
    split: str
    source: str


class StagingTable:
    """Utterances, rejects and probed recordings; each is iterated in order."""

    def __init__(self, files: FileIndex) -> None:
        """Adds its tables to the file index's database."""
        self._database = files.database
        for table in (
            f"utterances ({', '.join(ResolvedEntry._fields)})",
            "recordings (file INTEGER PRIMARY KEY, hash, seconds, fault)",
            "unprobed (file INTEGER PRIMARY KEY, path)",
            "rejects (id, detail, reason)",
            "beyond (id PRIMARY KEY) WITHOUT ROWID",
        ):
            self._database.execute(f"CREATE TABLE {table}")

    def add_entries(self, entries: Iterable[ResolvedEntry]) -> None:
        """Adds all entries, in the corpus' order."""
        self._database.executemany("INSERT INTO utterances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", entries)
        self._database.execute("CREATE INDEX by_id ON utterances (id)")

    def entries(self) -> Iterator[tuple[Any, ...]]:
        """Yields the entries in the corpus' order, without the numbers of their files."""
        return self._database.execute(
            "SELECT id, path, offset, duration, text, speaker, split, source, extra, raw_id FROM utterances"
            " ORDER BY rowid"
        )

    def restore_entries(self, rows: Iterable[list[Any]]) -> bool:
        """Adds what `entries` gave of the same files; returns False, and adds none, if a file is not in the index."""
        # Files have other numbers in each listing, so that a path finds its own again.
        self._database.executemany(
            "INSERT INTO utterances VALUES (?1, ?2, (SELECT number FROM files WHERE files.path = CAST(?2 AS BLOB)),"
            " ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            rows,
        )

        # It cannot be: the cache was made of the same paths.
        lost = "SELECT 1 FROM utterances WHERE file_number IS NULL LIMIT 1"
        if self._database.execute(lost).fetchone():
            self._database.execute("DELETE FROM utterances")
            return False
        self._database.execute("CREATE INDEX by_id ON utterances (id)")
        return True

    def reject_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields the rejects so far, in the order in which they were added."""
        return self._database.execute("SELECT id, detail, reason FROM rejects ORDER BY rowid")

    def restore_rejects(self, rows: Iterable[list[str]]) -> None:
        """Adds what `reject_rows` gave."""
        self._database.executemany("INSERT INTO rejects VALUES (?, ?, ?)", rows)

    def add_reject(self, reject: Reject) -> None:
        row = (escape_surrogates(reject.id), escape_surrogates(reject.detail), str(reject.reason))
        self._database.execute("INSERT INTO rejects VALUES (?, ?, ?)", row)

    def remove_duplicates(self) -> list[tuple[str, str, str]]:
        """Removes all but the first of the entries that share an id.

        Returns:
          The `raw_id` and source of each that was removed, and the source of the first one.
        """
        # The first in the corpus' order stays.
        removed = self._database.execute(
            "SELECT later.rowid, later.raw_id, later.source, first.source FROM"
            " (SELECT id, min(rowid) AS first FROM utterances GROUP BY id HAVING count(*) > 1) AS doubled"
            " JOIN utterances AS later ON later.id = doubled.id AND later.rowid > doubled.first"
            " JOIN utterances AS first ON first.rowid = doubled.first"
        ).fetchall()
        self._database.executemany("DELETE FROM utterances WHERE rowid = ?", ((row,) for row, *_ in removed))
        return [(raw_id, source, first) for _, raw_id, source, first in removed]

    def count_channels_from_0(self, count_channels: Callable[[str], int]) -> None:
        """Counts channels from 0 where a table counts them from 1, and says so: none is 0, and one is 2 or more.

        Args:
          count_channels: of the recording at a path. It decides where one table counts from 0 and another seems not to.
        """
        self._database.create_function("table_of", 1, _table_of, deterministic=True)
        rows = self._database.execute(
            "SELECT table_of(source), json_extract(extra, '$.channel'), min(path) FROM utterances"
            " WHERE json_type(nullif(extra, ''), '$.channel') = 'integer' GROUP BY 1, 2 ORDER BY 1, 2"
        )
        by_table: dict[str, dict[int, str]] = {}
        for table, channel, path in rows:
            by_table.setdefault(table, {})[channel] = path
        channels = sorted({channel for paths in by_table.values() for channel in paths})
        if channels == [1]:
            print_status("ingest: all channels are 1, the second one; if 1 is meant to be the first, write 0 or left")
        if not channels:
            return

        if channels[0] > 0:
            if not 1 < channels[-1] <= MOST_CHANNELS:
                return
            print_status(f"ingest: channels are counted from 1, as none is 0: they are {', '.join(map(str, channels))}")
            from_1 = [*by_table]
        else:
            # Counted from 0, the last channel of two is 1.
            last = {table: max(paths) for table, paths in by_table.items() if 0 not in paths}
            from_1 = [
                table
                for table, channel in last.items()
                if 1 < channel <= MOST_CHANNELS and count_channels(by_table[table][channel]) == channel
            ]
            for table in from_1:
                print_status(
                    f"ingest: {table}: channels are counted from 1, as recordings have {last[table]}, and other tables "
                    "count them from 0"
                )
        self._database.executemany(
            "UPDATE utterances SET extra = json_set(extra, '$.channel', json_extract(extra, '$.channel') - 1)"
            " WHERE json_type(nullif(extra, ''), '$.channel') = 'integer' AND table_of(source) = ?",
            ((table,) for table in from_1),
        )

    def tell_missing_channels(self) -> None:
        """Says how many entries name no channel, where others do: all channels of their recordings are mixed."""
        # A channel that cannot be read is a text in the line, and selects none either.
        query = (
            "SELECT count(*), source, min(rowid) FROM utterances"
            " WHERE (json_type(nullif(extra, ''), '$.channel') = 'integer') IS {}"
        )
        named, _, _ = self._database.execute(query.format("TRUE")).fetchone()
        lacking, source, _ = self._database.execute(query.format("NOT TRUE")).fetchone()
        if named and lacking:
            print_status(
                f"ingest: {lacking:,} utterances name no channel, as {source}, and {named:,} do; where recordings of "
                "the first have several, these are mixed"
            )

    def tell_derived_ids_apart(self, derive_id: Callable[[str, float], str]) -> None:
        """Gives another id to each entry whose derived id stands for another recording or part before.

        Args:
          derive_id: the id that an entry of this path and offset has where the corpus names none.
        """
        # Paths that differ only in Unicode form derive the same id, and so do parts that begin at the same time.
        later = self._database.execute(
            "SELECT later.rowid, later.id, later.path, later.offset, later.duration, first.path, first.duration,"
            " json_extract(nullif(later.extra, ''), '$.channel'), json_extract(nullif(first.extra, ''), '$.channel')"
            " FROM (SELECT id, min(rowid) AS first FROM utterances GROUP BY id HAVING count(*) > 1) AS doubled"
            " JOIN utterances AS later ON later.id = doubled.id AND later.rowid > doubled.first"
            " JOIN utterances AS first ON first.rowid = doubled.first"
        ).fetchall()

        # Only derived ids: two entries to which the corpus gave one id are its fault, and the later one is rejected.
        for row, id, path, offset, duration, first_path, first_duration, channel, first_channel in later:
            if id != derive_id(path, offset):
                continue
            other = f"~{hash_bytes(os.fsencode(path))[:8]}" if path != first_path else ""
            if path == first_path and duration != first_duration:
                other = f"+{duration!r}"
            # The second side of a call has the times of the first.
            other += f"#{channel}" if channel != first_channel else ""
            if other:
                self._database.execute("UPDATE utterances SET id = ? WHERE rowid = ?", (f"{id}{other}", row))

    @property
    def has_offsets(self) -> bool:
        """True if utterances are parts of recordings: some begin later, and not only in a few lines."""
        later, total = self._database.execute("SELECT total(offset > 0), count(*) FROM utterances").fetchone()
        return bool(later and later >= OFTEN * total)

    def paths_with_offsets(self) -> set[str]:
        """The recordings in which an utterance begins later, where these are few."""
        rows = self._database.execute("SELECT DISTINCT path FROM utterances WHERE offset > 0")
        return {path for (path,) in rows}

    def corpus_splits(self) -> set[str]:
        """The corpus' own splits."""
        return {split for (split,) in self._database.execute("SELECT DISTINCT split FROM utterances")}

    def split_keys(self) -> Iterator[SplitKey]:
        """One for each utterance, in the corpus' order."""
        rows = self._database.execute("SELECT id, speaker, split, source FROM utterances ORDER BY rowid")
        return map(SplitKey._make, rows)

    def drop_splits(self, splits: Iterable[str]) -> int:
        """Removes the utterances of these splits of the corpus; returns how many."""
        rows = ((split,) for split in splits)
        return self._database.executemany("DELETE FROM utterances WHERE split = ?", rows).rowcount

    def drop_ids(self, ids: Iterable[str]) -> None:
        """Removes the utterances of these ids, which may be read from the table itself."""
        # Through a table of their own: rows that are being read must not be deleted meanwhile.
        self._database.executemany("INSERT INTO beyond VALUES (?)", ((id,) for id in ids))
        self._database.execute("DELETE FROM utterances WHERE id IN (SELECT id FROM beyond)")

    def add_cached_probes(self, cached: Iterable[ProbeRecord]) -> tuple[int, int]:
        """Adds the cached probes of files that are unchanged. Call it when all entries are there.

        Args:
          cached: in order of the files' states.

        Returns:
          How many files have a cached probe, and how many recordings still have to be probed.
        """
        files = self._database.execute("SELECT state, number FROM files ORDER BY state")
        rows = _merge_by_state(files, cached)
        probed = self._database.executemany("INSERT INTO recordings VALUES (?, ?, ?, NULL)", rows)
        return max(probed.rowcount, 0), self.add_unprobed()

    def add_unprobed(self) -> int:
        """Notes which recordings still have to be probed; returns how many."""
        unprobed = self._database.execute(
            "INSERT INTO unprobed SELECT DISTINCT file_number, path FROM utterances"
            " WHERE NOT EXISTS (SELECT * FROM recordings WHERE recordings.file = utterances.file_number)"
        )
        return max(unprobed.rowcount, 0)

    def probe_missing(self, probe: Callable[[list[str]], dict[str, ProbeResult]]) -> None:
        """Probes the recordings without a cached probe, in order of their paths."""
        unprobed = self._database.execute("SELECT path, file FROM unprobed ORDER BY path")
        while numbers := dict(unprobed.fetchmany(_PROBE_BATCH)):
            self._database.executemany(
                "INSERT INTO recordings VALUES (?, ?, ?, ?)",
                (
                    (numbers[path], result.hash, result.seconds, result.fault or None)
                    for path, result in probe(list(numbers)).items()
                ),
            )

    def probes(self) -> Iterator[ProbeRecord]:
        """The probes of readable recordings, in order of the files' states."""
        return self._database.execute(
            "SELECT state, hash, seconds FROM files JOIN recordings ON file = number WHERE fault IS NULL ORDER BY state"
        )

    def utterances(self) -> Iterator[ProbedUtterance]:
        """Yields the utterances by id."""
        rows = self._database.execute(
            "SELECT id, path, offset, duration, text, speaker, split, source, extra, hash, seconds, fault"
            " FROM utterances JOIN recordings ON file = file_number ORDER BY id"
        )
        return map(ProbedUtterance._make, rows)

    def rejects(self) -> Iterator[Reject]:
        """Yields the rejects by id and detail."""
        for id, detail, reason in self._database.execute("SELECT * FROM rejects ORDER BY id, detail, rowid"):
            yield Reject(id, Reason(reason), detail)


def resolve_entries(
    corpus: Corpus, entries: Iterable[CorpusEntry | Reject], table: StagingTable, text_key: str = ""
) -> None:
    """Finds the recording of every entry, gives an id to those without one, and rejects repeated ids.

    Args:
      table: receives the entries and the rejects.
      text_key: key of `CorpusEntry.extra` that holds the text; empty: the corpus' own choice.
    """

    nobody: dict[str, list[str]] = {}  # sources, by speaker

    def resolved() -> Iterator[ResolvedEntry]:
        for entry in entries:
            if isinstance(entry, Reject):
                table.add_reject(entry)
                continue
            if entry.speaker in NOBODY or _ROUNDED.fullmatch(entry.speaker):
                nobody.setdefault(entry.speaker, []).append(entry.source)
            try:
                yield _resolve(corpus, entry, _text_of(entry, text_key) if text_key else entry.text)
            except UnusableEntryError as error:
                table.add_reject(Reject(_raw_id(entry), error.reason, f"{entry.source}: {error.detail}"))

    table.add_entries(resolved())
    for speaker, sources in nobody.items():
        print_status(
            f"ingest: {len(sources):,} utterances have the speaker {speaker!r}, as {sources[0]}, which names nobody: "
            "they count as one speaker, and may be of several"
        )
    if corpus.settings.format not in COUNTS_FROM_0:
        table.count_channels_from_0(corpus.count_channels)
        table.tell_missing_channels()
    table.tell_derived_ids_apart(lambda path, offset: _normalize(_derive_id(corpus.default_id(path), offset)))
    for raw_id, source, first in table.remove_duplicates():
        table.add_reject(Reject(raw_id, Reason.DUPLICATE_ID, f"{source}: {first} has the same id"))


def _resolve(corpus: Corpus, entry: CorpusEntry, text: str) -> ResolvedEntry:
    # Checked in the order in which a person would look: the file, the times, the text, the encoding.
    path, file = corpus.locate(entry.audio, entry.relative_to)
    corpus.reads_recordings |= entry.size is not None
    if entry.size is not None and entry.size != file.size:
        raise UnusableEntryError(Reason.TRUNCATED, f"{path} has {file.size:,} bytes, it should have {entry.size:,}")

    if not (0 <= entry.offset < math.inf and (entry.duration is None or 0 <= entry.duration < math.inf)):
        raise UnusableEntryError(
            Reason.BAD_ENTRY,
            f"offset {entry.offset}, duration {entry.duration}; seconds from 0 on are accepted",
        )

    if len(text) > MAX_TEXT_CHARACTERS:
        detail = f"a transcript of {len(text):,} characters ({text[:40]}…); at most {MAX_TEXT_CHARACTERS:,} are read"
        raise UnusableEntryError(Reason.BAD_ENTRY, detail)

    if text.strip() in corpus.settings.missing_texts:
        raise UnusableEntryError(
            Reason.TRANSCRIPT_MISSING,
            f"the text is {text.strip()!r}, as pandas and spreadsheets write an empty cell; if it is spoken, take it "
            "out of corpus.missing_texts",
        )

    try:
        # JSON in UTF-8 holds no half surrogate pair, no file name of odd bytes and no NaN.
        f"{path}{entry.id}{text}{entry.speaker}{entry.split}".encode()
        extra: dict[str, Any] = {"corpus_split": entry.split} if entry.split else {}
        extra |= entry.extra
        if (channel := parse_channel(single(extra.get(CHANNEL_KEY)))) is not None:
            extra[CHANNEL_KEY] = channel
        elif CHANNEL_KEY in extra:
            _refuse_mixing(corpus, entry, extra[CHANNEL_KEY])
        doubts = [text_doubt(text.strip(), entry.speaker.strip(), path, entry.id.strip())]
        if entry.extra or entry.split:
            doubts += row_marks(entry.extra, entry.split)
        if doubt := "\n".join(filter(None, doubts)):
            extra[TEXT_DOUBT] = doubt
        encoded_extra = encode_json(extra) if extra else ""
    except (ValueError, RecursionError) as error:
        raise UnusableEntryError(Reason.BAD_ENTRY, f"a manifest cannot hold its values: {error}") from None

    return ResolvedEntry(
        _normalize(entry.id.strip() or _derive_id(corpus.default_id(path), entry.offset)),
        path,
        file.number,
        entry.offset,
        entry.duration or 0.0,
        _normalize(text.strip()),
        _normalize(entry.speaker.strip()),
        entry.split,
        escape_surrogates(entry.source),
        encoded_extra,
        escape_surrogates(_raw_id(entry)),
    )


def _refuse_mixing(corpus: Corpus, entry: CorpusEntry, channel: Any) -> None:
    """Refuses an entry that names a channel in a way that is not read, where its recording has several.

    Raises:
      UnusableEntryError: it does; all of them would be mixed.
    """
    names_all = isinstance(channel, str) and channel.strip().lower() in ALL_CHANNELS
    if channel is None or names_all or (count := corpus.count_channels(entry.audio, entry.relative_to)) == 1:
        return
    if isinstance(channel, list) and len(set(map(str, channel))) == count:
        return
    raise UnusableEntryError(
        Reason.BAD_ENTRY,
        f"channel {channel!r} is not understood, and {entry.audio} has {count}; a number, A or B, left or right is "
        "read, and mixed for all of them; if it says something else, give corpus.columns.channel the name of another "
        "column",
    )


def _text_of(entry: CorpusEntry, key: str) -> str:
    text = entry.extra.get(key)
    if not isinstance(text, str):
        texts = ", ".join(sorted(name for name, value in entry.extra.items() if isinstance(value, str))) or "none"
        raise UnusableEntryError(Reason.TRANSCRIPT_MISSING, f"no text {key!r} (corpus.text_key); it has: {texts}")
    return text


def _raw_id(entry: CorpusEntry) -> str:
    return entry.id or entry.audio


def _derive_id(path: str, offset: float) -> str:
    """An id that does not change when other lines come and go.

    >>> _derive_id("talks/a.wav", 0.0), _derive_id("talks/a.wav", 61.5)
    ('talks/a.wav', 'talks/a.wav@61.5')
    """
    return f"{path}@{offset!r}" if offset else path


def _table_of(source: str) -> str:
    """The table that an entry's source names; empty if it names none.

    >>> _table_of("train.csv, row 12"), _table_of("a/b.jsonl:7"), _table_of("a.wav")
    ('train.csv', 'a/b.jsonl', '')
    """
    match = _SOURCE.fullmatch(source)
    return match[1] if match else ""


_normalize = functools.partial(unicodedata.normalize, "NFC")


def _merge_by_state(
    files: Iterator[tuple[bytes, int]], cached: Iterable[ProbeRecord]
) -> Iterator[tuple[int, str, float]]:
    """Number, hash and seconds of the files that are cached; both are in order of states."""
    state, number = next(files, (b"", 0))
    for cached_state, hash, seconds in cached:
        while state and state < cached_state:
            state, number = next(files, (b"", 0))
        while state == cached_state:  # hard links: several files in one state
            yield number, hash, seconds
            state, number = next(files, (b"", 0))
