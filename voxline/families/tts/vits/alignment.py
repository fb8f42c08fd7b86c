"""Where a recording says each symbol of its text, by how a voice says the same text.

A voice knows how many frames it gives each symbol. Dynamic time warping pairs the frames of its speech with those of
the recording, and so carries the ends of symbols over; another speaker is compared by what cepstra tell apart from the
mean and the deviation of an utterance. That needs no posterior encoder, which monotonic alignment search does.

  encodings/train.symbols.npy   int32 [frames of all utterances], the number of each frame's symbol in its text
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voxline.audio.dtw import align_by_cost
from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.metrics.mcd import mel_cepstra
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write
from voxline.store.size_limits import load_npy
from voxline.training.batches import Batch
from voxline.training.segments import WaveformBatches

Array = npt.NDArray[np.float32]
Durations = npt.NDArray[np.int64]

CEPSTRA = 6
"""Numbers of a frame: the broad shape of a spectrum, without pitch. More tell speakers apart, and align them worse."""
SLOPE_FRAMES = 2
"""Frames to each side that the slope of a cepstrum is measured over (Furui 1986)."""
LEAST_DEVIATION = 1e-5
"""Of a number that does not change within an utterance, such as all numbers of silence."""
MOST_UNSAID = 0.01
"""Share of train's utterances with symbols that the voice lacks, up to which it aligns them all. It mumbles those."""
MOST_FRAMES = 4
"""Frames of speech that a voice may take for a text, as a share of the recording's."""


class SymbolsOfFrames:
    """The symbols of a split's recordings, by rows.

    Args:
      symbols: int32 [frames of all utterances], one utterance after the other.
      batches: of the split.
    """

    def __init__(self, symbols: npt.NDArray[np.int32], batches: WaveformBatches) -> None:
        ends = np.cumsum([batches.frames(row) for row in range(batches.utterances)])
        if len(symbols) != ends[-1]:
            raise ValueError(f"symbols of {len(symbols):,} frames, and the split has {ends[-1]:,}")
        self._symbols = np.split(symbols, ends[:-1])

    def __getitem__(self, row: int) -> Array:
        """The number of each frame's symbol, float32 [frames, 1]."""
        return self._symbols[row].astype(np.float32)[:, None]


def align_split(
    batches: WaveformBatches,
    folder: Path,
    split: str,
    rehearse: Callable[[Batch, int, int], tuple[Array, Durations]],
    features: FeatureSettings,
) -> SymbolsOfFrames:
    """Aligns all recordings of a split by a voice's speech of their texts, or finds them aligned already.

    Args:
      batches: of the split, with an utterance or more.
      rehearse: says the text of a batch's row in some frames at most: samples, and the durations of its symbols.
    """
    file = folder / f"{split}.symbols.npy"
    if file.is_file():
        return SymbolsOfFrames(load_npy(file), batches)

    folder.mkdir(parents=True, exist_ok=True)
    count = batches.utterances
    progress = Progress("utterances aligned", count)
    symbols = []
    for row in range(count):
        batch = batches.read(np.array([row]))
        frames = int(batch.frames[0])
        samples, durations = rehearse(batch, 0, MOST_FRAMES * frames)
        speech, recording = (
            comparable_frames(heard, features) for heard in (samples, batch.features[0, :frames].reshape(-1))
        )
        of_recording = carry_durations(speech, recording, durations)
        symbols.append(np.repeat(np.arange(len(of_recording), dtype=np.int32), of_recording))
        progress.advance(1)

    aligned = np.concatenate(symbols)
    with atomic_write(file) as stream:
        np.save(stream, aligned, allow_pickle=False)
    print_status(f"train: aligned {count:,} utterances of {split} by the parent's speech of their texts")
    return SymbolsOfFrames(aligned, batches)


def comparable_frames(samples: Array, features: FeatureSettings) -> npt.NDArray[np.float64]:
    """Cepstra, level and the slopes of both, float64 [frames, values]: an utterance has mean 0 and deviation 1 of each.

    Args:
      samples: of an utterance, a frame is at each of their hops.
    """
    mels = compute_features(samples, features)[:, features.mel_columns]
    level = mels.mean(axis=1, keepdims=True)
    values = np.concatenate([level, mel_cepstra(mels, features, CEPSTRA)], axis=1).astype(np.float64)

    # The slope of a line through the values around each frame.
    padded = np.pad(values, [(SLOPE_FRAMES, SLOPE_FRAMES), (0, 0)], mode="edge")
    slopes = np.zeros_like(values)
    for shift in range(-SLOPE_FRAMES, SLOPE_FRAMES + 1):
        slopes += shift * padded[SLOPE_FRAMES + shift : SLOPE_FRAMES + shift + len(values)]
    both = np.concatenate([values, slopes], axis=1)

    normalized: npt.NDArray[np.float64] = (both - both.mean(axis=0)) / np.maximum(both.std(axis=0), LEAST_DEVIATION)
    return normalized


def carry_durations(
    speech: npt.NDArray[np.float64], recording: npt.NDArray[np.float64], durations: Durations
) -> Durations:
    """Whole frames of a recording that each symbol has, one at least; they sum to those of the recording.

    Args:
      speech: of a voice, [frames + 1, values], at the ends of its frames.
      recording: of the same text, [frames' + 1, values].
      durations: of the symbols in the speech, int64 [symbols]; no more symbols than frames of the recording.
    """
    from scipy.spatial.distance import cdist

    path = align_by_cost(cdist(speech, recording)).path

    # The place in the recording of each frame of speech: the middle of those on the path.
    paired = np.bincount(path[:, 0])
    places = np.bincount(path[:, 0], path[:, 1]) / paired
    ends = places[np.minimum(np.cumsum(durations), len(places) - 1)]
    return whole_durations(ends, len(recording) - 1)


def whole_durations(ends: npt.NDArray[np.float64], frames: int) -> Durations:
    """Whole durations of one frame at least, that sum to `frames`, and whose ends are nearest to some, in squares.

    Args:
      ends: of each symbol, ascending, in frames; the last symbol ends where the frames do, whatever its end.

    >>> whole_durations(np.array([2.0, 2.0, 2.0, 6.0]), 8).tolist()
    [1, 1, 1, 5]
    """
    from scipy.optimize import isotonic_regression

    # Ends that are a frame apart at least do not descend once each symbol's own frame is taken away.
    symbols = np.arange(1, len(ends))
    room = isotonic_regression(ends[:-1] - symbols).x if len(symbols) else symbols
    inner_ends = np.clip(np.rint(room), 0, frames - len(ends)) + symbols
    return np.diff(inner_ends.astype(np.int64), prepend=0, append=frames)
