"""What a manifest asks for: its rows, and the clips whose features they need. No audio is read, and little is kept.

The manifest is read line by line; of each utterance there stay an id, some numbers and the names of its clips. The
rows themselves go to a file at once, from which they are copied in the order of their ids.
"""

import array
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.extract.settings import ExtractSettings
from components.speech.lines import values_of
from components.speech.rows import row_line
from components.speech.shards import clip_name
from components.speech.storage import HASH_CHARACTERS, whole_file
from components.speech.text import Alphabet
from components.speech.utterances import Reason, Reject, Utterance, manifest_file, utterance_of

Names = npt.NDArray[np.bytes_]
"""Names of clips, 16 bytes each."""
NAME = np.dtype(f"S{HASH_CHARACTERS // 2}")
NONE = b"".ljust(NAME.itemsize, b"\0")
"""The name of a clip that is not wanted: a copy of an utterance outside the training split."""

PIECE = 1 << 20
"""Bytes of rows that are copied at once."""


@dataclasses.dataclass
class Intake:
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
    clips: Names
    rejects: list[Reject]
    _lines: npt.NDArray[np.int64]
    _written: npt.NDArray[np.int64]

    def clip(self, number: int, column: int) -> str:
        """The name of one of its clips, as `clip_name` gives it."""
        return bytes(self.clips[number, column]).ljust(NAME.itemsize, b"\0").hex()

    def utterances(self, which: list[int]) -> Iterator[Utterance]:
        """Some of them, read from the manifest once more."""
        folder = os.path.abspath(self.manifest.parent)
        with open(self.manifest, "rb") as file:
            for number in which:
                file.seek(self._lines[number])
                yield utterance_of(file.readline().decode(), str(self.manifest), folder)

    def write_rows(self, target: Path, keep: npt.NDArray[np.bool_]) -> None:
        """Writes the rows of those to keep, in the order of their ids."""
        with open(self.rows, "rb") as rows, whole_file(target) as out:
            begin = end = 0
            for first, last in [*self._written[keep].tolist(), (-1, -1)]:
                if first == end:  # it follows the one before here too, as all do where the manifest is in order
                    end = last
                    continue
                rows.seek(begin)
                for at in range(begin, end, PIECE):
                    out.write(rows.read(min(PIECE, end - at)))
                begin, end = first, last


def take_in(manifest: Path, settings: ExtractSettings, unfinished: Path) -> Intake:
    """Reads a manifest that is known to be one.

    Args:
      unfinished: a folder for the rows until they are sorted.
    """
    manifest, rows = manifest_file(manifest).absolute(), unfinished / "rows"
    spells = frozenset(Alphabet.named(settings.alphabet).symbols)
    interned: dict[str, str] = {}
    ids: list[str] = []
    splits: list[str] = []
    seconds = array.array("d")
    lines, written = array.array("q"), array.array("q")
    clips = bytearray()
    rejects: list[Reject] = []
    seen: set[str] = set()
    total, at, size = 0, 0, 0
    with open(manifest, "rb") as file, open(rows, "wb") as out:
        for line in file:
            begin, at = at, at + len(line)
            if line.isspace():
                continue
            total += 1
            values = values_of(line, str(manifest))
            if reject := _fault(values, spells, seen, settings):
                rejects.append(reject)
                continue
            identity, split = values["id"], values.get("split", "train")
            seen.add(identity)
            ids.append(identity)
            splits.append(interned.setdefault(split, split))
            seconds.append(values["duration"])
            lines.append(begin)
            row = row_line(values).encode()
            out.write(row)
            written.extend((size, size + len(row)))
            size += len(row)
            for speed in settings.speeds:
                clips += bytes.fromhex(clip_of(values, speed)) if speed == 1.0 or split == "train" else NONE
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    return Intake(
        manifest=manifest,
        rows=rows,
        total=total,
        ids=sorted(ids),
        splits=[splits[index] for index in order.tolist()],
        seconds=np.array(seconds)[order],
        clips=np.frombuffer(bytes(clips), NAME).reshape(-1, len(settings.speeds))[order],
        rejects=rejects,
        _lines=np.array(lines)[order],
        _written=np.array(written).reshape(-1, 2)[order],
    )


def clip_of(values: dict[str, Any], speed: float) -> str:
    """The name of the clip that a line of a manifest needs at a speed."""
    return clip_name(values["audio_hash"], values.get("offset", 0.0), values["duration"], speed)


def _fault(values: dict[str, Any], spells: frozenset[str], seen: set[str], settings: ExtractSettings) -> Reject | None:
    text = values["text"]
    if values["id"] in seen:
        detail = "another utterance before it in the manifest has this id"
        return Reject(values["id"], Reason.DUPLICATE_ID, detail)
    if not text:
        return Reject(values["id"], Reason.TRANSCRIPT_EMPTY, "no text to label it with")
    if not spells.issuperset(text):
        return Reject(values["id"], Reason.OUTSIDE_ALPHABET, Alphabet.named(settings.alphabet).fault(text))
    return None
