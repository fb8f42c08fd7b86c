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
from voxline.beam.worker_paths import fetch_files, worker_uri
from voxline.components.validate.tally import ManifestTally, byte_ranges
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.store.files import ABANDONED_SECONDS
from voxline.store.objects import ObjectStore, open_store

RANGE_BYTES = 16_000_000
"""Of the manifest: some 40,000 utterances, half a second of work and a tally of 5 MB."""


def tally_manifest(
    manifest: Path,
    settings: RunnerSettings,
    store: Path | str,
    range_bytes: int = RANGE_BYTES,
    *,
    identities: bool = True,
    revision: int = 0,
) -> ManifestTally:
    """Tallies a manifest: in this process, or with Beam if it is larger than `beam_from_megabytes`.

    In this process, the tallies of the pieces of the last manifest are used again, unless identities are wanted.

    Args:
      store: for temporary files, and the tallies of pieces; a folder that all workers share, or a bucket URI.
      range_bytes: of the manifest, for a worker at a time.
      identities: see `ManifestTally.read`.
      revision: see `ManifestTally.read_kept`.

    Raises:
      SettingsError: Beam does not have the runner.
      WorkError: there is no manifest, a line of it is damaged, or the pipeline failed.
    """
    if not manifest.is_file() or manifest.stat().st_size < settings.beam_from_megabytes * 1e6:
        if identities:
            return ManifestTally.read(manifest)
        return ManifestTally.read_kept(manifest, store, revision)

    # A folder of its own for each run: nothing here is keyed, and two runs may tally the same manifest.
    tallies = open_store(store) / "tallies"
    name = secrets.token_hex(6)
    _clear_abandoned(tallies.local_path())
    folder = tallies.local_path(name)
    folder.mkdir(parents=True)

    try:
        return _tally_with_beam(manifest, settings, folder, range_bytes, identities)
    finally:
        _remove(tallies, name)


def _tally_with_beam(
    manifest: Path, settings: RunnerSettings, folder: Path, range_bytes: int, identities: bool
) -> ManifestTally:
    from voxline.beam.run import map_with_beam

    # Parts come in any order, and must be appended in that of the manifest. Those that are early wait.
    tally = ManifestTally()
    waiting = dict[int, dict[str, Any]]()
    work = functools.partial(_tally_range, manifest=worker_uri(manifest), identities=identities)

    appended = 0
    for number, answer in map_with_beam("validate", work, byte_ranges(manifest, range_bytes), settings, folder):
        waiting[number] = answer
        while appended in waiting:
            part = waiting.pop(appended)
            if "failed" in part:
                raise WorkError(part["failed"])
            tally.extend(ManifestTally.from_json(part))
            appended += 1
    return tally


def _tally_range(byte_range: list[int], manifest: str, identities: bool) -> dict[str, Any]:
    """The work of one worker. A damaged line is returned, not raised: the runner would only try it again."""
    try:
        (file,) = fetch_files([manifest])
        return ManifestTally.read(file, *byte_range, identities=identities).to_json()
    except WorkError as error:
        return {"failed": str(error)}


def _remove(tallies: ObjectStore, name: str) -> None:
    """Deletes temporary files, on this machine and in the bucket; a failure is only reported."""
    shutil.rmtree(tallies.local_path(name), ignore_errors=True)
    try:
        tallies.delete_folder(name)
    except WorkError as error:
        print_status(f"validate: temporary files stay in the bucket: {error}")


def _clear_abandoned(folder: Path) -> None:
    """Deletes temporary files of processes that were killed."""
    for abandoned in folder.glob("*"):
        if abandoned.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            shutil.rmtree(abandoned, ignore_errors=True)
