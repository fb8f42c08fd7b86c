"""Perceptual loss of a sharpener: distances between outputs of a recognizer's convolutions.

DeblurGAN compares two images by the layers of an image classifier (Kupyn et al. 2018; Johnson et al. 2016, arXiv
1603.08155, equation 2). Here a recognizer takes its place. It has features of its own, with other windows, hops and
bands, so a linear map reads them off the voice's mels m, with p = j · hop / hop of the voice:

  x[j] = [m(p - 1), m(p), m(p + 1)] W + b,  m between two frames on the line between them

W and b are fitted by ridge regression on recordings of the training split, of which both features can be computed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from voxline.audio.feature_settings import FeatureSettings
from voxline.audio.features import compute_features
from voxline.data.dataset import Dataset
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.networks.deepspeech2 import DeepSpeech2
from voxline.families.asr.networks.settings import DeepSpeech2Settings
from voxline.families.asr.settings import AsrTrainSettings
from voxline.inference.saved_model import read_model_info
from voxline.inference.waveforms import read_waveform
from voxline.training.layers import Tensor
from voxline.training.segments import PairBatches
from voxline.training.warm_start import read_exported_weights

Array = npt.NDArray[np.float32]
SETTING = "train.sharpen.recognizer"
UTTERANCES = 64
"""Recordings that the map is fitted on, at most; evenly spaced in the training split."""
SHIFTS = (-1, 0, 1)
"""Frames of the voice around a frame of the recognizer."""
RIDGE = 1e-3
"""Penalty of W, as a share of the number of frames; the voice's mels are normalized."""


class Listener:
    """The convolutions of a recognizer, on a voice's mels.

    Args:
      folder: of the exported recognizer.
      mels: how the voice's mels are computed.

    Attributes:
      explained: the share of the variance of the recognizer's features that the map explains, after `fit`.

    Raises:
      SettingsError: the recognizer is of another kind than Deep Speech 2.
      WorkError: it is damaged.
    """

    def __init__(self, folder: Path, mels: FeatureSettings) -> None:
        # The recognizer's convolutions without its training: settings, normalization and weights.
        info = read_model_info(folder)
        settings = AsrTrainSettings.of(info.settings).model
        if not isinstance(settings, DeepSpeech2Settings):
            raise SettingsError(
                f"{SETTING}: {folder} is a recognizer of the kind {settings.kind!r}; 'deepspeech2' is accepted, whose "
                "convolutions a sharpener learns from"
            )

        self.mels = mels
        self.features = FeatureSettings.of(info.features)
        normalization = info.normalization
        if normalization is None:
            raise WorkError(f"{folder}: model.json has no normalization; train the recognizer again")
        self._network = DeepSpeech2(
            settings,
            mean=normalization.mean,
            deviation=normalization.deviation,
            classes=len(info.alphabet) + 1,
            portable=True,
        )
        weights = read_exported_weights(folder)
        if [weight.shape for weight in weights] != [tuple(weight.shape) for weight in self._network.weights]:
            raise WorkError(f"{folder}: has other weights than its settings say; train it again")

        for variable, value in zip(self._network.weights, weights, strict=True):
            variable.assign(value)

        self.matrix: Array | None = None
        self.bias: Array | None = None
        self.explained = 0.0

    def fit(self, pairs: Iterable[tuple[Array, Array]]) -> None:
        """Fits the map.

        Args:
          pairs: of each recording the voice's mels, normalized, [frames, mels], and the recognizer's features, [other
            frames, bins].
        """
        inputs = []
        targets = []
        for mels, features in pairs:
            # x[j]: mels of the frames around j, side by side, [other frames, shifts · mels].
            around = self._around(len(mels))
            count = min(around.shape[1], len(features))
            inputs.append(np.concatenate([weights[:count] @ mels for weights in around], axis=1))
            targets.append(features[:count])

        # Ridge regression on centered values: W = (XᵀX + λ n I)⁻¹ Xᵀ Y.
        x = np.concatenate(inputs).astype(np.float64)
        y = np.concatenate(targets).astype(np.float64)
        x_mean = x.mean(0)
        y_mean = y.mean(0)
        x = x - x_mean
        y = y - y_mean
        matrix = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
        self.explained = float(1 - np.square(y - x @ matrix).sum() / max(np.square(y).sum(), 1e-12))
        self.matrix = matrix.astype(np.float32)
        self.bias = (y_mean - x_mean @ matrix).astype(np.float32)

    def read(self, mels: Tensor) -> Tensor:
        """The recognizer's features, float32 [batch, other frames, bins], of normalized mels [batch, frames, mels]."""

        # [shifts, other, frames] · [batch, frames, mels] → [batch, other, shifts, mels]
        around = tf.constant(self._around(mels.shape[1]))
        frames = tf.einsum("sjt,btm->bjsm", around, mels)
        return (
            tf.matmul(tf.reshape(frames, (-1, frames.shape[1], frames.shape[2] * frames.shape[3])), self.matrix)
            + self.bias
        )

    def __call__(self, mels: Tensor) -> list[Tensor]:
        """Outputs of each convolution, float32 [batch, frames, bins, channels], for mels as `read` takes them."""

        # [batch, other frames, bins, 1] → each convolution's output
        x = self.read(mels)
        frames = tf.fill([tf.shape(x)[0]], x.shape[1])
        x = self._network.normalize(x, frames)[..., None]
        outputs = []
        for convolution in self._network.convolutions:
            x, frames = convolution(x, frames)
            outputs.append(x)
        return outputs

    def distance(self, sharpened: Tensor, recorded: Tensor) -> Tensor:
        """Mean squared difference of the outputs of all convolutions, summed, float32 [batch]."""
        pairs = zip(self(sharpened), self(recorded), strict=True)
        return tf.add_n([tf.reduce_mean(tf.square(left - right), axis=[1, 2, 3]) for left, right in pairs])

    def _around(self, frames: int) -> Array:
        """The weights of the voice's frames in the recognizer's, float32 [shifts, other frames, frames].

        Beyond the ends the first and last frame go on.
        """

        # Position of the recognizer's frames among the voice's, in frames of the voice.
        hop_seconds = self.features.hop_length / self.features.sample_rate
        ratio = hop_seconds / (self.mels.hop_length / self.mels.sample_rate)
        positions = np.arange(int((frames - 1) / ratio + 1e-9) + 1) * ratio
        weights = np.zeros((len(SHIFTS), len(positions), frames), np.float32)
        for number, shift in enumerate(SHIFTS):
            # Linear interpolation between the frames before and after.
            position = np.clip(positions + shift, 0, frames - 1)
            first = np.minimum(position.astype(int), max(frames - 2, 0))
            rows = np.arange(len(positions))
            weights[number, rows, np.minimum(first + 1, frames - 1)] = position - first
            weights[number, rows, first] += 1 - (position - first)

        return weights


def fit_listener(listener: Listener, dataset: Dataset, batches: PairBatches, mean: Array, deviation: Array) -> None:
    """Fits a listener's map on recordings of a split.

    Args:
      batches: of the split.
      mean, deviation: that the voice's mels are normalized by, per band.

    Raises:
      WorkError: a recording is not in the store of the dataset.
    """

    # Some recordings, evenly spaced over the split.
    rate = listener.features.sample_rate
    rows_to_fit = np.unique(np.linspace(0, batches.utterances - 1, UTTERANCES).astype(int)).tolist()
    examples = [batches.example(row) for row in rows_to_fit]
    ids = {example.id for example in examples}
    rows = {row.id: row for row in dataset.rows() if row.id in ids}
    files = dict(zip(rows, dataset.recordings((row.audio_hash for row in rows.values()), "train"), strict=True))

    def pairs() -> Iterator[tuple[Array, Array]]:
        for example in examples:
            row = rows[example.id]
            samples = read_waveform(files[example.id], rate, row.offset, row.duration)
            mels = example.features[:, dataset.features.mel_columns]
            yield (mels - mean) / deviation, compute_features(samples, listener.features)

    listener.fit(pairs())
