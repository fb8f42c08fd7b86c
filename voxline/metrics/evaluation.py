"""What evaluate writes and push reads: `metrics.json` about a test split, and a line for each utterance of it.

A line of `utterances.jsonl`:
  {"id": "1988-0001", "speaker": "1988", "duration": 3.2,
   "slices": {"speaker": "1988", "duration": "2-4 s"},
   "metrics": {"wer": [1, 5], "cer": [2, 21]}, "champion": {"wer": [0, 5], "cer": [0, 21]}, …}
A metric holds what this utterance adds to the sum and to the weight (`bootstrap.SumAndWeight`). `champion` holds the
same for the model in service, `anchor` for the anchor; null if there was none, or if the anchor is the model in
service. All further keys are a family's own, for people: texts, edits.

`metrics.json` is one schema for every family:
  {"format": 1, "voxline": "0.1.0", "family": "asr", "utterances": 90, "seconds": 312.4,
   "metrics": {"wer": {"value": 0.031, "measured": 90, "interval": {…}, "comparison": null}, …},
   "slices": {"speaker": {"1988": {"utterances": 9, "seconds": …, "metrics": {…}}}},
   "bootstrap": {…}, "champion": {"version": 3, "digest": …}, "anchor": {…},
   "details": {…the family's own}, …}
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from voxline.errors import WorkError
from voxline.inference.model_info import ModelInfo
from voxline.metrics.bootstrap import Bootstrap, SumAndWeight, aggregate
from voxline.metrics.catalog import CATALOG, Metric
from voxline.store.files import atomic_write, read_json
from voxline.store.hashing import hash_file, hash_value
from voxline.store.size_limits import iter_bounded_lines, open_regular
from voxline.store.versioned_json import check_format

METRICS_FILE = "metrics.json"
METRICS_FORMAT = 1
"""The number in `metrics.json`; a file of another one is refused.."""
UTTERANCES_FILE = "utterances.jsonl"
PARENT_FILE = "parent_utterances.jsonl"
"""Of a model that started from another one: the results on the test split of its parent, which is there in the place of
the champion. Only the gate reads it; the registry keeps no copy."""
REPORT_FILE = "report.html"
ONNX_WER = "onnx_wer"
"""The key of an utterance's errors and words by the model's ONNX graph, in its details."""
CLIP_FILE = "clip.wav"
CLIP_MELS_FILE = "clip.npy"
"""Of a TTS model: the mels of the smoke test's text, float32 [frames, mels]."""
VERDICT_SLOT, HISTORY_SLOT = "verdict", "history"
"""Parts of the report that push fills in."""
RUN_SLOT, RUN_DETAILS_SLOT = "run", "run details"
"""Parts of the report that the run fills in."""
Values = dict[str, SumAndWeight]
"""What an utterance adds to each metric, by name."""


@dataclasses.dataclass(frozen=True, slots=True)
class UtteranceResult:
    """One utterance, as a model did on it.

    Attributes:
      duration: seconds.
      slices: the slice that it belongs to, by the name of the slicing.
      metrics: by name.
      champion: the same for the model in service.
      details: further keys of the line.
      anchor: the metrics of the anchor.
    """

    id: str
    speaker: str
    duration: float
    slices: dict[str, str]
    metrics: dict[str, SumAndWeight]
    champion: dict[str, SumAndWeight] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    anchor: Values | None = None

    def to_line(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "details"}
        return {**values, **self.details}

    @classmethod
    def from_line(cls, values: dict[str, Any]) -> "UtteranceResult":
        known = {field.name for field in dataclasses.fields(cls)}
        champion, anchor = values["champion"], values.get("anchor")
        return cls(
            **{name: values[name] for name in ("id", "speaker", "duration", "slices")},
            metrics=_metrics_from_line(values["metrics"]),
            champion=None if champion is None else _metrics_from_line(champion),
            details={name: value for name, value in values.items() if name not in known},
            anchor=None if anchor is None else _metrics_from_line(anchor),
        )


def _metrics_from_line(metrics: dict[str, list[float]]) -> dict[str, SumAndWeight]:
    return {name: SumAndWeight(*value) for name, value in metrics.items()}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """An exported model, measured on one test split.

    Attributes:
      folder: evaluate's output.
      metrics: the contents of `metrics.json`.
      results: in the order of the manifest.
    """

    folder: Path
    metrics: dict[str, Any]
    results: list[UtteranceResult]

    @classmethod
    def read(cls, folder: Path | str) -> "Evaluation":
        """Reads evaluate's output, or its copy in a version of the registry.

        Raises:
          WorkError: it is missing or damaged.
        """
        folder = Path(folder).absolute()
        missing = [name for name in (METRICS_FILE, UTTERANCES_FILE) if not (folder / name).is_file()]
        if missing:
            raise WorkError(f"{folder}: no {' and no '.join(missing)}, so not an evaluation; run evaluate first")
        try:
            metrics = read_json(folder / METRICS_FILE)
            check_format(metrics, METRICS_FORMAT, folder / METRICS_FILE, "run evaluate again")
            results = _read_results(folder / UTTERANCES_FILE)
            if not results or len(results) != metrics["utterances"]:
                raise ValueError(f"{len(results)} of {metrics['utterances']} utterances")
            return cls(folder, metrics, results)
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{folder}: damaged ({type(error).__name__}: {error}); run evaluate again") from None

    def parent_results(self) -> list[UtteranceResult]:
        """The results on the test split of the model's parent; [] without a parent, and in the registry.

        Raises:
          WorkError: they are damaged.
        """
        file = self.folder / PARENT_FILE
        try:
            return _read_results(file) if file.is_file() else []
        except (ValueError, KeyError, TypeError) as error:
            raise WorkError(f"{file}: damaged ({type(error).__name__}: {error}); run evaluate again") from None

    def check_figures(self) -> None:
        """Computes the figures of `metrics.json` again, from what each utterance adds to them.

        Not the intervals: the gate resamples for itself. Nor figures of a whole run, such as the real-time factor.

        Raises:
          WorkError: a figure is another one, or one is absent; naming it, and both values.
        """
        wrong = _wrong_figures(self.metrics, self.results)
        for slicing, slices in self.metrics["slices"].items():
            groups = group_by_slice(self.results, slicing)
            for name, summary in slices.items():
                wrong += [f"{slicing} {name}, {fault}" for fault in _wrong_figures(summary, groups.get(name, []))]
        if parent := self.metrics.get("parent"):
            wrong += [f"the parent's test, {fault}" for fault in _wrong_figures(parent, self.parent_results())]
        if wrong:
            raise WorkError(
                f"{self.folder / METRICS_FILE}: its figures are not those of {UTTERANCES_FILE} beside it: "
                f"{'; '.join(wrong[:3])}; nothing is judged by them, run evaluate again (--force evaluate)"
            )

    def content_digest(self) -> str:
        """The hash of what the gate judges by: metrics, utterances, and the results on a parent's test."""
        names = (METRICS_FILE, UTTERANCES_FILE, PARENT_FILE)
        return hash_value([[name, hash_file(self.folder / name)] for name in names if (self.folder / name).is_file()])

    @property
    def digest(self) -> str:
        """Of the model that was evaluated."""
        return str(self.metrics["model"]["digest"])

    @property
    def model_info(self) -> ModelInfo:
        """`model.json` of the model that was evaluated."""
        return msgspec.convert(self.metrics["model"]["about"], ModelInfo)

    @property
    def champion_digest(self) -> str | None:
        """Of the model that it was compared with."""
        champion = self.metrics["champion"]
        return None if champion is None else str(champion["digest"])

    @property
    def test_fingerprint(self) -> str:
        return str(self.metrics["test"]["fingerprint"])

    def value(self, name: str) -> float | None:
        """A metric over all utterances; None if it was not measured."""
        measured = self.metrics["metrics"].get(name)
        return None if measured is None else measured["value"]

    def values(self) -> dict[str, float]:
        """Every metric that was measured, over all utterances."""
        return {name: value for name in self.metrics["metrics"] if (value := self.value(name)) is not None}

    def bootstrap(self, confidence: float) -> Bootstrap:
        """The resampling that evaluate used, at another confidence."""
        used = self.metrics["bootstrap"]
        return Bootstrap(confidence, used["samples"], used["seed"], used["min_speakers"])


def _read_results(file: Path) -> list[UtteranceResult]:
    with open_regular(file) as lines:
        return [UtteranceResult.from_line(json.loads(line)) for _, line in iter_bounded_lines(lines, file)]


def _wrong_figures(summary: Mapping[str, Any], results: Sequence[UtteranceResult]) -> list[str]:
    """The figures of a summary that do not follow from the results, each with both values."""
    wrong = []
    if summary["utterances"] != len(results):
        wrong.append(f"utterances {summary['utterances']:,}, and {len(results):,} are there")
    if not results or (not summary["utterances"] and not summary["metrics"]):
        return wrong
    champions = [result.champion for result in results if result.champion is not None]
    for name in [name for name in CATALOG if name in results[0].metrics]:
        metric = CATALOG[name]
        if name not in summary["metrics"]:
            wrong.append(f"{metric.title} is absent")
            continue
        measured = summary["metrics"][name]
        compared = measured["comparison"]
        figures = [
            ("", measured["value"], [result.metrics[name] for result in results]),
            (" of the model in service", compared and compared["champion_value"], [one[name] for one in champions]),
        ]
        for whose, stated, values in figures:
            computed = aggregate(values, metric.kind) if values else None
            if not _same_figure(stated, computed):
                wrong.append(f"{metric.title}{whose} {metric.format(stated)}, computed {metric.format(computed)}")
    return wrong


def _same_figure(stated: float | None, computed: float | None) -> bool:
    if stated is None or computed is None:
        return stated is computed
    return math.isclose(stated, computed, rel_tol=1e-9, abs_tol=1e-12)  # another numpy may add up in another order


def write_results(path: Path, results: Iterable[UtteranceResult]) -> None:
    with atomic_write(path, "w") as file:
        for result in results:
            file.write(json.dumps(result.to_line(), ensure_ascii=False, allow_nan=False) + "\n")


def group_by_slice(results: Sequence[UtteranceResult], name: str) -> dict[str, list[UtteranceResult]]:
    """The results of each slice of a slicing, in the order in which the slices first appear."""
    groups: dict[str, list[UtteranceResult]] = {}
    for result in results:
        if name in result.slices:
            groups.setdefault(result.slices[name], []).append(result)
    return groups


def compute_metrics(
    results: Sequence[UtteranceResult], slice_order: Mapping[str, Sequence[str]], bootstrap: Bootstrap
) -> dict[str, Any]:
    """The part of `metrics.json` that follows from the results: every metric with its interval, in all and in slices.

    Args:
      slice_order: the slices of each slicing, as the report is to show them.
    """
    slices = {}
    for name, order in slice_order.items():
        groups = group_by_slice(results, name)
        slices[name] = {value: _summarize(groups[value], bootstrap) for value in order if value in groups}
    return {"bootstrap": dataclasses.asdict(bootstrap), **_summarize(results, bootstrap), "slices": slices}


def _summarize(results: Sequence[UtteranceResult], bootstrap: Bootstrap) -> dict[str, Any]:
    measured = results[0].metrics
    return {
        "utterances": len(results),
        "seconds": round(sum(result.duration for result in results), 3),
        "metrics": {name: _summarize_metric(results, CATALOG[name], bootstrap) for name in CATALOG if name in measured},
    }


def _summarize_metric(results: Sequence[UtteranceResult], metric: Metric, bootstrap: Bootstrap) -> dict[str, Any]:
    values = [result.metrics[metric.name] for result in results]
    speakers = [result.speaker for result in results]
    summary: dict[str, Any] = {
        "value": aggregate(values, metric.kind),
        "measured": len(results) if metric.kind == "rate" else sum(value.weight > 0 for value in values),
        "interval": bootstrap.interval(values, speakers, metric.kind).to_dict(),
        "comparison": None,
    }
    champion = [result.champion[metric.name] for result in results if result.champion is not None]
    if champion:
        compared = bootstrap.compare(values, champion, speakers, metric.kind, sign=metric.sign)
        paired = compared.interval.units > 0
        low, high = sorted(metric.sign * end for end in (compared.interval.low, compared.interval.high))
        summary["comparison"] = {
            "champion_value": aggregate(champion, metric.kind),
            "champion_interval": bootstrap.interval(champion, speakers, metric.kind).to_dict(),
            "difference": metric.sign * compared.difference if paired else None,
            "interval": dataclasses.replace(compared.interval, low=low, high=high).to_dict(),
            "probability_worse": compared.probability_worse if paired and metric.better != "neither" else None,
            "measured": compared.interval.units,
        }
    return summary


def speed_metric(value: float | None, champion_value: float | None, utterances: int) -> dict[str, Any]:
    """A metric of the whole run, such as the real-time factor, as `metrics.json` has it: without an interval."""
    unknown = {"low": None, "high": None, "over": "utterances", "units": 0}
    comparison = {
        "champion_value": champion_value, "champion_interval": unknown, "difference": None, "interval": unknown,
        "probability_worse": None, "measured": 0,
    }  # fmt: skip
    return {
        "value": value,
        "measured": utterances,
        "interval": unknown,
        "comparison": None if champion_value is None else comparison,
    }


def headline_values(metrics: dict[str, Any]) -> dict[str, float]:
    """`metrics.json` for run.json: every value, the intervals of headline metrics, and the main comparison."""
    values: dict[str, float | None] = {}
    compared = False
    for name, measured in metrics["metrics"].items():
        values[name] = measured["value"]
        if not CATALOG[name].headline:
            continue
        values |= {f"{name}_low": measured["interval"]["low"], f"{name}_high": measured["interval"]["high"]}
        if measured["comparison"] and not compared:
            compared, comparison = True, measured["comparison"]
            values |= {
                f"champion_{name}": comparison["champion_value"],
                f"{name}_difference": comparison["difference"],
                "probability_worse": comparison["probability_worse"],
            }
    return {name: round(value, 6) for name, value in values.items() if value is not None}
