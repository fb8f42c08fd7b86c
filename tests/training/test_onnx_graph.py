"""8-bit layers of ONNX graphs: the same values on every processor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from tests.closeness import assert_close
from voxline.errors import WorkError
from voxline.training.onnx_graph import LARGEST_WEIGHT, Graph, recurrent

INPUTS, OUTPUTS, INT8 = 256, 8, TensorProto.INT8


def _run(build: Callable[[Graph, str], str], *shape: int, given: np.ndarray | None = None) -> np.ndarray:
    """What a graph makes of the loudest inputs, or of those given."""
    graph = Graph(int8=True)
    output = build(graph, "input")
    model = graph.finish(
        "test",
        [("input", TensorProto.FLOAT, list(shape))],
        [("output", output, TensorProto.FLOAT, [None] * len(shape))],
    )
    (values,) = onnxruntime.InferenceSession(model).run(
        None, {"input": np.ones(shape, np.float32) if given is None else given}
    )
    return np.asarray(values)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_8_bit_products_do_not_overflow(sign: int) -> None:
    """Two products of an unsigned and a signed byte do not fit in the 16 bits that AVX2 has for them."""
    kernel = np.full((INPUTS, OUTPUTS), sign, np.float32)
    kernel[:, 0] *= np.where(np.arange(INPUTS) % 2, 1, 0.5)
    expected = np.broadcast_to(kernel.sum(axis=0), (3, OUTPUTS))
    whole = _run(lambda graph, value: graph.product(value, kernel, np.zeros(OUTPUTS, np.float32)), 3, INPUTS)
    np.testing.assert_allclose(whole, expected, rtol=5e-3)
    kernel[-1] = -1.01 * kernel[0]  # the farthest from 0: the others have the other sign, and its largest integer
    expected = np.broadcast_to(kernel.sum(axis=0), (3, OUTPUTS))
    rounded = _run(lambda graph, value: graph.rowwise(value, kernel), 3, INPUTS)
    np.testing.assert_allclose(rounded, expected, rtol=0.01)


def test_weights_that_are_not_finite_are_refused() -> None:
    """Integers would speak, where the float32 graph gives no number."""
    kernel = np.full((INPUTS, OUTPUTS), np.nan, np.float32)
    with pytest.raises(WorkError, match="not finite"):
        _run(lambda graph, value: graph.rowwise(value, kernel), 3, INPUTS)


def test_the_gates_of_an_8_bit_lstm_do_not_overflow() -> None:
    import keras

    layer: Any = keras.layers.LSTM(OUTPUTS, return_sequences=True)
    layer.build((None, None, INPUTS))
    kernel, inner, bias = layer.get_weights()
    kernel[:] = 1 / 64
    kernel[:, 2 * OUTPUTS : 3 * OUTPUTS] /= 8  # so that the cell's input is not 1 anyway
    bias[:] = -3.0  # of the 4 that the inputs come to: the gates are between 0 and 1
    layer.set_weights([kernel, inner * 0, bias])
    expected = np.asarray(layer(np.ones((1, 1, INPUTS), np.float32)))[0]

    def build(graph: Graph, value: str) -> str:
        return recurrent(graph, layer, value, str(graph("Identity", np.array([1], np.int32))))

    found = _run(build, 1, 1, INPUTS)
    assert_close(found[0], expected, relative_to_peak=5e-3)


def test_two_products_of_a_row_fit_in_16_bits() -> None:
    """So that processors without VNNI, which add them there, compute the same."""
    kernel = np.random.default_rng(1).standard_normal((INPUTS, OUTPUTS)).astype(np.float32)
    graph = Graph()
    graph.rowwise("input", kernel)
    (whole,) = (np.asarray(numpy_helper.to_array(each)) for each in graph._constants.values() if each.data_type == INT8)
    assert np.abs(whole.astype(int)).max(axis=0).tolist() == [LARGEST_WEIGHT] * OUTPUTS
    assert 2 * LARGEST_WEIGHT * 255 < 2**15


def rounded_rows(value: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    largest = np.abs(value).max(axis=axes, keepdims=True)
    return np.round(value / largest * 127) * largest / 127


def rounded_columns(kernel: np.ndarray) -> np.ndarray:
    largest = np.abs(kernel).max(axis=0)
    return np.round(kernel / largest * 64) * largest / 64


def test_a_product_of_rows_is_that_of_rounded_values() -> None:
    random = np.random.default_rng(2)
    kernel = random.standard_normal((INPUTS, OUTPUTS)).astype(np.float32) * np.float32(0.3)
    given = (random.standard_normal((3, INPUTS)) * [[0.01], [1], [40]]).astype(np.float32)
    found = _run(lambda graph, value: graph.rowwise(value, kernel), 3, INPUTS, given=given)
    wanted = rounded_rows(given.astype(float), (1,)) @ rounded_columns(kernel.astype(float))
    np.testing.assert_allclose(found, wanted, atol=1e-3 * np.abs(wanted).max(axis=1).min())
    assert not np.allclose(wanted, given @ kernel, rtol=1e-3)  # so coarse that a wrong scale would show
    nothing = _run(lambda graph, value: graph.rowwise(value, kernel), 3, INPUTS, given=0 * given)
    assert not nothing.any()


@pytest.mark.parametrize("taps", [1, 4, 5])
def test_a_convolution_of_integers_is_that_of_rounded_values(taps: int) -> None:
    random = np.random.default_rng(taps)
    kernel, bias = random.standard_normal((taps, 6, OUTPUTS)).astype(np.float32), np.arange(OUTPUTS, dtype=np.float32)
    given = (random.standard_normal((2, 9, 6)) * [[[0.01]], [[30]]]).astype(np.float32)
    found = _run(lambda graph, value: graph.integer_convolution(value, kernel, bias), 2, 9, 6, given=given)
    columns = rounded_columns(kernel.astype(float).reshape(-1, OUTPUTS)).reshape(kernel.shape)
    padded = np.pad(rounded_rows(given.astype(float), (1, 2)), [(0, 0), ((taps - 1) // 2, taps // 2), (0, 0)])
    wanted = bias + sum(padded[:, tap : tap + 9] @ columns[tap] for tap in range(taps))
    assert_close(found, wanted, relative_to_peak=2e-4)
