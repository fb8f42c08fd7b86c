"""A recognizer that is exported for sherpa-onnx writes the same texts there."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from tests.causal_model import babble, export_causal_model
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from voxline.errors import SettingsError, WorkError
from voxline.inference import sherpa_onnx
from voxline.inference.recognizer import Recognizer
from voxline.inference.sherpa_onnx import export_sherpa_onnx
from voxline.pipelines.cli.main import main

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(os.environ.get("VOXLINE_PROGRAMS", ROOT / ".programs-venv")) / "bin"
with_sherpa = pytest.mark.skipif(
    not (PROGRAMS / "sherpa-onnx-offline").exists(), reason=f"no {PROGRAMS}: `make test-programs` installs sherpa-onnx"
)
MIXED = (" ", "你", "好", "a", "th", "é", "早上", "ing", "1")
"""Characters and subwords."""
READ_WITH_SHERPA = """
import json, sys
import numpy, sherpa_onnx

folder, *files = sys.argv[1:]
recognizer = sherpa_onnx.OfflineRecognizer.from_omnilingual_asr_ctc(f"{folder}/model.onnx", f"{folder}/tokens.txt")
texts = []
for file in files:
    stream = recognizer.create_stream()
    stream.accept_waveform(16000, numpy.load(file))
    recognizer.decode_stream(stream)
    texts.append(stream.result.text)
print(json.dumps(texts))
"""


def with_single_spaces(text: str) -> str:
    return " ".join(text.split())


def tones() -> list[np.ndarray]:
    """Of a model that hears nothing but the level."""
    sentences = ("zero", "one two three", "seven eight", "zero zero eight", "four one one six")
    return [render_words(sentence.split()) for sentence in sentences]


def babbles() -> list[np.ndarray]:
    """Without an offset, which sherpa-onnx removes."""
    waveforms = [babble(2 * RATE, seed) for seed in range(6)]
    levels = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    return [level * (one - one.mean()) for one, level in zip(waveforms, levels, strict=True)]


@with_sherpa
@pytest.mark.parametrize("kind", ["tones", "babble"])
def test_sherpa_onnx_writes_our_texts(kind: str, tmp_path: Path) -> None:
    if kind == "tones":
        model, waveforms = export_onnx_tones(tmp_path / "model"), tones()
    else:
        model, waveforms = export_causal_model(tmp_path / "model", seed=1, symbols=MIXED), babbles()
    export_sherpa_onnx(model, tmp_path / "sherpa")
    files = [str(tmp_path / f"{number}.npy") for number in range(len(waveforms))]
    for file, waveform in zip(files, waveforms, strict=True):
        np.save(file, waveform.astype(np.float32))
    done = subprocess.run(
        [PROGRAMS / "python", "-c", READ_WITH_SHERPA, tmp_path / "sherpa", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = Recognizer(model).transcribe(waveforms, RATE)
    assert all(expected)
    assert [with_single_spaces(text) for text in json.loads(done.stdout)] == expected


@with_sherpa
def test_the_command_of_sherpa_onnx_reads_an_export(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    soundfile.write(tmp_path / "a.wav", render_words(["five", "two"]), RATE, subtype="PCM_16")
    with pytest.raises(SystemExit) as ended:
        main(["models", "export", str(model), "--to", "sherpa-onnx", "-o", str(tmp_path / "sherpa")])
    assert ended.value.code == 0
    graph, tokens = (tmp_path / "sherpa" / name for name in ("model.onnx", "tokens.txt"))
    done = subprocess.run(
        [
            PROGRAMS / "sherpa-onnx-offline",
            f"--omnilingual-asr-model={graph}",
            f"--tokens={tokens}",
            tmp_path / "a.wav",
        ],
        capture_output=True,
        text=True,
    )
    assert '"text": "five two' in done.stdout + done.stderr


@pytest.mark.parametrize("level", [0.0, 0.003, 0.2, 1.0])
def test_the_level_comes_back_from_standardized_samples(level: float, tmp_path: Path) -> None:
    model = export_causal_model(tmp_path / "model", seed=2)
    export_sherpa_onnx(model, tmp_path / "sherpa")
    waveform = babble(2 * RATE)
    waveform = (level * (waveform - waveform.mean())).astype(np.float32)
    given = waveform / np.sqrt(waveform.var() + np.float32(1e-5))  # as sherpa-onnx does, in float32
    session = onnxruntime.InferenceSession(tmp_path / "sherpa/model.onnx")
    (values,) = session.run(None, {"standardized": given.astype(np.float32)[None]})
    (expected,) = Recognizer(model).log_probabilities([waveform])
    assert values.shape == (1, *expected.shape)
    np.testing.assert_allclose(values[0], expected, atol=0.02)


def test_tokens_are_numbered_and_the_blank_is_last(tmp_path: Path) -> None:
    export_sherpa_onnx(export_causal_model(tmp_path / "model", symbols=MIXED), tmp_path / "sherpa")
    lines = (tmp_path / "sherpa/tokens.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [
        "▁ 0", "你 1", "好 2", "a 3", "th 4", "é 5", "早上 6", "ing 7", "1 8", "<blk> 9",
    ]  # fmt: skip


def test_pieces_that_begin_with_a_space_have_sentencepieces_mark() -> None:
    assert sherpa_onnx._tokens([" the", " ", "at"], Path()) == "▁the 0\n▁ 1\nat 2\n<blk> 3\n"


def test_what_has_no_such_form_is_refused(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    about = json.loads((model / "model.json").read_text())

    def export_with(**changed: object) -> None:
        (model / "model.json").write_text(json.dumps({**about, **changed}))
        export_sherpa_onnx(model, tmp_path / "sherpa")

    with pytest.raises(SettingsError, match=r"a model of 8,000 Hz; .* 16,000 Hz"):
        export_with(sample_rate=8000)
    with pytest.raises(SettingsError, match="'a b' has a space in it"):
        export_with(alphabet=[" ", "a b"])
    with pytest.raises(SettingsError, match="take the symbols of this alphabet for bytes"):
        export_with(alphabet=" abơ")
    (model / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(WorkError, match=r"model.onnx: not an ONNX graph"):
        export_with()
    (model / "model.onnx").unlink()
    with pytest.raises(WorkError, match=r"no model.onnx; train with train.export.onnx: float32"):
        export_with()
    assert not (tmp_path / "sherpa").exists()
    with pytest.raises(SettingsError, match="is not empty"):
        export_sherpa_onnx(model, model)


def test_another_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = export_onnx_tones(tmp_path / "model")
    with pytest.raises(SystemExit) as ended:
        main(["models", "export", str(model), "--to", "tflite", "-o", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "--to tflite: accepted: hub, sherpa-onnx" in capsys.readouterr().err
