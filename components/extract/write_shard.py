"""Writes shards: recordings become features, and a shard appears whole or not at all.

A few shards are written in this process. Many are written by a Beam pipeline on any runner: a task goes in, its shard
appears in the pool.
"""

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from voxline.beam.settings import IN_PROCESS
from voxline.beam.worker_paths import fetch_files, worker_path, worker_uri
from voxline.components.extract.clip_features import (
    crashed_clips,
    crashes_worker,
    note_clips,
    suspect_clips,
    utterance_features,
)
from voxline.components.extract.manifest_scan import clip_of_line
from voxline.components.extract.plan import ATTEMPTS_FOLDER, ShardTask
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import localize_audio, read_manifest
from voxline.data.recordings import remove_changed_audio, report_changed
from voxline.data.shard_writer import ShardWriter
from voxline.data.shards import SHARD_FILE, ShardInfo, shards_folder, upload_shard
from voxline.progress import Progress
from voxline.rejects import BadAudioError, Reason
from voxline.store.objects import open_store
from voxline.store.uris import is_remote


class FailedClip(NamedTuple):
    """A clip whose audio could not be used, and why."""

    clip: str
    reason: str
    detail: str


def write_shards(tasks: list[ShardTask], settings: ExtractSettings, store: str, unfinished: Path) -> list[FailedClip]:
    """Writes all shards to the pool.

    Args:
      store: holds the pool of shards; a folder that all workers share, or a bucket URI
      unfinished: for what is unfinished; a folder that all workers share, or one of the bucket cache: then this process
        uploads what workers need.

    Returns:
      The clips that failed, in the order of the tasks.

    Raises:
      SettingsError: Beam has no such runner.
      WorkError: the pipeline failed: a full disk, a store that cannot be written, a worker that died.
    """
    progress = Progress("utterances", total=sum(task.utterances for task in tasks))
    if sum(task.bytes for task in tasks) >= settings.beam_from_megabytes * 1e6:
        return _write_with_beam(tasks, settings, store, unfinished, progress)
    here = settings.model_copy(update={"runner": IN_PROCESS})  # to start Beam takes four seconds
    return [failure for task in tasks for failure in write_shard(task, here, store, unfinished, progress.advance)]


def write_shard(
    task: ShardTask,
    settings: ExtractSettings,
    store: str,
    unfinished: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> list[FailedClip]:
    """Writes a shard to the pool, unless it is there.

    Args:
      store: holds the pool; a folder or bucket URI
      unfinished: a folder on the pool's disk for the shard until it is whole.
      advance: called with the number of utterances that were done since the last call.

    Returns:
      The clips that failed. The shard is then named by the clips that it holds, so a name never has two contents.
    """
    pool = shards_folder(store, settings.features)
    if finished := _find_finished(pool / task.shard, store):
        upload_shard(finished, store)  # its writer may have been killed before it did
        advance(task.utterances)
        return []

    # The task is small: its manifest is a file of the shared folder, and its recordings are downloaded here.
    failed: list[FailedClip] = []
    shard = ShardWriter(unfinished, settings.features.bins)
    utterances = read_manifest(*fetch_files([str(task.manifest)]))
    localize_audio(utterances)
    report_changed("extract", remove_changed_audio(utterances))

    # With one worker each note is a crash. With several, a note may be that of a worker which is still at it.
    attempts = unfinished / ATTEMPTS_FOLDER
    alone = settings.runner == IN_PROCESS
    suspects = crashed_clips(attempts) if alone else suspect_clips(attempts, task.shard)

    with note_clips(attempts, task.shard) as note:
        for utterance in utterances:
            clip = clip_of_line(utterance.as_line(), task.speed)
            try:
                if clip in suspects and crashes_worker(utterance, task.speed, settings):
                    died = "the process that read it" if alone else f"{suspects[clip]} workers"
                    raise BadAudioError(Reason.UNREADABLE, f"crashed {died}, and then a process of its own")

                # From here on, the death of this process counts against the clip.
                note(clip)
                features = utterance_features(utterance, task.speed, settings)
            except BadAudioError as error:
                failed.append(FailedClip(clip, str(error.reason), error.detail))
            else:
                shard.add(clip, features, task.speed)
            advance(1)

    # A shard of which every clip failed is not written.
    if shard:
        upload_shard(shard.close(pool), store)
    else:
        shard.discard()
    return failed


def _find_finished(folder: Path, store: str) -> ShardInfo | None:
    """The shard in a folder of the pool; None if there is none.

    The bucket cache may hold the index alone, of a shard that garbage collection has deleted from the bucket since.
    """
    if not (folder / SHARD_FILE).is_file():
        return None
    info = ShardInfo.read(folder)
    if is_remote(store) and not (info.path.is_file() and info.path.with_suffix(".npy").is_file()):
        shutil.rmtree(folder)
        return None
    return info


def _write_with_beam(
    tasks: list[ShardTask], settings: ExtractSettings, store: str, unfinished: Path, progress: Progress
) -> list[FailedClip]:
    from voxline.beam.run import map_with_beam  # not at the top: Beam takes seconds to import

    # Workers on other machines read the manifests of their tasks from the bucket.
    manifests: list[Path | str] = [task.manifest for task in tasks]
    if settings.runner != IN_PROCESS:
        open_store(store).upload_new(manifests)
        manifests = [worker_uri(manifest) for manifest in manifests]
    elements = [
        dataclasses.asdict(task) | {"manifest": str(manifest)} for task, manifest in zip(tasks, manifests, strict=True)
    ]

    write = functools.partial(_write_element, settings=settings.plain(), store=store, unfinished=worker_uri(unfinished))

    # Answers come in any order; the failures are listed in that of the tasks.
    failed: dict[int, list[FailedClip]] = {}
    for number, failures in map_with_beam("extract", write, elements, settings, unfinished):
        failed[number] = [FailedClip(*failure) for failure in failures]
        progress.advance(tasks[number].utterances)
    return [failure for number in sorted(failed) for failure in failed[number]]


def _write_element(element: dict[str, Any], settings: dict[str, Any], store: str, unfinished: str) -> list[FailedClip]:
    return write_shard(ShardTask(**element), ExtractSettings.of(settings), store, worker_path(unfinished))
