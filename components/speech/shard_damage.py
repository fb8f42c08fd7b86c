"""Damage of a shard: how it shows without reading all of it, and how a reader who meets it tells the next extraction.

A shard's `shard.json` is written last, and nothing in its folder ever changes. So a file that is younger than it was
written to since, or copied: its content is looked at then, once. What no clock tells, as a bit that a disk lost, is
found by who reads it: each record has a checksum, and so have the sums. A reader leaves a note in the folder, and the
next extraction puts the shard aside and makes its clips again.
"""

import contextlib
import os
from pathlib import Path

from components.speech.errors import WorkError
from components.speech.mirror import is_mirrored
from components.speech.shards import SHARD, ShardIndex
from components.speech.storage import hash_file, write_text

NOTE = "damaged"
AGAIN = "run extract again (`voxline run refresh` does), which makes its clips anew"


def damage_of(records: Path, size: int) -> str:
    """In words, what can be seen to be wrong with a shard on a disk of ours; empty where nothing.

    Args:
      records: its file of records.
      size: bytes of that file.
    """
    sums, index, note = records.with_suffix(".npy"), records.parent / SHARD, records.parent / NOTE
    try:
        found = records.stat()
        if found.st_size != size:
            return f"{records}: cut short, {found.st_size:,} of {size:,} bytes"
        youngest, told = max(found.st_mtime_ns, sums.stat().st_mtime_ns), index.stat().st_mtime_ns
        if note.exists():
            return f"{records}: damaged, as one who read it found ({note.read_text(encoding='utf-8').strip()})"
        return _looked_into(records) if youngest > told else ""
    except FileNotFoundError as error:
        return f"{error.filename}: absent"
    except (OSError, WorkError) as error:
        return str(error)


def noted(records: Path, what: str) -> WorkError:
    """What to raise where a record turns out to be damaged; leaves a note for the next extraction."""
    if is_mirrored(records):
        return WorkError(f"{records}: damaged {what}; delete that copy of what lies in the bucket, and start again")
    with contextlib.suppress(OSError):  # a store that may only be read
        write_text(records.parent / NOTE, f"{what}\n")
    return WorkError(f"{records}: damaged {what}; {AGAIN}")


def _looked_into(records: Path) -> str:
    """Reads all of a shard, of which something is younger than its index."""
    import google_crc32c  # not at the top: who only looks whether shards are there needs none

    index = ShardIndex.read(records.parent)
    if hash_file(records) != index.checksum:
        return f"{records}: written to since it was made"
    if index.sums_crc32c not in (None, google_crc32c.value(records.with_suffix(".npy").read_bytes())):
        return f"{records.with_suffix('.npy')}: written to since it was made"
    with contextlib.suppress(OSError):  # it was only copied; a store that may only be read is looked at each time
        os.utime(index.folder / SHARD)
    return ""
