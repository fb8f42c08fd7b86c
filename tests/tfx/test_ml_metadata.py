"""Lineage of runs, read by ML Metadata's own client: from SQLite, and through gRPC as Kubeflow Pipelines serves it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tfx.conftest import Ran

SENT = """
import sys
from voxline.notify.deliver import announce_end
from voxline.notify.event import MetricValue, RunEvent, RunIdentity, StepRecord
from voxline.notify.settings import NotifySettings

uri, run, status, verdict = sys.argv[1:]
key = {"ingest": "1a", "convert": "2b", "extract": "3c", "train": "4d", "evaluate": "5e", "push": "6f"}
steps = [
    StepRecord(name, "succeeded", 2.5, reused=name == "ingest", key=key[name], folder=f"/store/{name}/{key[name]}",
               counts={"utterances": 96})
    for name in key
]
steps[-1].status = status
event = RunEvent(
    RunIdentity("asr", "nightly", "asr", ("gs://speech/a", "gs://speech/b"), run, 1_790_000_000.0),
    verdict, "Pushed as version 7", 1_790_000_900.0, tuple(steps), rejects={},
    metrics={"wer": MetricValue(0.031, 0.02, 0.05)}, links={}, revision="abc",
    version=7, model_uri="gs://speech/registry/asr/7", digest="ab12",
)
assert announce_end(lambda: event, NotifySettings(mlmd={"uri": uri})) == []
"""

READ = """
import json, sys
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

config = mlmd.ConnectionConfig()
config.sqlite.filename_uri = sys.argv[1]
store = metadata_store.MetadataStore(config)
value = lambda property: getattr(property, property.WhichOneof("value"))
shown = lambda node: {name: value(property) for name, property in node.custom_properties.items()}
runs = []
for run in store.get_contexts_by_type("system.PipelineRun"):
    steps = {}
    for execution in store.get_executions_by_context(run.id):
        ends = {"in": [], "out": []}
        for event in store.get_events_by_execution_ids([execution.id]):
            (artifact,) = store.get_artifacts_by_id([event.artifact_id])
            ends["in" if event.type == mlmd.Event.INPUT else "out"].append(
                [artifact.type, artifact.uri, shown(artifact)]
            )
        state = mlmd.Execution.State.Name(execution.last_known_state)
        steps[shown(execution)["task_name"]] = {"state": state, **ends}
    parents = [parent.name for parent in store.get_parent_contexts_by_context(run.id)]
    runs.append({"name": run.name, "parents": parents, "steps": steps, "facts": shown(run)})

# From the version back to what it was made of.
made_of, todo = set(), [a.id for a in store.get_artifacts_by_uri("gs://speech/registry/asr/7")]
while todo:
    events = store.get_events_by_artifact_ids([todo.pop()])
    for event in events:
        if event.type == mlmd.Event.OUTPUT:
            for read in store.get_events_by_execution_ids([event.execution_id]):
                if read.type == mlmd.Event.INPUT and read.artifact_id not in made_of:
                    made_of.add(read.artifact_id)
                    todo.append(read.artifact_id)
uris = sorted(artifact.uri for artifact in store.get_artifacts_by_id(made_of))
print(json.dumps({"runs": runs, "made_of": uris,
                  "artifacts": len(store.get_artifacts())}))
"""

SERVED = """
# ML Metadata's service, by its own library behind gRPC: its server is no Python package.
import subprocess, sys
from concurrent import futures
import grpc
from ml_metadata import metadata_store
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2 as mlmd
from ml_metadata.proto import metadata_store_service_pb2 as service

config = mlmd.ConnectionConfig()
config.sqlite.filename_uri = sys.argv[1]
config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
store = metadata_store.MetadataStore(config)._metadata_store

def handler(name):
    def answer(request, context):
        response, message, status = getattr(library, name)(store, request)
        if status:
            context.abort(next(code for code in grpc.StatusCode if code.value[0] == status), message.decode())
        return response
    return grpc.unary_unary_rpc_method_handler(answer)

methods = {m.name: handler(m.name) for m in service.DESCRIPTOR.services_by_name["MetadataStoreService"].methods}
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("ml_metadata.MetadataStoreService", methods)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[2], f"grpc://127.0.0.1:{port}", *sys.argv[3:]]).returncode)
"""

Read = Callable[[Path], dict[str, Any]]


@pytest.fixture
def read(ran: Ran) -> Read:
    """What MLMD's client finds in a store."""
    return lambda file: json.loads(ran("", "python3", "-c", READ, str(file)).stdout)


def test_a_version_leads_back_to_its_recordings(ran: Ran, read: Read, tmp_path: Path) -> None:
    file = tmp_path / "lineage.sqlite"
    ran("", "python3", "-c", SENT, f"sqlite://{file}", "run-1", "succeeded", "promoted")
    ran("", "python3", "-c", SENT, f"sqlite://{file}", "run-1", "succeeded", "promoted")  # delivered twice
    stored = read(file)
    (run,) = stored["runs"]
    assert (run["name"], run["parents"]) == ("run-1", ["asr.nightly"])
    assert (run["facts"]["verdict"], run["facts"]["version"]) == ("promoted", 7)
    assert run["steps"]["ingest"]["state"] == "CACHED"
    assert [artifact[:2] for artifact in run["steps"]["ingest"]["in"]] == [
        ["system.Dataset", "gs://speech/a"],
        ["system.Dataset", "gs://speech/b"],
    ]
    evaluated = run["steps"]["evaluate"]
    assert {artifact[1] for artifact in evaluated["in"]} == {"/store/train/4d", "/store/convert/2b"}
    ((kind, _, facts),) = evaluated["out"]
    assert (kind, facts["wer"], facts["wer_low"], facts["utterances"]) == ("system.Metrics", 0.031, 0.02, 96)
    assert {"gs://speech/a", "gs://speech/b", "/store/extract/3c", "/store/evaluate/5e"} <= set(stored["made_of"])


def test_a_second_run_shares_the_outputs_that_it_reused(ran: Ran, read: Read, tmp_path: Path) -> None:
    file = tmp_path / "lineage.sqlite"
    ran("", "python3", "-c", SENT, f"sqlite://{file}", "run-1", "succeeded", "promoted")
    count = read(file)["artifacts"]
    ran("", "python3", "-c", SENT, f"sqlite://{file}", "run-2", "failed", "failed")
    stored = read(file)
    assert [run["name"] for run in stored["runs"]] == ["run-1", "run-2"]
    assert stored["artifacts"] == count
    assert stored["runs"][1]["steps"]["push"]["state"] == "FAILED"
    assert stored["runs"][1]["steps"]["push"]["out"] == []


def test_a_server_is_written_to_by_grpc(ran: Ran, read: Read, tmp_path: Path) -> None:
    file = tmp_path / "lineage.sqlite"
    ran("", "python3", "-c", SERVED, str(file), SENT, "run-1", "succeeded", "promoted")
    (run,) = read(file)["runs"]
    assert set(run["steps"]) == {"ingest", "convert", "extract", "train", "evaluate", "push"}
