"""The graph of each pipeline, on one page.

    ingest > convert > validate > extract > [publish] > [forecast] > train > [export] > evaluate > push   a family
    ingest > convert > validate > extract > [publish] > [forecast] > train > [export] > [language] > …    asr
    ingest > convert > validate > extract > publish                                                       refresh

A step in brackets is there if the config turns it on. `dataset`, which opens a published version, is in place of the
four steps that made it (`Step.replaces_steps`). `steps.py` says what each step takes and writes: an input comes
from the last step before it that outputs something of that name, so `evaluate` judges the model of `language` if the
run has that step. `kfp_graph.py` builds the KFP pipelines.
"""

from collections.abc import Collection
from typing import Any

from voxline.errors import SettingsError
from voxline.pipelines.steps import STEPS

Graph = dict[str, dict[str, str]]
"""Step → its inputs → the step that outputs each."""

_DATASET = ("ingest", "convert", "validate", "extract")

TRAINING = ("dataset", *_DATASET, "publish", "forecast", "train", "export", "evaluate", "push")
"""The pipeline of every family that has none of its own in `GRAPHS`."""

GRAPHS = {
    "asr": ("dataset", *_DATASET, "publish", "forecast", "train", "export", "language", "evaluate", "push"),
    "refresh": (*_DATASET, "publish"),
}
"""Pipeline → its steps."""

DESCRIPTIONS = {"refresh": "Publishes the current content of a corpus as a version of a dataset, without training."}
"""Pipelines that train nothing; the others have `Family.description`."""

DEFAULT_PIPELINE = "asr"
"""The pipeline of a config that names none."""


def pipeline_names() -> list[str]:
    """Every pipeline: one for each family that can be evaluated and pushed, and those that train nothing."""
    from voxline.families.family import family_names, find_family  # not at the top: a refresh needs no family

    # A family whose models are not evaluated and pushed by themselves has no pipeline.
    trained = [name for name in family_names() if find_family(name).has_pipeline]
    return [*trained, *DESCRIPTIONS]


def is_pipeline(name: Any) -> bool:
    """Returns whether a pipeline has this name. Families are imported only where it may be that of one."""
    return name in list(DESCRIPTIONS) or name in pipeline_names()  # a config may hold a list in place of a name


def check_pipeline(name: str) -> None:
    """Refuses an unknown pipeline.

    Raises:
      SettingsError: the message lists the pipelines.
    """
    if not is_pipeline(name):
        raise SettingsError(f"pipeline {name!r}: accepted: {', '.join(pipeline_names())}")


def steps_of(pipeline: str) -> tuple[str, ...]:
    """All steps of a pipeline in order, those that a config turns on included."""
    return GRAPHS.get(pipeline, TRAINING)


def steps_by_config(pipeline: str) -> list[str]:
    """The steps of a pipeline that a run has only if its config turns them on: optional, or in place of others."""
    *steps, _ = steps_of(pipeline)  # the last one is what the pipeline is for
    return [step for step in steps if STEPS[step].off]


def optional_steps(pipeline: str) -> list[str]:
    """The steps that a config may add to those of every run."""
    return [step for step in steps_by_config(pipeline) if not STEPS[step].replaces_steps]


def graph_of(pipeline: str, optional: Collection[str] = ()) -> Graph:
    """The steps of a pipeline, with those of `steps_by_config` that are named.

    >>> graph_of("asr", ["language"])["evaluate"]
    {'model': 'language', 'manifest': 'convert'}
    """
    graph: Graph = {}
    producers: dict[str, str] = {}  # kind of output → the last step so far that has it
    replaced = {step for name in optional for step in STEPS[name].replaces_steps}
    left_out = replaced | set(steps_by_config(pipeline)).difference(optional)
    for name in steps_of(pipeline):
        step = STEPS[name]
        if name in left_out:
            continue

        # Before the step's own outputs: `convert` takes the manifest of `ingest`, and gives another one.
        graph[name] = {kind: producers[kind] for kind in step.inputs}
        producers |= dict.fromkeys(step.outputs, name)
    return graph


def steps_until(pipeline: str, last: str = "", optional: Collection[str] = ()) -> list[str]:
    """The steps of a pipeline in order, up to one of them; empty: all.

    >>> steps_until("asr", "convert")
    ['ingest', 'convert']

    Args:
      optional: the optional steps that the run has.

    Raises:
      SettingsError: the pipeline does not have the step.
    """
    steps = list(graph_of(pipeline, optional))
    if last and last not in steps:
        raise SettingsError(f"--until {last!r}: accepted: {', '.join(steps)}")
    return steps[: steps.index(last) + 1] if last else steps
