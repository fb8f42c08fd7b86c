"""The steps of every pipeline by name: their order, and whose output each one takes."""

from collections.abc import Collection

from voxline.errors import SettingsError

Graph = dict[str, dict[str, str]]
"""Step → its inputs → the step that outputs each."""

_DATASET_STEPS: Graph = {
    "ingest": {},
    "convert": {"manifest": "ingest"},
    "validate": {"manifest": "convert"},
    "extract": {"manifest": "convert"},
}
_MODEL_STEPS: Graph = {
    **_DATASET_STEPS,
    "train": {"dataset": "extract"},
    "evaluate": {"model": "train", "manifest": "convert"},
    "push": {"model": "train", "evaluation": "evaluate"},
}

GRAPHS: dict[str, Graph] = {
    "asr": _MODEL_STEPS,
    "tts": _MODEL_STEPS,
    "vocoder": _MODEL_STEPS,
    "intents": _MODEL_STEPS,
    "refresh": {**_DATASET_STEPS, "publish": {"dataset": "extract"}},
}
"""Pipeline → its steps."""

OPTIONAL_STEPS: dict[str, tuple[str, dict[str, str]]] = {
    "forecast": ("extract", {"dataset": "extract", "validation": "validate"}),
    "language": ("train", {"model": "train", "manifest": "convert"}),
}
"""Steps that a run has only if its config turns them on → the step that they follow, and their inputs. One that
outputs a model takes the place of the step that it follows."""

DECIDES = "Output"
"""Output parameter of a step: "yes", or "no" if the steps after it are not to run. kfp.local finds no other name."""

PIPELINES = tuple(GRAPHS)

SECTIONS = {"ingest": "corpus"}
"""Step → the section of a config that holds its settings, where that has another name."""

RUNS_AFTER = {"extract": "validate"}
"""Step → the step that must accept its input first, although the step reads nothing that it writes."""


def check_pipeline(name: str) -> None:
    """Refuses an unknown pipeline.

    Raises:
      SettingsError: the message lists the pipelines.
    """
    if name not in GRAPHS:
        raise SettingsError(f"pipeline {name!r}: accepted: {', '.join(GRAPHS)}")


def graph_of(pipeline: str, optional: Collection[str] = ()) -> Graph:
    """The steps of a pipeline, with those of `OPTIONAL_STEPS` that are named.

    >>> graph_of("asr", ["language"])["evaluate"]
    {'model': 'language', 'manifest': 'convert'}
    """
    graph: Graph = {}
    in_place_of: dict[str, str] = {}
    for step, inputs in GRAPHS[pipeline].items():
        graph[step] = {
            name: in_place_of.get(producer, producer) if name == "model" else producer
            for name, producer in inputs.items()
        }
        for extra, (after, its_inputs) in OPTIONAL_STEPS.items():
            if after == step and extra in optional:
                graph[extra] = dict(its_inputs)
                in_place_of[step] = extra
    return graph


def steps_until(pipeline: str, last: str = "", optional: Collection[str] = ()) -> list[str]:
    """The steps of a pipeline in order, up to one of them; empty: all.

    >>> steps_until("asr", "convert")
    ['ingest', 'convert']

    Args:
      optional: steps of `OPTIONAL_STEPS` that the run has.

    Raises:
      SettingsError: the pipeline does not have the step.
    """
    steps = list(graph_of(pipeline, optional))
    if last and last not in steps:
        raise SettingsError(f"--until {last!r}: accepted: {', '.join(steps)}")
    return steps[: steps.index(last) + 1] if last else steps
