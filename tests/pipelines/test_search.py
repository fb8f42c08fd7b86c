"""`voxline search`: its space, its trials, kills, halving, and its page, with objectives that cost nothing."""

import dataclasses
import datetime
import errno
import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.waiting import PATIENCE_SECONDS
from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local.run_record import RunRecord
from voxline.pipelines.search import trials
from voxline.pipelines.search.search import Limits, Search
from voxline.pipelines.search.space import Space, with_settings
from voxline.pipelines.search.study import Study, Training, Trial, TrialFailedError, halving_epochs
from voxline.pipelines.search.trials import TrialProcesses, trial_overlay
from voxline.store.files import read_json, write_json
from voxline.store.step_cache import StepOutput

RANGES = {
    "train.learning_rate": {"log": [1e-4, 1e-1]},
    "train.warm_up_steps": {"integer": [10, 200]},
    "train.model.units": [48, 96, 128],
}
OWN = {"train.learning_rate": 1e-4, "train.warm_up_steps": 100, "train.model.units": 48}
STEPS = 10
"""In an epoch."""


def error_rate(settings: dict[str, Any], epochs: int) -> float:
    """Falls with the epochs, to a floor that is lowest at a rate of 5e-3 with 96 units."""
    away = abs(math.log10(settings["train.learning_rate"] / 5e-3))
    floor = 0.002 + 0.1 * away**2 + 0.01 * (settings["train.model.units"] != 96)
    return min(floor + 0.5 * 0.5**epochs, 1.0)


class Objective:
    """Counts the epochs that it trains, as a store that keeps what was trained."""

    def __init__(self) -> None:
        self.trained: dict[str, int] = {}
        self.epochs = 0
        self.calls = 0

    def __call__(self, trial: Trial, epochs: int) -> Training:
        self.calls += 1
        key = str(trial.settings)
        before = self.trained.get(key, 0)
        reused = before >= epochs
        self.epochs += 0 if reused else epochs - before
        self.trained[key] = max(before, epochs)
        metrics = {"steps": float(STEPS * epochs), "epochs": float(epochs)}
        value = error_rate(trial.settings, epochs)
        return Training(epochs, value, metrics, 0 if reused else before, reused, seconds=60.0, cpu_seconds=90.0)


def make_study(folder: Path, method: str = "tpe", *, epochs: int = 9, jobs: int = 1, seed: int = 1) -> Study:
    return Study(folder, Space(RANGES), method, epochs, seed, OWN, jobs).load()


def contents(folder: Path) -> dict[str, Any]:
    return {file.name: read_json(file) for file in sorted((folder / "trials").iterdir())}


@pytest.mark.parametrize(("method", "jobs"), [("tpe", 1), ("tpe", 3), ("random", 1), ("halving", 1), ("halving", 3)])
def test_a_search_that_is_killed_anywhere_ends_in_the_same_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, jobs: int
) -> None:
    """Killed before and after each file that it writes, and resumed each time: the same trials, the same trainings."""
    whole = make_study(tmp_path / "whole", method, jobs=jobs)
    whole.run(Objective(), 11)
    left, objective = [0], Objective()

    def write_until_killed(path: Path, value: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        write_json(path, value)
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("voxline.pipelines.search.study.write_json", write_until_killed)
    for _ in range(200):
        left[0] = 3
        try:
            make_study(tmp_path / "killed", method, jobs=jobs).run(objective, 11)
            break
        except KeyboardInterrupt:
            continue
    killed, expected = contents(tmp_path / "killed"), contents(tmp_path / "whole")
    for trial in (*killed.values(), *expected.values()):
        for one in trial["trainings"]:
            one["reused"] = one["continued_epochs"] = 0  # a training whose file was not written is found in the store
    assert killed == expected
    assert len(killed) == 11
    assert objective.epochs == sum(max(one["epochs"] for one in trial["trainings"]) for trial in killed.values())


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
    """Within 0.3 points of the floor; the first trial, the config's own settings, is far from it."""
    found = []
    for seed in (1, 2, 3):
        study = make_study(tmp_path / str(seed), seed=seed)
        study.run(Objective(), 12)
        found.append(study.finished()[0].value or 1.0)
        assert (study.trials[0].value or 0.0) > 0.2
    assert sorted(found)[1] <= error_rate({**OWN, "train.learning_rate": 5e-3, "train.model.units": 96}, 9) + 0.003 * 5


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


def test_no_trial_begins_above_the_budget(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.run(Objective(), 100, budget_seconds=150)
    assert len(study.trials) == 3  # of a minute each
    study = make_study(tmp_path)
    study.run(Objective(), 100, budget_seconds=150)
    assert len(study.trials) == 3


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


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ({}, "it is empty"),
        ({"train.learning_rate": {"log": [0, 1]}}, "a logarithmic range begins above 0"),
        ({"train.learning_rate": {"log": [1e-2, 1e-3]}}, "two numbers, the lower one first"),
        ({"train.batch_size": {"integer": [1.5, 3]}}, "two whole numbers"),
        ({"train.epochs": [3]}, "two or more different values"),
        ({"train.epochs": 3}, "train.epochs: 3; accepted: "),
        ({"train.epochs": {"logarithmic": [1, 3]}}, "'train.epochs' is {'logarithmic': 1}; Input should be"),
        ({"train.no_such": [1, 2]}, "train.no_such: 1: "),
        ({"train": {"learning_rate": {"linear": [0.1, 2]}}}, "train.learning_rate: 2.0: "),
        ({"extract.features.mels": [40, 80]}, "extract.features.mels: train.* and language.* can vary"),
        ({"train.seed": [1, 2]}, "train.seed cannot vary: a search runs the winner with other seeds"),
        ({"language.alpha": {"linear": [0, 2]}}, "set language.kind to ngram"),
        (
            {"train.model.units": [48, 96], "train": {"model": [{"kind": "conformer"}, {"kind": "deepspeech2"}]}},
            "train.model and train.model.units: one holds the other",
        ),
        ({"train.name": [datetime.date(2026, 1, 2), "b"]}, "put dates in quotation marks"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_by_its_key(ranges: dict[str, Any], expected: str) -> None:
    config = load_config({"name": "tiny", "corpus": {"uri": "corpus"}})
    with pytest.raises(SettingsError) as refused:
        Space(ranges, "space.yaml").check(config)
    assert str(refused.value).startswith("space.yaml: ")
    assert expected in str(refused.value)


def test_a_trial_changes_its_settings_and_what_follows_from_them() -> None:
    """The model's stride changes the frames that validate expects; decoding's weights are tried, not taken as given."""
    config = load_config(
        {
            "name": "tiny",
            "corpus": {"uri": "corpus"},
            "language": {"kind": "ngram"},
            "train": {"blank_plateau": {"severity": "error"}},
        }
    )
    settings = {"train.model": {"kind": "conformer"}, "language.alpha": 0.7}
    changed = load_config(with_settings(config, trial_overlay(config, settings, 3))).plain()
    assert get_key(changed, "train.model.kind") == "conformer"
    assert get_key(changed, "train.epochs") == 3
    assert get_key(changed, "train.blank_plateau.severity") == "warning"
    assert (get_key(changed, "language.alpha"), get_key(changed, "language.alphas")) == (None, [0.7])
    assert get_key(changed, "language.betas") == get_key(config.plain(), "language.betas")
    assert get_key(changed, "validate.frames_per_second") != get_key(config.plain(), "validate.frames_per_second")
    fixed = load_config(with_settings(config, {"language.alpha": 0.5, "language.beta": 1.0}))
    overlay = trial_overlay(fixed, {"language.width": 8}, 3)  # with both weights given, dev would not be measured
    assert {key: one for key, one in overlay.items() if key.startswith("language.")} == {
        "language.width": 8,
        "language.alpha": None,
        "language.alphas": [0.5],
        "language.beta": None,
        "language.betas": [1.0],
    }
    assert Space({"train.weight_decay": [0, 1e-3], "train.clip_norm": [5, 7]}).values_of(config) == {
        "train.weight_decay": 1e-3,
        "train.clip_norm": 5.0,
    }
    space = Space({"train.model": [{"kind": "deepspeech2"}, {"kind": "conformer"}]})
    space.check(config)
    assert space["train.model"].decode(space["train.model"].encode({"kind": "conformer"})) == {"kind": "conformer"}


def test_a_training_that_cannot_start_is_a_trial_that_failed(tmp_path: Path) -> None:
    """A process of its own, for real."""
    config = load_config({"name": "tiny", "corpus": {"uri": "corpus"}, "store": str(tmp_path / "store")})
    processes = TrialProcesses(config, str(tmp_path / "nowhere"), "", "dev_wer", False, tmp_path / "processes")
    study = Study(tmp_path, Space(RANGES), "random", 1)
    study.run(processes, 1)
    assert study.trials[0].state == "failed"
    assert "nowhere" in study.trials[0].reason


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (-signal.SIGTERM, None, TransientError),
        (-signal.SIGHUP, None, TransientError),
        (1, None, WorkError),
        (-signal.SIGKILL, None, TrialFailedError),
        (-signal.SIGABRT, None, TrialFailedError),
        (0, PreconditionError("another process wrote it"), TransientError),
        (0, OSError(errno.ENOSPC, "No space left on device"), TransientError),
        (0, WorkError("the loss is not finite"), TrialFailedError),
        (0, MemoryError(), TrialFailedError),
    ],
)
def test_what_is_no_fault_of_a_trial_does_not_count_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, error: Exception | None, kind: type[Exception]
) -> None:
    """A scheduler's signal to all processes, a full disk, a process that cannot start: the trial is run again."""

    def call_step(step: str, config: RunConfig, inputs: list[str]) -> StepOutput:
        assert error
        raise error

    def run(processes: TrialProcesses, name: str) -> tuple[int, float]:
        if error:
            trials.main(str(processes.folder / f"{name}.request.json"))
        return status, 1.5

    monkeypatch.setattr(trials, "call_step", call_step)
    monkeypatch.setattr(trials, "end_with_parent", lambda: None)
    monkeypatch.setattr(TrialProcesses, "_run", run)
    config = load_config({"name": "tiny", "corpus": {"uri": "corpus"}})
    with pytest.raises(kind) as raised:
        TrialProcesses(config, "dataset", "manifest", "dev_wer", False, tmp_path)(Trial(0, {}), 3)
    assert type(raised.value) is kind
    assert not isinstance(raised.value, TrialFailedError) or raised.value.cpu_seconds == 1.5


@pytest.mark.parametrize("decodes", [False, True])
def test_where_decoding_varies_its_metric_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decodes: bool
) -> None:
    """The process of a trial, in this one: train on the dataset, then language on train's model and the manifest."""
    calls = []

    def call_step(step: str, config: RunConfig, inputs: list[str]) -> StepOutput:
        calls.append((step, get_key(config.plain(), "language.alphas"), inputs))
        metrics = {"train": {"dev_wer": 0.2, "steps": 90.0}, "language": {"dev_wer": 0.1, "dev_wer_greedy": math.nan}}
        return StepOutput(step, tmp_path / step, "0f3c", counts={"continued_epochs": 1}, metrics=metrics[step])

    def run(processes: TrialProcesses, name: str) -> tuple[int, float]:
        trials.main(str(processes.folder / f"{name}.request.json"))
        return 0, 1.5

    monkeypatch.setattr(trials, "call_step", call_step)
    monkeypatch.setattr(trials, "end_with_parent", lambda: None)
    monkeypatch.setattr(TrialProcesses, "_run", run)
    config = load_config({"name": "tiny", "corpus": {"uri": "corpus"}, "language": {"kind": "ngram"}})
    processes = TrialProcesses(config, "dataset", "manifest", "dev_wer", decodes, tmp_path)
    made = processes(Trial(7, {"language.alpha": 0.5}), 3)
    assert (made.value, made.cpu_seconds, made.continued_epochs, made.steps) == (0.1 if decodes else 0.2, 1.5, 1, 60)
    assert calls == [
        ("train", [0.5], ["dataset"]),
        *[("language", [0.5], [str(tmp_path / "train"), "manifest"])] * decodes,
    ]
    processes.metric = "dev_wer_greedy"
    study = Study(tmp_path, Space({"language.alpha": {"linear": [0, 2]}}), "random", 3)
    if decodes:
        study.run(processes, 1)
        assert study.trials[0].reason == "the metric is nan after 3 epochs"
        assert study.trials[0].lost_cpu_seconds == 1.5
    else:  # a wrong name does not cost twelve trainings
        with pytest.raises(SettingsError, match="--metric dev_wer_greedy: accepted: dev_wer, steps"):
            study.run(processes, 12)
        assert [trial.state for trial in study.trials] == ["running"]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "FakeHouse":
    return FakeHouse(tmp_path, monkeypatch)


class FakeHouse:
    """A folder with a config and a space, in which trainings, data and the gate cost nothing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.objective, self.gates = folder, Objective(), 0
        self.search = folder / "runs" / "searches" / "space"
        self.dataset = "/store/extract/one"
        write_yaml(folder / "config.yaml", {"name": "tiny", "corpus": {"uri": "corpus"}, "train": {"epochs": 9}})
        write_yaml(folder / "space.yaml", RANGES)
        monkeypatch.setattr(TrialProcesses, "train", self._train)
        monkeypatch.setattr(Search, "_prepare", lambda search, console: (self.dataset, "/store/convert/one"))
        monkeypatch.setattr("voxline.pipelines.search.search.run_pipeline", self._run_pipeline)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit status and output of `voxline search`."""
        result = CliRunner().invoke(app, ["search", *arguments])
        if isinstance(result.exception, VoxlineError):
            return result.exception.exit_status, str(result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    def run_asr(self, *arguments: str) -> tuple[int, str]:
        files = ("--config", str(self.folder / "config.yaml"), "--space", str(self.folder / "space.yaml"))
        return self.run("asr", *files, "--run-dir", str(self.folder / "runs"), *arguments)

    def _train(self, name: str, settings: dict[str, Any], epochs: int) -> Training:
        """Seeds differ by some points."""
        own = {key: settings[key] for key in RANGES}
        made = self.objective(Trial(0, {**own, "seed": settings.get("train.seed", 1)}), epochs)
        return dataclasses.replace(made, value=made.value + 0.001 * (settings.get("train.seed", 1) - 1))

    def _run_pipeline(self, config: RunConfig, run_dir: Path, console: object) -> tuple[RunRecord, None]:
        self.gates += 1
        record = RunRecord("asr", config.name, run_dir, config.plain(), pushed=True, reason="Pushed as version 1")
        return record, None


def write_yaml(file: Path, values: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(values), encoding="utf-8")


def test_a_search_ends_with_a_winner_that_three_seeds_and_the_gate_have_judged(house: FakeHouse) -> None:
    status, printed = house.run_asr("--trials", "6", "--set", "train.batch_size=8")
    assert status == 0, printed
    assert printed.count("  trial ") == 6
    assert "with 3 seeds: dev_wer" in printed
    assert "Pushed as version 1" in printed
    best = Search.open(house.search).study().finished()[0]
    winner = read_json(house.search / "winner.json")
    assert winner["settings"] == best.settings
    assert [one["value"] - winner["seeds"][0]["value"] for one in winner["seeds"]] == pytest.approx([0, 0.001, 0.002])
    merged = load_config([house.folder / "config.yaml", house.search / "best.yaml"]).plain()
    assert {key: get_key(merged, key) for key in RANGES} == best.settings
    assert get_key(merged, "train.batch_size") == 8
    page = (house.search / "search.html").read_text(encoding="utf-8")
    for expected in (
        "Pushed as version 1",
        "Parallel coordinates",
        "best so far",
        "CPU-min",
        "Slice: train.model.units",
    ):
        assert expected in page


def test_the_same_command_trains_nothing_and_asks_the_gate_once(house: FakeHouse) -> None:
    house.run_asr("--trials", "6")
    calls = house.objective.calls
    assert (calls, house.gates) == (6 + 3, 1)
    status, printed = house.run_asr("--trials", "6")
    assert (status, house.objective.calls, house.gates) == (0, calls, 1)
    assert "made 0 trainings; in all" in printed
    status, printed = house.run("resume", str(house.search), "--trials", "7", "--no-gate")
    assert status == 0, printed
    assert calls < house.objective.calls <= calls + 1 + 3


def test_a_search_is_resumed_with_what_it_was_begun_with(house: FakeHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number of trials, its seeds and whether there is a gate; also if it was stopped before its first trial."""
    prepare = Search._prepare

    def stopped(search: Search, console: object) -> tuple[str, str]:
        raise TransientError("the bucket does not answer")

    monkeypatch.setattr(Search, "_prepare", stopped)
    assert house.run_asr("--trials", "14", "--no-gate", "--seeds", "2")[0] == 75
    monkeypatch.setattr(Search, "_prepare", prepare)
    status, printed = house.run("resume", str(house.search))
    assert status == 0, printed
    assert (house.objective.calls, house.gates) == (14 + 2, 0)
    assert house.run("resume", str(house.search), "--budget", "1s")[0] == 0  # in place of a number of trials
    assert Search.open(house.search).limits == Limits(0, 1.0, 1, 2, False)
    assert house.objective.calls == 14 + 2
    house.run("resume", str(house.search), "--gate", "--trials", "14")
    assert (house.objective.calls, house.gates) == (14 + 2, 1)


def test_list_and_show_tell_what_was_found(house: FakeHouse) -> None:
    house.run_asr("--trials", "4", "--seeds", "0")
    status, printed = house.run("list", str(house.folder / "runs"))
    assert (status, printed.count("\n")) == (0, 1)
    assert "tpe        4 trials  dev_wer" in printed
    status, printed = house.run("show", str(house.search))
    values = [float(line.partition("dev_wer ")[2].partition("%")[0]) for line in printed.splitlines()[:4]]
    assert values == sorted(values)
    shown = json.loads(house.run("show", str(house.search), "--json")[1])
    assert [trial["number"] for trial in shown["trials"]] == [0, 1, 2, 3]
    assert json.loads(house.run("list", str(house.folder / "runs"), "--json")[1])[0]["trials"] == 4
    write_json(house.search.with_name("damaged") / "study.json", {"space": {}})
    status, printed = house.run("list", str(house.folder / "runs"))
    assert (status, printed.count("  dev_wer ")) == (0, 1)
    assert "damaged/study.json: it is empty" in printed


def test_what_would_mix_two_searches_is_refused(house: FakeHouse) -> None:
    assert house.run_asr("--trials", "2", "--seeds", "0")[0] == 0
    status, printed = house.run_asr("--trials", "2", "--set", "train.batch_size=4")
    assert status == 2
    assert "another search is here, with config.train.batch_size 16, not 4; give --name another one" in printed
    assert house.run_asr("--trials", "2", "--seeds", "0", "--set", "train.batch_size=4", "--name", "small")[0] == 0
    house.dataset = "/store/extract/another"
    status, printed = house.run("resume", str(house.search), "--trials", "3")
    assert status == 1
    assert "the corpus has changed since this search began" in printed
    assert house.run("resume", str(house.folder))[0] == 2


def test_options_that_cannot_be_are_refused_before_any_work(house: FakeHouse) -> None:
    status, printed = house.run_asr("--method", "halving")
    assert status == 2
    assert "give --set train.schedule=inverse_square_root" in printed
    assert "--budget '30'" in house.run_asr("--budget", "30")[1]
    assert "accepted: tpe, random, halving" in house.run_asr("--method", "grid")[1]
    assert "--name 'a/b'" in house.run_asr("--name", "a/b")[1]
    assert "--goal: it has an effect only with --compile" in house.run_asr("--goal", "0.05")[1]
    assert "--budget: it has no effect with --compile" in house.run_asr("--compile", "katib", "--budget", "1h")[1]
    assert house.objective.calls == 0
    status, printed = house.run_asr(
        "--method", "halving", "--set", "train.schedule=inverse_square_root", "--trials", "9"
    )
    assert status == 0, printed
    assert house.objective.epochs < 9 * 9 / 2 + 2 * 9  # two more seeds


def test_a_search_without_any_result_gives_a_reason(house: FakeHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(processes: TrialProcesses, name: str, settings: dict[str, Any], epochs: int) -> Training:
        raise TrialFailedError("train: 11 steps had a loss or gradient that is not finite")

    monkeypatch.setattr(TrialProcesses, "train", fail)
    status, printed = house.run_asr("--trials", "3")
    assert status == 1
    assert "no trial has a result: train: 11 steps had a loss or gradient that is not finite" in printed
    assert "not finite" in (house.search / "search.html").read_text(encoding="utf-8")


def test_the_command_starts_without_optuna() -> None:
    code = "import sys, voxline, voxline.pipelines.cli.main; print('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
