"""How a recogniser learns: CTC; and what it hears."""

from typing import Any

from components.speech.dataset import Dataset
from components.train.batches import Batch
from components.train.ctc import best_path, ctc_loss
from components.train.learner import Learner, Tensor
from components.train.models.deepspeech2 import DeepSpeech2
from components.train.recognition import front_end
from components.train.recognition.settings import RecognitionSettings


class RecognitionLearner(Learner):
    """Deep Speech 2 with its optimiser, on the devices of a strategy."""

    def __init__(self, settings: RecognitionSettings, dataset: Dataset, strategy: Any) -> None:
        self.alphabet = dataset.alphabet
        super().__init__(settings, strategy, lambda: [build(settings, dataset)])

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


def build(settings: RecognitionSettings, dataset: Dataset, *, portable: bool = False) -> DeepSpeech2:
    """The model for a dataset, with its initial weights.

    Raises:
      SettingsError: the exported model could not compute the dataset's features.
    """
    front_end.check(dataset.features)
    return DeepSpeech2(
        settings.model,
        mean=dataset.mean,
        deviation=dataset.deviation,
        classes=len(dataset.alphabet.symbols) + 1,
        seed=settings.seed,
        precision="float32" if portable else settings.precision,
        portable=portable,
    )
