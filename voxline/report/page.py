"""Pages and their blocks, and slots that a later step fills."""

import base64
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup, escape

from voxline.errors import WorkError
from voxline.progress import neutralize
from voxline.store.files import write_text

if TYPE_CHECKING:
    import jinja2

Block = Markup
"""HTML from a function of this package. Any other text is escaped."""

Tone = Literal["good", "bad", "caution", "plain"]
"""The tone of a badge or banner, shown by a color and a sign: ✓ ✗ ! ·"""

SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "caution": "!", "plain": "·"}

LONG_TEXT = 30
"""Characters of a cell from which on its column is a wide one."""

_AMOUNT = r"[+\-−]?\d[\d,.]*(?: ?[^\W\d]\S{0,9})?%?×?"
_NUMBER = re.compile(rf"{_AMOUNT}(?: (?:to|of) {_AMOUNT}| \([^)]*\))?")
"""A number with its unit, two of them, or one with a remark: "3.10%", "−0.5 dB", "1 to 2", "2 of 12", "18 (1.18%)"."""

MISSING_VALUE = "—"
"""Shown for a value that is absent or not a number."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src data:; img-src data:; base-uri 'none'; form-action 'none'"
)
"""Allows the page its own styles, and embedded audio and images; no script, no network. A page with a table to explore
adds the hash of the one script that sorts and searches it (`table.js`)."""

_EXPLORER = "<table data-explorer>"
_BADGE = '<span class="badge'


class Page:
    """A self-contained HTML page.

    Args:
      title: for the browser's tab and the top of the page.
      lead: one or two sentences below the title.
      footer: small print at the end.
    """

    def __init__(self, title: str, lead: str = "", footer: str = "") -> None:
        self.title = title
        self.lead = lead
        self.footer = footer
        self._opening: list[Block | str] = []
        self._sections: list[tuple[str, list[Block | str]]] = []

    def add_opening(self, *blocks: Block | str) -> None:
        """Adds blocks before the first section: the result, the main metrics."""
        self._opening.extend(blocks)

    def add_section(self, heading: str, *blocks: Block | str) -> None:
        """Adds a section. Text that is not a block is escaped."""
        self._sections.append((heading, list(blocks)))

    def html(self) -> str:
        # A corpus cannot bring the script in: in its texts "<" is escaped.
        blocks = [*self._opening, *(block for _, inside in self._sections for block in inside)]
        explores = any(isinstance(block, Markup) and _EXPLORER in block for block in blocks)
        script = _read_script() if explores else ""

        # Control characters of a corpus are shown, and not obeyed.
        return neutralize(
            template_environment()
            .get_template("page.html.j2")
            .render(
                title=self.title,
                lead=self.lead,
                footer=self.footer,
                opening=self._opening,
                sections=self._sections,
                script=Markup(script),  # noqa: S704 - a file of this package
                policy=CONTENT_SECURITY_POLICY + (f"; script-src '{_script_hash(script)}'" if script else ""),
            )
        )

    def write(self, path: Path) -> None:
        """Writes the page; the file appears whole or not at all."""
        write_text(path, self.html())


def slot(name: str, content: Block | str = "") -> Block:
    """A part of a page that `fill_slot` replaces later; until then it shows `content`."""
    return Markup("{}{}{}").format(_slot_start(name), content, _slot_end(name))


def fill_slot(html: str, name: str, content: Block | str) -> str:
    """Returns a page with the content of a slot replaced. Text that is not a block is escaped.

    >>> page = Page("A model")
    >>> page.add_opening(slot("verdict", "not judged yet"))
    >>> judged = fill_slot(page.html(), "verdict", "refused: 3 < 4")
    >>> "not judged yet" in judged, "refused: 3 &lt; 4" in judged
    (False, True)

    Raises:
      WorkError: the page does not have the slot.
    """
    # The first slot of that name: names are unique in a page.
    before, begin, remainder = html.partition(_slot_start(name))
    _, end, after = remainder.partition(_slot_end(name))
    if not begin or not end:
        raise WorkError(f"the page has no slot {name!r} to fill; evaluate writes one, so run it again")
    return f"{before}{begin}{neutralize(escape(content))}{end}{after}"


def retitle(html: str, title: str) -> str:
    """Returns a page with another title, in its tab and at its top.

    >>> "<h1>Nightly: a &lt;model&gt;</h1>" in retitle(Page("A model").html(), "Nightly: a <model>")
    True
    """
    for tag in ("title", "h1"):
        html = re.sub(rf"<{tag}>[^<]*</{tag}>", lambda _, tag=tag: f"<{tag}>{escape(title)}</{tag}>", html, count=1)  # type: ignore[misc]
    return html


def paragraphs(text: str) -> Block:
    """Paragraphs, separated by empty lines in the text."""
    return _render_block("paragraphs", [part.strip() for part in text.split("\n\n") if part.strip()])


def small_print(text: str) -> Block:
    """A remark in small type, such as how to read a number."""
    return _render_block("small_print", text)


def stat_cards(values: Mapping[str, Any]) -> Block:
    """Cards with a name and a large value."""
    return _render_block("stat_cards", [(name, _format_cell(value)) for name, value in values.items()])


def data_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", label: str = "") -> Block:
    """A table that scrolls sideways on a narrow page.

    Columns that hold only numbers are right-aligned. Integers get thousands separators, floats four significant digits;
    pass a string for another format.

    Args:
      label: its name for readers who cannot see it, where no caption says it.

    Raises:
      ValueError: a row has more or fewer cells than there are columns.

    >>> print(data_table(["name", "n"], [["<b>", 1234]]).count("&lt;b&gt;"), "1,234" in data_table(["n"], [[1234]]))
    1 True
    """
    return _table(columns, rows, caption, label or caption, explorer=False)


def explorer_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], label: str, caption: str = "") -> Block:
    """A long table, which scrolls within the page; where scripts run it can be searched, and sorted by each column.

    Put the rows first that matter most: without a script they stay in this order.

    Args:
      label: the table's name for readers who cannot see it.

    Raises:
      ValueError: a row has more or fewer cells than there are columns.
    """
    return _table(columns, rows, caption, label, explorer=True)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, label: str, *, explorer: bool) -> Block:
    # Read once: rows may be an iterator.
    cells = [list(row) for row in rows]
    wrong = next((row for row in cells if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"table {caption!r}: a row has {len(wrong)} cells for {len(columns)} columns: {wrong!r}")
    numeric = [bool(cells) and all(_is_numeric(row[index]) for row in cells) for index in range(len(columns))]
    shown = [[_format_cell(cell) for cell in row] for row in cells]
    # Only what is long needs room: a transcript among numbers.
    long = [any(len(row[index]) > LONG_TEXT for row in shown[:50]) for index in range(len(columns))]

    kinds = ["number" if number else "long" if wide else "" for number, wide in zip(numeric, long, strict=True)]
    # Of results and what was found, a phone shows each row as lines of its own.
    is_of_results = long[-1:] == [True] and all(str(row[0]).startswith(_BADGE) for row in shown)
    return _render_block("data_table", columns, shown, kinds, caption, label, explorer, is_of_results)


def link(text: str, target: str) -> Block:
    """A link to a part of the page (`#id`) or to a file beside it."""
    return Markup('<a href="{}">{}</a>').format(target, text)


def anchor(name: str) -> Block:
    """The target of a link within the page."""
    return Markup('<span id="{}" class="anchor"></span>').format(name)


def badge(text: str, tone: Tone = "plain") -> Block:
    """A short label in a line or a cell: a sign, a word, a color."""
    return _render_block("badge", text, tone, SIGNS[tone])


def verdict_banner(heading: str, text: str = "", tone: Tone = "plain") -> Block:
    """The main result of the page, at its top."""
    return _render_block("verdict_banner", heading, text, tone, SIGNS[tone])


def figure(plot: Block, caption: str = "", alt: str = "") -> Block:
    """A plot with its caption; `alt` names it for readers who cannot see it, so no two plots of a page share one."""
    # Screen readers announce the name instead of the shapes.
    named = Markup('role="img" aria-label="{}"').format(alt or caption)
    return _render_block("figure", Markup(plot.replace('role="img"', named, 1)), caption)  # noqa: S704 - a block


def side_by_side(*blocks: Block) -> Block:
    """Blocks in a row on a wide page, and in a column on a narrow one."""
    return _render_block("side_by_side", blocks)


def details(summary: str, *blocks: Block, opened: bool = False) -> Block:
    """Blocks that the reader can unfold."""
    return _render_block("details", summary, blocks, opened)


def item_list(*blocks: Block) -> Block:
    """Blocks in a column, separated by lines, such as a list of utterances."""
    return _render_block("item_list", blocks)


def format_duration(seconds: float) -> str:
    """A duration for people.

    >>> format_duration(42), format_duration(738), format_duration(3_459_240)
    ('42 s', '12.3 min', '960.9 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def sentence_case(text: str) -> str:
    """The text with a capital at its begin; the others stay, unlike those of `str.capitalize`.

    >>> sentence_case("dev log-STFT distance")
    'Dev log-STFT distance'
    """
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "warning"), plural(1200, "utterance")
    ('1 warning', '1,200 utterances')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


@functools.cache
def template_environment() -> "jinja2.Environment":
    """The templates of this folder. They escape everything, and refuse undefined names."""
    import jinja2

    from voxline.report.compiled_templates import CompiledTemplates

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=CompiledTemplates(),
    )


@functools.cache
def _read_script() -> str:
    return Path(__file__).with_name("table.js").read_text(encoding="utf-8")


def _script_hash(script: str) -> str:
    """Hashes the only script that may run, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _render_block(macro: str, *values: Any) -> Block:
    """Renders one macro of blocks.html.j2."""
    return Markup(str(getattr(template_environment().get_template("blocks.html.j2").module, macro)(*values)))  # noqa: S704


def _is_numeric(cell: Any) -> bool:
    # A block is HTML: it is text, whatever it contains.
    if isinstance(cell, str) and not isinstance(cell, Markup):
        # A list of counts begins with a digit too, but is text; so are sentences and dates.
        return cell == MISSING_VALUE or _NUMBER.fullmatch(cell) is not None
    return cell is None or (isinstance(cell, int | float | np.number) and not isinstance(cell, bool))


def _format_cell(cell: Any) -> str | Markup:
    """A value as text."""
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


def _slot_start(name: str) -> Markup:
    # Text cannot contain this comment, since its "<" is escaped.
    return Markup("<!-- slot: {} -->").format(name)


def _slot_end(name: str) -> Markup:
    return Markup("<!-- end of slot: {} -->").format(name)
