"""A real S3 server over HTTP, for the length of a test process, and a bucket for each test.

It is moto, in a thread of this process; or versitygw, where VOXLINE_VERSITYGW names its program (`make test-buckets`
builds it). boto3 talks to a proxy in front of it, see `tests/buckets/proxy.py`.
"""

import contextlib
import datetime
import functools
import logging
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.buckets.clock import StorageClock
from tests.buckets.emulator import await_port, free_port
from tests.buckets.faults import Fault, Kind
from tests.buckets.proxy import Proxy, over_http
from voxline.store.objects import ObjectStore, open_store

VERSITYGW = "VOXLINE_VERSITYGW"
KEY = "voxline-test-key"


class S3Storage:
    """A fresh bucket, and the proxy in front of it. As `emulator.Storage`."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.name = f"voxline-{secrets.token_hex(6)}"
        self.uri = f"s3://{self.name}"
        self.client().create_bucket(Bucket=self.name)

    @functools.cache  # noqa: B019 - a bucket lives as long as its test; to build a client takes 30 ms
    def client(self) -> Any:
        """boto3's own client, to look at what is there."""
        import boto3
        from botocore.config import Config

        return boto3.client("s3", region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))

    def bucket(self, prefix: str = "") -> ObjectStore:
        return open_store(f"{self.uri}/{prefix}")

    def names(self) -> list[str]:
        """The names of all objects."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def let_pass(self, **time: float) -> None:
        """Makes all that is there older by a time, such as `days=4`."""
        self.proxy.clock.advance(datetime.timedelta(**time))

    def fails(self, kind: Kind, method: str = "", path: str = "", **how: Any) -> Fault:
        """Lets a fault befall the next requests of that kind."""
        return self.proxy.faults.add(Fault(kind, method, path, **how))


@pytest.fixture(scope="session")
def s3_proxy() -> Iterator[Proxy]:
    """The proxy of this process, with a server behind it."""
    with _versitygw() if os.environ.get(VERSITYGW) else _moto() as port:
        proxy = Proxy(over_http(port), s3=True)
        yield proxy
        proxy.shutdown()
        proxy.server_close()


@pytest.fixture
def s3(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    """A bucket of its own, and a library that does not wait long."""
    s3_proxy.faults.clear()
    s3_proxy.requests.clear()
    s3_proxy.clock = StorageClock()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_proxy.address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("VOXLINE_BUCKETS_FIRST_WAIT_SECONDS", "0.01")
    monkeypatch.setenv("VOXLINE_BUCKETS_LONGEST_WAIT_SECONDS", "0.05")
    monkeypatch.setenv("VOXLINE_BUCKETS_DEADLINE_SECONDS", "30")
    monkeypatch.setenv("VOXLINE_BUCKETS_CHUNK_MEGABYTES", "1")
    storage = S3Storage(s3_proxy)
    s3_proxy.requests.clear()
    return storage


@contextlib.contextmanager
def _moto() -> Iterator[int]:
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    # The application for S3 alone: the one for all of AWS walks moto's folders at every request to find out which.
    server = make_server("127.0.0.1", 0, create_backend_app("s3"), True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()


@contextlib.contextmanager
def _versitygw() -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [os.environ[VERSITYGW], "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", KEY, "--quiet"]
        process = subprocess.Popen([*command, "posix", folder])
        try:
            await_port(port)
            yield port
        finally:
            process.terminate()
            process.wait(10)
