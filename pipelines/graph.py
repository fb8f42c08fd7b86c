"""The steps of every pipeline by name: their order, and whose output each one takes."""

import importlib
from typing import Any

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
    "refresh": {**_DATASET_STEPS, "publish": {"dataset": "extract"}},
}
"""Pipeline → its steps."""

PIPELINES = tuple(GRAPHS)

SECTIONS = {"ingest": "corpus"}
"""Step → the section of a config that holds its settings, where that has another name."""

RUNS_AFTER = {"extract": "validate"}
"""Step → the step that must succeed first although it outputs nothing that the step takes."""


def check_pipeline(name: str) -> None:
    """Refuses an unknown pipeline.

    Raises:
      SettingsError: the message lists the pipelines.
    """
    if name not in GRAPHS:
        raise SettingsError(f"pipeline {name!r}: accepted: {', '.join(GRAPHS)}")


def load_pipeline(name: str) -> Any:
    """The KFP pipeline: the variable `name` of the module `voxline.pipelines.<name>`."""
    return getattr(importlib.import_module(f"voxline.pipelines.{name}"), name)
