"""The devices that train: one, all of this machine, or those of all workers in TF_CONFIG.

The training loop is the same for each. All workers run the same program on the same order of batches. A replica takes
every n-th row of a batch; the sum over replicas equals the result of one device with the whole batch (except for batch
normalization, whose statistics are per replica).
"""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.errors import SettingsError, WorkError

ACCELERATOR_ENV = "VOXLINE_ACCELERATOR"
"""The cluster sets it to the kind and the number of devices that the pod requests, such as `gpu:4`."""


def choose_strategy(strategy: str) -> Any:
    """The `tf.distribute` strategy for a value of train.strategy; "auto" uses all devices there are.

    Raises:
      SettingsError: it is "multi_worker", and TF_CONFIG names no workers.
      WorkError: TensorFlow does not see the devices that the pod requests.
    """
    check_accelerator()
    workers = worker_count()
    if strategy == "multi_worker" and not workers:
        raise SettingsError(
            "train.strategy is 'multi_worker' and the environment variable TF_CONFIG names no workers; "
            'set TF_CONFIG to {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}} '
            "on each, or train.strategy to 'auto'"
        )
    if strategy == "multi_worker" or (strategy == "auto" and workers > 1):
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU")
    if strategy == "mirrored" or (strategy == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices] or _cpus())
    return tf.distribute.get_strategy()


def check_accelerator() -> None:
    """Compares the devices that TensorFlow sees with those that the cluster was asked for.

    Without this, a pod without a driver, or with the wrong image, would train on its CPU for days and be paid for its
    accelerator.

    Raises:
      WorkError: there are fewer, or they are TPUs, on which this version does not train.
    """
    kind, _, count = os.environ.get(ACCELERATOR_ENV, "").partition(":")
    if not kind:
        return
    mend = "or write accelerator: null under cluster.steps.train"
    if kind == "tpu":
        raise WorkError(f"the pod requests {count} TPU chips, and Voxline does not train on TPUs; request GPUs, {mend}")
    seen = len(tf.config.list_physical_devices(kind.upper()))
    if seen < int(count):
        raise WorkError(
            f"the pod requests {count} {kind.upper()}s and TensorFlow sees {seen}; check the image (model-{kind}), "
            f"the node's driver and device plug-in (`nvidia-smi` in a pod), {mend}"
        )


def worker_count() -> int:
    """The number of workers in TF_CONFIG; 0 without it."""
    return len(_tf_config().get("cluster", {}).get("worker", []))


def is_chief() -> bool:
    """Whether this process writes checkpoints and logs: it is the only one, or worker 0."""
    return bool(worker_count() < 2 or _tf_config().get("task", {}).get("index", 0) == 0)


def sum_over_workers(strategy: Any, numbers: Sequence[float]) -> npt.NDArray[np.float64]:
    """The sum of each number over all workers; the same on all of them."""
    if worker_count() < 2 or strategy.num_replicas_in_sync == 1:
        return np.asarray(numbers, np.float64)
    local = len(strategy.experimental_local_results(strategy.run(lambda: tf.constant(0))))

    @tf.function  # type: ignore[untyped-decorator]
    def add(values: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: values), axis=None)

    summed: npt.NDArray[np.float64] = add(tf.constant(np.asarray(numbers) / local, tf.float64)).numpy()
    return summed


def _cpus() -> list[str]:
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG", "")
    try:
        config: dict[str, Any] = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise SettingsError(f"the environment variable TF_CONFIG is not JSON ({error}): {text[:80]!r}") from None
    return config
