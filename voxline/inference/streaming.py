"""Recognition while the audio arrives: samples in, partial texts out, and a transcript at the end.

  stream = Recognizer("runs/live/registry/asr/1").stream(endpoint_ms=700)
  for samples in microphone:                    # float32 in [-1, 1], or int16, at the model's rate; any number of them
      partial = stream.feed(samples)
      print(partial.text, partial.segments)     # the text so far; what ended in silence
  transcript = stream.finish()

Without endpoints the transcript is that of `recognize` on the whole recording, however its samples were cut. A model
has a streaming graph if it was trained with `train.export.streaming`; it must be causal. Any other model hears one
utterance after the other, each when the speaker pauses: a `PauseStream`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError
from voxline.inference.pauses import (
    LEVEL_SECONDS,
    Cuts,
    PauseFinder,
    SileroFinder,
    SpeechPause,
    cut_at_pauses,
    is_noise,
    measure_levels,
)
from voxline.inference.streaming_graph import CallSchedule, StreamingGraph
from voxline.inference.transcript import Transcript
from voxline.inference.waveforms import SILENCE_PEAK, prepare_array

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.beam_search import BeamSearch, BeamStream

DEFAULT_CHUNK_MS = 160.0
LOOK_SECONDS = 0.1
"""Between two looks for a pause."""
LONGEST_SECONDS = 30.0
"""A longer utterance ends at its longest pause, however short, or at its quietest place; pauses are looked for among
so many seconds."""
LEAD_SECONDS = 0.5
"""Of the silence before an utterance, that is heard with it."""
LATE_SECONDS = 2.0
"""A streaming graph may write its first symbol so much after the speech began."""
LEAST_SPEECH_SECONDS = 0.1
"""A shorter sound begins no utterance."""
UNSURE_SECONDS = 0.5
NOISE_SECONDS = 1.0
"""Before any pause shows how loud the noise is: what varies for so much is speech, what does not is noise."""
SILENT_DB = -90.0
"""Digital silence, of full scale."""


@dataclasses.dataclass(frozen=True, slots=True)
class Partial:
    """The transcript of a stream so far.

    Attributes:
      text: since the last endpoint; words at its end may still change.
      segments: transcripts of what ended in silence since the last call; their times count from the stream's start.
      seconds: of audio that arrived.
      speech_start: seconds from the stream's start at which the speech after the last endpoint began; None: there is
        none yet, or it is known by its text alone.
    """

    text: str
    segments: "tuple[Transcript, ...]"
    seconds: float
    speech_start: float | None = None


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
      has_partials: whether it tells the text of an utterance before its end.
    """

    has_partials = True

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

        _check_endpoint(endpoint_ms)
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
        transcript = self._transcribe(self._text(), values, seconds, start, frame, self._peak)

        # Symbols may come late, so more of the silence before the first one stays than a `PauseStream` keeps.
        spoken = np.flatnonzero(values.argmax(axis=1) < len(self._symbols))
        if whole or not transcript.text or not len(spoken):
            return transcript
        return dataclasses.replace(transcript, unheard=max(0.0, float(spoken[0]) * frame - LATE_SECONDS))


class PauseStream:
    """A recording that is still arriving, of a model that hears whole utterances: each when the speaker pauses.

    It tells no partial texts. Looks are at fixed samples, so equal audio gives equal transcripts however it was cut.
    What ends in noise alone is a segment without a text, if it was loud enough to be speech. Where noise rises, the
    next pauses may be found late, after `LONGEST_SECONDS` at most; Silero VAD knows no such wait.

    Args:
      recognize: the transcript of a waveform, float32 [samples] at the model's rate.
      sample_rate: of the model, in Hz.
      finder: of pauses.
      endpoint_ms: a segment ends in a pause of so much, 250 ms at least; None: never.

    Attributes:
      latency, sample_rate, has_partials: as of `RecognitionStream`.
    """

    has_partials = False

    def __init__(
        self,
        recognize: "Callable[[npt.NDArray[np.float32]], Transcript]",
        sample_rate: int,
        finder: PauseFinder,
        endpoint_ms: float | None = None,
    ) -> None:
        import numpy as np

        _check_endpoint(endpoint_ms)
        self.sample_rate = sample_rate
        self.latency = Latency(0.0, 1000 * LOOK_SECONDS, 1000 * LONGEST_SECONDS)
        self._recognize = recognize
        self._finder = finder
        self._endpoint = math.inf if endpoint_ms is None else endpoint_ms / 1000
        self._audio = bytearray()  # float32, from the sample `_first` on: what may be recognized yet
        self._first = self._begin = self._samples = 0  # `_begin`: where the segment began, with its silence
        self._looks = 0
        # [levels] of twice LONGEST_SECONDS at most, up to the last look; and what the finder measured since the start
        self._levels: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self._listen = finder.listener(sample_rate)
        self._measured: list[float] = []
        self._first_measured = 0
        self._speech_start: float | None = None
        self._is_silent = False  # since the last endpoint, up to the last look
        self._finished = False

    def feed(self, samples: "npt.NDArray[Any]") -> Partial:
        """Hears the next samples; see `RecognitionStream.feed`."""
        if self._finished:
            raise SettingsError("the stream is finished; make a new one")
        waveform = prepare_array(samples, self.sample_rate, self.sample_rate)
        self._audio += waveform.tobytes()
        self._samples += len(waveform)
        segments: list[Transcript] = []
        while math.isfinite(self._endpoint) and self._samples >= self._look_end(self._looks + 1):
            segments += self._look()
        return Partial("", tuple(segments), self._samples / self.sample_rate, self._speech_start)

    def finish(self) -> Transcript:
        """The transcript of what came after the last endpoint; without endpoints, of everything."""
        if self._finished:
            raise SettingsError("the stream is finished; make a new one")
        self._finished = True
        return self.so_far()

    def so_far(self) -> Transcript:
        """The transcript of what came after the last endpoint. The stream continues as before."""
        if self._is_silent:  # a network may write words into it
            return Transcript("", [], None, (self._samples - self._begin) / self.sample_rate)
        return self._heard_until(self._samples)

    def _look_end(self, look: int) -> int:
        return round(look * LOOK_SECONDS * self.sample_rate)

    def _look(self) -> list[Transcript]:
        """Looks whether the segment ended in the next `LOOK_SECONDS`; returns it if it did."""
        import numpy as np

        begin = self._look_end(self._looks)
        self._looks += 1
        now = self._look_end(self._looks)
        levels = measure_levels(self._heard(begin, now), self.sample_rate)[: round(LOOK_SECONDS / LEVEL_SECONDS)]
        self._levels = np.concatenate([self._levels, levels])[-round(2 * LONGEST_SECONDS / LEVEL_SECONDS) :]

        if self._listen:
            self._measured += self._listen(self._heard(begin, now)).tolist()

        seconds = self._looks * LOOK_SECONDS
        first = self._first / self.sample_rate
        pauses = [pause for pause in self._pauses(seconds) if pause.end > first]
        silent = sum(min(pause.end, seconds) - max(pause.start, first) for pause in pauses)
        # What is measured may lag a window behind.
        lag = 2 * LEVEL_SECONDS if self._listen is None else LOOK_SECONDS
        ends_quiet = bool(pauses) and pauses[-1].end > seconds - lag
        speaks = bool(pauses) and seconds - first - silent >= LEAST_SPEECH_SECONDS
        is_steady = all(pause.steady for pause in pauses)

        # Without a pause of its noise, levels alone tell speech from noise: speech varies.
        within = self._levels[-max(1, round((seconds - first) / LEVEL_SECONDS)) :]
        if self._listen is None and not self._knows_noise(pauses, seconds):
            speaks = seconds - first >= UNSURE_SECONDS and not is_noise(within)
            if not speaks and seconds - first >= NOISE_SECONDS:
                ends_quiet = is_steady = True

        if speaks and self._speech_start is None:
            quiet_before = pauses[0].end if pauses and pauses[0].start <= first + LEVEL_SECONDS else first
            self._speech_start = min(quiet_before, seconds)
        if not speaks:
            self._speech_start = None

        # What is no more than steady noise need not be heard, but for the last of it.
        silent_until = self._speech_start if speaks else seconds if ends_quiet else None
        self._is_silent = ends_quiet and is_steady and not speaks
        if silent_until is not None and is_steady:
            self._forget(max(self._first, round((silent_until - LEAD_SECONDS) * self.sample_rate)))
            first = self._first / self.sample_rate
            pauses = [pause for pause in pauses if pause.end > first]
        if speaks and ends_quiet and pauses[-1].seconds >= self._endpoint:
            return [self._end_segment(min(now, round(pauses[-1].end * self.sample_rate)))]
        if seconds - first > LONGEST_SECONDS:
            shifted = [SpeechPause(pause.start - first, pause.end - first, pause.steady) for pause in pauses]
            within = self._levels[-round((seconds - first) / LEVEL_SECONDS) :]
            part, *_ = cut_at_pauses(shifted, within, seconds - first, Cuts(limit=LONGEST_SECONDS, packed=True))
            return [self._end_segment(self._first + round(part.end * self.sample_rate))]
        return []

    def _knows_noise(self, pauses: Sequence[SpeechPause], seconds: float) -> bool:
        """Returns whether a pause has sound: digital silence tells nothing of the noise beside it."""
        start = seconds - len(self._levels) * LEVEL_SECONDS
        for pause in pauses:
            begin, end = (max(0, round((time - start) / LEVEL_SECONDS)) for time in (pause.start, pause.end))
            if (self._levels[begin:end] > SILENT_DB).mean() > 0.5:
                return True
        return False

    def _pauses(self, seconds: float) -> list[SpeechPause]:
        """The pauses of the last while, in seconds from the stream's start."""
        import numpy as np

        levels = self._levels
        start = seconds - len(levels) * LEVEL_SECONDS
        measured = np.zeros(0, np.float32)
        if self._listen:
            # Of the last half minute that is still here, whole windows.
            earliest = max(self._first / self.sample_rate, seconds - LONGEST_SECONDS)
            skipped = int(earliest / SileroFinder.SECONDS)
            del self._measured[: max(0, skipped - self._first_measured)]
            self._first_measured = max(skipped, self._first_measured)
            measured = np.array(self._measured, np.float32)
            start = self._first_measured * SileroFinder.SECONDS
            levels = levels[-max(1, round((seconds - start) / LEVEL_SECONDS)) :]
        return [
            SpeechPause(start + pause.start, start + pause.end, pause.steady)
            for pause in self._finder.pauses(measured, levels)
        ]

    def _heard(self, begin: int, end: int) -> "npt.NDArray[np.float32]":
        """Samples that are still here."""
        import numpy as np

        return np.frombuffer(bytes(self._audio[4 * (begin - self._first) : 4 * (end - self._first)]), np.float32)

    def _end_segment(self, end: int) -> Transcript:
        transcript = self._heard_until(end)
        self._forget(end)
        self._begin = end
        self._speech_start = None
        self._is_silent = False
        return transcript

    def _heard_until(self, end: int) -> Transcript:
        transcript = self._recognize(self._heard(self._first, end))
        later = self._first / self.sample_rate
        words = [dataclasses.replace(word, start=word.start + later, end=word.end + later) for word in transcript.words]
        seconds = (end - self._begin) / self.sample_rate
        unheard = (self._first - self._begin) / self.sample_rate
        return dataclasses.replace(transcript, words=words, seconds=seconds, unheard=unheard)

    def _forget(self, before: int) -> None:
        del self._audio[: 4 * (before - self._first)]
        self._first = before


def _check_endpoint(endpoint_ms: float | None) -> None:
    if endpoint_ms is not None and not (math.isfinite(endpoint_ms) and endpoint_ms > 0):
        raise SettingsError(f"endpoint_ms is {endpoint_ms}; milliseconds above 0 are accepted, or None")
