"""docs/cluster/README.md: each command on it is run against the stand-in, or what it names is looked up."""

import itertools
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.conftest import Ended, Shell
from tests.cluster.k8s.built import builder, built
from tests.cluster.kfp_stand_in import StandIn
from voxline.pipelines.cluster.namespace_checks import exceeds
from voxline.pipelines.config.cluster import parse_quantity
from voxline.pipelines.config.load import load_config
from voxline.pipelines.graph import load_pipeline

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cluster" / "README.md"
ELSEWHERE = {"docker", "kind", "kubectl"}
"""Programs whose commands are looked up, not run."""


def commands() -> list[str]:
    """The lines of the page's shell blocks, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.removesuffix(" &") for block in blocks for line in block.splitlines()]


def test_the_voxline_commands_of_the_page_work_in_order(
    shell: Shell, kfp: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    kfp.state.multi_user, kfp.state.namespaces = True, ("voxline",)
    kfp.token = "of-voxline-ci"  # noqa: S105
    token = shell.folder / "home" / ".voxline-token"
    token.write_text(kfp.token, encoding="utf-8")
    monkeypatch.setenv("VOXLINE_KFP_NAMESPACE", "voxline")
    monkeypatch.setenv("VOXLINE_KFP_TOKEN_FILE", str(token))
    run, typed = "", []
    for line in commands():
        if not line.startswith("voxline "):
            continue
        kfp.state.hanging = "--wait" not in line
        words = [run if word == "RUN" else word for word in shlex.split(line)[1:]]
        ended = shell(*words, *(["--poll", "0.05"] if "--wait" in words else []))
        # Of images, buckets and volumes there are none here; the doctor says so, with status 1.
        assert ended.status == (1 if words[0] == "doctor" else 0), (line, ended.out, ended.err)
        run = id_in(ended) or run
        typed.append(words[0])
    assert typed == [
        "doctor", "submit", "submit", "status", "logs", "cancel", "schedule", "schedule", "schedule", "schedule"
    ]  # fmt: skip
    assert not kfp.state.recurring, "the page's last command removes the schedule"


def test_what_the_page_submits_fits_the_quota_that_it_applies() -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    applied = [line.split()[3] for line in commands() if line.startswith("kubectl apply -k k8s/overlays/")]
    (quota,) = (one for path in applied for one in built(path.removeprefix("k8s/")) if one["kind"] == "ResourceQuota")
    hard = quota["spec"]["hard"]
    checked = 0
    for line in commands():
        words = shlex.split(line)
        if words[:2] not in (["voxline", "submit"], ["voxline", "schedule"]) or "--config" not in words:
            continue
        files = [ROOT / word for before, word in itertools.pairwise(words) if before == "--config"]
        given = [word for before, word in itertools.pairwise(words) if before == "--set"]
        config = load_config(files, given, pipeline=words[2])
        steps = [config.cluster.steps.for_step(step) for step in load_pipeline(words[2]).pipeline_spec.root.dag.tasks]
        for step in steps:
            assert list(exceeds(hard, step)) == [], line
        for resource in ("cpu", "memory"):  # two steps may run at once, beside serving
            amounts = sorted(parse_quantity(getattr(step, resource)) for step in steps)
            assert sum(amounts[-2:]) <= parse_quantity(hard[f"requests.{resource}"]), (line, resource)
        checked += 1
    assert checked == 4


def id_in(ended: Ended) -> str:
    found = re.search(r"^id +(\S+)$", ended.out, re.MULTILINE)
    return found[1] if found else ""


def test_the_other_commands_refer_to_existing_objects() -> None:
    manifests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "k8s" / "base").glob("*.yaml"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in commands():
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[:3] == ["kubectl", "apply", "-k"]:
            assert (ROOT / words[3] / "kustomization.yaml").is_file(), line
            if kubectl := shutil.which("kubectl"):
                subprocess.run([kubectl, "kustomize", str(ROOT / words[3])], check=True, capture_output=True)
        elif words[0] == "kubectl" and "token" in words:
            assert f"name: {words[words.index('token') + 1]}\n" in manifests, line
        else:
            assert words[0] in ELSEWHERE | {"export", "voxline"}, line


def test_variables_and_links_of_the_page_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "pipelines").rglob("*.py"))
    for variable in set(re.findall(r"\b(?:VOXLINE|KF)_[A-Z_]+\b", text)):
        assert variable in sources or variable in (ROOT / "components" / "images.py").read_text(), variable
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if not link.startswith("https://"):
            assert (PAGE.parent / link).exists(), link
