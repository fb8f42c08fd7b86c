"""The smoke test: does the model load in a process that has nothing but its files, and repeat an output?

That process runs `python -m voxline.components.push.smoke_test FAMILY ARGUMENTS…`, and prints one line of JSON: what
the family's `repeat` returns, or {"error": …}.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import voxline
from voxline.components.push.gate import GateCheck
from voxline.errors import VoxlineError
from voxline.families.family import PushFamily, find_family
from voxline.garbage import collect_rarely
from voxline.metrics.evaluation import Evaluation

NAME = "smoke test"


def run_smoke_test(name: str, family: PushFamily, model: Path, evaluation: Evaluation, seconds: float) -> GateCheck:
    """Loads a model in a fresh process, and repeats an output that evaluate recorded.

    Args:
      name: of the family.
      model: the exported model's folder.
      seconds: longest time for the process.
    """
    # The process reports its own errors, and one that died or hung has no answer at all.
    arguments = [str(model), *family.smoke_test_arguments(evaluation)]
    answer = repeat_in_fresh_process(name, arguments, seconds)
    if family.smoke_test_output not in answer:
        detail = f"a fresh process could not {family.smoke_test_task}: {answer.get('error')}"
        return GateCheck(NAME, False, detail)
    repeated = family.compare_repeated(answer, evaluation)
    return GateCheck(NAME, repeated.passed, repeated.detail, repeated.difference, family.smoke_test_tolerance)


def repeat_in_fresh_process(family: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    """Calls a family's `repeat` in a fresh process.

    Args:
      seconds: longest time for that process, loading TensorFlow included.

    Returns:
      Its answer; {"error": why} if it gave none.
    """
    # -P keeps the current folder off the path, where a file may have the name of a package.
    command = [sys.executable, "-P", "-m", "voxline.components.push.smoke_test", family, *arguments]

    # Voxline itself comes from where this process has it, which may be a checkout that is not installed.
    root = str(Path(voxline.__path__[0]).parent)
    paths = [root, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        process = subprocess.run(  # noqa: S603  (our own argument list, no shell)
            command, capture_output=True, text=True, timeout=seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it took longer than {seconds:g} s (smoke_test_seconds)"}

    answer = _find_answer(process.stdout)
    return answer or {"error": _last_line(process.stderr) or f"it ended with status {process.returncode}"}


def _find_answer(output: str) -> dict[str, Any]:
    """The last line of JSON; {} if there is none. Libraries print to the same output."""
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


def main(family: str, *arguments: str) -> None:
    """Prints one line of JSON: what the family's `repeat` returns, or {"error": …}."""
    try:
        print(json.dumps(find_family(family).promotion().repeat(*arguments)))
    except (VoxlineError, OSError, ValueError) as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    collect_rarely()
    main(*sys.argv[1:])
