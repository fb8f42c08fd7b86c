"""convert's output: the manifest and the rejects, in the order of the lines that came in.

The output of a line in the line cache is copied. All others are made from the transcript and from what the pool's logs
say of the recording.
"""

from binascii import unhexlify
from collections import Counter
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from voxline.audio.containers import RAW_FORMAT_KEY
from voxline.components.convert.jobs import CLIPPED_FROM, RejectedRecording
from voxline.components.convert.manifest_scan import (
    CLIPPED_MARK,
    NEGATIVE_MARK,
    KeptPiece,
    LastRun,
    LineStatus,
    ManifestScan,
    decode_piece,
)
from voxline.components.convert.settings import ConvertSettings
from voxline.components.convert.wav_pool import WavPool
from voxline.data.fingerprints import write_fingerprint
from voxline.data.line_cache import LineCache, write_line_cache
from voxline.data.manifest import (
    MANIFEST_FILE,
    NEGATIVE,
    REJECTS_FILE,
    ManifestEncoder,
    Utterance,
    check_reject_share,
    encode_reject,
)
from voxline.errors import WorkError
from voxline.progress import print_status
from voxline.rejects import Reason, Reject
from voxline.store.files import atomic_write
from voxline.store.hashing import DIGEST_BYTES, Fingerprint, hash_digest, hash_file
from voxline.store.step_cache import StepOutput
from voxline.text.alphabet import Alphabet, EmptyText, UnsupportedText
from voxline.text.frontend import FrontendOutput, apply_frontend


class OutputLine(NamedTuple):
    """The converted utterance, or its reject.

    Attributes:
      line: of the manifest, or of the rejects.
      reason: of a reject.
      reusable: whether the same line of a later manifest has the same output, as long as its WAV is whole.
      converted: digest of the converted utterance.
      wav, samples: the WAV's name and length; empty where the output does not depend on a WAV.
    """

    line: bytes
    reason: str = ""
    reusable: bool = True
    converted: bytes = b""
    wav: str = ""
    samples: int = 0


class OutputBuilder:
    """Makes the output of lines that are not in the line cache.

    Args:
      folder: of the manifest that is written.
      crashed: see `decode_new`.
    """

    def __init__(
        self,
        folder: Path,
        scan: ManifestScan,
        pool: WavPool,
        settings: ConvertSettings,
        crashed: dict[str, RejectedRecording],
    ) -> None:
        self._scan = scan
        self._pool = pool
        self._settings = settings
        self._crashed = crashed
        self._alphabet = Alphabet.from_name(settings.alphabet)
        self._encoder = ManifestEncoder(folder)

    def build(self, number: int, utterance: Utterance) -> OutputLine:
        """The output of the line with a number.

        A reject that did not need the recording is not reusable: without the recording it would be `missing_file`.
        """
        if number in self._scan.missing:
            detail = f"{utterance.audio_filepath} does not exist"
            return _reject_output(Reject(utterance.id, Reason.MISSING_FILE, detail), reusable=False)

        # The checks that need no recording come first, in the same order as in `_lines_to_decode`: a recording that
        # fails them was not decoded, so no log has it.
        text = prepare_transcript(utterance, self._settings, self._alphabet)
        if isinstance(text, Reject):
            return _reject_output(text, reusable=False)
        if fault := check_length(utterance, utterance.duration, self._settings):
            return _reject_output(fault, reusable=False)

        # What happened to the recording: logged by an earlier run, or by this one.
        if self._scan.statuses[number] == LineStatus.DECODED:
            recording = self._pool.logs.read(self._scan.locations[number])
        else:
            name = self._pool.name(utterance)
            if crash := self._crashed.get(name):  # perhaps the fault of the machine: a later run tries again
                return _reject_output(Reject(utterance.id, crash.reason, crash.detail), reusable=False)
            logged = self._pool.logs.find(name)
            assert logged is not None  # noqa: S101 -- `decode_new` logged it
            recording = self._pool.logs.read(logged.location)

        if isinstance(recording, RejectedRecording):
            return _reject_output(Reject(utterance.id, recording.reason, recording.detail))

        # The manifest's duration was read from a header; that of the WAV is exact.
        name = recording.wav
        duration = recording.samples / self._settings.sample_rate
        if fault := check_length(utterance, duration, self._settings):
            return _reject_output(fault, wav=name, samples=recording.samples)

        converted = converted_utterance(utterance, text, self._pool.path_text(name), name, duration)
        line = self._encoder.encode(converted, recording.measured).encode()
        return OutputLine(line, converted=converted.digest(), wav=name, samples=recording.samples)


def write_output(
    scan: ManifestScan,
    cache: LineCache,
    builder: OutputBuilder,
    settings: ConvertSettings,
    work: StepOutput,
    store: Path | str,
) -> None:
    """Writes the manifest, the rejects, and the line cache of the next run.

    Raises:
      WorkError: too many rejects, or the manifest changed since the scan.
    """
    manifest = work.folder / MANIFEST_FILE
    rejects = work.folder / REJECTS_FILE
    # Renamed last: a line cache that describes a manifest which was not written would be worse than none.
    with write_line_cache(cache.file) as cached:
        with atomic_write(manifest) as converted, atomic_write(rejects) as rejected:
            output = _OutputWriter(converted, rejected)
            new_lines = zip(scan.uncached, scan.lines_at(scan.uncached), strict=True)
            for piece in scan.pieces:
                if piece.entry >= 0:
                    entry = cache.read(piece.entry)
                    output.write_piece(decode_piece(entry.output))
                    cached.copy(entry.raw)
                    continue

                new_piece = _PieceBuilder()
                number = piece.first
                end = piece.first + piece.lines
                while number < end:
                    if scan.statuses[number] == LineStatus.CACHED:
                        kept = scan.kept(number, end)
                        output.write_piece(kept)
                        new_piece.extend(kept)
                        number += len(kept)
                        continue

                    offset, line = next(new_lines)
                    line_output = builder.build(number, scan.utterance(offset, line))
                    line_digest = hash_digest(line) if scan.states_audio_hash(offset) else b""
                    output.write(line_output)
                    new_piece.add(line_output, line_digest, scan.digest(number))
                    number += 1
                cached.add(piece.digest, output=new_piece.encode())
            scan.check()

        total = len(scan.statuses)
        work.outputs = {"manifest": MANIFEST_FILE, "rejects": REJECTS_FILE}
        work.counts["utterances"] = output.converted
        work.counts["rejects"] = total - output.converted
        _check_negatives(output.negatives, total, settings, work)
        _report_clipped(output.clipped, output.converted, work)
        check_reject_share(total - output.converted, total, settings.max_reject_share, "convert", rejects)

        # The next step finds the fingerprint of its input by the manifest's hash, and need not parse it.
        digest = work.hashes[MANIFEST_FILE] = hash_file(manifest)
        write_fingerprint(digest, store, output.fingerprint.name())
        this_run = LastRun(
            manifest=scan.content, fingerprint=scan.fingerprint, lines=total, key=work.folder.name, output=digest
        )
        cached.about = msgspec.to_builtins(this_run)

    reasons = ", ".join(f"{count:,} {reason}" for reason, count in output.reasons.most_common())
    print_status(
        f"convert: {output.converted:,} of {total:,} utterances, {work.counts['decoded']:,} recordings decoded"
        + (f"; rejected: {reasons}" if reasons else "")
    )


def wrote_last(cache: LineCache, folder: Path) -> bool:
    """Returns whether the manifest in a folder is the one that the last run wrote, and has not changed since."""
    last_run = msgspec.convert(cache.about, LastRun)
    return (last_run.key, last_run.output) == (folder.name, hash_file(folder / MANIFEST_FILE))


class _OutputWriter:
    """Writes the manifest and the rejects.

    Attributes:
      converted: lines of the manifest so far.
      fingerprint: of the converted utterances.
      negatives: converted ones without a transcript.
      clipped: converted ones whose float samples were beyond full scale.
      reasons: of the rejects.
    """

    def __init__(self, manifest: IO[bytes], rejects: IO[bytes]) -> None:
        self._manifest = manifest
        self._rejects = rejects
        self.converted = 0
        self.negatives = 0
        self.clipped = 0
        self.fingerprint = Fingerprint()
        self.reasons: Counter[str] = Counter()

    def write_piece(self, piece: KeptPiece) -> None:
        """Writes the outputs of a piece."""
        if any(piece.reasons):
            for place in range(len(piece)):
                self.write(_kept_output(piece, place))
            return
        self._manifest.write(b"\n".join([*piece.outputs, b""]))
        self.converted += len(piece)
        self.negatives += piece.negatives
        self.clipped += piece.clipped
        self.fingerprint.add_all(unhexlify(piece.converted))

    def write(self, output: OutputLine) -> None:
        """Writes the output of a line."""
        if output.reason:
            self._rejects.write(output.line)
            self.reasons[output.reason] += 1
        else:
            self._manifest.write(output.line)
            self.converted += 1
            self.negatives += NEGATIVE_MARK in output.line
            self.clipped += CLIPPED_MARK in output.line
            self.fingerprint.add(output.converted)


def _kept_output(piece: KeptPiece, place: int) -> OutputLine:
    """The output of a line that was kept."""
    reason = piece.reasons[place]
    return OutputLine(
        bytes(piece.outputs[place]) + b"\n",
        reason,
        converted=b"" if reason else piece.digest(piece.converted, place),
        wav=piece.wavs[place],
        samples=piece.samples[place],
    )


class _PieceBuilder:
    """Makes the entry of a piece for the line cache."""

    def __init__(self) -> None:
        self._piece = KeptPiece("", "", "", [], [], [], [], complete=True)

    def add(self, output: OutputLine, line: bytes, identity: bytes) -> None:
        """
        Args:
          line: digest of the manifest's line; empty: it may mean another recording later.
          identity: digest of the utterance in it.
        """
        piece = self._piece
        if not (output.reusable and line):
            piece.complete = False
            return
        piece.lines += line.hex()
        piece.identities += identity.hex()
        piece.converted += (output.converted or bytes(DIGEST_BYTES)).hex()
        piece.wavs.append(output.wav)
        piece.samples.append(output.samples)
        piece.reasons.append(output.reason)
        if not output.reason:
            piece.negatives += NEGATIVE_MARK in output.line
            piece.clipped += CLIPPED_MARK in output.line
        piece.outputs.append(msgspec.Raw(output.line.rstrip(b"\n")))

    def extend(self, kept: KeptPiece) -> None:
        """Adds lines as the last run kept them."""
        piece = self._piece
        piece.lines += kept.lines
        piece.identities += kept.identities
        piece.converted += kept.converted
        piece.wavs += kept.wavs
        piece.samples += kept.samples
        piece.reasons += kept.reasons
        piece.outputs += kept.outputs
        piece.negatives += kept.negatives
        piece.clipped += kept.clipped

    def encode(self) -> bytes:
        return msgspec.json.encode(self._piece) + b"\n"


def _check_negatives(negatives: int, total: int, settings: ConvertSettings, work: StepOutput) -> None:
    """Counts utterances without a transcript, where they are accepted.

    Raises:
      WorkError: they are more than the settings accept.
    """
    if not negatives:
        return
    work.counts["negatives"] = negatives
    if negatives > settings.max_negative_share * total:
        raise WorkError(
            f"convert: {negatives:,} of {total:,} utterances ({negatives / total:.1%}) have no transcript, at most "
            f"{settings.max_negative_share:.1%} are accepted (convert.max_negative_share); add what is missing, or "
            "raise it if nobody speaks in them"
        )


def _report_clipped(clipped: int, converted: int, work: StepOutput) -> None:
    """Counts and tells utterances of which samples were lost beyond full scale."""
    if not clipped:
        return
    work.counts["clipped"] = clipped
    print_status(
        f"convert: {clipped:,} of {converted:,} utterances have float samples beyond full scale, which are clipped "
        f"({CLIPPED_FROM} in the manifest); scale their recordings down to 1"
    )


def _reject_output(reject: Reject, *, reusable: bool = True, wav: str = "", samples: int = 0) -> OutputLine:
    return OutputLine(encode_reject(reject).encode(), str(reject.reason), reusable, wav=wav, samples=samples)


def prepare_transcript(utterance: Utterance, settings: ConvertSettings, alphabet: Alphabet) -> FrontendOutput | Reject:
    """The text for the model, in its alphabet, and the words that are spoken.

    >>> settings = ConvertSettings()
    >>> english = Alphabet.from_name(settings.alphabet)
    >>> prepare_transcript(Utterance("a", "a.wav", 1.0, "Well, THEN!"), settings, english).symbols
    'well then'
    >>> prepare_transcript(Utterance("a", "a.wav", 1.0, "naïve"), settings, english).detail
    "'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS) in 'naïve' is not in the alphabet"
    """
    # "No transcript" is the corpus' fault, "nothing is left" that of the settings: a person mends them in different
    # places.
    if not utterance.text.strip():
        if settings.max_negative_share:
            return FrontendOutput("", "")
        detail = "no transcript; if nobody speaks there, convert.max_negative_share accepts a share of such recordings"
        return Reject(utterance.id, Reason.TRANSCRIPT_MISSING, detail)
    try:
        text = apply_frontend(utterance.text, settings.frontend, alphabet.characters)
    except EmptyText as wordless:
        return Reject(utterance.id, Reason.TRANSCRIPT_EMPTY, str(wordless))
    except UnsupportedText as unreadable:
        return Reject(utterance.id, Reason.OUTSIDE_ALPHABET, str(unreadable))

    if not text.normalized_text.strip():
        return Reject(
            utterance.id, Reason.TRANSCRIPT_EMPTY, f"nothing is left of {utterance.text!r} after normalization"
        )
    if unknown := alphabet.describe_unknown(text.symbols):
        return Reject(utterance.id, Reason.OUTSIDE_ALPHABET, unknown)
    return text


def check_length(utterance: Utterance, duration: float, settings: ConvertSettings) -> Reject | None:
    """A reject for a recording that is too short or too long. A duration of 0 means that ingest could not read it."""
    if 0 < duration < settings.min_seconds:
        return Reject(utterance.id, Reason.TOO_SHORT, f"{duration:g} s, at least {settings.min_seconds:g} s are needed")
    if duration > settings.max_seconds:
        return Reject(utterance.id, Reason.TOO_LONG, f"{duration:g} s, at most {settings.max_seconds:g} s are accepted")
    return None


def converted_utterance(utterance: Utterance, text: FrontendOutput, wav: str, name: str, duration: float) -> Utterance:
    """The utterance of the converted manifest: `text` is what the model reads, `normalized_text` the words to hear.

    Args:
      wav, name: path and name of its WAV.
    """
    # A WAV has a header, so the format of its source must not reach later steps. The words to hear are stated only
    # where they differ from the symbols.
    extra = utterance.extra
    if "normalized_text" in extra or RAW_FORMAT_KEY in extra or text.normalized_text != text.symbols:
        extra = {key: value for key, value in extra.items() if key not in ("normalized_text", RAW_FORMAT_KEY)}
        if text.normalized_text != text.symbols:
            extra["normalized_text"] = text.normalized_text

    if not text.symbols:
        extra = {**extra, NEGATIVE: True}

    # `replace` takes three times as long
    return Utterance(utterance.id, wav, duration, text.symbols, utterance.speaker, utterance.split, name, extra=extra)
