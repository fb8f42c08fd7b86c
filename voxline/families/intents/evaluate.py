"""Measures an exported classifier of intents: on the texts of the test split, and on what a recognizer hears of it."""

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.components.evaluate.measurement import (
    EvaluationJob,
    Measurements,
    Slicing,
    compare_with,
    slice_by_band,
    slice_by_field,
)
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.families.intents.details import (
    IntentConfusion,
    IntentCounts,
    IntentsDetails,
    IntentsSmokeTest,
    RecognizedIntents,
)
from voxline.families.intents.inference import Intent, IntentClassifier, intent_of
from voxline.families.intents.settings import IntentsEvaluateSettings
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import batches_by_length
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import EvaluationInfo, Values
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
      wanted: the intent of each utterance; empty: not known.
      said: its reference text.
      heard: what the recognizer made of it; None without one.
    """

    wanted: list[str]
    said: list[str]
    heard: list[str] | None


@dataclasses.dataclass(frozen=True)
class Found:
    """The intents that a classifier found of what was said, and of what was heard if there is a recognizer."""

    said: list[Intent]
    heard: list[Intent] | None

    def metrics(self, wanted: Sequence[str]) -> list[Values]:
        """What each utterance adds to each metric; one without an intent adds nothing."""
        rows: list[Values] = []
        for index, intent in enumerate(wanted):
            weight = int(bool(intent))
            values = {"text_intent_error_rate": SumAndWeight(weight * (self.said[index].name != intent), weight)}
            if self.heard is not None:
                values["intent_error_rate"] = SumAndWeight(weight * (self.heard[index].name != intent), weight)
            rows.append(values)
        return rows


class IntentsEvaluateFamily:
    """How evaluate measures classifiers of intents; see `EvaluateFamily`."""

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

    def measure(self, job: EvaluationJob) -> Measurements:
        utterances, texts = job.utterances, _texts(job)
        print_status(f"evaluate: classifying {len(utterances):,} utterances of the split {job.settings.split!r}")
        if texts.heard is None:
            print_status("evaluate: no evaluate.recognizer is set, so only texts are classified")
        classifier = IntentClassifier(job.model)
        ours = _classify(classifier, texts)
        champion = _classify_with(job.champion, "the model in service", texts)
        anchor = _classify_with(job.anchor, "the anchor", texts)
        metrics = ours.metrics(texts.wanted)
        baseline = None
        if classifier.info.settings["baseline"]:
            by_mean = _classify(IntentClassifier(job.model, baseline=True), texts).metrics(texts.wanted)
            baseline = compare_with(by_mean, metrics, [one.speaker for one in utterances], job.settings)
        seconds = sum(utterance.duration for utterance in utterances)
        return Measurements(
            results=job.results(
                metrics,
                champion.metrics(texts.wanted) if champion else None,
                [_describe(index, texts, ours, champion) for index in range(len(utterances))],
                anchor.metrics(texts.wanted) if anchor else None,
            ),
            rtf=classifier.seconds / max(seconds, 0.001),
            champion_rtf=None,
            details=IntentsDetails(
                mean_pooling=baseline,
                confusions=_confusions(texts.wanted, ours),
                unknown_intents=sorted({intent for intent in texts.wanted if intent} - set(classifier.intents)),
                without_intent=sum(not intent for intent in texts.wanted),
                recognizer=_recognized(texts, ours),
            ),
            smoke_test=_smoke_test(job, texts, ours),
            outputs={},
            counts={"without_intent": sum(not one for one in texts.wanted)},
        )

    def report_sections(
        self, job: EvaluationJob, measured: Measurements, info: EvaluationInfo
    ) -> list[tuple[str, "list[Block]"]]:
        from voxline.families.intents.report import intents_sections

        return intents_sections(job, measured.results, info)

    def describe_method(self, job: EvaluationJob, measured: Measurements) -> str:
        recognizer = job.auxiliary_models[RECOGNIZER]
        heard = (
            f" It classified what version {recognizer.version} of the ASR model {recognizer.name} transcribed of "
            "the recordings too, decoded as `voxline transcribe` does."
            if recognizer
            else " No recognizer was named (evaluate.recognizer), so only texts were classified."
        )
        return (
            "The exported classifier was loaded from the files that would ship, and classified the reference texts."
            f"{heard} The intents of the utterances are those in the manifest's field {job.settings.field}"
            ". A text without a word has no intent, which counts as an error.\n\n"
            "The baseline was trained beside the classifier, on the same batches: the same layers with a mean in place "
            "of the capsules. Differences to it are paired, utterance by utterance."
        )


def _transcribe(version: ModelVersion, utterances: Sequence[Utterance], batch_seconds: float) -> list[str]:
    """What a version of a recognizer hears, as `voxline transcribe` decodes it.

    Raises:
      WorkError: the version is damaged, or a recording cannot be read.
    """
    print_status(f"evaluate: transcribing {len(utterances):,} utterances with {version.name} {version.version}")
    try:
        recognizer = Recognizer(version.folder, batch_seconds=batch_seconds)
    except WorkError as error:
        raise version.unusable(error) from None
    heard, progress = [""] * len(utterances), Progress("utterances transcribed", len(utterances))
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(batch_seconds * 1000)):
        waveforms = [_read(utterances[index], recognizer.sample_rate) for index in batch]
        for index, text in zip(batch, recognizer.transcribe_waveforms(waveforms), strict=True):
            heard[index] = text
        progress.advance(len(batch))
    return heard


def _read(utterance: Utterance, sample_rate: int) -> Any:
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None


def _texts(job: EvaluationJob) -> Texts:
    field = job.settings.field
    wanted = [intent_of(utterance.extra, field) for utterance in job.utterances]
    if not any(wanted):
        fields = sorted({name for utterance in job.utterances for name in utterance.extra})
        raise WorkError(
            f"evaluate: no utterance of the split {job.settings.split!r} has the field {field!r}; they have "
            f"{', '.join(fields) or 'no further field'}: set train.field"
        )
    version = job.auxiliary_models[RECOGNIZER]
    heard = None if version is None else _transcribe(version, job.utterances, job.settings.batch_seconds)
    return Texts(wanted, [utterance.text for utterance in job.utterances], heard)


def _classify(classifier: IntentClassifier, texts: Texts) -> Found:
    heard = None if texts.heard is None else classifier.classify_words(texts.heard)
    return Found(classifier.classify_words(texts.said), heard)


def _classify_with(version: ModelVersion | None, role: str, texts: Texts) -> Found | None:
    if version is None:
        return None
    print_status(f"evaluate: classifying them with version {version.version}, {role}")
    try:
        return _classify(IntentClassifier(version.folder), texts)
    except WorkError as error:
        raise version.unusable(error) from None


def _describe(index: int, texts: Texts, ours: Found, champion: Found | None) -> dict[str, Any]:
    found = {"text_intent": ours.said[index].name, "text_probability": round(ours.said[index].probability, 4)}
    if ours.heard is not None and texts.heard is not None:
        found |= {
            "hypothesis": texts.heard[index],
            "heard_intent": ours.heard[index].name,
            "heard_probability": round(ours.heard[index].probability, 4),
        }
    if champion:
        found["champion_intent"] = (champion.heard or champion.said)[index].name
    return {"reference": texts.said[index], "intent": texts.wanted[index], **found}


def _confusions(wanted: Sequence[str], found: Found) -> list[IntentConfusion]:
    """The wrong intents, the most frequent first: of what was heard, or of the texts without a recognizer."""
    pairs = collections.Counter(
        (intent, one.name)
        for intent, one in zip(wanted, found.heard or found.said, strict=True)
        if intent and intent != one.name
    )
    return [
        IntentConfusion(intent=intent, found=other, count=count)
        for (intent, other), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    ]


def _recognized(texts: Texts, found: Found) -> RecognizedIntents | None:
    """The effect of the recognizer's errors: utterances by whether the words and the intent are right."""
    if texts.heard is None or found.heard is None:
        return None
    edits = count_word_edits(texts.said, texts.heard)
    known = [index for index, intent in enumerate(texts.wanted) if intent]
    counts = collections.Counter(
        (edits[index].errors == 0, found.heard[index].name == texts.wanted[index]) for index in known
    )
    return RecognizedIntents(
        wer=sum_edits(edits).rate,
        words_right=IntentCounts(intent_right=counts[True, True], intent_wrong=counts[True, False]),
        words_wrong=IntentCounts(intent_right=counts[False, True], intent_wrong=counts[False, False]),
    )


def _smoke_test(job: EvaluationJob, texts: Texts, found: Found) -> IntentsSmokeTest:
    """A text that push's smoke test classifies again: the first with the right intent."""
    right = (index for index, intent in enumerate(texts.wanted) if found.said[index].name == intent)
    index = next(right, 0)
    return IntentsSmokeTest(
        id=job.utterances[index].id,
        text=texts.said[index],
        intent=found.said[index].name,
        probability=found.said[index].probability,
    )
