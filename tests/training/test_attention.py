"""Attention and activations that keep less for the gradients compute what Keras' do, and its gradients."""

import functools
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.closeness import assert_close
from voxline.training import attention as attention_module
from voxline.training.attention import attention
from voxline.training.custom_gradient import custom_gradient
from voxline.training.layers import gelu


def inputs() -> tuple[list[Any], Any]:
    """Query, key and value [3, 7, 2, 4], and a mask of rows with 7, 4 and 1 keys."""
    draw = np.random.default_rng(0)
    arrays = [tf.constant(draw.standard_normal((3, 7, 2, 4)), tf.float32) for _ in range(3)]
    return arrays, (np.arange(7) < np.array([[7], [4], [1]]))[:, None, None]


def results(arrays: list[Any], mask: Any) -> list[Any]:
    """The attended values, and the gradients of a loss by query, key and value."""

    @tf.function
    def compute(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            attended = attention(*tensors, tf.constant(mask))
            loss = tf.reduce_sum(attended * tf.cos(attended))
        return [attended, *tape.gradient(loss, tensors)]

    return [value.numpy() for value in compute(*arrays)]


@pytest.mark.parametrize("long", [1, 512], ids=["head by head", "at once"])
def test_attention_and_its_gradients_are_those_of_keras(long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_module, "LONG", long)
    monkeypatch.setattr(attention_module, "_has_accelerator", lambda: False)
    arrays, mask = inputs()
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        expected = ops.dot_product_attention(*arrays, mask=mask)
        loss = tf.reduce_sum(expected * tf.cos(expected))
    gradients = tape.gradient(loss, arrays)
    for value, reference in zip(results(arrays, mask), [expected, *gradients], strict=True):
        assert_close(value, reference.numpy(), relative_to_peak=1e-5)


def test_a_position_may_see_the_keys_before_it_alone() -> None:
    arrays, _ = inputs()
    order = np.arange(7)
    causal = (order[None] <= order[:, None])[None, None]
    attended = attention(*arrays, causal)
    expected = ops.dot_product_attention(*arrays, mask=causal)
    np.testing.assert_allclose(attended, expected, atol=1e-5)


def test_gelu_and_its_gradient_are_those_of_keras() -> None:
    x = tf.constant(np.linspace(-6, 6, 101), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        value = gelu(x)
        expected = ops.gelu(x, approximate=False)
    assert_close(value, expected, relative_to_peak=1e-6)
    assert_close(tape.gradient(value, x), tape.gradient(expected, x), relative_to_peak=1e-6)


@pytest.mark.parametrize("autograph", [False, True])
@pytest.mark.parametrize("how", ["tape", "tf.gradients"])
def test_gradients_of_ones_own_hold_within_a_loop(how: str, autograph: bool) -> None:
    start = tf.constant(np.linspace(-2, 2, 5), tf.float32)

    def compute(activation: Any) -> Any:
        def end(x: Any) -> Any:
            return tf.while_loop(lambda step, _: step < 3, lambda step, y: (step + 1, activation(y) * 2), (0, x))[1]

        if how == "tf.gradients":
            return tf.gradients(tf.reduce_sum(end(start)), start)[0]
        with tf.GradientTape() as tape:
            tape.watch(start)
            total = tf.reduce_sum(end(start))
        return tape.gradient(total, start)

    gradients = []
    for activation in (gelu, functools.partial(ops.gelu, approximate=False)):
        run = tf.function(functools.partial(compute, activation), autograph=autograph)
        gradients.append(run())
    assert_close(*gradients, relative_to_peak=1e-5)


def test_a_graph_is_freed_with_its_gradients() -> None:
    """`tf.custom_gradient` would register a function for each graph, and keep it."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def inner(x: Any) -> Any:
        return x * 2

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def compute(x: Any) -> Any:
        return tf.gradients(tf.reduce_sum(inner(gelu(x))), x)

    compute(tf.ones(3))
    graph = weakref.ref(compute.get_concrete_function(tf.ones(3)).graph)
    del compute
    gc.collect()
    assert graph() is None


def test_a_saved_model_has_gradients_of_ones_own(tmp_path: Path) -> None:
    module = tf.Module()
    module.compute = tf.function(gelu, input_signature=[tf.TensorSpec([None])], autograph=False)
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    x = tf.constant([-1.0, 0.5])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        value = loaded.compute(x)
        expected = gelu(x)
    assert_close(value, expected, relative_to_peak=1e-6)
    assert_close(tape.gradient(value, x), tape.gradient(expected, x), relative_to_peak=1e-6)


def test_a_variable_must_be_an_input() -> None:
    scale = tf.Variable(2.0, name="scale")

    @custom_gradient
    def scaled(x: Any) -> Any:
        return x * scale, lambda upstream: upstream * scale

    with pytest.raises(TypeError, match="scaled reads scale:0: variables must be among its inputs"):
        tf.function(scaled, autograph=False)(tf.ones(2))
