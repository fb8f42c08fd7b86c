"""Utterances whose text a model drafted: what they count in the loss, and where they may not be."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.closeness import assert_close
from tests.training.tones import FEATURES, make_utterances, tiny_asr_settings
from voxline.audio.features import compute_features
from voxline.data import testing as by_hand
from voxline.data.dataset import Dataset
from voxline.data.drafts import DRAFTED_BY
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.task import AsrTask, AsrTrainModule
from voxline.text.alphabet import Alphabet
from voxline.training.batches import Batch, Batches, ReplicaShare
from voxline.training.train_module import TrainModule

ONE_DEVICE = tf.distribute.get_strategy()
WITHOUT_STATISTICS = {"kind": "deepspeech"}
MARK = {DRAFTED_BY: "asr@1 (4f1c09aa2be0)"}


def dataset_with_drafts(folder: Path, drafted_dev: bool = False) -> Dataset:
    """Every third of 24 utterances of train is a draft."""
    examples = [
        by_hand.NewExample(
            each.id,
            each.text,
            each.split,
            compute_features(each.waveform, FEATURES),
            "tone",
            {"corpus": "ours"} | (MARK if (drafted_dev if each.split == "dev" else number % 3 == 0) else {}),
        )
        for number, each in enumerate(make_utterances(24, 4))
    ]
    return by_hand.write_dataset(folder, examples, FEATURES, Alphabet("abcd"), shards=2)


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset_with_drafts(tmp_path_factory.mktemp("drafted"))


def is_drafted(id: str) -> bool:
    return int(id.rpartition("-")[2]) % 3 == 0


def batch_of(dataset: Dataset, rows: int = 8, **changes: Any) -> Batch:
    batches = Batches(dataset, "train", batch_size=rows, time_stride=1, draft_weight=0.25, **changes)
    return batches.read(np.arange(rows))


def rows_of(batch: Batch, rows: slice) -> Batch:
    arrays = (batch.features, batch.frames, batch.labels, batch.counts)
    return Batch(batch.ids[rows], batch.texts[rows], *(array[rows] for array in arrays))


def sums(module: TrainModule, batch: Batch) -> tuple[float, list[Any]]:
    """Loss and gradients, before the update."""
    result = module.sum_parts(batch, 0)
    return float(result.loss), [np.asarray(gradient) for gradient in result.gradients]


@pytest.mark.parametrize(("size", "parts"), [(8, 1), (3, 3)])
def test_a_batch_is_the_weighted_sum_of_its_utterances_each_by_itself(drafted: Dataset, size: int, parts: int) -> None:
    batch = batch_of(drafted)
    settings = tiny_asr_settings(model=WITHOUT_STATISTICS, batch_size=size, accumulate=parts)
    module = AsrTrainModule(settings, drafted, ONE_DEVICE)
    weights = [0.25 if is_drafted(id) else 1.0 for id in batch.ids]
    assert 0 < weights.count(0.25) < 8
    alone = AsrTrainModule(tiny_asr_settings(model=WITHOUT_STATISTICS), drafted, ONE_DEVICE)
    singles = [sums(alone, rows_of(batch, slice(row, row + 1))) for row in range(8)]

    loss, gradients = sums(module, batch)
    assert loss == pytest.approx(np.dot(weights, [single[0] for single in singles]) / 8, rel=1e-5)
    for number, gradient in enumerate(gradients):
        expected = sum(weight * single[1][number] for weight, single in zip(weights, singles, strict=True)) / 8
        assert_close(gradient, expected, relative_to_peak=1e-4)

    # The step itself reports the same loss, in one graph as in parts.
    assert module.train_step(batch, 0.0, 0).loss == pytest.approx(loss, rel=1e-5)


def test_without_drafts_nothing_is_weighted(few: Dataset) -> None:
    assert batch_of(few).weights is None


@pytest.mark.parametrize("how", [{}, {"batch_seconds": 4.0}, {"share": ReplicaShare(1, 1, 2)}, {"buckets": 2}])
def test_weights_follow_the_utterances_into_every_kind_of_batch(drafted: Dataset, how: dict[str, Any]) -> None:
    batches = Batches(
        drafted, "train", batch_size=5, time_stride=1, draft_weight=0.25, shuffled=True, length_noise=0.5, **how
    )
    seen = []
    for batch in batches.epoch(1):
        assert batch.weights is not None
        assert batch.weights.tolist() == [0.25 if is_drafted(id) else 1.0 for id in batch.ids]
        seen += batch.ids
    assert set(seen) == {f"train-{number:03}" for number in range(24)}


def test_encodings_of_frozen_parts_are_weighted_as_the_features_that_they_replace(drafted: Dataset) -> None:
    batches = Batches(drafted, "train", batch_size=8, time_stride=1, draft_weight=0.25)
    with_features = batches.read(np.arange(8))
    batches.encodings = [np.full((4, 3), row, np.float32) for row in range(24)]
    encoded = batches.read(np.arange(8))
    assert encoded.features.shape == (8, 4, 3)
    np.testing.assert_array_equal(encoded.weights, with_features.weights)


def test_an_utterance_that_is_drawn_twice_keeps_its_weight(drafted: Dataset) -> None:
    batches = Batches(drafted, "train", batch_size=48, time_stride=1, draft_weight=0.25, corpus_weights={"ours": 2})
    (batch,) = batches.epoch(0)
    assert batch.weights is not None
    assert len(batch.ids) == 48
    assert batch.weights.tolist() == [0.25 if is_drafted(id) else 1.0 for id in batch.ids]


def test_a_recognizer_weighs_drafts_by_its_setting(drafted: Dataset) -> None:
    task = AsrTask(tiny_asr_settings(model=WITHOUT_STATISTICS, pseudo_weight=0.125), drafted)
    weights = [weight for batch in task.train.epoch(0) for weight in batch.weights]
    assert sorted(set(weights)) == [0.125, 1.0]
    assert all(batch.weights is None for batch in task.dev.epoch(0))
    for weight in (0, 1, 2):
        with pytest.raises(SettingsError, match="pseudo_weight"):
            tiny_asr_settings(pseudo_weight=weight)


def test_two_replicas_count_weights_once(drafted: Dataset) -> None:
    """A place beyond the batch repeats a row, at no weight."""
    module = AsrTrainModule(tiny_asr_settings(model=WITHOUT_STATISTICS), drafted, ONE_DEVICE)
    batch = batch_of(drafted, 3)
    assert batch.weights is not None
    padded = dataclasses.replace(batch, places=np.arange(4, dtype=np.int32))
    fourth = {name: getattr(batch, name)[[0, 1, 2, 0]] for name in ("features", "frames", "labels", "counts")}
    _, weights, _ = module._local_rows(dataclasses.replace(padded, **fourth))
    np.testing.assert_allclose(weights, [*(batch.weights / 3), 0])


def test_drafts_in_dev_and_drafts_that_nothing_weighs_are_refused(drafted: Dataset, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"8 utterances of train have a text that a model wrote, such as train-"):
        Batches(drafted, "train", batch_size=4, time_stride=1)
    judged = dataset_with_drafts(tmp_path, drafted_dev=True)
    with pytest.raises(WorkError, match=r"4 utterances of dev .*nothing is judged by them"):
        AsrTask(tiny_asr_settings(model=WITHOUT_STATISTICS), judged)
    with pytest.raises(WorkError, match="4 utterances of dev"):
        Batches(judged, "dev", batch_size=4, draft_weight=0.5)
