"""Where a speaker is looked for: a store, datasets and a registry, in folders or in buckets."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from voxline.components.publish.purge.workspace import Workspace
from voxline.components.publish.versions import DatasetVersions, list_datasets
from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER
from voxline.errors import SettingsError
from voxline.registry.registry import EVALUATION, PROVENANCE
from voxline.registry.training_data import TRAINED_ON
from voxline.store.bucket_cache import cache_root, is_cached, local_path, private_cache, uri_of
from voxline.store.bucket_locks import UNFINISHED_PURGE, Lease, exclusive_store_lock
from voxline.store.files import DONE
from voxline.store.objects import is_remote

WAVS, TRAIN, UNPACKED = "wavs", "train", ("unpacked", "corpora")
NAMELESS_FOLDERS = ("fingerprints", "probes", *UNPACKED)
"""Folders of a store in which nobody is named; of unpacked corpora the manifests tell what they hold."""
BINARY_SUFFIXES = (".wav", ".npy", ".npz", ".tfrecord", ".flac")


@dataclasses.dataclass(frozen=True)
class PurgeLocations:
    """Folders; of a bucket its copy.

    Attributes:
      ground: where they are changed.
      leases: by which those in buckets are held.
      usual: the mirror of buckets that this machine has besides the copies.
    """

    store: Path
    datasets: tuple[Path, ...] = ()
    registry: Path | None = None
    ground: Workspace = dataclasses.field(default_factory=Workspace)
    leases: tuple[Lease, ...] = ()
    usual: Path | None = None

    @classmethod
    def of(cls, store: Path | str, datasets: Iterable[Path | str], registry: Path | str | None) -> "PurgeLocations":
        """Folders alone.

        Raises:
          SettingsError: one is no folder.
        """
        for place in (store, *datasets, *([registry] if registry else [])):
            if not Path(place).is_dir():
                raise SettingsError(f"{place}: no such folder; give the store, datasets and registry of the runs")
        return cls(
            Path(store).absolute(),
            tuple(Path(place).absolute() for place in datasets),
            Path(registry).absolute() if registry else None,
        )

    def versions(self) -> list[DatasetVersions]:
        roots = [uri_of(root) for root in self.datasets]
        return [DatasetVersions(root, name) for root in roots for name in list_datasets(root)]

    def all_versions(self) -> list[DatasetVersions]:
        """Also of datasets of which a version is just being replaced."""
        return [
            DatasetVersions(uri_of(root), folder.name)
            for root in self.datasets
            for folder in self.ground.folders(root)
            if not folder.name.startswith(".")
        ]

    def in_buckets(self) -> list[str]:
        """Addresses, each once."""
        places = (self.store, *self.datasets, *([self.registry] if self.registry else []))
        return list(dict.fromkeys(uri_of(place) for place in places if is_cached(place)))


@contextlib.contextmanager
def open_locations(
    store: Path | str, datasets: Iterable[Path | str], registry: Path | str | None, *, to_change: bool
) -> Iterator[PurgeLocations]:
    """The places of a purge, of which those in buckets are held and listed, and copied as far as they are looked into.

    Args:
      to_change: else they are only looked at, and not held.

    Raises:
      SettingsError: one is no folder and no place in a bucket.
      WorkError: a process works in one of the buckets' places.
    """
    datasets = list(datasets)
    given = [store, *datasets, *([registry] if registry else [])]
    if not any(map(is_remote, given)):
        yield PurgeLocations.of(store, datasets, registry)
        return
    PurgeLocations.of(*_folders(store, datasets, registry))
    held_alone = dict.fromkeys(str(place).rstrip("/") for place in (store, *datasets) if is_remote(place))
    with private_cache() as usual, contextlib.ExitStack() as held:
        leases = [held.enter_context(exclusive_store_lock(place)) for place in held_alone if to_change]
        ground = Workspace()
        for place, wanted in (
            (store, _of_store),
            *((root, _of_datasets) for root in datasets),
            (registry, _of_registry),
        ):
            if place and is_remote(place):
                ground.take_in(str(place), wanted)
        copies = [local_path(place) for place in given]
        roots, last = tuple(copies[1 : 1 + len(datasets)]), copies[-1] if registry else None
        yield PurgeLocations(copies[0], roots, last, ground, tuple(leases), usual)


def clear_caches(places: PurgeLocations) -> None:
    """Removes what this machine holds of the places in buckets: it is brought again when it is wanted."""
    for root in places.ground.roots:
        if places.usual:
            shutil.rmtree(places.usual / root.relative_to(cache_root()), ignore_errors=True)


def _folders(
    store: Path | str, datasets: list[Path | str], registry: Path | str | None
) -> tuple[Path | str, list[Path | str], Path | str | None]:
    """Those that are no places in buckets; in the place of such a store a folder that is there."""
    local = [place for place in datasets if not is_remote(place)]
    return (
        Path.cwd() if is_remote(store) else store,
        local,
        None if registry and is_remote(registry) else registry,
    )


def _of_store(name: str) -> bool:
    """Whether an object of a store has to be looked into."""
    parts, file = name.split("/"), PurePosixPath(name)
    if parts[0].startswith("."):
        return parts[0].startswith(UNFINISHED_PURGE)
    if parts[0] == SHARDS_FOLDER:
        return file.name == SHARD_FILE
    if parts[0] == WAVS:
        return parts[1] == "log"
    if parts[0] == TRAIN:
        return file.name in (DONE, TRAINED_ON)
    return parts[0] not in NAMELESS_FOLDERS and file.suffix not in BINARY_SUFFIXES


def _of_datasets(name: str) -> bool:
    return not name.startswith(".")


def _of_registry(name: str) -> bool:
    file = PurePosixPath(name)
    of_evaluation = file.parent.name == EVALUATION and file.suffix not in BINARY_SUFFIXES
    return of_evaluation or file.name in (TRAINED_ON, PROVENANCE)
