"""The client's installation: the commands of a cluster, with the packages of docker/cli/requirements.lock alone."""

import json
import re
from pathlib import Path

from tests.closures import ROOT, absent_modules, closure, project, run_with
from tests.cluster.kfp_stand_in import StandIn

RUN = """
pipeline: asr
name: nightly
store: gs://example-speech/store
registry: gs://example-speech/registry
corpus: {uri: gs://example-speech/corpora/digits}
"""
REFRESH = """
pipeline: refresh
name: digits
store: gs://example-speech/store
datasets: gs://example-speech/datasets
corpus: {uri: gs://example-speech/corpora/digits}
publish: {dataset: digits}
"""

# Each command is a call of `main`, in one process: the imports of a process take seconds.
CALLS = """
import json, sys
from voxline.pipelines.cli.main import main

for words in json.loads(sys.argv[1]):
    try:
        main(words)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    print("STATUS", status, *words[:2], flush=True)
"""
NEEDED = {"msgspec", "prometheus-client", "protobuf", "pydantic", "pyyaml", "requests", "typer"}
"""What every command needs of the core."""


def client_packages() -> frozenset[str]:
    lock = (ROOT / "docker" / "cli" / "requirements.lock").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))


def call(folder: Path, server: StandIn, *commands: list[str]) -> dict[str, int]:
    """Command → its exit status."""
    environment = {"KF_PIPELINES_ENDPOINT": server.host, "VOXLINE_IMAGE_TAG": "1", "NO_GCE_CHECK": "true"}
    ended = run_with(client_packages(), CALLS, json.dumps(commands), folder=folder, environment=environment)
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0, ended.stderr
    return {name: int(status) for status, name in re.findall(r"^STATUS (\d+) (.*)$", ended.stdout, re.MULTILINE)}


def test_tensorflow_beam_and_numpy_are_no_packages_of_the_client() -> None:
    heavy = {
        "numpy",
        "tensorflow",
        "keras",
        "apache-beam",
        "librosa",
        "numba",
        "scipy",
        "onnxruntime",
        "matplotlib",
        "boto3",
    }
    assert not heavy & client_packages()
    assert {"numpy", "tensorflow", "keras", "apache_beam", "librosa"} <= set(absent_modules(client_packages()))


def test_the_image_holds_the_extra_and_what_every_command_needs() -> None:
    listed = project()["client"]
    names = {re.match(r"[a-z0-9-]+", line)[0] for line in listed} | NEEDED  # type: ignore[index]
    assert closure() >= NEEDED
    asked = (ROOT / "docker" / "cli" / "requirements.in").read_text(encoding="utf-8")
    assert names == set(re.findall(r"^([a-z][a-z0-9-]*)", asked, re.MULTILINE))


def test_compile_submit_schedule_and_doctor_work_with_the_clients_packages(tmp_path: Path, kfp: StandIn) -> None:
    (tmp_path / "refresh.yaml").write_text(REFRESH, encoding="utf-8")
    families = ("asr", "tts", "vocoder", "intents")
    for family in families:
        (tmp_path / f"{family}.yaml").write_text(RUN.replace("asr", family), encoding="utf-8")
    commands = [["compile", family, "-c", f"{family}.yaml", "-o", f"{family}-compiled.yaml"] for family in families]
    commands += [
        ["compile", "refresh", "-c", "refresh.yaml", "-o", "refresh-compiled.yaml"],
        ["submit", "refresh", "-c", "refresh.yaml", "--wait", "--poll", "0.05"],
        ["schedule", "asr", "-c", "asr.yaml", "--cron", "0 2 * * *"],
        ["schedule", "list"],
        ["doctor", "-c", "asr.yaml"],
    ]
    statuses = call(tmp_path, kfp, *commands)
    assert len(statuses) == len(commands)
    assert set(statuses.values()) == {0}
    assert len(kfp.state.runs) == len(kfp.state.recurring) == 1


def test_a_command_that_needs_more_names_what_to_install(tmp_path: Path, kfp: StandIn) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("gs://", "/tmp/"), encoding="utf-8")
    assert call(tmp_path, kfp, ["synthesize", "--help"], ["corpus", "demo", "corpus"]) == {
        "synthesize --help": 0,
        "corpus demo": 2,
    }
