"""What a corpus says of its utterances and what was found of their recordings, held while a manifest is made of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from components.ingest.held import private_database
from components.ingest.recordings import Recording
from components.speech.utterances import Reason, Reject

_AT_ONCE = 4_096
"""Recordings that are handed out at a time."""


class Settled(NamedTuple):
    """An entry whose recording is there. Texts in NFC, all of it fit for JSON in UTF-8.

    Attributes:
      path: of the recording, relative to the corpus.
      state: what the file system says of it, packed.
      duration: seconds, 0.0 where the corpus does not say.
      split: the corpus' own.
      extra: further members of the line, as JSON without the braces.
      called: the entry's name before it got its id.
    """

    id: str
    path: str
    state: bytes
    offset: float
    duration: float
    text: str
    speaker: str
    split: str
    source: str
    extra: str
    called: str


class Named(NamedTuple):
    """What decides in which split an utterance is."""

    id: str
    speaker: str
    split: str
    source: str


class Spool:
    """Utterances, rejects and recordings, each handed out one by one in order."""

    def __init__(self) -> None:
        self._database = private_database(
            f"utterances ({', '.join(Settled._fields)})",
            "recordings (path PRIMARY KEY, state, hash, seconds, fault) WITHOUT ROWID",
            "remembered (state PRIMARY KEY, hash, seconds) WITHOUT ROWID",
            "rejects (id, detail, reason)",
        )

    def add(self, utterances: Iterable[Settled]) -> None:
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

    def names(self) -> Iterator[Named]:
        """The utterances in the corpus' order."""
        rows = self._database.execute("SELECT id, speaker, split, source FROM utterances ORDER BY rowid")
        return map(Named._make, rows)

    def leave_out(self, splits: Iterable[str]) -> int:
        """Removes the utterances of these splits; returns how many."""
        return self._database.executemany("DELETE FROM utterances WHERE split = ?", ((one,) for one in splits)).rowcount

    def remember(self, found: Iterable[tuple[bytes, str, float]]) -> None:
        """Takes state, hash and duration of recordings that are known; the utterances are all there by then."""
        self._database.executemany("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?)", found)
        self._database.execute(
            "INSERT OR IGNORE INTO recordings SELECT path, state, hash, seconds, NULL"
            " FROM utterances LEFT JOIN remembered USING (state)"
        )

    def count_recordings(self) -> tuple[int, int]:
        """How many recordings are known, and how many are not."""
        ((known, every),) = self._database.execute("SELECT count(hash), count(*) FROM recordings")
        return known, every - known

    def find_out(self, measure: Callable[[list[str]], dict[str, Recording]]) -> None:
        """Has the recordings measured that are not known, by path."""
        unknown = "SELECT path FROM recordings WHERE hash IS NULL AND path > ? ORDER BY path LIMIT ?"
        last = ""
        while paths := [path for (path,) in self._database.execute(unknown, (last, _AT_ONCE))]:
            last = paths[-1]
            self._database.executemany(
                "UPDATE recordings SET hash = ?, seconds = ?, fault = ? WHERE path = ?",
                ((one.hash, one.seconds, one.fault or None, path) for path, one in measure(paths).items()),
            )

    def recordings(self) -> Iterator[tuple[bytes, str, float]]:
        """State, hash and duration of those that could be read, by path."""
        return self._database.execute("SELECT state, hash, seconds FROM recordings WHERE fault IS NULL ORDER BY path")

    def utterances(self) -> Iterator[tuple[Settled, Recording]]:
        """Each with its recording, by id."""
        rows = self._database.execute(
            "SELECT utterances.*, hash, seconds, ifnull(fault, '') FROM utterances JOIN recordings USING (path)"
            " ORDER BY id"
        )
        for row in rows:
            yield Settled._make(row[:-3]), Recording(*row[-3:])

    def rejects(self) -> Iterator[Reject]:
        """By id and detail."""
        for id, detail, reason in self._database.execute("SELECT * FROM rejects ORDER BY id, detail, rowid"):
            yield Reject(id, Reason(reason), detail)
