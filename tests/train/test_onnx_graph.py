"""8-bit layers of ONNX graphs: the same values on every processor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from voxline.components.train.onnx_graph import Graph, recurrent

INPUTS, OUTPUTS = 256, 8


def _run(build: Callable[[Graph, str], str], *shape: int) -> np.ndarray:
    """What a graph makes of the loudest inputs."""
    graph = Graph(int8=True)
    output = build(graph, "input")
    model = graph.finish(
        "test",
        [("input", TensorProto.FLOAT, list(shape))],
        [("output", output, TensorProto.FLOAT, [None] * (2 if len(shape) == 2 else 3))],
    )
    (values,) = onnxruntime.InferenceSession(model).run(None, {"input": np.ones(shape, np.float32)})
    return np.asarray(values)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_8_bit_products_do_not_overflow(sign: int) -> None:
    """Two products of an unsigned and a signed byte do not fit in the 16 bits that AVX2 has for them."""
    kernel = np.full((INPUTS, OUTPUTS), sign, np.float32)
    kernel[:, 0] *= np.where(np.arange(INPUTS) % 2, 1, 0.5)
    expected = np.broadcast_to(kernel.sum(axis=0), (3, OUTPUTS))
    whole = _run(lambda graph, value: graph.product(value, kernel, np.zeros(OUTPUTS, np.float32)), 3, INPUTS)
    np.testing.assert_allclose(whole, expected, rtol=5e-3)
    blocks = _run(lambda graph, value: graph.blockwise(value, kernel), 3, INPUTS)
    np.testing.assert_allclose(blocks, expected, rtol=5e-3)


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
    np.testing.assert_allclose(found[0], expected, atol=5e-3)
