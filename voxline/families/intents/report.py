"""The sections of an evaluation's report that only classifiers of intents have."""

from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.measurement import SLICES, EvaluationJob
from voxline.components.evaluate.report import baseline_table
from voxline.families.intents.details import IntentsDetails, RecognizedIntents
from voxline.metrics.evaluation import EvaluationInfo, UtteranceResult
from voxline.report import (
    Block,
    PlayerBudget,
    badge,
    data_table,
    item_list,
    paragraphs,
    small_print,
    word_diff,
    word_diff_legend,
)

MAX_TEXT = 2_000
"""Characters of a text that are shown."""


def intents_sections(
    job: EvaluationJob, results: Sequence[UtteranceResult], info: EvaluationInfo
) -> list[tuple[str, list[Block]]]:
    """The table beside mean pooling, the effect of wrong words, confusions, and utterances with a wrong intent."""
    details = info.family_details(IntentsDetails)
    return [
        *([("Beside mean pooling", _beside_mean_pooling(info, details))] if details.mean_pooling else []),
        *([("Words and intents", _words_and_intents(details.recognizer))] if details.recognizer else []),
        (SLICES, []),
        ("Confused intents", _confusions(details, job.settings.confusions)),
        ("Utterances with a wrong intent", _wrong(job, results)),
    ]


def _beside_mean_pooling(info: EvaluationInfo, details: IntentsDetails) -> list[Block]:
    note = "The same layers with a mean in place of the capsules, trained beside them. Differences are paired."
    return [baseline_table(info, details.mean_pooling or {}, "mean pooling"), small_print(note)]


def _words_and_intents(recognized: RecognizedIntents) -> list[Block]:
    rows = [
        [title, counts.intent_right, counts.intent_wrong]
        for title, counts in (("all words right", recognized.words_right), ("some word wrong", recognized.words_wrong))
    ]
    note = f"The recognizer's word error rate on these recordings is {recognized.wer:.2%}."
    return [data_table(["utterances with", "intent right", "intent wrong"], rows, label=note), small_print(note)]


def _confusions(details: IntentsDetails, count: int) -> list[Block]:
    # A recognizer may write nothing; then there is no text to classify.
    rows = [
        [confusion.intent, confusion.found or badge("no words"), confusion.count]
        for confusion in details.confusions[:count]
    ]
    blocks: list[Block] = [data_table(["intent", "found", "times"], rows, label="Most confused intents")]
    if not rows:
        blocks = [small_print("No intent is wrong.")]
    if unknown := details.unknown_intents:
        blocks.append(small_print(f"The classifier does not know these intents of the split: {', '.join(unknown)}."))
    if missing := details.without_intent:
        blocks.append(small_print(f"{missing:,} utterances have no intent in the manifest, and are not counted."))
    return blocks


def _wrong(job: EvaluationJob, results: Sequence[UtteranceResult]) -> list[Block]:
    """Utterances with a wrong intent: first those where it is of the recognized words, the surest first."""

    def order(index: int) -> tuple[Any, ...]:
        result = results[index]
        recognized = "intent_error_rate" in result.metrics and result.measured("intent_error_rate").sum
        probability = result.details.get("heard_probability", result.details["text_probability"])
        return not recognized, -probability, result.id

    wrong = [index for index, result in enumerate(results) if any(value.sum for value in result.metrics.values())]
    if not wrong:
        return [small_print("Every utterance has its intent.")]

    # Players stop at the size that the settings allow the page; the texts go on.
    budget = PlayerBudget(round(job.settings.audio_megabytes * 1e6))
    entries = []
    for index in sorted(wrong, key=order)[: job.settings.worst_utterances]:
        result = results[index]
        utterance = job.utterances[index]
        player = Block("")
        if utterance.audio_filepath:
            player = budget.player(
                utterance.audio_filepath,
                offset=utterance.offset,
                duration=utterance.duration,
                codec="mp3",
                label=f"utterance {result.id}",
            )
        reference = result.details["reference"][:MAX_TEXT]
        if "hypothesis" in result.details:
            text = word_diff(reference, result.details["hypothesis"][:MAX_TEXT])
        else:
            text = paragraphs(reference)
        entries.append(Block("").join([paragraphs(_facts(result)), player, text]))
    return [word_diff_legend("the recognizer"), item_list(*entries)]


def _facts(result: UtteranceResult) -> str:
    details = result.details
    facts = [result.id, f"speaker {result.speaker}" if result.speaker else "", f"intent {details['intent']}"]
    facts.append(f"text: {details['text_intent'] or 'none'} ({details['text_probability']:.0%})")
    if "heard_intent" in details:
        facts.append(f"heard: {details['heard_intent'] or 'none'} ({details['heard_probability']:.0%})")
    return " · ".join(fact for fact in facts if fact)
