"""Runs a step on a small disk: full, with room, read-only, and writable again.

Prints the messages, and whether the result is the same as on any other disk, as JSON.

  unshare --map-root-user --mount python -m tests.faults.small_disk extract /a/new/folder
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.steps import STEPS, end_state, fresh, make_corpus
from voxline.errors import WorkError

ROOM = "16m"


def main(name: str, root: Path) -> dict[str, Any]:
    step, corpus, usual, disk = STEPS[name], root / "corpus", root / "usual", root / "disk"
    make_corpus(corpus)
    usual.mkdir()
    disk.mkdir()
    step.prepare(corpus, usual)
    _mount("tmpfs", disk, f"size={ROOM}")
    here = fresh(usual, disk / "here")
    states = []
    for run in (step.first, step.second):
        run(corpus, usual)
        states.append(end_state(usual))
    filled = disk / "filled"
    with open(filled, "wb") as file:
        free = os.statvfs(disk)
        file.write(bytes((free.f_bavail - 1) * free.f_frsize))  # a page is left: the first writes succeed
    told: dict[str, Any] = {"full": _refusal(step.first, corpus, here)}
    filled.unlink()
    step.first(corpus, here)
    told["same once there is room"] = end_state(here) == states[0]
    _mount("tmpfs", disk, "remount,ro")
    told["reused"] = step.first(corpus, here).reused
    told["read only"] = _refusal(step.second, corpus, here)
    _mount("tmpfs", disk, "remount,rw")
    step.second(corpus, here)
    told["same once it may be written"] = end_state(here) == states[1]
    return told


def _refusal(run: Any, corpus: Path, folder: Path) -> str:
    try:
        run(corpus, folder)
    except WorkError as error:
        return str(error)
    return "it was done"


def _mount(kind: str, folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", kind, "-o", options, "none", folder], check=True)


if __name__ == "__main__":
    sys.stdout, printed = sys.stderr, sys.stdout
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2])), indent=1), file=printed)
