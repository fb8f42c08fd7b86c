"""Tacotron 2 in an ONNX graph: the decoder is one `Loop`, whose step is that of `networks.decoding`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from voxline.families.tts.networks.decoding import STOP_LOGIT
from voxline.training.onnx_graph import Graph, Name, recurrent, scale_and_shift, to_numpy

Array = npt.NDArray[Any]
FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
Precision = Literal["float32", "int8"]


class Decoding(NamedTuple):
    """Limits and randomness of a decoder: steps at most, frames of a step, and the seed [2] of dropout.

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

    # Encoder, decoder, and a post-net whose residual is added.
    memory = _encode(graph, model, counts, convolve)
    frames, projected, alignments, ended = _decode(graph, model.decoder, memory, counts, how)
    before = graph.mask(projected, frames, 1, 3)
    mels = before
    for layer in model.postnet:
        mels = _convolution(graph, layer, mels, frames, convolve)

    if model.postnet:
        mels = graph("Add", before, mels)

    return mels, frames, alignments, graph("Not", ended)


def _encode(graph: Graph, model: Any, counts: Name, convolve: Callable[..., Name]) -> Name:
    """Encoded text [batch, symbols, units], zero on padding."""

    # [batch, symbols, units]; ONNX's LSTM has time first.
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

    # y = scale · (K x) + shift: the normalization costs nothing at inference.
    scale, shift = scale_and_shift(layer.norm)
    values = convolve(graph, values, to_numpy(layer.convolution.kernel) * scale, shift)
    activation = layer.activation.__name__
    if activation != "linear":
        values = graph({"relu": "Relu", "tanh": "Tanh"}[activation], values)
    return graph.mask(values, counts, 1, 3)


def _decode(graph: Graph, decoder: Any, memory: Name, counts: Name, how: Decoding) -> tuple[Name, Name, Name, Name]:
    """Adds the decoder's loop.

    Returns:
      frames int64 [batch], projected frames [batch, t, mels], weights [batch, steps, symbols], ended rows bool [batch].
    """

    # The LSTMs, and how the loop reads the text.
    core = decoder.core
    reduction = how.reduction
    frame_columns = reduction * decoder.mels
    lstms = [lstm for lstm in (core.query_lstm, core.output_lstm) if lstm is not None]
    layers = [_Layer(lstm, core.settings.zoneout) for lstm in lstms]
    projection, bias = (np.asarray(array) for array in decoder.projection(reduction))
    reader: _Folded | _Whole
    if how.precision == "float32":
        reader = _Folded(graph, memory, layers, projection, core.output_units)
    else:
        reader = _Whole(memory, layers, projection)

    attention = _Attention(graph, decoder.attention, memory, counts)

    masks = _prenet_masks(graph, decoder, how)
    rows, symbols = (graph("Shape", "symbols", start=axis, end=axis + 1) for axis in (0, 1))

    def filled(value: float, *sizes: Name | int) -> Name:
        shape = graph("Concat", *(np.array([size]) if isinstance(size, int) else size for size in sizes), axis=0)
        return str(graph("Expand", np.float32(value), shape))

    # States before the first step: highest stop logit, last frame, context, weights, their sum, LSTM states.
    no_weights = filled(0, rows, 1, symbols)
    start = [
        filled(-np.inf, rows),
        *(filled(0, rows, decoder.mels), filled(0, rows, reader.width), no_weights, no_weights),
        *[filled(0, rows, core.units)] * (2 * len(lstms)),
    ]

    def step(body: Graph, number: Name, states: Sequence[Name]) -> Any:
        # Pre-net of the last frame, [batch, units].
        highest, frame, context, previous, cumulative, *core_states = states
        for index, (kernel, shift) in enumerate(decoder.prenet):
            frame = body("Relu", _multiply(body, frame, to_numpy(kernel), to_numpy(shift)))
            if masks:
                frame = body("Mul", frame, body("Gather", masks[index], number))

        # Attention LSTM, attention, then the second LSTM with the new context.
        output, next_states = reader.advance(body, 0, frame, context, core_states[:2])
        weights = attention.weigh(body, output, previous, cumulative)
        context, *context_parts = reader.attend(body, weights)
        if len(lstms) > 1:
            output, more_states = reader.advance(body, 1, output, context_parts[0], core_states[2:])
            next_states += more_states

        # [batch, reduction · (mels + 1)]: only the last frame is fed back.
        projected = reader.project(body, output, context_parts[-1], bias)
        sizes = np.array([frame_columns - decoder.mels, decoder.mels, reduction])
        *_, frame, stops = body(
            "Split", projected, sizes if reduction > 1 else sizes[1:], axis=1, outputs=2 + (reduction > 1)
        )

        # The loop ends once each row has had a stop logit above the limit.
        highest = body("Max", highest, body("ReduceMax", stops, axes=[1], keepdims=0))
        lowest_of_rows = body("ReduceMin", highest, keepdims=0)
        state = [highest, frame, context, weights, body("Add", cumulative, weights), *next_states]

        return body("LessOrEqual", lowest_of_rows, np.float32(STOP_LOGIT)), state, [projected, weights]

    states = [(value, FLOAT) for value in start]

    def typed(body: Graph, number: Name, states_before: Sequence[Name]) -> Any:
        go_on, state, outputs = step(body, number, states_before)
        return go_on, state, [(value, FLOAT) for value in outputs]

    highest, *_, projected, alignments = graph.loop(np.int64(how.max_steps), states, typed)

    # [steps, batch, …] → [batch, steps · reduction, mels]
    projected = graph("Transpose", projected, perm=[1, 0, 2])
    projected, stops = graph("Split", projected, np.array([frame_columns, reduction]), axis=2, outputs=2)
    projected = graph("Reshape", projected, np.array([0, -1, decoder.mels]))
    alignments = graph("Squeeze", graph("Transpose", alignments, perm=[1, 0, 2, 3]), np.array([2]))

    # A row ends at its first stop, or has all frames if it was cut off.
    ended = graph("Greater", highest, np.float32(STOP_LOGIT))
    stops = graph("Greater", graph("Reshape", stops, np.array([0, -1])), np.float32(STOP_LOGIT))
    first_stop = graph("Add", graph("ArgMax", graph("Cast", stops, to=INT64), axis=1, keepdims=0), np.int64(1))

    return graph("Where", ended, first_stop, graph.size(projected, 1)), projected, alignments, ended


def _prenet_masks(graph: Graph, decoder: Any, how: Decoding) -> list[Name]:
    """The pre-net's dropout at inference, float32 [steps, units] each; in the file a bit of it is a byte."""
    layer_masks = decoder.prenet_masks(1, how.max_steps, np.array(how.noise), False) or []
    masks = []
    for mask in layer_masks:
        values = to_numpy(mask)[0]
        bits = graph("Cast", (values > 0).astype(np.uint8), to=FLOAT)
        masks.append(graph("Mul", bits, np.float32(values.max())))
    return masks


def _multiply(body: Graph, value: Name, kernel: Array, bias: Array | None) -> Name:
    return str(body("MatMul", value, kernel) if bias is None else body("Gemm", value, kernel, bias))


class _Layer:
    """The weights of an LSTM; see `LSTMCore._advance`."""

    def __init__(self, weights: Any, zoneout: float) -> None:
        self.kernel = np.concatenate([to_numpy(weights.outer), to_numpy(weights.recurrent)])
        self.context = to_numpy(weights.context)
        self.bias = to_numpy(weights.bias)
        self.units = int(weights.units)
        self.zoneout = zoneout

    def advance(self, body: Graph, gates: Name, state: Sequence[Name]) -> tuple[Name, list[Name]]:
        """The output of one step, and the next state: output and cell."""

        # [batch, units] each, in Keras' order: input, forget, new, output, with `new` moved to the end.
        gate_values, new = body("Split", gates, np.array([3 * self.units, self.units]), axis=1, outputs=2)
        input_gate, forget, out = body("Split", body("Sigmoid", gate_values), np.full(3, self.units), axis=1, outputs=3)
        cell = body("Add", body("Mul", forget, state[1]), body("Mul", input_gate, body("Tanh", new)))
        output = body("Mul", out, body("Tanh", cell))
        if rate := self.zoneout:
            output, cell = (
                body(
                    "Add",
                    body("Mul", value, np.float32(1 - rate)),
                    body("Mul", previous, np.float32(rate)),
                )
                for value, previous in zip((output, cell), state, strict=True)
            )

        return output, [output, cell]


class _Folded:
    """Reads the text in float32: the encoded text is multiplied once by the matrices that multiply a context.

    Attributes:
      width: of a context.
    """

    def __init__(
        self, graph: Graph, memory: Name, layers: Sequence[_Layer], projection: Array, output_units: int
    ) -> None:
        self._layers = layers
        self._projection = projection[:output_units]

        # One product m K for all matrices K that multiply a context.
        parts = [*(layer.context for layer in layers), projection[output_units:]]
        self._widths = np.array([part.shape[1] for part in parts])
        self._memory = graph("MatMul", memory, np.concatenate(parts, axis=1))
        self.width = int(self._widths[0])

    def attend(self, body: Graph, weights: Name) -> list[Name]:
        """Takes weights [batch, 1, symbols]; returns contexts for each layer and for the projection."""
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
    """Reads the text in integers: a text's folded matrices would be larger than those that they replace.

    See `_Folded`.
    """

    def __init__(self, memory: Name, layers: Sequence[_Layer], projection: Array) -> None:
        self._memory = memory
        self._layers = layers
        self._projection = projection
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
        self._layer = layer
        self._kernels = layer.kernels()

        # [batch, units, symbols]
        keys = graph("Add", graph("MatMul", memory, to_numpy(layer.key)), to_numpy(layer.bias))
        self._keys = graph.transpose(keys)
        real = graph("Unsqueeze", graph.below(counts, graph.size("symbols", 1)), np.array([1]))
        self._real = graph("Cast", real, to=FLOAT)
        self._padding = graph("Where", real, np.float32(0), np.float32(-1e9))

    def weigh(self, body: Graph, query: Name, previous: Name, cumulative: Name) -> Name:
        """Weights of one step, float32 [batch, 1, symbols], as `previous` and `cumulative`; zero on padding."""

        # [batch, units, 1], the same for all symbols.
        query_part = body("Unsqueeze", _multiply(body, query, to_numpy(self._layer.query), None), np.array([2]))
        summed = body("Add", self._keys, query_part)
        if self._kernels.location is not None:
            # Keras' [taps, channels, units] becomes ONNX's [units, channels, taps].
            kernel = np.asarray(self._kernels.location, np.float32).transpose(2, 1, 0)
            channels = [previous, cumulative] if self._layer.location_channels == 2 else [cumulative]
            past = body("Concat", *channels, axis=1) if len(channels) > 1 else cumulative
            taps = kernel.shape[2]
            summed = body("Add", summed, body("Conv", past, kernel, pads=[(taps - 1) // 2, taps // 2]))

        # [batch, 1, symbols]
        energy = body("MatMul", to_numpy(self._layer.energy).T, body("Tanh", summed))
        if not self._layer.settings.smoothing:
            return str(body("Softmax", body("Add", energy, self._padding), axis=-1))

        weights = body("Mul", body("Sigmoid", energy), self._real)
        total = body("ReduceSum", weights, np.array([2]), keepdims=1)

        return str(body("Div", weights, body("Add", total, np.float32(1e-9))))
