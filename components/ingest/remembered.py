"""What recordings were found to be, remembered: a corpus of which one file changed is not read as a whole again.

A file is known again by what the file system says of it: device, inode, size, time of modification and time of change
(which no program can put back). Its name does not matter. As git does with its index, a file that was touched within
seconds of being looked at is not remembered: a clock may not have moved on before it was touched again.

  <store>/measured/<hash of the corpus' folder>   all that one listing found; replaced as a whole

Two runs at once each write what is true; the later one's stays. What is damaged is made again.
"""

import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path

from components.ingest.corpus import Corpus, Listed, escaped
from components.ingest.recordings import Recording
from components.speech.progress import say
from components.speech.storage import clear_unfinished, hash_value, whole_file

RACY_SECONDS = 3.0
"""FAT's clock moves every two seconds, that of every other file system more often."""

_MAGIC = b"voxline measured 1\n"
"""The number is raised when a recording would be measured otherwise."""
_FILE = struct.Struct("<QQqqq")
_FOUND = struct.Struct("<16sd")
_DIGEST_BYTES = 16


class Remembered:
    """What is known of the files of a corpus.

    Where nothing is known of its folder yet, what is known of others is looked at: it may have been moved.
    """

    def __init__(self, store: Path, corpus: Corpus) -> None:
        folder = store / "measured"
        self._corpus = corpus
        self._file = folder / hash_value(escaped(str(corpus.root)))
        files = [self._file] if self._file.is_file() else sorted(folder.glob("[0-9a-f]*"))
        self._known: dict[bytes, bytes] = {}
        for file in files:
            self._known |= _read(file)

    def of(self, paths: Iterable[str]) -> dict[str, Recording]:
        """Of those files the ones that are known."""
        found: dict[str, Recording] = {}
        for path in paths:
            if known := self._known.get(_key(self._corpus.files[path])):
                hash, seconds = _FOUND.unpack(known)
                found[path] = Recording(hash.hex(), seconds)
        return found

    def keep(self, recordings: dict[str, Recording]) -> None:
        """Remembers these, and nothing else of this folder."""
        latest = self._corpus.listed_at - int(RACY_SECONDS * 1e9)
        body = bytearray()
        for path, recording in recordings.items():
            file = self._corpus.files[path]
            if not recording.fault and max(file.modified, file.changed) < latest:
                body += _key(file) + _FOUND.pack(bytes.fromhex(recording.hash), recording.seconds)
        clear_unfinished(self._file.parent)
        with whole_file(self._file) as out:
            out.write(_MAGIC + _digest(body) + body)


def _read(file: Path) -> dict[bytes, bytes]:
    try:
        content = memoryview(file.read_bytes())
    except OSError:
        return {}  # another run's, that has just gone
    head = len(_MAGIC) + _DIGEST_BYTES
    body, size = content[head:], _FILE.size + _FOUND.size
    if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : head] != _digest(body) or len(body) % size:
        say(f"ingest: {file} is damaged, or of another version; the recordings are read again")
        return {}
    whole = bytes(body)
    return {whole[at : at + _FILE.size]: whole[at + _FILE.size : at + size] for at in range(0, len(whole), size)}


def _key(file: Listed) -> bytes:
    return _FILE.pack(file.device, file.inode, file.size, file.modified, file.changed)


def _digest(body: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
