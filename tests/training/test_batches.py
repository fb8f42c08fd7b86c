"""Batches: each utterance once per epoch, in an order that seed and epoch determine."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.training.tones import LETTERS, make_utterances, write_dataset
from voxline.audio.feature_settings import FeatureSettings
from voxline.data.dataset import Dataset
from voxline.data.testing import NewExample
from voxline.data.testing import write_dataset as write_examples
from voxline.errors import WorkError
from voxline.text.alphabet import Alphabet
from voxline.training.batches import ROWS, Batch, Batches, ReplicaShare


def batches(dataset: Dataset, **changes: Any) -> Batches:
    return Batches(
        dataset, "train", **{"batch_size": 8, "time_stride": 2, "shuffled": True, "length_noise": 0.3, **changes}
    )


def ids(found: Any) -> list[list[str]]:
    return [batch.ids for batch in found]


def test_each_utterance_occurs_once_per_epoch_with_its_features_and_labels(tones: Dataset) -> None:
    spoken = {each.id: each for each in make_utterances(160, 24)}
    seen = []
    for batch in batches(tones).epoch(3):
        for row, name in enumerate(batch.ids):
            labels = batch.labels[row, : batch.counts[row]]
            assert "".join(LETTERS[label] for label in labels) == spoken[name].text == batch.texts[row]
            assert batch.frames[row] == tones.features.count_frames(len(spoken[name].waveform))
            assert not batch.features[row, batch.frames[row] :].any()
            seen.append(name)
    assert sorted(seen) == sorted(name for name, each in spoken.items() if each.split == "train")


def test_the_last_batch_is_filled_with_other_utterances(tones: Dataset) -> None:
    found = ids(batches(tones, batch_size=37).epoch(1))
    assert [len(names) for names in found] == [37] * 5
    assert len({name for names in found for name in names}) == 160
    assert [len(names) for names in ids(batches(tones, batch_size=500).epoch(1))] == [160]
    in_order = ids(batches(tones, batch_size=37, shuffled=False).epoch(1))
    assert [len(names) for names in in_order] == [37, 37, 37, 37, 12]


def test_seed_and_epoch_determine_the_order_from_any_step_on(tones: Dataset) -> None:
    whole = ids(batches(tones, seed=1).epoch(2))
    assert ids(batches(tones, seed=1).epoch(2, first=7)) == whole[7:]
    assert ids(batches(tones, seed=1).epoch(3)) != whole
    assert ids(batches(tones, seed=2).epoch(2)) != whole


def test_seed_epoch_and_utterance_determine_the_augmentation(tones: Dataset) -> None:
    def noisy(features: Any, fewest: int, random: np.random.Generator) -> Any:
        return features + random.standard_normal(features.shape).astype(np.float32)

    def last_batch(first: int, epoch: int = 1) -> Batch:
        return list(batches(tones, augment=noisy).epoch(epoch, first))[-1]

    np.testing.assert_array_equal(last_batch(0).features, last_batch(15).features)
    assert not np.array_equal(last_batch(0).features[:, :5], last_batch(0, epoch=2).features[:, :5])


@pytest.mark.parametrize("readers", [1, 2, 4])
def test_any_number_of_readers_gives_the_same_batches(tones: Dataset, readers: int) -> None:
    """From any step on, in the same order, also where a later batch is read before an earlier one."""

    def slow_at_times(features: Any, fewest: int, random: np.random.Generator) -> Any:
        time.sleep(0.002 * random.integers(0, 2))
        return features + random.standard_normal(features.shape).astype(np.float32)

    expected = [batch.features for batch in batches(tones, augment=slow_at_times, readers=3).epoch(1)]
    ahead = batches(tones, augment=slow_at_times, readers=readers)
    for first in (0, 7):
        for features, batch in zip(expected[first:], ahead.epoch(1, first), strict=True):
            np.testing.assert_array_equal(batch.features, features)
    assert ahead.waited > 0


@pytest.mark.parametrize(("size", "shuffled"), [(8, True), (7, True), (50, False)])
def test_two_workers_read_half_each_and_together_the_whole_batch(tones: Dataset, size: int, shuffled: bool) -> None:
    """One device each, then two and two; the same rows with the same augmentation as one process reads."""

    def noisy(features: Any, fewest: int, random: np.random.Generator) -> Any:
        return features + random.standard_normal(features.shape).astype(np.float32)

    how: dict[str, Any] = {"batch_size": size, "shuffled": shuffled, "augment": noisy}
    whole = list(batches(tones, **how).epoch(1))
    for count in (1, 2):
        shares = [ReplicaShare(worker * count, count, 2 * count) for worker in range(2)]
        workers = [batches(tones, share=share, **how) for share in shares]
        read: list[list[int]] = [[], []]
        for seen, worker in zip(read, workers, strict=True):
            example = worker._example
            worker._example = lambda row, seen=seen, example=example: (seen.append(row), example(row))[1]  # type: ignore[method-assign]
        for batch, *parts in zip(whole, *(worker.epoch(1) for worker in workers), strict=True):
            found = {}
            for part in parts:
                assert part.ids == batch.ids
                assert part.places is not None
                for row, place in enumerate(part.places.tolist()):
                    found[place] = part.features[row, : part.frames[row]], part.labels[row, : part.counts[row]]
            assert sorted(found) == list(range(max(len(batch.ids), 2 * count)))
            for place in range(len(batch.ids)):
                features, labels = found[place]
                np.testing.assert_array_equal(features, batch.features[place, : batch.frames[place]])
                np.testing.assert_array_equal(labels, batch.labels[place, : batch.counts[place]])
        rows = [row for order in batches(tones, **how).plan(1) for row in order.tolist()]
        assert sorted(read[0] + read[1]) == sorted(rows)
        assert abs(len(read[0]) - len(read[1])) <= count * len(whole)


def test_batches_hold_similar_lengths(tones: Dataset) -> None:
    def waste(noise: float) -> float:
        found = list(batches(tones, length_noise=noise).epoch(0))
        real, whole = sum(batch.frames.sum() for batch in found), sum(batch.features[..., 0].size for batch in found)
        return float(1 - real / whole)

    assert waste(0.0) < 0.1 < waste(5.0)


LENGTHS = FeatureSettings(mels=8, hop_seconds=0.01)


def of_lengths(folder: Path, lengths: Sequence[int]) -> Dataset:
    """Utterances of so many frames."""
    examples = [
        NewExample(f"u{number:03}", "a", "train", np.ones((frames, 8), np.float32), "tone")
        for number, frames in enumerate(lengths)
    ]
    return write_examples(folder, examples, LENGTHS, Alphabet("a"))


@hypothesis.given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    seconds=st.sampled_from([0.5, 2.0, 10.0]),
    unit=st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]),
    longer=st.sampled_from([0.0, 0.3]),
)
@hypothesis.settings(max_examples=40)
def test_batches_by_seconds_hold_every_utterance_in_few_numbers_of_rows(
    lengths: list[int], seconds: float, unit: tuple[int, int], longer: float
) -> None:
    replicas, parts = unit
    share = ReplicaShare(0, replicas, replicas)
    options: dict[str, Any] = {"batch_seconds": seconds, "parts": parts, "longer": longer, "share": share}
    with tempfile.TemporaryDirectory() as folder:
        found = batches(of_lengths(Path(folder), lengths), time_stride=0, **options)
        for epoch in (0, 1):
            plan = found.plan(epoch)
            assert len(plan) == found.steps_of(epoch)
            draws = np.concatenate(plan)
            assert set(draws.tolist()) == set(range(len(lengths)))
            sizes = sorted(map(len, plan))
            # The last batch alone may repeat rows, or have too few where there are not enough.
            assert len(draws) < len(lengths) + max(sizes)
            assert sum(size % (replicas * parts) != 0 or size // (replicas * parts) not in ROWS for size in sizes) <= 1
            for rows in plan:
                frames = np.ceil(found._frames[rows].max() * (1 + longer))
                in_replica = -(-len(rows) // (replicas * parts))
                assert in_replica * replicas * frames <= seconds * 100 + 1e-6 or in_replica == 1


def test_a_batch_by_seconds_uses_most_of_them_in_an_order_of_chance(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    dataset = of_lengths(tmp_path, np.exp(random.uniform(np.log(100), np.log(1_600), 400)).astype(int).tolist())
    found = batches(dataset, time_stride=0, batch_seconds=60.0)
    first, second = found.plan(0), found.plan(1)
    assert [len(rows) for rows in first] != sorted(len(rows) for rows in first)
    assert {frozenset(rows.tolist()) for rows in first} != {frozenset(rows.tolist()) for rows in second}
    assert {len(rows) for rows in [*first, *second]} <= {3, 4, 6, 8, 12, 16, 24, 32, 48}
    used = [len(rows) * found._frames[rows].max() / 6_000 for rows in first]
    assert max(used) <= 1
    assert np.mean(used) > 0.75
    in_order = batches(dataset, time_stride=0, batch_seconds=60.0, shuffled=False).plan(0)
    assert sorted(np.concatenate(in_order).tolist()) == list(range(400))


def test_steps_by_seconds_follow_the_draws_of_each_epoch(tmp_path: Path) -> None:
    dataset = of_lengths(tmp_path, [50] * 7 + [400] * 7)
    found = batches(dataset, time_stride=0, batch_seconds=4.0, corpus_weights={"": 0.5})
    assert [found.steps_of(epoch) for epoch in range(4)] == [len(found.plan(epoch)) for epoch in range(4)]


def test_shortest_first_sorts_the_first_epoch(tones: Dataset) -> None:
    found = batches(tones, shortest_first=True)
    longest = [batch.frames.max() for batch in found.epoch(0)]
    assert longest == sorted(longest)
    assert [batch.frames.max() for batch in found.epoch(1)] != longest


def test_utterances_with_too_few_frames_are_left_out_and_listed(tmp_path: Path) -> None:
    spoken = make_utterances(12)
    short = {spoken[2].id: 2, spoken[7].id: 1}

    def cut(each: Any, features: Any) -> Any:
        labels = len(each.text) + sum(left == right for left, right in zip(each.text, each.text[1:], strict=False))
        # Output frame k is centered on frame 3k: 3 · (labels − 1) + 1 frames are enough, and one is cut.
        return features[: 3 * (labels - 1)] if each.id in short and labels > 1 else features

    dataset = write_dataset(tmp_path / "dataset", spoken, cut)
    found = batches(dataset, time_stride=3)
    expected = [name for name in short if next(e for e in spoken if e.id == name).text[1:]]
    assert expected
    assert sorted(found.infeasible) == expected
    assert found.utterances == 12 - len(expected)
    assert not set(expected) & {name for batch in ids(found.epoch(0)) for name in batch}


def test_a_window_of_several_frames_counts_for_what_labels_need(tmp_path: Path) -> None:
    """With a window of 7 frames every 3, n labels need 3 · (n - 1) + 7 frames; a single one needs no more than one."""
    spoken = make_utterances(12)

    def cut(each: Any, features: Any) -> Any:
        labels = len(each.text) + sum(left == right for left, right in zip(each.text, each.text[1:], strict=False))
        return features[: 3 * (labels - 1) + 7 - (each.id == spoken[2].id)] if labels > 1 else features[:1]

    dataset = write_dataset(tmp_path / "dataset", spoken, cut)
    assert batches(dataset, time_stride=3, window_frames=7).infeasible == [spoken[2].id]
    assert batches(dataset, time_stride=3, window_frames=7, padding=1).infeasible == []


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "dataset", make_utterances(6))
    (shard, *_) = dataset.files()
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(WorkError, match=rf"{shard.name}.*damaged"):
        list(batches(dataset).epoch(0))
