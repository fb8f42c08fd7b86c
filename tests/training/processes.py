"""Processes that are forked from a server with TensorFlow imported and unused."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxline.components.train.step import run
from voxline.training.settings import TrainSettings

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["voxline.training.trainer", "voxline.families.asr.export", "voxline.families.tts.export"]
)


def start_process(function: Callable[..., None], *arguments: Any, log: Path, **environment: str) -> Any:
    """Calls a function of some module in a process of its own, which prints into the log and runs beside this one."""
    process = SERVER.Process(target=_call, args=(function, arguments, str(log), environment))
    process.start()
    return process


def run_train_step(dataset: str, store: str, settings: TrainSettings) -> None:
    run(dataset, store, settings)


def run_train_step_and_count(dataset: str, store: str, settings: TrainSettings, answer: Path) -> None:
    """Trains; writes the id of each example of the training split that this process read."""
    from voxline.training.batches import Batches

    read_example, read = Batches._example, []

    def noted(batches: Batches, row: int) -> Any:
        example = read_example(batches, row)
        read.append(example.id)
        return example

    Batches._example = noted  # type: ignore[method-assign]
    run(dataset, store, settings)
    answer.write_text(json.dumps([name for name in read if name.startswith("train")]))


def run_train_step_until_killed(dataset: str, store: str, settings: TrainSettings, steps: int) -> None:
    """Trains; at the given number of training steps of this process it kills itself, in the middle of the work."""
    from voxline.training.train_module import TrainModule

    train_step, left = TrainModule.train_step, [steps]

    def counted(module: TrainModule, *arguments: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return train_step(module, *arguments)

    TrainModule.train_step = counted  # type: ignore[assignment, method-assign]
    run(dataset, store, settings)


def read_log(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


def _call(function: Callable[..., None], arguments: tuple[Any, ...], log: str, environment: dict[str, str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environment)
    import tensorflow as tf

    # As in `conftest.py`; what such processes compare are runs among each other.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    function(*arguments)
