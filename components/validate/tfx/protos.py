"""TFX's protos as plain values; nothing of TFX is imported to read them."""

from typing import Any

from components.validate.tfx.examination import Limits, Spread, Spreads

WHOLE = "All Examples"
"""What TFDV calls the statistics of all examples; those of a slice by `split` begin with SLICE."""
SLICE = "split_"


def limits(schema: Any) -> dict[str, Limits]:
    """What the schema accepts of single values, by feature."""
    shared = {domain.name: tuple(domain.value) for domain in schema.string_domain}
    found = {}
    for feature in schema.feature:
        kind = feature.WhichOneof("domain_info")
        if kind in ("int_domain", "float_domain"):
            domain = getattr(feature, kind)
            found[feature.name] = Limits(
                domain.min if domain.HasField("min") else None, domain.max if domain.HasField("max") else None
            )
        elif kind == "string_domain":
            found[feature.name] = Limits(values=tuple(feature.string_domain.value))
        elif kind == "domain":
            found[feature.name] = Limits(values=shared.get(feature.domain, ()))
    return found


def spreads(statistics: Any) -> Spreads:
    """The statistics as plain values, of the whole corpus and of each split."""
    return {
        "" if dataset.name == WHOLE else dataset.name.removeprefix(SLICE): [
            _spread(feature, dataset.num_examples) for feature in dataset.features
        ]
        for dataset in statistics.datasets
    }


def whole(statistics: Any) -> Any:
    """The statistics of all examples."""
    return next((one for one in statistics.datasets if one.name == WHOLE), statistics.datasets[0])


def _spread(feature: Any, examples: int) -> Spread:
    (name,) = feature.path.step
    which = feature.WhichOneof("stats")
    stats = getattr(feature, which)
    common = stats.common_stats
    present = int(common.num_non_missing)
    missing, values = examples - present, int(common.tot_num_values)
    if which != "num_stats":
        top = tuple((one.value, one.frequency) for one in stats.top_values)
        return Spread(name, False, present, missing, values, distinct=int(stats.unique), top=top)
    standard = [one.buckets for one in stats.histograms if one.type == one.STANDARD]
    return Spread(
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
