"""A fault fails its own check, and the checks count correctly."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validate.takes import RATE, Take, failed, fit, judged, of, speech
from voxline.beam.settings import RunnerSettings
from voxline.components.validate.checks import CHECKS, TFDV_CHECKS, leakage, transcripts
from voxline.components.validate.checks.check import CheckFinding, CheckResult
from voxline.components.validate.corpus import CheckedCorpus
from voxline.components.validate.settings import ValidateSettings
from voxline.data.manifest import Utterance, write_manifest
from voxline.errors import SettingsError
from voxline.text.alphabet import min_ctc_frames


def test_every_check_has_its_settings() -> None:
    fields = set(ValidateSettings.model_fields) - {"tfdv", "schema_", "frames_per_second", "max_listed"}
    fields -= set(RunnerSettings.model_fields)
    assert {one.name for one in (*CHECKS, *TFDV_CHECKS)} == fields


Fault = Callable[[list[Take]], Any]
FAULTS: dict[str, tuple[Fault, set[str], list[str]]] = {}
"""By the check that must fail: how to spoil a good corpus, all checks that fail then, the first offenders."""


def fault(name: str, also: set[str] = set(), offenders: list[str] | None = None) -> Callable[[Fault], Fault]:  # noqa: B006
    def register(spoil: Fault) -> Fault:
        FAULTS[name] = (spoil, {name, *also}, offenders or [])
        return spoil

    return register


@fault("duplicate_ids", offenders=["train-0"])
def an_id_twice(takes: list[Take]) -> None:
    takes[1].id = "train-0"


@fault("duplicate_audio", offenders=["train-7"])
def a_recording_twice(takes: list[Take]) -> None:
    takes[7].samples, takes[7].text = takes[3].samples, takes[3].text


@fault("contradictory_transcripts", also={"duplicate_audio"}, offenders=["train-7"])
def a_recording_with_two_transcripts(takes: list[Take]) -> None:
    takes[7].samples = takes[3].samples


@fault("recording_overlap", offenders=["test-0"])
def a_recording_of_train_in_test(takes: list[Take]) -> None:
    first = of(takes, "test")[0]
    first.samples, first.text = takes[3].samples, takes[3].text


@fault("speaker_overlap", offenders=["test-0"])
def a_speaker_of_train_in_test(takes: list[Take]) -> None:
    of(takes, "test")[0].speaker = "train-voice-0"


@fault("judged_drafts", offenders=["dev-0", "test-0"])
def drafts_in_dev_and_test(takes: list[Take]) -> None:
    for take in (of(takes, "dev")[0], of(takes, "test")[0], of(takes, "train")[0]):
        take.extra = {"drafted_by": "asr@3 (4f1c09aa2be0)"}


@fault("sentence_overlap", offenders=["dev-0", "dev-1", "test-0"])
def sentences_of_train_in_dev_and_test(takes: list[Take]) -> None:
    for take, model in zip([*of(takes, "dev")[:2], of(takes, "test")[0]], takes, strict=False):
        take.text = model.text


@fault("ctc_feasibility", offenders=["train-2"])
def more_labels_than_frames(takes: list[Take]) -> None:
    takes[2].text = "red green blue lamp door fan right"


@fault("speaking_rate", offenders=["train-4", "train-3"])
def words_that_do_not_fit_their_duration(takes: list[Take]) -> None:
    takes[3].samples, takes[4].samples = speech(3, 8.0), speech(4, 16.0)


@fault("clipping", offenders=["train-1", "train-0"])
def samples_at_full_scale(takes: list[Take]) -> None:
    takes[0].samples[:40], takes[1].samples[:80] = 1.0, 1.0


@fault("level", offenders=["train-1", "train-0"])
def too_loud_and_too_quiet(takes: list[Take]) -> None:
    uniform = np.random.default_rng(0).uniform(-1, 1, RATE)
    takes[0].samples, takes[1].samples = 0.99 * uniform, 0.003 * uniform[::-1]


@fault("silence", offenders=["train-1", "train-0"])
def recordings_of_mostly_nothing(takes: list[Take]) -> None:
    takes[0].samples[RATE // 8 :], takes[1].samples[RATE // 16 :] = 0.0, 0.0


@fault("constant_audio", offenders=["train-5"])
def a_tone_that_passes_for_speech(takes: list[Take]) -> None:
    takes[5].samples = 0.2 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)


@fault("character_balance", also={"word_balance"})
def other_characters_in_test(takes: list[Take]) -> None:
    for place, take in enumerate(of(takes, "test")):
        take.text = ("on " * (place + 2)).strip()


@fault("word_balance")
def other_words_in_test_of_the_same_characters(takes: list[Take]) -> None:
    for take in of(takes, "test")[:6]:
        take.text = take.text[::-1]


@fault("unseen_characters", offenders=["test-0"])
def a_character_that_train_has_not(takes: list[Take]) -> None:
    of(takes, "test")[0].text += " quiz"


@fault("unseen_words", also={"word_balance"}, offenders=["dev-0"])
def words_that_train_has_not(takes: list[Take]) -> None:
    for take in [*of(takes, "dev"), *of(takes, "test")]:
        take.text = take.text[::-1]


@fault(
    "identical_transcripts",
    also={"character_balance", "word_balance", "unseen_words", "unseen_characters", "frequent_transcript"},
)
def one_transcript_for_all_of_train(takes: list[Take]) -> None:
    for take in of(takes, "train"):
        take.text = "door lamp"


@fault("value_texts", offenders=["train-0", "train-1"])
def a_column_of_lengths(takes: list[Take]) -> None:
    for take in of(takes, "train"):
        take.extra = {"text_doubt": "number"}


@fault("bracketed_texts", offenders=["train-0"])
def words_in_brackets(takes: list[Take]) -> None:
    for place, take in enumerate(takes[:3]):
        take.extra = {"text_doubt": "[noise]\n(sic)" if place else "(sic)"}


@fault("cut_recordings", offenders=["train-2"])
def durations_in_whole_seconds(takes: list[Take]) -> None:
    takes[2].extra = takes[4].extra = {"text_doubt": "duration"}


@fault("marked_rows", offenders=["train-1"])
def rows_that_their_table_rejects(takes: list[Take]) -> None:
    takes[1].extra = {"text_doubt": "(sic)\nrow: status rejected"}


@fault("frequent_transcript", offenders=["train-0"])
def a_text_that_stands_for_none(takes: list[Take]) -> None:
    for take in of(takes, "train")[:12]:
        take.text = "lamp fan door"


@fault("personal_data", offenders=["train-2", "train-4"])
def numbers_and_names_of_people(takes: list[Take]) -> None:
    takes[2].samples, takes[4].samples = speech(2, 4.0), speech(4, 4.0)
    takes[2].text = "call five five five oh one nine nine"
    takes[4].text = "我叫王小明 电话 13800138000"


@fault("unlike_headers", offenders=["train-0"])
def headers_of_two_sample_rates(takes: list[Take]) -> None:
    takes[0].measured = {"decoder_notes": "header: 16000 Hz, and 16000 bytes a second, as of 8000 Hz"}
    takes[1].measured = {"decoder_notes": "part of the stream was skipped"}


@fault("unlike_channels", offenders=["train-0"])
def both_sides_of_a_call(takes: list[Take]) -> None:
    for place, take in enumerate(takes):
        take.measured = {"channel_correlation": 0.99 if place > 1 else 0.02}


@fault("antiphase_channels", offenders=["train-0"])
def channels_that_cancel(takes: list[Take]) -> None:
    for place, take in enumerate(takes):
        take.measured = {"channel_correlation": -0.98 if not place else 0.99}


@fault("dominant_speaker")
def one_voice_for_all_of_train(takes: list[Take]) -> None:
    for take in of(takes, "train"):
        take.speaker = "train-voice-0"


@fault("duration_balance")
def longer_takes_in_test(takes: list[Take]) -> None:
    for place, take in enumerate(of(takes, "test")):
        take.samples = speech(100 + place, 2.5)


@fault("level_balance")
def quieter_takes_in_test(takes: list[Take]) -> None:
    for take in of(takes, "test"):
        take.samples = take.samples * 0.2


@fault("empty_splits")
def no_dev(takes: list[Take]) -> None:
    takes[:] = [take for take in takes if take.split != "dev"]


@fault("small_splits")
def a_small_test(takes: list[Take]) -> None:
    del takes[-3:]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_fails_its_check(name: str, tmp_path: Path) -> None:
    spoil, failing, offenders = FAULTS[name]
    takes = fit()
    spoil(takes)
    checks = judged(tmp_path, takes)
    assert failed(checks) == failing
    found = checks[name]
    assert found["passed"] is False
    assert found["value"] > found["threshold"]
    assert [one["id"] for one in found["offenders"]][: len(offenders)] == offenders


def test_too_many_rejects_fail_their_check(tmp_path: Path) -> None:
    checks = judged(tmp_path, fit(), rejects=3)
    assert failed(checks) == {"rejects_share"}
    assert checks["rejects_share"]["value"] == pytest.approx(3 / 63, abs=1e-6)
    assert "truncated 3" in checks["rejects_share"]["detail"]


def test_a_margin_that_test_cannot_show_is_told_before_training(tmp_path: Path) -> None:
    takes = fit()
    words = sum(len(take.text.split()) for take in of(takes, "test"))
    checks = judged(tmp_path, takes, gate_margin={"margin": 0.005})
    assert failed(checks) == {"gate_margin"}
    least = -math.log(0.025) / words
    assert checks["gate_margin"]["value"] == pytest.approx(least / 0.005, rel=1e-4)
    detail = checks["gate_margin"]["detail"]
    assert detail.startswith(f"{words} words in test show {100 * least:.2f} points at best, and the margin is 0.50: ")
    proposed = float(detail.rpartition("max_regression.wer: ")[2])
    assert failed(judged(tmp_path, takes, gate_margin={"margin": proposed})) == set()
    assert judged(tmp_path, takes, gate_margin={"margin": 0.0})["gate_margin"]["outcome"] == "not checked"


def test_the_doubts_of_a_line_are_counted_by_their_kind(tmp_path: Path) -> None:
    takes = fit()
    takes[1].extra = {"text_doubt": "(sic)\nrow: status rejected\nduration"}
    takes[2].extra = {"text_doubt": "number\nrow: status rejected\nrow: quality low"}
    checks = judged(tmp_path, takes)
    count = len(takes)
    values = {name: round(found["value"] * count) for name, found in checks.items() if name in DOUBTED}
    assert values == {"value_texts": 1, "bracketed_texts": 1, "cut_recordings": 1, "marked_rows": 2}
    assert "status rejected 2, quality low 1, such as train-1" in checks["marked_rows"]["detail"]
    assert "(sic) 1, such as train-1" in checks["bracketed_texts"]["detail"]


DOUBTED = ("value_texts", "bracketed_texts", "cut_recordings", "marked_rows")


def test_every_check_has_a_fault_that_fails_it() -> None:
    assert {*FAULTS, "rejects_share", "gate_margin"} == {one.name for one in CHECKS}


@pytest.mark.parametrize("off", ["off", False])  # YAML reads an unquoted off as false
def test_a_check_that_is_off_is_not_run(tmp_path: Path, off: Any) -> None:
    takes = fit()
    a_recording_of_train_in_test(takes)
    checks = judged(tmp_path, takes, recording_overlap={"severity": off})
    assert failed(checks) == set()
    found = checks["recording_overlap"]
    assert (found["outcome"], found["passed"], found["value"]) == ("off", None, None)


def test_a_higher_threshold_lets_a_check_pass(tmp_path: Path) -> None:
    takes = fit()
    a_speaker_of_train_in_test(takes)
    assert failed(judged(tmp_path, takes, speaker_overlap={"threshold": 0.05})) == set()


def test_a_misspelt_setting_is_refused_by_its_key() -> None:
    with pytest.raises(SettingsError, match=r"'speaker_overlap.treshold'; did you mean 'speaker_overlap.threshold'"):
        ValidateSettings.of({"speaker_overlap": {"treshold": 1}})


def test_max_listed_bounds_the_listed_offenders_but_not_the_count(tmp_path: Path) -> None:
    takes = fit()
    for take in of(takes, "test"):
        take.speaker = "train-voice-0"
    found = judged(tmp_path, takes, max_listed=3)["speaker_overlap"]
    assert found["count"] == 10
    assert len(found["offenders"]) == 3


utterances = st.lists(
    st.builds(
        Utterance,
        id=st.uuids().map(str),
        audio_filepath=st.just("a.wav"),
        duration=st.floats(0.1, 0.6),
        text=st.text("ab ", min_size=1, max_size=20),
        speaker=st.sampled_from(["", "x", "y"]),
        split=st.sampled_from(["train", "dev", "test"]),
        audio_hash=st.sampled_from(["", "1", "2", "3", "4"]),
    ),
    max_size=12,
)


def columns(lines: list[Utterance], folder: Path) -> CheckedCorpus:
    write_manifest(folder / "manifest.jsonl", lines)
    return CheckedCorpus.read(folder)


@settings(deadline=None, max_examples=60)
@given(utterances)
def test_ctc_feasibility_equals_a_count_of_each_utterance(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance]
) -> None:
    corpus = columns(lines, tmp_path_factory.mktemp("lines"))
    found = transcripts.ctc_feasibility(corpus, ValidateSettings(frames_per_second=33.3))
    train = [one for one in lines if one.split == "train"]
    slow = [
        one.id for one in train
        if int(float(np.float32(one.duration)) * 33.3) < min_ctc_frames([ord(letter) for letter in one.text])
    ]  # fmt: skip
    assert [corpus.utterance(row).id for row in found.offenders] == slow
    assert found.value == (len(slow) / len(train) if train else None)


@settings(deadline=None, max_examples=60)
@given(utterances)
def test_recording_overlap_equals_a_comparison_of_all_pairs(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Utterance]
) -> None:
    lines = [one.replace(duration=1.0) for one in lines]
    corpus = columns(lines, tmp_path_factory.mktemp("lines"))
    found = leakage.recording_overlap(corpus, ValidateSettings())
    before = {"train": set(), "dev": {"train"}, "test": {"train", "dev"}}
    leaking = {
        one.id for one in lines for other in lines
        if one.audio_hash and one.audio_hash == other.audio_hash and other.split in before[one.split]
    }  # fmt: skip
    assert {corpus.utterance(row).id for row in found.offenders} == leaking
    for row in found.offenders.tolist():
        assert "same samples as" in found.describe(row)


def test_a_value_never_reads_as_the_threshold_that_it_exceeds() -> None:
    check = next(check for check in CHECKS if check.name == "word_balance")
    own = ValidateSettings().word_balance

    def shown(value: float) -> str:
        return CheckResult(check, own, "failed" if value > own.threshold else "passed", CheckFinding(value, "")).value

    assert own.threshold == 0.1
    assert [shown(value) for value in (0.09996, 0.1, 0.10004, 0.2)] == [
        "0.100 bits", "0.100 bits", "0.10004 bits", "0.200 bits",
    ]  # fmt: skip
