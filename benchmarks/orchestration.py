"""The overhead of running the demo as a graph, beyond its steps' own work, the cost of comparing what steps read with
its hashes, and that of importing a step.

python -m benchmarks.orchestration
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.table import Row, print_table
from voxline.data.dataset import Dataset
from voxline.data.manifest import read_manifest
from voxline.data.recordings import remove_changed_audio
from voxline.pipelines.graphs import graph_of
from voxline.store.files import read_json
from voxline.store.finished import changed_files

ROOT = Path(__file__).parent.parent
STEPS = ("ingest", "convert", "validate", "extract", "evaluate", "push")
ROUNDS = 5


def overhead() -> list[Row]:
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
        verified = verification(record)
    outside = record["seconds"] - inside
    orchestrated = Row.of(
        "kfp.local and process starts, share of the demo's time",
        f"{outside:.0f} s",
        f"{total:.0f} s ({inside:.0f} s in steps, {generated:.0f} s for the corpus)",
        outside / total,
        "<=",
        0.25,
    )
    return [orchestrated, verified]


def verification(record: dict[str, Any]) -> Row:
    """Hashes what a run wrote as often as the run did: once to write the marker, and once for each step that reads it.

    Every WAV is read for each speed of extract, and those of the test split for evaluate, as the run does.
    """
    store = Path(record["store"])
    readers = Counter(producer for inputs in graph_of("asr").values() for producer in inputs.values())
    folders = {step["name"]: Path(step["folder"]) for step in record["steps"]}
    utterances = read_manifest(folders["convert"])
    speeds = Dataset.read_header(folders["extract"]).speeds
    changed: list[Any] = []
    start = time.perf_counter()
    for marker in store.glob("*/*/done.json"):
        for _ in range(1 + readers[marker.parent.parent.name]):
            changed += changed_files(marker.parent, read_json(marker))
    hashed = time.perf_counter() - start
    for _ in speeds:
        changed += remove_changed_audio(utterances)
    changed += remove_changed_audio(one for one in utterances if one.split == "test")
    seconds = time.perf_counter() - start
    if changed:
        sys.exit(f"not as the run wrote them: {changed[:3]}")
    return Row.of(
        "hashes of all that steps read, share of the demo's time",
        f"{seconds:.2f} s ({hashed:.2f} s for files, {seconds - hashed:.2f} s for WAVs)",
        f"{record['seconds']:.0f} s",
        seconds / record["seconds"],
        "<=",
        0.02,
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
    print_table([imports(), *overhead()])


if __name__ == "__main__":
    main()
