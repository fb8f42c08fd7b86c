"""The parameters of components and graphs are generated from the settings; each setting is written once."""

import inspect
import json
from typing import Any

import pydantic
import pytest

from voxline.components.step_component import step_component
from voxline.families.asr.settings import AsrTrainSettings
from voxline.pipelines.config.pipeline_configs import config_class_of
from voxline.pipelines.kfp_graph import load_pipeline, pipeline_arguments
from voxline.settings import Settings, exposed_keys

CONFIG = config_class_of("asr").model_validate(
    {"name": "defaults", "store": "s", "registry": "r", "corpus": {"uri": "c"}}
)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    return dict(load_pipeline("asr").component_spec.inputs)


def test_a_parameter_of_the_graph_has_the_default_of_its_setting(inputs: dict[str, Any]) -> None:
    arguments = pipeline_arguments(CONFIG.plain(), list(inputs))
    for name, parameter in inputs.items():
        if not name.endswith("__settings") and parameter.default is not None:
            assert parameter.default == arguments[name], name


def test_every_parameter_is_described_and_typed(inputs: dict[str, Any]) -> None:
    for name, parameter in inputs.items():
        assert parameter.description, name
        assert parameter.type in {"String", "Integer", "Float"}, name


def test_exposed_keys_and_the_json_of_the_others_make_up_a_section(inputs: dict[str, Any]) -> None:
    arguments = pipeline_arguments(CONFIG.plain(), list(inputs))
    others = json.loads(arguments["train__settings"])
    exposed = {key.parameter: arguments[f"train__{key.parameter}"] for key in exposed_keys(AsrTrainSettings)[1:]}
    assert not set(exposed) & set(others)
    assert AsrTrainSettings.of(arguments["train__settings"], **exposed) == CONFIG.train


def test_a_value_that_several_steps_need_is_one_parameter(inputs: dict[str, Any]) -> None:
    assert "convert__sample_rate" in inputs
    assert not {"extract__features__sample_rate", "extract__alphabet", "train__name", "push__model_name"} & set(inputs)


@pytest.mark.parametrize("kind", ["fastspeech", "tacotron2", "vits"])
def test_the_graph_of_a_voice_has_an_argument_for_each_kind_of_network(kind: str) -> None:
    values = {
        "name": "voice",
        "store": "s",
        "registry": "r",
        "corpus": {"uri": "c"},
        "train": {"model": {"kind": kind}},
    }
    hop = {"features": {"hop_seconds": 0.016, "window_seconds": 0.064}}
    config = config_class_of("tts").model_validate({**values, "extract": hop})
    arguments = pipeline_arguments(config.plain(), list(load_pipeline("tts").component_spec.inputs))
    assert arguments["train__model__kind"] == kind


def test_a_parameter_without_a_key_in_the_config_is_a_bug_that_raises() -> None:
    with pytest.raises(KeyError, match="epohcs"):
        pipeline_arguments(CONFIG.plain(), ["train__epohcs"])


class WiderTrainSettings(AsrTrainSettings):
    """A setting more than the product has: this field and this line of EXPOSED are all that it takes."""

    EXPOSED = (*AsrTrainSettings.EXPOSED, "augment.noise", "label_smoothing")

    label_smoothing: float = pydantic.Field(0, ge=0, lt=1, description="share of the target spread over all labels")


def train(store: str, settings: "WiderTrainSettings") -> None:
    """Trains.

    Args:
      store: a folder.
    """
    raise RuntimeError(f"{store}: {settings.label_smoothing} {settings.model.units} {settings.seed}")


train.__annotations__["store"] = "str"  # as `from __future__ import annotations` writes it


def test_a_setting_is_added_by_its_field_and_a_line_of_exposed() -> None:
    component = step_component("image", section="train")(train)
    added = component.component_spec.inputs["label_smoothing"]
    assert (added.type, added.default) == ("Float", 0)
    assert added.description == "share of the target spread over all labels."
    assert "label_smoothing: float = 0" in inspect.getsource(component.python_func)


def test_the_component_passes_its_parameters_to_the_step_as_settings(tmp_path: Any) -> None:
    component = step_component("image", section="train")(train)
    arguments = {name: spec.default for name, spec in component.component_spec.inputs.items()}
    arguments |= {"store": str(tmp_path), "label_smoothing": 0.1, "settings": '{"model": {"units": 8}}'}
    with pytest.raises(RuntimeError, match=r"0\.1 8 1$"):
        component.python_func(**arguments)


class Nothing(Settings):
    EXPOSED = ("epohcs",)


class Listed(Settings):
    EXPOSED = ("speeds",)
    speeds: tuple[float, ...] = (1.0,)


@pytest.mark.parametrize(("settings", "fault"), [(Nothing, "no such key: 'epohcs'"), (Listed, "a text or a number")])
def test_an_invalid_exposed_key_raises_when_components_are_created(settings: type[Settings], fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        exposed_keys(settings)
