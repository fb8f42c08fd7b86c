"""Attempts of one step in one run on a cluster: what failed for good is not tried again.

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
from collections.abc import Iterator
from pathlib import Path

from voxline.errors import PreconditionError, SettingsError, TransientError, VoxlineError, WorkError
from voxline.store.objects import open_store

ATTEMPT_ENV = "VOXLINE_ATTEMPT"
"""The cluster sets it to the name of this attempt: `asr-x7k2p.root.train.executor(1)`."""

NOTES = "failures"

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
    note = FailureNote(str(store), f"{re.sub(r'[^A-Za-z0-9._-]', '_', name['step'])}.json")
    if int(name["number"]) > 0 and (earlier := note.read()):
        raise earlier
    try:
        yield
    except (TransientError, PreconditionError):
        raise
    except (WorkError, SettingsError) as error:
        note.write(error)
        raise


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
            (open_store(self.store) / NOTES).write(self.name, json.dumps(noted).encode())
