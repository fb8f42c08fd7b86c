"""The `voxline` command: in this process, which has imported everything already, or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch


def voxline(*arguments: str | Path, cwd: Path | None = None, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Runs the command in this process, as a terminal in the folder `cwd` would."""
    from voxline.pipelines.cli.main import main

    status, streams = 0, [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with (
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")),
        patch.dict(os.environ),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            main([*map(str, arguments)])
        except SystemExit as end:
            status = int(end.code or 0)
    printed = []
    for stream in streams:
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(list(arguments), status, *printed)


def voxline_process(
    *arguments: str | Path, cwd: Path | None = None, stdin: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the command in a process of its own: what it imports, prints from C++ and ends with is what a user gets."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "voxline", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
