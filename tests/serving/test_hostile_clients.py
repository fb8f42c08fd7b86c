"""Clients that send what no library would, on real sockets: each gets an answer in OpenAI's form, and costs little."""

import asyncio
import base64
import concurrent.futures
import contextlib
import errno
import json
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.causal_model import export_causal_model
from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.serving import connections, health, uploads
from voxline.serving.health import HealthServer
from voxline.serving.limits import ServingLimits
from voxline.serving.server import uvicorn_options


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx_tones(tmp_path_factory.mktemp("models") / "tones")


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_causal_model(tmp_path_factory.mktemp("models") / "causal", 1)


@pytest.fixture
def served(model: Path, tmp_path: Path) -> Iterator[Served]:
    push(tmp_path / "registry", model)
    running = Served(tmp_path / "registry")
    yield running
    running.stop()


def openai_error(answer: httpx.Response) -> dict[str, object]:
    """The error of an answer, which must be JSON in OpenAI's form."""
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, object] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if answer.status_code >= 500 else "invalid_request_error")
    return error


SPEECH = {"model": "asr", "input": "one"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[" * 60_000, None),
        (b'{"a":' * 12_000, None),
        (b"\xff\xfe", None),
        (b"[]", None),
        (b'{"speed": ' + b"9" * 5000 + b"}", None),
        (rb'{"model": "asr", "input": "one", "\ud800": 1}', "?"),
        ({"response_format": []}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"response_format": None}, "response_format"),
        ({"model": ["asr"]}, "model"),
        ({"model": {}}, "model"),
        ({"input": ["one"]}, "input"),
        ({"voice": []}, "voice"),
        ({"voice": 3}, "voice"),
        ({"instructions": {}}, "instructions"),
        ({"speed": []}, "speed"),
        ({"stream_format": {}}, "stream_format"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_of_another_kind_is_the_callers_fault(served: Served, body: object, param: str | None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(SPEECH | body).encode()  # type: ignore[operator]
    answer = httpx.post(f"{served.url}/v1/audio/speech", content=data, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 400
    assert openai_error(answer)["param"] == param


def test_a_route_or_a_method_that_is_not_here_is_refused_in_openais_form(served: Served) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/audio/speech", 405), ("PUT", "/", 405)):
        answer = httpx.request(method, f"{served.url}{path}")
        assert answer.status_code == status
        openai_error(answer)
    assert served.send(wav()).status_code == 200


SECOND = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
Start = Callable[[ServingLimits], Served]


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Served] = []
    push(tmp_path / "limited", model)

    def start(limits: ServingLimits) -> Served:
        running.append(Served(tmp_path / "limited", limits))
        return running[-1]

    yield start
    for served in running:
        served.stop()


@contextlib.contextmanager
def connected(served: Served, data: bytes = b"", host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A connection from an address of this machine."""
    to = ("127.0.0.1", served.port)
    with socket.create_connection(to, timeout=PATIENCE_SECONDS, source_address=(host, 0)) as client:
        client.sendall(data)
        yield client


def read_answer(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of the next answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += (part := client.recv(1))
        assert part, f"closed after {data!r}"
    lines = data.decode().splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
    body = b""
    while len(body) < int(headers["content-length"]):
        body += client.recv(int(headers["content-length"]) - len(body))
    return int(lines[0].split()[1]), headers, json.loads(body)


def is_closed(client: socket.socket) -> bool:
    """Reads to the end of a connection, which must come."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


@contextlib.contextmanager
def occupied(served: Served) -> Iterator[threading.Event]:
    """A recognizer that computes until the event is set."""
    (model,) = served.models
    assert model.current
    recognizer, free = model.current.engine, threading.Event()
    hear = recognizer.recognize_waveforms

    def wait(waveforms: list[np.ndarray]) -> object:
        free.wait(PATIENCE_SECONDS)
        return hear(waveforms)

    recognizer.recognize_waveforms = wait
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(served.send, wav())
        wait_until(lambda: served.server._pending == 1, "the first request")
        try:
            yield free
        finally:
            free.set()
            recognizer.recognize_waveforms = hear
        assert first.result().status_code == 200


ONE = ServingLimits(concurrency=1, queue=0, uploads=8, wait_seconds=0.2)


def test_a_busy_server_refuses_before_it_reads_the_body(start: Start) -> None:
    served = start(ONE)
    with occupied(served), connected(served, HEAD + b"Content-Length: 30\r\n\r\n") as client:
        status, headers, body = read_answer(client)  # no byte of the body was sent
        assert (status, headers["retry-after"], body["error"]["code"]) == (429, "1", "rate_limit_exceeded")
        client.sendall(b"x" * 30 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(client)[0] == 200, "the connection stays open"
        client.sendall(HEAD + b"Content-Length: 30\r\nExpect: 100-continue\r\n\r\n")
        status, headers, _ = read_answer(client)
        assert (status, headers["connection"], is_closed(client)) == (429, "close", True)


def test_a_request_that_waits_gets_the_next_place(start: Start) -> None:
    served = start(ServingLimits(concurrency=1, queue=0, wait_seconds=PATIENCE_SECONDS))
    with occupied(served) as free, concurrent.futures.ThreadPoolExecutor(1) as pool:
        second = pool.submit(served.send, wav())
        wait_until(lambda: len(served.server.uploads._waiting) == 1, "the second request")
        free.set()
        assert second.result().status_code == 200


def test_an_unwanted_body_is_not_read_to_its_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_DISCARDED_BYTES", 100_000)
    served = start(ServingLimits())
    with connected(served, HEAD + b"Content-Length: 999999999\r\n\r\n") as client:
        assert read_answer(client)[0] == 413
        with pytest.raises(ConnectionError):
            client.sendall(bytes(100_000_000))


@pytest.mark.slow
def test_slow_clients_keep_nobody_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_SLOW_SECONDS", 0.5)
    served = start(ServingLimits(uploads=8, wait_seconds=PATIENCE_SECONDS))
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(connected(served, HEAD + b"Content-Length: 99999\r\n\r\n" + FILE)) for _ in range(8)
        ]
        wait_until(lambda: len(served.server.uploads) == 8, "the slow clients")
        assert served.send(wav()).status_code == 200
        assert served.server.uploads._requests
        for client in slow:  # the rest of them at the latest when their time has passed
            status, _, body = read_answer(client)
            assert (status, "bytes in" in body["error"]["message"], is_closed(client)) == (408, True, True)


def test_one_host_whose_uploads_are_not_slow_keeps_no_other_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_SLOW_SECONDS", 0.3)
    served = start(ServingLimits(uploads=8, wait_seconds=PATIENCE_SECONDS))
    with contextlib.ExitStack() as stack:
        head = HEAD + b"Content-Length: 9999999\r\n\r\n" + FILE
        many = [stack.enter_context(connected(served, head + bytes(1_000_000), "127.0.0.2")) for _ in range(8)]
        waiting = [stack.enter_context(connected(served, head, "127.0.0.2")) for _ in range(8)]
        wait_until(lambda: len(served.server.uploads._waiting) == 8, "those that wait")
        assert served.send(wav()).status_code == 200
        [ended] = [client for client in many if _has_answer(client)]
        assert read_answer(ended)[0] == 429
        assert not any(map(_has_answer, waiting)), "they wait for places of their own"


def _has_answer(client: socket.socket) -> bool:
    """Whether something can be read; the end of a connection can be, too."""
    return bool(select.select([client], [], [], 0)[0])


def test_of_those_who_wait_the_caller_with_the_fewest_requests_is_first() -> None:
    order: list[str] = []

    async def scenario() -> None:
        places = uploads.Uploads(ServingLimits(concurrency=1, queue=1, wait_seconds=PATIENCE_SECONDS), lambda: 0)

        async def wait(caller: str) -> None:
            async with places.admitted(caller):
                order.append(caller)
                await asyncio.sleep(0)

        async with contextlib.AsyncExitStack() as held:
            await held.enter_async_context(places.admitted("many"))
            async with places.admitted("many"):
                tasks = [asyncio.create_task(wait(caller)) for caller in ("many", "many", "other", "third")]
                await asyncio.sleep(0.01)
                assert order == []
            await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert order == ["other", "third", "many", "many"]


def test_a_client_that_sends_fast_enough_has_its_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_GRACE_SECONDS", 0.5)
    served = start(ServingLimits(bytes_per_second=10))
    body = FILE + wav() + b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nasr\r\n--x--\r\n'
    with connected(served, HEAD + b"Content-Length: %d\r\n\r\n" % len(body)) as client:
        for part in (body[:300], body[300:1000], body[1000:]):
            client.sendall(part)
            time.sleep(0.4)
        assert read_answer(client)[2]["text"] == "one two"


def test_recordings_fill_no_more_than_their_room(start: Start) -> None:
    served = start(ServingLimits(spool_bytes=100_000))
    with connected(served, HEAD + b"Content-Length: 90000\r\n\r\n" + FILE + bytes(80_000)) as first:
        wait_until(lambda: served.server.uploads._spooled > 80_000, "the first")
        refused = served.send(bytes(50_000))
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert "room for uploads" in str(openai_error(refused)["message"])
        first.close()
    wait_until(lambda: served.server.uploads._spooled == 0, "the end of the first")
    assert served.send(wav()).status_code == 200


def test_a_full_disk_is_an_answer_and_a_state(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    served = start(ServingLimits())
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 6_000_000}))
    refused = served.send(bytes(4_000_000))
    assert (refused.status_code, openai_error(refused)["type"]) == (507, "server_error")
    described = httpx.get(f"{served.url}/healthz").json()
    assert described["status"] == "degraded"
    assert re.search(r"6.0 MB are free; the largest recording needs 52.4 MB", described["faults"][0])
    assert served.send(wav()).status_code == 200, "a short one needs no disk"


def test_idle_connections_keep_nobody_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.HttpConnection, "head_seconds", PATIENCE_SECONDS)  # they are idle in peace
    served = start(ServingLimits(uploads=4))  # 16 connections
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(served)) for _ in range(40)]
        for _ in range(3):
            assert httpx.get(f"{served.url}/healthz").status_code == 200
        assert is_closed(idle[0])
        wait_until(lambda: len(served._uvicorn.server_state.connections) <= 17, "the end of the oldest")
        assert served.send(wav()).status_code == 200


def test_where_all_connections_are_busy_the_next_one_gets_503_in_openais_form(start: Start) -> None:
    served = start(ServingLimits(uploads=1, wait_seconds=PATIENCE_SECONDS, bytes_per_second=1))  # 4 connections
    with contextlib.ExitStack() as stack:
        for number in range(1, 5):  # the first sends, the others wait for its place
            stack.enter_context(connected(served, HEAD + b"Content-Length: 9999\r\n\r\n"))
            wait_until(lambda n=number: len(served.server.uploads) + len(served.server.uploads._waiting) == n, "it")
        status, headers, body = read_answer(stack.enter_context(connected(served)))
        assert (status, body["error"]["type"]) == (503, "server_error")
        assert int(headers["retry-after"]) > 0


def test_where_all_connections_are_busy_the_host_with_the_most_gives_up_its_latest(start: Start) -> None:
    served = start(ServingLimits(uploads=1, wait_seconds=PATIENCE_SECONDS, bytes_per_second=1))  # 4 connections
    with contextlib.ExitStack() as stack:
        busy = []
        for number in range(1, 5):
            busy.append(stack.enter_context(connected(served, HEAD + b"Content-Length: 9999\r\n\r\n", "127.0.0.2")))
            wait_until(lambda n=number: len(served.server.uploads) + len(served.server.uploads._waiting) == n, "it")
        assert httpx.get(f"{served.url}/healthz").status_code == 200
        assert is_closed(busy[-1])
        assert not any(map(_has_answer, busy[:-1]))


def test_a_refused_client_that_has_gone_leaves_no_traceback_in_the_log(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of connections met this by chance: the answer was written, and the kernel had ended the connection."""

    def fail(_: object) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    served = start(ServingLimits(uploads=1, wait_seconds=PATIENCE_SECONDS, bytes_per_second=1))  # 4 connections
    with contextlib.ExitStack() as stack:
        for number in range(1, 5):
            stack.enter_context(connected(served, HEAD + b"Content-Length: 9999\r\n\r\n"))
            wait_until(lambda n=number: len(served.server.uploads) + len(served.server.uploads._waiting) == n, "it")
        monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", fail)
        client = stack.enter_context(connected(served))
        assert (read_answer(client)[0], is_closed(client)) == (503, True)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_a_body_in_chunks_of_a_byte_is_refused(served: Served) -> None:
    with connected(served, HEAD + b"Transfer-Encoding: chunked\r\n\r\n") as client:
        client.sendall(b"%x\r\n%s\r\n" % (len(FILE), FILE))
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"1\r\nA\r\n" * 4000)
        status, headers, body = read_answer(client)
        assert (status, headers["content-type"], is_closed(client)) == (400, "application/json", True)
        assert body["error"]["type"] == "invalid_request_error"
    assert served.send(wav()).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        HEAD + b"Content-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000,
        b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=lambda data: str(data[-20:]),
)
def test_a_broken_request_is_refused_in_openais_form_and_its_connection_closed(served: Served, data: bytes) -> None:
    with connected(served, data) as client:
        status, headers, body = read_answer(client)
        assert (status // 100, headers["content-type"]) == (4, "application/json")
        assert body["error"].keys() == {"message", "type", "param", "code"}
        rest = b""
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65_536):
                rest += part
    assert rest == b"", "nothing after a broken request is answered"


def test_a_client_that_does_not_read_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_STALL_SECONDS", 0.2)
    state = served._uvicorn.server_state
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_SECONDS)
        client.connect(("127.0.0.1", served.port))
        largest = 0
        with contextlib.suppress(ConnectionError):
            while True:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
                sizes = [connection.transport.get_write_buffer_size() for connection in list(state.connections)]
                largest = max([largest, *sizes])
    assert largest < 2**20
    wait_until(lambda: not state.connections, "the end of the connection")


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """A frame of a client, with a mask of zeros."""
    size = bytes([128 | len(data)]) if len(data) < 126 else bytes([128 | 126]) + struct.pack(">H", len(data))
    return bytes([last << 7 | opcode]) + size + bytes(4) + data


UPGRADE = (
    b"GET /v1/stream?model=asr HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
PING, BINARY, CONTINUED, EMPTY_START = 9, 2, 0, frame(2, b"", last=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "flood"),
    [
        (b"", frame(PING, b"x" * 125)),
        (b"", frame(10, b"")),
        (EMPTY_START, frame(CONTINUED, b"", last=False)),
        (b"", frame(BINARY, b"\0")),
        (b"", frame(BINARY, b"")),
    ],
    ids=["pings", "pongs", "empty fragments", "messages of a byte", "empty messages"],
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_flood_of_frames_ends_its_session(
    streaming: Path, tmp_path: Path, begin: bytes, flood: bytes, reads: bool
) -> None:
    push(tmp_path / "registry", streaming)
    served = Served(tmp_path / "registry")
    received = bytearray()

    def read(client: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65_536):
                received.extend(part)

    with contextlib.ExitStack() as stack:
        stack.callback(served.stop)
        client = stack.enter_context(connected(served, UPGRADE))
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
        client.sendall(begin)
        reader = threading.Thread(target=read, args=[client])
        if reads:
            reader.start()
        with contextlib.suppress(ConnectionError):
            for _ in range(5):
                client.sendall(flood * 1000)
        wait_until(lambda: served.server.realtime.streams == 0, "the end of the session")
        if reads:
            reader.join()
            assert struct.pack(">H", 1008) + b"too many frames" in received


def test_a_request_that_the_end_of_the_server_cuts_off_gets_503_in_openais_form(start: Start) -> None:
    served = start(ServingLimits(concurrency=1))
    served._uvicorn.config.timeout_graceful_shutdown = 1
    (model,) = served.models
    assert model.current
    free = threading.Event()
    model.current.engine.recognize_waveforms = lambda _: free.wait(PATIENCE_SECONDS)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        request = pool.submit(served.send, wav())
        wait_until(lambda: served.server._pending == 1, "the request")
        served._uvicorn.should_exit = True
        answer = request.result()
        free.set()
    assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (503, True)
    openai_error(answer)


def test_the_health_port_answers_while_the_servers_loop_does_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = uvicorn_options(ServingLimits())
    port = HealthServer(served.server.health, served.server.access, "127.0.0.1", 0, options)
    url = f"http://127.0.0.1:{port.port}"
    free = threading.Event()
    try:
        monkeypatch.setattr(health, "STALLED_SECONDS", 1.5)
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        with connected(served):
            wait_until(lambda: served._uvicorn.server_state.connections, "the connection")
            (connection,) = served._uvicorn.server_state.connections
            connection.loop.call_soon_threadsafe(free.wait, PATIENCE_SECONDS)
            assert "voxline_serve" in httpx.get(f"{url}/metrics").text
            wait_until(lambda: httpx.get(f"{url}/healthz").status_code == 503, "the stall", 0.1)
            assert httpx.get(f"{url}/healthz").json()["status"] == "stalled"
            free.set()
            wait_until(lambda: httpx.get(f"{url}/healthz").status_code == 200, "the recovery", 0.1)
    finally:
        free.set()
        port.stop()
