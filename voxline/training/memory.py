"""How large a batch an accelerator's memory takes: tried before the first step, by the longest utterances."""

import dataclasses
import math
import resource
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.errors import SettingsError
from voxline.progress import print_status
from voxline.training import devices
from voxline.training.batches import Batch, Batches
from voxline.training.train_module import TrainModule

RESERVE = 1.1
"""Share of a batch's rows that must fit: memory is fragmented later on."""
LARGEST = 8
"""Multiple of the largest batch up to which batches are tried."""


def fit_memory(module: Any, batches: Any) -> None:
    """Computes batches in as many parts as the memory needs, and tells the largest batch that fits.

    The largest one is that of most frames, padding included. On several machines nothing is tried: one that runs out
    of memory would leave the others waiting.

    Args:
      module: its `part_count` is raised; of other modules than `TrainModule`, and other batches than `Batches`, whose
        sizes are fixed, nothing is tried.

    Raises:
      SettingsError: a single utterance does not fit, or the network has batch normalization and the batch does not fit.
    """
    if not isinstance(module, TrainModule) or not isinstance(batches, Batches):
        return
    share = module.share
    if not devices.has_accelerator() or share.count != share.total or not batches.utterances:
        return

    batch = batches.read(largest_plan(batches), 0, share)
    rows = len(batch.features)
    parts = module.part_count
    while not _fits(module, batch, RESERVE):
        if math.ceil(RESERVE * rows / module.part_count) <= share.total:
            raise SettingsError(
                f"a training step of one utterance a device does not fit the memory: {_describe(batch, 1)}; set "
                "train.recompute, train.precision: mixed_bfloat16, or train.batch_seconds, or leave out the longest"
            )
        module.part_count *= 2

    models = [module.model, *module.auxiliary_models]
    norms = [norm for model in models for norm in model.normalizations if not getattr(norm, "frozen", False)]
    if module.part_count > parts and norms:
        raise SettingsError(
            f"a training step of {_describe(batch, rows)} does not fit the memory in {parts} parts, and fits it in "
            f"{module.part_count}; batch normalization has statistics of each part, so this is for you to choose: set "
            f"train.accumulate: {module.part_count} and train.batch_size so many times smaller, or train.recompute"
        )

    if module.part_count > parts:
        print_status(
            f"train: {_describe(batch, rows)} does not fit the memory; it is computed in {module.part_count} parts"
        )
        return

    multiple = largest_multiple(module, batch)
    more = "more was not tried" if multiple == LARGEST else f"{2 * multiple * rows:,} do not"
    print_status(f"train: {_describe(batch, multiple * rows)} fits the memory, {more}; a step has {rows:,}")


def largest_multiple(module: TrainModule, batch: Batch) -> int:
    """How many times the rows of a batch that fits the memory fit it too: a power of two, up to `LARGEST`."""
    multiple = 1
    while multiple < LARGEST and _fits(module, batch, 2 * multiple):
        multiple *= 2
    return multiple


def peak_memory() -> int:
    """Bytes that were in use at once: of the accelerator that used most, or else of this process.

    An accelerator's are counted since `forget_peak_memory`, a process's since its start.
    """
    accelerators = [device.name for kind in ("GPU", "TPU") for device in tf.config.list_logical_devices(kind)]
    if not accelerators:
        unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return max(tf.config.experimental.get_memory_info(_short(name))["peak"] for name in accelerators)


def forget_peak_memory() -> None:
    """Counts the peak of each accelerator's memory from now on."""
    for kind in ("GPU", "TPU"):
        for device in tf.config.list_logical_devices(kind):
            tf.config.experimental.reset_memory_stats(_short(device.name))


def _short(name: str) -> str:
    """The name by which TensorFlow knows the memory of a device.

    >>> _short("/device:GPU:0")
    'GPU:0'
    """
    return name.rpartition("device:")[2]


def largest_plan(batches: Batches) -> npt.NDArray[np.int64]:
    """The draws of the first epoch's batch of most frames, padding included."""

    def frames(draws: npt.NDArray[np.int64]) -> int:
        return len(draws) * max(batches.frames(draw % batches.utterances) for draw in draws.tolist())

    return max(batches.plan(0), key=frames)


def _fits(module: TrainModule, batch: Batch, share: float) -> bool:
    """Whether the gradients of so many times the batch's rows fit the memory; the first step of all weights."""
    rows = np.arange(math.ceil(share * len(batch.features))) % len(batch.features)
    arrays: dict[str, Any] = {
        field.name: value[rows]
        for field in dataclasses.fields(batch)
        if isinstance(value := getattr(batch, field.name), np.ndarray) and field.name not in ("places", "weights")
    }
    names = [batch.ids[row] for row in rows.tolist()]
    trial = dataclasses.replace(batch, ids=names, places=None, weights=None, **arrays)
    try:
        result: Any = module.sum_parts(trial, module.head_steps)
        result.loss.numpy()  # until then an accelerator may still be at work
    except tf.errors.ResourceExhaustedError:
        return False
    return True


def _describe(batch: Batch, rows: int) -> str:
    return f"a batch of {rows:,} utterances of up to {batch.features.shape[1]:,} frames"
