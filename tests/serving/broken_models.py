"""Exported models with a fault that shows only in service."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.causal_model import export_causal_model
from tests.tone_asr_model import WORDS, export_onnx_tones


def export_silent(folder: Path) -> Path:
    """Hears nothing: every text is empty."""
    return export_onnx_tones(folder, dict.fromkeys(WORDS, ""))


def export_fragile(folder: Path) -> Path:
    """Fails on all recordings but those of one or five words, as a graph with a fixed shape does."""
    export_onnx_tones(folder)
    model = onnx.load(str(folder / "model.onnx"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 5), np.int64), "limit"))
    _put_between(model, "heard", [helper.make_node("Add", ["heard", "limit"], ["heard_or_failed"])])
    return _save(folder, model)


def export_slow(folder: Path, size: int = 400) -> Path:
    """Multiplies large matrices for nothing before it answers."""
    export_onnx_tones(folder)
    model = onnx.load(str(folder / "model.onnx"))
    square = np.full((size, size), 1 / size, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(square, "square"))
    nodes = [helper.make_node("ReduceMax", ["rounded"], ["largest"], keepdims=0)]
    nodes += [helper.make_node("Mul", ["square", "largest"], ["product0"])]
    nodes += [helper.make_node("MatMul", ["square", f"product{n}"], [f"product{n + 1}"]) for n in range(6)]
    nodes += [
        helper.make_node("ReduceMax", ["product6"], ["spent"], keepdims=0),
        helper.make_node("Mul", ["spent", "none"], ["nothing"]),
        helper.make_node("Cast", ["nothing"], ["zero"], to=TensorProto.INT64),
        helper.make_node("Add", ["heard", "zero"], ["heard_slowly"]),
    ]
    _put_between(model, "heard", nodes)
    return _save(folder, model)


def export_fails_on_loud_streams(folder: Path, seed: int) -> Path:
    """A model that streams, until a sample is above half of full scale."""
    export_causal_model(folder, seed)
    model = onnx.load(str(folder / "stream.onnx"))
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array(0.5, np.float32), "half"),
            numpy_helper.from_array(np.zeros(1, np.float32), "one_value"),
        ]
    )
    nodes = [
        helper.make_node("Abs", ["samples"], ["loudness"]),
        helper.make_node("Greater", ["loudness", "half"], ["is_loud"]),
        helper.make_node("Cast", ["is_loud"], ["each_loud"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["each_loud"], ["loud"], keepdims=0),
        helper.make_node("Gather", ["one_value", "loud"], ["zero_or_failed"]),  # has an element 0, and no other
        helper.make_node("Add", ["v0_0", "zero_or_failed"], ["heard_or_failed"]),
    ]
    _put_between(model, "v0_0", nodes)
    onnx.checker.check_model(model)
    (folder / "stream.onnx").write_bytes(model.SerializeToString())
    return folder


def _put_between(model: onnx.ModelProto, name: str, nodes: list[onnx.NodeProto]) -> None:
    """Inserts nodes after the value `name`; what read it reads their last output."""
    at = next(index for index, node in enumerate(model.graph.node) if name in node.output)
    for node in model.graph.node:
        node.input[:] = [nodes[-1].output[0] if one == name else one for one in node.input]
    for offset, node in enumerate(nodes, start=1):
        model.graph.node.insert(at + offset, node)


def _save(folder: Path, model: onnx.ModelProto) -> Path:
    onnx.checker.check_model(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder
