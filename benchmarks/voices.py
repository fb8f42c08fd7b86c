"""The networks of voices: weights, and mel frames a second of one core, from text to mels, without a vocoder.

Weights are random: speed does not depend on what was learned. CPU seconds, so that a busy machine matters less.

  python -m benchmarks.voices
"""

import math
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.components.train.models.fastspeech import FastSpeech
from voxline.components.train.models.tacotron2 import Tacotron2
from voxline.components.train.models.tts_network import TtsNetwork
from voxline.components.train.tts.model_settings import FastSpeechSettings, Tacotron2Settings
from voxline.components.train.tts.train_module import INFERENCE_NOISE

MELS, SYMBOLS = 80, 40
TEXT, FRAMES = 60, 360
"""Symbols of the text, and frames of its speech: 4.2 seconds at a hop of 256 samples."""
ROUNDS = 3
NETWORKS: dict[str, Tacotron2Settings | FastSpeechSettings] = {
    "Tacotron 2, one frame a step": Tacotron2Settings(),
    "Tacotron 2, two frames a step": Tacotron2Settings(reduction=2),
    "FastSpeech (the default)": FastSpeechSettings(),
    "FastSpeech, 160 channels, 3 and 4 layers": FastSpeechSettings(
        channels=160, hidden=480, encoder_layers=3, decoder_layers=4, kernel=7
    ),
}


def main() -> None:
    """Prints a row for each network."""
    print("| voice | weights | mel frames a second on one core |")
    print("| --- | --- | --- |")
    labels = tf.constant(np.random.default_rng(0).integers(0, SYMBOLS, (1, TEXT)), tf.int32)
    for name, settings in NETWORKS.items():
        model = _build(settings)
        steps = FRAMES // settings.reduction

        def speak(labels: Any, model: TtsNetwork = model, steps: int = steps) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            return model.synthesize(labels, tf.constant([TEXT]), max_steps=steps, noise=noise).mels

        graph = tf.function(speak, input_signature=[tf.TensorSpec([1, None], tf.int32)], autograph=False)
        made, times = graph(labels).shape[1], []
        for _ in range(ROUNDS):
            start = time.process_time()
            graph(labels).numpy()
            times.append(time.process_time() - start)
        print(f"| {name} | {model.count_params():,} | {made / statistics.median(times):,.0f} |", flush=True)


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
