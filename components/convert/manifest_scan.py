"""Scans the manifest before anything is decoded: what names it, and what is already known of each line.

A scan keeps a few numbers per line. Later stages read the lines again. A line that the last run had too is recognized
by its bytes and not parsed.
"""

import enum
import os
from array import array
from binascii import unhexlify
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from voxline.components.convert.wav_pool import WavPool
from voxline.data.json_codec import parse_json
from voxline.data.line_cache import CacheEntry, LineCache
from voxline.data.manifest import Utterance, localize_audio, manifest_path, parse_utterance, utterance_from_values
from voxline.errors import WorkError
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, hash_digest, hash_file
from voxline.store.size_limits import iter_bounded_lines

LOOKUP_BATCH = 500
"""Recordings of a bucket that are downloaded together."""


class LineStatus(enum.IntEnum):
    """The status of a line."""

    CACHED = 0
    """Its output is in the line cache."""
    DECODED = 1
    """The pool's logs say what happened to its recording."""
    NEW = 2
    """Its recording has to be decoded."""
    MISSING = 3
    """Its recording has to be decoded, and does not exist."""


class CachedLine:
    """The fields of convert's line cache, in their order.

    Attributes:
      IDENTITY: digest of the utterance in the line.
      CONVERTED: digest of the converted utterance; empty for a reject.
      WAV: its name; empty where the output does not depend on a WAV.
      SAMPLES: of the WAV.
      REASON: of a reject.
    """

    IDENTITY, CONVERTED, WAV, SAMPLES, REASON = range(5)


class LastRun(msgspec.Struct, kw_only=True, frozen=True):
    """The last run with the same settings, as the line cache describes it; empty without one.

    Attributes:
      manifest: hash of the manifest that it read.
      fingerprint: of the utterances in that manifest.
      lines: number of lines in it.
      key: of its output, the name of the folder.
      output: hash of the manifest that it wrote.
    """

    manifest: str = ""
    fingerprint: str = ""
    lines: int = 0
    key: str = ""
    output: str = ""


class ManifestScan:
    """The status of each line of a manifest.

    Attributes:
      file: the manifest.
      content: hash of its bytes.
      fingerprint: names its utterances by their content.
      statuses: a LineStatus per line.
      pool, cache: the WAVs and the lines of earlier runs.
      locations: per line, where its output is in the line cache (CACHED) or its log line in the decode logs (DECODED).
      digests: of the utterances, one after the other.
      to_decode: byte offsets of the NEW lines.
      missing: ids of the MISSING lines, by line number.
      unchanged: whether this is the manifest of the last run, and all of its output can be reused.
    """

    def __init__(self, manifest: Path, pool: WavPool, cache: LineCache) -> None:
        """Scans the manifest.

        Raises:
          WorkError: the file is absent or not a manifest, or a recording without an `audio_hash` cannot be read.
        """
        self.file = manifest_path(manifest)
        if not self.file.is_file():
            raise WorkError(f"{self.file}: no such manifest; run the step that writes it first")

        # Relative paths in the lines are relative to the manifest.
        self._folder = os.path.abspath(self.file.parent)
        self.pool = pool
        self.cache = cache
        self._name = str(self.file)
        self.content = hash_file(self.file)

        # By the number of a line; 8 bytes of location, 1 of status and a digest of 16 make a million lines some 25 MB.
        self.statuses = bytearray()
        self.locations = array("Q")
        self.digests = bytearray()
        self.to_decode = array("Q")
        self.missing: dict[int, str] = {}
        self._hashes: dict[int, str] = {}

        # Nothing is parsed where the bytes of the manifest are those of the last run and all of its WAVs are whole.
        last_run = msgspec.convert(cache.about, LastRun)
        self.unchanged = self.content == last_run.manifest and self._reuse_all(last_run.lines)
        if self.unchanged:
            self.fingerprint = last_run.fingerprint
            return

        self._scan()
        fingerprint = Fingerprint()
        for at in range(0, len(self.digests), DIGEST_BYTES):
            fingerprint.add(bytes(self.digests[at : at + DIGEST_BYTES]))
        self.fingerprint = fingerprint.name()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(byte offset, line) of each line that is not blank."""
        # A line without an end, such as that of a binary file, is refused before it fills the memory.
        with self._opened() as lines:
            offset = 0
            for _, line in iter_bounded_lines(lines, self.file):
                if not line.isspace():
                    yield offset, line
                offset += len(line)

    def utterance(self, offset: int, line: bytes) -> Utterance:
        """The utterance in a line, with the hash of its recording if that exists."""
        try:
            return self._with_hash(offset, utterance_from_values(parse_json(line), self._folder))
        except (ValueError, LookupError, TypeError, AttributeError):  # the scan could parse it
            self.check()
            raise

    def utterances_at(self, offsets: "array[int]") -> Iterator[Utterance]:
        """The utterances in the lines at some byte offsets."""
        with self._opened() as lines:
            for offset in offsets:
                lines.seek(offset)
                yield self.utterance(offset, lines.readline())

    def digest(self, number: int) -> bytes:
        """The digest of the utterance in a line."""
        return bytes(self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])

    def states_audio_hash(self, offset: int) -> bool:
        """Returns whether a line states its recording's hash. If not, it may mean another recording later."""
        return offset not in self._hashes

    def check(self) -> None:
        """Checks that the manifest has not changed since the scan.

        Raises:
          WorkError: it has.
        """
        if hash_file(self.file) != self.content:
            raise WorkError(f"{self.file}: changed while it was read; run this again when it is written")

    def _opened(self) -> IO[bytes]:
        try:
            return open(self.file, "rb")
        except FileNotFoundError:
            raise WorkError(
                f"{self.file}: removed while it was being read, probably by a purge; run ingest again, then this"
            ) from None

    def _reuse_all(self, lines: int) -> bool:
        """Takes every entry of the cache; returns False if one cannot be reused, or one of the lines has none."""
        # A line whose output was not reusable, such as that of a missing file, is not in the cache.
        if lines != self.cache.count:
            return False
        for entry in self.cache:
            if not self._can_reuse(entry):
                self._clear()
                return False
            self._add_cached(entry)
        return True

    def _clear(self) -> None:
        self.statuses = bytearray()
        self.locations = array("Q")
        self.digests = bytearray()

    def _can_reuse(self, entry: CacheEntry) -> bool:
        """Returns whether the WAV is whole, if the entry has one."""
        wav = entry.fields[CachedLine.WAV]
        return not wav or self.pool.is_whole(wav.decode(), int(entry.fields[CachedLine.SAMPLES]))

    def _scan(self) -> None:
        # (number of the line, byte offset, utterance) of recordings that no log knows, in batches for downloads.
        new: list[tuple[int, int, Utterance]] = []
        for offset, line in self.lines():
            entry = self.cache.find(hash_digest(line))
            if entry and self._can_reuse(entry):
                self._add_cached(entry)
                continue

            utterance = parse_utterance(line, f"{self._name}: byte {offset:,}", self._folder)
            if utterance.audio_hash:
                location = self.pool.find_decoded(self.pool.name(utterance))
                self._add(LineStatus.NEW if location is None else LineStatus.DECODED, location, utterance.digest())
                if location is not None:
                    continue
            else:
                self._add(LineStatus.NEW, None, bytes(DIGEST_BYTES))

            new.append((len(self.statuses) - 1, offset, utterance))

            if len(new) == LOOKUP_BATCH:
                self._look_up(new)
                new = []
        self._look_up(new)

    def _add(self, status: LineStatus, location: int | None, digest: bytes) -> None:
        self.statuses.append(status)
        self.locations.append(location or 0)
        self.digests += digest

    def _add_cached(self, entry: CacheEntry) -> None:
        self._add(LineStatus.CACHED, entry.offset, unhexlify(entry.fields[CachedLine.IDENTITY]))

    def _look_up(self, new: list[tuple[int, int, Utterance]]) -> None:
        """Looks for the recordings of NEW lines: (number of the line, byte offset, utterance)."""
        # Without a hash in the line, the recording itself has to be read before it can have a name in the pool.
        if unnamed := [item for item in new if not item[2].audio_hash]:
            localize_audio(utterance for _, _, utterance in unnamed)
            for number, offset, utterance in unnamed:
                self._hashes[offset] = _hash_recording(utterance)
                named = self._with_hash(offset, utterance)
                self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = named.digest()
                if (location := self.pool.find_decoded(self.pool.name(named))) is not None:
                    self.statuses[number] = LineStatus.DECODED
                    self.locations[number] = location
            new = [item for item in new if self.statuses[item[0]] == LineStatus.NEW]

        # Those that are not on this disk may be in a bucket.
        absent = [item for item in new if not _exists(item[2])]
        localize_audio(utterance for _, _, utterance in absent)
        for number, _, utterance in absent:
            if not _exists(utterance):
                self.statuses[number] = LineStatus.MISSING
                self.missing[number] = utterance.id

        self.to_decode.extend(offset for number, offset, _ in new if number not in self.missing)

    def _with_hash(self, offset: int, utterance: Utterance) -> Utterance:
        return utterance if utterance.audio_hash else utterance.replace(audio_hash=self._hashes[offset])


def _hash_recording(utterance: Utterance) -> str:
    """The hash of a recording; empty if it does not exist."""
    if not _exists(utterance):
        return ""
    try:
        return hash_file(Path(utterance.audio_filepath))
    except OSError as error:
        raise WorkError(
            f"convert: {utterance.id}: {utterance.audio_filepath} cannot be read ({error.strerror}); fix its "
            "permissions, or remove its line from the manifest"
        ) from None


def _exists(utterance: Utterance) -> bool:
    # `Path.is_file` raises for a name that is too long, and takes three times as long.
    return os.path.isfile(utterance.audio_filepath)  # noqa: PTH113
