"""The train loop: epochs, looks at dev, checkpoints, and going on from one after a kill."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from components.speech.dataset import Dataset
from components.speech.errors import WorkError
from components.speech.progress import Progress, say
from components.speech.scoring import total as all_edits
from components.speech.scoring import word_edits
from components.train import devices
from components.train.batches import Batch, Batches
from components.train.checkpoints import Arrays, Checkpoints
from components.train.recognition.augment import Augmentation
from components.train.recognition.learner import Learner, Step
from components.train.recognition.settings import RecognitionSettings
from components.train.schedule import Look, best, learning_rate, stops_early
from components.train.watch import Watch

SAMPLES = 5
"""Transcripts of dev that are logged at each look."""
NAMED = 20
"""Utterances that a message names."""


@dataclasses.dataclass
class Standing:
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
    looks: list[Look] = dataclasses.field(default_factory=list)
    bad: list[list[str]] = dataclasses.field(default_factory=list)
    curve: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Standing":
        return cls(**{**values, "looks": [Look(**look) for look in values["looks"]]})


@dataclasses.dataclass(frozen=True)
class Trained:
    """What came out of training.

    Attributes:
      weights: those of the best look; only the chief has them.
      best: the look that they are from.
      counts: utterances that were trained on, and left out.
    """

    weights: Arrays
    best: Look
    standing: Standing
    counts: dict[str, int]
    stopped_early: bool


def fit(settings: RecognitionSettings, dataset: Dataset, folder: Path) -> Trained:
    """Trains on a dataset, or goes on where a killed run in the same folder left off.

    Args:
      folder: gets `checkpoints/`, `best/` and `logs/`; all workers must see the same one.

    Raises:
      WorkError: too many steps were not finite, or too many utterances cannot be aligned to their labels.
    """
    return _Run(settings, dataset, folder).fit()


class _Run:
    def __init__(self, settings: RecognitionSettings, dataset: Dataset, folder: Path) -> None:
        self.settings, self.chief = settings, devices.is_chief()
        self.strategy = devices.choose(settings.strategy)
        mean, deviation = np.array(dataset.mean, np.float32), np.array(dataset.deviation, np.float32)
        self.train = Batches(
            dataset,
            "train",
            batch_size=settings.batch_size,
            time_stride=settings.time_stride,
            padding=settings.model.padding,
            seed=settings.seed,
            shuffled=True,
            length_noise=settings.length_noise,
            shortest_first=settings.shortest_first,
            perturb=Augmentation(settings.augment, dataset.features, mean, deviation),
        )
        self.dev = Batches(
            dataset,
            "dev",
            batch_size=settings.batch_size,
            time_stride=settings.time_stride,
            padding=settings.model.padding,
        )
        self._check_feasible(self.train)
        self._check_feasible(self.dev)
        if not self.train.utterances:
            raise WorkError(f"{dataset.folder}: no utterance to train on; check the splits that ingest made")
        self.steps = settings.epochs * self.train.steps
        self.learner = Learner(settings, dataset, self.strategy)
        self.checkpoints = Checkpoints(folder / "checkpoints", settings.checkpoints_kept)
        self.bests = Checkpoints(folder / "best", settings.checkpoints_kept + 1)
        self.watch = Watch(folder / "logs", active=self.chief)
        self.standing = Standing()

    def fit(self) -> Trained:
        settings = self.settings
        self._resume()
        standing = self.standing
        self._announce()
        progress = Progress("utterances", (self.steps - standing.step) * settings.batch_size)
        stopped = stops_early(settings, standing.looks)
        while standing.epoch < settings.epochs and not stopped:
            for batch in self.train.epoch(standing.epoch, standing.batch):
                step = self._learn(batch)
                note = f"epoch {standing.epoch + 1} of {settings.epochs}, step {standing.step}, loss {step.loss:.2f}"
                progress.advance(len(batch.ids), note)
                if standing.step % settings.checkpoint_steps == 0 and standing.batch < self.train.steps:
                    self._save()
            standing.epoch, standing.batch = standing.epoch + 1, 0
            if standing.epoch % settings.evaluate_epochs == 0 or standing.epoch == settings.epochs:
                self._look()
                stopped = stops_early(settings, standing.looks)
            self._save()
        return self._trained(stopped)

    def _learn(self, batch: Batch) -> Step:
        standing, settings = self.standing, self.settings
        rate = learning_rate(settings, standing.step, self.steps)
        step = self.learner.learn(batch, rate, standing.step)
        standing.step += 1
        standing.batch += 1
        if not step.accepted:
            self._skipped(batch)
        elif standing.step % settings.summary_steps == 0:
            point = {"loss": step.loss, "learning_rate": rate, "gradient_norm": step.norm}
            standing.curve.append({"step": standing.step, **point})
            self.watch.step(standing.step, point)
        return step

    def _skipped(self, batch: Batch) -> None:
        """A step that was not accepted: the weights are as before; too many of them stop the run."""
        standing, limit = self.standing, self.settings.max_bad_steps
        broken = [name for name, row in zip(batch.ids, batch.features, strict=True) if not np.isfinite(row).all()]
        named = broken or batch.ids
        standing.bad.append(named)
        say(f"train: step {standing.step} skipped, its loss or gradient is not finite ({_some(named)})")
        if len(standing.bad) > limit:
            everyone = list(dict.fromkeys(name for names in standing.bad for name in names))
            raise WorkError(
                f"train: {len(standing.bad)} steps had a loss or gradient that is not finite, at most {limit} are "
                f"accepted (train.max_bad_steps); the utterances in them: {_some(everyone)}. Look at their audio and "
                f"features, or lower train.learning_rate ({self.settings.learning_rate:g})"
            )

    def _look(self) -> None:
        """Looks at dev; where it is the best so far, the weights are kept."""
        standing = self.standing
        if self.dev.utterances:
            wer, loss, samples = self._listen()
            look = Look(standing.epoch, standing.step, wer, loss)
            say(f"train: epoch {standing.epoch} of {self.settings.epochs}, dev WER {wer:.2%}, dev loss {loss:.3f}")
        else:
            look, samples = Look(standing.epoch, standing.step, None, None), []
        standing.looks.append(look)
        if self.chief:
            self.watch.look(look, samples)
            self.watch.curves(standing.curve, standing.looks)
            if best(standing.looks) == look:
                self.bests.write(standing.step, self.learner.weights(), {})

    def _listen(self) -> tuple[float, float, list[tuple[str, str, str]]]:
        """WER and mean loss over all of dev, and some transcripts."""
        references, hypotheses, names, losses = [], [], [], []
        for batch in self.dev.epoch(0):
            for row, text, loss in self.learner.recognise(batch):
                references.append(batch.texts[row])
                hypotheses.append(" ".join(text.split()))
                names.append(batch.ids[row])
                losses.append(loss)
        edits = all_edits(word_edits(references, hypotheses))
        numbers = [edits.errors, edits.length, math.fsum(losses), len(losses)]
        errors, words, loss, count = devices.total(self.strategy, numbers).tolist()
        spread = range(0, len(names), max(len(names) // SAMPLES, 1))
        samples = [(names[index], references[index], hypotheses[index]) for index in spread][:SAMPLES]
        return errors / max(words, 1), loss / count, samples

    def _save(self) -> None:
        """On every worker, since reading a variable may take all of them; the chief writes."""
        arrays = self.learner.state()
        if self.chief:
            self.checkpoints.write(self.standing.step, arrays, dataclasses.asdict(self.standing))

    def _resume(self) -> None:
        found = self.checkpoints.newest()
        if found is not None:
            arrays, state = found
            self.learner.restore(arrays)
            self.standing = Standing.of(state)
            say(f"train: going on from the checkpoint of step {self.standing.step} of {self.steps}")
        workers, steps = devices.total(self.strategy, [1, self.standing.step]).tolist()
        if steps != workers * self.standing.step:
            raise WorkError(
                f"train: this worker begins at step {self.standing.step} and others elsewhere; all of them must see "
                f"the same {self.checkpoints.folder}"
            )

    def _announce(self) -> None:
        replicas = self.strategy.num_replicas_in_sync
        say(
            f"train: {self.learner.model.count_params():,} parameters, {self.train.utterances:,} utterances, "
            f"{self.settings.epochs} epochs of {self.train.steps:,} steps"
            + (f", on {replicas} devices" if replicas > 1 else "")
        )
        if not self.dev.utterances:
            say("train: the dataset has no dev split, so the last weights count as the best and nothing stops early")

    def _check_feasible(self, batches: Batches) -> None:
        left_out, everyone = batches.infeasible, len(batches.infeasible) + batches.utterances
        if not left_out:
            return
        stride = self.settings.time_stride
        what = f"{len(left_out):,} of {everyone:,} utterances have too few frames for their labels at stride {stride}"
        if len(left_out) > self.settings.max_infeasible_share * everyone:
            raise WorkError(
                f"train: {what}, at most {self.settings.max_infeasible_share:.1%} are accepted "
                f"(train.max_infeasible_share): {_some(left_out)}. Lower the strides over frames in "
                "train.model.convolutions, or extract.features.hop_seconds"
            )
        say(f"train: {what} and are left out: {_some(left_out)}")

    def _trained(self, stopped: bool) -> Trained:
        standing = self.standing
        found = best(standing.looks)
        if found is None:
            raise WorkError("train: no look at dev was taken; this is a bug")
        weights = self.bests.read(found.step)[0] if self.chief else {}
        counts = {
            "utterances": self.train.utterances,
            "dev": self.dev.utterances,
            "left_out": len(self.train.infeasible) + len(self.dev.infeasible),
            "skipped_steps": len(standing.bad),
        }
        return Trained(weights, found, standing, counts, stopped)


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
