"""ASR training: augmented examples, the CTC loss, and the word error rate on dev."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from scipy.special import softmax

from voxline.audio.griffin_lim import features_to_waveform
from voxline.data.dataset import Dataset
from voxline.data.language_text import check_language_text
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.augmentation import Augmentation
from voxline.families.asr.export import export_asr
from voxline.families.asr.export_checks import check_export
from voxline.families.asr.networks.settings import WHOLE_UTTERANCE, WhisperSettings, build_ctc_model
from voxline.families.asr.settings import AsrTrainSettings, AugmentSettings
from voxline.inference.model_info import ModelInfo
from voxline.metrics.wer import count_character_edits, count_word_edits, sum_edits
from voxline.progress import print_status
from voxline.report.page import plural
from voxline.report.spectrogram import palette
from voxline.text.alphabet import Alphabet
from voxline.text.public_tokenizer import PublicTokenizer
from voxline.text.subwords import extend_subwords, learn_subwords
from voxline.training import devices
from voxline.training.batches import Array, Batch, Batches
from voxline.training.checkpoints import Arrays
from voxline.training.ctc import best_path, consistency_loss, ctc_loss
from voxline.training.encodings import encode_split, frozen_stages
from voxline.training.layers import Tensor
from voxline.training.settings import TrainSettings
from voxline.training.task import LOSS, Samples, TrainingTask, ValidationOutput, evenly_spaced
from voxline.training.train_module import BatchTensors, TrainModule

LOGGED_TRANSCRIPTS = 5
"""Transcripts of dev that each validation logs."""
LOGGED_SPECTROGRAMS = 3
"""Utterances of dev of which each validation logs an image."""

MAX_NAME = 60
MEL_PIXELS = 3
SYMBOL_PIXELS = 6


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """The greedy transcript of one row of a batch, and its CTC loss in nats."""

    row: int
    text: str
    loss: float


class AsrTrainModule(TrainModule):
    """A CTC model with its optimizer.

    Attributes:
      first_stage: stages of the network that batches have behind them, which are frozen; 0: batches hold features.

    Raises:
      SettingsError: the exported model could not compute the dataset's features, or the network has no ONNX graph
        or no streaming one.
    """

    def __init__(self, settings: AsrTrainSettings, dataset: Dataset, strategy: Any) -> None:
        self.alphabet = dataset.alphabet
        self.bins = dataset.features.bins
        self.consistency = settings.cr_ctc.weight
        self.first_stage = 0

        # An export that cannot be written fails here, before any training.
        check_export(settings.model, settings.export, dataset.features)
        super().__init__(
            settings,
            strategy,
            lambda: [build_ctc_model(settings.model, dataset, seed=settings.seed, precision=settings.precision)],
        )

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The CTC loss, in nats; with two views its mean, and their consistency."""
        if not self.consistency:
            logits, frames = self._run(batch, training=True, noise=noise)
            return {"ctc": ctc_loss(logits, frames, batch.labels, batch.counts, compiled=self.compiled)}

        # CR-CTC: both views in one batch, [2 · rows, frames, bins], so that they share statistics.
        views = batch.features[..., : self.bins], batch.features[..., self.bins :]
        of_views = (batch.frames, batch.labels, batch.counts)
        frames, labels, counts = (tf.concat([tensor, tensor], 0) for tensor in of_views)
        logits, frames = self.model(tf.concat(views, 0), frames, training=True, noise=noise)
        first, second = tf.split(ctc_loss(logits, frames, labels, counts, compiled=self.compiled), 2)
        (first_logits, second_logits) = tf.split(logits, 2)
        lengths = tf.split(frames, 2)[0]
        divergence = consistency_loss(first_logits, second_logits, lengths)

        return {"ctc": (first + second) / 2, "consistency": self.consistency * divergence}

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Greedy path int32 [rows, frames], loss float32 [rows], logits [rows, frames, symbols + 1], frames [rows]."""
        logits, frames = self._run(batch)
        loss = ctc_loss(logits, frames, batch.labels, batch.counts, compiled=self.compiled)
        return {"path": best_path(logits, frames), "loss": loss, "logits": logits, "frames": frames}

    def _run(self, batch: BatchTensors, **how: Any) -> tuple[Tensor, Tensor]:
        """The network on features, or on the encodings that take their place (`first_stage`)."""
        if self.first_stage:
            logits, frames = self.model.resume(batch.features, batch.frames, self.first_stage, **how)
        else:
            logits, frames = self.model(batch.features, batch.frames, **how)
        return logits, frames

    def posteriors(self, batch: Batch) -> list[npt.NDArray[np.float32]]:
        """The probabilities of each row, float32 [output frames, symbols + 1]; [] on several devices.

        By the graph of validation: one of its own takes as long to build as this one.
        """
        if self.strategy.num_replicas_in_sync > 1 or devices.is_tpu(self.strategy):
            return []
        return [softmax(out["logits"][: out["frames"]], axis=-1) for _, out in self.run_eval(batch)]

    def transcribe(self, batch: Batch) -> list[Hypothesis]:
        """The rows of the batch that this worker's devices evaluated."""
        return [
            Hypothesis(row, self.alphabet.decode(out["path"][out["path"] >= 0].tolist()), float(out["loss"]))
            for row, out in self.run_eval(batch)
        ]


def posterior_image(features: npt.NDArray[np.float32], posteriors: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Draws features above the posteriors of the model: uint8 [height, frames, 3].

    Args:
      features: [frames, bins]; the lowest bin is at the bottom.
      posteriors: [output frames, symbols + 1]; the first symbol is on top, the blank at the bottom.
    """

    # Shares of the color scale; the quantiles leave out what is far off.
    colors = palette()
    low, high = np.quantile(features, [0.01, 0.99])
    shades = np.clip((features.T[::-1] - low) / max(high - low, 1e-6), 0, 1)

    # Each frame of the posteriors lasts as long as its feature frames.
    columns = np.arange(len(features)) * len(posteriors) // len(features)
    above = shades.repeat(MEL_PIXELS, axis=0)
    below = np.clip(posteriors, 0, 1).T[:, columns].repeat(SYMBOL_PIXELS, axis=0)
    parts = [colors[(part * (len(colors) - 1)).round().astype(int)] for part in (above, below)]
    gap = np.full((4, len(features), 3), 255, np.uint8)

    return np.concatenate([parts[0], gap, parts[1]])


class AsrTask(TrainingTask):
    """Scores a validation by the WER; the loss breaks ties."""

    settings: AsrTrainSettings
    module: AsrTrainModule
    train: Batches
    dev: Batches
    decoder_parts = ("classifier",)
    unused_parts = ("decoder",)
    function_settings = (
        "top_db",
        "rnn_activation",
        "relu_clip",
        "heads",
        "convolutions.stride",
        "strides",
        "norm_first",
        "norm_epsilon",
        "scale_input",
    )
    optimizes_graph = False
    counts_seconds = True
    _audio_logged = False
    """True once the audio of the samples is logged; it is the same at each validation."""

    @classmethod
    def prepare(cls, settings: TrainSettings, dataset: Dataset, parent: ModelInfo | None) -> Dataset:
        """Adds subwords to the alphabet, learned from train; those of a parent with as many stay."""

        size = cast(AsrTrainSettings, settings).subwords
        if not size:
            return dataset
        if isinstance(dataset.alphabet, PublicTokenizer):
            raise SettingsError(
                f"train.subwords is {size}, and the model to start from spells by a tokenizer of its own; set it to 0, "
                "or take over its encoder alone (train.start.keep: encoder)"
            )

        # A parent's subwords are kept: its output layer has a column for each.
        if parent and parent.settings.get("subwords") == size:
            alphabet = extend_subwords(Alphabet(parent.alphabet), dataset.alphabet)
            how = "those of its parent"
        else:
            texts = (row.text for row in dataset.rows() if row.split == "train")
            alphabet = learn_subwords(texts, dataset.alphabet, size)
            how = "learned from the transcripts of train"

        several = len(alphabet.symbols) - len(alphabet.characters)
        print_status(f"train: {len(alphabet.symbols):,} symbols, {several:,} of them subwords, {how}")
        return dataclasses.replace(dataset, alphabet=alphabet)

    def build_batches(self) -> tuple[Batches, Batches]:
        settings = self.settings
        dataset = self.dataset

        mean = np.array(dataset.mean, np.float32)
        deviation = np.array(dataset.deviation, np.float32)

        # CR-CTC compares two views of each utterance.
        views = 2 if settings.cr_ctc.weight else 1
        # Masks of the mean of train would be the loudest part of a quiet recording, and so set its level.
        of_masks = None if settings.model.top_db else mean
        augment = Augmentation(settings.augment, dataset.features, of_masks, deviation, views)

        return self.batches_of_splits(
            Batches,
            {
                "augment": augment,
                "longer": settings.augment.speed,
                "more_frames": augment.more_frames,
                "draft_weight": settings.pseudo_weight,
            },
            time_stride=settings.model.time_stride,
            padding=settings.model.padding,
            window_frames=settings.model.window_frames,
            most_frames=self._most_frames,
        )

    def encode_frozen_parts(self, folder: Path) -> None:
        """See `TrainingTask`. Nothing may change what the frozen parts see, in any epoch."""
        settings = self.settings
        network = self.module.model
        stage = frozen_stages(network)
        changes_input = settings.augment != AugmentSettings() or settings.cr_ctc.weight or settings.model.changes_input
        several = self.strategy.num_replicas_in_sync > 1 or self.module.compiled
        if not stage or changes_input or several:
            return

        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec([None, None, self.module.bins]), tf.TensorSpec([None], tf.int32)],
            autograph=False,
        )
        def encode(features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
            values, positions = network.begin(features, frames, stage)
            return values, positions

        def encode_arrays(split: str, features: Array, frames: Array) -> tuple[Array, Array]:
            values, positions = encode(features, frames)
            return values.numpy(), self.positions_to_store(split, frames, positions.numpy())

        splits = {name: batches for name, batches in (("train", self.train), ("dev", self.dev)) if batches.utterances}
        encodings = {}
        for name, batches in splits.items():
            of_split = functools.partial(encode_arrays, name)
            encodings[name] = encode_split(batches, folder, name, of_split, settings.model.least_frames)
            if encodings[name] is None:
                return

        for name, batches in splits.items():
            batches.encodings = encodings[name]
        self.module.first_stage = stage

    def positions_to_store(self, split: str, frames: Array, positions: Array) -> Array:
        """Counts the positions of each utterance that are stored of what the frozen parts compute, int [batch].

        Args:
          frames: int32 [batch], feature frames.
          positions: int32 [batch], those that are computed.
        """
        return positions

    def build_module(self) -> AsrTrainModule:
        return AsrTrainModule(self.settings, self.dataset, self.strategy)

    def symbol_axis(self, name: str) -> int | None:
        return -1 if name.startswith("classifier/") else None

    def check_length(self) -> None:
        """See `TrainingTask`. A model that starts from another one spells from the first step.

        26 recordings of two words, fsdd.yaml: at a rate of 0.004 the WER on dev is 100% after 48 steps and 0% after 72;
        at 0.001, 100% after 96 and 0% after 200. The demo of 1,080 commands begins to spell after about 100.
        """
        check_language_text(self.settings.language_text, ((row.split, row.text) for row in self.dataset.rows()))
        settings = self.settings
        needed = self.settings.blank_plateau

        # A model that starts from another one has left the blanks behind.
        planned = settings.epochs * self.train.steps
        if needed.severity == "off" or planned >= needed.steps or settings.start.model:
            return

        epochs = math.ceil(needed.steps / max(self.train.steps, 1))
        message = (
            f"train: {plural(settings.epochs, 'epoch')} of {plural(self.train.steps, 'step')} are {planned:,} steps, "
            f"and a CTC model needs about {needed.steps:,} to output more than blanks (train.blank_plateau.steps): "
            f"raise train.epochs to {epochs:,}, or lower train.batch_size ({settings.batch_size})"
        )
        if needed.severity == "error":
            raise WorkError(message)

        print_status(message.replace("train:", "train: warning:", 1))

    @property
    def _most_frames(self) -> int:
        """Feature frames that the network has positions for, without the silence that it adds; 0: any number."""
        model = self.settings.model
        return 2 * (model.positions - model.padding) if isinstance(model, WhisperSettings) else 0

    @property
    def infeasible_reason(self) -> str:
        seconds = self._most_frames * self.dataset.features.hop_length / self.dataset.features.sample_rate
        too_long = f", or are longer than {seconds:g} s with what augmentation may add" if seconds else ""
        if self.settings.model.time_stride == WHOLE_UTTERANCE:
            return f"are not one symbol each{too_long}"
        return f"{super().infeasible_reason}{too_long}"

    @property
    def infeasible_advice(self) -> str:
        if self.settings.model.time_stride == WHOLE_UTTERANCE:
            return "With train.model.pooling utterance they must be: raise train.subwords, or set pooling to none"
        return self.settings.model.infeasible_advice

    def validate(self, step: int) -> ValidationOutput:
        """WER and mean loss over all of dev, and some transcripts."""
        ids = []
        references = []
        hypotheses = []
        losses = []
        for batch in self.dev.epoch(0):
            for hypothesis in self.module.transcribe(batch):
                ids.append(batch.ids[hypothesis.row])
                references.append(batch.texts[hypothesis.row])
                hypotheses.append(" ".join(hypothesis.text.split()))
                losses.append(hypothesis.loss)

        edits = count_word_edits(references, hypotheses)
        words = sum_edits(edits)
        characters = sum_edits(count_character_edits(references, hypotheses))
        kinds = [words.substitutions, words.deletions, words.insertions]

        # Sums over the rows of this worker, then over all workers.
        sums = [
            words.errors,
            words.length,
            math.fsum(losses),
            len(losses),
            characters.errors,
            characters.length,
            *kinds,
        ]
        total = devices.sum_over_workers(self.strategy, sums).tolist()
        errors, length, loss, count = total[:4]

        # WER, loss and CER over all of dev.
        wer = errors / max(length, 1)
        loss = loss / count
        metrics = {"wer": wer, LOSS: loss, "cer": total[4] / max(total[5], 1)}
        rates = ("substitution_rate", "deletion_rate", "insertion_rate")
        metrics |= {name: value / max(length, 1) for name, value in zip(rates, total[6:], strict=True)}

        # Some transcripts for TensorBoard.
        lines = ["| utterance | reference | hypothesis |", "| --- | --- | --- |"]
        for index in evenly_spaced(len(ids), LOGGED_TRANSCRIPTS):
            lines.append(f"| {ids[index]} | {references[index]} | {hypotheses[index]} |")

        samples = self._samples({"transcripts": "\n".join(lines)})
        by_utterance = {name: float(counted.errors) for name, counted in zip(ids, edits, strict=True)}

        return ValidationOutput((wer, loss), metrics, samples, by_utterance if len(ids) == count else {})

    def _samples(self, texts: dict[str, str]) -> Samples:
        """The texts, and of some utterances the features with the CTC posteriors below; once, the features as audio."""

        # Spectrogram and posteriors, one above the other.
        features = self.dataset.features
        rows = evenly_spaced(self.dev.utterances, LOGGED_SPECTROGRAMS)
        batch = self.dev.read(np.array(rows))
        spectra = [self.dev.features(row) for row in rows]
        images = {}
        audio = {}
        for row, values in enumerate(self.module.posteriors(batch)):
            features_of_row = spectra[row]
            images[f"posteriors {row + 1}: {batch.texts[row]}"[:MAX_NAME]] = posterior_image(features_of_row, values)

        if not self._audio_logged and features.kind == "log_mel" and len(images):
            for row in range(len(batch.ids)):
                waveform = features_to_waveform(spectra[row], features, iterations=30)
                peak = float(np.abs(waveform).max())
                audio[f"features {row + 1}: {batch.texts[row]}"[:MAX_NAME]] = waveform / max(peak, 1e-6) * 0.7
            self._audio_logged = True

        return Samples(texts, images, audio, features.sample_rate)

    def describe(self, metrics: dict[str, float]) -> str:
        return f"dev WER {metrics['wer']:.2%}, dev loss {metrics['loss']:.3f}"

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        export_asr(folder, self.settings, self.dataset, weights, training, self.parent_model)
