"""Captured clips: audio that callers agreed to give, with what a model heard, until it expires.

A folder or a bucket URI holds them, each as two objects; a clip without the second one does not count:

  <model>/<version>/<day>/<id>.flac   what the model heard: mono, 16 bits, its sample rate; nothing else of the file
  <model>/<version>/<day>/<id>.json   a `CapturedClip`

A corpus of labeled clips, or of drafts, is a folder of its own, with a manifest (`labeling`, `drafting`). Expiry and
erasure take each.

The day is the one, in UTC, at whose start the clips expire, so that a whole folder expires at once. An id is random and
says nothing of the caller. A clip without a pseudonym is a speaker of its own (`CapturedClip.person`), so that a purge
by speaker erases one clip as well.
"""

import dataclasses
import datetime
import hashlib
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from voxline.data.drafts import DRAFTS_FOLDER, DRAFTS_SETTINGS, DRAFTS_SUFFIX, is_draft
from voxline.data.json_codec import encode_json, parse_json, parse_line
from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE
from voxline.errors import SettingsError, WorkError
from voxline.registry.journal import format_utc
from voxline.store.files import ABANDONED_SECONDS, remove_unfinished
from voxline.store.objects import ObjectStore, open_store
from voxline.store.storage import ABSENT, ObjectInfo

AUDIO_SUFFIX = ".flac"
RECORD_SUFFIX = ".json"
ID_PREFIX = "capture-"
AUDIO_FOLDER = "audio"
"""Of a corpus of labeled clips, or a selection."""
TASKS_JSON = "label-studio.json"
"""Of a selection for a person; it repeats what was heard."""
MARKER = "captures.json"
"""Says that a folder is of captures, also if all have expired."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
"""A pseudonym, or what a caller agreed to."""
_SPEAKER = re.compile(rb'"speaker":\s*"([A-Za-z0-9._:-]*)"')
_LOCK = ".captures.lock"
_ERASED = "erased"
"""Folder of marks that a person was erased: a clip that a server still had in its queue is not kept."""
_MARK = re.compile(rf"{_ERASED}/[0-9a-f]{{64}}")
_RECORD = re.compile(r"[^/]+/[0-9]+/[0-9]{4}-[0-9]{2}-[0-9]{2}/[^/]+\.json")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TEXTS = ("id", "model", "digest", "at", "expires", "consent", "text", "note", "speaker")
_NUMBERS = ("version", "seconds", "level_db", "snr_db")


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
        """The folder of its objects, in the captures."""
        return f"{self.model}/{self.version}/{self.expires}"

    @classmethod
    def parse(cls, data: bytes, where: str) -> "CapturedClip":
        """Reads a record; keys of later releases are ignored.

        Args:
          where: the path of the record, which must be that of this clip: files are named by what it says.

        Raises:
          WorkError: it is damaged.
        """
        try:
            values = parse_json(data)
            fields = {field.name for field in dataclasses.fields(cls)}
            clip = cls(**{key: value for key, value in values.items() if key in fields})
            _check_record(clip, where)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise WorkError(f"{where}: not the record of a captured clip ({error}); remove it and its audio") from None
        return clip


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

    def prepare(self) -> None:
        """Makes the location, readable to its owner alone on a disk, and marks it as captures."""
        # The mode is only for a folder that this makes: one that exists is as its owner set it.
        if not self.store.is_remote:
            Path(self.uri).mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.store.stat(MARKER) is None:
            self.store.write(MARKER, b'{"captures": 1}\n')

    def write(self, clip: CapturedClip, audio: bytes) -> int:
        """Writes a clip, its record last, unless its person was erased since. Returns the bytes."""
        record = encode_json(dataclasses.asdict(clip)).encode()
        name = f"{clip.folder}/{clip.id}"
        try:
            # A clip counts from its record on, so that goes last.
            self.store.write(name + AUDIO_SUFFIX, audio)
            self.store.write(name + RECORD_SUFFIX, record)
            # After it was written: an erasure marks first and then looks, so that one of both sees the other.
            erased = any(self._was_erased(person, clip.at) for person in {clip.speaker, clip.id} - {""})
        except BaseException:  # a bucket may have written what it reports as failed
            self._delete(name)
            raise
        if erased:
            self._delete(name)
        return 0 if erased else len(audio) + len(record)

    def _was_erased(self, person: str, at: str) -> bool:
        try:
            return at <= self.store.read(_mark_of(person)).decode()
        except FileNotFoundError:
            return False

    def _delete(self, name: str) -> None:
        # The record first: an audio file without one is no clip.
        self.store.delete(name + RECORD_SUFFIX)
        self.store.delete(name + AUDIO_SUFFIX)

    def clips(self, model: str = "", version: int | None = None, since: str = "") -> Iterator[CapturedClip]:
        """The clips that have not expired, by model, version and day. Damaged records are named, and left out.

        Args:
          model, version: "" and None for all.
          since: the earliest time, as `CapturedClip.at`.

        Raises:
          WorkError: the folder does not exist.
        """
        if self.store.stat(MARKER) is None:
            raise WorkError(f"{self.uri}: no captures here; serve with --capture {self.uri} and --capture-share first")

        prefix = f"{model}/" + (f"{version}/" if version is not None else "") if model else ""
        day = today()

        # The day of expiry is in the name: nothing has to be read for it.
        names = [
            info.name
            for info in self.store.list(prefix)
            if _RECORD.fullmatch(info.name) and info.name.split("/")[2] > day
        ]
        damaged: list[str] = []
        # Many at a time, and not all: a folder may hold millions of clips.
        for start in range(0, len(names), 256):
            part = names[start : start + 256]
            for name, data in zip(part, self.store.map(self._read, part), strict=True):
                if data is None:
                    continue
                try:
                    clip = CapturedClip.parse(data, self.store.uri_of(name))
                except WorkError as error:
                    damaged.append(str(error))
                    continue
                if clip.at >= since:
                    yield clip
        if damaged:
            shown = f"{len(damaged):,} damaged of {len(names):,} records left out, such as {damaged[0]}"
            print(f"voxline: {shown}", file=sys.stderr)

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
        limit = day or today()
        count = 0
        for info in list(self.store.list()):
            if _is_ours(info) and info.name.split("/")[2] <= limit:
                self.store.delete(info.name)
                count += info.name.endswith(RECORD_SUFFIX)

        # Marks are needed as long as a server may still hold a clip in its queue.
        marks = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ABANDONED_SECONDS)
        for info in list(self.store.list(f"{_ERASED}/")):
            if _MARK.fullmatch(info.name) and info.updated < marks:
                self.store.delete(info.name)
        if not self.store.is_remote:  # what a killed process left half written is somebody's clip, too
            for folder in Path(self.uri).glob("*/*/*-*-*/"):
                remove_unfinished(folder)
        return count

    def _read(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except FileNotFoundError:
            return None  # it expired meanwhile


def find_recordings(location: Path | str, person: str) -> list[str]:
    """The URIs of recordings and records of what there is of a speaker, by pseudonym or by the id of a clip.

    Args:
      location: captures, or a corpus of labeled clips or of drafts.

    A damaged record belongs to the speaker that can still be read in it; one in which none can is named and left out.
    """
    store = open_store(location)
    return [store.uri_of(name) for name in _names_of(store, _is_of(person))]


def mark_erased(location: Path | str, person: str) -> None:
    """Keeps what servers have heard of a speaker until now, and not written yet, from being kept in captures."""
    store = open_store(location)

    # Only captures need marks: a corpus of labeled clips has no server that writes to it.
    for name in _names_for(person) if store.stat(MARKER) is not None else ():
        store.write(_mark_of(name), format_utc(time.time()).encode())


def erase_recordings(location: Path | str, person: str) -> None:
    """Deletes what there is of a speaker; a killed erasure can be repeated. See `find_recordings`."""
    mark_erased(location, person)
    with changing(store := open_store(location)):
        _delete_matching(store, _is_of(person))
        _delete_unfinished_drafts(store)


def _names_for(person: str) -> set[str]:
    # With several corpora, the name of one is in front of a speaker; it has no hyphen.
    tail = person.partition("-")[2]
    return {person, tail} if tail.startswith(ID_PREFIX) else {person}


def _is_of(person: str) -> Callable[[dict[str, Any]], bool]:
    names = _names_for(person)
    return lambda line: bool(names & {line.get("speaker"), line["id"]})


def expire_recordings(location: Path | str, day: str = "") -> int:
    """Deletes what has expired in captures and corpora of labeled clips. Returns how many clips.

    Args:
      day: as `CapturedClip.expires`; "" for today.
    """
    limit, store = day or today(), open_store(location)
    if store.stat(MANIFEST_FILE) is None and store.stat(DRAFTS_SETTINGS) is None:
        return CaptureStore(location).expire(limit)

    with changing(store):
        count = _delete_matching(store, lambda line: _is_captured(line) and _expiry_of(line, store) <= limit)
        _delete_unnamed(store)
        _delete_unfinished_drafts(store)
    return count


def changing(store: ObjectStore) -> AbstractContextManager[None]:
    """Lets one process at a time change a folder of clips: one labels, expires or erases."""
    return store.lock(_LOCK, f"waiting for another process that changes {store.uri}")


def count_captures(clips: Iterable[CapturedClip]) -> list[dict[str, Any]]:
    """Counts the captures of each version: clips, seconds, speakers with a pseudonym, times, and the next expiry."""
    versions: dict[tuple[str, int], list[CapturedClip]] = {}
    for clip in clips:
        versions.setdefault((clip.model, clip.version), []).append(clip)
    return [
        {
            "model": model,
            "version": version,
            "clips": len(clips_of_version),
            "seconds": round(sum(clip.seconds for clip in clips_of_version), 3),
            "speakers": len({clip.speaker for clip in clips_of_version} - {""}),
            "first": min(clip.at for clip in clips_of_version),
            "last": max(clip.at for clip in clips_of_version),
            "expires": min(clip.expires for clip in clips_of_version),
        }
        for (model, version), clips_of_version in sorted(versions.items())
    ]


def check_captures(location: Path | str) -> None:
    """Checks that a location holds captured or labeled clips: elsewhere nothing would be found of anybody.

    Raises:
      SettingsError: it does not.
    """
    store = open_store(location)
    if all(store.stat(name) is None for name in (MARKER, MANIFEST_FILE, DRAFTS_SETTINGS)):
        raise SettingsError(f"{location}: no captured and no labeled recordings here; correct --captures")


def _names_of(store: ObjectStore, is_wanted: Callable[[dict[str, Any]], bool]) -> list[str]:
    """The objects of clips whose record or manifest line is wanted, the record last."""
    names = []

    # Lines of a corpus, then objects of captures; a location has one or the other.
    others: set[str] = set()
    for line in _lines(store)[0]:
        if _is_ours_to_delete(line) and is_wanted(line):
            names.append(_audio_of(line))
        else:
            others.add(_audio_of(line))
    names = [name for name in dict.fromkeys(names) if name not in others]  # parts of a recording may be of several
    names += _drafts_of(store, is_wanted)

    # Audio without a record counts too: its writer may have been killed.
    stored = {info.name for info in store.list() if _is_ours(info)}
    for stem in sorted({name.rpartition(".")[0] for name in stored}):
        audio = stem + AUDIO_SUFFIX
        record = stem + RECORD_SUFFIX
        # Of a damaged record its names and what can be read of its speaker are known, without one the names alone.
        line = {"id": PurePosixPath(stem).name, "expires": stem.split("/")[2]}
        if record in stored:
            try:
                line["speaker"] = _SPEAKER.findall(store.read(record))[-1].decode()
            except FileNotFoundError:
                continue  # it expired meanwhile
            except IndexError:
                where = store.uri_of(record)
                shown = f"{where}: damaged: nobody knows whose it is; it expires on {line['expires']}, or remove it"
                print(f"voxline: {shown}", file=sys.stderr)
        if is_wanted(line):
            names += [audio, record] if record in stored else [audio]
    return names


def _delete_matching(store: ObjectStore, is_wanted: Callable[[dict[str, Any]], bool]) -> int:
    lines, version = _lines(store)
    names = _names_of(store, is_wanted)
    # It refuses damage, so it comes before anything is gone.
    _delete_rejects(store, is_wanted)
    for name in names:
        store.delete(name)

    remaining = [line for line in lines if not (_is_ours_to_delete(line) and is_wanted(line))]
    if len(remaining) < len(lines):
        # Tasks repeat the texts of all lines, so they go as a whole.
        store.delete(TASKS_JSON)
        # Last: a killed erasure finds the lines again.
        store.write(MANIFEST_FILE, "".join(encode_json(line) + "\n" for line in remaining).encode(), if_version=version)
    return len(lines) - len(remaining) + sum(name.endswith(RECORD_SUFFIX) for name in names)


def _drafts_of(store: ObjectStore, is_wanted: Callable[[dict[str, Any]], bool]) -> list[str]:
    """The groups of a corpus of drafts in which somebody was heard, whether the draft was kept or not."""
    groups = sorted(info.name for info in store.list(f"{DRAFTS_FOLDER}/") if info.name.endswith(DRAFTS_SUFFIX))
    return [name for name in groups if any(is_wanted(entry) for _, entry in _parsed(store, name, store.read(name)))]


def _parsed(store: ObjectStore, name: str, data: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """The lines of a file of drafts, and their values.

    Raises:
      WorkError: a line is damaged; whom it is about is not known.
    """
    lines = data.splitlines(keepends=True)
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = parse_json(line)
            if not isinstance(entry, dict):
                raise TypeError("no mapping")
        except (ValueError, TypeError) as error:
            # Nothing is lost with the file: the next run hears these recordings again.
            raise WorkError(
                f"{store.uri}/{name}:{number}: damaged ({error}), and it may be about anybody; delete this file, which "
                "`voxline corpus label` writes again, and purge again"
            ) from None
        parsed.append((line, entry))
    return parsed


def _delete_rejects(store: ObjectStore, is_wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Deletes the lines about somebody in what a corpus of drafts has left out."""
    if store.stat(DRAFTS_SETTINGS) is None:
        return
    try:
        data, version = store.read_with_version(REJECTS_FILE)
    except FileNotFoundError:
        return
    lines = _parsed(store, REJECTS_FILE, data)
    remaining = [line for line, entry in lines if not is_wanted(entry)]
    if len(remaining) < len(lines):
        store.write(REJECTS_FILE, b"".join(remaining), if_version=version)


def _delete_unfinished_drafts(store: ObjectStore) -> None:
    """Deletes recordings of a corpus of drafts that no line names: who wrote them was killed before the manifest."""
    if store.stat(DRAFTS_SETTINGS) is None:
        return
    named = {_audio_of(line) for line in _lines(store)[0]}
    for info in list(store.list(f"{AUDIO_FOLDER}/")):
        if info.name not in named:
            store.delete(info.name)


def _delete_unnamed(store: ObjectStore) -> None:
    """Deletes captured recordings in a corpus or selection that no line names: their writer was killed."""
    named = {str(PurePosixPath(line["audio_filepath"])) for line in _lines(store)[0]}

    limit = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ABANDONED_SECONDS)
    for info in list(store.list(f"{AUDIO_FOLDER}/{ID_PREFIX}")):
        if info.name not in named and info.updated < limit:
            store.delete(info.name)

    if not store.is_remote:
        remove_unfinished(Path(store.uri) / AUDIO_FOLDER)


def _expiry_of(line: dict[str, Any], store: ObjectStore) -> str:
    """Reads the expiry from a captured line; other lines have none."""
    # The manifest is a file that people edit.
    day = line["expires"]
    if not isinstance(day, str) or not _DAY.fullmatch(day):
        where = store.uri_of(MANIFEST_FILE)
        raise WorkError(
            f"{where}: {line['id']}: `expires` is {day!r}; write a day such as 2026-12-23, or purge the clip"
        )
    return day


def _is_captured(line: dict[str, Any]) -> bool:
    """Returns whether a line of a manifest is of a captured clip, which expires."""
    return "consent" in line and "expires" in line


def _is_ours_to_delete(line: dict[str, Any]) -> bool:
    """Returns whether a line is of a clip or a draft, whose audio `captures` or `corpus label` has put beside it.

    A publisher's corpus is never changed.
    """
    return _is_captured(line) or (is_draft(line) and _audio_of(line).startswith(f"{AUDIO_FOLDER}/"))


def _audio_of(line: dict[str, Any]) -> str:
    return str(PurePosixPath(line["audio_filepath"]))


def _lines(store: ObjectStore) -> tuple[list[dict[str, Any]], str]:
    """Reads the manifest of a corpus of labeled clips, with its version; [] without one."""
    try:
        data, version = store.read_with_version(MANIFEST_FILE)
    except FileNotFoundError:
        return [], ABSENT
    where = store.uri_of(MANIFEST_FILE)

    # Numbers of lines for messages; blank lines count.
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    return [parse_line(line, f"{where}:{number}") for number, line in lines], version


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
    stem, dot, suffix = info.name.rpartition(".")
    return dot + suffix in (AUDIO_SUFFIX, RECORD_SUFFIX) and bool(_RECORD.fullmatch(stem + RECORD_SUFFIX))


def _check_record(clip: CapturedClip, where: str) -> None:
    # Types first: what follows computes with them.
    if wrong := [name for name in _TEXTS if not isinstance(getattr(clip, name), str)]:
        raise TypeError(f"`{wrong[0]}` is no text")
    numbers = {name: getattr(clip, name) for name in _NUMBERS} | {"confidence": clip.confidence or 0.0}
    numbers |= {f"bands_db[{index}]": level for index, level in enumerate(clip.bands_db)}
    if wrong := [name for name, value in numbers.items() if not _is_number(value)]:
        raise TypeError(f"`{wrong[0]}` is no number")

    # The path decides what is deleted when: a record that names another clip or day must not be believed.
    if not NAME.fullmatch(clip.id) or not where.endswith(f"{clip.version}/{clip.expires}/{clip.id}{RECORD_SUFFIX}"):
        raise ValueError(f"it is of {clip.folder}/{clip.id}")


def _mark_of(person: str) -> str:
    return f"{_ERASED}/{hashlib.sha256(person.encode()).hexdigest()}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
