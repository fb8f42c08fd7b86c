"""One step of learning as a graph that runs on whatever devices there are; what is learnt, a family adds."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.components.train.batches import Batch
from voxline.components.train.checkpoints import Arrays
from voxline.components.train.optimizer import AdamW, assign_if
from voxline.components.train.settings import TrainSettings

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
class StepResult:
    """What a step of learning says of itself.

    Attributes:
      loss: mean of an utterance.
      norm: the gradient's global norm, before clipping.
      accepted: False where loss, gradient or statistics were not finite; then nothing was changed.
      parts: what the loss is the sum of, by name.
    """

    loss: float
    norm: float
    accepted: bool
    parts: dict[str, float] = dataclasses.field(default_factory=dict)


class TrainModule(abc.ABC):
    """A model with its optimiser, on the devices of a strategy.

    Args:
      make: the model, and whatever learns beside it and is not exported; called in the strategy's scope. Each has
        `trainable_variables`, `weights`, and `normalisations`, whose statistics are moved by accepted steps.
    """

    def __init__(self, settings: TrainSettings, strategy: Any, make: Callable[[], Sequence[Any]]) -> None:
        self.seed, self.strategy = settings.seed, strategy
        with strategy.scope():
            self.model, *self.beside = make()
            self._learning = [each for part in self._parts for each in part.trainable_variables]
            self.optimizer = AdamW(self._learning, settings)
        self._norms = [norm for part in self._parts for norm in part.normalisations]
        self._moving = [each.value for norm in self._norms for each in (norm.moving_mean, norm.moving_variance)]
        self._momenta = [norm.momentum for norm in self._norms for _ in range(2)]
        self._graph = functools.cache(self._make_graph)
        self._examiner = functools.cache(self._make_examiner)

    @abc.abstractmethod
    def losses(
        self, batch: tuple[Tensor, ...], noise: Tensor, dials: dict[str, Tensor], shape: Any
    ) -> dict[str, Tensor]:
        """The parts of the loss of each row, float32 [rows], of which the sum is learnt.

        Args:
          batch: features, frames, labels, counts.
          noise: int32 [2], what dropout is drawn from.
          dials: as `dials` gives them, float32 [].
          shape: as `shape` gives it.
        """

    @abc.abstractmethod
    def examine(self, batch: tuple[Tensor, ...], shape: Any) -> tuple[Tensor, ...]:
        """What a look asks of each row of (features, frames, labels, counts): tensors [rows, …]."""

    def dials(self, step: int) -> dict[str, float]:
        """Numbers that change from step to step, for `losses`; the same names at every step."""
        return {}

    def shape(self, step: int) -> Hashable:
        """What a step's graph depends on beside the number of rows; a graph is built for each."""
        return None

    @property
    def parameters(self) -> int:
        """Numbers that are exported."""
        return int(self.model.count_params())

    def learn(self, batch: Batch, rate: float, step: int) -> StepResult:
        """Takes one step; `step`, counted from 0, seeds the dropout."""
        noise = tf.constant([self.seed, step * 1000], tf.int32)
        tensors = self._tensors(batch)
        dials = {name: tf.constant(value, tf.float32) for name, value in self.dials(step).items()}
        graph = self._graph(len(tensors[0]), self.shape(step))
        loss, norm, accepted, parts = graph(*tensors, tf.constant(rate, tf.float32), noise, dials)
        return StepResult(float(loss), float(norm), bool(accepted), {name: float(part) for name, part in parts.items()})

    def examined(self, batch: Batch, step: int = 0) -> list[tuple[Any, ...]]:
        """Row, and what `examine` says of it, of each row of the batch that falls to this worker's devices."""
        found = []
        results = self._examiner(self.shape(step))(*self._tensors(batch))
        *values, rows = map(self.strategy.experimental_local_results, results)
        for numbers, *parts in zip(rows, *values, strict=True):
            for row, *one in zip(numbers.numpy(), *(part.numpy() for part in parts), strict=True):
                if row < len(batch.ids):
                    found.append((int(row), *one))
        return found

    def weights(self) -> Arrays:
        """The model's weights alone."""
        return {f"model/{index}": _value(variable) for index, variable in enumerate(self.model.weights)}

    def state(self) -> Arrays:
        """All that a step of learning changes."""
        beside = {f"beside/{index}": _value(variable) for index, variable in enumerate(self._beside_weights)}
        moments = {f"optimizer/{index}": _value(variable) for index, variable in enumerate(self.optimizer.state)}
        return {**self.weights(), **beside, **moments}

    def restore(self, arrays: Arrays) -> None:
        for name, variables in (
            ("model", self.model.weights),
            ("beside", self._beside_weights),
            ("optimizer", self.optimizer.state),
        ):
            for index, variable in enumerate(variables):
                variable.assign(arrays[f"{name}/{index}"])

    @property
    def _parts(self) -> list[Any]:
        return [self.model, *self.beside]

    @property
    def _beside_weights(self) -> list[Any]:
        return [weight for part in self.beside for weight in part.weights]

    def _tensors(self, batch: Batch) -> tuple[Tensor, ...]:
        """The batch, with rows repeated at no weight until each replica has one."""
        rows = len(batch.ids)
        replicas = self.strategy.num_replicas_in_sync
        filled = np.arange(max(rows, replicas)) % rows
        weights = np.where(np.arange(len(filled)) < rows, 1 / rows, 0).astype(np.float32)
        arrays = [array[filled] for array in (batch.features, batch.frames, batch.labels, batch.counts)]
        return tuple(tf.constant(array) for array in (*arrays, weights))

    def _make_graph(self, rows: int, shape: Any) -> Any:
        """The graph for batches of so many rows.

        With the rows left open, each step of the recurrent loops' gradient would compute shapes: 1.6 times as slow.
        """
        dials = {name: tf.TensorSpec([], tf.float32) for name in self.dials(0)}
        others = tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32), dials
        return tf.function(
            functools.partial(self._step, shape), input_signature=(*batch_signature(rows), *others), autograph=False
        )

    def _step(self, shape: Any, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        *batch, rate, noise, dials = inputs
        gradients_of = functools.partial(self._gradients, shape)
        loss, norm, accept, gradients, moved, parts = self.strategy.run(gradients_of, args=(*batch, noise, dials))
        self.optimizer.update(self.strategy, gradients, norm, rate, accept)
        for variable, value in zip(self._moving, moved, strict=True):
            self.strategy.extended.update(variable, assign_if, args=(value, accept), group=False)
        first = [self.strategy.experimental_local_results(value)[0] for value in (loss, norm, accept)]
        return *first, {n: self.strategy.experimental_local_results(part)[0] for n, part in parts.items()}

    def _gradients(
        self, shape: Any, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor], dict[str, Tensor]]:
        """On one replica: loss, gradient and statistics, summed over all replicas."""
        context = tf.distribute.get_replica_context()
        *batch, noise, dials = inputs
        *batch, weights = _share(batch)
        noise = noise + tf.stack([0, 100 * tf.cast(context.replica_id_in_sync_group, tf.int32)])
        with tf.GradientTape() as tape:
            found = self.losses(tuple(batch), noise, dials, shape)
            parts = {name: tf.reduce_sum(part * weights) for name, part in found.items()}
            loss = tf.add_n(list(parts.values()))
        gradients = tape.gradient(loss, self._learning)
        statistics = [value for norm in self._norms for value in norm.batch_statistics]
        if self.strategy.num_replicas_in_sync > 1:
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [loss, *parts.values(), *gradients])
            loss, gradients = summed[0], summed[1 + len(parts) :]
            parts = dict(zip(parts, summed[1:], strict=False))
            statistics = context.all_reduce(tf.distribute.ReduceOp.MEAN, statistics)
        norm = tf.linalg.global_norm(gradients)
        finite = [tf.math.is_finite(tf.reduce_sum(value)) for value in (loss, norm, *statistics)]
        moved = [
            variable * momentum + value * (1 - momentum)
            for variable, momentum, value in zip(self._moving, self._momenta, statistics, strict=True)
        ]
        return loss, norm, tf.reduce_all(finite), gradients, moved, parts

    def _make_examiner(self, shape: Any) -> Any:
        def one(*batch: Tensor) -> tuple[Tensor, ...]:
            *share, _, rows = _share([*batch, tf.range(tf.shape(batch[0])[0])])
            return (*self.examine(tuple(share), shape), rows)

        return tf.function(lambda *batch: self.strategy.run(one, args=batch), input_signature=batch_signature(None))


def _share(batch: Sequence[Tensor]) -> list[Tensor]:
    """This replica's rows: every n-th one, so that long and short fall to all alike."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return list(batch)
    with tf.device("CPU:0"):  # so that only its rows travel to the device
        shares = [tensor[context.replica_id_in_sync_group :: replicas] for tensor in batch]
    rows = batch[0].shape[0]
    if rows is not None and rows % replicas == 0:
        shares = [tf.ensure_shape(share, [rows // replicas, *share.shape[1:]]) for share in shares]
    return shares


def _value(variable: Any) -> npt.NDArray[Any]:
    value: npt.NDArray[Any] = np.asarray(tf.convert_to_tensor(variable))
    return value
