"""A model family added to evaluate and push, without TensorFlow."""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pydantic
import pytest

from tests.tone_asr_model import write_corpus
from voxline.components.evaluate.measurement import (
    Candidate,
    EvaluationJob,
    Evaluator,
    MeasuredGraph,
    MeasuredModel,
    Slicing,
    slice_by_field,
)
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.gate import RepeatedOutput
from voxline.components.push.settings import PushSettings
from voxline.components.push.step import run as push
from voxline.errors import WorkError
from voxline.families.family import EvaluateFamily, Family, register, unregister
from voxline.inference.model_info import ModelInfo
from voxline.inference.onnx_model import ONNX_FILE, Engine
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.catalog import Metric
from voxline.metrics.evaluation import (
    CLIP_FILE,
    METRICS_FILE,
    REPORT_FILE,
    UTTERANCES_FILE,
    Evaluation,
    EvaluationInfo,
    FamilyDetails,
    OnnxInfo,
    UtteranceResult,
)
from voxline.registry.registry import Registry
from voxline.store.versioned_json import FilePart


class WordCountEvaluateSettings(EvaluateSettings):
    family: ClassVar[str] = "word_count"
    model_name: str = "counter"


class WordCountPushSettings(PushSettings):
    family: ClassVar[str] = "word_count"
    model_name: str = "counter"
    limits: dict[str, float] = pydantic.Field({"count_error": 1.0})
    max_regression: dict[str, float] = pydantic.Field({"count_error": 0.1})
    slices: list[str] = pydantic.Field(["speaker"])
    smoke_test: bool = False  # a fresh process does not know this family


def test_metrics_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / UTTERANCES_FILE).write_text("")
    for written, why in (
        ({}, "no format number"),
        ({"format": 2, "voxline": "9.1.0"}, r"format 2, which Voxline 9\.1\.0 wrote; .* or run evaluate again"),
    ):
        (tmp_path / METRICS_FILE).write_text(json.dumps(written))
        with pytest.raises(WorkError, match=why):
            Evaluation.read(tmp_path)


def count_error(model: Path, text: str) -> SumAndWeight:
    """The model is a number that it adds to the count of words."""
    return SumAndWeight(abs(json.loads((model / "model.json").read_text())["settings"]["offset"]) + 0 * len(text))


class WordCountEvaluateFamily(EvaluateFamily):
    activity = "counting"

    def slicings(self, settings: WordCountEvaluateSettings) -> dict[str, Slicing]:
        return {"speaker": slice_by_field("speaker")}

    def load(self, folder: Path, settings: WordCountEvaluateSettings, engine: Engine) -> Path:
        return folder

    def evaluator(self, job: EvaluationJob, model: Path) -> "WordCountEvaluator":
        return WordCountEvaluator(job, model)


class CountDetails(FamilyDetails):
    texts: int = 0
    shares: dict[str, Any] = msgspec.field(default_factory=dict)


class WordCountEvaluator(Evaluator[Path, str, CountDetails]):
    def measure(self, model: Path, candidate: Candidate) -> MeasuredModel[str]:
        texts = [utterance.text for utterance in self.job.utterances]
        values = [{"count_error": count_error(model, text)} for text in texts]
        return MeasuredModel(values, 0.1 if candidate.is_new else None, [{"text": text} for text in texts])

    def details(self, measured: MeasuredModel[str]) -> CountDetails:
        return CountDetails(texts=len(measured.values))

    def smoke_test(self, measured: MeasuredModel[str]) -> FilePart:
        (self.job.output / CLIP_FILE).write_bytes(b"")
        return FilePart()

    def report_sections(self, results: Sequence[UtteranceResult], info: EvaluationInfo) -> list[tuple[str, list[Any]]]:
        return [("Counts", ["a section of its own"])]

    def describe_method(self, details: CountDetails) -> str:
        return "Words were counted."


class WordCountPushFamily:
    smoke_test_task = "count the words"
    smoke_test_output = "count"
    smoke_test_tolerance: float | None = None

    def smoke_test_arguments(self, evaluation: Evaluation) -> list[str]:
        return []

    def compare_repeated(self, answer: dict[str, Any], evaluation: Evaluation) -> RepeatedOutput:
        return RepeatedOutput(True, "a fresh process counted as many")

    def repeat(self, *arguments: str) -> dict[str, Any]:
        return {}

    def describe(self, model: ModelInfo) -> str:
        return "A counter of words."

    def errors(self, evaluation: Evaluation) -> str:
        return ""

    def limitations(self, evaluation: Evaluation) -> list[str]:
        return ["It counts only words."]

    def usage(self, model: ModelInfo, name: str, version: int) -> str:
        return "None."


def write_model(folder: Path, offset: float, family: str = "word_count") -> Path:
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    about = {
        "format": 1, "name": "counter", "family": family, "kind": "adder", "alphabet": "ab",
        "sample_rate": 16_000, "features": {}, "settings": {"offset": offset},
        "dataset": {"key": "k"}, "provenance": {},
    }  # fmt: skip
    (folder / "model.json").write_text(json.dumps(about))
    return folder


class WordCountFamily(Family):
    name = "word_count"
    evaluate_settings = WordCountEvaluateSettings
    push_settings = WordCountPushSettings
    metrics = (Metric("count_error", "words miscounted", ("word_count",), headline=True, label="miscounted"),)

    def task(self) -> Any:
        raise NotImplementedError

    def evaluation(self) -> WordCountEvaluateFamily:
        return WordCountEvaluateFamily()

    def promotion(self) -> WordCountPushFamily:
        return WordCountPushFamily()


@pytest.fixture
def word_count() -> Iterator[None]:
    """The family and its metric."""
    register(WordCountFamily())
    yield
    unregister("word_count")


@pytest.mark.usefixtures("word_count")
def test_a_family_of_its_own_is_evaluated_and_pushed(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)

    def judge(model: Path) -> dict[str, Any]:
        places = tmp_path / "registry", tmp_path / "store"
        evaluation = evaluate(model, corpus, *places, WordCountEvaluateSettings(bootstrap_samples=200))
        output = push(model, evaluation.folder, *places, WordCountPushSettings())
        assert "a section of its own" in output.path("report").read_text()
        verdict: dict[str, Any] = json.loads(output.path("verdict").read_text())
        return verdict

    assert judge(write_model(tmp_path / "good", 0.5))["pushed"]
    assert "above the limit of 1 (limits.count_error)" in judge(write_model(tmp_path / "bad", 2))["reasons"][0]
    assert "(max_regression.count_error)" in judge(write_model(tmp_path / "worse", 0.8))["reasons"][0]
    version = Registry(tmp_path / "registry", "counter").path(1)
    card = (version / "model_card.md").read_text()
    for part in ("A counter of words.", "words miscounted", "ada", "It counts only words."):
        assert part in card
    with pytest.raises(WorkError, match=r"family 'asr' \(adder\), 'word_count' is accepted here"):
        judge(write_model(tmp_path / "other", 0.5, "asr"))


@pytest.mark.usefixtures("word_count")
def test_each_version_is_named_once_and_one_that_cannot_be_loaded_with_a_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    registry = tmp_path / "registry"
    places = registry, tmp_path / "store"
    settings = WordCountEvaluateSettings(bootstrap_samples=200)
    first = write_model(tmp_path / "first", 0.5)
    push(first, evaluate(first, corpus, *places, settings).folder, *places, WordCountPushSettings())

    capfd.readouterr()
    evaluate(write_model(tmp_path / "second", 0.4), corpus, *places, settings)
    printed = "".join(capfd.readouterr())
    assert printed.count("evaluate: counting 40 utterances of the split 'test'") == 1
    assert printed.count("evaluate: counting them with version 1 of counter, the model in service") == 1

    def load(self: WordCountEvaluateFamily, folder: Path, settings: WordCountEvaluateSettings, engine: Engine) -> Path:
        if registry in folder.parents:
            raise WorkError("its signature is absent")
        return folder

    monkeypatch.setattr(WordCountEvaluateFamily, "load", load)
    expected = "version 1 of counter, .* cannot be used: its signature is absent; roll back to an intact version"
    with pytest.raises(WorkError, match=expected):
        evaluate(write_model(tmp_path / "third", 0.3), corpus, *places, settings)


@pytest.mark.usefixtures("word_count")
@pytest.mark.parametrize("count", [None, 0, 7])
@pytest.mark.parametrize("file", [ONNX_FILE, STREAM_FILE])
def test_a_graph_is_pushed_only_if_the_family_compared_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, count: int | None
) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    places = tmp_path / "registry", tmp_path / "store"
    model = write_model(tmp_path / "model", 0.5)
    for name in {ONNX_FILE, file}:
        (model / name).write_bytes(b"no graph")

    # The family compares the graph of whole recordings, and may leave out the one under test.
    compared = OnnxInfo(count=0)
    tested = None if count is None else OnnxInfo(count=count)
    graph = MeasuredGraph(compared, tested) if file == STREAM_FILE else tested and MeasuredGraph(tested)
    monkeypatch.setattr(WordCountEvaluator, "compare_onnx", lambda *arguments: graph)
    evaluation = evaluate(model, corpus, *places, WordCountEvaluateSettings(bootstrap_samples=200))
    output = push(model, evaluation.folder, *places, WordCountPushSettings())
    verdict = json.loads(output.path("verdict").read_text())
    assert verdict["pushed"] == (count == 0)
    if count is None:
        assert "graph was not compared with the SavedModel; " in verdict["reasons"][0]
    if count == 7:
        assert "wrote another text than the SavedModel for 7 of 40 utterances" in verdict["reasons"][0]

    # The step adds the graphs: the family's details have only its own keys.
    info = Evaluation.read(evaluation.folder).info
    assert info.details["texts"] == 40
    assert ("streaming" in info.details) == (file == STREAM_FILE)


@pytest.mark.usefixtures("word_count")
def test_an_evaluation_that_says_nothing_of_a_graph_does_not_pass_it(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    places = tmp_path / "registry", tmp_path / "store"
    model = write_model(tmp_path / "model", 0.5)
    (model / ONNX_FILE).write_bytes(b"no graph")

    # A copy has no marker with the hashes of its files, so it can be edited.
    output = evaluate(model, corpus, *places, WordCountEvaluateSettings(bootstrap_samples=200)).folder
    evaluation = tmp_path / "evaluation"
    evaluation.mkdir()
    for name in (METRICS_FILE, UTTERANCES_FILE, REPORT_FILE):
        shutil.copyfile(output / name, evaluation / name)
    metrics = evaluation / METRICS_FILE
    values = json.loads(metrics.read_text())
    assert values["details"].pop("onnx") == {}
    metrics.write_text(json.dumps(values))
    verdict = json.loads(push(model, evaluation, *places, WordCountPushSettings()).path("verdict").read_text())
    assert "the ONNX graph was not compared with the SavedModel" in verdict["reasons"][0]


@pytest.mark.usefixtures("word_count")
@pytest.mark.parametrize("count", [39, 45])
@pytest.mark.parametrize(
    ("field", "role"),
    [
        ("values", "the new model"),
        ("details", "the new model"),
        ("values", "version 1 of counter, the model in service"),
        ("champion_details", "version 1 of counter, the model in service"),
    ],
)
def test_a_family_returns_a_row_for_each_utterance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, role: str, count: int
) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    places = tmp_path / "registry", tmp_path / "store"
    settings = WordCountEvaluateSettings(bootstrap_samples=200)
    first = write_model(tmp_path / "first", 0.5)
    push(first, evaluate(first, corpus, *places, settings).folder, *places, WordCountPushSettings())
    measure = WordCountEvaluator.measure

    def miscounted(self: WordCountEvaluator, model: Path, candidate: Candidate) -> MeasuredModel[str]:
        measured = measure(self, model, candidate)
        if candidate.label != role:
            return measured
        rows = list(getattr(measured, field)) or [{}]
        return dataclasses.replace(measured, **{field: (rows * 45)[:count]})

    monkeypatch.setattr(WordCountEvaluator, "measure", miscounted)
    expected = f"WordCountEvaluator.measure returned {count} {field} of {role} for 40 utterances"
    with pytest.raises(WorkError, match=expected):
        evaluate(write_model(tmp_path / "second", 0.4), corpus, *places, settings)


@pytest.mark.usefixtures("word_count")
def test_the_details_of_a_graph_have_a_row_for_each_utterance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    model = write_model(tmp_path / "model", 0.5)
    (model / ONNX_FILE).write_bytes(b"no graph")
    graph = MeasuredGraph(OnnxInfo(count=0), details=[{}] * 41)
    monkeypatch.setattr(WordCountEvaluator, "compare_onnx", lambda *arguments: graph)
    with pytest.raises(WorkError, match=r"WordCountEvaluator\.compare_onnx returned 41 details .* for 40 utterances"):
        evaluate(model, corpus, tmp_path / "registry", tmp_path / "store", WordCountEvaluateSettings())


@pytest.mark.usefixtures("word_count")
def test_details_may_have_numbers_of_numpy_and_other_values_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")] * 20)
    places = tmp_path / "registry", tmp_path / "store"
    shares: dict[str, Any] = {"half": np.float32(0.5), "three": np.int64(3), "quarter": np.float64(0.25)}
    monkeypatch.setattr(WordCountEvaluator, "details", lambda self, measured: CountDetails(shares=shares))
    settings = WordCountEvaluateSettings(bootstrap_samples=200)
    output = evaluate(write_model(tmp_path / "first", 0.5), corpus, *places, settings)
    assert Evaluation.read(output.folder).info.details["shares"] == {"half": 0.5, "three": 3, "quarter": 0.25}

    shares["list"] = [1, np.zeros(2)]
    with pytest.raises(WorkError, match=r"CountDetails\.shares\.list\.1: ndarray .* is no JSON value"):
        evaluate(write_model(tmp_path / "second", 0.4), corpus, *places, settings)
