"""Runs a pipeline on this machine through kfp.local, and records the run.

A run's folder holds:
  run.json      what ran, how long, and the results; written however the run ends
  config.yaml   the effective config
  run.log       all output of all steps
  report.html   the report; validation.html is validate's
  kfp/          working files of kfp.local
  last_outputs.json   the last output of each step, for `voxline step`
  store/, registry/   unless the config puts them elsewhere
"""

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

from voxline.components.ingest.open_corpus import check_corpus_location
from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.notify.event import RunEvent
from voxline.notify.history import record_run
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.console import Console, remove_colors, strip_colors
from voxline.pipelines.graphs import steps_until
from voxline.pipelines.local.cost_estimate import check_budget, history_location
from voxline.pipelines.local.energy import metered_energy
from voxline.pipelines.local.failure import Failure, parse_failure
from voxline.pipelines.local.graph_process import GraphProcess, start_graph
from voxline.pipelines.local.run_record import (
    CONFIG_FILE,
    RUN_FILE,
    RunRecord,
    StepRecord,
    read_previous_run,
    read_task_output,
)
from voxline.pipelines.local.single_step import make_run_dir, record_output
from voxline.pipelines.local.summary import finalize
from voxline.pipelines.local.tracking import log_run
from voxline.pipelines.steps import STEPS
from voxline.progress import neutralize, print_status
from voxline.store.bucket_cache import CACHE_ENV, cache_root
from voxline.store.file_locks import try_lock
from voxline.store.files import write_json, write_text
from voxline.store.objects import open_store
from voxline.store.scratch import scratch_root
from voxline.store.step_cache import FORCE_ENV
from voxline.store.store_locks import shared_store_lock
from voxline.store.uris import is_remote

# As kfp.local logs the start and the end of a task.
_STARTED = re.compile(r"Executing task '([^']+)'$")
_ENDED = re.compile(r"Task '([^']+)' finished with status (SUCCESS|FAILURE)$")
_GRACE_SECONDS = 5.0
_SAVE_SECONDS = 75.0
"""For which a training may save its checkpoint after a signal; systemd kills after 90."""
_REPEAT_SECONDS = 3.0
"""Within which signals are one request: a person presses Ctrl-C more than once."""
# Lines of a step's output that are searched for a traceback; run.log has all of them.
_LINES_KEPT = 5_000


class RunInterrupted(KeyboardInterrupt):
    """The run was asked to stop by SIGINT, SIGTERM or SIGHUP."""


def run_pipeline(
    config: RunConfig,
    run_dir: Path,
    console: Console,
    *,
    until: str = "",
    force: Collection[str] = (),
    fork: bool = False,
) -> tuple[RunRecord, Failure | None]:
    """Runs the steps. The record is written in every case in which one was started.

    Args:
      until: the last step; empty: the graph's.
      force: steps that are done again although they were done before.
      fork: this process is the command's own: a fork of it may run the graph, which saves the start of another Python.

    Raises:
      SettingsError: the config cannot be run on this machine, the corpus does not exist, a step is unknown, or the run
        may cost more than its budget.
      WorkError: another run uses the folder.
      KeyboardInterrupt: a signal arrived; the steps were stopped and the record was written.
    """
    run_dir = run_dir.absolute()
    config = config.for_this_machine(run_dir)
    steps = check_run(config, run_dir, until, force)
    if remark := check_budget(config, run_dir, until, list(force), history_location(config)):
        print_status(remark)
    make_run_dir(run_dir)

    with _exclusive(run_dir), _interruptible() as hurry, hold_store(config.store):
        # The last run's files are read before this run replaces them; the record exists before the first step.
        previous = read_previous_run(run_dir)
        write_text(run_dir / CONFIG_FILE, config.to_yaml())
        record = RunRecord(config.pipeline, config.name, run_dir, config.recorded(), until=until or None)
        record.previous = previous
        record.like = config.cost_digest(on_cluster=False)
        record.write()
        if config.notify.openlineage.url:
            from voxline.notify.deliver import announce_start

            announce_start(record.identity, config.notify)

        try:
            failure = _run_graph(config, run_dir, record, console, steps, force, hurry, fork)
            record.status = "failed" if failure else "succeeded"
            if failure:
                record.reason = failure.message
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            record.status = "interrupted" if stopped else "failed"
            record.reason = "stopped by a signal" if stopped else f"{type(error).__name__}: {error}"
            raise
        finally:
            # However the run ended, its record says so, even if the results cannot be filled in.
            for step in record.steps:
                step.status = record.status if step.status == "running" else step.status
            try:
                finalize(record, history_location(config))
            finally:
                write_last_record(record)
                with contextlib.suppress(OSError):  # the terminal may be gone
                    console.close()
                _announce(record, config)
    log_run(record)
    return record, failure


def write_last_record(record: RunRecord) -> None:
    """Writes the record of a run that ended. If there is no room for it, what callers get now is printed."""
    try:
        record.write()
    except OSError as error:
        if record.published:
            print_status(f"{record.run_dir / RUN_FILE} cannot be written ({error.strerror}), but {record.reason}")
        raise


def _announce(record: RunRecord, config: RunConfig) -> None:
    """Adds a run, however it ended, to the history beside its registry, and sends it to what `notify` names."""
    page = config.notify.run_page.replace("{id}", record.id)
    report = str(record.run_dir / record.report) if record.report else ""
    links = {"report": report, "log": str(record.run_dir / "run.log"), "page": page}

    @functools.cache  # the history and the receivers get the same event, with one end of the run
    def event() -> RunEvent:
        outcome = RunEvent.of(record.identity, record.steps, record.status, record.reason, links, record.published)
        outcome = dataclasses.replace(outcome, anomalies=tuple(record.anomalies), cost=record.cost)
        return outcome.with_erasure(record.erasure)

    # A history that `notify` names is written with the receivers below.
    root = config.history_root()
    if root and not config.notify.history:
        try:
            record_run(event(), history_location(config))
        except (VoxlineError, OSError, ValueError, KeyError) as error:  # the run is done, whatever happens here
            print_status(f"the run is not in the history of {root}: {error}")
    if config.notify.addresses():
        from voxline.notify.deliver import announce_end  # it imports requests, which takes half a second

        announce_end(event, config.notify)


@contextlib.contextmanager
def hold_store(store: str) -> Iterator[None]:
    """Keeps garbage collection out of a store in a folder, between two steps as well."""
    with contextlib.ExitStack() as stack:
        if not is_remote(store):
            with contextlib.suppress(OSError):  # the first step says why it cannot be written
                stack.enter_context(shared_store_lock(store))
        yield


def check_run(config: RunConfig, run_dir: Path, until: str, force: Collection[str]) -> list[str]:
    """Refuses what no run on this machine could do; a dry run refuses the same.

    Args:
      config: with all locations set.

    Returns:
      The steps.

    Raises:
      SettingsError: a location cannot be used, the corpus or a model that a step needs does not exist, or a step is
        unknown.
    """
    check_local_paths(config, run_dir)
    steps = check_steps(config, until, force)
    if not config.corpus.dataset:
        check_corpus_location(config.corpus)
    config.check_registry()
    config.check_inputs()
    return steps


def check_local_paths(config: RunConfig, run_dir: Path) -> None:
    """Refuses locations that a run on this machine cannot use. Everything but the run's folder may be in a bucket."""
    if re.match(r".*[a-z0-9]+:/", str(run_dir)):  # kfp.local would write to a folder called `gs:`
        raise SettingsError(
            f"--run-dir is {str(run_dir)!r}; a run on this machine keeps its files on a local disk: give a folder "
            "(the store and the registry may be in a bucket)"
        )
    for name in config.default_folders:
        try:
            open_store(getattr(config, name))
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}") from None


def check_steps(config: RunConfig, until: str, force: Collection[str]) -> list[str]:
    """The steps of a run.

    Raises:
      SettingsError: the pipeline lacks a step, or one is forced that always runs, or that comes after the last.
    """
    steps = steps_until(config.pipeline, until, config.optional_steps())
    for name in force:
        accepted = [step for step in steps if not STEPS[step].never_reused]
        if name not in accepted:
            reason = STEPS[name].never_reused if name in STEPS else ""
            always = f" ({name} always runs: it {reason})" if reason else ""
            raise SettingsError(f"--force {name!r}: accepted: {', '.join(accepted)}{always}")
    return steps


def _run_graph(
    config: RunConfig,
    run_dir: Path,
    record: RunRecord,
    console: Console,
    steps: list[str],
    force: Collection[str],
    hurry: threading.Event,
    fork: bool,
) -> Failure | None:
    """Starts the graph's process, and reads its output until it ends. Returns why a step failed."""
    printed: list[str] = []  # by the step that runs
    began = 0.0  # on the monotonic clock, in seconds

    with (
        open(run_dir / "run.log", "w", encoding="utf-8", errors="replace") as log,
        _graph_process(config, run_dir, record.until or "", force, fork) as process,
        _ended_gently(process, log, console, hurry),
        metered_energy() as energy,
    ):
        for line in _lines(process):
            log.write(neutralize(remove_colors(line)))
            log.flush()
            text = strip_colors(line)

            # Each change of a step's state is in run.json at once, for `voxline runs` and for a run that is killed.
            if started := _STARTED.search(text):
                printed = []
                began = time.monotonic()
                record.steps.append(StepRecord(started[1]))
                record.write()
            elif ended := _ENDED.search(text):
                step = record.steps[-1]
                step.status = "succeeded" if ended[2] == "SUCCESS" else "failed"
                step.seconds = time.monotonic() - began
                read_task_output(run_dir / "kfp", step)
                record.write()
                if step.status == "succeeded":
                    record_output(run_dir, step.name, step.folder)
                    console.say(f"  {step.name} done in {step.seconds:.1f} s ({len(record.steps)} of {len(steps)})")
            else:
                printed = [*printed[-_LINES_KEPT:], line.rstrip("\n")]
                console.line(line)
        succeeded = process.wait() == 0
        record.energy_kwh = energy()
    if succeeded:
        return None

    # A process that was killed logs no end of its step.
    if record.steps and record.steps[-1].status != "succeeded":
        record.steps[-1].seconds = time.monotonic() - began
        record.steps[-1].status = "failed"
        record.failed_step = record.steps[-1].name
    return parse_failure(printed)


@contextlib.contextmanager
def _ended_gently(process: GraphProcess, log: TextIO, console: Console, hurry: threading.Event) -> Iterator[None]:
    """Lets the graph's processes end by SIGTERM if a signal stops the block: a training saves its checkpoint first.

    Args:
      hurry: when it is set, the wait ends.
    """
    try:
        yield
    except RunInterrupted:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)

        # Their output ends with the last of them. It is read in a thread, since a read has no time limit.
        def read() -> None:
            with contextlib.suppress(ValueError, OSError):  # closed while it was read, or the terminal is gone
                for line in _lines(process):
                    log.write(neutralize(remove_colors(line)))
                    console.line(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = time.monotonic() + _SAVE_SECONDS
        while reader.is_alive() and not hurry.is_set() and time.monotonic() < deadline:
            reader.join(0.1)
        _end(process)
        reader.join(_GRACE_SECONDS)
        raise


def _lines(process: GraphProcess) -> Iterator[str]:
    # No generator: one that a signal ends would close the pipe, which is read on.
    return iter(process.stdout.readline, "") if process.stdout else iter(())


@contextlib.contextmanager
def _graph_process(
    config: RunConfig, run_dir: Path, until: str, force: Collection[str], fork: bool
) -> Iterator[GraphProcess]:
    """The process that runs the graph, in its own process group, which is ended with the block."""
    root = run_dir / "kfp"
    shutil.rmtree(root, ignore_errors=True)
    request = root / "request.json"
    values = {"config": config.plain(), "pipeline_root": str(root), "until": until}
    write_json(request, {**values, "optional": config.optional_steps()})

    scratch = tempfile.mkdtemp(dir=scratch_root())  # kfp leaves a folder for each task in TMPDIR
    environment = {
        **os.environ,
        "TMPDIR": scratch,
        CACHE_ENV: str(cache_root()),  # not below the scratch folder, which is deleted after the run
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "PYTHONSAFEPATH": "1",  # a folder `components` in the current folder must not be imported
        FORCE_ENV: ",".join(force),
        **config.signing.environment(),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }

    process = start_graph(request, environment, fork=fork)

    # The group is ended first: it may still write to the scratch folder.
    try:
        yield process
    finally:
        _end(process)
        request.unlink(missing_ok=True)  # it has the query of a signed address
        shutil.rmtree(scratch, ignore_errors=True)
        for pipe in (process.stdin, process.stdout):
            _close(pipe)


def _end(process: GraphProcess) -> None:
    """Ends the process group with SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _close(pipe: IO[str] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


@contextlib.contextmanager
def _exclusive(run_dir: Path) -> Iterator[None]:
    """Locks the run's folder. The system releases the lock when the process ends."""
    descriptor = os.open(run_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not try_lock(descriptor):
            raise WorkError(
                f"{run_dir}: another run is using this folder; wait for it, or give --run-dir another folder"
            )
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turns the first signal into an exception, so that the steps are stopped and the record is written.

    A signal some seconds later sets the event: nobody wants to wait for a checkpoint any more. Further ones are
    ignored, also after the block, because the command ends within seconds; they would leave a record that says
    "running". Signals that are ignored already stay ignored: SIGHUP under nohup. Outside the main thread, where Python
    allows no handlers, signals keep their meaning.
    """
    hurry = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield hurry
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handlers = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}

    def stop(number: int, frame: FrameType | None) -> None:
        repeated = time.monotonic() + _REPEAT_SECONDS

        def stop_at_once(number: int, frame: FrameType | None) -> None:
            if time.monotonic() > repeated:
                hurry.set()

        while handlers:  # none is restored: the command ends
            signal.signal(handlers.popitem()[0], stop_at_once)
        raise RunInterrupted(number)

    for number in list(handlers):
        signal.signal(number, stop)
    try:
        yield hurry
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
