"""The recognizer as one ONNX graph: waveforms in, log-probabilities out, with features and normalization inside.

The graph is written op by op. Keras' own exporter turns each recurrent layer into a loop of small ops, which runs no
faster than TensorFlow; ONNX's `GRU` and `LSTM` are single kernels, which can be quantized too.

Input    waveforms float32 [batch, samples] in [-1, 1]; lengths int32 [batch], samples
Output   log_probabilities float32 [batch, frames, symbols + 1], natural logarithms, the blank last;
         frames int32 [batch], the real ones
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from voxline.audio import features as audio_features
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.asr.models import CtcModelSettings
from voxline.errors import SettingsError

OPSET, IR_VERSION = 17, 9
"""Read by every ONNX Runtime since 1.13."""
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own ops, which 8-bit layers are."""

Array = Any
Name = str
"""Of a value in the graph."""


def export_onnx(
    model: Any,
    features: FeatureSettings,
    mean: Sequence[float],
    deviation: Sequence[float],
    precision: Literal["float32", "int8"] = "float32",
) -> bytes:
    """Builds the graph of a network.

    Args:
      model: the network, with its trained weights.
      features: what it was trained on; `frontend.check_exportable` has accepted them.
      mean, deviation: of the features, as the network was built with them.
      precision: int8: weights of LSTM and dense layers are 8-bit integers, and their inputs are quantized in each call,
        by the largest value in it. Convolutions, features and the output layer stay float32.

    Raises:
      SettingsError: the network is not known here, or has no 8-bit form.
    """
    kind = str(model.settings.kind)
    check_onnx_export(model.settings, precision)
    graph = Graph(int8=precision == "int8")
    values, frames = _features(graph, features)
    values = normalize_features(graph, values, mean, deviation)
    values, frames = _pad(graph, graph.mask(values, frames, axis=1, rank=3), frames, model.settings.padding)
    log_probabilities, frames = _NETWORKS[kind](graph, model, values, frames)
    taken = [("waveforms", TensorProto.FLOAT, ["batch", "samples"]), ("lengths", TensorProto.INT32, ["batch"])]
    return graph.finish(
        "recognizer",
        taken,
        [
            ("log_probabilities", log_probabilities, TensorProto.FLOAT, ["batch", "frames", "classes"]),
            ("frames", graph("Cast", frames, to=TensorProto.INT32), TensorProto.INT32, ["batch"]),
        ],
    )


def check_onnx_export(settings: CtcModelSettings, precision: str) -> None:
    """Refuses a network that this module cannot write, before it is trained.

    Raises:
      SettingsError: naming the setting, and what is accepted.
    """
    if settings.kind not in _NETWORKS:
        raise SettingsError(
            f"train.export.onnx: no ONNX graph is known for train.model.kind {settings.kind!r}; accepted: "
            f"{', '.join(sorted(_NETWORKS))}. Set train.export.onnx to none"
        )
    rnn = getattr(settings, "rnn", "lstm")
    if precision == "int8" and rnn != "lstm":
        raise SettingsError(
            f"train.export.onnx: ONNX Runtime has no 8-bit kernel for train.model.rnn {rnn!r}; set rnn to lstm, or "
            "onnx to float32"
        )


class Graph:
    """A graph under construction; each method adds a node and returns the name of its output."""

    def __init__(self, int8: bool = False) -> None:
        self.int8 = int8
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
        kernel, bias = to_numpy(layer.kernel), to_numpy(layer.bias)
        if not self.int8:
            return str(self("Add", self("MatMul", value, kernel), bias))
        whole, scale, zero = quantize_weights(kernel)
        return str(self("DynamicQuantizeMatMul", value, whole, scale, zero, bias, domain=MICROSOFT))

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
        self._nodes += [helper.make_node("Identity", [value], [output]) for output, value, _, _ in outputs]
        made = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info(output, kind, shape) for output, _, kind, shape in outputs],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), *([helper.make_opsetid(MICROSOFT, 1)] if self.int8 else [])]
        model = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="voxline")
        helper.set_model_props(model, dict(metadata or {}))
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString()
        return data


def _features(graph: Graph, settings: FeatureSettings) -> tuple[Name, Name]:
    """The features of a batch, as `frontend.graph_features` computes them: float32 [batch, frames, bins].

    Beyond a row's frames is anything.
    """
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
    values = log_spectra(graph, padded, count, settings)
    if settings.kind == "mfcc" and settings.context:
        values = _stack(graph, graph.mask(values, frames, axis=1, rank=3), count, settings.context)
    return values, frames


def log_spectra(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings) -> Name:
    """The features of the first windows of waveforms, without context: float32 [batch, count, bins]."""
    weights = np.eye(settings.fft_bins, dtype=np.float32)
    if settings.kind != "linear":
        weights = audio_features.mel_filterbank(settings)
    block = _block(settings)
    power = (_power_by_blocks if block else _power_by_dft)(graph, waveforms, count, settings, weights)
    values = graph("Log", graph("Max", power, np.float32(settings.log_floor)))
    if settings.kind == "mfcc":
        values = graph("MatMul", values, audio_features.cepstral_basis(settings))
    bins = settings.coefficients if settings.kind == "mfcc" else settings.bins
    batch = graph("Shape", waveforms, start=0, end=1)
    shape = graph("Concat", batch, graph("Unsqueeze", count, np.array([0])), np.array([bins]), axis=0)
    return str(graph("Reshape", values, shape))


def _power_by_dft(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings, weights: Array) -> Name:
    """The power spectra of all windows times weights, float32 [batch · count, …]."""
    starts = graph("Mul", graph("Range", np.int64(0), count, np.int64(1)), np.int64(settings.hop_length))
    indices = graph("Add", graph("Unsqueeze", starts, np.array([1])), np.arange(settings.win_length)[None])
    windows = graph("Mul", graph("Gather", waveforms, indices, axis=1), audio_features.hann_window(settings))
    flat = graph("Reshape", windows, np.array([-1, settings.win_length, 1]))
    spectrum = graph("DFT", flat, np.int64(settings.n_fft), axis=1, onesided=1)  # [batch · frames, bins, 2]
    power = graph("ReduceSumSquare", spectrum, axes=[2], keepdims=0)
    return str(graph("MatMul", power, weights))


def _block(settings: FeatureSettings) -> int:
    """The largest power of two up to 32 that divides hop and FFT: the columns of `_power_by_blocks`; 0: below 8."""
    size = math.gcd(32, settings.hop_length, settings.n_fft)
    return size if size >= 8 else 0


def _power_by_blocks(graph: Graph, waveforms: Name, count: Name, settings: FeatureSettings, weights: Array) -> Name:
    """As `_power_by_dft`, in half the time of the whole front end and less: ONNX Runtime's `DFT` is slow.

    The FFT of N = R · C samples is two products of matrices (Cooley and Tukey 1965), with sample n = C a + b and bin
    k = p + R q: X[k] = Σ_b w(N, b p) w(C, b q) Σ_a x[C a + b] w(R, a p), where w(M, j) = exp(-2πi j / M). Sums are as
    short as those of an FFT, so that quiet bins beside loud ones keep their precision. Of real samples the bins with
    p up to R / 2 are enough: the others have the power of their mirror image N - k.
    """
    columns, size = _block(settings), settings.n_fft
    rows, used = size // columns, -(-settings.win_length // columns)
    half = rows // 2 + 1
    # The windows as rows of blocks, which are copied whole.
    hop = settings.hop_length // columns
    last = graph("Mul", graph("Sub", count, np.int64(1)), np.int64(hop))
    needed = graph("Unsqueeze", graph("Mul", graph("Add", last, np.int64(used)), np.int64(columns)), np.array([0]))
    missing = graph("Max", graph("Sub", needed, graph("Shape", waveforms, start=1, end=2)), np.int64(0))
    padded = graph("Pad", waveforms, graph("Concat", np.array([0, 0, 0]), missing, axis=0))
    padded = graph("Slice", padded, np.array([0]), needed, np.array([1]))
    blocks = graph("Reshape", padded, np.array([0, -1, columns]))
    starts = graph("Mul", graph("Range", np.int64(0), count, np.int64(1)), np.int64(hop))
    indices = graph("Add", graph("Unsqueeze", starts, np.array([1])), np.arange(used)[None])
    hann = np.zeros(used * columns, np.float32)
    hann[: settings.win_length] = audio_features.hann_window(settings)
    windows = graph("Mul", graph("Gather", blocks, indices, axis=1), hann.reshape(used, columns))
    windows = graph("Reshape", windows, np.array([-1, used, columns]))
    # Over the rows: [batch · count, (p, real or imaginary), b]
    angle = 2 * np.pi / rows * np.outer(np.arange(half), np.arange(used))
    first = np.stack([np.cos(angle), -np.sin(angle)], axis=1).reshape(2 * half, used).astype(np.float32)
    inner = graph("Reshape", graph("MatMul", first, windows), np.array([-1, half, 2 * columns]))
    # Over the columns, with a matrix for each p: [p, batch · count, (real or imaginary, q)]
    p, b, q = np.meshgrid(np.arange(half), np.arange(columns), np.arange(columns), indexing="ij")
    angle = 2 * np.pi * (b * p / size + b * q / columns)
    cos, sin = np.cos(angle), np.sin(angle)
    second = np.block([[cos, -sin], [sin, cos]]).astype(np.float32)  # [p, (real or imaginary, b), …]
    spectrum = graph("MatMul", graph("Transpose", inner, perm=[1, 0, 2]), second)
    squares = graph("Transpose", graph("Mul", spectrum, spectrum), perm=[1, 0, 2])
    squares = graph("Reshape", squares, np.array([-1, half * 2 * columns]))
    # The weights of a bin are those of its real and of its imaginary part.
    bins = np.arange(settings.fft_bins)
    mirrored = np.where(bins % rows < half, bins, size - bins)
    spread = np.zeros((half, 2, columns, weights.shape[1]), np.float32)
    spread[mirrored % rows, :, mirrored // rows] = weights[:, None]
    return str(graph("MatMul", squares, spread.reshape(half * 2 * columns, -1)))


def normalize_features(graph: Graph, values: Name, mean: Sequence[float], deviation: Sequence[float]) -> Name:
    """By the statistics of the training split, as every network does."""
    scale = 1 / np.maximum(np.asarray(deviation, np.float32), np.float32(1e-5))
    return str(graph("Mul", graph("Sub", values, np.asarray(mean, np.float32)), scale))


def _stack(graph: Graph, values: Name, count: Name, context: int) -> Name:
    """Each frame with its neighbors, oldest first; zeros beyond the ends."""
    padded = graph("Pad", values, np.array([0, context, 0, 0, context, 0]))
    steps = graph("Range", np.int64(0), count, np.int64(1))
    shifted = [
        graph("Gather", padded, graph("Add", steps, np.int64(shift)), axis=1) for shift in range(2 * context + 1)
    ]
    return str(graph("Concat", *shifted, axis=2))


def _pad(graph: Graph, values: Name, frames: Name, padding: int) -> tuple[Name, Name]:
    """With the empty frames before and after each utterance."""
    padded = graph("Pad", values, np.array([0, padding, 0, 0, padding, 0]))
    return padded, graph("Add", frames, np.int64(2 * padding))


def _deep_speech_2(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings
    values = graph("Unsqueeze", values, np.array([1]))  # [batch, channels, frames, bins]
    for number, block in enumerate(model.convolutions, start=1):
        values, frames = _convolution_block(graph, block, values, frames)
        if number < len(model.convolutions):  # recurrent layers read no further than the lengths
            values = graph.mask(values, frames, axis=2, rank=4)
    values = graph("Transpose", values, perm=[2, 0, 3, 1])  # [frames, batch, bins, channels]
    values = graph("Reshape", values, np.array([0, 0, to_numpy(_ways(model.recurrent[0])[0].cell.kernel).shape[0]]))
    lengths = graph("Cast", frames, to=TensorProto.INT32)
    for norm, layer in zip(model.norms, model.recurrent, strict=True):
        if norm is not None:
            values = affine(graph, norm, values)
        values = _recurrent(graph, layer, values, lengths)
    if model.row_convolution is not None:
        kernel = to_numpy(model.row_convolution.kernel)  # [taps, channels, 1]
        values = graph(
            "Conv", graph("Transpose", values, perm=[1, 2, 0]), kernel.transpose(1, 2, 0),
            group=kernel.shape[1], pads=[0, settings.lookahead],
        )  # fmt: skip
        values = graph("Transpose", values, perm=[2, 0, 1])
    if model.output_norm is not None:
        values = affine(graph, model.output_norm, values)
    return classify(graph, model.classifier, values), frames


def _deep_speech(graph: Graph, model: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    settings = model.settings
    window, *dense = model.before
    kernel = to_numpy(window.kernel)  # [taps, bins, units]
    values = graph(
        "Conv", graph("Transpose", values, perm=[0, 2, 1]), kernel.transpose(2, 1, 0), to_numpy(window.bias),
        pads=[settings.context, settings.context],
    )  # fmt: skip
    values = graph.clip(graph("Transpose", values, perm=[2, 0, 1]), settings.relu_clip)
    for layer in dense:
        values = graph.clip(graph.dense(values, layer), settings.relu_clip)
    values = _recurrent(graph, model.recurrent, values, graph("Cast", frames, to=TensorProto.INT32))
    values = graph.clip(graph.dense(values, model.after), settings.relu_clip)
    return classify(graph, model.classifier, values), frames


_NETWORKS: dict[str, Callable[..., tuple[Name, Name]]] = {"deepspeech": _deep_speech, "deepspeech2": _deep_speech_2}
"""`train.model.kind` → network."""


def _convolution_block(graph: Graph, block: Any, values: Name, frames: Name) -> tuple[Name, Name]:
    """Convolution with the batch normalization in its weights, and clipped ReLU."""
    (taps, width), stride = block.settings.kernel, block.settings.stride
    kernel, shift = convolution_weights(block)
    pads = [(taps - 1) // 2, (width - 1) // 2, taps // 2, width // 2]
    values = graph("Conv", values, kernel, shift, strides=list(stride), pads=pads)
    if stride[0] > 1:
        frames = graph("Div", graph("Add", frames, np.int64(stride[0] - 1)), np.int64(stride[0]))
    return graph.clip(values, block.ceiling), frames


def convolution_weights(block: Any) -> tuple[Array, Array]:
    """The kernel [channels, inputs, frames, bins] and the bias of a block, its batch normalization included."""
    scale, shift = scale_and_shift(block.norm)
    return to_numpy(block.convolution.kernel).transpose(3, 2, 0, 1) * scale[:, None, None, None], shift


def scale_and_shift(norm: Any) -> tuple[Array, Array]:
    """A batch normalization as y = scale · x + shift."""
    scale = to_numpy(norm.gamma) / np.sqrt(to_numpy(norm.moving_variance) + np.float32(norm.epsilon))
    return scale, to_numpy(norm.beta) - to_numpy(norm.moving_mean) * scale


def affine(graph: Graph, norm: Any, values: Name) -> Name:
    scale, shift = scale_and_shift(norm)
    return str(graph("Add", graph("Mul", values, scale), shift))


def classify(graph: Graph, classifier: Any, values: Name) -> Name:
    logits = graph("Add", graph("MatMul", values, to_numpy(classifier.kernel)), to_numpy(classifier.bias))
    logits = graph("Transpose", logits, perm=[1, 0, 2])
    return str(graph("LogSoftmax", logits, axis=-1))


def _ways(layer: Any) -> list[Any]:
    return [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]


def _recurrent(graph: Graph, layer: Any, values: Name, lengths: Name) -> Name:
    """One recurrent layer over [frames, batch, inputs]; frames beyond a row's length come out as zero."""
    ways = _ways(layer)
    op, weights, attributes = recurrent_op([way.cell for way in ways])
    if graph.int8:
        (inputs, *of_inputs), (units, *of_units) = (quantize_weights(each.transpose(0, 2, 1)) for each in weights[:2])
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


def recurrent_op(cells: Sequence[Any]) -> tuple[str, list[Array], dict[str, Any]]:
    """ONNX's op for Keras cells, one for each direction: its name, its weights W, R and B, and its attributes."""
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
"""Of a Keras cell: ONNX's op, and its order of the gates: zrh of both, iofc of ifco, one."""


def quantize_weights(weights: Array) -> tuple[Array, Array, Array]:
    """Weights […, inputs, outputs] as int8, with a float32 scale for each output, and zero points, which are 0."""
    scale = np.maximum(np.abs(weights).max(axis=-2), np.float32(1e-8)) / np.float32(127)
    whole = np.round(weights / scale[..., None, :]).astype(np.int8)
    return whole, scale.astype(np.float32), np.zeros(scale.shape, np.int8)


def _reorder(values: Array, order: Sequence[int], units: int) -> Array:
    """The gates of [..., gates · units] in another order."""
    return np.concatenate([values[..., gate * units : (gate + 1) * units] for gate in order], axis=-1)


def _biases(bias: Array, order: Sequence[int], units: int) -> Array:
    """ONNX has one of the inputs and one of the state; of Keras' cells the GRU alone has both."""
    both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    return _reorder(both, order, units).reshape(-1)


def to_numpy(variable: Any) -> Array:
    return np.asarray(variable.numpy(), np.float32)
