"""Prints the benchmark table of the README, or some of its rows; each benchmark runs in a separate process.

python -m benchmarks [NAME …]
"""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.table import processor

HERE = Path(__file__).parent
BENCHMARKS = ("conversion", "features", "extraction", "griffin_lim", "training", "synthesis", "orchestration")
"""Run by default."""
PARTS = ("__init__", "__main__", "table")


def main(names: list[str]) -> None:
    """Prints the rows of the given benchmarks; exits with status 1 if one missed its target or failed."""
    known = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in PARTS)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"benchmark {', '.join(unknown)}: accepted: {', '.join(known)}")
    failed: list[str] = []
    head: list[str] = []
    for name in names or BENCHMARKS:
        print(f"benchmarks.{name} …", file=sys.stderr, flush=True)
        head, succeeded = _run(name, head)
        if not succeeded:
            failed.append(name)
    print(f"\nmeasured on {len(os.sched_getaffinity(0))} cores of {processor()}")
    if failed:
        sys.exit(f"missed or failed: {', '.join(failed)}")


def _run(name: str, head: list[str]) -> tuple[list[str], bool]:
    """Prints a benchmark's rows as they come, after its table head if that differs from `head`.

    Returns:
      the table head, and whether the benchmark succeeded.
    """
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}"]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as running:
        rows = (line.strip().strip("|").split("|") for line in running.stdout or () if line.startswith("|"))
        known = False
        for number, row in enumerate(rows):
            cells = [cell.strip() for cell in row]
            if number == 0:
                known, head = cells == head, cells
            if number > 1 or not known:
                print("| " + " | ".join(cells) + " |", flush=True)
    return head, running.returncode == 0


if __name__ == "__main__":
    main(sys.argv[1:])
