"""k8s/ on Kubernetes' own API server: what it takes, what it refuses, and who may do what."""

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.k8s.api_server import kubectl, missing, serving
from tests.cluster.k8s.built import BUILDABLE, K8S, Object, built, pods
from tests.cluster.k8s.fetched import definition_files
from tests.training.tones import tiny_asr_settings
from voxline.components.train.distributed.jobs import TRAIN_JOB, JobSpec


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if what := missing():
        pytest.skip(what)
    with serving(tmp_path_factory.mktemp("server")) as config:
        files = [part for file in definition_files() for part in ("-f", str(file))]
        done = kubectl(config, "apply", "--server-side", *files)
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + 60
        while kubectl(config, "wait", "--for=condition=Established", "crd", "--all").returncode:  # or has no status yet
            assert time.monotonic() < deadline
        done = kubectl(config, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(_all("overlays/gpu-pool")))
        assert done.returncode == 0, done.stderr
        yield config


def _all(path: str, namespace: str = "voxline") -> list[Object]:
    """The objects of an overlay and its namespace, under another name."""
    objects = copy.deepcopy([*built("namespace"), *built(path)])
    for one in objects:
        if one["kind"] == "Namespace":
            one["metadata"]["name"] = namespace
        else:
            one["metadata"]["namespace"] = namespace
    return objects


@pytest.mark.parametrize("path", BUILDABLE)
def test_the_server_accepts_every_object(server: Path, path: str) -> None:
    objects = _all(path, f"voxline-{path.replace('/', '-').replace('+', '-')}")
    how = ("apply", "--server-side", "--validate=strict", "-f", "-")
    done = kubectl(server, *how, given=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied") == len(objects)


@pytest.mark.parametrize("path", BUILDABLE)
def test_pod_security_admits_every_pod(server: Path, path: str) -> None:
    made = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "voxline"}, "spec": spec}
        for number, spec in enumerate(template["spec"] for _, template in pods(built(path)))
    ]
    done = kubectl(server, "create", "--dry-run=server", "-f", "-", given=yaml.safe_dump_all(made))
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


def test_pod_security_refuses_a_pod_without_a_security_context(server: Path) -> None:
    done = kubectl(server, "run", "plain", "--image=busybox:1", "-n", "voxline", "--dry-run=server")
    assert 'violates PodSecurity "restricted:v1.32"' in done.stderr


@pytest.mark.parametrize(
    ("account", "verb", "what", "may"),
    [
        ("lead", "create", "trainjobs.trainer.kubeflow.org", True),
        ("lead", "delete", "trainjobs.trainer.kubeflow.org/voxline-train-ab", True),
        ("lead", "get", "trainingruntimes.trainer.kubeflow.org/voxline-train", True),
        ("lead", "get", "trainingruntimes.trainer.kubeflow.org/another", False),
        ("lead", "patch", "trainingruntimes.trainer.kubeflow.org/voxline-train", False),
        ("lead", "get", "pods:log", True),
        ("train", "create", "trainjobs.trainer.kubeflow.org", False),
        ("train", "get", "pods:log", False),
        ("train", "create", "pods", False),
        ("train", "get", "secrets/mlpipeline-minio-artifact", True),
        ("train", "get", "secrets/another", False),
        ("train", "list", "secrets", False),
        ("data", "create", "trainjobs.trainer.kubeflow.org", False),
        ("data", "create", "workflowtaskresults.argoproj.io", True),
        ("worker", "get", "pods", False),
        ("serving", "get", "configmaps", False),
        ("ci", "create", "runs.pipelines.kubeflow.org", True),
        ("ci", "get", "pods", False),
    ],
)
def test_an_account_may_do_what_its_role_is_for(server: Path, account: str, verb: str, what: str, may: bool) -> None:
    resource, _, name = what.partition("/")
    resource, _, group = resource.partition(".")
    resource, _, part = resource.partition(":")
    asked = {
        "namespace": "voxline",
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": part,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:voxline:voxline-{account}", "resourceAttributes": asked},
    }
    done = kubectl(server, "create", "-o", "jsonpath={.status.allowed}", "-f", "-", given=yaml.safe_dump(review))
    assert done.stdout == str(may).lower(), done.stderr


def test_the_server_accepts_the_job_of_the_train_step(server: Path) -> None:
    settings = tiny_asr_settings(strategy="auto", workers={"count": 256})
    task = JobSpec("0f" * 16, "/mnt/store/extract/ab", "/mnt/store", settings, "registry.example/model:1")
    template = yaml.safe_load((K8S / "base" / "worker-template.yaml").read_text())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-1", "uid": "1"}
    metadata = {"name": task.name, "namespace": "voxline", "ownerReferences": [owner]}
    body = yaml.safe_dump(TRAIN_JOB.body(task, metadata, template))
    done = kubectl(server, "create", "--validate=strict", "--dry-run=server", "-f", "-", given=body)
    assert done.returncode == 0, done.stderr


def test_the_quota_refuses_accelerators_without_an_overlay(server: Path) -> None:
    objects = _all("base", "voxline-without")
    assert kubectl(server, "apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(objects)).returncode == 0
    quota = next(one for one in objects if one["kind"] == "ResourceQuota")["spec"]["hard"]
    status = {
        "status": {"hard": quota, "used": dict.fromkeys(quota, "0")}
    }  # a controller writes it, where there is one
    where = ("-n", "voxline-without", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    assert kubectl(server, "patch", "resourcequota", "voxline", *where).returncode == 0
    spec = next(
        template["spec"] for name, template in pods(_all("overlays/gpu-pool")) if name.startswith("PodTemplate")
    )
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "g", "namespace": "voxline-without"}, "spec": spec}
    done = kubectl(server, "create", "--dry-run=server", "-f", "-", given=yaml.safe_dump(pod))
    assert "exceeded quota" in done.stderr
    assert "requests.nvidia.com/gpu=1" in done.stderr
