"""Layers and functions that the families share: masked batch normalization, dropout from a given seed, masks.

No layer changes its own state. The trainer changes all of it in one place, and skips steps that are not finite: a layer
that moved its statistics in the forward pass would already hold the NaN.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import layers, ops

from voxline.errors import SettingsError
from voxline.training.custom_gradient import custom_gradient


class Tensor(Protocol):
    """An array in a network: a tensor of TensorFlow, a symbolic one of Keras, or a numpy array.

    Neither TensorFlow nor Keras has types, so this names what the networks use: shape, dtype, indices and arithmetic.
    """

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, key: Any, /) -> Any: ...

    def __add__(self, other: Any, /) -> Any: ...

    def __radd__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...

    def __rsub__(self, other: Any, /) -> Any: ...

    def __mul__(self, other: Any, /) -> Any: ...

    def __rmul__(self, other: Any, /) -> Any: ...

    def __truediv__(self, other: Any, /) -> Any: ...

    def __rtruediv__(self, other: Any, /) -> Any: ...

    def __floordiv__(self, other: Any, /) -> Any: ...

    def __mod__(self, other: Any, /) -> Any: ...

    def __matmul__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Any: ...

    def __lt__(self, other: Any, /) -> Any: ...

    def __le__(self, other: Any, /) -> Any: ...

    def __gt__(self, other: Any, /) -> Any: ...

    def __ge__(self, other: Any, /) -> Any: ...

    def __and__(self, other: Any, /) -> Any: ...

    def __or__(self, other: Any, /) -> Any: ...


class FeatureNormalizer:
    """Normalizes raw features: by the mean and deviation of the training split, per bin; or by the utterance's level.

    Args:
      mean, deviation: of the features, per bin.
      top_db: above 0, features are log power relative to the level of their utterance: the mean, over its loudest
        `LOUD_FRAMES` frames, of each frame's loudest bin. What is more than this many dB below it is clipped, to 0; the
        level itself is 4. Mean and deviation then count for nothing. The same recording at another gain gives the same
        values, and the floor of a noisy room is that of a quiet one.

    >>> FeatureNormalizer([1.0, 2.0], [0.5, 4.0])(np.array([[2.0, 2.0]])).numpy().tolist()
    [[2.0, 0.0]]
    >>> quiet = np.log([[[1e-3, 1e-9], [1e-3, 1e-5]]])
    >>> FeatureNormalizer([0, 0], [1, 1], top_db=40.0)(quiet, np.array([2])).numpy().round(3).tolist()
    [[[4.0, 0.0], [4.0, 2.0]]]
    """

    LOUD_FRAMES = 8

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], top_db: float = 0.0) -> None:
        self.bins = len(mean)
        self.top_db = top_db
        self._shift = np.asarray(mean, "float32")
        self._scale = 1 / np.maximum(np.asarray(deviation, "float32"), 1e-5)

    def __call__(self, features: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalizes [..., bins], in float32.

        Args:
          frames: int [batch], the real ones; a level needs them, of features [batch, frames, bins].
        """
        features = ops.cast(features, "float32")
        if not self.top_db:
            return (features - self._shift) * self._scale

        # Relative to the utterance's level, in dB; 0 at the floor, 4 at the level.
        level = self._level(features, ops.cast(frames, "int32"))
        decibels = (features - ops.reshape(level, (-1, 1, 1))) * np.float32(10 / np.log(10))
        # Added to zeros of `bins` values, since a graph of the training does not know how many the features have.
        return np.zeros(self.bins, "float32") + ops.maximum(4 * (decibels / self.top_db + 1), 0.0)

    def _level(self, features: Tensor, frames: Tensor) -> Tensor:
        """Natural logarithm of power, [batch]."""
        frames = ops.maximum(frames, 1)
        real = length_mask(frames, ops.shape(features)[1])

        # The loudest bin of each frame, [batch, frames]; padded frames are never the loudest.
        peaks = ops.where(real, ops.max(features, axis=-1), -np.inf)
        peaks = ops.pad(peaks, [(0, 0), (0, self.LOUD_FRAMES)], constant_values=-np.inf)
        loudest, _ = ops.top_k(peaks, self.LOUD_FRAMES)

        # An utterance may have fewer frames than LOUD_FRAMES.
        counted = ops.minimum(frames, self.LOUD_FRAMES)
        summed = ops.sum(ops.where(length_mask(counted, self.LOUD_FRAMES), loudest, 0.0), axis=-1)
        return summed / ops.cast(counted, "float32")


class Composite:
    """A layer or network that makes its own weights when it is made; its layers make theirs when first called.

    Keras builds others by tracing the call once, only to find their weights: half of the time to make a network.
    """

    built = property(lambda self: True, lambda self, value: None)


class SequenceBatchNorm(layers.Layer):  # type: ignore[misc]
    """Batch normalization with statistics over real frames only (Ioffe and Szegedy 2015).

    Padded frames would pull the mean towards them, the more the batch is padded. Padded frames of the input may hold
    anything; those of the output are undefined.

    Attributes:
      batch_statistics: (mean, variance), each [channels], of the last batch in training.
      frozen: whether it normalizes by its moving statistics in training too (`train.freeze`).
    """

    def __init__(self, momentum: float = 0.98, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.frozen = False
        self.momentum = momentum
        self.epsilon = epsilon
        self.batch_statistics: tuple[Tensor, ...] = ()

    def build(self, shape: tuple[int | None, ...]) -> None:
        size = (shape[-1],)
        self.gamma = self.add_weight(shape=size, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=size, initializer="zeros", name="beta")
        self.moving_mean = self.add_weight(shape=size, initializer="zeros", name="moving_mean", trainable=False)
        self.moving_variance = self.add_weight(shape=size, initializer="ones", name="moving_variance", trainable=False)

    def call(self, x: Tensor, frames: Tensor, training: bool = False) -> Tensor:
        """Normalises [batch, frames, …, channels], of which `frames` [batch] are real."""
        if training and not self.frozen:
            mean, variance = self._of_batch(x, frames)
            self.batch_statistics = (mean, variance)
        else:
            mean = ops.convert_to_tensor(self.moving_mean)
            variance = ops.convert_to_tensor(self.moving_variance)

        # y = γ (x - μ) / σ + β as one product and one sum, in the dtype of x.
        scale = ops.cast(self.gamma, "float32") * ops.rsqrt(ops.cast(variance, "float32") + self.epsilon)
        shift = ops.cast(self.beta, "float32") - ops.cast(mean, "float32") * scale
        return x * ops.cast(scale, x.dtype) + ops.cast(shift, x.dtype)

    def _of_batch(self, x: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        real = ops.arange(ops.shape(x)[1]) < ops.expand_dims(frames, 1)

        # All axes but that of the channels; `inner` positions for each frame.
        axes = tuple(range(len(x.shape) - 1))
        real = ops.reshape(real, (*ops.shape(real), *([1] * (len(x.shape) - 2))))
        inner = 1
        for size in x.shape[2:-1]:
            inner *= size

        # Sums over real positions only, in float32.
        count = ops.maximum(ops.sum(ops.cast(frames, "float32")) * inner, 1.0)
        x = ops.cast(x, "float32")
        mean = ops.sum(ops.where(real, x, 0.0), axes) / count
        variance = ops.sum(ops.where(real, ops.square(x - mean), 0.0), axes) / count

        return mean, variance


class StepSeed(keras.random.SeedGenerator):  # type: ignore[misc]
    """Gives Keras's random functions a fixed seed instead of a counter in a variable.

    `noise` comes from (seed, step), so that a resumed run drops what the first would have dropped. `stream` keeps the
    layers of a model apart.
    """

    def __init__(self, noise: Tensor, stream: int) -> None:
        self._noise = noise
        self._stream = stream

    def next(self, ordered: bool = True) -> Tensor:
        return ops.cast(self._noise + ops.convert_to_tensor([0, self._stream], dtype="int32"), "uint32")


def length_mask(counts: Tensor, longest: Tensor | int) -> Tensor:
    """bool [batch, longest], true within each row's count."""
    return ops.arange(longest) < ops.expand_dims(ops.cast(counts, "int32"), 1)


def mask_padding(x: Tensor, counts: Tensor) -> Tensor:
    """Sets [batch, length, …] to zero beyond each row's count."""
    inside = length_mask(counts, ops.shape(x)[1])
    return ops.where(ops.expand_dims(inside, -1), x, ops.zeros((), x.dtype))


def mask(x: Tensor, real: Tensor | None) -> Tensor:
    """Zero where `real` [batch, length, 1] is false; None changes nothing."""
    return x if real is None else ops.where(real, x, ops.zeros((), x.dtype))


def pool_utterance(x: Tensor, frames: Tensor) -> Tensor:
    """Mean and maximum over real frames: [batch, frames, values] to [batch, 1, 2 · values]."""
    real = ops.expand_dims(ops.cast(length_mask(frames, ops.shape(x)[1]), x.dtype), -1)
    count = ops.cast(ops.maximum(frames, 1), x.dtype)[:, None, None]
    mean = ops.sum(x * real, axis=1, keepdims=True) / count
    lowest = (real - 1) * 1e4  # keeps padding from being the maximum, in half precision too
    return ops.concatenate([mean, ops.max(x + lowest, axis=1, keepdims=True)], axis=-1)


@custom_gradient
def gelu(x: Tensor) -> Any:
    """The Gaussian error linear unit, x Φ(x) (Hendrycks and Gimpel 2016, arXiv 1606.08415), by the error function.

    For the gradient it keeps its input alone, and no intermediate value of that size.
    """

    def distribution(values: Tensor) -> Tensor:
        return 0.5 * (1.0 + ops.erf(values * math.sqrt(0.5)))

    def gradient(upstream: Tensor) -> Tensor:
        # Φ(x) + x φ(x), with the density φ.
        density = ops.exp(-0.5 * ops.square(x)) / math.sqrt(2 * math.pi)
        return upstream * (distribution(x) + x * density)

    return x * distribution(x), gradient


def dropout(x: Tensor, rate: float, training: bool, noise: Tensor | None, stream: int) -> Tensor:
    """Dropout from a given seed."""
    if not training or not rate or noise is None:
        return x
    return keras.random.dropout(x, rate, seed=StepSeed(noise, stream))


class ConvNeXtBlock(Composite, layers.Layer):  # type: ignore[misc]
    """x + γ · W₂ gelu(W₁ norm(depthwise convolution of x)), with γ a number for each channel (Liu et al. 2022).

    Args:
      channels: of input and output; hidden: between the two dense layers.
      kernel: of the convolution; odd.
      scale: initial γ.
      seeds: three, of the initial weights.
    """

    def __init__(
        self, channels: int, hidden: int, kernel: int, *, scale: float, seeds: Sequence[int], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)

        # Each frame by itself but for the depthwise convolution, which sees its neighbors.
        depthwise, widen, narrow = map(keras.initializers.GlorotUniform, seeds)
        self.convolution = layers.DepthwiseConv1D(
            kernel, padding="same", depthwise_initializer=depthwise, dtype=self.dtype_policy
        )
        self.norm = layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy)
        self.widen = layers.Dense(hidden, "gelu", kernel_initializer=widen, dtype=self.dtype_policy)
        self.narrow = layers.Dense(channels, kernel_initializer=narrow, dtype=self.dtype_policy)
        self.scale = self.add_weight(shape=(channels,), initializer=keras.initializers.Constant(scale), name="scale")

    def call(self, x: Tensor) -> Tensor:
        """Takes and returns [batch, frames, channels]."""
        return x + ops.cast(self.scale, x.dtype) * self.narrow(self.widen(self.norm(self.convolution(x))))


def has_recurrent_layers(layer: layers.Layer) -> bool:
    """True if a layer or network, or a layer within it, is a recurrent one of Keras.

    >>> has_recurrent_layers(keras.Sequential([layers.Dense(2), layers.Bidirectional(layers.GRU(3))]))
    True
    >>> has_recurrent_layers(layers.Dense(2))
    False
    """
    return any(isinstance(each, layers.RNN) for each in layer._flatten_layers())


def recompute_blocks(network: keras.Model) -> None:
    """Lets the blocks of a network keep no activations (`train.recompute`).

    Raises:
      SettingsError: neither it nor a layer within it, such as an encoder, has a list of layers named `blocks`.
    """
    blocks = [block for layer in network._flatten_layers() for block in getattr(layer, "blocks", ())]
    if not blocks:
        raise SettingsError(
            f"train.recompute is true, and {type(network).__name__} has no blocks whose activations could be computed "
            "again; set it to false"
        )
    for block in blocks:
        recompute_in_backward(block)


def recompute_in_backward(layer: layers.Layer) -> None:
    """Lets a layer keep no activations for its gradients, but compute them again from its inputs.

    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174). The layer must be a function
    of its arguments and weights: dropout takes its seed from them.
    """
    call = layer.call

    @functools.wraps(call)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        values = keras.tree.flatten((args, kwargs))
        is_input = [ops.is_tensor(value) and keras.backend.is_float_dtype(value.dtype) for value in values]

        # Gradients pass through positional tensors alone; integers, such as lengths and seeds, have none.
        def of_tensors(*tensors: Tensor) -> Any:
            following = iter(tensors)
            whole = [next(following) if given else value for given, value in zip(is_input, values, strict=True)]
            positional, named = keras.tree.pack_sequence_as((args, kwargs), whole)
            return call(*positional, **named)

        tensors = [value for given, value in zip(is_input, values, strict=True) if given]
        return keras.remat(of_tensors)(*tensors)

    layer.call = recomputed


def bidirectional(kind: type[Any], units: int, seeds: list[int], precision: Any, portable: bool) -> layers.Layer:
    """A GRU or LSTM in both directions; `portable`: without cuDNN kernels."""

    def direction(direction_seeds: list[int], backward: bool) -> layers.Layer:
        kernel, state = direction_seeds
        return kind(
            units,
            return_sequences=True,
            go_backwards=backward,
            kernel_initializer=keras.initializers.GlorotUniform(kernel),
            recurrent_initializer=keras.initializers.Orthogonal(seed=state),
            use_cudnn=False if portable else "auto",
            dtype=precision,
        )

    return layers.Bidirectional(direction(seeds[:2], False), backward_layer=direction(seeds[2:], True), dtype=precision)
