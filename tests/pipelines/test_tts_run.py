"""`voxline run tts` and `voxline synthesize`, for real: every step in its own process, from text to a WAV."""

from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.command import voxline, voxline_process
from tests.pipelines.conftest import check_step_keys
from voxline.components.demo_corpus.step import corpus_settings
from voxline.components.demo_corpus.step import run as generate
from voxline.pipelines.graphs import graph_of
from voxline.store.files import read_json

# A tiny network and a few steps: it learns nothing, and goes through everything.
CONFIG = """
pipeline: tts
name: tiny
corpus: {{uri: {corpus}}}
convert: {{sample_rate: 16000}}
extract: {{features: {{mels: 16, fft_size: 512, window_seconds: 0.03, hop_seconds: 0.0125}}}}
train:
  epochs: 1
  batch_size: 4
  evaluate_steps: 0
  validation_utterances: 1
  max_seconds: 5
  griffin_lim: {{iterations: 2}}
  model:
    kind: tacotron2
    reduction: 5
    embedding: 8
    encoder_convolutions: 1
    encoder_channels: 8
    encoder_lstm: 0
    attention: {{units: 8, location_filters: 2, location_kernel: 5}}
    prenet: [8]
    decoder_units: 8
    decoder_layers: 1
    postnet_layers: 0
evaluate: {{bootstrap_samples: 100, f0_utterances: 0, mos_utterances: 0}}
push: {{limits: {{hit_limit: 1, wrong_length: 1, attention_diagonality: 0, sharpness: 0}}}}
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a space and another letter in its name, in which the graph has run."""
    folder = tmp_path_factory.mktemp("voices") / "a folder é"
    chosen = corpus_settings(kind="digits", train=8, dev=2, test=2, long_sentences=1)
    corpus = generate(folder / "generated voice", chosen, workers=1).path("corpus")
    (folder / "tiny.yaml").write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    ended = voxline_process("run", "tts", "--config", "tiny.yaml", cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture(scope="module")
def record(house: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(house / "runs" / "tiny" / "run.json")
    return found


@pytest.mark.slow
def test_every_step_finishes_and_the_record_has_the_metrics(record: dict[str, Any]) -> None:
    assert (record["pipeline"], record["status"]) == ("tts", "succeeded")
    assert [step["name"] for step in record["steps"]] == list(graph_of("tts", ["export"]))
    assert {"mel_l1", "mel_dtw", "mcd", "attention_diagonality", "hit_limit", "rtf"} <= record["metrics"].keys()
    assert "round_trip_wer" not in record["metrics"]  # nobody listened, and nothing is made up


@pytest.mark.slow
def test_the_parts_of_each_steps_key_are_pinned(record: dict[str, Any]) -> None:
    check_step_keys("tts", record)


@pytest.mark.slow
def test_the_run_has_a_report(house: Path, record: dict[str, Any]) -> None:
    assert "<html" in (house / "runs" / "tiny" / record["report"]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pushed_model_synthesizes_a_wav(house: Path, record: dict[str, Any]) -> None:
    assert record["pushed"] is True, record["reason"]
    assert record["model"] == str(house / "runs" / "tiny" / "registry" / "tts" / "1")
    ended = voxline("synthesize", "3 1 4.", "--model", "runs/tiny/registry/tts", "--output", "said é.wav", cwd=house)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("said é.wav  ")
    samples, rate = soundfile.read(house / "said é.wav")
    assert rate == 16000
    assert len(samples) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [("", "the text is empty"), ("\x07 one", "the control character U+0007"), ("one 三", "'三'"), ("?!", "no letter")],
)
def test_an_unreadable_text_is_refused_and_leaves_no_file(house: Path, text: str, told: str) -> None:
    ended = voxline("synthesize", "-", "--model", "runs/tiny/registry/tts", "-o", "refused.wav", cwd=house, stdin=text)
    assert ended.returncode == 2, ended.stderr
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (house / "refused.wav").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "text"), [("mandarin-tacotron", "mandarin", "你好。"), ("tacotron2", "digits", "one two.")]
)
def test_a_shipped_tacotron_trains_a_step_and_speaks(name: str, kind: str, text: str, tmp_path: Path) -> None:
    """CBHGs, a linear spectrum and Griffin-Lim, or the paper's layers; three sentences teach it nothing."""
    chosen = corpus_settings(kind=kind, train=3, dev=1, test=1, long_sentences=0)
    corpus = generate(tmp_path / "voice", chosen, workers=1).path("corpus")
    settings = [f"corpus.uri={corpus}", "train.epochs=1", "train.evaluate_steps=0", "train.griffin_lim.iterations=2"]
    settings += ["validate.unseen_characters.severity=warning"]
    settings += [f"store={tmp_path / 'run/store'}"]
    options = [part for setting in settings for part in ("--set", setting)]
    config = Path(__file__).parents[2] / f"configs/tts/{name}.yaml"
    ended = voxline_process(
        "run", "tts", "--config", config, *options, "--run-dir", "run", "--until", "train", cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [model] = (tmp_path / "run/store/train").glob("*/model")
    ended = voxline_process("synthesize", text, "--model", model, "--output", "said.wav", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    samples, _ = soundfile.read(tmp_path / "said.wav")
    assert len(samples)
