"""Outcomes of runs, as their steps leave them; and a server that keeps what it receives."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation_info, metric_info
from voxline.metrics.summaries import speed_metric
from voxline.notify.event import RunEvent, RunIdentity, StepRecord
from voxline.store.files import write_json

ID = "3f0c5a3e-7c0e-4f7b-9a52-0d6d40b57b17"
RUN = RunIdentity("asr", "nightly", "asr", ("gs://speech/LibriSpeech",), ID, 1_790_000_000)
MODEL = "gs://speech/registry/asr/7"
PUSHED = {"pushed": True, "version": 7, "model": MODEL, "digest": "ab12", "heading": "Pushed as version 7"}
REFUSED = {"pushed": False, "version": None, "model": None, "digest": "cd34", "heading": "Not pushed: WER is 31%"}
WAITS = {**PUSHED, "alias": "candidate"}
IN_SERVICE = {**PUSHED, "pushed": False, "heading": "Not pushed: already in service as version 7"}

MakeEvent = Callable[..., RunEvent]
MakeSteps = Callable[[dict[str, Any] | None], list[StepRecord]]
Request = dict[str, Any]


@dataclass
class Server:
    """What a server received, and what it answers: one answer for each request, the last one again and again."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answers: list[tuple[int, Any]] = field(default_factory=lambda: [(200, {})])
    respond: Callable[[Request], tuple[int, Any]] | None = None

    def answer(self, request: Request) -> tuple[int, Any]:
        self.requests.append(request)
        if self.respond:
            return self.respond(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, document = kept.answer(
                {"method": self.command, "path": self.path, "headers": headers, "body": body}
            )
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if location := document.get("location", "") if isinstance(document, dict) else "":
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815 - names that http.server calls

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Server(f"http://127.0.0.1:{listening.server_port}")
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield kept
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def make_steps(tmp_path: Path) -> MakeSteps:
    """The steps of a run up to push, whose verdict is given; None: evaluate is the last."""
    lines = [{"id": str(n), "reason": reason, "detail": ""} for n, reason in enumerate(["silent"] * 3 + ["too_long"])]
    (tmp_path / "rejects.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    metrics = {"wer": metric_info(0.031, 0.02, 0.05), "rtf": speed_metric(0.1, None, 9)}
    write_json(tmp_path / "metrics.json", evaluation_info(metrics=metrics).to_dict())

    def made(verdict: dict[str, Any] | None) -> list[StepRecord]:
        ingest = StepRecord("ingest", "succeeded", 2.5, counts={"utterances": 96, "rejects": 4})
        ingest.outputs = {"rejects": str(tmp_path / "rejects.jsonl")}
        train = StepRecord("train", "succeeded", 60.0, reused=True)
        evaluate = StepRecord("evaluate", "succeeded", 5.0, counts={"utterances": 20})
        evaluate.outputs = {"metrics": str(tmp_path / "metrics.json")}
        if verdict is None:
            return [ingest, train, evaluate]
        file = tmp_path / "verdict.json"
        file.write_text(json.dumps(verdict))
        return [ingest, train, evaluate, StepRecord("push", "succeeded", 1.0, outputs={"verdict": str(file)})]

    return made


@pytest.fixture
def make_event(make_steps: MakeSteps) -> MakeEvent:
    """Events: `promoted` by default; others by the verdict of push; None: evaluate failed."""

    def made(verdict: dict[str, Any] | None = PUSHED, run: RunIdentity = RUN) -> RunEvent:
        records = make_steps(verdict)
        if verdict is not None:
            return RunEvent.of(run, records, "succeeded", "", {"page": "https://kfp.example.com/#/runs/1", "log": ""})
        records[-1].status = "failed"
        return RunEvent.of(run, records, "failed", "no space left in gs://speech", {})

    return made
