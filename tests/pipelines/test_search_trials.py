"""A trial of `voxline search`: its space, its settings, its process, and what it may fail by."""

import datetime
import errno
import math
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.objectives import RANGES
from voxline.errors import PreconditionError, SettingsError, TransientError, WorkError
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.search import trials
from voxline.pipelines.search.space import Space, with_settings
from voxline.pipelines.search.study import Study
from voxline.pipelines.search.trial_files import Trial, TrialFailedError
from voxline.pipelines.search.trials import TrialProcesses, trial_overlay
from voxline.store.step_cache import StepOutput


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

    def call_step(step: str, config: RunConfig, inputs: dict[str, str]) -> StepOutput:
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

    def call_step(step: str, config: RunConfig, inputs: dict[str, str]) -> StepOutput:
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
        ("train", [0.5], {"dataset": "dataset"}),
        *[("language", [0.5], {"model": str(tmp_path / "train"), "manifest": "manifest"})] * decodes,
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
