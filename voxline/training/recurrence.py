"""Recurrent layers and loops over steps, with gradients that suit processors.

Keras runs a recurrent layer as a loop, whose gradients transpose the matrix of the state in each step, which costs more
than all else; `LoopKernel` does not. They also add up the gradient of the matrix step by step; with `LoopInput` a loop
does not. `LSTM`, `GRU` and `SimpleRNN` are Keras's layers, with the same weights and values, and multiply their input
before the loop; a GRU also computes its gradients at once, but for one product a step. Where there is a GPU, they run
as Keras runs them.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops

from voxline.training.custom_gradient import custom_gradient
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

    The gradient of the values is a product with the transposed matrix. TensorFlow transposes it in each step, which
    takes ten times as long as the product; here it is transposed once, before the loop.

    Args:
      kernel: [values, columns].
      training: False: nobody asks for gradients, as in a SavedModel, which has no place for such a one.

    Attributes:
      gradient_in_loop: whether the products give the matrix its gradient; False where a `LoopInput` does.
    """

    def __init__(self, kernel: Tensor, training: bool = True) -> None:
        self.kernel = tf.convert_to_tensor(kernel)
        self.gradient_in_loop = True
        self._transposed = ops.transpose(self.kernel) if training else None

    @property
    def has_own_gradient(self) -> bool:
        """Whether gradients are its own: those of TensorFlow are what an eager computation has."""
        return self._transposed is not None and not tf.executing_eagerly()

    def multiply(self, values: Tensor) -> Tensor:
        """The product with values [batch, values] of a step: [batch, columns]."""
        if self._transposed is None or not self.has_own_gradient:
            return ops.matmul(values, self.kernel)
        if self.gradient_in_loop:
            product = ops.matmul(ops.stop_gradient(values), self.kernel)
            return _with_gradient_of_values(product, values, self.kernel, self._transposed)
        product = _multiply(ops.stop_gradient(values), self.kernel, self._transposed)
        return _with_gradient_of_values(ops.stop_gradient(product), values, self.kernel, self._transposed)


@custom_gradient
def _with_gradient_of_values(product: Tensor, values: Tensor, kernel: Tensor, transposed: Tensor) -> Any:
    """The product, whose gradient the matrix gets too."""
    return product, lambda upstream: (upstream, _multiply(upstream, transposed, kernel), None, None)


def _multiply(values: Tensor, kernel: Tensor, transposed: Tensor) -> Tensor:
    """The product of values [batch, rows] and a matrix [rows, columns], which is given transposed too."""
    if has_fast_layout() or kernel.shape.num_elements() < LARGE:
        return ops.matmul(values, kernel)
    # oneDNN lays out its second matrix in each product, and by AVX2 this takes a third of a product of a few rows.
    return ops.transpose(tf.matmul(transposed, values, transpose_b=True))


LARGE = 2**18
"""Numbers of a matrix whose layout decides how long a product takes."""


@functools.cache
def has_fast_layout() -> bool:
    """Whether products are fast in any layout: on a GPU, by AVX-512, or by what is not known here, such as NEON."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    is_limited = bool(limit) and not limit.startswith(("AVX512", "AVX10", "DEFAULT", "ALL"))
    flags: list[str] = []
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    is_slow = "avx2" in flags and (is_limited or "avx512f" not in flags)
    return not is_slow or bool(tf.config.list_physical_devices("GPU"))


class LoopInput:
    """The input of a loop whose steps add it to products with matrices.

    The gradient of each matrix is then one product over all steps, after the loop. The loop itself would compute one
    in each step, of a few rows, and add it to the one before: it reads and writes the whole matrix each time. The
    gradients need the terms in the loop, and `record` after it.

    Args:
      terms: [batch, steps, columns]. A step must add them to the products as they are.
      kernels: whose gradients are computed here.

    Attributes:
      terms: the loop's input.
    """

    def __init__(self, terms: Tensor, kernels: Sequence[LoopKernel]) -> None:
        self.terms = terms
        self._kernels = [kernel for kernel in kernels if kernel.has_own_gradient]
        self._multiplied: list[Tensor] = []
        if self._kernels:
            self.terms = custom_gradient(self._pass)(terms, *(kernel.kernel for kernel in self._kernels))
            for kernel in self._kernels:
                kernel.gradient_in_loop = False

    def record(self, multiplied: Sequence[Tensor]) -> None:
        """Tells what each kernel has multiplied, before gradients are computed.

        Args:
          multiplied: [batch, steps, values] for each kernel, in the order of the terms.
        """
        self._multiplied = list(multiplied)

    def _pass(self, terms: Tensor, *_: Tensor) -> Any:
        return terms, self._gradients

    def _gradients(self, of_terms: Tensor) -> tuple[Tensor, ...]:
        """Of terms and matrices: the terms are added to the products, so theirs is that of each product."""
        gradients = []
        for kernel, values in zip(self._kernels, self._multiplied, strict=True):
            # [batch · steps, values] and [batch · steps, columns]; values may not tell their width.
            width, columns = kernel.kernel.shape
            rows = tf.reshape(values, [-1, width])
            gradients.append(tf.matmul(rows, tf.reshape(of_terms, [-1, columns]), transpose_a=True))
        return of_terms, *gradients


def before_each(outputs: Tensor) -> Tensor:
    """What each step of a loop begins with, where that is the output of the step before, and zero at first."""
    # [batch, steps, values]
    return ops.pad(outputs[:, :-1], [[0, 0], [1, 0], [0, 0]])


HELD = 1e4
"""The update gate's term by which a sigmoid is exactly 1, in every precision."""

Step = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""A step's output [batch, units] and states, of its terms and the states before it."""


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
    # [batch, steps, columns]: what does not depend on the states, of all steps in one product.
    terms = ops.matmul(sequences, cell.kernel) + cell.bias

    def run_step(inputs: Tensor, states: Any) -> Any:
        return step(inputs + matrix.multiply(states[0]), list(states))

    loop = layers.RNN(
        LoopCell(run_step, len(states), layer.compute_dtype),
        return_sequences=True,
        return_state=True,
        go_backwards=layer.go_backwards,
        zero_output_for_mask=layer.zero_output_for_mask,
        dtype=layer.dtype_policy,
    )
    outputs, *states = loop(terms, initial_state=list(states), mask=mask)
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

        def step(terms: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            # [batch, 4 · units]: in, forget, new, out.
            gates = ops.split(terms, 4, axis=-1)
            kept = cell.recurrent_activation(gates[1]) * states[1]
            memory = kept + cell.recurrent_activation(gates[0]) * cell.activation(gates[2])
            output = cell.recurrent_activation(gates[3]) * cell.activation(memory)
            return output, [output, memory]

        return _run_layer(self, sequences, initial_state, mask, step)


@keras.saving.register_keras_serializable(PACKAGE)
class GRU(layers.GRU):  # type: ignore[misc]
    """`keras.layers.GRU` with faster gradients, where it has its own activations and the reset gate after the product.

    These gradients have none themselves: a second derivative is refused.
    """

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        cell = self.cell
        activations = (cell.activation, cell.recurrent_activation)
        is_standard = activations == (keras.activations.tanh, keras.activations.sigmoid) and self.reset_after
        if _runs_as_keras(self, training) or not is_standard:
            return super().inner_loop(sequences, initial_state, mask, training=training)

        # [batch, steps, 3 · units]: update, reset, new; what does not depend on the state, of all steps in one product.
        terms = ops.matmul(sequences, cell.kernel) + cell.bias[0]
        if mask is not None:
            # An update gate of 1 keeps the state, which is the output. A loop that chooses between old and new in each
            # step takes longer, and so do its gradients.
            is_real = ops.cast(mask, "bool")[:, :, None]
            holding = HELD * ops.cast(ops.arange(3 * self.units) < self.units, terms.dtype)
            terms = ops.where(is_real, terms, holding)
        if self.go_backwards:
            terms = ops.flip(terms, axis=1)

        kernel, bias = ops.convert_to_tensor(cell.recurrent_kernel), ops.convert_to_tensor(cell.bias[1])
        # [steps, batch, …] in the loop
        states = _run_gru(ops.transpose(terms, [1, 0, 2]), initial_state[0], kernel, bias)
        outputs = ops.transpose(states, [1, 0, 2])
        last = outputs[:, -1]

        if mask is not None:
            # As in Keras: zero before the first real step, whatever the state is there, or in all steps that are held.
            has_output = ops.flip(is_real, axis=1) if self.go_backwards else is_real
            if not self.zero_output_for_mask:
                has_output = ops.cumsum(ops.cast(has_output, "int32"), axis=1) > 0
            outputs = ops.where(has_output, outputs, ops.zeros((), outputs.dtype))
        return outputs[:, -1], outputs, [last]


@custom_gradient
def _run_gru(terms: Tensor, state: Tensor, kernel: Tensor, bias: Tensor) -> Any:
    """The states after each step of a gated recurrent unit whose reset gate follows the product.

    With h the state before a step, [u, r, n] its terms and [u', r', n'] = h kernel + bias, the state after it is

      z h + (1 - z) c,    z = σ(u + u'),    ρ = σ(r + r'),    c = tanh(n + ρ n')

    as in Keras (`reset_after`) and in PyTorch. The gradients of u', r' and n' are that of the state after the step,
    times factors that are known once all states are. So the loop of the gradients multiplies by them and by the kernel;
    TensorFlow's own keeps each intermediate value of each step, and goes back over all of them.
    They refuse to have gradients: those would lack what follows from the values of the first loop.

    Args:
      terms: [steps, batch, 3 · units].
      state: [batch, units], before the first step.
      kernel: [units, 3 · units].
      bias: [3 · units].

    Returns:
      [steps, batch, units]
    """
    units = kernel.shape[0]
    steps = tf.shape(terms)[0]
    transposed = ops.transpose(kernel)
    gate_terms, new_terms = tf.split(terms, [2 * units, units], axis=-1)
    gate_bias, new_bias = tf.split(bias, [2 * units, units])
    gate_terms_of_steps, new_terms_of_steps = _unstack(gate_terms + gate_bias), _unstack(new_terms)

    def step(number: Tensor, before: Tensor, afters: Any) -> Any:
        # [batch, 2 · units] and [batch, units]
        gates_of_state, new_of_state = tf.split(_multiply(before, kernel, transposed), [2 * units, units], axis=-1)
        gates = tf.sigmoid(gate_terms_of_steps.read(number) + gates_of_state)
        update, reset = tf.split(gates, 2, axis=-1)
        candidate = tf.tanh(new_terms_of_steps.read(number) + reset * (new_of_state + new_bias))
        after = update * before + (1 - update) * candidate
        return number + 1, after, afters.write(number, after)

    unwritten = tf.TensorArray(terms.dtype, size=steps, element_shape=state.shape)
    _, _, afters = tf.while_loop(lambda number, *_: number < steps, step, [0, state, unwritten])
    states = tf.ensure_shape(afters.stack(), [terms.shape[0], *state.shape])

    def run_gradients(of_states: Tensor) -> tuple[Tensor, ...]:
        # All steps at once: [steps, batch, …]
        before = tf.concat([state[None], states[:-1]], 0)
        gates_of_state, new_of_state = tf.split(tf.matmul(before, kernel) + bias, [2 * units, units], axis=-1)
        update, reset = tf.split(tf.sigmoid(gate_terms + gates_of_state), 2, axis=-1)
        candidate = tf.tanh(new_terms + reset * new_of_state)
        of_new = (1 - update) * (1 - candidate**2)
        of_update = (before - candidate) * update * (1 - update)
        of_reset = of_new * new_of_state * reset * (1 - reset)
        # [steps, batch, 3, units]
        factors = tf.stack([of_update, of_reset, of_new * reset], 2)
        upstream_of_steps, update_of_steps, factors_of_steps = map(_unstack, (of_states, update, factors))

        def step_back(number: Tensor, of_later: Tensor, of_afters: Any) -> Any:
            of_after = upstream_of_steps.read(number) + of_later
            of_product = factors_of_steps.read(number) * of_after[:, None]
            of_before = _multiply(tf.reshape(of_product, [-1, 3 * units]), transposed, kernel)
            of_before += update_of_steps.read(number) * of_after
            return number - 1, of_before, of_afters.write(number, of_after)

        unwritten = tf.TensorArray(terms.dtype, size=steps, element_shape=state.shape)
        start = [steps - 1, tf.zeros_like(state), unwritten]
        _, of_state, of_afters = tf.while_loop(lambda number, *_: number >= 0, step_back, start)
        of_afters = of_afters.stack()

        # [steps · batch, …]
        of_products = tf.reshape(factors * of_afters[:, :, None], [-1, 3 * units])
        of_kernel = tf.matmul(tf.reshape(before, [-1, units]), of_products, transpose_a=True)
        of_gates = tf.reshape(of_products, tf.shape(terms))[:, :, : 2 * units]
        of_terms = tf.concat([of_gates, of_new * of_afters], -1)
        results = (of_terms, of_state, of_kernel, tf.reduce_sum(of_products, 0))
        return tuple(
            tf.raw_ops.PreventGradient(input=result, message="a GRU has no second derivative") for result in results
        )

    return states, run_gradients


def _unstack(values: Tensor) -> Any:
    """An array of the values of each step, which are [steps, …]."""
    array = tf.TensorArray(values.dtype, size=tf.shape(values)[0], element_shape=values.shape[1:])
    return array.unstack(values)


@keras.saving.register_keras_serializable(PACKAGE)
class SimpleRNN(layers.SimpleRNN):  # type: ignore[misc]
    """`keras.layers.SimpleRNN` with faster gradients."""

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        if _runs_as_keras(self, training):
            return super().inner_loop(sequences, initial_state, mask, training=training)

        def step(terms: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            # [batch, units]
            output = self.cell.activation(terms)
            return output, [output]

        return _run_layer(self, sequences, initial_state, mask, step)
