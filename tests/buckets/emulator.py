"""A real emulator of Google Cloud Storage over HTTP, for the length of a test process, and a bucket for each test.

It is gcp-storage-emulator, in this process; or fake-gcs-server, where VOXLINE_FAKE_GCS names its program
(`make test-buckets` builds it): that one holds to the conditions of uploads by itself, and passes over those of copies
and deletions. Google's library talks to a proxy before it, see `tests/buckets/proxy.py`.
"""

import contextlib
import datetime
import email.message
import io
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.buckets.clock import StorageClock
from tests.buckets.faults import Fault, Kind
from tests.buckets.older import Older
from tests.buckets.proxy import Answer, Backend, Proxy, over_http
from voxline.store.objects import ObjectStore, open_store

FAKE_GCS = "VOXLINE_FAKE_GCS"


Started = tuple[Backend, Callable[[], None]]
"""What answers, and what wipes all that is there."""


class Storage:
    """A fresh bucket, and the proxy before it.

    Attributes:
      name: of the bucket.
      uri: `gs://<name>`.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.name = f"voxline-{secrets.token_hex(6)}"
        self.uri = f"gs://{self.name}"
        self.client().create_bucket(self.name)

    def client(self) -> Any:
        """Google's own client, to look at what is there."""
        from google.cloud import storage

        return storage.Client(project="test")

    def bucket(self, prefix: str = "") -> ObjectStore:
        return open_store(f"{self.uri}/{prefix}")

    def names(self) -> list[str]:
        """The names of all objects."""
        return [blob.name for blob in self.client().list_blobs(self.name)]

    def let_pass(self, **time: float) -> None:
        """Makes all that is there older by a time, such as `days=4`."""
        self.proxy.clock.advance(datetime.timedelta(**time))

    def fails(self, kind: Kind, method: str = "", path: str = "", **how: Any) -> Fault:
        """Lets a fault befall the next requests of that kind."""
        return self.proxy.faults.add(Fault(kind, method, path, **how))


@pytest.fixture(scope="session")
def gcs_proxy() -> Iterator[Proxy]:
    """The proxy of this process, with an emulator behind it."""
    with _fake_gcs() if os.environ.get(FAKE_GCS) else _gcp_storage_emulator() as (backend, wipe):
        proxy = Proxy(backend, holds_uploads=not os.environ.get(FAKE_GCS))
        proxy.wipe = wipe
        yield proxy
        proxy.shutdown()
        proxy.server_close()


@pytest.fixture
def gcs(gcs_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A bucket of its own, and a library that does not wait long.

    What earlier tests left is wiped: the emulator writes the list of all objects again whenever it gets one.
    """
    gcs_proxy.faults.clear()
    gcs_proxy.older, gcs_proxy.clock = Older(), StorageClock()
    gcs_proxy.wipe()
    gcs_proxy.requests.clear()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_proxy.address)
    monkeypatch.setenv("VOXLINE_BUCKETS_FIRST_WAIT_SECONDS", "0.01")
    monkeypatch.setenv("VOXLINE_BUCKETS_LONGEST_WAIT_SECONDS", "0.05")
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
    monkeypatch.setenv("VOXLINE_BUCKETS_CHUNK_MEGABYTES", "1")
    return Storage(gcs_proxy)


@contextlib.contextmanager
def _gcp_storage_emulator() -> Iterator[Started]:
    """Called as its own server calls it, one request at a time, without a second connection for each request."""
    from gcp_storage_emulator.server import Router
    from gcp_storage_emulator.storage import Storage as Contents

    # It would write the list of all objects at every change, which nobody reads of a storage in memory.
    Contents._write_config_to_file = lambda self: None
    contents, serving = Contents(use_memory_fs=True), threading.Lock()

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        exchange = _Exchange(path, headers, body, contents)
        with serving:
            Router(exchange).handle(method)
        return exchange.status, exchange.answered, exchange.wfile.getvalue()

    yield answer, contents.wipe


class _Exchange:
    """A request and its answer, as gcp-storage-emulator's router reads and writes them."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes, contents: Any) -> None:
        self.path, self.storage = path, contents
        self.headers = email.message.Message()
        for name, value in headers.items():
            self.headers[name] = value
        self.headers["Content-Length"] = str(len(body))
        self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
        self.server = SimpleNamespace(server_address=("127.0.0.1", 0))
        self.status = 0
        self.answered: dict[str, str] = {}

    def send_response(self, status: int, reason: str) -> None:
        self.status = status

    def send_header(self, name: str, value: str) -> None:
        self.answered[name] = str(value)

    def end_headers(self) -> None:
        """The body follows, in `wfile`."""


@contextlib.contextmanager
def _fake_gcs() -> Iterator[Started]:
    port = free_port()
    program = [os.environ[FAKE_GCS], "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    process = subprocess.Popen([*program, "-log-level", "error"])
    try:
        await_port(port)
        yield over_http(port), lambda: None
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def await_port(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no emulator answers on port {port}")
