"""The recognition stream of a session on a WebSocket; with a canary, on the arm that was drawn for it.

`canary` answers requests, which end when they are answered; a session continues. It counts once, by what its version
has heard when the first of these comes: a final text, `WINDOW_SECONDS` from the session's begin, the end. So a version
that hears nothing counts as well, and so does a client who goes. A session without any audio is left out, and so is
one whose candidate is withdrawn before it counts.

The candidate's audio is kept until its segment is final. Where the candidate fails, is too slow or is withdrawn,
production hears that audio and continues, so the caller loses nothing that was said.
"""

import asyncio
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from voxline.errors import WorkError
from voxline.inference.streaming import Partial, PauseStream, RecognitionStream
from voxline.inference.transcript import Transcript
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.serving.canary import WINDOW_SECONDS, Canary, Runner, run_timed
from voxline.serving.canary_trial import Turn
from voxline.serving.followed_model import LoadedVersion

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.int16]

REPLAY_SECONDS = 10.0
"""Audio of a call while production hears a segment again: other streams take their turns in between."""
Result = TypeVar("Result")
Stream = RecognitionStream | PauseStream


class SessionStream:
    """The stream of a session without a canary.

    Args:
      served: the version that hears.
      run: runs work on production's threads.

    Attributes:
      arm: of the canary, that hears now; "" without one.
      sample_rate: of the samples, in Hz.
    """

    arm = ""

    def __init__(self, served: LoadedVersion, stream: Stream, run: Runner) -> None:
        self.served = served
        self._stream = stream
        self._run = run
        self.sample_rate = stream.sample_rate
        self.latency = stream.latency
        self.has_partials = stream.has_partials

    def refuse(self, error: Exception) -> None:
        """The session does not begin."""

    async def start(self) -> None:
        """Is called once, before the rest."""

    async def feed(self, samples: "Samples") -> Partial:
        """Hears the next samples, int16."""
        partial: Partial = await self._run(lambda: self._stream.feed(samples))
        return partial

    async def finish(self) -> Sequence[Transcript]:
        """Returns the segments that were not final yet; the last one is of the end."""
        return [await self._run(self._stream.finish)]

    async def close(self) -> None:
        """Is called at the end, also if the client has gone."""


class CanaryStream(SessionStream):
    """The stream of a session that has a turn in a canary.

    Args:
      production: a new stream of production, which hears if the candidate does not.
      make: makes one like it of another recognizer.
    """

    def __init__(
        self,
        canary: Canary,
        turn: Turn,
        production: Stream,
        make: Callable[[Any], Stream],
        run: Runner,
    ) -> None:
        super().__init__(turn.trial.production, production, run)

        self._canary = canary
        self._turn = turn
        self._make = make
        self._production = production
        self._threads = canary.stream_threads

        self._kept = bytearray()  # int16, since the last final text, while the candidate hears
        self._samples = 0
        self._computing = 0.0
        self._offset = 0.0
        self._is_reported = self._is_interrupted = False
        # The client's messages, the window's end and the close come at any time: one of them at a time.
        self._one_at_a_time = asyncio.Lock()
        self._window: asyncio.Task[None] | None = None
        self._has_room = turn.chosen and canary.take_room(turn)
        self.arm = CANDIDATE if self._has_room else PRODUCTION
        if turn.chosen and not self._has_room:
            self._fail(WorkError("too many sessions at a time"))

    def refuse(self, error: Exception) -> None:
        """The session does not begin, as production, its arm, has no room for it."""
        self._fail(error)

    async def start(self) -> None:
        self._window = asyncio.create_task(self._count_in_time())
        if self.arm == PRODUCTION:
            return

        candidate = self._turn.trial.candidate
        async with self._one_at_a_time:
            if stream := await self._try(lambda _: self._make(candidate.engine)):
                self.served = candidate
                self._stream = stream
                self.latency = stream.latency
                self.has_partials = stream.has_partials
                self._computing = 0.0  # production's stream was made before anything was timed
            else:
                await self._take_over()

    async def feed(self, samples: "Samples") -> Partial:
        async with self._one_at_a_time:
            self._samples += len(samples)
            if self.arm == PRODUCTION:
                partial = self._shifted(await self._call(lambda stream: stream.feed(samples)))
            else:
                self._kept += samples.tobytes()

                partial_result = await self._try(lambda stream: stream.feed(samples))
                partial = partial_result or await self._take_over()
                # What is final is not heard again by production.
                for segment in partial_result.segments if partial_result else ():
                    del self._kept[: 2 * round(segment.seconds * self.sample_rate)]

            if partial.segments:
                self._count(partial.segments[0])
            return partial

    async def finish(self) -> Sequence[Transcript]:
        async with self._one_at_a_time:
            segments: list[Transcript] = []
            last = await self._try(_finish) if self.arm == CANDIDATE else None
            if last is None:
                if self.arm == CANDIDATE:
                    segments += (await self._take_over()).segments
                last = self._later(await self._call(_finish))
            self._count(last)
            return [*segments, last]

    async def close(self) -> None:
        # The turn counts before the room is given back.
        try:
            async with self._one_at_a_time:
                if self._window:
                    self._window.cancel()
                await self._count_so_far()
        finally:
            if self._has_room:
                self._canary.give_room(self._turn)

    async def _try(self, work: Callable[[Stream], Result]) -> Result | None:
        """Returns the candidate's result; None if it fails, or has lost its place to production."""
        if self._canary.is_over(self._turn):  # nothing is compared any more, and the candidate may hang
            self._turn.drop()
            self._report()
            return None
        if self._is_interrupted or self._canary.has_lost(self._turn):
            await self._count_so_far()
            return None

        try:
            return await self._on(self._threads.run, work)
        except Exception as error:
            self._fail(error)
            return None

    async def _call(self, work: Callable[[Stream], Result]) -> Result:
        """Returns production's result. An answer too late for a candidate counts as failed here too."""
        began = time.monotonic()
        try:
            result = await self._on(self._run, work)
        except Exception as error:
            if not self._turn.chosen:
                self._fail(error)
            raise
        if not self._turn.chosen and time.monotonic() - began > self._threads.seconds:
            self._fail(self._threads.too_late())
        return result

    async def _on(self, run: Runner, work: Callable[[Stream], Result]) -> Result:
        # Bound here: the stream may be exchanged while the call runs.
        stream = self._stream
        try:
            timed = await run(lambda: run_timed(work, stream))
        except BaseException:
            self._is_interrupted = True  # the call may still run
            raise

        self._computing += timed.seconds
        result: Result = timed.result
        return result

    async def _take_over(self) -> Partial:
        """Lets production hear what was kept."""
        import numpy as np

        # From here on production hears, also if this replay fails.
        self.arm = PRODUCTION
        self.served = self._turn.trial.production
        self._stream = self._production
        self._is_interrupted = False
        self._canary.takeovers += 1
        # Since the last final text; the times of what comes are counted from the session's start.
        recent = np.frombuffer(bytes(self._kept), np.int16)
        self._kept = bytearray()
        self._offset = (self._samples - len(recent)) / self.sample_rate

        size = round(REPLAY_SECONDS * self.sample_rate)
        segments: list[Transcript] = []
        for piece in np.split(recent, range(size, len(recent), size)):
            partial = self._shifted(await self._call(functools.partial(_feed, samples=piece)))
            segments += partial.segments
        return dataclasses.replace(partial, segments=tuple(segments))

    async def _count_in_time(self) -> None:
        await asyncio.sleep(WINDOW_SECONDS)
        async with self._one_at_a_time:
            await self._count_so_far()

    async def _count_so_far(self) -> None:
        if self._turn.done:
            self._report()  # it may have been overdue
            return
        # Nothing was heard, or a call may still be running: it says nothing of the arm.
        if not self._samples or self._is_interrupted:
            self._turn.drop()
            self._report()
            return

        try:
            if self.arm == CANDIDATE:
                self._count(await self._on(self._threads.run, _so_far))
            else:
                self._count(await self._call(_so_far))
        except Exception as error:
            self._fail(error)

    def _count(self, transcript: Transcript) -> None:
        if not self._turn.done:
            self._turn.finish(self._computing, self._samples / self.sample_rate, transcript)
            self._report()

    def _fail(self, error: Exception) -> None:
        self._canary.fail(self._turn, error)
        self._report()

    def _report(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._canary.ended(self._turn)

    def _shifted(self, partial: Partial) -> Partial:
        """Shifts times so that they count from the session's start."""
        segments = tuple(map(self._later, partial.segments))
        began = None if partial.speech_start is None else partial.speech_start + self._offset
        return dataclasses.replace(
            partial, segments=segments, seconds=partial.seconds + self._offset, speech_start=began
        )

    def _later(self, transcript: Transcript) -> Transcript:
        by = self._offset
        words = [dataclasses.replace(word, start=word.start + by, end=word.end + by) for word in transcript.words]
        return dataclasses.replace(transcript, words=words)


def _feed(stream: Stream, samples: "Samples") -> Partial:
    return stream.feed(samples)


def _finish(stream: Stream) -> Transcript:
    return stream.finish()


def _so_far(stream: Stream) -> Transcript:
    return stream.so_far()
