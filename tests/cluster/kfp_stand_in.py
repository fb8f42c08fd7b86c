"""A STAND-IN for a Kubeflow Pipelines server: real HTTP, state, refusals and injected faults; no Kubernetes, no pods.

It answers what kfp.Client 2.17 asks of /apis/v2beta1, and what `voxline status` and `logs` ask of older APIs; what it
answers about a run is recorded from KFP's own code (kfp_runs.py). Not covered: IAP, a gateway's cookies, archived runs,
retries of a run, pipelines kept as Kubernetes objects, sorting by other keys.
"""

import contextlib
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.cluster.kfp_runs import advance, answer, log_of
from tests.cluster.kfp_state import Item, Refusal, State, get

LISTS = {"pipelines": "pipelines", "experiments": "experiments", "runs": "runs", "recurringruns": "recurring"}
KEYS = {"recurringruns": "recurringRuns"}


@dataclass
class Fault:
    """What goes wrong with the requests that match, `times` of them."""

    status: int = 0
    reset: str = ""
    """`before` the server acts, or `after`: then it has acted, but the client does not learn it."""
    slow: float = 0
    page: str = ""
    """HTML in place of an answer."""
    where: str = ""
    """Regular expression over `METHOD path`."""
    times: int = 1


@dataclass
class StandIn:
    """A running stand-in."""

    host: str = ""
    token: str = ""
    review: Callable[[str], str] | None = None
    """Of a bearer token: empty if it is accepted, else the reason."""
    state: State = field(default_factory=State)
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """`METHOD path` of each request, in order."""
    cookies: list[str] = field(default_factory=list)
    """Those that were sent along."""
    dies_after: int | None = None
    """Requests that are answered; each one after that is cut off."""

    def changes(self) -> list[str]:
        return [one for one in self.asked if not one.startswith("GET")]


@contextlib.contextmanager
def running(**given: Any) -> Iterator[StandIn]:
    """A stand-in on a free port of this machine."""
    stand_in, lock = StandIn(**given), threading.Lock()

    class Handler(_Handler):
        server_of = stand_in
        one_at_a_time = lock

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stand_in.host = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_of: StandIn
    one_at_a_time: threading.Lock
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_PATCH = do_PUT = do_GET  # noqa: N815

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        stand_in = self.server_of
        with self.one_at_a_time:
            stand_in.asked.append(f"{self.command} {url.path}")
            stand_in.cookies += self.headers.get_all("Cookie", [])
            fault = self._fault(f"{self.command} {url.path}")
            dead = stand_in.dies_after is not None and len(stand_in.asked) > stand_in.dies_after
            if dead or fault.reset == "before":
                return self._reset()
            if fault.status or fault.page:
                return self._answer(fault.status or 200, fault.page or {"error": "upstream connect error", "code": 14})
            try:
                status, answer = 200, self._route(url.path, parse_qs(url.query), body)
            except Refusal as refusal:
                status, answer = refusal.status, {"error": str(refusal), "code": 3, "message": str(refusal)}
        if fault.slow:
            time.sleep(fault.slow)
        return self._reset() if fault.reset == "after" else self._answer(status, answer)

    def _fault(self, request: str) -> Fault:
        for fault in self.server_of.faults:
            if fault.times > 0 and re.search(fault.where, request):
                fault.times -= 1
                return fault
        return Fault()

    def _reset(self) -> None:
        """Cuts the connection with a TCP reset, not a polite end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())  # now, and not when the last reader of the socket is gone

    def _answer(self, status: int, answer: Any) -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        kind = "text/html" if text.startswith("<") else "text/plain" if isinstance(answer, str) else "application/json"
        data = text.encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/dex/auth")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _route(self, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        state = self.server_of.state
        if self.server_of.token and self.headers.get("authorization") != f"Bearer {self.server_of.token}":
            raise Refusal(401, f"Request header error: the token {self.headers.get('authorization')} is not valid")
        review = self.server_of.review
        if review and path != "/apis/v2beta1/healthz":  # which a server answers to everyone
            header = self.headers.get("authorization", "")
            if not header:
                raise Refusal(401, "Request header error: there is no user identity header.")
            if not header.startswith("Bearer "):
                raise Refusal(400, "Header 'Authorization' is incorrectly formatted. Expected prefix 'Bearer '")
            token = header.removeprefix("Bearer ")
            if reason := review(token):
                raise Refusal(401, f"Authentication failure: Failed to authenticate token review: {reason}")
        if log := re.fullmatch(r"/apis/v1alpha1/runs/([^/]+)/nodes/([^/]+)/log", path):
            return log_of(state, get(state.runs, log[1], "Run"), unquote(log[2]))
        if old := re.fullmatch(r"/apis/v1beta1/runs/([^/]+)", path):
            return answer(state, get(state.runs, old[1], "Run"), "v1beta1")
        if not path.startswith("/apis/v2beta1/"):
            raise Refusal(404, "Not Found")
        parts, _, action = path.removeprefix("/apis/v2beta1/").partition(":")
        kind, *rest = parts.split("/")
        if kind == "healthz":
            return {"commit_sha": "0" * 40, "tag_name": state.version, "multi_user": state.multi_user}
        if kind == "pipelines" and rest in (["upload"], ["upload_version"]):
            if rest == ["upload"]:
                raise Refusal(400, "the stand-in takes versions alone")
            return state.upload(query["pipelineid"][0], query["name"][0], _file_of(self.headers, body))
        if kind == "pipelines" and len(rest) > 1 and rest[1] == "versions":
            get(state.pipelines, rest[0], "Pipeline")
            mine = [one for one in state.versions.values() if one["pipeline_id"] == rest[0]]
            return _page("pipeline_versions", mine, query)
        if kind not in LISTS:
            raise Refusal(404, "Not Found")
        items: dict[str, Item] = getattr(state, LISTS[kind])
        if not rest and self.command == "GET":
            if "experiment_id" not in query:
                state.check_namespace(query.get("namespace", [""])[0], kind, reads=True)
            mine = [
                one
                for one in items.values()
                if "experiment_id" not in query or one.get("experiment_id") == query["experiment_id"][0]
            ]
            return _page(KEYS.get(kind, kind), mine, query)
        if not rest and self.command == "POST":
            return self._create(kind, json.loads(body))
        return self._one(kind, items, rest[0], action)

    def _create(self, kind: str, body: Item) -> Item:
        state = self.server_of.state
        if kind == "runs":
            return state.create_run(body)
        if kind == "recurringruns":
            return state.create_recurring(body)
        state.check_namespace(body.get("namespace"), kind, reads=False)
        if kind == "pipelines":
            return state.add(state.pipelines, "pipeline_id", body)
        return state.add(state.experiments, "experiment_id", body, ("display_name", "namespace"))

    def _one(self, kind: str, items: dict[str, Item], key: str, action: str) -> Any:
        state = self.server_of.state
        if self.command in ("PUT", "PATCH"):
            raise Refusal(501, "Method Not Allowed")
        item = get(items, key, kind)
        if self.command == "GET":
            if kind != "runs":
                return item
            advance(state, item)
            return answer(state, item, "v2beta1")
        if kind == "recurringruns" and self.command == "DELETE":
            state.delete_recurring(key)
        elif kind == "recurringruns" and action in ("enable", "disable"):
            state.switch(key, f"{action}d".upper())
        elif kind == "runs" and action == "terminate":
            if item["state"] in ("SUCCEEDED", "FAILED", "CANCELED"):
                raise Refusal(400, "Failed to terminate the run: it is over")
            item["state"] = "CANCELING"
        else:
            raise Refusal(404, "Not Found")
        return {}


def _page(key: str, items: list[Item], query: dict[str, list[str]]) -> Item:
    """A page of a listing, filtered by equality, oldest first."""
    for predicate in json.loads(query.get("filter", ["{}"])[0] or "{}").get("predicates", []):
        if predicate["operation"] not in (1, "EQUALS"):
            raise Refusal(400, "the stand-in filters by equality alone")
        items = [one for one in items if one.get(predicate["key"]) == predicate["stringValue"]]
    items = sorted(items, key=lambda one: str(one["created_at"]))
    start, size = int(query.get("page_token", ["0"])[0] or 0), min(int(query.get("page_size", ["20"])[0]), 200)
    following = str(start + size) if start + size < len(items) else ""
    shown = [
        {name: value for name, value in one.items() if name not in ("polls", "scenario")}
        for one in items[start : start + size]
    ]
    return {key: shown, "next_page_token": following, "total_size": len(items)}


def _file_of(headers: Any, body: bytes) -> bytes:
    """The uploaded file of a multipart form."""
    whole = message_from_bytes(b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body)
    for part in whole.walk():
        if part.get_filename():
            return bytes(part.get_payload(decode=True))  # type: ignore[arg-type]
    raise Refusal(400, "Failed to form file. The form has no file")
