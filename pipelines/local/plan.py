"""`voxline run --dry-run`: which steps of a run would do work, which would be reused, and why.

Each step looks up its own output with the code that it runs with, and stops where the work would begin. What a step
would write is not known before it runs, so for the steps after it only their settings can be compared.
"""

import contextlib
import dataclasses
import io
from collections.abc import Collection
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
    """What a run would do with a step.

    Attributes:
      action: "run"; "reuse"; or "depends": on what the steps before it write.
      reason: in words.
      output: location of the output that is reused; else empty.
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
    config = config.with_default_folders(run_dir)
    optional = config.optional_steps()
    graph = graph_of(config.pipeline, optional)
    planned: dict[str, PlannedStep] = {}
    for name in steps_until(config.pipeline, until, optional):
        inputs = {kind: planned[producer] for kind, producer in graph[name].items()}
        after = STEPS[name].after
        before = [*graph[name].values(), *([after] if after else [])]
        planned[name] = _plan_step(name, config, run_dir, inputs, name in force)
        changed = next((one for one in before if planned[one].action != "reuse"), "")
        if changed and planned[name].action == "reuse" and after:
            planned[name] = dataclasses.replace(planned[name], reason=f"unchanged, once {changed} has passed")
    return list(planned.values())


def _plan_step(
    name: str, config: RunConfig, run_dir: Path, inputs: dict[str, PlannedStep], forced: bool
) -> PlannedStep:
    last = _last_done(run_dir, name)
    differences = _changed_settings(last, _effective_settings(config.section(name))) if last else []
    waits_for = [step.name for step in inputs.values() if step.action != "reuse"]
    if name == "language" and (why := _text_refusal(config, inputs)):
        return PlannedStep(name, "run", f"it would fail: {why}")
    if STEPS[name].never_reused:
        return PlannedStep(name, "run", STEPS[name].never_reused)
    if forced:
        return PlannedStep(name, "run", "--force")
    if waits_for:
        if differences:
            return PlannedStep(name, "run", "; ".join(differences))
        if last is None:
            return PlannedStep(name, "run", "it has no output in this run's folder yet")
        return PlannedStep(name, "depends", f"reused if {' and '.join(waits_for)} writes what it wrote before")
    try:
        with plan_steps(), contextlib.redirect_stdout(io.StringIO()):
            output = call_step(name, config, {kind: step.output for kind, step in inputs.items()})
    except StepWouldRunError as found:
        return PlannedStep(name, "run", _reason(found, name, last, differences))
    except TransientError:
        raise
    except WorkError as error:
        return PlannedStep(name, "run", f"it would fail: {error}")
    finished = read_done(output.folder).get("finished", "") if open_store(output.uri).local_path().is_dir() else ""
    return PlannedStep(name, "reuse", f"unchanged{' since ' if finished else ''}{finished}", output.uri)


def _effective_settings(settings: Settings) -> Settings:
    """The settings that a step's marker has: a training that starts from a model has other rates, and the manifest of
    several corpora has none, as each corpus has its own.
    """
    if isinstance(settings, CorporaSettings) and settings.corpora:
        return Settings()
    if isinstance(settings, TrainSettings) and settings.start.model:
        return settings.started_from(settings.start.model)
    return settings


def _text_refusal(config: RunConfig, inputs: dict[str, PlannedStep]) -> str:
    """Why training would refuse the text of the language model, as far as the transcripts are known; empty if not."""
    from voxline.data.language_text import check_language_text
    from voxline.data.manifest import read_manifest

    manifest = inputs["manifest"].output
    if not manifest:
        return ""
    try:
        texts = ((one.split, one.text) for one in read_manifest(manifest))
        settings: Any = config.section("language")
        check_language_text(settings.text_settings(), texts)
    except WorkError as error:
        return str(error)
    return ""


def _last_done(run_dir: Path, step: str) -> dict[str, Any] | None:
    """The marker of a step's last output in this run's folder."""
    uri = last_output(run_dir, step)
    with contextlib.suppress(VoxlineError):
        return read_done(open_store(uri).local_path()) if uri else None
    return None


def _reason(found: StepWouldRunError, name: str, last: dict[str, Any] | None, differences: list[str]) -> str:
    if found.damage:
        return found.damage
    if found.step != name:
        if name == "language":
            return "its text was not made into n-grams yet"
        return f"the corpus is not unpacked or downloaded yet ({found.step})"
    if last is None:
        return "it has no output in this run's folder yet"
    if found.named_by["revision"] != last.get("revision"):
        differences = [*differences, f"this version of Voxline does {name} differently"]
    before, now = last.get("inputs", {}), found.named_by["inputs"]
    inputs = [f"another {key}" for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    return "; ".join([*differences, *inputs]) or "its output is not in this store"


def _changed_settings(last: dict[str, Any], settings: Settings) -> list[str]:
    """Settings that differ from those of the last output, of those that are part of its key."""
    changes = settings.changed_from(last.get("settings", {}))
    changed = [f"{key} {before} → {now}" for key, before, now in changes]
    return [*changed[:MAX_REASONS], *([f"{len(changed) - MAX_REASONS} more"] if len(changed) > MAX_REASONS else [])]
