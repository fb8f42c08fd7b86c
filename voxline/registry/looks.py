"""The comparisons of new models with the one in service, which share one error: `metrics.paired.look_confidence`.

  <registry>/<model>/looks.jsonl    a line for each comparison, oldest first
    {"service": "5c1f…", "model": "90ab…", "test": "77e0…"}

The first two are digests of models, the third is the fingerprint of the test split. A lost file starts the count again.
`"after": "erasure"` counts by itself: such a model is compared with another version, and replaces what has to go.
"""

import json

from voxline.errors import WorkError
from voxline.registry.registry import Registry
from voxline.store.objects import open_store
from voxline.store.storage import ABSENT

LOOKS_FILE = "looks.jsonl"


def count_look(registry: Registry, service: str, model: str, test: str, *, after_erasure: bool = False) -> int:
    """The number of a comparison among those with the model in service, from 1. Call it with the lock held.

    The same comparison again has the number that it had. After a rollback the count of the restored model continues.

    Args:
      service, model: digests of the model in service and of the new one.
      test: fingerprint of the test split.
      after_erasure: the model knows no erased speaker, in contrast to the one in service.

    Raises:
      WorkError: the file is damaged.
      PreconditionError: another process, which took the lock over, counted at the same time.
    """
    store = open_store(registry.uri)
    try:
        data, version = store.read_with_version(LOOKS_FILE)
    except FileNotFoundError:
        data, version = b"", ABSENT
    lines = data.splitlines()
    family = {"service": service, **({"after": "erasure"} if after_erasure else {})}
    try:
        looks = [json.loads(line) for line in lines]
        compared = [
            (look["model"], look["test"])
            for look in looks
            if look["service"] == service and look.get("after") == family.get("after")
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(
            f"{store.uri_of(LOOKS_FILE)}: damaged ({error}); restore it from a backup, or remove it, and comparisons "
            "are counted from 1 again"
        ) from None

    if (model, test) in compared:
        return compared.index((model, test)) + 1
    # An editor may have taken the end of the last line.
    lines.append(json.dumps({**family, "model": model, "test": test}).encode())
    store.write(LOOKS_FILE, b"\n".join([*lines, b""]), if_version=version)
    return len(compared) + 1
