"""Uploads that were made to exhaust a server: refused at once, and what nobody waits for any more is ended."""

import concurrent.futures
import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.audio.hostile import children, encode, greedy_m4a, resident, slow_reads, wide_flac
from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import RATE, export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.audio.decode_pool import DecodeLimits
from voxline.pipelines.cli.main import main
from voxline.serving.limits import ServingLimits

SECONDS = 120.0
"""The longest recording of the server whose memory is measured."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    push(folder / "registry", export_onnx_tones(folder / "model"))
    return folder / "registry"


@pytest.fixture
def serve(root: Path) -> Iterator[Callable[[ServingLimits], Served]]:
    running: list[Served] = []

    def start(limits: ServingLimits) -> Served:
        running.append(Served(root, limits))
        return running[-1]

    yield start
    for one in running:
        one.stop()


class ServerProcess:
    """`voxline serve` on a free port."""

    def __init__(self, root: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "voxline", "serve", "--registry", str(root), "--port", str(port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        wait_until(self._answers, "the server")

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def send(self, data: bytes) -> httpx.Response:
        form = {"data": {"model": "asr"}, "files": {"file": ("a", data)}}
        return httpx.post(f"{self.url}/v1/audio/transcriptions", timeout=PATIENCE_SECONDS, **form)  # type: ignore[arg-type]

    def processes(self) -> list[int]:
        """The server, its workers, and their ffmpegs."""
        workers = children(self.process.pid)
        return [self.process.pid, *workers, *(ffmpeg for worker in workers for ffmpeg in children(worker))]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_SECONDS) is not None


@pytest.fixture
def server(root: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(root, "--concurrency", "2", "--max-seconds", f"{SECONDS:g}")
    yield running
    running.stop()


def test_hostile_uploads_are_refused_without_being_decoded(server: ServerProcess, tmp_path: Path) -> None:
    wide = wide_flac(tmp_path / "wide.flac", 26.0).read_bytes()
    greedy = greedy_m4a(tmp_path / "greedy.m4a", 80_000_000).read_bytes()
    assert max(len(wide), len(greedy)) < 50_000
    honest = server.send(wav())
    before = cpu_seconds(server.processes())
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        refused = [*pool.map(server.send, [wide, greedy] * 3)]
    assert server.send(wav()).json() == honest.json()
    assert [answer.status_code for answer in refused] == [413, 400] * 3
    assert "at most 23,040,000 are decoded" in refused[0].json()["error"]["message"]
    assert "cannot be transcribed" in refused[1].json()["error"]["message"]
    assert cpu_seconds(server.processes()) - before < 3  # a wide one takes 3 s, if all of it is decoded


def cpu_seconds(processes: list[int]) -> float:
    """Processor time of processes that run, and of those that they have waited for."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_memory_stays_below_what_the_docs_state(server: ServerProcess, tmp_path: Path) -> None:
    """Under the largest recordings that are admitted, as many as are worked on at a time, by both decoders."""
    seconds = str(SECONDS - 0.5)
    noise = f"anoisesrc=r=96000:d={seconds}:a=0.002"
    largest = [
        encode(tmp_path / "a.flac", noise, "-ac", "2", "-c:a", "flac", "-compression_level", "0").read_bytes(),
        encode(tmp_path / "a.m4a", noise, "-ac", "2", "-ar", "48000", "-c:a", "aac", "-b:a", "64k").read_bytes(),
    ]
    server.send(wav())
    at_rest = resident(server.process.pid)
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, sum(map(resident, server.processes())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(server.send, largest * 2)]
    done.set()
    watcher.join()
    assert [answer.status_code for answer in answers] == [200] * 4
    limits = DecodeLimits(SECONDS)
    stated = at_rest + 2 * 1e6 * (limits.megabytes(RATE) + 70 + 300 + 1.2 * SECONDS)
    print(f"at rest {at_rest / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB, stated {stated / 1e6:.0f} MB")
    assert at_rest < peak < stated


def test_a_request_that_takes_too_long_is_ended_and_says_when_to_try_again(
    serve: Callable[[ServingLimits], Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_reads(tmp_path, monkeypatch)
    served = serve(ServingLimits(concurrency=1, decode_seconds=PATIENCE_SECONDS, request_seconds=1.0))
    wait_until(lambda: len(children()) == 1, "the decoder")
    (decoder,) = children()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(served.send, [wav()] * 2)]  # the second one waits behind the first, and ends there
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert answer.json()["error"]["type"] == "server_error"
        assert "no answer within 1 s" in answer.json()["error"]["message"]
    wait_until(lambda: pending(served) == 0, "the end of the work")
    assert decoder not in children()
    monkeypatch.undo()
    # A second is little on a busy machine, and a decoder may wait that was started with the slow ones.
    wait_until(lambda: served.send(wav()).status_code == 200, "an answer")


def pending(served: Served) -> int:
    return int(httpx.get(f"{served.url}/healthz").json()["pending"])


def test_a_request_in_the_queue_leaves_it_at_its_deadline(
    serve: Callable[[ServingLimits], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one whose network cannot be ended."""
    limits = ServingLimits(concurrency=1, request_seconds=PATIENCE_SECONDS)
    served, free = serve(limits), threading.Event()
    (model,) = served.models
    assert model.current
    entered = threading.Event()

    def hear(_: object) -> None:
        entered.set()
        free.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(model.current.engine, "recognize_waveforms", hear)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        pool.submit(served.send, wav())
        assert entered.wait(PATIENCE_SECONDS)

        # Only now, as a busy machine takes longer than a second to decode the first one.
        monkeypatch.setattr(served.server, "limits", dataclasses.replace(limits, request_seconds=1.0))
        answers = [*pool.map(served.send, [wav()] * 2)]
        assert [answer.status_code for answer in answers] == [503] * 2
        wait_until(lambda: pending(served) == 1, "the two that waited")
        free.set()
    wait_until(lambda: pending(served) == 0, "the end of the first one")


def test_the_work_of_a_client_that_leaves_is_ended(
    serve: Callable[[ServingLimits], Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_reads(tmp_path, monkeypatch)
    served = serve(ServingLimits(concurrency=1, decode_seconds=PATIENCE_SECONDS, request_seconds=PATIENCE_SECONDS))
    (decoder,) = children()
    request = httpx.Request(
        "POST", f"{served.url}/v1/audio/transcriptions", data={"model": "asr"}, files={"file": ("a.wav", wav())}
    )
    body = request.read()
    head = "".join(f"{key}: {value}\r\n" for key, value in request.headers.items())
    clients = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(2)]
    for client in clients:
        client.sendall(f"POST /v1/audio/transcriptions HTTP/1.1\r\n{head}\r\n".encode() + body)
    wait_until(lambda: pending(served) == 2, "both requests")
    time.sleep(0.5)  # the first one is being decoded, for hours
    for client in clients:
        client.close()
    wait_until(lambda: pending(served) == 0, "the end of the work")
    assert decoder not in children()
    monkeypatch.undo()
    assert served.send(wav()).status_code == 200


@pytest.mark.slow
def test_transcribe_says_what_is_wrong_with_a_hostile_file(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wide = wide_flac(tmp_path / "wide.flac", 26.0)
    greedy = greedy_m4a(tmp_path / "greedy.m4a", 80_000_000)
    (tmp_path / "honest.wav").write_bytes(wav())
    files = [str(wide), str(greedy), str(tmp_path / "honest.wav")]
    with pytest.raises(SystemExit) as ended:
        main(["transcribe", *files, "--model", str(root / "asr"), "--max-seconds", "60"])
    said = capfd.readouterr()
    assert ended.value.code == 1
    assert said.out == f"{files[2]}\tone two\n"
    assert re.search(r"wide.flac: cannot be transcribed: [\d,]+ samples or more .*at most 11,520,000", said.err)
    assert "greedy.m4a: cannot be transcribed: " in said.err


def test_the_library_limits_samples_and_ffmpeg_too(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import voxline
    from voxline.audio import decoding
    from voxline.errors import WorkError

    recognizer = voxline.load_recognizer(root / "asr")
    with pytest.raises(WorkError, match="cannot be transcribed"):
        recognizer.transcribe(greedy_m4a(tmp_path / "greedy.m4a", 80_000_000))
    monkeypatch.setattr(decoding.load_audio, "__defaults__", (0.0, None, None, 1_000))
    (tmp_path / "a.wav").write_bytes(wav())
    with pytest.raises(WorkError, match="at most 1,000 are decoded"):
        recognizer.transcribe(tmp_path / "a.wav")
