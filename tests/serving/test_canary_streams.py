"""Sessions on a WebSocket in a canary: whatever becomes of the candidate, their callers lose nothing."""

import asyncio
import dataclasses
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.serving.canary_sessions import (
    LOUD,
    QUIET,
    SPOKEN,
    Serve,
    counted,
    engine_of,
    heard_by,
    names_for,
    partial_text,
    session_of,
    turns_of,
    withdrawn,
)
from tests.serving.test_realtime import clip_samples, finish, open_session, receive
from tests.serving.test_server import push, wav
from tests.tone_asr_model import RATE
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.inference.recognizer import Recognizer
from voxline.inference.streaming import RecognitionStream
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.serving import session_stream
from voxline.serving.capture import Capture, CaptureSettings
from voxline.serving.followed_model import FollowedModel, LoadedVersion
from voxline.serving.limits import ServingLimits
from voxline.serving.session_stream import CanaryStream


def test_a_session_is_heard_by_its_arm_and_counts_once(root: Path, models: dict[str, Path], serve: Serve) -> None:
    push(root, models["second"], CANDIDATE)
    served = serve()
    expected = {PRODUCTION: (1, heard_by(models["first"], LOUD)), CANDIDATE: (2, heard_by(models["second"], LOUD))}
    for arm, (version, text) in expected.items():
        (name,) = names_for(served, arm)
        with session_of(served, name) as (client, _):
            client.send(LOUD.tobytes())
            (whole,) = [one for one in finish(client) if one["type"] == "final"]
        assert (whole["arm"], whole["version"], whole["text"]) == (arm, version, text)
        with session_of(served, name, "&endpoint_ms=40&chunk_ms=50") as (client, about):
            assert (about["arm"], about["version"]) == (arm, version)
            client.send(LOUD.tobytes())
            finals = [one for one in finish(client) if one["type"] == "final"]
        assert len(finals) > 2
        assert {(one["arm"], one["version"]) for one in finals} == {(arm, version)}
        answer = httpx.post(
            f"{served.url}/v1/audio/transcriptions",
            data={"model": "asr", "session": name},
            files={"file": ("a.wav", wav())},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.headers["x-voxline-arm"] == arm
    found = counted(served)
    assert (found["requests"], found["of_candidate"]) == (2, 1)
    assert found["measures"]["failed"] | {"harm": 0, "safe": 0} == {
        "production": 0.0,
        "candidate": 0.0,
        "harm": 0,
        "safe": 0,
    }
    wait_until(lambda: served.canaries[0].streams == 0, "the end of the candidate's session")


@pytest.mark.parametrize("pieces", [1, 7])
def test_production_takes_over_from_a_candidate_that_fails_while_somebody_speaks(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(session_stream, "REPLAY_SECONDS", 0.7)
    push(root, models["fragile"], CANDIDATE)
    served = serve()
    with session_of(served, *names_for(served, CANDIDATE)) as (client, about):
        assert about["version"] == 2
        client.send(QUIET.tobytes())
        assert receive(client)["text"] == partial_text(models["second"], QUIET)
        for piece in np.array_split(LOUD, pieces):
            client.send(piece.tobytes())
        last = finish(client)[-1]
    assert (last["text"], last["version"], last["arm"]) == (heard_by(models["first"], SPOKEN), 1, PRODUCTION)
    found = counted(served)
    assert (found["of_candidate"], found["measures"]["failed"]["candidate"]) == (1, 1.0)
    health = httpx.get(f"{served.url}/healthz").json()["models"]["asr"]["canary"]
    assert (health["takeovers"], health["streams"]) == (1, 0)
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_canary_takeovers{model="asr"} 1.0' in metrics
    assert 'voxline_serve_arm_requests_total{arm="candidate",model="asr",outcome="failed"} 1.0' in metrics
    assert "voxline_serve_arm_seconds_count" not in metrics


def test_what_was_final_before_the_failure_is_not_heard_again_and_times_go_on(
    root: Path, models: dict[str, Path], serve: Serve, tmp_path: Path
) -> None:
    push(root, models["fragile"], CANDIDATE)
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    served = serve(capture=capture)
    with session_of(served, *names_for(served, CANDIDATE), "&endpoint_ms=40&chunk_ms=50&consent=yes") as (client, _):
        client.send(QUIET.tobytes())
        client.send(LOUD.tobytes())
        finals = [one for one in finish(client) if one["type"] == "final"]
    wait_until(lambda: capture.counts.total() == sum("capture" in one for one in finals), "the clips")
    before = [one for one in finals if one["version"] == 2]
    after = [one for one in finals if one["version"] == 1]
    assert len(before) > 1
    assert len(after) > 1
    heard = np.concatenate([clip_samples(tmp_path / "kept", one["capture"]) for one in before])
    np.testing.assert_array_equal(heard, SPOKEN[: len(heard)])
    rest = SPOKEN[len(heard) :]
    stream = Recognizer(models["first"]).stream(endpoint_ms=40, chunk_ms=50)
    expected = [*stream.feed(rest).segments, stream.finish()]
    assert [one["text"] for one in after] == [one.text for one in expected]
    begins = [[word.start for word in one.words] for one in expected]
    for one, starts in zip(after, begins, strict=True):
        found = [word["start"] for word in one["words"]]
        np.testing.assert_allclose(found, np.array(starts) + len(heard) / RATE, atol=0.002)
    clips = [clip_samples(tmp_path / "kept", one["capture"]) for one in finals if "capture" in one]
    np.testing.assert_array_equal(np.concatenate(clips), SPOKEN[: sum(map(len, clips))])


def test_sessions_alone_withdraw_a_candidate_that_hangs_and_all_of_them_are_answered(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(root, models["second"], CANDIDATE)
    served, free = serve(ServingLimits(concurrency=1, streams=3, canary_stream_seconds=0.2)), threading.Event()
    trial = served.canaries[0]._trial
    assert trial
    engine = trial.candidate.engine
    assert isinstance(engine, Recognizer)
    engine.stream()
    monkeypatch.setattr(engine._streaming, "step", lambda *_: free.wait(PATIENCE_SECONDS))
    heard = []
    try:
        while not withdrawn(root):
            with open_session(served) as client:
                client.send(QUIET.tobytes())
                heard.append(finish(client)[-1]["text"])
            assert len(heard) < 100
    finally:
        free.set()
    assert set(heard) == {heard_by(models["first"], QUIET)}
    assert "requests without an answer 100.0%, in production 0.0%" in withdrawn(root)[0]


def test_a_session_is_taken_over_when_its_candidate_is_withdrawn_and_stays_when_it_is_promoted(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    registry = push(root, models["second"], CANDIDATE)
    served = serve()
    canary = served.canaries[0]
    first, second = names_for(served, CANDIDATE, 2)
    with session_of(served, first) as (client, about):
        assert about["version"] == 2
        client.send(LOUD.tobytes())
        receive(client)
        registry.withdraw(2, "a person heard it")
        wait_until(lambda: canary.describe()["verdict"] == "none", "the end of the canary")
        client.send(QUIET.tobytes())
        last = finish(client)[-1]
    assert (last["version"], last["text"]) == (1, heard_by(models["first"], np.concatenate([LOUD, QUIET])))
    registry.promote(2, CANDIDATE, note="heard again")
    wait_until(lambda: canary.describe()["candidate"] == 2, "the second trial")
    (second,) = names_for(served, CANDIDATE)
    with session_of(served, second) as (client, about):
        assert about["version"] == 2
        client.send(LOUD.tobytes())
        receive(client)
        registry.promote(2)
        wait_until(lambda: canary.describe()["verdict"] == "none", "the end of the canary")
        client.send(QUIET.tobytes())
        last = finish(client)[-1]
    assert (last["version"], last["text"]) == (2, heard_by(models["second"], np.concatenate([LOUD, QUIET])))
    assert canary.takeovers == 1


def test_production_takes_over_where_the_candidate_hangs_when_it_is_counted(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count_soon(stream: CanaryStream) -> None:
        while not stream._samples:
            await asyncio.sleep(0.01)
        async with stream._one_at_a_time:
            await stream._count_so_far()

    monkeypatch.setattr(CanaryStream, "_count_in_time", count_soon)
    free = threading.Event()
    monkeypatch.setattr(RecognitionStream, "so_far", lambda _: free.wait(PATIENCE_SECONDS))
    push(root, models["second"], CANDIDATE)
    served = serve(ServingLimits(canary_stream_seconds=0.2))
    try:
        with session_of(served, *names_for(served, CANDIDATE)) as (client, about):
            assert about["version"] == 2
            client.send(QUIET.tobytes())
            wait_until(lambda: counted(served)["requests"] == 1, "the count")
            client.send(LOUD.tobytes())
            last = finish(client)[-1]
    finally:
        free.set()
    assert (last["version"], last["text"]) == (1, heard_by(models["first"], SPOKEN))
    assert counted(served)["measures"]["failed"]["candidate"] == 1.0


def test_a_session_whose_version_was_replaced_while_it_began_has_no_part_in_the_canary(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(root, models["second"], CANDIDATE)
    served = serve()
    find = served.server.realtime._find

    def find_earlier(name: str) -> tuple[FollowedModel, LoadedVersion, Recognizer]:
        model, version, recognizer = find(name)
        return model, dataclasses.replace(version, version=7), recognizer

    monkeypatch.setattr(served.server.realtime, "_find", find_earlier)
    with session_of(served, *names_for(served, PRODUCTION)) as (client, about):
        assert (about["version"], "arm" in about) == (7, False)
        client.send(QUIET.tobytes())
        assert finish(client)[-1]["version"] == 7


def test_a_candidate_that_was_withdrawn_delays_nobody(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in another session, so what it heard in this one could not be asked for."""
    registry = push(root, models["second"], CANDIDATE)
    served, free = serve(ServingLimits(concurrency=1, canary_stream_seconds=30)), threading.Event()
    engine, (one, other) = engine_of(served, CANDIDATE), names_for(served, CANDIDATE, 2)
    ended = turns_of(served)
    with session_of(served, one) as (client, about):
        assert about["version"] == 2
        client.send(QUIET.tobytes())
        receive(client)
        monkeypatch.setattr(engine._streaming, "step", lambda *_: free.wait(PATIENCE_SECONDS))
        try:
            with session_of(served, other) as (hung, _):
                hung.send(QUIET.tobytes())
                wait_until(lambda: served.canaries[0].stream_threads._pending, "the call that hangs")
                registry.withdraw(2, "a person heard it")
                wait_until(lambda: served.canaries[0].describe()["verdict"] == "none", "the end of the canary")
                began = time.monotonic()
                client.send(LOUD.tobytes())
                last = finish(client)[-1]
                assert time.monotonic() - began < 25
        finally:
            free.set()
    assert (last["version"], last["text"]) == (1, heard_by(models["first"], SPOKEN))
    assert ended[0].values is None, "nothing is compared any more"


def test_a_candidate_that_hung_takes_neither_threads_nor_room_from_the_next_one(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = push(root, models["second"], CANDIDATE)
    served, free = serve(ServingLimits(concurrency=1, streams=1, canary_stream_seconds=0.5)), threading.Event()
    canary, engine = served.canaries[0], engine_of(served, CANDIDATE)
    engine.stream()
    monkeypatch.setattr(engine._streaming, "step", lambda *_: free.wait(PATIENCE_SECONDS))
    try:
        with session_of(served, *names_for(served, CANDIDATE)) as (first, about):
            assert about["version"] == 2
            first.send(QUIET.tobytes())
            receive(first)
            registry.withdraw(2, "a person heard it")
            push(root, models["second"], CANDIDATE)
            wait_until(lambda: canary.describe()["candidate"] == 3, "the next candidate")
            with session_of(served, *names_for(served, CANDIDATE)) as (second, about):
                assert "arm" not in about, "the session of the one before has the room, which is no fault of this one"
                second.send(QUIET.tobytes())
                assert finish(second)[-1]["version"] == 1
            assert finish(first)[-1]["version"] == 1
        wait_until(lambda: canary.streams + served.server.realtime.streams == 0, "the end of the sessions")
        with session_of(served, *names_for(served, CANDIDATE)) as (third, about):
            third.send(QUIET.tobytes())
            last = finish(third)[-1]
    finally:
        free.set()
    assert (last["version"], last["arm"]) == (3, CANDIDATE)
    found = counted(served)
    assert (found["requests"], found["measures"]["failed"]["candidate"]) == (1, 0.0)
