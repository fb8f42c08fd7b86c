"""What names a speaker's utterances: looked up before anything is removed, and kept until all of it is.

Manifests and rows say which utterances are a speaker's, and with them which WAVs and clips. Once the first of these
are gone nobody could find the rest any more, so what was found lies in `<store>/.purge-<hash>.json` until the purge is
over, and one that is started again goes on from there.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from voxline.components.publish.purge.locations import UNPACKED, WAVS
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.manifest import MANIFEST_FILE, iter_manifest
from voxline.data.rows import ROWS_FILE, read_rows
from voxline.data.shards import clip_name
from voxline.store.bucket_locks import UNFINISHED_PURGE
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_bytes

USUAL_SPEEDS = (0.9, 1.0, 1.1)
"""Of clips that a dataset may have had which is gone; those of the datasets that are there come to it."""


@dataclasses.dataclass
class Footprint:
    """What was found of a speaker.

    Attributes:
      ids: of utterances.
      wavs: names of WAVs in the pool.
      clips: names of clips in shards.
      manifests: folders of work in the store that list the speaker, relative to it.
      sources: of unpacked or brought corpora below the store.
      datasets: keys of datasets that held the speaker.
      touched: addresses of folders and files in buckets that go or change; their older generations go with them.
      shared: recordings that are also told as another speaker's; they stay.
      record: what is to be written down of the purge, as it was begun.
    """

    speaker: str
    ids: set[str] = dataclasses.field(default_factory=set)
    wavs: set[str] = dataclasses.field(default_factory=set)
    clips: set[str] = dataclasses.field(default_factory=set)
    manifests: set[str] = dataclasses.field(default_factory=set)
    sources: set[str] = dataclasses.field(default_factory=set)
    datasets: set[str] = dataclasses.field(default_factory=set)
    touched: set[str] = dataclasses.field(default_factory=set)
    shared: set[str] = dataclasses.field(default_factory=set)
    record: dict[str, Any] = dataclasses.field(default_factory=dict)

    def file(self, store: Path) -> Path:
        return store / f"{UNFINISHED_PURGE}{hash_bytes(self.speaker.encode())}.json"

    def keep(self, store: Path) -> None:
        """Writes down what was found."""
        values = dataclasses.asdict(self)
        write_json(self.file(store), {k: sorted(v) if isinstance(v, set) else v for k, v in values.items()})

    def with_kept(self, store: Path) -> "Footprint":
        """This, and what a purge that was stopped had found."""
        if not self.file(store).is_file():
            return self
        kept = read_json(self.file(store))
        sets = {name: getattr(self, name) | set(found) for name, found in kept.items() if isinstance(found, list)}
        return Footprint(self.speaker, **sets, record=kept["record"])


def find_footprint(speaker: str, store: Path, versions: Iterable[Path]) -> Footprint:
    """Looks for a speaker in all manifests of a store, and in all datasets.

    Args:
      versions: folders of published datasets.
    """
    found = Footprint(speaker)
    extracted = [file.parent for file in step_output_files(store, "extract", DATASET_FILE)]
    others: set[str] = set()
    for file in itertools.chain(*(step_output_files(store, step, MANIFEST_FILE) for step in ("ingest", "convert"))):
        _manifest(file, store, found, others)
    listed = [Dataset.listed(folder) for folder in (*extracted, *versions)]
    speeds = sorted({*USUAL_SPEEDS, *(speed for dataset in listed for speed in dataset.speeds)})
    for dataset in listed:
        _rows(dataset, store, found, others, speeds)
    found.shared = (found.wavs | found.clips) & others
    found.wavs -= others
    found.clips -= others
    return found.with_kept(store)


def step_output_files(store: Path, step: str, name: str) -> list[Path]:
    """Files of that name that a step has made; in a bucket each piece of work has a folder for every attempt."""
    return sorted(itertools.chain((store / step).glob(f"*/{name}"), (store / step).glob(f"*/*/{name}")))


def _work(path: Path, store: Path) -> str:
    """The piece of work that a folder is of, or is an attempt of."""
    return "/".join(path.relative_to(store).parts[:2])


def _manifest(file: Path, store: Path, found: Footprint, others: set[str]) -> None:
    for utterance in iter_manifest(file):
        audio = Path(utterance.audio_filepath)
        here = audio.relative_to(store).parts if audio.is_relative_to(store) else ("",)
        if utterance.speaker != found.speaker:
            if here[0] == WAVS:
                others.add(audio.stem)
            continue
        found.ids.add(utterance.id)
        found.manifests.add(_work(file.parent, store))
        if here[0] == WAVS:
            found.wavs.add(audio.stem)
        elif here[0] in UNPACKED:
            found.sources.add("/".join(here[:2]))


def _rows(dataset: Dataset, store: Path, found: Footprint, others: set[str], speeds: list[float]) -> None:
    for row in read_rows(dataset.folder / ROWS_FILE):
        names = [clip_name(row.audio_hash, row.offset, row.duration, speed) for speed in speeds]
        if row.speaker != found.speaker:
            others.update(names)
            continue
        found.ids.add(row.id)
        found.clips.update(names)
        found.datasets.add(dataset.key)
        if dataset.folder.is_relative_to(store / "extract"):
            found.manifests.add(_work(dataset.folder, store))


def contains_name(data: bytes, names: Iterable[bytes]) -> bool:
    """Whether bytes hold one of these names, as a word of its own; a short one only between quotes or tags.

    >>> (
    ...     contains_name(b'{"id": "u1"}', [b"u1"]),
    ...     contains_name(b"u12 of u10", [b"u1"]),
    ...     contains_name(b"u100-7", [b"u100"]),
    ... )
    (True, False, False)
    """
    return any(_stands_in(data, name) for name in names)


def _stands_in(data: bytes, name: bytes) -> bool:
    for at in _places(data, name):
        around = data[max(at - 1, 0) : at] + data[at + len(name) : at + len(name) + 1]
        if all(bytes([byte]) in (b'"', b"'", b">", b"<") for byte in around):
            return True
        if len(name) > 3 and not any(chr(byte).isalnum() or byte in b"-_" for byte in around):
            return True
    return False


def _places(data: bytes, name: bytes) -> Iterator[int]:
    at = data.find(name)
    while at >= 0:
        yield at
        at = data.find(name, at + 1)
