"""KServe manifests: a version of a model with a share of the traffic, as k8s/components/kserve serves it.

KServe makes a revision of each change of the predictor, and sends `canaryTrafficPercent` to the latest; the
revision that last had everything gets the rest. So 100 promotes a version, and 0 sends everything back.
"""

import re
from typing import Any

import requests
import yaml

from voxline.errors import SettingsError
from voxline.notify.event import RunEvent
from voxline.notify.settings import KserveSettings, NotifySettings
from voxline.registry.models_config import model_config_entry
from voxline.store.objects import open_store

Object = dict[str, Any]
USER = 65532
MOUNTED = "pvc://"
MODELS = "/mnt/models"
KEPT = {"argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
"""The next manifest has another ConfigMap; the revision that gets the rest of the traffic still mounts this one."""


def serving_objects(model: str, version: int, digest: str, settings: KserveSettings, percent: int) -> list[Object]:
    """The ConfigMap that says which version is served, and the InferenceService.

    Args:
      percent: of the traffic for this version, 0 to 100.

    Raises:
      SettingsError: the model's name is not a name of Kubernetes, or the percentage is not one.
    """
    # A name of a service is part of a host name, so shorter than 63 with what KServe adds.
    name = settings.name or model
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", name):
        raise SettingsError(
            f"{name!r} cannot name an InferenceService: lower-case letters, digits and - are accepted; "
            "give one by --name, or notify.kserve.name"
        )

    if not 0 <= percent <= 100:
        raise SettingsError(f"percent is {percent}: 0 to 100 is accepted")

    labels = {"app.kubernetes.io/name": "serving", "app.kubernetes.io/part-of": "voxline"}
    storage, folder = _model_storage(model, settings)
    if not storage.startswith(MOUNTED):
        labels["voxline/uses-buckets"] = "true"  # the network policy that opens buckets

    # Without a namespace `kubectl` takes that of its context.
    place = {"namespace": settings.namespace} if settings.namespace else {}

    # A ConfigMap for each version: the revision before still mounts its own.
    served = f"{name}-served-{version}"

    served_config = model_config_entry(model, folder, version)
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": served, **place, "labels": labels, "annotations": KEPT},
            "data": {"models.config": f"model_config_list {{\n{served_config}}}\n"},
        },
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {
                "name": name,
                **place,
                "labels": labels,
                "annotations": {
                    "serving.kserve.io/deploymentMode": "Serverless",
                    "voxline.dev/version": str(version),
                    "voxline.dev/digest": digest,
                },
            },
            "spec": {"predictor": _predictor(model, served, storage, settings, percent)},
        },
    ]


def _model_storage(model: str, settings: KserveSettings) -> tuple[str, str]:
    """The `storageUri`, and where the model's versions then are in the pod.

    KServe mounts a claim at /mnt/models. Of a bucket it copies there what begins with the URI, without it; with the
    slash at the end that is no other model's.
    """
    if settings.storage.startswith(MOUNTED):
        return settings.storage, f"{MODELS}/{model}"
    return f"{settings.storage}/{model}/", MODELS


def _predictor(model: str, served: str, storage: str, settings: KserveSettings, percent: int) -> Object:
    # The pod has no token of the cluster, no root, and a disk that is read-only but for /tmp.
    return {
        "serviceAccountName": "voxline-serving",
        "automountServiceAccountToken": False,
        "minReplicas": settings.min_replicas,
        "maxReplicas": max(settings.min_replicas, settings.max_replicas),
        "scaleMetric": "concurrency",
        "scaleTarget": 4,
        "canaryTrafficPercent": percent,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "model": {
            "runtime": "voxline-tensorflow",
            "modelFormat": {"name": "tensorflow", "version": "2"},
            "protocolVersion": "v1",
            "storageUri": storage,
            "readinessProbe": {"httpGet": {"path": f"/v1/models/{model}", "port": 8080}},
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/serving", "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - in the pod
            ],
        },
        "volumes": [
            {"name": "config", "configMap": {"name": served}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def manifest_text(objects: list[Object]) -> str:
    """The objects as YAML documents, for `kubectl apply -f` or a repository that a cluster follows."""
    return yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True)


def write_rollout(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Writes the manifest of a version that a run put into service, with the share of a canary."""
    # Only what went into service changes the traffic.
    if event.verdict != "promoted" or event.version is None:
        return ""
    kserve = settings.kserve
    objects = serving_objects(event.run.model, event.version, event.digest, kserve, kserve.percent)

    folder, _, name = kserve.manifest.rpartition("/")
    open_store(folder or ".").write(name, manifest_text(objects).encode())
    return f"{kserve.manifest}, version {event.version} with {kserve.percent}% of the traffic"
