"""What a voice makes of a text: its results, and the chunks of a stream."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from voxline.errors import SettingsError
from voxline.inference.pace import PaceFault
from voxline.text.alphabet import quote_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

NAMED_SPEAKERS = 20
"""Most speakers that a message names."""
LONGEST_CHUNK = 3.2
"""Seconds of the longest chunk of a stream; more would save little."""


@dataclasses.dataclass(frozen=True)
class SynthesisResult:
    """Speech for one text.

    Attributes:
      symbols: the model's input.
      mels: float32 [frames, mels], in the units of the model's features.
      alignment: attention weights, float32 [steps, symbols]; of speech at another rate, those of the usual one.
      waveform: float32 [samples] at the model's sample rate.
      hit_limit: the decoder was cut off after `max_steps`.
      pace_fault: of its length at the usual rate.
    """

    symbols: str
    mels: "Array"
    alignment: "Array"
    waveform: "Array"
    hit_limit: bool
    pace_fault: PaceFault = ""


@dataclasses.dataclass(frozen=True)
class Speech:
    """A text or an SSML document as sound, or a part of it.

    Attributes:
      waveform: float32 [samples] at the model's sample rate.
      hit_limit: the decoder was cut off after `max_steps`, in some sentence that could not be cut further.
      pieces: how many were synthesized and joined; 0 for a pause.
      pace_fault: of the first sentence that stopped at once or went on, and could not be cut further.
    """

    waveform: "Array"
    hit_limit: bool
    pieces: int = 1
    pace_fault: PaceFault = ""

    @property
    def is_whole(self) -> bool:
        """True if all of the text was said, as far as its length shows."""
        return not self.hit_limit and not self.pace_fault


@dataclasses.dataclass(frozen=True)
class TeacherForcedResult:
    """One text, each frame predicted from the recorded frames before it.

    Attributes:
      mels: float32 [frames, mels].
      alignment: attention weights, float32 [steps, symbols].
      mel_l1: mean absolute error over frames and bins, in the units of the features.
    """

    mels: "Array"
    alignment: "Array"
    mel_l1: float


def join_speech(parts: Sequence[Speech]) -> Speech:
    """One speech of several, in their order; it has the faults of each."""
    import numpy as np

    waveform = np.concatenate([part.waveform for part in parts])
    faults = [part.pace_fault for part in parts if part.pace_fault]
    hit_limit = any(part.hit_limit for part in parts)
    return Speech(waveform, hit_limit, sum(part.pieces for part in parts), faults[0] if faults else "")


def check_speaker(speakers: Sequence[str], speaker: str, label: str) -> None:
    """Refuses a speaker whom a voice does not have; "" is the one who speaks where none is asked for.

    Raises:
      SettingsError: it names those whom it has.

    >>> check_speaker(["ann", "bob"], "bob", "voice")
    """
    if not speaker or speaker in speakers:
        return
    if not speakers:
        raise SettingsError(f"{label}: a voice of one speaker, and {quote_text(speaker)} is asked for; leave it out")
    # A voice may have hundreds.
    more = len(speakers) - NAMED_SPEAKERS
    names = ", ".join(speakers[:NAMED_SPEAKERS]) + (f" and {more:,} more" if more > 0 else "")
    raise SettingsError(f"{label}: it has no speaker {quote_text(speaker)}; it speaks as {names}")


def chunk_ends(frames: int, first: int, longest: int) -> Iterator[int]:
    """The ends of the chunks of a stream, in frames. Each is twice as long as the one before.

    The first one decides when speech is heard. Each computes what lies around it again, so the later ones are longer:
    while one is heard, there is time to make the next.

    Args:
      frames: of all.
      first: of the first chunk, at least 1.
      longest: of any.

    >>> list(chunk_ends(20, 2, 8))
    [2, 6, 14, 20]
    """
    end = 0
    length = first
    while end < frames:
        end = min(end + length, frames)
        yield end
        length = min(2 * length, longest)
