"""Running exported models over a test split."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer, read_waveform
from voxline.inference.saved_model import batches_by_length
from voxline.progress import Progress

if TYPE_CHECKING:
    from voxline.inference.recognizer import Waveform
from voxline.metrics.evaluation import UtteranceResult
from voxline.metrics.wer import EditCounts


@dataclasses.dataclass(frozen=True)
class Transcripts:
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


def transcribe_utterances(recogniser: Recognizer, utterances: Sequence[Utterance], unit: str) -> Transcripts:
    """Transcribes every utterance, reading no more audio at a time than a batch holds."""
    texts = [""] * len(utterances)
    progress = Progress(unit, len(utterances))
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(recogniser.batch_seconds * 1000)):
        waveforms = [utterance_waveform(utterances[index], recogniser.sample_rate) for index in batch]
        for index, text in zip(batch, recogniser.transcribe_waveforms(waveforms), strict=True):
            texts[index] = text
        progress.advance(len(batch))
    return Transcripts(texts, recogniser.seconds, recogniser.audio_seconds)


def utterance_waveform(utterance: Utterance, sample_rate: int) -> "Waveform":
    """An utterance's samples, float32 [samples]."""
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None


@dataclasses.dataclass(frozen=True, slots=True)
class ChampionResult:
    """What the model in service made of the same recording."""

    hypothesis: str
    words: EditCounts
    characters: EditCounts


@dataclasses.dataclass(frozen=True, slots=True)
class AsrResult:
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
    words: EditCounts
    characters: EditCounts
    slices: dict[str, str]
    champion: ChampionResult | None = None

    def row(self) -> UtteranceResult:
        """As it stands in the table."""
        champion = self.champion
        return UtteranceResult(
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
