"""What was said above what was heard, word under word."""

from components.speech.pages.blocks import Block, _block, note


def word_diff(reference: str, hypothesis: str) -> Block:
    """The two texts aligned as the word error rate counts them (jiwer); errors differ in sign, line and colour.

    >>> html = word_diff("the cat sat on a mat", "cat sat in a mat now")
    >>> [html.count(f"pair {kind}") for kind in ("delete", "substitute", "insert")]
    [1, 1, 1]
    """
    return _block("word_diff", _aligned(reference.split(), hypothesis.split()))


def diff_legend(heard_by: str = "the model") -> Block:
    """How `word_diff` is to be read; once a section."""
    return note(
        f"Above: what was said. Below: what {heard_by} heard. Struck through and “−”: left out; underlined and “+”: "
        "added; both, boxed: one word taken for another."
    )


def _aligned(said: list[str], heard: list[str]) -> list[tuple[str, str, str]]:
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
