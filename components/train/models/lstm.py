"""The LSTMs of Tacotron 2's decoder, whose matrices are applied where they cost least: outside the loop or in it."""

from typing import Any

import keras
from keras import layers, ops

Tensor = Any


class Gates(layers.Layer):  # type: ignore[misc]
    """Weights of one LSTM fed from two sides.

    Args:
      outer: width of the input known before the loop.
      context: width of the attention's context.
      units: of the state.
    """

    def __init__(self, outer: int, context: int, units: int, *, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        glorot = keras.initializers.GlorotUniform
        self.outer = self.add_weight(shape=(outer, 4 * units), initializer=glorot(seed), name="outer")
        self.context = self.add_weight(shape=(context, 4 * units), initializer=glorot(seed + 1), name="context")
        orthogonal = keras.initializers.Orthogonal(seed=seed + 2)
        self.recurrent = self.add_weight(shape=(units, 4 * units), initializer=orthogonal, name="recurrent")
        self.bias = self.add_weight(shape=(4 * units,), initializer=self._remembering, name="bias")
        self.built = True

    def _remembering(self, shape: Any, dtype: Any = None) -> Tensor:
        """Forget gates start open (Jozefowicz et al. 2015)."""
        units = self.units
        return ops.concatenate([ops.zeros(units), ops.ones(units), ops.zeros(2 * units)])

    def cast(self, weight: Tensor) -> Tensor:
        """A weight in the dtype of computation."""
        return ops.cast(weight, self.compute_dtype)


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output and cell state, float32 [batch, units], of gates [batch, 4 · units] in the order in, forget, out, new."""
    units = cell.shape[-1]
    gates = ops.cast(gates, "float32")
    opened = ops.sigmoid(gates[:, : 3 * units])
    cell = opened[:, units : 2 * units] * cell + opened[:, :units] * ops.tanh(gates[:, 3 * units :])
    return opened[:, 2 * units :] * ops.tanh(cell), cell
