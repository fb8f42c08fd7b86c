"""`voxline serve` beside sherpa-onnx's own server, on the same recognizer and the same recordings.

  python -m benchmarks.sherpa                  # a network of the demo's size with random weights, as benchmarks.serving
  python -m benchmarks.sherpa MODEL MANIFEST   # a trained recognizer, on the test split of ingest's manifest

`make test-programs` installs sherpa-onnx; without it nothing is measured. CPU seconds of each server's process, one
recording at a time, one thread, greedy decoding on both sides.
"""

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jiwer
import numpy as np
import soundfile
from websockets.sync.client import connect

import voxline
from benchmarks.table import Row, print_table
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import model_digest
from voxline.inference.sherpa_onnx import export_sherpa_onnx
from voxline.registry.journal import PRODUCTION
from voxline.registry.registry import Registry

PROGRAMS = Path(os.environ.get("VOXLINE_PROGRAMS", Path(__file__).parents[1] / ".programs-venv")) / "bin"
SERVER = "sherpa-onnx-offline-websocket-server"
RATE, WARM, PATIENCE = 16_000, 5, 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main(model: str = "", manifest: str = "") -> None:
    """Prints the table."""
    if not (PROGRAMS / SERVER).exists():
        sys.exit(f"{PROGRAMS}: no sherpa-onnx; make test-programs installs it")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        waveforms = _recordings(manifest)
        copied = shutil.copytree(model, root / "model") if model else _random_model(root / "model")
        shutil.rmtree(copied / "language_model", ignore_errors=True)  # sherpa-onnx decodes greedily
        export_sherpa_onnx(copied, root / "sherpa")
        ours, texts = _serve_with_voxline(copied, root / "registry", waveforms)
        theirs, heard = _serve_with_sherpa(root / "sherpa", waveforms)
        without_offset = Recognizer(copied).transcribe_waveforms([one - one.mean() for one in waveforms])
    seconds = sum(map(len, waveforms)) / RATE
    name = f"a server's CPU time for {len(waveforms)} recordings of {seconds / len(waveforms):.1f} s; peer: sherpa-onnx"
    rows = [Row.of(name, f"{ours:.2f} s", f"{theirs:.2f} s", ours / theirs, "<=", 3.0)]
    if model:
        for name, expected in (("", texts), (", of recordings less their mean", without_offset)):
            equal = sum(one == other for one, other in zip(expected, heard, strict=True))
            told = f"{jiwer.wer(expected, heard):.2%} of words differ"
            name = f"texts of sherpa-onnx that are ours{name}"
            rows.append(Row.of(name, f"{equal} of {len(texts)}", told, equal / len(texts), ">=", 0.98))
    print_table(rows)


def _recordings(manifest: str) -> list[np.ndarray]:
    """float32 [samples] each."""
    if manifest:
        test = [one for one in voxline.read_manifest(manifest) if one.split == "test"]
        return [voxline.load_audio(one.audio_filepath, RATE, one.offset, one.duration) for one in test]
    from benchmarks.serving import _speech

    return [_speech(seconds, number) for number, seconds in enumerate(np.random.default_rng(1).uniform(1.5, 4.5, 100))]


def _random_model(folder: Path) -> Path:
    from benchmarks.serving import FEATURES, _network, _write_about
    from voxline.families.asr.networks.settings import DeepSpeech2Settings
    from voxline.families.asr.onnx import export_onnx

    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "model.onnx").write_bytes(
        export_onnx(_network(DeepSpeech2Settings(rnn="gru"))[0], FEATURES, *_statistics())
    )
    _write_about(folder)
    return folder


def _statistics() -> tuple[list[float], list[float]]:
    from benchmarks.serving import FEATURES

    return [-8.0] * FEATURES.bins, [3.0] * FEATURES.bins


def _serve_with_voxline(model: Path, root: Path, waveforms: list[np.ndarray]) -> tuple[float, list[str]]:
    registry = Registry(root, "asr")
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=PRODUCTION):
        pass
    port = _free_port()
    command = [sys.executable, "-m", "voxline", "serve", "--registry", str(root), "--port", str(port)]
    with (
        _running([*command, "--concurrency", "1"]) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):

        def is_up() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return client.get("/healthz").status_code == 200
            return False

        def transcribe(waveform: np.ndarray) -> str:
            file = io.BytesIO()
            soundfile.write(file, waveform, RATE, format="WAV", subtype="PCM_16")
            answer = client.post(
                "/v1/audio/transcriptions", data={"model": "asr"}, files={"file": ("a.wav", file.getvalue())}
            )
            return str(answer.raise_for_status().json()["text"])

        _wait(is_up, process)
        return _measure(process, transcribe, waveforms)


def _serve_with_sherpa(folder: Path, waveforms: list[np.ndarray]) -> tuple[float, list[str]]:
    port = _free_port()
    options = {
        "port": port, "num-work-threads": 1, "num-threads": 1, "omnilingual-asr-model": folder / "model.onnx",
        "tokens": folder / "tokens.txt", "log-file": folder / "log",
    }  # fmt: skip
    with _running([str(PROGRAMS / SERVER), *(f"--{name}={value}" for name, value in options.items())]) as process:

        def transcribe(waveform: np.ndarray) -> str:
            rounded = (np.round(waveform * 32768).clip(-32768, 32767) / 32768).astype("<f4")
            sent = RATE.to_bytes(4, "little") + (4 * len(rounded)).to_bytes(4, "little") + rounded.tobytes()
            with connect(f"ws://127.0.0.1:{port}", proxy=None, compression=None) as session:
                session.send(sent)
                answer = session.recv(PATIENCE)
                session.send("Done")
            return " ".join(str(json.loads(answer)["text"]).split())

        def is_up() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            return False

        _wait(is_up, process)
        return _measure(process, transcribe, waveforms)


def _measure(
    process: "subprocess.Popen[bytes]", transcribe: Callable[[np.ndarray], str], waveforms: list[np.ndarray]
) -> tuple[float, list[str]]:
    """CPU seconds of a server, and its texts."""
    for waveform in waveforms[:WARM]:
        transcribe(waveform)
    before = _cpu_seconds(process)
    texts = [transcribe(waveform) for waveform in waveforms]
    return _cpu_seconds(process) - before, texts


def _cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[Any]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **ONE_THREAD}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _wait(is_up: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE
    while not is_up():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"{process.args}: does not answer")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(*sys.argv[1:])
