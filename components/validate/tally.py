"""The tally of a manifest, or of a part of it: compact columns and counts for the checks.

Tallies of consecutive parts, appended in order, are identical to the tally of the whole. An utterance takes 97 bytes,
however long its transcript; everything else is read from the manifest when needed.
"""

import array
import collections
import hashlib
import itertools
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from voxline.audio.wav import HEADER_NOTE
from voxline.components.validate.columns import StringColumn, decode_base64, encode_base64
from voxline.data.drafts import DRAFTED_BY
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
from voxline.data.manifest import TEXT_DOUBT, identity_json
from voxline.errors import WorkError
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, hash_digest
from voxline.store.size_limits import FILE_BUFFER, iter_bounded_lines
from voxline.text.personal_data import ENOUGH_CLUES, clues, find_personal_data

MEASURED = ("peak_db", "rms_db", "clipped_share", "silence_share", "channel_correlation")
COUNTED = ("characters", "words", "labels")
NUMBERS = {"offset": "Q", "duration": "f", **dict.fromkeys(MEASURED, "f"), **dict.fromkeys(COUNTED, "i")}
"""Columns of numbers, with their type codes of `array`."""

HASH_BYTES = 8
HASHED = {"ids": HASH_BYTES, "recordings": HASH_BYTES, "sentences": HASH_BYTES, "identities": DIGEST_BYTES}
KEPT_HASHES = ("ids", "recordings", "sentences")
_WIDTHS = (*(array.array(kind).itemsize for kind in NUMBERS.values()), *(HASHED[name] for name in KEPT_HASHES))
"""Bytes of a line in each column that is kept."""
MAX_CACHED_TOKENS = 100_000
"""Tokens whose counts are cached."""

_UNKNOWN = bytes(HASH_BYTES)
_NOTHING = dict[str, Any]()
_NAN = float("nan")


class _KeptTally(msgspec.Struct, array_like=True):
    """The tally of a piece of some lines as it is kept, without identities.

    Attributes:
      count: of its lines.
      columns: the numbers, then the hashes, in base64. Offsets count from the beginning of the piece.
      strings: names and codes of each column of strings.
      token_counts, all_hashed: as in `ManifestTally`.
      lines: as `hash_lines` gives it.
    """

    count: int
    columns: str
    strings: list[tuple[list[str], list[int]]]
    token_counts: dict[str, dict[str, int]]
    all_hashed: bool
    lines: str


_decode_tally = msgspec.json.Decoder(_KeptTally).decode
_encode_tally = msgspec.json.Encoder().encode


class ManifestTally:
    """The columns of some utterances, and the tokens of their transcripts.

    Attributes:
      numbers: by name, for each utterance: the byte offset of its line; its duration in seconds; convert's measurements
        (NaN if missing); characters and words of its transcript, without spaces and punctuation; labels: the fewest
        frames in which CTC can emit the transcript.
      hashed: by name, for each utterance: 8 bytes for its id, its recording (zeros if unknown) and its transcript, and
        16 bytes for its identity, if identities are wanted.
      drafted_by: of each utterance, the model that wrote its transcript.
      doubts: of each utterance, why ingest doubts its row, its text or its duration, and what its header contradicts.
      personal: of each utterance, the kinds of personal data in its transcript, a line each.
      token_counts: by split, the counts of the tokens between spaces in the transcripts; " " counts the spaces.
      all_hashed: whether every utterance has an `audio_hash`.
    """

    def __init__(self, identities: bool = True) -> None:
        self._identities = identities
        self.numbers: dict[str, array.array[Any]] = {name: array.array(kind) for name, kind in NUMBERS.items()}
        self.hashed = {name: bytearray() for name in HASHED}
        self.speakers = StringColumn()
        self.splits = StringColumn()
        self.drafted_by = StringColumn()
        self.doubts = StringColumn()
        self.personal = StringColumn()
        self.token_counts: dict[str, collections.Counter[str]] = {}
        self.all_hashed = True

    @classmethod
    def read(
        cls, manifest: Path, start: int = 0, stop: int | None = None, *, identities: bool = True
    ) -> "ManifestTally":
        """Tallies the lines that begin in a byte range of a manifest.

        Args:
          identities: False where the fingerprint is known, which is all that they are for.

        Raises:
          WorkError: there is no manifest, or a line of it is damaged.
        """
        # Tokens repeat from line to line, so that each is analysed once, for all lines of the range.
        tally = cls(identities)
        tally._add_lines(iter_line_values(manifest, start, stop), manifest, _TokenCounts())
        return tally

    @classmethod
    def read_kept(cls, manifest: Path, store: Path | str, revision: int = 0) -> "ManifestTally":
        """Tallies a manifest without identities. Of a piece that the last manifest had too, the tally was kept.

        Args:
          store: keeps the tallies of the pieces for the next run.
          revision: of the step; a tally of another one is not used.

        Raises:
          WorkError: there is no manifest, or a line of it is damaged.
        """
        if not manifest.is_file():
            return cls.read(manifest, identities=False)
        # Python's Unicode tables say what is punctuation, and columns are in the byte order of this machine.
        made_by = {"revision": revision, "kept": 2, "python": list(sys.version_info[:2]), "order": sys.byteorder}
        kept = cache_file(store, "validate", made_by)

        tally = cls(identities=False)
        counts = _TokenCounts()
        with open(manifest, "rb", FILE_BUFFER) as file, LineCache(kept) as cache, write_line_cache(kept) as writer:
            begin = 0
            for digest, lines in iter_pieces(file, manifest):
                entry = cache.find(digest)
                if entry:
                    tally._extend_kept(_decode_tally(entry.output), begin)
                    writer.copy(entry.raw)
                else:
                    piece = _Piece(lines, manifest, begin, counts)
                    part = piece.tally_like(cache.take_next()) or piece.tally()
                    writer.add(digest, output=_encode_tally(part) + b"\n")
                    tally._extend_kept(part, begin)
                begin += sum(map(len, lines))
        return tally

    def __len__(self) -> int:
        return len(self.numbers["offset"])

    def hashes(self, name: str) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self.hashed[name], dtype="<u8")

    def fingerprint(self) -> str:
        """The fingerprint of the utterances, as `fingerprint_utterances`."""
        # Identities are 16 bytes each, one after the other.
        fingerprint = Fingerprint()
        digests = bytes(self.hashed["identities"])

        if len(digests) != DIGEST_BYTES * len(self):
            raise ValueError("the tally was made without identities, so it has no fingerprint")

        for at in range(0, len(digests), DIGEST_BYTES):
            fingerprint.add(digests[at : at + DIGEST_BYTES])
        return fingerprint.name()

    def extend(self, after: "ManifestTally") -> None:
        """Appends the tally of the next part of the manifest."""
        for name, numbers in after.numbers.items():
            self.numbers[name].extend(numbers)
        for name, hashes in after.hashed.items():
            self.hashed[name] += hashes

        # Numbers of strings differ between the parts, so these columns translate them.
        for column, others in zip(self._strings(), after._strings(), strict=True):
            column.extend(others)
        for split, counts in after.token_counts.items():
            self.token_counts.setdefault(split, collections.Counter()).update(counts)
        self.all_hashed = self.all_hashed and after.all_hashed

    def _add_lines(self, lines: Iterable[tuple[int, dict[str, Any]]], manifest: Path, counts: "_TokenCounts") -> None:
        """Adds the lines at some byte offsets.

        Raises:
          WorkError: a value of one is not a number.
        """
        for offset, values in lines:
            try:
                self._add(offset, values, counts)
            except (ValueError, TypeError, OverflowError) as error:
                # Such as `{"snr": NaN}` or `{"measured": {"rms_db": "loud"}}`.
                raise WorkError(
                    f"{manifest}: {values['id']}: a measurement or an additional key is not a valid number "
                    f"({error}); give the output of convert"
                ) from None

    def _extend_kept(self, kept: "_KeptTally", begin: int) -> None:
        """Appends the tally of a piece, as `extend` does, in half of the time."""
        columns = decode_base64(kept.columns)
        at = 0
        for name, numbers in self.numbers.items():
            end = at + kept.count * numbers.itemsize
            if name == "offset":
                offsets = array.array("Q", columns[at:end])
                numbers.extend([begin + offset for offset in offsets])
            else:
                numbers.frombytes(columns[at:end])
            at = end
        for name in KEPT_HASHES:
            end = at + kept.count * HASHED[name]
            self.hashed[name] += columns[at:end]
            at = end

        for column, (names, codes) in zip(self._strings(), kept.strings, strict=True):
            column.extend_coded(names, codes)
        for split, counts in kept.token_counts.items():
            self.token_counts.setdefault(split, collections.Counter()).update(counts)
        self.all_hashed = self.all_hashed and kept.all_hashed

    def _columns(self) -> list[memoryview]:
        """The bytes of the columns that are kept."""
        numbers = [memoryview(self.numbers[name]).cast("B") for name in NUMBERS]
        return [*numbers, *(memoryview(self.hashed[name]) for name in KEPT_HASHES)]

    def _strings(self) -> tuple[StringColumn, ...]:
        return self.speakers, self.splits, self.drafted_by, self.doubts, self.personal

    def _add(self, offset: int, values: dict[str, Any], counts: "_TokenCounts") -> None:
        # This runs for every line of the corpus: attributes that it uses often are looked up once.
        text = values["text"]
        measured = values.get("measured") or _NOTHING
        split = values.get("split", "train")
        numbers = self.numbers
        hashed = self.hashed

        numbers["offset"].append(offset)
        numbers["duration"].append(values["duration"])
        hashed["ids"] += _hash(values["id"])
        hashed["sentences"] += _hash(text)
        hashed["recordings"] += _recording(values, measured)
        if self._identities:
            hashed["identities"] += _identity(values)

        for name in MEASURED:
            value = measured.get(name)
            numbers[name].append(_NAN if value is None else float(value))

        self.speakers.append(values.get("speaker", ""))
        self.splits.append(split)
        self.drafted_by.append(str(values.get(DRAFTED_BY) or ""))
        doubt = str(values.get(TEXT_DOUBT) or "")
        notes = measured.get("decoder_notes")
        if notes and str(notes).startswith(HEADER_NOTE):
            doubt = f"{doubt}\n{notes}" if doubt else str(notes)
        self.doubts.append(doubt)
        self.all_hashed = self.all_hashed and bool(values.get("audio_hash"))
        self._count(text, split, counts)

    def _count(self, text: str, split: str, counts: "_TokenCounts") -> None:
        # A recording in which nobody speaks has no word, not an empty one.
        if split not in self.token_counts:
            self.token_counts[split] = collections.Counter()
        if not text:
            self.personal.append("")
            for name in ("characters", "words", "labels"):
                self.numbers[name].append(0)
            return

        # Split at single spaces, so that an empty part is a second space. A space is a character of the alphabet, and
        # so counted.
        parts = text.split(" ")
        counts_of_split = self.token_counts[split]
        counts_of_split[" "] += len(parts) - 1

        # CTC needs a frame for each character, spaces included, and a blank between two equal ones. Those within a
        # token are counted with it, and two spaces in a row here.
        characters = words = clues_of_text = 0
        labels = len(text)
        for part in parts:
            counts_of_split[part] += 1
            more_characters, more_words, repeated, more_clues = counts[part]
            clues_of_text += more_clues
            characters += more_characters
            words += more_words
            labels += repeated
        if "" in parts:
            labels += parts[1:-1].count("")  # two adjacent spaces

        # Few texts have enough clues to be looked into.
        places = find_personal_data(text) if clues_of_text >= ENOUGH_CLUES else []
        self.personal.append("\n".join(sorted({kind for kind, *_ in places})))
        self.numbers["characters"].append(characters)
        self.numbers["words"].append(words)
        self.numbers["labels"].append(labels)

    def to_json(self) -> dict[str, Any]:
        """The tally as JSON values."""
        return {
            "numbers": {name: encode_base64(numbers.tobytes()) for name, numbers in self.numbers.items()},
            "hashed": {name: encode_base64(hashes) for name, hashes in self.hashed.items()},
            "speakers": self.speakers.to_json(),
            "splits": self.splits.to_json(),
            "drafted_by": self.drafted_by.to_json(),
            "doubts": self.doubts.to_json(),
            "personal": self.personal.to_json(),
            "token_counts": self.token_counts,
            "all_hashed": self.all_hashed,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "ManifestTally":
        # The opposite of `to_json`. Columns are the bytes of their arrays, in the byte order that all workers share.
        tally = cls()
        for name, numbers in tally.numbers.items():
            numbers.frombytes(decode_base64(plain["numbers"][name]))
        tally.hashed = {name: bytearray(decode_base64(plain["hashed"][name])) for name in HASHED}
        tally.speakers = StringColumn.from_json(plain["speakers"])
        tally.splits = StringColumn.from_json(plain["splits"])
        tally.drafted_by = StringColumn.from_json(plain["drafted_by"])
        tally.doubts = StringColumn.from_json(plain["doubts"])
        tally.personal = StringColumn.from_json(plain["personal"])
        tally.token_counts = {split: collections.Counter(counts) for split, counts in plain["token_counts"].items()}
        tally.all_hashed = plain["all_hashed"]
        return tally


class _Piece:
    """A piece of a manifest that the last one did not have.

    Args:
      begin: its first byte.
      counts: of the tokens of all pieces.
    """

    def __init__(self, lines: list[bytes], manifest: Path, begin: int, counts: "_TokenCounts") -> None:
        self._manifest = manifest
        self._begin = begin
        self._counts = counts
        ends = list(itertools.accumulate(map(len, lines)))
        self._lines = [(end - len(line), line) for line, end in zip(lines, ends, strict=True) if not line.isspace()]
        self._hashes = hash_lines(line for _, line in self._lines)

    def tally(self) -> _KeptTally:
        """Tallies all lines.

        Raises:
          WorkError: one is damaged.
        """
        part = self._tally_of(range(len(self._lines)))
        strings = [(column.names, column.codes.tolist()) for column in part._strings()]
        token_counts = {split: dict(counts) for split, counts in part.token_counts.items()}
        columns = b"".join([*map(bytes, part._columns())])
        return _KeptTally(len(part), encode_base64(columns), strings, token_counts, part.all_hashed, self._hashes)

    def tally_like(self, entry: CacheEntry | None) -> _KeptTally | None:
        """Tallies the lines that are not those of another piece, where they have the same texts, splits and speakers.

        As where recordings were made again, of which a piece has few.

        Args:
          entry: of the other piece.
        """
        before = _decode_tally(entry.output) if entry else None
        if before is None or not before.all_hashed:
            return None
        if (changed := changed_lines(before.lines, self._hashes)) is None:
            return None
        part = self._tally_of(changed)
        if [column.values() for column in part._strings()] != [
            [names[codes[number]] for number in changed] for names, codes in before.strings
        ]:
            return None

        # The columns follow each other, each with a value of some bytes for each line.
        columns = bytearray(decode_base64(before.columns))
        columns[: before.count * 8] = array.array("Q", [at for at, _ in self._lines]).tobytes()
        begin = 0
        for name, width, values in zip([*NUMBERS, *KEPT_HASHES], _WIDTHS, part._columns(), strict=True):
            for row, number in enumerate(changed if name != "offset" else ()):
                at = begin + number * width
                value = values[row * width : (row + 1) * width]
                if name == "sentences" and columns[at : at + width] != value:
                    return None
                columns[at : at + width] = value
            begin += before.count * width
        return _KeptTally(
            before.count, encode_base64(columns), before.strings, before.token_counts, part.all_hashed, self._hashes
        )

    def _tally_of(self, numbers: Sequence[int]) -> ManifestTally:
        """Tallies some lines; offsets count from the beginning of the piece."""
        part = ManifestTally(identities=False)
        lines = (self._lines[number] for number in numbers)
        values = ((at, _parse_line(line, self._manifest, self._begin + at)) for at, line in lines)
        part._add_lines(values, self._manifest, self._counts)
        return part


def iter_line_values(manifest: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(offset, values) of each line that begins in a byte range; adjacent ranges have each line once.

    Raises:
      WorkError: there is no manifest, or a line of it is damaged.
    """
    if not manifest.is_file():
        raise WorkError(f"{manifest}: no such manifest; run the step that writes it first")
    with open(manifest, "rb") as file:
        if start:  # a line that begins before this byte belongs to another range
            file.seek(start - 1)
            file.readline()

        offset = file.tell()
        for _, line in iter_bounded_lines(file, f"{manifest} from byte {offset:,}"):
            if stop is not None and offset >= stop:
                break
            if not line.isspace():
                yield offset, _parse_line(line, manifest, offset)
            offset += len(line)


def byte_ranges(manifest: Path, length: int) -> list[tuple[int, int]]:
    """Divides the bytes of a manifest into ranges of a length."""
    size = manifest.stat().st_size
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def count_characters(text: str) -> int:
    """Counts characters that are neither spaces nor punctuation; an apostrophe is part of its word.

    >>> count_characters("it's late, go!"), count_characters("ni3 hao3 .")
    (10, 7)
    """
    return len(text.translate(_SPOKEN))


def transcript_words(text: str) -> list[str]:
    """Splits a text into words (in pinyin, syllables), without the punctuation around them.

    >>> transcript_words("no - it's late, go!"), transcript_words("ni3 hao3 .")
    (['no', "it's", 'late', 'go'], ['ni3', 'hao3'])
    """
    return [stripped for word in text.split() if (stripped := _strip_punctuation(word))]


def hash_text(text: str) -> int:
    """The hash of a text in a column of hashes."""
    return int.from_bytes(_hash(text), "little")


def _parse_line(line: bytes, manifest: Path, offset: int) -> dict[str, Any]:
    try:
        return parse_line(line, "")
    except WorkError:
        return parse_line(line, f"{manifest}:{_line_number(manifest, offset)}")  # again, with the line number


def _line_number(manifest: Path, offset: int) -> int:
    """The number of the line at an offset; counted only for an error message."""
    number = 1
    passed = 0
    with open(manifest, "rb") as file:
        for line in file:
            if passed >= offset:
                break
            passed += len(line)
            number += 1
    return number


def _strip_punctuation(word: str) -> str:
    start = 0
    end = len(word)
    while start < end and _SPOKEN[ord(word[start])] is None:
        start += 1
    while end > start and _SPOKEN[ord(word[end - 1])] is None:
        end -= 1
    return word[start:end]


class _SpokenCharacters(dict[int, int | None]):
    """A table for `str.translate` that removes punctuation, spaces and controls. It looks up each code point once."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        self[code] = None if character != "'" and unicodedata.category(character)[0] in "PZC" else code
        return self[code]


_SPOKEN = _SpokenCharacters()


class _TokenCounts(dict[str, tuple[int, int, int, int]]):
    """(characters, words, repeated characters, clues of personal data) of a token; computed once for each token."""

    def __missing__(self, token: str) -> tuple[int, int, int, int]:
        if len(self) >= MAX_CACHED_TOKENS:
            self.clear()
        repeated = sum(left == right for left, right in itertools.pairwise(token))
        counts = self[token] = (count_characters(token), len(transcript_words(token)), repeated, clues(token))
        return counts


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def _recording(values: dict[str, Any], measured: dict[str, Any]) -> bytes:
    """Identifies the samples: by their hash if convert measured it, else by the hash and the segment of the source."""
    # By the samples, equal recordings are found in files of different formats too.
    if measured.get("pcm_hash"):
        return _hash(str(measured["pcm_hash"]))
    if not values.get("audio_hash"):
        return _UNKNOWN
    return _hash(f"{values['audio_hash']} {values.get('offset', 0.0):.3f} {values['duration']:.3f}")


def _identity(values: dict[str, Any]) -> bytes:
    """The hash of `Utterance.identity`."""
    # The same values as of a parsed utterance, for a fraction of the time: defaults filled in, without the path and the
    # measurements, which are not part of its identity. An offset of 0 is as good as none.
    named = {"speaker": "", "split": "train", "audio_hash": "", **values}
    del named["audio_filepath"]
    named.pop("measured", None)
    if not named.get("offset", 1):
        del named["offset"]
    return hash_digest(identity_json(named))
