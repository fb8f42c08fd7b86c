"""Tacotron 2 in full size next to the same in PyTorch eager: a teacher-forced training step, and decoding only.

Decoding is measured twice: as a SavedModel whose loop XLA has compiled, in float32 as the peer's (compiling is not
measured).

PyTorch is in a separate environment (`make bench` sets it up), so the peer is a process that times itself; the two
alternate, so that a busy machine slows both equally. One core, one thread.

  python -m benchmarks.synthesis
"""

import functools
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
import tensorflow as tf

from benchmarks.table import Row, peak_memory_row, print_table
from voxline.families.tts import losses
from voxline.families.tts.networks.settings import Tacotron2Settings
from voxline.families.tts.networks.tacotron2 import Tacotron2
from voxline.families.tts.settings import TtsTrainSettings
from voxline.training.optimizer import AdamW

PEER = Path(__file__).parent / "peers" / "tacotron2_torch.py"
PEER_PYTHON = Path(__file__).parent.parent / ".bench-venv" / "bin" / "python"
MELS, SYMBOLS = 80, 40
BATCH, TEXT, STEPS = 16, 60, 60
"""Of the training step: utterances, symbols and decoder steps, r = 2."""
SPOKEN_TEXT, SPOKEN_STEPS = 60, 200
ROUNDS, WARM_UP, REPEATS = 3, 2, 3
CARD = 405
"""Mel frames a second of an accelerator card, in the literature that this project started from."""


def rows() -> list[Row]:
    """One training step, and decoding of one text with one and two frames a step."""
    return [*_training(), *(row for reduction in (1, 2) for row in _compiled(reduction))]


def build(reduction: int) -> Tacotron2:
    """In full size; the frames' mean and deviation are those of the random numbers it is given."""
    settings = Tacotron2Settings(reduction=reduction)
    return Tacotron2(settings, symbols=SYMBOLS, bins=MELS, mels=MELS, mean=[0.0] * MELS, deviation=[1.0] * MELS)


def _training() -> list[Row]:
    model, random = build(2), np.random.default_rng(1)
    labels = random.integers(0, SYMBOLS, (BATCH, TEXT)).astype(np.int32)
    counts, frames = np.full(BATCH, TEXT, np.int32), np.full(BATCH, 2 * STEPS, np.int32)
    features = random.standard_normal((BATCH, 2 * STEPS, MELS)).astype(np.float32)
    optimizer = AdamW(model.trainable_variables, TtsTrainSettings(weight_decay=1e-6, clip_norm=1.0))

    @tf.function(autograph=False)
    def learn(noise: Any) -> Any:
        with tf.GradientTape() as tape:
            spoken = model(labels, counts, features, frames, training=True, noise=noise)
            loss = sum(losses.masked_distance(made, features, frames) for made in (spoken.before, spoken.mels))
            loss = tf.reduce_mean(loss + losses.stop_loss(spoken.stop, frames))
        gradients = tape.gradient(loss, model.trainable_variables)
        norm = tf.linalg.global_norm(gradients)
        optimizer.update_in_replica(gradients, norm, tf.constant(1e-3), tf.math.is_finite(norm))
        return loss

    def ours() -> float:
        return _median(lambda step: learn(tf.constant([1, step])).numpy())

    shape = {"what": "step", "batch": BATCH, "text": TEXT, "steps": STEPS, "reduction": 2}
    mine, theirs, peer_bytes = _in_turns(model, ours, shape)
    name = f"training step, Tacotron 2 ({model.count_params():,} weights)"
    texts = [f"{statistics.median(times) * 1000:.0f} ms" for times in (mine, theirs)]
    ratio = statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
    return [
        Row.of(f"{name}, share of PyTorch eager's", texts[0], texts[1], ratio, "<=", 0.65),
        peak_memory_row(name, peer_bytes),
    ]


class _Voice(tf.Module):  # type: ignore[misc]
    """A TTS model as in a SavedModel, which never predicts the stop token."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        model.decoder.stop_bias.assign(model.decoder.stop_bias - 1e4)
        self.held = [variable.value for variable in model.weights]
        noise, compiler = (7, 0), functools.partial(tf.function, autograph=False, jit_compile=True)
        self._synthesize = lambda *text: (
            model.synthesize(*text, max_steps=SPOKEN_STEPS, noise=tf.constant(noise), compiler=compiler).mels
        )

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)), autograph=False
    )
    def synthesize(self, labels: Any, counts: Any) -> Any:
        return {"mels": self._synthesize(labels, counts)}


def _compiled(reduction: int) -> list[Row]:
    model = build(reduction)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(_Voice(model), folder)
        loaded = tf.saved_model.load(folder)
        counts = tf.constant([SPOKEN_TEXT])
        return _speaking(model, lambda labels: loaded.synthesize(labels, counts)["mels"].numpy(), reduction, "XLA")


def _speaking(model: Tacotron2, speak: Any, reduction: int, how: str) -> list[Row]:
    labels = tf.constant(np.random.default_rng(1).integers(0, SYMBOLS, (1, SPOKEN_TEXT)), tf.int32)
    shape = {"what": "speak", "batch": 1, "text": SPOKEN_TEXT, "steps": SPOKEN_STEPS, "reduction": reduction}
    mine, theirs, _ = _in_turns(model, lambda: _median(lambda _: speak(labels)), shape)
    made = SPOKEN_STEPS * reduction
    speed, peer = made / statistics.median(mine), made / statistics.median(theirs)
    ratio = statistics.median(other / one for one, other in zip(mine, theirs, strict=True))
    name = f"decoding alone, {how}, LSTM 1024, r={reduction}, batch 1"
    return [
        Row.of(f"{name}, x PyTorch eager", f"{speed:.0f} frames/s", f"{peer:.0f} frames/s", ratio, ">=", 1.5),
        Row.of(f"{name}, frames/s", f"{speed:.0f} frames/s", f"{CARD} frames/s", speed, ">=", CARD),
    ]


def _in_turns(model: Tacotron2, ours: Any, shape: dict[str, Any]) -> tuple[list[float], list[float], int]:
    """Seconds of each round, ours and the peer's; and bytes that the peer's process took."""
    mine, theirs = [], []
    peer_bytes = 0
    for _ in range(ROUNDS):
        mine.append(ours())
        seconds, taken = _run_peer(model, shape)
        theirs.append(seconds)
        peer_bytes = max(peer_bytes, taken)
    return mine, theirs, peer_bytes


def _median(run: Any) -> float:
    seconds = []
    for step in range(WARM_UP + REPEATS):
        start = time.perf_counter()
        run(step)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM_UP:])


def _run_peer(model: Tacotron2, shape: dict[str, Any]) -> tuple[float, int]:
    settings = model.settings
    size = {
        **shape,
        "threads": len(os.sched_getaffinity(0)),
        "rounds": WARM_UP + REPEATS,
        "symbols": SYMBOLS,
        "mels": MELS,
        "embedding": settings.embedding,
        "convolutions": settings.encoder_convolutions,
        "channels": settings.encoder_channels,
        "kernel": settings.encoder_kernel,
        "lstm": settings.encoder_lstm,
        "prenet": settings.prenet,
        "units": settings.decoder_units,
        "dropout": settings.decoder_dropout,
        "attention": settings.attention.units,
        "filters": settings.attention.location_filters,
        "taps": settings.attention.location_kernel,
        "postnet": settings.postnet_layers,
        "postnet_channels": settings.postnet_channels,
    }
    answer = subprocess.run(
        [PEER_PYTHON, PEER], input=json.dumps(size), stdout=subprocess.PIPE, text=True, check=True, timeout=3_600
    )
    result = json.loads(answer.stdout)
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    # The same model but for the biases of LSTMs, of which PyTorch counts two.
    if abs(result["weights"] - trained) > 0.01 * trained:
        sys.exit(f"benchmarks.synthesis: {trained:,} weights against {result['weights']:,}: not the same model")
    return float(statistics.median(result["seconds"][WARM_UP:])), result["bytes"]


def main() -> None:
    if not PEER_PYTHON.exists():
        sys.exit("benchmarks.synthesis: PyTorch, the peer, is not set up; run `make bench`")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print_table(rows())


if __name__ == "__main__":
    main()
