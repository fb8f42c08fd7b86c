"""Location-sensitive attention, which sees the attention weights of earlier steps.

After Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", as Tacotron 2 uses it.
"""

from typing import Any, NamedTuple

import keras
from keras import layers, ops

from voxline.families.tts.networks.settings import AttentionSettings
from voxline.training.layers import Tensor


class AttentionKernels(NamedTuple):
    """The attention's weights in the compute dtype, fetched once before the loop."""

    query: Tensor
    location: Tensor | None
    energy: Tensor


class LocationSensitiveAttention(layers.Layer):  # type: ignore[misc]
    """energy = v · tanh(query + key + location + b), weights = softmax(energy) over real symbols.

    Args:
      query_units: size of a query.
      memory_units: size of an encoded symbol.
    """

    def __init__(
        self, settings: AttentionSettings, query_units: int, memory_units: int, *, seed: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        units = settings.units
        filters = settings.location_filters
        glorot = keras.initializers.GlorotUniform

        # W, V, b and w of the paper's energy e = w · tanh(W s + V h + U f + b).
        self.query = self.add_weight(shape=(query_units, units), initializer=glorot(seed), name="query")
        self.key = self.add_weight(shape=(memory_units, units), initializer=glorot(seed + 1), name="key")
        self.bias = self.add_weight(shape=(units,), initializer="zeros", name="bias")
        self.energy = self.add_weight(shape=(units, 1), initializer=glorot(seed + 2), name="energy")
        self.location_channels = 2 if settings.location == "previous_and_cumulative" else 1

        # F and U: features f of where the attention has been, f = F ∗ weights, and their projection.
        if filters:
            shape = (settings.location_kernel, self.location_channels, filters)
            self.filters = self.add_weight(shape=shape, initializer=glorot(seed + 3), name="filters")
            self.location = self.add_weight(shape=(filters, units), initializer=glorot(seed + 4), name="location")

        self.built = True

    def keys(self, memory: Tensor) -> Tensor:
        """The keys [batch, symbols, units] of the encoded text [batch, symbols, memory], with the bias added."""
        dtype = self.compute_dtype
        return ops.matmul(ops.cast(memory, dtype), ops.cast(self.key, dtype)) + ops.cast(self.bias, dtype)

    def kernels(self) -> AttentionKernels:
        """Weights for `weigh`, in the compute dtype; location convolution and projection are merged into one kernel."""
        dtype = self.compute_dtype
        location = None
        if self.settings.location_filters:
            # Both are linear, so their product is one kernel: [taps, channels, units].
            location = ops.cast(ops.tensordot(self.filters, self.location, axes=1), dtype)
        return AttentionKernels(ops.cast(self.query, dtype), location, ops.cast(self.energy, dtype))

    def weigh(
        self, query: Tensor, keys: Tensor, real: Tensor, previous: Tensor, cumulative: Tensor, kernels: AttentionKernels
    ) -> Tensor:
        """Attention weights of one step, float32 [batch, symbols]; zero on padding.

        Args:
          query: [batch, query units].
          keys: [batch, symbols, units], as `keys` returns them.
          real: bool [batch, symbols].
          previous, cumulative: float32 [batch, symbols], weights of the previous step, and the sum of all so far.
        """
        dtype = self.compute_dtype

        # [batch, symbols, units]: the query is the same for all symbols.
        summed = keys + ops.expand_dims(ops.matmul(ops.cast(query, dtype), kernels.query), 1)
        if kernels.location is not None:
            channels = [previous, cumulative] if self.location_channels == 2 else [cumulative]

            # [batch, symbols, channels] → [batch, symbols, units]
            past = ops.cast(ops.stack(channels, axis=-1), dtype)
            summed = summed + ops.conv(past, kernels.location, padding="same")

        # [batch, symbols]. The softmax over hundreds of symbols needs float32.
        energy = ops.cast(ops.squeeze(ops.matmul(ops.tanh(summed), kernels.energy), -1), "float32")
        if not self.settings.smoothing:
            return ops.softmax(ops.where(real, energy, -1e9), axis=-1)

        # Smoothing: sigmoids in place of the exponentials of the softmax.
        weights = ops.where(real, ops.sigmoid(energy), 0.0)

        return weights / (ops.sum(weights, axis=-1, keepdims=True) + 1e-9)
