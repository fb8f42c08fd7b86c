"""A model with its optimizer: one training step as a graph that runs on any `tf.distribute` strategy.

A family subclasses `TrainModule` and defines its loss. One that minimizes two losses overrides `objectives`; one
with another kind of step implements `task.Trainable` itself.

A frozen weight is no variable of the optimizer, and no gradient is computed for it. In the first steps of
`train_head_first` all weights but the head's rest: they have moments, and the graph of these steps leaves them out.

With `train.accumulate` a step computes the gradients of its batch part by part, in a graph without the update, and adds
them up; a second graph, without the network, updates. Each row's weight is that of the whole batch, so that the loss is
the mean over its utterances, whatever the parts have of them, and the sum is as finite as its parts. All devices are
reduced after each part: that is more traffic than once a step.

In float16 the gradients are those of the loss times a factor (`LossScale`), and are divided by it in float32.

An utterance of weight w (`Batch.weights`) adds w / n of its loss to that of a batch of n. The sum is not divided by the
weights': in a batch of drafts alone each would count as much as a person's transcript elsewhere.
"""

import abc
import contextlib
import functools
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.training import devices
from voxline.training.averaging import MovingAverage
from voxline.training.batches import Batch
from voxline.training.checkpoints import Arrays
from voxline.training.layers import Tensor, has_recurrent_layers, recompute_blocks
from voxline.training.low_rank import LowRankKernel
from voxline.training.optimizer import AdamW, LossScale, TwoOptimizers, assign_if, global_norm
from voxline.training.parts import TrainedParts
from voxline.training.settings import TrainSettings
from voxline.training.step_result import StepResult
from voxline.training.weight_names import weight_names

PART_SEED = 1_000_003
"""Distance between the seeds of the parts of a batch."""


class BatchTensors(NamedTuple):
    """A batch as the graph sees it.

    Attributes:
      features: float32 [rows, frames, bins], padded with zeros.
      frames: int32 [rows], real frames.
      labels: int32 [rows, labels], padded with zeros.
      counts: int32 [rows], real labels.
      speakers: int32 [rows], rows of a table of speakers, which few networks have.
    """

    features: Tensor
    frames: Tensor
    labels: Tensor
    counts: Tensor
    speakers: Tensor | None = None


def batch_signature(rows: int | None, frames: int | None = None, labels: int | None = None) -> BatchTensors:
    return BatchTensors(
        features=tf.TensorSpec([rows, frames, None], tf.float32),
        frames=tf.TensorSpec([rows], tf.int32),
        labels=tf.TensorSpec([rows, labels], tf.int32),
        counts=tf.TensorSpec([rows], tf.int32),
        speakers=tf.TensorSpec([rows], tf.int32),
    )


class Shape(NamedTuple):
    """The static sizes of a batch on this process; a size of None may differ from batch to batch."""

    rows: int | None
    frames: int | None = None
    labels: int | None = None


class BatchPart(NamedTuple):
    """The part of a batch that is computed at once.

    Attributes:
      weights: float32 [rows], of each row in the loss.
      share: of the batch's utterances.
    """

    tensors: BatchTensors
    weights: Tensor
    shape: Shape
    share: float


class PartResult(NamedTuple):
    """What a part of a batch gives, reduced over all replicas; sums over the parts are those of the batch.

    Attributes:
      gradients: by variable; None of one that rests.
      statistics: of the normalizations, mean and variance of each in turn.
    """

    loss: Tensor
    losses: dict[str, Tensor]
    gradients: list[Tensor | None]
    statistics: list[Tensor]


class TrainModule(abc.ABC):
    """A model with its optimizer, on the devices of a strategy.

    Args:
      make_models: returns the model and any auxiliary models, which train along and are not exported; called in the
        strategy's scope. Each has `trainable_variables`, `weights` and `normalizations`: layers whose moving statistics
        accepted steps update.

    Attributes:
      compiled: XLA compiles a whole step, with its update, for each static shape of a batch.
      head_steps: first steps, in which the head alone is trained.
      part_count: parts of a batch whose gradients are summed: `train.accumulate`, or more (`fit_memory`).
      open_rows: whether one graph takes batches of any number of rows: batches by seconds, and no recurrent layer.
      while_tracing: makes the context in which the graph of a step is built, which takes up to a minute and changes
        nothing: `Trainer` lets a signal end it.

    Raises:
      SettingsError: the model has no such part (`train.freeze`, `train.rates`), or no blocks (`train.recompute`); or
        all of it is frozen.
    """

    def __init__(self, settings: TrainSettings, strategy: Any, make_models: Callable[[], Sequence[Any]]) -> None:
        self.seed = settings.seed
        self.head_steps = 0
        self.part_count = settings.accumulate
        self.while_tracing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self.strategy = strategy
        self._settings = settings
        self.share = devices.replica_share(strategy)
        self._hand_over = functools.partial(devices.spread_rows, strategy, self.share)
        self.compiled = settings.xla or devices.is_tpu(strategy)

        # Variables of models and optimizer belong to the strategy.
        with strategy.scope():
            self.model, *self.auxiliary_models = make_models()
            models = [self.model, *self.auxiliary_models]
            self.open_rows = bool(settings.batch_seconds) and not any(map(has_recurrent_layers, models))
            if settings.recompute:
                recompute_blocks(self.model)
            self.parts = TrainedParts(self.model, self.auxiliary_models, settings)
            self.low_rank = {
                id(kernel): LowRankKernel(kernel, settings.lora.rank, settings.lora.alpha, [settings.seed, number])
                for number, kernel in enumerate(self.parts.low_rank_kernels)
            }
            self._trainable = [variable for model in models for variable in model.trainable_variables]
            self.optimizer: AdamW | TwoOptimizers = self.adamw(self._trainable)
            self.loss_scale = LossScale() if settings.precision == "mixed_float16" else None
            decay = settings.average.ema_decay
            self.average = MovingAverage(self.model.weights, decay) if decay else None

        self._train_graph = functools.cache(self._make_train_graph)
        self._part_graph = functools.cache(self._make_part_graph)
        self._update_graph = functools.cache(self._make_update_graph)
        self._eval_graph = functools.cache(self._make_eval_graph)

    def adamw(self, variables: Sequence[Any]) -> AdamW:
        """An optimizer of some variables, with the rates of `train.rates`; called in the strategy's scope."""
        low_rank = self.low_rank
        trained = [low_rank[id(each)].factors if id(each) in low_rank else each for each in variables]
        return AdamW(trained, self._settings, self.parts.rates(variables))

    @abc.abstractmethod
    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The terms of the loss, float32 [rows] each; the loss is their sum.

        Args:
          noise: int32 [2], the seed of dropout.
          schedule: the values of `schedule` at this step, float32 [].
          graph_key: the value of `graph_key` at this step.
        """

    @abc.abstractmethod
    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Values of each row that validation needs, by name: tensors [rows, …]."""

    def objectives(self, terms: dict[str, Tensor]) -> list[tuple[Tensor, Sequence[Any]]]:
        """Losses to minimize, float32 [], each with its variables; the first is reported as the loss.

        A second one needs an `optimizer` that takes the gradients of both, one after the other.

        Args:
          terms: of the loss, each summed over the rows.
        """
        return [(tf.add_n(list(terms.values())), self._trainable)]

    def schedule(self, step: int) -> dict[str, float]:
        """Values that change with the step, for `compute_losses`; the names are the same at every step."""
        return {}

    def graph_key(self, step: int) -> Hashable:
        """The static arguments of a step's graph, besides the number of rows; each value builds its own graph."""
        return None

    @property
    def parameter_count(self) -> int:
        """Number of exported parameters."""
        return int(self.model.count_params())

    @property
    def trained_count(self) -> int:
        """Number of parameters of the exported model that are trained."""
        return self.parts.trained_count + sum(math.prod(each.factors.shape) for each in self.low_rank.values())

    def train_head_first(self, names: Collection[str], steps: int) -> None:
        """Trains some weights alone in the first `steps` steps, and then all; called before the first step.

        The normalizations of the other parts use and keep their moving statistics in these steps. After them the
        optimizer starts afresh: moments that were zero for so long would bias its first updates.

        Args:
          names: of the weights, as `weight_names` has them; variables that are not the exported model's train too.

        Raises:
          SettingsError: none of the weights is trained.
        """
        self.parts.train_head_first(names)
        self.head_steps = steps

    def train_step(self, batch: Batch, rate: float, step: int) -> StepResult:
        """Runs one step; `step`, counted from 0, seeds the dropout."""
        if self.head_steps and step == self.head_steps:
            self.optimizer.reset()

        # In float16 a step whose gradients overflow is computed again, by a smaller factor of the loss.
        while True:
            result = self._try_step(batch, rate, step)
            if self.loss_scale is None or not self.loss_scale.note(accepted=result.accepted, loss=result.loss):
                return result

    def _try_step(self, batch: Batch, rate: float, step: int) -> StepResult:
        of_head = step < self.head_steps
        rate_tensor = tf.constant(rate, tf.float32)
        if self.part_count > 1:
            total = self.sum_parts(batch, step)
            loss: Any = total.loss
            losses: dict[str, Any] = dict(total.losses)
            norm, accepted = self._update_graph(of_head)(loss, total.gradients, total.statistics, rate_tensor)
        else:
            tensors, weights, _, shape = self._to_tensors(batch)
            graph = self._train_graph(shape, self.graph_key(step), of_head)
            loss, norm, accepted, losses = graph(
                tensors, weights, rate_tensor, self._noise(step), self._schedule_tensors(step)
            )

        return StepResult(loss, norm, accepted, losses)

    def _noise(self, step: int, part: int = 0) -> Tensor:
        """The seed of a part's dropout."""
        # A thousand streams a step: layers and replicas add to the second number.
        return tf.constant([(self.seed + part * PART_SEED) % 2**31, step * 1000], tf.int32)

    def _schedule_tensors(self, step: int) -> dict[str, Tensor]:
        return {name: tf.constant(value, tf.float32) for name, value in self.schedule(step).items()}

    def sum_parts(self, batch: Batch, step: int) -> PartResult:
        """Sums losses and gradients over the parts of a batch, and changes nothing."""
        total: PartResult | None = None
        for number, part in enumerate(self._to_parts(batch)):
            graph = self._part_graph(part.shape, self.graph_key(step), step < self.head_steps)
            noise = self._noise(step, number)
            result: PartResult = graph(part.tensors, part.weights, noise, self._schedule_tensors(step))
            # Statistics are means: each part's count by its utterances.
            result = result._replace(statistics=[value * part.share for value in result.statistics])
            total = result if total is None else tf.nest.map_structure(_add, total, result)
        if total is None:
            raise ValueError("a batch without utterances")
        return total

    def run_eval(self, batch: Batch, step: int = 0) -> list[tuple[int, dict[str, Any]]]:
        """Runs `eval_step` after `step` steps.

        Returns:
          (row, its values by name) for each row of the batch that this worker's devices evaluated.
        """
        # Validation has batches of any size, so rows are left open unless XLA compiles.
        tensors, _, places, shape = self._to_tensors(batch)
        shape = shape if self.compiled else Shape(None)
        outputs = self._eval_graph(shape, self.graph_key(step))(tensors)
        columns = {name: self.strategy.experimental_local_results(values) for name, values in outputs.items()}
        results = []

        # Back to the rows of the batch; rows that fill it up are left out.
        for replica in range(self.share.count):
            values = {name: column[replica].numpy() for name, column in columns.items()}
            for index, row in enumerate(places[replica :: self.share.count].tolist()):
                if row < len(batch.ids):
                    results.append((row, {name: column[index] for name, column in values.items()}))

        return results

    def weights(self) -> Arrays:
        """The weights of the exported model."""
        return {f"model/{index}": _to_numpy(variable) for index, variable in enumerate(self.model.weights)}

    def weight_names(self) -> list[str]:
        return weight_names(self.model)

    def load_weights(self, arrays: Arrays) -> None:
        """Sets what `weights` returns."""
        for index, variable in enumerate(self.model.weights):
            variable.assign(arrays[f"model/{index}"])

    def start_with(self, arrays: Arrays, random_names: Collection[str] = ()) -> None:
        """Sets the weights that training starts from; called before the first step.

        Args:
          arrays: as `weights` returns them.
          random_names: names of those that no model gave.

        Raises:
          SettingsError: some of these are frozen.
        """
        self.parts.check_random(random_names)
        self.load_weights(arrays)
        for kernel in self.low_rank.values():
            kernel.begin()

    def averaged_weights(self) -> Arrays | None:
        """The moving average of `weights`; None if none is kept."""
        if self.average is None:
            return None
        return {f"model/{index}": _to_numpy(variable) for index, variable in enumerate(self.average.averages)}

    def distributions(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Weights, and gradients averaged over the last steps as AdamW keeps them (its first moment), by name.

        On a CPU an array is TensorFlow's own memory: it has the values until the next step.
        """
        # Names by model, since auxiliary models have weights of the same names.
        prefixes = ["", *(f"auxiliary/{index}/" for index in range(len(self.auxiliary_models)))]
        names = {
            id(weight): f"{prefix}{name}"
            for prefix, model in zip(prefixes, [self.model, *self.auxiliary_models], strict=True)
            for weight, name in zip(model.weights, weight_names(model), strict=True)
        }
        for variable, mean in zip(self._trainable, self.optimizer.means, strict=True):
            name = names[id(variable)]
            yield f"weights/{name}", np.asarray(tf.convert_to_tensor(variable))
            yield f"gradients/{name}", np.asarray(tf.convert_to_tensor(mean))

    def state(self) -> Arrays:
        """Copies of everything that a training step changes."""
        return {
            f"{name}/{index}": _to_numpy(variable)
            for name, variables in self._variables().items()
            for index, variable in enumerate(variables)
        }

    def restore(self, arrays: Arrays) -> None:
        """Restores what `state` returned."""
        for name, variables in self._variables().items():
            for index, variable in enumerate(variables):
                variable.assign(arrays[f"{name}/{index}"])

    def _variables(self) -> dict[str, list[Any]]:
        auxiliary = [weight for model in self.auxiliary_models for weight in model.weights]
        average = self.average.averages if self.average else []
        return {
            "model": self.model.weights,
            "auxiliary": auxiliary,
            "optimizer": self.optimizer.state,
            "average": average,
            "loss_scale": self.loss_scale.state if self.loss_scale else [],
            "low_rank": [value for each in self.low_rank.values() for value in (each.base, each.factors)],
        }

    def _to_tensors(self, batch: Batch) -> tuple[BatchTensors, Tensor, npt.NDArray[np.int32], Shape]:
        """The batch, the weight of each row in the loss, the place of each row in the batch, and their shape.

        Each replica gets its own rows; rows repeat at weight zero until each has one.
        """
        arrays, weights, places = self._local_rows(batch)
        return BatchTensors(*map(self._hand_over, arrays)), self._hand_over(weights), places, self._shape(arrays)

    def _shape(self, arrays: Sequence[npt.NDArray[Any]]) -> Shape:
        """What is static of a batch's arrays, in the order of `BatchTensors`."""
        if self.compiled:
            return Shape(len(arrays[0]), arrays[0].shape[1], arrays[2].shape[1])
        return Shape(None if self.open_rows else len(arrays[0]))

    def _to_parts(self, batch: Batch) -> Iterator[BatchPart]:
        """The batch in up to `part_count` parts of the same number of rows, the last one of what is left.

        Each worker has the same number of parts, in which each of its replicas has a row: they wait for each other.
        """
        arrays, weights, places = self._local_rows(batch)
        share = self.share
        count = len(batch.ids)

        # Places of all replicas, and how many a replica has in a part.
        everywhere = max(count, share.total, self._settings.step_size if self.compiled else 0)
        in_replica = -(-everywhere // (self.part_count * share.total))
        for first in range(0, everywhere, in_replica * share.total):
            start = first // share.total * share.count
            rows = np.arange(start, min(start + in_replica * share.count, len(places)))
            share_of_part = min(max(count - first, 0), in_replica * share.total) / count

            # A replica without a row repeats the first one at no weight.
            fill = np.zeros(max(share.count - len(rows), 0), int)
            part = [array[np.concatenate([rows, fill]).astype(int)] for array in arrays]
            part_weights = np.concatenate([weights[rows], np.zeros(len(fill), np.float32)])
            if not self.compiled:
                features, frames, labels, counts, speakers = part
                part = [features[:, : frames.max()], frames, labels[:, : max(counts.max(), 1)], counts, speakers]
            tensors = BatchTensors(*map(self._hand_over, part))
            yield BatchPart(tensors, self._hand_over(part_weights), self._shape(part), share_of_part)

    def _local_rows(
        self, batch: Batch
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """The arrays of this process's rows, in the order of `BatchTensors`; their weights, and their places."""
        # Rows of this process's replicas; a place beyond the batch repeats a row at weight zero.
        count = len(batch.ids)
        places = batch.places
        speakers = np.zeros(len(batch.frames), np.int32) if batch.speakers is None else batch.speakers
        arrays: list[npt.NDArray[Any]] = [batch.features, batch.frames, batch.labels, batch.counts, speakers]
        if places is None:
            places = self.share.places(count)
            arrays = [array[places % count] for array in arrays]

        # The mean over the batch as a sum over rows.
        weights = np.where(places < count, 1 / count, 0).astype(np.float32)
        if batch.weights is not None:
            weights *= batch.weights[places % count]
        return arrays, weights, places

    def _signature(self, shape: Shape) -> tuple[BatchTensors, Tensor]:
        """The types of a batch and its weights, as `_to_tensors` returns them."""
        share = self.share
        rows = shape.rows
        if share.total == 1:
            return batch_signature(*shape), tf.TensorSpec([rows], tf.float32)

        # Each replica has a shape of its own: rows may not divide evenly.
        counts = [None if rows is None else len(range(replica, rows, share.count)) for replica in range(share.count)]
        parts = [(*batch_signature(count, *shape[1:]), tf.TensorSpec([count], tf.float32)) for count in counts]
        # The type of a value on several replicas has no public name.
        per_replica = type(tf.type_spec_from_value(self._hand_over(np.zeros(share.total))))
        *batch, weights = (per_replica(*specs) for specs in zip(*parts, strict=True))
        return BatchTensors(*batch), weights

    def _compile(self, function: Callable[..., Any], signature: Any = None) -> Any:
        # A TPU's strategy compiles by itself, on one core too.
        return tf.function(
            function,
            input_signature=signature,
            autograph=False,
            jit_compile=True if self.compiled and not devices.is_tpu(self.strategy) else None,
        )

    def _trace(self, graph: Any) -> Any:
        """Builds a graph of one signature before it is called: the step itself must not be interrupted."""
        # Other strategies trace in threads of their own, which no signal reaches.
        if self.strategy.num_replicas_in_sync == 1:
            with self.while_tracing():
                graph.get_concrete_function()
        return graph

    def _make_train_graph(self, shape: Shape, graph_key: Any, of_head: bool) -> Any:
        """The graph for batches of this many rows; with static lengths, if a step is compiled.

        With the number of rows left open, the gradient of the recurrent loops computes shapes at each step: 1.6 times
        as slow. A network without loops is as fast: see `open_rows`.
        """
        # One graph for each shape and key.
        schedule = {name: tf.TensorSpec([], tf.float32) for name in self.schedule(0)}
        signature = (*self._signature(shape), tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32), schedule)
        make = self._compiled_step if self.compiled else self._ordinary_step
        return self._trace(self._compile(functools.partial(make, graph_key, of_head), signature))

    def _ordinary_step(
        self,
        graph_key: Any,
        of_head: bool,
        batch: BatchTensors,
        weights: Tensor,
        rate: Tensor,
        noise: Tensor,
        schedule: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        # Gradients within the replicas, the update outside: it may skip a step without a condition.
        compute = functools.partial(self._compute_gradients, graph_key, of_head)
        result = self.strategy.run(compute, args=(batch, weights, noise, schedule))
        loss, norm, accept, gradients, moved, losses = result
        self._update(of_head, gradients, norm, accept, moved, rate)

        return self._of_first_replica(loss, norm, accept, losses)

    def _update(
        self,
        of_head: bool,
        gradients: Sequence[Tensor | None],
        norm: Tensor,
        accept: Tensor,
        moved: Sequence[Tensor],
        rate: Tensor,
    ) -> None:
        """Updates all that a step changes; called outside `strategy.run`."""
        self.optimizer.update(self.strategy, gradients, norm, rate, accept)
        for kernel in self.low_rank.values():
            kernel.merge(self.strategy)
        for variable, value in zip(self.parts.moving(of_head), moved, strict=True):
            self.strategy.extended.update(variable, assign_if, args=(value, accept), group=False)

        if self.average:
            self.average.update(self.strategy, self.optimizer.count, accept)

    def _compiled_step(
        self,
        graph_key: Any,
        of_head: bool,
        batch: BatchTensors,
        weights: Tensor,
        rate: Tensor,
        noise: Tensor,
        schedule: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """The same with the update inside `run`, where XLA compiles it along with the rest."""

        def on_replica(
            batch: BatchTensors, weights: Tensor, rate: Tensor, noise: Tensor, schedule: dict[str, Tensor]
        ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
            computed = self._compute_gradients(graph_key, of_head, batch, weights, noise, schedule)
            loss, norm, accept, gradients, moved, losses = computed
            self._update_in_replica(of_head, gradients, norm, accept, moved, rate)
            return loss, norm, accept, losses

        return self._of_first_replica(*self.strategy.run(on_replica, args=(batch, weights, rate, noise, schedule)))

    def _update_in_replica(
        self,
        of_head: bool,
        gradients: Sequence[Tensor | None],
        norm: Tensor,
        accept: Tensor,
        moved: Sequence[Tensor],
        rate: Tensor,
    ) -> None:
        """The same as `_update`, within `strategy.run`."""
        self.optimizer.update_in_replica(gradients, norm, rate, accept)
        for kernel in self.low_rank.values():
            kernel.merge_in_replica()
        for variable, value in zip(self.parts.moving(of_head), moved, strict=True):
            assign_if(variable, value, accept)
        if self.average:
            self.average.update_in_replica(self.optimizer.count, accept)

    def _make_part_graph(self, shape: Shape, graph_key: Any, of_head: bool) -> Any:
        """The graph that computes a part of a batch, and updates nothing."""

        def compute(batch: BatchTensors, weights: Tensor, noise: Tensor, schedule: dict[str, Tensor]) -> PartResult:
            function = functools.partial(self._compute_sums, graph_key, of_head)
            result: PartResult = self.strategy.run(function, args=(batch, weights, noise, schedule))
            first: PartResult = tf.nest.map_structure(
                lambda value: None if value is None else tf.convert_to_tensor(self._first(value)), result
            )
            return first

        schedule = {name: tf.TensorSpec([], tf.float32) for name in self.schedule(0)}
        return self._trace(self._compile(compute, (*self._signature(shape), tf.TensorSpec([2], tf.int32), schedule)))

    def _make_update_graph(self, of_head: bool) -> Any:
        """The graph that updates by the sums over the parts of a batch; there is one for each set of gradients."""

        def update(
            loss: Tensor, gradients: list[Tensor | None], statistics: list[Tensor], rate: Tensor
        ) -> tuple[Tensor, Tensor]:
            norm, accept, moved = self._judge(of_head, loss, gradients, statistics)
            if not self.compiled:
                self._update(of_head, gradients, norm, accept, moved, rate)
            else:
                in_replica = functools.partial(self._update_in_replica, of_head)
                self.strategy.run(in_replica, args=(gradients, norm, accept, moved, rate))
            return norm, accept

        return self._compile(update)

    def _of_first_replica(
        self, loss: Tensor, norm: Tensor, accept: Tensor, losses: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        loss, norm, accept = (self._first(value) for value in (loss, norm, accept))
        return loss, norm, accept, {name: self._first(value) for name, value in losses.items()}

    def _compute_gradients(
        self,
        graph_key: Any,
        of_head: bool,
        batch: BatchTensors,
        weights: Tensor,
        noise: Tensor,
        schedule: dict[str, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor | None], list[Tensor], dict[str, Tensor]]:
        """Computes loss, gradients and moving statistics on one replica, reduced over all replicas."""
        sums = self._compute_sums(graph_key, of_head, batch, weights, noise, schedule)
        norm, accept, moved = self._judge(of_head, sums.loss, sums.gradients, sums.statistics)
        return sums.loss, norm, accept, sums.gradients, moved, sums.losses

    def _judge(
        self, of_head: bool, loss: Tensor, gradients: Sequence[Tensor | None], statistics: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The gradients' norm; whether the step is accepted: all is finite; and the moving statistics after it."""
        norm = global_norm(gradients)
        finite = [tf.math.is_finite(tf.reduce_sum(value)) for value in (loss, norm, *statistics)]
        momenta = [norm.momentum for norm in self.parts.moving_norms(of_head) for _ in range(2)]
        moved = [
            variable * momentum + value * (1 - momentum)
            for variable, momentum, value in zip(self.parts.moving(of_head), momenta, statistics, strict=True)
        ]
        return norm, tf.reduce_all(finite), moved

    def _compute_sums(
        self,
        graph_key: Any,
        of_head: bool,
        batch: BatchTensors,
        weights: Tensor,
        noise: Tensor,
        schedule: dict[str, Tensor],
    ) -> PartResult:
        """Computes losses, gradients and statistics on one replica, reduced over all replicas."""
        # Each replica drops other activations.
        context = tf.distribute.get_replica_context()
        noise = noise + tf.stack([0, 100 * tf.cast(context.replica_id_in_sync_group, tf.int32)])
        with self.parts.frozen(of_head):
            rows = self.compute_losses(batch, noise, schedule, graph_key)

        # Sums over this replica's rows, whose weights add up to 1 over all replicas.
        losses = {name: tf.reduce_sum(loss * weights) for name, loss in rows.items()}
        objectives = self.objectives(losses)
        loss = objectives[0][0]
        # A persistent tape, which two objectives need, would build each loop of the graph three times.
        # Statistics first: a layer that computes again for its gradients replaces them.
        statistics = [value for norm in self.parts.moving_norms(of_head) for value in norm.batch_statistics]
        asleep = self.parts.resting(of_head)
        resting = [id(variable) in asleep for _, variables in objectives for variable in variables]
        present = [
            gradient
            for objective, variables in objectives
            for gradient in self._gradients(objective, variables, asleep)
        ]

        # Sums over replicas are those of the whole batch; statistics are means.
        if self.strategy.num_replicas_in_sync > 1:
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [loss, *losses.values(), *present])
            loss = summed[0]
            present = summed[1 + len(losses) :]
            losses = dict(zip(losses, summed[1:], strict=False))
            # A reduction of nothing is an error.
            statistics = context.all_reduce(tf.distribute.ReduceOp.MEAN, statistics) if statistics else []

        # In the order of the optimizer's variables.
        following = iter(present)
        return PartResult(loss, losses, [None if rests else next(following) for rests in resting], list(statistics))

    def _gradients(self, objective: Tensor, variables: Sequence[Any], resting: Collection[int]) -> list[Tensor]:
        """The gradients of the variables that do not rest, and of the factors of low-rank kernels."""
        awake = [variable for variable in variables if id(variable) not in resting]
        if not awake:
            return []
        scale = self.loss_scale
        gradients = scale.gradients(objective, awake) if scale else tf.gradients(objective, awake)
        return [
            self.low_rank[id(variable)].project(gradient) if id(variable) in self.low_rank else gradient
            for variable, gradient in zip(awake, gradients, strict=True)
        ]

    def _make_eval_graph(self, shape: Shape, graph_key: Any) -> Any:
        def evaluate(batch: BatchTensors) -> dict[str, Tensor]:
            outputs: dict[str, Tensor] = self.strategy.run(
                lambda batch: self.eval_step(batch, graph_key), args=(batch,)
            )
            return outputs

        return self._compile(evaluate, (self._signature(shape)[0],))

    def _first(self, value: Tensor) -> Tensor:
        return self.strategy.experimental_local_results(value)[0]


def _add(total: Tensor | None, value: Tensor | None) -> Tensor | None:
    return None if total is None or value is None else total + value


def _to_numpy(variable: Any) -> npt.NDArray[Any]:
    """A copy: on a CPU an array can be TensorFlow's own memory, and training continues while it is written."""
    return np.array(tf.convert_to_tensor(variable))
