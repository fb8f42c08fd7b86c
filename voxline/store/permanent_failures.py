"""Attempts of one step in one run on a cluster: what failed for good is not tried again, what failed for now is.

A cluster retries a step whose pod failed, and cannot distinguish a lost machine from a damaged corpus: Kubeflow
Pipelines passes no exit status on. So a step that fails for good leaves a note in the store, under the name of its
run, and later attempts end at once with the same message. A `TransientError`, a `PreconditionError` and a killed
process leave none. The first attempt of a run ignores notes, so a manual restart always runs.
"""

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.store.objects import open_store
from voxline.store.store_locks import reset_snapshot

ATTEMPT_ENV = "VOXLINE_ATTEMPT"
"""The cluster sets it to the name of this attempt: `asr-x7k2p.root.train.executor(1)`."""

RESTARTS_ENV = "VOXLINE_RESTARTS"
RESTART_SECONDS_ENV = "VOXLINE_RESTART_SECONDS"
"""The cluster sets them to `retries` and `retry_seconds` of the step."""

NOTES = "failures"
Result = TypeVar("Result")

_KINDS: dict[str, type[VoxlineError]] = {"settings": SettingsError, "work": WorkError}
_NAME = re.compile(r"(?P<step>.+)\((?P<number>\d+)\)")


@contextlib.contextmanager
def fail_fast(store: Path | str) -> Iterator[None]:
    """Fails at once if an earlier attempt failed for good, and leaves a note if this one does.

    >>> import tempfile
    >>> store = tempfile.mkdtemp()
    >>> for number in (0, 1):
    ...     os.environ[ATTEMPT_ENV] = f"asr-x7k2p.root.train.executor({number})"
    ...     try:
    ...         with fail_fast(store):
    ...             print("trains for hours")
    ...             raise WorkError("the loss is not finite; lower train.learning_rate")
    ...     except WorkError as error:
    ...         print(error)
    trains for hours
    the loss is not finite; lower train.learning_rate
    the loss is not finite; lower train.learning_rate (an earlier attempt of this run failed so too)
    >>> del os.environ[ATTEMPT_ENV]

    Raises:
      WorkError, SettingsError: the error of the earlier attempt.
    """
    name = _NAME.fullmatch(os.environ.get(ATTEMPT_ENV, ""))
    if name is None:
        yield
        return

    # The run's name is in the attempt's, so another run of the same step has its own note.
    note = FailureNote(str(store), f"{re.sub(r'[^A-Za-z0-9._-]', '_', name['step'])}.json")
    # The first attempt of a run never reads notes: a person started it again.
    if int(name["number"]) > 0 and (earlier := note.read()):
        raise earlier
    try:
        yield
    except (TransientError, PreconditionError):
        raise
    except (WorkError, SettingsError) as error:
        note.write(error)
        raise


def restart_transient(work: Callable[[], Result]) -> Result:
    """Does the work, and again after each transient error, as often as the environment says.

    A stock KFP 2.17 retries a pod that was lost, but not one that failed, whatever its exit status. The work resumes
    from what is in the store. Waits double; outside a cluster nothing is restarted.

    >>> tries = []
    >>> def work():
    ...     tries.append(1)
    ...     if len(tries) < 3:
    ...         raise TransientError("the bucket does not respond")
    >>> os.environ |= {RESTARTS_ENV: "2", RESTART_SECONDS_ENV: "0"}
    >>> restart_transient(work)
    the bucket does not respond; starting the step again in 0 s (1 of 2)
    the bucket does not respond; starting the step again in 0 s (2 of 2)
    >>> del os.environ[RESTARTS_ENV], os.environ[RESTART_SECONDS_ENV]
    """
    restarts = int(os.environ.get(RESTARTS_ENV, "0"))
    seconds = float(os.environ.get(RESTART_SECONDS_ENV, "30"))
    for number in range(restarts + 1):
        try:
            return work()
        except (TransientError, PreconditionError) as error:
            if number == restarts:
                raise
            wait = seconds * 2**number
            print(f"{error}; starting the step again in {wait:.0f} s ({number + 1} of {restarts})", flush=True)
            time.sleep(wait)
            reset_snapshot()  # it reads everything again, so a purge that ended meanwhile does not concern it
    raise AssertionError("the last attempt returned or raised")


@dataclasses.dataclass(frozen=True)
class FailureNote:
    """The note of one step of one run. An error in reading or writing it never hides the step's own."""

    store: str
    name: str

    def read(self) -> VoxlineError | None:
        try:
            noted = json.loads((open_store(self.store) / NOTES).read(self.name))
            return _KINDS[noted["error"]](f"{noted['message']} (an earlier attempt of this run failed so too)")
        except (VoxlineError, OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, error: VoxlineError) -> None:
        kind = next(name for name, kind in _KINDS.items() if isinstance(error, kind))
        noted = {"error": kind, "message": str(error)}
        with contextlib.suppress(VoxlineError, OSError):
            (open_store(self.store) / NOTES).write(self.name, json.dumps(noted, ensure_ascii=False).encode())
