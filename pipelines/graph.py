"""The steps of every graph by name: their order, and whose output each one takes."""

STEPS: dict[str, dict[str, str]] = {
    "ingest": {},
    "convert": {"manifest": "ingest"},
    "validate": {"manifest": "convert"},
    "extract": {"manifest": "convert"},
    "train": {"dataset": "extract"},
    "evaluate": {"model": "train", "manifest": "convert"},
    "push": {"model": "train", "evaluation": "evaluate"},
}
"""Step → its inputs → the step that makes each."""
