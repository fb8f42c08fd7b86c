"""Steps in pods of their own: each leaves a record; the last one, or the one that fails, sends the run's outcome."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.notify.conftest import ID, PUSHED, MakeSteps, Server
from tests.pipelines.conftest import compile_to_yaml, load_ir
from tests.push.test_add_a_family import write_model
from voxline.components.on_cluster import RUN_ID_ENV, NotifiedRun
from voxline.components.step_component import _notified
from voxline.errors import WorkError
from voxline.inference.saved_model import model_digest
from voxline.notify.event import StepRecord
from voxline.notify.settings import NOTIFY_ENV, NotifySettings
from voxline.operations.store_contents import FILE_KINDS
from voxline.registry.registry import Registry
from voxline.registry.signing import PUBLIC_KEY_ENV
from voxline.registry.training_data import TRAINED_ON, TrainingData
from voxline.store.layout import RUN_STEPS

RunStep = Callable[..., None]


@pytest.fixture
def run_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server) -> RunStep:
    """Does the work of a step as its component does, in a pod with the variables that the compiler sets."""
    settings = {"webhook": {"url": server.url}, "timeout_seconds": 5, "attempts": 1}
    settings["run_page"] = "https://kfp.example.com/#/runs/details/{id}"
    about = NotifiedRun(
        "asr", "nightly", "asr", ["gs://speech/LibriSpeech"], ["ingest", "forecast", "train", "evaluate", "push"],
        NotifySettings.of(settings).plain(), links={"forecast": "report", "push": "report"},
    )  # fmt: skip
    monkeypatch.setenv(NOTIFY_ENV, about.to_json())
    monkeypatch.setenv(RUN_ID_ENV, ID)

    def run(record: StepRecord, error: Exception | None = None, **arguments: str) -> None:
        output = SimpleNamespace(metadata={})
        given = {"store": str(tmp_path / "store"), "report": object(), "output": output, **arguments}
        with _notified(record.name, given):
            if error:
                raise error
            output.metadata = {
                "uri": "", "step": record.name, "key": "k", "reused": record.reused, "seconds": 1.0,
                "counts": record.counts, "metrics": record.metrics,
                "outputs": {name: path.lstrip("/") for name, path in record.outputs.items()},
            }  # fmt: skip

    return run


def test_the_last_step_sends_what_all_steps_did(run_step: RunStep, make_steps: MakeSteps, server: Server) -> None:
    for record in make_steps(PUSHED):
        assert server.requests == []
        record.outputs["report"] = f"/pages/{record.name}.html"
        run_step(record)
    (request,) = server.requests
    body = json.loads(request["body"])
    assert body["run"]["id"] == ID
    assert (body["verdict"], body["version"]) == ("promoted", 7)
    assert [step["name"] for step in body["steps"]] == ["ingest", "train", "evaluate", "push"]
    assert body["rejects"] == {"ingest": {"silent": 3, "too_long": 1}}
    assert body["metrics"]["wer"]["high"] == 0.05
    assert body["links"]["page"].endswith(f"/details/{ID}")
    assert body["links"]["report"].endswith("pages/push.html")


def test_a_run_that_trains_nothing_ends_with_the_forecast(
    run_step: RunStep, make_steps: MakeSteps, server: Server, tmp_path: Path
) -> None:
    run_step(make_steps(PUSHED)[0])
    (tmp_path / "forecast.json").write_text(json.dumps({"heading": "Nothing was trained: 2%"}))
    outputs = {"forecast": str(tmp_path / "forecast.json")}
    run_step(StepRecord("forecast", counts={"skipped": 0}, outputs=outputs))
    assert server.requests == [], "the steps after it go on"
    run_step(StepRecord("forecast", counts={"skipped": 1}, outputs=outputs))
    body = json.loads(server.requests[0]["body"])
    assert (body["verdict"], body["reason"], body["succeeded"]) == ("skipped", "Nothing was trained: 2%", False)


def test_a_run_says_what_is_in_production_although_a_speaker_was_erased(
    run_step: RunStep, server: Server, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", 0.5)
    models = Registry(tmp_path / "registry", "asr")
    with models.locked(), models.publishing(model, model_digest(model), "push") as (_, incoming):
        TrainingData("dataset", "rows", 4, []).write(incoming / TRAINED_ON)
    (tmp_path / "forecast.json").write_text(json.dumps({"heading": "Nothing was trained: 2%"}))
    skipped = StepRecord("forecast", counts={"skipped": 1}, outputs={"forecast": str(tmp_path / "forecast.json")})
    run_step(skipped, registry=str(tmp_path / "registry"))
    body = json.loads(server.requests[0]["body"])
    assert body["erased_in_production"] == 4
    assert body["reason"].startswith("version 1, still in production, was trained on 4 utterances of a speaker who")
    assert body["reason"].endswith("; Nothing was trained: 2%")


def test_a_step_that_fails_sends_that_and_still_fails(run_step: RunStep, make_steps: MakeSteps, server: Server) -> None:
    ingest, train, *_ = make_steps(PUSHED)
    run_step(ingest)
    with pytest.raises(WorkError, match="not finite"):
        run_step(train, WorkError("the loss is not finite"))
    body = json.loads(server.requests[0]["body"])
    assert (body["verdict"], body["failed_step"], body["reason"]) == ("failed", "train", "the loss is not finite")
    assert [step["status"] for step in body["steps"]] == ["succeeded", "failed"]


def test_a_record_that_cannot_be_written_costs_its_part_and_nothing_else(
    run_step: RunStep, make_steps: MakeSteps, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / RUN_STEPS).write_text("a file where the folder should be")
    for record in make_steps(PUSHED):
        run_step(record)
    body = json.loads(server.requests[0]["body"])
    assert [step["name"] for step in body["steps"]] == ["push"]
    assert body["verdict"] == "promoted"
    assert "this step will be missing" in capsys.readouterr().out


def test_without_a_run_id_nothing_is_sent_and_that_is_said(
    run_step: RunStep, make_steps: MakeSteps, server: Server, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv(RUN_ID_ENV)
    run_step(make_steps(PUSHED)[-1])
    assert server.requests == []
    assert RUN_ID_ENV in capsys.readouterr().out


def test_garbage_collection_knows_the_records() -> None:
    assert RUN_STEPS in FILE_KINDS


def test_steps_of_a_run_without_receivers_load_none_of_this() -> None:
    assert not os.environ.get(NOTIFY_ENV)
    with _notified("train", {"store": "/nowhere"}) as nothing:
        assert nothing is None


def compiled(tmp_path: Path, settings: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    from voxline.pipelines.config.load import load_config

    given = {
        "name": "nightly",
        "corpus": {"uri": "gs://speech/LibriSpeech"},
        "store": "gs://s/s",
        "registry": "gs://s/r",
    }
    config = load_config({**given, **more, "notify": settings}, ["cluster.images.tag=v1"])
    return list(load_ir(compile_to_yaml(config, tmp_path / "asr.yaml")))


def test_a_compiled_step_has_the_run_id_from_its_pod_and_the_settings(tmp_path: Path) -> None:
    spec, platform = compiled(tmp_path, {"webhook": {"url": "https://hooks.example.com", "key_env": "HOOK_KEY"}})
    for name, executor in spec["deploymentSpec"]["executors"].items():
        variables = {one["name"]: one["value"] for one in executor["container"]["env"]}
        about = NotifiedRun(**json.loads(variables[NOTIFY_ENV]))
        assert about.steps == ["ingest", "convert", "validate", "extract", "train", "evaluate", "push"]
        assert about.settings["webhook"]["key_env"] == "HOOK_KEY"
        assert about.links == {"validate": "validation", "push": "report"}
        fields = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"][name]["fieldPathAsEnv"]
        assert {"name": RUN_ID_ENV, "fieldPath": "metadata.labels['pipeline/runid']"} in fields
    (spec, _) = compiled(tmp_path, {}, signing={"public_key": "/keys/key.pub"})
    for executor in spec["deploymentSpec"]["executors"].values():
        assert {"name": PUBLIC_KEY_ENV, "value": "/keys/key.pub"} in executor["container"]["env"]
    assert NOTIFY_ENV not in json.dumps(spec)
