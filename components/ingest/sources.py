"""From `corpus.uri` to a folder that can be listed: where it is a folder already, and where it is an archive.

This is the one place that knows where corpora lie: on a disk, or in a bucket, from where `brought` gets them.
"""

import os
from pathlib import Path
from typing import Any

from components.ingest.corpus import Corpus
from components.ingest.settings import CorpusSettings
from components.speech.buckets import is_remote
from components.speech.errors import SettingsError


def open_corpus(store: Path, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes the corpus readable.

    Returns:
      It, and the JSON values that name its content.

    Raises:
      SettingsError: `corpus.uri` is empty, or leads to nothing that is a corpus.
      WorkError: an archive is refused or damaged, a folder cannot be listed, or a bucket not be read.
    """
    if is_remote(settings.uri):
        from components.ingest import brought  # not at the top: a folder needs neither buckets nor ways of packing

        if not brought.is_archive(settings.uri):
            return brought.open_folder(settings.uri, store, settings)
        path = brought.bring_archive(settings.uri, store)
    else:
        path = _local(settings.uri)
    if path.is_dir():
        corpus = Corpus(path, without=store)
        return corpus, corpus.named_by()
    from components.ingest import archives

    folder, content = archives.unpack(
        path, store, max_bytes=settings.max_unpacked_gigabytes * 1e9, max_files=settings.max_unpacked_files
    )
    corpus = Corpus(folder, name=archives.stem(path))
    return corpus, corpus.named_by_content_of(content)


def _local(uri: str) -> Path:
    path = Path(uri).expanduser().absolute()
    if uri.strip() and "://" not in uri and os.path.exists(path) and path.is_dir():
        return path
    from components.ingest import archives

    accepted = f"a folder, or an archive that ends in {', '.join(archives.EXTENSIONS)}; either may be in gs://"
    if not uri.strip():
        raise SettingsError(f"corpus.uri is empty; give {accepted}, as in: --set corpus.uri=/data/LibriSpeech")
    if "://" in uri:
        raise SettingsError(f"corpus.uri is {uri!r}; accepted is {accepted}")
    if not os.path.exists(path):
        raise SettingsError(f"corpus.uri is {uri!r}, and {path} does not exist; accepted is {accepted}")
    if not archives.is_archive(path):
        raise SettingsError(f"corpus.uri is {uri!r}, a file; accepted is {accepted}: give the folder that it lies in")
    return path
