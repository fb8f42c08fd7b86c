"""What TFX's data validation found, as plain values: the report, the page and validation.json read no protobuf."""

import dataclasses
from typing import Any, Literal

Kind = Literal["missing_features", "wrong_types", "unexpected_values", "out_of_range", "other_anomalies"]
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
    kind: Kind
    code: str
    told: str


@dataclasses.dataclass(frozen=True)
class Drift:
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
class Spread:
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


Spreads = dict[str, list[Spread]]
"""By split; "" is the whole corpus."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the schema accepts of a feature, as far as single utterances can be held against it."""

    least: float | None = None
    most: float | None = None
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Examination:
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
    drifts: tuple[Drift, ...] = ()
    limits: dict[str, Limits] = dataclasses.field(default_factory=dict)
    spreads: Spreads = dataclasses.field(default_factory=dict)
    before: Spreads = dataclasses.field(default_factory=dict)

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
