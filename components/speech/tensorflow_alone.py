"""TensorFlow as an exported model needs it: without Keras, and without the lines with which it greets everybody.

Half the seconds of `import tensorflow` go into Keras (and scikit-learn behind it), which it loads for the sake of
models that keep Keras objects. Ours keep none: what ships is read without the model's code.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any


def tensorflow() -> Any:
    """The module; imported in half the time where nothing in this process has needed Keras yet."""
    if "tensorflow" not in sys.modules:
        with _without_keras(), unheard():
            import tensorflow as tf
    import tensorflow as tf

    return tf


@contextlib.contextmanager
def _without_keras() -> Iterator[None]:
    """TensorFlow asks for Keras and goes on where there is none; whoever imports it later gets it."""
    if "keras" in sys.modules:
        yield
        return
    sys.modules["keras"] = None  # type: ignore[assignment]  # so that importing it is an ImportError
    try:
        yield
    finally:
        del sys.modules["keras"]


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Keeps standard error to itself: what libraries log while they load heeds no TF_CPP_MIN_LOG_LEVEL.

    Everything is shown where that fails, or where a level below 2 asks for it.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in ("0", "1"):
        yield
        return
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)
