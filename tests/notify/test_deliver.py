"""The webhook and its signature, lineage, and the registries of others; and what happens when one does not respond."""

import dataclasses
import hashlib
import hmac
import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.notify.conftest import ID, IN_SERVICE, REFUSED, RUN, MakeEvent, Request, Server
from voxline.errors import SettingsError
from voxline.notify.deliver import RECEIVERS, announce_end, announce_start
from voxline.notify.event import RunEvent
from voxline.notify.lineage import start_event
from voxline.notify.settings import NotifySettings

ROOT = Path(__file__).parents[2]
PEERS = Path(os.environ.get("VOXLINE_PEERS", ROOT / ".bench-venv/bin/python"))
with_peers = pytest.mark.skipif(not PEERS.exists(), reason=f"no {PEERS}: `make test-peers` installs the clients")


def announce(event: RunEvent, **settings: Any) -> list[str]:
    return announce_end(lambda: event, NotifySettings.of({"timeout_seconds": 5, **settings}))


def test_a_webhook_has_verdict_metrics_and_links_signed_as_github_does(
    make_event: MakeEvent, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("hook-key\n")
    hook = {"url": f"{server.url}/hooks/voxline?team=speech", "key_file": str(tmp_path / "key")}
    assert announce(make_event(), webhook=hook) == []
    (request,) = server.requests
    signed = hmac.new(b"hook-key", request["body"], hashlib.sha256).hexdigest()
    assert request["headers"]["x-voxline-signature-256"] == f"sha256={signed}"
    assert request["headers"]["x-voxline-delivery"] == ID
    body = json.loads(request["body"])
    assert (body["schema"], body["verdict"], body["succeeded"]) == ("voxline.run/1", "promoted", True)
    assert (body["version"], body["model_uri"], body["digest"]) == (7, "gs://speech/registry/asr/7", "ab12")
    assert body["metrics"]["wer"] == {"value": 0.031, "low": 0.02, "high": 0.05}
    assert body["rejects"] == {"ingest": {"silent": 3, "too_long": 1}}
    assert body["links"] == {"page": "https://kfp.example.com/#/runs/1"}
    assert body["run"]["started"] == "2026-09-21T14:13:20Z"


def test_a_failed_run_names_its_step_and_why(make_event: MakeEvent, server: Server) -> None:
    announce(make_event(None), webhook={"url": server.url})
    body = json.loads(server.requests[0]["body"])
    assert (body["verdict"], body["failed_step"]) == ("failed", "evaluate")
    assert body["reason"] == "no space left in gs://speech"
    assert body["metrics"] == {}
    assert "x-voxline-signature-256" not in server.requests[0]["headers"]


def test_a_server_that_is_unavailable_is_asked_again_and_then_given_up_in_one_line(
    make_event: MakeEvent, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [(503, {}), (200, {})]
    assert announce(make_event(), webhook={"url": server.url}, attempts=2) == []
    assert len(server.requests) == 2
    server.answers = [(503, {"message": "down"})]
    assert announce(make_event(), webhook={"url": server.url}, attempts=2) == ["webhook"]
    assert len(server.requests) == 4
    server.answers = [(403, {"message": "who are you"})]
    assert announce(make_event(), webhook={"url": server.url}, attempts=3) == ["webhook"]
    assert len(server.requests) == 5, "a refusal is final"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("▸ notify.webhook: sent to http://127.0.0.1")
    assert (
        lines[2] == '▸ notify.webhook: not delivered: WorkError: it answered 403 Forbidden: {"message": "who are you"}'
    )


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_not_taken_for_a_delivery(
    make_event: MakeEvent, server: Server, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    server.answers = [(status, {"location": f"{server.url}/login?state=secret"}), (200, {})]
    assert announce(make_event(), webhook={"url": server.url}) == ["webhook"]
    assert [request["method"] for request in server.requests] == ["POST"]
    said = capsys.readouterr().out
    assert f"it answered {status}, a redirect to {server.url}/login; give the final address" in said


def test_a_receiver_that_holds_a_delivery_is_left_behind_at_the_deadline(
    make_event: MakeEvent, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    class Impatient(NotifySettings):
        def deadline_seconds(self) -> float:
            return 0.3

    def hold(_: Request) -> tuple[int, Any]:
        released.wait(60)
        return 200, {}

    server.respond = hold
    file = tmp_path / "voxline.prom"
    monkeypatch.setitem(RECEIVERS, "textfile", lambda *_: file.write_text("sent") and str(file))
    settings = Impatient.of({"timeout_seconds": 300, "webhook": {"url": server.url}, "textfile": str(file)})
    failed = announce_end(make_event, settings)
    released.set()
    assert failed == ["webhook"]
    assert file.exists()


def test_one_receiver_that_fails_does_not_keep_the_others_from_theirs(
    make_event: MakeEvent, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"url": "http://127.0.0.1:9/"}
    file = tmp_path / "voxline.prom"
    hook = {"url": server.url, "key_env": "NOT_SET_ANYWHERE"}
    failed = announce(
        make_event(), pushgateway=gone, webhook=hook, openlineage={"url": server.url}, textfile=str(file), attempts=1
    )
    assert failed == ["pushgateway", "webhook"]
    assert file.is_file()
    assert [request["path"] for request in server.requests] == ["/api/v1/lineage"]
    assert "notify.webhook.key_env: the variable NOT_SET_ANYWHERE is not set" in capsys.readouterr().out


def test_an_event_that_cannot_be_made_is_reported_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def gone() -> RunEvent:
        raise FileNotFoundError("verdict.json")

    assert announce_end(gone, NotifySettings.of({"webhook": {"url": "http://127.0.0.1:9"}})) == ["webhook"]
    assert "nothing was sent, an output cannot be read: FileNotFoundError: verdict.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"webhook": {"url": "https://user:pass@example.com"}}, "without credentials"),
        ({"webhook": {"url": "https://example.com/?token=abc"}}, "without credentials"),
        ({"webhook": {"url": "https://example.com/workflows/1?sp=run&sig=abc"}}, "without credentials"),
        ({"mlflow_registry": {"uri": "postgresql://user:pass@db/mlflow"}}, "mlflow_registry.uri.*without credentials"),
        ({"pushgateway": {"url": "pushgateway:9091"}}, "begins with http"),
        ({"textfile": "/var/lib/node_exporter/voxline.txt"}, "textfile"),
        ({"otlp": {"url": "http://collector:4318/v1/metrics", "token": "abc"}}, "token"),
    ],
)
def test_a_config_holds_addresses_and_no_credentials(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        NotifySettings.of(given, "notify")
    assert not re.search(r"pass@|=abc", str(caught.value)), "the message may go into a log"


def test_lineage_starts_completes_fails_and_names_what_was_read_and_written(
    make_event: MakeEvent, server: Server
) -> None:
    settings = NotifySettings.of({"openlineage": {"url": server.url}})
    announce_start(RUN, settings)
    for verdict in ({**IN_SERVICE, "pushed": True}, REFUSED, None):
        event = make_event(verdict)
        announce_end(lambda event=event: event, settings)  # type: ignore[misc]
    sent = [json.loads(request["body"]) for request in server.requests]
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE", "COMPLETE", "FAIL"]
    assert {(event["run"]["runId"], event["job"]["name"]) for event in sent} == {(ID, "asr.nightly")}
    (corpus,) = sent[1]["inputs"]
    assert (corpus["namespace"], corpus["name"]) == ("gs://speech", "LibriSpeech")
    assert corpus["inputFacets"]["inputStatistics"]["rowCount"] == 100
    (model,) = sent[1]["outputs"]
    assert (model["name"], model["facets"]["version"]["datasetVersion"]) == ("registry/asr/7", "7")
    assert sent[2]["outputs"] == [], "a refused model goes nowhere"
    several = dataclasses.replace(RUN, corpora=("/data/ours", "gs://speech/theirs"))
    assert [one["name"] for one in start_event(several, settings)["inputs"]] == ["/data/ours", "theirs"]
    assert sent[3]["run"]["facets"]["errorMessage"]["message"] == "no space left in gs://speech"


READ_LINEAGE = """
import json, sys
from openlineage.client import event_v2, serde
from openlineage.client.generated import error_message_run, input_statistics_input_dataset, job_type_job
from openlineage.client.generated import dataset_version_dataset, processing_engine_run
FACETS = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "jobType": job_type_job.JobTypeJobFacet, "processing_engine": processing_engine_run.ProcessingEngineRunFacet,
}

def name(dataset):
    return dataset["namespace"], dataset["name"]

def facets(given):
    made = {}
    for name, values in given.items():
        plain = {key: value for key, value in values.items() if not key.startswith("_")}
        if name in FACETS:
            made[name] = FACETS[name](**plain)
            assert made[name]._schemaURL == values["_schemaURL"], (name, made[name]._schemaURL, values["_schemaURL"])
    return made

for sent in json.load(sys.stdin):
    made = event_v2.RunEvent(
        eventTime=sent["eventTime"], producer=sent["producer"], eventType=event_v2.RunState(sent["eventType"]),
        run=event_v2.Run(sent["run"]["runId"], facets(sent["run"]["facets"])),
        job=event_v2.Job(sent["job"]["namespace"], sent["job"]["name"], facets(sent["job"]["facets"])),
        inputs=[
            event_v2.InputDataset(
                *name(one), facets=facets(one["facets"]), inputFacets=facets(one.get("inputFacets", {}))
            )
            for one in sent["inputs"]
        ],
        outputs=[event_v2.OutputDataset(*name(one), facets=facets(one["facets"])) for one in sent["outputs"]],
    )
    assert made.schemaURL == sent["schemaURL"], (made.schemaURL, sent["schemaURL"])
    back = json.loads(serde.Serde.to_json(made))
    for part in ("eventType", "eventTime", "job", "inputs"):
        print(json.dumps(back[part], sort_keys=True))
"""


@with_peers
def test_openlineages_own_client_reads_the_events(make_event: MakeEvent, server: Server) -> None:
    settings = NotifySettings.of({"openlineage": {"url": server.url}})
    announce_start(RUN, settings)
    for verdict in ({**IN_SERVICE, "pushed": True}, None):
        event = make_event(verdict)
        announce_end(lambda event=event: event, settings)  # type: ignore[misc]
    sent = [json.loads(request["body"]) for request in server.requests]
    done = subprocess.run([PEERS, "-c", READ_LINEAGE], input=json.dumps(sent), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 4 * len(sent)


class KubeflowRegistry:
    """Answers as Kubeflow Model Registry does to the calls that its own Python client makes."""

    def __init__(self, api: str = "v1") -> None:
        self.root, self.kept = f"/api/model_registry/{api}/", list[dict[str, Any]]()
        self.down_at = -1

    def __call__(self, request: Request) -> tuple[int, Any]:
        parts = urlsplit(request["path"])
        if not parts.path.startswith(self.root):
            return 404, {"code": "404", "message": "page not found"}
        kind, *rest = parts.path.removeprefix(self.root).split("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if request["method"] == "GET":
            if kind.endswith("s"):
                return 200, {"items": [], "nextPageToken": "", "pageSize": 1, "size": 0}
            of = [one for one in self.kept if one["kind"] == kind and one["body"]["name"] == query["name"]]
            found = [one for one in of if one["parent"] == query.get("parentResourceId", "")]
            return (200, found[0]["body"]) if found else (404, {"code": "404", "message": "not found"})
        if len(self.kept) == self.down_at:
            return 400, {"code": "400", "message": "the database is gone"}
        body = {**json.loads(request["body"]), "id": str(len(self.kept) + 1)}
        made = "model_artifact" if rest else kind.removesuffix("s")
        parent = rest[0] if rest else body.get("registeredModelId", "")
        self.kept.append({"kind": made, "parent": parent, "body": body})
        return 201, body


@pytest.mark.parametrize("api", ["v1", "v1alpha3"])
def test_a_version_is_registered_once_with_location_metrics_and_digest(
    make_event: MakeEvent, server: Server, api: str
) -> None:
    server.respond = registry = KubeflowRegistry(api)
    where = {"url": server.url}
    assert announce(make_event(REFUSED), kubeflow_registry=where) == []
    assert registry.kept == []
    for verdict in ({**IN_SERVICE, "pushed": True}, IN_SERVICE):
        assert announce(make_event(verdict), kubeflow_registry=where) == []
    model, version, artifact = (one["body"] for one in registry.kept)
    assert model["name"] == "asr"
    assert (version["name"], version["registeredModelId"]) == ("7", model["id"])
    properties = version["customProperties"]
    assert properties["digest"] == {"metadataType": "MetadataStringValue", "string_value": "ab12"}
    assert properties["wer_high"] == {"metadataType": "MetadataDoubleValue", "double_value": 0.05}
    assert properties["verdict"]["string_value"] == "promoted"
    assert artifact["uri"] == "gs://speech/registry/asr/7"


@pytest.mark.parametrize("made", [0, 1, 2])
def test_a_registration_that_was_cut_off_is_completed_by_the_next_run(
    make_event: MakeEvent, server: Server, made: int
) -> None:
    server.respond = registry = KubeflowRegistry()
    registry.down_at = made
    where = {"url": server.url}
    assert announce(make_event(), kubeflow_registry=where) == ["kubeflow_registry"]
    registry.down_at = -1
    assert announce(make_event(IN_SERVICE), kubeflow_registry=where) == []
    assert [one["kind"] for one in registry.kept] == ["registered_model", "model_version", "model_artifact"]


READ_REGISTRY = """
import sys, warnings
warnings.simplefilter("ignore")
from model_registry import ModelRegistry
host, port = sys.argv[1].rsplit(":", 1)
registry = ModelRegistry(host, int(port), author="voxline", is_secure=False)
registry.register_model(
    "peer", "gs://speech/registry/peer/1", model_format_name="tensorflow", model_format_version="2", version="1",
    metadata={"digest": "ab12", "wer": 0.031},
)
print(registry.get_registered_model("asr").name, registry.get_model_version("asr", "7").custom_properties["wer"])
print(registry.get_model_artifact("asr", "7").uri)
"""


@with_peers
def test_kubeflows_own_client_finds_the_version_and_makes_the_same_calls(make_event: MakeEvent, server: Server) -> None:
    server.respond = registry = KubeflowRegistry()
    assert announce(make_event(), kubeflow_registry={"url": server.url}) == []
    ours, server.requests[:] = list(server.requests), []
    done = subprocess.run([PEERS, "-c", READ_REGISTRY, server.url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["asr", "0.031", "gs://speech/registry/asr/7"]
    theirs = [one for one in registry.kept if one not in registry.kept[:3]]
    assert [one["kind"] for one in theirs] == [one["kind"] for one in registry.kept[:3]]
    for own, their in zip(registry.kept, theirs, strict=False):
        assert their["body"].keys() - {"owner", "author"} <= own["body"].keys()
    posted = [[one["path"] for one in calls if one["method"] == "POST"] for calls in (ours, server.requests)]
    assert [path.rpartition("/")[2] for path in posted[0]] == [path.rpartition("/")[2] for path in posted[1]]


def test_mlflows_registry_has_the_version_once_and_an_alias(make_event: MakeEvent, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    uri = (tmp_path / "registry").as_uri()
    for verdict in (REFUSED, {**IN_SERVICE, "pushed": True}, IN_SERVICE):
        assert announce(make_event(verdict), mlflow_registry={"uri": uri}) == []
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    (version,) = client.search_model_versions("name = 'asr'")
    assert version.source == "gs://speech/registry/asr/7"
    assert version.tags["voxline.version"] == "7"
    assert version.tags["voxline.digest"] == "ab12"
    assert client.get_model_version_by_alias("asr", "in-service").version == version.version
