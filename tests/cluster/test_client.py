"""The client's installation: the commands of a cluster, with the packages of docker/cli/requirements.lock alone."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.cluster.kfp_stand_in import StandIn

ROOT = Path(__file__).resolve().parents[2]
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
import importlib.abc, json, sys

absent = set(json.loads(sys.argv[1]))

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Blocker())
from voxline.pipelines.cli.main import main

for words in json.loads(sys.argv[2]):
    try:
        main(words)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    print("STATUS", status, *words[:2], flush=True)
"""


def client_packages() -> set[str]:
    lock = (ROOT / "docker" / "cli" / "requirements.lock").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))


def absent_modules() -> list[str]:
    """Top-level modules of this environment that a client's environment does not have; `google` is shared."""
    held = client_packages() | {"voxline"}
    return [
        module
        for module, packages in packages_distributions().items()
        if module not in ("google", "_distutils_hack", "pkg_resources", "setuptools")
        and held.isdisjoint(re.sub(r"[-_.]+", "-", package).lower() for package in packages)
    ]


def call(folder: Path, server: StandIn, *commands: list[str]) -> dict[str, int]:
    """Command → its exit status."""
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("VOXLINE_", "KF_"))},
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "KF_PIPELINES_ENDPOINT": server.host,
        "VOXLINE_IMAGE_TAG": "1",
        "NO_GCE_CHECK": "true",
    }
    program = [sys.executable, "-c", CALLS, json.dumps(absent_modules()), json.dumps(commands)]
    ended = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
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
    assert {"numpy", "tensorflow", "keras", "apache_beam", "librosa"} <= set(absent_modules())


def test_the_extra_of_the_project_is_what_the_image_holds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["client"]]
    names = {re.match(r"[a-z0-9-]+", line)[0] for line in listed}  # type: ignore[index]
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
