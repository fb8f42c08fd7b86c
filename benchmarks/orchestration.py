"""The overhead of running the demo as a graph, beyond its steps' own work; and the cost of importing a step.

python -m benchmarks.orchestration
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.table import Row, print_table

ROOT = Path(__file__).parent.parent
STEPS = ("ingest", "convert", "validate", "extract", "evaluate", "push")
ROUNDS = 5


def overhead() -> Row:
    """Runs the demo from scratch; all time outside the steps' `run` functions counts as orchestration."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        _voxline("corpus", "demo", f"{folder}/corpus")
        _voxline(
            "run", "asr", "--config", "configs/asr/demo.yaml", "--run-dir", f"{folder}/run",
            "--set", f"corpus.uri={folder}/corpus/LibriSpeech",
        )  # fmt: skip
        total = time.perf_counter() - start
        record = json.loads((Path(folder) / "run" / "run.json").read_text(encoding="utf-8"))
        generated = total - record["seconds"]
        inside = sum(step["seconds"] for step in record["steps"])
    outside = record["seconds"] - inside
    return Row.of(
        "kfp.local and process starts, share of the demo's time",
        f"{outside:.0f} s",
        f"{total:.0f} s ({inside:.0f} s in steps, {generated:.0f} s for the corpus)",
        outside / total,
        "<=",
        0.25,
    )


def imports() -> Row:
    """The slowest import of a step, measured in separate processes, next to TensorFlow's."""
    seconds = {f"voxline.components.{step}.step": _import_seconds(f"voxline.components.{step}.step") for step in STEPS}
    slowest = max(seconds, key=lambda module: seconds[module])
    return Row.of(
        "slowest import of a step without TensorFlow, seconds",
        f"{seconds[slowest]:.2f} s ({slowest})",
        f"{_import_seconds('tensorflow', rounds=1):.1f} s (tensorflow)",
        seconds[slowest],
        "<=",
        0.3,
    )


def _voxline(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "voxline", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _import_seconds(module: str, rounds: int = ROUNDS) -> float:
    program = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", program]
    answers = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True) for _ in range(rounds)]
    return statistics.median(float(answer.stdout.splitlines()[-1]) for answer in answers)


def main() -> None:
    print_table([imports(), overhead()])


if __name__ == "__main__":
    main()
