"""The part of a recognizer in `metrics.json`."""

from typing import Any

from voxline.data.licences import LANGUAGE_TEXTS, text_licences
from voxline.metrics.evaluation import METRICS_FILE, EvaluationInfo, FamilyDetails
from voxline.metrics.wer import EditCounts, sum_edits
from voxline.store.versioned_json import FilePart, parse_part


class ConfusionInfo(FilePart, forbid_unknown_fields=False):
    """A word that was heard as another one; "" stands for no word."""

    reference: str
    hypothesis: str
    count: int


class MissedWordInfo(FilePart, forbid_unknown_fields=False):
    """A word of the references that hypotheses lack."""

    word: str
    missed: int
    occurs: int


class HighLossInfo(FilePart, forbid_unknown_fields=False):
    """An utterance with a high CTC loss.

    Attributes:
      loss: in nats; None: `no_loss` says why the model cannot output the reference.
    """

    id: str
    reference: str
    hypothesis: str
    wer: float
    loss: float | None
    no_loss: str


class GreedyInfo(FilePart, forbid_unknown_fields=False):
    """The edits of greedy transcripts."""

    words: EditCounts
    characters: EditCounts


class LanguageModelText(FilePart, forbid_unknown_fields=False):
    """The text that a language model was made of; None: a file has its n-grams, and nobody knows of how many."""

    sentences: int | None = None


class TuningInfo(FilePart, forbid_unknown_fields=False):
    """The utterances on which the weights of a language model were chosen."""

    split: str
    utterances: int


class LanguageModelInfo(FilePart, forbid_unknown_fields=False):
    """The part of `language_model.json` that people read.

    Attributes:
      order: words of the longest n-gram.
      vocabulary: number of words.
      alpha: weight of the language model.
      beta: what each word adds to the score.
      tuned_on: None if the weights are as set.
    """

    order: int
    vocabulary: int
    alpha: float
    beta: float
    text: LanguageModelText
    tuned_on: TuningInfo | None = None


class JoinedKind(FilePart, forbid_unknown_fields=False):
    """Test utterances that were joined with pauses of one kind.

    Attributes:
      words: the edits of the whole recording.
      words_in_pauses: written where nobody speaks.
      pause_seconds: of all pauses.
    """

    kind: str
    words: EditCounts
    words_in_pauses: int
    pause_seconds: float


class JoinedInfo(FilePart, forbid_unknown_fields=False):
    """Some test utterances one by one, and joined into long recordings.

    Attributes:
      seconds: of speech.
      single: the edits of the utterances one by one.
    """

    utterances: int
    seconds: float
    single: EditCounts
    kinds: list[JoinedKind]

    @property
    def words(self) -> EditCounts:
        """The edits of all joined recordings."""
        return sum_edits(kind.words for kind in self.kinds)

    @property
    def words_a_minute(self) -> float:
        """Words that were written into pauses, a minute of these."""
        return 60 * sum(kind.words_in_pauses for kind in self.kinds) / sum(kind.pause_seconds for kind in self.kinds)


class AsrDetails(FamilyDetails, kw_only=True):
    """The details of a recognizer in `metrics.json`.

    Attributes:
      words, characters: the edits of all utterances.
      confusions, missed_words: the most frequent first.
      worst_by_loss: the highest loss first.
      language_model: `language_model.json`; None: decoding is greedy.
      greedy: beside a language model, the edits without it.
      joined: None if it was not measured.
    """

    words: EditCounts
    characters: EditCounts
    confusions: list[ConfusionInfo]
    missed_words: list[MissedWordInfo]
    worst_by_loss: list[HighLossInfo]
    language_model: dict[str, Any] | None = None
    greedy: GreedyInfo | None = None
    joined: JoinedInfo | None = None

    @property
    def language_model_info(self) -> LanguageModelInfo | None:
        """The language model; None: decoding is greedy.

        Raises:
          WorkError: a key is absent or has a value of another type; naming it.
        """
        if self.language_model is None:
            return None
        where = f"{METRICS_FILE}: details.language_model"
        return parse_part(self.language_model, LanguageModelInfo, where, EvaluationInfo.REMEDY)

    @property
    def language_model_licences(self) -> str:
        """A sentence on the licences of the texts of the language model; empty if transcripts are all its text.

        Raises:
          WorkError: as `text_licences`.
        """
        licences = text_licences(self.language_model) if self.language_model is not None else []
        return f"Licences of {LANGUAGE_TEXTS}: {', '.join(licences)}." if licences else ""


class AsrSmokeTest(FilePart, forbid_unknown_fields=False):
    """The clip of the smoke test: an utterance, and what the model transcribed."""

    id: str
    reference: str
    text: str
