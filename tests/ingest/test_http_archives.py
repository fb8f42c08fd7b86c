"""Archives at http(s) addresses: continued after failures, checked against a checksum, from a real server."""

import dataclasses
import hashlib
import http.server
import io
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ingest.conftest import Ingested
from voxline.components.ingest.http_download import download_archive
from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.step import run
from voxline.errors import SettingsError, TransientError, WorkError

Handler = http.server.BaseHTTPRequestHandler


@dataclasses.dataclass
class Server:
    """An HTTP server with one file. Each request takes one of `faults`, until there are none."""

    content: bytes = b""
    ranges: bool = True
    length: bool = True
    faults: list[Callable[[Handler], None] | None] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)
    url: str = ""

    def answer(self, handler: Handler, stop_after: int | None = None) -> None:
        start = 0
        if self.ranges and (wanted := handler.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.content):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(self.content)}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        else:
            handler.send_response(200)
        if self.length:
            handler.send_header("Content-Length", str(len(self.content) - start))
        handler.end_headers()
        handler.wfile.write(self.content[start:][:stop_after])
        if stop_after is not None:
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class OneFile(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.headers.get("Range", ""))
            fault = state.faults.pop(0) if state.faults else None
            if fault:
                fault(self)
            else:
                state.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    real = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneFile)
    thread = threading.Thread(target=real.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{real.server_port}/corpora/small.tar.gz"
    yield state
    real.shutdown()
    real.server_close()


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def fetch(server: Server, store: Path, sha256: str = "", max_bytes: float = 1e9) -> bytes:
    expected = sha256 or hashlib.sha256(server.content).hexdigest()
    waits: list[float] = []
    file = download_archive(server.url, expected, store, max_bytes=max_bytes, sleep=waits.append)
    assert file == store / "downloads" / expected / "small.tar.gz"
    assert [one.name for one in file.parent.iterdir()] == ["small.tar.gz"]
    return file.read_bytes()


def test_a_corpus_at_an_address_is_the_corpus_in_the_archive(
    server: Server, corpus: Path, record: Callable[..., Path], ingest: Callable[..., Ingested], tmp_path: Path
) -> None:
    record("LibriSpeech/dev-clean/84/121/84-121-0000.flac")
    (corpus / "LibriSpeech/dev-clean/84/121/84-121.trans.txt").write_text("84-121-0000 GO DO YOU HEAR\n")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(corpus / "LibriSpeech", "LibriSpeech")
    server.content = packed.getvalue()
    checksum = hashlib.sha256(server.content).hexdigest()
    assert ingest("librispeech", uri=server.url, sha256=checksum.upper()).ids == ["84-121-0000"]
    assert ingest("librispeech", uri=server.url, sha256=checksum).work.reused
    assert len(server.requests) == 1
    (tmp_path / "small.tar.gz").write_bytes(server.content)
    assert ingest("librispeech", uri=str(tmp_path / "small.tar.gz")).work.reused


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_continued_where_the_server_can(ranges: bool, server: Server, tmp_path: Path) -> None:
    server.content, server.ranges = bytes(range(256)) * 4000, ranges
    server.faults = [lambda handler: server.answer(handler, stop_after=5 << 16)] * 2 + [status(503), None]
    assert fetch(server, tmp_path) == server.content
    assert len(server.requests) == 4
    assert server.requests[0] == ""
    assert server.requests[-1].startswith("bytes=")
    if ranges:
        assert server.requests[-1] == f"bytes={10 << 16}-"


def test_content_of_unstated_length_is_taken_to_its_end(server: Server, tmp_path: Path) -> None:
    server.content, server.length = b"abc" * 100_000, False
    assert fetch(server, tmp_path) == server.content


def test_a_killed_download_continues_and_a_file_that_was_replaced_meanwhile_starts_again(
    server: Server, tmp_path: Path
) -> None:
    server.content = b"new content " * 50_000
    folder = tmp_path / "downloads" / hashlib.sha256(server.content).hexdigest()
    folder.mkdir(parents=True)
    (folder / "unfinished").write_bytes(server.content[:1000])
    assert fetch(server, tmp_path) == server.content
    assert server.requests == ["bytes=1000-"]
    server.content += b"!"
    folder = tmp_path / "downloads" / hashlib.sha256(server.content).hexdigest()
    for left in (b"old content", b"x" * len(server.content), b"x" * (len(server.content) + 5)):
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        (folder / "unfinished").write_bytes(left)
        assert fetch(server, tmp_path) == server.content


def test_a_server_that_keeps_failing_ends_with_75_and_what_was_read_is_kept(server: Server, tmp_path: Path) -> None:
    server.content = b"x" * 1_000_000
    server.faults = [lambda handler: server.answer(handler, stop_after=6 << 16), *[status(503)] * 9]
    with pytest.raises(TransientError, match=r"503 .*5 times in a row; 393,216 bytes are kept"):
        fetch(server, tmp_path)
    server.faults = []
    assert fetch(server, tmp_path) == server.content
    assert server.requests[-1] == "bytes=393216-"


def test_another_content_is_refused_and_deleted(server: Server, tmp_path: Path) -> None:
    server.content = b"<html>not the archive</html>"
    with pytest.raises(WorkError, match=r"its SHA-256 is [0-9a-f]{64}, corpus.sha256 says 0{64}; .* deleted"):
        fetch(server, tmp_path, "0" * 64)
    assert list((tmp_path / "downloads" / ("0" * 64)).iterdir()) == []


@pytest.mark.parametrize("length", [True, False])
def test_an_archive_that_is_too_large_is_refused(length: bool, server: Server, tmp_path: Path) -> None:
    server.content, server.length = b"x" * 3_000_000, length
    with pytest.raises(WorkError, match=r"corpus.max_unpacked_gigabytes"):
        fetch(server, tmp_path, max_bytes=1_500_000)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (status(404), "the server answers 404"),
        (status(401), r"answers 401 .*netrc"),
        (status(302, Location="ftp://elsewhere/x.tar.gz"), "cannot be requested"),
    ],
)
def test_an_address_that_leads_nowhere_is_a_fault_of_the_config(
    fault: Callable[[Handler], None], message: str, server: Server, tmp_path: Path
) -> None:
    server.faults = [fault]
    with pytest.raises(SettingsError, match=message):
        fetch(server, tmp_path, "0" * 64)


def test_no_message_has_the_query_of_a_signed_address(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"http://127.0.0.1:{closed_port()}/a.zip?signature=secret"
    with pytest.raises(TransientError, match=r"a\.zip\?…: ") as raised:
        download_archive(address, "0" * 64, tmp_path, max_bytes=1e9, sleep=lambda _: None)
    server.faults = [status(403)]
    with pytest.raises(SettingsError, match="403") as refused:
        download_archive(server.url + "?signature=secret", "0" * 64, tmp_path, max_bytes=1e9)
    assert "secret" not in f"{raised.value}{refused.value}{''.join(capfd.readouterr())}"


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_a_redirect_is_followed(server: Server, tmp_path: Path) -> None:
    server.content = b"content"
    server.faults = [status(302, Location=server.url + "?mirror=1")]
    assert fetch(server, tmp_path) == server.content


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({"uri": "https://example.org/a.tar.gz"}, "corpus.sha256 is empty"),
        ({"uri": "https://example.org/a.rar", "sha256": "0" * 64}, r"an archive is accepted, whose name ends in \.tar"),
        ({"uri": "https://example.org/", "sha256": "0" * 64}, "an archive is accepted"),
        ({"uri": "https://me:secret@example.org/a.zip", "sha256": "0" * 64}, "user name or a password.*netrc"),
        ({"uri": "https://me:secret@example.org/a.zip"}, "user name or a password.*netrc"),
        ({"uri": "https://example.org/a.zip?signature=secret"}, r"a\.zip\?….*corpus.sha256 is empty"),
        ({"uri": "/data/a.tar.gz", "sha256": "0" * 64}, "corpus.sha256 is of an archive at an http"),
        ({"uri": "gs://bucket/a.tar.gz", "sha256": "0" * 64}, "corpus.sha256 is of an archive at an http"),
    ],
)
def test_settings_that_do_not_fit_are_refused_at_once(corpus: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        run(tmp_path / "store", CorpusSettings.of(corpus))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("length", ["many", "-5", "1e9", "9" * 5_000])
def test_a_size_that_is_no_number_is_named(length: str, server: Server, tmp_path: Path) -> None:
    server.faults = [status(200, **{"Content-Length": length})] * 10
    with pytest.raises(
        WorkError, match=r"tar\.gz: the server gives the size '.*' \(Content-Length\), a number of bytes"
    ):
        fetch(server, tmp_path)
