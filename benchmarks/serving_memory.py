"""Memory of `voxline serve` and all its processes, beside what docs/serving.md states for concurrency and seconds.

The network has the demo's size and random weights. The recordings are the longest that are admitted, as many as are
worked on at a time; the hostile ones are those of tests/audio/hostile.py.

  python -m benchmarks.serving_memory
"""

import concurrent.futures
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx

from benchmarks.serving import FEATURES, _network, _write_about
from benchmarks.table import Row, print_table
from tests.audio.hostile import children, encode, greedy_m4a, resident, wide_flac
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.families.asr.networks.settings import DeepSpeech2Settings
from voxline.families.asr.onnx import export_onnx
from voxline.inference.saved_model import model_digest
from voxline.registry.journal import PRODUCTION
from voxline.registry.registry import Registry

CONCURRENCY = 2
REST_MB, DECODER_MB, SECOND_MB = 110.0, 500.0, 1.4
"""Of the formula in docs/serving.md."""
AUDIO = (60.0, 490.0, 600.0)
"""Seconds of the longest recordings."""


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _push(root / "model", root / "registry")
        hostile = [
            wide_flac(root / "wide.flac", 130.0).read_bytes(),
            greedy_m4a(root / "greedy.m4a", 80_000_000).read_bytes(),
        ]
        rows = []
        for seconds in AUDIO:
            honest = "anoisesrc=r=16000:a=0.02:d=" + str(seconds)
            flac = encode(root / "a.flac", honest, "-ac", "1", "-sample_fmt", "s16").read_bytes()
            m4a = encode(root / "a.m4a", honest, "-ac", "2", "-ar", "48000", "-b:a", "32k").read_bytes()
            for name, uploads in (("FLAC, 16,000 Hz", [flac] * 2), ("m4a, 48,000 Hz", [m4a] * 2)):
                rows.append(_measure(root / "registry", f"{CONCURRENCY} × {seconds:g} s, {name}", uploads, seconds))
        rows.append(_measure(root / "registry", "8 hostile ones", hostile * 4, 600.0))
    print_table(rows)


def _push(model: Path, root: Path) -> None:
    model.mkdir()
    (model / "saved_model.pb").touch()
    keras_model, mean, deviation = _network(DeepSpeech2Settings(rnn="gru"))
    (model / "model.onnx").write_bytes(export_onnx(keras_model, FEATURES, mean, deviation, "float32"))
    _write_about(model)
    registry = Registry(root, "asr")
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=PRODUCTION):
        pass


def _measure(root: Path, name: str, uploads: list[bytes], seconds: float) -> Row:
    """The most memory that a new server takes for uploads that are sent at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "voxline", "serve", "--registry", str(root), "--port", str(port)]
    limits = ["--concurrency", str(CONCURRENCY), "--max-seconds", f"{seconds:g}"]
    server = subprocess.Popen(
        [*command, *limits], stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    url, peak, done = f"http://127.0.0.1:{port}", 0, threading.Event()

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def send(upload: bytes) -> int:
        form = {"data": {"model": "asr"}, "files": {"file": ("a", upload)}}
        return httpx.post(f"{url}/v1/audio/transcriptions", timeout=PATIENCE_SECONDS, **form).status_code  # type: ignore[arg-type]

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            workers = children(server.pid)
            processes = [server.pid, *workers, *(each for worker in workers for each in children(worker))]
            peak = max(peak, sum(map(resident, processes)))

    try:
        wait_until(answers, "the server")
        watcher = threading.Thread(target=watch)
        watcher.start()
        with concurrent.futures.ThreadPoolExecutor(len(uploads)) as pool:
            statuses = sorted({*pool.map(send, uploads)})
        done.set()
        watcher.join()
    finally:
        server.terminate()
        server.wait()
    stated = REST_MB + CONCURRENCY * (DECODER_MB + SECOND_MB * seconds)
    name += f" ({', '.join(map(str, statuses))}); peer: stated"
    return Row.of(name, f"{peak / 1e6:,.0f} MB", f"{stated:,.0f} MB", peak / 1e6 / stated, "<=", 1.0)


if __name__ == "__main__":
    main()
