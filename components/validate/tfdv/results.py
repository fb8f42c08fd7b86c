"""What TFX's data validation found, as plain values: the report, the page and validation.json read no protobuf."""

import dataclasses
from typing import Any, Literal

AnomalyKind = Literal["missing_features", "wrong_types", "unexpected_values", "out_of_range", "other_anomalies"]
"""Of an anomaly; each is a check of its own."""


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """Where the statistics of a feature break the schema.

    Attributes:
      feature: its name; "" where the dataset as a whole is meant.
      code: as TFDV names it, such as FLOAT_TYPE_BIG_FLOAT.
      told: in TFDV's words, with the values.
    """

    feature: str
    kind: AnomalyKind
    code: str
    told: str


@dataclasses.dataclass(frozen=True)
class FeatureDrift:
    """How far a feature lies from what it was in the dataset of the model in service.

    Attributes:
      measure: "Jensen-Shannon" (bits, of numbers), "L-infinity" (the largest difference between the shares of one
        value, of texts) or "utterances" (how many there are to those that there were).
      distance: None where one side has no such feature.
      threshold: above which it counts as drift; for "utterances", below which.
    """

    feature: str
    measure: Literal["Jensen-Shannon", "L-infinity", "utterances"]
    distance: float | None
    threshold: float
    drifted: bool
    told: str = ""


@dataclasses.dataclass(frozen=True)
class FeatureStatistics:
    """A feature's statistics.

    Attributes:
      present, missing: utterances that have the feature, and that have not.
      values: of all utterances together; `tokens` has many in one.
      mean, deviation, least, median, most, zeros: of numbers.
      buckets: of numbers: low, high, how many.
      distinct, top: of texts: how many there are, and the most frequent with their counts.
    """

    feature: str
    numeric: bool
    present: int
    missing: int
    values: int
    mean: float = 0.0
    deviation: float = 0.0
    least: float = 0.0
    median: float = 0.0
    most: float = 0.0
    zeros: int = 0
    buckets: tuple[tuple[float, float, float], ...] = ()
    distinct: int = 0
    top: tuple[tuple[str, float], ...] = ()


StatisticsBySplit = dict[str, list[FeatureStatistics]]
"""By split; "" is the whole corpus."""


@dataclasses.dataclass(frozen=True)
class FeatureDomain:
    """What the schema accepts of a feature, as far as single utterances can be held against it."""

    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TfdvResult:
    """All of it.

    Attributes:
      skipped: why nothing was examined; empty where it was.
      schema: its name or place.
      against: what drift is measured from: "asr, version 3"; empty where there is none.
      not_compared: why there is none.
      spreads, before: statistics of this corpus, and of that one.
    """

    skipped: str = ""
    version: str = ""
    schema: str = ""
    against: str = ""
    not_compared: str = ""
    anomalies: tuple[Anomaly, ...] = ()
    drifts: tuple[FeatureDrift, ...] = ()
    limits: dict[str, FeatureDomain] = dataclasses.field(default_factory=dict)
    spreads: StatisticsBySplit = dataclasses.field(default_factory=dict)
    before: StatisticsBySplit = dataclasses.field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As it stands in validation.json."""
        return {
            "ran": not self.skipped,
            "skipped": self.skipped,
            "version": self.version,
            "schema": self.schema,
            "compared_with": self.against,
            "not_compared": self.not_compared,
            "anomalies": [dataclasses.asdict(anomaly) for anomaly in self.anomalies],
            "drift": [dataclasses.asdict(drift) for drift in self.drifts],
        }


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
"""What TFDV calls the statistics of all examples; those of a slice by `split` begin with SLICE."""
SPLIT_PREFIX = "split_"


def feature_domains(schema: Any) -> dict[str, FeatureDomain]:
    """What the schema accepts of single values, by feature."""
    shared = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    found = {}
    for feature in schema.feature:
        kind = feature.WhichOneof("domain_info")
        if kind in ("int_domain", "float_domain"):
            domain = getattr(feature, kind)
            found[feature.name] = FeatureDomain(
                domain.min if domain.HasField("min") else None, domain.max if domain.HasField("max") else None
            )
        elif kind == "string_domain":
            found[feature.name] = FeatureDomain(values=tuple(feature.string_domain.value))
        elif kind == "domain":
            found[feature.name] = FeatureDomain(values=shared.get(feature.domain, ()))
    return found


def feature_statistics(statistics: Any) -> StatisticsBySplit:
    """The statistics as plain values, of the whole corpus and of each split."""
    return {
        "" if dataset.name == ALL_EXAMPLES else dataset.name.removeprefix(SPLIT_PREFIX): [
            _spread(feature, dataset.num_examples) for feature in dataset.features
        ]
        for dataset in statistics.datasets
    }


def all_examples(statistics: Any) -> Any:
    """The statistics of all examples."""
    return next((one for one in statistics.datasets if one.name == ALL_EXAMPLES), statistics.datasets[0])


def _spread(feature: Any, examples: int) -> FeatureStatistics:
    (name,) = feature.path.step
    which = feature.WhichOneof("stats")
    stats = getattr(feature, which)
    common = stats.common_stats
    present = int(common.num_non_missing)
    missing, values = examples - present, int(common.tot_num_values)
    if which != "num_stats":
        top = tuple((one.value, one.frequency) for one in stats.top_values)
        return FeatureStatistics(name, False, present, missing, values, distinct=int(stats.unique), top=top)
    standard = [one.buckets for one in stats.histograms if one.type == one.STANDARD]
    return FeatureStatistics(
        name,
        True,
        present,
        missing,
        values,
        mean=stats.mean,
        deviation=stats.std_dev,
        least=stats.min,
        median=stats.median,
        most=stats.max,
        zeros=int(stats.num_zeros),
        buckets=tuple((one.low_value, one.high_value, one.sample_count) for buckets in standard for one in buckets),
    )
