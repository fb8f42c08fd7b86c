"""Measures an exported ASR model: its hypotheses on the test split against the references."""

import dataclasses
import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.components.evaluate.measurement import (
    EvaluationJob,
    Measurements,
    Slicing,
    slice_by_band,
    slice_by_field,
)
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.families.asr.details import (
    AsrDetails,
    AsrSmokeTest,
    ConfusionInfo,
    GreedyInfo,
    HighLossInfo,
    MissedWordInfo,
)
from voxline.families.asr.settings import AsrEvaluateSettings
from voxline.families.family import TextJudge, TextJudgement, find_family, text_judging_families
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.recognizer import Recognizer
from voxline.inference.saved_model import batches_by_length, read_model_info
from voxline.inference.streaming_graph import STREAM_FILE
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import (
    CLIP_FILE,
    ONNX_WER,
    EvaluationInfo,
    OnnxDifference,
    OnnxInfo,
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
from voxline.text.alphabet import Alphabet

if TYPE_CHECKING:
    from voxline.inference.waveforms import Waveform
    from voxline.report import Block

MAX_CONFUSIONS = 1000
"""Pairs of confused words kept in metrics.json."""

TEXT_JUDGE = "text_judge"
"""The setting that names a model which judges the transcripts, and its key among the auxiliary models."""

WORST_BY_LOSS = 10
"""Utterances with the highest loss, in metrics.json and the report: as many as Mozilla DeepSpeech showed."""


@dataclasses.dataclass(frozen=True)
class AsrResult:
    """One utterance, as a model transcribed it.

    Attributes:
      loss: the CTC loss of the reference, in nats; None: `no_loss` says why the model cannot output it.
      greedy_loss: the CTC loss of the greedy transcript.
      confidence: of the hypothesis; see `Transcript`. None without words.
      bands_db: the spectrum of the recording; see `AudioProfile`.
      judgement: of the hypothesis; None without a model that judges texts.
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

    def metrics(self) -> dict[str, SumAndWeight]:
        """What it adds to each metric of the catalog."""
        return {
            "wer": self.words.as_metric,
            "cer": self.characters.as_metric,
            **self.words.by_kind,
            **(self.syllables.metrics() if self.syllables else {}),
            "sentence_error_rate": SumAndWeight(int(self.words.errors > 0)),
            **({} if self.judgement is None else {self.judgement.metric: self.judgement.error}),
            "ctc_loss": SumAndWeight(0, 0) if self.loss is None else SumAndWeight(self.loss),
        }


class AsrEvaluateFamily:
    """How evaluate measures ASR models; see `EvaluateFamily`."""

    def slicings(self, settings: AsrEvaluateSettings) -> dict[str, Slicing]:
        return {
            "speaker": slice_by_field("speaker"),
            "duration": slice_by_band(lambda utterance: utterance.duration, settings.duration_bands, "s"),
            "words": slice_by_band(lambda utterance: len(utterance.text.split()), settings.word_bands, "words"),
            "speaking_rate": slice_by_band(characters_per_second, settings.rate_bands, "characters/s"),
            "level": slice_by_band(lambda utterance: measure_audio(utterance)[0], settings.level_bands, "dB"),
            "snr": slice_by_band(lambda utterance: measure_audio(utterance)[1], settings.snr_bands, "dB"),
        }

    def auxiliary_models(
        self,
        registry: Path | str,
        settings: AsrEvaluateSettings,
    ) -> dict[str, ModelVersion | None]:
        if not settings.text_judge:
            return {}  # so that earlier evaluations are found
        accepted = text_judging_families()
        return {TEXT_JUDGE: find_auxiliary(registry, settings.text_judge, family=accepted, setting=TEXT_JUDGE)}

    def measure(self, job: EvaluationJob) -> Measurements:
        settings, utterances = job.settings, job.utterances
        print_status(f"evaluate: transcribing {len(utterances):,} utterances of the split {settings.split!r}")
        recognizer = Recognizer(job.model, batch_seconds=settings.batch_seconds, engine="tensorflow")
        results = _transcribe(recognizer, utterances, "utterances transcribed", reference=True)
        champion, champion_rtf = _transcribe_with(job, job.champion, "the model in service")
        anchor, _ = _transcribe_with(job, job.anchor, "the anchor")
        if judge := _text_judge(job):
            results = _with_judgements(judge, utterances, results)
            champion = champion and _with_judgements(judge, utterances, champion)
            anchor = anchor and _with_judgements(judge, utterances, anchor)
        onnx, streaming, by_onnx = _measure_onnx(job, results)
        details = [
            {
                "reference": utterance.text,
                "hypothesis": result.hypothesis,
                **({"greedy_hypothesis": result.greedy} if recognizer.language_model else {}),
                "champion_hypothesis": champion and champion[index].hypothesis,
                "words": dataclasses.asdict(result.words),
                "characters": dataclasses.asdict(result.characters),
                "loss": result.loss,
                "greedy_loss": result.greedy_loss,
                **({"no_loss": result.no_loss} if result.no_loss else {}),
                **({"judgement": result.judgement.label} if result.judgement else {}),
                **({ONNX_WER: list(by_onnx[index].words.as_metric)} if by_onnx else {}),
                **dict(zip(("level_db", "snr_db"), measure_audio(utterance), strict=True)),
                "speaking_rate": round(characters_per_second(utterance), 2),
                "confidence": result.confidence,
                "bands_db": result.bands_db,
            }
            for index, (utterance, result) in enumerate(zip(utterances, results, strict=True))
        ]
        words = sum_edits(result.words for result in results)
        texts = [one.text for one in utterances], [result.hypothesis for result in results]
        pairs, missed = count_confusions(*texts), count_missed_words(*texts)
        return Measurements(
            results=job.results(
                [result.metrics() for result in results],
                [result.metrics() for result in champion] if champion else None,
                details,
                [result.metrics() for result in anchor] if anchor else None,
            ),
            rtf=_rtf(recognizer),
            champion_rtf=champion_rtf,
            details=AsrDetails(
                words=words,
                characters=sum_edits(result.characters for result in results),
                confusions=[
                    ConfusionInfo(reference=reference, hypothesis=hypothesis, count=count)
                    for reference, hypothesis, count in pairs[:MAX_CONFUSIONS]
                ],
                missed_words=[
                    MissedWordInfo(word=word, missed=times, occurs=occurs)
                    for word, times, occurs in missed[:MAX_CONFUSIONS]
                ],
                worst_by_loss=_worst_by_loss(utterances, results),
                language_model=recognizer.language_model,
                greedy=_greedy_edits(texts[0], results) if recognizer.language_model else None,
                onnx=onnx,
                streaming=streaming,
            ),
            smoke_test=_write_clip(job, recognizer, results),
            outputs={},
            counts={"words": words.length},
            samples=recognizer,
        )

    def report_sections(
        self, job: EvaluationJob, measured: Measurements, info: EvaluationInfo
    ) -> list[tuple[str, "list[Block]"]]:
        from voxline.families.asr.report import asr_sections

        return asr_sections(job, measured.results, info, measured.samples)

    def describe_method(self, job: EvaluationJob, measured: Measurements) -> str:
        return (
            "The exported model was loaded from the files that would ship, and transcribed the test split. jiwer "
            "counts the errors; an error rate is all errors over all words (or characters) of the references.\n\n"
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


@functools.lru_cache(maxsize=65_536)
def _measured(file: str, offset: float, duration: float) -> tuple[float, float]:
    import soundfile

    from voxline.audio.loudness import level_and_snr

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
    recognizer: Recognizer, utterances: Sequence[Utterance], unit: str, *, reference: bool = False
) -> list[AsrResult]:
    """Transcribes every utterance, holding one batch of audio at a time.

    Args:
      reference: measures confidences and spectra too, with which `voxline watch` compares what is heard in service.
    """
    from voxline.audio.profile import audio_profile
    from voxline.inference.ctc_alignment import text_loss

    decoded: list[tuple[str, str, float | None, str, float | None]] = [("", "", None, "", None)] * len(utterances)
    measured: list[tuple[float | None, list[float]]] = [(None, [])] * len(utterances)
    progress, alphabet = Progress(unit, len(utterances)), Alphabet(recognizer.info.alphabet)
    milliseconds = [round(utterance.duration * 1000) for utterance in utterances]
    for batch in batches_by_length(milliseconds, round(recognizer.batch_seconds * 1000)):
        waveforms = [_read(utterances[index], recognizer.sample_rate) for index in batch]
        for index, waveform, one in zip(batch, waveforms, recognizer.decode_waveforms(waveforms), strict=True):
            text = utterances[index].text
            loss = text_loss(one.log_probabilities, text, alphabet)
            free = loss[0] if one.greedy == text else text_loss(one.log_probabilities, one.greedy, alphabet)[0]
            decoded[index] = (one.text, one.greedy, *loss, free)
            if reference:
                sure = recognizer.confidence(one, utterances[index].duration)
                bands = audio_profile(waveform, recognizer.sample_rate).bands_db
                measured[index] = (None if sure is None else round(float(sure), 4), bands)
        progress.advance(len(batch))
    references = [utterance.text for utterance in utterances]
    hypotheses = [text for text, *_ in decoded]
    nothing: list[SyllableEdits | None] = [None] * len(decoded)
    syllables = count_syllable_edits(references, hypotheses) or nothing
    words, characters = count_word_edits(references, hypotheses), count_character_edits(references, hypotheses)
    rows = zip(decoded, words, characters, syllables, measured, strict=True)
    return [
        AsrResult(text, one, other, third, greedy, loss, why, free, *more)
        for (text, greedy, loss, why, free), one, other, third, more in rows
    ]


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
    """The results with the judgements of their hypotheses."""
    judgements = judge.judge([result.hypothesis for result in results], utterances)
    return [
        dataclasses.replace(result, judgement=judgement) for result, judgement in zip(results, judgements, strict=True)
    ]


def _worst_by_loss(utterances: Sequence[Utterance], results: Sequence[AsrResult]) -> list[HighLossInfo]:
    """The utterances with the highest CTC loss, those that the model cannot output first."""

    def order(index: int) -> tuple[Any, ...]:
        loss = results[index].loss
        return loss is not None, -(loss or 0.0), utterances[index].id

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


def _measure_onnx(
    job: EvaluationJob, results: Sequence[AsrResult]
) -> tuple[OnnxInfo | None, OnnxInfo | None, list[AsrResult]]:
    """Compares the texts of the model's ONNX graphs with those of the SavedModel.

    Returns:
      the comparison of the graph for whole recordings, that of the graph for streams, and the results of the first;
      None or [] of a graph that the model does not have.
    """
    if not (job.model / ONNX_FILE).is_file():
        return None, None, []
    print_status("evaluate: transcribing them with the model's ONNX graph")
    recognizer = Recognizer(job.model, batch_seconds=job.settings.batch_seconds, engine="onnx")
    others = _transcribe(recognizer, job.utterances, "utterances transcribed by ONNX Runtime")
    different = _differences(job.utterances, results, [result.hypothesis for result in others])
    onnx = OnnxInfo(
        rtf=_rtf(recognizer),
        precision=recognizer.info.onnx_precision,
        count=len(different),
        different=different[:MAX_CONFUSIONS],
    )
    streaming = None
    if (job.model / STREAM_FILE).is_file():
        print_status("evaluate: transcribing them while they arrive, with the model's streaming graph")
        texts = []
        streaming = OnnxInfo()
        progress = Progress("utterances streamed", len(job.utterances))
        for utterance, result in zip(job.utterances, results, strict=True):
            stream = recognizer.stream()
            stream.feed(_read(utterance, recognizer.sample_rate))
            transcript = stream.finish()
            # The waiting times follow from the graph, so they are the same for every utterance.
            streaming.lookahead_ms = stream.latency.lookahead_ms
            streaming.chunk_ms = stream.latency.chunk_ms
            streaming.algorithmic_ms = stream.latency.algorithmic_ms
            # Of silence a stream has no text, and the comparison is about the network.
            texts.append(result.hypothesis if transcript.note else transcript.text)
            progress.advance(1)
        different = _differences(job.utterances, results, texts)
        streaming.count = len(different)
        streaming.different = different[:MAX_CONFUSIONS]
    return onnx, streaming, others


def _differences(
    utterances: Sequence[Utterance], results: Sequence[AsrResult], texts: Sequence[str]
) -> list[OnnxDifference]:
    """The utterances whose text by another graph is not that of the SavedModel."""
    return [
        OnnxDifference(id=utterance.id, saved_model=result.hypothesis, onnx=text)
        for utterance, result, text in zip(utterances, results, texts, strict=True)
        if result.hypothesis != text
    ]


def _transcribe_with(
    job: EvaluationJob, version: ModelVersion | None, role: str
) -> tuple[list[AsrResult] | None, float | None]:
    """The results of another version, and its real-time factor; None without one."""
    if version is None:
        return None, None
    print_status(f"evaluate: transcribing them with version {version.version}, {role}")
    try:
        recognizer = Recognizer(version.folder, batch_seconds=job.settings.batch_seconds, engine="tensorflow")
    except WorkError as error:
        raise version.unusable(error) from None
    results = _transcribe(recognizer, job.utterances, f"utterances transcribed by {role}")
    return results, _rtf(recognizer)


def _rtf(recognizer: Recognizer) -> float | None:
    return recognizer.seconds / recognizer.audio_seconds if recognizer.audio_seconds else None


def _read(utterance: Utterance, sample_rate: int) -> "Waveform":
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None


def _write_clip(job: EvaluationJob, recognizer: Recognizer, results: Sequence[AsrResult]) -> AsrSmokeTest:
    """Writes a recording for push's smoke test, which expects the same text from a fresh process.

    It prefers a clip of about three seconds that was transcribed without an error.
    """
    import soundfile

    from voxline.audio.wav import to_int16

    def preference(index: int) -> tuple[Any, ...]:
        result, utterance = results[index], job.utterances[index]
        return not result.hypothesis, result.words.errors > 0, abs(utterance.duration - 3), utterance.id

    utterance = job.utterances[min(range(len(results)), key=preference)]
    wav = io.BytesIO()
    samples = to_int16(_read(utterance, recognizer.sample_rate))
    soundfile.write(wav, samples, recognizer.sample_rate, format="WAV", subtype="PCM_16")
    with atomic_write(job.output / CLIP_FILE) as file:
        file.write(wav.getvalue())
    return AsrSmokeTest(id=utterance.id, reference=utterance.text, text=recognizer.transcribe(job.output / CLIP_FILE))
