"""The `voxline` command on a real Kubeflow Pipelines server, before any node is there: pods are made, and wait."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.conftest import Shell
from tests.command import voxline
from tests.kubeflow.given import missing_node, missing_own_processes
from tests.kubeflow.pipelines_server import HOST, NAMESPACE, PipelinesServer
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer

CRON_OF_EACH_MINUTE = "* * * * *"
WITHOUT_NODES = missing_own_processes("needs a cluster without nodes")
pytestmark = pytest.mark.usefixtures("volumes")
without_nodes = pytest.mark.skipif(bool(WITHOUT_NODES), reason=WITHOUT_NODES)


@pytest.fixture
def server() -> KfpServer:
    return KfpServer(KfpEndpoint(HOST))


@pytest.fixture
def submitted(shell: Shell) -> Iterator[str]:
    """The id of a run, which is cancelled in the end."""
    ended = shell.submit()
    assert ended.status == 0, ended.err
    run_id = _field(ended.out, "id")
    yield run_id
    shell("cancel", run_id)


def _field(printed: str, name: str) -> str:
    return next(line.split()[1] for line in printed.splitlines() if line.startswith(name))


@without_nodes
@pytest.mark.skipif(bool(missing_node()), reason=f"without a scheduler: {missing_node()}")
def test_status_says_why_a_run_waits(shell: Shell, submitted: str, pipelines: PipelinesServer) -> None:
    def seen() -> str:
        return shell("status", submitted).out

    pipelines.servers.wait(lambda: "no nodes available to schedule pods" in seen(), f"the reason in: {seen()}")
    first = seen().splitlines()[0].split()
    assert first[1:] == [submitted, "running"]
    assert shell("status", first[0]).out.splitlines()[0].split() == first, "a run is found by its name"


def test_an_account_that_is_missing_is_named(shell: Shell, pipelines: PipelinesServer) -> None:
    run_id = _field(shell.submit("--set", "cluster.service_account=nobody").out, "id")
    words = 'serviceaccount "nobody" not found'
    pipelines.servers.wait(lambda: words in shell("status", run_id).out, "the reason")
    shell("cancel", run_id)


def test_a_cancelled_run_is_canceled(shell: Shell, pipelines: PipelinesServer) -> None:
    run_id = _field(shell.submit().out, "id")
    pipelines.servers.wait(lambda: _workflows(pipelines, run_id), "its workflow")
    ended = shell("cancel", run_id)
    assert ended.status == 0, ended.err
    pipelines.servers.wait(lambda: "canceled" in shell("status", run_id).out.splitlines()[0], "its end")
    assert "already ended, canceled" in shell("cancel", run_id).out
    assert shell("logs", run_id).status == 1


def test_unknown_runs_are_reported(shell: Shell) -> None:
    assert "has no run with this id" in shell("status", "0d6d40b5-7b17-4c1e-8f2d-111111111111").err
    assert "has no run with this name" in shell("status", "nobody").err


def test_following_ends_with_a_signal_or_the_run(shell: Shell, pipelines: PipelinesServer) -> None:
    """`submit --wait` of a run that another command cancels."""

    def cancel() -> None:
        pipelines.servers.wait(lambda: _active(pipelines), "a run")
        for one in _active(pipelines):
            voxline("cancel", one["metadata"]["labels"]["pipeline/runid"])

    for one in _active(pipelines):
        shell("cancel", one["metadata"]["labels"]["pipeline/runid"])
    pipelines.servers.wait(lambda: not _active(pipelines), "the end of others")
    thread = threading.Thread(target=cancel)
    thread.start()
    ended = shell.submit("--wait", "--poll", "0.5")
    thread.join()
    assert ended.status == 1
    assert "was canceled; submit it again" in ended.err


def _workflows(pipelines: PipelinesServer, run_id: str = "") -> list[dict[str, Any]]:
    selector = ("-l", f"pipeline/runid={run_id}") if run_id else ()
    items = pipelines.kubernetes.read("workflows.argoproj.io", "-n", NAMESPACE, *selector)["items"]
    return list(items)


def _active(pipelines: PipelinesServer) -> list[dict[str, Any]]:
    return [one for one in _workflows(pipelines) if not (one.get("status") or {}).get("finishedAt")]


@without_nodes
def test_a_schedule_fires_by_the_clock_and_not_twice_at_once(
    shell: Shell, server: KfpServer, pipelines: PipelinesServer
) -> None:
    def runs() -> list[Any]:
        found = server.client.runs.run_service_list_runs(page_size=100, sort_by="created_at asc").runs or []
        return [one for one in found if one.recurring_run_id == schedule_id]

    given = ("schedule", "asr", "--config", "nightly.yaml", "--cron")
    ended = shell(*given, CRON_OF_EACH_MINUTE)
    assert ended.status == 0, ended.err
    listed = shell("schedule", "list").out.split()
    assert (listed[0], listed[7]) == ("nightly", "enabled"), listed
    schedule_id = listed[8]
    assert "unchanged" in shell(*given, CRON_OF_EACH_MINUTE).out

    pipelines.servers.wait(lambda: len(runs()) == 1, "the first firing", 200)
    (first,) = runs()
    time.sleep(75)  # over the next minute
    assert len(runs()) == 1, "a night began before the last one had ended"
    assert shell("cancel", first.run_id).status == 0
    pipelines.servers.wait(lambda: len(runs()) == 2, "the second firing", 300)
    second = runs()[-1]
    assert second.pipeline_version_reference == first.pipeline_version_reference
    assert shell("status", second.run_id).status == 0

    changed = shell(*given, "*/2 * * * *")
    assert changed.status == 0, changed.err
    listed = shell("schedule", "list").out.split()
    assert listed[8] != schedule_id
    everything = server.client.recurring_runs.recurring_run_service_list_recurring_runs(page_size=100).recurring_runs
    assert [one.status for one in everything] == ["ENABLED"]
    swfs = pipelines.kubernetes.read("scheduledworkflows.kubeflow.org", "-n", NAMESPACE)["items"]
    assert [one["spec"]["enabled"] for one in swfs] == [True]

    server.client.recurring_runs.recurring_run_service_disable_recurring_run(listed[8])
    # The persistence agent may report the object as it was before; the answer is right again seconds later.
    again = "run its `voxline schedule` command again"
    pipelines.servers.wait(lambda: again in shell("schedule", "list").out, "the disabled schedule", 120)
    assert shell("schedule", "remove", "nightly").status == 0
    assert "nightly" not in shell("schedule", "list").out
    shell("cancel", second.run_id)
    assert not pipelines.kubernetes.read("scheduledworkflows.kubeflow.org", "-n", NAMESPACE)["items"]
