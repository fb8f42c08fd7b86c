"""`voxline schedule`: one name, one schedule; never two enabled, and after a crash the same command mends all."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cluster.conftest import Shell
from tests.cluster.kfp_stand_in import Fault, StandIn
from voxline.errors import VoxlineError
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.cluster.schedules import Schedule, Schedules
from voxline.pipelines.cluster.submit import CompiledPipeline, PipelineVersion, upload_version
from voxline.pipelines.local.cron import Cron

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
IR = b"""
pipelineInfo: {name: asr}
root: {dag: {tasks: {ingest: {taskInfo: {name: ingest}}}}}
"""


def cluster_of(kfp: StandIn, deadline: float = 20) -> KfpServer:
    return KfpServer(KfpEndpoint(kfp.host), deadline=deadline)


@pytest.fixture
def version(kfp: StandIn) -> PipelineVersion:
    return upload_version(cluster_of(kfp), CompiledPipeline(IR, "voxline-asr", "voxline-asr-1"))


def nightly(version: PipelineVersion, cron: str = "0 2 * * *") -> Schedule:
    return Schedule("nightly", version, Cron.read(cron), "voxline")


def set_(kfp: StandIn, wanted: Schedule, deadline: float = 20, now: datetime = NOON) -> None:
    Schedules(cluster_of(kfp, deadline), clock=lambda: now).set(wanted, print)


def the_only(kfp: StandIn) -> Any:
    (one,) = kfp.state.recurring.values()
    assert one["status"] == "ENABLED"
    return one


def test_a_schedule_runs_one_at_a_time_without_catch_up(kfp: StandIn, version: PipelineVersion) -> None:
    set_(kfp, nightly(version))
    one = the_only(kfp)
    assert (one["max_concurrency"], one["no_catchup"]) == ("1", True)
    assert one["trigger"] == {"cron_schedule": {"cron": "0 0 2 * * *"}}


def test_the_runs_of_a_schedule_are_given_its_parameters(kfp: StandIn) -> None:
    text = b"""
pipelineInfo: {name: asr}
root:
  dag: {tasks: {ingest: {taskInfo: {name: ingest}}}}
  inputDefinitions: {parameters: {seed: {parameterType: NUMBER_INTEGER}}}
"""

    def version(**parameters: int) -> PipelineVersion:
        return upload_version(cluster_of(kfp), CompiledPipeline(text, "voxline-asr", "voxline-asr-2", parameters))

    set_(kfp, nightly(version(seed=1)))
    assert the_only(kfp)["runtime_config"]["parameters"] == {"seed": 1}
    set_(kfp, nightly(version(seed=2)))
    assert the_only(kfp)["runtime_config"]["parameters"] == {"seed": 2}


def test_the_same_schedule_changes_nothing_and_another_replaces_it(kfp: StandIn, version: PipelineVersion) -> None:
    set_(kfp, nightly(version))
    before, asked = the_only(kfp), len(kfp.changes())
    set_(kfp, nightly(version))
    assert the_only(kfp) == before
    assert len(kfp.changes()) == asked
    set_(kfp, nightly(version, "0 3 * * *"))
    assert the_only(kfp)["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    assert max(kfp.state.enabled_at_each_moment) == 1


@pytest.mark.parametrize("calls", range(12))
@pytest.mark.parametrize("old", [0, 1, 2])
def test_repeating_the_command_repairs_a_crash_after_any_call(
    kfp: StandIn, version: PipelineVersion, calls: int, old: int
) -> None:
    """The server stops answering for good after so many calls: to it, that is a client that was killed."""
    if old:
        set_(kfp, nightly(version, "0 3 * * *"))
    if old == 2:  # what somebody else's tool has left
        kfp.state.recurring["second"] = {**the_only(kfp), "recurring_run_id": "second"}
    kfp.state.enabled_at_each_moment.clear()
    kfp.dies_after = len(kfp.asked) + calls
    with contextlib.suppress(VoxlineError):
        set_(kfp, nightly(version), deadline=0.01)
    kfp.dies_after = None
    most_before = 2 if old == 2 else 1
    assert max(kfp.state.enabled_at_each_moment, default=0) <= most_before
    set_(kfp, nightly(version))
    assert the_only(kfp)["trigger"]["cron_schedule"]["cron"] == "0 0 2 * * *"
    assert max(kfp.state.enabled_at_each_moment, default=1) <= most_before


def test_a_crash_leaves_none_enabled_only_between_two_adjacent_calls(kfp: StandIn, version: PipelineVersion) -> None:
    none_enabled = 0
    for calls in range(12):
        kfp.state.recurring.clear()
        set_(kfp, nightly(version, "0 3 * * *"))
        kfp.dies_after = len(kfp.asked) + calls
        with contextlib.suppress(VoxlineError):
            set_(kfp, nightly(version), deadline=0.01)
        kfp.dies_after = None
        none_enabled += not kfp.state.enabled()
    assert none_enabled == 1


@pytest.mark.parametrize("action", [":disable", ":enable", "DELETE", "POST .*recurringruns$"])
@pytest.mark.parametrize("fault", [{"reset": "before"}, {"reset": "after"}, {"status": 503}])
def test_a_transient_error_leaves_exactly_one_schedule(
    kfp: StandIn, version: PipelineVersion, action: str, fault: dict[str, Any]
) -> None:
    set_(kfp, nightly(version, "0 3 * * *"))
    kfp.faults.append(Fault(where=action, **fault))
    set_(kfp, nightly(version))
    assert the_only(kfp)["trigger"]["cron_schedule"]["cron"] == "0 0 2 * * *"
    assert max(kfp.state.enabled_at_each_moment) == 1


def test_the_old_schedule_is_enabled_again_if_the_new_one_cannot_be(kfp: StandIn, version: PipelineVersion) -> None:
    set_(kfp, nightly(version, "0 3 * * *"))
    kfp.faults.append(Fault(status=403, where=":enable"))
    with pytest.raises(VoxlineError, match="403"):
        set_(kfp, nightly(version))
    (enabled,) = kfp.state.enabled()
    assert enabled["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    set_(kfp, nightly(version))
    the_only(kfp)


def test_a_disabled_schedule_is_replaced_so_that_it_starts_no_missed_runs(
    kfp: StandIn, version: PipelineVersion
) -> None:
    set_(kfp, nightly(version))
    before = the_only(kfp)
    before["status"] = "DISABLED"
    set_(kfp, nightly(version))
    assert the_only(kfp)["recurring_run_id"] != before["recurring_run_id"]


def test_no_swap_starts_shortly_before_a_firing(kfp: StandIn, version: PipelineVersion) -> None:
    set_(kfp, nightly(version))
    clock = [NOON.replace(hour=1, minute=59, second=30)]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += timedelta(seconds=seconds)

    Schedules(cluster_of(kfp), clock=lambda: clock[0], sleep=sleep).set(nightly(version, "0 4 * * *"), print)
    assert slept == [45.0]
    the_only(kfp)


def test_two_concurrent_commands_leave_one_schedule(kfp: StandIn, version: PipelineVersion) -> None:
    """Another command has enabled its own while this one was in its swap."""
    set_(kfp, nightly(version))
    other = {**the_only(kfp), "recurring_run_id": "other", "created_at": "2099-01-01T00:00:00Z"}
    schedules = Schedules(cluster_of(kfp), clock=lambda: NOON)
    end = schedules._end

    def end_and_be_overtaken(generations: list[Any]) -> None:
        end(generations)
        kfp.state.recurring.setdefault("other", other)

    schedules._end = end_and_be_overtaken  # type: ignore[method-assign]
    schedules.set(nightly(version, "0 5 * * *"), print)
    assert the_only(kfp)["recurring_run_id"] == "other"


def test_the_command_sets_lists_and_removes(shell: Shell, kfp: StandIn) -> None:
    hour = (datetime.now(UTC) + timedelta(hours=6)).hour
    given = ("schedule", "asr", "--config", "nightly.yaml", "--cron", f"0 {hour} * * *")
    ended = shell(*given)
    assert ended.status == 0, ended.err
    assert f"cron     0 0 {hour} * * *, read in UTC" in ended.out
    assert "unchanged" in shell(*given).out
    listed = shell("schedule", "list").out.split()
    assert listed[0] == "nightly"
    assert "enabled" in listed
    the_only(kfp)["status"] = "DISABLED"
    assert "run its `voxline schedule` command again" in shell("schedule", "list").out
    assert shell("schedule", "remove", "nightly").status == 0
    assert not kfp.state.recurring
    assert "the schedules are: none" in shell("schedule", "remove", "nightly").err


def test_a_schedule_created_by_a_person_is_not_changed(shell: Shell, kfp: StandIn) -> None:
    kfp.state.recurring["by-hand"] = {
        "recurring_run_id": "by-hand",
        "display_name": "nightly",
        "status": "ENABLED",
        "created_at": "2026-01-01T00:00:00Z",
    }
    ended = shell("schedule", "asr", "--config", "nightly.yaml", "--cron", "0 2 * * *")
    assert ended.status == 1
    assert "was not created by this command" in ended.err
    assert list(kfp.state.recurring) == ["by-hand"]
