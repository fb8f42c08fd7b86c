"""The ONNX graph of a model, run by ONNX Runtime: what a signature of the SavedModel computes, without TensorFlow.

Train writes it: `families/*/onnx.py` of recognizers, voices and vocoders. ONNX Runtime is imported when a graph is
loaded, by `import_onnxruntime` and nowhere else.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voxline.cancellation import WorkCancelledError, ends_early
from voxline.errors import WorkError
from voxline.inference.onnx_messages import EXTERNAL, model_class
from voxline.inference.saved_model import SignatureSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ONNX_FILE = "model.onnx"
"""In the folder of an exported model."""
RECOGNIZER = SignatureSpec(("waveforms", "lengths"), ("log_probabilities", "frames"))
LARGE_INPUT = 1_000_000
"""Values of an input, a minute of audio, after which ONNX Runtime gives its memory back. It would keep all that the
longest recording took."""
NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""The variable of the environment that keeps ONNX Runtime from sending telemetry."""
ONNX_DOMAINS = ("", "ai.onnx", "com.microsoft")
"""Whose ops a graph may use: ONNX' own, and those that are built into ONNX Runtime."""
Engine = Literal["auto", "onnx", "tensorflow"]
"""What runs a network; "auto": ONNX Runtime if the model has an ONNX graph, else TensorFlow."""


def choose_engine(folder: Path, engine: Engine) -> Literal["onnx", "tensorflow"]:
    """Chooses the engine that runs the network of an exported model."""
    if engine != "auto":
        return engine
    return "onnx" if (folder / ONNX_FILE).is_file() else "tensorflow"


class OnnxGraph:
    """A loaded graph, called as a signature is.

    Args:
      folder: of the exported model.
      spec: what the graph takes and returns, in order.
      role: whose graph it is, for messages: "a voice".
      threads: for one batch; None: one for each core.

    Attributes:
      optional: inputs that may be left out, beside those of `spec`.

    Raises:
      WorkError: the file is damaged, or takes or returns something else.
    """

    def __init__(self, folder: Path, spec: SignatureSpec, role: str, threads: int | None = None) -> None:
        self._file = folder / ONNX_FILE
        self._outputs = spec.outputs
        self._session = load_session(self._file, threads)
        self.optional = {node.name for node in self._session.get_overridable_initializers()}

        # Names and their order: values are passed and returned by position.
        taken = tuple(node.name for node in self._session.get_inputs())
        outputs = tuple(node.name for node in self._session.get_outputs())
        if taken != spec.inputs or outputs != spec.outputs:
            raise WorkError(
                f"{self._file}: takes {', '.join(taken)} and returns {', '.join(outputs)}; {role} takes "
                f"{', '.join(spec.inputs)} and returns {', '.join(spec.outputs)}"
            )

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Arrays by the names of the outputs.

        Raises:
          WorkError: the graph fails on them.
        """
        try:
            return dict(zip(self._outputs, run_session(self._session, self._outputs, inputs), strict=True))
        except WorkCancelledError:
            raise
        except Exception as error:
            # The first line says what; the others are the runtime's own stack.
            why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            shape = next(iter(inputs.values())).shape
            raise WorkError(f"{self._file}: fails on a batch of {shape}: {why}") from None


class OnnxModel:
    """A recognizer's graph.

    Args:
      folder: of the exported model.
      symbols: its alphabet.
      threads: for one batch; None: one for each core.

    Raises:
      WorkError: the file is damaged, or takes or returns something else.
    """

    def __init__(self, folder: Path, symbols: Sequence[str], threads: int | None = None) -> None:
        self._graph = OnnxGraph(folder, RECOGNIZER, "a recognizer", threads)
        self._symbols = symbols

    def __call__(self, waveforms: "npt.NDArray[np.float32]", lengths: "npt.NDArray[np.int32]") -> dict[str, Any]:
        """Runs the network like the signature `transcribe` of the SavedModel.

        Args:
          waveforms: float32 [batch, samples], in [-1, 1].
          lengths: int32 [batch], samples.

        Returns:
          text, bytes [batch], greedy; log_probabilities float32 [batch, frames, symbols + 1], the blank last; frames
          int32 [batch].

        Raises:
          WorkError: the graph fails on them.
        """
        values, frames = self._graph(waveforms=waveforms, lengths=lengths).values()
        text = [greedy_text(row[:count], self._symbols).encode() for row, count in zip(values, frames, strict=True)]
        return {"text": text, "log_probabilities": values, "frames": frames}


def import_onnxruntime() -> Any:
    """Imports ONNX Runtime without its telemetry.

    From 1.32 on, the import itself starts an uploader, which sends events to Microsoft and stores a device id in the
    home folder. Only the variable prevents that. A program that imports ONNX Runtime before Voxline has to set it
    itself.
    """
    os.environ.setdefault(NO_TELEMETRY, "1")
    import onnxruntime

    return onnxruntime


def load_session(file: Path, threads: int | None) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU.

    Args:
      threads: for one call; None: one for each core.

    Raises:
      WorkError: the file is damaged or absent, names files outside of itself, or needs ops that are not built in.
    """
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    # Threads that wait for the next op would spin, which doubles the CPU time and saves little.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # The bytes that are checked are the bytes that are loaded, whatever happens to the file.
        content = file.read_bytes()
        _refuse_foreign_parts(content, file)
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except WorkError:
        raise
    except Exception as error:  # of the runtime's own types, one for each way in which a file can be damaged
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise WorkError(f"{file}: ONNX Runtime does not load it ({why}); train again") from None


def _refuse_foreign_parts(content: bytes, file: Path) -> None:
    """Refuses tensors in other files, which ONNX Runtime would read, and which no digest covers; and ops of libraries.

    It looks at every node and tensor of the file, so also at subgraphs, functions and the attributes of nodes.
    """
    model = model_class().FromString(content)

    # A model's own functions may be called; their bodies are checked like the rest.
    domains = {*ONNX_DOMAINS, *(function.domain for function in model.functions)}
    for part in _messages(model):
        kind = part.DESCRIPTOR.name
        if kind == "Tensor" and (part.data_location == EXTERNAL or part.external_data):
            location = next((entry.value for entry in part.external_data if entry.key == "location"), "")
            raise WorkError(
                f"{file}: the tensor {part.name!r} is in another file, {location!r}, and was not loaded; an exported "
                "model holds all its tensors. Save the graph as one file, or train again"
            )
        if kind == "Node" and part.domain not in domains:
            raise WorkError(
                f"{file}: the op {part.op_type} is of the domain {part.domain!r}, and was not loaded; accepted: "
                f"{', '.join(map(repr, ONNX_DOMAINS))}. Export the graph with ops of ONNX, or train again"
            )


def _messages(message: Any) -> Iterator[Any]:
    """A message of a protocol buffer and all messages in it."""
    # A stack instead of recursion: a file may be nested deeper than Python's limit.
    waiting = [message]
    while waiting:
        part = waiting.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is not None:
                waiting += value if isinstance(value, Sequence) else [value]


def run_session(
    session: Any, outputs: Sequence[str], inputs: dict[str, Any], *, keeps_memory: bool = False
) -> list[Any]:
    """Runs a graph, and ends it between two of its ops if the work of this thread is cancelled.

    Args:
      keeps_memory: even after a large input, since the next call has inputs as large.

    Raises:
      WorkCancelledError: it was.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    if not keeps_memory and max(value.size for value in inputs.values()) > LARGE_INPUT:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    # ONNX Runtime looks at the flag between two ops; it is set from another thread.
    def end() -> None:
        options.terminate = True

    with ends_early(end):
        result: list[Any] = session.run(outputs, inputs, options)
    return result


def greedy_text(log_probabilities: "npt.NDArray[np.float32]", symbols: Sequence[str]) -> str:
    """Greedy decoding: the most probable symbol of each frame, repetitions once, without blanks.

    Args:
      log_probabilities: [frames, symbols + 1], the blank last.

    >>> import numpy as np
    >>> greedy_text(np.eye(3, dtype=np.float32)[[0, 0, 2, 0, 1, 1]], "ab")
    'aab'
    """
    import numpy as np

    best = log_probabilities.argmax(axis=-1)
    labels = best[np.diff(best, prepend=-1) != 0]
    return "".join(symbols[index] for index in labels if index < len(symbols))
