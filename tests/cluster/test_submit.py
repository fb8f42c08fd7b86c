"""`voxline submit`: the same content is one version, a run starts once, and its end is the command's."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import Shell
from tests.cluster.kfp_stand_in import Fault, StandIn
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.kfp_client import KfpServer

QUICK = ("--wait", "--poll", "0.05")


def test_a_run_is_followed_to_its_end(shell: Shell, kfp: StandIn) -> None:
    ended = shell.submit(*QUICK)
    assert ended.status == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[-2].startswith("push works"), "what the last step says"
    assert lines[-1] == "succeeded"
    finished = [line.split()[0] for line in lines if " succeeded " in line]
    assert finished == ["ingest", "convert", "validate", "extract", "train", "evaluate", "push"]
    assert "42 s" in ended.out
    (run,) = kfp.state.runs.values()
    assert run["display_name"].startswith("nightly-")
    assert not list((shell.folder / "home").rglob("*")), "kfp.Client keeps a context in a person's home"


def test_only_new_content_is_uploaded(shell: Shell, kfp: StandIn) -> None:
    first, second = shell.submit(), shell.submit()
    other = shell.submit("--set", "train.epochs=3")
    assert [first.status, second.status, other.status] == [0, 0, 0]
    assert "already uploaded" not in first.out
    assert "already uploaded" in second.out
    names = [version["display_name"] for version in kfp.state.versions.values()]
    assert len(names) == len(set(names)) == 2
    assert len(kfp.state.pipelines) == len(kfp.state.experiments) == 1
    assert len(kfp.state.runs) == 3


def test_a_run_is_given_the_parameters_that_the_ui_compares(shell: Shell, kfp: StandIn) -> None:
    """CompareUtils.ts of KFP's UI reads them from the run, and no default of the pipeline."""
    assert shell.submit("--set", "train.epochs=3").status == 0
    (run,) = kfp.state.runs.values()
    seen = KfpServer(KfpEndpoint(kfp.host)).client.runs.run_service_get_run(run["run_id"]).runtime_config.parameters
    (version,) = kfp.state.versions.values()
    assert seen.keys() == version["pipeline_spec"]["root"]["inputDefinitions"]["parameters"].keys()
    assert (seen["train__epochs"], seen["corpus__uri"]) == (3, "gs://voxline-corpora/LibriSpeech")
    assert isinstance(seen["train__epochs"], int), "the compiled file has 3.0"
    assert json.loads(seen["corpus__settings"])["splits"]


def test_a_failure_names_the_step_and_its_message(shell: Shell, kfp: StandIn) -> None:
    kfp.state.failing["train"] = "voxline.errors.WorkError: the loss is not finite; lower train.learning_rate"
    ended = shell.submit(*QUICK, "--resubmit", "3")
    assert ended.status == 1
    assert "failed at train: OOMKilled (exit code 137): the loss is not finite; lower train.learning_rate;" in ended.err
    (run_id,) = kfp.state.runs  # what fails for good is not submitted again
    assert f"`voxline logs {run_id} train`" in ended.err
    seen = shell("logs", run_id, "train")
    assert seen.status == 0, seen.err
    assert "the loss is not finite" in seen.out
    assert not {"\x1b", "\x07"} & set(seen.out), "a log must not steer the terminal"


def test_a_run_whose_error_may_pass_is_submitted_again(shell: Shell, kfp: StandIn) -> None:
    kfp.state.failing["train"] = "voxline.errors.TransientError: the bucket does not respond"
    ended = shell.submit(*QUICK, "--resubmit", "2")
    assert ended.status == 1
    assert len(kfp.state.runs) == 3
    assert len(kfp.state.versions) == 1
    assert "submitting it again (2 of 2)" in ended.err
    assert shell.submit("--resubmit", "2").status == 2, "without --wait nothing is there to submit again"


def test_a_missing_required_value_is_refused_before_any_request(shell: Shell, kfp: StandIn) -> None:
    config = shell.folder / "nightly.yaml"
    config.write_text(config.read_text().replace("store: gs://voxline-work/store\n", ""), encoding="utf-8")
    ended = shell.submit()
    assert ended.status == 2
    assert "--set store=gs://bucket/store" in ended.err
    assert not kfp.changes()


CLAIM = "cluster.claims=[{name: voxline-store, mount: /mnt/store}]"


@pytest.mark.parametrize("command", ["submit", "schedule", "compile"])
def test_a_path_that_no_pod_sees_is_refused_before_any_request(shell: Shell, kfp: StandIn, command: str) -> None:
    more = {"schedule": ["--cron", "0 2 * * *"], "compile": ["--output", "asr.yaml"]}.get(command, [])
    typed = [command, "asr", "--config", "nightly.yaml", *more, "--set"]
    refused = shell(*typed, "corpus.uri=/data/LibriSpeech", "--set", CLAIM)
    assert refused.status == 2
    assert "pods do not see corpus.uri (/data/LibriSpeech); accepted: folders of /mnt/store" in refused.err
    assert "--set corpus.uri=/mnt/store/folder" in refused.err
    assert not kfp.changes()
    assert not (shell.folder / "asr.yaml").exists()
    assert shell(*typed, "corpus.uri=/mnt/store/corpora/LibriSpeech", "--set", CLAIM).status == 0


def test_a_location_may_be_left_to_the_form(shell: Shell) -> None:
    """It becomes a parameter without a default, which Kubeflow's page asks for."""
    ended = shell("compile", "asr", "--config", "nightly.yaml", "--set", 'corpus.uri=""', "--output", "asr.yaml")
    assert ended.status == 0, ended.err
    document = next(yaml.safe_load_all((shell.folder / "asr.yaml").read_text(encoding="utf-8")))
    parameters = document["root"]["inputDefinitions"]["parameters"]
    assert "defaultValue" not in parameters["corpus__uri"]
    assert not parameters["corpus__uri"].get("isOptional")


def test_a_compiled_pipeline_never_replaces_its_config(shell: Shell) -> None:
    before = (shell.folder / "nightly.yaml").read_bytes()
    ended = shell("compile", "asr", "--config", "nightly.yaml")
    assert ended.status == 2
    assert "--output nightly.yaml: it is the config itself" in ended.err
    assert (shell.folder / "nightly.yaml").read_bytes() == before


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("where", ["POST .*/pipelines$", "upload_version", "POST .*experiments", "POST .*/runs$"])
def test_a_lost_response_creates_nothing_twice(shell: Shell, kfp: StandIn, reset: str, where: str) -> None:
    kfp.faults.append(Fault(reset=reset, where=where))
    ended = shell.submit()
    assert ended.status == 0, ended.err
    state = kfp.state
    assert [len(kind) for kind in (state.pipelines, state.versions, state.experiments, state.runs)] == [1, 1, 1, 1]


def test_following_a_run_survives_a_server_restart(shell: Shell, kfp: StandIn) -> None:
    kfp.faults += [
        Fault(status=503, where="GET .*/runs/", times=2),
        Fault(reset="before", where="GET .*/runs/", times=2),
        Fault(slow=0.3, where="GET .*/runs/"),
        Fault(status=500, where="GET .*/runs/"),
    ]
    ended = shell.submit(*QUICK)
    assert ended.status == 0, ended.err
    assert all(fault.times == 0 for fault in kfp.faults)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_run_running_and_prints_the_next_commands(
    shell: Shell, kfp: StandIn, number: signal.Signals, status: int
) -> None:
    kfp.state.hanging = True
    process = started(shell.folder, "submit", "asr", "--config", "nightly.yaml", *QUICK)
    deadline = time.monotonic() + 120
    while not any("/runs/" in request for request in kfp.asked) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    (run_id,) = kfp.state.runs
    assert f"the run continues; `voxline status {run_id}` shows it, `voxline cancel {run_id}` ends it" in err
    assert "Traceback" not in err
    assert kfp.state.runs[run_id]["state"] == "RUNNING"
    assert shell("cancel", run_id).status == 0
    assert "canceled" in shell("status", run_id).out


def test_a_run_is_found_by_its_name(shell: Shell, kfp: StandIn) -> None:
    kfp.state.hanging = True
    shell.submit()
    (run,) = kfp.state.runs.values()
    ended = shell("status", run["display_name"])
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[0].split() == [run["display_name"], run["run_id"], "running"]
    assert shell("status", "nightly").status == 1
    assert "has no run with this name" in shell("status", "nightly").err


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "voxline.pipelines.cli.main", *arguments],
        cwd=folder,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
