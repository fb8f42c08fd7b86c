"""The training loop: epochs, validation, checkpoints, and resuming from a checkpoint after a signal or a kill."""

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from voxline.errors import SettingsError, WorkError
from voxline.progress import Progress, print_status
from voxline.report.page import plural
from voxline.training import devices
from voxline.training.averaging import MOVING, TRAINED, mean_weights
from voxline.training.batches import Batch
from voxline.training.checkpoints import Arrays, BestWeights, Checkpoints, CheckpointWriter, Work
from voxline.training.memory import fit_memory
from voxline.training.optimizer import learning_rate
from voxline.training.pruner import PairedPruner, write_errors
from voxline.training.step_result import UnreadStep
from voxline.training.stop_signals import StopRequested, StopSignals
from voxline.training.task import (
    Samples,
    TrainingTask,
    ValidationOutput,
    ValidationResult,
    best_results,
    shorten_list,
    should_stop_early,
)
from voxline.training.training_logger import TrainingLogger


@dataclasses.dataclass
class TrainState:
    """The progress of a training run: all that a checkpoint holds besides the arrays.

    Attributes:
      epoch, batch: the batch that comes next.
      step: completed steps.
      validations: results so far.
      skipped: ids of the utterances in each batch whose step was skipped.
      curve: points of the training curves.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    validations: list[ValidationResult] = dataclasses.field(default_factory=list)
    skipped: list[list[str]] = dataclasses.field(default_factory=list)
    curve: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "TrainState":
        """Reads the state from the JSON of a checkpoint."""
        return cls(**{**values, "validations": [ValidationResult.of(result) for result in values["validations"]]})


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The outcome of a training run.

    Attributes:
      weights: those of the best validation; empty except on the chief.
      best: the validation that the weights come from.
      counts: utterances trained on, left out, …, by name.
      data_wait: share of the time in which steps waited for their batches.
    """

    weights: Arrays
    best: ValidationResult
    state: TrainState
    counts: dict[str, int]
    stopped_early: bool
    data_wait: float


class Trainer:
    """Trains the model of a task.

    Args:
      folder: gets `checkpoints/`, `best/` and `logs/`; all workers must see the same checkpoints there.
      on_checkpoint: called by the chief after each checkpoint, between two steps, and while no checkpoint is being
        written. It may return work for a thread, such as an upload; it is not called again before that has ended. After
        a signal it is called once, for the state that was saved then.
      pruner: ends the training of a trial that is worse than another one, by an error.
    """

    def __init__(
        self,
        task: TrainingTask,
        folder: Path,
        on_checkpoint: Callable[[], Work | None] = lambda: None,
        pruner: PairedPruner | None = None,
    ) -> None:
        self.task = task
        self.settings = task.settings
        self.pruner = pruner
        self.batches = task.train
        self.module = task.module
        self.is_chief = devices.is_chief()

        self.total_steps = sum(map(self.batches.steps_of, range(self.settings.epochs)))
        self.head_steps = task.head_steps
        if task.resting_steps >= self.total_steps:
            raise SettingsError(
                f"train.epochs is {self.settings.epochs}, {self.total_steps:,} steps, and the voice rests in the first "
                f"{task.resting_steps:,} (train.vits.posterior_steps); give more epochs, or fewer of these"
            )

        # Checkpoints to resume from, and those of the best validations, which are kept longer.
        self.checkpoints = Checkpoints(folder / "checkpoints", self.settings.checkpoints_kept)
        self.best_checkpoints = Checkpoints(folder / "best", 0)
        self._writer = CheckpointWriter(self.checkpoints, self.best_checkpoints, on_checkpoint)
        self.logger = TrainingLogger(folder / "logs", active=self.is_chief)
        self.state = TrainState()
        self._began = time.perf_counter()

        # A CPU has computed a step when its call returns: there is nothing to wait for.
        self.read_late = self.settings.log_steps if devices.has_accelerator() else 0
        self._unread: collections.deque[UnreadStep] = collections.deque()
        self._last_loss: float | None = None

        # Several workers have no way to agree on the step to save: there a signal ends the process, as it always does.
        self.signals = StopSignals(active=not os.environ.get("TF_CONFIG"))
        self.module.while_tracing = self.signals.raised

    def fit(self) -> TrainResult:
        """Trains to the end, from the newest checkpoint if there is one.

        Raises:
          WorkError: the loss or gradient of too many steps was not finite.
          OSError: a checkpoint could not be written, which ends the training after the step in which that failed. It
            resumes from the newest one on disk: lost are the steps between that one and this, and all that ran while
            this one was being written. The work of `on_checkpoint` ends it like this too, by its own error.
          PrunedError: the training is worse than another one; its checkpoint remains.
          KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP asked for the end, by its number; a checkpoint was saved. That
            `on_checkpoint` failed for it was printed.
        """
        with contextlib.nullcontext() if self.task.optimizes_graph else devices.without_graph_optimizer():
            return self._fit()

    def _fit(self) -> TrainResult:
        settings = self.settings

        # A run that was killed continues as if it had not been.
        self._resume()
        self._check_pruner(resumed=True)  # killed between a checkpoint and this, it ends as if it had not been
        state = self.state
        self._print_plan()
        if settings.fit_memory:
            fit_memory(self.module, self.batches)
        self.logger.log_settings(self.task.settings.plain(), self.task.describe_data())

        # Signals are noted until the last step: each lets the step that runs end, and its checkpoint be saved.
        with self.signals.noted(), self._writer:
            try:
                stopped = self._train_epochs()
                self._writer.wait()
                self.signals.check()
                self._writer.finish_uploads()
                self.signals.check()
            except StopRequested as stop:
                self._save_at_stop()
                with contextlib.suppress(OSError):  # the terminal may be gone
                    print_status(
                        f"train: stopped after step {state.step:,} of {self.total_steps:,}; its checkpoint is saved"
                    )
                raise KeyboardInterrupt(stop.number) from None

        return self._result(stopped)

    def _train_epochs(self) -> bool:
        """Trains all epochs that remain. Returns whether they ended early, because dev improved no more.

        Raises:
          StopRequested: a signal arrived; the state is one that a checkpoint can hold.
        """
        settings = self.settings
        state = self.state

        # Stopped by a signal in a validation, a run makes it first.
        if self._validation_pending():
            self._save_checkpoint(self._validate())
            self._check_pruner()

        # Epochs of batches; a run that resumed begins within an epoch.
        in_step = self.batches.utterances / self.batches.steps if settings.batch_seconds else settings.step_size
        progress = Progress("utterances", round((self.total_steps - state.step) * in_step))
        self._began = time.perf_counter()
        stopped = should_stop_early(settings, state.validations)
        while state.epoch < settings.epochs and not stopped:
            for batch in self.batches.epoch(state.epoch, state.batch):
                epoch = f"epoch {state.epoch + 1} of {settings.epochs}"
                self._train_step(batch)
                loss = "" if self._last_loss is None else f", loss {self._last_loss:.2f}"
                note = f"{epoch}, step {state.step}{loss}, data wait {self._data_wait():.0%}"
                progress.advance(len(batch.ids), note)

                # Validation and checkpoint, where they are due.
                epoch_ended = state.batch == self.batches.steps_of(state.epoch)
                if epoch_ended:
                    state.epoch = state.epoch + 1
                    state.batch = 0
                self.signals.check()  # before the upload of a checkpoint that is older than this step
                self._writer.poll()
                self.signals.check()
                best = None
                if validates := self._validation_due(epoch_ended):
                    best = self._validate()
                    stopped = should_stop_early(settings, state.validations)
                if validates or epoch_ended or state.step % settings.checkpoint_steps == 0:
                    self._save_checkpoint(best)
                if validates:
                    self._check_pruner()
                if stopped:
                    break

        return stopped

    def _data_wait(self) -> float:
        """The share of the time since training began, or was resumed, in which steps waited for their batches."""
        return min(self.batches.waited / max(time.perf_counter() - self._began, 1e-9), 1.0)

    def _check_pruner(self, *, resumed: bool = False) -> None:
        if self.pruner and self.state.validations:
            self.pruner.check(self.logger.folder, self.state.validations[-1], resumed=resumed)

    def _validation_due(self, epoch_ended: bool) -> bool:
        state = self.state
        settings = self.settings
        if state.step == self.total_steps:
            return True
        if state.step <= self.task.resting_steps:
            return False

        # By steps or by epochs; the last step always validates.
        if settings.evaluate_steps:
            return state.step % settings.evaluate_steps == 0
        return epoch_ended and state.epoch % settings.evaluate_epochs == 0

    def _validation_pending(self) -> bool:
        """Returns whether the newest step is one that validates, and did not."""
        state = self.state
        validated = state.validations[-1].step if state.validations else 0
        return validated < state.step and self._validation_due(epoch_ended=state.batch == 0)

    def _train_step(self, batch: Batch) -> None:
        state = self.state

        # The step's result depends on state, batch and step number alone, so a resumed run repeats it.
        rate = learning_rate(self.settings, state.step, self.total_steps, self.head_steps)
        result = self.module.train_step(batch, rate, state.step)
        state.step += 1
        state.batch += 1
        self._unread.append(UnreadStep(state.step, batch, rate, result))
        self._read_results(self.read_late)

    def _read_results(self, late: int = 0) -> None:
        """Reads the results of all steps but the last `late` ones, and notes what they say."""
        while len(self._unread) > late:
            step = self._unread.popleft()
            result = step.result
            self._last_loss = result.loss
            if not result.accepted:
                self._record_skipped(step)
            elif step.number % self.settings.summary_steps == 0:
                # A single term is the loss itself.
                losses = result.losses if len(result.losses) > 1 else {}
                point = {"loss": result.loss, "learning_rate": step.rate, "gradient_norm": result.gradient_norm}
                point |= losses
                self.state.curve.append({"step": step.number, **point})
                self.logger.log_step(step.number, {**point, "data_wait": self._data_wait()})

    def _record_skipped(self, step: UnreadStep) -> None:
        batch = step.batch
        state = self.state
        limit = self.settings.max_bad_steps
        # Each worker has seen its own rows only.
        places = np.arange(len(batch.ids)) if batch.places is None else batch.places
        broken = np.zeros(len(batch.ids))
        np.add.at(broken, places % len(batch.ids), [not np.isfinite(row).all() for row in batch.features])
        everywhere = devices.sum_over_workers(self.task.strategy, broken.tolist())

        # Utterances with values that are not finite; else all of the batch.
        suspects = [name for name, count in zip(batch.ids, everywhere, strict=True) if count] or batch.ids
        state.skipped.append(suspects)
        print_status(
            f"train: step {step.number} skipped, its loss or gradient is not finite ({shorten_list(suspects)})"
        )
        if len(state.skipped) > limit:
            everyone = list(dict.fromkeys(name for names in state.skipped for name in names))
            raise WorkError(
                f"train: {len(state.skipped)} steps had a loss or gradient that is not finite, at most {limit} are "
                f"accepted (train.max_bad_steps); the utterances in them: {shorten_list(everyone)}. Check their audio "
                f"and features, or lower train.learning_rate ({self.settings.learning_rate:g})"
            )

    def _validate(self) -> BestWeights | None:
        """Scores dev by the weights and by their moving average; the chief gets the better ones if among the best."""
        self._read_results()
        state = self.state
        result, output = self._score(TRAINED)
        weights = self.module.weights()

        # The moving average is scored too, and kept if it is better.
        average = self.module.averaged_weights()
        if average is not None and result.score is not None:
            self.module.load_weights(average)
            try:
                averaged, averaged_output = self._score(MOVING)
            finally:  # a checkpoint of a stopped run holds the trained ones
                self.module.load_weights(weights)
            if self.is_chief:
                self.logger.log_averaged(result, averaged)
            if best_results([result, averaged])[0] is averaged:
                result = averaged
                output = averaged_output
                weights = average

        # Logs and the best weights are the chief's.
        state.validations.append(result)
        if not self.is_chief:
            return None
        self.logger.log_validation(result, output.samples)
        if output.errors:
            write_errors(self.logger.folder, result.epoch, output.errors)
        self.logger.log_distributions(state.step, self.module.distributions())
        self.logger.write_curves(state.curve, state.validations)
        return BestWeights(state.step, weights, self._needed_steps()) if result in self._best() else None

    def _score(self, weights: str) -> tuple[ValidationResult, ValidationOutput]:
        """Scores dev with the weights that the model holds.

        Args:
          weights: name of these weights, such as `TRAINED`, for the result and the console.

        Raises:
          StopRequested: a signal arrived. A validation may take minutes, and the next run can repeat it.
        """
        state = self.state
        result = ValidationResult(state.epoch, state.step, None, weights=weights)
        if not self.task.dev.utterances:
            return result, ValidationOutput((), {}, Samples())

        with self.signals.raised():
            output = self.task.validate(state.step)
        result = dataclasses.replace(result, score=output.score, metrics=output.metrics)

        # The console gets a line for each validation.
        epoch = f"epoch {result.epoch} of {self.settings.epochs}"
        position = f"step {result.step} of {self.total_steps}" if self.settings.evaluate_steps else epoch
        weights_note = "" if weights == TRAINED else f", {weights}"
        print_status(f"train: {position}{weights_note}, {self.task.describe(result.metrics)}")
        return result, output

    def _best(self, undone: int = 0) -> list[ValidationResult]:
        """Validations whose weights may be exported or averaged, as if the last `undone` ones had not happened."""
        validations = self.state.validations
        return best_results(validations[: len(validations) - undone], self.settings.average.best_checkpoints)

    def _needed_steps(self) -> set[int]:
        """Steps of `_best`, and of the best validations at each checkpoint that training may be resumed from."""
        checkpoints = min(self.settings.checkpoints_kept + 1, len(self.state.validations))
        return {result.step for undone in range(checkpoints) for result in self._best(undone)}

    def _save_checkpoint(self, best: BestWeights | None) -> None:
        self._read_results()
        self._writer.finish()  # before the copy: two of them would be in memory
        self._begin_checkpoint(best)

    def _save_at_stop(self) -> None:
        """Saves the state before anything is uploaded: who asked for the end may kill the process in half a minute."""
        self._read_results()
        self._writer.wait_or_print()
        if self._writer.written != self.state.step:
            self._begin_checkpoint()
            self._writer.wait()
        self._writer.finish_or_print()

    def _begin_checkpoint(self, best: BestWeights | None = None) -> None:
        """All workers read the state, because reading a variable may need all of them; the chief's thread writes it."""
        arrays = self.module.state()
        if best is not None and self.state.validations[-1].weights == TRAINED:
            # The state has them too: one copy is enough.
            best = best._replace(arrays={name: arrays.get(name, array) for name, array in best.arrays.items()})
        if self.is_chief:
            # Both are copies: the next step changes neither.
            self._writer.begin(self.state.step, arrays, dataclasses.asdict(self.state), best)

    def _resume(self) -> None:
        # Weights, optimizer and progress as they were.
        newest = self.checkpoints.newest()
        if newest is not None:
            arrays, state = newest
            self.module.restore(arrays)
            self.state = TrainState.of(state)
            print_status(f"train: resuming from the checkpoint of step {self.state.step} of {self.total_steps}")

        # Workers that do not see the same checkpoints would train different models.
        workers, steps = devices.sum_over_workers(self.task.strategy, [1, self.state.step]).tolist()
        if steps != workers * self.state.step:
            raise WorkError(
                f"train: this worker starts at step {self.state.step} and other workers at different steps; all "
                f"workers must see the same {self.checkpoints.folder}"
            )

    def _print_plan(self) -> None:
        replicas = self.task.strategy.num_replicas_in_sync
        parameters = self.module.parameter_count
        trained = self.module.trained_count
        trains_a_part = self.settings.freeze or self.settings.lora.rank
        partial = f", {trained:,} of them trained ({trained / parameters:.1%})" if trains_a_part else ""
        print_status(
            f"train: {parameters:,} parameters{partial}, {self.batches.utterances:,} utterances, "
            f"{plural(self.settings.epochs, 'epoch')} of {plural(self.batches.steps, 'step')}"
            + (f", on {replicas} devices" if replicas > 1 else "")
        )
        if not self.task.dev.utterances:
            print_status(
                "train: the dataset has no dev split: the last weights are exported, and no average of them; nothing "
                "stops early"
            )

    def _result(self, stopped: bool) -> TrainResult:
        data_wait = self._data_wait()
        state = self.state
        if not state.validations:
            raise WorkError("train: training ended without a validation; this is a bug")

        best = self._best()[0]
        weights = {}
        if self.is_chief:
            weights = self.best_checkpoints.read(best.step)[0]

        # The mean of the best is scored on dev, and exported if it is better.
        if len(self._best()) > 1:
            average = self._average_best()
            self.module.load_weights(average)
            averaged, _ = self._score(f"mean of the {len(self._best())} best validations")
            if best_results([best, averaged])[0] is averaged:
                best = averaged
                weights = average if self.is_chief else {}

        counts = {
            "utterances": self.batches.utterances,
            "dev": self.task.dev.utterances,
            "infeasible": len(self.batches.infeasible) + len(self.task.dev.infeasible),
            "skipped_steps": len(state.skipped),
        }

        return TrainResult(weights, best, state, counts, stopped, data_wait)

    def _average_best(self) -> Arrays:
        """Mean of the weights of the best validations; the chief reads them, and sends it to the other workers."""
        if self.is_chief:
            average = mean_weights([self.best_checkpoints.read(result.step)[0] for result in self._best()])
        else:
            average = {name: np.zeros_like(array) for name, array in self.module.weights().items()}
        return {
            name: devices.sum_over_workers(self.task.strategy, array.ravel()).reshape(array.shape).astype(array.dtype)
            for name, array in average.items()
        }
