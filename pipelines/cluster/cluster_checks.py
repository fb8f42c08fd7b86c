"""What a cluster lets this account do, and whether it has what a config names: accounts, volumes, schedules."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from components.speech.errors import VoxlineError, WorkError
from pipelines.cluster.access import Access
from pipelines.cluster.client import Cluster
from pipelines.cluster.finding import Finding
from pipelines.cluster.listing import by_name
from pipelines.cluster.schedules import Schedules, is_enabled
from pipelines.run_config import RunConfig

GROUP = "pipelines.kubeflow.org"
CREATED = {"experiments": "experiments", "runs": "runs", "jobs": "schedules", "pipelines": "pipelines"}
"""Resource of KFP's RBAC → what a person calls it."""
NOBODY = "voxline-doctor-looks-for-none"


def permissions(cluster: Cluster) -> Iterator[Finding]:
    """Whether this account may list, by listing, and create, by asking Kubernetes."""
    namespace = cluster.namespace
    client = cluster.client
    listings: dict[str, tuple[Callable[..., Any], str]] = {
        "pipelines": (client.pipelines.pipeline_service_list_pipelines, "pipelines"),
        "experiments": (client.experiments.experiment_service_list_experiments, "experiments"),
        "runs": (client.runs.run_service_list_runs, "runs"),
        "schedules": (client.recurring_runs.recurring_run_service_list_recurring_runs, "recurring_runs"),
    }
    for what, (method, key) in listings.items():
        try:
            by_name(method, key, NOBODY, namespace=namespace or "")
        except VoxlineError as error:
            mend = (
                f"kubectl -n {namespace or 'kubeflow'} create rolebinding voxline-submits --role=voxline-ci --user=YOU"
            )
            yield Finding.problem("permissions", f"{what} cannot be listed: {error}", mend)
            return
    yield Finding.ok("permissions", f"{', '.join(listings)} can be listed")
    if not namespace:
        yield Finding.ok("permissions", "a server of one user lets whoever reaches it create runs")
        return
    yield from _with_kubernetes("permissions", lambda kubernetes: _creations(kubernetes, namespace))


def schedules(cluster: Cluster) -> Iterator[Finding]:
    """Whether a crash has left a schedule with none or two enabled."""
    found = Schedules(cluster).all()
    for name in sorted({str(one.display_name) for one in found}):
        enabled = sum(is_enabled(one) for one in found if one.display_name == name)
        if enabled == 1:
            yield Finding.ok("schedule", name)
        else:
            yield Finding.problem(
                "schedule", f"{name}: {enabled} are enabled in place of 1", "run its `voxline schedule` command again"
            )


def objects(access: Access, config: RunConfig) -> Iterator[Finding]:
    """Whether the namespace has the accounts and volumes that a config names."""
    yield from _with_kubernetes("namespace", lambda kubernetes: _objects(kubernetes, access, config))


def _with_kubernetes(what: str, look: Callable[[Any], Iterator[Finding]]) -> Iterator[Finding]:
    from pipelines.cluster import kubernetes_api

    try:
        yield from look(kubernetes_api)
    except WorkError as error:
        yield Finding.not_checked(what, str(error))
    except Exception as error:  # a kubeconfig with plugins, and urllib3, raise many kinds
        told = f"{getattr(error, 'status', '')} {getattr(error, 'reason', '')}".strip() or type(error).__name__
        yield Finding.not_checked(what, f"the Kubernetes API does not answer ({told})")


def _creations(kubernetes: Any, namespace: str) -> Iterator[Finding]:
    missing = [told for resource, told in CREATED.items() if not kubernetes.may("create", resource, namespace, GROUP)]
    if missing:
        yield Finding.problem(
            "permissions",
            f"this kubeconfig's account may not create {', '.join(missing)} in {namespace}",
            f"kubectl -n {namespace} create rolebinding voxline-submits --role=voxline-ci --user=YOU",
        )
    else:
        yield Finding.ok("permissions", f"{', '.join(CREATED.values())} can be created in {namespace}")


def _objects(kubernetes: Any, access: Access, config: RunConfig) -> Iterator[Finding]:
    namespace = access.namespace or "kubeflow"
    core = kubernetes.core_api()
    if not _is_there(lambda: core.read_namespace(namespace, _request_timeout=15)):
        yield Finding.problem("namespace", f"there is no namespace {namespace}", "kubectl apply -k k8s/overlays/…")
        return
    yield Finding.ok("namespace", namespace)
    if account := config.cluster.service_account:
        there = _is_there(lambda: core.read_namespaced_service_account(account, namespace, _request_timeout=15))
        yield _found("account", f"service account {account}", namespace, there)
    for claim in config.cluster.claims:
        read = functools.partial(
            core.read_namespaced_persistent_volume_claim, claim.name, namespace, _request_timeout=15
        )
        yield _found("volume", f"volume claim {claim.name}", namespace, _is_there(read))
    if config.cluster.secrets:
        names = ", ".join(secret.name for secret in config.cluster.secrets)
        yield Finding.not_checked("secrets", f"{names}: to look would be to read them; `kubectl get secret` names them")


def _found(what: str, told: str, namespace: str, there: bool) -> Finding:
    if there:
        return Finding.ok(what, told)
    return Finding.problem(what, f"{namespace} has no {told}", "kubectl apply -k k8s/overlays/…, or make it")


def _is_there(read: Callable[[], Any]) -> bool:
    from kubernetes.client import ApiException

    try:
        read()
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True
