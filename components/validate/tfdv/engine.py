"""TensorFlow Data Validation itself: statistics, the schema, what breaks it, and drift.

The only module that imports TFDV, Beam, Arrow and TFX's protos, and to be imported only where `presence` says that
they are there: it takes seconds.
"""

# Beam calls itself typed, and its transforms are not:
# mypy: disable-error-code="no-untyped-call"
import contextlib
import importlib
import io
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from voxline.components.validate.tfdv.examples import Examples
from voxline.components.validate.tfdv.results import Anomaly, FeatureDrift, all_examples, anomaly_kind
from voxline.errors import SettingsError, WorkError
from voxline.inference.saved_model import import_tensorflow
from voxline.store.files import atomic_write

import_tensorflow()  # first and alone: TFDV would load Keras with it
with contextlib.suppress(ImportError):
    # For the skew of keyed examples alone. It has no wheel, so the image, which compiles nothing, is without it.
    importlib.import_module("farmhash")
sys.modules.setdefault("farmhash", types.ModuleType("farmhash"))
with contextlib.redirect_stderr(io.StringIO()):  # it misses IPython, which only a notebook needs
    import apache_beam as beam
    import pyarrow as pa
    import tensorflow_data_validation as tfdv
    from apache_beam.options.pipeline_options import PipelineOptions
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

BATCH_ROWS = 20_000
"""Of a batch: with transcripts as tokens, some megabytes."""
TOP_VALUES = 200
"""Most frequent values of a text that are kept by name."""
HISTOGRAM_BUCKETS = 40
"""Of a histogram. With TFDV's 10, one recording of a minute among 3,000 of seconds comes to a drift of 0.09 bits: all
others fall into one bucket. With 40 it is 0.03."""
MEASURES = {
    anomalies_pb2.DriftSkewInfo.Measurement.JENSEN_SHANNON_DIVERGENCE: "Jensen-Shannon",
    anomalies_pb2.DriftSkewInfo.Measurement.L_INFTY: "L-infinity",
}


def write_statistics(examples: Examples, path: Path) -> None:
    """Statistics of all the utterances, and of each split: a DatasetFeatureStatisticsList, whole or not at all."""
    options = tfdv.StatsOptions(
        num_top_values=TOP_VALUES, num_rank_histogram_buckets=TOP_VALUES, num_histogram_buckets=HISTOGRAM_BUCKETS
    )
    options.experimental_slice_functions = [tfdv.experimental_get_feature_value_slicer({"split": None})]
    computed = path.with_name(f"{path.name}.computed")
    try:
        with _quiet_beam(), beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
            _ = (
                pipeline
                | "utterances" >> beam.Create(list(_batches(examples)))
                | "statistics" >> tfdv.GenerateStatistics(options)
                | "write" >> tfdv.WriteStatisticsToBinaryFile(str(computed))
            )
        with atomic_write(path, "wb") as file:
            file.write(computed.read_bytes())
    finally:
        computed.unlink(missing_ok=True)


def read_statistics(path: Path) -> Any:
    """The statistics that `write_statistics` wrote.

    Raises:
      WorkError: they are damaged.
    """
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    try:
        statistics.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own kinds differ between its implementations
        raise WorkError(f"{path}: damaged ({error}); remove its folder, and validate makes it again") from None
    if not statistics.datasets:
        raise WorkError(f"{path}: holds no statistics; remove its folder, and validate makes it again")
    return statistics


def read_schema(text: str, name: str, thresholds: dict[str, float]) -> Any:
    """A schema, with some thresholds of drift in place of its own.

    Raises:
      SettingsError: it is no schema, or compares no such feature.
    """
    schema = schema_pb2.Schema()
    try:
        text_format.Parse(text, schema)
    except text_format.ParseError as error:
        raise SettingsError(
            f"validate: 'schema' is {name!r}, and line {error}; accepted is tensorflow.metadata.v0.Schema in text form"
        ) from None
    compared = {feature.name: feature.drift_comparator for feature in schema.feature if _measures(feature)}
    for feature, threshold in thresholds.items():
        if feature not in compared:
            raise SettingsError(
                f"validate: 'drift.thresholds.{feature}' is {threshold:g}, and the schema {name!r} compares no such "
                f"feature; it compares {', '.join(compared) or 'none'}"
            )
        for measure in _measures(schema.feature[[one.name for one in schema.feature].index(feature)]):
            getattr(compared[feature], measure).threshold = threshold
    return schema


def validate_statistics(statistics: Any, schema: Any, before: Any | None) -> tuple[list[Anomaly], list[FeatureDrift]]:
    """What of the statistics breaks the schema, and how far they are from those before."""
    previous = None if before is None else _only_all_examples(before)
    found = tfdv.validate_statistics(_only_all_examples(statistics), schema, previous_statistics=previous)
    reasons = [("", reason) for reason in found.dataset_anomaly_info.reason]
    reasons += [(name, reason) for name, info in found.anomaly_info.items() for reason in info.reason]
    anomalies, told = [], {}
    for feature, reason in reasons:
        code = anomalies_pb2.AnomalyInfo.Type.Name(reason.type)
        words = " ".join(reason.description.split())
        if code.startswith("COMPARATOR_"):
            told[feature] = words
        else:
            anomalies.append(Anomaly(feature, anomaly_kind(code), code, words))
    drifts = [] if before is None else _drifts(found.drift_skew_info, told, schema, statistics, before)
    return sorted(anomalies, key=lambda one: (one.feature, one.code)), drifts


def _drifts(measured: Any, told: dict[str, str], schema: Any, statistics: Any, before: Any) -> list[FeatureDrift]:
    drifts = []
    for info in measured:
        (feature,) = info.path.step
        for one in info.drift_measurements:
            drifted = one.value > one.threshold
            measure: Any = MEASURES[one.type]
            drifts.append(
                FeatureDrift(
                    feature, measure, one.value, one.threshold, drifted, told.pop(feature, "") if drifted else ""
                )
            )
    counts = schema.dataset_constraints.num_examples_drift_comparator
    if counts.HasField("min_fraction_threshold"):
        share = all_examples(statistics).num_examples / max(all_examples(before).num_examples, 1)
        fewest = counts.min_fraction_threshold
        drifts.append(FeatureDrift("", "utterances", share, fewest, share < fewest, told.pop("", "")))
    comparators = {feature.name: _measures(feature) for feature in schema.feature}
    for feature, words in told.items():  # what one side lacks cannot be measured, and is drift all the same
        measure = "L-infinity" if "infinity_norm" in comparators.get(feature, ()) else "Jensen-Shannon"
        drifts.append(FeatureDrift(feature, measure, None, 0.0, True, words))
    return drifts


def _measures(feature: Any) -> list[str]:
    """The measures by which the schema compares a feature with what it was before."""
    names = ("infinity_norm", "jensen_shannon_divergence")
    return [name for name in names if feature.drift_comparator.HasField(name)]


def _only_all_examples(statistics: Any) -> Any:
    """The statistics without those of the splits, which a schema is not held against."""
    return statistics_pb2.DatasetFeatureStatisticsList(datasets=[all_examples(statistics)])


def _batches(examples: Examples) -> Iterator[Any]:
    """The examples as Arrow has them: every feature a list, which is null where there is none.

    What no row of a batch has is left out of it: TFX's slicing has crashed on a column of nothing but nulls.
    """
    for start in range(0, len(examples), BATCH_ROWS):
        stop = min(start + BATCH_ROWS, len(examples))
        columns = {}
        for name, values in examples.numbers.items():
            present = ~np.isnan(values[start:stop])
            if present.any():
                columns[name] = _single(pa.array(values[start:stop][present]), present)
        for name, strings in examples.texts.items():
            codes = strings.codes[start:stop]
            present = codes != strings.number("")
            if present.any():
                columns[name] = _single(_named(strings.names, codes[present]), present)
        known, tokens, offsets = examples.tokens(start, stop)
        if len(tokens):
            columns["tokens"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _named(known, tokens))
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _single(values: Any, present: Any) -> Any:
    """A list of one value for each row that has one, and null for each that has none."""
    ends = np.concatenate([[0], np.cumsum(present)])
    absent = np.concatenate([~present, [False]])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32(), mask=absent), values)


def _named(names: list[str], codes: Any) -> Any:
    return pa.array(names, pa.string()).take(pa.array(codes))


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Keeps Beam's remarks on its own type hints and on files to itself; what fails is raised."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
