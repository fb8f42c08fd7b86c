"""Scans the manifest before anything is decoded: what names it, and what is already known of each line.

A scan keeps a few numbers per line. Later stages read the lines again. Lines that the last run had too are recognized
by their bytes and not parsed: piece by piece, and within a piece that has changed line by line.
"""

import enum
import itertools
import os
from array import array
from binascii import unhexlify
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from voxline.components.convert.jobs import CLIPPED_FROM
from voxline.components.convert.wav_pool import WavPool
from voxline.data.json_codec import encode_json, parse_json
from voxline.data.line_cache import LineCache, iter_pieces
from voxline.data.manifest import (
    NEGATIVE,
    Utterance,
    localize_audio,
    manifest_path,
    parse_utterance,
    utterance_from_values,
)
from voxline.errors import WorkError
from voxline.store.hashing import (
    DIGEST_BYTES,
    HASH_CHARACTERS,
    DigestMap,
    Fingerprint,
    hash_digest,
    hash_file,
    hash_unchanged_file,
)
from voxline.store.size_limits import FILE_BUFFER

KEPT_REVISION = 2
"""Raise it when `KeptPiece` changes."""
LOOKUP_BATCH = 500
"""Recordings that are looked up, and downloaded, together."""
_PLACE_BITS = 8
_LAST_PLACE = (1 << _PLACE_BITS) - 1
_PLACE_BYTES = 8
"""A place in the line cache is the byte of an entry, and the number of a line in its piece in these low bits."""

NEGATIVE_MARK = encode_json({NEGATIVE: True})[1:-1].encode()
"""Within a line of JSON; in a text its quotes would be escaped."""
CLIPPED_MARK = encode_json({CLIPPED_FROM: 0})[1:-2].encode()


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


class KeptPiece(msgspec.Struct, array_like=True):
    """An entry of convert's line cache: the outcome of the lines of a piece. Digests are one after the other, in hex.

    Attributes:
      lines: digests of the lines.
      identities: digests of the utterances in them.
      converted: digests of the converted utterances; zeros for a reject.
      wavs: names; empty where the output does not depend on a WAV.
      samples: of the WAVs.
      reasons: of the rejects; empty for the others.
      outputs: what was written: a line of the manifest, or of the rejects.
      negatives, clipped: how many of the converted ones have no transcript, or were beyond full scale.
      complete: whether these are all lines of the piece. The output of some, as of a missing file, is not reusable.
    """

    lines: str
    identities: str
    converted: str
    wavs: list[str]
    samples: list[int]
    reasons: list[str]
    outputs: list[msgspec.Raw]
    complete: bool
    negatives: int = 0
    clipped: int = 0

    def __len__(self) -> int:
        return len(self.wavs)

    def digest(self, digests: str, number: int) -> bytes:
        """One of its digests."""
        return bytes.fromhex(digests[number * HASH_CHARACTERS : (number + 1) * HASH_CHARACTERS])

    def part(self, begin: int, end: int) -> "KeptPiece":
        """Some of its lines."""
        hexadecimal = slice(begin * HASH_CHARACTERS, end * HASH_CHARACTERS)
        part = KeptPiece(
            lines=self.lines[hexadecimal],
            identities=self.identities[hexadecimal],
            converted=self.converted[hexadecimal],
            wavs=self.wavs[begin:end],
            samples=self.samples[begin:end],
            reasons=self.reasons[begin:end],
            outputs=self.outputs[begin:end],
            complete=False,
        )
        if self.negatives or self.clipped:
            lines = [bytes(line) for line, reason in zip(part.outputs, part.reasons, strict=True) if not reason]
            part.negatives = sum(NEGATIVE_MARK in line for line in lines)
            part.clipped = sum(CLIPPED_MARK in line for line in lines)
        return part


decode_piece: Callable[[bytes], KeptPiece] = msgspec.json.Decoder(KeptPiece).decode


class ScannedPiece(NamedTuple):
    """A piece of the manifest, see `iter_pieces`.

    Attributes:
      digest: of its bytes.
      first: number of its first line.
      lines: how many it has.
      entry: byte of the line cache at which its entry begins, where the outputs of all its lines are reused; else -1.
    """

    digest: bytes
    first: int
    lines: int
    entry: int


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


_NO_PIECE = KeptPiece("", "", "", [], [], [], [], complete=False)


class ManifestScan:
    """The status of each line of a manifest.

    Attributes:
      file: the manifest.
      content: hash of its bytes.
      fingerprint: names its utterances by their content.
      statuses: a LineStatus per line.
      pool, cache: the WAVs and the lines of earlier runs.
      pieces: that the lines make up.
      locations: per line, its log line in the decode logs (DECODED), or its place in the line cache (CACHED; of pieces
        without an entry alone).
      digests: of the utterances, one after the other.
      uncached: byte offsets of the lines that are not CACHED.
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
        self.content = hash_unchanged_file(self.file)

        # By the number of a line; 8 bytes of location, 1 of status and a digest of 16 make a million lines some 25 MB.
        self.pieces: list[ScannedPiece] = []
        self.statuses = bytearray()
        self.locations = array("Q")
        self.digests = bytearray()
        self.uncached = array("Q")
        self.to_decode = array("Q")
        self._last_read = (-1, _NO_PIECE)
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
        fingerprint.add_all(self.digests)
        self.fingerprint = fingerprint.name()

    def utterance(self, offset: int, line: bytes) -> Utterance:
        """The utterance in a line, with the hash of its recording if that exists."""
        try:
            return self._with_hash(offset, utterance_from_values(parse_json(line), self._folder))
        except (ValueError, LookupError, TypeError, AttributeError):  # the scan could parse it
            self.check()
            raise

    def utterances_at(self, offsets: "array[int]") -> Iterator[Utterance]:
        """The utterances in the lines at some byte offsets."""
        for offset, line in zip(offsets, self.lines_at(offsets), strict=True):
            yield self.utterance(offset, line)

    def lines_at(self, offsets: Iterable[int]) -> Iterator[bytes]:
        """The lines at some byte offsets."""
        with self._opened() as lines:
            for offset in offsets:
                lines.seek(offset)
                yield lines.readline()

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
        try:
            content = hash_unchanged_file(self.file)
        except FileNotFoundError:
            raise self._removed() from None
        if content != self.content:
            raise WorkError(f"{self.file}: changed while it was read; run this again when it is written")

    def _opened(self) -> IO[bytes]:
        try:
            return open(self.file, "rb", FILE_BUFFER)
        except FileNotFoundError:
            raise self._removed() from None

    def _removed(self) -> WorkError:
        return WorkError(
            f"{self.file}: removed while it was being read, probably by a purge; run ingest again, then this"
        )

    def kept(self, number: int, stop: int) -> KeptPiece:
        """Returns the outcome of a CACHED line of a piece without an entry, and of those after it that followed it.

        Args:
          stop: number of a line before which this ends.
        """
        location = self.locations[number]
        end = number + 1
        while end < stop and self.statuses[end] == LineStatus.CACHED and self.locations[end] == location + end - number:
            end += 1
        place = location & _LAST_PLACE
        return self._kept_piece(location >> _PLACE_BITS).part(place, place + end - number)

    def _kept_piece(self, entry: int) -> KeptPiece:
        # Lines mostly follow each other as they did.
        if self._last_read[0] != entry:
            self._last_read = (entry, decode_piece(self.cache.read(entry).output))
        return self._last_read[1]

    def _reuse_all(self, lines: int) -> bool:
        """Takes every entry of the cache; returns False if one cannot be reused, or one of the lines has none."""
        for entry in self.cache:
            piece = decode_piece(entry.output)
            if not self._can_reuse(piece):
                break
            self._add_kept(unhexlify(entry.raw[:HASH_CHARACTERS]), entry.offset, piece)
        else:
            # A line whose output was not reusable, such as that of a missing file, is not in the cache.
            if len(self.statuses) == lines:
                return True
        self.pieces = []
        self.statuses = bytearray()
        self.locations = array("Q")
        self.digests = bytearray()
        return False

    def _can_reuse(self, piece: KeptPiece) -> bool:
        """Returns whether all lines of a piece are there, and all of their WAVs whole."""
        return piece.complete and self.pool.are_whole(piece.wavs, piece.samples)

    def _add_kept(self, digest: bytes, entry: int, piece: KeptPiece) -> None:
        self.pieces.append(ScannedPiece(digest, len(self.statuses), len(piece), entry))
        self.statuses += bytes([LineStatus.CACHED]) * len(piece)
        self.locations.extend([0] * len(piece))
        self.digests += unhexlify(piece.identities)

    def _scan(self) -> None:
        # First whole pieces, and where their entries begin and end; of the others their numbers, and the byte
        # offsets of their lines.
        reused: dict[int, int] = {}
        changed: list[tuple[int, array[int]]] = []
        with self._opened() as lines:
            offset = 0
            for digest, piece in iter_pieces(lines, self.file):
                entry = self.cache.find(digest)
                last_piece = decode_piece(entry.output) if entry else None
                if entry and last_piece and self._can_reuse(last_piece):
                    self._add_kept(digest, entry.offset, last_piece)
                    reused[entry.offset] = entry.offset + len(entry.raw)
                    offset += sum(map(len, piece))
                    continue

                offsets = array("Q")
                for line in piece:
                    if not line.isspace():
                        offsets.append(offset)
                    offset += len(line)
                changed.append((len(self.pieces), offsets))
                self.pieces.append(ScannedPiece(digest, len(self.statuses), len(offsets), -1))
                self.statuses += bytes([LineStatus.NEW]) * len(offsets)
                self.locations.extend([0] * len(offsets))
                self.digests += bytes(len(offsets) * DIGEST_BYTES)
        try:
            self._scan_lines(changed, reused)
        except WorkError:
            self.check()  # if it changed, that is why
            raise

    def _scan_lines(self, changed: "list[tuple[int, array[int]]]", reused: dict[int, int]) -> None:
        """Scans the lines of pieces that have changed.

        Args:
          changed: (number of the piece, byte offsets of its lines).
          reused: entries of the cache whose lines are in other pieces: where each begins and ends.
        """
        places = self._index_lines(reused) if changed else DigestMap(0)

        # (number of the line, byte offset, utterance) of recordings that are not cached, in batches for downloads.
        new: list[tuple[int, int, Utterance]] = []
        lines = self.lines_at(itertools.chain.from_iterable(offsets for _, offsets in changed))
        for piece, offsets in changed:
            first = self.pieces[piece].first
            lines_of_piece = list(itertools.islice(lines, len(offsets)))
            self._take_kept(first, [places.find(hash_digest(line)) for line in lines_of_piece])

            for number, (offset, line) in enumerate(zip(offsets, lines_of_piece, strict=True), start=first):
                if self.statuses[number] == LineStatus.CACHED:
                    continue
                self.uncached.append(offset)
                utterance = parse_utterance(line, f"{self._name}: byte {offset:,}", self._folder)
                if utterance.audio_hash:
                    self._set_digest(number, utterance)
                new.append((number, offset, utterance))
                if len(new) == LOOKUP_BATCH:
                    self._look_up(new)
                    new = []
        self._look_up(new)

    def _index_lines(self, without: dict[int, int]) -> DigestMap:
        """The places of all lines in the cache, without those of some entries, by the digests of the lines."""
        places = DigestMap(_PLACE_BYTES)
        for entry in self.cache.entries(without):
            digests = unhexlify(decode_piece(entry.output).lines)
            for number, at in enumerate(range(0, len(digests), DIGEST_BYTES)):
                place = entry.offset << _PLACE_BITS | number
                places.put(digests[at : at + DIGEST_BYTES], place.to_bytes(_PLACE_BYTES))
        return places

    def _take_kept(self, first: int, places: list[bytes | None]) -> None:
        """Takes lines that follow each other from the cache, unless a WAV is not whole.

        Args:
          first: number of the first line.
          places: of the lines; None: it is not in the cache.
        """
        # Most of them followed each other in the last manifest too, and are taken together.
        at = 0
        locations = [int.from_bytes(place) if place else None for place in places]
        while at < len(locations):
            end = at + 1
            if (location := locations[at]) is not None:
                while end < len(locations) and locations[end] == location + end - at:
                    end += 1
                self._take_run(first + at, location, end - at)
            at = end

    def _take_run(self, number: int, location: int, count: int) -> None:
        piece = self._kept_piece(location >> _PLACE_BITS)
        begin = location & _LAST_PLACE
        end = begin + count
        if not self.pool.are_whole(piece.wavs[begin:end], piece.samples[begin:end]):
            # Those alone are looked up in the logs whose WAV is not.
            for offset in range(count if count > 1 else 0):
                self._take_run(number + offset, location + offset, 1)
            return
        stop = number + count
        identities = piece.identities[begin * HASH_CHARACTERS : end * HASH_CHARACTERS]
        self.statuses[number:stop] = bytes([LineStatus.CACHED]) * count
        self.locations[number:stop] = array("Q", range(location, location + count))
        self.digests[number * DIGEST_BYTES : stop * DIGEST_BYTES] = unhexlify(identities)

    def _set_digest(self, number: int, utterance: Utterance) -> None:
        self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = utterance.digest()

    def _look_up(self, lines: list[tuple[int, int, Utterance]]) -> None:
        """Looks for the recordings of lines: (number of the line, byte offset, utterance)."""
        # Without a hash in the line, the recording itself has to be read before it can have a name in the pool.
        unnamed = [item for item in lines if not item[2].audio_hash]
        localize_audio(utterance for _, _, utterance in unnamed)
        for number, offset, utterance in unnamed:
            self._hashes[offset] = _hash_recording(utterance)
            self._set_digest(number, self._with_hash(offset, utterance))

        # What earlier runs logged of them.
        names = [self.pool.name(self._with_hash(offset, utterance)) for _, offset, utterance in lines]
        if names:
            self.pool.logs.look_up(names)
        new = []
        for item, name in zip(lines, names, strict=True):
            location = self.pool.find_decoded(name)
            if location is None:
                new.append(item)
            else:
                self.statuses[item[0]] = LineStatus.DECODED
                self.locations[item[0]] = location

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
