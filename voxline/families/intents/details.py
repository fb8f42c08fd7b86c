"""The part of a classifier of intents in `metrics.json`."""

from voxline.metrics.evaluation import BaselineInfo, FamilyDetails
from voxline.store.versioned_json import FilePart


class IntentConfusion(FilePart, forbid_unknown_fields=False):
    """An intent that the classifier took for another one; "" stands for none."""

    intent: str
    found: str
    count: int


class IntentCounts(FilePart, forbid_unknown_fields=False):
    """Utterances by whether their intent is right."""

    intent_right: int
    intent_wrong: int


class RecognizedIntents(FilePart, forbid_unknown_fields=False):
    """The effect of the recognizer's errors on the intents.

    Attributes:
      wer: of the recognizer on these recordings.
      words_right, words_wrong: utterances without and with a wrong word.
    """

    wer: float
    words_right: IntentCounts
    words_wrong: IntentCounts


class IntentsDetails(FamilyDetails, kw_only=True):
    """The details of a classifier of intents in `metrics.json`.

    Attributes:
      mean_pooling: each metric of the baseline; None without one.
      confusions: the most frequent first.
      unknown_intents: intents of the split that the classifier does not know.
      without_intent: utterances without an intent in the manifest.
      recognizer: None without one.
    """

    mean_pooling: dict[str, BaselineInfo] | None
    confusions: list[IntentConfusion]
    unknown_intents: list[str]
    without_intent: int
    recognizer: RecognizedIntents | None


class IntentsSmokeTest(FilePart, forbid_unknown_fields=False):
    """The text of the smoke test, and the intent that the model gave it."""

    id: str
    text: str
    intent: str
    probability: float
