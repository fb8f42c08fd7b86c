"""Recordings by their name without extension, as corpora name them in their transcripts."""

import unicodedata
from pathlib import PurePosixPath

from components.ingest.corpus import AUDIO_EXTENSIONS, Corpus


def recordings_by_name(corpus: Corpus) -> dict[str, PurePosixPath]:
    """Every recording by its path without extension (see `name_of`); of two formats of one, the preferred."""
    found: dict[str, PurePosixPath] = {}
    for path in corpus.recordings():
        name = name_of(path.with_suffix(""))
        other = found.get(name)
        if other is None or _preference(path) < _preference(other):
            found[name] = path
    return found


def name_of(path: PurePosixPath) -> str:
    """In NFC: a name may be typed in one Unicode form and stored in another."""
    return unicodedata.normalize("NFC", str(path))


def _preference(path: PurePosixPath) -> int:
    return AUDIO_EXTENSIONS.index(path.suffix.lower())
