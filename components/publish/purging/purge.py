"""The purge of a speaker, from looking to the record of it.

In this order, each part of which may be done twice: what was found is written down; new shards; versions and datasets
are led to them; old shards, work and WAVs go; then the lists of trainings and of the registry; the record; and what
was written down. A purge that was killed anywhere is finished by the same command.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from components.publish.purging import served, shards, store, versions
from components.publish.purging.served import Served
from components.publish.purging.traces import Traces, look
from components.publish.versions import Versions, names
from components.speech.buckets import is_remote
from components.speech.dataset import DATASET, Dataset
from components.speech.errors import SettingsError
from components.speech.journal import utc
from components.speech.progress import say
from components.speech.shards import ShardIndex, pool_held
from components.speech.storage import write_text

RECORD = "purges.jsonl"


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a speaker is looked for: folders, no buckets."""

    store: Path
    datasets: tuple[Path, ...] = ()
    registry: Path | None = None

    @classmethod
    def of(cls, store: Path | str, datasets: Iterable[Path | str], registry: Path | str | None) -> "Places":
        """Raises SettingsError where one is a bucket or no folder."""
        given = [Path(place) for place in (store, *datasets, *([registry] if registry else []))]
        for place in (store, *datasets, *([registry] if registry else [])):
            if is_remote(place):
                raise SettingsError(
                    f"{place}: a purge works in folders; in a bucket nobody can see who reads, and old generations may "
                    "be kept: copy it to a folder, purge that, and send it to a new bucket"
                )
            if not Path(place).is_dir():
                raise SettingsError(f"{place}: no such folder; give the store, datasets and registry of the runs")
        store_folder, *rest = (place.absolute() for place in given)
        return cls(store_folder, tuple(rest[: -1 if registry else None]), rest[-1] if registry else None)

    def versions(self) -> list[Versions]:
        return [Versions(root, name) for root in self.datasets for name in names(root)]


@dataclasses.dataclass
class Findings:
    """What is left of a speaker.

    Attributes:
      versions: rows in each version, by its folder.
      shards: that hold clips of theirs, and the bytes of these.
      leftovers: folders that killed processes left among the shards.
      unfinished: trainings of which nobody knows yet what they see.
      bytes: of clips, of work that goes with them, of WAVs and TensorBoard files.
    """

    traces: Traces
    versions: dict[Path, int]
    shards: list[tuple[ShardIndex, int]]
    leftovers: list[Path]
    works: list[Path]
    wavs: list[Path]
    trainings: list[store.Training]
    served: list[Served]
    unfinished: int
    bytes: int = 0

    def anything(self, places: Places) -> bool:
        events = any(training.events or training.listed for training in self.trainings)
        in_registry = any(one.listed or one.judged or one.shown for one in self.served)
        kept = self.traces.file(places.store).is_file()
        return bool(kept or self.versions or self.shards or self.works or self.wavs or events or in_registry)

    def counts(self) -> dict[str, int]:
        clips = sum(clip in self.traces.clips for index, _ in self.shards for clip in index.clips)
        return {
            "utterances": len(self.traces.ids),
            "rows": sum(self.versions.values()),
            "shards": len(self.shards),
            "clips": clips,
            "wavs": len(self.wavs),
            "works": len(self.works),
            "trainings": len(self.trainings),
            "served": len(self.served),
        }


def find(speaker: str, places: Places) -> Findings:
    """Looks for all that is left of a speaker; nothing changes."""
    published = [(each, number) for each in places.versions() for number in each.numbers()]
    traces = look(speaker, places.store, [each.path(number) for each, number in published])
    rows = {each.path(number): versions.lists(Dataset.listed(each.path(number)), speaker) for each, number in published}
    found = Findings(
        traces,
        {folder: count for folder, count in rows.items() if count},
        list(shards.holding(places.store, traces.clips)),
        shards.leftovers(places.store),
        store.works(places.store, traces),
        store.wavs(places.store, traces),
        store.trainings(places.store, traces),
        served.served(places.registry, traces) if places.registry else [],
        store.unfinished_trainings(places.store),
    )
    events = (file for training in found.trainings for file in training.events)
    found.bytes = sum(size for _, size in found.shards) + store.size_of([*found.works, *found.wavs, *events])
    return found


def purge(speaker: str, places: Places, note: str = "") -> Findings:
    """Removes all that is left of a speaker, and writes down that it did.

    Returns:
      What there was.

    Raises:
      WorkError: a process works in the store, or reads a shard that is to go; nothing was removed then.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(store.work_held(places.store))
        for pool in shards.pools(places.store):
            held.enter_context(pool_held(pool, alone=True))
        for root in places.datasets:
            for path in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != "."):
                each = Versions(root, path.name)
                held.enter_context(each.locked())
                versions.mend(each)
        found = find(speaker, places)
        if not found.anything(places):
            return found
        shards.refuse_what_is_read(index for index, _ in found.shards)
        found.traces.record = found.traces.record or _described(found, note)
        found.traces.keep(places.store)
        _purge(found, places)
    return found


def _purge(found: Findings, places: Places) -> None:
    traces, at = found.traces, str(found.traces.record["at"])
    layout: dict[Path, shards.Moved] = {}
    for index, _ in found.shards:
        layout[index.folder] = shards.without(index, traces.clips)
    for each in places.versions():
        for number in each.numbers():
            if gone := versions.purge_version(each, number, traces.speaker, layout, at):
                say(f"purge: {gone:,} rows taken out of version {number} of {each.name}")
    _lay_extracted(found, places, layout)
    for folder in (*layout, *found.leftovers):
        shards.take_away(folder)
    for folder in found.works:
        shutil.rmtree(folder)
    for file in found.wavs:
        file.unlink()
    store.forget_wavs(places.store, traces.wavs)
    for training in found.trainings:
        store.purge_training(training, traces.speaker)
    for one in found.served:
        served.purge_served(places.registry or Path(), one, traces, at)
    _record(traces, places)
    traces.file(places.store).unlink()


def _lay_extracted(found: Findings, places: Places, layout: shards.Layout) -> None:
    """Extracted datasets that do not list the speaker, and share a shard with one that does."""
    for folder in sorted(file.parent for file in (places.store / "extract").glob(f"*/{DATASET}")):
        if folder not in found.works:
            versions.lay_anew(Dataset.listed(folder), layout)


def records(places: Places) -> list[Path]:
    return [root / RECORD for root in places.datasets or (places.store,)]


def _described(found: Findings, note: str) -> dict[str, Any]:
    """What is written down of a purge: whom it was of can be asked, and not read."""
    salt = secrets.token_hex(8)
    return {
        "at": utc(time.time()),
        "note": note,
        "salt": salt,
        "speaker": salted(found.traces.speaker, salt),
        "bytes": found.bytes,
        **found.counts(),
        "versions": [f"{folder.parent.name}/{folder.name}" for folder in found.versions],
        "models": [one.name for one in found.served if one.saw],
        "trained": [training.folder.name for training in found.trainings],
    }


def _record(traces: Traces, places: Places) -> None:
    line = json.dumps(traces.record, ensure_ascii=False) + "\n"
    for file in records(places):
        written = file.read_text(encoding="utf-8") if file.is_file() else ""
        if line not in written:  # it was killed just here
            write_text(file, written + line)


def salted(speaker: str, salt: str) -> str:
    """Names a speaker to nobody who does not know whom to look for."""
    return hashlib.blake2b(speaker.encode(), salt=bytes.fromhex(salt), digest_size=16).hexdigest()


def purged_before(speaker: str, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The records of purges of a speaker."""
    lines = [json.loads(line) for file in files if file.is_file() for line in file.read_text("utf-8").splitlines()]
    return [line for line in lines if line["speaker"] == salted(speaker, line["salt"])]
