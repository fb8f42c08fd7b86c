"""Whisper: an encoder of two convolutions and blocks of self-attention, with its decoder of tokens or with a CTC head.

After Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision" (arXiv 2212.04356); sizes and
constants as in its public models. These hear 30 seconds at a time: a shorter recording is padded with silence, whose
positions all others attend to, and the decoder has never read anything else. With a CTC head a recording is as long as
it is, which takes a share of the time. Positions beyond its end are hidden, so that a row of a padded batch gives the
same logits as the same utterance alone. With 3,000 frames the encoder computes what the public one does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import LEAST, SILENCE, WhisperSettings
from voxline.training.attention import attention
from voxline.training.layers import Composite, Tensor, dropout, gelu, length_mask, mask_padding, pool_utterance

EPSILON = 1e-5
"""Of the layer norms."""
SLOWEST = 10_000.0
"""The longest period of the sinusoidal positions, over 2π."""


class WhisperCtc(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from features of the kind whisper; a `CtcModel`, whose arguments it takes.

    >>> settings = WhisperSettings(units=8, heads=2, layers=1, padding=0)
    >>> model = WhisperCtc(settings, mean=[0.0] * 80, deviation=[1.0] * 80, classes=29)
    >>> logits, frames = model(np.zeros((2, 31, 80), "float32"), np.array([31, 7]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 16, 29]), [16, 4])
    """

    def __init__(
        self,
        settings: WhisperSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="whisper")
        self.settings = settings
        seeds = iter(np.random.SeedSequence(seed).generate_state(4 + 8 * settings.layers).tolist())
        self.encoder = WhisperEncoder(settings, seeds, dtype=precision)

        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = _dense(classes, seeds, "float32")

        # A call makes the weights of all layers. Features are normalized already: mean and deviation tell their number.
        self(np.zeros((1, 4, len(mean)), "float32"), np.array([4]))

    @property
    def normalizations(self) -> list[Any]:
        """Layers with moving statistics: none."""
        return []

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of the convolutions, of each block, of the norm at the end, and of the output layer."""
        return [*self.encoder.stages, self.classifier.variables]

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network; see `CtcModel`."""
        features, frames = pad_with_silence(features, frames, self.settings.padding)
        return self.resume(features, frames, 0, training=training, noise=noise)

    def begin(self, features: Tensor, frames: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Computes the stages before `last`; see `StagedNetwork`."""
        features, frames = pad_with_silence(features, frames, self.settings.padding)
        return self._compute(features, frames, 0, last)

    def resume(
        self, values: Tensor, frames: Tensor, first: int, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes the stages from `first` on; see `StagedNetwork`."""
        return self._compute(values, frames, first, len(self.stages), training, noise)

    def _compute(
        self,
        x: Tensor,
        frames: Tensor,
        first: int,
        last: int,
        training: bool = False,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        norm = len(self.encoder.stages) - 1
        x, frames = self.encoder.compute(x, frames, first, min(last, norm + 1), training, noise)

        # Without the silence around it: [batch, 1, 2 · units]
        if first <= norm < last and self.settings.pooling == "utterance":
            padding = self.settings.padding
            x = pool_utterance(x[:, padding // 2 :], frames - padding)
            frames = ops.ones_like(frames)

        if last <= norm + 1:
            return x, frames

        # What was stored has lost its static shape. [batch, output frames, units] → [batch, output frames, classes]
        units = (2 if self.settings.pooling == "utterance" else 1) * self.settings.units
        batch, positions = ops.shape(x)[:2]
        return self.classifier(ops.reshape(x, (batch, positions, units))), frames


class Whisper(Composite, keras.Model):  # type: ignore[misc]
    """The whole model: encoder and decoder.

    >>> settings = WhisperSettings(units=8, heads=2, layers=1, decoder_layers=1, positions=16, tokens=50)
    >>> model = Whisper(settings, bins=80)
    >>> model(np.zeros((2, 31, 80), "float32"), np.array([31, 7]), np.zeros((2, 3), "int32")).shape
    TensorShape([2, 3, 50])
    """

    def __init__(self, settings: WhisperSettings, *, bins: int, seed: int = 1, precision: str = "float32") -> None:
        super().__init__(dtype=precision, autocast=False, name="whisper")
        self.settings = settings
        state = np.random.SeedSequence(seed).generate_state(8 + 8 * settings.layers + 12 * settings.decoder_layers)
        seeds = iter(state.tolist())
        self.encoder = WhisperEncoder(settings, seeds, dtype=precision)
        self.decoder = WhisperDecoder(settings, seeds, dtype=precision)

        # A call makes the weights of all layers.
        self(np.zeros((1, 4, bins), "float32"), np.array([4]), np.zeros((1, 1), "int32"))

    @property
    def normalizations(self) -> list[Any]:
        """Layers with moving statistics: none."""
        return []

    @property
    def blocks(self) -> list[Any]:
        """The blocks of encoder and decoder."""
        return [*self.encoder.blocks, *self.decoder.blocks]

    def call(
        self,
        features: Tensor,
        frames: Tensor,
        tokens: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Computes the logits of the token after each of `tokens`.

        Args:
          features: of the kind whisper, float32 [batch, frames, bins]; anything beyond a row's frames.
          frames: int32 [batch], real frames, at most twice `settings.positions`.
          tokens: int32 [batch, tokens], the prompt first.

        Returns:
          logits float32 [batch, tokens, vocabulary].
        """
        encoded, mask = self.encode(features, frames, training=training, noise=noise)
        return self.decoder(tokens, encoded, mask, training=training, noise=noise)

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of the encoder's stages, and of the decoder."""
        return [*self.encoder.stages, self.decoder.variables]

    def begin(self, features: Tensor, frames: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Computes the stages before `last` of recordings that are padded to 30 s; see `StagedNetwork`."""
        features, frames = fill_with_silence(features, frames, 2 * self.settings.positions)
        return self.encoder.compute(features, frames, 0, last)

    def encode(
        self,
        features: Tensor,
        frames: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
        first: int = 0,
        silence: int | None = None,
        whole: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Encodings [batch, positions, units] of recordings that are padded with silence, and the mask for the decoder.

        Args:
          first: where it is above 0, the values that `begin` returned for it take the place of the features.
          silence: frames of silence that are heard after the end of each recording, at most 30 s in all; of values, all
            that `frames` counts. None: 30 s are heard.
          whole: the stages before it hear 30 s even so, since these were not trained on anything else.
        """
        stages = len(self.encoder.stages)
        if silence is None:
            longest = 2 * self.settings.positions
            shape: tuple[Any, Any] = (self.settings.positions, self.settings.units)
            if first == 0:
                features, frames = fill_with_silence(features, frames, longest)
                shape = (longest, ops.shape(features)[2])

            # A length that the graph knows: attention is faster then.
            features = ops.reshape(features, (ops.shape(features)[0], *shape))
        elif first == 0:
            features, frames = self._crop(features, ops.cast(frames, "int32"), silence, whole, training, noise)
            first = whole

        encoded, frames = self.encoder.compute(features, frames, first, stages, training, noise)
        return encoded, length_mask(frames, ops.shape(encoded)[1])[:, None, None, :]

    def _crop(
        self, features: Tensor, frames: Tensor, silence: int, whole: int, training: bool, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What the stages before `whole` compute of 30 s, up to `silence` after the end; and each row's positions."""
        all_frames = 2 * self.settings.positions
        heard = ops.minimum(frames + silence, all_frames)

        # Two more, so that the convolutions see silence after the longest row too.
        longest = ops.minimum(ops.shape(features)[1] + silence + 2, all_frames)
        if not whole:
            return fill_with_silence(features, frames, longest)[0], heard

        # [batch, 30 s, bins] → [batch, positions, units] → those of the longest row
        filled, filled_frames = fill_with_silence(features, frames, all_frames)
        values, _ = self.encoder.compute(filled, filled_frames, 0, whole, training, noise)
        return values[:, : (longest + 1) // 2], (heard + 1) // 2


class WhisperEncoder(Composite, layers.Layer):  # type: ignore[misc]
    """From features [batch, frames, bins] to encodings [batch, ⌈frames / 2⌉, units]."""

    def __init__(self, settings: WhisperSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        policy = self.dtype_policy
        units = settings.units

        # Kernels of 3 frames; the second one halves the frames.
        self.convolutions = [
            layers.Conv1D(
                units,
                3,
                strides=stride,
                kernel_initializer=keras.initializers.GlorotUniform(next(seeds)),
                dtype=policy,
            )
            for stride in (1, 2)
        ]
        # Fixed, and a weight only because public models have them in their files.
        self.positions = self.add_weight(
            shape=(settings.positions, units),
            initializer=lambda shape, dtype=None: ops.cast(sinusoids(*shape), dtype or "float32"),
            trainable=False,
            name="positions",
        )
        self.blocks = [WhisperBlock(settings, seeds, dtype=policy) for _ in range(settings.layers)]
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """
        Args:
          features: float32 [batch, frames, bins], zero beyond the end.
          frames: int32 [batch], real frames; at most twice `settings.positions`.

        Returns:
          encodings [batch, output frames, units], and int32 [batch], the real ones of each row.
        """
        return self.compute(features, frames, 0, len(self.stages), training, noise)

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of the convolutions, of each block, and of the norm at the end."""
        convolutions = [variable for layer in self.convolutions for variable in layer.variables]
        return [[self.positions, *convolutions], *(layer.variables for layer in [*self.blocks, self.norm])]

    def compute(
        self,
        x: Tensor,
        frames: Tensor,
        first: int,
        last: int,
        training: bool = False,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes the stages from `first` to the one before `last`.

        Args:
          x: features, or what the stages before `first` returned.
          frames: int32 [batch], the real ones of `x`.
        """
        if first == 0:
            x, frames = self.convolve(x, frames, training=training, noise=noise)
        elif first < len(self.stages):
            # What was stored has lost its static shape.
            x = ops.reshape(x, (*ops.shape(x)[:2], self.settings.units))

        blocks = len(self.blocks)
        for index in range(max(first - 1, 0), min(last - 1, blocks)):
            x = self.attend(index, x, frames, training=training, noise=noise)

        return (self.norm(x) if first <= blocks + 1 < last else x), frames

    def convolve(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The two convolutions, and the positions."""
        x = ops.cast(features, self.compute_dtype)

        # [batch, frames, bins] → [batch, frames, units] → [batch, ⌈frames / 2⌉, units]
        for convolution in self.convolutions:
            x = gelu(convolution(ops.pad(x, [(0, 0), (1, 1), (0, 0)])))
            if convolution.strides[0] == 2:
                frames = (frames + 1) // 2
            x = mask_padding(x, frames)

        x = x + ops.cast(self.positions[: ops.shape(x)[1]], x.dtype)
        return dropout(x, self.settings.dropout, training, noise, 0), frames

    def attend(
        self, index: int, x: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> Tensor:
        """One of the blocks."""

        # Keys beyond the end are hidden from all queries: [batch, 1, 1, frames]
        mask = length_mask(frames, ops.shape(x)[1])[:, None, None, :]
        # Each block has its own seed, since a step has only a hundred streams of a seed for itself.
        block_noise = None if noise is None else noise + ops.convert_to_tensor([index + 1, 0], dtype="int32")
        return self.blocks[index](x, mask, training=training, noise=block_noise)


class WhisperDecoder(Composite, layers.Layer):  # type: ignore[misc]
    """From tokens and encodings to the logits of the next tokens; the output layer is the embedding, transposed.

    Attributes:
      alignment_heads: blocks and heads whose attention follows the speech.
    """

    def __init__(self, settings: WhisperSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        policy = self.dtype_policy
        units = settings.units

        def normal() -> keras.initializers.Initializer:
            return keras.initializers.RandomNormal(stddev=0.02, seed=next(seeds))

        blocks = settings.decoder_layers
        self.alignment_heads = settings.alignment_heads or [
            (block, head) for block in range(blocks // 2, blocks) for head in range(settings.heads)
        ]
        self.embedding = self.add_weight(shape=(settings.tokens, units), initializer=normal(), name="embedding")
        self.positions = self.add_weight(
            shape=(settings.token_positions, units), initializer=normal(), name="positions"
        )
        self.blocks = [
            WhisperBlock(settings, seeds, cross_attention=True, dtype=policy) for _ in range(settings.decoder_layers)
        ]
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)

    def call(
        self,
        tokens: Tensor,
        encoded: Tensor,
        mask: Tensor,
        training: bool = False,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Computes the logits of all next tokens at once (teacher forcing).

        Args:
          tokens: int32 [batch, tokens], at most `settings.token_positions`.
          encoded: [batch, frames, units], of the encoder.
          mask: bool [batch, 1, 1, frames], the real frames.

        Returns:
          logits float32 [batch, tokens, vocabulary].
        """
        length = ops.shape(tokens)[1]
        x = self._embed(tokens, self.positions[:length])
        x = dropout(x, self.settings.dropout, training, noise, 0)

        # A token sees itself and those before it: [1, 1, tokens, tokens]
        order = ops.arange(length)
        causal = (order[None, :] <= order[:, None])[None, None]
        for index, block in enumerate(self.blocks):
            block_noise = None if noise is None else noise + ops.convert_to_tensor([index + 1, 1], dtype="int32")
            memory = block.cross_attention.keys_and_values(encoded)
            x = block(x, causal, memory=memory, memory_mask=mask, training=training, noise=block_noise)

        return self._to_logits(x)

    def align(self, tokens: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of `call`, and how each token attends to the encodings.

        Args:
          tokens: int32 [batch, tokens].
          encoded: [batch, frames, units], all of them real.

        Returns:
          logits float32 [batch, tokens, vocabulary]; and float32 [batch, alignment heads, tokens, frames], the scores
          before their softmax.
        """
        length = ops.shape(tokens)[1]
        x = self._embed(tokens, self.positions[:length])
        order = ops.arange(length)
        causal = (order[None, :] <= order[:, None])[None, None]
        all_frames = ops.ones((1, 1, 1, 1), dtype="bool")

        scores = []
        for number, block in enumerate(self.blocks):
            memory = block.cross_attention.keys_and_values(encoded)
            if heads := [head for layer, head in self.alignment_heads if layer == number]:
                scores.append(ops.take(block.cross_scores(x, causal, memory[0]), ops.convert_to_tensor(heads), axis=1))
            x = block(x, causal, memory=memory, memory_mask=all_frames)

        return self._to_logits(x), ops.concatenate(scores, axis=1)

    def step(
        self,
        tokens: Tensor,
        cache: Sequence[tuple[Tensor, Tensor]],
        memories: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor,
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Computes the logits after some further tokens, with the keys and values of those before them.

        Args:
          tokens: int32 [batch, new tokens].
          cache: of each block keys and values [batch, earlier tokens, heads, size]; `empty_cache` begins it.
          memories: of each block the keys and values of the encodings, as `memories_of` returns them.
          memory_mask: bool [batch, 1, 1, frames].

        Returns:
          logits float32 [batch, new tokens, vocabulary], and the cache with the new tokens in it.
        """
        count = ops.shape(tokens)[1]
        position = ops.shape(cache[0][0])[1]
        x = self._embed(tokens, self.positions[position : position + count])

        # [1, 1, new tokens, all tokens]: what is in the cache, and of the new tokens those before.
        visible = (ops.arange(position + count)[None, :] <= position + ops.arange(count)[:, None])[None, None]
        filled = []
        for block, past, memory in zip(self.blocks, cache, memories, strict=True):
            new = block.attention.keys_and_values(block.attention_norm(x))
            keys, values = (ops.concatenate(pair, axis=1) for pair in zip(past, new, strict=True))
            filled.append((keys, values))
            x = block(x, visible, memory=memory, memory_mask=memory_mask, past=(keys, values))

        return self._to_logits(x), filled

    def empty_cache(self, batch: Tensor | int) -> list[tuple[Tensor, Tensor]]:
        """The cache of `step` before the first token."""
        heads = self.settings.heads
        empty = ops.zeros((batch, 0, heads, self.settings.units // heads), self.compute_dtype)
        return [(empty, empty) for _ in self.blocks]

    def memories_of(self, encoded: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The keys and values of encodings [batch, frames, units] in each block: computed once for an utterance."""
        return [block.cross_attention.keys_and_values(encoded) for block in self.blocks]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = ops.take(self.embedding, tokens, axis=0) + positions
        return ops.cast(x, self.compute_dtype)

    def _to_logits(self, x: Tensor) -> Tensor:
        # Float32 in every precision, as a softmax over 50,000 tokens needs it.
        return ops.matmul(ops.cast(self.norm(x), "float32"), ops.transpose(self.embedding))


class WhisperBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Self-attention, in a decoder attention to the encodings, and a feed-forward module.

    Each adds to its input, which it normalizes first.
    """

    def __init__(
        self, settings: WhisperSettings, seeds: Iterator[int], *, cross_attention: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate = settings.dropout
        policy = self.dtype_policy
        units = settings.units

        self.attention_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.attention = WhisperAttention(units, settings.heads, seeds, dtype=policy)
        if cross_attention:
            self.cross_attention_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
            self.cross_attention = WhisperAttention(units, settings.heads, seeds, dtype=policy)
        self.feed_forward_norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.wide = _dense(4 * units, seeds, policy)
        self.narrow = _dense(units, seeds, policy)

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        memory: tuple[Tensor, Tensor] | None = None,
        memory_mask: Tensor | None = None,
        past: tuple[Tensor, Tensor] | None = None,
        training: bool = False,
        noise: Tensor | None = None,
    ) -> Tensor:
        """
        Args:
          x: [batch, positions, units].
          mask: bool, of the keys that each position sees; its shape fits [batch, heads, positions, keys].
          memory: keys and values of the encodings, in a decoder.
          memory_mask: bool [batch, 1, 1, frames].
          past: keys and values of all positions so far, in place of those of `x`.
        """

        def drop(y: Tensor, stream: int) -> Tensor:
            return dropout(y, self.rate, training, noise, stream)

        normalized = self.attention_norm(x)
        keys_and_values = self.attention.keys_and_values(normalized) if past is None else past
        x = x + drop(self.attention(normalized, keys_and_values, mask), 0)

        if memory is not None:
            x = x + drop(self.cross_attention(self.cross_attention_norm(x), memory, memory_mask), 1)

        hidden = gelu(self.wide(self.feed_forward_norm(x)))
        return x + drop(self.narrow(hidden), 2)

    def cross_scores(self, x: Tensor, mask: Tensor, keys: Tensor) -> Tensor:
        """How `call` attends to the encodings: scores before their softmax, [batch, heads, positions, frames].

        Args:
          x, mask: as of `call`.
          keys: of the encodings, [batch, frames, heads, size].
        """
        normalized = self.attention_norm(x)
        x = x + self.attention(normalized, self.attention.keys_and_values(normalized), mask)
        query = self.cross_attention.queries(self.cross_attention_norm(x))
        return ops.einsum("btnh,bsnh->bnts", query * query.shape[-1] ** -0.5, keys)


class WhisperAttention(Composite, layers.Layer):  # type: ignore[misc]
    """Multi-head attention; its keys have no bias."""

    def __init__(self, units: int, heads: int, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.heads = heads
        self.query = _dense(units, seeds, policy)
        self.key = _dense(units, seeds, policy, use_bias=False)
        self.value = _dense(units, seeds, policy)
        self.output_projection = _dense(units, seeds, policy)

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of [batch, keys, units], each [batch, keys, heads, units / heads]."""
        return self._split(self.key(x)), self._split(self.value(x))

    def queries(self, x: Tensor) -> Tensor:
        """Queries of [batch, positions, units], [batch, positions, heads, units / heads]."""
        return self._split(self.query(x))

    def call(self, x: Tensor, keys_and_values: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Attends from each position of [batch, positions, units] to the keys that the mask shows."""
        query = self.queries(x)
        key, value = keys_and_values

        # [batch, positions, heads, units / heads]; scores are divided by √(units / heads).
        attended = attention(query, key, value, mask)
        return self.output_projection(ops.reshape(attended, ops.shape(x)))

    def _split(self, x: Tensor) -> Tensor:
        """[batch, positions, units] → [batch, positions, heads, units / heads]."""
        batch, positions = ops.shape(x)[:2]
        return ops.reshape(x, (batch, positions, self.heads, x.shape[-1] // self.heads))


def pad_with_silence(features: Tensor, frames: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Adds frames of silence before and after each utterance.

    Args:
      features: of the kind whisper, [batch, frames, bins]; anything beyond a row's frames.
      frames: int [batch], real frames.
      padding: frames to add at each end.

    Returns:
      features [batch, frames + 2 · padding, bins], zero beyond the end, and int32 [batch], real frames.
    """
    frames = ops.cast(frames, "int32")
    if not padding:
        return mask_padding(features, frames), frames

    longest = ops.shape(features)[1]
    x, _ = fill_with_silence(features, frames, longest + padding)
    silence = x[:, -1:]
    before = ops.tile(silence, (1, padding, 1))
    total = frames + 2 * padding

    return mask_padding(ops.concatenate([before, x], axis=1), total), total


def fill_with_silence(features: Tensor, frames: Tensor, length: Tensor | int) -> tuple[Tensor, Tensor]:
    """Lengthens utterances by silence to `length` frames, as public models hear shorter recordings.

    Args:
      features: of the kind whisper, [batch, frames, bins]; anything beyond a row's frames.
      frames: int [batch], real frames.
      length: at least as many as there are.

    Returns:
      features [batch, length, bins], and int32 [batch], `length` for each row.
    """
    frames = ops.cast(frames, "int32")
    longest = ops.shape(features)[1]
    real = length_mask(frames, longest)[:, :, None]

    # Features are clipped 8 decades below the utterance's maximum, and at 1e-10: [batch, 1, 1]
    loudest = ops.max(ops.where(real, features, LEAST), axis=(1, 2), keepdims=True)
    silence = ops.maximum(loudest + SILENCE, LEAST)

    x = ops.pad(ops.where(real, features, 0.0), [(0, 0), (0, length - longest), (0, 0)])
    x = ops.where(length_mask(frames, length)[:, :, None], x, silence)
    return x, ops.zeros_like(frames) + length


def sinusoids(length: int, units: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Sinusoidal positions, float32 [length, units]: sines in the first half, cosines in the second."""
    half = units // 2
    periods = np.exp(-np.log(SLOWEST) / max(half - 1, 1) * np.arange(half))
    angles = np.arange(length)[:, None] * periods
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _dense(units: int, seeds: Iterator[int], dtype: Any, *, use_bias: bool = True) -> layers.Dense:
    """A dense layer, with the initial weights of a seed."""
    initializer = keras.initializers.GlorotUniform(next(seeds))
    return layers.Dense(units, kernel_initializer=initializer, use_bias=use_bias, dtype=dtype)
