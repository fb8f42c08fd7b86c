"""Writes an exported model: a SavedModel with the signatures of its family, and `model.json`.

model/saved_model.pb, variables/   the signatures
model/…                            further files of a family
model/model.json                   alphabet, features, settings, dataset, provenance
"""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.drafts import count_drafts
from voxline.data.licences import count_licences
from voxline.errors import WorkError
from voxline.inference.model_info import (
    DatasetInfo,
    ModelInfo,
    Normalization,
    Provenance,
    StartInfo,
    TokenizerFile,
)
from voxline.inference.saved_model import LANGUAGE_MODEL, MODEL_JSON, VOCODER, read_model_info, write_model_info
from voxline.provenance import git_revision, package_versions
from voxline.registry.parents import Parent
from voxline.registry.training_data import TRAINED_ON
from voxline.settings import Settings, merge
from voxline.store.files import atomic_folder, link_or_copy_tree
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.training.checkpoints import Arrays
from voxline.training.settings import TrainSettings
from voxline.training.warm_start import read_named_weights
from voxline.training.weight_names import weight_names

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


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """An exported model, with what it takes to export it in another form.

    Attributes:
      folder: of the exported model.
      info: the contents of its `model.json`.
      weights: as `Trainable.weights` returned them.
      dataset: without an utterance: the features, the alphabet and the statistics that the weights expect.
      training: what `model.json` says about the training.
    """

    folder: Path
    info: ModelInfo
    weights: Arrays
    dataset: Dataset
    training: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "TrainedModel":
        """Reads an exported model. Its graph does not run.

        Raises:
          WorkError: it is damaged, or was exported before `model.json` had what it takes.
        """
        info = read_model_info(folder)
        if info.normalization is None or not info.weights:
            raise WorkError(
                f"{folder}: an earlier Voxline exported it, without the names of its weights and the statistics of its "
                "features, so it cannot be exported again; run train again"
            )
        dataset = dataset_of(info, folder, f"{folder}/{MODEL_JSON}")
        arrays = read_named_weights(info, folder)
        weights = {f"model/{index}": array for index, array in enumerate(arrays.values())}
        return cls(folder, info, weights, dataset, dict(info.provenance.trained))

    def settings_of(self, keys: Sequence[str], form: Settings) -> dict[str, Any]:
        """Settings of the training for an export: some of its keys, and all of the form's.

        A model of an earlier Voxline may have further keys, which there are no more.
        """
        values = {key: self.info.settings[key] for key in keys if key in self.info.settings}
        return merge(values, form.plain())

    def complete(self, folder: Path, form: Settings) -> None:
        """Gives an export of this model in another form what the model has beside its graphs."""
        exported = read_model_info(folder)
        for name in (LANGUAGE_MODEL, VOCODER):
            if (self.folder / name).is_dir():
                link_or_copy_tree(self.folder / name, folder / name)
        if (self.folder / TRAINED_ON).is_file():
            shutil.copyfile(self.folder / TRAINED_ON, folder / TRAINED_ON)

        # It is the same training: what it was made of, and with which versions.
        info = self.info
        settings = merge(info.settings, form.plain())
        if info.vocoder:
            settings["export"]["vocoder"] = info.settings.get("export", {}).get("vocoder", "")
        kept = {name: getattr(info, name) for name in ("name", "dataset", "provenance", "start", "vocoder", "enrolled")}
        write_model_info(folder, msgspec.structs.replace(exported, settings=settings, **kept))


def dataset_of(info: ModelInfo, folder: Path, where: str) -> Dataset:
    """A dataset without an utterance: the features, the alphabet and the statistics that a model's weights expect.

    Args:
      folder: of the model.
      where: it says so, for messages.

    Raises:
      WorkError: it has no statistics.
    """
    if info.normalization is None:
        raise WorkError(f"{where}: without the statistics of its features")
    return Dataset(
        key=info.dataset.key,
        fingerprint=info.dataset.fingerprint,
        features=FeatureSettings.of(info.features, where),
        alphabet=info.read_alphabet(folder),
        mean=info.normalization.mean,
        deviation=info.normalization.deviation,
        counts={},
        seconds={},
        shards=[],
        frontend=info.frontend,
    )


def published_weights(network: Any, parent: Parent) -> Arrays:
    """The weights of a public model in the order of a network, as `TrainModule.weights` has them.

    Raises:
      WorkError: one is absent or damaged, or the model is of other sizes than it says.
    """
    if parent.read_weights is None:
        raise WorkError(f"{parent.label}: not a public model")

    published = parent.read_weights()
    weights = {}
    for index, (name, variable) in enumerate(zip(weight_names(network), network.weights, strict=True)):
        value = published.get(name)
        if value is None or value.shape != tuple(variable.shape):
            has = "absent" if value is None else f"of the shape {value.shape}"
            raise WorkError(f"{parent.label}: the weight {name} is {has}, and its sizes say {tuple(variable.shape)}")
        weights[f"model/{index}"] = value
    return weights


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
            licences=count_licences(dataset.rows()) if dataset.rows_hash else {},
        ),
        provenance=Provenance(
            git_revision=git_revision() or "unknown", versions=package_versions(PACKAGES), trained=trained
        ),
        start=msgspec.convert(training[START], StartInfo) if START in training else None,
        tokenizer=TokenizerFile.of(alphabet) if isinstance(alphabet, PublicTokenizer) else None,
        **own,
    )
