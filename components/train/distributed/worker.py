"""One worker: what a pod of a training job runs, `python -m voxline.components.train.distributed.worker`.

Exit status 1 and 2 say that starting it again would end the same way (bad data, a wrong setting). Any other says that
the work may go on: all workers are started again then, and go on from the last checkpoint.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.distributed.tf_config import PORT, make_tf_config
from voxline.components.train.settings import TrainSettings
from voxline.components.train.step import run
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.errors import TransientError, VoxlineError
from voxline.progress import print_status

FAMILIES: dict[str, type[TrainSettings]] = {"recognition": AsrTrainSettings, "synthesis": TtsTrainSettings}
FAILURE_PREFIX = "✗ "
"""What the line begins with that says why a worker ended; who follows the job looks for it."""
LOST_PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
"""What TensorFlow raises in a worker whose peers are gone; the fault is theirs, or the network's."""


def worker_arguments(settings: TrainSettings, dataset: str, store: str, job: str, retry_status: int) -> list[str]:
    """The command line of a worker."""
    family = next(name for name, kind in FAMILIES.items() if isinstance(settings, kind))
    plain = settings.model_dump_json()
    named = {"job": job, "family": family, "dataset": dataset, "store": store, "retry-status": str(retry_status)}
    return [part for name, value in named.items() for part in (f"--{name}", value)] + ["--settings", plain]


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains along, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m voxline.components.train.distributed.worker", description=__doc__)
    parser.add_argument("--job", required=True, help="name of the training job")
    parser.add_argument("--family", required=True, choices=sorted(FAMILIES), help="of models")
    parser.add_argument("--dataset", required=True, help="folder that extract wrote")
    parser.add_argument("--store", required=True, help="all keyed work; the same one for all workers")
    parser.add_argument("--settings", required=True, help="JSON of the section `train`")
    parser.add_argument("--port", type=int, default=PORT, help="of this worker and of its peers")
    parser.add_argument("--retry-status", type=int, default=TransientError.exit_status, help="exit status: start again")
    given = parser.parse_args(arguments)
    try:
        settings = FAMILIES[given.family].of(given.settings, "train")
        if not os.environ.get("TF_CONFIG"):
            os.environ["TF_CONFIG"] = make_tf_config(given.job, settings.workers.count, os.environ, given.port)
        run(given.dataset, given.store, settings)
    except TransientError as error:
        return _report_failure(str(error), int(given.retry_status))
    except VoxlineError as error:
        return _report_failure(str(error), error.exit_status)
    except Exception as error:
        if not _lost_peers(error):
            raise
        print_status(f"train: lost the other workers: {' '.join(str(error).split())[:300]}")
        return int(given.retry_status)
    return 0


def _report_failure(message: str, status: int) -> int:
    print(FAILURE_PREFIX + " ".join(message.split()), file=sys.stderr, flush=True)
    return status


def _lost_peers(error: Exception) -> bool:
    tensorflow = sys.modules.get("tensorflow")  # what was not imported raised nothing
    errors = getattr(tensorflow, "errors", None)
    return any(isinstance(error, getattr(errors, name)) for name in LOST_PEER_ERRORS) if errors else False


if __name__ == "__main__":
    sys.exit(main())
