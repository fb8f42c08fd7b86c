"""Convolutions over time, with a gradient of their filters that suits processors."""

from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops

from voxline.training.custom_gradient import custom_gradient
from voxline.training.layers import Composite, SequenceBatchNorm, Tensor, mask_padding

LARGE = 2**18
"""Weights from which the gradient of a kernel is computed as products: it costs a loop."""


class Convolution(layers.Conv1D):  # type: ignore[misc]
    """`keras.layers.Conv1D` over every frame, with faster gradients on processors.

    The gradient of the kernel is a product of frames side by side: TensorFlow's own takes twice as long where there is
    AVX2 and no AVX-512. Utterances take their turns, since the frames of all of them need too much memory.
    """

    def __init__(
        self, channels: int, taps: int, *, kernel_initializer: Any = "glorot_uniform", dtype: Any = None
    ) -> None:
        super().__init__(
            channels, taps, padding="same", use_bias=False, kernel_initializer=kernel_initializer, dtype=dtype
        )

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        """Takes and returns [batch, frames, channels]."""
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        if not training or has_gpu or self.kernel.shape.num_elements() < LARGE:
            return super().call(x)
        return _convolve(x, ops.cast(self.kernel, x.dtype))


@custom_gradient
def _convolve(x: Tensor, kernel: Tensor) -> Any:
    """The convolution of x [batch, frames, inputs] with a kernel [taps, inputs, outputs]."""
    taps, inputs, outputs = kernel.shape

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        of_x = tf.nn.conv1d_transpose(upstream, kernel, tf.shape(x), strides=1, padding="SAME")
        before = (taps - 1) // 2
        padded = tf.pad(x, [[0, 0], [before, taps - 1 - before], [0, 0]])
        frames = tf.shape(x)[1]

        def add(utterance: Tensor, of_kernel: Tensor) -> tuple[Tensor, Tensor]:
            # [frames, taps · inputs]: what the kernel multiplies for each frame, side by side. Two steps: XLA takes
            # padded[utterance, tap:] as padded[utterance, 0:].
            own = padded[utterance]
            windows = tf.concat([own[tap : tap + frames] for tap in range(taps)], axis=-1)
            product = tf.matmul(windows, upstream[utterance], transpose_a=True)
            return utterance + 1, of_kernel + tf.cast(product, tf.float32)

        of_kernel = tf.zeros([taps * inputs, outputs])
        _, of_kernel = tf.while_loop(
            lambda utterance, _: utterance < tf.shape(x)[0], add, (0, of_kernel), parallel_iterations=1
        )
        return of_x, tf.cast(tf.reshape(of_kernel, kernel.shape), kernel.dtype)

    return tf.nn.conv1d(x, kernel, stride=1, padding="SAME"), gradient


class ConvBatchNorm(Composite, layers.Layer):  # type: ignore[misc]
    """Convolution over time, masked batch normalization, activation; padded frames come out as zero.

    Padding "same" with a stride of 1 depends on the kernel only, not on the batch's length.

    Args:
      activation_first: apply the activation before the normalization.
    """

    def __init__(
        self,
        channels: int,
        taps: int,
        *,
        activation: str | None,
        seed: int,
        activation_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.convolution = Convolution(
            channels,
            taps,
            kernel_initializer=keras.initializers.GlorotUniform(seed),
            dtype=self.dtype_policy,
        )
        self.norm = SequenceBatchNorm(dtype=self.dtype_policy)
        self.activation = keras.activations.get(activation)
        self.activation_first = activation_first

    def call(self, x: Tensor, counts: Tensor, training: bool = False) -> Tensor:
        """Takes [batch, length, channels] with padded frames zero."""
        x = self.convolution(x, training=training)
        if self.activation_first:
            x = self.norm(self.activation(x), counts, training=training)
        else:
            x = self.activation(self.norm(x, counts, training=training))
        return mask_padding(x, counts)
