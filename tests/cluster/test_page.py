"""docs/cluster: commands are run against the stand-in or looked up, and what they submit is held to the quotas."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import Ended, Shell
from tests.cluster.k8s.built import BUILDABLE, Object, builder, built, containers
from tests.cluster.kfp_stand_in import StandIn
from voxline.pipelines.cluster.namespace_checks import exceeds
from voxline.pipelines.config.cluster import parse_quantity
from voxline.pipelines.config.load import load_config
from voxline.pipelines.kfp_graph import load_pipeline

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cluster" / "README.md"
ELSEWHERE = {"docker", "kind", "kubectl"}
"""Programs whose commands are looked up, not run."""


TEAM_OVERLAY = "my-cluster"
"""The folder of the reader's own overlay, whose file the page prints."""


def write_team_overlay(folder: Path) -> None:
    """Writes the overlay that the page prints, with the paths of a folder that is elsewhere."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    there = os.path.relpath(ROOT, folder.resolve())
    (folder / "kustomization.yaml").write_text(text.replace("../k8s", f"{there}/k8s"), encoding="utf-8")


def commands(page: Path = PAGE) -> list[str]:
    """The lines of a page's shell blocks, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
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


ROWS = re.findall(
    r"^\| .* \| `(configs/cluster/\S+\.yaml)` \| `(k8s/overlays/\S+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)
"""The overlay of the config and that of k8s/, for each cluster of the page's table."""
ONE_NODE = ("configs/cluster/one-node.yaml", "k8s/overlays/one-node")


def test_the_table_has_every_overlay_that_configs_and_manifests_share() -> None:
    assert {k8s.rpartition("/")[2] for _, k8s in ROWS} == {"gcs", "eks", "aks", "plain"}
    assert f"`{ONE_NODE[0]}` | in place of `{ONE_NODE[1]}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("overlay", sorted((ROOT / "configs" / "cluster").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_overlay_says_where_a_run_is_and_never_what_it_reads(overlay: Path) -> None:
    values = yaml.safe_load(overlay.read_text(encoding="utf-8"))
    assert set(values) <= {"store", "registry", "cluster"}


OPERATORS = {
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "monitoring.coreos.com": "Prometheus operator",
    "serving.kserve.io": "KServe |",
}
"""API group of kinds that no cluster has by itself → who brings it, as docs/cluster/k8s.md names it."""


@pytest.mark.parametrize("path", [path for path in BUILDABLE if "+" not in path])
def test_only_what_says_so_needs_an_operator(path: str) -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    page = (ROOT / "docs" / "cluster" / "k8s.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| [^|]*`{path.rpartition('/')[2]}`[^|]* \|.*$", page, re.MULTILINE) or [""]
    groups = {one["apiVersion"].rpartition("/")[0] for one in built(path)} & OPERATORS.keys()
    assert groups == {group for group, operator in OPERATORS.items() if operator in row}


@pytest.mark.parametrize(("overlay", "manifests"), [ONE_NODE, *ROWS], ids=lambda path: Path(path).stem)
def test_what_the_pages_submit_fits_what_they_apply(overlay: str, manifests: str) -> None:
    """The quota beside serving and TensorBoard, the claims and the accounts; of a cluster's own page, too."""
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    objects = built(manifests.removeprefix("k8s/"))
    hard = next(one for one in objects if one["kind"] == "ResourceQuota")["spec"]["hard"]
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    claims = sum(one["kind"] == "PersistentVolumeClaim" for one in objects)
    assert claims <= int(hard["persistentvolumeclaims"])
    lines = [line.replace(ONE_NODE[0], overlay) for page in sorted(PAGE.parent.glob("*.md")) for line in commands(page)]
    checked = set()
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:2] not in (["voxline", "submit"], ["voxline", "schedule"]) or overlay not in words:
            continue
        files = [ROOT / word for before, word in itertools.pairwise(words) if before == "--config"]
        given = [word for before, word in itertools.pairwise(words) if before == "--set"]
        config = load_config(files, given, pipeline=words[2])
        steps = [config.cluster.steps.for_step(step) for step in load_pipeline(words[2]).pipeline_spec.root.dag.tasks]
        for step in steps:
            assert list(exceeds(hard, step)) == [], line
        for resource in ("cpu", "memory"):  # two steps may run at once
            amounts = sorted(parse_quantity(getattr(step, resource)) for step in steps)
            standing = sum(requested(one, resource) for one in objects if one["kind"] == "Deployment")
            assert sum(amounts[-2:]) + standing <= parse_quantity(hard[f"requests.{resource}"]), (line, resource)
        for claim in config.cluster.claims:
            assert ("PersistentVolumeClaim", claim.name) in names, line
        if config.cluster.service_account:
            assert ("ServiceAccount", config.cluster.service_account) in names, line
        checked.add(words[2])
    assert checked == {"refresh", "asr"}


def requested(deployment: Object, resource: str) -> float:
    """What all replicas of a Deployment reserve."""
    spec = deployment["spec"]["template"]["spec"]
    sidecars = [one for one in spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
    containers = [*sidecars, *spec["containers"]]
    amount = sum(parse_quantity(str(one["resources"]["requests"][resource])) for one in containers)
    return float(amount * deployment["spec"].get("replicas", 1))


def test_the_pod_that_takes_a_corpus_is_restricted_and_mounts_the_claim_of_the_store() -> None:
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    (pod,) = built("corpus-loader")
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claimed = {
        one["name"]: one["persistentVolumeClaim"]["claimName"]
        for one in pod["spec"]["volumes"]
        if "emptyDir" not in one
    }
    refresh = next(shlex.split(line) for line in commands() if line.startswith("voxline submit refresh"))
    given = [word for before, word in itertools.pairwise(refresh) if before == "--set"]
    config = load_config([ROOT / "configs/refresh/librispeech.yaml", ROOT / ONE_NODE[0]], given)
    ((volume, claim),) = claimed.items()
    assert (claim, mounts[volume]) in {(one.name, one.mount) for one in config.cluster.claims}
    copied = next(line.split()[-1] for line in commands() if " cp " in line and "corpus-loader:" in line)
    assert copied == f"corpus-loader:{config.corpus.uri}"


def id_in(ended: Ended) -> str:
    found = re.search(r"^id +(\S+)$", ended.out, re.MULTILINE)
    return found[1] if found else ""


def test_the_first_apply_starts_no_pod_of_an_image_that_nobody_has_built(tmp_path: Path) -> None:
    """Images come before the apply on each walk, and the page's own overlay names each of ours."""
    for page in (PAGE, PAGE.parent / "gke.md", PAGE.parent / "eks.md"):
        typed = commands(page)
        built_at = next(number for number, line in enumerate(typed) if line.startswith("make images"))
        applied = [number for number, line in enumerate(typed) if line.startswith("kubectl apply -k")]
        assert built_at < applied[0], page
        assert not [line for line in typed if "apply -k k8s/overlays" in line], page
    if builder() is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH; either builds k8s/")
    write_team_overlay(tmp_path)
    command = [*(builder() or ()), str(tmp_path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    images = {container["image"] for _, container, _ in containers(list(yaml.safe_load_all(text)))}
    assert images == {"registry.example.com/speech/model:TAG", "tensorflow/serving:2.19.1"}


def test_the_other_commands_refer_to_existing_objects() -> None:
    manifests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "k8s" / "base").glob("*.yaml"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in commands():
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words == ["kubectl", "apply", "-k", TEAM_OVERLAY]:
            continue  # test_the_first_apply_starts_no_pod_of_an_image_that_nobody_has_built builds it
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
