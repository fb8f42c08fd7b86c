"""The Beam pipeline: shards written where the features are made.

Features never travel: moved through a GroupByKey into WriteToTFRecord they cost three quarters again. A task goes
in, its shard appears in the pool with sums beside it, and what flows on are the clips that failed.
"""
# Beam calls itself typed, and its transforms are not:
# mypy: disable-error-code="no-untyped-call"

import contextlib
import dataclasses
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from components.extract.plan import Task
from components.extract.settings import IN_PROCESS, MULTI_PROCESS, ExtractSettings
from components.extract.shards import Failed, write_shard
from components.speech.buckets import is_remote
from components.speech.errors import SettingsError, WorkError
from components.speech.mirror import Mirror, address_of, folder_of, local, send
from components.speech.progress import PASSES, Progress
from components.speech.storage import read_json, write_json


def write_shards(tasks: list[Task], settings: ExtractSettings, store: str, folder: Path) -> list[Failed]:
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
    results = address_of(folder / "results.json")
    if settings.runner != IN_PROCESS:
        send([task.manifest for task in tasks], store)
        tasks = [dataclasses.replace(task, manifest=address_of(task.manifest)) for task in tasks]
    try:
        pipeline = beam.Pipeline(runner=_runner(settings), options=_options(settings))
    except ValueError as error:
        raise SettingsError(f"extract: 'runner' is {settings.runner!r}: {error}") from None
    failed = (
        pipeline
        | "tasks" >> beam.Create(tasks)
        | "to all workers" >> (beam.Map(_as_it_is) if settings.runner == IN_PROCESS else beam.Reshuffle())
        | "write" >> beam.ParDo(WriteShard(settings, sum(task.utterances for task in tasks), store, address_of(folder)))
    )
    _ = pipeline | "once" >> beam.Create([results]) | "gather" >> beam.Map(_save, failed=beam.pvalue.AsList(failed))
    try:
        with _told_once():
            pipeline.run().wait_until_finish()
    except Exception as error:  # of whatever kind the runner makes of a worker's
        raise WorkError(
            f"extract: the Beam pipeline on {settings.runner} failed: {error}; mend that and run it again: "
            "shards that are written already stay"
        ) from error
    return [Failed(*failure) for _, *failure in sorted(read_json(local(results)), key=_number)]


def _as_it_is(task: Task) -> Task:
    """In one process there is nobody to share with, and a shuffle takes a fifth of what Beam costs."""
    return task


@contextlib.contextmanager
def _told_once() -> Iterator[None]:
    """Keeps Beam from printing the traceback of what the disk refuses: the error that is raised says all of it.

    Anything else is a bug, whose traceback is wanted.
    """
    logger = logging.getLogger("apache_beam.runners.common")

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], OSError))

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def _number(numbered: tuple[Any, ...]) -> int:
    number: int = numbered[0]
    return number


class WriteShard(beam.DoFn):
    """A task to a shard in the pool; what comes out are the clips that failed."""

    def __init__(self, settings: ExtractSettings, utterances: int, store: str, folder: str) -> None:
        super().__init__()
        self.settings, self.utterances, self.store, self.folder = settings, utterances, store, folder

    def setup(self) -> None:
        self.progress = Progress("utterances", total=self.utterances)

    def process(self, task: Task) -> Iterator[Any]:
        alone = self.settings.runner == IN_PROCESS
        advance = self.progress.advance if alone else lambda count: None
        failed = write_shard(task, self.settings, self.store, folder_of(self.folder), advance)
        if self.settings.runner == MULTI_PROCESS:  # others' workers may write to a pipe that nobody reads
            print(f"{PASSES}shard {task.number:,} of {task.of:,} is written", flush=True)
        for failure in failed:
            yield task.number, *failure


def _save(place: str, failed: list[Any]) -> None:
    """Writes what failed to where the process that waits for it looks: each worker may be another machine."""
    write_json(folder_of(place), failed)
    if is_remote(place):
        Mirror.of(place.rpartition("/")[0]).push([place.rpartition("/")[2]])


def _runner(settings: ExtractSettings) -> FnApiRunner | None:
    """Beam's own runner with worker processes; none for those that options name.

    Beam's `--direct_running_mode=multi_processing` hands the interpreter's path to a shell as it stands: with a space
    in it no worker starts, and the pipeline waits for ever.
    """
    if settings.runner != MULTI_PROCESS:
        # It warns that it starts a job server, as it was told to.
        logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)
        return None
    # Each worker warns, as it starts, that it lacks a folder which one machine does not need; and the runner, that
    # several workers want the option which is not used here.
    for name in ("local_job_service", "fn_api_runner.fn_runner"):
        logging.getLogger(f"apache_beam.runners.portability.{name}").setLevel(logging.ERROR)
    command = f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _options(settings: ExtractSettings) -> PipelineOptions:
    if settings.runner == MULTI_PROCESS:
        chosen = [f"--direct_num_workers={settings.workers}"]
    else:
        chosen = [f"--runner={settings.runner}"]
    return PipelineOptions(flags=[*chosen, *settings.beam_options])
