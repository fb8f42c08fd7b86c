"""Measures an exported TTS model: its speech for the texts of the test split against the recordings."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.dtw import dtw
from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.measurement import EvaluationJob, Measurements, Slicing, slice_by_band
from voxline.components.evaluate.speech import (
    NOT_MEASURED,
    ROUND_TRIP_RECOGNIZER,
    RoundTripRecognizer,
    describe_difference,
    describe_dnsmos,
    evenly_spaced_ids,
    find_round_trip_recognizer,
    read_utterance,
    recorded_dnsmos,
    reference_text,
)
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.details import TtsDetails, TtsSmokeTest
from voxline.families.tts.settings import TtsEvaluateSettings
from voxline.families.tts.synthesize import HIT_LIMIT, SampleGallery, SynthesisRecord, measure_synthesis
from voxline.inference.model_info import ModelInfo, ShippedVocoder
from voxline.inference.onnx_model import ONNX_FILE, Engine
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import mel_conventions
from voxline.metrics.evaluation import CLIP_FILE, CLIP_MELS_FILE, ONNX_WER, EvaluationInfo, OnnxInfo
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.progress import Progress, print_status
from voxline.store.files import atomic_write

if TYPE_CHECKING:
    from voxline.report import Block

MEL_TOLERANCE = 0.05
"""Largest DTW distance between the mels of a model's two forms, as a share of their standard deviation. They are equal
to 1e-4 but for a sound that rounding makes a frame longer."""


class TtsEvaluateFamily:
    """How evaluate measures TTS models; see `EvaluateFamily`."""

    def slicings(self, settings: TtsEvaluateSettings) -> dict[str, Slicing]:
        return {"text_length": slice_by_band(lambda utterance: len(utterance.text), settings.text_bands, "symbols")}

    def auxiliary_models(self, registry: Path | str, settings: TtsEvaluateSettings) -> dict[str, ModelVersion | None]:
        return {ROUND_TRIP_RECOGNIZER: find_round_trip_recognizer(registry, settings.round_trip_recognizer)}

    def measure(self, job: EvaluationJob) -> Measurements:
        settings, utterances = job.settings, job.utterances
        print_status(f"evaluate: synthesizing {len(utterances):,} utterances of the split {settings.split!r}")
        synthesizer = _load(job.model, settings)
        version = job.auxiliary_models[ROUND_TRIP_RECOGNIZER]
        recognizer = None if version is None else RoundTripRecognizer(version)
        if recognizer is None:
            print_status("evaluate: no evaluate.round_trip_recognizer is set, so intelligibility is not measured")
        gallery = SampleGallery(evenly_spaced_ids(utterances, settings.sample_utterances), settings.worst_utterances)
        records = measure_synthesis(synthesizer, utterances, recognizer, settings, "utterances synthesized", gallery)
        rtf = _rtf(synthesizer)
        other = _load(job.model, settings, engine="onnx") if (job.model / ONNX_FILE).is_file() else None
        onnx: OnnxInfo | None = None
        by_onnx: list[dict[str, Any]] = [{}] * len(utterances)
        if other is not None:
            onnx, by_onnx = _compare_onnx(job, synthesizer, other, recognizer)
        champion, champion_rtf = _measure_version(job, job.champion, "the model in service", synthesizer, recognizer)
        anchor, _ = _measure_version(job, job.anchor, "the anchor", synthesizer, recognizer)
        details = [
            {
                **record.details,
                **by_onnx[index],
                "champion_hypothesis": champion and champion[index].details.get("hypothesis"),
            }
            for index, record in enumerate(records)
        ]
        return Measurements(
            results=job.results(
                [record.metrics for record in records],
                [record.metrics for record in champion] if champion else None,
                details,
                [record.metrics for record in anchor] if anchor else None,
            ),
            rtf=rtf,
            champion_rtf=champion_rtf,
            details=TtsDetails(
                recorded_wer=None if recognizer is None else _recorded_wer(recognizer, synthesizer, utterances),
                recorded_dnsmos=recorded_dnsmos(utterances, settings.mos_utterances, synthesizer.sample_rate),
                f0_utterances=min(settings.f0_utterances, len(utterances)),
                onnx=onnx,
            ),
            smoke_test=_write_clip(job, other or synthesizer, records),
            outputs={"clip_mels": CLIP_MELS_FILE},
            counts={"symbols": sum(len(utterance.text) for utterance in utterances)},
            samples=(gallery, synthesizer),
        )

    def report_sections(
        self, job: EvaluationJob, measured: Measurements, info: EvaluationInfo
    ) -> list[tuple[str, "list[Block]"]]:
        from voxline.families.tts.report import tts_sections

        return tts_sections(job, measured, info)

    def describe_method(self, job: EvaluationJob, measured: Measurements) -> str:
        settings = job.settings
        details = measured.details
        _, synthesizer = measured.samples
        info = synthesizer.info
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
            f"{_waveforms_by(info.vocoder)}."
        )


def _forms_of(info: ModelInfo) -> str:
    """How a voice speaks with teacher forcing, and without."""
    if info.kind == "fastspeech":
        sizes = info.model_settings
        parts = ["durations", *(name for name in ("energy", "pitch") if sizes.get(name))]
        known = f"{', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else parts[0]
        return (
            f"With teacher forcing it has the {known} of the recording. In synthesis it predicts them, and its "
            "attention is the durations"
        )
    return (
        "With teacher forcing it predicts each frame from the recorded frames before it. Autoregressively it sees only "
        "its own output"
    )


def _waveforms_by(vocoder: ShippedVocoder | None) -> str:
    """Names the vocoder of a voice.

    >>> _waveforms_by(None), _waveforms_by(ShippedVocoder(name="vocos", version=2, digest="9f"))
    ('Griffin-Lim', 'version 2 of the vocoder vocos, which it ships with')
    """
    if vocoder is None:
        return "Griffin-Lim"
    version = f"version {vocoder.version} of the vocoder" if vocoder.version else "the vocoder"
    return f"{version} {vocoder.name}, which it ships with"


def _load(folder: Path, settings: TtsEvaluateSettings, engine: Engine = "tensorflow") -> Synthesizer:
    return Synthesizer(folder, batch_size=settings.batch_size, batch_symbols=settings.batch_symbols, engine=engine)


def _compare_onnx(
    job: EvaluationJob, synthesizer: Synthesizer, other: Synthesizer, recognizer: RoundTripRecognizer | None
) -> tuple[OnnxInfo, list[dict[str, Any]]]:
    """How far the mels of the model's ONNX graph are from those of the SavedModel.

    A graph of 8 bits is a model of its own, so its speech is transcribed too.

    Returns:
      the comparison, and details of each utterance.
    """
    print_status("evaluate: synthesizing them with the model's ONNX graph")
    precision = synthesizer.info.onnx_precision
    integers = precision == "int8"
    details: list[dict[str, Any]] = []
    apart, progress = [], Progress("utterances synthesized by ONNX Runtime", len(job.utterances))
    for start in range(0, len(job.utterances), job.settings.batch_size):
        batch = job.utterances[start : start + job.settings.batch_size]
        texts = [utterance.text for utterance in batch]
        spoken = other.synthesize_symbols(texts)
        for ours, theirs in zip(synthesizer.mels(texts), spoken, strict=True):
            apart.append(dtw(ours, theirs.mels).distance / max(float(ours.std()), 1e-9))
        if integers and recognizer is not None:
            heard = recognizer.transcribe([one.waveform for one in spoken], other.sample_rate)
            words = count_word_edits([reference_text(utterance) for utterance in batch], heard)
            details += [{ONNX_WER: list(edits.as_metric)} for edits in words]
        progress.advance(len(texts))
    onnx = describe_difference(job.utterances, apart, "standard deviations of the mels", MEL_TOLERANCE, _rtf(other))
    if integers:
        onnx.precision = precision
    return onnx, details or [{}] * len(job.utterances)


def _rtf(synthesizer: Synthesizer) -> float:
    # A model that outputs no audio would divide by zero: one sample keeps the factor finite, and bad.
    return synthesizer.seconds / max(synthesizer.audio_seconds, 1 / synthesizer.sample_rate)


def _measure_version(
    job: EvaluationJob,
    other: ModelVersion | None,
    role: str,
    challenger: Synthesizer,
    recognizer: RoundTripRecognizer | None,
) -> tuple[list[SynthesisRecord] | None, float | None]:
    """Another version on the same texts, and its real-time factor; None without one.

    Mel distances are compared only if both models have the same features.

    Raises:
      SettingsError: it reads other symbols, so it cannot read these texts.
    """
    settings = job.settings
    if other is None:
        return None, None
    print_status(f"evaluate: synthesizing them with version {other.version}, {role}")
    try:
        synthesizer = _load(other.folder, settings)
    except WorkError as error:
        raise other.unusable(error) from None
    version = f"evaluate: version {other.version} of {other.name}, {role},"
    own_name = "so they cannot be compared; give the new model a name of its own ('model')"
    frontends = synthesizer.text.frontend, challenger.text.frontend
    if frontends[0] != frontends[1]:
        raise SettingsError(
            f"{version} has the text frontend {frontends[0].plain()!r}, this model {frontends[1].plain()!r}, {own_name}"
        )
    for utterance in job.utterances:
        try:
            synthesizer.text.check_symbols(utterance.text)
        except SettingsError as error:
            raise SettingsError(f"{version} cannot read utterance {utterance.id} ({error}), {own_name}") from None
    unit = f"utterances synthesized by {role}"
    records = measure_synthesis(synthesizer, job.utterances, recognizer, settings, unit)
    if mel_conventions(synthesizer.features) != mel_conventions(challenger.features):
        print_status("evaluate: its features differ, so mel distances are not compared; mel cepstral distortion is")
        for record in records:
            record.metrics |= {"mel_l1": NOT_MEASURED, "mel_dtw": NOT_MEASURED}
    return records, _rtf(synthesizer)


def _recorded_wer(recognizer: RoundTripRecognizer, synthesizer: Synthesizer, utterances: Sequence[Utterance]) -> float:
    references = [reference_text(utterance) for utterance in utterances]
    rate = synthesizer.sample_rate
    hypotheses = [recognizer.transcribe([read_utterance(one, rate)], rate)[0] for one in utterances]
    return sum_edits(count_word_edits(references, hypotheses)).rate


def _write_clip(job: EvaluationJob, synthesizer: Synthesizer, records: Sequence[SynthesisRecord]) -> TtsSmokeTest:
    """Writes the speech for one text, synthesized alone: push's smoke test expects the same mels in a fresh process.

    It prefers a text of about thirty symbols that was not cut off.
    """
    import numpy as np
    import soundfile

    def preference(index: int) -> tuple[Any, ...]:
        utterance = job.utterances[index]
        return records[index].metrics[HIT_LIMIT].sum, abs(len(utterance.text) - 30), utterance.id

    utterance = job.utterances[min(range(len(records)), key=preference)]
    (result,) = synthesizer.synthesize_symbols([utterance.text])
    mels, wav = io.BytesIO(), io.BytesIO()
    np.save(mels, result.mels)
    soundfile.write(wav, np.clip(result.waveform, -1, 1), synthesizer.sample_rate, format="WAV", subtype="PCM_16")
    for name, content in ((CLIP_MELS_FILE, mels), (CLIP_FILE, wav)):
        with atomic_write(job.output / name) as file:
            file.write(content.getvalue())
    return TtsSmokeTest(id=utterance.id, symbols=utterance.text, frames=len(result.mels))
