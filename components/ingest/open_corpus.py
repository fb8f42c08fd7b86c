"""From `corpus.uri` to a folder that can be listed: where it is a folder already, and where it is an archive.

This is the one place that knows where corpora lie: on a disk, or in a bucket, from where `brought` gets them.
"""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voxline.components.ingest import archives
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.settings import CorpusSettings
from voxline.errors import SettingsError, WorkError
from voxline.progress import print_status
from voxline.settings import Settings
from voxline.store.bucket_cache import is_cached
from voxline.store.hashing import hash_value
from voxline.store.objects import ObjectInfo, ObjectStore, invalid_name_reason, is_remote, open_store
from voxline.store.step_cache import cached_step, step_key


def open_corpus(store: Path, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes the corpus readable.

    Returns:
      It, and the JSON values that name its content.

    Raises:
      SettingsError: `corpus.uri` is empty, or leads to nothing that is a corpus.
      WorkError: an archive is refused or damaged, a folder cannot be listed, or a bucket not be read.
    """
    if is_remote(settings.uri):
        if not is_archive_uri(settings.uri):
            return open_bucket_folder(settings.uri, store, settings)
        path = download_archive(settings.uri, store)
    else:
        path = _local(settings.uri)
    if path.is_dir():
        corpus = Corpus(path, without=store)
        return corpus, corpus.named_by()
    from voxline.components.ingest import archives

    folder, content = archives.unpack_archive(
        path, store, max_bytes=settings.max_unpacked_gigabytes * 1e9, max_files=settings.max_unpacked_files
    )
    corpus = Corpus(folder, name=archives.archive_stem(path))
    return corpus, corpus.named_by_content_of(content)


def _local(uri: str) -> Path:
    path = Path(uri).expanduser().absolute()
    if uri.strip() and "://" not in uri and os.path.exists(path) and path.is_dir():
        return path
    from voxline.components.ingest import archives

    accepted = f"a folder, or an archive that ends in {', '.join(archives.ARCHIVE_EXTENSIONS)}; either may be in gs://"
    if not uri.strip():
        raise SettingsError(f"corpus.uri is empty; give {accepted}, as in: --set corpus.uri=/data/LibriSpeech")
    if "://" in uri:
        raise SettingsError(f"corpus.uri is {uri!r}; accepted is {accepted}")
    if not os.path.exists(path):
        raise SettingsError(f"corpus.uri is {uri!r}, and {path} does not exist; accepted is {accepted}")
    if not archives.is_archive(path):
        raise SettingsError(f"corpus.uri is {uri!r}, a file; accepted is {accepted}: give the folder that it lies in")
    return path


_STEP = "corpora"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems say that have no hard links, or no more of one file."""


def is_archive_uri(uri: str) -> bool:
    return uri.lower().endswith(archives.ARCHIVE_EXTENSIONS)


def download_archive(uri: str, store: Path) -> Path:
    """Brings an archive.

    Raises:
      SettingsError: it is not there.
    """
    parent, _, name = uri.rpartition("/")
    bucket = open_store(parent)
    entry = bucket.stat(name)
    if entry is None:
        raise SettingsError(f"corpus.uri is {uri!r}, and there is no such object in the bucket")
    return _brought(bucket, [entry], store) / name


def open_bucket_folder(uri: str, store: Path, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes a folder of objects readable.

    Where the store itself is the mirror of a bucket, it is brought when it is first looked into: whoever finds the work
    done by another machine needs nothing of it.

    Returns:
      It, and the JSON values that name its content.

    Raises:
      SettingsError: no object lies there.
      WorkError: a name would leave the folder, or there is more than the settings let pass.
    """
    bucket = open_store(uri)
    print_status(f"ingest: listing {bucket.uri}")
    entries = sorted(bucket.list(), key=lambda entry: entry.name)
    if not entries:
        raise SettingsError(
            f"corpus.uri is {uri!r}, and no object lies there; accepted is a folder of a bucket, or an archive in one, "
            f"that ends in {', '.join(archives.ARCHIVE_EXTENSIONS)}"
        )
    _check(bucket, entries, settings)
    name = bucket.uri.rpartition("/")[2]

    if is_cached(store):
        corpus = Corpus(_folder(store, entries), name=name, before_listing=lambda: _brought(bucket, entries, store))
    else:
        corpus = Corpus(_brought(bucket, entries, store), name=name)
    return corpus, {"objects": _content(entries), "name": name}


def _check(bucket: ObjectStore, entries: list[ObjectInfo], settings: CorpusSettings) -> None:
    """Refuses what must not be brought, before anything is."""
    gigabytes = sum(entry.size for entry in entries) / 1e9
    if gigabytes > settings.max_unpacked_gigabytes:
        raise WorkError(
            f"{bucket.uri}: {gigabytes:,.1f} GB, accepted are {settings.max_unpacked_gigabytes:g} "
            "(corpus.max_unpacked_gigabytes); give a smaller folder, or raise that"
        )
    if len(entries) > settings.max_unpacked_files:
        raise WorkError(
            f"{bucket.uri}: {len(entries):,} objects, accepted are {settings.max_unpacked_files:,} "
            "(corpus.max_unpacked_files); give a smaller folder, or raise that"
        )
    names = {entry.name for entry in entries}
    for name in sorted(names):
        if fault := invalid_name_reason(name):
            raise WorkError(
                f"{bucket.uri}: the object {name!r} {fault}; rename or remove that object, nothing was brought"
            )
        parts = name.split("/")
        if above := next((up for up in ("/".join(parts[:end]) for end in range(1, len(parts))) if up in names), ""):
            raise WorkError(
                f"{bucket.uri}: the object {above!r} would have to be a file and the folder of {name!r} at once; "
                "rename or remove one of them, nothing was brought"
            )


def _brought(bucket: ObjectStore, entries: list[ObjectInfo], store: Path) -> Path:
    """The folder in which those objects have their names; what the pool does not have comes first."""
    with cached_step(store, _STEP, Settings(), {"objects": _content(entries)}) as work:
        folder, pool = work.folder / "files", store / _STEP / "objects"
        if not work.reused:
            shutil.rmtree(folder, ignore_errors=True)
            wanted = [entry for entry in entries if not (pool / _place(entry)).is_file()]
            if wanted:
                print_status(f"ingest: bringing {len(wanted):,} of {len(entries):,} objects of {bucket.uri}")
                bucket.download(wanted, pool, name_of=_place)
            os.sync()  # once for all of them: nothing must name them before they have reached the disk
            for entry in entries:
                _link(pool / _place(entry), folder / entry.name)
            work.counts.update(files=len(entries), bytes=sum(entry.size for entry in entries))
            work.outputs["files"] = "files"
    return folder


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def _folder(store: Path, entries: list[ObjectInfo]) -> Path:
    return step_key(store, _STEP, Settings(), {"objects": _content(entries)}, 1)[1] / "files"


def _content(entries: Iterable[ObjectInfo]) -> str:
    """What names the objects, wherever they lie: names, sizes and checksums."""
    return hash_value([[entry.name, entry.size, entry.checksum, entry.md5] for entry in entries])


def _place(entry: ObjectInfo) -> str:
    """Where an object lies in the pool. Its name takes part, since a crc32c alone is soon that of another."""
    name = _content([entry])
    return f"{name[:2]}/{name}"
