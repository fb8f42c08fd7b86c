"""`voxline align`: a long recording and its text in, a manifest of utterances out."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxline.errors import SettingsError
from voxline.pipelines.cli.options import machine_path

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

    lines = _read_lines(text)
    if not recording.is_file():
        raise SettingsError(f"{recording}: no such file; give a recording")
    _check_output(output / MANIFEST_FILE, recording)
    normalize = _normalizer(language)
    found = align_recording(
        Recognizer(find_model(model)), recording, lines, max_seconds=max_seconds, normalize=normalize
    )
    utterances, rejects = _utterances(found, recording, speaker), _rejects(found, recording, text)
    output.mkdir(parents=True, exist_ok=True)
    write_rejects(output / REJECTS_FILE, rejects)
    write_manifest(output / MANIFEST_FILE, utterances)
    for reject in rejects:
        typer.echo(f"voxline: {reject.detail}", err=True)
    placed = sum(one.end - one.start for one in found.utterances)
    typer.echo(
        f"{output / MANIFEST_FILE}: {len(utterances):,} utterances, {placed:,.1f} of {found.seconds:,.1f} s; text not "
        f"found: {len(found.missing):,}; audio without text: {len(found.unwritten):,}"
    )


def _check_output(manifest: Path, recording: Path) -> None:
    """Refuses a folder whose manifest has utterances of another recording, which would be lost."""
    from voxline.data.manifest import iter_manifest

    if not manifest.exists():
        return
    named, own = {one.audio_filepath for one in iter_manifest(manifest)}, recording.resolve()
    other = next((one for one in sorted(named) if Path(one).resolve() != own), None)
    if other is not None:
        raise SettingsError(f"--output {manifest.parent}: {manifest.name} is of {other}; give each recording a folder")


def _read_lines(text: Path) -> list[str]:
    if not text.is_file():
        raise SettingsError(f"{text}: no such file; give the text of the recording")
    try:
        return text.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{text}: not UTF-8 at byte {error.start:,}; save the text as UTF-8") from None


def _normalizer(language: str) -> Callable[[str], str]:
    from voxline.text.alphabet import UnsupportedText, normalize_transcript
    from voxline.text.frontend import LANGUAGES, normalize_spoken

    if language == NO_LANGUAGE:
        return normalize_transcript
    if language not in LANGUAGES:
        raise SettingsError(f"--language {language}: {', '.join((NO_LANGUAGE, *LANGUAGES))} are accepted")

    def normalize(word: str) -> str:
        try:
            return normalize_spoken(word, LANGUAGES[language])
        except UnsupportedText:
            return normalize_transcript(word)

    return normalize


def _utterances(found: "RecordingAlignment", recording: Path, speaker: str) -> "list[Utterance]":
    from voxline.data.manifest import Utterance

    return [
        Utterance(
            f"{recording.stem}-{number:05d}",
            str(recording.absolute()),
            round(one.end - one.start, 3),
            one.text,
            speaker,
            offset=round(one.start, 3),
            extra={"confidence": round(one.confidence, 4), "line": one.line},
        )
        for number, one in enumerate(found.utterances, 1)
    ]


def _rejects(found: "RecordingAlignment", recording: Path, text: Path) -> "list[Reject]":
    from voxline.inference.alignment import NO_WORD
    from voxline.rejects import Reason, Reject
    from voxline.text.alphabet import quote_text

    missing = [
        Reject(
            f"{recording.stem}-line-{one.line}",
            Reason.TRANSCRIPT_EMPTY if one.why == NO_WORD else Reason.TEXT_NOT_FOUND,
            f"{text}:{one.line}: {quote_text(one.text)}: {one.why}; it would be after {one.after:.2f} s",
        )
        for one in found.missing
    ]
    unwritten = [
        Reject(
            f"{recording.stem}-at-{one.start:.2f}",
            Reason.AUDIO_WITHOUT_TEXT,
            f"{recording}: {one.start:.2f} to {one.end:.2f} s have no text; recognized: {quote_text(one.hypothesis)}",
        )
        for one in found.unwritten
    ]
    return missing + unwritten
