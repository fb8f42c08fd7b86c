"""Batches of random segments: mels from the dataset's shards, and the waveform beside them from the pool of WAVs."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.features import compute_features
from voxline.components.train.batches import Batches
from voxline.components.train.task import shorten_list
from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.errors import SettingsError, WorkError

Array = npt.NDArray[np.float32]


class SegmentBatches(Batches):
    """The batches of one split, a segment of each utterance.

    The features of an example are float32 [segment_frames, mels + hop]: in each frame its mels, and behind them the
    samples from its center to the next one's; the last frame has none, only zeros. `split_segments` takes them apart.
    Where a segment begins follows from the seed, the epoch and the utterance; an utterance that is shorter is followed
    by silence.

    Args:
      segment_frames: frames of a segment.
      options: those of `Batches`.

    Attributes:
      voice_mels: folder of mels in place of the recordings', one file for each row: `voice_mels.use_mels_of_voice`.

    Raises:
      SettingsError: the dataset has sped-up copies, whose waveforms are in no WAV.
      WorkError: recordings of the dataset are not in its store.
    """

    def __init__(self, dataset: Dataset, split: str, segment_frames: int, **options: Any) -> None:
        if dataset.speeds != [1.0]:
            raise SettingsError(
                f"extract.speeds is {dataset.speeds}; a vocoder learns from recordings as they are: set it to [1.0]"
            )
        super().__init__(dataset, split, length_noise=1.0, **options)
        self.voice_mels: Path | None = None
        self._frames[:] = segment_frames  # all of a length, so that chance alone orders them
        self.segment_frames, self._features = segment_frames, dataset.features
        self.shapes = [(segment_frames, 1)] if self.shapes else []
        self._silence = compute_features(np.zeros(1, np.float32), dataset.features)[0, dataset.features.mel_columns]
        rows = {row.id: row for row in dataset.rows() if row.split == split}
        self._sources = [rows[record.id] for record in self._records]
        self._recordings = dataset.recordings(row.audio_hash for row in self._sources)
        absent = [row.id for row, file in zip(self._sources, self._recordings, strict=True) if not file.is_file()]
        if absent:
            raise WorkError(
                f"train: the recordings of {len(absent):,} of {len(rows):,} utterances of {split} are not in "
                f"{self._recordings[0].parents[1]}: {shorten_list(absent)}. Run convert again with this store"
            )

    def _read(self, draws: npt.NDArray[np.int64], epoch: int) -> list[Example]:
        return [self._segment(draw, epoch) for draw in draws.tolist()]

    def _segment(self, draw: int, epoch: int) -> Example:
        row, wanted, hop = draw % len(self._records), self.segment_frames, self._features.hop_length
        mels = self._mels(row)
        random = np.random.default_rng([self.seed, epoch, draw])
        first = int(random.integers(max(len(mels) - wanted, 0) + 1))
        frames = min(wanted, len(mels))
        segment = np.zeros((wanted, len(self._silence) + hop), np.float32)
        segment[:, : len(self._silence)] = self._silence
        segment[:frames, : len(self._silence)] = mels[first : first + frames]
        samples = self._read_samples(row, first * hop, (frames - 1) * hop)
        segment[: frames - 1, len(self._silence) :] = samples.reshape(frames - 1, hop)
        record = self._records[row]
        return Example(record.id, record.text, record.speaker, segment, np.zeros(0, np.int32))

    def example(self, row: int) -> Example:
        """An utterance as the dataset has it; `row` counts the utterances of the split that are trained on."""
        return self._example(row)

    def _mels(self, row: int) -> Array:
        """Those of a whole utterance, float32 [frames, mels]."""
        if self.voice_mels is None:
            return self._example(row).features[:, self._features.mel_columns]
        made: Array = np.load(self.voice_mels / f"{row}.npy")
        return made

    def _read_samples(self, row: int, first: int, count: int) -> Array:
        """Samples of an utterance, float32 [count], from the one after `first` others on."""
        import soundfile

        source, file, rate = self._sources[row], self._recordings[row], self._features.sample_rate
        try:
            samples, found = soundfile.read(
                file, count, round(source.offset * rate) + first, dtype="float32", always_2d=True
            )
        except (OSError, soundfile.SoundFileError) as error:
            raise WorkError(f"{file}: cannot be read ({error}); run convert again") from None
        if found != rate or samples.shape != (count, 1):
            raise WorkError(
                f"{file}: {samples.shape[0]:,} samples of {source.id} at {found} Hz in {samples.shape[1]} channel(s); "
                f"{count:,} at {rate} Hz in one were expected, as convert writes them; run extract again"
            )
        waveform: Array = samples[:, 0]
        return waveform


def split_segments(features: Any, mels: int) -> tuple[Any, Any]:
    """Takes features of `SegmentBatches` apart, an array or a tensor: [batch, frames, mels + hop].

    Returns:
      the mels [batch, frames, mels], and the waveform as [batch, frames - 1, hop].
    """
    return features[..., :mels], features[:, :-1, mels:]
