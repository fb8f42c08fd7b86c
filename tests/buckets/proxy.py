"""Stands between Google's library and an emulator of its storage: does what the emulator leaves out, and harm.

gcp-storage-emulator answers and passes over conditions: `ifGenerationMatch` of a write or a deletion, `generation` of a
read. Google Cloud Storage holds to them; so does this, whatever emulator stands behind it. It is a stand-in for that
one part, and says so here.
"""

import http.client
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.buckets.faults import Fault, Faults, reset

_ONWARD = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class Proxy(ThreadingHTTPServer):
    """Listens on a free port of this machine.

    Attributes:
      faults: what is to befall requests.
      requests: method, path with its query, and status of each, in order.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, backend: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.backend = backend
        self.faults = Faults()
        self.requests: list[tuple[str, str, int]] = []
        self.writing = threading.RLock()
        self.conditions: dict[str, str] = {}
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
    server: Proxy

    def _serve(self) -> None:
        fault = self.server.faults.meet(self.command, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if fault and fault.kind in ("reset", "cut upload"):
            self.rfile.read(length // 2 if fault.kind == "cut upload" else 0)
            self._break()
            return
        body = self._chunked() if "chunked" in self.headers.get("Transfer-Encoding", "") else self.rfile.read(length)
        if fault and fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault and fault.kind == "status":
            self._answer(*_error(fault.code, "as the test wants it"))
            return
        answer = self._held_to_conditions(body)
        if fault and fault.kind == "lost answer":
            self._break()
            return
        self._answer(*answer, fault)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test that fails shows `requests`."""

    def _held_to_conditions(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The backend's answer; 412 or 404 where the object is of another generation than was asked for."""
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if self.command in ("GET", "HEAD"):
            wanted = query.get("generation")
            if wanted and wanted != self._generation(self._object_path()):
                return _error(404, "No such object")
            return self._forwarded(body)
        with self.server.writing:
            condition, target = query.get("ifGenerationMatch"), self._written_path(query, body)
            if upload := query.get("upload_id"):  # the condition came when the upload was begun
                target, _, condition = self.server.conditions.get(upload, "").rpartition(" ")
            if condition and self._generation(target) != condition:
                return _error(412, "At least one of the pre-conditions you specified did not hold.")
            status, headers, answer = self._forwarded(body)
            location = next((value for name, value in headers.items() if name.lower() == "location"), "")
            upload = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(location).query)).get("upload_id", "")
            if upload and condition:
                self.server.conditions[upload] = f"{target} {condition}"
            return status, headers, answer

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
        status, _, body = _asked(self.server.backend, "GET", path, {}, b"")
        return str(json.loads(body)["generation"]) if status == 200 else "0"

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _ONWARD}
        return _asked(self.server.backend, self.command, self.path, headers, body)

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
        for name, value in headers.items():
            if name.lower() not in _ONWARD:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
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

    def _break(self) -> None:
        self.server.requests.append((self.command, self.path, 0))
        self.close_connection = True
        reset(self.connection)


def _asked(
    backend: tuple[str, int], method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*backend, timeout=60)
    try:
        connection.request(method, path, body=body or None, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def _error(code: int, message: str) -> tuple[int, dict[str, str], bytes]:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return code, {"Content-Type": "application/json"}, body
