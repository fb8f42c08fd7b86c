"""An exported TTS model: text in, mels and a waveform out.

  synthesizer = Synthesizer("runs/demo-tts/registry/digits/1")
  result = synthesizer.synthesize("Three, one, four.")
  result.waveform                                              # float32 [samples] at synthesizer.sample_rate

A voice with an ONNX graph beside it is run by ONNX Runtime, which loads in a fraction of a second; its Griffin-Lim is
then numpy's. TensorFlow is imported where a SavedModel is needed.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from voxline.audio.feature_settings import FeatureSettings
from voxline.errors import SettingsError, WorkError
from voxline.inference.onnx_model import Engine, OnnxGraph, choose_engine
from voxline.inference.pace import PAUSES_SECONDS, USUAL_PACE, Pace, PaceFault
from voxline.inference.saved_model import (
    VOCODER,
    SignatureSpec,
    batches_by_length,
    call_signature,
    exported_folder,
    load_saved_model,
    read_model_info,
    require_family,
)
from voxline.inference.speech import (
    LONGEST_CHUNK,
    Speech,
    SynthesisResult,
    TeacherForcedResult,
    check_speaker,
    chunk_ends,
    join_speech,
)
from voxline.inference.tempo import change_tempo
from voxline.inference.text_encoder import EncodedSentence, TextEncoder
from voxline.inference.vocoder import OWN_SAMPLING, Sampling, Vocoder
from voxline.text.alphabet import quote_text
from voxline.text.ssml import Pause

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

FULL_SIGNATURES = {
    "synthesize": SignatureSpec(
        ("symbols", "lengths"), ("mels", "frames", "alignments", "waveforms", "samples", "hit_limit")
    ),
}
SPEAK = "speak"
MEL_SIGNATURES = {SPEAK: SignatureSpec(("symbols", "lengths"), ("mels", "frames", "alignments", "hit_limit"))}
"""Without Griffin-Lim, for a voice with a vocoder."""
ONNX_BATCH_SYMBOLS = 500
"""The largest batch of a FastSpeech in ONNX: each op writes its whole output, and a larger one leaves the cache."""
TEACHER_FORCED_SIGNATURES = {
    "teacher_forced": SignatureSpec(("symbols", "lengths", "features", "frames"), ("mels", "alignments", "mel_l1"))
}
SAMPLE_SIGNATURES = {
    "synthesize": SignatureSpec(
        ("symbols", "lengths", "rates", "scales"), ("waveforms", "samples", "frames", "durations", "hit_limit")
    )
}
"""Of a voice that makes samples itself, without mels."""
SAMPLE_GRAPH = SignatureSpec(("symbols", "rates", "scales"), SAMPLE_SIGNATURES["synthesize"].outputs)
"""Its ONNX graph, of one text."""
WINDOW = "window"
"""Optional input of this graph: the first frame whose samples are wanted, and how many."""
SPEAKERS = "speakers"
"""Input of both where the voice has several speakers."""
MAKES_SAMPLES = ("vits",)
"""Kinds of such voices."""
CUTS = 3
"""How often a sentence whose end is not reached is halved: what is left then is an eighth of it."""
TTS_KEYS = ("frontend", "max_steps", "reduction")
"""Keys of a TTS model's model.json, in addition to those of every model."""

ResultT = TypeVar("ResultT")


class Synthesizer:
    """An exported TTS model, loaded.

    Args:
      model: an exported model's folder, or a version's folder in a registry.
      vocoder: the folder of an exported vocoder, which makes the waveforms; None: the vocoder that the model ships
        with, or its Griffin-Lim.
      batch_size: most texts in one batch.
      batch_symbols: most symbols in one batch, padding included; 500 at most for FastSpeech in ONNX.
      engine: that runs the network; "auto": ONNX Runtime if the model has an ONNX graph, else TensorFlow, and the same
        for the vocoder. Teacher forcing needs TensorFlow, which is imported at its first call.
      threads: of ONNX Runtime for one batch; None: one for each core.
      sampling: of a vocoder that is a WaveGlow, in place of its own.
      iterations: of Griffin-Lim, in place of the voice's own; numpy then computes it.
      pace: by which speech that stops at once shows.
      speaker: of a voice of several, who speaks where none is asked for; "": as the voice was exported.

    Attributes:
      info: the contents of `model.json`.
      engine: "onnx" or "tensorflow".
      text: encodes text as the model reads it.
      features: of its mels.
      sample_rate: of its waveforms, in Hz.
      speakers: names of those it can speak as; [] of a voice of one speaker.
      makes_samples: whether its network makes samples itself, as VITS does; its mels are then those of the waveform.
      seconds: spent in autoregressive synthesis so far, waveforms included, loading and warming up excluded.
      audio_seconds: synthesized so far.

    Raises:
      WorkError: the model or the vocoder is damaged, or of another family.
      SettingsError: the vocoder reads mels of other settings, or an input is for another way to make waveforms.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        vocoder: Path | str | None = None,
        batch_size: int = 16,
        batch_symbols: int = 4_000,
        engine: Engine = "auto",
        threads: int | None = None,
        sampling: Sampling = OWN_SAMPLING,
        iterations: int | None = None,
        pace: Pace = USUAL_PACE,
        speaker: str = "",
    ) -> None:
        self.pace = pace
        self.folder = exported_folder(model)
        self.info = read_model_info(self.folder)
        require_family(self.info, "tts", self.folder)
        if missing := [key for key in TTS_KEYS if not getattr(self.info, key)]:
            raise WorkError(f"{self.folder}: model.json has no {' and no '.join(missing)}; run train again")
        self.info.check_consents(self.folder)
        # Before anything is loaded: a misspelt name costs no time.
        self.speakers = self.info.speakers
        self.check_speaker(speaker)
        self._own_speaker = int(self.info.model_settings.get("speaker", 0))
        if speaker:
            self._own_speaker = self.speakers.index(speaker)
        self.text = TextEncoder(self.info.alphabet, self.info.frontend, self.folder)
        self.features = FeatureSettings.of(self.info.features, str(self.folder))
        self.sample_rate = self.info.sample_rate
        self.engine = choose_engine(self.folder, engine)
        most = ONNX_BATCH_SYMBOLS if self.engine == "onnx" and self.info.kind == "fastspeech" else batch_symbols
        # A graph of samples has no batch.
        self.makes_samples = self.info.kind in MAKES_SAMPLES
        self.batch_size = 1 if self.makes_samples and self.engine == "onnx" else batch_size
        self.batch_symbols = min(batch_symbols, most)

        # A vocoder that ships with the voice, unless the caller named another.
        if vocoder is None and (self.folder / VOCODER).is_dir():
            vocoder = self.folder / VOCODER
        self.vocoder = (
            None
            if vocoder is None
            else Vocoder(
                vocoder, engine=engine if engine == "tensorflow" else "auto", threads=threads, sampling=sampling
            )
        )
        self._iterations = iterations
        # Its network ends where a vocoder would begin.
        if self.makes_samples and (vocoder is not None or iterations is not None or not sampling.is_own):
            raise SettingsError(
                f"{self.folder}: a {self.info.kind} makes the samples itself; leave the vocoder, sigma, denoiser and "
                "iterations out"
            )
        self._refuse_idle_inputs(sampling)
        if self.vocoder is not None:
            self.vocoder.check_features(self.features, str(self.folder))

        self._graph: OnnxGraph | None = None
        self._signatures: dict[str, Any] = {}
        if self.engine == "onnx":
            graph = SAMPLE_GRAPH if self.makes_samples else MEL_SIGNATURES[SPEAK]
            self._graph = OnnxGraph(self.folder, self._with_speakers(graph), "a voice", threads)
        elif self.makes_samples:
            self._load(SAMPLE_SIGNATURES)
        else:
            self._load(FULL_SIGNATURES | TEACHER_FORCED_SIGNATURES, MEL_SIGNATURES)

        self.seconds = self.audio_seconds = 0.0
        self._synthesize([self.text.alphabet.characters[-1:]], [""])  # the first call builds the graph
        self.seconds = self.audio_seconds = 0.0

    def _load(self, specs: dict[str, SignatureSpec], optional: dict[str, SignatureSpec] | None = None) -> None:
        """Loads the SavedModel, whose signatures also take who speaks where the voice has several speakers."""
        needed, further = (
            {name: self._with_speakers(spec) for name, spec in group.items()} for group in (specs, optional or {})
        )
        self._model, self._signatures = load_saved_model(self.folder, needed, further)

    def _with_speakers(self, spec: SignatureSpec) -> SignatureSpec:
        return spec._replace(inputs=(*spec.inputs, SPEAKERS)) if self.speakers else spec

    def check_speaker(self, speaker: str) -> None:
        """Refuses a speaker whom the voice does not have; "" is the one who speaks where none is asked for.

        Raises:
          SettingsError: it names those whom it has.
        """
        check_speaker(self.speakers, speaker, str(self.folder))

    @overload
    def synthesize(self, text: str, speaker: str = "") -> SynthesisResult: ...

    @overload
    def synthesize(self, text: list[str] | tuple[str, ...], speaker: str = "") -> list[SynthesisResult]: ...

    def synthesize(
        self, text: str | list[str] | tuple[str, ...], speaker: str = ""
    ) -> SynthesisResult | list[SynthesisResult]:
        """Speaks one text in one go, or each of a list in order. If one text cannot be read, none is spoken.

        Args:
          speaker: of `speakers`; "": who speaks where none is asked for, which is all of a voice of one speaker.

        Raises:
          SettingsError: a text is empty or too long, or holds characters that the model cannot read; or it does not
            have the speaker.
        """
        if isinstance(text, str):
            (result,) = self.synthesize([text], speaker)
            return result
        symbols = [self.text.encode(sentence).symbols for sentence in text]
        return self.synthesize_symbols(symbols, [speaker] * len(symbols))

    def speak(self, text: str, speaker: str = "") -> Speech:
        """Speaks a text, or an SSML document (`voxline.text.ssml`), whose pauses are silence of their exact length.

        It is cut at its sentences (`TextEncoder.encode_speech`). A sentence whose end the decoder does not reach, or
        that stops at once, is halved and spoken again; if a half is no better, the first attempt is kept.

        Raises:
          SettingsError: as `synthesize`; or the document is not understood: what, and its line.
        """
        self.check_speaker(speaker)
        return join_speech(list(self._speak(self.text.encode_speech(text), 4 * self.batch_size, speaker)))

    def stream(self, text: str, speaker: str = "", *, first_seconds: float | None = None) -> Iterator[Speech]:
        """Like `speak`, sentence by sentence, pauses too: only one of them is in memory at a time.

        Args:
          first_seconds: length of the first chunk of a sentence, each of which comes as soon as it is computed: of a
            VITS in ONNX, and of a voice whose vocoder streams, once its mels are there. Put together they are the
            sentence. None, and with any other voice: whole sentences.

        Raises:
          SettingsError: as `speak`, before anything is spoken.
        """
        self.check_speaker(speaker)
        items = self.text.encode_speech(text)
        return self._speak(items, 1, speaker) if first_seconds is None else self._chunks(items, speaker, first_seconds)

    def speak_each(self, texts: Sequence[str], speaker: str = "") -> list[list[Speech]]:
        """Speaks several texts like `stream`, their sentences in common batches; raises like `speak`."""
        self.check_speaker(speaker)
        items = [self.text.encode_speech(text) for text in texts]
        spoken = self._speak([item for of_text in items for item in of_text], 4 * self.batch_size, speaker)
        return [[next(spoken) for _ in of_text] for of_text in items]

    @property
    def about_limit(self) -> str:
        """The meaning of `hit_limit`, for messages."""
        steps = "frames" if self.makes_samples else "decoder steps"
        return f"the model did not stop within its {self.info.max_steps:,} {steps} and was cut off"

    def about(self, speech: Speech) -> str:
        """Describes the fault of speech, for messages; empty if it has none."""
        if speech.hit_limit:
            return self.about_limit
        if speech.pace_fault == "too_short":
            return (
                f"the model stopped before its text was said: less than {self.pace.min_symbol_seconds:g} s a symbol in "
                "some sentence"
            )
        if speech.pace_fault:
            return (
                f"the model went on after its text: more than {self.pace.max_symbol_seconds:g} s a symbol and "
                f"{PAUSES_SECONDS:g} s in some sentence"
            )
        return ""

    def _speak(self, items: Sequence[EncodedSentence | Pause], at_once: int, speaker: str) -> Iterator[Speech]:
        import numpy as np

        # A few batches at a time, so that a stream of thousands of sentences is never in memory as a whole.
        for start in range(0, len(items), at_once):
            several = items[start : start + at_once]
            sentences = [part for part in several if isinstance(part, EncodedSentence)]
            spoken = iter(self._speak_sentences(sentences, speaker))
            for item in several:
                if isinstance(item, Pause):
                    yield Speech(np.zeros(round(item.seconds * self.sample_rate), np.float32), False, 0)
                else:
                    yield self._to_its_end(item, next(spoken), CUTS, speaker)

    def _chunks(self, items: Sequence[EncodedSentence | Pause], speaker: str, first_seconds: float) -> Iterator[Speech]:
        for item in items:
            waveforms = None
            if isinstance(item, EncodedSentence):
                stream = self._stream_samples if self.makes_samples else self._stream_mels
                waveforms = stream(item, speaker, first_seconds)
            # A sentence that does not end, or stops at once, may be halved.
            if waveforms is None:
                yield from self._speak([item], 1, speaker)
            else:
                yield from (Speech(waveform, False) for waveform in waveforms)

    def _stream_samples(
        self, sentence: EncodedSentence, speaker: str, first_seconds: float
    ) -> "Iterator[Array] | None":
        """The chunks of a sentence by a graph of samples; None: it has a fault, or cannot be cut."""
        if self._graph is None or WINDOW not in self._graph.optional:
            return None
        inputs = self._sample_inputs([sentence.symbols], [speaker], [sentence.rates])
        # The first window tells whether the sentence ends.
        run = functools.partial(self._run_window, self._graph, inputs)
        first = max(round(first_seconds * self.sample_rate / self.features.hop_length), 1)
        outputs = run(0, first)
        # Durations are those of the whole sentence.
        if outputs["hit_limit"][0] or self._sample_pace(sentence.symbols, outputs["durations"][0], inputs["rates"][0]):
            return None
        return self._windows(sentence.symbols, outputs, first, run)

    def _windows(
        self, symbols: str, outputs: dict[str, Any], first: int, run: Callable[[int, int], dict[str, Any]]
    ) -> "Iterator[Array]":
        """The samples of a sentence.

        Args:
          outputs: for its first window, of so many frames; `run` computes another one.
        """
        import numpy as np

        longest = round(LONGEST_CHUNK * self.sample_rate / self.features.hop_length)
        done = 0
        for end in chunk_ends(int(outputs["frames"][0]), first, longest):
            # While this chunk is heard, the next one is computed.
            if done:
                outputs = run(done, end - done)
            waveform = outputs["waveforms"][0]
            if not np.isfinite(waveform).all():
                raise self._not_finite(symbols)
            self.audio_seconds += len(waveform) / self.sample_rate
            yield waveform
            done = end

    def _run_window(self, graph: OnnxGraph, inputs: dict[str, Any], first: int, count: int) -> dict[str, Any]:
        """The outputs for a sentence, with the samples of some frames alone."""
        import numpy as np

        start = time.perf_counter()
        outputs = graph(**inputs, **{WINDOW: np.array([first, count])})
        self.seconds += time.perf_counter() - start
        return outputs

    def _stream_mels(self, sentence: EncodedSentence, speaker: str, first_seconds: float) -> "Iterator[Array] | None":
        """The chunks of a sentence by the vocoder; None: it has a fault, or cannot be cut."""
        import numpy as np

        if self.vocoder is None or not self.vocoder.streams or not self.has_mels_alone:
            return None
        start = time.perf_counter()
        outputs = self._decode(self._inputs([sentence.symbols], [speaker]), with_audio=False)
        # Its length, at the usual tempo, tells of a decoder that stopped at once.
        seconds = int(outputs["frames"][0]) * self.features.hop_length / self.sample_rate
        if outputs["hit_limit"][0] or self.pace.fault(sentence.symbols, seconds):
            return None
        if set(sentence.rates) != {1.0}:
            outputs = self._with_tempo(outputs, [sentence.symbols], [sentence.rates])
        # [frames, mels]
        mels = outputs["mels"][0][: int(outputs["frames"][0])]
        if not np.isfinite(mels).all():
            raise self._not_finite(sentence.symbols)
        self.seconds += time.perf_counter() - start
        self.audio_seconds += (len(mels) - 1) * self.features.hop_length / self.sample_rate
        return self.vocoder.stream([mels], chunk_seconds=first_seconds, longest_seconds=LONGEST_CHUNK)

    def _to_its_end(self, sentence: EncodedSentence, result: SynthesisResult, cuts: int, speaker: str) -> Speech:
        """Returns the speech of a sentence, or of its halves if they end and the sentence did not."""
        speech = Speech(result.waveform, result.hit_limit, pace_fault=result.pace_fault)
        halves = self.text.halve(sentence) if cuts and not speech.is_whole else []
        parts: list[Speech] = []
        for half in halves:
            if isinstance(half, EncodedSentence):
                (again,) = self._speak_sentences([half], speaker)
                parts.append(self._to_its_end(half, again, cuts - 1, speaker))
            else:
                parts += self._speak([half], 1, speaker)
            # A half that is not said whole makes the whole attempt useless.
            if not parts[-1].is_whole:
                break
        return join_speech(parts) if parts and parts[-1].is_whole else speech

    def _speak_sentences(self, sentences: Sequence[EncodedSentence], speaker: str) -> list[SynthesisResult]:
        """Speaks sentences in order; unusual rates take the vocoder or numpy's Griffin-Lim."""
        usual = [set(sentence.rates) == {1.0} for sentence in sentences]
        plain = [sentence.symbols for sentence, is_usual in zip(sentences, usual, strict=True) if is_usual]
        at_other_rates = [sentence for sentence, is_usual in zip(sentences, usual, strict=True) if not is_usual]
        spoken = iter(self.synthesize_symbols(plain, [speaker] * len(plain)))
        changed = iter(self._at_rates(at_other_rates, speaker))
        return [next(spoken if is_usual else changed) for is_usual in usual]

    def synthesize_symbols(self, symbols: Sequence[str], speakers: Sequence[str] = ()) -> list[SynthesisResult]:
        """Speaks encoded texts of any length, such as `text` of a converted manifest, in order.

        Args:
          speakers: of each text, as for `synthesize`; (): where none is asked for.

        Raises:
          SettingsError: the model cannot read a symbol, or does not have a speaker.
        """
        names = self._check_speakers(speakers, len(symbols))

        def run(batch: list[int]) -> list[SynthesisResult]:
            return self._synthesize([symbols[index] for index in batch], [names[index] for index in batch])

        return self._in_batches(symbols, run)

    def _check_speakers(self, speakers: Sequence[str], count: int) -> list[str]:
        """Names who speaks each of so many texts."""
        # All are checked before any is heard, as all texts are.
        names = list(speakers) or [""] * count
        for name in names:
            self.check_speaker(name)
        return names

    @property
    def has_mels_alone(self) -> bool:
        """Returns whether mels are made without a waveform; earlier models compute Griffin-Lim too."""
        return not self.makes_samples and (self._graph is not None or SPEAK in self._signatures)

    def mels(self, symbols: Sequence[str], speakers: Sequence[str] = ()) -> list["Array"]:
        """The mels of encoded texts alone, float32 [frames, mels] each, in order; arguments as `synthesize_symbols`.

        Raises:
          SettingsError: as `synthesize_symbols`.
        """
        if self.makes_samples:
            return [result.mels for result in self.synthesize_symbols(symbols, speakers)]
        names = self._check_speakers(speakers, len(symbols))

        def run(batch: list[int]) -> list["Array"]:
            texts = self._inputs([symbols[index] for index in batch], [names[index] for index in batch])
            outputs = self._decode(texts, with_audio=False)
            return [row[:frames] for row, frames in zip(outputs["mels"], outputs["frames"], strict=True)]

        return self._in_batches(symbols, run)

    def teacher_forced(
        self, symbols: Sequence[str], features: Sequence["Array"], speakers: Sequence[str] = ()
    ) -> list[TeacherForcedResult]:
        """Predicts each frame of recordings from the frames before it, in order.

        Args:
          symbols: the encoded texts.
          features: of the recordings, float32 [frames, bins] each.
          speakers: as for `synthesize_symbols`.

        Raises:
          SettingsError: the voice makes samples itself, and predicts no frames, or does not have a speaker.
        """
        if self.makes_samples:
            raise SettingsError(f"{self.folder}: a {self.info.kind} predicts no frames of a recording")
        names = self._check_speakers(speakers, len(symbols))

        def run(batch: list[int]) -> list[TeacherForcedResult]:
            texts = [symbols[index] for index in batch]
            return self._teacher_forced(texts, [features[index] for index in batch], [names[index] for index in batch])

        return self._in_batches(symbols, run)

    def _in_batches(self, symbols: Sequence[str], run: Callable[[list[int]], list[ResultT]]) -> list[ResultT]:
        """Runs batches of texts of similar length; the results are in the order of the texts."""
        # All texts are checked before any is spoken.
        for text in symbols:
            self.text.check_symbols(text)
        results: dict[int, ResultT] = {}
        for batch in batches_by_length([len(text) for text in symbols], self.batch_symbols):
            for start in range(0, len(batch), self.batch_size):
                indices = batch[start : start + self.batch_size]
                results.update(zip(indices, run(indices), strict=True))
        return [results[index] for index in range(len(symbols))]

    def _at_rates(self, sentences: Sequence[EncodedSentence], speaker: str) -> list[SynthesisResult]:
        symbols = [sentence.symbols for sentence in sentences]

        def run(batch: list[int]) -> list[SynthesisResult]:
            rates = [sentences[index].rates for index in batch]
            return self._synthesize([symbols[index] for index in batch], [speaker] * len(batch), rates)

        return self._in_batches(symbols, run)

    def _synthesize(
        self, symbols: Sequence[str], speakers: Sequence[str], rates: Sequence[Sequence[float]] | None = None
    ) -> list[SynthesisResult]:
        import numpy as np

        if self.makes_samples:
            return self._synthesize_samples(symbols, speakers, rates)
        inputs = self._inputs(symbols, speakers)
        start = time.perf_counter()
        outputs = self._decode(inputs, with_audio=self.vocoder is None and rates is None)
        decoded = [int(frames) for frames in outputs["frames"]]  # whose steps the alignment has, also at another tempo
        if rates is not None:
            outputs = self._with_tempo(outputs, symbols, rates)
        waveforms = self._waveforms(outputs, symbols)
        self.seconds += time.perf_counter() - start
        self.audio_seconds += sum(map(len, waveforms)) / self.sample_rate

        # [frames, mels], [samples] and [steps, symbols] of each row, without the padding
        results = []
        for row, text in enumerate(symbols):
            frames = int(outputs["frames"][row])
            waveform = waveforms[row]
            mels = outputs["mels"][row][:frames]
            alignment = outputs["alignments"][row][: self._steps(decoded[row]), : len(text)]
            if not all(np.isfinite(array).all() for array in (mels, waveform, alignment)):
                raise self._not_finite(text)
            # Without the tempo that SSML asks for.
            fault = self.pace.fault(text, decoded[row] * self.features.hop_length / self.sample_rate)
            results.append(SynthesisResult(text, mels, alignment, waveform, bool(outputs["hit_limit"][row]), fault))
        return results

    def _synthesize_samples(
        self, symbols: Sequence[str], speakers: Sequence[str], rates: Sequence[Sequence[float]] | None
    ) -> list[SynthesisResult]:
        """`_synthesize` of a voice that makes samples itself; its mels are those of the waveform."""
        import numpy as np

        from voxline.audio.features import compute_features

        inputs = self._sample_inputs(symbols, speakers, rates)
        start = time.perf_counter()
        outputs = self._graph(**inputs) if self._graph is not None else self._call("synthesize", **inputs)
        self.seconds += time.perf_counter() - start

        # [samples] and, of frames and symbols, 1 where a frame belongs to a symbol
        results = []
        for row, text in enumerate(symbols):
            waveform = outputs["waveforms"][row][: int(outputs["samples"][row])]
            if not np.isfinite(waveform).all():
                raise self._not_finite(text)
            durations = outputs["durations"][row][: len(text)].astype(int)
            alignment = np.repeat(np.eye(len(text), dtype=np.float32), durations, axis=0)[: int(outputs["frames"][row])]
            mels = compute_features(waveform, self.features)
            fault = self._sample_pace(text, durations, inputs["rates"][row])
            results.append(SynthesisResult(text, mels, alignment, waveform, bool(outputs["hit_limit"][row]), fault))
            self.audio_seconds += len(waveform) / self.sample_rate
        return results

    def _sample_inputs(
        self, symbols: Sequence[str], speakers: Sequence[str], rates: Sequence[Sequence[float]] | None
    ) -> dict[str, Any]:
        """The inputs of a network that makes samples; its graph in ONNX is of one text and takes no lengths."""
        import numpy as np

        # A rate for each symbol; padding has the usual one.
        inputs = self._inputs(symbols, speakers)
        of_symbols = np.ones(inputs["symbols"].shape, np.float32)
        for row, values in zip(of_symbols, rates or (), strict=False):
            row[: len(values)] = values
        # Deviation of the frames' noise, factor of durations, deviation of the durations' noise.
        own = self.info.model_settings
        scales = np.array([own["noise"], own["length"], own["duration_noise"]], np.float32)
        if self._graph is not None:
            del inputs["lengths"]
        return {**inputs, "rates": of_symbols, "scales": scales}

    def _sample_pace(self, text: str, durations: "Array", rates: "Array") -> PaceFault:
        """The fault of a text's length, without the tempo that SSML asks for."""
        count = len(text)
        frames = float((durations[:count].astype(int) * rates[:count]).sum())
        return self.pace.fault(text, frames * self.features.hop_length / self.sample_rate)

    def _with_tempo(
        self, outputs: dict[str, Any], symbols: Sequence[str], rates: Sequence[Sequence[float]]
    ) -> dict[str, Any]:
        """The outputs of a batch at the rates of its symbols; alignments stay those of the usual rate."""
        reduction = self.info.reduction
        mels = []
        for row, text in enumerate(symbols):
            frames = int(outputs["frames"][row])
            alignment = outputs["alignments"][row, : self._steps(frames), : len(text)]
            mels.append(change_tempo(outputs["mels"][row, :frames], alignment, rates[row], reduction))
        changed = {**outputs, "mels": mels, "frames": [len(mel) for mel in mels]}
        return changed if self.vocoder is not None else {**changed, **self._griffin_lim(changed)}

    def _waveforms(self, outputs: dict[str, Any], symbols: Sequence[str]) -> list["Array"]:
        """The waveform of each row: the model's, or the vocoder's of its mels."""
        import numpy as np

        if self.vocoder is None:
            return [row[:samples] for row, samples in zip(outputs["waveforms"], outputs["samples"], strict=True)]
        mels = [row[:frames] for row, frames in zip(outputs["mels"], outputs["frames"], strict=True)]
        for features, text in zip(mels, symbols, strict=True):
            if not np.isfinite(features).all():
                raise self._not_finite(text)
        return self.vocoder.vocode(mels)

    def _refuse_idle_inputs(self, sampling: Sampling) -> None:
        """Refuses inputs that would change nothing."""
        if self.vocoder is None and not sampling.is_own:
            raise SettingsError(
                f"{self.folder}: sigma and denoiser are of a WaveGlow, and this voice speaks by Griffin-Lim; give a "
                "vocoder"
            )
        if self._iterations is None:
            return
        if self.vocoder is not None:
            raise SettingsError(f"{self.folder}: iterations are of Griffin-Lim, and this voice speaks by a vocoder")
        if self.info.kind == "tacotron":
            raise SettingsError(
                f"{self.folder}: the Griffin-Lim of a tacotron is in its graph, since it reads a linear spectrum; "
                "export it again (voxline models export --iterations)"
            )

    def _decode(self, text: dict[str, Any], *, with_audio: bool) -> dict[str, Any]:
        """The outputs of the signature `synthesize`.

        Args:
          text: as `_inputs` has it.
          with_audio: whether Griffin-Lim is wanted too.
        """
        if self._graph is not None:
            outputs = self._graph(**text)
            return {**outputs, **self._griffin_lim(outputs)} if with_audio else outputs
        if with_audio and self._iterations is not None:
            outputs = self._decode(text, with_audio=False)
            return {**outputs, **self._griffin_lim(outputs)}
        return self._call("synthesize" if with_audio or SPEAK not in self._signatures else SPEAK, **text)

    def _griffin_lim(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """waveforms and samples of a batch's mels, as the exported Griffin-Lim makes them."""
        from voxline.audio.griffin_lim import features_to_waveform

        how = dict(self.info.settings.get("griffin_lim", {}))
        if self._iterations is not None:
            how["iterations"] = self._iterations
        batch = zip(outputs["mels"], outputs["frames"], strict=True)
        waveforms = [features_to_waveform(mels[:frames], self.features, **how) for mels, frames in batch]
        return {"waveforms": waveforms, "samples": [len(waveform) for waveform in waveforms]}

    def _call(self, signature: str, **inputs: Any) -> dict[str, Any]:
        return call_signature(self._signatures[signature], self.folder, **inputs)

    def _teacher_forced(
        self, symbols: Sequence[str], features: Sequence["Array"], speakers: Sequence[str]
    ) -> list[TeacherForcedResult]:
        import numpy as np

        inputs = self._inputs(symbols, speakers)
        frames = np.array([len(feature_frames) for feature_frames in features], np.int32)
        padded = np.zeros((len(features), int(frames.max()), features[0].shape[1]), np.float32)
        for row, feature_frames in zip(padded, features, strict=True):
            row[: len(feature_frames)] = feature_frames

        # A voice that ONNX Runtime runs loads its SavedModel here, once.
        if not self._signatures:
            self._load(TEACHER_FORCED_SIGNATURES)
        outputs = self._call("teacher_forced", **inputs, features=padded, frames=frames)
        results = []
        for index, text in enumerate(symbols):
            count = int(frames[index])
            error = float(outputs["mel_l1"][index])
            mels = outputs["mels"][index, :count]
            alignment = outputs["alignments"][index]
            if not (np.isfinite(mels).all() and np.isfinite(error)):
                raise self._not_finite(text)
            results.append(TeacherForcedResult(mels, alignment[: self._steps(count), : len(text)], error))
        return results

    def _not_finite(self, text: str) -> WorkError:
        return WorkError(f"{self.folder}: the output for {quote_text(text)} is not finite; train the model again")

    def _steps(self, frames: int) -> int:
        """Decoder steps that make so many frames."""
        return -(-frames // self.info.reduction)

    def _inputs(self, symbols: Sequence[str], speakers: Sequence[str]) -> dict[str, Any]:
        """Indices int32 [batch, symbols], padded with 0, lengths int32 [batch], and who speaks, int32 [batch]."""
        import numpy as np

        lengths = np.array([len(text) for text in symbols], np.int32)
        labels = np.zeros((len(symbols), int(lengths.max())), np.int32)
        for row, text in zip(labels, symbols, strict=True):
            row[: len(text)] = self.text.alphabet.encode(text)
        inputs = {"symbols": labels, "lengths": lengths}
        # A row of the speaker table for each text: a batch may mix speakers.
        if self.speakers:
            rows = [self.speakers.index(name) if name else self._own_speaker for name in speakers]
            inputs[SPEAKERS] = np.array(rows, np.int32)
        return inputs
