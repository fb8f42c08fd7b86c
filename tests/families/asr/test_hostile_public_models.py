"""Public models that are damaged or made to harm are refused with the file that is at fault, and read nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import ROOT
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.public_parents import find_public_parent, public_config
from voxline.registry.hub import WEIGHTS_FILE, WEIGHTS_INDEX, open_hub_model

Array = npt.NDArray[Any]
HUB = ROOT / "tests" / "families" / "networks" / "hub"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(HUB / name, tmp_path / name))

    return copy


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def read(folder: Path) -> dict[str, Array]:
    reader = find_public_parent(str(folder)).read_weights
    assert reader is not None
    return reader()


def split(folder: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Puts the weights into two files, with an index of them."""
    tensors = load_file(folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).unlink()
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in tensors if files[name] == file}, folder / file)
    (folder / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": files}))
    return tensors, files


def test_weights_in_several_files_are_those_of_one(copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    expected = read(folder)
    split(folder)
    for name, values in read(folder).items():
        np.testing.assert_array_equal(values, expected[name])


def test_a_second_copy_of_a_tensor_does_not_count(copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    expected = read(folder)
    tensors, files = split(folder)
    other = {"model-0.safetensors": "model-1.safetensors", "model-1.safetensors": "model-0.safetensors"}
    name = "lm_head.weight"
    file = folder / other[files[name]]
    save_file({**load_file(file), name: np.zeros_like(tensors[name])}, file)
    np.testing.assert_array_equal(read(folder)["classifier/kernel"], expected["classifier/kernel"])


def test_an_index_that_names_what_its_file_lacks_is_refused(copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    _, files = split(folder)
    files["lm_head.weight"] = "model-0.safetensors" if files["lm_head.weight"][6] == "1" else "model-1.safetensors"
    (folder / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": files}))
    with pytest.raises(WorkError, match=r"model-\d.safetensors: not a safetensors file, or damaged"):
        read(folder)
    (folder / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(WorkError, match="without wav2vec2"):
        read(folder)


@pytest.mark.parametrize("kept", [0, 7, 200, 20_000])
def test_a_truncated_file_is_refused(kept: int, copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    content = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).write_bytes(content[:kept])
    with pytest.raises(WorkError, match=r"model.safetensors: not a safetensors file, or damaged"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "shape", "named"),
    [
        ("lm_head.weight", (24,), r"lm_head.weight has the shape \(24,\)"),
        ("wav2vec2.feature_extractor.conv_layers.0.conv.weight", (12, 10), "conv.weight has the shape"),
        ("wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0", (1, 8), "has the shape"),
        ("wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0", (24, 1, 8), "has the shape"),
        ("lm_head.bias", (3,), "a symbol has the number 10, and the output layer 3 outputs"),
    ],
)
def test_shapes_that_no_layer_has_are_named(
    name: str, shape: tuple[int, ...], named: str, copied: Callable[[str], Path]
) -> None:
    folder = copied("wav2vec2")
    tensors = load_file(folder / WEIGHTS_FILE)
    if name not in tensors:
        name = name.replace("parametrizations.weight.original0", "weight_g")
    assert name in tensors
    save_file({**tensors, name: np.ones(shape, np.float32)}, folder / WEIGHTS_FILE)
    with pytest.raises(WorkError, match=named):
        read(folder)


def test_a_convolution_of_several_taps_is_no_dense_layer(copied: Callable[[str], Path]) -> None:
    folder = copied("fastconformer")
    tensors = load_file(folder / WEIGHTS_FILE)
    save_file({**tensors, "ctc_head.weight": np.repeat(tensors["ctc_head.weight"], 3, axis=2)}, folder / WEIGHTS_FILE)
    with pytest.raises(WorkError, match=r"ctc_head.weight has the shape \(49, 16, 3\)"):
        read(folder)


def test_half_precision_is_read_and_integers_are_not(copied: Callable[[str], Path]) -> None:
    import ml_dtypes

    folder = copied("wav2vec2")
    tensors = load_file(folder / WEIGHTS_FILE)
    expected = read(folder)["classifier/kernel"]
    for kind, tolerance in ((np.float16, 1e-3), (ml_dtypes.bfloat16, 1e-2)):
        save_file({name: value.astype(kind) for name, value in tensors.items()}, folder / WEIGHTS_FILE)
        found = read(folder)["classifier/kernel"]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=tolerance)
    for wrong in (np.int8, np.bool_):
        changed = {**tensors, "lm_head.bias": np.ones(11, wrong)}
        save_file(changed, folder / WEIGHTS_FILE)
        with pytest.raises(WorkError, match=r"lm_head.bias is \w+; numbers of floating point are accepted"):
            read(folder)
    save_file({**tensors, "lm_head.bias": np.full(11, np.nan, np.float32)}, folder / WEIGHTS_FILE)
    with pytest.raises(WorkError, match=r"lm_head.bias has values that are not finite"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("whisper", {"d_model": float("inf")}, r"config.json: without a setting of its network, or with a wrong one"),
        ("whisper", {"num_mel_bins": None}, r"config.json: without a setting of its network, or with a wrong one"),
        ("whisper", {"activation_function": "relu"}, "activation_function is 'relu', not 'gelu'"),
        ("whisper", {"scale_embedding": True}, "scale_embedding is True, not False"),
        ("whisper", {"tie_word_embeddings": False}, "tie_word_embeddings is False, not True"),
        ("whisper", {"encoder_layers": 10**9}, r"config.json.*layers"),
        ("wav2vec2", {"num_hidden_layers": 10**9}, r"config.json.*layers"),
        ("wav2vec2", {"vocab_size": "11"}, r"config.json: vocab_size is '11'"),
        ("fastconformer", {"encoder_config": []}, r"config.json: without a setting of its network"),
        ("fastconformer", {"encoder_config": {"hidden_size": 0, "intermediate_size": 1}}, "or with a wrong one"),
        ("fastconformer", {"pad_token_id": -1}, r"config.json: without pad_token_id or vocab_size"),
    ],
)
def test_settings_that_are_none_are_named(
    name: str, values: dict[str, Any], message: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(name)
    change(folder / "config.json", **values)
    with pytest.raises((WorkError, SettingsError), match=message):
        read(folder)
    if not {"pad_token_id", "vocab_size"} & values.keys():
        with pytest.raises((WorkError, SettingsError), match=message):
            public_config(str(folder))


@pytest.mark.parametrize("file", ["preprocessor_config.json", "tokenizer_config.json", "special_tokens_map.json"])
def test_a_file_that_is_no_mapping_is_named(file: str, copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    (folder / file).write_text("[1]")
    with pytest.raises(WorkError, match=f"{file}: not a JSON object"):
        read(folder)


def test_without_a_vocabulary_it_is_refused(copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    (folder / "vocab.json").unlink()
    with pytest.raises(SettingsError, match=r"vocab.json is no mapping of tokens"):
        read(folder)


def test_links_and_pipes(copied: Callable[[str], Path], tmp_path: Path) -> None:
    """A link is how the Hub's cache has its files; a pipe would never end."""
    folder = copied("wav2vec2")
    expected = read(folder)["classifier/bias"]
    (folder / WEIGHTS_FILE).rename(tmp_path / "blob")
    (folder / WEIGHTS_FILE).symlink_to(tmp_path / "blob")
    np.testing.assert_array_equal(read(folder)["classifier/bias"], expected)
    (folder / "notes.txt").mkdir()
    find_public_parent(str(folder))

    (folder / WEIGHTS_FILE).unlink()
    os.mkfifo(folder / WEIGHTS_FILE)
    with pytest.raises(SettingsError, match=r"no model.safetensors"):
        read(folder)


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("license: MIT", "MIT"),
        ('license: "mit\\n# Not the licence"', ""),
        ('license: "\\x1b[31mmit"', ""),
        (f"license: {'m' * 500}", "m" * 100),
        ("license: " + "[" * 3000, ""),
    ],
)
def test_a_licence_is_a_name(head: str, licence: str, copied: Callable[[str], Path]) -> None:
    folder = copied("wav2vec2")
    (folder / "README.md").write_text(f"---\n{head}\n---\n# A model\n")
    assert open_hub_model(str(folder), "model", weights=False).licence == licence


def test_a_folder_is_named_wherever_one_stands(copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied("wav2vec2"))
    assert find_public_parent(".").ancestor.name == "wav2vec2"
