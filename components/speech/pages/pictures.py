"""Spectrograms and alignments as pictures inside the page."""

import base64
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from components.speech.pages.blocks import Block

DOTS = 110
"""To an inch: sharp enough to follow a harmonic, a hundred kB a row."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One picture of a row.

    Attributes:
      values: [across, upwards], as spectrograms ([frames, bins]) and alignments ([steps, symbols]) are.
      lowest, highest: ends of the colours, so that two panels compare; None: those of the values.
    """

    title: str
    values: npt.NDArray[Any]
    label: str = "frame"
    value_label: str = "mel"
    lowest: float | None = None
    highest: float | None = None


def pictures(panels: Sequence[Panel], alt: str) -> Block:
    """Panels beside each other in one PNG; `alt` says in words what they show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(panels), 2.5), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.imshow(
            np.asarray(panel.values, np.float32).T, origin="lower", aspect="auto", interpolation="nearest",
            cmap="magma", vmin=panel.lowest, vmax=panel.highest,
        )  # fmt: skip
        axes.set_title(panel.title, fontsize=9, parse_math=False)
        axes.set_xlabel(panel.label, fontsize=8)
        axes.set_ylabel(panel.value_label, fontsize=8)
        axes.tick_params(labelsize=7)
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=DOTS, metadata={"Software": None})
    data = base64.b64encode(memory.getvalue()).decode("ascii")
    return Markup('<img src="data:image/png;base64,{}" alt="{}" loading="lazy" style="max-width: 100%">').format(
        data, alt
    )
