"""Whether a piece of work is finished: the key that names it, and the marker that was written last.

`step_cache` makes the work; this is for those who only look.
"""

from pathlib import Path
from typing import Any

from voxline.errors import WorkError
from voxline.settings import Settings
from voxline.store.bucket_cache import local_path, uri_of
from voxline.store.files import DONE, read_json
from voxline.store.hashing import hash_value
from voxline.store.localize import localize
from voxline.store.objects import open_store
from voxline.store.uris import is_remote


def step_key(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], revision: int
) -> tuple[dict[str, Any], Path]:
    """What names a piece of work, and the folder that it has by that name, without claiming it."""
    named_by = {"step": step, "revision": revision, "settings": settings.plain(), "inputs": inputs}
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
    """Whether the store holds the result of a piece of work.

    Args:
      folder: as `step_key` gave it.
    """
    if is_remote(store):
        return open_store(uri_of(folder)).stat(DONE) is not None
    return (folder / DONE).is_file()
