"""What a purge stands on: folders; or copies of folders in buckets, where each change is made in the bucket at once.

A copy has what must be looked into; of the rest only the names are known. Each object is replaced or deleted on
condition that it is still the one which was looked at.
"""

import bisect
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from voxline.store.bucket_cache import ensure_local, is_cached
from voxline.store.objects import ABSENT, ObjectInfo, ObjectStore, open_store

MARKERS = ("version.json", "done.json", "shard.json")
"""Written last, and so the first to go."""


class Workspace:
    """Paths that are looked at and changed; of a bucket those of its copy.

    Attributes:
      roots: of the copies, each with its bucket.
    """

    def __init__(self) -> None:
        self.roots: dict[Path, ObjectStore] = {}
        self._entries: dict[str, ObjectInfo] = {}
        self._sorted: list[str] | None = None

    def take_in(self, place: str, wanted: Callable[[str], bool]) -> Path:
        """Lists a folder of a bucket, and brings those of its objects that are wanted, by their names.

        Returns:
          Its copy.
        """
        store = open_store(place)
        root, entries = store.local_path(), list(store.list())
        self.roots[root] = store
        self._sorted = None
        self._entries |= {f"{root}{os.sep}{entry.name}": entry for entry in entries}
        root.mkdir(parents=True, exist_ok=True)
        store.pull([entry for entry in entries if wanted(entry.name)])
        return root

    def exists(self, path: Path) -> bool:
        """Whether a file or a folder is there, brought or not."""
        return bool(self._below(path)) if is_cached(path) else path.exists()

    def files(self, folder: Path) -> list[Path]:
        """All files of a folder, brought or not."""
        if is_cached(folder):
            return list(map(Path, self._below(folder)))
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def folders(self, folder: Path) -> list[Path]:
        """The folders in a folder."""
        if is_cached(folder):
            names = (Path(path).relative_to(folder).parts for path in self._below(folder))
            return [folder / name for name in sorted({parts[0] for parts in names if len(parts) > 1})]
        return sorted(path for path in folder.glob("*") if path.is_dir())

    def size(self, path: Path) -> int:
        """Bytes of a file, or of all files in a folder."""
        if is_cached(path):
            return sum(self._entries[one].size for one in self._below(path))
        return sum(file.stat().st_size for file in ([path] if path.is_file() else self.files(path)))

    def bring(self, paths: Iterable[Path]) -> None:
        """Makes files present that were not wanted at first."""
        ensure_local(paths)

    def sent(self, *paths: Path) -> None:
        """Files were written; in a bucket they replace what was looked at."""
        for path in filter(is_cached, paths):
            bucket, name = self._object(path)
            before = self._entries.get(str(path))
            entry = bucket.write(name, path.read_bytes(), if_version=before.version if before else ABSENT)
            self._note(path, entry)

    def sent_new(self, *paths: Path) -> None:
        """Files were written whose names name their content: one that is in the bucket stays."""
        for path in filter(is_cached, paths):
            bucket, name = self._object(path)
            root = Path(str(path).removesuffix(f"{os.sep}{name}"))
            self._note(path, *bucket.upload(root, [name], absent_only=True))

    def remove(self, path: Path) -> None:
        """Removes a file or a folder, what makes it count first; what is not there is none to remove."""
        if is_cached(path):
            self._delete(self._below(path))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def remove_there(self, path: Path) -> None:
        """Removes what the bucket has of a folder, and leaves the copy."""
        self._delete(self._below(path))

    def move(self, source: Path, target: Path, marker: str, keep: Iterable[str] = ()) -> None:
        """Puts a folder of a bucket that was sent whole in the place of another; between the two there is none.

        Args:
          marker: without which a folder does not count.
          keep: names in the target that stay.
        """
        self._delete([path for path in self._below(target) if path == str(target / marker)])
        names = [Path(path).name for path in self._below(source)]
        for name in [*(name for name in names if name != marker), marker]:
            (bucket, begin), (_, end) = self._object(source / name), self._object(target / name)
            before = self._entries.get(str(target / name))
            to = open_store(bucket.uri_of(end.rpartition("/")[0]))
            entry = open_store(bucket.uri_of(begin.rpartition("/")[0])).copy(
                name, to, if_version=before.version if before else ABSENT
            )
            self._note(target / name, entry)
        self._delete([path for path in self._below(target) if Path(path).name not in {*names, *keep}])
        self._delete(self._below(source))
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        ensure_local(map(Path, self._below(target)))

    def _delete(self, paths: list[str]) -> None:
        if not paths:
            return
        bucket, _ = self._object(Path(paths[0]))
        bucket.map(self._delete_one, [path for path in paths if Path(path).name in MARKERS])
        bucket.map(self._delete_one, [path for path in paths if Path(path).name not in MARKERS])
        for path in paths:
            del self._entries[path]
        self._sorted = None

    def _delete_one(self, path: str) -> None:
        bucket, name = self._object(Path(path))
        bucket.delete_if_unchanged(dataclasses.replace(self._entries[path], name=name))

    def _note(self, path: Path, entry: ObjectInfo) -> None:
        if str(path) not in self._entries:
            self._sorted = None
        self._entries[str(path)] = entry

    def _below(self, path: Path) -> list[str]:
        """The objects that a path is, or that are in the folder that it is."""
        if str(path) in self._entries:
            return [str(path)]
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        start = f"{path}{os.sep}"
        first = bisect.bisect_left(self._sorted, start)
        last = bisect.bisect_left(self._sorted, f"{path}{chr(ord(os.sep) + 1)}")
        return self._sorted[first:last]

    def _object(self, path: Path) -> tuple[ObjectStore, str]:
        root = max((root for root in self.roots if path.is_relative_to(root)), key=lambda root: len(root.parts))
        return self.roots[root], path.relative_to(root).as_posix()
