"""What the pods of a step have printed: from the KFP server, while it has it, else from Kubernetes itself."""

from collections.abc import Callable, Iterator
from typing import Any

from voxline.errors import VoxlineError, WorkError
from voxline.pipelines.cluster.kfp_client import KfpServer
from voxline.pipelines.cluster.retries import RequestRefusedError, printable
from voxline.pipelines.cluster.runs import StepStatus, list_steps

MAIN_CONTAINER = "main"
"""Argo's name of the container that does the work."""
RUN_LABEL = "pipeline/runid"
NODE_ANNOTATION = "workflows.argoproj.io/node-name"
"""Such as `refresh-x7k.root.convert.executor`."""


def print_logs(cluster: KfpServer, run: Any, step: str, write: Callable[[str], None]) -> None:
    """Writes what the pods of a step, or of all, have printed.

    Raises:
      WorkError: the run has no such step, or nothing is left of what it printed.
    """
    steps = list_steps(run)
    chosen = [one for one in steps if step in ("", one.name)]
    if not chosen:
        names = ", ".join(one.name for one in steps) or "none yet"
        raise WorkError(f"run {run.run_id}: no step {step!r}; it has {names}")
    written = 0
    reasons: list[str] = []
    for one in chosen:
        for title, text in _step_logs(cluster, run, one, reasons):
            if len(chosen) > 1 or title:
                write(f"== {one.name}{title}")
            for line in text.splitlines():
                write(printable(line))
            written += 1
    if not written:
        why = reasons[-1] if reasons else "no pod of it has started yet"
        raise WorkError(
            f"run {run.run_id}: nothing that {step or 'its steps'} printed is to be had: {why}; pods are kept "
            "for `cluster.kept_days` after a run's end, then only a log collector of the cluster still has it"
        )


def _step_logs(cluster: KfpServer, run: Any, step: StepStatus, reasons: list[str]) -> Iterator[tuple[str, str]]:
    """A title and a text for each attempt."""
    found = False
    for number, pod in enumerate(step.pods, start=1):
        try:
            text = _log_from_kfp(cluster, run.run_id, pod)
        except VoxlineError as error:
            reasons.append(str(error))
            continue
        found = True
        yield (f", attempt {number}" if len(step.pods) > 1 else ""), text
    if not found:
        yield from _logs_from_kubernetes(cluster, run.run_id, step.name, reasons)


def _log_from_kfp(cluster: KfpServer, run_id: str, pod: str) -> str:
    """The only log call that KFP 2 has: of an API version that its client does not know, by the pod's name."""
    answer = cluster.api.call_api(
        "/apis/v1alpha1/runs/{run_id}/nodes/{node_id}/log", "GET", path_params={"run_id": run_id, "node_id": pod},
        auth_settings=["Bearer"], _preload_content=False, _return_http_data_only=True,
    )  # fmt: skip
    return str(answer.data.decode("utf-8", errors="replace"))


def _logs_from_kubernetes(cluster: KfpServer, run_id: str, step: str, reasons: list[str]) -> Iterator[tuple[str, str]]:
    from kubernetes.client import ApiException

    from voxline.pipelines.cluster.kubernetes_api import core_api

    try:
        core = core_api()
        pods = core.list_namespaced_pod(
            cluster.access.namespace or "kubeflow", label_selector=f"{RUN_LABEL}={run_id}", _request_timeout=30
        ).items
        for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp):
            if f".{step}." in f"{(pod.metadata.annotations or {}).get(NODE_ANNOTATION, '')}.":
                if ".executor" not in pod.metadata.annotations[NODE_ANNOTATION]:
                    continue  # the driver
                text = core.read_namespaced_pod_log(
                    pod.metadata.name, pod.metadata.namespace, container=MAIN_CONTAINER, _request_timeout=60
                )
                yield f", pod {pod.metadata.name}", str(text)
    except ApiException as error:
        reasons.append(f"Kubernetes answers {error.status} {error.reason}")
    except (RequestRefusedError, WorkError) as error:
        reasons.append(str(error))
    except Exception as error:  # urllib3 and a kubeconfig with plugins raise many kinds
        reasons.append(f"Kubernetes: {type(error).__name__}")
