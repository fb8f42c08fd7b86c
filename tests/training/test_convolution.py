"""Convolutions have the values and gradients that Keras's own have."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from voxline.training import convolution
from voxline.training.convolution import Convolution


def gradients(layer: Any, x: Any, training: bool, **options: Any) -> list[Any]:
    """Outputs, and gradients of the input and of the kernel."""
    arguments = {"training": training} if isinstance(layer, Convolution) else {}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None, x.shape[-1]], x.dtype)], **options)  # type: ignore[untyped-decorator]
    def compute(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, **arguments)
            shares = tf.reshape(tf.range(tf.size(outputs)), tf.shape(outputs))
            loss = tf.reduce_sum(tf.cast(outputs, tf.float32) * tf.sin(tf.cast(shares, tf.float32)))
        return outputs, *tape.gradient(loss, [x, *layer.trainable_variables])

    return [tf.cast(value, tf.float32).numpy() for value in compute(x)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("taps", [1, 4, 5])
@pytest.mark.parametrize("training", [False, True])
def test_a_convolution_trains_as_that_of_keras(
    monkeypatch: pytest.MonkeyPatch, training: bool, taps: int, batch: int
) -> None:
    monkeypatch.setattr(convolution, "LARGE", 0)
    x = tf.random.stateless_normal((batch, 7, 6), (1, 2))
    layer = Convolution(8, taps)
    peer = keras.layers.Conv1D(8, taps, padding="same", use_bias=False)
    layer.build(x.shape)
    peer.build(x.shape)
    peer.set_weights(layer.get_weights())

    # Values are the same operation's.
    expected = gradients(peer, x, training)
    outputs, *of_all = gradients(layer, x, training)
    np.testing.assert_array_equal(outputs, expected[0])
    for ours, theirs in zip(of_all, expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_xla_compiles_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "LARGE", 0)
    x = tf.random.stateless_normal((3, 9, 6), (1, 2))
    layer = Convolution(8, 5)
    layer.build(x.shape)
    for compiled, plain in zip(gradients(layer, x, True, jit_compile=True), gradients(layer, x, True), strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-4, atol=1e-5)


def test_half_precision_has_its_own_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "LARGE", 0)
    x = tf.cast(tf.random.stateless_normal((2, 9, 6), (1, 2)), tf.bfloat16)
    layer = Convolution(8, 5, dtype="mixed_bfloat16")
    layer.build(x.shape)
    peer = keras.layers.Conv1D(8, 5, padding="same", use_bias=False, dtype="mixed_bfloat16")
    peer.build(x.shape)
    peer.set_weights(layer.get_weights())
    for ours, theirs in zip(gradients(layer, x, True), gradients(peer, x, True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.03, atol=0.05)


def test_a_kernel_that_is_small_trains_without_a_loop() -> None:
    layer = Convolution(8, 5)
    layer.build((2, 9, 6))
    assert "while" not in str(loops(layer, 6))
    layer = Convolution(convolution.LARGE // 60 + 1, 5)
    layer.build((2, 9, 12))
    assert "while" in str(loops(layer, 12))


def loops(layer: Any, channels: int) -> list[str]:
    """The loops in the graph of a training step."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compute(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True))
        return tape.gradient(loss, layer.trainable_variables)

    operations = compute.get_concrete_function(tf.zeros((2, 9, channels))).graph.get_operations()
    return [operation.type.lower() for operation in operations if "While" in operation.type]
