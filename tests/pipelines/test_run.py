"""`voxline run asr`, for real: every step in its own process, killed, refused, pushed, stopped."""

import json
import os
import re
import shutil
import signal
import ssl  # noqa: F401 - a process that may have connections
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.command import voxline
from tests.pipelines.conftest import House, check_step_keys
from tests.store.test_step_cache import flip
from tests.waiting import PATIENCE_SECONDS, wait_until
from voxline.data.manifest import read_manifest
from voxline.inference.saved_model import model_digest, read_model_info
from voxline.notify.event import MetricValue, PublishedModel, RunEvent, RunIdentity, StepRecord
from voxline.notify.history import read_runs, record_run
from voxline.pipelines.cli.main import app
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.kfp_graph import pipeline_arguments
from voxline.pipelines.local.graph_process import start_graph
from voxline.pipelines.local.plan import PlannedStep, plan_run
from voxline.pipelines.local.run_record import RunRecord
from voxline.pipelines.local.runner import write_last_record
from voxline.registry.journal import RegistryEvent
from voxline.settings import merge
from voxline.store.files import read_json
from voxline.store.hashing import hash_value


def record(house: House) -> dict[str, Any]:
    found: dict[str, Any] = read_json(house.run_dir / "run.json")
    return found


def processes_of(house: House) -> list[str]:
    """Command lines of processes that work for a run in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # That of a fork is the command's, so its folder tells it too.
            line = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
            inside = (process / "cwd").readlink() == house.folder
            running = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue
        if (inside or str(house.run_dir) in line) and running:
            found.append(line)
    return found


def lines_until(process: "subprocess.Popen[str]", text: str) -> list[str]:
    seen = []
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was never said:\n{''.join(seen)}")


def year_of_refusals(folder: Path) -> Path:
    """A history in which a model was promoted, and none of the 30 that followed until today, with the same hours."""
    start = time.time() - 31 * 86_400
    for night in range(31):
        event = RunEvent(
            RunIdentity("asr", "tiny", "asr", id=f"night-{night:02d}", started=start + 86_400 * night),
            "refused" if night else "promoted",
            "",
            start + 600 + 86_400 * night,
            steps=(StepRecord("extract", "succeeded", metrics={"train_hours": 0.01}),),
            metrics={"wer": MetricValue(0.05 + 0.01 * (night % 3))},
        )
        record_run(event, folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> dict[str, Any]:
    """Four runs of one config in one folder.

    Killed while it trains; beside that one; to the end; and with a laxer gate and a forecast that has no history yet.
    """
    house = House(tmp_path_factory.mktemp("runs"), corpus)
    killed = house.start("run", "asr", "--config", "tiny.yaml")
    lines_until(killed, "voxline asr")
    wait_until((house.run_dir / "run.json").exists, "the first run to hold the folder")
    beside = dict(zip(("status", "seen"), house.run(), strict=True))
    lines_until(killed, "extract done")
    wait_until(lambda: record(house)["steps"][-1]["name"] == "train", "train to start")
    killed.kill()
    killed.wait()
    wait_until(lambda: not processes_of(house), "the steps of a killed run to end")
    found: dict[str, Any] = {"house": house, "beside": beside}
    # The smoke test loads the model in one more process: `test_tts_run` and the tests of push have it.
    for name, settings in (
        ("refused", []),
        ("pushed", ["--set=push.limits.wer=10", "--set=forecast.skip_below=0.2"]),
    ):
        status, seen = house.run("--set", "push.smoke_test=false", *settings)
        found[name] = {"status": status, "seen": seen, "record": record(house)}
    shutil.copytree(house.run_dir / "kfp", house.folder / "kfp of pushed")  # a later run removes it
    return found


def test_a_killed_run_can_be_resumed(runs: dict[str, Any]) -> None:
    refused = runs["refused"]
    assert refused["status"] == 0, refused["seen"]
    steps = refused["record"]["steps"]
    assert [step["name"] for step in steps] == list(graph_of("asr"))
    assert {step["status"] for step in steps} == {"succeeded"}
    assert [step["reused"] for step in steps] == [True] * 4 + [False] * 3


def test_the_parts_of_each_steps_key_are_pinned(runs: dict[str, Any]) -> None:
    check_step_keys("asr", runs["refused"]["record"])


def test_a_run_whose_model_is_refused_succeeds_and_gives_the_reason(runs: dict[str, Any]) -> None:
    refused = runs["refused"]
    assert refused["record"]["status"] == "succeeded"
    assert refused["record"]["pushed"] is False
    assert refused["record"]["model"] is None
    assert "above the limit of 30.00% (limits.wer)" in refused["record"]["reason"]
    assert refused["seen"][-1] == refused["record"]["reason"]


def test_the_record_names_the_pushed_model_in_the_registry(runs: dict[str, Any]) -> None:
    pushed = runs["pushed"]
    assert pushed["status"] == 0, pushed["seen"]
    assert pushed["record"]["pushed"] is True
    assert pushed["record"]["model"] == str(runs["house"].run_dir / "registry" / "asr" / "1")
    assert read_model_info(pushed["record"]["model"]).sample_rate == 16000
    assert pushed["seen"][-1] == "Pushed as version 1"


@pytest.mark.slow
def test_the_artifact_of_train_is_the_model(
    runs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its URI opens as a SavedModel: of a run on this machine, and where KFP gives the URI, or where it takes any."""
    import tensorflow as tf
    from kfp import dsl

    from voxline.components.train.component import train_component

    house = runs["house"]
    (file,) = (house.folder / "kfp of pushed").glob("*/train/executor_output.json")
    (local,) = read_json(file)["artifacts"]["model"]["artifacts"]
    (file,) = (house.folder / "kfp of pushed").glob("*/extract/executor_output.json")
    (extracted,) = read_json(file)["artifacts"]["dataset"]["artifacts"]
    config = load_config([house.run_dir / "config.yaml"]).plain()
    train = train_component("asr")
    parameters = [
        f"train__{name}" for name in train.component_spec.inputs if name not in ("dataset", "store", "registry")
    ]
    values = {name.removeprefix("train__"): value for name, value in pipeline_arguments(config, parameters).items()}
    found = {"here": Path(local["uri"])}
    for name, uri in (("kfp", "minio://mlpipeline/v2/model"), ("vertex", "gs://speech/root/model")):
        model = dsl.Model(name="model", uri=uri)
        model.custom_path = str(tmp_path / name)
        monkeypatch.setenv("VOXLINE_ARTIFACT_URIS", "1" if name == "vertex" else "")
        dataset = dsl.Dataset(uri=extracted["uri"], metadata=extracted["metadata"])
        train.python_func(dataset=dataset, model=model, store=config["store"], registry=config["registry"], **values)
        found[name] = tmp_path / name if name == "kfp" else Path(model.uri)
        measured = {name: model.metadata[name] for name in ("seconds", "cpu_seconds")}
        assert model.metadata == {**local["metadata"], **measured, "reused": True}
        assert (model.uri == uri) is (name == "kfp")
    assert found["vertex"] == found["here"]
    assert not (tmp_path / "vertex").exists()
    for folder in (found["here"], found["kfp"]):
        assert tf.saved_model.load(str(folder)).signatures["serving_default"].structured_outputs
        assert read_model_info(folder).sample_rate == 16000
        assert model_digest(folder) == local["metadata"]["digest"]


def test_a_second_run_reuses_everything_that_did_not_change(runs: dict[str, Any]) -> None:
    pushed = runs["pushed"]
    assert [step["name"] for step in pushed["record"]["steps"] if not step["reused"]] == ["forecast", "push"]
    assert "No forecast, so it trains: fewer than 10 runs were judged" in "".join(pushed["seen"])


@pytest.mark.slow
def test_a_run_that_would_be_refused_trains_nothing_and_says_so(runs: dict[str, Any]) -> None:
    """On the screen, in the log, on its page, in run.json and in the history; with status 0."""
    house: House = runs["house"]
    history = f"--set=notify.history={year_of_refusals(house.folder / 'history')}"
    status, seen = house.run(history, "--set=forecast.skip_below=0.2")
    assert status == 0, seen
    skipped = record(house)
    assert [step["name"] for step in skipped["steps"]] == [*list(graph_of("asr"))[:4], "forecast"]
    assert skipped["pushed"] is False
    reason = skipped["reason"]
    assert re.match(r"Nothing was trained: a promotion has a probability of 1?\d%, less than 20% \(forecast", reason)
    assert seen[-1] == reason
    assert "0 of 30 judged runs were promoted" in (house.run_dir / "run.log").read_text(encoding="utf-8")
    page = (house.run_dir / "report.html").read_text(encoding="utf-8")
    assert reason in page
    assert 'href="validation.html"' in page
    (last,) = read_runs(house.folder / "history")[-1:]
    assert (last["verdict"], last["succeeded"], last["reason"]) == ("skipped", False, reason)
    assert last["hours"]["train"] > 0
    assert "skipped" in voxline("runs", "history", house.folder / "history").stdout


def test_the_record_is_complete(runs: dict[str, Any]) -> None:
    found = runs["pushed"]["record"]
    assert (found["pipeline"], found["name"]) == ("asr", "tiny")
    assert 0 <= found["metrics"]["wer_low"] <= found["metrics"]["wer"] <= found["metrics"]["wer_high"]
    assert found["seconds"] >= sum(step["work_seconds"] for step in found["steps"]) > 0
    assert found["steps"][0]["counts"]["utterances"] == 34
    assert found["cost"]["cpu_hours"] > 0
    assert found["cost"].keys().isdisjoint(("amount", "points")), "no price, and nothing was in service before"
    for step in found["steps"]:
        assert Path(step["folder"]).is_dir()
        assert all(Path(path).exists() for path in step["outputs"].values())
    assert found["versions"]["keras"].startswith("3.")
    page = (runs["house"].run_dir / found["report"]).read_text(encoding="utf-8")
    assert "<html" in page


def test_the_screen_shows_a_summary_and_the_log_everything(runs: dict[str, Any]) -> None:
    seen, log = runs["refused"]["seen"], (runs["house"].run_dir / "run.log").read_text(encoding="utf-8")
    assert any(line.startswith("▸ evaluate: word error rate") for line in seen)
    assert not [line for line in seen if "INFO" in line or "executorInput" in line or "Traceback" in line]
    assert len(seen) < 50
    assert "Streamed logs" in log
    assert "\x1b" not in log
    assert "You may be attemping" not in log


def test_a_single_step_uses_the_outputs_of_the_run(runs: dict[str, Any]) -> None:
    house: House = runs["house"]
    arguments = ("--config", "tiny.yaml", "--set", "evaluate.worst_utterances=3")
    ended = voxline("step", "evaluate", *arguments, cwd=house.folder)
    assert ended.returncode == 0, ended.stderr
    assert "▸ evaluate: word error rate" in ended.stdout
    assert re.search(r"^metrics +/", ended.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_run_under_nohup_outlives_its_terminal_and_names_the_step_that_fails(house: House) -> None:
    gauges = house.folder / "voxline.prom"
    given = ("convert.min_seconds=50", "convert.max_seconds=51", f"notify.textfile={gauges}")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = house.start("run", "asr", "--config", "tiny.yaml", *(f"--set={one}" for one in given))
    finally:
        signal.signal(signal.SIGHUP, before)
    lines_until(process, "ingest done")
    process.send_signal(signal.SIGHUP)
    seen, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    told = "\n".join(seen.splitlines()[-3:])
    assert "convert failed: convert: 34 of 34 utterances were rejected, so none is left" in told
    assert "34 × too_short, e.g. " in told
    assert "; lower convert.min_seconds" in told
    found = record(house)
    assert (found["status"], found["failed_step"], found["report"]) == ("failed", "convert", "report.html")
    assert [step["status"] for step in found["steps"]] == ["succeeded", "failed"]
    page = (house.run_dir / "report.html").read_text(encoding="utf-8")
    assert "tiny: failed in convert" in page
    assert 'voxline_run_verdict{model="asr",pipeline="asr",run="tiny",verdict="failed"} 1.0' in gauges.read_text()
    assert "voxline_last_success_timestamp_seconds" not in gauges.read_text()
    assert "lower convert.min_seconds" in page
    assert "<audio" in page


def test_a_missing_corpus_is_told_before_anything_is_written(house: House) -> None:
    status, seen = house.run("--set", "corpus.uri=nowhere")
    assert status == 2
    assert "nowhere" in seen[-1]
    assert len(seen) == 2  # the title and the fault: no step, no report, no log
    assert not house.run_dir.exists()


@pytest.mark.slow
def test_a_run_stops_after_a_step_and_forces_one(house: House) -> None:
    """Without these two options a run of the whole graph would train."""
    status, seen = house.run("--until", "convert")
    assert seen[-1] == "Stopped after convert, as --until says"
    found = record(house)
    assert (status, found["status"], found["until"]) == (0, "succeeded", "convert")
    assert [(step["name"], step["reused"]) for step in found["steps"]] == [("ingest", False), ("convert", False)]
    wav = next((house.run_dir / "store/wavs").rglob("*.wav"))
    decoded = wav.stat().st_mtime_ns
    status, seen = house.run("--until", "convert", "--force", "convert")
    assert [(step["name"], step["reused"]) for step in record(house)["steps"]] == [("ingest", True), ("convert", False)]
    assert any("--force does it again" in line for line in seen)
    assert wav.stat().st_mtime_ns == decoded


def test_a_dry_run_names_the_steps_that_would_run_and_writes_nothing(runs: dict[str, Any]) -> None:
    house = runs["house"]

    def plan(*arguments: str) -> dict[str, tuple[str, str]]:
        chosen = ["run", "asr", "-c", str(house.folder / "tiny.yaml"), "--run-dir", str(house.run_dir)]
        before = {file: file.stat().st_mtime_ns for file in house.run_dir.rglob("*") if file.is_file()}
        shown = CliRunner().invoke(app, [*chosen, "--dry-run", "--json", *arguments], catch_exceptions=False)
        assert {file: file.stat().st_mtime_ns for file in house.run_dir.rglob("*") if file.is_file()} == before
        return {step["name"]: (step["action"], step["reason"]) for step in json.loads(shown.stdout)}

    quick = ("--set", "push.smoke_test=false")
    actions = {name: action for name, (action, _) in plan(*quick).items()}
    assert actions == {**dict.fromkeys(graph_of("asr"), "reuse"), "push": "run"}
    changed = plan("--set", "train.epochs=2", "--force", "convert")
    assert changed["ingest"][0] == "reuse"
    assert changed["convert"] == ("run", "--force")
    assert changed["extract"][0] == "depends"
    assert changed["train"] == ("run", "epochs 1 → 2")
    assert list(plan("--until", "validate")) == ["ingest", "convert", "validate"]
    (converted,) = (house.run_dir / "store" / "convert").glob("*/manifest.jsonl")
    utterances = list(read_manifest(converted))
    known = {one.text for one in utterances if one.split == "train"}
    leaked = max((one.text for one in utterances if one.split == "test" and one.text not in known), key=len)
    (house.folder / "leak.txt").write_text(f"{leaked}\n", encoding="utf-8")
    text = plan(
        "--set", "language.kind=ngram", "--set", f"language.text={json.dumps([str(house.folder / 'leak.txt')])}"
    )
    assert text["train"][0] == "reuse"
    assert text["language"][0] == "run"
    assert text["language"][1].startswith("it would fail: language.text holds 1 of ")


def test_a_dry_run_tells_a_training_that_is_taken_over_from_one_that_runs(runs: dict[str, Any]) -> None:
    """A release before the step export had the export's form in the key of train."""
    house = runs["house"]

    def plan(*changes: str) -> dict[str, PlannedStep]:
        config = load_config(house.folder / "tiny.yaml", assignments=changes)
        return {step.name: step for step in plan_run(config, house.run_dir)}

    (marker,) = (house.run_dir / "store" / "train").glob("*/done.json")
    done = read_json(marker)
    settings = merge(done["settings"], {"export": {"onnx": "float32"}})
    key = hash_value({**{name: done[name] for name in ("step", "revision", "inputs")}, "settings": settings})
    trained = marker.parent
    earlier = trained.rename(trained.with_name(key))
    try:
        planned = plan("train.export.onnx=float32")
        others = [plan(), plan("train.export.frequency_warps=[0.9]")]
    finally:
        earlier.rename(trained)
    assert (planned["train"].action, planned["train"].output) == ("reuse", "")
    assert planned["train"].reason == f"takes over what an earlier Voxline wrote: {earlier}"
    assert planned["export"].action == "run"
    assert planned["evaluate"].action != "reuse"  # "depends", unless another test's run was of other settings
    assert [plan["train"].action for plan in others] == ["run", "run"]


@pytest.mark.slow
def test_the_run_shows_the_report_of_a_failed_validation(house: House) -> None:
    status, _ = house.run("--set", "validate.small_splits.severity=error")
    assert status == 1
    assert record(house)["failed_step"] == "validate"
    assert "small_splits" in (house.run_dir / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_an_interrupted_run_leaves_a_record_and_no_process(house: House, number: int, status: int) -> None:
    # Where the tests run in the background, a shell has told them to ignore Ctrl-C, and a child would inherit that.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        gauges = house.folder / f"{status}.prom"
        process = house.start("run", "asr", "--config", "tiny.yaml", "--set", f"notify.textfile={gauges}")
    finally:
        signal.signal(number, before)
    lines_until(process, "ingest done")
    for _ in range(3):  # a person presses Ctrl-C more than once
        process.send_signal(number)
        time.sleep(0.05)
    seen, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == status
    assert seen.splitlines()[-1] == "voxline: stopped; run the same command to resume"
    assert processes_of(house) == []
    assert record(house)["status"] == "interrupted"
    assert 'verdict="interrupted"} 1.0' in gauges.read_text()


@pytest.mark.slow
def test_a_run_that_is_interrupted_while_it_trains_saves_a_checkpoint(house: House) -> None:
    endless = ["--set=train.batch_size=1", "--set=train.epochs=500", "--set=train.evaluate_epochs=500"]
    process = house.start("run", "asr", "--config", "tiny.yaml", "--until=train", *endless)
    lines_until(process, "500 epochs of 20 steps")
    # A fast machine prints its progress after some steps.
    log_file = house.run_dir / "run.log"
    wait_until(lambda: re.search(r", step [\d,]+, loss", log_file.read_text(encoding="utf-8")), "the first steps")
    process.terminate()
    seen, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 143
    log = (house.run_dir / "run.log").read_text(encoding="utf-8")
    stopped = re.search(r"▸ train: stopped after step ([\d,]+) of 10,000; its checkpoint is saved", seen)
    assert stopped, log
    assert "Traceback" not in log
    assert processes_of(house) == []

    step = record(house)["steps"][-1]
    assert (step["name"], step["status"]) == ("train", "interrupted")
    checkpoints = [path.name for path in house.run_dir.glob("store/train/*/checkpoints/step-*")]
    assert f"step-{int(stopped[1].replace(',', '')):08d}" in checkpoints


HEAVY = {
    "apache_beam", "docker.api", "grpc", "keras", "kfp.client", "kubernetes", "librosa", "numba", "onnxruntime",
    "pandas", "pyarrow", "requests", "scipy", "sklearn", "soundfile", "ssl", "tensorflow", "tensorflow_data_validation",
}  # fmt: skip


def test_a_night_in_which_nothing_changed_imports_little_and_once(
    runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processor time is mostly imports, and unlike seconds they are the same on a busy machine."""
    house = runs["house"]
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    status, seen = house.run(
        "--run-dir=night", "--set=store=runs/tiny/store", "--set=registry=runs/tiny/registry",
        "--set=push.smoke_test=false", "--set=push.limits.wer=10", "--set=forecast.skip_below=0.2",
    )  # fmt: skip
    night = read_json(house.folder / "night" / "run.json")
    assert (status, night["reason"]) == (0, "Not pushed: already in service as version 1"), seen
    assert [step["name"] for step in night["steps"] if not step["reused"]] == ["forecast", "push"]

    # Of the command, the graph and all steps: each prints a line for each module.
    log = (house.folder / "night" / "run.log").read_text(encoding="utf-8").splitlines()
    imported = [line.rpartition("|")[2].strip() for line in [*seen, *log] if "import time:" in line]
    assert {"voxline.pipelines.local.runner", "kfp.local", "voxline.components.push.step"} <= set(imported)
    loaded = {name for name in imported if any(f"{name}.".startswith(f"{heavy}.") for heavy in HEAVY)}
    assert not loaded
    assert imported.count("voxline.settings") == 1, "a second Python imported Voxline again"


def test_a_process_with_connections_is_not_forked(tmp_path: Path) -> None:
    assert "ssl" in sys.modules
    process = start_graph(tmp_path / "no request", os.environ, fork=True)
    assert isinstance(process, subprocess.Popen)
    with process:  # its input stays open meanwhile: when that closes, the process kills itself
        assert process.wait() == 1


def test_two_runs_in_one_folder_are_refused(runs: dict[str, Any]) -> None:
    assert runs["beside"]["status"] == 1
    assert "another run is using this folder" in runs["beside"]["seen"][-1]


def test_a_run_without_room_for_its_record_prints_which_version_is_in_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of the run's folder may be the one that filled up."""
    run = RunRecord("asr", "tiny", tmp_path / "run.json", {"corpus": {"uri": "c"}, "store": "s", "registry": "r"})
    (tmp_path / "run.json").touch()  # a file where the folder should be, as root writes to any other place
    run.published = PublishedModel(RegistryEvent(3, "push", "2026-01-01T00:00:00Z", "d"), "registry/asr/3")
    run.reason = run.published.explain("No space left on device")
    with pytest.raises(OSError, match=r"run\.json"):
        write_last_record(run)
    assert "but version 3 is in service, though push did not end: No space left on device" in capsys.readouterr().out


END_OF_PUSH = """
import os, signal
replace = os.replace

def fail(source, target, **named):
    if "/push/" in os.fspath(target) and os.fspath(target).endswith("done.json"):
        {fault}
    return replace(source, target, **named)

os.replace = fail
"""
FAULTS = {
    "full disk": 'raise OSError(28, "No space left on device", os.fspath(target))',
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_push_that_fails_after_the_publication_is_told_as_the_journal_has_it(
    fault: str, runs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last write into the store fails, or it is killed at it: the model is in service by then."""
    house: House = runs["house"]
    store, folder = house.run_dir / "store", tmp_path / "run"
    gate = ["--set=push.smoke_test=false", "--set=push.limits.wer=10"]
    settings = [f"--set=store={store}", f"--run-dir={folder}", *gate]
    (tmp_path / "sitecustomize.py").write_text(END_OF_PUSH.format(fault=FAULTS[fault]), encoding="utf-8")
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", str(tmp_path))
        status, seen = house.run(*settings, "--set=notify.history=" + str(tmp_path / "history"))
    version = folder / "registry" / "asr" / "1"
    assert (version / "saved_model.pb").is_file()
    run = read_json(folder / "run.json")
    assert (status, run["status"], run["failed_step"]) == (1, "failed", "push")
    assert (run["pushed"], run["model"]) == (True, str(version))
    assert "version 1" in run["reason"]
    assert any(line.startswith("in service") for line in seen)
    assert "version 1" in seen[-1]
    (told,) = read_runs(tmp_path / "history")
    assert (told["verdict"], told["failed_step"], told["version"]) == ("promoted", "push", 1)
    assert "In service, but push did not end" in (folder / "report.html").read_text(encoding="utf-8")
    status, seen = house.run(*settings)
    run = read_json(folder / "run.json")
    assert (status, run["status"], run["pushed"], run["model"]) == (0, "succeeded", False, str(version))
    assert seen[-1] == "Not pushed: already in service as version 1"


@pytest.mark.slow
def test_flipped_bits_in_a_store_are_named_and_healed_by_the_next_run(runs: dict[str, Any]) -> None:
    """One in a transcript, and one in an error rate."""
    house: House = runs["house"]
    pushed = runs["pushed"]["record"]
    folders = {step["name"]: Path(step["folder"]) for step in pushed["steps"]}
    manifest, metrics = folders["convert"] / "manifest.jsonl", folders["evaluate"] / "metrics.json"
    before = [file.read_bytes() for file in (manifest, metrics)]
    flip(manifest, before[0].index(b'"text":"') + len(b'"text":"'))
    flip(metrics, before[1].index(b'"value": ', before[1].index(b'"wer"')) + len(b'"value": '))
    status, seen = house.run("--set", "push.smoke_test=false", "--set", "push.limits.wer=10")
    assert status == 0, seen
    told = "\n".join(seen)
    for step, file in (("convert", manifest), ("evaluate", metrics)):
        name = file.relative_to(folders[step]).as_posix()
        assert f"{step}: making it again: {folders[step]}: {name} (its hash is " in told
    assert manifest.read_bytes() == before[0]
    again = record(house)
    assert again["metrics"]["wer"] == pushed["metrics"]["wer"]
    assert again["pushed"] is False
    assert seen[-1] == "Not pushed: already in service as version 1"
