"""Measures an exported vocoder on the mels of the test split's recordings, beside Griffin-Lim on the same mels."""

import functools
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.evaluate.champion import ModelVersion, find_in_service
from voxline.components.evaluate.measurement import EvaluationJob, Measurements, Slicing, compare_with, slice_by_band
from voxline.components.evaluate.speech import (
    NOT_MEASURED,
    ROUND_TRIP_RECOGNIZER,
    RoundTripRecognizer,
    describe_difference,
    describe_dnsmos,
    evenly_spaced_ids,
    find_round_trip_recognizer,
    measure_dnsmos,
    read_utterance,
    recorded_dnsmos,
    reference_text,
)
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.vocoder.details import VocoderDetails, VocoderSmokeTest
from voxline.families.vocoder.settings import VocoderEvaluateSettings
from voxline.inference.onnx_model import ONNX_FILE
from voxline.inference.saved_model import read_model_info, require_family
from voxline.inference.synthesizer import Synthesizer
from voxline.inference.vocoder import Vocoder, check_same_mels
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.estoi import estoi
from voxline.metrics.evaluation import (
    CLIP_FILE,
    CLIP_MELS_FILE,
    EvaluationInfo,
    OnnxInfo,
    Values,
)
from voxline.metrics.f0 import F0Pair, compare_f0
from voxline.metrics.mcd import log_magnitude
from voxline.metrics.stft import stft_distance
from voxline.metrics.wer import count_character_edits, count_word_edits, sum_edits
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


class VocoderEvaluateFamily:
    """How evaluate measures vocoders; see `EvaluateFamily`."""

    def slicings(self, settings: VocoderEvaluateSettings) -> dict[str, Slicing]:
        return {"duration": slice_by_band(lambda utterance: utterance.duration, settings.duration_bands, "s")}

    def auxiliary_models(
        self, registry: Path | str, settings: VocoderEvaluateSettings
    ) -> dict[str, ModelVersion | None]:
        found = {ROUND_TRIP_RECOGNIZER: find_round_trip_recognizer(registry, settings.round_trip_recognizer)}
        return {**found, **({VOICE: _find_voice(registry, settings.voice)} if settings.voice else {})}

    def measure(self, job: EvaluationJob) -> Measurements:
        settings, utterances = job.settings, job.utterances
        print_status(f"evaluate: vocoding {len(utterances):,} utterances of the split {settings.split!r}")
        vocoder = Vocoder(job.model, batch_frames=settings.batch_frames, engine="tensorflow")
        version = job.auxiliary_models[ROUND_TRIP_RECOGNIZER]
        recognizer = None if version is None else RoundTripRecognizer(version)
        if recognizer is None:
            print_status("evaluate: no evaluate.round_trip_recognizer is set, so intelligibility is not measured")
        voice = job.auxiliary_models.get(VOICE)
        measure = functools.partial(
            measure_vocoder,
            utterances,
            voice=None if voice is None else Synthesizer(voice.folder),
            judged_by=vocoder.features,
            recognizer=recognizer,
            settings=settings,
        )
        ours = measure(vocoder.vocode, vocoder.features, unit="utterances vocoded")
        rtf = vocoder.seconds / max(vocoder.audio_seconds, 1 / vocoder.sample_rate)
        start = time.perf_counter()
        griffin_lim = measure(
            _griffin_lim(vocoder.features, settings), vocoder.features, unit="utterances by Griffin-Lim"
        )
        print_status(f"evaluate: Griffin-Lim and its measures took {time.perf_counter() - start:.0f} s")
        champion, champion_rtf = _measure_version(job, job.champion, "the model in service", vocoder, measure)
        anchor, _ = _measure_version(job, job.anchor, "the anchor", vocoder, measure)
        for records in (ours, champion, anchor):
            _compare_with_griffin_lim(records, griffin_lim)
        details = [
            {"text": utterance.text, "griffin_lim": {name: value.sum for name, value in values.items() if value.weight}}
            for utterance, values in zip(utterances, griffin_lim, strict=True)
        ]
        return Measurements(
            results=job.results(ours, champion, details, anchor),
            rtf=rtf,
            champion_rtf=champion_rtf,
            details=VocoderDetails(
                griffin_lim=compare_with(griffin_lim, ours, [utterance.speaker for utterance in utterances], settings),
                recorded_wer=None if recognizer is None else _recorded_wer(recognizer, vocoder, utterances),
                recorded_dnsmos=recorded_dnsmos(utterances, settings.mos_utterances, vocoder.sample_rate),
                f0_utterances=min(settings.f0_utterances, len(utterances)),
                onnx=_compare_onnx(job, vocoder),
            ),
            smoke_test=_write_clip(job, vocoder),
            outputs={"clip_mels": CLIP_MELS_FILE},
            counts={"samples": round(sum(utterance.duration for utterance in utterances) * vocoder.sample_rate)},
            samples=vocoder,
        )

    def report_sections(
        self, job: EvaluationJob, measured: Measurements, info: EvaluationInfo
    ) -> list[tuple[str, "list[Block]"]]:
        from voxline.families.vocoder.report import vocoder_sections

        return vocoder_sections(job, measured, info)

    def describe_method(self, job: EvaluationJob, measured: Measurements) -> str:
        settings = job.settings
        details = measured.details
        opinions = describe_dnsmos(settings.mos_utterances, details.recorded_dnsmos)
        return (
            "The exported vocoder was loaded from the files that would ship. It and Griffin-Lim "
            f"({settings.griffin_lim_iterations} iterations) made waveforms of the same mels, "
            f"{_whose_mels(job.auxiliary_models.get(VOICE))}. The log-STFT distance is the mean of |20 log10| "
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
    """
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
    found: list[Values] = []
    f0_ids = evenly_spaced_ids(utterances, settings.f0_utterances)
    mos_ids = evenly_spaced_ids(utterances, settings.mos_utterances)
    pairs: dict[int, F0Pair] = {}
    progress = Progress(unit, len(utterances))
    for start in range(0, len(utterances), settings.batch_size):
        batch = utterances[start : start + settings.batch_size]
        recorded = [read_utterance(utterance, features.sample_rate) for utterance in batch]
        frames_of = [compute_features(samples, voice.features if voice else features) for samples in recorded]
        if voice is None:
            mels = [one[:, features.mel_columns] for one in frames_of]
        else:
            mels = [one.mels for one in voice.teacher_forced([utterance.text for utterance in batch], frames_of)]
        waveforms = vocode(mels)
        heard = recognizer.transcribe(waveforms, features.sample_rate) if recognizer else None
        for index, (utterance, samples, waveform) in enumerate(zip(batch, recorded, waveforms, strict=True)):
            samples = samples[: len(waveform)]
            distance = stft_distance(samples, waveform)
            values: Values = {
                "log_stft": SumAndWeight(distance.log_stft),
                "spectral_convergence": SumAndWeight(distance.spectral_convergence),
                "mel_distance": SumAndWeight(_mel_distance(samples, waveform, judged_by)),
                "estoi": NOT_MEASURED
                if (score := estoi(samples, waveform, features.sample_rate)) is None
                else SumAndWeight(score),
                "dnsmos": measure_dnsmos(waveform, features.sample_rate) if utterance.id in mos_ids else NOT_MEASURED,
                **dict.fromkeys(("f0_rmse", "f0_rmse_cents", "voicing_error"), NOT_MEASURED),
            }
            if heard is not None:
                reference = [reference_text(utterance)], [heard[index]]
                values["round_trip_wer"] = count_word_edits(*reference)[0].as_metric
                values["round_trip_cer"] = count_character_edits(*reference)[0].as_metric
            if utterance.id in f0_ids:
                frames = np.arange(1 + len(waveform) // features.hop_length, dtype=np.int32)
                pairs[len(found)] = F0Pair(
                    samples, waveform, np.stack([frames, frames], axis=1), features.sample_rate,
                    features.hop_length, settings.f0_min, settings.f0_max,
                )  # fmt: skip
            found.append(values)
        progress.advance(len(batch))
    for row, compared in zip(pairs, compare_f0(list(pairs.values())), strict=True):
        found[row]["voicing_error"] = SumAndWeight(compared.voicing_error)
        if compared.hertz is not None and compared.cents is not None:
            found[row] |= {"f0_rmse": SumAndWeight(compared.hertz), "f0_rmse_cents": SumAndWeight(compared.cents)}
    return found


def _mel_distance(recorded: "Array", generated: "Array", features: FeatureSettings) -> float:
    """Mean absolute difference of log-mels in dB of magnitude."""
    import numpy as np

    from voxline.audio.features import compute_features

    one, other = (
        log_magnitude(compute_features(samples, features)[:, features.mel_columns], features)
        for samples in (recorded, generated)
    )
    return float(np.abs(one - other).mean() * (20 / np.log(10)))


def _compare_with_griffin_lim(records: Sequence[Values] | None, griffin_lim: Sequence[Values]) -> None:
    for values, baseline in zip(records or (), griffin_lim, strict=bool(records)):
        ratio = values["log_stft"].sum / max(baseline["log_stft"].sum, 1e-9)
        values["log_stft_reduction"] = SumAndWeight(1 - ratio)
        measured = values["estoi"].weight and baseline["estoi"].weight
        values["estoi_gain"] = SumAndWeight(values["estoi"].sum - baseline["estoi"].sum) if measured else NOT_MEASURED


def _griffin_lim(features: FeatureSettings, settings: VocoderEvaluateSettings) -> Vocode:
    from voxline.audio.griffin_lim import features_to_waveform

    return lambda mels: [
        features_to_waveform(one, features, iterations=settings.griffin_lim_iterations) for one in mels
    ]


def _measure_version(
    job: EvaluationJob,
    other: ModelVersion | None,
    role: str,
    challenger: Vocoder,
    measure: Callable[..., list[Values]],
) -> tuple[list[Values] | None, float | None]:
    """Another version on the same recordings, each by mels of its own settings, and its real-time factor.

    Raises:
      SettingsError: its sample rate is another one.
    """
    if other is None:
        return None, None
    print_status(f"evaluate: vocoding them with version {other.version}, {role}")
    try:
        vocoder = Vocoder(other.folder, batch_frames=job.settings.batch_frames, engine="tensorflow")
    except WorkError as error:
        raise other.unusable(error) from None
    if vocoder.sample_rate != challenger.sample_rate:
        raise SettingsError(
            f"evaluate: version {other.version} of {other.name}, {role}, makes {vocoder.sample_rate:,} samples a second"
            f" and this model {challenger.sample_rate:,}, so they cannot be compared; give the new model a name of its "
            "own ('model')"
        )
    records = measure(vocoder.vocode, vocoder.features, unit=f"utterances vocoded by {role}")
    return records, vocoder.seconds / max(vocoder.audio_seconds, 1 / vocoder.sample_rate)


def _compare_onnx(job: EvaluationJob, vocoder: Vocoder) -> OnnxInfo | None:
    """Measures how far the waveforms of the model's ONNX graph are from those of the SavedModel, on the mels of the
    recordings; None without a graph.
    """
    import numpy as np

    from voxline.audio.features import compute_features

    if not (job.model / ONNX_FILE).is_file():
        return None
    print_status("evaluate: vocoding them with the model's ONNX graph")
    other = Vocoder(job.model, batch_frames=job.settings.batch_frames, engine="onnx")
    apart, progress = [], Progress("utterances vocoded by ONNX Runtime", len(job.utterances))
    for start in range(0, len(job.utterances), job.settings.batch_size):
        batch = job.utterances[start : start + job.settings.batch_size]
        mels = [
            compute_features(read_utterance(one, vocoder.sample_rate), vocoder.features)[
                :, vocoder.features.mel_columns
            ]
            for one in batch
        ]
        for ours, theirs in zip(vocoder.vocode(mels), other.vocode(mels), strict=True):
            level = float(np.sqrt(np.mean(ours**2))) if len(ours) else 0.0
            difference = float(np.sqrt(np.mean((ours - theirs) ** 2))) if len(ours) else 0.0
            apart.append(difference / max(level, 1e-9))
        progress.advance(len(batch))
    rtf = other.seconds / max(other.audio_seconds, 1 / other.sample_rate)
    unit = "of the waveform's root mean square"
    return describe_difference(job.utterances, apart, unit, WAVEFORM_TOLERANCE, rtf)


def _recorded_wer(recognizer: RoundTripRecognizer, vocoder: Vocoder, utterances: Sequence[Utterance]) -> float:
    rate = vocoder.sample_rate
    heard = [recognizer.transcribe([read_utterance(one, rate)], rate)[0] for one in utterances]
    return sum_edits(count_word_edits([reference_text(one) for one in utterances], heard)).rate


def _write_clip(job: EvaluationJob, vocoder: Vocoder) -> VocoderSmokeTest:
    """Writes mels and the waveform made of them alone: push's smoke test expects the same in a fresh process."""
    import numpy as np
    import soundfile

    from voxline.audio.features import compute_features

    utterance = min(job.utterances, key=lambda one: (abs(one.duration - CLIP_SECONDS), one.id))
    samples = read_utterance(utterance, vocoder.sample_rate)
    mels = compute_features(samples, vocoder.features)[:, vocoder.features.mel_columns]
    (waveform,) = vocoder.vocode([mels])
    written, wav = io.BytesIO(), io.BytesIO()
    np.save(written, mels)
    soundfile.write(wav, np.clip(waveform, -1, 1), vocoder.sample_rate, format="WAV", subtype="PCM_16")
    for name, content in ((CLIP_MELS_FILE, written), (CLIP_FILE, wav)):
        with atomic_write(job.output / name) as file:
            file.write(content.getvalue())
    return VocoderSmokeTest(id=utterance.id, samples=len(waveform))
