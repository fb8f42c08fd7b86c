"""Metrics of an attention alignment: did the decoder read the whole text, once, from beginning to end?

Why these metrics, and what they miss: docs/decisions/0017-how-tts-is-judged.md.
"""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Weights = npt.NDArray[np.floating]


BAND = 0.2
"""Half the width of the band around the diagonal, as a share of the text."""

MIN_BAND = 2.0
"""Symbols; the narrowest half width, for short texts."""

MIN_WEIGHT = 0.1
"""Weight that a symbol needs at some step to count as read. A letter passed in half a step gets less."""

MIN_RUN = 4
"""Symbols; this many unread in a row are a skip, and a return by this many is a repeat. Fewer may be one letter."""


@dataclasses.dataclass(frozen=True)
class AttentionMetrics:
    """Measurements of how a decoder read a text.

    Attributes:
      diagonality: share of the attention within the band around the diagonal, 0 to 1. Uniform attention has 0.36,
        attention that reads backwards about 0.2.
      coverage: share of the symbols that were read, 0 to 1.
      repeats: times that the attention returned by `MIN_RUN` symbols or more.
      skips: runs of `MIN_RUN` or more unread symbols, the end of the text included.
    """

    diagonality: float
    coverage: float
    repeats: int
    skips: int


def compute_attention_metrics(alignment: "Weights") -> AttentionMetrics:
    """Computes the metrics of one alignment.

    Args:
      alignment: [steps, symbols], the weights of each decoder step, without padding; each row sums to 1.

    Raises:
      ValueError: no step or no symbol, or weights that are not finite.

    >>> import numpy as np
    >>> compute_attention_metrics(np.eye(12))
    AttentionMetrics(diagonality=1.0, coverage=1.0, repeats=0, skips=0)
    """
    import numpy as np

    if alignment.ndim != 2 or not alignment.size or not np.isfinite(alignment).all():
        raise ValueError(f"alignment {alignment.shape}: finite weights [steps, symbols], at least one, are accepted")

    # read bool [symbols]
    weights = np.asarray(alignment, np.float64)
    read = weights.max(axis=0) >= MIN_WEIGHT
    return AttentionMetrics(_diagonality(weights), float(read.mean()), _repeats(weights.argmax(axis=1)), _skips(read))


def _diagonality(weights: "Weights") -> float:
    """The diagonal attention rate of Chen et al. 2020 (MultiSpeech), with a band as wide as the text requires."""
    import numpy as np

    steps, symbols = weights.shape

    # [steps] where the diagonal is at each step, in symbols
    line = (np.arange(steps) + 0.5) * symbols / steps - 0.5

    # [steps, symbols] whether a weight is within the band
    near = np.abs(np.arange(symbols) - line[:, None]) <= max(BAND * symbols, MIN_BAND)
    return float((weights * near).sum() / max(weights.sum(), 1e-12))


def _repeats(positions: "npt.NDArray[np.intp]") -> int:
    """Times that the position falls `MIN_RUN` behind the farthest one; a return counts once, however long it lasts."""
    farthest = 0
    returned = False
    count = 0

    # Only back near the farthest symbol can a new return begin: hovering within one counts once.
    for position in positions.tolist():
        if position <= farthest - MIN_RUN:
            count += not returned
            returned = True
        elif position >= farthest - 1:
            returned = False
        farthest = max(farthest, position)
    return count


def _skips(read: "npt.NDArray[np.bool_]") -> int:
    """Runs of at least `MIN_RUN` unread symbols."""
    runs = "".join("x" if symbol else " " for symbol in read.tolist()).split("x")
    return sum(len(run) >= MIN_RUN for run in runs)
