"""A run in ML Metadata (MLMD), the lineage store of TFX and of Kubeflow Pipelines 2, by its own client.

The types are those that Kubeflow Pipelines gives: a context of the pipeline and one of the run, an execution for each
step, an artifact for each step's output, events between them. An output that several runs share is one artifact, and
what a run sends twice is there once. On a cluster Kubeflow Pipelines records the tasks of a run by itself; this is for
runs elsewhere, and for the verdict, the metrics and the version.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from voxline.errors import WorkError
from voxline.notify.event import RunEvent, StepRecord
from voxline.notify.settings import NotifySettings
from voxline.registry.journal import format_utc

PIPELINE = "system.Pipeline"
RUN = "system.PipelineRun"
EXECUTION = "system.ContainerExecution"
DATASET, MODEL, METRICS, ARTIFACT = "system.Dataset", "system.Model", "system.Metrics", "system.Artifact"
TYPES = {
    **dict.fromkeys(("dataset", "ingest", "convert", "extract", "publish"), DATASET),
    **dict.fromkeys(("train", "export", "language"), MODEL),
    "evaluate": METRICS,
}
"""Step → the type of its output; of the others `ARTIFACT`."""

_DATASETS = ("publish", "dataset", "extract")
_MANIFESTS = ("publish", "dataset", "convert")
_MODELS = ("language", "export", "train")
READS: dict[str, tuple[tuple[str, ...], ...]] = {
    "convert": (("ingest",),),
    "validate": (("convert",),),
    "extract": (("convert",),),
    "publish": (("dataset", "extract"),),
    "forecast": (_DATASETS, ("validate",)),
    "train": (_DATASETS,),
    "export": (("train",),),
    "language": (("export", "train"), _MANIFESTS),
    "evaluate": (_MODELS, _MANIFESTS),
    "push": (_MODELS, ("evaluate",)),
}
"""Step → for each of its inputs the steps that may output it, of which the first that the run has does."""

Properties = Mapping[str, str | int | float | None]


def inputs_of(step: str, steps: Mapping[str, Any]) -> list[str]:
    """The steps whose outputs a step reads, among those that a run has."""
    producers = (next((name for name in names if name in steps), "") for names in READS.get(step, ()))
    return [name for name in producers if name]


def record_in_mlmd(event: RunEvent, settings: NotifySettings, session: requests.Session) -> str:
    """Records a run, its steps and what they read and wrote.

    Raises:
      WorkError: the client is not installed.
    """
    store = _Store(settings)
    run = event.run
    pipeline = store.context(PIPELINE, f"{run.pipeline}.{run.name}", {"pipeline": run.pipeline, "model": run.model})
    of_run = store.context(
        RUN,
        run.id,
        {
            "display_name": run.name, "verdict": event.verdict, "reason": event.reason, "version": event.version,
            "git_revision": event.revision, "started": format_utc(run.started), "ended": format_utc(event.ended),
        },
        parent=pipeline,
    )  # fmt: skip

    outputs: dict[str, Any] = {}
    for step in event.steps:
        inputs = [outputs[name] for name in inputs_of(step.name, outputs)]
        if step.name == "ingest":
            inputs = [store.artifact(DATASET, uri, "corpus", uri, {}) for uri in run.corpora]
        written = [store.artifact(*output) for output in _outputs(event, step)]
        store.execution(event, step, inputs, written, [pipeline, of_run])
        if written:
            outputs[step.name] = written[0]
    return settings.mlmd.uri


def _outputs(event: RunEvent, step: StepRecord) -> Iterator[tuple[str, str, str, str, Properties]]:
    """The outputs of a step: type, location, name, identity, properties. The folder of the step comes first."""
    if step.status != "succeeded" or not step.folder:
        return
    properties: dict[str, str | int | float | None] = {**step.counts}
    if step.name == "evaluate":
        for name, metric in event.metrics.items():
            properties |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
    yield TYPES.get(step.name, ARTIFACT), step.folder, step.name, step.folder, properties

    # A version that another run had put into service is none that this run wrote.
    if step.name == "push" and event.verdict in ("promoted", "candidate"):
        facts = {"version": event.version, "digest": event.digest, "verdict": event.verdict}
        yield MODEL, event.model_uri, f"{event.run.model}@{event.version}", event.model_uri, facts


class _Store:
    """The few calls of MLMD's client that a run needs."""

    def __init__(self, settings: NotifySettings) -> None:
        try:
            # The package itself only prints that an import of it failed.
            client = importlib.import_module("ml_metadata.metadata_store.metadata_store")
            self._messages: Any = importlib.import_module("ml_metadata.proto.metadata_store_pb2")
        except ImportError as error:
            raise WorkError(
                f"ML Metadata's client cannot be imported ({error}); `pip install 'voxline[mlmd]'` adds it, where "
                "glibc is 2.39 or newer (docs/tfx.md)"
            ) from None
        self._client: Any = client.MetadataStore(self._connection(settings))
        self._types: dict[str, int] = {}

    def _connection(self, settings: NotifySettings) -> Any:
        uri = settings.mlmd.uri
        parts = urlsplit(uri)
        if parts.scheme == "grpc":
            return self._messages.MetadataStoreClientConfig(
                host=parts.hostname, port=parts.port, client_timeout_sec=settings.timeout_seconds
            )
        config = self._messages.ConnectionConfig()
        config.sqlite.filename_uri = uri.removeprefix("sqlite://")
        config.sqlite.connection_mode = self._messages.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        return config

    def _type(self, kind: str, name: str) -> int:
        """The id of a type, which may have properties that others gave it."""
        if name not in self._types:
            message = getattr(self._messages, f"{kind}Type")(name=name)
            put = getattr(self._client, f"put_{kind.lower()}_type")
            self._types[name] = put(message, can_add_fields=True, can_omit_fields=True)
        return self._types[name]

    def context(self, kind: str, name: str, properties: Properties, parent: Any = None) -> Any:
        """A context of this name, created or brought up to date."""
        context = self._client.get_context_by_type_and_name(kind, name)
        is_new = context is None
        if is_new:
            context = self._messages.Context(type_id=self._type("Context", kind), name=name)
        _set_properties(context, properties)
        (context.id,) = self._client.put_contexts([context])
        if is_new and parent is not None:
            link = self._messages.ParentContext(child_id=context.id, parent_id=parent.id)
            self._client.put_parent_contexts([link])
        return self._client.get_context_by_type_and_name(kind, name)

    def artifact(self, kind: str, uri: str, name: str, identity: str, properties: Properties) -> Any:
        """The artifact of this identity, stored first if it is new."""
        unique = f"voxline/{identity}"
        stored = self._client.get_artifact_by_type_and_name(kind, unique)
        if stored is not None:
            return stored
        artifact = self._messages.Artifact(
            type_id=self._type("Artifact", kind), uri=uri, name=unique, state=self._messages.Artifact.LIVE
        )
        _set_properties(artifact, {"display_name": name, **properties})
        (artifact.id,) = self._client.put_artifacts([artifact])
        return artifact

    def execution(
        self, event: RunEvent, step: StepRecord, inputs: list[Any], outputs: list[Any], contexts: list[Any]
    ) -> None:
        """A step with what it read and wrote, unless an earlier delivery has stored it."""
        name = f"{event.run.id}/{step.name}"
        if self._client.get_execution_by_type_and_name(EXECUTION, name) is not None:
            return
        states = self._messages.Execution
        ended = {"succeeded": states.CACHED if step.reused else states.COMPLETE, "failed": states.FAILED}
        execution = states(
            type_id=self._type("Execution", EXECUTION),
            name=name,
            last_known_state=ended.get(step.status, states.CANCELED),
        )
        figures = {"seconds": step.seconds, "cpu_seconds": step.cpu_seconds, "key": step.key or None}
        _set_properties(execution, {"display_name": step.name, "task_name": step.name, **figures, **step.counts})

        pairs = []
        for kind, artifacts in ((self._messages.Event.INPUT, inputs), (self._messages.Event.OUTPUT, outputs)):
            for artifact in artifacts:
                message = self._messages.Event(type=kind, artifact_id=artifact.id)
                message.path.steps.add(key=artifact.custom_properties["display_name"].string_value)
                pairs.append((artifact, message))
        self._client.put_execution(execution, pairs, contexts, reuse_context_if_already_exist=True)


def _set_properties(message: Any, properties: Properties) -> None:
    """Sets custom properties; what is not known is left out."""
    for name, value in properties.items():
        if isinstance(value, str):
            message.custom_properties[name].string_value = value
        elif isinstance(value, int):
            message.custom_properties[name].int_value = value
        elif value is not None:
            message.custom_properties[name].double_value = value
