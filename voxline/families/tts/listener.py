"""What a recognizer's convolutions make of a voice's mels: the perceptual loss of a sharpener.

DeblurGAN compares what an image classifier makes of two images (Kupyn et al. 2018; Johnson et al. 2016, arXiv
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
from voxline.inference.saved_model import read_model_json
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
        about = read_model_json(folder)
        settings = AsrTrainSettings.of(about["settings"]).model
        if not isinstance(settings, DeepSpeech2Settings):
            raise SettingsError(
                f"{SETTING}: {folder} is a recognizer of the kind {settings.kind!r}; 'deepspeech2' is accepted, whose "
                "convolutions a sharpener learns from"
            )
        self.mels, self.features = mels, FeatureSettings.of(about["features"])
        normalization = about["normalization"]
        self._network = DeepSpeech2(
            settings,
            mean=normalization["mean"],
            deviation=normalization["deviation"],
            classes=len(about["alphabet"]) + 1,
            portable=True,
        )
        weights = read_exported_weights(folder)
        if [each.shape for each in weights] != [tuple(each.shape) for each in self._network.weights]:
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
        inputs, wanted = [], []
        for mels, features in pairs:
            around = self._around(len(mels))
            count = min(around.shape[1], len(features))
            inputs.append(np.concatenate([weights[:count] @ mels for weights in around], axis=1))
            wanted.append(features[:count])
        x, y = np.concatenate(inputs).astype(np.float64), np.concatenate(wanted).astype(np.float64)
        x_mean, y_mean = x.mean(0), y.mean(0)
        x, y = x - x_mean, y - y_mean
        matrix = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
        self.explained = float(1 - np.square(y - x @ matrix).sum() / max(np.square(y).sum(), 1e-12))
        self.matrix, self.bias = matrix.astype(np.float32), (y_mean - x_mean @ matrix).astype(np.float32)

    def read(self, mels: Tensor) -> Tensor:
        """The recognizer's features, float32 [batch, other frames, bins], of normalized mels [batch, frames, mels]."""
        around = tf.constant(self._around(mels.shape[1]))
        found = tf.einsum("sjt,btm->bjsm", around, mels)
        return (
            tf.matmul(tf.reshape(found, (-1, found.shape[1], found.shape[2] * found.shape[3])), self.matrix) + self.bias
        )

    def __call__(self, mels: Tensor) -> list[Tensor]:
        """What each convolution puts out, float32 [batch, frames, bins, channels], of mels as `read` takes them."""
        x = self.read(mels)
        frames = tf.fill([tf.shape(x)[0]], x.shape[1])
        x, found = self._network.normalize(x, frames)[..., None], []
        for convolution in self._network.convolutions:
            x, frames = convolution(x, frames)
            found.append(x)
        return found

    def distance(self, made: Tensor, recorded: Tensor) -> Tensor:
        """Mean squared difference of what the convolutions put out, over them all, float32 [batch]."""
        pairs = zip(self(made), self(recorded), strict=True)
        return tf.add_n([tf.reduce_mean(tf.square(one - other), axis=[1, 2, 3]) for one, other in pairs])

    def _around(self, frames: int) -> Array:
        """The weights of the voice's frames in the recognizer's, float32 [shifts, other frames, frames].

        Beyond the ends the first and last frame go on.
        """
        theirs = self.features.hop_length / self.features.sample_rate
        ratio = theirs / (self.mels.hop_length / self.mels.sample_rate)
        places = np.arange(int((frames - 1) / ratio + 1e-9) + 1) * ratio
        weights = np.zeros((len(SHIFTS), len(places), frames), np.float32)
        for number, shift in enumerate(SHIFTS):
            exact = np.clip(places + shift, 0, frames - 1)
            first = np.minimum(exact.astype(int), max(frames - 2, 0))
            rows = np.arange(len(places))
            weights[number, rows, np.minimum(first + 1, frames - 1)] = exact - first
            weights[number, rows, first] += 1 - (exact - first)
        return weights


def fit_listener(listener: Listener, dataset: Dataset, batches: PairBatches, mean: Array, deviation: Array) -> None:
    """Fits a listener's map on recordings of a split.

    Args:
      batches: of the split.
      mean, deviation: that the voice's mels are normalized by, per band.

    Raises:
      WorkError: a recording is not in the store of the dataset.
    """
    rate = listener.features.sample_rate
    chosen = np.unique(np.linspace(0, batches.utterances - 1, UTTERANCES).astype(int)).tolist()
    examples = [batches.example(row) for row in chosen]
    wanted = {one.id for one in examples}
    rows = {row.id: row for row in dataset.rows() if row.id in wanted}
    files = dict(zip(rows, dataset.recordings((row.audio_hash for row in rows.values()), "train"), strict=True))

    def pairs() -> Iterator[tuple[Array, Array]]:
        for one in examples:
            row = rows[one.id]
            samples = read_waveform(files[one.id], rate, row.offset, row.duration)
            mels = one.features[:, dataset.features.mel_columns]
            yield (mels - mean) / deviation, compute_features(samples, listener.features)

    listener.fit(pairs())
