"""Public vocoders: HiFi-GAN and WaveGlow by their authors' names and sizes, and the errors where they differ."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tests.closeness import assert_close
from tests.conftest import ROOT
from tests.families.networks.pytorch_oracle import write_hub_models
from tests.training.tones import make_utterances, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.components.evaluate.step import run as evaluate
from voxline.components.train.step import run as train
from voxline.data.manifest import Utterance, write_manifest
from voxline.errors import SettingsError, WorkError
from voxline.families.family import find_family
from voxline.families.vocoder.networks.hifigan import HifiganGenerator
from voxline.families.vocoder.networks.settings import HifiganSettings, WaveGlowSettings
from voxline.families.vocoder.networks.waveglow import WaveGlow
from voxline.families.vocoder.parents import is_public_vocoder, open_public_vocoder
from voxline.families.vocoder.settings import VocoderEvaluateSettings, VocoderTrainSettings
from voxline.inference.saved_model import read_model_info
from voxline.inference.vocoder import Vocoder
from voxline.metrics.evaluation import Evaluation
from voxline.pipelines.cli.main import app
from voxline.pipelines.cli.public_models import import_public_model
from voxline.registry.parents import Parent, ancestors_of, licences_of
from voxline.registry.registry import Registry
from voxline.training.weight_names import weight_names

Array = npt.NDArray[Any]

HUB = ROOT / "tests" / "families" / "networks" / "hub"
KINDS = ("hifigan", "waveglow")
STILL = {"mean": [0.0] * 9, "deviation": [1.0] * 9}
AUTHORS = {
    "sampling_rate": 22_050,
    "n_fft": 1024, "win_size": 1024, "hop_size": 256, "num_mels": 80, "fmax": 8000,
    "upsample_rates": [16, 16],
    "upsample_kernel_sizes": [16, 16],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def written() -> None:
    write_hub_models("public_vocoders.py")


def outputs_of(kind: str) -> dict[str, Array]:
    with np.load(HUB / kind / "outputs.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def with_published_weights(network: Any, parent: Parent) -> Any:
    assert parent.read_weights is not None
    weights = parent.read_weights()
    assert set(weights) == set(weight_names(network))
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        variable.assign(weights[name])
    return network


def test_hifigan_equals_pytorch_with_the_weights_of_its_file() -> None:
    """By `transformers`, whose names are put into the authors'."""
    parent = open_public_vocoder(str(HUB / "hifigan"))
    settings = HifiganSettings.of(parent.info.model_settings)
    network = with_published_weights(HifiganGenerator(settings, **STILL), parent)
    theirs = outputs_of("hifigan")
    ours = network(theirs["mels"]).numpy()
    half = settings.hop // 2
    assert_close(ours, theirs["waveforms"][:, half : half + ours.shape[1]], relative_to_peak=1e-4)


def test_waveglow_equals_pytorch_with_the_weights_of_its_file() -> None:
    parent = open_public_vocoder(str(HUB / "waveglow"))
    settings = WaveGlowSettings.of(parent.info.model_settings)
    network = with_published_weights(WaveGlow(settings, hop=32, **STILL), parent)
    theirs = outputs_of("waveglow")
    noise = network.to_noise(theirs["waveforms"], theirs["mels"])[0]
    assert_close(noise, theirs["noise"], relative_to_peak=1e-4)
    assert_close(network.from_noise(theirs["noise"], theirs["mels"]), theirs["waveforms"], relative_to_peak=1e-4)


def test_mels_are_the_authors(tmp_path: Path) -> None:
    """`mel_spectrogram` of hifi-gan's meldataset.py, in librosa; its frames lie half a hop later."""
    folder = changed("hifigan", tmp_path, lambda config: config.update(AUTHORS))
    features = FeatureSettings.of(open_public_vocoder(str(folder)).info.features)
    assert (features.sample_rate, features.win_length, features.hop_length) == (22_050, 1024, 256)
    random = np.random.default_rng(5)
    samples = (0.2 * random.standard_normal(22_050)).astype(np.float32)
    padded = np.pad(samples, (1024 - 256) // 2, mode="reflect")
    spectrum = np.abs(librosa.stft(padded, n_fft=1024, hop_length=256, center=False))
    basis = librosa.filters.mel(sr=22_050, n_fft=1024, n_mels=80, fmin=0, fmax=8000)
    theirs = np.log(np.maximum(basis @ np.sqrt(spectrum**2 + 1e-9), 1e-5)).T
    ours = compute_features(samples[128:], features)
    inner = slice(2, 80)
    np.testing.assert_allclose(ours[inner], theirs[inner], atol=1e-3)


def changed(kind: str, folder: Path, change: Callable[[Any], object], file: str = "config.json") -> Path:
    """A copy of a public vocoder with another config, or other weights."""
    copy = folder / f"{kind}-copy"
    shutil.copytree(HUB / kind, copy)
    if file == "config.json":
        config = json.loads((copy / file).read_text())
        change(config)
        (copy / file).write_text(json.dumps(config))
    else:
        tensors = load_file(copy / file)
        change(tensors)
        save_file(tensors, copy / file)
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_sounds_as_the_authors_network(kind: str, tmp_path: Path) -> None:
    family = find_family("vocoder")
    parent = family.public_parent(str(HUB / kind))
    assert parent is not None
    onnx = "float32" if kind == "hifigan" else "none"
    assert family.export_published(parent, tmp_path / "model", {}, "own", onnx)
    info = read_model_info(tmp_path / "model")
    assert (info.name, info.kind, info.is_as_published) == ("own", kind, True)
    assert [*licences_of(info).values()] == [["BSD-3-Clause"]]

    mels = outputs_of(kind)["mels"]
    spoken = Vocoder(tmp_path / "model").vocode([mels[0], mels[1, :6]])
    assert [len(samples) for samples in spoken] == [320, 160]
    if kind == "hifigan":
        assert_close(spoken[0], outputs_of(kind)["waveforms"][0, 16 : 16 + 320], relative_to_peak=1e-4)
    else:
        assert np.isfinite(spoken[0]).all()
        assert np.abs(spoken[0]).max() > 0


def trained(kind: str, store: Path) -> Path:
    """The model of a training of one step at no rate, so that the weights are still the authors'."""
    parent = open_public_vocoder(str(HUB / kind))
    features = FeatureSettings.of(parent.info.features)
    spoken = make_utterances(8, 2, seed=3)
    dataset = write_dataset(store / "dataset", spoken, how=features)
    for utterance, file in zip(spoken, dataset.recordings([each.id for each in spoken]), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, utterance.waveform, features.sample_rate, subtype="FLOAT")
    settings = VocoderTrainSettings.of(
        {
            "model": parent.info.model_settings, "start": {"model": str(HUB / kind)}, "segment_frames": 80,
            "batch_size": 8, "epochs": 1, "evaluate_steps": 0, "learning_rate": 1e-12, "weight_decay": 0,
            "strategy": "one",
        }
    )  # fmt: skip
    return train(dataset.folder, store, settings).path("model")


def write_test_split(folder: Path) -> Path:
    recorded = []
    folder.mkdir()
    for utterance in make_utterances(4, seed=2):
        wav = folder / f"{utterance.id}.wav"
        soundfile.write(wav, utterance.waveform, 8_000, subtype="PCM_16")
        seconds = len(utterance.waveform) / 8_000
        recorded.append(Utterance(utterance.id, str(wav), seconds, utterance.text, "ada", "test", utterance.id))
    write_manifest(folder / "manifest.jsonl", recorded)
    return folder


@pytest.mark.parametrize("kind", ["hifigan", pytest.param("waveglow", marks=pytest.mark.slow)])
def test_a_training_starts_from_it(kind: str, tmp_path: Path) -> None:
    model = trained(kind, tmp_path / "store")
    info = read_model_info(model)
    assert ancestors_of(info)[0].name == kind
    assert info.normalization is not None
    assert (info.normalization.mean, info.normalization.deviation) == (STILL["mean"], STILL["deviation"])
    if kind == "hifigan":
        theirs = outputs_of(kind)
        (spoken,) = Vocoder(model).vocode([theirs["mels"][0]])
        assert_close(spoken, theirs["waveforms"][0, 16 : 16 + 320], relative_to_peak=1e-4)


@pytest.mark.slow
def test_what_was_trained_is_measured_beside_its_untouched_parent(tmp_path: Path) -> None:
    model = trained("hifigan", tmp_path / "store")
    tested = write_test_split(tmp_path / "corpus")
    measured = evaluate(model, tested, tmp_path / "registry", tmp_path / "store", VocoderEvaluateSettings())
    before = Evaluation.read(measured.folder).info.before
    assert before is not None
    assert before.label.startswith("hifigan")
    assert not before.missing
    tuned = Evaluation.read(measured.folder).info.metrics["log_stft"].value
    compared = before.parts["test"].metrics["log_stft"].comparison
    assert compared is not None
    assert compared.champion_value == pytest.approx(tuned, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "file", "change", "message"),
    [
        ("hifigan", "config.json", lambda config: config.pop("fmax"), r"config\.json: without a setting .*'fmax'"),
        (
            "hifigan",
            "config.json",
            lambda config: config.update(resblock="3"),
            r"config\.json: without a setting .*'3'",
        ),
        ("hifigan", "config.json", lambda config: config.update(hop_size=48), "make 32 samples of a frame"),
        ("hifigan", "config.json", lambda config: config.pop("num_mels"), "no vocoder that is known here"),
        ("waveglow", "config.json", lambda config: config["waveglow_config"].update(n_early_size=4), "4, and 2 alone"),
        ("waveglow", "config.json", lambda config: config.pop("data_config"), "without a setting .*'data_config'"),
    ],
)
def test_a_config_that_is_not_theirs_is_named(
    kind: str, file: str, change: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises((SettingsError, WorkError), match=message):
        open_public_vocoder(str(changed(kind, tmp_path, change, file)))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("hifigan", lambda tensors: tensors.pop("ups.1.bias"), r"ups\.1\.bias"),
        ("hifigan", lambda tensors: tensors.update({"conv_post.bias": np.zeros(2, np.float32)}), "last/bias is of the"),
        ("waveglow", lambda tensors: tensors.pop("convinv.3.conv.weight"), r"convinv\.3"),
        (
            "waveglow",
            lambda tensors: tensors.update({"WN.0.cond_layers.0.bias": np.zeros(2, np.float32)}),
            "first code",
        ),
        (
            "waveglow",
            lambda tensors: tensors.update({"WN.1.cond_layer.weight_v": np.zeros((36, 71, 1), np.float32)}),
            r"WN\.1\.cond_layer has 71 inputs",
        ),
    ],
)
def test_damaged_weights_are_named(kind: str, change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    parent = open_public_vocoder(str(changed(kind, tmp_path, change, "model.safetensors")))
    with pytest.raises((SettingsError, WorkError), match=message):
        find_family("vocoder").export_published(parent, tmp_path / "model", {})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("hifigan", lambda config: config.update(upsample_initial_channel=8192)),
        ("hifigan", lambda config: config.update(resblock_kernel_sizes=[101, 101])),
        ("hifigan", lambda config: config.update(upsample_kernel_sizes=[100, 100])),
        ("waveglow", lambda config: config["waveglow_config"]["WN_config"].update(n_channels=8192)),
        ("waveglow", lambda config: config["waveglow_config"].update(n_mel_channels=200)),
        ("waveglow", lambda config: config["waveglow_config"]["WN_config"].update(kernel_size=101)),
    ],
)
def test_sizes_that_the_weights_do_not_have_take_no_memory(
    kind: str, change: Callable[[Any], object], tmp_path: Path
) -> None:
    """The weights refuse to be read, so that nothing is built."""
    parent = open_public_vocoder(str(changed(kind, tmp_path, change)))
    assert parent.read_weights is not None
    with pytest.raises(WorkError, match="is of the shape"):
        parent.read_weights()


def test_it_waits_in_a_registry_and_says_how_to_tune_it(tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    command = ["models", "import", str(HUB / "hifigan"), "--registry", registry, "--name", "universal"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert "universal: version 1 is hifigan" in ended.output
    assert "spectrum: magnitude" in ended.output
    assert Registry(registry, "universal").candidate() == 1
    for options, message in {"--language": "for recognizers", "--speaker": "for voices of several"}.items():
        refused = CliRunner().invoke(app, [*command, options, "1" if options == "--speaker" else "en"])
        assert refused.exit_code, refused.output
        assert message in str(refused.exception or "") + refused.output


def test_with_a_test_split_the_gate_judges_it(tmp_path: Path) -> None:
    """Random weights are worse than Griffin-Lim."""
    registry = str(tmp_path / "registry")
    location = str(HUB / "hifigan")
    lines, passed = import_public_model(
        location, registry, "universal", test=str(write_test_split(tmp_path / "corpus"))
    )
    assert not passed
    assert any("log_stft_reduction" in line or "Griffin-Lim" in line for line in lines), lines
    assert Registry(registry, "universal").versions() == []


def test_recognizers_and_voices_are_none(tmp_path: Path) -> None:
    assert not is_public_vocoder(str(HUB / "vits"))
    assert not is_public_vocoder(str(tmp_path))
    assert is_public_vocoder(str(HUB / "waveglow"))
