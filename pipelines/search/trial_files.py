"""A trial and its file: its settings, and what each training of it came to.

    <folder of the study>/trials/0007.json

The files are the whole state of a study.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from voxline.errors import WorkError
from voxline.pipelines.config.keys import Values
from voxline.store.files import read_json, write_json

State = Literal["running", "done", "stopped", "failed"]


@dataclasses.dataclass(frozen=True)
class Training:
    """One training of a trial.

    Attributes:
      epochs: passes over the training split.
      value: the metric that is searched for; lower is better.
      metrics: of train, and of language where decoding varies.
      continued_epochs: passes of an earlier training that it continued.
      reused: it was in the store already.
      seconds, cpu_seconds: what it took here, of wall time and of all cores.
      folder: train's output.
      pruned: why it ended before its last epoch; empty: it did not.
    """

    epochs: int
    value: float
    metrics: dict[str, float]
    continued_epochs: int = 0
    reused: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    folder: str = ""
    pruned: str = ""

    @property
    def steps(self) -> int:
        """Training steps that this training made, or had made when it was first done."""
        total = self.metrics.get("steps", 0.0)
        share = self.continued_epochs / max(self.metrics.get("epochs", self.epochs), 1)
        return round(total * (1 - min(share, 1.0)))  # above 1 where the shorter training stopped early

    @property
    def rank(self) -> tuple[float, float]:
        """Orders trainings: equal error rates, as of models that output nothing yet, by the loss on dev."""
        return self.value, self.metrics.get("dev_loss", 0.0)


@dataclasses.dataclass
class Trial:
    """One choice of settings.

    Attributes:
      settings: value by dotted key.
      state: "stopped": successive halving continued others, or the pruner ended it.
      reason: why it failed, or was stopped.
      trainings: in the order in which they were made; of successive halving several.
      lost_seconds, lost_cpu_seconds: what a training took that came to no result.
      rival: the best training that was known when the trial began, which the pruner compares it with; empty: none.
    """

    number: int
    settings: Values
    state: State = "running"
    reason: str = ""
    trainings: list[Training] = dataclasses.field(default_factory=list)
    lost_seconds: float = 0.0
    lost_cpu_seconds: float = 0.0
    rival: str = ""

    @classmethod
    def of(cls, values: Values) -> "Trial":
        return cls(**{**values, "trainings": [Training(**training) for training in values["trainings"]]})

    @property
    def value(self) -> float | None:
        """The metric after the longest training; None if there is none."""
        return self.trainings[-1].value if self.trainings else None

    @property
    def seconds(self) -> float:
        return self.lost_seconds + sum(training.seconds for training in self.trainings)

    @property
    def cpu_seconds(self) -> float:
        return self.lost_cpu_seconds + sum(training.cpu_seconds for training in self.trainings)

    def training(self, epochs: int) -> Training | None:
        # A pruned training has fewer epochs than it was to have, so it is not taken for a whole one.
        return next((training for training in self.trainings if training.epochs == epochs), None)


class TrialFailedError(WorkError):
    """A trial has no result; the search continues without it.

    Attributes:
      seconds, cpu_seconds: what it took.
    """

    def __init__(self, message: str, seconds: float = 0.0, cpu_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.cpu_seconds = cpu_seconds


def read_trials(folder: Path) -> list[Trial]:
    """The trials of a study's folder.

    Raises:
      WorkError: a file of a trial is damaged.
    """
    # Numbers have no gap: a trial's file is written before the next trial begins.
    trials: list[Trial] = []
    while (file := _file(folder, len(trials))).is_file():
        try:
            trials.append(Trial.of(read_json(file)))
        except (ValueError, TypeError, KeyError) as error:
            raise WorkError(f"{file}: not a trial ({error}); delete it, and resume the search") from None
    return trials


def write_trial(folder: Path, trial: Trial) -> None:
    """Writes the file of a trial, by rename."""
    write_json(_file(folder, trial.number), dataclasses.asdict(trial))


def _file(folder: Path, number: int) -> Path:
    return folder / "trials" / f"{number:04d}.json"  # four digits, so that names sort as numbers do
