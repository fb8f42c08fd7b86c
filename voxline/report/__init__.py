"""Pages that a person opens to look: one HTML file, complete in itself, that draws and plays.

A page is sections, and a section is blocks. Every block escapes what it is given, since a transcript may
hold anything; only what another block made (`Markup`) is taken as HTML. Pages load nothing from anywhere,
run no script, read well on a phone and in the dark, and are the same bytes whenever they are made of the
same values.

>>> page = Page("Test of a <model>", lead="Ten utterances, read aloud.")
>>> page.section(
...     "Result",
...     stat_cards({"word error rate": "3.1%", "utterances": 10}),
...     data_table(["said", "heard"], [["one two", word_diff("one two", "one too")]]),
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

from voxline.report.charts import bar_plot, histogram, line_plot, scatter_plot
from voxline.report.media import Panel, PlayerBudget, audio_player, image_panels
from voxline.report.page import (
    Block,
    Page,
    Tone,
    badge,
    data_table,
    details,
    figure,
    fill_slot,
    item_list,
    paragraphs,
    side_by_side,
    slot,
    small_print,
    stat_cards,
    verdict_banner,
    word_diff,
    word_diff_legend,
)

__all__ = [
    "Block",
    "Page",
    "Panel",
    "PlayerBudget",
    "Tone",
    "audio_player",
    "badge",
    "bar_plot",
    "data_table",
    "details",
    "figure",
    "fill_slot",
    "histogram",
    "image_panels",
    "item_list",
    "line_plot",
    "paragraphs",
    "scatter_plot",
    "side_by_side",
    "slot",
    "small_print",
    "stat_cards",
    "verdict_banner",
    "word_diff",
    "word_diff_legend",
]
