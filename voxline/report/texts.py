"""Texts beside each other: a reference with its hypotheses, aligned word by word as for the word error rate."""

import itertools
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from voxline.report.page import Block, _render_block, small_print

WordEdit = tuple[str, str, str]
"""(kind, reference word, hypothesis word); the kind as in jiwer: equal, delete, insert or substitute."""


def word_diff(reference: str, hypothesis: str, labels: tuple[str, str] = ("reference", "hypothesis")) -> Block:
    """Two texts, aligned. Edits differ in sign, line and color.

    >>> html = word_diff("the cat sat on a mat", "cat sat in a mat now")
    >>> [html.count(f"pair {kind}") for kind in ("delete", "substitute", "insert")]
    [1, 1, 1]
    """
    return _render_block("word_diff", word_edits(reference.split(), hypothesis.split()), labels)


def compare_texts(reference: str, hypotheses: Mapping[str, str]) -> Block:
    """A reference above several hypotheses, by label, in one alignment.

    >>> html = compare_texts("a red cat", {"version 3": "a cat", "this model": "a read cat"})
    >>> html.count('class="cell delete"'), html.count('class="cell substitute"')
    (1, 1)
    """
    words = reference.split()

    # For each hypothesis, what it has before and at each word of the reference.
    rows = [_by_position(word_edits(words, text.split()), len(words)) for text in hypotheses.values()]
    columns: list[tuple[str, list[tuple[str, str]]]] = []

    # One position more than words: insertions may follow the last word.
    for position in range(len(words) + 1):
        inserted = itertools.zip_longest(*(row[position][0] for row in rows), fillvalue="")
        columns += [("", [("insert" if word else "", word) for word in column]) for column in inserted]
        if position < len(words):
            columns.append((words[position], [row[position][1] for row in rows]))
    return _render_block("compare_texts", list(hypotheses), columns)


def marked_texts(reference: str, hypothesis: str) -> tuple[Block, Block]:
    """Both texts in one line each, as for the cells of a table: deleted words and inserted ones are marked.

    >>> print(*marked_texts("a red cat", "a read cat"))
    a <del>red</del> cat a <ins>read</ins> cat
    """
    above = []
    below = []

    for kind, reference_word, new in word_edits(reference.split(), hypothesis.split()):
        equal = kind == "equal"
        above += (
            [escape(reference_word) if equal else Markup("<del>{}</del>").format(reference_word)]
            if reference_word
            else []
        )
        below += [escape(new) if equal else Markup("<ins>{}</ins>").format(new)] if new else []
    return Markup(" ").join(above), Markup(" ").join(below)


def word_diff_legend(recognizer: str = "the model", *other_recognizers: str) -> Block:
    """Explains `word_diff` and `compare_texts`, once a section."""
    below = " and ".join(f"the hypothesis of {name}" for name in (recognizer, *other_recognizers))
    return small_print(
        f"Above: the reference. Below: {below}. Struck through or “−”: deletion; underlined and “+”: insertion; boxed: "
        "substitution."
    )


def word_edits(reference: Sequence[str], hypothesis: Sequence[str]) -> list[WordEdit]:
    """The edits that turn one list of words into the other, with the fewest errors (jiwer)."""
    # jiwer refuses empty references; equal texts need no alignment.
    if not reference or not hypothesis:
        return [("delete", word, "") for word in reference] + [("insert", "", word) for word in hypothesis]
    if list(reference) == list(hypothesis):
        return [("equal", word, word) for word in reference]
    import jiwer

    edits = []

    (chunks,) = jiwer.process_words(" ".join(reference), " ".join(hypothesis)).alignments
    for chunk in chunks:
        above = reference[chunk.ref_start_idx : chunk.ref_end_idx]
        below = hypothesis[chunk.hyp_start_idx : chunk.hyp_end_idx]
        edits += [(chunk.type, *pair) for pair in itertools.zip_longest(above, below, fillvalue="")]
    return edits


def _by_position(edits: Sequence[WordEdit], length: int) -> list[tuple[list[str], tuple[str, str]]]:
    """Returns for each position of the reference the words inserted before it, and the kind and word at it."""
    positions: list[tuple[list[str], tuple[str, str]]] = []
    inserted: list[str] = []

    # Insertions wait for the next word of the reference, which they precede.
    for kind, _, word in edits:
        if kind == "insert":
            inserted.append(word)
        else:
            positions.append((inserted, (kind, word)))
            inserted = []
    return [*positions, (inserted, ("", ""))][: length + 1]
