"""One step by itself, in this process: the same `run` as in a graph, with the same config."""

import importlib
from pathlib import Path
from typing import Any

from components.speech.errors import SettingsError, WorkError
from components.speech.work import Work
from pipelines.graph import STEPS
from pipelines.made import made_by, make_run_dir, remember
from pipelines.refresh_config import RefreshConfig
from pipelines.run_config import RunConfig

ORDER = ("model", "manifest", "dataset", "evaluation")
"""Inputs in the order in which every `run` takes them."""


def run_step(name: str, config: RunConfig, run_dir: Path, given: dict[str, str]) -> Work:
    """Runs a step on the inputs given, and where none is given on what was last made in `run_dir`.

    Args:
      given: input name → folder or gs://… (see `pipelines.graph.STEPS`).

    Raises:
      SettingsError: there is no such step, or it takes no such input.
      WorkError: an input is neither given nor made yet; and whatever the step raises.
    """
    steps = STEPS[config.pipeline]
    if name not in steps:
        raise SettingsError(f"step {name!r}: accepted: {', '.join(steps)}")
    needed = steps[name]
    for extra in given.keys() - needed.keys():
        takes = ", ".join(f"--{one}" for one in needed) or "no input; it reads corpus.uri"
        raise SettingsError(f"--{extra}: {name} does not take it; it takes {takes}")
    run_dir = run_dir.absolute()
    config = config.placed(run_dir)
    inputs = [given.get(one) or _made(run_dir, one, needed[one], name) for one in sorted(needed, key=ORDER.index)]
    places: list[Any] = [config.registry] if name in ("evaluate", "push") else []
    after: list[Any] = [config.datasets] if isinstance(config, RefreshConfig) and name == "publish" else []
    in_service = {"registry": config.registry, "model_name": config.model} if name == "validate" else {}
    step = importlib.import_module(f"components.{name}.step")
    make_run_dir(run_dir)
    work: Work = step.run(*inputs, *places, config.store, *after, config.section(name), **in_service)
    remember(run_dir, name, work.place)
    return work


def _made(run_dir: Path, wanted: str, maker: str, step: str) -> str:
    """What a step last made for this run."""
    place = made_by(run_dir, maker)
    if place is None:
        raise WorkError(
            f"{step}: no --{wanted} given, and {maker} has made nothing in {run_dir} yet; "
            f"run `voxline step {maker}` first, or give --{wanted} the folder of what it made"
        )
    return place
