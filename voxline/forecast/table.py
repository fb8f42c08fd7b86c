"""Reads the columns of a CSV file as series to forecast: a row a step, oldest first.

  day,visitors,share
  2026-01-01,120,0.5
  2026-01-02,,0.25

The first line names the columns. An empty cell is a gap. A first column of text or dates names the rows.
"""

import csv
import dataclasses
import datetime
import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from voxline.errors import WorkError
from voxline.store.size_limits import SizeLimitError, iter_bounded_lines, open_regular

MAX_LINE = 65_536
"""Bytes of a line."""
LARGEST = 1e100
"""Of a value."""


@dataclasses.dataclass(frozen=True)
class Table:
    """The columns of numbers in a CSV file.

    Attributes:
      columns: values by name, oldest first, one for each row that was kept; NaN where a cell is empty.
      rows: names of these rows: their first cell if that column has no numbers, else "line 7".
      total: rows of the file.
    """

    columns: dict[str, list[float]]
    rows: list[str]
    total: int


def read_columns(file: Path, names: Sequence[str] = (), latest: int = 10_000) -> Table:
    """Reads a CSV file in UTF-8, whose cells are separated by commas, semicolons or tabs.

    Args:
      names: of the columns to read; empty: all whose first value is a number.
      latest: rows that are kept, the last ones. All are checked.

    Raises:
      WorkError: the file is not a table of that kind; names the line.
    """
    try:
        with open_regular(file) as opened:
            return _read(file, opened, names, latest)
    except OSError as error:
        raise WorkError(f"{file}: cannot be read ({error.strerror or error})") from None
    except SizeLimitError as error:
        raise WorkError(str(error)) from None


def _read(file: Path, opened: IO[bytes], names: Sequence[str], latest: int) -> Table:
    # Spreadsheets of many countries write semicolons, since their decimal mark is the comma.
    lines = _decode(file, opened)
    first = next(lines, "")
    reader = csv.reader(itertools.chain([first], lines), delimiter=max(",;\t", key=first.count), strict=True)
    rows = _rows(file, reader)
    header = _check_header(file, next(rows, []), names)

    # What a column holds, its first value decides: numbers, or text, which is left alone.
    is_number: dict[int, bool] = {at: True for at, name in enumerate(header) if name in names}
    kept: deque[tuple[str, dict[int, float]]] = deque(maxlen=latest)
    total = 0
    before = ""
    for cells in rows:
        where = f"line {reader.line_num}"
        if len(cells) != len(header):
            raise WorkError(f"{file}, {where}: {len(cells)} cells, and the first line names {len(header)} columns")

        # Empty cells have no value: the filter passes over gaps.
        values: dict[int, float] = {}
        for at, cell in enumerate(cells):
            if cell and (at in is_number or not names):
                value = _number(cell)
                if is_number.setdefault(at, value is not None):
                    if value is None:
                        raise WorkError(
                            f"{file}, {where}: column {header[at]!r} has {cell[:60]!r}; a number such as 12.5 is "
                            "accepted, or nothing where none was measured"
                        )
                    values[at] = value

        # All rows are checked, also those that are not kept.
        label = "" if is_number.get(0) else cells[0]
        _check_order(file, where, before, label)
        before = label
        total += 1
        kept.append((label or where, values))

    # In the order of the file.
    numeric = [at for at in sorted(is_number) if is_number[at]]
    if not numeric:
        raise WorkError(f"{file}: no column of numbers in its {total:,} rows; it has: {', '.join(header)}")
    columns = {header[at]: [values.get(at, math.nan) for _, values in kept] for at in numeric}
    return Table(columns, [label for label, _ in kept], total)


def _decode(file: Path, opened: IO[bytes]) -> Iterator[str]:
    for number, line in iter_bounded_lines(opened, file, MAX_LINE):
        # Spreadsheets put a byte order mark before the first name.
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise WorkError(
                f"{file}, line {number}: no text in UTF-8 ({error.reason}); save the file as such"
            ) from None


def _rows(file: Path, reader: Any) -> Iterator[list[str]]:
    """The cells of each row without spaces around them; rows of nothing are passed over, as at the end of a file."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise WorkError(f"{file}, line {reader.line_num}: no row of a CSV file ({error})") from None
        if any(cells):
            yield [cell.strip() for cell in cells]


def _check_header(file: Path, header: list[str], names: Sequence[str]) -> list[str]:
    if not header:
        raise WorkError(f"{file}: it is empty; a first line with the names of columns, and a row a step are accepted")
    if any(_number(name) is not None for name in header):
        raise WorkError(f"{file}, line 1: {', '.join(header[:4])} are values; the first line names the columns")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise WorkError(
            f"{file}, line 1: {', '.join(map(repr, repeated))} names several columns; give each its own name"
        )
    if unknown := [name for name in names if name not in header]:
        raise WorkError(f"{file}: no column {', '.join(unknown)}; it has: {', '.join(header)}")
    return header


def _check_order(file: Path, where: str, before: str, label: str) -> None:
    """Refuses dates that do not ascend: the forecast would run into the past."""
    # A date with a time zone and one without cannot be compared.
    dates = _date(before), _date(label)
    if dates[0] and dates[1] and dates[0].tzinfo == dates[1].tzinfo and dates[1] <= dates[0]:
        raise WorkError(f"{file}, {where}: {label} follows {before}; rows are accepted oldest first, each once")


def _number(cell: str) -> float | None:
    """The number in a cell; None: it holds something else, or one that is not below `LARGEST`.

    >>> _number("12.5"), _number("12,5"), _number("nan"), _number("1_000")
    (12.5, None, None, None)
    """
    try:
        value = float(cell)
    except ValueError:
        return None
    # Python accepts 1_000, nan and inf, which no table means as a measured value; squares must be finite, too.
    return value if abs(value) < LARGEST and "_" not in cell else None


def _date(cell: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(cell)
    except ValueError:
        return None
