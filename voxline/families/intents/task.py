"""Training of intents: texts by their words, cross-entropy, the error rate on dev; the exported classifier.

Signatures `classify` (and `serving_default`), and `baseline` of the baseline classifier: words int32 [batch, length],
numbered as in model.json, counts int32 [batch] → probabilities float32 [batch, intents].
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.errors import WorkError
from voxline.families.intents.inference import (
    BASELINE,
    CLASSIFY,
    FIRST_WORD,
    UNKNOWN_WORD,
    IntentsInfo,
    intent_of,
    number_words,
)
from voxline.families.intents.networks.capsules import TextClassifier
from voxline.families.intents.settings import IntentsTrainSettings
from voxline.progress import print_status
from voxline.store.versioned_json import to_json_values
from voxline.text.alphabet import split_words
from voxline.training import devices
from voxline.training.batches import Array, Batches, Record, mixed_order
from voxline.training.checkpoints import Arrays
from voxline.training.export import model_info, write_exported
from voxline.training.layers import Tensor
from voxline.training.task import LOSS, Samples, TrainingTask, ValidationOutput, shorten_list
from voxline.training.train_module import BatchTensors, TrainModule
from voxline.training.weight_names import weight_names

LOGGED_ERRORS = 20
"""Texts of dev with a wrong intent that each validation logs."""
CAPSULES = "capsules"
MEAN = "mean_pooling"
"""Names of the classifier and of its baseline."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that a classifier knows, the most frequent first, and the intents that it distinguishes, by name."""

    words: list[str]
    intents: list[str]

    @classmethod
    def of(cls, dataset: Dataset, settings: IntentsTrainSettings) -> "Vocabulary":
        """The vocabulary of a dataset's training split.

        Raises:
          WorkError: it has fewer than two intents.
        """

        # Only train: words and intents of dev must not be known.
        counts = collections.Counter[str]()
        intents = set[str]()
        fields = set[str]()
        for row in dataset.rows():
            if row.split == "train":
                fields |= row.extra.keys()
                if intent := intent_of(row.extra, settings.field):
                    intents.add(intent)
                    counts.update(split_words(row.text))

        if len(intents) < 2:
            present = f"the training split has {', '.join(map(repr, sorted(intents))) or 'none'}"
            raise WorkError(
                f"train: a classifier needs two intents, and by the manifest's field {settings.field!r} {present}; "
                f"set train.field to one of {', '.join(sorted(fields)) or 'the fields that the manifest gets'}"
            )

        # Ties by spelling, so that the order does not depend on the dataset's.
        ordered = sorted(counts, key=lambda word: (-counts[word], word))

        return cls(ordered[: settings.model.max_words], sorted(intents))

    @property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}


class TextBatches(Batches):
    """The batches of one split, from the rows of a dataset; its shards are not read.

    The features of an example are the numbers of its words, float32 [words, 1], and its only label is the number of its
    intent. Utterances without an intent, and those of dev whose intent train does not have, are left out and named.

    Args:
      options: those of `Batches`.
    """

    def __init__(self, dataset: Dataset, split: str, vocabulary: Vocabulary, field: str, **options: Any) -> None:
        self.vocabulary = vocabulary
        self.field = field
        self._words: dict[str, tuple[list[int], int]] = {}
        super().__init__(dataset, split, **options)

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        # An utterance with an unknown intent has no label, and one without words no input.
        numbers = self.vocabulary.numbers
        intents = {intent: index for index, intent in enumerate(self.vocabulary.intents)}
        rows = [row for row in dataset.rows() if row.split == split]
        left_out: list[str] = []
        for row in sorted(rows, key=mixed_order):
            words = number_words(row.text, numbers)
            intent = intent_of(row.extra, self.field)
            if not words or intent not in intents:
                left_out.append(row.id)
                continue
            self._words[row.id] = words, intents[intent]
            corpus = str(row.extra.get("corpus", ""))
            yield Record(row.id, row.text, row.speaker, -1, 0, 0, len(words), 1, 1, corpus)

        if left_out:
            print_status(
                f"train: {len(left_out):,} of {len(rows):,} utterances of {split} have no intent of train in "
                f"{self.field!r} and are left out: {shorten_list(left_out)}"
            )

    def _example(self, row: int) -> Example:
        record = self._records[row]
        words, intent = self._words[record.id]
        return Example(
            record.id,
            record.text,
            record.speaker,
            np.array(words, np.float32)[:, None],
            np.array([intent], np.int32),
        )


def drop_words(rate: float) -> Callable[[Array, int, np.random.Generator], Array] | None:
    """Replaces a share of the words by the unknown one, as a recognizer's errors do; for `Batches`' `augment`."""
    if not rate:
        return None

    def augment(words: Array, _: int, random: np.random.Generator) -> Array:
        dropped: npt.NDArray[np.bool_] = random.random(words.shape) < rate
        return np.where(dropped, np.float32(UNKNOWN_WORD), words)

    return augment


class Classifiers(keras.Model):  # type: ignore[misc]
    """The classifier, and if the settings want one the baseline: the same layers with a mean in the capsules' place.

    Both begin with the same weights, as far as they have the same layers, and learn from the same batches.
    """

    def __init__(self, settings: IntentsTrainSettings, vocabulary: Vocabulary, precision: str) -> None:
        super().__init__(dtype=precision, name="classifiers")
        shared: dict[str, Any] = {
            "words": FIRST_WORD + len(vocabulary.words),
            "classes": len(vocabulary.intents),
            "seed": settings.seed,
            "precision": precision,
        }
        self.capsules = TextClassifier(settings.model, "capsules", **shared)
        if settings.baseline:
            self.mean_pooling = TextClassifier(settings.model, "mean", **shared)
        self.normalizations: list[Any] = []
        self.built = True

    @property
    def by_name(self) -> dict[str, TextClassifier]:
        return {CAPSULES: self.capsules, **({MEAN: self.mean_pooling} if hasattr(self, MEAN) else {})}


class IntentsTrainModule(TrainModule):
    """Both classifiers with an optimizer; the loss of each is the cross-entropy of the intent, in nats."""

    def __init__(self, settings: IntentsTrainSettings, vocabulary: Vocabulary, strategy: Any) -> None:
        super().__init__(settings, strategy, lambda: [Classifiers(settings, vocabulary, settings.precision)])

    def compute_losses(
        self, batch: BatchTensors, noise: Tensor, schedule: dict[str, Tensor], graph_key: Any
    ) -> dict[str, Tensor]:
        return {name: _cross_entropy(batch, logits) for name, logits in self._logits(batch, True, noise).items()}

    def eval_step(self, batch: BatchTensors, graph_key: Any) -> dict[str, Tensor]:
        """Predicted intents int [rows] by classifier, and the loss float32 [rows] of the capsules."""
        logits = self._logits(batch, False, None)
        predictions = {name: tf.argmax(values, axis=-1) for name, values in logits.items()}
        return {**predictions, "loss": _cross_entropy(batch, logits[CAPSULES])}

    def _logits(self, batch: BatchTensors, training: bool, noise: Tensor | None) -> dict[str, Tensor]:
        # The batch holds word numbers as features, float32 [rows, words, 1].
        words = tf.cast(batch.features[..., 0], tf.int32)
        return {
            name: classifier(words, batch.frames, training=training, noise=noise)
            for name, classifier in self.model.by_name.items()
        }


def _cross_entropy(batch: BatchTensors, logits: Tensor) -> Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels[:, 0], logits)


class IntentsTask(TrainingTask):
    """Scores a validation by the error rate; the loss breaks ties."""

    settings: IntentsTrainSettings
    module: IntentsTrainModule
    dev: TextBatches

    def __init__(self, settings: IntentsTrainSettings, dataset: Dataset) -> None:
        self.vocabulary = Vocabulary.of(dataset, settings)
        super().__init__(settings, dataset)

    def build_batches(self) -> tuple[TextBatches, TextBatches]:
        return self.batches_of_splits(
            TextBatches,
            {"augment": drop_words(self.settings.word_dropout)},
            vocabulary=self.vocabulary,
            field=self.settings.field,
        )

    def build_module(self) -> IntentsTrainModule:
        return IntentsTrainModule(self.settings, self.vocabulary, self.strategy)

    @property
    def infeasible_advice(self) -> str:
        return ""  # every text with a word has enough of them

    def validate(self, step: int) -> ValidationOutput:
        # Errors of each classifier; the capsules come first, and decide.
        names = tuple(self.module.model.by_name)
        errors = np.zeros(len(names))
        loss = 0.0
        count = 0
        wrong = []
        for batch in self.dev.epoch(0):
            for row, out in self.module.run_eval(batch, step):
                label = int(batch.labels[row, 0])
                predictions = [int(out[name]) for name in names]
                errors += [prediction != label for prediction in predictions]
                loss = loss + float(out["loss"])
                count = count + 1
                if predictions[0] != label:
                    wrong.append(
                        (batch.texts[row], self.vocabulary.intents[label], self.vocabulary.intents[predictions[0]])
                    )

        *totals, total_loss, number = devices.sum_over_workers(self.strategy, [*errors, loss, count]).tolist()

        # Means over the rows of all workers.
        rates = [total / number for total in totals]
        mean_loss = total_loss / number
        metrics = {"text_intent_error_rate": rates[0], LOSS: mean_loss}
        metrics |= {f"{name}_error_rate": rate for name, rate in zip(names[1:], rates[1:], strict=True)}

        # Some of the errors for TensorBoard.
        lines = ["| text | intent | found |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(row_of_table)} |" for row_of_table in wrong[:LOGGED_ERRORS]]

        return ValidationOutput((rates[0], mean_loss), metrics, Samples({"errors": "\n".join(lines)}))

    def describe(self, metrics: dict[str, float]) -> str:
        baseline = f"{MEAN}_error_rate"
        baseline_note = f", by mean pooling {metrics[baseline]:.2%}" if baseline in metrics else ""
        return (
            f"dev intents wrong {metrics['text_intent_error_rate']:.2%}{baseline_note}, dev loss {metrics['loss']:.3f}"
        )

    def export(self, folder: Path, weights: Arrays, training: dict[str, Any]) -> None:
        # In float32, with the trained weights.
        model = Classifiers(self.settings, self.vocabulary, "float32")
        for index, variable in enumerate(model.weights):
            variable.assign(weights[f"model/{index}"])

        graph = IntentsGraph(model)
        signatures = {CLASSIFY: graph.classify, "serving_default": graph.classify}
        if self.settings.baseline:
            signatures[BASELINE] = graph.baseline

        info = model_info(
            "capsules",
            self.settings,
            self.dataset,
            training,
            weight_names(model),
            frontend=self.dataset.frontend,
            extra=to_json_values(IntentsInfo(vocabulary=self.vocabulary.words, intents=self.vocabulary.intents)),
        )
        write_exported(folder, graph, signatures, info)


class IntentsGraph(tf.Module):  # type: ignore[misc]
    """The exported form of the classifiers."""

    def __init__(self, model: Classifiers) -> None:
        super().__init__()
        self.weights = [variable.value for variable in model.weights]
        signature = (
            tf.TensorSpec([None, None], tf.int32, name="words"),
            tf.TensorSpec([None], tf.int32, name="counts"),
        )
        graphs = {
            name: tf.function(_classify(classifier), input_signature=signature, autograph=False)
            for name, classifier in model.by_name.items()
        }
        self.classify = graphs[CAPSULES]
        self.baseline = graphs.get(MEAN)


def _classify(classifier: TextClassifier) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    # A function, so that the SavedModel holds weights and signatures but no Keras objects.
    return lambda words, counts: {"probabilities": tf.nn.softmax(classifier(words, counts))}
