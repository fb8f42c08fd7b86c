"""What convert writes: the manifest and the rejects, line by line in the order of the manifest that came in.

A line that came in before is taken over as it was written then. All others are made of the transcript, and of what is
known of the recording.
"""

import json
from collections import Counter
from pathlib import Path
from typing import IO, NamedTuple

from voxline.components.convert.decode_log import DecodedRecording
from voxline.components.convert.jobs import RejectedRecording
from voxline.components.convert.line_cache import (
    HAS_WAV,
    IN_REJECTS,
    NEEDS_SOURCE,
    NO_WAV,
    CachedLine,
    CacheWriter,
    LineCache,
    open_cache_writer,
)
from voxline.components.convert.manifest_scan import NOT_DECODED, ManifestScan, log_location
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.transcript import check_length, converted_utterance, normalize_transcript
from voxline.components.convert.wav_pool import WavPool
from voxline.data.fingerprints import write_fingerprint
from voxline.data.manifest import (
    MANIFEST_FILE,
    REJECTS_FILE,
    ManifestEncoder,
    Utterance,
    check_reject_share,
    encode_reject,
)
from voxline.progress import print_status
from voxline.rejects import Reason, Reject
from voxline.store.files import atomic_write
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, hash_digest, hash_file
from voxline.store.step_cache import StepOutput
from voxline.text.alphabet import Alphabet


class OutputLine(NamedTuple):
    """What becomes of an utterance.

    Attributes:
      line: of the manifest, or of the rejects.
      reason: of a reject.
      kind: see `CachedLine`; None: it holds for this run alone.
      digest: of the converted utterance.
      wav, samples: the digest that names the WAV, and how long it is.
    """

    line: bytes
    reason: str = ""
    kind: int | None = HAS_WAV
    digest: bytes = NO_WAV
    wav: bytes = NO_WAV
    samples: int = 0


class OutputBuilder:
    """Makes the lines of utterances that did not come in before, or not so.

    Args:
      folder: of the manifest that is written.
      lost: see `listen`.
    """

    def __init__(
        self,
        folder: Path,
        incoming: ManifestScan,
        pool: WavPool,
        settings: ConvertSettings,
        lost: dict[str, RejectedRecording],
    ) -> None:
        self._incoming, self._pool, self._settings, self._lost = incoming, pool, settings, lost
        self._alphabet = Alphabet.named(settings.alphabet)
        self._line_of = ManifestEncoder(folder)

    def __call__(self, number: int, utterance: Utterance) -> OutputLine:
        """What becomes of the utterance in a line of some number."""
        if number in self._incoming.missing:
            detail = f"{utterance.audio_filepath} is not there"
            return _reject_output(Reject(utterance.id, Reason.MISSING_FILE, detail), None)
        found = normalize_transcript(utterance, self._settings, self._alphabet)
        if isinstance(found, Reject):
            return _reject_output(found, NEEDS_SOURCE)
        if fault := check_length(utterance, utterance.duration, self._settings):
            return _reject_output(fault, NEEDS_SOURCE)
        outcome = self._outcome(self._incoming.known[number], utterance)
        if isinstance(outcome, RejectedRecording):
            # What ended its process may have been the machine, so it is in no log, and a later run may try again.
            again = None if outcome in self._lost.values() else 0
            return _reject_output(Reject(utterance.id, outcome.reason, outcome.detail), again)
        name, samples, measured = outcome
        duration, wav = samples / self._settings.sample_rate, bytes.fromhex(name)
        if fault := check_length(utterance, duration, self._settings):
            return _reject_output(fault, HAS_WAV, wav, samples)
        converted = converted_utterance(utterance, found, self._pool.place(name), name, duration)
        return OutputLine(self._line_of(converted, measured).encode(), "", HAS_WAV, converted.digest(), wav, samples)

    def _outcome(self, known: int, utterance: Utterance) -> DecodedRecording | RejectedRecording:
        if known != NOT_DECODED:
            return self._pool.outcomes.at(*log_location(known))
        name = self._pool.name(utterance)
        if name in self._lost:
            return self._lost[name]
        place = self._pool.outcomes.place(name)
        assert place is not None  # noqa: S101 -- it was listened to
        return self._pool.outcomes.at(*place[:2])


def write_output(
    incoming: ManifestScan,
    earlier: LineCache,
    making: OutputBuilder,
    settings: ConvertSettings,
    work: StepOutput,
    store: Path | str,
) -> None:
    """Writes what becomes of each line, and keeps for the next conversion where.

    Raises:
      WorkError: too many rejects; the manifest changed meanwhile.
    """
    manifest, rejects, found = work.folder / MANIFEST_FILE, work.folder / REJECTS_FILE, Fingerprint()
    with open_cache_writer(earlier) as entries:
        with atomic_write(manifest) as out, atomic_write(rejects) as left_out:
            writing = _OutputWriter(out, left_out, entries, found)
            for number, (at, line) in enumerate(incoming.lines()):
                known = incoming.known[number]
                if known >= 0:
                    entry = earlier.entry(known)
                    writing.take_over(entry, earlier.line(entry))
                    continue
                made = making(number, incoming.utterance(at, line))
                digest = incoming.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
                writing.add(line, bytes(digest), made, named=incoming.names_content(at))
            incoming.check()
        total = len(incoming.known)
        work.outputs = {"manifest": MANIFEST_FILE, "rejects": REJECTS_FILE}
        work.counts["utterances"], work.counts["rejects"] = writing.converted, total - writing.converted
        check_reject_share(total - writing.converted, total, settings.max_reject_share, "convert", rejects)
        write_fingerprint(hash_file(manifest), store, found.name())
        entries.finish(store, work.folder, incoming=incoming.content, fingerprint=incoming.fingerprint, of=total)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in writing.reasons.most_common())
    print_status(
        f"convert: {writing.converted:,} of {total:,} utterances, {work.counts['decoded']:,} recordings decoded"
        + (f"; rejected: {reasons}" if reasons else "")
    )


class _OutputWriter:
    """The files that are written, line by line.

    Attributes:
      converted: how many lines the manifest has.
      reasons: of the rejects.
    """

    def __init__(self, manifest: IO[bytes], rejects: IO[bytes], entries: CacheWriter, found: Fingerprint) -> None:
        self._files, self._at = (manifest, rejects), [0, 0]
        self._entries, self._found = entries, found
        self.converted = 0
        self.reasons: Counter[str] = Counter()

    def take_over(self, entry: CachedLine, line: bytes) -> None:
        reason = json.loads(line)["reason"] if entry.kind & IN_REJECTS else ""
        offset = self._put(line, reason, entry.converted)
        self._entries.add((*entry[:5], offset, *entry[6:]))

    def add(self, line: bytes, digest: bytes, made: OutputLine, *, named: bool) -> None:
        """Writes what was made of a line.

        Args:
          digest: of its utterance.
          named: whether the line tells the content of its recording: if not, the next time it may be another one.
        """
        offset = self._put(made.line, made.reason, made.digest)
        if made.kind is not None and named:
            kind = made.kind | (IN_REJECTS if made.reason else 0)
            entry = (hash_digest(line), digest, made.digest, made.wav, made.samples, offset, len(made.line), kind)
            self._entries.add(entry)

    def _put(self, line: bytes, reason: str, converted: bytes) -> int:
        """Writes a line; returns at which byte it stands."""
        which = IN_REJECTS if reason else 0
        offset = self._at[which]
        self._files[which].write(line)
        self._at[which] += len(line)
        if reason:
            self.reasons[reason] += 1
        else:
            self.converted += 1
            self._found.add(converted)
        return offset


def _reject_output(reject: Reject, kind: int | None, wav: bytes = NO_WAV, samples: int = 0) -> OutputLine:
    return OutputLine(encode_reject(reject).encode(), str(reject.reason), kind, NO_WAV, wav, samples)
