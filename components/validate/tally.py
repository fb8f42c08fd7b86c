"""What the checks need of a piece of a manifest: small columns and counts.

Tallies of pieces are joined in the order of the pieces, and come to what one of the whole would be, bit by bit, whoever
made them. An utterance takes 85 bytes, however long its transcript: what stands in its line is looked up there.
"""

import array
import collections
import hashlib
import itertools
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.components.validate.columns import StringColumn, decode_base64, encode_base64
from voxline.data.json_codec import parse_line
from voxline.errors import WorkError
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, canonical_json, hash_digest


def iter_line_values(manifest: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place, values) of each line that begins at these bytes; several ranges that touch have each line once.

    Raises:
      WorkError: naming the line, when the manifest is absent or not one of ours.
    """
    if not manifest.is_file():
        raise WorkError(f"{manifest}: no such manifest; run the step that writes it first")
    with open(manifest, "rb") as file:
        if start:  # the line that this byte is in the middle of is another's
            file.seek(start - 1)
            file.readline()
        place = file.tell()
        for line in file:
            if stop is not None and place >= stop:
                break
            if not line.isspace():
                yield place, _parse_line(line, manifest, place)
            place += len(line)


def byte_ranges(manifest: Path, length: int) -> list[tuple[int, int]]:
    """The bytes of a manifest in pieces of this length."""
    size = manifest.stat().st_size
    return [(start, min(start + length, size)) for start in range(0, size, length)]


def _parse_line(line: bytes, manifest: Path, place: int) -> dict[str, Any]:
    try:
        return parse_line(line, "")
    except WorkError:
        return parse_line(line, f"{manifest}:{_line_number(manifest, place)}")  # once more, for what it says


def _line_number(manifest: Path, place: int) -> int:
    """The number of the line that begins there, which nobody counts as long as all is well."""
    number, passed = 1, 0
    with open(manifest, "rb") as file:
        for line in file:
            if passed >= place:
                break
            passed += len(line)
            number += 1
    return number


class _SpokenCharacters(dict[int, int | None]):
    """For `str.translate`: a code point, or None for one that is nothing said. Each is looked up once."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        self[code] = None if character != "'" and unicodedata.category(character)[0] in "PZC" else code
        return self[code]


_SPOKEN = _SpokenCharacters()


def count_characters(text: str) -> int:
    """Characters that are neither space nor punctuation; an apostrophe is part of its word.

    >>> count_characters("it's late, go!"), count_characters("ni3 hao3 .")
    (10, 7)
    """
    return len(text.translate(_SPOKEN))


def split_words(text: str) -> list[str]:
    """Words (in pinyin, syllables) without the punctuation around them.

    >>> split_words("no - it's late, go!"), split_words("ni3 hao3 .")
    (['no', "it's", 'late', 'go'], ['ni3', 'hao3'])
    """
    return [kept for word in text.split() if (kept := _bare(word))]


def _bare(word: str) -> str:
    start, end = 0, len(word)
    while start < end and _SPOKEN[ord(word[start])] is None:
        start += 1
    while end > start and _SPOKEN[ord(word[end - 1])] is None:
        end -= 1
    return word[start:end]


MEASURED = ("peak_db", "rms_db", "clipped_share", "silence_share")
COUNTED = ("characters", "words", "labels")
NUMBERS = {"place": "Q", "duration": "f", **dict.fromkeys(MEASURED, "f"), **dict.fromkeys(COUNTED, "i")}
"""Columns of numbers, and how each is held (as `array` names it)."""
HASH_BYTES = 8
HASHED = {"ids": HASH_BYTES, "recordings": HASH_BYTES, "sentences": HASH_BYTES, "identities": DIGEST_BYTES}
MAX_CACHED_TOKENS = 100_000
"""Words whose counts are remembered."""

_UNKNOWN, _NOTHING, _NAN = bytes(HASH_BYTES), dict[str, Any](), float("nan")


class ManifestTally:
    """The columns of some utterances, and what they say.

    Attributes:
      numbers: by name, for each utterance: the place of its line, bytes into the manifest; its seconds; what was
        measured of it (NaN where the step before did not); characters and words of its transcript without spaces and
        punctuation; labels: the frames that CTC needs.
      hashed: by name, 8 bytes for each utterance's id, recording (zeros where it is not known) and transcript, and 16
        that name all of it.
      said: by split, how often which piece between two spaces stands in the transcripts; " " counts the spaces.
      names_all: whether every utterance names its recording by content.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, array.array[Any]] = {name: array.array(kind) for name, kind in NUMBERS.items()}
        self.hashed = {name: bytearray() for name in HASHED}
        self.speakers, self.splits = StringColumn(), StringColumn()
        self.said: dict[str, collections.Counter[str]] = {}
        self.names_all = True

    @classmethod
    def of_piece(cls, manifest: Path, start: int = 0, stop: int | None = None) -> "ManifestTally":
        """The tally of the lines that begin at these bytes of a manifest.

        Raises:
          WorkError: the manifest is absent or not one of ours.
        """
        tally, pieces = cls(), _TokenCounts()
        for place, values in iter_line_values(manifest, start, stop):
            try:
                tally._add(place, values, pieces)
            except (
                ValueError,
                TypeError,
                OverflowError,
            ) as error:  # `{"snr": NaN}`, `{"measured": {"rms_db": "loud"}}`
                raise WorkError(
                    f"{manifest}: {values['id']}: what was measured of it, or a further key, is no number that a "
                    f"manifest can have ({error}); give what convert made"
                ) from None
        return tally

    def __len__(self) -> int:
        return len(self.numbers["place"])

    def hashes(self, name: str) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self.hashed[name], dtype="<u8")

    def fingerprint(self) -> str:
        """Names the utterances, as `utterances.fingerprint` does."""
        found, digests = Fingerprint(), bytes(self.hashed["identities"])
        for at in range(0, len(digests), DIGEST_BYTES):
            found.add(digests[at : at + DIGEST_BYTES])
        return found.name()

    def join(self, after: "ManifestTally") -> None:
        """Puts the tally of what stands after this in the manifest to it."""
        for name, numbers in after.numbers.items():
            self.numbers[name].extend(numbers)
        for name, hashes in after.hashed.items():
            self.hashed[name] += hashes
        self.speakers.extend(after.speakers)
        self.splits.extend(after.splits)
        for split, counts in after.said.items():
            self.said.setdefault(split, collections.Counter()).update(counts)
        self.names_all = self.names_all and after.names_all

    def _add(self, place: int, values: dict[str, Any], pieces: "_TokenCounts") -> None:
        text, measured = values["text"], values.get("measured") or _NOTHING
        split = values.get("split", "train")
        numbers, hashed = self.numbers, self.hashed
        numbers["place"].append(place)
        numbers["duration"].append(values["duration"])
        hashed["ids"] += _hash(values["id"])
        hashed["sentences"] += _hash(text)
        hashed["recordings"] += _recording(values, measured)
        hashed["identities"] += _identity(values)
        for name in MEASURED:
            value = measured.get(name)
            numbers[name].append(_NAN if value is None else float(value))
        self.speakers.append(values.get("speaker", ""))
        self.splits.append(split)
        self.names_all = self.names_all and bool(values.get("audio_hash"))
        self._count(text, split, pieces)

    def _count(self, text: str, split: str, pieces: "_TokenCounts") -> None:
        parts = text.split(" ")
        if split not in self.said:
            self.said[split] = collections.Counter()
        said = self.said[split]
        said[" "] += len(parts) - 1
        characters = words = 0
        labels = len(text)
        for part in parts:
            said[part] += 1
            more_characters, more_words, twice = pieces[part]
            characters += more_characters
            words += more_words
            labels += twice
        if "" in parts:
            labels += parts[1:-1].count("")  # two spaces beside each other
        self.numbers["characters"].append(characters)
        self.numbers["words"].append(words)
        self.numbers["labels"].append(labels)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "numbers": {name: encode_base64(numbers.tobytes()) for name, numbers in self.numbers.items()},
            "hashed": {name: encode_base64(hashes) for name, hashes in self.hashed.items()},
            "speakers": self.speakers.plain(),
            "splits": self.splits.plain(),
            "said": self.said,
            "names_all": self.names_all,
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "ManifestTally":
        tally = cls()
        for name, numbers in tally.numbers.items():
            numbers.frombytes(decode_base64(plain["numbers"][name]))
        tally.hashed = {name: bytearray(decode_base64(plain["hashed"][name])) for name in HASHED}
        tally.speakers, tally.splits = StringColumn.of(plain["speakers"]), StringColumn.of(plain["splits"])
        tally.said = {split: collections.Counter(counts) for split, counts in plain["said"].items()}
        tally.names_all = plain["names_all"]
        return tally


class _TokenCounts(dict[str, tuple[int, int, int]]):
    """(characters, words, letters that stand twice in a row) of what stands between two spaces; each counted once."""

    def __missing__(self, piece: str) -> tuple[int, int, int]:
        if len(self) >= MAX_CACHED_TOKENS:
            self.clear()
        twice = sum(left == right for left, right in itertools.pairwise(piece))
        counts = self[piece] = (count_characters(piece), len(split_words(piece)), twice)
        return counts


def hash_text(text: str) -> int:
    """As it stands in a column of hashes."""
    return int.from_bytes(_hash(text), "little")


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def _recording(values: dict[str, Any], measured: dict[str, Any]) -> bytes:
    """Names the samples: by their hash where convert measured it, else by the source's hash and the segment."""
    if measured.get("pcm_hash"):
        return _hash(str(measured["pcm_hash"]))
    if not values.get("audio_hash"):
        return _UNKNOWN
    return _hash(f"{values['audio_hash']} {values.get('offset', 0.0):.3f} {values['duration']:.3f}")


def _identity(values: dict[str, Any]) -> bytes:
    """As `Utterance.identity`, hashed."""
    named = {"speaker": "", "split": "train", "audio_hash": "", **values}
    del named["audio_filepath"]
    named.pop("measured", None)
    if not named.get("offset", 1):
        del named["offset"]
    return hash_digest(canonical_json(named).encode())
