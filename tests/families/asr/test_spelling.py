"""Texts are compared as written and normalized: what is measured, of which models, by which language."""

import json
from pathlib import Path

import pytest

from tests.tone_asr_model import MakeAsrModel, write_corpus
from voxline.components.evaluate.step import run, summarize
from voxline.components.push.step import run as push
from voxline.data.manifest import read_manifest, write_manifest
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.families.asr.spelling import normalize_english_words, normalizer, speller
from voxline.inference.model_info import ATTENTION, DatasetInfo, ModelInfo, Provenance
from voxline.metrics.evaluation import Evaluation
from voxline.text.alphabet import Alphabet

TEXTS = ("Zero, one!", "TWO three.", "Four 5")
SETTINGS = {"bootstrap_samples": 200, "worst_utterances": 1, "aligned_utterances": 0}


def model_of(kind: str = "ctc", alphabet: str = "abc '", **prompt: str) -> ModelInfo:
    model = {"kind": "whisper", "prompt": prompt} if kind == ATTENTION else {}
    return ModelInfo(
        name="m", family="asr", kind=kind, alphabet=list(alphabet), sample_rate=16_000, features={},
        settings={"model": model}, dataset=DatasetInfo(), provenance=Provenance(),
    )  # fmt: skip


def normalized(info: ModelInfo, text: str) -> str | None:
    normalize = normalizer(info, Alphabet("".join(info.alphabet)))
    return normalize(text) if normalize else None


@pytest.mark.parametrize(
    ("info", "text", "expected"),
    [
        (model_of(), "Go, 2!", None),
        (model_of(alphabet="ABC '-"), "Go, 2!", None),
        (model_of(alphabet="abc12345 "), "ni3 hao3", None),
        (model_of(alphabet="abcABC "), "Go, 2!", "go two"),
        (model_of(alphabet="abc.,"), "Go, 2!", "go two"),
        (model_of(alphabet="abcéABC "), "L’été, 2 h !", "l'été 2 h"),
        (model_of(alphabet="好今ab，"), "今天7:30，好！", "今天七点三十分好"),
        (model_of(ATTENTION, ""), "Mr. Go, 2!", "mister go two"),
        (model_of(ATTENTION, "", language="fr", task="transcribe"), "Go, 2 !", "go 2"),
        (model_of(ATTENTION, "", language="fr", task="translate"), "Go, 2 !", "go two"),
        (model_of(ATTENTION, "", language="zh", task="transcribe"), "买2个，好！", "买两个好"),
    ],
)
def test_a_model_that_writes_more_than_words_is_normalized_by_its_language(
    info: ModelInfo, text: str, expected: str | None
) -> None:
    assert normalized(info, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We're sorry, you can't and won't.", "we are sorry you can not and will not"),
        ("I'm sure they've gone; she'd go.", "i am sure they have gone she would go"),
        ("Let's see what's there, that's it.", "let us see what is there that is it"),
        ("Y'all wanna go, gonna gotta", "you all want to go going to got to"),
        ("I am afraid it doesn't", "i am afraid it does not"),
        ("He's been there, she'd been here, it ain't", "he has been there she had been here it aint"),
    ],
)
def test_english_contractions_are_written_as_the_normalizer_of_whisper_writes_them(text: str, expected: str) -> None:
    # What whisper-normalizer 0.1.15 gives. It writes "party is" of "party's" too, where we leave a genitive.
    assert normalize_english_words(text) == expected
    assert normalize_english_words("your party's name") == "your party's name"


def test_a_language_that_is_set_counts_for_any_model() -> None:
    normalize = normalizer(model_of(), Alphabet("abc"), "unicode")
    assert normalize is not None
    assert normalize("A, 2!") == "a 2"


def test_text_that_has_no_sound_is_compared_all_the_same() -> None:
    assert [normalize_english_words(text) for text in ("♪ 2 ♪", "Пока, 2!", "...", "")] == ["two", "пока 2", "", ""]


def test_a_public_model_that_writes_capitals_and_marks_is_not_worse_for_that() -> None:
    spell = speller(["twenty one, zwölf", "o'clock"])
    assert spell("Twenty-One, Zwölf!") == "twenty one, zwölf"
    assert spell("42 o'clock") == "42 o'clock"
    assert speller(["TWENTY ONE"])("Twenty-one.") == "TWENTY ONE"
    assert speller(["Twenty one."])("Twenty One!") == "Twenty One"


def test_both_error_rates_are_measured_told_and_gated_on(tmp_path: Path, make_asr_model: MakeAsrModel) -> None:
    """The model hears every word but "three"; written, only one word of six is as the transcripts have it."""
    spoken = ["zero one", "two three", "four five"]
    corpus = write_corpus(tmp_path / "corpus", [("ada", text) for text in spoken])
    written = [line.replace(text=text) for line, text in zip(read_manifest(corpus), TEXTS, strict=True)]
    write_manifest(corpus / "manifest.jsonl", written)
    model = make_asr_model({"three": "two"})
    words_alone = run(model, corpus, tmp_path / "registry", tmp_path / "store", AsrEvaluateSettings.of(SETTINGS))
    assert "wer_normalized" not in words_alone.metrics

    settings = AsrEvaluateSettings.of({**SETTINGS, "normalization": "english"})
    output = run(model, corpus, tmp_path / "registry", tmp_path / "store", settings)
    assert output.metrics["wer"] == 1
    assert output.metrics["wer_normalized"] == pytest.approx(1 / 6, abs=1e-6)
    assert output.metrics["cer_normalized"] < output.metrics["cer"]
    evaluation = Evaluation.read(output.folder)
    assert "word error rate 100.00%, word error rate, normalized 16.67%" in summarize(evaluation.info)
    assert "word error rate, normalized" in output.path("report").read_text()

    gate = {
        "smoke_test": False,
        "limits": {"wer": 1, "wer_normalized": 0.2},
        "max_regression": {"wer_normalized": 0.01},
    }
    pushed = push(model, output.folder, tmp_path / "registry", tmp_path / "store", AsrPushSettings.of(gate))
    assert json.loads(pushed.path("verdict").read_text())["pushed"]
    better = make_asr_model()
    output = run(better, corpus, tmp_path / "registry", tmp_path / "store", settings)
    assert output.metrics["wer_normalized"] == 0
    measured = Evaluation.read(output.folder).info.metrics["wer_normalized"]
    assert measured.comparison is not None
    assert measured.comparison.champion_value == pytest.approx(1 / 6)

    stricter = AsrPushSettings.of({**gate, "limits": {"wer": 1, "wer_normalized": 0.1}})
    refused = push(model, evaluation.folder, tmp_path / "other registry", tmp_path / "store", stricter)
    verdict = json.loads(refused.path("verdict").read_text())
    assert not verdict["pushed"]
    assert "word error rate, normalized 16.67%, above the limit of 10.00%" in verdict["reasons"][0]
