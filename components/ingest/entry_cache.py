"""The entries of a corpus whose tables have not changed: they are taken from the last run, and no table is read.

<store>/lines/ingest-<hash of the corpus' path and settings>, a line cache (voxline/data/line_cache.py): each of its
entries holds up to a thousand rows of the staging table, or rejects, before recordings are probed and splits are drawn.
It counts only for the same tables: `about` names the files that it was made from.
"""

import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from voxline.components.ingest.audio_probe import RACY_SECONDS
from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, FormatReader, escape_surrogates
from voxline.components.ingest.file_index import REGULAR
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import StagingTable
from voxline.data.json_codec import encode_json, parse_json
from voxline.data.line_cache import LineCache, cache_file, write_line_cache
from voxline.store.hashing import DIGEST_BYTES

_TABLES_ALONE = (
    *("librispeech", "ljspeech", "thchs30", "fsdd", "manifest", "csv", "kaldi", "common_voice", "lhotse"),
    "text_files",
)
"""Our formats that read no recording. Of another package's format nobody knows."""
_AUDIO = tuple(extension.encode() for extension in AUDIO_EXTENSIONS)
_BATCH = 1_000
_ENTRIES, _REJECTS = b"entries", b"rejects"


class EntryCache:
    """The entries that the last run resolved, of one corpus in one store.

    Args:
      revision: of the step; raise it when a format, or the staging table, makes other entries of the same tables.
    """

    def __init__(
        self,
        store: Path | str,
        corpus: Corpus,
        settings: CorpusSettings,
        read_entries: FormatReader,
        revision: int,
    ) -> None:
        self._corpus = corpus
        self._file = cache_file(
            store,
            "ingest",
            {
                "root": escape_surrogates(str(corpus.root)),
                "name": escape_surrogates(corpus.name),
                "settings": settings.key_values(),
                "revision": revision,
                "python": list(sys.version_info[:2]),  # its Unicode tables normalize the texts
            },
        )

        # A reader of another package may bear the name of one of ours.
        known = read_entries.__module__ == f"voxline.components.ingest.corpora.{settings.format}"
        usable = known and settings.format in _TABLES_ALONE and _is_plain_folder(corpus, settings)
        self._tables = _name_tables(corpus) if usable else ""

    def restore(self, table: StagingTable) -> bool:
        """Fills an empty staging table, and returns whether it could: the tables are those of the last run."""
        if not self._tables:
            return False

        # A damaged cache has no entries, and is about nothing.
        with LineCache(self._file) as cache:
            if cache.about != {"made_of": self._tables}:
                return False
            entries = itertools.chain.from_iterable(_rows(cache, _ENTRIES))
            if not table.restore_entries(entries):
                return False
            for rejects in _rows(cache, _REJECTS):
                table.restore_rejects(rejects)
        return True

    def keep(self, table: StagingTable) -> None:
        """Writes the entries for the next run, after all of them were resolved."""
        # A recording that was looked for, through links or under another spelling, may be found elsewhere next time.
        # One whose size the tables state may have another.
        corpus = self._corpus
        if not self._tables or corpus.searched or corpus.reads_recordings or corpus.files.has_added:
            return
        with write_line_cache(self._file) as writer:
            batches = itertools.chain(
                ((_ENTRIES, rows) for rows in _batches(table.entries())),
                ((_REJECTS, rows) for rows in _batches(table.reject_rows())),
            )
            # The line cache wants a digest for each entry; nobody looks for these.
            for number, (kind, rows) in enumerate(batches):
                digest = number.to_bytes(DIGEST_BYTES, "big")
                writer.add(digest, kind.decode(), output=f"{encode_json(rows)}\n".encode())
            writer.about = {"made_of": self._tables}


def _is_plain_folder(corpus: Corpus, settings: CorpusSettings) -> bool:
    """Returns whether all of a corpus is in its folder, on this machine and without links."""
    outside = corpus.may_lead_outside or bool(corpus.external_symlinks)
    return not outside and Path(settings.uri).expanduser().is_dir()


def _name_tables(corpus: Corpus) -> str:
    """The hash of the paths of all files, and of sizes and times of those that are no recordings.

    Empty where that does not say what entries the corpus has: a file is a link, or has just been written.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    latest = corpus.listed_at - int(RACY_SECONDS * 1e9)
    for path, kind, state, changed in corpus.files.states():
        # What is behind a link may become another file, whose state nobody would look at.
        if kind != REGULAR:
            return ""

        # New bytes in a recording change no entry that is kept: its probe says what is in it.
        digest.update(path + b"\0")
        if not path.lower().endswith(_AUDIO):
            if changed >= latest:
                return ""
            digest.update(state)
    return digest.hexdigest()


def _rows(cache: LineCache, kind: bytes) -> Iterator[list[list[Any]]]:
    for entry in cache:
        if entry.fields == [kind]:
            yield parse_json(entry.output)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of up to a thousand rows."""
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, _BATCH)):
        yield batch
