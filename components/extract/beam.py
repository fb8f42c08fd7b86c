"""Shards written by a Beam pipeline, on any runner: a task goes in, its shard appears in the pool."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxline.beam.run import map_with_beam
from voxline.beam.settings import IN_PROCESS
from voxline.components.extract.plan import ShardTask
from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.write_shard import FailedClip, write_shard
from voxline.progress import Progress
from voxline.store.bucket_cache import local_path, upload_new, uri_of


def write_shards(tasks: list[ShardTask], settings: ExtractSettings, store: str, folder: Path) -> list[FailedClip]:
    """Runs the pipeline to its end: every shard lies in the pool.

    Args:
      tasks: a shard each.
      store: holds the pool of shards; a folder that all workers share, or gs://…
      folder: for what is unfinished; a disk that all workers share, or the mirror of a bucket: then each finds in its
        own what this process sends.

    Returns:
      The clips that failed, in the order of the tasks.

    Raises:
      SettingsError: Beam knows no such runner.
      WorkError: the pipeline failed: a full disk, a store that cannot be written, a worker that died.
    """
    if settings.runner != IN_PROCESS:
        upload_new([task.manifest for task in tasks], store)
    place: Callable[[Path | str], str] = str if settings.runner == IN_PROCESS else uri_of
    elements = [dataclasses.asdict(task) | {"manifest": place(task.manifest)} for task in tasks]
    write = functools.partial(_write, settings=settings.plain(), store=store, folder=uri_of(folder))
    progress = Progress("utterances", total=sum(task.utterances for task in tasks))
    failed: dict[int, list[FailedClip]] = {}
    for number, failures in map_with_beam("extract", write, elements, settings, folder):
        failed[number] = [FailedClip(*failure) for failure in failures]
        progress.advance(tasks[number].utterances)
    return [failure for number in sorted(failed) for failure in failed[number]]


def _write(element: dict[str, Any], settings: dict[str, Any], store: str, folder: str) -> list[FailedClip]:
    return write_shard(ShardTask(**element), ExtractSettings.of(settings), store, local_path(folder))
