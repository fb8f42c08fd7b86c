"""From a graph to the IR YAML that a Kubeflow cluster takes; the only place that knows graphs by name."""

import importlib
from pathlib import Path
from typing import Any

from components.speech.errors import SettingsError
from pipelines.arguments import pipeline_arguments
from pipelines.run_config import RunConfig


def pipeline_named(name: str) -> Any:
    """The KFP pipeline of that name: the function of that name in the module of that name."""
    return getattr(importlib.import_module(f"pipelines.{name}"), name)


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

    pipeline = pipeline_named(config.pipeline)
    arguments = pipeline_arguments(config.plain(), list(pipeline.component_spec.inputs))
    given = {name: value for name, value in arguments.items() if value != ""}
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler.Compiler().compile(pipeline, str(output), pipeline_parameters=given)
