"""What a store and datasets hold of a speaker: found before anything is removed, and recorded until all of it is.

Manifests and rows say which utterances are a speaker's, and with these which WAVs and clips. Once the first of them are
gone nobody could find the rest. The footprint is therefore written to `<store>/.purge-<hash>.json` until the purge is
complete, and a purge that is started again resumes from there.

Step outputs are named by their inputs and made again when needed, so an output that names or shows the speaker is
removed as a whole. A training stays, as a model that was trained on the speaker: its list of utterances loses their
lines, and its TensorBoard files are removed, which may show and play what they said.
"""

import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.manifest import MANIFEST_FILE, iter_manifest
from voxline.data.rows import ROWS_FILE, read_rows
from voxline.data.shards import SHARDS_FOLDER, clip_name
from voxline.operations.purge.locations import (
    BINARY_SUFFIXES,
    NAMELESS_FOLDERS,
    SOURCES,
    TENSORBOARD_PREFIX,
    TRAIN,
    PurgeScope,
    Workspace,
)
from voxline.registry.training_data import TRAINED_ON, read_training_data
from voxline.store.files import DONE, atomic_write, read_json, write_json
from voxline.store.finished import read_done
from voxline.store.hashing import hash_bytes
from voxline.store.layout import LINES, WAVS
from voxline.store.permanent_failures import NOTES
from voxline.store.store_locks import UNFINISHED_PURGE

USUAL_SPEEDS = (0.9, 1.0, 1.1)
"""Of clips of datasets that no longer exist. The speeds of existing datasets are added."""
_NOT_OUTPUTS = (SHARDS_FOLDER, WAVS, TRAIN, *NAMELESS_FOLDERS)
_WORD = b"[%s]" % re.escape(bytes(byte for byte in range(256) if chr(byte).isalnum() or byte in b"-_"))
_OF_TEXT = ("ngrams", "language")
"""Outputs made of transcripts, which do not say whose. They are made again from what is left."""
_EMBEDDED_DATA = re.compile(rb"data:[a-z]+/[^\"' )]*")


@dataclasses.dataclass
class Footprint:
    """All that a store holds of a speaker.

    Attributes:
      ids: of utterances.
      wavs: names of WAVs in the store.
      clips: names of clips in shards.
      outputs: folders of step outputs that list the speaker, relative to the store.
      sources: folders of unpacked or downloaded corpora, relative to the store.
      datasets: keys of datasets that hold the speaker.
      changed_uris: URIs of folders and files in buckets that are removed or changed. Their older versions go as well.
      shared: names of recordings that another speaker has too; they stay.
      of_corpora: speakers whom one of several corpora calls so, by their full names; they are other speakers, and stay.
      record: the line of `purges.jsonl`, as of the start of the purge.
    """

    speaker: str
    ids: set[str] = dataclasses.field(default_factory=set)
    wavs: set[str] = dataclasses.field(default_factory=set)
    clips: set[str] = dataclasses.field(default_factory=set)
    outputs: set[str] = dataclasses.field(default_factory=set)
    sources: set[str] = dataclasses.field(default_factory=set)
    datasets: set[str] = dataclasses.field(default_factory=set)
    changed_uris: set[str] = dataclasses.field(default_factory=set)
    shared: set[str] = dataclasses.field(default_factory=set)
    of_corpora: set[str] = dataclasses.field(default_factory=set)
    record: dict[str, Any] = dataclasses.field(default_factory=dict)

    def file(self, store: Path) -> Path:
        return store / f"{UNFINISHED_PURGE}{hash_bytes(self.speaker.encode())}.json"

    def write(self, store: Path) -> None:
        """Records the footprint in the store."""
        values = dataclasses.asdict(self)
        write_json(self.file(store), {k: sorted(v) if isinstance(v, set) else v for k, v in values.items()})

    def with_recorded(self, store: Path) -> "Footprint":
        """This, together with what an unfinished purge had found."""
        if not self.file(store).is_file():
            return self

        # A search now may find less than the one before the kill: what was removed since is only in the record.
        recorded = read_json(self.file(store))
        sets = {
            name: getattr(self, name) | set(values) for name, values in recorded.items() if isinstance(values, list)
        }
        return Footprint(self.speaker, **sets, record=recorded["record"])

    def names_in_text(self) -> list[bytes]:
        """The ids as JSON and HTML spell them."""
        return [form for name in sorted(self.ids) for form in {name.encode(), html.escape(name).encode()}]


def find_footprint(speaker: str, store: Path, versions: Iterable[Path]) -> Footprint:
    """Searches all manifests of a store and all datasets for a speaker.

    Args:
      versions: folders of published datasets.
    """
    footprint = Footprint(speaker)
    shared_hashes: set[str] = set()

    # Manifests first, then rows: a version outlives the manifests of its corpus.
    for file in itertools.chain(*(step_output_files(store, step, MANIFEST_FILE) for step in ("ingest", "convert"))):
        _search_manifest(file, store, footprint, shared_hashes)
    extracted = [file.parent for file in step_output_files(store, "extract", DATASET_FILE)]
    datasets = [Dataset.read_header(folder) for folder in (*extracted, *versions)]

    # Names of clips depend on their speed, so every speed that any dataset has is tried.
    speeds = sorted({*USUAL_SPEEDS, *(speed for dataset in datasets for speed in dataset.speeds)})
    for dataset in datasets:
        _search_rows(dataset, store, footprint, shared_hashes, speeds)

    # Recordings that another speaker has too stay; they are named in the findings.
    footprint.shared = (footprint.wavs | footprint.clips) & shared_hashes
    footprint.wavs -= shared_hashes
    footprint.clips -= shared_hashes
    return footprint.with_recorded(store)


def step_output_files(store: Path, step: str, name: str) -> list[Path]:
    """The files of this name among a step's outputs. In a bucket each output has a folder per attempt."""
    return sorted(itertools.chain((store / step).glob(f"*/{name}"), (store / step).glob(f"*/*/{name}")))


def find_outputs(store: Path, footprint: Footprint, workspace: Workspace) -> list[Path]:
    """Folders of step outputs that list or show the speaker, and notes of failed steps that do."""
    folders = {store / name for name in (*footprint.outputs, *footprint.sources) if workspace.exists(store / name)}
    names = footprint.names_in_text()
    steps = [path for path in store.iterdir() if path.is_dir() and path.name not in _NOT_OUTPUTS]

    # Pages, tables and lists of texts may name an utterance anywhere, so every text file is read.
    for folder in sorted(path for step in steps for path in step.iterdir() if path.is_dir()):
        if folder not in folders:
            files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in BINARY_SUFFIXES]
            lists = (file for file in files if file.name == TRAINED_ON)
            listed = any(count_lines(file, footprint.speaker) for file in lists)
            if listed or any(shows_name(file, names) for file in files) or (names and folder.parent.name in _OF_TEXT):
                folders.add(folder)

    # Notes of failed steps, and objects of a download, from which the corpus could be unpacked again.
    spoken_of = [footprint.speaker.encode(), *names]
    folders.update(note for note in (store / NOTES).glob("*.json") if shows_name(note, spoken_of))
    downloads = store / "corpora" / "objects"
    if any(name.startswith("corpora/") for name in footprint.sources) and workspace.exists(downloads):
        folders.add(downloads)
    return sorted(folders)


def find_wavs(store: Path, footprint: Footprint, workspace: Workspace) -> list[Path]:
    files = (store / WAVS / name[:2] / f"{name}.wav" for name in sorted(footprint.wavs))
    return [file for file in files if workspace.exists(file)]


def find_wav_logs(store: Path, wavs: set[str]) -> list[Path]:
    """The logs that name some of these WAVs."""
    names = [name.encode() for name in wavs]
    return [log for log in sorted((store / WAVS / "log").glob("*.jsonl")) if contains_name(log.read_bytes(), names)]


def remove_line_caches(store: Path) -> None:
    """Deletes the line caches, which hold the texts of all speakers."""
    for cache in (store / LINES).glob("*"):
        cache.unlink(missing_ok=True)


def remove_wav_lines(store: Path, wavs: set[str], workspace: Workspace) -> None:
    """Removes lines about WAVs from the logs."""
    names = [name.encode() for name in wavs]
    for log in find_wav_logs(store, wavs):
        lines = log.read_bytes().splitlines(keepends=True)
        # By rename: a log that is cut off would lose what others' WAVs were measured as.
        with atomic_write(log) as file:
            file.writelines(line for line in lines if not contains_name(line, names))
        workspace.upload(log)


@dataclasses.dataclass(frozen=True)
class AffectedTraining:
    """A training on the speaker's utterances.

    Attributes:
      folder: `<store>/train/<key>`.
      tensorboard: its TensorBoard files.
      lists: its lists of utterances that name the speaker.
      lines: of the speaker in these.
    """

    folder: Path
    tensorboard: list[Path]
    lists: list[Path]
    lines: int


def find_trainings(store: Path, footprint: Footprint, workspace: Workspace) -> list[AffectedTraining]:
    """Finished trainings on the speaker's utterances."""
    trainings = []

    # Only finished trainings have a marker with their inputs.
    for folder in sorted(file.parent for file in (store / TRAIN).glob(f"*/{DONE}")):
        files = workspace.files(folder)
        lines = {file: count_lines(file, footprint.speaker) for file in files if file.name == TRAINED_ON}
        lists = [file for file, count in lines.items() if count]
        if lists or read_done(folder)["inputs"].get("dataset") in footprint.datasets:
            tensorboard = [file for file in files if file.name.startswith(TENSORBOARD_PREFIX)]
            trainings.append(AffectedTraining(folder, tensorboard, lists, sum(lines.values())))
    return trainings


def find_run_files(scope: PurgeScope, footprint: Footprint, trainings: Sequence[AffectedTraining]) -> list[Path]:
    """Files of runs that show the speaker, and copies of the TensorBoard files of trainings on them.

    A run names the folder of such a copy for people, with the first digits of the training's key at its end.
    """
    names = footprint.names_in_text()
    keys = tuple(f", {training.folder.name[:6]}" for training in trainings)
    return [
        file
        for file in scope.run_files()
        if (keys and any(part.endswith(keys) for part in file.parts))
        or (not file.name.startswith(TENSORBOARD_PREFIX) and shows_name(file, names))
    ]


def count_unfinished_trainings(store: Path, workspace: Workspace) -> int:
    """Trainings whose data is not known yet."""
    return sum(not workspace.exists(folder / DONE) for folder in workspace.folders(store / TRAIN))


def purge_training(training: AffectedTraining, speaker: str, workspace: Workspace) -> None:
    for file in training.tensorboard:
        workspace.remove(file)
    for file in training.lists:
        remove_lines(file, speaker, workspace)


def count_lines(file: Path, speaker: str) -> int:
    """The speaker's lines in a list of training data."""
    return len(read_training_data(file.read_bytes(), str(file)).of_speaker(speaker)) if file.is_file() else 0


def remove_lines(file: Path, speaker: str, workspace: Workspace) -> None:
    """Removes the speaker's lines from a list of training data."""
    read_training_data(file.read_bytes(), str(file)).without(speaker).write(file)
    workspace.upload(file)


def shows_name(file: Path, names: Sequence[bytes]) -> bool:
    """Returns whether a text file contains a name outside embedded data."""
    # Base64 of images and audio may spell any short name by chance.
    return contains_name(_EMBEDDED_DATA.sub(b"", file.read_bytes()), names)


def contains_name(data: bytes, names: Iterable[bytes]) -> bool:
    """Returns whether bytes contain a name as a whole word; a short name counts only between quotes or tags.

    >>> contains_name(b'{"id": "u1"}', [b"u1"]), contains_name(b"u12 of u10", [b"u1"])
    (True, False)
    >>> contains_name(b"u100-7", [b"u100"]), contains_name(b"(u100)", [b"u100"]), contains_name(b"u1", [b"u1"])
    (False, True, True)
    """
    return any(name in data and _name_pattern(name).search(data) for name in names)


@functools.cache
def _name_pattern(name: bytes) -> re.Pattern[bytes]:
    # Longer names: no letter, digit, - or _ beside them. Short ones, such as "7", only between quotes or tags.
    beside = _WORD if len(name) > 3 else rb"[^\"'<>]"
    return re.compile(rb"(?<!%s)%s(?!%s)" % (beside, re.escape(name), beside))


def _output_of(folder: Path, store: Path) -> str:
    """The step output that a folder is, or is an attempt of, relative to the store."""
    return "/".join(folder.relative_to(store).parts[:2])


def _search_manifest(file: Path, store: Path, footprint: Footprint, shared_hashes: set[str]) -> None:
    for utterance in iter_manifest(file):
        audio = Path(utterance.audio_filepath)
        parts = audio.relative_to(store).parts if audio.is_relative_to(store) else ("",)
        # Another speaker with the same recording: it must stay.
        if utterance.speaker != footprint.speaker:
            if parts[0] == WAVS:
                shared_hashes.add(audio.stem)
            _note_full_name(utterance.speaker, utterance.extra, footprint)
            continue

        footprint.ids.add(utterance.id)
        footprint.outputs.add(_output_of(file.parent, store))
        # A WAV of the pool, or a file of an unpacked corpus, which goes as a whole.
        if parts[0] == WAVS:
            footprint.wavs.add(audio.stem)
        elif parts[0] in SOURCES:
            footprint.sources.add("/".join(parts[:2]))


def _note_full_name(speaker: str, extra: dict[str, Any], footprint: Footprint) -> None:
    if speaker == f"{extra.get('corpus')}-{footprint.speaker}":
        footprint.of_corpora.add(speaker)


def _search_rows(
    dataset: Dataset, store: Path, footprint: Footprint, shared_hashes: set[str], speeds: Sequence[float]
) -> None:
    # Clips at all speeds, since the row does not say which were made.
    for row in read_rows(dataset.folder / ROWS_FILE):
        clips = [clip_name(row.audio_hash, row.offset, row.duration, speed) for speed in speeds]
        if row.speaker != footprint.speaker:
            shared_hashes.update((*clips, row.audio_hash))
            _note_full_name(row.speaker, row.extra, footprint)
            continue

        footprint.ids.add(row.id)
        footprint.wavs.add(row.audio_hash)  # a version keeps its WAVs when the manifests are collected
        footprint.clips.update(clips)
        footprint.datasets.add(dataset.key)
        if dataset.folder.is_relative_to(store / "extract"):
            footprint.outputs.add(_output_of(dataset.folder, store))
