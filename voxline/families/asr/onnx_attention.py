"""Whisper with its decoder as two ONNX graphs; `inference.onnx_decoder` searches texts with them.

Encoder  waveforms float32 [batch, samples] in [-1, 1]; lengths int32 [batch], samples; 30 seconds at most
         → of each block of the decoder, keys_n float32 [batch, heads, size, frames] and
         values_n [batch, heads, frames, size] of the encodings
Decoder  tokens int64 [rows, new]; source int64 [rows], the row of the cache that each continues; keys_n, values_n of
         the encoder; cached_keys_n, cached_values_n float32 [rows before, heads, earlier tokens, size]
         → logits float32 [rows, new, vocabulary]; attention float32 [batch, alignment heads, rows / batch · new,
         frames], scores before their softmax; new_keys_n, new_values_n, the cache with the new tokens
"""

import dataclasses
from typing import Any, Literal

import numpy as np
from onnx import TensorProto

from voxline.audio.feature_settings import FeatureSettings
from voxline.families.asr.export_checks import check_onnx_export
from voxline.families.asr.networks.settings import LEAST, SILENCE
from voxline.families.asr.onnx import (
    Array,
    joined_weights,
    waveform_features,
    whisper_convolutions,
    whisper_feed_forward,
)
from voxline.inference.onnx_decoder import DECODER_FILE, decoder_inputs, decoder_outputs, memory_names
from voxline.inference.onnx_model import ONNX_FILE
from voxline.training.onnx_graph import MICROSOFT, Graph, Name, quantize_weights, to_numpy

FAR_BELOW = np.float32(-1e9)
"""Added to the scores of tokens that come later."""


def export_onnx_attention(
    model: Any, features: FeatureSettings, precision: Literal["float32", "int8"] = "float32"
) -> dict[str, bytes]:
    """Builds the graphs of a network, by the names of their files.

    Args:
      model: a `Whisper`, with its trained weights.
      features: of the kind whisper.
      precision: int8: weights are 8-bit integers, those of the embedding too, and the inputs of products are quantized
        in each call: in the encoder by the largest value of the recording, in the decoder by that of each row, so that
        a text does not depend on the others. Convolutions, features and attention stay float32.

    Raises:
      SettingsError: the network is too large for a file.
    """
    check_onnx_export(model.settings, precision)
    int8 = precision == "int8"
    return {ONNX_FILE: _encoder(model, features, int8), DECODER_FILE: DecoderGraph(model, int8).build()}


def _encoder(model: Any, features: FeatureSettings, int8: bool) -> bytes:
    graph = Graph(int8)
    values, frames = waveform_features(graph, features)
    size = model.settings.units // model.settings.heads
    outputs: list[tuple[str, Name, int, list[Any]]] = []
    for number, (keys, memory) in enumerate(memories_of(graph, model, values, frames)):
        names = memory_names(number)
        outputs.append((names[0], keys, TensorProto.FLOAT, ["batch", model.settings.heads, size, "frames"]))
        outputs.append((names[1], memory, TensorProto.FLOAT, ["batch", model.settings.heads, "frames", size]))

    waveforms = ("waveforms", TensorProto.FLOAT, ["batch", "samples"])
    return graph.finish("encoder", [waveforms, ("lengths", TensorProto.INT32, ["batch"])], outputs)


def memories_of(graph: Graph, model: Any, values: Name, frames: Name) -> list[tuple[Name, Name]]:
    """Keys [batch, heads, size, frames] and values [batch, heads, frames, size] of each block of the decoder.

    Args:
      values: features [batch, frames, bins], anything beyond a row's frames.
      frames: int64 [batch].
    """
    heads = model.settings.heads
    units = model.settings.units
    values = _fill_with_silence(graph, values, frames, 2 * model.settings.positions)

    # All positions are real, so that none is hidden: [batch, frames, units].
    values = whisper_convolutions(graph, model.encoder, values, None)
    for block in model.encoder.blocks:
        joined = graph.product(graph.layer_norm(values, block.attention_norm), *joined_weights(block.attention))
        query, key, value = graph("Split", joined, np.array([units] * 3), axis=2, outputs=3)
        attended = graph("MultiHeadAttention", query, key, value, num_heads=heads, scale=1.0, domain=MICROSOFT)
        values = graph("Add", values, graph.dense(attended, block.attention.output_projection))
        values = whisper_feed_forward(graph, block, values)
    values = graph.layer_norm(values, model.encoder.norm)

    memories = []
    size = units // heads
    for block in model.decoder.blocks:
        layer = block.cross_attention
        kernel = np.concatenate([to_numpy(layer.key.kernel), to_numpy(layer.value.kernel)], axis=1)
        bias = np.concatenate([np.zeros(units, np.float32), to_numpy(layer.value.bias)])
        joined = graph("Reshape", graph.product(values, kernel, bias), np.array([0, 0, 2, heads, size]))
        keys, memory = graph("Split", joined, np.array([1, 1]), axis=2, outputs=2)
        keys = graph("Transpose", graph("Squeeze", keys, np.array([2])), perm=[0, 2, 3, 1])
        memory = graph("Transpose", graph("Squeeze", memory, np.array([2])), perm=[0, 2, 1, 3])
        memories.append((keys, memory))
    return memories


def _fill_with_silence(graph: Graph, values: Name, frames: Name, length: int) -> Name:
    """`networks.whisper.fill_with_silence`: [batch, length, bins]."""
    real = graph("Unsqueeze", graph.below(frames, graph.size(values, 1)), np.array([2]))
    loudest = graph("ReduceMax", graph("Where", real, values, np.float32(LEAST)), axes=[1, 2], keepdims=1)
    silence = graph("Max", graph("Add", loudest, np.float32(SILENCE)), np.float32(LEAST))

    missing = graph("Sub", np.array([length]), graph("Shape", values, start=1, end=2))
    behind = graph("Concat", np.zeros(4, np.int64), missing, np.array([0]), axis=0)
    real = graph("Unsqueeze", graph.below(frames, np.int64(length)), np.array([2]))
    return str(graph("Where", real, graph("Pad", values, behind), silence))


@dataclasses.dataclass
class DecoderGraph:
    """The graph of the decoder under construction; values are [rows · new, units] between its attentions."""

    model: Any
    int8: bool

    def build(self) -> bytes:
        settings = self.model.settings
        decoder = self.model.decoder
        blocks = decoder.blocks
        graph = self.graph = Graph(self.int8)
        self.heads = settings.heads
        self.size = settings.units // settings.heads

        # [rows, new], and how many tokens are in the cache.
        keys_name = decoder_inputs(len(blocks))[-2]
        self.shape = graph("Shape", "tokens")
        new = graph("Shape", "tokens", start=1, end=2)
        earlier = graph("Shape", keys_name, start=2, end=3)
        total = graph("Add", earlier, new)

        # A token sees those up to itself: [new, earlier + new].
        places = graph("Range", np.int64(0), graph("Squeeze", total), np.int64(1))
        own = graph("Unsqueeze", graph("Slice", places, earlier, total, np.array([0])), np.array([1]))
        self.hidden = graph("Where", graph("LessOrEqual", places, own), np.float32(0), FAR_BELOW)

        table, values = self._embed(graph("Slice", to_numpy(decoder.positions), earlier, total, np.array([0])))
        outputs = []
        attention = []
        for number, block in enumerate(blocks):
            values, cache = self._attend_to_tokens(number, block, values)
            values, scores = self._attend_to_frames(number, block, values)
            values = self._feed_forward(block, values)
            outputs += cache
            if chosen := [head for layer, head in decoder.alignment_heads if layer == number]:
                attention.append(graph("Gather", scores, np.array(chosen), axis=1))

        logits = self._logits(graph.layer_norm(values, decoder.norm), table)
        names = decoder_outputs(len(blocks))
        states = ["rows", self.heads, "tokens", self.size]
        scores_shape = ["batch", "alignment heads", "places", "frames"]
        declared = [
            (names[0], logits, TensorProto.FLOAT, ["rows", "new", settings.tokens]),
            (names[1], graph("Concat", *attention, axis=1), TensorProto.FLOAT, scores_shape),
            *((name, value, TensorProto.FLOAT, states) for name, value in zip(names[2:], outputs, strict=True)),
        ]
        return graph.finish("decoder", self._inputs(len(blocks)), declared)

    def _inputs(self, blocks: int) -> list[tuple[str, int, list[Any]]]:
        tokens, source, *others = decoder_inputs(blocks)
        keys = ["batch", self.heads, self.size, "frames"]
        values = ["batch", self.heads, "frames", self.size]
        cached = ["rows before", self.heads, "earlier", self.size]
        shapes = [keys, values] * blocks + [cached] * (2 * blocks)
        return [
            (tokens, TensorProto.INT64, ["rows", "new"]),
            (source, TensorProto.INT64, ["rows"]),
            *((name, TensorProto.FLOAT, shape) for name, shape in zip(others, shapes, strict=True)),
        ]

    def _embed(self, positions: Name) -> tuple[Name, Name]:
        """The table of the embedding, which the output layer shares, and the embedded tokens [rows · new, units]."""
        graph = self.graph
        embedding = to_numpy(self.model.decoder.embedding)
        units = embedding.shape[1]
        flat = graph("Reshape", "tokens", np.array([-1]))
        if self.int8:
            # [units, tokens], with a scale for each token.
            self.quantized = quantize_weights(embedding.T)
            whole, scale, _ = self.quantized
            table = graph.constant(whole)
            rows = graph("Cast", graph("Transpose", graph("Gather", table, flat, axis=1)), to=TensorProto.FLOAT)
            scales = graph("Unsqueeze", graph("Gather", scale, flat), np.array([1]))
            rows = graph("Mul", graph("Sub", rows, np.float32(128)), scales)
        else:
            table = graph.constant(embedding)
            rows = graph("Gather", table, flat)

        by_row = graph("Reshape", rows, graph("Concat", self.shape, np.array([units]), axis=0))
        return table, graph("Reshape", graph("Add", by_row, positions), np.array([-1, units]))

    def _logits(self, values: Name, table: Name) -> Name:
        graph = self.graph
        if self.int8:
            _, scale, zero = self.quantized
            flat = graph.rowwise_quantized(values, table, scale, zero)
        else:
            flat = graph("Gemm", values, table, transB=1)
        return str(graph("Reshape", flat, graph("Concat", self.shape, np.array([-1]), axis=0)))

    def _product(self, values: Name, kernel: Array, bias: Array) -> Name:
        if self.int8:
            return self.graph.rowwise(values, kernel, bias)
        return self.graph.product(values, kernel, bias)

    def _attend_to_tokens(self, number: int, block: Any, values: Name) -> tuple[Name, list[Name]]:
        """Self-attention, and its keys and values [rows, heads, earlier + new, size]."""
        graph = self.graph
        joined = self._product(graph.layer_norm(values, block.attention_norm), *joined_weights(block.attention))
        shape = graph("Concat", self.shape, np.array([3, self.heads, self.size]), axis=0)
        parts = graph("Transpose", graph("Reshape", joined, shape), perm=[2, 0, 3, 1, 4])
        query, *new = (
            graph("Squeeze", part, np.array([0]))
            for part in graph("Split", parts, np.array([1, 1, 1]), axis=0, outputs=3)
        )
        blocks = len(self.model.decoder.blocks)
        cached = decoder_inputs(blocks)[2 + 2 * blocks :][2 * number : 2 * number + 2]
        keys, states = (
            graph("Concat", graph("Gather", earlier, "source", axis=0), part, axis=2)
            for earlier, part in zip(cached, new, strict=True)
        )

        # [rows, heads, new, earlier + new]
        scores = graph("MatMul", query, graph("Transpose", keys, perm=[0, 1, 3, 2]))
        shares = graph("Softmax", graph("Add", scores, self.hidden), axis=-1)
        attended = self._join_heads(graph("MatMul", shares, states))
        projection = block.attention.output_projection
        projected = self._product(attended, to_numpy(projection.kernel), to_numpy(projection.bias))
        return graph("Add", values, projected), [keys, states]

    def _attend_to_frames(self, number: int, block: Any, values: Name) -> tuple[Name, Name]:
        """Attention to the encodings, and its scores [batch, heads, rows / batch · new, frames]."""
        graph = self.graph
        layer = block.cross_attention
        keys, memory = memory_names(number)
        scale = np.float32(self.size**-0.5)
        normalized = graph.layer_norm(values, block.cross_attention_norm)
        query = self._product(normalized, to_numpy(layer.query.kernel) * scale, to_numpy(layer.query.bias) * scale)

        # All rows of an utterance read the same memory: [batch, heads, rows / batch · new, size].
        batch = graph("Shape", keys, start=0, end=1)
        shape = graph("Concat", batch, np.array([-1, self.heads, self.size]), axis=0)
        query = graph("Transpose", graph("Reshape", query, shape), perm=[0, 2, 1, 3])
        scores = graph("MatMul", query, keys)
        attended = self._join_heads(graph("MatMul", graph("Softmax", scores, axis=-1), memory))
        projection = layer.output_projection
        projected = self._product(attended, to_numpy(projection.kernel), to_numpy(projection.bias))
        return graph("Add", values, projected), scores

    def _join_heads(self, values: Name) -> Name:
        """[…, heads, places, size] → [all places, units]."""
        turned = self.graph("Transpose", values, perm=[0, 2, 1, 3])
        return str(self.graph("Reshape", turned, np.array([-1, self.heads * self.size])))

    def _feed_forward(self, block: Any, values: Name) -> Name:
        graph = self.graph
        normalized = graph.layer_norm(values, block.feed_forward_norm)
        hidden = graph.gelu(self._product(normalized, to_numpy(block.wide.kernel), to_numpy(block.wide.bias)))
        narrow = self._product(hidden, to_numpy(block.narrow.kernel), to_numpy(block.narrow.bias))
        return str(graph("Add", values, narrow))
