"""The manifest: JSON lines, an utterance a line, with the keys that NeMo reads; and its rejects.

A line of a manifest:
  {"id": "1988-24833-0000", "audio_filepath": "wav/ab12.wav", "duration": 3.2, "text": "a word",
   "speaker": "1988", "split": "test", "audio_hash": "9f…", "offset": 0.0, "accent": "us"}
and of the rejects beside it:
  {"id": "1988-24833-0001", "reason": "truncated", "detail": "… what was there, in words"}

`in = out + rejects` holds for every step: nothing is lost in silence.
"""

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.data.json_codec import absolute_path, encode_json, iter_lines, parse_json, parse_line
from voxline.data.json_codec import is_seconds as is_seconds
from voxline.errors import WorkError
from voxline.rejects import Reject, format_rejects, summarize_rejects
from voxline.store.bucket_cache import is_cached
from voxline.store.files import atomic_write
from voxline.store.hashing import Fingerprint, canonical_json, hash_digest
from voxline.store.localize import ensure_local, localize

MANIFEST_FILE = "manifest.jsonl"
REJECTS_FILE = "rejects.jsonl"
NEGATIVE = "negative"
"""Key of a line without a transcript on purpose: nobody speaks in its recording (`convert.max_negative_share`)."""
_CACHED_FOLDERS = 1024
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_SPELLED_ALIKE = 1e-4
"""Below it `json` writes numbers with an exponent, and msgspec does not."""


class Utterance(msgspec.Struct, frozen=True):
    """One recording of somebody speaking.

    Attributes:
      id: unique in its manifest; its identity from run to run.
      audio_filepath: absolute in memory, relative to the manifest in the file.
      duration: seconds of speech, from `offset` on.
      text: the transcript; raw after ingest, normalized after convert.
      speaker: empty where the corpus does not name one.
      split: "train", "dev" or "test".
      audio_hash: names the audio by its source's content (and, once converted, the conversion's settings).
      offset: seconds into the file at which the utterance begins.
      measured: what a step measured of the audio (level, peak, …). Floating point, so not part of any key.
      extra: every other key of the line, unchanged.
    """

    id: str
    audio_filepath: str
    duration: float
    text: str
    speaker: str = ""
    split: str = "train"
    audio_hash: str = ""
    offset: float = 0.0
    measured: dict[str, Any] = {}
    extra: dict[str, Any] = {}

    def replace(self, **changes: Any) -> "Utterance":
        """Returns a copy with some attributes changed."""
        return msgspec.structs.replace(self, **changes)

    def as_line(self) -> dict[str, Any]:
        """The keys and values of its line, the path absolute."""
        values: dict[str, Any] = {
            "id": self.id,
            "audio_filepath": self.audio_filepath,
            "duration": self.duration,
            "text": self.text,
        }
        values |= {"speaker": self.speaker, "split": self.split, "audio_hash": self.audio_hash}

        # Defaults stay out of the line: they would lengthen each of millions of lines.
        if self.offset:
            values["offset"] = self.offset
        if self.measured:
            values["measured"] = self.measured
        return values | self.extra

    def identity(self) -> dict[str, Any]:
        """Returns the values that decide a step's result: all but the path and the measurements."""
        # The same order as `as_line`, though hashes sort keys; a value at its default adds no key, so that a new
        # attribute changes no hash.
        values: dict[str, Any] = {"id": self.id, "duration": self.duration, "text": self.text, "speaker": self.speaker}
        values |= {"split": self.split, "audio_hash": self.audio_hash}
        if self.offset:
            values["offset"] = self.offset
        if self.extra:
            values |= self.extra

            # A further key may bear these names; it is not content either.
            values.pop("audio_filepath", None)
            values.pop("measured", None)
        return values

    def digest(self) -> bytes:
        """The hash of the identity: the 16 bytes whose hexadecimal form `hash_value` gives.

        Raises:
          WorkError: a further key has a value that JSON does not have, such as NaN.
        """
        try:
            return hash_digest(identity_json(self.identity()))
        except ValueError as error:
            raise WorkError(
                f"{self.id}: a further key of its line is NaN or infinite ({error}); fix it: "
                "ingest (corpus.format: manifest) makes a reject of such a line"
            ) from None


TEXT_DOUBT = "text_doubt"
"""Key of a line that says why ingest doubts its text, or its duration; validate counts them."""
ROW_MARK = "row: "
"""Begins a line of `TEXT_DOUBT` that is of the row, and not of its text."""
UTTERANCE_KEYS = tuple(name for name in Utterance.__struct_fields__ if name != "extra")


def identity_json(identity: dict[str, Any]) -> bytes:
    """`canonical_json` of `Utterance.identity`, in UTF-8, for hashes.

    msgspec spells texts and seconds in the same way, in a quarter of the time.

    Raises:
      ValueError: it holds a number that JSON does not have, such as NaN.
    """
    seconds = identity["duration"]
    if not is_seconds(seconds) or 0 < seconds < _SPELLED_ALIKE:
        return canonical_json(identity).encode()

    # Only texts and seconds are spelled alike; nested values take the slow way.
    for value in identity.values():
        if type(value) is not str and value is not seconds:
            return canonical_json(identity).encode()
    return _encode_sorted(identity)


def read_manifest(path: Path | str) -> list[Utterance]:
    """Reads the utterances of a manifest; their paths come back absolute.

    Args:
      path: a manifest, or a folder that holds `manifest.jsonl`; on a disk or in a bucket.

    Raises:
      WorkError: there is no manifest, or a line of it is damaged.

    Examples:
      >>> utterance = Utterance("a", "/corpus/a.wav", duration=1.5, text="a word", speaker="anna")
      >>> write_manifest("demo/manifest.jsonl", [utterance])
      1
      >>> [(utterance.id, utterance.duration) for utterance in read_manifest("demo")]
      [('a', 1.5)]
    """
    return list(iter_manifest(localize(path)))


def iter_manifest(path: Path | str) -> Iterator[Utterance]:
    """Reads a manifest like `read_manifest`, one utterance at a time: memory does not grow with the manifest."""
    path = manifest_path(path)
    if not path.is_file():
        raise WorkError(f"{path}: no such manifest; run the step that writes it first")
    folder = os.path.abspath(path.parent)
    name = str(path)
    for number, line in iter_lines(path):
        yield parse_utterance(line, f"{name}:{number}", folder)


def write_manifest(path: Path | str, utterances: Iterable[Utterance]) -> int:
    """Writes a manifest whole or not at all; paths become relative to it. Returns how many utterances."""
    count = 0
    path = Path(path)
    encoder = ManifestEncoder(path.parent)
    with atomic_write(path, "w") as file:
        for utterance in utterances:
            file.write(encoder.encode(utterance))
            count += 1
    return count


def localize_audio(utterances: Iterable[Utterance]) -> None:
    """Downloads the recordings of utterances that are in a bucket and not here yet, many at a time.

    One that is gone stays absent; the code that reads it reports that.
    """
    ensure_local(utterance.audio_filepath for utterance in utterances)


class ManifestEncoder:
    """Encodes the lines of a manifest in a folder.

    Paths are relative to the folder, but absolute where they lead out of a cached bucket: its folder is elsewhere
    on another machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.abspath(folder)
        self._cached = is_cached(Path(self._folder))
        # Few folders hold many recordings, and a corpus may have a folder for each: memory must not grow with those.
        self._prefix_of = functools.lru_cache(_CACHED_FOLDERS)(self._prefix)

    def encode(self, utterance: Utterance, measured: str = "") -> str:
        """The line of an utterance, with its end.

        Args:
          measured: its measurements, where they are JSON already.

        Raises:
          ValueError: a value is a number that JSON does not have, such as NaN.
        """
        values = utterance.as_line()
        values["audio_filepath"] = self.relative(utterance.audio_filepath)
        if measured:
            values["measured"] = msgspec.Raw(measured.encode())
        return encode_json(values) + "\n"

    def relative(self, path: str) -> str:
        """The path under which the manifest names a file."""
        parent, _, name = path.rpartition("/")

        # A path without a folder is relative to the working directory.
        prefix = self._prefix_of(parent or ("/" if path.startswith("/") else os.curdir))

        # A name of "." or ".." is a folder, and needs normalizing; all other paths are normal already.
        return os.path.normpath(prefix + name) if name in ("", os.curdir, os.pardir) else prefix + name

    def _prefix(self, parent: str) -> str:
        if self._cached and not is_cached(Path(parent)):
            return parent.rstrip("/") + "/"
        relative = os.path.relpath(parent, self._folder)
        return "" if relative == os.curdir else f"{relative}/"


def write_rejects(path: Path | str, rejects: Iterable[Reject]) -> int:
    """Writes rejects whole or not at all. Returns how many."""
    count = 0
    with atomic_write(Path(path), "w") as file:
        for reject in rejects:
            file.write(encode_reject(reject))
            count += 1
    return count


def encode_reject(reject: Reject) -> str:
    """The line of a reject, with its end."""
    return encode_json(reject.as_line()) + "\n"


def read_rejects(path: Path | str) -> list[Reject]:
    """Reads the rejects of a step: the recordings that it left out, and why.

    Args:
      path: a list of rejects, or a folder that holds `rejects.jsonl`; on a disk or in a bucket.

    Raises:
      WorkError: the list does not exist, or a line of it is damaged.

    Examples:
      >>> from voxline.rejects import Reason
      >>> write_rejects("demo/rejects.jsonl", [Reject("b", Reason.TRUNCATED, "1.0 s of 2.0 s")])
      1
      >>> [(reject.id, str(reject.reason)) for reject in read_rejects("demo")]
      [('b', 'truncated')]
    """
    path = localize(path)
    path = path / REJECTS_FILE if path.is_dir() else path
    if not path.is_file():
        raise WorkError(f"{path}: there is no list of rejects; run the step that writes it first")
    rejects = []
    for number, line in iter_lines(path):
        try:
            rejects.append(Reject.from_line(parse_json(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{path}:{number}: not a reject ({error}); run the step that writes it again") from None
    return rejects


def check_reject_share(rejected: int, total: int, limit: float, step: str, where: Path) -> None:
    """Fails a step that rejects more than the accepted share.

    Args:
      where: the file of the rejects.

    Raises:
      WorkError: with the count and the limit, and for the most frequent reasons an example and a remedy.
    """
    # An empty corpus is never what the user meant, though no share is exceeded.
    if total == 0:
        raise WorkError(f"{step}: the corpus has no utterance; check corpus.uri and corpus.format")
    if rejected <= limit * total and rejected < total:
        return

    # Names the section of the config that holds the limit.
    section = {"ingest": "corpus"}.get(step, step)
    if rejected == total:
        result = f"{rejected:,} of {total:,} utterances were rejected, so none is left"
    else:
        result = (
            f"{rejected:,} of {total:,} utterances were rejected ({rejected / total:.1%}), at most {limit:.1%} are "
            f"accepted ({section}.max_reject_share)"
        )
    reasons = format_rejects(summarize_rejects(read_rejects(where))) if where.is_file() else []
    raise WorkError("\n".join([f"{step}: {result}", *(f"  {line}" for line in reasons), f"  all of them: {where}"]))


def fingerprint_utterances(utterances: Iterable[Utterance]) -> str:
    """Names a set of utterances by their content: neither their paths nor their order matter."""
    fingerprint = Fingerprint()
    for utterance in utterances:
        fingerprint.add(utterance.digest())
    return fingerprint.name()


def manifest_path(path: Path | str) -> Path:
    """The manifest's file: the path itself, or `manifest.jsonl` in a folder."""
    path = Path(path)
    return path / MANIFEST_FILE if path.is_dir() else path


def parse_utterance(line: bytes | str, where: str, folder: str) -> Utterance:
    """Decodes a line of a manifest.

    Args:
      where: names the line in messages.
      folder: absolute path of the manifest's folder.

    Raises:
      WorkError: the line is not an utterance.
    """
    return utterance_from_values(parse_line(line, where), folder)


def utterance_from_values(values: dict[str, Any], folder: str) -> Utterance:
    """Makes an utterance of the values of a checked line; the mapping is emptied."""
    # `pop` leaves the keys that Voxline does not know: they become `extra` without another copy.
    take = values.pop
    return Utterance(
        take("id"),
        absolute_path(folder, take("audio_filepath")),
        take("duration"),
        take("text"),
        take("speaker", ""),
        take("split", "train"),
        take("audio_hash", ""),
        take("offset", 0.0),
        take("measured", None) or {},
        values,
    )
