"""What a process that knows nothing but a model's files makes of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import voxline


def run_in_fresh_process(module: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    """Runs a module of ours that prints its answer as one line of JSON.

    Args:
      seconds: how long that process may take, loading TensorFlow included.

    Returns:
      Its answer; {"error": why} where it gave none.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    home = str(Path(voxline.__path__[0]).parent)
    paths = [home, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(  # noqa: S603  (an argument list of ours, no shell)
            command, capture_output=True, text=True, timeout=seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it took longer than {seconds:g} s (clip_seconds)"}
    told = _answer(done.stdout)
    return told or {"error": _last_line(done.stderr) or f"it ended with status {done.returncode}"}


def _answer(output: str) -> dict[str, Any]:
    """The last line that is ours: libraries print too."""
    for line in reversed(output.splitlines()):
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            return values
    return {}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]
