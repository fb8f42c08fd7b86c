"""How a voice learns: mels, linear spectrum, stop token, and the remedies that work through the loss."""

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.train.batches import Batch
from voxline.components.train.ctc import ctc_loss
from voxline.components.train.models.mel_ctc import MelCtc
from voxline.components.train.models.tacotron import Tacotron
from voxline.components.train.models.tacotron2 import Tacotron2
from voxline.components.train.train_module import Tensor, TrainModule
from voxline.components.train.tts import losses
from voxline.components.train.tts.settings import TtsTrainSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError

INFERENCE_NOISE = (7, 0)
"""What the pre-net's dropout is drawn from wherever a voice speaks: the same text sounds the same every time."""


class TtsTrainModule(TrainModule):
    """A voice with its optimiser, on the devices of a strategy.

    A graph's shape is (frames in a decoder step, whether some steps are fed what the decoder made).
    """

    def __init__(self, settings: TtsTrainSettings, dataset: Dataset, strategy: Any) -> None:
        self.settings, self.features = settings, dataset.features
        symbols = len(dataset.alphabet.symbols)
        self._low_bins = count_low_bins(settings.loss.low_hz, dataset.features)

        def make() -> list[Any]:
            made = [build_tts_model(settings, dataset)]
            if settings.mutual_information.weight:
                units = settings.mutual_information.units
                made.append(MelCtc(dataset.features.mels, symbols + 1, units=units, seed=settings.seed))
            return made

        super().__init__(settings, strategy, make)
        self._speaker = functools.cache(self._make_speaker)

    def shape(self, step: int) -> tuple[int, bool]:
        forcing = self.settings.teacher_forcing
        return self.settings.reduction(step), min(forcing.from_share, forcing.to_share) < 1

    def dials(self, step: int) -> dict[str, float]:
        """The weight of guided attention, and the share of decoder steps that are fed recorded frames."""
        return {"guidance": self.settings.guidance(step), "teacher": self.settings.teacher_forcing.share(step)}

    def losses(
        self, batch: tuple[Tensor, ...], noise: Tensor, dials: dict[str, Tensor], shape: Any
    ) -> dict[str, Tensor]:
        """Parts of the loss, see `losses`; the weights of the settings are in them."""
        features, frames, labels, counts = batch
        settings, mels = self.settings, self.features.mels
        reduction, scheduled = shape
        wanted = self._normalised(features, frames)
        spoken = self.model(
            labels,
            counts,
            wanted,
            frames,
            training=True,
            noise=noise,
            reduction=reduction,
            teacher=dials["teacher"] if scheduled else None,
        )
        found = {"mel": losses.masked_distance(spoken.before, wanted[..., :mels], frames, settings.loss.mel)}
        if settings.model.kind == "tacotron2" and settings.model.postnet_layers:
            found["mel_after"] = losses.masked_distance(spoken.mels, wanted[..., :mels], frames, settings.loss.mel)
        if spoken.linear is not None:
            linear = losses.linear_loss(spoken.linear, wanted[..., mels:], frames, self._low_bins)
            found["linear"] = settings.loss.linear * linear
        found["stop"] = settings.loss.stop * losses.stop_loss(spoken.stop, frames)
        if settings.guided_attention.weight:
            steps, sigma = -(-frames // reduction), settings.guided_attention.sigma
            guided = losses.guided_attention_loss(spoken.alignment, steps, counts, sigma)
            found["guided_attention"] = dials["guidance"] * guided
        if self.beside:
            made = spoken.mels[:, : tf.shape(wanted)[1]]
            heard = ctc_loss(self.beside[0](made, frames), frames, labels, counts) / tf.cast(counts, tf.float32)
            found["mutual_information"] = settings.mutual_information.weight * heard
        return found

    def examine(self, batch: tuple[Tensor, ...], shape: Any) -> tuple[Tensor, ...]:
        """The distance of mels under teacher forcing, in deviations."""
        features, frames, labels, counts = batch
        wanted = self._normalised(features, frames)
        spoken = self.model(labels, counts, wanted, frames, noise=tf.constant(INFERENCE_NOISE), reduction=shape[0])
        return (losses.masked_distance(spoken.mels, wanted[..., : self.features.mels], frames),)

    def speak(self, batch: Batch, step: int, longest: int) -> Any:
        """What the voice makes of the labels alone, as numpy.

        Args:
          step: how many steps were learnt; decides the frames in a decoder step.
          longest: frames after which it is cut.
        """
        reduction = self.settings.learnt_reduction(step)
        found = self._speaker(reduction, math.ceil(longest / reduction))(batch.labels, batch.counts)
        return type(found)(*(None if part is None else np.asarray(part) for part in found))

    def restored(self, spoken: Any) -> tuple[Any, Any]:
        """Mels and linear spectrum (None where there is none) as raw features, as numpy."""
        return denormalize(self.model, spoken.mels, spoken.linear)

    def _normalised(self, features: Tensor, frames: Tensor) -> Tensor:
        real = tf.expand_dims(tf.sequence_mask(frames, tf.shape(features)[1]), -1)
        return tf.where(real, self.model.normalise(features), 0.0)

    def _make_speaker(self, reduction: int, max_steps: int) -> Any:
        def speak(labels: Tensor, counts: Tensor) -> Any:
            noise = tf.constant(INFERENCE_NOISE)
            return self.model.speak(labels, counts, max_steps=max_steps, noise=noise, reduction=reduction)

        signature = (tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32))
        return tf.function(speak, input_signature=signature, autograph=False)


def denormalize(model: Any, mels: Tensor, linear: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Raw features of what a model made in normalised space."""
    if linear is None:
        return model.restore(mels), None
    whole = model.restore(tf.concat([mels, linear], -1))
    return whole[..., : mels.shape[-1]], whole[..., mels.shape[-1] :]


def count_low_bins(hertz: float, features: FeatureSettings) -> int:
    """How many bins of the linear spectrum lie below so many Hz.

    >>> count_low_bins(4_000, FeatureSettings(fft_size=2048))
    512
    """
    return max(1, min(features.fft_bins, math.ceil(hertz * features.n_fft / features.sample_rate)))


def build_tts_model(settings: TtsTrainSettings, dataset: Dataset, *, portable: bool = False) -> Any:
    """The model for a dataset, with its initial weights.

    Raises:
      SettingsError: the dataset's features are not those that the model makes.
    """
    kind, features = settings.model.kind, dataset.features
    accepted = "mel_and_linear" if kind == "tacotron" else "log_mel"
    if features.kind != accepted:
        raise SettingsError(
            f"train.model.kind is {kind!r}, which makes {accepted}, and the dataset's features are {features.kind}; "
            f"set extract.features.kind to {accepted!r}"
        )
    model = Tacotron if kind == "tacotron" else Tacotron2
    return model(
        settings.model,
        symbols=len(dataset.alphabet.symbols),
        bins=features.bins,
        mels=features.mels,
        mean=dataset.mean,
        deviation=dataset.deviation,
        seed=settings.seed,
        precision="float32" if portable else settings.precision,
        portable=portable,
    )
