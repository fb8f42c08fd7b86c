"""A recognizer as a model of sherpa-onnx (https://github.com/k2-fsa/sherpa-onnx), which runs on phones and in browsers.

sherpa-onnx computes the features of most models itself, as Kaldi does: its frames are not ours. Its Omnilingual ASR
models take samples, so a recognizer in their form keeps its own features. These samples arrive standardized:
y = (x - m) / sqrt(v + ε), with the mean m and the variance v of a recording, and ε = 1e-5. The level comes back
from y alone: y has the variance w = v / (v + ε), hence v + ε = ε / (1 - w), and x - m = y · sqrt(ε / (1 - w)). Of m,
which only the lowest band of the features sees, nothing comes back.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import ATTENTION
from voxline.inference.onnx_model import ONNX_FILE, RECOGNIZER
from voxline.inference.saved_model import exported_folder, read_model_info, require_family
from voxline.inference.token_decoder import needs_ctc
from voxline.store.files import new_folder

TOKENS_FILE = "tokens.txt"
BLANK = "<blk>"
SPACE = "▁"
SAMPLE_RATE = 16_000
"""To which sherpa-onnx resamples for models of this form, in Hz."""
EPSILON = 1e-5
LEAST = 1e-9
"""1 - w at least; a recording at full scale has 1e-5."""
BYTE_MARK = 0xC6
"""sherpa-onnx takes symbols whose highest byte is this one for bytes."""


def export_sherpa_onnx(model: Path | str, output: Path) -> list[Path]:
    """Writes `model.onnx` and `tokens.txt`: `OfflineRecognizer.from_omnilingual_asr_ctc` of sherpa-onnx loads them.

    It decodes greedily, with the model's weights; a language model stays behind.

    Args:
      model: an exported recognizer with an ONNX graph.
      output: a folder that does not exist yet, or is empty.

    Returns:
      The two files.

    Raises:
      SettingsError: the folder holds something; or the model's sample rate or alphabet has no such form.
      WorkError: the model has no ONNX graph, or is damaged.
    """
    with new_folder(output, "--output") as unfinished:
        graph, tokens = _files_of(exported_folder(model))
        (unfinished / ONNX_FILE).write_bytes(graph)
        (unfinished / TOKENS_FILE).write_text(tokens, encoding="utf-8", newline="\n")
    return [output / ONNX_FILE, output / TOKENS_FILE]


def _files_of(folder: Path) -> tuple[bytes, str]:
    """The graph, and the tokens."""
    info = read_model_info(folder)
    require_family(info, "asr", folder)
    if info.kind == ATTENTION:
        raise needs_ctc(folder, "this form of sherpa-onnx")
    if info.sample_rate != SAMPLE_RATE:
        raise SettingsError(
            f"{folder}: a model of {info.sample_rate:,} Hz; sherpa-onnx resamples to {SAMPLE_RATE:,} Hz for models "
            "of this form: train one with extract.features.sample_rate 16000"
        )
    if not (folder / ONNX_FILE).is_file():
        raise WorkError(f"{folder}: no {ONNX_FILE}; train with train.export.onnx: float32")
    tokens = _tokens(info.alphabet, folder)
    return _with_samples_in_front((folder / ONNX_FILE).read_bytes(), len(info.alphabet) + 1, folder / ONNX_FILE), tokens


def _tokens(symbols: Sequence[str], folder: Path) -> str:
    """The symbols as sherpa-onnx reads them: one a line, and its number."""
    # A line is split at white space; a space that is a symbol, or that begins one, has a mark.
    spaced = [symbol for symbol in symbols if any(map(str.isspace, symbol.removeprefix(" ")))]
    if spaced:
        raise SettingsError(f"{folder}: the symbol {spaced[0]!r} has a space in it, which {TOKENS_FILE} cannot hold")
    if max(max(symbol.encode()) for symbol in symbols) == BYTE_MARK:
        raise SettingsError(
            f"{folder}: sherpa-onnx would take the symbols of this alphabet for bytes, because U+0180 to U+01BF are in "
            "it and nothing above; add a character above to the alphabet, or transcribe with Voxline"
        )

    # The blank comes last, as in the network's output.
    listed = [*(symbol.replace(" ", SPACE) for symbol in symbols), BLANK]
    return "".join(f"{symbol} {number}\n" for number, symbol in enumerate(listed))


def _with_samples_in_front(graph: bytes, classes: int, file: Path) -> bytes:
    """The graph for a recording of which the samples have been standardized.

    Input    standardized float32 [1, samples]
    Output   log_probs float32 [1, frames, classes]
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    try:
        model = onnx.load_model_from_string(graph)
    except Exception as error:  # of protobuf, one of several
        raise WorkError(f"{file}: not an ONNX graph ({error}); train again") from None
    inside: Any = model.graph
    if (
        tuple(value.name for value in inside.input) != RECOGNIZER.inputs
        or tuple(value.name for value in inside.output) != RECOGNIZER.outputs
    ):
        raise WorkError(f"{file}: not the graph of a recognizer; train again")

    # Names of new nodes begin with `standardized`, which no exported graph has.
    waveforms, lengths = RECOGNIZER.inputs
    values, frames = RECOGNIZER.outputs
    # In float64: 1 - w is 1e-5 of a loud recording.
    before = [
        helper.make_node("Cast", ["standardized"], ["standardized_double"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["standardized_double", "standardized_double"], ["standardized_squared"]),
        helper.make_node("ReduceMean", ["standardized_squared"], ["standardized_variance"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["standardized_one", "standardized_variance"], ["standardized_rest"]),
        helper.make_node("Max", ["standardized_rest", "standardized_least"], ["standardized_share"]),
        helper.make_node("Div", ["standardized_epsilon", "standardized_share"], ["standardized_power"]),
        helper.make_node("Sqrt", ["standardized_power"], ["standardized_deviation"]),
        helper.make_node("Mul", ["standardized_double", "standardized_deviation"], ["standardized_leveled"]),
        helper.make_node("Cast", ["standardized_leveled"], [waveforms], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["standardized"], ["standardized_count"], start=1, end=2),
        helper.make_node("Cast", ["standardized_count"], [lengths], to=TensorProto.INT32),
    ]

    # Frames of padding are cut off: sherpa-onnx reads all that it gets.
    after = [
        helper.make_node("Cast", [frames], ["standardized_frames"], to=TensorProto.INT64),
        helper.make_node(
            "Slice", [values, "standardized_zero", "standardized_frames", "standardized_axis"], ["log_probs"]
        ),
    ]
    constants = {
        "standardized_one": np.float64(1),
        "standardized_least": np.float64(LEAST),
        "standardized_epsilon": np.float64(EPSILON),
        "standardized_zero": np.array([0]),
        "standardized_axis": np.array([1]),
    }

    # Nodes must be in the order in which they are computed.
    nodes = [*before, *inside.node, *after]
    weights = [
        *inside.initializer,
        *(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()),
    ]
    wrapped = helper.make_graph(
        nodes,
        inside.name,
        [helper.make_tensor_value_info("standardized", TensorProto.FLOAT, [1, "count"])],
        [helper.make_tensor_value_info("log_probs", TensorProto.FLOAT, [1, "steps", classes])],
        weights,
    )
    built = helper.make_model(
        wrapped, opset_imports=list(model.opset_import), ir_version=model.ir_version, producer_name="voxline"
    )
    onnx.checker.check_model(built)
    data: bytes = built.SerializeToString()
    return data
