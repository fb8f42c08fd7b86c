"""The gate for TTS models, each of them worse in one respect."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info
from tests.tone_asr_model import MakeAsrModel
from tests.tone_tts_model import MakeTtsModel, add_onnx_graph, write_tts_corpus
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.model_card import model_card
from voxline.components.push.smoke_test import run_smoke_test
from voxline.components.push.step import run as push
from voxline.errors import SettingsError
from voxline.families.asr.settings import AsrPushSettings
from voxline.families.tts.push import TtsPushFamily
from voxline.families.tts.settings import TtsEvaluateSettings, TtsPushSettings
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry

MEASURED = TtsEvaluateSettings(
    round_trip_recognizer="asr",
    bootstrap_samples=300,
    f0_utterances=0,
    mos_utterances=0,
    sample_utterances=0,
    worst_utterances=1,
)
QUICK = TtsPushSettings(smoke_test=False, min_slice_utterances=5, max_regression={"round_trip_wer": 0.05})
"""Without the fresh process, which loads TensorFlow for ten seconds; one test has it."""
ANY = {"round_trip_wer": 1, "mcd": 100}
"""Margins that no model exceeds."""
MEASURED_ALONE = MEASURED.model_copy(update={"round_trip_recognizer": ""})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty short strings without an 8, and ten long ones that are half of it."""
    choose = random.Random(2)
    short = ["".join(choose.choices("0123456", k=6)) + "." for _ in range(60)]
    long = ["".join(choose.choices("0123456", k=12)) + "8" * 12 + "." for _ in range(10)]
    return write_tts_corpus(tmp_path_factory.mktemp("voice"), short + long)


@pytest.fixture
def judge(corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Evaluates and pushes a voice to `tmp_path/registry`, and gives the verdict."""
    recognizers = Registry(tmp_path / "registry", "asr")
    with recognizers.locked(), recognizers.publishing(make_asr_model(), model_digest(make_asr_model()), "push"):
        pass

    def judged(
        voice: Path, settings: TtsPushSettings = QUICK, measured: TtsEvaluateSettings = MEASURED
    ) -> dict[str, Any]:
        evaluation = evaluate(voice, corpus, tmp_path / "registry", tmp_path / "store", measured).folder
        work = push(voice, evaluation, tmp_path / "registry", tmp_path / "store", settings)
        assert "Not judged yet" not in work.path("report").read_text()
        verdict: dict[str, Any] = json.loads(work.path("verdict").read_text())
        return verdict

    return judged


def test_a_good_tts_model_becomes_a_version_with_its_card(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    verdict = judge(make_tts_model(), TtsPushSettings())
    version = tmp_path / "registry" / "tts" / "1"
    assert verdict["pushed"], verdict["reasons"]
    assert verdict["heading"] == "Pushed as version 1"
    assert any("synthesized the text" in check["detail"] for check in verdict["checks"])
    assert model_digest(version) == model_digest(make_tts_model())
    card = (version / "model_card.md").read_text()
    for part in (
        "# tts, version 1",
        "Tacotron2",
        "round-trip word error rate",
        "voxline synthesize",
        "text length",
    ):
        assert part in card
    assert {path.name for path in (version / "evaluation").iterdir()} == {
        "clip.npy",
        "clip.wav",
        "metrics.json",
        "report.html",
        "utterances.jsonl",
    }
    (change,) = Registry(tmp_path / "registry", "tts").journal()
    assert "wer" not in change.metrics
    assert change.metrics["round_trip_wer"] == 0


def test_a_voice_that_no_recognizer_heard_is_pushed_as_not_judged(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    verdict = judge(make_tts_model(), QUICK, MEASURED_ALONE)
    assert verdict["pushed"], verdict["reasons"]
    assert verdict["heading"] == (
        "Pushed as version 1, not judged: no recognizer has transcribed its speech "
        "(evaluate.round_trip_recognizer or public_recognizer)"
    )
    page = (tmp_path / "registry" / "tts" / "1" / "evaluation" / "report.html").read_text()
    banner = page[page.index("Pushed as version 1, not judged") - 300 :][:300]
    assert "caution" in banner
    assert "good" not in banner


def test_the_card_says_which_programs_can_run_the_model(
    corpus: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    work = evaluate(make_tts_model(), corpus, tmp_path / "registry", tmp_path / "store", MEASURED_ALONE)
    evaluation = Evaluation.read(work.folder)
    whole = model_card(TtsPushFamily(), evaluation, 3, "2026-01-02T03:04:05Z")
    assert "voxline synthesize TEXT --model <registry>/tts/3 --output out.wav" in whole
    assert "tensorflow_model_server --model_config_file=" in whole
    assert "Signature `synthesize`" in whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "limits", "reason"),
    [
        ({"says": {"3": "4", "2": "1"}}, {"round_trip_wer": 0.1}, "round-trip word error rate"),
        ({"endless": "3"}, {}, "step limit"),
        ({"lost": "1"}, {"attention_diagonality": 0.9}, "below the limit of 90.00%"),
        ({"smear": 0.5}, {"mel_l1": 0.4}, r"limits.mel_l1"),
        ({"flatness": 0.7}, {}, r"below the limit of 50.00% (limits.sharpness)"),
    ],
)
def test_a_model_beyond_a_limit_is_refused_by_that_limit(
    judge: Callable[..., dict[str, Any]],
    make_tts_model: MakeTtsModel,
    fault: dict[str, Any],
    limits: dict[str, float],
    reason: str,
    tmp_path: Path,
) -> None:
    verdict = judge(make_tts_model(**fault), TtsPushSettings(smoke_test=False, limits=limits))
    assert not verdict["pushed"]
    (only,) = verdict["reasons"]
    assert reason in only
    assert Registry(tmp_path / "registry", "tts").versions() == []


@pytest.mark.slow
def test_an_onnx_graph_that_says_something_else_is_refused(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    for name, smear in (("other", 0.4), ("same", 0.0)):
        shutil.copytree(make_tts_model(), tmp_path / name)
        add_onnx_graph(tmp_path / name, smear)
    (reason,) = judge(tmp_path / "other")["reasons"]
    assert "the ONNX graph differs from the SavedModel by 0." in reason
    assert "at most 0.05 is accepted; set train.export.onnx to none" in reason
    accepted = judge(tmp_path / "same")
    assert accepted["pushed"]
    assert any(check["name"] == "ONNX" and check["passed"] for check in accepted["checks"])


@pytest.mark.slow
def test_an_8_bit_graph_is_judged_by_its_own_round_trip(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    shutil.copytree(make_tts_model(), tmp_path / "model")
    add_onnx_graph(tmp_path / "model", smear=-9.0)  # hardly a sound
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    about["settings"]["export"] = {"onnx": "int8"}
    (tmp_path / "model" / "model.json").write_text(json.dumps(about))
    reasons = judge(tmp_path / "model")["reasons"]
    assert any("against the SavedModel (0.00%)" in reason for reason in reasons), reasons
    assert not any("the ONNX graph differs" in reason for reason in reasons)
    unheard = QUICK.model_copy(update={"max_regression": {}})
    (reason,) = judge(tmp_path / "model", unheard, MEASURED_ALONE)["reasons"]
    assert "set evaluate.round_trip_recognizer, which judges int8 by its words" in reason
    accepted = judge(
        tmp_path / "model", QUICK.model_copy(update={"max_regression": ANY, "limits": {"round_trip_wer": 1.0}})
    )
    assert accepted["pushed"], accepted["reasons"]
    names = [check["name"] for check in accepted["checks"]]
    assert any(name.endswith("against the SavedModel") for name in names)
    assert any(name.endswith(", 8-bit ONNX") for name in names)


@pytest.mark.slow
def test_a_worse_tts_model_is_refused_and_a_better_one_replaces(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    assert judge(make_tts_model(says={"3": "4"}))["version"] == 1
    worse = judge(make_tts_model(says={"3": "4", "2": "1"}))
    assert not worse["pushed"]
    assert "(max_regression." in worse["reasons"][0]
    assert judge(make_tts_model())["version"] == 2
    assert Registry(tmp_path / "registry", "tts").in_service() == 2


@pytest.mark.slow
def test_a_model_that_fails_only_on_long_texts_is_refused_for_that_slice(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel
) -> None:
    lenient = {"smoke_test": False, "min_slice_utterances": 5, "max_regression": ANY}
    assert judge(make_tts_model())["pushed"]
    verdict = judge(make_tts_model(says={"8": "2"}), TtsPushSettings(**lenient))
    assert not verdict["pushed"]
    assert all("text_length 20-39 symbols" in reason for reason in verdict["reasons"])
    assert "50.00%, was 0.00% on 10 utterances" in verdict["reasons"][0]
    assert judge(make_tts_model(says={"8": "2"}), TtsPushSettings(**lenient, max_slice_regression=ANY))["version"] == 2


@pytest.mark.slow
def test_a_metric_that_is_better_higher_is_judged_that_way(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel
) -> None:
    margin = {"smoke_test": False, "max_regression": {"attention_diagonality": 0.05}, "max_slice_regression": ANY}
    lost = make_tts_model(lost="1")
    assert judge(lost, TtsPushSettings(**margin, limits={"attention_diagonality": 0}))["pushed"]
    assert judge(make_tts_model(), TtsPushSettings(**margin))["version"] == 2
    verdict = judge(lost, TtsPushSettings(**margin, limits={"attention_diagonality": 0}, allow_rolled_back=True))
    assert "attention near the diagonal -" in verdict["reasons"][0]
    assert "-5.00 points is accepted" in verdict["reasons"][0]


@pytest.mark.slow
def test_the_smoke_test_catches_another_model(
    judge: Callable[..., dict[str, Any]], make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    assert judge(make_tts_model())["pushed"]
    mels = tmp_path / "registry" / "tts" / "1" / "evaluation" / "clip.npy"
    shutil.copy(mels, tmp_path / "clip.npy")

    evaluation = Evaluation(tmp_path, evaluation_info(smoke_test={"id": "a", "symbols": "0123.", "frames": 4}), [])
    check = run_smoke_test("tts", TtsPushFamily(), make_tts_model(smear=0.5), evaluation, 120)
    assert not check.passed
    assert "synthesized the text differently" in check.detail


@pytest.mark.slow
def test_a_limit_on_an_unmeasured_metric_is_refused(
    judge: Callable[..., dict[str, Any]], corpus: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"limits.f0_rmse.*evaluate.f0_utterances"):
        judge(make_tts_model(), TtsPushSettings(smoke_test=False, limits={"f0_rmse": 20}))
    with pytest.raises(SettingsError, match=r"no metric mcq; accepted: .*mcd"):
        TtsPushSettings.of({"limits": {"mcq": 5}}, "push")
    evaluation = evaluate(make_tts_model(), corpus, tmp_path / "registry", tmp_path / "store", MEASURED).folder
    settings = AsrPushSettings(model_name="tts")
    with pytest.raises(SettingsError, match=r"settings are for the family 'asr'.*evaluates 'tts'"):
        push(make_tts_model(), evaluation, tmp_path / "registry", tmp_path / "store", settings)


@pytest.mark.slow
def test_runs_that_share_a_store_keep_their_own_verdicts(
    judge: Callable[..., dict[str, Any]], corpus: Path, make_tts_model: MakeTtsModel, tmp_path: Path
) -> None:
    assert judge(make_tts_model())["pushed"]
    again = judge(make_tts_model())
    assert again["reasons"] == ["already in service as version 1"]
    verdicts = [json.loads(file.read_text()) for file in (tmp_path / "store" / "push").glob("*/verdict.json")]
    assert sorted(verdict["pushed"] for verdict in verdicts) == [False, True]
