"""Public models to start from: what their config.json says as settings of ours, their symbols and their weights.

  model = open_hub_model("hf://openai/whisper-tiny.en@87c7102498dcde7456f24cfd30239ca606ed9063", ...)
  public_config(model)                 # defaults of the config: train.model, extract.features, convert.sample_rate
  find_public_parent(model, ...)       # the `Parent` that a training starts from

`PUBLIC` has an entry for each `model_type` of config.json. A further network needs its file in `networks/`, its names
in `hub_weights`, and an entry here.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, WorkError
from voxline.families.asr.networks.settings import MODELS, Wav2Vec2Settings
from voxline.inference.model_info import (
    ATTENTION,
    DatasetInfo,
    ModelInfo,
    Normalization,
    Provenance,
    TokenizerFile,
    read_tokenizer_file,
)
from voxline.progress import print_status
from voxline.registry.hub import CONFIG_FILE, HubModel, open_hub_model
from voxline.registry.parents import Ancestor, Parent
from voxline.text.ctc_vocabulary import CtcVocabulary, read_ctc_vocabulary
from voxline.text.public_tokenizer import TOKENIZER_JSON, TOKENIZER_MODEL, PublicTokenizer
from voxline.text.whisper_tokenizer import WhisperTokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.families.asr.hub_weights import WeightName

SETTING = "train.start.model"
SAMPLE_RATE = 16_000
"""Hz; of all public models here."""
PREPROCESSOR_FILE = "preprocessor_config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.json"


@dataclasses.dataclass(frozen=True)
class PublicNetwork:
    """How a kind of public model is read.

    Attributes:
      network: the settings of `train.model` that follow from config.json, and from files beside it.
      features: those of `extract.features`.
      names: the names of the weights, by config.json and the settings that `network` returned.
      symbols: of the output layer, without the blank; [] of a network without a CTC head.
      columns: of the symbols in the model's own output layer, and that of the blank; [] if it has our order.
      tokenizer: that spells texts; None of a model whose symbols do.
      kind: of the model, as `ModelInfo` has it.
    """

    network: Callable[[HubModel], dict[str, Any]]
    features: Callable[[HubModel], dict[str, Any]]
    names: "Callable[[Mapping[str, Any], Mapping[str, Any]], list[WeightName]]"
    symbols: Callable[[HubModel], list[str]] = lambda model: []
    columns: Callable[[HubModel], Sequence[int]] = lambda model: []
    tokenizer: Callable[[HubModel], TokenizerFile | None] = lambda model: None
    kind: str = "ctc"


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
        "extract": {"features": _features(network, model)},
        "convert": {"sample_rate": SAMPLE_RATE},
    }


def find_public_parent(location: str) -> Parent:
    """Opens a public model as a parent, and says what is not known of it; its weights are not read yet.

    Raises:
      SettingsError, TransientError, WorkError: as `public_config`; or it has no safetensors.
    """
    parent = open_public_parent(location)
    print_status(
        f"train: {parent.label} is a public model (licence: {parent.ancestor.licence or 'not stated'}): whose "
        "recordings it was trained on is not known, so a purge of a speaker does not find it by them"
    )
    return parent


def open_public_parent(location: str) -> Parent:
    """As `find_public_parent`, and says nothing."""
    from voxline.audio.feature_settings import FeatureSettings

    model = open_hub_model(location, SETTING, weights=True)
    network = public_network(model)
    settings = _network_settings(network, model)
    features = FeatureSettings.of({**_features(network, model), "sample_rate": SAMPLE_RATE})
    symbols = network.symbols(model)
    info = ModelInfo(
        name=model.name,
        family="asr",
        kind=network.kind,
        alphabet=symbols,
        sample_rate=SAMPLE_RATE,
        features=features.plain(),
        settings={"model": settings},
        dataset=DatasetInfo(),
        provenance=Provenance(),
        # Features come normalized, so that all networks of public models leave them as they are.
        normalization=Normalization(mean=[0.0] * features.bins, deviation=[1.0] * features.bins),
        tokenizer=network.tokenizer(model),
    )

    ancestor = Ancestor(model.name, None, model.digest(), "", model.revision, model.licence)
    return Parent(ancestor, info, None, location, model.folder, functools.partial(_read, model, network, settings))


def _network_settings(network: PublicNetwork, model: HubModel) -> dict[str, Any]:
    with _damaged(model):
        settings = network.network(model)
        # Sizes beyond every model are refused before anything is made of them.
        MODELS[settings["kind"]].settings.of(settings, source=str(model.folder / CONFIG_FILE))
        return settings


def _features(network: PublicNetwork, model: HubModel) -> dict[str, Any]:
    with _damaged(model):
        return network.features(model)


@contextmanager
def _damaged(model: HubModel) -> Iterator[None]:
    """Names the file whose values are none."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise WorkError(
            f"{model.folder / CONFIG_FILE}: without a setting of its network, or with a wrong one ({error}); get "
            f"{model.label} again"
        ) from None


def _read(model: HubModel, network: PublicNetwork, settings: Mapping[str, Any]) -> "dict[str, npt.NDArray[np.float32]]":
    from voxline.families.asr.hub_weights import read_weights

    weights = read_weights(model, network.names(model.config, settings), model.language)

    # The model's columns in the order of our symbols, the blank last: [units, symbols + 1] and [symbols + 1].
    columns = list(network.columns(model))
    for name in ("classifier/kernel", "classifier/bias") if columns else ():
        outputs = weights[name].shape[-1]
        if max(columns) >= outputs:
            raise WorkError(
                f"{model.folder}: a symbol has the number {max(columns)}, and the output layer {outputs} outputs; get "
                f"{model.label} again"
            )
        weights[name] = weights[name][..., columns]
    return weights


def _whisper_settings(model: HubModel) -> dict[str, Any]:
    config = model.config
    units = int(config["d_model"])
    if config["encoder_ffn_dim"] != 4 * units or config["decoder_ffn_dim"] != 4 * units:
        raise ValueError(f"encoder_ffn_dim and decoder_ffn_dim are not 4 · d_model, {4 * units}")
    if config["encoder_attention_heads"] != config["decoder_attention_heads"]:
        raise ValueError("encoder and decoder have other heads")
    for key, value in {"activation_function": "gelu", "scale_embedding": False, "tie_word_embeddings": True}.items():
        if config.get(key, value) != value:
            raise ValueError(f"{key} is {config[key]!r}, not {value!r}")
    return {
        "kind": "whisper",
        "layers": int(config["encoder_layers"]),
        "units": units,
        "heads": int(config["encoder_attention_heads"]),
        "positions": int(config["max_source_positions"]),
        "decoder_layers": int(config["decoder_layers"]),
        "tokens": int(config["vocab_size"]),
        "token_positions": int(config["max_target_positions"]),
        "alignment_heads": _alignment_heads(model),
    }


def _alignment_heads(model: HubModel) -> list[list[int]]:
    """Blocks and heads by which words get times; [] if the model names none."""
    heads = model.json_object(GENERATION_CONFIG).get("alignment_heads") or []
    return [[int(layer), int(head)] for layer, head in heads]


def _whisper_features(model: HubModel) -> dict[str, Any]:
    return {"kind": "whisper", "mels": int(model.config.get("num_mel_bins", 80))}


def _whisper_names(config: Mapping[str, Any], settings: Mapping[str, Any]) -> "list[WeightName]":
    from voxline.families.asr.hub_weights import WHISPER_DECODER, WHISPER_ENCODER, expand

    return [*expand(WHISPER_ENCODER, settings["layers"]), *expand(WHISPER_DECODER, settings["decoder_layers"])]


def _whisper_tokenizer(model: HubModel) -> TokenizerFile | None:
    path = model.folder / TOKENIZER_JSON
    if not path.is_file():
        return None  # its encoder alone needs none
    tokenizer = WhisperTokenizer.read(read_tokenizer_file(path))
    tokens = int(model.config["vocab_size"])
    largest = max(tokenizer.pieces, default=tokens)
    if largest >= tokens:
        raise WorkError(
            f"{path}: a token has the number {largest}, and the model {tokens:,} tokens (vocab_size); "
            f"get {model.label} again"
        )
    return TokenizerFile.of(tokenizer)


def _parakeet_settings(model: HubModel) -> dict[str, Any]:
    encoder = model.config["encoder_config"]
    units = int(encoder["hidden_size"])
    width, rest = divmod(int(encoder["intermediate_size"]), units)
    if rest:
        raise ValueError(f"intermediate_size is no multiple of hidden_size, {units}")
    fixed = {"hidden_act": "silu", "subsampling_factor": 8, "subsampling_conv_kernel_size": 3}
    for key, value in {**fixed, "subsampling_conv_stride": 2}.items():
        if encoder.get(key, value) != value:
            raise ValueError(f"{key} is {encoder[key]!r}, not {value!r}")
    return {
        "kind": "fastconformer",
        "channels": int(encoder["subsampling_conv_channels"]),
        "layers": int(encoder["num_hidden_layers"]),
        "units": units,
        "heads": int(encoder["num_attention_heads"]),
        "feed_forward": width,
        "kernel": int(encoder["conv_kernel_size"]),
        **{key: bool(encoder.get(key, True)) for key in ("attention_bias", "convolution_bias", "scale_input")},
        **{key: float(encoder.get(key, 0.0)) for key in ("dropout", "attention_dropout", "activation_dropout")},
        # Statistics of a small corpus would take the place of the parent's within a hundred steps.
        "fixed_statistics": True,
    }


def _parakeet_features(model: HubModel) -> dict[str, Any]:
    return {"kind": "nemo_mel", "mels": int(model.config["encoder_config"].get("num_mel_bins", 80))}


def _parakeet_names(config: Mapping[str, Any], settings: Mapping[str, Any]) -> "list[WeightName]":
    from voxline.families.asr.hub_weights import expand, fastconformer

    biases = {key: settings[key] for key in ("attention_bias", "convolution_bias")}
    return expand(fastconformer(**biases), settings["layers"])


def _tokenizer(model: HubModel) -> PublicTokenizer:
    """The tokenizer of a model with a CTC head; its pad token is the blank."""
    present = [name for name in (TOKENIZER_JSON, TOKENIZER_MODEL) if (model.folder / name).is_file()]
    if not present:
        raise WorkError(f"{model.folder}: neither {TOKENIZER_JSON} nor {TOKENIZER_MODEL}; get {model.label} again")
    blank = model.config.get("pad_token_id")
    classes = model.config.get("vocab_size")
    if not isinstance(blank, int) or not isinstance(classes, int) or blank < 0:
        raise WorkError(f"{model.folder / CONFIG_FILE}: without pad_token_id or vocab_size; get {model.label} again")
    tokenizer = PublicTokenizer.of(present[0], read_tokenizer_file(model.folder / present[0]), blank)
    if max(tokenizer.columns) >= classes:
        raise WorkError(
            f"{model.folder / present[0]}: a piece has the number {max(tokenizer.columns)}, and the model {classes:,} "
            f"outputs (vocab_size); get {model.label} again"
        )
    return tokenizer


def _wav2vec2_settings(model: HubModel) -> dict[str, Any]:
    return Wav2Vec2Settings.from_hub(model.config).plain()


def _wav2vec2_features(model: HubModel) -> dict[str, Any]:
    extractor = model.json_object(PREPROCESSOR_FILE)
    return {"kind": "waveform", "unit_variance": bool(extractor.get("do_normalize", True))}


def _wav2vec2_names(config: Mapping[str, Any], settings: Mapping[str, Any]) -> "list[WeightName]":
    from voxline.families.asr.hub_weights import wav2vec2_names

    # A model that is pre-trained only has no output layer, and the encoder alone has names without a prefix.
    architecture = _architecture(config)
    prefix = "" if architecture.endswith("Model") else f"{config['model_type']}."
    return wav2vec2_names(Wav2Vec2Settings.of(dict(settings)), prefix, head=architecture.endswith("ForCTC"))


def _wav2vec2_vocabulary(model: HubModel) -> CtcVocabulary | None:
    """None for a model that is pre-trained only."""
    if not _architecture(model.config).endswith("ForCTC"):
        return None

    tokenizer = {**model.json_object("special_tokens_map.json"), **model.json_object(TOKENIZER_CONFIG)}
    language = model.language or str(tokenizer.get("target_lang") or "eng")
    vocabulary = read_ctc_vocabulary(
        model.json_file(VOCABULARY_FILE), tokenizer, source=str(model.folder), language=language
    )

    # Adapters bring an output layer of their own.
    classes = model.config.get("vocab_size", 32)
    if not isinstance(classes, int):
        raise WorkError(f"{model.folder / CONFIG_FILE}: vocab_size is {classes!r}; get {model.label} again")
    if not model.language and max(vocabulary.columns) >= classes:
        raise WorkError(
            f"{model.folder / VOCABULARY_FILE}: a token has the number {max(vocabulary.columns)}, and the model "
            f"{classes} outputs (vocab_size); get {model.label} again"
        )
    return vocabulary


def _architecture(config: Mapping[str, Any]) -> str:
    """The class of the model whose weights these are; that with CTC if config.json does not say."""
    architectures = config.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else "ForCTC"


def _wav2vec2_symbols(model: HubModel) -> list[str]:
    vocabulary = _wav2vec2_vocabulary(model)
    return list(vocabulary.symbols) if vocabulary else []


def _wav2vec2_columns(model: HubModel) -> Sequence[int]:
    vocabulary = _wav2vec2_vocabulary(model)
    return vocabulary.columns if vocabulary else []


WAV2VEC2 = PublicNetwork(_wav2vec2_settings, _wav2vec2_features, _wav2vec2_names, _wav2vec2_symbols, _wav2vec2_columns)
PUBLIC: dict[str, PublicNetwork] = {
    "hubert": WAV2VEC2,
    "parakeet_ctc": PublicNetwork(
        _parakeet_settings,
        _parakeet_features,
        _parakeet_names,
        symbols=lambda model: list(_tokenizer(model).symbols),
        columns=lambda model: _tokenizer(model).columns,
        tokenizer=lambda model: TokenizerFile.of(_tokenizer(model)),
    ),
    "wav2vec2": WAV2VEC2,
    "whisper": PublicNetwork(
        _whisper_settings, _whisper_features, _whisper_names, tokenizer=_whisper_tokenizer, kind=ATTENTION
    ),
}
"""`model_type` of config.json → how it is read."""
