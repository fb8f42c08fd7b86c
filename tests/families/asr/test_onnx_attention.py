"""The ONNX graphs of Whisper with its decoder compute what the network computes, and their search finds its texts."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.closeness import assert_close
from tests.families.asr.test_attention import END, HUB, tiny_tokenizer
from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.export_checks import check_onnx_export
from voxline.families.asr.frontend import graph_features
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.onnx_attention import export_onnx_attention
from voxline.families.asr.public_parents import find_public_parent
from voxline.families.asr.published_export import export_published_asr
from voxline.families.asr.token_search import align_tokens, search_tokens
from voxline.inference.onnx_decoder import DECODER_FILE, OnnxTokenSearch
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest
from voxline.inference.sherpa_onnx import export_sherpa_onnx
from voxline.text.public_tokenizer import TOKENIZER_JSON
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer

pytestmark = pytest.mark.slow

FEATURES = FeatureSettings(kind="whisper", mels=8)
SETTINGS = WhisperSettings(
    head="decoder", units=24, heads=3, layers=2, decoder_layers=2, positions=32, tokens=60, token_positions=16
)
LENGTHS = (9_920, 4_800, 7_000)
TRANSCRIBE = """
import sys
from voxline.pipelines.cli.main import main
try:
    main()
finally:
    loaded = {"tensorflow", "keras", "librosa", "apache_beam", "kfp"} & set(sys.modules)
    assert not loaded, loaded
"""


@pytest.fixture(scope="module")
def network() -> Whisper:
    """Random weights, large enough that texts differ and end early and late."""
    model = Whisper(SETTINGS, bins=8)
    draw = np.random.default_rng(8)
    for variable in model.weights:
        variable.assign(variable.numpy() + draw.normal(0, 0.1, variable.shape))
    embedding = model.decoder.embedding
    larger = embedding.numpy() * 4
    larger[END] *= 1.5
    embedding.assign(larger)
    return model


def recordings() -> tuple[Any, Any]:
    """Three lengths; noise follows where the shorter ones end."""
    draw = np.random.default_rng(1)
    return draw.normal(0, 0.1, (3, LENGTHS[0])).astype(np.float32), np.array(LENGTHS, np.int32)


def search_of(model: Whisper, folder: Path, precision: Any) -> OnnxTokenSearch:
    folder.mkdir()
    for name, content in export_onnx_attention(model, FEATURES, precision).items():
        (folder / name).write_bytes(content)
    return OnnxTokenSearch(folder, SearchRules.of(WhisperTokenizer.read(tiny_tokenizer()), 60), 16)


@pytest.fixture(scope="module")
def searches(network: Whisper, tmp_path_factory: pytest.TempPathFactory) -> dict[str, OnnxTokenSearch]:
    folder = tmp_path_factory.mktemp("graphs")
    return {precision: search_of(network, folder / precision, precision) for precision in ("float32", "int8")}


def logits_of(search: OnnxTokenSearch, tokens: Any) -> Any:
    """Of each position, by a step for the first two tokens and one for each further one."""
    waveforms, lengths = recordings()
    memories = search.encode(waveforms, lengths)
    cache = None
    logits = []
    for first, last in [(0, 2), *((place, place + 1) for place in range(2, tokens.shape[1]))]:
        step, *cache = search._decode(search._continuing, tokens[:, first:last], np.arange(3), memories, cache)
        logits.append(step[:, -1])
    return np.stack(logits, axis=1)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("int8", 0.1)])
def test_the_logits_of_cached_steps_are_those_of_the_network(
    network: Whisper, searches: dict[str, OnnxTokenSearch], precision: str, tolerance: float
) -> None:
    waveforms, lengths = recordings()
    tokens = np.random.default_rng(2).integers(0, 60, (3, 9))
    features, frames = graph_features(tf.constant(waveforms), tf.constant(lengths), FEATURES)
    expected = network(features, frames, tokens.astype(np.int32)).numpy()[:, 1:]
    logits = logits_of(searches[precision], tokens)
    assert_close(logits, expected, relative_to_peak=tolerance)
    if precision == "int8":
        assert np.abs(logits - expected).max() > 1e-3


@pytest.mark.parametrize("beams", [1, 3])
def test_the_search_finds_the_texts_of_the_saved_model(
    network: Whisper, searches: dict[str, OnnxTokenSearch], beams: int
) -> None:
    search = searches["float32"]
    waveforms, lengths = recordings()
    features, frames = graph_features(tf.constant(waveforms), tf.constant(lengths), FEATURES)
    encoded, mask = network.encode(features, frames)
    tokens, scores, counts = search_tokens(network.decoder, encoded, mask, search._rules, beams)
    texts = search.search(search.encode(waveforms, lengths), beams)
    for row in range(3):
        for beam, text in enumerate(texts[row]):
            expected = [token for token in tokens[row, beam].numpy().tolist() if token != END]
            assert (text.tokens, text.count) == (expected, int(counts[row, beam]))
            assert text.mean == pytest.approx(float(scores[row, beam]), abs=1e-4)
    assert len({text.count for row in texts for text in row}) > 1


def test_the_attention_and_the_probabilities_of_a_text_are_those_of_the_network(
    network: Whisper, searches: dict[str, OnnxTokenSearch]
) -> None:
    search = searches["float32"]
    waveforms, lengths = recordings()
    memories = search.encode(waveforms, lengths)
    texts = search.search(memories, 1)
    features, frames = graph_features(tf.constant(waveforms), tf.constant(lengths), FEATURES)
    encoded, mask = network.encode(features, frames)
    tokens, scores, _ = search_tokens(network.decoder, encoded, mask, search._rules)
    log_probabilities, attention = align_tokens(network.decoder, tokens[:, 0], encoded, search._rules)
    for row, (text,) in enumerate(texts):
        expected = log_probabilities[row, : text.count].numpy()
        np.testing.assert_allclose(text.log_probabilities, expected, atol=1e-4)
        assert np.mean(expected) == pytest.approx(float(scores[row, 0]), abs=1e-4)
        ours = search.align(memories, row, text.tokens)
        # Heads of the upper block alone; prompt, tokens and end.
        assert ours.shape == (3, min(2 + len(text.tokens) + 1, 16), 32)
        assert_close(ours, attention[row, :, : ours.shape[1]].numpy(), relative_to_peak=1e-4)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_row_of_a_batch_is_the_recording_alone(searches: dict[str, OnnxTokenSearch], precision: str) -> None:
    waveforms, lengths = recordings()
    search = searches[precision]
    for beams in (1, 3):
        together = search.search(search.encode(waveforms, lengths), beams)
        for row, length in enumerate(lengths):
            memories = search.encode(waveforms[row : row + 1, :length], lengths[row : row + 1])
            alone = search.search(memories, beams)[0]
            assert [text.tokens for text in alone] == [text.tokens for text in together[row]]


def test_a_network_that_no_file_holds_is_refused_by_its_settings() -> None:
    large = {"units": 1280, "heads": 20, "layers": 32, "decoder_layers": 32, "tokens": 51_865}
    settings = WhisperSettings(head="decoder", prompt={"language": "de", "task": "transcribe"}, **large)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"train.export.onnx: float32 weights .* 3.2 GB.* set train.export.onnx to"):
        check_onnx_export(settings, "float32")
    check_onnx_export(settings, "int8")


# The exported model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A public model as it comes, with graphs."""
    hub = tmp_path_factory.mktemp("hub") / "whisper"
    shutil.copytree(HUB, hub)
    (hub / TOKENIZER_JSON).write_bytes(tiny_tokenizer())
    folder = tmp_path_factory.mktemp("exported") / "model"
    export_published_asr(folder, find_public_parent(str(hub)), {"head": "decoder"}, onnx="float32")
    return folder


def test_onnx_runtime_writes_the_texts_of_the_saved_model(model: Path) -> None:
    waveforms, _ = recordings()
    samples = [*(row[:length] for row, length in zip(waveforms, LENGTHS, strict=True)), np.concatenate([*waveforms])]
    for beams in (1, 3):
        saved, graph = (
            Recognizer(model, engine=engine, beams=beams, n_best=beams) for engine in ("tensorflow", "auto")
        )
        assert (saved.engine, graph.engine) == ("tensorflow", "onnx")
        for expected, heard in zip(saved.recognize(samples, 16_000), graph.recognize(samples, 16_000), strict=True):
            assert heard.text == expected.text
            assert heard.confidence == pytest.approx(expected.confidence, rel=1e-3)
            assert [each.text for each in heard.alternatives] == [each.text for each in expected.alternatives]
            assert [word.word for word in heard.words] == heard.text.split()
            assert [(word.word, word.start, word.end) for word in heard.words] == [
                (word.word, word.start, word.end) for word in expected.words
            ]
            assert [word.confidence for word in heard.words] == pytest.approx(
                [word.confidence for word in expected.words], rel=1e-3
            )


def test_transcribe_loads_no_tensorflow(model: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", recordings()[0][0], 16_000)
    command = [sys.executable, "-c", TRANSCRIBE, "transcribe", str(tmp_path / "a.wav"), "--model", str(model)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == Recognizer(model, engine="tensorflow").transcribe(tmp_path / "a.wav")


def test_a_damaged_or_wrong_graph_is_refused(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    shutil.copytree(model, broken)
    (broken / DECODER_FILE).write_bytes((model / DECODER_FILE).read_bytes()[:500])
    assert model_digest(broken) != model_digest(model)
    with pytest.raises(WorkError, match=r"decoder.onnx: ONNX Runtime does not load it .*train again"):
        Recognizer(broken)
    (broken / DECODER_FILE).write_bytes((model / ONNX_FILE).read_bytes())
    with pytest.raises(WorkError, match=r"decoder.onnx: takes waveforms, lengths and returns keys_0"):
        Recognizer(broken)
    with pytest.raises(SettingsError, match="this form of sherpa-onnx needs the output of a CTC model"):
        export_sherpa_onnx(model, tmp_path / "sherpa")
