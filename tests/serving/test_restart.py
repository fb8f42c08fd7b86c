"""A restart serves no less than the server before it, whatever has happened to the registry meanwhile."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.test_canary import start_process
from tests.serving.test_server import push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.registry.journal import CANDIDATE
from voxline.registry.models_config import write_models_config
from voxline.registry.recovery import recover_journal
from voxline.registry.registry import Registry
from voxline.serving.followed_model import FollowedModel
from voxline.serving.server import recognizers

Start = Callable[..., str]
FAST = ("--follow", "0.1")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four models that differ."""
    folder = tmp_path_factory.mktemp("models")
    heard = {"a": {}, "b": {"two": "six"}, "c": {"two": "zero"}, "d": {"two": "one"}}
    return {name: export_onnx_tones(folder / name, words) for name, words in heard.items()}


@pytest.fixture
def root(tmp_path: Path, models: dict[str, Path]) -> Path:
    """asr: 1 and 3 were in production, 2 and 4 were candidates and never promoted. other: 1 is in production."""
    root = tmp_path / "registry"
    for name, alias in (("a", "production"), ("b", CANDIDATE), ("c", "production"), ("d", CANDIDATE)):
        push(root, models[name], alias)
    push(root, models["a"], name="other")
    write_models_config(root)
    return root


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Starts a server process. Returns its address."""
    running: list[subprocess.Popen[str]] = []

    def start_server(*further: str) -> str:
        process, url = start_process(root, further=[*FAST, *further])
        running.append(process)
        return url

    yield start_server
    for process in running:
        process.terminate()
    for process in running:
        process.wait(PATIENCE_SECONDS)


def flip(file: Path) -> bytes:
    """Flips a bit. Returns the bytes that were there."""
    data = file.read_bytes()
    middle = len(data) // 2
    file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    return data


def transcribe(url: str, model: str) -> tuple[int, str]:
    """The status, and the version that answered."""
    answer = httpx.post(
        f"{url}/v1/audio/transcriptions",
        data={"model": model},
        files={"file": ("a.wav", wav())},
        timeout=PATIENCE_SECONDS,
    )
    return answer.status_code, answer.headers.get("x-voxline-version", "")


def health(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}/healthz").json()


def test_one_damaged_model_does_not_keep_the_others_from_being_served(root: Path, start: Start) -> None:
    flip(root / "other" / "1" / "model.onnx")
    url = start()
    assert transcribe(url, "asr") == (200, "3")
    assert transcribe(url, "other")[0] == 503
    state = health(url)
    assert state["status"] == "degraded"
    assert "not the ones that were published" in state["models"]["other"]["fault"]
    assert state["models"]["asr"]["fault"] == ""


def test_a_registry_that_cannot_be_read_for_one_model_does_not_keep_the_others_from_being_served(
    root: Path, start: Start
) -> None:
    """A folder 007 makes every look at its model an error, as a journal does that is not a file."""
    (root / "other" / "007").mkdir()
    url = start()
    assert transcribe(url, "asr") == (200, "3")
    assert transcribe(url, "other")[0] == 503
    assert "007: TensorFlow Serving takes this folder for version 7" in health(url)["models"]["other"]["fault"]
    (root / "other" / "007").rmdir()
    wait_until(lambda: transcribe(url, "other") == (200, "1"), "the model whose folder was mended")


def test_a_journal_that_cannot_be_read_is_as_one_that_is_lost(root: Path) -> None:
    journal = root / "asr" / "journal.jsonl"
    journal.unlink()
    journal.mkdir()
    assert sorted(recognizers(root)) == ["asr", "other"]
    model = FollowedModel(root, "asr", may_start_empty=True)
    assert journal.name in model.fault
    assert model.current
    assert model.current.version == 3, "which models.config names, and not the newest"


@pytest.mark.slow
def test_the_last_intact_version_that_was_in_production_serves_until_a_better_one_does(
    root: Path, start: Start, models: dict[str, Path]
) -> None:
    file = root / "asr" / "3" / "model.onnx"
    whole = flip(file)
    url = start()
    assert transcribe(url, "asr") == (200, "1"), "not 2 or 4, which were never in production"
    assert transcribe(url, "other") == (200, "1")
    (described,) = [model for model in httpx.get(f"{url}/v1/models").json()["data"] if model["id"] == "asr"]
    assert described["version"] == 1
    assert described["degraded"] == "version 3, which the registry names, cannot be served"
    assert "asr/3" in health(url)["models"]["asr"]["fault"]
    assert 'voxline_serve_degraded{model="asr"} 1.0' in httpx.get(f"{url}/metrics").text

    file.write_bytes(whole)
    wait_until(lambda: transcribe(url, "asr") == (200, "3"), "the version that was repaired")
    wait_until(lambda: health(url)["status"] == "ok", "health")

    flip(file)
    url = start()
    assert transcribe(url, "asr") == (200, "1")
    push(root, models["b"])
    wait_until(lambda: transcribe(url, "asr") == (200, "5"), "the version that was pushed")


def test_a_version_in_production_that_is_gone_is_said(root: Path, models: dict[str, Path]) -> None:
    """The registry then counts the one before it as in production: nothing else would tell."""
    running = FollowedModel(root, "asr")
    shutil.rmtree(root / "asr" / "3")
    running.refresh()
    for model in (running, FollowedModel(root, "asr")):
        assert model.current
        assert (model.current.version, model.named) == (1, 3)
        assert "asr/3: the journal names this version, and it is gone" in model.fault
    push(root, models["b"])
    running.refresh()
    assert running.current
    assert (running.current.version, running.named, running.fault) == (5, 5, "")


def test_what_was_rolled_back_does_not_come_back(root: Path) -> None:
    registry = Registry(root, "asr")
    version = registry.rollback().version
    flip(root / "asr" / str(version) / "model.onnx")
    model = FollowedModel(root, "asr")
    assert model.current
    assert model.current.version == 1, "version 3 was rolled back"


@pytest.mark.parametrize("lost", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["lost", "garbage"])
def test_without_its_journal_a_model_serves_what_models_config_names(root: Path, start: Start, lost: bool) -> None:
    url = start()
    journal = root / "asr" / "journal.jsonl"
    journal.unlink()
    if not lost:
        journal.write_bytes(b"\x80 garbage\n")
    wait_until(lambda: "voxline models recover asr" in health(url)["models"]["asr"]["fault"], "the fault")
    assert transcribe(url, "asr") == (200, "3"), "what serves stays"

    restarted = start()
    assert transcribe(restarted, "asr") == (200, "3"), "and not version 4, the newest"
    assert "voxline models recover asr" in health(restarted)["models"]["asr"]["fault"]
    recover_journal(root, "asr", 3)
    for address in (url, restarted):
        wait_until(lambda address=address: health(address)["status"] == "ok", "health")  # type: ignore[misc]
        assert transcribe(address, "asr") == (200, "3")


def test_a_server_that_can_serve_nothing_ends_with_an_error(root: Path) -> None:
    flip(root / "other" / "1" / "model.onnx")
    command = [sys.executable, "-m", "voxline", "serve", "--registry", str(root), "--port", "0", "--model", "other"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 1
    assert "no model can be served" in ended.stderr
    assert "not the ones that were published" in ended.stderr


def test_damage_to_what_serves_is_noticed_by_the_clock(root: Path, start: Start) -> None:
    url = start("--verify-minutes", "0.002")
    file = root / "asr" / "3" / "model.onnx"
    whole = flip(file)
    wait_until(lambda: "not the ones that were published" in health(url)["models"]["asr"]["damage"], "the damage")
    assert health(url)["status"] == "degraded"
    assert 'voxline_serve_damaged{model="asr"} 1.0' in httpx.get(f"{url}/metrics").text
    assert transcribe(url, "asr") == (200, "3"), "it serves from memory"
    shutil.rmtree(root / "other" / "1" / "variables", ignore_errors=True)
    (root / "other" / "1" / "saved_model.pb").unlink()
    wait_until(lambda: health(url)["models"]["other"]["damage"], "files that were deleted")
    assert transcribe(url, "other") == (200, "1")

    file.write_bytes(whole)
    wait_until(lambda: health(url)["models"]["asr"]["damage"] == "", "the repair")
    assert 'voxline_serve_damaged{model="asr"} 0.0' in httpx.get(f"{url}/metrics").text
