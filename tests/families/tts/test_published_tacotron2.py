"""Tacotron 2 in NVIDIA's layout: the network of its file, its letters, and the errors of damaged files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tests.closeness import assert_close
from tests.conftest import ROOT
from tests.families.networks.pytorch_oracle import write_hub_models
from voxline.errors import SettingsError, WorkError
from voxline.families.family import find_family
from voxline.families.tts.networks.settings import Tacotron2Settings
from voxline.families.tts.networks.tacotron2 import Tacotron2
from voxline.families.tts.published_tacotron2 import SYMBOLS, is_tacotron2, open_tacotron2
from voxline.inference.saved_model import read_model_info
from voxline.inference.synthesizer import Synthesizer
from voxline.pipelines.cli.main import app
from voxline.registry.parents import ancestors_of
from voxline.registry.registry import Registry
from voxline.training.weight_names import weight_names

HUB = ROOT / "tests" / "families" / "networks" / "hub"
FOLDER = HUB / "tacotron2"


@pytest.fixture(scope="module", autouse=True)
def written() -> None:
    write_hub_models("public_tacotron2.py")


@pytest.fixture(scope="module")
def theirs() -> dict[str, npt.NDArray[Any]]:
    with np.load(FOLDER / "outputs.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_the_network_equals_pytorch_with_the_weights_of_its_file(theirs: dict[str, npt.NDArray[Any]]) -> None:
    """Two texts of different lengths in one batch, each as it is alone in theirs."""
    parent = open_tacotron2(str(FOLDER))
    assert parent.read_weights is not None
    sizes = Tacotron2Settings.of(parent.info.model_settings)
    still = {"mean": [0.0] * 8, "deviation": [1.0] * 8}
    network = Tacotron2(sizes, symbols=len(parent.info.alphabet), bins=8, mels=8, **still)
    weights = parent.read_weights()
    assert set(weights) == set(weight_names(network))
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        assert weights[name].shape == tuple(variable.shape), name
        variable.assign(weights[name])

    letters = "".join(parent.info.alphabet)
    labels = np.array([[letters.index(SYMBOLS[number]) for number in row] for row in theirs["ids"]])
    # NVIDIA's pre-net drops at inference too; here nothing does, as in the stored outputs.
    network.settings = sizes.model_copy(update={"prenet_dropout": 0.0})
    network.decoder.settings = network.settings
    output = network(labels, theirs["counts"], theirs["mels"], theirs["frames"])
    for row, (symbols, frames) in enumerate(zip(theirs["counts"], theirs["frames"], strict=True)):
        assert_close(output.before[row, :frames], theirs["before"][row, :frames], relative_to_peak=1e-4)
        assert_close(output.mels[row, :frames], theirs["after"][row, :frames], relative_to_peak=1e-4)
        assert_close(output.stop[row, :frames], theirs["stop"][row, :frames], relative_to_peak=1e-4)
        alignment = output.alignment[row, :frames, :symbols]
        assert_close(alignment, theirs["alignments"][row, :frames, :symbols], relative_to_peak=1e-4)


@pytest.mark.slow
def test_it_speaks_as_it_comes_and_waits_in_a_registry(tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    command = ["models", "import", str(FOLDER), "--registry", registry, "--name", "linda"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert "linda: version 1 is tacotron2" in ended.output
    assert Registry(registry, "linda").candidate() == 1
    model = tmp_path / "registry" / "linda" / "1"
    info = read_model_info(model)
    assert (info.is_as_published, ancestors_of(info)[0].name, info.frontend["kind"]) == (True, "tacotron2", "english")
    spoken = Synthesizer(model).speak("Press 1, please!")
    assert np.isfinite(spoken.waveform).all()
    refused = CliRunner().invoke(app, [*command, "--speaker", "1"])
    assert "of one voice" in str(refused.exception)


def changed(folder: Path, config: Callable[[Any], object] | None, weights: Callable[[Any], object] | None) -> str:
    """A copy with another config or other weights."""
    copy = folder / "copy"
    shutil.copytree(FOLDER, copy)
    if config:
        values = json.loads((copy / "config.json").read_text())
        config(values)
        (copy / "config.json").write_text(json.dumps(values))
    if weights:
        tensors = load_file(copy / "model.safetensors")
        weights(tensors)
        save_file(tensors, copy / "model.safetensors")
    return str(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("prenet_dim"), "'prenet_dim'"),
        (lambda config: config.update(n_frames_per_step=2), "n_frames_per_step is 2, and 1 is known"),
        (lambda config: config.update(decoder_rnn_dim=99), "decoder_rnn_dim is 99, and 14 is known"),
        (lambda config: config.update(n_symbols=20), "n_symbols is 20"),
    ],
)
def test_another_network_is_named(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=message):
        open_tacotron2(changed(tmp_path, change, None))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("decoder.gate_layer.linear_layer.bias"), "gate_layer"),
        (lambda tensors: tensors.update({"embedding.weight": np.zeros((9, 12), np.float32)}), "of other sizes"),
        (
            lambda tensors: tensors.update({"decoder.attention_rnn.weight_ih": np.zeros((56, 20), np.float32)}),
            "core/query_lstm/context is of the shape",
        ),
    ],
)
def test_damaged_weights_are_named(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    family = find_family("tts")
    parent = family.public_parent(changed(tmp_path, None, change))
    assert parent is not None
    with pytest.raises((SettingsError, WorkError), match=message):
        family.export_published(parent, tmp_path / "model", {})


@pytest.mark.parametrize("key", ["encoder_embedding_dim", "decoder_rnn_dim", "postnet_embedding_dim", "prenet_dim"])
def test_sizes_that_the_weights_do_not_have_take_no_memory(key: str, tmp_path: Path) -> None:
    pairs = {"encoder_embedding_dim": "symbols_embedding_dim", "decoder_rnn_dim": "attention_rnn_dim"}
    large = {key: 8192, pairs.get(key, key): 8192}
    read = open_tacotron2(changed(tmp_path, lambda config: config.update(large), None)).read_weights
    assert read is not None
    with pytest.raises(WorkError, match="of the shape"):
        read()


def test_names_of_a_training_on_several_gpus_are_read(tmp_path: Path) -> None:
    def with_prefix(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[f"module.{name}"] = tensors.pop(name)

    read = open_tacotron2(changed(tmp_path, None, with_prefix)).read_weights
    alone = open_tacotron2(str(FOLDER)).read_weights
    assert read is not None
    assert alone is not None
    assert all(np.array_equal(value, alone()[name]) for name, value in read().items())


def test_others_are_none(tmp_path: Path) -> None:
    assert is_tacotron2(str(FOLDER))
    assert not is_tacotron2(str(HUB / "hifigan"))
    assert not is_tacotron2(str(tmp_path))
