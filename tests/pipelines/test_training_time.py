"""How long a training takes: some steps of the proposed network, timed on some of the recordings."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.pipelines.test_init_pipelines import noises
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.scaffold import propose_config
from voxline.pipelines.local import training_time
from voxline.pipelines.local.training_time import (
    HELD_OUT,
    MOST_STEPS,
    SAMPLED,
    TrainingTime,
    describe_training_time,
    time_training,
)
from voxline.store.scratch import scratch_root


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["asr", "vocoder"])
def test_some_steps_of_the_proposed_network_are_timed_and_nothing_is_left(
    pipeline: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    proposal = propose_config(noises(tmp_path / "words", ["yes", "no"] * 20), pipeline=pipeline)
    before = set(scratch_root().iterdir())
    measured = time_training(proposal)
    assert set(scratch_root().iterdir()) == before
    assert capfd.readouterr().out == ""
    assert 1 <= measured.timed <= MOST_STEPS
    assert measured.step > 0
    assert measured.total > proposal.steps * measured.step
    assert measured.alone > 0


def test_the_sample_goes_through_the_proposed_steps_and_the_plan_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = propose_config(noises(tmp_path / "words", ["yes", "no"] * 40, speaker="s{}"))
    datasets: list[Dataset] = []

    def build(config: Any, dataset: str) -> tuple[None, None]:
        assert config.section("train").plain()["model"]["units"] == 64  # the proposed network
        datasets.append(Dataset.read(dataset))
        return None, None

    monkeypatch.setattr(training_time, "_build", build)
    monkeypatch.setattr(training_time, "_time_steps", lambda *_: ((7.0, 5.0), [(1.0, 0.5), (3.0, 0.5)]))
    planned = dataclasses.replace(proposal, steps=100, validated=480)
    measured = time_training(planned)
    (dataset,) = datasets
    assert dataset.counts == {"train": SAMPLED - HELD_OUT, "dev": HELD_OUT // 2, "test": HELD_OUT // 2}
    assert dataset.speeds == [1.0]
    # 480 utterances of dev are 30 batches of 16, at a third of a step each.
    assert measured == TrainingTime(step=2.0, timed=2, total=7 + 110 * 2.0, alone=5 + 110 * 0.5)
    assert describe_training_time(measured, planned.steps) == (
        "time       about 4 minutes of training on this machine: 100 steps of 2 s, 2 of them timed; about 1 minute if "
        "nothing else ran"
    )


def test_a_corpus_too_small_to_time_still_has_its_config(tmp_path: Path) -> None:
    corpus = noises(tmp_path / "words", ["yes", "no"])
    with pytest.raises(WorkError, match="only 2 recordings outside archives can be copied"):
        time_training(propose_config(corpus))
    file = tmp_path / "words.yaml"
    ended = CliRunner().invoke(app, ["config", "init", str(corpus), "-o", str(file)])
    assert (ended.exit_code, file.is_file()) == (0, True)
    assert "time       not known: only 2 recordings outside archives can be copied" in ended.stdout.splitlines()
    untimed = CliRunner().invoke(app, ["config", "init", str(corpus), "-o", str(file), "--force", "--no-timing"])
    assert untimed.exit_code == 0
    assert not any(line.startswith("time ") for line in untimed.stdout.splitlines())
