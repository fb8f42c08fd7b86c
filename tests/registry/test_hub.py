"""Public models: folders as the Hub has them, and downloads by the Hub's own client from a server of this machine."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from safetensors.numpy import save_file

from tests.conftest import ROOT
from tests.hub_server import Commit, Hub, Repository, serve_hub
from voxline.errors import SettingsError, WorkError
from voxline.registry.hub import HubModel, check_name, hub_errors, is_hub_location, open_hub_model, pin_location

SETTING = "train.start.model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "voices/tiny"


def write_model(folder: Path, card: str = "---\nlicense: mit\n---\n# Tiny\n") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "whisper"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text(card)
    save_file({"a": np.ones(3, np.float32)}, folder / "model.safetensors")
    return folder


def open_folder(folder: Path, **options: Any) -> HubModel:
    return open_hub_model(str(folder), SETTING, **{"weights": True, **options})


def test_a_folder_as_the_hub_has_it_is_a_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    assert is_hub_location(str(folder))
    assert not is_hub_location(str(tmp_path))
    model = open_folder(folder)
    assert (model.name, model.revision, model.licence) == ("tiny", "", "mit")
    assert model.config == {"model_type": "whisper"}
    assert model.weight_files() == {"": folder / "model.safetensors"}


@pytest.mark.parametrize("card", ["", "# Tiny\n", "---\n[\n---\n", "---\nlicense: [1]\n---\n", "---\nlicense: mit\n"])
def test_a_card_without_a_licence_states_none(card: str, tmp_path: Path) -> None:
    assert open_folder(write_model(tmp_path / "tiny", card)).licence == ""


def test_the_digest_covers_weights_settings_and_tokenizer_and_not_the_card(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    digests = [open_folder(folder).digest()]
    (folder / "README.md").write_text("another card")
    assert open_folder(folder).digest() == digests[0]

    for change in (
        lambda: (folder / "tokenizer.json").write_text("[]"),
        lambda: (folder / "config.json").write_text('{"model_type": "wav2vec2"}'),
        lambda: save_file({"a": np.zeros(3, np.float32)}, folder / "model.safetensors"),
    ):
        change()
        digests.append(open_folder(folder).digest())
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("name", "command"),
    [("pytorch_model.bin", "save_pretrained"), ("whisper.pt", "save_pretrained"), ("a.nemo", "convert_nemo_to_hf")],
)
def test_a_pickle_is_not_read(name: str, command: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    evil = tmp_path / "evil"

    class Payload:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(evil),)

    (folder / name).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(SettingsError, match=f"are {name}, which is a pickle .*{command}") as raised:
        open_folder(folder)
    assert "\n" not in str(raised.value)
    assert not evil.exists()
    assert open_folder(folder, weights=False).config


def test_weights_in_several_files_are_found_by_their_index(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    assert open_folder(folder).weight_files() == {"a": folder / "model-1.safetensors"}

    index.write_text(json.dumps({"weight_map": {"a": "model-2.safetensors"}}))
    with pytest.raises(WorkError, match=r"model-2\.safetensors is absent"):
        open_folder(folder)


@pytest.mark.parametrize("name", ["../model-1.safetensors", "/etc/passwd", "model.bin", 7])
def test_an_index_names_files_of_its_folder_alone(name: Any, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(WorkError, match=r"does not name a \.safetensors file of this folder"):
        open_folder(folder)


def test_damaged_settings_are_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "config.json").write_text("{")
    with pytest.raises(WorkError, match=r"config\.json: absent or damaged"):
        open_folder(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(WorkError, match="not a JSON object"):
        open_folder(folder)


@pytest.mark.parametrize("location", ["hf://tiny@" + COMMIT, "hf://a/b/c@" + COMMIT, "hf://../x@" + COMMIT, "hf://"])
def test_a_malformed_name_is_refused(location: str) -> None:
    with pytest.raises(SettingsError, match="hf://owner/name@commit is accepted"):
        open_hub_model(location, SETTING, weights=False)


@pytest.mark.parametrize(
    "name", ["na--me", "name.", "name-", "na\u00efve", "x.git", "a..b", ".a", "a" * 97, "o--o/a", "o-/a", "tiny"]
)
def test_a_name_that_the_hub_s_client_refuses_is_refused_by_us(name: str) -> None:
    repository = name if "/" in name or name == "tiny" else f"voices/{name}"
    if "/" in repository:
        with pytest.raises(HFValidationError):
            validate_repo_id(repository)
    with pytest.raises(SettingsError, match=f"{SETTING} is .*hf://owner/name@commit is accepted"):
        open_hub_model(f"hf://{repository}@{COMMIT}", SETTING, weights=False)
    with pytest.raises(SettingsError, match=r"location is .*owner/name or hf://owner/name@commit is accepted"):
        pin_location(repository, "main", "location")
    with pytest.raises(SettingsError, match=r"OWNER/NAME is .*owner/name is accepted"):
        check_name(repository, "OWNER/NAME")
    with pytest.raises(SettingsError, match="subject: the Hub's client refuses"), hub_errors("subject", ""):
        validate_repo_id("a--b")


@pytest.mark.parametrize("name", ["openai/whisper-tiny.en", "a/b", "O_o/x.git-y", "a-b/c_", "a" * 96 + "/" + "b" * 96])
def test_a_name_that_the_hub_s_client_accepts_is_accepted(name: str) -> None:
    validate_repo_id(name)
    check_name(name, "OWNER/NAME")
    assert pin_location(f"{name}", COMMIT) == f"hf://{name}@{COMMIT}"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve_hub() as server:
        folder = write_model(tmp_path / "published")
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        server.repositories[REPOSITORY] = Repository([Commit(COMMIT, files)])
        yield server


OPEN = """
import sys
from voxline.errors import VoxlineError
from voxline.registry.hub import open_hub_model
try:
    model = open_hub_model(sys.argv[1], "train.start.model", weights=sys.argv[2] == "weights")
    print(model.label, model.licence, sorted(path.name for path in model.folder.iterdir()))
except VoxlineError as error:
    print(type(error).__name__, error)
"""


def open_in_a_process(endpoint: str, home: Path, location: str, files: str = "weights") -> str:
    """What a process prints that opens a model; the Hub's client reads its address when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", OPEN, location, files]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_model_is_downloaded_once_and_then_read_without_a_network(hub: Hub, tmp_path: Path) -> None:
    location = f"hf://{REPOSITORY}@{COMMIT}"
    settings_alone = open_in_a_process(hub.endpoint, tmp_path / "home", location, "settings")
    assert settings_alone == "voices/tiny@01234567 mit ['README.md', 'config.json', 'tokenizer.json']"
    assert not any(request.endswith("model.safetensors") for request in hub.requests)

    whole = open_in_a_process(hub.endpoint, tmp_path / "home", location)
    assert "'model.safetensors'" in whole
    asked = len(hub.requests)
    assert open_in_a_process(hub.endpoint, tmp_path / "home", location) == whole
    assert len(hub.requests) == asked


def test_without_a_network_the_first_download_says_so(tmp_path: Path) -> None:
    printed = open_in_a_process("http://127.0.0.1:1", tmp_path / "home", f"hf://{REPOSITORY}@{COMMIT}")
    assert printed.startswith("TransientError train.start.model is 'hf://voices/tiny@")
    assert "the Hub cannot be reached" in printed
    assert "give a folder with the model's files" in printed


def test_a_model_that_the_hub_does_not_have_is_refused(hub: Hub, tmp_path: Path) -> None:
    printed = open_in_a_process(hub.endpoint, tmp_path / "home", f"hf://voices/other@{COMMIT}")
    assert printed.startswith("SettingsError")
    assert "the Hub has no such model for you" in printed


@pytest.mark.parametrize("revision", ["", "@main"])
def test_a_name_without_a_commit_is_refused_with_today_s(revision: str, hub: Hub, tmp_path: Path) -> None:
    printed = open_in_a_process(hub.endpoint, tmp_path / "home", f"hf://{REPOSITORY}{revision}")
    assert printed.startswith("SettingsError")
    assert printed.endswith(f"today it is hf://{REPOSITORY}@{COMMIT}")
