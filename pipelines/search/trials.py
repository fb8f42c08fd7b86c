"""Runs one trial: a process that trains, and where decoding varies tunes, by the steps' own functions.

    python -m voxline.pipelines.search.trials REQUEST.json

A process of its own: memory that runs out, or TensorFlow that ends the process, ends one trial; and what it cost is
known. Its work is that of the steps, keyed and cached, so a training that was made before is found in the store.
"""

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.local.graph_process import end_with_parent
from voxline.pipelines.local.single_step import call_step
from voxline.pipelines.search.space import model_steps, with_settings
from voxline.pipelines.search.trial_files import Training, Trial, TrialFailedError
from voxline.pipelines.steps import STEPS
from voxline.store.files import read_json, write_json
from voxline.training.pruner import PRUNER_ENV, PrunedError

DEFAULT_METRICS = {"asr": "dev_wer", "tts": "dev_score", "vocoder": "dev_log_stft"}
"""Pipeline → the metric of train that a search lowers."""
STOPPED_BY_US = "the search was stopped"
STOPPING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""What a scheduler or a machine that shuts down sends to all processes: no fault of a trial."""


@dataclasses.dataclass
class TrialProcesses:
    """The objective of a search: trains with a trial's settings on a dataset, and returns the metric.

    Attributes:
      config: with all locations set.
      dataset, manifest: the outputs of extract and of convert.
      decodes: the step language runs after train, and its metrics are the ones that count.
      folder: for requests, results and logs.
      jobs: processes at a time, which share the cores.
      prune: confidence with which a trial must be worse than the best one to be stopped; 0: none is stopped.
    """

    config: RunConfig
    dataset: str
    manifest: str
    metric: str
    decodes: bool
    folder: Path
    jobs: int = 1
    prune: float = 0.0
    _running: "set[subprocess.Popen[bytes]]" = dataclasses.field(default_factory=set)
    _stopped: bool = False

    def __call__(self, trial: Trial, epochs: int) -> Training:
        overlay = trial_overlay(self.config, trial.settings, epochs)
        return self.train(f"{trial.number:04d}-{epochs}", overlay, epochs, trial.rival)

    def train(self, name: str, settings: Mapping[str, Any], epochs: int, rival: str = "") -> Training:
        """One training, in a process.

        Args:
          rival: train's output of the trial that it is compared with, if trials are stopped.

        Raises:
          TrialFailedError: it failed, for a reason that is its own.
          TransientError: a storage failed, or the process was stopped; the same trial may succeed.
          SettingsError: the steps have no such metric.
          WorkError: the process ended without a result.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        result_file = self.folder / f"{name}.result.json"
        result_file.unlink(missing_ok=True)
        graph = graph_of(self.config.pipeline, self.config.optional_steps())
        steps = [step for step in model_steps(self.config.pipeline) if step in graph] if self.decodes else ["train"]
        document = with_settings(self.config, settings)
        request: Values = {"config": document, "dataset": self.dataset, "manifest": self.manifest, "steps": steps}
        pruner = {"rival": rival, "confidence": self.prune} if self.prune and rival else None
        request |= {"result": str(result_file), "pruner": pruner}
        write_json(self.folder / f"{name}.request.json", request)

        begin = time.monotonic()
        status, cpu_seconds = self._run(name)
        seconds = time.monotonic() - begin

        # The process may have been killed because another trial met an error: no fault of this one.
        if self._stopped:
            raise TransientError(STOPPED_BY_US)
        cost = {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2)}
        if not result_file.is_file():
            raise _end_of_process(status, self.folder / f"{name}.log", cost)
        result = read_json(result_file)
        if result["error"] and result["transient"]:
            raise TransientError(result["error"])
        if result["error"]:
            raise TrialFailedError(result["error"], **cost)

        metrics = result["metrics"]
        epochs = result["epoch"] if result["pruned"] else epochs
        if self.metric not in metrics:
            raise SettingsError(f"--metric {self.metric}: accepted: {', '.join(sorted(metrics))}")
        value = metrics[self.metric]
        return Training(
            epochs=epochs,
            value=math.nan if value is None else float(value),
            metrics={name: value for name, value in metrics.items() if value is not None},
            continued_epochs=0 if result["reused"] else result["counts"].get("continued_epochs", 0),
            reused=result["reused"],
            folder=result["folder"],
            pruned=result["pruned"],
            **cost,
        )

    @contextlib.contextmanager
    def ended_with_block(self) -> Iterator["TrialProcesses"]:
        """Ends the processes that run when an error leaves the block; their trials stay as they were."""
        try:
            yield self
        except BaseException:
            self._stopped = True
            for process in list(self._running):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise

    def _run(self, name: str) -> tuple[int, float]:
        """The exit status of the process, negative for a signal, and its processor time in seconds."""
        # Trials that run at once share the cores; variables of the user win.
        threads = str(max((os.cpu_count() or 1) // self.jobs, 1))
        shared = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS") if self.jobs > 1 else ()
        environment = {
            **dict.fromkeys(shared, threads),
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONSAFEPATH": "1",
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        }
        if self._stopped:
            raise TransientError(STOPPED_BY_US)

        # A session of its own, so that it can be ended with the processes that it starts, and that ^C does not reach it
        # before this process knows.
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(  # noqa: S603 - this Python, our module
                [sys.executable, "-m", "voxline.pipelines.search.trials", str(self.folder / f"{name}.request.json")],
                stdin=subprocess.PIPE,  # held open; the process ends when it closes
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            self._running.add(process)
            # `wait4` rather than `wait`: it returns the processor time of this child alone.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._running.discard(process)
            if process.stdin:
                process.stdin.close()
        return process.returncode, usage.ru_utime + usage.ru_stime


def trial_overlay(config: RunConfig, settings: Values, epochs: int) -> Values:
    """The settings of one training of a trial.

    Where decoding varies, weights of the language model that are set are given as the only ones to try: language
    measures dev only where it tries some.
    """
    values = config.plain()
    overlay = {**settings, "train.epochs": epochs}

    if any(key.startswith("language.") for key in settings):
        for key in ("language.alpha", "language.beta"):
            weight = settings.get(key, get_key(values, key))
            if weight is not None:
                overlay |= {key: None, f"{key}s": [weight]}

    if get_key(values, "train.blank_plateau.severity") == "error":  # a short training is not the last one
        overlay["train.blank_plateau.severity"] = "warning"
    return overlay


def _end_of_process(status: int, log: Path, cost: dict[str, float]) -> WorkError:
    """The error of a process that wrote no result. A fault of the trial ends it by a signal; any other by a status."""
    if -status in STOPPING_SIGNALS:
        return TransientError(f"a trial was stopped by signal {-status}")
    if status == -signal.SIGKILL:
        note = f"killed by signal 9, as where memory runs out; lower train.batch_size or the model's size ({log})"
        return TrialFailedError(note, **cost)
    if status < 0:
        return TrialFailedError(f"ended by signal {-status} ({log})", **cost)
    return WorkError(f"a trial ended with status {status} and no result; its last lines are in {log}")


def main(request_file: str) -> None:
    """Makes one training, and writes its result: metrics, or an error in one line."""
    # The parent may be killed without a chance to end this process, which would train for hours for nobody.
    threading.Thread(target=end_with_parent, daemon=True).start()
    request = read_json(Path(request_file))
    result: dict[str, Any] = {
        "error": "",
        "transient": False,
        "metrics": {},
        "counts": {},
        "reused": True,
        "folder": "",
        "pruned": "",
    }
    try:
        config = load_config(request["config"])
        if request["pruner"]:
            os.environ[PRUNER_ENV] = json.dumps(request["pruner"])

        available = {"dataset": request["dataset"], "manifest": request["manifest"]}
        for step in request["steps"]:
            inputs = {kind: available[kind] for kind in STEPS[step].inputs}
            work = call_step(step, config, inputs)

            # JSON has no NaN; the metrics of a later step replace those of train.
            metrics = {name: float(value) for name, value in work.metrics.items()}
            result["metrics"] |= {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            if step == "train":
                result |= {"counts": work.counts, "reused": work.reused, "folder": work.uri}
            available |= dict.fromkeys(STEPS[step].outputs, work.uri)
    except PrunedError as error:
        result |= {"pruned": str(error), "epoch": error.epoch, "metrics": error.metrics, "reused": error.resumed}
    except VoxlineError as error:
        result |= {"error": str(error), "transient": isinstance(error, TransientError | PreconditionError)}
    except OSError as error:  # a full disk, a folder that cannot be written: no fault of the trial
        traceback.print_exc()
        result |= {"error": f"{error.filename or request['config']['store']}: {error.strerror}", "transient": True}
    except Exception as error:  # TensorFlow raises many kinds; a trial that fails does not end the search
        traceback.print_exc()
        result["error"] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
    write_json(Path(request["result"]), result)


if __name__ == "__main__":
    main(sys.argv[1])
