"""`voxline models` and `voxline transcribe` on a real registry with real exported models."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner

from tests.command import voxline
from tests.tone_asr_model import RATE, MakeAsrModel, render_words
from voxline.errors import SettingsError
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import app
from voxline.registry.registry import Registry


@pytest.fixture
def registry(tmp_path: Path, make_asr_model: MakeAsrModel) -> Path:
    """Version 1 hears well, version 2 takes "two" for "three"."""
    root = tmp_path / "registry é"
    tones = Registry(root, "tones")
    with tones.locked():
        for model, wer in ((make_asr_model(), 0.0), (make_asr_model({"two": "three"}), 0.25)):
            with tones.publishing(model, model_digest(model), "push", metrics={"wer": wer}):
                pass
    return root


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "one two.wav", render_words(["one", "two"]), RATE)
    return tmp_path / "one two.wav"


def test_models_are_listed_shown_and_rolled_back(registry: Path, recording: Path) -> None:
    def heard() -> str:
        return voxline("transcribe", recording, "--model", registry / "tones").stdout

    assert heard() == "one three\n"
    assert "tones  version 2" in voxline("models", "list", "--registry", registry).stdout
    rolled = voxline("models", "rollback", "tones", "--registry", registry, "--note", "deaf to two")
    assert rolled.stdout == "tones: version 3 is in service, the same model as version 1\n"
    assert heard() == "one two\n"
    shown = voxline("models", "show", "tones", "--registry", registry).stdout.splitlines()
    assert [line[0] for line in shown] == [" ", " ", "▸"]
    assert "rolled back to version 1" in shown[2]
    assert shown[2].endswith("deaf to two")
    assert str(registry / "tones" / "1") in voxline("models", "show", "tones", "1", "--registry", registry).stdout


def test_several_recordings_are_labeled_and_a_version_can_be_chosen(registry: Path, recording: Path) -> None:
    ended = voxline("transcribe", recording, recording, "--model", registry / "tones" / "1")
    assert ended.stdout == f"{recording}\tone two\n" * 2


def test_transcripts_are_written_with_full_stops_on_request(registry: Path, recording: Path) -> None:
    model = registry / "tones" / "1"
    assert voxline("transcribe", recording, "--model", model, "--itn", "en", "--punctuate").stdout == "One two.\n"
    soundfile.write(recording, render_words(["six", "one", "one"]), RATE)
    heard = json.loads(voxline("transcribe", recording, "--model", model, "--itn", "en", "--json").stdout)
    assert (heard["text"], [word["word"] for word in heard["words"]]) == ("611", ["611"])


def test_a_bad_recording_hides_no_other(registry: Path, recording: Path) -> None:
    """Of a folder: a good file, a file that is not audio, one sample, and silence."""
    folder = recording.parent / "clips"
    folder.mkdir()
    shutil.copy(recording, folder / "a.wav")
    (folder / "b.wav").write_text("not audio")
    soundfile.write(folder / "c.wav", [0.9], RATE)
    soundfile.write(folder / "d.wav", [0.0] * RATE, RATE)
    (folder / "notes.txt").write_text("not a recording")
    model = registry / "tones" / "1"
    plain = voxline("transcribe", folder, "--model", model)
    assert plain.returncode == 1
    assert plain.stdout == f"{folder}/a.wav\tone two\n{folder}/d.wav\t\n"
    for told in ("b.wav: cannot be transcribed", "c.wav: 0.000 s is too short", "d.wav: no speech"):
        assert told in plain.stderr
    lines = [json.loads(line) for line in voxline("transcribe", folder, "--json", "--model", model).stdout.splitlines()]
    assert [(Path(line["file"]).name, line.get("text"), "error" in line) for line in lines] == [
        ("a.wav", "one two", False),
        ("b.wav", None, True),
        ("c.wav", None, True),
        ("d.wav", "", False),
    ]
    assert lines[0]["words"][1] == {"word": "two", "start": 0.1, "end": 0.1375, "confidence": 0.9034}
    assert lines[3]["note"] == "no speech"


@pytest.mark.slow
def test_standard_input_is_a_recording(registry: Path, recording: Path) -> None:
    command = [sys.executable, "-P", "-m", "voxline", "transcribe", "-", "--model", str(registry / "tones" / "1")]
    with open(recording, "rb") as audio:
        ended = subprocess.run(command, stdin=audio, capture_output=True, text=True, check=True)
    assert ended.stdout == "one two\n"
    assert "oneDNN" not in ended.stderr  # TensorFlow's greeting


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "tunes"], "no model 'tunes' here; the models are: tones"),
        (["show", "tones", "7"], "no version 7; existing: 1, 2"),
        (["rollback", "tones", "--to", "2"], "what version 2 serves already"),
    ],
)
def test_a_missing_model_or_version_is_refused(registry: Path, arguments: list[str], told: str) -> None:
    ended = voxline("models", *arguments, "--registry", registry)
    assert ended.returncode == 1
    assert told in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint", "--onnx", "int8", "--language", "fr"], r"checkpoint: --language, --onnx is for public models"),
        (["hf://owner/model@0a", "--registry", "r", "--name", "asr", "-o", "a.safetensors"], "for checkpoints of Deep"),
    ],
)
def test_an_import_refuses_options_of_the_other_kind(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CliRunner().invoke(app, ["models", "import", *arguments], catch_exceptions=False)
