"""The results of TensorFlow Data Validation as plain values, free of protobuf."""

import dataclasses
from typing import Any, Literal

AnomalyKind = Literal["missing_features", "wrong_types", "unexpected_values", "out_of_range", "other_anomalies"]
"""Kind of anomaly; each has its own check."""


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """A violation of the schema by a feature's statistics.

    Attributes:
      feature: its name; "" for the dataset as a whole.
      code: TFDV's name, such as FLOAT_TYPE_BIG_FLOAT.
      description: TFDV's description, with the values.
    """

    feature: str
    kind: AnomalyKind
    code: str
    description: str


@dataclasses.dataclass(frozen=True)
class TfdvDrift:
    """The distance of a feature from the baseline, the training data of the model in service.

    Attributes:
      measure: "Jensen-Shannon" (bits, for numbers), "L-infinity" (the largest difference between the shares of one
        value, for texts) or "utterances" (their number, relative to the baseline).
      distance: None if one side does not have the feature.
      threshold: a distance above it is drift; for "utterances", a distance below it.
    """

    feature: str
    measure: Literal["Jensen-Shannon", "L-infinity", "utterances"]
    distance: float | None
    threshold: float
    drifted: bool
    description: str = ""


@dataclasses.dataclass(frozen=True)
class FeatureStatistics:
    """The statistics of a feature.

    Attributes:
      present, missing: utterances with and without the feature.
      values: of all utterances; `tokens` has several in each.
      mean, std_dev, min, median, max, zeros: of numbers.
      buckets: of numbers: (low, high, count).
      distinct, top_values: of texts: how many, and the most frequent with their counts.
    """

    feature: str
    numeric: bool
    present: int
    missing: int
    values: int
    mean: float = 0.0
    std_dev: float = 0.0
    min: float = 0.0
    median: float = 0.0
    max: float = 0.0
    zeros: int = 0
    buckets: tuple[tuple[float, float, float], ...] = ()
    distinct: int = 0
    top_values: tuple[tuple[str, float], ...] = ()


StatisticsBySplit = dict[str, list[FeatureStatistics]]
"""By split; "" is the whole corpus."""


@dataclasses.dataclass(frozen=True)
class FeatureDomain:
    """The values of a feature that the schema accepts, as far as they can be checked for one utterance."""

    min: float | None = None
    max: float | None = None
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TfdvResult:
    """The result of TFDV.

    Attributes:
      skipped: why TFDV did not run; empty if it did.
      version: of TFDV.
      schema: its name, path or URI.
      baseline: what drift is measured from, such as "asr, version 3"; empty if there is none.
      no_baseline: why there is none.
      domains: by feature.
      statistics, baseline_statistics: of this corpus, and of the baseline.
    """

    skipped: str = ""
    version: str = ""
    schema: str = ""
    baseline: str = ""
    no_baseline: str = ""
    anomalies: tuple[Anomaly, ...] = ()
    drifts: tuple[TfdvDrift, ...] = ()
    domains: dict[str, FeatureDomain] = dataclasses.field(default_factory=dict)
    statistics: StatisticsBySplit = dataclasses.field(default_factory=dict)
    baseline_statistics: StatisticsBySplit = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The section `tfdv` of validation.json."""
        return {
            "ran": not self.skipped,
            "skipped": self.skipped,
            "version": self.version,
            "schema": self.schema,
            "compared_with": self.baseline,
            "no_baseline": self.no_baseline,
            "anomalies": [dataclasses.asdict(anomaly) for anomaly in self.anomalies],
            "drift": [dataclasses.asdict(drift) for drift in self.drifts],
        }


# TFDV's names of anomalies (anomalies.proto of tensorflow_metadata), by the check that counts them.
MISSING = ("SCHEMA_MISSING_COLUMN", "FEATURE_TYPE_LOW_FRACTION_PRESENT", "FEATURE_TYPE_LOW_NUMBER_PRESENT")
MISSING_MORE = ("FEATURE_TYPE_NOT_PRESENT", "FEATURE_TYPE_NO_VALUES", "FEATURE_TYPE_LOW_NUMBER_VALUES")
RANGE = ("FLOAT_TYPE_BIG_FLOAT", "FLOAT_TYPE_SMALL_FLOAT", "INT_TYPE_BIG_INT", "INT_TYPE_SMALL_INT")
NO_NUMBER = ("FLOAT_TYPE_HAS_NAN", "FLOAT_TYPE_HAS_INF")
VALUES = ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "ENUM_TYPE_INVALID_UTF8", "BOOL_TYPE_UNEXPECTED_STRING")
TYPES = ("UNEXPECTED_DATA_TYPE", "VALUE_NESTEDNESS_MISMATCH", "DOMAIN_INVALID_FOR_TYPE", "INVALID_FEATURE_SHAPE")
TYPE_WORDS = ("_NOT_STRING", "_NOT_INT", "_NOT_FLOAT", "_INT_EXPECTED", "_STRING_EXPECTED", "_NON_STRING", "_TYPE_NOW_")


def anomaly_kind(code: str) -> AnomalyKind:
    """
    >>> anomaly_kind("SCHEMA_MISSING_COLUMN"), anomaly_kind("FLOAT_TYPE_BIG_FLOAT")
    ('missing_features', 'out_of_range')
    >>> anomaly_kind("ENUM_TYPE_FLOAT_NOT_STRING"), anomaly_kind("FEATURE_TYPE_HIGH_UNIQUE")
    ('wrong_types', 'other_anomalies')
    """
    if code in MISSING or code in MISSING_MORE:
        return "missing_features"
    if code in RANGE or code in NO_NUMBER:
        return "out_of_range"
    if code in VALUES:
        return "unexpected_values"
    if code in TYPES or any(word in code for word in TYPE_WORDS):
        return "wrong_types"
    return "other_anomalies"


ALL_EXAMPLES = "All Examples"
"""TFDV's name for the statistics of all examples; those of a split begin with SPLIT_PREFIX."""
SPLIT_PREFIX = "split_"


def feature_domains(schema: Any) -> dict[str, FeatureDomain]:
    """The domains of a schema, by feature."""
    # A domain of texts may be written at the feature, or once for several features and named there.
    shared = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    domains = {}

    for feature in schema.feature:
        kind = feature.WhichOneof("domain_info")
        if kind in ("int_domain", "float_domain"):
            domain = getattr(feature, kind)
            domains[feature.name] = FeatureDomain(
                domain.min if domain.HasField("min") else None, domain.max if domain.HasField("max") else None
            )
        elif kind == "string_domain":
            domains[feature.name] = FeatureDomain(values=tuple(feature.string_domain.value))
        elif kind == "domain":
            domains[feature.name] = FeatureDomain(values=shared.get(feature.domain, ()))

    return domains


def feature_statistics(statistics: Any) -> StatisticsBySplit:
    """Statistics as plain values, of the whole corpus and of each split."""
    return {
        "" if dataset.name == ALL_EXAMPLES else dataset.name.removeprefix(SPLIT_PREFIX): [
            _spread(feature, dataset.num_examples) for feature in dataset.features
        ]
        for dataset in statistics.datasets
    }


def all_examples(statistics: Any) -> Any:
    """The statistics of all examples."""
    return next((dataset for dataset in statistics.datasets if dataset.name == ALL_EXAMPLES), statistics.datasets[0])


def _spread(feature: Any, examples: int) -> FeatureStatistics:
    (name,) = feature.path.step
    which = feature.WhichOneof("stats")
    stats = getattr(feature, which)
    common = stats.common_stats
    present = int(common.num_non_missing)
    missing = examples - present
    values = int(common.tot_num_values)

    # Texts have counts of their values; numbers have moments and histograms.
    if which != "num_stats":
        top = tuple((item.value, item.frequency) for item in stats.top_values)
        return FeatureStatistics(name, False, present, missing, values, distinct=int(stats.unique), top_values=top)

    # Buckets of equal width; TFDV has a second histogram, of quantiles.
    standard = [item.buckets for item in stats.histograms if item.type == item.STANDARD]

    return FeatureStatistics(
        name,
        True,
        present,
        missing,
        values,
        mean=stats.mean,
        std_dev=stats.std_dev,
        min=stats.min,
        median=stats.median,
        max=stats.max,
        zeros=int(stats.num_zeros),
        buckets=tuple((item.low_value, item.high_value, item.sample_count) for buckets in standard for item in buckets),
    )
