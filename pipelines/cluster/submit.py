"""A config becomes a run: compiled, uploaded as a version of a pipeline whose name stays, and started once.

A version is named by the hash of what was compiled: the same content is one version, however often it is submitted.
"""

import hashlib
import re
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kfp_server_api
import yaml

from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import compile_pipeline
from voxline.pipelines.cluster.kfp_client import KfpServer, find_named
from voxline.pipelines.config.run_config import RunConfig

EXPERIMENT = "voxline"


@dataclass(frozen=True)
class PipelineVersion:
    """A compiled pipeline on the server."""

    pipeline_id: str
    version_id: str
    pipeline: str
    name: str
    uploaded: bool
    """Whether it was now; else the same content had been before."""


@dataclass(frozen=True)
class CompiledPipeline:
    """What a config compiles to, and the names that it has on a server."""

    text: bytes
    pipeline: str
    version: str

    @classmethod
    def of(cls, config: RunConfig) -> "CompiledPipeline":
        """Raises:
        SettingsError: the pipeline takes a value that the config does not give, such as `store`.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pipeline.yaml"
            compile_pipeline(config, file)
            text = file.read_bytes()
        _check_required_parameters(text, config)
        # Names of Kubernetes objects: a server may keep pipelines as such.
        family = f"voxline-{config.pipeline}"
        name = re.sub(r"[^a-z0-9]+", "-", f"{family}-{config.name}".lower()).strip("-")
        return cls(text, name if config.name != config.pipeline else family, _version_name(name, text))


def upload_version(cluster: KfpServer, compiled: CompiledPipeline) -> PipelineVersion:
    """The version of that content; the pipeline and the version are created where they are missing."""
    pipelines, uploads = cluster.client.pipelines, cluster.client.pipeline_uploads
    namespace = cluster.namespace

    def create_pipeline() -> Any:
        # Not `upload_pipeline`: that one would name its first version after the pipeline, and not by its content.
        wanted = kfp_server_api.V2beta1Pipeline(
            name=compiled.pipeline,
            display_name=compiled.pipeline,
            namespace=namespace,
            description="Made by `voxline submit`; a version for each content.",
        )
        return pipelines.pipeline_service_create_pipeline(wanted)

    pipeline = cluster.calls.once(
        lambda: find_named(
            pipelines.pipeline_service_list_pipelines, "pipelines", compiled.pipeline, namespace=namespace or ""
        ),
        create_pipeline,
    )
    created = []

    def upload() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pipeline.yaml"
            file.write_bytes(compiled.text)
            created.append(True)
            return uploads.upload_pipeline_version(str(file), name=compiled.version, pipelineid=pipeline.pipeline_id)

    version = cluster.calls.once(
        lambda: find_named(
            lambda **asked: pipelines.pipeline_service_list_pipeline_versions(pipeline.pipeline_id, **asked),
            "pipeline_versions",
            compiled.version,
        ),
        upload,
    )
    return PipelineVersion(
        pipeline.pipeline_id, version.pipeline_version_id, compiled.pipeline, compiled.version, bool(created)
    )


def get_experiment_id(cluster: KfpServer, name: str) -> str:
    """The experiment of that name, created where it is missing."""
    experiments, namespace = cluster.client.experiments, cluster.namespace
    wanted = kfp_server_api.V2beta1Experiment(display_name=name, namespace=namespace)
    found = cluster.calls.once(
        lambda: find_named(
            experiments.experiment_service_list_experiments, "experiments", name, namespace=namespace or ""
        ),
        lambda: experiments.experiment_service_create_experiment(wanted),
    )
    return str(found.experiment_id)


def new_run_name(config: RunConfig) -> str:
    """A name that no other run has: an answer that was lost is found again by it."""
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
    """Starts a run of a version, once; the run's id."""
    runs = cluster.client.runs
    experiment_ = get_experiment_id(cluster, experiment)
    wanted = kfp_server_api.V2beta1Run(
        display_name=name,
        experiment_id=experiment_,
        pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
            pipeline_id=version.pipeline_id, pipeline_version_id=version.version_id
        ),
        runtime_config=kfp_server_api.V2beta1RuntimeConfig(parameters={}, pipeline_root=pipeline_root or None),
        service_account=service_account or None,
    )
    run = cluster.calls.once(
        lambda: find_named(runs.run_service_list_runs, "runs", name, experiment_id=experiment_),
        lambda: runs.run_service_create_run(wanted),
    )
    return str(run.run_id)


def _version_name(pipeline: str, text: bytes) -> str:
    return f"{pipeline}-{hashlib.sha256(text).hexdigest()[:12]}"


def _check_required_parameters(text: bytes, config: RunConfig) -> None:
    document = next(iter(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))))
    parameters = document["root"].get("inputDefinitions", {}).get("parameters", {})
    missing = [
        name
        for name, parameter in parameters.items()
        if "defaultValue" not in parameter and not parameter.get("isOptional")
    ]
    if missing:
        given = " ".join(f"--set {name}=gs://bucket/{name}" for name in missing)
        raise SettingsError(
            f"{config.name}: a cluster must be told where these lie: {', '.join(missing)}; "
            f"give them in the config, or by {given}"
        )
