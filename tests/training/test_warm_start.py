"""Warm start: the first output, keys, resuming, and which model a training starts from."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.registry.published import publish
from tests.tone_asr_model import minimal_model_json
from tests.training.tones import LETTERS, make_utterances, tiny_asr_settings, write_dataset
from voxline.audio.features import compute_features
from voxline.components.export.step import run as export
from voxline.components.train.step import run
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.families.asr.export import export_asr, graph_key
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask
from voxline.inference.beam_search import decode_best_path
from voxline.inference.model_info import ModelInfo
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.registry.parents import Ancestor, ancestors_of, find_parent
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData, read_training_data
from voxline.store.step_cache import StepWouldRunError, plan_steps
from voxline.store.versioned_json import parse_versioned
from voxline.text.alphabet import Alphabet
from voxline.text.subwords import learn_subwords
from voxline.training.train_module import TrainModule
from voxline.training.warm_start import read_parent, start_from, with_normalization_of

SIZES = {"rnn": "simple", "directions": "forward", "units": 6}


def settings_from(start_model: str, **changes: Any) -> AsrTrainSettings:
    start = {"model": start_model, **changes.pop("start", {})}
    return tiny_asr_settings(epochs=1, model={**SIZES, **changes.pop("model", {})}, start=start, **changes)


@pytest.fixture(scope="module")
def parent_model(few: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = run(few.folder, tmp_path_factory.mktemp("store"), tiny_asr_settings(epochs=1, model=SIZES))
    return work.path("model")


@pytest.fixture
def registry(parent_model: Path, tmp_path: Path) -> Path:
    publish_with_list(tmp_path / "registry", parent_model)
    return tmp_path / "registry"


def publish_with_list(registry: Path, model: Path) -> int:
    version = publish(Registry(registry, "asr"), model)
    list_file = Registry(registry, "asr").path(version) / TRAINED_ON
    list_file.write_bytes((model / TRAINED_ON).read_bytes())
    return version


@pytest.mark.slow
def test_a_child_with_the_graph_of_its_parent_ships_that_graph_and_its_own_weights(
    few: Dataset, parent_model: Path, tmp_path: Path
) -> None:
    """Against a graph that was traced again for the same weights."""
    child = AsrTask(settings_from(str(parent_model)), few)
    about = read_model_info(parent_model)
    weights = {name: 1.1 * values for name, values in child.module.weights().items()}
    waveforms = [one.waveform for one in make_utterances(3, seed=3)]
    found = []
    for name, parent in (("reused", parent_model), ("traced", None)):
        export_asr(tmp_path / name, child.settings, few, weights, {"steps": 1}, parent)
        found.append(Recognizer(tmp_path / name).log_probabilities(waveforms))
    for reused, traced in zip(*found, strict=True):
        assert_close(reused, traced, relative_to_peak=1e-5)
    assert not np.allclose(found[0][0], Recognizer(parent_model).log_probabilities(waveforms)[0], atol=0.01)
    assert (tmp_path / "reused/saved_model.pb").read_bytes() == (parent_model / "saved_model.pb").read_bytes()
    assert not (tmp_path / "reused/fingerprint.pb").exists()
    assert read_model_info(tmp_path / "reused").weights == about.weights
    assert model_digest(tmp_path / "reused") != model_digest(parent_model)
    keys = [
        graph_key(settings_from("", **changes), dataset)
        for changes, dataset in (
            ({"model": {"padding": 3}}, few),
            ({"export": {"frequency_warps": [0.9, 1.0]}}, few),
            ({}, dataclasses.replace(few, alphabet=Alphabet("dcba"))),
            ({}, dataclasses.replace(few, mean=[0.0] * len(few.mean))),
        )
    ]
    assert len({about.graph, *keys}) == 5


@pytest.mark.slow
def test_subwords_are_trained_exported_and_kept_by_a_child(few: Dataset, parent_model: Path, tmp_path: Path) -> None:
    """From characters to subwords, and from these on: a child's corpus, which spells otherwise, changes nothing."""
    start = {"replay": 1.0, "epochs": 25, "rate_share": 1.0}
    settings = settings_from(
        str(parent_model), subwords=7, export={"onnx": "float32"}, start=start, evaluate_epochs=25, checkpoint_steps=100
    )
    first = export(run(few.folder, tmp_path / "store", settings).folder, tmp_path / "store", settings).path("model")
    about = read_model_info(first)
    texts = [row.text for row in few.rows() if row.split == "train"]
    subwords = Alphabet(about.alphabet)
    assert subwords == learn_subwords(texts, few.alphabet, 7)
    assert subwords.characters == LETTERS
    waveforms = [one.waveform for one in make_utterances(6, seed=3)]
    engines = [Recognizer(first, engine=engine) for engine in ("tensorflow", "onnx")]
    found, same = (engine.decode_waveforms(waveforms) for engine in engines)
    assert [one.greedy for one in found] == [one.greedy for one in same]
    assert any(one.greedy for one in found)
    for one in found:
        assert one.log_probabilities.shape[1] == 8
        assert one.greedy == decode_best_path(one.log_probabilities, subwords).text

    other = write_dataset(tmp_path / "other", [one for one in make_utterances(40, seed=8) if "ab" not in one.text])
    child = run(other.folder, tmp_path / "store", settings_from(str(first), subwords=7, start={"replay": 1.0}))
    assert read_model_info(child.path("model")).alphabet == about.alphabet
    assert learn_subwords([row.text for row in other.rows()], few.alphabet, 7) != subwords


@pytest.fixture
def child(few: Dataset, registry: Path, tmp_path: Path) -> Any:
    return run(few.folder, tmp_path / "store", settings_from("asr@production", checkpoint_steps=1), registry)


def test_the_first_output_is_that_of_the_parent_whatever_the_new_data(
    few: Dataset, registry: Path, tmp_path: Path
) -> None:
    """The mean and deviation of the features are the parent's: recomputed ones would move what the network hears."""
    loud = write_dataset(tmp_path / "loud", make_utterances(16, seed=9), change=lambda _, features: features + 3)
    loaded = tf.saved_model.load(str(registry / "asr" / "1"))
    waveform = make_utterances(1, seed=5)[0].waveform
    expected = loaded.signatures["logits"](
        waveforms=tf.constant(waveform[None]), lengths=tf.constant([len(waveform)], tf.int32)
    )["logits"].numpy()
    weights = read_parent(find_parent("asr@1", registry, family="asr", own_name="asr", generations=5))  # type: ignore[arg-type]
    task = AsrTask(settings_from("asr@1"), with_normalization_of(loud, weights))
    start_from(task, weights)
    features = compute_features(waveform, few.features)
    logits, _ = task.module.model(features[None], np.array([len(features)]))
    assert np.abs(np.asarray(logits) - expected).max() < 2e-3


@pytest.mark.slow
def test_the_key_has_the_parents_digest_and_a_killed_run_resumes_to_the_same_weights(
    few: Dataset, registry: Path, child: Any, tmp_path: Path, parent_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key has neither the parent's name nor its place."""
    store = tmp_path / "store"
    for model, place in (("asr@1", registry), (str(parent_model), Path()), (str(registry / "asr" / "1"), Path())):
        assert run(few.folder, store, settings_from(model, checkpoint_steps=1), place).reused

    settings, step, left = settings_from("asr@production", checkpoint_steps=1), TrainModule.train_step, [2]

    def until(module: TrainModule, *arguments: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return step(module, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainModule, "train_step", until)
        with pytest.raises(KeyboardInterrupt):
            run(few.folder, tmp_path / "killed", settings, registry)
    resumed = run(few.folder, tmp_path / "killed", settings, registry)
    assert resumed.key == child.key
    name = f"best/step-{int(child.metrics['best_step']):08d}/arrays.npz"
    with np.load(child.folder / name) as one, np.load(resumed.folder / name) as other:
        assert all(np.array_equal(one[key], other[key]) for key in one.files)

    publish_with_list(registry, child.path("model"))
    assert Registry(registry, "asr").in_service() == 2
    parent = find_parent("asr@production", registry, family="asr", own_name="asr", generations=5)
    assert parent is not None
    assert [one["version"] for one in parent.describe()["ancestors"]] == [2, 1]
    assert parent.describe()["generation"] == 2
    assert parent.describe()["ancestors"][0]["digest"] == model_digest(child.path("model"))
    assert parent.info.normalization == read_model_info(parent_model).normalization
    with plan_steps(), pytest.raises(StepWouldRunError) as planned:
        run(few.folder, store, settings, registry)
    assert planned.value.named_by["inputs"]["start"] == parent.ancestor.digest


def test_without_a_start_the_key_is_that_of_before(few: Dataset) -> None:
    started = settings_from("asr@3").started_from("asr@3")
    assert started.learning_rate == pytest.approx(0.001)
    assert "start" not in started.key_values()  # the model's digest is in the key, and the rate and epochs are applied
    assert settings_from("asr@3").started_from("").key_values() == tiny_asr_settings(epochs=1, model=SIZES).key_values()
    assert started.started_from("asr@3") == started


def test_a_model_without_a_version_yet_starts_from_random_weights(
    few: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first night of a schedule. Another model that does not exist is a mistake."""
    which = {"family": "asr", "own_name": "asr", "generations": 5}
    assert find_parent("asr@production", tmp_path, **which) is None  # type: ignore[arg-type]
    assert "asr has no version in service yet; starting from random weights" in capsys.readouterr().out
    for model, told in (("base@production", "has no version yet"), ("asr@7", "no version yet")):
        with pytest.raises(SettingsError, match=told):
            find_parent(model, tmp_path, **which)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="no registry is given"):
        find_parent("asr@production", "", **which)  # type: ignore[arg-type]
    for model in ("asr", "asr@candidate", "asr@latest", str(tmp_path / "absent")):  # taken for paths
        with pytest.raises(VoxlineError, match=rf"train\.start\.model is '{model}' \(a version .*NAME@production"):
            find_parent(model, tmp_path, **which)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_first_night_starts_from_the_fallback_and_the_second_from_the_first(
    few: Dataset, parent_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Work is named by the model that it starts from: the same start without a fallback is reused."""
    registry = tmp_path / "registry"
    store = tmp_path / "store"
    nightly = settings_from("asr@production", start={"fallback": str(parent_model), "rate_share": 0.5})
    first = run(few.folder, store, nightly, registry)
    said = capsys.readouterr().out
    assert f"asr has no version in service yet; starting from {parent_model} (train.start.fallback)" in said
    about = read_model_info(first.path("model"))
    assert [ancestor.digest for ancestor in ancestors_of(about)] == [model_digest(parent_model)]
    assert about.settings["start"]["model"] == str(parent_model)
    assert run(few.folder, store, settings_from(str(parent_model), start={"rate_share": 0.5}), registry).reused

    publish_with_list(registry, first.path("model"))
    second = run(few.folder, store, nightly, registry)
    assert not second.reused
    assert ancestors_of(read_model_info(second.path("model")))[0].label == "asr@1"
    assert "fallback" not in capsys.readouterr().out

    # A row of generations ends with the fallback too.
    limited = nightly.model_copy(update={"start": nightly.start.model_copy(update={"generations": 1})})
    third = run(few.folder, store, limited, registry)
    assert third.reused
    assert third.key == first.key


def test_a_fallback_has_the_epochs_of_a_whole_training_and_the_head_s() -> None:
    start = {"fallback": "hf://owner/name@c0ffee", "epochs": 2, "head_epochs": 3}
    nightly = tiny_asr_settings(epochs=8, start={"model": "asr@production", **start})
    first = nightly.started_from("hf://owner/name@c0ffee", by_fallback=True)
    assert (first.epochs, first.start.head_epochs, first.start.fallback) == (8, 3, "")
    night = nightly.started_from("asr@3")
    assert (night.epochs, night.start.head_epochs, night.start.model) == (2, 0, "asr@3")
    # Its output layer is left random on every night.
    encoder = tiny_asr_settings(epochs=8, start={"model": "asr@production", **start, "epochs": 5, "keep": "encoder"})
    assert encoder.started_from("asr@3").start.head_epochs == 3
    with pytest.raises(SettingsError, match=r"head_epochs is 3, and the training has 2 epochs"):
        tiny_asr_settings(epochs=8, start={"model": "asr@production", **start, "keep": "encoder"})
    with pytest.raises(SettingsError, match=r"start\.fallback is 'base@1', and start\.model is empty"):
        tiny_asr_settings(start={"fallback": "base@1"})


def test_a_fallback_that_does_not_exist_is_named(few: Dataset, tmp_path: Path) -> None:
    nightly = settings_from("asr@production", start={"fallback": "base@1"})
    with pytest.raises(SettingsError, match=r"train\.start\.fallback is 'base@1'.*no version yet"):
        run(few.folder, tmp_path / "store", nightly, tmp_path / "registry")


def test_a_parent_of_another_family_or_with_changed_bytes_is_refused(
    few: Dataset, registry: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="family 'asr'; 'tts' is accepted"):
        find_parent("asr@1", registry, family="tts", own_name="tts", generations=5)
    with open(registry / "asr" / "1" / "variables" / "variables.index", "ab") as file:
        file.write(b"x")
    with pytest.raises(WorkError, match="not the ones that were published"):
        run(few.folder, tmp_path / "store", settings_from("asr@1"), registry)


@dataclasses.dataclass(frozen=True)
class Chain:
    """Three versions, each started from the one before, and each with another speaker."""

    registry: Path

    def find(self, generations: int = 5) -> str | None:
        found = find_parent("asr@production", self.registry, family="asr", own_name="asr", generations=generations)
        return found and found.label

    def purge(self, speaker: str) -> None:
        """As components/publish/purge does with each list that has the speaker."""
        for file in sorted(self.registry.glob(f"asr/*/{TRAINED_ON}")):
            read_training_data(file.read_bytes(), "").without(speaker).write(file)


@pytest.fixture
def chain(parent_model: Path, tmp_path: Path) -> Chain:
    registry, models = tmp_path / "chain", Registry(tmp_path / "chain", "asr")
    for number, speaker in enumerate(("anna", "ben", "carl"), 1):
        folder = shutil.copytree(parent_model, tmp_path / f"model-{number}")
        about = read_model_info(folder).to_dict()
        about["extra"] = {"note": number}
        line = {"id": f"u{number}", "split": "train", "speaker": speaker, "audio_hash": f"{number}", "offset": 0.0}
        own = TrainingData(f"data-{number}", "rows", 0, [{**line, "duration": 1.0, "text_hash": ""}])
        parent = find_parent("asr@production", registry, family="asr", own_name="asr", generations=5)
        if parent:
            about["start"] = parent.describe()
            own = own.with_ancestors(parent.training_data)
        (folder / "model.json").write_text(json.dumps(about))
        own.write(folder / TRAINED_ON)
        publish_with_list(registry, folder)
    assert models.in_service() == 3
    return Chain(registry)


def test_ancestors_are_heard_too(chain: Chain) -> None:
    lines = read_training_data((chain.registry / "asr" / "3" / TRAINED_ON).read_bytes(), "").utterances
    assert [(line["speaker"], line.get("inherited", False)) for line in lines] == [
        ("anna", True),
        ("ben", True),
        ("carl", False),
    ]


def test_after_a_purge_the_last_clean_ancestor_is_started_from(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chain.find() == "asr@3"
    chain.purge("ben")  # heard by version 2, and through it by version 3
    assert chain.find() == "asr@1"
    told = capsys.readouterr().out
    assert "asr@3 was trained on utterances that were purged since (1), itself or through its ancestors" in told
    assert "starting from its ancestor asr@1, which was not trained on them" in told
    chain.purge("anna")
    assert chain.find() is None
    assert "starting from random weights" in capsys.readouterr().out


def test_what_tests_the_model_was_not_heard_by_its_parent(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording with hash 2 was in train when version 2 was trained, and is in today's test split."""

    def find(*test: tuple[str, float]) -> str | None:
        how: dict[str, Any] = {"family": "asr", "own_name": "asr", "generations": 5, "test": {("0", 0.0), *test}}
        found = find_parent("asr@production", chain.registry, **how)
        return found and found.label

    assert find() == "asr@3"
    assert find(("2", 0.0)) == "asr@1"
    told = capsys.readouterr().out
    assert "asr@3 was trained on recordings of today's test split (1), itself or through its ancestors" in told
    assert find(("1", 0.0)) is None
    (chain.registry / "asr" / "1" / TRAINED_ON).unlink()
    assert find(("2", 0.0)) is None  # whether version 1 heard it is not known


def test_a_training_whose_parent_heard_the_test_split_starts_from_random_weights(
    few: Dataset, registry: Path, tmp_path: Path
) -> None:
    heard = make_utterances(32, 8)
    moved = [dataclasses.replace(one, split="test") if one.id == "train-003" else one for one in heard]
    today = write_dataset(tmp_path / "today", moved)
    keys = []
    for settings in (settings_from("asr@production"), settings_from("")):
        with plan_steps(), pytest.raises(StepWouldRunError) as planned:
            run(today.folder, tmp_path / "store", settings, registry)
        keys.append(planned.value.named_by)
    assert keys[0] == keys[1]


def test_an_alias_in_a_location_is_pinned_to_the_version(registry: Path) -> None:
    """So that the workers of a cluster find the very model that the launcher found."""
    for last in ("asr", "asr@production", "asr@1", "asr/1", "asr/1/"):
        parent = find_parent(f"{registry}/{last}", "", family="asr", own_name="asr", generations=5)
        assert parent is not None
        again = find_parent(parent.pinned, "", family="asr", own_name="asr", generations=5)
        assert again == parent
        assert parent.pinned.rstrip("/") == f"{registry}/asr/1"


def test_damaged_ancestors_are_refused() -> None:
    """A path to start from may lead to anybody's model, and its model.json names folders of the store."""
    whole = {"name": "asr", "version": 1, "digest": "0f", "dataset": "1e"}

    def read(ancestor: Any) -> list[Ancestor]:
        start = {"generation": 1, "ancestors": [ancestor], "training_data": "known"}
        values = {**minimal_model_json("asr", "asr"), "start": start}
        return ancestors_of(parse_versioned(values, ModelInfo, "model.json"))

    assert read(whole)[0].label == "asr@1"
    for ancestor in ({**whole, "dataset": "../../other"}, {**whole, "version": "1"}, {"name": "asr"}):
        with pytest.raises(WorkError, match="an ancestor is damaged"):
            read(ancestor)
    with pytest.raises(WorkError, match=r"model\.json: Expected `object`, got `str` - at `\$\.start\.ancestors"):
        read("asr@1")


def test_a_row_of_generations_ends_with_random_weights(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    assert chain.find(generations=3) == "asr@3"
    assert chain.find(generations=2) is None
    assert "asr@3 is the last of 2 models in a row that started from another one" in capsys.readouterr().out
