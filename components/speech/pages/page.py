"""A page as a whole, and the places in it that a later step fills."""

from pathlib import Path

from markupsafe import Markup, escape

from components.speech.errors import WorkError
from components.speech.pages.blocks import Block, environment
from components.speech.storage import write_text

POLICY = (
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
            environment()
            .get_template("page.html.j2")
            .render(
                title=self.title,
                lead=self.lead,
                footer=self.footer,
                opening=self._opening,
                sections=self._sections,
                policy=POLICY,
            )
        )

    def write(self, path: Path) -> None:
        """Writes the page whole or not at all."""
        write_text(path, self.html())


def slot(name: str, content: Block | str = "") -> Block:
    """A place that `fill` finds again; it shows `content` until then."""
    return Markup("{}{}{}").format(_begin(name), content, _end(name))


def fill(html: str, name: str, content: Block | str) -> str:
    """A page with its slot filled, whatever stood there before; text that is no block is escaped.

    >>> page = Page("A model")
    >>> page.opening(slot("verdict", "not judged yet"))
    >>> judged = fill(page.html(), "verdict", "refused: 3 < 4")
    >>> "not judged yet" in judged, "refused: 3 &lt; 4" in judged
    (False, True)

    Raises:
      WorkError: the page has no such slot.
    """
    before, begin, rest = html.partition(_begin(name))
    _, end, after = rest.partition(_end(name))
    if not begin or not end:
        raise WorkError(f"the page has no slot {name!r} to fill; evaluate writes one, so run it again")
    return f"{before}{begin}{escape(content)}{end}{after}"


def _begin(name: str) -> Markup:
    # Text cannot forge a mark: its "<" is always escaped.
    return Markup("<!-- slot: {} -->").format(name)


def _end(name: str) -> Markup:
    return Markup("<!-- end of slot: {} -->").format(name)
