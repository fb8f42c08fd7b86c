"""A classifier of intents: trained on a dataset's texts, measured on what a recognizer hears, judged and loaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voxline
from tests.tone_asr_model import MakeAsrModel, export_onnx_tones, write_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.components.train.step import run as train
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_manifest, write_manifest
from voxline.data.testing import NewExample, write_dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.settings import AsrEvaluateSettings, AsrPushSettings
from voxline.families.family import find_family
from voxline.families.intents.inference import Intent, IntentClassifier
from voxline.families.intents.push import IntentsPushFamily
from voxline.families.intents.settings import IntentsEvaluateSettings, IntentsPushSettings, IntentsTrainSettings
from voxline.families.intents.task import TextBatches, Vocabulary, drop_words
from voxline.inference.saved_model import model_digest
from voxline.metrics.evaluation import Evaluation
from voxline.registry.registry import Registry
from voxline.text.alphabet import Alphabet

WORDS = ("one", "two", "three", "four", "five", "six")
INTENTS = {"one": "open", "two": "open", "three": "close", "four": "close", "five": "call", "six": "call"}
"""The first word decides; the others say nothing."""
SETTINGS = {
    "field": "meaning", "epochs": 12, "batch_size": 12, "learning_rate": 0.05, "warm_up_steps": 5, "strategy": "one",
    "evaluate_epochs": 12, "model": {"embedding": 8, "units": [8], "capsules": 3, "capsule_size": 4},
}  # fmt: skip


def example(number: int, split: str, extra: dict[str, Any]) -> NewExample:
    first = WORDS[number % len(WORDS)]
    rest = (("zero", "seven")[number // 6 % 2], "seven")[: number // 12 % 3]
    features = np.zeros((4, 40), np.float32) + number % 5
    extra = extra or {"meaning": INTENTS[first]}
    return NewExample(f"{split}-{number:03d}", " ".join([first, *rest]), split, features, extra=extra)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """72 texts of train, one without an intent; 12 of dev, one with an intent that train does not have."""
    examples = [example(number, "train", {}) for number in range(72)]
    examples += [example(number, "dev", {}) for number in range(11)] + [example(11, "dev", {"meaning": "sing"})]
    examples.append(NewExample("nothing", "one", "train", examples[0].features, extra={"meaning": ""}))
    features, alphabet = FeatureSettings(mels=40), Alphabet.from_name("english")
    return write_dataset(tmp_path_factory.mktemp("texts"), examples, features, alphabet).folder


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(dataset, tmp_path_factory.mktemp("store"), IntentsTrainSettings.of(SETTINGS)).folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    sentences = [("ada" if index % 2 else "ben", f"{WORDS[index % 6]} zero") for index in range(24)]
    folder = write_corpus(tmp_path / "corpus", sentences)
    known = [one.replace(extra={"meaning": INTENTS[one.text.split()[0]]}) for one in read_manifest(folder)]
    known[0] = known[0].replace(extra={})
    write_manifest(folder / "manifest.jsonl", known)
    return folder


def publish(registry: Path, name: str, model: Path) -> None:
    versions = Registry(registry, name)
    with versions.locked(), versions.publishing(model, model_digest(model), "push"):
        pass


@pytest.mark.slow
def test_what_was_heard_and_what_was_said_are_measured_beside_mean_pooling(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    places = tmp_path / "registry", tmp_path / "store"
    errors = {"two": "three", "one": "two"}  # one of the two changes what was meant
    publish(places[0], "asr", export_onnx_tones(tmp_path / "exported", errors))
    settings = IntentsEvaluateSettings(field="meaning", recognizer="asr", bootstrap_samples=200)
    output = evaluate(model, corpus, *places, settings)
    metrics = Evaluation.read(output.folder).info.to_dict()
    assert metrics["metrics"]["text_intent_error_rate"]["value"] == 0
    assert metrics["metrics"]["intent_error_rate"]["value"] == pytest.approx(4 / 23)  # one has no intent
    assert metrics["slices"]["intent"]["open"]["metrics"]["intent_error_rate"]["value"] == pytest.approx(4 / 7)
    details = metrics["details"]
    assert details["confusions"] == [{"intent": "open", "found": "close", "count": 4}]
    assert details["recognizer"]["words_wrong"] == {"intent_right": 3, "intent_wrong": 4}
    assert details["mean_pooling"].keys() == {"text_intent_error_rate", "intent_error_rate"}
    assert details["without_intent"] == 1
    report = output.path("report").read_text()
    for part in ("Beside mean pooling", "Words and intents", "some word wrong", "1 utterances have no intent", "three"):
        assert part in report

    refused = push(model, output.folder, *places, IntentsPushSettings(smoke_test=False))
    (reason,) = json.loads(refused.path("verdict").read_text())["reasons"]
    assert "intent error rate of what was heard 17.39%, above the limit of 10.00%" in reason
    lenient = IntentsPushSettings(smoke_test=False, limits={"intent_error_rate": 0.2})
    pushed = push(model, output.folder, *places, lenient)
    assert pushed.counts["pushed"]
    version = Registry(places[0], "intents").path(1)
    card = (version / "model_card.md").read_text()
    assert "of 7 utterances with a wrong word, 3 kept their intent" in card
    assert sorted(file.name for file in (version / "evaluation").iterdir()) == [
        "metrics.json", "report.html", "utterances.jsonl",
    ]  # fmt: skip
    classifier = voxline.load_model(places[0] / "intents")
    assert classifier.classify("Four, seven!").name == "close"
    assert evaluate(model, corpus, *places, settings).reused  # of the version itself, now that it is in service


@pytest.mark.slow
def test_a_recognizer_is_judged_by_the_intents_that_it_loses(
    model: Path, corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    places = tmp_path / "registry", tmp_path / "store"
    publish(places[0], "intents", model / "model")
    quick = AsrEvaluateSettings(text_judge="intents", bootstrap_samples=200, worst_utterances=0, aligned_utterances=0)
    recognizer = make_asr_model({"two": "three", "one": "two"})
    output = evaluate(recognizer, corpus, *places, quick)
    metrics = Evaluation.read(output.folder).info.to_dict()
    assert metrics["metrics"]["wer"]["value"] == pytest.approx(8 / 48)  # of these errors half change nothing
    assert metrics["metrics"]["intent_error_rate"]["value"] == pytest.approx(4 / 23)
    assert metrics["auxiliary_models"]["text_judge"]["version"] == 1
    gate = AsrPushSettings(smoke_test=False, limits={"intent_error_rate": 0.1})
    verdict = json.loads(push(recognizer, output.folder, *places, gate).path("verdict").read_text())
    assert "intent error rate of what was heard 17.39%, above the limit of 10.00%" in verdict["reasons"][0]


def test_only_a_model_that_judges_texts_may_judge_a_recognizer(
    corpus: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    recognizer = make_asr_model({})
    publish(tmp_path / "registry", "other", recognizer)
    settings = AsrEvaluateSettings(text_judge="other", bootstrap_samples=200)
    with pytest.raises(SettingsError, match=r"'other', and .* family 'asr' \(ctc\), 'intents' is accept"):
        evaluate(recognizer, corpus, tmp_path / "registry", tmp_path / "store", settings)
    settings = AsrEvaluateSettings(text_judge="none", bootstrap_samples=200)
    with pytest.raises(SettingsError, match=r"none holds no version; push a model there first \(voxline run intents\)"):
        evaluate(recognizer, corpus, tmp_path / "registry", tmp_path / "store", settings)
    with pytest.raises(SettingsError, match="models of the family 'asr' judge no texts"):
        find_family("asr").text_judge(recognizer)


@pytest.mark.slow
def test_a_corpus_without_intents_is_refused_by_the_setting_that_names_the_judge(
    model: Path, make_asr_model: MakeAsrModel, tmp_path: Path
) -> None:
    publish(tmp_path / "registry", "intents", model / "model")
    corpus = write_corpus(tmp_path / "corpus", [("ada", "one two"), ("ben", "three")])
    settings = AsrEvaluateSettings(text_judge="intents", bootstrap_samples=200)
    expected = r"no utterance has the manifest field 'meaning'.*, or set evaluate\.text_judge to ''"
    with pytest.raises(WorkError, match=expected):
        evaluate(make_asr_model({}), corpus, tmp_path / "registry", tmp_path / "store", settings)


@pytest.mark.slow
def test_a_model_json_without_the_keys_of_the_family_is_refused(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model / "model", tmp_path / "old")
    file = tmp_path / "old" / "model.json"
    about = json.loads(file.read_text())
    assert about["extra"].keys() == {"vocabulary", "intents"}
    about["extra"]["intentions"] = about["extra"].pop("intents")
    file.write_text(json.dumps(about))
    with pytest.raises(WorkError, match=r"old: model.json, 'extra': .*`intentions`; run train again"):
        voxline.load_model(tmp_path / "old")


@pytest.mark.slow
def test_a_text_is_classified_alone_as_in_a_list_and_one_without_words_has_no_intent(model: Path) -> None:
    classifier = IntentClassifier(model)
    assert classifier.intents == ["call", "close", "open"]
    one, nothing, other = classifier.classify(["one seven", " … ", "Three"])
    assert (one.name, nothing, other.name) == ("open", Intent("", 0.0), "close")
    assert classifier.classify("one seven").probability == pytest.approx(one.probability, abs=1e-6)
    assert classifier.classify("xyzzy seven").name in classifier.intents  # a word that it does not know
    assert IntentClassifier(model, baseline=True).classify("five").name == "call"
    answer = IntentsPushFamily().repeat(str(model), "one seven")
    assert (answer["intent"], answer["probability"]) == ("open", pytest.approx(one.probability, abs=1e-6))


def test_texts_that_are_left_out_are_named_and_an_epoch_goes_on_where_it_was_killed(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, settings = Dataset.read(dataset), IntentsTrainSettings.of(SETTINGS)
    vocabulary = Vocabulary.of(read, settings)
    assert (vocabulary.words[:2], vocabulary.intents) == (["seven", "zero"], ["call", "close", "open"])
    options: dict[str, Any] = {"batch_size": 12, "seed": 3, "shuffled": True, "augment": drop_words(0.3)}
    batches = TextBatches(read, "train", vocabulary, "meaning", **options)
    TextBatches(read, "dev", vocabulary, "meaning", batch_size=4)
    told = capsys.readouterr().out
    assert "1 of 73 utterances of train have no intent of train in 'meaning' and are left out: nothing" in told
    assert "1 of 12 utterances of dev have no intent of train in 'meaning' and are left out: dev-011" in told
    whole = list(batches.epoch(4))
    for one, again in zip(whole[2:], batches.epoch(4, first=2), strict=True):
        np.testing.assert_array_equal(one.features, again.features)
    numbers = {"<padding>": 0, "<unknown>": 1} | vocabulary.numbers
    words = {number: word for word, number in numbers.items()}
    dropped = 0
    for batch in whole:
        for row, text in enumerate(batch.texts):
            heard = [words[int(number)] for number in batch.features[row, : batch.frames[row], 0]]
            dropped += heard.count("<unknown>")
            assert all(one in (word, "<unknown>") for one, word in zip(heard, text.split(), strict=True))
            assert vocabulary.intents[batch.labels[row, 0]] == INTENTS[text.split()[0]]
    assert 0.2 < dropped / sum(int(batch.frames.sum()) for batch in whole) < 0.4


@pytest.mark.slow
def test_a_field_that_no_utterance_has_is_refused_with_those_that_there_are(
    dataset: Path, model: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(WorkError, match=r"'topic' the training split has none; set train.field to one of meaning"):
        train(dataset, tmp_path, IntentsTrainSettings.of({**SETTINGS, "field": "topic"}))
    with pytest.raises(WorkError, match=r"has the field 'topic'; they have meaning: set train.field"):
        evaluate(model, corpus, tmp_path, tmp_path, IntentsEvaluateSettings(field="topic"))
    with pytest.raises(SettingsError, match=r"'recognizer' is 'asr', and .* holds no version"):
        evaluate(model, corpus, tmp_path, tmp_path, IntentsEvaluateSettings(field="meaning", recognizer="asr"))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"start": {"model": "intents@production"}}, "starts from random weights"),
        ({"field": "speaker"}, "every utterance has for itself"),
        ({"model": {"units": []}}, "units"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        IntentsTrainSettings.of(values)


@pytest.mark.slow
def test_an_evaluation_without_a_recognizer_measures_texts_alone(model: Path, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(model / "model", tmp_path / "copy")
    output = evaluate(
        tmp_path / "copy", corpus, tmp_path, tmp_path, IntentsEvaluateSettings(field="meaning", bootstrap_samples=200)
    )
    metrics = Evaluation.read(output.folder).info.to_dict()
    assert "intent_error_rate" not in metrics["metrics"]
    assert "only texts were classified" in output.path("report").read_text()
