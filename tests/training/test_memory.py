"""Batches that do not fit an accelerator's memory: tried before training, and computed in parts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.training.tones import ONE_LOOP, tiny_asr_settings
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError
from voxline.families.asr.task import AsrTask, AsrTrainModule
from voxline.training import devices, memory
from voxline.training.batches import Batch
from voxline.training.train_module import TrainModule

NO_NORMS = {"kind": "deepspeech", "units": 16, "context": 2, "dropout": 5 * [0.0]}


def limit_memory(module: TrainModule, frames: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets gradients of more than so many frames fail as on a device that is full; the frames of each that did not."""
    monkeypatch.setattr(devices, "has_accelerator", lambda: True)
    fitted: list[int] = []
    make = module._part_graph

    def limited(*key: Any) -> Any:
        graph = make(*key)

        def compute(tensors: Any, *values: Any) -> Any:
            size = int(np.prod(tensors.features.shape[:2]))
            if size > frames:
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
            fitted.append(size)
            return graph(tensors, *values)

        return compute

    module._part_graph = limited  # type: ignore[method-assign, assignment]
    return fitted


def make_task(dataset: Dataset, **settings: Any) -> AsrTask:
    return AsrTask(tiny_asr_settings(**{"model": NO_NORMS, "batch_size": 8, **settings}), dataset)


def test_a_batch_that_does_not_fit_is_computed_in_parts_with_the_same_result(
    few: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = make_task(few)
    task = make_task(few)
    largest = task.train.read(memory.largest_plan(task.train))
    frames = int(np.prod(largest.features.shape[:2]))

    limit = 2 * frames // 5
    fitted = limit_memory(task.module, limit, monkeypatch)
    memory.fit_memory(task.module, task.train)
    assert task.module.part_count == 4
    assert max(fitted) <= limit
    assert "does not fit the memory; it is computed in 4 parts" in capsys.readouterr().out

    before = plain.module.weights()
    batch = next(plain.train.epoch(0))
    results = [each.module.train_step(batch, 0.01, 0) for each in (plain, task)]
    assert results[0].loss == pytest.approx(results[1].loss, rel=1e-6)
    for name, weights in plain.module.weights().items():
        assert not np.array_equal(weights, before[name])
        np.testing.assert_allclose(task.module.weights()[name], weights, atol=1e-4)


def test_the_largest_batch_that_fits_is_told(
    few: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = make_task(few)
    frames = int(np.prod(task.train.read(memory.largest_plan(task.train)).features.shape[:2]))
    limit_memory(task.module, 5 * frames, monkeypatch)
    before = task.module.weights()
    memory.fit_memory(task.module, task.train)
    printed = capsys.readouterr().out
    assert "a batch of 32 utterances of up to" in printed
    assert "fits the memory, 64 do not; a step has 8" in printed
    assert task.module.part_count == 1
    assert all(np.array_equal(before[name], weights) for name, weights in task.module.weights().items())


def test_what_no_parts_can_help_is_refused(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(few)
    limit_memory(task.module, 10, monkeypatch)
    with pytest.raises(SettingsError, match=r"one utterance a device does not fit the memory: .*set train.recompute"):
        memory.fit_memory(task.module, task.train)

    normalized = make_task(few, model=ONE_LOOP)
    frames = int(np.prod(normalized.train.read(memory.largest_plan(normalized.train)).features.shape[:2]))
    limit_memory(normalized.module, 2 * frames // 5, monkeypatch)
    with pytest.raises(SettingsError, match=r"batch normalization has statistics of each part.*train.accumulate: 4"):
        memory.fit_memory(normalized.module, normalized.train)


def test_nothing_is_tried_on_a_processor(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(few)
    monkeypatch.setattr(AsrTrainModule, "sum_parts", None)
    memory.fit_memory(task.module, task.train)
    assert task.module.part_count == 1


def test_a_larger_trial_has_whatever_a_batch_has_of_each_row() -> None:
    rows = np.arange(4, dtype=np.int32)
    batch = Batch(list("abcd"), list("abcd"), np.ones((4, 3, 2), np.float32), rows, rows[:, None], rows, speakers=rows)
    trials: list[Batch] = []

    class Module:
        head_steps = 0

        def sum_parts(self, trial: Batch, step: int) -> Any:
            trials.append(trial)
            return SimpleNamespace(loss=tf.constant(0.0))

    assert memory._fits(Module(), batch, 1.5)  # type: ignore[arg-type]
    (trial,) = trials
    assert trial.ids == list("abcdab")
    for values in (trial.frames, trial.labels[:, 0], trial.counts, trial.speakers):
        assert np.asarray(values).tolist() == [0, 1, 2, 3, 0, 1]
