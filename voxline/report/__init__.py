"""Pages that a person opens to look: one HTML file, complete in itself, that draws and plays.

A page is sections, and a section is blocks. Every block escapes what it is given, since a transcript may
hold anything; only what another block made (`Markup`) is taken as HTML. Pages load nothing from anywhere,
run no script, read well on a phone and in the dark, and are the same bytes whenever they are made of the
same values.

>>> page = Page("Test of a <model>", lead="Ten utterances, read aloud.")
>>> page.section(
...     "Result",
...     facts({"word error rate": "3.1%", "utterances": 10}),
...     table(["said", "heard"], [["one two", word_diff("one two", "one too")]]),
... )
>>> "<title>Test of a &lt;model&gt;</title>" in page.html()
True

What there is:
  page      Page, slot and fill (a place in a page that a later step fills)
  blocks    prose, note, facts, table, badge, verdict, figure, side_by_side, details, listing
  plots     histogram, bars, lines, scatter: SVG for `figure`
  pictures  Panel, pictures: spectrograms and alignments in one PNG
  speech    player, Reel (players that together stay within a size), word_diff, diff_legend
"""

from voxline.report.charts import bars, histogram, lines, scatter
from voxline.report.media import Panel, Reel, pictures, player
from voxline.report.page import (
    Block,
    Page,
    Tone,
    badge,
    details,
    diff_legend,
    facts,
    figure,
    fill,
    listing,
    note,
    prose,
    side_by_side,
    slot,
    table,
    verdict,
    word_diff,
)

__all__ = [
    "Block",
    "Page",
    "Panel",
    "Reel",
    "Tone",
    "badge",
    "bars",
    "details",
    "diff_legend",
    "facts",
    "figure",
    "fill",
    "histogram",
    "lines",
    "listing",
    "note",
    "pictures",
    "player",
    "prose",
    "scatter",
    "side_by_side",
    "slot",
    "table",
    "verdict",
    "word_diff",
]
