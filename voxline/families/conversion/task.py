"""Voice conversion: segments of mels with the attributes of their voices, a critic, and a classifier that judges.

The critic learns by the Wasserstein distance with a gradient penalty (Gulrajani et al. 2017, arXiv 1704.00028), and
from recordings which attributes are which. After `critic_steps` of its steps comes one of the converter's. The
classifier learns along with the critic, from recordings alone: no gradient of it reaches the converter, so that what it
reads in converted mels was not learned to please it.

Signatures: `convert` (and `serving_default`): mels float32 [batch, t, bins] as extract computes them, attributes
float32 [batch, values] → mels float32 [batch, t, bins]. `classify`: mels float32 [batch, segment_frames, bins] →
probabilities float32 [batch, values].
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.audio.features import compute_features
from voxline.audio.griffin_lim import features_to_waveform
from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.data.rows import DatasetRow
from voxline.errors import SettingsError, WorkError
from voxline.families.conversion.networks.attgan import AttGan, MelDiscriminator
from voxline.families.conversion.settings import AttributeSettings, ConversionTrainSettings
from voxline.families.tts.task import render_comparison
from voxline.inference.voice_converter import CLASSIFY, CONVERT, TRAINING_STRENGTH
from voxline.progress import print_status
from voxline.training import devices
from voxline.training.batches import Record
from voxline.training.checkpoints import Arrays
from voxline.training.export import model_info, write_exported
from voxline.training.layers import Tensor
from voxline.training.optimizer import AdamW, TwoOptimizers
from voxline.training.segments import MelSegmentBatches
from voxline.training.task import Samples, TrainingTask, ValidationOutput, shorten_list
from voxline.training.train_module import BatchTensors, TrainModule
from voxline.training.weight_names import weight_names

CRITIC = "critic"
CONVERTER = "converter"
"""Keys of a step's graph: the critic's step, or the converter's."""
MAX_VALUES = 256
"""Limit on the values of all attributes together."""
MIN_DEVIATION = np.float32(1e-5)


class Converter(keras.Model):  # type: ignore[misc]
    """Exported networks: the converter, and the classifier that judges it."""

    def __init__(self, settings: ConversionTrainSettings, bins: int, values: int) -> None:
        super().__init__(name="conversion")
        shared: dict[str, Any] = {
            "bins": bins, "values": values, "channels": settings.model.channels, "depth": settings.model.layers,
            "seed": settings.seed,
        }  # fmt: skip
        self.converter = AttGan(**shared)
        self.classifier = MelDiscriminator(
            frames=settings.segment_frames,
            units=settings.model.units,
            criticizes=False,
            dropout_rate=settings.model.classifier_dropout,
            **shared,
        )
        self.normalizations = list(self.converter.normalizations)
        self.built = True


class AlternatingOptimizers(TwoOptimizers):
    """Each step updates either the converter or its adversaries: those variables whose shapes the gradients have."""

    def __init__(self, converter: AdamW, adversaries: AdamW) -> None:
        self._shapes = [tuple(mean.shape) for mean in converter.means]
        super().__init__(converter, adversaries, len(self._shapes))

    def _parts(self, gradients: Sequence[Tensor | None]) -> list[tuple[AdamW, Sequence[Tensor | None], float]]:
        of_converter = len(gradients) == len(self._shapes) and all(
            gradient is None or tuple(gradient.shape) == shape
            for gradient, shape in zip(gradients, self._shapes, strict=True)
        )
        return [(self._generator if of_converter else self._discriminators, gradients, 1.0)]


class ConversionTrainModule(TrainModule):
    """The converter, its critic and the classifier.

    Args:
      sizes: how many values each attribute has.
    """

    def __init__(
        self, settings: ConversionTrainSettings, dataset: Dataset, sizes: Sequence[int], strategy: Any
    ) -> None:
        self.settings = settings
        self.sizes = list(sizes)
        self._mean = np.asarray(dataset.mean, np.float32)
        self._deviation = np.maximum(np.asarray(dataset.deviation, np.float32), MIN_DEVIATION)
        bins = dataset.features.bins
        values = sum(sizes)
        super().__init__(settings, strategy, lambda: [Converter(settings, bins, values)])
        with strategy.scope():
            self.critic = MelDiscriminator(
                frames=settings.segment_frames,
                bins=bins,
                values=values,
                channels=settings.model.channels,
                depth=settings.model.layers,
                units=settings.model.units,
                criticizes=True,
                seed=settings.seed,
            )
            self._trainable = list(self.model.converter.trainable_variables)
            # Adam treats each variable by itself: one optimizer of both is one for each.
            self._adversaries = [*self.critic.trainable_variables, *self.model.classifier.trainable_variables]
            self.optimizer = AlternatingOptimizers(self.adamw(self._trainable), self.adamw(self._adversaries))

    def graph_key(self, step: int) -> str:
        """Network that the step trains: the converter after every `critic_steps` of the critic."""
        return CONVERTER if (step + 1) % (self.settings.critic_steps + 1) == 0 else CRITIC

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        """The terms of the converter's loss, or of the critic's and the classifier's: the paper's equations 5 to 10."""

        # [batch, segment_frames, bins]; attributes as a one for each value, [batch, values].
        mels = self._normalize(batch)
        weights = self.settings.losses
        network = self.model.converter
        attributes = one_hots(batch.labels, self.sizes)
        # Attributes that another voice of the batch has, so that no attribute has two values.
        order = tf.argsort(tf.random.stateless_uniform([tf.shape(mels)[0]], noise))
        target = tf.gather(attributes, order)
        target_labels = tf.gather(batch.labels, order)
        encoded = network.encode(mels, training=True)
        if graph_key == CRITIC:
            # The critic learns to tell recorded from converted, and which attributes recordings have.
            converted = tf.stop_gradient(network.decode(encoded, signs(target), training=True))
            recorded_score, logits = self.critic(mels)
            return {
                "critic": self.critic(converted)[0] - recorded_score + self._penalty(mels, converted, noise),
                "critic_attributes": weights.critic_attributes * cross_entropy(logits, batch.labels, self.sizes),
                "classifier": cross_entropy(
                    self.model.classifier(mels, training=True, noise=noise)[1], batch.labels, self.sizes
                ),
            }

        # Both at once: statistics of the norms are of both.
        encoded_twice = tuple(tf.concat([part, part], 0) for part in encoded)
        converted, reconstructed = tf.split(
            network.decode(encoded_twice, signs(tf.concat([target, attributes], 0)), training=True), 2
        )
        score, logits = self.critic(converted)

        return {
            "reconstruction": weights.reconstruction * tf.reduce_mean(tf.abs(reconstructed - mels), axis=[1, 2]),
            "adversarial": -score,
            "attributes": weights.attributes * cross_entropy(logits, target_labels, self.sizes),
        }

    def _penalty(self, recorded: Tensor, converted: Tensor, noise: Tensor) -> Tensor:
        # |∇ critic| is to be 1 between recorded and converted mels.
        share = tf.random.stateless_uniform([tf.shape(converted)[0], 1, 1], noise + tf.constant([0, 7]))
        between = share * recorded + (1 - share) * converted
        (gradient,) = tf.gradients(self.critic(between)[0], between)
        # A square root has no derivative at zero.
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=[1, 2]) + 1e-12)
        return self.settings.losses.gradient_penalty * tf.square(norm - 1)

    def objectives(self, terms: dict[str, Tensor]) -> list[tuple[Tensor, Sequence[Any]]]:
        return [(tf.add_n(list(terms.values())), self._adversaries if CRITIC in terms else self._trainable)]

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Measures each row: the distance when it is decoded with its own attributes; and the classifier's logits
        [rows, values] of the recording and of its conversion to the next value of every attribute (raw, `converted`).
        """
        mels = self._normalize(batch)
        network = self.model.converter
        encoded = network.encode(mels)
        reconstructed = network.decode(encoded, signs(one_hots(batch.labels, self.sizes)))

        # The next value of every attribute, at twice the strength of the training: that is how it is used.
        following = (batch.labels + 1) % tf.constant(self.sizes, tf.int32)
        converted = network.decode(encoded, 2 * signs(one_hots(following, self.sizes)))

        return {
            "distance": tf.reduce_mean(tf.abs(reconstructed - mels), axis=[1, 2]),
            "recorded_logits": self.model.classifier(mels)[1],
            "converted_logits": self.model.classifier(converted)[1],
            "converted": converted * self._deviation + self._mean,
        }

    def _normalize(self, batch: BatchTensors) -> Tensor:
        features = tf.ensure_shape(batch.features, [None, self.settings.segment_frames, len(self._mean)])
        return (features - self._mean) / self._deviation

    def _variables(self) -> dict[str, list[Any]]:
        return {**super()._variables(), CRITIC: self.critic.weights}


def one_hots(labels: Tensor, sizes: Sequence[int]) -> Tensor:
    """int [batch, attributes] → float32 [batch, values], a 1 for each attribute's value."""
    return tf.concat([tf.one_hot(labels[:, index], size) for index, size in enumerate(sizes)], axis=1)


def signs(ones: Tensor) -> Tensor:
    """Maps 0 and 1 to an attribute vector of strength 0.5, with which the network is trained."""
    return TRAINING_STRENGTH * (2 * ones - 1)


def cross_entropy(logits: Tensor, labels: Tensor, sizes: Sequence[int]) -> Tensor:
    """Mean over the attributes, in nats, float32 [batch]: of each attribute, one value is the right one."""
    parts = enumerate(tf.split(logits, list(sizes), axis=1))
    entropies = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, index], part) for index, part in parts]
    return tf.add_n(entropies) / len(entropies)


class Attributes:
    """The attributes of a dataset's voices, by name, and their values in train.

    Raises:
      WorkError: one has fewer than two values in train, or all have too many.
    """

    def __init__(self, dataset: Dataset, settings: Sequence[AttributeSettings]) -> None:
        self._settings = list(settings)

        # Values are those of train: the network has no input for others.
        rows = [row for row in dataset.rows() if row.split == "train"]
        self.values: dict[str, list[str]] = {}
        for attribute in settings:
            values = sorted({value for row in rows if (value := value_of(row, attribute))})
            if len(values) < 2:
                fields = sorted({"speaker", *(name for row in rows for name in row.extra)})
                raise WorkError(
                    f"train: attributes has the field {attribute.field!r}, and its values in train are {values}; two "
                    f"are needed. The fields are: {', '.join(fields)}"
                )
            self.values[attribute.field] = values

        if sum(self.sizes) > MAX_VALUES:
            raise WorkError(f"train: the attributes have {sum(self.sizes):,} values, at most {MAX_VALUES} are accepted")

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in self.values.values()]

    def labels(self, row: DatasetRow) -> list[int] | None:
        """Numbers of the values of an utterance's attributes; None if one is missing."""
        numbers = []
        for attribute, values in zip(self._settings, self.values.values(), strict=True):
            value = value_of(row, attribute)
            if value not in values:
                return None
            numbers.append(values.index(value))
        return numbers


def value_of(row: DatasetRow, attribute: AttributeSettings) -> str:
    """The value of an utterance's attribute; empty if it has none."""
    text = row.speaker if attribute.field == "speaker" else str(row.extra.get(attribute.field) or "")
    if not attribute.pattern:
        return text
    match = re.search(attribute.pattern, text)
    return (match[1] or "") if match else ""


class AttributeBatches(MelSegmentBatches):
    """Segments of mels; the labels of an example are the numbers of its attributes' values, int32 [attributes]."""

    def __init__(self, dataset: Dataset, split: str, frames: int, attributes: Attributes, **options: Any) -> None:
        self._attributes = attributes
        self._labels = dict[str, list[int]]()
        super().__init__(dataset, split, frames, **options)
        self.shapes = [(frames, len(attributes.sizes))] if self.shapes else []

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        # Utterances without a value, or with one that train lacks, are left out and listed.
        labels = {row.id: self._attributes.labels(row) for row in dataset.rows() if row.split == split}
        self._labels = {id: numbers for id, numbers in labels.items() if numbers is not None}
        if left_out := [id for id in labels if id not in self._labels]:
            print_status(
                f"train: {len(left_out):,} of {len(labels):,} utterances of {split} have no value, or one that train "
                f"lacks, of {', '.join(self._attributes.values)} and are left out: {shorten_list(left_out)}"
            )
        if labels and not self._labels:
            raise WorkError(
                f"no utterance of {split} has values that train has of {', '.join(self._attributes.values)}; choose "
                "attributes that both splits have: a speaker of one split alone is none"
            )
        return (record for record in super()._find_records(dataset, split) if record.id in self._labels)

    def _segment(self, draw: int, epoch: int) -> Example:
        row = draw % len(self._records)
        mels = self._recorded_mels(row)
        record = self._records[row]
        segment = self._cut(mels, self._first_frame(draw, epoch, len(mels)))
        labels = np.array(self._labels[record.id], np.int32)
        return Example(record.id, record.text, record.speaker, segment, labels)


class ConversionTask(TrainingTask):
    """Scores a validation by the share of attributes that the classifier reads wrongly in converted segments of dev,
    and by the distance, in deviations, of segments that are decoded with their own attributes.
    """

    settings: ConversionTrainSettings
    module: ConversionTrainModule
    dev: AttributeBatches

    def __init__(self, settings: ConversionTrainSettings, dataset: Dataset) -> None:
        if dataset.features.kind != "log_mel":
            raise SettingsError(
                f"extract.features.kind is {dataset.features.kind!r}; a converter of voices needs log_mel"
            )
        self.attributes = Attributes(dataset, settings.attributes)
        super().__init__(settings, dataset)

    def build_batches(self) -> tuple[AttributeBatches, AttributeBatches]:
        settings = self.settings
        shared: dict[str, Any] = {
            "frames": settings.segment_frames,
            "attributes": self.attributes,
            "share": devices.replica_share(self.strategy),
            "buckets": self.buckets,
        }
        train = AttributeBatches(
            self.dataset,
            "train",
            batch_size=settings.step_size,
            seed=settings.seed,
            shuffled=True,
            corpus_weights=settings.corpus_weights,
            **shared,
        )
        return train, AttributeBatches(self.dataset, "dev", batch_size=settings.batch_size, **shared)

    def build_module(self) -> ConversionTrainModule:
        return ConversionTrainModule(self.settings, self.dataset, self.attributes.sizes, self.strategy)

    @property
    def infeasible_advice(self) -> str:
        return ""  # a converter reads no transcripts

    def validate(self, step: int) -> ValidationOutput:
        # Shares of rows whose attribute the classifier reads as it should.
        sizes = self.attributes.sizes
        samples = Samples()
        names = ("distance", *(f"{of}_{name}" for of in ("recorded", "converted") for name in self.attributes.values))
        sums = np.zeros(len(names) + 1)
        for batch in self.dev.epoch(0):
            rows = self.module.run_eval(batch)
            for row, out in rows:
                labels = batch.labels[row]
                recorded = likeliest_values(out["recorded_logits"], sizes) == labels
                converted = likeliest_values(out["converted_logits"], sizes) == (labels + 1) % sizes
                sums += [float(out["distance"]), *recorded, *converted, 1]
            if not samples.images and rows:
                samples = self._samples(batch.features[rows[0][0]], rows[0][1]["converted"])

        *totals, count = devices.sum_over_workers(self.strategy, sums.tolist()).tolist()
        means = {name: total / count for name, total in zip(names, totals, strict=True)}

        # Wrongly read attributes, and the distance of what is decoded as it was.
        right = float(np.mean([means[f"converted_{name}"] for name in self.attributes.values]))
        score = (1 - right) + means["distance"]

        return ValidationOutput((score, means["distance"]), {"score": score, **means}, samples)

    def describe(self, metrics: dict[str, float]) -> str:
        read = ", ".join(
            f"{name} {metrics[f'converted_{name}']:.1%} (of recordings {metrics[f'recorded_{name}']:.1%})"
            for name in self.attributes.values
        )
        return f"dev converted: the classifier reads {read}; distance {metrics['distance']:.3f}"

    def _samples(self, recorded: npt.NDArray[np.float32], converted: npt.NDArray[np.float32]) -> Samples:
        features = self.dataset.features
        audio = {}
        for name, mels in (("recorded", recorded), ("converted", converted)):
            waveform = features_to_waveform(mels, features, iterations=30)
            audio[name] = waveform / max(float(np.abs(waveform).max()), 1e-6) * 0.7
        return Samples({}, {"converted": render_comparison(converted, recorded)}, audio, features.sample_rate)

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        model = Converter(self.settings, self.dataset.features.bins, sum(self.attributes.sizes))
        for index, variable in enumerate(model.weights):
            variable.assign(weights[f"model/{index}"])
        graph = ConversionGraph(model, self.settings, self.dataset, self.attributes.sizes)
        info = model_info(
            "attgan",
            self.settings,
            self.dataset,
            training,
            weight_names(model),
            attributes=self.attributes.values,
        )
        signatures = {CONVERT: graph.convert, CLASSIFY: graph.classify, "serving_default": graph.convert}
        write_exported(folder, graph, signatures, info)


def likeliest_values(logits: npt.NDArray[np.float32], sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """The most likely value of each attribute, [attributes], from logits or probabilities [values]."""
    return np.array([part.argmax() for part in np.split(logits, np.cumsum(sizes)[:-1])])


class ConversionGraph(tf.Module):  # type: ignore[misc]
    """The exported form of the networks."""

    def __init__(
        self, model: Converter, settings: ConversionTrainSettings, dataset: Dataset, sizes: Sequence[int]
    ) -> None:
        super().__init__()
        bins = dataset.features.bins
        features = dataset.features
        mean = np.asarray(dataset.mean, np.float32)
        deviation = np.maximum(np.asarray(dataset.deviation, np.float32), MIN_DEVIATION)

        # Normalized features of silence, as training pads with.
        silence = (compute_features(np.zeros(1, np.float32), features)[0].astype(np.float32) - mean) / deviation
        self.weights = [variable.value for variable in model.weights]
        # Functions of plain values, so that the SavedModel holds weights and signatures but no Keras objects.
        converter = model.converter
        classifier = model.classifier
        factor = model.converter.factor

        def convert(mels: Tensor, attributes: Tensor) -> dict[str, Tensor]:
            rows = tf.shape(mels)[0]
            frames = tf.shape(mels)[1]
            # As in training, where a short utterance is followed by silence; a multiple of the stride of all layers.
            after = tf.broadcast_to(silence, [rows, -frames % factor, bins])
            normalized = tf.concat([(mels - mean) / deviation, after], axis=1)
            return {"mels": converter(normalized, attributes)[:, :frames] * deviation + mean}

        def classify(mels: Tensor) -> dict[str, Tensor]:
            parts = tf.split(classifier((mels - mean) / deviation)[1], list(sizes), axis=1)
            return {"probabilities": tf.concat([tf.nn.softmax(part) for part in parts], axis=1)}

        def spec(name: str, *shape: int | None) -> Any:
            return tf.TensorSpec([None, *shape], tf.float32, name=name)

        attribute_spec = spec("attributes", sum(sizes))
        self.convert = tf.function(convert, input_signature=[spec("mels", None, bins), attribute_spec], autograph=False)
        segment = spec("mels", settings.segment_frames, bins)
        self.classify = tf.function(classify, input_signature=[segment], autograph=False)
