"""Recognizers of public networks as folders of the Hugging Face Hub: `transformers` loads them, and so do we.

  export_to_hub("registry/asr", Path("asr-hub"))

  config.json, model.safetensors, preprocessor_config.json      network, weights, features
  tokenizer.json or vocab.json, tokenizer_config.json           what the output layer writes
  generation_config.json                                        of Whisper: its prompt, and tokens that no text has
  README.md                                                     the card

The weights are those of the exported model, which evaluate has judged: updates of LoRA are merged in them. Their names
and layouts are those of `hub_weights`, by which public models are read. Before the folder has its name, our own reader
opens it and computes a recording as the exported model does.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import WorkError
from voxline.families.asr.export_checks import check_hub_export, check_hub_kind
from voxline.families.asr.hub_card import hub_card
from voxline.families.asr.hub_weights import (
    WHISPER_DECODER,
    WHISPER_ENCODER,
    WeightName,
    expand,
    fastconformer,
    wav2vec2_names,
    write_weights,
)
from voxline.families.asr.networks.settings import (
    HUB_KEYS,
    MODELS,
    CtcModelSettings,
    FastConformerSettings,
    Wav2Vec2Settings,
    WhisperSettings,
)
from voxline.families.asr.public_parents import GENERATION_CONFIG, PREPROCESSOR_FILE, TOKENIZER_CONFIG, VOCABULARY_FILE
from voxline.inference.model_info import ModelInfo
from voxline.inference.saved_model import exported_folder, read_model_info, require_family
from voxline.registry.hub import CARD_FILE, CONFIG_FILE, WEIGHTS_FILE
from voxline.store.files import new_folder, write_json, write_text
from voxline.text.alphabet import IDEOGRAPHS, Alphabet
from voxline.text.ctc_vocabulary import SPECIAL_TOKENS, WORD_DELIMITER
from voxline.text.public_tokenizer import SPACE_MARK, TOKENIZER_JSON, PublicTokenizer
from voxline.text.whisper_tokenizer import NO_TIMES, START, WhisperTokenizer
from voxline.training.warm_start import read_named_weights

Array = npt.NDArray[Any]

NEVER = -1e4
"""The bias of an output that stands for no symbol: e to this is 0, and float16 holds it."""
PAD = SPECIAL_TOKENS["pad_token"]
UNKNOWN = SPECIAL_TOKENS["unk_token"]
_TASKS = ("transcribe", "translate")


@dataclasses.dataclass(frozen=True)
class HubFiles:
    """What the folder of a model has beside weights and card.

    Attributes:
      names: of the weights.
      texts: file → its bytes, or a JSON value.
      columns: of each symbol and of the blank, among `classes` outputs; () of a decoder, whose tokens keep their order.
    """

    names: list[WeightName]
    texts: dict[str, Any]
    columns: tuple[int, ...] = ()
    classes: int = 0


def export_to_hub(model: Path | str, output: Path, *, repository: str = "", language: str = "") -> list[Path]:
    """Writes an exported recognizer as a folder that `transformers` loads; whole or not at all.

    Args:
      model: an exported model, or a version of a registry, on this machine.
      output: a folder that does not exist yet, or is empty.
      repository: `owner/name`, which the card calls it; empty: the folder's name.
      language: for the card, by ISO 639; empty: the one that the model is asked for, if any.

    Returns:
      Its files.

    Raises:
      SettingsError: the folder holds something; or `transformers` has no class that computes what the model does.
      WorkError: the model is damaged, or what was written is not what was judged.
    """
    folder = exported_folder(model)
    info = read_model_info(folder)
    require_family(info, "asr", folder)
    network = _network_settings(info, folder)
    check_hub_export(network, info.name)
    with new_folder(output, "--output") as unfinished:
        files = FORMS[network.kind](network, info, info.read_alphabet(folder))
        weights = read_named_weights(info, folder)
        if files.columns:
            weights |= {
                "classifier/kernel": spread(weights["classifier/kernel"], files.columns, files.classes, 0.0),
                "classifier/bias": spread(weights["classifier/bias"], files.columns, files.classes, NEVER),
            }

        write_weights(unfinished / WEIGHTS_FILE, weights, files.names)
        for name, content in files.texts.items():
            if isinstance(content, bytes):
                (unfinished / name).write_bytes(content)
            else:
                write_json(unfinished / name, content)
        write_text(unfinished / CARD_FILE, hub_card(folder, info, repository or output.name, language))

        from voxline.families.asr.hub_checks import check_folder

        check_folder(unfinished, folder, info)
    return sorted(output.iterdir())


def spread(values: Array, columns: Sequence[int], classes: int, fill: float) -> Array:
    """The last axis in the order of a public model's outputs.

    Args:
      columns: the place of each value.
      fill: at the other places.

    >>> spread(np.float32([[1, 2, 9]]), (3, 1, 0), 4, 0.0).tolist()
    [[9.0, 2.0, 0.0, 1.0]]
    """
    result = np.full((*values.shape[:-1], classes), fill, np.float32)
    result[..., list(columns)] = values
    return result


def _network_settings(info: ModelInfo, folder: Path) -> CtcModelSettings:
    kind = str(info.model_settings.get("kind", ""))
    check_hub_kind(kind, info.name)
    return MODELS[kind].settings.of(dict(info.model_settings), source=f"{folder}/model.json")


def _whisper(settings: CtcModelSettings, info: ModelInfo, alphabet: Alphabet) -> HubFiles:
    """The whole of Whisper: `WhisperForConditionalGeneration`."""
    settings = cast(WhisperSettings, settings)
    tokenizer = cast(WhisperTokenizer, alphabet)
    features = FeatureSettings.of(info.features)
    numbers = tokenizer.numbers
    end = tokenizer.end
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": numbers[START]}
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "dtype": "float32",
        "is_encoder_decoder": True,
        "d_model": settings.units,
        "encoder_layers": settings.layers,
        "decoder_layers": settings.decoder_layers,
        "encoder_attention_heads": settings.heads,
        "decoder_attention_heads": settings.heads,
        "encoder_ffn_dim": 4 * settings.units,
        "decoder_ffn_dim": 4 * settings.units,
        "max_source_positions": settings.positions,
        "max_target_positions": settings.token_positions,
        "num_mel_bins": features.bins,
        "vocab_size": settings.tokens,
        "activation_function": "gelu",
        "dropout": settings.dropout,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
        **ends,
    }

    # Seconds that it hears at a time: a whole number in every public model.
    samples = 2 * settings.positions * features.hop_length
    seconds = samples // info.sample_rate if samples % info.sample_rate == 0 else samples / info.sample_rate
    extractor = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": features.bins,
        "sampling_rate": info.sample_rate,
        "hop_length": features.hop_length,
        "n_fft": features.n_fft,
        "chunk_length": seconds,
        "n_samples": samples,
        "nb_max_frames": 2 * settings.positions,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }

    prompt = settings.prompt
    prompt_settings = {"language": prompt.language, "task": prompt.task} if prompt.language else {}
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>")
    texts = {
        CONFIG_FILE: config,
        PREPROCESSOR_FILE: extractor,
        TOKENIZER_JSON: tokenizer.content,
        TOKENIZER_CONFIG: {
            "tokenizer_class": "WhisperTokenizer",
            "processor_class": "WhisperProcessor",
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "errors": "replace",
            "model_max_length": settings.token_positions,
            **special,
            **prompt_settings,
        },
        GENERATION_CONFIG: {**ends, **_generation(settings, tokenizer), **prompt_settings},
    }
    names = [*expand(WHISPER_ENCODER, settings.layers), *expand(WHISPER_DECODER, settings.decoder_layers)]
    return HubFiles(names, texts)


def _generation(settings: WhisperSettings, tokenizer: WhisperTokenizer) -> dict[str, Any]:
    """What `generate` asks for and leaves out, as `token_search` does: greedy, without times."""
    numbers = tokenizer.numbers
    no_times = numbers[NO_TIMES]

    # Times, behind that token, stay possible: long recordings are cut by them, if somebody asks for it.
    of_texts = {*tokenizer.pieces, tokenizer.end}
    never = [number for number in range(no_times + 1) if number not in of_texts]
    first = [tokenizer.end] if tokenizer.blank_token is None else [tokenizer.blank_token, tokenizer.end]
    several = bool(settings.prompt.language)
    languages = {f"<|{language}|>": number for language, number in tokenizer.languages.items()}
    tasks = {task: numbers[f"<|{task}|>"] for task in _TASKS if f"<|{task}|>" in numbers}
    earlier = numbers.get("<|startofprev|>")
    return {
        "do_sample": False,
        "num_beams": 1,
        "max_length": settings.token_positions,
        "return_timestamps": False,
        "no_timestamps_token_id": no_times,
        "suppress_tokens": never,
        "begin_suppress_tokens": first,
        "is_multilingual": several,
        **({"lang_to_id": languages, "task_to_id": tasks} if several else {}),
        **({} if earlier is None else {"prev_sot_token_id": earlier}),
        **({"alignment_heads": list(map(list, settings.alignment_heads))} if settings.alignment_heads else {}),
    }


def _wav2vec2(settings: CtcModelSettings, info: ModelInfo, alphabet: Alphabet) -> HubFiles:
    """`Wav2Vec2ForCTC`; `HubertForCTC` if there is no norm before the projection, which the former always has."""
    settings = cast(Wav2Vec2Settings, settings)
    kind = "wav2vec2" if settings.projection_norm else "hubert"
    plain = settings.plain()
    vocabulary = _vocabulary(alphabet)
    columns = (*list(vocabulary.values())[len(SPECIAL_TOKENS) :], vocabulary[PAD])
    masks = bool(settings.time_masks or settings.unit_masks)
    config = {
        "model_type": kind,
        "architectures": ["Wav2Vec2ForCTC" if kind == "wav2vec2" else "HubertForCTC"],
        "dtype": "float32",
        **{key: plain[name] for name, key in HUB_KEYS.items()},
        "adapter_attn_dim": settings.adapter or None,
        "num_feat_extract_layers": len(settings.channels),
        "hidden_act": "gelu",
        "feat_extract_activation": "gelu",
        "hidden_dropout": settings.hidden_dropout,
        "attention_dropout": settings.attention_dropout,
        "activation_dropout": settings.activation_dropout,
        "feat_proj_dropout": settings.projection_dropout,
        "final_dropout": settings.final_dropout,
        "layerdrop": settings.layer_drop,
        "apply_spec_augment": masks,
        "mask_time_prob": settings.time_masks,
        "mask_time_length": settings.time_mask_frames,
        "mask_time_min_masks": settings.least_time_masks,
        "mask_feature_prob": settings.unit_masks,
        "mask_feature_length": settings.unit_mask_width,
        "ctc_loss_reduction": "mean",
        "ctc_zero_infinity": True,
        "vocab_size": len(vocabulary),
        "pad_token_id": vocabulary[PAD],
        "bos_token_id": vocabulary["<s>"],
        "eos_token_id": vocabulary["</s>"],
    }
    features = FeatureSettings.of(info.features)
    extractor = {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "processor_class": "Wav2Vec2Processor",
        "do_normalize": features.unit_variance,
        "feature_size": 1,
        "sampling_rate": info.sample_rate,
        "padding_side": "right",
        "padding_value": 0.0,
        # The group norm of the first convolution would see what is masked, as in the published models.
        "return_attention_mask": settings.convolution_norm == "layer",
    }
    tokenizer = {
        "tokenizer_class": "Wav2Vec2CTCTokenizer",
        "processor_class": "Wav2Vec2Processor",
        **SPECIAL_TOKENS,
        "word_delimiter_token": _delimiter(alphabet),
        "do_lower_case": False,
        "clean_up_tokenization_spaces": False,
        "target_lang": None,
    }
    names = wav2vec2_names(settings, f"{kind}.")
    # The network of transformers has it where training masks.
    names = names if masks else [row for row in names if row.ours != "mask"]
    texts = {
        CONFIG_FILE: config,
        PREPROCESSOR_FILE: extractor,
        VOCABULARY_FILE: vocabulary,
        TOKENIZER_CONFIG: tokenizer,
    }
    return HubFiles(names, texts, columns, len(vocabulary))


def _vocabulary(alphabet: Alphabet) -> dict[str, int]:
    """vocab.json in the order of published models: special tokens, then the symbols, with the delimiter for a space."""
    delimiter = _delimiter(alphabet)
    tokens = [PAD, "<s>", "</s>", UNKNOWN, *(delimiter if symbol == " " else symbol for symbol in alphabet.symbols)]
    if len(set(tokens)) < len(tokens):
        raise WorkError(f"a symbol of the model's alphabet is one of {', '.join(SPECIAL_TOKENS.values())}")
    return {token: number for number, token in enumerate(tokens)}


def _delimiter(alphabet: Alphabet) -> str:
    """What stands for a space: "|", unless that is a symbol."""
    return next(mark for mark in (WORD_DELIMITER, "¦", "‖", SPACE_MARK) if mark not in alphabet.symbols)


def _fastconformer(settings: CtcModelSettings, info: ModelInfo, alphabet: Alphabet) -> HubFiles:
    """`ParakeetForCTC`."""
    settings = cast(FastConformerSettings, settings)
    features = FeatureSettings.of(info.features)
    if isinstance(alphabet, PublicTokenizer):
        columns = alphabet.columns
        tokenizer: dict[str, bytes] = {alphabet.file: alphabet.content}
    else:
        # "<unk>", the symbols, the blank.
        columns = tuple(range(1, len(alphabet.symbols) + 2))
        tokenizer = {TOKENIZER_JSON: tokenizer_json(alphabet, info.name)}
    blank = columns[-1]
    special = {"pad_token": PAD, "unk_token": UNKNOWN}
    if TOKENIZER_JSON in tokenizer:
        tokenizer[TOKENIZER_JSON], special = _with_blank(tokenizer[TOKENIZER_JSON], blank, info.name)
    classes = max(columns) + 1
    encoder = {
        "model_type": "parakeet_encoder",
        "hidden_size": settings.units,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.heads,
        "intermediate_size": settings.feed_forward * settings.units,
        "hidden_act": "silu",
        "attention_bias": settings.attention_bias,
        "convolution_bias": settings.convolution_bias,
        "conv_kernel_size": settings.kernel,
        "scale_input": settings.scale_input,
        "num_mel_bins": features.bins,
        "subsampling_factor": settings.time_stride,
        "subsampling_conv_channels": settings.channels,
        "subsampling_conv_kernel_size": 3,
        "subsampling_conv_stride": 2,
        "dropout": settings.dropout,
        "dropout_positions": 0.0,
        "layerdrop": 0.0,
        "attention_dropout": settings.attention_dropout,
        "activation_dropout": settings.activation_dropout,
    }
    config = {
        "model_type": "parakeet_ctc",
        "architectures": ["ParakeetForCTC"],
        "dtype": "float32",
        "vocab_size": classes,
        "pad_token_id": blank,
        "ctc_loss_reduction": "mean",
        "ctc_zero_infinity": True,
        "encoder_config": encoder,
    }
    extractor = {
        "feature_extractor_type": "ParakeetFeatureExtractor",
        "processor_class": "ParakeetProcessor",
        "feature_size": features.bins,
        "sampling_rate": info.sample_rate,
        "hop_length": features.hop_length,
        "n_fft": features.n_fft,
        "win_length": features.win_length,
        "preemphasis": features.preemphasis_factor,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    texts: dict[str, Any] = {
        CONFIG_FILE: config,
        PREPROCESSOR_FILE: extractor,
        **tokenizer,
        TOKENIZER_CONFIG: {
            "tokenizer_class": "ParakeetTokenizer",
            "processor_class": "ParakeetProcessor",
            "clean_up_tokenization_spaces": False,
            **special,
        },
    }
    biases = {"attention_bias": settings.attention_bias, "convolution_bias": settings.convolution_bias}
    return HubFiles(expand(fastconformer(**biases), settings.layers), texts, columns, classes)


def _with_blank(content: bytes, blank: int, name: str) -> tuple[bytes, dict[str, str]]:
    """A tokenizer.json with a piece of the blank's number, and the names of that and of the unknown piece.

    Raises:
      WorkError: the blank would have another number.
    """
    from tokenizers import AddedToken, Tokenizer

    # Some leave the blank out; `transformers` adds a pad token behind the last piece.
    tokenizer: Any = Tokenizer.from_buffer(content)
    if tokenizer.id_to_token(blank) is None:
        tokenizer.add_special_tokens([AddedToken(PAD, special=True)])
        if tokenizer.token_to_id(PAD) != blank:
            raise WorkError(f"{name}: its tokenizer has the blank at {blank}, where no further piece can be added")
        content = str(tokenizer.to_str()).encode()
    model = json.loads(content)["model"]
    unknown = model.get("unk_token") or tokenizer.id_to_token(model["unk_id"] if model.get("unk_id") is not None else 0)
    return content, {"pad_token": tokenizer.id_to_token(blank), "unk_token": unknown or UNKNOWN}


def tokenizer_json(alphabet: Alphabet, name: str) -> bytes:
    """A tokenizer.json of an alphabet of ours, in which "▁" is a space: "<unk>", the symbols, and the blank.

    Subwords are joined in the order of their labels, within words, as `Alphabet.encode` joins them.

    Raises:
      WorkError: "▁" is a symbol itself.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    symbols = [symbol.replace(" ", SPACE_MARK) for symbol in alphabet.symbols]
    if any(SPACE_MARK in symbol for symbol in alphabet.symbols):
        raise WorkError(f"{name}: {SPACE_MARK!r} is in its alphabet, and stands for a space in {TOKENIZER_JSON}")
    known = set(symbols)
    merges = [
        (symbol[:place], symbol[place:])
        for symbol in symbols
        for place in range(1, len(symbol))
        if symbol[:place] in known and symbol[place:] in known
    ]
    vocabulary = {token: number for number, token in enumerate([UNKNOWN, *symbols])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"[{SPACE_MARK}{IDEOGRAPHS}]"), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(UNKNOWN, special=True), AddedToken(PAD, special=True)])
    return str(tokenizer.to_str()).encode()


FORMS: Mapping[str, Callable[[CtcModelSettings, ModelInfo, Alphabet], HubFiles]] = {
    "fastconformer": _fastconformer,
    "wav2vec2": _wav2vec2,
    "whisper": _whisper,
}
"""`train.model.kind` → the files of a model."""
