"""One step of learning, and one of recognising, as graphs that run on whatever devices there are."""

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.speech.dataset import Dataset
from components.train.batches import Batch
from components.train.checkpoints import Arrays
from components.train.ctc import best_path, ctc_loss
from components.train.models.deepspeech2 import DeepSpeech2
from components.train.optimizer import AdamW, keep
from components.train.recognition.settings import RecognitionSettings

Tensor = Any


def batch_signature(rows: int | None) -> tuple[tf.TensorSpec, ...]:
    """Features, frames, labels, counts, and the weight of each row in the loss."""
    return (
        tf.TensorSpec([rows, None, None], tf.float32),
        tf.TensorSpec([rows], tf.int32),
        tf.TensorSpec([rows, None], tf.int32),
        tf.TensorSpec([rows], tf.int32),
        tf.TensorSpec([rows], tf.float32),
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """What a step of learning says of itself.

    Attributes:
      loss: mean CTC loss of an utterance, in nats.
      norm: the gradient's global norm, before clipping.
      accepted: False where loss, gradient or statistics were not finite; then nothing was changed.
    """

    loss: float
    norm: float
    accepted: bool


class Learner:
    """A model with its optimiser, on the devices of a strategy."""

    def __init__(self, settings: RecognitionSettings, dataset: Dataset, strategy: Any) -> None:
        self.settings, self.strategy, self.alphabet = settings, strategy, dataset.alphabet
        with strategy.scope():
            self.model = build(settings, dataset)
            self.optimizer = AdamW(self.model.trainable_variables, settings)
        self._moving = [
            variable.value
            for norm in self.model.normalisations
            for variable in (norm.moving_mean, norm.moving_variance)
        ]
        self._momenta = [norm.momentum for norm in self.model.normalisations for _ in range(2)]
        self._learn = functools.cache(self._learn_rows)
        self._listen = tf.function(self._recognise, input_signature=batch_signature(None))

    def learn(self, batch: Batch, rate: float, step: int) -> Step:
        """Takes one step; `step`, counted from 0, seeds the dropout."""
        noise = tf.constant([self.settings.seed, step * 1000], tf.int32)
        tensors = self._tensors(batch)
        loss, norm, accepted = self._learn(len(tensors[0]))(*tensors, tf.constant(rate, tf.float32), noise)
        return Step(float(loss), float(norm), bool(accepted))

    def recognise(self, batch: Batch) -> list[tuple[int, str, float]]:
        """Row, text and loss of each row of the batch that falls to this worker's devices."""
        texts = []
        paths, losses, rows = map(self.strategy.experimental_local_results, self._listen(*self._tensors(batch)))
        for path, loss, numbers in zip(paths, losses, rows, strict=True):
            for row, labels, value in zip(numbers.numpy(), path.numpy(), loss.numpy(), strict=True):
                if row < len(batch.ids):
                    texts.append((int(row), self.alphabet.decode(labels[labels >= 0].tolist()), float(value)))
        return texts

    def weights(self) -> Arrays:
        """The model's weights alone."""
        return {f"model/{index}": _value(variable) for index, variable in enumerate(self.model.weights)}

    def state(self) -> Arrays:
        """All that a step of learning changes."""
        moments = {f"optimizer/{index}": _value(variable) for index, variable in enumerate(self.optimizer.state)}
        return {**self.weights(), **moments}

    def restore(self, arrays: Arrays) -> None:
        for index, variable in enumerate(self.model.weights):
            variable.assign(arrays[f"model/{index}"])
        for index, variable in enumerate(self.optimizer.state):
            variable.assign(arrays[f"optimizer/{index}"])

    def _tensors(self, batch: Batch) -> tuple[Tensor, ...]:
        """The batch, with rows repeated at no weight until each replica has one."""
        rows = len(batch.ids)
        replicas = self.strategy.num_replicas_in_sync
        filled = np.arange(max(rows, replicas)) % rows
        weights = np.where(np.arange(len(filled)) < rows, 1 / rows, 0).astype(np.float32)
        arrays = [array[filled] for array in (batch.features, batch.frames, batch.labels, batch.counts)]
        return tuple(tf.constant(array) for array in (*arrays, weights))

    def _learn_rows(self, rows: int) -> Any:
        """The graph for batches of so many rows.

        With the rows left open, each step of the recurrent loops' gradient would compute shapes: 1.6 times as slow.
        """
        others = tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32)
        return tf.function(self._step, input_signature=(*batch_signature(rows), *others))

    def _step(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *batch, rate, noise = inputs
        loss, norm, accept, gradients, moved = self.strategy.run(self._gradients, args=(*batch, noise))
        self.optimizer.update(self.strategy, gradients, norm, rate, accept)
        for variable, value in zip(self._moving, moved, strict=True):
            self.strategy.extended.update(variable, keep, args=(value, accept), group=False)
        return tuple(self.strategy.experimental_local_results(value)[0] for value in (loss, norm, accept))

    def _gradients(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
        """On one replica: loss, gradient and statistics, summed over all replicas."""
        context = tf.distribute.get_replica_context()
        *batch, noise = inputs
        features, frames, labels, counts, weights = _share(batch)
        noise = noise + tf.stack([0, 100 * tf.cast(context.replica_id_in_sync_group, tf.int32)])
        with tf.GradientTape() as tape:
            logits, out = self.model(features, frames, training=True, noise=noise)
            loss = tf.reduce_sum(ctc_loss(logits, out, labels, counts) * weights)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        statistics = [value for norm in self.model.normalisations for value in norm.batch_statistics]
        if self.strategy.num_replicas_in_sync > 1:
            loss, *gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, [loss, *gradients])
            statistics = context.all_reduce(tf.distribute.ReduceOp.MEAN, statistics)
        norm = tf.linalg.global_norm(gradients)
        finite = [tf.math.is_finite(tf.reduce_sum(value)) for value in (loss, norm, *statistics)]
        moved = [
            variable * momentum + value * (1 - momentum)
            for variable, momentum, value in zip(self._moving, self._momenta, statistics, strict=True)
        ]
        return loss, norm, tf.reduce_all(finite), gradients, moved

    def _recognise(self, *batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        def one(*batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            rows = tf.range(tf.shape(batch[0])[0])
            features, frames, labels, counts, _, rows = _share([*batch, rows])
            logits, out = self.model(features, frames)
            return best_path(logits, out), ctc_loss(logits, out, labels, counts), rows

        results: tuple[Tensor, Tensor, Tensor] = self.strategy.run(one, args=batch)
        return results


def build(settings: RecognitionSettings, dataset: Dataset, *, portable: bool = False) -> DeepSpeech2:
    """The model for a dataset, with its initial weights."""
    return DeepSpeech2(
        settings.model,
        mean=dataset.mean,
        deviation=dataset.deviation,
        classes=len(dataset.alphabet.symbols) + 1,
        seed=settings.seed,
        precision="float32" if portable else settings.precision,
        portable=portable,
    )


def _share(batch: list[Tensor]) -> list[Tensor]:
    """This replica's rows: every n-th one, so that long and short fall to all alike."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return batch
    with tf.device("CPU:0"):  # so that only its rows travel to the device
        shares = [tensor[context.replica_id_in_sync_group :: replicas] for tensor in batch]
    rows = batch[0].shape[0]
    if rows is not None and rows % replicas == 0:
        shares = [tf.ensure_shape(share, [rows // replicas, *share.shape[1:]]) for share in shares]
    return shares


def _value(variable: Any) -> npt.NDArray[Any]:
    value: npt.NDArray[Any] = np.asarray(tf.convert_to_tensor(variable))
    return value
