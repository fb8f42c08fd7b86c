"""`voxline align`: a long recording and its text in, a manifest of utterances out."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import Pauses, machine_path

if TYPE_CHECKING:
    from voxline.data.manifest import Utterance
    from voxline.inference.alignment import RecordingAlignment
    from voxline.rejects import Reject

NO_LANGUAGE = "none"


def align(
    recording: Annotated[Path, typer.Argument(parser=machine_path, metavar="AUDIO", help="A recording of any length.")],
    text: Annotated[
        Path, typer.Argument(parser=machine_path, metavar="TEXT", help="Its text in UTF-8, an utterance a line.")
    ],
    model: Annotated[str, typer.Option(help="An exported ASR model, or <registry>/<model>.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", parser=machine_path, metavar="FOLDER", help="For the manifest.")
    ],
    language: Annotated[
        str, typer.Option(help="en or zh: spell out numbers, times, money; none: letters and digits as they are.")
    ] = NO_LANGUAGE,
    max_seconds: Annotated[float, typer.Option(min=1.1, help="Longer lines are cut at their longest pauses.")] = 20.0,
    speaker: Annotated[str, typer.Option(help="Speaker of all utterances.")] = "",
    pauses: Pauses = "level",
) -> None:
    """Cut a long recording into utterances by its text.

    Writes manifest.jsonl, with a line for each utterance (offset, duration, text, confidence), and rejects.jsonl: text
    that was not found in the recording, and audio whose text is missing. corpus.format: manifest reads the folder.

    \b
    Example:
      voxline align lecture.flac lecture.txt --model runs/demo/registry/asr -o lecture
    """
    from voxline.data.manifest import MANIFEST_FILE, REJECTS_FILE, write_manifest, write_rejects
    from voxline.inference.alignment import align_recording
    from voxline.inference.recognizer import Recognizer
    from voxline.registry.models import find_model

    # Everything that the user may have mistyped is refused before the model is loaded, which takes seconds.
    lines = _read_lines(text)
    if not recording.is_file():
        raise SettingsError(f"{recording}: no such file; give a recording")
    _check_output(output / MANIFEST_FILE, recording)
    normalize = _normalizer(language)

    recognizer = Recognizer(find_model(model), pauses=pauses)
    alignment = align_recording(recognizer, recording, lines, max_seconds=max_seconds, normalize=normalize)
    utterances = _utterances(alignment, recording, speaker)
    rejects = _rejects(alignment, recording, text)

    # The manifest comes last: it makes the folder a corpus.
    output.mkdir(parents=True, exist_ok=True)
    write_rejects(output / REJECTS_FILE, rejects)
    write_manifest(output / MANIFEST_FILE, utterances)

    for reject in rejects:
        typer.echo(f"voxline: {reject.detail}", err=True)
    placed = sum(utterance.end - utterance.start for utterance in alignment.utterances)
    typer.echo(
        f"{output / MANIFEST_FILE}: {len(utterances):,} utterances, {placed:,.1f} of {alignment.seconds:,.1f} s; text "
        f"not found: {len(alignment.missing):,}; audio without text: {len(alignment.unwritten):,}"
    )


def _check_output(manifest: Path, recording: Path) -> None:
    """Refuses a folder whose manifest has utterances of another recording, which would be lost."""
    from voxline.data.manifest import iter_manifest

    if not manifest.exists():
        return

    # The same recording may be aligned again, with another model or text, also under another spelling of its path.
    recording = recording.resolve()
    named_files = sorted({utterance.audio_filepath for utterance in iter_manifest(manifest)})
    other = next((file for file in named_files if Path(file).resolve() != recording), None)
    if other is not None:
        raise SettingsError(f"--output {manifest.parent}: {manifest.name} is of {other}; give each recording a folder")


def _read_lines(text: Path) -> list[str]:
    if not text.is_file():
        raise SettingsError(f"{text}: no such file; give the text of the recording")
    try:
        return text.read_text(encoding="utf-8-sig").splitlines()  # Windows writes a byte order mark
    except UnicodeDecodeError as error:
        raise SettingsError(f"{text}: not UTF-8 at byte {error.start:,}; save the text as UTF-8") from None


def _normalizer(language: str) -> Callable[[str], str]:
    from voxline.text.alphabet import UnsupportedText
    from voxline.text.frontend import LANGUAGES, normalize_spoken
    from voxline.text.transcripts import normalize_transcript

    if language == NO_LANGUAGE:
        return normalize_transcript
    if language not in LANGUAGES:
        raise SettingsError(f"--language {language}: {', '.join((NO_LANGUAGE, *LANGUAGES))} are accepted")

    # Words are normalized one by one; one that cannot be spelled out keeps the letters that it has.
    def normalize(word: str) -> str:
        try:
            return normalize_spoken(word, LANGUAGES[language])
        except UnsupportedText:
            return normalize_transcript(word)

    return normalize


def _utterances(alignment: "RecordingAlignment", recording: Path, speaker: str) -> "list[Utterance]":
    from voxline.data.manifest import Utterance

    # Parts of one recording: offset and duration in seconds, to the millisecond; the audio is not cut.
    return [
        Utterance(
            f"{recording.stem}-{number:05d}",
            str(recording.absolute()),
            round(utterance.end - utterance.start, 3),
            utterance.text,
            speaker,
            offset=round(utterance.start, 3),
            extra={"confidence": round(utterance.confidence, 4), "line": utterance.line},
        )
        for number, utterance in enumerate(alignment.utterances, 1)
    ]


def _rejects(alignment: "RecordingAlignment", recording: Path, text: Path) -> "list[Reject]":
    """Text without audio, named by its line, then audio without text, named by its start in seconds."""
    from voxline.inference.alignment import NO_WORD
    from voxline.rejects import Reason, Reject
    from voxline.text.alphabet import quote_text

    missing = [
        Reject(
            f"{recording.stem}-line-{part.line}",
            Reason.TRANSCRIPT_EMPTY if part.why == NO_WORD else Reason.TEXT_NOT_FOUND,
            f"{text}:{part.line}: {quote_text(part.text)}: {part.why}; it would be after {part.after:.2f} s",
        )
        for part in alignment.missing
    ]

    # With the model's guess, which a person may correct and add to the text.
    unwritten = [
        Reject(
            f"{recording.stem}-at-{part.start:.2f}",
            Reason.AUDIO_WITHOUT_TEXT,
            f"{recording}: {part.start:.2f} to {part.end:.2f} s have no text; recognized: "
            f"{quote_text(part.hypothesis)}",
        )
        for part in alignment.unwritten
    ]
    return missing + unwritten
