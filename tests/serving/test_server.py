"""The server on a real port, with real registries: OpenAI's own client, promotions under load, limits, damage."""

import concurrent.futures
import contextlib
import io
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import uvicorn

from tests.conftest import ROOT
from tests.tone_asr_model import BLOCK, RATE, export_onnx_tones, render_words
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import TransientError, WorkError
from voxline.feedback.canary_state import CanarySettings
from voxline.inference.saved_model import model_digest
from voxline.pipelines.cli.main import main
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.registry.registry import Registry
from voxline.serving.access import Access
from voxline.serving.app import RecognizerServer
from voxline.serving.canary import Canary
from voxline.serving.capture import Capture
from voxline.serving.connections import HttpConnection
from voxline.serving.followed_model import FollowedModel, LoadedVersion
from voxline.serving.limits import ServingLimits
from voxline.serving.server import uvicorn_options


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that hears well, and one that takes "two" for "six"."""
    folder = tmp_path_factory.mktemp("models")
    return {name: export_onnx_tones(folder / name, heard) for name, heard in (("good", {}), ("deaf", {"two": "six"}))}


def push(root: Path, model: Path, alias: str = PRODUCTION, name: str = "asr") -> Registry:
    registry = Registry(root, name)
    with registry.locked(), registry.publishing(model, model_digest(model), "push", alias=alias):
        pass
    return registry


@pytest.fixture
def registry(tmp_path: Path, models: dict[str, Path]) -> Registry:
    """The deaf model is in production, the good one is the candidate."""
    push(tmp_path / "registry", models["deaf"])
    return push(tmp_path / "registry", models["good"], CANDIDATE)


class Served:
    """A running server."""

    def __init__(
        self,
        root: Path,
        limits: ServingLimits | None = None,
        names: tuple[str, ...] = ("asr",),
        http: type[HttpConnection] = HttpConnection,
        capture: Capture | None = None,
        canary: CanarySettings | None = None,
        server: type[RecognizerServer] = RecognizerServer,
        access: Access | None = None,
    ) -> None:
        self.models = [FollowedModel(root, name) for name in names]
        self.canaries = [Canary(root, self.models[0], canary, limits)] if canary else []
        for one in self.canaries:
            one.follow(0.05)
        self.server = server(self.models, limits, capture, self.canaries, access)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        options = uvicorn_options(self.server.limits) | {"http": http}
        config = uvicorn.Config(self.server.app, **options)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([self._socket],), daemon=True)
        self._thread.start()
        wait_until(lambda: self._uvicorn.started, "the server")

    def send(self, data: bytes, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        form = {"model": "asr", **fields}
        files = {"file": ("a.wav", data)}
        return httpx.post(
            f"{self.url}/v1/audio/transcriptions", data=form, files=files, headers=headers, timeout=PATIENCE_SECONDS
        )

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture
def served(registry: Registry, tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path / "registry", names=("asr", "asr@candidate"))
    yield running
    running.stop()


def wav(words: str = "one two", seconds: float = 0.0) -> bytes:
    file = io.BytesIO()
    samples = np.zeros(round(seconds * RATE), np.float32) if seconds else render_words(words.split())
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def fields_of(kind: Any) -> frozenset[str]:
    """The fields of a TypedDict, such as the parameters of OpenAI's client."""
    fields: frozenset[str] = kind.__required_keys__ | kind.__optional_keys__
    return fields


def test_a_recording_with_a_pause_has_times_of_the_whole(served: Served) -> None:
    pause = np.random.default_rng(0).normal(0, 1e-3, RATE).astype(np.float32)
    # Half a block too quiet for a word: with as much of the pause, which a part keeps, words begin where blocks do.
    before = np.concatenate([pause[BLOCK // 2 :], 0.2 * render_words(["zero"])[: BLOCK // 2]])
    samples = np.concatenate([before, render_words(["one", "two"]), pause, before, render_words(["two"]), pause])
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    answer = served.send(
        file.getvalue(), response_format="verbose_json", **{"timestamp_granularities[]": "word"}
    ).json()
    assert [(word["word"], round(word["start"], 1)) for word in answer["words"]] == [
        ("one", 1.0), ("six", 1.1), ("six", 3.2),
    ]  # fmt: skip
    assert answer["duration"] == 4.3
    subtitles = served.send(file.getvalue(), response_format="srt").text
    starts = [float(seconds.replace(",", ".")) for seconds in re.findall(r"00:00:(\S+) --> ", subtitles)]
    assert starts == pytest.approx([1.0, 3.2], abs=0.05)


def test_openais_own_client_works_unchanged(served: Served, registry: Registry) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    assert client.audio.transcriptions.create(model="asr", file=("a.wav", wav())).text == "one six"
    candidate = client.audio.transcriptions.create(
        model="asr@candidate", file=("a.wav", wav()), response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert candidate.text == "one two"
    assert [(one.word, one.start) for one in candidate.words or []] == [("one", 0.0), ("two", 0.1)]
    assert [model.id for model in client.models.list()] == ["asr", "asr@candidate"]
    assert client.models.retrieve("asr").model_dump()["digest"] == registry.event(1).digest
    with pytest.raises(openai.NotFoundError, match="no model 'whisper-1' here; there are: asr, asr@candidate"):
        client.audio.transcriptions.create(model="whisper-1", file=("a.wav", wav()))
    with pytest.raises(openai.BadRequestError, match=r"a.wav: cannot be transcribed"):
        client.audio.transcriptions.create(model="asr", file=("a.wav", b"no audio" * 100))


def test_each_field_of_openais_route_is_honoured_or_refused_by_name(served: Served) -> None:
    import openai
    from openai.types.audio.transcription_create_params import TranscriptionCreateParamsStreaming

    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)

    def ask(**fields: Any) -> Any:
        return client.audio.transcriptions.create(model="asr", file=("a.wav", wav()), **fields)

    with_all = ask(response_format="verbose_json")
    assert [word.word for word in with_all.words] == ["one", "six"]
    assert [segment.text for segment in with_all.segments] == ["one six"]
    assert with_all.usage.seconds == with_all.duration
    words = ask(response_format="verbose_json", timestamp_granularities=["word"])
    assert (len(words.words), words.segments) == (2, None)
    segments = ask(response_format="verbose_json", timestamp_granularities=["segment"])
    assert (segments.words, len(segments.segments)) == (None, 1)
    # Another value of these is refused below.
    neutral = {"language": "en", "temperature": 0.0, "prompt": "", "chunking_strategy": "auto"}
    assert ask(**neutral).usage.seconds > 0

    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"response_format": "verbose_json", "timestamp_granularities": ["line"]}, "timestamp_granularities"),
        ({"temperature": 0.4}, "temperature"),
        ({"prompt": "names"}, "prompt"),
        ({"chunking_strategy": {"type": "server_vad"}}, "chunking_strategy[type]"),
        ({"include": ["logprobs"]}, "include"),
        ({"known_speaker_names": ["a"]}, "known_speaker_names"),
        ({"known_speaker_references": ["data:audio/wav;base64,"]}, "known_speaker_references"),
        ({"keywords": ["asr"]}, "keywords"),
        ({"languages": ["en", "de"]}, "languages"),
        ({"language": "the English one"}, "language"),
        ({"extra_body": {"reponse_format": "text"}}, "reponse_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "stream": True}, "response_format"),
    )
    for fields, name in refusals:
        with pytest.raises(openai.BadRequestError) as refused:
            ask(**fields)
        assert refused.value.param == name

    # None of the client's fields is missing above.
    refused_fields = {name for fields, _ in refusals for name in fields}
    assert fields_of(TranscriptionCreateParamsStreaming) <= {"file", "model"} | {*neutral} | refused_fields


def test_a_model_that_is_asked_for_a_language_hears_no_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    current = served.models[0].current
    assert current
    monkeypatch.setitem(current.engine.info.settings, "model", {"prompt": {"language": "en", "task": "transcribe"}})
    for language in ("en", "en-GB"):
        assert served.send(wav(), language=language, response_format="verbose_json").json()["language"] == "en"
    refused = served.send(wav(), language="de")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "language"
    assert "hears en" in refused.json()["error"]["message"]


def test_what_the_page_says_is_refused_is_refused_by_name(served: Served) -> None:
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    (said,) = [text for text in page.split("\n\n") if text.startswith("Of a transcription, ")]
    names = re.findall(r"`(\w+)`", said.partition(". ")[0])
    assert len(names) == 5
    for name in names:
        refused = served.send(wav(), **{name: "0.4"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)


def test_a_transcript_comes_as_events(served: Served) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    long = wav(" ".join(["one two"] * 30))
    whole = client.audio.transcriptions.create(model="asr", file=("a.wav", long)).text
    with client.audio.transcriptions.create(model="asr", file=("a.wav", long), stream=True) as stream:
        events: list[Any] = list(stream)
    *deltas, done = events
    assert [event.type for event in deltas] == ["transcript.text.delta"] * len(deltas)
    assert len(deltas) > 1
    assert "".join(event.delta for event in deltas) == done.text == whole
    assert done.type == "transcript.text.done"
    response = served.send(wav(), stream="true")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-voxline-version"] == "1"


def test_transcripts_are_written_as_a_person_writes_them(served: Served) -> None:
    """Inverse text normalization and full stops; a written word has the time of the words that it stands for."""
    heard = {"model": "asr@candidate", "response_format": "verbose_json"}
    answer = served.send(wav("six one one"), **heard, itn="en", punctuate="true").json()
    spoken = served.send(wav("six one one"), **heard).json()
    assert (spoken["text"], answer["text"]) == ("six one one", "611.")
    (written,) = answer["words"]
    assert (written["start"], written["end"]) == (spoken["words"][0]["start"], spoken["words"][-1]["end"])
    refused = served.send(wav(), itn="xx")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "itn")
    assert served.send(wav(), punctuate="maybe").json()["error"]["param"] == "punctuate"


def test_every_format_is_written(served: Served) -> None:
    assert served.send(wav(), response_format="text").text == "one six\n"
    assert served.send(wav(), response_format="srt").text == "1\n00:00:00,000 --> 00:00:00,138\none six\n\n"
    assert served.send(wav(), response_format="vtt").text.startswith("WEBVTT\n\n00:00:00.000 --> ")
    refused = served.send(wav(), response_format="xml")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")


def test_promotion_and_rollback_under_load_lose_no_request(served: Served, registry: Registry) -> None:
    stop = threading.Event()
    heard: list[tuple[int, str, str]] = []
    recording = wav()

    def call() -> None:
        while not stop.is_set():
            answer = served.send(recording)
            heard.append((answer.status_code, answer.headers["x-voxline-version"], answer.json()["text"]))

    (model, _) = served.models
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(call) for _ in range(3)]

        def answered_by(version: int) -> bool:
            return any(caller.done() for caller in callers) or any(one[1] == str(version) for one in heard[-3:])

        try:
            wait_until(lambda: answered_by(1), "an answer")
            registry.promote(CANDIDATE)
            assert model.refresh()
            wait_until(lambda: answered_by(2), "the candidate")
            registry.rollback()
            assert model.refresh()
            wait_until(lambda: answered_by(3), "the old model")
        finally:
            stop.set()
        for caller in callers:
            caller.result()
    assert set(heard) == {(200, "1", "one six"), (200, "2", "one two"), (200, "3", "one six")}
    assert model.swaps == 2


def test_bytes_that_were_not_judged_are_not_served(served: Served, registry: Registry, tmp_path: Path) -> None:
    (model, _) = served.models
    registry.promote(CANDIDATE)
    file = tmp_path / "registry" / "asr" / "2" / "model.onnx"
    file.write_bytes(file.read_bytes() + b"\0")
    assert not model.refresh()
    assert served.send(wav()).headers["x-voxline-version"] == "1"
    health = httpx.get(f"{served.url}/healthz").json()
    assert health["status"] == "degraded"
    assert "not the ones that were published" in health["models"]["asr"]["fault"]
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_load_failures{model="asr"} 1.0' in metrics
    assert 'voxline_serve_model_version{model="asr"} 1.0' in metrics
    with pytest.raises(WorkError, match="not the ones that were published"):
        FollowedModel(tmp_path / "registry", "asr@2")
    registry.rollback(to=1)
    assert model.refresh()
    assert httpx.get(f"{served.url}/healthz").json()["status"] == "ok"


class Flaky(FollowedModel):
    """Fails to load once, from when the fault is set."""

    next_fault: Exception | None = None

    def _load(self, folder: Path, version: int, digest: str) -> LoadedVersion:
        fault, self.next_fault = self.next_fault, None
        if fault:
            raise fault
        return super()._load(folder, version, digest)


def test_a_version_that_could_not_be_read_is_tried_again(registry: Registry, tmp_path: Path) -> None:
    model = Flaky(tmp_path / "registry", "asr")
    registry.promote(CANDIDATE)
    model.next_fault = TransientError("the bucket answered 503")
    assert not model.refresh()
    assert (model.current.version, model.fault) == (1, "the bucket answered 503")
    assert model.refresh()
    assert (model.current.version, model.fault, model.failures) == (2, "", 0)


def test_an_alias_that_no_version_has_is_picked_up_when_one_has_it(
    registry: Registry, tmp_path: Path, models: dict[str, Path]
) -> None:
    registry.promote(CANDIDATE)
    running = Served(tmp_path / "registry", names=("asr", "asr@candidate"))
    try:
        assert running.send(wav()).json()["text"] == "one two"
        refused = running.send(wav(), model="asr@candidate")
        assert refused.status_code == 404
        assert "no version is candidate now" in refused.json()["error"]["message"]
        health = httpx.get(f"{running.url}/healthz").json()
        assert (health["status"], health["models"]["asr@candidate"]["absent"]) == ("ok", "no version is candidate now")
        assert [one["id"] for one in httpx.get(f"{running.url}/v1/models").json()["data"]] == ["asr"]
        push(tmp_path / "registry", models["deaf"], CANDIDATE)
        assert running.models[1].refresh()
        assert running.send(wav(), model="asr@candidate").json()["text"] == "one six"
        assert (running.models[1].swaps, running.models[1].absent) == (0, "")
        registry.promote(CANDIDATE)
        assert not running.models[1].refresh()
        assert running.send(wav(), model="asr@candidate").status_code == 200, "what serves stays"
    finally:
        running.stop()


def test_a_version_that_fails_in_an_unknown_way_is_left_alone_and_the_next_is_followed(
    registry: Registry, tmp_path: Path
) -> None:
    model = Flaky(tmp_path / "registry", "asr")
    registry.promote(CANDIDATE)
    model.next_fault = KeyError("alphabet")
    assert not model.refresh()
    assert not model.refresh(), "not tried again"
    assert (model.current.version, model.fault, model.failures) == (1, "'alphabet'", 1)
    registry.rollback()
    assert model.refresh()
    assert model.current.version == 3


def form(*parts: tuple[str, bytes]) -> bytes:
    """A form's body as it is, without the escapes of a client; a part's name may go on with its file's."""
    heads = [b"--x\r\nContent-Disposition: form-data; name=%s\r\n\r\n" % name.encode() for name, _ in parts]
    return b"".join(head + data + b"\r\n" for head, (_, data) in zip(heads, parts, strict=True)) + b"--x--\r\n"


def test_whatever_a_client_sends_the_answer_has_openais_form(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def post(*parts: tuple[str, bytes]) -> httpx.Response:
        kind = {"content-type": "Multipart/Form-Data; boundary=x"}
        return httpx.post(
            f"{served.url}/v1/audio/transcriptions", content=form(*parts), headers=kind, timeout=PATIENCE_SECONDS
        )

    assert post(("model", b"asr"), ('file; filename="../\0/a.\0wav"', wav())).json()["text"] == "one six"
    refused = post(("model", b"asr"), ("prompt", bytes(100_000)), ('file; filename="a"', wav()))
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "Part exceeded maximum size of 64KB.")
    absent = httpx.post(f"{served.url}/v1/embeddings")
    assert (absent.status_code, absent.json()["error"]["message"]) == (404, "Not Found")

    def fail(_: object) -> None:
        raise ValueError("/home/mara/secret")

    monkeypatch.setattr(served.models[0].current.engine, "recognize_waveforms", fail)
    failed = served.send(wav())
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    assert "mara" not in failed.text
    assert 'voxline_serve_requests_total{status="500"} 1.0' in httpx.get(f"{served.url}/metrics").text


class ImpatientConnection(HttpConnection):
    head_seconds = 0.2


def test_a_connection_that_sends_no_request_is_closed(registry: Registry, tmp_path: Path) -> None:
    served = Served(tmp_path / "registry", http=ImpatientConnection)
    with contextlib.ExitStack() as stack:
        stack.callback(served.stop)
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(3)]
        idle[1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        idle[2].sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for connection in idle:
            connection.settimeout(PATIENCE_SECONDS)
            while connection.recv(4096):
                pass


@pytest.fixture
def tight(registry: Registry, tmp_path: Path) -> Iterator[Served]:
    """Takes one recording at a time, of a second, and lets none wait."""
    limits = ServingLimits(concurrency=1, queue=0, uploads=3, upload_seconds=0.5, max_bytes=100_000, max_seconds=1)
    running = Served(tmp_path / "registry", limits)
    yield running
    running.stop()


def test_what_is_too_large_too_long_or_too_slow_is_refused_at_once(tight: Served) -> None:
    assert tight.send(wav(seconds=2)).status_code == 413
    assert tight.send(bytes(300_000)).status_code == 413

    def parts() -> Iterator[bytes]:  # without a Content-Length
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        for _ in range(400):
            yield bytes(1000)

    kind = {"content-type": "multipart/form-data; boundary=x"}
    with contextlib.suppress(httpx.WriteError):
        answer = httpx.post(f"{tight.url}/v1/audio/transcriptions", content=parts(), headers=kind)
        assert answer.status_code == 413
    with socket.create_connection(("127.0.0.1", tight.port)) as slow:
        slow.sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999\r\n")
        slow.sendall(b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n")
        slow.settimeout(PATIENCE_SECONDS)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    assert tight.send(wav()).status_code == 200


def test_a_busy_server_says_so_and_recovers(tight: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = tight.models
    recognizer, free = model.current.engine, threading.Event()
    hear = recognizer.recognize_waveforms

    def wait(waveforms: list[np.ndarray]) -> object:
        free.wait(PATIENCE_SECONDS)
        return hear(waveforms)

    monkeypatch.setattr(recognizer, "recognize_waveforms", wait)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(tight.send, wav())
        wait_until(lambda: httpx.get(f"{tight.url}/healthz").json()["pending"] == 1, "the first request")
        start = time.monotonic()
        refused = tight.send(wav())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert time.monotonic() - start < PATIENCE_SECONDS
        free.set()
        assert first.result().status_code == 200
    assert tight.send(wav()).status_code == 200


def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    page = httpx.get(served.url)
    policy = page.headers["content-security-policy"]
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "getUserMedia" in httpx.get(f"{served.url}/page.js").text
    assert "://" not in page.text


def test_a_registry_without_a_recognizer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["voxline", "serve", "--registry", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "no recognizer is in production here" in capsys.readouterr().err
