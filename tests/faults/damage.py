"""Damages each file that a step wrote in turn, runs the step again, and prints what it believed, as JSON.

  python -m tests.faults.damage convert /a/new/folder

Everything is imported once, and a worker of convert is a fork: its start would take longer than all else.
"""

import gc
import itertools
import json
import sys
from pathlib import Path

from tests.faults.inject import Forked
from tests.faults.steps import STEPS, fresh, make_corpus
from voxline.audio import worker_process
from voxline.errors import WorkError

DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "a line short": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    "other JSON": lambda data: b"[]\n",
}


def main(name: str, root: Path) -> dict[str, object]:
    """The number of damaged files, and (file, damage, what happened) of those that were neither mended nor refused."""
    gc.freeze()
    worker_process.subprocess.Popen = Forked  # type: ignore[misc]
    step, corpus, whole = STEPS[name], root / "corpus", root / "whole"
    make_corpus(corpus)
    whole.mkdir()
    step.prepare(corpus, whole)
    expected = [step.content(step.first(corpus, whole).folder)]
    expected.append(step.content(step.second(corpus, fresh(whole, root / "straight")).folder))
    files = [file.relative_to(whole) for file in sorted(whole.rglob("*")) if file.is_file() and file.stat().st_size]
    believed, tried = [], 0
    trials = (root / "trial" / str(number) for number in itertools.count())
    for file in files:
        for kind, damage in DAMAGE.items():
            if kind in ("a line short", "other JSON") and file.suffix not in (".json", ".jsonl"):
                continue
            trial = fresh(whole, next(trials))
            (trial / file).write_bytes(damage((trial / file).read_bytes()))
            tried += 1
            try:
                found = [step.content(run(corpus, trial).folder) for run in (step.first, step.second)]
            except WorkError as error:
                if str(file.parent.name) not in str(error):
                    believed.append((str(file), kind, str(error)))
            except Exception as error:
                believed.append((str(file), kind, repr(error)))
            else:
                if found != expected:
                    believed.append((str(file), kind, "other content"))
    return {"tried": tried, "believed": believed}


if __name__ == "__main__":
    sys.stdout, printed = sys.stderr, sys.stdout
    result = main(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps(result), file=printed, flush=True)
