"""Measures an exported vocoder on the mels of the test split's recordings, beside Griffin-Lim on the same mels."""

import functools
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.champion import ModelVersion, find_in_service
from voxline.components.evaluate.measurement import (
    Candidate,
    EvaluationJob,
    Evaluator,
    MeasuredGraph,
    MeasuredModel,
    Slicing,
    compare_with,
    slice_by_band,
)
from voxline.components.evaluate.speech import (
    NOT_MEASURED,
    ROUND_TRIP_RECOGNIZER,
    RoundTripRecognizer,
    describe_difference,
    describe_dnsmos,
    evenly_spaced_ids,
    find_round_trip_recognizer,
    load_round_trip_recognizer,
    measure_dnsmos,
    read_utterance,
    recorded_dnsmos,
)
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.asr.spelling import normalizer
from voxline.families.family import EvaluateFamily
from voxline.families.vocoder.details import VocoderDetails, VocoderSmokeTest
from voxline.families.vocoder.settings import VocoderEvaluateSettings
from voxline.inference.onnx_model import Engine
from voxline.inference.saved_model import read_model_info, require_family
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import Vocoder, check_same_mels
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.estoi import estoi
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    EvaluationInfo,
    UtteranceResult,
    Values,
)
from voxline.metrics.f0 import F0Pair, compare_f0
from voxline.metrics.mcd import log_magnitude
from voxline.metrics.stft import stft_distance
from voxline.metrics.wer import count_character_edits
from voxline.progress import Progress, print_status
from voxline.registry.registry import Registry
from voxline.store.files import atomic_write

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from voxline.report import Block

    Array = npt.NDArray[np.float32]

Vocode = Callable[[Sequence["Array"]], list["Array"]]
"""Mels [frames, mels] to waveforms [samples], in order."""
CLIP_SECONDS = 2.0
"""Wanted length of the smoke test's clip."""
VOICE = "voice"
WAVEFORM_TOLERANCE = 0.001
"""Largest difference between the waveforms of a model's two forms, as a share of their root mean square."""


class VocoderEvaluateFamily(EvaluateFamily):
    """Loads vocoders to measure, and makes their evaluator."""

    activity = "vocoding"
    participle = "vocoded"

    def slicings(self, settings: VocoderEvaluateSettings) -> dict[str, Slicing]:
        return {"duration": slice_by_band(lambda utterance: utterance.duration, settings.duration_bands, "s")}

    def auxiliary_models(
        self, registry: Path | str, settings: VocoderEvaluateSettings
    ) -> dict[str, ModelVersion | None]:
        recognizer = find_round_trip_recognizer(registry, settings.round_trip_recognizer)
        voice = {VOICE: _find_voice(registry, settings.voice)} if settings.voice else {}
        return {ROUND_TRIP_RECOGNIZER: recognizer, **voice}

    def load(self, folder: Path, settings: VocoderEvaluateSettings, engine: Engine) -> Vocoder:
        return Vocoder(folder, batch_frames=settings.batch_frames, engine=engine)

    def evaluator(self, job: EvaluationJob, model: Vocoder) -> "VocoderEvaluator":
        return VocoderEvaluator(job, model)


class VocoderEvaluator(Evaluator[Vocoder, Values, VocoderDetails]):
    """Measures vocoders on the same recordings, each by mels of its own settings, beside Griffin-Lim.

    The recognizer that listens, the voice whose mels are vocoded, and the settings of the mels that are compared are
    the same for all.
    """

    def __init__(self, job: EvaluationJob, model: Vocoder) -> None:
        super().__init__(job, model)
        self._recognizer = load_round_trip_recognizer(job, normalizer)
        voice = job.auxiliary_models.get(VOICE)
        self._voice = None if voice is None else Synthesizer(voice.folder)

    def measure(self, model: Vocoder, candidate: Candidate) -> MeasuredModel[Values]:
        if model.sample_rate != self.model.sample_rate:
            raise SettingsError(
                f"evaluate: {candidate.label}, makes {model.sample_rate:,} samples a second"
                f" and this model {self.model.sample_rate:,}, so they cannot be compared; give the new model a name of "
                "its own ('model')"
            )
        values = self._measure_vocode(model.vocode, model.features, candidate.unit)
        rtf = _rtf(model)
        _compare_with_griffin_lim(values, self._griffin_lim)
        details = [
            {
                "text": utterance.text,
                "griffin_lim": {name: share.sum for name, share in baseline.items() if share.weight},
            }
            for utterance, baseline in zip(self.job.utterances, self._griffin_lim, strict=True)
        ]
        return MeasuredModel(values=values, rtf=rtf, details=details, records=values)

    @functools.cached_property
    def _griffin_lim(self) -> list[Values]:
        """The metrics of Griffin-Lim on the mels of the new model, measured once."""
        from voxline.audio.griffin_lim import features_to_waveform

        features = self.model.features
        iterations = self.job.settings.griffin_lim_iterations
        start = time.perf_counter()
        values = self._measure_vocode(
            lambda batch: [features_to_waveform(mels, features, iterations=iterations) for mels in batch],
            features,
            "utterances by Griffin-Lim",
        )
        print_status(f"evaluate: Griffin-Lim and its measures took {time.perf_counter() - start:.0f} s")
        return values

    def _measure_vocode(self, vocode: Vocode, features: FeatureSettings, unit: str) -> list[Values]:
        return measure_vocoder(
            self.job.utterances,
            vocode,
            features,
            judged_by=self.model.features,
            voice=self._voice,
            recognizer=self._recognizer,
            settings=self.job.settings,
            unit=unit,
        )

    def compare_onnx(self, graph: Vocoder, measured: MeasuredModel[Values], unit: str) -> MeasuredGraph:
        """Compares the waveforms of the ONNX graph with those of the SavedModel, on the mels of the recordings."""
        import numpy as np

        utterances = self.job.utterances
        differences: list[float] = []
        progress = Progress(unit, len(utterances))
        for start in range(0, len(utterances), self.job.settings.batch_size):
            batch = utterances[start : start + self.job.settings.batch_size]
            recordings = [read_utterance(utterance, self.model.sample_rate) for utterance in batch]
            mels = [_mels_of(samples, self.model.features) for samples in recordings]

            # Waveforms [samples], of equal length: both forms make (frames - 1) · hop of them.
            for waveform, by_graph in zip(self.model.vocode(mels), graph.vocode(mels), strict=True):
                level = float(np.sqrt(np.mean(waveform**2))) if len(waveform) else 0.0
                difference = float(np.sqrt(np.mean((waveform - by_graph) ** 2))) if len(waveform) else 0.0
                differences.append(difference / max(level, 1e-9))
            progress.advance(len(batch))
        unit_of_waveforms = "of the waveform's root mean square"
        return MeasuredGraph(
            describe_difference(utterances, differences, unit_of_waveforms, WAVEFORM_TOLERANCE, _rtf(graph))
        )

    def details(self, measured: MeasuredModel[Values]) -> VocoderDetails:
        settings = self.job.settings
        utterances = self.job.utterances
        speakers = [utterance.speaker for utterance in utterances]
        rate = self.model.sample_rate
        return VocoderDetails(
            griffin_lim=compare_with(self._griffin_lim, measured.values, speakers, settings),
            recorded_wer=None if self._recognizer is None else self._recognizer.recorded_wer(utterances, rate),
            recorded_dnsmos=recorded_dnsmos(utterances, settings.mos_utterances, rate),
            f0_utterances=min(settings.f0_utterances, len(utterances)),
        )

    def smoke_test(self, measured: MeasuredModel[Values]) -> VocoderSmokeTest:
        """Writes mels and the waveform made of them alone: push's smoke test expects the same in a fresh process."""
        import numpy as np
        import soundfile

        def preference(utterance: Utterance) -> tuple[float, str]:
            return abs(utterance.duration - CLIP_SECONDS), utterance.id

        utterance = min(self.job.utterances, key=preference)
        rate = self.model.sample_rate
        clip_mels = _mels_of(read_utterance(utterance, rate), self.model.features)  # float32 [frames, mels]
        (waveform,) = self.model.vocode([clip_mels])

        mels = io.BytesIO()
        np.save(mels, clip_mels)
        wav = io.BytesIO()
        soundfile.write(wav, np.clip(waveform, -1, 1), rate, format="WAV", subtype="PCM_16")
        for name, content in ((CLIP_MELS_FILE, mels), (CLIP_FILE, wav)):
            with atomic_write(self.job.output / name) as file:
                file.write(content.getvalue())
        return VocoderSmokeTest(id=utterance.id, samples=len(waveform))

    def counts(self, measured: MeasuredModel[Values]) -> dict[str, int]:
        seconds = sum(utterance.duration for utterance in self.job.utterances)
        return {"samples": round(seconds * self.model.sample_rate)}

    def report_sections(
        self, results: Sequence[UtteranceResult], info: EvaluationInfo
    ) -> list[tuple[str, list["Block"]]]:
        from voxline.families.vocoder.report import vocoder_sections

        return vocoder_sections(self.job, results, info, self.model)

    def describe_method(self, details: VocoderDetails) -> str:
        settings = self.job.settings
        opinions = describe_dnsmos(settings.mos_utterances, details.recorded_dnsmos)
        return (
            "The exported vocoder was loaded from the files that would ship. It and Griffin-Lim "
            f"({settings.griffin_lim_iterations} iterations) made waveforms of the same mels, "
            f"{_whose_mels(self.job.auxiliary_models.get(VOICE))}. The log-STFT distance is the mean of |20 log10| "
            "of the ratio of magnitudes over bins, frames and three resolutions; the spectral convergence is the "
            "difference of magnitudes as a share of the "
            "recording's. The mel distance compares log-mels of magnitude in dB. ESTOI is 1 where "
            "speech moves as the recording does. F0 (pYIN, "
            f"{settings.f0_min:g} to {settings.f0_max:g} Hz) was measured on "
            f"{details.f0_utterances:,} utterances, evenly spaced by length, and is compared where both "
            f"are voiced. {opinions} Differences to Griffin-Lim are paired, utterance by utterance."
        )


def _find_voice(registry: Path | str, name: str) -> ModelVersion:
    """The voice in service under a name.

    Raises:
      SettingsError: none is in service under it, or a model of another family.
    """
    version = find_in_service(Registry(registry, name))
    if version is None:
        raise SettingsError(f"evaluate.voice is {name!r}, and {registry}/{name} holds no version; push a voice first")
    try:
        require_family(read_model_info(version.folder), "tts", version.folder)
    except WorkError as error:
        raise SettingsError(f"evaluate.voice is {name!r}, and {error}") from None
    return version


def _whose_mels(voice: ModelVersion | None) -> str:
    """Names the origin of the mels that are vocoded.

    >>> _whose_mels(None), _whose_mels(ModelVersion("digits", 2, "9f", Path("digits/2")))
    ('those of the recordings', 'those of version 2 of the voice digits, teacher-forced')
    """
    if voice is None:
        return "those of the recordings"
    return f"those of version {voice.version} of the voice {voice.name}, teacher-forced"


def measure_vocoder(
    utterances: Sequence[Utterance],
    vocode: Vocode,
    features: FeatureSettings,
    *,
    judged_by: FeatureSettings,
    voice: Synthesizer | None,
    recognizer: RoundTripRecognizer | None,
    settings: VocoderEvaluateSettings,
    unit: str,
) -> list[Values]:
    """The metrics of each utterance, in order: of what is made of the mels of its recording, or of a voice's.

    Args:
      features: of the mels that `vocode` reads.
      judged_by: of the mels that are compared.
      voice: whose teacher-forced mels are vocoded; None: the recordings'.
      unit: for the progress line.

    Raises:
      WorkError: a recording cannot be read.
      SettingsError: the voice makes mels of other settings, or cannot read a text.
    """
    import numpy as np

    from voxline.audio.features import compute_features

    if voice is not None:
        check_same_mels(features, voice.features, "evaluate", f"the voice {voice.folder}")
    measured: list[Values] = []

    # F0 and DNSMOS are slow, so only some utterances have them.
    f0_ids = evenly_spaced_ids(utterances, settings.f0_utterances)
    mos_ids = evenly_spaced_ids(utterances, settings.mos_utterances)
    pairs: dict[int, F0Pair] = {}
    progress = Progress(unit, len(utterances))
    for start in range(0, len(utterances), settings.batch_size):
        batch = utterances[start : start + settings.batch_size]

        # Recordings [samples] each, and features [frames, bins] of the recording or as the voice reads them.
        recordings = [read_utterance(utterance, features.sample_rate) for utterance in batch]
        read_by = voice.features if voice else features
        recorded_features = [compute_features(samples, read_by) for samples in recordings]
        if voice is None:
            mels = [bins[:, features.mel_columns] for bins in recorded_features]
        else:
            forced = voice.teacher_forced([utterance.text for utterance in batch], recorded_features)
            mels = [result.mels for result in forced]
        waveforms = vocode(mels)
        hypotheses = recognizer.transcribe(waveforms, features.sample_rate) if recognizer else None

        for index, (utterance, recording, waveform) in enumerate(zip(batch, recordings, waveforms, strict=True)):
            # A waveform has whole hops, (frames - 1) · hop samples, so the recording may be the longer one.
            samples = recording[: len(waveform)]
            distance = stft_distance(samples, waveform)
            intelligibility = estoi(samples, waveform, features.sample_rate)
            values: Values = {
                "log_stft": SumAndWeight(distance.log_stft),
                "spectral_convergence": SumAndWeight(distance.spectral_convergence),
                "mel_distance": SumAndWeight(_mel_distance(samples, waveform, judged_by)),
                "estoi": NOT_MEASURED if intelligibility is None else SumAndWeight(intelligibility),
                "dnsmos": measure_dnsmos(waveform, features.sample_rate) if utterance.id in mos_ids else NOT_MEASURED,
                "f0_rmse": NOT_MEASURED,
                "f0_rmse_cents": NOT_MEASURED,
                "voicing_error": NOT_MEASURED,
            }
            if recognizer is not None and hypotheses is not None:
                reference = [recognizer.reference(utterance)]
                hypothesis = [hypotheses[index]]
                values["round_trip_wer"] = recognizer.count_errors(reference, hypothesis)[0].as_metric
                values["round_trip_cer"] = count_character_edits(reference, hypothesis)[0].as_metric

            # A vocoder keeps the timing, so frame n of one is frame n of the other: the path is the diagonal.
            if utterance.id in f0_ids:
                frames = np.arange(1 + len(waveform) // features.hop_length, dtype=np.int32)
                pairs[len(measured)] = F0Pair(
                    samples, waveform, np.stack([frames, frames], axis=1), features.sample_rate,
                    features.hop_length, settings.f0_min, settings.f0_max,
                )  # fmt: skip
            measured.append(values)
        progress.advance(len(batch))

    # All pairs together, which keeps every core busy.
    for row, compared in zip(pairs, compare_f0(list(pairs.values())), strict=True):
        measured[row]["voicing_error"] = SumAndWeight(compared.voicing_error)
        if compared.hertz is not None and compared.cents is not None:
            measured[row] |= {"f0_rmse": SumAndWeight(compared.hertz), "f0_rmse_cents": SumAndWeight(compared.cents)}
    return measured


def _mels_of(samples: "Array", features: FeatureSettings) -> "Array":
    """The mels of a recording [samples], float32 [frames, mels]: its features without the further columns."""
    from voxline.audio.features import compute_features

    return compute_features(samples, features)[:, features.mel_columns]


def _mel_distance(recorded: "Array", generated: "Array", features: FeatureSettings) -> float:
    """Mean absolute difference of log-mels in dB of magnitude."""
    import numpy as np

    # Log-mels [frames, mels], as natural logarithms of magnitude: 20 / ln 10 makes them dB.
    of_recorded = log_magnitude(_mels_of(recorded, features), features)
    of_generated = log_magnitude(_mels_of(generated, features), features)
    return float(np.abs(of_recorded - of_generated).mean() * (20 / np.log(10)))


def _compare_with_griffin_lim(measured: Sequence[Values], griffin_lim: Sequence[Values]) -> None:
    """Adds the metrics that relate each utterance to Griffin-Lim."""
    for values, baseline in zip(measured, griffin_lim, strict=True):
        ratio = values["log_stft"].sum / max(baseline["log_stft"].sum, 1e-9)
        values["log_stft_reduction"] = SumAndWeight(1 - ratio)

        # ESTOI is not measured with less than 0.4 seconds of speech.
        has_estoi = values["estoi"].weight and baseline["estoi"].weight
        values["estoi_gain"] = SumAndWeight(values["estoi"].sum - baseline["estoi"].sum) if has_estoi else NOT_MEASURED


def _rtf(vocoder: Vocoder) -> float:
    # A model that outputs no audio would divide by zero: one sample keeps the factor finite, and bad.
    return vocoder.seconds / max(vocoder.audio_seconds, 1 / vocoder.sample_rate)
