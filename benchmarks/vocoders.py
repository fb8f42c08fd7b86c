"""The networks of vocoders: weights, and how many times faster than real time one core makes their waveforms.

Weights are random: speed does not depend on what was learned. CPU seconds, so that a busy machine matters less.

  python -m benchmarks.vocoders
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from threadpoolctl import threadpool_limits

from benchmarks.griffin_lim import TACOTRON_2
from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.train.models.hifigan import HifiganGenerator
from voxline.components.train.models.vocos import Vocos, magnitude_prior
from voxline.components.train.vocoder.settings import HifiganSettings, VocosSettings

SECONDS = 4.0
ROUNDS = 3
V3 = {
    "channels": 256, "upsample_rates": (8, 8, 4), "upsample_kernels": (16, 16, 8), "residual_kernels": (3, 5, 7),
    "residual_dilations": ((1, 2), (2, 6), (3, 12)), "residual_block": "single",
}  # fmt: skip
NETWORKS: dict[str, VocosSettings | HifiganSettings] = {
    "Vocos, 256 x 4 (the default)": VocosSettings(),
    "Vocos, 512 x 8 (the paper's)": VocosSettings(channels=512, hidden=1536, layers=8),
    "HiFi-GAN V1": HifiganSettings(),
    "HiFi-GAN V2": HifiganSettings(channels=128),
    "HiFi-GAN V3": HifiganSettings.of(V3),
}


def main() -> None:
    """Prints a row for Griffin-Lim and for each network, at 22.05 kHz and a hop of 256 samples."""
    features = TACOTRON_2
    frames = features.count_frames(round(SECONDS * features.sample_rate))
    mels = np.random.default_rng(0).normal(-5, 2, (frames, features.mels)).astype(np.float32)
    print("| vocoder | weights | x real time on one core |")
    print("| --- | --- | --- |")
    with threadpool_limits(1):
        speed = _speed(lambda: features_to_waveform(mels, features))
    print(f"| Griffin-Lim, 60 iterations | none | {speed:.1f} |", flush=True)
    for name, settings in NETWORKS.items():
        model = _build(settings)
        vocode = tf.function(model, input_signature=[tf.TensorSpec([1, None, features.mels])], autograph=False)
        given = tf.constant(mels[None])
        print(f"| {name} | {model.count_params():,} | {_speed(lambda: vocode(given).numpy()):.1f} |", flush=True)  # noqa: B023


def _build(settings: VocosSettings | HifiganSettings) -> Any:
    features = TACOTRON_2
    statistics_of_mels = {"mean": [-5.0] * features.mels, "deviation": [2.0] * features.mels}
    if isinstance(settings, VocosSettings):
        size = settings.inverse_fft_size(features)
        prior = magnitude_prior(features, size) if settings.prior else None
        return Vocos(settings, fft_size=size, hop=features.hop_length, prior=prior, **statistics_of_mels)
    return HifiganGenerator(settings, **statistics_of_mels)


def _speed(make: Callable[[], Any]) -> float:
    """Seconds of speech a CPU second; the median of some rounds, after one that prepares."""
    make()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return SECONDS / statistics.median(times)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main()
