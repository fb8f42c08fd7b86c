"""Tempo of synthesized speech: mel frames are stretched or compressed, symbol by symbol.

Which frames are a symbol's, the alignment says: durations of a FastSpeech voice, attention of others. A rate scales
the time of these frames, and new ones lie on a line between their neighbors. For a voice with durations that is what
scaling them comes to, and it needs nothing of the network, so that every exported voice has it (docs/voices.md).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


def change_tempo(mels: "Array", alignment: "Array", rates: Sequence[float], reduction: int) -> "Array":
    """Mels float32 [frames', mels] of speech at the rates of its symbols.

    Args:
      mels: [frames, mels], at the usual rate.
      alignment: weights of each symbol in each step, [steps, symbols].
      rates: of each symbol; 2 is twice as fast.
      reduction: frames of a step.

    >>> import numpy as np
    >>> mels = np.arange(9, dtype=np.float32)[:, None]
    >>> change_tempo(mels, np.eye(3).repeat(3, axis=0), [2, 2, 2], 1)[:, 0].tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    import numpy as np

    if len(mels) < 2:
        return mels
    slowness = 1 / frame_rates(alignment, rates, len(mels), reduction)
    # The time from one frame to the next is half the one's and half the other's.
    ends = np.concatenate([[0.0], np.cumsum((slowness[:-1] + slowness[1:]) / 2)])
    count = max(round(float(ends[-1])), 1)

    # [frames' + 1] places among the old frames, at equal distances in the new time
    places = np.interp(np.linspace(0, ends[-1], count + 1), ends, np.arange(len(mels)))
    before = np.minimum(places.astype(np.int64), len(mels) - 2)
    share = (places - before)[:, None].astype(np.float32)

    scaled: Array = (1 - share) * mels[before] + share * mels[before + 1]
    return scaled


def frame_rates(alignment: "Array", rates: Sequence[float], frames: int, reduction: int) -> "npt.NDArray[np.float64]":
    """The rate of each frame, [frames]: that of the symbol that it belongs to.

    Where the rate changes, frames up to one step belong to the symbols before, and the others to those after: the step
    for which most of the attention agrees. So single steps that look elsewhere change nothing.
    """
    import numpy as np

    # Only where the rate changes does a border need to be found.
    changes = [symbol for symbol in range(1, len(rates)) if rates[symbol] != rates[symbol - 1]]
    by_frame = np.full(frames, float(rates[0]))
    start = 0
    for symbol in changes:
        # [steps] attention to the symbols before the change, less that to those after it
        left = alignment[:, :symbol].sum(axis=1) - alignment[:, symbol:].sum(axis=1)
        start = max(start, int(np.concatenate([[0.0], np.cumsum(left)]).argmax()))
        by_frame[start * reduction :] = rates[symbol]
    return by_frame
