"""Measures an exported ASR model: its hypotheses on the test split against the references."""

import copy
import dataclasses
import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.components.evaluate.measurement import (
    Candidate,
    EvaluationJob,
    Evaluator,
    MeasuredGraph,
    MeasuredModel,
    Slicing,
    slice_by_band,
    slice_by_field,
)
from voxline.components.evaluate.speech import read_utterance
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.families.asr.details import (
    AsrDetails,
    AsrSmokeTest,
    ConfusionInfo,
    GreedyInfo,
    HighLossInfo,
    JoinedInfo,
    MissedWordInfo,
)
from voxline.families.asr.joined import measure_joined
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.families.asr.spelling import normalizer, speller
from voxline.families.family import EvaluateFamily, TextJudge, TextJudgement, find_family, text_judging_families
from voxline.inference.onnx_model import Engine
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import batches_by_length, read_model_info
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import (
    CLIP_FILE,
    ONNX_WER,
    PART,
    PROBE,
    EvaluationInfo,
    OnnxDifference,
    OnnxInfo,
    UtteranceResult,
)
from voxline.metrics.wer import (
    EditCounts,
    SyllableEdits,
    count_character_edits,
    count_confusions,
    count_missed_words,
    count_syllable_edits,
    count_word_edits,
    sum_edits,
)
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write

if TYPE_CHECKING:
    from voxline.report import Block

MAX_CONFUSIONS = 1000
"""Pairs of confused words kept in metrics.json."""

TEXT_JUDGE = "text_judge"
"""The setting that names a model which judges the transcripts, and its key among the auxiliary models."""

NO_FRAMES = "none: the model has a decoder"
"""Why no utterance has a CTC loss."""
WORST_BY_LOSS = 10
"""Utterances with the highest loss, in metrics.json and the report: as many as Mozilla DeepSpeech showed."""


class NormalizedEdits(NamedTuple):
    """The edits that turn a normalized reference into a normalized hypothesis."""

    words: EditCounts
    characters: EditCounts


@dataclasses.dataclass(frozen=True)
class AsrResult:
    """One utterance, as a model transcribed it.

    Attributes:
      loss: the CTC loss of the reference, in nats; None: `no_loss` says why the model cannot output it.
      greedy_loss: the CTC loss of the greedy transcript.
      confidence: of the hypothesis; see `Transcript`. None without words.
      bands_db: the spectrum of the recording; see `AudioProfile`.
      judgement: of the hypothesis; None without a model that judges texts.
      silence: words that were written into an utterance without a word, a minute; None: no utterance of the
        split is without.
      parts: that the recording was cut into.
      normalized: the edits of both texts without case, marks and digits; None of a model that writes words alone.
    """

    hypothesis: str
    words: EditCounts
    characters: EditCounts
    syllables: SyllableEdits | None
    greedy: str
    loss: float | None
    no_loss: str
    greedy_loss: float | None = None
    confidence: float | None = None
    bands_db: list[float] = dataclasses.field(default_factory=list)
    judgement: TextJudgement | None = None
    normalized: NormalizedEdits | None = None
    silence: SumAndWeight | None = None
    parts: int = 1

    def metrics(self) -> dict[str, SumAndWeight]:
        """Returns what the utterance adds to each metric of the catalog."""
        return {
            "wer": self.words.as_metric,
            "cer": self.characters.as_metric,
            **(
                {
                    "wer_normalized": self.normalized.words.as_metric,
                    "cer_normalized": self.normalized.characters.as_metric,
                }
                if self.normalized
                else {}
            ),
            **self.words.by_kind,
            **({"silence_words": self.silence} if self.silence else {}),
            **(self.syllables.metrics() if self.syllables else {}),
            "sentence_error_rate": SumAndWeight(int(self.words.errors > 0)),
            # Without a judge the metric is absent; a loss that does not exist is there, with a weight of 0.
            **({} if self.judgement is None else {self.judgement.metric: self.judgement.error}),
            "ctc_loss": SumAndWeight(0, 0) if self.loss is None else SumAndWeight(self.loss),
        }


class AsrEvaluateFamily(EvaluateFamily):
    """Loads recognizers to measure, and makes their evaluator."""

    activity = "transcribing"
    participle = "transcribed"

    def slicings(self, settings: AsrEvaluateSettings) -> dict[str, Slicing]:
        return {
            "speaker": slice_by_field("speaker"),
            "duration": slice_by_band(lambda utterance: utterance.duration, settings.duration_bands, "s"),
            "words": slice_by_band(lambda utterance: len(utterance.text.split()), settings.word_bands, "words"),
            "speaking_rate": slice_by_band(characters_per_second, settings.rate_bands, "characters/s"),
            "level": slice_by_band(lambda utterance: measure_audio(utterance)[0], settings.level_bands, "dB"),
            "snr": slice_by_band(lambda utterance: measure_audio(utterance)[1], settings.snr_bands, "dB"),
        }

    def auxiliary_models(self, registry: Path | str, settings: AsrEvaluateSettings) -> dict[str, ModelVersion | None]:
        if not settings.text_judge:
            return {}
        accepted = text_judging_families()
        return {TEXT_JUDGE: find_auxiliary(registry, settings.text_judge, family=accepted, setting=TEXT_JUDGE)}

    def load(self, folder: Path, settings: AsrEvaluateSettings, engine: Engine) -> Recognizer:
        return Recognizer(folder, batch_seconds=settings.batch_seconds, engine=engine, pauses=settings.pauses)

    def evaluator(self, job: EvaluationJob, model: Recognizer) -> "AsrEvaluator":
        return AsrEvaluator(job, model)


class AsrEvaluator(Evaluator[Recognizer, AsrResult, AsrDetails]):
    """Measures recognizers on the same utterances, with one model that judges the texts of all of them."""

    def __init__(self, job: EvaluationJob, model: Recognizer) -> None:
        super().__init__(job, model)
        self._judge = _text_judge(job)
        # By the new model alone: a version is normalized as the new model is, or their errors could not be paired.
        self._normalize = normalizer(model.info, model.alphabet, job.settings.normalization)

    def measure(self, model: Recognizer, candidate: Candidate) -> MeasuredModel[AsrResult]:
        utterances = self.job.utterances
        spell = self._spellings(model)
        results = _transcribe(
            model, utterances, candidate.unit, spell, reference=candidate.is_new, normalize=self._normalize
        )
        if self._judge:
            results = _with_judgements(self._judge, utterances, results)
        return MeasuredModel(
            values=[result.metrics() for result in results],
            rtf=_rtf(model),
            details=[self._line(*pair) for pair in zip(utterances, results, strict=True)] if candidate.is_new else (),
            champion_details=[{"champion_hypothesis": result.hypothesis} for result in results],
            records=results,
        )

    def _spellings(self, model: Recognizer) -> list[Callable[[str], str]]:
        """How the text of each utterance is spelled before errors are counted.

        A tuned model's as written. A public model's as the references of the same part are, and any model's on a probe:
        its transcripts may be in another style than those that the model was tuned on.
        """
        parts = [names.get(PART, "") for names in self.job.slices]
        texts: dict[str, list[str]] = {}
        for utterance, part in zip(self.job.utterances, parts, strict=True):
            texts.setdefault(part, []).append(utterance.text)
        spellers = {part: speller(references) for part, references in texts.items()}
        return [spellers[part] if model.info.is_as_published or part == PROBE else str for part in parts]

    @functools.cached_property
    def joined(self) -> JoinedInfo | None:
        """What the new model makes of utterances that are joined with pauses; None if it is not measured."""
        settings = self.job.settings
        if not settings.joined_seconds:
            return None
        print_status("evaluate: transcribing some of them again, joined with pauses")
        spell = self._spellings(self.model)[0]
        normalize = self._normalize or str
        return measure_joined(
            self.model, self.job.utterances, settings.joined_seconds, lambda text: normalize(spell(text))
        )

    def figures(self, measured: MeasuredModel[AsrResult]) -> dict[str, float]:
        if self.joined is None:
            return {}
        return {"joined_wer": self.joined.words.rate, "pause_words": self.joined.words_a_minute}

    def _line(self, utterance: Utterance, result: AsrResult) -> dict[str, Any]:
        """The further keys of an utterance's line; `champion_hypothesis` is null without a model in service."""
        level_db, snr_db = measure_audio(utterance)

        # Texts and losses tell doubtful transcripts; sound and confidence are what `voxline watch` compares.
        return {
            "reference": utterance.text,
            "hypothesis": result.hypothesis,
            **({"greedy_hypothesis": result.greedy} if self.model.language_model else {}),
            "champion_hypothesis": None,
            "words": dataclasses.asdict(result.words),
            "characters": dataclasses.asdict(result.characters),
            "loss": result.loss,
            "greedy_loss": result.greedy_loss,
            **({"no_loss": result.no_loss} if result.no_loss else {}),
            **({"judgement": result.judgement.label} if result.judgement else {}),
            "level_db": level_db,
            "snr_db": snr_db,
            "speaking_rate": round(characters_per_second(utterance), 2),
            "confidence": result.confidence,
            "bands_db": result.bands_db,
        }

    def compare_onnx(self, graph: Recognizer, measured: MeasuredModel[AsrResult], unit: str) -> MeasuredGraph:
        """Compares the texts of the ONNX graphs, for whole recordings and for streams, with those of the SavedModel."""
        results = _transcribe(graph, self.job.utterances, unit, self._spellings(graph))
        different = self._differences(
            [result.hypothesis for result in measured.records], [result.hypothesis for result in results]
        )
        return MeasuredGraph(
            onnx=OnnxInfo(
                rtf=_rtf(graph),
                precision=graph.info.onnx_precision,
                count=len(different),
                different=different[:MAX_CONFUSIONS],
            ),
            streaming=self._compare_streaming(graph, measured) if (self.job.model / STREAM_FILE).is_file() else None,
            # A graph of 8 bits writes other texts, so push judges it by its own errors.
            details=[{ONNX_WER: list(result.words.as_metric)} for result in results],
        )

    def _compare_streaming(self, graph: Recognizer, measured: MeasuredModel[AsrResult]) -> OnnxInfo:
        utterances = self.job.utterances
        print_status("evaluate: transcribing them while they arrive, with the model's streaming graph")
        progress = Progress("utterances streamed", len(utterances))
        streaming = OnnxInfo()
        texts = []
        # A stream is not cut, so neither is what it is compared with.
        whole = copy.copy(self.model)
        whole.finder = None
        spellings = self._spellings(graph)
        hypotheses = []
        for utterance, result, spell in zip(utterances, measured.records, spellings, strict=True):
            waveform = read_utterance(utterance, graph.sample_rate)
            stream = graph.stream()
            stream.feed(waveform)
            transcript = stream.finish()
            hypothesis = result.hypothesis
            if result.parts > 1:
                hypothesis = spell(whole.transcribe_waveforms([waveform])[0])
            hypotheses.append(hypothesis)

            # The waiting times follow from the graph, so they are the same for every utterance.
            streaming.lookahead_ms = stream.latency.lookahead_ms
            streaming.chunk_ms = stream.latency.chunk_ms
            streaming.algorithmic_ms = stream.latency.algorithmic_ms

            # A stream has no text for silence, and the comparison is about the network.
            texts.append(hypothesis if transcript.note else transcript.text)
            progress.advance(1)

        different = self._differences(hypotheses, texts)
        streaming.count = len(different)
        streaming.different = different[:MAX_CONFUSIONS]
        return streaming

    def _differences(self, hypotheses: Sequence[str], texts: Sequence[str]) -> list[OnnxDifference]:
        """The utterances whose text by another graph is not that of the SavedModel."""
        return [
            OnnxDifference(id=utterance.id, saved_model=hypothesis, onnx=text)
            for utterance, hypothesis, text in zip(self.job.utterances, hypotheses, texts, strict=True)
            if hypothesis != text
        ]

    def details(self, measured: MeasuredModel[AsrResult]) -> AsrDetails:
        results = measured.records
        references = [utterance.text for utterance in self.job.utterances]
        hypotheses = [result.hypothesis for result in results]
        language_model = self.model.language_model
        return AsrDetails(
            words=sum_edits(result.words for result in results),
            characters=sum_edits(result.characters for result in results),
            confusions=[
                ConfusionInfo(reference=reference, hypothesis=hypothesis, count=count)
                for reference, hypothesis, count in count_confusions(references, hypotheses)[:MAX_CONFUSIONS]
            ],
            missed_words=[
                MissedWordInfo(word=word, missed=times, occurs=occurs)
                for word, times, occurs in count_missed_words(references, hypotheses)[:MAX_CONFUSIONS]
            ],
            worst_by_loss=_worst_by_loss(self.job.utterances, results),
            language_model=language_model,
            greedy=_greedy_edits(references, results) if language_model else None,
            joined=self.joined,
        )

    def smoke_test(self, measured: MeasuredModel[AsrResult]) -> AsrSmokeTest:
        """Writes a recording for push's smoke test, which expects the same text from a fresh process.

        It prefers a clip of about three seconds that was transcribed without an error.
        """
        import soundfile

        from voxline.audio.wav import to_int16

        # An empty text is no test at all, and a wrong one is a weak test.
        def preference(index: int) -> tuple[Any, ...]:
            result = measured.records[index]
            utterance = self.job.utterances[index]
            return not result.hypothesis, result.words.errors > 0, abs(utterance.duration - 3), utterance.id

        utterance = self.job.utterances[min(range(len(measured.records)), key=preference)]
        samples = to_int16(read_utterance(utterance, self.model.sample_rate))
        wav = io.BytesIO()
        soundfile.write(wav, samples, self.model.sample_rate, format="WAV", subtype="PCM_16")
        clip = self.job.output / CLIP_FILE
        with atomic_write(clip) as file:
            file.write(wav.getvalue())

        # Read back from the file, whose 16 bits are what the fresh process reads. Neither cuts it.
        whole = copy.copy(self.model)
        whole.finder = None
        return AsrSmokeTest(id=utterance.id, reference=utterance.text, text=whole.transcribe(clip))

    def counts(self, measured: MeasuredModel[AsrResult]) -> dict[str, int]:
        return {"words": sum(result.words.length for result in measured.records)}

    def report_sections(
        self, results: Sequence[UtteranceResult], info: EvaluationInfo
    ) -> list[tuple[str, list["Block"]]]:
        from voxline.families.asr.report import asr_sections

        return asr_sections(self.job, results, info, self.model)

    def describe_method(self, details: AsrDetails) -> str:
        errors = (
            "The exported model was loaded from the files that would ship, and transcribed the test split. jiwer "
            "counts the errors; an error rate is all errors over all words (or characters) of the references.\n\n"
        )
        if details.joined:
            errors += (
                f"{details.joined.utterances:,} utterances were also joined, with pauses of 0.3 to 3 s of digital "
                "silence, of noise at -60 dB of full scale and of their own room tone.\n\n"
            )
        if self._normalize:
            errors += (
                "Texts are compared as they are written, with capitals and punctuation if the references have them, "
                "and a second time normalized: both without case and marks, and, in English and Mandarin, with "
                "numbers spelled out; words that differ in their spaces alone, such as mail box and mailbox, are "
                "alike, and English contractions are written in full.\n\n"
            )
        if not self.model.has_ctc:
            return errors + (
                "The decoding is greedy. The confidence of a text is the geometric mean of the probabilities of its "
                "tokens."
            )
        return errors + (
            "Level is the RMS of the whole clip. The signal-to-noise ratio is an estimate: the distance between the "
            "95th and the 10th percentile of the levels of 20 ms frames. The confidence of a word is the geometric "
            "mean, over its characters, of the highest CTC probability of the character within the word (forced "
            "alignment).\n\n"
            "The loss of an utterance is the CTC loss of its reference in nats, of the network's output alone, without "
            "a language model. A high loss of a recording that sounds clear points to a wrong transcript."
        )


def characters_per_second(utterance: Utterance) -> float:
    """Characters of the reference per second."""
    return len(utterance.text) / max(utterance.duration, 0.001)


# Slicings and lines ask for the same recordings, and reading one takes milliseconds.
@functools.lru_cache(maxsize=65_536)
def _measured(file: str, offset: float, duration: float) -> tuple[float, float]:
    import soundfile

    from voxline.audio.loudness import level_and_snr

    # An utterance may be a part of a long recording; its samples [samples, channels] are averaged to one channel.
    with soundfile.SoundFile(file) as sound:
        sound.seek(min(round(offset * sound.samplerate), sound.frames))
        samples = sound.read(round(duration * sound.samplerate), dtype="float32", always_2d=True).mean(axis=1)
        level, snr = level_and_snr(samples, sound.samplerate)
    return round(level, 2), round(snr, 2)


def measure_audio(utterance: Utterance) -> tuple[float, float]:
    """The level and the estimated signal-to-noise ratio of a recording, in dB.

    Raises:
      WorkError: it cannot be read.
    """
    import soundfile

    try:
        return _measured(str(utterance.audio_filepath), utterance.offset, utterance.duration)
    except (OSError, soundfile.LibsndfileError) as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None


def _transcribe(
    recognizer: Recognizer,
    utterances: Sequence[Utterance],
    unit: str,
    spell: Sequence[Callable[[str], str]],
    *,
    reference: bool = False,
    normalize: Callable[[str], str] | None = None,
) -> list[AsrResult]:
    """Transcribes every utterance, holding one batch of audio at a time.

    Args:
      unit: for the progress line.
      spell: changes the hypothesis of each utterance, before its errors are counted.
      reference: measures confidences and spectra too, with which `voxline watch` compares what is heard in service.
      normalize: changes hypotheses and references alike, before errors are counted a second time.
    """
    from voxline.audio.profile import audio_profile
    from voxline.inference.ctc_alignment import text_loss

    # Batches of similar length pad little; results come back in the order of the utterances.
    partial: list[_Transcribed | None] = [None] * len(utterances)
    progress = Progress(unit, len(utterances))
    alphabet = recognizer.alphabet
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(recognizer.batch_seconds * 1000)):
        waveforms = [read_utterance(utterances[index], recognizer.sample_rate) for index in batch]
        for index, waveform, decoded in zip(batch, waveforms, recognizer.decode_waveforms(waveforms), strict=True):
            utterance = utterances[index]

            # log_probabilities: [frames, symbols + 1]. The greedy text of a right answer is the reference itself.
            loss: float | None = None
            no_loss = NO_FRAMES
            if recognizer.has_ctc:
                loss, no_loss = text_loss(decoded.log_probabilities, utterance.text, alphabet)
            greedy_loss = loss
            if recognizer.has_ctc and decoded.greedy != utterance.text:
                greedy_loss, _ = text_loss(decoded.log_probabilities, decoded.greedy, alphabet)

            # Only of the new model, as the reference of `voxline watch`: a version has those of its own evaluation.
            confidence = None
            bands_db: list[float] = []
            if reference:
                probability = recognizer.confidence(decoded, utterance.duration)
                confidence = None if probability is None else round(float(probability), 4)
                bands_db = audio_profile(waveform, recognizer.sample_rate).bands_db
            partial[index] = _Transcribed(
                decoded.text,
                spell[index](decoded.text),
                decoded.greedy,
                loss,
                no_loss,
                greedy_loss,
                confidence,
                bands_db,
                decoded.parts,
            )
        progress.advance(len(batch))

    # The edits are counted of all texts at once, which decides whether the language has syllables to count.
    transcribed = [result for result in partial if result is not None]
    references = [utterance.text for utterance in utterances]
    hypotheses = [result.hypothesis for result in transcribed]
    no_syllables: list[SyllableEdits | None] = [None] * len(transcribed)
    normalized: Sequence[NormalizedEdits | None] = [None] * len(transcribed)
    if normalize:
        normalized = _count_normalized(references, [result.written for result in transcribed], normalize)
    any_silence = not all(references)
    rows = zip(
        utterances,
        transcribed,
        count_word_edits(references, hypotheses),
        count_character_edits(references, hypotheses),
        count_syllable_edits(references, hypotheses) or no_syllables,
        normalized,
        strict=True,
    )
    return [
        AsrResult(
            hypothesis=result.hypothesis,
            words=words,
            characters=characters,
            syllables=syllables,
            greedy=result.greedy,
            loss=result.loss,
            no_loss=result.no_loss,
            greedy_loss=result.greedy_loss,
            confidence=result.confidence,
            bands_db=result.bands_db,
            normalized=normalized_edits,
            silence=_words_in_silence(utterance, words) if any_silence else None,
            parts=result.parts,
        )
        for utterance, result, words, characters, syllables, normalized_edits in rows
    ]


def _words_in_silence(utterance: Utterance, words: EditCounts) -> SumAndWeight:
    # Over seconds, as a weight below 1 would count as 1.
    return SumAndWeight(0, 0) if utterance.text else SumAndWeight(60 * words.insertions, utterance.duration)


def _count_normalized(
    references: Sequence[str], written: Sequence[str], normalize: Callable[[str], str]
) -> list[NormalizedEdits]:
    normalized_references = list(map(normalize, references))
    normalized_hypotheses = list(map(normalize, written))
    pairs = zip(
        count_word_edits(normalized_references, normalized_hypotheses, spacing=False),
        count_character_edits(normalized_references, normalized_hypotheses),
        strict=True,
    )
    return [NormalizedEdits(words, characters) for words, characters in pairs]


class _Transcribed(NamedTuple):
    """An `AsrResult` before its edits are counted; `written` is the hypothesis as the model wrote it."""

    written: str
    hypothesis: str
    greedy: str
    loss: float | None
    no_loss: str
    greedy_loss: float | None
    confidence: float | None
    bands_db: list[float]
    parts: int


def _text_judge(job: EvaluationJob) -> TextJudge | None:
    version = job.auxiliary_models.get(TEXT_JUDGE)
    if version is None:
        return None
    print_status(f"evaluate: judging what was heard with {version.name} {version.version}")
    try:
        return find_family(read_model_info(version.folder).family).text_judge(version.folder)
    except WorkError as error:
        raise version.unusable(error) from None


def _with_judgements(
    judge: TextJudge, utterances: Sequence[Utterance], results: Sequence[AsrResult]
) -> list[AsrResult]:
    """The results with the judgements of their hypotheses.

    Raises:
      WorkError: the judge cannot judge them; naming its setting.
    """
    try:
        judgements = judge.judge([result.hypothesis for result in results], utterances)
    except WorkError as error:
        # The judge does not know which setting named it.
        raise WorkError(f"{error}, or set evaluate.{TEXT_JUDGE} to ''") from None
    return [
        dataclasses.replace(result, judgement=judgement) for result, judgement in zip(results, judgements, strict=True)
    ]


def _worst_by_loss(utterances: Sequence[Utterance], results: Sequence[AsrResult]) -> list[HighLossInfo]:
    """The utterances with the highest CTC loss, those that the model cannot output first."""

    # A loss of None is infinite: False sorts first. The id breaks ties, so that a repetition lists the same.
    def order(index: int) -> tuple[Any, ...]:
        loss = results[index].loss
        return loss is not None, -(loss or 0.0), utterances[index].id

    if all(result.no_loss == NO_FRAMES for result in results):
        return []
    return [
        HighLossInfo(
            id=utterances[index].id,
            reference=utterances[index].text,
            hypothesis=results[index].hypothesis,
            wer=round(results[index].words.errors / max(results[index].words.length, 1), 6),
            loss=results[index].loss,
            no_loss=results[index].no_loss,
        )
        for index in sorted(range(len(results)), key=order)[:WORST_BY_LOSS]
    ]


def _greedy_edits(references: Sequence[str], results: Sequence[AsrResult]) -> GreedyInfo:
    greedy = [result.greedy for result in results]
    return GreedyInfo(
        words=sum_edits(count_word_edits(references, greedy)),
        characters=sum_edits(count_character_edits(references, greedy)),
    )


def _rtf(recognizer: Recognizer) -> float | None:
    return recognizer.seconds / recognizer.audio_seconds if recognizer.audio_seconds else None
