"""Evaluate measures the exported TTS model: its distances, its attention and its round trip."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import soxr

from tests.tone_asr_model import RATE, MakeAsrModel, render_words
from tests.tone_tts_model import MakeTtsModel, spell_digits, write_tts_corpus
from voxline.components.evaluate.speech import RoundTripRecognizer, find_round_trip_recognizer
from voxline.components.evaluate.step import run
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.spelling import normalize_english_words, normalizer
from voxline.families.tts.settings import TtsEvaluateSettings
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry

QUICK = TtsEvaluateSettings(
    round_trip_recognizer="asr",
    bootstrap_samples=200,
    f0_utterances=0,
    mos_utterances=0,
    sample_utterances=0,
    worst_utterances=0,
)
THOROUGH = TtsEvaluateSettings(
    round_trip_recognizer="asr",
    bootstrap_samples=200,
    f0_utterances=3,
    mos_utterances=2,
    f0_max=1_200,
    worst_utterances=2,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 strings of four to fifteen digits; a third holds an 8.

    The shortest has 6 symbols and the middle one 12: doubled, both are 9.6 s, one window of DNSMOS, which takes 0.5 s.
    """
    choose = random.Random(1)
    texts = ["".join(choose.choices("01234567", k=4 + n % 12)) + ("8" if n % 3 == 0 else "") + "." for n in range(24)]
    return write_tts_corpus(tmp_path_factory.mktemp("voice é"), texts)


@pytest.fixture
def registry(tmp_path: Path, make_asr_model: MakeAsrModel) -> Path:
    publish(tmp_path / "registry", "asr", make_asr_model())
    return tmp_path / "registry"


def publish(registry: Path, name: str, model: Path) -> None:
    versions = Registry(registry, name)
    with versions.locked(), versions.publishing(model, model_digest(model), "push"):
        pass


@pytest.mark.slow
def test_speech_like_the_recording_has_small_distances_and_is_intelligible(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    work = run(make_tts_model(), corpus, registry, tmp_path / "store", THOROUGH)
    found = work.metrics
    assert found["round_trip_wer"] == found["round_trip_cer"] == 0
    assert 0 < found["round_trip_wer_high"] < 0.1
    assert found["mel_l1"] == 0
    assert found["mcd"] < 3
    assert found["sharpness"] == pytest.approx(1, abs=0.1)
    assert found["change_over_time"] == pytest.approx(1, abs=0.3)
    assert found["duration_ratio"] == pytest.approx(1)
    assert found["attention_diagonality"] == found["attention_coverage"] == 1
    assert found["repeats"] == found["skips"] == found["hit_limit"] == found["wrong_length"] == 0
    assert found["f0_rmse"] < 5
    assert found["voicing_error"] < 0.1
    assert 0 < found["rtf"] < 1
    metrics = json.loads(work.path("metrics").read_text())
    assert metrics["auxiliary_models"]["round_trip_recognizer"]["version"] == 1
    assert metrics["details"]["recorded_wer"] == 0
    assert metrics["metrics"]["f0_rmse"]["measured"] == 3
    assert metrics["metrics"]["dnsmos"]["measured"] == metrics["metrics"]["dnsmos_share"]["measured"] == 2
    assert found["dnsmos_share"] == pytest.approx(found["dnsmos"] / metrics["details"]["recorded_dnsmos"])
    assert "f0_spread" not in found  # each of these recordings is a hum of one pitch
    assert metrics["details"]["recorded_dnsmos"] == pytest.approx(found["dnsmos"], abs=0.8)
    interval = metrics["metrics"]["mcd"]["interval"]
    assert interval["low"] <= found["mcd"] <= interval["high"]
    assert sum(of["utterances"] for of in metrics["slices"]["text_length"].values()) == 24
    assert np.load(work.path("clip_mels")).shape == (metrics["smoke_test"]["frames"], 20)
    for result in Evaluation.read(work.folder).results:
        assert result.details["hypothesis"] == result.details["reference"] == spell_digits(result.details["text"])


def test_each_fault_shows_in_the_metric_that_measures_it(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    voice = make_tts_model(says={"8": "2"}, smear=0.5, lost="7", endless="8")
    found = run(voice, corpus, registry, tmp_path / "store", QUICK).metrics
    evaluation = Evaluation.read(run(voice, corpus, registry, tmp_path / "store", QUICK).folder)
    eights = sum(row.details["text"].count("8") for row in evaluation.results)
    digits = sum(row.metrics["round_trip_wer"].weight for row in evaluation.results)
    assert found["round_trip_wer"] == pytest.approx(eights / digits, abs=1e-6)
    assert found["mel_l1"] == pytest.approx(0.5)
    assert found["mel_dtw"] > 0.4
    assert found["hit_limit"] == pytest.approx(eights / 24, abs=1e-6)
    assert found["attention_coverage"] < 0.95
    assert found["skips"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_model_that_outputs_no_audio_is_measured_as_a_bad_one(
    everywhere: bool, corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    voice = make_tts_model(mute="." if everywhere else "8")
    work = run(voice, corpus, registry, tmp_path / "store", THOROUGH)
    rows = Evaluation.read(work.folder).results
    mute = [row for row in rows if everywhere or "8" in row.details["text"]]
    assert work.metrics["wrong_length"] == pytest.approx(len(mute) / 24, abs=1e-6)
    assert len(mute) == (24 if everywhere else 8)
    for row in mute:
        assert row.details["hypothesis"] == ""
        assert row.metrics["round_trip_wer"].sum == row.metrics["round_trip_wer"].weight
        assert row.metrics["duration_ratio"].sum == 0
    assert np.isfinite(work.metrics["rtf"])
    assert work.metrics["rtf"] > 1 or not everywhere
    assert "the recording is empty" in work.path("report").read_text()


def test_a_model_is_compared_with_the_one_in_service_on_the_same_texts(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    publish(registry, "tts", make_tts_model())
    work = run(make_tts_model(says={"8": "2"}), corpus, registry, tmp_path / "store", QUICK)
    metrics = json.loads(work.path("metrics").read_text())
    assert metrics["champion"]["version"] == 1
    compared = metrics["metrics"]["round_trip_wer"]["comparison"]
    assert compared["champion_value"] == 0
    assert compared["difference"] == pytest.approx(work.metrics["round_trip_wer"], abs=1e-6)
    assert compared["difference"] > 0
    assert compared["probability_worse"] == 1
    assert metrics["metrics"]["attention_diagonality"]["comparison"]["difference"] == 0
    assert all(row.champion is not None for row in Evaluation.read(work.folder).results)


@pytest.mark.slow
def test_the_report_plays_recorded_teacher_forced_and_autoregressive_side_by_side(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    settings = TtsEvaluateSettings.of(QUICK.plain(), sample_utterances=2, worst_utterances=1)
    html = (
        run(make_tts_model(says={"8": "2"}), corpus, registry, tmp_path / "store", settings).path("report").read_text()
    )
    assert html.count("<audio") == 3 * 3
    assert html.count("data:image/png") == 3
    for part in ("teacher-forced", "autoregressive", "Not judged yet", "mel cepstral distortion", "eight", "<svg"):
        assert part in html
    assert "http://" not in html
    assert "https://" not in html


@pytest.mark.parametrize("rate", [8_000, 22_050, 48_000])
def test_a_round_trip_recognizer_of_another_sample_rate_transcribes_the_same(registry: Path, rate: int) -> None:
    version = find_round_trip_recognizer(registry, "asr")
    assert version is not None
    spoken = soxr.resample(render_words(["one", "three", "two"]), RATE, rate)
    assert RoundTripRecognizer(version).transcribe([spoken], rate) == ["one three two"]


def test_texts_of_a_recognizer_that_writes_more_than_words_are_compared_by_words(registry: Path) -> None:
    """A public Whisper writes capitals, marks and digits, which were counted as errors of the voice."""
    version = find_round_trip_recognizer(registry, "asr")
    assert version is not None
    spoken = render_words(["one", "three", "two"])
    in_capitals = RoundTripRecognizer(version, lambda info, alphabet: str.upper)
    assert in_capitals.transcribe([spoken], RATE) == ["ONE THREE TWO"]
    recognizer = RoundTripRecognizer(version, lambda info, alphabet: normalize_english_words)
    asked = Utterance("a", "", 1.0, "1, three… Two!", split="test")
    assert recognizer.reference(asked) == "one three two" == recognizer.transcribe([spoken], RATE)[0]
    assert RoundTripRecognizer(version, normalizer).reference(asked) == asked.text


def test_a_tts_model_is_refused_as_round_trip_recognizer(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    publish(registry, "voice", make_tts_model())
    settings = TtsEvaluateSettings.of(QUICK.plain(), round_trip_recognizer="voice")
    with pytest.raises(
        SettingsError, match=r"'round_trip_recognizer' is 'voice', and .*voice/1: .*family 'tts'.*give a model that"
    ):
        run(make_tts_model(), corpus, registry, tmp_path / "store", settings)


def test_mels_that_are_not_finite_are_an_error(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    with pytest.raises(WorkError, match="is not finite; train the model again"):
        run(make_tts_model(smear=float("nan")), corpus, registry, tmp_path / "store", QUICK)


def test_without_a_round_trip_intelligibility_is_not_measured(
    corpus: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    settings = TtsEvaluateSettings.of(QUICK.plain(), round_trip_recognizer="")
    work = run(make_tts_model(), corpus, tmp_path / "registry", tmp_path / "store", settings)
    assert "round_trip_wer" not in work.metrics
    assert "f0_rmse" not in work.metrics
    assert "No round-trip recognizer was set" in work.path("report").read_text()


def test_a_missing_round_trip_recognizer_is_refused_before_any_work(
    corpus: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"'round_trip_recognizer' is 'asr'.*holds no version"):
        run(make_tts_model(), corpus, tmp_path / "registry", tmp_path / "store", QUICK)
    assert not (tmp_path / "store").exists()


def test_another_round_trip_recognizer_is_another_evaluation(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    first = run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK)
    assert run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK).reused
    publish(registry, "asr", make_asr_model({"one": "two"}))
    second = run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK)
    assert not second.reused
    assert first.metrics["round_trip_wer"] == 0 < second.metrics["round_trip_wer"]


def test_models_with_different_frontends_are_not_compared(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(make_tts_model(), tmp_path / "other"))
    about = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps({**about, "frontend": {"kind": "english"}}))
    publish(registry, "tts", other)
    with pytest.raises(
        SettingsError, match=r"version 1 of tts, the model in service, has the text frontend .*name of its own"
    ):
        run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK)


@pytest.mark.slow
def test_models_with_different_alphabets_are_compared_if_both_can_read_the_texts(
    corpus: Path, registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    publish(registry, "tts", make_tts_model(alphabet=".876543210 "))
    work = run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK)
    assert json.loads(work.path("metrics").read_text())["metrics"]["round_trip_wer"]["comparison"]["difference"] == 0
    publish(registry, "tts", make_tts_model(alphabet="01234567 ."))
    with pytest.raises(
        SettingsError, match=r"version 2 of tts, the model in service, cannot read utterance .*'8'.*name of its own"
    ):
        run(make_tts_model(), corpus, registry, tmp_path / "store", QUICK)


@pytest.mark.slow
def test_a_text_that_the_model_cannot_read_is_named_with_its_utterance(
    registry: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    corpus = write_tts_corpus(tmp_path / "corpus", ["123", "4-5"])
    with pytest.raises(SettingsError, match=r"utterance voice-0001: .*'-'.*not in the alphabet"):
        run(make_tts_model(alphabet="012345678 ."), corpus, registry, tmp_path / "store", QUICK)


def test_an_asr_model_and_the_training_split_are_refused(
    corpus: Path, registry: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    with pytest.raises(WorkError, match=r"family 'asr' .*'tts' is accepted"):
        run(make_asr_model(), corpus, registry, tmp_path / "store", QUICK)
    with pytest.raises(SettingsError, match=r"evaluate: 'split'.*'test' or 'dev'"):
        TtsEvaluateSettings.of({"split": "train"}, "evaluate")
