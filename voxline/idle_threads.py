"""What the threads of NumPy do while there is nothing for them to multiply."""

import os

_BLAS_TIMEOUT = "4"
"""The power of two of processor cycles for which OpenBLAS looks for work before a thread sleeps; its own value is 26,
the least is 4."""


def let_idle_threads_sleep() -> None:
    """Lets the threads of OpenBLAS, which NumPy starts when it is imported, sleep as soon as they have no work.

    They run for a fiftieth of a second otherwise, at every start and after every product that they share: half of the
    processor time of importing NumPy. Call it before that import; a value in the environment stays.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _BLAS_TIMEOUT)
