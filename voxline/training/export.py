"""Writes an exported model: a SavedModel with the signatures of its family, and `model.json`.

model/saved_model.pb, variables/   the signatures
model/…                            further files of a family
model/model.json                   alphabet, features, settings, dataset, provenance
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.data.drafts import count_drafts
from voxline.inference.model_info import (
    DatasetInfo,
    ModelInfo,
    Normalization,
    Provenance,
    StartInfo,
    TokenizerFile,
)
from voxline.inference.saved_model import write_model_info
from voxline.provenance import git_revision, package_versions
from voxline.store.files import atomic_folder
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.training.settings import TrainSettings

START = "start"
GRAPH = "saved_model.pb"
VARIABLES = "variables/variables"
FINGERPRINT = "fingerprint.pb"
"""Files of a SavedModel."""
PACKAGES = ("voxline", "tensorflow", "keras", "numpy")


def write_exported(
    folder: Path,
    module: tf.Module,
    signatures: dict[str, Any],
    info: ModelInfo,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes the SavedModel, further files by name, and model.json; whole or not at all.

    There is no `fingerprint.pb`: it holds a random number, by which two exports of one model would have two digests.
    TensorFlow does not need it.
    """
    with atomic_folder(folder) as unfinished:
        tf.saved_model.save(module, str(unfinished), signatures=signatures)

        # A random number in it would give each export of one model another digest.
        (unfinished / FINGERPRINT).unlink(missing_ok=True)
        for name, content in files.items():
            (unfinished / name).write_bytes(content)
        write_model_info(unfinished, info)


def write_with_graph_of(
    parent: Path,
    folder: Path,
    weights: Sequence[Any],
    info: ModelInfo,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes the SavedModel of an earlier model with other weights, further files, and model.json; whole or not at all.

    A SavedModel is a graph (`saved_model.pb`) and a table of tensors; to trace and save a graph takes seconds.

    Args:
      parent: an exported model whose graph is the one that would be traced.
      weights: in their order, as `Module.weights` of the exported module names them.
    """

    # All tensors of the parent's table, with the weights replaced by name.
    reader = tf.train.load_checkpoint(str(parent / VARIABLES))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    tensors |= {f"weights/{index}/.ATTRIBUTES/VARIABLE_VALUE": value for index, value in enumerate(weights)}
    with atomic_folder(folder) as unfinished:
        (unfinished / VARIABLES).parent.mkdir(parents=True)

        # The format of `tf.train.Checkpoint`, without building the module.
        tf.raw_ops.SaveV2(
            prefix=str(unfinished / VARIABLES),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.constant(value) for value in tensors.values()],
        )
        shutil.copyfile(parent / GRAPH, unfinished / GRAPH)
        for name, content in files.items():
            (unfinished / name).write_bytes(content)
        write_model_info(unfinished, info)


def model_info(
    kind: str,
    settings: TrainSettings,
    dataset: Dataset,
    training: dict[str, Any],
    names: Sequence[str],
    **own: Any,
) -> ModelInfo:
    """The contents of model.json.

    Args:
      training: what it says about the training: steps, metrics of the best validation, …; its `start`, the ancestors of
        the model, becomes a key of its own.
      names: of the weights of the export, in their order (`weight_names`).
      own: further attributes of `ModelInfo`, of the family.
    """

    # The ancestors are a key of their own, which a purge reads.
    trained = {name: value for name, value in training.items() if name != START}
    alphabet = dataset.alphabet
    symbols = alphabet.symbols
    return ModelInfo(
        name=settings.name,
        family=settings.family,
        kind=kind,
        alphabet=symbols if isinstance(symbols, str) else list(symbols),
        sample_rate=dataset.features.sample_rate,
        features=dataset.features.plain(),
        settings=settings.plain(),
        weights=list(names),
        # A warm start gives the next dataset these statistics.
        normalization=Normalization(mean=list(dataset.mean), deviation=list(dataset.deviation)),
        dataset=DatasetInfo(
            key=dataset.key,
            fingerprint=dataset.fingerprint,
            counts=dataset.counts,
            seconds=dataset.seconds,
            drafts=count_drafts(dataset.rows()) if dataset.rows_hash else {},  # a public model has no rows
        ),
        provenance=Provenance(
            git_revision=git_revision() or "unknown", versions=package_versions(PACKAGES), trained=trained
        ),
        start=msgspec.convert(training[START], StartInfo) if START in training else None,
        tokenizer=TokenizerFile.of(alphabet) if isinstance(alphabet, PublicTokenizer) else None,
        **own,
    )
