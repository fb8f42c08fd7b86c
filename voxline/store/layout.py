"""What is in a store, by the names of its folders; and whether a location is a store at all.

<step>/<key>/             the output of a step
wavs/<2 digits>/, log/    WAVs by the hash of their content, and what was measured of them
shards/<settings>/        features
lines/                    line caches: what a step made of each line of its last manifest
unpacked/, corpora/       archives that were unpacked, corpora that were downloaded
fingerprints/, probes/    what is known of manifests and recordings; names nobody
failures/                 why a step of a cluster's run failed
run_steps/                what each step of a cluster's run did, for the outcome that is sent
"""

import re
from pathlib import Path

from voxline.errors import SettingsError
from voxline.store.objects import ObjectStore, open_store
from voxline.store.store_locks import UNFINISHED_PURGE

WAVS = "wavs"
LINES = "lines"
UNPACKED = "unpacked"
CORPORA = "corpora"
RUN_STEPS = "run_steps"

CORPORA_FILE = "corpora.json"
"""Of a manifest that ingest merged of several corpora: the key of each."""

RUN_FILE = "run.json"
"""Of a run folder, which often has its store within: the record of the run."""

_KEY = re.compile(r"[0-9a-f]{32}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_SEARCHED = 100
"""Folders in which a store is looked for, to name it."""


def check_store(location: Path | str) -> None:
    """Checks that a location is a store, before something is searched or deleted there.

    Raises:
      SettingsError: it does not exist, or nothing of a store is in it. Names a store that is near.
    """
    store = open_store(location)
    if is_store(store):
        return
    near = _near_stores(store)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; give the `store` of the runs' config"
    if not store.exists():
        raise SettingsError(f"{location}: this folder does not exist{hint}")
    raise SettingsError(f"{location}: this is no store: it holds no step's output, no WAVs and no shards{hint}")


def is_store(store: ObjectStore) -> bool:
    """Returns whether a folder holds step outputs, WAVs, shards, line caches or an unfinished purge, by their names."""
    if any(True for prefix in (UNFINISHED_PURGE, f"{LINES}/") for _ in store.list(prefix)):
        return True

    # By names alone, so that a bucket is not read.
    return any(
        (_PREFIX if name == WAVS else _KEY).fullmatch(child)
        for name in store.list_folders()
        if not name.startswith(".")
        for child in store.list_folders(f"{name}/")
    )


def runs_around(location: Path | str) -> list[Path]:
    """The folder of the run that has a store on this machine within it; empty if there is none."""
    store = open_store(location)
    folder = store.local_path().parent
    return [folder] if not store.is_remote and (folder / RUN_FILE).is_file() else []


def _near_stores(store: ObjectStore) -> list[str]:
    """Stores one or two levels below a folder, or above it."""
    # A user often gives the folder of a run, or a folder beside the store.
    parent, _, _ = store.uri.rpartition("/")
    below = [store / name for name in store.list_folders()[:_SEARCHED]]
    further = [child / "store" for child in below if "store" in child.list_folders()]
    above = [open_store(parent)] if parent.count("/") > (2 if store.is_remote else 1) else []
    beside = [folder / "store" for folder in above]
    return [folder.uri for folder in (*below, *further, *above, *beside) if is_store(folder)][:3]
