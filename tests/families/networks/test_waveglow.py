"""WaveGlow: against NumPy with the same weights, inverted, of the paper's size, and without its bias."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.closeness import assert_close, needs_bfloat16
from tests.families.networks.pytorch_oracle import numbered_weights, pytorch_outputs
from tests.families.networks.test_against_numpy import exact
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.vocoder.networks.settings import WaveGlowSettings
from voxline.families.vocoder.networks.waveglow import WaveGlow
from voxline.families.vocoder.settings import VocoderTrainSettings

Array = npt.NDArray[Any]
MELS, HOP = 5, 16
STATISTICS = {"mean": [0.3] * MELS, "deviation": [2.0] * MELS}
SMALL = WaveGlowSettings(flows=3, group=8, early_every=2, layers=3, channels=6, sampling_sigma=0.7)
RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def network() -> WaveGlow:
    """Random biases and last layers too, which begin at zero; the invertible matrices are close to rotations."""
    random = np.random.default_rng(3)
    network = WaveGlow(SMALL, hop=HOP, **STATISTICS)
    mixing = [id(flow.mixing) for flow in network.flows]
    for weight in network.weights:
        drawn = random.standard_normal(weight.shape)
        if id(weight) in mixing:
            weight.assign(rotation(drawn) + 0.1 * random.standard_normal(weight.shape))
        else:
            weight.assign(drawn * 0.5 / np.sqrt(max(np.prod(weight.shape[:-1]), 1)))
    return network


def rotation(drawn: Array) -> Array:
    """A rotation, determinant 1, from a random matrix."""
    orthogonal = np.linalg.qr(drawn)[0]
    orthogonal[0] *= np.sign(np.linalg.det(orthogonal))
    return orthogonal


def mels_and_waveforms(rows: int = 2, frames: int = 12, random: np.random.Generator = RANDOM) -> tuple[Array, Array]:
    mels = random.standard_normal((rows, frames, MELS)).astype(np.float32)
    return mels, (0.3 * random.standard_normal((rows, (frames - 1) * HOP))).astype(np.float32)


def dense(x: Array, layer: Any) -> Array:
    return x @ exact(layer.kernel) + exact(layer.bias)


def wavenet(x: Array, condition: Array, layer: Any, width: int) -> Array:
    """Of one row, [groups, channels]; NVIDIA's WN.forward, tap by tap."""
    x, skipped, conditions = dense(x, layer.first), 0.0, dense(condition, layer.condition)
    for index, (convolution, output) in enumerate(zip(layer.dilated, layer.outputs, strict=True)):
        spread, kernel = 2**index, exact(convolution.kernel)
        padded = np.pad(x, ((spread, spread), (0, 0)))
        gates = exact(convolution.bias) + sum(padded[tap * spread :][: len(x)] @ kernel[tap] for tap in range(3))
        gates = gates + conditions[:, 2 * width * index : 2 * width * (index + 1)]
        made = dense(np.tanh(gates[:, :width]) / (1 + np.exp(-gates[:, width:])), output)
        last = index == len(layer.dilated) - 1
        skipped = skipped + (made if last else made[:, width:])
        x = x if last else x + made[:, :width]
    return dense(skipped, layer.last)


def test_a_flow_equals_numpy_with_the_same_weights(network: WaveGlow) -> None:
    flow, groups = network.flows[2], 40
    channels, width = flow.channels, SMALL.channels
    x = RANDOM.standard_normal((groups, channels)).astype(np.float32)
    condition = RANDOM.standard_normal((groups, SMALL.group * MELS)).astype(np.float32)
    mixed = np.einsum("ij,gi->gj", exact(flow.mixing), x.astype(np.float64))
    same, changed = mixed[:, : channels // 2], mixed[:, channels // 2 :]
    found = wavenet(same, condition.astype(np.float64), flow.wavenet, width)
    shift, log_scale = found[:, : channels // 2], found[:, channels // 2 :]
    wanted = np.concatenate([same, np.exp(log_scale) * changed + shift], axis=1)
    determinant = log_scale.sum() + groups * np.log(abs(np.linalg.det(exact(flow.mixing))))
    made, compressed = flow.forward(x[None], condition[None])
    assert_close(made[0], wanted, relative_to_peak=1e-5)
    assert float(compressed[0]) == pytest.approx(determinant, rel=1e-4)
    assert_close(flow.backward(made, condition[None])[0], x, relative_to_peak=1e-5)


def in_order(network: WaveGlow) -> list[Array]:
    """The weights as NVIDIA's glow.py computes with them; its 1 × 1 convolutions have kernels."""
    found = list(network.upsample.weights)
    for flow in network.flows:
        net = flow.wavenet
        layers = [
            net.first,
            net.condition,
            *(part for pair in zip(net.dilated, net.outputs, strict=True) for part in pair),
        ]
        found += [flow.mixing, *(weight for layer in [*layers, net.last] for weight in (layer.kernel, layer.bias))]
    assert len(found) == len(network.weights)
    arrays = [exact(weight).astype(np.float32) for weight in found]
    dense = {id(layer.kernel) for flow in network.flows for layer in (
        flow.wavenet.first, flow.wavenet.condition, flow.wavenet.last, *flow.wavenet.outputs)}  # fmt: skip
    return [array[None] if id(weight) in dense else array for weight, array in zip(found, arrays, strict=True)]


def test_the_network_equals_pytorch_with_the_same_weights(network: WaveGlow, tmp_path: Path) -> None:
    """Noise, loss, the waveform of that noise, and what the denoiser leaves of a waveform."""
    random = np.random.default_rng(8)  # its own, so that the order of tests decides nothing
    mels, waveforms = mels_and_waveforms(2, 80, random)
    bias = np.abs(random.standard_normal(513)).astype(np.float32)
    sizes = (SMALL.group, SMALL.early_every, SMALL.early_size, SMALL.layers, SMALL.channels, HOP, SMALL.sigma)
    theirs = pytorch_outputs(
        "waveglow",
        {"waveglow": sizes, "denoised": (0.7,)},
        tmp_path,
        mels=((mels - 0.3) / 2).astype(np.float32),
        waveforms=waveforms,
        bias=bias,
        **numbered_weights("waveglow", in_order(network)),
    )
    noise, _ = network.to_noise(waveforms, mels)
    ours = [noise, network.negative_log_likelihood(waveforms, mels), network.from_noise(noise, mels)]
    for index, part in enumerate(ours):
        assert_close(part, theirs[f"waveglow/{index}"], relative_to_peak=1e-4)
    network._bias = bias
    clean = network.denoise(waveforms, strength=0.7).numpy()
    network._bias = None
    inner = slice(512, -512)  # torch.istft cuts the windows that reach beyond the ends
    assert_close(clean[:, inner], theirs["denoised/0"][:, inner], relative_to_peak=1e-5)
    assert np.abs(clean - waveforms).max() > 0.1


def test_mels_reach_the_samples_as_a_transposed_convolution_spreads_them(network: WaveGlow) -> None:
    mels, _ = mels_and_waveforms(1, 7)
    kernel, bias = exact(network.upsample.kernel), exact(network.upsample.bias)  # [taps, out, in]
    spread = np.zeros((7 * HOP + len(kernel), MELS)) + bias
    for frame, one in enumerate((mels[0].astype(np.float64) - 0.3) / 2):
        spread[frame * HOP : frame * HOP + len(kernel)] += np.einsum("toi,i->to", kernel, one)
    wanted = spread[: 6 * HOP].reshape(-1, SMALL.group * MELS)
    assert_close(network._condition(mels)[0], wanted, relative_to_peak=1e-5)


def test_noise_and_waveforms_are_inverses(network: WaveGlow) -> None:
    mels, waveforms = mels_and_waveforms()
    noise, _ = network.to_noise(waveforms, mels)
    assert noise.shape == (2, 11 * HOP // 8, 8)
    assert_close(network.from_noise(noise, mels), waveforms, relative_to_peak=1e-4)
    again, _ = network.to_noise(network.from_noise(noise, mels), mels)
    assert_close(again, noise, relative_to_peak=1e-5)


def test_the_determinant_is_that_of_the_jacobian(network: WaveGlow) -> None:
    """By finite differences, in two frames: 16 samples."""
    mels, waveforms = mels_and_waveforms(1, 2)
    step = 1e-2
    moved = waveforms + step * np.concatenate([np.eye(HOP), -np.eye(HOP)]).astype(np.float32)
    noise = network.to_noise(moved, np.repeat(mels, 2 * HOP, axis=0))[0].numpy().reshape(2 * HOP, HOP)
    jacobian = (noise[:HOP] - noise[HOP:]) / (2 * step)
    wanted = np.linalg.slogdet(jacobian.astype(np.float64))[1]
    assert float(network.to_noise(waveforms, mels)[1][0]) == pytest.approx(wanted, abs=0.02)


def test_the_loss_is_that_of_the_paper_and_speech_is_made_of_noise_of_its_sigma(network: WaveGlow) -> None:
    """Equation 12 of the paper, for each sample; and noise with the deviation `sampling_sigma`."""
    mels, waveforms = mels_and_waveforms()
    noise, determinant = (np.asarray(each, np.float64) for each in network.to_noise(waveforms, mels))
    for sigma in (1.0, 0.5):
        network.settings = SMALL.model_copy(update={"sigma": sigma})
        wanted = ((noise**2).sum(axis=(1, 2)) / (2 * sigma**2) - determinant) / waveforms.shape[1]
        np.testing.assert_allclose(network.negative_log_likelihood(waveforms, mels), wanted, rtol=1e-4)
    mels, _ = mels_and_waveforms(1, 400)
    network.settings, network._bias = SMALL, None
    drawn = np.asarray(network.to_noise(network(mels), mels)[0])
    assert drawn.std() == pytest.approx(SMALL.sampling_sigma, rel=0.05)


@pytest.mark.slow
@needs_bfloat16
def test_in_bfloat16_the_flows_stay_float32() -> None:
    """They invert as exactly as in float32, and speech and loss differ by what the WaveNets round."""
    mels, waveforms = mels_and_waveforms()
    made, losses = [], []
    for precision in ("float32", "mixed_bfloat16"):
        network = WaveGlow(SMALL, hop=HOP, **STATISTICS, precision=precision)
        random = np.random.default_rng(1)
        for flow in network.flows:
            flow.wavenet.last.kernel.assign(0.2 * random.standard_normal(flow.wavenet.last.kernel.shape))
        noise, _ = network.to_noise(waveforms, mels)
        assert_close(network.from_noise(noise, mels), waveforms, relative_to_peak=1e-5)
        made.append(network(mels).numpy())
        losses.append(network.negative_log_likelihood(waveforms, mels).numpy())
    assert made[1].dtype == np.float32
    np.testing.assert_allclose(made[1], made[0], atol=0.02)
    np.testing.assert_allclose(losses[1], losses[0], atol=0.01)


def test_a_row_of_a_padded_batch_gives_what_it_gives_alone(network: WaveGlow) -> None:
    network.turn_on_denoiser()
    mels, _ = mels_and_waveforms()
    together = network(mels, np.array([12, 7])).numpy()
    assert_close(together[0], network(mels).numpy()[0], relative_to_peak=1e-5)
    assert_close(together[1, : 6 * HOP], network(mels[1:, :7]).numpy()[0], relative_to_peak=1e-5)
    np.testing.assert_array_equal(network(mels).numpy(), network(mels).numpy())


def published_weights(channels: int, flows: int = 12, layers: int = 8, early: int = 4, hop: int = 256) -> int:
    """Of the authors' glow.py after weight normalization was removed, counted from its shapes, for 80 mels."""
    total, remaining = 80 * 80 * 4 * hop + 80, 8
    for flow in range(flows):
        remaining -= 2 if flow and flow % early == 0 else 0
        half = remaining // 2
        total += remaining * remaining
        total += half * channels + channels  # start
        total += 8 * 80 * 2 * channels * layers + 2 * channels * layers  # cond_layer
        total += layers * (3 * channels * 2 * channels + 2 * channels)  # in_layers
        total += (layers - 1) * (channels * 2 * channels + 2 * channels) + channels * channels + channels  # res_skip
        total += channels * 2 * half + 2 * half  # end
    return total


def test_the_weights_are_as_many_as_the_published_ones() -> None:
    """268 and 87.7 million. Ours are counted in a small network: those take a gigabyte."""
    assert [round(published_weights(channels) / 1e6, 1) for channels in (512, 256)] == [268.0, 87.7]
    small = WaveGlowSettings(channels=8, flows=5, layers=2, early_every=2)
    ours = WaveGlow(small, hop=16, mean=[0.0] * 80, deviation=[1.0] * 80)
    assert ours.count_params() == published_weights(8, flows=5, layers=2, early=2, hop=16)
    chosen = WaveGlowSettings()
    assert (chosen.channels, chosen.flows, chosen.layers, chosen.early_every, chosen.group) == (256, 12, 8, 4, 8)


def test_the_denoiser_takes_the_bias_away(network: WaveGlow) -> None:
    network._bias = None
    with pytest.raises(ValueError, match="turn_on_denoiser"):
        network.denoise(np.zeros((1, 64), np.float32))
    network.turn_on_denoiser()
    biased = network.biased_waveform().numpy()
    clean = network.denoise(biased, strength=1.0).numpy()
    middle = slice(biased.shape[1] // 4, -biased.shape[1] // 4)
    before, after = (np.sqrt(np.mean(wave[0, middle] ** 2)) for wave in (biased, clean))
    assert before > 1e-3
    assert 20 * np.log10(before / max(after, 1e-12)) >= 20
    loud = np.sin(np.arange(4096) / 9)[None].astype(np.float32)
    assert_close(network.denoise(loud, strength=0.0), loud, relative_to_peak=1e-5)


def test_what_does_not_suit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"early_size 2 after every 1 .* leave no channels"):
        WaveGlowSettings(early_every=1)
    with pytest.raises(SettingsError, match=r"train\.model\.group is 8 .*hop_seconds is 100 samples"):
        WaveGlowSettings().check_features(FeatureSettings(sample_rate=8_000, hop_seconds=0.0125))
    WaveGlowSettings().check_features(FeatureSettings(sample_rate=16_000, hop_seconds=0.0125))
    for setting in ({"loss": {"mel": 1}}, {"discriminators": {"start_step": 0}}):
        with pytest.raises(SettingsError, match=rf"{next(iter(setting))}.* waveglow"):
            VocoderTrainSettings.of({"model": {"kind": "waveglow"}, **setting})
