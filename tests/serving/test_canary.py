"""The canary, over HTTP with real models: a candidate that is worse is withdrawn, and no caller gets an error."""

import concurrent.futures
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.feedback.judged_model import push_judged
from tests.serving.broken_models import export_fragile, export_silent, export_slow
from tests.serving.test_server import Served, push, wav
from tests.tone_asr_model import export_onnx_tones
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import SettingsError, WorkError
from voxline.feedback.canary_state import (
    CONTINUE,
    CanarySettings,
    describe_canary,
)
from voxline.inference.transcript import Transcript
from voxline.pipelines.cli.main import main
from voxline.registry.journal import CANDIDATE, WITHDRAW
from voxline.registry.models_config import MODELS_CONFIG, write_models_config
from voxline.registry.registry import Registry
from voxline.serving.app import RecognizerServer
from voxline.serving.limits import ServingLimits

HALF = CanarySettings(0.5, 0.05)
Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made = {"good": export_onnx_tones, "fragile": export_fragile, "silent": export_silent, "slow": export_slow}
    return {name: make(folder / name) for name, make in made.items()}


@pytest.fixture
def root(tmp_path: Path, models: dict[str, Path]) -> Path:
    """A registry with the good model in production."""
    push(tmp_path / "registry", models["good"])
    return tmp_path / "registry"


@pytest.fixture
def serve(root: Path) -> Iterator[Serve]:
    running: list[Served] = []

    def start(canary: CanarySettings = HALF, limits: ServingLimits | None = None) -> Served:
        running.append(Served(root, limits, canary=canary))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def send(client: httpx.Client, served: Served, session: str = "", words: str = "one two") -> httpx.Response:
    return client.post(
        f"{served.url}/v1/audio/transcriptions",
        data={"model": "asr"},
        files={"file": ("a.wav", wav(words))},
        headers={"x-voxline-session": session} if session else {},
        timeout=PATIENCE_SECONDS,
    )


def send_until(true: Callable[[], object], servers: list[Served], most: int = 1000) -> list[httpx.Response]:
    """Sends requests to servers in turn until something is true."""
    answers = []
    with httpx.Client() as client:
        for served in itertools.islice(itertools.cycle(servers), most):
            answers.append(send(client, served))
            if true():
                return answers
    raise AssertionError(f"not after {most} requests: {describe_canary(*_at(servers[0]))}")


def _at(served: Served) -> tuple[Path, str]:
    return Path(served.canaries[0]._root), "asr"


def withdrawn(root: Path) -> list[str]:
    return [event.note for event in Registry(root, "asr").journal() if event.action == WITHDRAW]


def test_a_candidate_that_fails_is_withdrawn_under_load_and_no_caller_notices(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    registry = push(root, models["fragile"], CANDIDATE)
    write_models_config(root)
    served, stop = serve(), threading.Event()

    def call() -> list[tuple[int, str, str, str]]:
        heard = []
        with httpx.Client() as client:
            while not stop.is_set():
                one = send(client, served)
                headers = one.headers
                heard.append((one.status_code, one.json()["text"], headers["x-voxline-version"], served.url))
        return heard

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(call) for _ in range(3)]
        try:
            wait_until(lambda: withdrawn(root) or any(one.done() for one in callers), "the rollback")
            wait_until(lambda: served.canaries[0].describe()["verdict"] == "none", "the end of the canary")
        finally:
            stop.set()
        heard = [one for caller in callers for one in caller.result()]
    assert set(heard) == {(200, "one two", "1", served.url)}, "production answered in the place of the candidate"
    (note,) = withdrawn(root)
    assert note.startswith("canary: requests without an answer 100.0%, in production 0.0%; ")
    assert (registry.in_service(), registry.candidate()) == (1, None)
    wait_until(lambda: "asr@candidate" not in (root / MODELS_CONFIG).read_text(), "TensorFlow Serving's file")
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'voxline_serve_canary_rollbacks{model="asr"} 1.0' in metrics
    assert 'voxline_serve_canary_version{model="asr"} 0.0' in metrics
    assert 'voxline_serve_arm_requests_total{arm="candidate",model="asr",outcome="failed"}' in metrics
    assert 'voxline_serve_arm_seconds_count{arm="production",model="asr"}' in metrics
    assert "voxline_serve_capture" not in metrics, "there are no captures here"


def test_one_that_hears_nothing_is_withdrawn_and_the_answers_say_who_made_them(
    root: Path, models: dict[str, Path], serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    push(root, models["silent"], CANDIDATE)
    served = serve()
    answers = send_until(lambda: withdrawn(root), [served])
    # Once the verdict is there, requests have no arm, and the registry is written a moment later.
    of_arms = [a for a in answers if "x-voxline-arm" in a.headers]
    made = {(a.headers["x-voxline-arm"], a.headers["x-voxline-version"], a.json()["text"]) for a in of_arms}
    assert made == {("production", "1", "one two"), ("candidate", "2", "")}
    assert "empty texts 100.0%, in production 0.0%" in withdrawn(root)[0]
    assert len(answers) < 100
    printed = capsys.readouterr().out
    assert f"serve: asr: version 2, the candidate, is withdrawn: {withdrawn(root)[0]}" in printed
    wait_until(lambda: "x-voxline-arm" not in served.send(wav()).headers, "the end")


@pytest.mark.slow
def test_a_slow_one_is_withdrawn(root: Path, models: dict[str, Path], serve: Serve) -> None:
    push(root, models["slow"], CANDIDATE)
    send_until(lambda: withdrawn(root), [serve()])
    assert "slow answers" in withdrawn(root)[0]


@pytest.mark.slow
def test_one_that_makes_more_errors_is_withdrawn_by_its_confidences(tmp_path: Path) -> None:
    """Both hear the same words; by its own test split, the candidate's confidence stands for more errors."""
    push_judged(tmp_path / "registry", tmp_path / "a", {})
    confused = {"one": "six", "two": "six", "three": "six", "four": "six"}
    push_judged(tmp_path / "registry", tmp_path / "b", confused, CANDIDATE)
    served = Served(tmp_path / "registry", canary=HALF)
    try:
        send_until(lambda: withdrawn(tmp_path / "registry"), [served])
    finally:
        served.stop()
    assert "estimated WER" in withdrawn(tmp_path / "registry")[0]


def test_an_equal_one_is_shown_to_be_safe_and_promoted_only_if_that_is_wanted(
    root: Path, models: dict[str, Path], serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = push(root, models["good"], CANDIDATE)
    only_told = serve(CanarySettings(0.5, 0.3))
    send_until(lambda: only_told.canaries[0].describe()["verdict"] == "promotable", [only_told])
    wait_until(lambda: "version 2 can be promoted: canary: not worse" in capsys.readouterr().out, "the line", 0.2)
    assert registry.candidate() == 2
    only_told.stop()
    promoting = serve(CanarySettings(0.5, 0.3, promote=True))
    wait_until(lambda: registry.in_service() == 2, "the promotion: the state survived the restart")
    assert registry.journal()[-1].note.startswith("canary: not worse than production by 30.0% in anything; ")
    assert promoting.models[0].refresh()
    assert withdrawn(root) == []


@pytest.mark.slow
def test_a_session_stays_with_its_arm_and_counts_once_on_all_servers(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    push(root, models["good"], CANDIDATE)
    servers = [serve(CanarySettings(0.3, 0.5)), serve(CanarySettings(0.3, 0.5))]
    arms: dict[str, set[str]] = {}
    with httpx.Client() as client:
        for session in [f"caller-{number}" for number in range(30)] * 2:
            for served in servers:
                answer = send(client, served, session)
                arms.setdefault(session, set()).add(answer.headers["x-voxline-arm"])
    assert all(len(found) == 1 for found in arms.values())
    assert Counter(one for found in arms.values() for one in found).keys() == {"production", "candidate"}
    for one in servers:
        one.canaries[0].look()
    assert describe_canary(root, "asr")["requests"] <= 30
    files = list((root / "asr" / "canary").rglob("*.json"))
    assert ["caller" in path.read_text() for path in files] == [False, False], "no name of a caller is written"


def test_several_servers_withdraw_it_once_and_all_of_them_stop(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    registry = push(root, models["silent"], CANDIDATE)
    servers = [serve(), serve()]
    send_until(lambda: withdrawn(root), servers)
    for served in servers:
        wait_until(lambda served=served: served.canaries[0].describe()["verdict"] == "none", "the end")
        assert served.send(wav()).json()["text"] == "one two"
    assert len(withdrawn(root)) == 1
    assert sum(served.canaries[0].rollbacks for served in servers) == 1
    registry.promote(2, CANDIDATE, note="heard again")
    wait_until(lambda: servers[0].canaries[0].describe()["candidate"] == 2, "the second trial")
    wait_until(lambda: len(list((root / "asr" / "canary").glob("*-*-*"))) == 1, "the end of the first one's files")
    assert servers[0].canaries[0].describe()["verdict"] == CONTINUE, "which begins with nothing"


def test_a_candidate_that_hangs_takes_nothing_from_production(
    root: Path, models: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(root, models["good"], CANDIDATE)
    served, free = serve(HALF, ServingLimits(concurrency=1, queue=2, canary_seconds=0.5)), threading.Event()
    trial = served.canaries[0]._trial
    assert trial
    monkeypatch.setattr(
        trial.candidate.engine,
        "recognize_waveforms",
        lambda _: free.wait(PATIENCE_SECONDS) and [Transcript("", [], None, 0)],
    )
    try:
        answers = send_until(lambda: withdrawn(root), [served])
    finally:
        free.set()
    assert {(answer.status_code, answer.json()["text"]) for answer in answers} == {(200, "one two")}
    assert len(answers) < 60, "those that it has no room for count"


@pytest.mark.slow
def test_without_a_registry_that_can_be_written_everything_goes_to_production(
    root: Path, models: dict[str, Path], serve: Serve
) -> None:
    push(root, models["silent"], CANDIDATE)
    (root / "asr" / "canary").write_text("in the way")
    served = serve()
    assert [served.send(wav()).json()["text"] for _ in range(5)] == ["one two"] * 5
    health = httpx.get(f"{served.url}/healthz").json()
    assert health["status"] == "degraded"
    assert health["models"]["asr"]["canary"]["fault"]
    (root / "asr" / "canary").unlink()
    send_until(lambda: withdrawn(root), [served])


def test_a_damaged_candidate_gets_nothing(root: Path, models: dict[str, Path], serve: Serve) -> None:
    registry = push(root, models["silent"], CANDIDATE)
    file = root / "asr" / "2" / "model.onnx"
    file.write_bytes(file.read_bytes() + b"\0")
    served = serve()
    assert served.send(wav()).headers["x-voxline-version"] == "1"
    assert "not the ones that were published" in served.canaries[0].fault
    push(root, models["good"], CANDIDATE)
    wait_until(lambda: served.canaries[0].describe()["candidate"] == registry.candidate(), "the next candidate")


def start_process(
    root: Path, command: Sequence[str] = (), further: Sequence[str] = ("--follow", "0.1", "--canary", "0.5")
) -> tuple[subprocess.Popen[str], str]:
    """Starts `voxline serve`, or another command, which gets a port as its last argument but for the further ones."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "voxline", "serve", "--registry", str(root), "--port"]
    process = subprocess.Popen(
        [*(command or serve), str(port), *further], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, process.stdout and process.stdout.read()
        try:
            return httpx.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    wait_until(answers, "the server", 0.1)
    return process, url


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_with_what_it_had_published(root: Path, models: dict[str, Path]) -> None:
    push(root, models["good"], CANDIDATE)
    recording, counted = wav(), 0
    for count in (20, 40):
        process, url = start_process(root)
        try:
            with httpx.Client() as client:
                for _ in range(20):
                    form = {"data": {"model": "asr"}, "files": {"file": ("a.wav", recording)}}
                    assert client.post(f"{url}/v1/audio/transcriptions", **form).status_code == 200
            wait_until(lambda count=count: describe_canary(root, "asr")["requests"] == count, "what was published")
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
        counted = describe_canary(root, "asr")["requests"]
    assert counted == 40
    assert describe_canary(root, "asr")["servers"] == 2


HANG = """
import sys, time
from voxline.serving import canary, server
run = canary.CandidateThreads.run
canary.CandidateThreads.run = lambda threads, work: run(threads, lambda: time.sleep(10_000))
limits = server.ServingLimits(canary_seconds=0.1)
server.run_server(sys.argv[1], ["asr"], "127.0.0.1", int(sys.argv[2]), 5.0, limits, None, canary.CanarySettings(0.5))
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_server_in_which_a_candidate_hangs(root: Path, models: dict[str, Path]) -> None:
    push(root, models["good"], CANDIDATE)
    process, url = start_process(root, [sys.executable, "-c", HANG, str(root)], [])
    try:
        with httpx.Client() as client:
            failed = 'arm="candidate",model="asr",outcome="failed"'
            while failed not in client.get(f"{url}/metrics").text:
                form = {"data": {"model": "asr"}, "files": {"file": ("a.wav", wav())}}
                assert client.post(f"{url}/v1/audio/transcriptions", **form).status_code == 200
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert told.endswith("serve: ends, though a call has not\n")


class SharedUpload(RecognizerServer):
    """Uploads are read in small parts; the first read waits until somebody else reads, a second at most."""

    def _hear(self, recording: Any, reading: threading.Lock, live: Any, recognizer: Any) -> Any:
        if not isinstance(recording.file, _SlowFile):
            recording.file = _SlowFile(recording.file)
        return super()._hear(recording, reading, live, recognizer)


class _SlowFile:
    def __init__(self, file: Any) -> None:
        self._file, self._reads, self._other = file, 0, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int) -> bytes:
        self._reads += 1
        if self._reads == 1:
            self._other.wait(1)
        part: bytes = self._file.read(min(size, 4096))
        if self._reads == 2:
            self._other.set()
            time.sleep(0.1)
        return part


def test_production_hears_the_whole_upload_while_a_candidate_that_was_given_up_still_reads_it(
    root: Path, models: dict[str, Path]
) -> None:
    push(root, models["good"], CANDIDATE)
    served = Served(root, ServingLimits(canary_seconds=0.3), canary=HALF, server=SharedUpload)
    try:
        trial = served.canaries[0]._trial
        assert trial
        session = next(name for name in map(str, range(100)) if trial.store.hash_of(name)[1] < HALF.share)
        with httpx.Client() as client:
            answer = send(client, served, session, "one two three")
    finally:
        served.stop()
        assert (answer.status_code, answer.json()["text"]) == (200, "one two three")
    assert answer.headers["x-voxline-arm"] == "production"


def test_a_wrong_share_margin_or_alpha_is_refused_and_a_damaged_file_is_named(
    root: Path, models: dict[str, Path]
) -> None:
    assert CanarySettings().share == 0.0
    with pytest.raises(SettingsError, match=r"--canary 1: a share from 0 to 0.5"):
        CanarySettings(1.0)
    with pytest.raises(SettingsError, match=r"--canary-margin 2: 0.001 to 0.5"):
        CanarySettings(0.1, 2)
    with pytest.raises(SettingsError, match=r"--canary-alpha nan: a probability"):
        CanarySettings(0.1, alpha=float("nan"))
    with pytest.raises(SettingsError, match="--canary-promote needs --canary"):
        CanarySettings(promote=True)
    push(root, models["silent"], CANDIDATE)
    (root / "asr" / "canary" / "1-2-2").mkdir(parents=True)
    (root / "asr" / "canary" / "1-2-2" / "abc.json").write_text('{"tests": {}}')
    with pytest.raises(WorkError, match=r"abc.json: not what a server knows of a canary .*; remove it"):
        describe_canary(root, "asr")


@pytest.mark.slow
def test_the_command_shows_how_the_candidate_does(
    root: Path, models: dict[str, Path], serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    def voxline(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["models", "canary", "asr", "--registry", str(root), *arguments])
        assert not ended.value.code
        return capsys.readouterr().out

    assert voxline() == "asr: no candidate\n"
    push(root, models["silent"], CANDIDATE)
    assert voxline().startswith("asr: continue: version 2, the candidate, beside version 1: 0 of 0 requests, 0 servers")
    served = serve()
    with httpx.Client() as client:
        for _ in range(4):
            send(client, served)
    served.canaries[0].look()
    found = json.loads(voxline("--json").splitlines()[-1])
    assert (found["requests"], found["measures"]["failed"]["production"] or 0.0) == (4, 0.0)
    send_until(lambda: withdrawn(root), [served])
    assert f"version 2 was withdrawn at {Registry(root, 'asr').journal()[-1].at}: canary: empty texts" in voxline()
