"""The manifest: JSON lines, an utterance a line, with the keys that NeMo reads; and its rejects.

A line of a manifest:
  {"id": "1988-24833-0000", "audio_filepath": "wav/ab12.wav", "duration": 3.2, "text": "a word",
   "speaker": "1988", "split": "test", "audio_hash": "9f…", "offset": 0.0, "accent": "us"}
and of the rejects beside it:
  {"id": "1988-24833-0001", "reason": "truncated", "detail": "… what was there, in words"}

`in = out + rejects` holds for every step: nothing is lost in silence.
"""

import dataclasses
import enum
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from components.speech.errors import WorkError
from components.speech.mirror import is_mirrored
from components.speech.storage import hash_value, whole_file

SLACK_SECONDS = 0.1
"""How far an utterance may reach past the end of its recording: durations are rounded, transcripts timed by hand."""

MANIFEST = "manifest.jsonl"
REJECTS = "rejects.jsonl"


class Reason(enum.StrEnum):
    """Why a recording is not in the output. Codes are stable: dashboards count them."""

    MISSING_FILE = "missing_file"
    OUTSIDE_CORPUS = "outside_corpus"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    MD5_MISMATCH = "md5_mismatch"
    WRONG_FORMAT = "wrong_format"
    EMPTY_AUDIO = "empty_audio"
    SILENT = "silent"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    TRANSCRIPT_MISSING = "transcript_missing"
    TRANSCRIPT_EMPTY = "transcript_empty"
    OUTSIDE_ALPHABET = "outside_alphabet"
    BAD_ENTRY = "bad_entry"
    DUPLICATE_ID = "duplicate_id"
    BAD_FEATURES = "bad_features"


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

    def as_line(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in FIELDS}
        for optional in ("offset", "measured"):
            if not values[optional]:
                del values[optional]
        return {**values, **self.extra}


_written = json.JSONEncoder(ensure_ascii=False).encode
"""As `json.dumps`, which would make an encoder anew for each line."""

FIELDS = tuple(field.name for field in dataclasses.fields(Utterance) if field.name != "extra")
REQUIRED = ("id", "audio_filepath", "duration", "text")


@dataclasses.dataclass(frozen=True, slots=True)
class Reject:
    """A recording that was left out, and why."""

    id: str
    reason: Reason
    detail: str

    def as_line(self) -> dict[str, str]:
        return {"id": self.id, "reason": str(self.reason), "detail": self.detail}

    @classmethod
    def from_line(cls, line: dict[str, str]) -> "Reject":
        return cls(line["id"], Reason(line["reason"]), line["detail"])


def read_manifest(path: Path) -> list[Utterance]:
    """Reads a manifest, or `manifest.jsonl` in a folder; paths come back absolute.

    Raises:
      WorkError: naming the line, when the manifest is absent or not one of ours.
    """
    return list(each_utterance(path))


def each_utterance(path: Path) -> Iterator[Utterance]:
    """As `read_manifest`, one after the other, for corpora that are not to lie in memory."""
    path = manifest_file(path)
    if not path.is_file():
        raise WorkError(f"{path}: no such manifest; run the step that writes it first")
    folder, name = os.path.abspath(path.parent), str(path)
    for number, line in enumerate(_lines(path), start=1):
        yield utterance_of(line, f"{name}:{number}", folder)


def write_manifest(path: Path, utterances: Iterable[Utterance]) -> int:
    """Writes a manifest whole or not at all; paths are made relative to it. Returns how many.

    From a mirror no relative path leads out: on another machine it lies elsewhere.
    """
    count = 0
    folder = os.path.abspath(path.parent)
    mirrored = is_mirrored(Path(folder))
    ways: dict[str, str] = {}  # from here to the few folders that hold many recordings
    with whole_file(path, "w") as file:
        for utterance in utterances:
            line = utterance.as_line()
            if not mirrored or is_mirrored(Path(utterance.audio_filepath)):
                holder, name = os.path.split(utterance.audio_filepath)
                if holder not in ways:
                    ways[holder] = os.path.relpath(holder or os.curdir, folder)
                line["audio_filepath"] = os.path.normpath(f"{ways[holder]}/{name}")
            file.write(_written(line) + "\n")
            count += 1
    return count


def write_rejects(path: Path, rejects: Iterable[Reject]) -> int:
    count = 0
    with whole_file(path, "w") as file:
        for reject in rejects:
            file.write(_written(reject.as_line()) + "\n")
            count += 1
    return count


def read_rejects(path: Path) -> list[Reject]:
    path = path / REJECTS if path.is_dir() else path
    return [Reject.from_line(json.loads(line)) for line in _lines(path)]


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


def fingerprint(utterances: Iterable[Utterance]) -> str:
    """Names a set of utterances by their content, wherever they lie and in whatever order."""
    return hash_value(sorted(hash_value(utterance.identity()) for utterance in utterances))


def manifest_file(path: Path) -> Path:
    return path / MANIFEST if path.is_dir() else path


def is_seconds(value: Any) -> bool:
    """Whether a value of a manifest is a time: from 0 on, and short of thirty years (`1e400` is valid JSON)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _lines(path: Path) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            yield from (line for line in file if line.strip())
    except UnicodeDecodeError as error:
        raise WorkError(
            f"{path}: no manifest: not UTF-8 (byte {error.start}); give what ingest or convert made"
        ) from None


def utterance_of(line: str, where: str, folder: str) -> Utterance:
    """The utterance in a line of a manifest in a folder, an absolute path; `where` names the line to a person."""
    try:
        values = json.loads(line)
        if "\\u" in line:
            json.dumps(values, ensure_ascii=False).encode()  # half a surrogate pair is JSON, and no text
    except (ValueError, RecursionError) as error:
        raise WorkError(f"{where}: not a JSON line ({error}); the manifest was damaged or half copied") from None
    if not isinstance(values, dict):
        raise WorkError(f"{where}: {line.strip()[:80]}; a line of a manifest is a mapping with {', '.join(REQUIRED)}")
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise WorkError(f"{where}: no {', '.join(missing)}; an utterance has at least {', '.join(REQUIRED)}")
    faults = [f"`{key}` is {values[key]!r}" for key, fits in _FITS.items() if key in values and not fits(values[key])]
    if faults:
        raise WorkError(
            f"{where}: {', '.join(faults)}; seconds are numbers from 0 on, the others are text; "
            "a manifest that somebody else wrote goes through ingest (corpus.format: manifest)"
        )
    known = {key: values.pop(key) for key in FIELDS if key in values}
    known["audio_filepath"] = os.path.normpath(os.path.join(folder, known["audio_filepath"]))
    return Utterance(**known, extra=values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("id", "audio_filepath", "text", "speaker", "split", "audio_hash"), _is_text),
    **dict.fromkeys(("duration", "offset"), is_seconds),
    "measured": lambda value: isinstance(value, dict),
}
