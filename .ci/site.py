"""Checks that the built docs site loads nothing from elsewhere: `python .ci/site.py`, part of `make docs`.

mkdocs checks the links between pages. A link that a reader may follow may lead anywhere; what a page loads may not.
"""

import re
import sys
from pathlib import Path

SITE = Path("site")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=["']?(?P<src>(?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*\bhref=["']?(?P<href>(?:https?:)?//[^"'\s>]+)"""
    r"""|@import\s+(?:url\()?["']?(?P<imported>(?:https?:)?//[^"')\s]+)"""
)


def main() -> int:
    """The exit status: 1 if a page loads something from elsewhere, or there is no page."""
    pages = sorted([*SITE.rglob("*.html"), *SITE.rglob("*.css")])
    found = [
        f"{page}: loads {next(filter(None, match.groups()))}"
        for page in pages
        for match in LOADED.finditer(page.read_text(encoding="utf-8"))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
