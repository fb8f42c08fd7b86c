"""`voxline time`: the stages of voices and recognizers, their items, and their percentiles."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tone_asr_model import MakeAsrModel
from tests.tone_tts_model import MakeTtsModel
from voxline.errors import SettingsError
from voxline.inference.timing import TimedStage, TimingInput, format_timing, time_model


def test_a_stage_has_the_statistics_of_its_iterations() -> None:
    seconds = np.random.default_rng(0).exponential(0.1, 40)
    found = TimedStage("vocoder", "samples", items=[100.0] * 40, seconds=seconds.tolist()).to_dict()
    assert found["items_per_second"] == pytest.approx(4_000 / seconds.sum())
    assert (found["mean"], found["deviation"]) == pytest.approx((seconds.mean(), seconds.std(ddof=1)))
    assert found["p90"] == pytest.approx(np.sort(seconds)[35] * 0.9 + np.sort(seconds)[36] * 0.1)
    assert found["p100"] == seconds.max()


def test_the_stages_of_a_voice(make_tts_model: MakeTtsModel) -> None:
    measured = time_model(make_tts_model(), TimingInput("12", length=7, batch=2, iterations=3))
    stages = {stage["stage"]: stage for stage in measured["stages"]}
    assert list(stages) == ["text", "encoder, decoder and Griffin-Lim", "vocoder", "storage", "all"]
    assert stages["text"]["items"] == 14  # two texts of seven symbols
    assert stages["all"]["mean"] == pytest.approx(sum(one["mean"] for name, one in stages.items() if name != "all"))
    assert stages["all"]["items"] == pytest.approx(stages["vocoder"]["items"] / 16_000)
    assert measured["model"]["vocoder"] == "Griffin-Lim"
    assert json.loads(json.dumps(measured)) == measured
    about, _, head, _, *rows = format_timing(measured)
    assert about.endswith("vocoder Griffin-Lim; 3 iterations of 2")
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in stages]
    assert head.count("|") == rows[0].count("|")


def test_the_stages_of_a_recognizer(make_asr_model: MakeAsrModel) -> None:
    measured = time_model(make_asr_model(), TimingInput(length=1.5, batch=2, iterations=2))
    stages = {stage["stage"]: stage for stage in measured["stages"]}
    assert list(stages) == ["reading", "network", "network and decoding", "storage", "all"]
    counted = sum(one["mean"] for name, one in stages.items() if name not in ("all", "network"))
    assert (stages["all"]["items"], stages["all"]["mean"]) == pytest.approx((3.0, counted))
    assert stages["storage"]["items"] == 2


def test_an_input_for_another_family_is_refused(
    make_tts_model: MakeTtsModel, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"--text is for voices, .*'asr'; give --audio"):
        time_model(make_asr_model(), TimingInput("one"))
    with pytest.raises(SettingsError, match=r"--audio and --vocoder do not go with .*'tts'"):
        time_model(make_tts_model(), TimingInput(audio=tmp_path / "a.wav"))
