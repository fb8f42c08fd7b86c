"""What the last run made of a corpus whose tables have not changed: its entries, and the lines of its manifest.

<store>/lines/ingest-<hash of the corpus' path and settings>, a line cache (voxline/data/line_cache.py): each of its
entries holds up to a thousand rows of the staging table, or rejects, before recordings are probed and splits are drawn.
It counts only for the same tables: `about` names the files that it was made from.

<store>/lines/ingest_lines-<the same hash, and how a line names a recording>, another: the states of all files, some
lines of the manifest at a time, and the recordings that were rejected. Where only recordings have changed, the entries
of these alone become lines again; all others are copied.
"""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from voxline.components.ingest.audio_probe import RACY_SECONDS
from voxline.components.ingest.corpus import AUDIO_EXTENSIONS, Corpus, FormatReader, escape_surrogates
from voxline.components.ingest.file_index import BLOCK_FILES, DIGEST_FROM, REGULAR, STATE_BYTES
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.staging import StagingTable
from voxline.data.json_codec import encode_json, parse_json
from voxline.data.line_cache import LineCache, LineCacheWriter, cache_file, write_line_cache
from voxline.data.manifest import ManifestEncoder
from voxline.rejects import Reason, Reject
from voxline.store.hashing import DIGEST_BYTES
from voxline.store.objects import open_store

_TABLES_ALONE = (
    *("librispeech", "ljspeech", "thchs30", "fsdd", "manifest", "csv", "kaldi", "common_voice", "lhotse"),
    "text_files",
)
"""Our formats that read no recording. Of another package's format nobody knows."""
_AUDIO = tuple(extension.encode() for extension in AUDIO_EXTENSIONS)
_BATCH = 1_000
_KEPT_REVISION = 1
"""Raise it when `_KeptBatch`, or another form in which lines are kept, changes."""
_LINES_BATCH = 32
"""Lines that are copied, or written again, together."""
_MOST_CHANGED = 0.25
"""Of all files: where more have changed, all lines are written again."""
_ENTRIES, _REJECTS, _STATES, _LINES, _REFUSED = b"entries", b"rejects", b"states", b"lines", b"refused"
_NO_STATE = bytes(STATE_BYTES)
"""Of a file that may change again unnoticed."""


class EntryCache:
    """The entries that the last run resolved, of one corpus in one store.

    Args:
      revision: of the step; raise it when a format, or the staging table, makes other entries of the same tables, or an
        entry becomes another line.
      name: of the corpus where there are several.
    """

    def __init__(
        self,
        store: Path | str,
        corpus: Corpus,
        settings: CorpusSettings,
        read_entries: FormatReader,
        revision: int,
        name: str = "",
    ) -> None:
        self._corpus = corpus
        made_by = {
            "root": escape_surrogates(str(corpus.root)),
            "name": escape_surrogates(corpus.name),
            "settings": settings.key_values(),
            "revision": revision,
            "python": list(sys.version_info[:2]),  # its Unicode tables normalize the texts
        }
        self._file = cache_file(store, "ingest", made_by)

        # All outputs of the step are at the same depth, so that all of them name a recording alike.
        output = open_store(store).local_path() / "ingest" / "key"
        named = {"corpus": name, "first": escape_surrogates(ManifestEncoder(output).relative(f"{corpus.root}/a"))}
        self._lines_file = cache_file(store, "ingest_lines", {**made_by, **named, "kept": _KEPT_REVISION})
        self._open = contextlib.ExitStack()

        # A reader of another package may bear the name of one of ours.
        known = read_entries.__module__ == f"voxline.components.ingest.corpora.{settings.format}"
        self._usable = known and settings.format in _TABLES_ALONE and _is_plain_folder(corpus, settings)

    def __enter__(self) -> "EntryCache":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @functools.cached_property
    def _last_lines(self) -> LineCache:
        """The cache of the last run, opened once: its states and lines are of one run, whatever another writes now."""
        return self._open.enter_context(LineCache(self._lines_file))

    @functools.cached_property
    def _listing(self) -> "_Listing":
        """The corpus' files, compared with those of the last run."""
        if not self._usable:
            return _Listing()
        return _compare_files(self._corpus, _kept_states(self._last_lines) if self._last_lines.count else None)

    def restore(self, table: StagingTable, last: "KeptLines | None" = None) -> bool:
        """Fills an empty staging table, and returns whether it could: the tables are those of the last run.

        Args:
          last: whose changed recordings are wanted; None: all.
        """
        if not self._listing.tables:
            return False

        # A damaged cache has no entries, and is about nothing.
        with LineCache(self._file) as cache:
            if cache.about != {"made_of": self._listing.tables}:
                return False
            entries = itertools.chain.from_iterable(last.select(cache) if last else _values(cache, _ENTRIES))
            if not table.restore_entries(entries):
                return False
            for rejects in _values(cache, _REJECTS):
                table.restore_rejects(rejects)
        return True

    def keep(self, table: StagingTable) -> None:
        """Writes the entries for the next run, after all of them were resolved."""
        # A recording that was looked for, through links or under another spelling, may be found elsewhere next time.
        # One whose size the tables state may have another.
        corpus = self._corpus
        if not self._listing.tables or corpus.searched or corpus.reads_recordings or corpus.files.has_added:
            self._usable = False
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
            writer.about = {"made_of": self._listing.tables}

    def kept_lines(self) -> "KeptLines | None":
        """The lines of the last run; None where the tables are others, or too many recordings have changed."""
        tables = self._listing.tables
        changed = self._listing.changed
        if not tables or changed is None:
            return None
        # A damaged cache is about nothing.
        facts = self._last_lines.about
        if facts.get("made_of") != tables:
            return None
        return KeptLines(self._last_lines, changed)

    @contextlib.contextmanager
    def lines_writer(self, facts: dict[str, Any]) -> Iterator["LinesWriter"]:
        """Writes the lines for the next run.

        Args:
          facts: what the next run has to know besides, for `KeptLines.facts`.
        """
        if not (self._usable and self._listing.tables):
            yield LinesWriter(None)
            return
        with contextlib.suppress(_NotKeptError), write_line_cache(self._lines_file) as cache:
            states = self._listing.states
            size = BLOCK_FILES * STATE_BYTES
            for number, begin in enumerate(range(0, len(states), size)):
                encoded = base64.b64encode(states[begin : begin + size]).decode("ascii")
                cache.add(
                    number.to_bytes(DIGEST_BYTES, "big"), _STATES.decode(), output=f"{encode_json(encoded)}\n".encode()
                )

            writer = LinesWriter(cache)
            yield writer
            writer.close()
            cache.about = {"made_of": self._listing.tables, **facts}


class KeptLine(NamedTuple):
    """A line of the manifest.

    Attributes:
      id: of its entry.
      path: of its recording, relative to the corpus.
      split: of the utterance.
      line: JSON, with its end.
    """

    id: str
    path: str
    split: str
    line: bytes


class _KeptBatch(msgspec.Struct, array_like=True):
    """Some lines that follow each other in a manifest, as they are kept; see `KeptLine`."""

    ids: list[str]
    paths: list[str]
    splits: list[str]
    lines: list[msgspec.Raw]


class _EntryHead(msgspec.Struct, array_like=True):
    """The first values of a row of `StagingTable.entries`."""

    id: str
    path: str


_decode_heads: Callable[[bytes], list[_EntryHead]] = msgspec.json.Decoder(list[_EntryHead]).decode
_decode_lines: Callable[[bytes], _KeptBatch] = msgspec.json.Decoder(_KeptBatch).decode


class KeptLines:
    """The lines and the rejected recordings of the last run.

    Attributes:
      facts: what `EntryCache.lines_writer` was given.
      changed: the path of each recording that has another state now, with the state that it had.
      splits: by the id of each entry of these, its split.
      refused: (path, split, reject) of recordings that were rejected and have not changed.
    """

    def __init__(self, cache: LineCache, changed: dict[str, bytes]) -> None:
        self._cache = cache
        self.facts = cache.about
        self.changed = dict(changed)
        self.splits: dict[str, str] = {}
        self.refused: list[tuple[str, str, Reject]] = []

        for entry in cache:
            if entry.fields == [_LINES]:
                batch = _decode_lines(entry.output)
                if not self.changed.keys().isdisjoint(batch.paths):
                    lines = zip(batch.ids, batch.paths, batch.splits, strict=True)
                    self.splits.update((id, split) for id, path, split in lines if path in self.changed)
            elif entry.fields == [_REFUSED]:
                for path, split, id, reason, detail, again in parse_json(entry.output):
                    if again:  # it may be readable now, whatever its state
                        self.changed.setdefault(path, _NO_STATE)
                    if path in self.changed:
                        self.splits[id] = split
                    else:
                        self.refused.append((path, split, Reject(id, Reason(reason), detail)))

    def select(self, cache: LineCache) -> Iterator[list[Any]]:
        """Yields the entries of changed recordings, without those that were left out; for `EntryCache.restore`.

        Args:
          cache: of all entries, in batches.
        """
        for entry in cache:
            # Most batches have none, and are parsed no further than to their paths.
            if entry.fields == [_ENTRIES] and any(row.path in self.changed for row in _decode_heads(entry.output)):
                yield [row for row in parse_json(entry.output) if row[0] in self.splits and row[1] in self.changed]

    def merge(self, lines: Iterable[KeptLine], out: IO[bytes], writer: "LinesWriter") -> Counter[str]:
        """Writes the lines of a manifest: those that have not changed, and new ones.

        Args:
          lines: of the changed recordings, by id.

        Returns:
          The number of lines by split.
        """
        counts: Counter[str] = Counter()
        remaining = iter(lines)
        new = next(remaining, None)

        for entry in self._cache:
            if entry.fields != [_LINES]:
                continue
            batch = _decode_lines(entry.output)
            # No line of the batch has changed, and no new one comes before its last.
            if self.changed.keys().isdisjoint(batch.paths) and (new is None or new.id > batch.ids[-1]):
                counts.update(batch.splits)
                out.write(b"\n".join([*batch.lines, b""]))
                writer.copy(entry.raw)
                continue

            new_lines: list[KeptLine] = []
            while new is not None and new.id <= batch.ids[-1]:
                new_lines.append(new)
                new = next(remaining, None)
            if self._replace(batch, new_lines):
                counts.update(batch.splits)
                out.write(b"\n".join([*batch.lines, b""]))
                writer.add_batch(batch)
                continue

            # By id, as the manifest is.
            encoded = (bytes(line) + b"\n" for line in batch.lines)
            lines_before = map(KeptLine, batch.ids, batch.paths, batch.splits, encoded)
            unchanged = [line for line in lines_before if line.path not in self.changed]
            for line in sorted([*unchanged, *new_lines]):
                _write_line(line, out, writer, counts)

        while new is not None:
            _write_line(new, out, writer, counts)
            new = next(remaining, None)
        return counts

    def _replace(self, batch: _KeptBatch, lines: list[KeptLine]) -> bool:
        """Puts new lines into a batch, and returns whether it could: they are of the same ids, paths and splits."""
        places = [place for place, path in enumerate(batch.paths) if path in self.changed]
        named = [(batch.ids[place], batch.paths[place], batch.splits[place]) for place in places]
        if named != [line[:3] for line in lines]:
            return False
        for place, line in zip(places, lines, strict=True):
            batch.lines[place] = msgspec.Raw(line.line.rstrip(b"\n"))
        return True


class LinesWriter:
    """Writes what `KeptLines` reads.

    Args:
      cache: None: nothing is written.
    """

    def __init__(self, cache: LineCacheWriter | None) -> None:
        self._cache = cache
        self._number = 0
        self._waiting: list[KeptLine] = []
        self._refused: list[tuple[str, str, str, str, str, bool]] = []
        self._dropped = False

    def add(self, line: KeptLine) -> None:
        """Adds a line of the manifest."""
        if self._cache:
            self._waiting.append(line)
            if len(self._waiting) == _LINES_BATCH:
                self._flush()

    def add_batch(self, batch: _KeptBatch) -> None:
        """Adds lines that follow each other."""
        self._flush()
        if self._cache:
            self._add(_LINES, batch)

    def copy(self, raw: bytes) -> None:
        """Adds lines as the last run kept them."""
        if self._cache:
            self._flush()
            self._cache.copy(raw)

    def refuse(self, path: str, split: str, reject: Reject, *, again: bool) -> None:
        """Adds an entry whose recording was rejected.

        Args:
          again: it is probed again by the next run, also if its state is the same.
        """
        if self._cache:
            self._refused.append((path, split, reject.id, str(reject.reason), reject.detail, again))

    def drop(self) -> None:
        """Leaves what the run before kept: what this run says depends on more than lines and rejects."""
        self._dropped = True

    def close(self) -> None:
        if self._dropped:
            raise _NotKeptError
        self._flush()
        if self._cache and self._refused:
            self._add(_REFUSED, self._refused)

    def _flush(self) -> None:
        if self._waiting:
            ids, paths, splits, lines = map(list, zip(*self._waiting, strict=True))
            self._add(_LINES, _KeptBatch(ids, paths, splits, [msgspec.Raw(line.rstrip(b"\n")) for line in lines]))
            self._waiting.clear()

    def _add(self, kind: bytes, values: Any) -> None:
        assert self._cache  # noqa: S101 -- callers have looked
        self._cache.add(bytes(DIGEST_BYTES), kind.decode(), output=msgspec.json.encode(values) + b"\n")


class _NotKeptError(Exception):
    """The lines are not kept."""


@dataclasses.dataclass
class _Listing:
    """The files of a corpus, compared with those of the last run.

    Attributes:
      tables: the hash of the paths of all files, and of sizes and times of those that are no recordings; empty where
        that does not say what entries the corpus has: a file is a link, or has just been written.
      states: of all files, packed, in order of their paths.
      changed: the path of each file whose state was another at the last run, with that state; None: nobody knows, or
        too many have changed.
    """

    tables: str = ""
    states: bytes = b""
    changed: dict[str, bytes] | None = None


def _is_plain_folder(corpus: Corpus, settings: CorpusSettings) -> bool:
    """Returns whether all of a corpus is in its folder, on this machine and without links."""
    outside = corpus.may_lead_outside or bool(corpus.external_symlinks)
    return not outside and Path(settings.uri).expanduser().is_dir()


def _compare_files(corpus: Corpus, before: Iterator[bytes] | None) -> _Listing:
    """
    Args:
      before: the states of all files at the last run, in blocks and in order of their paths. They mean the same files
        only if the tables are the same, with which all paths are.
    """
    import numpy as np  # not at the top: an unchanged corpus does not need it

    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    latest = corpus.listed_at - int(RACY_SECONDS * 1e9)
    most = int(_MOST_CHANGED * len(corpus.files))
    changed: dict[str, bytes] = {}
    all_states = bytearray()

    for paths, kinds, states in corpus.files.blocks():
        # What is behind a link may become another file, whose state nobody would look at.
        if kinds != bytes([REGULAR]) * len(paths):
            return _Listing()

        # [files] in ns, the later of both times
        times = np.frombuffer(states, "<i8").reshape(len(paths), -1)[:, -2:].max(axis=1)
        is_recent = times >= latest
        named = [path + b"\0" for path in paths]
        for number, path in enumerate(paths):
            # New bytes in a recording change no entry that is kept: its probe says what is in it.
            if not (path.endswith(_AUDIO) or path.lower().endswith(_AUDIO)):
                if is_recent[number]:
                    return _Listing()
                begin = number * STATE_BYTES
                named[number] += states[begin + DIGEST_FROM : begin + STATE_BYTES]
        digest.update(b"".join(named))

        if before is not None and (block_before := next(before, b"")) != states:
            changed |= _changed_states(paths, states, block_before)
            before = before if len(changed) <= most else None
        if is_recent.any():
            rows = np.frombuffer(states, np.uint8).reshape(len(paths), -1) * ~is_recent[:, None]
            states = rows.tobytes()
        all_states += states
    return _Listing(digest.hexdigest(), bytes(all_states), None if before is None else changed)


def _changed_states(paths: list[bytes], states: bytes, before: bytes) -> dict[str, bytes]:
    """The paths of the files of a block whose states have changed, with those that they had."""
    ranges = (slice(at, at + STATE_BYTES) for at in range(0, len(states), STATE_BYTES))
    return {
        os.fsdecode(path): before[at] or _NO_STATE
        for path, at in zip(paths, ranges, strict=True)
        if states[at] != before[at]
    }


def _kept_states(cache: LineCache) -> Iterator[bytes]:
    return (base64.b64decode(encoded) for encoded in _values(cache, _STATES))


def _write_line(line: KeptLine, out: IO[bytes], writer: LinesWriter, counts: Counter[str]) -> None:
    out.write(line.line)
    writer.add(line)
    counts[line.split] += 1


def _values(cache: LineCache, kind: bytes) -> Iterator[Any]:
    """Yields the values of the entries of a kind."""
    for entry in cache:
        if entry.fields == [kind]:
            yield parse_json(entry.output)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of up to a thousand rows."""
    iterator = iter(rows)
    while batch := list(itertools.islice(iterator, _BATCH)):
        yield batch
