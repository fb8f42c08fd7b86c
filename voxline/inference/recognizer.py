"""An exported ASR model: recordings or arrays in, text out.

  recognizer = Recognizer("runs/demo/registry/asr/1")
  recognizer.transcribe("recording.flac")                      # a path, of any format and sample rate
  recognizer.transcribe(samples, sample_rate=44_100)           # float in [-1, 1], or int16; mono
  recognizer.transcribe(["one.wav", "two.wav"])                # a list gives a list
  recognizer.recognize("recording.flac").words                 # with times and confidences

A model with a language model beside it is decoded by beam search; `Recognizer(model, language_model=False)` is greedy.

A model with an ONNX graph beside it is run by ONNX Runtime, which loads in a fraction of a second. TensorFlow is
imported when a `Recognizer` without one is made.
"""

import dataclasses
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from voxline.cancellation import check_cancelled
from voxline.errors import SettingsError
from voxline.inference.model_info import ATTENTION
from voxline.inference.onnx_model import Engine, OnnxModel, choose_engine
from voxline.inference.pauses import LEVEL, Cuts, cut_at_pauses, find_pauses, measure_levels, pause_finder
from voxline.inference.saved_model import (
    LANGUAGE_MODEL,
    SignatureSpec,
    batches_by_length,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_info,
    require_family,
)
from voxline.inference.streaming import DEFAULT_CHUNK_MS, PauseStream, RecognitionStream
from voxline.inference.streaming_graph import STREAM_FILE, StreamingGraph
from voxline.inference.token_decoder import TokenDecoder, WrittenText, join_parts, needs_ctc
from voxline.inference.transcript import (
    DecodedWaveform,
    TextSoFar,
    Transcript,
    alternatives_of,
    join_decoded,
    join_transcripts,
    transcript_of_words,
)
from voxline.inference.waveforms import prepare_array, read_waveform, reason_not_transcribed
from voxline.progress import print_status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.inference.beam_search import BeamSearch, ScoredText
    from voxline.inference.waveforms import Audio, Waveform
    from voxline.text.alphabet import Alphabet

SIGNATURES = {"transcribe": SignatureSpec(("waveforms", "lengths"), ("text", "log_probabilities", "frames"))}
LONG_PAUSE_SECONDS = 0.6
"""A pause of so much is always a cut: networks write words into silence that they were not trained on."""
USUAL = 1.5
PUBLISHED_SECONDS = 20.0
"""A longer part is cut at its longest pause: this many times the mean of the training, or seconds where that is not
known."""
MARGIN_SECONDS = 0.2
SHORTEST_SECONDS = 0.3
DECODER_MARGIN_SECONDS = 0.5
ONNX_BATCH_SECONDS = 24.0
"""The largest batch for ONNX Runtime: each op writes its whole output, which in larger batches leaves the cache."""


class Recognizer:
    """An exported ASR model, loaded.

    Args:
      model: an exported model's folder, or a version's folder in a registry.
      batch_seconds: most audio in one batch, padding included, in seconds; with ONNX Runtime 24 at most.
      language_model: use the one beside the model, if there is one.
      hot_words: word → what it adds to the score of a text (natural logarithm; 8 is much). They need no language model.
      n_best: alternatives of each transcript.
      beams: texts that the decoder of a model with one follows; 1: greedy decoding. CTC models have no such choice.
      engine: that runs the network; "auto": ONNX Runtime if the model has an ONNX graph, else TensorFlow.
      threads: of ONNX Runtime for one batch; None: one for each core.
      pauses: at which recordings are cut before the network hears them: "level", "silero", "off" or the ONNX file of
        Silero VAD; see `voxline.inference.pauses`.

    Attributes:
      engine: "onnx" or "tensorflow".
      batch_seconds: most audio in one batch.
      info: the contents of `model.json`.
      language_model: what is known of the language model in use (`language_model.json`); None: none is in use.
      has_ctc: whether the network has an output for each frame; False of one whose decoder writes tokens.
      sample_rate: of the model's input, in Hz.
      seconds: spent inside the model so far, loading and warming up excluded.
      audio_seconds: transcribed so far.

    Raises:
      WorkError: the model is damaged, of another family, or lacks the signature.
      SettingsError: a hot word cannot be spelled in the model's alphabet; or a model with a decoder is given hot words.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        batch_seconds: float = 120.0,
        language_model: bool = True,
        hot_words: Mapping[str, float] | None = None,
        n_best: int = 1,
        beams: int = 1,
        engine: Engine = "auto",
        threads: int | None = None,
        pauses: str = LEVEL,
    ) -> None:
        import numpy as np

        self.finder = pause_finder(pauses)
        self.folder = exported_folder(model)
        self.info = read_model_info(self.folder)
        require_family(self.info, "asr", self.folder)
        self.sample_rate = self.info.sample_rate
        self._rate_assumed = False
        self.language_model: dict[str, Any] | None = None
        self._search: BeamSearch | None = None
        self._n_best = n_best
        self._threads = threads
        self._streaming: StreamingGraph | None = None
        self._decoder = self._make_decoder(hot_words, beams, engine) if self.info.kind == ATTENTION else None

        self.has_ctc = self._decoder is None
        has_words = hot_words or (language_model and (self.folder / LANGUAGE_MODEL).is_dir())
        if self._decoder is None and (has_words or n_best > 1):
            self._search = self._make_search(language_model, hot_words or {})

        self.engine = choose_engine(self.folder, engine)
        self.batch_seconds = min(batch_seconds, ONNX_BATCH_SECONDS) if self.engine == "onnx" else batch_seconds
        if self.engine == "onnx" and self._decoder is None:
            self._infer: Callable[..., dict[str, Any]] = OnnxModel(self.folder, self.info.alphabet, threads)
        elif self._decoder is None:
            self._model, signatures = load_saved_model(self.folder, SIGNATURES)
            self._infer = functools.partial(call_signature, signatures["transcribe"], self.folder)

        # The first run must not count as use.
        self.seconds = self.audio_seconds = 0.0
        self.decode_waveforms([np.zeros(self.sample_rate // 2, np.float32)])  # the first call builds the graph
        self.seconds = self.audio_seconds = 0.0

    @overload
    def transcribe(self, audio: "Audio", sample_rate: int | None = None) -> str: ...

    @overload
    def transcribe(self, audio: "list[Any] | tuple[Any, ...]", sample_rate: int | None = None) -> list[str]: ...

    def transcribe(
        self, audio: "Audio | list[Any] | tuple[Any, ...]", sample_rate: int | None = None
    ) -> str | list[str]:
        """Transcribes one recording, or each of a list.

        Args:
          audio: a path to a file of any format; or an array [samples], mono, float in [-1, 1] or int16; or a list of
            these. Of a recording under 0.1 s, or without a sample above -80 dB of full scale, the text is "".
          sample_rate: of the arrays, in Hz; if omitted, the model's is assumed and a line says so.

        Raises:
          SettingsError: an array has another dtype, shape or range.
          WorkError: a file is absent, damaged, or not audio.
        """
        several = audio if isinstance(audio, list | tuple) else [audio]
        waveforms = [self._waveform(samples, sample_rate) for samples in several]
        audible = [index for index, waveform in enumerate(waveforms) if not self._note(waveform)]
        texts = [""] * len(waveforms)
        for index, text in zip(audible, self.transcribe_waveforms([waveforms[i] for i in audible]), strict=True):
            texts[index] = text
        return texts if isinstance(audio, list | tuple) else texts[0]

    @overload
    def recognize(self, audio: "Audio", sample_rate: int | None = None) -> Transcript: ...

    @overload
    def recognize(self, audio: "list[Any] | tuple[Any, ...]", sample_rate: int | None = None) -> list[Transcript]: ...

    def recognize(
        self, audio: "Audio | list[Any] | tuple[Any, ...]", sample_rate: int | None = None
    ) -> Transcript | list[Transcript]:
        """Like `transcribe`, with the times and confidences of the words.

        Raises:
          SettingsError, WorkError: as `transcribe`.
        """
        if isinstance(audio, list | tuple):
            return self.recognize_waveforms([self._waveform(samples, sample_rate) for samples in audio])
        (transcript,) = self.recognize_waveforms([self._waveform(audio, sample_rate)])
        return transcript

    def recognize_waveforms(
        self, waveforms: Sequence["Waveform"], tell: Callable[[str], None] | None = None
    ) -> list[Transcript]:
        """Like `recognize`, for waveforms that are ready for the model: see `transcribe_waveforms`.

        Args:
          tell: of a single waveform, called between the batches of its parts with the text from its beginning that is
            known by then, if that has grown. Each text begins with the one before, and the transcript's with all.

        Raises:
          ValueError: `tell` is given with several waveforms.
        """
        if tell and len(waveforms) != 1:
            raise ValueError(f"{len(waveforms)} waveforms: tell takes the text of a single one")
        if self._decoder is not None:
            return self._recognize_parts(waveforms, tell)  # it cuts by itself

        parts, offsets = self._in_parts(waveforms)
        spaced = " " in self.alphabet.characters
        heard = iter(self._recognize_parts(parts, tell, spaced))
        transcripts = []
        for waveform, begins in zip(waveforms, offsets, strict=True):
            of_parts = list(itertools.islice(heard, len(begins)))
            seconds = len(waveform) / self.sample_rate
            joined = join_transcripts(of_parts, begins, seconds, spaced, self._n_best)
            transcripts.append(dataclasses.replace(joined, note=self._note(waveform)))
        return transcripts

    def _recognize_parts(
        self, waveforms: Sequence["Waveform"], tell: Callable[[str], None] | None = None, spaced: bool = True
    ) -> list[Transcript]:
        """The transcripts of waveforms that are heard whole, or that the decoder cuts.

        Args:
          tell: see `recognize_waveforms`; for a CTC model, the waveforms are the parts of the recording.
          spaced: whether texts of the model have spaces.
        """
        notes = [self._note(waveform) for waveform in waveforms]
        transcripts = [
            Transcript("", [], None, len(waveform) / self.sample_rate, note)
            for waveform, note in zip(waveforms, notes, strict=True)
        ]
        if self._decoder is not None:
            audible = [index for index, note in enumerate(notes) if not note]
            written = self._write([waveforms[index] for index in audible], times=True, tell=tell)
            for index, texts in zip(audible, written, strict=True):
                timed = transcript_of_words(texts[0].text, texts[0].words, transcripts[index].seconds)
                alternatives = alternatives_of(texts, self._n_best)
                confidence = texts[0].confidence
                transcripts[index] = dataclasses.replace(timed, confidence=confidence, alternatives=alternatives)
            return transcripts

        # The batches of every call, so that texts are the same; the one with the earliest part first.
        audible = [index for index, note in enumerate(notes) if not note]
        batches = sorted(self._batches(audible, waveforms), key=min)
        beginning = TextSoFar(["" if note else None for note in notes], spaced)
        for place, batch in enumerate(batches):
            # Not after the last batch: the transcript has it all.
            if tell and place and beginning.has_grown():
                tell(beginning.text)
            check_cancelled()
            outputs = self._call([waveforms[index] for index in batch])
            rows = zip(batch, outputs["text"], outputs["log_probabilities"], outputs["frames"], strict=True)
            for index, text, values, frames in rows:
                best = self._decode(values[:frames])
                # Without a beam search the text is the graph's own, greedy.
                best_text = best[0].text if best else _plain_text(text)
                transcript = self._transcript(best_text, values[:frames], transcripts[index].seconds)
                transcripts[index] = dataclasses.replace(transcript, alternatives=alternatives_of(best, self._n_best))
                beginning.parts[index] = best_text
        return transcripts

    def transcribe_waveforms(self, waveforms: Sequence["Waveform"]) -> list[str]:
        """Transcribes waveforms that are ready for the model.

        Args:
          waveforms: float32 [samples] each, mono, at `sample_rate`, in [-1, 1].
        """
        return [decoded.text for decoded in self.decode_waveforms(waveforms)]

    def decode_waveforms(self, waveforms: Sequence["Waveform"]) -> list[DecodedWaveform]:
        """Like `transcribe_waveforms`, with the greedy transcript and the network's output beside."""
        if self._decoder is not None:
            import numpy as np

            no_frames = np.zeros((0, 0), np.float32)
            return [
                DecodedWaveform(texts[0].text, texts[0].text, no_frames, texts[0].confidence)
                for texts in self._write(waveforms)
            ]

        # The outputs of all parts come in order, those of a waveform together.
        parts, offsets = self._in_parts(waveforms)
        heard = iter(self._decode_parts(parts))
        return [join_decoded(list(itertools.islice(heard, len(begins))), self.alphabet) for begins in offsets]

    def _decode_parts(self, waveforms: Sequence["Waveform"]) -> list[DecodedWaveform]:
        """The outputs of a CTC model for waveforms that are heard whole."""
        import numpy as np

        # An empty waveform has no frames: the network would fail on it.
        nothing = np.zeros((0, len(self.info.alphabet) + 1), np.float32)
        decoded = [DecodedWaveform("", "", nothing)] * len(waveforms)
        filled = [index for index, waveform in enumerate(waveforms) if len(waveform)]
        for batch in self._batches(filled, waveforms):
            for index, result in zip(batch, self._run([waveforms[index] for index in batch]), strict=True):
                decoded[index] = result
        return decoded

    def _in_parts(self, waveforms: Sequence["Waveform"]) -> "tuple[list[Waveform], list[list[float]]]":
        """Cuts waveforms at pauses.

        Returns:
          The parts of all of them, in order; and of each waveform the seconds at which its parts begin.
        """
        parts: list[Waveform] = []
        offsets: list[list[float]] = []
        cuts = self.cuts
        for waveform in waveforms:
            seconds = len(waveform) / self.sample_rate
            if not len(waveform) or (self.finder is None and seconds <= cuts.limit):
                parts.append(waveform)
                offsets.append([0.0])
                continue
            if self.finder:
                pauses, levels = find_pauses(waveform, self.sample_rate, self.finder)
            else:
                levels = measure_levels(waveform, self.sample_rate)
                pauses = []

            # Of samples, not of seconds: a network's window is exact.
            begins = []
            for part in cut_at_pauses(pauses, levels, seconds, cuts):
                first = round(part.offset * self.sample_rate)
                parts.append(waveform[first : first + round(part.duration * self.sample_rate)])
                begins.append(part.offset)
            offsets.append(begins)
        return parts, offsets

    @functools.cached_property
    def cuts(self) -> Cuts:
        """Rules by which recordings are cut: at pauses alone of a CTC model, and within the window of a decoder."""
        if self._decoder is not None:
            window = self._decoder.window / self.sample_rate
            return Cuts(always=LONG_PAUSE_SECONDS, margin=DECODER_MARGIN_SECONDS, limit=window, packed=True)

        # A published model states no dataset: it was trained on recordings of up to half a minute.
        dataset = self.info.dataset
        count = dataset.counts.get("train", 0)
        usual = dataset.seconds.get("train", 0.0) / count if count else 0.0
        longest = max(USUAL * usual, 1.0) if usual else PUBLISHED_SECONDS
        return Cuts(always=LONG_PAUSE_SECONDS, longest=longest, margin=MARGIN_SECONDS, shortest=SHORTEST_SECONDS)

    def log_probabilities(self, waveforms: Sequence["Waveform"]) -> list["npt.NDArray[np.float32]"]:
        """The network's output for waveforms that are ready for the model, such as for `ctc_alignment`; none is cut.

        Args:
          waveforms: float32 [samples] each, mono, at `sample_rate`, in [-1, 1].

        Returns:
          float32 [frames, symbols + 1] each, natural logarithms, the CTC blank last.

        Raises:
          SettingsError: the model is no CTC model.
        """
        if self._decoder is not None:
            raise needs_ctc(self.folder, "this")
        results: list[npt.NDArray[np.float32]] = [None] * len(waveforms)  # type: ignore[list-item]  # filled below
        for batch in self._batches(range(len(waveforms)), waveforms):
            outputs = self._call([waveforms[index] for index in batch])
            rows = zip(batch, outputs["log_probabilities"], outputs["frames"], strict=True)
            for index, values, frames in rows:
                results[index] = values[:frames]
        return results

    def frame_times(self, seconds: float, frames: int) -> tuple[float, float]:
        """When the frames of the network's output are.

        Args:
          seconds: of the recording.
          frames: of its output.

        Returns:
          The seconds at which the first frame begins, below 0 where the network pads recordings; and those from one
          frame to the next. Models of earlier releases do not state them: their frames are spread over the recording.
        """
        if stated := self.info.output_frames:
            return stated.start, stated.seconds
        return 0.0, seconds / max(frames, 1)

    def stream(self, *, endpoint_ms: float | None = None, chunk_ms: float = DEFAULT_CHUNK_MS) -> RecognitionStream:
        """Recognizes audio while it arrives: `feed(samples)` gives partial texts, `finish()` the transcript.

        Any number of streams may run at a time.

        Args:
          endpoint_ms: a segment ends after so much time without a symbol; None: the stream is one segment.
          chunk_ms: of audio for each run of the network; more costs latency and saves computing.

        Raises:
          SettingsError: the model has no streaming graph, and why; or a number is out of range.
          WorkError: the graph is damaged.
        """
        if self._streaming is None:
            if not (self.folder / STREAM_FILE).is_file():
                raise SettingsError(f"{self.folder}: {self._why_no_stream()}")
            self._streaming = StreamingGraph(self.folder, self._threads or 1)
        symbols = self.info.alphabet
        search = self._search
        return RecognitionStream(
            self._streaming, self.sample_rate, symbols, search, self._stream_transcript, endpoint_ms, chunk_ms
        )

    def live(
        self, *, endpoint_ms: float | None = None, chunk_ms: float | None = None
    ) -> RecognitionStream | PauseStream:
        """Like `stream`; a model without a streaming graph hears each utterance when the speaker pauses.

        Raises:
          SettingsError: pauses are "off"; a number is out of range, or not of such a model.
          WorkError: the graph is damaged.
        """
        if (self.folder / STREAM_FILE).is_file():
            return self.stream(endpoint_ms=endpoint_ms, chunk_ms=DEFAULT_CHUNK_MS if chunk_ms is None else chunk_ms)
        if self.finder is None:
            raise SettingsError(f"{self.folder}: {self._why_no_stream()}; or hear it at pauses, which are off")
        if chunk_ms is not None:
            raise SettingsError("chunk_ms: this model hears whole utterances, at pauses; leave it out")
        return PauseStream(
            lambda waveform: self.recognize_waveforms([waveform])[0], self.sample_rate, self.finder, endpoint_ms
        )

    def _why_no_stream(self) -> str:
        model = self.info.model_settings
        kind = model.get("kind", "deepspeech2")
        directions = model.get("directions", "concatenated")
        if kind not in ("deepspeech", "deepspeech2"):
            return f"cannot stream: a {kind} sees the whole recording; deepspeech and a forward deepspeech2 can"

        # All reasons at once, with the settings that a streaming model needs.
        why = []
        change = []
        if kind == "deepspeech2" and directions != "forward":
            why.append(f"its layers also read backward, from the end (train.model.directions: {directions})")
            change.append("directions forward, a lookahead")
        if model.get("pooling", "none") != "none":
            why.append(f"all frames make one output (train.model.pooling: {model['pooling']})")
            change.append("pooling none")
        if top_db := model.get("top_db"):
            why.append(f"levels are relative to the loudest frames of a recording (train.model.top_db: {top_db:g})")
            change.append("top_db 0")

        if why:
            return f"cannot stream: {', and '.join(why)}; train one with {', '.join(change)} and train.export.streaming"
        return "no streaming graph beside the model; train it with train.export.onnx and train.export.streaming"

    def _stream_transcript(
        self, text: str, log_probabilities: Any, seconds: float, start: float, frame: float, peak: float
    ) -> Transcript:
        """Returns the transcript of a stream or of a segment; times count from the stream's start."""
        if note := reason_not_transcribed(seconds if start == 0.0 else math.inf, peak):
            return Transcript("", [], None, seconds, note)
        return self._transcript(text, log_probabilities, seconds, start, frame)

    def confidence(self, decoded: DecodedWaveform, seconds: float) -> float | None:
        """The confidence of a text, as `Transcript` has it.

        Args:
          seconds: of the recording.
        """
        if self._decoder is not None:
            return decoded.confidence
        return self._transcript(decoded.text, decoded.log_probabilities, seconds).confidence

    def _waveform(self, audio: Any, sample_rate: int | None) -> "Waveform":
        if isinstance(audio, str | os.PathLike):
            return read_waveform(Path(audio), self.sample_rate)
        if sample_rate is None and not self._rate_assumed:
            print_status(f"transcribe: no sample_rate given; {self.sample_rate:,} Hz, the model's, is assumed")
            self._rate_assumed = True
        return prepare_array(audio, self.sample_rate if sample_rate is None else sample_rate, self.sample_rate)

    def _batches(self, indices: Sequence[int], waveforms: Sequence["Waveform"]) -> list[list[int]]:
        """The indices in batches of similar length."""
        # Samples, as the lengths are.
        limit = round(self.batch_seconds * self.sample_rate)
        batches = batches_by_length([len(waveforms[index]) for index in indices], limit)
        return [[indices[position] for position in batch] for batch in batches]

    def _note(self, waveform: "Waveform") -> str:
        """Explains why a waveform is not transcribed; "" if it is."""
        peak = max(waveform.max(), -waveform.min()) if len(waveform) else 0.0
        return reason_not_transcribed(len(waveform) / self.sample_rate, peak)

    def _transcript(
        self, text: str, log_probabilities: Any, seconds: float, start: float = 0.0, frame: float | None = None
    ) -> Transcript:
        from voxline.inference.ctc_alignment import align_words_in_audio

        # A stream states the length of its frames; a recording's follows from the model or its length.
        first = 0.0
        if frame is None:
            first, frame = self.frame_times(seconds, len(log_probabilities))
        words = align_words_in_audio(log_probabilities, text, self.alphabet, frame, first)
        return transcript_of_words(text, words, seconds, start)

    def _make_search(self, language_model: bool, hot_words: Mapping[str, float]) -> "BeamSearch":
        from voxline.inference.beam_search import BeamSearch
        from voxline.inference.language_model import load_beam_search, read_language_model

        if language_model and (search := load_beam_search(self.folder, self.alphabet, hot_words)):
            self.language_model = read_language_model(self.folder)
            return search
        return BeamSearch(self.alphabet, beta=0.0, hot_words=hot_words)

    def _make_decoder(self, hot_words: Mapping[str, float] | None, beams: int, engine: Engine) -> TokenDecoder:
        if hot_words:
            raise needs_ctc(self.folder, "a search with hot words")
        chosen = choose_engine(self.folder, engine)
        return TokenDecoder(self.folder, self.info, beams, self._n_best, chosen, self._threads)

    def _write(
        self, waveforms: Sequence["Waveform"], *, times: bool = False, tell: Callable[[str], None] | None = None
    ) -> list[list[WrittenText]]:
        """The texts that the decoder writes for each waveform, the best first; of a long one, only the best.

        Args:
          times: the best text has words with times.
          tell: see `recognize_waveforms`.
        """
        decoder = self._decoder
        if decoder is None:
            raise ValueError("a CTC model has no decoder")
        parts: list[Waveform] = []
        owners: list[int] = []
        starts: list[float] = []
        pieces, offsets = self._in_parts(waveforms)
        of_owners = iter(pieces)
        for owner, begins in enumerate(offsets):
            for piece, begin in zip(itertools.islice(of_owners, len(begins)), begins, strict=True):
                if len(piece):
                    parts.append(piece)
                    owners.append(owner)
                    starts.append(begin)

        # Each part costs as much as one of the whole window.
        texts: list[list[WrittenText]] = [[] for _ in waveforms]
        rows = max(round(self.batch_seconds * self.sample_rate) // decoder.window, 1)
        last_told = ""
        for first in range(0, len(parts), rows):
            # Windows are written in order, so all of the text is known so far.
            if tell and first and (so_far := texts[0][0].text) != last_told:
                tell(so_far)
                last_told = so_far
            check_cancelled()
            padded, lengths = self._padded(parts[first : first + rows])
            start = time.perf_counter()
            written = decoder(padded, lengths, times=times)
            self.seconds += time.perf_counter() - start
            self.audio_seconds += float(lengths.sum()) / self.sample_rate
            for owner, begin, best in zip(
                owners[first : first + rows], starts[first : first + rows], written, strict=True
            ):
                texts[owner] = [join_parts([texts[owner][0], best[0].later(begin)])] if texts[owner] else best
        return [best or [WrittenText("", 0.0, 0)] for best in texts]

    @functools.cached_property
    def alphabet(self) -> "Alphabet":
        return self.info.read_alphabet(self.folder)

    def _decode(self, log_probabilities: Any) -> "list[ScoredText]":
        """The best texts of the beam search; [] without one."""
        if self._search is None:
            return []
        start = time.perf_counter()
        texts = self._search.decode(log_probabilities, self._n_best)
        self.seconds += time.perf_counter() - start
        return texts

    def _run(self, waveforms: list["Waveform"]) -> list[DecodedWaveform]:
        outputs = self._call(waveforms)
        rows = zip(outputs["text"], outputs["log_probabilities"], outputs["frames"], strict=True)
        decoded = []
        for text, values, frames in rows:
            greedy = _plain_text(text)
            best = self._decode(values[:frames])
            decoded.append(DecodedWaveform(best[0].text if best else greedy, greedy, values[:frames]))
        return decoded

    def _call(self, waveforms: list["Waveform"]) -> dict[str, Any]:
        """The outputs of the signature for a batch."""
        padded, lengths = self._padded(waveforms)
        start = time.perf_counter()
        outputs = self._infer(waveforms=padded, lengths=lengths)
        self.seconds += time.perf_counter() - start
        self.audio_seconds += float(lengths.sum()) / self.sample_rate
        return outputs

    def _padded(self, waveforms: list["Waveform"]) -> "tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]":
        """Waveforms as one array [batch, samples], and their lengths."""
        import numpy as np

        lengths = np.array([len(waveform) for waveform in waveforms], np.int32)
        if len(waveforms) == 1:
            padded = np.asarray(waveforms[0], np.float32)[None]  # no copy: it may be long
        else:
            # [batch, longest], zeros behind the shorter ones
            padded = np.zeros((len(waveforms), int(lengths.max())), np.float32)
            for row, waveform in zip(padded, waveforms, strict=True):
                row[: len(waveform)] = waveform
        return padded, lengths


def _plain_text(text: bytes) -> str:
    """The model's output with single spaces."""
    return " ".join(text.decode("utf-8", "replace").split())
