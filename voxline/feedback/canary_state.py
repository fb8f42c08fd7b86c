"""What the servers of a canary know of a candidate: their tests, kept in the registry, and the verdict.

  <registry>/<model>/canary/<production>-<candidate>-<line>/<server>.json

`<line>` is that of the journal which named the candidate: a version that is named again is tried again. A server writes
only its own file. What all know is the sum (`SequentialTest.merged`), so that the file of a server that was killed
still counts. Requests of one session are one observation, which one server counts at most.
"""

import contextlib
import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxline.data.json_codec import encode_json, parse_json
from voxline.errors import PreconditionError, SettingsError, WorkError
from voxline.metrics.sequential import SequentialTest, mean_harm
from voxline.registry.journal import CANDIDATE, WITHDRAW
from voxline.registry.registry import Registry
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT

MEASURES = {
    "failed": "requests without an answer",
    "slow": "slow answers",
    "empty": "empty texts",
    "errors": "estimated WER",
}
"""What is compared, each from 0 to 1. The estimate needs the evaluations of both versions. A request without an answer
has the worst value in all."""
CONTINUE = "continue"
ROLL_BACK = "roll back"
PROMOTABLE = "promotable"
MOST_SESSIONS = 20_000
"""Sessions of one server that are counted; more are served, and not counted."""
_FOLDER = "canary"
_SALT = "salt"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """Settings of a candidate's trial.

    Attributes:
      share: of the requests that the candidate answers, 0 to 0.5; 0 for none.
      margin: by which a share of requests may be larger than production's, 0.001 to 0.5; 0.02 is two points.
      alpha: probability with which a candidate that is not worse by more is withdrawn, 0.0001 to 0.5.
      promote: a candidate that is shown to be within the margin becomes production.

    Raises:
      SettingsError: a value is out of range.
    """

    share: float = 0.0
    margin: float = 0.02
    alpha: float = 0.05
    promote: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 0.5:
            raise SettingsError(f"--canary {self.share:g}: a share from 0 to 0.5 is accepted")
        if not 0.001 <= self.margin <= 0.5:
            raise SettingsError(f"--canary-margin {self.margin:g}: 0.001 to 0.5 is accepted; 0.02 is two points")
        if not 0.0001 <= self.alpha <= 0.5:
            raise SettingsError(f"--canary-alpha {self.alpha:g}: a probability from 0.0001 to 0.5 is accepted")
        if self.promote and not self.share:
            raise SettingsError("--canary-promote needs --canary, the share of the requests for the candidate")


@dataclass(frozen=True, slots=True)
class CanaryPair:
    """Two versions that are compared.

    Attributes:
      line: of the journal that named the candidate.
    """

    production: int
    candidate: int
    line: int

    @property
    def name(self) -> str:
        return f"{self.production}-{self.candidate}-{self.line}"


def current_pair(registry: Registry) -> CanaryPair | None:
    """The version in production and the candidate; None without one of them."""
    history = registry.history()
    events = registry.journal()
    production = next(reversed(history.production), None)
    candidate = history.candidate
    if production is None or candidate is None:
        return None

    # The journal's line numbers tell two nominations of one version apart.
    lines = (
        number
        for number, event in enumerate(events, start=1)
        if (event.version, event.alias) == (candidate, CANDIDATE) and event.action != WITHDRAW
    )
    return CanaryPair(production, candidate, max(lines, default=0))


@dataclass
class CanaryState:
    """The state of a trial of a candidate against production.

    Attributes:
      settings: of the server.
      tests: by the name of the measure.
      sessions: that were claimed: hashes, see `CanaryStore.hash_of`.
    """

    settings: CanarySettings
    tests: dict[str, SequentialTest] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # A new trial has a test without requests for each measure.
        self.tests = {name: self.tests.get(name) or SequentialTest(self.settings.margin) for name in MEASURES}

    def observe(self, values: Mapping[str, float], *, chosen: bool) -> None:
        """Adds a request: what was measured of it, and whether it was chosen for the candidate."""
        for name, value in values.items():
            self.tests[name].observe(value, self.settings.share, chosen=chosen)

    @property
    def verdict(self) -> str:
        """CONTINUE, ROLL_BACK or PROMOTABLE.

        A candidate is rolled back if it is worse in any measure, promotable if it is within the margin in all that
        were measured: then each of them may err with `alpha`, and no more than one is needed to be right.
        """
        # Ville's inequality: evidence above 1 / α has a probability of α at most where there is no harm.
        enough = 1 / self.settings.alpha
        if mean_harm(self.tests.values()) >= enough:
            return ROLL_BACK

        # The candidate must be shown to be safe in every measure that was taken; "failed" has one for each request.
        measured = [test for test in self.tests.values() if test.is_measured]
        if self.tests["failed"].is_measured and min(test.safe_evidence for test in measured) >= enough:
            return PROMOTABLE
        return CONTINUE

    @property
    def summary(self) -> str:
        """The verdict's figures, for the journal: of the measure that decides."""
        harm = mean_harm(self.tests.values())
        enough = 1 / self.settings.alpha
        failed = self.tests["failed"]
        count = f"{failed.candidate.count:,} of {failed.candidate.count + failed.production.count:,} requests"
        if self.verdict == PROMOTABLE:
            return f"canary: not worse than production by {self.settings.margin:.1%} in anything; {count}"

        # The measure with the most evidence decided, so it is the one to name.
        name, test = max(self.tests.items(), key=lambda item: item[1].harm_evidence)
        candidate_mean = test.candidate.mean or 0.0
        production_mean = test.production.mean or 0.0
        return (
            f"canary: {MEASURES[name]} {candidate_mean:.1%}, in production {production_mean:.1%}; {count}; "
            f"evidence {min(harm, 1e9):,.3g}, {enough:,.0f} is enough"
        )

    def plain(self) -> dict[str, Any]:
        """Returns plain values for JSON; `of` reads them."""
        settings = {name: getattr(self.settings, name) for name in ("share", "margin", "alpha")}
        tests = {name: test.plain() for name, test in self.tests.items()}
        return {"settings": settings, "tests": tests, "sessions": sorted(self.sessions)}

    @classmethod
    def of(cls, data: bytes, where: str) -> "CanaryState":
        """
        Raises:
          WorkError: the file is damaged.
        """
        try:
            values = parse_json(data)
            tests = {name: SequentialTest.of(values["tests"][name]) for name in MEASURES}
            sessions = {str(session) for session in values["sessions"]}
            share, margin, alpha = (float(values["settings"][name]) for name in ("share", "margin", "alpha"))
            return cls(CanarySettings(share, margin, alpha), tests, sessions)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SettingsError) as error:
            raise WorkError(f"{where}: not what a server knows of a canary ({error}); remove it") from None

    @classmethod
    def merged(cls, states: Iterable["CanaryState"], *, sessions: bool = True) -> "CanaryState":
        """Merges the states of one or more servers into a new one; the first one's settings count.

        Args:
          sessions: with those of all.
        """
        first, *further = states
        every = [first, *further]

        # Evidence of servers adds up only since each session is counted by one of them.
        tests = {name: SequentialTest.merged(state.tests[name] for state in every) for name in MEASURES}
        claimed = set[str]().union(*(state.sessions for state in every)) if sessions else set[str]()
        return cls(first.settings, tests, claimed)


class CanaryStore:
    """The files of a pair.

    Args:
      root: the registry.
    """

    def __init__(self, root: Path | str, model: str, pair: CanaryPair) -> None:
        # The folder above holds the pairs of earlier nominations, which `start` deletes.
        self._above = open_store(root) / model / _FOLDER
        self._store = self._above / pair.name
        self._pair = pair
        self._salt = ""

    def publish(self, server: str, state: CanaryState) -> None:
        """Writes what a server knows, by rename."""
        self._store.write(f"{server}.json", encode_json(state.plain()).encode())

    def read(self) -> dict[str, CanaryState]:
        """Reads what each server has published.

        Raises:
          WorkError: a file is damaged.
        """
        # A server that was killed does not count less: its last file stays.
        names = [info.name for info in self._store.list() if info.name.endswith(".json")]
        return {
            name.removesuffix(".json"): CanaryState.of(self._store.read(name), self._store.uri_of(name))
            for name in names
        }

    def lock(self) -> AbstractContextManager[None]:
        """Lets one server decide at a time: decisions are made on files that only grow, one after the other."""
        return self._store.lock(_LOCK, "waiting for another server that decides on the canary")

    def start(self) -> None:
        """Agrees with other servers on a salt, and deletes what is left of earlier pairs."""
        with contextlib.suppress(PreconditionError):  # another server was faster, or this one ran before
            self._store.write(_SALT, secrets.token_hex(16).encode(), if_version=ABSENT)
        self._salt = self._store.read(_SALT).decode()

        # A folder of an earlier line of the journal: its pair is decided.
        for name in self._above.list_folders():
            line = name.rpartition("-")[2]
            if line.isdecimal() and int(line) < self._pair.line:
                self._above.delete_folder(name)

    def hash_of(self, session: str) -> tuple[str, float]:
        """A session's hash, by which servers know it without knowing its name, and its number in [0, 1).

        The same on all servers and after a restart, and another one for each pair.
        """
        # The first eight bytes place the session in [0, 1), others name it: the name does not tell the place.
        digest = hashlib.sha256(f"{self._salt}\0{session}".encode()).digest()
        return digest[8:14].hex(), int.from_bytes(digest[:8]) / 2**64


def describe_canary(root: Path | str, model: str) -> dict[str, Any]:
    """Describes the trial of a model's candidate: its verdict, and each measure.

    Returns:
      For `--json`. `verdict` is "none" without a candidate, and "continue" without requests yet.

    Raises:
      SettingsError, WorkError: the model does not exist, or a server's file is damaged.
    """
    registry = Registry(root, model)

    pair = current_pair(registry)
    # No trial: the journal may still say how the last one ended.
    if pair is None:
        last = next((event for event in reversed(registry.journal()) if event.action == WITHDRAW), None)
        withdrawn = {"version": last.version, "at": last.at, "note": last.note} if last else None
        return {"model": model, "verdict": "none", "withdrawn": withdrawn}

    # Without a server's file nothing was measured yet, with the default settings.
    states = CanaryStore(root, model, pair).read()
    state = CanaryState.merged(states.values()) if states else CanaryState(CanarySettings())
    failed = state.tests["failed"]

    return {
        "model": model,
        "verdict": state.verdict,
        "production": pair.production,
        "candidate": pair.candidate,
        "servers": len(states),
        "requests": failed.production.count + failed.candidate.count,
        "of_candidate": failed.candidate.count,
        "margin": state.settings.margin,
        "enough": 1 / state.settings.alpha,
        "harm": _finite(mean_harm(state.tests.values())),
        "measures": {
            name: {
                "production": test.production.mean,
                "candidate": test.candidate.mean,
                "harm": _finite(test.harm_evidence),
                "safe": _finite(test.safe_evidence),
            }
            for name, test in state.tests.items()
        },
    }


def _finite(value: float) -> float:
    # JSON has no infinity; this is above every threshold.
    return value if math.isfinite(value) else 1e300
