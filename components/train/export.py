"""Writing an exported model: a SavedModel whose signatures a family makes, and `model.json` about it.

model/saved_model.pb, variables/   the signatures
model/…                            what a family puts beside them
model/model.json                   alphabet, features, settings, dataset, provenance
"""

import importlib.metadata
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from voxline.components.train.settings import TrainSettings
from voxline.data.dataset import Dataset
from voxline.store.files import write_json

MODEL_JSON = "model.json"
PACKAGES = ("voxline", "tensorflow", "keras", "numpy")
REVISION_VARIABLE = "VOXLINE_REVISION"
"""Names the source's git revision where no repository is at hand, as in an image."""


def write_exported(
    folder: Path,
    module: tf.Module,
    signatures: dict[str, Any],
    about: dict[str, Any],
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes the SavedModel, files beside it by their names, and what is said about it; whole or not at all."""
    for old in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(old, ignore_errors=True)
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
    tf.saved_model.save(module, str(unfinished), signatures=signatures)
    for name, content in beside.items():
        (unfinished / name).write_bytes(content)
    write_json(unfinished / MODEL_JSON, about)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(unfinished, folder)


def model_metadata(kind: str, settings: TrainSettings, dataset: Dataset, trained: dict[str, Any]) -> dict[str, Any]:
    """What stands in every `model.json`.

    Args:
      trained: what it says of the training: steps, figures of the best look, ….
    """
    return {
        "name": settings.name,
        "family": settings.family,
        "kind": kind,
        "alphabet": dataset.alphabet.symbols,
        "sample_rate": dataset.features.sample_rate,
        "features": dataset.features.plain(),
        "settings": settings.plain(),
        "dataset": {
            "key": dataset.key,
            "fingerprint": dataset.fingerprint,
            "counts": dataset.counts,
            "seconds": dataset.seconds,
        },
        "provenance": {"git_revision": git_revision(), "versions": versions(), "trained": trained},
    }


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def git_revision() -> str:
    """The revision of this source: of its repository, or as the environment says; else "unknown"."""
    named = os.environ.get(REVISION_VARIABLE, "")
    if named:
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"
