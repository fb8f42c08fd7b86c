"""Writes an exported model: a SavedModel with the signatures of its family, and `model.json`.

model/saved_model.pb, variables/   the signatures
model/…                            further files of a family
model/model.json                   alphabet, features, settings, dataset, provenance
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from voxline.components.train.settings import TrainSettings
from voxline.components.train.weight_names import weight_names
from voxline.data.dataset import Dataset
from voxline.inference.saved_model import MODEL_JSON
from voxline.provenance import git_revision, package_versions
from voxline.store.files import write_json

START = "start"
PACKAGES = ("voxline", "tensorflow", "keras", "numpy")


def write_exported(
    folder: Path,
    module: tf.Module,
    signatures: dict[str, Any],
    metadata: dict[str, Any],
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes the SavedModel, further files by name, and model.json; whole or not at all."""
    for leftover in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
    tf.saved_model.save(module, str(unfinished), signatures=signatures)
    for name, content in files.items():
        (unfinished / name).write_bytes(content)
    write_json(unfinished / MODEL_JSON, metadata)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(unfinished, folder)


def model_metadata(
    kind: str, settings: TrainSettings, dataset: Dataset, training: dict[str, Any], model: Any
) -> dict[str, Any]:
    """What every model.json holds.

    Args:
      training: what it says about the training: steps, metrics of the best validation, …; its `start`, the ancestors of
        the model, becomes a key of its own.
      model: a Keras model with the weights of the export, in their order.
    """
    trained = {name: value for name, value in training.items() if name != START}
    return {
        **({START: training[START]} if START in training else {}),
        "name": settings.name,
        "family": settings.family,
        "kind": kind,
        "alphabet": dataset.alphabet.symbols,
        "sample_rate": dataset.features.sample_rate,
        "features": dataset.features.plain(),
        "settings": settings.plain(),
        "weights": weight_names(model),
        "normalization": {"mean": list(dataset.mean), "deviation": list(dataset.deviation)},
        "dataset": {
            "key": dataset.key,
            "fingerprint": dataset.fingerprint,
            "counts": dataset.counts,
            "seconds": dataset.seconds,
        },
        "provenance": {
            "git_revision": git_revision() or "unknown",
            "versions": package_versions(PACKAGES),
            "trained": trained,
        },
    }
