"""Captured clips: audio that callers agreed to give, with what a model heard, until it expires.

A folder or a bucket URI holds them, each as two objects; a clip without the second one does not count:

  <model>/<version>/<day>/<id>.flac   what the model heard: mono, 16 bits, its sample rate; nothing else of the file
  <model>/<version>/<day>/<id>.json   a `CapturedClip`

The day is the one, in UTC, at whose start the clips expire, so that a whole folder expires at once. An id is random and
says nothing of the caller. A clip without a pseudonym is a speaker of its own (`CapturedClip.person`), so that a purge
by speaker erases one clip as well.
"""

import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.data.json_codec import encode_json, parse_json
from voxline.errors import WorkError
from voxline.store.objects import open_store
from voxline.store.storage import ObjectInfo

AUDIO_SUFFIX, RECORD_SUFFIX = ".flac", ".json"
ID_PREFIX = "capture-"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
"""A pseudonym, or what a caller agreed to."""
_RECORD = re.compile(r"[^/]+/[0-9]+/[0-9]{4}-[0-9]{2}-[0-9]{2}/[^/]+\.json")


@dataclasses.dataclass(frozen=True)
class CapturedClip:
    """A recording that was heard in service.

    Attributes:
      id: `capture-` and 16 random hexadecimal digits.
      model, version, digest: what heard it.
      at: when, in UTC, as `2026-11-23T18:00:00Z`.
      expires: the day in UTC, as `2026-12-23`, at whose start it is deleted.
      consent: what the request said that the caller agreed to.
      seconds: its length.
      text: what was heard.
      confidence: of the text, 0 to 1; None without words.
      words: each word with its confidence.
      note: why it was not transcribed; see `Transcript.note`.
      level_db, snr_db, bands_db: see `voxline.audio.profile`.
      speaker: a pseudonym that the caller chose; "" for none.
    """

    id: str
    model: str
    version: int
    digest: str
    at: str
    expires: str
    consent: str
    seconds: float
    text: str
    confidence: float | None
    words: list[list[Any]]
    note: str
    level_db: float
    snr_db: float
    bands_db: list[float]
    speaker: str = ""

    @property
    def person(self) -> str:
        """The speaker as manifests and purges know them."""
        return self.speaker or self.id

    @property
    def folder(self) -> str:
        """Of its objects, in the captures."""
        return f"{self.model}/{self.version}/{self.expires}"

    @classmethod
    def parse(cls, data: bytes, where: str) -> "CapturedClip":
        """Reads a record; keys of later releases are ignored.

        Raises:
          WorkError: it is damaged.
        """
        try:
            values = parse_json(data)
            known = {field.name for field in dataclasses.fields(cls)}
            clip = cls(**{key: value for key, value in values.items() if key in known})
            if not all(isinstance(one, str) for one in (clip.id, clip.model, clip.text, clip.expires, clip.speaker)):
                raise TypeError("a text was expected")
            return clip
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise WorkError(f"{where}: not the record of a captured clip ({error}); remove it and its audio") from None


class CaptureStore:
    """Captured clips in a folder or a bucket.

    Args:
      location: a folder or a bucket URI.

    Raises:
      SettingsError: the URI is malformed, or its scheme is not known.
    """

    def __init__(self, location: Path | str) -> None:
        self.store = open_store(location)
        self.uri = self.store.uri

    def write(self, clip: CapturedClip, audio: bytes) -> int:
        """Writes a clip, its record last. Returns the bytes."""
        record = encode_json(dataclasses.asdict(clip)).encode()
        name = f"{clip.folder}/{clip.id}"
        self.store.write(name + AUDIO_SUFFIX, audio)
        try:
            self.store.write(name + RECORD_SUFFIX, record)
        except BaseException:
            self.store.delete(name + AUDIO_SUFFIX)
            raise
        return len(audio) + len(record)

    def clips(self, model: str = "", version: int | None = None, since: str = "") -> Iterator[CapturedClip]:
        """The clips that have not expired, by model, version and day.

        Args:
          model, version: "" and None for all.
          since: the earliest time, as `CapturedClip.at`.

        Raises:
          WorkError: the folder does not exist, or a record is damaged.
        """
        if not self.store.exists():
            raise WorkError(f"{self.uri}: no captures here; serve with --capture {self.uri} and --capture-share first")
        prefix = f"{model}/" + (f"{version}/" if version is not None else "") if model else ""
        day = today()
        names = [
            info.name
            for info in self.store.list(prefix)
            if _RECORD.fullmatch(info.name) and info.name.split("/")[2] > day
        ]
        for start in range(0, len(names), 256):
            part = names[start : start + 256]
            for name, data in zip(part, self.store.map(self._read, part), strict=True):
                if data is not None and (clip := CapturedClip.parse(data, self.store.uri_of(name))).at >= since:
                    yield clip

    def audio(self, clip: CapturedClip) -> bytes:
        """The recording of a clip, as a FLAC file.

        Raises:
          WorkError: it has expired or was erased.
        """
        try:
            return self.store.read(f"{clip.folder}/{clip.id}{AUDIO_SUFFIX}")
        except FileNotFoundError:
            raise WorkError(f"{self.uri}: the recording of {clip.id} has expired or was erased; start again") from None

    def size(self) -> int:
        """Bytes of all objects."""
        return sum(info.size for info in self.store.list() if _is_ours(info))

    def expire(self, day: str = "") -> int:
        """Deletes what has expired. Returns how many clips.

        Args:
          day: as `CapturedClip.expires`; "" for today.
        """
        limit, count = day or today(), 0
        for info in list(self.store.list()):
            if _is_ours(info) and info.name.split("/")[2] <= limit:
                self.store.delete(info.name)
                count += info.name.endswith(RECORD_SUFFIX)
        return count

    def of_person(self, person: str) -> list[CapturedClip]:
        """The clips of a speaker, by pseudonym, or the one clip of this id."""
        if not self.store.exists():
            return []
        return [clip for clip in self.clips() if person in (clip.person, clip.id)]

    def erase(self, clips: Iterable[CapturedClip]) -> list[str]:
        """Deletes clips, their records last: a killed erasure can be repeated. Returns the URIs of what they were."""
        names = [
            f"{clip.folder}/{clip.id}{suffix}" for clip in clips for suffix in (AUDIO_SUFFIX, RECORD_SUFFIX)
        ]
        for name in names:
            self.store.delete(name)
        return [self.store.uri_of(name) for name in names]

    def _read(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except FileNotFoundError:
            return None  # it expired meanwhile


def today() -> str:
    """The day in UTC, as `CapturedClip.expires`."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def expiry_day(at: float, days: int) -> str:
    """The day at whose start a clip expires, at most `days` days after it was heard.

    Args:
      at: seconds since 1970.
      days: 1 or more.

    >>> expiry_day(0, 30)
    '1970-01-31'
    """
    return (datetime.datetime.fromtimestamp(at, datetime.UTC).date() + datetime.timedelta(days=days)).isoformat()


def _is_ours(info: ObjectInfo) -> bool:
    path = PurePosixPath(info.name)
    return bool(_RECORD.fullmatch(str(path.with_suffix(RECORD_SUFFIX))))
