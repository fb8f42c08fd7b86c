"""What a recognizer returns for a recording."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.beam_search import ScoredText
    from voxline.inference.ctc_alignment import AlignedWord
    from voxline.inference.token_decoder import WrittenText


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """A text that a recording may have.

    Attributes:
      confidence: its share of the probability of all alternatives that were wanted, 0 to 1.
    """

    text: str
    confidence: float


@dataclasses.dataclass(frozen=True, slots=True)
class Transcript:
    """A recording, as a model transcribed it.

    Attributes:
      text: by beam search if the model has a language model, else greedy; "" if `note` says why.
      words: of the text, in order; see `ctc_alignment.AlignedWord` for times and confidences. Of a model with a decoder
        `token_times` has them.
      confidence: the geometric mean of the words' confidences, or of its tokens' of a model with a decoder; None
        without words.
      seconds: length of the recording.
      note: "too short" (under 0.1 s), "no speech" (no sample above -80 dB of full scale), or "". The model is not
        run on such recordings: it was trained on speech, and would output some text.
      alternatives: the best texts of the beam search, if several were wanted; the first is `text`.
    """

    text: str
    words: "list[AlignedWord]"
    confidence: float | None
    seconds: float
    note: str = ""
    alternatives: tuple[Alternative, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedWaveform:
    """The outputs of a model for a waveform.

    Attributes:
      text: by beam search if the model has a language model, else greedy.
      greedy: the transcript without a language model.
      log_probabilities: float32 [frames, symbols + 1], natural logarithms, the CTC blank last; of a model with a
        decoder without frames.
      confidence: as its decoder gives it; None of a CTC model, whose words give it.
    """

    text: str
    greedy: str
    log_probabilities: "npt.NDArray[np.float32]"
    confidence: float | None = None


def transcript_of_words(text: str, words: "Sequence[AlignedWord]", seconds: float, start: float = 0.0) -> Transcript:
    """The transcript of a recording, or of a segment of a stream.

    Args:
      words: of the text, with times from the start of the audio that was aligned.
      seconds: length of that audio. The model's last frames are of padding, after it.
      start: where the audio begins in its stream, in seconds.
    """
    words = [
        dataclasses.replace(timed_word, start=min(timed_word.start, seconds), end=min(timed_word.end, seconds))
        for timed_word in words
    ]

    # Times of a stream may begin before it: its first frames are of padding.
    if start:
        words = [
            dataclasses.replace(
                timed_word, start=max(0.0, start + timed_word.start), end=max(0.0, start + timed_word.end)
            )
            for timed_word in words
        ]

    # A confidence of zero would be a logarithm of minus infinity.
    logs = [math.log(max(word.confidence, 1e-12)) for word in words]
    confidence = math.exp(math.fsum(logs) / len(logs)) if logs else None
    return Transcript(text, words, confidence, seconds)


def alternatives_of(best: "Sequence[ScoredText | WrittenText]", count: int) -> tuple[Alternative, ...]:
    """The hypotheses with their shares; () if only one was wanted."""
    if count < 2 or not best:
        return ()

    # Relative to the best score, so that no exponential underflows.
    weights = [math.exp(text.score - best[0].score) for text in best]
    total = math.fsum(weights)
    return tuple(Alternative(text.text, weight / total) for text, weight in zip(best, weights, strict=True))
