"""Durations of VITS: drawn by a flow of splines (Kim et al. 2021, section 2.2.2), or one number for each symbol.

The flow turns noise into the logarithm of a symbol's frames. Each of its steps is a monotonic rational-quadratic spline
(Durkan et al. 2019, "Neural Spline Flows", arXiv 1906.04032), whose knots follow from the text. Here it runs as in
speech: from noise to durations.
"""

import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.layers import Composite, Tensor, gelu, mask_padding

MIN_BIN = 1e-3
"""Least width and height of a piece of a spline, as a share of all, and least slope."""
LAST_EDGE = 1e-6
"""Added to the upper end, which belongs to the last piece."""
EPSILON = 1e-5
"""Of layer norms, PyTorch's default."""


class StochasticDurations(Composite, layers.Layer):  # type: ignore[misc]
    """Draws log durations: noise in, as many as symbols, through splines that the encoded text decides."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        units = settings.units
        self.before = dense_layer(units, seeds)
        self.convolutions = DilatedConvolutions(settings, seeds)
        self.after = dense_layer(units, seeds)
        self.speaker = dense_layer(units, seeds) if settings.speakers else None
        self.flows = [SplineFlow(settings, seeds) for _ in range(settings.duration_flows)]
        self.shift = self.add_weight(shape=(2,), initializer="zeros", name="shift")
        self.log_scale = self.add_weight(shape=(2,), initializer="zeros", name="log_scale")

    def call(self, text: Tensor, counts: Tensor, noise: Tensor, speaker: Tensor | None = None) -> Tensor:
        """Natural logarithms of frames, float32 [batch, symbols]; undefined beyond a row's count.

        Args:
          text: [batch, symbols, units], zero beyond a row's count.
          noise: [batch, symbols, 2], of the deviation of the noise of durations.
          speaker: [batch, 1, values]; None: one speaker.
        """
        # [batch, symbols, units]
        x = self.before(text)
        if speaker is not None and self.speaker is not None:
            x = x + self.speaker(speaker)
        condition = mask_padding(self.after(self.convolutions(x, counts)), counts)

        # Both values of a symbol change places before each step, the last of which scales and shifts them.
        first = noise[..., 0]
        second = noise[..., 1]
        for flow in reversed(self.flows):
            changed = flow(second, first, condition, counts)
            first = second
            second = changed

        return (second - self.shift[0]) * ops.exp(-self.log_scale[0])


class SplineFlow(Composite, layers.Layer):  # type: ignore[misc]
    """One step: a spline on the second value of a symbol, with knots from the first one and the text."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = settings.duration_bins
        self.bound = settings.BOUND
        self.scale = 1 / math.sqrt(settings.units)
        self.before = dense_layer(settings.units, seeds)
        self.convolutions = DilatedConvolutions(settings, seeds)
        self.knots = layers.Dense(3 * self.bins - 1, kernel_initializer="zeros")

    def call(self, first: Tensor, second: Tensor, condition: Tensor, counts: Tensor) -> Tensor:
        """The second value in the direction of speech, [batch, symbols]."""

        # Knots [batch, symbols, 3 · bins - 1]: widths, heights, and the slopes between pieces.
        x = self.before(ops.expand_dims(first, -1)) + condition
        knots = mask_padding(self.knots(self.convolutions(x, counts)), counts)
        widths = knots[..., : self.bins] * self.scale
        heights = knots[..., self.bins : 2 * self.bins] * self.scale
        return inverse_spline(second, widths, heights, knots[..., 2 * self.bins :], self.bound)


def inverse_spline(y: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float) -> Tensor:
    """x of which a rational-quadratic spline makes y (Durkan et al. 2019, appendix A.1, equations 6 to 8).

    Args:
      y: [...]; what is not between -bound and bound stays as it is.
      widths, heights: [..., bins], of the pieces, before a softmax.
      slopes: [..., bins - 1], at the inner knots, before a softplus; 1 at the outer ones.
    """
    bins = widths.shape[-1]
    outer = math.log(math.exp(1 - MIN_BIN) - 1)

    # Knots [..., bins] at the lower and the upper end of each piece.
    lower_x, upper_x = _edges(widths, bins, bound)
    lower_y, upper_y = _edges(heights, bins, bound)
    slopes = ops.pad(slopes, [*[(0, 0)] * (len(slopes.shape) - 1), (1, 1)], constant_values=outer)
    slopes = MIN_BIN + ops.softplus(slopes)

    # The piece in which y lies: 1 there and 0 elsewhere.
    inside = ops.logical_and(y >= -bound, y <= bound)
    bounded = ops.expand_dims(ops.clip(y, -bound, bound), -1)
    last = np.array([0.0] * (bins - 1) + [LAST_EDGE], "float32")
    piece = ops.cast(ops.logical_and(bounded >= lower_y, bounded < upper_y + last), y.dtype)

    def of_piece(values: Tensor) -> Tensor:
        return ops.sum(values * piece, axis=-1)

    # Sizes of that piece, the slopes at both ends, and the height of y above the lower end, [...] each.
    width = of_piece(upper_x - lower_x)
    height = of_piece(upper_y - lower_y)
    left = of_piece(slopes[..., :-1])
    right = of_piece(slopes[..., 1:])
    slope = height / width
    above = bounded[..., 0] - of_piece(lower_y)

    # a ξ² + b ξ + c = 0, with ξ the place within the piece from 0 to 1.
    bend = left + right - 2 * slope
    a = height * (slope - left) + above * bend
    b = height * left - above * bend
    c = -slope * above
    root = 2 * c / (-b - ops.sqrt(ops.maximum(ops.square(b) - 4 * a * c, 0.0)))
    x = root * width + of_piece(lower_x)

    return ops.where(inside, x, y)


def _edges(sizes: Tensor, bins: int, bound: float) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of pieces that fill -bound to bound, [..., bins] each."""
    shares = MIN_BIN + (1 - MIN_BIN * bins) * ops.softmax(sizes, axis=-1)
    upper = 2 * bound * ops.cumsum(shares, axis=-1) - bound
    end = ops.full_like(upper[..., :1], bound)
    inner = upper[..., :-1]
    return ops.concatenate([-end, inner], axis=-1), ops.concatenate([inner, end], axis=-1)


class DilatedConvolutions(Composite, layers.Layer):  # type: ignore[misc]
    """Residual depthwise convolutions, each with a dilation that is a power of the kernel's size."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        count = settings.duration_layers
        kernel = settings.duration_kernel
        self.depthwise = [DepthwiseConvolution(settings.units, kernel, kernel**n, seeds) for n in range(count)]
        self.pointwise = [dense_layer(settings.units, seeds) for _ in range(count)]
        self.first_norms = [layers.LayerNormalization(epsilon=EPSILON) for _ in range(count)]
        self.second_norms = [layers.LayerNormalization(epsilon=EPSILON) for _ in range(count)]

    def call(self, x: Tensor, counts: Tensor) -> Tensor:
        """Takes [batch, symbols, channels], and returns it zero beyond a row's count."""
        norms = zip(self.first_norms, self.second_norms, strict=True)
        for depthwise, pointwise, (first, second) in zip(self.depthwise, self.pointwise, norms, strict=True):
            # Over symbols, then over channels.
            y = gelu(first(depthwise(mask_padding(x, counts))))
            x = x + gelu(second(pointwise(y)))
        return mask_padding(x, counts)


class DepthwiseConvolution(layers.Layer):  # type: ignore[misc]
    """A convolution of each channel by itself, as a sum of shifted products: TensorFlow's dilated one is far slower."""

    def __init__(self, channels: int, kernel: int, dilation: int, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dilation = dilation
        uniform = keras.initializers.GlorotUniform(next(seeds))
        self.kernel = self.add_weight(shape=(kernel, channels), initializer=uniform, name="kernel")
        self.bias = self.add_weight(shape=(channels,), initializer="zeros", name="bias")

    def call(self, x: Tensor) -> Tensor:
        """Takes and returns [batch, symbols, channels]; the padding is zero."""
        # Each tap reads the symbols that are its distance away.
        taps = self.kernel.shape[0]
        reach = taps // 2 * self.dilation
        length = ops.shape(x)[1]
        padded = ops.pad(x, [(0, 0), (reach, reach), (0, 0)])
        shifted = [padded[:, n * self.dilation : n * self.dilation + length] * self.kernel[n] for n in range(taps)]
        return sum(shifted[1:], shifted[0]) + self.bias


class FixedDurations(Composite, layers.Layer):  # type: ignore[misc]
    """One number for each symbol: two convolutions, each with ReLU and normalization, and a dense layer."""

    def __init__(self, settings: VitsSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.convolutions = [
            convolution_layer(settings.duration_channels, settings.duration_kernel, seeds) for _ in range(2)
        ]
        self.norms = [layers.LayerNormalization(epsilon=EPSILON) for _ in range(2)]
        self.last = dense_layer(1, seeds)
        self.speaker = dense_layer(settings.units, seeds) if settings.speakers else None

    def call(self, text: Tensor, counts: Tensor, noise: Tensor, speaker: Tensor | None = None) -> Tensor:
        """As `StochasticDurations.call`; the noise changes nothing."""
        x = text
        if speaker is not None and self.speaker is not None:
            x = x + self.speaker(speaker)
        for layer, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(ops.relu(layer(mask_padding(x, counts))))
        return self.last(mask_padding(x, counts))[..., 0]


def dense_layer(units: int, seeds: Iterator[int]) -> layers.Layer:
    """A dense layer, with a seed of its own for its initial weights."""
    return layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)))


def convolution_layer(units: int, kernel: int, seeds: Iterator[int]) -> layers.Layer:
    """A convolution along time, likewise."""
    uniform = keras.initializers.GlorotUniform(next(seeds))
    return layers.Conv1D(units, kernel, padding="same", kernel_initializer=uniform)
