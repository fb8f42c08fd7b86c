"""A page as a whole, and the places in it that a later step fills."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup

if TYPE_CHECKING:
    import jinja2
from markupsafe import escape

from voxline.errors import WorkError
from voxline.store.files import write_text

Block = Markup
"""HTML that a function of this package made. Any other text is escaped wherever it is put."""

Tone = Literal["good", "bad", "caution", "plain"]
"""What a mark says. Each has a sign of its own beside its colour: ✓ ✗ ! ·"""

SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "caution": "!", "plain": "·"}
MISSING_VALUE = "—"
"""Stands where a value is absent or not a number."""


def paragraphs(text: str) -> Block:
    """Paragraphs; an empty line parts two."""
    return _render_block("prose", [part.strip() for part in text.split("\n\n") if part.strip()])


def small_print(text: str) -> Block:
    """A remark in small type: what was left out, how a number is to be read."""
    return _render_block("note", text)


def stat_cards(values: Mapping[str, Any]) -> Block:
    """Cards of a name and its value, the value large."""
    return _render_block("facts", [(name, _format_cell(value)) for name, value in values.items()])


def data_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Block:
    """A table that scrolls sideways where the page is narrow.

    Columns that hold only numbers are aligned to the right. Integers are shown with thousands parted, floats
    to four significant digits; give a string where another form is wanted.

    >>> print(data_table(["name", "n"], [["<b>", 1234]]).count("&lt;b&gt;"), "1,234" in data_table(["n"], [[1234]]))
    1 True
    """
    cells = [list(row) for row in rows]
    wrong = next((row for row in cells if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"table {caption!r}: a row has {len(wrong)} cells for {len(columns)} columns: {wrong!r}")
    numeric = [bool(cells) and all(_is_numeric(row[place]) for row in cells) for place in range(len(columns))]
    return _render_block("table", columns, [[_format_cell(cell) for cell in row] for row in cells], numeric, caption)


def badge(text: str, tone: Tone = "plain") -> Block:
    """A short mark in a line or a cell: a sign, a word, a colour."""
    return _render_block("badge", text, tone, SIGNS[tone])


def verdict_banner(heading: str, text: str = "", tone: Tone = "plain") -> Block:
    """The answer that the page gives, before anything else."""
    return _render_block("verdict", heading, text, tone, SIGNS[tone])


def figure(plot: Block, caption: str = "", alt: str = "") -> Block:
    """A plot with its caption; `alt` says in words what it shows, for those who cannot see it."""
    return _render_block("figure", plot, caption, alt or caption)


def side_by_side(*blocks: Block) -> Block:
    """Blocks beside each other where the page is wide, under each other where it is not."""
    return _render_block("side_by_side", blocks)


def details(summary: str, *blocks: Block, opened: bool = False) -> Block:
    """Blocks that are shown when a person asks for them."""
    return _render_block("details", summary, blocks, opened)


def item_list(*blocks: Block) -> Block:
    """Blocks under each other, parted by a line: utterance after utterance."""
    return _render_block("listing", blocks)


@functools.cache
def template_environment() -> "jinja2.Environment":
    """The templates of this folder; all of them escape, and none accepts a name that it does not know."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render_block(macro: str, *values: Any) -> Block:
    """Renders one macro of blocks.html.j2."""
    return Markup(str(getattr(template_environment().get_template("blocks.html.j2").module, macro)(*values)))  # noqa: S704


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, str) and not isinstance(cell, Markup):
        # A list of counts begins with a digit too, and is read as a sentence.
        return cell == MISSING_VALUE or (", " not in cell and cell.lstrip("+-−")[:1].isdigit())
    return cell is None or (isinstance(cell, int | float | np.number) and not isinstance(cell, bool))


def _format_cell(cell: Any) -> str | Markup:
    """A value as a person reads it."""
    if cell is None:
        return MISSING_VALUE
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, int | np.integer):
        return f"{int(cell):,}"
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if not math.isfinite(number):
            return MISSING_VALUE
        return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:.4g}"
    return cell if isinstance(cell, str) else str(cell)


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src data:; img-src data:; base-uri 'none'; form-action 'none'"
)
"""What a browser lets the page do: its own styles, sound and pictures that lie in it; no script, no network."""


class Page:
    """One HTML page that needs nothing but itself.

    Args:
      title: stands in the browser's tab and at the top.
      lead: one or two sentences under it: what this is, made of what.
      footer: small print at the end.
    """

    def __init__(self, title: str, lead: str = "", footer: str = "") -> None:
        self.title, self.lead, self.footer = title, lead, footer
        self._opening: list[Block | str] = []
        self._sections: list[tuple[str, list[Block | str]]] = []

    def opening(self, *blocks: Block | str) -> None:
        """Blocks before the first section: the verdict, the figures that matter."""
        self._opening.extend(blocks)

    def section(self, heading: str, *blocks: Block | str) -> None:
        """A section; text that is no block is escaped and stands as it is."""
        self._sections.append((heading, list(blocks)))

    def html(self) -> str:
        return (
            template_environment()
            .get_template("page.html.j2")
            .render(
                title=self.title,
                lead=self.lead,
                footer=self.footer,
                opening=self._opening,
                sections=self._sections,
                policy=CONTENT_SECURITY_POLICY,
            )
        )

    def write(self, path: Path) -> None:
        """Writes the page whole or not at all."""
        write_text(path, self.html())


def slot(name: str, content: Block | str = "") -> Block:
    """A place that `fill_slot` finds again; it shows `content` until then."""
    return Markup("{}{}{}").format(_slot_start(name), content, _slot_end(name))


def fill_slot(html: str, name: str, content: Block | str) -> str:
    """A page with its slot filled, whatever stood there before; text that is no block is escaped.

    >>> page = Page("A model")
    >>> page.opening(slot("verdict", "not judged yet"))
    >>> judged = fill_slot(page.html(), "verdict", "refused: 3 < 4")
    >>> "not judged yet" in judged, "refused: 3 &lt; 4" in judged
    (False, True)

    Raises:
      WorkError: the page has no such slot.
    """
    before, begin, rest = html.partition(_slot_start(name))
    _, end, after = rest.partition(_slot_end(name))
    if not begin or not end:
        raise WorkError(f"the page has no slot {name!r} to fill; evaluate writes one, so run it again")
    return f"{before}{begin}{escape(content)}{end}{after}"


def _slot_start(name: str) -> Markup:
    # Text cannot forge a mark: its "<" is always escaped.
    return Markup("<!-- slot: {} -->").format(name)


def _slot_end(name: str) -> Markup:
    return Markup("<!-- end of slot: {} -->").format(name)


def word_diff(reference: str, hypothesis: str) -> Block:
    """The two texts aligned as the word error rate counts them (jiwer); errors differ in sign, line and colour.

    >>> html = word_diff("the cat sat on a mat", "cat sat in a mat now")
    >>> [html.count(f"pair {kind}") for kind in ("delete", "substitute", "insert")]
    [1, 1, 1]
    """
    return _render_block("word_diff", _align_words(reference.split(), hypothesis.split()))


def word_diff_legend(heard_by: str = "the model") -> Block:
    """How `word_diff` is to be read; once a section."""
    return small_print(
        f"Above: what was said. Below: what {heard_by} heard. Struck through and “−”: left out; underlined and “+”: "
        "added; both, boxed: one word taken for another."
    )


def _align_words(said: list[str], heard: list[str]) -> list[tuple[str, str, str]]:
    """Pairs of words: (kind, said, heard), kind as jiwer names it: equal, delete, insert or substitute."""
    if not said or not heard:
        return [("delete", word, "") for word in said] + [("insert", "", word) for word in heard]
    import jiwer

    pairs = []
    (chunks,) = jiwer.process_words(" ".join(said), " ".join(heard)).alignments
    for chunk in chunks:
        above = said[chunk.ref_start_idx : chunk.ref_end_idx]
        below = heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
        length = max(len(above), len(below))
        above, below = above + [""] * (length - len(above)), below + [""] * (length - len(below))
        pairs += [(chunk.type, *pair) for pair in zip(above, below, strict=True)]
    return pairs
