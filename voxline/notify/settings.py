"""The section `notify` of a config: where a run's outcome is sent. It holds no credentials, only where they are."""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import pydantic

from voxline.errors import SettingsError
from voxline.settings import Settings

NOTIFY_ENV = "VOXLINE_NOTIFY"
"""Of a step on a cluster: what it needs to send the outcome of its run; see `on_cluster`."""
SERVED_REGISTRY = r"^(pvc://[a-z0-9][-a-z0-9.]*|(gs|s3)://[a-z0-9][-a-z0-9._]*)(/[^/]+)*$"
VARIABLE = r"^([A-Za-z_][A-Za-z0-9_]*)?$"


CREDENTIALS = re.compile(r"(?i)(token|key|secret|passw(or)?d|signature|sig|auth|code)=")
"""In the query of an address; `sig` and `code` are Azure's."""


def _check_url(url: str) -> str:
    parts = urlsplit(url)

    # Addresses are recorded in events and printed, so they must not hold a secret.
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("accepted: an address that begins with http:// or https://")
    if parts.username or parts.password or CREDENTIALS.search(parts.query):
        raise ValueError("an address without credentials is accepted; name a file or a variable that holds them")
    return url


def _check_mlflow(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.password or CREDENTIALS.search(parts.query):
        raise ValueError(
            "a URI without credentials is accepted; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
            "MLFLOW_TRACKING_TOKEN, and for a database the variables or the file of its own client"
        )
    return uri


Url = Annotated[str, pydantic.AfterValidator(_check_url)]
MlflowUri = Annotated[str, pydantic.AfterValidator(_check_mlflow)]
"""Of a server, a folder or a database; it is recorded and printed, so it holds no password."""


class Endpoint(Settings):
    """A server that takes requests, and where its bearer token is, if it requires one."""

    url: Url = pydantic.Field("", description="its address; empty: nothing is sent")
    token_env: str = pydantic.Field("", pattern=VARIABLE, description="variable that holds the bearer token")
    token_file: str = pydantic.Field("", description="file that holds the bearer token")

    def headers(self, key: str) -> dict[str, str]:
        """Args:
          key: of this section in a config, for messages.

        Raises:
          SettingsError: the file or the variable that is to hold the token is absent or empty.
        """
        token = read_secret(key, "token", self.token_env, self.token_file)
        return {"Authorization": f"Bearer {token}"} if token else {}


class WebhookSettings(Settings):
    """A server that takes each run's outcome as JSON, signed if a key is given."""

    url: Url = pydantic.Field("", description="address of the webhook; empty: nothing is sent")
    key_env: str = pydantic.Field("", pattern=VARIABLE, description="variable that holds the key of the signature")
    key_file: str = pydantic.Field("", description="file that holds the key of the signature")


class OpenLineageSettings(Endpoint):
    """A server that takes OpenLineage events, such as Marquez."""

    url: Url = pydantic.Field(
        "", description="address of the server, such as http://marquez:5000; events go to /api/v1/lineage"
    )
    namespace: str = pydantic.Field("voxline", min_length=1, description="namespace of the jobs")


class KubeflowRegistrySettings(Endpoint):
    """Kubeflow Model Registry."""

    url: Url = pydantic.Field("", description="address of its REST server, such as http://model-registry:8080")


class MlflowRegistrySettings(Settings):
    """MLflow's model registry; it needs `pip install mlflow-skinny` and `sqlalchemy` for a database."""

    uri: MlflowUri = pydantic.Field("", description="its URI, such as http://mlflow:5000; empty: nothing is registered")


class MlmdSettings(Settings):
    """ML Metadata, the lineage of TFX and of Kubeflow Pipelines; it needs `pip install 'voxline[mlmd]'`."""

    uri: str = pydantic.Field(
        "",
        pattern=r"^(sqlite://.+|grpc://[^/@:]+:[0-9]+)?$",
        description="of the store: sqlite:///var/lib/lineage.sqlite, or grpc://metadata-grpc-service.kubeflow:8080; "
        "empty: nothing is recorded",
    )


class KserveSettings(Settings):
    """The manifest of a KServe InferenceService for each version that goes into service."""

    manifest: str = pydantic.Field(
        "",
        pattern=r"^(.*\.yaml)?$",
        description="file to write, on a disk or in a bucket, which a cluster follows or a person applies; empty: none",
    )
    percent: int = pydantic.Field(
        10, ge=0, le=100, description="share of the traffic for a new version; the version before gets the rest"
    )
    name: str = pydantic.Field("", description="of the InferenceService; the model's name if empty")
    namespace: str = pydantic.Field("voxline", description="of the InferenceService; empty: that of kubectl's context")
    storage: str = pydantic.Field(
        "pvc://voxline-registry",
        pattern=SERVED_REGISTRY,
        description="the registry as pods see it: pvc://CLAIM, which they mount; or gs:// or s3://, of which KServe "
        "copies the model; or a folder in it",
    )
    min_replicas: int = pydantic.Field(2, ge=0, le=1000, description="fewest replicas of a revision")
    max_replicas: int = pydantic.Field(6, ge=1, le=1000, description="most replicas of a revision")


class NotifySettings(Settings):
    """Where a run's outcome is sent to. A delivery that fails is reported in one line, and never fails a run."""

    success_days: float = pydantic.Field(
        7.0, gt=0, le=3650, description="days within which a run must succeed; the alert on old models reads it"
    )
    timeout_seconds: float = pydantic.Field(10.0, gt=0, le=300, description="longest wait for a server's answer")
    attempts: int = pydantic.Field(4, ge=1, le=10, description="requests to a server that is unavailable, at most")
    run_page: str = pydantic.Field(
        "",
        description="address of a run's page, in which {id} is replaced, such as "
        "https://kubeflow.example.com/pipeline/#/runs/details/{id}",
    )
    history: str = pydantic.Field(
        "",
        description="folder or bucket URI of the history of runs; empty: on a cluster none, on this machine .runs in "
        "the registry, or in the folder of datasets",
    )
    textfile: str = pydantic.Field(
        "", pattern=r"^(.*\.prom)?$", description="file for the textfile collector of node_exporter; it ends in .prom"
    )
    pushgateway: Endpoint = pydantic.Field(default_factory=Endpoint, description="Prometheus' Pushgateway")
    otlp: Endpoint = pydantic.Field(
        default_factory=Endpoint, description="OTLP over HTTP: an OpenTelemetry collector's /v1/metrics"
    )
    webhook: WebhookSettings = pydantic.Field(default_factory=WebhookSettings, description="a webhook")
    openlineage: OpenLineageSettings = pydantic.Field(
        default_factory=OpenLineageSettings, description="OpenLineage events"
    )
    kubeflow_registry: KubeflowRegistrySettings = pydantic.Field(
        default_factory=KubeflowRegistrySettings, description="Kubeflow Model Registry"
    )
    mlflow_registry: MlflowRegistrySettings = pydantic.Field(
        default_factory=MlflowRegistrySettings, description="MLflow's model registry"
    )
    mlmd: MlmdSettings = pydantic.Field(default_factory=MlmdSettings, description="ML Metadata")
    kserve: KserveSettings = pydantic.Field(
        default_factory=KserveSettings, description="KServe: a canary of each version that goes into service"
    )

    def deadline_seconds(self) -> float:
        """The longest time for one receiver, some of which take several requests."""
        # Retries wait, and some receivers take several requests; the deadline is above all of them together.
        return 30 + 2 * self.attempts * self.timeout_seconds

    def addresses(self) -> dict[str, str]:
        """Key of each receiver that is set → its address."""
        named = {
            "history": self.history,
            "textfile": self.textfile,
            "pushgateway": self.pushgateway.url,
            "otlp": self.otlp.url,
            "webhook": self.webhook.url,
            "openlineage": self.openlineage.url,
            "kubeflow_registry": self.kubeflow_registry.url,
            "mlflow_registry": self.mlflow_registry.uri,
            "mlmd": self.mlmd.uri,
            "kserve": self.kserve.manifest,
        }
        return {key: address for key, address in named.items() if address}


def read_secret(key: str, kind: str, variable: str, file: str) -> str:
    """The content of a secret's file or variable; empty if neither is named.

    Args:
      key: of the section that names them, such as `notify.webhook`.
      kind: of the secret, as the section's keys begin: `token` or `key`.

    Raises:
      SettingsError: the named file or variable is absent or empty.
    """
    if file:
        # A trailing line feed is common in a mounted Secret.
        try:
            found = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise SettingsError(f"{key}.{kind}_file: {file} cannot be read ({error}); mount the Secret there") from None
        if not found:
            raise SettingsError(f"{key}.{kind}_file: {file} is empty")
        return found

    # Named but unset is a mistake: an unsigned event would be sent in silence.
    if variable and not os.environ.get(variable, "").strip():
        raise SettingsError(f"{key}.{kind}_env: the variable {variable} is not set; set it, or take it from a Secret")
    return os.environ.get(variable, "").strip() if variable else ""
