"""The manifest that comes in, looked at line by line: what names it, and what is known of each recording.

Of a line there is held where what is known of it stands, and the digest of its utterance; whoever wants more reads the
line again. A line that came in before is known by its bytes, without being parsed.
"""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from voxline.components.convert.line_cache import HAS_WAV, NEEDS_SOURCE, CachedLine, LineCache
from voxline.components.convert.wav_pool import WavPool
from voxline.data.json_codec import parse_json
from voxline.data.manifest import Utterance, manifest_path, parse_utterance, utterance_from_values
from voxline.errors import WorkError
from voxline.store.bucket_cache import ensure_local
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, hash_digest, hash_file

NOT_DECODED = -1
"""What stands for a recording that nobody has listened to."""

LOOKUP_BATCH = 500
"""Utterances that are looked at together: where their recordings are in a bucket, these are brought together."""

_OFFSET_BITS = 40


class ManifestScan:
    """Utterances to convert.

    Attributes:
      content: the hash of the manifest's file.
      fingerprint: names them by their content.
      known: for each line the number of its entry in the last conversion; or where its log line is, see `log_location`;
        or UNKNOWN.
      digests: of the utterances, one after the other.
      unheard: at which byte the lines stand whose recording is UNKNOWN, and there.
      missing: ids by the number of the line, of those whose recording is UNKNOWN, and gone.
      taken_over: whether it is the manifest of the last conversion, all of which is still there.
    """

    def __init__(self, manifest: Path, pool: WavPool, earlier: LineCache) -> None:
        """Looks at each line.

        Raises:
          WorkError: there is no such manifest, it is none, or a recording that it does not name by content cannot be
            read.
        """
        self.file = manifest_path(manifest)
        if not self.file.is_file():
            raise WorkError(f"{self.file}: no such manifest; run the step that writes it first")
        self._folder, self._pool, self._earlier = os.path.abspath(self.file.parent), pool, earlier
        self._name, self.content = str(self.file), hash_file(self.file)
        self.known, self.digests, self.unheard = array("q"), bytearray(), array("Q")
        self.missing: dict[int, str] = {}
        self._hashes: dict[int, str] = {}
        if self.content == earlier.incoming and self._is_as_it_was():
            self.taken_over, self.fingerprint = True, earlier.fingerprint
            return
        self.taken_over = False
        self._look()
        found = Fingerprint()
        for at in range(0, len(self.digests), DIGEST_BYTES):
            found.add(bytes(self.digests[at : at + DIGEST_BYTES]))
        self.fingerprint = found.name()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(at which byte it stands, line) of all that are not blank."""
        with self._opened() as lines:
            at = 0
            for line in lines:
                if not line.isspace():
                    yield at, line
                at += len(line)

    def utterance(self, at: int, line: bytes) -> Utterance:
        """The utterance in the line at a byte, with the hash of its recording, if that is there."""
        try:
            return self._named(at, utterance_from_values(parse_json(line.decode()), self._folder))
        except (ValueError, LookupError, TypeError, AttributeError):  # it was one when it was looked at
            self.check()
            raise

    def unheard_utterances(self, at: "array[int]") -> Iterator[Utterance]:
        """Those of `unheard`, or of some of it."""
        with self._opened() as lines:
            for one in at:
                lines.seek(one)
                yield self.utterance(one, lines.readline())

    def names_content(self, at: int) -> bool:
        """Whether the line at a byte tells the hash of its recording: if not, the same line may mean another one."""
        return at not in self._hashes

    def check(self) -> None:
        """Sees that the manifest is still what was looked at.

        Raises:
          WorkError: somebody else wrote it meanwhile.
        """
        if hash_file(self.file) != self.content:
            raise WorkError(f"{self.file}: changed while it was read; run this again when it is written")

    def _opened(self) -> IO[bytes]:
        try:
            return open(self.file, "rb")
        except FileNotFoundError:
            raise WorkError(
                f"{self.file}: went away while it was read, as by a purge; run ingest again, then this"
            ) from None

    def _is_as_it_was(self) -> bool:
        for number in range(self._earlier.count):
            entry = self._earlier.entry(number)
            if not self._holds(entry):
                self.known, self.digests = array("q"), bytearray()
                return False
            self.known.append(number)
            self.digests += entry.utterance
        return True

    def _holds(self, entry: CachedLine) -> bool:
        """Whether a line may be taken over. Where nobody listened, the recording must be looked for again."""
        if entry.kind & HAS_WAV:
            return self._pool.is_whole(entry.wav.hex(), entry.samples)
        return not entry.kind & NEEDS_SOURCE

    def _look(self) -> None:
        earlier, pool, known, digests = self._earlier, self._pool, self.known, self.digests
        new: list[tuple[int, int, Utterance]] = []
        for at, line in self.lines():
            number = earlier.find(hash_digest(line))
            if number >= 0 and self._holds(entry := earlier.entry(number)):
                known.append(number)
                digests += entry.utterance
                continue
            utterance = self._parsed(at, line)
            if utterance.audio_hash:
                digests += utterance.digest()
                if place := pool.whole_outcome(pool.name(utterance)):
                    known.append(-2 - (place[0] << _OFFSET_BITS | place[1]))
                    continue
            else:
                digests += bytes(DIGEST_BYTES)
            new.append((len(known), at, utterance))
            known.append(NOT_DECODED)
            if len(new) == LOOKUP_BATCH:
                self._settle(new)
                new = []
        self._settle(new)

    def _settle(self, new: list[tuple[int, int, Utterance]]) -> None:
        """Looks for recordings that nobody has listened to: (number of the line, at which byte, utterance)."""
        if unnamed := [one for one in new if not one[2].audio_hash]:
            ensure_local(utterance.audio_filepath for _, _, utterance in unnamed)
            for number, at, utterance in unnamed:
                self._hashes[at] = _hash_of(utterance)
                named = self._named(at, utterance)
                self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = named.digest()
                if place := self._pool.whole_outcome(self._pool.name(named)):
                    self.known[number] = -2 - (place[0] << _OFFSET_BITS | place[1])
            new = [one for one in new if self.known[one[0]] == NOT_DECODED]
        absent = [one for one in new if not _exists(one[2])]
        ensure_local(utterance.audio_filepath for _, _, utterance in absent)
        self.missing |= {number: one.id for number, _, one in absent if not _exists(one)}
        self.unheard.extend(at for number, at, _ in new if number not in self.missing)

    def _named(self, at: int, utterance: Utterance) -> Utterance:
        return utterance if utterance.audio_hash else utterance.replace(audio_hash=self._hashes[at])

    def _parsed(self, at: int, line: bytes) -> Utterance:
        return parse_utterance(line, f"{self._name}: byte {at:,}", self._folder)


def log_location(known: int) -> tuple[int, int]:
    """Where in the logs the outcome of a recording stands: in which, and at which byte."""
    return -2 - known >> _OFFSET_BITS, -2 - known & (1 << _OFFSET_BITS) - 1


def _hash_of(utterance: Utterance) -> str:
    """The hash of a recording; empty where it is not there."""
    if not _exists(utterance):
        return ""
    try:
        return hash_file(Path(utterance.audio_filepath))
    except OSError as error:
        raise WorkError(
            f"convert: {utterance.id}: {utterance.audio_filepath} cannot be read ({error.strerror}); mend its "
            "permissions, or take its line out of the manifest"
        ) from None


def _exists(utterance: Utterance) -> bool:
    # Path's own fails at what is too long for a path; and of millions, it takes three times as long.
    return os.path.isfile(utterance.audio_filepath)  # noqa: PTH113
