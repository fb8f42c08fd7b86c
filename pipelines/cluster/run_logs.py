"""The logs of a run's steps: from the KFP server, from Kubernetes, or from the copy among the run's artifacts.

The server reads the log of a pod, or Argo's archive of it. Kubernetes has the pods until `cluster.kept_days` after the
run. KFP 2.16 and later store each attempt's log as the artifact `executor-logs`, which outlives the pods.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.cluster.kfp_client import KfpServer, printable
from voxline.pipelines.cluster.run_steps import Attempt, StepStatus
from voxline.pipelines.cluster.runs import ClusterRun
from voxline.progress import STATUS_PREFIX
from voxline.store.objects import open_store

MAIN_CONTAINER = "main"
"""Argo's name of a pod's main container."""
RUN_LABEL = "pipeline/runid"
STEP_LABEL = "app.kubernetes.io/component"
"""`compiler.py` labels the pods of a step, and not those of its driver."""
NODE_ANNOTATION = "workflows.argoproj.io/node-name"

NamedLog = tuple[str, str]
"""The title of a log, and its text."""


def print_logs(cluster: KfpServer, run: ClusterRun, step: str, write: Callable[[str], None]) -> None:
    """Writes the logs of one step, or of all.

    Raises:
      WorkError: the run does not have this step, or the logs are gone; says where each was looked for.
    """
    selected = [status for status in run.steps if step in ("", status.name)]
    if not selected:
        names = ", ".join(status.name for status in run.steps) or "none yet"
        raise WorkError(f"run {run.id}: no step {step!r}; it has {names}")

    # A step without a log is no error as long as another one has some: not every step has started.
    log_count = 0
    reasons: list[str] = []
    for status in selected:
        for title, text in read_logs(cluster, run, status, reasons):
            if len(selected) > 1 or title:
                write(f"== {status.name}{title}")
            for line in text.splitlines():
                write(printable(line))
            log_count += 1

    if not log_count:
        why = "; ".join(dict.fromkeys(reasons)) or "no pod has started yet"
        raise WorkError(
            f"run {run.id}: the logs of {step or 'its steps'} are not available: {why}; pods are kept "
            "for `cluster.kept_days` after the run ends, and later only the cluster's log collector has their logs"
        )


def read_logs(cluster: KfpServer, run: ClusterRun, step: StepStatus, reasons: list[str]) -> Iterator[NamedLog]:
    """The title and the log of each attempt of a step; appends to `reasons` why one was not found."""
    # The server first: it needs no rights in Kubernetes, and reads Argo's archive too.
    has_log = False
    for number, attempt in enumerate(step.attempts, start=1):
        try:
            text = _log_from_server(cluster, run.id, attempt.pod)
        except VoxlineError as error:
            reasons.append(str(error))
            continue
        has_log = True
        yield (f", attempt {number}" if len(step.attempts) > 1 else ""), text
    if has_log:
        return

    pods = list(_logs_from_kubernetes(cluster, run.id, step, reasons))
    yield from pods

    # The copy is last: KFP stores it when an attempt ends, so a running step has none.
    if not pods:
        for attempt in step.attempts:
            if attempt.log_uri:
                yield from _log_from_artifacts(cluster, attempt, reasons)


@dataclass(frozen=True)
class StepError:
    """The error with which a step ended, as its log has it."""

    kind: str
    """Name of the class in `voxline.errors`."""
    message: str

    @property
    def is_permanent(self) -> bool:
        """True if the same work would fail again."""
        return self.kind in (WorkError.__name__, SettingsError.__name__)


def find_step_error(cluster: KfpServer, run: ClusterRun) -> StepError | None:
    """The last line such as `voxline.errors.WorkError: …` in the failed step's log; None if there is none."""
    step = run.failed_step
    if step is None:
        return None
    texts = [text for _, text in read_logs(cluster, run, step, [])]
    errors = re.findall(r"^voxline\.errors\.(\w+): (.+)$", texts[-1] if texts else "", re.MULTILINE)
    return StepError(errors[-1][0], printable(errors[-1][1].strip())) if errors else None


def find_outcome(cluster: KfpServer, run: ClusterRun) -> str:
    """The last status line of the last step that ran, such as `push: Not pushed: …`; "" if there is none, or no log.

    What a step says of notifications comes after its outcome, and is none.
    """
    ran = [step for step in run.steps if step.state != "SKIPPED"]
    texts = [text for step in ran[-1:] for _, text in read_logs(cluster, run, step, [])]
    printed = [line for text in texts for line in text.splitlines() if line.startswith(STATUS_PREFIX)]
    lines = [line.removeprefix(STATUS_PREFIX) for line in printed]
    outcomes = [line for line in lines if not line.startswith("notify.")]
    return printable(outcomes[-1]) if outcomes else ""


def _log_from_server(cluster: KfpServer, run_id: str, pod: str) -> str:
    """The log of a pod by KFP 2's only call for logs, which is in an API version that its client does not know.

    It answers with status 200 before it looks for the pod, so an error is a JSON object in place of the log.
    """
    answer = cluster.api.call_api(
        "/apis/v1alpha1/runs/{run_id}/nodes/{node_id}/log", "GET", path_params={"run_id": run_id, "node_id": pod},
        auth_settings=["Bearer"], _preload_content=False, _return_http_data_only=True,
    )  # fmt: skip
    text = str(answer.data.decode("utf-8", errors="replace"))

    # A step may print JSON too, so a text that is not the server's object is a log.
    if text.startswith("{") and '"error_message"' in text:
        try:
            error = json.loads(text)["error_message"]
        except (ValueError, KeyError, TypeError):
            return text
        raise WorkError(f"{cluster.access.host}: {printable(' '.join(str(error).split()))[:300]}")
    return text


def _logs_from_kubernetes(cluster: KfpServer, run_id: str, step: StepStatus, reasons: list[str]) -> Iterator[NamedLog]:
    from kubernetes.client import ApiException

    from voxline.pipelines.cluster.kubernetes_api import core_api

    namespace = cluster.access.namespace or "kubeflow"
    try:
        core = core_api()
        pods = core.list_namespaced_pod(
            namespace, label_selector=f"{RUN_LABEL}={run_id},{STEP_LABEL}={step.component}", _request_timeout=30
        ).items
        if step.component != step.name:  # all trials of a search have one label
            pods = [pod for pod in pods if pod.metadata.name in {attempt.pod for attempt in step.attempts}]
        for pod in sorted(pods, key=_attempt_number):
            text = core.read_namespaced_pod_log(
                pod.metadata.name, pod.metadata.namespace, container=MAIN_CONTAINER, _request_timeout=60
            )
            yield f", pod {pod.metadata.name}", str(text)

        if not pods:
            reasons.append(f"Kubernetes: namespace {namespace} has no pod of this step")
    except ApiException as error:
        reasons.append(f"Kubernetes: {error.status} {error.reason}")
    except VoxlineError as error:
        reasons.append(str(error))
    except Exception as error:  # urllib3 and a kubeconfig with plugins raise many kinds
        reasons.append(f"Kubernetes: {type(error).__name__}")


def _attempt_number(pod: Any) -> tuple[int, Any]:
    # Such as `asr-x7k2p.root.train.executor(1)`; a pod that is never retried has no number.
    name = (pod.metadata.annotations or {}).get(NODE_ANNOTATION, "")
    number = re.search(r"\((\d+)\)$", name)
    return int(number[1]) if number else 0, pod.metadata.creation_timestamp


def _log_from_artifacts(cluster: KfpServer, attempt: Attempt, reasons: list[str]) -> Iterator[NamedLog]:
    """The copy of a log: in our own buckets by our own client, in the cluster's by the server of the UI."""
    scheme, _, path = attempt.log_uri.partition("://")
    bucket, _, key = path.partition("/")

    # `minio://` names a server inside the cluster, which only the UI's server can reach and has the password of.
    try:
        if scheme in ("gs", "s3"):
            folder, _, name = attempt.log_uri.rpartition("/")
            text = open_store(folder).read(name).decode("utf-8", errors="replace")
        else:
            query = {"source": scheme, "namespace": cluster.access.namespace or "kubeflow", "bucket": bucket}
            answer = cluster.api.call_api(
                "/artifacts/get", "GET", query_params=[*query.items(), ("key", key)], auth_settings=["Bearer"],
                _preload_content=False, _return_http_data_only=True,
            )  # fmt: skip
            text = str(answer.data.decode("utf-8", errors="replace"))
    except (VoxlineError, OSError) as error:
        reasons.append(f"{attempt.log_uri}: {error}")
        return

    yield f", {attempt.log_uri.rpartition('/')[2]}", text
