"""The interface between the trainer and a model family: what to train on, what trains, and how dev is scored."""

import abc
import contextlib
import dataclasses
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import ModelInfo
from voxline.progress import print_status
from voxline.training import devices
from voxline.training.averaging import TRAINED
from voxline.training.batches import Batch
from voxline.training.checkpoints import Arrays
from voxline.training.parts import TrainedParts
from voxline.training.settings import StopSettings, TrainSettings
from voxline.training.step_result import StepResult

MAX_LISTED = 20
"""Utterance ids in one message."""
LOSS = "loss"
"""The metric of a validation that a family with a loss on dev reports."""


@dataclasses.dataclass(frozen=True)
class ValidationResult:
    """The result of one pass over the dev split.

    Attributes:
      epoch: completed epochs.
      step: completed steps.
      score: ranks the weights, lower is better; later numbers break ties. None without a dev split.
      metrics: for people to read, by name.
      weights: which ones were scored: the trained ones, or an average.
    """

    epoch: int
    step: int
    score: tuple[float, ...] | None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    weights: str = TRAINED

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ValidationResult":
        """Reads a result from JSON, which has no tuples."""
        return cls(**{**values, "score": None if values["score"] is None else tuple(values["score"])})

    @property
    def loss(self) -> float:
        """The mean dev loss; of a family without one, its score."""
        if LOSS in self.metrics:
            return self.metrics[LOSS]
        return self.score[0] if self.score else math.nan


@dataclasses.dataclass(frozen=True)
class Samples:
    """Examples of the model's output for TensorBoard, by name.

    Attributes:
      texts: Markdown.
      images: uint8 [height, width, 3].
      audio: float32 [samples], in [-1, 1], at `sample_rate`.
    """

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    images: dict[str, npt.NDArray[np.uint8]] = dataclasses.field(default_factory=dict)
    audio: dict[str, npt.NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    sample_rate: int = 0


@dataclasses.dataclass(frozen=True)
class ValidationOutput:
    """Output of a pass over the dev split: score and metrics as in `ValidationResult`, and samples.

    Attributes:
      errors: of each utterance, by its id, where they can be counted and this worker has all of them.
    """

    score: tuple[float, ...]
    metrics: dict[str, float]
    samples: Samples
    errors: dict[str, float] = dataclasses.field(default_factory=dict)


class TrainBatches(Protocol):
    """The batches of one split; `batches.Batches` is the implementation for features and labels.

    Attributes:
      utterances, steps: utterances that are used, batches in an epoch.
      infeasible: ids of the utterances left out because they have too few frames for their labels.
      time_stride: feature frames per output frame, for the message about infeasible utterances.
      readers: threads that read ahead.
      waited: seconds that `epoch` has waited for them.
    """

    readers: int
    waited: float
    infeasible: list[str]
    time_stride: int

    @property
    def utterances(self) -> int: ...

    @property
    def steps(self) -> int: ...

    def steps_of(self, epoch: int) -> int:
        """Batches in an epoch."""

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from step `first` of it; the same in every process for the same arguments."""


SplitBatches = TypeVar("SplitBatches", bound=TrainBatches)


class Trainable(Protocol):
    """Interface of a model with its optimizers; `TrainModule` is the implementation for one optimizer."""

    parts: TrainedParts
    while_tracing: Callable[[], contextlib.AbstractContextManager[None]]

    @property
    def parameter_count(self) -> int: ...

    @property
    def trained_count(self) -> int:
        """Parameters that are not frozen."""

    def train_head_first(self, names: Collection[str], steps: int) -> None:
        """Trains the weights of some names alone in the first steps; called before them."""

    def train_step(self, batch: Batch, rate: float, step: int) -> StepResult:
        """Runs one step; the result depends on the state, the batch and `step` alone."""

    def weights(self) -> Arrays:
        """The weights of the exported model."""

    def weight_names(self) -> list[str]:
        """The names of `weights`, in their order, by which a later model takes them over (`warm_start`)."""

    def load_weights(self, arrays: Arrays) -> None:
        """Sets what `weights` returns."""

    def start_with(self, arrays: Arrays, random_names: Collection[str] = ()) -> None:
        """Sets the weights that training starts from, some of which no model gave."""

    def averaged_weights(self) -> Arrays | None:
        """The moving average of `weights` over the steps; None if `train.average.ema_decay` is 0."""

    def state(self) -> Arrays:
        """Copies of everything that a training step changes, including `weights`: a thread writes them to a file."""

    def restore(self, arrays: Arrays) -> None:
        """Restores what `state` returned."""

    def distributions(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Arrays by name, such as weights, of which each validation logs mean, deviation and histogram.

        One at a time is in memory, and the next step may change it.
        """


class TrainingTask(abc.ABC):
    """Trains one model of a family on one dataset.

    Attributes:
      strategy: the `tf.distribute` strategy: the devices.
      train, dev: batches of both splits; dev may be empty.
      module: the model with its optimizer.
      decoder_parts: parts of the network that `train.start.keep: encoder` does not take over.
      unused_parts: parts of a parent that the network does without, such as a decoder under another output layer.
      function_settings: those of `model` that change what weights of the same shapes compute: a parent must have the
        same.
      marks: rows behind those of the symbols, where `symbol_axis` is 0, that are no symbol of a text, such as its end.
      parent_model: the exported model whose weights it started from, if any.
      new_symbols: those of the alphabet that the model it started from does not have; set before `take_over`.
      counts_seconds: whether `train.batch_seconds` applies: its batches are of whole utterances.
      optimizes_graph: whether TensorFlow's optimizer of graphs makes up for its time on a CPU.

    Raises:
      SettingsError: the batch size or the strategy does not suit the devices.
      WorkError: the training split is empty, or too many utterances are infeasible.
    """

    decoder_parts: ClassVar[tuple[str, ...]] = ()
    unused_parts: ClassVar[tuple[str, ...]] = ()
    function_settings: ClassVar[tuple[str, ...]] = ()
    optimizes_graph: ClassVar[bool] = True
    counts_seconds: ClassVar[bool] = False
    marks: ClassVar[int] = 0
    parent_model: Path | None = None
    new_symbols: Sequence[str] = ()

    def __init__(self, settings: TrainSettings, dataset: Dataset) -> None:
        self.settings = settings
        self.dataset = dataset

        # Devices first: batches are divided among them.
        self.strategy = devices.choose_strategy(settings.strategy)
        devices.check_strategy(self.strategy, settings)
        if settings.batch_seconds and not self.counts_seconds:
            raise SettingsError(
                f"train.batch_seconds is {settings.batch_seconds:g}, and the family {settings.family!r} has no batches "
                "of whole utterances; set it to 0, and train.batch_size"
            )
        self.train, self.dev = self.build_batches()

        # Both splits are checked before the model is built, which takes longer.
        self._check_feasible(self.train)
        self._check_feasible(self.dev)
        if not self.train.utterances:
            raise WorkError(f"{dataset.folder}: no utterance to train on; check the splits that ingest made")
        self.module = self.build_module()

    @classmethod
    def prepare(cls, settings: TrainSettings, dataset: Dataset, parent: ModelInfo | None) -> Dataset:
        """Prepares the dataset for the family, such as with subwords in place of letters; by default unchanged.

        Args:
          parent: `model.json` of the model to start from; None: random weights.
        """
        return dataset

    def check_length(self) -> None:
        """Warns if fewer steps are planned than a model of the family needs; called before training.

        Raises:
          WorkError: the settings make that an error.
        """
        return

    def symbol_axis(self, name: str) -> int | None:
        """Axis of a weight that has an entry for each symbol: -1 with the blank as its last entry, 0 without a blank;
        None: the weight has no such axis.
        """
        return None

    @property
    def buckets(self) -> int:
        """Static shapes of the batches, for `Batches`; 0 where a step is not compiled."""
        settings = self.settings
        return settings.buckets if settings.xla or devices.is_tpu(self.strategy) else 0

    @property
    def head_steps(self) -> int:
        """First steps in which some weights rest; the rate warms up and decays in them, and again in the others."""
        return sum(map(self.train.steps_of, range(self.settings.start.head_epochs)))

    @property
    def resting_steps(self) -> int:
        """First steps that leave the exported model as it was: its validation would score the parent."""
        return 0

    @property
    def infeasible_reason(self) -> str:
        """Reason for which utterances are left out: too few frames for their labels."""
        return f"have too few frames for their labels at stride {self.train.time_stride}"

    def use_auxiliary_model(self, name: str, model: Path, folder: Path) -> None:
        """Lets the training learn from a model of another family, before its first step.

        Args:
          name: as in `Family.auxiliary_models`.
          model: the exported model's folder.
          folder: for what the model computes; it is removed when the training ends.
        """
        raise NotImplementedError(f"{type(self).__name__} learns from no other model, such as {name!r}")

    def adapt_weight(
        self, name: str, value: npt.NDArray[Any] | None, fresh: npt.NDArray[Any], parent: ModelInfo
    ) -> npt.NDArray[Any] | None:
        """A weight that is kept of a parent, as this network takes it; by default unchanged.

        Args:
          value: the parent's; None: it has none of this name.
          fresh: the random one in its place.
        """
        return value

    def take_over(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:  # noqa: B027 - most networks train alone
        """Takes what a parent has for auxiliary models; called once the exported network has its weights.

        Args:
          weights: all of the parent's, by name; those of `unused_parts` too.
        """

    def encode_frozen_parts(self, folder: Path) -> None:  # noqa: B027 - most families compute them in each step
        """Computes what frozen parts make of each utterance once; called before the first step, with all weights set.

        Args:
          folder: for the result; it is removed when the training ends.
        """

    @property
    @abc.abstractmethod
    def infeasible_advice(self) -> str:
        """Advice on the settings if utterances have too few frames for their labels."""

    @abc.abstractmethod
    def build_batches(self) -> tuple[TrainBatches, TrainBatches]:
        """The batches of the training split and of dev."""

    def batches_of_splits(
        self, kind: Callable[..., SplitBatches], of_train: dict[str, Any] | None = None, **of_both: Any
    ) -> tuple[SplitBatches, SplitBatches]:
        """Batches of train, in an order by the settings, and of dev; for `build_batches`.

        Args:
          kind: `Batches`, or a subclass of it.
          of_train, of_both: further arguments of it, for train alone and for both.
        """
        settings = self.settings

        # Arguments that follow from settings and devices; the family's own may replace them.
        of_both = {
            "share": devices.replica_share(self.strategy),
            "buckets": self.buckets,
            "readers": settings.readers,
            **of_both,
        }

        parts: dict[str, Any] = {}
        if settings.batch_seconds:
            of_both["batch_seconds"] = settings.batch_seconds
            parts["parts"] = settings.accumulate

        # Only train is shuffled, weighted and augmented; dev is the same in every epoch.
        train = kind(
            self.dataset,
            "train",
            seed=settings.seed,
            shuffled=True,
            length_noise=settings.length_noise,
            shortest_first=settings.shortest_first,
            corpus_weights=settings.corpus_weights,
            **{"batch_size": settings.step_size, **parts, **(of_train or {})},
            **of_both,
        )
        return train, kind(self.dataset, "dev", **{"batch_size": settings.batch_size, **of_both})

    @abc.abstractmethod
    def build_module(self) -> Trainable:
        """The model with its optimizer, on the devices of `strategy`."""

    @abc.abstractmethod
    def validate(self, step: int) -> ValidationOutput:
        """Scores dev with the weights after `step` steps; all workers call it and get the same result."""

    @abc.abstractmethod
    def describe(self, metrics: dict[str, float]) -> str:
        """The metrics of a validation in one line, for the console."""

    @abc.abstractmethod
    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        """Writes the exported model, whole or not at all.

        Args:
          weights: the best weights, as `Trainable.weights` returned them.
          training: what model.json says about the training: steps, best_step, metrics of the best validation, ….
        """

    def describe_data(self) -> str:
        """The dataset as Markdown, for the logs."""
        dataset = self.dataset

        # A table for TensorBoard.
        lines = ["| split | utterances | hours |", "| --- | --- | --- |"]
        for split, count in dataset.counts.items():
            lines.append(f"| {split} | {count:,} | {dataset.seconds.get(split, 0.0) / 3600:.2f} |")
        return "\n".join([*lines, "", f"Dataset {dataset.key}"])

    def _check_feasible(self, batches: TrainBatches) -> None:
        infeasible = batches.infeasible
        count = len(batches.infeasible) + batches.utterances
        if not infeasible:
            return

        # Some utterances may be infeasible; many are a sign of wrong settings.
        problem = f"{len(infeasible):,} of {count:,} utterances {self.infeasible_reason}"
        if len(infeasible) > self.settings.max_infeasible_share * count:
            raise WorkError(
                f"train: {problem}, at most {self.settings.max_infeasible_share:.1%} are accepted "
                f"(train.max_infeasible_share): {shorten_list(infeasible)}. {self.infeasible_advice}"
            )
        print_status(f"train: {problem} and are left out: {shorten_list(infeasible)}")


def best_results(results: Sequence[ValidationResult], count: int = 1) -> list[ValidationResult]:
    """The results with the lowest scores, the best first, the earlier of equal ones; without dev, the last result.

    >>> wers = [ValidationResult(1, 10, (0.2, 3.0)), ValidationResult(2, 20, (0.1, 2.0))]
    >>> [result.step for result in best_results([*wers, ValidationResult(3, 30, (0.1, 1.0))], 2)]
    [30, 20]
    """
    if any(result.score is None for result in results):
        return [results[-1]]
    return sorted(results, key=lambda result: result.score or ())[:count]


def should_stop_early(settings: TrainSettings, results: list[ValidationResult]) -> bool:
    """True if training stops after these validations, by the rule of `train.stop`.

    Training never stops before `earliest_stop_epoch` has ended. Results within the warm-up do not count: a CTC model
    that still emits only blanks, and attention that is still uniform, have scores that mean nothing. Nor do those of
    the head's epochs (`start.head_epochs`).

    >>> settings = TrainSettings(name="a", patience=2, earliest_stop_epoch=1, warm_up_steps=5)
    >>> flat = [ValidationResult(epoch, 10 * epoch, (0.5, 1.0)) for epoch in (1, 2, 3)]
    >>> should_stop_early(settings, flat[:2]), should_stop_early(settings, flat)
    (False, True)
    """
    if not results or results[-1].epoch < settings.earliest_stop_epoch:
        return False

    if any(result.score is None for result in results):
        return False

    head_epochs = settings.start.head_epochs
    counted = [result for result in results if result.step > settings.warm_up_steps]
    if head_epochs:
        counted = [result for result in counted if result.epoch > head_epochs]
    if settings.stop.rule == "dev_loss":
        return loss_has_settled([result.loss for result in counted], settings.stop)

    return bool(settings.patience) and _since_improvement(settings, counted) >= settings.patience


def _since_improvement(settings: TrainSettings, results: list[ValidationResult]) -> int:
    """Validations since the last with a score at least `min_improvement` below the lowest before it."""

    # Counts validations since the score fell by at least min_improvement.
    lowest = math.inf
    since = 0
    for result in results:
        score = (result.score or (math.inf,))[0]
        if score <= lowest - settings.min_improvement:
            lowest = score
            since = 0
        else:
            since += 1
    return since


def loss_has_settled(losses: Sequence[float], settings: StopSettings) -> bool:
    """Mozilla DeepSpeech's rule: the newest of the last losses is above the others, or all of them are close together.

    >>> (
    ...     loss_has_settled([90.0, 40.0, 41.0, 39.0, 40.2], StopSettings()),
    ...     loss_has_settled([5.0, 5.1, 5.0], StopSettings()),
    ... )
    (False, False)
    >>> (
    ...     loss_has_settled([40.3, 40.0, 40.4, 40.2], StopSettings()),
    ...     loss_has_settled([9.0, 5.0, 7.0, 9.1], StopSettings()),
    ... )
    (True, True)
    """
    if len(losses) < settings.validations:
        return False

    *earlier, newest = losses[-settings.validations :]

    # Mozilla's rule compares the newest loss with the mean and the spread of those before it.
    is_close = abs(newest - statistics.fmean(earlier)) < settings.mean
    return newest > max(earlier) or (is_close and statistics.pstdev(earlier) < settings.deviation)


def shorten_list(names: list[str]) -> str:
    """Lists the first names, and counts the others."""

    # A message names a few utterances only: there may be thousands.
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def evenly_spaced(count: int, size: int) -> list[int]:
    """Up to `size` indices below `count`, evenly spaced.

    >>> evenly_spaced(10, 4), evenly_spaced(2, 4)
    ([0, 2, 4, 6], [0, 1])
    """
    return list(range(0, count, max(count // size, 1)))[:size]
