"""The page of statistics: every feature of the corpus beside that of the model in service, anomalies and drift.

It shows what TFDV's facets page shows, in one file that loads nothing (docs/decisions/0020).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voxline.components.validate.tfdv.results import FeatureDrift, FeatureStatistics, StatisticsBySplit, TfdvResult
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


def statistics_page(examination: TfdvResult) -> Page:
    """The page; where nothing was examined, it says why."""
    page = Page(
        "What is in this corpus?",
        lead="TFX's data validation: statistics over the utterances, held against a schema"
        + (f" and against the dataset of {examination.against}." if examination.against else "."),
        footer="Distances: Jensen-Shannon in bits (0: equal, 1: disjoint), of numbers; L-infinity, the largest "
        "difference between the shares of one value, of texts.",
    )
    if examination.skipped:
        page.add_opening(verdict_banner("Skipped", f"TFX's data validation did not run: {examination.skipped}."))
        return page
    page.add_opening(_verdict(examination), _facts(examination))
    page.add_section("Anomalies", _anomalies(examination))
    page.add_section("FeatureDrift", *_drift(examination))
    now, before = examination.spreads.get("", []), examination.before.get("", [])
    shown = {**examination.spreads, **({IN_SERVICE: before} if before else {})}
    page.add_section("Numbers", _numbers(shown), *_curves(now, before))
    page.add_section("Texts", _texts(shown), *_values(now, before))
    return page


def _verdict(examination: TfdvResult) -> Block:
    anomalies = len(examination.anomalies)
    drifted = [one.feature or "the number of utterances" for one in examination.drifts if one.drifted]
    found = [f"{anomalies} anomal{'y' if anomalies == 1 else 'ies'}"] * bool(anomalies)
    found += [f"drift of {', '.join(drifted)}"] * bool(drifted)
    after = f"Drift was not checked: {examination.not_compared}." if examination.not_compared else ""
    if found:
        return verdict_banner(" and ".join(found).capitalize(), after, "caution")
    return verdict_banner("As the schema says" + ("" if after else ", and as it was"), after, "good")


def _facts(examination: TfdvResult) -> Block:
    examples = {split: _examples(spreads) for split, spreads in examination.spreads.items()}
    return stat_cards(
        {
            "utterances": examples.pop("", 0),
            **examples,
            "features": len(examination.spreads.get("", [])),
            "schema": examination.schema,
            "compared with": examination.against or None,
            "TFDV": examination.version,
        }
    )


def _anomalies(examination: TfdvResult) -> Block:
    return data_table(
        ["feature", "kind", "what was found", "TFDV's name"],
        [
            [one.feature or "the dataset", one.kind.replace("_", " "), one.told, one.code]
            for one in examination.anomalies
        ],
    )


def _drift(examination: TfdvResult) -> list[Block]:
    if not examination.against:
        return [small_print(f"Not checked: {examination.not_compared}.")]
    rows = sorted(examination.drifts, key=lambda one: (not one.drifted, -(one.distance or 0.0) / (one.threshold or 1)))
    cells = [
        [
            badge("drift", "caution") if one.drifted else badge("alike", "good"),
            one.feature or "all",
            one.measure,
            _distance(one),
            f"{'at least' if one.measure == 'utterances' else 'at most'} {one.threshold:g}",
            one.told or None,
        ]
        for one in rows
    ]
    return [data_table(["", "feature", "measure", "distance", "accepted", "in TFDV's words"], cells)]


def _distance(one: FeatureDrift) -> str:
    return "not to be had" if one.distance is None else f"{one.distance:.3f}"


def _numbers(spreads: StatisticsBySplit) -> Block:
    columns = ["feature", "of", "present", "missing", "mean", "deviation", "zeros", "least", "median", "most"]
    rows = [
        [
            one.feature, split or "all", one.present, one.missing,
            one.mean, one.deviation, one.zeros, one.least, one.median, one.most,
        ]
        for one, split in _by_feature(spreads, numeric=True)
    ]  # fmt: skip
    return data_table(columns, rows)


def _texts(spreads: StatisticsBySplit) -> Block:
    rows = [
        [
            one.feature,
            split or "all",
            one.present,
            one.missing,
            one.values,
            one.distinct,
            one.top[0][0] if one.top else None,
            int(one.top[0][1]) if one.top else None,
        ]
        for one, split in _by_feature(spreads, numeric=False)
    ]
    columns = ["feature", "of", "present", "missing", "values", "distinct", "most frequent", "so often"]
    return data_table(columns, rows)


def _by_feature(spreads: StatisticsBySplit, *, numeric: bool) -> list[tuple[FeatureStatistics, str]]:
    """Every feature with its splits: the whole corpus first, what is in service last, if only there it is any."""
    features = dict.fromkeys(one.feature for inside in spreads.values() for one in inside if one.numeric == numeric)
    return [
        (one, split)
        for feature in features
        for split, inside in sorted(spreads.items(), key=lambda item: (item[0] == IN_SERVICE, item[0]))
        for one in inside
        if one.feature == feature
    ]


def _curves(now: Sequence[FeatureStatistics], before: Sequence[FeatureStatistics]) -> list[Block]:
    """How each number is spread, here and in the dataset of the model in service."""
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
    """The most frequent values of each text, and how often they were said before."""
    old = {one.feature: one for one in before}
    blocks: list[Block] = []
    for one in now:
        if one.numeric or not one.top:
            continue
        shares = {value: count / max(one.values, 1) for value, count in one.top}
        drawn = dict(list(shares.items())[:TOP_DRAWN])
        plot = figure(
            bar_plot(drawn, "share of all values", percent=True),
            f"{one.feature}: the most frequent of {one.distinct:,}",
        )
        earlier = old.get(one.feature)
        then = {value: count / max(earlier.values, 1) for value, count in earlier.top} if earlier else {}
        cells = [
            [value, int(count), f"{shares[value]:.2%}", f"{then[value]:.2%}" if value in then else None]
            for value, count in one.top
        ]
        blocks += [
            plot,
            details(
                f"{one.feature}: the {len(one.top):,} most frequent",
                data_table(["value", "so often", "share", f"share {IN_SERVICE}"], cells),
            ),
        ]
    return blocks


def _common_edges(sides: Sequence[FeatureStatistics]) -> npt.NDArray[np.float64]:
    low = min(side.buckets[0][0] for side in sides)
    high = max(side.buckets[-1][1] for side in sides)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _shares(side: FeatureStatistics, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A histogram over other edges: what lies in a bucket is taken to be spread evenly over it."""
    shares = np.zeros(len(edges) - 1)
    for low, high, count in side.buckets:
        if high > low:
            inside = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0.0, None)
            shares += count * inside / (high - low)
        else:
            shares[min(int(np.searchsorted(edges, low, side="right")) - 1, len(shares) - 1)] += count
    return shares / max(sum(count for _, _, count in side.buckets), 1e-9)


def _examples(spreads: Sequence[FeatureStatistics]) -> int:
    return max((one.present + one.missing for one in spreads), default=0)
