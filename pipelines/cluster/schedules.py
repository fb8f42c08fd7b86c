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
from voxline.pipelines.cluster.kfp_client import KfpServer, RequestRefusedError, list_all, list_named
from voxline.pipelines.cluster.submit import PipelineVersion, get_experiment_id, runtime_config
from voxline.pipelines.local.cron import Cron, load_time_zone

DESCRIPTION_PREFIX = "Set by `voxline schedule`; content "
"""Start of the description of our schedules; the hash of their content follows."""
SWAP_SECONDS = 90.0
"""No swap starts this close to a firing, which could start both schedules or neither."""


@dataclass(frozen=True)
class Schedule:
    """The version that a schedule runs, when, and with which account."""

    name: str
    version: PipelineVersion
    cron: Cron
    experiment: str
    pipeline_root: str = ""
    service_account: str = ""

    @property
    def content(self) -> str:
        """Hash of everything that a run depends on."""
        parts = [
            self.version.version_id,
            str(self.cron),
            self.experiment,
            self.pipeline_root,
            self.service_account,
            self.version.parameters,
        ]
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
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._api = cluster.client.recurring_runs

    def set(self, schedule: Schedule, write: Callable[[str], None], *, zone: str = "UTC") -> str:
        """Leaves exactly one enabled schedule with this name and content. Returns its id.

        Args:
          zone: the time zone in which the cluster reads cron.
        """
        generations = self._generations(schedule.name)
        enabled = [generation for generation in generations if is_enabled(generation)]

        # The same content is left as it is, so that the command may run in CI after every commit.
        same = [generation for generation in enabled if content_hash(generation) == schedule.content]
        if same:
            id_ = same[-1].recurring_run_id
            self._end([generation for generation in generations if generation.recurring_run_id != id_])
            write(f"{schedule.name}: unchanged" + (", leftovers removed" if len(generations) > 1 else ""))
            return str(id_)

        self._wait_until_no_firing_is_near([schedule.cron, *filter(None, map(_cron_of, enabled))], zone, write)

        # Always a new one: a schedule that was disabled would start its missed runs as soon as it is enabled.
        created = self._create_disabled(schedule)
        self._swap(enabled, created.recurring_run_id)
        self._end([generation for generation in generations if generation.recurring_run_id != created.recurring_run_id])
        write(f"{schedule.name}: {'changed' if generations else 'set'}")

        return self._keep_youngest(schedule.name, created)

    def remove(self, name: str) -> None:
        """Removes a schedule.

        Raises:
          WorkError: there is none with this name.
        """
        generations = self._generations(name)
        if not generations:
            names = sorted({str(generation.display_name) for generation in self.all()})
            raise WorkError(f"schedule {name!r} does not exist; the schedules are: {', '.join(names) or 'none'}")
        self._end(generations)

    def all(self) -> list[Any]:
        """Every generation of our schedules, oldest first."""
        recurring_runs = list_all(
            self._api.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            namespace=self._cluster.namespace or "",
        )
        return [recurring for recurring in recurring_runs if content_hash(recurring)]

    def _generations(self, name: str) -> list[Any]:
        recurring_runs = list_named(
            self._api.recurring_run_service_list_recurring_runs,
            "recurring_runs",
            name,
            namespace=self._cluster.namespace or "",
        )

        # What a person made in the UI is never changed or deleted, even if it has the name.
        for recurring in recurring_runs:
            if not content_hash(recurring):
                raise WorkError(
                    f"schedule {name!r}: {recurring.recurring_run_id} has this name and was not created by this "
                    "command; give another --name, or delete it in the UI"
                )
        return recurring_runs

    def _create_disabled(self, schedule: Schedule) -> Any:
        # The random part tells this creation from an earlier one of the same content, whose response was lost.
        description = f"{DESCRIPTION_PREFIX}{schedule.content}, {secrets.token_hex(4)}"
        body = kfp_server_api.V2beta1RecurringRun(
            display_name=schedule.name,
            description=description,
            experiment_id=get_experiment_id(self._cluster, schedule.experiment),
            mode=kfp_server_api.RecurringRunMode.DISABLE,
            max_concurrency="1",
            no_catchup=True,
            trigger=kfp_server_api.V2beta1Trigger(
                cron_schedule=kfp_server_api.V2beta1CronSchedule(cron=str(schedule.cron))
            ),
            pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
                pipeline_id=schedule.version.pipeline_id, pipeline_version_id=schedule.version.version_id
            ),
            runtime_config=runtime_config(schedule.version, schedule.pipeline_root),
            service_account=schedule.service_account or None,
        )

        def find() -> Any | None:
            generations = self._generations(schedule.name)
            return next((generation for generation in generations if generation.description == description), None)

        return self._cluster.calls.once(find, lambda: self._api.recurring_run_service_create_recurring_run(body))

    def _swap(self, enabled: list[Any], new: str) -> None:
        """Disables the old ones first, so that two are never enabled. Undone if the new one cannot be enabled."""
        with _block_signals():
            try:
                for generation in enabled:
                    self._api.recurring_run_service_disable_recurring_run(generation.recurring_run_id)
                self._api.recurring_run_service_enable_recurring_run(new)
            except VoxlineError:
                self._enable_again(enabled, new)
                raise

    def _enable_again(self, disabled: list[Any], new: str) -> None:
        # The new one first: its call may have enabled it although its response was lost.
        try:
            self._api.recurring_run_service_disable_recurring_run(new)
            if disabled:
                self._api.recurring_run_service_enable_recurring_run(disabled[-1].recurring_run_id)
        except VoxlineError as error:
            name = disabled[-1].display_name if disabled else new
            raise WorkError(
                f"schedule {name!r} is half changed, and possibly none is enabled now ({error}); "
                "run the same command again as soon as the server responds"
            ) from None

    def _end(self, generations: list[Any]) -> None:
        """Disables all, then deletes all: a schedule that is deleted while it is enabled may fire once more."""
        for generation in generations:
            if is_enabled(generation):
                self._unless_gone(self._api.recurring_run_service_disable_recurring_run, generation.recurring_run_id)
        for generation in generations:
            self._unless_gone(self._api.recurring_run_service_delete_recurring_run, generation.recurring_run_id)

    def _unless_gone(self, call: Callable[[str], Any], id_: str) -> None:
        try:
            call(id_)
        except RequestRefusedError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise

    def _keep_youngest(self, name: str, created: Any) -> str:
        """If two commands ran at once, keeps the youngest schedule; both commands choose the same one."""
        enabled = [generation for generation in self._generations(name) if is_enabled(generation)]
        # Both may be of the same second; the id then decides, so that neither command deletes the other's choice.
        youngest = max(
            enabled, key=lambda generation: (generation.created_at, generation.recurring_run_id), default=created
        )
        self._end([generation for generation in enabled if generation.recurring_run_id != youngest.recurring_run_id])
        return str(youngest.recurring_run_id)

    def _wait_until_no_firing_is_near(self, crons: list[Cron], zone: str, write: Callable[[str], None]) -> None:
        while True:
            time_now = self._clock().astimezone(load_time_zone(zone, "--cluster-time-zone"))
            # A firing just before now counts, too, because our clock and the cluster's differ.
            earliest = min(next(cron.firings(time_now - timedelta(seconds=15))) for cron in crons)
            if (earliest - time_now).total_seconds() > SWAP_SECONDS or _fires_too_often(crons, time_now):
                return

            seconds = (earliest - time_now).total_seconds() + 15
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
    """True if a schedule fires."""
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
    names = sorted({str(generation.display_name) for generation in generations})
    for name in names:
        # The youngest one that fires, or else the youngest: the listing is oldest first.
        of_name = [generation for generation in generations if generation.display_name == name]
        enabled = [generation for generation in of_name if is_enabled(generation)]
        shown = (enabled or of_name)[-1]

        cron = shown.trigger.cron_schedule.cron if shown.trigger and shown.trigger.cron_schedule else "by interval"
        state = {0: "disabled", 1: "enabled"}.get(len(enabled), f"{len(enabled)} enabled")
        fix = (
            "" if len(enabled) == 1 else "  half changed, or changed by hand: run its `voxline schedule` command again"
        )
        yield f"{name:<20} {cron:<18} {state:<10} {shown.recurring_run_id}{fix}"


def _cron_of(recurring: Any) -> Cron | None:
    schedule = recurring.trigger.cron_schedule if recurring.trigger else None
    return Cron.read(schedule.cron) if schedule else None


def _fires_too_often(crons: list[Cron], after: datetime) -> bool:
    """True if a schedule fires so often that waiting for a pause is useless."""
    for cron in crons:
        firings = cron.firings(after)
        if (-(next(firings) - next(firings))).total_seconds() < 4 * SWAP_SECONDS:
            return True
    return False
