"""`voxline doctor`: each line says well, a problem and what mends it, or what was not checked and why."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster.conftest import Shell
from tests.cluster.kfp_stand_in import StandIn
from voxline.pipelines.cluster.image_registry import ImageReference, ImageUnknownError, image_exists


@dataclass
class Registry:
    """A STAND-IN for an image registry: manifests by tag behind a token service, as distribution's API has them."""

    host: str = ""
    images: set[str] = field(default_factory=set)
    """`name:tag`."""
    login: str = ""
    """`user:password`; empty: anybody may pull."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    kept = Registry()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            basic = f"Basic {base64.b64encode(kept.login.encode()).decode()}"
            if kept.login and self.headers.get("Authorization") != basic:
                return self._answer(401)
            return self._answer(200, {"token": "pull-token"})

        def do_HEAD(self) -> None:
            if self.headers.get("Authorization") != "Bearer pull-token":
                return self._answer(401)
            _, _, *name, _, tag = self.path.split("/")
            return self._answer(200 if f"{'/'.join(name)}:{tag}" in kept.images else 404)

        def _answer(self, status: int, body: object = None) -> None:
            data = json.dumps(body).encode() if body else b""
            self.send_response(status)
            if status == 401:
                realm = f'Bearer realm="http://{kept.host}/token",service="registry",scope="repository:x:pull"'
                self.send_header("WWW-Authenticate", realm)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.host = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kept
    server.shutdown()
    server.server_close()


def test_images_are_looked_up_anonymously_and_with_a_login(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry.images.add("team/data:1")
    there, absent = ImageReference(registry.host, "team/data", "1"), ImageReference(registry.host, "team/data", "2")
    assert image_exists(there)
    assert not image_exists(absent)
    registry.login = "robot:password"
    with pytest.raises(ImageUnknownError, match="docker login"):
        image_exists(there)
    auth = base64.b64encode(b"robot:password").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": auth}}}), encoding="utf-8")
    assert image_exists(there)


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("localhost:5000/data:1", ImageReference("localhost:5000", "data", "1")),
        ("ghcr.io/team/voxline/data@sha256:ab", ImageReference("ghcr.io", "team/voxline/data", "sha256:ab")),
        ("debian", ImageReference("docker.io", "library/debian", "latest")),
    ],
)
def test_image_names_are_parsed_as_docker_does(text: str, image: ImageReference) -> None:
    assert ImageReference.read(text) == image


def test_an_unreachable_registry_is_not_checked() -> None:
    with pytest.raises(ImageUnknownError, match="cannot be reached"):
        image_exists(ImageReference("127.0.0.1:1", "data", "1"))


def test_each_line_is_ok_or_names_a_fix(shell: Shell, kfp: StandIn, registry: Registry) -> None:
    given = ["--config", "nightly.yaml"]
    for key in ("store", "registry", "corpus.uri"):
        given += ["--set", f"{key}=/mnt/voxline/{key}"]
    given += ["--set", f"cluster.images.registry={registry.host}/team", "--set", "cluster.images.tag=v1"]
    registry.images |= {"team/data:v1"}
    ended = shell("doctor", *given)
    assert ended.status == 1, ended.err
    lines = ended.out.splitlines()
    assert any(line.startswith("ok           server") and "KFP 2.17.0" in line for line in lines)
    assert any(line.startswith("ok           image") and "team/data:v1" in line for line in lines)
    assert any(line.startswith("problem      image") and "model:v1" in line and "make images" in line for line in lines)
    assert any(line.startswith("problem      store") and "fix: --set store=gs://" in line for line in lines)
    assert any(line.startswith("not checked  namespace") for line in lines)
    assert not kfp.changes(), "nothing is booked"
    registry.images |= {f"team/{name}:v1" for name in ("model", "validate")}
    claim = "cluster.claims=[{name: voxline, mount: /mnt/voxline}]"
    assert shell("doctor", *given, "--set", claim).status == 0


def test_without_a_config_only_the_server_is_checked(shell: Shell, kfp: StandIn) -> None:
    ended = shell("doctor")
    assert ended.status == 0, ended.out
    assert "not checked  images       no --config was given" in ended.out


def test_an_unreachable_server_does_not_stop_the_other_checks(shell: Shell) -> None:
    ended = shell("doctor", "--host", "http://localhost:1", "--deadline", "1", "--config", "nightly.yaml",
                  "--set", "store=/s", "--set", "registry=/r", "--set", "corpus.uri=/c")  # fmt: skip
    assert ended.status == 1
    assert "problem      server" in ended.out
    assert "kubectl -n kubeflow port-forward" in ended.out
    assert "compiles to 7 steps" in ended.out


def test_a_half_changed_schedule_is_a_problem(shell: Shell, kfp: StandIn) -> None:
    shell("schedule", "asr", "--config", "nightly.yaml", "--cron", "0 12 1 * *")
    (one,) = kfp.state.recurring.values()
    one["status"] = "DISABLED"
    ended = shell("doctor")
    assert ended.status == 1
    assert "nightly: 0 are enabled instead of 1; fix: run its `voxline schedule` command again" in ended.out


LIMITS = "cluster.deadline_hours and cluster.kept_days have no effect before 2.17"
USER = "cluster.user has no effect before 2.16, and pods do not pass `restricted`"
TESTED = "tested with 2.5 to 2.17"


@pytest.mark.parametrize(
    ("server", "status", "line"),
    [
        ("2.4.1", 1, f"problem      version      KFP 2.4.1; {TESTED}; fix: upgrade Kubeflow Pipelines to 2.5 or later"),
        ("2.5.0", 0, f"ok           version      KFP 2.5.0, {TESTED}; {LIMITS}; {USER}"),
        ("2.15.0", 0, f"ok           version      KFP 2.15.0, {TESTED}; {LIMITS}; {USER}"),
        ("2.16.1", 0, f"ok           version      KFP 2.16.1, {TESTED}; {LIMITS}"),
        ("2.17.0", 0, f"ok           version      KFP 2.17.0, {TESTED}"),
        ("2.17.3", 0, f"ok           version      KFP 2.17.3, {TESTED}"),
        ("2.18.0", 0, f"not checked  version      KFP 2.18.0 is newer than what we test ({TESTED})"),
        (
            "3.0.0",
            0,
            f"not checked  version      KFP 3.0.0 is newer than what we test ({TESTED}); KFP 3 has no ML Metadata, and "
            "its steps need more permissions than k8s/ grants",
        ),
        ("master", 0, f"not checked  version      the server does not say its version; {TESTED}"),
    ],
)
def test_a_server_of_any_version_gets_an_answer(
    server: str, status: int, line: str, shell: Shell, kfp: StandIn
) -> None:
    kfp.state.version = server
    ended = shell("doctor")
    assert ended.status == status
    assert [one for one in ended.out.splitlines() if " version " in one] == [line]


ONE_NODE = Path(__file__).parents[2] / "configs" / "cluster" / "one-node.yaml"


def test_a_config_with_volumes_is_of_a_cluster_without_an_endpoint_too(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    typed = ["doctor", "--config", "nightly.yaml", "--config", str(ONE_NODE), "--set"]
    ended = shell(*typed, "corpus.uri=/mnt/store/corpora/LibriSpeech")
    lines = ended.out.splitlines()
    assert ended.status == 0, ended.out
    assert "not checked  server       no endpoint: give --host or KF_PIPELINES_ENDPOINT" in lines
    assert "not checked  corpus.uri   /mnt/store/corpora/LibriSpeech: it is on a volume, which only pods see" in lines
    assert "not checked  store        /mnt/store: it is on a volume, which only pods see" in lines
    assert not any(line.startswith(("ok           python", "problem")) for line in lines), "this machine runs nothing"

    refused = shell(*typed, "corpus.uri=/data/LibriSpeech")
    assert refused.status == 1
    assert "problem      corpus.uri   /data/LibriSpeech: no volume of the config is mounted there" in refused.out
    assert shell("doctor", "--cluster").status == 1, "who asks for a cluster names its server"


def test_a_config_without_volumes_or_registry_is_of_this_machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    needs = "cluster.steps.train.memory=8Gi"
    lines = shell("doctor", "--config", "nightly.yaml", "--set", needs, "--set", "corpus.uri=/absent").out.splitlines()
    assert any(line.startswith("ok           python") for line in lines)
    assert not any("no endpoint" in line for line in lines)
