"""Imports TensorFlow: without what a step does not need of it, and without notes that nobody can act on."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voxline.extras import naming_extras
from voxline.progress import neutralize


def import_tensorflow() -> Any:
    """Imports TensorFlow without Keras, which halves the time, unless Keras is imported already."""
    if "tensorflow" not in sys.modules:
        with hidden_packages("keras"), naming_extras():
            start_tensorflow()
    import tensorflow as tf

    return tf


def start_tensorflow() -> None:
    """Imports TensorFlow and lets it find its devices. Its notes on missing GPUs are hidden where there are none."""
    if "tensorflow" in sys.modules:
        return
    with contextlib.nullcontext() if has_accelerator_driver() else silence_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()  # where a library of CUDA is installed and no GPU, the search logs an error


def has_accelerator_driver() -> bool:
    """Returns whether the system has a driver of a GPU or TPU: what TensorFlow says of devices is news then.

    Linux has a file for each device: of NVIDIA (in a container too), WSL 2, AMD and Google.
    """
    patterns = ("nvidia*", "dxg", "kfd", "accel*", "vfio/[0-9]*")
    return any(path for pattern in patterns for path in Path("/dev").glob(pattern))


@contextlib.contextmanager
def hidden_packages(*names: str) -> Iterator[None]:
    """Hides packages that are not imported yet, while another one is imported that does without them.

    A later import finds them again.
    """
    # A package that is imported already stays as it is.
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes importing it an ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def silence_stderr() -> Iterator[None]:
    """Discards standard error: libraries that log while they load ignore TF_CPP_MIN_LOG_LEVEL.

    If the block fails, or if that level is below 2, everything is shown.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in ("0", "1"):
        yield
        return

    # File descriptor 2 itself: TensorFlow's C++ code does not write to `sys.stderr`.
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException:
            captured.seek(0)
            # Text from a library may hold control characters.
            os.write(stderr, neutralize(captured.read().decode(errors="replace")).encode())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
