"""The page of training/serving skew: the distance of each feature, and both distributions drawn over each other.

Callers' words are not on it: the page outlives the clips, which expire.
"""

import math

from voxline.feedback.skew import TOKENS, UNITS, FeatureSkew, ServingSkew
from voxline.feedback.watch import MIN_CLIPS
from voxline.report import (
    Block,
    Page,
    badge,
    data_table,
    figure,
    histogram,
    side_by_side,
    stat_cards,
    verdict_banner,
)

TRAINING = "training"
CAPTURED = "captured"


def skew_page(skew: ServingSkew) -> Page:
    """Builds the page."""
    page = Page(
        f"Does {skew.model} {skew.version} hear what it was trained on?",
        lead="What serving captured, beside the recordings that the version was trained on.",
        footer="Distances: Jensen-Shannon divergence in bits (0: equal, 1: disjoint) for numbers; L-infinity, the "
        "largest difference between the shares of one word, for tokens. Allowed: the threshold, and what as many "
        "callers are away who are speakers of the training, in 99 of 100 draws.",
    )
    page.add_opening(_verdict(skew), _facts(skew))
    if skew.sides is None:
        return page
    page.add_section("Distances", _table(skew.features))
    page.add_section("Distributions", *_plots(skew))
    return page


def _verdict(skew: ServingSkew) -> Block:
    if not skew.features:
        return verdict_banner("Too few clips", f"{MIN_CLIPS} are enough; there are {skew.clips}.")
    if skew.skewed:
        return verdict_banner(f"Skew of {', '.join(skew.skewed)}", "", "caution")
    return verdict_banner("No skew", "No feature is further from the training than is allowed.", "good")


def _facts(skew: ServingSkew) -> Block:
    return stat_cards(
        {
            "clips": skew.clips,
            "recordings of the training": f"{skew.recordings:,} of {skew.trained_on:,}",
            "features": len(skew.features),
            "measured by": skew.measured_by,
        }
    )


def _table(features: list[FeatureSkew]) -> Block:
    # Medians help a reader to see in which direction; words have none.
    cells = [
        [
            badge("skew", "caution") if feature.skewed else badge("similar", "good"),
            feature.feature,
            UNITS.get(feature.feature),
            None if math.isnan(feature.training) else feature.training,
            None if math.isnan(feature.serving) else feature.serving,
            feature.measure,
            f"{feature.distance:.3f}",
            f"{feature.allowed:.3f}",
            f"{feature.chance:.3f}",
        ]
        for feature in features
    ]
    columns = ["", "feature", "unit", "median of the training", "of the clips", "measure", "distance", "allowed"]
    return data_table([*columns, "by chance"], cells)


def _plots(skew: ServingSkew) -> list[Block]:
    if skew.sides is None:
        return []
    training, serving = skew.sides
    plots = []
    for feature in skew.features:
        # Words are not drawn: they are the callers'.
        name = feature.feature
        if name == TOKENS:
            continue
        label = f"{name} ({UNITS[name]})"
        series = {TRAINING: training.numbers[name], CAPTURED: serving.numbers[name]}
        medians = f"{label}: median {feature.training:.3g} in training, {feature.serving:.3g} captured"
        plots.append(figure(histogram(series, label), f"{name}: {feature.distance:.3f} bits", alt=medians))
    return [side_by_side(*plots)] if plots else []
