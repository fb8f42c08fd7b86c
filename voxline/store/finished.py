"""Whether a piece of work is finished and unchanged: the key that names it, and the marker that was written last.

The marker, `done.json`, holds the hash of every file of the work (`hashes`) and of itself (`seal`). `step_cache`
compares them before it reuses work, and `check_input` before a step reads what another one wrote: a byte that has
changed since is never used. Markers of earlier releases have no hashes; work with such a marker is compared by its
sizes alone.

`step_cache` makes the work; this is for those who only look.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.bucket_cache import local_path, uri_of
from voxline.store.files import DONE, check_seal, read_json
from voxline.store.hashing import hash_file, hash_unchanged_file, hash_value
from voxline.store.localize import localize
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

HASHES = "hashes"
"""The key of a marker that has the hash of each file."""
UNFINISHED = "unfinished"
"""A folder in which a step prepares its output; no marker vouches for it."""
MAX_NAMED = 3
"""Changed files that a message names."""


def step_key(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], revision: int
) -> tuple[dict[str, Any], Path]:
    """Returns the key of a piece of work, and the folder of that key, without claiming it."""
    # Names of folders never enter the key, only what they hold.
    named_by = {"step": step, "revision": revision, "settings": settings.key_values(), "inputs": inputs}
    return named_by, local_path(store) / step / hash_value(named_by)


def read_done(folder: Path) -> dict[str, Any]:
    """The marker of finished work.

    Raises:
      WorkError: the folder holds no finished work.
    """
    if not (Path(folder) / DONE).is_file():
        raise WorkError(f"{folder}: no {DONE}, so this is not the output of a finished step; run the step first")
    try:
        done: dict[str, Any] = read_json(Path(folder) / DONE)
        if not all(isinstance(done[key], dict) for key in ("counts", "metrics", "outputs")):
            raise ValueError("counts, metrics and outputs are mappings")
        check_seal(done)
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(f"{Path(folder) / DONE}: damaged ({error}); run the step that made it again") from None
    return done


def find_finished(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], *, revision: int = 1
) -> Path | None:
    """The folder of finished work on this machine; None where the store does not hold it."""
    _, folder = step_key(store, step, settings, inputs, revision)
    return localize(uri_of(folder)) if is_finished(store, folder) else None


def is_finished(store: Path | str, folder: Path) -> bool:
    """Returns whether the store holds the result of a piece of work.

    Args:
      folder: as `step_key` gave it.
    """
    if is_remote(store):
        return open_store(uri_of(folder)).stat(DONE) is not None
    return (folder / DONE).is_file()


def hash_outputs(folder: Path, without: Iterable[str] = (), known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The hash of every file of a step's output, by its path relative to the folder.

    Args:
      without: names in the folder that nothing reads: logs, and what was only needed to make the rest.
      known: hashes of files that the step hashed when it had written them.
    """
    excluded = {*without, UNFINISHED, DONE}
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        file.as_posix(): (known or {}).get(file.as_posix()) or hash_file(folder / file)
        for file in files
        if file.parts[0] not in excluded and not any(part.startswith(".") for part in file.parts)
    }


def added_files(folder: Path, marker: dict[str, Any], below: str = "") -> list[str]:
    """The files in a step's hashed folders that the step did not write: a reader that lists a folder would use them.

    Args:
      folder: holds the files of the marker.
      below: as in `changed_files`.
    """
    # Only folders with hashed files: a folder that a step left unverified may hold anything.
    hashes: dict[str, str] = marker.get(HASHES, {})
    roots = {Path(name).parts[0] for name in hashes if "/" in name}
    if below:
        roots &= {Path(below).parts[0]}
    present = (path.relative_to(folder) for root in sorted(roots) for path in (folder / root).rglob("*"))
    return sorted(
        file.as_posix()
        for file in present
        if file.as_posix() not in hashes
        and (not below or file.is_relative_to(below))
        and not any(part.startswith(".") for part in file.parts)
        and not (folder / file).is_dir()
    )


def changed_files(folder: Path, marker: dict[str, Any], below: str = "") -> list[str]:
    """The files of a step's output that are not as they were written, each with what is wrong with it.

    Args:
      folder: holds the files of the marker.
      below: only these are compared: a file, or all in a folder, relative to `folder`. Empty: all.
    """
    changed = []
    for name, expected in marker.get(HASHES, {}).items():
        if below and name != below and not name.startswith(f"{below}/"):
            continue
        file = folder / name
        if not file.is_file():
            changed.append(f"{name} (gone)")
        elif (present := hash_unchanged_file(file)) != expected:
            changed.append(f"{name} (its hash is {present[:12]}, and was {expected[:12]})")
    return changed + [f"{name} (added)" for name in added_files(folder, marker, below)]


def describe_changes(changed: list[str]) -> str:
    """Names the first changed files, and says how many more there are."""
    more = f" and {len(changed) - MAX_NAMED:,} more" if len(changed) > MAX_NAMED else ""
    return f"{', '.join(changed[:MAX_NAMED])}{more}"


def check_input(path: Path) -> None:
    """Compares what a step is about to read with the hashes that the step before it wrote.

    Args:
      path: on this machine: a step's output folder, or something in it. Anything else is not compared.

    Raises:
      WorkError: a file has changed since it was written.
    """
    path = path.absolute()
    if (located := _find_marker(path)) is None:
        return
    folder, marker = located
    below = "" if path == folder else path.relative_to(folder).as_posix()
    if changed := changed_files(folder, marker, below):
        step = marker.get("step", "the step that wrote it")
        if is_remote(uri_of(folder)):  # so that the next run makes it again; on a disk, that run sees it for itself
            with contextlib.suppress(WorkError):
                open_store(uri_of(folder.parent)).delete(DONE)
        raise WorkError(
            f"{uri_of(folder)}: {describe_changes(changed)} has changed since {step} wrote it, so it is not used; "
            f"run the same command again, which makes it again (or run {step} again)"
        )


def _find_marker(path: Path) -> tuple[Path, dict[str, Any]] | None:
    """The folder whose files a marker vouches for, and that marker; None if no step wrote the path."""
    # The path may be an attempt's output, at most three folders below the marker.
    path = path.absolute()
    for folder in (path, *path.parents[:3]):
        if is_remote(uri_of(folder)) and folder.parent != folder:
            with contextlib.suppress(WorkError):
                open_store(uri_of(folder)).pull([DONE])
        if not (folder / DONE).is_file():
            continue
        marker = read_done(folder)

        # In a bucket the files are one folder deeper, in that of the attempt.
        root = folder / marker.get("attempt", "")
        return (root, marker) if path == folder or path.is_relative_to(root) else None
    return None
