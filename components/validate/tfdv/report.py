"""The statistics page: every feature of the corpus and of the baseline, anomalies and drift.

It shows what TFDV's Facets page shows, in a self-contained file.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.components.validate.tfdv.results import FeatureStatistics, StatisticsBySplit, TfdvDrift, TfdvResult
from voxline.report import (
    Block,
    Page,
    badge,
    bar_plot,
    data_table,
    details,
    figure,
    line_plot,
    side_by_side,
    small_print,
    stat_cards,
    verdict_banner,
)

THIS_CORPUS = "this corpus"
IN_SERVICE = "in service"
BINS = 40
TOP_DRAWN = 15
"""Most frequent values of a text that are drawn."""


def statistics_page(tfdv_result: TfdvResult) -> Page:
    """Builds the page; if TFDV was skipped, the page says why."""
    page = Page(
        "What is in this corpus?",
        lead="TensorFlow Data Validation: statistics of the utterances, compared with a schema"
        + (f" and with the training data of {tfdv_result.baseline}." if tfdv_result.baseline else "."),
        footer="Distances: Jensen-Shannon divergence in bits (0: equal, 1: disjoint) for numbers; L-infinity, the "
        "largest difference between the shares of one value, for texts.",
    )
    if tfdv_result.skipped:
        page.add_opening(verdict_banner("Skipped", f"TFX's data validation did not run: {tfdv_result.skipped}."))
        return page
    page.add_opening(_verdict(tfdv_result), _facts(tfdv_result))
    page.add_section("Anomalies", _anomalies(tfdv_result))
    page.add_section("TfdvDrift", *_drift(tfdv_result))
    now, before = tfdv_result.statistics.get("", []), tfdv_result.baseline_statistics.get("", [])
    shown = {**tfdv_result.statistics, **({IN_SERVICE: before} if before else {})}
    page.add_section("Numbers", _numbers(shown), *_curves(now, before))
    page.add_section("Texts", _texts(shown), *_values(now, before))
    return page


def _verdict(tfdv_result: TfdvResult) -> Block:
    anomalies = len(tfdv_result.anomalies)
    drifted = [one.feature or "the number of utterances" for one in tfdv_result.drifts if one.drifted]
    found = [f"{anomalies} anomal{'y' if anomalies == 1 else 'ies'}"] * bool(anomalies)
    found += [f"drift of {', '.join(drifted)}"] * bool(drifted)
    after = f"Drift was not checked: {tfdv_result.no_baseline}." if tfdv_result.no_baseline else ""
    if found:
        return verdict_banner(" and ".join(found).capitalize(), after, "caution")
    return verdict_banner("Matches the schema" + ("" if after else " and the baseline"), after, "good")


def _facts(tfdv_result: TfdvResult) -> Block:
    examples = {split: _examples(statistics) for split, statistics in tfdv_result.statistics.items()}
    return stat_cards(
        {
            "utterances": examples.pop("", 0),
            **examples,
            "features": len(tfdv_result.statistics.get("", [])),
            "schema": tfdv_result.schema,
            "compared with": tfdv_result.baseline or None,
            "TFDV": tfdv_result.version,
        }
    )


def _anomalies(tfdv_result: TfdvResult) -> Block:
    return data_table(
        ["feature", "kind", "description", "TFDV's name"],
        [
            [one.feature or "the dataset", one.kind.replace("_", " "), one.description, one.code]
            for one in tfdv_result.anomalies
        ],
    )


def _drift(tfdv_result: TfdvResult) -> list[Block]:
    if not tfdv_result.baseline:
        return [small_print(f"Not checked: {tfdv_result.no_baseline}.")]
    rows = sorted(tfdv_result.drifts, key=lambda one: (not one.drifted, -(one.distance or 0.0) / (one.threshold or 1)))
    cells = [
        [
            badge("drift", "caution") if one.drifted else badge("similar", "good"),
            one.feature or "all",
            one.measure,
            _distance(one),
            f"{'at least' if one.measure == 'utterances' else 'at most'} {one.threshold:g}",
            one.description or None,
        ]
        for one in rows
    ]
    return [data_table(["", "feature", "measure", "distance", "accepted", "TFDV's description"], cells)]


def _distance(one: TfdvDrift) -> str:
    return "unknown" if one.distance is None else f"{one.distance:.3f}"


def _numbers(statistics: StatisticsBySplit) -> Block:
    columns = ["feature", "of", "present", "missing", "mean", "std. dev.", "zeros", "min", "median", "max"]
    rows = [
        [
            one.feature, split or "all", one.present, one.missing,
            one.mean, one.std_dev, one.zeros, one.min, one.median, one.max,
        ]
        for one, split in _by_feature(statistics, numeric=True)
    ]  # fmt: skip
    return data_table(columns, rows)


def _texts(statistics: StatisticsBySplit) -> Block:
    rows = [
        [
            one.feature,
            split or "all",
            one.present,
            one.missing,
            one.values,
            one.distinct,
            one.top_values[0][0] if one.top_values else None,
            int(one.top_values[0][1]) if one.top_values else None,
        ]
        for one, split in _by_feature(statistics, numeric=False)
    ]
    columns = ["feature", "of", "present", "missing", "values", "distinct", "most frequent", "count"]
    return data_table(columns, rows)


def _by_feature(statistics: StatisticsBySplit, *, numeric: bool) -> list[tuple[FeatureStatistics, str]]:
    """Every feature by split: the whole corpus first, the baseline last."""
    features = dict.fromkeys(one.feature for inside in statistics.values() for one in inside if one.numeric == numeric)
    return [
        (one, split)
        for feature in features
        for split, inside in sorted(statistics.items(), key=lambda item: (item[0] == IN_SERVICE, item[0]))
        for one in inside
        if one.feature == feature
    ]


def _curves(now: Sequence[FeatureStatistics], before: Sequence[FeatureStatistics]) -> list[Block]:
    """The distribution of each number, in this corpus and in the baseline."""
    old = {one.feature: one for one in before}
    plots = []
    for one in now:
        sides = {THIS_CORPUS: one} | ({IN_SERVICE: old[one.feature]} if one.feature in old else {})
        drawn = {name: side for name, side in sides.items() if side.buckets}
        if not one.numeric or not drawn:
            continue
        edges = _common_edges(list(drawn.values()))
        middles = (edges[1:] + edges[:-1]) / 2
        shares = {name: _shares(side, edges) for name, side in drawn.items()}
        plots.append(
            figure(
                line_plot(middles, shares, one.feature, "share", percent=True),
                f"{one.feature}: share of the utterances",
                alt=f"{one.feature}: "
                + "; ".join(f"{name} median {side.median:.3g}, mean {side.mean:.3g}" for name, side in drawn.items()),
            )
        )
    return [side_by_side(*plots)] if plots else []


def _values(now: Sequence[FeatureStatistics], before: Sequence[FeatureStatistics]) -> list[Block]:
    """The most frequent values of each text, and their shares in the baseline."""
    old = {one.feature: one for one in before}
    blocks: list[Block] = []
    for one in now:
        if one.numeric or not one.top_values:
            continue
        shares = {value: count / max(one.values, 1) for value, count in one.top_values}
        drawn = dict(list(shares.items())[:TOP_DRAWN])
        plot = figure(
            bar_plot(drawn, "share of all values", percent=True),
            f"{one.feature}: the most frequent of {one.distinct:,}",
        )
        earlier = old.get(one.feature)
        then = {value: count / max(earlier.values, 1) for value, count in earlier.top_values} if earlier else {}
        cells = [
            [value, int(count), f"{shares[value]:.2%}", f"{then[value]:.2%}" if value in then else None]
            for value, count in one.top_values
        ]
        blocks += [
            plot,
            details(
                f"{one.feature}: the {len(one.top_values):,} most frequent",
                data_table(["value", "count", "share", f"share {IN_SERVICE}"], cells),
            ),
        ]
    return blocks


def _common_edges(sides: Sequence[FeatureStatistics]) -> npt.NDArray[np.float64]:
    low = min(side.buckets[0][0] for side in sides)
    high = max(side.buckets[-1][1] for side in sides)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _shares(side: FeatureStatistics, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rebins a histogram; values are assumed to be uniform within a bucket."""
    shares = np.zeros(len(edges) - 1)
    for low, high, count in side.buckets:
        if high > low:
            inside = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0.0, None)
            shares += count * inside / (high - low)
        else:
            shares[min(int(np.searchsorted(edges, low, side="right")) - 1, len(shares) - 1)] += count
    return shares / max(sum(count for _, _, count in side.buckets), 1e-9)


def _examples(statistics: Sequence[FeatureStatistics]) -> int:
    return max((one.present + one.missing for one in statistics), default=0)
