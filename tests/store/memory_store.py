"""A storage in this process' memory: the worked example of docs/extend/storage.md."""

import dataclasses
import datetime
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from voxline.errors import PreconditionError, WorkError
from voxline.store.checksums import crc32c
from voxline.store.objects import ObjectStore
from voxline.store.storage import ABSENT, ObjectInfo
from voxline.store.uris import invalid_name_reason, split_uri

_objects: dict[str, tuple[bytes, ObjectInfo]] = {}
_lock = threading.RLock()
_versions = iter(range(1, 10**9))


class MemoryStore(ObjectStore):
    """Objects below `mem://bucket/prefix/`."""

    def __init__(self, uri: Path | str) -> None:
        bucket, prefix = split_uri(str(uri))
        self.uri = f"mem://{bucket}/{prefix}".rstrip("/")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        below, cut = self.uri_of(prefix), len(self.uri) + 1
        names = sorted(uri[cut:] for uri in list(_objects) if uri.startswith(below))
        return (info for name in names if (info := self.stat(name)))

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        names = (info.name[len(prefix) :] for info in self.list(prefix))
        return sorted({name.partition("/")[0] for name in names if "/" in name})

    def stat(self, name: str) -> ObjectInfo | None:
        found = _objects.get(self.uri_of(name))
        return dataclasses.replace(found[1], name=name) if found else None

    def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        data, current = _objects.get(self.uri_of(info.name), (b"", None))
        if current is None or current.version != info.version:
            raise PreconditionError(f"{self.uri_of(info.name)}: replaced or deleted while it was read; start again")
        return data[start:end]

    def write(self, name: str, data: bytes, *, if_version: str | None = None) -> ObjectInfo:
        if reason := invalid_name_reason(name):
            raise WorkError(f"{self.uri_of(name)}: the name {reason}")
        with _lock:
            self._check(name, if_version)
            now = datetime.datetime.now(datetime.UTC)
            info = ObjectInfo(name, len(data), str(next(_versions)), f"crc32c:{crc32c(data)}", now)
            _objects[self.uri_of(name)] = data, info
        return info

    def upload_file(self, file: Path, name: str, *, if_version: str | None = None) -> ObjectInfo:
        return self.write(name, file.read_bytes(), if_version=if_version)

    def delete(self, name: str, *, if_version: str | None = None) -> None:
        with _lock:
            self._check(name, if_version)
            _objects.pop(self.uri_of(name), None)

    def copy(self, name: str, target: ObjectStore, *, if_version: str | None = None) -> ObjectInfo:
        return target.write(name, self.read(name), if_version=if_version)

    def _check(self, name: str, if_version: str | None) -> None:
        current = self.stat(name)
        if if_version is not None and (current.version if current else ABSENT) != if_version:
            raise PreconditionError(f"{self.uri_of(name)}: another process changed it meanwhile; start again")
