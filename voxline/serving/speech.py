"""Text to speech with OpenAI's route: a JSON body in, a recording out. Its text may be SSML.

Route: https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

import tempfile
import unicodedata
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from voxline.errors import SettingsError, VoxlineError
from voxline.inference.synthesizer import Synthesizer, check_speaker
from voxline.serving.refusals import RefusedError, read_json_object
from voxline.store.scratch import scratch_root

MEDIA_TYPES = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "flac": "audio/flac", "wav": "audio/wav",
    "pcm": "application/octet-stream",
}  # fmt: skip
"""Of a response_format."""
MAX_CHARACTERS = 4096
"""Of a text, as OpenAI has it."""


@dataclass(frozen=True)
class SpeechRequest:
    """A client's request for speech.

    Attributes:
      shape: its response_format, one of MEDIA_TYPES.
      voice: the name of a speaker, which a model of several has; "": its own choice.
    """

    model: str
    text: str
    shape: str
    voice: str = ""

    @classmethod
    def read(cls, body: bytes) -> "SpeechRequest":
        """Reads a request's body. `instructions` are not used, nor `voice` by a model of one speaker.

        Raises:
          RefusedError: it is something else, or wants what is not here.
        """
        values = read_json_object(body)
        if values is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a JSON object is accepted")

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
        if not isinstance(values.get("instructions", ""), str | None):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a text is accepted", "instructions")
        if values.get("stream_format", "audio") != "audio":
            raise RefusedError(HTTPStatus.BAD_REQUEST, "audio is accepted", "stream_format")
        # OpenAI's custom voices are objects with an id.
        voice = values.get("voice", "")
        name = str(voice.get("id", "")) if isinstance(voice, dict) else voice
        return cls(model, text, shape, unicodedata.normalize("NFC", name))


def synthesize_speech(voice: Synthesizer, request: SpeechRequest) -> tuple[bytes, float]:
    """The recording in its format, and its length in seconds; runs in a thread.

    Raises:
      RefusedError: the voice cannot read the text, does not end, or stops at once; or nothing can encode the format.
    """
    import numpy as np

    from voxline.audio.ffmpeg import write_encoded
    from voxline.audio.wav import to_int16, wav_header

    # Clients of OpenAI always name a voice, which one of a single speaker is not asked for.
    speaker = request.voice if voice.speakers else ""
    try:
        check_speaker(voice.speakers, speaker, request.model)
    except SettingsError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), "voice") from None
    try:
        speech = voice.speak(request.text, speaker)
    except SettingsError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), "input") from None
    except VoxlineError as error:
        raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None
    # Half a sentence is no answer.
    if fault := voice.about(speech):
        message = f"{fault}; try another wording, or shorter sentences"
        raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message)
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
