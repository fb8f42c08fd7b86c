"""Plots as inline SVG: histograms, bars, lines and scatter plots."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.report.page import Block
from voxline.report.svg import WIDTH, Drawing, Scale, shorten_label

Numbers = Sequence[float] | npt.NDArray[Any]

MAX_POINTS = 2_000
"""In a scatter plot; an SVG with more is slow to open."""

MAX_VALUE = 1e300
"""Larger values are clipped, so that differences stay finite."""


def histogram(series: Mapping[str, Numbers], label: str, *, bins: int = 36, bounds: Sequence[float] = ()) -> Block:
    """The distribution of one quantity: the share of each series' values in each bin.

    The outermost thousandth on each side is counted in the end bins, so that one outlier does not flatten the rest.
    Integers get bins of integral width. `bounds`, the limits of a check, are drawn as
    vertical lines, if they are near the values.
    """
    finite = {name: _finite(values) for name, values in series.items()}
    combined = np.concatenate([*finite.values(), np.empty(0)])
    if not combined.size:
        return _empty_plot(label, "share")
    edges = _edges(combined, bins)
    low = float(edges[0])
    high = float(edges[-1])

    # [bins] for each series that has values; a series without any keeps its color, but has no stairs.
    shares = {
        index: np.histogram(np.clip(values, low, high), edges)[0] / values.size
        for index, values in enumerate(finite.values())
        if values.size
    }

    # A limit far away would squeeze the distribution into one bin.
    near = [bound for bound in bounds if low - (high - low) / 2 < bound < high + (high - low) / 2]
    drawing = Drawing(
        f"Distribution of {label}",
        "; ".join(f"{name}: {_describe_values(values)}" for name, values in finite.items()),
        Scale.around(min(low, *near, high), max(high, *near, low), whole=_integral(combined)),
        Scale(0.0, 1.06 * max(float(some.max()) for some in shares.values()), percent=True),
        label=label,
        value_label="share",
        series=list(finite),
    )

    for index, heights in shares.items():
        stairs = _stairs(edges.tolist(), heights.tolist())
        drawing.area(stairs, index)
        drawing.line(stairs, index)
    for bound in near:
        drawing.vertical_line(bound, "limit")
    return drawing.svg()


def bar_plot(
    values: Mapping[str, float],
    label: str,
    *,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    percent: bool = False,
) -> Block:
    """Horizontal bars, the first on top, with their intervals (low, high) if given."""
    if not values:
        return _empty_plot(label, "", height=90)
    names = list(values)
    lengths = [float(height) for height in values.values()]

    within = intervals or {}
    ends = [height for height in lengths if math.isfinite(height)]
    ends += [end for name in names for end in within.get(name, ()) if math.isfinite(end)]
    low = min(0.0, *ends, 0.0)
    high = max([*ends, 1e-9])

    # Room at both ends, so that a label behind the longest bar stays inside.
    room = 0.2 * (high - low)  # for the labels
    drawing = Drawing(
        label,
        "; ".join(f"{name}: {_format_value(length, percent)}" for name, length in zip(names, lengths, strict=True)),
        Scale(low - room * (low < 0), high + room * (high > 1e-9), percent=percent),
        label=label,
        height=max(70, 48 + 19 * len(names)),
        names=[shorten_label(name) for name in names],
    )
    for row, (name, length) in enumerate(zip(names, lengths, strict=True)):
        reach = length if math.isfinite(length) else 0.0
        if math.isfinite(length):
            drawing.bar(row, length)
        if name in within and all(map(math.isfinite, within[name])):
            ends_of_row = within[name]
            drawing.straight_line((ends_of_row[0], row), (ends_of_row[1], row), width=1.3)
            for end in ends_of_row:
                drawing.straight_line((end, row - 0.16), (end, row + 0.16))

            # The label goes behind the bar and its interval, whichever reaches farther.
            reach = min(reach, ends_of_row[0]) if reach < 0 else max(reach, ends_of_row[1])
        drawing.label_at(reach, row, _format_value(length, percent), before=reach < 0)
    return drawing.svg()


def line_plot(
    x: Numbers,
    series: Mapping[str, Numbers],
    label: str,
    value_label: str,
    *,
    percent: bool = False,
    mark: tuple[float, str] | None = None,
) -> Block:
    """Lines over a common axis; values that are not finite leave a gap.

    Args:
      mark: a position on the axis and its name, drawn as a vertical line, such as the step of a checkpoint.
    """
    # Values that are not finite become NaN, at which a line breaks.
    across = _bounded(x)
    heights = {name: _bounded(values) for name, values in series.items()}
    finite = _finite(np.concatenate([*heights.values(), np.empty(0)]))
    if not _finite(across).size or not finite.size:
        return _empty_plot(label, value_label)

    is_whole = not percent and _integral(finite)
    drawing = Drawing(
        f"{value_label} over {label}",
        "; ".join(f"{name}: {_describe_values(_finite(values))}" for name, values in heights.items()),
        Scale.around(float(np.nanmin(across)), float(np.nanmax(across)), whole=_integral(_finite(across))),
        Scale.around(float(finite.min()), float(finite.max()), percent=percent, whole=is_whole),
        label=label,
        value_label=value_label,
        series=list(series),
    )
    for index, values in enumerate(heights.values()):
        points = list(zip(across.tolist(), values.tolist(), strict=True))
        drawing.line(points, index, 1.5)
        known_ones = [all(map(math.isfinite, point)) for point in points]
        around = [False, *known_ones, False]
        few = len(across) <= 20

        # A point between two gaps has no neighbor to be joined with: it is drawn as a dot.
        shown = [few or not (around[at] or around[at + 2]) for at in range(len(points))]  # one alone makes no line
        drawing.dots([point for at, point in enumerate(points) if known_ones[at] and shown[at]], index, 1.9)
    if mark:
        drawing.vertical_line(*mark)
    return drawing.svg()


def scatter_plot(x: Numbers, y: Numbers, label: str, value_label: str, *, diagonal: bool = False) -> Block:
    """A dot for each pair; `diagonal` adds the line x = y. Says if only some of the points are drawn."""
    across = _bounded(x)
    up = _bounded(y)
    finite = np.flatnonzero(np.isfinite(across) & np.isfinite(up))
    if not finite.size:
        return _empty_plot(label, value_label)
    shown = finite
    if finite.size > MAX_POINTS:
        # At equal distances in the order of the data, so that the same page comes out each time.
        shown = finite[np.linspace(0, finite.size - 1, MAX_POINTS).astype(int)]
    across = across[shown]
    up = up[shown]
    ends = [(float(some.min()), float(some.max())) for some in (across, up)]
    if diagonal:
        # One scale for both axes, else the line x = y would not be diagonal.
        ends = [(min(ends[0][0], ends[1][0]), max(ends[0][1], ends[1][1]))] * 2
    drawing = Drawing(
        f"{value_label} over {label}",
        f"{finite.size:,} points; {label}: {_describe_values(across)}; {value_label}: {_describe_values(up)}",
        Scale.around(*ends[0]),
        Scale.around(*ends[1]),
        label=label,
        value_label=value_label,
        remark=f"{shown.size:,} of {finite.size:,}, evenly spaced" if finite.size > shown.size else "",
    )

    drawing.dots(zip(across.tolist(), up.tolist(), strict=True), 0, opacity=0.45)
    if diagonal:
        drawing.straight_line((ends[0][0],) * 2, (ends[0][1],) * 2, dashed=True, width=1.1)
    return drawing.svg()


def quantiles(values: npt.NDArray[Any], *shares: float) -> list[float]:
    """Quantiles, interpolated as in `np.quantile`, which would import `numpy.ma` and take longer than a plot.

    >>> quantiles(np.array([4.0, 1.0, 2.0]), 0.5, 0.75)
    [2.0, 3.0]
    """
    ordered = np.sort(values.astype(np.float64))
    result = []
    for position in (share * (len(ordered) - 1) for share in shares):
        low = float(ordered[int(position)])
        high = float(ordered[math.ceil(position)])
        part = position % 1
        # From the nearer end, as numpy does: from the other end, rounding may miss a value that low and high share.
        result.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return result


def _empty_plot(label: str, value_label: str, height: float = 235) -> Block:
    empty = Scale(0.0, 1.0, most=0)
    drawing = Drawing(label, "nothing to show", empty, empty, label=label, value_label=value_label, height=height)
    drawing.label_at(0.5, 0.5, "nothing to show", shift=-WIDTH / 11)
    return drawing.svg()


def _stairs(edges: list[float], heights: list[float]) -> list[tuple[float, float]]:
    """The outline of a histogram, from zero up and back to zero."""
    steps = [
        point
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
        for point in ((low, height), (high, height))
    ]
    return [(edges[0], 0.0), *steps, (edges[-1], 0.0)]


def _edges(values: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    # The outermost thousandth is left out, so that an outlier does not flatten the rest.
    low, high = quantiles(values, 0.001, 0.999)
    if _integral(values):
        low = np.floor(low)
        high = np.ceil(high)
        # Whole numbers are in the middle of their bins.
        step = np.ceil((high - low + 1) / bins)
        return np.arange(low - 0.5, high + step, step)

    # Equal values: a bin needs a width.
    if high - low < 1e-9 * max(abs(high), 1):
        low = low - 0.5
        high = high + 0.5
    return np.linspace(low, high, bins + 1)


def _integral(values: npt.NDArray[np.float64]) -> bool:
    return bool((values == np.round(values)).all())


def _format_value(value: float, percent: bool) -> str:
    if not math.isfinite(value):
        return "—"
    # Good models differ below a tenth of a point.
    places = 2 if abs(value) < 0.01 and round(value, 3) != value else 1
    return (f"{value:.{places}%}" if percent else f"{value:,.4g}").replace("-", "−")


def _describe_values(values: npt.NDArray[np.float64]) -> str:
    """Describes a series in words."""
    if not values.size:
        return "no values"
    count = f"{values.size:,} value{'s' * (values.size != 1)}"
    return f"{count} from {values.min():.3g} to {values.max():.3g}, median {quantiles(values, 0.5)[0]:.3g}"


def _bounded(values: Numbers) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), np.clip(array, -MAX_VALUE, MAX_VALUE), np.nan)


def _finite(values: Numbers) -> npt.NDArray[np.float64]:
    array = _bounded(values)
    return array[np.isfinite(array)]
