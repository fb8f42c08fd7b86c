"""`upsampling.Upsampling` in ONNX graphs, of [batch, channels, frames]."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from voxline.training.onnx_graph import Graph, Name, to_numpy
from voxline.training.upsampling import LAST_SLOPE, SLOPE, Upsampling

Mask = Callable[[Name, int], Name]
"""Sets values to zero that are not of real frames, each of which has so many steps."""


def keep_all(value: Name, factor: int) -> Name:
    """A `Mask` of one row without padding."""
    return value


def upsample(graph: Graph, layers: Upsampling, rates: Sequence[int], value: Name, real: Mask = keep_all) -> Name:
    """What comes behind the first convolution, and the slope before the last one: a step for each sample."""
    factor = 1
    for rate, layer, blocks in zip(rates, layers.upsampling, layers.residuals, strict=True):
        kernel = to_numpy(layer.kernel).transpose(2, 1, 0)  # [inputs, outputs, taps]
        overhang = (kernel.shape[2] - rate) // 2
        factor *= rate

        # A transposed convolution overhangs on both sides alike.
        value = graph("LeakyRelu", value, alpha=SLOPE)
        value = graph("ConvTranspose", value, kernel, to_numpy(layer.bias), strides=[rate], pads=[overhang, overhang])
        value = real(value, factor)
        branches = [_residual_block(graph, block, value, factor, real) for block in blocks]
        value = graph("Mul", graph("Sum", *branches), np.float32(1 / len(branches)))
    return str(graph("LeakyRelu", value, alpha=LAST_SLOPE))


def convolve_frames(graph: Graph, value: Name, layer: Any, added: Any = 0.0) -> Name:
    """A convolution, or a dense layer, along the last axis of [batch, channels, frames].

    Args:
      added: to the bias.
    """
    kernel = to_numpy(layer.kernel)
    kernel = kernel[None] if kernel.ndim == 2 else kernel
    dilation = int(layer.dilation_rate[0]) if hasattr(layer, "dilation_rate") else 1
    reach = (len(kernel) - 1) * dilation
    bias = (to_numpy(layer.bias) + added).astype(np.float32)
    pads = [reach // 2, reach - reach // 2]
    return str(graph("Conv", value, kernel.transpose(2, 1, 0), bias, pads=pads, dilations=[dilation]))


def _residual_block(graph: Graph, block: Any, value: Name, factor: int, real: Mask) -> Name:
    for n, dilated in enumerate(block.dilated):
        hidden = real(convolve_frames(graph, graph("LeakyRelu", value, alpha=SLOPE), dilated), factor)
        if block.undilated:
            hidden = real(convolve_frames(graph, graph("LeakyRelu", hidden, alpha=SLOPE), block.undilated[n]), factor)
        value = graph("Add", value, hidden)
    return value
