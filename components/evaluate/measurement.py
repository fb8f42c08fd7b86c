"""What evaluate measures, and by which slices."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.settings import EvaluateSettings
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.metrics.bootstrap import Bootstrap, aggregate
from voxline.metrics.catalog import CATALOG
from voxline.metrics.evaluation import (
    BaselineInfo,
    IntervalInfo,
    RegisteredModel,
    SplitCounts,
    UtteranceResult,
    Values,
)
from voxline.store.versioned_json import FilePart

SLICES = "Slices"
"""The heading of the shared section. A family puts (SLICES, []) among its own where that section is to be."""

Slicing = Callable[[Utterance], tuple[Any, str]]
"""An utterance → a key to sort slices by, and the name of its slice."""


@dataclasses.dataclass(frozen=True)
class EvaluationJob:
    """A model to measure.

    Attributes:
      model: the exported model's folder.
      output: the folder for clips and the like.
      slices: of each utterance, by the name of the slicing.
      champion: the model in service, if any, to measure on the same utterances.
      auxiliary_models: what the family asked for.
      anchor: a further version to measure on the same utterances; None if there is none, or if it is the champion or
        was measured on them before.
    """

    model: Path
    output: Path
    utterances: Sequence[Utterance]
    slices: Sequence[dict[str, str]]
    champion: ModelVersion | None
    auxiliary_models: Mapping[str, ModelVersion | None]
    settings: Any
    anchor: ModelVersion | None = None

    @property
    def auxiliary_info(self) -> dict[str, RegisteredModel | None]:
        """The auxiliary models, as metrics.json names them."""
        return {name: version.info if version else None for name, version in self.auxiliary_models.items()}

    def results(
        self,
        metrics: Sequence[Values],
        champion: Sequence[Values] | None,
        details: Sequence[dict[str, Any]],
        anchor: Sequence[Values] | None = None,
    ) -> list[UtteranceResult]:
        """A result for each utterance, from its metrics, the champion's, the anchor's and further details."""
        return [
            UtteranceResult(
                utterance.id,
                utterance.speaker,
                utterance.duration,
                self.slices[index],
                metrics[index],
                champion[index] if champion else None,
                details[index],
                anchor[index] if anchor else None,
            )
            for index, utterance in enumerate(self.utterances)
        ]


@dataclasses.dataclass(frozen=True)
class TestSplit:
    """The utterances to measure on, and what the manifest has beside them.

    Attributes:
      seen: the sentences of the split that train contains too.
      data: the size of every split.
    """

    utterances: Sequence[Utterance]
    seen: frozenset[str]
    data: dict[str, SplitCounts]


@dataclasses.dataclass
class Measurements:
    """What a family measured.

    Attributes:
      results: in the order of the utterances.
      rtf, champion_rtf: seconds of computing per second of speech; None: not measured.
      details: for metrics.json, the family's own subclass of `FamilyDetails`.
      smoke_test: for metrics.json, what push's smoke test expects.
      outputs: further files in the output folder, by name.
      counts: for run.json.
      samples: for the family's own sections of the report.
    """

    results: list[UtteranceResult]
    rtf: float | None
    champion_rtf: float | None
    details: Any
    smoke_test: FilePart
    outputs: dict[str, str]
    counts: dict[str, int]
    samples: Any = None


def slice_by_sentence(seen: frozenset[str]) -> Slicing:
    """Slices by whether train contains the same sentence; the score on seen ones says little about new text."""

    def slicing(utterance: Utterance) -> tuple[Any, str]:
        label = "also in train" if utterance.text in seen else "not in train"
        return label, label

    return slicing


def slice_by_field(name: str) -> Slicing:
    """Slices by the speaker, or by a further field of the manifest."""

    def slicing(utterance: Utterance) -> tuple[Any, str]:
        value = utterance.speaker if name == "speaker" else utterance.extra.get(name)
        label = ("(unknown)" if name == "speaker" else "(none)") if value in (None, "") else str(value)
        return label, label

    return slicing


def slice_by_band(value: Callable[[Utterance], float], bounds: Sequence[float], unit: str) -> Slicing:
    """Slices by the band that a number falls in."""
    names = band_names(bounds, unit)

    def slicing(utterance: Utterance) -> tuple[Any, str]:
        band = sum(value(utterance) >= bound for bound in bounds)
        return band, names[band]

    return slicing


def band_names(bounds: Sequence[float], unit: str) -> list[str]:
    """The names of the bands between bounds; whole numbers if all bounds are written as such.

    >>> band_names([-30.0, -20.0], "dB")
    ['under -30 dB', '-30 to -20 dB', '-20 dB and over']

    >>> band_names([1.0, 2.5], "s")
    ['under 1 s', '1-2.5 s', '2.5 s and over']
    >>> band_names([1, 2, 5], "words")
    ['under 1 words', '1 words', '2-4 words', '5 words and over']
    """
    whole = all(isinstance(bound, int) for bound in bounds)
    names = [f"under {bounds[0]:g} {unit}"]
    for low, high in itertools.pairwise(bounds):
        last = high - 1 if whole else high
        to = " to " if low < 0 else "-"
        names.append(f"{low:g} {unit}" if last == low else f"{low:g}{to}{last:g} {unit}")
    return [*names, f"{bounds[-1]:g} {unit} and over"]


def all_slicings(own: dict[str, Slicing], split: TestSplit, settings: Any) -> dict[str, Slicing]:
    """The family's slicings, the one by sentence, and those that the settings add.

    Raises:
      SettingsError: no utterance has a field, naming those that exist.
    """
    slicings = own | {"sentence": slice_by_sentence(split.seen)}
    fields = {"speaker", *(field for utterance in split.utterances for field in utterance.extra)}
    unknown = [name for name in settings.slices if name not in fields | slicings.keys()]
    if unknown:
        raise SettingsError(
            f"evaluate: 'slices' is {settings.slices!r}; no utterance of the split has {', '.join(unknown)}; "
            f"besides {', '.join(slicings)} they have {', '.join(sorted(fields - slicings.keys())) or 'no other field'}"
        )
    of_corpora = ["corpus"] if "corpus" in fields else []
    return slicings | {name: slice_by_field(name) for name in (*of_corpora, *settings.slices) if name not in slicings}


def slice_order(slicings: Mapping[str, Slicing], utterances: Sequence[Utterance]) -> dict[str, list[str]]:
    """The slices of each slicing in order: bands from the lowest, anything else by name."""
    return {
        name: [label for _, label in sorted({slicing(utterance) for utterance in utterances})]
        for name, slicing in slicings.items()
    }


def bootstrap_of(settings: EvaluateSettings) -> Bootstrap:
    """The resampling that the settings describe."""
    return Bootstrap(settings.confidence, settings.bootstrap_samples, settings.seed, settings.min_speakers)


def compare_with(
    baseline: Sequence[Values], measured: Sequence[Values], speakers: Sequence[str], settings: EvaluateSettings
) -> dict[str, BaselineInfo]:
    """Compares the model with a baseline on the same utterances, metric by metric.

    Args:
      measured: of the model; it has all metrics of the baseline.
    """
    bootstrap = bootstrap_of(settings)
    compared = {}
    for name in baseline[0]:
        metric = CATALOG[name]
        values = [metrics[name] for metrics in measured]
        before = [metrics[name] for metrics in baseline]
        difference = bootstrap.compare(values, before, speakers, metric.kind, sign=metric.sign)

        # The bootstrap counts in "worse"; the file has the difference of the values, whichever direction is better.
        low, high = sorted(metric.sign * end for end in (difference.interval.low, difference.interval.high))
        paired = difference.interval.units > 0
        compared[name] = BaselineInfo(
            value=aggregate(before, metric.kind),
            difference=metric.sign * difference.difference if paired else None,
            interval=IntervalInfo.of(dataclasses.replace(difference.interval, low=low, high=high)),
        )
    return compared
