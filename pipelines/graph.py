"""The steps of every graph by name: their order, and whose output each one takes."""

from voxline.errors import SettingsError

Graph = dict[str, dict[str, str]]
"""Step → its inputs → the step that makes each."""

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


def check_pipeline(name: str) -> None:
    """Refuses a pipeline that is not there.

    Raises:
      SettingsError: naming those that are.
    """
    if name not in GRAPHS:
        raise SettingsError(f"pipeline {name!r}: accepted: {', '.join(GRAPHS)}")
