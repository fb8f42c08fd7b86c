"""Sends a share of the requests to the candidate, and takes the candidate out as soon as it is worse than production.

A session goes to one arm, always the same, by a salted hash; requests without a session are drawn one by one. A request
that the candidate fails on is answered by production, so its caller gets an answer, and the failure counts. Requests
are judged in the order in which they came: a slow arm could not decide otherwise what is looked at first.

A server that has seen enough sends everything to production at once. Then, under a lock, it adds up what all servers
know; if that is enough as well, the alias is withdrawn in the journal, where every other server reads it.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, TypeVar

from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.feedback.canary_state import (
    CONTINUE,
    PROMOTABLE,
    ROLL_BACK,
    CanaryPair,
    CanarySettings,
    CanaryState,
    CanaryStore,
    current_pair,
)
from voxline.feedback.watch import judged_results
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.transcript import Transcript
from voxline.metrics.wer_estimate import WerCurve, clip_of_result
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE
from voxline.registry.models_config import write_models_config
from voxline.registry.registry import Registry
from voxline.serving.canary_trial import CanaryTrial, Turn
from voxline.serving.followed_model import FollowedModel, LoadedVersion
from voxline.serving.limits import ServingLimits
from voxline.serving.refusals import RefusedError

SESSION_HEADER = "x-voxline-session"
SESSION_FIELD = "session"
ARM_HEADER = "x-voxline-arm"
WINDOW_SECONDS = 15.0
"""Of a session on a WebSocket count what is heard in so many seconds, or until a final text if that comes first."""
Result = TypeVar("Result")
Engine = TypeVar("Engine")
Runner = Callable[[Callable[[], Any]], Awaitable[Any]]
Measure = Callable[[Result], tuple[float, Transcript | None]]
"""Of a result: the seconds of its audio, and what was heard."""


class Canary:
    """The candidate of a model that is served, with a share of its requests.

    Args:
      root: the registry.
      production: what serves all other requests.
      threads: of ONNX Runtime for one recording.

    Attributes:
      model: its name.
      rollbacks: candidates that this server has withdrawn.
      fault: why the candidate gets nothing, if it is not for its answers; "" else.
      stream_threads: run the candidate's streams; there is room for as many sessions as production has. The next
        candidate has others: one that hangs keeps its own.
      streams: sessions on a WebSocket that this candidate or an earlier one began to hear and that have not ended.
      takeovers: sessions that production took over from a candidate.
      on_end: is called with the model's name and each turn that has ended.
    """

    def __init__(
        self,
        root: Path | str,
        production: FollowedModel,
        settings: CanarySettings,
        limits: ServingLimits | None = None,
        threads: int = 1,
    ) -> None:
        self.model = production.reference.partition("@")[0]
        self.settings = settings
        self.rollbacks = 0
        self.fault = ""
        self._limits = limits or ServingLimits()
        self._root = root
        self._production = production
        self._threads = threads
        self._registry = Registry(root, self.model)

        # What `look` finds: the loaded candidate, its trial, and a pair that cannot be loaded.
        self._candidate: FollowedModel | None = None
        self._trial: CanaryTrial | None = None
        self._refused: CanaryPair | None = None

        # What was printed already, so that it is printed once.
        self._announced = ""
        self._faults: set[str] = set()
        self.on_end: Callable[[str, Turn], None] = lambda *_: None

        # `look` runs in a thread of its own; other threads wake it when a verdict is near.
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._start_threads()
        self.streams = self.takeovers = 0
        self.look()

    def _start_threads(self) -> None:
        # As much room as production has: no more requests than that are let in.
        few = self._limits.concurrency
        room = self._limits.concurrency + self._limits.queue
        seconds = min(self._limits.canary_seconds, self._limits.request_seconds / 2)  # then production has its turn

        self._upload_threads = CandidateThreads("canary", few, room, seconds)
        self.stream_threads = CandidateThreads(
            "canary stream", few, self._limits.streams, self._limits.canary_stream_seconds
        )

    def begin(self, session: str, *, stream_of: LoadedVersion | None = None) -> Turn | None:
        """The turn of a request or of a session on a WebSocket; None while everything goes to production.

        Args:
          session: by which its arm is chosen; "" for one of its own.
          stream_of: of a session on a WebSocket, the version in production that has made a stream for it.
        """
        # Read once: another thread may end the trial.
        trial = self._trial
        is_stream = stream_of is not None

        if trial is None or self.fault or trial.production is not (stream_of or self._production.current):
            return None

        if trial.verdict == ROLL_BACK:
            self._wake.set()
            return None

        if is_stream and trial.candidate.engine.sample_rate != trial.production.engine.sample_rate:
            return None  # production could not take the session over
        if is_stream and self.streams >= self._limits.streams > trial.streams:
            return None  # full of sessions of an earlier candidate, which is no fault of this one
        return trial.begin(session, is_stream=is_stream)

    async def answer(
        self,
        turn: Turn,
        work: Callable[[Any], Result],
        run: Runner,
        measure: Measure[Result],
    ) -> tuple[Result, LoadedVersion]:
        """Answers a request by the arm of its turn, and counts it.

        Args:
          work: with an engine, in a thread.
          run: runs work on production's threads.

        Returns:
          The result, and the version that it is of.
        """
        trial = turn.trial
        refused = None
        try:
            if turn.chosen:
                try:
                    # Candidates run in threads of their own, so that one that hangs takes none of production's.
                    timed = await self._upload_threads.run(lambda: run_timed(work, trial.candidate.engine))
                except Exception as error:
                    if _is_callers_fault(error):
                        refused = error  # if production refuses it as well
                    else:
                        self.fail(turn, error)
                else:
                    _finish(turn, timed, measure)
                    return timed.result, trial.candidate

            # Production answers where the candidate did not, so the caller never sees its failure.
            try:
                timed = await run(lambda: run_timed(work, trial.production.engine))
            except Exception as error:
                if not (turn.chosen or _is_callers_fault(error)):
                    turn.fail()
                raise

            # Both refuse it: the request is the reason. Only the candidate does: it is worse.
            if refused:
                self.fail(turn, refused)
            elif not turn.chosen:
                _finish(turn, timed, measure)
            return timed.result, trial.production
        # However it ended, the turn is over; one that has counted already ignores this.
        finally:
            turn.drop()
            self.ended(turn)

    def ended(self, turn: Turn) -> None:
        """Counts a turn that has ended, and wakes the look at the verdict."""
        self.on_end(self.model, turn)

        # A verdict is near: the thread looks at once, and not at its next time.
        if turn.trial.verdict == ROLL_BACK or (turn.trial.verdict == PROMOTABLE and self.settings.promote):
            self._wake.set()

    def take_room(self, turn: Turn) -> bool:
        """Room for a session with the candidate, which gives it back at its end; False if there is none."""
        if self.streams >= self._limits.streams:
            return False
        self.streams += 1
        turn.trial.streams += 1
        return True

    def give_room(self, turn: Turn) -> None:
        self.streams -= 1
        turn.trial.streams -= 1

    def has_lost(self, turn: Turn) -> bool:
        """Returns whether the candidate of a turn is none any more, and not in production either."""
        return turn.trial.verdict == ROLL_BACK or turn.trial.is_superseded

    def is_over(self, turn: Turn) -> bool:
        """Returns whether the candidate of a turn has lost, and its withdrawal is done."""
        return turn.trial is not self._trial and self.has_lost(turn)

    def fail(self, turn: Turn, error: Exception) -> None:
        """Counts a request that its arm did not answer, and prints why if that is the candidate."""
        turn.fail()

        if not turn.chosen:
            return
        fault = str(error) if isinstance(error, RefusedError | VoxlineError) else f"{type(error).__name__}: {error}"
        # Each kind of fault once, and no more than twenty kinds: a log is no list of requests.
        if fault not in self._faults and len(self._faults) < 20:
            self._faults.add(fault)
            print_status(f"serve: {self.model}: version {turn.trial.pair.candidate}, the candidate: {fault}")

    def describe(self) -> dict[str, Any]:
        """Describes the trial for `/healthz` and `/metrics`."""
        trial = self._trial
        verdict = "none" if trial is None else trial.verdict
        return {
            "candidate": trial.pair.candidate if trial else None,
            "verdict": verdict,
            "fault": self.fault,
            "streams": self.streams,
            "takeovers": self.takeovers,
        }

    @property
    def state(self) -> CanaryState | None:
        """The state of the present candidate on all servers."""
        return self._trial.state if self._trial else None

    def follow(self, seconds: float) -> None:
        """Looks at the registry every few seconds, and when a verdict is near, in a thread of its own."""

        def work() -> None:
            while not self._stopped.is_set():
                self._wake.wait(seconds)
                self._wake.clear()
                if not self._stopped.is_set():
                    self.look()
                    self._stopped.wait(0.1)  # a verdict that cannot be carried out is tried ten times a second at most

        threading.Thread(target=work, name=f"canary {self.model}", daemon=True).start()

    def stop(self) -> None:
        """Publishes what was counted, and ends."""
        self._stopped.set()
        self._wake.set()

        if trial := self._trial:
            try:
                trial.sync()
            except Exception as error:
                print_status(f"serve: canary of {self.model}: {error}")

        self._upload_threads.stop()  # last: what finds no thread any more would count as failed
        self.stream_threads.stop()

    def look(self) -> None:
        """Finds the candidate, shares what is known, and carries out a verdict. A fault sends all to production."""
        try:
            self._find_pair()
            if self._trial:
                self._trial.sync()
                self._decide(self._trial)
            self.fault = ""
        except Exception as error:  # whatever it is, production serves
            fault = str(error) or type(error).__name__
            if fault != self.fault:
                print_status(f"serve: {self.model}: all requests go to production: {fault}")
            self.fault = fault

    def _find_pair(self) -> None:
        pair = current_pair(self._registry)
        production = self._production.current

        # The registry names another pair: what was counted so far is of no use for it.
        if self._trial and pair != self._trial.pair:
            self._end_trial()
        if pair is None or production is None:
            self._trial = self._candidate = None
            return

        if pair == self._refused:
            raise WorkError(self.fault or f"version {pair.candidate} could not be loaded")

        try:
            if self._candidate is None:
                self._candidate = FollowedModel(
                    self._root, f"{self.model}@{CANDIDATE}", self._threads, self._production.pauses
                )
            else:
                self._candidate.refresh()
            if self._candidate.fault:
                raise TransientError(self._candidate.fault)
        except (TransientError, PreconditionError, OSError):
            raise
        except Exception:
            self._refused = pair  # not loaded again until the registry names another one
            raise

        # Both versions must be the ones that the registry names, and loaded here.
        candidate = self._candidate.current
        if candidate is None or (production.version, candidate.version) != (pair.production, pair.candidate):
            self._trial = None  # until both are loaded
            return

        trial = self._trial
        if trial and trial.pair == pair and trial.production is production and trial.candidate is candidate:
            return

        store = CanaryStore(self._root, self.model, pair)
        store.start()
        self._faults = set()

        seconds = self._limits.canary_seconds
        curves = self._curves(pair)
        # A voice has no transcript, and without evaluations there is no estimate of the errors.
        transcript_measures = (
            [] if isinstance(candidate.engine, Synthesizer) else ["empty", "errors"] if curves else ["empty"]
        )
        measures = ("failed", "slow", *transcript_measures)
        self._start_threads()
        streamed = WINDOW_SECONDS + 3 * self._limits.canary_stream_seconds  # with a message before, one after, a look
        self._trial = CanaryTrial(
            store, pair, production, candidate, self.settings, seconds, measures, curves, streamed
        )
        without = "" if curves or isinstance(candidate.engine, Synthesizer) else ", without an estimate of its WER"
        print_status(
            f"serve: {self.model}: version {pair.candidate}, the candidate, answers {self.settings.share:.1%} of the "
            f"requests{without}"
        )

    def _end_trial(self) -> None:
        if self._trial:
            named = self._registry.in_service(), self._registry.candidate()
            self._trial.is_superseded = self._trial.pair.candidate not in named
        self._trial = None

    def _curves(self, pair: CanaryPair) -> tuple[WerCurve, WerCurve] | None:
        """Fits the curves of production and the candidate; None if one was not evaluated with confidences."""
        try:
            judged = [judged_results(self._registry, version) for version in (pair.production, pair.candidate)]
        except (WorkError, SettingsError, OSError):
            return None
        clips = [[clip for result in results if (clip := clip_of_result(result))] for results in judged]
        return (WerCurve.fit(clips[0]), WerCurve.fit(clips[1])) if all(clips) else None

    def _decide(self, trial: CanaryTrial) -> None:
        verdict = trial.verdict
        if verdict == PROMOTABLE and not self.settings.promote:
            self._announce(f"version {trial.pair.candidate} can be promoted: {trial.state.summary}")
        elif verdict != CONTINUE:
            with trial.store.lock():
                self._carry_out(trial.pair, trial.sync())  # servers decide on the same files, one after the other

    def _carry_out(self, pair: CanaryPair, state: CanaryState) -> None:
        # The verdict of all servers, read again under the lock: this server's own may be ahead of it.
        verdict = state.verdict
        note = state.summary
        if verdict == CONTINUE or (verdict == PROMOTABLE and not self.settings.promote):
            return

        if current_pair(self._registry) != pair:
            self._end_trial()  # another server, or a person, was faster
            return

        if verdict == ROLL_BACK:
            self._registry.withdraw(pair.candidate, note)
            self.rollbacks += 1
        else:
            self._registry.promote(pair.candidate, note=note)

        # The trial ends here; other servers read it from the journal.
        self._trial = self._candidate = None
        done = "withdrawn" if verdict == ROLL_BACK else "promoted"
        self._announce(f"version {pair.candidate}, the candidate, is {done}: {note}")
        write_models_config(self._root)

    def _announce(self, text: str) -> None:
        if text.partition(":")[0] != self._announced:
            print_status(f"serve: {self.model}: {text}")
        self._announced = text.partition(":")[0]


class CandidateThreads:
    """Threads of its own, so that a candidate that hangs takes none from production.

    Args:
      room: calls that run and wait at a time, those included that were given up and still run.
      seconds: after which a call is given up.
    """

    def __init__(self, name: str, threads: int, room: int, seconds: float) -> None:
        self._room = room
        self.seconds = seconds
        self._pending = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, work: Callable[[], Result]) -> Result:
        """
        Raises:
          WorkError: there is no room, or no answer in time; and what `work` raises.
        """
        # Calls that were given up count as long as they run: they hold a thread.
        if self._pending >= self._room:
            raise WorkError("too many requests wait for it")
        self._pending += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, work)
        done.add_done_callback(self._one_less)

        try:
            return await asyncio.wait_for(asyncio.shield(done), self.seconds)
        except TimeoutError:
            raise self.too_late() from None

    def too_late(self) -> WorkError:
        return WorkError(f"no answer within {self.seconds:g} s")

    def _one_less(self, done: "asyncio.Future[Any]") -> None:
        self._pending -= 1
        if not done.cancelled():
            done.exception()  # seen, if nobody waits for it any more

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Timed(Generic[Result]):
    """The result of a call, and its running time in seconds, without the time in a queue."""

    result: Result
    seconds: float


def _is_callers_fault(error: Exception) -> bool:
    server = error.status if isinstance(error, RefusedError) else HTTPStatus.INTERNAL_SERVER_ERROR
    return server < HTTPStatus.INTERNAL_SERVER_ERROR and server != HTTPStatus.TOO_MANY_REQUESTS


def run_timed(work: Callable[[Engine], Result], engine: Engine) -> Timed[Result]:
    start = time.perf_counter()
    return Timed(work(engine), time.perf_counter() - start)


def _finish(turn: Turn, timed: Timed[Result], measure: Measure[Result]) -> None:
    seconds, transcript = measure(timed.result)
    turn.finish(timed.seconds, seconds, transcript)
