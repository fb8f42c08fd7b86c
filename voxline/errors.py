"""Errors that a person can fix.

`WorkError` ends a command with exit status 1, `SettingsError` with 2, `TransientError` and `PreconditionError` with
75: only these are worth running again unchanged. Every message names the utterance, file or key, what was there, what
is accepted, and what to do next.
"""

from typing import Any


class VoxlineError(Exception):
    """An error that a person can fix; shown as one line, without a traceback."""

    exit_status = 1


class WorkError(VoxlineError):
    """The work failed: a recording, a file, a machine."""


class RefusedInputError(WorkError):
    """A step refuses its input, and wrote down why.

    Attributes:
      output: the step's output (a `StepOutput`): complete, with its pages, but not marked as done.
    """

    def __init__(self, message: str, output: Any = None) -> None:
        super().__init__(message)
        self.output = output


class NoCredentialsError(WorkError):
    """This machine has no credentials for a storage at all; a pod may have those of its service account."""


class TransientError(WorkError):
    """A storage or a network failed: the same command may succeed when it is run again."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h


class PreconditionError(WorkError):
    """An object is not the generation that was expected: another process wrote or deleted it.

    A new run reads the current state.
    """

    exit_status = TransientError.exit_status


class SettingsError(VoxlineError):
    """The command or the config is wrong; no work was started."""

    exit_status = 2


class MissingPackageError(SettingsError):
    """A package is not installed; the message names the extra that brings it (`voxline.extras`)."""
