"""The Beam pipeline: shards written where the features are made, statistics combined, failures beside.

Features never travel: moved through a GroupByKey into WriteToTFRecord they cost three quarters again.
What flows is a description of each shard.

  tasks ─▶ write ─▶ shards ──▶ sums ─▶ mean and deviation ─┐
                 └▶ rejects ──────────────────────────────┴▶ results
"""
# Beam calls itself typed, and its transforms are not:
# mypy: disable-error-code="no-untyped-call"

import contextlib
import logging
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from components.extract.settings import IN_PROCESS, MULTI_PROCESS, ExtractSettings
from components.extract.shards import Task, Written, write_shard
from components.extract.statistics import Sums
from components.speech.errors import SettingsError, WorkError
from components.speech.progress import PASSES, Progress
from components.speech.storage import read_json, write_json
from components.speech.utterances import Reject

REJECTS = "rejects"


def write_shards(
    tasks: list[Task], utterances: int, settings: ExtractSettings, pool: Path, folder: Path
) -> tuple[list[Written], Sums, list[tuple[float, Reject]]]:
    """Runs the pipeline to its end.

    Args:
      tasks: a shard each.
      utterances: how many there are in all shards together, for the progress lines.
      pool: where shards lie.
      folder: for what is unfinished; a disk that all workers share.

    Returns:
      The shards in the order of their tasks; the sums over training; the rejects, each with the speed at which
      it failed, in the order of the tasks too.

    Raises:
      SettingsError: Beam knows no such runner.
      WorkError: the pipeline failed: a full disk, a store that cannot be written, a worker that died.
    """
    results = folder / "results.json"
    try:
        pipeline = beam.Pipeline(runner=_runner(settings), options=_options(settings))
    except ValueError as error:
        raise SettingsError(f"extract: 'runner' is {settings.runner!r}: {error}") from None
    written = (
        pipeline
        | "tasks" >> beam.Create(tasks)
        | "to all workers" >> (beam.Map(_as_it_is) if settings.runner == IN_PROCESS else beam.Reshuffle())
        | "write" >> beam.ParDo(WriteShard(settings, utterances, pool, folder)).with_outputs(REJECTS, main="shards")
    )
    sums = (
        written.shards
        | "sums of each" >> beam.FlatMap(lambda shard: [shard[1].sums] if shard[1].sums else [])
        | "add" >> beam.CombineGlobally(AddSums(settings.features.bins))
    )
    _ = (
        pipeline
        | "once" >> beam.Create([results])
        | "gather"
        >> beam.Map(
            _save,
            shards=beam.pvalue.AsList(written.shards),
            sums=beam.pvalue.AsSingleton(sums),
            rejects=beam.pvalue.AsList(written[REJECTS]),
        )
    )
    try:
        with _told_once():
            pipeline.run().wait_until_finish()
    except Exception as error:  # of whatever kind the runner makes of a worker's
        raise WorkError(
            f"extract: the Beam pipeline on {settings.runner} failed: {error}; mend that and run it again: "
            "shards that are written already stay"
        ) from error
    gathered = read_json(results)
    return (
        [Written.from_plain(shard) for _, shard in sorted(gathered["shards"], key=_number)],
        Sums.from_plain(gathered["sums"]),
        [(speed, Reject.from_line(line)) for _, speed, line in sorted(gathered["rejects"], key=_number)],
    )


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
    """A task to a shard in the pool; recordings that fail go to the output `rejects`."""

    def __init__(self, settings: ExtractSettings, utterances: int, pool: Path, folder: Path) -> None:
        super().__init__()
        self.settings, self.utterances, self.pool, self.folder = settings, utterances, pool, folder

    def setup(self) -> None:
        self.progress = Progress("utterances", total=self.utterances)

    def process(self, task: Task) -> Iterator[Any]:
        alone = self.settings.runner == IN_PROCESS
        advance = self.progress.advance if alone else lambda count: None
        shard, rejects = write_shard(task, self.settings, self.pool, self.folder, advance)
        if not alone:
            print(f"{PASSES}shard {task.number:,} of {task.of:,} ({task.split}) is written", flush=True)
        if shard:
            yield task.number, shard
        for reject in rejects:
            yield beam.pvalue.TaggedOutput(REJECTS, (task.number, task.speed, reject))


class AddSums(beam.CombineFn):
    """Adds sums of shards, in whatever grouping the runner likes."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins

    def create_accumulator(self) -> Sums:
        return Sums.of_nothing(self.bins)

    def add_input(self, accumulator: Sums, sums: Sums) -> Sums:
        return accumulator + sums

    def merge_accumulators(self, accumulators: Iterable[Sums]) -> Sums:
        return sum(accumulators, Sums.of_nothing(self.bins))

    def extract_output(self, accumulator: Sums) -> Sums:
        return accumulator


def _save(path: Path, shards: list[Any], sums: Sums, rejects: list[Any]) -> None:
    gathered = {
        "shards": [[number, shard.plain()] for number, shard in shards],
        "sums": sums.plain(),
        "rejects": [[number, speed, reject.as_line()] for number, speed, reject in rejects],
    }
    write_json(path, gathered)


def _runner(settings: ExtractSettings) -> FnApiRunner | None:
    """Beam's own runner with worker processes; none for those that options name.

    Beam's `--direct_running_mode=multi_processing` hands the interpreter's path to a shell as it stands: with a space
    in it no worker starts, and the pipeline waits for ever.
    """
    if settings.runner != MULTI_PROCESS:
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
