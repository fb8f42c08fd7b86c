"""Maps a function over many elements by a Beam pipeline, on any runner.

Elements and results are small JSON values. Samples and features never travel: moved through a GroupByKey, features cost
75% more. Workers read and write them in a place that all share.

Each result is a file in a folder that workers share. So the waiting process sees results as they come, on any runner;
no worker gathers them in memory; and work that a runner repeats after a crash is skipped if its result exists.

  for number, failed in map_with_beam("extract", write_one, tasks, settings, folder):
"""

# Beam calls itself typed, and its transforms are not:
# mypy: disable-error-code="no-untyped-call"
import contextlib
import json
import logging
import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from voxline.beam.settings import IN_PROCESS, MULTI_PROCESS, RunnerSettings
from voxline.beam.worker_paths import worker_path, worker_uri
from voxline.errors import SettingsError, WorkError
from voxline.store.files import atomic_write, read_json
from voxline.store.objects import open_store

POLL_SECONDS = 0.2
"""Seconds between two looks for results in a folder; in a bucket, where each look is a listing, a hundred times as
many."""

POLL_RATIO = 9
"""A pause is at least this many times as long as the last look took."""


def map_with_beam(
    step: str, function: Callable[[Any], Any], elements: Sequence[Any], settings: RunnerSettings, folder: Path
) -> Iterator[tuple[int, Any]]:
    """Runs a pipeline to its end.

    Args:
      step: name of the step, for messages.
      function: at the top level of a module, or a `functools.partial` of one; workers import it by its name. It may be
        called several times with one element, even at the same time on two machines.
      elements: JSON values of some hundred bytes; the pipeline's description contains them all.
      folder: for the results; on a disk that all workers share, or in the bucket cache.

    Yields:
      (number of the element, result), each once, as they come.

    Raises:
      SettingsError: Beam has no such runner.
      WorkError: the pipeline failed: a full disk, a store that cannot be written, a worker that died.
    """
    in_process = settings.runner == IN_PROCESS
    results = _ResultFolder(folder / f"results-{secrets.token_hex(4)}", is_shared=not in_process)
    lines = [json.dumps([number, element]) for number, element in enumerate(elements)]
    try:
        pipeline = beam.Pipeline(runner=_runner(settings), options=_options(settings))
    except ValueError as error:
        raise SettingsError(f"{step}: 'runner' is {settings.runner!r}: {error}") from None
    _ = (
        pipeline
        | "elements" >> beam.Create(lines)
        # In one process there is nothing to distribute, and a shuffle takes a fifth of what Beam costs.
        | "to all workers" >> (beam.Map(_identity) if in_process else beam.Reshuffle())
        | "apply" >> beam.ParDo(_Apply(function, results.uri))
    )
    try:
        with _silence_disk_tracebacks(), _running_pipeline(pipeline, settings) as thread:
            while thread.is_alive():
                yield from results.new()
                thread.join(results.pause)
    except _PipelineError as failure:
        raise WorkError(
            f"{step}: the Beam pipeline on {settings.runner} failed: {failure.__cause__}; fix that and run it again: "
            "finished work stays"
        ) from failure.__cause__
    yield from results.new()
    if len(results.seen) != len(lines):
        raise WorkError(
            f"{step}: the Beam pipeline on {settings.runner} ended, and {len(lines) - len(results.seen):,} of "
            f"{len(lines):,} results are not in {results.uri}; workers must share that folder with this process"
        )


class _Apply(beam.DoFn):
    """Applies the function to an element, unless its result exists. Emits nothing."""

    def __init__(self, function: Callable[[Any], Any], uri: str) -> None:
        super().__init__()
        self.function = function
        self.uri = uri

    def process(self, line: str) -> None:
        number, element = json.loads(line)
        name = f"{number}.json"
        folder = worker_path(self.uri)
        if not (folder / name).is_file():
            result = json.dumps(self.function(element), ensure_ascii=False, allow_nan=False)
            with atomic_write(folder / name, "w", durable=False) as file:  # useless after a power failure
                file.write(result)
        open_store(self.uri).push([name])


class _ResultFolder:
    """The folder of results, as the waiting process sees it.

    Args:
      is_shared: workers may be on other machines, so results in a bucket are downloaded.

    Attributes:
      uri: of the folder, for all machines.
      seen: numbers of the results that were yielded.
      pause: seconds until the next look is worth its cost.
    """

    def __init__(self, folder: Path, is_shared: bool) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.uri = worker_uri(folder) if is_shared else str(folder)
        self._store = open_store(self.uri)
        self.seen: set[int] = set()
        self.pause = POLL_SECONDS

    def new(self) -> Iterator[tuple[int, Any]]:
        """Yields the results that came since the last look."""
        began = time.monotonic()
        self._store.pull(self._store.list())
        names = [path.stem for path in self._folder.glob("[0-9]*.json")]
        new = {int(name) for name in names} - self.seen
        self.seen |= new
        least = POLL_SECONDS * (100 if self._store.is_remote else 1)
        self.pause = max(least, POLL_RATIO * (time.monotonic() - began))
        for number in sorted(new):
            yield number, read_json(self._folder / f"{number}.json")


class _PipelineError(Exception):
    """The pipeline failed. The cause is the runner's form of a worker's error."""


@contextlib.contextmanager
def _running_pipeline(pipeline: beam.Pipeline, settings: RunnerSettings) -> Iterator[threading.Thread]:
    """Runs the pipeline in a thread, and cancels it if the block raises.

    Raises:
      _PipelineError: the pipeline failed.
    """
    results: list[Any] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            result = results[0] if results else pipeline.run()
            result.wait_until_finish()
        except Exception as error:  # raised in the waiting thread
            errors.append(error)

    if settings.runner not in (IN_PROCESS, MULTI_PROCESS):  # those run to the end before they return
        try:
            results.append(pipeline.run())  # in this thread, since starting a job server sets signal handlers
        except Exception as error:
            raise _PipelineError from error
    thread = threading.Thread(target=run, name="beam", daemon=True)
    thread.start()
    try:
        yield thread
    except BaseException:
        for result in results:
            with contextlib.suppress(Exception):  # it may have ended; the error in the block matters
                result.cancel()
        raise
    if errors:
        raise _PipelineError from errors[0]


def _identity(line: str) -> str:
    return line


@contextlib.contextmanager
def _silence_disk_tracebacks() -> Iterator[None]:
    """Keeps Beam from printing the traceback of an OSError: the error that we raise says it all.

    Anything else is a bug, whose traceback is useful.
    """
    logger = logging.getLogger("apache_beam.runners.common")

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], OSError))

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def _runner(settings: RunnerSettings) -> FnApiRunner | None:
    """Beam's own runner with worker processes; None for a runner that the options name.

    Beam's `--direct_running_mode=multi_processing` passes the interpreter's path to a shell unquoted. If it contains a
    space, no worker starts, and the pipeline waits forever.
    """
    if settings.runner != MULTI_PROCESS:
        # It warns that it starts a job server, as requested.
        logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)
        return None
    # Each worker warns that it lacks a folder, which one machine does not need; and the runner, that several workers
    # need the option that is not used here.
    for name in ("local_job_service", "fn_api_runner.fn_runner"):
        logging.getLogger(f"apache_beam.runners.portability.{name}").setLevel(logging.ERROR)
    command = f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _options(settings: RunnerSettings) -> PipelineOptions:
    if settings.runner == MULTI_PROCESS:
        flags = [f"--direct_num_workers={settings.workers or os.cpu_count()}"]
    else:
        flags = [f"--runner={settings.runner}"]
    return PipelineOptions(flags=[*flags, *settings.beam_options])
