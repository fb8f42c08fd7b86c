"""Running exported models over a test split."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.inference.saved_model import Recogniser, batches_by_length, read_waveform
from voxline.progress import Progress

if TYPE_CHECKING:
    from voxline.inference.saved_model import Waveform
from voxline.metrics.evaluation import Row
from voxline.metrics.wer import Edits


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


@dataclasses.dataclass(frozen=True, slots=True)
class Other:
    """What the model in service made of the same recording."""

    hypothesis: str
    words: Edits
    characters: Edits


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """One utterance.

    Attributes:
      duration: seconds.
      words, characters: the errors, counted.
      slices: which part of the test split it belongs to, by the name of the slicing.
      champion: what the model in service heard, and its errors.
    """

    id: str
    speaker: str
    duration: float
    reference: str
    hypothesis: str
    words: Edits
    characters: Edits
    slices: dict[str, str]
    champion: Other | None = None

    def row(self) -> Row:
        """As it stands in the table."""
        champion = self.champion
        return Row(
            self.id,
            self.speaker,
            self.duration,
            self.slices,
            {"wer": self.words.part, "cer": self.characters.part},
            None if champion is None else {"wer": champion.words.part, "cer": champion.characters.part},
            {
                "reference": self.reference,
                "hypothesis": self.hypothesis,
                "champion_hypothesis": champion and champion.hypothesis,
                "words": dataclasses.asdict(self.words),
                "characters": dataclasses.asdict(self.characters),
            },
        )
