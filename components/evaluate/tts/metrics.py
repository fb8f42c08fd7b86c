"""From what a voice did on each utterance to the figures of `metrics.json`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from voxline.components.evaluate.settings import SynthesisEvaluateSettings
from voxline.components.evaluate.tts.synthesize import Performance
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap, Part, ratio
from voxline.metrics.catalog import FIGURES, NOT_JUDGED, Figure
from voxline.metrics.evaluation import Row, band, by_slice

ALWAYS_SLICED = ("text_length",)


def check_slices(utterances: Sequence[Utterance], settings: SynthesisEvaluateSettings) -> None:
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


def table(
    utterances: Sequence[Utterance],
    performances: Sequence[Performance],
    champion: Sequence[Performance] | None,
    settings: SynthesisEvaluateSettings,
) -> list[Row]:
    """One row for each utterance, in their order."""
    others: Sequence[Performance | None] = champion or [None] * len(utterances)
    return [
        Row(
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


def figures(rows: Sequence[Row], settings: SynthesisEvaluateSettings) -> dict[str, Any]:
    """Every figure with its interval, in all and in slices, and beside it that of the voice in service."""
    bootstrap = Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed, settings.fewest_speakers)
    names = list(dict.fromkeys([*ALWAYS_SLICED, *settings.slices]))
    return {
        "bootstrap": dataclasses.asdict(bootstrap),
        **_of(rows, bootstrap),
        "slices": {name: {value: _of(group, bootstrap) for value, group in _in_order(rows, name)} for name in names},
    }


def _of(rows: Sequence[Row], bootstrap: Bootstrap) -> dict[str, Any]:
    return {
        "utterances": len(rows),
        "seconds": round(sum(row.duration for row in rows), 3),
        "figures": {name: _figure(rows, FIGURES[name], bootstrap) for name in FIGURES if name in rows[0].figures},
    }


def _figure(rows: Sequence[Row], figure: Figure, bootstrap: Bootstrap) -> dict[str, Any]:
    parts = [row.figures[figure.name] for row in rows]
    speakers = [row.speaker for row in rows]
    values: dict[str, Any] = {
        "value": ratio(parts, figure.kind),
        "measured": len(rows) if figure.kind == "rate" else sum(part.weight > 0 for part in parts),
        "interval": bootstrap.interval(parts, speakers, figure.kind).plain(),
        "comparison": None,
    }
    others = [row.champion[figure.name] for row in rows if row.champion is not None]
    if others:
        turned = [[Part(figure.sign * part.value, part.weight) for part in side] for side in (parts, others)]
        compared = bootstrap.compare(turned[0], turned[1], speakers, figure.kind)
        values["comparison"] = {
            "champion_value": ratio(others, figure.kind),
            "difference": figure.sign * compared.difference,
            "probability_worse": None if figure.name in NOT_JUDGED else compared.probability_worse,
            "measured": compared.interval.units,
        }
    return values


def _slices(utterance: Utterance, settings: SynthesisEvaluateSettings) -> dict[str, str]:
    values = {"text_length": band(settings.text_bands, "symbols")(len(utterance.text))}
    for name in settings.slices:
        if name not in values:
            value = utterance.speaker if name == "speaker" else utterance.extra.get(name)
            values[name] = "(none)" if value in (None, "") else str(value)
    return values


def _in_order(rows: Sequence[Row], name: str) -> list[tuple[str, list[Row]]]:
    """Bands from the lowest up, all else by name."""
    if name == "text_length":
        return list(by_slice(sorted(rows, key=lambda row: len(row.told["text"])), name).items())
    return sorted(by_slice(rows, name).items())
