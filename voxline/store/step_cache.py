"""Steps cached by their inputs: where a step's output is, whether it exists already, and which process makes it.

A store is a folder that runs share, or a folder of a bucket that machines share. The output of a step is at
`<store>/<step>/<key>/`, where the key is the hash of the step's inputs, its settings and its revision. `done.json` is
written last: a folder without it is unfinished, and the next run of the same work resumes there. `bucket_step` has what
differs in a bucket.
"""

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from voxline.errors import TransientError, WorkError
from voxline.progress import print_status
from voxline.settings import Settings
from voxline.store.bucket_cache import uri_of
from voxline.store.bucket_step import BucketStep
from voxline.store.file_locks import exclusive_lock
from voxline.store.files import DONE, explain_disk_errors, file_sizes, remove_unfinished, seal_marker, write_json
from voxline.store.finished import (
    HASHES,
    added_files,
    changed_files,
    check_input,
    describe_changes,
    hash_outputs,
    is_finished,
    read_done,
    step_key,
)
from voxline.store.hashing import hash_value
from voxline.store.localize import ensure_local, localize
from voxline.store.store_locks import shared_store_lock
from voxline.store.uris import is_remote

INCOMPLETE = "incomplete"
"""A count of files that a step wanted to read and that were gone or cut short, though a name vouches for them. Nothing
that names the work changes when they are back, so such work is done, and done again when it is wanted again."""


@dataclasses.dataclass
class StepOutput:
    """A step's output folder, and what the step says of it.

    Attributes:
      folder: `<store>/<step>/<key>`; in the bucket cache, the folder of the attempt below it.
      key: the hash that names it.
      reused: it existed already.
      seconds: what this call took (reading the marker only, if reused).
      cpu_seconds: processor time of this call, with that of its processes which have ended.
      counts: how many of what, filled in by the step: {"utterances": 40, "rejects": 2}.
      metrics: numbers that a person compares between runs: {"wer": 0.03}.
      outputs: named files or folders, relative to the folder: {"manifest": "manifest.jsonl"}.
      scratch_dirs: folders that are only needed to make the rest; they are not uploaded once the work is done.
      unverified: names in the folder that no step reads, such as logs, or whose readers verify them otherwise, such as
        the recordings of a corpus. The marker has no hashes of them.
      hashes: of files that the step has hashed since it wrote them, relative to the folder.
      bucket_step: its folder in a bucket.
    """

    step: str
    folder: Path
    key: str
    reused: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    outputs: dict[str, str] = dataclasses.field(default_factory=dict)
    scratch_dirs: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)
    bucket_step: BucketStep | None = None

    @property
    def uri(self) -> str:
        """The folder's name on all machines: a path, or a bucket URI."""
        return self.bucket_step.uri if self.bucket_step else uri_of(self.folder)

    def path(self, output: str) -> Path:
        """The path of a named output; downloaded first if it is in a bucket alone."""
        path = self.folder / self.outputs[output]
        if self.bucket_step and self.reused and not path.exists():
            localize(self.output_uri(output))
        return path

    def output_uri(self, output: str) -> str:
        """Returns the name of an output that holds on all machines."""
        return f"{self.uri}/{self.outputs[output]}"

    def begin_save(self) -> Callable[[], None] | None:
        """Returns what uploads the folder as it is now, for a machine that has to resume the work; cheap to call often.

        It may be called in a thread, while work in the folder continues; None: the folder is in no bucket, or it is too
        soon. Files of the folder are replaced by rename, or are TensorBoard's.
        """
        return self.bucket_step.begin_partial() if self.bucket_step and not self.reused else None


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def local_inputs(
    *names: str, without: Iterable[str] = ()
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Lets a step read paths of this machine: its inputs are localized and verified before it runs.

    Args:
      names: of the parameters that hold a path or a URI.
      without: objects that begin so, relative to an input's folder, are not downloaded.

    >>> @local_inputs("manifest")
    ... def run(manifest: Path | str) -> str:
    ...     return str(manifest)
    >>> run("/data/corpus")  # of gs://speech/corpus it would be a folder of the bucket cache
    '/data/corpus'

    Raises, when the step runs:
      WorkError: an input has changed since the step before wrote it.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run(*positional: Parameters.args, **named: Parameters.kwargs) -> Result:
            bound = signature.bind(*positional, **named)

            # Localized before the step sees it: a step never handles a bucket.
            for name in names:
                bound.arguments[name] = localize(bound.arguments[name], without=without)
                check_input(bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        return run

    return decorate


FORCE_ENV = "VOXLINE_FORCE_STEPS"
"""Names of steps, separated by commas, that are done again even if they were done before."""


class StepWouldRunError(Exception):
    """A step's work is not done yet; raised in place of doing it while `plan_steps` is active.

    Attributes:
      step: its name.
      named_by: what its key is the hash of.
      damage: what is wrong with the output that exists, if one does.
      earlier: location of what an earlier release wrote for the same work, which the step would take over; else empty.
    """

    def __init__(self, step: str, named_by: dict[str, Any], damage: str) -> None:
        super().__init__(f"{step} would run")
        self.step = step
        self.named_by = named_by
        self.damage = damage
        self.earlier = ""

    @property
    def key(self) -> str:
        """The key that the output would have."""
        return hash_value(self.named_by)


_planning = contextvars.ContextVar("planning", default=False)


@contextlib.contextmanager
def plan_steps() -> Iterator[None]:
    """Makes steps in the block return finished work, or raise `StepWouldRunError` if there is none.

    >>> import tempfile
    >>> with plan_steps(), cached_step(tempfile.mkdtemp(), "count", Settings(), {"corpus": "ab"}) as work:
    ...     work.counts["utterances"] = 3
    Traceback (most recent call last):
    ...
    voxline.store.step_cache.StepWouldRunError: count would run
    """
    token = _planning.set(True)
    try:
        yield
    finally:
        _planning.reset(token)


@contextlib.contextmanager
def cached_step(
    store: Path | str,
    step: str,
    settings: Settings,
    inputs: dict[str, Any],
    *,
    revision: int = 1,
    check: Callable[[Path], object] | None = None,
    force: bool = False,
    exclusive: bool = True,
) -> Iterator[StepOutput]:
    """Locks a step's output folder; the block does the work, unless `output.reused`.

    Two processes that want the same work take turns; the second one finds it done.

    Args:
      store: the folder or bucket URI that holds all steps' outputs.
      step: the step's name.
      settings: `Settings.key_values` is part of the key.
      inputs: what names the inputs (fingerprints, keys), never paths.
      revision: raise it whenever the step's code changes what it writes.
      check: gets the folder of finished work before it is reused, and raises WorkError if something that the work
        refers to is gone; then it is done again, as it is if one of its own outputs is gone.
      force: do it even if it was done before: it depends on more than its key.
      exclusive: False where machines do it together, and all resume from what the bucket holds: what was left
        unfinished on this machine's disk cannot be used then.

    >>> import tempfile
    >>> store = tempfile.mkdtemp()
    >>> for _ in range(2):
    ...     with cached_step(store, "count", Settings(), {"corpus": "ab"}) as work:
    ...         if not work.reused:
    ...             work.counts["utterances"] = 3
    ...     print(work.reused, work.counts)
    False {'utterances': 3}
    ▸ count: reused, nothing changed since it was made
    True {'utterances': 3}

    Raises:
      WorkError: the store cannot be written, or the disk is full.
    """
    start = time.monotonic()
    cpu_start = _processor_seconds()

    named_by, folder = step_key(store, step, settings, inputs, revision)
    remote = BucketStep(f"{store}/{step}/{folder.name}") if is_remote(store) else None

    # Nothing is written, locked or removed while a run is planned.
    if _planning.get():
        yield _planned(StepOutput(step, folder, folder.name, bucket_step=remote), named_by, check)
        return
    with explain_disk_errors(step, folder), exclusive_lock(folder):
        work = StepOutput(step, folder, folder.name, bucket_step=remote)

        # Looked at under the lock: another process may have finished it while this one waited.
        done = _finished(work, check)

        if done and step in os.environ.get(FORCE_ENV, "").split(","):
            print_status(f"{step}: done before; --force does it again")
            if remote is None:
                _empty(folder)
        elif done and not force:
            work.reused = True
            work.counts = done["counts"]
            work.metrics = done["metrics"]
            work.outputs = done["outputs"]
            print_status(f"{step}: reused, nothing changed since it was made")
            _record_use(work)
            yield work
            work.seconds = time.monotonic() - start
            work.cpu_seconds = _processor_seconds() - cpu_start
            return
        with shared_store_lock(store) as check_held:
            if remote:
                remote.start(exclusive)
                work.folder = remote.folder
            else:
                remove_unfinished(work.folder, "**/.*.part", older_than=0)  # nobody else can be writing: it is claimed
            try:
                yield work
            except WorkError as error:
                if remote and not isinstance(error, TransientError):
                    remote.upload_failed()
                raise
            except KeyboardInterrupt:  # a training that was stopped has saved a checkpoint, maybe on this disk alone
                if remote:
                    remote.upload_unsaved()
                raise

            work.seconds = time.monotonic() - start
            work.cpu_seconds = _processor_seconds() - cpu_start
            # The lock is looked at before anything is decided: a purge may have started since.
            check_held()
            _finish(work, named_by)


def _processor_seconds() -> float:
    """Processor time of this process, and of those of its own that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _record_use(work: StepOutput) -> None:
    """Keeps finished work from garbage collection for a further while; does nothing where the store is read-only."""
    if work.bucket_step:
        work.bucket_step.record_use()
    else:
        with contextlib.suppress(OSError):
            os.utime(work.folder / DONE)


def _finish(work: StepOutput, named_by: dict[str, Any]) -> None:
    """Writes the marker."""
    lost = [name for name, file in work.outputs.items() if not (work.folder / file).exists()]
    if lost:
        raise WorkError(f"{work.step}: promised {', '.join(lost)} in {work.folder} and did not write it; this is a bug")

    # Outputs and their sizes, for a quick look, and the hash of every file, for a thorough one.
    marker = {
        **named_by,
        "key": work.key,
        "seconds": round(work.seconds, 3),
        "cpu_seconds": round(work.cpu_seconds, 3),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "counts": work.counts,
        "metrics": work.metrics,
        "outputs": work.outputs,
        "bytes": file_sizes(work.folder, work.outputs.values()),
        HASHES: hash_outputs(work.folder, (*work.scratch_dirs, *work.unverified), work.hashes),
    }
    if work.bucket_step is None:
        write_json(work.folder / DONE, seal_marker(marker))
    elif not work.bucket_step.commit(marker, work.scratch_dirs):
        winner = work.bucket_step.done or marker
        work.folder = work.bucket_step.folder
        work.counts = winner["counts"]
        work.metrics = winner["metrics"]
        work.outputs = winner["outputs"]


def _planned(work: StepOutput, named_by: dict[str, Any], check: Callable[[Path], object] | None) -> StepOutput:
    """The work, if it is done; nothing is changed."""
    try:
        done = _whole(work, check)
    except TransientError:
        raise
    except WorkError as damage:
        raise StepWouldRunError(work.step, named_by, str(damage)) from None
    if done is None:
        raise StepWouldRunError(work.step, named_by, "")
    work.reused = True
    work.counts = done["counts"]
    work.metrics = done["metrics"]
    work.outputs = done["outputs"]
    return work


def _empty(folder: Path) -> None:
    """Removes a step's output; the marker first."""
    (folder / DONE).unlink()
    shutil.rmtree(folder)
    folder.mkdir()


def _finished(work: StepOutput, check: Callable[[Path], object] | None) -> dict[str, Any] | None:
    """The marker of work that is finished and still whole; removes one that vouches for what is gone."""
    try:
        return _whole(work, check)
    except TransientError:
        raise
    except WorkError as damage:
        print_status(f"{work.step}: making it again: {damage}")
        if work.bucket_step is None:  # in a bucket it is replaced, once there is something to replace it by
            _remove_added(work.folder)
            (work.folder / DONE).unlink()
        return None


def _remove_added(folder: Path) -> None:
    """Removes the files that a step did not write, else the next marker would have their hashes."""
    with contextlib.suppress(WorkError):  # the marker is damaged, and does not say which
        for name in added_files(folder, read_done(folder)):
            (folder / name).unlink()


def _whole(work: StepOutput, check: Callable[[Path], object] | None) -> dict[str, Any] | None:
    """The marker of finished work; None if it is not finished.

    Raises:
      WorkError: something that the marker vouches for is gone, or has changed.
    """
    if (done := _marker(work)) is None:
        return None

    # Cheap checks first; hashing all files comes last.
    if (key := done.get("key", work.key)) != work.key:
        raise WorkError(f"{work.uri}: its {DONE} is that of other work, {key}, as if copied here")
    if missing := _gone(work, done["outputs"].values()):
        raise WorkError(f"{work.uri}: {', '.join(missing)} is gone")
    if unread := done["counts"].get(INCOMPLETE):
        raise WorkError(f"{work.uri}: {unread:,} recordings were gone or cut short then, and may be there now")
    if work.bucket_step is None and (changed := _changed(work.folder, done.get("bytes", {}))):
        raise WorkError(f"{work.uri}: {', '.join(changed)} is not as it was written, as if half copied")
    if work.bucket_step is None and (damaged := changed_files(work.folder, done)):
        raise WorkError(f"{work.uri}: {describe_changes(damaged)} has changed since it was written")

    if check:
        ensure_local(work.folder / file for file in done["outputs"].values())
        check(work.folder)
    return done


def _marker(work: StepOutput) -> dict[str, Any] | None:
    if work.bucket_step is None:
        return read_done(work.folder) if (work.folder / DONE).is_file() else None
    work.bucket_step.load_marker()
    work.folder = work.bucket_step.folder
    return work.bucket_step.done


def _gone(work: StepOutput, outputs: Iterable[str]) -> list[str]:
    if work.bucket_step:
        return work.bucket_step.missing_outputs(outputs)
    return [file for file in outputs if not (work.folder / file).exists()]


def _changed(folder: Path, sizes: dict[str, int]) -> list[str]:
    current_sizes = file_sizes(folder, sizes)
    return [
        f"{file} ({current_sizes.get(file, 0):,} of {size:,} bytes)"
        for file, size in sizes.items()
        if current_sizes.get(file) != size
    ]


@contextlib.contextmanager
def joined_step(
    store: Path | str, step: str, settings: Settings, inputs: dict[str, Any], *, revision: int = 1
) -> Iterator[StepOutput]:
    """The same work for a machine that helps the one that has claimed it: nothing of what it writes counts."""
    _, folder = step_key(store, step, settings, inputs, revision)

    # Finished work needs no help.
    work = StepOutput(step, folder, folder.name, reused=is_finished(store, folder))
    if is_remote(store) and not work.reused:
        work.bucket_step = BucketStep(uri_of(folder))
        work.bucket_step.join()
        work.folder = work.bucket_step.folder
    yield work
    if work.bucket_step:
        shutil.rmtree(work.folder, ignore_errors=True)
