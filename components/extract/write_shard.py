"""Writing one shard: recordings to features, whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from voxline.beam.settings import IN_PROCESS
from voxline.components.extract.crash_guard import crashed_clips, crashes_worker, note_clips, suspect_clips
from voxline.components.extract.features import utterance_features
from voxline.components.extract.manifest_scan import clip_of_line
from voxline.components.extract.plan import ATTEMPTS_FOLDER, ShardTask
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import read_manifest
from voxline.data.shard_writer import ShardWriter
from voxline.data.shards import SHARD_FILE, ShardInfo, shards_folder, upload_shard
from voxline.rejects import BadAudioError, Reason
from voxline.store.bucket_cache import ensure_local, localize


class FailedClip(NamedTuple):
    """A clip whose audio could not be used, and why."""

    clip: str
    reason: str
    detail: str


def write_shard(
    task: ShardTask,
    settings: ExtractSettings,
    store: str,
    unfinished: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> list[FailedClip]:
    """Makes sure that a shard lies in the pool.

    Args:
      store: holds the pool; a folder, or gs://…
      unfinished: a folder on the pool's disk for the shard until it is whole.
      advance: told how many utterances were done since the last time.

    Returns:
      The clips that failed. A shard from which some are missing bears the name of those that are in it, so that a
      name never has two contents.
    """
    pool = shards_folder(store, settings.features)
    if (pool / task.shard / SHARD_FILE).is_file():
        upload_shard(ShardInfo.read(pool / task.shard), store)  # whoever wrote it may have been killed before it did
        advance(task.utterances)
        return []
    failed: list[FailedClip] = []
    shard = ShardWriter(unfinished, settings.features.bins)
    utterances = read_manifest(localize(task.manifest))
    ensure_local(utterance.audio_filepath for utterance in utterances)
    alone = settings.runner == IN_PROCESS
    suspected = (
        crashed_clips(unfinished / ATTEMPTS_FOLDER)
        if alone
        else suspect_clips(unfinished / ATTEMPTS_FOLDER, task.shard)
    )
    with note_clips(unfinished / ATTEMPTS_FOLDER, task.shard) as begin:
        for utterance in utterances:
            clip = clip_of_line(utterance.as_line(), task.speed)
            try:
                if clip in suspected and crashes_worker(utterance, task.speed, settings):
                    whom = "the process that read it, and one" if alone else f"{suspected[clip]} workers, and a process"
                    raise BadAudioError(Reason.UNREADABLE, f"ended {whom} of its own")
                begin(clip)
                made = utterance_features(utterance, task.speed, settings)
            except BadAudioError as failure:
                failed.append(FailedClip(clip, str(failure.reason), failure.detail))
            else:
                shard.add(clip, made, task.speed)
            advance(1)
    if shard:
        upload_shard(shard.close(pool), store)
    else:
        shard.discard()
    return failed
