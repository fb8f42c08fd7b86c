"""A Flink session cluster on loopback: a JobManager and TaskManagers, whose Python workers are processes of their own.

with Cluster(folder, task_managers=2) as cluster:
    run(…, ExtractSettings(runner="FlinkRunner", beam_options=cluster.beam_options(parallelism=2)))
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.flink.jars import JOB_SERVER, OPENS, ROOT, jars

PATIENCE_SECONDS = 240
SETTINGS = {
    "jobmanager.memory.process.size": "1024m",
    "taskmanager.numberOfTaskSlots": "2",  # one TaskManager is enough when the other has died
    "taskmanager.load-balance.mode": "SLOTS",  # and while both live, both are given work
    "heartbeat.interval": "2000",
    "heartbeat.timeout": "15000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "1 s",
    "classloader.resolve-order": "parent-first",
}
MEMORY = {
    "taskmanager.cpu.cores": "1",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
"""What Flink's shell script works out before it starts Java."""


class Cluster:
    """A running cluster.

    Args:
      folder: for its configuration, logs and temporary files.
      python_path: folders that the Python workers import from before all others.
      pool: TaskManagers start no process: they ask a pool for workers, as in pods where that is another container.

    Raises:
      NoFlinkError: there is no Flink here.
    """

    def __init__(
        self, folder: Path, task_managers: int = 2, python_path: Sequence[Path] = (), pool: bool = False
    ) -> None:
        self.folder = folder
        self._jars = jars()
        self._python_path = python_path
        self._wanted = task_managers
        self._pool_port = free_port() if pool else 0
        self.pool: subprocess.Popen[bytes] | None = None
        self._job_manager: subprocess.Popen[bytes] | None = None
        self.task_managers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._rest, rpc = free_port(), free_port()
        addresses = {"jobmanager.rpc.address": "localhost", "jobmanager.bind-host": "localhost"}
        addresses |= {"taskmanager.host": "localhost", "taskmanager.bind-host": "localhost"}
        addresses |= {"rest.address": "localhost", "rest.bind-address": "localhost", "rest.port": str(self._rest)}
        addresses |= {"jobmanager.rpc.port": str(rpc), "io.tmp.dirs": str(self.folder / "temporary")}
        (self.folder / "temporary").mkdir(exist_ok=True)
        lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in {**SETTINGS, **addresses}.items())
        (self.folder / "config.yaml").write_text(lines)
        write_worker(self.folder / "worker", self._import_path())
        try:
            if self._pool_port:
                self.pool = self._start_pool()
            self._job_manager = self._java("entrypoint.StandaloneSessionClusterEntrypoint", "jobmanager", {})
            for _ in range(self._wanted):
                self.add_task_manager()
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_task_manager(self) -> None:
        number = len(self.task_managers)
        self.task_managers.append(self._java("taskexecutor.TaskManagerRunner", f"taskmanager-{number}", MEMORY))

    def kill_task_manager(self, number: int) -> None:
        """Kills a TaskManager and its Python workers, as if the machine failed."""
        _kill(self.task_managers[number])

    @property
    def processes(self) -> "list[subprocess.Popen[bytes]]":
        """Each leads a session, in which its Python workers are too."""
        return [process for process in [*self.task_managers, self._job_manager, self.pool] if process]

    def stop(self) -> None:
        for process in self.processes:
            _kill(process)

    def beam_options(self, parallelism: int) -> list[str]:
        """The `beam_options` of a step for this cluster."""
        return [
            f"--flink_master=localhost:{self._rest}",
            f"--flink_job_server_jar={self._jars / JOB_SERVER}",
            f"--parallelism={parallelism}",
            *self._environment(),
        ]

    def workers_of_the_pool(self) -> list[int]:
        """Their process ids."""
        threads = Path(f"/proc/{self.pool.pid}/task").glob("*/children") if self.pool else []
        return [int(child) for thread in threads for child in thread.read_text().split()]

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs there were, with their state."""
        found: list[dict[str, Any]] = self._ask("/jobs/overview")["jobs"]
        return found

    def restarts(self) -> int:
        """How often jobs were restarted."""
        return self.log("jobmanager").count("switched from state RUNNING to RESTARTING")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _environment(self) -> list[str]:
        """How Python workers are started."""
        if self._pool_port:
            return ["--environment_type=EXTERNAL", f"--environment_config=localhost:{self._pool_port}"]
        command = {"command": str(self.folder / "worker")}
        return ["--environment_type=PROCESS", f"--environment_config={json.dumps(command)}"]

    def _start_pool(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-W", "ignore", "-m", "voxline.beam.worker_pool", f"--port={self._pool_port}"]
        with open(self.folder / "pool.log", "wb") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": self._import_path()},
                start_new_session=True,
            )

    def _import_path(self) -> str:
        return ":".join(map(str, [*self._python_path, ROOT]))

    def _java(self, main: str, name: str, settings: dict[str, str]) -> "subprocess.Popen[bytes]":
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
        opens += [f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in ("sun.net.util",)]
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", *opens, "-cp", f"{self._jars}/*"]
        command += [f"org.apache.flink.runtime.{main}", "--configDir", str(self.folder)]
        command += [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        with open(self.folder / f"{name}.log", "wb") as log:
            # A session of its own, so that its Python workers end with it.
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError, KeyError, ValueError):
                if self._ask("/overview")["taskmanagers"] == self._wanted:
                    return
            time.sleep(0.5)
        raise TimeoutError(f"Flink did not start within {PATIENCE_SECONDS} s; its logs are in {self.folder}")

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{self._rest}{path}", timeout=20) as answer:
            return json.load(answer)


def write_worker(script: Path, import_path: str = str(ROOT)) -> None:
    """Writes the command by which an engine starts Python workers."""
    python = f"PYTHONPATH={shlex.quote(import_path)} exec {shlex.quote(sys.executable)} -W ignore"
    script.write_text(f'#!/bin/sh\n{python} -m voxline.beam.worker "$@"\n')
    script.chmod(0o755)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
