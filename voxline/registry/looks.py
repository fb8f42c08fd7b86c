"""The comparisons of new models with the one in service, which share one error: `metrics.paired.look_confidence`.

  <registry>/<model>/looks.jsonl    a line for each comparison, oldest first
    {"service": "5c1f…", "model": "90ab…", "test": "77e0…"}

The first two are digests of models, the third is the fingerprint of the test split. A lost file starts the count again.
"""

import json

from voxline.errors import WorkError
from voxline.registry.registry import Registry
from voxline.store.objects import open_store

LOOKS_FILE = "looks.jsonl"


def count_look(registry: Registry, service: str, model: str, test: str, *, record: bool = True) -> int:
    """The number of a comparison among those with the model in service, from 1. Call it with the lock held.

    The same comparison again has the number that it had. After a rollback the count of the restored model continues.

    Args:
      service, model: digests of the model in service and of the new one.
      test: fingerprint of the test split.
      record: False for one that cannot put the model into service, whatever it shows.

    Raises:
      WorkError: the file is damaged.
    """
    store = open_store(registry.uri)
    try:
        data = store.read(LOOKS_FILE)
    except FileNotFoundError:
        data = b""
    try:
        looks = [json.loads(line) for line in data.splitlines()]
        compared = [(look["model"], look["test"]) for look in looks if look["service"] == service]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(
            f"{store.uri_of(LOOKS_FILE)}: damaged ({error}); restore it from a backup, or remove it, and comparisons "
            "are counted from 1 again"
        ) from None

    if (model, test) in compared:
        return compared.index((model, test)) + 1
    if record:
        line = json.dumps({"service": service, "model": model, "test": test}).encode() + b"\n"
        store.write(LOOKS_FILE, data + line)
    return len(compared) + 1
