"""Tallies a manifest with Beam: each worker tallies a byte range, and the tallies are appended in order.

The result is identical to the tally of one process. Only the byte ranges and the tallies pass through the runner.
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
from voxline.store.bucket_cache import is_cached, uri_of
from voxline.store.files import ABANDONED_SECONDS
from voxline.store.localize import localize
from voxline.store.objects import open_store

RANGE_BYTES = 16_000_000
"""Of the manifest: some 40,000 utterances, half a second of work and a tally of 5 MB."""


def tally_manifest(manifest: Path, settings: RunnerSettings, store: Path | str) -> ManifestTally:
    """Tallies a manifest: in this process, or with Beam if it is larger than `beam_from_megabytes`.

    Args:
      store: for temporary files; a folder that all workers share, or a bucket URI.

    Raises:
      SettingsError: Beam does not have the runner.
      WorkError: there is no manifest, a line of it is damaged, or the pipeline failed.
    """
    if not manifest.is_file() or manifest.stat().st_size < settings.beam_from_megabytes * 1e6:
        return ManifestTally.read(manifest)
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

    tally, waiting = ManifestTally(), dict[int, dict[str, Any]]()
    work = functools.partial(_tally_range, manifest=uri_of(manifest))
    appended = 0
    for number, answer in map_with_beam("validate", work, byte_ranges(manifest, RANGE_BYTES), settings, folder):
        waiting[number] = answer
        while appended in waiting:  # in manifest order
            part = waiting.pop(appended)
            if "failed" in part:
                raise WorkError(part["failed"])
            tally.extend(ManifestTally.from_json(part))
            appended += 1
    return tally


def _tally_range(byte_range: list[int], manifest: str) -> dict[str, Any]:
    """The work of one worker. A damaged line is returned, not raised: the runner would only try it again."""
    try:
        return ManifestTally.read(localize(manifest), *byte_range).to_json()
    except WorkError as error:
        return {"failed": str(error)}


def _remove(folder: Path) -> None:
    """Deletes temporary files, on this machine and in the bucket; a failure is only reported."""
    shutil.rmtree(folder, ignore_errors=True)
    if not is_cached(folder):
        return
    try:
        bucket = open_store(uri_of(folder))
        for name in [entry.name for entry in bucket.list()]:
            bucket.delete(name)
    except WorkError as error:
        print_status(f"validate: temporary files stay in the bucket: {error}")


def _clear_abandoned(folder: Path) -> None:
    """Deletes temporary files of processes that were killed."""
    for abandoned in folder.glob("*"):
        if abandoned.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            shutil.rmtree(abandoned, ignore_errors=True)
