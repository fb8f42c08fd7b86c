"""The manifest: JSON lines, an utterance a line, with the keys that NeMo reads; and its rejects.

A line of a manifest:
  {"id": "1988-24833-0000", "audio_filepath": "wav/ab12.wav", "duration": 3.2, "text": "a word",
   "speaker": "1988", "split": "test", "audio_hash": "9f…", "offset": 0.0, "accent": "us"}
and of the rejects beside it:
  {"id": "1988-24833-0001", "reason": "truncated", "detail": "… what was there, in words"}

`in = out + rejects` holds for every step: nothing is lost in silence.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from voxline.data.json_codec import (
    absolute_path,
    encode_json,
    encode_number,
    encode_string,
    identity_format,
    iter_lines,
    parse_line,
)
from voxline.data.json_codec import is_seconds as is_seconds
from voxline.errors import WorkError
from voxline.rejects import Reject
from voxline.store.bucket_cache import is_cached, localize
from voxline.store.files import atomic_write
from voxline.store.hashing import Fingerprint, canonical_json, hash_digest, hash_value

MANIFEST_FILE = "manifest.jsonl"
REJECTS_FILE = "rejects.jsonl"


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """One recording of somebody saying something.

    Attributes:
      id: unique in its manifest; its identity from run to run.
      audio_filepath: absolute in memory, relative to the manifest in the file.
      duration: seconds of speech, from `offset` on.
      text: what was said; raw after ingest, normalised after convert.
      speaker: empty where the corpus does not say.
      split: "train", "dev" or "test".
      audio_hash: names the audio by its source's content (and, once converted, the conversion's settings).
      offset: seconds into the file at which the utterance begins.
      measured: what a step measured of the audio (level, peak, …). Floating point, so no part of any name.
      extra: every other key of the line, kept as it came.
    """

    id: str
    audio_filepath: str
    duration: float
    text: str
    speaker: str = ""
    split: str = "train"
    audio_hash: str = ""
    offset: float = 0.0
    measured: dict[str, Any] = dataclasses.field(default_factory=dict)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def replace(self, **changes: Any) -> "Utterance":
        return dataclasses.replace(self, **changes)

    def identity(self) -> dict[str, Any]:
        """All that names work on this utterance: everything but where it lies and what was measured."""
        values = self.as_line()
        del values["audio_filepath"]
        values.pop("measured", None)
        return values

    def digest(self) -> bytes:
        """The hash of its identity in 16 bytes, of which `hash_value` gives the hexadecimal form.

        Raises:
          WorkError: a further key has a value that JSON has not, such as NaN.
        """
        try:
            return self._digest()
        except ValueError as error:
            raise WorkError(
                f"{self.id}: a further key of its line holds NaN, or a number beyond all measure ({error}); mend it: "
                "ingest (corpus.format: manifest) makes a reject of such a line"
            ) from None

    def _digest(self) -> bytes:
        extra = self.extra
        if extra and not _KNOWN.isdisjoint(extra):
            return bytes.fromhex(hash_value(self.identity()))
        text = identity_format(tuple(extra), bool(self.offset)).format(
            encode_string(self.audio_hash),
            encode_number(self.duration),
            encode_string(self.id),
            encode_number(self.offset),
            encode_string(self.speaker),
            encode_string(self.split),
            encode_string(self.text),
            *(encode_string(value) if type(value) is str else canonical_json(value) for value in extra.values()),
        )
        return hash_digest(text.encode())

    def as_line(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in UTTERANCE_KEYS}
        for optional in ("offset", "measured"):
            if not values[optional]:
                del values[optional]
        return {**values, **self.extra}


UTTERANCE_KEYS = tuple(field.name for field in dataclasses.fields(Utterance) if field.name != "extra")
_KNOWN = frozenset(UTTERANCE_KEYS)


def read_manifest(path: Path | str) -> list[Utterance]:
    """Reads the utterances of a manifest; their paths come back absolute.

    Args:
      path: a manifest, or a folder that holds `manifest.jsonl`; on a disk or in a bucket.

    Raises:
      WorkError: there is no manifest, or a line of it is damaged.
    """
    return list(iter_manifest(localize(path)))


def iter_manifest(path: Path) -> Iterator[Utterance]:
    """As `read_manifest`, one after the other, for corpora that are not to lie in memory."""
    path = manifest_path(path)
    if not path.is_file():
        raise WorkError(f"{path}: no such manifest; run the step that writes it first")
    folder, name = os.path.abspath(path.parent), str(path)
    for number_, line in iter_lines(path):
        yield parse_utterance(line, f"{name}:{number_}", folder)


def write_manifest(path: Path, utterances: Iterable[Utterance]) -> int:
    """Writes a manifest whole or not at all; paths are made relative to it. Returns how many."""
    count = 0
    line_of = ManifestEncoder(path.parent)
    with atomic_write(path, "w") as file:
        for utterance in utterances:
            file.write(line_of(utterance))
            count += 1
    return count


class ManifestEncoder:
    """Makes the lines of a manifest in a folder.

    From a mirror no relative path leads out: on another machine it lies elsewhere.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.abspath(folder)
        self._mirrored = is_cached(Path(self._folder))
        self._ways: dict[str, str] = {}  # from here to the few folders that hold many recordings

    def __call__(self, utterance: Utterance, measured: str = "") -> str:
        """The line of an utterance.

        Args:
          measured: what was measured of it, where that is JSON already.
        """
        one, path = utterance, self.relative(utterance.audio_filepath)
        if one.extra and not _KNOWN.isdisjoint(one.extra):
            return encode_json({**one.as_line(), "audio_filepath": path}) + "\n"
        line = (
            f'{{"id": {encode_string(one.id)}, "audio_filepath": {encode_string(path)}, '
            f'"duration": {encode_number(one.duration)}, "text": {encode_string(one.text)}, '
            f'"speaker": {encode_string(one.speaker)}, "split": {encode_string(one.split)}, '
            f'"audio_hash": {encode_string(one.audio_hash)}'
        )
        if one.offset:
            line += f', "offset": {encode_number(one.offset)}'
        if measured or one.measured:
            line += f', "measured": {measured or encode_json(one.measured)}'
        return f"{line}, {encode_json(one.extra)[1:]}\n" if one.extra else line + "}\n"

    def relative(self, path: str) -> str:
        """How the manifest names a file; an absolute path where that is the only way."""
        if self._mirrored and not is_cached(Path(path)):
            return path
        holder, _, name = path.rpartition("/")
        if (way := self._ways.get(holder)) is None:
            way = os.path.relpath(holder or (os.curdir if not path.startswith("/") else "/"), self._folder)
            self._ways[holder] = way = "" if way == os.curdir else f"{way}/"
        return os.path.normpath(way + name) if name in ("", os.curdir, os.pardir) else way + name


def write_rejects(path: Path, rejects: Iterable[Reject]) -> int:
    count = 0
    with atomic_write(path, "w") as file:
        for reject in rejects:
            file.write(encode_reject(reject))
            count += 1
    return count


def encode_reject(reject: Reject) -> str:
    return encode_json(reject.as_line()) + "\n"


def read_rejects(path: Path | str) -> list[Reject]:
    """Reads the rejects of a step: the recordings that it left out, and why.

    Args:
      path: a list of rejects, or a folder that holds `rejects.jsonl`; on a disk or in a bucket.

    Raises:
      WorkError: there is no such list, or a line of it is damaged.
    """
    path = localize(path)
    path = path / REJECTS_FILE if path.is_dir() else path
    if not path.is_file():
        raise WorkError(f"{path}: no such list of rejects; run the step that writes it first")
    rejects = []
    for number, line in iter_lines(path):
        try:
            rejects.append(Reject.from_line(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{path}:{number}: not a reject ({error}); run the step that writes it again") from None
    return rejects


def check_reject_share(rejected: int, total: int, limit: float, step: str, where: Path) -> None:
    """Fails a step whose rejects pass the stated share.

    Raises:
      WorkError: with the count, the limit, and where the rejects are listed.
    """
    if total == 0:
        raise WorkError(f"{step}: no utterance came in; check corpus.uri and corpus.format")
    if rejected == total:
        raise WorkError(f"{step}: {total:,} of {total:,} utterances were rejected, so none is left; see {where}")
    if rejected > limit * total:
        raise WorkError(
            f"{step}: {rejected:,} of {total:,} utterances were rejected ({rejected / total:.1%}), "
            f"at most {limit:.1%} are accepted (max_reject_share); see {where}"
        )


def fingerprint_utterances(utterances: Iterable[Utterance]) -> str:
    """Names a set of utterances by their content, wherever they lie and in whatever order."""
    found = Fingerprint()
    for utterance in utterances:
        found.add(utterance.digest())
    return found.name()


def manifest_path(path: Path) -> Path:
    return path / MANIFEST_FILE if path.is_dir() else path


def parse_utterance(line: bytes | str, where: str, folder: str) -> Utterance:
    """The utterance in a line of a manifest in a folder, an absolute path; `where` names the line to a person."""
    return utterance_from_values(parse_line(line, where), folder)


def utterance_from_values(values: dict[str, Any], folder: str) -> Utterance:
    """As above, of what a line says that was looked at before; the values are used up."""
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
