"""How a canary counts: in the order of the requests, each session once, on several servers."""

import concurrent.futures
from pathlib import Path

import numpy as np
import pytest

from voxline.errors import WorkError
from voxline.feedback.canary_state import (
    CanaryPair,
    CanarySettings,
    CanaryState,
    CanaryStore,
)
from voxline.inference.transcript import Transcript
from voxline.serving.canary_trial import CanaryTrial

HALF = CanarySettings(0.5, 0.05)
HEARD = ("failed", "slow", "empty")


def test_requests_count_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    store = CanaryStore(tmp_path, "asr", CanaryPair(1, 2, 2))
    store.start()
    trial = CanaryTrial(store, CanaryPair(1, 2, 2), None, None, HALF, 1000.0, HEARD)  # type: ignore[arg-type]
    first, second, third = (trial.begin("") for _ in range(3))
    second.fail()
    third.finish(1.0, 1.0, Transcript("a", [], None, 1.0))
    assert sum(arm.count for arm in _arms(trial.state)) == 0, "the first might have failed as well"
    first.drop()
    assert sum(arm.count for arm in _arms(trial.state)) == 2
    first.fail()
    assert sum(arm.count for arm in _arms(trial.state)) == 2, "a request ends once"
    hanging = CanaryTrial(store, CanaryPair(1, 2, 2), None, None, HALF, 0.0, HEARD)  # type: ignore[arg-type]
    late = hanging.begin("")
    hanging.settle()
    late.finish(1.0, 1.0, None)
    assert sum(arm.total for arm in _arms(hanging.state)) == 1, "no answer in time is none"


def _arms(state: CanaryState) -> list:  # type: ignore[type-arg]
    return [state.tests["failed"].production, state.tests["failed"].candidate]


def test_two_servers_that_claim_a_session_at_the_same_time_do_not_both_count_it(tmp_path: Path) -> None:
    pair = CanaryPair(1, 2, 2)
    stores = [CanaryStore(tmp_path, "asr", pair) for _ in range(2)]
    trials = []
    for store in stores:
        store.start()
        trials.append(CanaryTrial(store, pair, None, None, HALF, 1000.0, HEARD))  # type: ignore[arg-type]
    for number in range(20):
        turns = [trial.begin(f"caller-{number}") for trial in trials]
        assert turns[0].chosen == turns[1].chosen
        for turn in turns:
            turn.fail()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(CanaryTrial.sync, trials))
    state = CanaryState.merged(stores[0].read().values())
    assert sum(arm.count for arm in _arms(state)) <= 20
    assert len(state.sessions) == 20


def test_a_server_publishes_only_what_has_changed(tmp_path: Path) -> None:
    store = CanaryStore(tmp_path, "asr", CanaryPair(1, 2, 2))
    store.start()
    trial = CanaryTrial(store, CanaryPair(1, 2, 2), None, None, HALF, 1000.0, HEARD)  # type: ignore[arg-type]
    trial.sync()
    (file,) = store.read()
    path = tmp_path / "asr" / "canary" / "1-2-2" / f"{file}.json"
    first = path.stat().st_ino
    trial.sync()
    assert path.stat().st_ino == first
    for session in ("", "caller"):
        trial.begin(session).fail()
        before = path.stat().st_mtime_ns
        trial.sync()
        assert path.stat().st_mtime_ns > before
    path.unlink()
    trial.sync()
    assert sum(arm.count for arm in _arms(CanaryState.merged(store.read().values()))) == 2, "a lost file comes back"
    path.write_text("{")
    with pytest.raises(WorkError):
        trial.sync()
    trial.sync()
    assert sum(arm.count for arm in _arms(CanaryState.merged(store.read().values()))) == 2, "so does a damaged one"


def test_a_session_is_still_counted_after_a_lost_file_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CanaryStore(tmp_path, "asr", CanaryPair(1, 2, 2))
    store.start()
    trial = CanaryTrial(store, CanaryPair(1, 2, 2), None, None, HALF, 1000.0, HEARD)  # type: ignore[arg-type]
    trial.begin("caller").fail()
    publish, read = store.publish, store.read
    calls = iter([publish, lambda *_: (_ for _ in ()).throw(WorkError("the disk is full"))])
    monkeypatch.setattr(store, "publish", lambda *given: next(calls, publish)(*given))
    reads = iter([dict])
    monkeypatch.setattr(store, "read", lambda: next(reads, read)())
    with pytest.raises(WorkError, match="the disk is full"):
        trial.sync()
    assert sum(arm.count for arm in _arms(trial.sync())) == 1


def test_the_shares_hold(tmp_path: Path) -> None:
    store = CanaryStore(tmp_path, "asr", CanaryPair(1, 2, 2))
    store.start()
    numbers = np.array([store.hash_of(f"caller-{number}")[1] for number in range(4000)])
    assert abs((numbers < 0.1).mean() - 0.1) < 0.02
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.06
