"""The parts of the Kubernetes API that a training job needs; the only file that imports its client."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, TransientError, WorkError
from voxline.progress import print_status

Object = dict[str, Any]
POD_NAME_VARIABLES = ("KFP_POD_NAME", "POD_NAME")
"""Environment variables with the name of the pod: that of Kubeflow Pipelines, and the usual one elsewhere."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
REQUEST_SECONDS = 30.0
PATIENCE_SECONDS = 300.0
"""How long to retry an API server that does not answer: longer than its restart takes."""
RETRIED_STATUSES = (429, 500, 502, 503, 504)
LOG_BYTES = 1_000_000
"""Bytes of a log to request at once."""


class JobExists(Exception):  # noqa: N818 - expected and handled, not an error
    """An object of that name exists already."""


class ApiError(WorkError):
    """The API server refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def own_pod_name() -> str:
    """The name of the pod that this process runs in; "" outside a pod."""
    return next((os.environ[name] for name in POD_NAME_VARIABLES if os.environ.get(name)), "")


class KubernetesClient:
    """The API of this pod's namespace, with the permissions of its ServiceAccount.

    Pods, logs and the objects of a training job go through one call, which waits and retries. The client's CoreV1Api
    and CustomObjectsApi do neither, so each of their methods would need the same loop around it.
    """

    def __init__(self, *, patience: float = PATIENCE_SECONDS, wait: Callable[[float], None] = time.sleep) -> None:
        from kubernetes import client, config

        # A configuration of its own: the library's default one is global to the process.
        configuration = client.Configuration()

        # Kubernetes sets the variable in each pod. Outside of one, as in a test on kind, the kubeconfig names the
        # cluster.
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException as error:
                raise SettingsError(
                    f"this pod has no credentials for the Kubernetes API ({error}), which train.workers.count above 1 "
                    "needs; give it a ServiceAccount with automountServiceAccountToken (k8s/base/roles.yaml)"
                ) from None
            self.namespace = NAMESPACE_FILE.read_text(encoding="utf-8").strip()
        else:
            config.load_kube_config(client_configuration=configuration)
            _, context = config.list_kube_config_contexts()
            self.namespace = context["context"].get("namespace", "default")

        self._client = client.ApiClient(configuration)
        self._patience = patience
        self._wait = wait

    def pod(self, name: str) -> Object:
        return self._get("v1", "pods", name) or _raise_missing(f"pod {name} of namespace {self.namespace}")

    def pods(self, selector: str) -> list[Object]:
        pods: list[Object] = self._call("GET", self._path("v1", "pods"), query={"labelSelector": selector})["items"]
        return pods

    def log(self, pod: str, container: str, since: str) -> list[tuple[str, str]]:
        """(time, line) of a container's log, from the time `since` on ("": all).

        Times are RFC 3339 with nanoseconds; the API cuts `since` to whole seconds, so the first lines may repeat.
        """
        query = {"container": container, "timestamps": "true", "limitBytes": str(LOG_BYTES)}
        if since:
            query["sinceTime"] = since

        try:
            text = self._call("GET", self._path("v1", "pods", pod, "log"), query=query, text=True)
        except ApiError as error:
            if error.status in (400, 404):  # it has not started yet, or is gone
                return []
            raise

        # With `timestamps`, a line is "2026-01-05T10:00:00.123456789Z step 100 …".
        pairs = (line.partition(" ") for line in text.splitlines())
        return [(stamp, message) for stamp, _, message in pairs]

    def get(self, api: str, plural: str, name: str) -> Object | None:
        return self._get(api, plural, name)

    def create(self, api: str, plural: str, body: Object) -> Object:
        """Creates an object.

        Raises:
          JobExists: there is one of that name.
        """
        try:
            created: Object = self._call("POST", self._path(api, plural), body=body)
        except ApiError as error:
            if error.status == 409:
                raise JobExists(str(error)) from None
            raise
        return created

    def merge(self, api: str, plural: str, name: str, change: Object) -> None:
        self._call("PATCH", self._path(api, plural, name), body=change)

    def delete(self, api: str, plural: str, name: str, uid: str) -> None:
        """Deletes the object with this uid, and then all that it owns; does nothing if it is gone or replaced.

        Not in the foreground, where the object stays until all that it owns is gone: Kubeflow Trainer 2.1 creates a
        JobSet again for a TrainJob that is being deleted, so that its workers started once more.
        """
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}

        # 404: it is gone. 409: the uid is another's, since somebody created a job of the same name meanwhile.
        try:
            self._call("DELETE", self._path(api, plural, name), body=options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _get(self, api: str, plural: str, name: str) -> Object | None:
        try:
            item: Object = self._call("GET", self._path(api, plural, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return item

    def _path(self, api: str, plural: str, *names: str) -> str:
        # Only the core group, "v1", has its own root; the others are "<group>/<version>".
        root = "/apis" if "/" in api else "/api"
        return "/".join([root, api, "namespaces", self.namespace, plural, *names])

    def _call(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None, text: bool = False
    ) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        deadline = time.monotonic() + self._patience
        pause = 1.0  # seconds; doubled up to 30
        reported = False
        while True:
            # The response is raw: custom resources and logs have no model in the client.
            try:
                answer, *_ = self._client.call_api(
                    path,
                    method,
                    query_params=list((query or {}).items()),
                    header_params=_headers(method, text),
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=REQUEST_SECONDS,
                )
                data = answer.data.decode("utf-8", "replace")
                return data if text else json.loads(data)
            except ApiException as error:
                if error.status not in RETRIED_STATUSES:
                    raise _api_error(error, method, path) from None
                why = f"it answers {error.status} {error.reason}"
            except HTTPError as error:
                why = str(error)

            # A training of days must outlive a restart of the API server, so this is reported once and tried again.
            if time.monotonic() > deadline:
                raise TransientError(
                    f"train: the Kubernetes API does not answer ({method} {path}: {why}); start the step again"
                )
            if not reported:
                print_status(f"train: waiting for the Kubernetes API ({why[:200]})")
                reported = True

            self._wait(pause)
            pause = min(pause * 2, 30)


def _headers(method: str, text: bool) -> dict[str, str]:
    # A merge patch, which custom resources accept; they have no strategic merge.
    sent = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return {"Content-Type": sent, "Accept": "*/*" if text else "application/json"}


def _api_error(error: Any, method: str, path: str) -> ApiError:
    # The body is a Status object of Kubernetes, unless a proxy in front of the API server answered.
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason

    advice = ""
    if error.status in (401, 403):
        advice = "; the ServiceAccount needs the Role voxline-train, as voxline-lead has it (k8s/base/roles.yaml)"
    return ApiError(f"train: the Kubernetes API refuses {method} {path}: {message}{advice}", error.status)


def _raise_missing(description: str) -> Object:
    raise WorkError(f"train: the cluster has no {description}")
