"""Teaches a recogniser: perturbed examples to learn from, word error rate on dev to choose by."""

import math
from typing import Any

import numpy as np

from voxline.components.train import devices
from voxline.components.train.asr import frontend
from voxline.components.train.asr.augmentation import Augmentation
from voxline.components.train.asr.settings import AsrTrainSettings
from voxline.components.train.batches import Batch, Batches
from voxline.components.train.ctc import best_path, ctc_loss
from voxline.components.train.models.deepspeech2 import DeepSpeech2
from voxline.components.train.task import TrainingTask, ValidationOutput, evenly_spaced
from voxline.components.train.train_module import Tensor, TrainModule
from voxline.components.train.validation import Samples, ValidationResult
from voxline.data.dataset import Dataset
from voxline.metrics.wer import count_word_edits
from voxline.metrics.wer import sum_edits as all_edits


class AsrTrainModule(TrainModule):
    """Deep Speech 2 with its optimiser, on the devices of a strategy."""

    def __init__(self, settings: AsrTrainSettings, dataset: Dataset, strategy: Any) -> None:
        self.alphabet = dataset.alphabet
        super().__init__(settings, strategy, lambda: [build_ctc_model(settings, dataset)])

    def losses(
        self, batch: tuple[Tensor, ...], noise: Tensor, dials: dict[str, Tensor], shape: Any
    ) -> dict[str, Tensor]:
        """CTC's, in nats."""
        features, frames, labels, counts = batch
        logits, out = self.model(features, frames, training=True, noise=noise)
        return {"ctc": ctc_loss(logits, out, labels, counts)}

    def examine(self, batch: tuple[Tensor, ...], shape: Any) -> tuple[Tensor, ...]:
        """Greedy path and loss."""
        features, frames, labels, counts = batch
        logits, out = self.model(features, frames)
        return best_path(logits, out), ctc_loss(logits, out, labels, counts)

    def recognise(self, batch: Batch) -> list[tuple[int, str, float]]:
        """Row, text and loss of each row of the batch that falls to this worker's devices."""
        return [
            (row, self.alphabet.decode(path[path >= 0].tolist()), float(loss))
            for row, path, loss in self.examined(batch)
        ]


def build_ctc_model(settings: AsrTrainSettings, dataset: Dataset, *, portable: bool = False) -> DeepSpeech2:
    """The model for a dataset, with its initial weights.

    Raises:
      SettingsError: the exported model could not compute the dataset's features.
    """
    frontend.check_exportable(dataset.features)
    return DeepSpeech2(
        settings.model,
        mean=dataset.mean,
        deviation=dataset.deviation,
        classes=len(dataset.alphabet.symbols) + 1,
        seed=settings.seed,
        precision="float32" if portable else settings.precision,
        portable=portable,
    )


LOGGED_TRANSCRIPTS = 5
"""Transcripts of dev that are logged at each look."""


class AsrTask(TrainingTask):
    """See `TrainingTask`; a look's score is the WER, and the loss where that is equal."""

    settings: AsrTrainSettings
    learner: AsrTrainModule

    def batches(self, dataset: Dataset) -> tuple[Batches, Batches]:
        settings = self.settings
        mean, deviation = np.array(dataset.mean, np.float32), np.array(dataset.deviation, np.float32)
        train = Batches(
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
        dev = Batches(
            dataset,
            "dev",
            batch_size=settings.batch_size,
            time_stride=settings.time_stride,
            padding=settings.model.padding,
        )
        return train, dev

    def make_learner(self, dataset: Dataset) -> AsrTrainModule:
        return AsrTrainModule(self.settings, dataset, self.strategy)

    @property
    def advice(self) -> str:
        return "Lower the strides over frames in train.model.convolutions, or extract.features.hop_seconds"

    def look(self, step: int) -> ValidationOutput:
        """WER and mean loss over all of dev, and some transcripts."""
        references, hypotheses, names, losses = [], [], [], []
        for batch in self.dev.epoch(0):
            for row, text, loss in self.learner.recognise(batch):
                references.append(batch.texts[row])
                hypotheses.append(" ".join(text.split()))
                names.append(batch.ids[row])
                losses.append(loss)
        edits = all_edits(count_word_edits(references, hypotheses))
        numbers = [edits.errors, edits.length, math.fsum(losses), len(losses)]
        errors, words, loss, count = devices.sum_over_workers(self.strategy, numbers).tolist()
        wer, loss = errors / max(words, 1), loss / count
        lines = ["| utterance | said | recognised |", "| --- | --- | --- |"]
        lines += [
            f"| {names[i]} | {references[i]} | {hypotheses[i]} |" for i in evenly_spaced(len(names), LOGGED_TRANSCRIPTS)
        ]
        return ValidationOutput(
            (wer, loss), {"wer": wer, "loss": loss}, Samples(texts={"transcripts": "\n".join(lines)})
        )

    def told(self, look: ValidationResult) -> str:
        return f"dev WER {look.figures['wer']:.2%}, dev loss {look.figures['loss']:.3f}"
