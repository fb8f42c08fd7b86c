"""`voxline models export`: a version of a registry in another form, without its training, judged before it ships."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.families.test_exported_ops import SIZES_OF_VOCODERS, recognizer, vocoder
from tests.tone_asr_model import RATE, WORDS, write_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, TrainingData

FEATURES = FeatureSettings(sample_rate=RATE, mels=20)
HEARING: dict[str, Any] = {"kind": "deepspeech", "units": 8}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recognizer and a WaveGlow with random weights, each in service."""
    root = tmp_path_factory.mktemp("registries") / "registry"
    glow = vocoder(kind="waveglow", **SIZES_OF_VOCODERS["waveglow"])
    for name, write in (("asr", recognizer(FEATURES, **HEARING)), ("vocoder", glow)):
        model = root.parent / name
        write(model)
        versions = Registry(root, name)
        with versions.locked(), versions.publishing(model, model_digest(model), "push") as (_, incoming):
            TrainingData("k", "r", 0, []).write(incoming / TRAINED_ON)
    return root


def export(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["models", "export", *map(str, arguments)], catch_exceptions=False)


def test_a_version_gets_another_form_in_a_folder_and_stays_as_it_is(registry: Path, tmp_path: Path) -> None:
    before = model_digest(registry / "asr" / "1")
    ended = export(f"{registry}/asr@1", "--onnx", "float32", "--streaming", "-o", tmp_path / "out")
    assert ended.exit_code == 0, ended.output
    assert "it was not judged: --test in place of -o lets the gate decide" in ended.output
    recognizer(FEATURES, **HEARING, export={"onnx": "float32", "streaming": True})(tmp_path / "direct")
    for graph in (ONNX_FILE, STREAM_FILE):
        assert (tmp_path / "out" / graph).read_bytes() == (tmp_path / "direct" / graph).read_bytes()
    assert read_model_info(tmp_path / "out").settings["export"]["streaming"] is True
    assert model_digest(registry / "asr" / "1") == before
    assert Registry(registry, "asr").versions() == [1]

    # What is not named stays as it is, in a folder too.
    ended = export(tmp_path / "out", "--no-streaming", "-o", tmp_path / "again")
    assert ended.exit_code == 0, ended.output
    assert [(tmp_path / "again" / graph).is_file() for graph in (ONNX_FILE, STREAM_FILE)] == [True, False]


def test_a_denoiser_costs_no_training(registry: Path, tmp_path: Path) -> None:
    ended = export(registry / "vocoder", "--denoiser", "0.3", "--sigma", "0.9", "-o", tmp_path / "out")
    assert ended.exit_code == 0, ended.output
    settings = read_model_info(tmp_path / "out").model_settings
    assert (settings["denoiser"], settings["sampling_sigma"]) == (0.3, 0.9)


@pytest.mark.parametrize(("limit", "passes"), [(0.3, False), (10.0, True)])
def test_the_gate_decides_whether_a_form_becomes_a_version(
    registry: Path, tmp_path: Path, limit: float, passes: bool
) -> None:
    """Random weights hear nothing: by the default limit the form is refused, and it is by no other way in service."""
    root = Path(shutil.copytree(registry, tmp_path / "registry"))
    corpus = write_corpus(tmp_path / "corpus", [(f"s{number % 3}", word) for number, word in enumerate(WORDS * 3)])
    config = tmp_path / "judge.yaml"
    margins = "max_regression: {wer: 1}, max_slice_regression: {wer: 1}"
    config.write_text(
        "name: judged\ncorpus: {uri: corpus}\nevaluate: {bootstrap_samples: 100}\n"
        f"push: {{limits: {{wer: {limit}}}, {margins}, smoke_test: false}}\n"
    )
    ended = export(f"{root}/asr", "--onnx", "float32", "--test", corpus / "manifest.jsonl", "--config", config)
    assert ended.exit_code == (0 if passes else 1), ended.output
    assert Registry(root, "asr").versions() == ([1, 2] if passes else [1])
    if passes:
        assert (root / "asr" / "2" / ONNX_FILE).is_file()
        assert (root / "asr" / "2" / TRAINED_ON).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --to hub, sherpa-onnx, piper or tfma, or the form to export"),
        (["--onnx", "int8"], "give --test, .* or -o FOLDER"),
        (["--onnx", "int8", "-o", "out", "--test", "manifest.jsonl"], "give --test, .* or -o FOLDER"),
        (["--to", "hub", "--onnx", "int8", "-o", "out"], "--to hub: takes -o FOLDER alone"),
        (["--to", "sherpa-onnx", "--language", "en", "-o", "out"], "--language is for the card that --to hub writes"),
        (["--onnx", "int4", "-o", "out"], r"train: 'export\.onnx' is 'int4'"),
        (["--denoiser", "0.1", "-o", "out"], r"train: unknown key 'model\.denoiser'"),
        (["--streaming", "-o", "out"], "set onnx to float32 or int8"),
        (["--onnx", "none", "-o", "out"], "it has this form already"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=message):
        export(registry / "asr", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_folder_is_no_version_for_the_gate(registry: Path, tmp_path: Path) -> None:
    recognizer(FEATURES, **HEARING)(tmp_path / "model")
    with pytest.raises(SettingsError, match="it is no version of a registry; give <registry>/<model>"):
        export(tmp_path / "model", "--onnx", "float32", "--test", "manifest.jsonl")
