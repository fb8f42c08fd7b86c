"""Mel cepstral distortion: the difference in timbre of two recordings in decibels, independent of pace and level.

  MCD = 10 / ln 10 · sqrt(2 · Σ_{d=1..D} (c_d - c'_d)²), the mean over the frames that DTW pairs
  c_d = 2 / K · Σ_{k=0..K-1} x_k · cos(π d (k + ½) / K), x the natural logarithm of magnitude in K mel bands

(Kubichek 1993, "Mel-cepstral distance measure for objective speech quality assessment"; D = 13, and DTW finds
the path of least MCD, as Skerry-Ryan et al. 2018.) With this scale MCD is the root mean square difference of
the two log mel spectra in dB, without level (c_0) and without detail above c_D. Other cepstra (SPTK,
WORLD) give other numbers: MCD compares models of one dataset, not of different papers.
"""

from typing import TYPE_CHECKING

from voxline.audio.feature_settings import FeatureSettings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.audio.dtw import DtwResult

    Array = npt.NDArray[np.float32]


def mel_cepstra(mels: "Array", features: FeatureSettings, count: int) -> "Array":
    """c_1 to c_count of each frame, float [frames, count]; at most as many as there are mel bands less one."""
    from scipy.fft import dct

    # c_0 is the level, which the distortion leaves out.
    cepstra: Array = dct(log_magnitude(mels, features), type=2, axis=1)[:, 1 : count + 1] / mels.shape[1]
    return cepstra


def log_magnitude(mels: "Array", features: FeatureSettings) -> "Array":
    """Natural logarithm of magnitude, from mels in the units of the features, [frames, mels]."""
    import numpy as np

    # Tacotron's mels are decibels scaled to [0, 1]: back to dB, then to natural logarithms.
    if features.kind == "mel_and_linear":
        decibels = np.clip(mels, 0, 1) * -features.floor_db + features.floor_db + features.reference_db
        magnitude: Array = decibels * np.float32(np.log(10) / 20)
        return magnitude

    # ln(power) / 2 = ln(magnitude)
    return mels if features.uses_magnitude else mels * np.float32(0.5)


def mel_cepstral_distortion(cepstra: "Array", other: "Array") -> "DtwResult":
    """MCD of two recordings by their cepstra, [frames, cepstra] each; `distance` is in dB."""
    import numpy as np
    from scipy.spatial.distance import cdist

    from voxline.audio.dtw import align_by_cost

    # [frames, other frames]
    # The factor turns a distance of natural logarithms into dB.
    return align_by_cost(cdist(cepstra, other, "euclidean") * (10 * np.sqrt(2) / np.log(10)))
