"""Schedules by name. KFP cannot change a recurring run, so a changed schedule is a new recurring run.

The order is: create the new one disabled, disable the old one, enable the new one, delete the old one. Two are never
enabled at once; none is enabled for the time of one call, and no swap starts shortly before a firing. After a crash the
same command leaves exactly one.
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
from voxline.pipelines.cluster.submit import PipelineVersion, get_experiment_id, runtime_config

DESCRIPTION_PREFIX = "Set by `voxline schedule`; content "
"""Start of the description of our schedules; the hash of their content follows."""
SWAP_SECONDS = 90.0
"""No swap starts this close to a firing, which could start both schedules or neither."""


@dataclass(frozen=True)
class Schedule:
    """What a schedule runs: which version, when, with which account."""

    name: str
    version: PipelineVersion
    cron: Cron
    experiment: str
    pipeline_root: str = ""
    service_account: str = ""

    @property
    def content(self) -> str:
        """Hash of everything that a run depends on."""
        version, given = self.version, (self.experiment, self.pipeline_root, self.service_account)
        parts = [version.version_id, str(self.cron), *given, version.parameters]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Schedules:
    """The schedules on a server that this command created."""

    def __init__(
        self,
        cluster: KfpServer,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._clock, self._sleep = cluster, clock, sleep
        self._api = cluster.client.recurring_runs

    def set(self, wanted: Schedule, write: Callable[[str], None], *, zone: str = "UTC") -> str:
        """Leaves exactly one enabled schedule with this name and content. Returns its id.

        Args:
          zone: the time zone in which the cluster reads cron.
        """
        generations = self._generations(wanted.name)
        enabled = [one for one in generations if is_enabled(one)]
        same = [one for one in enabled if content_hash(one) == wanted.content]
        if same:
            kept = same[-1].recurring_run_id
            self._end([one for one in generations if one.recurring_run_id != kept])
            write(f"{wanted.name}: unchanged" + (", leftovers removed" if len(generations) > 1 else ""))
            return str(kept)
        self._wait_until_no_firing_is_near([wanted.cron, *filter(None, map(_cron_of, enabled))], zone, write)
        # Always a new one: a schedule that was disabled would start its missed runs as soon as it is enabled.
        created = self._create_disabled(wanted)
        self._swap(enabled, created.recurring_run_id)
        self._end([one for one in generations if one.recurring_run_id != created.recurring_run_id])
        write(f"{wanted.name}: {'changed' if generations else 'set'}")
        return self._keep_youngest(wanted.name, created)

    def remove(self, name: str) -> None:
        """Removes a schedule.

        Raises:
          WorkError: there is none with this name.
        """
        generations = self._generations(name)
        if not generations:
            known = sorted({str(one.display_name) for one in self.all()})
            raise WorkError(f"schedule {name!r} does not exist; the schedules are: {', '.join(known) or 'none'}")
        self._end(generations)

    def all(self) -> list[Any]:
        """Every generation of our schedules, oldest first."""
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
                    f"schedule {name!r}: {one.recurring_run_id} has this name and was not created by this command; "
                    "give another --name, or delete it in the UI"
                )
        return found

    def _create_disabled(self, wanted: Schedule) -> Any:
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
            runtime_config=runtime_config(wanted.version, wanted.pipeline_root),
            service_account=wanted.service_account or None,
        )
        return self._cluster.calls.once(
            lambda: next((one for one in self._generations(wanted.name) if one.description == description), None),
            lambda: self._api.recurring_run_service_create_recurring_run(body),
        )

    def _swap(self, old: list[Any], new: str) -> None:
        """Disables the old ones first, so that two are never enabled. Undone if the new one cannot be enabled."""
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
                f"schedule {name!r} is half changed, and possibly none is enabled now ({error}); "
                "run the same command again as soon as the server responds"
            ) from None

    def _end(self, generations: list[Any]) -> None:
        """Disables all, then deletes all: a schedule that is deleted while it is enabled may fire once more."""
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

    def _keep_youngest(self, name: str, created: Any) -> str:
        """If two commands ran at once, keeps the youngest schedule; both commands choose the same one."""
        enabled = [one for one in self._generations(name) if is_enabled(one)]
        youngest = max(enabled, key=lambda one: (one.created_at, one.recurring_run_id), default=created)
        self._end([one for one in enabled if one.recurring_run_id != youngest.recurring_run_id])
        return str(youngest.recurring_run_id)

    def _wait_until_no_firing_is_near(self, crons: list[Cron], zone: str, write: Callable[[str], None]) -> None:
        while True:
            now = self._clock().astimezone(load_time_zone(zone, "--cluster-time-zone"))
            # A firing just before now counts, too, because our clock and the cluster's differ.
            earliest = min(next(cron.firings(now - timedelta(seconds=15))) for cron in crons)
            if (earliest - now).total_seconds() > SWAP_SECONDS or _fires_too_often(crons, now):
                return
            seconds = (earliest - now).total_seconds() + 15
            write(f"the schedule fires in {max(seconds - 15, 0):.0f} s; waiting until then")
            self._sleep(max(seconds, 1.0))


@contextlib.contextmanager
def _block_signals() -> Iterator[None]:
    """Delays SIGINT, SIGTERM and SIGHUP until the swap is done: halfway through, no schedule is enabled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_enabled(recurring: Any) -> bool:
    """Whether a schedule fires."""
    return str(recurring.status) == "ENABLED"


def content_hash(recurring: Any) -> str:
    """The hash of a schedule's content; empty for one that a person created."""
    description = str(recurring.description or "")
    return (
        description.removeprefix(DESCRIPTION_PREFIX).partition(",")[0]
        if description.startswith(DESCRIPTION_PREFIX)
        else ""
    )


def format_schedules(generations: list[Any]) -> Iterator[str]:
    """A line for each schedule, with a fix if a crash has left none or two enabled."""
    names = sorted({str(one.display_name) for one in generations})
    for name in names:
        mine = [one for one in generations if one.display_name == name]
        enabled = [one for one in mine if is_enabled(one)]
        shown = (enabled or mine)[-1]
        cron = shown.trigger.cron_schedule.cron if shown.trigger and shown.trigger.cron_schedule else "by interval"
        state = {0: "disabled", 1: "enabled"}.get(len(enabled), f"{len(enabled)} enabled")
        fix = (
            "" if len(enabled) == 1 else "  half changed, or changed by hand: run its `voxline schedule` command again"
        )
        yield f"{name:<20} {cron:<18} {state:<10} {shown.recurring_run_id}{fix}"


def _cron_of(recurring: Any) -> Cron | None:
    schedule = recurring.trigger.cron_schedule if recurring.trigger else None
    return Cron.read(schedule.cron) if schedule else None


def _fires_too_often(crons: list[Cron], now: datetime) -> bool:
    """Whether a schedule fires so often that waiting for a pause is useless."""
    for cron in crons:
        firings = cron.firings(now)
        if (-(next(firings) - next(firings))).total_seconds() < 4 * SWAP_SECONDS:
            return True
    return False
