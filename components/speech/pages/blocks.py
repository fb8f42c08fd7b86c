"""What a section of a page is made of: words, numbers, tables and figures."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup

if TYPE_CHECKING:
    import jinja2

Block = Markup
"""HTML that a function of this package made. Any other text is escaped wherever it is put."""

Tone = Literal["good", "bad", "caution", "plain"]
"""What a mark says. Each has a sign of its own beside its colour: ✓ ✗ ! ·"""

SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "caution": "!", "plain": "·"}
NOTHING = "—"
"""Stands where a value is absent or not a number."""


def prose(text: str) -> Block:
    """Paragraphs; an empty line parts two."""
    return _block("prose", [part.strip() for part in text.split("\n\n") if part.strip()])


def note(text: str) -> Block:
    """A remark in small type: what was left out, how a number is to be read."""
    return _block("note", text)


def facts(values: Mapping[str, Any]) -> Block:
    """Cards of a name and its value, the value large."""
    return _block("facts", [(name, _shown(value)) for name, value in values.items()])


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Block:
    """A table that scrolls sideways where the page is narrow.

    Columns that hold only numbers are aligned to the right. Integers are shown with thousands parted, floats
    to four significant digits; give a string where another form is wanted.

    >>> print(table(["name", "n"], [["<b>", 1234]]).count("&lt;b&gt;"), "1,234" in table(["n"], [[1234]]))
    1 True
    """
    cells = [list(row) for row in rows]
    wrong = next((row for row in cells if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"table {caption!r}: a row has {len(wrong)} cells for {len(columns)} columns: {wrong!r}")
    numeric = [bool(cells) and all(_is_numeric(row[place]) for row in cells) for place in range(len(columns))]
    return _block("table", columns, [[_shown(cell) for cell in row] for row in cells], numeric, caption)


def badge(text: str, tone: Tone = "plain") -> Block:
    """A short mark in a line or a cell: a sign, a word, a colour."""
    return _block("badge", text, tone, SIGNS[tone])


def verdict(heading: str, text: str = "", tone: Tone = "plain") -> Block:
    """The answer that the page gives, before anything else."""
    return _block("verdict", heading, text, tone, SIGNS[tone])


def figure(plot: Block, caption: str = "", alt: str = "") -> Block:
    """A plot with its caption; `alt` says in words what it shows, for those who cannot see it."""
    return _block("figure", plot, caption, alt or caption)


def side_by_side(*blocks: Block) -> Block:
    """Blocks beside each other where the page is wide, under each other where it is not."""
    return _block("side_by_side", blocks)


def details(summary: str, *blocks: Block, opened: bool = False) -> Block:
    """Blocks that are shown when a person asks for them."""
    return _block("details", summary, blocks, opened)


def listing(*blocks: Block) -> Block:
    """Blocks under each other, parted by a line: utterance after utterance."""
    return _block("listing", blocks)


@functools.cache
def environment() -> "jinja2.Environment":
    """The templates of this folder; all of them escape, and none accepts a name that it does not know."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _block(macro: str, *values: Any) -> Block:
    """Renders one macro of blocks.html.j2."""
    return Markup(str(getattr(environment().get_template("blocks.html.j2").module, macro)(*values)))  # noqa: S704


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, str) and not isinstance(cell, Markup):
        # A list of counts begins with a digit too, and is read as a sentence.
        return cell == NOTHING or (", " not in cell and cell.lstrip("+-−")[:1].isdigit())
    return cell is None or (isinstance(cell, int | float | np.number) and not isinstance(cell, bool))


def _shown(cell: Any) -> str | Markup:
    """A value as a person reads it."""
    if cell is None:
        return NOTHING
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, int | np.integer):
        return f"{int(cell):,}"
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if not math.isfinite(number):
            return NOTHING
        return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.4g}"
    return cell if isinstance(cell, str) else str(cell)
