"""Why a step stopped, read from what it printed."""

import subprocess
import sys
import textwrap

import pytest

from voxline.pipelines.local.failure import Failure, parse_failure


def printed(code: str, indentation: str = "    ") -> list[str]:
    """What a process that runs the code prints, indented as kfp does."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    return [indentation + line for line in done.stderr.splitlines()] + [indentation, ""]


def test_our_own_error_is_shown_without_a_traceback() -> None:
    told = parse_failure(printed("from voxline.errors import WorkError; raise WorkError('a.flac: cut short')"))
    assert told == Failure("a.flac: cut short")


def test_a_wrong_setting_keeps_all_its_lines_and_its_exit_status() -> None:
    code = "from voxline.errors import SettingsError; raise SettingsError('one\\ntwo')"
    assert parse_failure(printed(code)) == Failure("one\ntwo", exit_status=2)


@pytest.mark.parametrize("error", ["TransientError", "PreconditionError"])
def test_a_transient_error_has_its_own_exit_status(error: str) -> None:
    code = f"from voxline.errors import {error}; raise {error}('gs://a/b: start again')"
    assert parse_failure(printed(code)) == Failure("gs://a/b: start again", exit_status=75)


def test_other_errors_show_the_frames_of_our_code() -> None:
    told = parse_failure(printed("from voxline.store.hashing import hash_value; hash_value({7})"))
    assert told.message.startswith("TypeError: Object of type set is not JSON serializable")
    assert [frame.split(":")[0] for frame in told.frames] == ["voxline/store/hashing.py"]


def test_the_last_of_chained_errors_counts() -> None:
    code = """
        from voxline.errors import WorkError
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise WorkError("no frames") from error
    """
    assert parse_failure(printed(code, "")).message == "no frames"


def test_a_killed_process_is_reported() -> None:
    assert "out of memory" in parse_failure(["    epoch 1", ""]).message
