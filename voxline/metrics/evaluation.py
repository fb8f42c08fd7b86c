"""What evaluate writes and push reads: a table of utterances, and `metrics.json` about all of them together.

A line of `utterances.jsonl`:
  {"id": "1988-0001", "speaker": "1988", "duration": 3.2, "slices": {"speaker": "1988", "duration": "2-4 s"},
   "figures": {"wer": [1, 5], "cer": [2, 21]}, "champion": {"wer": [0, 5], "cer": [0, 21]}, …}
A figure is what this utterance adds to the sums above and below (see `bootstrap.Part`); `champion` has those of the
model in service on the same utterance, or is null where there was none. What else a line holds is the kind of
model's own, and for people: texts, alignments, edits.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from voxline.errors import WorkError
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight
from voxline.store.files import atomic_write, read_json

METRICS_FILE = "metrics.json"
UTTERANCES_FILE = "utterances.jsonl"
REPORT_FILE = "report.html"
CLIP_FILE = "clip.wav"
CLIP_MELS_FILE = "clip.npy"
"""Of a voice: the mels that it gave for the known text, float32 [frames, mels]."""
VERDICT_SLOT = "verdict"


@dataclasses.dataclass(frozen=True, slots=True)
class UtteranceResult:
    """One utterance, as a model did on it.

    Attributes:
      duration: seconds.
      slices: which part of the test split it belongs to, by the name of the slicing.
      figures: by the name of the figure.
      champion: the same of the model in service.
      told: all else that the line holds.
    """

    id: str
    speaker: str
    duration: float
    slices: dict[str, str]
    figures: dict[str, SumAndWeight]
    champion: dict[str, SumAndWeight] | None = None
    told: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_line(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "told"}
        return {**values, **self.told}

    @classmethod
    def of_line(cls, values: dict[str, Any]) -> "UtteranceResult":
        known = {field.name for field in dataclasses.fields(cls)}
        champion = values["champion"]
        return cls(
            **{name: values[name] for name in ("id", "speaker", "duration", "slices")},
            figures=_parts(values["figures"]),
            champion=None if champion is None else _parts(champion),
            told={name: value for name, value in values.items() if name not in known},
        )


def _parts(figures: dict[str, list[float]]) -> dict[str, SumAndWeight]:
    return {name: SumAndWeight(*part) for name, part in figures.items()}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An exported model's figures on one test split.

    Attributes:
      folder: where it lies.
      metrics: all of `metrics.json`.
      rows: in the order of the manifest.
    """

    folder: Path
    metrics: dict[str, Any]
    rows: list[UtteranceResult]

    @classmethod
    def read(cls, folder: Path | str) -> "Evaluation":
        """Reads evaluate's output, or the copy that a version in the registry keeps.

        Raises:
          WorkError: it is not there, or damaged.
        """
        folder = Path(folder).absolute()
        missing = [name for name in (METRICS_FILE, UTTERANCES_FILE) if not (folder / name).is_file()]
        if missing:
            raise WorkError(f"{folder}: no {' and no '.join(missing)}, so this is no evaluation; run evaluate first")
        try:
            with open(folder / UTTERANCES_FILE, encoding="utf-8") as file:
                rows = [UtteranceResult.of_line(json.loads(line)) for line in file]
            metrics = read_json(folder / METRICS_FILE)
            if not rows or len(rows) != metrics["utterances"]:
                raise ValueError(f"{len(rows)} of {metrics['utterances']} utterances")
            return cls(folder, metrics, rows)
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{folder}: damaged ({type(error).__name__}: {error}); run evaluate again") from None

    @property
    def digest(self) -> str:
        """Of the model that was evaluated."""
        return str(self.metrics["model"]["digest"])

    @property
    def champion_digest(self) -> str | None:
        """Of the model that it was compared with."""
        champion = self.metrics["champion"]
        return None if champion is None else str(champion["digest"])

    @property
    def test(self) -> str:
        """The fingerprint of the utterances."""
        return str(self.metrics["test"]["fingerprint"])

    def bootstrap(self, confidence: float) -> Bootstrap:
        """Intervals as evaluate made them, at a confidence of one's own."""
        used = self.metrics["bootstrap"]
        return Bootstrap(confidence, used["samples"], used["seed"], used["fewest_speakers"])


def write_results(path: Path, rows: Iterable[UtteranceResult]) -> None:
    with atomic_write(path, "w") as file:
        for row in rows:
            file.write(json.dumps(row.as_line(), ensure_ascii=False, allow_nan=False) + "\n")


class Sliced(Protocol):
    """What belongs to slices."""

    @property
    def slices(self) -> dict[str, str]: ...


SlicedT = TypeVar("SlicedT", bound=Sliced)


def group_by_slice(rows: Sequence[SlicedT], name: str) -> dict[str, list[SlicedT]]:
    """The rows of each value of a slicing, in the order in which values first appear.

    >>> group_by_slice([], "speaker")
    {}
    """
    groups: dict[str, list[SlicedT]] = collections.defaultdict(list)
    for row in rows:
        if name in row.slices:
            groups[row.slices[name]].append(row)
    return dict(groups)


def band_names(bounds: Sequence[float], unit: str) -> Callable[[float], str]:
    """Names the band that a value falls in; one of whole numbers, where all bounds are whole and typed so.

    >>> seconds, words = band_names([1.0, 2.5], "s"), band_names([1, 2, 5], "words")
    >>> seconds(0.2), seconds(1), seconds(7)
    ('under 1 s', '1-2.5 s', '2.5 s and over')
    >>> words(0), words(1), words(4)
    ('under 1 words', '1 words', '2-4 words')
    """
    whole = all(isinstance(bound, int) for bound in bounds)
    names = [f"under {bounds[0]:g} {unit}"]
    for low, high in itertools.pairwise(bounds):
        last = high - 1 if whole else high
        names.append(f"{low:g} {unit}" if last == low else f"{low:g}-{last:g} {unit}")
    names.append(f"{bounds[-1]:g} {unit} and over")
    return lambda value: names[sum(value >= bound for bound in bounds)]
