"""What a training step costs on the host outside of its graph, and what several steps a call of a graph would save;
what a checkpoint costs the thread that trains.

Outside are reading the batch, handing it to TensorFlow, Python's way into the graph, and the curves. It is processor
time of the thread that trains, which other work on the machine hardly changes; a step is the processor time of all
threads over the cores, which is its time on a machine that does nothing else, or less. For several steps a call, an
outer graph calls the step's graph so many times, each with a batch of its own; the weights must be the same bits.
At a checkpoint that thread copies the state. Threads write it with the weights of a validation and upload it, to a
bucket that takes two seconds; beside it is what all of this takes in the thread that trains.

  python -m benchmarks.step_overhead
"""

import concurrent.futures
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.context import Context

from benchmarks.table import Row, print_table
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample, write_dataset
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.text.alphabet import Alphabet
from voxline.training import devices
from voxline.training.batches import Batch
from voxline.training.step_result import StepResult
from voxline.training.trainer import Trainer

FEATURES = FeatureSettings(mels=40)
ALPHABET = Alphabet.from_name("english")
BATCH = 16
STEPS = 16
STEPS_PER_CALL = 4
CHECKPOINT_STEPS = 4
UPLOAD_SECONDS = 2.0
WARM_UP = 4
NETWORKS = {
    "Deep Speech 2": {"kind": "deepspeech2"},
    "Conformer, 4 layers": {"kind": "conformer", "layers": 4, "units": 96, "heads": 4, "subsampling": 4},
}


class SameThread(concurrent.futures.Executor):
    """Runs all work at once, in the thread that submits it."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> concurrent.futures.Future[Any]:
        work: concurrent.futures.Future[Any] = concurrent.futures.Future()
        work.set_result(function(*arguments, **named))
        return work


class Clock:
    """Seconds of the thread that trains outside of graphs, and of all threads."""

    def __init__(self) -> None:
        self._inside = 0.0
        call_function = Context.call_function

        def call(context: Any, *arguments: Any) -> Any:
            start = time.thread_time()
            try:
                return call_function(context, *arguments)
            finally:
                self._inside += time.thread_time() - start

        Context.call_function = call

    def read(self) -> tuple[float, float]:
        return time.thread_time() - self._inside, time.process_time()


def rows() -> list[Row]:
    clock = Clock()
    table = []
    for name, network in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            settings = AsrTrainSettings(epochs=1, batch_size=BATCH, strategy="one", model=network)
            dataset = _write(Path(folder) / "dataset")
            task = AsrTask(settings, dataset)
            outside, step = _in_training(Trainer(task, Path(folder) / "run"), clock)
            variables = len(task.module.model.weights)
            apart, together = _in_calls(task, clock)
            often = {"evaluate_steps": CHECKPOINT_STEPS, "checkpoint_steps": CHECKPOINT_STEPS}
            task = AsrTask(settings.model_copy(update=often), dataset)
            behind = _at_checkpoints(Trainer(task, Path(folder) / "threads", lambda: _upload))
            trainer = Trainer(task, Path(folder) / "no threads", lambda: _upload)
            trainer._writer._threads = SameThread()
            within = _at_checkpoints(trainer)
        table += [
            Row.of(
                f"{name} ({variables} variables): a step outside of its graph, share of the step",
                f"{outside * 1000:.2f} ms",
                f"{step * 1000:.0f} ms",
                outside / step,
                "<=",
                0.02,
            ),
            Row.of(
                f"{name}: {STEPS_PER_CALL} steps a call outside of the graph, x a step a call",
                f"{together * 1000:.2f} ms a step",
                f"{apart * 1000:.2f} ms a step",
                together / apart,
                "<=",
                1.0,
            ),
            Row.of(
                f"{name}: the thread that trains at a checkpoint, x all of it in that thread",
                f"{behind:.2f} s",
                f"{within:.2f} s",
                behind / within,
                "<=",
                0.5,
            ),
        ]
    return table


def _in_training(trainer: Trainer, clock: Clock) -> tuple[float, float]:
    """Seconds of a step outside of its graph, and of the step; the medians of an epoch."""
    train_step = trainer.module.train_step
    readings: list[tuple[float, float]] = []

    def timed(batch: Batch, rate: float, step: int) -> StepResult:
        readings.append(clock.read())
        return train_step(batch, rate, step)

    trainer.module.train_step = timed
    trainer.fit()
    trainer.module.train_step = train_step
    outside, everywhere = np.diff(np.array(readings), axis=0)[WARM_UP:].T
    cores = len(os.sched_getaffinity(0))
    return statistics.median(outside), statistics.median(everywhere) / cores


def _upload() -> None:
    time.sleep(UPLOAD_SECONDS)


def _at_checkpoints(trainer: Trainer) -> float:
    """Seconds of the thread that trains at a checkpoint, its validation aside; the mean of those between two steps."""
    seconds = 0.0
    readings = []
    save = trainer._save_checkpoint
    poll = trainer._writer.poll
    train_step = trainer.module.train_step

    def timed(function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            nonlocal seconds
            start = time.perf_counter()
            function(*arguments)
            seconds += time.perf_counter() - start

        return call

    def train(batch: Batch, rate: float, step: int) -> StepResult:
        readings.append(seconds)
        return train_step(batch, rate, step)

    trainer._save_checkpoint = timed(save)
    trainer._writer.poll = timed(poll)
    trainer.module.train_step = train
    trainer.fit()
    trainer.module.train_step = train_step
    return readings[-1] / ((STEPS - 1) // CHECKPOINT_STEPS)


def _in_calls(task: AsrTask, clock: Clock) -> tuple[float, float]:
    """Seconds of a step outside of the graph with one step a call, and with several."""
    module = task.module
    batches = list(task.train.epoch(0))
    start = module.state()
    seconds = []
    states = []
    with devices.without_graph_optimizer():
        for count in (1, STEPS_PER_CALL):
            module.restore(start)
            seconds.append(statistics.median(_call(task, batches, count, clock)))
            states.append(module.state())
    if any((states[0][name] != values).any() for name, values in states[1].items()):
        sys.exit("benchmarks.step_overhead: several steps a call give other weights")
    return seconds[0], seconds[1]


def _call(task: AsrTask, batches: list[Batch], count: int, clock: Clock) -> Iterator[float]:
    module = task.module
    (shape,) = {module._to_tensors(batch)[3] for batch in batches}
    graph = module._train_graph(shape, module.graph_key(0), False)
    several = tf.function(
        lambda *calls: [graph(*arguments) for arguments in calls],
        input_signature=[graph.input_signature] * count,
        autograph=False,
    )
    for first in range(0, len(batches), count):
        before, _ = clock.read()
        calls = []
        for step in range(first, first + count):
            tensors, weights, _, _ = module._to_tensors(batches[step])
            rate = tf.constant(1e-3, tf.float32)
            calls.append((tensors, weights, rate, module._noise(step), module._schedule_tensors(step)))
        results = [graph(*calls[0])] if count == 1 else several(*calls)
        for result in results:
            _ = StepResult(*result).loss
        after, _ = clock.read()
        if first:
            yield (after - before) / count


def _write(folder: Path) -> Dataset:
    """Utterances of 1.4 to 3.6 s, as the demo's commands."""
    random = np.random.default_rng(1)
    spoken = []
    for number in range(STEPS * BATCH):
        frames = int(random.integers(140, 360))
        features = random.standard_normal((frames, FEATURES.bins)).astype(np.float32)
        text = ALPHABET.decode(random.integers(0, 27, frames // 12))
        spoken.append(NewExample(str(number), text, "train", features))
    return write_dataset(folder, spoken, FEATURES, ALPHABET)


if __name__ == "__main__":
    print_table(rows())
