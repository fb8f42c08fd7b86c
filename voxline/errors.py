"""The ways in which work stops, told to the person who can mend it.

`WorkError` ends a command with exit status 1, `SettingsError` with 2, an `Interruption` and a `Changed` with 75: these
alone are worth starting again as they are. All carry one message that names the utterance, file or key, what was there,
what is accepted, and what to do next.
"""


class VoxlineError(Exception):
    """Something that a person can mend; shown as one line, without a traceback."""

    exit_status = 1


class WorkError(VoxlineError):
    """The work failed: a recording, a file, a machine."""


class Interruption(WorkError):  # noqa: N818 - the word says it
    """A storage or a network did not do its part: the same command, started again, may finish the work."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h


class Changed(WorkError):  # noqa: N818 - what has happened, and it may be no fault
    """An object is not of the generation that was asked for: somebody else wrote or deleted it.

    Whoever starts again looks at what is there now.
    """

    exit_status = Interruption.exit_status


class SettingsError(VoxlineError):
    """The command or the config is wrong; nothing was started."""

    exit_status = 2
