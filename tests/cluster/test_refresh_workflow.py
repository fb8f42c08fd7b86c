"""The steps of the reusable workflow and of GitLab's template, as their callers in docs/cluster/ci.md run them.

Bash runs their scripts: once with the whole of `voxline`, else with what it asks its server first. The server reviews
tokens as KFP does. GitHub's runner, its actions, Google and Kubernetes are STAND-INS: they issue tokens that say by
whom, for whom and for which audience.
"""

import base64
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.cluster.kfp_stand_in import StandIn, running
from voxline.errors import SettingsError, WorkError
from voxline.pipelines.cluster.access import AccountToken, KfpEndpoint

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "refresh.yml"
PAGE = (ROOT / "docs" / "cluster" / "ci.md").read_text(encoding="utf-8")
KFP_AUDIENCE = "pipelines.kubeflow.org"
CLIENT_OF_IAP = "123.apps.googleusercontent.com"
KUBECONFIG_TOKEN = "of-the-kubeconfig"  # noqa: S105
GITHUB_REQUEST_TOKEN = "of-the-runner"  # noqa: S105


KNOCK = """
import os, sys, urllib.error, urllib.request
from voxline.errors import VoxlineError
from voxline.pipelines.cluster.access import KfpEndpoint

# The first call of `voxline submit` that needs rights, with the credentials that it would send.
try:
    endpoint = KfpEndpoint.resolve(env=os.environ)
    url = f"{endpoint.host}/apis/v2beta1/runs?namespace={endpoint.namespace}"
    headers = {"authorization": f"Bearer {endpoint.token.read()}"} if endpoint.token else {}
    print(urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status, "listed")
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.read().decode()}")
except VoxlineError as error:
    sys.exit(f"voxline: {error}")
"""


def issue(issuer: str, **claims: Any) -> str:
    """A token whose three parts look like a JWT's; the issuer's name stands for its key."""
    payload = base64.urlsafe_b64encode(json.dumps({"iss": issuer, **claims}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{payload}.{hashlib.sha256(f'{issuer}{payload}'.encode()).hexdigest()}"


def claims_of(token: str, issuer: str) -> dict[str, Any]:
    """Its claims; none if another issuer signed it."""
    parts = token.split(".")
    if len(parts) != 3 or hashlib.sha256(f"{issuer}{parts[1]}".encode()).hexdigest() != parts[2]:
        return {}
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return claims


@dataclass
class Kubernetes:
    """A STAND-IN for the API server: users, TokenRequest and TokenReview; and for GitHub's and Google's issuers."""

    url: str = ""
    requested: list[tuple[str, list[str]]] = field(default_factory=list)
    """User and audiences of each TokenRequest that was granted."""
    granted_seconds: float = 3600
    may_request: bool = True

    def user_of(self, token: str) -> str:
        if token == KUBECONFIG_TOKEN:
            return "ci@example.com"
        for issuer, prefix in (("github", "github:"), ("gitlab", "gitlab:"), ("google", "")):
            claims = claims_of(token, issuer)
            if claims and claims["aud"] in (self.url, "gke"):
                return f"{prefix}{claims['sub']}"
        return ""

    def review(self, token: str, audiences: list[str]) -> list[str]:
        """`status.audiences` of a TokenReview; empty: not authenticated."""
        claims = claims_of(token, "kubernetes")
        if not claims or claims["exp"] < time.time():
            return []
        return [audience for audience in claims["aud"] if audience in audiences]


@pytest.fixture
def kubernetes() -> Iterator[Kubernetes]:
    kept = Kubernetes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/github" and self.headers["Authorization"] == f"bearer {GITHUB_REQUEST_TOKEN}":
                audience = parse_qs(url.query)["audience"][0]
                sub = "repo:example/speech:environment:cluster"
                self._answer(200, {"count": 1, "value": issue("github", aud=audience, sub=sub)})
            else:
                self._answer(403, {"kind": "Status", "reason": "Forbidden", "code": 403})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/v1/token" or self.path.endswith(":generateIdToken"):
                self._google(body)
                return
            user = kept.user_of(self.headers.get("Authorization", "").removeprefix("Bearer "))
            match = re.fullmatch(r"/api/v1/namespaces/(.+)/serviceaccounts/(.+)/token", self.path)
            if not user:
                self._answer(401, {"kind": "Status", "reason": "Unauthorized", "code": 401})
            elif not match or not kept.may_request:
                self._answer(403, {"kind": "Status", "reason": "Forbidden", "code": 403})
            else:
                audiences = body["spec"]["audiences"]
                expiry = time.time() + min(body["spec"]["expirationSeconds"], kept.granted_seconds)
                kept.requested.append((user, audiences))
                sub = f"system:serviceaccount:{match[1]}:{match[2]}"
                status = {
                    "token": issue("kubernetes", aud=audiences, sub=sub, exp=expiry),
                    "expirationTimestamp": datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                self._answer(201, {**body, "status": status})

        def _google(self, body: dict[str, Any]) -> None:
            """The two requests of Google's workload identity federation."""
            bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if self.path == "/v1/token":
                provider = body["audience"].removeprefix("//iam.googleapis.com/")
                subject = claims_of(body["subjectToken"], "gitlab")
                trusted = provider == GOOGLE["google-provider"] and subject.get("aud") == "of-the-provider"
                federated = issue("google", aud="federated", sub=subject.get("sub"))
                self._answer(*((200, {"access_token": federated}) if trusted else (400, {"error": "invalid_grant"})))
            elif claims_of(bearer, "google").get("aud") == "federated":
                account = self.path.rpartition("/")[2].removesuffix(":generateIdToken")
                email = {"email": account} if body.get("includeEmail") else {}
                self._answer(200, {"token": issue("google", aud=body["audience"], sub="1234", **email)})
            else:
                self._answer(401, {"error": "unauthenticated"})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kept
    server.shutdown()
    server.server_close()


@pytest.fixture
def kfp(kubernetes: Kubernetes) -> Iterator[StandIn]:
    """A server with several users, which authenticates as KFP's authenticator_token_review.go does."""

    def review(token: str) -> str:
        audiences = kubernetes.review(token, [KFP_AUDIENCE])
        if not audiences:
            return "Review.Status.Authenticated is false"
        return "" if KFP_AUDIENCE in audiences else f"Failed to find all of '[{KFP_AUDIENCE}]' in audience: {audiences}"

    with running(review=review) as server:
        server.state.multi_user = True
        server.state.namespaces = ("voxline",)
        yield server


# --- GitHub's runner ---


def evaluate(text: str, known: dict[str, str]) -> str:
    """A text with `${{ … }}`: names, string literals, `&&`, `||`, `==` and `!=`, as GitHub's expressions have them."""

    def value(part: str) -> str:
        part = part.strip()
        for operator in ("||", "&&"):
            if operator in part:
                left, _, right = part.partition(operator)
                first = value(left)
                return (first or value(right)) if operator == "||" else (first and value(right))
        for operator in ("!=", "=="):
            if operator in part:
                left, _, right = part.partition(operator)
                return "true" if (value(left) == value(right)) == (operator == "==") else ""
        if part.startswith("'"):
            return part.strip("'")
        assert part.split(".")[0] in ("inputs", "secrets", "steps", "job", "github", "runner"), part
        return known.get(part, "")

    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: value(match[1]), text)


class Runner:
    """A STAND-IN for GitHub's runner: runs the steps of a job, its scripts by bash, its actions as functions here."""

    def __init__(self, folder: Path, kubernetes: Kubernetes, server: StandIn, *, whole: bool = False) -> None:
        self.folder = folder
        self.whole = whole
        self.kubernetes = kubernetes
        self.server = server
        self.workspace = folder / "speech"
        self.printed = ""

    def call(self, inputs: dict[str, str], kubeconfig: str = "") -> int:
        """Calls the workflow; the exit status of the step that failed, or 0."""
        called = yaml.load(WORKFLOW.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - only text
        (job,) = called["jobs"].values()
        known = {
            "job.workflow_repository": "OWNER/voxline",
            "job.workflow_sha": "0" * 40,
            "secrets.kubeconfig": kubeconfig,
        }
        for name, declared in called["on"]["workflow_call"]["inputs"].items():
            assert declared.get("required") != "true" or name in inputs, name
            known[f"inputs.{name}"] = inputs.get(name, declared.get("default", ""))
        assert {f"inputs.{name}" for name in inputs} <= known.keys()

        environment = self.environment()
        environment |= {name: evaluate(text, known) for name, text in job["env"].items()}
        for step in job["steps"]:
            condition = step.get("if", "")
            if condition and not evaluate("${{" + condition + "}}", known):
                continue
            if "uses" in step:
                given = {name: evaluate(text, known) for name, text in step.get("with", {}).items()}
                outputs = ACTIONS[step["uses"].partition("@")[0]](self, given, environment)
                known |= {f"steps.{step.get('id')}.outputs.{name}": text for name, text in outputs.items()}
            elif step["name"] != "Install the client":  # it takes packages from an index; a test below reads it
                own = {name: evaluate(text, known) for name, text in step.get("env", {}).items()}
                if status := self.run_script(step["run"], {**environment, **own}):
                    return status
                environment |= self._written("env")
        return 0

    def environment(self) -> dict[str, str]:
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        # A run of the stand-in advances with each poll, so polls need not wait.
        poll = 'if [ "$1" = submit ]; then set -- "$@" --poll 0.05; fi\n'
        whole = f'#!/bin/sh\n{poll}exec "{sys.executable}" -m voxline "$@"\n'
        knock = f'#!/bin/sh\nif [ "$1" = doctor ]; then exit; fi\nexec "{sys.executable}" "{self.folder}/knock.py"\n'
        (self.folder / "knock.py").write_text(KNOCK, encoding="utf-8")
        (programs / "voxline").write_text(whole if self.whole else knock)
        for program in programs.iterdir():
            program.chmod(0o755)
        for name in ("temp", "home"):
            (self.folder / name).mkdir(exist_ok=True)
        return {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_ENV": str(self.folder / "env"),
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.kubernetes.url}/github?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": GITHUB_REQUEST_TOKEN,
            "NO_GCE_CHECK": "true",  # or Google's library looks for a metadata server
        }

    def run_script(self, script: str, environment: dict[str, str]) -> int:
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        ended = subprocess.run(shell, cwd=self.workspace, env=environment, capture_output=True, text=True, check=False)
        self.printed += ended.stdout + ended.stderr
        return ended.returncode

    def _written(self, name: str) -> dict[str, str]:
        file = self.folder / name
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return {key: text for key, _, text in (line.partition("=") for line in lines)}

    def check_out(self, given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
        assert given["persist-credentials"] == "false"
        if path := given.get("path"):
            assert (given["repository"], given["ref"], path) == ("OWNER/voxline", "0" * 40, ".voxline")
        else:
            (self.workspace / "speech").mkdir(parents=True)
            (self.workspace / "speech" / "refresh.yaml").write_text(example("pipeline: refresh"), encoding="utf-8")
        return {}

    def set_up_python(self, given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
        assert list(ROOT.glob(given["cache-dependency-path"].removeprefix(".voxline/")))
        return {}

    def sign_in_to_google(self, given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
        """As action.yml of google-github-actions/auth declares its inputs and outputs."""
        assert given["workload_identity_provider"].startswith("projects/")
        assert given["service_account"]
        environment["GOOGLE"] = given["service_account"]
        if not given["token_format"]:
            return {"auth_token": "federated"}
        assert given["token_format"] == "id_token"  # noqa: S105
        assert given["id_token_audience"], "the action refuses a token without an audience"
        email = {"email": given["service_account"]} if given["id_token_include_email"] == "true" else {}  # noqa: S105
        return {"id_token": issue("google", aud=given["id_token_audience"], sub="1234", **email)}

    def get_gke_credentials(self, given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
        assert re.fullmatch(r"projects/.+/locations/.+/clusters/.+", given["cluster_name"])
        token = issue("google", aud="gke", sub=environment["GOOGLE"])
        (self.folder / "gke").write_text(kubeconfig(self.kubernetes, token), encoding="utf-8")
        environment["KUBECONFIG"] = str(self.folder / "gke")
        return {}


ACTIONS: dict[str, Callable[[Runner, dict[str, str], dict[str, str]], dict[str, str]]] = {
    "actions/checkout": Runner.check_out,
    "actions/setup-python": Runner.set_up_python,
    "google-github-actions/auth": Runner.sign_in_to_google,
    "google-github-actions/get-gke-credentials": Runner.get_gke_credentials,
}


@pytest.fixture
def runner(tmp_path: Path, kubernetes: Kubernetes, kfp: StandIn) -> Runner:
    return Runner(tmp_path, kubernetes, kfp)


def example(opening: str) -> str:
    """The block of docs/cluster/ci.md that begins so."""
    (block,) = re.findall(rf"^```yaml\n({re.escape(opening)}.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def kubeconfig(kubernetes: Kubernetes, token: str = KUBECONFIG_TOKEN) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "ci",
        "contexts": [{"name": "ci", "context": {"cluster": "ci", "user": "ci"}}],
        "clusters": [{"name": "ci", "cluster": {"server": kubernetes.url}}],
        "users": [{"name": "ci", "user": {"token": token}}],
    }
    return json.dumps(document)


def inputs_of_the_page(server: StandIn) -> dict[str, str]:
    """The inputs of the page's caller, for this server."""
    caller = yaml.safe_load(example("name: speech"))
    (job,) = caller["jobs"].values()
    assert job["permissions"] == {"contents": "read", "id-token": "write"}
    assert job["uses"].partition("@")[0] == "OWNER/voxline/.github/workflows/refresh.yml"
    assert set(job["secrets"]) == {"kubeconfig"}
    return {**job["with"], "endpoint": server.host, "image-tag": "1"}


GOOGLE = {
    "google-provider": "projects/1/locations/global/workloadIdentityPools/ci/providers/github",
    "google-account": "ci@example.iam.gserviceaccount.com",
}


def test_a_kubeconfig_gives_a_token_and_the_refresh_runs(tmp_path: Path, kubernetes: Kubernetes, kfp: StandIn) -> None:
    runner = Runner(tmp_path, kubernetes, kfp, whole=True)
    status = runner.call(inputs_of_the_page(kfp), kubeconfig(runner.kubernetes))
    assert status == 0, runner.printed
    assert "problem" not in runner.printed
    assert "not checked  store        gs://example-speech/store: there are no credentials" in runner.printed
    assert "succeeded" in runner.printed
    (run,) = kfp.state.runs.values()
    assert run["state"] == "SUCCEEDED"
    assert run["service_account"] == "voxline-data"
    assert set(map(repr, runner.kubernetes.requested)) == {repr(("ci@example.com", [KFP_AUDIENCE]))}


def test_githubs_identity_gives_a_token_that_the_server_takes(runner: Runner, kfp: StandIn) -> None:
    inputs = {**inputs_of_the_page(kfp), "kubernetes-server": runner.kubernetes.url}
    assert runner.call(inputs) == 0, runner.printed
    assert runner.kubernetes.requested == [("github:repo:example/speech:environment:cluster", [KFP_AUDIENCE])]
    assert "200 listed" in runner.printed

    # No credential is printed, or readable by others on the runner's machine.
    assert "eyJ" not in runner.printed
    (folder,) = (runner.folder / "temp").glob("credentials.*")
    assert {file.stat().st_mode & 0o077 for file in (folder, *folder.iterdir())} == {0}


def test_gke_gives_a_token_that_the_server_takes(runner: Runner, kfp: StandIn) -> None:
    cluster = "projects/example/locations/europe-west4/clusters/speech"
    assert runner.call({**inputs_of_the_page(kfp), **GOOGLE, "gke-cluster": cluster}) == 0, runner.printed
    assert runner.kubernetes.requested == [(GOOGLE["google-account"], [KFP_AUDIENCE])]
    assert "200 listed" in runner.printed


def admit_by_proxy(token: str) -> str:
    """Identity-Aware Proxy admits a token by its audience and address, and hides the server's own check."""
    claims = claims_of(token, "google")
    return "" if claims.get("aud") == CLIENT_OF_IAP and claims.get("email") else "Invalid IAP credentials"


def test_a_proxy_gets_googles_token_with_the_account_in_it(tmp_path: Path, kubernetes: Kubernetes) -> None:
    with running(review=admit_by_proxy) as server:
        server.state.multi_user = True
        server.state.namespaces = ("voxline",)
        runner = Runner(tmp_path, kubernetes, server)
        inputs = {**inputs_of_the_page(server), **GOOGLE, "iap-audience": CLIENT_OF_IAP}
        assert runner.call(inputs) == 0, runner.printed
        assert "200 listed" in runner.printed
        assert not kubernetes.requested


def test_a_server_with_one_user_gets_no_token(tmp_path: Path, kubernetes: Kubernetes) -> None:
    with running() as server:
        runner = Runner(tmp_path, kubernetes, server)
        inputs = inputs_of_the_page(server)
        del inputs["namespace"]
        assert runner.call(inputs) == 0, runner.printed
        assert "200 listed" in runner.printed


def test_the_server_refuses_googles_own_token(runner: Runner, kfp: StandIn) -> None:
    """What a job that signs in to Google alone would send."""
    inputs = {**inputs_of_the_page(kfp), **GOOGLE, "iap-audience": KFP_AUDIENCE}
    assert runner.call(inputs) == 1
    assert "401" in runner.printed
    assert "Review.Status.Authenticated is false" in runner.printed


def test_another_audience_is_refused(runner: Runner, kfp: StandIn) -> None:
    status = runner.call({**inputs_of_the_page(kfp), "audience": "vault"}, kubeconfig(runner.kubernetes))
    assert status == 1
    assert "Review.Status.Authenticated is false" in runner.printed


def test_a_user_who_may_not_request_tokens_learns_what_to_grant(runner: Runner, kfp: StandIn) -> None:
    runner.kubernetes.may_request = False
    assert runner.call(inputs_of_the_page(kfp), kubeconfig(runner.kubernetes)) == 1
    assert "grant `create` on serviceaccounts/token of voxline-ci in voxline" in runner.printed


def test_a_token_is_renewed_at_half_of_its_life_and_kept_while_it_cannot_be(
    kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text(kubeconfig(kubernetes), encoding="utf-8")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    clock = time.time()
    monkeypatch.setattr("voxline.pipelines.cluster.access.time.time", lambda: clock)
    token = AccountToken("voxline-ci", "voxline")
    first = token.read()
    clock += 1000
    assert token.read() == first
    assert len(kubernetes.requested) == 1
    clock += 1000
    assert token.read() != first
    assert len(kubernetes.requested) == 2

    # The credentials of a job may end before the token that they gave.
    kubernetes.may_request = False
    second = token.read()
    clock += 1500
    assert token.read() == second
    clock += 3000
    with pytest.raises(WorkError, match="403 Forbidden: grant `create` on serviceaccounts/token"):
        token.read()


def test_an_account_needs_its_namespace() -> None:
    given = {"KF_PIPELINES_ENDPOINT": "https://kfp.example.com", "VOXLINE_KFP_SERVICE_ACCOUNT": "voxline-ci"}
    with pytest.raises(SettingsError, match="VOXLINE_KFP_SERVICE_ACCOUNT 'voxline-ci': its namespace is needed"):
        KfpEndpoint.resolve(env=given)


def run_in_gitlab(runner: Runner, inputs: dict[str, str], **variables: str) -> int:
    """The exit status of the template's script, as GitLab's runner gives it to bash."""
    header, jobs = yaml.safe_load_all((ROOT / ".gitlab" / "refresh.yml").read_text(encoding="utf-8"))
    declared = header["spec"]["inputs"]
    assert inputs.keys() <= declared.keys()
    known = {
        name: inputs[name] if "default" not in about else inputs.get(name, about["default"])
        for name, about in declared.items()
    }

    def interpolate(text: str) -> str:
        return re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda match: known[match[1]], text)

    ((name, job),) = jobs.items()
    assert interpolate(name) == "voxline refresh"
    identity = issue(
        "gitlab", aud=interpolate(job["id_tokens"]["VOXLINE_IDENTITY"]["aud"]), sub="project_path:example/speech"
    )
    own = {name: interpolate(text) for name, text in job["variables"].items()}
    google = {"GOOGLE_STS": runner.kubernetes.url, "GOOGLE_IAM": runner.kubernetes.url}
    runner.workspace.mkdir()
    script = "\n".join(job["script"])
    return runner.run_script(
        script, {**runner.environment(), **own, **google, "VOXLINE_IDENTITY": identity, **variables}
    )


def gitlab_inputs_of_the_page(server: StandIn) -> dict[str, str]:
    including = yaml.safe_load(example("include:"))
    (template,) = including["include"]
    assert template["remote"].endswith("/.gitlab/refresh.yml")
    inputs: dict[str, str] = {**template["inputs"], "endpoint": server.host}
    return inputs


def test_gitlabs_agent_gives_a_token_that_the_server_takes(runner: Runner, kfp: StandIn) -> None:
    inputs = gitlab_inputs_of_the_page(kfp)
    document = json.loads(kubeconfig(runner.kubernetes))
    del document["current-context"]
    document["contexts"][0]["name"] = inputs["agent"]
    (runner.folder / "agent").write_text(json.dumps(document), encoding="utf-8")
    assert run_in_gitlab(runner, inputs, KUBECONFIG=str(runner.folder / "agent")) == 0, runner.printed
    assert runner.kubernetes.requested == [("ci@example.com", [KFP_AUDIENCE])]
    assert "200 listed" in runner.printed


def test_gitlabs_identity_gives_a_token_that_the_server_takes(runner: Runner, kfp: StandIn) -> None:
    url = runner.kubernetes.url
    inputs = {**gitlab_inputs_of_the_page(kfp), "agent": "", "kubernetes-server": url, "identity-audience": url}
    assert run_in_gitlab(runner, inputs) == 0, runner.printed
    assert runner.kubernetes.requested == [("gitlab:project_path:example/speech", [KFP_AUDIENCE])]
    assert "200 listed" in runner.printed


def test_a_proxy_gets_googles_token_from_gitlab(tmp_path: Path, kubernetes: Kubernetes) -> None:
    with running(review=admit_by_proxy) as server:
        runner = Runner(tmp_path, kubernetes, server)
        inputs = {**gitlab_inputs_of_the_page(server), "agent": "", **GOOGLE, "iap-audience": CLIENT_OF_IAP}
        assert run_in_gitlab(runner, {**inputs, "identity-audience": "of-the-provider"}) == 0, runner.printed
        assert "200 listed" in runner.printed
        assert not kubernetes.requested


def test_the_client_is_installed_from_files_that_exist() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    (script,) = (step["run"] for step in job["steps"] if step.get("name") == "Install the client")
    files = re.findall(r" \.voxline/(\S+)", script)
    assert files == ["docker/tools/requirements.lock", "docker/cli/requirements.lock"]
    assert all((ROOT / file).is_file() for file in files)
    assert script.count("--require-hashes --no-deps") == len(files)
