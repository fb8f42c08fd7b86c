"""A TTS corpus: one speaker in all splits, punctuation and pinyin in the texts, and no CTC."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.validate.takes import SMALL, Take, failed, fit, judged, of, speech, written
from voxline.components.validate.checks import TFDV_CHECKS
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.errors import WorkError

VOICE = {
    "small_splits": SMALL["small_splits"],
    "speaker_overlap": {"severity": "off"},
    "dominant_speaker": {"severity": "off"},
    "ctc_feasibility": {"severity": "off"},
}


def voice() -> list[Take]:
    """The fit corpus, by one speaker, with capitals at the beginning of sentences and marks at their end."""
    takes = fit()
    for number, take in enumerate(takes):
        take.speaker = "LJ"
        first, second, third = take.text.split()
        take.text = f"{first}, {second} - {third}{'.?!'[number % 3]}"
    return takes


def test_one_voice_passes_every_check_that_is_not_off(tmp_path: Path) -> None:
    work = run(written(tmp_path / "corpus", voice()), tmp_path / "store", ValidateSettings.of(VOICE))
    checks = json.loads(work.path("validation").read_text())["checks"]
    outcomes: dict[str, set[str]] = {}
    for one in checks:
        outcomes.setdefault(one["outcome"], set()).add(one["name"])
    assert outcomes["off"] == {"speaker_overlap", "dominant_speaker", "ctc_feasibility"}
    assert outcomes["not checked"] <= {"gate_margin", *(one.name for one in TFDV_CHECKS)}
    assert set(outcomes) - {"not checked"} == {"off", "passed"}


def test_as_it_comes_one_voice_is_warned_of_and_stops_nothing(tmp_path: Path) -> None:
    settings = ValidateSettings.of({"small_splits": VOICE["small_splits"]})
    work = run(written(tmp_path / "corpus", voice()), tmp_path / "store", settings)
    validation = json.loads(work.path("validation").read_text())
    assert validation["passed"] is True
    assert set(validation["warnings"]) == {"speaker_overlap", "dominant_speaker"}


def test_more_labels_than_frames_stop_a_recogniser_and_no_voice(tmp_path: Path) -> None:
    takes = voice()
    for take in of(takes, "train"):
        take.text *= 2
    manifest = written(tmp_path / "corpus", takes)
    loose: dict[str, Any] = {"speaking_rate": {"severity": "off"}, "sentence_overlap": {"severity": "off"}}
    with pytest.raises(WorkError, match="ctc_feasibility"):
        run(manifest, tmp_path / "a", ValidateSettings.of({**SMALL, **loose}))
    run(manifest, tmp_path / "b", ValidateSettings.of({**SMALL, **VOICE, **loose}))


def test_a_word_is_the_same_before_a_comma_and_before_none(tmp_path: Path) -> None:
    takes = voice()
    for take in of(takes, "test"):
        take.text = take.text.replace(",", "").replace(" -", ",")
    found = judged(tmp_path, takes, **VOICE)
    assert found["unseen_words"]["value"] == 0
    assert "word_balance" not in failed(found)


def test_the_speaking_rate_counts_words_not_punctuation(tmp_path: Path) -> None:
    takes = voice()
    takes[3].text = "Red..., " + "- " * 40 + "on!?"
    takes[4].text = "red" * 12
    found = judged(tmp_path, takes, **VOICE)["speaking_rate"]
    assert [one["note"] for one in found["offenders"]] == ["36.0 characters a second"]
    takes[3].samples = speech(3, 8.0)
    again = judged(tmp_path / "again", takes, **VOICE)["speaking_rate"]
    assert [(one["id"], one["note"]) for one in again["offenders"]] == [
        ("train-3", "0.6 characters a second"),
        ("train-4", "36.0 characters a second"),
    ]


def test_of_pinyin_the_syllables_count_as_words(tmp_path: Path) -> None:
    takes = voice()
    for number, take in enumerate(takes):
        take.text = f"ni{1 + number % 4} hao3 , zai4 jian{1 + number // 4 % 5} ."
    takes[7].text = " ".join(f"ma{1 + place % 5}" for place in range(12))
    rate = {"speaking_rate": {"unit": "words", "min_rate": 1, "max_rate": 9, "threshold": 0}}
    loose = {"sentence_overlap": {"severity": "off"}, "identical_transcripts": {"severity": "off"}}
    found = judged(tmp_path, takes, **VOICE, **rate, **loose)["speaking_rate"]
    assert [(one["id"], one["note"]) for one in found["offenders"]] == [("train-7", "12.0 words a second")]


def test_a_mark_that_train_never_has_is_a_symbol_that_is_never_learned(tmp_path: Path) -> None:
    takes = voice()
    of(takes, "test")[0].text += ";"
    found = judged(tmp_path, takes, **VOICE)["unseen_characters"]
    assert (found["outcome"], found["value"]) == ("failed", 1)
    assert found["offenders"][0]["note"] == "has ';'"
