"""Tacotron 2 in an ONNX graph: the decoder is one `Loop`, whose step is that of `models.decoding`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from voxline.components.train.models.decoding import STOP_LOGIT
from voxline.components.train.onnx_graph import Graph, Name, recurrent, scale_and_shift, to_numpy

Array = Any
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Decoding(NamedTuple):
    """How a decoder runs: steps at most, frames of a step, the seed [2] of dropout, and 8 bits for LSTMs or not."""

    max_steps: int
    reduction: int
    noise: Sequence[int]
    int8: bool


def add_tacotron2(graph: Graph, model: Any, counts: Name, how: Decoding) -> tuple[Name, Name, Name, Name]:
    """`Tacotron2.synthesize`, of the graph's symbols.

    Returns:
      normalized mels [batch, t, mels], frames int64 [batch], alignments [batch, steps, symbols], hit_limit bool.
    """
    memory = _encode(graph, model, counts)
    frames, made, alignments, ended = _decode(graph, model.decoder, memory, counts, how)
    made = graph("Reshape", graph("Transpose", made, perm=[1, 0, 2]), np.array([0, -1, model.mels]))
    before = graph.mask(made, frames, 1, 3)
    mels = before
    for layer in model.postnet:
        mels = _convolution(graph, layer, mels, frames)
    if model.postnet:
        mels = graph("Add", before, mels)
    return mels, frames, graph("Transpose", alignments, perm=[1, 0, 2]), graph("Not", ended)


def _product(graph: Graph, value: Name, kernel: Array) -> Name:
    return str(graph("MatMul", value, kernel))


def _encode(graph: Graph, model: Any, counts: Name) -> Name:
    """Encoded text [batch, symbols, units], zero on padding."""
    values = graph.mask(graph("Gather", to_numpy(model.embedding.embeddings), "symbols"), counts, 1, 3)
    for layer in model.convolutions:
        values = _convolution(graph, layer, values, counts)
    if model.recurrent is not None:
        values = graph("Transpose", values, perm=[1, 0, 2])
        values = recurrent(graph, model.recurrent, values, "lengths")
        values = graph("Transpose", values, perm=[1, 0, 2])
    return graph.mask(values, counts, 1, 3)


def _convolution(graph: Graph, layer: Any, values: Name, counts: Name) -> Name:
    """A `ConvBatchNorm`, its normalization in the weights."""
    scale, shift = scale_and_shift(layer.norm)
    values = graph.convolution(values, to_numpy(layer.convolution.kernel) * scale, shift)
    activation = layer.activation.__name__
    if activation != "linear":
        values = graph({"relu": "Relu", "tanh": "Tanh"}[activation], values)
    return graph.mask(values, counts, 1, 3)


def _decode(graph: Graph, decoder: Any, memory: Name, counts: Name, how: Decoding) -> tuple[Name, Name, Name, Name]:
    """frames int64 [batch], projected frames [steps, batch, reduction · mels], weights [steps, batch, symbols], and
    which rows ended, bool [batch].
    """
    core, reduction = decoder.core, how.reduction
    wide = reduction * decoder.mels
    # The LSTMs' weights are read in each step, and that is its time.
    product = Graph.blockwise if how.int8 else _product
    projection, bias = (np.asarray(each) for each in decoder.projection(reduction))
    lstms = [each for each in (core.query_lstm, core.output_lstm) if each is not None]
    parts = [*(to_numpy(lstm.context) for lstm in lstms), projection[core.output_units :]]
    folded = graph("MatMul", memory, np.concatenate(parts, axis=1))
    widths = np.array([part.shape[1] for part in parts])
    attention = _Attention(graph, decoder.attention, memory, counts)
    masks = _prenet_masks(graph, decoder, how)
    rows, symbols = (graph("Shape", "symbols", start=axis, end=axis + 1) for axis in (0, 1))

    def zeros(*sizes: Name | int) -> Name:
        shape = graph("Concat", *(np.array([each]) if isinstance(each, int) else each for each in sizes), axis=0)
        return str(graph("Expand", np.float32(0), shape))

    rate = core.settings.zoneout
    none = zeros(rows, symbols)
    start = [
        (graph("Cast", zeros(rows), to=BOOL), BOOL),
        (graph("Cast", zeros(rows), to=INT64), INT64),
        *((zeros(rows, decoder.mels), FLOAT), (zeros(rows, int(widths[0])), FLOAT), (none, FLOAT), (none, FLOAT)),
        *[(zeros(rows, core.units), FLOAT)] * (2 * len(lstms)),
    ]

    def step(body: Graph, number: Name, states: Sequence[Name]) -> Any:
        ended, frames, own, context, previous, cumulative, *inner = states
        for index, (kernel, shift) in enumerate(decoder.prenet):
            own = body("Relu", body("Add", body("MatMul", own, to_numpy(kernel)), to_numpy(shift)))
            if masks:
                own = body("Mul", own, body("Gather", masks[index], number))
        output, after = _lstm(body, lstms[0], own, context, inner[:2], rate, product)
        now = attention.weigh(body, output, previous, cumulative)
        attended = body("MatMul", body("Unsqueeze", now, np.array([1])), folded)
        attended = body("Squeeze", attended, np.array([1]))
        context, *others = body("Split", attended, widths, axis=1, outputs=len(widths))
        if len(lstms) > 1:
            output, more = _lstm(body, lstms[1], output, others[0], inner[2:], rate, product)
            after += more
        new = body("Add", body("MatMul", output, projection[: core.output_units]), others[-1])
        made, logits = body("Split", body("Add", new, bias), np.array([wide, reduction]), axis=1, outputs=2)
        stops = body("Cast", body("Greater", logits, np.float32(STOP_LOGIT)), to=TensorProto.INT32)
        stopped = body("Cast", body("ReduceMax", stops, axes=[1], keepdims=0), to=BOOL)
        first = body("Add", body("ArgMax", stops, axis=1, keepdims=0), np.int64(1))
        real = body("Where", stopped, first, np.int64(reduction))
        frames = body("Add", frames, body("Where", ended, np.int64(0), real))
        ended = body("Or", ended, stopped)
        all_ended = body("ReduceMin", body("Cast", ended, to=TensorProto.INT32), keepdims=0)
        own = body("Slice", made, np.array([wide - decoder.mels]), np.array([wide]), np.array([1]))
        state = [ended, frames, own, context, now, body("Add", cumulative, now), *after]
        return body("Not", body("Cast", all_ended, to=BOOL)), state, [(made, FLOAT), (now, FLOAT)]

    ended, frames, *_, made, alignments = graph.loop(np.int64(how.max_steps), start, step)
    return frames, made, alignments, ended


def _prenet_masks(graph: Graph, decoder: Any, how: Decoding) -> list[Name]:
    """The pre-net's dropout at inference, float32 [steps, units] each; in the file a bit of it is a byte."""
    drawn = decoder.prenet_masks(1, how.max_steps, np.array(how.noise), False) or []
    found = []
    for one in drawn:
        values = to_numpy(one)[0]
        kept = graph("Cast", (values > 0).astype(np.uint8), to=FLOAT)
        found.append(graph("Mul", kept, np.float32(values.max())))
    return found


def _lstm(
    body: Graph,
    weights: Any,
    inputs: Name,
    context: Name,
    state: Sequence[Name],
    zoneout: float,
    product: Callable[[Graph, Name, Array], Name],
) -> tuple[Name, list[Name]]:
    """The output of one step, and the next state: output and cell; see `LSTMCore._advance`."""
    kernel = np.concatenate([to_numpy(weights.outer), to_numpy(weights.recurrent)])
    gates = product(body, body("Concat", inputs, state[0], axis=1), kernel)
    gates = body("Add", body("Add", gates, to_numpy(weights.bias)), context)
    units = int(weights.units)
    let, forget, out, new = body("Split", gates, np.full(4, units), axis=1, outputs=4)
    kept = body("Mul", body("Sigmoid", forget), state[1])
    cell = body("Add", kept, body("Mul", body("Sigmoid", let), body("Tanh", new)))
    output = body("Mul", body("Sigmoid", out), body("Tanh", cell))
    if zoneout:
        output, cell = (
            body("Add", body("Mul", made, np.float32(1 - zoneout)), body("Mul", before, np.float32(zoneout)))
            for made, before in zip((output, cell), state, strict=True)
        )
    return output, [output, cell]


class _Attention:
    """`LocationSensitiveAttention` with symbols last, [batch, units, symbols]: no step transposes."""

    def __init__(self, graph: Graph, layer: Any, memory: Name, counts: Name) -> None:
        self._layer, self._kernels = layer, layer.kernels()
        keys = graph("Add", graph("MatMul", memory, to_numpy(layer.key)), to_numpy(layer.bias))
        self._keys = graph.transpose(keys)
        self._real = graph.below(counts, graph.size("symbols", 1))

    def weigh(self, body: Graph, query: Name, previous: Name, cumulative: Name) -> Name:
        """Weights of one step, float32 [batch, symbols]; zero on padding."""
        asked = body("Unsqueeze", body("MatMul", query, to_numpy(self._layer.query)), np.array([2]))
        compared = body("Add", self._keys, asked)
        if self._kernels.location is not None:
            kernel = np.asarray(self._kernels.location, np.float32).transpose(2, 1, 0)
            channels = [previous, cumulative] if self._layer.location_channels == 2 else [cumulative]
            past = body("Concat", *(body("Unsqueeze", each, np.array([1])) for each in channels), axis=1)
            taps = kernel.shape[2]
            compared = body("Add", compared, body("Conv", past, kernel, pads=[(taps - 1) // 2, taps // 2]))
        energy = body("MatMul", to_numpy(self._layer.energy).T, body("Tanh", compared))
        energy = body("Squeeze", energy, np.array([1]))
        if not self._layer.settings.smoothing:
            return str(body("Softmax", body("Where", self._real, energy, np.float32(-1e9)), axis=-1))
        weights = body("Where", self._real, body("Sigmoid", energy), np.float32(0))
        total = body("ReduceSum", weights, np.array([1]), keepdims=1)
        return str(body("Div", weights, body("Add", total, np.float32(1e-9))))
