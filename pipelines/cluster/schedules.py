"""Schedules by name. KFP cannot change a recurring run: a changed schedule is a new one, and the old one goes.

The order is: create the new one disabled, disable the old one, enable the new one, delete the old one. At no moment two
are enabled; none is for as long as one call takes, and no swap begins when a firing is near. Whatever a crash leaves,
the same command again makes it one.
"""

import contextlib
import hashlib
import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import kfp_server_api

from voxline.errors import VoxlineError, WorkError
from voxline.pipelines.cluster.cron import Cron, load_time_zone
from voxline.pipelines.cluster.kfp_client import KfpServer, RequestRefusedError, list_all, list_named
from voxline.pipelines.cluster.submit import PipelineVersion, get_experiment_id

DESCRIPTION_PREFIX = "Set by `voxline schedule`; content "
"""How the description of each of ours begins; the hash of all that it does follows."""
SWAP_SECONDS = 90.0
"""No swap begins this near to a firing: one that came in the middle would start both, or neither."""


@dataclass(frozen=True)
class Schedule:
    """What a name shall do: which version, when, as whom."""

    name: str
    version: PipelineVersion
    cron: Cron
    experiment: str
    pipeline_root: str = ""
    service_account: str = ""

    @property
    def content(self) -> str:
        """Hash of all that makes a difference."""
        made_of = [self.version.version_id, str(self.cron), self.experiment, self.pipeline_root, self.service_account]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


class Schedules:
    """The schedules of a server, those that this command made."""

    def __init__(self, cluster: KfpServer, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._cluster, self._clock = cluster, clock
        self._api = cluster.client.recurring_runs

    def set(self, wanted: Schedule, tell: Callable[[str], None], *, zone: str = "UTC") -> str:
        """Makes it so that exactly one schedule of that name is enabled, and does this; its id.

        Args:
          zone: in which the cluster reads cron.
        """
        generations = self._generations(wanted.name)
        enabled = [one for one in generations if is_enabled(one)]
        same = [one for one in enabled if content_hash(one) == wanted.content]
        if same:
            kept = same[-1].recurring_run_id
            self._end([one for one in generations if one.recurring_run_id != kept])
            tell(f"{wanted.name}: as it was" + (", and the leftovers are gone" if len(generations) > 1 else ""))
            return str(kept)
        self._wait_for_a_calm_moment([wanted.cron, *filter(None, map(_cron_of, enabled))], zone, tell)
        # Always a new one: enabling one that has lain disabled would start at once what it has missed.
        created = self._created_disabled(wanted)
        self._swap(enabled, created.recurring_run_id)
        self._end([one for one in generations if one.recurring_run_id != created.recurring_run_id])
        tell(f"{wanted.name}: {'changed' if generations else 'set'}")
        return self._sole_survivor(wanted.name, created)

    def remove(self, name: str) -> None:
        """Ends it.

        Raises:
          WorkError: there is none of that name.
        """
        generations = self._generations(name)
        if not generations:
            known = sorted({str(one.display_name) for one in self.all()})
            raise WorkError(f"schedule {name!r}: there is none; there is {', '.join(known) or 'none at all'}")
        self._end(generations)

    def all(self) -> list[Any]:
        """Every generation of every schedule of ours, oldest first."""
        found = list_all(
            self._api.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            namespace=self._cluster.namespace or "",
        )
        return [one for one in found if content_hash(one)]

    def _generations(self, name: str) -> list[Any]:
        found = list_named(
            self._api.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            name,
            namespace=self._cluster.namespace or "",
        )
        for one in found:
            if not content_hash(one):
                raise WorkError(
                    f"schedule {name!r}: one of that name was not made by this command ({one.recurring_run_id}); "
                    "give another --name, or delete that one in the UI"
                )
        return found

    def _created_disabled(self, wanted: Schedule) -> Any:
        description = f"{DESCRIPTION_PREFIX}{wanted.content}, {secrets.token_hex(4)}"
        body = kfp_server_api.V2beta1RecurringRun(
            display_name=wanted.name,
            description=description,
            experiment_id=get_experiment_id(self._cluster, wanted.experiment),
            mode=kfp_server_api.RecurringRunMode.DISABLE,
            max_concurrency="1",
            no_catchup=True,
            trigger=kfp_server_api.V2beta1Trigger(
                cron_schedule=kfp_server_api.V2beta1CronSchedule(cron=str(wanted.cron))
            ),
            pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
                pipeline_id=wanted.version.pipeline_id, pipeline_version_id=wanted.version.version_id
            ),
            runtime_config=kfp_server_api.V2beta1RuntimeConfig(
                parameters={}, pipeline_root=wanted.pipeline_root or None
            ),
            service_account=wanted.service_account or None,
        )
        return self._cluster.calls.once(
            lambda: next((one for one in self._generations(wanted.name) if one.description == description), None),
            lambda: self._api.recurring_run_service_create_recurring_run(body),
        )

    def _swap(self, old: list[Any], new: str) -> None:
        """Never two: the old ones first. Where the new one cannot be enabled, the last old one is again."""
        with _block_signals():
            try:
                for one in old:
                    self._api.recurring_run_service_disable_recurring_run(one.recurring_run_id)
                self._api.recurring_run_service_enable_recurring_run(new)
            except VoxlineError:
                self._enable_again(old, new)
                raise

    def _enable_again(self, old: list[Any], new: str) -> None:
        try:
            self._api.recurring_run_service_disable_recurring_run(new)
            if old:
                self._api.recurring_run_service_enable_recurring_run(old[-1].recurring_run_id)
        except VoxlineError as error:
            name = old[-1].display_name if old else new
            raise WorkError(
                f"schedule {name!r} is half changed, and it may be that none is enabled now ({error}); "
                "start the same command again as soon as the server answers"
            ) from None

    def _end(self, generations: list[Any]) -> None:
        """Disables all, then deletes all: one that is deleted while it is enabled may fire once more."""
        for one in generations:
            if is_enabled(one):
                self._unless_gone(self._api.recurring_run_service_disable_recurring_run, one.recurring_run_id)
        for one in generations:
            self._unless_gone(self._api.recurring_run_service_delete_recurring_run, one.recurring_run_id)

    def _unless_gone(self, call: Callable[[str], Any], id_: str) -> None:
        try:
            call(id_)
        except RequestRefusedError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise

    def _sole_survivor(self, name: str, created: Any) -> str:
        """Two commands at once have each enabled theirs: the youngest stays, and both commands come to say so."""
        enabled = [one for one in self._generations(name) if is_enabled(one)]
        youngest = max(enabled, key=lambda one: (one.created_at, one.recurring_run_id), default=created)
        self._end([one for one in enabled if one.recurring_run_id != youngest.recurring_run_id])
        return str(youngest.recurring_run_id)

    def _wait_for_a_calm_moment(self, crons: list[Cron], zone: str, tell: Callable[[str], None]) -> None:
        while True:
            now = self._clock().astimezone(load_time_zone(zone, "--cluster-time-zone"))
            # What has just fired counts too: our clock and the cluster's are not the same.
            earliest = min(next(cron.firings(now - timedelta(seconds=15))) for cron in crons)
            if (earliest - now).total_seconds() > SWAP_SECONDS or _fires_too_often(crons, now):
                return
            seconds = (earliest - now).total_seconds() + 15
            tell(f"one fires in {max(seconds - 15, 0):.0f} s; waiting until it has")
            time.sleep(max(seconds, 1.0))


@contextlib.contextmanager
def _block_signals() -> Iterator[None]:
    """Ctrl-C and a polite kill wait until the swap is done: in its middle none is enabled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_enabled(recurring: Any) -> bool:
    """Whether it fires."""
    return str(recurring.status) == "ENABLED"


def content_hash(recurring: Any) -> str:
    """The hash of what it does, or nothing for one that a person made."""
    description = str(recurring.description or "")
    return (
        description.removeprefix(DESCRIPTION_PREFIX).partition(",")[0]
        if description.startswith(DESCRIPTION_PREFIX)
        else ""
    )


def format_schedules(generations: list[Any]) -> Iterator[str]:
    """A line a schedule; one that a crash has left with none or two enabled says what mends it."""
    names = sorted({str(one.display_name) for one in generations})
    for name in names:
        mine = [one for one in generations if one.display_name == name]
        enabled = [one for one in mine if is_enabled(one)]
        shown = (enabled or mine)[-1]
        cron = shown.trigger.cron_schedule.cron if shown.trigger and shown.trigger.cron_schedule else "by interval"
        state = {0: "disabled", 1: "enabled"}.get(len(enabled), f"{len(enabled)} enabled")
        mend = "" if len(enabled) == 1 else "  half changed, or by hand: run its `voxline schedule` command again"
        yield f"{name:<20} {cron:<18} {state:<10} {shown.recurring_run_id}{mend}"


def _cron_of(recurring: Any) -> Cron | None:
    schedule = recurring.trigger.cron_schedule if recurring.trigger else None
    return Cron.read(schedule.cron) if schedule else None


def _fires_too_often(crons: list[Cron], now: datetime) -> bool:
    """One that fires every few minutes has no calm moment; a run more or less does not matter to it."""
    for cron in crons:
        firings = cron.firings(now)
        if (-(next(firings) - next(firings))).total_seconds() < 4 * SWAP_SECONDS:
            return True
    return False
