"""Runs one step in this process, with the same `run` and the same config as in a graph."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxline.errors import SettingsError, WorkError
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import graph_of
from voxline.pipelines.steps import STEPS
from voxline.store.files import read_json, users_umask, write_json
from voxline.store.step_cache import StepOutput

LAST_OUTPUTS = "last_outputs.json"


def make_run_dir(run_dir: Path) -> Path:
    """Makes the run's folder if it does not exist. Returns it as an absolute path.

    Raises:
      SettingsError: it is not a folder, or cannot be made.
    """
    run_dir = run_dir.absolute()
    try:
        with users_umask():  # a registry in it may be for others
            run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--run-dir {run_dir}: cannot be made ({error.strerror}); give a folder that you can write to"
        ) from None
    return run_dir


def record_output(run_dir: Path, step: str, uri: str) -> None:
    """Notes the location of a step's output as the step's last one in this run."""
    file = run_dir / LAST_OUTPUTS
    outputs = read_json(file) if file.is_file() else {}
    write_json(file, {**outputs, step: uri})


def last_output(run_dir: Path, step: str) -> str | None:
    """The location of a step's last output in this run; None if there is none."""
    file = run_dir / LAST_OUTPUTS
    uri: str | None = read_json(file).get(step) if file.is_file() else None
    return uri


def run_step(name: str, config: RunConfig, run_dir: Path, locations: dict[str, str]) -> StepOutput:
    """Runs a step on the given inputs; inputs that are not given default to the last outputs in `run_dir`.

    Args:
      locations: of inputs, by name (see `voxline.pipelines.graphs.graph_of`).

    Raises:
      SettingsError: the step is unknown, or does not take one of the inputs.
      WorkError: an input is neither given nor available; or the step failed.
    """
    steps = graph_of(config.pipeline, config.optional_steps())
    if name not in steps:
        raise SettingsError(f"step {name!r}: accepted: {', '.join(steps)}")

    # An input that the step ignores is refused: the user means another step.
    needed = steps[name]
    for extra in locations.keys() - needed.keys():
        takes = ", ".join(f"--{name}" for name in needed) or "no input; it reads corpus.uri"
        raise SettingsError(f"--{extra}: {name} does not take it; it takes {takes}")

    # All inputs are known before the run's folder is made, so that a mistake leaves no empty folder.
    run_dir = run_dir.absolute()
    config = config.for_this_machine(run_dir)
    inputs = {
        kind: locations.get(kind) or _last_output(run_dir, kind, producer, name) for kind, producer in needed.items()
    }
    make_run_dir(run_dir)
    output = call_step(name, config, inputs)
    record_output(run_dir, name, output.uri)
    return output


def call_step(name: str, config: RunConfig, inputs: Mapping[str, str]) -> StepOutput:
    """Calls the `run` function of a step.

    Args:
      config: with all locations set.
      inputs: their locations by name.
    """
    run = STEPS[name].function()

    # Each step takes some of these, by the names of its parameters.
    values: dict[str, Any] = {
        **inputs,
        "store": config.store,
        "registry": config.registry,
        "datasets": getattr(config, "datasets", ""),
        "model_name": config.model,
        "settings": config.section(name),
    }
    parameters = inspect.signature(run).parameters
    output: StepOutput = run(**{key: value for key, value in values.items() if key in parameters})
    return output


def _last_output(run_dir: Path, kind: str, producer: str, step: str) -> str:
    """The last output of the step that produces an input."""
    uri = last_output(run_dir, producer)
    if uri is None:
        raise WorkError(
            f"{step}: --{kind} is not given, and {producer} has no output in {run_dir} yet; "
            f"run `voxline step {producer}` first, or give --{kind} the folder of its output"
        )
    return uri
