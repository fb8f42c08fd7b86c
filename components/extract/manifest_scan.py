"""Scans a manifest for its rows and the clips whose features they need. No audio is read.

The manifest is read line by line. Memory holds an id, some numbers and the clips of each utterance. Rows go to a file
at once, and are copied from there in the order of their ids. A piece of some lines that the last run had too is not
parsed: the line cache has its rows.
"""

import array
import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from voxline.components.extract.settings import ExtractSettings
from voxline.data.json_codec import parse_line
from voxline.data.line_cache import (
    CacheEntry,
    LineCache,
    cache_file,
    changed_lines,
    hash_lines,
    iter_pieces,
    write_line_cache,
)
from voxline.data.manifest import NEGATIVE, Utterance, manifest_path, parse_utterance
from voxline.data.rows import encode_row
from voxline.data.shards import clip_name
from voxline.rejects import Reason, Reject
from voxline.store.files import atomic_write
from voxline.store.hashing import DIGEST_BYTES
from voxline.store.size_limits import FILE_BUFFER
from voxline.text.alphabet import Alphabet

CLIP_DTYPE = np.dtype(f"S{DIGEST_BYTES}")
Clips = npt.NDArray[np.bytes_]
"""Names of clips, 16 bytes each; `b""` for a clip that is not wanted."""
NO_CLIP = bytes(DIGEST_BYTES)
"""The name of a clip that is not wanted: a copy of an utterance outside the training split."""

ROW_REVISION = 3
"""Raise it when a line would become another row, or need another clip, or is kept in another form."""

COPY_BYTES = 1 << 20
"""Bytes of rows that are copied at once."""


@dataclasses.dataclass
class ScannedManifest:
    """The utterances of a manifest that can be labelled, in the order of their ids.

    Attributes:
      total: lines of the manifest.
      ids, splits, seconds: of each utterance.
      clips: `[utterances, speeds]`, the clips that it needs.
      rejects: what cannot be labelled.
    """

    manifest: Path
    rows: Path
    total: int
    ids: list[str]
    splits: list[str]
    seconds: npt.NDArray[np.float64]
    clips: Clips
    rejects: list[Reject]
    _lines: npt.NDArray[np.int64]
    _row_ranges: npt.NDArray[np.int64]

    def clip(self, number: int, column: int) -> str:
        """The name of a clip, as `clip_name` gives it."""
        return bytes(self.clips[number, column]).ljust(DIGEST_BYTES, b"\0").hex()

    def utterances(self, numbers: list[int]) -> Iterator[Utterance]:
        """Some utterances, read from the manifest again."""
        folder = os.path.abspath(self.manifest.parent)
        with open(self.manifest, "rb") as file:
            for number in numbers:
                file.seek(self._lines[number])
                yield parse_utterance(file.readline().decode(), str(self.manifest), folder)

    def write_rows(self, target: Path, keep: npt.NDArray[np.bool_]) -> None:
        """Writes the rows to keep, in the order of their ids."""
        # Rows that follow each other are copied together, as all are where the manifest is in order.
        begins, ends = self._row_ranges[keep].T
        is_first = begins != np.append(-1, ends[:-1])[: len(begins)]
        is_last = ends != np.append(begins[1:], -1)[: len(ends)]

        with open(self.rows, "rb") as rows, atomic_write(target) as out:
            for begin, end in zip(begins[is_first].tolist(), ends[is_last].tolist(), strict=True):
                rows.seek(begin)
                for at in range(begin, end, COPY_BYTES):
                    out.write(rows.read(min(COPY_BYTES, end - at)))


def scan_manifest(manifest: Path, settings: ExtractSettings, unfinished: Path, store: Path | str) -> ScannedManifest:
    """Scans a manifest, and caches its rows for the next run.

    Args:
      unfinished: a folder for the rows until they are sorted.
      store: holds the line cache.

    Raises:
      WorkError: a line is not an utterance's.
    """
    manifest = manifest_path(manifest).absolute()
    rows = unfinished / "rows"

    # A cache of other settings is another file: its rows may be labelled by another alphabet.
    made_by = {"alphabet": settings.alphabet, "speeds": settings.speeds, "revision": ROW_REVISION}
    cached = cache_file(store, "extract", made_by)
    with (
        open(manifest, "rb", FILE_BUFFER) as lines,
        open(rows, "wb", FILE_BUFFER) as out,
        LineCache(cached) as cache,
        write_line_cache(cached) as writer,
    ):
        collector = _RowCollector(settings, str(manifest), out)
        offset = 0
        for digest, piece in iter_pieces(lines, manifest):
            # A second line with an id must become a reject, so that the cache does not answer for its piece.
            entry = cache.find(digest)
            if entry and collector.add_piece(_decode_piece(entry.output), offset):
                writer.copy(entry.raw)
            else:
                last = None if entry else cache.take_next()
                rows_of_piece = collector.piece_like(last, piece) if last else None
                if not (rows_of_piece and collector.add_piece(rows_of_piece, offset)):
                    rows_of_piece = collector.add_lines(piece, offset)
                if rows_of_piece:
                    writer.add(digest, output=_encode_piece(rows_of_piece) + b"\n")
            offset += sum(map(len, piece))

    # [rows, 2]: where each begins and ends, as they follow each other.
    ends = np.cumsum(np.array(collector.row_bytes, np.int64))
    row_ranges = np.stack([ends - np.array(collector.row_bytes, np.int64), ends], axis=1)

    # By id, whatever the order of the manifest: so that the same utterances are the same dataset, byte by byte.
    order = np.array(sorted(range(len(collector.ids)), key=collector.ids.__getitem__), np.int64)
    return ScannedManifest(
        manifest=manifest,
        rows=rows,
        total=collector.total,
        ids=sorted(collector.ids),
        splits=[collector.splits[index] for index in order.tolist()],
        seconds=np.array(collector.seconds)[order],
        clips=np.frombuffer(bytes(collector.clips), CLIP_DTYPE).reshape(-1, len(settings.speeds))[order],
        rejects=collector.rejects,
        _lines=np.array(collector.lines, np.int64)[order],
        _row_ranges=row_ranges[order],
    )


class _Piece(msgspec.Struct, array_like=True):
    """The rows of some lines of a manifest, none of which is a reject.

    Attributes:
      ids, splits, seconds: of each row.
      clips: of all rows, in hexadecimal, as in `ScannedManifest.clips`.
      offsets: byte of each row's line, from the beginning of the piece.
      rows: JSON.
      lines: of the rows, as `hash_lines` gives them.
    """

    ids: list[str]
    splits: list[str]
    seconds: list[float]
    clips: str
    offsets: list[int]
    rows: list[msgspec.Raw]
    lines: str


_decode_piece = msgspec.json.Decoder(_Piece).decode
_encode_piece = msgspec.json.Encoder().encode


class _RowCollector:
    """Collects the rows of a manifest in its order.

    Attributes:
      total: lines so far.
      rejects: lines that cannot be labelled.
      ids, splits, seconds, clips: of the rows.
      lines: byte offset of each row's line in the manifest.
      row_bytes: of each row in the file of rows, with its end.
    """

    def __init__(self, settings: ExtractSettings, manifest: str, rows: IO[bytes]) -> None:
        self._settings = settings
        self._manifest = manifest
        self._rows = rows

        self._symbols = frozenset(Alphabet.from_name(settings.alphabet).symbols)
        self._seen: set[str] = set()
        self._split_names: dict[str, str] = {}

        self.total = 0
        self.rejects: list[Reject] = []
        self.ids: list[str] = []
        self.splits: list[str] = []
        self.seconds = array.array("d")
        self.clips = bytearray()
        self.lines = array.array("q")
        self.row_bytes = array.array("q")

    def add_piece(self, piece: _Piece, offset: int) -> bool:
        """Adds the rows of a piece, unless one of them has an id that was there before; returns whether it did.

        Args:
          offset: byte of the manifest at which the piece begins.
        """
        if not self._seen.isdisjoint(piece.ids):
            return False
        self._seen.update(piece.ids)
        self.total += len(piece.ids)
        self._add(piece, offset)
        return True

    def add_lines(self, lines: list[bytes], offset: int) -> _Piece | None:
        """Adds the rows of a piece's lines, and the rejects; returns the piece, or None: it has a reject."""
        piece = _Piece([], [], [], "", [], [], "")
        rejects = len(self.rejects)
        begin = 0
        for line in lines:
            if not line.isspace():
                self.total += 1
                values = parse_line(line, self._manifest)
                if reject := self._check_label(values):
                    self.rejects.append(reject)
                else:
                    self._seen.add(values["id"])
                    self._append(values, begin, piece)
            begin += len(line)
        self._add(piece, offset)
        if len(self.rejects) > rejects:
            return None
        piece.lines = hash_lines(line for line in lines if not line.isspace())
        return piece

    def piece_like(self, entry: CacheEntry, lines: list[bytes]) -> _Piece | None:
        """Makes a piece of some lines that has all rows of another one whose lines are the same.

        Args:
          entry: of the other piece.

        Returns:
          None, where lines were added or removed, one is blank or a reject, or an id is there twice.
        """
        piece = _decode_piece(entry.output)
        hashes = hash_lines(lines)
        if (changed := changed_lines(piece.lines, hashes)) is None:
            return None

        piece.lines = hashes
        ends = list(itertools.accumulate(map(len, lines)))
        piece.offsets = [0, *ends[:-1]]
        width = len(piece.clips) // len(piece.ids)
        for number in changed:
            if lines[number].isspace():
                return None
            values = parse_line(lines[number], self._manifest)
            if self._check_label(values):
                return None
            row = _Piece([], [], [], "", [], [], "")
            self._append(values, 0, row)
            piece.ids[number : number + 1] = row.ids
            piece.splits[number : number + 1] = row.splits
            piece.seconds[number : number + 1] = row.seconds
            piece.clips = piece.clips[: number * width] + row.clips + piece.clips[(number + 1) * width :]
            piece.rows[number : number + 1] = row.rows
        return piece if len({*piece.ids}) == len(piece.ids) else None

    def _append(self, values: dict[str, Any], begin: int, piece: _Piece) -> None:
        """Adds the row of a line to a piece."""
        # Only training utterances have copies at other speeds.
        split = values.get("split", "train")
        clips = (
            clip_of_line(values, speed) if speed == 1.0 or split == "train" else NO_CLIP.hex()
            for speed in self._settings.speeds
        )
        piece.ids.append(values["id"])
        piece.splits.append(split)
        piece.seconds.append(float(values["duration"]))
        piece.clips += "".join(clips)
        piece.offsets.append(begin)
        piece.rows.append(msgspec.Raw(encode_row(values).rstrip("\n").encode()))

    def _add(self, piece: _Piece, offset: int) -> None:
        self.ids += piece.ids
        self.splits += [self._split_names.setdefault(split, split) for split in piece.splits]  # one object for equals
        self.seconds.extend(piece.seconds)
        self.clips += bytes.fromhex(piece.clips)
        self.lines.extend([offset + begin for begin in piece.offsets])

        rows = b"\n".join([*piece.rows, b""])
        self.row_bytes.extend([len(row) + 1 for row in rows.split(b"\n")[:-1]])
        self._rows.write(rows)

    def _check_label(self, values: dict[str, Any]) -> Reject | None:
        # Of utterances with the same id the first one counts.
        text = values["text"]
        if values["id"] in self._seen:
            return Reject(values["id"], Reason.DUPLICATE_ID, "another utterance before it in the manifest has this id")
        if not text and not values.get(NEGATIVE):
            return Reject(values["id"], Reason.TRANSCRIPT_EMPTY, "no text to label it with")
        if not self._symbols.issuperset(text):
            fault = Alphabet.from_name(self._settings.alphabet).describe_unknown(text)
            return Reject(values["id"], Reason.OUTSIDE_ALPHABET, fault)
        return None


def clip_of_line(values: dict[str, Any], speed: float) -> str:
    """The name of the clip that a manifest's line needs at a speed."""
    return clip_name(values["audio_hash"], values.get("offset", 0.0), values["duration"], speed)
