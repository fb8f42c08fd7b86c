"""The vocoders' networks: equal to PyTorch with the same weights, of the papers' sizes, untouched by padding."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.closeness import assert_close, needs_bfloat16
from tests.families.networks.pytorch_oracle import numbered_weights, pytorch_outputs
from tests.families.networks.test_against_numpy import with_random_weights
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features, mel_filterbank
from voxline.families.vocoder import losses
from voxline.families.vocoder.networks.hifigan import HifiganGenerator
from voxline.families.vocoder.networks.settings import HifiganSettings, VocosSettings
from voxline.families.vocoder.networks.vocos import Vocos, magnitude_prior
from voxline.inference.vocoder import vocode_in_chunks
from voxline.metrics import estoi
from voxline.metrics.mcd import log_magnitude
from voxline.metrics.stft import RESOLUTIONS, stft_distance
from voxline.training import stft
from voxline.training.discriminators import PERIOD_CONVOLUTIONS, Discriminators, scale_convolutions
from voxline.training.settings import DiscriminatorSettings

MELS, HOP, SIZE = 6, 8, 32
STATISTICS = {"mean": [0.0] * MELS, "deviation": [1.0] * MELS}
FEATURES = FeatureSettings(
    sample_rate=8_000, window_seconds=SIZE / 8_000, hop_seconds=HOP / 8_000, mels=8, spectrum="magnitude"
)
SMALL_VOCOS = VocosSettings(channels=12, hidden=20, layers=2, kernel=5)
SMALL_HIFIGAN = HifiganSettings(
    channels=16,
    upsample_rates=(4, 2),
    upsample_kernels=(8, 4),
    residual_kernels=(3, 5),
    residual_dilations=((1, 3), (2, 1)),
)
OPTIONS_OF_HIFIGAN: dict[str, tuple[tuple[int, int], int, int]] = {
    "hifigan_with_istft": ((2, 2), 2, 1),
    "hifigan_with_bands": ((2, 1), 0, 4),
    "hifigan_with_both": ((1, 1), 2, 4),
}
"""Rates, `istft_hop` and `bands`, for the same hop."""
SMALL_DISCRIMINATORS = DiscriminatorSettings(periods=(2, 3), scales=2, width=0.03)
RANDOM = np.random.default_rng(1)
TONE = np.sin(np.arange(4_000) / 7).astype(np.float32) * np.linspace(0.1, 0.9, 4_000, dtype=np.float32)


@pytest.fixture(scope="module")
def vocoders() -> dict[str, Any]:
    """Each network, small, with random weights."""
    return {
        "vocos": with_random_weights(Vocos(SMALL_VOCOS, fft_size=SIZE, hop=HOP, **STATISTICS)),
        "hifigan": with_random_weights(HifiganGenerator(SMALL_HIFIGAN, **STATISTICS)),
        "discriminators": with_random_weights(Discriminators(SMALL_DISCRIMINATORS)),
        **{name: with_random_weights(hifigan_with(name)) for name in OPTIONS_OF_HIFIGAN},
    }


def hifigan_with(option: str) -> HifiganGenerator:
    rates, istft_hop, bands = OPTIONS_OF_HIFIGAN[option]
    changed = {"upsample_rates": rates, "upsample_kernels": rates, "istft_hop": istft_hop, "bands": bands}
    return HifiganGenerator(HifiganSettings.of({**SMALL_HIFIGAN.plain(), **changed}), **STATISTICS)


def run_ours(networks: dict[str, Any], mels: Any, waveforms: Any) -> dict[str, list[npt.NDArray[np.float32]]]:
    activations = networks["discriminators"](waveforms)[1]
    return {
        **{name: [network(mels).numpy()] for name, network in networks.items() if name != "discriminators"},
        "discriminators": [layer.numpy() for of_one in activations for layer in of_one],
    }


def test_each_network_equals_pytorch_with_the_same_weights(vocoders: dict[str, Any], tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    mels, mels_of_prior = (random.standard_normal((2, 9, bands)).astype(np.float32) for bands in (MELS, FEATURES.mels))
    waveforms = random.standard_normal((2, 517)).astype(np.float32)
    convolutions = [shape[1:] for shape in scale_convolutions(SMALL_DISCRIMINATORS.width)]
    vocos = (SMALL_VOCOS.kernel, SMALL_VOCOS.layers, SIZE, HOP)
    how = {
        "vocos": vocos,
        "vocos_with_prior": vocos,
        "hifigan": ((4, 2), (8, 4), (3, 5), ((1, 3), (2, 1)), True),
        **{
            name: (rates, rates, (3, 5), ((1, 3), (2, 1)), True, istft_hop, bands)
            for name, (rates, istft_hop, bands) in OPTIONS_OF_HIFIGAN.items()
        },
        "discriminators": ((2, 3), [stride for _, stride in PERIOD_CONVOLUTIONS], 2, convolutions),
    }
    statistics = {"mean": [0.0] * FEATURES.mels, "deviation": [1.0] * FEATURES.mels}
    prior = magnitude_prior(FEATURES, SIZE)
    with_prior = with_random_weights(Vocos(SMALL_VOCOS, fft_size=SIZE, hop=HOP, prior=prior, **statistics))
    weights = [
        numbered_weights(name, in_order(network))
        for name, network in [*vocoders.items(), ("vocos_with_prior", with_prior)]
    ]
    theirs = pytorch_outputs(
        "vocoders",
        how,
        tmp_path,
        mels=mels,
        mels_of_prior=mels_of_prior,
        waveforms=waveforms,
        filterbank=mel_filterbank(FEATURES),
        **{name: array for arrays in weights for name, array in arrays.items()},
    )
    ours = run_ours(vocoders, mels, waveforms) | {"vocos_with_prior": [with_prior(mels_of_prior).numpy()]}
    assert len(theirs) == sum(map(len, ours.values()))
    for name, parts in ours.items():
        for index, part in enumerate(parts):
            wanted = theirs[f"{name}/{index}"]
            assert_close(part, wanted, relative_to_peak=1e-4, name=name)


def in_order(network: Any) -> list[Any]:
    """The weights in the order of computation; Keras gives a layer's own before those of the layers in it."""
    if not isinstance(network, Vocos):
        return list(network.weights)
    blocks = [
        weight
        for block in network.blocks
        for layer in (block.convolution, block.norm, block.widen, block.narrow)
        for weight in layer.weights
    ]
    each = len(blocks) // len(network.blocks)
    found = [*network.embedding.weights, *network.first_norm.weights]
    for index, block in enumerate(network.blocks):
        found += [*blocks[index * each : (index + 1) * each], block.scale]
    return [*found, *network.last_norm.weights, *network.head.weights]


@pytest.mark.parametrize("name", ["vocos", "hifigan", *OPTIONS_OF_HIFIGAN])
def test_a_row_of_a_padded_batch_gives_what_it_gives_alone(vocoders: dict[str, Any], name: str) -> None:
    mels = RANDOM.standard_normal((2, 12, MELS)).astype(np.float32)
    together = vocoders[name](mels, np.array([12, 7])).numpy()
    alone = vocoders[name](mels[1:, :7]).numpy()
    assert together.shape == (2, 11 * HOP)
    assert_close(together[0], vocoders[name](mels).numpy()[0], relative_to_peak=1e-5)
    assert_close(together[1, : 6 * HOP], alone[0], relative_to_peak=1e-4)


@pytest.mark.slow
@needs_bfloat16
@pytest.mark.parametrize("kind", ["vocos", "hifigan"])
def test_in_half_precision_mels_are_normalized_before_they_are_rounded(kind: str) -> None:
    """To 8 bits: near 100 those are half a unit apart."""
    mels = (RANDOM.standard_normal((1, 12, MELS)) * 0.02 + 100).astype(np.float32)
    made = []
    for precision in ("float32", "mixed_bfloat16"):
        how: dict[str, Any] = {"mean": [100.0] * MELS, "deviation": [0.02] * MELS, "precision": precision}
        network = (
            Vocos(SMALL_VOCOS, fft_size=SIZE, hop=HOP, **how)
            if kind == "vocos"
            else HifiganGenerator(SMALL_HIFIGAN, **how)
        )
        random = np.random.default_rng(4)
        for weight in network.weights:
            weight.assign(random.standard_normal(weight.shape) / np.sqrt(max(np.prod(weight.shape[:-1]), 1)))
        made.append(network(mels).numpy())
    assert np.abs(made[0] - made[1]).max() < 0.1 * np.std(made[0])


@pytest.mark.slow
@pytest.mark.parametrize("make", [
    lambda: Vocos(SMALL_VOCOS, fft_size=SIZE, hop=HOP, **STATISTICS),
    lambda: HifiganGenerator(SMALL_HIFIGAN, **STATISTICS),
    *(functools.partial(hifigan_with, option) for option in OPTIONS_OF_HIFIGAN),
])  # fmt: skip
def test_chunks_together_are_the_whole(make: Callable[[], Any]) -> None:
    random = np.random.default_rng(4)  # its own: which tests ran before decides nothing
    network, mels = make(), random.standard_normal((70, MELS)).astype(np.float32)
    for weight in network.weights:  # so that no sample is at the limit of its tanh
        weight.assign(random.standard_normal(weight.shape) / np.sqrt(max(np.prod(weight.shape[:-1]), 1)))

    def vocode(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        assert len(part) <= 5 + 2 * network.context_frames + 1
        return np.asarray(network(part[None])[0])

    def stream(pieces: list[npt.NDArray[np.float32]], context: int) -> list[npt.NDArray[np.float32]]:
        return list(vocode_in_chunks(vocode, pieces, [5, 0], context=context, hop=HOP))

    whole = np.asarray(network(mels[None])[0])
    for pieces in ([mels], np.split(mels, [1, 2, 40, 41])):
        chunks = stream(pieces, network.context_frames)
        assert [len(chunk) for chunk in chunks] == [5 * HOP] * 13 + [4 * HOP]
        assert_close(np.concatenate(chunks), whole, relative_to_peak=1e-5)
    assert np.abs(np.concatenate(stream([mels], network.context_frames // 2)) - whole).max() > 1e-4
    assert stream([mels[:1]], 2) == stream([], 2) == []


@pytest.mark.slow
@pytest.mark.parametrize(("version", "weights"), [
    ({"channels": 512}, 13_926_017),
    ({"channels": 128}, 925_985),
    ({
        "channels": 256, "upsample_rates": (8, 8, 4), "upsample_kernels": (16, 16, 8), "residual_kernels": (3, 5, 7),
        "residual_dilations": ((1, 2), (2, 6), (3, 12)), "residual_block": "single",
    }, 1_462_273),
    ({"upsample_rates": (8, 8), "upsample_kernels": (16, 16), "istft_hop": 4}, 13_254_034),
])  # fmt: skip
def test_hifigan_has_the_weights_of_the_paper(version: dict[str, Any], weights: int) -> None:
    """V1, V2 and V3: 13.92, 0.92 and 1.46 million in its table 1. The last is iSTFTNet's V1-C8C8I, summed by hand."""
    network = HifiganGenerator(HifiganSettings.of(version), mean=[0.0] * 80, deviation=[1.0] * 80)
    assert network.count_params() == weights


def transform(samples: npt.NDArray[np.float32], size: int, hop: int, length: int) -> npt.NDArray[np.complex128]:
    """The spectra of whole windows, one after the other."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    starts = range(0, len(samples) - length + 1, hop)
    return np.stack([np.fft.rfft(samples[start : start + length] * hann, size) for start in starts])


def test_magnitudes_are_those_of_a_transform_window_by_window() -> None:
    for size, hop, length in RESOLUTIONS:
        ours = stft.magnitudes(TONE[None], size, hop, length)[0].numpy()
        assert_close(ours, np.maximum(np.abs(transform(TONE, size, hop, length)), 1e-5), relative_to_peak=1e-5)


def test_the_gradient_of_magnitudes_is_the_one_that_tensorflow_derives() -> None:
    import tensorflow as tf

    size, hop, length = RESOLUTIONS[2]
    samples, wanted = tf.constant(TONE[None, :900]), RANDOM.random((1, 14, size // 2 + 1)).astype(np.float32)

    def gradient(magnitudes: Callable[[Any], Any]) -> npt.NDArray[np.float32]:
        with tf.GradientTape() as tape:
            tape.watch(samples)
            loss = tf.reduce_sum(wanted * tf.math.log(magnitudes(samples)))
        return np.asarray(tape.gradient(loss, samples))

    def derived(given: Any) -> Any:
        spectrum = tf.signal.rfft(stft.cut_windows(given, length, hop) * stft.periodic_hann(length), [size])
        return tf.sqrt(tf.maximum(tf.math.real(spectrum) ** 2 + tf.math.imag(spectrum) ** 2, stft.MIN_POWER))

    theirs = gradient(derived)
    ours = gradient(lambda given: stft.magnitudes(given, size, hop, length))
    assert_close(ours, theirs, relative_to_peak=1e-5)


@pytest.mark.parametrize("kind", [{"spectrum": "magnitude"}, {"spectrum": "power"}, {"kind": "mel_and_linear"}])
def test_the_prior_has_the_mels_that_it_is_made_of(kind: dict[str, Any]) -> None:
    """Its magnitudes are at another size of the transform; the filterbank there must give the same mels."""
    features = FeatureSettings.of({"sample_rate": 8_000, "mels": 20, "fft_size": 512, "log_floor": 1e-5, **kind}, "")
    noise = RANDOM.standard_normal(4_000).astype(np.float32) * np.linspace(0.01, 0.2, 4_000, dtype=np.float32)
    mels = compute_features(noise, features)[:, features.mel_columns]
    size = 2 * features.win_length
    made = np.exp(np.asarray(magnitude_prior(features, size)(mels[None]))[0]) / 2  # a window of twice the length
    forth = mel_filterbank(features.model_copy(update={"fft_size": size}))
    bands = (made if features.uses_magnitude else made**2) @ forth
    again = np.log(bands * features.n_fft / size)
    given = log_magnitude(mels, features) * (1 if features.uses_magnitude else 2)
    assert np.abs(again - given).mean() < 0.1


def test_the_inverse_of_a_transform_is_the_waveform() -> None:
    spectrum = transform(np.pad(TONE, 256), 512, 128, 512)[None].astype(np.complex64)
    restored = stft.inverse_stft(spectrum.real, spectrum.imag, 128)[0].numpy()
    assert_close(restored, TONE[: len(restored)], relative_to_peak=1e-5)
    assert len(restored) == (spectrum.shape[1] - 1) * 128


def test_four_bands_are_joined_to_the_waveform_that_they_were_cut_from() -> None:
    """By the analysis filters of the same bank, the synthesis filters from the last tap to the first."""
    noise = np.random.default_rng(7).standard_normal(4_000)
    filters = stft.bank_filters(4)
    parts = np.stack([np.convolve(noise, filters[:, band], "same")[::4] for band in range(4)], axis=-1)
    joined = stft.join_bands(parts[None].astype(np.float32))[0].numpy()
    inner = slice(100, -100)
    error = np.mean((joined - noise)[inner] ** 2) / np.mean(noise[inner] ** 2)
    assert -10 * np.log10(error) > 40  # the bank is near to perfect, no more


def test_losses_in_the_graph_equal_the_metrics() -> None:
    made = (TONE + 0.05 * RANDOM.standard_normal(len(TONE))).astype(np.float32)
    wanted = stft_distance(TONE, made)
    convergence, log_distance = losses.stft_distances(losses.spectra(made[None]), losses.spectra(TONE[None]))
    assert float(convergence[0]) == pytest.approx(wanted.spectral_convergence, rel=1e-4)
    assert float(log_distance[0]) * losses.DECIBELS == pytest.approx(wanted.log_stft, rel=1e-3)
    features = FeatureSettings(sample_rate=8_000, mels=20, spectrum="magnitude", log_floor=1e-5)
    ours = stft.log_mels(TONE[None], features)[0].numpy()
    assert_close(ours, compute_features(TONE, features)[: len(ours)], relative_to_peak=1e-5)


def without_silence(recorded: np.ndarray, generated: np.ndarray, rate: int) -> float:
    """ESTOI of each segment's loud frames, which the measure would put side by side; the mean of a frame."""
    window, hop, _ = estoi.spans(rate)
    size = 2 ** int(np.ceil(np.log2(2 * window)))
    powers = [transform(each, size, hop, window) for each in (recorded, generated)]
    powers = [np.abs(power) ** 2 for power in powers]
    level = 10 * np.log10(powers[0].sum(axis=1) + 1e-20)
    bands = estoi.octave_bands(size, rate)
    wanted, made = (np.sqrt(power @ bands[:, bands.any(axis=0)]) for power in powers)
    total, frames = 0.0, 0
    for first in range(len(wanted) - estoi.SEGMENT + 1):
        part = np.arange(first, first + estoi.SEGMENT)
        part = part[level[part] > level.max() - estoi.DYNAMIC_RANGE]
        pieces = []
        for each in (wanted[part], made[part]):
            for axis in (0, 1):
                each = each - each.mean(axis=axis, keepdims=True)
                each = each / np.linalg.norm(each, axis=axis, keepdims=True)
            pieces.append(each)
        total, frames = total + float((pieces[0] * pieces[1]).sum()), frames + len(part)
    return 1 - total / frames


def test_the_distance_by_estoi_is_that_of_the_measure() -> None:
    """Where no frame is silent, and at the rate of the measure; at another rate nearly."""
    noise, other = np.random.default_rng(5).standard_normal((2, 8_000)).astype(np.float32)
    swelling = noise * (1.2 + np.sin(np.arange(8_000, dtype=np.float32) / 900))
    made = swelling + other
    wanted = estoi.estoi(swelling, made, estoi.RATE)
    assert wanted is not None
    assert 0.3 < wanted < 0.9
    ours = losses.estoi_distance(np.stack([made, swelling]), np.stack([swelling, swelling]), estoi.RATE)
    assert ours.numpy() == pytest.approx([1 - wanted, 0], abs=0.01)  # the measure's windows are a sample longer
    faster = [np.repeat(each, 2)[None] for each in (made, swelling)]
    assert float(losses.estoi_distance(*faster, 2 * estoi.RATE)[0]) == pytest.approx(1 - wanted, abs=0.02)


@pytest.mark.parametrize("rate", [4_000, 8_000, 16_000])
def test_the_distance_by_estoi_counts_no_silence(rate: int) -> None:
    """Each row by its own loudest frame; noise 50 dB below it is silent. At 4 kHz some bands have no bin."""
    import tensorflow as tf

    samples = np.arange(int(0.8 * rate), dtype=np.float32)
    noise, other = np.random.default_rng(5).standard_normal((2, 2, len(samples))).astype(np.float32)
    pauses = np.where(np.sin(samples * 15 / rate) > 0, np.float32(1), np.float32(0.003))
    paused, level = noise * pauses, np.array([[0.5], [0.12]], np.float32)
    recorded, generated = level * paused, level * (paused + 0.5 * other * np.array([[1], [2]], np.float32))
    wanted = [without_silence(one, two, rate) for one, two in zip(recorded, generated, strict=True)]
    made = tf.Variable(generated)
    with tf.GradientTape(persistent=True) as tape:
        distances = losses.estoi_distance(made, recorded, rate)
        nothing = losses.estoi_distance(made, 1e-4 * noise, rate)
    assert distances.numpy() == pytest.approx(wanted, abs=1e-3)
    assert 0.02 < wanted[0] < wanted[1] < 0.9
    assert np.isfinite(tape.gradient(distances, made)).all()
    assert nothing.numpy().tolist() == [1, 1]
    assert not np.any(tape.gradient(nothing, made))


def test_the_distance_of_bands_is_that_of_librosas_mels() -> None:
    librosa = pytest.importorskip("librosa")
    rate, made = 16_000, (0.7 * np.roll(TONE, 40) + 0.01 * RANDOM.standard_normal(len(TONE))).astype(np.float32)
    distances = []
    for size, hop, length in RESOLUTIONS:
        bank = librosa.filters.mel(sr=rate, n_fft=size, n_mels={512: 21, 1024: 42, 2048: 85}[size])
        one, other = (
            np.log(np.maximum(np.abs(transform(each, size, hop, length)) @ bank.T, 1e-5)) for each in (TONE, made)
        )
        distances.append(np.abs(one - other).mean())
    ours = losses.band_distance(
        losses.spectra(made[None]), losses.spectra(TONE[None]), FeatureSettings(sample_rate=rate)
    )
    assert float(ours[0]) == pytest.approx(np.mean(distances), rel=1e-3)
