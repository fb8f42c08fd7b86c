"""A training that a signal stops saves a checkpoint wherever it is, and resumes to the weights of one that was not."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.toy_family import ToyTask, ToyTrainModule, ToyTrainSettings
from voxline.data.dataset import Dataset
from voxline.training.batches import Batch
from voxline.training.checkpoints import Checkpoints
from voxline.training.step_result import StepResult
from voxline.training.stop_signals import STOP_SIGNALS, StopSignals
from voxline.training.task import ValidationOutput
from voxline.training.trainer import Trainer, TrainResult


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Where the tests run in the background, a shell has told them to ignore Ctrl-C."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def settings() -> ToyTrainSettings:
    average = {"ema_decay": 0.5}
    return ToyTrainSettings.of({"epochs": 3, "learning_rate": 0.5, "strategy": "one", "average": average})


class StoppedTask(ToyTask):
    """Gets a signal in a step, or in a validation if `validation` counts one; each epoch has two."""

    def __init__(self, dataset: Dataset, number: int, step: int, validation: int = 0) -> None:
        super().__init__(settings(), dataset)
        self.number = number
        self.stopped_validation = validation
        self.validations = 0
        train_step = self.module.train_step

        def train_and_stop(batch: Batch, rate: float, completed: int) -> StepResult:
            if completed == step - 1 and not validation:
                self.send()
            return train_step(batch, rate, completed)

        self.module.train_step = train_and_stop  # type: ignore[method-assign, assignment]

    def send(self) -> None:
        for _ in range(3):  # a person presses Ctrl-C more than once
            os.kill(os.getpid(), self.number)

    def validate(self, step: int) -> ValidationOutput:
        self.validations += 1
        if self.validations == self.stopped_validation:
            self.send()
        return super().validate(step)


@pytest.fixture(scope="module")
def whole(tones: Dataset, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    return Trainer(ToyTask(settings(), tones), tmp_path_factory.mktemp("whole")).fit()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "step", "validation"),
    [
        pytest.param(signal.SIGINT, 13, 0, id="within an epoch"),
        pytest.param(signal.SIGTERM, 10, 0, id="in the last step of an epoch"),
        pytest.param(signal.SIGHUP, 10, 2, id="in a validation of the moving average"),
        pytest.param(signal.SIGINT, 30, 5, id="in the last validation"),
    ],
)
def test_a_training_that_a_signal_stops_resumes_to_the_same_weights(
    number: int, step: int, validation: int, whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        Trainer(StoppedTask(tones, number, step, validation), tmp_path).fit()
    assert stopped.value.args == (number,)
    assert Checkpoints(tmp_path / "checkpoints", 0).steps()[-1] == step

    resumed = Trainer(ToyTask(settings(), tones), tmp_path).fit()
    assert resumed.state == whole.state
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weights)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_signal_ends_the_building_of_a_graph_at_once(accumulate: int, tones: Dataset, tmp_path: Path) -> None:
    """A large network's takes a minute, and nothing has changed yet."""
    task = ToyTask(ToyTrainSettings.of({**settings().plain(), "accumulate": accumulate}), tones)
    traced = []

    def trace_and_stop(*args: Any) -> Any:
        traced.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        traced.append("continued")
        return ToyTrainModule.compute_losses(task.module, *args)

    task.module.compute_losses = trace_and_stop  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt) as stopped:
        Trainer(task, tmp_path).fit()
    assert stopped.value.args == (signal.SIGTERM,)
    assert traced == ["begun"]
    assert Checkpoints(tmp_path / "checkpoints", 0).steps() == [0]

    # What is left behind is whole: the same module builds the graph again, and trains.
    del task.module.compute_losses
    assert Trainer(task, tmp_path).fit().state.step == 3 * task.train.steps


def test_handlers_are_as_before_and_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    signals = StopSignals()
    with signals.noted():
        os.kill(os.getpid(), signal.SIGHUP)
        signals.check()
        assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_signal_that_comes_too_late_for_the_loop_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignals().noted():
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_training_in_another_thread_sets_no_handler() -> None:
    def train() -> None:
        with StopSignals().noted():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen: list[Any] = []
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
