"""What a corpus says of its utterances and what was found of their recordings, held while a manifest is made of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from voxline.components.ingest.audio_probe import ProbeRecord, ProbeResult
from voxline.components.ingest.file_index import FileIndex
from voxline.rejects import Reason, Reject

_AT_ONCE = 4_096
"""Recordings that are handed out at a time."""


class ResolvedEntry(NamedTuple):
    """An entry whose recording is there. Texts in NFC, all of it fit for JSON in UTF-8.

    Attributes:
      path: of the recording, relative to the corpus.
      file: its number in the listing.
      duration: seconds, 0.0 where the corpus does not say.
      split: the corpus' own.
      extra: further members of the line, as JSON without the braces.
      called: the entry's name before it got its id.
    """

    id: str
    path: str
    file: int
    offset: float
    duration: float
    text: str
    speaker: str
    split: str
    source: str
    extra: str
    called: str


class ProbedUtterance(NamedTuple):
    """An utterance, as `ResolvedEntry` has it, and its recording.

    Attributes:
      hash: of the recording.
      seconds: of the recording, 0.0 where it does not say.
      fault: what the system said when it could not be read.
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


class SplitKey(NamedTuple):
    """What decides in which split an utterance is."""

    id: str
    speaker: str
    split: str
    source: str


class StagingTable:
    """Utterances, rejects and recordings, each handed out one by one in order."""

    def __init__(self, files: FileIndex) -> None:
        """Takes the listing of the corpus, beside which all is held."""
        self._database = files.database
        for table in (
            f"utterances ({', '.join(ResolvedEntry._fields)})",
            "recordings (file INTEGER PRIMARY KEY, hash, seconds, fault)",
            "unknown (file INTEGER PRIMARY KEY, path)",
            "rejects (id, detail, reason)",
        ):
            self._database.execute(f"CREATE TABLE {table}")

    def add(self, utterances: Iterable[ResolvedEntry]) -> None:
        """Takes all utterances, in the corpus' order."""
        self._database.executemany("INSERT INTO utterances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", utterances)
        self._database.execute("CREATE INDEX by_id ON utterances (id)")

    def reject(self, reject: Reject) -> None:
        self._database.execute("INSERT INTO rejects VALUES (?, ?, ?)", (reject.id, reject.detail, str(reject.reason)))

    def without_duplicates(self) -> list[tuple[str, str, str]]:
        """Removes all but the first of those that have one id.

        Returns:
          What each was called, where it stands, and where the first one of that id stands.
        """
        again = self._database.execute(
            "SELECT later.rowid, later.called, later.source, first.source FROM"
            " (SELECT id, min(rowid) AS first FROM utterances GROUP BY id HAVING count(*) > 1) AS doubled"
            " JOIN utterances AS later ON later.id = doubled.id AND later.rowid > doubled.first"
            " JOIN utterances AS first ON first.rowid = doubled.first"
        ).fetchall()
        self._database.executemany("DELETE FROM utterances WHERE rowid = ?", ((row,) for row, *_ in again))
        return [(called, source, first) for _, called, source, first in again]

    def splits(self) -> set[str]:
        """The corpus' own splits."""
        return {split for (split,) in self._database.execute("SELECT DISTINCT split FROM utterances")}

    def names(self) -> Iterator[SplitKey]:
        """The utterances in the corpus' order."""
        rows = self._database.execute("SELECT id, speaker, split, source FROM utterances ORDER BY rowid")
        return map(SplitKey._make, rows)

    def leave_out(self, splits: Iterable[str]) -> int:
        """Removes the utterances of these splits; returns how many."""
        return self._database.executemany("DELETE FROM utterances WHERE split = ?", ((one,) for one in splits)).rowcount

    def remember(self, remembered: Iterable[ProbeRecord]) -> tuple[int, int]:
        """Takes what is known of recordings, in order of their states; all utterances are there by then.

        Returns:
          How many are known, and how many have to be found out.
        """
        files = self._database.execute("SELECT state, number FROM files ORDER BY state")
        known = self._database.executemany("INSERT INTO recordings VALUES (?, ?, ?, NULL)", _merged(files, remembered))
        unknown = self._database.execute(
            "INSERT INTO unknown SELECT DISTINCT file, path FROM utterances"
            " WHERE NOT EXISTS (SELECT * FROM recordings WHERE recordings.file = utterances.file)"
        )
        return max(known.rowcount, 0), max(unknown.rowcount, 0)

    def find_out(self, measure: Callable[[list[str]], dict[str, ProbeResult]]) -> None:
        """Has the recordings measured that are not known, in order of their paths."""
        unknown = self._database.execute("SELECT path, file FROM unknown ORDER BY path")
        while files := dict(unknown.fetchmany(_AT_ONCE)):
            self._database.executemany(
                "INSERT INTO recordings VALUES (?, ?, ?, ?)",
                ((files[path], one.hash, one.seconds, one.fault or None) for path, one in measure(list(files)).items()),
            )

    def recordings(self) -> Iterator[ProbeRecord]:
        """Those that could be read, in order of their states."""
        return self._database.execute(
            "SELECT state, hash, seconds FROM files JOIN recordings ON file = number WHERE fault IS NULL ORDER BY state"
        )

    def utterances(self) -> Iterator["ProbedUtterance"]:
        """By id."""
        rows = self._database.execute(
            "SELECT id, path, offset, duration, text, speaker, split, source, extra, hash, seconds, fault"
            " FROM utterances JOIN recordings USING (file) ORDER BY id"
        )
        return map(ProbedUtterance._make, rows)

    def rejects(self) -> Iterator[Reject]:
        """By id and detail."""
        for id, detail, reason in self._database.execute("SELECT * FROM rejects ORDER BY id, detail, rowid"):
            yield Reject(id, Reason(reason), detail)


def _merged(files: Iterator[tuple[bytes, int]], remembered: Iterable[ProbeRecord]) -> Iterator[tuple[int, str, float]]:
    """Number, hash and duration of the files that are remembered; both are in order of states."""
    state, number = next(files, (b"", 0))
    for known, hash, seconds in remembered:
        while state and state < known:
            state, number = next(files, (b"", 0))
        while state == known:  # by several names, where there are hard links
            yield number, hash, seconds
            state, number = next(files, (b"", 0))
