"""Tacotron 2: convolutions and a bidirectional LSTM over symbols, attention, two LSTMs, a convolutional post-net.

After Shen et al. 2018, "Natural TTS Synthesis by Conditioning WaveNet on Mel Spectrogram Predictions".
"""

from typing import Any

import keras
from keras import layers, ops

from voxline.families.tts.networks.decoder import CORE_NOISE, Decoder, DecoderCore, States, split_columns
from voxline.families.tts.networks.settings import Tacotron2Settings
from voxline.families.tts.networks.tacotron_base import TacotronBase
from voxline.training.convolution import ConvBatchNorm
from voxline.training.layers import StepSeed, Tensor, bidirectional, dropout, mask_padding
from voxline.training.recurrence import LSTM, LoopInput, LoopKernel, before_each, run_loop


class LSTMWeights(layers.Layer):  # type: ignore[misc]
    """The weights of one LSTM with two inputs.

    Args:
      outer: size of the input that is known before the loop.
      context: size of the attention context.
      units: size of the state.
    """

    def __init__(self, outer: int, context: int, units: int, *, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        glorot = keras.initializers.GlorotUniform
        self.outer = self.add_weight(shape=(outer, 4 * units), initializer=glorot(seed), name="outer")
        self.context = self.add_weight(shape=(context, 4 * units), initializer=glorot(seed + 1), name="context")
        orthogonal = keras.initializers.Orthogonal(seed=seed + 2)
        self.recurrent = self.add_weight(shape=(units, 4 * units), initializer=orthogonal, name="recurrent")
        self.bias = self.add_weight(shape=(4 * units,), initializer=self._initial_bias, name="bias")
        self.built = True

    def _initial_bias(self, shape: Any, dtype: Any = None) -> Tensor:
        """Forget gates start open (Jozefowicz et al. 2015)."""
        units = self.units
        return ops.concatenate([ops.zeros(units), ops.ones(units), ops.zeros(2 * units)])

    def cast(self, weight: Tensor) -> Tensor:
        """A weight in the compute dtype."""
        return ops.cast(weight, self.compute_dtype)


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output and cell state, float32 [batch, units], of gates [batch, 4 · units] in the order in, forget, out, new."""
    entering, forgetting, leaving, new = ops.split(ops.cast(gates, "float32"), 4, axis=-1)

    # c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'); all in float32. One sigmoid of three gates would be kept twice for
    # the gradients of a loop, whole and in parts.
    cell = ops.sigmoid(forgetting) * cell + ops.sigmoid(entering) * ops.tanh(new)
    return ops.sigmoid(leaving) * ops.tanh(cell), cell


POSTNET_NOISE = 300
"""The stream of random numbers for the post-net's dropout."""


class Tacotron2(TacotronBase):
    """Predicts mels from symbols.

    >>> import numpy as np
    >>> settings = Tacotron2Settings(embedding=8, encoder_channels=8, encoder_lstm=4, decoder_units=8, postnet_layers=0)
    >>> model = Tacotron2(settings, symbols=5, bins=3, mels=3, mean=[0.0] * 3, deviation=[1.0] * 3)
    >>> output = model(np.array([[1, 2]]), np.array([2]), np.zeros((1, 7, 3), "float32"), np.array([7]))
    >>> output.mels.shape, output.alignment.shape
    (TensorShape([1, 7, 3]), TensorShape([1, 7, 2]))
    """

    settings: Tacotron2Settings

    def _build_layers(self, seeds: list[int], precision: str, portable: bool) -> None:
        settings = self.settings
        source = iter(seeds)
        uniform = keras.initializers.GlorotUniform(next(source))

        # Encoder: embedding, convolutions, a bidirectional LSTM (section 2.2).
        self.embedding = layers.Embedding(self.symbols, settings.embedding, uniform, dtype=precision)
        self.convolutions = [
            ConvBatchNorm(
                settings.encoder_channels,
                settings.encoder_kernel,
                activation="relu",
                seed=next(source),
                dtype=precision,
            )
            for _ in range(settings.encoder_convolutions)
        ]
        width = settings.encoder_channels if self.convolutions else settings.embedding
        self.recurrent = None
        if settings.encoder_lstm:
            direction_seeds = [next(source) for _ in range(4)]
            self.recurrent = bidirectional(LSTM, settings.encoder_lstm, direction_seeds, precision, portable)
            width = 2 * settings.encoder_lstm

        # Decoder: attention and two LSTMs.
        core = LSTMCore(settings, width, seed=next(source), dtype=precision)
        self.decoder = Decoder(settings, core, width, self.mels, seed=next(source), dtype=precision)

        # Post-net: the last convolution is linear, since it predicts a residual of mels.
        self.postnet = [
            ConvBatchNorm(
                self.mels if index == settings.postnet_layers - 1 else settings.postnet_channels,
                settings.postnet_kernel,
                activation=None if index == settings.postnet_layers - 1 else "tanh",
                seed=next(source),
                dtype=precision,
            )
            for index in range(settings.postnet_layers)
        ]

    def encode(self, labels: Tensor, counts: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        # [batch, symbols, units] throughout.
        x = mask_padding(self.embedding(labels), counts)
        for index, convolution in enumerate(self.convolutions):
            x = dropout(
                convolution(x, counts, training=training), self.settings.encoder_dropout, training, noise, index
            )
        if self.recurrent is not None:
            x = self.recurrent(x, mask=ops.arange(ops.shape(x)[1]) < ops.expand_dims(counts, 1))
        return mask_padding(x, counts)

    def refine(
        self, before: Tensor, frames: Tensor, training: bool, noise: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if not self.postnet:
            return before, None

        # The residual that the post-net adds, [batch, frames, mels].
        x = ops.cast(before, self.compute_dtype)
        for index, convolution in enumerate(self.postnet):
            x = convolution(x, frames, training=training)
            x = dropout(x, self.settings.postnet_dropout, training, noise, POSTNET_NOISE + index)
        return before + ops.cast(x, "float32"), None


class LSTMCore(DecoderCore):
    """Two LSTMs: the first makes the attention query, the second reads the context."""

    query_states = 2

    def __init__(self, settings: Tacotron2Settings, context: int, *, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.units = self.query_units = self.output_units = settings.decoder_units
        self.query_lstm = LSTMWeights(settings.prenet[-1], context, self.units, seed=seed, dtype=self.dtype_policy)
        self.output_lstm = None
        if settings.decoder_layers == 2:
            self.output_lstm = LSTMWeights(self.units, context, self.units, seed=seed + 7, dtype=self.dtype_policy)
        self._both = [gates for gates in (self.query_lstm, self.output_lstm) if gates is not None]
        self.built = True

    def cast_weights(self) -> list[tuple[Tensor, ...]]:
        """Matrix of the input, matrix of the state, and bias, for each LSTM."""
        return [tuple(map(gates.cast, (gates.outer, gates.recurrent, gates.bias))) for gates in self._both]

    def context_kernels(self) -> list[Tensor]:
        return [gates.cast(gates.context) for gates in self._both]

    def loop_weights(self, weights: Any, training: bool) -> list[tuple[Any, ...]]:
        (outer, recurrent, bias), *deeper = weights
        return [(outer, LoopKernel(recurrent, training), bias), *deeper]

    def hoist(self, prenet: Tensor, weights: Any) -> Tensor:
        outer, _, bias = weights[0]
        return ops.matmul(prenet, outer) + bias

    def start(self, batch: Tensor) -> States:
        return tuple(ops.zeros((batch, self.units)) for _ in range(2 * self.settings.decoder_layers))

    def perturb(self, batch: Tensor, steps: Tensor, noise: Tensor) -> tuple[Tensor | None, Tensor | None]:
        settings = self.settings
        if not settings.zoneout and not settings.decoder_dropout:
            return None, None
        masks: list[Tensor | None] = []
        for layer in range(2):
            seed = StepSeed(noise, CORE_NOISE + layer)

            # Zoneout of output and cell, then dropout of the output: [batch, steps, 3 · units].
            uniform = keras.random.uniform((batch, steps, 3 * self.units), seed=seed)
            updated = ops.cast(uniform[..., : 2 * self.units] >= settings.zoneout, self.compute_dtype)
            outputs = ops.cast(uniform[..., 2 * self.units :] >= settings.decoder_dropout, self.compute_dtype)
            masks.append(ops.concatenate([updated, outputs / (1 - settings.decoder_dropout)], axis=-1))
        return masks[0], masks[1] if self.output_lstm is not None else None

    def query(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        # x is multiplied by its matrix, bias included, for all steps at once (`hoist`); [batch, 4 · units].
        _, recurrent, _ = weights[0]
        state = ops.cast(states[0], self.compute_dtype)
        of_state = recurrent.multiply(state) if isinstance(recurrent, LoopKernel) else ops.matmul(state, recurrent)
        gates = x + context + of_state
        return self._advance(gates, states, mask)

    def deepen(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        # [batch, 4 · units], of the query, the new context and the own state.
        outer, recurrent, bias = weights[1]
        gates = ops.matmul(ops.cast(x, self.compute_dtype), outer) + context + bias
        gates = gates + ops.matmul(ops.cast(states[0], self.compute_dtype), recurrent)
        return self._advance(gates, states, mask)

    def deepen_all(self, query: Tensor, context: Tensor, mask: Tensor | None, weights: Any, training: bool) -> Tensor:
        if self.output_lstm is None:
            return query

        gates = self.output_lstm
        recurrent = LoopKernel(self.output_lstm.cast(self.output_lstm.recurrent), training)

        # Query and context of all steps in one product: [batch, steps, 4 · units].
        joined = ops.concatenate([query, context], axis=-1)
        kernel = ops.concatenate([gates.cast(gates.outer), gates.cast(gates.context)], axis=0)
        x = ops.matmul(joined, kernel) + gates.cast(gates.bias)
        loop_input = LoopInput(x, [recurrent])
        width = x.shape[-1]

        def step(inputs: Tensor, states: States) -> tuple[Tensor, States]:
            of_state = recurrent.multiply(ops.cast(states[0], self.compute_dtype))
            terms, *masks = split_columns(inputs, [] if mask is None else [width])
            gates = ops.cast(terms, self.compute_dtype) + of_state
            return self._advance(gates, states, masks[0] if masks else None)

        # Output and cell, zero at first.
        start = tuple(ops.zeros((ops.shape(query)[0], self.units)) for _ in range(2))
        inputs = loop_input.terms
        if mask is not None:
            inputs = ops.concatenate([inputs, ops.cast(mask, x.dtype)], axis=-1)
        outputs = run_loop(step, inputs, start)
        loop_input.record([before_each(ops.cast(outputs, self.compute_dtype))])
        return outputs

    def _advance(self, gates: Tensor, states: States, mask: Tensor | None) -> tuple[Tensor, States]:
        """Output and cell of a step, with zoneout (Krueger et al. 2017): both keep a share of the previous step."""
        output, cell = lstm_step(gates, states[1])
        rate = self.settings.zoneout
        if mask is not None:
            mask = ops.stop_gradient(ops.cast(mask, "float32"))

            # In training a mask decides which units move on; it holds 1 for those that do.
            if rate:
                new_output = mask[:, : self.units]
                new_cell = mask[:, self.units : 2 * self.units]
                output = new_output * output + (1 - new_output) * states[0]
                cell = new_cell * cell + (1 - new_cell) * states[1]
            output = output * mask[:, 2 * self.units :]

        # At inference the expectation takes the place of the draw.
        elif rate:
            output = (1 - rate) * output + rate * states[0]
            cell = (1 - rate) * cell + rate * states[1]

        return output, (output, cell)
