"""FastConformer with CTC, as public Parakeet models have it: convolutions down to 80 ms, blocks, a dense layer.

After Rekesh et al. 2023, "Fast Conformer with Linearly Scalable Attention for Efficient Speech Recognition" (arXiv
2305.05084): the blocks of the Conformer (Gulati et al. 2020, arXiv 2005.08100) on frames of 80 ms, with depthwise
separable convolutions before them, and relative positions (Dai et al. 2019, "Transformer-XL", arXiv 1901.02860).

Padding changes nothing: convolutions see zeros beyond an utterance's end, attention does not see these frames, and the
statistics of batch normalization leave them out. The published networks leave them out too, but for these statistics:
in training they count frames of padding, and so depend on how a batch is padded.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from voxline.families.asr.networks.settings import SLOWEST_POSITION, FastConformerSettings
from voxline.training.layers import Composite, SequenceBatchNorm, Tensor, dropout, length_mask, mask_padding

EPSILON = 1e-5
"""Of all normalizations."""


class FastConformer(Composite, keras.Model):  # type: ignore[misc]
    """Computes logits from normalized mels; a `CtcModel`, whose arguments it takes.

    Features come normalized from extract, so `mean` and `deviation` only say how many bins there are.

    >>> settings = FastConformerSettings(units=8, heads=2, layers=1, channels=4)
    >>> model = FastConformer(settings, mean=[0.0] * 80, deviation=[1.0] * 80, classes=29)
    >>> logits, frames = model(np.zeros((2, 31, 80), "float32"), np.array([31, 7]))
    >>> logits.shape, frames.numpy().tolist()
    (TensorShape([2, 4, 29]), [4, 1])
    """

    def __init__(
        self,
        settings: FastConformerSettings,
        *,
        mean: Sequence[float],
        deviation: Sequence[float],
        classes: int,
        seed: int = 1,
        precision: str = "float32",
        portable: bool = False,
    ) -> None:
        super().__init__(dtype=precision, autocast=False, name="fastconformer")
        self.settings = settings
        self.bins = len(mean)
        halvings = settings.time_stride.bit_length() - 1
        seeds = iter(np.random.SeedSequence(seed).generate_state(2 * halvings + 1 + 14 * settings.layers).tolist())

        # Each halves frames and bins; only the first one mixes its inputs, of which there is one.
        self.convolution = layers.Conv2D(
            settings.channels, 3, strides=2, kernel_initializer=_he(seeds), dtype=precision
        )
        self.depthwise = [
            layers.DepthwiseConv2D(3, strides=2, depthwise_initializer=_he(seeds), dtype=precision)
            for _ in range(halvings - 1)
        ]
        self.pointwise = [
            layers.Conv2D(settings.channels, 1, kernel_initializer=_he(seeds), dtype=precision)
            for _ in range(halvings - 1)
        ]

        # [frames, channels · bins / 8] → [frames, units]
        self.projection = _dense(settings.units, seeds, precision)
        self.blocks = [FastConformerBlock(settings, seeds, dtype=precision) for _ in range(settings.layers)]
        # The logits stay float32 in every precision: CTC sums probabilities over hundreds of frames.
        self.classifier = _dense(classes, seeds, "float32")
        self(np.zeros((1, settings.time_stride, self.bins), "float32"), np.array([settings.time_stride]))

    @property
    def normalizations(self) -> list[SequenceBatchNorm]:
        """The layers whose moving statistics the trainer updates; none if `fixed_statistics`."""
        return [] if self.settings.fixed_statistics else [block.convolution.batch_norm for block in self.blocks]

    @property
    def stages(self) -> list[list[Any]]:
        """The variables of what comes before the blocks, of each block, and of the output layer."""
        before = [self.convolution, *self.depthwise, *self.pointwise, self.projection]
        return [
            [variable for layer in before for variable in layer.variables],
            *(layer.variables for layer in (*self.blocks, self.classifier)),
        ]

    def call(
        self, features: Tensor, frames: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Runs the network; see `CtcModel`."""
        return self.resume(features, frames, 0, training=training, noise=noise)

    def begin(self, features: Tensor, frames: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """Computes the stages before `last`; see `StagedNetwork`."""
        return self._compute(features, frames, 0, last)

    def resume(
        self, values: Tensor, frames: Tensor, first: int, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes the stages from `first` on; see `StagedNetwork`."""
        return self._compute(values, frames, first, len(self.blocks) + 2, training, noise)

    def _compute(
        self, x: Tensor, frames: Tensor, first: int, last: int, training: bool = False, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        units = self.settings.units
        if first == 0:
            x, frames = self._subsample(x, frames)
            x = dropout(x, self.settings.dropout, training, noise, 0)
        else:
            # What was stored has lost its static shape.
            x = ops.cast(ops.reshape(x, (*ops.shape(x)[:2], units)), self.compute_dtype)

        # [2 · frames - 1, units]
        positions = ops.cast(relative_positions(ops.shape(x)[1], units), x.dtype)
        for index in range(max(first - 1, 0), min(last - 1, len(self.blocks))):
            # Each block has its own seed, since a step has only a hundred streams of a seed for itself.
            block_noise = None if noise is None else noise + ops.convert_to_tensor([index + 1, 0], dtype="int32")
            x = self.blocks[index](x, frames, positions, training=training, noise=block_noise)

        # [batch, output frames, classes]
        return (self.classifier(x) if last == len(self.blocks) + 2 else x), frames

    def _subsample(self, features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """The input of the blocks, [batch, frames / 8, units], and the real frames of each row."""
        settings = self.settings

        # [batch, frames, bins], zero beyond the end and in the frames of padding. A graph of the training does not know
        # how many bins there are.
        features = ops.reshape(features, (*ops.shape(features)[:2], self.bins))
        x = ops.cast(mask_padding(features, frames), self.compute_dtype)
        x = ops.pad(x, [(0, 0), (settings.padding, settings.padding), (0, 0)])
        frames = ops.cast(frames, "int32") + 2 * settings.padding

        # [batch, frames, bins, 1] → [batch, frames / 8, bins / 8, channels]
        x, frames = _halve(ops.expand_dims(x, -1), frames, [self.convolution])
        for depthwise, pointwise in zip(self.depthwise, self.pointwise, strict=True):
            x, frames = _halve(x, frames, [depthwise, pointwise])

        # The bins of a channel are neighbors: [batch, frames, channels · bins] → [batch, frames, units]
        x = ops.transpose(x, (0, 1, 3, 2))
        x = self.projection(ops.reshape(x, (*ops.shape(x)[:2], x.shape[2] * x.shape[3])))
        scale = settings.units**0.5 if settings.scale_input else 1.0

        return x * ops.cast(scale, x.dtype), frames


class FastConformerBlock(Composite, layers.Layer):  # type: ignore[misc]
    """Half a feed-forward module, self-attention, a convolution module, half a feed-forward module, layer norm.

    Equation 1 of Gulati et al.: each module adds to its input, which it normalizes first.
    """

    def __init__(self, settings: FastConformerSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.first = FeedForwardModule(settings, seeds, 0, dtype=policy)
        self.attention = RelativeAttention(settings, seeds, 1, dtype=policy)
        self.convolution = ConvolutionModule(settings, seeds, dtype=policy)
        self.second = FeedForwardModule(settings, seeds, 2, dtype=policy)
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)

    def call(
        self, x: Tensor, frames: Tensor, positions: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> Tensor:
        x = x + 0.5 * self.first(x, training=training, noise=noise)
        x = x + self.attention(x, frames, positions, training=training, noise=noise)
        x = x + self.convolution(x, frames, training=training)
        x = x + 0.5 * self.second(x, training=training, noise=noise)

        return self.norm(x)


class FeedForwardModule(Composite, layers.Layer):  # type: ignore[misc]
    """Layer norm, a wide dense layer with swish, and a dense layer back.

    Args:
      stream: of the dropout behind the swish, within the block's seed.
    """

    def __init__(self, settings: FastConformerSettings, seeds: Iterator[int], stream: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        bias = settings.attention_bias
        self.rate = settings.activation_dropout
        self.stream = stream
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.widen = _dense(settings.feed_forward * settings.units, seeds, policy, bias)
        self.narrow = _dense(settings.units, seeds, policy, bias)

    def call(self, x: Tensor, training: bool = False, noise: Tensor | None = None) -> Tensor:
        """Takes and returns [batch, frames, units]."""
        x = ops.silu(self.widen(self.norm(x)))
        return self.narrow(dropout(x, self.rate, training, noise, self.stream))


class RelativeAttention(Composite, layers.Layer):  # type: ignore[misc]
    """Layer norm and self-attention with relative positions (Dai et al. 2019, section 3.3).

    The score of query i and key j is (q_i + u) · k_j + (q_i + v) · r_(i - j), with learned u and v, and with
    r_(i - j), a projection of the sinusoids of their distance.

    Args:
      stream: of the dropout of the attention's weights, within the block's seed.
    """

    def __init__(self, settings: FastConformerSettings, seeds: Iterator[int], stream: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        units = settings.units
        bias = settings.attention_bias
        self.heads = settings.heads
        self.size = units // settings.heads
        self.rate = settings.attention_dropout
        self.stream = stream
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.query = _dense(units, seeds, policy, bias)
        self.key = _dense(units, seeds, policy, bias)
        self.value = _dense(units, seeds, policy, bias)
        self.position = _dense(units, seeds, policy, use_bias=False)
        self.output_projection = _dense(units, seeds, policy, bias)
        # u and v of the paper.
        self.content_bias = self._bias(next(seeds), "content_bias")
        self.position_bias = self._bias(next(seeds), "position_bias")

    def _bias(self, seed: int, name: str) -> Any:
        initializer = keras.initializers.RandomNormal(stddev=0.02, seed=seed)
        return self.add_weight(shape=(self.heads, self.size), initializer=initializer, name=name)

    def call(
        self, x: Tensor, frames: Tensor, positions: Tensor, training: bool = False, noise: Tensor | None = None
    ) -> Tensor:
        """Takes and returns [batch, frames, units].

        Args:
          positions: [2 · frames - 1, units], of `relative_positions`.
        """
        x = self.norm(x)
        batch, length = ops.shape(x)[:2]
        split = (batch, length, self.heads, self.size)

        # [batch, heads, frames, size]
        query = ops.reshape(self.query(x), split)
        key = ops.transpose(ops.reshape(self.key(x), split), (0, 2, 1, 3))
        value = ops.transpose(ops.reshape(self.value(x), split), (0, 2, 1, 3))
        content_query = ops.transpose(query + ops.cast(self.content_bias, query.dtype), (0, 2, 1, 3))
        position_query = ops.transpose(query + ops.cast(self.position_bias, query.dtype), (0, 2, 1, 3))

        # [heads, size, 2 · frames - 1]
        relative_key = ops.reshape(self.position(positions), (2 * length - 1, self.heads, self.size))
        relative_key = ops.transpose(relative_key, (1, 2, 0))

        # [batch, heads, queries, keys], in float32
        scores = ops.matmul(content_query, ops.transpose(key, (0, 1, 3, 2)))
        scores = scores + shift_to_distances(ops.matmul(position_query, relative_key))
        scores = ops.cast(scores, "float32") * self.size**-0.5

        # Keys beyond the end are hidden from all queries.
        real = length_mask(frames, length)[:, None, None, :]
        scores = ops.where(real, scores, np.finfo(np.float32).min)
        # A softmax; Keras' own warns of an utterance with one output frame.
        shares = ops.exp(scores - ops.logsumexp(scores, axis=-1, keepdims=True))
        shares = dropout(ops.cast(shares, value.dtype), self.rate, training, noise, self.stream)

        attended = ops.transpose(ops.matmul(shares, value), (0, 2, 1, 3))
        return self.output_projection(ops.reshape(attended, (batch, length, self.heads * self.size)))


class ConvolutionModule(Composite, layers.Layer):  # type: ignore[misc]
    """Layer norm, gated linear unit, depthwise convolution, batch normalization, swish, and a dense layer.

    Figure 2 of Gulati et al. With `fixed_statistics`, training normalizes by the moving statistics, as inference does.
    """

    def __init__(self, settings: FastConformerSettings, seeds: Iterator[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        bias = settings.convolution_bias
        self.fixed_statistics = settings.fixed_statistics
        self.norm = layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.gated = _dense(2 * settings.units, seeds, policy, bias)
        self.depthwise = layers.DepthwiseConv1D(
            settings.kernel,
            padding="same",
            use_bias=bias,
            depthwise_initializer=keras.initializers.GlorotUniform(next(seeds)),
            dtype=policy,
        )
        self.batch_norm = SequenceBatchNorm(momentum=0.9, epsilon=EPSILON, dtype=policy)
        self.pointwise = _dense(settings.units, seeds, policy, bias)

    def call(self, x: Tensor, frames: Tensor, training: bool = False) -> Tensor:
        """Takes and returns [batch, frames, units]."""
        value, gate = ops.split(self.gated(self.norm(x)), 2, axis=-1)
        x = self.depthwise(mask_padding(value * ops.sigmoid(gate), frames))
        x = self.batch_norm(x, frames, training=training and not self.fixed_statistics)
        return self.pointwise(ops.silu(x))


def relative_positions(length: Tensor, units: int) -> Tensor:
    """Sinusoids of the distances length - 1 to -(length - 1), float32 [2 · length - 1, units].

    Sine and cosine of a pair are neighbors.

    >>> relative_positions(2, 2).numpy().round(2).tolist()
    [[0.8399999737739563, 0.5400000214576721], [0.0, 1.0], [-0.8399999737739563, 0.5400000214576721]]
    """
    speeds = SLOWEST_POSITION ** -(np.arange(0, units, 2, dtype="float32") / units)
    distances = ops.cast(length - 1 - ops.arange(2 * length - 1), "float32")
    angles = ops.expand_dims(distances, 1) * speeds

    # [2 · length - 1, units / 2, 2] → [2 · length - 1, units]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (2 * length - 1, units))


def shift_to_distances(scores: Tensor) -> Tensor:
    """Arranges scores by distance, [..., queries, 2 · queries - 1], by key, [..., queries, queries].

    Column p of a query is for the distance queries - 1 - p. Query i takes its key j from column queries - 1 - i + j
    (Dai et al. 2019, appendix B).

    >>> shift_to_distances(np.array([[[[1, 0, -1], [1, 0, -1]]]]))[0, 0].numpy().tolist()
    [[0, -1], [1, 0]]
    """
    batch, heads, length = ops.shape(scores)[:3]

    # One value before each row: read as rows of `length`, each row then begins one value earlier than the last.
    padded = ops.pad(scores, [(0, 0), (0, 0), (0, 0), (1, 0)])
    rows = ops.reshape(padded, (batch, heads, 2 * length, length))[:, :, 1:]
    return ops.reshape(rows, (batch, heads, length, 2 * length - 1))[..., :length]


def _halve(x: Tensor, frames: Tensor, convolutions: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Halves the frames and bins of [batch, frames, bins, channels]; frames beyond the end come out as zero.

    Output i is centered on input 2 · i, whatever the batch's length.
    """
    x = ops.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    for convolution in convolutions:
        x = convolution(x)
    frames = (frames + 1) // 2
    real = length_mask(frames, ops.shape(x)[1])[:, :, None, None]

    return ops.where(real, ops.relu(x), ops.zeros((), x.dtype)), frames


def _he(seeds: Iterator[int]) -> Any:
    return keras.initializers.HeNormal(next(seeds))


def _dense(units: int, seeds: Iterator[int], dtype: Any, use_bias: bool = True) -> layers.Dense:
    initializer = keras.initializers.GlorotUniform(next(seeds))
    return layers.Dense(units, use_bias=use_bias, kernel_initializer=initializer, dtype=dtype)
