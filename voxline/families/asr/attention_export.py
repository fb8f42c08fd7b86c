"""The exported Whisper with its decoder: waveforms in, text out, with features, network and beam search in the graph.

The signatures `transcribe`, `beam_search` and `align` take waveforms float32 [batch, samples], in [-1, 1] at
`sample_rate`, of 30 seconds at most, and lengths int32 [batch]; the latter two take the number of beams too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from voxline.audio import feature_settings
from voxline.audio import features as audio_features
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.families.asr import frontend, token_search
from voxline.families.asr.export import WAVEFORM_SIGNATURE
from voxline.families.asr.networks import settings as models
from voxline.families.asr.networks import whisper
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.token_search import align_tokens, search_tokens
from voxline.inference.model_info import ATTENTION
from voxline.inference.saved_model import read_model_info
from voxline.store.hashing import hash_bytes, hash_file, hash_value
from voxline.text import whisper_tokenizer
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer
from voxline.training import layers
from voxline.training.checkpoints import Arrays
from voxline.training.export import model_info, write_exported, write_with_graph_of
from voxline.training.layers import Tensor
from voxline.training.weight_names import weight_names


class AttentionGraph(tf.Module):  # type: ignore[misc]
    """Features, encoder, decoder and search as one graph."""

    def __init__(self, model: Whisper, features: FeatureSettings, tokenizer: WhisperTokenizer) -> None:
        super().__init__()
        self._features = features
        tokens = model.settings.tokens
        rules = SearchRules.of(tokenizer, tokens)

        # Behind functions, so that the SavedModel holds weights and signatures but no Keras objects.
        def search(encoded: Tensor, mask: Tensor, beams: Tensor | int) -> tuple[Tensor, ...]:
            return search_tokens(model.decoder, encoded, mask, rules, beams)

        def align(tokens: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
            return align_tokens(model.decoder, tokens, encoded, rules)

        self._encode: Callable[..., tuple[Tensor, Tensor]] = lambda features, frames: model.encode(features, frames)
        self._search: Callable[..., tuple[Tensor, ...]] = search
        self._align: Callable[..., tuple[Tensor, Tensor]] = align
        self.weights = [variable.value for variable in model.weights]
        # The bytes of each token, [tokens]; those of special tokens are empty.
        self._pieces = tf.constant([tokenizer.pieces.get(number, b"") for number in range(tokens)])

    @tf.function(input_signature=WAVEFORM_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def transcribe(self, waveforms: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Greedy decoding: text string [batch], scores float32 [batch], counts int32 [batch]; see `beam_search`."""
        outputs = self._decode(waveforms, lengths, 1)
        return {"text": outputs["texts"][:, 0], "scores": outputs["scores"][:, 0], "counts": outputs["counts"][:, 0]}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(*WAVEFORM_SIGNATURE, tf.TensorSpec([], tf.int32, name="beams")), autograph=False
    )
    def beam_search(self, waveforms: Tensor, lengths: Tensor, beams: Tensor) -> dict[str, Tensor]:
        """Beam search, the best text first.

        Returns:
          texts string [batch, beams]; scores float32 [batch, beams], the mean log probability of the tokens of each;
          counts int32 [batch, beams], how many tokens these are, the end token included.
        """
        return self._decode(waveforms, lengths, beams)

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=(*WAVEFORM_SIGNATURE, tf.TensorSpec([], tf.int32, name="beams")), autograph=False
    )
    def align(self, waveforms: Tensor, lengths: Tensor, beams: Tensor) -> dict[str, Tensor]:
        """Beam search, and for the times of words what the best text attends to.

        Returns:
          what `beam_search` returns; of the best text pieces string [batch, tokens], empty from the end token on, and
          log_probabilities float32 [batch, tokens]; and attention float32 [batch, heads, prompt + tokens, frames], of
          the prompt, then of the tokens, scores before their softmax.
        """
        encoded, mask = self._encode(*frontend.graph_features(waveforms, lengths, self._features))
        tokens, scores, counts = self._search(encoded, mask, beams)
        log_probabilities, attention = self._align(tokens[:, 0], encoded)
        return {
            **self._texts(tokens, scores, counts),
            "pieces": tf.gather(self._pieces, tokens[:, 0]),
            "log_probabilities": log_probabilities,
            "attention": attention,
        }

    def _decode(self, waveforms: Tensor, lengths: Tensor, beams: Tensor | int) -> dict[str, Tensor]:
        encoded, mask = self._encode(*frontend.graph_features(waveforms, lengths, self._features))
        return self._texts(*self._search(encoded, mask, beams))

    def _texts(self, tokens: Tensor, scores: Tensor, counts: Tensor) -> dict[str, Tensor]:
        # [batch, beams, tokens] → [batch, beams]
        texts = tf.strings.reduce_join(tf.gather(self._pieces, tokens), axis=2)
        return {"texts": texts, "scores": scores, "counts": counts}


def export_attention(
    folder: Path,
    settings: AsrTrainSettings,
    dataset: Dataset,
    weights: Arrays,
    training: dict[str, Any],
    parent: Path | None = None,
) -> None:
    """Writes the exported model, whole or not at all; with ONNX graphs of the network if the settings want them.

    Args:
      weights: as `TrainModule.weights` returned them.
      training: what model.json says about the training: steps, dev WER, ….
      parent: the exported model that the training started from, if any; its graph is used if this one would be equal.
    """
    tokenizer = cast(WhisperTokenizer, dataset.alphabet)
    graph = attention_graph_key(settings, dataset)
    files: dict[str, bytes] = {tokenizer.file: tokenizer.content}

    # Tracing and saving a graph takes seconds; a daily retraining has the graph of its parent.
    parent_info = read_model_info(parent) if parent else None
    has_graph = parent_info is not None and parent_info.graph == graph
    if parent and parent_info and has_graph and settings.export.onnx == "none":
        info = model_info(ATTENTION, settings, dataset, training, parent_info.weights, graph=graph)
        write_with_graph_of(parent, folder, list(weights.values()), info, files)
        return

    whisper_settings = cast(WhisperSettings, settings.model)
    network = Whisper(whisper_settings, bins=dataset.features.bins, precision=settings.export.precision)
    for index, variable in enumerate(network.weights):
        variable.assign(weights[f"model/{index}"])

    if settings.export.onnx != "none":
        from voxline.families.asr.onnx_attention import export_onnx_attention

        files |= export_onnx_attention(network, dataset.features, settings.export.onnx)

    info = model_info(ATTENTION, settings, dataset, training, weight_names(network), graph=graph)
    if parent and has_graph:
        write_with_graph_of(parent, folder, list(weights.values()), info, files)
        return

    module = AttentionGraph(network, dataset.features, tokenizer)
    signatures = {
        "transcribe": module.transcribe,
        "beam_search": module.beam_search,
        "align": module.align,
        "serving_default": module.transcribe,
    }
    write_exported(folder, module, signatures, info, files)


def attention_graph_key(settings: AsrTrainSettings, dataset: Dataset) -> str:
    """Hash of all that the graph is traced from, code and versions included: equal if the graphs are."""
    tokenizer = cast(WhisperTokenizer, dataset.alphabet)
    traced = (
        whisper,
        whisper_tokenizer,
        layers,
        models,
        frontend,
        token_search,
        audio_features,
        feature_settings,
    )
    files = [Path(__file__), *(Path(str(module.__file__)) for module in traced)]
    return hash_value(
        {
            "code": sorted(hash_file(file) for file in files),
            "versions": [tf.__version__, keras.__version__, np.__version__],
            "model": settings.model.plain(),
            "precision": settings.export.precision,
            "features": dataset.features.plain(),
            "tokenizer": hash_bytes(tokenizer.content),
            "prompt": list(tokenizer.prompt),
        }
    )
