"""The networks of vocoders: weights, and how many times faster than real time one core makes their waveforms.

Weights are random: speed does not depend on what was learned. CPU seconds, so that a busy machine matters less.

With a trained vocoder and recordings that it has not seen, what it makes of their mels: beside Griffin-Lim on the same
mels, with paired intervals, and beside the recordings.

  python -m benchmarks.vocoders
  python -m benchmarks.vocoders MODEL WAV …    # <registry>/<model> or an exported vocoder
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import tensorflow as tf
from threadpoolctl import threadpool_limits

from benchmarks.griffin_lim import TACOTRON_2
from benchmarks.voices import one_thread
from voxline.audio.griffin_lim import features_to_waveform
from voxline.components.evaluate.measurement import compare_with
from voxline.components.evaluate.speech import evenly_spaced_ids, measure_dnsmos, read_utterance
from voxline.data.manifest import Utterance
from voxline.families.vocoder.evaluate import measure_vocoder
from voxline.families.vocoder.networks.hifigan import HifiganGenerator
from voxline.families.vocoder.networks.settings import (
    HifiganSettings,
    VocoderModelSettings,
    VocosSettings,
    WaveGlowSettings,
)
from voxline.families.vocoder.networks.vocos import Vocos, magnitude_prior
from voxline.families.vocoder.networks.waveglow import WaveGlow
from voxline.families.vocoder.onnx import export_onnx_vocoder
from voxline.families.vocoder.settings import VocoderEvaluateSettings
from voxline.inference.vocoder import Vocoder
from voxline.metrics.bootstrap import Bootstrap, aggregate
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import IntervalInfo
from voxline.registry.models import find_model

SECONDS, SECONDS_OF_A_LARGE_FLOW = 4.0, 0.5
ROUNDS = 3
MEAN, DEVIATION = [-5.0] * TACOTRON_2.mels, [2.0] * TACOTRON_2.mels
"""Of random mels."""
V3 = {
    "channels": 256, "upsample_rates": (8, 8, 4), "upsample_kernels": (16, 16, 8), "residual_kernels": (3, 5, 7),
    "residual_dilations": ((1, 2), (2, 6), (3, 12)), "residual_block": "single",
}  # fmt: skip
NETWORKS: dict[str, VocoderModelSettings] = {
    "Vocos, 256 x 4 (the default)": VocosSettings(),
    "Vocos, 512 x 8 (the paper's)": VocosSettings(channels=512, hidden=1536, layers=8),
    "HiFi-GAN V1": HifiganSettings(),
    "HiFi-GAN V1 with an inverse STFT (8·8·4)": HifiganSettings(
        upsample_rates=(8, 8), upsample_kernels=(16, 16), istft_hop=4
    ),
    "HiFi-GAN V2": HifiganSettings(channels=128),
    "HiFi-GAN V3": HifiganSettings.of(V3),
    "HiFi-GAN V3 in four bands (8·8·4)": HifiganSettings.of(
        {**V3, "upsample_rates": (8, 8), "upsample_kernels": (16, 16), "bands": 4}
    ),
    "WaveGlow, 512 channels (the paper's)": WaveGlowSettings(channels=512),
    "WaveGlow, 256 channels (the default)": WaveGlowSettings(),
    "WaveGlow, 64 channels, 6 flows of 4 layers": WaveGlowSettings(channels=64, flows=6, layers=4),
}


def judge(model: str, wavs: Sequence[str]) -> None:
    """Prints a row for each metric of a trained vocoder, over all recordings, and its speed in the exported form."""
    if not wavs:
        sys.exit(f"benchmarks.vocoders: {model} and no recording; give the WAVs of some that it has not seen")
    vocoder = Vocoder(find_model(model), threads=1)
    features, rate = vocoder.features, vocoder.sample_rate
    settings = VocoderEvaluateSettings(f0_utterances=len(wavs), mos_utterances=len(wavs))
    utterances = [Utterance(path, path, soundfile.info(path).duration, Path(path).stem) for path in wavs]
    seconds = {"vocoder": 0.0, "griffin_lim": 0.0}

    def timed(name: str, vocode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def make(mels: Any) -> Any:
            start = time.process_time()
            with threadpool_limits(1):
                made = vocode(mels)
            seconds[name] += time.process_time() - start
            return made

        return make

    ours, theirs = (
        measure_vocoder(
            utterances, timed(name, vocode), features, judged_by=features, voice=None, recognizer=None,
            settings=settings, unit=f"recordings ({name})",
        )
        for name, vocode in (
            ("vocoder", vocoder.vocode),
            ("griffin_lim", lambda mels: [features_to_waveform(one, features) for one in mels]),
        )
    )  # fmt: skip
    nobody = [""] * len(utterances)
    heard = evenly_spaced_ids(utterances, settings.mos_utterances)
    opinions = [measure_dnsmos(read_utterance(one, rate), rate) for one in utterances if one.id in heard]
    bootstrap = Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed)

    def with_interval(name: str, values: Any) -> str:
        metric = CATALOG[name]
        interval = IntervalInfo.of(bootstrap.interval(values, nobody[: len(values)], metric.kind))
        return f"{metric.format(aggregate(values, metric.kind))} ({metric.format_range(interval.low, interval.high)})"

    print("| metric | recorded | Griffin-Lim, 60 iterations | vocoder | paired difference, 95% interval |")
    print("| --- | --- | --- | --- | --- |")
    for name, beside in compare_with(theirs, ours, nobody, settings).items():
        metric, ends = CATALOG[name], beside.interval
        recorded = with_interval(name, opinions) if name == "dnsmos" else "1" if name == "estoi" else "-"
        cells = [with_interval(name, [one[name] for one in rows]) for rows in (theirs, ours)]
        apart = f"{metric.format_difference(ends.low)} to {metric.format_difference(ends.high)}"
        print(f"| {metric.title} | {recorded} | {' | '.join(cells)} | {apart} |", flush=True)
    spoken = sum(one.duration for one in utterances)
    speeds = " | ".join(f"{spoken / seconds[name]:.3g}" for name in ("griffin_lim", "vocoder"))
    print(f"| x real time on one core (vocoder: {vocoder.engine}) | - | {speeds} | - |")


def main() -> None:
    """Prints a row for Griffin-Lim and for each network, at 22.05 kHz and a hop of 256 samples."""
    features = TACOTRON_2
    mels = _random_mels(SECONDS)
    print("| vocoder | weights | x real time on one core, TensorFlow | ONNX Runtime |")
    print("| --- | --- | --- | --- |")
    with threadpool_limits(1):
        speed = SECONDS / _cpu_seconds(lambda: features_to_waveform(mels, features))
    print(f"| Griffin-Lim, 60 iterations | none | {speed:.3g} (numpy) | - |", flush=True)
    for name, settings in NETWORKS.items():
        model = _build(settings)
        vocode = tf.function(model, input_signature=[tf.TensorSpec([1, None, features.mels])], autograph=False)
        large = isinstance(settings, WaveGlowSettings) and settings.channels > 100
        seconds = SECONDS_OF_A_LARGE_FLOW if large else SECONDS
        given = tf.constant(_random_mels(seconds)[None])
        speed = seconds / _cpu_seconds(lambda: vocode(given).numpy())  # noqa: B023
        onnx = "-"
        if isinstance(settings, VocosSettings):
            session = one_thread(export_onnx_vocoder(model, settings, features, MEAN, DEVIATION))
            frames = np.array([given.shape[1]], np.int32)
            made = {"mels": given.numpy(), "frames": frames}
            onnx = f"{seconds / _cpu_seconds(lambda: session.run(None, made)):.3g}"  # noqa: B023
        print(f"| {name} | {model.count_params():,} | {speed:.3g} | {onnx} |", flush=True)


def _random_mels(seconds: float) -> npt.NDArray[np.float32]:
    frames = TACOTRON_2.count_frames(round(seconds * TACOTRON_2.sample_rate))
    return np.random.default_rng(0).normal(-5, 2, (frames, TACOTRON_2.mels)).astype(np.float32)


def _build(settings: VocoderModelSettings) -> Any:
    features = TACOTRON_2
    statistics_of_mels: dict[str, Any] = {"mean": MEAN, "deviation": DEVIATION}
    if isinstance(settings, VocosSettings):
        size = settings.inverse_fft_size(features)
        prior = magnitude_prior(features, size) if settings.prior else None
        return Vocos(settings, fft_size=size, hop=features.hop_length, prior=prior, **statistics_of_mels)
    if isinstance(settings, WaveGlowSettings):
        return WaveGlow(settings, hop=features.hop_length, **statistics_of_mels)
    return HifiganGenerator(settings, **statistics_of_mels)


def _cpu_seconds(make: Callable[[], Any]) -> float:
    """The median of some rounds, after one that prepares."""
    make()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        make()
        times.append(time.process_time() - start)
    return statistics.median(times)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    judge(sys.argv[1], sys.argv[2:]) if sys.argv[1:] else main()
