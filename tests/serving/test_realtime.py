"""The WebSocket on a real port, with a real client."""

import collections
import contextlib
import json
import logging
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.causal_model import babble, export_causal_model
from tests.serving.test_canary import start_process
from tests.serving.test_server import ImpatientConnection, Served, push
from tests.tone_asr_model import RATE, export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.feedback.captures import CaptureStore, erase_recordings
from voxline.inference.recognizer import Recognizer
from voxline.inference.written_transcript import WritingChoices, written_form
from voxline.registry.journal import CANDIDATE
from voxline.registry.registry import Registry
from voxline.serving import realtime
from voxline.serving.capture import Capture, CaptureSettings
from voxline.serving.limits import ServingLimits

PCM = (babble(2 * RATE) * 32768).astype("<i2")
LIMITS = ServingLimits(streams=2, stream_seconds=4.0, idle_seconds=0.8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [export_causal_model(folder / str(seed), seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def texts(models: list[Path]) -> list[str]:
    """What each model hears in the whole recording."""
    found = [Recognizer(model).transcribe(PCM, RATE) for model in models]
    assert len(set(found)) == 2
    assert all(found)
    return found


@pytest.fixture
def served(models: list[Path], tmp_path: Path) -> Iterator[Served]:
    """The first model is in production, the second one the candidate."""
    push(tmp_path / "registry", models[0])
    push(tmp_path / "registry", models[1], CANDIDATE)
    running = Served(tmp_path / "registry", LIMITS)
    yield running
    running.stop()


def open_session(served: Served, query: str = "model=asr", **options: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{served.port}/v1/stream?{query}", proxy=None, **options)


def receive(client: ClientConnection) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(client.recv(PATIENCE_SECONDS))
    return values


def clip_samples(captures: Path, id: str) -> np.ndarray[Any, np.dtype[np.int16]]:
    (file,) = captures.rglob(f"{id}.flac")
    samples: np.ndarray[Any, np.dtype[np.int16]] = soundfile.read(file, dtype="int16")[0]
    return samples


def finish(client: ClientConnection) -> list[dict[str, Any]]:
    """Ends a session; the rest of its messages."""
    client.send(json.dumps({"type": "finish"}))
    found = [receive(client)]
    while not found[-1].get("last"):
        found.append(receive(client))
    with pytest.raises(ConnectionClosed) as closed:
        client.recv(PATIENCE_SECONDS)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
    return found


def test_a_session_hears_the_whole_recording_and_keeps_its_version(served: Served, texts: list[str]) -> None:
    (model,) = served.models
    pcm = PCM.tobytes()
    with open_session(served) as client:
        about = receive(client)
        assert (about["version"], about["sample_rate"]) == (1, RATE)
        assert about["latency"]["algorithmic_ms"] > about["latency"]["lookahead_ms"] > 0
        client.send(pcm[:30_001])  # within a sample
        assert receive(client)["type"] == "partial"
        assert served.server.realtime.streams == 1
        Registry(model._root, "asr").promote(CANDIDATE)
        assert model.refresh()
        client.send(pcm[30_001:])
        assert finish(client)[-1]["text"] == texts[0]
    with open_session(served) as client:
        assert receive(client)["version"] == 2
        client.send(pcm)
        last = finish(client)[-1]
    assert last["text"] == texts[1]
    assert "".join(word["word"] for word in last["words"]) == texts[1].replace(" ", "")
    assert 0 <= last["start"] < last["end"] <= 2
    wait_until(lambda: served.server.realtime.streams == 0, "the end of the session")
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_requests_total{status="101"} 2.0' in metrics
    assert "voxline_serve_audio_seconds_total 4.0" in metrics


def test_segments_end_in_silence(served: Served, texts: list[str]) -> None:
    with open_session(served, "model=asr&endpoint_ms=40&chunk_ms=50") as client:
        client.send(PCM.tobytes())
        finals = [one for one in finish(client) if one["type"] == "final"]
    assert len(finals) > 2
    assert "".join(one["text"] for one in finals).replace(" ", "") == texts[0].replace(" ", "")
    assert [one["last"] for one in finals] == [*[False] * (len(finals) - 1), True]


def test_segments_are_written_as_the_client_asks(tmp_path: Path) -> None:
    """Inverse text normalization in a stream; its words keep the times of what was heard."""
    model = export_causal_model(tmp_path / "numerals", 1, "一二六四五三点八 ")
    push(tmp_path / "registry", model)
    served = Served(tmp_path / "registry", LIMITS)

    def final(query: str) -> dict[str, Any]:
        with open_session(served, f"model=asr{query}") as client:
            receive(client)
            client.send(PCM.tobytes())
            return finish(client)[-1]

    try:
        spoken, written, punctuated = (final(query) for query in ("", "&itn=zh", "&itn=zh&punctuate=true"))
        assert written["text"] == written_form(spoken["text"], WritingChoices("zh")) != spoken["text"]
        assert any(character.isdecimal() for character in written["text"])
        assert punctuated["text"].endswith("。")
        assert [(one["start"], one["end"]) for one in (written, punctuated)] == [(spoken["start"], spoken["end"])] * 2
        with pytest.raises(InvalidStatus) as refused:
            open_session(served, "model=asr&itn=xx")
        error = json.loads(refused.value.response.body or b"{}")["error"]
        assert (refused.value.response.status_code, error["param"]) == (400, "itn")
    finally:
        served.stop()


def test_a_refused_session_is_no_error_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(InvalidStatus), open_session(served, "model=other"):
            pass
        with open_session(served) as client:  # what follows the refusal has happened then
            receive(client)
            finish(client)
    finally:
        logger.removeHandler(caplog.handler)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_sessions_that_cannot_be_are_refused_before_they_begin(served: Served, tmp_path: Path) -> None:
    def refused(query: str, **options: Any) -> tuple[int, str]:
        with pytest.raises(InvalidStatus) as caught:
            open_session(served, query, **options)
        response = caught.value.response
        return response.status_code, json.loads(response.body or b"{}")["error"]["message"]

    assert refused("model=whisper-1") == (404, "no model 'whisper-1' here; there are: asr")
    assert refused("model=asr&chunk_ms=x") == (400, "'x': no number")
    assert refused("model=asr&endpoint_ms=-1")[0] == 400
    assert refused("model=asr", origin="https://elsewhere.example")[0] == 403
    with open_session(served, origin=served.url) as one, open_session(served) as two:
        assert receive(one)["type"] == receive(two)["type"] == "session"
        assert refused("model=asr") == (429, "too many sessions at a time; try again later")
    push(tmp_path / "registry", export_onnx_tones(tmp_path / "tones"))
    assert served.models[0].refresh()
    wait_until(lambda: served.server.realtime.streams == 0, "the end of the sessions")
    assert refused("model=asr&chunk_ms=50") == (
        400, "chunk_ms: this model hears whole utterances, at pauses; leave it out"
    )  # fmt: skip
    with open_session(served) as client:
        assert receive(client)["partials"] is False
    version = served.models[0].current
    assert version
    assert isinstance(version.engine, Recognizer)
    version.engine.finder = None
    status, told = refused("model=asr")
    assert (status, "cannot stream: its layers also read backward" in told) == (400, True)


@pytest.mark.parametrize(
    ("sent", "told", "code"),
    [
        ("nonsense", "is accepted", 1008),
        ("[" * 100_000, "is accepted", 1008),
        ('{"type":' * 50_000, "is accepted", 1008),
        (bytes(2 * 5 * RATE), "at most 4 s of audio", 1009),
        (bytes(2**20 + 2), "", 1009),
        (None, "no message for 0.8 s", 1008),
    ],
)
def test_a_session_has_limits(served: Served, sent: Any, told: str, code: int) -> None:
    with open_session(served) as client:
        receive(client)
        if sent is not None:
            client.send(sent)
        if told:
            error = receive(client)
            assert (error["type"], told in error["error"]["message"]) == ("error", True)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(PATIENCE_SECONDS)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


def test_a_session_outlives_the_time_for_a_requests_head(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    served = Served(tmp_path / "registry", LIMITS, http=ImpatientConnection)
    with contextlib.ExitStack() as stack:
        stack.callback(served.stop)
        client = stack.enter_context(open_session(served))
        receive(client)
        for part in np.array_split(PCM, 3):
            time.sleep(0.1)
            client.send(part.tobytes())
        assert finish(client)[-1]["type"] == "final"


def test_segments_of_a_caller_who_agreed_are_kept(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(tmp_path / "registry", ServingLimits(), capture=capture)
    segments = "model=asr&endpoint_ms=40&chunk_ms=50"
    try:
        for query, headers in (
            (segments, {}),
            (f"{segments}&consent=no", {}),
            (f"{segments}&consent=no", {"x-voxline-consent": "yes"}),
            (f"{segments}&consent=yes&speaker=Jane%20Doe", {}),
        ):
            with open_session(running, query, additional_headers=headers) as client:
                client.send(PCM.tobytes())
                assert not any("capture" in message for message in finish(client))
        with open_session(running, f"{segments}&consent=yes:terms-2026&speaker=p-7") as client:
            for at in range(0, PCM.nbytes, 9_999):  # within samples
                client.send(PCM.tobytes()[at : at + 9_999])
            finals = [one for one in finish(client) if one["type"] == "final"]
        with open_session(running, additional_headers={"x-voxline-consent": "yes"}) as client:
            client.send(PCM.tobytes())
            (whole,) = [one for one in finish(client) if one["type"] == "final"]
        heard = {one["capture"]: one["text"] for one in finals if "capture" in one}
        assert len(heard) == sum(bool(one["text"]) for one in finals) > 2
        for nothing in (b"", b"x"):
            with open_session(running, "model=asr&consent=yes") as client:
                client.send(nothing)
                assert "capture" not in finish(client)[-1]
        wait_until(lambda: capture.counts.total() == len(heard) + 1, "the clips")
    finally:
        running.stop()
    clips = {clip.id: clip for clip in CaptureStore(tmp_path / "kept").clips()}
    assert {id: clips[id].text for id in heard} == heard
    assert {(clips[id].consent, clips[id].speaker) for id in heard} == {("yes:terms-2026", "p-7")}
    parts = [clip_samples(tmp_path / "kept", id) for id in heard]  # in the order in which they were spoken
    joined = np.concatenate(parts)
    np.testing.assert_array_equal(joined, PCM[: len(joined)])
    assert [clips[id].seconds for id in heard] == [round(len(part) / RATE, 3) for part in parts]
    np.testing.assert_array_equal(clip_samples(tmp_path / "kept", whole["capture"]), PCM)


@pytest.mark.parametrize("kept_seconds", [0.15, 1.0])
def test_a_segment_has_its_own_audio_in_a_message_longer_than_what_is_held(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_seconds: float
) -> None:
    monkeypatch.setattr(realtime, "KEPT_SECONDS", kept_seconds)
    push(tmp_path / "registry", models[0])
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(tmp_path / "registry", ServingLimits(), capture=capture)
    try:
        with open_session(running, "model=asr&endpoint_ms=40&chunk_ms=50&consent=yes") as client:
            client.send(PCM.tobytes())
            ids = [one["capture"] for one in finish(client) if "capture" in one]
        wait_until(lambda: capture.counts.total() == len(ids), "the clips")
    finally:
        running.stop()
    assert len(ids) > 2
    parts = [clip_samples(tmp_path / "kept", id) for id in ids]
    assert max(map(len, parts)) <= kept_seconds * RATE
    whole, begins = PCM.tobytes(), [0]
    for part in parts:
        begins.append(whole.find(part.tobytes(), begins[-1]) + part.nbytes)
        assert begins[-1] >= part.nbytes
    if kept_seconds == 1.0:
        assert begins[-1] == sum(part.nbytes for part in parts)


def test_a_segment_during_which_its_speaker_is_erased_is_not_kept(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(tmp_path / "registry", ServingLimits(), capture=capture)
    pcm = PCM.tobytes()
    try:
        with open_session(running, "model=asr&consent=yes&speaker=p-7") as client:
            receive(client)
            client.send(pcm[:30_000])
            assert receive(client)["type"] == "partial"
            time.sleep(1.1)  # times are whole seconds
            erase_recordings(tmp_path / "kept", "p-7")
            time.sleep(1.1)
            client.send(pcm[30_000:])
            finish(client)
        wait_until(lambda: capture.counts.total() == 1, "the clip")
    finally:
        running.stop()
    assert capture.counts == {"dropped": 1}
    assert not list(CaptureStore(tmp_path / "kept").clips())


@pytest.mark.slow
def test_a_segment_that_is_too_long_is_not_kept(models: list[Path], tmp_path: Path) -> None:
    push(tmp_path / "registry", models[0])
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(tmp_path / "registry", ServingLimits(), capture=capture)
    try:
        with open_session(running, "model=asr&consent=yes") as client:
            for _ in range(31):
                client.send(PCM.tobytes())
            final = finish(client)[-1]
        assert final["text"]
        assert "capture" not in final
        assert capture.counts.total() == 0
    finally:
        running.stop()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_sessions_at_once_and_waits_for_no_idle_thread(
    number: signal.Signals, models: list[Path], tmp_path: Path
) -> None:
    push(tmp_path / "registry", models[0])
    process, url = start_process(tmp_path / "registry", further=[])
    try:
        soundfile.write(tmp_path / "a.wav", PCM, RATE)
        form = {"data": {"model": "asr"}, "files": {"file": ("a.wav", (tmp_path / "a.wav").read_bytes())}}
        assert httpx.post(f"{url}/v1/audio/transcriptions", **form, timeout=PATIENCE_SECONDS).status_code == 200
        with connect(f"{url.replace('http', 'ws')}/v1/stream?model=asr", proxy=None) as client:
            assert receive(client)["type"] == "session"
            client.send(PCM.tobytes())
            assert receive(client)["type"] == "partial"
            process.send_signal(number)
            with pytest.raises(ConnectionClosed) as closed:
                collections.deque(client, maxlen=0)  # of messages on their way
        printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1012
    assert "a call has not" not in printed
    assert process.returncode == (0 if number == signal.SIGINT else -number)  # uvicorn raises SIGTERM again at its end
