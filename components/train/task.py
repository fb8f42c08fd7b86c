"""What a family of models gives the train loop: what it learns from, what learns, and what a look at dev sees."""

import abc
import dataclasses

from voxline.components.train import devices
from voxline.components.train.batches import Batches
from voxline.components.train.settings import TrainSettings
from voxline.components.train.train_module import TrainModule
from voxline.components.train.validation import Samples, ValidationResult
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.progress import print_status

MAX_LISTED = 20
"""Utterances that a message names."""


@dataclasses.dataclass(frozen=True)
class ValidationOutput:
    """What a look at dev sees; as `ValidationResult`, and samples of it."""

    score: tuple[float, ...]
    figures: dict[str, float]
    samples: Samples


class TrainingTask(abc.ABC):
    """Teaches one model from one dataset.

    Attributes:
      strategy: of `tf.distribute`: the devices.
      train, dev: the batches of both splits; dev may be empty.
      learner: the model and its optimiser.

    Raises:
      WorkError: there is nothing to learn from, or too much of it cannot be learnt.
    """

    train: Batches
    dev: Batches
    learner: TrainModule

    def __init__(self, settings: TrainSettings, dataset: Dataset) -> None:
        self.settings = settings
        self.strategy = devices.choose_strategy(settings.strategy)
        self.train, self.dev = self.batches(dataset)
        self._check_feasible(self.train)
        self._check_feasible(self.dev)
        if not self.train.utterances:
            raise WorkError(f"{dataset.folder}: no utterance to train on; check the splits that ingest made")
        self.learner = self.make_learner(dataset)

    @abc.abstractmethod
    def batches(self, dataset: Dataset) -> tuple[Batches, Batches]:
        """The batches of the training split and of dev."""

    @abc.abstractmethod
    def make_learner(self, dataset: Dataset) -> TrainModule:
        """The model with its optimiser, on the devices of `strategy`."""

    @abc.abstractmethod
    def look(self, step: int) -> ValidationOutput:
        """Looks at dev with the present weights, after so many steps; every worker calls it, and sees the same."""

    @abc.abstractmethod
    def told(self, look: ValidationResult) -> str:
        """A look in words, for the person who waits."""

    @property
    @abc.abstractmethod
    def advice(self) -> str:
        """What to change where utterances have too few frames for their labels, and why they need more."""

    def _check_feasible(self, batches: Batches) -> None:
        left_out, everyone = batches.infeasible, len(batches.infeasible) + batches.utterances
        if not left_out:
            return
        stride = batches.time_stride
        what = f"{len(left_out):,} of {everyone:,} utterances have too few frames for their labels at stride {stride}"
        if len(left_out) > self.settings.max_infeasible_share * everyone:
            raise WorkError(
                f"train: {what}, at most {self.settings.max_infeasible_share:.1%} are accepted "
                f"(train.max_infeasible_share): {shorten_list(left_out)}. {self.advice}"
            )
        print_status(f"train: {what} and are left out: {shorten_list(left_out)}")


def shorten_list(names: list[str]) -> str:
    """The first of the names, and how many more there are."""
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """As many indices as wanted, evenly spread.

    >>> evenly_spaced(10, 4), evenly_spaced(2, 4)
    ([0, 2, 4, 6], [0, 1])
    """
    return list(range(0, count, max(count // wanted, 1)))[:wanted]
