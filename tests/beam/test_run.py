"""Mapping a function by Beam: each result comes once, failures are named, and a pool starts workers."""

import operator
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from voxline.beam.run import map_with_beam
from voxline.beam.settings import RunnerSettings
from voxline.errors import SettingsError, WorkError

ALONE = RunnerSettings()


def test_each_element_has_one_result_with_its_number(tmp_path: Path) -> None:
    found = list(map_with_beam("count", operator.neg, [5, 6, 7], ALONE, tmp_path))
    assert sorted(found) == [(0, -5), (1, -6), (2, -7)]


def test_results_come_while_others_are_computed(tmp_path: Path) -> None:
    """The last element waits until the result of the first is there."""
    arrived = tmp_path / "arrived"
    for number, there in map_with_beam(
        "wait", wait_for_file, [str(tmp_path)] * 3 + [str(arrived)], ALONE, tmp_path / "work"
    ):
        arrived.touch()
        assert there, number


def test_no_elements_have_no_results(tmp_path: Path) -> None:
    assert list(map_with_beam("count", operator.neg, [], ALONE, tmp_path)) == []


def test_a_failure_names_the_step_and_the_cause(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"count: the Beam pipeline on FnApiRunner failed: .*invalid literal.*'six'"):
        list(map_with_beam("count", int, ["5", "six"], ALONE, tmp_path))


def test_an_unknown_runner_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="count: 'runner' is 'NoRunner'"):
        list(map_with_beam("count", operator.neg, [1], RunnerSettings(runner="NoRunner"), tmp_path))


@pytest.mark.slow
def test_a_worker_pool_starts_and_stops_its_workers() -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "voxline.beam.worker_pool", f"--port={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as pool:
        assert pool.stdout
        assert b"listens" in pool.stdout.readline()
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            asked = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)  # type: ignore[no-untyped-call]
            started: list[set[int]] = []
            for name in ("1", "2"):
                request = beam_fn_api_pb2.StartWorkerRequest(worker_id=name)
                request.provision_endpoint.url = "localhost:1"  # a port without a server: the worker waits
                assert not asked.StartWorker(request).error
                started.append(children(pool.pid))
            asked.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1"))
            assert children(pool.pid) == started[1] - started[0]
        pool.send_signal(signal.SIGTERM)
        assert pool.wait(30) == 0
    assert not any(Path(f"/proc/{worker}").exists() for worker in started[1])


def wait_for_file(path: str) -> bool:
    end = time.monotonic() + 60
    while not Path(path).exists() and time.monotonic() < end:
        time.sleep(0.01)
    return Path(path).exists()


def children(process: int) -> set[int]:
    threads = Path(f"/proc/{process}/task").glob("*/children")
    return {int(child) for thread in threads for child in thread.read_text().split()}
