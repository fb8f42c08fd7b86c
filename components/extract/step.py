"""Extract: a manifest of wavs to a dataset of features that training reads. Only what is new is extracted.

Features are looked up by what they are made of, in a pool that all datasets of a store share; what is not there yet
goes to new shards. Everything else of a dataset (texts, speakers, splits, the statistics) comes without any audio.
"""

import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.beam.settings import IN_PROCESS
from voxline.components.extract.settings import ExtractSettings
from voxline.data.dataset import DATASET_FILE, Dataset
from voxline.data.fingerprints import manifest_fingerprint
from voxline.data.manifest import REJECTS_FILE, check_reject_share, manifest_path, write_rejects
from voxline.data.rows import ROWS_FILE
from voxline.data.shards import lock_shards, shards_folder
from voxline.errors import SettingsError, WorkError
from voxline.progress import Progress, print_status
from voxline.rejects import Reason, Reject
from voxline.store.bucket_cache import localize
from voxline.store.step_cache import INCOMPLETE, StepOutput, cached_step

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.components.extract.manifest_scan import ScannedManifest
    from voxline.components.extract.plan import ShardTask
    from voxline.components.extract.shard_index import PoolIndex
    from voxline.components.extract.write_shard import FailedClip
    from voxline.data.rows import RecordLocations


REVISION = 2

_WAV_FAULTS = (Reason.MISSING_FILE, Reason.TRUNCATED, Reason.EMPTY_AUDIO)
"""Reasons that are no recording's: convert wrote it whole, under this name, and does so again."""

PROBED_RECORDINGS = 8
"""Recordings whose header is looked at before any work."""


def run(manifest: Path | str, store: Path | str, settings: ExtractSettings) -> StepOutput:
    """Makes a dataset of a manifest.

    Args:
      manifest: the folder of convert's output, or a manifest file.
      store: a folder, or gs://…; the dataset goes to `<store>/extract/<key>/`, with `rejects.jsonl` beside it, shards
        to `<store>/shards/`.

    Raises:
      SettingsError: the recordings have another sample rate than `features.sample_rate`.
      WorkError: the manifest is absent or was not converted, or too many recordings failed.
    """
    file = manifest_path(localize(manifest))
    as_named = _state(file)
    named = manifest_fingerprint(file, store)
    inputs = {"utterances": named}
    with cached_step(store, "extract", settings.naming(), inputs, revision=REVISION, check=_check) as work:
        if work.reused:
            # It is not forgotten yet: its shards are wanted for as long again.
            with contextlib.suppress(OSError):  # a store that may only be read
                os.utime(work.folder / DATASET_FILE)
            if work.remote:
                work.remote.note_use()
        else:
            with lock_shards(shards_folder(store, settings.features)):
                _extract(file, named, as_named, str(store), settings, work)
    return work


def _state(manifest: Path) -> tuple[int, ...]:
    """By which a manifest that somebody is still writing is known, though it was named already."""
    found = manifest.stat() if manifest.is_file() else None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else ()


def _check_as_named(manifest: Path, as_named: tuple[int, ...]) -> None:
    if _state(manifest) != as_named:
        raise WorkError(f"{manifest}: changed while it was read; run this again when it is written")


def _check(folder: Path) -> None:
    Dataset.read(folder, shards=False)


def _extract(
    manifest: Path, named: str, as_named: tuple[int, ...], store: str, settings: ExtractSettings, work: StepOutput
) -> None:
    from voxline.components.extract.line_cache import read_cached_rows, write_cached_rows
    from voxline.components.extract.manifest_scan import scan_manifest
    from voxline.components.extract.shard_index import DamagedShardError, PoolIndex

    unfinished = _unfinished(work.folder)
    try:
        intake = scan_manifest(manifest, settings, unfinished, read_cached_rows(store, settings))
    except (WorkError, ValueError):
        _check_as_named(manifest, as_named)  # which is why, if it is no longer that
        raise
    pool = PoolIndex(store, settings.features)
    extracted = 0
    while True:
        found, failed, written = _found(intake, as_named, pool, settings, store, unfinished)
        extracted += written
        there = found[:, settings.speeds.index(1.0), 0] >= 0
        rejects = intake.rejects + _rejects(intake, there, failed, settings)
        write_rejects(work.folder / REJECTS_FILE, rejects)
        check_reject_share(len(rejects), intake.total, settings.max_reject_share, "extract", work.folder / REJECTS_FILE)
        try:
            dataset = _dataset(intake, found, pool, named, settings, work)
            break
        except DamagedShardError as damage:
            pool.put_aside(damage)
    if lost := int(((intake.clips != b"") & (found[..., 0] < 0))[there].any(axis=1).sum()):
        print_status(f"extract: no copies at other speeds of {lost:,} utterances, their files came or went meanwhile")
    if unread := lost + sum(reject.reason in _WAV_FAULTS for reject in rejects):
        work.counts[INCOMPLETE] = unread
    if work.remote is None:
        write_cached_rows(work.folder, settings, intake.remembered(there))
    shutil.rmtree(unfinished)
    work.counts.update(
        utterances=sum(dataset.counts.values()),
        rejects=len(rejects),
        **dataset.counts,
        extracted=extracted,
        shards=len(dataset.shards),
        examples=int((found[there][..., 0] >= 0).sum()),
    )
    work.metrics.update({f"{split}_hours": round(seconds / 3600, 4) for split, seconds in dataset.seconds.items()})
    work.outputs.update(dataset=DATASET_FILE, rows=ROWS_FILE, rejects=REJECTS_FILE)
    print_status(
        f"extract: {work.counts['utterances']:,} utterances in {len(dataset.shards):,} shards, "
        f"{work.counts['extracted']:,} clips new, {len(rejects):,} rejects"
    )


def _unfinished(folder: Path) -> Path:
    """A folder for what is not finished, in which of an earlier run only that is left which tells what it died of."""
    from voxline.components.extract.plan import ATTEMPTS_FOLDER

    unfinished = folder / "unfinished"
    unfinished.mkdir(exist_ok=True)
    for path in unfinished.iterdir():
        if path.name != ATTEMPTS_FOLDER:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return unfinished


def _found(
    intake: "ScannedManifest",
    as_named: tuple[int, ...],
    pool: "PoolIndex",
    settings: ExtractSettings,
    store: str,
    unfinished: Path,
) -> "tuple[RecordLocations, dict[str, FailedClip], int]":
    """Where all clips lie, once those that lay nowhere are written: with those that failed, and how many are new."""
    from voxline.components.extract.plan import ATTEMPTS_FOLDER, plan_shards

    found = pool.find(intake.clips)
    missing = (intake.clips != b"") & (found[..., 0] < 0)
    tasks = plan_shards(intake, missing, settings, unfinished)
    _check_as_named(intake.manifest, as_named)  # after which it is not read any more
    if not tasks:
        return found, {}, 0
    _check_rate(intake, missing, settings.features.sample_rate, unfinished / ATTEMPTS_FOLDER)
    records = sum(task.utterances for task in tasks)
    print_status(f"extract: {records:,} new clips of {len(intake.ids):,} utterances, into {len(tasks):,} shards")
    failed = {failure.clip: failure for failure in _write(tasks, settings, store, unfinished)}
    pool.refresh()
    return pool.find(intake.clips), failed, records - len(failed)


def _write(tasks: "list[ShardTask]", settings: ExtractSettings, store: str, unfinished: Path) -> "list[FailedClip]":
    """Writes the new shards: a few right here, since to import and start Beam takes four seconds."""
    if sum(task.bytes for task in tasks) >= settings.beam_from_megabytes * 1e6:
        from voxline.components.extract.beam import write_shards

        return write_shards(tasks, settings, store, unfinished)
    from voxline.components.extract.write_shard import write_shard

    progress = Progress("utterances", total=sum(task.utterances for task in tasks))
    here = settings.model_copy(update={"runner": IN_PROCESS})
    return [failure for task in tasks for failure in write_shard(task, here, store, unfinished, progress.advance)]


def _rejects(
    intake: "ScannedManifest",
    there: "npt.NDArray[np.bool_]",
    failed: "dict[str, FailedClip]",
    settings: ExtractSettings,
) -> list[Reject]:
    """A reject for each utterance whose clip failed, also where several share one."""
    rejects = []
    for number in [number for number, is_there in enumerate(there.tolist()) if not is_there]:
        clip = intake.clip(number, settings.speeds.index(1.0))
        if clip not in failed:
            raise WorkError(f"extract: {intake.ids[number]} is in no shard, though its shard was written; run it again")
        rejects.append(Reject(intake.ids[number], Reason(failed[clip].reason), failed[clip].detail))
    return rejects


def _dataset(
    intake: "ScannedManifest",
    found: "RecordLocations",
    pool: "PoolIndex",
    named: str,
    settings: ExtractSettings,
    work: StepOutput,
) -> Dataset:
    import numpy as np

    from voxline.components.extract.normalization import compute_normalization
    from voxline.components.extract.plan import split_rank
    from voxline.data.rows import write_record_locations
    from voxline.store.hashing import hash_file
    from voxline.text.alphabet import Alphabet

    one = settings.speeds.index(1.0)
    there = found[:, one, 0] >= 0
    splits = np.array(intake.splits)[there]
    mean, deviation = compute_normalization(pool, found[there][splits == "train", one], settings.features.bins)
    counts = Counter(sorted(splits.tolist(), key=split_rank))
    if not counts["train"]:
        print_status("extract: no utterance of the split train, so no statistics: features will not be normalised")
    shards, places = pool.listed(found[there], work.folder)
    intake.write_rows(work.folder / ROWS_FILE, there)
    dataset = Dataset(
        key=work.key,
        fingerprint=named,
        features=settings.features,
        alphabet=Alphabet.named(settings.alphabet),
        frontend=settings.frontend.plain(),
        mean=mean,
        deviation=deviation,
        counts=dict(counts),
        seconds={split: round(float(intake.seconds[there][splits == split].sum()), 3) for split in counts},
        speeds=settings.speeds,
        shards=shards,
        rows_hash=hash_file(work.folder / ROWS_FILE),
        places=write_record_locations(work.folder, places),
        folder=work.folder,
    )
    dataset.write(work.folder)
    return dataset


def _check_rate(intake: "ScannedManifest", missing: "npt.NDArray[np.bool_]", expected: int, attempts: Path) -> None:
    """Refuses a corpus of another rate at once, and not as thousands of rejects."""
    from voxline.audio.decoding import read_header
    from voxline.components.extract.crash_guard import crashed_clips, note_clips
    from voxline.components.extract.manifest_scan import clip_of_line
    from voxline.rejects import BadAudioError

    rates = set()
    new = [number for number, of_one in enumerate(missing.tolist()) if any(of_one)]
    died = crashed_clips(attempts)
    with note_clips(attempts, "rates") as begin:
        for utterance in intake.utterances(new[:PROBED_RECORDINGS]):
            if (clip := clip_of_line(utterance.as_line(), 1.0)) in died:
                continue  # is tried in a process of its own
            begin(clip)
            with contextlib.suppress(BadAudioError):  # becomes a reject in its shard
                rates.add(read_header(utterance.audio_filepath).sample_rate)
    if rates and expected not in rates:
        raise SettingsError(
            f"extract: 'features.sample_rate' is {expected} Hz and the recordings have {rates.pop()} Hz; "
            "give it the value of convert's sample_rate"
        )
