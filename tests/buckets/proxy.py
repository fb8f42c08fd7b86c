"""Stands between a storage's library and a server: does harm, and what an emulator of Google's storage leaves out.

gcp-storage-emulator answers and passes over conditions: `ifGenerationMatch` of a write or a deletion, `generation` of a
read. It refuses bytes of an upload that are sent again, because the answer to them was lost, and it does not say of
which generation the bytes of a download are. Google Cloud Storage holds to the first, passes over the second and says
the third; so does this, whatever emulator stands behind it. It is a stand-in for those parts, and no more.
"""

import contextlib
import dataclasses
import http.client
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.buckets.clock import StorageClock
from tests.buckets.faults import Fault, Faults, reset
from tests.buckets.older import Older

_BACKLOG = 5
"""Connections that a server lets wait; one more would be heard of a second later, or two, or four."""
_NAME = re.compile(rb'"name": *("[^"]+")')
_RANGE = re.compile(r"bytes (?P<start>[0-9]+)-(?P<end>[0-9]+)/(?P<total>[0-9]+|\*)")
_ONWARD = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date", "expect"}


Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""
Backend = Callable[[str, str, dict[str, str], bytes], Answer]
"""The answer to a request: its method, path, headers and body."""


def over_http(port: int) -> Backend:
    """A server on this machine."""
    asking = threading.Semaphore(_BACKLOG - 1)

    def ask(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with asking:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it has read all
                    connection.request(method, path, body=body or None, headers=headers)
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

    return ask


@dataclasses.dataclass
class Upload:
    """A resumable upload: what it writes, on which condition, how many bytes have come, and the answer to the last."""

    target: str
    condition: str | None
    received: int = 0
    finished: Answer | None = None


class Proxy(ThreadingHTTPServer):
    """Listens on a free port of this machine.

    Attributes:
      ask: what stands behind it.
      holds_uploads: it looks after the conditions of uploads; False: the backend does so itself.
      older: what buckets with object versioning keep.
      clock: which the times in its answers are by.
      faults: what is to befall requests.
      wipe: empties the emulator.
      requests: method, path with its query, and status of each, in order.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, backend: Backend, *, holds_uploads: bool = True, s3: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _S3Request if s3 else _Request)
        self.holds_uploads = holds_uploads
        self.ask = backend
        self.faults = Faults()
        self.older = Older()
        self.clock = StorageClock()
        self.requests: list[tuple[str, str, int]] = []
        self.wipe: Callable[[], None] = lambda: None
        self.writing = threading.RLock()
        self.uploads: dict[str, Upload] = {}
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, method: str, path: str = "") -> int:
        """How many requests of a kind came through."""
        return sum(one[0] == method and path in one[1] for one in self.requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what this is for."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body of an answer waits 40 ms for the client to acknowledge the headers
    server: Proxy

    def _serve(self) -> None:
        fault = self.server.faults.meet(self.command, self.path + self._peeked_name())
        length = int(self.headers.get("Content-Length") or 0)
        if fault and fault.kind in ("reset", "cut upload"):
            self.rfile.read(length // 2 if fault.kind == "cut upload" else 0)
            self._break()
            return
        body = self._chunked() if "chunked" in self.headers.get("Transfer-Encoding", "") else self.rfile.read(length)
        if fault and fault.kind == "damage upload":
            body = body.replace(b"RIFF", b"RIFE")
        if fault and fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault and fault.kind == "status":
            headers = {"Content-Type": "application/xml"}
            self._answer(*((fault.code, headers, fault.body) if fault.body else self._refusal(fault)))
            return
        if fault and fault.kind == "meanwhile" and self.command not in ("GET", "HEAD"):
            fault.action()
        answer = self._held_to_conditions(body)
        if fault and fault.kind == "meanwhile" and self.command in ("GET", "HEAD"):
            fault.action()
        if fault and fault.kind == "lost answer":
            self._break()
            return
        if fault and fault.kind == "edit":
            status, headers, content = answer
            answer = status, headers, fault.edit(content)
        self._answer(*answer, fault)

    def _refusal(self, fault: Fault) -> Answer:
        return _error(fault.code, "as the test wants it")

    def _peeked_name(self) -> str:
        """The name of an object that Google's client sends in front of its bytes, and not in the path."""
        named = _NAME.search(self.rfile.peek(1_024)) if "uploadType=multipart" in self.path else None  # type: ignore[attr-defined]
        return f" {json.loads(named[1])}" if named else ""

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test that fails shows `requests`."""

    def _held_to_conditions(self, body: bytes) -> Answer:
        """The backend's answer; 412 or 404 where the object is of another generation than was asked for."""
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if self.command in ("GET", "HEAD"):
            wanted = query.get("generation")
            if wanted and wanted != self._generation(self._object_path()):
                return _error(404, "No such object")
            if query.get("alt") == "media":
                return self._media(body)
            status, headers, answer = self._forwarded(body)
            path = urllib.parse.urlsplit(self.path).path
            return status, headers, self.server.older.listed(path, query, answer) if status == 200 else answer
        with self.server.writing:
            if self.command == "DELETE" and query.get("generation"):
                return self._deleted_for_good(query["generation"], body)
            if upload := self.server.uploads.get(query.get("upload_id", "")):
                return self._continued(upload, body)
            target, condition = self._written_path(query, body), query.get("ifGenerationMatch")
            if not self._holds(target, condition):
                return _NOT_HELD
            status, headers, answer = self._replacing(target, body)
            location = next((value for name, value in headers.items() if name.lower() == "location"), "")
            if begun := dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(location).query)).get("upload_id"):
                self.server.uploads[begun] = Upload(target, condition)
            return status, headers, answer

    def _media(self, body: bytes) -> Answer:
        """Bytes of an object, with the header that says of which generation they are."""
        with self.server.writing:
            status, headers, answer = self._forwarded(body)
            if status in (200, 206) and "x-goog-generation" not in {name.lower() for name in headers}:
                headers["X-Goog-Generation"] = self._generation(self._object_path())
        return status, headers, answer

    def _continued(self, upload: "Upload", body: bytes) -> Answer:
        """The answer to a chunk, of which the backend gets what it does not have."""
        if upload.finished:
            return upload.finished
        told = _RANGE.fullmatch(self.headers.get("Content-Range", ""))
        if told and int(told["start"]) < upload.received:
            body = body[upload.received - int(told["start"]) :]
            if not body:
                return 308, {"Range": f"bytes=0-{upload.received - 1}"}, b""
            self.headers.replace_header("Content-Range", f"bytes {upload.received}-{told['end']}/{told['total']}")
        last = not told or told["total"] == str(int(told["end"]) + 1)
        if last and not self._holds(upload.target, upload.condition):
            return _NOT_HELD
        answer = self._replacing(upload.target, body)
        if answer[0] == 200:
            upload.finished = answer
        elif answer[0] == 308 and told:
            upload.received = int(told["end"]) + 1
        return answer

    def _replacing(self, target: str, body: bytes) -> Answer:
        """The backend's answer to what replaces or deletes an object, which is kept where its bucket does so."""
        before = self.server.ask("GET", target, {}, b"") if self.server.older.keeps(target) else None
        answer = self._forwarded(body)
        if before and before[0] == 200 and answer[0] < 300 and self._generation(target) != _generation_of(before):
            self.server.older.keep(target, json.loads(before[2]))
        return answer

    def _deleted_for_good(self, generation: str, body: bytes) -> Answer:
        path = self._object_path()
        if self.server.older.denied:
            return _error(403, "no storage.objects.delete")
        if self.server.older.delete(path, generation):
            return 204, {}, b""
        return self._forwarded(body) if generation == self._generation(path) else _error(404, "No such object")

    def _holds(self, target: str, condition: str | None) -> bool:
        if self.path.startswith("/upload/") and not self.server.holds_uploads:
            return True
        return not condition or self._generation(target) == condition

    def _object_path(self) -> str:
        path = urllib.parse.urlsplit(self.path).path
        return path.removeprefix("/download")

    def _written_path(self, query: dict[str, str], body: bytes) -> str:
        path = urllib.parse.urlsplit(self.path).path
        for verb in ("/rewriteTo/b/", "/copyTo/b/"):
            if verb in path:
                return "/storage/v1/b/" + path.split(verb)[1]
        if not path.startswith("/upload/") or "upload_id" in query:
            return path
        told = body.split(b"\r\n\r\n", 2)[1].split(b"\r\n--")[0] if query.get("uploadType") == "multipart" else body
        name = query.get("name") or json.loads(told or b"{}").get("name", "")
        return path.removeprefix("/upload") + "/" + urllib.parse.quote(name, safe="")

    def _generation(self, path: str) -> str:
        """Of the object as it is; "0" where there is none."""
        status, _, body = self.server.ask("GET", path, {}, b"")
        return str(json.loads(body)["generation"]) if status == 200 else "0"

    def _forwarded(self, body: bytes) -> Answer:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _ONWARD}
        return self.server.ask(self.command, self.path, headers, body)

    def _chunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None = None) -> None:
        self.server.requests.append((self.command, self.path, status))
        self.send_response(status)
        clock = self.server.clock
        body = body if "alt=media" in self.path else clock.shift_body(body)
        for name, value in headers.items():
            if name.lower() not in _ONWARD:
                self.send_header(name, clock.shift_header(value) if name.lower() == "last-modified" else value)
        length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if fault and fault.kind == "drip":
            for byte in body:
                self.wfile.write(bytes([byte]))
                time.sleep(fault.seconds)
            return
        if fault and fault.kind == "damage" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if fault and fault.kind == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self._break()
            return
        if self.command != "HEAD":
            self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.server.clock.shift_header(super().date_time_string(timestamp))

    def _break(self) -> None:
        self.server.requests.append((self.command, self.path, 0))
        self.close_connection = True
        reset(self.connection)


class _S3Request(_Request):
    """S3's servers hold to conditions by themselves: their requests and answers are passed on as they are."""

    def _held_to_conditions(self, body: bytes) -> Answer:
        return self._forwarded(body)

    def _refusal(self, fault: Fault) -> Answer:
        usual = {401: "InvalidAccessKeyId", 403: "AccessDenied", 404: "NoSuchKey", 429: "SlowDown"}
        name = fault.reason or usual.get(fault.code, "InternalError")
        body = f"<?xml version='1.0'?><Error><Code>{name}</Code><Message>as the test wants it</Message></Error>"
        return fault.code, {"Content-Type": "application/xml"}, b"" if self.command == "HEAD" else body.encode()


def _generation_of(answer: Answer) -> str:
    return str(json.loads(answer[2])["generation"])


def _error(code: int, message: str) -> Answer:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return code, {"Content-Type": "application/json"}, body


_NOT_HELD = _error(412, "At least one of the pre-conditions you specified did not hold.")
