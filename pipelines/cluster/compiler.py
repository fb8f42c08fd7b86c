"""From a graph to the IR YAML that a Kubeflow cluster takes; the only place that knows graphs by name."""

import functools
import importlib
import math
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError
from voxline.pipelines.config.cluster import ClusterSettings
from voxline.pipelines.config.keys import get_key
from voxline.pipelines.config.load import PATH_KEYS
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.kfp_graph import pipeline_arguments
from voxline.store.objects import is_remote


def load_pipeline(name: str) -> Any:
    """The KFP pipeline of that name: the function of that name in the module of that name."""
    return getattr(importlib.import_module(f"voxline.pipelines.{name}"), name)


def compile_pipeline(config: RunConfig, output: Path) -> None:
    """Writes the IR YAML; the config's values become the defaults of the form in the UI.

    A store and a registry that the config does not name stay without a default: whoever starts the
    pipeline on a cluster must say where these lie.

    Raises:
      SettingsError: the output is no `.yaml`.
    """
    if output.suffix != ".yaml" or output.is_dir():
        raise SettingsError(f"--output {output}: a file whose name ends in .yaml is accepted")

    from kfp import compiler

    pipeline = pipeline_with_placement(config.pipeline, config.cluster)
    arguments = pipeline_arguments(config.plain(), list(pipeline.component_spec.inputs))
    given = {name: value for name, value in arguments.items() if value != ""}
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler.Compiler().compile(pipeline, str(output), pipeline_parameters=given)


def unmounted_paths(config: RunConfig) -> list[str]:
    """A line for each path of the config that lies on no volume of its cluster's: pods would not see it."""
    paths = {key: str(get_key(config.plain(), key) or "") for key in PATH_KEYS}
    return [
        f"{key} is {path}, and no claim of cluster.claims is mounted there: pods will not see it. Give a gs:// "
        "address, a path on a claim, or another one in the form when the run is started"
        for key, path in paths.items()
        if path and not is_remote(path) and not config.cluster.mounts(path)
    ]


def pipeline_with_placement(name: str, cluster: ClusterSettings) -> Any:
    """The pipeline of that name, each task of it told what to ask of the cluster."""
    from kfp import dsl
    from kfp.dsl.pipeline_context import Pipeline

    from voxline.pipelines.cluster.placement import apply_placement

    graph = load_pipeline(name)

    @functools.wraps(graph.pipeline_func)
    def placed(*arguments: Any, **named: Any) -> None:
        graph.pipeline_func(*arguments, **named)
        for step, task in Pipeline.get_default_pipeline().tasks.items():
            apply_placement(task, step, name, cluster)

    config = dsl.PipelineConfig(
        active_deadline_seconds=math.ceil(cluster.deadline_hours * 3600) or None,
        ttl_seconds_after_finished=math.ceil(cluster.kept_days * 86400) or None,
    )
    decorate = dsl.pipeline(name=graph.name, description=graph.description, pipeline_config=config)
    return decorate(placed)
