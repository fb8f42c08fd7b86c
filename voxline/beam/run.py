"""A Beam pipeline on any runner: a function is applied to each of many elements, and its answers come back.

Elements and answers are small JSON values. What is large (samples, features) never travels: moved through a
GroupByKey, features cost three quarters again. A worker reads and writes it where all workers do, and says so.

Each answer is a file in a folder that workers share. So the process that waits sees each as it comes, on any runner;
none is gathered in one worker's memory; and what a runner repeats after a death costs nothing where an answer lies.

  for number, failed in answers("extract", write_one, tasks, settings, folder):
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
from voxline.errors import SettingsError, WorkError
from voxline.store.bucket_cache import BucketCache, local_path, uri_of
from voxline.store.files import atomic_write, read_json
from voxline.store.objects import is_remote

POLL_SECONDS = 0.2
"""How often new answers are looked for on a disk; in a bucket, where each look is a listing, a hundredth as often."""

POLL_RATIO = 9
"""As many times as long as a look takes, at least, until the next one."""


def map_with_beam(
    step: str, function: Callable[[Any], Any], elements: Sequence[Any], settings: RunnerSettings, folder: Path
) -> Iterator[tuple[int, Any]]:
    """Runs a pipeline to its end.

    Args:
      step: whose work it is, for messages.
      function: of a module's top level, or a `functools.partial` of one; workers import it by its name. It may be
        called more than once with one element, also at the same time on two machines.
      elements: JSON values of some hundred bytes; all of them travel in the pipeline's description.
      folder: for the answers; on a disk that all workers share, or the mirror of a bucket.

    Yields:
      (number of the element, answer), each once, as they come.

    Raises:
      SettingsError: Beam knows no such runner.
      WorkError: the pipeline failed: a full disk, a store that cannot be written, a worker that died.
    """
    alone = settings.runner == IN_PROCESS
    answered = _ResultFolder(folder / f"answers-{secrets.token_hex(4)}", is_sent=not alone)
    lines = [json.dumps([number, element]) for number, element in enumerate(elements)]
    try:
        pipeline = beam.Pipeline(runner=_runner(settings), options=_options(settings))
    except ValueError as error:
        raise SettingsError(f"{step}: 'runner' is {settings.runner!r}: {error}") from None
    _ = (
        pipeline
        | "elements" >> beam.Create(lines)
        # In one process there is nobody to share with, and a shuffle takes a fifth of what Beam costs.
        | "to all workers" >> (beam.Map(_identity) if alone else beam.Reshuffle())
        | "apply" >> beam.ParDo(_Apply(function, answered.place))
    )
    try:
        with _silence_disk_tracebacks(), _running_pipeline(pipeline, settings) as running:
            while running.is_alive():
                yield from answered.new()
                running.join(answered.patience)
    except _PipelineError as failure:
        raise WorkError(
            f"{step}: the Beam pipeline on {settings.runner} failed: {failure.__cause__}; mend that and run it again: "
            "what is written already stays"
        ) from failure.__cause__
    yield from answered.new()
    if answered.seen != len(lines):
        raise WorkError(
            f"{step}: the Beam pipeline on {settings.runner} ended, and {len(lines) - answered.seen:,} of "
            f"{len(lines):,} answers are not in {answered.place}; workers must share that place with this process"
        )


class _Apply(beam.DoFn):
    """Applies the function to an element whose answer does not lie there yet. Nothing flows on."""

    def __init__(self, function: Callable[[Any], Any], place: str) -> None:
        super().__init__()
        self.function, self.place = function, place

    def process(self, line: str) -> None:
        number, element = json.loads(line)
        name, folder = f"{number}.json", local_path(self.place)
        if not (folder / name).is_file():
            answer = json.dumps(self.function(element), ensure_ascii=False, allow_nan=False)
            with atomic_write(folder / name, "w", durable=False) as file:  # of no use after a power failure
                file.write(answer)
        if is_remote(self.place):
            BucketCache(self.place).upload([name])


class _ResultFolder:
    """The folder of answers, as the process sees it that waits for them.

    Args:
      is_sent: workers may be other machines: of a mirror, what they sent is brought.

    Attributes:
      place: the same for all machines.
      seen: how many were handed on.
      patience: seconds until it is worth another look.
    """

    def __init__(self, folder: Path, is_sent: bool) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.place = uri_of(folder) if is_sent else str(folder)
        self._mirror = BucketCache(self.place) if is_remote(self.place) else None
        self._numbers: set[int] = set()
        self.patience = POLL_SECONDS

    @property
    def seen(self) -> int:
        return len(self._numbers)

    def new(self) -> Iterator[tuple[int, Any]]:
        """Those that came since the last look."""
        began = time.monotonic()
        if self._mirror:
            self._mirror.download_below()
        names = [entry.name for entry in os.scandir(self._folder) if not entry.name.startswith(".")]
        came = [number for number in sorted(int(name.partition(".")[0]) for name in names) if self._is_new(number)]
        least = POLL_SECONDS * (100 if self._mirror else 1)
        self.patience = max(least, POLL_RATIO * (time.monotonic() - began))
        for number in came:
            yield number, read_json(self._folder / f"{number}.json")

    def _is_new(self, number: int) -> bool:
        is_new = number not in self._numbers
        self._numbers.add(number)
        return is_new


class _PipelineError(Exception):
    """What became of the pipeline; its cause is whatever the runner made of a worker's error."""


@contextlib.contextmanager
def _running_pipeline(pipeline: beam.Pipeline, settings: RunnerSettings) -> Iterator[threading.Thread]:
    """Runs it beside this thread; one that is still running when the block ends in an error is cancelled.

    Raises:
      _FailedError: it failed.
    """
    results: list[Any] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            result = results[0] if results else pipeline.run()
            result.wait_until_finish()
        except Exception as error:  # handed to the thread that waits
            errors.append(error)

    if settings.runner not in (IN_PROCESS, MULTI_PROCESS):  # those end before they return
        try:
            results.append(pipeline.run())  # here, since what starts a job server must be told of signals
        except Exception as error:
            raise _PipelineError from error
    thread = threading.Thread(target=run, name="beam", daemon=True)
    thread.start()
    try:
        yield thread
    except BaseException:
        for result in results:
            with contextlib.suppress(Exception):  # it may have ended meanwhile; what counts is why we stop
                result.cancel()
        raise
    if errors:
        raise _PipelineError from errors[0]


def _identity(line: str) -> str:
    return line


@contextlib.contextmanager
def _silence_disk_tracebacks() -> Iterator[None]:
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


def _runner(settings: RunnerSettings) -> FnApiRunner | None:
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


def _options(settings: RunnerSettings) -> PipelineOptions:
    if settings.runner == MULTI_PROCESS:
        chosen = [f"--direct_num_workers={settings.workers or os.cpu_count()}"]
    else:
        chosen = [f"--runner={settings.runner}"]
    return PipelineOptions(flags=[*chosen, *settings.beam_options])
