"""Converts one recording to a 16-bit mono WAV, and measures its level."""

import functools
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import decode_audio, resample, to_mono
from voxline.audio.loudness import integrated_loudness
from voxline.audio.wav import read_wav, to_int16, write_wav
from voxline.components.convert.jobs import ConversionJob, Converted, RejectedRecording, Shaping, SourceChanged
from voxline.rejects import BadAudioError, Reason
from voxline.store.hashing import hash_file

SHAPING_FRAME_SECONDS = 0.01
PEAK_DB = -1.0
"""dB of full scale that no sample exceeds after loudness normalization. The 1 dB leaves room for inter-sample peaks."""


def apply_shaping(
    samples: npt.NDArray[Any], sample_rate: int, shaping: Shaping
) -> tuple[npt.NDArray[Any], dict[str, float | str]]:
    """Trims a recording, then normalizes its loudness. The recording must not be silent.

    Args:
      samples: int16 or float32 [samples].

    Returns:
      The samples, and what was done: trimmed_seconds if trimmed; gain_db and the new loudness_lufs if normalized.
    """
    done: dict[str, float | str] = {}
    if shaping.trim_db:
        first, last = trim_range(samples, sample_rate, shaping.trim_db, shaping.trim_keep_seconds)
        done["trimmed_seconds"] = round((len(samples) - (last - first)) / sample_rate, 4)
        samples = samples[first:last]
    if shaping.loudness_lufs is not None:
        scaled = resample(samples, sample_rate, sample_rate)  # float32, whatever it was
        before = integrated_loudness(scaled, sample_rate)
        room = PEAK_DB - 20 * math.log10(float(np.abs(scaled).max()))
        gain = min(shaping.loudness_lufs - before, room)
        samples = scaled * np.float32(10 ** (gain / 20))
        done |= {"gain_db": round(gain, 2), "loudness_lufs": round(before + gain, 2)}
    return samples, done


def trim_range(samples: npt.NDArray[Any], sample_rate: int, trim_db: float, keep_seconds: float) -> tuple[int, int]:
    """The range of samples to keep: from the first to the last sound, with up to `keep_seconds` around them.

    Silence is more than `trim_db` below the loudest 10 ms (RMS). The threshold is relative because speech in a
    quiet recording is quiet too. 10 ms, because a click of one sample is not speech, and a "t" is hardly longer.

    >>> take = np.concatenate([np.zeros(8000), np.tile([0.5, -0.5], 4000), np.zeros(4000)]).astype(np.float32)
    >>> trim_range(take, 16_000, 40, 0.05)
    (7200, 16800)
    """
    frame = max(1, round(SHAPING_FRAME_SECONDS * sample_rate))
    frames = -(-len(samples) // frame)
    padded = np.zeros(frames * frame, np.float64)
    padded[: len(samples)] = samples
    powers = (padded.reshape(frames, frame) ** 2).sum(axis=1)
    loud = np.flatnonzero(powers > powers.max() * 10 ** (-trim_db / 10))
    keep = round(keep_seconds * sample_rate)
    return max(0, int(loud[0]) * frame - keep), min(len(samples), (int(loud[-1]) + 1) * frame + keep)


FRAME_SECONDS = 0.025
FULL_SCALE = 32768


def convert_recording(job: ConversionJob) -> Converted | RejectedRecording | SourceChanged:
    """Decodes, mixes, resamples, measures and writes one recording, unless its WAV exists.

    Raises:
      OSError: the WAV cannot be written.
    """
    if job.shaping.key_values():
        return _convert_shaped(job)  # from the source: an existing WAV does not say what was done to it
    try:
        samples, md5, decoded = read_wav(job.wav)[0], "", False
    except BadAudioError:
        if changed := _source_change(job):
            return SourceChanged(changed)
        try:
            (mixed, md5), decoded = _decode_job(job), True
        except BadAudioError as error:
            return RejectedRecording(error.reason, error.detail)
        samples = to_int16(mixed)
    measured = measure_level(samples, job.sample_rate, job.silence_db, md5)
    if silent := _reject_silence(measured, job):
        return silent
    if decoded:
        write_wav(job.wav, samples, job.sample_rate, durable=False)
    return Converted(len(samples), measured, decoded)


def _convert_shaped(job: ConversionJob) -> Converted | RejectedRecording | SourceChanged:
    """Converts a recording with shaping; silence is rejected before."""
    if changed := _source_change(job):
        return SourceChanged(changed)
    try:
        mixed, _ = _decode_job(job)
    except BadAudioError as error:
        return RejectedRecording(error.reason, error.detail)
    if silent := _reject_silence(measure_level(to_int16(mixed), job.sample_rate, job.silence_db, "not needed"), job):
        return silent
    shaped, done = apply_shaping(mixed, job.sample_rate, job.shaping)
    samples = to_int16(shaped)
    write_wav(job.wav, samples, job.sample_rate, durable=False)
    return Converted(len(samples), measure_level(samples, job.sample_rate, job.silence_db) | done)


def _reject_silence(measured: dict[str, float | str], job: ConversionJob) -> RejectedRecording | None:
    if measured["silence_share"] != 1:
        return None
    return RejectedRecording(
        Reason.SILENT, f"peak {measured['peak_db']} dB, and no 25 ms of it reach {job.silence_db:g} dB"
    )


def measure_level(
    samples: npt.NDArray[np.int16], sample_rate: int, silence_db: float, md5: str = ""
) -> dict[str, float | str]:
    """Level and silence of a recording.

    Args:
      samples: int16 [samples].
      sample_rate: Hz.
      silence_db: dB of full scale; 25 ms with a lower level (RMS) count as silence.
      md5: of the samples, if known.

    Returns:
      peak_db, rms_db: dB of full scale, -120 for digital silence.
      clipped_share: share of samples at full scale.
      silence_share: share of frames of 25 ms below silence_db.
      pcm_hash: MD5 of the samples. A FLAC file states it, and decoding has verified it.

    >>> measured = measure_level(np.array([16384, -16384] * 800, np.int16), 16_000, -60)
    >>> measured["peak_db"], measured["rms_db"], measured["clipped_share"], measured["silence_share"]
    (-6.02, -6.02, 0.0, 0.0)
    """
    scaled = samples.astype(np.float32)
    frame = max(1, round(FRAME_SECONDS * sample_rate))
    whole = len(samples) // frame * frame
    energies = np.einsum("ij,ij->i", scaled[:whole].reshape(-1, frame), scaled[:whole].reshape(-1, frame))
    tail = scaled[whole:]
    tail_energy = float(tail @ tail)
    powers = energies / frame
    if len(tail):
        powers = np.append(powers, tail_energy / len(tail))
    lowest, highest = int(samples.min()), int(samples.max())
    clipped = 0
    if lowest == -FULL_SCALE or highest == FULL_SCALE - 1:
        clipped = int(np.count_nonzero((samples == -FULL_SCALE) | (samples == FULL_SCALE - 1)))
    silent = int(np.count_nonzero(powers < FULL_SCALE**2 * 10 ** (silence_db / 10)))
    power = (float(energies.sum(dtype=np.float64)) + tail_energy) / len(samples)
    return {
        "peak_db": _decibels(max(-lowest, highest) ** 2),
        "rms_db": _decibels(power),
        "clipped_share": round(clipped / len(samples), 6),
        "silence_share": round(silent / len(powers), 4) if silent < len(powers) else 1,
        "pcm_hash": md5 or _md5(samples),
    }


def _md5(samples: npt.NDArray[np.int16]) -> str:
    return hashlib.md5(np.ascontiguousarray(samples, "<i2").data, usedforsecurity=False).hexdigest()


def _decibels(power: float) -> float:
    return round(10 * math.log10(max(power / FULL_SCALE**2, 1e-12)), 2)


def _decode_job(job: ConversionJob) -> tuple[npt.NDArray[Any], str]:
    """The samples at the job's rate, integers or float32, and their MD5 if the file states it."""
    recording = decode_audio(job.source, job.offset, job.duration)
    samples = to_mono(recording.samples)
    if recording.sample_rate != job.sample_rate:  # else 16-bit samples pass bit by bit
        samples = resample(samples, recording.sample_rate, job.sample_rate)
    if not len(samples):
        raise BadAudioError(Reason.EMPTY_AUDIO, f"nothing is left of {len(recording.samples)} samples at the new rate")
    as_in_file = recording.samples.shape[1] == 1 and recording.sample_rate == job.sample_rate
    return samples, recording.md5 if as_in_file else ""


def _source_change(job: ConversionJob) -> str:
    """How the source differs from what the manifest says; empty if it does not."""
    try:
        status = Path(job.source).stat()
        current = _cached_hash(job.source, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except OSError as error:
        return f"{job.source}: {error.strerror}"
    return "" if current == job.audio_hash else f"{job.source}: its content has changed"


@functools.lru_cache(maxsize=64)
def _cached_hash(source: str, *_state: int) -> str:
    """Hashes a long recording once for all its segments, as long as its size and times do not change."""
    return hash_file(Path(source))
