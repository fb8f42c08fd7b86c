"""Opens the corpus at `corpus.uri`: a folder or an archive, on this machine or in a bucket."""

import errno
import functools
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voxline.components.ingest.archives import ARCHIVE_EXTENSIONS, archive_stem, unpack_archive
from voxline.components.ingest.corpus import Corpus
from voxline.components.ingest.http_download import (
    archive_name,
    download_archive,
    refuse_credentials,
    without_query,
)
from voxline.components.ingest.settings import HTTP_SCHEMES, CorporaSettings, CorpusSettings
from voxline.data.drafts import PSEUDO
from voxline.errors import SettingsError, WorkError
from voxline.progress import print_status
from voxline.settings import Settings
from voxline.store.finished import step_key
from voxline.store.hashing import hash_value
from voxline.store.objects import ObjectStore, open_store
from voxline.store.step_cache import cached_step
from voxline.store.storage import ObjectInfo
from voxline.store.uris import SCHEMES, invalid_name_reason, is_remote

_STEP = "corpora"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems without hard links, or with too many of one file."""
_CORPUS_KEY = re.compile(rf"(?<![\w./])corpus(?=\.(?:{'|'.join(CorpusSettings.model_fields)})\b)")
TABLE_EXTENSIONS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".csv", ".tsv", ".scp", ".parquet")
"""Extensions of a file that is a corpus by itself: it lists the recordings, or holds them."""
_ACCEPTED = (
    f"a folder, an archive that ends in {', '.join(ARCHIVE_EXTENSIONS)}, "
    f"or a manifest ({', '.join(TABLE_EXTENSIONS)}); "
    f"folder and archive may be in {' or '.join(f'{scheme}://' for scheme in SCHEMES)}, an archive also at http(s)://"
)


def open_corpus(location: Path | str, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes a corpus readable on this machine.

    Args:
      location: the store, a folder or bucket URI.

    Returns:
      The corpus, and the JSON values that identify its content.

    Raises:
      SettingsError: `corpus.uri` is empty, or does not lead to a corpus.
      WorkError: an archive is refused or damaged, or a folder or a bucket cannot be read.
    """
    uri = settings.uri
    store = open_store(location).local_path()
    if uri.startswith(HTTP_SCHEMES):
        _check_http(settings)
        limit = settings.max_unpacked_gigabytes * 1e9
        path = download_archive(uri, settings.sha256.lower(), store, max_bytes=limit)
    elif _is_remote(settings):
        if not uri.lower().endswith(ARCHIVE_EXTENSIONS):
            return _open_bucket_folder(uri, store, settings, lazy=is_remote(location))
        path = _download_archive(uri, store)
    else:
        path = _check_local(uri, settings)

    # A folder, a table that names recordings elsewhere, or an archive, in this order.
    if path.is_dir():
        corpus = Corpus(path, exclude=store, settings=settings)
        return corpus, corpus.key_parts()
    if path.name.lower().endswith(TABLE_EXTENSIONS):
        corpus = Corpus(path.parent, exclude=store, settings=settings, table=path.name)
        return corpus, corpus.key_parts()

    folder, content = unpack_archive(
        path, store, max_bytes=settings.max_unpacked_gigabytes * 1e9, max_files=settings.max_unpacked_files
    )
    corpus = Corpus(folder, name=archive_stem(path), exclude=store, settings=settings)
    return corpus, corpus.archive_key_parts(content)


def check_corpus_location(settings: CorporaSettings) -> None:
    """Refuses a path that does not lead to a corpus, before anything slow is imported; URIs are left to `open_corpus`.

    Raises:
      SettingsError: names the path.
    """
    for name, corpus in settings.by_name().items():
        try:
            _check_location(corpus)
        except SettingsError as error:
            raise SettingsError(name_corpus(str(error), name)) from error


def name_corpus(message: str, name: str) -> str:
    """The message about one of several corpora, with the keys of that one.

    >>> name_corpus("corpus.uri is empty; give a folder", "ours")
    'corpus.corpora.ours.uri is empty; give a folder'
    >>> name_corpus("/data/corpus.tar: damaged", "ours")
    'corpus.corpora.ours: /data/corpus.tar: damaged'
    >>> name_corpus("corpus.uri is empty; give a folder", "pseudo")
    'corpus.pseudo.uri is empty; give a folder'
    >>> name_corpus("10% were rejected (corpus.max_reject_share)", "pseudo")
    'corpus.pseudo: 10% were rejected (corpus.max_reject_share)'
    """
    if not name:
        return message
    own = f"corpus.{PSEUDO}" if name == PSEUDO else f"corpus.corpora.{name}"
    # Drafts have a location of their own, and what else they need from the corpus beside them.
    named = message.replace("corpus.uri", f"{own}.uri") if name == PSEUDO else _CORPUS_KEY.sub(own, message)
    return named if named.startswith(own) else f"{own}: {named}"


def _check_location(settings: CorpusSettings) -> None:
    if settings.uri.startswith(HTTP_SCHEMES):
        _check_http(settings)
    elif not _is_remote(settings):
        _check_local(settings.uri, settings)


def _is_remote(settings: CorpusSettings) -> bool:
    if settings.sha256:
        raise SettingsError(
            f"corpus.sha256 is of an archive at an http(s) address, and corpus.uri is {settings.uri!r}; remove it"
        )
    try:
        return is_remote(settings.uri)
    except SettingsError as error:
        raise SettingsError(f"corpus.uri is {settings.uri!r}; accepted is {_ACCEPTED}") from error


def _check_http(settings: CorpusSettings) -> None:
    refuse_credentials(settings.uri)
    if not archive_name(settings.uri).lower().endswith(ARCHIVE_EXTENSIONS):
        raise SettingsError(
            f"corpus.uri is {without_query(settings.uri)!r}; at an http(s) address an archive is accepted, whose name "
            f"ends in {', '.join(ARCHIVE_EXTENSIONS)}"
        )
    if not settings.sha256:
        raise SettingsError(
            f"corpus.uri is {without_query(settings.uri)!r}, and corpus.sha256 is empty; give the SHA-256 of the "
            "archive, from its publisher or by sha256sum: an address alone does not say what is behind it"
        )


def _check_local(uri: str, settings: CorpusSettings) -> Path:
    if not uri.strip():
        raise SettingsError(f"corpus.uri is empty; give {_ACCEPTED}, as in: --set corpus.uri=/data/LibriSpeech")
    path = Path(uri).expanduser().absolute()
    if not os.path.exists(path):
        raise SettingsError(f"corpus.uri is {uri!r}, and {path} does not exist; accepted is {_ACCEPTED}")
    if not path.is_dir() and not path.name.lower().endswith((*ARCHIVE_EXTENSIONS, *TABLE_EXTENSIONS)):
        raise SettingsError(f"corpus.uri is {uri!r}, a file; accepted is {_ACCEPTED}: give the folder of the file")
    for root in settings.audio_roots:
        if not Path(root).expanduser().is_dir():
            raise SettingsError(f"corpus.audio_roots: {root} is not a folder on this machine; correct the path")
    return path


def _download_archive(uri: str, store: Path) -> Path:
    parent, _, name = uri.rpartition("/")
    bucket = open_store(parent)
    info = bucket.stat(name)
    if info is None:
        raise SettingsError(f"corpus.uri is {uri!r}, and the bucket has no such object; accepted is {_ACCEPTED}")
    return _download(bucket, [info], store) / name


def _open_bucket_folder(
    uri: str, store: Path, settings: CorpusSettings, *, lazy: bool
) -> tuple[Corpus, dict[str, Any]]:
    """Opens a folder of objects.

    Where the store itself is in a bucket, the objects are downloaded only when they are first needed: a machine that
    finds the step done by another one needs none of them.
    """
    # The listing alone names the content: sizes and checksums, without a download.
    bucket = open_store(uri)
    print_status(f"ingest: listing {bucket.uri}")
    objects = sorted(bucket.list(), key=lambda info: info.name)
    if not objects:
        raise SettingsError(f"corpus.uri is {uri!r}, and the bucket has no object there; accepted is {_ACCEPTED}")

    _check_objects(bucket, objects, settings)
    name = bucket.uri.rpartition("/")[2]

    if lazy:
        folder = step_key(store, _STEP, Settings(), {"objects": _hash_objects(objects)}, 1)[1] / "files"
        download = functools.partial(_download, bucket, objects, store)
        corpus = Corpus(folder, name=name, exclude=store, before_listing=download, settings=settings)
    else:
        corpus = Corpus(_download(bucket, objects, store), name=name, exclude=store, settings=settings)
    return corpus, {"objects": _hash_objects(objects), "name": name}


def _check_objects(bucket: ObjectStore, objects: list[ObjectInfo], settings: CorpusSettings) -> None:
    """Refuses a folder before anything is downloaded.

    Raises:
      WorkError: the name of an object would leave the folder, or the folder is larger than the settings accept.
    """
    gigabytes = sum(info.size for info in objects) / 1e9
    if gigabytes > settings.max_unpacked_gigabytes:
        raise WorkError(
            f"{bucket.uri}: {gigabytes:,.1f} GB, at most {settings.max_unpacked_gigabytes:g} are accepted "
            "(corpus.max_unpacked_gigabytes); give a smaller folder, or raise the limit"
        )
    if len(objects) > settings.max_unpacked_files:
        raise WorkError(
            f"{bucket.uri}: {len(objects):,} objects, at most {settings.max_unpacked_files:,} are accepted "
            "(corpus.max_unpacked_files); give a smaller folder, or raise the limit"
        )

    # A bucket has no folders: "a" and "a/b" can both be objects, but not both be files.
    names = {info.name for info in objects}
    for name in sorted(names):
        if fault := invalid_name_reason(name):
            raise WorkError(
                f"{bucket.uri}: the object {name!r} {fault}; rename or remove that object, nothing was downloaded"
            )

        parts = name.split("/")
        parents = ("/".join(parts[:end]) for end in range(1, len(parts)))
        if parent := next((parent for parent in parents if parent in names), ""):
            raise WorkError(
                f"{bucket.uri}: the object {parent!r} would have to be both a file and the folder of {name!r}; "
                "rename or remove one of them, nothing was downloaded"
            )


def _download(bucket: ObjectStore, objects: list[ObjectInfo], store: Path) -> Path:
    """Downloads the objects that earlier runs have not, and returns the folder in which all have their names."""
    with cached_step(store, _STEP, Settings(), {"objects": _hash_objects(objects)}) as output:
        # The pool has each object once, whatever listing it was in; a folder of links gives them their names.
        folder = output.folder / "files"
        pool = store / _STEP / "objects"
        if not output.reused:
            shutil.rmtree(folder, ignore_errors=True)

            missing = [info for info in objects if not (pool / _pool_name(info)).is_file()]
            if missing:
                print_status(f"ingest: downloading {len(missing):,} of {len(objects):,} objects of {bucket.uri}")
                bucket.download(missing, pool, name_of=_pool_name)

            os.sync()  # once for all of them: they must be on the disk before anything names them
            for info in objects:
                _link(pool / _pool_name(info), folder / info.name)
            output.counts.update(files=len(objects), bytes=sum(info.size for info in objects))
            output.outputs["files"] = "files"
            output.unverified = ("files",)  # a corpus: convert compares each recording with the manifest's hash
    return folder


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def _hash_objects(objects: Iterable[ObjectInfo]) -> str:
    """Identifies objects, in whatever bucket, by names, sizes and checksums."""
    return hash_value([[info.name, info.size, info.checksum, info.md5] for info in objects])


def _pool_name(info: ObjectInfo) -> str:
    """The object's file in the pool. Its name takes part, since different objects may share a CRC-32C."""
    name = _hash_objects([info])
    return f"{name[:2]}/{name}"
