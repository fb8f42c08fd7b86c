"""The devices that train: one, all of this machine, or those of all workers in TF_CONFIG.

The training loop is the same for each. All workers run the same program on the same order of batches. A replica takes
every n-th row of a batch, and a worker reads the rows of its replicas only; the sum over replicas equals the result of
one device with the whole batch (except for batch normalization, whose statistics are per replica).
"""

import contextlib
import json
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.errors import SettingsError, WorkError
from voxline.training.batches import ReplicaShare
from voxline.training.settings import ACCELERATOR_ENV, TrainSettings

LOCKED_MEMORY = 64 * 2**30
"""Bytes that the driver of TPU chips may want to lock, by GKE's documentation."""
CAPABILITY = "compute_capability"
"""Of a GPU, in TensorFlow's details of it."""
CPU_ONLY = "or write accelerator: null under cluster.steps.train"


def choose_strategy(strategy: str) -> Any:
    """The `tf.distribute` strategy for a value of train.strategy; "auto" uses all devices there are.

    Raises:
      SettingsError: it is "multi_worker", and TF_CONFIG names no workers; or it does not suit the TPUs of this machine.
      WorkError: TensorFlow does not see the devices that the pod requests.
    """
    workers = worker_count()
    if _wants_tpu():
        return _tpu_strategy(strategy, workers)

    check_accelerator()
    if strategy == "multi_worker" and not workers:
        raise SettingsError(
            "train.strategy is 'multi_worker' and the environment variable TF_CONFIG names no workers; "
            'set TF_CONFIG to {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}} '
            "on each, or train.strategy to 'auto'"
        )

    # Several machines, several GPUs of this one, or the one device.
    if strategy == "multi_worker" or (strategy == "auto" and workers > 1):
        return tf.distribute.MultiWorkerMirroredStrategy()

    devices = tf.config.list_logical_devices("GPU")
    if strategy == "mirrored" or (strategy == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices] or _cpus())

    return tf.distribute.get_strategy()


@contextlib.contextmanager
def without_graph_optimizer() -> Iterator[None]:
    """Runs graphs as they were traced where the devices are CPUs alone.

    TensorFlow's optimizer of graphs (Grappler) costs seconds before the first step, and the steps of a recognizer are
    no faster for it. On a GPU it also chooses layouts, so there it stays.
    """
    if tf.config.list_logical_devices("GPU") or _wants_tpu():
        yield
        return
    # A process may have turned it off for all of its graphs, as the tests do: it stays off there.
    was_off = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": was_off})


def check_accelerator() -> None:
    """Compares the GPUs that TensorFlow sees with those that the cluster was asked for.

    Without this, a pod without a driver, or with the wrong image, would train on its CPU for days and be paid for its
    accelerator.

    Raises:
      WorkError: there are fewer.
    """

    # Without a request any device will do.
    kind, count = _requested()
    if not kind:
        return

    seen = len(tf.config.list_physical_devices(kind.upper()))
    if seen < count:
        raise WorkError(
            f"the pod requests {count} {kind.upper()}s and TensorFlow sees {seen}; check the image (model-{kind}), "
            f"the node's driver and device plug-in (`nvidia-smi` in a pod), {CPU_ONLY}"
        )


def has_accelerator() -> bool:
    """True if TensorFlow computes on a GPU or TPU."""
    return any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


def describe_accelerators() -> list[str]:
    """The GPUs and TPU cores that TensorFlow computes on, as they name themselves."""
    devices = [device for kind in ("GPU", "TPU") for device in tf.config.get_visible_devices(kind)]
    details = [tf.config.experimental.get_device_details(device) for device in devices]
    return [
        f"{known.get('device_name', device.name)}"
        + (f", compute capability {'.'.join(map(str, capability))}" if (capability := known.get(CAPABILITY)) else "")
        for device, known in zip(devices, details, strict=True)
    ]


def hide_accelerators() -> None:
    """Lets TensorFlow compute on the CPU alone; called before it computes anything."""
    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)
    os.environ.pop(ACCELERATOR_ENV, None)


def accelerator_count(strategy: Any) -> int:
    """The GPUs or TPU cores that a strategy computes on; 0 on CPUs."""
    return int(strategy.num_replicas_in_sync) if has_accelerator() else 0


def is_tpu(strategy: Any) -> bool:
    """True if a strategy computes on TPUs: all of a step is then compiled, for static shapes."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def check_strategy(strategy: Any, settings: TrainSettings) -> None:
    """Checks that a step can be compiled for the devices, and that they share a batch of static shape evenly.

    Raises:
      SettingsError: `train.xla`, `train.batch_size`, `train.batch_seconds` or the network does not suit them.
    """
    replicas = strategy.num_replicas_in_sync
    if settings.xla and replicas > 1 and not is_tpu(strategy):
        raise SettingsError(
            f"train.xla is true, and training uses {replicas} devices: XLA compiles a step that sums over several "
            "devices on TPUs only; set train.xla to false, or train on one device (train.strategy: one)"
        )

    if is_tpu(strategy) and settings.not_compiled():
        raise SettingsError(
            f"train.model.kind: {settings.not_compiled()}, and a TPU runs compiled steps alone; train on a GPU or a "
            "CPU (cluster.steps.train.accelerator)"
        )

    if is_tpu(strategy) and settings.not_on_tpus():
        raise SettingsError(f"train.precision is {settings.precision}, and {settings.not_on_tpus()}")

    if (settings.xla or is_tpu(strategy)) and settings.batch_seconds:
        raise SettingsError(
            f"train.batch_seconds is {settings.batch_seconds:g}, and steps are compiled for static shapes of "
            "train.batch_size rows (train.xla, TPUs); set it to 0"
        )

    if (settings.xla or is_tpu(strategy)) and settings.batch_size % replicas:
        raise SettingsError(
            f"train.batch_size is {settings.batch_size}, and {replicas} devices with static shapes take a multiple "
            f"of {replicas}; set it to {-(-settings.batch_size // replicas) * replicas}"
        )


def spread_rows(strategy: Any, share: ReplicaShare, array: npt.NDArray[Any]) -> Any:
    """The rows of an array on the replicas of this process: every n-th, so that long and short ones spread."""
    if share.total == 1:
        return tf.constant(array)
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(array[context.replica_id_in_sync_group - share.first :: share.count])
    )


def replica_share(strategy: Any) -> ReplicaShare:
    """The replicas of this process among those of all workers, each of which has the same number."""
    total = strategy.num_replicas_in_sync
    workers = max(worker_count(), 1)
    if workers == 1 or total == 1:
        return ReplicaShare(0, total, total)

    # Workers have the same number of replicas, in the order of their index.
    count = total // workers
    return ReplicaShare(_tf_config().get("task", {}).get("index", 0) * count, count, total)


def _requested() -> tuple[str, int]:
    """The kind and number of devices that the pod requests; ("", 0) where none are."""
    kind, _, count = os.environ.get(ACCELERATOR_ENV, "").partition(":")
    return kind, int(count or 0)


def _wants_tpu() -> bool:
    return _requested()[0] == "tpu" or bool(tf.config.get_visible_devices("TPU"))


def _tpu_strategy(strategy: str, workers: int) -> Any:
    """All TPU cores of this host; a slice of several hosts is not supported."""
    if strategy not in ("auto", "mirrored") or workers > 1:
        raise SettingsError(
            f"train.strategy is {strategy!r}, with {max(workers, 1)} workers, on a machine with TPUs; 'auto' and "
            "'mirrored' use all chips of one host, and train.workers.count must be 1"
        )

    count = _requested()[1]
    locked = _raise_locked_memory()
    try:
        # TensorFlow must know the TPUs before it computes anything.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        tpu_strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise WorkError(
            f"the pod requests {count} TPU chips and TensorFlow cannot start them ({reason}); "
            f"check the image (model-tpu) and that no other process uses them, {CPU_ONLY}{_barriers(locked)}"
        ) from error

    if tpu_strategy.num_replicas_in_sync < count:
        raise WorkError(
            f"the pod requests {count} TPU chips and TensorFlow sees {tpu_strategy.num_replicas_in_sync} cores; "
            f"check the type and topology under cluster.steps.train.accelerator, {CPU_ONLY}"
        )

    return tpu_strategy


def _raise_locked_memory() -> int:
    """Raises the limit of locked memory as far as the pod may, for the chips' direct access to memory; in bytes.

    A limit of -1 is none. See cloud.google.com/kubernetes-engine/docs/how-to/tpus#privileged-mode.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def _barriers(locked: int, root: Path = Path("/dev")) -> str:
    """What of this pod's rights keeps TPU chips from it, for the end of a message; empty if nothing does.

    Args:
      locked: limit of locked memory in bytes; -1: none.
      root: the folder of the devices.
    """
    devices = sorted([*root.glob("accel*"), *root.glob("vfio/[0-9]*")])
    closed = [str(device) for device in devices if not os.access(device, os.R_OK | os.W_OK)]
    reasons = [f"user {os.getuid()} may not open {', '.join(closed)}"] if closed else []
    if devices and locked not in (-1, resource.RLIM_INFINITY) and locked < LOCKED_MEMORY:
        reasons.append(f"it may lock {locked / 2**20:,.0f} MiB of memory, and GKE asks for {LOCKED_MEMORY >> 30} GiB")
    return f"; {'; '.join(reasons)} (docs/cluster/gke.md, TPUs)" if reasons else ""


def worker_count() -> int:
    """The number of workers in TF_CONFIG; 0 without it."""
    return len(_tf_config().get("cluster", {}).get("worker", []))


def is_chief() -> bool:
    """True if this process writes checkpoints and logs: it is the only one, or worker 0."""
    return bool(worker_count() < 2 or _tf_config().get("task", {}).get("index", 0) == 0)


def sum_over_workers(strategy: Any, numbers: Sequence[float]) -> npt.NDArray[np.float64]:
    """The sum of each number over all workers; the same on all of them."""
    if worker_count() < 2 or strategy.num_replicas_in_sync == 1:
        return np.asarray(numbers, np.float64)

    # Each replica of this worker adds the numbers once, so they are divided by its replicas.
    local = len(strategy.experimental_local_results(strategy.run(lambda: tf.constant(0))))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
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
