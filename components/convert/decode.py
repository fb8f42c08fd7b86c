"""Recordings that nobody has listened to are converted; what became of each is written down in the pool's log."""

import heapq
import os
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from voxline.components.convert.jobs import ConversionJob, Converted, RejectedRecording, SourceChanged
from voxline.components.convert.manifest_scan import ManifestScan
from voxline.components.convert.settings import PROCESSES, ConvertSettings
from voxline.components.convert.transcript import check_length, normalize_transcript
from voxline.components.convert.wav_pool import WavPool
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.progress import Progress
from voxline.rejects import Reason, Reject
from voxline.store.hashing import DIGEST_BYTES, DigestMap
from voxline.store.step_cache import StepOutput
from voxline.text.alphabet import Alphabet

if TYPE_CHECKING:
    from voxline.components.convert.process_pool import WorkerCrashed


CONVERT_RECORDING = "voxline.components.convert.recording:convert_recording"
"""By its name: who only waits for it imports nothing of what reads audio."""

MAX_EXAMPLES = 3
"""Recordings that changed, of which a message tells."""


def decode_new(
    incoming: ManifestScan, pool: WavPool, settings: ConvertSettings, work: StepOutput
) -> dict[str, RejectedRecording]:
    """Converts what is to be converted, each recording once.

    Returns:
      Those that ended the process which read them, by their WAV's name. They are in no log: what ended the process may
      have been the machine, so a later run may try again.

    Raises:
      WorkError: a recording is no longer what the manifest says; a WAV cannot be written.
    """
    work.counts["decoded"] = 0
    todo = _lines_to_decode(incoming, pool, settings) if incoming.unheard else array("Q")
    if not todo:
        return {}
    pool.sweep()
    listening = _Decoding(incoming, pool, settings, work)
    try:
        listening.all(todo)
        # Once for all WAVs, before anything says that they are there: to wait for the disk at each one costs
        # more than all decoding where others write too (10 ms and 2 ms).
        os.sync()
    except OSError as error:
        raise WorkError(
            f"convert: cannot write to {pool.folder}: {error.strerror or error}; make room or mend the permissions, "
            "and start again: what is converted stays"
        ) from error
    if listening.stale:
        # Not a reject: the recording may be fine, it is the manifest that is out of date, in who knows what else.
        raise WorkError(
            f"convert: {listening.stale:,} recordings changed after they were ingested; run ingest again, then convert "
            f"(what is converted stays): {'; '.join(listening.shown)}" + "; …" * (listening.stale > MAX_EXAMPLES)
        )
    work.counts["decoded"] = listening.decoded
    return listening.lost


def _lines_to_decode(incoming: ManifestScan, pool: WavPool, settings: ConvertSettings) -> "array[int]":
    """At which byte the lines stand whose recordings are to be converted, each recording once.

    What costs nothing to find out comes first: nobody listens to a recording that has no transcript.
    """
    alphabet = Alphabet.named(settings.alphabet)
    todo, names = array("Q"), DigestMap(0)
    for at, utterance in zip(incoming.unheard, incoming.unheard_utterances(incoming.unheard), strict=True):
        if isinstance(normalize_transcript(utterance, settings, alphabet), Reject):
            continue
        name = bytes.fromhex(pool.name(utterance))
        if not check_length(utterance, utterance.duration, settings) and names.find(name) is None:
            names.put(name)
            todo.append(at)
    return todo


class _Decoding:
    """What becomes of the recordings, while they are converted.

    Attributes:
      decoded: how many were.
      stale: how many are not what the manifest says, and `shown` of them, in words.
    """

    def __init__(self, incoming: ManifestScan, pool: WavPool, settings: ConvertSettings, work: StepOutput) -> None:
        self._incoming, self._pool, self._settings, self._work = incoming, pool, settings, work
        self._names = bytearray()
        self.decoded, self.stale = 0, 0
        self.shown: list[str] = []
        self.lost: dict[str, RejectedRecording] = {}

    def all(self, todo: "array[int]") -> None:
        from voxline.components.convert.process_pool import WorkerCrashed

        pool, progress = self._pool, Progress("recordings", total=len(todo))
        with pool.log(self._work.key) as log, pool.sending(log) as sent:
            for index, result in self._results(self._jobs(todo)):
                progress.advance()
                name = self._names[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES].hex()
                if isinstance(result, SourceChanged):
                    self.stale += 1
                    self.shown = heapq.nsmallest(MAX_EXAMPLES, [*self.shown, result.detail])
                elif isinstance(result, WorkerCrashed):
                    self.lost[name] = RejectedRecording(Reason.UNREADABLE, result.detail)
                else:
                    self.decoded += isinstance(result, RejectedRecording) or result.decoded
                    samples = None if isinstance(result, RejectedRecording) else result.samples
                    pool.outcomes.add(log.path, log.add(name, result), name, samples)
                    sent.add(pool.path(name), result)

    def _results(
        self, jobs: Iterator[ConversionJob]
    ) -> "Iterator[tuple[int, Converted | RejectedRecording | SourceChanged | WorkerCrashed]]":
        if self._settings.runner == PROCESSES:
            from voxline.components.convert.process_pool import FunctionName, map_in_processes

            convert: FunctionName[ConversionJob, Converted | RejectedRecording | SourceChanged] = FunctionName(
                CONVERT_RECORDING
            )
            return map_in_processes(convert, jobs, self._settings.workers, self._settings.decode_seconds)
        from voxline.components.convert.beam import convert_jobs

        return convert_jobs(jobs, self._settings, self._pool.folder, self._work.folder / "unfinished")

    def _jobs(self, todo: "array[int]") -> Iterator[ConversionJob]:
        for utterance in self._incoming.unheard_utterances(todo):
            name = self._pool.name(utterance)
            self._names += bytes.fromhex(name)
            yield self._job(utterance, name)

    def _job(self, utterance: Utterance, name: str) -> ConversionJob:
        return ConversionJob(
            source=utterance.audio_filepath,
            audio_hash=utterance.audio_hash,
            offset=utterance.offset,
            duration=utterance.duration or None,
            wav=self._pool.path(name),
            sample_rate=self._settings.sample_rate,
            silence_db=self._settings.silence_db,
            shaping=self._settings.shaping,
        )
