"""One worker of a training job: `python -m voxline.components.train.distributed.worker`.

A TrainJob does not set TF_CONFIG, by which workers find each other. It becomes a JobSet, the JobSet an indexed Job, and
the pods of that Job have known host names:

    <job>-node-0-<index>.<job>        <job> names the JobSet and its headless service, `node` its only replicated job

Exit status 1 and 2 mean that a restart would fail the same way (bad data, a wrong setting). With any other status the
job restarts all workers, and they resume from the last checkpoint.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from voxline.components.train.distributed.jobs import FAILURE_PREFIX, PORT, REPLICATED_JOB
from voxline.components.train.step import run
from voxline.errors import SettingsError, TransientError, VoxlineError
from voxline.families.family import family_names, find_family
from voxline.progress import neutralize_output, print_status
from voxline.store.files import use_private_umask

LOST_PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
"""What TensorFlow raises in a worker whose peers are gone; the cause is in a peer, or in the network."""


def main(arguments: Sequence[str] | None = None, train: Callable[..., object] = run) -> int:
    """Trains as one of several workers, and returns the exit status.

    Args:
      train: the train step: dataset, store, settings and registry in.
    """
    parser = argparse.ArgumentParser(prog="python -m voxline.components.train.distributed.worker", description=__doc__)
    parser.add_argument("--job", required=True, help="name of the training job")
    parser.add_argument("--family", required=True, choices=family_names(), help="model family")
    parser.add_argument("--dataset", required=True, help="folder written by extract")
    parser.add_argument("--store", required=True, help="store of all step outputs, the same for all workers")
    parser.add_argument("--registry", default="", help="registry that has the model to start from")
    parser.add_argument("--settings", required=True, help="JSON of the section `train`")
    parser.add_argument("--port", type=int, default=PORT, help="of this worker and of its peers")
    parser.add_argument(
        "--retry-status", type=int, default=TransientError.exit_status, help="exit status that asks for a restart"
    )
    options = parser.parse_args(arguments)

    # A platform other than Trainer may have set TF_CONFIG; then it knows the hosts better.
    try:
        settings = find_family(options.family).train_settings.of(options.settings, "train")
        if not os.environ.get("TF_CONFIG"):
            os.environ["TF_CONFIG"] = make_tf_config(options.job, settings.workers.count, os.environ, options.port)
        train(options.dataset, options.store, settings, options.registry)
    except TransientError as error:
        return _report_failure(str(error), int(options.retry_status))
    except VoxlineError as error:
        return _report_failure(str(error), error.exit_status)
    except Exception as error:
        # Its own fault raises on, for the traceback. The loss of a peer is not its fault: all restart, and resume.
        if not _lost_peers(error):
            raise
        print_status(f"train: lost the other workers: {' '.join(str(error).split())[:300]}")
        return int(options.retry_status)
    return 0


def make_tf_config(job: str, count: int, environment: Mapping[str, str], port: int = PORT) -> str:
    """TF_CONFIG of a worker of a TrainJob.

    Args:
      job: name of the TrainJob.
      count: number of its workers.
      environment: variables of the process. Kubernetes sets JOB_COMPLETION_INDEX to the index of the pod, and HOSTNAME.

    >>> config = make_tf_config("digits", 2, {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "digits-node-0-1"})
    >>> json.loads(config)["cluster"]
    {'worker': ['digits-node-0-0.digits:2222', 'digits-node-0-1.digits:2222']}
    >>> json.loads(config)["task"]
    {'type': 'worker', 'index': 1}

    Raises:
      SettingsError: the pod is not one of the workers, or the TrainingRuntime has another structure.
    """
    index = environment.get("JOB_COMPLETION_INDEX", "")
    if not index.isdecimal() or int(index) >= count:
        raise SettingsError(
            f"JOB_COMPLETION_INDEX is {index!r}, but the {count} workers of {job} have 0 to {count - 1}; the "
            "TrainingRuntime's replicated job must be an indexed Job with as many pods as the TrainJob has nodes"
        )

    # Each worker opens its port by its own name and dials the others by theirs, so a wrong name would hang them all.
    hosts = [f"{job}-{REPLICATED_JOB}-0-{number}" for number in range(count)]
    host = environment.get("HOSTNAME", "")
    if host != hosts[int(index)]:
        raise SettingsError(
            f"the host name of this pod is {host!r}, but the other workers expect worker {index} at "
            f"{hosts[int(index)]!r}; the TrainingRuntime's only replicated job must be called {REPLICATED_JOB!r}, with "
            "DNS hostnames enabled"
        )

    cluster = {"worker": [f"{host}.{job}:{port}" for host in hosts]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(index)}})


def _report_failure(message: str, status: int) -> int:
    print(FAILURE_PREFIX + " ".join(message.split()), file=sys.stderr, flush=True)
    return status


def _lost_peers(error: Exception) -> bool:
    tensorflow = sys.modules.get("tensorflow")  # if it was not imported, it raised nothing
    errors = getattr(tensorflow, "errors", None)
    return any(isinstance(error, getattr(errors, name)) for name in LOST_PEER_ERRORS) if errors else False


if __name__ == "__main__":
    neutralize_output()
    use_private_umask()
    sys.exit(main())
