"""Our client, and our stand-in, beside Kubeflow Pipelines' own API server. These tests start no run."""

import datetime
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kfp_stand_in import running
from tests.cluster.kubeflow.compiled import accepted_runs, compile_run, compile_search
from tests.kubeflow.pipelines_server import HOST, PipelinesServer
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer, RequestRefusedError, list_all, list_named
from voxline.pipelines.cluster.submit import CompiledPipeline, PipelineVersion, get_experiment_id, upload_version
from voxline.pipelines.config.load import load_config

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ("asr/demo.yaml", "tts/demo.yaml")
UNKNOWN = "0d6d40b5-7b17-4c1e-8f2d-111111111111"

Request = tuple[str, str, Any]


@pytest.fixture(scope="module")
def server(pipelines: PipelinesServer) -> KfpServer:
    return KfpServer(KfpEndpoint(HOST))


def compiled(config: str, server: KfpServer, *settings: str) -> CompiledPipeline:
    files = [ROOT / "configs" / config, ROOT / "configs/cluster/one-node.yaml"]
    given = ["cluster.images.tag=v1", *settings]
    return CompiledPipeline.of(load_config(files, given, pipeline=config.partition("/")[0]), server.version)


def versions(server: KfpServer, pipeline_id: str) -> list[str]:
    listing = server.client.pipelines.pipeline_service_list_pipeline_versions
    found = list_all(lambda **query: listing(pipeline_id, **query), "pipeline_versions")
    return [str(one.display_name) for one in found]


def test_the_server_says_its_version(server: KfpServer) -> None:
    assert server.version == (2, 17, 0)
    assert server.namespace is None, "a server without users"


@pytest.mark.parametrize("config", CONFIGS)
def test_only_new_content_is_uploaded(server: KfpServer, config: str) -> None:
    pipeline = compiled(config, server)
    first, second = upload_version(server, pipeline), upload_version(server, pipeline)
    other = upload_version(server, compiled(config, server, "train.epochs=3"))
    assert [one.uploaded for one in (first, second, other)] == [True, False, True]
    assert (second.pipeline_id, second.version_id) == (first.pipeline_id, first.version_id)
    names = versions(server, first.pipeline_id)
    assert sorted(names) == sorted([first.name, other.name]), "those of one second in any order"


@pytest.mark.parametrize("name", accepted_runs())
def test_the_server_takes_every_config_on_every_overlay(server: KfpServer, name: str) -> None:
    pipeline = compile_run(*accepted_runs()[name])
    version = upload_version(server, pipeline)
    assert version.version_id


def test_the_server_takes_a_search_with_the_most_trials(server: KfpServer, tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    compile_search(file)
    version = upload_version(server, CompiledPipeline(file.read_bytes(), "search", "most-trials"))
    assert version.version_id


def test_lists_are_read_page_by_page(server: KfpServer) -> None:
    ids = [get_experiment_id(server, f"page-{number}") for number in range(5)]
    listing = server.client.experiments.experiment_service_list_experiments
    found = [one.experiment_id for one in list_all(listing, "experiments", page_size=2, namespace="")]
    assert sorted(one for one in found if one in ids) == sorted(ids), "each once; those of one second in any order"
    (one,) = list_named(listing, "experiments", "page-3", page_size=2, namespace="")
    assert one.experiment_id == ids[3]
    assert get_experiment_id(server, "page-3") == ids[3]


def test_a_file_that_is_no_pipeline_is_refused(server: KfpServer) -> None:
    good = compiled("asr/demo.yaml", server)
    for text in (b"a: 1\n", b"pipelineInfo: {name: x}\nroot: {}\n"):
        with pytest.raises(RequestRefusedError) as refusal:
            upload_version(server, CompiledPipeline(text, good.pipeline, f"bad-{len(text)}"))
        assert refusal.value.status == 400


def test_the_clocks_agree(server: KfpServer) -> None:
    """`schedule` compares the times of an answer with its own clock."""
    get_experiment_id(server, "clock")
    (found,) = list_named(server.client.experiments.experiment_service_list_experiments, "experiments", "clock")
    assert abs(datetime.datetime.now(datetime.UTC) - found.created_at) < datetime.timedelta(minutes=10)


class Caller:
    """Sends requests without our client; the status of the answer counts."""

    def __init__(self, host: str, config: str) -> None:
        self.host = host
        client = KfpServer(KfpEndpoint(host))
        self.version: PipelineVersion = upload_version(client, compiled(config, client))
        self.experiment = get_experiment_id(client, "compared")

    def status(self, method: str, path: str, body: Any = None) -> int:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.host}/apis/v2beta1/{path}", data, method=method)  # noqa: S310
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - a fixed host
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def reference(self) -> dict[str, str]:
        return {"pipeline_id": self.version.pipeline_id, "pipeline_version_id": self.version.version_id}

    def schedule(self, cron: str, concurrency: str = "1", **more: Any) -> Request:
        body = {"display_name": "s", "experiment_id": self.experiment, "max_concurrency": concurrency}
        body |= {"mode": "DISABLE", "trigger": {"cron_schedule": {"cron": cron}}}
        return "POST", "recurringruns", {**body, "pipeline_version_reference": self.reference(), **more}

    def run(self, **more: Any) -> Request:
        body = {"display_name": "r", "experiment_id": self.experiment, "pipeline_version_reference": self.reference()}
        return "POST", "runs", {**body, **more}


NIGHTLY = "0 0 2 * * *"
REQUESTS: dict[str, Callable[[Caller], Request]] = {
    "the same experiment": lambda caller: ("POST", "experiments", {"display_name": "compared"}),
    "an empty experiment": lambda caller: ("POST", "experiments", {"display_name": ""}),
    "the same pipeline": lambda caller: ("POST", "pipelines", {"display_name": caller.version.pipeline}),
    "a namespace": lambda caller: ("POST", "experiments", {"display_name": "n", "namespace": "team-speech"}),
    "a listed namespace": lambda caller: ("GET", "runs?namespace=team-speech", None),
    "an unknown run": lambda caller: ("GET", f"runs/{UNKNOWN}", None),
    "an unknown run's end": lambda caller: ("POST", f"runs/{UNKNOWN}:terminate", {}),
    "an unknown pipeline": lambda caller: ("GET", f"pipelines/{UNKNOWN}", None),
    "an unknown schedule": lambda caller: ("DELETE", f"recurringruns/{UNKNOWN}", None),
    "an unknown schedule's end": lambda caller: ("POST", f"recurringruns/{UNKNOWN}:disable", {}),
    "a change of a schedule": lambda caller: ("PATCH", f"recurringruns/{UNKNOWN}", {}),
    "a run of nothing": lambda caller: caller.run(pipeline_version_reference=None),
    "a run in no experiment": lambda caller: caller.run(experiment_id=UNKNOWN),
    "a run of an unknown version": lambda caller: caller.run(
        pipeline_version_reference={"pipeline_id": caller.version.pipeline_id, "pipeline_version_id": UNKNOWN}
    ),
    "a run with an unknown parameter": lambda caller: caller.run(runtime_config={"parameters": {"nothing": 1}}),
    "a schedule of nothing": lambda caller: caller.schedule(NIGHTLY, pipeline_version_reference=None),
    "a schedule of an unknown version": lambda caller: caller.schedule(
        NIGHTLY,
        pipeline_version_reference={"pipeline_id": caller.version.pipeline_id, "pipeline_version_id": UNKNOWN},
    ),
    "a schedule in no experiment": lambda caller: caller.schedule(NIGHTLY, experiment_id=UNKNOWN),
    "no concurrency": lambda caller: caller.schedule(NIGHTLY, "0"),
    "a concurrency of 11": lambda caller: caller.schedule(NIGHTLY, "11"),
    "no cron": lambda caller: caller.schedule("at night"),
    "an hour of 25": lambda caller: caller.schedule("0 0 25 * * *"),
    "seven fields": lambda caller: caller.schedule(f"{NIGHTLY} *"),
    "a time zone": lambda caller: caller.schedule(f"TZ=Europe/Berlin {NIGHTLY}"),
}


@pytest.fixture(scope="module")
def callers(pipelines: PipelinesServer) -> Iterator[tuple[Caller, Caller]]:
    with running() as stand_in:
        yield Caller(HOST, "asr/demo.yaml"), Caller(stand_in.host, "asr/demo.yaml")


@pytest.mark.parametrize("name", REQUESTS)
def test_the_stand_in_answers_as_the_server_does(callers: tuple[Caller, Caller], name: str) -> None:
    real, stand_in = (caller.status(*REQUESTS[name](caller)) for caller in callers)
    assert stand_in == real, f"the server answers {real}, the stand-in {stand_in}"
