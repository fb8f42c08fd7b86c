"""OpenAI's own client on the WebSocket of a transcription session."""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import openai
import pytest
import soundfile
import soxr
from openai.resources.realtime.realtime import RealtimeConnection
from openai.types.realtime import AudioTranscriptionParam, RealtimeAudioFormatsParam
from openai.types.realtime import RealtimeTranscriptionSessionAudioInputParam as AudioInputParam
from openai.types.realtime.realtime_transcription_session_audio_input_param import NoiseReduction
from openai.types.realtime.realtime_transcription_session_audio_input_turn_detection_param import (
    SemanticVad,
    ServerVad,
)
from pydantic import TypeAdapter
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.causal_model import export_causal_model
from tests.serving.test_realtime import PCM
from tests.serving.test_server import Served, fields_of, push
from tests.tone_asr_model import RATE, export_onnx_tones, render_words
from tests.waiting import wait_until
from voxline.feedback.captures import CaptureStore
from voxline.inference.recognizer import Recognizer
from voxline.serving.capture import Capture, CaptureSettings
from voxline.serving.limits import ServingLimits
from voxline.serving.transcription_session import Item, Resampler

CLIENT_RATE = 24_000
SPEECH = soxr.resample(PCM, RATE, CLIENT_RATE)
SEGMENTS: dict[str, Any] = {"type": "server_vad", "silence_duration_ms": 40}
TEXT_EVENT = "conversation.item.input_audio_transcription"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"noise_reduction": {"type": "near_field"}}, "noise_reduction"),
    ({"format": {"type": "audio/pcm", "rate": 16_000}}, "format.rate"),
    ({"format": {"type": "audio/opus"}}, "format.type"),
    ({"turn_detection": {"type": "semantic_vad"}}, "turn_detection.type"),
    ({"turn_detection": {"type": "server_vad", "threshold": 0.8}}, "turn_detection.threshold"),
    ({"turn_detection": {"type": "server_vad", "silence_duration_ms": -1}}, "turn_detection.silence_duration_ms"),
    ({"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}, "turn_detection.idle_timeout_ms"),
    ({"turn_detection": {"type": "server_vad", "silence_ms": 5}}, "turn_detection.silence_ms"),
    ({"transcription": {"model": "whisper-1"}}, "transcription.model"),
    ({"transcription": {"model": "asr", "prompt": "names"}}, "transcription.prompt"),
    ({"transcription": {"keywords": ["a"]}}, "transcription.keywords"),
    ({"transcription": {"languages": ["en", "de"]}}, "transcription.languages"),
    ({"transcription": {"delay": "low"}}, "transcription.delay"),
    ({"transcription": None}, "transcription"),
    ({"turn_detection": {"type": "server_vad", "create_response": True}}, "turn_detection.create_response"),
    ({"turn_detection": {"type": "server_vad", "interrupt_response": True}}, "turn_detection.interrupt_response"),
    ({"turn_detection": {"type": "server_vad", "eagerness": "low"}}, "turn_detection.eagerness"),
    ({"loudness": 3}, "loudness"),
]
"""Settings of audio.input that are not served, with the key that is named."""
HONOURED = {
    "type", "format", "rate", "turn_detection", "transcription", "model", "language", "prefix_padding_ms",
    "silence_duration_ms",
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [export_causal_model(folder / str(seed), seed) for seed in (1, 2)]


@pytest.fixture
def served(models: list[Path], tmp_path: Path) -> Iterator[Served]:
    push(tmp_path / "registry", models[0])
    push(tmp_path / "registry", models[1], name="other")
    running = Served(tmp_path / "registry", ServingLimits(streams=2, idle_seconds=60.0), names=("asr", "other"))
    yield running
    running.stop()


@contextlib.contextmanager
def session(served: Served, query: dict[str, str] | None = None, **options: Any) -> Iterator[RealtimeConnection]:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    query = {"intent": "transcription", "model": "asr"} if query is None else query
    with client.realtime.connect(extra_query=query, max_retries=0, **options) as connection:
        yield connection


def update(connection: RealtimeConnection, **audio_input: Any) -> Any:
    session: Any = {"type": "transcription", "audio": {"input": audio_input}}
    connection.session.update(session=session)
    return receive(connection)


def receive(connection: RealtimeConnection) -> Any:
    """The next event, which must be what the client's own types say."""
    event = connection.recv()
    return TypeAdapter(type(event)).validate_python(event.model_dump())


def append(connection: RealtimeConnection, data: bytes, part: int = 9_999) -> None:
    for begin in range(0, len(data), part):  # cut within samples
        audio = base64.b64encode(data[begin : begin + part]).decode()
        connection.input_audio_buffer.append(audio=audio)


def until(connection: RealtimeConnection, kind: str) -> list[Any]:
    events = [receive(connection)]
    while events[-1].type != kind:
        assert events[-1].type != "error", events[-1]
        events.append(receive(connection))
    return events


def heard_at_once(model: Path, samples: "np.ndarray[Any, np.dtype[np.int16]]", rate: int) -> str:
    """What the model hears in samples that are resampled whole."""
    resampled = soxr.resample(samples.astype(np.float32) / 32768, rate, RATE)
    text: str = Recognizer(model).transcribe(np.rint(resampled * 32768).astype(np.int16), RATE)
    return text


def test_a_commit_transcribes_the_buffer(served: Served, models: list[Path]) -> None:
    expected = heard_at_once(models[0], SPEECH, CLIENT_RATE)
    with session(served) as connection:
        created = receive(connection)
        assert (created.type, created.session.type) == ("session.created", "transcription")
        assert created.session.audio.input.transcription.model == "asr"
        assert created.session.audio.input.turn_detection.silence_duration_ms == 500
        updated = update(connection, turn_detection=None, transcription={"model": "asr", "language": "en"})
        assert updated.type == "session.updated"
        assert updated.session.audio.input.turn_detection is None
        assert updated.session.audio.input.transcription.language == "en"
        items = []
        for _ in range(2):
            append(connection, SPEECH.tobytes())
            connection.input_audio_buffer.commit()
            events = until(connection, f"{TEXT_EVENT}.completed")
            assert events[-1].transcript == expected
            assert events[-1].usage.seconds == pytest.approx(2.0, abs=0.001)
            assert events[-1].voxline["version"] == 1
            deltas = [event.delta for event in events if event.type == f"{TEXT_EVENT}.delta"]
            assert len(deltas) > 2
            assert "".join(deltas) == expected
            others = [event.type for event in events if not event.type.startswith(TEXT_EVENT)]
            assert others == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
            assert len({getattr(event, "item_id", None) or event.item.id for event in events}) == 1
            items.append(next(event for event in events if event.type == "input_audio_buffer.committed"))
        assert [item.previous_item_id for item in items] == [None, items[0].item_id]
        assert served.server.realtime.streams == 1
    wait_until(lambda: served.server.realtime.streams == 0, "the end of the session")


def test_the_server_decides_on_turns(served: Served, models: list[Path]) -> None:
    audio = np.concatenate([SPEECH, np.zeros(CLIENT_RATE, np.int16)])
    stream = Recognizer(models[0]).stream(endpoint_ms=SEGMENTS["silence_duration_ms"])
    partial = stream.feed(Resampler("audio/pcm", RATE).add(audio.tobytes(), last=True))
    expected = [segment.text for segment in partial.segments]
    assert len(expected) > 2
    expected.append(stream.finish().text)

    with session(served) as connection:
        receive(connection)
        assert update(connection, turn_detection=SEGMENTS).type == "session.updated"
        append(connection, audio.tobytes())
        connection.input_audio_buffer.commit()
        events: list[Any] = []
        while len(_texts(events)) < len(expected):
            events += until(connection, f"{TEXT_EVENT}.completed")
    assert _texts(events) == expected
    started = [event for event in events if event.type == "input_audio_buffer.speech_started"]
    stopped = [event for event in events if event.type == "input_audio_buffer.speech_stopped"]
    ended = [event.item_id for event in events if event.type == f"{TEXT_EVENT}.completed"]
    assert [event.item_id for event in started] == [event.item_id for event in stopped] == ended[:-1]
    for begin, end, following in zip(started, stopped, [*started[1:], None], strict=True):
        assert 0 <= begin.audio_start_ms <= end.audio_end_ms <= 3000
        assert following is None or end.audio_end_ms <= following.audio_start_ms + 1


@pytest.mark.parametrize("part", [9_999, 500_000])
def test_a_model_without_a_streaming_graph_hears_each_turn_at_its_end(
    served: Served, tmp_path: Path, part: int
) -> None:
    """A network that reads backward too, between two turns of which there is a second of quiet noise."""
    model = export_onnx_tones(tmp_path / "tones")
    push(tmp_path / "registry", model)
    assert served.models[0].refresh()
    quiet = np.random.default_rng(0).normal(0, 0.0003, RATE).astype(np.float32)
    words = [render_words(["four", "six", "eight", "six"]), render_words(["eight"] * 5)]
    audio = np.concatenate([quiet, words[0], quiet, words[1], quiet])
    sent = np.rint(soxr.resample(audio, RATE, CLIENT_RATE).clip(-1, 1) * 32767).astype(np.int16)
    stream = Recognizer(model).live(endpoint_ms=500)
    partial = stream.feed(Resampler("audio/pcm", RATE).add(sent.tobytes(), last=True))
    texts = [segment.text for segment in partial.segments]
    assert [bool(text) for text in texts] == [True, True]

    with session(served) as connection:
        receive(connection)
        assert update(connection, turn_detection={"type": "server_vad", "silence_duration_ms": 500}).type
        append(connection, sent.tobytes(), part)
        events = until(connection, f"{TEXT_EVENT}.completed") + until(connection, f"{TEXT_EVENT}.completed")
    assert _texts(events) == texts
    deltas = [event.delta for event in events if event.type == f"{TEXT_EVENT}.delta"]
    assert deltas == texts, "the whole text, when the turn has ended"
    started = [event.audio_start_ms for event in events if event.type == "input_audio_buffer.speech_started"]
    second = 1000 + 1000 * len(words[0]) / RATE + 1000
    assert started == [pytest.approx(1000 - 300, abs=150), pytest.approx(second - 300, abs=150)]
    stopped = [event.audio_end_ms for event in events if event.type == "input_audio_buffer.speech_stopped"]
    assert all(begin < end for begin, end in zip(started, stopped, strict=True))


def _texts(events: list[Any]) -> list[str]:
    return [event.transcript for event in events if event.type == f"{TEXT_EVENT}.completed"]


@pytest.mark.parametrize(("kind", "subtype"), [("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")])
def test_telephone_audio_is_heard(
    served: Served,
    models: list[Path],
    kind: str,
    subtype: str,
    tmp_path: Path,
) -> None:
    samples = soxr.resample(PCM, RATE, 8000)
    soundfile.write(tmp_path / "a.raw", samples, 8000, format="RAW", subtype=subtype)
    coded = (tmp_path / "a.raw").read_bytes()
    decoded, _ = soundfile.read(
        tmp_path / "a.raw", dtype="int16", samplerate=8000, channels=1, format="RAW", subtype=subtype
    )
    with session(served) as connection:
        receive(connection)
        assert update(connection, format={"type": kind}, turn_detection=None).type == "session.updated"
        append(connection, coded)
        connection.input_audio_buffer.commit()
        completed = until(connection, f"{TEXT_EVENT}.completed")[-1]
    assert completed.transcript == heard_at_once(models[0], decoded, 8000)
    assert completed.usage.seconds == pytest.approx(2.0, abs=0.001)


def test_the_model_may_be_named_by_an_update(served: Served, models: list[Path]) -> None:
    with session(served, {"intent": "transcription"}) as connection:
        receive(connection)
        append(connection, bytes(4800))
        error = receive(connection).error
        assert (error.param, "name a model first" in error.message) == ("session.audio.input.transcription.model", True)
        update(connection, transcription={"model": "other"}, turn_detection=None)
        append(connection, SPEECH.tobytes())
        connection.input_audio_buffer.commit()
        completed = until(connection, f"{TEXT_EVENT}.completed")[-1]
    assert completed.transcript == heard_at_once(models[1], SPEECH, CLIENT_RATE)


@pytest.mark.parametrize(("audio_input", "param"), REFUSED)
def test_what_is_not_served_is_refused_by_name_and_changes_nothing(
    served: Served, audio_input: dict[str, Any], param: str
) -> None:
    with session(served) as connection:
        before = receive(connection).session
        told = update(connection, **audio_input)
        assert (told.type, told.error.type) == ("error", "invalid_request_error")
        assert told.error.param == f"session.audio.input.{param}"
        after = update(connection).session
    assert after == before


def test_every_setting_of_openais_client_is_honoured_or_in_the_list_of_those_refused() -> None:
    kinds = (AudioInputParam, NoiseReduction, AudioTranscriptionParam, ServerVad, SemanticVad)
    settings = set().union(*(fields_of(kind) for kind in (*kinds, *get_args(RealtimeAudioFormatsParam))))
    refused = {part for _, param in REFUSED for part in param.split(".")}
    # A strength is of noise reduction, which is refused whole.
    assert settings - HONOURED - {"strength"} <= refused
    assert settings >= HONOURED


def test_a_model_that_is_asked_for_a_language_hears_no_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    current = served.models[0].current
    assert current
    monkeypatch.setitem(current.engine.info.settings, "model", {"prompt": {"language": "en", "task": "transcribe"}})
    with session(served) as connection:
        receive(connection)
        error = update(connection, transcription={"model": "asr", "language": "de"}).error
        assert (error.param, "hears en" in error.message) == ("session.audio.input.transcription.language", True)
        heard = update(connection, transcription={"model": "asr", "language": "en"}).session.audio.input.transcription
    assert heard.language == "en"


def test_wrong_events_are_told_and_the_session_continues(served: Served) -> None:
    url = f"ws://127.0.0.1:{served.port}/v1/realtime?model=asr"
    with session(served) as connection:
        receive(connection)
        connection.send({"type": "response.create", "event_id": "mine"})
        error = receive(connection).error
        assert (error.event_id, "session.update, input_audio_buffer.append" in error.message) == ("mine", True)
        connection.input_audio_buffer.commit()
        assert receive(connection).error.code == "input_audio_buffer_commit_empty"
        connection.input_audio_buffer.append(audio="no base64!")
        assert receive(connection).error.param == "audio"
        connection.session.update(session={"type": "realtime"})
        assert receive(connection).error.param == "session.type"
        connection.session.update(
            session={"type": "transcription", "include": ["item.input_audio_transcription.logprobs"]}
        )
        assert receive(connection).error.param == "session.include"
        append(connection, SPEECH.tobytes()[:4800])
        connection.input_audio_buffer.clear()
        assert until(connection, "input_audio_buffer.cleared")
        update(connection, turn_detection=None)
        append(connection, SPEECH.tobytes()[:9600])
        told = update(connection, turn_detection=SEGMENTS)
        while told.type.startswith(TEXT_EVENT):
            told = receive(connection)
        assert "commit or clear it" in told.error.message
    with connect(url, proxy=None) as raw:
        raw.recv()
        for message in (
            "[]",
            "[" * 100_000,
            '{"type": ["a"]}',
            b"\x00\x01",
            '{"type": "session.update", "session": 7}',
        ):
            raw.send(message)
            assert '"type": "error"' in str(raw.recv())


def test_sessions_have_limits(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    running = Served(tmp_path / "registry", ServingLimits(streams=1, stream_seconds=1.0, idle_seconds=0.8))
    try:
        with session(running) as connection:
            receive(connection)
            with pytest.raises(Exception, match="429"), session(running):
                pass
            append(connection, SPEECH.tobytes())
            while (event := receive(connection)).type != "error":
                pass
            assert "at most 1 s of audio" in event.error.message
            with pytest.raises(ConnectionClosed):
                connection.recv()
        wait_until(lambda: running.server.realtime.streams == 0, "the end of the session")
        with pytest.raises(Exception, match="404"), session(running, {"model": "whisper-1"}):
            pass
        with session(running) as connection:
            receive(connection)
            assert "no message for 0.8 s" in receive(connection).error.message
    finally:
        running.stop()


def test_items_of_a_caller_who_agreed_are_kept(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(tmp_path / "registry", ServingLimits(), capture=capture)
    try:
        with session(running, {"model": "asr", "consent": "yes", "speaker": "p-7"}) as connection:
            receive(connection)
            update(connection, turn_detection=None)
            append(connection, SPEECH.tobytes())
            connection.input_audio_buffer.commit()
            completed = until(connection, f"{TEXT_EVENT}.completed")[-1]
        wait_until(lambda: capture.counts.total() == 1, "the clip")
    finally:
        running.stop()
    (clip,) = CaptureStore(tmp_path / "kept").clips()
    assert (clip.id, clip.text, clip.speaker) == (completed.voxline["capture"], completed.transcript, "p-7")
    assert clip.seconds == pytest.approx(2.0, abs=0.001)


def test_deltas_are_what_two_looks_agree_on() -> None:
    item = Item()
    looks = ["se", "seven", "seven f", "seven four", "seven forty"]
    assert [item.stable_delta(text) for text in looks] == ["", "se", "ven", " f", "o"]
    assert item.last_delta("seven forty") == "rty"
    revised = Item()
    assert "".join(revised.stable_delta(text) for text in ("tea", "tea", "teem")) == "tea"
    assert revised.last_delta("team") == "m"
    assert revised.last_delta("ten") == ""


@pytest.mark.parametrize("sizes", [(501,), (3, 5, 7, 4001)])
def test_audio_cut_anywhere_is_resampled_as_whole(sizes: tuple[int, ...]) -> None:
    data = SPEECH[:24_000].tobytes()
    whole = Resampler("audio/pcm", RATE).add(data, last=True)
    resampler = Resampler("audio/pcm", RATE)
    parts, begin, turn = [], 0, 0
    while begin < len(data):
        size = sizes[turn % len(sizes)]
        parts.append(resampler.add(data[begin : begin + size]))
        begin, turn = begin + size, turn + 1
    parts.append(resampler.add(b"", last=True))
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(whole) == RATE
