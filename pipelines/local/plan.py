"""`voxline run --dry-run`: which steps of a run would do work, which would be reused, and why.

Each step looks up its own output with the code that it runs with, and stops where the work would begin. What a step
would write is not known before it runs, so for the steps after it only their settings can be compared.
"""

import contextlib
import dataclasses
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from voxline.components.ingest.settings import CorporaSettings
from voxline.errors import TransientError, VoxlineError, WorkError
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import graph_of, steps_until
from voxline.pipelines.local.single_step import call_step, last_output
from voxline.pipelines.steps import STEPS
from voxline.settings import Settings
from voxline.store.finished import read_done
from voxline.store.objects import open_store
from voxline.store.step_cache import StepWouldRunError, plan_steps
from voxline.training.settings import TrainSettings

MAX_REASONS = 3


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """A step as a run would treat it.

    Attributes:
      action: "run"; "reuse"; or "depends": on what the steps before it write.
      reason: in words.
      output: location of the output that is reused; empty if it is not there yet.
    """

    name: str
    action: Literal["run", "reuse", "depends"]
    reason: str
    output: str = ""

    @property
    def line(self) -> str:
        return f"  {self.name:<10} {self.action:<8} {self.reason}"


def plan_run(config: RunConfig, run_dir: Path, *, until: str = "", force: Collection[str] = ()) -> list[PlannedStep]:
    """Plans a run. Nothing is written.

    Args:
      until: the last step; empty: the graph's.
      force: steps that are done again.

    Raises:
      SettingsError: the config cannot be run: the corpus does not exist, say.
      TransientError: a bucket does not answer.
    """
    run_dir = run_dir.absolute()
    config = config.for_this_machine(run_dir)
    optional = config.optional_steps()
    graph = graph_of(config.pipeline, optional)
    planned: dict[str, PlannedStep] = {}

    # In the graph's order, so that the plans of a step's inputs exist before its own.
    for name in steps_until(config.pipeline, until, optional):
        inputs = {kind: planned[producer] for kind, producer in graph[name].items()}
        planned[name] = _plan_step(name, config, run_dir, inputs, name in force)

        # A step that only waits for another one (extract for validate) is reused, but not before that one has passed.
        after = STEPS[name].after
        predecessors = [*graph[name].values(), *([after] if after else [])]
        changed = next((predecessor for predecessor in predecessors if planned[predecessor].action != "reuse"), "")
        if changed and planned[name].action == "reuse" and after:
            planned[name] = dataclasses.replace(planned[name], reason=f"unchanged, once {changed} has passed")
    return list(planned.values())


def _plan_step(
    name: str, config: RunConfig, run_dir: Path, inputs: dict[str, PlannedStep], forced: bool
) -> PlannedStep:
    """Plans a step whose inputs are planned."""
    last = _last_done(run_dir, name)
    differences = _changed_settings(last, _effective_settings(name, config.section(name))) if last else []

    # Reasons that need no look at the store, the worst news first.
    if refusal := _refusal(name, config, inputs):
        return PlannedStep(name, "run", f"it would fail: {refusal}")
    if STEPS[name].never_reused:
        return PlannedStep(name, "run", STEPS[name].never_reused)
    if forced:
        return PlannedStep(name, "run", "--force")

    # Without its inputs the step's key is unknown: changed settings make it run, else it depends on what they will be.
    waits_for = [step.name for step in inputs.values() if not step.output]
    if waits_for:
        if differences:
            return PlannedStep(name, "run", "; ".join(differences))
        if last is None:
            return PlannedStep(name, "run", "it has no output in this run's folder yet")
        return PlannedStep(name, "depends", f"reused if {' and '.join(waits_for)} writes what it wrote before")

    # The step itself looks its output up, with the code that a run calls; its progress lines are no part of a plan.
    try:
        with plan_steps(), contextlib.redirect_stdout(io.StringIO()):
            output = call_step(name, config, {kind: step.output for kind, step in inputs.items()})
    except StepWouldRunError as missing_work:
        if missing_work.earlier and missing_work.step == name:  # hours of work that a run does not repeat
            return PlannedStep(name, "reuse", f"takes over what an earlier Voxline wrote: {missing_work.earlier}")
        return PlannedStep(name, "run", _reason(missing_work, name, last, differences))
    except TransientError:
        raise
    except WorkError as error:
        return PlannedStep(name, "run", f"it would fail: {error}")

    # The marker of an output in a bucket is not downloaded for the sake of a date.
    finished = ""
    if open_store(output.uri).local_path().is_dir():
        with contextlib.suppress(WorkError):  # a published version has no marker
            finished = read_done(output.folder).get("finished", "")
    return PlannedStep(name, "reuse", f"unchanged{' since ' if finished else ''}{finished}", output.uri)


def _effective_settings(name: str, settings: Settings) -> Settings:
    """The settings that a step's marker has: a training that starts from a model has other rates, the manifest of
    several corpora has none, as each corpus has its own, and export has a few of train's.
    """
    if isinstance(settings, TrainSettings) and name == "export":
        return settings.export_form()
    if isinstance(settings, CorporaSettings) and settings.are_merged:
        return Settings()
    if isinstance(settings, TrainSettings) and settings.start.model:
        return settings.started_from(settings.start.model)
    return settings


def _refusal(name: str, config: RunConfig, inputs: Mapping[str, PlannedStep]) -> str:
    """The message with which a step refuses inputs that exist already; empty if it accepts them, or they do not exist.

    A run would say the same, but hours later: after the training that the step waits for.
    """
    step = STEPS[name]
    outputs = {kind: inputs[kind].output for kind in step.checks}
    if not outputs or not all(outputs.values()):
        return ""
    try:
        step.check_inputs(outputs, config.section(name))
    except WorkError as error:
        return str(error)
    return ""


def _last_done(run_dir: Path, step: str) -> dict[str, Any] | None:
    """The marker of a step's last output in this run's folder."""
    uri = last_output(run_dir, step)
    with contextlib.suppress(VoxlineError):
        return read_done(open_store(uri).local_path()) if uri else None
    return None


def _reason(missing_work: StepWouldRunError, name: str, last: dict[str, Any] | None, differences: list[str]) -> str:
    """Explains why a step has no finished output.

    Args:
      last: the marker of its last output in this run's folder.
      differences: settings that differ from those in the marker.
    """
    if missing_work.damage:
        return missing_work.damage

    # A step may make something first that has a key of its own.
    if missing_work.step != name:
        return STEPS[name].preparation.format(step=missing_work.step)
    if last is None:
        return "it has no output in this run's folder yet"

    # The same three parts as the key: settings, revision, inputs.
    if missing_work.named_by["revision"] != last.get("revision"):
        differences = [*differences, f"this version of Voxline does {name} differently"]
    last_inputs = last.get("inputs", {})
    inputs = missing_work.named_by["inputs"]
    changed = [key for key in sorted({*last_inputs, *inputs}) if last_inputs.get(key) != inputs.get(key)]
    return "; ".join([*differences, *(f"another {key}" for key in changed)]) or "its output is not in this store"


def _changed_settings(last: dict[str, Any], settings: Settings) -> list[str]:
    """Settings that differ from those of the last output, of those that are part of its key."""
    changes = settings.changed_from(last.get("settings", {}))
    changed = [f"{key} {before} → {after}" for key, before, after in changes]
    return [*changed[:MAX_REASONS], *([f"{len(changed) - MAX_REASONS} more"] if len(changed) > MAX_REASONS else [])]
