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

from voxline.beam.worker_paths import fetch_files, worker_path, worker_uri
from voxline.components.convert.jobs import ConversionJob, Converted, RejectedRecording, Shaping, SourceChanged
from voxline.components.convert.process_pool import WorkerCrashed, map_in_processes
from voxline.components.convert.recording import convert_recording
from voxline.components.convert.settings import ConvertSettings
from voxline.rejects import Reason
from voxline.store.files import atomic_write
from voxline.store.objects import open_store
from voxline.store.uris import is_remote

ConversionResult = Converted | RejectedRecording | SourceChanged | WorkerCrashed
_RESULT_TYPES: dict[str, type[ConversionResult]] = {
    kind.__name__: kind for kind in (Converted, RejectedRecording, SourceChanged, WorkerCrashed)
}

BATCH_RECORDINGS = 500
"""Large enough to pay for the process that each batch starts, which costs as much as dozens of recordings."""

BATCH_SECONDS = 1_800.0
"""Of audio. A recording of an hour has a batch to itself, and delays no other."""

ASSUMED_SECONDS = 10.0
"""Counted for a recording whose duration ingest could not read."""


def convert_jobs(
    jobs: Iterable[ConversionJob], settings: ConvertSettings, pool: Path, folder: Path
) -> Iterator[tuple[int, ConversionResult]]:
    """Converts each job, by Beam if there are enough; yields (index of the job, result) as results come.

    Args:
      pool: the folder of all WAVs.
      folder: for unfinished work; on a disk that all workers share, or in the bucket cache.

    Raises:
      OSError, WorkError: a WAV cannot be written, or the pipeline failed.
    """
    coming = iter(jobs)
    few: list[ConversionJob] = []
    enough = settings.beam_from_megabytes * 1e6 / 2 / settings.sample_rate
    seconds = 0.0
    while seconds < enough:
        if (job := next(coming, None)) is None:
            return map_in_processes(convert_recording, few, settings.workers, settings.decode_seconds)
        few.append(job)
        seconds += job.duration or ASSUMED_SECONDS
    return convert_with_beam(itertools.chain(few, coming), settings, pool, folder)


def convert_with_beam(
    jobs: Iterable[ConversionJob], settings: ConvertSettings, pool: Path, folder: Path
) -> Iterator[tuple[int, ConversionResult]]:
    """As `convert_jobs`, however few jobs there are."""
    from voxline.beam.run import map_with_beam

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        firsts: list[int] = []
        for first, batch in _split_batches(jobs):
            _write_batch(folder / _batch_name(len(firsts)), batch)
            firsts.append(first)
        open_store(worker_uri(folder)).upload_new(folder / _batch_name(number) for number in range(len(firsts)))
        convert = functools.partial(
            _convert_batch,
            folder=worker_uri(folder),
            pool=worker_uri(pool),
            limit_seconds=settings.decode_seconds,
        )
        for number, results in map_with_beam("convert", convert, range(len(firsts)), settings, folder):
            for at, (kind, values) in enumerate(results):
                yield firsts[number] + at, _result_from_json(kind, values)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _convert_batch(number: int, folder: str, pool: str, limit_seconds: float) -> list[tuple[str, dict[str, Any]]]:
    """Converts a batch in a worker. Its WAVs are in the pool afterwards."""
    jobs = _read_batch(*fetch_files([f"{folder}/{_batch_name(number)}"]))
    fetch_files(job.source for job in jobs)
    results: dict[int, ConversionResult] = dict(map_in_processes(convert_recording, jobs, 1, limit_seconds))
    if is_remote(pool):
        open_store(pool).upload_new(jobs[at].wav for at, result in results.items() if isinstance(result, Converted))
    else:
        os.sync()  # before anything names the WAVs; the process that waits may be on another machine
    return [(type(results[at]).__name__, dataclasses.asdict(results[at])) for at in range(len(jobs))]


def _split_batches(jobs: Iterable[ConversionJob]) -> Iterator[tuple[int, list[ConversionJob]]]:
    """(index of the first, jobs) of each batch."""
    first = 0
    seconds = 0.0
    batch: list[ConversionJob] = []
    for job in jobs:
        more = job.duration or ASSUMED_SECONDS
        if batch and (len(batch) == BATCH_RECORDINGS or seconds + more > BATCH_SECONDS):
            yield first, batch
            first, seconds, batch = first + len(batch), 0.0, []
        batch.append(job)
        seconds += more
    if batch:
        yield first, batch


def _batch_name(number: int) -> str:
    return f"batch-{number:06}.jsonl"


def _write_batch(file: Path, jobs: list[ConversionJob]) -> None:
    with atomic_write(file, "w", durable=False) as out:
        for job in jobs:
            values = dataclasses.asdict(job) | {"source": worker_uri(job.source), "wav": worker_uri(job.wav)}
            out.write(json.dumps(values, ensure_ascii=False) + "\n")


def _read_batch(file: Path) -> list[ConversionJob]:
    with open(file, encoding="utf-8") as lines:
        return [_job_from_json(json.loads(line)) for line in lines]


def _job_from_json(values: dict[str, Any]) -> ConversionJob:
    source, wav, shaping = values.pop("source"), values.pop("wav"), values.pop("shaping")
    return ConversionJob(**values, source=str(worker_path(source)), wav=worker_path(wav), shaping=Shaping(**shaping))


def _result_from_json(kind: str, values: dict[str, Any]) -> ConversionResult:
    if kind == RejectedRecording.__name__:
        values["reason"] = Reason(values["reason"])
    return _RESULT_TYPES[kind](**values)
