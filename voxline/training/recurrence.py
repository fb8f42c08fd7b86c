"""Recurrent layers and loops over steps, with gradients that suit processors.

Keras runs a recurrent layer as a loop, and the gradient of a matrix in a loop costs more than all else: each step adds
to all of it, and lays out the transposed matrix again. `LoopKernel` does neither. `LSTM`, `GRU` and `SimpleRNN` are
Keras's layers, with the same weights and values; where there is a GPU, they run as Keras runs them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops

from voxline.training.layers import Tensor

PACKAGE = "voxline"
"""Under which Keras finds these layers again; `Bidirectional` makes its directions of their configs."""


class LoopCell:
    """A `keras.layers.RNN` cell around a function, which may refer to tensors; a layer may not."""

    def __init__(self, step: Any, states: int, compute_dtype: str = "float32") -> None:
        self._step = step
        self.compute_dtype = compute_dtype
        self.state_size = [1] * states

    def call(self, inputs: Tensor, states: Any) -> Any:
        return self._step(inputs, tuple(states))

    __call__ = call


def run_loop(step: Any, inputs: Tensor, states: Sequence[Tensor]) -> Any:
    """Outputs [batch, steps, …] of `step(inputs [batch, …], states) -> (outputs, states)`."""
    return layers.RNN(LoopCell(step, len(states)), return_sequences=True)(inputs, initial_state=list(states))


class LoopKernel:
    """A matrix that multiplies a value in each step of a loop, with a gradient that suits loops.

    The gradient of a matrix is a sum over steps, x dᵀ of the values x and the gradients d of their products. A loop
    would read and write all of it in each step; behind the loop it is one product. And the gradient of the values is a
    product with the transposed matrix, which is transposed once, before the loop.

    Args:
      kernel: [values, columns].

    Attributes:
      inputs: [batch, steps, values], all values; set it when the loop has run.
    """

    def __init__(self, kernel: Tensor) -> None:
        self._kernel = kernel
        self._fixed = ops.stop_gradient(kernel)
        self._transposed = ops.transpose(self._fixed)
        self.inputs: Tensor | None = None

    def multiply(self, values: Tensor) -> Tensor:
        """The product with values [batch, values] of a step; the matrix has no gradient by it."""

        @ops.custom_gradient  # type: ignore[untyped-decorator]
        def product(values: Tensor) -> Any:
            def gradient(*upstream: Tensor) -> Tensor:
                return ops.matmul(upstream[-1], self._transposed)

            return ops.matmul(values, self._fixed), gradient

        return product(values)

    def attach(self, terms: Tensor) -> Tensor:
        """Returns terms as they are, [batch, steps, columns], each of which the loop adds to one product.

        The gradient of a term is that of its product, and gives the matrix its own.
        """

        @ops.custom_gradient  # type: ignore[untyped-decorator]
        def same(terms: Tensor, kernel: Tensor) -> Any:
            def gradient(*upstream: Tensor) -> tuple[Tensor, Tensor]:
                if self.inputs is None:
                    raise ValueError("a LoopKernel's inputs are not set")
                # [batch · steps, values] and [batch · steps, columns] → [values, columns]
                values = ops.reshape(ops.cast(self.inputs, kernel.dtype), (-1, kernel.shape[0]))
                gradients = ops.reshape(ops.cast(upstream[-1], kernel.dtype), (-1, kernel.shape[1]))
                return upstream[-1], ops.matmul(ops.transpose(values), gradients)

            return terms, gradient

        return same(terms, self._kernel)


def of_step_before(x: Tensor) -> Tensor:
    """Moves [batch, steps, …] by one step, behind zeros."""
    return ops.pad(x[:, :-1], [(0, 0), (1, 0), (0, 0)])


Step = Callable[[Tensor, Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""A step's output [batch, units] and states, of the input's terms, the state's terms and the states before it."""


def _run_layer(
    layer: Any, sequences: Tensor, states: Any, mask: Any, step: Step
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Runs the loop of a recurrent layer; returns the last output, all outputs, and the last states.

    Args:
      sequences: [batch, steps, values].
      mask: bool [batch, steps]; where it is false, a step keeps states and output.
    """
    cell = layer.cell
    matrix = LoopKernel(ops.convert_to_tensor(cell.recurrent_kernel))
    apart = (
        len(cell.bias.shape) == 2
    )  # the state has a bias of its own, whose sum is scaled before the input's is added

    # [batch, steps, columns]: what does not depend on the states, of all steps in one product.
    terms = ops.matmul(sequences, cell.kernel) + (cell.bias[0] if apart else cell.bias)
    if apart:
        of_state = ops.broadcast_to(ops.cast(cell.bias[1], terms.dtype), ops.shape(terms))
        terms = ops.concatenate([terms, matrix.attach(of_state)], axis=-1)
    else:
        terms = matrix.attach(terms)

    def run_step(inputs: Tensor, states: Any) -> Any:
        product = matrix.multiply(states[0])
        if apart:
            # Parts of a split have one gradient, slices would each have one of the whole.
            inputs, of_state = ops.split(inputs, 2, axis=-1)
            product = product + of_state
        return step(inputs, product, list(states))

    loop = layers.RNN(
        LoopCell(run_step, len(states), layer.compute_dtype),
        return_sequences=True,
        return_state=True,
        go_backwards=layer.go_backwards,
        dtype=layer.dtype_policy,
    )
    outputs, *states = loop(terms, initial_state=list(states), mask=mask)

    # The output before each step, in the order of the sequence.
    before = of_step_before(outputs)
    matrix.inputs = ops.flip(before, axis=1) if layer.go_backwards else before

    # Kept outputs are what `before` needs; a direction of `Bidirectional` has zeros in their place.
    if mask is not None and layer.zero_output_for_mask:
        real = ops.flip(mask, axis=1) if layer.go_backwards else mask
        outputs = ops.where(ops.expand_dims(real, -1), outputs, ops.zeros((), outputs.dtype))
    return outputs[:, -1], outputs, states


def _runs_as_keras(layer: Any, training: bool | None) -> bool:
    """Whether Keras's own loop runs: on a GPU, without gradients, and with choices that no network here makes."""
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return has_gpu or not training or bool(layer.dropout or layer.recurrent_dropout) or not layer.use_bias


@keras.saving.register_keras_serializable(PACKAGE)
class LSTM(layers.LSTM):  # type: ignore[misc]
    """`keras.layers.LSTM` with faster gradients."""

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        if _runs_as_keras(self, training):
            return super().inner_loop(sequences, initial_state, mask, training=training)
        cell = self.cell

        def step(terms: Tensor, of_state: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            # [batch, 4 · units]: in, forget, new, out.
            gates = ops.split(terms + of_state, 4, axis=-1)
            kept = cell.recurrent_activation(gates[1]) * states[1]
            memory = kept + cell.recurrent_activation(gates[0]) * cell.activation(gates[2])
            output = cell.recurrent_activation(gates[3]) * cell.activation(memory)
            return output, [output, memory]

        return _run_layer(self, sequences, initial_state, mask, step)


@keras.saving.register_keras_serializable(PACKAGE)
class GRU(layers.GRU):  # type: ignore[misc]
    """`keras.layers.GRU`, with its reset gate after the product, and faster gradients."""

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        if _runs_as_keras(self, training) or not self.reset_after:
            return super().inner_loop(sequences, initial_state, mask, training=training)
        cell = self.cell

        def step(terms: Tensor, of_state: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            # [batch, 3 · units]: update, reset, new.
            update, reset, new = ops.split(terms, 3, axis=-1)
            update_of_state, reset_of_state, new_of_state = ops.split(of_state, 3, axis=-1)
            update = cell.recurrent_activation(update + update_of_state)
            reset = cell.recurrent_activation(reset + reset_of_state)
            candidate = cell.activation(new + reset * new_of_state)
            output = update * states[0] + (1 - update) * candidate
            return output, [output]

        return _run_layer(self, sequences, initial_state, mask, step)


@keras.saving.register_keras_serializable(PACKAGE)
class SimpleRNN(layers.SimpleRNN):  # type: ignore[misc]
    """`keras.layers.SimpleRNN` with faster gradients."""

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        if _runs_as_keras(self, training):
            return super().inner_loop(sequences, initial_state, mask, training=training)

        def step(terms: Tensor, of_state: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            # [batch, units]
            output = self.cell.activation(terms + of_state)
            return output, [output]

        return _run_layer(self, sequences, initial_state, mask, step)
