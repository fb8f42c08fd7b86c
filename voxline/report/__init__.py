"""Self-contained HTML pages with tables, plots and audio players.

A page consists of sections, and a section of blocks. Every block escapes its arguments, since a transcript may contain
anything; only another block (`Markup`) is taken as HTML. Pages load nothing, are readable on a phone and in dark mode,
and are the same bytes for the same values. They run no script but one of ours, which sorts and searches a long table.

>>> page = Page("Test of a <model>", lead="Ten utterances, read aloud.")
>>> page.add_section(
...     "Result",
...     stat_cards({"word error rate": "3.1%", "utterances": 10}),
...     data_table(["reference", "hypothesis"], [["one two", word_diff("one two", "one too")]]),
... )
>>> "<title>Test of a &lt;model&gt;</title>" in page.html()
True

Contents:
  pages    Page, slot and fill_slot (a part of a page that a later step replaces), retitle,
           format_duration, plural, sentence_case
  blocks   paragraphs, small_print, stat_cards, data_table, explorer_table, badge, verdict_banner, figure, side_by_side,
           details, item_list, link, anchor
  plots    histogram, bar_plot, line_plot, scatter_plot: SVG for `figure`
  images   Panel, image_panels: spectrograms and alignments in one PNG; spectrogram_view: an utterance and its words
  speech   audio_player, PlayerBudget (players that stay within a size together), word_diff, compare_texts,
           marked_texts, word_diff_legend
"""

from voxline.report.charts import bar_plot, histogram, line_plot, scatter_plot
from voxline.report.media import Panel, PlayerBudget, audio_player, image_panels
from voxline.report.page import (
    Block,
    Page,
    Tone,
    anchor,
    badge,
    data_table,
    details,
    explorer_table,
    figure,
    fill_slot,
    format_duration,
    item_list,
    link,
    paragraphs,
    plural,
    retitle,
    sentence_case,
    side_by_side,
    slot,
    small_print,
    stat_cards,
    verdict_banner,
)
from voxline.report.spectrogram import SpokenWord, WordRow, spectrogram_view
from voxline.report.texts import compare_texts, marked_texts, word_diff, word_diff_legend

__all__ = [
    "Block",
    "Page",
    "Panel",
    "PlayerBudget",
    "SpokenWord",
    "Tone",
    "WordRow",
    "anchor",
    "audio_player",
    "badge",
    "bar_plot",
    "compare_texts",
    "data_table",
    "details",
    "explorer_table",
    "figure",
    "fill_slot",
    "format_duration",
    "histogram",
    "image_panels",
    "item_list",
    "line_plot",
    "link",
    "marked_texts",
    "paragraphs",
    "plural",
    "retitle",
    "scatter_plot",
    "sentence_case",
    "side_by_side",
    "slot",
    "small_print",
    "spectrogram_view",
    "stat_cards",
    "verdict_banner",
    "word_diff",
    "word_diff_legend",
]
