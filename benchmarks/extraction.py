"""FLAC to TFRecord: the whole extract step through Beam, against a plain hand-written loop.

The loop decodes, computes features, adds them to the statistics and writes records. The step also scans the manifest,
plans, hashes, and lists shards and rejects. The figure is processor time of all threads, so that a busy machine
matters little; it excludes importing Beam (2 s, once per process) and waiting for the disk.

  python -m benchmarks.extraction
"""

import contextlib
import io
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
from threadpoolctl import threadpool_limits

import voxline.beam.run  # noqa: F401 - imported here, not while the clock runs
from benchmarks.table import Row, print_table
from voxline.audio.decoding import load_audio
from voxline.audio.features import compute_features
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.data.manifest import Utterance, write_manifest
from voxline.data.shard_writer import compute_cmvn_stats
from voxline.data.tfrecord import encode_example, write_tfrecord
from voxline.store.hashing import hash_file
from voxline.text.alphabet import Alphabet

UTTERANCES = 1_000
FILES = 40
ROUNDS = 3
SETTINGS = ExtractSettings(beam_from_megabytes=0)


def extraction() -> Row:
    """Measures both alternately on the same FLAC files, one thread each."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        utterances = _corpus(folder)
        write_manifest(folder / "manifest.jsonl", utterances)
        _loop(utterances[:FILES], folder / "warm.tfrecord")
        ours, peer = [], []
        for number in range(ROUNDS):
            start = time.process_time()
            _loop(utterances, folder / f"{number}.tfrecord")
            middle = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                run(folder, folder / f"store-{number}", SETTINGS)
            ours.append(time.process_time() - middle)
            peer.append(middle - start)
    return Row.of(
        "extract, FLAC to TFRecord through Beam, x a plain loop",
        f"{statistics.median(ours) / UTTERANCES * 1e3:.2f} ms an utterance",
        f"{statistics.median(peer) / UTTERANCES * 1e3:.2f} ms an utterance",
        statistics.median(mine / theirs for mine, theirs in zip(ours, peer, strict=True)),
        "<=",
        1.25,
    )


def _loop(utterances: list[Utterance], path: Path) -> None:
    alphabet = Alphabet.from_name(SETTINGS.alphabet)
    frames, sums = 0, np.zeros((2, SETTINGS.features.bins))
    with open(path, "wb") as file:
        for utterance in utterances:
            samples = load_audio(utterance.audio_filepath, SETTINGS.features.sample_rate)
            features = compute_features(samples, SETTINGS.features)
            frames += len(features)
            sums += compute_cmvn_stats(features)
            example = {
                "id": utterance.id.encode(),
                "text": utterance.text.encode(),
                "speaker": utterance.speaker.encode(),
                "features": features.tobytes(),
                "frames": len(features),
                "labels": np.array(alphabet.encode(utterance.text), "<i4").tobytes(),
                "speed": 1.0,
            }
            write_tfrecord(file, encode_example(example))
    mean = sums[0] / frames
    np.sqrt(sums[1] / frames - mean**2)


def _corpus(folder: Path) -> list[Utterance]:
    """Recordings of 2 to 15 s, each under many ids."""
    random = np.random.default_rng(3)
    files = []
    for number in range(FILES):
        samples = int(random.uniform(2, 15) * SETTINGS.features.sample_rate)
        noise = np.cumsum(random.standard_normal(samples)) % 1 - 0.5  # as hard to pack as speech, or harder
        level = np.abs(np.sin(np.arange(samples) / 3_000)) * 0.3
        path = folder / f"{number}.flac"
        soundfile.write(path, noise * level, SETTINGS.features.sample_rate, subtype="PCM_16")
        files.append((path, samples / SETTINGS.features.sample_rate, hash_file(path)))
    return [
        # A distinct hash each, because a recording that is in the store is not extracted again.
        Utterance(
            f"u{number}",
            str(path),
            seconds,
            "how it is said in some words",
            f"s{number % 9}",
            "train",
            f"{number}-{name}",
        )
        for number, (path, seconds, name) in enumerate(files[number % FILES] for number in range(UTTERANCES))
    ]


def main() -> None:
    print_table([extraction()])


if __name__ == "__main__":
    main()
