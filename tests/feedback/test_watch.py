"""What captures say of a version: quiet, drifted in what, or too few; for people and for a scheduler."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.feedback.judged_model import capture, push_judged, recordings, sentences
from voxline.errors import SettingsError, WorkError
from voxline.feedback.watch import Watched, compare_captures
from voxline.metrics.wer_estimate import BackTest, WerEstimate
from voxline.pipelines.cli.main import app


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    push_judged(folder / "registry", folder / "model", {"seven": "six"})
    return folder / "registry"


def run(root: Path, captures: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["watch", "asr", "--registry", str(root), "--captures", str(captures), *more])


def test_the_same_kind_of_audio_is_quiet(root: Path, tmp_path: Path) -> None:
    texts = sentences(60, seed=7)
    capture(root, tmp_path, texts, recordings(texts, 8))
    result = run(root, tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "nothing has drifted"
    assert "asr 1: 60 clips, beside 120 test utterances" in result.output


def test_noise_is_named_and_the_status_is_for_a_scheduler(root: Path, tmp_path: Path) -> None:
    texts = sentences(60, seed=7)
    capture(root, tmp_path, texts, recordings(texts, 8, noise=0.05))
    result = run(root, tmp_path, "--json")
    assert result.exit_code == 3, result.output
    found = json.loads(result.output)
    assert found["status"] == "drifted"
    assert "6000-8000 Hz (dB)" in found["drifted"]
    assert "duration (s)" not in found["drifted"]
    table = run(root, tmp_path).output
    assert "the audio itself has drifted: the WER may be far above the estimate" in table
    assert run(root, tmp_path, "--hours", "0.0001").exit_code == 0, "no clip is so new"


def test_a_few_clips_alarm_nobody(root: Path, tmp_path: Path) -> None:
    texts = sentences(29, seed=7)
    capture(root, tmp_path, texts, recordings(texts, 8, noise=0.3))
    result = run(root, tmp_path)
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "too few clips to compare; 30 are enough")


def test_texts_that_are_never_heard_are_named(root: Path, tmp_path: Path) -> None:
    texts = sentences(60, seed=7)
    waveforms = recordings(texts, 8)
    capture(root, tmp_path, texts, [one if index % 3 else np.zeros_like(one) for index, one in enumerate(waveforms)])
    found = compare_captures(root, "asr", tmp_path)
    assert "empty" in found.drifted
    assert "wer" not in found.drifted
    assert found.wer is not None
    assert found.wer.value < 0.15, "silence has no words that could be wrong"


def test_an_estimate_that_was_not_tested_alarms_nobody() -> None:
    tested = BackTest([("speaker", "p0", 0.1, 0.1)], 0.0, 0.0)
    for back_test, expected in ((tested, ["wer"]), (BackTest([], math.nan, math.nan), [])):
        estimate = WerEstimate(0.3, 0.25, 0.35, back_test)
        assert Watched("asr", 1, 60, 120, [], estimate, 0.1, 0.05, 0.15).drifted == expected


def test_json_has_null_where_a_back_test_is_not_possible(root: Path, tmp_path: Path) -> None:
    texts = sentences(30, seed=7)
    capture(root, tmp_path, texts, recordings(texts, 8))
    evaluation = root / "asr" / "1" / "evaluation" / "utterances.jsonl"
    lines = evaluation.read_text()
    try:
        slices = [json.dumps(json.loads(line) | {"slices": {}}) + "\n" for line in lines.splitlines()]
        evaluation.write_text("".join(slices))
        found = json.loads(run(root, tmp_path, "--json").output, parse_constant=pytest.fail)
    finally:
        evaluation.write_text(lines)
    assert found["wer"]["back_test"] == {"slices": [], "mean_error": None, "deviation": None}


def test_what_cannot_be_compared_is_said(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--alpha 0\.0001: a share from 0\.001"):
        compare_captures(root, "asr", tmp_path, alpha=1e-4)
    with pytest.raises(WorkError, match="no captures here"):
        compare_captures(root, "asr", tmp_path / "absent")
    evaluation = root / "asr" / "1" / "evaluation" / "utterances.jsonl"
    lines = evaluation.read_text()
    try:
        evaluation.write_text(lines.replace("bands_db", "band"))
        with pytest.raises(WorkError, match="evaluated by an earlier release"):
            compare_captures(root, "asr", tmp_path)
    finally:
        evaluation.write_text(lines)
