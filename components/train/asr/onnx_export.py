"""The recognizer as one ONNX graph: waveforms in, log-probabilities out, with features and normalization inside.

The graph is written op by op. Keras' own exporter turns each recurrent layer into a loop of small ops, which runs no
faster than TensorFlow; ONNX's `GRU` and `LSTM` are single kernels, which can be quantized too.

Input    waveforms float32 [batch, samples] in [-1, 1]; lengths int32 [batch], samples
Output   log_probabilities float32 [batch, frames, symbols + 1], natural logarithms, the blank last;
         frames int32 [batch], the real ones
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from voxline.audio import features as audio_features
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError

OPSET, IR_VERSION = 17, 9
"""Read by every ONNX Runtime since 1.13."""

Array = Any
Name = str
"""Of a value in the graph."""


def export_onnx(model: Any, features: FeatureSettings, mean: Sequence[float], deviation: Sequence[float]) -> bytes:
    """Builds the graph of a network.

    Args:
      model: the network, with its trained weights.
      features: what it was trained on; `frontend.check_exportable` has accepted them.
      mean, deviation: of the features, as the network was built with them.

    Raises:
      SettingsError: the kind is not known here.
    """
    kind = str(model.settings.kind)
    check_onnx_kind(kind)
    graph = _Graph()
    values, frames = _features(graph, features)
    scale = 1 / np.maximum(np.asarray(deviation, np.float32), np.float32(1e-5))
    values = graph("Mul", graph("Sub", values, np.asarray(mean, np.float32)), scale)
    values, frames = _pad(graph, graph.mask(values, frames, axis=1, rank=3), frames, model.settings.padding)
    log_probabilities, frames = _NETWORKS[kind](graph, model, values, frames)
    return graph.finish(log_probabilities, frames)


def check_onnx_kind(kind: str) -> None:
    """Refuses a network that this module cannot write, before it is trained.

    Raises:
      SettingsError: naming the kind, and those that are accepted.
    """
    if kind not in _NETWORKS:
        raise SettingsError(
            f"train.export.onnx: no ONNX graph is known for train.model.kind {kind!r}; accepted: "
            f"{', '.join(sorted(_NETWORKS))}. Set train.export.onnx to false"
        )


class _Graph:
    """A graph under construction; each method adds a node and returns the name of its output."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[Name, Any] = {}

    def __call__(self, op: str, *inputs: Name | Array | None, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node. An input is the name of a value, an array, or None for one that is left out."""
        names = [self._input(each) for each in inputs]
        made = [f"v{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(op, names, made, **attributes))
        return made[0] if outputs == 1 else made

    def _input(self, value: Name | Array | None) -> Name:
        if value is None or isinstance(value, str):
            return value or ""
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def size(self, value: Name, axis: int) -> Name:
        """int64 scalar."""
        return str(self("Squeeze", self("Shape", value, start=axis, end=axis + 1)))

    def below(self, counts: Name, longest: Name) -> Name:
        """bool [batch, longest], true within each row's count (int64 [batch])."""
        steps = self("Range", np.int64(0), longest, np.int64(1))
        return str(self("Less", steps, self("Unsqueeze", counts, np.array([1]))))

    def mask(self, value: Name, counts: Name, axis: int, rank: int) -> Name:
        """Sets a value to zero beyond each row's count along an axis; the batch is axis 0."""
        real = self.below(counts, self.size(value, axis))
        axes = np.array([each for each in range(1, rank) if each != axis])
        return str(self("Where", self("Unsqueeze", real, axes) if len(axes) else real, value, np.float32(0)))

    def clip(self, value: Name, highest: float) -> Name:
        return str(self("Clip", value, np.float32(0), np.float32(highest)))

    def dense(self, value: Name, layer: Any) -> Name:
        return str(self("Add", self("MatMul", value, _numpy(layer.kernel)), _numpy(layer.bias)))

    def finish(self, log_probabilities: Name, frames: Name) -> bytes:
        self._nodes.append(helper.make_node("Identity", [log_probabilities], ["log_probabilities"]))
        self._nodes.append(helper.make_node("Cast", [frames], ["frames"], to=TensorProto.INT32))
        made = helper.make_graph(
            self._nodes,
            "recognizer",
            [
                helper.make_tensor_value_info("waveforms", TensorProto.FLOAT, ["batch", "samples"]),
                helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
            ],
            [
                helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["batch", "frames", "classes"]),
                helper.make_tensor_value_info("frames", TensorProto.INT32, ["batch"]),
            ],
            list(self._constants.values()),
        )
        model = helper.make_model(
            made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="voxline"
        )
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString()
        return data


def _features(graph: _Graph, settings: FeatureSettings) -> tuple[Name, Name]:
    """The features of a batch, as `frontend.graph_features` computes them: float32 [batch, frames, bins]."""
    lengths = graph("Cast", "lengths", to=TensorProto.INT64)
    hop = np.int64(settings.hop_length)
    frames = graph("Add", graph("Div", lengths, hop), np.int64(1))
    waveforms = graph.mask("waveforms", lengths, axis=1, rank=2)
    samples = graph.size("waveforms", 1)
    count = graph("Add", graph("Div", samples, hop), np.int64(1))
    needed = graph("Add", graph("Mul", graph("Sub", count, np.int64(1)), hop), np.int64(settings.win_length))
    missing = graph("Sub", graph("Sub", needed, np.int64(settings.padding)), samples)
    behind = graph("Unsqueeze", graph("Max", missing, np.int64(0)), np.array([0]))
    padded = graph("Pad", waveforms, graph("Concat", np.array([0, settings.padding, 0]), behind, axis=0))
    starts = graph("Mul", graph("Range", np.int64(0), count, np.int64(1)), hop)
    indices = graph("Add", graph("Unsqueeze", starts, np.array([1])), np.arange(settings.win_length)[None])
    windows = graph("Mul", graph("Gather", padded, indices, axis=1), audio_features.hann_window(settings))
    flat = graph("Reshape", windows, np.array([-1, settings.win_length, 1]))
    spectrum = graph("DFT", flat, np.int64(settings.n_fft), axis=1, onesided=1)  # [batch · frames, bins, 2]
    power = graph("ReduceSumSquare", spectrum, axes=[2], keepdims=0)
    if settings.kind != "linear":
        power = graph("MatMul", power, audio_features.mel_filterbank(settings))
    values = graph("Log", graph("Max", power, np.float32(settings.log_floor)))
    if settings.kind == "mfcc":
        values = graph("MatMul", values, audio_features.cepstral_basis(settings))
    bins = settings.coefficients if settings.kind == "mfcc" else settings.bins
    batch = graph("Shape", "lengths")
    shape = graph("Concat", batch, graph("Unsqueeze", count, np.array([0])), np.array([bins]), axis=0)
    values = graph.mask(graph("Reshape", values, shape), frames, axis=1, rank=3)
    if settings.kind == "mfcc" and settings.context:
        values = graph.mask(_stack(graph, values, count, settings.context), frames, axis=1, rank=3)
    return values, frames


def _stack(graph: _Graph, values: Name, count: Name, context: int) -> Name:
    """Each frame with its neighbors, oldest first; zeros beyond the ends."""
    padded = graph("Pad", values, np.array([0, context, 0, 0, context, 0]))
    steps = graph("Range", np.int64(0), count, np.int64(1))
    shifted = [
        graph("Gather", padded, graph("Add", steps, np.int64(shift)), axis=1) for shift in range(2 * context + 1)
    ]
    return str(graph("Concat", *shifted, axis=2))


def _pad(graph: _Graph, values: Name, frames: Name, padding: int) -> tuple[Name, Name]:
    """With the empty frames before and after each utterance."""
    padded = graph("Pad", values, np.array([0, padding, 0, 0, padding, 0]))
    return padded, graph("Add", frames, np.int64(2 * padding))


def _deep_speech_2(graph: _Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings
    values = graph("Unsqueeze", values, np.array([1]))  # [batch, channels, frames, bins]
    for block in model.convolutions:
        values, frames = _convolution_block(graph, block, values, frames)
    values = graph("Transpose", values, perm=[2, 0, 3, 1])  # [frames, batch, bins, channels]
    values = graph("Reshape", values, np.array([0, 0, _numpy(_ways(model.recurrent[0])[0].cell.kernel).shape[0]]))
    lengths = graph("Cast", frames, to=TensorProto.INT32)
    for norm, layer in zip(model.norms, model.recurrent, strict=True):
        if norm is not None:
            values = _affine(graph, norm, values)
        values = _recurrent(graph, layer, values, lengths)
    if model.row_convolution is not None:
        kernel = _numpy(model.row_convolution.kernel)  # [taps, channels, 1]
        values = graph(
            "Conv", graph("Transpose", values, perm=[1, 2, 0]), kernel.transpose(1, 2, 0),
            group=kernel.shape[1], pads=[0, settings.lookahead],
        )  # fmt: skip
        values = graph("Transpose", values, perm=[2, 0, 1])
    if model.output_norm is not None:
        values = _affine(graph, model.output_norm, values)
    return _classify(graph, model.classifier, values), frames


def _deep_speech(graph: _Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings
    window, *dense = model.before
    kernel = _numpy(window.kernel)  # [taps, bins, units]
    values = graph(
        "Conv", graph("Transpose", values, perm=[0, 2, 1]), kernel.transpose(2, 1, 0), _numpy(window.bias),
        pads=[settings.context, settings.context],
    )  # fmt: skip
    values = graph.clip(graph("Transpose", values, perm=[2, 0, 1]), settings.relu_clip)
    for layer in dense:
        values = graph.clip(graph.dense(values, layer), settings.relu_clip)
    values = _recurrent(graph, model.recurrent, values, graph("Cast", frames, to=TensorProto.INT32))
    values = graph.clip(graph.dense(values, model.after), settings.relu_clip)
    return _classify(graph, model.classifier, values), frames


_NETWORKS: dict[str, Callable[..., tuple[Name, Name]]] = {"deepspeech": _deep_speech, "deepspeech2": _deep_speech_2}
"""`train.model.kind` → network."""


def _convolution_block(graph: _Graph, block: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    """Convolution with the batch normalization in its weights, and clipped ReLU."""
    (taps, width), stride = block.settings.kernel, block.settings.stride
    scale, shift = _scale_and_shift(block.norm)
    kernel = _numpy(block.convolution.kernel).transpose(3, 2, 0, 1) * scale[:, None, None, None]
    pads = [(taps - 1) // 2, (width - 1) // 2, taps // 2, width // 2]
    values = graph("Conv", values, kernel, shift, strides=list(stride), pads=pads)
    if stride[0] > 1:
        frames = graph("Div", graph("Add", frames, np.int64(stride[0] - 1)), np.int64(stride[0]))
    return graph.mask(graph.clip(values, block.ceiling), frames, axis=2, rank=4), frames


def _scale_and_shift(norm: Any) -> tuple[Array, Array]:
    """A batch normalization as y = scale · x + shift."""
    scale = _numpy(norm.gamma) / np.sqrt(_numpy(norm.moving_variance) + np.float32(norm.epsilon))
    return scale, _numpy(norm.beta) - _numpy(norm.moving_mean) * scale


def _affine(graph: _Graph, norm: Any, values: Name) -> Name:
    scale, shift = _scale_and_shift(norm)
    return str(graph("Add", graph("Mul", values, scale), shift))


def _classify(graph: _Graph, classifier: Any, values: Name) -> Name:
    logits = graph("Transpose", graph.dense(values, classifier), perm=[1, 0, 2])
    return str(graph("LogSoftmax", logits, axis=-1))


def _ways(layer: Any) -> list[Any]:
    return [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]


def _recurrent(graph: _Graph, layer: Any, values: Name, lengths: Name) -> Name:
    """One recurrent layer over [frames, batch, inputs]; frames beyond a row's length come out as zero."""
    ways = _ways(layer)
    cells = [way.cell for way in ways]
    units = int(cells[0].units)
    op, order = _OPS[type(cells[0]).__name__]
    attributes: dict[str, Any] = {"hidden_size": units, "direction": "bidirectional" if len(ways) == 2 else "forward"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1  # Keras' reset_after
    if op == "RNN" and (bounds := getattr(cells[0].activation, "keywords", None)):
        # The op clips what goes into the activation.
        attributes |= {"activations": ["Relu"] * len(ways), "clip": float(bounds["x_max"])}
    weights = [np.stack([_reorder(_numpy(cell.kernel), order, units).T for cell in cells])]
    weights += [np.stack([_reorder(_numpy(cell.recurrent_kernel), order, units).T for cell in cells])]
    weights += [np.stack([_biases(_numpy(cell.bias), order, units) for cell in cells])]
    outputs = graph(op, values, *weights, lengths, **attributes)  # [frames, directions, batch, units]
    if len(ways) == 1:
        return str(graph("Squeeze", outputs, np.array([1])))
    if layer.merge_mode == "sum":
        return str(graph("ReduceSum", outputs, np.array([1]), keepdims=0))
    return str(graph("Reshape", graph("Transpose", outputs, perm=[0, 2, 1, 3]), np.array([0, 0, 2 * units])))


_OPS = {"GRUCell": ("GRU", (0, 1, 2)), "LSTMCell": ("LSTM", (0, 3, 1, 2)), "SimpleRNNCell": ("RNN", (0,))}
"""Of a Keras cell: ONNX's op, and its order of the gates: zrh of both, iofc of ifco, one."""


def _reorder(values: Array, order: Sequence[int], units: int) -> Array:
    """The gates of [..., gates · units] in another order."""
    return np.concatenate([values[..., gate * units : (gate + 1) * units] for gate in order], axis=-1)


def _biases(bias: Array, order: Sequence[int], units: int) -> Array:
    """ONNX has one of the inputs and one of the state; of Keras' cells the GRU alone has both."""
    both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    return _reorder(both, order, units).reshape(-1)


def _numpy(variable: Any) -> Array:
    return np.asarray(variable.numpy(), np.float32)
