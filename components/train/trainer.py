"""The train loop: epochs, looks at dev, checkpoints, and going on from one after a kill."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.components.train import devices
from voxline.components.train.batches import Batch
from voxline.components.train.checkpoints import Arrays, Checkpoints
from voxline.components.train.optimizer import learning_rate
from voxline.components.train.task import TrainingTask, shorten_list
from voxline.components.train.train_module import StepResult
from voxline.components.train.validation import Samples, ValidationResult, best_result, should_stop_early
from voxline.errors import WorkError
from voxline.progress import Progress, print_status
from voxline.store.files import write_json

CURVES_FILE = "curves.json"


class TrainingLogger:
    """Writes the logs of a run.

    Args:
      active: False on workers other than the chief; nothing is written then.
    """

    def __init__(self, folder: Path, *, active: bool = True) -> None:
        self.folder = folder
        self._writer: Any = tf.summary.create_file_writer(str(folder)) if active else tf.summary.create_noop_writer()

    def step(self, step: int, values: dict[str, float]) -> None:
        """One point of the training curves, by name."""
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"train/{name}", value)

    def look(self, look: ValidationResult, samples: Samples) -> None:
        """One look at dev, with what is to be seen and heard of it."""
        with self._writer.as_default(step=look.step):
            for name, value in look.figures.items():
                tf.summary.scalar(f"dev/{name}", value)
            for name, text in samples.texts.items():
                tf.summary.text(f"dev/{name}", text)
            for name, image in samples.images.items():
                tf.summary.image(f"dev/{name}", image[None])
            for name, audio in samples.audio.items():
                tf.summary.audio(f"dev/{name}", audio[None, :, None], samples.sample_rate)
        self._writer.flush()

    def curves(self, train: list[dict[str, float]], looks: list[ValidationResult]) -> None:
        dev = [{"epoch": look.epoch, "step": look.step, **look.figures} for look in looks if look.score is not None]
        write_json(self.folder / CURVES_FILE, {"train": train, "dev": dev})


@dataclasses.dataclass
class TrainState:
    """Where training stands: all that a checkpoint keeps beside the weights.

    Attributes:
      epoch, batch: the batch that comes next.
      step: steps done.
      bad: ids of the utterances in each batch whose step was not accepted.
      curve: points of the training curves.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    looks: list[ValidationResult] = dataclasses.field(default_factory=list)
    bad: list[list[str]] = dataclasses.field(default_factory=list)
    curve: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "TrainState":
        return cls(**{**values, "looks": [ValidationResult.of(look) for look in values["looks"]]})


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What came out of training.

    Attributes:
      weights: those of the best look; only the chief has them.
      best: the look that they are from.
      counts: utterances that were trained on, and left out.
    """

    weights: Arrays
    best: ValidationResult
    standing: TrainState
    counts: dict[str, int]
    stopped_early: bool


def fit(teacher: TrainingTask, folder: Path, kept: Callable[[], None] = lambda: None) -> TrainResult:
    """Trains a model, or goes on where a killed run in the same folder left off.

    Args:
      folder: gets `checkpoints/`, `best/` and `logs/`; all workers must find the same checkpoints there.
      kept: called by the chief after each checkpoint, so that it may be sent to where another machine finds it.

    Raises:
      WorkError: too many steps were not finite.
    """
    return Trainer(teacher, folder, kept).fit()


class Trainer:
    def __init__(self, teacher: TrainingTask, folder: Path, kept: Callable[[], None]) -> None:
        self.kept = kept
        self.teacher, self.settings, self.chief = teacher, teacher.settings, devices.is_chief()
        self.train, self.learner = teacher.train, teacher.learner
        self.steps = self.settings.epochs * self.train.steps
        self.checkpoints = Checkpoints(folder / "checkpoints", self.settings.checkpoints_kept)
        self.bests = Checkpoints(folder / "best", self.settings.checkpoints_kept + 1)
        self.watch = TrainingLogger(folder / "logs", active=self.chief)
        self.standing = TrainState()

    def fit(self) -> TrainResult:
        settings = self.settings
        self._resume()
        standing = self.standing
        self._announce()
        progress = Progress("utterances", (self.steps - standing.step) * settings.batch_size)
        stopped = should_stop_early(settings, standing.looks)
        while standing.epoch < settings.epochs and not stopped:
            for batch in self.train.epoch(standing.epoch, standing.batch):
                at = f"epoch {standing.epoch + 1} of {settings.epochs}"
                step = self._learn(batch)
                progress.advance(len(batch.ids), f"{at}, step {standing.step}, loss {step.loss:.2f}")
                ended = standing.batch == self.train.steps
                if ended:
                    standing.epoch, standing.batch = standing.epoch + 1, 0
                if look := self._look_due(ended):
                    self._look()
                    stopped = should_stop_early(settings, standing.looks)
                if look or ended or standing.step % settings.checkpoint_steps == 0:
                    self._save()
                if stopped:
                    break
        return self._trained(stopped)

    def _look_due(self, epoch_ended: bool) -> bool:
        standing, settings = self.standing, self.settings
        if standing.step == self.steps:
            return True
        if settings.evaluate_steps:
            return standing.step % settings.evaluate_steps == 0
        return epoch_ended and standing.epoch % settings.evaluate_epochs == 0

    def _learn(self, batch: Batch) -> StepResult:
        standing, settings = self.standing, self.settings
        rate = learning_rate(settings, standing.step, self.steps)
        step = self.learner.learn(batch, rate, standing.step)
        standing.step += 1
        standing.batch += 1
        if not step.accepted:
            self._skipped(batch)
        elif standing.step % settings.summary_steps == 0:
            parts = step.parts if len(step.parts) > 1 else {}
            point = {"loss": step.loss, "learning_rate": rate, "gradient_norm": step.norm, **parts}
            standing.curve.append({"step": standing.step, **point})
            self.watch.step(standing.step, point)
        return step

    def _skipped(self, batch: Batch) -> None:
        """A step that was not accepted: the weights are as before; too many of them stop the run."""
        standing, limit = self.standing, self.settings.max_bad_steps
        broken = [name for name, row in zip(batch.ids, batch.features, strict=True) if not np.isfinite(row).all()]
        named = broken or batch.ids
        standing.bad.append(named)
        print_status(f"train: step {standing.step} skipped, its loss or gradient is not finite ({shorten_list(named)})")
        if len(standing.bad) > limit:
            everyone = list(dict.fromkeys(name for names in standing.bad for name in names))
            raise WorkError(
                f"train: {len(standing.bad)} steps had a loss or gradient that is not finite, at most {limit} are "
                f"accepted (train.max_bad_steps); the utterances in them: {shorten_list(everyone)}. Check their audio "
                f"and features, or lower train.learning_rate ({self.settings.learning_rate:g})"
            )

    def _look(self) -> None:
        """Looks at dev; where it is the best so far, the weights are kept."""
        standing, look, samples = (
            self.standing,
            ValidationResult(self.standing.epoch, self.standing.step, None),
            Samples(),
        )
        if self.teacher.dev.utterances:
            seen = self.teacher.look(standing.step)
            look, samples = dataclasses.replace(look, score=seen.score, figures=seen.figures), seen.samples
            at = f"step {look.step} of {self.steps}" if self.settings.evaluate_steps else ""
            at = at or f"epoch {look.epoch} of {self.settings.epochs}"
            print_status(f"train: {at}, {self.teacher.told(look)}")
        standing.looks.append(look)
        if self.chief:
            self.watch.look(look, samples)
            self.watch.curves(standing.curve, standing.looks)
            if best_result(standing.looks) == look:
                self.bests.write(standing.step, self.learner.weights(), {})

    def _save(self) -> None:
        """On every worker, since reading a variable may take all of them; the chief writes."""
        arrays = self.learner.state()
        if self.chief:
            self.checkpoints.write(self.standing.step, arrays, dataclasses.asdict(self.standing))
            self.kept()

    def _resume(self) -> None:
        found = self.checkpoints.newest()
        if found is not None:
            arrays, state = found
            self.learner.restore(arrays)
            self.standing = TrainState.of(state)
            print_status(f"train: going on from the checkpoint of step {self.standing.step} of {self.steps}")
        workers, steps = devices.sum_over_workers(self.teacher.strategy, [1, self.standing.step]).tolist()
        if steps != workers * self.standing.step:
            raise WorkError(
                f"train: this worker begins at step {self.standing.step} and others elsewhere; all of them must see "
                f"the same {self.checkpoints.folder}"
            )

    def _announce(self) -> None:
        replicas = self.teacher.strategy.num_replicas_in_sync
        print_status(
            f"train: {self.learner.parameters:,} parameters, {self.train.utterances:,} utterances, "
            f"{self.settings.epochs} epochs of {self.train.steps:,} steps"
            + (f", on {replicas} devices" if replicas > 1 else "")
        )
        if not self.teacher.dev.utterances:
            print_status(
                "train: the dataset has no dev split, so the last weights count as the best and nothing stops early"
            )

    def _trained(self, stopped: bool) -> TrainResult:
        standing = self.standing
        found = best_result(standing.looks)
        if found is None:
            raise WorkError("train: no look at dev was taken; this is a bug")
        weights = self.bests.read(found.step)[0] if self.chief else {}
        counts = {
            "utterances": self.train.utterances,
            "dev": self.teacher.dev.utterances,
            "left_out": len(self.train.infeasible) + len(self.teacher.dev.infeasible),
            "skipped_steps": len(standing.bad),
        }
        return TrainResult(weights, found, standing, counts, stopped)
