"""The decoder of a voice whose weights have 8 bits: one step as a file of TensorFlow Lite, and the loop around it.

What the file takes and gives stands where it is made: `voxline.components.train.tts.export`.
"""

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
STOP_LOGIT = 0.0
"""Logit above which a frame is the last: a probability of one half."""
STEP_INPUTS = ("own", "memory", "keys", "real", "context", "previous", "cumulative")


class DecoderOutput(NamedTuple):
    """Frames float32 [batch, t, mels] in normalised space, how many of them are real int32 [batch], alignments float32
    [batch, steps, symbols], which rows were cut bool [batch].
    """

    before: "Array"
    frames: "npt.NDArray[np.int32]"
    alignments: "Array"
    hit_limit: "npt.NDArray[np.bool_]"


class Int8Decoder:
    """A decoder step, ready to be run; one at a time.

    Raises:
      WorkError: the file is absent, damaged, or no decoder step.
    """

    def __init__(self, folder: Path) -> None:
        tf, self._file = import_tensorflow(), folder / DECODER_FILE
        if not self._file.is_file():
            raise WorkError(f"{folder}: no {DECODER_FILE}, which its model.json tells of; train it again")
        try:
            # One thread: one core speaks several times faster than it is heard, and each product would wake the others.
            with warnings.catch_warnings(), silence_stderr():
                warnings.filterwarnings("ignore", message=".*tf.lite.Interpreter is deprecated")
                self._step = tf.lite.Interpreter(model_content=self._file.read_bytes(), num_threads=1)
                # The runner keeps the interpreter from being given another shape, for as long as it lives.
                runner = self._step.get_signature_runner()
                self._takes = {name: int(of["index"]) for name, of in runner.get_input_details().items()}
                self._gives = {name: int(of["index"]) for name, of in runner.get_output_details().items()}
                self._wide = {name: int(of["shape"][-1]) for name, of in runner.get_input_details().items()}
                self._made = int(runner.get_output_details()["made"]["shape"][-1])
                del runner
        except (ValueError, RuntimeError, KeyError) as error:
            raise WorkError(f"{self._file}: no decoder step ({str(error)[:200]}); train it again") from None
        missing = [name for name in STEP_INPUTS if name not in self._takes]
        if missing:
            raise WorkError(f"{self._file}: takes no {', '.join(missing)}, so it is no decoder step; train it again")
        self._carried = [name for name in self._gives if name in self._takes]

    def decode(self, encoded: Mapping[str, "Array"], counts: "npt.NDArray[np.int32]", max_steps: int) -> DecoderOutput:
        """Speaks until every row's stop token or `max_steps`.

        Args:
          encoded: what `encode` gave: memory [batch, symbols, units], keys, and masks where the pre-net drops.
          counts: int32 [batch], how many symbols of each row are real.
        """
        import numpy as np

        rows, symbols = encoded["memory"].shape[:2]
        state = self._begin(encoded, counts)
        mels = state["own"].shape[-1]
        reduction = self._made // (mels + 1)
        ended, frames = np.zeros(rows, bool), np.zeros(rows, np.int32)
        made, alignments = [], []
        for index in range(max_steps):
            if "masks" in self._takes:
                self._step.set_tensor(self._takes["masks"], encoded["masks"][index : index + 1])
            for name, value in state.items():
                self._step.set_tensor(self._takes[name], value)
            self._step.invoke()
            state = {name: self._step.get_tensor(self._gives[name]) for name in self._carried}
            given = self._step.get_tensor(self._gives["made"])
            made.append(given[:, : reduction * mels])
            alignments.append(state["previous"])
            stops = given[:, reduction * mels :] > STOP_LOGIT
            stopped = stops.any(-1)
            frames += np.where(ended, 0, np.where(stopped, stops.argmax(-1) + 1, reduction)).astype(np.int32)
            ended |= stopped
            if ended.all():
                break
        before = np.stack(made, 1).reshape(rows, -1, mels)
        return DecoderOutput(before, frames, np.stack(alignments, 1).reshape(rows, -1, symbols), ~ended)

    def _begin(self, encoded: Mapping[str, "Array"], counts: "npt.NDArray[np.int32]") -> dict[str, "Array"]:
        """Gives it room for the batch and what stays the same; returns the state before the first step."""
        import numpy as np

        rows, symbols = encoded["memory"].shape[:2]
        fixed: dict[str, Any] = {"memory": encoded["memory"], "keys": encoded["keys"]}
        fixed["real"] = np.arange(symbols) < counts[:, None]
        wide = {**self._wide, "previous": symbols, "cumulative": symbols}
        state = {name: np.zeros((rows, wide[name]), np.float32) for name in self._carried}
        for name, value in {**fixed, **state}.items():
            self._step.resize_tensor_input(self._takes[name], value.shape)
        with silence_stderr():
            self._step.allocate_tensors()
        for name, value in fixed.items():
            self._step.set_tensor(self._takes[name], value)
        return state
