"""Waveforms as a recognizer takes them: read from files, or checked, scaled and resampled from arrays."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.errors import SettingsError, WorkError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.audio.decode_pool import DecodePool

    Waveform = npt.NDArray[np.float32]
    Audio = Path | str | npt.NDArray[Any]

MIN_SECONDS = 0.1
"""Of a recording that may hold a word; a shorter one is not transcribed."""
SILENCE_PEAK = 1e-4
"""-80 dB below full scale. Below it are digital silence and the dither of 16-bit files, and no speech."""
MAX_AMPLITUDE = 1.5
"""A float sample above this was not scaled to [-1, 1]. Resampling overshoots full scale by far less."""


def read_waveform(
    file: Path,
    sample_rate: int,
    offset: float = 0.0,
    duration: float | None = None,
    decoders: "DecodePool | None" = None,
) -> "Waveform":
    """Reads a recording, or a part of it, as a model takes it: float32 [samples], mono, in [-1, 1].

    Args:
      sample_rate: wanted, in Hz; the recording is resampled to it.
      offset, duration: seconds.
      decoders: that decode it in a process of their own, with their limits, for a file from strangers; None: this
        process does, with a limit on samples alone.

    Raises:
      WorkError: the file is absent, damaged, not audio, or exceeds a limit.
    """
    from voxline.rejects import BadAudioError

    try:
        if decoders:
            return decoders.load_audio(file, sample_rate, offset, duration)
        from voxline.audio.decoding import load_audio  # not at the top: libsndfile is loaded with it

        return load_audio(file, sample_rate, offset, duration)
    except BadAudioError as bad:
        raise WorkError(f"{file}: cannot be transcribed: {bad.detail} ({bad.reason})") from None


def prepare_array(samples: Any, sample_rate: int, model_rate: int) -> "Waveform":
    """An array as a model takes it: checked, scaled and resampled; float32 [samples].

    Args:
      samples: [samples], mono; float in [-1, 1], or int16.
      sample_rate, model_rate: of the array, and of the result, in Hz.

    Raises:
      SettingsError: another type, dtype, shape, range or rate.

    >>> import numpy as np
    >>> prepare_array(np.array([0, 16384, -32768], np.int16), 16_000, 16_000)
    array([ 0. ,  0.5, -1. ], dtype=float32)
    """
    import numpy as np

    from voxline.audio.decoding import resample

    accepted = "accepted: a path, or a numpy array [samples], mono, of floats in [-1, 1] or of int16"
    if not isinstance(samples, np.ndarray):
        raise SettingsError(f"audio is {type(samples).__name__}; {accepted}")
    if samples.ndim != 1:
        hint = "; average its channels first" if samples.ndim == 2 and min(samples.shape) > 1 else ""
        raise SettingsError(f"audio has the shape {samples.shape}{hint}; {accepted}")
    if sample_rate <= 0:
        raise SettingsError(f"sample_rate is {sample_rate}; a number of Hz above 0 is accepted")

    # The full scale of 16 bits is 32,768, so int16 reaches -1 and not quite 1.
    if samples.dtype == np.int16:
        waveform: Waveform = samples.astype(np.float32) / np.float32(1 << 15)
    elif np.issubdtype(samples.dtype, np.floating):
        waveform = samples.astype(np.float32)
    else:
        raise SettingsError(f"audio has the dtype {samples.dtype}; {accepted}")

    if not np.isfinite(waveform).all():
        raise SettingsError(f"audio holds samples that are not finite; {accepted}")
    if len(waveform) and (peak := float(np.abs(waveform).max())) > MAX_AMPLITUDE:
        raise SettingsError(f"audio reaches {peak:g}, so it is not scaled to [-1, 1]; {accepted}")
    # Resampling may overshoot full scale at steep edges.
    return np.clip(resample(waveform, sample_rate, model_rate), -1, 1)


def reason_not_transcribed(seconds: float, peak: float) -> str:
    """Explains why a recognizer does not run its model on a recording; "" if it does.

    Args:
      seconds: length of the recording.
      peak: the largest magnitude of its samples.
    """
    if seconds < MIN_SECONDS:
        return "too short"
    return "no speech" if peak < SILENCE_PEAK else ""
