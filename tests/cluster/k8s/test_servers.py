"""The commands of the servers in k8s/, run as the manifests write them, over a registry on this machine."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.k8s.built import builder, built, containers
from tests.registry.test_verified_copy import damage
from tests.serving.test_server import push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.registry.models_config import served_versions


@pytest.fixture(autouse=True)
def _can_build() -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two versions in production, one after the other."""
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "a"))
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "b", {"two": "six"}))
    return tmp_path / "registry"


def command(path: str, name: str, replaced: dict[str, str]) -> list[str]:
    """The command of a container, with other paths and ports."""
    container: Any = next(one for _, one, _ in containers(built(path)) if one["name"] == name)
    words = [*container["command"], *container["args"]]
    assert words[0] == "voxline"
    for before, after in replaced.items():
        assert any(word.endswith(f"={before}") for word in words), before
        words = [word.removesuffix(before) + after if word.endswith(f"={before}") else word for word in words]
    return [sys.executable, "-m", *words]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_voxline_serve_answers_callers_with_a_key_alone(
    root: Path, tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    port, health = free_port(), free_port()
    (tmp_path / "keys").write_text("shop:a-token-of-enough-letters-0123456789\n")
    (tmp_path / "keys").chmod(0o440)  # as the Secret is mounted
    paths = {"/mnt/registry": str(root), "/etc/voxline/keys": str(tmp_path / "keys")}
    ports = {"8080": str(port), "8081": str(health)}
    running.append(subprocess.Popen(command("components/voxline-serve", "voxline-serve", {**paths, **ports})))

    def answers() -> bool:
        assert running[0].poll() is None
        try:
            return httpx.get(f"http://127.0.0.1:{health}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    wait_until(answers, "the port of health", 0.1)

    def send(**headers: str) -> int:
        return httpx.post(
            f"http://127.0.0.1:{port}/v1/audio/transcriptions",
            data={"model": "asr"},
            files={"file": ("a.wav", wav())},
            headers=headers,
            timeout=PATIENCE_SECONDS,
        ).status_code

    assert send() == 401
    key = {"authorization": "Bearer a-token-of-enough-letters-0123456789"}
    assert send(**key) == 200
    assert send(**key, host="voxline-serve.voxline:8080") == 200, "by the name of the Service"
    assert send(**key, host="evil.example") in (400, 403, 421)


def test_the_sidecar_fills_the_folder_that_tensorflow_serving_reads(
    root: Path, tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    damage(root, 2)
    paths = {"/mnt/registry": str(root), "/models": str(tmp_path / "models")}
    running.append(subprocess.Popen(command("base", "verify", paths)))
    config = tmp_path / "models" / "models.config"
    wait_until(config.is_file, "the models")
    assert served_versions(tmp_path / "models") == {"asr": 1}
    server = next(one for _, one, _ in containers(built("base")) if one["name"] == "serving")
    assert "--model_config_file=/models/models.config" in server["args"]
