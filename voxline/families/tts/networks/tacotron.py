"""Tacotron: a CBHG over symbols, attention, residual GRUs, and a CBHG from mels to the linear spectrum.

After Wang et al. 2017, "Tacotron: Towards End-to-End Speech Synthesis", with location-sensitive attention.
"""

from typing import Any

import keras
from keras import layers, ops

from voxline.families.tts.networks.cbhg import CBHG
from voxline.families.tts.networks.decoder import Decoder, DecoderCore, States
from voxline.families.tts.networks.settings import TacotronSettings
from voxline.families.tts.networks.tacotron_base import TacotronBase
from voxline.training.layers import Tensor, dropout, mask_padding


class Tacotron(TacotronBase):
    """Predicts mels and a linear spectrum from symbols; a frame of features is mels, then linear bins.

    >>> import numpy as np
    >>> settings = TacotronSettings(embedding=8, encoder_bank=2, encoder_gru=4, decoder_units=8, postnet_bank=2)
    >>> model = Tacotron(settings, symbols=5, bins=9, mels=3, mean=[0.0] * 9, deviation=[1.0] * 9)
    >>> output = model(np.array([[1, 2]]), np.array([2]), np.zeros((1, 7, 9), "float32"), np.array([7]))
    >>> output.mels.shape, output.linear.shape, output.alignment.shape
    (TensorShape([1, 10, 3]), TensorShape([1, 10, 6]), TensorShape([1, 2, 2]))
    """

    settings: TacotronSettings

    def _build_layers(self, seeds: list[int], precision: str, portable: bool) -> None:
        settings = self.settings
        source = iter(seeds)
        if self.bins <= self.mels:
            raise ValueError(
                f"frames of {self.bins} bins, {self.mels} of them mels: none are left for the linear spectrum that "
                "tacotron predicts; extract features of kind mel_and_linear"
            )

        glorot = keras.initializers.GlorotUniform
        normal = keras.initializers.RandomNormal(stddev=0.5, seed=next(source))

        # Encoder: embedding, pre-net, CBHG.
        self.embedding = layers.Embedding(self.symbols, settings.embedding, normal, dtype=precision)
        self.prenet = [
            layers.Dense(units, "relu", kernel_initializer=glorot(next(source)), dtype=precision)
            for units in settings.prenet
        ]
        self.encoder = CBHG(
            settings.prenet[-1],
            bank=settings.encoder_bank,
            channels=settings.encoder_channels,
            projection=settings.encoder_channels,
            highways=settings.highways,
            gru=settings.encoder_gru,
            seeds=source,
            portable=portable,
            dtype=precision,
        )

        # Decoder: attention and residual GRUs.
        core = GRUCore(settings, self.encoder.width, seed=next(source), dtype=precision)
        self.decoder = Decoder(settings, core, self.encoder.width, self.mels, seed=next(source), dtype=precision)

        # Post-net: mels to the linear spectrum, in both directions of time.
        self.postnet = CBHG(
            self.mels,
            bank=settings.postnet_bank,
            channels=settings.postnet_channels,
            projection=settings.postnet_projection,
            highways=settings.highways,
            gru=settings.postnet_gru,
            seeds=source,
            portable=portable,
            dtype=precision,
        )
        self.spectrum = layers.Dense(self.bins - self.mels, kernel_initializer=glorot(next(source)), dtype="float32")

    def encode(self, labels: Tensor, counts: Tensor, training: bool, noise: Tensor | None) -> Tensor:
        # [batch, symbols, embedding] → [batch, symbols, pre-net units]
        x = self.embedding(labels)
        for index, layer in enumerate(self.prenet):
            x = dropout(layer(x), self.settings.prenet_dropout, training, noise, index)
        return self.encoder(mask_padding(x, counts), counts, training=training)

    def refine(
        self, before: Tensor, frames: Tensor, training: bool, noise: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        # [batch, frames, mels] → [batch, frames, post-net units] → [batch, frames, linear bins]
        x = self.postnet(ops.cast(before, self.compute_dtype), frames, training=training)
        return before, mask_padding(self.spectrum(x), frames)


class GRUCore(DecoderCore):
    """A dense layer over pre-net and context, then residual GRUs; the output of the last is the attention query."""

    def __init__(self, settings: TacotronSettings, context: int, *, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = self.query_units = self.output_units = units = settings.decoder_units
        self.query_states = settings.decoder_layers
        glorot = keras.initializers.GlorotUniform
        self.outer = self.add_weight(shape=(settings.prenet[-1], units), initializer=glorot(seed), name="outer")
        self.context = self.add_weight(shape=(context, units), initializer=glorot(seed + 1), name="context")
        self.bias = self.add_weight(shape=(units,), initializer="zeros", name="bias")
        self.grus = []
        for layer in range(settings.decoder_layers):
            seed_of_layer = seed + 2 + 2 * layer
            name = f"gru_{layer}"
            kernel = self.add_weight(shape=(units, 3 * units), initializer=glorot(seed_of_layer), name=f"{name}_kernel")
            orthogonal = keras.initializers.Orthogonal(seed=seed_of_layer + 1)
            recurrent = self.add_weight(shape=(units, 3 * units), initializer=orthogonal, name=f"{name}_recurrent")
            biases = self.add_weight(shape=(2, 3 * units), initializer="zeros", name=f"{name}_bias")
            self.grus.append((kernel, recurrent, biases))

        self.built = True

    def cast_weights(self) -> list[tuple[Tensor, ...]]:
        return [tuple(ops.cast(weight, self.compute_dtype) for weight in gru) for gru in self.grus]

    def context_kernels(self) -> list[Tensor]:
        return [ops.cast(self.context, self.compute_dtype)]

    def hoist(self, prenet: Tensor, weights: Any) -> Tensor:
        return ops.matmul(prenet, ops.cast(self.outer, prenet.dtype)) + ops.cast(self.bias, prenet.dtype)

    def start(self, batch: Tensor) -> States:
        return tuple(ops.zeros((batch, self.units)) for _ in self.grus)

    def perturb(self, batch: Tensor, steps: Tensor, noise: Tensor) -> tuple[None, None]:
        return None, None

    def query(
        self, x: Tensor, context: Tensor, states: States, mask: Tensor | None, weights: Any
    ) -> tuple[Any, States]:
        x = x + context
        new_states = []
        units = self.units

        # A GRU with the reset gate after the product (Cho et al. 2014, as cuDNN): z and r from both inputs, then h'.
        for state, (kernel, recurrent, biases) in zip(states, weights, strict=True):
            previous = ops.cast(state, x.dtype)

            # [batch, 3 · units] each: reset, update, candidate.
            input_gates = ops.matmul(x, kernel) + biases[0]
            state_gates = ops.matmul(previous, recurrent) + biases[1]
            gates = ops.sigmoid(input_gates[:, : 2 * units] + state_gates[:, : 2 * units])
            reset = gates[:, :units]
            update = gates[:, units:]
            candidate = ops.tanh(input_gates[:, 2 * units :] + reset * state_gates[:, 2 * units :])

            # h' = z h + (1 - z) h̃, and a residual connection around each layer.
            previous = update * previous + (1 - update) * candidate
            new_states.append(ops.cast(previous, "float32"))
            x = x + previous

        return x, tuple(new_states)

    def deepen_all(self, query: Tensor, context: Tensor, mask: Tensor | None, weights: Any, training: bool) -> Tensor:
        return query
