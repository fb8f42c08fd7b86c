"""Running exported models over a test split."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from components.speech.errors import WorkError
from components.speech.exported import Recogniser, batches_by_length, read_waveform
from components.speech.progress import Progress
from components.speech.utterances import Utterance

if TYPE_CHECKING:
    from components.speech.exported import Waveform


@dataclasses.dataclass(frozen=True)
class Recognised:
    """What one model heard.

    Attributes:
      texts: in the order of the utterances.
      seconds: spent inside the model.
      audio_seconds: of speech.
    """

    texts: list[str]
    seconds: float
    audio_seconds: float

    @property
    def real_time_factor(self) -> float:
        """Seconds of computing for a second of speech; below 1 is faster than real time."""
        return self.seconds / self.audio_seconds if self.audio_seconds else 0.0


def recognise(recogniser: Recogniser, utterances: Sequence[Utterance], unit: str) -> Recognised:
    """Transcribes every utterance, reading no more audio at a time than a batch holds."""
    texts = [""] * len(utterances)
    progress = Progress(unit, len(utterances))
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(recogniser.batch_seconds * 1000)):
        waveforms = [waveform(utterances[index], recogniser.sample_rate) for index in batch]
        for index, text in zip(batch, recogniser.transcribe(waveforms), strict=True):
            texts[index] = text
        progress.advance(len(batch))
    return Recognised(texts, recogniser.seconds, recogniser.audio_seconds)


def waveform(utterance: Utterance, sample_rate: int) -> "Waveform":
    """An utterance's samples, float32 [samples]."""
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None
