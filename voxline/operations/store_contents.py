"""What is in a store, and what needs it: dataset versions, models, runs, or nothing any more.

  runs       the step outputs that a run.json names
  models     the trainings on the dataset of a registry's version, and the evaluation that it passed; of the version in
             service also that dataset, and the WAVs of its test split: a model that starts from it is measured there
  versions   the shards and the WAVs of a dataset version
  recent     whatever was written or used since a given time

A kept manifest keeps the WAVs and the unpacked corpora to which it leads, one of several corpora those of each, a kept
extracted dataset its shards. All else
can be made again, or cannot be used without what is gone.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.manifest import MANIFEST_FILE, iter_manifest
from voxline.data.rows import ROWS_FILE, read_rows
from voxline.data.shards import SHARD_FILE, SHARDS_FOLDER, name_in_store
from voxline.data.versions import DatasetVersions, check_datasets, list_datasets
from voxline.errors import SettingsError
from voxline.registry.models import model_names
from voxline.registry.registry import PROVENANCE, Registry
from voxline.store.files import DONE, read_json
from voxline.store.finished import read_done
from voxline.store.layout import (
    CORPORA,
    CORPORA_FILE,
    LINES,
    RUN_FILE,
    RUN_STEPS,
    UNPACKED,
    WAVS,
    check_store,
    runs_around,
)
from voxline.store.objects import ObjectStore, open_store
from voxline.store.permanent_failures import NOTES
from voxline.store.storage import ObjectInfo

Need = Literal["versions", "models", "runs", "recent", ""]
NEEDS: tuple[Need, ...] = ("versions", "models", "runs", "recent", "")
"""In this order: what several need counts for the first."""

LOGS = "wav logs"
DOWNLOADS = "downloads"
FILE_KINDS = (LINES, "fingerprints", "probes", NOTES, RUN_STEPS, "tallies")
"""Folders of files that are needed as long as they are recent."""
_KEY = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(slots=True)
class StoredItem:
    """A folder or file of a store that is kept or deleted as a whole.

    Attributes:
      kind: the step that wrote it, or the folder that it is in.
      name: of the file or folder, relative to the store.
      bytes: of all its files.
      used: when it was written or used last.
      marker: the file that makes a folder count; None of a file, and of unfinished work.
      need: what needs it.
    """

    kind: str
    name: str
    bytes: int
    used: datetime.datetime
    is_folder: bool
    marker: ObjectInfo | None = None
    need: Need = ""

    def require(self, need: Need) -> None:
        self.need = min(self.need, need, key=NEEDS.index)


@dataclasses.dataclass(frozen=True)
class StoreUsers:
    """Everything that may need a part of a store. Each is a folder or a bucket URI.

    Attributes:
      datasets: all folders to which datasets of the store are published.
      registries: of the models.
      runs: run folders, or folders that hold them. A run folder with the store in it is found by itself.
    """

    datasets: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()


def survey_store(
    store: Path | str, users: StoreUsers, *, now: datetime.datetime, recent: datetime.timedelta
) -> list[StoredItem]:
    """Lists what is in a store, with what needs it.

    Raises:
      SettingsError: a location is no store, holds no datasets, or does not exist.
      WorkError: a location is no registry; or a manifest, a version or a record that may need something cannot be read.
    """
    # Each location is checked first: a mistyped one would seem to need nothing.
    check_store(store)
    for root in users.datasets:
        check_datasets(root)
    objects = open_store(store)
    items = {item.name: item for item in _list_items(objects)}

    # What was used lately is kept, needed or not.
    for item in items.values():
        if now - item.used <= recent:
            item.require("recent")

    # Keys that models and runs name, whatever step they are of.
    for need, keys in (("models", _keys_of_models(objects, users, items)), ("runs", _keys_of_runs(store, users))):
        for item in items.values():
            if item.is_folder and PurePosixPath(item.name).name in keys:
                item.require(need)  # type: ignore[arg-type]

    for root in users.datasets:
        for name in list_datasets(root):
            # A version needs its shards, and its WAVs, since an export copies them.
            versions = DatasetVersions(root, name)
            for number in versions.numbers():
                folder = versions.path(number)
                _require_shards(folder, "versions", items)
                for row in read_rows(folder / ROWS_FILE):  # an export copies their WAVs
                    if wav := items.get(_wav_name(row.audio_hash)):
                        wav.require("versions")

    for item in _datasets_in_service(users, items):
        item.require("models")
        for folder in _folders_with(objects, item, ROWS_FILE):
            for row in read_rows(folder / ROWS_FILE):
                wav = items.get(_wav_name(row.audio_hash))
                if wav and row.split == "test":
                    wav.require("models")

    # A corpus of several corpora leads to those of each.
    for item in [item for item in items.values() if item.need and item.kind == "ingest"]:
        for folder in _folders_with(objects, item, CORPORA_FILE):
            for corpus in read_json(folder / CORPORA_FILE).values():
                if (name := f"ingest/{corpus['key']}") in items:  # else a refresh of another corpus makes it again
                    items[name].require(item.need)

    # Last, since all before may have required further outputs: what these lead to is needed for the same reason.
    needed_items = [item for item in items.values() if item.need and _KEY.fullmatch(PurePosixPath(item.name).name)]
    for item in sorted(needed_items, key=lambda item: NEEDS.index(item.need)):
        for folder in _folders_with(objects, item, MANIFEST_FILE):
            _require_audio(folder, item.need, objects, items)
        for folder in _folders_with(objects, item, DATASET_FILE):
            _require_shards(folder, item.need, items)

    _require_logs(objects, items)
    return list(items.values())


def _list_items(objects: ObjectStore) -> Iterator[StoredItem]:
    folders: dict[str, StoredItem] = {}
    for info in objects.list():
        parts = info.name.split("/")
        top = parts[0]
        depth = 3 if parts[0] == SHARDS_FOLDER else 2
        # Locks, records of runs and purges, and files at the top, are no outputs.
        if top.startswith(".") or len(parts) < 2:
            continue
        # Kept or deleted file by file.
        if top == WAVS or top in FILE_KINDS or parts[:2] in ([UNPACKED, "hashes"], [CORPORA, "objects"]):
            kind = LOGS if parts[:2] == [WAVS, "log"] else DOWNLOADS if top in (UNPACKED, CORPORA) else top
            yield StoredItem(kind, info.name, info.size, info.updated, is_folder=False)
            continue

        # Outputs are kept or deleted as a whole; a shard is one folder deeper.
        name = "/".join(parts[:depth])
        if len(parts) <= depth or not (top == SHARDS_FOLDER or _KEY.fullmatch(parts[1])):
            continue

        item = folders.setdefault(name, StoredItem(top, name, 0, info.updated, is_folder=True))
        item.bytes += info.size
        item.used = max(item.used, info.updated)
        if info.name == f"{name}/{SHARD_FILE if top == SHARDS_FOLDER else DONE}":
            item.marker = info
    yield from folders.values()


def _keys_of_runs(store: Path | str, users: StoreUsers) -> set[str]:
    """All keys that records of runs name."""
    files = [folder / RUN_FILE for folder in runs_around(store)]
    for folder in users.runs:
        if not folder.is_dir():
            raise SettingsError(f"{folder}: this folder of runs does not exist; give the one with <name>/{RUN_FILE}")
        files += [*folder.glob(RUN_FILE), *folder.glob(f"*/{RUN_FILE}"), *folder.glob(f"*/*/{RUN_FILE}")]
    return {key for file in files for key in _KEY.findall(file.read_text(encoding="utf-8"))}


def _keys_of_models(objects: ObjectStore, users: StoreUsers, items: dict[str, StoredItem]) -> set[str]:
    """The keys of evaluations that the registries' versions passed, and of trainings on their datasets."""
    named: set[str] = set()
    for root in users.registries:
        for model in model_names(root):
            registry = Registry(root, model)
            for version in registry.versions():
                named |= set(_KEY.findall((registry.read_file(version, PROVENANCE) or b"").decode()))

    # A training names its dataset in its marker; the registry's provenance names the same dataset.
    trainings = [item for item in items.values() if item.kind == "train" and item.marker] if named else []
    objects.pull([item.marker for item in trainings if item.marker])

    on_theirs = {
        PurePosixPath(item.name).name
        for item in trainings
        if read_done(objects.local_path(item.name))["inputs"].get("dataset") in named
    }

    evaluations = {key for key in named if f"evaluate/{key}" in items}
    return evaluations | on_theirs


def _datasets_in_service(users: StoreUsers, items: dict[str, StoredItem]) -> list[StoredItem]:
    """The extracted datasets of the versions in service, and of the candidates, which may be soon."""
    keys: set[str] = set()

    for root in users.registries:
        for model in model_names(root):
            registry = Registry(root, model)
            for version in (registry.in_service(), registry.candidate()):
                if version is not None:
                    keys |= set(_KEY.findall((registry.read_file(version, PROVENANCE) or b"").decode()))
    return [items[f"extract/{key}"] for key in sorted(keys) if f"extract/{key}" in items]


def refuse_missing_datasets(users: StoreUsers, items: Iterable[StoredItem]) -> None:
    """Refuses where a version in service, or the candidate, was trained on a dataset version that is nowhere.

    By its number alone nobody finds its recordings, which models that start from that one are measured on.

    Raises:
      SettingsError: names the versions.
    """
    names = {item.name for item in items}
    missing = []
    for root in users.registries:
        for model in model_names(root):
            registry = Registry(root, model)
            for version in (registry.in_service(), registry.candidate()):
                data = None if version is None else registry.read_file(version, PROVENANCE)
                dataset = json.loads(data).get("dataset") or {} if data else {}
                reference = dataset.get("version") or ""
                if reference and f"extract/{dataset.get('key')}" not in names and not _is_published(reference, users):
                    missing.append(f"{reference}, on which version {version} of {model} was trained")
    if missing:
        raise SettingsError(
            f"--datasets: none has {'; '.join(missing)}; give the folder that has it, or its recordings would go"
        )


def _is_published(reference: str, users: StoreUsers) -> bool:
    name, _, number = reference.partition("@")
    return any(int(number) in DatasetVersions(root, name).numbers() for root in users.datasets)


def _folders_with(objects: ObjectStore, item: StoredItem, file: str) -> list[Path]:
    """The folders of an output, of which a bucket has one for each attempt, that hold this file; downloaded."""
    if item.kind in (SHARDS_FOLDER, UNPACKED, CORPORA, "train"):
        return []

    # The listing says which attempts have the file; only those are downloaded.
    infos = [info for info in objects.list(f"{item.name}/") if info.name.endswith(f"/{file}")]
    objects.pull(infos)
    return [objects.local_path(info.name).parent for info in infos if info.name.count("/") <= 3]


def _require_audio(folder: Path, need: Need, objects: ObjectStore, items: dict[str, StoredItem]) -> None:
    root = objects.local_path()
    for utterance in iter_manifest(folder):
        # A recording outside of the store is nobody's to delete.
        audio = Path(utterance.audio_filepath)
        if not audio.is_relative_to(root):
            continue
        parts = audio.relative_to(root).parts
        name = "/".join(parts if parts[0] == WAVS else parts[:2])
        if name in items:
            items[name].require(need)


def _require_shards(folder: Path, need: Need, items: dict[str, StoredItem]) -> None:
    for shard in Dataset.read_header(folder).files():
        if (name := name_in_store(shard.parent)) in items:
            items[name].require(need)


def _require_logs(objects: ObjectStore, items: dict[str, StoredItem]) -> None:
    """A log is needed while a WAV is that it measured; downloaded objects, while a corpus is made of them."""
    for item in items.values():
        if item.kind == LOGS and not item.need:
            for key in _KEY.findall(objects.read(item.name).decode()):
                if wav := items.get(_wav_name(key)):
                    item.require(wav.need)
        elif item.kind == DOWNLOADS and not objects.is_remote and objects.local_path(item.name).stat().st_nlink > 1:
            item.require("recent")  # the folder of a corpus links to it; it goes once that is gone


def _wav_name(key: str) -> str:
    """Of a converted recording, relative to the store."""
    return f"{WAVS}/{key[:2]}/{key}.wav"


def totals(items: Iterable[StoredItem], of: Callable[[StoredItem], str]) -> dict[str, dict[str, int]]:
    """Bytes by `of` and need, the largest first."""
    sums: dict[str, dict[str, int]] = {}
    for item in items:
        row = sums.setdefault(of(item), dict.fromkeys(NEEDS, 0))
        row[item.need] += item.bytes
    return dict(sorted(sums.items(), key=lambda pair: -sum(pair[1].values())))
