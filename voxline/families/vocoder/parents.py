"""Public vocoders in the layouts of their authors: HiFi-GAN (Kong et al. 2020) and NVIDIA's WaveGlow.

  open_public_vocoder("models/hifigan-universal")     # config.json as the authors have it, model.safetensors

A folder, or a model of the Hub, with the config.json of the authors' repository, and the generator's weights by their
names. Nothing of a model runs. Mels are those that both were trained on: logarithms of magnitudes, windows of Hann.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.hub_weights import tensor_files
from voxline.families.tts.vits.hub import read_modules, require_shapes
from voxline.families.tts.vits.weights import Array, Module, decoder_modules
from voxline.families.vocoder.networks.settings import HifiganSettings, WaveGlowSettings
from voxline.inference.model_info import DatasetInfo, ModelInfo, Normalization, Provenance
from voxline.registry.hub import CONFIG_FILE, HubModel, is_hub_location, open_hub_model
from voxline.registry.parents import Ancestor, Parent

SETTING = "train.start.model"
LOG_FLOOR = 1e-5
"""Least magnitude of a mel band, of both authors."""
DECODER = "decoder/"
"""Before the names of HiFi-GAN's layers in a VITS."""
WAVEGLOW = "waveglow_config"
"""The key of config.json that NVIDIA's WaveGlow has its sizes under."""


def is_public_vocoder(location: str) -> bool:
    """Returns whether a public model is a vocoder that is known here, by its config.json.

    Raises:
      SettingsError, TransientError, WorkError: as `open_hub_model`.
    """
    if not is_hub_location(location):
        return False
    return bool(_kind(open_hub_model(location, SETTING, weights=False).config))


def open_public_vocoder(location: str) -> Parent:
    """Opens a public vocoder as a parent; its weights are not read yet.

    Raises:
      SettingsError: the model is another one, or does not exist.
      TransientError: the Hub cannot be reached.
      WorkError: a file is damaged.
    """
    model = open_hub_model(location, SETTING, weights=True)
    kind = _kind(model.config)
    if not kind:
        raise SettingsError(
            f"{SETTING}: {model.label} is no vocoder that is known here ({CONFIG_FILE}); HiFi-GAN's is accepted, which "
            f"has upsample_rates and num_mels, and NVIDIA's WaveGlow, which has {WAVEGLOW}"
        )
    try:
        network = _hifigan(model) if kind == "hifigan" else _waveglow(model)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise WorkError(
            f"{model.folder / CONFIG_FILE}: without a setting of its network, or with a wrong one ({error}); get "
            f"{model.label} again"
        ) from None
    network.settings.check_features(network.features)

    bins = network.features.bins
    info = ModelInfo(
        name=model.name,
        family="vocoder",
        kind=kind,
        alphabet="",
        sample_rate=network.features.sample_rate,
        features=network.features.plain(),
        settings={"model": network.settings.plain()},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        normalization=Normalization(mean=[0.0] * bins, deviation=[1.0] * bins),
    )
    ancestor = Ancestor(model.name, None, model.digest(), "", model.revision, model.licence)
    return Parent(ancestor, info, None, location, model.folder, network.read)


def _kind(config: dict[str, Any]) -> str:
    if isinstance(config.get(WAVEGLOW), dict):
        return "waveglow"
    return "hifigan" if "upsample_rates" in config and "num_mels" in config else ""


@dataclasses.dataclass(frozen=True)
class PublishedNetwork:
    """A network as config.json has it.

    Attributes:
      read: its weights by our names, in our layouts.
    """

    settings: HifiganSettings | WaveGlowSettings
    features: FeatureSettings
    read: Callable[[], dict[str, Array]]


def _hifigan(model: HubModel) -> PublishedNetwork:
    config = model.config
    where = str(model.folder / CONFIG_FILE)
    values = {
        "channels": config["upsample_initial_channel"],
        "upsample_rates": config["upsample_rates"],
        "upsample_kernels": config["upsample_kernel_sizes"],
        "residual_kernels": config["resblock_kernel_sizes"],
        "residual_dilations": config["resblock_dilation_sizes"],
        "residual_block": {"1": "double", "2": "single"}[str(config["resblock"])],
    }
    names = ("sampling_rate", "n_fft", "win_size", "hop_size", "num_mels", "fmin", "fmax")
    settings = HifiganSettings.of(values, where)
    features = _features(where, [config[name] for name in names])
    return PublishedNetwork(settings, features, functools.partial(_read_hifigan, model, settings))


def _waveglow(model: HubModel) -> PublishedNetwork:
    sizes = model.config[WAVEGLOW]
    data = model.config["data_config"]
    where = str(model.folder / CONFIG_FILE)
    early = WaveGlowSettings.early_size
    if sizes["n_early_size"] != early:
        raise ValueError(f"n_early_size is {sizes['n_early_size']}, and {early} alone is known")
    values = {
        "flows": sizes["n_flows"],
        "group": sizes["n_group"],
        "early_every": sizes["n_early_every"],
        "layers": sizes["WN_config"]["n_layers"],
        "channels": sizes["WN_config"]["n_channels"],
        "kernel": sizes["WN_config"].get("kernel_size", 3),
    }
    names = ("sampling_rate", "filter_length", "win_length", "hop_length")
    sound = [*(data[name] for name in names), sizes["n_mel_channels"], data["mel_fmin"], data["mel_fmax"]]
    settings = WaveGlowSettings.of(values, where)
    return PublishedNetwork(settings, _features(where, sound), functools.partial(_read_waveglow, model, settings))


def _features(where: str, sound: Sequence[Any]) -> FeatureSettings:
    """Both authors' mels: natural logarithms of the magnitudes in bands of librosa.

    Args:
      sound: sample rate, FFT, window, hop, bands, and the lowest and the highest frequency.
    """
    rate, fft, window, hop, mels, lowest, highest = sound
    values = {
        "sample_rate": rate, "window_seconds": window / rate, "hop_seconds": hop / rate, "fft_size": fft, "mels": mels,
        "lowest_hz": lowest, "highest_hz": highest, "log_floor": LOG_FLOOR, "spectrum": "magnitude",
    }  # fmt: skip
    return FeatureSettings.of(values, where)


def _read_hifigan(model: HubModel, settings: HifiganSettings) -> dict[str, Array]:
    """The generator's weights by our names; those with weight norm are merged."""
    layers = [
        dataclasses.replace(
            layer,
            ours=layer.ours.removeprefix(DECODER),
            hub=layer.hub.removeprefix("decoder.").replace("upsampler.", "ups."),
            bias=True,
            weight_norm=True,
        )
        for layer in decoder_modules(settings)
    ]
    weights = read_modules(model, {}, layers)
    require_shapes(model, weights, _hifigan_kernels(settings, int(model.config["num_mels"])))
    return weights


def _hifigan_kernels(settings: HifiganSettings, mels: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the kernels, [taps, inputs, outputs]; those of transposed convolutions [taps, outputs, inputs]."""
    channels = settings.channels
    shapes: dict[str, tuple[int, ...]] = {"first/kernel": (7, mels, channels)}
    for n, taps in enumerate(settings.upsample_kernels):
        shapes[f"upsampling/{n}/kernel"] = (taps, channels // 2, channels)
        channels //= 2
        for k, (size, dilations) in enumerate(zip(settings.residual_kernels, settings.residual_dilations, strict=True)):
            for d in range(len(dilations)):
                for kind in ("dilated", "undilated") if settings.residual_block == "double" else ("dilated",):
                    shapes[f"residuals/{n}/{k}/{kind}/{d}/kernel"] = (size, channels, channels)
    return shapes | {"last/kernel": (7, channels, 1)}


def _waveglow_modules(settings: WaveGlowSettings) -> Iterator[Module]:
    yield Module("upsample", "upsample", "")
    for n in range(settings.flows):
        ours = f"flows/{n}/wavenet"
        hub = f"WN.{n}"
        yield Module(f"{ours}/first", f"{hub}.start", "", "dense", weight_norm=True)
        yield Module(f"{ours}/condition", f"{hub}.cond_layer", "", "dense", weight_norm=True)
        for i in range(settings.layers):
            yield Module(f"{ours}/dilated/{i}", f"{hub}.in_layers.{i}", "", weight_norm=True)
            yield Module(f"{ours}/outputs/{i}", f"{hub}.res_skip_layers.{i}", "", "dense", weight_norm=True)
        yield Module(f"{ours}/last", f"{hub}.end", "", "dense")


def _read_waveglow(model: HubModel, settings: WaveGlowSettings) -> dict[str, Array]:
    """The weights by our names.

    Raises:
      SettingsError: the file is of NVIDIA's first code, which had a condition for each layer.
      WorkError: a weight is absent or damaged.
    """
    if any(name.startswith("WN.0.cond_layers.") for name in tensor_files(model)):
        raise SettingsError(
            f"{SETTING}: {model.label} is of the first code of WaveGlow, with a condition for each layer; "
            "convert_model.py of NVIDIA's repository joins them"
        )
    mixing = {f"flows/{n}/mixing": f"convinv.{n}.conv.weight" for n in range(settings.flows)}
    weights = read_modules(model, mixing, list(_waveglow_modules(settings)))
    for n in range(settings.flows):
        # Ours multiplies from the right: [out, in, 1] → [in, out]
        mixed = f"flows/{n}/mixing"
        weights[mixed] = np.ascontiguousarray(weights[mixed].reshape(weights[mixed].shape[:2]).T)

        # The values of a mel band lie side by side in theirs, those of a sample in ours: [bands · group, out].
        name = f"flows/{n}/wavenet/condition/kernel"
        kernel = weights[name]
        if len(kernel) % settings.group:
            raise WorkError(f"{model.folder}: WN.{n}.cond_layer has {len(kernel)} inputs; get {model.label} again")
        by_band = kernel.reshape(-1, settings.group, kernel.shape[1])
        weights[name] = np.ascontiguousarray(by_band.transpose(1, 0, 2)).reshape(kernel.shape)

    mels = int(model.config[WAVEGLOW]["n_mel_channels"])
    taps = WaveGlowSettings.upsampled_hops * int(model.config["data_config"]["hop_length"])
    require_shapes(model, weights, {"upsample/kernel": (taps, mels, mels), **_waveglow_kernels(settings, mels)})
    return weights


def _waveglow_kernels(settings: WaveGlowSettings, mels: int) -> dict[str, tuple[int, ...]]:
    """Shapes of what grows with the sizes: [inputs, outputs], and [taps, inputs, outputs] of convolutions."""
    width = settings.channels
    shapes: dict[str, tuple[int, ...]] = {}
    for n, channels in enumerate(settings.flow_channels):
        ours = f"flows/{n}/wavenet"
        shapes[f"flows/{n}/mixing"] = (channels, channels)
        shapes[f"{ours}/first/kernel"] = (channels // 2, width)
        shapes[f"{ours}/condition/kernel"] = (settings.group * mels, 2 * width * settings.layers)
        shapes |= {f"{ours}/dilated/{i}/kernel": (settings.kernel, width, 2 * width) for i in range(settings.layers)}
    return shapes
