"""The losses of VITS (Kim et al. 2021, section 2): what recording and text say of the latent must agree, and the
decoder must make the recording's sound of it, as its mels and as discriminators hear it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.families.tts.networks.monotonic_alignment import best_path_alignment
from voxline.families.tts.settings import TtsTrainSettings
from voxline.families.tts.vits.durations import FixedDurations
from voxline.families.tts.vits.network import Vits, VitsOutput
from voxline.families.tts.vits.posterior import LOG_TWO_PI, VitsPosterior
from voxline.families.tts.vits.settings import VitsSettings
from voxline.training.batches import LENGTHS, Batch
from voxline.training.discriminators import DISCRIMINATOR, Discriminators, adversarial_terms
from voxline.training.layers import Tensor, mask_padding
from voxline.training.optimizer import TwoOptimizers
from voxline.training.step_result import StepResult
from voxline.training.stft import magnitudes, mel_distance
from voxline.training.train_module import BatchTensors, TrainModule
from voxline.training.weight_names import weight_names

PHASE_SEGMENTS = 4
"""Segments of a batch's steps that one of the posterior encoder's first phase has: it reads 32 frames to each side."""
LONGEST_SHARE = 2
"""Frames of speech in that phase, as a share of the batch's longest recording, after which it is cut off."""
LATENT, SEGMENT, DURATION, SPEECH = 300, 301, 302, 303
"""Streams of random numbers: what is drawn from the posterior, where segments begin, noise of durations, speech."""

SPEECH_SIGNATURE = (
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([], tf.int32),
)
"""Types of labels, counts, speakers and the most frames of texts that are said."""


class Agreement(NamedTuple):
    """What recordings and texts say of the latent.

    Attributes:
      latent: drawn from the posterior, [batch, frames, latent].
      kl: divergence of both, a sum over values and the mean over frames, float32 [batch], in nats.
      duration: loss of durations, the mean over symbols, float32 [batch].
    """

    latent: Tensor
    kl: Tensor
    duration: Tensor


class VitsTrainModule(TrainModule):
    """A VITS with its posterior, and discriminators; each side has an optimizer.

    The graph key is whether the posterior encoder alone trains, on the voice's own speech, and whether discriminators
    take part. Both gradients are of the weights before the step (docs/decisions/0066).

    Attributes:
      aligned: whether batches have the symbol of each frame; set before the first step. Otherwise it is searched.
    """

    aligned = False

    def __init__(
        self, settings: TtsTrainSettings, dataset: Dataset, strategy: Any, *, several_speakers: bool = False
    ) -> None:
        if not isinstance(settings.model, VitsSettings):
            raise TypeError(f"{settings.name}: a {settings.model.kind} is not trained here")
        sizes = settings.model
        self.sizes = sizes
        self.how = settings.vits
        self.features = dataset.features
        self.several_speakers = several_speakers
        self.discriminators: Discriminators | None = None
        settings.check_features(dataset.features)

        def make_models() -> list[Any]:
            seed = settings.seed
            symbols = len(dataset.alphabet.symbols)
            bins = dataset.features.fft_bins
            posterior = VitsPosterior(sizes, bins=bins, count=self.how.posterior_layers, seed=seed)
            return [Vits(sizes, symbols=symbols, seed=seed, precision=settings.precision), posterior]

        super().__init__(settings, strategy, make_models)
        if self.how.discriminators.start_step >= 0:
            with strategy.scope():
                self.discriminators = Discriminators(
                    self.how.discriminators, seed=settings.seed, precision=settings.precision
                )
                generator, judges = (
                    self.adamw(variables) for variables in (self._trainable, self.discriminators.trainable_variables)
                )
            self.optimizer = TwoOptimizers(generator, judges, len(self._trainable))
        # No gradient passes through a loop, and a graph costs minutes: one for the last batch of an epoch too.
        self.open_rows = True
        self._speech_graph = self._make_speech_graph()
        self._rehearsal_graph = self._make_rehearsal_graph()

    @property
    def posterior(self) -> VitsPosterior:
        posterior: VitsPosterior = self.auxiliary_models[0]
        return posterior

    def take_posterior(self, weights: Mapping[str, npt.NDArray[Any]]) -> bool:
        """Sets the posterior's weights, by name; returns False, and sets none, if they are of other sizes."""
        variables = dict(zip(weight_names(self.posterior), self.posterior.weights, strict=True))
        shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
        if {name: value.shape for name, value in weights.items()} != shapes:
            return False
        for name, variable in variables.items():
            variable.assign(weights[name])
        return True

    def learn_posterior_first(self) -> None:
        """Lets the posterior alone learn in the first `posterior_steps` steps; called before the first one."""
        if self.how.posterior_steps:
            self.parts.train_auxiliary_first()
            self.head_steps = self.how.posterior_steps

    def graph_key(self, step: int) -> tuple[bool, bool]:
        learns_posterior = step < self.head_steps
        return learns_posterior, not learns_posterior and 0 <= self.how.discriminators.start_step <= step

    def train_step(self, batch: Batch, rate: float, step: int) -> StepResult:
        # A warm start has a rate for weights that have learned; those of the posterior begin at random.
        return super().train_step(batch, self.how.posterior_rate if step < self.head_steps else rate, step)

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The terms of the loss, times their weights in the settings."""
        learns_posterior, adversarial = graph_key
        if learns_posterior:
            return self._posterior_losses(batch, noise)

        agreement = self._agree(batch, noise)
        generated, recorded = self._segments(batch, agreement.latent, noise)
        terms = {
            "mel": self.how.mel * mel_distance(generated, recorded, self.features),
            "kl": self.how.kl * agreement.kl,
            "duration": self.how.duration * agreement.duration,
        }
        if adversarial and self.discriminators is not None:
            terms |= adversarial_terms(self.discriminators, recorded, generated, self.how.discriminators)
        return terms

    def objectives(self, terms: dict[str, Tensor]) -> list[tuple[Tensor, Sequence[Any]]]:
        # The discriminators minimize their own term, and nothing of the generator's.
        generator = [term for name, term in terms.items() if name != DISCRIMINATOR]
        objectives: list[tuple[Tensor, Sequence[Any]]] = [(tf.add_n(generator), self._trainable)]
        if self.discriminators is not None and DISCRIMINATOR in terms:
            objectives.append((terms[DISCRIMINATOR], self.discriminators.trainable_variables))
        return objectives

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """The loss without discriminators, [batch]: nothing is drawn, and the sound is of the middle of each row."""
        agreement = self._agree(batch, None)
        generated, recorded = self._segments(batch, agreement.latent, None)
        mel = mel_distance(generated, recorded, self.features)
        how = self.how
        return {
            "mel": mel,
            "kl": agreement.kl,
            "duration": agreement.duration,
            "loss": how.mel * mel + how.kl * agreement.kl + how.duration * agreement.duration,
        }

    def speak(self, batch: Batch, max_frames: int) -> list[VitsOutput]:
        """Speaks each text of a batch as an exported voice does: outputs of one row, of numpy arrays.

        One after another: the sound of whole texts takes much more memory than the segments of a step.
        """
        speakers = np.zeros(len(batch.counts), np.int32) if batch.speakers is None else batch.speakers
        outputs = []
        for row, count in enumerate(batch.counts.tolist()):
            one_row = slice(row, row + 1)
            output = self._speech_graph(
                batch.labels[one_row, : max(count, 1)], batch.counts[one_row], speakers[one_row], max_frames
            )
            outputs.append(VitsOutput(*(np.asarray(part) for part in output)))
        return outputs

    def rehearse(
        self, batch: Batch, row: int, max_frames: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Says a text of a batch without noise: samples, float32 [frames · hop], and the whole frames of each symbol
        with blanks and ends, int64 [symbols'].
        """
        one_row = slice(row, row + 1)
        speakers = np.zeros(1, np.int32) if batch.speakers is None else batch.speakers[one_row]
        waveforms, frames, durations, symbols = self._rehearsal_graph(
            batch.labels[one_row], batch.counts[one_row], speakers, max_frames
        )
        samples = np.asarray(waveforms[0, : int(frames[0]) * self.sizes.hop], np.float32)
        return samples, np.asarray(durations[0, : int(symbols[0])], np.int64)

    def _agree(self, batch: BatchTensors, noise: Tensor | None) -> Agreement:
        """Compares recordings with texts; without `noise` nothing is drawn or dropped but the noise of durations."""
        model = self.model
        speaker = self._speaker_values(batch.speakers)
        frames = batch.frames

        # The posterior of each frame: q(z | recording), [batch, frames, latent].
        mean_q, log_q = self.posterior(self._spectrogram(self._samples(batch)), frames, speaker)
        latent = mean_q
        if noise is not None:
            drawn = tf.random.stateless_normal(tf.shape(mean_q), _stream(noise, LATENT))
            latent = mask_padding(mean_q + drawn * tf.exp(log_q), frames)
        of_text = model.to_text(latent, frames, speaker)

        # The prior of each symbol, p(z | text), and the path: known, or the most probable one.
        ids, rows = model.with_marks(batch.labels, batch.counts)
        text, mean_p, log_p = model.encoder(ids, rows, noise)
        if self.aligned:
            numbers = tf.cast(batch.features[..., self.sizes.hop], tf.int32)
            path = mask_padding(tf.one_hot(numbers, tf.shape(ids)[1]), frames)
        else:
            path = best_path_alignment(frame_log_probabilities(of_text, mean_p, log_p), frames, rows)

        # Equation 3, with the prior of each frame's own symbol.
        mean_p = path @ mean_p
        log_p = path @ log_p
        kl = log_p - log_q - 0.5 + 0.5 * tf.square(of_text - mean_p) * tf.exp(-2 * log_p)
        kl = tf.reduce_sum(mask_padding(kl, frames), axis=(1, 2)) / tf.cast(frames, tf.float32)

        durations = tf.reduce_sum(path, axis=1)
        return Agreement(latent, kl, self._duration_loss(text, rows, durations, speaker, noise))

    def _speaker_values(self, speakers: Tensor | None) -> Tensor | None:
        """What the layers know of each row's speaker, [batch or 1, 1, values]; None without a table."""
        return self.model.speaker_values(speakers if self.several_speakers else None)

    def _duration_loss(
        self, text: Tensor, rows: Tensor, durations: Tensor, speaker: Tensor | None, noise: Tensor | None
    ) -> Tensor:
        """The mean over symbols, [batch]; no gradient passes to the text encoder and the speaker table."""
        text = tf.stop_gradient(text)
        speaker = None if speaker is None else tf.stop_gradient(speaker)
        count = tf.cast(rows, tf.float32)
        if isinstance(self.model.durations, FixedDurations):
            predicted = self.model.durations(text, rows, None, speaker, seed=noise)
            error = tf.square(predicted - tf.math.log(tf.maximum(durations, 1.0)))
            return tf.reduce_sum(mask_padding(error[..., None], rows), axis=(1, 2)) / count

        seed = tf.zeros([2], tf.int32) if noise is None else noise
        shape = tf.concat([tf.shape(durations), [2]], 0)
        drawn = tf.random.stateless_normal(shape, _stream(seed, DURATION))
        likelihood = self.posterior.durations.negative_log_likelihood(  # type: ignore[union-attr]
            self.model.durations, text, rows, durations, drawn, speaker, noise
        )
        return likelihood / count

    def _segments(self, batch: BatchTensors, latent: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Generated and recorded waveforms of a segment of each row, [batch, samples]; silent beyond a row's end."""
        size = self.how.segment_frames
        first = self._first_frames(batch.frames, size, noise)
        frames = tf.minimum(batch.frames, size)
        generated = self.model.decoder(cut_frames(latent, first, size), frames, self._speaker_values(batch.speakers))
        recorded = cut_frames(self._samples(batch), first, size)

        # Static lengths, which discriminators by period need.
        length = size * self.sizes.hop
        return tf.reshape(generated, [-1, length]), tf.reshape(recorded, [-1, length])

    def _first_frames(self, frames: Tensor, size: int, noise: Tensor | None) -> Tensor:
        """int32 [batch]; by chance, or such that the segment is in the middle."""
        room = tf.cast(tf.maximum(frames - size, 0), tf.float32)
        if noise is None:
            return tf.cast(room / 2, tf.int32)
        chance = tf.random.stateless_uniform(tf.shape(frames), _stream(noise, SEGMENT))
        return tf.cast(tf.minimum(tf.floor(chance * (room + 1)), room), tf.int32)

    def _posterior_losses(self, batch: BatchTensors, noise: Tensor) -> dict[str, Tensor]:
        """How likely the posterior finds the latent of speech that the voice makes of the batch's texts.

        The voice rests: what it knows of its latent, the posterior learns to read from sound.
        """
        model = self.model
        rows_of_batch = tf.shape(batch.labels)[0]

        def draw(steps: Tensor, values: int) -> Tensor:
            return tf.random.stateless_normal([rows_of_batch, steps, values], _stream(noise, SPEECH + values))

        longest = LONGEST_SHARE * tf.reduce_max(batch.frames)
        speakers = batch.speakers if self.several_speakers else None
        speaker = self._speaker_values(speakers)
        # At the temperature of training: a posterior that learns from less noise is too sure of recordings.
        scales = np.array([1.0, self.sizes.length, 1.0], "float32")
        imagined = model.imagine(
            batch.labels,
            batch.counts,
            max_frames=longest,
            scales=scales,
            speakers=speakers,
            draw=draw,
            pad=_padded_length,
        )

        # A segment of each text: latent [batch, size, latent] and sound [batch, size, hop].
        size = PHASE_SEGMENTS * self.how.segment_frames
        first = self._first_frames(imagined.frames, size, noise)
        frames = tf.minimum(imagined.frames, size)
        latent = tf.stop_gradient(cut_frames(imagined.latent, first, size))
        waveforms = tf.stop_gradient(model.decoder(latent, frames, speaker))
        spectrogram = self._spectrogram(tf.reshape(waveforms, [-1, size, self.sizes.hop]))

        # -log q(z | sound), a sum over values and the mean over frames.
        mean, log_deviation = self.posterior(spectrogram, frames, speaker)
        surprise = 0.5 * LOG_TWO_PI + log_deviation + 0.5 * tf.square(latent - mean) * tf.exp(-2 * log_deviation)
        surprise = tf.reduce_sum(mask_padding(surprise, frames), axis=(1, 2)) / tf.cast(frames, tf.float32)
        terms = {"posterior": surprise}
        if self.posterior.durations is not None:
            duration = self._duration_loss(imagined.text, imagined.rows, imagined.durations, speaker, noise)
            terms["duration"] = self.how.duration * duration
        return terms

    def _samples(self, batch: BatchTensors) -> Tensor:
        """[batch, frames, hop], without the symbols of `WaveformBatches` behind them."""
        return batch.features[..., : self.sizes.hop]

    def _spectrogram(self, samples: Tensor) -> Tensor:
        """Linear magnitudes [batch, frames, bins] of samples [batch, frames, hop], a window around each hop's middle.

        Beyond the ends there is silence, where the authors mirror the recording: so a row is as it is alone.
        """
        features = self.features
        hop = self.sizes.hop
        count = tf.shape(samples)[1]
        waveforms = tf.reshape(samples, [tf.shape(samples)[0], count * hop])
        missing = max(features.win_length - hop, 0)
        padded = tf.pad(waveforms, [[0, 0], [missing // 2, missing - missing // 2]])
        spectrogram = magnitudes(padded, features.n_fft, hop, features.win_length)[:, :count]
        return tf.stop_gradient(tf.ensure_shape(spectrogram, [None, None, features.fft_bins]))

    def _make_speech_graph(self) -> Any:
        def speak(labels: Tensor, counts: Tensor, speakers: Tensor, max_frames: Tensor) -> Any:
            rows = speakers if self.several_speakers else None
            return self.model.speak(labels, counts, max_frames=max_frames, speakers=rows)

        return tf.function(speak, input_signature=SPEECH_SIGNATURE, autograph=False)

    def _make_rehearsal_graph(self) -> Any:
        scales = np.array([0.0, self.sizes.length, 0.0], "float32")

        def rehearse(labels: Tensor, counts: Tensor, speakers: Tensor, max_frames: Tensor) -> Any:
            rows = speakers if self.several_speakers else None
            imagined = self.model.imagine(
                labels, counts, max_frames=max_frames, scales=scales, speakers=rows, pad=_padded_length
            )
            waveforms = self.model.decoder(imagined.latent, imagined.frames, self.model.speaker_values(rows))
            return waveforms, imagined.frames, imagined.durations, imagined.rows

        return tf.function(rehearse, input_signature=SPEECH_SIGNATURE, autograph=False)

    def _variables(self) -> dict[str, list[Any]]:
        return {**super()._variables(), "discriminators": self.discriminators.weights if self.discriminators else []}


def frame_log_probabilities(latent: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Log density of each frame under each symbol's normal distribution, float32 [batch, frames, symbols]; no gradient.

    Args:
      latent: [batch, frames, values].
      mean, log_deviation: [batch, symbols, values].
    """
    latent, mean, log_deviation = (tf.stop_gradient(values) for values in (latent, mean, log_deviation))
    precision = tf.exp(-2 * log_deviation)

    # (z - μ)² / σ² = z² / σ² - 2 z μ / σ² + μ² / σ², as products of matrices.
    of_symbol = tf.reduce_sum(-0.5 * math.log(2 * math.pi) - log_deviation - 0.5 * mean * mean * precision, axis=-1)
    square = tf.matmul(-0.5 * latent * latent, precision, transpose_b=True)
    product = tf.matmul(latent, mean * precision, transpose_b=True)
    return square + product + of_symbol[:, None]


def cut_frames(values: Tensor, first: Tensor, size: int) -> Tensor:
    """`size` frames of each row from its `first` on, [batch, size, …], zero beyond the end; of [batch, frames, …]."""
    padded = tf.pad(values, [[0, 0], [0, size], [0, 0]])
    return tf.gather(padded, first[:, None] + tf.range(size)[None], batch_dims=1)


def _padded_length(length: Tensor) -> Tensor:
    """As `batches.padded_length`, int32 []."""
    place = tf.searchsorted(LENGTHS, length[None])[0]
    return tf.maximum(tf.gather(LENGTHS, tf.minimum(place, len(LENGTHS) - 1)), length)


def _stream(noise: Tensor, number: int) -> Tensor:
    """The seed of one kind of random numbers in a step, int32 [2]."""
    return noise + tf.constant([0, number])
