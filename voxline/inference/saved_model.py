"""The exported model: a SavedModel, and the `model.json` that describes it.

It is loaded without the model's own code: evaluate and push judge the very bytes that ship. `recognizer` and
`synthesizer` run it. TensorFlow is imported when a model is loaded, not before; so is numpy.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from voxline.errors import WorkError
from voxline.inference.model_info import ModelInfo
from voxline.inference.tensorflow_import import import_tensorflow
from voxline.store.files import is_unfinished, read_json, write_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.versioned_json import parse_versioned
from voxline.text.public_tokenizer import TOKENIZER_JSON, TOKENIZER_MODEL

MODEL_JSON = "model.json"
LANGUAGE_MODEL = "language_model"
"""The folder of a language model within that of a recognizer."""
VOCODER = "vocoder"
"""The folder of a vocoder within that of a voice."""
MODEL_PARTS = (
    "saved_model.pb",
    "fingerprint.pb",
    "variables",
    "assets",
    "assets.extra",
    "model.onnx",
    "decoder.onnx",
    "stream.onnx",
    TOKENIZER_JSON,
    TOKENIZER_MODEL,
    LANGUAGE_MODEL,
    VOCODER,
    MODEL_JSON,
)
"""The files of an exported model. Anything else in its folder, such as a model card, is not part of it."""

CURVES_FILE = "curves.json"
"""Of a training, beside its exported model: its losses, and what each validation measured."""
TRAINING_FOLDERS = ("checkpoints/", "best/", "logs/")
"""Folders in train's output that are not needed to run the model."""

_OPS = """
Abs AddN AddV2 All Any ArgMax AssignVariableOp BatchMatMulV2 BatchToSpaceND BiasAdd Bitcast BitwiseAnd
BroadcastTo Cast Ceil Complex ConcatV2 Const Conv2D Conv2DBackpropInput Cos Cumsum DepthwiseConv2dNative
DisableCopyOnRead Einsum EnsureShape Equal Erf Erfc Exp ExpandDims Fill FloorDiv FloorMod GatherV2 Greater
GreaterEqual IRFFT Identity IdentityN Imag IsFinite LeakyRelu Less LessEqual Log Log1p LogSoftmax LogicalAnd
LogicalNot LogicalOr MatMul MatrixInverse Max Maximum Mean Min Minimum MirrorPad Mul Neg NoOp NotEqual OneHot
OnesLike Pack Pad PadV2 PartitionedCall Placeholder Pow Prod RFFT Range ReadVariableOp Real RealDiv ReduceJoin
Relu Reshape ResourceGather ReverseV2 Round Rsqrt Select SelectV2 Shape Sigmoid Sin Slice Softmax Softplus
SpaceToBatchND Split SplitV Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall StatelessIf
StatelessRandomGetKeyCounter StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessWhile
StaticRegexFullMatch StopGradient StridedSlice StringJoin StringStrip Sub Sum Tanh TensorListFromTensor
TensorListGetItem TensorListReserve TensorListSetItem TensorListStack Tile TopKV2 Transpose VarHandleOp While
ZerosLike
"""
ALLOWED_OPS = frozenset(_OPS.split())
"""The ops of the models that Voxline exports, which compute on tensors, strings and weights alone, and a few more such
ops that small networks use. TensorFlow has a thousand others; some read files, call Python or reach other machines.
"""
_SAVE_OPS = frozenset(("SaveV2", "MergeV2Checkpoints", "ShardedFilename"))
"""In each SavedModel, in the function that its saver writes checkpoints with. Loading and signatures do not run it."""
_RESTORE_OPS = frozenset(("RestoreV2",))
"""In the function that reads the weights, which some loaders run: TensorFlow Serving does."""
MORE_OPS_VARIABLE = "VOXLINE_ALLOWED_OPS"
"""Of the environment: further ops, for a network of one's own, with commas between them."""


class SignatureSpec(NamedTuple):
    """The inputs of a signature, and the outputs that it must have at least."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def find_curves(source: Path) -> Path | None:
    """The `curves.json` in a step's output with a model, or beside its logs; None if the model comes from elsewhere."""
    return next((file for file in (source / CURVES_FILE, source / "logs" / CURVES_FILE) if file.is_file()), None)


def exported_folder(model: Path | str) -> Path:
    """Finds the exported model in a folder: the folder itself, or `model/` in train's output.

    Raises:
      WorkError: neither holds `saved_model.pb` and `model.json`.
    """
    folder = Path(model).absolute()
    if not folder.is_dir():
        raise WorkError(f"{folder}: no such folder; give train's output, an exported model or a registry's version")
    exported = folder / "model" if (folder / "model" / MODEL_JSON).is_file() else folder
    missing = [name for name in ("saved_model.pb", MODEL_JSON) if not (exported / name).is_file()]
    if missing:
        raise WorkError(
            f"{exported}: no {' and no '.join(missing)}, so not an exported model; "
            "give <registry>/<model>, or run train again"
        )
    return exported


def model_files(folder: Path) -> list[Path]:
    """The files of the exported model, relative to its folder, in a fixed order."""
    files: list[Path] = []
    for name in MODEL_PARTS:
        part = folder / name
        files += (
            [part]
            if part.is_file()
            else sorted(path for path in part.rglob("*") if path.is_file() and not is_unfinished(path))
        )
    return sorted(path.relative_to(folder) for path in files)


def model_digest(model: Path | str) -> str:
    """A hash of the bytes of the SavedModel and of `model.json`."""
    folder = exported_folder(model)
    return hash_value([[file.as_posix(), hash_file(folder / file)] for file in model_files(folder)])


def read_model_info(model: Path | str) -> ModelInfo:
    """Reads `model.json`.

    Raises:
      WorkError: it is damaged, lacks a key, or is of another format.
    """
    file = exported_folder(model) / MODEL_JSON
    try:
        values = read_json(file)
    except (ValueError, UnicodeDecodeError) as error:
        raise WorkError(f"{file}: not JSON ({error}); the export was damaged or cut short, run train again") from None
    return parse_versioned(values, ModelInfo, file)


def write_model_info(folder: Path, info: ModelInfo) -> None:
    """Writes `model.json`."""
    write_json(folder / MODEL_JSON, info.to_dict())


def require_family(info: ModelInfo, family: str | Sequence[str], source: Path | str) -> None:
    """Refuses a model of another family.

    Args:
      family: the accepted one, or several.

    Raises:
      WorkError: naming both families.
    """
    accepted = (family,) if isinstance(family, str) else tuple(family)
    if info.family not in accepted:
        raise WorkError(
            f"{source}: a model of the family {info.family!r} ({info.kind}), "
            f"{' or '.join(map(repr, accepted))} is accepted here; "
            f"give a model that voxline run {' or '.join(accepted)} trained"
        )


def batches_by_length(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Groups items of similar length, so that a batch holds little padding.

    Args:
      lengths: of each item, in any one unit.
      limit: the largest batch in that unit, padding included; a longer item is a batch of its own.

    Returns:
      Every index exactly once, shortest items first.

    >>> batches_by_length([5, 1, 5, 2], limit=10)
    [[1, 3], [0, 2]]
    """
    batches: list[list[int]] = []

    # Sorted by length, so the first item of a batch is its shortest: padding at most doubles an item.
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if (
            batches
            and lengths[index] * (len(batches[-1]) + 1) <= limit
            and lengths[index] <= 2 * lengths[batches[-1][0]]
        ):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def load_saved_model(
    folder: Path,
    specs: Mapping[str, SignatureSpec],
    optional: Mapping[str, SignatureSpec] = MappingProxyType({}),
) -> tuple[Any, dict[str, Any]]:
    """Loads a SavedModel. Returns it (it must be kept alive) and its signatures.

    Args:
      specs: of each signature that is needed.
      optional: of further ones, which are returned if the model has them.

    Raises:
      WorkError: it does not load, has other signatures, or its graph uses ops that are not allowed.
    """
    tf = import_tensorflow()
    _refuse_other_ops(folder)
    try:
        model = tf.saved_model.load(str(folder))
    except (
        Exception
    ) as error:  # for a damaged file TensorFlow raises many types, IndexError and DataLossError among them
        raise WorkError(
            f"{folder}: the SavedModel does not load ({type(error).__name__}: {_first_line(error)}); "
            "it was damaged or cut short, run train again"
        ) from error

    signatures = dict(getattr(model, "signatures", {}))
    specs = {**specs, **{name: spec for name, spec in optional.items() if name in signatures}}

    # A signature of another version is refused here, and not at its first call.
    for name, spec in specs.items():
        if name not in signatures:
            raise WorkError(f"{folder}: no signature '{name}'; it has {', '.join(signatures) or 'none'}")
        inputs = set(signatures[name].structured_input_signature[1])
        outputs = set(signatures[name].structured_outputs)
        if inputs != set(spec.inputs) or not outputs.issuperset(spec.outputs):
            raise WorkError(
                f"{folder}: '{name}' takes {', '.join(sorted(inputs))} and returns {', '.join(sorted(outputs))}; "
                f"an exported model takes {', '.join(spec.inputs)} and returns {', '.join(spec.outputs)}"
            )
    return model, {name: signatures[name] for name in specs}


def check_graph(folder: Path) -> None:
    """Looks at the ops of a SavedModel without loading it.

    Raises:
      WorkError: it uses ops that are not allowed.
    """
    import_tensorflow()
    _refuse_other_ops(folder)


def _refuse_other_ops(folder: Path) -> None:
    """Refuses a graph that could do more than compute: a SavedModel is a program, which loading it may already run."""
    from tensorflow.python.saved_model.loader_impl import parse_saved_model  # the parser of the loader itself

    try:
        saved = parse_saved_model(str(folder))
    except OSError:
        return  # the loader parses the same bytes: it refuses them too, and says more
    allowed = ALLOWED_OPS | {name.strip() for name in os.environ.get(MORE_OPS_VARIABLE, "").split(",")}
    refused = sorted({op for graph in saved.meta_graphs for op in _graph_ops(graph) if op not in allowed})
    if refused:
        raise WorkError(
            f"{folder / 'saved_model.pb'}: the graph of this model uses {', '.join(refused)}, and was not loaded: "
            "ops can read or write files, call Python or reach another machine, so only those are accepted that our "
            "networks use. If this is a network of your own, look up what they do and set "
            f"{MORE_OPS_VARIABLE}={','.join(refused)}; else do not use this model"
        )


def _graph_ops(graph: Any) -> Iterator[str]:
    """The ops of a MetaGraphDef, in its graph and in all functions; without the saver's in its own functions."""
    functions = {function.signature.name: function for function in graph.graph_def.library.function}

    # The saver's functions may read and write files. They are accepted only where nothing else calls them.
    nodes = list(graph.graph_def.node)
    save, restore = _saver_nodes(graph)
    by_save = _called(node for node in nodes if node.name == save)
    by_restore = _called(node for node in nodes if node.name == restore)
    others = _called(node for node in nodes if node.name not in (save, restore))
    # Functions that Python code could call by name after loading count as called.
    others |= {*graph.object_graph_def.concrete_functions}
    for name, function in functions.items():
        if name not in by_save | by_restore:
            others |= _called(function.node_def)

    yield from (node.op for node in nodes)
    for name, function in functions.items():
        accepted: frozenset[str] = frozenset()
        if name in by_save - by_restore - others:
            accepted = _SAVE_OPS
        elif name in by_restore - by_save - others and _reads_the_given_file(function):
            accepted = _RESTORE_OPS
        yield from (node.op for node in function.node_def if node.op not in accepted)


def _saver_nodes(graph: Any) -> tuple[str, str]:
    """The nodes that write and read checkpoints; "" for one that the graph uses otherwise too, so that it may run."""
    saver = graph.saver_def
    file = saver.filename_tensor_name.partition(":")[0]

    # Inputs of nodes, outputs of signatures, and what a loader runs first.
    used = {name for node in graph.graph_def.node for name in node.input}
    used |= {tensor.name for signature in graph.signature_def.values() for tensor in signature.outputs.values()}
    used |= {name for collection in graph.collection_def.values() for name in collection.node_list.value}
    used = {name.removeprefix("^").partition(":")[0] for name in used}

    # Both get the name of the file from the loader.
    fed = {node.name for node in graph.graph_def.node if list(node.input[:1]) == [file]}
    is_fed = any(node.name == file and node.op == "Placeholder" for node in graph.graph_def.node)
    save = saver.save_tensor_name.partition(":")[0]
    restore = saver.restore_op_name
    accepted = fed - used if is_fed and save != restore else set()
    return save if save in accepted else "", restore if restore in accepted else ""


def _reads_the_given_file(function: Any) -> bool:
    """Returns whether all that a function restores is in the file that its caller names first."""
    file = [argument.name for argument in function.signature.input_arg[:1]]
    return all(list(node.input[:1]) == file for node in function.node_def if node.op in _RESTORE_OPS)


def _called(nodes: Iterable[Any]) -> set[str]:
    """The functions that nodes refer to."""
    values = [value for node in nodes for value in node.attr.values()]
    called = {value.func.name for value in values if value.HasField("func")}
    return called | {function.name for value in values for function in value.list.func}


def call_signature(signature: Any, folder: Path, **inputs: Any) -> dict[str, Any]:
    """Calls a signature with arrays; returns its outputs as arrays.

    Raises:
      WorkError: the model fails on them.
    """
    import tensorflow as tf

    try:
        # TensorFlow's signatures take tensors by keyword.
        outputs = signature(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}
    except tf.errors.OpError as error:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in inputs.items())
        raise WorkError(f"{folder}: the model fails on a batch of {shapes}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
