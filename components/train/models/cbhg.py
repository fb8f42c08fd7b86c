"""CBHG: a bank of convolutions of every width, highway layers, a bidirectional GRU (Wang et al. 2017)."""

from typing import Any

import keras
from keras import layers, ops

from voxline.components.train.models.layers import ConvBatchNorm, bidirectional, mask_padding

Tensor = Any


class CBHG(layers.Layer):  # type: ignore[misc]
    """From [batch, length, inputs] to [batch, length, 2 · gru], or to `channels` where there is no GRU.

    Args:
      bank: widest convolution of the bank; there is one of each width from 1.
      channels: of each of the bank, and of the highways.
      projections: channels of the two convolutions after the bank; the second one is `inputs`, for the residual.
      highways: how many.
      gru: units in each direction (0: none).
      seeds: an endless source of them.
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
            return ConvBatchNorm(channels, taps, activation=activation, seed=next(seeds), first=True, dtype=policy)

        def dense(units: int, activation: str, bias: float = 0.0) -> layers.Dense:
            return layers.Dense(
                units,
                activation,
                kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
                bias_initializer=keras.initializers.Constant(bias),
                dtype=policy,
            )

        self.bank = [convolution(channels, taps, "relu") for taps in range(1, bank + 1)]
        self.projections = [convolution(projection, 3, "relu"), convolution(inputs, 3, None)]
        self.widen = None if inputs == channels else dense(channels, "linear")
        # A highway's gate starts nearly shut, so that a new layer passes on what it got.
        self.highways = [(dense(channels, "relu"), dense(channels, "sigmoid", bias=-1.0)) for _ in range(highways)]
        self.recurrent = None
        self.width = channels
        if gru:
            self.recurrent = bidirectional(layers.GRU, gru, [next(seeds) for _ in range(4)], policy, portable)
            self.width = 2 * gru

    def call(self, x: Tensor, counts: Tensor, training: bool = False) -> Tensor:
        """`x`: zero past each row's count, as what comes out is."""
        banks = ops.concatenate([convolution(x, counts, training=training) for convolution in self.bank], axis=-1)
        # The largest of a place and the one after it. What stands after the last is zero, as in any padding.
        y = ops.maximum(banks, ops.pad(banks[:, 1:], [(0, 0), (0, 1), (0, 0)]))
        y = mask_padding(y, counts)
        for projection in self.projections:
            y = projection(y, counts, training=training)
        y = x + y
        if self.widen is not None:
            y = self.widen(y)
        for through, gate in self.highways:
            opened = gate(y)
            y = through(y) * opened + y * (1 - opened)
        y = mask_padding(y, counts)
        if self.recurrent is not None:
            y = self.recurrent(y, mask=ops.arange(ops.shape(y)[1]) < ops.expand_dims(counts, 1))
        return mask_padding(y, counts)
