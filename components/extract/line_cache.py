"""What became of each line of the manifest before: a line that stands in it again is taken over without being read.

  <store>/extract/<key>/lines.bin   beside the rows of a dataset: of each line of its manifest that became a row the
                                    digest, the row's place in rows.jsonl, its seconds and the names of its clips

A line says all that a row is made of, so equal lines have equal rows. The file goes with the rows when somebody is
purged from them, and may be deleted: then the next refresh reads all lines. One that is damaged, or made under another
alphabet or for other speeds, is not used.
"""

import array
import contextlib
import dataclasses
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.components.extract.settings import ExtractSettings
from voxline.data.rows import ROWS_FILE
from voxline.store.files import atomic_write
from voxline.store.hashing import HASH_CHARACTERS, hash_bytes, hash_file
from voxline.store.objects import is_remote

ROW_CACHE = "lines.bin"
HEAD_BYTES = 65_536
"""More than what stands before the columns: an alphabet may have thousands of characters."""
NAME_BYTES = HASH_CHARACTERS // 2
Digests16 = npt.NDArray[np.bytes_]
"""Names or digests, 16 bytes each."""

_MAGIC = b"voxline lines 1\n"
"""The number is raised when a line would become another row, or another clip."""
_ROW_START = re.compile(rb'\{"id": "([^"\\]+)", "split": "([^"\\]+)", ')


@dataclasses.dataclass(frozen=True)
class CachedRows:
    """The lines that became rows of one dataset, in the order of its manifest.

    Attributes:
      digests: of the lines.
      begins, ends: bytes, of their rows.
      seconds: of each.
      clips: names, 16 bytes for each speed.
      rows: the dataset's rows.
    """

    digests: bytes | memoryview = b""
    begins: "array.array[int]" = dataclasses.field(default_factory=lambda: array.array("q"))
    ends: "array.array[int]" = dataclasses.field(default_factory=lambda: array.array("q"))
    seconds: "array.array[float]" = dataclasses.field(default_factory=lambda: array.array("d"))
    clips: bytes | memoryview = b""
    rows: Path = Path()

    def numbers(self, digests: Digests16) -> npt.NDArray[np.int64]:
        """Which of them each line is; -1 for a new one."""
        ours = np.frombuffer(self.digests, digests.dtype)
        if not len(ours) or not len(digests):
            return np.full(len(digests), -1, np.int64)
        order = np.argsort(ours, kind="stable")
        at = np.minimum(np.searchsorted(ours[order], digests), len(ours) - 1)
        return np.where(ours[order[at]] == digests, order[at], -1)

    def clips_of(self, number: int, speeds: int) -> bytes:
        """The names of the clips of one of them, one after the other."""
        width = NAME_BYTES * speeds
        return bytes(self.clips[number * width : (number + 1) * width])


def line_digests(manifest: Path) -> Digests16:
    """The digest of each line of a manifest."""
    with open(manifest, "rb") as file:
        found = b"".join(hashlib.blake2b(line, digest_size=NAME_BYTES).digest() for line in file)
    return np.frombuffer(found, f"S{NAME_BYTES}")


def read_id_and_split(row: bytes) -> tuple[str, str]:
    """What a row begins with.

    >>> (
    ...     read_id_and_split(b'{"id": "a", "split": "test", "speaker": ""}'),
    ...     read_id_and_split(b'{"id": "a\\\\n", "split": "dev"}'),
    ... )
    (('a', 'test'), ('a\\n', 'dev'))
    """
    if plain := _ROW_START.match(row):
        return plain[1].decode(), plain[2].decode()
    values = json.loads(row)
    return values["id"], values["split"]


def read_cached_rows(store: Path | str, settings: ExtractSettings) -> CachedRows:
    """What is remembered of the dataset that was made last in a folder; nothing in a bucket."""
    if is_remote(store):
        return CachedRows()
    found = []
    for file in Path(store, "extract").glob(f"*/{ROW_CACHE}"):
        with contextlib.suppress(FileNotFoundError):  # it was made again, or purged, just now
            found.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(found, reverse=True)[:1]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return _read(file, settings)
    return CachedRows()


def write_cached_rows(folder: Path, settings: ExtractSettings, lines: CachedRows) -> None:
    """Keeps the lines of a dataset beside its rows."""
    head = {"rows": hash_file(folder / ROWS_FILE), "lines": len(lines.begins), **_made_by(settings)}
    columns = (lines.begins.tobytes(), lines.ends.tobytes(), lines.seconds.tobytes())
    body = b"".join((json.dumps(head).encode(), b"\n", lines.digests, *columns, lines.clips))
    with atomic_write(folder / ROW_CACHE) as file:
        file.write(_MAGIC + hash_bytes(body).encode() + body)


def _made_by(settings: ExtractSettings) -> dict[str, object]:
    return {"alphabet": settings.alphabet, "speeds": settings.speeds}


def _read(file: Path, settings: ExtractSettings) -> CachedRows:
    """Reads the file.

    Raises:
      OSError, ValueError, KeyError, TypeError: it is damaged, or was made otherwise.
    """
    content = memoryview(file.read_bytes())
    at = len(_MAGIC) + HASH_CHARACTERS
    body = content[at:]
    if content[:at] != _MAGIC + hash_bytes(body).encode():
        raise ValueError("damaged, or of another version")
    first, rows = bytes(body[:HEAD_BYTES]).partition(b"\n")[0], file.parent / ROWS_FILE
    head = json.loads(first)
    if {name: head[name] for name in ("alphabet", "speeds")} != _made_by(settings) or head["rows"] != hash_file(rows):
        raise ValueError("made otherwise")
    count, at = head["lines"], len(first) + 1
    digests, at = body[at : at + NAME_BYTES * count], at + NAME_BYTES * count
    begins, ends, seconds = array.array("q"), array.array("q"), array.array("d")
    for column in (begins, ends, seconds):
        column.frombytes(body[at : at + 8 * count])
        at += 8 * count
    return CachedRows(digests, begins, ends, seconds, body[at:], rows)
