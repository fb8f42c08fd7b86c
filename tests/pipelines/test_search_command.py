"""`voxline search`, the command: its winner, its page, its refusals, with an objective that costs nothing."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.pipelines.objectives import RANGES, Objective
from voxline.errors import TransientError, VoxlineError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local.run_record import RunRecord
from voxline.pipelines.search.search import Limits, Search
from voxline.pipelines.search.trial_files import Training, Trial, TrialFailedError
from voxline.pipelines.search.trials import TrialProcesses
from voxline.store.files import read_json, write_json


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

    def _train(self, name: str, settings: dict[str, Any], epochs: int, rival: str = "") -> Training:
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_search_ends_at_its_goal_and_is_extended_by_another(house: FakeHouse) -> None:
    goal = ("--seeds", "0", "--goal", "1")
    assert house.run_asr("--trials", "6", *goal)[0] == 0
    assert (house.objective.calls, Search.open(house.search).limits.goal) == (1, 1.0)
    assert house.run("resume", str(house.search))[0] == 0
    assert house.objective.calls == 1
    assert house.run("resume", str(house.search), "--goal", "0")[0] == 0
    assert house.objective.calls == 6


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


def test_a_search_on_a_version_notices_its_purge(house: FakeHouse) -> None:
    """The number stays, and the content is another one."""
    version = house.folder / "datasets" / "digits" / "7"
    write_json(version / "version.json", {"number": 7, "key": "before", "at": ""})
    house.dataset = str(version)
    assert house.run_asr("--trials", "2", "--seeds", "0")[0] == 0
    assert house.run("resume", str(house.search), "--trials", "3")[0] == 0
    write_json(version / "version.json", {"number": 7, "key": "after", "at": ""})
    status, printed = house.run("resume", str(house.search), "--trials", "4")
    assert (status, "the corpus has changed since this search began" in printed) == (1, True)


@pytest.mark.slow
def test_a_search_whose_trials_another_version_chose_is_not_continued(house: FakeHouse) -> None:
    """It is listed and shown; random settings are chosen as ever, so a random search continues."""
    for method in ("tpe", "random"):
        run = ("--trials", "3", "--seeds", "0", "--method", method, "--name", method)
        assert house.run_asr(*run)[0] == 0
        folder = house.search.with_name(method)
        of_before = {key: value for key, value in read_json(folder / "study.json").items() if key != "proposals"}
        write_json(folder / "study.json", of_before)
        trials = [(folder / "trials" / f"{number:04d}.json").read_bytes() for number in range(3)]
        calls = house.objective.calls
        resumed = house.run("resume", str(folder), "--trials", "4")
        if method == "random":
            assert (resumed[0], house.objective.calls) == (0, calls + 1)
            continue
        for status, printed in (resumed, house.run_asr(*run)):
            assert status == 2
            assert f"{folder}: the search here was started by another version" in printed
            assert "give --name another one" in printed
        assert (house.objective.calls, read_json(folder / "study.json")) == (calls, of_before)
        assert [file.read_bytes() for file in sorted((folder / "trials").glob("[0-9]*.json"))] == trials
        assert house.run("show", str(folder))[1].count(": dev_wer ") == 3
        assert "tpe        3 trials" in house.run("list", str(house.folder / "runs"))[1]


@pytest.mark.slow
def test_options_that_cannot_be_are_refused_before_any_work(house: FakeHouse) -> None:
    status, printed = house.run_asr("--method", "halving")
    assert status == 2
    assert "give --set train.schedule=inverse_square_root" in printed
    assert "--budget '30'" in house.run_asr("--budget", "30")[1]
    assert "accepted: tpe, random, halving" in house.run_asr("--method", "grid")[1]
    assert "--name 'a/b'" in house.run_asr("--name", "a/b")[1]
    assert "--output: it has an effect only with --compile" in house.run_asr("--output", "x.yaml")[1]
    assert "--prune 0.2: from 0.5 to below 1" in house.run_asr("--prune", "0.2")[1]
    write_yaml(house.folder / "lengths.yaml", {"train.epochs": {"integer": [2, 9]}})
    varied = house.run_asr("--prune", "0.95", "--space", str(house.folder / "lengths.yaml"))[1]
    assert "--prune 0.95: train.epochs varies" in varied
    assert "--prune 0.95: it compares words on dev" in house.run_asr("--prune", "0.95", "--metric", "dev_cer")[1]
    steps = ("--set", "train.evaluate_steps=5")
    assert "train.evaluate_steps is 5; it compares after" in house.run_asr("--prune", "0.95", *steps)[1]
    assert "--budget: it has no effect with --compile" in house.run_asr("--compile", "kfp", "--budget", "1h")[1]
    assert house.objective.calls == 0
    status, printed = house.run_asr(
        "--method", "halving", "--set", "train.schedule=inverse_square_root", "--trials", "9"
    )
    assert status == 0, printed
    assert house.objective.epochs < 9 * 9 / 2 + 2 * 9  # two more seeds


def test_a_search_without_any_result_gives_a_reason(house: FakeHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(processes: TrialProcesses, name: str, settings: dict[str, Any], epochs: int, rival: str = "") -> Training:
        raise TrialFailedError("train: 11 steps had a loss or gradient that is not finite")

    monkeypatch.setattr(TrialProcesses, "train", fail)
    status, printed = house.run_asr("--trials", "3")
    assert status == 1
    assert "ended: train: 11 steps had a loss or gradient that is not finite" in printed
    assert "no winner: no trial has a result" in printed
    assert "not finite" in (house.search / "search.html").read_text(encoding="utf-8")


def test_the_command_starts_without_optuna() -> None:
    code = "import sys, voxline, voxline.pipelines.cli.main; print('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
