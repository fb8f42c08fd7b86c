"""A study: its trials as files, which settings the next one gets, and the order in which they run.

    study.json          what is searched, by what, on which dataset
    trials/0007.json    one trial: its settings, and what each training of it came to

A file is written by rename before and after each training. The settings of a trial depend on the study's seed, its
number and the results of trials with lower numbers alone, and which of them are waited for is fixed by `jobs`. So a
study that is killed at any moment and resumed has the trials of one that was not: there is no other state.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from voxline.errors import WorkError
from voxline.pipelines.config.keys import Values
from voxline.pipelines.search.space import Space
from voxline.report.page import plural
from voxline.store.files import read_json, write_json
from voxline.store.hashing import hash_value

if TYPE_CHECKING:
    import optuna

DEFAULT_TRIALS = 12
METHODS = ("tpe", "random", "halving")
REDUCTION = 3
"""Successive halving (Jamieson and Talwalkar 2016) continues one trial in three, with three times as many epochs."""
LEVELS = 3
"""Lengths of training in a bracket of successive halving."""
RANDOM_TRIALS = 5
"""Trials before TPE looks at results. Optuna's default is 10, for studies of a hundred."""
DRAWS = 10
"""Draws by TPE before a trial gets random settings, if all of them were tried before."""
RANDOM_DRAWS = 100

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
        return cls(**{**values, "trainings": [Training(**one) for one in values["trainings"]]})

    @property
    def value(self) -> float | None:
        """The metric after the longest training; None if there is none."""
        return self.trainings[-1].value if self.trainings else None

    @property
    def seconds(self) -> float:
        return self.lost_seconds + sum(one.seconds for one in self.trainings)

    @property
    def cpu_seconds(self) -> float:
        return self.lost_cpu_seconds + sum(one.cpu_seconds for one in self.trainings)

    def training(self, epochs: int) -> Training | None:
        return next((one for one in self.trainings if one.epochs == epochs), None)


class TrialFailedError(WorkError):
    """A trial has no result; the search continues without it.

    Attributes:
      seconds, cpu_seconds: what it took.
    """

    def __init__(self, message: str, seconds: float = 0.0, cpu_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds, self.cpu_seconds = seconds, cpu_seconds


Objective = Callable[[Trial, int], Training]
"""Trains a trial for so many epochs; raises TrialFailedError."""


@dataclasses.dataclass
class Study:
    """The trials of a search.

    Attributes:
      folder: of the study's files.
      epochs: of a whole training.
      own: the settings that the config has, which are the first trial; None if a range excludes them.
      jobs: trials at a time.
    """

    folder: Path
    space: Space
    method: str
    epochs: int
    seed: int = 1
    own: Values | None = None
    jobs: int = 1
    trials: list[Trial] = dataclasses.field(default_factory=list)

    def load(self) -> "Study":
        """Reads the trials that there are.

        Raises:
          WorkError: a file of a trial is damaged.
        """
        self.trials = read_trials(self.folder)
        return self

    def finished(self) -> list[Trial]:
        """The trials with a whole training, the best first."""
        done = [trial for trial in self.trials if trial.state == "done"]
        return sorted(done, key=lambda trial: (trial.trainings[-1].rank, trial.number))

    def trained(self) -> int:
        """Trainings that this study made, and did not find in the store."""
        return sum(not one.reused for trial in self.trials for one in trial.trainings)

    @property
    def seconds(self) -> float:
        """The wall time that trials took, as if `jobs` of them had always run at once."""
        return sum(trial.seconds for trial in self.trials) / self.jobs

    def run(
        self,
        objective: Objective,
        count: int,
        budget_seconds: float = math.inf,
        on_change: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        """Runs trials until there are `count` of them, the budget is used up, or all settings were tried.

        A trial that has started is finished, also above the budget.

        Args:
          on_change: called with each trial that has ended, from the thread that ran it.
        """
        pool = ThreadPoolExecutor(self.jobs)
        run = self._run_bracket if self.method == "halving" else self._run_plain
        try:
            run(_Work(self, objective, on_change, pool), min(count, self.space.size), budget_seconds)
        finally:  # an error does not wait for trials that run: the caller ends them
            pool.shutdown(wait=False, cancel_futures=True)

    def _run_plain(self, work: "_Work", count: int, budget_seconds: float) -> None:
        """Each trial waits for all before the last `jobs` - 1 of those that began."""
        running: list[Future[None]] = []
        for number in range(count):
            known = max(number - self.jobs + 1, 0)
            for earlier in running[:known]:
                earlier.result()
            if number >= len(self.trials) and self.seconds >= budget_seconds:
                break
            trial = self._trial(number, known)
            running.append(work.start(trial, [self.epochs_of(trial)], last=True))
        for one in running:
            one.result()

    def _run_bracket(self, work: "_Work", count: int, budget_seconds: float) -> None:
        """Brackets of successive halving, one after the other."""
        lengths = halving_epochs(self.epochs)
        size = REDUCTION ** (len(lengths) - 1)
        for first in range(0, count, size):
            numbers = range(first, min(first + size, count))
            if first >= len(self.trials) and self.seconds >= budget_seconds:
                break
            remaining = [self._trial(number, first) for number in numbers]
            for level, epochs in enumerate(lengths):
                last = level == len(lengths) - 1
                for one in [work.start(trial, [epochs], last=last) for trial in remaining]:
                    one.result()
                remaining = [trial for trial in remaining if trial.state != "failed"]
                if last:
                    break
                kept = self._best(remaining, epochs, math.ceil(len(remaining) / REDUCTION))
                for trial in remaining:
                    if trial not in kept and trial.state == "running":
                        trial.state = "stopped"
                        work.save(trial)
                remaining = kept

    def _best(self, trials: list[Trial], epochs: int, count: int) -> list[Trial]:
        """The best after so many epochs, by their numbers."""

        def rank(trial: Trial) -> tuple[tuple[float, float], int]:
            made = trial.training(epochs)
            return made.rank if made else (math.inf, math.inf), trial.number

        return sorted(sorted(trials, key=rank)[:count], key=lambda trial: trial.number)

    def draw(self, count: int) -> list[Values]:
        """The settings of the first trials by the method `random`, which no result changes."""
        return [self._trial(number, 0).settings for number in range(min(count, self.space.size))]

    def epochs_of(self, trial: Trial) -> int:
        """The length of a whole training, which a search may vary too."""
        return int(trial.settings.get("train.epochs", self.epochs))

    def _trial(self, number: int, known: int) -> Trial:
        """A trial that was started before, or a new one.

        Args:
          known: how many of the first trials have ended; a new one depends on the results of these alone.
        """
        if number < len(self.trials):
            return self.trials[number]
        done = [one for one in self.trials[:known] if one.state == "done"]
        best = min(done, key=lambda one: (one.trainings[-1].rank, one.number), default=None)
        rival = best.trainings[-1].folder if best and self.method != "halving" else ""
        trial = Trial(number, self._propose(number, known), rival=rival)
        self.trials.append(trial)
        return trial

    def _propose(self, number: int, known: int) -> Values:
        """The settings of a new trial. The config's own ones are the first, so that no search ends below them."""
        if number == 0 and self.own is not None:
            return self.own
        import optuna

        tried = [trial.settings for trial in self.trials[:number]]
        settings: Values = {}
        for draw in range(DRAWS + RANDOM_DRAWS):
            seed = int(hash_value([self.seed, number, draw] if draw else [self.seed, number])[:8], 16)
            if known < RANDOM_TRIALS or self.method == "random" or draw >= DRAWS:
                study = self.in_optuna([], optuna.samplers.RandomSampler(seed=seed))
            else:
                sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
                study = self.in_optuna(self.trials[:known], sampler)
            chosen = study.ask(self.space.distributions()).params
            settings = {one.key: one.decode(chosen[one.key]) for one in self.space.ranges}
            if settings not in tried:
                break
        return settings

    def in_optuna(
        self, trials: Sequence[Trial], sampler: "optuna.samplers.BaseSampler | None" = None
    ) -> "optuna.Study":
        """The trials as Optuna has them. One that failed ranks below all others, so that TPE keeps away from it."""
        import optuna
        from optuna.trial import TrialState

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=sampler)
        distributions = self.space.distributions()
        for trial in trials:
            done = trial.state == "done"
            with warnings.catch_warnings(action="ignore"):  # choices are any values
                study.add_trial(
                    optuna.trial.create_trial(
                        state=TrialState.COMPLETE if done else TrialState.PRUNED,
                        value=trial.value if done else None,
                        params={one.key: one.encode(trial.settings[one.key]) for one in self.space.ranges},
                        distributions=distributions,
                        intermediate_values={} if done else {one.epochs: one.value for one in trial.trainings},
                    )
                )
        return study

    def importances(self) -> dict[str, float]:
        """The share of each setting in what makes the better half of trials differ: PED-ANOVA (Watanabe et al. 2023).

        Empty where there is too little to tell.
        """
        done = self.finished()
        if len(done) < 4 or len({trial.value for trial in done}) < 2:
            return {}
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        with warnings.catch_warnings(action="ignore"):
            evaluator = PedAnovaImportanceEvaluator(target_quantile=0.5, region_quantile=1.0)
            return dict(get_param_importances(self.in_optuna(done), evaluator=evaluator))


class _Work:
    """Runs trials in threads, and keeps their files."""

    def __init__(
        self, study: Study, objective: Objective, on_change: Callable[[Trial], None], pool: ThreadPoolExecutor
    ) -> None:
        self._study, self._objective, self._on_change, self._pool = study, objective, on_change, pool

    def save(self, trial: Trial) -> None:
        write_json(_file(self._study.folder, trial.number), dataclasses.asdict(trial))

    def start(self, trial: Trial, lengths: Iterable[int], *, last: bool) -> "Future[None]":
        """Makes those trainings of a trial that it lacks.

        Args:
          last: the trial is done with them.
        """
        wanted = [epochs for epochs in lengths if trial.training(epochs) is None]
        if trial.state in ("failed", "stopped") or (not wanted and (trial.state == "done" or not last)):
            ready: Future[None] = Future()
            ready.set_result(None)
            return ready
        if wanted:
            trial.state = "running"
            self.save(trial)
        return self._pool.submit(self._make, trial, wanted, last)

    def _make(self, trial: Trial, lengths: list[int], last: bool) -> None:
        try:
            for epochs in lengths:
                trial.trainings.append(self._objective(trial, epochs))
                if trial.trainings[-1].pruned:
                    trial.state, trial.reason = "stopped", trial.trainings[-1].pruned
                    break
                if not math.isfinite(trial.trainings[-1].value):
                    made = trial.trainings.pop()
                    reason = f"the metric is {made.value} after {plural(epochs, 'epoch')}"
                    raise TrialFailedError(reason, made.seconds, made.cpu_seconds)
            else:
                trial.state = "done" if last else "running"
        except TrialFailedError as error:
            trial.state, trial.reason = "failed", str(error)
            trial.lost_seconds, trial.lost_cpu_seconds = error.seconds, error.cpu_seconds
        self.save(trial)
        if trial.state != "running":
            self._on_change(trial)


def halving_epochs(epochs: int) -> list[int]:
    """The lengths of training in a bracket of successive halving, the shortest first.

    >>> halving_epochs(6), halving_epochs(27), halving_epochs(1)
    ([1, 2, 6], [3, 9, 27], [1])
    """
    lengths = [epochs]
    while len(lengths) < LEVELS and lengths[0] > 1:
        lengths.insert(0, math.ceil(lengths[0] / REDUCTION))
    return lengths


def read_trials(folder: Path) -> list[Trial]:
    """The trials of a study's folder.

    Raises:
      WorkError: a file of a trial is damaged.
    """
    trials: list[Trial] = []
    while (file := _file(folder, len(trials))).is_file():
        try:
            trials.append(Trial.of(read_json(file)))
        except (ValueError, TypeError, KeyError) as error:
            raise WorkError(f"{file}: not a trial ({error}); delete it, and resume the search") from None
    return trials


def _file(folder: Path, number: int) -> Path:
    return folder / "trials" / f"{number:04d}.json"


def started_now() -> str:
    """The time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
