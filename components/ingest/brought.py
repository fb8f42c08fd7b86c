"""A corpus in a bucket, brought below the store: a folder of objects, or one archive.

Each object comes once: it is kept by its name and checksums in `<store>/corpora/objects`, and a corpus is a folder of
hard links to such, named by its listing. So an unchanged corpus is not brought again, and of one that changed only the
change.
"""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.ingest import archives
from components.ingest.corpus import Corpus
from components.ingest.settings import CorpusSettings
from components.speech.buckets import Bucket, Entry
from components.speech.buckets.place import fault_of
from components.speech.errors import SettingsError, WorkError
from components.speech.mirror import is_mirrored
from components.speech.progress import say
from components.speech.settings import Settings
from components.speech.storage import hash_value
from components.speech.work import keyed_work, named_work

_STEP = "corpora"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems say that have no hard links, or no more of one file."""


def is_archive(uri: str) -> bool:
    return uri.lower().endswith(archives.EXTENSIONS)


def bring_archive(uri: str, store: Path) -> Path:
    """Brings an archive.

    Raises:
      SettingsError: it is not there.
    """
    parent, _, name = uri.rpartition("/")
    bucket = Bucket(parent)
    entry = bucket.stat(name)
    if entry is None:
        raise SettingsError(f"corpus.uri is {uri!r}, and there is no such object in the bucket")
    return _brought(bucket, [entry], store) / name


def open_folder(uri: str, store: Path, settings: CorpusSettings) -> tuple[Corpus, dict[str, Any]]:
    """Makes a folder of objects readable.

    Where the store itself is the mirror of a bucket, it is brought when it is first looked into: whoever finds the work
    done by another machine needs nothing of it.

    Returns:
      It, and the JSON values that name its content.

    Raises:
      SettingsError: no object lies there.
      WorkError: a name would leave the folder, or there is more than the settings let pass.
    """
    bucket = Bucket(uri)
    say(f"ingest: listing {bucket.uri}")
    entries = sorted(bucket.list(), key=lambda entry: entry.name)
    if not entries:
        raise SettingsError(
            f"corpus.uri is {uri!r}, and no object lies there; accepted is a folder of a bucket, or an archive in one, "
            f"that ends in {', '.join(archives.EXTENSIONS)}"
        )
    _check(bucket, entries, settings)
    name = bucket.prefix.rpartition("/")[2] or bucket.bucket

    if is_mirrored(store):
        corpus = Corpus(_folder(store, entries), name=name, before_listing=lambda: _brought(bucket, entries, store))
    else:
        corpus = Corpus(_brought(bucket, entries, store), name=name)
    return corpus, {"objects": _content(entries), "name": name}


def _check(bucket: Bucket, entries: list[Entry], settings: CorpusSettings) -> None:
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
        if fault := fault_of(name):
            raise WorkError(
                f"{bucket.uri}: the object {name!r} {fault}; rename or remove that object, nothing was brought"
            )
        parts = name.split("/")
        if above := next((up for up in ("/".join(parts[:end]) for end in range(1, len(parts))) if up in names), ""):
            raise WorkError(
                f"{bucket.uri}: the object {above!r} would have to be a file and the folder of {name!r} at once; "
                "rename or remove one of them, nothing was brought"
            )


def _brought(bucket: Bucket, entries: list[Entry], store: Path) -> Path:
    """The folder in which those objects have their names; what the pool does not have comes first."""
    with keyed_work(store, _STEP, Settings(), {"objects": _content(entries)}) as work:
        folder, pool = work.folder / "files", store / _STEP / "objects"
        if not work.reused:
            shutil.rmtree(folder, ignore_errors=True)
            wanted = [entry for entry in entries if not (pool / _place(entry)).is_file()]
            if wanted:
                say(f"ingest: bringing {len(wanted):,} of {len(entries):,} objects of {bucket.uri}")
                bucket.download(wanted, pool, named=_place)
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


def _folder(store: Path, entries: list[Entry]) -> Path:
    return named_work(store, _STEP, Settings(), {"objects": _content(entries)}, 1)[1] / "files"


def _content(entries: Iterable[Entry]) -> str:
    """What names the objects, wherever they lie: names, sizes and checksums."""
    return hash_value([[entry.name, entry.size, entry.crc32c, entry.md5] for entry in entries])


def _place(entry: Entry) -> str:
    """Where an object lies in the pool. Its name takes part, since a crc32c alone is soon that of another."""
    name = _content([entry])
    return f"{name[:2]}/{name}"
