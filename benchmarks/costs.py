"""What the steps cost by the number of utterances, measured by `growth` and `planning`, kept for `hours`.

Each cost is kept with the processor that it was measured on, so sizes can be measured on their own: a million takes an
hour.
"""

import dataclasses
import json
import os
from pathlib import Path

from benchmarks.table import processor
from voxline.store.files import atomic_write

COSTS = Path(__file__).parent / "growth.json"
LEAST = 500
"""Utterances from which on a cost is kept."""


@dataclasses.dataclass(frozen=True, order=True)
class Cost:
    """The cost of a step.

    Attributes:
      seconds: of processors, imports and child processes included.
      memory: bytes, the peak of the largest process.
      files: in the step's store when it has ended.
    """

    seconds: float
    memory: int
    files: int = 0

    @property
    def text(self) -> str:
        return f"{self.seconds:.1f} s, {self.memory / 1e6:.0f} MB, {self.files:,} files"


def record(step: str, size: int, cost: Cost) -> None:
    """Replaces what is known of this step and size; a try of a few utterances is not kept."""
    if size < LEAST:
        return
    known = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.is_file() else {}
    busy = f"{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}"
    known.setdefault(step, {})[str(size)] = {**dataclasses.asdict(cost), "on": f"{processor()}, {busy}"}
    known[step] = dict(sorted(known[step].items(), key=lambda entry: int(entry[0])))
    with atomic_write(COSTS, "w") as file:
        file.write(json.dumps(known, indent=1) + "\n")


def recorded() -> dict[str, dict[int, Cost]]:
    """All that is known, by step and number of utterances.

    Raises:
      SystemExit: it was measured on several machines, whose costs say nothing of each other.
    """
    known = json.loads(COSTS.read_text(encoding="utf-8"))
    machines = {cost["on"].rpartition(" with a load of ")[0] for by_size in known.values() for cost in by_size.values()}
    if len(machines) > 1:
        raise SystemExit(f"{COSTS}: costs of {' and of '.join(sorted(machines))}; measure all sizes on one")
    return {
        step: {int(size): Cost(cost["seconds"], cost["memory"], cost["files"]) for size, cost in by_size.items()}
        for step, by_size in known.items()
    }
