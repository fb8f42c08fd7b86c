"""VITS in the Hub's layout, such as MMS-TTS (Pratap et al. 2023, arXiv 2305.13516), with voices of 1,100 languages.

config.json has the sizes, model.safetensors the weights, vocab.json the letters. Nothing of a model runs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from voxline.errors import SettingsError, WorkError
from voxline.families.asr.hub_weights import WEIGHT_NORM, read_tensors, tensor_files
from voxline.families.tts.vits.settings import VitsSettings
from voxline.families.tts.vits.weights import (
    EMBEDDING,
    LOG_SCALE,
    SHIFT,
    SPEAKERS,
    Array,
    Module,
    from_pytorch,
    merge_norm_of_outputs,
    modules,
    posterior_modules,
    posterior_tables,
)
from voxline.registry.hub import CONFIG_FILE, HubModel

MODEL_TYPE = "vits"
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.json"
BLANK = 0
"""The number of the symbol between the letters, which is that of a letter, too."""


def hub_settings(model: HubModel, speaker: int = 0) -> VitsSettings:
    """The sizes that config.json states.

    Raises:
      WorkError: a size is missing or wrong, or the network differs from ours in another way.
    """
    config = model.config
    fixed = {"hidden_act": "relu", "wavenet_dilation_rate": 1, "depth_separable_channels": 2, "leaky_relu_slope": 0.1}
    fixed |= {"duration_predictor_tail_bound": VitsSettings.BOUND, "use_bias": True}
    try:
        for key, value in fixed.items():
            if config.get(key, value) != value:
                raise ValueError(f"{key} is {config[key]!r}, and {value!r} alone is known")
        speakers = int(config.get("num_speakers", 1))
        several = speakers > 1
        values: dict[str, Any] = {
            "between": bool(model.json_object(TOKENIZER_CONFIG).get("add_blank", True)),
            "ends": False,
            "units": config.get("hidden_size", 192),
            "heads": config.get("num_attention_heads", 2),
            "layers": config.get("num_hidden_layers", 6),
            "feed_forward": config.get("ffn_dim", 768),
            "kernel": config.get("ffn_kernel_size", 3),
            "window": config.get("window_size", 4),
            "latent": config.get("flow_size", 192),
            "flows": config.get("prior_encoder_num_flows", 4),
            "flow_layers": config.get("prior_encoder_num_wavenet_layers", 4),
            "flow_kernel": config.get("wavenet_kernel_size", 5),
            "durations": "stochastic" if config.get("use_stochastic_duration_prediction", True) else "fixed",
            "duration_channels": config.get("duration_predictor_filter_channels", 256),
            "duration_kernel": config.get("duration_predictor_kernel_size", 3),
            "duration_flows": int(config.get("duration_predictor_num_flows", 4)) - 1,
            "duration_layers": config.get("depth_separable_num_layers", 3),
            "duration_bins": config.get("duration_predictor_flow_bins", 10),
            "channels": config.get("upsample_initial_channel", 512),
            "upsample_rates": config.get("upsample_rates", (8, 8, 2, 2)),
            "upsample_kernels": config.get("upsample_kernel_sizes", (16, 16, 4, 4)),
            "residual_kernels": config.get("resblock_kernel_sizes", (3, 7, 11)),
            "residual_dilations": config.get("resblock_dilation_sizes", ((1, 3, 5),) * 3),
            "speakers": speakers if several else 0,
            "speaker_units": config["speaker_embedding_size"] if several else 0,
            "noise": config.get("noise_scale", 0.667),
            "duration_noise": config.get("noise_scale_duration", 0.8),
            "length": 1 / float(config.get("speaking_rate", 1.0)),
        }
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise WorkError(
            f"{model.folder / CONFIG_FILE}: without a setting of its network, or with a wrong one ({error}); get "
            f"{model.label} again"
        ) from None
    return VitsSettings.of({**values, "speaker": speaker}, source=str(model.folder / CONFIG_FILE))


def hub_letters(model: HubModel) -> tuple[list[str], list[int]]:
    """The letters of a voice, and the row of each in its embedding, then those of the blank and of the ends.

    Raises:
      SettingsError: the voice reads phonemes or a romanization, which only its own tokenizer writes.
      WorkError: a file is damaged.
    """
    tokenizer = model.json_object(TOKENIZER_CONFIG)
    if tokenizer.get("phonemize") or tokenizer.get("is_uroman"):
        what = "phonemes" if tokenizer.get("phonemize") else "a romanization by uroman"
        raise SettingsError(f"{model.label} reads {what} ({TOKENIZER_CONFIG}); voices that read letters are accepted")

    vocabulary = model.json_file(VOCABULARY_FILE)
    size = model.config.get("vocab_size")
    if not isinstance(vocabulary, dict) or not all(type(n) is int and n >= 0 for n in vocabulary.values()):
        raise WorkError(f"{model.folder / VOCABULARY_FILE}: absent, or no numbers of letters; get {model.label} again")
    letters = {letter: number for letter, number in vocabulary.items() if len(letter) == 1}
    if len(letters) < 2 or not isinstance(size, int) or max(vocabulary.values()) >= size:
        raise WorkError(
            f"{model.folder / VOCABULARY_FILE}: fewer than two letters, or more than vocab_size of {CONFIG_FILE}; get "
            f"{model.label} again"
        )
    rows = sorted(letters.items(), key=lambda row: row[1])
    return [letter for letter, _ in rows], [*(number for _, number in rows), BLANK, BLANK, BLANK]


def read_hub_weights(model: HubModel, settings: VitsSettings, rows: list[int]) -> dict[str, Array]:
    """The weights by our names, in our layouts.

    Args:
      rows: of the embedding, as `hub_letters` gives them.

    Raises:
      WorkError: a weight is absent or damaged.
    """
    tables = {EMBEDDING: "text_encoder.embed_tokens.weight"}
    if settings.durations == "stochastic":
        tables |= {SHIFT: "duration_predictor.flows.0.translate", LOG_SCALE: "duration_predictor.flows.0.log_scale"}
    if settings.speakers:
        tables[SPEAKERS] = "embed_speaker.weight"
    weights = read_modules(model, tables, list(modules(settings)))
    weights[EMBEDDING] = weights[EMBEDDING][rows]
    return weights


def has_posterior(model: HubModel) -> bool:
    """Returns whether the file has what only training needs."""
    return "posterior_encoder.conv_pre.weight" in tensor_files(model)


def read_hub_posterior(model: HubModel, settings: VitsSettings) -> dict[str, Array]:
    """The weights of `VitsPosterior` by our names, with as many convolutions as config.json states.

    Raises:
      WorkError: a weight is absent or damaged.
    """
    count = int(model.config.get("posterior_encoder_num_wavenet_layers", 16))
    return read_modules(model, posterior_tables(settings), list(posterior_modules(settings, count)))


def read_modules(model: HubModel, tables: dict[str, str], layers: list[Module]) -> dict[str, Array]:
    """Tables, by our names, and the weights of layers, in our layouts.

    Args:
      tables: our names of arrays, and those of the file, which are read as they are.

    Raises:
      WorkError: a weight is absent or damaged.
    """
    files = tensor_files(model)
    names = [*tables.values(), *(name for layer in layers for name in _names(layer, files))]
    tensors = read_tensors(model, names, files)

    weights = {ours: tensors[name] for ours, name in tables.items()}
    weights |= {name: weights[name].reshape(-1) for name in (SHIFT, LOG_SCALE) if name in weights}
    for layer in layers:
        try:
            weights |= _arrays(layer, [tensors[name] for name in _names(layer, files)])
        except ValueError as error:
            raise WorkError(f"{model.folder}: {layer.hub} has {error}; get {model.label} again") from None
    return weights


def require_shapes(model: HubModel, weights: dict[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses weights of other sizes than config.json says, before a network of these sizes takes its memory.

    Args:
      shapes: of weights, by our names.

    Raises:
      WorkError: names the first of another shape.
    """
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise WorkError(
                f"{model.label}: the weight {name} is of the shape {weights[name].shape}, and its sizes say {shape}"
            )


def _names(layer: Module, files: Any) -> list[str]:
    if layer.kind == "table":
        return [layer.hub]
    kernel = [f"{layer.hub}.weight"]
    if layer.weight_norm:
        pairs = [[part.format(name=layer.hub) for part in pair] for pair in WEIGHT_NORM]
        kernel = next((pair for pair in pairs if all(name in files for name in pair)), kernel)
    return [*kernel, f"{layer.hub}.bias"] if layer.bias else kernel


def _arrays(layer: Module, tensors: list[Array]) -> dict[str, Array]:
    if layer.kind == "table":
        return {layer.ours: from_pytorch(tensors[0], layer.kind)}
    if layer.kind == "norm":
        return {f"{layer.ours}/gamma": tensors[0], f"{layer.ours}/beta": tensors[1]}
    *kernel, bias = tensors if layer.bias else [*tensors, np.zeros(1, np.float32)]
    merged = merge_norm_of_outputs(*kernel) if len(kernel) == 2 else kernel[0]
    return {f"{layer.ours}/kernel": from_pytorch(merged, layer.kind), f"{layer.ours}/bias": bias}
