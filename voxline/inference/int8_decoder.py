"""A TTS decoder with 8-bit weights: one step as a TensorFlow Lite file, and the loop around it.

`voxline.components.train.tts.export` writes the file and documents its inputs and outputs.
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from voxline.errors import WorkError
from voxline.inference.saved_model import import_tensorflow, silence_stderr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


DECODER_FILE = "decoder.tflite"
DECODERS = ("float32", "int8")
STOP_LOGIT = 0.0
"""Logit above which a frame is the last; its probability is then one half."""
_FLEX_OP = re.compile(rb"Flex([A-Z][A-Za-z0-9]{2,})\0")
"""How a TensorFlow Lite file names an op of TensorFlow, ReadFile among them, that its interpreter would run."""
STEP_INPUTS = ("own", "memory", "keys", "real", "context", "previous", "cumulative")


class Int8DecoderOutput(NamedTuple):
    """What the decoder returns for a batch.

    Attributes:
      before: frames before the post-net, float32 [batch, t, mels], normalized.
      frames: how many of them are real, int32 [batch].
      alignments: float32 [batch, steps, symbols].
      hit_limit: which rows were cut off, bool [batch].
    """

    before: "Array"
    frames: "npt.NDArray[np.int32]"
    alignments: "Array"
    hit_limit: "npt.NDArray[np.bool_]"


class Int8Decoder:
    """A loaded decoder step; not thread-safe.

    Raises:
      WorkError: the file is missing, damaged, or not a decoder step.
    """

    def __init__(self, folder: Path) -> None:
        tf, self._file = import_tensorflow(), folder / DECODER_FILE
        if not self._file.is_file():
            raise WorkError(f"{folder}: no {DECODER_FILE}, which model.json names; run train again")
        content = self._file.read_bytes()
        if custom := sorted({match[1].decode() for match in _FLEX_OP.finditer(content)}):
            raise WorkError(
                f"{self._file}: uses {', '.join(custom)}, ops of TensorFlow that may do more than compute; it was not "
                "loaded. A decoder that train exports uses none"
            )
        try:
            # One thread: one core is faster than real time, and each product would wake the others.
            with warnings.catch_warnings(), silence_stderr():
                warnings.filterwarnings("ignore", message=".*tf.lite.Interpreter is deprecated")
                self._step = tf.lite.Interpreter(model_content=content, num_threads=1)
                # While the runner exists, the interpreter accepts no other shape.
                runner = self._step.get_signature_runner()
                self._inputs = {name: int(of["index"]) for name, of in runner.get_input_details().items()}
                self._outputs = {name: int(of["index"]) for name, of in runner.get_output_details().items()}
                self._widths = {name: int(of["shape"][-1]) for name, of in runner.get_input_details().items()}
                self._output_width = int(runner.get_output_details()["made"]["shape"][-1])
                del runner
        except (ValueError, RuntimeError, KeyError) as error:
            raise WorkError(f"{self._file}: not a decoder step ({str(error)[:200]}); run train again") from None
        missing = [name for name in STEP_INPUTS if name not in self._inputs]
        if missing:
            raise WorkError(
                f"{self._file}: has no input {', '.join(missing)}, so it is not a decoder step; run train again"
            )
        self._state = [name for name in self._outputs if name in self._inputs]

    def decode(
        self, encoded: Mapping[str, "Array"], counts: "npt.NDArray[np.int32]", max_steps: int
    ) -> Int8DecoderOutput:
        """Decodes until every row has stopped, or for `max_steps`.

        Args:
          encoded: the outputs of `encode`: memory [batch, symbols, units], keys, and masks if the pre-net has dropout.
          counts: real symbols of each row, int32 [batch].
        """
        import numpy as np

        rows, symbols = encoded["memory"].shape[:2]
        state = self._begin(encoded, counts)
        mels = state["own"].shape[-1]
        reduction = self._output_width // (mels + 1)
        ended, frames = np.zeros(rows, bool), np.zeros(rows, np.int32)
        steps, alignments = [], []
        for index in range(max_steps):
            if "masks" in self._inputs:
                self._step.set_tensor(self._inputs["masks"], encoded["masks"][index : index + 1])
            for name, value in state.items():
                self._step.set_tensor(self._inputs[name], value)
            self._step.invoke()
            state = {name: self._step.get_tensor(self._outputs[name]) for name in self._state}
            output = self._step.get_tensor(self._outputs["made"])
            steps.append(output[:, : reduction * mels])
            alignments.append(state["previous"])
            stops = output[:, reduction * mels :] > STOP_LOGIT
            stopped = stops.any(-1)
            frames += np.where(ended, 0, np.where(stopped, stops.argmax(-1) + 1, reduction)).astype(np.int32)
            ended |= stopped
            if ended.all():
                break
        before = np.stack(steps, 1).reshape(rows, -1, mels)
        return Int8DecoderOutput(before, frames, np.stack(alignments, 1).reshape(rows, -1, symbols), ~ended)

    def _begin(self, encoded: Mapping[str, "Array"], counts: "npt.NDArray[np.int32]") -> dict[str, "Array"]:
        """Allocates the batch and sets the inputs that stay the same; returns the state before the first step."""
        import numpy as np

        rows, symbols = encoded["memory"].shape[:2]
        fixed: dict[str, Any] = {"memory": encoded["memory"], "keys": encoded["keys"]}
        fixed["real"] = np.arange(symbols) < counts[:, None]
        widths = {**self._widths, "previous": symbols, "cumulative": symbols}
        state = {name: np.zeros((rows, widths[name]), np.float32) for name in self._state}
        for name, value in {**fixed, **state}.items():
            self._step.resize_tensor_input(self._inputs[name], value.shape)
        with silence_stderr():
            self._step.allocate_tensors()
        for name, value in fixed.items():
            self._step.set_tensor(self._inputs[name], value)
        return state


def load_decoder(about: Mapping[str, Any], folder: Path) -> Int8Decoder | None:
    """The 8-bit decoder of an exported voice; None if its SavedModel holds the decoder.

    Args:
      about: the contents of `model.json`.
    """
    kind = about.get("decoder", "float32")
    if kind not in DECODERS:
        raise WorkError(
            f"{folder}: the decoder is {kind!r}; this Voxline knows {' and '.join(DECODERS)}; run it "
            "with the version that trained the model"
        )
    return Int8Decoder(folder) if kind == "int8" else None
