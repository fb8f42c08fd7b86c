"""From what a corpus says to what is so: each entry gets its recording and its id, or is rejected."""

import dataclasses
import json
import math
import unicodedata
from collections.abc import Iterable

from components.ingest.corpus import Corpus, Entry, NotFoundError, escaped
from components.ingest.recordings import Recording
from components.speech.utterances import SLACK_SECONDS, Reason, Reject, Utterance

LONGEST_TEXT = 131_072
"""Characters; what is longer is no utterance's transcript, but a table whose lines run into each other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """An entry whose recording is there.

    Attributes:
      path: of the recording, relative to the corpus.
    """

    entry: Entry
    path: str


def settle(corpus: Corpus, entries: Iterable[Entry | Reject], text_key: str = "") -> tuple[list[Found], list[Reject]]:
    """Finds the recording of every entry, gives an id to those that have none, and sees that ids are unique.

    Args:
      text_key: which of an entry's further keys (`Entry.extra`) is its text; empty: the corpus' own choice.
    """
    found: dict[str, Found] = {}
    rejects = []
    for entry in entries:
        if isinstance(entry, Reject):
            rejects.append(_in_unicode(entry))
            continue
        try:
            settled = _settled(corpus, _with_text(entry, text_key) if text_key else entry)
            if first := found.get(settled.entry.id):
                raise NotFoundError(Reason.DUPLICATE_ID, f"the id stands in {first.entry.source} already")
            found[settled.entry.id] = settled
        except NotFoundError as fault:
            detail = f"{entry.source}: {fault.detail}"
            rejects.append(_in_unicode(Reject(entry.id or entry.audio, fault.reason, detail)))
    return list(found.values()), rejects


def utterance_of(found: Found, recording: Recording, root: str, split: str) -> Utterance | Reject:
    """A line of the manifest; a reject where the file contradicts what the corpus says of it."""
    entry = found.entry
    if recording.fault:
        return Reject(entry.id, Reason.UNREADABLE, f"{entry.source}: {found.path}: {recording.fault}")
    seconds = recording.seconds
    end = entry.offset + (entry.duration or 0.0)
    if seconds and (end > seconds + SLACK_SECONDS or entry.offset >= seconds):
        detail = f"{entry.source}: {found.path} has {seconds:.2f} s, the utterance is said to last until {end:.2f} s"
        return Reject(entry.id, Reason.TRUNCATED, detail)
    return Utterance(
        id=entry.id,
        audio_filepath=f"{root}/{found.path}",
        duration=_duration(entry, seconds),
        text=entry.text,
        speaker=entry.speaker,
        split=split,
        audio_hash=recording.hash,
        offset=entry.offset,
        extra=entry.extra,
    )


def _with_text(entry: Entry, key: str) -> Entry:
    """The entry with another of its texts for text."""
    text = entry.extra.get(key)
    if not isinstance(text, str):
        kept = ", ".join(sorted(name for name, value in entry.extra.items() if isinstance(value, str))) or "none"
        raise NotFoundError(Reason.TRANSCRIPT_MISSING, f"no text {key!r} (corpus.text); further texts there: {kept}")
    return dataclasses.replace(entry, text=text)


def _settled(corpus: Corpus, entry: Entry) -> Found:
    path = corpus.locate(entry.audio, entry.beside)
    if entry.size is not None and entry.size != corpus.files[path].size:
        detail = f"{path} has {corpus.files[path].size:,} bytes, it should have {entry.size:,}"
        raise NotFoundError(Reason.TRUNCATED, detail)
    fine = all(math.isfinite(number) and number >= 0 for number in (entry.offset, entry.duration or 0.0))
    if not fine:
        raise NotFoundError(Reason.BAD_ENTRY, f"offset {entry.offset}, duration {entry.duration}: no seconds from 0 on")
    if len(entry.text) > LONGEST_TEXT:
        detail = (
            f"a transcript of {len(entry.text):,} characters ({entry.text[:40]}…); at most {LONGEST_TEXT:,} are read"
        )
        raise NotFoundError(Reason.BAD_ENTRY, detail)
    extra = {"corpus_split": entry.split, **entry.extra} if entry.split else entry.extra
    try:
        # What cannot be written as JSON in UTF-8 (half a surrogate pair, a file name of odd bytes, NaN).
        f"{path}{entry.id}{entry.text}{entry.speaker}".encode()
        if extra:
            _written(extra).encode()
    except ValueError as error:
        raise NotFoundError(Reason.BAD_ENTRY, f"holds what a manifest cannot: {error}") from None
    entry = dataclasses.replace(
        entry,
        id=unicodedata.normalize("NFC", entry.id.strip() or _derived_id(path, entry.offset)),
        text=unicodedata.normalize("NFC", entry.text.strip()),
        speaker=unicodedata.normalize("NFC", entry.speaker.strip()),
        extra=extra,
    )
    return Found(entry, path)


_written = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _derived_id(path: str, offset: float) -> str:
    """Stays the same when other lines come and go.

    >>> _derived_id("talks/a.wav", 0.0), _derived_id("talks/a.wav", 61.5)
    ('talks/a.wav', 'talks/a.wav@61.5')
    """
    return f"{path}@{offset!r}" if offset else path


def _duration(entry: Entry, seconds: float) -> float:
    """Seconds of the utterance: the corpus' for a part of a recording, else the header's to the end."""
    if not seconds:
        return entry.duration or 0.0
    rest = seconds - entry.offset
    if entry.duration and entry.duration < rest - SLACK_SECONDS:
        return entry.duration
    return entry.duration if entry.duration and entry.offset and entry.duration <= rest else rest


def _in_unicode(reject: Reject) -> Reject:
    return Reject(escaped(reject.id), reject.reason, escaped(reject.detail))
