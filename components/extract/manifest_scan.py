"""What a manifest asks for: its rows, and the clips whose features they need. No audio is read, and little is kept.

The manifest is read line by line; of each utterance there stay an id, some numbers and the names of its clips. The
rows themselves go to a file at once, from which they are copied in the order of their ids.
"""

import array
import contextlib
import dataclasses
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from voxline.components.extract.line_cache import CachedRows, Digests16, line_digests, read_id_and_split
from voxline.components.extract.settings import ExtractSettings
from voxline.data.json_codec import parse_line
from voxline.data.manifest import Utterance, manifest_path, parse_utterance
from voxline.data.rows import encode_row
from voxline.data.shards import clip_name
from voxline.rejects import Reason, Reject
from voxline.store.files import atomic_write
from voxline.store.hashing import HASH_CHARACTERS
from voxline.text.alphabet import Alphabet

CLIP_DTYPE = np.dtype(f"S{HASH_CHARACTERS // 2}")
NO_CLIP = b"".ljust(CLIP_DTYPE.itemsize, b"\0")
"""The name of a clip that is not wanted: a copy of an utterance outside the training split."""

COPY_BYTES = 1 << 20
"""Bytes of rows that are copied at once."""


@dataclasses.dataclass
class ScannedManifest:
    """The utterances of a manifest that can be labelled, in the order of their ids.

    Attributes:
      total: lines of the manifest.
      ids, splits, seconds: of each utterance.
      clips: `[utterances, speeds]`, names of the clips that it needs.
      rejects: what cannot be labelled.
    """

    manifest: Path
    rows: Path
    total: int
    ids: list[str]
    splits: list[str]
    seconds: npt.NDArray[np.float64]
    clips: Digests16
    rejects: list[Reject]
    _lines: npt.NDArray[np.int64]
    _written: npt.NDArray[np.int64]
    _digests: Digests16

    def clip(self, number: int, column: int) -> str:
        """The name of one of its clips, as `clip_name` gives it."""
        return bytes(self.clips[number, column]).ljust(CLIP_DTYPE.itemsize, b"\0").hex()

    def utterances(self, which: list[int]) -> Iterator[Utterance]:
        """Some of them, read from the manifest once more."""
        folder = os.path.abspath(self.manifest.parent)
        with open(self.manifest, "rb") as file:
            for number in which:
                file.seek(self._lines[number])
                yield parse_utterance(file.readline().decode(), str(self.manifest), folder)

    def write_rows(self, target: Path, keep: npt.NDArray[np.bool_]) -> None:
        """Writes the rows of those to keep, in the order of their ids."""
        with open(self.rows, "rb") as rows, atomic_write(target) as out:
            begin = end = 0
            for first, last in [*self._written[keep].tolist(), (-1, -1)]:
                if first == end:  # it follows the one before here too, as all do where the manifest is in order
                    end = last
                    continue
                rows.seek(begin)
                for at in range(begin, end, COPY_BYTES):
                    out.write(rows.read(min(COPY_BYTES, end - at)))
                begin, end = first, last

    def remembered(self, keep: npt.NDArray[np.bool_]) -> CachedRows:
        """What the next extraction need not read again, of those to keep."""
        sizes = self._written[keep, 1] - self._written[keep, 0]
        ends = np.cumsum(sizes)
        in_order = np.argsort(self._lines[keep])  # as they stand in the manifest
        return CachedRows(
            self._digests[keep][in_order].tobytes(),
            array.array("q", (ends - sizes)[in_order].tobytes()),
            array.array("q", ends[in_order].tobytes()),
            array.array("d", self.seconds[keep][in_order].tobytes()),
            self.clips[keep][in_order].tobytes(),
        )


def scan_manifest(
    manifest: Path, settings: ExtractSettings, unfinished: Path, before: CachedRows | None = None
) -> ScannedManifest:
    """Reads a manifest that is known to be one.

    Args:
      unfinished: a folder for the rows until they are sorted.
      before: lines that need not be read again.
    """
    manifest, rows = manifest_path(manifest).absolute(), unfinished / "rows"
    before = before or CachedRows()
    digests = line_digests(manifest)
    spells = frozenset(Alphabet.named(settings.alphabet).symbols)
    rejects: list[Reject] = []
    total, end = 0, 0
    with open(manifest, "rb") as file, open(rows, "wb") as out, _mapped_rows(before.rows) as old_rows:
        taken = _RowCollector(out)
        for place, (line, number) in enumerate(zip(file, before.numbers(digests).data, strict=True)):
            begin, end = end, end + len(line)
            if line.isspace():
                continue
            total += 1
            if number >= 0:
                row = old_rows[before.begins[number] : before.ends[number]]
                identity, split = read_id_and_split(row)
                if identity not in taken.seen:
                    clips = before.clips_of(number, len(settings.speeds))
                    taken.add(identity, split, before.seconds[number], clips, row, place, begin)
                    continue
            values = parse_line(line, str(manifest))
            if reject := _check_label(values, spells, taken.seen, settings):
                rejects.append(reject)
                continue
            split = values.get("split", "train")
            clips = b"".join(
                bytes.fromhex(clip_of_line(values, speed)) if speed == 1.0 or split == "train" else NO_CLIP
                for speed in settings.speeds
            )
            row = encode_row(values).encode()
            taken.add(values["id"], split, values["duration"], clips, row, place, begin)
    order = np.array(sorted(range(len(taken.ids)), key=taken.ids.__getitem__), np.int64)
    return ScannedManifest(
        manifest=manifest,
        rows=rows,
        total=total,
        ids=sorted(taken.ids),
        splits=[taken.splits[index] for index in order.tolist()],
        seconds=np.array(taken.seconds)[order],
        clips=np.frombuffer(bytes(taken.clips), CLIP_DTYPE).reshape(-1, len(settings.speeds))[order],
        rejects=rejects,
        _lines=np.array(taken.lines, np.int64)[order],
        _written=np.array(taken.written, np.int64).reshape(-1, 2)[order],
        _digests=digests[np.array(taken.places, np.int64)][order],
    )


class _RowCollector:
    """The utterances that can be labelled, in the order of the manifest; their rows go to a file."""

    def __init__(self, rows: IO[bytes]) -> None:
        self.ids: list[str] = []
        self.seen: set[str] = set()
        self.splits: list[str] = []
        self.seconds = array.array("d")
        self.clips = bytearray()
        self.lines, self.places, self.written = array.array("q"), array.array("q"), array.array("q")
        self._rows, self._size = rows, 0
        self._splits: dict[str, str] = {}

    def add(self, identity: str, split: str, seconds: float, clips: bytes, row: bytes, place: int, begin: int) -> None:
        self.ids.append(identity)
        self.seen.add(identity)
        self.splits.append(self._splits.setdefault(split, split))  # one string for equal ones
        self.seconds.append(seconds)
        self.clips += clips
        self.lines.append(begin)
        self.places.append(place)
        self._rows.write(row)
        self.written.extend((self._size, self._size + len(row)))
        self._size += len(row)


@contextlib.contextmanager
def _mapped_rows(rows: Path) -> Iterator[mmap.mmap | bytes]:
    """The rows of the dataset before, of which only what is wanted is read."""
    if not rows.name:
        yield b""
        return
    with open(rows, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield mapped


def clip_of_line(values: dict[str, Any], speed: float) -> str:
    """The name of the clip that a line of a manifest needs at a speed."""
    return clip_name(values["audio_hash"], values.get("offset", 0.0), values["duration"], speed)


def _check_label(
    values: dict[str, Any], spells: frozenset[str], seen: set[str], settings: ExtractSettings
) -> Reject | None:
    text = values["text"]
    if values["id"] in seen:
        detail = "another utterance before it in the manifest has this id"
        return Reject(values["id"], Reason.DUPLICATE_ID, detail)
    if not text:
        return Reject(values["id"], Reason.TRANSCRIPT_EMPTY, "no text to label it with")
    if not spells.issuperset(text):
        return Reject(values["id"], Reason.OUTSIDE_ALPHABET, Alphabet.named(settings.alphabet).fault(text))
    return None
