"""Each network recomputed in plain numpy from its weights, in float64, from the formulas of its paper.

A fault in a formula (a gate turned round, a layer without its activation) trains, and its loss falls.
`make mutations` puts such faults in and expects the tests to see them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.closeness import assert_close
from voxline.families.asr.networks.conformer import Conformer
from voxline.families.asr.networks.deepspeech import DeepSpeech
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.settings import (
    ConformerSettings,
    ConvolutionSettings,
    DeepSpeech2Settings,
    DeepSpeechSettings,
)
from voxline.families.tts.networks.settings import AttentionSettings, Tacotron2Settings, TacotronSettings
from voxline.families.tts.networks.tacotron import Tacotron
from voxline.families.tts.networks.tacotron2 import LSTMCore, Tacotron2

Array = npt.NDArray[np.float64]
MELS, LINEAR, SYMBOLS, BINS = 6, 9, 4, 12
LABELS, COUNTS = np.array([[1, 2, 4, 0]], np.int32), np.array([SYMBOLS], np.int32)
ATTENTION = AttentionSettings(units=6, location_filters=3, location_kernel=5)
TACOTRON2 = Tacotron2Settings(
    reduction=2,
    embedding=7,
    encoder_channels=8,
    encoder_lstm=4,
    prenet=(9, 5),
    decoder_units=10,
    postnet_layers=3,
    postnet_channels=7,
    zoneout=0.1,
    decoder_dropout=0.0,
    attention=ATTENTION,
)
TACOTRON = TacotronSettings(
    reduction=3,
    embedding=7,
    prenet=(9, 6),
    encoder_bank=4,
    encoder_channels=8,
    encoder_gru=4,
    highways=2,
    decoder_units=10,
    postnet_bank=3,
    postnet_channels=8,
    postnet_projection=5,
    postnet_gru=0,  # the encoder has one
    attention=ATTENTION.model_copy(update={"location": "cumulative"}),
)


def with_random_weights(model: Any, **scales: float) -> Any:
    """The model with every weight drawn, moving statistics and biases too, which begin at a value that hides them."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        scale = next((value for part, value in scales.items() if part in weight.path), 0.4)
        drawn = scale * random.standard_normal(weight.shape)
        weight.assign(np.abs(drawn) + 0.5 if "variance" in weight.path else drawn)
    return model


def exact(value: Any) -> Array:
    """A weight or tensor in float64."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value).astype(np.float64)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max())
    return powers / powers.sum()


def dense(x: Array, layer: Any) -> Array:
    result: Array = x @ exact(layer.kernel) + exact(layer.bias)
    return result


def batch_norm(x: Array, norm: Any) -> Array:
    scaled = (x - exact(norm.moving_mean)) / np.sqrt(exact(norm.moving_variance) + norm.epsilon)
    return scaled * exact(norm.gamma) + exact(norm.beta)


def convolve(x: Array, kernel: Array) -> Array:
    """[time, inputs] with a kernel [taps, inputs, outputs], centred."""
    taps, left = len(kernel), (len(kernel) - 1) // 2
    padded = np.pad(x, ((left, taps - 1 - left), (0, 0)))
    return np.stack([sum(padded[t + tap] @ kernel[tap] for tap in range(taps)) for t in range(len(x))])


def convolve_2d(x: Array, kernel: Array, stride: tuple[int, int]) -> Array:
    """[frames, bins, inputs] with a kernel [taps, taps, inputs, outputs]; output i is centred on input i · stride."""
    high, wide = kernel.shape[:2]
    padded = np.pad(x, (((high - 1) // 2, high // 2), ((wide - 1) // 2, wide // 2), (0, 0)))
    rows = range(0, len(padded) - high + 1, stride[0])
    columns = range(0, padded.shape[1] - wide + 1, stride[1])
    return np.array([[np.tensordot(padded[t : t + high, f : f + wide], kernel, 3) for f in columns] for t in rows])


def gru(x: Array, layer: Any) -> Array:
    """Cho et al. 2014, with the reset gate after the matrix, as in cuDNN."""
    kernel, recurrent, (outer, inner) = (exact(weight) for weight in layer.cell.weights)
    units, made = len(recurrent), []
    state = np.zeros(units)
    for given in x @ kernel + outer:
        state = gru_step(given, state @ recurrent + inner, state, reset_first=False)
        made.append(state)
    return np.array(made)


def gru_step(given: Array, known: Array, state: Array, *, reset_first: bool) -> Array:
    units = len(state)
    one, two = sigmoid(given[:units] + known[:units]), sigmoid((given + known)[units : 2 * units])
    reset, update = (one, two) if reset_first else (two, one)
    return update * state + (1 - update) * np.tanh(given[2 * units :] + reset * known[2 * units :])


def lstm(x: Array, layer: Any) -> Array:
    kernel, recurrent, bias = (exact(weight) for weight in layer.cell.weights)
    state = cell = np.zeros(len(recurrent))
    made = []
    for given in x @ kernel + bias:
        into, forget, new, out = np.split(given + state @ recurrent, 4)
        cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
        state = sigmoid(out) * np.tanh(cell)
        made.append(state)
    return np.array(made)


def simple(x: Array, layer: Any, activation: Any = np.tanh) -> Array:
    kernel, recurrent, bias = (exact(weight) for weight in layer.cell.weights)
    state, made = np.zeros(len(recurrent)), []
    for given in x @ kernel + bias:
        state = activation(given + state @ recurrent)
        made.append(state)
    return np.array(made)


def both_ways(step: Any, x: Array, layer: Any) -> list[Array]:
    return [step(x, layer.forward_layer), step(x[::-1], layer.backward_layer)[::-1]]


def clipped_relu(x: Array, layer: Any) -> Array:
    return simple(x, layer, lambda value: np.clip(value, 0, 20))


RECURRENT: list[tuple[Any, dict[str, Any]]] = [
    (gru, {"rnn": "gru", "layers": 2, "directions": "concatenated"}),
    (lstm, {"rnn": "lstm", "directions": "forward", "lookahead": 2}),
    (simple, {"rnn": "simple"}),
    (clipped_relu, {"rnn": "simple", "directions": "summed", "rnn_activation": "clipped_relu"}),
]


@pytest.mark.parametrize(("recurrent", "form"), RECURRENT)
def test_deep_speech_2(recurrent: Any, form: dict[str, Any]) -> None:
    first = ConvolutionSettings(channels=3, kernel=(5, 3), stride=(2, 2))
    second = ConvolutionSettings(channels=2, kernel=(3, 5), stride=(1, 2))
    settings = DeepSpeech2Settings.of(
        {
            "layers": 1,
            **form,
            "convolutions": [first.plain(), second.plain()],
            "padding": 1,
            "units": 4,
            "rnn_batch_norm": True,
        }
    )
    model = with_random_weights(DeepSpeech2(settings, mean=[0.5] * BINS, deviation=[2.0] * BINS, classes=6), gamma=6.0)
    features = 30 * np.random.default_rng(1).standard_normal((1, 9, BINS)).astype(np.float32)
    x = np.pad((exact(features[0]) - 0.5) / 2, ((1, 1), (0, 0)))[..., None]
    for block in model.convolutions:
        x = batch_norm(convolve_2d(x, exact(block.convolution.kernel), block.settings.stride), block.norm)
        x = np.clip(x, 0, 20)
    assert (x == 20).any()  # else the ceiling would not be tested
    x = x.reshape(len(x), -1)
    for norm, layer in zip(model.norms, model.recurrent, strict=True):
        x = x if norm is None else batch_norm(x, norm)
        if settings.directions == "forward":
            x = recurrent(x, layer)
        else:
            ways = both_ways(recurrent, x, layer)
            x = ways[0] + ways[1] if settings.directions == "summed" else np.concatenate(ways, -1)
    if settings.lookahead:  # section 3.7, equation 10: of each unit, a weighted sum of this frame and later ones
        weights, ahead = exact(model.row_convolution.kernel)[..., 0], np.pad(x, ((0, settings.lookahead), (0, 0)))
        x = sum(weights[step] * ahead[step : step + len(x)] for step in range(settings.lookahead + 1))
    logits, frames = model(features, np.array([9]))
    assert frames.numpy().tolist() == [len(x)]
    assert_close(logits[0], dense(batch_norm(x, model.output_norm), model.classifier), relative_to_peak=1e-5)


def test_deepspeech() -> None:
    """Hannun et al. 2014, section 2, with Mozilla's LSTM: h1 sees 2 · 2 + 1 frames."""
    settings = DeepSpeechSettings(context=2, units=4, padding=3)
    model = with_random_weights(DeepSpeech(settings, mean=[0.5] * BINS, deviation=[2.0] * BINS, classes=6), kernel=2.0)
    features = 30 * np.random.default_rng(1).standard_normal((1, 9, BINS)).astype(np.float32)
    padded = np.pad((exact(features[0]) - 0.5) / 2, ((3 + 2, 3 + 2), (0, 0)))
    x = np.stack([padded[t : t + 5].ravel() for t in range(9 + 2 * 3)])
    window, *before = model.before
    heights = [x @ exact(window.kernel).reshape(-1, 4) + exact(window.bias)]
    for layer in before:
        heights.append(dense(np.clip(heights[-1], 0, 20), layer))
    x = lstm(np.clip(heights[-1], 0, 20), model.recurrent)
    heights.append(20 * dense(x, model.after))
    model.after.kernel.assign(20 * exact(model.after.kernel))
    model.after.bias.assign(20 * exact(model.after.bias))
    assert all((height < 0).any() and (height > 20).any() for height in heights)  # both limits act
    logits, frames = model(features, np.array([9]))
    assert frames.numpy().tolist() == [9 + 2 * 3]
    expected = dense(np.clip(heights[-1], 0, 20), model.classifier)
    assert_close(logits[0], expected, relative_to_peak=0.001)  # logits up to 36, from inputs up to 45


def layer_norm(x: Array, layer: Any) -> Array:
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.epsilon)
    return scaled * exact(layer.gamma) + exact(layer.beta)


def swish(x: Array) -> Array:
    return x * sigmoid(x)


def self_attention(x: Array, block: Any, heads: int) -> Array:
    """Vaswani et al. 2017; pairs of values are complex numbers that turn with their position (Su et al. 2021)."""
    size, made = x.shape[1] // heads, []
    queries, keys, values = np.split(dense(x, block.query_key_value), 3, axis=-1)
    turns = np.exp(1j * np.arange(len(x))[:, None] * 10_000.0 ** -(np.arange(size // 2) / (size // 2)))
    for head in range(heads):
        query, key, value = (part[:, head * size : (head + 1) * size] for part in (queries, keys, values))
        query, key = ((part[:, : size // 2] + 1j * part[:, size // 2 :]) * turns for part in (query, key))
        scores = (query @ key.conj().T).real / np.sqrt(size)
        made.append(np.stack([softmax(row) for row in scores]) @ value)
    return dense(np.concatenate(made, -1), block.attended)


def test_conformer() -> None:
    """Gulati et al. 2020, equation 1 and figures 2 to 4."""
    settings = ConformerSettings(subsampling=4, layers=2, units=8, heads=2, feed_forward=3, kernel=5, padding=1)
    model = with_random_weights(Conformer(settings, mean=[0.5] * BINS, deviation=[2.0] * BINS, classes=6))
    features = 3 * np.random.default_rng(1).standard_normal((1, 26, BINS)).astype(np.float32)
    x = np.pad((exact(features[0]) - 0.5) / 2, ((1, 1), (0, 0)))[..., None]
    for layer in model.subsampling:
        x = relu(convolve_2d(x, exact(layer.kernel), (2, 2)) + exact(layer.bias))
    x = dense(x.reshape(len(x), -1), model.projection)
    for block in model.blocks:
        norm, wide, narrow = block.first
        x = x + 0.5 * dense(swish(dense(layer_norm(x, norm), wide)), narrow)
        x = x + self_attention(layer_norm(x, block.attention_norm), block, heads=2)
        y, gate = np.split(dense(layer_norm(x, block.convolution_input_norm), block.gated), 2, axis=-1)
        kernel = exact(block.convolution.kernel)[..., 0]
        padded = np.pad(y * sigmoid(gate), ((2, 2), (0, 0)))
        y = sum(kernel[tap] * padded[tap : tap + len(x)] for tap in range(5))
        x = x + dense(swish(batch_norm(y, block.convolution_norm)), block.convolved)
        norm, wide, narrow = block.second
        x = layer_norm(x + 0.5 * dense(swish(dense(layer_norm(x, norm), wide)), narrow), block.output_norm)
    logits, frames = model(features, np.array([26]))
    assert frames.numpy().tolist() == [len(x)] == [7]
    assert_close(logits[0], dense(x, model.classifier), relative_to_peak=1e-5)


def attend(attention: Any, query: Array, keys: Array, previous: Array, cumulative: Array) -> Array:
    """Location-sensitive attention (Chorowski et al. 2015, equations 8 and 9; smoothing: equation 11)."""
    settings = attention.settings
    heard = [previous, cumulative] if settings.location == "previous_and_cumulative" else [cumulative]
    location = convolve(np.stack(heard, -1), exact(attention.filters)) @ exact(attention.location)
    compared = keys + query @ exact(attention.query) + location + exact(attention.bias)
    energy = (np.tanh(compared) @ exact(attention.energy))[:, 0]
    return sigmoid(energy) / sigmoid(energy).sum() if settings.smoothing else softmax(energy)


def lstm_with_zoneout(gates: Any, inputs: Array, context: Array, state: tuple[Array, Array], rate: float) -> Any:
    """At inference zoneout is its expectation (Krueger et al. 2017)."""
    output, cell = state
    given = inputs @ exact(gates.outer) + context @ exact(gates.context) + exact(gates.bias)
    into, forget, out, new = np.split(given + output @ exact(gates.recurrent), 4)
    moved = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
    new_output = sigmoid(out) * np.tanh(moved)
    return (1 - rate) * new_output + rate * output, (1 - rate) * moved + rate * cell


SMALLEST = {"encoder_lstm": 0, "decoder_layers": 1, "postnet_layers": 0, "zoneout": 0.0}
SMOOTH = ATTENTION.model_copy(update={"smoothing": True})


@pytest.mark.parametrize("changes", [{}, {**SMALLEST, "attention": SMOOTH}], ids=["whole", "smallest"])
def test_tacotron_2(changes: dict[str, Any]) -> None:
    settings = TACOTRON2.model_copy(update=changes)
    unchanged: dict[str, Any] = {"mean": [0.0] * MELS, "deviation": [1.0] * MELS}
    model = with_random_weights(Tacotron2(settings, symbols=5, bins=MELS, mels=MELS, **unchanged))
    frames = 8
    mels = np.random.default_rng(1).standard_normal((1, frames, MELS)).astype(np.float32)
    x = exact(model.embedding.embeddings)[LABELS[0]]
    for layer in model.convolutions:
        x = relu(batch_norm(convolve(x, exact(layer.convolution.kernel)), layer.norm))
    memory = x if model.recurrent is None else np.concatenate(both_ways(lstm, x, model.recurrent), -1)

    decoder = model.decoder
    core, attention, rate = decoder.core, decoder.attention, settings.zoneout
    fed = np.concatenate([np.zeros((1, MELS)), exact(mels[0])[1::2][:-1]])
    first = second = (np.zeros(10), np.zeros(10))
    context, previous, cumulative = np.zeros(memory.shape[1]), np.zeros(SYMBOLS), np.zeros(SYMBOLS)
    made, stops, alignment = [], [], []
    for frame in fed:
        x = frame
        for kernel, bias in decoder.prenet:
            x = relu(x @ exact(kernel) + exact(bias))
        first = lstm_with_zoneout(core.query_lstm, x, context, first, rate)
        keys = memory @ exact(attention.key)
        previous = attend(attention, first[0], keys, previous, cumulative)
        cumulative, context = cumulative + previous, previous @ memory
        output = first[0]
        if core.output_lstm is not None:
            second = lstm_with_zoneout(core.output_lstm, output, context, second, rate)
            output = second[0]
        joined = np.concatenate([output, context])
        alignment.append(previous)
        made.append((joined @ exact(decoder.frame_kernel) + exact(decoder.frame_bias)).reshape(2, MELS))
        stops.append(joined @ exact(decoder.stop_kernel) + exact(decoder.stop_bias))
    before = after = np.concatenate(made)
    for index, layer in enumerate(model.postnet):
        after = batch_norm(convolve(after, exact(layer.convolution.kernel)), layer.norm)
        after = np.tanh(after) if index < len(model.postnet) - 1 else after
    output = model(LABELS, COUNTS, mels, np.array([frames]))
    assert_close(output.alignment[0], alignment, relative_to_peak=1e-5)
    assert_close(output.before[0], before, relative_to_peak=1e-5)
    assert_close(output.stop[0], np.concatenate(stops), relative_to_peak=1e-5)
    assert_close(output.mels[0], before + after if model.postnet else before, relative_to_peak=1e-5)


def test_zoneout_and_dropout_in_training_follow_their_masks() -> None:
    """Where the mask is 0 a state keeps its value; outputs of dropped units are 0, and the others are scaled."""
    core = LSTMCore(TACOTRON2.model_copy(update={"decoder_units": 3, "decoder_dropout": 0.5}), 2, seed=1)
    random = np.random.default_rng(0)
    gates, *states = (random.standard_normal((1, size)).astype(np.float32) for size in (12, 3, 3))
    state_mask, cell_mask, passed = np.array([1, 0, 1]), np.array([0, 0, 1]), np.array([2, 2, 0])
    into, forget, out, new = np.split(exact(gates[0]), 4)
    cell = sigmoid(forget) * exact(states[1][0]) + sigmoid(into) * np.tanh(new)
    output = np.where(state_mask, sigmoid(out) * np.tanh(cell), states[0][0]) * passed
    mask = np.concatenate([state_mask, cell_mask, passed])[None].astype(np.float32)
    heard, (kept, kept_cell) = core._advance(gates, tuple(states), mask)
    assert_close(heard[0], output, relative_to_peak=1e-6)
    assert_close(kept[0], output, relative_to_peak=1e-6)
    assert_close(kept_cell[0], np.where(cell_mask, cell, states[1][0]), relative_to_peak=1e-6)
    drawn = [mask.numpy() for mask in core.perturb(40, 50, np.array([1, 2], np.int32))]
    for made in drawn:
        assert made[..., :6].mean() == pytest.approx(1 - TACOTRON2.zoneout, abs=0.02)
        assert set(np.unique(made[..., 6:])) == {0, 2}
    assert not np.array_equal(*drawn)


def cbhg(x: Array, block: Any) -> Array:
    """Wang et al. 2017, section 3.1 and figure 2; beyond the last place the pooling sees zero."""
    banks = [batch_norm(relu(convolve(x, exact(one.convolution.kernel))), one.norm) for one in block.bank]
    y = np.concatenate(banks, -1)
    y = np.maximum(y, np.concatenate([y[1:], np.zeros((1, y.shape[1]))]))
    narrow, back = block.projections
    y = batch_norm(relu(convolve(y, exact(narrow.convolution.kernel))), narrow.norm)
    y = x + batch_norm(convolve(y, exact(back.convolution.kernel)), back.norm)
    y = y if block.widen is None else dense(y, block.widen)
    for through, gate in block.highways:
        opened = sigmoid(dense(y, gate))
        y = relu(dense(y, through)) * opened + y * (1 - opened)
    return y if block.recurrent is None else np.concatenate(both_ways(gru, y, block.recurrent), -1)


def test_tacotron() -> None:
    bins, frames = MELS + LINEAR, 9
    model = with_random_weights(
        Tacotron(TACOTRON, symbols=5, bins=bins, mels=MELS, mean=[0.0] * bins, deviation=[1.0] * bins)
    )
    features = np.random.default_rng(1).standard_normal((1, frames, bins)).astype(np.float32)
    x = exact(model.embedding.embeddings)[LABELS[0]]
    for layer in model.prenet:
        x = relu(dense(x, layer))
    memory = cbhg(x, model.encoder)

    decoder = model.decoder
    core, attention = decoder.core, decoder.attention
    fed = np.concatenate([np.zeros((1, MELS)), exact(features[0])[2::3, :MELS][:-1]])
    states, context, cumulative = [np.zeros(10), np.zeros(10)], np.zeros(8), np.zeros(SYMBOLS)
    made, stops, alignment = [], [], []
    for frame in fed:
        x = frame
        for kernel, bias in decoder.prenet:
            x = relu(x @ exact(kernel) + exact(bias))
        x = x @ exact(core.outer) + context @ exact(core.context) + exact(core.bias)
        for index, (kernel, recurrent, biases) in enumerate(core.grus):
            outer, inner = exact(biases)
            given, known = x @ exact(kernel) + outer, states[index] @ exact(recurrent) + inner
            states[index] = gru_step(given, known, states[index], reset_first=True)
            x = x + states[index]
        weights = attend(attention, x, memory @ exact(attention.key), np.zeros(SYMBOLS), cumulative)
        cumulative, context = cumulative + weights, weights @ memory
        joined = np.concatenate([x, context])
        alignment.append(weights)
        made.append((joined @ exact(decoder.frame_kernel) + exact(decoder.frame_bias)).reshape(3, MELS))
        stops.append(joined @ exact(decoder.stop_kernel) + exact(decoder.stop_bias))
    before = np.concatenate(made)
    output = model(LABELS, COUNTS, features, np.array([frames]))
    assert_close(output.alignment[0], alignment, relative_to_peak=1e-5)
    assert_close(output.before[0], before, relative_to_peak=1e-5)
    assert_close(output.stop[0], np.concatenate(stops), relative_to_peak=1e-5)
    assert_close(output.linear[0], dense(cbhg(before, model.postnet), model.spectrum), relative_to_peak=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_dropped_frames_are_the_mean(share: float) -> None:
    """With a share of 1 the decoder hears the mean, which is zero, and nothing of the recording."""
    plain = {**SMALLEST, "prenet_dropout": 0.0, "encoder_dropout": 0.0, "dropped_frames": share}
    unchanged: dict[str, Any] = {"mean": [0.0] * MELS, "deviation": [1.0] * MELS}
    model = Tacotron2(TACOTRON2.model_copy(update=plain), symbols=5, bins=MELS, mels=MELS, **unchanged)
    mels = np.random.default_rng(1).standard_normal((1, 16, MELS)).astype(np.float32)
    heard, silent = (
        model(LABELS, COUNTS, fed, np.array([16]), training=True, noise=np.array([1, 2], np.int32)).before.numpy()
        for fed in (mels, np.zeros_like(mels))
    )
    assert np.array_equal(heard, silent) == (share == 1.0)
    recorded = model(LABELS, COUNTS, mels, np.array([16]), training=True, noise=None).before.numpy()
    assert not np.array_equal(heard, recorded)
