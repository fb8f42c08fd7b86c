"""`voxline config show`, `explain` and `schema`: what they print is what a run does and accepts."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from tests.conftest import ROOT
from voxline.errors import SettingsError
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.keys import get_key, list_keys
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.locations import MODEL_KEYS
from voxline.pipelines.config.pipeline_configs import config_classes
from voxline.pipelines.config.reference import explain_key, json_schema, list_settings, markdown_reference

CONFIGS = [file for folder in ("asr", "tts", "refresh") for file in sorted((ROOT / "configs" / folder).glob("*.yaml"))]


def voxline(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_reference_in_docs_is_that_of_the_settings() -> None:
    assert (ROOT / "docs/config.md").read_text(encoding="utf-8") == markdown_reference(), "run: make reference"
    assert json.loads((ROOT / "configs/schema.json").read_text(encoding="utf-8")) == json_schema(), (
        "run: make reference"
    )


def test_every_key_is_in_the_reference_with_a_description() -> None:
    settings = list_settings()
    documented = {setting.key for setting in settings}
    for config_class in config_classes().values():
        assert set(list_keys(config_class)) <= documented
    assert [setting.key for setting in settings if not setting.description] == []


@pytest.mark.parametrize("pipeline", config_classes())
def test_the_default_of_every_key_is_the_one_that_an_empty_config_gets(pipeline: str) -> None:
    loaded = load_config({"pipeline": pipeline, "name": "x", "corpus": {"uri": "/c"}})
    config, derived = loaded.plain(), (*loaded.derived_values(), "name", "corpus.uri")
    checked = 0
    for one in list_settings():
        key = one.key
        plain = not (one.section or one.kind or "[]" in key or "<name>" in key or "accelerator." in key)
        if plain and pipeline in one.pipelines and not any(f"{key}.".startswith(f"{copied}.") for copied in derived):
            section, _, name = key.rpartition(".")
            if name in ((get_key(config, section) or {}) if section else config):  # some are left out at their default
                assert one.default == get_key(config, key), key
            checked += 1
    assert checked > 200


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (
            "train.epochs",
            ["step       train", "integer", "≥ 1, ≤ 10,000", "15 (asr) | 40 (intents) | 100 (tts)", "passes over"],
        ),
        ("convert.sample_rate", ["unit       Hz", "≥ 4,000"]),
        ("convert.min_seconds", ["unit       seconds"]),
        ("corpus.split.by", ["step       ingest", "corpus, speaker, utterance"]),
        ("cluster.claims[0].mount", ["an absolute path, such as /mnt/store", "none; give a value"]),
        ("cluster.steps.train.memory", ["16Gi"]),
        ("train.model.zoneout", ["only for   tacotron2"]),
        ("corpus", ["the recordings", "corpus.format"]),
    ],
)
def test_explain_names_step_type_unit_default_and_accepted_values(key: str, told: list[str]) -> None:
    text = "\n".join(explain_key(key))
    for part in told:
        assert part in text


def test_an_unknown_key_is_refused_with_the_key_that_ends_so() -> None:
    with pytest.raises(SettingsError, match=r"no setting is called 'epochs'; did you mean train\.epochs\?"):
        explain_key("epochs")


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_the_schema_accepts_our_configs_which_name_it(file: Path, validator: Any) -> None:
    validator.validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    assert file.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=../schema.json\n")


def test_an_example_is_printed_without_the_path_of_a_schema_that_is_elsewhere() -> None:
    printed = voxline("config", "examples", "asr/fsdd")
    file = (ROOT / "configs/asr/fsdd.yaml").read_text(encoding="utf-8")
    assert printed == file.split("\n", 1)[1]
    listed = voxline("config", "examples")
    assert "asr/fsdd " in listed
    assert all(line.endswith((".", "?")) for line in listed.splitlines()), "whole sentences"


@pytest.mark.parametrize(
    "fault",
    [
        {"train": {"epohcs": 3}},
        {"train": {"epochs": 0}},
        {"train": {"schedule": "linear"}},
        {"pipeline": "tts", "train": {"augment": {}}},
        {"pipeline": "ttx"},
        {"cluster": {"steps": {"train": {"memory": "16 GB"}}}},
    ],
)
def test_the_schema_refuses_what_a_run_refuses(fault: dict[str, Any], validator: Any) -> None:
    config = {"name": "x", "corpus": {"uri": "/c"}, **fault}
    with pytest.raises(SettingsError):
        load_config(config)
    assert not validator.is_valid(config)


def test_a_vocoder_that_its_features_do_not_suit_is_refused_by_the_names_of_the_settings() -> None:
    config: dict[str, Any] = {"pipeline": "vocoder", "name": "x", "corpus": {"uri": "/c"}}
    with pytest.raises(SettingsError, match=r"^train\.model\.upsample_rates .*hop_seconds is 160 samples"):
        load_config({**config, "train": {"model": {"kind": "hifigan"}}})
    with pytest.raises(SettingsError, match=r"^extract\.speeds is \[0\.9, 1\.0\]"):
        load_config({**config, "extract": {"speeds": [0.9, 1.0]}})


def test_show_prints_the_effective_config_and_where_each_value_is_from(tmp_path: Path) -> None:
    first, second = tmp_path / "run.yaml", tmp_path / "more.yaml"
    first.write_text("name: x\ncorpus: {uri: /c}\n\ntrain:\n  epochs: 3\n  seed: 7\n", encoding="utf-8")
    second.write_text("train: {seed: 8}\n", encoding="utf-8")
    chosen = ["-c", str(first), "-c", str(second), "--set", "train.batch_size=4"]
    shown = voxline("config", "show", *chosen)
    config = load_config([first, second], ["train.batch_size=4"])
    expected = yaml.safe_load(yaml.safe_dump(config.plain()))
    del expected["cluster"]  # nothing in it is set
    assert yaml.safe_load(shown) == expected
    origin = {line.split(":")[0].strip(): line.split("  # ")[1] for line in shown.splitlines() if "  # " in line}
    assert "  epochs: 3".ljust(48) + f"  # {first}:5" in shown
    assert origin["batch_size"] == "--set"
    assert origin["learning_rate"] == "default"
    assert "  seed: 8".ljust(48) + f"  # {second}:1" in shown
    assert "from model" in origin["model_name"]
    changed = yaml.safe_load(voxline("config", "show", *chosen, "--changed"))
    assert changed == {"name": "x", "corpus": {"uri": "/c"}, "train": {"epochs": 3, "seed": 8, "batch_size": 4}}
    assert json.loads(voxline("config", "show", *chosen, "--json"))["origins"]["train.batch_size"] == "--set"


def test_every_path_of_a_model_is_relative_to_its_file() -> None:
    described = {one.key for one in list_settings() if "URI of an exported" in one.description}
    assert described <= set(MODEL_KEYS), "see PATH_KEYS"
    assert "train.sharpen.recognizer" in described
