"""When a training is skipped, and what the history cannot know for which a run trains all the same."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from tests.registry.published import exported, publish
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.forecast.step import run
from voxline.data.testing import NewExample, write_dataset
from voxline.notify.event import MetricValue, RunEvent, RunIdentity, RunVerdict, StepRecord
from voxline.notify.history import FOLDER, record_run
from voxline.registry.registry import Registry
from voxline.text.alphabet import Alphabet

DAY, NAME = 86_400, "asr"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A dataset, what validate said of it, and a registry with two versions."""
    features = FeatureSettings(sample_rate=16_000)
    examples = [NewExample(split, "a", split, np.zeros((10, features.bins), np.float32)) for split in ("train", "test")]
    write_dataset(tmp_path / "dataset", examples, features, Alphabet.from_name("english"))
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "validation.json").write_text(json.dumps({"checks": []}), encoding="utf-8")
    for number in (1, 2):
        publish(Registry(tmp_path / "registry", NAME), exported(tmp_path / f"model-{number}", f"weights {number}"))
    return tmp_path


def record(house: Path, *wers: float, until: float = 0.0) -> None:
    """Nights until so many days ago: the first model was promoted, the others refused."""
    hours = 10 * 0.01 / 3600
    for number, wer in enumerate(wers):
        ended = time.time() - (until + len(wers) - number) * DAY
        verdict: RunVerdict = "refused" if number else "promoted"
        steps = (StepRecord("extract", "succeeded", metrics={"train_hours": hours}),)
        identity = RunIdentity("asr", "nightly", NAME, id=f"night-{number:02d}", started=ended - 600)
        event = RunEvent(identity, verdict, "", ended, steps=steps, metrics={"wer": MetricValue(wer)})
        record_run(event, house / "registry" / FOLDER)


def ask(house: Path) -> tuple[bool, str]:
    """Whether it is skipped, and the headline."""
    settings = ForecastSettings(skip_below=0.2)
    output = run(
        house / "dataset", house / "validation", house / "store", settings, registry=house / "registry", model_name=NAME
    )
    document = json.loads(output.path("forecast").read_text("utf-8"))
    assert document["train"] == (not output.counts["skipped"])
    return bool(output.counts["skipped"]), document["heading"]


REFUSALS = [0.05 + 0.001 * (night % 3) for night in range(30)]


def test_a_training_that_would_be_refused_is_skipped(house: Path) -> None:
    record(house, *REFUSALS)
    skipped, heading = ask(house)
    assert skipped
    assert heading.startswith("Nothing was trained: a promotion has a probability of ")


def test_a_training_that_a_person_forces_is_not_skipped(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(house, *REFUSALS)
    monkeypatch.setenv("VOXLINE_FORCE_STEPS", "extract,train")
    skipped, heading = ask(house)
    assert not skipped
    assert heading.endswith("; --force train")


def test_a_metric_that_is_not_a_number_does_not_skip_every_run_to_come(house: Path) -> None:
    record(house, *REFUSALS[:15], math.nan, math.inf, *REFUSALS[15:])
    skipped, heading = ask(house)
    assert skipped
    assert "nan" not in heading


def test_it_trains_where_the_model_of_the_history_is_not_in_service(house: Path) -> None:
    record(house, *REFUSALS)
    Registry(house / "registry", NAME).rollback(note="hears nobody")
    skipped, heading = ask(house)
    assert not skipped
    assert heading.endswith("version 2 was rolled back")


def test_it_trains_where_nothing_is_in_service(house: Path) -> None:
    record(house, *REFUSALS)
    (house / "registry" / NAME).rename(house / "registry" / "other")
    skipped, heading = ask(house)
    assert not skipped
    assert "no model is in service" in heading


def test_it_trains_where_skipped_runs_leave_no_trace(house: Path) -> None:
    """As where the history can be read and not written: the skipped runs in a row would stay 0 for ever."""
    record(house, *REFUSALS, until=5.0)
    assert ask(house)[0]
    for file in (house / "registry" / FOLDER).iterdir():
        file.unlink()
    record(house, *REFUSALS, until=6.0)
    skipped, heading = ask(house)
    assert not skipped
    assert "the history has nothing of the time" in heading
