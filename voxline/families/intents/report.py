"""The sections of an evaluation's report that only classifiers of intents have."""

from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.measurement import SLICES, EvaluationJob
from voxline.components.evaluate.report import baseline_table
from voxline.families.intents.evaluate import IntentsDetails
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
    details = info.details
    return [
        *([("Beside mean pooling", _beside_mean_pooling(info))] if details["mean_pooling"] else []),
        *([("Words and intents", _words_and_intents(details["recognizer"]))] if details["recognizer"] else []),
        (SLICES, []),
        ("Confused intents", _confusions(details, job.settings.confusions)),
        ("Utterances with a wrong intent", _wrong(job, results)),
    ]


def _beside_mean_pooling(info: EvaluationInfo) -> list[Block]:
    note = "The same layers with a mean in place of the capsules, trained beside them. Differences are paired."
    mean_pooling = info.family_details(IntentsDetails).mean_pooling or {}
    return [baseline_table(info, mean_pooling, "mean pooling"), small_print(note)]


def _words_and_intents(recognized: dict[str, Any]) -> list[Block]:
    rows = [
        [title, recognized[words]["intent_right"], recognized[words]["intent_wrong"]]
        for words, title in (("words_right", "all words right"), ("words_wrong", "some word wrong"))
    ]
    note = f"The recognizer's word error rate on these recordings is {recognized['wer']:.2%}."
    return [data_table(["utterances with", "intent right", "intent wrong"], rows, label=note), small_print(note)]


def _confusions(details: dict[str, Any], count: int) -> list[Block]:
    rows = [[one["intent"], one["found"] or badge("no words"), one["count"]] for one in details["confusions"][:count]]
    blocks: list[Block] = [data_table(["intent", "found", "times"], rows, label="Most confused intents")]
    if not rows:
        blocks = [small_print("No intent is wrong.")]
    if unknown := details["unknown_intents"]:
        blocks.append(small_print(f"The classifier does not know these intents of the split: {', '.join(unknown)}."))
    if missing := details["without_intent"]:
        blocks.append(small_print(f"{missing:,} utterances have no intent in the manifest, and are not counted."))
    return blocks


def _wrong(job: EvaluationJob, results: Sequence[UtteranceResult]) -> list[Block]:
    """Those with a wrong intent of what was heard come first, the surest first."""
    budget, entries = PlayerBudget(round(job.settings.audio_megabytes * 1e6)), []

    def order(index: int) -> tuple[Any, ...]:
        about, heard = results[index].details, results[index].metrics.get("intent_error_rate")
        surest = about.get("heard_probability", about["text_probability"])
        return not (heard and heard.sum), -surest, results[index].id

    wrong = [index for index, result in enumerate(results) if any(value.sum for value in result.metrics.values())]
    if not wrong:
        return [small_print("Every utterance has its intent.")]
    for index in sorted(wrong, key=order)[: job.settings.worst_utterances]:
        result, utterance = results[index], job.utterances[index]
        player = budget.player(
            utterance.audio_filepath,
            offset=utterance.offset,
            duration=utterance.duration,
            codec="mp3",
            label=f"utterance {result.id}",
        )
        texts = result.details["reference"][:MAX_TEXT], result.details.get("hypothesis", "")[:MAX_TEXT]
        shown = word_diff(*texts) if "hypothesis" in result.details else paragraphs(texts[0])
        entries.append(Block("").join([paragraphs(_about(result)), player, shown]))
    return [word_diff_legend("the recognizer"), item_list(*entries)]


def _about(result: UtteranceResult) -> str:
    about = result.details
    facts = [result.id, f"speaker {result.speaker}" if result.speaker else "", f"intent {about['intent']}"]
    facts.append(f"text: {about['text_intent'] or 'none'} ({about['text_probability']:.0%})")
    if "heard_intent" in about:
        facts.append(f"heard: {about['heard_intent'] or 'none'} ({about['heard_probability']:.0%})")
    return " · ".join(fact for fact in facts if fact)
