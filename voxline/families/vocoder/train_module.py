"""One training step of a vocoder: spectral losses, and discriminators with an optimizer of their own."""

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.families.vocoder import losses
from voxline.families.vocoder.networks.hifigan import HifiganGenerator
from voxline.families.vocoder.networks.vocos import Vocos, magnitude_prior
from voxline.families.vocoder.networks.waveglow import WaveGlow
from voxline.families.vocoder.onnx import check_onnx_vocoder
from voxline.families.vocoder.settings import VocoderTrainSettings
from voxline.training.discriminators import DISCRIMINATOR, Discriminators, adversarial_terms
from voxline.training.layers import Tensor
from voxline.training.optimizer import TwoOptimizers
from voxline.training.segments import split_segments
from voxline.training.stft import mel_distance
from voxline.training.train_module import BatchTensors, TrainModule

LIKELIHOOD = "negative_log_likelihood"
"""The term of a WaveGlow, in nats a sample."""


class VocoderNetwork(Protocol):
    """Interface of a vocoder's network.

    A row of a batch must give what it gives alone, and the call may use `keras.ops` only.

    Attributes:
      trainable_variables, weights: Keras variables, in an order that depends on the settings alone.
      normalizations: layers with moving statistics; see `CtcModel`.
      context_frames: frames on each side that a sample depends on; None: it does not stream.
    """

    trainable_variables: list[Any]
    weights: list[Any]
    normalizations: Sequence[Any]
    context_frames: int | None

    def __call__(self, mels: Tensor, frames: Tensor | None = None) -> Tensor:
        """Raw mels float32 [batch, frames, mels] to waveforms float32 [batch, (frames - 1) · hop].

        Args:
          frames: int [batch], real frames; None: all.
        """


def build_vocoder(settings: VocoderTrainSettings, dataset: Dataset, precision: str = "") -> VocoderNetwork:
    """The network for a dataset, with its initial weights.

    Raises:
      SettingsError: the settings do not suit the dataset's features.
    """
    model = settings.model
    features = dataset.features
    settings.check_features(features)
    if settings.export.onnx != "none":
        check_onnx_vocoder(model)

    shared: dict[str, Any] = {
        "mean": dataset.mean[features.mel_columns],
        "deviation": dataset.deviation[features.mel_columns],
        "seed": settings.seed,
        "precision": precision or settings.precision,
    }
    if model.kind == "vocos":
        size = model.inverse_fft_size(features)
        prior = magnitude_prior(features, size) if model.prior else None
        return Vocos(model, fft_size=size, hop=features.hop_length, prior=prior, **shared)

    if model.kind == "waveglow":
        return WaveGlow(model, hop=features.hop_length, **shared)

    return HifiganGenerator(model, **shared)


class VocoderTrainModule(TrainModule):
    """A vocoder with its optimizer, and from `discriminators.start_step` on discriminators with theirs.

    The graph key is whether the discriminators take part in the step. Both gradients are of the weights before the
    step, so that a step is accepted as a whole or not at all; the paper updates the generator second, against
    discriminators that have just learned.
    """

    def __init__(self, settings: VocoderTrainSettings, dataset: Dataset, strategy: Any) -> None:
        self.settings = settings
        self.features = dataset.features
        self.discriminators: Discriminators | None = None
        super().__init__(settings, strategy, lambda: [build_vocoder(settings, dataset)])
        if settings.discriminators.start_step >= 0:
            with strategy.scope():
                self.discriminators = Discriminators(
                    settings.discriminators, seed=settings.seed, precision=settings.precision
                )
                generator, judges = (
                    self.adamw(variables) for variables in (self._trainable, self.discriminators.trainable_variables)
                )
            self.optimizer = TwoOptimizers(generator, judges, len(self._trainable))

    def graph_key(self, step: int) -> bool:
        return self.settings.adversarial_at(step)

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The terms of `losses`, times their weights in the settings; of a WaveGlow its likelihood alone."""
        if isinstance(self.model, WaveGlow):
            mels, recorded = self._split(batch)
            return {LIKELIHOOD: self.model.negative_log_likelihood(recorded, mels)}

        # [batch, samples] each.
        generated, recorded = self._generate(batch)
        weights = self.settings.loss
        terms = {}
        if weights.mel:
            terms["mel"] = weights.mel * mel_distance(generated, recorded, self.features)

        # Spectra at several resolutions, shared by both terms.
        if weights.stft or weights.bands:
            generated_spectra = losses.spectra(generated)
            recorded_spectra = losses.spectra(recorded)
            if weights.stft:
                terms["stft"] = weights.stft * tf.add_n(losses.stft_distances(generated_spectra, recorded_spectra))
            if weights.bands:
                terms["bands"] = weights.bands * losses.band_distance(
                    generated_spectra, recorded_spectra, self.features
                )

        if weights.estoi:
            distance = losses.estoi_distance(generated, recorded, self.features.sample_rate)
            terms["estoi"] = weights.estoi * distance

        if graph_key and self.discriminators is not None:
            # Both judge the same step: real and generated speech, by judgments and by activations.
            terms |= adversarial_terms(self.discriminators, recorded, generated, self.settings.discriminators)

        return terms

    def objectives(self, terms: dict[str, Tensor]) -> list[tuple[Tensor, Sequence[Any]]]:
        # The discriminators minimize their own term, and nothing of the generator's.
        generator = [term for name, term in terms.items() if name != DISCRIMINATOR]
        objectives: list[tuple[Tensor, Sequence[Any]]] = [(tf.add_n(generator), self._trainable)]
        if self.discriminators is not None and DISCRIMINATOR in terms:
            objectives.append((terms[DISCRIMINATOR], self.discriminators.trainable_variables))
        return objectives

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Distances of the segments in dB, and what was generated; of a WaveGlow also its likelihood."""
        mels, recorded = self._split(batch)
        generated = tf.ensure_shape(self.model(mels), recorded.shape)
        convergence, log_stft = losses.stft_distances(losses.spectra(generated), losses.spectra(recorded))
        likelihood = {}
        if isinstance(self.model, WaveGlow):
            likelihood[LIKELIHOOD] = self.model.negative_log_likelihood(recorded, mels)
        return {
            **likelihood,
            "mel_distance": losses.DECIBELS * mel_distance(generated, recorded, self.features),
            "log_stft": losses.DECIBELS * log_stft,
            "spectral_convergence": convergence,
            "generated": generated,
        }

    def _generate(self, batch: BatchTensors) -> tuple[Tensor, Tensor]:
        """The generated and the recorded waveforms of a batch of segments, [batch, samples] each."""
        mels, recorded = self._split(batch)
        return tf.ensure_shape(self.model(mels), recorded.shape), recorded

    def _split(self, batch: BatchTensors) -> tuple[Tensor, Tensor]:
        """The mels [batch, frames, mels] and the recorded waveforms [batch, samples] of a batch of segments."""

        # Static lengths: XLA and discriminators by period need them.
        mels, samples = split_segments(batch.features, self.features.mels)
        mels = tf.ensure_shape(mels, [None, self.settings.segment_frames, self.features.mels])
        length = (self.settings.segment_frames - 1) * self.features.hop_length
        return mels, tf.reshape(samples, [-1, length])

    def _variables(self) -> dict[str, list[Any]]:
        return {**super()._variables(), "discriminators": self.discriminators.weights if self.discriminators else []}
