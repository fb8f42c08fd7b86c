"""The `voxline` command, and our manifests, beside KFP's own API server with several users, as with Kubeflow profiles.

Who asks is known by a token, as from CI, or by the header that Kubeflow's gateway sets; what they may do, Kubernetes
says by our own roles. No controller watches these namespaces, so runs are made and wait.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Ended, Shell
from tests.cluster.kfp_stand_in import running
from tests.kubeflow.control_plane import Kubernetes, Object, documents
from tests.kubeflow.pipelines_server import MULTI_USER_HOST, PipelinesServer
from voxline.errors import WorkError
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer

ROOT = Path(__file__).resolve().parents[2]
OURS, THEIRS = "voxline", "team-vision"
ACCESS = ("ServiceAccount", "Role", "RoleBinding")
VIEWER, STRANGER = "viewer@example.com", "stranger@example.com"


@pytest.fixture(scope="module")
def team(kubernetes: Kubernetes, pipelines: PipelinesServer) -> Iterator[Kubernetes]:
    """Two namespaces with our accounts and roles, as our manifests have them; and a person who may look at ours."""
    overlay = ["kubectl", "kustomize", str(ROOT / "k8s/overlays/one-node")]
    built = subprocess.run(overlay, capture_output=True, text=True, check=True).stdout
    (namespace,) = documents((ROOT / "k8s/namespace/namespace.yaml").read_text())
    objects: list[Object] = []
    for name in (OURS, THEIRS):
        objects.append({**namespace, "metadata": {**namespace["metadata"], "name": name}})
        found = json.loads(json.dumps([one for one in documents(built) if one["kind"] in ACCESS]))
        for one in found:
            one["metadata"]["namespace"] = name
            for subject in one.get("subjects", []):
                subject["namespace"] = name
        objects += found
    looks = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    objects.append(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewer", "namespace": OURS},
            "roleRef": {**looks, "name": "aggregate-to-kubeflow-pipelines-view"},
            "subjects": [{"kind": "User", "name": VIEWER, "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    with pipelines.with_users():  # skips where no second server can be started
        kubernetes.apply(objects)
        yield kubernetes
        for name in (OURS, THEIRS):
            kubernetes.kubectl("delete", "namespace", name, "--wait=false")


class Member:
    """An account of a namespace, which types `voxline`."""

    def __init__(self, team: Kubernetes, shell: Shell, namespace: str, account: str = "voxline-ci") -> None:
        self.shell, self.namespace = shell, namespace
        self.token = _token(team, namespace, account, "--audience=pipelines.kubeflow.org")
        self.file = shell.folder / f"{namespace}-{account}"
        self.file.write_text(self.token)

    def __call__(self, *arguments: str, namespace: str = "") -> Ended:
        given = ("--host", MULTI_USER_HOST, "--namespace", namespace or self.namespace, "--token-file", str(self.file))
        ended = self.shell(*arguments, *given)
        print(ended.out, ended.err)
        return ended

    def submit(self, **given: str) -> Ended:
        return self("submit", "asr", "--config", "nightly.yaml", **given)


def _token(team: Kubernetes, namespace: str, account: str, *audience: str) -> str:
    done = team.kubectl("create", "token", account, "-n", namespace, *audience)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def ours(team: Kubernetes, shell: Shell) -> Member:
    return Member(team, shell, OURS)


@pytest.fixture
def theirs(team: Kubernetes, shell: Shell) -> Member:
    return Member(team, shell, THEIRS)


def _submitted(ended: Ended) -> tuple[str, str]:
    """The name and the id of a run."""
    assert ended.status == 0, ended.err
    printed = dict(line.split(maxsplit=1) for line in ended.out.splitlines())
    return printed["run"], printed["id"]


def test_a_namespace_is_needed(team: Kubernetes, shell: Shell) -> None:
    server = KfpServer(KfpEndpoint(MULTI_USER_HOST))
    assert server.version == (2, 17, 0)
    with pytest.raises(WorkError, match=r"several users, but no namespace is given; give --namespace"):
        assert server.namespace
    ended = shell.submit("--host", MULTI_USER_HOST)
    assert ended.status == 1
    assert "no namespace is given; give --namespace" in ended.err


def test_runs_belong_to_their_namespace(team: Kubernetes, ours: Member, theirs: Member) -> None:
    """By the role voxline-ci alone: submit, status, cancel."""
    name, run_id = _submitted(ours.submit())
    other, other_id = _submitted(theirs.submit())
    for namespace, run in ((OURS, run_id), (THEIRS, other_id)):
        workflows = team.read("workflows.argoproj.io", "-n", namespace)["items"]
        assert [one["metadata"]["labels"]["pipeline/runid"] for one in workflows] == [run]
        assert workflows[0]["spec"]["serviceAccountName"] == "voxline-train"
    for asked in (name, run_id):
        assert ours("status", asked).out.split()[:2] == [name, run_id]
    assert "has no run with this name" in ours("status", other).err
    refused = ours("status", other_id)
    assert refused.status == 1
    assert "403: this account is not allowed to do this" in refused.err
    assert "already uploaded" in ours.submit().out
    assert ours("cancel", other_id).status == 1
    assert ours("cancel", run_id).status == 0


def test_schedules_belong_to_their_namespace(team: Kubernetes, ours: Member, theirs: Member) -> None:
    nightly = ("schedule", "asr", "--config", "nightly.yaml", "--cron")
    for member, cron in ((ours, "0 2 * * *"), (theirs, "0 3 * * *"), (ours, "0 4 * * *")):
        assert member(*nightly, cron).status == 0
    for member, cron in ((ours, "0 0 4 * * *"), (theirs, "0 0 3 * * *")):
        (line,) = member("schedule", "list").out.splitlines()
        assert line.startswith("nightly ")
        assert f" {cron} " in line
        assert " enabled " in line
        (made,) = team.read("scheduledworkflows.kubeflow.org", "-n", member.namespace)["items"]
        assert made["spec"]["enabled"]
    assert ours("schedule", "remove", "nightly").status == 0
    assert not ours("schedule", "list").out
    assert theirs("schedule", "list").out
    assert theirs("schedule", "remove", "nightly").status == 0


@pytest.mark.parametrize("command", [("submit", "asr", "--config", "nightly.yaml"), ("schedule", "list")])
def test_another_namespace_is_refused(ours: Member, command: tuple[str, ...]) -> None:
    ended = ours(*command, namespace=THEIRS)
    assert ended.status == 1
    assert f"403: this account is not allowed to do this in namespace {THEIRS!r}; ask for the role" in ended.err
    assert ours.token not in ended.err + ended.out


def test_an_account_without_rights_is_refused(team: Kubernetes, shell: Shell) -> None:
    """The account of the steps, whose token a step could send."""
    ended = Member(team, shell, OURS, "voxline-train").submit()
    assert ended.status == 1
    assert f"403: this account is not allowed to do this in namespace {OURS!r}" in ended.err


def test_a_token_is_needed_and_must_be_for_the_server(team: Kubernetes, ours: Member, shell: Shell) -> None:
    ended = shell.submit("--host", MULTI_USER_HOST, "--namespace", OURS)
    assert ended.status == 1
    assert "401: it requires a token; give one by" in ended.err
    ours.file.write_text(_token(team, OURS, "voxline-ci"))  # for Kubernetes itself
    ended = ours.submit()
    assert ended.status == 1
    assert "401: the token of --token-file was not accepted" in ended.err


def test_a_token_of_an_account_is_requested_and_accepted(
    team: Kubernetes, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job in CI does, whose kubeconfig may create tokens of the account."""
    kubeconfig = shell.folder / "home" / ".kube" / "config"  # KUBECONFIG is read once in a process
    kubeconfig.parent.mkdir(exist_ok=True)
    kubeconfig.symlink_to(team.kubeconfig)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    monkeypatch.setenv("VOXLINE_KFP_SERVICE_ACCOUNT", "voxline-ci")
    server = ("--host", MULTI_USER_HOST, "--namespace", OURS)
    assert shell.submit(*server).status == 0
    monkeypatch.setenv("VOXLINE_KFP_AUDIENCE", "vault")
    refused = shell.submit(*server)
    assert refused.status == 1
    assert "401: the token of service account voxline-ci was not accepted" in refused.err


def test_doctor_knows_what_a_namespace_of_users_needs(team: Kubernetes, ours: Member) -> None:
    """Here no profile controller fills the namespace."""
    kubeconfig = ours.shell.folder / "home" / ".kube" / "config"  # KUBECONFIG is read once in a process
    kubeconfig.parent.mkdir(exist_ok=True)
    kubeconfig.symlink_to(team.kubeconfig)
    places = ("store=/mnt/store", "registry=/mnt/registry", "corpus.uri=/mnt/store/corpora")
    given = ("doctor", "--cluster", "--config", "nightly.yaml", *(part for one in places for part in ("--set", one)))
    printed = ours(*given).out
    assert f"KFP 2.17.0, namespace {OURS}" in printed
    assert "pipelines, experiments, runs, schedules can be listed" in printed
    assert f"can be created in {OURS}" in printed
    assert f"{OURS} has no ConfigMap kfp-launcher" in printed
    launcher = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kfp-launcher", "namespace": OURS}}
    team.apply([launcher])
    assert "kfp-launcher" not in ours(*given).out
    refused = ours(*given, namespace=THEIRS).out
    assert "pipelines cannot be listed" in refused
    assert f"kubectl -n {THEIRS} create rolebinding voxline-submits --role=voxline-ci" in refused


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "runs": ("GET", f"runs?namespace={OURS}", None),
    "runs of no namespace": ("GET", "runs", None),
    "runs of others": ("GET", f"runs?namespace={THEIRS}", None),
    "schedules of no namespace": ("GET", "recurringruns", None),
    "schedules of others": ("GET", f"recurringruns?namespace={THEIRS}", None),
    "experiments of no namespace": ("GET", "experiments", None),
    "an experiment of no namespace": ("POST", "experiments", {"display_name": "e"}),
    "an experiment of others": ("POST", "experiments", {"display_name": "e", "namespace": THEIRS}),
    "an experiment": ("POST", "experiments", {"display_name": "e", "namespace": OURS}),
    "shared pipelines": ("GET", "pipelines", None),
    "pipelines of others": ("GET", f"pipelines?namespace={THEIRS}", None),
    "a shared pipeline": ("POST", "pipelines", {"display_name": "p", "name": "p"}),
    "a pipeline of others": ("POST", "pipelines", {"display_name": "p", "name": "p", "namespace": THEIRS}),
    "a pipeline": ("POST", "pipelines", {"display_name": "p", "name": "p", "namespace": OURS}),
}


def _status(host: str, request: tuple[str, str, Any], **headers: str) -> int:
    method, path, body = request
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{host}/apis/v2beta1/{path}", data, method=method)  # noqa: S310 - a fixed host
    for name, value in {"Content-Type": "application/json", **headers}.items():
        asked.add_header(name, value)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_stand_in_answers_as_the_server_does(ours: Member) -> None:
    with running() as stand_in:
        stand_in.state.multi_user, stand_in.state.namespaces = True, (OURS,)
        answered = {name: _status(stand_in.host, request) for name, request in REQUESTS.items()}
    bearer = f"Bearer {ours.token}"
    assert answered == {
        name: _status(MULTI_USER_HOST, request, Authorization=bearer) for name, request in REQUESTS.items()
    }


def test_the_gateways_header_says_who_asks(team: Kubernetes) -> None:
    def seen(request: str, **headers: str) -> int:
        return _status(MULTI_USER_HOST, REQUESTS[request], **headers)

    looks, stranger = ({"kubeflow-userid": one} for one in (VIEWER, STRANGER))
    assert seen("runs", **looks) == 200
    assert seen("an experiment", **looks) == 403, "who may look may not start"
    assert [seen("runs", **stranger), seen("runs of others", **looks), seen("runs")] == [403, 403, 401]
