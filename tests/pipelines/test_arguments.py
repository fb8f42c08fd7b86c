"""The graph's parameters and the config's keys are one and the same."""

import json
from typing import Any

import pytest

from voxline.pipelines.cluster.compiler import load_pipeline
from voxline.pipelines.config.families import AsrConfig
from voxline.pipelines.config.keys import pipeline_arguments

CONFIG = AsrConfig.model_validate({"name": "defaults", "store": "s", "registry": "r", "corpus": {"uri": "c"}})


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    return dict(load_pipeline("asr").component_spec.inputs)


def test_a_parameter_of_the_graph_has_the_default_of_its_setting(inputs: dict[str, Any]) -> None:
    arguments = pipeline_arguments(CONFIG.plain(), list(inputs))
    for name, parameter in inputs.items():
        if not name.endswith("_settings") and parameter.default is not None:
            assert parameter.default == arguments[name], name


def test_every_parameter_is_described_and_typed(inputs: dict[str, Any]) -> None:
    for name, parameter in inputs.items():
        assert parameter.description, name
        assert parameter.type in {"String", "Integer", "Float"}, name


def test_named_parameters_and_the_rest_make_up_a_section(inputs: dict[str, Any]) -> None:
    arguments = pipeline_arguments(CONFIG.plain(), list(inputs))
    train = json.loads(arguments["train_settings"])
    named = {"epochs", "batch_size", "learning_rate", "precision", "seed"}
    assert set(train) | named == set(CONFIG.train.plain())
    assert not set(train) & named
    assert set(train["model"]) | {"layers", "units"} == set(CONFIG.train.model.plain())


def test_a_parameter_that_names_no_key_is_a_bug_that_is_seen() -> None:
    with pytest.raises(KeyError, match="epohcs: no such key"):
        pipeline_arguments(CONFIG.plain(), ["train_epohcs"])
