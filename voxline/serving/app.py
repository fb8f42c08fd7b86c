"""The HTTP server of recognizers and voices, with OpenAI's routes.

  POST /v1/audio/transcriptions, POST /v1/audio/speech, GET /v1/models

  /v1/realtime   a WebSocket with OpenAI's events of a transcription session: `transcription_session`
  /v1/stream     a WebSocket with fewer messages, of our own: `realtime`
  GET /          a page with a microphone, and a text box for voices
  GET /healthz   what serves; GET /metrics for Prometheus

Every limit has its answer: a body that is too large or a recording that is too long gets 413, a request to a busy
server 429 before its body is read, a client that sends too slowly 408, a recording without room on the disk 507. Errors
have OpenAI's form. Each answer says which version heard it (`x-voxline-version`, `x-voxline-digest`). A share of what
callers agreed to give may be kept: `capture` says how.

Routes: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import asyncio
import contextlib
import errno
import functools
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from voxline.audio.decode_pool import DecodeLimits, DecodePool
from voxline.cancellation import Cancellation
from voxline.errors import VoxlineError
from voxline.inference.recognizer import Recognizer
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.transcript import Transcript
from voxline.inference.written_transcript import WritingChoices
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE, PRODUCTION
from voxline.rejects import BadAudioError, Reason
from voxline.serving.access import CALLER, Access, caller_of, may_consent
from voxline.serving.canary import ARM_HEADER, SESSION_FIELD, SESSION_HEADER, Canary, Measure
from voxline.serving.capture import (
    CAPTURE_HEADER,
    CONSENT_FIELD,
    CONSENT_HEADER,
    SPEAKER_FIELD,
    SPEAKER_HEADER,
    Capture,
    joined,
)
from voxline.serving.deadline import within
from voxline.serving.followed_model import FollowedModel, LoadedVersion
from voxline.serving.health import Health, describe_model
from voxline.serving.limits import ServingLimits
from voxline.serving.live_answer import CLIENT_LEFT, LiveAnswer, LiveResponse, LiveSpeech, LiveTranscript
from voxline.serving.metrics import ServerMetrics
from voxline.serving.realtime import RealtimeRoute
from voxline.serving.refusals import RefusedError, answer_known, answer_unexpected, error_response
from voxline.serving.speech import SpeechRequest, stream_speech, synthesize_speech
from voxline.serving.transcription_request import TranscriptionRequest
from voxline.serving.transcription_session import TranscriptionSession
from voxline.serving.uploads import BUSY, Uploads
from voxline.store.scratch import scratch_root

if TYPE_CHECKING:
    from voxline.inference.waveforms import Waveform

Result = TypeVar("Result")
Engine = TypeVar("Engine", Recognizer, Synthesizer)
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; media-src blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ANSWER_HEADERS = ("x-voxline-version", "x-voxline-digest", "x-voxline-sample-rate", ARM_HEADER, CAPTURE_HEADER)
PAGE_HEADERS = {"content-security-policy": PAGE_POLICY, "x-content-type-options": "nosniff"}


class RecognizerServer:
    """The application of some models.

    Args:
      models: the first is what a request without a known name cannot have: a name is required.
      capture: keeps a share of the recordings; it is stopped with the server.
      canaries: of models that follow production; they are stopped with the server.
      access: who may call; None: as `Access` has it.
      writing: the form of transcripts, where a request does not say.
    """

    def __init__(
        self,
        models: Sequence[FollowedModel],
        limits: ServingLimits | None = None,
        capture: Capture | None = None,
        canaries: Sequence[Canary] = (),
        access: Access | None = None,
        writing: WritingChoices | None = None,
    ) -> None:
        self._writing = writing or WritingChoices()
        self.limits = limits or ServingLimits()
        self._capture = capture
        self._models = {model.reference: model for model in models}
        self._canaries = {canary.model: canary for canary in canaries}

        self._pool = ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="transcribe")

        # Candidates decode as well, so they must not take the decoders of production.
        decode_limits = DecodeLimits(self.limits.max_seconds, self.limits.decode_seconds)
        self._decoders = DecodePool(decode_limits, self.limits.concurrency * (2 if canaries else 1))

        # Changed on the event loop only, so without a lock.
        self._pending = 0

        self.uploads = Uploads(self.limits, lambda: self._pending)
        self.realtime = RealtimeRoute(self._find_recognizer, self.limits, capture, self._canaries, self._writing)
        self.metrics = ServerMetrics(models, capture, canaries, lambda: self.realtime.streams)

        self.access = access or Access()
        self.access.count = lambda status: self.metrics.answers.labels(str(status)).inc()
        self.health = Health(
            self._models, self._canaries, self.metrics, self.limits, self.access, lambda: self._pending
        )

        self.app = Starlette(
            routes=[
                Route("/v1/audio/transcriptions", self._answered(self._transcribe), methods=["POST"]),
                Route("/v1/audio/speech", self._answered(self._speak), methods=["POST"]),
                WebSocketRoute("/v1/realtime", self._realtime),
                WebSocketRoute("/v1/stream", self._stream),
                Route("/v1/models", self._answered(self._list_models)),
                Route("/v1/models/{name}", self._answered(self._show_model)),
                *self.health.routes(),
                Route("/", self._page),
                Route("/page.js", self._script),
            ],
            middleware=self.access.middleware(expose=ANSWER_HEADERS),
            exception_handlers={HTTPException: answer_known, Exception: answer_unexpected},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        # One decoder is started with the server; the others when they are needed.
        self._decoders.start(1)
        try:
            async with self.health.beating():
                yield
        finally:
            # In order: no new versions, then the captures, then the sessions and threads that use them.
            for model in self._models.values():
                model.stop()
            if self._capture:
                await asyncio.to_thread(self._capture.stop)
            for canary in self._canaries.values():
                await asyncio.to_thread(canary.stop)
            self.realtime.stop()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._decoders.close()

    def _answered(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Turns refusals into answers, and counts."""

        async def answer(request: Request) -> Response:
            start = time.perf_counter()
            try:
                response = await handle(request)
            except RefusedError as refused:
                response = error_response(refused.status, str(refused), refused.param)
            except HTTPException as error:  # Starlette's own, of a form that it cannot read
                response = await answer_known(request, error)
            except ClientDisconnect:
                response = Response(status_code=CLIENT_LEFT)
            except asyncio.CancelledError:  # the server ends, and waits no longer
                response = error_response(HTTPStatus.SERVICE_UNAVAILABLE, "the server ends; try again")
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    self.metrics.answers.labels("500").inc()
                    raise
                print_status(f"serve: {tempfile.gettempdir()}: {error.strerror}")
                message = "the server's disk has no room for this recording"
                response = error_response(HTTPStatus.INSUFFICIENT_STORAGE, message)
            except Exception:
                self.metrics.answers.labels("500").inc()
                raise  # to answer_unexpected; uvicorn writes the traceback

            if "expect" in request.headers and response.status_code >= HTTPStatus.BAD_REQUEST:
                response.headers["connection"] = "close"  # the client may send its body, or not

            if isinstance(response, LiveResponse):
                response.count = functools.partial(self._count, request, start)  # when all is sent
            else:
                self._count(request, start, response.status_code)
            return response

        return answer

    def _count(self, request: Request, start: float, status: int) -> None:
        """Counts an answer; everything is counted, refused requests too."""
        self.metrics.answers.labels(str(int(status))).inc()
        seconds = time.perf_counter() - start
        self.metrics.seconds.observe(seconds)

        if caller := request.scope.get(CALLER):
            self.metrics.count_caller(caller, status)
            request_line = f"{request.method} {request.scope['route'].path}"
            print_status(f"serve: {caller}: {request_line}: {int(status)} in {seconds:.2f} s")

    async def _transcribe(self, request: Request) -> Response:
        async with contextlib.AsyncExitStack() as stack:
            upload = await stack.enter_async_context(self.uploads.admitted(caller_of(request.scope)))
            form = await self.uploads.read_form(request, upload, stack)
            # What can be refused without decoding is refused here.
            wish = TranscriptionRequest.read(form, self._writing)
            model = self._find(wish.model)
            wish.check_language(_served(model, Recognizer)[1].info.language)  # refuses a voice, too

            if not wish.is_streamed:
                return await self._answer_transcript(request, form, wish, model)
            live = LiveTranscript(wish.writing)
            return await live.answer(self._answer_transcript(request, form, wish, model, live), stack.pop_all())

    async def _answer_transcript(
        self,
        request: Request,
        form: FormData,
        wish: TranscriptionRequest,
        model: FollowedModel,
        live: LiveTranscript | None = None,
    ) -> Response:
        """The response with the transcript of a recording, once all of it is heard.

        Args:
          live: takes the text while it is heard.
        """
        # The upload may be read twice, by the candidate and by production: one at a time.
        hear = functools.partial(self._hear, wish.recording, threading.Lock(), live)
        sessions = [*request.headers.getlist(SESSION_HEADER), *map(str, form.getlist(SESSION_FIELD))]
        (transcript, waveform, rate), served, arm = await self._answer(
            request, model, joined(sessions), hear, _measure_transcript, live
        )
        self.metrics.audio.inc(transcript.seconds)

        # Captured only after the transcript is known, and without making it wait.
        capture_id = ""
        if self._capture:
            consent = joined([*request.headers.getlist(CONSENT_HEADER), *map(str, form.getlist(CONSENT_FIELD))])
            speaker = joined([*request.headers.getlist(SPEAKER_HEADER), *map(str, form.getlist(SPEAKER_FIELD))])
            consent = consent if may_consent(request.scope, request.headers) else ""
            identity = model.reference.partition("@")[0], served.version, served.digest
            capture_id = self._capture.offer(*identity, transcript, waveform, rate, consent=consent, speaker=speaker)

        language = served.engine.info.language
        response = _signed(wish.answer(transcript, language, live.sent if live else "", capture_id), served, arm)
        if capture_id:
            response.headers[CAPTURE_HEADER] = capture_id
        return response

    async def _speak(self, request: Request) -> Response:
        async with contextlib.AsyncExitStack() as stack:
            upload = await stack.enter_async_context(self.uploads.admitted(caller_of(request.scope)))
            wish = SpeechRequest.read(await self.uploads.read_body(request, upload))
            model = self._find(wish.model)
            _served(model, Synthesizer)  # refuses a recognizer

            if not wish.is_streamed:
                return await self._answer_speech(request, wish, model)
            live = LiveSpeech(wish)
            return await live.answer(self._answer_speech(request, wish, model, live), stack.pop_all())

    async def _answer_speech(
        self, request: Request, wish: SpeechRequest, model: FollowedModel, live: LiveSpeech | None = None
    ) -> Response:
        """The response with the sound of a text, once all of it is spoken.

        Args:
          live: takes the sound while it is spoken.
        """
        session = joined(request.headers.getlist(SESSION_HEADER))
        say = functools.partial(synthesize_speech, request=wish)
        if wish.is_streamed:
            say = functools.partial(stream_speech, request=wish, tell=live.tell if live else None)
        (sound, seconds), served, arm = await self._answer(
            request, model, session, say, lambda result: (result[1], None), live
        )
        self.metrics.spoken.inc(seconds)
        return _signed(wish.answer(sound, served.engine.sample_rate, live.sent if live else 0), served, arm)

    async def _answer(
        self,
        request: Request,
        model: FollowedModel,
        session: str,
        work: Callable[[Any], Result],
        measure: Measure[Result],
        live: LiveAnswer | None = None,
    ) -> tuple[Result, LoadedVersion, str]:
        """The result of a request, the version that it is of, and the arm of the canary; "" without one.

        Args:
          work: with an engine, in a thread of the pool. It is ended if the client leaves or waits for too long.
          live: begins when it is sure which version answers.
        """
        # The work runs in threads, which cannot be killed: it looks at the cancellation now and then.
        cancellation = Cancellation()

        def cancellable(engine: Any) -> Result:
            with cancellation.active():
                return work(engine)

        answering = self._answer_by_arm(model, session, cancellable, measure, live)
        return await within(self.limits.request_seconds, request, cancellation, answering)

    async def _answer_by_arm(
        self,
        model: FollowedModel,
        session: str,
        work: Callable[[Any], Result],
        measure: Measure[Result],
        live: LiveAnswer | None,
    ) -> tuple[Result, LoadedVersion, str]:
        canary = self._canaries.get(model.reference.removesuffix(f"@{PRODUCTION}"))
        if canary and (turn := canary.begin(session)):
            # Where a candidate fails, production answers, so nothing of a candidate is sent before its end.
            if live and not turn.chosen:
                live.begin(functools.partial(_signed, served=turn.trial.production, arm=PRODUCTION))
            result, served = await canary.answer(turn, work, self._run, measure)
            return result, served, CANDIDATE if served is turn.trial.candidate else PRODUCTION

        # Read once: the model may be swapped while the request runs.
        if (current := model.current) is None:
            raise RuntimeError(f"{model.reference}: it served a moment ago, and what serves stays")
        if live:
            live.begin(functools.partial(_signed, served=current, arm=""))
        return await self._run(lambda: work(current.engine)), current, ""

    async def _realtime(self, socket: WebSocket) -> None:
        await self.realtime.answer(socket, self.metrics, TranscriptionSession)

    async def _stream(self, socket: WebSocket) -> None:
        await self.realtime.answer(socket, self.metrics)

    def _find_recognizer(self, name: str) -> tuple[FollowedModel, LoadedVersion, Recognizer]:
        model = self._find(name)
        return (model, *_served(model, Recognizer))

    async def _run(self, work: Callable[[], Result]) -> Result:
        """Runs work on the pool, if it need not wait behind too much other work."""
        # Requests were let in before; there are more only where their clients have gone.
        if self._pending >= max(self.limits.uploads, self.limits.concurrency + self.limits.queue):
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, BUSY)

        self._pending += 1
        loop = asyncio.get_running_loop()
        submitted = self._pool.submit(work)
        done = asyncio.wrap_future(submitted)
        done.add_done_callback(lambda future: future.cancelled() or future.exception())  # seen, if nobody waits
        submitted.add_done_callback(functools.partial(self._one_less, loop))

        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            submitted.cancel()  # it leaves the queue; what runs counts until it has ended
            raise

    def _one_less(self, loop: asyncio.AbstractEventLoop, _: object) -> None:
        # Counted on the loop: only its thread changes the number.
        def subtract() -> None:
            self._pending -= 1
            self.uploads.let_in()

        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing counts any more
            loop.call_soon_threadsafe(subtract)

    def _hear(
        self, recording: UploadFile, reading: threading.Lock, live: LiveTranscript | None, recognizer: Recognizer
    ) -> "tuple[Transcript, Waveform, int]":
        """Decodes and transcribes a recording; runs in a thread of the pool. Returns what was heard at which rate.

        Args:
          reading: held while the upload is read: a candidate that was given up may still read it.
          live: takes the text while it is heard.
        """
        with tempfile.NamedTemporaryFile(dir=scratch_root()) as file:  # what it is, its bytes say, not its name
            with reading:
                recording.file.seek(0)
                while part := recording.file.read(2**20):
                    file.write(part)

            file.flush()

            # In a process of its own, with limits on memory and time: the file is a stranger's.
            try:
                waveform = self._decoders.load_audio(file.name, recognizer.sample_rate)
            except BadAudioError as bad:
                if bad.reason == Reason.TOO_LONG:
                    limits = self._decoders.limits
                    message = (
                        f"a recording of at most {limits.max_seconds:g} s is accepted, with {limits.max_samples:,} "
                        f"samples of all channels together; this one: {bad.detail}"
                    )
                    raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, "file") from None
                message = f"{recording.filename or 'the recording'}: cannot be transcribed: {bad.detail} ({bad.reason})"
                raise RefusedError(HTTPStatus.BAD_REQUEST, message, "file") from None
            except VoxlineError as error:
                raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None

        try:
            tell = {"tell": live.tell} if live else {}
            return recognizer.recognize_waveforms([waveform], **tell)[0], waveform, recognizer.sample_rate
        except VoxlineError as error:
            raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from None

    def _find(self, name: str) -> FollowedModel:
        if name not in self._models:
            raise RefusedError(
                HTTPStatus.NOT_FOUND, f"no model {name!r} here; there are: {', '.join(self._models)}", "model"
            )
        return self._models[name]

    async def _list_models(self, _: Request) -> Response:
        serving = [describe_model(model) for model in self._models.values() if model.current]
        return JSONResponse({"object": "list", "data": serving})

    async def _show_model(self, request: Request) -> Response:
        return JSONResponse(describe_model(self._find(request.path_params["name"])))

    async def _page(self, _: Request) -> Response:
        page = Path(__file__).with_name("page.html")
        return FileResponse(page, media_type="text/html", headers=PAGE_HEADERS)

    async def _script(self, _: Request) -> Response:
        script = Path(__file__).with_name("page.js")
        return FileResponse(script, media_type="text/javascript", headers=PAGE_HEADERS)


def _served(model: FollowedModel, kind: type[Engine]) -> tuple[LoadedVersion, Engine]:
    """The version that serves, and what runs it.

    Raises:
      RefusedError: no version has had the alias yet, none can be served, or the model is of another kind.
    """
    if model.current is None and model.fault:
        message = f"{model.reference}: no version can be served now; /healthz says why"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message, "model")
    if model.current is None:
        message = f"{model.reference}: {model.absent}; the server picks it up when there is one"
        raise RefusedError(HTTPStatus.NOT_FOUND, message, "model")

    if not isinstance(model.current.engine, kind):
        names = {Recognizer: "recognizer", Synthesizer: "voice"}
        message = f"{model.reference} is a {names[type(model.current.engine)]}; this route takes a {names[kind]}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, message, "model")
    return model.current, model.current.engine


def _measure_transcript(result: "tuple[Transcript, Waveform, int]") -> tuple[float, Transcript | None]:
    return result[0].seconds, result[0]


def _signed(response: Response, served: LoadedVersion, arm: str) -> Response:
    """Adds the version that made the response to its headers."""
    if arm:
        response.headers[ARM_HEADER] = arm
    if isinstance(served.engine, Synthesizer):
        response.headers["x-voxline-sample-rate"] = str(served.engine.sample_rate)
    response.headers["x-voxline-version"] = str(served.version)
    response.headers["x-voxline-digest"] = served.digest
    return response
