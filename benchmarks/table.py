"""The table that `make bench` prints: each figure next to a peer's, measured in the same run."""

import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from voxline.metrics.bootstrap import SumAndWeight

INSTRUCTIONS = ("amx_tile", "avx512f", "avx2")
"""The widest first."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
      name: what was measured.
      ours, peer: both figures as text, with their unit: "2.1 ms a file".
      ratio: the ratio that `target` bounds.
      target: the bound on the ratio, such as ">= 15".
      ok: whether the ratio meets the target.
    """

    name: str
    ours: str
    peer: str
    ratio: float
    target: str
    ok: bool

    @classmethod
    def of(cls, name: str, ours: str, peer: str, ratio: float, bound: Literal[">=", "<="], limit: float) -> "Row":
        """A row whose target is a bound on the ratio.

        >>> Row.of("reading", "1 ms", "30 ms", 30.0, ">=", 20)
        Row(name='reading', ours='1 ms', peer='30 ms', ratio=30.0, target='>= 20', ok=True)
        """
        return cls(name, ours, peer, ratio, f"{bound} {limit:g}", ratio >= limit if bound == ">=" else ratio <= limit)


def peak_memory_row(name: str, peer_bytes: int) -> Row:
    """The largest resident memory of this process until now beside that of a peer's process, libraries included."""
    own_bytes = peak_memory()
    texts = [f"{size / 1e9:.2f} GB" for size in (own_bytes, peer_bytes)]
    return Row.of(f"{name}: memory, x PyTorch's", texts[0], texts[1], own_bytes / peer_bytes, "<=", 1.0)


def peak_memory() -> int:
    """The largest resident memory of this program, in bytes: `getrusage` counts that of what started it, too."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def processor() -> str:
    """The processor's name, with its widest vector instructions."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = set(text.split())
    widest = next((flag for flag in INSTRUCTIONS if flag in flags), "")
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    limited = f"(oneDNN limited to {limit})" if limit else ""
    return " ".join(filter(None, [name.group(1) if name else "unknown processor", widest, limited]))


def print_table(rows: Iterable[Row]) -> None:
    """Prints rows as a Markdown table, the processor to standard error; exits with status 1 if one misses its target.

    >>> print_table([Row.of("reading", "1 ms", "30 ms", 30.0, ">=", 20)])
    | what    | ours | peer  | ratio | target |    |
    | ------- | ---- | ----- | ----- | ------ | -- |
    | reading | 1 ms | 30 ms | 30    | >= 20  | ok |
    """
    rows = list(rows)
    cells = [["what", "ours", "peer", "ratio", "target", ""]]
    cells += [[r.name, r.ours, r.peer, f"{r.ratio:.3g}", r.target, "ok" if r.ok else "MISSED"] for r in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    cells.insert(1, ["-" * max(width, 2) for width in widths])
    for line in cells:
        print("| " + " | ".join(cell.ljust(max(width, 2)) for cell, width in zip(line, widths, strict=True)) + " |")
    print(f"measured on {len(os.sched_getaffinity(0))} cores of {processor()}", file=sys.stderr)
    missed = [row.name for row in rows if not row.ok]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


def with_interval(values: "Sequence[SumAndWeight]") -> str:
    """An error rate, with its interval over recordings."""
    from voxline.metrics.bootstrap import Bootstrap, aggregate

    interval = Bootstrap().interval(values, [""] * len(values))
    return f"{aggregate(values):.1%} ({interval.low:.1%} to {interval.high:.1%})"


def cpu_seconds() -> float:
    """Processor time of this process and of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
