"""A study: which settings the next trial gets, and the order in which trials run.

A trial's file (`trial_files`) is written by rename before and after each training. The settings of a trial depend on
the study's seed, its number and the results of trials with lower numbers alone, and which of them are waited for is
fixed by `jobs`. So a study that is killed at any moment and resumed has the trials of one that was not: there is no
other state.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.pipelines.config.keys import Values
from voxline.pipelines.search.space import Space
from voxline.pipelines.search.trial_files import Training, Trial, TrialFailedError, read_trials, write_trial
from voxline.report.page import plural
from voxline.store.hashing import hash_value

if TYPE_CHECKING:
    import optuna

DEFAULT_TRIALS = 12
METHODS = ("tpe", "random", "halving")
REDUCTION = 3
"""Successive halving (Jamieson and Talwalkar 2016) continues one trial in three, with three times as many epochs."""
LEVELS = 3
"""Lengths of training in a bracket of successive halving."""
STRATIFIED_TRIALS = 5
"""Of `tpe`, those before TPE looks at results, the config's own one included: a Latin hypercube. Optuna draws ten at
random, for studies of a hundred."""
FEWEST_KNOWN = 2
"""Results that TPE needs."""
GOOD_SHARE = 0.25
"""Of the trials, those that TPE takes for good ones (γ; Bergstra et al. 2011). Of a dozen, Optuna's 0.1 are one or two,
and what TPE proposes is then about as wide as the range."""
PROPOSALS = {"tpe": 2, "random": 1, "halving": 2}
"""Method → revision of how it chooses settings. A search of another one is not continued: its trials would be mixed."""
DRAWS = 10
"""Draws by TPE before a trial gets random settings, if all of them were tried before."""
RANDOM_DRAWS = 100

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
        return sum(not training.reused for trial in self.trials for training in trial.trainings)

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
        goal: float | None = None,
    ) -> None:
        """Runs trials until there are `count` of them, the budget is used up, or all settings were tried.

        A trial that has started is finished, also above the budget.

        Args:
          goal: no trial begins after one whose metric is this or lower; of halving no bracket.
          on_change: called with each trial that has ended, from the thread that ran it.
        """
        pool = ThreadPoolExecutor(self.jobs)
        run = self._run_bracket if self.method == "halving" else self._run_plain
        try:
            work = _Work(self, objective, on_change, pool, budget_seconds, goal)
            run(work, min(count, self.space.size))
        finally:  # an error does not wait for trials that run: the caller ends them
            pool.shutdown(wait=False, cancel_futures=True)

    def _run_plain(self, work: "_Work", count: int) -> None:
        """Each trial waits for all before the last `jobs` - 1 of those that began."""
        # A free worker may wait for an earlier trial: otherwise settings would depend on which trial is fast.
        running: list[Future[None]] = []
        for number in range(count):
            ended = max(number - self.jobs + 1, 0)
            for earlier in running[:ended]:
                earlier.result()
            if number >= len(self.trials) and work.is_enough(ended):
                break
            trial = self._trial(number, ended)
            running.append(work.start(trial, [self.epochs_of(trial)], last=True))
        for future in running:
            future.result()

    def _run_bracket(self, work: "_Work", count: int) -> None:
        """Brackets of successive halving, one after the other."""
        lengths = halving_epochs(self.epochs)
        size = REDUCTION ** (len(lengths) - 1)
        for first in range(0, count, size):
            numbers = range(first, min(first + size, count))
            if first >= len(self.trials) and work.is_enough(first):
                break

            # Level by level: all that remain train for so long, and the best third continues.
            remaining = [self._trial(number, first) for number in numbers]
            for level, epochs in enumerate(lengths):
                last = level == len(lengths) - 1
                for future in [work.start(trial, [epochs], last=last) for trial in remaining]:
                    future.result()
                remaining = [trial for trial in remaining if trial.state != "failed"]
                if last:
                    break

                best = self._best(remaining, epochs, math.ceil(len(remaining) / REDUCTION))
                for trial in remaining:
                    if trial not in best and trial.state == "running":
                        trial.state = "stopped"
                        work.save(trial)
                remaining = best

    def _best(self, trials: list[Trial], epochs: int, count: int) -> list[Trial]:
        """The best after so many epochs, by their numbers."""

        def rank(trial: Trial) -> tuple[tuple[float, float], int]:
            training = trial.training(epochs)
            return training.rank if training else (math.inf, math.inf), trial.number

        return sorted(sorted(trials, key=rank)[:count], key=lambda trial: trial.number)

    def draw(self, count: int) -> list[Values]:
        """The settings of the first trials by the method `random`, which no result changes."""
        return [self._trial(number, 0).settings for number in range(min(count, self.space.size))]

    def epochs_of(self, trial: Trial) -> int:
        """The length of a whole training, which a search may vary too."""
        return int(trial.settings.get("train.epochs", self.epochs))

    def _trial(self, number: int, ended: int) -> Trial:
        """A trial that was started before, or a new one.

        Args:
          ended: how many of the first trials have ended; a new one depends on the results of these alone.
        """
        if number < len(self.trials):
            return self.trials[number]

        # Written down with the trial, so that a search that is resumed compares it with the same rival.
        done = [trial for trial in self.trials[:ended] if trial.state == "done"]
        best = min(done, key=lambda trial: (trial.trainings[-1].rank, trial.number), default=None)
        rival = best.trainings[-1].folder if best and self.method != "halving" else ""
        trial = Trial(number, self._propose(number, ended), rival=rival)
        self.trials.append(trial)
        return trial

    def _propose(self, number: int, ended: int) -> Values:
        """The settings of a new trial. The config's own ones are the first, so that no search ends below them."""
        if number == 0 and self.own is not None:
            return self.own

        earlier = [trial.settings for trial in self.trials[:number]]
        if self.method == "tpe" and number < STRATIFIED_TRIALS:
            settings = self.space.stratified(STRATIFIED_TRIALS, self.seed, self.own)[number]
            if settings not in earlier:
                return settings

        # A setting that was tried before would be found in the store, and teach nothing.
        for draw in range(DRAWS + RANDOM_DRAWS):
            settings = self._ask(number, ended, draw)
            if settings not in earlier:
                break
        return settings

    def _ask(self, number: int, ended: int, draw: int) -> Values:
        """Settings by TPE, or random ones.

        Args:
          draw: how many others of this trial were tried before.
        """
        import optuna

        # From the study's seed and the trial's number alone, so that a resumed search continues as it would have.
        seed = int(hash_value([self.seed, number, draw] if draw else [self.seed, number])[:8], 16)
        if ended < FEWEST_KNOWN or self.method == "random" or draw >= DRAWS:
            study = self.in_optuna([], optuna.samplers.RandomSampler(seed=seed))
        else:
            with warnings.catch_warnings(action="ignore"):  # gamma is to go with Optuna 6
                sampler = optuna.samplers.TPESampler(
                    seed=seed, n_startup_trials=FEWEST_KNOWN, gamma=lambda trials: math.ceil(GOOD_SHARE * trials)
                )
            study = self.in_optuna(self.trials[:ended], sampler)

        drawn = study.ask(self.space.distributions()).params
        return {setting.key: setting.decode(drawn[setting.key]) for setting in self.space.ranges}

    def in_optuna(
        self, trials: Sequence[Trial], sampler: "optuna.samplers.BaseSampler | None" = None
    ) -> "optuna.Study":
        """The trials as Optuna has them. One that failed ranks below all others, so that TPE keeps away from it.

        The value of a trial is its place, so that the loss orders equal metrics, as it does for the winner. TPE and
        PED-ANOVA read the order alone.
        """
        import optuna
        from optuna.trial import TrialState

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=sampler)
        distributions = self.space.distributions()
        done = [trial for trial in trials if trial.state == "done"]
        ranked = sorted(done, key=lambda trial: trial.trainings[-1].rank)
        place = {trial.number: float(number) for number, trial in enumerate(ranked)}

        # Trials that halving stopped count too, by the metric after each length of training.
        for trial in trials:
            is_done = trial.state == "done"
            values = {training.epochs: training.value for training in trial.trainings}
            with warnings.catch_warnings(action="ignore"):  # choices are any values
                study.add_trial(
                    optuna.trial.create_trial(
                        state=TrialState.COMPLETE if is_done else TrialState.PRUNED,
                        value=place.get(trial.number),
                        params={
                            setting.key: setting.encode(trial.settings[setting.key]) for setting in self.space.ranges
                        },
                        distributions=distributions,
                        intermediate_values={} if is_done else values,
                    )
                )
        return study

    def importances(self) -> dict[str, float]:
        """The share of each setting in what makes the better half of trials differ: PED-ANOVA (Watanabe et al. 2023).

        Empty where there is too little to tell.
        """
        # Below four trials, the better half is one: nothing to compare.
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
        self,
        study: Study,
        objective: Objective,
        on_change: Callable[[Trial], None],
        pool: ThreadPoolExecutor,
        budget_seconds: float,
        goal: float | None,
    ) -> None:
        self._study = study
        self._objective = objective
        self._on_change = on_change
        self._pool = pool
        self._budget_seconds = budget_seconds
        self._goal = goal

    def is_enough(self, ended: int) -> bool:
        """True if no further trial begins: the budget is used up, or one of the first `ended` has reached the goal."""
        if self._study.seconds >= self._budget_seconds:
            return True

        # Of later trials, some run at this moment, and how far they are must not decide.
        done = [trial for trial in self._study.trials[:ended] if trial.state == "done"]
        values = [trial.value for trial in done if trial.value is not None]
        return self._goal is not None and min(values, default=math.inf) <= self._goal

    def save(self, trial: Trial) -> None:
        write_trial(self._study.folder, trial)

    def start(self, trial: Trial, lengths: Iterable[int], *, last: bool) -> "Future[None]":
        """Makes those trainings of a trial that it lacks.

        Args:
          last: the trial is done with them.
        """
        missing = [epochs for epochs in lengths if trial.training(epochs) is None]
        if trial.state in ("failed", "stopped") or (not missing and (trial.state == "done" or not last)):
            ready: Future[None] = Future()
            ready.set_result(None)
            return ready
        if missing:
            trial.state = "running"
            self.save(trial)
        return self._pool.submit(self._make, trial, missing, last)

    def _make(self, trial: Trial, lengths: list[int], last: bool) -> None:
        try:
            for epochs in lengths:
                trial.trainings.append(self._objective(trial, epochs))
                if trial.trainings[-1].pruned:
                    trial.state = "stopped"
                    trial.reason = trial.trainings[-1].pruned
                    break

                # A model that diverged has no place among the others; what it cost is counted all the same.
                if not math.isfinite(trial.trainings[-1].value):
                    diverged = trial.trainings.pop()
                    reason = f"the metric is {diverged.value} after {plural(epochs, 'epoch')}"
                    raise TrialFailedError(reason, diverged.seconds, diverged.cpu_seconds)
            else:
                trial.state = "done" if last else "running"
        except TrialFailedError as error:
            trial.state = "failed"
            trial.reason = str(error)
            trial.lost_seconds = error.seconds
            trial.lost_cpu_seconds = error.cpu_seconds

        # Saved before anything is printed: an interruption in between loses no result.
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


def started_now() -> str:
    """The time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
