"""Text to speech with OpenAI's route: a JSON body in, a recording out. Its text may be SSML.

A recording is answered whole, or, as samples or a WAV file, in pieces while the rest is spoken: as they are, or as the
events speech.audio.delta and speech.audio.done.

Route: https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

import base64
import contextlib
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.responses import Response, StreamingResponse

from voxline.audio.wav import to_int16, wav_header
from voxline.errors import SettingsError, VoxlineError
from voxline.inference.speech import Speech, check_speaker
from voxline.inference.synthesizer import Synthesizer
from voxline.serving.refusals import RefusedError, read_json_object
from voxline.serving.transcription_request import EVENTS_TYPE, event_of
from voxline.store.scratch import scratch_root

MEDIA_TYPES = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "flac": "audio/flac", "wav": "audio/wav",
    "pcm": "application/octet-stream",
}  # fmt: skip
"""Of a response_format."""
STREAMED = ("pcm", "wav")
"""Formats that need no end before they begin."""
FIRST_SECONDS = 0.2
"""Of a sentence, after which its first piece is sent."""
ENDLESS = 0xFFFFFFFF
"""The sizes in the header of a WAV file whose end is not known, as OpenAI and ffmpeg write them."""
MAX_CHARACTERS = 4096
"""Of a text, as OpenAI has it."""
FIELDS = ("model", "input", "voice", "response_format", "stream_format", "speed", "instructions")
"""Of a body. Instructions must be empty, and speed 1."""


@dataclass(frozen=True)
class SpeechRequest:
    """A client's request for speech.

    Attributes:
      shape: its response_format, one of MEDIA_TYPES.
      voice: the name of a speaker, which a model of several has; "": its own choice.
      stream_format: audio or sse, in which it comes while it is spoken; "": audio, of samples alone.
    """

    model: str
    text: str
    shape: str
    voice: str = ""
    stream_format: str = ""

    @property
    def is_streamed(self) -> bool:
        """True if pieces are sent while the rest is spoken."""
        return self.shape in STREAMED and (self.shape == "pcm" or self.stream_format != "")

    @property
    def has_events(self) -> bool:
        return self.stream_format == "sse"

    @property
    def media_type(self) -> str:
        return EVENTS_TYPE if self.has_events else MEDIA_TYPES[self.shape]

    def piece(self, samples: bytes, sample_rate: int, *, is_first: bool) -> str | bytes:
        """A part of a streamed response.

        Args:
          samples: as `stream_speech` tells them.
          is_first: of the response.
        """
        # A header stands before the first samples alone.
        begins_file = is_first and self.shape == "wav"
        sound = _endless_wav_header(sample_rate) + samples if begins_file else samples
        if not self.has_events:
            return sound
        return event_of({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()})

    def answer(self, sound: bytes, sample_rate: int, sent: int) -> Response:
        """The response once all is spoken.

        Args:
          sound: the recording; of a streamed request its samples.
          sent: bytes of these of which the client has pieces.
        """
        if not self.is_streamed:
            return Response(sound, media_type=self.media_type)
        # A file whose end is known says it.
        if not (sent or self.has_events):
            header = wav_header(len(sound) // 2, sample_rate) if self.shape == "wav" else b""
            return Response(header + sound, media_type=self.media_type)

        # What the client does not have yet, and of events the last one.
        pieces: list[str | bytes] = []
        if len(sound) > sent:
            pieces.append(self.piece(sound[sent:], sample_rate, is_first=not sent))
        if self.has_events:
            # A voice has no tokens; its text is counted in characters.
            usage = {"input_tokens": len(self.text), "output_tokens": 0, "total_tokens": len(self.text)}
            pieces.append(event_of({"type": "speech.audio.done", "usage": usage}))
        return StreamingResponse(iter(pieces), media_type=self.media_type)

    @classmethod
    def read(cls, body: bytes) -> "SpeechRequest":
        """Reads a request's body. `voice` is not used by a model of one speaker.

        Raises:
          RefusedError: it is something else, or wants what is not here.
        """
        values = read_json_object(body)
        if values is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a JSON object is accepted")
        for field in values:
            if field not in FIELDS:
                message = f"it is not served here; leave it out. Known are {', '.join(FIELDS)}"
                raise RefusedError(HTTPStatus.BAD_REQUEST, message, field[:60])

        model = values.get("model")
        text = values.get("input")
        shape = values.get("response_format", "mp3")

        if not isinstance(model, str):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the name of a model is accepted, as a string", "model")
        if not isinstance(text, str) or not 0 < len(text) <= MAX_CHARACTERS:
            message = f"a text of 1 to {MAX_CHARACTERS:,} characters is accepted"
            raise RefusedError(HTTPStatus.BAD_REQUEST, message, "input")
        if not isinstance(shape, str) or shape not in MEDIA_TYPES:
            message = f"{str(shape)[:40]!r}: {', '.join(MEDIA_TYPES)} is accepted"
            raise RefusedError(HTTPStatus.BAD_REQUEST, message, "response_format")

        # What OpenAI's clients send and a voice does not have is refused, unless it changes nothing.
        if values.get("speed", 1) != 1:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a voice has one speed, 1", "speed")
        if not isinstance(values.get("voice", ""), str | dict):  # OpenAI's own voices have objects, too
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the name of a voice is accepted, as a string", "voice")
        instructions = values.get("instructions")
        if instructions is not None and (not isinstance(instructions, str) or instructions.strip()):
            message = "a voice here takes no instructions; leave them out"
            raise RefusedError(HTTPStatus.BAD_REQUEST, message, "instructions")
        stream_format = values.get("stream_format", "")
        if stream_format not in ("", "audio", "sse"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "audio and sse are accepted", "stream_format")
        if stream_format == "sse" and shape not in STREAMED:
            message = f"events have a response_format of {' or '.join(STREAMED)}"
            raise RefusedError(HTTPStatus.BAD_REQUEST, message, "stream_format")
        # OpenAI's custom voices are objects with an id.
        voice = values.get("voice", "")
        name = str(voice.get("id", "")) if isinstance(voice, dict) else voice
        return cls(model, text, shape, unicodedata.normalize("NFC", name), stream_format)


def synthesize_speech(voice: Synthesizer, request: SpeechRequest) -> tuple[bytes, float]:
    """The recording in its format, and its length in seconds; runs in a thread.

    Raises:
      RefusedError: the voice cannot read the text, does not end, or stops at once; or nothing can encode the format.
    """
    import numpy as np

    from voxline.audio.ffmpeg import write_encoded

    with _refusals():
        speech = voice.speak(request.text, _speaker(voice, request))
    _refuse_fault(voice, speech)
    # Griffin-Lim may exceed full scale; such a waveform is scaled down rather than clipped.
    samples = to_int16(speech.waveform / float(np.abs(speech.waveform).max(initial=1.0)))
    seconds = len(samples) / voice.sample_rate
    if request.shape in ("wav", "pcm"):
        header = wav_header(len(samples), voice.sample_rate) if request.shape == "wav" else b""
        return header + np.ascontiguousarray(samples, "<i2").tobytes(), seconds

    # ffmpeg writes a file, whose format follows from its name.
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        file = Path(folder, f"speech.{request.shape}")
        try:
            write_encoded(file, samples, voice.sample_rate)
        except VoxlineError as error:
            message = str(error).replace(str(file), request.shape)
            raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message) from None
        return file.read_bytes(), seconds


def stream_speech(
    voice: Synthesizer, request: SpeechRequest, tell: Callable[[tuple[bytes, int]], None] | None
) -> tuple[bytes, float]:
    """The samples, little-endian int16, and their length in seconds; runs in a thread.

    Args:
      tell: takes the samples of each piece and their rate, as soon as they are there.

    Raises:
      RefusedError: the voice cannot read the text, does not end, or stops at once.
    """
    import numpy as np

    peak = 1.0
    pieces = []
    with _refusals():
        for speech in voice.stream(request.text, _speaker(voice, request), first_seconds=FIRST_SECONDS):
            _refuse_fault(voice, speech)
            # Griffin-Lim may exceed full scale; from there on, the rest is as much softer.
            peak = max(peak, float(np.abs(speech.waveform).max(initial=0.0)))
            # The whole is kept too: where nothing may be sent before the end, it is the answer.
            samples = np.ascontiguousarray(to_int16(speech.waveform / peak), "<i2").tobytes()
            pieces.append(samples)
            if tell is not None:
                tell((samples, voice.sample_rate))
    sound = b"".join(pieces)
    return sound, len(sound) / 2 / voice.sample_rate


def _speaker(voice: Synthesizer, request: SpeechRequest) -> str:
    """The speaker that is asked for. Clients of OpenAI always name a voice, also one of a single speaker."""
    speaker = request.voice if voice.speakers else ""
    try:
        check_speaker(voice.speakers, speaker, request.model)
    except SettingsError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), "voice") from None
    return speaker


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), "input") from None
    except VoxlineError as error:
        raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None


def _refuse_fault(voice: Synthesizer, speech: Speech) -> None:
    """Half a sentence is no answer."""
    if fault := voice.about(speech):
        message = f"{fault}; try another wording, or shorter sentences"
        raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message)


def _endless_wav_header(sample_rate: int) -> bytes:
    header = bytearray(wav_header(0, sample_rate))
    for place in (4, 40):  # the sizes of the file and of its samples
        header[place : place + 4] = ENDLESS.to_bytes(4, "little")
    return bytes(header)
