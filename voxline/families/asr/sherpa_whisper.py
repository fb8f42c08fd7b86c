"""Whisper with its decoder as a model of sherpa-onnx: `OfflineRecognizer.from_whisper` loads it.

encoder.onnx  mel float32 [1, bins, frames], Whisper's features, with zeros behind the recording
              → n_layer_cross_k, n_layer_cross_v, keys and values of the encodings in each block
decoder.onnx  tokens int64 [1, new]; in_n_layer_self_k_cache, in_n_layer_self_v_cache [blocks, 1, tokens, units], of
              which the first `offset` int64 [1] count; n_layer_cross_k, n_layer_cross_v → logits [1, new, vocabulary],
              out_n_layer_self_k_cache, out_n_layer_self_v_cache
tokens.txt    the bytes of each token in base64, and its number

sherpa-onnx hands keys and values from one graph to the other without looking at them, so theirs is our layout. It takes
the most probable token each time: what no text may have is made improbable in the graph, as `SearchRules` says. It
fills up with zeros, which are no silence to Whisper: the encoder finds the end of the recording, and fills up as our
own does.
"""

import base64
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.onnx_attention import DecoderGraph, memories_of
from voxline.inference.model_info import ModelInfo
from voxline.inference.onnx_decoder import DECODER_FILE, decoder_inputs, decoder_outputs
from voxline.inference.saved_model import exported_folder, read_model_info
from voxline.inference.sherpa_onnx import SAMPLE_RATE, TOKENS_FILE
from voxline.store.files import new_folder
from voxline.text.whisper_tokenizer import NO_TIMES, START, SearchRules, WhisperTokenizer
from voxline.training.onnx_graph import Graph
from voxline.training.warm_start import read_named_weights
from voxline.training.weight_names import weight_names

ENCODER_FILE = "encoder.onnx"
NEVER = np.float32(-1e9)
"""Added to the logits of tokens that cannot follow."""
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
"""Names of the token for a recording without speech, in newer and older tokenizers."""


def export_sherpa_whisper(model: Path | str, output: Path) -> list[Path]:
    """Writes the graphs and the tokens; whole or not at all.

    Args:
      model: an exported Whisper with its decoder; the precision is that of `train.export.onnx`, float32 without.
      output: a folder that does not exist yet, or is empty.

    Returns:
      The files.

    Raises:
      SettingsError: the folder holds something, or sherpa-onnx would compute other features.
      WorkError: the model is damaged.
    """
    folder = exported_folder(model)
    info = read_model_info(folder)
    features = FeatureSettings.of(info.features)
    if features != FeatureSettings(kind="whisper", mels=features.mels) or info.sample_rate != SAMPLE_RATE:
        raise SettingsError(
            f"{folder}: its features are not those of public models, which sherpa-onnx computes; train with those of "
            "the parent"
        )
    settings = WhisperSettings.of(dict(info.model_settings), source=f"{folder}/model.json")
    tokenizer = cast(WhisperTokenizer, info.read_alphabet(folder))
    with new_folder(output, "--output") as unfinished:
        network = _network(settings, info, folder)
        int8 = info.onnx_precision == "int8"
        (unfinished / ENCODER_FILE).write_bytes(_encoder(network, features, tokenizer, int8))
        (unfinished / DECODER_FILE).write_bytes(_decoder(network, tokenizer, int8))
        (unfinished / TOKENS_FILE).write_text(_tokens(tokenizer), encoding="utf-8", newline="\n")
    return [output / name for name in (ENCODER_FILE, DECODER_FILE, TOKENS_FILE)]


def _network(settings: WhisperSettings, info: ModelInfo, folder: Path) -> Any:
    network = Whisper(settings, bins=FeatureSettings.of(info.features).bins)
    weights = read_named_weights(info, folder)
    for name, variable in zip(weight_names(network), network.weights, strict=True):
        variable.assign(weights[name])
    return network


def _encoder(network: Any, features: FeatureSettings, tokenizer: WhisperTokenizer, int8: bool) -> bytes:
    graph = Graph(int8)

    # [1, bins, frames] → [1, frames, bins]; the last frame that is not zero in all bins ends the recording.
    values = graph("Transpose", "mel", perm=[0, 2, 1])
    real = graph("Cast", graph("ReduceMax", graph("Abs", values), axes=[2], keepdims=0), to=TensorProto.BOOL)
    places = graph("Range", np.int64(1), graph("Add", graph.size(values, 1), np.int64(1)), np.int64(1))
    frames = graph("ReduceMax", graph("Where", real, places, np.int64(0)), axes=[1], keepdims=0)

    memories = memories_of(graph, network, values, frames)
    first = np.array([0])
    keys, states = (
        graph("Concat", *(graph("Unsqueeze", value, first) for value in column), axis=0)
        for column in zip(*memories, strict=True)
    )
    shape = ["blocks", 1, network.settings.heads, None, None]
    return graph.finish(
        "encoder",
        [("mel", TensorProto.FLOAT, [1, features.bins, "frames"])],
        [("n_layer_cross_k", keys, TensorProto.FLOAT, shape), ("n_layer_cross_v", states, TensorProto.FLOAT, shape)],
        _metadata(network.settings, features, tokenizer),
    )


def _metadata(settings: WhisperSettings, features: FeatureSettings, tokenizer: WhisperTokenizer) -> dict[str, str]:
    """What sherpa-onnx reads of the network and its tokens."""
    numbers = tokenizer.numbers
    several = bool(settings.prompt.language)
    languages = tokenizer.languages
    no_speech = next((numbers[token] for token in NO_SPEECH if token in numbers), numbers[NO_TIMES] - 1)
    values: dict[str, Any] = {
        "model_type": "whisper",
        "version": 1,
        "maintainer": "voxline",
        "n_mels": features.bins,
        "n_audio_ctx": settings.positions,
        "n_audio_state": settings.units,
        "n_audio_head": settings.heads,
        "n_audio_layer": settings.layers,
        "n_vocab": settings.tokens,
        "n_text_ctx": settings.token_positions,
        "n_text_state": settings.units,
        "n_text_head": settings.heads,
        "n_text_layer": settings.decoder_layers,
        # The prompt but its last token, which asks for no times: sherpa-onnx adds that.
        "sot_sequence": ",".join(map(str, tokenizer.prompt[:-1])),
        "all_language_tokens": ",".join(map(str, languages.values())),
        "all_language_codes": ",".join(languages),
        "sot": numbers[START],
        "sot_index": 0,
        "eot": tokenizer.end,
        "blank_id": tokenizer.blank_token or 0,
        "is_multilingual": int(several),
        "no_speech": no_speech,
        "non_speech_tokens": "",
        "transcribe": numbers.get("<|transcribe|>", 0),
        "translate": numbers.get("<|translate|>", 0),
        "sot_prev": numbers.get("<|startofprev|>", 0),
        "sot_lm": numbers.get("<|startoflm|>", 0),
        "no_timestamps": numbers[NO_TIMES],
    }
    return {key: str(value) for key, value in values.items()}


def _decoder(network: Any, tokenizer: WhisperTokenizer, int8: bool) -> bytes:
    """The graph of our own decoder, between nodes that turn the inputs and outputs of sherpa-onnx into its own."""
    settings = network.settings
    blocks = settings.decoder_layers
    size = settings.units // settings.heads
    model = onnx.load_model_from_string(DecoderGraph(network, int8).build())
    inside: Any = model.graph
    rules = SearchRules.of(tokenizer, settings.tokens)
    constants = {
        "sherpa_zero": np.array([0]),
        "sherpa_none": np.array(0),
        "sherpa_single": np.array(1),
        "sherpa_axis": np.array([2]),
        "sherpa_heads": np.array([1, -1, settings.heads, size]),
        "sherpa_joined": np.array([1, 1, -1, settings.units]),
        "sherpa_rules": np.maximum(rules.penalties, NEVER),
        "sherpa_first_rules": np.maximum(rules.first_penalties, NEVER),
        "sherpa_no_rules": np.zeros_like(rules.penalties),
        **{f"sherpa_block_{block}": np.array(block) for block in range(blocks)},
    }

    # A text has one row. Of the cache, the tokens before `offset` count: [blocks, 1, tokens, units].
    before = [helper.make_node("Identity", ["sherpa_zero"], ["source"])]
    memories = decoder_inputs(blocks)[2 : 2 + 2 * blocks]
    for place, name in enumerate(memories):
        block, kind = divmod(place, 2)
        number = f"sherpa_block_{block}"
        before.append(
            helper.make_node("Gather", [("n_layer_cross_k", "n_layer_cross_v")[kind], number], [name], axis=0)
        )
        cache = ("in_n_layer_self_k_cache", "in_n_layer_self_v_cache")[kind]
        past = f"sherpa_past_{place}"
        before += [
            helper.make_node("Slice", [cache, "sherpa_zero", "offset", "sherpa_axis"], [f"{past}_all"]),
            helper.make_node("Gather", [f"{past}_all", number], [f"{past}_block"], axis=0),
            helper.make_node("Reshape", [f"{past}_block", "sherpa_heads"], [f"{past}_split"]),
            helper.make_node("Transpose", [f"{past}_split"], [f"cached_{name}"], perm=[0, 2, 1, 3]),
        ]

    # [1, heads, tokens, size] → [1, 1, tokens, units]
    logits, _, *caches = decoder_outputs(blocks)
    after = []
    for place, name in enumerate(caches):
        turned = f"sherpa_new_{place}"
        after += [
            helper.make_node("Transpose", [name], [f"{turned}_turned"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"{turned}_turned", "sherpa_joined"], [turned]),
        ]
    for kind, output in enumerate(("out_n_layer_self_k_cache", "out_n_layer_self_v_cache")):
        parts = [f"sherpa_new_{2 * block + kind}" for block in range(blocks)]
        after.append(helper.make_node("Concat", parts, [output], axis=0))

    # The start token alone asks for the language: then nothing is left out.
    after += [
        helper.make_node("Shape", ["tokens"], ["sherpa_count"], start=1, end=2),
        helper.make_node("Squeeze", ["sherpa_count"], ["sherpa_tokens"]),
        helper.make_node("Squeeze", ["offset"], ["sherpa_offset"]),
        helper.make_node("Equal", ["sherpa_offset", "sherpa_none"], ["sherpa_begins"]),
        helper.make_node("Equal", ["sherpa_tokens", "sherpa_single"], ["sherpa_asks"]),
        helper.make_node("Where", ["sherpa_asks", "sherpa_no_rules", "sherpa_first_rules"], ["sherpa_begin_rules"]),
        helper.make_node("Where", ["sherpa_begins", "sherpa_begin_rules", "sherpa_rules"], ["sherpa_follows"]),
        helper.make_node("Add", ["sherpa_logits", "sherpa_follows"], [logits]),
    ]
    for node in inside.node:
        node.output[:] = ["sherpa_logits" if name == logits else name for name in node.output]

    declare = helper.make_tensor_value_info
    cache_shape = [blocks, 1, None, settings.units]
    memory_shape = [blocks, 1, settings.heads, None, None]
    wrapped = helper.make_graph(
        [*before, *inside.node, *after],
        inside.name,
        [
            declare("tokens", TensorProto.INT64, [1, "new"]),
            declare("in_n_layer_self_k_cache", TensorProto.FLOAT, cache_shape),
            declare("in_n_layer_self_v_cache", TensorProto.FLOAT, cache_shape),
            declare("n_layer_cross_k", TensorProto.FLOAT, memory_shape),
            declare("n_layer_cross_v", TensorProto.FLOAT, memory_shape),
            declare("offset", TensorProto.INT64, [1]),
        ],
        [
            declare(logits, TensorProto.FLOAT, [1, "new", settings.tokens]),
            declare("out_n_layer_self_k_cache", TensorProto.FLOAT, cache_shape),
            declare("out_n_layer_self_v_cache", TensorProto.FLOAT, cache_shape),
        ],
        [*inside.initializer, *(numpy_helper.from_array(value, name) for name, value in constants.items())],
    )
    built = helper.make_model(
        wrapped, opset_imports=list(model.opset_import), ir_version=model.ir_version, producer_name="voxline"
    )
    onnx.checker.check_model(built)
    data: bytes = built.SerializeToString()
    return data


def _tokens(tokenizer: WhisperTokenizer) -> str:
    """The bytes of each token in base64, and its number; special tokens have none."""
    return "".join(
        f"{base64.b64encode(piece).decode()} {number}\n" for number, piece in sorted(tokenizer.pieces.items())
    )
