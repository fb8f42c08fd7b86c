"""How sessions on a WebSocket count in a canary: once, and neither arm looks better than it is."""

import time
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.serving.canary_sessions import (
    HALF,
    LOUD,
    QUIET,
    Serve,
    counted,
    engine_of,
    heard_by,
    names_for,
    session_of,
    turns_of,
)
from tests.serving.test_realtime import finish, receive
from tests.serving.test_server import push
from tests.tone_asr_model import RATE
from tests.waiting import wait_until
from voxline.feedback.canary_state import CanaryPair, CanaryStore
from voxline.inference.transcript import Transcript
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.serving import session_stream
from voxline.serving.canary_trial import CanaryTrial
from voxline.serving.limits import ServingLimits


def test_a_client_who_goes_counts_by_what_was_heard_and_one_who_said_nothing_does_not(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    push(root, models["second"], CANDIDATE)
    served = serve()
    for arm in (CANDIDATE, PRODUCTION):
        silent, spoke = names_for(served, arm, 2)
        with session_of(served, silent):
            pass
        with session_of(served, spoke) as (client, _):
            client.send(QUIET.tobytes())
            receive(client)
            client.socket.close()
    wait_until(lambda: served.server.realtime.streams + served.canaries[0].streams == 0, "the end of the sessions")
    found = counted(served)
    assert (found["requests"], found["of_candidate"]) == (2, 1)
    assert found["measures"]["empty"]["candidate"] == 0.0


def test_a_session_without_an_end_counts_after_a_while_also_if_nothing_is_heard_in_it(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_stream, "WINDOW_SECONDS", 1.5)  # on a busy machine audio comes late
    push(root, models["second"], CANDIDATE)
    served = serve()
    with session_of(served, *names_for(served, CANDIDATE)) as (client, _):
        client.send(bytes(2 * RATE))
        wait_until(lambda: counted(served)["requests"] == 1, "the count")
        client.send(LOUD.tobytes())
        assert finish(client)[-1]["version"] == 2
    found = counted(served)
    assert (found["requests"], found["measures"]["empty"]["candidate"]) == (1, 1.0)


def test_each_arm_has_room_for_as_many_sessions(root: Path, models: dict[str, Path], serve: Serve) -> None:
    push(root, models["second"], CANDIDATE)
    served = serve(ServingLimits(streams=1))
    candidates, (production, *_) = names_for(served, CANDIDATE, 3), names_for(served, PRODUCTION)
    with session_of(served, candidates[0]) as (first, _):
        with session_of(served, candidates[1]) as (second, about):
            assert (about["arm"], about["version"]) == (PRODUCTION, 1), "the candidate is full"
            for full in (candidates[2], production):
                with pytest.raises(InvalidStatus) as caught, session_of(served, full):
                    pass
                assert caught.value.response.status_code == 429
            second.send(QUIET.tobytes())
            assert finish(second)[-1]["text"] == heard_by(models["first"], QUIET)
        first.send(QUIET.tobytes())
        assert finish(first)[-1]["text"] == heard_by(models["second"], QUIET)
    wait_until(lambda: served.server.realtime.streams + served.canaries[0].streams == 0, "the end of the sessions")
    found = counted(served)
    assert (found["requests"], found["of_candidate"]) == (4, 3)
    assert found["measures"]["failed"]["candidate"] == pytest.approx(2 / 3)
    assert found["measures"]["failed"]["production"] == 1.0


def test_a_candidate_that_cannot_stream_fails_where_production_can(
    root: Path, models: dict[str, Path], serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    push(root, models["still"], CANDIDATE)
    served = serve()
    trial = served.canaries[0]._trial
    assert trial
    trial.candidate.engine.finder = None  # nor can it hear at pauses
    with session_of(served, *names_for(served, CANDIDATE)) as (client, about):
        assert (about["arm"], about["version"]) == (PRODUCTION, 1)
        client.send(QUIET.tobytes())
        assert finish(client)[-1]["text"] == heard_by(models["first"], QUIET)
    assert counted(served)["measures"]["failed"]["candidate"] == 1.0
    assert "version 2, the candidate: " in (printed := capsys.readouterr().out)
    assert "cannot stream: its layers also read backward" in printed
    trial.candidate.engine.sample_rate = 8000
    with session_of(served, *names_for(served, CANDIDATE)) as (client, _):
        assert "arm" not in finish(client)[-1], "its audio could not be heard by production"


def test_streams_are_as_slow_as_other_streams(tmp_path: Path) -> None:
    pair = CanaryPair(1, 2, 2)
    store = CanaryStore(tmp_path, "asr", pair)
    store.start()
    trial = CanaryTrial(store, pair, None, None, HALF, 1000.0, ("failed", "slow"))  # type: ignore[arg-type]
    heard = Transcript("a", [], None, 1.0)
    costs = {False: 1.0, True: 5.0}
    for is_stream, cost in costs.items():
        for _ in range(20):
            turn = trial.begin("", is_stream=is_stream)
            turn.chosen = False
            turn.finish(cost, 1.0, heard)
    for is_stream, cost in costs.items():
        for times, slow in ((1.4, 0.0), (1.6, 1.0)):
            turn = trial.begin("", is_stream=is_stream)
            turn.chosen = True
            turn.finish(times * cost, 1.0, heard)
            assert turn.values
            assert turn.values["slow"] == slow


def test_making_the_stream_is_not_computing(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of production it is made before the session begins."""
    push(root, models["second"], CANDIDATE)
    served = serve()
    ended, make = turns_of(served), engine_of(served, CANDIDATE).stream
    monkeypatch.setattr(engine_of(served, CANDIDATE), "stream", lambda **how: time.sleep(0.5) or make(**how))
    with session_of(served, *names_for(served, CANDIDATE)) as (client, _):
        client.send(QUIET.tobytes())
        finish(client)
    wait_until(lambda: ended, "the end of the turn")
    assert (ended[0].arm, ended[0].failed) == (CANDIDATE, False)
    assert ended[0].cost * len(QUIET) / RATE < 0.5


def test_a_message_that_is_too_late_fails_on_either_arm(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal versions on a machine that is too slow: neither may look better."""
    push(root, models["first"], CANDIDATE)
    served = serve(ServingLimits(canary_stream_seconds=0.2))
    for arm in (PRODUCTION, CANDIDATE):
        engine = engine_of(served, arm)
        engine.stream()
        assert engine._streaming
        step = engine._streaming.step
        monkeypatch.setattr(engine._streaming, "step", lambda *how, step=step: time.sleep(0.3) or step(*how))
        with session_of(served, *names_for(served, arm), "&chunk_ms=2000") as (client, _):
            client.send(QUIET.tobytes())
            assert finish(client)[-1]["text"] == heard_by(models["first"], QUIET)
    failed = counted(served)["measures"]["failed"]
    assert (failed["production"], failed["candidate"]) == (1.0, 1.0)


def test_a_session_that_is_counted_as_overdue_is_in_the_metrics(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    push(root, models["second"], CANDIDATE)
    served = serve()
    trial = served.canaries[0]._trial
    assert trial
    for arm in (CANDIDATE, PRODUCTION):
        with session_of(served, *names_for(served, arm)) as (client, _):
            client.send(QUIET.tobytes())
            receive(client)
            trial.stream_seconds = 0.0
            trial.settle()
            trial.stream_seconds = 45.0
            finish(client)
    wait_until(lambda: served.server.realtime.streams + served.canaries[0].streams == 0, "the end of the sessions")
    metrics = httpx.get(f"{served.url}/metrics").text
    for arm in (CANDIDATE, PRODUCTION):
        assert f'voxline_serve_arm_requests_total{{arm="{arm}",model="asr",outcome="failed"}} 1.0' in metrics
