"""From what a corpus says to what is so: each entry gets its recording and its id, or is rejected."""

import functools
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator

from voxline.components.ingest.corpus import Corpus, CorpusEntry, UnusableEntryError, escape_surrogates
from voxline.components.ingest.staging import ResolvedEntry, StagingTable
from voxline.data.json_codec import encode_string
from voxline.rejects import Reason, Reject

MAX_TEXT_CHARACTERS = 131_072
"""Characters; what is longer is no utterance's transcript, but a table whose lines run into each other."""


def resolve_entries(
    corpus: Corpus, entries: Iterable[CorpusEntry | Reject], spool: StagingTable, text_key: str = ""
) -> None:
    """Finds the recording of every entry, gives an id to those that have none, and sees that ids are unique.

    Args:
      spool: gets them, and the rejects.
      text_key: which of an entry's further keys (`CorpusEntry.extra`) is its text; empty: the corpus' own choice.
    """

    def settled() -> Iterator[ResolvedEntry]:
        for entry in entries:
            if isinstance(entry, Reject):
                spool.reject(_in_unicode(entry))
                continue
            try:
                yield _settled(corpus, entry, _text(entry, text_key) if text_key else entry.text)
            except UnusableEntryError as fault:
                detail = f"{entry.source}: {fault.detail}"
                spool.reject(_in_unicode(Reject(_named(entry), fault.reason, detail)))

    spool.add(settled())
    for named, source, first in spool.without_duplicates():
        detail = f"{source}: the id stands in {first} already"
        spool.reject(_in_unicode(Reject(named, Reason.DUPLICATE_ID, detail)))


def _named(entry: CorpusEntry) -> str:
    """How an entry is called that gets no id of its own."""
    return entry.id or entry.audio


def _text(entry: CorpusEntry, key: str) -> str:
    """Another of the entry's texts."""
    text = entry.extra.get(key)
    if not isinstance(text, str):
        kept = ", ".join(sorted(name for name, value in entry.extra.items() if isinstance(value, str))) or "none"
        raise UnusableEntryError(
            Reason.TRANSCRIPT_MISSING, f"no text {key!r} (corpus.text); further texts there: {kept}"
        )
    return text


def _settled(corpus: Corpus, entry: CorpusEntry, text: str) -> ResolvedEntry:
    path, file = corpus.locate(entry.audio, entry.beside)
    if entry.size is not None and entry.size != file.size:
        raise UnusableEntryError(Reason.TRUNCATED, f"{path} has {file.size:,} bytes, it should have {entry.size:,}")
    if not (0 <= entry.offset < math.inf and (entry.duration is None or 0 <= entry.duration < math.inf)):
        raise UnusableEntryError(
            Reason.BAD_ENTRY, f"offset {entry.offset}, duration {entry.duration}: no seconds from 0 on"
        )
    if len(text) > MAX_TEXT_CHARACTERS:
        detail = f"a transcript of {len(text):,} characters ({text[:40]}…); at most {MAX_TEXT_CHARACTERS:,} are read"
        raise UnusableEntryError(Reason.BAD_ENTRY, detail)
    try:
        # What cannot be written as JSON in UTF-8 (half a surrogate pair, a file name of odd bytes, NaN).
        f"{path}{entry.id}{text}{entry.speaker}".encode()
        extra = _further_members(entry)
        f"{{{extra}{entry.split}".encode()
    except (ValueError, RecursionError) as error:
        raise UnusableEntryError(Reason.BAD_ENTRY, f"holds what a manifest cannot: {error}") from None
    return ResolvedEntry(
        _normal(entry.id.strip() or _derived_id(path, entry.offset)),
        path,
        file.number,
        entry.offset,
        entry.duration or 0.0,
        _normal(text.strip()),
        _normal(entry.speaker.strip()),
        entry.split,
        escape_surrogates(entry.source),
        extra,
        escape_surrogates(_named(entry)),
    )


def _further_members(entry: CorpusEntry) -> str:
    """The keys of a line that follow those of every utterance, as JSON without the braces."""
    if entry.extra:
        extra = {"corpus_split": entry.split, **entry.extra} if entry.split else entry.extra
        return _written(extra)[1:-1]
    return f'"corpus_split": {encode_string(entry.split)}' if entry.split else ""


_written = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


_normal = functools.partial(unicodedata.normalize, "NFC")


def _derived_id(path: str, offset: float) -> str:
    """Stays the same when other lines come and go.

    >>> _derived_id("talks/a.wav", 0.0), _derived_id("talks/a.wav", 61.5)
    ('talks/a.wav', 'talks/a.wav@61.5')
    """
    return f"{path}@{offset!r}" if offset else path


def _in_unicode(reject: Reject) -> Reject:
    return Reject(escape_surrogates(reject.id), reject.reason, escape_surrogates(reject.detail))
