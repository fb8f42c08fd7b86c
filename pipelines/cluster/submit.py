"""Compiles a config, uploads it as a version of a pipeline with a fixed name, and starts it once.

A version is named by the hash of the compiled pipeline, so the same content is one version.
"""

import hashlib
import re
import secrets
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kfp_server_api
import yaml

from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import Platform, compile_pipeline
from voxline.pipelines.cluster.kfp_client import KfpServer, find_named
from voxline.pipelines.config.run_config import RunConfig
from voxline.store.scratch import scratch_root


@dataclass(frozen=True)
class PipelineVersion:
    """A compiled pipeline on the server."""

    pipeline_id: str
    version_id: str
    pipeline: str
    name: str
    uploaded: bool
    """Whether it was uploaded now; False if the server had it already."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameter → its default, which each run is given: the UI shows and compares only what a run was given."""


@dataclass(frozen=True)
class CompiledPipeline:
    """A compiled config, and its names on a server."""

    text: bytes
    pipeline: str
    version: str
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameter → its default, from the config."""

    @classmethod
    def of(cls, config: RunConfig, kfp_version: tuple[int, ...] = (), platform: Platform = "kfp") -> "CompiledPipeline":
        """Compiles for a server of this version (`KfpServer.version`); empty: for every server since 2.5.

        Raises:
          SettingsError: the config lacks a value that the pipeline requires, such as `store`.
        """
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            file = Path(folder) / "pipeline.yaml"
            compile_pipeline(config, file, kfp_version, platform)
            text = file.read_bytes()
        parameters = _read_parameters(text, config)

        # A server may store pipelines as Kubernetes objects, so these are valid names for them.
        family = f"voxline-{config.pipeline}"
        name = re.sub(r"[^a-z0-9]+", "-", f"{family}-{config.name}".lower()).strip("-")
        return cls(text, name if config.name != config.pipeline else family, _version_name(name, text), parameters)


def upload_version(cluster: KfpServer, compiled: CompiledPipeline) -> PipelineVersion:
    """The version with this content. Creates the pipeline and the version if they do not exist."""
    pipelines = cluster.client.pipelines
    uploads = cluster.client.pipeline_uploads
    namespace = cluster.namespace

    def create_pipeline() -> Any:
        # `upload_pipeline` would name the first version after the pipeline rather than its content.
        body = kfp_server_api.V2beta1Pipeline(
            name=compiled.pipeline,
            display_name=compiled.pipeline,
            namespace=namespace,
            description="Created by `voxline submit`; one version for each content.",
        )
        return pipelines.pipeline_service_create_pipeline(body)

    pipeline = cluster.calls.once(
        lambda: find_named(
            pipelines.pipeline_service_list_pipelines, "pipelines", compiled.pipeline, namespace=namespace or ""
        ),
        create_pipeline,
    )
    created = []  # not empty once an upload was tried: its response may be lost although the version exists

    def upload() -> Any:
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            file = Path(folder) / "pipeline.yaml"
            file.write_bytes(compiled.text)
            created.append(True)
            return uploads.upload_pipeline_version(str(file), name=compiled.version, pipelineid=pipeline.pipeline_id)

    version = cluster.calls.once(
        lambda: find_named(
            lambda **query: pipelines.pipeline_service_list_pipeline_versions(pipeline.pipeline_id, **query),
            "pipeline_versions",
            compiled.version,
        ),
        upload,
    )
    return PipelineVersion(
        pipeline.pipeline_id,
        version.pipeline_version_id,
        compiled.pipeline,
        compiled.version,
        bool(created),
        compiled.parameters,
    )


def get_experiment_id(cluster: KfpServer, name: str) -> str:
    """The id of the experiment with this name. Creates it if it does not exist."""
    experiments = cluster.client.experiments
    namespace = cluster.namespace
    body = kfp_server_api.V2beta1Experiment(display_name=name, namespace=namespace)
    experiment = cluster.calls.once(
        lambda: find_named(
            experiments.experiment_service_list_experiments, "experiments", name, namespace=namespace or ""
        ),
        lambda: experiments.experiment_service_create_experiment(body),
    )
    return str(experiment.experiment_id)


def new_run_name(config: RunConfig) -> str:
    """A unique name, by which a run is found again if the server's response is lost."""
    return f"{config.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def start_run(
    cluster: KfpServer,
    version: PipelineVersion,
    name: str,
    *,
    experiment: str,
    pipeline_root: str = "",
    service_account: str = "",
) -> str:
    """Starts a run of a version, once. Returns the run's id."""
    runs = cluster.client.runs
    experiment_id = get_experiment_id(cluster, experiment)

    body = kfp_server_api.V2beta1Run(
        display_name=name,
        experiment_id=experiment_id,
        pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
            pipeline_id=version.pipeline_id, pipeline_version_id=version.version_id
        ),
        runtime_config=runtime_config(version, pipeline_root),
        service_account=service_account or None,
    )

    # The name is unique (`new_run_name`), so a run that is found was created by an earlier try of this call.
    run = cluster.calls.once(
        lambda: find_named(runs.run_service_list_runs, "runs", name, experiment_id=experiment_id),
        lambda: runs.run_service_create_run(body),
    )
    return str(run.run_id)


def runtime_config(version: PipelineVersion, pipeline_root: str = "") -> Any:
    """The parameters of a version's run, and the folder of its artifacts."""
    return kfp_server_api.V2beta1RuntimeConfig(parameters=version.parameters, pipeline_root=pipeline_root or None)


def _version_name(pipeline: str, text: bytes) -> str:
    return f"{pipeline}-{hashlib.sha256(text).hexdigest()[:12]}"


def _read_parameters(text: bytes, config: RunConfig) -> dict[str, Any]:
    """The pipeline's parameters with their defaults.

    Raises:
      SettingsError: one that is required has none.
    """
    # The first document is the pipeline; the second has the settings of Kubernetes, and no parameters.
    document = next(iter(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
    parameters = document["root"].get("inputDefinitions", {}).get("parameters", {})

    missing = [
        name
        for name, parameter in parameters.items()
        if "defaultValue" not in parameter and not parameter.get("isOptional")
    ]
    if missing:
        options = " ".join(f"--set {name}=gs://bucket/{name}" for name in missing)
        raise SettingsError(
            f"{config.name}: a run on a cluster needs {', '.join(missing)}; set them in the config, or give {options}"
        )

    return {
        name: int(parameter["defaultValue"])  # the file has 2.0
        if parameter["parameterType"] == "NUMBER_INTEGER"
        else parameter["defaultValue"]
        for name, parameter in parameters.items()
        if "defaultValue" in parameter
    }
