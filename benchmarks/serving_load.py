"""How `voxline serve` stands load and hostile clients: goodput, the health port's delay, memory.

A server with the limits as they are shipped, on loopback. Clients send recordings of 2.2 s on connections that they
keep, and come again 0.2 s after a refusal. They run in a process of their own with a lower priority, as callers do not
take the server's cores; the delay of `/healthz` is measured from another one.

  python -m benchmarks.serving_load [SECONDS]

SECONDS is the time of each measurement, 6 by default. Goodput is a ratio to the best of 1 to 8 clients, once by the
clock and once by the server's processor time, which other work on the machine changes less.
"""

import asyncio
import base64
import collections
import contextlib
import io
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.table import Row, print_table

RATE, CLIP_SECONDS = 16_000, 2.2
FEW, MANY = (1, 2, 4, 8), (16, 64, 240)
ROUNDS = 3
GOODPUT, BESIDE_SLOW, HEALTH_MS, MEMORY_MB = 0.8, 0.9, 100.0, 100.0
GOODPUT_OF_CPU = 0.7
"""Lower, as it counts what refusals cost: of 240 clients nearly half are refused."""
PROBE_SECONDS = 0.05
HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
UPGRADE = (
    b"GET /v1/stream?model=asr HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)


def main(seconds: float) -> None:
    """Prints the table, and the load of the machine below it."""
    with tempfile.TemporaryDirectory() as folder, _serve(Path(folder)) as server:
        rows = _goodput(server, seconds) + _beside_slow_clients(server, seconds)
        rows += [row for name in ATTACKS for row in _under_attack(server, name, seconds)]
    print(f"load of the machine, 1 and 5 minutes: {os.getloadavg()[:2]}, {os.cpu_count()} cores", file=sys.stderr)
    print_table(rows)


class Server:
    """A running server, its port and that of its health."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, health_port: int) -> None:
        self.port, self.health_port = port, health_port
        self._session = process.pid

    def cpu_seconds(self) -> float:
        """Of the server and its workers, those that have ended included."""
        ticks = sum(sum(map(int, fields[11:15])) for fields in self._processes())
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Resident, of the server and its workers."""
        return sum(int(fields[21]) for fields in self._processes()) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _processes(self) -> Iterator[list[str]]:
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = file.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._session:
                    yield fields


@contextlib.contextmanager
def _serve(folder: Path) -> Iterator[Server]:
    from benchmarks.serving import export_forward
    from voxline.inference.saved_model import model_digest
    from voxline.registry.registry import Registry

    export_forward(folder / "model")
    registry = Registry(folder / "registry", "asr")
    with registry.locked(), registry.publishing(folder / "model", model_digest(folder / "model"), "push"):
        pass
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    options = ["--registry", str(folder / "registry"), "--port", str(ports[0]), "--health-port", str(ports[1])]
    process = subprocess.Popen(
        [sys.executable, "-m", "voxline", "serve", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while not _is_up(ports[0]):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit("the server did not start")
            time.sleep(0.1)
        yield Server(process, *ports)
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def _is_up(port: int) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read()
        return True
    return False


def _goodput(server: Server, seconds: float) -> list[Row]:
    """Answers a second, and a second of processor time, beside those of few clients."""
    _load(server, 4, 2.0)  # warm
    rounds = [{clients: _load(server, clients, seconds) for clients in (*FEW, *MANY)} for _ in range(ROUNDS)]
    measured = {
        clients: tuple(statistics.median(results[clients][kind] for results in rounds) for kind in range(2))
        for clients in (*FEW, *MANY)
    }
    peak = max(measured[clients][0] for clients in FEW)
    cheapest = max(measured[clients][1] for clients in FEW)
    rows = []
    for clients in MANY:
        rate, per_cpu = measured[clients]
        name = f"answers, {clients} clients; peer: the best of {FEW[0]} to {FEW[-1]} clients"
        rows.append(Row.of(name, f"{rate:.0f}/s", f"{peak:.0f}/s", rate / peak, ">=", GOODPUT))
        name = f"the same, a second of the server's processor time, {clients} clients"
        rows.append(Row.of(name, f"{per_cpu:.0f}", f"{cheapest:.0f}", per_cpu / cheapest, ">=", GOODPUT_OF_CPU))
    return rows


def _beside_slow_clients(server: Server, seconds: float) -> list[Row]:
    """In turns, as other work on the machine changes."""
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(_load(server, 4, seconds)[0])
        with _attacking(server, "64 slow clients"):
            beside.append(_load(server, 4, seconds)[0])
    ours, peer = statistics.median(beside), statistics.median(alone)
    name = "answers, 4 clients beside 64 of a byte a second; peer: alone"
    return [Row.of(name, f"{ours:.0f}/s", f"{peer:.0f}/s", ours / peer, ">=", BESIDE_SLOW)]


def _under_attack(server: Server, name: str, seconds: float) -> list[Row]:
    before = server.memory_mb()
    delays: list[float] = []
    with _attacking(server, name):
        end = time.monotonic() + 2 * seconds
        most = before
        while time.monotonic() < end:
            start = time.monotonic()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{server.health_port}/healthz", timeout=60).read()
            delays.append(1000 * (time.monotonic() - start))
            most = max(most, server.memory_mb())
            time.sleep(PROBE_SECONDS)
    slowest = float(np.percentile(delays, 99))
    grown = most - before
    return [
        Row.of(f"/healthz, 99%, {name}", f"{slowest:.0f} ms", f"{HEALTH_MS:g} ms", slowest / HEALTH_MS, "<=", 1),
        Row.of(f"memory, {name}", f"+{grown:.0f} MB", f"+{MEMORY_MB:g} MB", grown / MEMORY_MB, "<=", 1),
    ]


def _load(server: Server, clients: int, seconds: float) -> tuple[float, float]:
    """Answers with 200 a second, and a second of the server's processor time."""
    before = server.cpu_seconds()
    answers = json.loads(_generate(server, "load", str(clients), str(seconds)))
    print(f"{clients} clients: {answers}", file=sys.stderr)
    count = answers["statuses"].get("200", 0)
    return count / answers["seconds"], count / (server.cpu_seconds() - before)


def _generate(server: Server, *arguments: str) -> str:
    command = ["nice", "-n", "10", sys.executable, "-m", "benchmarks.serving_load", *arguments, str(server.port)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def _attacking(server: Server, name: str) -> Iterator[None]:
    command = ["nice", "-n", "10", sys.executable, "-m", "benchmarks.serving_load", "attack", name, str(server.port)]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(2)
            yield
        finally:
            process.kill()
    time.sleep(1)


async def _call_for(clients: int, seconds: float, port: int) -> dict[str, object]:
    """Clients that send one recording after the other."""
    import soundfile

    file = io.BytesIO()
    noise = np.random.default_rng(0).normal(0, 0.1, round(CLIP_SECONDS * RATE)).astype(np.float32)
    soundfile.write(file, noise, RATE, format="FLAC", subtype="PCM_16")
    model = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nasr\r\n'
    body = model + FILE + file.getvalue() + b"\r\n--b--\r\n"
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    statuses: collections.Counter[str] = collections.Counter()
    start = time.monotonic()

    async def call() -> None:
        writer = None
        while time.monotonic() < start + seconds:
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                await writer.drain()
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                status = head.split()[1].decode()
                statuses[status] += 1
                if b"connection: close" in head:
                    writer.close()
                    writer = None
                if status != "200":
                    await asyncio.sleep(0.2)
            except (OSError, asyncio.IncompleteReadError) as error:
                statuses[type(error).__name__] += 1
                writer = None
                await asyncio.sleep(0.2)

    await asyncio.gather(*(call() for _ in range(clients)))
    return {"seconds": time.monotonic() - start, "statuses": dict(statuses)}


def _connect(port: int, data: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(data)
    return client


def _send_slowly(port: int) -> None:
    """A byte a second from each of 64 clients, which come again when they are refused."""
    clients: list[socket.socket | None] = [None] * 64
    while True:
        for number, client in enumerate(clients):
            try:
                if client is None:
                    clients[number] = _connect(port, HEAD + b"Content-Length: 999999\r\n\r\n" + FILE)
                else:
                    client.sendall(b"x")
            except OSError:
                clients[number] = None
        time.sleep(1)


def _stay_idle(port: int) -> None:
    clients: collections.deque[socket.socket] = collections.deque(maxlen=300)
    while True:
        clients.append(_connect(port))
        if len(clients) == clients.maxlen:
            time.sleep(0.05)


def _flood(begin: bytes, part: bytes, *, reads: bool = False) -> Callable[[int], None]:
    """Sends a part again and again as fast as it can, on a new connection when one ends."""

    def read(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while client.recv(65_536):
                pass

    def flood(port: int) -> None:
        while True:
            with contextlib.suppress(OSError), contextlib.closing(_connect(port, begin)) as client:
                if reads:
                    threading.Thread(target=read, args=[client], daemon=True).start()
                while True:
                    client.sendall(part * 1000)

    return flood


def _frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    return struct.pack("BB", last << 7 | opcode, 128 | len(data)) + bytes(4) + data


def _overload(port: int) -> None:
    asyncio.run(_call_for(240, 3600, port))


ATTACKS: dict[str, Callable[[int], None]] = {
    "nothing": lambda _: time.sleep(3600),
    "64 slow clients": _send_slowly,
    "300 idle connections": _stay_idle,
    "chunks of a byte": _flood(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(FILE), FILE), b"1\r\nA\r\n"
    ),
    "pings, pongs unread": _flood(UPGRADE, _frame(9, b"x" * 125)),
    "pings, pongs read": _flood(UPGRADE, _frame(9, b"x" * 125), reads=True),
    "empty fragments": _flood(UPGRADE + _frame(2, b"", last=False), _frame(0, b"", last=False)),
    "messages of a byte": _flood(UPGRADE, _frame(2, b"\0"), reads=True),
    "240 clients": _overload,
}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", clients, seconds, port]:
            print(json.dumps(asyncio.run(_call_for(int(clients), float(seconds), int(port)))))
        case ["attack", name, port]:
            ATTACKS[name](int(port))
        case [seconds]:
            main(float(seconds))
        case _:
            main(6.0)
