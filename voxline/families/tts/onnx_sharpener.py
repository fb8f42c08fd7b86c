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
    x = graph("Unsqueeze", mels, np.array([1]))
    missing = [graph("Mod", graph("Neg", graph.size(x, axis)), np.int64(FACTOR)) for axis in (2, 3)]
    ends = [np.array([0, 0, 0, 0, 0, 0]), *(graph("Unsqueeze", each, np.array([0])) for each in missing)]
    x = graph("Pad", x, graph("Concat", *ends, axis=0))
    counts = [frames, *(_rounded_up(graph, frames, size) for size in (2, FACTOR))]
    passed = []
    for convolution, norm, count in zip(sharpener.down, sharpener.down_norms, counts, strict=True):
        x = _mask(graph, graph("Relu", _norm(graph, norm, _convolution(graph, convolution, x), count)), count)
        passed.append(x)
    for block in sharpener.blocks:
        found = _convolution(graph, block.convolutions[0], x)
        found = _mask(graph, graph("Relu", _norm(graph, block.norms[0], found, counts[2])), counts[2])
        found = _norm(graph, block.norms[1], _convolution(graph, block.convolutions[1], found), counts[2])
        x = graph("Add", x, _mask(graph, found, counts[2]))
    for convolution, norm, size in zip(sharpener.up, sharpener.up_norms, (1, 0), strict=True):
        x = graph(
            "Resize", x, None, np.array([1, 1, 2, 2], np.float32),
            mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
        x = graph("Relu", _norm(graph, norm, _convolution(graph, convolution, x), counts[size]))
        x = graph("Add", passed[size], _mask(graph, x, counts[size]))
    added = graph("Squeeze", _convolution(graph, sharpener.last, x), np.array([1]))
    limits = graph("Shape", mels, start=1, end=3)
    added = graph("Slice", added, np.array([0, 0]), limits, np.array([1, 2]))
    return graph.mask(graph("Add", mels, added), frames, 1, 3)


def _rounded_up(graph: Graph, frames: Name, size: int) -> Name:
    return str(graph("Div", graph("Add", frames, np.int64(size - 1)), np.int64(size)))


def _mask(graph: Graph, value: Name, count: Name) -> Name:
    return graph.mask(value, count, 2, 4)


def _convolution(graph: Graph, layer: Any, value: Name) -> Name:
    """On [batch, channels, frames, bins]; a strided one has a border of one on each side too."""
    around, stride = layer.kernel_size[0] // 2, layer.strides[0]
    kernel = to_numpy(layer.kernel).transpose(3, 2, 0, 1)
    return str(graph("Conv", value, kernel, to_numpy(layer.bias), strides=[stride] * 2, pads=[around] * 4))


def _norm(graph: Graph, norm: Any, value: Name, count: Name) -> Name:
    """`SwitchableNorm` as it is at inference."""
    shape, channels = (1, -1, 1, 1), np.array([1])
    rows = graph(
        "Cast", graph("Unsqueeze", graph("Max", count, np.int64(1)), np.array([1, 2, 3])), to=TensorProto.FLOAT
    )
    bins = graph("Cast", graph.size(value, 3), to=TensorProto.FLOAT)
    positions = graph("Mul", rows, bins)
    mean = graph("Div", graph("ReduceSum", _mask(graph, value, count), BINS, keepdims=1), positions)
    apart = _mask(graph, graph("Sub", value, mean), count)
    variance = graph("Div", graph("ReduceSum", graph("Mul", apart, apart), BINS, keepdims=1), positions)
    of_row = graph("ReduceMean", mean, axes=channels.tolist(), keepdims=1)
    away = graph("Sub", mean, of_row)
    of_rows = graph("ReduceMean", graph("Add", variance, graph("Mul", away, away)), axes=channels.tolist(), keepdims=1)
    found = []
    for logits, parts in (
        (norm.mean_logits, (mean, of_row, norm.moving_mean)),
        (norm.variance_logits, (variance, of_rows, norm.moving_variance)),
    ):
        weights = np.exp(to_numpy(logits) - to_numpy(logits).max())
        weights = (weights / weights.sum()).astype(np.float32)
        moving = (weights[2] * to_numpy(parts[2])).reshape(shape)
        mixed = graph("Add", graph("Mul", parts[0], weights[0]), graph("Mul", parts[1], weights[1]))
        found.append(graph("Add", mixed, moving))
    deviation = graph("Sqrt", graph("Add", found[1], np.float32(norm.epsilon)))
    scale = graph("Div", to_numpy(norm.gamma).reshape(shape), deviation)
    centered = graph("Mul", graph("Sub", value, found[0]), scale)
    return str(graph("Add", centered, to_numpy(norm.beta).reshape(shape)))
