"""Older generations, as a bucket with object versioning keeps them; the emulator knows of none."""

import datetime
import json
import re
import urllib.parse
from typing import Any

_OBJECT = re.compile(r"/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>[^/?]+)")
_LIST = re.compile(r"/storage/v1/b/(?P<bucket>[^/]+)/o/?$")

Item = dict[str, Any]


class Older:
    """What was replaced or deleted in buckets that keep it.

    Attributes:
      buckets: their names.
      denied: nobody may delete an older generation.
    """

    def __init__(self) -> None:
        self.buckets: set[str] = set()
        self.denied = False
        self._items: dict[tuple[str, str], list[Item]] = {}

    def keeps(self, path: str) -> bool:
        found = _OBJECT.match(path)
        return bool(found and found["bucket"] in self.buckets)

    def keep(self, path: str, live: Item) -> None:
        """Takes note of an object that was replaced or deleted."""
        live = {**live, "timeDeleted": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        self._items.setdefault(_key(path), []).append(live)

    def delete(self, path: str, generation: str) -> bool:
        """Removes a generation for good; False where there is none."""
        items = self._items.get(_key(path), [])
        left = [item for item in items if item["generation"] != generation]
        self._items[_key(path)] = left
        return len(left) < len(items)

    def listed(self, path: str, query: dict[str, str], body: bytes) -> bytes:
        """A list of what is live, and of all else that is kept."""
        found = _LIST.match(path)
        if not found or query.get("versions", "").lower() != "true":
            return body
        answer = json.loads(body)
        prefix = query.get("prefix", "")
        for (bucket, name), items in self._items.items():
            if bucket == found["bucket"] and name.startswith(prefix):
                answer.setdefault("items", []).extend(items)
        return json.dumps(answer).encode()


def _key(path: str) -> tuple[str, str]:
    found = _OBJECT.match(path)
    return (found["bucket"], urllib.parse.unquote(found["name"])) if found else ("", "")
