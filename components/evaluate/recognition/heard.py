"""One utterance as it was said, and as it was heard."""

import dataclasses

from components.speech.evaluation import Row
from components.speech.scoring import Edits


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
