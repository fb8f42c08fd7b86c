"""The anchor of a model: the version that a new one is compared with beside the one in service.

Without it, margins would add up over pushes: each version may be a little worse than the one before it.

  <registry>/<model>/anchor.json    the version that a person named; absent if none is named
"""

import json
import time

from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.registry.journal import format_utc
from voxline.registry.registry import Registry
from voxline.store.objects import open_store

_FILE = "anchor.json"


def current_anchor(registry: Registry) -> int | None:
    """The version that a person named, else the best one so far; None if nothing is in service.

    Raises:
      WorkError: `anchor.json` is damaged, or names a version that does not exist.
    """
    return best_version(registry) if (named := named_anchor(registry)) is None else named


def best_version(registry: Registry) -> int | None:
    """The best version so far; None if nothing is in service.

    Each push records whether the new version is at least as good as the anchor on the same utterances, and only then
    replaces it. What was rolled back no longer counts, because a rollback restores the anchor of the version that it
    restores.
    """
    if (version := registry.in_service()) is None:
        return None
    return best_until(registry, version)


def best_until(registry: Registry, version: int) -> int:
    """The best of a version and those before it, as its push recorded."""
    # The first version of a model is its own anchor.
    anchor = registry.event(version).anchor or version
    if anchor not in registry.existing():
        print_status(f"{registry.uri}: its anchor, version {anchor}, was deleted; version {version} takes its place")
        return version
    return anchor


def named_anchor(registry: Registry) -> int | None:
    """The anchor that a person named, if any.

    Raises:
      WorkError: as `current_anchor`.
    """
    store = open_store(registry.uri)
    try:
        data = store.read(_FILE)
    except FileNotFoundError:
        return None
    try:
        version = json.loads(data)["version"]
    except (ValueError, TypeError, KeyError):
        version = None

    # Every message names the command that mends it.
    where = store.uri_of(_FILE)
    command = f"voxline models anchor {registry.model}"
    if not isinstance(version, int):
        raise WorkError(f"{where}: damaged; name the anchor again ({command})")
    if version not in registry.existing():
        raise WorkError(
            f"{where}: names version {version}, which does not exist; name another ({command} --version N), or none "
            "(--best)"
        )
    return version


def name_anchor(registry: Registry, version: int | None, note: str = "") -> None:
    """Names the anchor; None goes back to the best version so far.

    Raises:
      WorkError: the version does not exist.
    """
    if version is not None:
        # Fails for a version that does not exist, before a lock that would create the model's folder.
        registry.resolve(version)
    store = open_store(registry.uri)

    # Under the model's lock, so that a push that is under way compares with one anchor from beginning to end.
    with registry.locked():
        if version is None:
            store.delete(_FILE)
        else:
            values = {"version": version, "at": format_utc(time.time()), "note": note}
            store.write(_FILE, json.dumps(values, ensure_ascii=False).encode() + b"\n")
