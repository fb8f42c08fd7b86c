"""Sound comes while the rest of a text is spoken, to OpenAI's own client."""

import base64
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from openai.types.audio import SpeechCreateParams

from tests.serving.test_server import Served, fields_of, push
from tests.tone_asr_model import RATE
from tests.tone_tts_model import MakeTtsModel
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.feedback.canary_state import CanarySettings
from voxline.inference.synthesizer import Synthesizer
from voxline.registry.journal import CANDIDATE
from voxline.serving.canary import ARM_HEADER, SESSION_HEADER

TEXT = "12 3. 4 5. 6 7 0."


@pytest.fixture(scope="module")
def model(make_tts_model: MakeTtsModel) -> Path:
    """An 8 never ends."""
    return make_tts_model(endless="8")


@pytest.fixture
def served(tmp_path: Path, model: Path) -> Iterator[Served]:
    push(tmp_path / "registry", model, name="voice")
    running = Served(tmp_path / "registry", names=("voice",))
    yield running
    running.stop()


def client_of(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS)


def speak(served: Served, text: str = TEXT, **fields: Any) -> Any:
    """The response of OpenAI's client, before it is read."""
    speech = client_of(served).audio.speech.with_streaming_response
    return speech.create(model="voice", voice="alloy", input=text, **fields)


def before_sentence(served: Served, monkeypatch: pytest.MonkeyPatch, text: str, free: threading.Event) -> list[bool]:
    """Lets a sentence wait until it is freed. Returns whether that was in time."""
    current = served.models[0].current
    assert current
    engine = current.engine
    in_time: list[bool] = []
    synthesize = Synthesizer._synthesize

    def wait(voice: Synthesizer, symbols: Any, *others: Any) -> Any:
        if voice is engine and symbols == [text]:
            in_time.append(free.wait(PATIENCE_SECONDS))
        return synthesize(voice, symbols, *others)

    monkeypatch.setattr(Synthesizer, "_synthesize", wait)
    return in_time


def test_samples_come_before_all_is_spoken(served: Served, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Synthesizer(model).speak(TEXT).waveform
    free = threading.Event()
    in_time = before_sentence(served, monkeypatch, "6 7 0.", free)
    with speak(served, response_format="pcm") as response:
        assert response.headers["x-voxline-version"] == "1"
        assert response.headers["x-voxline-sample-rate"] == str(RATE)
        assert response.headers["content-type"] == "application/octet-stream"
        pieces = response.iter_bytes()
        first = next(pieces)
        free.set()
        sound = first + b"".join(pieces)
    assert in_time == [True]
    np.testing.assert_allclose(np.frombuffer(sound, "<i2") / 32767, whole, atol=1e-4)
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_requests_total{status="200"} 1.0' in metrics
    assert f"voxline_serve_speech_seconds_total {len(whole) / RATE}" in metrics


@pytest.mark.parametrize("shape", ["pcm", "wav"])
def test_events_have_the_sound_and_an_end(
    served: Served, model: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    in_time = before_sentence(served, monkeypatch, "6 7 0.", free)
    with speak(served, response_format=shape, stream_format="sse") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines) == "event: speech.audio.delta"
        free.set()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert in_time == [True]
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert len(deltas) > 2
    assert done == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": len(TEXT), "output_tokens": 0, "total_tokens": len(TEXT)},
    }
    sound = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    if shape == "wav":
        # Its end was not known, and readers take what is there.
        assert sound[4:8] == sound[40:44] == b"\xff" * 4
        sound = sound[44:]
    spoken = np.frombuffer(sound, "<i2") / 32767
    np.testing.assert_allclose(spoken, Synthesizer(model).speak(TEXT).waveform, atol=1e-4)


def test_a_file_whose_end_is_known_says_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for fields in ({}, {"stream_format": "audio"}):
        with speak(served, "12.", response_format="wav", **fields) as response:
            file = response.read()
        samples, rate = soundfile.read(io.BytesIO(file))
        assert (len(samples), rate) == (RATE * 3 // 10, RATE)


def test_a_pause_of_no_sample_brings_no_second_header(served: Served, model: Path) -> None:
    pause = '<break time="0.01ms"/>'
    whole = Synthesizer(model).speak("12 3.").waveform
    for fields in ({}, {"stream_format": "audio"}):
        with speak(served, f"<speak>{pause}12 3.{pause}</speak>", response_format="wav", **fields) as response:
            file = response.read()
        assert file.count(b"RIFF") == 1
        np.testing.assert_allclose(np.frombuffer(file[44:], "<i2") / 32767, whole, atol=1e-4)

    # And one alone is a file without samples.
    with speak(served, f"<speak>{pause}</speak>", response_format="wav", stream_format="audio") as response:
        file = response.read()
    assert len(soundfile.read(io.BytesIO(file))[0]) == 0


def test_a_fault_breaks_off_what_was_begun(
    served: Served,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(openai.InternalServerError, match="did not stop within"), speak(served, "8.") as response:
        response.read()
    with pytest.raises(openai.BadRequestError, match="cannot read the text"), speak(served, "1. x") as response:
        response.read()

    # The first sentence is there, the second has no end: a part must not pass for the whole.
    free = threading.Event()
    before_sentence(served, monkeypatch, "8 1.", free)
    body = {"model": "voice", "input": "12 3. 8 1.", "response_format": "pcm"}
    with httpx.stream("POST", f"{served.url}/v1/audio/speech", json=body, timeout=PATIENCE_SECONDS) as response:
        pieces = response.iter_bytes()
        assert next(pieces)
        free.set()
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            list(pieces)
    assert "broken off after a part of it was sent: the model did not stop within" in capfd.readouterr().out
    # Overload makes many of these: each has a line, and no traceback.
    assert not [record for record in caplog.records if record.exc_info]
    free.clear()
    with speak(served, "12 3. 8 1.", response_format="pcm", stream_format="sse") as response:
        lines = response.iter_lines()
        assert next(lines) == "event: speech.audio.delta"
        free.set()
        last = [line for line in lines if line.startswith("data: ")][-1]
    event = json.loads(last.removeprefix("data: "))
    assert event["type"] == "error"
    assert "did not stop within" in event["error"]["message"]
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_requests_total{status="500"} 3.0' in metrics


def test_what_cannot_be_streamed_is_refused_by_name(served: Served) -> None:
    for fields, param in (
        ({"response_format": "mp3", "stream_format": "sse"}, "stream_format"),
        ({"response_format": "pcm", "stream_format": "web"}, "stream_format"),
    ):
        with pytest.raises(openai.BadRequestError) as refused, speak(served, **fields) as response:
            response.read()
        assert refused.value.param == param


def test_each_field_of_openais_route_is_honoured_or_refused_by_name(served: Served) -> None:
    with speak(served, response_format="pcm", stream_format="audio", speed=1.0, instructions=" ") as response:
        assert response.read()
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"instructions": "cheerful"}, "instructions"),
        ({"speed": 1.5}, "speed"),
        ({"response_format": "aac"}, "response_format"),
        ({"stream_format": "web"}, "stream_format"),
        ({"extra_body": {"reponse_format": "wav"}}, "reponse_format"),
    )
    for fields, param in refusals:
        with pytest.raises(openai.BadRequestError) as refused, speak(served, **fields) as response:
            response.read()
        assert refused.value.param == param
    named = {param for _, param in refusals}
    assert fields_of(SpeechCreateParams) - {"model", "input", "voice"} <= named


def test_a_candidate_answers_whole(tmp_path: Path, model: Path, make_tts_model: MakeTtsModel) -> None:
    push(tmp_path / "registry", model, name="voice")
    push(tmp_path / "registry", make_tts_model(mute="8"), CANDIDATE, name="voice")
    running = Served(tmp_path / "registry", names=("voice",), canary=CanarySettings(share=0.5))
    try:
        wait_until(lambda: running.canaries[0]._trial is not None, "the trial")
        arms = {}
        for number in range(20):
            headers = {SESSION_HEADER: str(number)}
            with speak(running, response_format="pcm", extra_headers=headers) as response:
                arms[response.headers[ARM_HEADER]] = "content-length" in response.headers
                assert len(response.read()) > RATE
        assert arms["candidate"]
        assert not arms["production"]
    finally:
        running.stop()
