"""Durations of VITS: drawn by a flow of splines (Kim et al. 2021, section 2.2.2), or one number for each symbol.

The flow turns noise into the logarithm of a symbol's frames. Each of its steps is a monotonic rational-quadratic spline
(Durkan et al. 2019, "Neural Spline Flows", arXiv 1906.04032), whose knots follow from the text. A call runs it as in
speech, from noise to durations; training runs it from durations to noise (`posterior`).
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.layers import Composite, Tensor, dropout, gelu, mask_padding

MIN_BIN = 1e-3
"""Least width and height of a piece of a spline, as a share of all, and least slope."""
LAST_EDGE = 1e-6
"""Added to the upper end, which belongs to the last piece."""
EPSILON = 1e-5
"""Of layer norms, PyTorch's default."""
DURATION_DROPOUT = 0.5
"""Dropout rate of the predictors in training, as the authors have it."""
DURATION_STREAM = 200
"""Of random numbers, for this dropout; layers add their number."""


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
        condition = self.condition(text, counts, speaker)

        # Both values of a symbol change places before each step, the last of which scales and shifts them.
        first = noise[..., 0]
        second = noise[..., 1]
        for flow in reversed(self.flows):
            changed = flow(second, first, condition, counts)
            first = second
            second = changed

        return (second - self.shift[0]) * ops.exp(-self.log_scale[0])

    def condition(
        self, text: Tensor, counts: Tensor, speaker: Tensor | None = None, seed: Tensor | None = None
    ) -> Tensor:
        """What the splines know of a text, [batch, symbols, units].

        Args:
          seed: int [2], of dropout; None: no dropout.
        """
        x = self.before(text)
        if speaker is not None and self.speaker is not None:
            x = x + self.speaker(speaker)
        return mask_padding(self.after(self.convolutions(x, counts, seed)), counts)


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
        return inverse_spline(second, *self._knots(first, condition, counts), self.bound)

    def forward(self, first: Tensor, second: Tensor, condition: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The second value in the direction of training, and the logarithm of the slope there, [batch, symbols]."""
        return forward_spline(second, *self._knots(first, condition, counts), self.bound)

    def _knots(self, first: Tensor, condition: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Widths, heights, and the slopes between pieces, of [batch, symbols, 3 · bins - 1] in all."""
        x = self.before(ops.expand_dims(first, -1)) + condition
        knots = mask_padding(self.knots(self.convolutions(x, counts)), counts)
        widths = knots[..., : self.bins] * self.scale
        heights = knots[..., self.bins : 2 * self.bins] * self.scale
        return widths, heights, knots[..., 2 * self.bins :]


def inverse_spline(y: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float) -> Tensor:
    """x of which a rational-quadratic spline makes y (Durkan et al. 2019, appendix A.1, equations 6 to 8).

    Args:
      y: [...]; what is not between -bound and bound stays as it is.
      widths, heights: [..., bins], of the pieces, before a softmax.
      slopes: [..., bins - 1], at the inner knots, before a softplus; 1 at the outer ones.
    """
    piece = _Piece.at(y, widths, heights, slopes, bound, of_heights=True)
    slope = piece.height / piece.width
    above = piece.bounded - piece.lower_y

    # a ξ² + b ξ + c = 0, with ξ the place within the piece from 0 to 1.
    bend = piece.left + piece.right - 2 * slope
    a = piece.height * (slope - piece.left) + above * bend
    b = piece.height * piece.left - above * bend
    c = -slope * above
    root = 2 * c / (-b - ops.sqrt(ops.maximum(ops.square(b) - 4 * a * c, 0.0)))
    x = root * piece.width + piece.lower_x

    return ops.where(piece.inside, x, y)


def forward_spline(x: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """y of a rational-quadratic spline and the logarithm of its slope at x (Durkan et al. 2019, equations 4 and 5).

    Args:
      x: [...]; what is not between -bound and bound stays as it is, with a slope of 1.
      widths, heights, slopes: as for `inverse_spline`.
    """
    piece = _Piece.at(x, widths, heights, slopes, bound, of_heights=False)
    slope = piece.height / piece.width

    # ξ, the place within the piece from 0 to 1, and ξ (1 - ξ).
    place = (piece.bounded - piece.lower_x) / piece.width
    product = place * (1 - place)
    denominator = slope + (piece.left + piece.right - 2 * slope) * product
    y = piece.lower_y + piece.height * (slope * ops.square(place) + piece.left * product) / denominator

    # dy/dx = s² (δ₊ ξ² + 2 s ξ (1 - ξ) + δ (1 - ξ)²) / denominator².
    numerator = piece.right * ops.square(place) + 2 * slope * product + piece.left * ops.square(1 - place)
    log_slope = 2 * ops.log(slope) + ops.log(numerator) - 2 * ops.log(denominator)

    return ops.where(piece.inside, y, x), ops.where(piece.inside, log_slope, 0.0)


class _Piece(NamedTuple):
    """The piece of a spline in which a value lies, [...] each.

    Attributes:
      inside: whether the value is between the bounds.
      bounded: the value, between the bounds.
      lower_x, lower_y: the lower end.
      left, right: slopes at both ends.
    """

    inside: Tensor
    bounded: Tensor
    width: Tensor
    height: Tensor
    lower_x: Tensor
    lower_y: Tensor
    left: Tensor
    right: Tensor

    @classmethod
    def at(
        cls, value: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float, *, of_heights: bool
    ) -> "_Piece":
        """Finds a piece by y (`of_heights`) or by x."""
        bins = widths.shape[-1]
        outer = math.log(math.exp(1 - MIN_BIN) - 1)

        # Knots [..., bins] at the lower and the upper end of each piece.
        lower_x, upper_x = _edges(widths, bins, bound)
        lower_y, upper_y = _edges(heights, bins, bound)
        slopes = ops.pad(slopes, [*[(0, 0)] * (len(slopes.shape) - 1), (1, 1)], constant_values=outer)
        slopes = MIN_BIN + ops.softplus(slopes)

        # 1 in the piece in which the value lies and 0 elsewhere.
        inside = ops.logical_and(value >= -bound, value <= bound)
        bounded = ops.clip(value, -bound, bound)
        place = ops.expand_dims(bounded, -1)
        last = np.array([0.0] * (bins - 1) + [LAST_EDGE], "float32")
        lower = lower_y if of_heights else lower_x
        upper = upper_y if of_heights else upper_x
        piece = ops.cast(ops.logical_and(place >= lower, place < upper + last), value.dtype)

        def of_piece(values: Tensor) -> Tensor:
            return ops.sum(values * piece, axis=-1)

        return cls(
            inside,
            bounded,
            width=of_piece(upper_x - lower_x),
            height=of_piece(upper_y - lower_y),
            lower_x=of_piece(lower_x),
            lower_y=of_piece(lower_y),
            left=of_piece(slopes[..., :-1]),
            right=of_piece(slopes[..., 1:]),
        )


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

    def call(self, x: Tensor, counts: Tensor, seed: Tensor | None = None) -> Tensor:
        """Takes [batch, symbols, channels], and returns it zero beyond a row's count.

        Args:
          seed: int [2], of dropout; None: no dropout.
        """
        norms = zip(self.first_norms, self.second_norms, strict=True)
        layers_and_norms = zip(self.depthwise, self.pointwise, norms, strict=True)
        for number, (depthwise, pointwise, (first, second)) in enumerate(layers_and_norms):
            # Over symbols, then over channels.
            y = gelu(first(depthwise(mask_padding(x, counts))))
            y = gelu(second(pointwise(y)))
            x = x + dropout(y, DURATION_DROPOUT, seed is not None, seed, DURATION_STREAM + number)
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

    def call(
        self,
        text: Tensor,
        counts: Tensor,
        noise: Tensor | None,
        speaker: Tensor | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """As `StochasticDurations.call`; the noise changes nothing.

        Args:
          seed: int [2], of dropout; None: no dropout.
        """
        x = text
        if speaker is not None and self.speaker is not None:
            x = x + self.speaker(speaker)
        for number, (layer, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            x = norm(ops.relu(layer(mask_padding(x, counts))))
            x = dropout(x, DURATION_DROPOUT, seed is not None, seed, DURATION_STREAM + number)
        return self.last(mask_padding(x, counts))[..., 0]


def dense_layer(units: int, seeds: Iterator[int]) -> layers.Layer:
    """A dense layer, with a seed of its own for its initial weights."""
    return layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(next(seeds)))


def convolution_layer(units: int, kernel: int, seeds: Iterator[int]) -> layers.Layer:
    """A convolution along time, likewise."""
    uniform = keras.initializers.GlorotUniform(next(seeds))
    return layers.Conv1D(units, kernel, padding="same", kernel_initializer=uniform)
