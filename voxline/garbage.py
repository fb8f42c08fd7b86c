"""When Python collects garbage, in the processes that are ours: the command, the steps and their workers."""

import atexit
import gc

LARGEST = 100
"""Collections of the middle generation before one of all objects; Python's own value is 10."""


def collect_rarely() -> None:
    """Lets this process, which has just begun, look through all of its objects a tenth as often.

    TensorFlow, Keras and kfp bring half a million objects that stay until the process ends. Python looks through those
    that it has, again and again, while it imports the others: a fifth of the time that this takes.
    """
    gc.set_threshold(*gc.get_threshold()[:2], LARGEST)


def leave_garbage_at_exit() -> None:
    """Lets this process end without a look through all of its objects, whose memory goes back to the system anyway.

    For the command, whose files are closed by then: a sixth of the time of one that loads a config.
    """
    atexit.register(gc.freeze)
