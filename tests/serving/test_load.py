"""All kinds of clients at once, on loopback, for a few seconds: nobody's answer is lost, and nothing stays behind."""

import concurrent.futures
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.registry.journal import CANDIDATE
from voxline.serving.limits import ServingLimits

LIMITS = ServingLimits(concurrency=2, queue=4, uploads=24, upload_seconds=1.0, max_bytes=100_000, max_seconds=5)
STEADY, BURST, SLOW, ABORTED, OVERSIZE = 2, 40, 4, 12, 4
TEXTS = {"1": "one two", "2": "one six"}
HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"


@pytest.mark.slow
def test_steady_bursting_slow_large_and_aborting_clients_get_what_is_theirs_while_a_version_is_swapped(
    tmp_path: Path,
) -> None:
    registry = push(tmp_path / "registry", export_onnx_tones(tmp_path / "first"))
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "second", {"two": "six"}), CANDIDATE)
    served = Served(tmp_path / "registry", LIMITS)
    stop, recording = threading.Event(), wav()

    def answer() -> tuple[int, str]:
        """Status and version; a transcript must be that of its version."""
        got = served.send(recording)
        if got.status_code == 200:
            assert got.json()["text"] == TEXTS[got.headers["x-voxline-version"]]
            return 200, got.headers["x-voxline-version"]
        assert got.headers["retry-after"] == "1"
        return got.status_code, ""

    def steadily() -> Counter[tuple[int, str]]:
        found = Counter[tuple[int, str]]()
        while not stop.is_set():
            found[answer()] += 1
        return found

    def slowly(seconds: float) -> bytes:
        """Sends a part of a request every tenth of a second, for longer than it may take."""
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.sendall(HEAD + b"Content-Length: 9999\r\n\r\n--x\r\n")
            begin = time.monotonic()
            while time.monotonic() - begin < seconds:
                try:
                    client.sendall(b"y")
                except OSError:
                    break
                time.sleep(0.1)
            return client.recv(12)

    def abort(number: int) -> None:
        """Leaves in the head, in the body, or when all is sent; every other one by a reset."""
        request = httpx.Request(
            "POST", f"{served.url}/v1/audio/transcriptions", data={"model": "asr"}, files={"file": ("a.wav", recording)}
        )
        body = request.read()
        head = "POST /v1/audio/transcriptions HTTP/1.1\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in request.headers.items()
        )
        whole = head.encode() + b"\r\n" + body
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(whole[: (40, len(whole) - 500, len(whole))[number % 3]])
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with concurrent.futures.ThreadPoolExecutor(STEADY + BURST + SLOW + ABORTED + OVERSIZE) as pool:
        steady = [pool.submit(steadily) for _ in range(STEADY)]
        slow = [pool.submit(slowly, 2.0) for _ in range(SLOW)]
        leaving = [pool.submit(abort, number) for number in range(ABORTED)]
        large = [pool.submit(lambda: served.send(bytes(300_000)).status_code) for _ in range(OVERSIZE)]
        burst = [pool.submit(answer) for _ in range(BURST)]
        registry.promote(CANDIDATE)
        assert served.models[0].refresh()
        answers = Counter(one.result() for one in burst)
        refused = Counter(one.result() for one in large)
        assert {one.result() for one in slow} <= {b"HTTP/1.1 408", b"HTTP/1.1 429"}
        for one in leaving:
            one.result()
        stop.set()
        answers += sum((one.result() for one in steady), Counter())
    wait_until(lambda: httpx.get(f"{served.url}/healthz").json()["pending"] == 0, "the end of all work")
    assert {status for status, _ in answers} <= {200, 429}
    assert answers[200, "2"] > 0
    assert set(refused) <= {413, 429}
    wait_until(lambda: len(served.server.uploads) == 0, "the end of all uploads")
    assert answer() == (200, "2")
    served.stop()
