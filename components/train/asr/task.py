"""ASR training: augmented examples, the CTC loss, and the word error rate on dev."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from voxline.components.train import devices
from voxline.components.train.asr import frontend
from voxline.components.train.asr.augmentation import Augmentation
from voxline.components.train.asr.export import export_asr
from voxline.components.train.asr.models import build_ctc_model
from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.batches import Batch, Batches
from voxline.components.train.checkpoints import Arrays
from voxline.components.train.ctc import best_path, ctc_loss
from voxline.components.train.task import Samples, TrainingTask, ValidationOutput, evenly_spaced
from voxline.components.train.train_module import BatchTensors, Tensor, TrainModule
from voxline.data.dataset import Dataset
from voxline.metrics.wer import count_word_edits, sum_edits

LOGGED_TRANSCRIPTS = 5
"""Transcripts of dev that each validation logs."""


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """The greedy transcript of one row of a batch, and its CTC loss in nats."""

    row: int
    text: str
    loss: float


class AsrTrainModule(TrainModule):
    """A CTC model with its optimizer.

    Raises:
      SettingsError: the exported model could not compute the dataset's features.
    """

    def __init__(self, settings: AsrTrainSettings, dataset: Dataset, strategy: Any) -> None:
        self.alphabet = dataset.alphabet
        frontend.check_exportable(dataset.features)
        super().__init__(
            settings,
            strategy,
            lambda: [build_ctc_model(settings.model, dataset, seed=settings.seed, precision=settings.precision)],
        )

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The CTC loss, in nats."""
        logits, frames = self.model(batch.features, batch.frames, training=True, noise=noise)
        return {"ctc": ctc_loss(logits, frames, batch.labels, batch.counts)}

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Greedy path int32 [rows, frames] and loss float32 [rows]."""
        logits, frames = self.model(batch.features, batch.frames)
        return {"path": best_path(logits, frames), "loss": ctc_loss(logits, frames, batch.labels, batch.counts)}

    def transcribe(self, batch: Batch) -> list[Hypothesis]:
        """The rows of the batch that this worker's devices evaluated."""
        return [
            Hypothesis(row, self.alphabet.decode(out["path"][out["path"] >= 0].tolist()), float(out["loss"]))
            for row, out in self.run_eval(batch)
        ]


class AsrTask(TrainingTask):
    """Scores a validation by the WER; the loss breaks ties."""

    settings: AsrTrainSettings
    module: AsrTrainModule
    dev: Batches

    def build_batches(self) -> tuple[Batches, Batches]:
        settings, dataset = self.settings, self.dataset
        mean, deviation = np.array(dataset.mean, np.float32), np.array(dataset.deviation, np.float32)
        shared: dict[str, Any] = {
            "batch_size": settings.batch_size,
            "time_stride": settings.model.time_stride,
            "padding": settings.model.padding,
        }
        train = Batches(
            dataset,
            "train",
            seed=settings.seed,
            shuffled=True,
            length_noise=settings.length_noise,
            shortest_first=settings.shortest_first,
            augment=Augmentation(settings.augment, dataset.features, mean, deviation),
            **shared,
        )
        return train, Batches(dataset, "dev", **shared)

    def build_module(self) -> AsrTrainModule:
        return AsrTrainModule(self.settings, self.dataset, self.strategy)

    @property
    def infeasible_advice(self) -> str:
        return self.settings.model.infeasible_advice

    def validate(self, step: int) -> ValidationOutput:
        """WER and mean loss over all of dev, and some transcripts."""
        ids, references, hypotheses, losses = [], [], [], []
        for batch in self.dev.epoch(0):
            for hypothesis in self.module.transcribe(batch):
                ids.append(batch.ids[hypothesis.row])
                references.append(batch.texts[hypothesis.row])
                hypotheses.append(" ".join(hypothesis.text.split()))
                losses.append(hypothesis.loss)
        edits = sum_edits(count_word_edits(references, hypotheses))
        sums = [edits.errors, edits.length, math.fsum(losses), len(losses)]
        errors, words, loss, count = devices.sum_over_workers(self.strategy, sums).tolist()
        wer, loss = errors / max(words, 1), loss / count
        lines = ["| utterance | reference | hypothesis |", "| --- | --- | --- |"]
        for index in evenly_spaced(len(ids), LOGGED_TRANSCRIPTS):
            lines.append(f"| {ids[index]} | {references[index]} | {hypotheses[index]} |")
        samples = Samples(texts={"transcripts": "\n".join(lines)})
        return ValidationOutput((wer, loss), {"wer": wer, "loss": loss}, samples)

    def describe(self, metrics: dict[str, float]) -> str:
        return f"dev WER {metrics['wer']:.2%}, dev loss {metrics['loss']:.3f}"

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        export_asr(folder, self.settings, self.dataset, weights, training)
