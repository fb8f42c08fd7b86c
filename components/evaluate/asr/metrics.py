"""From what was said and what was heard to the figures of `metrics.json`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.asr.transcribe import AsrResult, ChampionResult
from voxline.components.evaluate.settings import AsrEvaluateSettings
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap
from voxline.metrics.evaluation import band_names, group_by_slice
from voxline.metrics.wer import EditCounts, count_character_edits, count_confusions, count_word_edits, sum_edits

ALWAYS_SLICED = ("speaker", "duration", "words")


def asr_results(
    utterances: Sequence[Utterance],
    heard: Sequence[str],
    champion: Sequence[str] | None,
    settings: AsrEvaluateSettings,
) -> list[AsrResult]:
    """One row for each utterance, in their order."""
    references = [utterance.text for utterance in utterances]
    words, characters = count_word_edits(references, heard), count_character_edits(references, heard)
    others: list[ChampionResult | None] = [None] * len(utterances)
    if champion is not None:
        edits = zip(
            champion, count_word_edits(references, champion), count_character_edits(references, champion), strict=True
        )
        others = [ChampionResult(*one) for one in edits]
    return [
        AsrResult(
            id=utterance.id,
            speaker=utterance.speaker,
            duration=utterance.duration,
            reference=utterance.text,
            hypothesis=heard[place],
            words=words[place],
            characters=characters[place],
            slices=_slices(utterance, words[place].length, settings),
            champion=others[place],
        )
        for place, utterance in enumerate(utterances)
    ]


def check_asr_slices(utterances: Sequence[Utterance], settings: AsrEvaluateSettings) -> None:
    """Refuses a slicing by a field that no utterance has.

    Raises:
      SettingsError: naming the field, and those that there are.
    """
    fields = {field for utterance in utterances for field in utterance.extra}
    unknown = [name for name in settings.slices if name not in fields | set(ALWAYS_SLICED)]
    if unknown:
        raise SettingsError(
            f"evaluate: 'slices' is {settings.slices!r}; no utterance of the split has {', '.join(unknown)}; "
            f"beside {', '.join(ALWAYS_SLICED)} they have {', '.join(sorted(fields)) or 'no other field'}"
        )


def compute_asr_metrics(rows: Sequence[AsrResult], settings: AsrEvaluateSettings) -> dict[str, Any]:
    """Rates with intervals, slices, confused words, and the comparison with the model in service."""
    bootstrap = Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed, settings.fewest_speakers)
    names = list(dict.fromkeys([*ALWAYS_SLICED, *settings.slices]))
    sliced = {
        name: {value: _rates(group, bootstrap) for value, group in _in_order(rows, name, settings)} for name in names
    }
    pairs = count_confusions([row.reference for row in rows], [row.hypothesis for row in rows])
    return {
        "bootstrap": dataclasses.asdict(bootstrap),
        **_rates(rows, bootstrap),
        "cer": _rate([row.characters for row in rows], rows, bootstrap),
        "sentence_error_rate": sum(row.words.errors > 0 for row in rows) / len(rows),
        "slices": sliced,
        "confusions": [{"said": said, "heard": heard, "count": count} for said, heard, count in pairs[:1000]],
    }


def _rates(rows: Sequence[AsrResult], bootstrap: Bootstrap) -> dict[str, Any]:
    """The word error rate of some utterances, and beside it the champion's."""
    speakers = [row.speaker for row in rows]
    values = {
        "utterances": len(rows),
        "seconds": round(sum(row.duration for row in rows), 3),
        "wer": _rate([row.words for row in rows], rows, bootstrap),
        "comparison": None,
    }
    champion = [row.champion.words for row in rows if row.champion]
    if champion:
        compared = bootstrap.compare([row.words.part for row in rows], [edits.part for edits in champion], speakers)
        values["comparison"] = {
            "champion_wer": sum_edits(champion).rate,
            "champion_interval": bootstrap.interval([edits.part for edits in champion], speakers).plain(),
            **compared.plain(),
        }
    return values


def _rate(edits: Sequence[EditCounts], rows: Sequence[AsrResult], bootstrap: Bootstrap) -> dict[str, Any]:
    together = sum_edits(edits)
    interval = bootstrap.interval([edit.part for edit in edits], [row.speaker for row in rows])
    return {"rate": together.rate, **dataclasses.asdict(together), "interval": interval.plain()}


def _slices(utterance: Utterance, words: int, settings: AsrEvaluateSettings) -> dict[str, str]:
    values = {
        "speaker": utterance.speaker or "(unknown)",
        "duration": band_names(settings.duration_bands, "s")(utterance.duration),
        "words": band_names(settings.word_bands, "words")(words),
    }
    for name in settings.slices:
        if name not in values:
            value = utterance.extra.get(name)
            values[name] = "(none)" if value in (None, "") else str(value)
    return values


def _in_order(rows: Sequence[AsrResult], name: str, settings: AsrEvaluateSettings) -> list[tuple[str, list[AsrResult]]]:
    """Bands from the lowest up, all else by name."""
    if name == "duration":
        rows = sorted(rows, key=lambda row: row.duration)
    elif name == "words":
        rows = sorted(rows, key=lambda row: row.words.length)
    groups = group_by_slice(rows, name)
    return list(groups.items()) if name in ("duration", "words") else sorted(groups.items())
