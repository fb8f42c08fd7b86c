"""From what a voice did on each utterance to the figures of `metrics.json`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.evaluate.tts.synthesize import SynthesisRecord
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, NOT_COMPARED, Metric
from voxline.metrics.evaluation import UtteranceResult, band_names, group_by_slice

ALWAYS_SLICED = ("text_length",)


def check_tts_slices(utterances: Sequence[Utterance], settings: TtsEvaluateSettings) -> None:
    """Refuses a slicing by a field that no utterance has.

    Raises:
      SettingsError: naming the field, and those that there are.
    """
    fields = {"speaker", *(field for utterance in utterances for field in utterance.extra)}
    unknown = [name for name in settings.slices if name not in fields | set(ALWAYS_SLICED)]
    if unknown:
        raise SettingsError(
            f"evaluate: 'slices' is {settings.slices!r}; no utterance of the split has {', '.join(unknown)}; "
            f"beside {', '.join(ALWAYS_SLICED)} they have {', '.join(sorted(fields))}"
        )


def tts_results(
    utterances: Sequence[Utterance],
    performances: Sequence[SynthesisRecord],
    champion: Sequence[SynthesisRecord] | None,
    settings: TtsEvaluateSettings,
) -> list[UtteranceResult]:
    """One row for each utterance, in their order."""
    others: Sequence[SynthesisRecord | None] = champion or [None] * len(utterances)
    return [
        UtteranceResult(
            utterance.id,
            utterance.speaker,
            utterance.duration,
            _slices(utterance, settings),
            performance.figures,
            None if other is None else other.figures,
            {**performance.told, "champion_heard": other and other.told.get("heard")},
        )
        for utterance, performance, other in zip(utterances, performances, others, strict=True)
    ]


def compute_tts_metrics(rows: Sequence[UtteranceResult], settings: TtsEvaluateSettings) -> dict[str, Any]:
    """Every figure with its interval, in all and in slices, and beside it that of the voice in service."""
    bootstrap = Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed, settings.fewest_speakers)
    names = list(dict.fromkeys([*ALWAYS_SLICED, *settings.slices]))
    return {
        "bootstrap": dataclasses.asdict(bootstrap),
        **_of(rows, bootstrap),
        "slices": {name: {value: _of(group, bootstrap) for value, group in _in_order(rows, name)} for name in names},
    }


def _of(rows: Sequence[UtteranceResult], bootstrap: Bootstrap) -> dict[str, Any]:
    return {
        "utterances": len(rows),
        "seconds": round(sum(row.duration for row in rows), 3),
        "figures": {name: _figure(rows, CATALOG[name], bootstrap) for name in CATALOG if name in rows[0].figures},
    }


def _figure(rows: Sequence[UtteranceResult], figure: Metric, bootstrap: Bootstrap) -> dict[str, Any]:
    parts = [row.figures[figure.name] for row in rows]
    speakers = [row.speaker for row in rows]
    values: dict[str, Any] = {
        "value": aggregate(parts, figure.kind),
        "measured": len(rows) if figure.kind == "rate" else sum(part.weight > 0 for part in parts),
        "interval": bootstrap.interval(parts, speakers, figure.kind).plain(),
        "comparison": None,
    }
    others = [row.champion[figure.name] for row in rows if row.champion is not None]
    if others:
        turned = [[SumAndWeight(figure.sign * part.value, part.weight) for part in side] for side in (parts, others)]
        compared = bootstrap.compare(turned[0], turned[1], speakers, figure.kind)
        values["comparison"] = {
            "champion_value": aggregate(others, figure.kind),
            "difference": figure.sign * compared.difference,
            "probability_worse": None if figure.name in NOT_COMPARED else compared.probability_worse,
            "measured": compared.interval.units,
        }
    return values


def _slices(utterance: Utterance, settings: TtsEvaluateSettings) -> dict[str, str]:
    values = {"text_length": band_names(settings.text_bands, "symbols")(len(utterance.text))}
    for name in settings.slices:
        if name not in values:
            value = utterance.speaker if name == "speaker" else utterance.extra.get(name)
            values[name] = "(none)" if value in (None, "") else str(value)
    return values


def _in_order(rows: Sequence[UtteranceResult], name: str) -> list[tuple[str, list[UtteranceResult]]]:
    """Bands from the lowest up, all else by name."""
    if name == "text_length":
        return list(group_by_slice(sorted(rows, key=lambda row: len(row.told["text"])), name).items())
    return sorted(group_by_slice(rows, name).items())
