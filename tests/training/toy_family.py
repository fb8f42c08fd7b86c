"""A family for tests: a model that predicts the mean of the features of an utterance."""

from pathlib import Path
from typing import Any, ClassVar

import keras
import pydantic
import tensorflow as tf

from voxline.families.family import Family
from voxline.training import devices
from voxline.training.batches import Batches
from voxline.training.checkpoints import Arrays
from voxline.training.export import model_info, write_exported
from voxline.training.settings import TrainSettings
from voxline.training.task import Samples, TrainingTask, ValidationOutput
from voxline.training.train_module import BatchTensors, Tensor, TrainModule
from voxline.training.weight_names import weight_names


class ToyTrainSettings(TrainSettings):
    """How a toy model is trained."""

    family: ClassVar[str] = "toy"

    name: str = pydantic.Field("toy", description="the model's name")


class MeanModel(keras.Model):  # type: ignore[misc]
    """Returns one learned value per bin."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.mean = self.add_weight(shape=(bins,), initializer="zeros", name="mean")
        self.normalizations: list[Any] = []
        self.built = True


class ToyTrainModule(TrainModule):
    """Learns the mean of the features by its squared error."""

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        return {"mse": self._error(batch)}

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        return {"mse": self._error(batch)}

    def _error(self, batch: BatchTensors) -> Tensor:
        real = tf.sequence_mask(batch.frames, tf.shape(batch.features)[1], tf.float32)
        error = tf.reduce_mean(tf.square(batch.features - tf.convert_to_tensor(self.model.mean)), axis=-1)
        return tf.reduce_sum(error * real, axis=1) / tf.cast(batch.frames, tf.float32)


class ToyTask(TrainingTask):
    """Scores a validation by the squared error."""

    module: ToyTrainModule

    @property
    def infeasible_advice(self) -> str:
        return ""

    def build_batches(self) -> tuple[Batches, Batches]:
        size, seed = self.settings.step_size, self.settings.seed
        train = Batches(self.dataset, "train", batch_size=size, seed=seed, shuffled=True)
        return train, Batches(self.dataset, "dev", batch_size=self.settings.batch_size)

    def build_module(self) -> ToyTrainModule:
        return ToyTrainModule(self.settings, self.strategy, lambda: [MeanModel(self.dataset.features.bins)])

    def validate(self, step: int) -> ValidationOutput:
        errors = [float(out["mse"]) for batch in self.dev.epoch(0) for _, out in self.module.run_eval(batch, step)]
        total, count = devices.sum_over_workers(self.strategy, [sum(errors), len(errors)]).tolist()
        return ValidationOutput((total / count,), {"mse": total / count}, Samples())

    def describe(self, metrics: dict[str, float]) -> str:
        return f"dev MSE {metrics['mse']:.3f}"

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        graph = tf.Module()
        graph.mean = tf.Variable(weights["model/0"])
        graph.predict = tf.function(lambda: {"mean": graph.mean + 0.0}, input_signature=())
        metadata = model_info("mean", self.settings, self.dataset, training, weight_names(self.module.model))
        write_exported(folder, graph, {"predict": graph.predict}, metadata)


class ToyFamily(Family):
    name = "toy"
    train_settings = ToyTrainSettings

    def task(self) -> type[ToyTask]:
        return ToyTask
