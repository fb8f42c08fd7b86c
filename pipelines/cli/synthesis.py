"""`voxline synthesize`: a text to a file, or many texts to a folder, with what happened to each.

A text is spoken sentence by sentence, and one sentence is in memory at a time; short texts of a folder are spoken
together, in batches. In a folder, `synthesis.jsonl` has a line for each text, written after its file: what was killed
continues with the texts that have none.
"""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from voxline.errors import SettingsError, VoxlineError, WorkError
from voxline.pipelines.cli.options import exit_on_signal

if TYPE_CHECKING:
    from voxline.inference.speech import Speech
    from voxline.inference.synthesizer import Synthesizer
    from voxline.inference.text_encoder import RefusedTextError, TextEncoder

STDIN = "-"
REVISION = 2
"""Of what the same text, voice and format sound like; files of another one are made again."""
OUTPUT_EXTENSIONS = (".wav", ".mp3", ".m4a", ".ogg", ".opus", ".webm", ".flac")
RECORD_FILE = "synthesis.jsonl"
LOCK_FILE = ".synthesis.lock"
BLOCK_BYTES = 2**20
TEXTS = 32
CHARACTERS = 4_000
"""Spoken together, of a folder's texts: enough for batches, and little to do again after a kill."""
MOST_WAV_SAMPLES = 2**31 - 100
"""Of 16 bits: a WAV has at most 4 GiB."""

Status = Literal["done", "kept", "refused", "cut_off", "too_short", "too_long", "failed"]


@dataclasses.dataclass(frozen=True)
class TextResult:
    """The result of a text: a line of `synthesis.jsonl` and of `--json`.

    Attributes:
      text: its first 200 characters.
      file: that was written, or would have been.
      status: kept: its file was there from an earlier call, by the same voice. refused: the voice cannot read it.
        cut_off: the decoder did not end. too_short, too_long: it stopped at once, or went on after the text.
      seconds: of its sound.
      pieces: synthesized one by one, and joined.
      reason: of a refusal, as `RefusedTextError` has it.
      error: for people.
      key: hash of the text, the voice, the vocoder and the format.
    """

    text: str
    file: str
    status: Status
    seconds: float = 0.0
    pieces: int = 0
    reason: str = ""
    error: str = ""
    key: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status in ("done", "kept")

    def values(self) -> dict[str, Any]:
        """The values for JSON, without what is empty."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", None)}

    def line(self, rate: int | None) -> str:
        """The line for people.

        Args:
          rate: Hz; None: a file that was kept.
        """
        length = f"{self.seconds:.1f} s" + (f" at {rate} Hz" if rate else ", kept")
        return f"{self.file}  {length}" + (f", {self.pieces} pieces" if self.pieces > 1 else "")


def read_text_argument(argument: str) -> str:
    """The text itself, or standard input for `-`.

    Raises:
      SettingsError: standard input is not UTF-8.
    """
    return argument if argument != STDIN else _decode(sys.stdin.buffer.read(), "standard input").strip()


def read_texts(file: Path) -> list[str]:
    """The lines of a file, or of standard input for `-`; an empty line is a text too, which no voice speaks.

    Raises:
      SettingsError: the file does not exist, has no lines, or is not UTF-8.
    """
    try:
        content = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"--texts {file}: no such file; give a file with one text a line, or -") from None

    # Not `splitlines`, which also ends a line at U+2028 and others: the number of a text is that of its line.
    texts = _decode(content, str(file)).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if texts == [""]:
        raise SettingsError(f"--texts {file}: it is empty; one text a line is accepted")
    return [text.strip() for text in texts]


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")  # Windows writes a byte order mark
    except UnicodeDecodeError as error:
        raise SettingsError(f"the text on {name} is not UTF-8: {error}; convert it") from None


def check_output(output: Path) -> None:
    """
    Raises:
      SettingsError: the file has another extension than a known one, or its folder does not exist.
    """
    if output.suffix.lower() not in OUTPUT_EXTENSIONS or output.is_dir():
        accepted = ", ".join(OUTPUT_EXTENSIONS)
        raise SettingsError(f"--output {output}: a file whose name ends in one of {accepted} is accepted")
    _check_parent(output)


def check_output_folder(output: Path, extension: str) -> None:
    """
    Raises:
      SettingsError: the extension is unknown, or the output is a file or cannot be made.
    """
    if extension not in OUTPUT_EXTENSIONS:
        accepted = ", ".join(known_extension[1:] for known_extension in OUTPUT_EXTENSIONS)
        raise SettingsError(f"--format {extension[1:]}: accepted: {accepted}")
    if output.suffix.lower() in OUTPUT_EXTENSIONS or (output.exists() and not output.is_dir()):
        raise SettingsError(f"--output {output}: several texts need a folder; give one, with --format for its files")
    _check_parent(output)


def _check_parent(output: Path) -> None:
    if not output.absolute().parent.is_dir():
        raise SettingsError(f"--output {output}: the folder {output.parent} does not exist; make it, or choose another")


def synthesize_to_file(
    output: Path, text: str, model: Path, vocoder: Path | None = None, *, as_json: bool = False, **sound: Any
) -> list[str]:
    """Synthesizes a text or an SSML document to a file. Returns the lines to print.

    Where the decoder does not end, the file is written all the same, to be listened to, and a line says so.

    Args:
      sound: `sampling`, `iterations`, `pace` and `speaker` of a `Synthesizer`.

    Raises:
      SettingsError: the model cannot read the text, or the vocoder reads mels of other settings.
      WorkError: the model is damaged, or not a TTS model.
    """
    check_output(output)

    from voxline.inference.text_encoder import TextEncoder

    TextEncoder.of_model(model).encode_speech(text)  # refuses it before TensorFlow is imported
    synthesizer = _load(model, vocoder, sound)

    # All of the sound is spooled first, because the file's samples are scaled by its peak.
    result = TextResult(text[:200], str(output), "done")
    with _spooled(synthesizer.stream(text), output) as spoken:
        result = spoken.described(result, synthesizer)
        spoken.write(output, synthesizer.sample_rate)

    if as_json:
        return [json.dumps(result.values(), ensure_ascii=False)]
    advice = [f"{result.error}; shorten the text, or train the model longer"] if result.error else []
    return [result.line(synthesizer.sample_rate), *advice]


def synthesize_many(
    output: Path,
    texts: Sequence[str],
    extension: str,
    model: Path,
    vocoder: Path | None = None,
    *,
    as_json: bool,
    **sound: Any,
) -> bool:
    """Synthesizes texts to a folder, and prints a line for each. Returns whether all were spoken."""
    complete = True
    with exit_on_signal("run the same command to resume"):
        # Each line is printed when its file is there, so that a reader of the lines may open it.
        for result, rate in synthesize_to_folder(output, texts, extension, model, vocoder, **sound):
            complete &= result.succeeded
            if not result.succeeded:
                typer.echo(f"voxline: {result.file}: {result.status.replace('_', ' ')}: {result.error}", err=True)
            if as_json:
                typer.echo(json.dumps(result.values(), ensure_ascii=False))
            elif result.succeeded:
                typer.echo(result.line(rate))
    return complete


def synthesize_to_folder(
    folder: Path, texts: Sequence[str], extension: str, model: Path, vocoder: Path | None = None, **sound: Any
) -> Iterator[tuple[TextResult, int | None]]:
    """Synthesizes texts to `0001.wav`, `0002.wav` and so on, by their number. Yields each result, and the sample rate.

    A file of an earlier call is kept if its text, the voice, the vocoder and the format are the same. A text that
    cannot be spoken leaves no file, also none of another text that had its number before, and does not stop the others.

    Raises:
      SettingsError: the vocoder reads mels of other settings; or the voice does not have the speaker.
      WorkError: the model is damaged, or not a TTS model; or another process writes to the folder.
    """
    from voxline.inference.saved_model import exported_folder, model_digest, read_model_info
    from voxline.inference.speech import check_speaker
    from voxline.inference.text_encoder import TextEncoder
    from voxline.store.files import atomic_write, remove_unfinished
    from voxline.store.hashing import hash_value

    encoder = TextEncoder.of_model(model)
    voice: list[Any] = [model_digest(model), model_digest(vocoder) if vocoder else None]
    voice += [repr(sorted(sound.items()))] if sound else []

    # Before the files of another speaker go.
    exported = exported_folder(model)
    check_speaker(read_model_info(exported).speakers, sound.get("speaker", ""), str(exported))
    with _locked(folder):
        # The lock is held, so that unfinished files are those of a process that was killed.
        remove_unfinished(folder, older_than=0)
        earlier = _read_record(folder)
        width = max(4, len(str(len(texts))))
        files = [f"{number:0{width}d}{extension}" for number in range(1, len(texts) + 1)]

        # A file stays if its key is the same: the hash of everything that decides how it sounds.
        keys = [hash_value([REVISION, text, extension, *voice]) for text in texts]
        reused = {
            file: earlier[file]
            for file, key in zip(files, keys, strict=True)
            if (line := earlier.get(file))
            and line.get("status") == "done"
            and line["key"] == key
            and (folder / file).is_file()
        }

        # Files of another text or voice go at once: after a kill, no file may have the number of a text that it is not.
        unrecorded = [file for file in files if file not in earlier and (folder / file).is_file()]
        for file in set(files) & (earlier.keys() - reused.keys()):
            (folder / file).unlink(missing_ok=True)
        unlisted = sorted(file for file in earlier.keys() - set(files) if (folder / file).is_file())
        notes = {"of another list of texts, and stay": unlisted, "of no earlier call; replaced": unrecorded}
        for note, noted_files in notes.items():
            if noted_files:
                listed = ", ".join(noted_files[:3]) + " …" * (len(noted_files) > 3)
                typer.echo(f"voxline: {folder}: {listed}: {note}", err=True)

        # The record is written again with the lines that are still true, and grows by a line with each file.
        with atomic_write(folder / RECORD_FILE, "w") as record:
            record.writelines(_json_line(earlier[file]) for file in (*reused, *unlisted))

        # The network is loaded for the first text that needs it: TensorFlow is not imported where nothing has changed.
        synthesizer = None
        rows = [
            (reused.get(file), text, TextResult(text[:200], str(folder / file), "done", key=key))
            for file, text, key in zip(files, texts, keys, strict=True)
        ]
        with open(folder / RECORD_FILE, "a", encoding="utf-8") as record:
            for group in _at_once(rows):
                refusals = [None if line else _refusal(encoder, text) for line, text, _ in group]
                new_texts = [
                    text for (line, text, _), refusal in zip(group, refusals, strict=True) if not (line or refusal)
                ]
                if new_texts:
                    synthesizer = synthesizer or _load(model, vocoder, sound)

                # `speeches` has the texts that are neither reused nor refused, in their order.
                speeches = iter(_speak_each(synthesizer, new_texts) if synthesizer else [])
                for (line, _, result), refusal in zip(group, refusals, strict=True):
                    if line:
                        seconds = float(line["seconds"])
                        yield (
                            dataclasses.replace(result, status="kept", seconds=seconds, pieces=int(line["pieces"])),
                            None,
                        )
                        continue
                    if refusal:
                        result = dataclasses.replace(
                            result, status="refused", reason=refusal.reason, error=str(refusal)
                        )
                    elif synthesizer:
                        result = _write_speech(synthesizer, next(speeches), result)

                    # Names without the folder, which may be moved.
                    record.write(_json_line({**result.values(), "file": Path(result.file).name}))
                    record.flush()
                    yield result, synthesizer.sample_rate if synthesizer else None


RowT = TypeVar("RowT", bound=tuple[Any, str, Any])


def _at_once(rows: Sequence[RowT]) -> Iterator[list[RowT]]:
    """Rows whose texts are spoken together: `TEXTS` of `CHARACTERS` at most, or a longer one alone."""
    group: list[RowT] = []
    for row in rows:
        if group and (len(group) == TEXTS or sum(len(text) for _, text, _ in [*group, row]) > CHARACTERS):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _speak_each(synthesizer: "Synthesizer", texts: Sequence[str]) -> list[Iterable["Speech"]]:
    """The parts of each text. Several are spoken in batches; if that fails, one by one."""
    if len(texts) > 1:
        try:
            return list(synthesizer.speak_each(texts))
        except VoxlineError as error:
            typer.echo(f"voxline: {len(texts)} texts together: {error}; each is spoken by itself", err=True)
    return [_stream(synthesizer, text) for text in texts]


def _stream(synthesizer: "Synthesizer", text: str) -> Iterator["Speech"]:
    """The parts of a text, encoded when the first one is asked for."""
    yield from synthesizer.stream(text)


def _load(model: Path, vocoder: Path | None, sound: Mapping[str, Any]) -> "Synthesizer":
    from voxline.inference.synthesizer import Synthesizer

    return Synthesizer(model, vocoder=vocoder, **sound)


def _refusal(encoder: "TextEncoder", text: str) -> "RefusedTextError | None":
    """The refusal of a text, found without the network; None if it can be spoken."""
    from voxline.inference.text_encoder import RefusedTextError

    try:
        encoder.encode_speech(text)
    except RefusedTextError as refused:
        return refused
    return None


def _write_speech(synthesizer: "Synthesizer", parts: Iterable["Speech"], result: TextResult) -> TextResult:
    output = Path(result.file)
    try:
        with _spooled(parts, output) as spoken:
            # Of many files nobody listens to each, so one that is not whole is not left among the good ones.
            if spoken.is_whole:
                spoken.write(output, synthesizer.sample_rate)
            return spoken.described(result, synthesizer)
    except VoxlineError as error:
        return dataclasses.replace(result, status="failed", error=str(error))


class _Spooled:
    """A waveform in a file without a name, so that its peak is known before it is written."""

    def __init__(self, parts: Iterable["Speech"], file: Any) -> None:
        import numpy as np

        from voxline.inference.speech import Speech

        self._file = file  # float32 samples, little-endian
        self.samples = 0
        self.pieces = 0
        self._worst = Speech(np.zeros(0, np.float32), False)
        self._peak = 1.0  # Griffin-Lim may exceed full scale; such a waveform is scaled down rather than clipped
        for part in parts:
            self._peak = max(self._peak, float(np.abs(part.waveform).max(initial=0.0)))
            self.samples += len(part.waveform)
            self.pieces += part.pieces
            if self.is_whole or (part.hit_limit and not self._worst.hit_limit):
                self._worst = dataclasses.replace(part, waveform=np.zeros(0, np.float32))
            file.write(part.waveform.astype("<f4").tobytes())

    @property
    def is_whole(self) -> bool:
        """True if every part of the text was said to its end."""
        return self._worst.is_whole

    def described(self, result: TextResult, synthesizer: "Synthesizer") -> TextResult:
        """The result with the length of the waveform, and whether it was cut off."""
        seconds = round(self.samples / synthesizer.sample_rate, 3)
        measured = dataclasses.replace(result, seconds=seconds, pieces=self.pieces)
        if self.is_whole:
            return measured
        status: Status = "cut_off" if self._worst.hit_limit else self._worst.pace_fault or "cut_off"
        return dataclasses.replace(measured, status=status, error=synthesizer.about(self._worst))

    def write(self, output: Path, rate: int) -> None:
        import numpy as np

        from voxline.audio.ffmpeg import write_encoded
        from voxline.audio.wav import wav_header
        from voxline.store.files import atomic_write

        # Compressed files are encoded from one array; only a WAV is written block by block, however long it is.
        if output.suffix.lower() != ".wav":
            write_encoded(output, np.concatenate([*self._blocks(), np.zeros(0, np.int16)]), rate)
            return
        if self.samples > MOST_WAV_SAMPLES:
            raise WorkError(f"{output}: {self.samples / rate / 3600:.1f} h do not fit into a WAV; split the text")
        with atomic_write(output) as file:
            file.write(wav_header(self.samples, rate))
            for block in self._blocks():
                file.write(block.astype("<i2").tobytes())

    def _blocks(self) -> Iterator[Any]:
        """int16 samples, a block at a time."""
        import numpy as np

        from voxline.audio.wav import to_int16

        self._file.seek(0)
        while block := self._file.read(BLOCK_BYTES):
            yield to_int16(np.frombuffer(block, "<f4") / np.float32(self._peak))


@contextlib.contextmanager
def _spooled(parts: Iterable["Speech"], output: Path) -> Iterator[_Spooled]:
    # On the disk of the output, which has room for about as much.
    with tempfile.TemporaryFile(dir=output.absolute().parent) as file:
        yield _Spooled(parts, file)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from voxline.store.file_locks import open_lock_file, try_lock

    folder.mkdir(exist_ok=True)
    descriptor = open_lock_file(folder / LOCK_FILE)
    try:
        if not try_lock(descriptor):
            raise WorkError(f"{folder}: another process synthesizes to it; wait for it, or choose another folder")
        yield
    finally:
        os.close(descriptor)


def _read_record(folder: Path) -> dict[str, dict[str, Any]]:
    """The lines of the record by file. One that a kill cut short counts as missing, and so does another program's."""
    lines: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / RECORD_FILE).read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                values = json.loads(line)
                if isinstance(values, dict) and {"file", "key", "seconds", "pieces"} <= values.keys():
                    lines[str(values["file"])] = values  # the last line of a file counts
    return lines


def _json_line(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"
