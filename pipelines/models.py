"""The registry as the command shows it, and which model a person means by a folder."""

import dataclasses
from pathlib import Path

from components.speech.errors import WorkError
from components.speech.registry import Change, Registry, models


def table_of_models(root: Path) -> list[str]:
    """A line for each model: its name, the version in service, its error rate, since when."""
    lines = []
    for name in models(root):
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None:
            lines.append(f"{name}  {_told(registry.change(version))}  (of {len(registry.versions())} versions)")
    return lines or [f"{root}: no model was pushed here yet"]


def journal_of(root: Path, model: str) -> list[str]:
    """A line for each change of a model, oldest first; the version in service is marked."""
    registry = _known(root, model)
    serving = registry.in_service()
    return [
        f"{'▸' if change.version == serving else ' '} {_told(change)}" + (f"  {change.note}" if change.note else "")
        for change in registry.journal()
    ]


def details_of(root: Path, model: str, version: int) -> list[str]:
    """All that is known of one version."""
    registry = _known(root, model)
    values = dataclasses.asdict(registry.change(version))
    shown = [f"{name:<10}{value}" for name, value in values.items() if value not in (None, "")]
    return [f"{'folder':<10}{registry.path(version)}", *shown]


def roll_back(root: Path, model: str, to: int | None, note: str) -> str:
    """Puts an older version back into service, under a new number."""
    change = _known(root, model).rollback(to, note)
    return f"{model}: version {change.version} is in service, the same model as version {change.copy_of}"


def model_folder(folder: Path) -> Path:
    """The exported model that a folder means: of a registry's model, the version in service."""
    folder = folder.absolute()
    if folder.is_dir() and not (folder / "saved_model.pb").exists() and not (folder / "model").exists():
        registry = Registry(folder.parent, folder.name)
        version = registry.in_service()
        if version is not None:
            return registry.path(version)
    return folder


def _known(root: Path, model: str) -> Registry:
    if model not in models(root):
        raise WorkError(f"{root}: no model {model!r} here; there: {', '.join(models(root)) or 'none'}")
    return Registry(root, model)


def _told(change: Change) -> str:
    wer = "" if change.wer is None else f"  WER {change.wer:.2%}"
    origin = "" if change.copy_of is None else f" of version {change.copy_of}"
    return f"version {change.version}  {change.at}  {change.action}{origin}{wer}"
