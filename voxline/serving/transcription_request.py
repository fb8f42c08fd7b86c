"""A request for a transcript, as OpenAI's route has it: each field is honoured, or refused by its name.

Fields: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from voxline.errors import SettingsError
from voxline.inference.transcript import Transcript
from voxline.inference.written_transcript import WritingChoices, write_transcript
from voxline.serving.canary import SESSION_FIELD
from voxline.serving.capture import CONSENT_FIELD, SPEAKER_FIELD
from voxline.serving.refusals import RefusedError
from voxline.serving.subtitles import cues, srt, verbose, vtt

SHAPES = ("json", "text", "srt", "verbose_json", "vtt")
STREAMED = ("json", "text")
EVENTS_TYPE = "text/event-stream"
WORD = "word"
SEGMENT = "segment"
HONOURED = frozenset({
    "file", "model", "response_format", "stream", "timestamp_granularities", "temperature", "language", "prompt",
    "chunking_strategy", "itn", "punctuate", SESSION_FIELD, CONSENT_FIELD, SPEAKER_FIELD,
})  # fmt: skip
"""Fields of a form; a list may have `[]` behind its name. A prompt must be empty."""
WRITING = ("itn", "punctuate")
LANGUAGE = re.compile(r"[a-zA-Z]{2,3}([-_][a-zA-Z0-9]{2,8})*")


@dataclass(frozen=True)
class TranscriptionRequest:
    """A client's request for a transcript.

    Attributes:
      shape: its response_format, one of SHAPES.
      granularities: of the times that verbose_json has.
      language: that the recording is said to be in, such as "en"; "": not said.
      is_streamed: the text comes as server-sent events.
      writing: the form of the transcript.
    """

    model: str
    recording: UploadFile
    shape: str
    granularities: frozenset[str]
    is_streamed: bool
    language: str
    writing: WritingChoices

    @classmethod
    def read(cls, form: FormData, writing: WritingChoices) -> "TranscriptionRequest":
        """Reads a request's form.

        Args:
          writing: the form of the transcript, where the request does not say.

        Raises:
          RefusedError: it wants what is not here.
        """
        values = dict(_read_fields(form))
        shape = _only(values, "response_format", "json")
        if shape not in SHAPES:
            raise _refused(f"{shape[:40]!r}: {', '.join(SHAPES)} is accepted", "response_format")
        is_streamed = _only(values, "stream", "false").lower()
        if is_streamed not in ("true", "false"):
            raise _refused("true or false is accepted", "stream")

        granularities = frozenset(values.get("timestamp_granularities", ()))
        if granularities - {WORD, SEGMENT}:
            raise _refused(f"{WORD} and {SEGMENT} are accepted", "timestamp_granularities")
        if granularities and shape != "verbose_json":
            raise _refused("times are in verbose_json alone; ask for it, or leave them out", "timestamp_granularities")
        if is_streamed == "true" and shape not in STREAMED:
            raise _refused(f"a stream has text alone: {' or '.join(STREAMED)} is accepted", "response_format")

        # Settings that change nothing here are taken where they ask for what is done anyway.
        temperature = _only(values, "temperature", "0")
        if not re.fullmatch(r"0(\.0*)?", temperature):
            raise _refused("the most probable text is written, without sampling: 0 is accepted", "temperature")
        if _only(values, "prompt", "").strip():
            raise _refused("a model here takes no prompt; leave it out", "prompt")
        if _only(values, "chunking_strategy", "auto") != "auto":
            raise _refused("long recordings are cut at pauses: auto is accepted", "chunking_strategy")
        language = _only(values, "language", "")
        if language and not LANGUAGE.fullmatch(language):
            raise _refused("a code such as en is accepted", "language")

        choices: dict[str, object] = {name: _only(values, name, "") for name in WRITING if name in values}
        try:
            writing = WritingChoices.of_texts(choices, writing)
        except SettingsError as error:
            raise _refused(str(error), str(error).partition(":")[0]) from None

        recording = form.get("file")
        if not isinstance(recording, UploadFile):
            raise _refused("no recording; send one as a file", "file")
        model = _only(values, "model", "")
        return cls(model, recording, shape, granularities, is_streamed == "true", language, writing)

    def check_language(self, spoken: str) -> None:
        """Refuses a recording in another language than the model's.

        Args:
          spoken: what the model is asked for; "": it has one language, and does not say which.

        Raises:
          RefusedError: the client names another one.
        """
        if self.language and not is_of_language(self.language, spoken):
            raise _refused(f"{self.language}: the model hears {spoken}; name that, or leave it out", "language")

    def answer(self, transcript: Transcript, spoken: str = "", sent: str = "", capture: str = "") -> Response:
        """The transcript in the form that the client wants.

        Args:
          spoken: the language that the model was asked for, if it is known.
          sent: the beginning of the text, of which the client of a stream has events.
          capture: the id under which the recording is kept; "": it is not.
        """
        # Captures and canaries have what was heard.
        transcript = write_transcript(transcript, self.writing)
        if self.is_streamed:
            return StreamingResponse(_events(transcript, sent, capture), media_type=EVENTS_TYPE)
        if self.shape == "json":
            usage = {"type": "duration", "seconds": round(transcript.seconds, 3)}
            return JSONResponse({"text": transcript.text, "usage": usage})
        if self.shape == "verbose_json":
            described = {**verbose(transcript), **({"language": spoken} if spoken else {})}
            # Without a wish, both are there.
            for granularity, key in ((WORD, "words"), (SEGMENT, "segments")):
                if self.granularities and granularity not in self.granularities:
                    del described[key]
            return JSONResponse(described)
        text = transcript.text + "\n" if self.shape == "text" else (srt if self.shape == "srt" else vtt)(transcript)
        return PlainTextResponse(text)


def is_of_language(named: str, spoken: str) -> bool:
    """Returns whether a language as clients name it may be the one that a model is asked for ("": any may).

    >>> is_of_language("en-GB", "en"), is_of_language("de", "en"), is_of_language("de", "")
    (True, False, True)
    """
    return not spoken or re.split("[-_]", named.casefold())[0] == spoken


def delta_event(text: str) -> str:
    """The event of a piece of a transcript's text."""
    return event_of({"type": "transcript.text.delta", "delta": text})


def event_of(values: dict[str, Any]) -> str:
    """A server-sent event of the type in its values.

    Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    return f"event: {values['type']}\ndata: {json.dumps(values, ensure_ascii=False)}\n\n"


def _events(transcript: Transcript, sent: str, capture: str) -> Iterator[str]:
    """A delta for each cue of what was not sent yet, which with that are the text, and the text."""
    if not transcript.text.startswith(sent):
        raise ValueError("a text is no continuation of what was sent of it")
    written = len(sent)
    place = 0

    # Cues of what was sent are passed over; the one in which that ends is sent from there on.
    for _, _, text in cues(transcript):
        begin = transcript.text.find(text, place)
        if begin < 0:
            continue
        place = begin + len(text)
        if place > written:
            yield delta_event(transcript.text[written:place])
            written = place
    if written < len(transcript.text):
        yield delta_event(transcript.text[written:])
    fields = {"capture": capture} if capture else {}
    yield event_of({"type": "transcript.text.done", "text": transcript.text, **fields})


def _read_fields(form: FormData) -> Iterator[tuple[str, list[str]]]:
    """The text fields of a form, by name.

    Raises:
      RefusedError: a field is not honoured here.
    """
    for field in dict.fromkeys(form.keys()):
        name = field.removesuffix("[]")
        if name not in HONOURED:
            raise _refused(f"it is not served here; leave it out. Served are {', '.join(sorted(HONOURED))}", name[:60])
        yield name, [value for value in form.getlist(field) if isinstance(value, str)]


def _only(values: Mapping[str, list[str]], name: str, default: str) -> str:
    """The value of a field that is no list."""
    texts = values.get(name, [])
    if len(texts) > 1:
        raise _refused("one value is accepted", name)
    return texts[0] if texts and texts[0] else default


def _refused(message: str, param: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message, param)
