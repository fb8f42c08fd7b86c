"""The steps of every graph by name: their order, and whose output each one takes."""

from voxline.errors import SettingsError

Steps = dict[str, dict[str, str]]
"""Step → its inputs → the step that makes each."""

_TO_A_DATASET: Steps = {
    "ingest": {},
    "convert": {"manifest": "ingest"},
    "validate": {"manifest": "convert"},
    "extract": {"manifest": "convert"},
}
_TO_A_MODEL: Steps = {
    **_TO_A_DATASET,
    "train": {"dataset": "extract"},
    "evaluate": {"model": "train", "manifest": "convert"},
    "push": {"model": "train", "evaluation": "evaluate"},
}

STEPS: dict[str, Steps] = {
    "asr": _TO_A_MODEL,
    "tts": _TO_A_MODEL,
    "refresh": {**_TO_A_DATASET, "publish": {"dataset": "extract"}},
}
"""Pipeline → its steps."""

PIPELINES = tuple(STEPS)


def check_pipeline(name: str) -> None:
    """Refuses a pipeline that is not there.

    Raises:
      SettingsError: naming those that are.
    """
    if name not in STEPS:
        raise SettingsError(f"pipeline {name!r}: accepted: {', '.join(STEPS)}")
