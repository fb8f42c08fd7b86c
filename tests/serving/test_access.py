"""Who may call: names of the server, pages of sites, keys, and the consent of browsers, on real sockets."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.causal_model import export_causal_model
from tests.serving.test_canary import start_process
from tests.serving.test_server import Served, push, wav
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.errors import SettingsError
from voxline.feedback.captures import CaptureStore
from voxline.serving.access import Access, AccessSettings, check_bound
from voxline.serving.capture import Capture, CaptureSettings

MARA, NIGHTLY = "mara-0123456789abcdef", "nightly-0123456789abcdef"
EVERYWHERE = "0.0.0.0"  # noqa: S104 -- with keys, for a moment
SITE = "https://app.example.org"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_causal_model(tmp_path_factory.mktemp("models") / "causal", 1)


@pytest.fixture
def root(model: Path, tmp_path: Path) -> Path:
    push(tmp_path / "registry", model)
    return tmp_path / "registry"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", f"# people\nmara:{MARA}\n\nnightly:{NIGHTLY}\n")


def write_keys(file: Path, text: str) -> Path:
    """Replaces the file, as an update of a Secret does."""
    part = file.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(text)
    return part.rename(file)


@pytest.fixture(scope="module")
def open_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Without keys, known by two more names, and open to one site."""
    settings = AccessSettings(["asr.example.org", "*.svc.cluster.local"], [SITE])
    folder = tmp_path_factory.mktemp("open")
    push(folder, model)
    running = Served(folder, access=Access(settings))
    yield running
    running.stop()


@pytest.fixture
def locked(root: Path, keys: Path, tmp_path: Path) -> Iterator[Served]:
    """With keys, and captures of all who agree."""
    capture = Capture(CaptureSettings(str(tmp_path / "kept"), 1.0))
    running = Served(root, capture=capture, access=Access(AccessSettings(key_file=str(keys))))
    yield running
    running.stop()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def statuses(served: Served, headers: dict[str, str]) -> tuple[int, int, int]:
    """Of a GET, of a recording, and of a session, to a request with these headers."""
    answers = [httpx.get(f"{served.url}/v1/models", headers=headers), served.send(wav(), headers=headers)]
    for answer in answers:
        if answer.status_code != 200:
            assert answer.json()["error"]["type"] == "invalid_request_error"
    status = 101
    try:
        with open_session(served, headers) as session:
            session.recv(PATIENCE_SECONDS)
    except InvalidStatus as refused:
        status = refused.response.status_code if b'"invalid_request_error"' in (refused.response.body or b"") else 0
    return answers[0].status_code, answers[1].status_code, status


def open_session(served: Served, headers: dict[str, str], **options: Any) -> Any:
    url = f"ws://{headers.get('host', f'127.0.0.1:{served.port}')}/v1/stream?model=asr"
    rest = {name: value for name, value in headers.items() if name != "host"}
    connection = socket.create_connection(("127.0.0.1", served.port))
    return connect(url, sock=connection, additional_headers=rest, proxy=None, **options)


FINE, REFUSED = (200, 200, 101), (403, 403, 403)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:1234", FINE),
        ("127.0.0.1", FINE),
        ("10.1.2.3:8080", FINE),  # of a pod, as a probe has it
        ("[::1]:8080", FINE),
        ("asr.example.org", FINE),
        ("ASR.Example.org:443", FINE),
        ("voxline.models.svc.cluster.local", FINE),
        ("evil.example", REFUSED),
        ("evil.example:8080", REFUSED),
        ("localhost.evil.example", REFUSED),
        ("svc.cluster.local", REFUSED),
        ("asr.example.org.evil.example", REFUSED),
        ("127.0.0.1.evil.example", REFUSED),
    ],
)
def test_a_name_that_is_not_the_servers_is_refused(
    open_server: Served, host: str, expected: tuple[int, int, int]
) -> None:
    assert statuses(open_server, {"host": host}) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"origin": "https://evil.example"}, REFUSED),
        ({"origin": "null"}, REFUSED),
        ({"origin": "http://evil.example", "host": "evil.example"}, REFUSED),
        ({"origin": "https://evil.example", "sec-fetch-site": "same-origin"}, REFUSED),
        ({"sec-fetch-site": "cross-site"}, REFUSED),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, REFUSED),
        ({"sec-fetch-site": "none"}, FINE),
        ({"sec-fetch-site": "same-origin"}, FINE),
        ({"origin": "http://localhost:8080", "host": "localhost:8080"}, FINE),
        ({"origin": "https://asr.example.org", "host": "asr.example.org"}, FINE),  # behind a gateway with TLS
        ({"origin": SITE, "sec-fetch-site": "cross-site"}, FINE),
    ],
)
def test_a_page_of_another_site_is_refused(
    open_server: Served, headers: dict[str, str], expected: tuple[int, int, int]
) -> None:
    assert statuses(open_server, headers) == expected


def test_two_origins_are_refused(open_server: Served) -> None:
    own = open_server.url
    headers = [("origin", own), ("origin", "https://evil.example")]
    assert httpx.get(f"{own}/v1/models", headers=headers).status_code == 403
    assert httpx.get(f"{own}/v1/models", headers=headers[:1]).status_code == 200


def test_a_link_of_another_site_opens_the_page(open_server: Served) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert httpx.get(open_server.url, headers=link).status_code == 200
    assert httpx.get(open_server.url, headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403


def test_a_page_of_an_allowed_site_may_read_the_answer(open_server: Served) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    url = f"{open_server.url}/v1/audio/transcriptions"
    allowed = httpx.options(url, headers={"origin": SITE, **asks})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, SITE)
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    assert open_server.send(wav(), headers={"origin": SITE}).headers["access-control-allow-origin"] == SITE
    foreign = httpx.options(url, headers={"origin": "https://evil.example", **asks})
    assert (foreign.status_code, foreign.json()["error"]["type"]) == (403, "invalid_request_error")


def test_a_server_with_keys_answers_those_who_have_one(
    locked: Served, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import openai

    for headers in ({}, bearer("mara"), {"authorization": "Basic bWFyYTo="}):
        assert statuses(locked, headers) == (401, 401, 401)
    assert statuses(locked, bearer(MARA)) == statuses(locked, {"authorization": f"bearer {NIGHTLY}"}) == FINE
    refused = httpx.get(f"{locked.url}/v1/models")
    assert refused.headers["www-authenticate"] == "Bearer"
    client = openai.OpenAI(base_url=f"{locked.url}/v1", api_key=MARA, max_retries=0)
    assert [model.id for model in client.models.list()] == ["asr"]
    with pytest.raises(openai.AuthenticationError, match="no key of this server"):
        client.with_options(api_key="none").models.list()
    with open_session(locked, {}, subprotocols=["realtime", f"openai-insecure-api-key.{MARA}"]) as session:
        assert session.subprotocol == "realtime"
    assert httpx.get(f"{locked.url}/metrics").status_code == 401
    assert httpx.get(locked.url).status_code == httpx.get(f"{locked.url}/page.js").status_code == 200
    assert httpx.get(f"{locked.url}/healthz").json() == {"status": "ok"}, "no word of the models"
    assert "asr" in httpx.get(f"{locked.url}/healthz", headers=bearer(MARA)).json()["models"]
    metrics = httpx.get(f"{locked.url}/metrics", headers=bearer(MARA)).text
    assert 'voxline_serve_caller_requests_total{caller="nightly",status="200"} 2.0' in metrics
    assert 'voxline_serve_requests_total{status="401"}' in metrics
    printed = capsys.readouterr().out
    assert "serve: nightly: POST /v1/audio/transcriptions: 200 in" in printed
    assert not any(token in printed + metrics for token in (MARA, NIGHTLY))


@pytest.mark.slow
def test_keys_are_read_again_when_their_file_changes(locked: Served, keys: Path) -> None:
    def status(token: str) -> int:
        return httpx.get(f"{locked.url}/v1/models", headers=bearer(token)).status_code

    write_keys(keys, f"mara:{MARA[::-1]}\n")
    wait_until(lambda: status(MARA[::-1]) == 200, "the new key", 0.1)
    assert status(MARA) == status(NIGHTLY) == 401
    write_keys(keys, "mara\n")
    wait_until(lambda: status(MARA[::-1]) and "line 1" in locked.server.access.keys.fault, "the fault", 0.1)
    assert status(MARA[::-1]) == 200, "the keys before still count"
    assert httpx.get(f"{locked.url}/healthz").json()["status"] == "degraded"
    write_keys(keys, f"mara:{MARA}\n")
    wait_until(lambda: status(MARA) == 200, "the old key", 0.1)
    assert httpx.get(f"{locked.url}/healthz").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("", 0o600, "no key"),
        ("# none\n", 0o600, "no key"),
        (MARA, 0o600, "line 1: name:token is accepted"),
        ("mara:short", 0o600, "line 1: name:token is accepted, with a token of 16"),
        (f"ok:{MARA}\nmara: {MARA}", 0o600, "line 2"),
        (f"mara:{MARA}", 0o644, "all users of this machine may read or write it; chmod 640"),
        (f"mara:{MARA}", 0o602, "all users of this machine may read or write it"),
    ],
)
def test_a_key_file_that_is_not_one_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    file = write_keys(tmp_path / "keys", text)
    file.chmod(mode)
    with pytest.raises(SettingsError, match=message) as refused:
        Access(AccessSettings(key_file=str(file)))
    assert MARA not in str(refused.value)


def test_a_key_file_of_a_windows_editor_is_read(tmp_path: Path) -> None:
    """It begins with a byte order mark, and its lines end with carriage returns."""
    file = write_keys(tmp_path / "keys", f"\ufeffmara:{MARA}\r\nnightly:{NIGHTLY}\r\n")
    keys = Access(AccessSettings(key_file=str(file))).keys
    assert keys
    assert [keys.name_of(token) for token in (MARA, NIGHTLY)] == ["mara", "nightly"]


def test_options_that_are_no_names_are_refused(tmp_path: Path) -> None:
    for settings in ({"hosts": ["https://a"]}, {"hosts": ["a:80"]}, {"origins": ["a"]}, {"origins": ["https://a/b"]}):
        with pytest.raises(SettingsError, match="is accepted"):
            AccessSettings(**settings)
    with pytest.raises(SettingsError, match="No such file"):
        Access(AccessSettings(key_file=str(tmp_path / "absent")))


def test_consent_in_a_browser_counts_only_with_a_key(locked: Served, root: Path, tmp_path: Path) -> None:
    own = {"origin": locked.url}
    for headers in (own, {"sec-fetch-site": "same-origin"}):
        answer = locked.send(wav(), headers={**headers, **bearer(MARA)}, consent="yes:terms-1")
        assert "x-voxline-capture" in answer.headers
    assert "x-voxline-capture" in locked.send(wav(), headers=bearer(MARA), consent="yes").headers
    capture = Capture(CaptureSettings(str(tmp_path / "others"), 1.0))
    without_keys = Served(root, capture=capture)
    try:
        for headers in ({"origin": without_keys.url}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-mode": "cors"}):
            both = {**headers, "x-voxline-consent": "yes:terms-1"}
            answer = without_keys.send(wav(), headers=both, consent="yes:terms-1")
            assert (answer.status_code, "x-voxline-capture" in answer.headers) == (200, False)
        with connect(
            f"ws://127.0.0.1:{without_keys.port}/v1/stream?model=asr&consent=yes", origin=without_keys.url, proxy=None
        ) as session:
            session.send(bytes(32_000))
            session.send(json.dumps({"type": "finish"}))
            assert not any("capture" in json.loads(message) for message in session)
        assert "x-voxline-capture" in without_keys.send(wav(), consent="yes").headers, "a program's consent"
    finally:
        without_keys.stop()
    wait_until(lambda: capture.counts.total() == 1, "the clip")
    assert len(list(CaptureStore(tmp_path / "others").clips())) == 1


def test_an_address_that_others_can_reach_needs_keys(root: Path, keys: Path) -> None:
    for host in (EVERYWHERE, "::", "192.168.0.7", "", "asr.example.org"):
        with pytest.raises(SettingsError, match="--api-key-file FILE, or --allow-anonymous"):
            check_bound(host, AccessSettings(), anonymous=False)
        check_bound(host, AccessSettings(), anonymous=True)
        check_bound(host, AccessSettings(key_file=str(keys)), anonymous=False)
    with pytest.raises(AssertionError, match="others can reach this address"):
        start_process(root, further=["--host", EVERYWHERE])


@pytest.mark.slow
def test_a_process_with_keys_is_reachable_by_its_names_and_its_health_by_a_port_of_its_own(
    root: Path, keys: Path
) -> None:
    options = ["--host", EVERYWHERE, "--api-key-file", str(keys), "--allowed-host", "asr.example.org"]
    process, url = start_process(root, further=[*options, "--health-port", "0"])
    try:
        assert process.stdout
        line = next(line for line in process.stdout if "also at" in line)
        health = f"http://127.0.0.1:{line.strip().rpartition(':')[2]}"
        named = {"host": "asr.example.org", **bearer(MARA)}
        assert httpx.get(f"{url}/v1/models", headers=named).status_code == 200
        assert httpx.get(f"{url}/v1/models", headers={"host": "asr.example.org"}).status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={**named, "host": "evil.example"}).status_code == 403
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGCONT)
        assert httpx.get(f"{health}/healthz").json()["models"]["asr"]["version"] == 1
        assert "voxline_serve_requests_total" in httpx.get(f"{health}/metrics").text
        assert httpx.get(f"{health}/v1/models").status_code == 404
        assert httpx.get(f"{health}/healthz", headers={"host": "evil.example"}).status_code == 403
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.communicate()
