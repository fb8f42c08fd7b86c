"""From `corpus.uri` to a folder that can be listed: where it is a folder already, and where it is an archive.

This is the one place that knows where corpora lie. A `gs://` prefix would be brought here: listed,
downloaded below the store as archives are, and handed on as a `Corpus` named by the objects' checksums.
"""

import os
from pathlib import Path
from typing import Any

from components.ingest import archives
from components.ingest.corpus import Corpus
from components.ingest.settings import CorpusSettings
from components.speech.errors import SettingsError


def open_corpus(store: Path, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes the corpus readable.

    Returns:
      It, and the JSON values that name its content.

    Raises:
      SettingsError: `corpus.uri` is empty, or leads to nothing that is a corpus.
      WorkError: an archive is refused or damaged, or a folder cannot be listed.
    """
    path = _local(settings.uri)
    if path.is_dir():
        corpus = Corpus(path, without=store)
        return corpus, corpus.named_by()
    folder, content = archives.unpack(
        path, store, max_bytes=settings.max_unpacked_gigabytes * 1e9, max_files=settings.max_unpacked_files
    )
    corpus = Corpus(folder, name=archives.stem(path))
    return corpus, corpus.named_by_content_of(content)


def _local(uri: str) -> Path:
    accepted = f"a folder, or an archive that ends in {', '.join(archives.EXTENSIONS)}"
    if not uri.strip():
        raise SettingsError(f"corpus.uri is empty; give {accepted}, as in: --set corpus.uri=/data/LibriSpeech")
    if uri.startswith("gs://"):
        raise SettingsError(
            f"corpus.uri is {uri!r}; corpora are not read from buckets yet. Copy it here first, as in: "
            f"gcloud storage cp -r {uri} DIR, and set corpus.uri to DIR"
        )
    if "://" in uri:
        raise SettingsError(f"corpus.uri is {uri!r}; accepted is {accepted}, on a disk of this machine")
    path = Path(uri).expanduser().absolute()
    if not os.path.exists(path):
        raise SettingsError(f"corpus.uri is {uri!r}, and {path} does not exist; accepted is {accepted}")
    if not path.is_dir() and not archives.is_archive(path):
        raise SettingsError(f"corpus.uri is {uri!r}, a file; accepted is {accepted}: give the folder that it lies in")
    return path
