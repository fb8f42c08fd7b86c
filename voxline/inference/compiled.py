"""Loops that numba compiles at their first call, with the machine code kept for the next process."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def compiled(function: Callable[..., Any], *, nogil: bool = False) -> Any:
    """Compiles at the first call, and keeps the machine code beside the function's file or in the user's cache folder.

    Args:
      nogil: lets other threads run Python meanwhile; what the function is given must not change then.

    Where neither can be written, or the disk is full, as in some containers, each process compiles.
    """
    try:
        # numba chooses its cache folder when it decorates.
        if not os.environ.get("NUMBA_CACHE_DIR"):
            Path.home()  # raises where there is none: numba would make a folder named ~ where the process runs
        dispatcher: Any = numba.njit(cache=True, nogil=nogil)(function)
    except RuntimeError:
        return numba.njit(nogil=nogil)(function)

    # numba raises if the disk is full; the compiled function is good all the same.
    save = dispatcher._cache.save_overload

    def save_if_possible(signature: Any, code: Any) -> None:
        with contextlib.suppress(OSError):
            save(signature, code)

    dispatcher._cache.save_overload = save_if_possible
    return dispatcher
