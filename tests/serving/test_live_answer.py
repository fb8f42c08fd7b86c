"""The text of a long recording comes while it is heard, to OpenAI's own client."""

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import soundfile

from tests.inference.test_recognizer import SENTENCES, with_pauses
from tests.serving.test_server import Served, push
from tests.tone_asr_model import RATE, export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import WorkError
from voxline.feedback.canary_state import CanarySettings
from voxline.inference.recognizer import Recognizer
from voxline.registry.journal import CANDIDATE
from voxline.serving.canary import ARM_HEADER
from voxline.serving.capture import CAPTURE_HEADER, CONSENT_HEADER, Capture, CaptureSettings
from voxline.serving.limits import ServingLimits
from voxline.serving.live_answer import LiveTranscript

TEXT = " ".join(SENTENCES)
BATCH_SECONDS = 0.5
"""So that the parts of the recording make several batches."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx_tones(tmp_path_factory.mktemp("models") / "tones")


@pytest.fixture(scope="module")
def recording() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, with_pauses(*SENTENCES), RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


@pytest.fixture
def served(tmp_path: Path, model: Path) -> Iterator[Served]:
    push(tmp_path / "registry", model)
    running = Served(tmp_path / "registry")
    engine_of(running).batch_seconds = BATCH_SECONDS
    yield running
    running.stop()


def engine_of(served: Served) -> Recognizer:
    current = served.models[0].current
    assert current
    assert isinstance(current.engine, Recognizer)
    return current.engine


def count_batches(engine: Recognizer, data: bytes) -> int:
    """How many batches a recording makes."""
    batches = []
    call = engine._call
    engine._call = lambda waveforms: batches.append(1) or call(waveforms)  # type: ignore[method-assign]
    samples, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    engine.recognize_waveforms([samples])
    engine._call = call  # type: ignore[method-assign]
    return len(batches)


def before_batch(monkeypatch: pytest.MonkeyPatch, engine: Recognizer, do: Callable[[int], object]) -> list[int]:
    """Calls `do` with the number of each batch before it is decoded. Returns the list of those that were decoded."""
    decoded: list[int] = []
    begun: list[int] = []
    call = engine._call

    def decode(waveforms: list[Any]) -> dict[str, Any]:
        begun.append(len(begun))
        number = begun[-1]
        do(number)
        outputs = call(waveforms)
        decoded.append(number)
        return outputs

    monkeypatch.setattr(engine, "_call", decode)
    return decoded


def client_of(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS)


def listen(served: Served, recording: bytes, **fields: Any) -> Any:
    transcriptions = client_of(served).audio.transcriptions
    return transcriptions.create(model="asr", file=("a.wav", recording), stream=True, extra_body=fields)


def test_text_comes_before_all_is_heard(served: Served, recording: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(served)
    whole = client_of(served).audio.transcriptions.create(model="asr", file=("a.wav", recording)).text
    last = count_batches(engine, recording) - 1
    free, in_time = threading.Event(), []

    def wait(number: int) -> None:
        if number == last:
            in_time.append(free.wait(PATIENCE_SECONDS))

    decoded = before_batch(monkeypatch, engine, wait)
    with listen(served, recording) as stream:
        assert stream.response.headers["x-voxline-version"] == "1"
        events = iter(stream)
        first = next(events)
        assert (first.type, last in decoded) == ("transcript.text.delta", False)
        free.set()
        *deltas, done = [first, *events]
    assert in_time == [True]
    assert len(deltas) > 2
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert "".join(event.delta for event in deltas) == done.text == whole == TEXT
    assert done.type == "transcript.text.done"
    assert 'voxline_serve_requests_total{status="200"} 2.0' in httpx.get(f"{served.url}/metrics").text


@pytest.mark.parametrize("fields", [{"itn": "en"}, {"punctuate": "true"}, {"itn": "en", "punctuate": "true"}])
def test_what_later_text_may_change_is_held_back(served: Served, recording: bytes, fields: dict[str, str]) -> None:
    whole = served.send(recording, **fields).json()["text"]
    with listen(served, recording, **fields) as stream:
        *deltas, done = list(stream)
    assert "".join(event.delta for event in deltas) == done.text == whole != TEXT


def test_a_model_that_punctuates_itself_is_not_held_back(
    served: Served, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(served)
    call = engine._call

    def with_marks(waveforms: list[Any]) -> dict[str, Any]:
        outputs = call(waveforms)
        return {**outputs, "text": [text.strip() + b"." for text in outputs["text"]]}

    monkeypatch.setattr(engine, "_call", with_marks)
    taken: list[str] = []
    take = LiveTranscript._take

    def watch(live: LiveTranscript, text: str) -> str:
        piece = take(live, text)
        taken.append(live.sent)
        return piece

    monkeypatch.setattr(LiveTranscript, "_take", watch)
    whole = served.send(recording, punctuate="true").json()["text"]
    with listen(served, recording, punctuate="true") as stream:
        *deltas, done = list(stream)
    assert "".join(event.delta for event in deltas) == done.text == whole
    assert whole == " ".join(f"{sentence}." for sentence in SENTENCES)
    assert taken[0].startswith(f"{SENTENCES[0]}.")


@pytest.mark.parametrize(
    ("fault", "message"),
    [(WorkError("the graph failed"), "the graph failed"), (ValueError("/home/mara/secret"), "its log says why")],
)
def test_a_fault_in_the_middle_is_an_event(
    served: Served, recording: bytes, monkeypatch: pytest.MonkeyPatch, fault: Exception, message: str
) -> None:
    last = count_batches(engine_of(served), recording) - 1

    def fail(number: int) -> None:
        if number == last:
            raise fault

    before_batch(monkeypatch, engine_of(served), fail)
    heard = []
    with pytest.raises(openai.APIError, match=message) as failed, listen(served, recording) as stream:
        heard.extend(event.delta for event in stream)
    assert heard
    assert TEXT.startswith("".join(heard))
    assert failed.value.type == "server_error"
    wait_until(
        lambda: 'voxline_serve_requests_total{status="500"} 1.0' in httpx.get(f"{served.url}/metrics").text, "the count"
    )
    assert len(served.server.uploads) == 0


def test_a_fault_before_any_text_has_its_status(
    served: Served, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise WorkError("the graph failed")

    before_batch(monkeypatch, engine_of(served), fail)
    with pytest.raises(openai.InternalServerError, match="the graph failed"):
        listen(served, recording)
    assert len(served.server.uploads) == 0


def test_a_recording_that_takes_too_long_ends_with_an_event(tmp_path: Path, model: Path, recording: bytes) -> None:
    push(tmp_path / "registry", model)
    served = Served(tmp_path / "registry", ServingLimits(request_seconds=2.0))
    engine = engine_of(served)
    engine.batch_seconds = BATCH_SECONDS
    try:
        with pytest.MonkeyPatch.context() as patch:
            before_batch(patch, engine, lambda number: number and wait_until(lambda: not served.server.uploads, "it"))
            with pytest.raises(openai.APIError, match="no answer within 2 s"), listen(served, recording) as stream:
                list(stream)
    finally:
        served.stop()


def test_a_client_that_leaves_ends_the_work(served: Served, recording: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def wait(number: int) -> None:
        begun.append(number)
        if number:
            wait_until(lambda: len(served.server.uploads) == 0, "the end of the request")

    before_batch(monkeypatch, engine_of(served), wait)
    with listen(served, recording) as stream:
        assert next(iter(stream)).type == "transcript.text.delta"
        wait_until(lambda: begun == [0, 1], "the second batch")
    wait_until(lambda: served.server._pending == 0, "the end of the work")
    assert begun == [0, 1]
    assert 'voxline_serve_requests_total{status="499"} 1.0' in httpx.get(f"{served.url}/metrics").text


def test_nothing_of_a_candidate_is_sent_before_its_end(tmp_path: Path, model: Path, recording: bytes) -> None:
    """It fails in the middle: its caller gets production's text, and all of it."""
    push(tmp_path / "registry", model)
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "deaf", {"two": "six"}), CANDIDATE)
    served = Served(tmp_path / "registry", canary=CanarySettings(share=0.5))
    try:
        (canary,) = served.canaries
        wait_until(lambda: canary._trial is not None, "the trial")
        candidate = canary._trial.candidate.engine
        candidate.batch_seconds = engine_of(served).batch_seconds = BATCH_SECONDS
        last = count_batches(candidate, recording) - 1

        def fail(number: int) -> None:
            if number % (last + 1) == last:
                raise WorkError("the graph failed")

        with pytest.MonkeyPatch.context() as patch:
            begun: list[int] = []
            before_batch(patch, candidate, lambda number: begun.append(number) or fail(number))
            for number in range(20):
                fields = {"session": str(number)}
                with listen(served, recording, **fields) as stream:
                    assert stream.response.headers[ARM_HEADER] == "production"
                    *deltas, done = list(stream)
                assert "".join(event.delta for event in deltas) == done.text == TEXT
                if begun:
                    break
        assert begun
    finally:
        served.stop()


def test_the_last_event_has_the_id_of_the_capture(tmp_path: Path, model: Path, recording: bytes) -> None:
    push(tmp_path / "registry", model)
    capture = Capture(CaptureSettings(str(tmp_path / "captures"), share=1.0))
    served = Served(tmp_path / "registry", capture=capture)
    engine_of(served).batch_seconds = BATCH_SECONDS
    try:
        answer = served.send(recording, {CONSENT_HEADER: "yes"}, stream="true")
        assert CAPTURE_HEADER not in answer.headers
        assert '"capture": "capture-' in answer.text.splitlines()[-2]
    finally:
        served.stop()
