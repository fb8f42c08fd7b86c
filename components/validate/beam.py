"""A manifest tallied by a Beam pipeline: each piece of its bytes goes to a worker, and what comes back is a tally.

It is the tally of one process, bit by bit (see `tally`). What goes through the runner is where a piece begins and ends.
"""

import functools
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from voxline.beam.settings import RunnerSettings
from voxline.components.validate.tally import ManifestTally, byte_ranges
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.bucket_cache import is_cached, localize, uri_of
from voxline.store.files import ABANDONED_SECONDS
from voxline.store.objects import open_store

RANGE_BYTES = 16_000_000
"""Of the manifest: some forty thousand utterances, half a second of work and 5 MB of answer."""


def tally_manifest(manifest: Path, settings: RunnerSettings, store: Path | str) -> ManifestTally:
    """The tally of a manifest, by whatever the settings name.

    Args:
      store: for what is unfinished; a folder that all workers share, or a bucket URI

    Raises:
      SettingsError: Beam knows no such runner.
      WorkError: the manifest is absent or not one of ours, or the pipeline failed.
    """
    if not manifest.is_file() or manifest.stat().st_size < settings.beam_from_megabytes * 1e6:
        return ManifestTally.of_piece(manifest)
    folder = open_store(store).local_path() / "tallies"
    _clear_abandoned(folder)
    folder /= secrets.token_hex(6)
    folder.mkdir(parents=True)
    try:
        return _tally_with_beam(manifest, settings, folder)
    finally:
        _remove(folder)


def _tally_with_beam(manifest: Path, settings: RunnerSettings, folder: Path) -> ManifestTally:
    from voxline.beam.run import map_with_beam

    tally, early = ManifestTally(), dict[int, dict[str, Any]]()
    work = functools.partial(_tally_range, manifest=uri_of(manifest))
    joined = 0
    for number, answer in map_with_beam("validate", work, byte_ranges(manifest, RANGE_BYTES), settings, folder):
        early[number] = answer
        while joined in early:  # in the order of the manifest, whichever comes first
            piece = early.pop(joined)
            if "failed" in piece:
                raise WorkError(piece["failed"])
            tally.join(ManifestTally.of(piece))
            joined += 1
    return tally


def _tally_range(piece: list[int], manifest: str) -> dict[str, Any]:
    """What a worker does with a piece. A line that is none is no fault of the runner's, which would try it again."""
    try:
        return ManifestTally.of_piece(localize(manifest), *piece).plain()
    except WorkError as error:
        return {"failed": str(error)}


def _remove(folder: Path) -> None:
    """Removes answers that were taken, on this machine and where workers sent them; that one stays is no fault."""
    shutil.rmtree(folder, ignore_errors=True)
    if not is_cached(folder):
        return
    try:
        bucket = open_store(uri_of(folder))
        for name in [entry.name for entry in bucket.list()]:
            bucket.delete(name)
    except WorkError as error:
        print_status(f"validate: what is not needed any more stays in the bucket: {error}")


def _clear_abandoned(folder: Path) -> None:
    """Removes what processes left that were killed."""
    for left in folder.glob("*"):
        if left.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
