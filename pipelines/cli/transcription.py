"""`voxline transcribe`: files, folders and standard input in, a line for each recording out.

Recordings are read and transcribed in groups of some minutes of audio, and each is printed when its group is done, in
the order of the arguments; the files of a folder by name. A recording that cannot be read hides no other. They are
decoded in a process of its own, with limits: they may come from strangers.
"""

import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from voxline.audio.decode_pool import DecodeLimits, DecodePool
from voxline.errors import SettingsError, WorkError
from voxline.progress import erase_line
from voxline.rejects import MAX_SECONDS
from voxline.store.scratch import scratch_root

if TYPE_CHECKING:
    from voxline.inference.recognizer import Recognizer
    from voxline.inference.transcript import Transcript
    from voxline.inference.waveforms import Waveform
    from voxline.inference.written_transcript import WritingChoices

STDIN = "-"
EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".m4a", ".mp4", ".aac", ".wma", ".webm", ".mka", ".aiff", ".au")
"""Of the recordings in a folder; a file that is named is read whatever its extension."""
GROUP_SECONDS = 240.0
"""Audio that is transcribed together."""


@dataclasses.dataclass
class _Recording:
    """A recording to transcribe.

    Attributes:
      name: as it is printed.
      result: the transcript, or why there is none.
    """

    name: str
    waveform: "Waveform | None" = None
    result: "Transcript | WorkError | None" = None


@dataclasses.dataclass(frozen=True)
class DecodingChoices:
    """The choices that make text of the network's output, for `Recognizer`; hot words as a person writes them."""

    language_model: bool = True
    hot_words: tuple[str, ...] = ()
    n_best: int = 1
    beams: int = 1
    pauses: str = "level"


def transcribe_files(
    audio: Sequence[Path],
    model: Callable[[], Path],
    *,
    as_json: bool,
    decoding: DecodingChoices | None = None,
    writing: "WritingChoices | None" = None,
    max_seconds: float = MAX_SECONDS,
) -> bool:
    """Transcribes recordings and prints a line for each. Returns whether all could be transcribed.

    Args:
      audio: files, folders, or `-`.
      model: finds the exported model, which is done after the arguments were checked.
      writing: how transcripts are written; None: as they are heard.
      max_seconds: of a recording; a longer one is not transcribed.

    Raises:
      SettingsError: a path does not exist, or a folder has no recording.
    """
    from voxline.inference.written_transcript import write_transcript

    with _collect(audio) as files, DecodePool(DecodeLimits(max_seconds)) as decoders:
        decoders.start()  # while the model is loaded
        recognizer = _load(model(), decoding or DecodingChoices())

        # By the arguments, not by the number of files: a folder's output looks the same with one recording in it.
        labeled = len(audio) > 1 or audio[0].is_dir()
        complete = True
        for group in _groups(files, recognizer, decoders):
            readable = [recording for recording in group if recording.waveform is not None]
            waveforms = [recording.waveform for recording in readable if recording.waveform is not None]
            for recording, transcript in zip(readable, recognizer.recognize_waveforms(waveforms), strict=True):
                recording.result = write_transcript(transcript, writing) if writing else transcript

            # Recordings that could not be read are named at their place among the others.
            for recording in group:
                complete &= _print_result(recording, as_json=as_json, labeled=labeled)
    return complete


def transcribe_stream(
    model: Callable[[], Path],
    *,
    as_json: bool,
    endpoint_ms: float,
    decoding: DecodingChoices | None = None,
    writing: "WritingChoices | None" = None,
) -> None:
    """Transcribes standard input while it arrives: 16-bit little-endian PCM, mono, at the model's rate.

    Each segment is a line when it has ended; what is heard of it so far is shown on a terminal.

    Args:
      endpoint_ms: of silence, that end a segment.

    Raises:
      SettingsError: the model has no streaming graph, and pauses, at which it could hear utterances, are off.
    """
    import numpy as np

    from voxline.inference.written_transcript import WritingChoices, write_transcript, written_form

    writing = writing or WritingChoices()
    recognizer = _load(model(), decoding or DecodingChoices())
    stream = recognizer.live(endpoint_ms=endpoint_ms)
    latency = stream.latency.algorithmic_ms
    when = f"{latency:.0f} ms behind" if stream.has_partials else "each utterance when the speaker pauses"
    typer.echo(f"voxline: PCM of 16 bits at {stream.sample_rate:,} Hz; {when}", err=True)

    # A pipe may end in the middle of a sample, whose second byte comes with the next read.
    pending = b""
    is_terminal = sys.stderr.isatty()
    while data := sys.stdin.buffer.read1(65_536):  # type: ignore[union-attr]  # what is there, without waiting for more
        pending += data
        whole = len(pending) // 2 * 2
        partial = stream.feed(np.frombuffer(pending[:whole], "<i2").astype(np.int16))
        pending = pending[whole:]
        for segment in partial.segments:
            _print_segment(write_transcript(segment, writing), as_json=as_json, clear=is_terminal)

        # On stderr, so that standard output has finished segments alone; the end of the text fits into a line.
        if is_terminal:
            erase_line(sys.stderr)
            # What was heard so far has no full stop: its sentence has no end yet.
            typer.echo(
                written_form(partial.text, dataclasses.replace(writing, punctuate=False))[-100:], nl=False, err=True
            )
    _print_segment(write_transcript(stream.finish(), writing), as_json=as_json, clear=is_terminal)


def _print_segment(segment: "Transcript", *, as_json: bool, clear: bool) -> None:
    if clear:
        erase_line(sys.stderr)
    if as_json:
        values = dataclasses.asdict(segment)
        del values["alternatives"]
        _print_json({"file": STDIN, **values})
    elif segment.text:
        typer.echo(segment.text)


def _load(model: Path, decoding: DecodingChoices) -> "Recognizer":
    from voxline.inference.language_model import parse_hot_words
    from voxline.inference.recognizer import Recognizer

    return Recognizer(
        model,
        language_model=decoding.language_model,
        hot_words=parse_hot_words(decoding.hot_words) if decoding.hot_words else None,
        n_best=decoding.n_best,
        beams=decoding.beams,
        pauses=decoding.pauses,
    )


@contextlib.contextmanager
def _collect(audio: Sequence[Path]) -> Iterator[list[tuple[str, Path]]]:
    """The name and the file of each recording; standard input becomes a file while it is needed."""
    with contextlib.ExitStack() as stack:
        files: list[tuple[str, Path]] = []
        for path in audio:
            # Decoders read files, and seek in them, which a pipe does not allow.
            if str(path) == STDIN:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=scratch_root()))
                file = Path(folder, "stdin")
                file.write_bytes(sys.stdin.buffer.read())
                files.append((STDIN, file))

            # A folder has other files too, so extensions decide; a file that is named is taken as it is.
            elif path.is_dir():
                recordings = sorted(
                    file for file in path.rglob("*") if file.suffix.lower() in EXTENSIONS and file.is_file()
                )
                if not recordings:
                    raise SettingsError(
                        f"{path}: no recording in this folder; names that end in {', '.join(EXTENSIONS)} are found, "
                        "and others can be given as files"
                    )
                files += [(str(file), file) for file in recordings]

            elif path.is_file():
                files.append((str(path), path))
            else:
                raise SettingsError(f"{path}: no such file or folder; give recordings, folders of them, or -")
        yield files


def _groups(
    files: Sequence[tuple[str, Path]], recognizer: "Recognizer", decoders: DecodePool
) -> Iterator[list[_Recording]]:
    """Reads recordings in groups, each with `GROUP_SECONDS` of audio or a little more."""
    from voxline.inference.waveforms import read_waveform

    group: list[_Recording] = []
    seconds = 0.0
    for name, file in files:
        recording = _Recording(name)
        try:
            recording.waveform = read_waveform(file, recognizer.sample_rate, decoders=decoders)
            seconds += len(recording.waveform) / recognizer.sample_rate
        except WorkError as error:
            # Standard input has a file of ours, whose name means nothing to the user.
            recording.result = WorkError(str(error).replace(str(file), name))

        group.append(recording)
        if seconds >= GROUP_SECONDS:
            yield group
            group = []
            seconds = 0.0
    if group:
        yield group


def _print_result(recording: _Recording, *, as_json: bool, labeled: bool) -> bool:
    """Prints one line to stdout or stderr. Returns whether there is a transcript."""
    result = recording.result
    if result is None or isinstance(result, WorkError):
        return _print_failure(recording.name, str(result), as_json=as_json)
    if result.note == "too short":
        message = f"{recording.name}: {result.seconds:.3f} s is too short to hold a word; 0.1 s is accepted"
        return _print_failure(recording.name, message, as_json=as_json)

    if as_json:
        values = dataclasses.asdict(result)
        if not result.alternatives:
            del values["alternatives"]
        _print_json({"file": recording.name, **values})
        return True

    # The only other note is silence, which has a transcript: an empty one.
    if result.note:
        typer.echo(f"voxline: {recording.name}: {result.note}: no sample is above -80 dB of full scale", err=True)
    typer.echo(f"{recording.name}\t{result.text}" if labeled else result.text)
    return True


def _print_failure(name: str, message: str, *, as_json: bool) -> bool:
    typer.echo(f"voxline: {message}", err=True)
    if as_json:
        _print_json({"file": name, "error": message})
    return False


def _print_json(values: dict[str, Any]) -> None:
    """One object in one line; times and confidences with as many digits as mean something."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(item) for item in value]
        return round(value, 4) if isinstance(value, float) else value

    typer.echo(json.dumps(rounded(values), ensure_ascii=False))
