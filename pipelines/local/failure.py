"""Why a step failed, parsed from its output: a message for the user, and the frames of our own code."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import voxline
from voxline import errors
from voxline.errors import MissingPackageError
from voxline.extras import missing_package

_PACKAGE = Path(voxline.__path__[0])
_TRACEBACK = "Traceback (most recent call last):"
# As Python prints them: `  File "/x/a.py", line 3, in f`, and `voxline.errors.WorkError: no utterance came in`.
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")


@dataclasses.dataclass(frozen=True)
class Failure:
    """The cause of a step's failure.

    Attributes:
      message: the fault and its fix.
      frames: of our own code, outermost first; empty if the message says everything.
      exit_status: of the command.
    """

    message: str
    frames: tuple[str, ...] = ()
    exit_status: int = 1


def parse_failure(output: Sequence[str]) -> Failure:
    """Parses the last traceback in a step's output.

    >>> parse_failure(
    ...     [
    ...         "Traceback (most recent call last):",
    ...         '  File "/x/a.py", line 3, in f',
    ...         "    f()",
    ...         "voxline.errors.WorkError: no utterance came in; check corpus.uri",
    ...     ]
    ... )
    Failure(message='no utterance came in; check corpus.uri', frames=(), exit_status=1)
    """
    # An error that another one caused prints two tracebacks; the last one is what the step ended with.
    starts = [number for number, line in enumerate(output) if line.strip() == _TRACEBACK]
    if not starts:
        return Failure("it ended without a message; it may have been killed or out of memory")

    # Frames and their source lines are indented; the first line that is not names the error.
    frames: list[str] = []
    indentation = output[starts[-1]].partition(_TRACEBACK)[0]  # kfp indents what a task prints
    lines = [line.removeprefix(indentation) for line in output[starts[-1] + 1 :]]
    while lines and (lines[0].startswith(" ") or not lines[0].strip()):
        line = lines.pop(0)
        frame = _FRAME.match(line)
        if frame:
            file = Path(frame["file"])
            if file.is_relative_to(_PACKAGE):
                frames.append(f"{file.relative_to(_PACKAGE.parent)}:{frame['line']} in {frame['function']}")
    if not lines:
        return Failure("its output ends in the middle of a traceback", tuple(frames))

    error = _ERROR.match(lines[0])
    if error is None:
        return Failure(lines[0].strip(), tuple(frames))

    # A step in a process of its own found a package absent.
    name = error["type"]
    absent = re.search(r"No module named '([\w.]+)'", error["message"] or "") if name == "ModuleNotFoundError" else None
    if absent and absent[1].partition(".")[0] != "voxline":
        return Failure(str(missing_package(absent[1])), exit_status=MissingPackageError.exit_status)

    # Our errors are written for the user, who needs no frames; any other is a bug, and is reported with them.
    is_voxline_error = name.startswith(errors.__name__ + ".")
    error_class = getattr(errors, name.rpartition(".")[2], None) if is_voxline_error else None
    if error_class is None:
        return Failure(f"{name}: {error['message'] or 'no message'}", tuple(frames))
    return Failure("\n".join([error["message"] or "", *_until_blank(lines[1:])]), exit_status=error_class.exit_status)


def _until_blank(lines: list[str]) -> list[str]:
    """The further lines of an error's message, which end at an empty line."""
    for number, line in enumerate(lines):
        if not line.strip():
            return lines[:number]
    return lines
