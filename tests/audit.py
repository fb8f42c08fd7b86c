"""What this process does at Python's border (PEP 578): files that it opens, renames and deletes, folders that it lists.

with noticed("open", lambda path, *_: opened.append(path)):
    ...

A notice that raises stops what was about to happen, as a full disk or a kill would.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

Notice = Callable[..., object]

_notices: dict[str, list[Notice]] = {}


@contextlib.contextmanager
def noticed(event: str, notice: Notice) -> Iterator[None]:
    """Calls a function with the arguments of each event of a kind, before it happens."""
    _listen()
    _notices.setdefault(event, []).append(notice)
    try:
        yield
    finally:
        _notices[event].remove(notice)


@functools.cache
def _listen() -> None:
    """Adds the hook of this process, which stays."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for notice in _notices.get(event, ()):
            notice(*arguments)

    sys.addaudithook(hook)
