"""The spectrogram of an utterance with its words below it, as a recognizer aligned them; one SVG.

The spectrogram is a PNG of 32 colors with a few bands, so that a page can hold dozens. No plotting library is imported.
"""

import base64
import dataclasses
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from voxline.report.page import Block
from voxline.report.svg import INK, SMALL, text_width

BANDS = 72
LEVELS = 32
"""Rows of the picture, and colors; both bound its size."""

RANGE_DB = 70.0
"""Below the loudest point; anything quieter has the darkest color."""

SECOND = 210.0
NARROWEST = 420.0
WIDEST = 3_000.0
"""Width of a second, and of the narrowest and the widest picture, in SVG units."""

_LEFT = 78.0
_TOP = 6.0
_HEIGHT = 96.0
_ROW = 26.0
_INFERNO = ((0, 0, 4), (40, 11, 84), (101, 21, 110), (159, 42, 99), (212, 72, 66), (245, 125, 21), (250, 193, 39),
            (252, 255, 164))  # fmt: skip
"""Anchors of matplotlib's inferno."""


_IMAGE = Markup(
    '<image x="{}" y="{}" width="{:.1f}" height="{}" preserveAspectRatio="none" href="data:image/png;base64,{}"/>'
)
_BOX = Markup(
    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="22" rx="2" '
    'style="fill: var({}-tint); stroke: var({}); stroke-width: 0.8"/>'
)


@dataclasses.dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word in the audio: its text, its start and end in seconds, and a confidence from 0 to 1 (None: not known)."""

    text: str
    start: float
    end: float
    confidence: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WordRow:
    """A row of words below the spectrogram, with the name at its left."""

    name: str
    words: Sequence[SpokenWord]


def spectrogram_view(samples: npt.NDArray[Any], sample_rate: int, rows: Sequence[WordRow], alt: str) -> Block:
    """The spectrogram of an utterance, with words aligned below; it scrolls sideways where the page is narrow.

    Args:
      samples: [samples], mono.
      alt: names the picture for readers who cannot see it.
    """
    # A second has a fixed width, so that words of all utterances compare; very long ones are squeezed.
    seconds = max(len(samples), 1) / sample_rate
    across = min(max(SECOND * seconds, NARROWEST), WIDEST)
    below = _TOP + _HEIGHT + 16
    height = below + _ROW * len(rows) + 4
    scale = across / seconds
    # A recognizer's last word may end a frame behind the recording.
    last_end = max((word.end for row in rows for word in row.words), default=0.0)
    width = _LEFT + max(across, last_end * scale) + 8
    image = base64.b64encode(_png(_levels(spectrogram(samples, sample_rate, int(across))))).decode("ascii")

    parts = [_IMAGE.format(_LEFT, _TOP, across, _HEIGHT, image)]
    parts.append(_text(_LEFT - 5, _TOP + 8, f"{sample_rate / 2000:g} kHz", "end"))
    parts.append(_text(_LEFT - 5, _TOP + _HEIGHT, "0", "end"))

    # The smallest round step with room for its labels.
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 1e9) if step * scale >= 60)
    for tick in range(int(seconds / step) + 1):
        anchor = "middle" if tick else "start"
        parts.append(_text(_LEFT + tick * step * scale, _TOP + _HEIGHT + 11, f"{tick * step:g} s", anchor))

    for index, row in enumerate(rows):
        top = below + _ROW * index
        parts.append(_text(_LEFT - 8, top + 12, row.name, "end"))
        parts += [_word(word, _LEFT + word.start * scale, _LEFT + word.end * scale, top) for word in row.words]

    # The words again as text, for readers who cannot see the picture.
    spoken = "; ".join(f"{row.name}: {_describe(row.words)}" for row in rows)
    svg = Markup(
        '<svg viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" role="img" aria-label="{}"><desc>{}</desc>{}</svg>'
    ).format(width, height, width, alt, spoken, Markup("").join(parts))
    return Markup('<div class="scrolls view" tabindex="0" role="region" aria-label="{}">{}</div>').format(
        f"{alt}, scrolls sideways", svg
    )


def spectrogram(samples: npt.NDArray[Any], sample_rate: int, columns: int) -> npt.NDArray[np.float64]:
    """Levels in dB of `BANDS` bands of equal width up to half the sample rate, [bands, columns at most].

    Windows of 25 ms (Hann) every 5 ms or more.
    """
    # [frames, window], a view
    window = max(64, round(0.025 * sample_rate))
    hop = max(round(0.005 * sample_rate), -(-len(samples) // max(columns, 1)), 1)
    scaled = samples.astype(np.float64) / (1 << 15 if np.issubdtype(samples.dtype, np.integer) else 1)
    padded = np.pad(scaled, (window // 2, window))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[: max(len(samples), 1) : hop]

    # [frames, bins] power, averaged in bands of equal width
    power = np.abs(np.fft.rfft(frames * np.hanning(window), max(512, window))) ** 2
    edges = np.linspace(0, power.shape[1], BANDS + 1).astype(int)
    bands: npt.NDArray[np.float64] = 10 * np.log10(np.add.reduceat(power, edges[:-1], axis=1) / np.diff(edges) + 1e-12)
    return bands.T


def palette() -> npt.NDArray[np.uint8]:
    """The colors of the levels, uint8 [levels, 3], from dark to bright."""
    anchors = np.array(_INFERNO, np.float64)
    at = np.linspace(0, len(anchors) - 1, LEVELS)
    colors = [np.interp(at, np.arange(len(anchors)), channel) for channel in anchors.T]
    return np.stack(colors, axis=1).round().astype(np.uint8)


def _levels(decibels: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Indices of colors, the highest band on top."""
    share = np.clip(1 + (decibels - decibels.max()) / RANGE_DB, 0, 1)
    return np.ascontiguousarray((share[::-1] * (LEVELS - 1)).round().astype(np.uint8))


def _png(levels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG with a palette (PNG specification, 11.2)."""
    # A chunk is its length, kind, data, and the CRC-32 of kind and data.
    height, width = levels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1)  # each row without a filter

    # Bit depth 8, color type 3 (palette), then compression, filter and interlace of the standard kinds.
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"PLTE", palette().tobytes())
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def _word(word: SpokenWord, begin: float, end: float, top: float) -> Markup:
    """A box as long as the word, its text, and its confidence below."""
    confidence = 1.0 if word.confidence is None else word.confidence
    tone = "--good" if confidence >= 0.8 else "--caution" if confidence >= 0.5 else "--bad"

    middle = (begin + end) / 2
    room = end - begin - 3
    squeezed = Markup("")
    # Longer than its box: the browser squeezes the glyphs into it.
    if text_width(word.text) > room:
        squeezed = Markup(' textLength="{:.1f}" lengthAdjust="spacingAndGlyphs"').format(max(room, 4))

    parts = [_BOX.format(begin, top, max(end - begin, 1.0), tone, tone)]
    parts.append(_text(middle, top + 10, word.text, "middle", squeezed))
    if word.confidence is not None and room >= 19:
        parts.append(_text(middle, top + 19, f"{word.confidence:.0%}", "middle", size=7.5))
    return Markup("").join(parts)


def _describe(words: Sequence[SpokenWord]) -> str:
    described = []
    for word in words:
        confidence = "" if word.confidence is None else f" {word.confidence:.0%}"
        described.append(f"{word.text}{confidence} at {word.start:.2f} s")
    return ", ".join(described) or "nothing"


def _text(x: float, y: float, text: str, anchor: str, more: Markup = Markup(""), size: float = SMALL) -> Markup:  # noqa: B008 - immutable
    style = f"font-size: {size:g}px; text-anchor: {anchor}; fill: {INK}"
    return Markup('<text x="{:.1f}" y="{:.1f}" style="{}"{}>{}</text>').format(x, y, style, more, text)
