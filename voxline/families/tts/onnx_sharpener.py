"""The sharpener of a voice as part of its ONNX graph."""

from typing import Any

import numpy as np
from onnx import TensorProto

from voxline.families.tts.networks.sharpener import FACTOR
from voxline.training.onnx_graph import Graph, Name, to_numpy

BINS = np.array([2, 3])
"""Axes of frames and bins in [batch, channels, frames, bins]."""


def add_sharpener(graph: Graph, sharpener: Any, mels: Name, frames: Name) -> Name:
    """`Sharpener` on normalized mels, float32 [batch, t, bins]; frames int64 [batch]."""
    mels = graph.mask(mels, frames, 1, 3)

    # [batch, 1, frames, bins], padded to multiples of FACTOR.
    x = graph("Unsqueeze", mels, np.array([1]))
    missing = [graph("Mod", graph("Neg", graph.size(x, axis)), np.int64(FACTOR)) for axis in (2, 3)]
    ends = [np.array([0, 0, 0, 0, 0, 0]), *(graph("Unsqueeze", size, np.array([0])) for size in missing)]
    x = graph("Pad", x, graph("Concat", *ends, axis=0))

    # Frames at full size, half and a quarter.
    counts = [frames, *(_rounded_up(graph, frames, size) for size in (2, FACTOR))]

    # Down; each output is kept for the way up.
    skips = []
    for convolution, norm, count in zip(sharpener.down, sharpener.down_norms, counts, strict=True):
        x = _mask(graph, graph("Relu", _norm(graph, norm, _convolution(graph, convolution, x), count)), count)
        skips.append(x)

    for block in sharpener.blocks:
        # Residual blocks: two convolutions with norms.
        y = _convolution(graph, block.convolutions[0], x)
        y = _mask(graph, graph("Relu", _norm(graph, block.norms[0], y, counts[2])), counts[2])
        y = _norm(graph, block.norms[1], _convolution(graph, block.convolutions[1], y), counts[2])
        x = graph("Add", x, _mask(graph, y, counts[2]))

    # Up, by nearest neighbors as `keras.ops.repeat` does; frames and bins are the last two axes.
    for convolution, norm, size in zip(sharpener.up, sharpener.up_norms, (1, 0), strict=True):
        x = graph(
            "Resize", x, None, np.array([1, 1, 2, 2], np.float32),
            mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip

        x = graph("Relu", _norm(graph, norm, _convolution(graph, convolution, x), counts[size]))
        x = graph("Add", skips[size], _mask(graph, x, counts[size]))

    # The residual in the size of the mels.
    residual = graph("Squeeze", _convolution(graph, sharpener.last, x), np.array([1]))
    limits = graph("Shape", mels, start=1, end=3)
    residual = graph("Slice", residual, np.array([0, 0]), limits, np.array([1, 2]))

    return graph.mask(graph("Add", mels, residual), frames, 1, 3)


def _rounded_up(graph: Graph, frames: Name, size: int) -> Name:
    return str(graph("Div", graph("Add", frames, np.int64(size - 1)), np.int64(size)))


def _mask(graph: Graph, value: Name, count: Name) -> Name:
    return graph.mask(value, count, 2, 4)


def _convolution(graph: Graph, layer: Any, value: Name) -> Name:
    """Convolves [batch, channels, frames, bins]; a strided convolution has a border of one on each side too."""
    around = layer.kernel_size[0] // 2
    stride = layer.strides[0]
    kernel = to_numpy(layer.kernel).transpose(3, 2, 0, 1)
    return str(graph("Conv", value, kernel, to_numpy(layer.bias), strides=[stride] * 2, pads=[around] * 4))


def _norm(graph: Graph, norm: Any, value: Name, count: Name) -> Name:
    """`SwitchableNorm` at inference, where the moving statistics stand for those of the batch."""

    # Real positions of a row, [batch, 1, 1, 1].
    shape = (1, -1, 1, 1)
    channels = np.array([1])
    rows = graph(
        "Cast", graph("Unsqueeze", graph("Max", count, np.int64(1)), np.array([1, 2, 3])), to=TensorProto.FLOAT
    )
    bins = graph("Cast", graph.size(value, 3), to=TensorProto.FLOAT)
    positions = graph("Mul", rows, bins)

    # Instance statistics [batch, channels, 1, 1], then those of the row [batch, 1, 1, 1].
    mean = graph("Div", graph("ReduceSum", _mask(graph, value, count), BINS, keepdims=1), positions)
    deviations = _mask(graph, graph("Sub", value, mean), count)
    variance = graph("Div", graph("ReduceSum", graph("Mul", deviations, deviations), BINS, keepdims=1), positions)
    row_mean = graph("ReduceMean", mean, axes=channels.tolist(), keepdims=1)
    mean_deviations = graph("Sub", mean, row_mean)
    row_variance = graph(
        "ReduceMean",
        graph("Add", variance, graph("Mul", mean_deviations, mean_deviations)),
        axes=channels.tolist(),
        keepdims=1,
    )
    mixes = []
    for logits, parts in (
        (norm.mean_logits, (mean, row_mean, norm.moving_mean)),
        (norm.variance_logits, (variance, row_variance, norm.moving_variance)),
    ):
        # The softmax of the mix is a constant of the graph, and so is the part of the moving statistics.
        weights = np.exp(to_numpy(logits) - to_numpy(logits).max())
        weights = (weights / weights.sum()).astype(np.float32)
        moving = (weights[2] * to_numpy(parts[2])).reshape(shape)
        mixed = graph("Add", graph("Mul", parts[0], weights[0]), graph("Mul", parts[1], weights[1]))
        mixes.append(graph("Add", mixed, moving))

    # γ (x - μ) / σ + β
    deviation = graph("Sqrt", graph("Add", mixes[1], np.float32(norm.epsilon)))
    scale = graph("Div", to_numpy(norm.gamma).reshape(shape), deviation)
    centered = graph("Mul", graph("Sub", value, mixes[0]), scale)

    return str(graph("Add", centered, to_numpy(norm.beta).reshape(shape)))
