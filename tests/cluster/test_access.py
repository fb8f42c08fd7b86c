"""How a server is reached, what is said when it is not, and that a token is seen by nobody else."""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Shell
from tests.cluster.kfp_stand_in import Fault, StandIn
from voxline.errors import SettingsError
from voxline.pipelines.cluster.access import KfpEndpoint

TOKEN = "eyJhbGciOi.s3cr3t-of-the-robot.c2ln"  # noqa: S105


@pytest.fixture
def guarded(kfp: StandIn) -> StandIn:
    kfp.token = TOKEN
    return kfp


@pytest.mark.parametrize("given", ["variable", "file in a variable", "flag"])
def test_a_token_is_given_by_variable_or_file(
    shell: Shell, guarded: StandIn, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    file = shell.folder / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    flags: tuple[str, ...] = ()
    if given == "variable":
        monkeypatch.setenv("VOXLINE_KFP_TOKEN", TOKEN)
    elif given == "flag":
        flags = ("--token-file", str(file))
    else:
        monkeypatch.setenv("VOXLINE_KFP_TOKEN_FILE", str(file))
    assert shell("schedule", "list", *flags).status == 0


def test_no_message_traceback_or_file_holds_the_token(
    shell: Shell, guarded: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server echoes what it was given, as gateways do; and python is asked to tell all."""
    guarded.token = "another"  # noqa: S105
    monkeypatch.setenv("VOXLINE_KFP_TOKEN", TOKEN)
    ended = shell.submit()
    assert ended.status == 1
    assert "401" in ended.err
    assert "the token of VOXLINE_KFP_TOKEN was not accepted" in ended.err
    assert "[token] is not valid" in ended.err
    guarded.faults.append(Fault(reset="before", times=99))
    told = subprocess.run(
        [sys.executable, "-X", "dev", "-P", "-m", "voxline.pipelines.cli.main", "status", "nightly", "--deadline", "1"],
        cwd=shell.folder,
        env={**os.environ, "VOXLINE_KFP_TOKEN": TOKEN},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 75
    assert TOKEN not in ended.out + ended.err + told.stdout + told.stderr
    assert TOKEN not in repr(KfpEndpoint.resolve(host=guarded.host, env={"VOXLINE_KFP_TOKEN": TOKEN}))
    kept = [file for file in shell.folder.rglob("*") if file.is_file()]
    assert not [file for file in kept if TOKEN in file.read_text(encoding="utf-8", errors="replace")]


def test_a_replaced_token_is_read_again(shell: Shell, guarded: StandIn) -> None:
    file = shell.folder / "token"
    file.write_text(TOKEN, encoding="utf-8")
    route = guarded.state.create_run

    def replace(body: dict[str, object]) -> dict[str, object]:
        guarded.token = "the-next-one"  # noqa: S105
        file.write_text("the-next-one", encoding="utf-8")
        return route(body)

    guarded.state.create_run = replace  # type: ignore[method-assign]
    assert shell.submit("--wait", "--poll", "0.05", "--token-file", str(file)).status == 0


def test_an_expired_token_ends_the_command_and_not_the_run(
    shell: Shell, guarded: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXLINE_KFP_TOKEN", TOKEN)
    guarded.faults.append(Fault(status=401, where="GET .*/runs/"))
    ended = shell.submit("--wait", "--poll", "0.05")
    assert ended.status == 1
    (run_id,) = guarded.state.runs
    assert "it may have expired" in ended.err
    assert f"the run continues; `voxline status {run_id}` shows it" in ended.err


def test_the_home_folder_is_neither_read_nor_written(shell: Shell, kfp: StandIn) -> None:
    kept = shell.folder / "home" / ".config" / "kfp" / "context.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"namespace": "of-last-year", "client_authentication_cookie": "c"}), encoding="utf-8")
    before = kept.read_bytes()
    code = "import sys; from voxline.pipelines.cli.main import main; sys.argv = ['voxline', 'schedule', 'list']; main()"
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout + told.stderr == ""
    assert kept.read_bytes() == before
    assert kfp.asked
    assert not kfp.cookies


@pytest.mark.parametrize(
    ("fault", "status", "told"),
    [
        (Fault(status=403), 1, "403: this account is not allowed to do this"),
        (Fault(status=302), 1, "it redirects to a login page; give a token"),
        (Fault(status=404), 1, "this is not a KFP server"),
        (Fault(page="<html>hello</html>"), 1, "this is not a KFP server"),
        (Fault(status=503, times=99), 75, "no response after"),
        (Fault(reset="before", times=99), 75, "no response after"),
        (Fault(slow=30, times=1), 75, "timed out"),
    ],
)
def test_server_errors_are_reported_with_a_remedy(
    shell: Shell, kfp: StandIn, fault: Fault, status: int, told: str
) -> None:
    kfp.faults.append(fault)
    ended = shell("schedule", "list", "--deadline", "1.5")
    assert ended.status == status, ended.err
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_an_unreachable_server_is_reported(shell: Shell) -> None:
    ended = shell("schedule", "list", "--host", "http://localhost:1", "--deadline", "1")
    assert ended.status == 75
    assert "http://localhost:1: no response after" in ended.err
    assert "voxline doctor" in ended.err


def test_a_multi_user_server_requires_a_namespace(shell: Shell, kfp: StandIn) -> None:
    kfp.state.multi_user = True
    assert "no namespace is given; give --namespace" in shell.submit().err
    assert shell.submit("--namespace", "team-speech").status == 0
    refused = shell.submit("--namespace", "team-vision")
    assert refused.status == 1
    assert "403: this account is not allowed to do this in namespace 'team-vision'" in refused.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "no KFP server: give --host"),
        ({"host": "ftp://x"}, "accepted: https://"),
        ({"host": "https://me:pass@kfp.example.com"}, "user name and password are not accepted"),
        ({"host": "http://kfp.example.com", "token_file": "token"}, "would be sent in clear text"),
        ({"host": "https://kfp.example.com", "ca": "absent.pem"}, "absent.pem: no such file"),
    ],
)
def test_invalid_and_unsafe_settings_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        KfpEndpoint.resolve(**given, env={})


@pytest.mark.parametrize(("text", "told"), [("", "is empty"), ("a b", "has spaces"), ("a\nX-Other: b", "has spaces")])
def test_an_invalid_token_is_not_sent(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "token").write_text(text, encoding="utf-8")
    access = KfpEndpoint.resolve(host="https://kfp.example.com", token_file=str(tmp_path / "token"), env={})
    with pytest.raises(SettingsError, match=f"--token-file {told}"):
        access.token.read()  # type: ignore[union-attr]


def test_everything_is_resolved_in_a_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t", encoding="utf-8")
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KF_PIPELINES_SA_TOKEN_PATH": str(tmp_path / "token")}
    access = KfpEndpoint.resolve(env=pod)
    assert access.host == "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
    assert access.token is not None
    assert access.token.read() == "t"


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[str]:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip

    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"multi_user": false, "recurringRuns": []}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_ca_names_a_private_authority(shell: Shell, tls_server: str) -> None:
    refused = shell("schedule", "list", "--host", tls_server)
    assert refused.status == 1
    assert "TLS failed" in refused.err
    assert "--ca names the authority's PEM file" in refused.err
    assert shell("schedule", "list", "--host", tls_server, "--ca", "cert.pem").status == 0


@pytest.mark.parametrize("host", ["http://[::1", "https://kfp:99999", "https://kfp:port", "ftp://kfp", "https://"])
def test_an_invalid_address_is_refused_with_its_source(host: str) -> None:
    with pytest.raises(SettingsError, match=r"--host '.*': accepted: https://name\[:port\]\[/path\]"):
        KfpEndpoint.resolve(host=host, env={})
