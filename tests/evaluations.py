"""A `metrics.json` for tests that need an evaluation, and not the step that writes it."""

from typing import Any

from voxline.inference.model_info import DatasetInfo, ModelInfo, Provenance
from voxline.metrics.bootstrap import Bootstrap, BootstrapInfo
from voxline.metrics.evaluation import (
    EvaluatedModel,
    EvaluatedSplit,
    EvaluationInfo,
    IntervalInfo,
    MetricInfo,
)


def metric_info(value: float, low: float, high: float) -> MetricInfo:
    """A metric of nine utterances, without a comparison."""
    interval = IntervalInfo(low=low, high=high, over="utterances", units=9)
    return MetricInfo(value=value, measured=9, interval=interval, comparison=None)


def evaluation_info(**values: Any) -> EvaluationInfo:
    """The evaluation of a recognizer without metrics.

    Args:
      values: fields that the test is about.
    """
    about = ModelInfo(
        name="asr",
        family="asr",
        kind="ctc",
        alphabet="ab",
        sample_rate=16_000,
        features={},
        settings={},
        dataset=DatasetInfo(),
        provenance=Provenance(),
    )
    fields: dict[str, Any] = {
        "family": "asr",
        "key": "abc",
        "bootstrap": BootstrapInfo.of(Bootstrap()),
        "utterances": 9,
        "seconds": 9.0,
        "metrics": {},
        "slices": {},
        "model": EvaluatedModel(digest="d", name="asr", about=about),
        "test": EvaluatedSplit(split="test", fingerprint="f", speakers=3, also_in_train=0),
        "data": {},
        "champion": None,
        "anchor": None,
        "parent": None,
        "auxiliary_models": {},
        "details": {},
        "smoke_test": {},
        "settings": {},
    }
    return EvaluationInfo(**(fields | values))
