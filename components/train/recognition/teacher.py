"""Teaches a recogniser: perturbed examples to learn from, word error rate on dev to choose by."""

import math

import numpy as np

from components.speech.dataset import Dataset
from components.speech.scoring import total as all_edits
from components.speech.scoring import word_edits
from components.train import devices
from components.train.batches import Batches
from components.train.looks import Look, Samples
from components.train.recognition.augment import Augmentation
from components.train.recognition.learner import RecognitionLearner
from components.train.recognition.settings import RecognitionSettings
from components.train.teacher import Seen, Teacher, spread

SAMPLES = 5
"""Transcripts of dev that are logged at each look."""


class RecognitionTeacher(Teacher):
    """See `Teacher`; a look's score is the WER, and the loss where that is equal."""

    settings: RecognitionSettings
    learner: RecognitionLearner

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

    def make_learner(self, dataset: Dataset) -> RecognitionLearner:
        return RecognitionLearner(self.settings, dataset, self.strategy)

    @property
    def advice(self) -> str:
        return "Lower the strides over frames in train.model.convolutions, or extract.features.hop_seconds"

    def look(self, step: int) -> Seen:
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
        wer, loss = errors / max(words, 1), loss / count
        lines = ["| utterance | said | recognised |", "| --- | --- | --- |"]
        lines += [f"| {names[i]} | {references[i]} | {hypotheses[i]} |" for i in spread(len(names), SAMPLES)]
        return Seen((wer, loss), {"wer": wer, "loss": loss}, Samples(texts={"transcripts": "\n".join(lines)}))

    def told(self, look: Look) -> str:
        return f"dev WER {look.figures['wer']:.2%}, dev loss {look.figures['loss']:.3f}"
