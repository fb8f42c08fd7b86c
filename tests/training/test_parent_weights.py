"""Weights of a parent in its child: by name, output rows by symbol, and what does not fit."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.test_warm_start import settings_from
from tests.training.tones import LETTERS, tiny_asr_settings, tiny_tts_settings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.task import AsrTask
from voxline.families.tts.task import TtsTask
from voxline.text.alphabet import Alphabet
from voxline.training import warm_start
from voxline.training.export import model_info
from voxline.training.warm_start import ParentWeights, read_named_weights, start_from, with_normalization_of


def as_parent(task: Any, alphabet: str | None = None) -> ParentWeights:
    """What a task would export now."""
    info = model_info("ctc", task.settings, task.dataset, {}, task.module.weight_names())
    if alphabet:
        info.alphabet = alphabet
    return ParentWeights("asr@1", info, list(task.module.weights().values()), task.module.weight_names())


def named_weights(task: Any) -> dict[str, np.ndarray]:
    return dict(zip(task.module.weight_names(), task.module.weights().values(), strict=True))


def test_output_rows_are_carried_by_symbol_and_all_else_by_name(few: Dataset) -> None:
    """Against a loop over symbols. The parent was built second in its process, so Keras' own names differ."""
    parent = AsrTask(settings_from("", seed=2), few)
    theirs = named_weights(parent)
    other = dataclasses.replace(few, alphabet=Alphabet("dxcab"))  # b moved, x is new
    fewer = dataclasses.replace(few, alphabet=Alphabet("dcb"))
    for how, dataset in (("mean", other), ("zero", other), ("random", other), ("mean", fewer)):
        if dataset is fewer:
            monkey = AsrTask(settings_from("asr@1"), few)  # its batches need every letter
            monkey.dataset, monkey.module = dataset, type(monkey.module)(monkey.settings, dataset, monkey.strategy)
            child = monkey
        else:
            child = AsrTask(settings_from("asr@1", start={"new_symbols": how}), dataset)
        fresh = named_weights(child)
        start_from(child, as_parent(parent))
        carried = named_weights(child)
        assert carried.keys() == theirs.keys()
        for name, values in carried.items():
            if not name.startswith("classifier/"):
                assert np.array_equal(values, theirs[name]), name
                continue
            for index, symbol in enumerate([*dataset.alphabet.symbols, "blank"]):
                now = values[..., index]
                if symbol in LETTERS:
                    expected = theirs[name][..., LETTERS.index(symbol)]
                elif symbol == "blank":
                    expected = theirs[name][..., len(LETTERS)]
                else:
                    mean = sum(theirs[name][..., letter] for letter in range(4)) / 4
                    expected = {"mean": mean, "zero": 0 * mean, "random": fresh[name][..., index]}[how]
                assert np.allclose(now, expected, atol=1e-7), (name, symbol)


@pytest.mark.parametrize(
    "kept",
    [
        {"freeze": ["classifier"]},
        {"freeze": ["classifier/bias"]},
        {"lora": {"rank": 2, "parts": ["classifier", "convolutions/0"]}},
        {"lora": {"rank": 2, "parts": ["convolutions/0"]}},
    ],
)
def test_new_symbols_that_nothing_would_teach_are_refused(kept: dict[str, Any], few: Dataset) -> None:
    parent = AsrTask(settings_from("", seed=2), few)
    other = dataclasses.replace(few, alphabet=Alphabet("dxcab"))
    refused = AsrTask(settings_from("asr@1", **kept), other)
    with pytest.raises(
        SettingsError, match=r"does not know 'x', and train\.freeze or train\.lora keeps classifier from"
    ):
        start_from(refused, as_parent(parent))
    start_from(AsrTask(settings_from("asr@1", **kept), few), as_parent(parent))

    # The output layer is trained whole; or all of it is new, which has a message of its own.
    if kept.get("lora", {}).get("parts") == ["convolutions/0"]:
        trained = {**kept["lora"], "also": ["classifier"]}
        start_from(AsrTask(settings_from("asr@1", lora=trained), other), as_parent(parent))
    with pytest.raises(SettingsError, match="classifier is left random"):
        start_from(AsrTask(settings_from("asr@1", **kept, start={"keep": "encoder"}), other), as_parent(parent))


def test_weights_of_characters_become_those_of_the_same_characters_among_subwords(few: Dataset) -> None:
    parent = AsrTask(settings_from("", seed=2), few)
    subwords = dataclasses.replace(few, alphabet=Alphabet(("d", "c", "b", "a", "ab", "cd")))
    child = AsrTask(settings_from("asr@1", subwords=6), subwords)
    start_from(child, as_parent(parent))
    theirs, carried = (named_weights(task)["classifier/bias"] for task in (parent, child))
    assert np.allclose(carried, [*theirs[3::-1], theirs[:4].mean(), theirs[:4].mean(), theirs[4]])


@pytest.mark.slow
def test_the_text_table_of_a_voice_is_carried_by_symbol(few: Dataset) -> None:
    parent = TtsTask(tiny_tts_settings(seed=2), few)
    theirs = named_weights(parent)
    child = TtsTask(tiny_tts_settings(start={"model": "tts@1"}), dataclasses.replace(few, alphabet=Alphabet("zdcba")))
    start_from(child, as_parent(parent))
    carried = named_weights(child)
    table = "embedding/embeddings"
    assert np.allclose(carried[table], [theirs[table].mean(0), *theirs[table][[3, 2, 1, 0]]])
    assert all(np.array_equal(carried[name], theirs[name]) for name in theirs if name != table)

    child = TtsTask(tiny_tts_settings(start={"model": "tts@1", "keep": "encoder"}), few)
    fresh = named_weights(child)
    start_from(child, as_parent(parent))
    carried = named_weights(child)
    assert {name for name in theirs if np.array_equal(carried[name], fresh[name])} >= {
        name for name in theirs if name.startswith(("decoder/", "postnet/"))
    }
    assert np.array_equal(carried[table], theirs[table])


def test_a_voice_starts_with_the_last_values_of_its_schedules() -> None:
    settings = tiny_tts_settings(
        reduction_schedule=[{"step": 0, "reduction": 3}, {"step": 100, "reduction": 2}],
        teacher_forcing={"to_share": 0.7, "from_step": 10, "to_step": 90},
        guided_attention={"weight": 2.0, "decay_steps": 50},
        start={"model": "tts@1"},
    ).started_from("tts@1")
    assert settings.reduction(0) == 2
    assert settings.teacher_forcing.share(0) == 0.7
    assert settings.guided_attention_weight(0) == 0


def test_shrinking_mixes_weights_with_random_ones_but_not_statistics(few: Dataset) -> None:
    parent = AsrTask(settings_from("", seed=2), few)
    weights = {key: array + 1 for key, array in parent.module.weights().items()}
    parent.module.load_weights(weights)
    child = AsrTask(settings_from("asr@1", start={"shrink": 0.6, "keep": ["recurrent/0", "convolutions/0/norm"]}), few)
    fresh, theirs = named_weights(child), named_weights(parent)
    start_from(child, as_parent(parent))
    for name, values in named_weights(child).items():
        if "moving" in name:
            expected = theirs[name]
        elif name.startswith(("recurrent/0/", "convolutions/0/norm/")):
            expected = 0.6 * theirs[name] + 0.4 * fresh[name]
        else:
            expected = fresh[name]
        assert np.allclose(values, expected, atol=1e-6), name


@pytest.mark.slow
def test_what_does_not_fit_is_refused_by_the_setting_that_differs(few: Dataset) -> None:
    parent = as_parent(AsrTask(settings_from(""), few))

    def refusal(**changes: Any) -> str:
        with pytest.raises(SettingsError) as refused:
            start_from(AsrTask(settings_from("asr@1", **changes), few), parent)
        return str(refused.value)

    told = refusal(model={"units": 7})
    assert "train.model.units is 7, there 6" in told
    assert "train.start.keep" in told
    assert "train.model.layers is 2, there 1" in refusal(model={"layers": 2})
    for kept in ("all", "encoder"):  # the shapes of all weights fit
        told = refusal(model={"top_db": 50}, start={"keep": kept})
        assert "asr@1 computes something else: train.model.top_db is 50.0, there 0.0; set the same" in told
        told = refusal(model={"rnn_activation": "clipped_relu"}, start={"keep": kept})
        assert "train.model.rnn_activation is clipped_relu, there tanh; set the same" in told
        strides = [{"channels": 4, "kernel": [5, 5], "stride": [1, 2]}]
        told = refusal(model={"convolutions": strides}, start={"keep": kept})
        assert "train.model.convolutions.stride is [[1, 2]], there [[2, 2]]" in told
    assert "train.model.relu_clip is 5" in refusal(model={"relu_clip": 5.0})
    del parent.info.settings["model"]["rnn_activation"]  # a model.json of before
    assert "rnn_activation is clipped_relu, there tanh" in refusal(model={"rnn_activation": "clipped_relu"})
    start_from(AsrTask(settings_from("asr@1"), few), parent)
    told = refusal(start={"keep": ["recurrent", "lstm"]})
    assert "'lstm'" in told
    assert "it has convolutions/0, recurrent/0, classifier" in told
    conformer = {"kind": "conformer", "heads": 2, "units": 16, "layers": 1}
    other = as_parent(AsrTask(tiny_asr_settings(model=conformer), few))
    child = AsrTask(tiny_asr_settings(model={**conformer, "heads": 4}, start={"model": "asr@1"}), few)
    with pytest.raises(SettingsError, match=r"train\.model\.heads is 4, there 2"):
        start_from(child, other)
    features = dataclasses.replace(few, features=few.features.model_copy(update={"mels": 20}))
    with pytest.raises(SettingsError, match=r"extract\.features\.mels is 20, there 16"):
        with_normalization_of(features, parent)
    # Seconds as a person writes them are as good as those that a public model's samples make.
    rounded = few.features.model_copy(update={"hop_seconds": few.features.hop_seconds + 1e-7})
    with_normalization_of(dataclasses.replace(few, features=rounded), parent)


def test_weights_without_a_name_are_damage(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = AsrTask(settings_from(""), few)
    info = model_info("ctc", task.settings, few, {}, task.module.weight_names())
    arrays = list(task.module.weights().values())
    monkeypatch.setattr(warm_start, "read_exported_weights", lambda folder: arrays)
    assert read_named_weights(info, tmp_path).keys() == named_weights(task).keys()
    arrays.pop()
    with pytest.raises(WorkError, match=rf"names {len(arrays) + 1} weights, and there are {len(arrays)}"):
        read_named_weights(info, tmp_path)
