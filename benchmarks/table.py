"""The table that `make bench` prints: each figure next to a peer's, measured in the same run."""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Literal


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


def print_table(rows: Iterable[Row]) -> None:
    """Prints the rows as a Markdown table; exits with status 1 if one misses its target.

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
    missed = [row.name for row in rows if not row.ok]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")
