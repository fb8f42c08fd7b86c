"""All figures of the README in one table: `make bench`. Each benchmark runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("conversion", "features", "extraction", "griffin_lim", "training", "orchestration")


def main() -> None:
    """Prints the rows of every benchmark; ends with status 1 where one missed its target or failed."""
    failed = []
    for number, name in enumerate(BENCHMARKS):
        print(f"benchmarks.{name} …", file=sys.stderr, flush=True)
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}"]
        answer = subprocess.run(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True)
        lines = [line for line in answer.stdout.splitlines() if line.startswith("|")]
        for line in lines if number == 0 else lines[2:]:
            print("| " + " | ".join(cell.strip() for cell in line.strip("|").split("|")) + " |", flush=True)
        if answer.returncode:
            failed.append(name)
    if failed:
        sys.exit(f"missed or failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
