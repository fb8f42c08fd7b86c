"""Tacotron 2 in an ONNX graph: the decoder is one `Loop`, whose step is that of `models.decoding`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from onnx import TensorProto

from voxline.families.tts.networks.decoding import STOP_LOGIT
from voxline.training.onnx_graph import Graph, Name, recurrent, scale_and_shift, to_numpy

Array = Any
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Precision = Literal["float32", "int8"]


class Decoding(NamedTuple):
    """How a decoder runs: steps at most, frames of a step, and the seed [2] of dropout.

    With int8, the LSTMs and the convolutions have weights of 8 bits.
    """

    max_steps: int
    reduction: int
    noise: Sequence[int]
    precision: Precision


def add_tacotron2(graph: Graph, model: Any, counts: Name, how: Decoding) -> tuple[Name, Name, Name, Name]:
    """`Tacotron2.synthesize`, of the graph's symbols.

    Returns:
      normalized mels [batch, t, mels], frames int64 [batch], alignments [batch, steps, symbols], hit_limit bool.
    """
    convolve = Graph.convolution if how.precision == "float32" else Graph.integer_convolution
    memory = _encode(graph, model, counts, convolve)
    frames, made, alignments, ended = _decode(graph, model.decoder, memory, counts, how)
    before = graph.mask(made, frames, 1, 3)
    mels = before
    for layer in model.postnet:
        mels = _convolution(graph, layer, mels, frames, convolve)
    if model.postnet:
        mels = graph("Add", before, mels)
    return mels, frames, alignments, graph("Not", ended)


def _encode(graph: Graph, model: Any, counts: Name, convolve: Callable[..., Name]) -> Name:
    """Encoded text [batch, symbols, units], zero on padding."""
    values = graph.mask(graph("Gather", to_numpy(model.embedding.embeddings), "symbols"), counts, 1, 3)
    for layer in model.convolutions:
        values = _convolution(graph, layer, values, counts, convolve)
    if model.recurrent is not None:
        values = graph("Transpose", values, perm=[1, 0, 2])
        values = recurrent(graph, model.recurrent, values, "lengths")
        values = graph("Transpose", values, perm=[1, 0, 2])
    return graph.mask(values, counts, 1, 3)


def _convolution(graph: Graph, layer: Any, values: Name, counts: Name, convolve: Callable[..., Name]) -> Name:
    """A `ConvBatchNorm`, its normalization in the weights."""
    scale, shift = scale_and_shift(layer.norm)
    values = convolve(graph, values, to_numpy(layer.convolution.kernel) * scale, shift)
    activation = layer.activation.__name__
    if activation != "linear":
        values = graph({"relu": "Relu", "tanh": "Tanh"}[activation], values)
    return graph.mask(values, counts, 1, 3)


def _decode(graph: Graph, decoder: Any, memory: Name, counts: Name, how: Decoding) -> tuple[Name, Name, Name, Name]:
    """frames int64 [batch], projected frames [batch, t, mels], weights [batch, steps, symbols], and which rows ended,
    bool [batch].
    """
    core, reduction = decoder.core, how.reduction
    wide = reduction * decoder.mels
    lstms = [each for each in (core.query_lstm, core.output_lstm) if each is not None]
    layers = [_Layer(lstm, core.settings.zoneout) for lstm in lstms]
    projection, bias = (np.asarray(each) for each in decoder.projection(reduction))
    read: _Folded | _Whole
    if how.precision == "float32":
        read = _Folded(graph, memory, layers, projection, core.output_units)
    else:
        read = _Whole(memory, layers, projection)
    attention = _Attention(graph, decoder.attention, memory, counts)
    masks = _prenet_masks(graph, decoder, how)
    rows, symbols = (graph("Shape", "symbols", start=axis, end=axis + 1) for axis in (0, 1))

    def filled(value: float, *sizes: Name | int) -> Name:
        shape = graph("Concat", *(np.array([each]) if isinstance(each, int) else each for each in sizes), axis=0)
        return str(graph("Expand", np.float32(value), shape))

    none = filled(0, rows, 1, symbols)
    start = [
        filled(-np.inf, rows),
        *(filled(0, rows, decoder.mels), filled(0, rows, read.width), none, none),
        *[filled(0, rows, core.units)] * (2 * len(lstms)),
    ]

    def step(body: Graph, number: Name, states: Sequence[Name]) -> Any:
        highest, own, context, previous, cumulative, *inner = states
        for index, (kernel, shift) in enumerate(decoder.prenet):
            own = body("Relu", _multiply(body, own, to_numpy(kernel), to_numpy(shift)))
            if masks:
                own = body("Mul", own, body("Gather", masks[index], number))
        output, after = read.advance(body, 0, own, context, inner[:2])
        now = attention.weigh(body, output, previous, cumulative)
        context, *others = read.attend(body, now)
        if len(lstms) > 1:
            output, more = read.advance(body, 1, output, others[0], inner[2:])
            after += more
        made = read.project(body, output, others[-1], bias)
        sizes = np.array([wide - decoder.mels, decoder.mels, reduction])
        *_, own, stops = body("Split", made, sizes if reduction > 1 else sizes[1:], axis=1, outputs=2 + (reduction > 1))
        highest = body("Max", highest, body("ReduceMax", stops, axes=[1], keepdims=0))
        lowest = body("ReduceMin", highest, keepdims=0)  # of rows
        state = [highest, own, context, now, body("Add", cumulative, now), *after]
        return body("LessOrEqual", lowest, np.float32(STOP_LOGIT)), state, [made, now]

    states = [(each, FLOAT) for each in start]

    def typed(body: Graph, number: Name, given: Sequence[Name]) -> Any:
        on, state, collected = step(body, number, given)
        return on, state, [(each, FLOAT) for each in collected]

    highest, *_, made, alignments = graph.loop(np.int64(how.max_steps), states, typed)
    made = graph("Transpose", made, perm=[1, 0, 2])
    made, stops = graph("Split", made, np.array([wide, reduction]), axis=2, outputs=2)
    made = graph("Reshape", made, np.array([0, -1, decoder.mels]))
    alignments = graph("Squeeze", graph("Transpose", alignments, perm=[1, 0, 2, 3]), np.array([2]))
    ended = graph("Greater", highest, np.float32(STOP_LOGIT))
    stops = graph("Greater", graph("Reshape", stops, np.array([0, -1])), np.float32(STOP_LOGIT))
    first = graph("Add", graph("ArgMax", graph("Cast", stops, to=INT64), axis=1, keepdims=0), np.int64(1))
    return graph("Where", ended, first, graph.size(made, 1)), made, alignments, ended


def _prenet_masks(graph: Graph, decoder: Any, how: Decoding) -> list[Name]:
    """The pre-net's dropout at inference, float32 [steps, units] each; in the file a bit of it is a byte."""
    drawn = decoder.prenet_masks(1, how.max_steps, np.array(how.noise), False) or []
    found = []
    for one in drawn:
        values = to_numpy(one)[0]
        kept = graph("Cast", (values > 0).astype(np.uint8), to=FLOAT)
        found.append(graph("Mul", kept, np.float32(values.max())))
    return found


def _multiply(body: Graph, value: Name, kernel: Array, bias: Array | None) -> Name:
    return str(body("MatMul", value, kernel) if bias is None else body("Gemm", value, kernel, bias))


class _Layer:
    """The weights of an LSTM; see `LSTMCore._advance`."""

    def __init__(self, weights: Any, zoneout: float) -> None:
        self.kernel = np.concatenate([to_numpy(weights.outer), to_numpy(weights.recurrent)])
        self.context, self.bias = to_numpy(weights.context), to_numpy(weights.bias)
        self.units, self.zoneout = int(weights.units), zoneout

    def advance(self, body: Graph, gates: Name, state: Sequence[Name]) -> tuple[Name, list[Name]]:
        """The output of one step, and the next state: output and cell."""
        opened, new = body("Split", gates, np.array([3 * self.units, self.units]), axis=1, outputs=2)
        let, forget, out = body("Split", body("Sigmoid", opened), np.full(3, self.units), axis=1, outputs=3)
        cell = body("Add", body("Mul", forget, state[1]), body("Mul", let, body("Tanh", new)))
        output = body("Mul", out, body("Tanh", cell))
        if rate := self.zoneout:
            output, cell = (
                body(
                    "Add",
                    body("Mul", made, np.float32(1 - rate)),
                    body("Mul", before, np.float32(rate)),
                )
                for made, before in zip((output, cell), state, strict=True)
            )
        return output, [output, cell]


class _Folded:
    """How a decoder of float32 reads: the encoded text is multiplied by the matrices of the context once.

    Attributes:
      width: of a context.
    """

    def __init__(
        self, graph: Graph, memory: Name, layers: Sequence[_Layer], projection: Array, output_units: int
    ) -> None:
        self._layers, self._projection = layers, projection[:output_units]
        parts = [*(each.context for each in layers), projection[output_units:]]
        self._widths = np.array([part.shape[1] for part in parts])
        self._memory = graph("MatMul", memory, np.concatenate(parts, axis=1))
        self.width = int(self._widths[0])

    def attend(self, body: Graph, weights: Name) -> list[Name]:
        """Of weights [batch, 1, symbols]: contexts for each layer and for the projection."""
        attended = body("Squeeze", body("MatMul", weights, self._memory), np.array([1]))
        return list(body("Split", attended, self._widths, axis=1, outputs=len(self._widths)))

    def advance(
        self, body: Graph, index: int, inputs: Name, context: Name, state: Sequence[Name]
    ) -> tuple[Name, list[Name]]:
        layer = self._layers[index]
        gates = body("MatMul", body("Concat", inputs, state[0], axis=1), layer.kernel)
        return layer.advance(body, body("Add", body("Add", gates, layer.bias), context), state)

    def project(self, body: Graph, output: Name, context: Name, bias: Array) -> Name:
        return str(body("Add", body("Gemm", output, self._projection, bias), context))


class _Whole:
    """How a decoder of integers reads: a text's folded matrices would be larger than those that they replace.

    See `_Folded`.
    """

    def __init__(self, memory: Name, layers: Sequence[_Layer], projection: Array) -> None:
        self._memory, self._layers, self._projection = memory, layers, projection
        self.width = len(layers[0].context)

    def attend(self, body: Graph, weights: Name) -> list[Name]:
        return [body("Squeeze", body("MatMul", weights, self._memory), np.array([1]))] * (len(self._layers) + 1)

    def advance(
        self, body: Graph, index: int, inputs: Name, context: Name, state: Sequence[Name]
    ) -> tuple[Name, list[Name]]:
        layer = self._layers[index]
        kernel = np.concatenate([layer.kernel, layer.context])
        gates = Graph.rowwise(body, body("Concat", inputs, state[0], context, axis=1), kernel, layer.bias)
        return layer.advance(body, gates, state)

    def project(self, body: Graph, output: Name, context: Name, bias: Array) -> Name:
        return _multiply(body, body("Concat", output, context, axis=1), self._projection, bias)


class _Attention:
    """`LocationSensitiveAttention` with symbols last, [batch, units, symbols]: no step transposes."""

    def __init__(self, graph: Graph, layer: Any, memory: Name, counts: Name) -> None:
        self._layer, self._kernels = layer, layer.kernels()
        keys = graph("Add", graph("MatMul", memory, to_numpy(layer.key)), to_numpy(layer.bias))
        self._keys = graph.transpose(keys)
        real = graph("Unsqueeze", graph.below(counts, graph.size("symbols", 1)), np.array([1]))
        self._real = graph("Cast", real, to=FLOAT)
        self._padding = graph("Where", real, np.float32(0), np.float32(-1e9))

    def weigh(self, body: Graph, query: Name, previous: Name, cumulative: Name) -> Name:
        """Weights of one step, float32 [batch, 1, symbols], as the two of before; zero on padding."""
        asked = body("Unsqueeze", _multiply(body, query, to_numpy(self._layer.query), None), np.array([2]))
        compared = body("Add", self._keys, asked)
        if self._kernels.location is not None:
            kernel = np.asarray(self._kernels.location, np.float32).transpose(2, 1, 0)
            channels = [previous, cumulative] if self._layer.location_channels == 2 else [cumulative]
            past = body("Concat", *channels, axis=1) if len(channels) > 1 else cumulative
            taps = kernel.shape[2]
            compared = body("Add", compared, body("Conv", past, kernel, pads=[(taps - 1) // 2, taps // 2]))
        energy = body("MatMul", to_numpy(self._layer.energy).T, body("Tanh", compared))
        if not self._layer.settings.smoothing:
            return str(body("Softmax", body("Add", energy, self._padding), axis=-1))
        weights = body("Mul", body("Sigmoid", energy), self._real)
        total = body("ReduceSum", weights, np.array([2]), keepdims=1)
        return str(body("Div", weights, body("Add", total, np.float32(1e-9))))
