"""Converts recordings by a Beam pipeline: batches of jobs go to workers, on this machine or on many.

A worker hands each batch to a process of its own. A recording that crashes or hangs costs that process and becomes the
same reject as on one machine; the worker survives, and the runner repeats nothing. Batches and results are files in a
folder that all workers share. Only the number of a batch goes through the runner.
"""

import dataclasses
import functools
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.audio.containers import RawFormat
from voxline.beam.worker_paths import fetch_files, worker_path, worker_uri
from voxline.components.convert.jobs import (
    ConversionJob,
    ConversionResult,
    Converted,
    JobGroup,
    Shaping,
    convert_in_processes,
)
from voxline.components.convert.settings import ConvertSettings
from voxline.store.files import atomic_write
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

BATCH_RECORDINGS = 500
"""Large enough to pay for the process that each batch starts, which costs as much as dozens of recordings."""

BATCH_SECONDS = 1_800.0
"""Of audio. A recording of an hour has a batch to itself, and delays no other."""

ASSUMED_SECONDS = 10.0
"""Counted for a recording whose duration ingest could not read."""


def convert_groups(
    groups: Iterable[JobGroup], settings: ConvertSettings, pool: Path, folder: Path
) -> Iterator[tuple[int, list[ConversionResult]]]:
    """Converts groups of jobs, by Beam if there are enough; as `convert_in_processes`.

    Args:
      pool: the folder of all WAVs.
      folder: for unfinished work; on a disk that all workers share, or in the bucket cache.

    Raises:
      OSError, WorkError: a WAV cannot be written, or the pipeline failed.
    """
    # Seconds of audio in so many megabytes of WAV: 2 bytes a sample. Below that, Beam does not pay for its start.
    coming = iter(groups)
    few: list[JobGroup] = []
    enough = settings.beam_from_megabytes * 1e6 / 2 / settings.sample_rate
    seconds = 0.0
    while seconds < enough:
        if (group := next(coming, None)) is None:
            limits = settings.decode_seconds, settings.worker_memory_megabytes
            return convert_in_processes(few, settings.workers, *limits)

        few.append(group)
        seconds += _seconds(group)

    return convert_with_beam(itertools.chain(few, coming), settings, pool, folder)


def convert_with_beam(
    groups: Iterable[JobGroup],
    settings: ConvertSettings,
    pool: Path,
    folder: Path,
    batch_recordings: int = BATCH_RECORDINGS,
) -> Iterator[tuple[int, list[ConversionResult]]]:
    """Converts like `convert_groups`, however few jobs there are; with at most so many recordings in a batch."""
    from voxline.beam.run import map_with_beam

    # Batches of a killed run would be read in place of this run's.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        # By the number of a batch, the index of its first group among all groups.
        firsts: list[int] = []
        for first, batch in _split_batches(groups, batch_recordings):
            _write_batch(folder / _batch_name(len(firsts)), batch)
            firsts.append(first)

        # All batches are there before the first worker starts. Workers write the WAVs straight into the pool.
        open_store(worker_uri(folder)).upload_new(folder / _batch_name(number) for number in range(len(firsts)))
        convert = functools.partial(
            _convert_batch,
            folder=worker_uri(folder),
            pool=worker_uri(pool),
            limits=(settings.decode_seconds, settings.worker_memory_megabytes),
        )

        for number, results in map_with_beam("convert", convert, range(len(firsts)), settings, folder):
            for at, group in enumerate(results):
                yield firsts[number] + at, msgspec.convert(group, list[ConversionResult])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _convert_batch(number: int, folder: str, pool: str, limits: tuple[float, float]) -> list[list[dict[str, Any]]]:
    """Converts a batch in a worker. Its WAVs are in the pool afterwards."""
    groups = _read_batch(*fetch_files([f"{folder}/{_batch_name(number)}"]))
    fetch_files({job.source for group in groups for job in group})

    # One process: the runner decides how many workers a machine has. Results may come in any order.
    results = dict(convert_in_processes(groups, 1, *limits))

    if is_remote(pool):
        pairs = (pair for at, group in enumerate(groups) for pair in zip(group, results[at], strict=True))
        open_store(pool).upload_new(job.wav for job, result in pairs if isinstance(result, Converted))
    else:
        os.sync()  # before anything names the WAVs; the process that waits may be on another machine
    return [msgspec.to_builtins(results[at]) for at in range(len(groups))]


def _split_batches(
    groups: Iterable[JobGroup], batch_recordings: int = BATCH_RECORDINGS
) -> Iterator[tuple[int, list[JobGroup]]]:
    """(index of the first, groups) of each batch."""
    first = 0
    jobs = 0
    seconds = 0.0
    batch: list[JobGroup] = []
    for group in groups:
        # A group is never split, since its recording is decoded once for all of its segments.
        more = _seconds(group)
        if batch and (jobs + len(group) > batch_recordings or seconds + more > BATCH_SECONDS):
            yield first, batch
            first = first + len(batch)
            jobs = 0
            seconds = 0.0
            batch = []

        batch.append(group)
        jobs = jobs + len(group)
        seconds = seconds + more

    if batch:
        yield first, batch


def _seconds(group: JobGroup) -> float:
    return sum(job.duration or ASSUMED_SECONDS for job in group)


def _batch_name(number: int) -> str:
    return f"batch-{number:06}.jsonl"


def _write_batch(file: Path, groups: list[JobGroup]) -> None:
    with atomic_write(file, "w", durable=False) as out:
        for group in groups:
            out.write(json.dumps([_job_to_json(job) for job in group], ensure_ascii=False) + "\n")


def _read_batch(file: Path) -> list[JobGroup]:
    with open(file, encoding="utf-8") as lines:
        return [tuple(_job_from_json(values) for values in json.loads(line)) for line in lines]


def _job_to_json(job: ConversionJob) -> dict[str, Any]:
    # Paths below the bucket cache go as URIs, since each machine has a cache of its own.
    return dataclasses.asdict(job) | {"source": worker_uri(job.source), "wav": worker_uri(job.wav)}


def _job_from_json(values: dict[str, Any]) -> ConversionJob:
    source = str(worker_path(values["source"]))
    wav = worker_path(values["wav"])
    raw = RawFormat(**values["raw"]) if values["raw"] else None
    return ConversionJob(
        **(values | {"source": source, "wav": wav, "shaping": Shaping(**values["shaping"]), "raw": raw})
    )
