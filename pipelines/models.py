"""The registry as the command shows it, and which model a person means by a folder."""

import dataclasses
from pathlib import Path

from components.speech.buckets import Bucket, is_remote
from components.speech.errors import WorkError
from components.speech.exported import BESIDE_A_MODEL
from components.speech.mirror import local
from components.speech.registry import Change, Registry, models


def table_of_models(root: Path | str) -> list[str]:
    """A line for each model: its name, the version in service, its error rate, since when."""
    lines = []
    for name in models(root):
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None:
            lines.append(f"{name}  {_told(registry.change(version))}  (of {len(registry.versions())} versions)")
    return lines or [f"{root}: no model was pushed here yet"]


def journal_of(root: Path | str, model: str) -> list[str]:
    """A line for each change of a model, oldest first; the version in service is marked."""
    registry = _known(root, model)
    serving = registry.in_service()
    return [
        f"{'▸' if change.version == serving else ' '} {_told(change)}" + (f"  {change.note}" if change.note else "")
        for change in registry.journal()
    ]


def details_of(root: Path | str, model: str, version: int) -> list[str]:
    """All that is known of one version."""
    registry = _known(root, model)
    values = dataclasses.asdict(registry.change(version))
    shown = [f"{name:<10}{value}" for name, value in values.items() if value not in (None, "")]
    return [f"{'folder':<10}{registry.path(version)}", *shown]


def roll_back(root: Path | str, model: str, to: int | None, note: str) -> str:
    """Puts an older version back into service, under a new number."""
    change = _known(root, model).rollback(to, note)
    return f"{model}: version {change.version} is in service, the same model as version {change.copy_of}"


def model_folder(place: Path | str) -> Path:
    """The exported model, on this machine, that a folder or gs://… means: of a registry's model, the one in service."""
    place = str(place) if is_remote(place) else str(Path(place).absolute())
    if not _is_exported(place):
        root, _, name = place.rstrip("/").rpartition("/")
        registry = Registry(root, name)
        version = registry.in_service()
        if version is not None:
            return registry.path(version)
    return local(place, without=BESIDE_A_MODEL)


def _is_exported(place: str) -> bool:
    """Whether it cannot be a registry's model: it is an exported one, or there is no such folder."""
    if is_remote(place):
        return any(Bucket(place).stat(name) for name in ("saved_model.pb", "model/saved_model.pb"))
    folder = Path(place)
    return not folder.is_dir() or (folder / "saved_model.pb").exists() or (folder / "model").exists()


def _known(root: Path | str, model: str) -> Registry:
    if model not in models(root):
        raise WorkError(f"{root}: no model {model!r} here; there: {', '.join(models(root)) or 'none'}")
    return Registry(root, model)


def _told(change: Change) -> str:
    wer = "" if change.wer is None else f"  WER {change.wer:.2%}"
    origin = "" if change.copy_of is None else f" of version {change.copy_of}"
    return f"version {change.version}  {change.at}  {change.action}{origin}{wer}"
