"""Training of Whisper's encoder and decoder: cross-entropy over the next tokens, and greedy texts of dev."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr.attention_export import export_attention
from voxline.families.asr.augmentation import Augmentation
from voxline.families.asr.export_checks import check_export
from voxline.families.asr.networks.settings import WhisperSettings
from voxline.families.asr.networks.whisper import Whisper
from voxline.families.asr.settings import AsrTrainSettings
from voxline.families.asr.task import AsrTask, Hypothesis
from voxline.families.asr.token_search import search_tokens
from voxline.inference.model_info import ModelInfo
from voxline.text.whisper_tokenizer import SearchRules, WhisperTokenizer
from voxline.training.batches import Array, Batch, Batches, Record
from voxline.training.checkpoints import Arrays
from voxline.training.encodings import frozen_stages
from voxline.training.layers import Tensor
from voxline.training.settings import TrainSettings
from voxline.training.train_module import BatchTensors, TrainModule


class AttentionTrainModule(TrainModule):
    """Whisper with its optimizer.

    Attributes:
      first_stage: stages of the network that batches have behind them, which are frozen; 0: batches hold features.
      silence: frames that training hears after each recording; None: as many as make 30 s.

    Raises:
      SettingsError: the exported model could not compute the dataset's features.
    """

    def __init__(self, settings: AsrTrainSettings, dataset: Dataset, strategy: Any) -> None:
        network = cast(WhisperSettings, settings.model)
        self.tokenizer = cast(WhisperTokenizer, dataset.alphabet)
        self.prompt = self.tokenizer.prompt
        self.rules = SearchRules.of(self.tokenizer, network.tokens)
        self.label_smoothing = network.label_smoothing
        self.bins = dataset.features.bins
        self.first_stage = 0
        self.silence = silence_frames(network, dataset.features)

        # An export that cannot be written fails here, before any training.
        network.check_features(dataset.features)
        check_export(network, settings.export, dataset.features)
        super().__init__(
            settings,
            strategy,
            lambda: [Whisper(network, bins=dataset.features.bins, seed=settings.seed, precision=settings.precision)],
        )

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The cross-entropy, in nats a token."""
        how: dict[str, Any] = {"training": True, "noise": noise}
        encoded, mask = self.model.encode(
            batch.features,
            batch.frames,
            first=self.first_stage,
            silence=self.silence,
            whole=frozen_stages(self.model),
            **how,
        )
        logits = self.model.decoder(self._read_tokens(batch), encoded, mask, **how)
        return {"cross_entropy": self._mean_loss(logits, batch, self.label_smoothing)}

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Greedy tokens int32 [rows, tokens], and the cross-entropy float32 [rows]."""
        encoded, mask = self.model.encode(batch.features, batch.frames, first=self.first_stage)
        tokens, *_ = search_tokens(self.model.decoder, encoded, mask, self.rules)
        logits = self.model.decoder(self._read_tokens(batch), encoded, mask)
        return {"tokens": tokens[:, 0], "loss": self._mean_loss(logits, batch)}

    def transcribe(self, batch: Batch) -> list[Hypothesis]:
        """The rows of the batch that this worker's devices evaluated."""
        return [
            Hypothesis(row, self.tokenizer.decode(out["tokens"].tolist()), float(out["loss"]))
            for row, out in self.run_eval(batch)
        ]

    def posteriors(self, batch: Batch) -> list[npt.NDArray[np.float32]]:
        """None: a decoder has none of its frames."""
        return []

    def _read_tokens(self, batch: BatchTensors) -> Tensor:
        """What the decoder reads, int32 [rows, prompt + labels - 1]: the prompt, and all labels but the last."""
        prompt = tf.tile(tf.constant([self.prompt], tf.int32), [tf.shape(batch.labels)[0], 1])
        return tf.concat([prompt, batch.labels[:, :-1]], axis=1)

    def _mean_loss(self, logits: Tensor, batch: BatchTensors, smoothing: float = 0.0) -> Tensor:
        """The mean over the labels of each row; what follows a token of the prompt but the last does not count.

        Args:
          logits: [rows, prompt + labels - 1, tokens].
          smoothing: share of the target that all tokens have in equal parts.
        """
        # [rows, labels, tokens] → [rows, labels]
        log_probabilities = tf.nn.log_softmax(logits[:, len(self.prompt) - 1 :])
        loss = -tf.gather(log_probabilities, batch.labels, batch_dims=2)
        if smoothing:
            loss = (1 - smoothing) * loss - smoothing * tf.reduce_mean(log_probabilities, axis=2)

        real = tf.sequence_mask(batch.counts, tf.shape(batch.labels)[1], tf.float32)
        return tf.reduce_sum(loss * real, axis=1) / tf.cast(batch.counts, tf.float32)


def silence_frames(network: WhisperSettings, features: FeatureSettings) -> int | None:
    """Feature frames of `training_silence`."""
    seconds = network.training_silence
    return None if seconds is None else round(seconds * features.sample_rate / features.hop_length)


class TokenBatches(Batches):
    """The batches of one split, for a decoder.

    Args:
      most_tokens: that an utterance may have; others are left out, and listed in `infeasible`.
    """

    def __init__(self, dataset: Dataset, split: str, *, most_tokens: int, **how: Any) -> None:
        self._most_tokens = most_tokens
        super().__init__(dataset, split, **how)

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        for record in super()._find_records(dataset, split):
            fits = record.labels <= self._most_tokens
            yield record if fits else dataclasses.replace(record, min_frames=record.frames + 1)


class AttentionTask(AsrTask):
    """Trains Whisper's encoder and decoder; scores a validation by the WER of greedy texts, as they are written."""

    module: AttentionTrainModule  # type: ignore[assignment]
    decoder_parts = ("decoder",)
    unused_parts = ("classifier",)

    @classmethod
    def prepare(cls, settings: TrainSettings, dataset: Dataset, parent: ModelInfo | None) -> Dataset:
        """Lets the tokenizer of the parent ask for the language and the task of the settings."""
        if not isinstance(dataset.alphabet, WhisperTokenizer):
            raise SettingsError(
                f"train.model.head is decoder, and the model to start from, {settings.start.model or 'none'}, has no "
                "tokenizer.json of Whisper; name one that has, such as hf://openai/whisper-tiny.en@<commit>, with "
                "train.start.keep all"
            )
        prompt = cast(WhisperSettings, cast(AsrTrainSettings, settings).model).prompt
        return dataclasses.replace(dataset, alphabet=dataset.alphabet.with_prompt(prompt.language, prompt.task))

    def build_batches(self) -> tuple[Batches, Batches]:
        settings = self.settings
        dataset = self.dataset
        network = cast(WhisperSettings, settings.model)
        mean = np.array(dataset.mean, np.float32)
        deviation = np.array(dataset.deviation, np.float32)
        augment = Augmentation(settings.augment, dataset.features, mean, deviation, 1)
        prompt = cast(WhisperTokenizer, dataset.alphabet).prompt

        # The last label, the end token, is never read.
        return self.batches_of_splits(
            TokenBatches,
            {
                "augment": augment,
                "longer": settings.augment.speed,
                "more_frames": augment.more_frames,
                "draft_weight": settings.pseudo_weight,
            },
            most_frames=2 * network.positions,
            most_tokens=network.token_positions - len(prompt) + 1,
        )

    def positions_to_store(self, split: str, frames: Array, positions: Array) -> Array:
        """See `AsrTask`. Training hears its own share of the silence; dev is validated as a model is judged."""
        silence = silence_frames(cast(WhisperSettings, self.settings.model), self.dataset.features)
        if split != "train" or silence is None:
            return positions
        return np.minimum(positions, (frames + silence + 1) // 2)

    def build_module(self) -> AttentionTrainModule:  # type: ignore[override]
        return AttentionTrainModule(self.settings, self.dataset, self.strategy)

    def symbol_axis(self, name: str) -> int | None:
        return None

    @property
    def infeasible_reason(self) -> str:
        network = cast(WhisperSettings, self.settings.model)
        hop = self.dataset.features.hop_length / self.dataset.features.sample_rate
        seconds = 2 * network.positions * hop
        return f"are longer than {seconds:g} s, or have more than {network.token_positions} tokens"

    @property
    def infeasible_advice(self) -> str:
        return "Cut these recordings, with their transcripts"

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        export_attention(folder, self.settings, self.dataset, weights, training, self.parent_model)
