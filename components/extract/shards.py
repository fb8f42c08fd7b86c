"""Writing one shard: recordings to features to a TFRecord file, whole or not at all.

Shards lie in a pool that all datasets of a store share, `<store>/shards/<2 hex>/<name>.tfrecord`, each with a small
`<name>.json` beside it: counts, checksum and sums, so that it can be used again without being read. The sidecar
is written last; a shard without one is unfinished.
"""

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from components.extract.plan import shard_name
from components.extract.recordings import at_speed, read_samples
from components.extract.settings import ExtractSettings
from components.extract.statistics import Sums
from components.speech.bad_audio import BadAudio
from components.speech.records import encode_example, write_record
from components.speech.spectra import Array, features
from components.speech.storage import HASH_CHARACTERS, read_json, whole_file, write_json
from components.speech.text import Alphabet
from components.speech.utterances import Reason, Reject, Utterance, read_manifest


@dataclasses.dataclass(frozen=True)
class Task:
    """One shard to write; small, since runners carry it from process to process.

    Attributes:
      name: of the shard if no recording fails.
      manifest: its utterances, in order.
    """

    name: str
    split: str
    speed: float
    manifest: Path
    number: int
    of: int


@dataclasses.dataclass(frozen=True)
class Written:
    """A shard in the pool, as its sidecar describes it. `sums` only where statistics are taken of it."""

    name: str
    split: str
    speed: float
    examples: int
    frames: int
    seconds: float
    bytes: int
    checksum: str
    sums: Sums | None

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "sums": self.sums.plain() if self.sums else None}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Written":
        sums = values["sums"]
        return cls(**{**values, "sums": Sums.from_plain(sums) if sums else None})


def write_shard(
    task: Task,
    settings: ExtractSettings,
    pool: Path,
    unfinished: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[Written | None, list[Reject]]:
    """Makes sure that a shard lies in the pool.

    Args:
      unfinished: a folder on the pool's disk for the file until it is whole.
      advance: told how many utterances were done since the last time.

    Returns:
      The shard, or None when every one of its recordings failed; and those that failed. A shard from which
      recordings are missing bears the name of those that are in it, so that a name never has two contents.
    """
    utterances = read_manifest(task.manifest)
    found = find_shard(pool, task.name)
    if found:
        advance(len(utterances))
        return found, []
    part = unfinished / f"{task.name}.{secrets.token_hex(4)}"
    rejects: list[Reject] = []
    members: list[Utterance] = []
    frames, length, seconds = 0, 0, 0.0
    sums = Sums.of_nothing(settings.features.bins) if task.split == "train" and task.speed == 1.0 else None
    alphabet = Alphabet.named(settings.alphabet)
    with whole_file(part) as file:
        hashing = _Hashing(file)
        for utterance in utterances:
            try:
                samples = at_speed(read_samples(utterance, settings.features.sample_rate), task.speed)
                made = _finite(features(samples, settings.features))
            except BadAudio as failure:
                rejects.append(Reject(utterance.id, failure.reason, failure.detail))
            else:
                length += write_record(hashing, _example(utterance, made, alphabet, task.speed))
                members.append(utterance)
                frames += len(made)
                seconds += len(samples) / settings.features.sample_rate
                if sums:
                    sums = sums + Sums.of(made)
            advance(1)
    name = shard_name(members, task.split, task.speed, settings) if rejects else task.name
    if not members:
        part.unlink()
        return None, rejects
    written = Written(
        name, task.split, task.speed, len(members), frames, round(seconds, 6), length, hashing.digest(), sums
    )
    target = shard_file(pool, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(part, target)
    # Beside the file that is not whole yet, and not beside the shard: a kill leaves nothing in the pool.
    sidecar = part.with_suffix(".json")
    write_json(sidecar, written.plain())
    os.replace(sidecar, target.with_suffix(".json"))
    return written, rejects


def find_shard(pool: Path, name: str) -> Written | None:
    """A shard that lies whole in the pool."""
    path = shard_file(pool, name)
    try:
        values: dict[str, Any] = read_json(path.with_suffix(".json"))
        if path.stat().st_size != values["bytes"]:
            return None
    except FileNotFoundError:
        return None
    return Written.from_plain(values)


def shard_file(pool: Path, name: str) -> Path:
    return pool / name[:2] / f"{name}.tfrecord"


def _example(utterance: Utterance, made: Array, alphabet: Alphabet, speed: float) -> bytes:
    """The record that `components/speech/dataset.py` describes."""
    return encode_example(
        {
            "id": utterance.id.encode(),
            "text": utterance.text.encode(),
            "speaker": utterance.speaker.encode(),
            "features": made.astype("<f4", copy=False).tobytes(),
            "frames": len(made),
            "labels": np.array(alphabet.encode(utterance.text), "<i4").tobytes(),
            "speed": speed,
        }
    )


def _finite(made: Array) -> Array:
    """One infinity would spoil the statistics of the whole dataset."""
    if not np.isfinite(made).all():
        raise BadAudio(Reason.BAD_FEATURES, "features that are not finite: samples far beyond [-1, 1]")
    return made


class _Hashing:
    """A file that hashes what is written to it, so that it need not be read again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=HASH_CHARACTERS // 2)

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        return self._hash.hexdigest()
