"""Whether a model is current: a state of the model, by its registry and by the runs since it was last up to date."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from voxline.forecast.run_forecast import COMPLETE_VERDICTS
from voxline.notify.history import Run, figure_of
from voxline.registry.journal import CANDIDATE, PROMOTE, RegistryEvent
from voxline.report.page import format_duration, plural

GROWN = 0.01
"""Share of audio that a model may lack and still be current."""
LATE = 3.0
"""Usual times between two runs after which the next one is overdue."""


@dataclasses.dataclass(frozen=True)
class Freshness:
    """The state of a model.

    Attributes:
      state: "current"; "stale": it lacks data, or runs fail to renew it; "absent": nothing was ever promoted.
      reasons: why it is stale, a sentence without a full stop each.
    """

    state: Literal["current", "stale", "absent"]
    reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.state}: {'; '.join(self.reasons)}" if self.reasons else self.state


def freshness(runs: Sequence[Run], time: datetime, events: Sequence[RegistryEvent] = ()) -> Freshness:
    """The state of a model.

    Args:
      runs: of the model, oldest first, all of them.
      time: the present, with a time zone.
      events: of its journal; empty: not known.
    """
    # A candidate becomes current only when a person promotes it.
    by_person = {event.version for event in events if event.action == PROMOTE and event.alias != CANDIDATE}
    renewed = [
        at
        for at, run in enumerate(runs)
        if run["verdict"] in ("promoted", "unchanged")
        or (run["verdict"] == "candidate" and run["version"] in by_person)
    ]

    # A registry with a journal may have versions from before the history.
    if not renewed and not events:
        return Freshness("absent", ("no run has promoted a model",))

    # All that happened since it was last up to date.
    since = runs[renewed[-1] + 1 :] if renewed else runs
    reasons = [*_of_data(runs[renewed[-1]] if renewed else None, since), *_of_runs(since), *_of_registry(events)]
    reasons += _of_time(runs, time)
    return Freshness("stale" if reasons else "current", tuple(reasons))


def _of_data(renewed: Run | None, since: Sequence[Run]) -> list[str]:
    before = figure_of(renewed, "hours") if renewed else None
    hours_of_runs = [hours for run in since if (hours := figure_of(run, "hours")) is not None]
    if not before or not hours_of_runs or abs(hours_of_runs[-1] / before - 1) < GROWN:
        return []
    share = hours_of_runs[-1] / before - 1
    more = f"{abs(share):.0%} {'more' if share > 0 else 'less'}"
    return [f"there are {hours_of_runs[-1]:,.4g} h of audio to train on, {more} than it was trained on"]


def _of_runs(since: Sequence[Run]) -> list[str]:
    """The runs since then that did not renew it, by their outcome, with the last reason of each kind."""
    words = {
        "refused": ("was refused by the gate", "were refused by the gate"),
        "failed": ("failed", "failed"),
        "skipped": ("was skipped as not worth a training", "were skipped as not worth a training"),
        "candidate": ("made a candidate that waits to be promoted", "made candidates that wait to be promoted"),
    }
    reasons = []
    for verdict, (singular, several) in words.items():
        those = [run for run in since if run["verdict"] == verdict]
        if those:
            reason = str(those[-1]["reason"]).rstrip(".")
            text = f"{plural(len(those), 'run')} since then {singular if len(those) == 1 else several}"
            reasons.append(text + (f" ({reason})" if reason else ""))
    return reasons


def _of_registry(events: Sequence[RegistryEvent]) -> list[str]:
    last = next((event for event in reversed(events) if event.alias != CANDIDATE), None)
    if last is None or last.action != "rollback":
        return []
    note = f" ({last.note})" if last.note else ""
    return [
        f"version {last.version} is a copy of version {last.copy_of}: version {last.replaces} was rolled back{note}"
    ]


def _of_time(runs: Sequence[Run], at: datetime) -> list[str]:
    """Returns whether the next run is overdue, by the usual time between two."""
    ended = [
        datetime.fromisoformat(run["run"]["ended"]) for run in runs if run["verdict"] in (*COMPLETE_VERDICTS, "skipped")
    ]

    # Three gaps at least, since one night without a run says nothing. NaN compares as false.
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(ended)]
    usual = statistics.median(gaps) if len(gaps) >= 3 else math.nan
    waited = (at - ended[-1]).total_seconds() if ended else 0.0
    if not waited > LATE * usual:
        return []
    return [
        f"the last run that did its work ended {format_duration(waited)} ago, usually it is {format_duration(usual)}"
    ]
