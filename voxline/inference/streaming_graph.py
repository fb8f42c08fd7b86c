"""The streaming ONNX graph of a causal recognizer: which samples each of its calls needs, and its state between calls.

`voxline/families/asr/onnx_stream.py` writes it. The network is a chain of stages that see a window of their input:
frames of samples, stacked features, convolutions, the row convolution. Each keeps the end of its input as a tensor
until the next call; recurrent layers keep their state. Calls begin at fixed samples, however the audio arrives, so
that equal audio gives equal numbers.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import WorkError
from voxline.inference.onnx_model import load_session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STREAM_FILE = "stream.onnx"
"""In the folder of an exported model."""
METADATA = "voxline.stream"
"""The key of the graph's description among its metadata."""


@dataclasses.dataclass(frozen=True)
class WindowStage:
    """A part of the network that sees windows of its input: output `i` sees `taps` inputs from `i · stride - left`.

    There are ceil((inputs + extra) / stride) outputs in all; inputs before the first and beyond the last are zero.

    Attributes:
      extra: inputs that count as real, besides those that arrive: the empty frames before and after an utterance.
    """

    taps: int
    stride: int = 1
    left: int = 0
    extra: int = 0

    def total(self, inputs: int) -> int:
        """Outputs of a whole utterance."""
        return -(-(inputs + self.extra) // self.stride)

    def ready(self, inputs: int) -> int:
        """Outputs that see nothing beyond the inputs so far."""
        return max(0, (self.left + inputs - self.taps) // self.stride + 1)

    def needed(self, outputs: int) -> int:
        """Inputs that make so many outputs ready; 0 or below: more than these are ready from the start."""
        return (outputs - 1) * self.stride + self.taps - self.left

    def needed_for_total(self, total: int) -> int:
        """The fewest inputs of an utterance with so many outputs in all."""
        return (total - 1) * self.stride + 1 - self.extra

    def flush(self, inputs: int) -> int:
        """Zeros after the last input that make all outputs ready."""
        return max(0, self.needed(self.total(inputs)) - inputs)


@dataclasses.dataclass(frozen=True)
class CallSchedule:
    """When the graph is called: call `n` (from 0) when `first_samples + n · step_samples` samples are there.

    Attributes:
      feed_samples: of these, those that the first call takes; each further call takes `step_samples`.
      first_frames, step_frames: output frames of the first call, and of each further one.
      frame_seconds: from one output frame to the next.
      first_center: the sample at the center of the first output frame.
      lookahead_seconds: from the center of an output frame to the last sample that it needs.
      latency_seconds: the same of the first frame of a call, which waits for the others: the algorithmic latency.
    """

    first_samples: int
    feed_samples: int
    step_samples: int
    first_frames: int
    step_frames: int
    frame_seconds: float
    first_center: int
    lookahead_seconds: float
    latency_seconds: float

    @classmethod
    def of(cls, stages: Sequence[WindowStage], step_frames: int, sample_rate: int) -> "CallSchedule":
        """The schedule of a network.

        Args:
          stages: the first one takes samples.
          step_frames: output frames of a call.

        >>> stages = [WindowStage(400, 160, 200, 1), WindowStage(5, 3, 12, 20), WindowStage(5, 1, 2), WindowStage(5)]
        >>> schedule = CallSchedule.of(stages, 4, 16_000)
        >>> round(1000 * schedule.lookahead_seconds, 1), round(1000 * schedule.latency_seconds, 1)
        (212.5, 302.5)
        """
        first = 1
        while min(_inputs(stages, first)) < 1:  # every stage has something to do in every call
            first += 1

        feed = _inputs(stages, first)[0]
        step = step_frames * math.prod(stage.stride for stage in stages)
        # A call leaves something to do for the last one, which comes when the audio has ended.
        ready = feed
        least = feed
        for index, stage in enumerate(stages):
            ready = stage.ready(ready)
            needed = ready + 1
            for before in reversed(stages[: index + 1]):
                needed = before.needed_for_total(needed)
            least = max(least, needed)

        # The center of the first frame, counted back through the stages in samples.
        center = 0
        period = math.prod(stage.stride for stage in stages)
        for stage in reversed(stages):  # the empty frames come before the first real one
            center = center * stage.stride - stage.extra // 2

        # The lookahead counts from the newest frame of the first call; the oldest frame of a call waits for all others.
        newest = center + (first - 1) * period
        return cls(
            least, feed, step, first, step_frames, period / sample_rate, center,
            (least - newest) / sample_rate, (least - newest + step - period) / sample_rate,
        )  # fmt: skip


def _inputs(stages: Sequence[WindowStage], outputs: int) -> list[int]:
    """The inputs of each stage that make so many outputs of the last one ready."""
    inputs = []

    # From the output back to the samples.
    for stage in reversed(stages):
        outputs = stage.needed(outputs)
        inputs.append(outputs)
    return inputs[::-1]


class StreamingGraph:
    """A loaded streaming graph; it has no state of its own, so that many streams can use it at a time.

    Args:
      folder: of the exported model, which holds `stream.onnx`.
      threads: for one call; None: one for each core.

    Raises:
      WorkError: the file is damaged, or is another graph.
    """

    def __init__(self, folder: Path, threads: int | None = 1) -> None:
        self.file = folder / STREAM_FILE
        self._session = load_session(self.file, threads)
        try:
            description = json.loads(self._session.get_modelmeta().custom_metadata_map[METADATA])
            self.stages = [WindowStage(**values) for values in description["stages"]]
            self.states: dict[str, list[int]] = {name: list(shape) for name, shape in description["states"].items()}
        except (KeyError, ValueError, TypeError) as error:
            raise WorkError(f"{self.file}: not a streaming graph ({error!r}); train again") from None
        self._outputs = ["log_probabilities", *(f"next_{name}" for name in self.states)]

    def start(self) -> dict[str, "npt.NDArray[np.float32]"]:
        """The state before the first sample: zeros, by name."""
        import numpy as np

        return {name: np.zeros(shape, np.float32) for name, shape in self.states.items()}

    def step(
        self,
        samples: "npt.NDArray[np.float32]",
        state: dict[str, "npt.NDArray[np.float32]"],
        flush: Sequence[int] | None = None,
    ) -> tuple["npt.NDArray[np.float32]", dict[str, "npt.NDArray[np.float32]"]]:
        """Runs the network over the next samples.

        Args:
          samples: float32 [samples], in [-1, 1], as many as the schedule says.
          flush: zeros after the input of each stage, in the last call.

        Returns:
          log-probabilities, float32 [frames, symbols + 1], of frames that are new; and the next state.

        Raises:
          WorkError: the graph fails on them.
        """
        import numpy as np

        zeros = np.array(flush or [0] * len(self.stages), np.int64)
        try:
            values, *states = self._session.run(self._outputs, {"samples": samples[None], "flush": zeros, **state})
        except Exception as error:  # of the runtime's own types
            why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise WorkError(f"{self.file}: fails on {len(samples)} samples: {why}") from None
        return values[0], dict(zip(self.states, states, strict=True))


def describe_stream(stages: Sequence[WindowStage], states: dict[str, list[int]]) -> dict[str, Any]:
    """The description of a streaming graph, as its metadata hold it."""
    return {METADATA: json.dumps({"stages": [dataclasses.asdict(stage) for stage in stages], "states": states})}
