"""wav2vec 2.0 with CTC: convolutions over samples, Transformer blocks, a dense layer. Also XLS-R, MMS and HuBERT.

After Baevski et al. 2020, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations" (arXiv
2006.11477), Babu et al. 2021 (XLS-R, 2111.09296), Pratap et al. 2023 (MMS, 2305.13516), whose blocks end with adapters,
and Hsu et al. 2021 (HuBERT, 2106.07447), which differ in training alone. The pre-training has no place here.

The kernel of the positional convolution is stored as published models use it: with weight norm merged.

Padding changes nothing, unlike in the published base models, whose group norm sees it: statistics are of real frames,
convolutions see zeros beyond an utterance's end, and attention does not see these frames.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import Wav2Vec2Settings
from voxline.training.layers import Composite, StepSeed, Tensor, dropout, length_mask, mask_padding

CONVOLUTION_EPSILON = 1e-5
"""Added to variances by the norms of convolutions and adapters, in every published model."""
DEVIATION = 0.02
"""Of the initial weights of dense layers."""
HIDDEN = -1e9
"""What is added to the attention of frames that are not there."""


class Wav2Vec2(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from the samples of an utterance; a `CtcModel`, whose arguments it takes.

    Mean and deviation of the training split count for nothing: samples are normalized by utterance.

    >>> small = {"channels": (8, 8), "kernels": (10, 3), "strides": (5, 2), "position_groups": 2}
    >>> settings = Wav2Vec2Settings(**small, units=8, heads=2, layers=1, feed_forward_units=16)
    >>> model = Wav2Vec2(settings, mean=[0.0], deviation=[1.0], classes=29)
    >>> logits, frames = model(np.zeros((2, 400, 1), "float32"), np.array([400, 3]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 39, 29]), [39, 1])
    """

    def __init__(
        self,
        settings: Wav2Vec2Settings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="wav2vec2")
        self.settings = settings
        count = len(settings.channels) + 4 + 8 * settings.layers
        seeds = iter(np.random.SeedSequence(seed).generate_state(count).tolist())
        units = settings.units

        # [samples, 1] → [frames, channels]
        inputs = (1, *settings.channels[:-1])
        self.convolutions = [
            SampleConvolution(settings, number, inputs[number], seeds, dtype=precision)
            for number in range(len(settings.channels))
        ]

        # [frames, channels] → [frames, units]
        self.projection_norm = (
            _norm(settings.channels[-1], settings.norm_epsilon, precision) if settings.projection_norm else None
        )
        self.projection = _dense(settings.channels[-1], units, seeds, precision)
        # Replaces frames that a training step hides.
        self.mask = self.add_weight(
            shape=(units,), initializer=keras.initializers.RandomUniform(0, 1, next(seeds)), name="mask"
        )

        self.positions = PositionalConvolution(settings, seeds, dtype=precision)
        self.norm = _norm(units, settings.norm_epsilon, precision)
        self.blocks = [Wav2Vec2Block(settings, seeds, dtype=precision) for _ in range(settings.layers)]
        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = _dense(units, classes, seeds, "float32")

    @property
    def normalizations(self) -> list[Any]:
        """No layer has moving statistics."""
        return []

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of the convolutions, of what is before the blocks, of each block, of norm and output layer.

        Where training changes values at random, which it does behind the convolutions, they alone can be computed once.
        """
        convolutions = _variables(self.convolutions)
        if self.settings.is_randomized:
            of_convolutions = {id(variable) for variable in convolutions}
            return [convolutions, [variable for variable in self.variables if id(variable) not in of_convolutions]]

        before = [layer for layer in (self.projection_norm, self.projection, self.positions) if layer is not None]
        behind = [self.norm] if self.settings.norm_first else []
        before += [] if behind else [self.norm]
        of_blocks = [block.variables for block in self.blocks]
        return [convolutions, _variables(before), *of_blocks, _variables(behind), self.classifier.variables]

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network; see `CtcModel`. `features` are samples, [batch, samples, 1]."""
        x, frames = self._pad(features, frames)
        return self._compute(x, frames, 0, self._count, training, noise)

    def begin(self, features: Tensor, frames: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Computes the stages before `last`; see `StagedNetwork`."""
        x, frames = self._pad(features, frames)
        return self._compute(x, frames, 0, last)

    def resume(
        self, values: Tensor, frames: Tensor, first: int, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes the stages from `first` on; see `StagedNetwork`."""
        # What was stored has lost its static shape.
        units = self.settings.channels[-1] if first == 1 else self.settings.units
        values = ops.reshape(values, (*ops.shape(values)[:2], units))
        return self._compute(ops.cast(values, self.compute_dtype), frames, first, self._count, training, noise)

    @property
    def _count(self) -> int:
        """Stages, each block by itself."""
        return len(self.blocks) + 4

    def _compute(
        self, x: Tensor, frames: Tensor, first: int, last: int, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        settings = self.settings

        # [batch, samples, 1] → [batch, frames, channels]; a real frame sees real samples only.
        for convolution in self.convolutions if first == 0 else ():
            x, frames = convolution(x, frames)

        # [batch, frames, units] from here on.
        if first <= 1 < last:
            x = self._project(x, frames, training, noise)

        for index in range(max(first - 2, 0), min(last - 2, len(self.blocks))):
            # Each block has its own seed, since a step has only a hundred streams of a seed for itself.
            block_noise = None if noise is None else noise + ops.convert_to_tensor([index + 1, 0], dtype="int32")
            x = self.blocks[index](x, frames, training=training, noise=block_noise)

        if first <= self._count - 2 < last and settings.norm_first:
            x = self.norm(x)

        # [batch, frames, classes]
        if last == self._count:
            x = self.classifier(dropout(x, settings.final_dropout, training, noise, 2))

        return x, frames

    def _project(self, x: Tensor, frames: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        """Computes what the first block takes: [batch, frames, channels] to [batch, frames, units]."""
        settings = self.settings
        if self.projection_norm is not None:
            x = self.projection_norm(x)
        x = dropout(self.projection(x), settings.projection_dropout, training, noise, 0)
        if training and noise is not None:
            x = self._hide_spans(x, frames, noise)

        x = mask_padding(x, frames)
        x = x + self.positions(x)
        if not settings.norm_first:
            x = self.norm(x)

        return dropout(x, settings.hidden_dropout, training, noise, 1)

    def _pad(self, samples: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Zeros at both ends, and as many behind a short batch as one output frame needs."""
        padding = self.settings.padding
        samples = mask_padding(ops.cast(samples, "float32"), count)
        samples = ops.pad(samples, [(0, 0), (padding, padding), (0, 0)])

        batch, length = ops.shape(samples)[:2]
        missing = ops.maximum(self.settings.window_frames - length, 0)
        samples = ops.concatenate([samples, ops.zeros((batch, missing, 1))], axis=1)
        count = ops.maximum(ops.cast(count, "int32") + 2 * padding, self.settings.window_frames)

        return ops.cast(samples, self.compute_dtype), count

    def _hide_spans(self, x: Tensor, frames: Tensor, noise: Tensor) -> Tensor:
        """Spans of frames give way to the mask, and spans of units to zero, as SpecAugment does (Park et al. 2019)."""
        settings = self.settings
        if settings.time_masks:
            hidden = draw_spans(
                frames,
                ops.shape(x)[1],
                share=settings.time_masks,
                width=settings.time_mask_frames,
                least=settings.least_time_masks,
                noise=noise,
                stream=3,
            )
            x = ops.where(hidden[:, :, None], ops.cast(self.mask, x.dtype), x)

        if settings.unit_masks:
            units = ops.full((ops.shape(x)[0],), settings.units, "int32")
            hidden = draw_spans(
                units,
                settings.units,
                share=settings.unit_masks,
                width=settings.unit_mask_width,
                least=0,
                noise=noise,
                stream=5,
            )
            x = ops.where(hidden[:, None, :], ops.zeros((), x.dtype), x)

        return x


class SampleConvolution(Composite, layers.Layer):  # type: ignore[misc]
    """A convolution without padding, a norm or none, GELU."""

    def __init__(
        self, settings: Wav2Vec2Settings, number: int, inputs: int, seeds: Iterator[int], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        channels = settings.channels[number]
        self.convolution = layers.Conv1D(
            channels,
            settings.kernels[number],
            strides=settings.strides[number],
            use_bias=settings.convolution_bias,
            kernel_initializer=keras.initializers.HeNormal(next(seeds)),
            dtype=policy,
        )
        self.convolution.build((None, None, inputs))

        self.norm: Any = None
        self.over_time = settings.convolution_norm == "group"
        if not self.over_time:
            self.norm = _norm(channels, CONVOLUTION_EPSILON, policy)
        elif number == 0:
            self.norm = ChannelNorm(CONVOLUTION_EPSILON, dtype=policy)
            self.norm.build((None, None, channels))

    def call(self, x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Takes [batch, length, inputs] and real lengths [batch]; returns those of the output."""
        x = self.convolution(x)
        counts = (counts - self.convolution.kernel_size[0]) // self.convolution.strides[0] + 1
        if self.norm is not None:
            x = self.norm(x, counts) if self.over_time else self.norm(x)

        return ops.gelu(x, approximate=False), counts


class ChannelNorm(layers.Layer):  # type: ignore[misc]
    """Group norm with a group for each channel (Wu and He 2018): statistics of one utterance, over its real frames."""

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x: Tensor, counts: Tensor) -> Tensor:
        """Takes and returns [batch, length, channels]; frames beyond the counts come out undefined."""
        values = ops.cast(x, "float32")

        # [batch, 1, length], each real frame's share of the mean: a product of matrices reads the values once.
        real = ops.cast(length_mask(counts, ops.shape(x)[1]), "float32")
        share = (real / ops.cast(ops.maximum(counts, 1), "float32")[:, None])[:, None, :]

        # [batch, 1, channels]
        mean = share @ values
        centered = values - mean
        variance = share @ ops.square(centered)
        scale = ops.cast(self.gamma, "float32") * ops.rsqrt(variance + self.epsilon)

        return ops.cast(centered * scale + ops.cast(self.beta, "float32"), x.dtype)


class PositionalConvolution(Composite, layers.Layer):  # type: ignore[misc]
    """A grouped convolution over many frames and GELU, added to the frames in place of positions."""

    def __init__(self, settings: Wav2Vec2Settings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups = settings.position_groups
        self.taps = settings.position_kernel
        inputs = settings.units // self.groups
        deviation = 2 / math.sqrt(self.taps * settings.units)
        self.kernel = self.add_weight(
            shape=(self.taps, inputs, settings.units),
            initializer=keras.initializers.RandomNormal(0, deviation, next(seeds)),
            name="kernel",
        )
        self.bias = self.add_weight(shape=(settings.units,), initializer="zeros", name="bias")

    def call(self, x: Tensor) -> Tensor:
        """Takes and returns [batch, frames, units]; an even kernel sees one frame more of the past."""
        past = self.taps // 2
        padded = ops.pad(x, [(0, 0), (past, self.taps - 1 - past), (0, 0)])

        # One convolution a group: TensorFlow has grouped ones for some processors only, and no faster.
        kernels = ops.split(ops.cast(self.kernel, x.dtype), self.groups, axis=-1)
        groups = ops.split(padded, self.groups, axis=-1)
        convolved = [ops.conv(group, kernel) for group, kernel in zip(groups, kernels, strict=True)]
        x = ops.concatenate(convolved, axis=-1) + ops.cast(self.bias, x.dtype)

        return ops.gelu(x, approximate=False)


class Wav2Vec2Block(Composite, layers.Layer):  # type: ignore[misc]
    """Self-attention and a feed-forward module, each added to its input; a norm before or after each; an adapter."""

    def __init__(self, settings: Wav2Vec2Settings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        policy = self.dtype_policy
        units = settings.units

        self.attention_norm = _norm(units, settings.norm_epsilon, policy)
        self.attention = Wav2Vec2Attention(settings, seeds, dtype=policy)
        self.feed_forward_norm = _norm(units, settings.norm_epsilon, policy)
        self.wide = _dense(units, settings.feed_forward_units, seeds, policy)
        self.narrow = _dense(settings.feed_forward_units, units, seeds, policy)
        self.adapter = Wav2Vec2Adapter(settings, seeds, dtype=policy) if settings.adapter else None

    def call(self, x: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None) -> Tensor:
        """Takes and returns [batch, frames, units]."""
        settings = self.settings
        skipped = x

        if settings.norm_first:
            x = x + self._attend(self.attention_norm(x), frames, training, noise)
            x = x + self._feed_forward(self.feed_forward_norm(x), training, noise)
        else:
            x = self.attention_norm(x + self._attend(x, frames, training, noise))
            x = self.feed_forward_norm(x + self._feed_forward(x, training, noise))
        if self.adapter is not None:
            x = x + self.adapter(x)

        # LayerDrop (Fan et al. 2019): the step leaves this block out.
        if training and noise is not None and settings.layer_drop:
            drawn = keras.random.uniform((), seed=StepSeed(noise, 4))
            x = ops.where(drawn < settings.layer_drop, skipped, x)

        return x

    def _attend(self, x: Tensor, frames: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        x = self.attention(x, frames, training=training, noise=noise)
        return dropout(x, self.settings.hidden_dropout, training, noise, 1)

    def _feed_forward(self, x: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        x = ops.gelu(self.wide(x), approximate=False)
        x = dropout(x, self.settings.activation_dropout, training, noise, 2)
        return dropout(self.narrow(x), self.settings.hidden_dropout, training, noise, 3)


class Wav2Vec2Attention(Composite, layers.Layer):  # type: ignore[misc]
    """Self-attention with several heads (Vaswani et al. 2017); frames beyond a row's end are hidden from all."""

    def __init__(self, settings: Wav2Vec2Settings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = settings.heads
        self.dropout = settings.attention_dropout
        units = settings.units
        self.query = _dense(units, units, seeds, self.dtype_policy)
        self.key = _dense(units, units, seeds, self.dtype_policy)
        self.value = _dense(units, units, seeds, self.dtype_policy)
        self.output_projection = _dense(units, units, seeds, self.dtype_policy)

    def call(self, x: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None) -> Tensor:
        """Takes and returns [batch, frames, units]."""
        batch, length = ops.shape(x)[:2]
        size = x.shape[-1] // self.heads

        def split_heads(y: Tensor) -> Tensor:
            return ops.transpose(ops.reshape(y, (batch, length, self.heads, size)), (0, 2, 1, 3))

        # [batch, heads, frames, size]
        query = split_heads(self.query(x) * size**-0.5)
        key = split_heads(self.key(x))
        value = split_heads(self.value(x))

        # [batch, heads, queries, keys]; the softmax is of float32 in every precision.
        scores = ops.cast(query @ ops.transpose(key, (0, 1, 3, 2)), "float32")
        real = length_mask(frames, length)[:, None, None, :]
        weights = ops.cast(ops.softmax(ops.where(real, scores, HIDDEN)), x.dtype)
        weights = dropout(weights, self.dropout, training, noise, 0)

        # [batch, frames, units]
        attended = ops.transpose(weights @ value, (0, 2, 1, 3))
        return self.output_projection(ops.reshape(attended, (batch, length, self.heads * size)))


class Wav2Vec2Adapter(Composite, layers.Layer):  # type: ignore[misc]
    """Few units between the blocks of MMS, of which each language has its own (Houlsby et al. 2019)."""

    def __init__(self, settings: Wav2Vec2Settings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.norm = _norm(settings.units, CONVOLUTION_EPSILON, self.dtype_policy)
        self.narrow = _dense(settings.units, settings.adapter, seeds, self.dtype_policy)
        self.wide = _dense(settings.adapter, settings.units, seeds, self.dtype_policy)

    def call(self, x: Tensor) -> Tensor:
        """Takes and returns [batch, frames, units]."""
        return self.wide(ops.relu(self.narrow(self.norm(x))))


def draw_spans(
    lengths: Tensor, longest: Tensor | int, *, share: float, width: int, least: int, noise: Tensor, stream: int
) -> Tensor:
    """Random spans of each row, which may overlap; bool [batch, longest], true within them.

    A row of n elements has n · share / width spans, rounded up or down at random, with different starts. Each is whole,
    so a row that is shorter than a span has none.

    Args:
      lengths: int32 [batch], elements of each row.
      longest: elements of the longest row.
      share: of a row that the spans would cover without overlaps.
      width: of each span.
      least: spans of a row, if it has room for them side by side.
      noise, stream: the seed, as of `training.layers.StepSeed`; this stream and the next one are used.
    """
    batch = ops.shape(lengths)[0]
    elements = ops.cast(lengths, "float32")

    # [batch], spans of each row.
    rounding = keras.random.uniform((batch,), seed=StepSeed(noise, stream))
    spans = ops.cast(ops.floor(elements * (share / width) + rounding), "int32")
    spans = ops.minimum(ops.maximum(spans, least), lengths // width)

    # A row's starts are the places with the highest of random scores, one for each span: [batch, longest].
    scores = keras.random.uniform((batch, longest), seed=StepSeed(noise, stream + 1))
    scores = ops.where(length_mask(lengths - (width - 1), longest), scores, -1.0)
    ranked = ops.flip(ops.sort(scores, axis=1), axis=1)
    lowest = ops.take_along_axis(ranked, ops.maximum(spans - 1, 0)[:, None], axis=1)
    starts = ops.logical_and(scores >= lowest, (spans > 0)[:, None])

    # An element is hidden if a span started within `width` elements up to it.
    begun = ops.pad(ops.cumsum(ops.cast(starts, "int32"), axis=1), [(0, 0), (width, 0)])
    return begun[:, width:] > begun[:, : ops.shape(begun)[1] - width]


def _variables(of_layers: Sequence[Any]) -> list[Any]:
    return [variable for layer in of_layers for variable in layer.variables]


def _dense(inputs: int, units: int, seeds: Iterator[int], dtype: Any) -> layers.Dense:
    dense = layers.Dense(
        units, kernel_initializer=keras.initializers.RandomNormal(0, DEVIATION, next(seeds)), dtype=dtype
    )
    dense.build((None, inputs))
    return dense


def _norm(units: int, epsilon: float, dtype: Any) -> layers.LayerNormalization:
    norm = layers.LayerNormalization(epsilon=epsilon, dtype=dtype)
    norm.build((None, None, units))
    return norm
