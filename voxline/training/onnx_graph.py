"""An ONNX graph, built node by node, and the layers that recognizers, voices and vocoders share.

Keras' own exporter turns each recurrent layer into a loop of small ops. ONNX's `GRU` and `LSTM` are single kernels,
which can be quantized too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from voxline.errors import WorkError

OPSET = 17
IR_VERSION = 9
"""Read by every ONNX Runtime since 1.13, without the ops of `MICROSOFT`."""
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own ops, which layers of 8 bits are."""

ZERO_POINT = 128
"""The integer that stands for 0 in 8 unsigned bits."""
LARGEST_WEIGHT = 64
"""Largest magnitude of weights in `Graph.rowwise`. Two products with unsigned bytes fit in 16 bits, in which processors
without VNNI add them: 2 · 64 · 255 < 2^15."""

Array = npt.NDArray[Any]
Name = str
"""Name of a value in the graph."""


class Graph:
    """A graph under construction; each method adds nodes and returns the name of their output.

    Args:
      int8: whether the weights of `dense` and of recurrent layers are 8-bit integers.
      around: the graph in whose loop this one is the body; it sees the values of that graph.
    """

    def __init__(self, int8: bool = False, around: "Graph | None" = None) -> None:
        self.int8 = int8
        self._nodes: list[Any] = []
        self._optional: list[Any] = []
        self._constants: dict[Name, Any] = {} if around is None else around._constants
        self._domains: set[str] = {""} if around is None else around._domains
        self._prefix: str = "v" if around is None else f"{around._prefix}{len(around._nodes)}_"

    def __call__(
        self, op: str, *inputs: Name | Array | np.number[Any] | None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """Adds a node. An input is the name of a value, an array, or None for one that is left out."""
        names = [self._input(value) for value in inputs]
        self._domains.add(attributes.get("domain", ""))
        names_of_outputs = [f"{self._prefix}{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(op, names, names_of_outputs, **attributes))
        return names_of_outputs[0] if outputs == 1 else names_of_outputs

    def constant(self, value: Array) -> Name:
        """The name of an array, for several nodes that share it."""
        return self._input(value)

    def optional_input(self, name: Name, usual: Array) -> Name:
        """An input that a caller may leave out.

        Args:
          usual: its value then; of the same shape and type as what a caller gives.
        """
        self._constants[name] = numpy_helper.from_array(usual, name)
        kind = helper.np_dtype_to_tensor_dtype(usual.dtype)
        self._optional.append(helper.make_tensor_value_info(name, kind, usual.shape))
        return name

    def _input(self, value: Name | Array | np.number[Any] | None) -> Name:
        if value is None or isinstance(value, str):
            return value or ""
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def size(self, value: Name, axis: int) -> Name:
        """int64 scalar."""
        return str(self("Squeeze", self("Shape", value, start=axis, end=axis + 1)))

    def below(self, counts: Name, longest: Name | np.number[Any]) -> Name:
        """bool [batch, longest], true within each row's count (int64 [batch])."""

        # [longest] against [batch, 1]
        steps = self("Range", np.int64(0), longest, np.int64(1))
        return str(self("Less", steps, self("Unsqueeze", counts, np.array([1]))))

    def mask(self, value: Name, counts: Name, axis: int, rank: int) -> Name:
        """Sets a value to zero beyond each row's count along an axis; the batch is axis 0."""
        real = self.below(counts, self.size(value, axis))
        axes = np.array([other_axis for other_axis in range(1, rank) if other_axis != axis])
        return str(self("Where", self("Unsqueeze", real, axes) if len(axes) else real, value, np.float32(0)))

    def clip(self, value: Name, highest: float) -> Name:
        return str(self("Clip", value, np.float32(0), np.float32(highest)))

    def dense(self, value: Name, layer: Any) -> Name:
        return self.product(value, to_numpy(layer.kernel), to_numpy(layer.bias))

    def product(self, value: Name, kernel: Array, bias: Array) -> Name:
        """value · kernel + bias."""
        if not self.int8:
            return str(self("Add", self("MatMul", value, kernel), bias))
        whole, scale, zero = quantize_weights(kernel)
        return str(self("DynamicQuantizeMatMul", value, whole, scale, zero, bias, domain=MICROSOFT))

    def transpose(self, value: Name) -> Name:
        """[batch, frames, channels] to [batch, channels, frames], and back."""
        return str(self("Transpose", value, perm=[0, 2, 1]))

    def convolution(self, value: Name, kernel: Array, bias: Array, groups: int = 1) -> Name:
        """Along the frames of [batch, frames, inputs], with padding "same".

        Args:
          kernel: Keras', [taps, inputs / groups, outputs].
        """

        # ONNX convolves [batch, channels, frames], with kernels [outputs, inputs / groups, taps].
        pads = [(len(kernel) - 1) // 2, len(kernel) // 2]
        weights = kernel.transpose(2, 1, 0)
        return self.transpose(self("Conv", self.transpose(value), weights, bias, group=groups, pads=pads))

    def layer_norm(self, value: Name, layer: Any) -> Name:
        weights = to_numpy(layer.gamma), to_numpy(layer.beta)
        return str(self("LayerNormalization", value, *weights, axis=-1, epsilon=float(layer.epsilon)))

    def gelu(self, value: Name) -> Name:
        """Gelu by its error function, x (1 + erf(x / √2)) / 2; ONNX Runtime joins the nodes."""
        error = self("Erf", self("Div", value, np.float32(np.sqrt(2))))
        return str(self("Mul", self("Mul", value, self("Add", error, np.float32(1))), np.float32(0.5)))

    def convnext(self, value: Name, block: Any) -> Name:
        """A `ConvNeXtBlock`."""

        # Depthwise convolution and norm, then gelu.
        depthwise = to_numpy(block.convolution.kernel).transpose(0, 2, 1)  # [taps, 1, channels]
        hidden = self.convolution(value, depthwise, to_numpy(block.convolution.bias), groups=depthwise.shape[2])
        hidden = self.gelu(self.dense(self.layer_norm(hidden, block.norm), block.widen))

        # γ goes into the last dense layer.
        scale = to_numpy(block.scale)

        return str(
            self(
                "Add",
                value,
                self.product(hidden, to_numpy(block.narrow.kernel) * scale, to_numpy(block.narrow.bias) * scale),
            )
        )

    def loop(
        self,
        most: Name | np.number[Any],
        states: Sequence[tuple[Name, int]],
        step: "Callable[[Graph, Name, Sequence[Name]], tuple[Name, Sequence[Name], Sequence[tuple[Name, int]]]]",
    ) -> list[Name]:
        """Adds a loop.

        Args:
          most: int64 scalar, iterations at most.
          states: the value before the first iteration, and the type, of each state.
          step: adds an iteration's nodes to a graph; of its number, int64 [1], and the states. Returns whether to go
            on, bool scalar; the next states; and what is collected, each with its type.

        Returns:
          the last states, then what was collected, with an axis of iterations in front.
        """

        # The body's inputs: number of the iteration, condition, states.
        body = Graph(self.int8, self)
        number, condition, *states_in_body = (
            f"{body._prefix}{name}" for name in ("i", "go", *(f"s{n}" for n in range(len(states))))
        )
        body_inputs: list[tuple[Name, int]] = [(number, TensorProto.INT64), (condition, TensorProto.BOOL)]
        body_inputs += [(name, kind) for name, (_, kind) in zip(states_in_body, states, strict=True)]
        go_on, next_states, collected = step(body, body("Reshape", number, np.array([1])), states_in_body)
        body_outputs = [
            (go_on, TensorProto.BOOL),
            *zip(next_states, (kind for _, kind in states), strict=True),
            *collected,
        ]
        # A body returns values that it made, each once; others are copied.
        unused = {name for node in body._nodes for name in node.output}
        values = []
        for value, kind in body_outputs:
            values.append((value if value in unused else body("Identity", value), kind))
            unused.discard(value)

        inputs, outputs = (
            [
                helper.make_tensor_value_info(name, kind, [] if index < scalars else None)
                for index, (name, kind) in enumerate(typed_values)
            ]
            for typed_values, scalars in ((body_inputs, 2), (values, 1))
        )

        # The loop of the outer graph: most, condition, states before the first iteration.
        iteration = helper.make_graph(body._nodes, f"{body._prefix}body", inputs, outputs)
        start = (value for value, _ in states)
        count = len(states) + len(collected)
        results = self("Loop", most, np.array(True), *start, outputs=count, body=iteration)

        return [results] if count == 1 else list(results)

    def rowwise(self, value: Name, kernel: Array, bias: Array | None = None) -> Name:
        """value [rows, inputs] · kernel + bias, of integers: a scale for each row, and for each column of the kernel.

        A row's result does not depend on the others. Weights are read once for all rows.
        """

        # A scale for each row: its largest magnitude.
        rounded, largest = self._round(value, [1])
        product = self("Mul", self._integer_product(rounded, kernel), largest)
        return str(product if bias is None else self("Add", product, bias))

    def rowwise_quantized(self, value: Name, whole: Name, scale: Array, zero: Array) -> Name:
        """`rowwise` without a bias, of weights that `quantize_weights` returned; `whole` is one in the graph."""
        rounded, largest = self._round(value, [1])
        zero_point = np.uint8(ZERO_POINT)
        product = self(
            "MatMulIntegerToFloat", rounded, whole, np.float32(1 / 127), scale, zero_point, zero, domain=MICROSOFT
        )
        return str(self("Mul", product, largest))

    def integer_convolution(self, value: Name, kernel: Array, bias: Array) -> Name:
        """`convolution` with weights as in `rowwise`, and a scale for each text of the batch."""

        # A convolution as one product: shifted copies side by side, [batch, frames, taps · inputs].
        taps, _, outputs = kernel.shape
        rounded, largest = self._round(value, [1, 2])
        pads = np.array([0, (taps - 1) // 2, 0, 0, taps // 2, 0])
        padded = self("Pad", rounded, pads, np.uint8(ZERO_POINT))
        ends = [np.array([tap - taps + 1 or np.iinfo(np.int64).max]) for tap in range(taps)]
        shifted = [self("Slice", padded, np.array([tap]), ends[tap], np.array([1])) for tap in range(taps)]
        product = self._integer_product(self("Concat", *shifted, axis=2), kernel.reshape(-1, outputs))
        return str(self("Add", self("Mul", product, largest), bias))

    def _round(self, value: Name, axes: list[int]) -> tuple[Name, Name]:
        """uint8, with the largest magnitude along the axes as 127 from ZERO_POINT; and that magnitude."""
        largest = self("ReduceMax", self("Abs", value), axes=axes, keepdims=1)
        largest = self("Max", largest, np.float32(1e-8))
        return self("QuantizeLinear", self("Div", value, largest), np.float32(1 / 127), np.uint8(ZERO_POINT)), largest

    def _integer_product(self, rounded: Name, kernel: Array) -> Name:
        """float32; to be multiplied by the magnitudes that `_round` returned."""
        _check_finite(kernel)

        # A scale for each output, so that its largest weight is LARGEST_WEIGHT.
        scale = np.maximum(np.abs(kernel).max(axis=0), np.float32(1e-8)) / np.float32(LARGEST_WEIGHT)
        whole = np.round(kernel / scale).astype(np.int8)
        zero = np.uint8(ZERO_POINT)
        return str(
            self(
                "MatMulIntegerToFloat", rounded, whole, np.float32(1 / 127), scale.astype(np.float32), zero,
                domain=MICROSOFT,
            )
        )  # fmt: skip

    def finish(
        self,
        name: str,
        inputs: Sequence[tuple[str, int, list[Any]]],
        outputs: Sequence[tuple[str, Name, int, list[Any]]],
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """The graph as a file.

        Args:
          inputs: name, type and shape.
          outputs: name, value, type and shape.
        """

        # Outputs get the names by which an application asks for them.
        self._nodes += [helper.make_node("Identity", [value], [output]) for output, value, _, _ in outputs]
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(*declaration) for declaration in inputs] + self._optional,
            [helper.make_tensor_value_info(output, kind, shape) for output, _, kind, shape in outputs],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid(name, 1 if name else OPSET) for name in sorted(self._domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="voxline")
        helper.set_model_props(model, dict(metadata or {}))
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString()

        return data


def normalize_features(graph: Graph, values: Name, mean: Sequence[float], deviation: Sequence[float]) -> Name:
    """Normalizes features by the statistics of the training split, as every network does."""
    scale = 1 / np.maximum(np.asarray(deviation, np.float32), np.float32(1e-5))
    return str(graph("Mul", graph("Sub", values, np.asarray(mean, np.float32)), scale))


def scale_and_shift(norm: Any) -> tuple[Array, Array]:
    """A batch normalization as y = scale · x + shift."""
    scale = to_numpy(norm.gamma) / np.sqrt(to_numpy(norm.moving_variance) + np.float32(norm.epsilon))
    return scale, to_numpy(norm.beta) - to_numpy(norm.moving_mean) * scale


def recurrent(graph: Graph, layer: Any, values: Name, lengths: Name) -> Name:
    """One recurrent layer over [frames, batch, inputs]; frames beyond a row's length come out as zero."""
    ways = directions(layer)

    # ONNX wants W [directions, gates · units, inputs], R and B.
    op, weights, attributes = recurrent_op([way.cell for way in ways])
    if graph.int8:
        (inputs, *of_inputs), (units, *of_units) = (
            quantize_weights(weight.transpose(0, 2, 1)) for weight in weights[:2]
        )
        none = [None] * 3
        outputs = graph(
            "DynamicQuantizeLSTM", values, inputs, units, weights[2], lengths, *none, *of_inputs, *of_units,
            domain=MICROSOFT, **attributes,
        )  # fmt: skip
    else:
        outputs = graph(op, values, *weights, lengths, **attributes)  # [frames, directions, batch, units]

    if len(ways) == 1:
        return str(graph("Squeeze", outputs, np.array([1])))

    if layer.merge_mode == "sum":
        return str(graph("ReduceSum", outputs, np.array([1]), keepdims=0))

    return str(graph("Reshape", graph("Transpose", outputs, perm=[0, 2, 1, 3]), np.array([0, 0, 2 * ways[0].units])))


def directions(layer: Any) -> list[Any]:
    return [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]


def recurrent_op(cells: Sequence[Any]) -> tuple[str, list[Array], dict[str, Any]]:
    """ONNX's op for Keras cells, one for each direction: its name, its weights W, R and B, and its attributes."""

    # Cells of both directions are of one kind and size.
    units = int(cells[0].units)
    op, order = _OPS[type(cells[0]).__name__]
    attributes: dict[str, Any] = {"hidden_size": units, "direction": "bidirectional" if len(cells) == 2 else "forward"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1  # Keras' reset_after

    if op == "RNN" and (bounds := getattr(cells[0].activation, "keywords", None)):
        # The op clips what goes into the activation.
        attributes |= {"activations": ["Relu"] * len(cells), "clip": float(bounds["x_max"])}

    weights = [np.stack([_reorder(to_numpy(cell.kernel), order, units).T for cell in cells])]
    weights += [np.stack([_reorder(to_numpy(cell.recurrent_kernel), order, units).T for cell in cells])]
    weights += [np.stack([_biases(to_numpy(cell.bias), order, units) for cell in cells])]

    return op, weights, attributes


_OPS = {"GRUCell": ("GRU", (0, 1, 2)), "LSTMCell": ("LSTM", (0, 3, 1, 2)), "SimpleRNNCell": ("RNN", (0,))}
"""Keras cell → ONNX's op, and its order of the gates: zrh of both, iofc of ifco, and the only one."""


def quantize_weights(weights: Array) -> tuple[Array, Array, Array]:
    """Weights […, inputs, outputs] as uint8, with a float32 scale for each output, and zero points.

    ONNX Runtime quantizes inputs to uint8. With int8 weights, processors without VNNI add two products in 16 bits,
    which overflow: a graph would compute other values there than where it was judged. With uint8 weights none does.
    """

    # One scale for each output, from its largest magnitude.
    scale = np.maximum(np.abs(weights).max(axis=-2), np.float32(1e-8)) / np.float32(127)
    whole = (np.round(weights / scale[..., None, :]) + ZERO_POINT).astype(np.uint8)
    return whole, scale.astype(np.float32), np.full(scale.shape, ZERO_POINT, np.uint8)


def _reorder(values: Array, order: Sequence[int], units: int) -> Array:
    """The gates of [..., gates · units] in another order."""
    return np.concatenate([values[..., gate * units : (gate + 1) * units] for gate in order], axis=-1)


def _biases(bias: Array, order: Sequence[int], units: int) -> Array:
    """ONNX has one of the inputs and one of the state; of Keras' cells the GRU alone has both."""
    biases = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    return _reorder(biases, order, units).reshape(-1)


def to_numpy(variable: Any) -> Array:
    return np.asarray(variable.numpy(), np.float32)


def _check_finite(kernel: Array) -> None:
    """Integers have no NaN: weights with one would speak, where the float32 graph is refused."""
    if not np.isfinite(kernel).all():
        raise WorkError("the model has weights that are not finite, and no graph of integers; train it again")
