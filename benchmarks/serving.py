"""What serving a recognizer costs: ONNX next to the SavedModel, 8-bit weights, streams a core, start of a process.

Weights are random: speed does not depend on what was learned. CPU seconds of one thread, so that a busy machine
matters less; the network's size is the demo's (2 convolutions, 2 layers of 96 units, 40 mels).

  python -m benchmarks.serving
"""

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
import tensorflow as tf

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.families.asr.export import AsrGraph
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.settings import DeepSpeech2Settings
from voxline.families.asr.onnx import export_onnx
from voxline.families.asr.onnx_stream import export_stream
from voxline.inference.onnx_model import OnnxModel
from voxline.inference.recognizer import Recognizer
from voxline.text.alphabet import Alphabet

RATE, SECONDS, ROUNDS = 16_000, 3.0, 25
ALPHABET = Alphabet(" abcdefghijklmnopqrstuvwxyz'")
FEATURES = FeatureSettings(mels=40)
FORWARD = DeepSpeech2Settings(directions="forward", lookahead=4)
PACKET = RATE // 50
"""Samples that a client sends at a time: 20 ms."""
UTTERANCES, RECORDINGS = 40, 240
ENGINES: tuple[Literal["onnx", "tensorflow"], ...] = ("onnx", "tensorflow")
PRECISIONS: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")


def main() -> None:
    """Prints the table, and the latency of a stream below it."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for rnn, bounds in (("gru", {"float32": 0.3}), ("lstm", {"float32": 0.3, "int8": 0.15})):
            rows += _compare(root / rnn, DeepSpeech2Settings(rnn=rnn), bounds)
        rows.append(_compare_batches(root / "gru"))
        latency, streams = _stream(root / "stream")
        rows += [streams, _start(root / "stream")]
    print(latency, file=sys.stderr)
    print_table(rows)


def _compare(folder: Path, settings: DeepSpeech2Settings, bounds: dict[str, float]) -> list[Row]:
    """A recording at a time, by the SavedModel and by each graph."""
    model, mean, deviation = _network(settings)
    module = AsrGraph(model, FEATURES, ALPHABET)
    tf.saved_model.save(module, str(folder), signatures={"transcribe": module.transcribe})
    loaded = tf.saved_model.load(str(folder))
    waveform, length = _speech(SECONDS)[None], np.array([round(SECONDS * RATE)], np.int32)
    given = {"waveforms": tf.constant(waveform), "lengths": tf.constant(length)}
    peer = _cpu_seconds(lambda: loaded.signatures["transcribe"](**given))
    rows = []
    for precision in PRECISIONS:
        if precision in bounds:
            (folder / "model.onnx").write_bytes(export_onnx(model, FEATURES, mean, deviation, precision))
            size = (folder / "model.onnx").stat().st_size / 1e6
            graph = OnnxModel(folder, ALPHABET.symbols, threads=1)
            ours = _cpu_seconds(lambda: graph(waveform, length))  # noqa: B023
            name = f"{settings.rnn.upper()}, {precision} ({size:.1f} MB): {SECONDS:g} s; peer: SavedModel"
            rows.append(
                Row.of(name, f"{1000 * ours:.1f} ms", f"{1000 * peer:.1f} ms", ours / peer, "<=", bounds[precision])
            )
    return rows


def _compare_batches(folder: Path) -> Row:
    """Many recordings, by `Recognizer` with each engine, in the batches that it makes."""
    _write_about(folder)
    draw = np.random.default_rng(1)
    waveforms = [_speech(seconds) for seconds in draw.uniform(0.5 * SECONDS, 1.5 * SECONDS, RECORDINGS)]
    ours, peer = (
        _cpu_seconds(functools.partial(Recognizer(folder, engine=engine, threads=1).decode_waveforms, waveforms), 5)
        for engine in ENGINES
    )
    name = f"GRU, float32: {RECORDINGS} recordings of {0.5 * SECONDS:g} to {1.5 * SECONDS:g} s; peer: SavedModel"
    return Row.of(name, f"{ours:.2f} s", f"{peer:.2f} s", ours / peer, "<=", 1.0)


def _write_about(folder: Path) -> None:
    about = {
        "format": 1, "name": "asr", "family": "asr", "kind": "ctc", "alphabet": ALPHABET.symbols, "sample_rate": RATE,
        "features": {}, "settings": {}, "dataset": {}, "provenance": {},
    }  # fmt: skip
    (folder / "model.json").write_text(json.dumps(about))


def export_forward(folder: Path) -> None:
    """Writes a model that streams, of the demo's size, with random weights."""
    model, mean, deviation = _network(FORWARD)
    folder.mkdir()
    (folder / "model.onnx").write_bytes(export_onnx(model, FEATURES, mean, deviation))
    (folder / "stream.onnx").write_bytes(export_stream(model, FEATURES, mean, deviation))
    (folder / "saved_model.pb").write_bytes(b"")
    _write_about(folder)


def _stream(folder: Path) -> tuple[str, Row]:
    """Streams one after the other, in packets of 20 ms, as a server hears them."""
    export_forward(folder)
    recognizer = Recognizer(folder, threads=1)
    finishing, steps, spent = [], [], 0.0
    for seed in range(UTTERANCES):
        waveform = _speech(SECONDS, seed)
        stream = recognizer.stream()
        start = time.process_time()
        for part in np.split(waveform, range(PACKET, len(waveform), PACKET)):
            before = time.process_time()
            stream.feed(part)
            steps.append(time.process_time() - before)
        before = time.process_time()
        stream.finish()
        finishing.append(time.process_time() - before)
        spent += time.process_time() - start
    waits = stream.latency
    told = ", ".join(f"{share}%: {1000 * np.percentile(finishing, share):.1f} ms" for share in (50, 95, 99))
    latency = (
        f"algorithmic latency {waits.algorithmic_ms:.0f} ms (lookahead {waits.lookahead_ms:.1f} ms, chunks of "
        f"{waits.chunk_ms:.0f} ms); first partial after that and {1000 * max(steps):.1f} ms of computing at most; "
        f"finalisation, of computing: {told}"
    )
    audio = UTTERANCES * SECONDS
    row = Row.of(
        "streams in real time on one core", f"{1000 * spent / audio:.1f} ms a second", "1 s", audio / spent, ">=", 20
    )
    return latency, row


def _start(folder: Path) -> Row:
    """From nothing to the text of a second of speech, in a new process."""
    soundfile.write(folder / "a.wav", _speech(1.0), RATE)
    command = [sys.executable, "-m", "voxline", "transcribe", str(folder / "a.wav"), "--model", str(folder)]
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    best = min(times[1:])  # the first one may compile
    return Row.of("voxline transcribe, from its start to its end", f"{best:.2f} CPU s", "1 s", best, "<=", 1.0)


def _network(settings: DeepSpeech2Settings) -> tuple[Any, list[float], list[float]]:
    mean, deviation = [-8.0] * FEATURES.bins, [3.0] * FEATURES.bins
    model = DeepSpeech2(settings, mean=mean, deviation=deviation, classes=len(ALPHABET.symbols) + 1, portable=True)
    return model, mean, deviation


def _speech(seconds: float, seed: int = 0) -> np.ndarray:
    """Tones that change: a network works as hard for them."""
    draw = np.random.default_rng(seed)
    count = round(seconds * RATE)
    steps = np.repeat(draw.uniform(0.05, 2.5, count // 800 + 1), 800)[:count]
    return (0.3 * np.sin(np.cumsum(steps))).astype(np.float32)


def _cpu_seconds(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The fastest of some rounds, after two that prepare."""
    times = []
    for _ in range(2 + rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times[2:])


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main()
