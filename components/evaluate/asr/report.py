"""The sections of an evaluation's report that only ASR models have."""

from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.asr.family import worst_first
from voxline.components.evaluate.family import EvaluationJob
from voxline.metrics.evaluation import UtteranceResult
from voxline.report import (
    Block,
    PlayerBudget,
    badge,
    data_table,
    item_list,
    small_print,
    word_diff,
    word_diff_legend,
)

MAX_TEXT = 2_000
"""Characters of a transcript that are shown: a model that never stops must not fill the page."""


def asr_sections(
    job: EvaluationJob, results: Sequence[UtteranceResult], details: dict[str, Any]
) -> list[tuple[str, list[Block]]]:
    """Errors by kind, confused words, and the worst utterances.

    Args:
      details: of metrics.json.
    """
    return [
        ("Errors", _errors(details)),
        ("Most confused words", _confusions(details, job.settings.confusions)),
        ("Worst utterances", _worst(job, results)),
    ]


def _errors(details: dict[str, Any]) -> list[Block]:
    kinds = ("substitutions", "deletions", "insertions")
    rows = [
        [unit, *(details[unit][kind] for kind in kinds), details[unit]["length"]] for unit in ("words", "characters")
    ]
    return [data_table(["", *kinds, "in the references"], rows)]


def _confusions(details: dict[str, Any], count: int) -> list[Block]:
    rows = [
        [pair["reference"] or badge("insertion"), pair["hypothesis"] or badge("deletion"), pair["count"]]
        for pair in details["confusions"][:count]
    ]
    return [data_table(["reference", "hypothesis", "times"], rows)] if rows else [small_print("No word is wrong.")]


def _worst(job: EvaluationJob, results: Sequence[UtteranceResult]) -> list[Block]:
    order = worst_first(results)[: job.settings.worst_utterances]
    if not order:
        return [small_print("No utterance has an error.")]
    budget = PlayerBudget(round(job.settings.audio_megabytes * 1e6))
    shown = []
    for index in order:
        result, utterance = results[index], job.utterances[index]
        errors, words = result.metrics["wer"]
        speaker = f", speaker {result.speaker}" if result.speaker else ""
        caption = f"{result.id}{speaker}, {result.duration:.1f} s, {errors:.0f} errors in {words:.0f} words"
        player = budget.player(utterance.audio_filepath, caption, offset=utterance.offset, duration=utterance.duration)
        texts = (result.details[name][:MAX_TEXT] for name in ("reference", "hypothesis"))
        shown.append(player + word_diff(*texts))
    return [word_diff_legend(), item_list(*shown)]
