"""A pool of Beam workers beside a process that may not start any, as in another container of its pod.

  python -m voxline.beam.worker_pool --port=50000

A runner asks here for each worker that it wants (`--environment_type=EXTERNAL --environment_config=localhost:50000`).
Beam has such a program too. It starts whatever `python` is first on the PATH, so that the job waits for ever for a
worker that could not import Beam; the worker is not told the pipeline's options; and nobody reads what it prints, so
that it stops once a pipe is full. It also listens to the whole network, and here to this machine alone.
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
"""What a worker has for its end before it is killed."""


class BeamWorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts and stops workers as it is asked to; each is a process."""

    def __init__(self) -> None:
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - as the protocol has it
        command = [sys.executable, "-m", WORKER, f"--id={request.worker_id}"]
        command.append(f"--provision_endpoint={request.provision_endpoint.url}")
        try:
            # What it prints goes where this process prints.
            self._workers[request.worker_id] = subprocess.Popen(command)  # noqa: S603 - our own interpreter and module
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{command[0]}: {error}")
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 - as the protocol has it
        if worker := self._workers.pop(request.worker_id, None):
            _stop_process(worker)
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop(self) -> None:
        """Ends all of them."""
        while self._workers:
            _stop_process(self._workers.popitem()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until it is told to end, and its workers end with it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="of this machine, where the runner asks for workers")
    port = parser.parse_args(arguments).port
    pool, server = BeamWorkerPool(), grpc.server(ThreadPoolExecutor())
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
