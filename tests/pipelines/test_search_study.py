"""The study behind `voxline search`: its trials, kills, seeds, budget and halving."""

import dataclasses
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.objectives import OWN, RANGES, STEPS, Objective, error_rate
from tests.waiting import PATIENCE_SECONDS
from voxline.errors import TransientError
from voxline.pipelines.config.keys import Values
from voxline.pipelines.search.space import Space
from voxline.pipelines.search.study import STRATIFIED_TRIALS, Study, halving_epochs
from voxline.pipelines.search.trial_files import Training, Trial, TrialFailedError
from voxline.store.files import read_json, write_json


def make_study(folder: Path, method: str = "tpe", *, epochs: int = 9, jobs: int = 1, seed: int = 1) -> Study:
    return Study(folder, Space(RANGES), method, epochs, seed, OWN, jobs).load()


def contents(folder: Path) -> dict[str, Any]:
    return {file.name: read_json(file) for file in sorted((folder / "trials").glob("[0-9]*.json"))}


class StoredObjective(Objective):
    """One that outlives its process, as a store of finished trainings does."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.lock = file, threading.Lock()
        if file.is_file():
            self.trained = read_json(file)

    def __call__(self, trial: Trial, epochs: int) -> Training:
        with self.lock:
            made = super().__call__(trial, epochs)
            if not made.reused:
                write_json(self.file, self.trained)
        return made


@pytest.mark.slow
@pytest.mark.parametrize(("method", "jobs"), [("tpe", 1), ("tpe", 3), ("random", 1), ("halving", 1), ("halving", 3)])
def test_a_search_that_is_killed_anywhere_ends_in_the_same_study(tmp_path: Path, method: str, jobs: int) -> None:
    """By kill -9, before or after each file that it writes, and resumed each time: the same trials and trainings."""
    make_study(tmp_path / "whole", method, jobs=jobs).run(Objective(), 11)
    kills = 0
    while run_until_killed(lambda: _search(tmp_path, method, jobs), files=3 + kills % 3, after=kills % 2 == 0):
        kills += 1
        assert kills < 100
    assert kills > 5
    killed, expected = contents(tmp_path / "killed"), contents(tmp_path / "whole")
    for trial in (*killed.values(), *expected.values()):
        for one in trial["trainings"]:
            one["reused"] = one["continued_epochs"] = 0  # a training whose file was not written is found in the store
    assert killed == expected
    assert len(killed) == 11
    trained = {str(trial["settings"]): max(one["epochs"] for one in trial["trainings"]) for trial in killed.values()}
    assert read_json(tmp_path / "store.json") == trained


def _search(folder: Path, method: str, jobs: int) -> None:
    make_study(folder / "killed", method, jobs=jobs).run(StoredObjective(folder / "store.json"), 11)


def run_until_killed(work: Callable[[], None], *, files: int, after: bool) -> bool:
    """Runs work in a process that is killed when it gives the n-th file its name, or right after.

    Returns:
      Whether it was killed; no: it ended before.
    """
    child = os.fork()
    if not child:
        try:
            rename, left = os.replace, [files]

            def rename_or_be_killed(source: Path | str, target: Path | str) -> None:
                left[0] -= 1
                if left[0] > 0 or after:
                    rename(source, target)
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            os.replace = rename_or_be_killed
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def test_optuna_logs_nothing_to_the_terminal(tmp_path: Path) -> None:
    """A finished search that is resumed asks it for the settings' importance alone."""
    import optuna

    study = make_study(tmp_path)
    study.run(Objective(), 6)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    assert study.importances()
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING


def test_the_same_seed_proposes_the_same_trials_and_another_one_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_study(tmp_path / name, seed=seed).run(Objective(), 9)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "c")


@pytest.mark.parametrize("own", [OWN, None])
def test_the_first_trials_of_tpe_cover_each_range(tmp_path: Path, own: Values | None) -> None:
    """Each fifth of a range has one of the five, the config's own ones included, by NumPy's histogram."""
    ranges = {
        "train.learning_rate": {"log": [1e-4, 1e-1]},
        "train.weight_decay": {"linear": [0, 0.01]},
        "train.warm_up_steps": {"integer": [10, 200]},
        "train.batch_size": {"log_integer": [8, 512]},
        "train.model.units": [48, 64, 80, 96, 128],
    }
    first = own and {**OWN, "train.weight_decay": 0.0, "train.batch_size": 8}
    drawn = []
    for seed in range(1, 9):
        study = Study(tmp_path / str(seed), Space(ranges), "tpe", 9, seed, first)
        study.run(Objective(), STRATIFIED_TRIALS)
        drawn.append([trial.settings for trial in study.trials])
        table = {key: np.array([settings[key] for settings in drawn[-1]], float) for key in ranges}
        for key, low, high in (("train.learning_rate", 1e-4, 1e-1), ("train.batch_size", 7.5, 512.5)):
            parts = np.histogram(np.log(table[key]), np.linspace(np.log(low), np.log(high), 6))[0]
            assert parts.tolist() == [1] * 5
        assert np.histogram(table["train.weight_decay"], 5, (0, 0.01))[0].tolist() == [1] * 5
        assert np.histogram(table["train.warm_up_steps"], 5, (9.5, 200.5))[0].tolist() == [1] * 5
        assert sorted(table["train.model.units"]) == [48, 64, 80, 96, 128]
    assert all((settings[0] == first) is bool(own) for settings in drawn)
    assert len({str(settings) for settings in drawn}) == len(drawn)


def test_tpe_orders_equal_metrics_by_the_loss(tmp_path: Path) -> None:
    """Models that output nothing yet are all wrong: the loss alone says which of them are on their way."""

    def away(trial: Trial) -> float:
        return abs(math.log10(trial.settings["train.learning_rate"] / 5e-3))

    def train(trial: Trial, epochs: int) -> Training:
        return Training(epochs, 1.0, {"dev_loss": away(trial)})

    late = []
    for seed in range(1, 6):
        study = make_study(tmp_path / str(seed), seed=seed)
        study.run(train, 14)
        late += [away(trial) for trial in study.trials[STRATIFIED_TRIALS:]]
    assert np.mean(late) < 0.6  # a random rate is 0.8 decades away on average, of three


def test_a_second_identical_search_trains_nothing(tmp_path: Path) -> None:
    """In the same folder it asks for no training; in another one, of the same store, all of them are found."""
    objective = Objective()
    make_study(tmp_path / "first").run(objective, 12)
    calls, epochs = objective.calls, objective.epochs
    assert (calls, epochs) == (12, 12 * 9)
    make_study(tmp_path / "first").run(objective, 12)
    assert objective.calls == calls
    second = make_study(tmp_path / "second")
    second.run(objective, 12)
    assert objective.epochs == epochs
    assert all(one.reused for trial in second.trials for one in trial.trainings)


def test_an_extended_search_keeps_its_trials(tmp_path: Path) -> None:
    objective = Objective()
    make_study(tmp_path / "study").run(objective, 5)
    before = contents(tmp_path / "study")
    make_study(tmp_path / "study").run(objective, 8)
    assert {name: one for name, one in contents(tmp_path / "study").items() if name in before} == before
    assert objective.calls == 8
    make_study(tmp_path / "at once").run(Objective(), 8)
    assert contents(tmp_path / "study") == contents(tmp_path / "at once")


def test_from_a_bad_rate_twelve_trials_come_near_the_best(tmp_path: Path) -> None:
    """Within 0.3 points of the floor, median of five seeds; the first trial is far from it."""
    found = []
    for seed in range(1, 6):
        study = make_study(tmp_path / str(seed), seed=seed)
        study.run(Objective(), 12)
        found.append(study.finished()[0].value or 1.0)
        assert (study.trials[0].value or 0.0) > 0.2
    assert np.median(found) <= error_rate({**OWN, "train.learning_rate": 5e-3, "train.model.units": 96}, 9) + 0.003


def test_halving_takes_half_the_steps_of_random_for_the_same_result(tmp_path: Path) -> None:
    """Median of three seeds. Random trains each trial to the end; both draw the same first trials."""
    shares = []
    for seed in (1, 2, 3):
        random, halving = (
            make_study(tmp_path / f"{method}{seed}", method, seed=seed) for method in ("random", "halving")
        )
        random.run(Objective(), 9)
        objective = Objective()
        halving.run(objective, 9)
        assert (halving.finished()[0].value or 1.0) <= (random.finished()[0].value or 0.0)
        steps = [sum(one.steps for trial in study.trials for one in trial.trainings) for study in (halving, random)]
        assert steps[0] == STEPS * objective.epochs
        shares.append(steps[0] / steps[1])
    assert sorted(shares)[1] <= 0.5


def test_halving_continues_the_best_third(tmp_path: Path) -> None:
    study = make_study(tmp_path, "halving")
    study.run(Objective(), 9)
    lengths = [[one.epochs for one in trial.trainings] for trial in study.trials]
    assert halving_epochs(9) == [1, 3, 9]
    assert sorted(map(len, lengths)) == [1] * 6 + [2] * 2 + [3]
    first = sorted(study.trials, key=lambda trial: trial.trainings[0].value)
    assert {trial.number for trial in first[:3]} == {trial.number for trial in study.trials if len(trial.trainings) > 1}
    assert study.finished() == [trial for trial in study.trials if trial.state == "done"] == first[:1]
    (continued,) = [one for one in study.finished()[0].trainings if one.epochs == 9]
    assert (continued.continued_epochs, continued.steps) == (3, 6 * STEPS)


def test_trials_that_fail_are_recorded_and_avoided(tmp_path: Path) -> None:
    """A third of the range fails: not a number, out of memory. TPE then looks elsewhere."""

    def fails_above(trial: Trial, epochs: int) -> Training:
        rate = trial.settings["train.learning_rate"]
        if rate > 3e-2:
            raise TrialFailedError("killed by signal 9, as where memory runs out")
        value = math.nan if rate > 1e-2 else error_rate(trial.settings, epochs)
        return Training(epochs, value, {"steps": 90.0, "epochs": 9.0})

    study = make_study(tmp_path)
    study.run(fails_above, 30)
    states = [trial.state for trial in study.trials]
    failed = [trial for trial in study.trials if trial.state == "failed"]
    assert {trial.reason for trial in failed} == {
        "killed by signal 9, as where memory runs out", "the metric is nan after 9 epochs"
    }  # fmt: skip
    assert all(not trial.trainings for trial in failed)
    assert states[15:].count("failed") < states[:15].count("failed")
    make_study(tmp_path).run(lambda trial, epochs: pytest.fail("a trial that failed was run again"), 30)


def test_a_storage_that_fails_ends_the_search_and_no_trial(tmp_path: Path) -> None:
    def unavailable(trial: Trial, epochs: int) -> Training:
        if trial.number == 2:
            raise TransientError("the bucket does not answer")
        return Objective()(trial, epochs)

    with pytest.raises(TransientError):
        make_study(tmp_path).run(unavailable, 4)
    assert [trial["state"] for trial in contents(tmp_path).values()] == ["done", "done", "running"]
    study = make_study(tmp_path)
    study.run(Objective(), 4)
    assert [trial.state for trial in study.trials] == ["done"] * 4


def test_an_error_does_not_wait_for_the_trials_that_run(tmp_path: Path) -> None:
    """The caller ends their processes; until then they would go on for hours."""
    released = threading.Event()

    def wait(trial: Trial, epochs: int) -> Training:
        if trial.number == 0:
            raise TransientError("the bucket does not answer")
        assert released.wait(PATIENCE_SECONDS)
        raise TransientError("the search was stopped")

    with pytest.raises(TransientError, match="bucket"):
        make_study(tmp_path, jobs=2).run(wait, 4)
    released.set()
    assert [trial["state"] for trial in contents(tmp_path).values()] == ["running"] * 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_trial_is_compared_with_the_best_that_was_known_when_it_began(tmp_path: Path, jobs: int) -> None:
    """A stopped one is no result, is not trained again, and TPE knows of it."""
    objective, values = Objective(), {}

    def train(trial: Trial, epochs: int) -> Training:
        made = objective(trial, epochs)
        best = f"/store/train/{trial.number}"
        if trial.rival and made.value > values[trial.rival]:
            return dataclasses.replace(made, epochs=3, pruned="stopped after epoch 3")
        values[best] = made.value
        return dataclasses.replace(made, folder=best)

    study = make_study(tmp_path, jobs=jobs)
    study.run(train, 8)
    states = [trial.state for trial in study.trials]
    assert states[0] == "done"
    assert states.count("stopped") >= 2
    for trial in study.trials:
        known = [one for one in study.trials[: max(trial.number - jobs + 1, 0)] if one.state == "done"]
        best = min(known, key=lambda one: one.value or 0.0, default=None)
        assert trial.rival == (best.trainings[-1].folder if best else "")
        assert (trial.reason == "stopped after epoch 3") is (trial.state == "stopped")
    assert study.finished()[0].value == min(values.values())
    calls, before = objective.calls, contents(tmp_path)
    make_study(tmp_path, jobs=jobs).run(train, 8)
    assert (objective.calls, contents(tmp_path)) == (calls, before)


def test_no_trial_begins_above_the_budget(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.run(Objective(), 100, budget_seconds=150)
    assert len(study.trials) == 3  # of a minute each
    study = make_study(tmp_path)
    study.run(Objective(), 100, budget_seconds=150)
    assert len(study.trials) == 3


@pytest.mark.parametrize(("method", "jobs", "expected"), [("random", 1, 5), ("random", 3, 7), ("halving", 3, 9)])
def test_no_trial_begins_after_one_that_reached_the_goal(tmp_path: Path, method: str, jobs: int, expected: int) -> None:
    """The trials that run beside it are finished, so that their number does not depend on which one is faster."""
    whole = make_study(tmp_path / "whole", method, jobs=jobs)
    whole.run(Objective(), 18)
    goal = 0.03
    reached = [trial.number for trial in whole.trials if trial.state == "done" and (trial.value or 1.0) <= goal]
    assert reached[0] in range(1, 9), "the study must reach it neither at once nor in its second bracket"
    for _ in range(2):
        study = make_study(tmp_path / "goal", method, jobs=jobs)
        study.run(Objective(), 18, goal=goal)
        assert contents(tmp_path / "goal") == dict(list(contents(tmp_path / "whole").items())[:expected])
    study.run(Objective(), 18)
    assert contents(tmp_path / "goal") == contents(tmp_path / "whole")


def test_trials_that_fail_use_up_the_budget_too(tmp_path: Path) -> None:
    """Otherwise a search in which every trial fails would never end."""

    def fail(trial: Trial, epochs: int) -> Training:
        if trial.number % 2:
            return Training(epochs, math.nan, {}, seconds=60.0, cpu_seconds=90.0)
        raise TrialFailedError("the memory ran out", 60.0, 90.0)

    study = make_study(tmp_path)
    study.run(fail, 100, budget_seconds=150)
    assert [trial.state for trial in study.trials] == ["failed"] * 3
    assert sum(trial.cpu_seconds for trial in make_study(tmp_path).trials) == 270


@pytest.mark.parametrize("method", ["tpe", "random", "halving"])
def test_no_settings_are_tried_twice_and_a_small_space_ends(tmp_path: Path, method: str) -> None:
    space = Space({"train.model.units": [48, 96, 128], "train.warm_up_steps": {"integer": [10, 12]}})
    study = Study(tmp_path, space, method, 9, own={"train.model.units": 48, "train.warm_up_steps": 11})

    def train(trial: Trial, epochs: int) -> Training:
        return Training(epochs, error_rate({"train.learning_rate": 5e-3, **trial.settings}, epochs), {})

    study.run(train, 20)
    assert len({str(trial.settings) for trial in study.trials}) == len(study.trials) == space.size == 9


def test_settings_that_do_not_matter_have_little_importance(tmp_path: Path) -> None:
    study = make_study(tmp_path, "random")
    study.run(Objective(), 40)
    importances = study.importances()
    assert max(importances, key=lambda key: importances[key]) == "train.learning_rate"
    assert sum(importances.values()) == pytest.approx(1)
    assert make_study(tmp_path / "new").importances() == {}
