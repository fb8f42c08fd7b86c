"""Measures an exported classifier of intents on the reference texts of the test split, and on a recognizer's."""

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.components.evaluate.measurement import (
    Candidate,
    EvaluationJob,
    Evaluator,
    MeasuredModel,
    Slicing,
    compare_with,
    slice_by_band,
    slice_by_field,
)
from voxline.components.evaluate.speech import read_utterance
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.families.family import EvaluateFamily
from voxline.families.intents.details import (
    IntentConfusion,
    IntentCounts,
    IntentsDetails,
    IntentsSmokeTest,
    RecognizedIntents,
)
from voxline.families.intents.inference import Intent, IntentClassifier, intent_of
from voxline.families.intents.settings import IntentsEvaluateSettings
from voxline.inference.onnx_model import Engine
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import batches_by_length
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import BaselineInfo, EvaluationInfo, UtteranceResult, Values
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.progress import Progress, print_status
from voxline.text.alphabet import split_words

if TYPE_CHECKING:
    from voxline.report import Block

RECOGNIZER = "recognizer"


@dataclasses.dataclass(frozen=True)
class Texts:
    """The test split as texts.

    Attributes:
      intents: the intent of each utterance; empty: not known.
      references: its reference text.
      hypotheses: what the recognizer transcribed of it; None without one.
    """

    intents: list[str]
    references: list[str]
    hypotheses: list[str] | None


@dataclasses.dataclass(frozen=True)
class ClassifiedTexts:
    """The intents that a classifier gave an utterance: of its reference, and of its hypothesis if there is one."""

    reference: Intent
    hypothesis: Intent | None

    @property
    def intent(self) -> str:
        """The intent as in service: of the hypothesis, or of the reference without a recognizer."""
        return (self.hypothesis or self.reference).name

    def metrics(self, expected: str) -> Values:
        """Returns what the utterance adds to each metric."""
        # An utterance whose intent is unknown has a weight of 0, and so counts neither as right nor as wrong.
        weight = int(bool(expected))
        values = {"text_intent_error_rate": SumAndWeight(weight * (self.reference.name != expected), weight)}
        if self.hypothesis is not None:
            values["intent_error_rate"] = SumAndWeight(weight * (self.hypothesis.name != expected), weight)
        return values


class IntentsEvaluateFamily(EvaluateFamily):
    """Loads classifiers of intents to measure, and makes their evaluator."""

    activity = "classifying"
    participle = "classified"

    def slicings(self, settings: IntentsEvaluateSettings) -> dict[str, Slicing]:
        return {
            "intent": slice_by_field(settings.field),
            "speaker": slice_by_field("speaker"),
            "words": slice_by_band(lambda utterance: len(split_words(utterance.text)), settings.word_bands, "words"),
        }

    def auxiliary_models(
        self, registry: Path | str, settings: IntentsEvaluateSettings
    ) -> dict[str, ModelVersion | None]:
        return {RECOGNIZER: find_auxiliary(registry, settings.recognizer, family="asr", setting=RECOGNIZER)}

    def load(self, folder: Path, settings: IntentsEvaluateSettings, engine: Engine) -> IntentClassifier:
        # A classifier has no ONNX graph, so TensorFlow is its only engine.
        return IntentClassifier(folder)

    def evaluator(self, job: EvaluationJob, model: IntentClassifier) -> "IntentsEvaluator":
        return IntentsEvaluator(job, model)


class IntentsEvaluator(Evaluator[IntentClassifier, ClassifiedTexts, IntentsDetails]):
    """Measures classifiers on the same texts, which a recognizer transcribes once for all of them."""

    def __init__(self, job: EvaluationJob, model: IntentClassifier) -> None:
        super().__init__(job, model)
        self._texts = _texts(job)
        if self._texts.hypotheses is None:
            print_status("evaluate: no evaluate.recognizer is set, so only texts are classified")

    def measure(self, model: IntentClassifier, candidate: Candidate) -> MeasuredModel[ClassifiedTexts]:
        classified = self._classify(model)
        seconds = sum(utterance.duration for utterance in self.job.utterances)
        return MeasuredModel(
            values=self._metrics(classified),
            # Of the new model alone: a fraction of a millisecond an utterance is not worth a comparison.
            rtf=model.seconds / max(seconds, 0.001) if candidate.is_new else None,
            details=[self._line(index, texts) for index, texts in enumerate(classified)],
            champion_details=[{"champion_intent": texts.intent} for texts in classified],
            records=classified,
        )

    def _classify(self, classifier: IntentClassifier) -> list[ClassifiedTexts]:
        # References show what the classifier can do, hypotheses what reaches a user.
        references = classifier.classify_words(self._texts.references)
        hypotheses: Sequence[Intent | None] = [None] * len(references)
        if self._texts.hypotheses is not None:
            hypotheses = classifier.classify_words(self._texts.hypotheses)
        return [ClassifiedTexts(*pair) for pair in zip(references, hypotheses, strict=True)]

    def _metrics(self, classified: Sequence[ClassifiedTexts]) -> list[Values]:
        return [texts.metrics(expected) for texts, expected in zip(classified, self._texts.intents, strict=True)]

    def _line(self, index: int, classified: ClassifiedTexts) -> dict[str, Any]:
        """The further keys of an utterance's line."""
        texts = self._texts
        line = {
            "reference": texts.references[index],
            "intent": texts.intents[index],
            "text_intent": classified.reference.name,
            "text_probability": round(classified.reference.probability, 4),
        }
        if texts.hypotheses is not None and classified.hypothesis is not None:
            line |= {
                "hypothesis": texts.hypotheses[index],
                "heard_intent": classified.hypothesis.name,
                "heard_probability": round(classified.hypothesis.probability, 4),
            }
        return line

    def details(self, measured: MeasuredModel[ClassifiedTexts]) -> IntentsDetails:
        intents = self._texts.intents
        return IntentsDetails(
            mean_pooling=self._compare_with_mean_pooling(measured.values),
            confusions=self._confusions(measured.records),
            # Intents that training did not see can only be wrong; they are a fault of the split, not of the model.
            unknown_intents=sorted({intent for intent in intents if intent} - set(self.model.intents)),
            without_intent=intents.count(""),
            recognizer=self._recognized(measured.records),
        )

    def _compare_with_mean_pooling(self, values: Sequence[Values]) -> dict[str, BaselineInfo] | None:
        """The baseline that was trained beside the classifier; None without one."""
        if not self.model.info.settings["baseline"]:
            return None

        # Its weights are in the same folder, so it reads the same vocabulary.
        baseline = self._metrics(self._classify(IntentClassifier(self.job.model, baseline=True)))
        speakers = [utterance.speaker for utterance in self.job.utterances]
        return compare_with(baseline, values, speakers, self.job.settings)

    def _confusions(self, classified: Sequence[ClassifiedTexts]) -> list[IntentConfusion]:
        """The wrong intents, the most frequent first: of the hypotheses, or of the references without a recognizer."""
        pairs = collections.Counter(
            (expected, texts.intent)
            for expected, texts in zip(self._texts.intents, classified, strict=True)
            if expected and expected != texts.intent
        )
        return [
            IntentConfusion(intent=expected, found=intent, count=count)
            for (expected, intent), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
        ]

    def _recognized(self, classified: Sequence[ClassifiedTexts]) -> RecognizedIntents | None:
        """The effect of the recognizer's errors: utterances by whether the words and the intent are right."""
        texts = self._texts
        if texts.hypotheses is None:
            return None
        edits = count_word_edits(texts.references, texts.hypotheses)

        # (words right, intent right) → utterances whose intent is known
        counts = collections.Counter(
            (edits[index].errors == 0, classified[index].intent == expected)
            for index, expected in enumerate(texts.intents)
            if expected
        )
        return RecognizedIntents(
            wer=sum_edits(edits).rate,
            words_right=IntentCounts(intent_right=counts[True, True], intent_wrong=counts[True, False]),
            words_wrong=IntentCounts(intent_right=counts[False, True], intent_wrong=counts[False, False]),
        )

    def smoke_test(self, measured: MeasuredModel[ClassifiedTexts]) -> IntentsSmokeTest:
        """A text that push's smoke test classifies again: the first with the right intent."""
        # The words that a fresh process reads are in metrics.json, so no recording is needed.
        right = (
            index
            for index, (texts, expected) in enumerate(zip(measured.records, self._texts.intents, strict=True))
            if texts.reference.name == expected
        )
        index = next(right, 0)
        intent = measured.records[index].reference
        return IntentsSmokeTest(
            id=self.job.utterances[index].id,
            text=self._texts.references[index],
            intent=intent.name,
            probability=intent.probability,
        )

    def counts(self, measured: MeasuredModel[ClassifiedTexts]) -> dict[str, int]:
        return {"without_intent": self._texts.intents.count("")}

    def report_sections(
        self, results: Sequence[UtteranceResult], info: EvaluationInfo
    ) -> list[tuple[str, list["Block"]]]:
        from voxline.families.intents.report import intents_sections

        return intents_sections(self.job, results, info)

    def describe_method(self, details: IntentsDetails) -> str:
        recognizer = self.job.auxiliary_models[RECOGNIZER]
        transcribed = (
            f" It classified what version {recognizer.version} of the ASR model {recognizer.name} transcribed of "
            "the recordings too, decoded as `voxline transcribe` does."
            if recognizer
            else " No recognizer was named (evaluate.recognizer), so only texts were classified."
        )
        return (
            "The exported classifier was loaded from the files that would ship, and classified the reference texts."
            f"{transcribed} The intents of the utterances are those in the manifest's field {self.job.settings.field}"
            ". A text without a word has no intent, which counts as an error.\n\n"
            "The baseline was trained beside the classifier, on the same batches: the same layers with a mean in place "
            "of the capsules. Differences to it are paired, utterance by utterance."
        )


def _transcribe(version: ModelVersion, utterances: Sequence[Utterance], batch_seconds: float) -> list[str]:
    """Transcribes utterances with a version of a recognizer, as `voxline transcribe` decodes them.

    Raises:
      WorkError: the version is damaged, or a recording cannot be read.
    """
    print_status(f"evaluate: transcribing {len(utterances):,} utterances with {version.name} {version.version}")
    try:
        recognizer = Recognizer(version.folder, batch_seconds=batch_seconds)
    except WorkError as error:
        raise version.unusable(error) from None

    # Batches of similar length pad little; texts come back in the order of the utterances.
    hypotheses = [""] * len(utterances)
    progress = Progress("utterances transcribed", len(utterances))
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(batch_seconds * 1000)):
        waveforms = [read_utterance(utterances[index], recognizer.sample_rate) for index in batch]
        for index, text in zip(batch, recognizer.transcribe_waveforms(waveforms), strict=True):
            hypotheses[index] = text
        progress.advance(len(batch))
    return hypotheses


def _texts(job: EvaluationJob) -> Texts:
    """The texts of the split, transcribed if there is a recognizer.

    Raises:
      WorkError: no utterance has the field of the intents, or a recording cannot be read.
    """
    # The same field that the training read; without it every text would count as not judged.
    field = job.settings.field
    intents = [intent_of(utterance.extra, field) for utterance in job.utterances]
    if not any(intents):
        fields = sorted({name for utterance in job.utterances for name in utterance.extra})
        raise WorkError(
            f"evaluate: no utterance of the split {job.settings.split!r} has the field {field!r}; they have "
            f"{', '.join(fields) or 'no further field'}: set train.field"
        )
    version = job.auxiliary_models[RECOGNIZER]
    if version is not None and not all(utterance.audio_filepath for utterance in job.utterances):
        raise WorkError(
            "evaluate.recognizer: the utterances are texts without recordings, which no recognizer can hear; leave it "
            "empty"
        )
    hypotheses = None if version is None else _transcribe(version, job.utterances, job.settings.batch_seconds)
    return Texts(intents, [utterance.text for utterance in job.utterances], hypotheses)
