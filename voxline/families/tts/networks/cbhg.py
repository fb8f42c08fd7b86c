"""CBHG: a bank of convolutions of every width, highway layers, a bidirectional GRU (Wang et al. 2017)."""

from typing import Any

import keras
from keras import layers, ops

from voxline.training.convolution import ConvBatchNorm
from voxline.training.layers import Composite, Tensor, bidirectional, mask_padding
from voxline.training.recurrence import GRU


class CBHG(Composite, layers.Layer):  # type: ignore[misc]
    """Maps [batch, length, inputs] to [batch, length, 2 · gru], or to [batch, length, channels] without a GRU.

    Args:
      bank: widest kernel of the bank, which has one convolution of each width from 1.
      channels: of each convolution of the bank, and of the highways.
      projection: channels of the first convolution after the bank; the second has `inputs`, for the residual.
      highways: number of highway layers.
      gru: units in each direction (0: none).
      seeds: an iterator over seeds.
    """

    def __init__(
        self,
        inputs: int,
        *,
        bank: int,
        channels: int,
        projection: int,
        highways: int,
        gru: int,
        seeds: Any,
        portable: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy

        def convolution(channels: int, taps: int, activation: str | None) -> ConvBatchNorm:
            return ConvBatchNorm(
                channels, taps, activation=activation, seed=next(seeds), activation_first=True, dtype=policy
            )

        def dense(units: int, activation: str, bias: float = 0.0) -> layers.Dense:
            return layers.Dense(
                units,
                activation,
                kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
                bias_initializer=keras.initializers.Constant(bias),
                dtype=policy,
            )

        # K sets of convolutions, of widths 1 to K: they see unigrams to K-grams of symbols.
        self.bank = [convolution(channels, taps, "relu") for taps in range(1, bank + 1)]
        self.projections = [convolution(projection, 3, "relu"), convolution(inputs, 3, None)]
        self.widen = None if inputs == channels else dense(channels, "linear")
        # A highway's gate starts nearly closed, so that a new layer passes its input on.
        self.highways = [(dense(channels, "relu"), dense(channels, "sigmoid", bias=-1.0)) for _ in range(highways)]
        self.recurrent = None
        self.width = channels
        if gru:
            self.recurrent = bidirectional(GRU, gru, [next(seeds) for _ in range(4)], policy, portable)
            self.width = 2 * gru

    def call(self, x: Tensor, counts: Tensor, training: bool = False) -> Tensor:
        """Takes [batch, length, inputs], zero beyond each row's count, and returns the same."""

        # [batch, length, bank · channels]
        banks = ops.concatenate([convolution(x, counts, training=training) for convolution in self.bank], axis=-1)
        # Max pooling over each position and the next one; beyond the last there is zero, as in any padding.
        y = ops.maximum(banks, ops.pad(banks[:, 1:], [(0, 0), (0, 1), (0, 0)]))
        y = mask_padding(y, counts)
        for projection in self.projections:
            y = projection(y, counts, training=training)

        # The residual connection around bank and projections.
        y = x + y
        if self.widen is not None:
            y = self.widen(y)

        # Highway (Srivastava et al. 2015): y = T(y) g + y (1 - g).
        for transform, gate in self.highways:
            share = gate(y)
            y = transform(y) * share + y * (1 - share)

        y = mask_padding(y, counts)
        if self.recurrent is not None:
            y = self.recurrent(y, mask=ops.arange(ops.shape(y)[1]) < ops.expand_dims(counts, 1))

        return mask_padding(y, counts)
