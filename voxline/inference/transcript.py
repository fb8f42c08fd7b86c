"""What a recognizer returns for a recording."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from voxline.text.alphabet import is_ideograph

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.beam_search import ScoredText
    from voxline.inference.ctc_alignment import AlignedWord
    from voxline.inference.token_decoder import WrittenText
    from voxline.text.alphabet import Alphabet


_IMPOSSIBLE = -100.0
"""A logarithm that no search follows, and which can be added up."""


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
      unheard: of its seconds, those at its beginning that a stream left out as silence.
    """

    text: str
    words: "list[AlignedWord]"
    confidence: float | None
    seconds: float
    note: str = ""
    alternatives: tuple[Alternative, ...] = ()
    unheard: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedWaveform:
    """The outputs of a model for a waveform.

    Attributes:
      text: by beam search if the model has a language model, else greedy.
      greedy: the transcript without a language model.
      log_probabilities: float32 [frames, symbols + 1], natural logarithms, the CTC blank last; of a model with a
        decoder without frames.
      confidence: as its decoder gives it; None of a CTC model, whose words give it.
      parts: into which the waveform was cut.
    """

    text: str
    greedy: str
    log_probabilities: "npt.NDArray[np.float32]"
    confidence: float | None = None
    parts: int = 1


class TextSoFar:
    """The beginning of a recording's text while its parts are transcribed, not always in order.

    Args:
      parts: the text of each; None: it is not known yet.
      spaced: whether texts of the model have spaces.

    Attributes:
      text: of all parts before the first that is not known, joined as `join_transcripts` does, when last looked at.

    >>> so_far = TextSoFar([None, "the", None], True)
    >>> so_far.has_grown()
    False
    >>> so_far.parts[0] = "at"
    >>> so_far.has_grown(), so_far.text, so_far.has_grown()
    (True, 'at the', False)
    """

    def __init__(self, parts: Sequence[str | None], spaced: bool) -> None:
        self.parts = list(parts)
        self.text = ""
        self._spaced = spaced
        self._joined = 0

    def has_grown(self) -> bool:
        """Looks at the parts. Returns whether more of the text is known than at the look before."""
        before = self.text
        # A part that is known waits for those before it.
        while self._joined < len(self.parts) and (part := self.parts[self._joined]) is not None:
            self.text = _join([self.text, part], self._spaced)
            self._joined += 1
        return self.text != before


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

    return Transcript(text, words, _mean_confidence(words), seconds)


def alternatives_of(best: "Sequence[ScoredText | WrittenText]", count: int) -> tuple[Alternative, ...]:
    """The hypotheses with their shares; () if only one was wanted."""
    if count < 2 or not best:
        return ()

    # Relative to the best score, so that no exponential underflows.
    weights = [math.exp(text.score - best[0].score) for text in best]
    total = math.fsum(weights)
    return tuple(Alternative(text.text, weight / total) for text, weight in zip(best, weights, strict=True))


def join_transcripts(
    parts: Sequence[Transcript], offsets: Sequence[float], seconds: float, spaced: bool, n_best: int = 1
) -> Transcript:
    """The transcript of a recording of which the parts between pauses were transcribed.

    Args:
      parts: in order.
      offsets: seconds at which each begins.
      seconds: of the recording.
      spaced: whether texts of the model have spaces.
      n_best: most alternatives.
    """
    # Times from the start of the recording.
    words = [
        dataclasses.replace(word, start=min(word.start + offset, seconds), end=min(word.end + offset, seconds))
        for part, offset in zip(parts, offsets, strict=True)
        for word in part.words
    ]
    text = _join([part.text for part in parts], spaced)
    alternatives: list[Alternative] = [Alternative("", 1.0)] if any(part.alternatives for part in parts) else []
    for part in parts if alternatives else []:
        # Parts are heard independently, so the probabilities multiply.
        choices = part.alternatives or (Alternative(part.text, 1.0),)
        product = [
            Alternative(_join([before.text, choice.text], spaced), before.confidence * choice.confidence)
            for before in alternatives
            for choice in choices
        ]
        alternatives = sorted(product, key=lambda choice: -choice.confidence)[:n_best]

    # Those that are kept share all of the probability.
    total = math.fsum(choice.confidence for choice in alternatives) or 1.0
    shares = tuple(Alternative(choice.text, choice.confidence / total) for choice in alternatives)
    return Transcript(text, words, _mean_confidence(words), seconds, "", shares)


def join_decoded(parts: "Sequence[DecodedWaveform]", alphabet: "Alphabet") -> DecodedWaveform:
    """The outputs of a CTC model for a waveform of which the parts between pauses were decoded.

    Between two parts is a frame that is a space or blank, as likely as not: a pause is both, and neither part has it.
    """
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    spaced = " " in alphabet.characters
    pause = [alphabet.blank, *(label for label, symbol in enumerate(alphabet.symbols) if symbol == " ")]
    between = np.full((1, alphabet.blank + 1), _IMPOSSIBLE, np.float32)
    between[0, pause] = -math.log(len(pause))

    # [frames of all parts + parts - 1, symbols + 1]
    frames = [part.log_probabilities for part in parts]
    joined = np.concatenate([rows for values in frames for rows in (values, between)][:-1])
    text = _join([part.text for part in parts], spaced)
    return DecodedWaveform(text, _join([part.greedy for part in parts], spaced), joined, parts=len(parts))


def _join(texts: Sequence[str], spaced: bool) -> str:
    """Texts as one; no space between ideographs.

    >>> _join(["turn on", "", "the light"], True), _join(["打开", "灯 a", "b"], True)
    ('turn on the light', '打开灯 a b')
    """
    joined = ""
    for text in texts:
        between = spaced and joined and text and not (is_ideograph(joined[-1]) and is_ideograph(text[0]))
        joined += f" {text}" if between else text
    return joined


def _mean_confidence(words: "Sequence[AlignedWord]") -> float | None:
    # A confidence of zero would be a logarithm of minus infinity.
    logs = [math.log(max(word.confidence, 1e-12)) for word in words]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None
