"""Public models to start from: what their config.json says as settings of ours, their symbols and their weights.

  model = open_hub_model("hf://openai/whisper-tiny.en@87c7102498dcde7456f24cfd30239ca606ed9063", ...)
  public_config(model)                 # defaults of the config: train.model, extract.features, convert.sample_rate
  find_public_parent(model, ...)       # the `Parent` that a training starts from

`PUBLIC` has an entry for each `model_type` of config.json. A further network needs its file in `networks/`, its names
in `hub_weights`, and an entry here.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, WorkError
from voxline.inference.model_info import DatasetInfo, ModelInfo, Normalization, Provenance
from voxline.progress import print_status
from voxline.registry.hub import CONFIG_FILE, HubModel, open_hub_model
from voxline.registry.parents import Ancestor, Parent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.families.asr.hub_weights import WeightName

SETTING = "train.start.model"
SAMPLE_RATE = 16_000
"""Hz; of all public models here."""


@dataclasses.dataclass(frozen=True)
class PublicNetwork:
    """How a kind of public model is read.

    Attributes:
      network: the settings of `train.model` that follow from config.json.
      features: those of `extract.features`.
      names: the names of the weights, of the settings that `network` returned.
      symbols: of the output layer, without the blank; [] of a network without a CTC head.
    """

    network: Callable[[Mapping[str, Any]], dict[str, Any]]
    features: Callable[[HubModel], dict[str, Any]]
    names: "Callable[[Mapping[str, Any]], list[WeightName]]"
    symbols: Callable[[HubModel], list[str]] = lambda model: []


def public_network(model: HubModel) -> PublicNetwork:
    """The entry of `PUBLIC` for a model.

    Raises:
      SettingsError: its network is none of ours.
    """
    kind = str(model.config.get("model_type", ""))
    if kind not in PUBLIC:
        raise SettingsError(
            f"{SETTING}: {model.label} is of the network {kind!r} ({CONFIG_FILE}, model_type); "
            f"{', '.join(sorted(PUBLIC))} are accepted"
        )
    return PUBLIC[kind]


def public_config(location: str) -> dict[str, Any]:
    """The config's defaults that follow from a public model; its weights are not downloaded.

    Raises:
      SettingsError: the model does not exist, or its network is none of ours.
      TransientError: the Hub cannot be reached, and the model is not on this machine.
      WorkError: its config.json is damaged.
    """
    model = open_hub_model(location, SETTING, weights=False)
    network = public_network(model)
    return {
        "train": {"model": _network_settings(network, model)},
        "extract": {"features": network.features(model)},
        "convert": {"sample_rate": SAMPLE_RATE},
    }


def find_public_parent(location: str) -> Parent:
    """Opens a public model as a parent; its weights are not read yet.

    Raises:
      SettingsError, TransientError, WorkError: as `public_config`; or it has no safetensors.
    """
    from voxline.audio.feature_settings import FeatureSettings

    model = open_hub_model(location, SETTING, weights=True)
    network = public_network(model)
    settings = _network_settings(network, model)
    features = FeatureSettings.of({**network.features(model), "sample_rate": SAMPLE_RATE})
    symbols = network.symbols(model)
    info = ModelInfo(
        name=model.name,
        family="asr",
        kind="ctc",
        alphabet=symbols,
        sample_rate=SAMPLE_RATE,
        features=features.plain(),
        settings={"model": settings},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        # Features come normalized, so that all networks of public models leave them as they are.
        normalization=Normalization(mean=[0.0] * features.bins, deviation=[1.0] * features.bins),
    )

    ancestor = Ancestor(model.name, None, model.digest(), "", model.revision, model.licence)
    parent = Parent(ancestor, info, None, location, model.folder, functools.partial(_read, model, network, settings))
    print_status(
        f"train: {parent.label} is a public model (licence: {model.licence or 'not stated'}): whose recordings it was "
        "trained on is not known, so a purge of a speaker does not find it by them"
    )
    return parent


def _network_settings(network: PublicNetwork, model: HubModel) -> dict[str, Any]:
    try:
        return network.network(model.config)
    except (KeyError, TypeError, ValueError) as error:
        raise WorkError(
            f"{model.folder / CONFIG_FILE}: without a setting of its network, or with a wrong one ({error}); get "
            f"{model.label} again"
        ) from None


def _read(model: HubModel, network: PublicNetwork, settings: Mapping[str, Any]) -> "dict[str, npt.NDArray[np.float32]]":
    from voxline.families.asr.hub_weights import read_weights

    return read_weights(model, network.names(settings))


def _whisper_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    units = int(config["d_model"])
    if config["encoder_ffn_dim"] != 4 * units or config["decoder_ffn_dim"] != 4 * units:
        raise ValueError(f"encoder_ffn_dim and decoder_ffn_dim are not 4 · d_model, {4 * units}")
    if config["encoder_attention_heads"] != config["decoder_attention_heads"]:
        raise ValueError("encoder and decoder have other heads")
    return {
        "kind": "whisper",
        "layers": int(config["encoder_layers"]),
        "units": units,
        "heads": int(config["encoder_attention_heads"]),
        "positions": int(config["max_source_positions"]),
        "decoder_layers": int(config["decoder_layers"]),
        "tokens": int(config["vocab_size"]),
        "token_positions": int(config["max_target_positions"]),
    }


def _whisper_features(model: HubModel) -> dict[str, Any]:
    return {"kind": "whisper", "mels": int(model.config.get("num_mel_bins", 80))}


def _whisper_names(settings: Mapping[str, Any]) -> "list[WeightName]":
    from voxline.families.asr.hub_weights import WHISPER_ENCODER, expand

    return expand(WHISPER_ENCODER, settings["layers"])


PUBLIC: dict[str, PublicNetwork] = {
    "whisper": PublicNetwork(_whisper_settings, _whisper_features, _whisper_names),
}
"""`model_type` of config.json → how it is read."""
