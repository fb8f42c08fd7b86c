"""The checks of `voxline doctor` in the namespace of the runs, and of the controller that runs them."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from voxline.errors import WorkError
from voxline.pipelines.cluster.access import KfpEndpoint
from voxline.pipelines.cluster.compiler import RESOURCES
from voxline.pipelines.config.cluster import StepPlacement, parse_quantity
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.local.doctor import Diagnostic

KUBEFLOW = "kubeflow"
"""Namespace of Kubeflow Pipelines, and of the runs of a server with one user."""
PROFILE_LABELS = {"pipelines.kubeflow.org/enabled": "true", "app.kubernetes.io/part-of": "kubeflow-profile"}
"""A server with several users fills namespaces with the first; its object store admits those with the second."""
TIMEOUT_SECONDS = 15


def with_kubernetes(subject: str, check: Callable[[Any], Iterator[Diagnostic]]) -> Iterator[Diagnostic]:
    """The diagnostics of a check that calls Kubernetes; what cannot be asked from here is reported as not checked."""
    from voxline.pipelines.cluster import kubernetes_api

    try:
        yield from check(kubernetes_api)
    except WorkError as error:
        yield Diagnostic.not_checked(subject, str(error))
    except Exception as error:  # a kubeconfig with plugins, and urllib3, raise many kinds
        reason = f"{getattr(error, 'status', '')} {getattr(error, 'reason', '')}".strip() or type(error).__name__
        yield Diagnostic.not_checked(subject, f"the Kubernetes API does not respond ({reason})")


def check_namespace(access: KfpEndpoint, config: RunConfig, steps: list[str]) -> Iterator[Diagnostic]:
    """Checks that the namespace has what the config names and the steps need, and room for them in its quota.

    Args:
      steps: names of the pipeline's steps.
    """
    yield from with_kubernetes("namespace", lambda kubernetes: _check_objects(kubernetes, access, config))
    yield from with_kubernetes("quota", lambda kubernetes: _check_quota(kubernetes, access, config, steps))


def check_retries() -> Iterator[Diagnostic]:
    """Reports the pods that the workflow controller tries again."""
    yield from with_kubernetes("retries", _check_retries)


def _check_objects(kubernetes: Any, access: KfpEndpoint, config: RunConfig) -> Iterator[Diagnostic]:
    namespace = access.namespace or KUBEFLOW
    core = kubernetes.core_api()

    # Nothing below can exist in a namespace that does not, so this one fix is all that is printed.
    try:
        profile = core.read_namespace(namespace, _request_timeout=TIMEOUT_SECONDS)
    except Exception as error:
        if getattr(error, "status", 0) != 404:
            raise
        yield Diagnostic.problem("namespace", f"there is no namespace {namespace}", "kubectl apply -k k8s/namespace")
        return
    yield Diagnostic.ok("namespace", namespace)
    if access.namespace:
        yield from _check_profile(core, profile)

    # Objects that the config names: a pod that needs an absent one never starts, and KFP's UI does not say why.
    if account := config.cluster.service_account:
        read = functools.partial(
            core.read_namespaced_service_account, account, namespace, _request_timeout=TIMEOUT_SECONDS
        )
        yield _existence("account", f"service account {account}", namespace, _exists(read))
    for claim in config.cluster.claims:
        read = functools.partial(
            core.read_namespaced_persistent_volume_claim, claim.name, namespace, _request_timeout=TIMEOUT_SECONDS
        )
        yield _existence("volume", f"volume claim {claim.name}", namespace, _exists(read))

    if config.cluster.secrets:
        names = ", ".join(secret.name for secret in config.cluster.secrets)
        yield Diagnostic.not_checked(
            "secrets", f"{names}: checking them would mean reading them; `kubectl get secret` lists them"
        )


def _check_profile(core: Any, namespace: Any) -> Iterator[Diagnostic]:
    """Checks what a server with several users needs of a namespace."""
    name = namespace.metadata.name
    labels = namespace.metadata.labels or {}

    for label, value in PROFILE_LABELS.items():
        if labels.get(label) != value:
            yield Diagnostic.problem(
                "namespace",
                f"{name} has the label {label}={labels.get(label, '')}, and steps cannot store their artifacts",
                f"kubectl label --overwrite namespace {name} {label}={value}",
            )

    # The launcher in each pod reads from it where KFP's artifacts go.
    if not _exists(lambda: core.read_namespaced_config_map("kfp-launcher", name, _request_timeout=TIMEOUT_SECONDS)):
        yield Diagnostic.problem(
            "namespace",
            f"{name} has no ConfigMap kfp-launcher, which Kubeflow's profile controller makes",
            f"kubectl label --overwrite namespace {name} pipelines.kubeflow.org/enabled=true",
        )


def _check_quota(kubernetes: Any, access: KfpEndpoint, config: RunConfig, steps: list[str]) -> Iterator[Diagnostic]:
    namespace = access.namespace or KUBEFLOW
    quotas = kubernetes.core_api().list_namespaced_resource_quota(namespace, _request_timeout=TIMEOUT_SECONDS).items
    refused = False

    # Each step against the whole quota: what other pods use of it comes and goes, and a pod waits for that.
    for quota in quotas:
        for step in steps:
            for reason in exceeds(quota.spec.hard or {}, config.cluster.steps.for_step(step)):
                refused = True
                yield Diagnostic.problem(
                    "quota",
                    f"{step} {reason} (ResourceQuota {quota.metadata.name}); its pod would wait for ever",
                    f"lower cluster.steps.{step}, or raise the quota",
                )

    if not refused:
        yield Diagnostic.ok("quota", f"{namespace} admits each step" if quotas else f"{namespace} has none")


def exceeds(hard: dict[str, str], placement: StepPlacement) -> Iterator[str]:
    """The requests of a step beyond the limits of a quota, such as `requests 8 nvidia.com/gpu of at most 0`."""
    requests = {
        "requests.cpu": placement.cpu,
        "requests.memory": placement.memory,
        "limits.memory": placement.memory_limit or placement.memory,
    }

    if placement.devices:
        resource = placement.devices.resource or RESOURCES[placement.devices.kind]
        requests[f"requests.{resource}"] = str(placement.devices.count)

    for key, value in requests.items():
        # A quota may write `cpu` and `memory` for `requests.cpu` and `requests.memory`.
        limit = hard.get(key, hard.get(key.removeprefix("requests.")))
        if limit is not None and parse_quantity(value) > parse_quantity(str(limit)):
            yield f"requests {value} {key.partition('.')[2]} of at most {limit}"


def _check_retries(kubernetes: Any) -> Iterator[Diagnostic]:
    import yaml

    core = kubernetes.core_api()

    # Argo's own configuration first: the defaults of all workflows.
    settings = core.read_namespaced_config_map(
        "workflow-controller-configmap", KUBEFLOW, _request_timeout=TIMEOUT_SECONDS
    )
    defaults = yaml.safe_load((settings.data or {}).get("workflowDefaults") or "{}") or {}
    policy = (((defaults.get("spec") or {}).get("templateDefaults") or {}).get("retryStrategy") or {}).get(
        "retryPolicy", "OnFailure"
    )

    # The API server may patch every workflow that it creates, and its patch wins over the controller's defaults.
    server = kubernetes.apps_api().read_namespaced_deployment("ml-pipeline", KUBEFLOW, _request_timeout=TIMEOUT_SECONDS)
    for container in server.spec.template.spec.containers:
        for variable in container.env or []:
            if variable.name == "COMPILED_PIPELINE_SPEC_PATCH" and variable.value:
                patch = json.loads(variable.value).get("templateDefaults") or {}
                policy = (patch.get("retryStrategy") or {}).get("retryPolicy", policy)

    words = {
        "Always": "lost and failed pods are tried again",
        "OnError": "lost pods are tried again; failed ones (out of memory, a Spot node that shuts down) are not",
        "OnFailure": "failed pods are tried again; lost ones (deleted, their node gone) are not",
        "OnTransientError": "only pods with an error that the controller knows as transient are tried again",
    }
    more = "" if policy == "Always" else "; docs/cluster/compiling.md has the line that changes it"
    yield Diagnostic.ok("retries", f"{policy}: {words.get(policy, 'unknown')}{more}")


def _existence(subject: str, item: str, namespace: str, exists: bool) -> Diagnostic:
    if exists:
        return Diagnostic.ok(subject, item)
    return Diagnostic.problem(subject, f"{namespace} has no {item}", "kubectl apply -k k8s/overlays/…, or create it")


def _exists(read: Callable[[], Any]) -> bool:
    from kubernetes.client import ApiException

    try:
        read()
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True
