"""The losses of a TTS model: mels, linear spectrum, stop token, guided attention, durations, auxiliary CTC."""

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.families.tts import losses
from voxline.families.tts.networks.fastspeech import FastSpeech
from voxline.families.tts.networks.mel_ctc import MelCtc
from voxline.families.tts.networks.monotonic_alignment import forward_sum_loss
from voxline.families.tts.networks.tacotron import Tacotron
from voxline.families.tts.networks.tacotron2 import Tacotron2
from voxline.families.tts.networks.tts_network import TtsOutput
from voxline.families.tts.onnx import check_onnx_voice
from voxline.families.tts.settings import TtsTrainSettings
from voxline.training.batches import Batch
from voxline.training.ctc import ctc_loss
from voxline.training.layers import Tensor
from voxline.training.train_module import BatchTensors, TrainModule

NETWORKS: dict[str, Any] = {"tacotron": Tacotron, "tacotron2": Tacotron2, "fastspeech": FastSpeech}
PITCH_WEIGHT = 0.1
"""Weight of the pitch term, as in FastPitch. Most of pitch does not follow from the text: at 1 its loss would be half
of the sum, and mels suffer."""
INFERENCE_NOISE = (7, 0)
"""The seed of the pre-net's dropout at inference: the same text always sounds the same."""


class TtsTrainModule(TrainModule):
    """A TTS model with its optimizer.

    The graph key is (reduction factor, whether some decoder steps are fed the decoder's own frames).

    Args:
      several_speakers: whether batches say who speaks; else it is the settings' speaker.
      speaker_rows: float32 [speakers, units], the table of a voice that does not learn it; None: it does.
    """

    def __init__(
        self,
        settings: TtsTrainSettings,
        dataset: Dataset,
        strategy: Any,
        *,
        several_speakers: bool = False,
        speaker_rows: Any = None,
    ) -> None:
        self.settings = settings
        self.several_speakers = several_speakers
        self.features = dataset.features

        symbols = len(dataset.alphabet.symbols)

        # An export that cannot be written fails here, before hours of training.
        if settings.export.onnx != "none":
            check_onnx_voice(settings.model.kind, settings.export.onnx)

        self._low_bins = count_low_bins(settings.loss.low_hz, dataset.features)

        def make_models() -> list[Any]:
            models = [build_tts_model(settings, dataset)]
            if speaker_rows is not None:
                models[0].speakers.assign(speaker_rows)
                models[0].speakers.trainable = False
            if settings.mel_ctc.weight:
                models.append(
                    MelCtc(dataset.features.mels, symbols + 1, units=settings.mel_ctc.units, seed=settings.seed)
                )
            return models

        super().__init__(settings, strategy, make_models)
        self._synthesis_graph = functools.cache(self._make_synthesis_graph)

    def graph_key(self, step: int) -> tuple[int, bool]:
        forcing = self.settings.teacher_forcing
        return self.settings.reduction(step), min(forcing.from_share, forcing.to_share) < 1

    def schedule(self, step: int) -> dict[str, float]:
        """The weight of guided attention, and the share of decoder steps that are fed recorded frames."""
        return {
            "guided_attention": self.settings.guided_attention_weight(step),
            "teacher_forcing": self.settings.teacher_forcing.share(step),
        }

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The terms of the loss, see `losses`, times their weights in the settings."""

        # Mels of the recording in normalized space, [batch, frames, bins].
        target = self._normalize(batch)
        if isinstance(self.model, FastSpeech):
            output, terms = self._compute_by_durations(batch, target, noise)
        else:
            output, terms = self._compute_by_attention(batch, target, noise, schedule, graph_key)

        if self.auxiliary_models:
            # Mels that a recognizer can read: CTC for each symbol (Liu et al. 2019).
            mels = output.mels[:, : tf.shape(target)[1]]
            logits = self.auxiliary_models[0](mels, batch.frames, training=True)
            ctc = ctc_loss(logits, batch.frames, batch.labels, batch.counts, compiled=self.compiled)
            terms["mel_ctc"] = self.settings.mel_ctc.weight * ctc / tf.cast(batch.counts, tf.float32)

        return terms

    def _compute_by_durations(
        self, batch: BatchTensors, target: Tensor, noise: Tensor
    ) -> tuple[TtsOutput, dict[str, Tensor]]:
        """Mels of the recording's durations, and the loss but for the auxiliary CTC; weights as in the papers."""

        # Durations are predicted as logarithms: a frame too many is worse for a short symbol.
        aligned = self.model.align(
            batch.labels, batch.counts, target, batch.frames, training=True, noise=noise, **self._who_speaks(batch)
        )
        log_durations = tf.math.log(tf.maximum(aligned.durations, 1.0))
        mels = target[..., : self.features.mels]
        terms = {
            "mel": losses.masked_distance(aligned.output.mels, mels, batch.frames, self.settings.loss.mel),
            "alignment": forward_sum_loss(aligned.log_alignment, batch.frames, batch.counts),
            "duration": losses.symbol_distance(aligned.log_durations, log_durations, batch.counts),
        }

        # Targets are the energy and the pitch of the recording, averaged over each symbol's frames.
        if aligned.energy is not None:
            terms["energy"] = losses.symbol_distance(aligned.predicted_energy, aligned.energy, batch.counts)

        if aligned.pitch is not None:
            distance = losses.symbol_distance(aligned.predicted_pitch, aligned.pitch, batch.counts)
            terms["pitch"] = PITCH_WEIGHT * distance

        return aligned.output, terms

    def _compute_by_attention(
        self, batch: BatchTensors, target: Tensor, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> tuple[TtsOutput, dict[str, Tensor]]:
        """Mels of recorded frames, and the loss but for the auxiliary CTC."""

        # The graph key is static: each reduction, with and without own frames, is a graph.
        settings = self.settings
        mels = self.features.mels
        frames = batch.frames
        reduction, mixed = graph_key
        output = self.model(
            batch.labels,
            batch.counts,
            target,
            frames,
            training=True,
            noise=noise,
            reduction=reduction,
            teacher_forcing=schedule["teacher_forcing"] if mixed else None,
        )

        # The decoder's mels and the post-net's have a term each (section 2.2 of Tacotron 2).
        terms = {"mel": losses.masked_distance(output.before, target[..., :mels], frames, settings.loss.mel)}
        if settings.model.kind == "tacotron2" and settings.model.postnet_layers:
            terms["mel_after"] = losses.masked_distance(output.mels, target[..., :mels], frames, settings.loss.mel)

        if output.linear is not None:
            # Tacotron alone predicts a linear spectrum, whose low bins count twice.
            linear = losses.linear_loss(output.linear, target[..., mels:], frames, self._low_bins)
            terms["linear"] = settings.loss.linear * linear

        terms["stop"] = settings.loss.stop * losses.stop_loss(output.stop, frames)
        if settings.guided_attention.weight:
            # [batch, steps, symbols]; the weight falls to zero once the attention has learned its diagonal.
            steps = -(-frames // reduction)
            sigma = settings.guided_attention.sigma
            guided = losses.guided_attention_loss(output.alignment, steps, batch.counts, sigma)
            terms["guided_attention"] = schedule["guided_attention"] * guided

        return output, terms

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """The loss under teacher forcing: mean distance of mels, in standard deviations."""

        # Dropout of the pre-net stays on, from a fixed seed, as at inference.
        target = self._normalize(batch)
        noise = tf.constant(INFERENCE_NOISE)
        output = self.model(
            batch.labels,
            batch.counts,
            target,
            batch.frames,
            noise=noise,
            reduction=graph_key[0],
            **self._who_speaks(batch),
        )
        return {"loss": losses.masked_distance(output.mels, target[..., : self.features.mels], batch.frames)}

    def synthesize(self, batch: Batch, step: int, max_frames: int) -> TtsOutput:
        """Synthesizes the texts of a batch, without their recordings; the output holds numpy arrays.

        Args:
          step: completed steps; they decide the reduction factor.
          max_frames: frames after which a row is cut.
        """

        # A graph for each reduction and length.
        reduction = self.settings.trained_reduction(step)
        speakers = np.zeros(len(batch.counts), np.int32) if batch.speakers is None else batch.speakers
        graph = self._synthesis_graph(reduction, math.ceil(max_frames / reduction))
        output = graph(batch.labels, batch.counts, speakers)
        arrays: list[Any] = [None if part is None else np.asarray(part) for part in output]
        return TtsOutput(*arrays)

    def denormalize(self, output: TtsOutput) -> tuple[Any, Any]:
        """Mels and linear spectrum (or None) as raw features."""
        return denormalize_output(self.model, output.mels, output.linear)

    def _who_speaks(self, batch: BatchTensors) -> dict[str, Any]:
        """The argument of a network of several speakers; nothing for others, which do not take it."""
        return {"speakers": batch.speakers} if self.several_speakers else {}

    def _normalize(self, batch: BatchTensors) -> Tensor:
        # Zeros would not be zero after the normalization, so padding is set again.
        real = tf.expand_dims(tf.sequence_mask(batch.frames, tf.shape(batch.features)[1]), -1)
        return tf.where(real, self.model.normalize(batch.features), 0.0)

    def _make_synthesis_graph(self, reduction: int, max_steps: int) -> Any:
        def synthesize(labels: Tensor, counts: Tensor, speakers: Tensor) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            who = {"speakers": speakers} if self.several_speakers else {}
            return self.model.synthesize(labels, counts, max_steps=max_steps, noise=noise, reduction=reduction, **who)

        signature = (
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None], tf.int32),
        )
        return tf.function(synthesize, input_signature=signature, autograph=False)


def denormalize_output(model: Any, mels: Tensor, linear: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Mels and linear spectrum of a model's output as raw features."""
    if linear is None:
        return model.denormalize(mels), None
    raw = model.denormalize(tf.concat([mels, linear], -1))
    return raw[..., : mels.shape[-1]], raw[..., mels.shape[-1] :]


def count_low_bins(hertz: float, features: FeatureSettings) -> int:
    """The number of bins of the linear spectrum below a frequency.

    >>> count_low_bins(4_000, FeatureSettings(fft_size=2048))
    512
    """
    return max(1, min(features.fft_bins, math.ceil(hertz * features.n_fft / features.sample_rate)))


def build_tts_model(settings: TtsTrainSettings, dataset: Dataset, *, portable: bool = False) -> Any:
    """The model for a dataset, with its initial weights.

    Raises:
      SettingsError: the model does not produce the dataset's kind of features.
    """
    kind = settings.model.kind
    features = dataset.features
    settings.check_features(features)
    return NETWORKS[kind](
        settings.model,
        symbols=len(dataset.alphabet.symbols),
        bins=features.bins,
        mels=features.mels,
        mean=dataset.mean,
        deviation=dataset.deviation,
        seed=settings.seed,
        precision=settings.export.precision if portable else settings.precision,
        portable=portable,
    )
