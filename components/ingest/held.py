"""Where a run holds what it reads of a corpus: in a database of its own, so that memory does not grow with the corpus.

It lies in memory as long as it is small, then in a file without a name where temporary files go, and is gone with the
process.
"""

import contextlib
import sqlite3
from collections.abc import Iterator

from components.speech.errors import WorkError

_MEMORY_KIB = 1024
"""What the database keeps in memory. Sorting takes as much again; with larger pages it would take more."""
_SHORT_LIVED = ("journal_mode = off", "synchronous = off", "temp_store = file")


def private_database(*tables: str) -> sqlite3.Connection:
    """A database that nobody else sees, with these tables."""
    database = sqlite3.connect("", isolation_level=None)
    for setting in (f"cache_size = -{_MEMORY_KIB}", *_SHORT_LIVED):
        database.execute(f"PRAGMA {setting}")
    for table in tables:
        database.execute(f"CREATE TABLE {table}")
    database.execute("BEGIN")  # never ended: nothing has to survive
    return database


@contextlib.contextmanager
def told_of_room() -> Iterator[None]:
    """Tells that there is no room for what is held as something to mend."""
    try:
        yield
    except sqlite3.OperationalError as error:
        import tempfile  # not at the top: it takes longer than all else here

        raise WorkError(
            f"ingest: no room for what it notes down of a large corpus ({error}); make room in "
            f"{tempfile.gettempdir()}, or name another folder by SQLITE_TMPDIR"
        ) from error
