"""TensorFlow Data Validation itself: statistics, schema, anomalies and drift.

The only module that imports TFDV, Arrow and TFX's protos, which takes seconds. Import it only if `plan` says that they
are available.
"""

# Beam claims to be typed, but its transforms are not:
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
from voxline.components.validate.tfdv.results import Anomaly, TfdvDrift, all_examples, anomaly_kind, feature_statistics
from voxline.errors import SettingsError, WorkError
from voxline.inference.tensorflow_import import import_tensorflow
from voxline.metrics.divergence import BUCKETS, VALUES
from voxline.store.files import atomic_write

import_tensorflow()  # first, since TFDV would load Keras with it
with contextlib.suppress(ImportError):
    # Used only for the skew of keyed examples. It has no wheel, so the image, which compiles nothing, does not have it.
    importlib.import_module("farmhash")
sys.modules.setdefault("farmhash", types.ModuleType("farmhash"))
with contextlib.redirect_stderr(io.StringIO()):  # it warns that IPython is missing, which only notebooks need
    import apache_beam as beam
    import pyarrow as pa
    import tensorflow_data_validation as tfdv
    from apache_beam.options.pipeline_options import PipelineOptions
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

BATCH_ROWS = 20_000
"""In a batch: some megabytes, with transcripts as tokens."""
MEASURES = {
    anomalies_pb2.DriftSkewInfo.Measurement.JENSEN_SHANNON_DIVERGENCE: "Jensen-Shannon",
    anomalies_pb2.DriftSkewInfo.Measurement.L_INFTY: "L-infinity",
}


def write_statistics(examples: Examples, path: Path, buckets: int = BUCKETS) -> None:
    """Writes statistics of all utterances and of each split, a DatasetFeatureStatisticsList, whole or not at all.

    Args:
      buckets: of the histogram of each number.
    """
    # Statistics of all utterances, and of each value of `split`.
    options = tfdv.StatsOptions(num_top_values=VALUES, num_rank_histogram_buckets=VALUES, num_histogram_buckets=buckets)
    options.experimental_slice_functions = [tfdv.experimental_get_feature_value_slicer({"split": None})]

    # TFDV writes the file in place, so that a kill would leave half of it; only a whole one gets the name.
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
    """Reads statistics that `write_statistics` wrote.

    Raises:
      WorkError: the file is damaged.
    """
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    try:
        statistics.ParseFromString(path.read_bytes())
    except Exception as error:  # the implementations of protobuf raise different errors
        raise WorkError(f"{path}: damaged ({error}); delete its folder, and validate computes it again") from None
    if not statistics.datasets:
        raise WorkError(f"{path}: contains no statistics; delete its folder, and validate computes it again")
    return statistics


def read_schema(text: str, name: str, thresholds: dict[str, float]) -> Any:
    """Parses a schema, and overrides some drift thresholds.

    Raises:
      SettingsError: the text is not a schema, or the schema does not compare a feature of `thresholds`.
    """
    # The text may be a person's own file, so that its faults are theirs to mend and must name the line.
    schema = schema_pb2.Schema()
    try:
        text_format.Parse(text, schema)
    except text_format.ParseError as error:
        raise SettingsError(
            f"validate: 'schema' is {name!r}, and line {error}; a text-format tensorflow.metadata.v0.Schema is accepted"
        ) from None

    # Thresholds of the config override those of the schema, and only where the schema compares the feature at all.
    compared = {feature.name: feature.drift_comparator for feature in schema.feature if _measures(feature)}
    for feature, threshold in thresholds.items():
        if feature not in compared:
            raise SettingsError(
                f"validate: 'drift.thresholds.{feature}' is {threshold:g}, but the schema {name!r} does not "
                f"compare this feature; it compares {', '.join(compared) or 'none'}"
            )
        for measure in _measures(schema.feature[[feature_.name for feature_ in schema.feature].index(feature)]):
            getattr(compared[feature], measure).threshold = threshold
    return schema


def validate_statistics(statistics: Any, schema: Any, baseline: Any | None) -> tuple[list[Anomaly], list[TfdvDrift]]:
    """Compares statistics with a schema, and with those of the baseline."""
    previous = None if baseline is None else _only_all_examples(baseline)
    result = tfdv.validate_statistics(_only_all_examples(statistics), schema, previous_statistics=previous)

    # Anomalies of the dataset as a whole, then those of its features. A comparator's is drift, and not an anomaly.
    reasons = [("", reason) for reason in result.dataset_anomaly_info.reason]
    reasons += [(name, reason) for name, info in result.anomaly_info.items() for reason in info.reason]

    anomalies = []
    drift_descriptions = {}
    for feature, reason in reasons:
        code = anomalies_pb2.AnomalyInfo.Type.Name(reason.type)
        description = " ".join(reason.description.split())
        if code.startswith("COMPARATOR_"):
            drift_descriptions[feature] = description
        else:
            anomalies.append(Anomaly(feature, anomaly_kind(code), code, description))

    if baseline is None:
        drifts = []
    else:
        drifts = _drifts(result.drift_skew_info, drift_descriptions, schema, statistics, baseline)
    return sorted(anomalies, key=lambda anomaly: (anomaly.feature, anomaly.code)), drifts


def skew_distances(training: Any, serving: Any, allowed: dict[str, float]) -> dict[str, float]:
    """The distance of features between two statistics, by a schema whose comparators accept what is allowed.

    Raises:
      WorkError: TFDV measured another set of features than the allowed ones.
    """
    # Every feature, for one that the schema lacks would be an anomaly; comparators for those that are compared.
    schema = schema_pb2.Schema()
    for statistic in feature_statistics(training)[""]:
        kind = schema_pb2.FLOAT if statistic.numeric else schema_pb2.BYTES
        feature = schema.feature.add(name=statistic.feature, type=kind)
        measure = "jensen_shannon_divergence" if statistic.numeric else "infinity_norm"
        if statistic.feature in allowed:
            getattr(feature.skew_comparator, measure).threshold = allowed[statistic.feature]

    # A measurement for each of these, whether it is above its threshold or not.
    result = tfdv.validate_statistics(
        _only_all_examples(training), schema, serving_statistics=_only_all_examples(serving)
    )
    distances = {}
    for info in result.drift_skew_info:
        (name,) = info.path.step
        for measurement in info.skew_measurements:
            distances[name] = measurement.value

    # TFDV leaves out what one side has no values of.
    if set(distances) != set(allowed):
        missing = ", ".join(sorted(set(allowed) ^ set(distances)))
        raise WorkError(
            f"TFX's data validation measured no skew of {missing}; both sides need values of these features"
        )
    return {name: distances[name] for name in allowed}


def _drifts(
    measured: Any, descriptions: dict[str, str], schema: Any, statistics: Any, baseline: Any
) -> list[TfdvDrift]:
    # A measurement for each feature that both sides have, whether it has drifted or not.
    drifts = []
    for info in measured:
        (feature,) = info.path.step
        for measurement in info.drift_measurements:
            drifted = measurement.value > measurement.threshold
            measure: Any = MEASURES[measurement.type]
            drifts.append(
                TfdvDrift(
                    feature,
                    measure,
                    measurement.value,
                    measurement.threshold,
                    drifted,
                    descriptions.pop(feature, "") if drifted else "",
                )
            )

    # The number of utterances, which TFDV compares without a measurement of its own.
    counts = schema.dataset_constraints.num_examples_drift_comparator
    if counts.HasField("min_fraction_threshold"):
        share = all_examples(statistics).num_examples / max(all_examples(baseline).num_examples, 1)
        fewest = counts.min_fraction_threshold
        drifts.append(TfdvDrift("", "utterances", share, fewest, share < fewest, descriptions.pop("", "")))

    comparators = {feature.name: _measures(feature) for feature in schema.feature}
    for feature, description in descriptions.items():  # a feature that one side lacks has drifted without a distance
        measure = "L-infinity" if "infinity_norm" in comparators.get(feature, ()) else "Jensen-Shannon"
        drifts.append(TfdvDrift(feature, measure, None, 0.0, True, description))
    return drifts


def _measures(feature: Any) -> list[str]:
    """The measures by which the schema compares a feature with the baseline."""
    names = ("infinity_norm", "jensen_shannon_divergence")
    return [name for name in names if feature.drift_comparator.HasField(name)]


def _only_all_examples(statistics: Any) -> Any:
    """The statistics without those of the splits, to which the schema does not apply."""
    return statistics_pb2.DatasetFeatureStatisticsList(datasets=[all_examples(statistics)])


def _batches(examples: Examples) -> Iterator[Any]:
    """The examples as Arrow batches: every feature is a list, or null if it is missing.

    A feature that no row of a batch has is omitted: TFX's slicing has crashed on a column of nulls.
    """
    for start in range(0, len(examples), BATCH_ROWS):
        stop = min(start + BATCH_ROWS, len(examples))
        columns = {}

        # A NaN is a missing value: null in Arrow, and not a number.
        for name, values in examples.numbers.items():
            present = ~np.isnan(values[start:stop])
            if present.any():
                columns[name] = _single(pa.array(values[start:stop][present]), present)

        for name, strings in examples.texts.items():
            codes = strings.codes[start:stop]
            present = codes != strings.number("")
            if present.any():
                columns[name] = _single(_named(strings.names, codes[present]), present)

        distinct, tokens, offsets = examples.tokens(start, stop)
        if len(tokens):
            columns["tokens"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _named(distinct, tokens))

        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _single(values: Any, present: Any) -> Any:
    """A list of one value for each row that has one, and null for the others."""
    # Row i has the values from ends[i] to ends[i + 1]: one or none. The mask makes an empty list null.
    ends = np.concatenate([[0], np.cumsum(present)])
    absent = np.concatenate([~present, [False]])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32(), mask=absent), values)


def _named(names: list[str], codes: Any) -> Any:
    return pa.array(names, pa.string()).take(pa.array(codes))


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Silences Beam's warnings about its own type hints and about files; failures are raised."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
