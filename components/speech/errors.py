"""The two ways in which work stops, told to the person who can mend it.

`WorkError` ends a command with exit status 1, `SettingsError` with 2. Both carry one message that
names the utterance, file or key, what was there, what is accepted, and what to do next.
"""


class VoxlineError(Exception):
    """Something that a person can mend; shown as one line, without a traceback."""

    exit_status = 1


class WorkError(VoxlineError):
    """The work failed: a recording, a file, a machine."""


class SettingsError(VoxlineError):
    """The command or the config is wrong; nothing was started."""

    exit_status = 2
