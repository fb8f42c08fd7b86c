"""The streaming graph of a causal recognizer: samples and a state in, log-probabilities and the next state out.

It computes what `onnx` computes for a whole utterance, call by call. A stage that sees a window of its input
takes the end of the input before as a state, and leaves its own; a recurrent layer takes and leaves its units. Nothing
is computed twice.

Input    samples float32 [batch, samples] in [-1, 1]; flush int64 [stages], zeros after the input of each stage, which
         end an utterance; the states, zeros before the first sample
Output   log_probabilities float32 [batch, frames, symbols + 1], of new frames; next_<state> for each state

How many samples a call needs: `CallSchedule` in voxline.inference.streaming_graph, from the graph's metadata.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from voxline.audio.feature_settings import FeatureSettings
from voxline.families.asr.export_checks import check_streaming
from voxline.families.asr.onnx import affine, classify, convolution_weights, log_spectra
from voxline.inference.streaming_graph import WindowStage, describe_stream
from voxline.training.onnx_graph import Graph, Name, normalize_features, recurrent_op, to_numpy


def export_stream(model: Any, features: FeatureSettings, mean: Sequence[float], deviation: Sequence[float]) -> bytes:
    """Builds the streaming graph of a network; arguments as `onnx.export_onnx`.

    Raises:
      SettingsError: the network is not causal.
    """
    check_streaming(model.settings, features)
    graph = _StreamGraph()

    # Front end: windows of samples, and of frames if cepstra are stacked.
    context = features.context if features.kind == "mfcc" else 0
    size = features.win_length, features.hop_length
    waveforms = graph.window("samples", WindowStage(*size, left=features.padding, extra=1), [1, -1])
    count = graph.count(waveforms, 1, *size)
    values = log_spectra(graph, waveforms, count, features)
    if context:
        width = features.bins // (2 * context + 1)
        values = graph.window(values, WindowStage(2 * context + 1, left=context), [1, -1, width])
        count = graph("Sub", graph.size(values, 1), np.int64(2 * context))
        steps = graph("Range", np.int64(0), count, np.int64(1))
        shifts = range(2 * context + 1)
        shifted = [graph("Gather", values, graph("Add", steps, np.int64(shift)), axis=1) for shift in shifts]
        values = graph("Concat", *shifted, axis=2)

    values = normalize_features(graph, values, mean, deviation)

    return graph.finish_stream(_NETWORKS[model.settings.kind](graph, model, values, len(mean)))


class _StreamGraph(Graph):
    """A graph whose stages and states are listed as they are added."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[WindowStage] = []
        self.states: dict[Name, list[int]] = {}
        self._next: list[Name] = []

    def window(self, value: Name, stage: WindowStage, shape: list[int]) -> Name:
        """Joins the input of a stage: the end of its last input, the new values, zeros at the end of an utterance.

        Args:
          shape: of the state that is kept, -1 along time.
        """

        # Input: the end of the last call, the new values, and at the end of the utterance zeros.
        axis = shape.index(-1)
        number = len(self.stages)
        self.stages.append(stage)
        state = self.state([stage.left if size == -1 else size for size in shape])
        joined = self("Concat", state, value, axis=axis)
        zeros = self("Slice", "flush", np.array([number]), np.array([number + 1]))
        before = np.zeros(len(shape) + axis, np.int64)
        after = np.zeros(len(shape) - axis - 1, np.int64)
        padded = self("Pad", joined, self("Concat", before, zeros, *([after] if len(after) else []), axis=0))

        # The next call begins after the last whole stride.
        consumed = self("Mul", self.count(padded, axis, stage.taps, stage.stride), np.int64(stage.stride))
        start = self("Unsqueeze", consumed, np.array([0]))
        self._next.append(self("Slice", padded, start, np.array([2**62]), np.array([axis])))
        return str(padded)

    def count(self, value: Name, axis: int, taps: int, stride: int) -> Name:
        """Windows in a value, int64 scalar."""
        free = self("Sub", self.size(value, axis), np.int64(taps))
        return str(self("Add", self("Div", free, np.int64(stride)), np.int64(1)))

    def state(self, shape: list[int]) -> Name:
        """Adds a state of this shape at the first sample; the caller appends its next value to `_next`."""
        name = f"state_{len(self.states)}"
        self.states[name] = shape
        return name

    def recurrent(self, layer: Any, values: Name) -> Name:
        """A forward layer over [frames, batch, inputs]."""

        # [frames, batch, inputs] → [frames, 1, batch, units]
        op, weights, attributes = recurrent_op([layer.cell])
        shape = [1, 1, int(layer.cell.units)]
        states = [self.state(shape) for _ in range(2 if op == "LSTM" else 1)]
        outputs, *after = self(op, values, *weights, None, *states, outputs=1 + len(states), **attributes)
        self._next += after
        return str(self("Squeeze", outputs, np.array([1])))

    def finish_stream(self, log_probabilities: Name) -> bytes:
        free_sizes = {name: [f"{name}_{axis}" for axis in range(len(shape))] for name, shape in self.states.items()}
        inputs: list[tuple[str, int, list[Any]]] = [
            ("samples", TensorProto.FLOAT, ["batch", "samples"]),
            ("flush", TensorProto.INT64, [len(self.stages)]),
            *((name, TensorProto.FLOAT, sizes) for name, sizes in free_sizes.items()),
        ]

        # Each state goes out under the name of the input that takes it in the next call.
        outputs = [
            ("log_probabilities", log_probabilities, TensorProto.FLOAT, ["batch", "frames", "classes"]),
            *(
                (f"next_{name}", value, TensorProto.FLOAT, [f"next_{size}" for size in sizes])
                for (name, sizes), value in zip(free_sizes.items(), self._next, strict=True)
            ),
        ]
        return self.finish("stream", inputs, outputs, describe_stream(self.stages, self.states))


def _deep_speech_2(graph: _StreamGraph, model: Any, values: Name, bins: int) -> Name:
    settings = model.settings

    # Convolutions: each keeps the frames that its next window begins with.
    values = graph("Unsqueeze", values, np.array([1]))  # [batch, channels, frames, bins]
    channels = 1
    for number, block in enumerate(model.convolutions):
        taps, width = block.settings.kernel
        stride = block.settings.stride
        padding = 0 if number else settings.padding
        stage = WindowStage(taps, stride[0], padding + (taps - 1) // 2, 2 * padding)
        values = graph.window(values, stage, [1, channels, -1, bins])
        kernel, shift = convolution_weights(block)
        pads = [0, (width - 1) // 2, 0, width // 2]
        values = graph.clip(graph("Conv", values, kernel, shift, strides=list(stride), pads=pads), block.ceiling)
        channels = kernel.shape[0]
        bins = -(-bins // stride[1])

    # Forward layers, whose units are states of the graph.
    values = graph("Transpose", values, perm=[2, 0, 3, 1])  # [frames, batch, bins, channels]
    values = graph("Reshape", values, np.array([0, 0, bins * channels]))
    for norm, layer in zip(model.norms, model.recurrent, strict=True):
        if norm is not None:
            values = affine(graph, norm, values)
        values = graph.recurrent(layer, values)

    if model.row_convolution is not None:
        # The row convolution waits for `lookahead` frames.
        kernel = to_numpy(model.row_convolution.kernel).transpose(1, 2, 0)  # [channels, 1, taps]
        values = graph("Transpose", values, perm=[1, 2, 0])
        values = graph.window(values, WindowStage(settings.lookahead + 1), [1, kernel.shape[0], -1])
        values = graph("Transpose", graph("Conv", values, kernel, group=kernel.shape[0]), perm=[2, 0, 1])

    if model.output_norm is not None:
        values = affine(graph, model.output_norm, values)

    return classify(graph, model.classifier, values)


def _deep_speech(graph: _StreamGraph, model: Any, values: Name, bins: int) -> Name:
    settings = model.settings
    window, *dense = model.before

    # The padding of an utterance is the stage's left and right margin.
    context = settings.context
    padding = settings.padding
    values = graph("Transpose", values, perm=[0, 2, 1])
    values = graph.window(values, WindowStage(2 * context + 1, 1, padding + context, 2 * padding), [1, bins, -1])
    values = graph("Conv", values, to_numpy(window.kernel).transpose(2, 1, 0), to_numpy(window.bias))
    values = graph.clip(graph("Transpose", values, perm=[2, 0, 1]), settings.relu_clip)
    for layer in dense:
        values = graph.clip(graph.dense(values, layer), settings.relu_clip)

    values = graph.recurrent(model.recurrent, values)
    values = graph.clip(graph.dense(values, model.after), settings.relu_clip)

    return classify(graph, model.classifier, values)


_NETWORKS: dict[str, Callable[..., Name]] = {"deepspeech": _deep_speech, "deepspeech2": _deep_speech_2}
"""`train.model.kind` → network; each of these can be causal."""
