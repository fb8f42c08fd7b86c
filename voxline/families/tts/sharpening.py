"""Training of a sharpener: pairs of a voice's mels and the recording's, a critic, and validation by what is gained.

The voice's mels are teacher-forced, so that they have the recording's frames. The critic learns by the Wasserstein
distance with a gradient penalty (Gulrajani et al. 2017, arXiv 1704.00028, algorithm 1), one step for each of the
sharpener's at a rate of its own (Heusel et al. 2017), in the one training loop.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.families.tts.export import SHARPENER, export_tts
from voxline.families.tts.listener import Listener, fit_listener
from voxline.families.tts.networks.sharpener import MelCritic, Sharpener
from voxline.families.tts.onnx import check_onnx_voice
from voxline.families.tts.settings import SharpenSettings, SharpenTrainSettings, TtsExportForm, TtsTrainSettings
from voxline.families.tts.task import render_comparison
from voxline.families.tts.voice_mels import use_mels_of_voice
from voxline.inference.saved_model import MODEL_JSON
from voxline.progress import print_status
from voxline.training import devices
from voxline.training.checkpoints import Arrays
from voxline.training.export import TrainedModel
from voxline.training.layers import Tensor
from voxline.training.optimizer import TwoOptimizers
from voxline.training.segments import PairBatches, split_pairs
from voxline.training.task import Samples, TrainingTask, ValidationOutput
from voxline.training.train_module import BatchTensors, TrainModule
from voxline.training.warm_start import read_exported_weights

CRITIC = "critic"
"""The term that the critic minimizes; all others are the sharpener's."""
SUMS = ("distance", "distance_before", "sharpness", "sharpness_before", "sharpness_recorded", "change", "change_before",
        "change_recorded")  # fmt: skip
"""Sums over rows that validation computes."""


def build_sharpener(settings: SharpenSettings, seed: int) -> Sharpener:
    return Sharpener(channels=settings.channels, blocks=settings.blocks, seed=seed)


class SharpenTrainModule(TrainModule):
    """A sharpener and its critic, each with an optimizer.

    Both gradients are of the weights before the step, so that a step is accepted as a whole or not at all.

    Args:
      recognizer: the exported folder of the recognizer for the perceptual loss; None: no such loss.

    Attributes:
      listener: the recognizer's convolutions, to be fitted before the first step.
      mean, deviation: that mels are normalized by, float32 [mels].
    """

    def __init__(
        self, settings: SharpenTrainSettings, dataset: Dataset, strategy: Any, recognizer: Path | None = None
    ) -> None:
        self.settings = settings.sharpen
        columns = dataset.features.mel_columns
        self.mean = np.asarray(dataset.mean, np.float32)[columns]
        self.deviation = np.maximum(np.asarray(dataset.deviation, np.float32)[columns], np.float32(1e-5))
        super().__init__(settings, strategy, lambda: [build_sharpener(self.settings, settings.seed)])
        with strategy.scope():
            self.critic = MelCritic(
                frames=self.settings.segment_frames,
                bins=len(self.mean),
                channels=self.settings.critic_channels,
                units=self.settings.critic_units,
                seed=settings.seed,
            )
            sharpener, critic = (
                self.adamw(variables) for variables in (self._trainable, self.critic.trainable_variables)
            )
            self.listener = None if recognizer is None else Listener(recognizer, dataset.features)
            self.optimizer = TwoOptimizers(sharpener, critic, len(self._trainable), self.settings.critic_rate)

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        # [batch, segment_frames, mels] each, normalized.
        smoothed, recorded = self._split(batch)
        sharpened = self.model(smoothed, self._frames(smoothed), training=True)
        score = self.critic(sharpened, smoothed)

        # Gradient penalty: |∇ critic| is to be 1 between sharpened and recorded mels (algorithm 1).
        share = tf.random.stateless_uniform([tf.shape(sharpened)[0], 1, 1], noise)
        between = tf.stop_gradient(share * recorded + (1 - share) * sharpened)
        (gradient,) = tf.gradients(self.critic(between, smoothed), between)
        # A square root has no derivative at zero.
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=[1, 2]) + 1e-12)
        penalty = self.settings.gradient_penalty * tf.square(norm - 1)
        # Neighboring bins of a spectrum that is not flat differ where their normalized values do not.
        steps = [self._raw(mels) / np.mean(self.deviation) for mels in (sharpened, recorded)]
        perceptual = {}
        if self.listener is not None:
            perceptual["perceptual"] = self.settings.perceptual * self.listener.distance(sharpened, recorded)

        return {
            "content": self.settings.content * _mean(tf.abs(sharpened - recorded)),
            "detail": self.settings.detail * detail_loss(*steps),
            "level": self.settings.level * level_loss(*steps),
            **perceptual,
            "adversarial": -score,
            CRITIC: score - self.critic(recorded, smoothed) + penalty,
        }

    def objectives(self, terms: dict[str, Tensor]) -> list[tuple[Tensor, Sequence[Any]]]:
        # Two objectives: the critic must not learn from the sharpener's terms, nor the other way round.
        sharpener = [term for name, term in terms.items() if name != CRITIC]
        return [(tf.add_n(sharpener), self._trainable), (terms[CRITIC], self.critic.trainable_variables)]

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """The `SUMS` of each row, and the sharpened mels, raw."""

        # Sharpness is the mean step to the next bin, change the mean step to the next frame.
        smoothed, recorded = self._split(batch)
        sharpened = self.model(smoothed, self._frames(smoothed))
        sums = {"distance": _mean(tf.abs(sharpened - recorded)), "distance_before": _mean(tf.abs(smoothed - recorded))}
        for name, mels in (("", sharpened), ("_before", smoothed), ("_recorded", recorded)):
            raw = self._raw(mels)
            sums[f"sharpness{name}"] = _mean(tf.abs(raw[:, :, 1:] - raw[:, :, :-1]))
            sums[f"change{name}"] = _mean(tf.abs(raw[:, 1:] - raw[:, :-1]))
        return {**sums, "mels": self._raw(sharpened)}

    def _split(self, batch: BatchTensors) -> tuple[Tensor, Tensor]:
        """The voice's mels and the recording's, normalized, [batch, segment_frames, mels] each."""

        # A static shape: the critic has dense layers.
        bins = len(self.mean)
        features = tf.ensure_shape(batch.features, [None, self.settings.segment_frames, 2 * bins])
        smoothed, recorded = ((mels - self.mean) / self.deviation for mels in split_pairs(features, bins))
        return smoothed, recorded

    def _raw(self, mels: Tensor) -> Tensor:
        """Mels in the units of the features."""
        return mels * self.deviation + self.mean

    def _frames(self, mels: Tensor) -> Tensor:
        return tf.fill([tf.shape(mels)[0]], self.settings.segment_frames)

    def _variables(self) -> dict[str, list[Any]]:
        return {**super()._variables(), CRITIC: self.critic.weights}


class SharpenTask(TrainingTask):
    """Scores a validation by what is missing, or too much, of sharpness and of change over time on segments of dev, and
    by the share that the distance to the recording has grown by.

    Args:
      voice: its exported folder.
      folder: for its mels, until training ends.
      recognizer: the exported folder of the recognizer for the perceptual loss; None: no such loss.
    """

    settings: SharpenTrainSettings
    module: SharpenTrainModule
    train: PairBatches
    dev: PairBatches

    def __init__(
        self,
        settings: SharpenTrainSettings,
        dataset: Dataset,
        voice: Path,
        folder: Path,
        recognizer: Path | None = None,
    ) -> None:
        self._recognizer = recognizer
        super().__init__(settings, dataset)
        if (listener := self.module.listener) is not None:
            fit_listener(listener, dataset, self.train, self.module.mean, self.module.deviation)
            print_status(
                f"train: {listener.explained:.1%} of the variance of the recognizer's features is in the voice's mels"
            )

        for split, batches in (("train", self.train), ("dev", self.dev)):
            use_mels_of_voice(batches, voice, dataset.features, folder / split)

    def build_batches(self) -> tuple[PairBatches, PairBatches]:
        settings = self.settings
        frames = self.settings.sharpen.segment_frames
        shared: dict[str, Any] = {
            "share": devices.replica_share(self.strategy),
            "buckets": self.buckets,
        }
        train = PairBatches(
            self.dataset,
            "train",
            frames,
            batch_size=settings.step_size,
            seed=settings.seed,
            shuffled=True,
            corpus_weights=settings.corpus_weights,
            **shared,
        )
        return train, PairBatches(self.dataset, "dev", frames, batch_size=settings.batch_size, **shared)

    def build_module(self) -> SharpenTrainModule:
        return SharpenTrainModule(self.settings, self.dataset, self.strategy, self._recognizer)

    @property
    def infeasible_advice(self) -> str:
        return ""  # a sharpener reads no labels

    def validate(self, step: int) -> ValidationOutput:
        # Sums, not means: workers have different numbers of rows.
        totals = np.zeros(len(SUMS))
        samples = Samples()
        mels = self.dataset.features.mels
        for batch in self.dev.epoch(0):
            rows = self.module.run_eval(batch, max(step - 1, 0))
            totals += np.sum([[float(out[name]) for name in SUMS] for _, out in rows], axis=0)
            if not samples.images and rows:
                row, out = rows[0]
                smoothed, recorded = split_pairs(batch.features[row], mels)
                images = {"smoothed": smoothed, "sharpened": out["mels"]}
                samples = Samples(
                    images={name: render_comparison(mels_shown, recorded) for name, mels_shown in images.items()}
                )

        sums = dict(zip(SUMS, devices.sum_over_workers(self.strategy, totals.tolist()).tolist(), strict=True))

        # As shares of the recording's: 1 is what a sharpener is to reach.
        ratios = {"distance": sums["distance"] / max(sums["distance_before"], 1e-12)}
        for name in ("sharpness", "change"):
            recorded_sum = max(sums[f"{name}_recorded"], 1e-12)
            ratios |= {name: sums[name] / recorded_sum, f"{name}_before": sums[f"{name}_before"] / recorded_sum}

        score = abs(1 - ratios["sharpness"]) + abs(1 - ratios["change"]) + max(ratios["distance"] - 1, 0)

        return ValidationOutput((score, ratios["distance"]), {"score": score, **ratios}, samples)

    def describe(self, metrics: dict[str, float]) -> str:
        return (
            f"sharpness {metrics['sharpness_before']:.1%} → {metrics['sharpness']:.1%} of the recording's, change over "
            f"time {metrics['change_before']:.1%} → {metrics['change']:.1%}, distance to it × {metrics['distance']:.3f}"
        )

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        raise NotImplementedError("a sharpener is exported with its voice: export_sharpened")


def export_sharpened(
    folder: Path,
    settings: TtsTrainSettings,
    dataset: Dataset,
    voice: Sequence[Any],
    weights: Arrays,
    training: dict[str, Any],
    speakers: Sequence[str] = (),
) -> None:
    """Writes the voice with the sharpener in its graphs, whole or not at all.

    Args:
      settings: of the voice, with `sharpen`.
      voice: its weights.
      weights: of the sharpener, as `TrainModule.weights` returned them.
      training: what model.json says about the training.
      speakers: as of `export_tts`.
    """
    sharpener = build_sharpener(settings.sharpen, settings.seed)
    for index, variable in enumerate(sharpener.weights):
        variable.assign(weights[f"model/{index}"])

    arrays = {f"model/{index}": array for index, array in enumerate(voice)}
    export_tts(folder, settings, dataset, arrays, training, sharpener, speakers)


def export_tts_again(model: Path, form: TtsExportForm, folder: Path) -> None:
    """Writes an exported voice in another form, whole or not at all; its sharpener stays in its graphs.

    Args:
      model: its folder.

    Raises:
      SettingsError: the network has no such form.
      WorkError: the model is damaged.
    """
    write_voice(TrainedModel.read(model), form, folder)


def write_voice(trained: TrainedModel, form: TtsExportForm, folder: Path) -> None:
    """Writes a trained voice in a form, with the sharpener that the model in its folder has; errors as above."""
    model = trained.folder
    keys = ("name", "model", "seed", "sharpen", "reduction_schedule", "max_seconds")
    settings = TtsTrainSettings.of(trained.settings_of(keys, form), source=f"{model}/{MODEL_JSON}")
    if settings.export.onnx != "none":
        check_onnx_voice(settings.model.kind, settings.export.onnx)

    speakers = trained.info.speakers
    if settings.sharpens:
        sharpener = {f"model/{index}": array for index, array in enumerate(read_exported_weights(model, SHARPENER))}
        voice = list(trained.weights.values())
        export_sharpened(folder, settings, trained.dataset, voice, sharpener, trained.training, speakers)
    else:
        export_tts(folder, settings, trained.dataset, trained.weights, trained.training, speakers=speakers)
    trained.complete(folder, form)


def detail_loss(sharpened: Tensor, recorded: Tensor) -> Tensor:
    """Mean squared difference of the sizes of steps to the next bin, plus that to the next frame, float32 [batch].

    The gradient difference loss of Mathieu, Couprie and LeCun 2016 (arXiv 1511.05440, equation 6, α = 2). The size that
    minimizes it is the mean of what is possible; with α = 1 it is the median, which is less than the recording has.

    Args:
      sharpened, recorded: [batch, frames, bins].
    """

    # |Δ over bins| and |Δ over frames|, of both.
    across = tf.abs(sharpened[:, :, 1:] - sharpened[:, :, :-1]) - tf.abs(recorded[:, :, 1:] - recorded[:, :, :-1])
    along = tf.abs(sharpened[:, 1:] - sharpened[:, :-1]) - tf.abs(recorded[:, 1:] - recorded[:, :-1])
    return _mean(tf.square(across)) + _mean(tf.square(along))


def level_loss(sharpened: Tensor, recorded: Tensor) -> Tensor:
    """Mean over bins of the squared difference of the mean sizes of steps, float32 [batch].

    The steps are those to the next bin and to the next frame, each size averaged over the frames of a segment: how much
    detail a bin has, wherever it is.

    Args:
      sharpened, recorded: [batch, frames, bins].
    """

    def sizes(mels: Tensor) -> list[Tensor]:
        steps = mels[:, :, 1:] - mels[:, :, :-1], mels[:, 1:] - mels[:, :-1]
        return [tf.reduce_mean(tf.abs(step), axis=1) for step in steps]

    pairs = zip(sizes(sharpened), sizes(recorded), strict=True)
    return tf.add_n([tf.reduce_mean(tf.square(left - right), axis=1) for left, right in pairs])


def _mean(values: Tensor) -> Tensor:
    """Over all but the rows, float32 [batch]."""
    return tf.reduce_mean(values, axis=[1, 2])
