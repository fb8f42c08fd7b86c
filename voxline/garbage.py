"""When Python collects garbage, in the processes that are ours: the command, the steps and their workers."""

import gc

LARGEST = 100
"""Collections of the middle generation before one of all objects; Python's own value is 10."""


def collect_rarely() -> None:
    """Lets this process, which has just begun, look through all of its objects a tenth as often.

    TensorFlow, Keras and kfp bring half a million objects that stay until the process ends. Python looks through those
    that it has, again and again, while it imports the others: a fifth of the time that this takes.
    """
    gc.set_threshold(*gc.get_threshold()[:2], LARGEST)
