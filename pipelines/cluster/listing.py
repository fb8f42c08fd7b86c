"""What a server lists, page after page, and what it has under a name."""

import json
from collections.abc import Callable, Iterator
from typing import Any

EQUALS = 1
"""`Predicate.operation` of KFP's filters."""
PAGE = 100


def every(method: Callable[..., Any], key: str, **asked: Any) -> Iterator[Any]:
    """All items of a listing, oldest first.

    Args:
      method: of the generated client, such as `run_service_list_runs`.
      key: of the answer, that holds the items.
    """
    token = ""
    while True:
        answer = method(page_size=PAGE, page_token=token, sort_by="created_at asc", **asked)
        yield from getattr(answer, key) or []
        token = answer.next_page_token or ""
        if not token:
            return


def named(method: Callable[..., Any], key: str, name: str, **asked: Any) -> list[Any]:
    """All items whose display name is exactly that, oldest first."""
    predicate = {"operation": EQUALS, "key": "display_name", "stringValue": name}
    return list(every(method, key, filter=json.dumps({"predicates": [predicate]}), **asked))


def by_name(method: Callable[..., Any], key: str, name: str, **asked: Any) -> Any | None:
    """The oldest item of that name, or None."""
    return next(iter(named(method, key, name, **asked)), None)
