"""Recordings converted by a Beam pipeline: batches of jobs go to workers, on this machine or on many.

A worker hands each batch to a process of its own, as one machine does: a recording that kills or never ends costs that
process, and ends as the same reject; the worker lives, and the runner has nothing to repeat. Batches and what became of
them are files in a folder that all workers share; what goes through the runner is a number.
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

from voxline.components.convert.jobs import Converted, Job, Refused, Shaping, Stale
from voxline.components.convert.process_pool import Lost, in_processes
from voxline.components.convert.recording import convert_recording
from voxline.components.convert.settings import ConvertSettings
from voxline.rejects import Reason
from voxline.store.bucket_cache import address_of, bring, folder_of, local, send
from voxline.store.files import whole_file
from voxline.store.objects import is_remote

Result = Converted | Refused | Stale | Lost
_KINDS: dict[str, type[Result]] = {kind.__name__: kind for kind in (Converted, Refused, Stale, Lost)}

BATCH_RECORDINGS = 500
"""Each batch starts a process, which costs as much as dozens of recordings."""

BATCH_SECONDS = 1_800.0
"""Of audio; a recording of an hour has a batch to itself, and holds up no other."""

UNKNOWN_SECONDS = 10.0
"""What a recording counts for that ingest could not measure."""


def converted_jobs(
    jobs: Iterable[Job], settings: ConvertSettings, pool: Path, folder: Path
) -> Iterator[tuple[int, Result]]:
    """Converts each job, by Beam where there are enough; yields (index of the job, result) as results come.

    Args:
      pool: the folder of all WAVs, and
      folder: one for what is unfinished; on a disk that all workers share, or the mirror of a bucket.

    Raises:
      OSError, WorkError: a WAV cannot be written, or the pipeline failed.
    """
    coming = iter(jobs)
    few: list[Job] = []
    enough = settings.beam_from_megabytes * 1e6 / 2 / settings.sample_rate
    seconds = 0.0
    while seconds < enough:
        if (job := next(coming, None)) is None:
            return in_processes(convert_recording, few, settings.workers, settings.decode_seconds)
        few.append(job)
        seconds += job.duration or UNKNOWN_SECONDS
    return by_beam(itertools.chain(few, coming), settings, pool, folder)


def by_beam(jobs: Iterable[Job], settings: ConvertSettings, pool: Path, folder: Path) -> Iterator[tuple[int, Result]]:
    """As `converted_jobs`, whatever there is to do."""
    from voxline.beam.run import answers

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        firsts: list[int] = []
        for first, batch in _batches(jobs):
            _write_batch(folder / _name(len(firsts)), batch)
            firsts.append(first)
        send([folder / _name(number) for number in range(len(firsts))], address_of(folder))
        convert = functools.partial(
            _convert, folder=address_of(folder), pool=address_of(pool), limit_seconds=settings.decode_seconds
        )
        for number, results in answers("convert", convert, range(len(firsts)), settings, folder):
            for at, (kind, values) in enumerate(results):
                yield firsts[number] + at, _result(kind, values)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _convert(number: int, folder: str, pool: str, limit_seconds: float) -> list[tuple[str, dict[str, Any]]]:
    """What a worker does with a batch: each WAV lies in the pool when it ends."""
    jobs = _read_batch(local(f"{folder}/{_name(number)}"))
    bring(job.source for job in jobs)
    results: dict[int, Result] = dict(in_processes(convert_recording, jobs, 1, limit_seconds))
    if is_remote(pool):
        send([jobs[at].wav for at, result in results.items() if isinstance(result, Converted)], pool)
    else:
        os.sync()  # before anything says that they are there; the process that waits may be on another machine
    return [(type(results[at]).__name__, dataclasses.asdict(results[at])) for at in range(len(jobs))]


def _batches(jobs: Iterable[Job]) -> Iterator[tuple[int, list[Job]]]:
    """(index of the first, jobs) of each batch."""
    first = 0
    seconds = 0.0
    batch: list[Job] = []
    for job in jobs:
        more = job.duration or UNKNOWN_SECONDS
        if batch and (len(batch) == BATCH_RECORDINGS or seconds + more > BATCH_SECONDS):
            yield first, batch
            first, seconds, batch = first + len(batch), 0.0, []
        batch.append(job)
        seconds += more
    if batch:
        yield first, batch


def _name(number: int) -> str:
    return f"batch-{number:06}.jsonl"


def _write_batch(file: Path, jobs: list[Job]) -> None:
    with whole_file(file, "w", durable=False) as out:
        for job in jobs:
            values = dataclasses.asdict(job) | {"source": address_of(job.source), "wav": address_of(job.wav)}
            out.write(json.dumps(values, ensure_ascii=False) + "\n")


def _read_batch(file: Path) -> list[Job]:
    with open(file, encoding="utf-8") as lines:
        return [_job(json.loads(line)) for line in lines]


def _job(values: dict[str, Any]) -> Job:
    source, wav, shaping = values.pop("source"), values.pop("wav"), values.pop("shaping")
    return Job(**values, source=str(folder_of(source)), wav=folder_of(wav), shaping=Shaping(**shaping))


def _result(kind: str, values: dict[str, Any]) -> Result:
    if kind == Refused.__name__:
        values["reason"] = Reason(values["reason"])
    return _KINDS[kind](**values)
