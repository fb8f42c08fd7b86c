"""Exported models, and how they are published."""

import json
from pathlib import Path

from tests.tone_asr_model import minimal_model_json
from voxline.inference.saved_model import model_digest
from voxline.registry.registry import Registry


def exported(folder: Path, content: str) -> Path:
    """Writes files with the names of an exported model's; the registry does not read them."""
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    (folder / "variables" / "variables.index").write_text(content)
    (folder / "model.json").write_text(json.dumps(minimal_model_json("asr", "asr")))
    return folder


def publish(registry: Registry, model: Path) -> int:
    with (
        registry.locked(),
        registry.publishing(model, model_digest(model), "push", metrics={"wer": 0.25}) as (version, incoming),
    ):
        (incoming / "model_card.md").write_text(f"# version {version}")
    return version


def served(registry: Registry) -> str:
    version = registry.in_service()
    assert version is not None
    return (registry.path(version) / "saved_model.pb").read_text()
