"""Where a purge works: a store, datasets and a registry, each a folder or in a bucket."""

import bisect
import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER, lock_all_shards
from voxline.data.versions import DatasetVersions, check_datasets, list_datasets
from voxline.feedback.captures import check_captures
from voxline.notify.history import FOLDER
from voxline.registry.erasures import PURGES_FILE
from voxline.registry.models import model_names
from voxline.registry.registry import EVALUATION, PROVENANCE
from voxline.registry.training_data import TRAINED_ON
from voxline.store.bucket_cache import cache_root, private_cache
from voxline.store.files import DONE
from voxline.store.layout import CORPORA, UNPACKED, WAVS, check_store, runs_around
from voxline.store.leases import Lease
from voxline.store.objects import CLAIM, ObjectStore, open_store
from voxline.store.storage import ABSENT, ObjectInfo
from voxline.store.store_locks import UNFINISHED_PURGE, exclusive_folder_lock, exclusive_store_lock
from voxline.store.uris import absolute_uri, is_remote

TRAIN = "train"
SOURCES = (UNPACKED, CORPORA)
NAMELESS_FOLDERS = ("fingerprints", "probes", *SOURCES)
"""Folders of a store that name nobody. The content of unpacked corpora is known from manifests."""
BINARY_SUFFIXES = (".wav", ".npy", ".npz", ".tfrecord", ".flac")
_PAGE_SUFFIXES = ("", ".html", ".log", ".json")
"""Of a run's pages, logs and records; KFP's copies of pages have no suffix."""
TENSORBOARD_PREFIX = "events.out.tfevents."
MARKERS = ("version.json", "done.json", "shard.json")
"""Files that make their folder count. They are written last and deleted first."""


class Workspace:
    """Files that a purge reads and changes, by their paths on this machine.

    Files of a disk are used in place. Of a bucket, the workspace lists all objects once and copies those that are read;
    it makes each change in the bucket at once, on condition that the object is still the version that was listed.

    Attributes:
      stores: by the path of their folder on this machine.
    """

    def __init__(self) -> None:
        self.stores: dict[Path, ObjectStore] = {}
        self._objects: dict[str, ObjectInfo] = {}
        self._sorted: list[str] | None = None

    def add(self, uri: str, is_read: Callable[[str], bool]) -> Path:
        """Adds a folder or a bucket URI; returns its folder on this machine.

        Args:
          is_read: whether the purge reads an object of this name.
        """
        store = open_store(uri)
        root = store.local_path()
        self.stores[root] = store
        # One listing, on which every later condition rests: what changes after it is noticed.
        if is_remote(uri):
            objects = list(store.list())
            self._objects |= {f"{root}{os.sep}{info.name}": info for info in objects}
            self._sorted = None
            root.mkdir(parents=True, exist_ok=True)
            store.download([info for info in objects if is_read(info.name)], root)
        return root

    def is_in_bucket(self, path: Path) -> bool:
        """Returns whether a file is the copy of an object, which others read too."""
        return self._locate(path)[0].is_remote

    def uri_of(self, path: Path) -> str:
        """Returns the name of a file that holds on all machines."""
        store, name = self._locate(path)
        return store.uri_of(name) if name else store.uri

    def fetch(self, *paths: Path) -> None:
        """Downloads files that are in a bucket and not here yet."""
        for path in paths:
            if str(path) in self._objects and not path.exists():
                store, name = self._locate(path)
                store.pull([name])

    def exists(self, path: Path) -> bool:
        """Returns whether there is such a file, or a folder with files."""
        return bool(self._below(path))

    def files(self, folder: Path) -> list[Path]:
        """All files below a folder, sorted."""
        return [Path(path) for path in self._below(folder)]

    def folders(self, folder: Path) -> list[Path]:
        """The folders in a folder, sorted."""
        store, name = self._locate(folder)
        return [folder / child for child in store.list_folders(f"{name}/" if name else "")]

    def size(self, path: Path) -> int:
        """Bytes of a file, or of all files below a folder."""
        return sum(info.size for info in self._below(path).values())

    def upload(self, *paths: Path) -> None:
        """Makes written files count: in a bucket, each replaces the object that was listed."""
        for path in filter(self.is_in_bucket, paths):
            # Only the version that was listed is replaced; otherwise somebody else has written since.
            store, name = self._locate(path)
            self._record(path, store.upload_file(path, name, if_version=self._expected_version(path)))

    def upload_new(self, *paths: Path) -> None:
        """Makes written files count whose names identify their content: an existing object stays."""
        for path in filter(self.is_in_bucket, paths):
            store, name = self._locate(path)
            self._record(path, *store.upload(store.local_path(), [name], absent_only=True))

    def remove(self, path: Path) -> None:
        """Deletes a file or a folder, its marker first. It may be absent already."""
        # Markers first: a folder without its marker counts for nothing while the rest goes.
        if self.is_in_bucket(path):
            self._delete_objects(self._below(path))
        if path.is_dir():
            for marker in MARKERS:
                (path / marker).unlink(missing_ok=True)
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def replace_folder(self, source: Path, target: Path, marker: str) -> None:
        """Gives a folder the files of another one, which is deleted. The folder has no marker meanwhile.

        If the process is killed, the same call completes it as long as `source` has the marker.
        """
        # From here on the target is incomplete, until its marker is copied, which is last.
        self.remove(target / marker)
        (store, source_name), (_, target_name) = self._locate(source), self._locate(target)

        names = sorted((path.name for path in self.files(source)), key=lambda name: (name == marker, name))
        for name in names:
            version = self._expected_version(target / name)
            info = (store / source_name).copy(name, store / target_name, if_version=version)
            self._record(target / name, dataclasses.replace(info, name=f"{target_name}/{name}"))

        # What the new folder does not have goes; the claim of a bucket's number stays.
        for path in self.files(target):
            if path.name not in names and path.name != CLAIM:
                self.remove(path)

        self.remove(source)
        # The local copy is of the old version.
        if self.is_in_bucket(target):
            shutil.rmtree(target, ignore_errors=True)
            self.fetch(*self.files(target))

    def _delete_objects(self, objects: dict[str, ObjectInfo]) -> None:
        markers = [path for path in objects if PurePosixPath(path).name in MARKERS]
        for paths in (markers, [path for path in objects if path not in markers]):
            if paths:
                store, _ = self._locate(Path(paths[0]))
                store.map(store.delete_if_unchanged, [objects[path] for path in paths])

        for path in objects:
            del self._objects[path]
        self._sorted = None

    def _record(self, path: Path, info: ObjectInfo) -> None:
        if self.is_in_bucket(path):
            if str(path) not in self._objects:
                self._sorted = None
            self._objects[str(path)] = info

    def _expected_version(self, path: Path) -> str | None:
        """The version that an object must still have; None on a disk, where locks keep others out."""
        if not self.is_in_bucket(path):
            return None
        info = self._objects.get(str(path))
        return info.version if info else ABSENT

    def _below(self, path: Path) -> dict[str, ObjectInfo]:
        """The file of this path, or all files below the folder of this path."""
        store, name = self._locate(path)
        if not store.is_remote:
            if path.is_file() and (info := store.stat(name)):
                return {str(path): info}
            return {f"{store.uri}{os.sep}{info.name}": info for info in store.list(f"{name}/" if name else "")}

        if str(path) in self._objects:
            return {str(path): self._objects[str(path)]}
        # Sorted once for many look-ups, and again after a change.
        if self._sorted is None:
            self._sorted = sorted(self._objects)

        # All names that begin with the folder and a separator are between these two.
        first = bisect.bisect_left(self._sorted, f"{path}{os.sep}")
        last = bisect.bisect_left(self._sorted, f"{path}{chr(ord(os.sep) + 1)}")
        return {path: self._objects[path] for path in self._sorted[first:last]}

    def _locate(self, path: Path) -> tuple[ObjectStore, str]:
        # Nested stores: the innermost one has it.
        root = max((root for root in self.stores if path.is_relative_to(root)), key=lambda root: len(root.parts))
        return self.stores[root], "" if path == root else path.relative_to(root).as_posix()


@dataclasses.dataclass(frozen=True)
class PurgeScope:
    """The scope of a purge. Each is a folder or a bucket URI.

    Attributes:
      store: of the runs.
      datasets: all folders to which datasets of that store are published.
      registry: of the models; None to leave it out.
      runs: run folders, or folders that hold them. Reports there that show the speaker are named, and stay.
      captures: of `voxline serve --capture`, and corpora made of them.
    """

    store: Path | str
    datasets: tuple[Path | str, ...] = ()
    registry: Path | str | None = None
    runs: tuple[Path | str, ...] = ()
    captures: tuple[Path | str, ...] = ()

    @property
    def uris(self) -> list[str]:
        """All of them that are searched, each once."""
        locations = (self.store, *self.datasets, *([self.registry] if self.registry else []), *self.captures)
        return list(dict.fromkeys(absolute_uri(uri) for uri in locations))

    def check(self) -> None:
        """Checks that each location is what it should be: in a wrong folder nothing would be found of anybody.

        Raises:
          SettingsError, WorkError: one is not.
        """
        check_store(self.store)
        for root in self.datasets:
            check_datasets(root)
        if self.registry:
            model_names(self.registry)
        for location in self.captures:
            check_captures(location)

    def run_files(self) -> Iterator[Path]:
        """Pages, logs and TensorBoard files in run folders; also of the run that holds the store."""
        run_folders = [*map(Path, self.runs), *runs_around(self.store)]
        searched = {str(Path(uri)) for uri in self.uris}
        for top in run_folders:
            for folder, folders, files in os.walk(top.absolute()):
                # Pruned in place: `os.walk` then does not descend into the store, which is searched by itself.
                folders[:] = [name for name in folders if f"{folder}/{name}" not in searched]
                yield from (Path(folder, name) for name in sorted(files) if _may_show(name))


@dataclasses.dataclass(frozen=True)
class PurgeLocations:
    """The folders of a scope on this machine.

    Attributes:
      scope: what they are the folders of.
      workspace: in which they are changed.
      leases: the locks of buckets.
      usual_cache: this machine's bucket cache; the purge uses a private one.
    """

    scope: PurgeScope
    store: Path
    datasets: tuple[Path, ...]
    registry: Path | None
    workspace: Workspace
    leases: tuple[Lease, ...]
    usual_cache: Path | None

    def versions(self) -> list[DatasetVersions]:
        """Lists the versions of all datasets."""
        roots = [self.workspace.uri_of(root) for root in self.datasets]
        return [DatasetVersions(root, name) for root in roots for name in list_datasets(root)]

    def versions_to_recover(self) -> list[DatasetVersions]:
        """Lists the versions of all datasets, also those that a killed purge was replacing."""
        return [
            DatasetVersions(self.workspace.uri_of(root), folder.name)
            for root in self.datasets
            for folder in self.workspace.folders(root)
            if not folder.name.startswith(".")
        ]

    def bucket_uris(self) -> list[str]:
        """URIs of the folders in buckets, each once."""
        uris = [store.uri for store in self.workspace.stores.values() if store.is_remote]
        return list(dict.fromkeys([*uris, *(absolute_uri(uri) for uri in self.scope.captures if is_remote(uri))]))

    def clear_usual_cache(self) -> None:
        """Deletes this machine's copies of what is in the buckets. They are downloaded again when needed."""
        for root, store in self.workspace.stores.items():
            if self.usual_cache and store.is_remote:
                shutil.rmtree(self.usual_cache / root.relative_to(cache_root()), ignore_errors=True)


@contextlib.contextmanager
def open_locations(scope: PurgeScope, *, to_change: bool) -> Iterator[PurgeLocations]:
    """Opens the locations of a purge.

    Args:
      to_change: locks them against all other processes.

    Raises:
      SettingsError: a location is no store, holds no datasets, or is no registry.
      WorkError: a process works in the store or reads its shards.
    """
    scope.check()
    with contextlib.ExitStack() as stack:
        # A private cache: this machine's usual one may hold copies from before the purge of another machine.
        usual_cache = stack.enter_context(private_cache()) if any(map(is_remote, scope.uris)) else None
        leases: list[Lease] = []
        if to_change:
            # A store or a folder of datasets in a bucket has a lock of its own there.
            for uri in dict.fromkeys(map(absolute_uri, (scope.store, *scope.datasets))):
                if is_remote(uri):
                    leases.append(stack.enter_context(exclusive_store_lock(uri)))
            if not is_remote(scope.store):
                stack.enter_context(exclusive_folder_lock(Path(scope.store)))
                stack.enter_context(lock_all_shards(scope.store))

        workspace = Workspace()
        store = workspace.add(absolute_uri(scope.store), _is_read_of_store)
        datasets = tuple(workspace.add(absolute_uri(root), _is_read_of_datasets) for root in scope.datasets)
        registry = workspace.add(absolute_uri(scope.registry), _is_read_of_registry) if scope.registry else None
        yield PurgeLocations(scope, store, datasets, registry, workspace, tuple(leases), usual_cache)


def _may_show(name: str) -> bool:
    return Path(name).suffix in _PAGE_SUFFIXES or name.startswith(TENSORBOARD_PREFIX)


def _is_read_of_store(name: str) -> bool:
    parts = name.split("/")

    file = PurePosixPath(name)
    if parts[0].startswith("."):
        return parts[0].startswith(UNFINISHED_PURGE)
    if parts[0] == SHARDS_FOLDER:
        return file.name == SHARD_FILE
    if parts[0] == WAVS:
        return parts[1] == "log"
    if parts[0] == TRAIN:
        return file.name in (DONE, TRAINED_ON)
    return parts[0] not in NAMELESS_FOLDERS and file.suffix not in BINARY_SUFFIXES


def _is_read_of_datasets(name: str) -> bool:
    return not name.startswith(".") or _is_run_record(name)


def _is_read_of_registry(name: str) -> bool:
    file = PurePosixPath(name)
    of_evaluation = file.parent.name == EVALUATION and file.suffix not in BINARY_SUFFIXES
    return of_evaluation or file.name in (TRAINED_ON, PROVENANCE, PURGES_FILE) or _is_run_record(name)


def _is_run_record(name: str) -> bool:
    return name.startswith(f"{FOLDER}/")
