"""Stops a training of a search that is worse than the best one so far, by a paired test over the utterances of dev.

Both trainings transcribed the same utterances after the same epoch. If the trial were as good as its rival, each
difference of their errors would be as likely with the other sign. The test draws signs: p is the share of draws whose
sum is at least the one that was seen (Fisher's randomization test for pairs). It is exact for any distribution of the
errors, for ties and for zeros, of which a Wilcoxon test would take the ranks.

A training is tested after several epochs. Each look gets an equal share of 1 - confidence (Bonferroni), so however the
looks depend on each other, one that is as good as its rival is stopped with at most that probability.
"""

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from voxline.errors import WorkError
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_value

if TYPE_CHECKING:
    from voxline.training.task import ValidationResult

PRUNER_ENV = "VOXLINE_PRUNER"
"""Set for the training of a trial: {"rival": folder of train's output, "confidence": 0.95} as JSON."""
FOLDER = "dev_errors"
"""Folder in the logs of a training: a file for each epoch after which dev was transcribed."""
EARLIEST = 1 / 3
"""Share of the epochs before which nothing is stopped: a model that outputs blanks says nothing of its settings."""
DRAWS = 20_000


class PrunedError(WorkError):
    """A training was worse than its rival.

    Attributes:
      epoch: completed epochs.
      metrics: as train has them in the end.
      resumed: it had been stopped before, and nothing was trained.
    """

    def __init__(self, message: str, epoch: int, metrics: dict[str, float], resumed: bool) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.metrics = metrics
        self.resumed = resumed


def write_errors(logs: Path, epoch: int, errors: dict[str, float]) -> None:
    """Keeps the errors of each utterance of dev after an epoch; without ids, in their order.

    Args:
      errors: by the utterance's id.
    """
    ids = sorted(errors)
    folder = logs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{epoch:05d}.json", {"utterances": hash_value(ids), "errors": [errors[id] for id in ids]})


def worse_p_value(trial: npt.ArrayLike, rival: npt.ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> float:
    """The one-sided p that a trial's errors are not above those of its rival.

    Args:
      trial, rival: float [utterances], errors of the same utterances.
      draws: of signs; p is never below 1 / (draws + 1).

    >>> worse_p_value([1, 1, 1, 1, 1], [0, 0, 0, 0, 0]) < 0.05 < worse_p_value([1, 0, 1], [0, 1, 0])
    True
    """

    # Ties say nothing: their sign does not matter.
    gaps = np.asarray(trial, np.float64) - np.asarray(rival, np.float64)
    gaps = gaps[gaps != 0]
    if not gaps.size:
        return 1.0

    chance = np.random.default_rng(seed)
    seen = float(gaps.sum())
    above = 0

    # Draws in blocks, so that long splits fit in memory.
    at_once = max(2_000_000 // gaps.size, 1)
    for begin in range(0, draws, at_once):
        signs = chance.integers(0, 2, (min(at_once, draws - begin), gaps.size), np.int8)

        # Σ ± gap, from draws of 0 and 1.
        sums = 2.0 * (signs @ gaps) - seen
        above += int(np.count_nonzero(sums >= seen - 1e-9))

    return (above + 1) / (draws + 1)


class PairedPruner:
    """Compares a training with a finished one after each epoch.

    Args:
      rival: train's output of the finished training.
      confidence: 1 minus the probability that a training as good as the rival is stopped at any of its looks.
      epochs: of the training.
      every: epochs between two validations.
    """

    def __init__(self, rival: Path, confidence: float, epochs: int, every: int = 1) -> None:
        self._rival = rival
        self._confidence = confidence

        # Looks are known in advance, since each has its share of the confidence.
        first = math.ceil(EARLIEST * epochs)
        self.looks = [epoch for epoch in range(first, epochs) if epoch % every == 0]

    @classmethod
    def from_environment(cls, epochs: int, every: int) -> "PairedPruner | None":
        """The pruner of a search's trial; None in any other training."""
        if not (pruner := os.environ.get(PRUNER_ENV)):
            return None
        values = json.loads(pruner)
        return cls(Path(values["rival"]), float(values["confidence"]), epochs, every)

    def stops(self, p: float) -> bool:
        """True if a training with this p at one of its looks is stopped."""
        return p <= (1 - self._confidence) / len(self.looks)

    def check(self, logs: Path, result: "ValidationResult", *, resumed: bool = False) -> None:
        """Raises PrunedError if the training is worse than the rival was after as many epochs.

        Args:
          logs: of the training.
          result: the validation that was made last.
          resumed: it was made before this process.
        """
        epoch = result.epoch
        if epoch not in self.looks:
            return

        # Both must have transcribed the same utterances after as many epochs.
        files = [folder / FOLDER / f"{epoch:05d}.json" for folder in (logs, self._rival / "logs")]
        if not all(file.is_file() for file in files):
            return

        trial, rival = (read_json(file) for file in files)
        if trial["utterances"] != rival["utterances"]:
            return

        p = worse_p_value(trial["errors"], rival["errors"])
        if self.stops(p):
            trial_errors = sum(trial["errors"])
            rival_errors = sum(rival["errors"])
            message = (
                f"stopped after epoch {epoch}: {trial_errors:,.0f} errors on dev, the best trial {rival_errors:,.0f} "
                f"(p {p:.2g})"
            )
            metrics: dict[str, float] = {"steps": result.step, "epochs": epoch}
            metrics |= {f"dev_{name}": value for name, value in result.metrics.items()}
            raise PrunedError(message, epoch, metrics, resumed)
