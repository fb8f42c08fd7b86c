"""Exports a dataset version in the formats that other tools read: JSON lines with DeepSpeech's CSV, NeMo, Lhotse,
Parquet (Hugging Face), WebDataset.

    <output>/export.json         which version, format, counts and licences; written last
             purge_list.json     by speaker: ids, files that hold nothing else, and files that hold others too
             …                   the format's own files

Audio is the WAVs that features were extracted from, byte by byte; texts are the
dataset's. Our own reader of each format gives both back. Equal versions give equal files. Nothing reaches an export
later, so each is recorded beside the dataset (`<datasets>/<name>/exports/`), and a purge names what must be deleted
there.
"""

import contextlib
import csv
import dataclasses
import functools
import gzip
import io
import json
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from voxline.data.dataset import Dataset
from voxline.data.json_codec import encode_json
from voxline.data.licences import NOT_STATED, count_licences
from voxline.data.rows import DatasetRow
from voxline.data.versions import DatasetVersions, list_datasets
from voxline.errors import SettingsError, WorkError
from voxline.progress import Progress
from voxline.registry.journal import format_utc
from voxline.store.files import atomic_write, read_json, write_json
from voxline.store.hashing import hash_value
from voxline.store.objects import open_store
from voxline.store.store_locks import shared_store_lock
from voxline.store.uris import is_remote
from voxline.text.alphabet import Alphabet

EXPORT_FILE = "export.json"
PURGE_LIST = "purge_list.json"
EXPORTS_FOLDER = "exports"
AUDIO = "audio"
ALPHABET_FILE = "alphabet.txt"
SHARD_BYTES = 256_000_000
"""Audio in one tar or Parquet file."""
_BATCH = 256
"""Utterances whose WAVs are downloaded at a time."""
_GROUP_ROWS = 64
"""Rows of a row group of Parquet: a reader holds one in memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExportedUtterance:
    """A row and its recording.

    Attributes:
      wav: the WAV on this machine.
      sample_rate, samples: of the WAV.
    """

    row: DatasetRow
    wav: Path
    sample_rate: int
    samples: int

    @property
    def file(self) -> str:
        """The place of the recording in a format of loose files, relative to the export."""
        return f"{AUDIO}/{self.row.audio_hash[:2]}/{self.row.audio_hash}.wav"

    def values(self) -> dict[str, Any]:
        """Returns the values of its line in a manifest, without the path."""
        row = self.row
        return {"id": row.id, "duration": row.duration, "text": row.text, "speaker": row.speaker, **row.extra}


@dataclasses.dataclass
class SpeakerFiles:
    """The files of a speaker in an export.

    Attributes:
      ids: of the utterances.
      files: that hold nothing else; they are deleted.
      shared: lists, and archives of several utterances; they are written again without the ids.
    """

    ids: list[str] = dataclasses.field(default_factory=list)
    files: list[str] = dataclasses.field(default_factory=list)
    shared: list[str] = dataclasses.field(default_factory=list)


Written = Iterator[tuple[ExportedUtterance, list[str], list[str]]]
"""Each utterance with the files that hold it alone, and those that hold others too."""


def export_dataset(
    root: str, name: str, number: int | None, to: str, output: Path, shard_bytes: int = SHARD_BYTES
) -> dict[str, Any]:
    """Writes a version into a folder, whole or not at all.

    Args:
      root: folder or bucket URI of published datasets.
      number: of the version; None: the latest.
      to: one of `EXPORT_FORMATS`.
      output: a folder that does not exist yet, or is empty.
      shard_bytes: of audio in one tar or Parquet file.

    Returns:
      The content of `export.json`.

    Raises:
      SettingsError: the format is unknown, or the folder holds something.
      WorkError: the version does not exist, or a WAV of it is gone from the store.
    """
    if to not in EXPORT_FORMATS:
        raise SettingsError(f"--to {to}: accepted: {', '.join(EXPORT_FORMATS)}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SettingsError(f"--output {output}: it exists and is not empty; give a folder that does not exist yet")

    versions = DatasetVersions(root, name)
    if not (numbers := versions.numbers()):
        raise WorkError(f"{versions.uri}: no version of a dataset; `voxline datasets list` shows what there is")

    number = number or numbers[-1]
    dataset = Dataset.read(versions.path(number), shards=False)

    # The store's lock is known only when the version is read; it is then read again under the lock.
    with contextlib.ExitStack() as stack:
        locked = root if is_remote(root) or not dataset.shards else dataset.shard_store()
        if open_store(locked).exists():  # so that no purge ends between what is read and the record of the export
            stack.enter_context(shared_store_lock(locked))
            dataset = Dataset.read(versions.path(number), shards=False)
        return _export(versions, number, dataset, to, output, shard_bytes)


def _export(
    versions: DatasetVersions, number: int, dataset: Dataset, to: str, output: Path, shard_bytes: int
) -> dict[str, Any]:
    write: Callable[..., Written] = EXPORT_FORMATS[to]
    if write in _SHARDED:
        write = functools.partial(write, shard_bytes=shard_bytes)
    if to == "parquet":
        write = functools.partial(write, further=_further_columns(dataset.rows()))
    if to == "json":
        write = functools.partial(write, alphabet=dataset.alphabet, hop_seconds=dataset.features.hop_seconds)

    # A sibling, so that the rename stays on one disk.
    unfinished = output.absolute().with_name(f".{output.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)

    try:
        by_speaker: dict[str, SpeakerFiles] = {}
        counts: dict[str, int] = {}

        # A format writes each split as a generator; here it is counted and listed while it is written.
        for split in dataset.counts:
            for utterance, files, shared in write(_utterances(dataset, split), split, unfinished):
                counts[split] = counts.get(split, 0) + 1
                held = by_speaker.setdefault(utterance.row.speaker, SpeakerFiles())
                held.ids.append(utterance.row.id)
                # The same file follows itself where an utterance shares its recording with the one before.
                held.files += [file for file in files if file not in held.files[-1:]]
                held.shared += [file for file in shared if file not in held.shared]

        _list_speakers(by_speaker, unfinished / PURGE_LIST)
        licences = count_licences(dataset.rows(), dataset.counts)
        description = {"dataset": versions.name, "version": number, "key": dataset.key, "format": to, "counts": counts}
        description["licences"] = licences or {NOT_STATED: sum(counts.values())}
        description["at"] = format_utc(time.time())
        write_json(unfinished / EXPORT_FILE, description)

        # An empty folder of the user's makes room for the finished one.
        if output.exists():
            output.rmdir()
        _record(versions, description, output)  # before it appears: no export is unknown
        unfinished.rename(output)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return description


def _utterances(dataset: Dataset, split: str) -> Iterator[ExportedUtterance]:
    """The rows of a split with their WAVs; from a bucket these are downloaded, some at a time."""
    if not dataset.shards:
        raise WorkError(f"{dataset.folder}: it has no shards, and so no store that holds its recordings")
    progress = Progress(f"utterances of {split}", total=dataset.counts[split])
    rows = (row for row in dataset.rows() if row.split == split)

    # In batches: a bucket is asked for many WAVs at a time, and the disk never holds all of them at once.
    while batch := [row for _, row in zip(range(_BATCH), rows, strict=False)]:
        files = dataset.recordings(row.audio_hash for row in batch)
        for row, file in zip(batch, files, strict=True):
            yield ExportedUtterance(row, file, *_read_length(row, file))
            progress.advance(1)


def _read_length(row: DatasetRow, file: Path) -> tuple[int, int]:
    import soundfile

    try:
        header = soundfile.info(str(file))
    except RuntimeError:
        raise WorkError(
            f"{row.id}: its recording {file} is absent or damaged; run the refresh of this corpus again, which "
            "makes it again, and export then"
        ) from None
    return int(header.samplerate), int(header.frames)


def _list_speakers(by_speaker: dict[str, SpeakerFiles], file: Path) -> None:
    """Writes the purge list. A recording that two speakers share belongs to neither alone."""
    # First who has each file, then the split into files of one speaker and files of several.
    owners: dict[str, set[str]] = {}
    for speaker, held in by_speaker.items():
        for name in held.files:
            owners.setdefault(name, set()).add(speaker)
    for held in by_speaker.values():
        held.shared += sorted({name for name in held.files if len(owners[name]) > 1})
        held.files = sorted({name for name in held.files if len(owners[name]) == 1})
    write_json(file, {speaker: dataclasses.asdict(held) for speaker, held in sorted(by_speaker.items())})


def _record(versions: DatasetVersions, description: dict[str, Any], output: Path) -> None:
    store = open_store(versions.uri)

    # Each export has a record of its own, named by its content.
    name = f"{EXPORTS_FOLDER}/{hash_value([description, str(output.absolute())])}.json"
    write_json(store.local_path(name), {**description, "output": str(output.absolute())})

    if store.is_remote:
        store.push([name])


def find_exports(speaker: str, roots: Iterable[str | Path]) -> list[tuple[dict[str, Any], SpeakerFiles | None]]:
    """The exports that hold a speaker, or may do so.

    Args:
      roots: folders or bucket URIs of published datasets.

    Returns:
      Each export's record with what it holds of the speaker; None where its folder is gone or on another machine.
    """
    exports: list[tuple[dict[str, Any], SpeakerFiles | None]] = []
    for root in roots:
        for name in list_datasets(root):
            store = open_store(root) / name
            names = [info.name for info in store.list(f"{EXPORTS_FOLDER}/")]
            if store.is_remote:
                store.pull(names)
            for record in (read_json(store.local_path(file_name)) for file_name in sorted(names)):
                listed = Path(record["output"]) / PURGE_LIST
                # The export was moved or is on another machine: somebody must look there by hand.
                if not listed.is_file():
                    exports.append((record, None))
                elif held := read_json(listed).get(speaker):
                    exports.append((record, SpeakerFiles(**held)))
    return exports


def _copy(utterance: ExportedUtterance, folder: Path) -> str:
    target = folder / utterance.file

    # Several utterances may share a recording.
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(utterance.wav, target)
    return utterance.file


def _write_json(
    utterances: Iterable[ExportedUtterance], split: str, folder: Path, alphabet: Alphabet, hop_seconds: float
) -> Written:
    """`<split>.jsonl`, with labels and prosody; `<split>.csv` and `alphabet.txt` as Mozilla's DeepSpeech reads them.

    Paths are relative to the export.

    Args:
      hop_seconds: of the dataset's features, so that the prosody has as many frames.
    """
    from voxline.audio.prosody import compute_prosody
    from voxline.inference.waveforms import read_waveform

    # A symbol a line, in the order of the labels. `#` would begin a comment.
    with atomic_write(folder / ALPHABET_FILE, "w") as file:
        file.writelines(("\\#" if symbol == "#" else symbol) + "\n" for symbol in alphabet.symbols)

    names = [f"{split}.jsonl", f"{split}.csv"]
    with atomic_write(folder / names[0], "w") as lines, atomic_write(folder / names[1], "w") as table:
        deepspeech = csv.writer(table, lineterminator="\n")
        deepspeech.writerow(["wav_filename", "wav_filesize", "transcript", "id"])  # it reads columns by name
        for utterance in utterances:
            row = utterance.row
            if unknown := alphabet.describe_unknown(row.text):
                raise WorkError(f"{row.id}: {unknown}, so it has no labels; refresh the dataset with its own alphabet")

            file_name = _copy(utterance, folder)
            hop = round(hop_seconds * utterance.sample_rate)
            prosody = compute_prosody(read_waveform(utterance.wav, utterance.sample_rate), utterance.sample_rate, hop)
            line = {
                "audio_filepath": file_name,
                **utterance.values(),
                "split": split,
                "token_ids": alphabet.encode(row.text),
            }
            line |= {"audio_hash": row.audio_hash, "sample_rate": utterance.sample_rate}
            # As convert's manifest has them: beside `duration` they would read as the place in a longer file.
            line["measured"] = {"onset_seconds": prosody.onset, "offset_seconds": prosody.offset}
            line |= {"hop_seconds": hop / utterance.sample_rate, "total_frames": len(prosody.f0)}

            # As doubles: 121.3 in single precision is written 121.30000305175781.
            line |= {
                "f0": prosody.f0.astype(float).round(2).tolist(),
                "energy": prosody.energy.astype(float).round(2).tolist(),
            }
            lines.write(encode_json(line) + "\n")
            deepspeech.writerow([file_name, utterance.wav.stat().st_size, row.text, row.id])
            yield utterance, [file_name], names


def _write_nemo(utterances: Iterable[ExportedUtterance], split: str, folder: Path) -> Written:
    """`<split>_manifest.json`; paths are relative to it, which NeMo accepts."""
    name = f"{split}_manifest.json"
    with atomic_write(folder / name, "w") as manifest:
        for utterance in utterances:
            file = _copy(utterance, folder)
            manifest.write(encode_json({"audio_filepath": file, **utterance.values(), "split": split}) + "\n")
            yield utterance, [file], [name]


def _write_lhotse(utterances: Iterable[ExportedUtterance], split: str, folder: Path) -> Written:
    """`cuts_<split>.jsonl.gz`; in Lhotse, `with_recording_path_prefix(<output>)` leads to the recordings."""
    name = f"cuts_{split}.jsonl.gz"

    # No name and no time in the head of the gzip file: equal versions give equal files.
    with atomic_write(folder / name) as packed, gzip.GzipFile("", "wb", 6, packed, mtime=0) as cuts:
        for utterance in utterances:
            file = _copy(utterance, folder)
            row = utterance.row

            # Lhotse compares durations with the samples, to the last digit.
            seconds = utterance.samples / utterance.sample_rate
            span = {"start": 0.0, "duration": seconds, "channel": 0}
            spoken = {"id": row.id, "recording_id": row.id, **span, "text": row.text, "speaker": row.speaker}
            if row.extra:
                spoken["custom"] = row.extra

            recording = {
                "id": row.id,
                "sources": [{"type": "file", "channels": [0], "source": file}],
                "sampling_rate": utterance.sample_rate,
                "num_samples": utterance.samples,
                "duration": seconds,
                "channel_ids": [0],
            }

            cut = {"id": row.id, **span, "supervisions": [spoken], "recording": recording, "type": "MonoCut"}
            cuts.write((encode_json(cut) + "\n").encode())
            yield utterance, [file], [name]


def _shards(utterances: Iterable[ExportedUtterance], shard_bytes: int) -> Iterator[tuple[int, list[ExportedUtterance]]]:
    """Groups utterances by the bytes of their audio: (number of the group, the group)."""
    numbers = count()
    shard = list[ExportedUtterance]()
    size = 0
    for utterance in utterances:
        shard.append(utterance)

        # 16-bit mono: two bytes a sample. The last group holds what is left.
        size += 2 * utterance.samples
        if size >= shard_bytes:
            yield next(numbers), shard
            shard = []
            size = 0
    if shard:
        yield next(numbers), shard


def _add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    # Time, owner and mode stay at their defaults, so that equal content gives equal tars.
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _write_webdataset(
    utterances: Iterable[ExportedUtterance], split: str, folder: Path, shard_bytes: int = SHARD_BYTES
) -> Written:
    """`<split>-000000.tar`, …: a `.wav`, a `.txt` and a `.json` for each utterance."""
    for number, shard in _shards(utterances, shard_bytes):
        name = f"{split}-{number:06d}.tar"
        with tarfile.open(folder / name, "w") as tar:
            for place, utterance in enumerate(shard):
                key = f"{number:06d}{place:06d}"  # an id may hold dots and slashes, which mean something else here
                _add_member(tar, f"{key}.wav", utterance.wav.read_bytes())
                _add_member(tar, f"{key}.txt", utterance.row.text.encode())
                _add_member(tar, f"{key}.json", encode_json({**utterance.values(), "split": split}).encode())
                yield utterance, [], [name]


def _write_nemo_tarred(
    utterances: Iterable[ExportedUtterance], split: str, folder: Path, shard_bytes: int = SHARD_BYTES
) -> Written:
    """`<split>/audio_0.tar`, … and `<split>/tarred_audio_manifest.json`."""
    (folder / split).mkdir()
    listed = f"{split}/tarred_audio_manifest.json"
    with atomic_write(folder / listed, "w") as manifest:
        for number, shard in _shards(utterances, shard_bytes):
            name = f"{split}/audio_{number}.tar"
            with tarfile.open(folder / name, "w") as tar:
                for place, utterance in enumerate(shard):
                    member = f"{number:06d}{place:06d}.wav"
                    _add_member(tar, member, utterance.wav.read_bytes())
                    line = {"audio_filepath": member, **utterance.values(), "split": split, "shard_id": number}
                    manifest.write(encode_json(line) + "\n")
                    yield utterance, [], [name, listed]


def _write_parquet(
    utterances: Iterable[ExportedUtterance],
    split: str,
    folder: Path,
    shard_bytes: int = SHARD_BYTES,
    further: dict[str, type] | None = None,
) -> Written:
    """`data/<split>-00000.parquet`, …, as Hugging Face's `datasets` writes and reads them.

    Args:
      further: columns of further keys, as `_further_columns` gives them; all files must have the same, or `datasets`
        refuses them.
    """
    import pyarrow
    import pyarrow.parquet

    (folder / "data").mkdir(exist_ok=True)

    audio = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    for number, shard in _shards(utterances, shard_bytes):
        name = f"data/{split}-{number:05d}.parquet"

        # Columns are arrays of the whole shard; audio is read in groups of rows, or a shard of it would be in memory
        # twice.
        extra = {
            key: _column([utterance.row.extra.get(key) for utterance in shard], kind)
            for key, kind in (further or {}).items()
        }
        texts = {key: [getattr(utterance.row, key) for utterance in shard] for key in ("id", "text", "speaker")}
        columns: dict[str, Any] = {key: pyarrow.array(values, pyarrow.string()) for key, values in texts.items()}
        columns["duration"] = pyarrow.array([utterance.row.duration for utterance in shard], pyarrow.float64())
        columns |= {key: pyarrow.array(*values) for key, values in extra.items()}

        # `datasets` finds the types of its columns in the schema's metadata.
        kinds = {key: str(array.type).replace("double", "float64") for key, array in columns.items()}
        features: dict[str, Any] = {key: {"dtype": kind, "_type": "Value"} for key, kind in kinds.items()}
        features["audio"] = {"sampling_rate": shard[0].sample_rate, "_type": "Audio"}
        schema = pyarrow.schema(
            [*((key, array.type) for key, array in columns.items()), ("audio", audio)],
            {"huggingface": json.dumps({"info": {"features": features}})},
        )

        with pyarrow.parquet.ParquetWriter(folder / name, schema) as writer:
            for start in range(0, len(shard), _GROUP_ROWS):
                batch = shard[start : start + _GROUP_ROWS]
                sounds = [
                    {"bytes": utterance.wav.read_bytes(), "path": f"{utterance.row.audio_hash}.wav"}
                    for utterance in batch
                ]
                arrays = [array.slice(start, _GROUP_ROWS) for array in columns.values()]
                writer.write_table(pyarrow.table([*arrays, pyarrow.array(sounds, audio)], schema=schema))
        for utterance in shard:
            yield utterance, [], [name]


def _further_columns(rows: Iterable[DatasetRow]) -> dict[str, type]:
    """The further keys of a dataset with the type of all their values; `object` where they have several, or nest.

    >>> row = DatasetRow(0, "a", "train", "", "hello", 1.0, 0.0, "", {"age": 3, "accent": "us"})
    >>> _further_columns([row, dataclasses.replace(row, extra={"age": "thirties"})])
    {'accent': <class 'str'>, 'age': <class 'object'>}
    """
    kinds: dict[str, type] = {}
    for row in rows:
        for key, value in row.extra.items():
            kind = type(value)

            # None fits any type; integers beyond 64 bits fit none.
            if value is not None:
                fits = kind in (str, bool, float) or (kind is int and -(2**63) <= value < 2**63)
                kinds[key] = kind if fits and kinds.get(key, kind) is kind else object
    return {key: kinds[key] for key in sorted(kinds.keys() - {"id", "text", "speaker", "duration", "audio"})}


def _column(values: list[Any], kind: type) -> tuple[list[Any], Any]:
    """Values and their Arrow type; as JSON where they have no common one."""
    import pyarrow

    # Mixed and nested values as JSON: a reader of Parquet needs one type a column.
    types = {str: pyarrow.string(), bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    if kind in types:
        return values, types[kind]
    return [None if value is None else encode_json(value) for value in values], pyarrow.string()


EXPORT_FORMATS: dict[str, Callable[..., Written]] = {
    "json": _write_json,
    "nemo": _write_nemo,
    "nemo-tarred": _write_nemo_tarred,
    "lhotse": _write_lhotse,
    "parquet": _write_parquet,
    "webdataset": _write_webdataset,
}
"""The writer of each format, by the name that `--to` accepts."""
_SHARDED = (_write_nemo_tarred, _write_parquet, _write_webdataset)
"""Writers that group recordings."""
