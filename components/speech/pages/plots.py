"""Plots as SVG inside the page: matplotlib draws, the page's style gives the colours, light or dark.

matplotlib knows no `currentColor`, so it draws in stand-in colours that are exchanged for the style's
variables afterwards. Text stays text: it takes the page's font, and a reader can search it.
"""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from components.speech.pages.blocks import Block
from components.speech.storage import hash_bytes

Numbers = Sequence[float] | npt.NDArray[Any]

SERIES = [f"#0001{place:02x}" for place in range(1, 7)]
INK, FAINT = "#000201", "#000202"
VARIABLES = {
    **{stand_in: f"var(--series-{place})" for place, stand_in in enumerate(SERIES, start=1)},
    INK: "currentColor",
    FAINT: "var(--line)",
}
STROKES = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)), (0, (8, 2)), (0, (3, 3))]
"""Series differ in stroke as well as in colour."""

WIDTH, HEIGHT = 380, 235
"""Points; so small that on a phone the labels keep their size."""

MOST_POINTS = 2_000
"""Of a scatter plot; an SVG with more is slow to open."""


def histogram(series: Mapping[str, Numbers], label: str, *, bins: int = 36, bounds: Sequence[float] = ()) -> Block:
    """The distribution of one quantity, for each series the share of its values in each bin.

    The outermost thousandth on each side is counted in the end bins, so that one odd value does not flatten
    the rest. Whole numbers get bins of whole width. `bounds` are drawn as upright lines: the limits of a check.
    """
    finite = {name: _finite(values) for name, values in series.items()}
    together = np.concatenate([*finite.values(), np.empty(0)])
    with _drawing() as (figure, axes):
        axes.set_xlabel(label, parse_math=False)
        axes.set_ylabel("share")
        if not together.size:
            return _without_data(figure, axes)
        edges = _edges(together, bins)
        low, high = edges[0], edges[-1]
        if _integral(together):
            axes.xaxis.get_major_locator().set_params(integer=True)
        for place, (name, values) in enumerate(finite.items()):
            if values.size:
                counts, _ = np.histogram(np.clip(values, low, high), edges)
                colour, stroke = SERIES[place % len(SERIES)], STROKES[place % len(STROKES)]
                axes.stairs(counts / values.size, edges, fill=True, color=colour, alpha=0.18)
                axes.stairs(
                    counts / values.size, edges, color=colour, linewidth=1.4, linestyle=stroke, label=_plain(name)
                )
        for bound in bounds:
            if low - (high - low) / 2 < bound < high + (high - low) / 2:
                axes.axvline(bound, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), alpha=0.7)
        _percentages(axes.yaxis)
        _legend(axes, len(finite))
        return _svg(figure)


def bars(
    values: Mapping[str, float],
    label: str,
    *,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    percent: bool = False,
) -> Block:
    """A bar for each name, from the first downwards, with its interval where there is one (low, high)."""
    names, lengths = list(values), np.array(list(values.values()), dtype=float)
    with _drawing(height=max(70, 48 + 19 * len(names))) as (figure, axes):
        axes.set_xlabel(label, parse_math=False)
        if not names:
            return _without_data(figure, axes)
        places = np.arange(len(names))
        axes.barh(places, lengths, height=0.62, color=SERIES[0], alpha=0.55)
        reach = lengths.copy()
        for place, name in enumerate(names):
            if intervals and name in intervals:
                low, high = intervals[name]
                axes.plot([low, high], [place, place], color=INK, linewidth=1.3, solid_capstyle="butt")
                axes.plot([low, high], [place, place], color=INK, linestyle="none", marker="|", markersize=6)
                reach[place] = np.nanmax([reach[place], high])
        for place, length in enumerate(lengths):
            text = f"{length:.1%}" if percent else f"{length:,.4g}"
            axes.annotate(
                text, (max(reach[place], 0), place), (5, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_yticks(places, labels=[_shortened(name) for name in names], parse_math=False)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(left=min(0.0, float(np.nanmin(lengths))), right=max(float(np.nanmax(reach)) * 1.18, 1e-9))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        if percent:
            _percentages(axes.xaxis)
        return _svg(figure)


def lines(x: Numbers, series: Mapping[str, Numbers], label: str, value_label: str, *, percent: bool = False) -> Block:
    """Curves over a common axis; values that are not finite leave a gap."""
    with _drawing() as (figure, axes):
        axes.set_xlabel(label, parse_math=False)
        axes.set_ylabel(value_label, parse_math=False)
        if not len(x):
            return _without_data(figure, axes)
        for place, (name, values) in enumerate(series.items()):
            heights = np.where(np.isfinite(np.asarray(values, dtype=float)), values, np.nan)
            marker = "o" if len(x) <= 20 else ""
            axes.plot(
                x, heights, color=SERIES[place % len(SERIES)], linestyle=STROKES[place % len(STROKES)],
                linewidth=1.5, marker=marker, markersize=3.5, label=_plain(name),
            )  # fmt: skip
        if percent:
            _percentages(axes.yaxis)
        _legend(axes, len(series))
        return _svg(figure)


def scatter(x: Numbers, y: Numbers, label: str, value_label: str, *, diagonal: bool = False) -> Block:
    """A dot for each pair; `diagonal` adds the line on which both are equal. Says so when it shows a part."""
    across, up = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    finite = np.flatnonzero(np.isfinite(across) & np.isfinite(up))
    with _drawing() as (figure, axes):
        axes.set_xlabel(label, parse_math=False)
        axes.set_ylabel(value_label, parse_math=False)
        if not finite.size:
            return _without_data(figure, axes)
        shown = finite
        if finite.size > MOST_POINTS:
            shown = finite[np.linspace(0, finite.size - 1, MOST_POINTS).astype(int)]
            axes.set_title(f"{shown.size:,} of {finite.size:,}, evenly picked", fontsize=9)
        axes.plot(
            across[shown],
            up[shown],
            linestyle="none",
            marker="o",
            markersize=3.2,
            markeredgewidth=0,
            color=SERIES[0],
            alpha=0.45,
        )
        if diagonal:
            ends = [min(across[shown].min(), up[shown].min()), max(across[shown].max(), up[shown].max())]
            axes.plot(ends, ends, color=INK, linewidth=1.1, linestyle=(0, (3, 2)), zorder=3)
        return _svg(figure)


@contextlib.contextmanager
def _drawing(height: float = HEIGHT) -> Iterator[tuple[Any, Any]]:
    """A figure with one set of axes, in the page's manner."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(
        {
            "svg.fonttype": "none", "svg.hashsalt": "voxline", "path.simplify": True,
            "font.family": "DejaVu Sans", "font.size": 10, "axes.labelsize": 10, "axes.unicode_minus": True,
            "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9, "legend.frameon": False,
            "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
            "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "axes.titlelocation": "right",
            "axes.grid": True, "axes.axisbelow": True, "grid.color": FAINT, "grid.linewidth": 0.7,
            "axes.formatter.useoffset": False,
        }
    ):  # fmt: skip
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        yield figure, figure.add_subplot()


def _svg(figure: Any) -> Block:
    """The figure as an <svg> element: no header, no metadata, ids that no other plot of the page bears."""
    memory = io.StringIO()
    figure.savefig(memory, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = memory.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href")
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, variable)
    mark = hash_bytes(text.encode())[:8]
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>p{mark}-", text)
    return Markup(text)  # noqa: S704  (matplotlib escapes the labels)


def _without_data(figure: Any, axes: Any) -> Block:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes)
    return _svg(figure)


def _edges(values: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    low, high = np.quantile(values, [0.001, 0.999])
    if _integral(values):
        low, high = np.floor(low), np.ceil(high)
        step = np.ceil((high - low + 1) / bins)
        return np.arange(low - 0.5, high + step, step)
    if high - low < 1e-9 * max(abs(high), 1):
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1)


def _integral(values: npt.NDArray[np.float64]) -> bool:
    return bool((values == np.round(values)).all())


def _percentages(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0))


def _legend(axes: Any, series: int) -> None:
    if series > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)


def _plain(name: str) -> str:
    # matplotlib leaves what begins with an underscore out of the legend.
    return f"\u200b{name}" if name.startswith("_") else _shortened(name)


def _shortened(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _finite(values: Numbers) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
