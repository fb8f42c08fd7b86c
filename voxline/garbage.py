"""When Python collects garbage, in the processes that are ours: the command, the steps and their workers."""

import atexit
import gc

YOUNGEST = 7_000
"""New objects before a look through them; Python's own value is 700."""


def collect_rarely() -> None:
    """Lets this process, which has just begun, look through its objects a tenth as often, new ones and all of them.

    TensorFlow, Keras and kfp bring half a million objects that stay until the process ends. Python looks through those
    that it has, again and again, while it imports the others: a fifth of the time that this takes.
    """
    gc.set_threshold(YOUNGEST, *gc.get_threshold()[1:])


def keep_all_objects() -> None:
    """Lets this process, a fork that has just begun, never look through the objects that it has from its parent.

    A look writes into each of them, so that the system first makes a copy of its memory for this process.
    """
    gc.freeze()


def leave_garbage_at_exit() -> None:
    """Lets this process end without a look through all of its objects, whose memory goes back to the system anyway.

    For the command, whose files are closed by then: a sixth of the time of one that loads a config.
    """
    atexit.register(gc.freeze)
