"""SVG drawing for the plots: axes, marks and legends.

Plotting libraries take longer to import than a whole small refresh may take. Colors, light or dark, and the font come
from the page's style sheet; text stays text, and can be searched.
"""

import dataclasses
import functools
import math
import unicodedata
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from voxline.report.page import Block

WIDTH = 380
HEIGHT = 235
"""Of the drawing, in SVG units; small, so that labels stay readable on a phone."""

SMALL = 9
LARGE = 10
"""Font sizes: of ticks and legends, and of axis labels."""
ROW = 11
"""From a line of an axis label to the next."""

COLORS = 6
INK = "currentColor"
FAINT = "var(--line)"
DASHES = ["", "7 2.8", "2.1 2.1", "7 2.1 2.1 2.1", "11 2.8", "4.2 4.2"]
"""Series differ in stroke as well as in color."""

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Scale:
    """One axis: its ends, and the format of its values.

    Attributes:
      whole: values are integers, and so are the ticks.
      most: approximate number of ticks; 0 for none.
    """

    low: float
    high: float
    percent: bool = False
    whole: bool = False
    most: int = 6

    @classmethod
    def around(cls, low: float, high: float, margin: float = 0.04, **how: bool) -> "Scale":
        """A scale for these values with a margin at both ends.

        >>> Scale.around(3.0, 3.0).ends
        (2.46, 3.54)
        >>> [label for _, label in Scale.around(7.0, 7.0, whole=True).ticks]
        ['6', '7', '8']
        >>> [label for _, label in Scale.around(0.0, 0.0, percent=True).ticks][:2]
        ['0%', '10%']
        """
        # Equal values, or so close that a float cannot tell the ticks apart. What is never negative gets no such ticks.
        if not high - low > 1e-9 * max(abs(low), abs(high), 1e-290):
            room = 0.5 * max(2.0 if how.get("whole") else 1.0, abs(low) * 1e-3)
            high = min(high + room, 1.0) if how.get("percent") and high <= 1 else high + room
            low = max(low - room, 0.0) if low >= 0 else low - room
        room = margin * (high - low)
        return cls(low - room, high + room, **how)

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    @functools.cached_property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values between the ends, with their labels.

        >>> Scale(0, 0.31, percent=True).ticks[:2], Scale(-1, 1400).ticks[-1]
        ([(0.0, '0%'), (0.1, '10%')], (1250.0, '1,250'))
        """
        if not self.most:
            return []
        step = _round_step((self.high - self.low) / self.most)
        if self.whole:
            # Ticks of whole numbers are whole.
            step = max(1.0, math.ceil(step))

        # Indices of ticks, not sums of steps: sums would gather rounding errors.
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(index * step, self._format(index * step, step)) for index in range(first, last + 1)]

    def _format(self, value: float, step: float) -> str:
        # The tick at zero may come out as -0 or 1e-17.
        if abs(value) < step / 2:
            value = 0.0

        # As many decimals as the step needs, the same for all ticks.
        shown = step * 100 if self.percent else step
        decimals = next((digits for digits in range(5) if abs(round(shown, digits) - shown) < 1e-6 * shown), None)
        if self.percent:
            return f"{value:.{decimals or 0}%}".replace("-", "−")
        if decimals is None or abs(value) >= 1e6:
            return f"{value:.4g}".replace("-", "−")
        return f"{value:,.{decimals}f}".replace("-", "−")


class Drawing:
    """A frame with a horizontal and a vertical axis, in which marks are drawn.

    Args:
      title, desc: for readers who cannot see the drawing.
      across, up: the scales; without `up` the rows have names.
      names: of rows, the first on top.
      series: names for the legend, if there is more than one.
    """

    def __init__(
        self,
        title: str,
        desc: str,
        across: Scale,
        up: Scale | None = None,
        *,
        label: str,
        value_label: str = "",
        height: float = HEIGHT,
        names: Sequence[str] = (),
        series: Sequence[str] = (),
        remark: str = "",
    ) -> None:
        self.title = title
        self.desc = desc
        self.across = across
        self.up = up
        self.height = height
        self.label = label
        self.value_label = value_label
        self.names = names
        self.remark = remark

        self._legend = _legend_rows(series) if len(series) > 1 else []
        self._marks: list[Markup] = []

        # Margins follow from the labels: the longest at the left, the legend above.
        self.right = WIDTH - 12.0
        self.bottom = height - 34.0
        self.top = 8.0 + 14 * len(self._legend) + (12 if remark else 0)
        self._value_lines = _label_lines(value_label, self.bottom - self.top)
        sides = [label for _, label in up.ticks] if up else names
        aside = 16 + ROW * (len(self._value_lines) - 1) if value_label else 4
        self.left = 8 + max((text_width(side) for side in sides), default=0) + aside

    def x(self, value: float) -> float:
        return self.left + self.across.share(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        """The y coordinate of a value, or of the middle of a row."""
        # Rows count from the top, values from the bottom.
        share = self.up.share(value) if self.up else 1 - (value + 0.5) / max(len(self.names), 1)
        return self.bottom - share * (self.bottom - self.top)

    def line(self, points: Iterable[Point], series: int, width: float = 1.4) -> None:
        """A line, interrupted by values that are not finite."""
        way = []
        pen = "M"
        for across, up in points:
            # A gap: the next point begins a new part of the path.
            if not (math.isfinite(across) and math.isfinite(up)):
                pen = "M"
                continue
            way.append(f"{pen}{self.x(across):.1f} {self.y(up):.1f}")
            pen = "L"
        style = f"fill: none; stroke: {series_color(series)}; stroke-width: {width}; stroke-linejoin: round"
        dash = DASHES[series % len(DASHES)]
        self._marks.append(_element("path", style + (f"; stroke-dasharray: {dash}" if dash else ""), d="".join(way)))

    def area(self, points: Sequence[Point], series: int) -> None:
        """The tinted area below a line."""
        way = "L".join(f"{self.x(across):.1f} {self.y(up):.1f}" for across, up in points)
        self._marks.append(_element("path", f"fill: {series_color(series)}; fill-opacity: 0.18", d=f"M{way}Z"))

    def bar(self, row: int, length: float) -> None:
        begin, end = sorted((self.x(0), self.x(length)))
        high = 0.62 * (self.bottom - self.top) / len(self.names)
        where = {"x": begin, "y": self.y(row) - high / 2, "width": end - begin, "height": high}
        style = f"fill: {series_color(0)}; fill-opacity: 0.55"
        self._marks.append(_element("rect", style, **{name: f"{value:.1f}" for name, value in where.items()}))

    def dots(self, points: Iterable[Point], series: int, radius: float = 1.6, opacity: float = 1.0) -> None:
        circles = [f'<circle cx="{self.x(across):.1f}" cy="{self.y(up):.1f}" r="{radius}"/>' for across, up in points]
        style = f"fill: {series_color(series)}; fill-opacity: {opacity}"
        self._marks.append(Markup(f'<g style="{style}">{"".join(circles)}</g>'))  # noqa: S704  (numbers alone)

    def straight_line(self, start: Point, other: Point, *, dashed: bool = False, width: float = 1.0) -> None:
        """A straight line: an interval, a limit, a diagonal."""
        begin, end = ((self.x(across), self.y(up)) for across, up in (start, other))
        self._straight(begin, end, dashed=dashed, width=width)

    def vertical_line(self, value: float, name: str) -> None:
        """A line from top to bottom with its name, such as a limit; solid, since lines of series may be dashed."""
        across = self.x(value)
        ends = {"x1": across, "y1": self.top, "x2": across, "y2": self.bottom}
        style = "stroke: var(--bad); stroke-width: 1.4"
        self._marks.append(_element("line", style, **{key: f"{position:.1f}" for key, position in ends.items()}))

        # Near the right edge the name goes to the left of its line.
        beyond = across + 4 + text_width(name) > self.right
        self._marks.append(_text(across + (-4 if beyond else 4), self.top + 8, name, "end" if beyond else "start"))

    def label_at(self, value: float, row: float, text: str, shift: float = 5.0, *, before: bool = False) -> None:
        """A text next to a point: after it, or before it."""
        across = self.x(value) + (-shift if before else shift)
        self._marks.append(_text(across, self.y(row) + 3, text, "end" if before else "start"))

    def svg(self) -> Block:
        # Marks lie above the grid and below the axes.
        parts = [*self._grid(), *self._marks, *self._axes(), *self._labels()]
        return Markup('<svg viewBox="0 0 {} {:.0f}" role="img"><title>{}</title><desc>{}</desc>{}</svg>').format(
            WIDTH, self.height, self.title, self.desc, Markup("").join(parts)
        )

    def _straight(self, begin: Point, end: Point, *, dashed: bool, width: float = 1.0) -> None:
        style = f"stroke: {INK}; stroke-width: {width}" + ("; stroke-dasharray: 3 2; opacity: 0.75" if dashed else "")
        ends = {"x1": begin[0], "y1": begin[1], "x2": end[0], "y2": end[1]}
        self._marks.append(_element("line", style, **{name: f"{value:.1f}" for name, value in ends.items()}))

    def _grid(self) -> list[Markup]:
        uprights = [f"M{self.x(value):.1f} {self.top:.1f}V{self.bottom:.1f}" for value, _ in self.across.ticks]
        levels = [f"M{self.left:.1f} {self.y(value):.1f}H{self.right:.1f}" for value, _ in self._levels()]
        way = "".join(uprights + levels)
        return [_element("path", f"fill: none; stroke: {FAINT}; stroke-width: 0.7", d=way)]

    def _axes(self) -> list[Markup]:
        way = f"M{self.left:.1f} {self.top:.1f}V{self.bottom:.1f}H{self.right:.1f}"
        frame = _element("path", f"fill: none; stroke: {INK}; stroke-width: 0.6", d=way)
        below = [_text(self.x(value), self.bottom + 13, label, "middle") for value, label in self.across.ticks]
        aside = [_text(self.left - 5, self.y(value) + 3, label, "end") for value, label in self._levels()]
        rows = [_text(self.left - 5, self.y(row) + 3, name, "end") for row, name in enumerate(self.names)]
        return [frame, *below, *aside, *rows]

    def _labels(self) -> list[Markup]:
        """The labels of the axes, and the legend."""
        middle = (self.left + self.right) / 2
        half = (self.top + self.bottom) / 2
        texts = [_text(middle, self.height - 6, self.label, "middle", LARGE)]

        # Turned by 90 degrees around its own middle, along the vertical axis.
        for number, line in enumerate(self._value_lines):
            beside = 11 + ROW * number
            turned = f' transform="rotate(-90 {beside} {half:.1f})"'
            texts.append(_text(beside, half, line, "middle", LARGE, turned))
        if self.remark:
            texts.append(_text(self.right, self.top - 5, self.remark, "end"))

        for row, entries in enumerate(self._legend):
            for index, across, name in entries:
                dash = DASHES[index % len(DASHES)]
                style = f"stroke: {series_color(index)}; stroke-width: 1.8" + (
                    f"; stroke-dasharray: {dash}" if dash else ""
                )
                begin = self.left + across
                level = 9.0 + 14 * row
                ends = {"x1": f"{begin:.1f}", "x2": f"{begin + 18:.1f}", "y1": f"{level:.1f}", "y2": f"{level:.1f}"}
                texts += [_element("line", style, **ends), _text(begin + 22, level + 3, name)]
        return texts

    def _levels(self) -> list[tuple[float, str]]:
        return self.up.ticks if self.up else []


def series_color(series: int) -> str:
    return f"var(--series-{series % COLORS + 1})"


def _label_lines(label: str, room: float) -> list[str]:
    """The label of a vertical axis, in two lines where one is longer than the axis; [] without a label."""
    width = text_width(label) * LARGE / SMALL
    spaces = [at for at, letter in enumerate(label) if letter == " "]
    if width <= room or not spaces:
        return [label] if label else []
    middle = min(spaces, key=lambda at: abs(at - len(label) / 2))
    return [label[:middle], label[middle + 1 :]]


def shorten_label(name: str, most: float = 32 * 5.4) -> str:
    """Shortens a label to a width."""
    shortened = name
    while text_width(shortened) > most:
        # Long names lose all beyond 60 characters at once, then one by one.
        shortened = shortened[: max(1, len(shortened) - 1 - (len(shortened) > 60) * (len(shortened) - 60))]
    return shortened if shortened == name else f"{shortened}…"


def _legend_rows(names: Sequence[str]) -> list[list[tuple[int, float, str]]]:
    """The rows of a legend, with as many entries as fit: (series, x position, name)."""
    rows: list[list[tuple[int, float, str]]] = [[]]
    reached = 0.0
    for index, name in enumerate(shorten_label(name, WIDTH - 70 - 36) for name in names):
        # A sample of the line, the name, and a gap.
        needed = 22 + text_width(name) + 14
        if rows[-1] and reached + needed > WIDTH - 70:
            rows.append([])
            reached = 0.0
        rows[-1].append((index, reached, name))
        reached += needed
    return rows


def text_width(text: str) -> float:
    """The approximate width in small type; the reader's font is unknown."""
    return sum(SMALL if unicodedata.east_asian_width(char) in "WF" else SMALL * 0.58 for char in text)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))

    # The smallest of the round steps that is not below the rough one.
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))


def _element(name: str, style: str, **attributes: str) -> Markup:
    values = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f'<{name}{values} style="{style}"/>')  # noqa: S704  (escaped above)


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = SMALL, more: str = "") -> Markup:
    style = f"font-size: {size}px; text-anchor: {anchor}; fill: {INK}"
    return Markup(f'<text x="{x:.1f}" y="{y:.1f}" style="{style}"{more}>{{}}</text>').format(text)  # noqa: S704
