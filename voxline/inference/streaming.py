"""Recognition while the audio arrives: samples in, partial texts out, and a transcript at the end.

  stream = Recognizer("runs/live/registry/asr/1").stream(endpoint_ms=700)
  for samples in microphone:                    # float32 in [-1, 1], or int16, at the model's rate; any number of them
      partial = stream.feed(samples)
      print(partial.text, partial.segments)     # the text so far; what ended in silence
  transcript = stream.finish()

Without endpoints the transcript is that of `recognize` on the whole recording, however its samples were cut. A model
has a streaming graph if it was trained with `train.export.streaming`; it must be causal.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError
from voxline.inference.streaming_graph import CallSchedule, StreamingGraph
from voxline.inference.waveforms import SILENCE_PEAK, prepare_array

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.beam_search import BeamSearch, BeamStream
    from voxline.inference.transcript import Transcript

DEFAULT_CHUNK_MS = 160.0


@dataclasses.dataclass(frozen=True, slots=True)
class Partial:
    """The transcript of a stream so far.

    Attributes:
      text: since the last endpoint; words at its end may still change.
      segments: transcripts of what ended in silence since the last call; their times count from the stream's start.
      seconds: of audio that arrived.
    """

    text: str
    segments: "tuple[Transcript, ...]"
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """The waiting times of a stream in milliseconds, without computing time.

    Attributes:
      lookahead_ms: from the middle of an output frame to the end of the audio that it needs.
      chunk_ms: of audio for each run of the network.
      algorithmic_ms: from the middle of an output frame until its text can be known, at most.
    """

    lookahead_ms: float
    chunk_ms: float
    algorithmic_ms: float


class RecognitionStream:
    """A recording that is still arriving; `Recognizer.stream` makes it.

    Args:
      graph: of the model.
      sample_rate: of the model, in Hz.
      symbols: its alphabet.
      search: the beam search; None: greedy.
      transcribe: makes a transcript of log-probabilities, their text, and (start, frame), both in seconds, of the
        first frame; and of the samples' peak.
      endpoint_ms: a segment ends after so much time without a symbol, once it has text; None: never.
      chunk_ms: of audio for each run of the network, rounded to output frames.

    Attributes:
      latency: of this stream.
      sample_rate: of the samples that it takes, in Hz.
    """

    def __init__(
        self,
        graph: StreamingGraph,
        sample_rate: int,
        symbols: Sequence[str],
        search: "BeamSearch | None",
        transcribe: "Callable[..., Transcript]",
        endpoint_ms: float | None = None,
        chunk_ms: float = DEFAULT_CHUNK_MS,
    ) -> None:
        import numpy as np

        if endpoint_ms is not None and not (math.isfinite(endpoint_ms) and endpoint_ms > 0):
            raise SettingsError(f"endpoint_ms is {endpoint_ms}; milliseconds above 0 are accepted, or None")
        if not (math.isfinite(chunk_ms) and 0 < chunk_ms <= 10_000):
            raise SettingsError(f"chunk_ms is {chunk_ms}; above 0 to 10,000 milliseconds are accepted")
        self.sample_rate = sample_rate
        self._graph = graph
        self._symbols = symbols
        self._search = search
        self._transcribe = transcribe

        # Seconds of an output frame; a chunk is a whole number of them.
        frame = math.prod(stage.stride for stage in graph.stages) / sample_rate
        self._schedule = CallSchedule.of(graph.stages, max(1, round(chunk_ms / 1000 / frame)), sample_rate)
        self._frame = frame
        self._endpoint_frames = None if endpoint_ms is None else max(1, math.ceil(endpoint_ms / 1000 / frame))
        self.latency = Latency(
            1000 * self._schedule.lookahead_seconds,
            1000 * frame * self._schedule.step_frames,
            1000 * self._schedule.latency_seconds,
        )
        self._state = graph.start()
        # float32 [samples] that arrived after the last call
        self._waiting: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self._fed = self._calls = self._samples = 0  # samples that the graph has, its calls, all samples
        self._frames = 0  # output frames before the current segment
        self._peak = 0.0
        self._finished = False
        self._begin_segment()

    def feed(self, samples: "npt.NDArray[Any]") -> Partial:
        """Hears the next samples.

        Args:
          samples: [samples], mono, at the model's rate; float in [-1, 1], or int16.

        Raises:
          SettingsError: another dtype, shape or range; or the stream is finished.
          WorkError: the graph fails.
        """
        import numpy as np

        if self._finished:
            raise SettingsError("the stream is finished; make a new one")
        waveform = prepare_array(samples, self.sample_rate, self.sample_rate)
        self._samples += len(waveform)
        if len(waveform):
            self._peak = max(self._peak, float(np.abs(waveform).max()))
        self._waiting = np.concatenate([self._waiting, waveform])
        segments = []

        # Calls begin at fixed samples, whatever the packets: equal audio gives equal numbers.
        schedule = self._schedule
        while self._samples >= schedule.first_samples + self._calls * schedule.step_samples:
            count = schedule.step_samples if self._calls else schedule.feed_samples
            segments += self._advance(self._waiting[:count])
            self._waiting = self._waiting[count:]
            self._fed += count
            self._calls += 1
        return Partial(self._text(), tuple(segments), self._samples / self.sample_rate)

    def finish(self) -> "Transcript":
        """The transcript of what came after the last endpoint; without endpoints, of everything."""
        if self._finished:
            raise SettingsError("the stream is finished; make a new one")
        self._finished = True
        flush = []
        # Each stage gets the zeros that it needs to put out its last frames.
        inputs = self._samples
        for stage in self._graph.stages:
            flush.append(stage.flush(inputs))
            inputs = stage.total(inputs)
        values, self._state = self._graph.step(self._waiting, self._state, flush)
        self._hear(values)
        return self._end_segment(whole=self._frames == 0)

    def so_far(self) -> "Transcript":
        """The transcript of what the network has heard since the last endpoint. The stream continues as before."""
        return self._segment_so_far(whole=False)

    def _advance(self, samples: "npt.NDArray[np.float32]") -> "list[Transcript]":
        """Runs the network; returns the segments that ended."""
        values, self._state = self._graph.step(samples, self._state)
        if self._endpoint_frames is None:
            self._hear(values)
            return []
        segments = []

        # A packet may hold several endpoints: the frames before each belong to the segment that ends there.
        start = 0
        blank = len(self._symbols)
        space = self._symbols.index(" ") if " " in self._symbols else -1
        for index, best in enumerate(values.argmax(axis=1).tolist()):
            if best not in (blank, space):
                self._quiet = 0
                self._spoken = True
                continue
            self._quiet += 1
            if self._spoken and self._quiet >= self._endpoint_frames:
                self._hear(values[start : index + 1])
                start = index + 1
                segments.append(self._end_segment(whole=False))
        self._hear(values[start:])
        return segments

    def _begin_segment(self) -> None:
        # [frames, symbols + 1] each
        self._rows: list[npt.NDArray[np.float32]] = []
        self._greedy: list[int] = []
        self._last = -1
        self._best: str | None = None
        self._quiet = 0
        self._spoken = False
        self._beam: BeamStream | None = self._search.stream() if self._search else None

    def _hear(self, values: "npt.NDArray[np.float32]") -> None:
        """Decodes further frames of the segment."""
        if not len(values):
            return
        self._rows.append(values)
        self._best = None
        if self._beam:
            self._beam.extend(values)
        else:
            # The last label of the chunk before is put in front: a symbol that continues is not written again.
            labels = [label for label, _ in itertools.groupby([self._last, *values.argmax(axis=1).tolist()])]
            self._last = labels[-1]
            self._greedy += [label for label in labels[1:] if label < len(self._symbols)]

    def _text(self) -> str:

        if self._peak < SILENCE_PEAK:
            return ""
        if self._best is None:  # most packets bring no frame
            if self._beam:
                texts = self._beam.best()
                self._best = texts[0].text if texts else ""
            else:
                self._best = " ".join("".join(self._symbols[label] for label in self._greedy).split())
        return self._best

    def _end_segment(self, *, whole: bool) -> "Transcript":
        transcript = self._segment_so_far(whole=whole)
        self._frames += sum(map(len, self._rows))
        self._begin_segment()
        return transcript

    def _segment_so_far(self, *, whole: bool) -> "Transcript":
        import numpy as np

        values = np.concatenate(self._rows) if self._rows else np.zeros((0, len(self._symbols) + 1), np.float32)
        seconds = self._samples / self.sample_rate

        # As of a whole recording, unless there were segments.
        start = 0.0
        frame = seconds / max(len(values), 1)
        if not whole:
            start = self._schedule.first_center / self.sample_rate + self._frames * self._frame
            frame = self._frame
            seconds = len(values) * self._frame
        return self._transcribe(self._text(), values, seconds, start, frame, self._peak)
