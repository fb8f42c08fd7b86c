"""An exported classifier of texts: a transcript in, what was meant out.

  classifier = IntentClassifier("runs/demo/registry/intents/1")
  classifier.classify("turn the kitchen lights on")            # Intent(name='switch', probability=0.998)

TensorFlow is imported when an `IntentClassifier` is made.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.family import TextJudgement
from voxline.inference.saved_model import (
    SignatureSpec,
    batches_by_length,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_info,
    require_family,
)
from voxline.metrics.bootstrap import SumAndWeight
from voxline.store.versioned_json import FilePart
from voxline.text.alphabet import EmptyText, UnsupportedText, quote_text, split_words
from voxline.text.frontend import apply_frontend
from voxline.text.settings import FrontendSettings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SPEC = SignatureSpec(("words", "counts"), ("probabilities",))
CLASSIFY = "classify"
BASELINE = "baseline"
UNKNOWN_WORD = 1
FIRST_WORD = 2
"""Number of every word that is not in the vocabulary, and that of the vocabulary's first; 0 is padding."""
BATCH_WORDS = 4_000
"""Most words in one batch, padding included."""


class IntentsInfo(FilePart):
    """The keys of a classifier of intents in `model.json`, in the order of its inputs and outputs."""

    vocabulary: list[str]
    intents: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """The meaning of a text.

    Attributes:
      name: one of the classifier's intents; empty for a text without words.
      probability: of it, 0 to 1.
    """

    name: str
    probability: float


class IntentClassifier:
    """An exported classifier of intents, loaded.

    Args:
      model: an exported model's folder, or a version's folder in a registry.
      baseline: classify with the baseline that was trained beside it, of a mean in place of the capsules.

    Attributes:
      info: the contents of `model.json`.
      field: of a manifest, that holds the intents it was trained on.
      intents: that it tells apart.
      seconds: spent in the model so far, loading and warming up excluded.

    Raises:
      WorkError: the model is damaged, of another family, or has no baseline.
    """

    def __init__(self, model: Path | str, *, baseline: bool = False) -> None:
        self.folder = exported_folder(model)
        self.info = read_model_info(self.folder)
        require_family(self.info, "intents", self.folder)
        self.field = str(self.info.settings["field"])
        part = self.info.family_part(IntentsInfo, self.folder)
        self.intents: list[str] = part.intents
        self._frontend = FrontendSettings.of(self.info.frontend, str(self.folder))
        self._numbers = {word: number for number, word in enumerate(part.vocabulary, FIRST_WORD)}
        name = BASELINE if baseline else CLASSIFY
        self._model, signatures = load_saved_model(self.folder, {name: SPEC})
        self._signature = signatures[name]
        self.seconds = 0.0
        self.classify_words(["a"])  # the first call builds the graph
        self.seconds = 0.0

    @overload
    def classify(self, text: str) -> Intent: ...

    @overload
    def classify(self, text: "list[str] | tuple[str, ...]") -> list[Intent]: ...

    def classify(self, text: "str | list[str] | tuple[str, ...]") -> Intent | list[Intent]:
        """Classifies a text, or each of a list, as people write it: the text frontend of the training is applied.

        Raises:
          SettingsError: a text has characters that the frontend cannot read.
          WorkError: the model fails on them.
        """
        if isinstance(text, str):
            return self.classify_words([self._normalize(text)])[0]
        return self.classify_words([self._normalize(utterance) for utterance in text])

    def classify_words(self, texts: Sequence[str]) -> list[Intent]:
        """Classifies texts that are normalized already, such as a recognizer's.

        Raises:
          WorkError: the model fails on them.
        """
        intents = [Intent("", 0.0)] * len(texts)
        for index, values in enumerate(self.probabilities(texts)):
            if values is not None:
                best = int(values.argmax())
                intents[index] = Intent(self.intents[best], float(values[best]))
        return intents

    def probabilities(self, texts: Sequence[str]) -> "list[npt.NDArray[np.float32] | None]":
        """The probability of each intent, float32 [intents], for each normalized text; None for one without words.

        Raises:
          WorkError: the model fails on them, or returns values that are not finite.
        """
        import numpy as np

        # Lists of word numbers; padding is 0, which no word has.
        numbers = [number_words(text, self._numbers) for text in texts]
        probabilities: list[npt.NDArray[np.float32] | None] = [None] * len(texts)
        spoken = [index for index, words in enumerate(numbers) if words]
        for batch in batches_by_length([len(numbers[index]) for index in spoken], BATCH_WORDS):
            rows = [spoken[index] for index in batch]
            # words int32 [batch, longest], counts int32 [batch]
            counts = np.array([len(numbers[row]) for row in rows], np.int32)
            words = np.zeros((len(rows), int(counts.max())), np.int32)
            for place, row in enumerate(rows):
                words[place, : counts[place]] = numbers[row]
            start = time.perf_counter()
            # [batch, intents]
            values = call_signature(self._signature, self.folder, words=words, counts=counts)["probabilities"]
            self.seconds += time.perf_counter() - start
            if not np.isfinite(values).all():
                raise WorkError(f"{self.folder}: it returns values that are not finite; train the classifier again")
            for place, row in enumerate(rows):
                probabilities[row] = values[place]
        return probabilities

    def _normalize(self, text: str) -> str:
        try:
            return apply_frontend(text, self._frontend, "".join(self.info.alphabet)).symbols
        except EmptyText:
            return ""
        except UnsupportedText as unreadable:
            raise SettingsError(f"the text {quote_text(text)} cannot be read: {unreadable}") from None


class IntentJudge:
    """Judges texts by their intent; see `TextJudge`."""

    def __init__(self, model: Path) -> None:
        self._classifier = IntentClassifier(model)

    def judge(self, texts: Sequence[str], utterances: Sequence[Utterance]) -> list[TextJudgement]:
        field = self._classifier.field
        expected = [intent_of(utterance.extra, field) for utterance in utterances]
        if not any(expected):
            raise WorkError(
                f"no utterance has the manifest field {field!r}, so no intent can be judged; add it to the corpus"
            )

        # An utterance without an intent counts neither as right nor as wrong.
        return [
            TextJudgement(
                intent.name, "intent_error_rate", SumAndWeight(int(bool(name) and intent.name != name), int(bool(name)))
            )
            for intent, name in zip(self._classifier.classify_words(texts), expected, strict=True)
        ]


def number_words(text: str, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of a normalized text's words; a Chinese character is a word of its own.

    >>> number_words("开 the door", {"开": 2, "door": 3})
    [2, 1, 3]
    """
    return [numbers.get(word, UNKNOWN_WORD) for word in split_words(text)]


def intent_of(extra: Mapping[str, Any], field: str) -> str:
    """The intent of an utterance by a field of the manifest; empty if it has none."""
    value = extra.get(field)
    return "" if value is None else str(value)
