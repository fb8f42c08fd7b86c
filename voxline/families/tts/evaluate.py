"""Measures an exported TTS model: its speech for the texts of the test split against the recordings."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.dtw import dtw
from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.judges import (
    SPEAKER_JUDGE,
    VOICE_ACTIVITY,
    SpeakerJudge,
    VoiceActivityJudge,
    VoiceJudges,
    find_judge,
)
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
from voxline.components.evaluate.speech import (
    NOT_MEASURED,
    PUBLIC_RECOGNIZER,
    ROUND_TRIP_RECOGNIZER,
    RoundTripRecognizer,
    describe_difference,
    describe_dnsmos,
    evenly_spaced_ids,
    find_round_trip_recognizer,
    load_round_trip_recognizer,
)
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.families.asr.spelling import normalizer
from voxline.families.family import EvaluateFamily
from voxline.families.tts.details import TtsDetails, TtsSmokeTest
from voxline.families.tts.settings import TtsEvaluateSettings
from voxline.families.tts.speakers import name_speakers
from voxline.families.tts.synthesize import (
    HIT_LIMIT,
    SampleGallery,
    SynthesisRecord,
    measure_synthesis,
    speakers_asked_for,
)
from voxline.inference.model_info import ModelInfo, ShippedVocoder
from voxline.inference.onnx_model import Engine
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import mel_conventions
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    ONNX_WER,
    EvaluationInfo,
    UtteranceResult,
)
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write

if TYPE_CHECKING:
    from voxline.report import Block

MEL_TOLERANCE = 0.05
"""Largest DTW distance between the mels of a model's two forms, as a share of their standard deviation. They are equal
to 1e-4 but for a sound that rounding makes a frame longer."""


class TtsEvaluateFamily(EvaluateFamily):
    """Loads voices to measure, and makes their evaluator."""

    activity = "synthesizing"
    participle = "synthesized"

    def slicings(self, settings: TtsEvaluateSettings) -> dict[str, Slicing]:
        return {
            "speaker": slice_by_field("speaker"),
            "text_length": slice_by_band(lambda utterance: len(utterance.text), settings.text_bands, "symbols"),
        }

    def auxiliary_models(self, registry: Path | str, settings: TtsEvaluateSettings) -> dict[str, ModelVersion | None]:
        public = find_round_trip_recognizer(registry, settings.public_recognizer, PUBLIC_RECOGNIZER)
        return {
            ROUND_TRIP_RECOGNIZER: find_round_trip_recognizer(registry, settings.round_trip_recognizer),
            PUBLIC_RECOGNIZER: public,
            SPEAKER_JUDGE: find_judge(SPEAKER_JUDGE, settings.speaker_encoder),
            VOICE_ACTIVITY: find_judge(VOICE_ACTIVITY, settings.voice_activity),
        }

    def load(self, folder: Path, settings: TtsEvaluateSettings, engine: Engine) -> Synthesizer:
        return Synthesizer(
            folder,
            batch_size=settings.batch_size,
            batch_symbols=settings.batch_symbols,
            engine=engine,
            pace=settings.pace,
        )

    def evaluator(self, job: EvaluationJob, model: Synthesizer) -> "TtsEvaluator":
        return TtsEvaluator(job, model)


class TtsEvaluator(Evaluator[Synthesizer, SynthesisRecord, TtsDetails]):
    """Measures voices on the same texts, with one recognizer that listens to all of them.

    The report shows samples of the new model, so these alone are kept.
    """

    def __init__(self, job: EvaluationJob, model: Synthesizer) -> None:
        super().__init__(job, model)
        settings = job.settings
        self._recognizer = load_round_trip_recognizer(job, normalizer)
        self._judges = _load_judges(job, self._recognizer, model.sample_rate)
        self._gallery = SampleGallery(
            evenly_spaced_ids(job.utterances, settings.sample_utterances), settings.worst_utterances
        )
        self._graph: Synthesizer | None = None  # of the new model, once it was compared
        self._recorded_opinions: dict[str, SumAndWeight] = {}

    def measure(self, model: Synthesizer, candidate: Candidate) -> MeasuredModel[SynthesisRecord]:
        # A version may read other symbols than the new model, whose own texts are checked one by one below.
        if not candidate.is_new:
            self._check_texts(model, candidate)
        gallery = self._gallery if candidate.is_new else None
        settings = self.job.settings
        if not candidate.is_new:
            self._tell_strangers(model, candidate)
        records = measure_synthesis(
            model, self.job.utterances, self._judges, settings, candidate.unit, gallery, self._recorded_opinions
        )

        # Distances of mels mean something between equal features alone; cepstral distortion compares any two.
        if mel_conventions(model.features) != mel_conventions(self.model.features):
            print_status("evaluate: its features differ, so mel distances are not compared; mel cepstral distortion is")
            for record in records:
                record.metrics |= {"mel_l1": NOT_MEASURED, "mel_dtw": NOT_MEASURED}

        return MeasuredModel(
            values=[record.metrics for record in records],
            rtf=_rtf(model),
            # The line has the hypothesis of the model in service too; null without one, or without a recognizer.
            details=[{**record.details, "champion_hypothesis": None} for record in records],
            champion_details=[{"champion_hypothesis": record.details.get("hypothesis")} for record in records],
            records=records,
        )

    def _tell_strangers(self, model: Synthesizer, candidate: Candidate) -> None:
        """Says whom a version of several speakers does not have: its own choice says their texts."""
        strangers = {utterance.speaker for utterance in self.job.utterances} - set(model.speakers)
        if model.speakers and strangers:
            print_status(
                f"evaluate: {candidate.label}, does not speak as {name_speakers(sorted(strangers))}; its own speaker "
                "says their texts"
            )

    def _check_texts(self, model: Synthesizer, candidate: Candidate) -> None:
        """Refuses a version that reads other symbols.

        Raises:
          SettingsError: it cannot read these texts.
        """
        own_name = "so they cannot be compared; give the new model a name of its own ('model')"
        frontend = model.text.frontend
        if frontend != self.model.text.frontend:
            raise SettingsError(
                f"evaluate: {candidate.label}, has the text frontend {frontend.plain()!r}, this model "
                f"{self.model.text.frontend.plain()!r}, {own_name}"
            )
        for utterance in self.job.utterances:
            try:
                model.text.check_symbols(utterance.text)
            except SettingsError as error:
                raise SettingsError(
                    f"evaluate: {candidate.label}, cannot read utterance {utterance.id} ({error}), {own_name}"
                ) from None

    def compare_onnx(self, graph: Synthesizer, measured: MeasuredModel[SynthesisRecord], unit: str) -> MeasuredGraph:
        """Compares the mels of the ONNX graph with those of the SavedModel.

        A graph of 8 bits is a model of its own, so its speech is transcribed too.
        """
        self._graph = graph
        utterances = self.job.utterances
        precision = self.model.info.onnx_precision
        integers = precision == "int8"
        differences: list[float] = []
        details: list[dict[str, Any]] = []
        progress = Progress(unit, len(utterances))
        for start in range(0, len(utterances), self.job.settings.batch_size):
            batch = utterances[start : start + self.job.settings.batch_size]
            texts = [utterance.text for utterance in batch]
            speakers = speakers_asked_for(graph, batch, strict=True)
            results = graph.synthesize_symbols(texts, speakers)

            # Mels [frames, mels]; the number of frames may differ by rounding, so DTW pairs them.
            for mels, result in zip(self.model.mels(texts, speakers), results, strict=True):
                differences.append(dtw(mels, result.mels).distance / max(float(mels.std()), 1e-9))

            if integers and self._recognizer is not None:
                waveforms = [result.waveform for result in results]
                hypotheses = self._recognizer.transcribe(waveforms, graph.sample_rate)
                words = self._recognizer.count_errors(list(map(self._recognizer.reference, batch)), hypotheses)
                details += [{ONNX_WER: list(edits.as_metric)} for edits in words]
            progress.advance(len(texts))

        unit_of_mels = "standard deviations of the mels"
        onnx = describe_difference(utterances, differences, unit_of_mels, MEL_TOLERANCE, _rtf(graph))
        if integers:
            onnx.precision = precision
        return MeasuredGraph(onnx, details=details)

    def details(self, measured: MeasuredModel[SynthesisRecord]) -> TtsDetails:
        settings = self.job.settings
        utterances = self.job.utterances
        judges = self._judges
        own_texts = public_texts = None
        if judges.recognizer is not None:
            own_texts = judges.recognizer.transcribe_recordings(utterances, self.model.sample_rate)
        if judges.public_recognizer is not None:
            public_texts = [judges.recorded_texts[utterance.id] for utterance in utterances]
        agreement = None
        if judges.both is not None and own_texts is not None and public_texts is not None:
            agreement = judges.both.agreement(own_texts, public_texts)
        speaker = judges.speaker
        activity = judges.voice_activity
        return TtsDetails(
            recorded_wer=_error_rate(judges.recognizer, utterances, own_texts),
            recorded_dnsmos=self._recorded_dnsmos(),
            f0_utterances=min(settings.f0_utterances, len(utterances)),
            recorded_public_wer=_error_rate(judges.public_recognizer, utterances, public_texts),
            recorded_agreement=agreement.share if agreement else None,
            recorded_disagreement=agreement.disagreement if agreement else None,
            recorded_likeness=speaker.recorded_likeness if speaker else None,
            recorded_same_speaker=speaker.recorded_same_speaker if speaker else None,
            recorded_trailing_silence=activity.recorded_trailing_silence if activity else None,
        )

    def _recorded_dnsmos(self) -> float | None:
        """The mean over the recordings whose speech has one: a ceiling of what synthesis can reach."""
        opinions = [value.sum for value in self._recorded_opinions.values() if value.weight]
        return sum(opinions) / len(opinions) if opinions else None

    def smoke_test(self, measured: MeasuredModel[SynthesisRecord]) -> TtsSmokeTest:
        """Writes the speech for one text, synthesized alone: push's smoke test expects the same mels in a fresh
        process, which prefers the ONNX graph.

        It prefers a text of about thirty symbols that was not cut off.
        """
        import numpy as np
        import soundfile

        # A text that was cut off is a weak test: nothing in it shows that the model can stop.
        def preference(index: int) -> tuple[Any, ...]:
            utterance = self.job.utterances[index]
            cut_off = measured.values[index][HIT_LIMIT].sum
            return cut_off, abs(len(utterance.text) - 30), utterance.id

        # A fresh process loads the graph if there is one, so the clip is of the graph too.
        synthesizer = self._graph or self.model
        utterance = self.job.utterances[min(range(len(measured.values)), key=preference)]
        (speaker,) = speakers_asked_for(synthesizer, [utterance], strict=True)
        (result,) = synthesizer.synthesize_symbols([utterance.text], [speaker])

        # The mels are what is compared, float32 [frames, mels]; the waveform is for a person to hear.
        mels = io.BytesIO()
        np.save(mels, result.mels)
        wav = io.BytesIO()
        soundfile.write(wav, np.clip(result.waveform, -1, 1), synthesizer.sample_rate, format="WAV", subtype="PCM_16")
        for name, content in ((CLIP_MELS_FILE, mels), (CLIP_FILE, wav)):
            with atomic_write(self.job.output / name) as file:
                file.write(content.getvalue())
        return TtsSmokeTest(id=utterance.id, symbols=utterance.text, frames=len(result.mels), speaker=speaker)

    def counts(self, measured: MeasuredModel[SynthesisRecord]) -> dict[str, int]:
        return {"symbols": sum(len(utterance.text) for utterance in self.job.utterances)}

    def report_sections(
        self, results: Sequence[UtteranceResult], info: EvaluationInfo
    ) -> list[tuple[str, list["Block"]]]:
        from voxline.families.tts.report import tts_sections

        return tts_sections(self.job, results, info, self._gallery, self.model)

    def describe_method(self, details: TtsDetails) -> str:
        settings = self.job.settings
        info = self.model.info
        return (
            f"The exported model was loaded from the files that would ship. {_forms_of(info)}; "
            "dynamic time warping (DTW) then pairs its frames with the recorded ones. Mel distances are mean absolute "
            "differences in the units of the features. Mel cepstral distortion compares c1 to "
            f"c{TtsEvaluateSettings.cepstra} along the path of least distortion. F0 (pYIN, {settings.f0_min:g} to "
            f"{settings.f0_max:g} Hz) was measured on "
            f"{details.f0_utterances:,} utterances, evenly spaced by length, and is compared where both "
            "are voiced; hoarse speech counts as unvoiced. "
            f"{describe_dnsmos(settings.mos_utterances, details.recorded_dnsmos)}\n\n"
            "Attention is near the diagonal within a fifth of the text on each side. A skip is a run of four symbols "
            "or more that were never attended, a repeat is a return by four or more. A model can attend well and still "
            "be unintelligible, which only the round trip measures. The real-time factor includes the waveform, by "
            f"{_waveforms_by(info.vocoder, info.kind)}."
        )


def _load_judges(job: EvaluationJob, recognizer: RoundTripRecognizer | None, sample_rate: int) -> VoiceJudges:
    """The judges of a job; its recordings are heard by the speaker encoder."""
    public, encoder, activity = (
        job.auxiliary_models.get(name) for name in (PUBLIC_RECOGNIZER, SPEAKER_JUDGE, VOICE_ACTIVITY)
    )
    count = job.settings.likeness_utterances
    return VoiceJudges(
        recognizer,
        RoundTripRecognizer(public, normalizer) if public else None,
        SpeakerJudge(encoder.folder, job.utterances, count, sample_rate) if encoder else None,
        VoiceActivityJudge(activity.folder) if activity else None,
    )


def _error_rate(
    recognizer: RoundTripRecognizer | None, utterances: Sequence[Utterance], texts: Sequence[str] | None
) -> float | None:
    """Of what a recognizer heard in the recordings; None without one."""
    return None if recognizer is None or texts is None else recognizer.error_rate(utterances, texts)


def _forms_of(info: ModelInfo) -> str:
    """Describes how a voice speaks with teacher forcing, and without."""
    if info.kind == "vits":
        return (
            "It makes samples of predicted durations, which take the place of attention, and has no teacher forcing; "
            "its mels are those of its waveform"
        )
    if info.kind == "fastspeech":
        sizes = info.model_settings
        parts = ["durations", *(name for name in ("energy", "pitch") if sizes.get(name))]
        listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else parts[0]
        return (
            f"With teacher forcing it has the {listed} of the recording. In synthesis it predicts them, and its "
            "attention is the durations"
        )
    return (
        "With teacher forcing it predicts each frame from the recorded frames before it. Autoregressively it sees only "
        "its own output"
    )


def _waveforms_by(vocoder: ShippedVocoder | None, kind: str = "") -> str:
    """Names the vocoder of a voice.

    >>> _waveforms_by(None), _waveforms_by(ShippedVocoder(name="vocos", version=2, digest="9f"))
    ('Griffin-Lim', 'version 2 of the vocoder vocos, which it ships with')
    """
    if kind == "vits":
        return "the voice itself"
    if vocoder is None:
        return "Griffin-Lim"
    version = f"version {vocoder.version} of the vocoder" if vocoder.version else "the vocoder"
    return f"{version} {vocoder.name}, which it ships with"


def _rtf(synthesizer: Synthesizer) -> float:
    # A model that outputs no audio would divide by zero: one sample keeps the factor finite, and bad.
    return synthesizer.seconds / max(synthesizer.audio_seconds, 1 / synthesizer.sample_rate)
