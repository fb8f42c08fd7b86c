"""The decoder of both Tacotrons: its weights, and one step. `decoding` runs it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import layers, ops

from voxline.families.tts.networks.attention import AttentionKernels, LocationSensitiveAttention
from voxline.families.tts.networks.settings import DecoderSettings
from voxline.training.layers import StepSeed, Tensor

States = tuple[Tensor, ...]
CORE_NOISE = 200
"""The stream of random numbers for a core's dropout, see `StepSeed`."""


class DecoderCore(layers.Layer):  # type: ignore[misc]
    """The recurrent layers of a decoder.

    Attributes:
      query_units: size of the attention query.
      output_units: size of the output; frames are projected from it and the context.
      query_states: how many of the states belong to `query`; the others belong to `deepen`.
    """

    query_units: int
    output_units: int
    query_states: int

    def cast_weights(self) -> Any:
        """Weights in the compute dtype, fetched once before the loop."""
        raise NotImplementedError

    def context_kernels(self) -> list[Tensor]:
        """The matrices that multiply a context: in `query`, and in `deepen` if there is one."""
        raise NotImplementedError

    def loop_weights(self, weights: Any, training: bool) -> Any:
        """Weights for `query` in a loop over known frames, whose gradients are wanted."""
        return weights

    def hoist(self, prenet: Tensor, weights: Any) -> Tensor:
        """The pre-net's output [batch, steps, units] times the first matrix, for all steps at once."""
        raise NotImplementedError

    def start(self, batch: Tensor) -> States:
        """Initial states of `query`, then of `deepen`: float32 zeros."""
        raise NotImplementedError

    def perturb(self, batch: Tensor, steps: Tensor, noise: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Dropout masks for `query` and `deepen`, [batch, steps, …], or None."""
        raise NotImplementedError

    def query(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        """One step up to the attention query; `context` is already multiplied by its matrix."""
        raise NotImplementedError

    def deepen(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        """One step from the query `x` to the output; `context` is the new one, already multiplied by its matrix."""
        raise NotImplementedError

    def deepen_all(self, query: Tensor, context: Tensor, mask: Tensor | None, weights: Any, training: bool) -> Tensor:
        """`deepen` over all steps at once: under teacher forcing nothing of it feeds back into the attention."""
        raise NotImplementedError


PRENET_NOISE = 100
"""The stream of random numbers for the pre-net's dropout."""


class DecoderOutput(NamedTuple):
    """Frames [batch, steps · reduction, mels], stop logits [batch, steps · reduction], alignment [batch, steps, n]."""

    frames: Tensor
    stop: Tensor
    alignment: Tensor


class Decoder(layers.Layer):  # type: ignore[misc]
    """Pre-net, attention, a core of recurrent layers, projection to frames and stop logits."""

    def __init__(
        self, settings: DecoderSettings, core: DecoderCore, memory_units: int, mels: int, *, seed: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.core = core
        self.mels = mels
        self.memory_units = memory_units
        seeds = iter(np.random.SeedSequence([seed, 3]).generate_state(8).tolist())
        glorot = keras.initializers.GlorotUniform
        self.prenet: list[tuple[Any, Any]] = []

        # Pre-net: [mels] → [units] → …, dense layers with ReLU and dropout.
        width = mels
        for units in settings.prenet:
            shape = (width, units)
            kernel = self.add_weight(shape=shape, initializer=glorot(next(seeds)), name=f"prenet_{len(self.prenet)}")
            bias = self.add_weight(shape=(units,), initializer="zeros", name=f"prenet_bias_{len(self.prenet)}")
            self.prenet.append((kernel, bias))
            width = units

        self.attention = LocationSensitiveAttention(
            settings.attention, core.query_units, memory_units, seed=next(seeds), dtype=self.dtype_policy
        )

        # One matrix for frames and one for stop logits, of the largest reduction; a smaller one uses their first
        # columns.
        reduction = settings.reduction
        output_units = core.output_units
        width_of_projection = output_units + memory_units
        self.frame_kernel = self.add_weight(
            shape=(width_of_projection, reduction * mels), initializer=glorot(next(seeds)), name="frames"
        )
        self.frame_bias = self.add_weight(shape=(reduction * mels,), initializer="zeros", name="frames_bias")
        self.stop_kernel = self.add_weight(
            shape=(width_of_projection, reduction), initializer=glorot(next(seeds)), name="stop"
        )
        self.stop_bias = self.add_weight(shape=(reduction,), initializer="zeros", name="stop_bias")
        self.built = True

    def prenet_masks(
        self, rows: Tensor | int, steps: Tensor | int, noise: Tensor | None, training: bool
    ) -> list[Tensor] | None:
        """Dropout masks of the pre-net, [rows, steps, units]; one for all rows at inference."""
        rate = self.settings.prenet_dropout
        if noise is None or not rate or not (training or self.settings.prenet_dropout_at_inference):
            return None
        masks = []
        for index, (kernel, _) in enumerate(self.prenet):
            # The pre-net keeps its dropout at inference (section 2.2 of Tacotron 2), from a seed of its own for each
            # layer.
            uniform = keras.random.uniform((rows, steps, kernel.shape[1]), seed=StepSeed(noise, PRENET_NOISE + index))
            masks.append(ops.cast(uniform >= rate, self.compute_dtype) / (1 - rate))
        return masks

    def apply_prenet(self, x: Tensor, masks: list[Tensor] | None) -> Tensor:
        """Runs the pre-net on one frame or all of them."""
        for index, (kernel, bias) in enumerate(self.prenet):
            x = ops.relu(ops.matmul(x, ops.cast(kernel, x.dtype)) + ops.cast(bias, x.dtype))
            x = x if masks is None else x * masks[index]
        return x

    def projection(self, reduction: int) -> tuple[Tensor, Tensor]:
        """One float32 matrix, and its bias, to frames and stop logits of one decoder step."""
        frame_columns = reduction * self.mels
        kernel = ops.concatenate([self.frame_kernel[:, :frame_columns], self.stop_kernel[:, :reduction]], axis=1)
        bias = ops.concatenate([self.frame_bias[:frame_columns], self.stop_bias[:reduction]], axis=0)
        return ops.cast(kernel, "float32"), ops.cast(bias, "float32")

    def split_output(self, projected: Tensor, alignment: Tensor, reduction: int) -> DecoderOutput:
        """Splits projections [batch, steps, reduction · (mels + 1)] into frames and stop logits."""
        batch = ops.shape(projected)[0]
        frame_columns = reduction * self.mels

        # [batch, steps, reduction · mels] → [batch, steps · reduction, mels]
        frames = ops.reshape(projected[..., :frame_columns], (batch, -1, self.mels))
        return DecoderOutput(frames, ops.reshape(projected[..., frame_columns:], (batch, -1)), alignment)


def attend(weights: Tensor, memory: Tensor) -> Tensor:
    """The sum of memory [batch, symbols, width] with weights [batch, symbols]: [batch, width]."""
    return ops.squeeze(ops.matmul(ops.expand_dims(ops.cast(weights, memory.dtype), 1), memory), 1)


def split_columns(x: Tensor, places: list[int]) -> list[Tensor]:
    """Pieces of the last axis, cut at `places`; with none, the whole."""
    # The parts of a split have one gradient; slices would each have one of the whole.
    return list(ops.split(x, places, axis=-1)) if places else [x]


class EncodedText(NamedTuple):
    """The text as each step reads it: encoding [batch, symbols, units], keys of the attention, mask of real symbols."""

    memory: Tensor
    keys: Tensor
    real: Tensor


class DecoderWeights(NamedTuple):
    """Weights in the compute dtype, fetched once before the loop; `DecoderCore` documents `core` and `context`."""

    core: Any
    attention: AttentionKernels
    context: list[Tensor]
    projection: Tensor
    bias: Tensor

    @classmethod
    def of(cls, decoder: Decoder, reduction: int) -> Self:
        core = decoder.core
        return cls(
            core.cast_weights(), decoder.attention.kernels(), core.context_kernels(), *decoder.projection(reduction)
        )


def decode_step(
    decoder: Decoder,
    matrices: DecoderWeights,
    text: EncodedText,
    frame: Tensor,
    masks: list[Tensor] | None,
    state: States,
    perturb: Sequence[Tensor | None] = (None, None),
) -> tuple[Tensor, States]:
    """Runs one decoder step. Returns float32 [batch, reduction · (mels + 1)] (frames, then stop logits), and the state.

    Args:
      frame: [batch, mels], the frame that the step is fed: a recorded one, or the decoder's own last one.
      masks: dropout masks of the pre-net, [batch or 1, units] each.
      state: context, attention weights of the previous step, their sum so far, then the core's states; all float32.
      perturb: dropout masks of the core.
    """
    core = decoder.core
    dtype = decoder.compute_dtype
    context, previous, cumulative, *core_states = state

    # Pre-net of the last frame, and the context of the step before: [batch, units] each.
    x = core.hoist(decoder.apply_prenet(ops.cast(frame, dtype), masks), matrices.core)
    context_part = ops.matmul(ops.cast(context, dtype), matrices.context[0])
    query, query_states = core.query(
        x, context_part, tuple(core_states[: core.query_states]), perturb[0], matrices.core
    )

    # Attention: weights [batch, symbols], then the new context [batch, memory units].
    weights = decoder.attention.weigh(query, text.keys, text.real, previous, cumulative, matrices.attention)
    context = attend(weights, text.memory)

    # Tacotron 2 has a second LSTM between the attention and the output.
    output = query
    deep_states: States = ()
    if len(matrices.context) > 1:
        context_part = ops.matmul(context, matrices.context[1])
        output, deep_states = core.deepen(
            query, context_part, tuple(core_states[core.query_states :]), perturb[1], matrices.core
        )

    # States and projection are float32 in every precision: errors would add up over hundreds of steps.
    context = ops.cast(context, "float32")
    joined = ops.concatenate([ops.cast(output, "float32"), context], axis=-1)
    projected = ops.matmul(joined, matrices.projection) + matrices.bias

    return projected, (context, weights, cumulative + weights, *query_states, *deep_states)
