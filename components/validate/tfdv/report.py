"""The statistics page: every feature of the corpus and of the baseline, anomalies and drift.

It shows what TFDV's Facets page shows, in a self-contained file.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.components.validate.tfdv.results import FeatureStatistics, StatisticsBySplit, TfdvDrift, TfdvResult
from voxline.metrics.divergence import share_by_bin
from voxline.report import (
    Block,
    Page,
    badge,
    bar_plot,
    data_table,
    details,
    figure,
    line_plot,
    sentence_case,
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

    # Tables have each split and the baseline; plots compare the whole corpus with the baseline.
    current = tfdv_result.statistics.get("", [])
    before = tfdv_result.baseline_statistics.get("", [])
    shown = {**tfdv_result.statistics, **({IN_SERVICE: before} if before else {})}
    page.add_section("Numbers", _numbers(shown), *_curves(current, before))
    page.add_section("Texts", _texts(shown), *_values(current, before))
    return page


def _verdict(tfdv_result: TfdvResult) -> Block:
    anomalies = len(tfdv_result.anomalies)
    drifted = [drift.feature or "the number of utterances" for drift in tfdv_result.drifts if drift.drifted]
    changes = [f"{anomalies} anomal{'y' if anomalies == 1 else 'ies'}"] * bool(anomalies)
    changes += [f"drift of {', '.join(drifted)}"] * bool(drifted)
    after = f"Drift was not checked: {tfdv_result.no_baseline}." if tfdv_result.no_baseline else ""
    if changes:
        return verdict_banner(sentence_case(" and ".join(changes)), after, "caution")
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
            [anomaly.feature or "the dataset", anomaly.kind.replace("_", " "), anomaly.description, anomaly.code]
            for anomaly in tfdv_result.anomalies
        ],
    )


def _drift(tfdv_result: TfdvResult) -> list[Block]:
    if not tfdv_result.baseline:
        return [small_print(f"Not checked: {tfdv_result.no_baseline}.")]

    # What drifted first, then by the distance in parts of the threshold.
    rows = sorted(
        tfdv_result.drifts, key=lambda drift: (not drift.drifted, -(drift.distance or 0.0) / (drift.threshold or 1))
    )
    cells = [
        [
            badge("drift", "caution") if drift.drifted else badge("similar", "good"),
            drift.feature or "all",
            drift.measure,
            _distance(drift),
            f"{'at least' if drift.measure == 'utterances' else 'at most'} {drift.threshold:g}",
            drift.description or None,
        ]
        for drift in rows
    ]

    return [data_table(["", "feature", "measure", "distance", "accepted", "TFDV's description"], cells)]


def _distance(drift: TfdvDrift) -> str:
    return "unknown" if drift.distance is None else f"{drift.distance:.3f}"


def _numbers(statistics: StatisticsBySplit) -> Block:
    columns = ["feature", "of", "present", "missing", "mean", "std. dev.", "zeros", "min", "median", "max"]
    rows = [
        [
            statistic.feature, split or "all", statistic.present, statistic.missing,
            statistic.mean, statistic.std_dev, statistic.zeros, statistic.min, statistic.median, statistic.max,
        ]
        for statistic, split in _by_feature(statistics, numeric=True)
    ]  # fmt: skip
    return data_table(columns, rows)


def _texts(statistics: StatisticsBySplit) -> Block:
    rows = [
        [
            statistic.feature,
            split or "all",
            statistic.present,
            statistic.missing,
            statistic.values,
            statistic.distinct,
            statistic.top_values[0][0] if statistic.top_values else None,
            int(statistic.top_values[0][1]) if statistic.top_values else None,
        ]
        for statistic, split in _by_feature(statistics, numeric=False)
    ]

    columns = ["feature", "of", "present", "missing", "values", "distinct", "most frequent", "count"]
    return data_table(columns, rows)


def _by_feature(statistics: StatisticsBySplit, *, numeric: bool) -> list[tuple[FeatureStatistics, str]]:
    """Every feature by split: the whole corpus first, the baseline last."""
    # In the order of the statistics, which is TFDV's. A split may lack a feature.
    features = dict.fromkeys(
        statistic.feature for inside in statistics.values() for statistic in inside if statistic.numeric == numeric
    )
    return [
        (statistic, split)
        for feature in features
        for split, inside in sorted(statistics.items(), key=lambda item: (item[0] == IN_SERVICE, item[0]))
        for statistic in inside
        if statistic.feature == feature
    ]


def _curves(current: Sequence[FeatureStatistics], before: Sequence[FeatureStatistics]) -> list[Block]:
    """The distribution of each number, in this corpus and in the baseline."""
    earlier = {statistic.feature: statistic for statistic in before}
    plots = []
    for statistic in current:
        sides = {THIS_CORPUS: statistic} | (
            {IN_SERVICE: earlier[statistic.feature]} if statistic.feature in earlier else {}
        )
        drawn = {name: side for name, side in sides.items() if side.buckets}
        if not statistic.numeric or not drawn:
            continue

        # The buckets of the two histograms differ, so both are rebinned to common edges: [bins + 1].
        edges = _common_edges(list(drawn.values()))
        middles = (edges[1:] + edges[:-1]) / 2
        shares = {name: share_by_bin(side.buckets, edges) for name, side in drawn.items()}

        plots.append(
            figure(
                line_plot(middles, shares, statistic.feature, "share", percent=True),
                f"{statistic.feature}: share of the utterances",
                alt=f"{statistic.feature}: "
                + "; ".join(f"{name} median {side.median:.3g}, mean {side.mean:.3g}" for name, side in drawn.items()),
            )
        )
    return [side_by_side(*plots)] if plots else []


def _values(current: Sequence[FeatureStatistics], before: Sequence[FeatureStatistics]) -> list[Block]:
    """The most frequent values of each text, and their shares in the baseline."""
    earlier_by_feature = {statistic.feature: statistic for statistic in before}
    blocks: list[Block] = []
    for statistic in current:
        if statistic.numeric or not statistic.top_values:
            continue

        # Shares of all values, since an utterance has several tokens.
        shares = {value: count / max(statistic.values, 1) for value, count in statistic.top_values}
        drawn = dict(list(shares.items())[:TOP_DRAWN])
        plot = figure(
            bar_plot(drawn, "share of all values", percent=True),
            f"{statistic.feature}: the most frequent of {statistic.distinct:,}",
        )

        earlier = earlier_by_feature.get(statistic.feature)
        then = {value: count / max(earlier.values, 1) for value, count in earlier.top_values} if earlier else {}

        cells = [
            [value, int(count), f"{shares[value]:.2%}", f"{then[value]:.2%}" if value in then else None]
            for value, count in statistic.top_values
        ]
        blocks += [
            plot,
            details(
                f"{statistic.feature}: the {len(statistic.top_values):,} most frequent",
                data_table(["value", "count", "share", f"share {IN_SERVICE}"], cells),
            ),
        ]
    return blocks


def _common_edges(sides: Sequence[FeatureStatistics]) -> npt.NDArray[np.float64]:
    low = min(side.buckets[0][0] for side in sides)
    high = max(side.buckets[-1][1] for side in sides)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _examples(statistics: Sequence[FeatureStatistics]) -> int:
    return max((statistic.present + statistic.missing for statistic in statistics), default=0)
