"""What one voice makes of the test split: every utterance spoken, foretold, listened to and measured."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.audio.dtw import dtw
from voxline.components.evaluate.settings import TtsEvaluateSettings
from voxline.components.evaluate.tts.round_trip import RoundTripRecognizer, reference_text
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.inference.recognizer import read_waveform
from voxline.inference.synthesizer import SynthesisResult, Synthesizer, TeacherForcedResult
from voxline.metrics import attention, f0
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.mcd import mel_cepstra, mel_cepstral_distortion
from voxline.metrics.wer import count_character_edits, count_word_edits
from voxline.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


NOT_MEASURED = SumAndWeight(0.0, 0.0)


@dataclasses.dataclass
class SynthesisRecord:
    """One utterance, as one voice did on it.

    Attributes:
      figures: what it adds to each figure.
      told: beside these, for people.
    """

    figures: dict[str, SumAndWeight]
    told: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One utterance: the recording, and what the voice makes of it.

    Attributes:
      recorded: float32 [samples] at the voice's rate.
      features: of the recording, float32 [frames, bins].
    """

    utterance: Utterance
    recorded: "Array"
    features: "Array"
    forced: TeacherForcedResult
    spoken: SynthesisResult


class SampleGallery:
    """The takes that a person is shown: some evenly picked, and the worst; the others need not be kept.

    Args:
      samples: ids of those that are shown however good they are.
      worst: how many of the worst.
    """

    def __init__(self, samples: set[str], worst: int) -> None:
        self._samples, self._most = samples, worst
        self.samples: list[Sample] = []
        self._worst: list[tuple[tuple[float, ...], str, Sample]] = []

    @property
    def worst(self) -> list[Sample]:
        """From the worst on."""
        return [take for _, _, take in self._worst]

    def offer(self, take: Sample, performance: SynthesisRecord) -> None:
        """Ends that did not come, words not understood, words left out, then timbre."""
        if take.utterance.id in self._samples:
            self.samples.append(take)
        found = performance.figures
        names = ("hit_limit", "round_trip_wer", "skips", "repeats", "mcd")
        badness = tuple(found[name].value for name in names if name in found)
        ranked = [*self._worst, (badness, take.utterance.id, take)]
        self._worst = sorted(ranked, key=lambda one: one[:2], reverse=True)[: self._most]


def measure_synthesis(
    voice: Synthesizer,
    utterances: Sequence[Utterance],
    listener: RoundTripRecognizer | None,
    pitched: set[str],
    settings: TtsEvaluateSettings,
    unit: str,
    gallery: SampleGallery | None = None,
) -> list[SynthesisRecord]:
    """Measures each utterance, in their order.

    Args:
      pitched: ids of those whose F0 is measured.
      unit: what the progress line counts.
      gallery: is offered every take.
    """
    found: dict[str, SynthesisRecord] = {}
    jobs: dict[str, f0.F0Pair] = {}
    progress = Progress(unit, len(utterances))
    order = sorted(utterances, key=lambda one: (len(one.text), one.id))
    for start in range(0, len(order), settings.batch_size):
        batch = order[start : start + settings.batch_size]
        takes = synthesize_samples(voice, batch)
        heard = listener.hear([take.spoken.waveform for take in takes], voice.sample_rate) if listener else None
        for place, take in enumerate(takes):
            performance, path = _measured(take, voice, settings)
            if heard is not None:
                _listened(performance, reference_text(take.utterance), heard[place])
            if take.utterance.id in pitched:
                jobs[take.utterance.id] = f0.F0Pair(
                    take.recorded, take.spoken.waveform, path, voice.sample_rate, voice.features.hop_length,
                    settings.lowest_f0, settings.highest_f0,
                )  # fmt: skip
            found[take.utterance.id] = performance
            if gallery is not None:
                gallery.offer(take, performance)
        progress.advance(len(batch))
    _pitched(found, jobs)
    return [found[utterance.id] for utterance in utterances]


def synthesize_samples(voice: Synthesizer, utterances: Sequence[Utterance]) -> list[Sample]:
    """Lets the voice speak and foretell some utterances.

    Raises:
      WorkError: a recording cannot be read. SettingsError: a text that the voice cannot speak; both name the utterance.
    """
    from voxline.audio.features import compute_features

    recorded = [_waveform(utterance, voice.sample_rate) for utterance in utterances]
    found = [compute_features(samples, voice.features) for samples in recorded]
    texts = [utterance.text for utterance in utterances]
    for utterance in utterances:
        try:
            voice.text.check_symbols(utterance.text)
        except SettingsError as error:
            raise SettingsError(f"utterance {utterance.id}: {error}") from None
    forced, spoken = voice.teacher_forced(texts, found), voice.synthesize_symbols(texts)
    for utterance, one in zip(utterances, spoken, strict=True):
        # One frame is a place in time and no sound: a voice that ends with it is a bad one, and measured as such.
        if not len(one.mels):
            raise WorkError(f"utterance {utterance.id}: the voice gives no frame for it; train it again")
    return [Sample(*one) for one in zip(utterances, recorded, found, forced, spoken, strict=True)]


def _measured(
    take: Sample, voice: Synthesizer, settings: TtsEvaluateSettings
) -> tuple[SynthesisRecord, "npt.NDArray[np.int32]"]:
    """All figures but those of a listener and of pitch; and how recorded and spoken frames go together."""
    mels = take.features[:, voice.features.mel_columns]
    free = take.spoken.mels
    warped = dtw(mels, free)
    one, other = (mel_cepstra(side, voice.features, settings.cepstra) for side in (mels, free))
    read = attention.compute_attention_metrics(take.spoken.alignment)
    ratio = len(take.spoken.waveform) / max(len(take.recorded), 1)
    figures = {
        "mel_l1": SumAndWeight(take.forced.mel_l1),
        "mel_dtw": SumAndWeight(warped.distance),
        "mcd": SumAndWeight(mel_cepstral_distortion(one, other).distance),
        "f0_rmse": NOT_MEASURED,
        "f0_rmse_cents": NOT_MEASURED,
        "voicing_error": NOT_MEASURED,
        "duration_ratio": SumAndWeight(ratio),
        "duration_error": SumAndWeight(abs(ratio - 1)),
        "attention_diagonality": SumAndWeight(read.diagonality),
        "attention_coverage": SumAndWeight(read.coverage),
        "repeats": SumAndWeight(read.repeats),
        "skips": SumAndWeight(read.skips),
        "hit_limit": SumAndWeight(int(take.spoken.hit_limit)),
    }
    told = {"text": take.utterance.text, "seconds": round(len(take.spoken.waveform) / voice.sample_rate, 3)}
    return SynthesisRecord(figures, told), warped.path


def _listened(performance: SynthesisRecord, reference: str, heard: str) -> None:
    (words,), (characters,) = count_word_edits([reference], [heard]), count_character_edits([reference], [heard])
    performance.figures = {
        "round_trip_wer": words.part,
        "round_trip_cer": characters.part,
        **performance.figures,
    }
    performance.told |= {"reference": reference, "heard": heard}


def _pitched(found: dict[str, SynthesisRecord], jobs: dict[str, f0.F0Pair]) -> None:
    progress = Progress("utterances whose pitch was compared", len(jobs))
    for name, compared in zip(jobs, f0.compare_f0(list(jobs.values())), strict=True):
        figures = found[name].figures
        figures["voicing_error"] = SumAndWeight(compared.voicing_error)
        if compared.hertz is not None and compared.cents is not None:
            figures["f0_rmse"], figures["f0_rmse_cents"] = SumAndWeight(compared.hertz), SumAndWeight(compared.cents)
        progress.advance(1)


def _waveform(utterance: Utterance, sample_rate: int) -> "Array":
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None
