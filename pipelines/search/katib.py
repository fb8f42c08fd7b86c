"""The same search on a cluster, by Katib: an Experiment of `kubeflow.org/v1beta1` with the config it needs.

A trial is a Job of `voxline step train` on a dataset that extract has written. Katib's StdOut collector reads the last
lines of the command. Katib joins a command's arguments with spaces and gives them to a shell, so the command is one
quoted line of a shell already. Data passes through the store, so a trial that was trained before, here or by another
search, costs the start of a pod.
"""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from voxline.components.train.settings import ACCELERATOR_ENV
from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import RESOURCES, accelerator_labels, image_reference
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.search.space import Range, Space
from voxline.store.files import write_text

ALGORITHMS = {"tpe": "tpe", "random": "random"}
"""Method → Katib's name of it."""
MAX_NAME = 40
"""Characters of an Experiment's name that Katib's webhook accepts."""
METRIC_LINE = r"([\w|-]+)\s\s+([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""How `voxline step` prints a metric, for the collector: `dev_wer  0.031`. Its own default wants a = in between."""
CONFIG_FOLDER, SCRATCH = "/etc/voxline", "/tmp"  # noqa: S108 - the pod's own


def compile_experiment(
    config: RunConfig,
    space: Space,
    output: Path,
    *,
    dataset: str,
    metric: str,
    method: str = "tpe",
    trials: int = 12,
    jobs: int = 2,
    goal: float = 0.0,
    seed: int | None = None,
) -> None:
    """Writes a ConfigMap and an Experiment, as `kubectl create -f` takes them.

    Args:
      dataset: where extract wrote it, for the pods.
      goal: value of the metric at which Katib stops.
      seed: of the algorithm; None: Katib draws one.

    Raises:
      SettingsError: Katib cannot run the search, or the pods would lack something.
    """
    if output.suffix != ".yaml":
        raise SettingsError(f"--output {output}: a file whose name ends in .yaml is accepted")
    if method not in ALGORITHMS:
        raise SettingsError(f"--method {method!r}: with --compile katib, accepted: {', '.join(ALGORITHMS)}")
    if not dataset:
        raise SettingsError(
            "--dataset is not given: the dataset that `voxline run --until extract` wrote into the pods' store, such "
            "as gs://speech/store/extract/0f3c…"
        )
    if not config.store:
        raise SettingsError("store is not set: the trials share one; give a bucket URI, or a path on a claim")
    space.refuse_decoding("--compile katib")
    name = re.sub(r"[^a-z0-9-]+", "-", config.name.lower()).strip("-")
    name = name if name[:1].isalpha() else f"search-{name}"
    name = name[:MAX_NAME].rstrip("-")
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-search"},
        "data": {"config.yaml": config.to_yaml()},
    }
    settings = {one.key: one.key.replace(".", "_") for one in space.ranges}
    command = ["python", "-m", "voxline", "step", "train", "--config", f"{CONFIG_FOLDER}/config.yaml"]
    command += ["--dataset", dataset, "--run-dir", f"{SCRATCH}/run"]
    for key, parameter in settings.items():
        command += ["--set", f"{key}=${{trialParameters.{parameter}}}"]
    experiment = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "voxline"}},
        "spec": {
            "objective": {"type": "minimize", "goal": goal, "objectiveMetricName": metric},
            "algorithm": {"algorithmName": ALGORITHMS[method], **_algorithm_settings(seed)},
            "parallelTrialCount": min(jobs, trials),
            "maxTrialCount": trials,
            "maxFailedTrialCount": max(trials // 3, 1),
            "metricsCollectorSpec": {
                "collector": {"kind": "StdOut"},
                "source": {"filter": {"metricsFormat": [METRIC_LINE]}},
            },
            "parameters": [_parameter(one) for one in space.ranges],
            "trialTemplate": {
                "primaryContainerName": "train",
                "retain": False,
                "trialParameters": [
                    {"name": parameter, "description": key, "reference": key} for key, parameter in settings.items()
                ],
                "trialSpec": _job(name, config, command),
            },
        },
    }
    documents = [config_map, experiment]
    write_text(output, yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=110))


def _algorithm_settings(seed: int | None) -> dict[str, Any]:
    """Both algorithms are Hyperopt's, whose service takes the seed as a text."""
    return {} if seed is None else {"algorithmSettings": [{"name": "random_state", "value": str(seed)}]}


def _parameter(one: Range) -> dict[str, Any]:
    """A range as a parameter. Katib's numbers are texts; a choice is what `--set` takes."""
    if one.kind == "choice":
        choices = [_choice(value) for value in one.values]
        if quoted := [value for value in choices if set("'\"\\\n") & set(value)]:
            raise SettingsError(
                f"--compile katib: {one.key}: Katib copies {quoted[0]!r} into JSON and into a shell; no quotes, "
                "backslashes or line ends are accepted"
            )
        return {"name": one.key, "parameterType": "categorical", "feasibleSpace": {"list": choices}}
    low, high = (str(value) if one.is_integer else f"{value:.15g}" for value in one.values)
    distribution = "logUniform" if one.is_log else "uniform"
    return {
        "name": one.key,
        "parameterType": "int" if one.is_integer else "double",
        "feasibleSpace": {"min": low, "max": high, "distribution": distribution},
    }


def _choice(value: Any) -> str:
    """A value as `--set` takes it. Lists and mappings are YAML, which needs no quotes where JSON has them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf).strip()
    return json.dumps(value)


def _job(name: str, config: RunConfig, command: list[str]) -> dict[str, Any]:
    """The Job of a trial, with the resources and the placement of train in the section `cluster`."""
    cluster, own = config.cluster, config.cluster.steps.for_step("train")
    labels = {
        "app.kubernetes.io/name": "voxline",
        "app.kubernetes.io/component": "train",
        "app.kubernetes.io/part-of": config.pipeline,
    }
    variables = {**cluster.env, **own.env}
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": f"{name}-search"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": own.scratch}},
    ]
    mounts = [
        {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH},
    ]
    if own.shared_memory:
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": own.shared_memory}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108
    # Katib refuses a Job with a field that Kubernetes' types would leave out: an empty text, an empty list.
    environment: list[dict[str, Any]] = [
        {"name": key, **({"value": value} if value else {})} for key, value in variables.items()
    ]
    for number, secret in enumerate([*cluster.secrets, *own.secrets]):
        environment += [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": key}}}
            for key, variable in secret.env.items()
        ]
        if secret.mount:
            volumes.append({"name": f"secret-{number}", "secret": {"secretName": secret.name}})
            mounts.append({"name": f"secret-{number}", "mountPath": secret.mount, "readOnly": True})
    for number, claim in enumerate(cluster.claims):
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim.name}})
        path = {"subPath": claim.sub_path} if claim.sub_path else {}
        mounts.append({"name": f"claim-{number}", "mountPath": claim.mount, **path})
    requests, limits = {"cpu": own.cpu, "memory": own.memory}, {"memory": own.memory_limit or own.memory}
    if own.cpu_limit:
        limits["cpu"] = own.cpu_limit
    selector = {**cluster.node_selector, **own.node_selector}
    tolerations: list[dict[str, Any]] = [
        {key: value for key, value in one.plain().items() if value} for one in [*cluster.tolerations, *own.tolerations]
    ]
    if cluster.spot or own.spot:
        label = cluster.spot_label
        selector[label.key] = label.value
        tolerations.append({"key": label.key, "operator": "Equal", "value": label.value})
    if own.devices:
        resource = own.devices.resource or RESOURCES[own.devices.kind]
        requests[resource] = limits[resource] = str(own.devices.count)
        environment.append({"name": ACCELERATOR_ENV, "value": f"{own.devices.kind}:{own.devices.count}"})
        tolerations.append({"key": resource, "operator": "Exists"})
        selector |= accelerator_labels(own.devices)
    container = {
        "name": "train",
        "image": image_reference("train", own, cluster),
        "imagePullPolicy": cluster.images.pull_policy,
        "command": ["sh", "-c", shlex.join(command)],
        **({"env": environment} if environment else {}),
        "resources": {"requests": requests, "limits": limits},
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "serviceAccountName": cluster.service_account,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsUser": cluster.user.uid,
            "runAsGroup": cluster.user.gid,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": selector,
        "tolerations": tolerations,
        "imagePullSecrets": [{"name": secret} for secret in cluster.images.pull_secrets],
        "containers": [container],
        "volumes": volumes,
    }
    metadata = {
        "labels": {**labels, **cluster.labels, **own.labels},
        "annotations": {"sidecar.istio.io/inject": "false", **cluster.annotations, **own.annotations},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {
            "backoffLimit": own.retries,
            "activeDeadlineSeconds": math.ceil(own.timeout_hours * 3600),
            "template": {"metadata": metadata, "spec": {key: value for key, value in pod.items() if value}},
        },
    }
