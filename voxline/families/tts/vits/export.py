"""An exported VITS: a SavedModel, its ONNX graph, and Piper's files of it.

Signatures of the SavedModel:
  synthesize        symbols int32 [batch, n], lengths int32 [batch], rates float32 [batch, n], scales float32 [3] as in
                    `onnx` → waveforms float32 [batch, samples], samples, frames int32 [batch], durations float32
                    [batch, n] in frames, hit_limit bool [batch]; of several speakers it takes speakers int32 [batch]
                    too, their rows in model.json's list
  serving_default   symbols and lengths alone; the settings' speaker speaks
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.data.licences import NOT_STATED
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.export import TEXT_SIGNATURE
from voxline.families.tts.settings import ExportSettings, TtsExportForm, TtsTrainSettings
from voxline.families.tts.vits.network import Vits
from voxline.families.tts.vits.onnx import export_onnx_piper, export_onnx_vits
from voxline.families.tts.vits.piper import BEGIN, BLANK, END, ESPEAK
from voxline.families.tts.vits.settings import VitsSettings
from voxline.inference.model_info import AS_PUBLISHED, ModelInfo, StartInfo
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import MODEL_JSON, exported_folder, read_model_info, require_family
from voxline.inference.sherpa_onnx import TOKENS_FILE
from voxline.provenance import git_revision, package_versions
from voxline.registry.parents import Parent, licences_of
from voxline.store.files import new_folder
from voxline.text.settings import FrontendSettings
from voxline.training.checkpoints import Arrays
from voxline.training.export import PACKAGES, TrainedModel, model_info, write_exported
from voxline.training.layers import Tensor
from voxline.training.warm_start import read_named_weights
from voxline.training.weight_names import weight_names

SAMPLE_SIGNATURE = (
    *TEXT_SIGNATURE,
    tf.TensorSpec([None, None], tf.float32, name="rates"),
    tf.TensorSpec([3], tf.float32, name="scales"),
)
SPEAKER_SIGNATURE = (*SAMPLE_SIGNATURE, tf.TensorSpec([None], tf.int32, name="speakers"))
"""Of a voice of several speakers."""
PIPER_FILE = "voice.onnx"
PIPER_CONFIG = f"{PIPER_FILE}.json"


class VitsGraph(tf.Module):  # type: ignore[misc]
    """The network as a graph.

    Args:
      max_frames: after which speech is cut off.
      several_speakers: whether who speaks is an input.
    """

    def __init__(self, model: Vits, max_frames: int, *, several_speakers: bool = False) -> None:
        super().__init__()
        self.weights = [variable.value for variable in model.weights]
        settings = model.settings
        self._scales = [settings.noise, settings.length, settings.duration_noise]
        self._speaker = settings.speaker
        self._several_speakers = several_speakers
        signature = SPEAKER_SIGNATURE if several_speakers else SAMPLE_SIGNATURE

        # A function of its own is built, saved and loaded once for both signatures, and holds no Keras objects.
        @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
        def speak(
            symbols: Tensor, lengths: Tensor, rates: Tensor, scales: Tensor, speakers: Tensor | None = None
        ) -> dict[str, Tensor]:
            output = model.speak(symbols, lengths, max_frames=max_frames, rates=rates, scales=scales, speakers=speakers)
            return {
                "waveforms": output.waveforms,
                "samples": output.frames * settings.hop,
                "frames": output.frames,
                "durations": output.durations,
                "hit_limit": output.hit_limit,
            }

        self._speak: Callable[..., dict[str, Tensor]] = lambda *inputs: speak(*inputs)
        self.synthesize = tf.function(self._synthesize, input_signature=signature, autograph=False)

    def _synthesize(
        self, symbols: Tensor, lengths: Tensor, rates: Tensor, scales: Tensor, speakers: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Speaks, at a rate for each symbol and with other noise."""
        inputs = [symbols, lengths, rates, scales]
        return self._speak(*inputs, speakers) if self._several_speakers else self._speak(*inputs)

    @tf.function(input_signature=TEXT_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def speak(self, symbols: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Speaks as the settings have it."""
        rates = tf.ones_like(symbols, tf.float32)
        inputs = [symbols, lengths, rates, tf.constant(self._scales, tf.float32)]
        if self._several_speakers:
            inputs.append(tf.fill(tf.shape(lengths), self._speaker))
        return self._speak(*inputs)


def export_published_vits(
    folder: Path, parent: Parent, name: str = "", onnx: str = "none", precision: str = "float32"
) -> None:
    """Writes a public voice as it comes.

    Args:
      parent: as `open_public_voice` opened it.
      name: of the model.
      onnx: the graph beside the SavedModel: none or float32.
      precision: of the network, as `train.export.precision` has it.

    Raises:
      SettingsError: the graph is to be of integers, or of half precision.
      WorkError: the weights are damaged, or of another network than the settings say.
    """
    if onnx not in ("none", "float32"):
        raise SettingsError(f"--onnx is {onnx!r}: a VITS has a graph of float32, and none of integers")
    export = {"onnx": onnx, "precision": precision}
    ExportSettings.of(export, source=parent.label)  # refuses what does not fit
    if parent.read_weights is None:
        raise WorkError(f"{parent.label}: not a public voice")

    model = _network(parent.info, parent.read_weights(), parent.label, precision)
    values = {"name": name or parent.info.name, "start": {"model": parent.pinned}, "export": export}
    info = msgspec.structs.replace(
        parent.info,
        name=str(values["name"]),
        settings={**parent.info.settings, **values},
        weights=weight_names(model),
        start=msgspec.convert(parent.describe(), StartInfo),
        provenance=msgspec.structs.replace(
            parent.info.provenance,
            git_revision=git_revision() or "unknown",
            versions=package_versions(PACKAGES),
            trained={AS_PUBLISHED: True},
        ),
    )
    several = bool(info.speakers)
    files = {}
    if onnx != "none":
        files[ONNX_FILE] = export_onnx_vits(model, info.max_steps, several_speakers=several)
    module = VitsGraph(model, info.max_steps, several_speakers=several)
    write_exported(folder, module, {"synthesize": module.synthesize, "serving_default": module.speak}, info, files)


def export_trained_vits(
    folder: Path,
    settings: TtsTrainSettings,
    dataset: Dataset,
    weights: Arrays,
    training: dict[str, Any],
    speakers: Sequence[str] = (),
) -> None:
    """Writes a voice that was trained here; whole or not at all, in the form of a public one.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training.
      speakers: names of the rows of its table; (): one speaker.
    """
    sizes = settings.model
    if not isinstance(sizes, VitsSettings):
        raise TypeError(f"{settings.name}: a {sizes.kind} is not exported here")
    model = Vits(sizes, symbols=len(dataset.alphabet.symbols), precision=settings.export.precision)
    for index, variable in enumerate(model.weights):
        variable.assign(weights[f"model/{index}"])

    max_frames = math.ceil(settings.max_seconds * dataset.features.sample_rate / sizes.hop)
    several = bool(speakers)
    own: dict[str, Any] = {
        "frontend": dataset.frontend, "max_steps": max_frames, "reduction": 1, "speakers": list(speakers),
    }  # fmt: skip
    info = model_info(sizes.kind, settings, dataset, training, weight_names(model), **own)
    files = {}
    if settings.export.onnx != "none":
        files[ONNX_FILE] = export_onnx_vits(model, max_frames, several_speakers=several)
    module = VitsGraph(model, max_frames, several_speakers=several)
    write_exported(folder, module, {"synthesize": module.synthesize, "serving_default": module.speak}, info, files)


def is_vits(model: Path) -> bool:
    """Returns whether an exported voice is one."""
    return read_model_info(model).kind == "vits"


def export_vits_again(model: Path, form: TtsExportForm, folder: Path) -> None:
    """Writes an exported VITS in another form, whole or not at all.

    Args:
      model: its folder.

    Raises:
      SettingsError: the network has no such form.
      WorkError: the model is damaged.
    """
    trained = TrainedModel.read(model)
    values = trained.settings_of(("name", "model", "seed", "max_seconds"), form)
    settings = TtsTrainSettings.of(values, source=f"{model}/{MODEL_JSON}")
    speakers = trained.info.speakers
    export_trained_vits(folder, settings, trained.dataset, trained.weights, trained.training, speakers)
    trained.complete(folder, form)


def export_to_piper(model: Path | str, output: Path) -> list[Path]:
    """Writes a voice as Piper and sherpa-onnx read it: the graph, Piper's JSON file, and sherpa-onnx' tokens.

    Args:
      model: an exported VITS that reads phonemes of espeak-ng.
      output: a folder that does not exist yet, or is empty.

    Raises:
      SettingsError: the voice is of another network or reads letters; or the folder holds something.
      WorkError: the model is damaged.
    """
    folder = exported_folder(model)
    info = read_model_info(folder)
    require_family(info, "tts", folder)
    frontend = FrontendSettings.of(dict(info.frontend), f"{folder}/{MODEL_JSON}")
    if info.kind != "vits" or frontend.kind != "phonemes":
        what = f"is a {info.kind}" if info.kind != "vits" else f"reads the text frontend {frontend.kind}"
        raise SettingsError(
            f"{folder}: --to piper is for a VITS that reads phonemes of espeak-ng, and this voice {what}"
        )

    network = _network(info, read_named_weights(info, folder), str(folder))
    config = _piper_config(info, network.settings, frontend.language)
    metadata = {
        "model_type": "vits",
        "comment": "piper",
        "language": frontend.language,
        "voice": frontend.language,
        "has_espeak": "1",
        "n_speakers": str(max(len(info.speakers), 1)),
        "sample_rate": str(info.sample_rate),
        "license": " and ".join(_licences(info)),
    }
    tokens = "".join(f"{symbol} {numbers[0]}\n" for symbol, numbers in config["phoneme_id_map"].items())
    with new_folder(output, "--output") as unfinished:
        # Piper's runtime gives `sid` to voices of several speakers alone.
        graph = export_onnx_piper(network, metadata, several_speakers=len(info.speakers) > 1)
        (unfinished / PIPER_FILE).write_bytes(graph)
        (unfinished / PIPER_CONFIG).write_text(
            json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n"
        )
        (unfinished / TOKENS_FILE).write_text(tokens, encoding="utf-8", newline="\n")
    return [output / name for name in (PIPER_FILE, PIPER_CONFIG, TOKENS_FILE)]


def _licences(info: ModelInfo) -> list[str]:
    """The licences that are stated of all behind a voice."""
    return sorted({name for names in licences_of(info).values() for name in names} - {NOT_STATED})


def _piper_config(info: ModelInfo, settings: VitsSettings, language: str) -> dict[str, Any]:
    """The JSON file; the numbers of symbols are their rows in our embedding."""
    symbols = list(info.alphabet)
    ids = {symbol: [number] for number, symbol in enumerate([*symbols, BLANK, BEGIN, END])}
    return {
        "dataset": info.name,
        "audio": {"sample_rate": info.sample_rate, "quality": "medium"},
        "espeak": {"voice": language},
        "language": {"code": language},
        "inference": {
            "noise_scale": settings.noise,
            "length_scale": settings.length,
            "noise_w": settings.duration_noise,
        },
        "phoneme_type": ESPEAK,
        "phoneme_map": {},
        "phoneme_id_map": ids,
        "num_symbols": len(ids),
        "num_speakers": max(len(info.speakers), 1),
        "speaker_id_map": {name: row for row, name in enumerate(info.speakers)},
        "hop_length": settings.hop,
        "piper_version": "1.0.0",
    }


def _network(info: ModelInfo, weights: dict[str, Any], label: str, precision: str = "float32") -> Vits:
    """The network of a model, with weights by name.

    Raises:
      WorkError: one is absent, or of another shape.
    """
    settings = VitsSettings.of(info.model_settings, source=label)
    network = Vits(settings, symbols=len(info.alphabet), precision=precision)
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        value = weights.get(name)
        if value is None or value.shape != tuple(variable.shape):
            has = "absent" if value is None else f"of the shape {value.shape}"
            raise WorkError(f"{label}: the weight {name} is {has}, and its settings say {tuple(variable.shape)}")
        variable.assign(np.asarray(value, np.float32))
    return network
