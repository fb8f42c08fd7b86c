"""The networks of voices: weights, and mel frames a second of one core, from text to mels, without a vocoder.

In TensorFlow, and by the ONNX graphs that there are (`train.export.onnx`); then of several texts at a time.

Weights are random: speed does not depend on what was learned. CPU seconds, so that a busy machine matters less.

  python -m benchmarks.voices
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.settings import FastSpeechSettings, Tacotron2Settings
from voxline.families.tts.networks.tacotron2 import Tacotron2
from voxline.families.tts.networks.tts_network import TtsNetwork
from voxline.families.tts.onnx import export_onnx_voice
from voxline.families.tts.train_module import INFERENCE_NOISE
from voxline.inference.onnx_model import import_onnxruntime

MELS, SYMBOLS = 80, 40
TEXT, FRAMES = 60, 360
"""Symbols of the text, and frames of its speech: 4.2 seconds at a hop of 256 samples."""
ROUNDS = 3
PRECISIONS = {"fastspeech": ("float32",), "tacotron2": ("float32", "int8")}
BATCHES = (1, 4, 8, 16)
"""Texts at a time."""
NETWORKS: dict[str, Tacotron2Settings | FastSpeechSettings] = {
    "Tacotron 2, one frame a step": Tacotron2Settings(),
    "Tacotron 2, two frames a step": Tacotron2Settings(reduction=2),
    "FastSpeech (the default)": FastSpeechSettings(),
    "FastSpeech, 160 channels, 3 and 4 layers": FastSpeechSettings(
        channels=160, hidden=480, encoder_layers=3, decoder_layers=4, kernel=7
    ),
}


def main() -> None:
    """Prints a row for each network, and one for each of a decoder's forms."""
    print("| voice | weights | mel frames a second on one core, TensorFlow | ONNX Runtime | int8 |")
    print("| --- | --- | --- | --- | --- |")
    batched = []
    labels = tf.constant(np.random.default_rng(0).integers(0, SYMBOLS, (1, TEXT)), tf.int32)
    for name, settings in NETWORKS.items():
        model = _build(settings)
        steps = FRAMES // settings.reduction

        def speak(labels: Any, model: TtsNetwork = model, steps: int = steps) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            return model.synthesize(labels, tf.constant([TEXT]), max_steps=steps, noise=noise).mels

        graph = tf.function(speak, input_signature=[tf.TensorSpec([1, None], tf.int32)], autograph=False)
        made = graph(labels).shape[1]
        speed = made / _cpu_seconds(lambda: graph(labels).numpy())  # noqa: B023
        given, by_onnx = {"symbols": labels.numpy(), "lengths": np.array([TEXT], np.int32)}, ["-"] * 2
        for column, precision in enumerate(PRECISIONS[settings.kind]):
            how: dict[str, Any] = {"max_steps": steps, "reduction": settings.reduction, "precision": precision}
            session = one_thread(export_onnx_voice(model, **how))
            by_onnx[column] = f"{made / _cpu_seconds(lambda: session.run(None, given)):,.0f}"  # noqa: B023
            if settings.kind == "tacotron2" and settings.reduction == 1:
                batched.append(f"| {precision} | {' | '.join(_in_batches(session))} |")
        print(f"| {name} | {model.count_params():,} | {speed:,.0f} | {' | '.join(by_onnx)} |", flush=True)
    print("", f"| one frame a step, texts at a time | {' | '.join(map(str, BATCHES))} |", sep="\n")
    print(f"|{' --- |' * (1 + len(BATCHES))}", *batched, sep="\n")


def _in_batches(session: Any) -> list[str]:
    """Frames a second of batches, of all their texts together."""
    found = []
    for texts in BATCHES:
        symbols = np.random.default_rng(0).integers(0, SYMBOLS, (texts, TEXT)).astype(np.int32)
        given = {"symbols": symbols, "lengths": np.full(texts, TEXT, np.int32)}
        seconds = _cpu_seconds(lambda: session.run(None, given))  # noqa: B023
        found.append(f"{texts * FRAMES / seconds:,.0f}")
    return found


def one_thread(content: bytes) -> Any:
    """A session of ONNX Runtime."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _cpu_seconds(make: Callable[[], Any]) -> float:
    """The median of some rounds, after one that prepares."""
    make()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return statistics.median(times)


def _build(settings: Tacotron2Settings | FastSpeechSettings) -> Any:
    """A network that speaks `FRAMES` frames: one without a stop token, or with about as many for each symbol."""
    sizes: dict[str, Any] = {
        "symbols": SYMBOLS,
        "bins": MELS,
        "mels": MELS,
        "mean": [0.0] * MELS,
        "deviation": [1.0] * MELS,
    }
    if isinstance(settings, FastSpeechSettings):
        voice = FastSpeech(settings, **sizes)
        voice.duration.last.bias.assign([math.log(FRAMES / TEXT)])
        return voice
    attentive = Tacotron2(settings, **sizes)
    attentive.decoder.stop_bias.assign(attentive.decoder.stop_bias - 100.0)
    return attentive


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main()
