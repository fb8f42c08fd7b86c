"""Recurrent layers and loops have the values and gradients that Keras's own have."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from voxline.training import recurrence
from voxline.training.layers import bidirectional
from voxline.training.recurrence import GRU, LSTM, LoopInput, LoopKernel, SimpleRNN, before_each, run_loop

WAYS: dict[str, Callable[..., Any]] = {
    "graph": tf.function(autograph=False),
    "unknown shape": tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None, 4])]),
    "compiled": tf.function(autograph=False, jit_compile=True),
    "eager": lambda function: function,
}
"""How a layer is called, by name."""
KINDS = {LSTM: keras.layers.LSTM, GRU: keras.layers.GRU, SimpleRNN: keras.layers.SimpleRNN}


def gradients(layer: Any, sequence: Any, mask: Any, how: str = "graph") -> list[Any]:
    """Outputs, and gradients of the input and of all weights."""

    def compute(values: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = layer(values, mask=mask, training=True)
            shares = tf.reshape(tf.range(tf.size(outputs)), tf.shape(outputs))
            loss = tf.reduce_sum(tf.cast(outputs, tf.float32) * tf.sin(tf.cast(shares, tf.float32)))
        return outputs, tape.gradient(loss, [values, *layer.trainable_variables])

    outputs, of_inputs = WAYS[how](compute)(tf.constant(sequence))
    return [np.asarray(outputs, np.float32), *(np.asarray(gradient, np.float32) for gradient in of_inputs)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_trains_as_that_of_keras(kind: Any, backward: bool, masked: bool) -> None:
    random = np.random.default_rng(5)
    sequence = random.standard_normal((3, 7, 4)).astype(np.float32)
    mask = None
    if masked:
        # The ends of two rows, and a step between others.
        real = tf.sequence_mask([7, 2, 5], 7).numpy()
        real[0, 3] = False
        mask = tf.constant(real)
    layer = kind(6, return_sequences=True, go_backwards=backward)
    peer = KINDS[kind](6, return_sequences=True, go_backwards=backward)
    layer.build(sequence.shape)
    peer.build(sequence.shape)
    weights = [random.standard_normal(weight.shape).astype(np.float32) / 2 for weight in layer.get_weights()]
    layer.set_weights(weights)
    peer.set_weights(weights)
    for ours, theirs in zip(gradients(layer, sequence, mask), gradients(peer, sequence, mask), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_trains_however_it_is_called(kind: Any, how: str) -> None:
    layer, peer = (each(6, return_sequences=True, go_backwards=True) for each in (kind, KINDS[kind]))
    sequence = np.random.default_rng(3).standard_normal((3, 7, 4)).astype(np.float32)
    mask = tf.sequence_mask([7, 2, 5], 7)
    layer.build(sequence.shape)
    peer.build(sequence.shape)
    peer.set_weights(layer.get_weights())
    for ours, theirs in zip(gradients(layer, sequence, mask, how), gradients(peer, sequence, mask), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_a_mask_holds_are_those_of_keras(kind: Any, backward: bool, zero: bool) -> None:
    """From states that are not zero; a row begins with padding, another is nothing else."""
    random = np.random.default_rng(9)
    sequence = tf.constant(random.standard_normal((4, 5, 3)).astype(np.float32))
    real = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
    state = tf.constant(random.standard_normal((4, 6)).astype(np.float32))
    states = [state] * (2 if kind is LSTM else 1)
    layers = [
        each(6, return_sequences=True, return_state=True, go_backwards=backward, zero_output_for_mask=zero)
        for each in (kind, KINDS[kind])
    ]
    for layer in layers:
        layer.build(sequence.shape)
        layer.set_weights(layers[0].get_weights())

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compute(layer: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([sequence, *states])
            results = layer(sequence, initial_state=states, mask=tf.constant(real), training=True)
            loss = sum(tf.reduce_sum(tf.sin(value + place)) for place, value in enumerate(results))
        return results, tape.gradient(loss, [sequence, *states, *layer.trainable_variables])

    ours, theirs = (tf.nest.flatten(compute(layer)) for layer in layers)
    for values, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_have_the_shape_of_those_of_keras(kind: Any) -> None:
    layer, peer = (each(6, return_sequences=True) for each in (kind, KINDS[kind]))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compare(values: Any) -> None:
        assert layer(values, training=True).shape == peer(values, training=True).shape

    for shape in [(2, 5, 4), (None, 5, 4), (2, None, 4)]:
        compare.get_concrete_function(tf.TensorSpec(shape))


def test_a_gru_refuses_a_second_derivative() -> None:
    """It would be wrong without a word: what the first is made of counts as constant."""
    layer = GRU(6)
    sequence = tf.ones((2, 5, 4))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compute() -> Any:
        with tf.GradientTape() as outer:
            outer.watch(sequence)
            with tf.GradientTape() as inner:
                inner.watch(sequence)
                outputs = layer(sequence, training=True)
            slope = inner.gradient(outputs, sequence)
        return outer.gradient(slope, sequence)

    with pytest.raises(LookupError, match="no second derivative"):
        compute()


@pytest.mark.parametrize("activation", ["sigmoid", "softsign"])
def test_what_padding_holds_reaches_no_state(activation: str) -> None:
    sequence = np.random.default_rng(4).standard_normal((2, 5, 3)).astype(np.float32)
    real = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
    layer, peer = (each(4, return_sequences=True, recurrent_activation=activation) for each in (GRU, keras.layers.GRU))
    layer.build(sequence.shape)
    peer.build(sequence.shape)
    peer.set_weights(layer.get_weights())
    expected = gradients(peer, sequence, tf.constant(real))[0]

    # Without a sigmoid Keras's own choice between the states is made.
    padded = np.where(real[:, :, None], sequence, np.nan if activation == "sigmoid" else 9).astype(np.float32)
    outputs = gradients(layer, padded, tf.constant(real))[0]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_both_directions_train_as_those_of_keras(kind: Any) -> None:
    sequence = np.random.default_rng(6).standard_normal((2, 5, 3)).astype(np.float32)
    mask = tf.constant([[True, True, False, True, True], [True, True, True, False, False]])
    layer, peer = (bidirectional(each, 4, [1, 2, 3, 4], "float32", portable=True) for each in (kind, KINDS[kind]))
    assert type(layer.forward_layer) is kind
    for ours, theirs in zip(gradients(layer, sequence, mask), gradients(peer, sequence, mask), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_computes_in_half_precision(kind: Any) -> None:
    sequence = np.random.default_rng(7).standard_normal((2, 5, 3)).astype(np.float32)
    layer = kind(4, return_sequences=True, dtype="mixed_bfloat16")
    layer.build(sequence.shape)
    peer = KINDS[kind](4, return_sequences=True)
    peer.build(sequence.shape)
    random = np.random.default_rng(8)
    layer.set_weights([random.standard_normal(weight.shape) / 2 for weight in layer.get_weights()])
    peer.set_weights(layer.get_weights())
    for ours, theirs in zip(gradients(layer, sequence, None), gradients(peer, sequence, None), strict=True):
        assert np.abs(ours - theirs).max() < 0.05 * np.abs(theirs).max()


@pytest.mark.parametrize("fast_layout", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("how", ["eager", "tape", "tf.gradients"])
def test_matrices_of_a_loop_have_their_gradients(
    monkeypatch: pytest.MonkeyPatch, how: str, behind: bool, fast_layout: bool
) -> None:
    monkeypatch.setattr(recurrence, "has_fast_layout", lambda: fast_layout)
    monkeypatch.setattr(recurrence, "LARGE", 0)
    random = np.random.default_rng(3)
    kernels = [tf.Variable(random.standard_normal((5, 5)).astype(np.float32) / 3) for _ in range(2)]
    terms = tf.Variable(random.standard_normal((2, 6, 5)).astype(np.float32))
    shares = random.standard_normal((2, 6, 5)).astype(np.float32)

    def objective(fast: bool) -> Any:
        matrices = [LoopKernel(tf.convert_to_tensor(kernel)) for kernel in kernels]
        inputs = tf.convert_to_tensor(terms)
        loop_input = LoopInput(inputs, matrices if fast and behind else [])

        def step(x: Any, states: Any) -> Any:
            values = (states[0], states[0] ** 2)
            pairs = zip(values, matrices, kernels, strict=True)
            state = tf.tanh(x + sum(matrix.multiply(v) if fast else v @ kernel for v, matrix, kernel in pairs))
            return state, (state,)

        outputs = run_loop(step, loop_input.terms, (tf.zeros((2, 5)),))
        if fast and behind:
            loop_input.record([before_each(outputs), before_each(outputs**2)])
        return tf.reduce_sum(outputs * shares)

    def gradients_of_loop(fast: bool) -> Any:
        if how == "tf.gradients":
            return tf.gradients(objective(fast), [*kernels, terms])
        with tf.GradientTape() as tape:
            loss = objective(fast)
        return tape.gradient(loss, [*kernels, terms])

    compute = gradients_of_loop if how == "eager" else tf.function(gradients_of_loop, autograph=False)
    for ours, theirs in zip(compute(True), compute(False), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("behind", [False, True])
def test_a_graph_is_freed_with_its_layer(behind: bool) -> None:
    """`tf.custom_gradient` would register a function for each graph, and keep it."""
    layer = LSTM(3, return_sequences=True)
    layer.build((2, 4, 5))
    weight = tf.Variable(tf.eye(5))

    def run(values: Any) -> Any:
        if not behind:
            return layer(values, training=True)
        kernel = LoopKernel(tf.convert_to_tensor(weight))
        loop_input = LoopInput(values, [kernel])

        def step(x: Any, states: Any) -> Any:
            state = x + kernel.multiply(states[0])
            return state, (state,)

        outputs = run_loop(step, loop_input.terms, (tf.zeros((2, 5)),))
        loop_input.record([before_each(outputs)])
        return outputs

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compute(values: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(values))
        return tape.gradient(loss, [weight] if behind else layer.trainable_variables)

    compute(tf.zeros((2, 4, 5)))
    graph = weakref.ref(compute.get_concrete_function(tf.zeros((2, 4, 5))).graph)
    del compute
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize(
    ("limit", "flags", "expected"),
    [
        ("", "avx2 avx512f", True),
        ("AVX2", "avx2 avx512f", False),
        ("avx512_core", "avx2 avx512f", True),
        ("", "avx2", False),
        ("", "asimd", True),
    ],
)
def test_products_follow_the_instructions(
    monkeypatch: pytest.MonkeyPatch, limit: str, flags: str, expected: bool
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: f"flags : fpu {flags}\n")
    assert recurrence.has_fast_layout.__wrapped__() is expected
