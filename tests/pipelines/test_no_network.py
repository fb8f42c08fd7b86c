"""The command reaches nothing that is not configured: each runs in a network of its own, which sees every attempt."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.isolated_network import require_namespaces, run_isolated
from tests.pipelines.conftest import CONFIG
from tests.serving.test_server import push
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.tone_tts_model import MakeTtsModel, add_onnx_graph

VOXLINE = (sys.executable, "-P", "-m", "voxline")

SERVE_AND_ASK = """
import signal, subprocess, sys, time
import httpx

url = "http://127.0.0.1:18321"
server = subprocess.Popen([sys.executable, "-P", "-m", "voxline", "serve", "--registry", "registry", "--port", "18321"])
while server.poll() is None:
    try:
        if httpx.get(f"{url}/healthz").status_code == 200:
            break
    except httpx.TransportError:
        time.sleep(0.1)
files = {"file": ("a.wav", open("a.wav", "rb"))}
answer = httpx.post(f"{url}/v1/audio/transcriptions", data={"model": "asr"}, files=files, timeout=600)
print(answer.text, flush=True)
server.send_signal(signal.SIGTERM)
assert answer.status_code == 200
status = server.wait()
assert status == -signal.SIGTERM, status
"""

LOCAL = (".keras", ".config/matplotlib", ".cache/matplotlib", "voxline-scratch-")
"""Written by libraries into the home, and read by them alone; and our temporary files, which the next run removes."""
Isolated = Callable[..., dict[str, Any]]


@pytest.fixture
def isolated(tmp_path: Path) -> Isolated:
    """Runs a command with an empty home; asserts that it succeeds, reaches nothing and leaves no file elsewhere."""
    require_namespaces()
    home = tmp_path / "home"
    temporary = tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary)}

    def run(*command: str) -> dict[str, Any]:
        report = run_isolated(command, environment, tmp_path)
        assert report["status"] == 0, report["output"]
        assert (report["names"], report["unrouted"]) == ([], 0)
        written = {
            str(path.relative_to(root)) for root in (home, temporary) for path in root.rglob("*") if path.is_file()
        }
        assert [name for name in sorted(written) if not name.startswith(LOCAL)] == []
        return report

    return run


@pytest.fixture
def recording(tmp_path: Path) -> str:
    soundfile.write(tmp_path / "a.wav", render_words(["three", "one"]), RATE)
    return "a.wav"


def test_transcribe(isolated: Isolated, tmp_path: Path, recording: str) -> None:
    export_onnx_tones(tmp_path / "model")
    assert "three one" in isolated(*VOXLINE, "transcribe", recording, "--model", "model")["output"]


def test_serve(isolated: Isolated, tmp_path: Path, recording: str) -> None:
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "model"))
    assert "three one" in isolated(sys.executable, "-P", "-c", SERVE_AND_ASK)["output"]


def test_synthesize(isolated: Isolated, tmp_path: Path, make_tts_model: MakeTtsModel) -> None:
    model = add_onnx_graph(Path(shutil.copytree(make_tts_model(), tmp_path / "voice")))
    isolated(*VOXLINE, "synthesize", "123", "--model", str(model), "--output", "voice.wav")
    assert (tmp_path / "voice.wav").stat().st_size > 1_000


@pytest.mark.slow
def test_doctor(isolated: Isolated, tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    isolated(*VOXLINE, "doctor", "--config", "tiny.yaml")


@pytest.mark.slow
def test_run_with_every_step(isolated: Isolated, tmp_path: Path, corpus: Path) -> None:
    config = CONFIG.format(corpus=corpus).replace("  epochs: 1", "  epochs: 1\n  export: {onnx: float32}")
    (tmp_path / "tiny.yaml").write_text(config, encoding="utf-8")
    isolated(*VOXLINE, "run", "asr", "--config", "tiny.yaml", "--set", "push.limits.wer=10")
    assert (tmp_path / "runs/tiny/registry/asr/1/model.onnx").is_file()
