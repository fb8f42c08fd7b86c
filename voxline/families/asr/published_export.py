"""Exports of weights that are there: public models as they come, and our own in another form. Nothing is trained."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import keras

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.families.asr.attention_export import export_attention
from voxline.families.asr.export import export_asr
from voxline.families.asr.export_checks import check_export
from voxline.families.asr.networks.settings import WhisperSettings, build_ctc_model
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.settings import AsrExportForm, AsrTrainSettings
from voxline.inference.model_info import AS_PUBLISHED, ATTENTION
from voxline.inference.saved_model import MODEL_JSON
from voxline.registry.parents import Parent
from voxline.text.alphabet import Alphabet
from voxline.text.whisper_tokenizer import WhisperTokenizer
from voxline.training.checkpoints import Arrays
from voxline.training.export import TrainedModel
from voxline.training.warm_start import ParentWeights, read_parent
from voxline.training.weight_names import weight_names

USED_IN_TRAINING_ALONE = ("mask",)
"""Weights that files of published ones may lack."""


def export_published_asr(
    folder: Path,
    parent: Parent,
    form: Mapping[str, Any],
    name: str = "",
    onnx: str = "none",
    precision: str = "float32",
) -> None:
    """Writes published weights as they come, under their own tokenizer or alphabet.

    Args:
      parent: with an output layer of symbols, or with a decoder and its tokenizer.
      form: settings of the network beside those of the parent, such as the prompt of a decoder.
      name: of the model.
      onnx: graphs beside the SavedModel, as `train.export.onnx` has it.
      precision: of the network, as `train.export.precision` has it.

    Raises:
      SettingsError: the form does not fit: a decoder of several languages needs one in its prompt; or the network has
        no graph of this precision.
      WorkError: the weights are damaged, or of another network.
    """
    weights = read_parent(parent)
    features = FeatureSettings.of(parent.info.features)
    mean, deviation = weights.mean_and_deviation or ([0.0] * features.bins, [1.0] * features.bins)
    values = {
        "model": {**parent.info.model_settings, **form},
        "start": {"model": parent.pinned},
        "export": {"onnx": onnx, "precision": precision},
    }
    settings = AsrTrainSettings.of({**values, **({"name": name} if name else {})}, source=parent.label)
    check_export(settings.model, settings.export, features)

    # A dataset without an utterance: the features, the symbols and the statistics that the weights expect.
    dataset = Dataset(
        key="",
        fingerprint="",
        features=features,
        alphabet=weights.tokenizer or Alphabet(parent.info.alphabet),
        mean=mean,
        deviation=deviation,
        counts={},
        seconds={},
        shards=[],
    )
    training = {AS_PUBLISHED: True, "start": parent.describe()}
    if parent.info.kind != ATTENTION:
        network = build_ctc_model(settings.model, dataset, seed=0, precision="float32", portable=True)
        export_asr(folder, settings, dataset, arrays_of(network, weights), training)
        return

    whisper = cast(WhisperSettings, settings.model)
    tokenizer = cast(WhisperTokenizer, dataset.alphabet).with_prompt(whisper.prompt.language, whisper.prompt.task)
    arrays = arrays_of(Whisper(whisper, bins=features.bins), weights)
    export_attention(folder, settings, dataclasses.replace(dataset, alphabet=tokenizer), arrays, training)


def export_asr_again(model: Path, form: AsrExportForm, folder: Path) -> None:
    """Writes an exported recognizer in another form, whole or not at all.

    Args:
      model: its folder.

    Raises:
      SettingsError: the network has no such form.
      WorkError: the model is damaged.
    """
    trained = TrainedModel.read(model)
    start = str(trained.info.settings.get("start", {}).get("model", ""))
    values = trained.settings_of(("name", "model", "seed"), form) | {"start": {"model": start}}
    settings = AsrTrainSettings.of(values, source=f"{model}/{MODEL_JSON}")
    check_export(settings.model, settings.export, trained.dataset.features)

    # The graph of the SavedModel depends on little of the form, and is that of the model where it would be equal.
    export = export_attention if trained.info.kind == ATTENTION else export_asr
    export(folder, settings, trained.dataset, trained.weights, trained.training, model)
    trained.complete(folder, form)


def arrays_of(network: keras.Model, parent: ParentWeights) -> Arrays:
    """The parent's weights in the order of a network, as `TrainModule.weights` names them.

    Raises:
      WorkError: one is absent, or has another shape.
    """
    names = weight_names(network)
    weights = parent.by_name(names)
    fresh = dict(zip(names, (variable.numpy() for variable in network.weights), strict=True))
    wrong = [name for name in names if name in weights and weights[name].shape != fresh[name].shape]
    wrong += [f"{name} (absent)" for name in names if name not in weights and name not in USED_IN_TRAINING_ALONE]
    if wrong:
        raise WorkError(f"{parent.label}: weights of another network than its settings say: {', '.join(wrong[:3])}")
    return {f"model/{index}": weights.get(name, fresh[name]) for index, name in enumerate(names)}
