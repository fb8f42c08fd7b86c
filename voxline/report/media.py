"""Audio players and images that are embedded in the page."""

import base64
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from voxline.report.page import Block, _render_block

MAX_PLAYER_SECONDS = 20.0
"""Longest audio in one player. At 16 kHz a second takes 43 kB in a page as 16-bit WAV, and 7 kB as MP3."""

MAX_PAGE_BYTES = 12_000_000
"""Most audio in all players of a page, so that browsers and mail still accept it."""

_SAMPLE_BYTES = 2

Samples = npt.NDArray[np.float32] | npt.NDArray[np.float64] | npt.NDArray[np.int16]

Codec = Literal["wav", "mp3"]
MP3_RATES = frozenset({8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000})
"""Hz; at another rate a player has WAV."""

PANEL = 3.1
"""Inches; the width of an image with its labels."""
DPI = 110
"""Sharp enough to follow a harmonic; about 100 kB a row."""
TICKS = 7.0
"""Points of the smallest text of a panel."""
READABLE = 9.0
"""CSS pixels that it has at least, however narrow the page."""


def audio_player(
    audio: Path | str | Samples,
    caption: str = "",
    *,
    sample_rate: int | None = None,
    offset: float = 0.0,
    duration: float | None = None,
    seconds: float = MAX_PLAYER_SECONDS,
    codec: Codec = "wav",
    label: str = "",
) -> Block:
    """A player with embedded audio, which every browser plays.

    Args:
      audio: a file that soundfile reads; or samples `[samples]` or `[samples, channels]`, float in [-1, 1] or int16.
      sample_rate: Hz, of samples.
      offset, duration: seconds; the segment to play. None plays to the end.
      seconds: at most so many are embedded, from the beginning; the page says how many.
      codec: "wav", sample by sample; "mp3" takes a seventh of the space, for a rate that MP3 has (8 to 48 kHz).
      label: for readers who cannot see the page; the caption if omitted.

    A file that cannot be read gives a remark instead of a player: pages about bad recordings have such files.
    """
    import soundfile

    # Either way only what is embedded is read: a recording may be hours long.
    try:
        samples, rate, whole = (
            _cut(audio, sample_rate, offset, duration, seconds)
            if isinstance(audio, np.ndarray)
            else _read(Path(audio), offset, duration, seconds)
        )
    except (OSError, soundfile.LibsndfileError) as error:
        return _no_player(caption, f"{Path(str(audio)).name} cannot be read ({_why(error)}).")
    except _TooLargeError:
        return _no_player(caption, f"{Path(str(audio)).name} is larger than all audio of a page may be.")
    if not len(samples):
        return _no_player(caption, "the recording is empty.")

    embedded = len(samples) / rate
    remark = f"The first {embedded:.0f} s of {whole:.1f} s." if whole - embedded > 0.01 else ""
    uri = Markup(_data_uri(samples, rate, codec))  # noqa: S704 - in base64 there is nothing to escape
    return _render_block("audio_player", caption, uri, remark, label or caption)


def _no_player(caption: str, why: str) -> Block:
    return _render_block("audio_player", caption, "", f"No player: {why}", "")


class PlayerBudget:
    """Players whose total size stays within a limit. Beyond it, a remark names the file instead.

    Attributes:
      used: bytes of HTML so far.
      omitted: players that did not fit.
    """

    def __init__(self, limit: int = MAX_PAGE_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.omitted = 0

    def player(
        self,
        audio: Path | str | Samples,
        caption: str = "",
        *,
        sample_rate: int | None = None,
        offset: float = 0.0,
        duration: float | None = None,
        seconds: float = MAX_PLAYER_SECONDS,
        codec: Codec = "wav",
        label: str = "",
    ) -> Block:
        """Makes an `audio_player`, within the limit."""
        if self.used < self.limit:
            block = audio_player(
                audio, caption, sample_rate=sample_rate, offset=offset, duration=duration, seconds=seconds,
                codec=codec, label=label,
            )  # fmt: skip
            # The size is only known when it is encoded; a block that is too large is dropped.
            if self.used + len(block) <= self.limit:
                self.used += len(block)
                return block
        self.omitted += 1
        file = "" if isinstance(audio, np.ndarray) else f"; the file is {Path(audio).name}"
        return _no_player(caption, f"the {self.limit / 1e6:g} MB of audio for this page are used up{file}.")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One image of a row.

    Attributes:
      values: `[x, y]`, as in spectrograms (`[frames, bins]`) and alignments (`[steps, symbols]`).
      lowest, highest: of the color scale, so that panels can be compared; None: of the values.
      spans: where the axes end, in the units of their labels; None: the numbers of values.
    """

    title: str
    values: npt.NDArray[Any]
    label: str = "frame"
    value_label: str = "mel"
    lowest: float | None = None
    highest: float | None = None
    spans: tuple[float, float] | None = None


def image_panels(panels: Sequence[Panel], alt: str) -> Block:
    """Panels in a row, as one PNG, which scrolls sideways where the page is too narrow to read it.

    Args:
      alt: describes the picture, so no two pictures of a page share one.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Placed by hand, in inches: to search for a layout, Matplotlib draws everything once more.
    width = PANEL * len(panels)
    height = 2.5
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels):
        axes = figure.add_axes(((PANEL * number + 0.5) / width, 0.42 / height, (PANEL - 0.6) / width, 1.8 / height))
        axes.imshow(
            np.asarray(panel.values, np.float32).T, origin="lower", aspect="auto", interpolation="nearest",
            cmap="magma", vmin=panel.lowest, vmax=panel.highest,
            extent=panel.spans and (0, panel.spans[0], 0, panel.spans[1]),
        )  # fmt: skip
        axes.set_title(panel.title, fontsize=9, parse_math=False)
        axes.set_xlabel(panel.label, fontsize=8)
        axes.set_ylabel(panel.value_label, fontsize=8)
        axes.tick_params(labelsize=TICKS)
        # Numbers of values are whole ones; a voice that stops at once has two frames.
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=panel.spans is None, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=panel.spans is None, min_n_ticks=1))

    # Without the name of Matplotlib's version, so that equal panels give equal bytes.
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=DPI, metadata={"Software": None})
    data = base64.b64encode(memory.getvalue()).decode("ascii")
    image = Markup(
        '<img src="data:image/png;base64,{}" alt="{}" loading="lazy" style="max-width: 100%; min-width: {:.0f}px">'
    ).format(data, alt, math.ceil(width * 72 * READABLE / TICKS))
    return Markup('<div class="scrolls" tabindex="0" role="region" aria-label="{}">{}</div>').format(
        f"{alt}, scrolls sideways", image
    )


class _TooLargeError(Exception):
    """A part of a recording is larger than all audio of a page may be."""


def _read(path: Path, offset: float, duration: float | None, seconds: float) -> tuple[Samples, int, float]:
    import soundfile

    # Opening reads the header alone.
    with soundfile.SoundFile(path) as file:
        rate = int(file.samplerate)

        # The segment may begin or end beyond the file.
        begin = min(round(offset * rate), file.frames)
        end = file.frames if duration is None else min(begin + round(duration * rate), file.frames)
        count = min(end - begin, int(seconds * rate))

        # The recording may be a stranger's: a few kilobytes with many channels become gigabytes of samples.
        if _SAMPLE_BYTES * count * file.channels > MAX_PAGE_BYTES:
            raise _TooLargeError
        file.seek(begin)
        samples: Samples = file.read(count, dtype="int16")
        return samples, rate, (end - begin) / rate


def _cut(
    samples: Samples, rate: int | None, offset: float, duration: float | None, seconds: float
) -> tuple[Samples, int, float]:
    if rate is None:
        raise ValueError("audio_player: an array needs its sample_rate (Hz)")
    begin = round(offset * rate)
    segment = samples[begin : None if duration is None else begin + round(duration * rate)]
    return segment[: int(seconds * rate)], rate, len(segment) / rate


def _data_uri(samples: Samples, rate: int, codec: Codec) -> str:
    import soundfile

    if not np.issubdtype(samples.dtype, np.integer):
        # NaN would become an arbitrary integer, and values beyond full scale would wrap around.
        samples = (np.clip(np.nan_to_num(samples), -1, 1) * 32767).round().astype(np.int16)
    memory = io.BytesIO()
    if codec == "mp3" and rate in MP3_RATES:
        soundfile.write(memory, samples, rate, format="MP3", subtype="MPEG_LAYER_III")
        return "data:audio/mpeg;base64," + base64.b64encode(memory.getvalue()).decode("ascii")
    soundfile.write(memory, samples, rate, format="WAV", subtype="PCM_16")
    return "data:audio/wav;base64," + base64.b64encode(memory.getvalue()).decode("ascii")


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(getattr(error, "error_string", error)).strip(" .") or type(error).__name__
