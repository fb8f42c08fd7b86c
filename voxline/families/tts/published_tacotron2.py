"""Tacotron 2 in the layout of NVIDIA's code, as a parent: its sizes, its letters, and its weights by our names.

  open_tacotron2("models/nvidia-tacotron2")     # config.json: the checkpoint's `config`; model.safetensors

The network is the same. NVIDIA's convolutions have a bias, which the mean of the normalization behind them takes, and
its normalization another ε, which the scale takes; it has no biases in the pre-net and in the attention, which are zero
then. Its symbols are letters and ARPAbet; a text is read as English letters here.
"""

import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import WorkError
from voxline.families.asr.hub_weights import read_tensors, tensor_files
from voxline.families.tts.networks.settings import Tacotron2Settings
from voxline.families.tts.vits.hub import require_shapes
from voxline.inference.model_info import DatasetInfo, ModelInfo, Normalization, Provenance
from voxline.registry.hub import CONFIG_FILE, HubModel, is_hub_location, open_hub_model
from voxline.registry.parents import Ancestor, Parent
from voxline.text.alphabet import ALPHABETS
from voxline.text.settings import FrontendSettings

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

SETTING = "train.start.model"
ALPHABET = "english_speech"
SYMBOLS = "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The first of NVIDIA's symbols, in their order (text/symbols.py); ARPAbet follows."""
SOUND = {
    "sample_rate": 22_050, "window_seconds": 1024 / 22_050, "hop_seconds": 256 / 22_050, "fft_size": 1024,
    "lowest_hz": 0.0, "highest_hz": 8_000.0, "log_floor": 1e-5, "spectrum": "magnitude",
}  # fmt: skip
"""The mels of NVIDIA's hparams.py, which config.json does not have."""
THEIR_EPSILON, OUR_EPSILON = 1e-5, 1e-3
"""Added to variances: of `torch.nn.BatchNorm1d`, and of `SequenceBatchNorm`."""


def is_tacotron2(location: str) -> bool:
    """Returns whether a public model is a Tacotron 2 of NVIDIA's, by its config.json.

    Raises:
      SettingsError, TransientError, WorkError: as `open_hub_model`.
    """
    if not is_hub_location(location):
        return False
    return "attention_rnn_dim" in open_hub_model(location, SETTING, weights=False).config


def open_tacotron2(location: str) -> Parent:
    """Opens a public Tacotron 2 as a parent; its weights are not read yet.

    Raises:
      SettingsError: the model does not exist.
      TransientError: the Hub cannot be reached.
      WorkError: a file is damaged, or its network differs from ours.
    """
    model = open_hub_model(location, SETTING, weights=True)
    try:
        settings = _settings(model)
        features = FeatureSettings.of({**SOUND, "mels": model.config["n_mel_channels"]}, str(model.folder))
    except (KeyError, TypeError, ValueError) as error:
        raise WorkError(
            f"{model.folder / CONFIG_FILE}: without a setting of its network, or with a wrong one ({error}); get "
            f"{model.label} again"
        ) from None

    info = ModelInfo(
        name=model.name,
        family="tts",
        kind=settings.kind,
        alphabet=ALPHABETS[ALPHABET],
        sample_rate=features.sample_rate,
        features=features.plain(),
        settings={"model": settings.plain()},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        normalization=Normalization(mean=[0.0] * features.bins, deviation=[1.0] * features.bins),
        frontend=FrontendSettings(kind="english").plain(),
    )
    ancestor = Ancestor(model.name, None, model.digest(), "", model.revision, model.licence)
    return Parent(ancestor, info, None, location, model.folder, functools.partial(_read, model, settings))


def _settings(model: HubModel) -> Tacotron2Settings:
    """The sizes that config.json states.

    Raises:
      KeyError, TypeError, ValueError: one is missing, or ours has none such.
    """
    config = model.config
    alike = {
        "encoder_kernel_size": Tacotron2Settings.encoder_kernel,
        "postnet_kernel_size": Tacotron2Settings.postnet_kernel,
        "decoder_rnn_dim": config["attention_rnn_dim"],
        "symbols_embedding_dim": config["encoder_embedding_dim"],
        "n_frames_per_step": 1,
    }
    for key, value in alike.items():
        if config[key] != value:
            raise ValueError(f"{key} is {config[key]}, and {value} is known")
    if config["n_symbols"] < len(SYMBOLS):
        raise ValueError(f"n_symbols is {config['n_symbols']}, and the letters alone are {len(SYMBOLS)}")
    return Tacotron2Settings.of(
        {
            "embedding": config["symbols_embedding_dim"],
            "encoder_convolutions": config["encoder_n_convolutions"],
            "encoder_channels": config["encoder_embedding_dim"],
            "encoder_lstm": config["encoder_embedding_dim"] // 2,
            "attention": {
                "units": config["attention_dim"],
                "location_filters": config["attention_location_n_filters"],
                "location_kernel": config["attention_location_kernel_size"],
            },
            "prenet": [config["prenet_dim"]] * 2,
            "decoder_units": config["decoder_rnn_dim"],
            "decoder_dropout": config["p_decoder_dropout"],
            "postnet_layers": config["postnet_n_convolutions"],
            "postnet_channels": config["postnet_embedding_dim"],
        },
        source=str(model.folder / CONFIG_FILE),
    )


def _read(model: HubModel, settings: Tacotron2Settings) -> Tensors:
    """The weights by our names, in our layouts.

    Raises:
      WorkError: one is absent, or of another shape than the others.
    """
    files = tensor_files(model)
    # Trainings on several GPUs write a word before each name.
    prefix = "module." if any(name.startswith("module.") for name in files) else ""
    names = list(_names(settings))
    stored = read_tensors(model, [prefix + name for name in names], files)
    tensors = {name: stored[prefix + name] for name in names}
    try:
        weights = {**_encoder(tensors, settings), **_decoder(tensors, settings), **_postnet(tensors, settings)}
    except (ValueError, IndexError) as error:
        raise WorkError(f"{model.folder}: weights of other sizes than config.json says ({error})") from None
    require_shapes(model, weights, _kernels(settings, int(model.config["n_mel_channels"])))
    return weights


def _kernels(settings: Tacotron2Settings, mels: int) -> dict[str, tuple[int, ...]]:
    """Shapes of what grows with the sizes: [inputs, outputs], and [taps, inputs, outputs] of convolutions."""
    width = settings.encoder_channels
    units = settings.decoder_units
    attention = settings.attention
    filters = attention.location_filters
    shapes: dict[str, tuple[int, ...]] = {
        "decoder/prenet/0/0": (mels, settings.prenet[0]),
        "decoder/core/query_lstm/recurrent": (units, 4 * units),
        "decoder/core/output_lstm/recurrent": (units, 4 * units),
        "decoder/attention/query": (units, attention.units),
        "decoder/attention/filters": (attention.location_kernel, 2, filters),
        "recurrent/forward_layer/cell/recurrent_kernel": (settings.encoder_lstm, 4 * settings.encoder_lstm),
    }
    taps = settings.encoder_kernel
    shapes |= {
        f"convolutions/{n}/convolution/kernel": (taps, width, width) for n in range(settings.encoder_convolutions)
    }

    # The last convolution of the post-net makes mels, and the first one reads them.
    last = settings.postnet_layers - 1
    for n in range(settings.postnet_layers):
        inputs = settings.postnet_channels if n else mels
        outputs = settings.postnet_channels if n < last else mels
        shapes[f"postnet/{n}/convolution/kernel"] = (settings.postnet_kernel, inputs, outputs)
    return shapes


ATTENTION = "decoder.attention_layer"
LINEAR = "linear_layer.weight"


def _names(settings: Tacotron2Settings) -> Iterator[str]:
    """Names of the weights in the file."""
    yield "embedding.weight"
    for part, count in (("encoder", settings.encoder_convolutions), ("postnet", settings.postnet_layers)):
        for n in range(count):
            layer = f"{part}.convolutions.{n}"
            yield from (f"{layer}.0.conv.weight", f"{layer}.0.conv.bias")
            yield from (f"{layer}.1.{name}" for name in ("weight", "bias", "running_mean", "running_var"))
    for direction in ("l0", "l0_reverse"):
        yield from (f"encoder.lstm.{name}_{direction}" for name in _LSTM)
    for cell in ("attention_rnn", "decoder_rnn"):
        yield from (f"decoder.{cell}.{name}" for name in _LSTM)
    yield from (f"decoder.prenet.layers.{n}.{LINEAR}" for n in range(len(settings.prenet)))
    for layer in ("linear_projection", "gate_layer"):
        yield from (f"decoder.{layer}.linear_layer.weight", f"decoder.{layer}.linear_layer.bias")
    yield from (f"{ATTENTION}.{layer}.{LINEAR}" for layer in ("query_layer", "memory_layer", "v"))
    yield f"{ATTENTION}.location_layer.location_conv.conv.weight"
    yield f"{ATTENTION}.location_layer.location_dense.{LINEAR}"


_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _encoder(tensors: Tensors, settings: Tacotron2Settings) -> Tensors:
    rows = [SYMBOLS.index(letter) for letter in ALPHABETS[ALPHABET]]
    weights = {"embedding/embeddings": tensors["embedding.weight"][rows]}
    for n in range(settings.encoder_convolutions):
        weights |= _convolution(tensors, f"encoder.convolutions.{n}", f"convolutions/{n}")
    for ours, suffix in (("forward_layer", "_l0"), ("backward_layer", "_l0_reverse")):
        inputs, recurrent, bias = _lstm(tensors, "encoder.lstm", suffix, _IN_KERAS)
        cell = f"recurrent/{ours}/cell"
        weights |= {f"{cell}/kernel": inputs, f"{cell}/recurrent_kernel": recurrent, f"{cell}/bias": bias}
    return weights


def _decoder(tensors: Tensors, settings: Tacotron2Settings) -> Tensors:
    weights = {}
    for n, units in enumerate(settings.prenet):
        weights[f"decoder/prenet/{n}/0"] = tensors[f"decoder.prenet.layers.{n}.{LINEAR}"].T
        weights[f"decoder/prenet/{n}/1"] = np.zeros(units, np.float32)

    # Inputs of the first LSTM are the pre-net's output and the context, of the second the first's and the context.
    sizes = {
        "query_lstm": ("attention_rnn", settings.prenet[-1]),
        "output_lstm": ("decoder_rnn", settings.decoder_units),
    }
    for ours, (theirs, outer) in sizes.items():
        inputs, recurrent, bias = _lstm(tensors, f"decoder.{theirs}", "", _IN_LOOP)
        core = f"decoder/core/{ours}"
        weights |= {f"{core}/outer": inputs[:outer], f"{core}/context": inputs[outer:]}
        weights |= {f"{core}/recurrent": recurrent, f"{core}/bias": bias}

    for ours, theirs in (("frame", "linear_projection"), ("stop", "gate_layer")):
        weights[f"decoder/{ours}_kernel"] = tensors[f"decoder.{theirs}.{LINEAR}"].T
        weights[f"decoder/{ours}_bias"] = tensors[f"decoder.{theirs}.linear_layer.bias"]

    # [out, in, taps] → [taps, in, out]
    location = f"{ATTENTION}.location_layer"
    for ours, theirs in (("query", "query_layer"), ("key", "memory_layer"), ("energy", "v")):
        weights[f"decoder/attention/{ours}"] = tensors[f"{ATTENTION}.{theirs}.{LINEAR}"].T
    weights["decoder/attention/bias"] = np.zeros(settings.attention.units, np.float32)
    weights["decoder/attention/filters"] = tensors[f"{location}.location_conv.conv.weight"].transpose(2, 1, 0)
    weights["decoder/attention/location"] = tensors[f"{location}.location_dense.{LINEAR}"].T
    return weights


def _postnet(tensors: Tensors, settings: Tacotron2Settings) -> Tensors:
    weights: Tensors = {}
    for n in range(settings.postnet_layers):
        weights |= _convolution(tensors, f"postnet.convolutions.{n}", f"postnet/{n}")
    return weights


def _convolution(tensors: Tensors, theirs: str, ours: str) -> Tensors:
    """A convolution and its normalization, γ (x + b - μ) / √(σ² + ε) + β."""
    variance = tensors[f"{theirs}.1.running_var"]
    scale = np.sqrt((variance + OUR_EPSILON) / (variance + THEIR_EPSILON))
    return {
        f"{ours}/convolution/kernel": tensors[f"{theirs}.0.conv.weight"].transpose(2, 1, 0),
        f"{ours}/norm/gamma": tensors[f"{theirs}.1.weight"] * scale,
        f"{ours}/norm/beta": tensors[f"{theirs}.1.bias"],
        f"{ours}/norm/moving_mean": tensors[f"{theirs}.1.running_mean"] - tensors[f"{theirs}.0.conv.bias"],
        f"{ours}/norm/moving_variance": variance,
    }


_IN_KERAS = (0, 1, 2, 3)
"""Gates of Keras's LSTM by PyTorch's order: in, forget, new, out."""
_IN_LOOP = (0, 1, 3, 2)
"""Gates of the decoder's LSTMs: in, forget, out, new."""


def _lstm(tensors: Tensors, name: str, suffix: str, order: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Matrices of the input [in, 4 · units] and of the state, and the sum of both biases."""
    inputs, recurrent, first, second = (tensors[f"{name}.{part}{suffix}"] for part in _LSTM)

    def in_order(gates: Array) -> Array:
        # PyTorch has the gates one after the other, along the outputs.
        parts = np.split(gates, 4)
        return np.concatenate([parts[index] for index in order])

    return in_order(inputs).T, in_order(recurrent).T, in_order(first + second)
