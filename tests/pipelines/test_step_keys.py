"""The settings in a step's key: what differs from the defaults, and nothing else."""

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest
from pydantic_core import PydanticUndefined, to_jsonable_python

from voxline.components.convert.settings import ConvertSettings
from voxline.components.demo_corpus.settings import DemoCorpusSettings
from voxline.components.demo_corpus.step import corpus_kinds
from voxline.components.extract.settings import ExtractSettings
from voxline.components.forecast.settings import ForecastSettings
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.language.settings import LanguageSettings
from voxline.components.validate.settings import ValidateSettings
from voxline.families.asr.settings import AsrEvaluateSettings, AsrExportForm, AsrTrainSettings
from voxline.families.conversion.settings import ConversionTrainSettings
from voxline.families.intents.settings import IntentsEvaluateSettings, IntentsTrainSettings
from voxline.families.tts.settings import SharpenTrainSettings, TtsEvaluateSettings, TtsExportForm, TtsTrainSettings
from voxline.families.vocoder.settings import (
    VocoderEvaluateSettings,
    VocoderExportForm,
    VocoderTrainSettings,
    WaveGlowExportForm,
)
from voxline.settings import Settings, nested_models
from voxline.store.finished import step_key

DEFAULTS = Path(__file__).parent / "golden" / "key_defaults.json"


class KeyedStep(NamedTuple):
    """A step whose output is reused.

    Attributes:
      module: holds its REVISION.
    """

    settings: type[Settings]
    module: str


STEPS = {
    "ingest": KeyedStep(CorpusSettings, "components.ingest.step"),
    "convert": KeyedStep(ConvertSettings, "components.convert.step"),
    "validate": KeyedStep(ValidateSettings, "components.validate.step"),
    "extract": KeyedStep(ExtractSettings, "components.extract.step"),
    "language": KeyedStep(LanguageSettings, "components.language.step"),
    "train asr": KeyedStep(AsrTrainSettings, "components.train.step"),
    "train tts": KeyedStep(TtsTrainSettings, "components.train.step"),
    "train vocoder": KeyedStep(VocoderTrainSettings, "components.train.step"),
    "train intents": KeyedStep(IntentsTrainSettings, "components.train.step"),
    "train conversion": KeyedStep(ConversionTrainSettings, "components.train.step"),
    "export asr": KeyedStep(AsrExportForm, "components.export.step"),
    "export tts": KeyedStep(TtsExportForm, "components.export.step"),
    "export vocoder": KeyedStep(VocoderExportForm, "components.export.step"),
    "export waveglow": KeyedStep(WaveGlowExportForm, "components.export.step"),
    "sharpen": KeyedStep(SharpenTrainSettings, "families.tts.sharpened_voice"),
    "evaluate asr": KeyedStep(AsrEvaluateSettings, "components.evaluate.step"),
    "evaluate tts": KeyedStep(TtsEvaluateSettings, "components.evaluate.step"),
    "evaluate vocoder": KeyedStep(VocoderEvaluateSettings, "components.evaluate.step"),
    "evaluate intents": KeyedStep(IntentsEvaluateSettings, "components.evaluate.step"),
    **{
        f"demo_corpus {kind}": KeyedStep(corpus.settings, "components.demo_corpus.step")
        for kind, corpus in corpus_kinds().items()
    },
}


def revision(step: str) -> int:
    return int(importlib.import_module(f"voxline.{STEPS[step].module}").REVISION)


def example(step: str) -> Settings:
    """The settings with their defaults."""
    model = STEPS[step].settings
    kind = {"kind": step.split()[1]} if issubclass(model, DemoCorpusSettings) else {}
    return model.of({**kind, **({"name": "x"} if model is SharpenTrainSettings else {})})


def defaults_of(model: type[Settings], values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The default of each field in the key by its dotted name, with the fields of each kind and of list elements."""
    for name, field in model.model_fields.items():
        default = values[name]
        if name in model.NOT_IN_KEY or default is PydanticUndefined:
            continue
        if not isinstance(default, Settings):
            yield f"{prefix}{name}", to_jsonable_python(default)
        for inner in nested_models(field.annotation):
            if not issubclass(inner, Settings):
                continue
            section = dict(default) if type(default) is inner else field_defaults(inner)
            kind = f"[{section['kind']}]" if len(nested_models(field.annotation)) > 1 else ""
            yield from defaults_of(inner, section, f"{prefix}{name}{kind}.")


def field_defaults(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return {name: field.get_default(call_default_factory=True) for name, field in model.model_fields.items()}


def current_defaults() -> dict[str, Any]:
    return {
        step: {
            "revision": revision(step),
            "defaults": dict(defaults_of(keyed.settings, field_defaults(keyed.settings))),
        }
        for step, keyed in STEPS.items()
    }


def changed_defaults(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Steps whose defaults have changed, though their revision has not."""
    return [
        f"{step}: {key} was {value!r} and is {now[step]['defaults'][key]!r}"
        for step, golden in before.items()
        if step in now and golden["revision"] == now[step]["revision"]
        for key, value in golden["defaults"].items()
        if key in now[step]["defaults"] and now[step]["defaults"][key] != value
    ]


def test_a_changed_default_raises_the_revision_of_its_step() -> None:
    """VOXLINE_WRITE_GOLDEN=1 writes new settings and raised revisions to the golden file."""
    golden = json.loads(DEFAULTS.read_text(encoding="utf-8")) if DEFAULTS.exists() else {}
    now = current_defaults()
    assert not changed_defaults(golden, now), "raise REVISION of these steps: stores hold outputs made with the old one"
    if os.environ.get("VOXLINE_WRITE_GOLDEN"):
        DEFAULTS.write_text(json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        golden = now
    assert golden == json.loads(json.dumps(now)), "write the golden file: VOXLINE_WRITE_GOLDEN=1 pytest " + __file__


def test_the_golden_file_tells_a_changed_default_from_a_new_setting() -> None:
    before = {"train": {"revision": 1, "defaults": {"epochs": 15}}}
    more = {"train": {"revision": 1, "defaults": {"epochs": 15, "label_smoothing": 0.0}}}
    other = {"train": {"revision": 1, "defaults": {"epochs": 20}}}
    raised = {"train": {"revision": 2, "defaults": {"epochs": 20}}}
    assert [changed_defaults(before, now) for now in (more, other, raised)] == [
        [],
        ["train: epochs was 15 and is 20"],
        [],
    ]


@pytest.mark.parametrize("step", STEPS)
def test_a_new_setting_with_a_default_changes_no_key(step: str, tmp_path: Path) -> None:
    model = STEPS[step].settings
    section = {"a": 1, "b": [1, 2]}
    later: Any = pydantic.create_model(
        "Later", __base__=model, label_smoothing=(float, 0.0), further=(dict[str, Any], section)
    )
    settings = example(step)
    extended = later.model_validate(settings.plain())
    keys = {step_key(tmp_path, step, one, {}, 1)[1].name for one in (settings, extended)}
    assert len(keys) == 1
    assert extended.model_copy(update={"label_smoothing": 0.1}).key_values() != settings.key_values()


def test_a_new_setting_of_a_section_or_of_a_list_changes_no_key() -> None:
    class Layer(Settings):
        channels: int = 16

    class LaterLayer(Layer):
        kernel: int = 5

    class Train(Settings):
        first: Layer = Layer(channels=8)
        layers: tuple[Layer, ...] = (Layer(),)
        named: dict[str, Layer] = pydantic.Field({})

    class LaterTrain(Settings):
        first: LaterLayer = LaterLayer(channels=8)
        layers: tuple[LaterLayer, ...] = (LaterLayer(),)
        named: dict[str, LaterLayer] = pydantic.Field({})

    values: Any
    for values in (
        {},
        {"first": {"channels": 16}},
        {"layers": [{"channels": 3}, {}], "named": {"top": {"channels": 4}}},
    ):
        assert Train.of(values).key_values() == LaterTrain.of(values).key_values() == values


class Change(NamedTuple):
    """A field, another value for it, and whether it is in the key."""

    path: tuple[str, ...]
    value: Any
    keyed: bool


def other_values(value: Any) -> list[Any]:
    """Two values that differ from one: what the key does with them depends on no validator."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value + 2]
    if isinstance(value, str):
        return [f"{value}x", f"{value}y"]
    if isinstance(value, dict):
        return [{**value, "more": 1}, {**value, "more": 2}]
    if isinstance(value, list | tuple):
        return [[*value, "x"], [*value, "y"]]
    return [1, 2]


def changes_of(settings: Settings, path: tuple[str, ...] = (), keyed: bool = True) -> Iterator[Change]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        in_key = keyed and name not in settings.NOT_IN_KEY
        if isinstance(value, Settings):
            yield from changes_of(value, (*path, name), in_key)
        else:
            for other in other_values(value):
                yield Change((*path, name), other, in_key)


def with_change(settings: Settings, path: tuple[str, ...], value: Any) -> Settings:
    name, *rest = path
    inner = with_change(getattr(settings, name), tuple(rest), value) if rest else value
    return settings.model_copy(update={name: inner})


def every_kind(step: str) -> Iterator[Settings]:
    """The settings by default, with each kind of network."""
    settings = example(step)
    yield settings
    field = type(settings).model_fields.get("model")
    for kind in nested_models(field.annotation) if field else []:
        yield settings.model_copy(update={"model": kind()})


@pytest.mark.parametrize("step", STEPS)
def test_settings_that_differ_in_a_field_of_the_key_have_different_keys(step: str) -> None:
    for settings in every_kind(step):
        keys = {json.dumps(settings.key_values(), sort_keys=True)}
        expected = 1
        for change in changes_of(settings):
            expected += change.keyed
            keys.add(json.dumps(with_change(settings, change.path, change.value).key_values(), sort_keys=True))
            assert len(keys) == expected, change


@pytest.mark.parametrize("step", ["train asr", "train tts", "train vocoder"])
def test_every_kind_of_network_has_a_key_of_its_own(step: str) -> None:
    kinds = {settings.plain()["model"]["kind"]: settings.key_values() for settings in every_kind(step)}
    assert {kind: values["model"] for kind, values in kinds.items()} == {kind: {"kind": kind} for kind in kinds}


def test_families_share_no_key() -> None:
    keys = [str(example(step).key_values()) for step in STEPS if step.startswith("train")]
    assert len(set(keys)) == len(keys) == 5


@pytest.mark.parametrize(
    ("step", "values"),
    [
        ("ingest", {"uri": "gs://bucket/corpus", "sha256": "0" * 64, "corrections": "corrections.tsv"}),
        ("convert", {"workers": 7, "runner": "DataflowRunner", "beam_options": ["--region=x"]}),
        ("validate", {"workers": 7, "schema": "/data/asr.pbtxt"}),
        ("extract", {"workers": 7, "shard_megabytes": 4}),
        ("language", {"text": ["more.txt"]}),
        ("train asr", {"workers": {"count": 4}, "xla": True, "buckets": 2, "language_text": {"text": ["more.txt"]}}),
        ("train asr", {"fit_memory": False, "probe": "/data/probe", "export": {"hub": True}}),
        ("train asr", {"export": {"onnx": "int8", "streaming": False}}),
        ("train tts", {"sharpen": {"kind": "gan"}, "export": {"vocoder": "vocoder@1"}}),
        ("train tts", {"export": {"onnx": "int8"}, "griffin_lim": {"iterations": 9}}),
        ("export tts", {"export": {"vocoder": "vocoder@1"}}),
        ("train vocoder", {"voice": "tts@1"}),
    ],
)
def test_workers_and_locations_are_in_no_key(step: str, values: dict[str, Any]) -> None:
    assert STEPS[step].settings.of(values).key_values() == example(step).key_values()


def test_the_location_of_the_history_is_in_no_key() -> None:
    assert ForecastSettings(history="gs://bucket/history").key_values() == {}


def test_settings_say_what_changed_since_a_key() -> None:
    before = AsrTrainSettings.of({"epochs": 5, "model": {"units": 64}})
    now = AsrTrainSettings.of({"seed": 3, "model": {"units": 32}, "workers": {"count": 2}})
    assert now.changed_from(before.key_values()) == [
        ("epochs", "5", "15"),
        ("model.units", "64", "32"),
        ("seed", "1", "3"),
    ]
    assert now.changed_from(now.key_values()) == []
