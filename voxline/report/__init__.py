"""Self-contained HTML pages with tables, plots and audio players.

A page consists of sections, and a section of blocks. Every block escapes its arguments, since a transcript may contain
anything; only another block (`Markup`) is taken as HTML. Pages load nothing, run no script, are readable on a phone and
in dark mode, and are the same bytes for the same values.

>>> page = Page("Test of a <model>", lead="Ten utterances, read aloud.")
>>> page.add_section(
...     "Result",
...     stat_cards({"word error rate": "3.1%", "utterances": 10}),
...     data_table(["reference", "hypothesis"], [["one two", word_diff("one two", "one too")]]),
... )
>>> "<title>Test of a &lt;model&gt;</title>" in page.html()
True

Contents:
  pages    Page, slot and fill_slot (a part of a page that a later step replaces)
  blocks   paragraphs, small_print, stat_cards, data_table, badge, verdict_banner, figure, side_by_side, details,
           item_list
  plots    histogram, bar_plot, line_plot, scatter_plot: SVG for `figure`
  images   Panel, image_panels: spectrograms and alignments in one PNG
  speech   audio_player, PlayerBudget (players that stay within a size together), word_diff, word_diff_legend
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
