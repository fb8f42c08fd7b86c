"""A training that ends before its end resumes to the weights of one that did not: stopped by a signal, which saves a
checkpoint wherever it is, killed, or on a disk that fails. Checkpoints are written while training continues."""

import collections
import concurrent.futures
import errno
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.buckets.emulator import Storage
from tests.training.processes import read_log, start_process
from tests.training.toy_family import ToyTask, ToyTrainModule, ToyTrainSettings
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.gcs import GcsStore
from voxline.store.step_cache import cached_step
from voxline.store.storage import ObjectInfo
from voxline.training.batches import Batch
from voxline.training.checkpoints import Checkpoints, Work
from voxline.training.step_result import StepResult
from voxline.training.stop_signals import STOP_SIGNALS, StopSignals
from voxline.training.task import ValidationOutput
from voxline.training.trainer import Trainer, TrainResult

Pod = Callable[[], Path]


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


class WatchedTraining:
    """A training with a checkpoint every 4 steps, whose writes of files and whose steps a test can hold up.

    Attributes:
      before_step: called with the number of completed steps.
      before_write: called in the thread that writes, with the number of checkpoints that it wrote before.
      before_best: called in that thread, with the number of weights of validations that it wrote before.
      upload: called in the thread that uploads, with the newest checkpoint on disk, which `uploads` has by then.
      begin_save: returns a further upload, or None.
    """

    def __init__(self, dataset: Dataset, folder: Path, checkpoint_steps: int = 4) -> None:
        chosen = ToyTrainSettings.of({**settings().plain(), "checkpoint_steps": checkpoint_steps})
        self.uploads: list[int] = []
        self.upload: Callable[[int], None] | None = None
        self.begin_save: Callable[[], Work | None] = lambda: None
        self.trainer = Trainer(ToyTask(chosen, dataset), folder, self.on_checkpoint)
        self.trainer.checkpoints.limit = 0  # 0: all stay
        self.before_step: Callable[[int], None] = lambda completed: None
        self.before_write: Callable[[int], None] = lambda count: None
        self.before_best: Callable[[int], None] = lambda count: None
        self.module = self.trainer.module
        train_step = self.module.train_step
        savez = np.savez
        written: collections.Counter[str] = collections.Counter()

        def train(batch: Batch, rate: float, completed: int) -> StepResult:
            self.before_step(completed)
            return train_step(batch, rate, completed)

        def write(file: Any, **arrays: Any) -> None:
            kind = Path(file.name).parents[1].name
            if threading.current_thread() is not threading.main_thread():
                (self.before_best if kind == "best" else self.before_write)(written[kind])
                written[kind] += 1
            savez(file, **arrays)

        self.module.train_step = train  # type: ignore[method-assign, assignment]
        self.savez = write

    def fit(self) -> TrainResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "savez", self.savez)
            return self.trainer.fit()

    def on_checkpoint(self) -> Work | None:
        newest = self.trainer.checkpoints.steps()[-1]
        self.uploads.append(newest)
        return functools.partial(self.upload, newest) if self.upload else self.begin_save()

    def await_write(self) -> None:
        writing = self.trainer._writer._writing
        assert writing is not None
        concurrent.futures.wait([writing])

    def await_upload(self) -> None:
        uploading = self.trainer._writer._uploading
        if uploading is not None:
            concurrent.futures.wait([uploading])


def assert_resumes(folder: Path, dataset: Dataset, whole: TrainResult, step: int) -> None:
    """Checks the newest checkpoint of a training that ended early, and the weights at the end of one that continues."""
    assert Checkpoints(folder / "checkpoints", 0).steps()[-1] == step
    resumed = Trainer(ToyTask(settings(), dataset), folder).fit()
    assert resumed.state == whole.state
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weights)
    assert not list(folder.glob("*/.*"))


@pytest.mark.slow
def test_training_goes_on_while_the_state_of_a_step_is_written(
    whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    training = WatchedTraining(tones, tmp_path)
    later = threading.Event()
    states = {}

    def before_step(completed: int) -> None:
        if completed == 4:
            states.update(training.module.state())
        if completed == 6:
            later.set()

    def before_write(count: int) -> None:
        assert later.wait(60), "no step while a checkpoint was written"

    training.before_step = before_step
    training.before_write = before_write
    trained = training.fit()
    arrays, state = training.trainer.checkpoints.read(4)
    assert state["step"] == 4
    assert arrays.keys() == states.keys()
    for name, values in states.items():
        np.testing.assert_array_equal(arrays[name], values)

    # Each is reported once, between steps, the last one too.
    assert training.uploads == training.trainer.checkpoints.steps()
    assert len(training.uploads) == 9
    assert training.uploads[-1] == 30
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(trained.weights[name], weights)


@pytest.mark.slow
def test_one_checkpoint_is_written_at_a_time(tones: Dataset, tmp_path: Path) -> None:
    training = WatchedTraining(tones, tmp_path, checkpoint_steps=1)
    completed: list[int] = []
    seen: list[int] = []

    def before_write(count: int) -> None:
        if count == 0:
            threading.Event().wait(0.5)  # the time of many steps
            seen.append(completed[-1])

    training.before_step = completed.append
    training.before_write = before_write
    training.fit()
    assert seen == [1]  # the second step ended, and waits to be written
    assert training.trainer.checkpoints.steps() == list(range(1, 31))


@pytest.mark.slow
@pytest.mark.parametrize(("failing", "before", "last"), [(1, 4, 9), (8, 28, 30)], ids=["between", "the last one"])
def test_a_checkpoint_that_cannot_be_written_ends_the_training_at_the_next_step(
    failing: int, before: int, last: int, whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    training = WatchedTraining(tones, tmp_path)

    def before_write(count: int) -> None:
        if count == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    training.before_step = lambda completed: training.await_write() if completed == 8 else None
    training.before_write = before_write
    with pytest.raises(OSError, match="No space left") as failed:
        training.fit()
    assert failed.value.errno == errno.ENOSPC
    assert training.trainer.state.step == last
    assert len(training.uploads) == failing
    assert_resumes(tmp_path, tones, whole, before)


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_told_beside_another_error(
    tones: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = WatchedTraining(tones, tmp_path)

    def before_step(completed: int) -> None:
        if completed == 8:
            raise RuntimeError("of the step")

    def before_write(count: int) -> None:
        if count == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    training.before_step = before_step
    training.before_write = before_write
    with pytest.raises(RuntimeError, match="of the step"):
        training.fit()
    assert "train: the checkpoint of step 8 was not saved: [Errno 5]" in capsys.readouterr().out


@pytest.mark.parametrize("written", [False, True], ids=["being written", "written, not uploaded"])
@pytest.mark.parametrize("failure", ["", "bucket gone"])
def test_a_signal_saves_its_step_before_one_upload(
    written: bool, failure: str, tones: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod is killed 30 seconds later: an upload of step 8 must not use them up."""
    training = WatchedTraining(tones, tmp_path)
    stopped = threading.Event()

    def before_step(completed: int) -> None:
        if completed == 8:
            if written:
                training.await_write()
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.set()

    def before_write(count: int) -> None:
        if count == 1 and not written:
            assert stopped.wait(60)
            threading.Event().wait(0.5)

    def upload(newest: int) -> None:
        if failure and newest > 4:
            raise OSError(failure)

    training.before_step = before_step
    training.before_write = before_write
    training.upload = upload
    with pytest.raises(KeyboardInterrupt):
        training.fit()
    assert training.trainer.checkpoints.steps() == [4, 8, 9]
    assert training.uploads == [4, 9]

    said = capsys.readouterr().out
    assert "train: stopped after step 9 of 30; its checkpoint is saved" in said
    failed = "train: the checkpoint of step 9 is saved here, and was not uploaded: bucket gone"
    assert (failed in said) is bool(failure)
    assert "was not saved" not in said


@pytest.mark.slow
def test_a_signal_saves_its_step_though_the_write_before_fails(
    whole: TrainResult, tones: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = WatchedTraining(tones, tmp_path)
    begun: list[int] = []

    def before_step(completed: int) -> None:
        if completed == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    def before_write(count: int) -> None:
        begun.append(count)
        if len(begun) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    training.before_step = before_step
    training.before_write = before_write
    with pytest.raises(KeyboardInterrupt):
        training.fit()
    assert training.uploads == training.trainer.checkpoints.steps() == [4, 9]
    assert "train: the checkpoint of step 8 was not saved: [Errno 5]" in capsys.readouterr().out
    assert_resumes(tmp_path, tones, whole, 9)


@pytest.mark.slow
@pytest.mark.parametrize("uploading", [False, True])
def test_a_signal_behind_the_last_step_writes_and_uploads_it_once(
    uploading: bool, tones: Dataset, tmp_path: Path
) -> None:
    training = WatchedTraining(tones, tmp_path)
    written: list[int] = []

    def before_write(count: int) -> None:
        written.append(count)
        if count == 8 and not uploading:
            os.kill(os.getpid(), signal.SIGTERM)

    def upload(newest: int) -> None:
        if newest == 30 and uploading:
            os.kill(os.getpid(), signal.SIGTERM)

    training.before_step = lambda completed: training.await_upload()
    training.before_write = before_write
    training.upload = upload
    with pytest.raises(KeyboardInterrupt):
        training.fit()
    assert len(written) == 9
    assert training.uploads == training.trainer.checkpoints.steps()


@pytest.mark.slow
def test_training_goes_on_while_the_best_weights_are_written(
    whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    training = WatchedTraining(tones, tmp_path)
    later = threading.Event()

    def before_best(count: int) -> None:
        assert later.wait(60), "no step while the weights of a validation were written"

    training.before_step = lambda completed: later.set() if completed == 11 else None
    training.before_best = before_best
    trained = training.fit()
    assert trained.best == whole.best
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(trained.weights[name], weights)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_best_weights_that_cannot_be_written_end_the_training_and_no_checkpoint_refers_to_them(
    stopped: bool, whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    """A signal writes them once more, with the state that refers to them."""
    training = WatchedTraining(tones, tmp_path)
    begun: list[int] = []

    def before_step(completed: int) -> None:
        if completed == 10:
            training.await_write()
            if stopped:
                os.kill(os.getpid(), signal.SIGTERM)

    def before_best(count: int) -> None:
        begun.append(count)
        if len(begun) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    training.before_step = before_step
    training.before_best = before_best
    with pytest.raises(KeyboardInterrupt if stopped else OSError):
        training.fit()
    assert training.trainer.state.step == 11
    assert training.trainer.best_checkpoints.steps() == ([10] if stopped else [])
    assert_resumes(tmp_path, tones, whole, 11 if stopped else 8)


@pytest.mark.slow
def test_a_failed_upload_ends_the_training_at_the_next_step(whole: TrainResult, tones: Dataset, tmp_path: Path) -> None:
    training = WatchedTraining(tones, tmp_path)

    def before_step(completed: int) -> None:
        if completed == 4:
            training.await_write()
        if completed == 5:
            training.await_upload()

    def upload(newest: int) -> None:
        raise WorkError("permission denied")

    training.before_step = before_step
    training.upload = upload
    with pytest.raises(WorkError, match="permission denied"):
        training.fit()
    assert training.trainer.state.step == 6
    assert training.uploads == [4]
    assert_resumes(tmp_path, tones, whole, 4)


def train_in_a_bucket(
    uri: str, dataset: Dataset, prepare: Callable[[WatchedTraining], None] = lambda training: None
) -> TrainResult:
    """Trains as a step whose store is a bucket; it uploads each checkpoint, and one alone stays on the disk."""
    with cached_step(uri, "train", Settings(), {"dataset": "tones"}) as work:
        step = work.bucket_step
        assert step is not None

        def begin_save() -> Work | None:
            step._next_save = 0.0  # never too soon
            return work.begin_save()

        training = WatchedTraining(dataset, work.folder)
        training.trainer.checkpoints.limit = 1
        training.begin_save = begin_save
        prepare(training)
        return training.fit()


def assert_resumes_elsewhere(uri: str, dataset: Dataset, whole: TrainResult, step: int) -> None:
    """Checks which checkpoint another machine downloads, and the weights at the end."""

    def look(training: WatchedTraining) -> None:
        assert training.trainer.checkpoints.steps() == [step]

    resumed = train_in_a_bucket(uri, dataset, look)
    assert resumed.state == whole.state
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weights)


@pytest.mark.slow
def test_a_signal_in_an_upload_saves_its_step_and_uploads_it_behind(
    gcs: Storage, fresh_pod: Pod, whole: TrainResult, tones: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    uploads: list[list[int]] = []
    upload_file = GcsStore.upload_file

    def upload_late(store: GcsStore, file: Path, name: str, **condition: Any) -> ObjectInfo:
        if name.endswith("step-00000004/arrays.npz"):
            assert stopped.wait(60)
            threading.Event().wait(0.5)
        return upload_file(store, file, name, **condition)

    def stop(completed: int) -> None:
        if completed == 12:
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.set()

    def prepare(training: WatchedTraining) -> None:
        training.before_step = stop
        uploads.append(training.uploads)

    monkeypatch.setattr(GcsStore, "upload_file", upload_late)
    fresh_pod()
    with pytest.raises(KeyboardInterrupt):
        train_in_a_bucket(gcs.uri, tones, prepare)
    assert uploads == [[4, 13]]
    fresh_pod()
    assert_resumes_elsewhere(gcs.uri, tones, whole, 13)


def train_until_killed_in_an_upload(uri: str, dataset: Path) -> None:
    """Trains; step 4 is uploaded so slowly that step 8 replaces it on the disk. A kill comes in the upload of step 12,
    when half of it is there and training has gone on."""
    events = {4: threading.Event(), 12: threading.Event()}
    upload_file = GcsStore.upload_file

    def upload_late(store: GcsStore, file: Path, name: str, **condition: Any) -> ObjectInfo:
        folder, _, file_name = name.rpartition("/")
        step = int(folder[-8:]) if folder.startswith("checkpoints/") else 0
        if file_name == "arrays.npz" and step in events:
            assert events[step].wait(60), "no step while a checkpoint was uploaded"
            if step == 12:
                while store.stat(f"{folder}/state.json") is None:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
        return upload_file(store, file, name, **condition)

    def prepare(training: WatchedTraining) -> None:
        def before_step(completed: int) -> None:
            if completed == 9:
                training.trainer._writer.wait()
                assert training.trainer.checkpoints.steps() == [8]
                events[4].set()
                training.await_upload()
            if completed == 14:
                events[12].set()

        training.before_step = before_step
        begin_save = training.begin_save
        training.begin_save = lambda: begin_save() if training.uploads[-1] in events else None

    GcsStore.upload_file = upload_late  # type: ignore[method-assign, assignment]
    train_in_a_bucket(uri, Dataset.read(dataset), prepare)


@pytest.mark.slow
def test_a_training_killed_while_a_slow_bucket_takes_a_checkpoint_resumes_elsewhere_from_the_one_before(
    gcs: Storage, fresh_pod: Pod, whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    fresh_pod()
    log = tmp_path / "log"
    process = start_process(train_until_killed_in_an_upload, gcs.uri, tones.folder, log=log, **os.environ)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, read_log(log)
    names = {name.partition("/checkpoints/")[2] for name in gcs.names()} - {""}
    assert names == {"step-00000004/arrays.npz", "step-00000004/state.json", "step-00000012/state.json"}

    fresh_pod()
    assert_resumes_elsewhere(gcs.uri, tones, whole, 4)


def train_until_killed_in_a_write(dataset: Path, folder: Path) -> None:
    """Trains; a kill comes when half of the second checkpoint is written, and training has gone on."""
    training = WatchedTraining(Dataset.read(dataset), folder)
    later = threading.Event()
    savez = training.savez

    def write(file: Any, **arrays: Any) -> None:
        if (
            threading.current_thread() is not threading.main_thread()
            and (folder / "checkpoints/step-00000004").exists()
        ):
            file.write(b"PK" * 1_000)
            file.flush()
            later.wait(60)
            os.kill(os.getpid(), signal.SIGKILL)
        savez(file, **arrays)

    training.before_step = lambda completed: later.set() if completed == 9 else None
    training.savez = write
    training.fit()


@pytest.mark.slow
def test_a_training_killed_while_a_checkpoint_is_written_resumes_from_the_one_before(
    whole: TrainResult, tones: Dataset, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = start_process(train_until_killed_in_a_write, tones.folder, tmp_path / "run", log=log)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, read_log(log)
    assert list((tmp_path / "run" / "checkpoints").glob(".*.part"))
    assert_resumes(tmp_path / "run", tones, whole, 4)


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
