"""Batches of random segments: mels from the dataset's shards, with the waveform from the pool of WAVs, or with
a voice's mels of the same frames; and batches of whole waveforms.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features, prosody_features
from voxline.data.dataset import Dataset
from voxline.data.reader import Example
from voxline.errors import SettingsError, WorkError
from voxline.store.size_limits import load_npy
from voxline.training.batches import Batch, Batches, Record, SupportsRows, padded_length
from voxline.training.task import shorten_list

Array = npt.NDArray[np.float32]


class MelSegmentBatches(Batches):
    """The batches of one split, a segment of the mels of each utterance.

    Where a segment begins follows from the seed, the epoch and the utterance; an utterance that is shorter is followed
    by silence.

    Args:
      segment_frames: frames of a segment.
      options: those of `Batches`.

    Attributes:
      voice_mels: folder of a voice's mels, one file for each row: `voice_mels.use_mels_of_voice`.
    """

    def __init__(self, dataset: Dataset, split: str, segment_frames: int, **options: Any) -> None:
        super().__init__(dataset, split, length_noise=1.0, **options)
        self.voice_mels: Path | None = None
        self._frames[:] = segment_frames  # all of a length, so that chance alone orders them
        self.segment_frames = segment_frames
        self._features = dataset.features
        self.shapes = [(segment_frames, 1)] if self.shapes else []

        # The mels of silence, which follow an utterance that is shorter than a segment.
        self._silence = compute_features(np.zeros(1, np.float32), dataset.features)[0, dataset.features.mel_columns]

    def example(self, row: int) -> Example:
        """An utterance as the dataset has it; `row` counts the utterances of the split that are trained on."""
        return self._example(row)

    def features_for(self, voice: FeatureSettings, row: int, features: Array) -> Array:
        """The features of an utterance as a voice reads them when it is teacher-forced, float32 [frames, bins].

        Args:
          features: of the utterance, as the dataset has them.
        """
        return features

    def _read(self, draws: npt.NDArray[np.int64], epoch: int) -> list[Example]:
        return [self._segment(draw, epoch) for draw in draws.tolist()]

    def _segment(self, draw: int, epoch: int) -> Example:
        raise NotImplementedError

    def _example_of(self, row: int, segment: Array) -> Example:
        record = self._records[row]
        return Example(record.id, record.text, record.speaker, segment, np.zeros(0, np.int32))

    def _first_frame(self, draw: int, epoch: int, frames: int) -> int:
        """First frame of a draw's segment, for an utterance of so many frames."""
        random = np.random.default_rng([self.seed, epoch, draw])
        return int(random.integers(max(frames - self.segment_frames, 0) + 1))

    def _cut(self, mels: Array, first: int) -> Array:
        """A segment of mels, float32 [segment_frames, mels]."""
        segment = np.tile(self._silence, (self.segment_frames, 1)).astype(np.float32)
        present = mels[first : first + self.segment_frames]
        segment[: len(present)] = present
        return segment

    def _recorded_mels(self, row: int) -> Array:
        """Mels of a whole utterance, float32 [frames, mels]."""
        return self._example(row).features[:, self._features.mel_columns]

    def _voice_mels(self, row: int) -> Array:
        """A voice's mels of a whole utterance, with as many frames as the recording's."""
        mels: Array = load_npy(Path(self.voice_mels or "") / f"{row}.npy")
        return mels


class PairBatches(MelSegmentBatches):
    """The features of an example are float32 [segment_frames, 2 · mels]: a voice's mels, and the recording's behind
    them. `split_pairs` takes them apart.
    """

    def _segment(self, draw: int, epoch: int) -> Example:
        row = draw % len(self._records)
        recorded = self._recorded_mels(row)
        first = self._first_frame(draw, epoch, len(recorded))
        pair = [self._cut(mels, first) for mels in (self._voice_mels(row), recorded)]
        return self._example_of(row, np.concatenate(pair, axis=1))


def split_pairs(features: Any, mels: int) -> tuple[Any, Any]:
    """Takes features of `PairBatches` apart, an array or a tensor [batch, frames, 2 · mels].

    Returns:
      the voice's mels and the recording's, [batch, frames, mels] each.
    """
    return features[..., :mels], features[..., mels:]


class SegmentBatches(MelSegmentBatches):
    """Segments of mels with the waveform.

    The features of an example are float32 [segment_frames, mels + hop]: in each frame its mels, and behind them the
    samples from its center to the next one's; the last frame has none, only zeros. `split_segments` takes them apart.
    With `voice_mels`, these mels are a voice's in place of the recordings'.

    Raises:
      SettingsError, WorkError: as `check_speeds` and `RecordedWaveforms`.
    """

    def __init__(self, dataset: Dataset, split: str, segment_frames: int, **options: Any) -> None:
        check_speeds(dataset)
        super().__init__(dataset, split, segment_frames, **options)
        self._waveforms = RecordedWaveforms(dataset, split, [record.id for record in self._records])

    def _segment(self, draw: int, epoch: int) -> Example:
        row = draw % len(self._records)
        hop = self._features.hop_length
        mels = self._mels(row)
        first = self._first_frame(draw, epoch, len(mels))
        frames = min(self.segment_frames, len(mels))

        # Samples from the center of each frame to the next one's: a frame less than the mels have.
        waveform = np.zeros((self.segment_frames, hop), np.float32)
        waveform[: frames - 1] = self._waveforms.read(row, first * hop, (frames - 1) * hop).reshape(frames - 1, hop)
        return self._example_of(row, np.concatenate([self._cut(mels, first), waveform], axis=1))

    def features_for(self, voice: FeatureSettings, row: int, features: Array) -> Array:
        if voice.kind != "mel_and_prosody":
            return features
        samples = self._waveforms.read(row, 0, (len(features) - 1) * self._features.hop_length)
        return np.concatenate([features, prosody_features(samples, voice)], axis=1)

    def _mels(self, row: int) -> Array:
        return self._recorded_mels(row) if self.voice_mels is None else self._voice_mels(row)


def split_segments(features: Any, mels: int) -> tuple[Any, Any]:
    """Takes features of `SegmentBatches` apart, an array or a tensor: [batch, frames, mels + hop].

    Returns:
      the mels [batch, frames, mels], and the waveform as [batch, frames - 1, hop].
    """
    return features[..., :mels], features[:, :-1, mels:]


class WaveformBatches(Batches):
    """The batches of one split, of whole utterances as samples.

    The features of an example are float32 [frames, hop]: the samples of one hop after another, as many as are whole.
    Frames and labels are padded to a length of few (`padded_length`): on CPUs TensorFlow keeps compiled code and
    buffers of each layer for the last thousand shapes that each thread has met.

    With `symbols`, features are float32 [frames, hop + 1]: the number of the symbol that each frame has comes last.

    Args:
      needed_frames: the least of them, of a number of symbols; an utterance with fewer is left out.
      options: those of `Batches`.

    Attributes:
      symbols: the number of each frame's symbol, by rows, float32 [frames, 1] each; None: it is not known.

    Raises:
      SettingsError, WorkError: as `check_speeds` and `RecordedWaveforms`.
    """

    symbols: SupportsRows | None = None

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        *,
        needed_frames: Callable[[int], int] = lambda symbols: 1,
        **options: Any,
    ) -> None:
        check_speeds(dataset)
        self._needed_frames = needed_frames
        super().__init__(dataset, split, **options)
        self.hop = dataset.features.hop_length
        self._waveforms = RecordedWaveforms(dataset, split, [record.id for record in self._records])

    def _find_records(self, dataset: Dataset, split: str) -> Iterator[Record]:
        # The features of extract have a frame more: theirs are centered on the ends of hops.
        for record in super()._find_records(dataset, split):
            needed = max(self._needed_frames(record.labels), 1)
            yield dataclasses.replace(record, frames=record.frames - 1, min_frames=needed)

    def _pad(self, examples: list[Example], buckets: Sequence[tuple[int, int]] = ()) -> Batch:
        frames = padded_length(max(len(example.features) for example in examples))
        labels = padded_length(max(len(example.labels) for example in examples))
        return super()._pad(examples, buckets or [(frames, labels)])

    def _example(self, row: int) -> Example:
        record = self._records[row]
        samples = self._waveforms.read(row, 0, record.frames * self.hop)
        labels = np.array(self._alphabet.encode(record.text), np.int32)
        features = samples.reshape(-1, self.hop)
        if self.symbols is not None:
            features = np.concatenate([features, self.symbols[row]], axis=1)
        return Example(record.id, record.text, record.speaker, features, labels)


def check_speeds(dataset: Dataset) -> None:
    """Refuses a dataset with sped-up copies, whose waveforms are in no WAV.

    Raises:
      SettingsError: naming the setting.
    """
    if dataset.speeds != [1.0]:
        raise SettingsError(
            f"extract.speeds is {dataset.speeds}; samples are learned from recordings as they are: set it to [1.0]"
        )


class RecordedWaveforms:
    """The recordings of some utterances of a split, from the store's WAVs, all of which must be there.

    Raises:
      WorkError: recordings of the dataset are not in its store.
    """

    def __init__(self, dataset: Dataset, split: str, ids: Sequence[str]) -> None:
        self.sample_rate = dataset.features.sample_rate
        rows = {row.id: row for row in dataset.rows() if row.split == split}
        self._sources = [rows[utterance] for utterance in ids]
        self._recordings = dataset.recordings((row.audio_hash for row in self._sources), "train")
        absent = [row.id for row, file in zip(self._sources, self._recordings, strict=True) if not file.is_file()]
        if absent:
            raise WorkError(
                f"train: the recordings of {len(absent):,} of {len(rows):,} utterances of {split} are not in "
                f"{self._recordings[0].parents[1]}: {shorten_list(absent)}. Run convert again with this store"
            )

    def read(self, row: int, first: int, count: int) -> Array:
        """Reads samples of an utterance, float32 [count], from sample `first` on."""
        import soundfile

        # Only the segment's samples are read.
        source = self._sources[row]
        file = self._recordings[row]
        rate = self.sample_rate
        try:
            samples, file_rate = soundfile.read(
                file, count, round(source.offset * rate) + first, dtype="float32", always_2d=True
            )
        except (OSError, soundfile.SoundFileError) as error:
            raise WorkError(f"{file}: cannot be read ({error}); run convert again") from None

        if file_rate != rate or samples.shape != (count, 1):
            raise WorkError(
                f"{file}: {samples.shape[0]:,} samples of {source.id} at {file_rate} Hz in {samples.shape[1]} "
                f"channel(s); {count:,} at {rate} Hz in one were expected, as convert writes them; run extract again"
            )

        waveform: Array = samples[:, 0]

        return waveform
