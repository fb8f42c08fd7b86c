"""Converts a recording, or segments of it, to 16-bit mono WAVs, and measures their levels."""

import functools
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voxline.audio.decoding import DecodedAudio, Segment, decode_segments, resample
from voxline.audio.loudness import integrated_loudness
from voxline.audio.wav import read_wav, to_int16, write_wav
from voxline.components.convert.jobs import (
    CLIPPED_FROM,
    ConversionJob,
    ConversionResult,
    Converted,
    JobGroup,
    RejectedRecording,
    Shaping,
    SourceChanged,
)
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

    # The loudest sample limits the gain: a recording with a click stays quieter, and none is clipped.
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

    # Sums of squares by frames of 10 ms: [frames]. The last frame is padded with zeros, so it counts as quieter.
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
CLIPPED_PEAK = 1.1
"""Times full scale above which convert says that samples clip; decoders of MP3 and the like exceed it by less."""
CANCELLED = -0.5
"""Correlation of two channels below which little is left of their mixture."""


def convert_recordings(jobs: JobGroup) -> list[ConversionResult]:
    """Decodes, mixes, resamples, measures and writes the segments of one recording, unless their WAVs exist.

    The recording is decoded once for all of them.

    Raises:
      OSError: a WAV cannot be written.
      MemoryError: the recording needs more memory than this process may have.
    """
    # By the place of a job in the group, as its results come from two sources.
    results: dict[int, ConversionResult] = {}
    waiting = []
    for at, job in enumerate(jobs):
        if result := _measure_existing(job) or _check_source(job):
            results[at] = result
        else:
            waiting.append(at)

    if waiting:
        try:
            results |= _decode_jobs(jobs, waiting)
        except BadAudioError as fault:  # of the whole recording, perhaps after some of its segments
            for at, job in enumerate(jobs):
                if not isinstance(results.get(at), SourceChanged):
                    results[at] = _reject(fault, job)
                    job.wav.unlink(missing_ok=True)

    return [results[at] for at in range(len(jobs))]


def _measure_existing(job: ConversionJob) -> Converted | RejectedRecording | None:
    """The result for a WAV that exists. One that was shaped does not say what was done to it, so it is made again if no
    log does either.
    """
    if job.shaping.key_values() and not job.measured:
        return None
    try:
        samples, _ = read_wav(job.wav)
    except BadAudioError:
        return None

    # A log has the measurements, so only prosody is missing. The hash of the samples shows that they are of this WAV.
    if job.measured and json.loads(job.measured).get("pcm_hash") != _md5(samples):
        return None  # it has changed since: decoded again
    if job.measured:
        return Converted(len(samples), json.loads(job.measured) | _measure_prosody(samples, job), decoded=False)

    # The WAV was written by a run whose log is gone, or with another `silence_db`.
    measured = measure_level(samples, job.sample_rate, job.silence_db)
    return _reject_silence(measured, job) or Converted(
        len(samples), measured | _measure_prosody(samples, job), decoded=False
    )


def _check_source(job: ConversionJob) -> SourceChanged | None:
    changed = _source_change(job)
    return SourceChanged(changed) if changed else None


def _decode_jobs(jobs: JobGroup, waiting: list[int]) -> dict[int, ConversionResult]:
    """The results of the jobs at some positions.

    Raises:
      BadAudioError: none of the recording can be trusted.
    """
    # All jobs of a group have the same source, rate and limits; only the segments differ.
    first = jobs[waiting[0]]
    segments = [Segment(jobs[at].offset, jobs[at].duration, jobs[at].channel) for at in waiting]

    results: dict[int, ConversionResult] = {}
    for index, decoded in decode_segments(first.source, segments, first.sample_rate, first.max_seconds, first.raw):
        at = waiting[index]
        job = jobs[at]
        results[at] = _reject(decoded, job) if isinstance(decoded, BadAudioError) else _write(decoded, job)
    return results


def _write(decoded: DecodedAudio, job: ConversionJob) -> Converted | RejectedRecording:
    """Writes the WAV of decoded samples, unless they are silent."""
    shaped = bool(job.shaping.key_values())
    samples = to_int16(decoded.samples)

    # The MD5 in a FLAC is that of the samples; of shaped ones it is needed only later.
    measured = measure_level(samples, job.sample_rate, job.silence_db, "not needed" if shaped else decoded.md5)
    correlation = decoded.channel_correlation
    if silent := _reject_silence(measured, job):
        if correlation is not None and correlation < CANCELLED:
            why = "; its two channels cancel each other when they are mixed: name one of them in a column channel"
            return RejectedRecording(silent.reason, silent.detail + why)
        return silent

    # Silence is judged before shaping, which would raise the noise of an empty recording to the level of speech.
    done: dict[str, float | str] = {"decoder_notes": decoded.notes} if decoded.notes else {}
    if correlation is not None:
        done["channel_correlation"] = round(correlation, 3)
    if shaped:
        changed, changes = apply_shaping(decoded.samples, job.sample_rate, job.shaping)
        samples = to_int16(changed)
        measured = measure_level(samples, job.sample_rate, job.silence_db) | changes
    if decoded.peak > CLIPPED_PEAK and measured["clipped_share"]:
        done[CLIPPED_FROM] = round(decoded.peak, 2)

    write_wav(job.wav, samples, job.sample_rate, durable=False)
    return Converted(len(samples), measured | done | _measure_prosody(samples, job))


def _measure_prosody(samples: npt.NDArray[np.int16], job: ConversionJob) -> dict[str, float | str]:
    if not job.prosody:
        return {}
    from voxline.audio.prosody import summarize_prosody

    return dict(summarize_prosody(samples.astype(np.float32) / np.float32(FULL_SCALE), job.sample_rate))


def _reject(fault: BadAudioError, job: ConversionJob) -> RejectedRecording:
    if fault.reason is Reason.OUT_OF_MEMORY:
        raise MemoryError(fault.detail)  # perhaps the machine's fault, so nothing is said about the recording
    return RejectedRecording(fault.reason, fault.detail, job.max_seconds if fault.reason is Reason.TOO_LONG else None)


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

    # Energies by frames of 25 ms: [frames], in units of int16 squared. The tail is shorter than a frame and judged
    # alone.
    scaled = samples.astype(np.float32)
    frame = max(1, round(FRAME_SECONDS * sample_rate))
    whole = len(samples) // frame * frame
    energies = np.einsum("ij,ij->i", scaled[:whole].reshape(-1, frame), scaled[:whole].reshape(-1, frame))
    tail = scaled[whole:]
    tail_energy = float(tail @ tail)
    powers = energies / frame
    if len(tail):
        powers = np.append(powers, tail_energy / len(tail))

    # Counting is skipped for most recordings, of which no sample is at full scale.
    lowest = int(samples.min())
    highest = int(samples.max())
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


def _source_change(job: ConversionJob) -> str:
    """Describes how the source differs from the manifest; empty if it does not."""
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
