"""A candidate beside the version in production: requests come in, are counted in their order, and add up to a verdict.

Requests are judged in the order in which they came: a slow arm could not decide otherwise what is looked at first.
"""

import secrets
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from voxline.feedback.canary_state import (
    CONTINUE,
    MOST_SESSIONS,
    CanaryPair,
    CanarySettings,
    CanaryState,
    CanaryStore,
)
from voxline.inference.transcript import Transcript
from voxline.metrics.wer_estimate import HeardClip, WerCurve
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.serving.followed_model import LoadedVersion

SLOW = 1.5
"""Times production's median of seconds of computing per second of audio, from which an answer is slow."""
_COSTS = 200
_FEWEST_COSTS = 20
"""Latest requests of production whose median that is, and fewest without which nothing is slow. Streams, whose audio
comes in small parts, are compared with streams."""
_SHORTEST = 1.0
"""Seconds: a shorter recording counts as one of these, since most of its cost is not by its length."""


@dataclass
class Turn:
    """A request or a session that takes part in a canary. It ends once, by `finish`, `fail` or `drop`; what comes later
    is ignored.

    Attributes:
      is_stream: a session on a WebSocket.
      arm: "candidate" or "production".
      session: hash of the session; "" without one.
      seconds: from its begin to its end.
      values: of the measures; None if it says nothing of its arm.
    """

    trial: "CanaryTrial"
    chosen: bool
    session: str
    began: float
    is_stream: bool = False
    done: bool = False
    failed: bool = False
    cost: float = 0.0
    seconds: float = 0.0
    values: dict[str, float] | None = None

    @property
    def arm(self) -> str:
        return CANDIDATE if self.chosen else PRODUCTION

    @property
    def is_overdue(self) -> bool:
        limit = self.trial.stream_seconds if self.is_stream else self.trial.seconds
        return time.monotonic() - self.began > limit

    def finish(self, computing: float, seconds: float, transcript: Transcript | None) -> None:
        """Counts an answer; one that came later than a candidate may take has failed, whichever arm gave it.

        Args:
          computing: seconds that it took.
          seconds: of its audio.
          transcript: by a recognizer.
        """
        # An answer that came too late is none, on either arm: else slowness would not count.
        if self.is_overdue:
            self.fail()
        elif not self.done:
            self.cost = computing / max(seconds, _SHORTEST)
            self.values = {"failed": 0.0}
            if transcript:
                self.values |= {
                    "empty": float(not transcript.text),
                    **self.trial.estimate(transcript, chosen=self.chosen),
                }
            self._end()

    def fail(self) -> None:
        """Counts a request that got no answer from its arm."""
        if not self.done:
            self.failed = True
            self.values = {"failed": 1.0}
            self._end()

    def drop(self) -> None:
        """Leaves the request out: it says nothing of the arm."""
        if not self.done:
            self.values = None
            self._end()

    def _end(self) -> None:
        self.seconds = time.monotonic() - self.began
        self.done = True
        self.trial.settle()


class CanaryTrial:
    """Two loaded versions, and what this server knows of them. Its methods may be called from any thread.

    Args:
      production, candidate: the versions of `pair`.
      seconds: after which a request without an answer has failed.
      measures: that are compared: of a voice none of what was heard.
      curves: of production and of the candidate.
      stream_seconds: as `seconds`, for the part of a session that counts; None: the same.

    Attributes:
      is_superseded: the candidate has lost its alias, and is not in production.
      state: what all servers know, as far as this one has read it.
      verdict: of `state`.
      streams: sessions on a WebSocket that the candidate began to hear and that have not ended.
    """

    def __init__(
        self, store: CanaryStore, pair: CanaryPair, production: LoadedVersion, candidate: LoadedVersion,
        settings: CanarySettings, seconds: float, measures: Sequence[str],
        curves: tuple[WerCurve, WerCurve] | None = None, stream_seconds: float | None = None,
    ) -> None:  # fmt: skip
        self.pair = pair
        self.production = production
        self.candidate = candidate
        self.store = store
        self._settings = settings
        self.seconds = seconds
        self._measures = measures
        self._curves = curves
        self.stream_seconds = seconds if stream_seconds is None else stream_seconds
        self.is_superseded = False
        self.streams = 0

        # A server's name is random: after a restart it is another server, whose file stays.
        self._server = secrets.token_hex(6)
        self._own = CanaryState(settings)
        self._others = CanaryState(settings)
        self._published: dict[str, Any] | None = None

        # Requests in the order in which they came, and sessions that were claimed and not counted yet.
        self._turns: deque[Turn] = deque()
        self._claimed: list[Turn] = []
        self._costs: dict[bool, deque[float]] = {kind: deque(maxlen=_COSTS) for kind in (False, True)}

        # `_lock` guards what is counted; `_syncing` lets one thread at a time read and write the files.
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self.state = self._own
        self.verdict = CONTINUE

    def begin(self, session: str, *, is_stream: bool = False) -> Turn:
        """The turn of the next request, or session on a WebSocket.

        Args:
          session: by which its arm is chosen; "" for one of its own.
        """
        if session:
            hashed, number = self.store.hash_of(session)
        else:
            # Without a session each request is drawn by itself.
            hashed = ""
            number = secrets.randbelow(2**53) / 2**53

        turn = Turn(self, number < self._settings.share, hashed, time.monotonic(), is_stream)
        with self._lock:
            self._turns.append(turn)
        return turn

    def estimate(self, transcript: Transcript, *, chosen: bool) -> dict[str, float]:
        """The expected share of wrong words, by the curve of the version that heard them."""
        if not self._curves:
            return {}
        clip = HeardClip(len(transcript.text.split()), transcript.confidence)
        return {"errors": self._curves[chosen].wer([clip])}

    def settle(self) -> None:
        """Counts the requests that have ended, in the order in which they came."""
        with self._lock:
            before = len(self._turns)

            # The oldest request that is still under way holds all that came after it.
            while self._turns:
                turn = self._turns[0]
                if not (turn.done or turn.is_overdue):
                    break
                self._turns.popleft()
                if not turn.done:
                    turn.done = True
                    turn.failed = True
                    turn.values = {"failed": 1.0}
                if turn.values is not None:
                    self._count(turn, turn.values)
            if len(self._turns) < before:
                self._add_up()

    def _count(self, turn: Turn, values: dict[str, float]) -> None:
        if turn.failed:  # the worst in all: left out of some, it would make its arm look better there
            values |= dict.fromkeys(self._measures, 1.0)

        # Slow is relative to production's latest answers, of the same kind.
        costs = self._costs[turn.is_stream]
        if len(costs) >= _FEWEST_COSTS:
            values["slow"] = float(turn.failed or turn.cost > SLOW * statistics.median(costs))
        else:
            values.pop("slow", None)

        # Only production's answers say what is usual.
        if not (turn.failed or turn.chosen):
            costs.append(turn.cost)

        if not turn.session:
            self._own.observe(values, chosen=turn.chosen)
            return

        # A session counts once, on the server that claimed it first.
        is_counted = turn.session in self._own.sessions or turn.session in self._others.sessions
        if not is_counted and len(self._own.sessions) < MOST_SESSIONS:
            self._own.sessions.add(turn.session)
            self._claimed.append(turn)  # counted when no other server has claimed it, see `sync`

    def _add_up(self) -> None:
        self.state = CanaryState.merged([self._own, self._others], sessions=False)
        self.verdict = self.state.verdict

    def sync(self) -> CanaryState:
        """Publishes what this server knows, if that has changed, and reads what the others do.

        A session is claimed first, and counted after it was seen that no other server has: of two that claim it at the
        same time at least one reads the other's claim.

        Returns:
          What all servers have published, which only grows.
        """
        with self._syncing:  # else an older state could be written over a newer one
            return self._sync()

    def _sync(self) -> CanaryState:
        self.settle()

        # What was claimed is published before it is counted.
        with self._lock:
            claimed = self._claimed
            self._claimed = []
            published = CanaryState.merged([self._own])

        try:
            self._publish(published)
            states = self.store.read()
            if self._server not in states:  # somebody removed the file
                self._published = None
                self._publish(published)
        except BaseException:
            self._published = None  # the damaged file may be this server's own
            with self._lock:
                self._claimed = claimed + self._claimed
            raise

        other_states = [state for server, state in states.items() if server != self._server]
        with self._lock:
            self._others = CanaryState.merged([CanaryState(self._settings), *other_states])
            # Claimed by another server as well: this one gives it up, so that it counts once at most.
            counted = [turn for turn in claimed if turn.session not in self._others.sessions]
            for turn in counted:
                self._own.observe(turn.values or {}, chosen=turn.chosen)
            self._add_up()
            if counted:
                published = CanaryState.merged([self._own])

        if counted:
            self._publish(published)
        return CanaryState.merged([published, self._others])

    def _publish(self, state: CanaryState) -> None:
        plain = state.plain()
        if plain != self._published:
            self.store.publish(self._server, state)
            self._published = plain
