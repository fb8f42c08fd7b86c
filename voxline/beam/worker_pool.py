"""A pool of Beam workers for a runner that cannot start processes, for instance in another container of its pod.

  python -m voxline.beam.worker_pool --port=50000

The runner requests each worker here (`--environment_type=EXTERNAL --environment_config=localhost:50000`).

Beam has such a program too, with four faults. It starts the first `python` on the PATH, so a job waits forever for a
worker that cannot import Beam. The worker does not get the pipeline's options. Nothing reads what the worker prints, so
it stops when the pipe is full. And it listens on all network interfaces; this one listens on localhost alone.
"""

# Beam calls itself typed, and its workers are not:
# mypy: disable-error-code="no-untyped-call"
import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

WORKER = "voxline.beam.worker"
STOP_SECONDS = 10
"""Seconds that a worker has to end before it is killed."""


class BeamWorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts and stops workers on request; each is a process."""

    def __init__(self) -> None:
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - as the protocol has it
        command = [sys.executable, "-m", WORKER, f"--id={request.worker_id}"]
        command.append(f"--provision_endpoint={request.provision_endpoint.url}")
        try:
            # It inherits stdout and stderr.
            self._workers[request.worker_id] = subprocess.Popen(command)  # noqa: S603 - our own interpreter and module
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{command[0]}: {error}")
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - as the protocol has it
        if worker := self._workers.pop(request.worker_id, None):
            _stop_process(worker)
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop(self) -> None:
        """Stops all workers."""
        while self._workers:
            _stop_process(self._workers.popitem()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until SIGTERM or Ctrl-C; the workers end with it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="of this machine, where the runner asks for workers")
    port = parser.parse_args(arguments).port
    pool = BeamWorkerPool()
    server = grpc.server(ThreadPoolExecutor())
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"localhost:{port}")
    server.start()
    print(f"a pool of Beam workers listens at localhost:{port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
    try:
        server.wait_for_termination()
    except KeyboardInterrupt:
        server.stop(0)
    finally:
        pool.stop()


def _stop_process(worker: "subprocess.Popen[bytes]") -> None:
    worker.terminate()
    try:
        worker.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


if __name__ == "__main__":
    main()
