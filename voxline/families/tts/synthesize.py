"""Synthesizes the test split with one TTS model, and measures every utterance."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from voxline.audio.dtw import dtw
from voxline.components.evaluate.judges import VoiceJudges
from voxline.components.evaluate.speech import (
    NOT_MEASURED,
    evenly_spaced_ids,
    measure_dnsmos,
    read_utterance,
)
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.families.tts.settings import TtsEvaluateSettings
from voxline.families.tts.speakers import name_speakers
from voxline.inference.speech import SynthesisResult, TeacherForcedResult
from voxline.inference.synthesizer import Synthesizer
from voxline.metrics.attention import compute_attention_metrics
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.f0 import F0Pair, compare_f0
from voxline.metrics.mcd import mel_cepstra, mel_cepstral_distortion
from voxline.metrics.sharpness import change_over_time, sharpness
from voxline.metrics.wer import count_character_edits, count_syllable_edits
from voxline.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]


HIT_LIMIT = "hit_limit"
"""The metric of utterances that were cut off at the step limit."""

WRONG_LENGTH = "wrong_length"
"""The metric of utterances that stop at once, or go on after their text."""

LEAST_SPREAD = 100.0
"""Cents of F0, a semitone, below which a recording is of one pitch: the rest is the error of its measurement."""

RANKING = (HIT_LIMIT, WRONG_LENGTH, "round_trip_wer", "public_wer", "skips", "repeats", "mcd")
"""Metrics by which the worst utterances are chosen, the weightiest first."""


@dataclasses.dataclass
class SynthesisRecord:
    """One utterance, as one model did on it.

    Attributes:
      metrics: what it adds to each metric of the catalog.
      details: for its line of utterances.jsonl.
    """

    metrics: dict[str, SumAndWeight]
    details: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One utterance: the recording, and the model's output for it.

    Attributes:
      recorded: float32 [samples] at the model's rate.
      features: of the recording, float32 [frames, bins].
      teacher_forced: None of a voice that makes samples itself: it predicts no frame from recorded ones.
    """

    utterance: Utterance
    recorded: "Array"
    features: "Array"
    teacher_forced: TeacherForcedResult | None
    synthesized: SynthesisResult


class SampleGallery:
    """The samples that the report shows: some evenly spaced, and the worst. No others are kept in memory.

    Args:
      shown: ids of those to show however good they are.
      worst_count: how many of the worst.
    """

    def __init__(self, shown: set[str], worst_count: int) -> None:
        self._shown = shown
        self._worst_count = worst_count
        self.samples: list[Sample] = []
        self._worst: list[tuple[tuple[float, ...], str, Sample]] = []

    @property
    def worst(self) -> list[Sample]:
        """The worst first."""
        return [sample for _, _, sample in self._worst]

    def offer(self, sample: Sample, record: SynthesisRecord) -> None:
        if sample.utterance.id in self._shown:
            self.samples.append(sample)
        badness = tuple(record.metrics[name].sum for name in RANKING if name in record.metrics)
        ranked = [*self._worst, (badness, sample.utterance.id, sample)]
        self._worst = sorted(ranked, key=lambda entry: entry[:2], reverse=True)[: self._worst_count]


def measure_synthesis(
    synthesizer: Synthesizer,
    utterances: Sequence[Utterance],
    judges: VoiceJudges,
    settings: TtsEvaluateSettings,
    unit: str,
    gallery: SampleGallery | None = None,
    recorded_opinions: dict[str, SumAndWeight] | None = None,
) -> list[SynthesisRecord]:
    """Measures each utterance, in order.

    Args:
      unit: for the progress line.
      recorded_opinions: DNSMOS of recordings by utterance, which is added to: to predict one takes seconds.
      gallery: of the new model, which must have every speaker; it is offered every sample.
    """

    # F0 and DNSMOS are slow, so only some utterances have them.
    records: dict[str, SynthesisRecord] = {}
    f0_ids = evenly_spaced_ids(utterances, settings.f0_utterances)
    mos_ids = evenly_spaced_ids(utterances, settings.mos_utterances)
    f0_pairs: dict[str, F0Pair] = {}
    opinions = {} if recorded_opinions is None else recorded_opinions
    progress = Progress(unit, len(utterances))

    # Batches of similar length pad little; results come back in the given order.
    order = sorted(utterances, key=lambda utterance: (len(utterance.text), utterance.id))
    for start in range(0, len(order), settings.batch_size):
        batch = order[start : start + settings.batch_size]
        samples = synthesize_samples(synthesizer, batch, strict=gallery is not None)
        waveforms = [sample.synthesized.waveform for sample in samples]
        texts = _transcribe(judges, samples, synthesizer.sample_rate)
        for index, sample in enumerate(samples):
            record, path = _measure(sample, synthesizer, settings)
            _add_round_trip(record, judges, sample.utterance, {name: heard[index] for name, heard in texts.items()})
            if judges.speaker:
                record.metrics |= judges.speaker.measure(sample.utterance, waveforms[index], synthesizer.sample_rate)
            if judges.voice_activity:
                record.metrics |= judges.voice_activity.measure(
                    sample.utterance, sample.recorded, waveforms[index], synthesizer.sample_rate
                )
            if sample.utterance.id in mos_ids:
                if sample.utterance.id not in opinions:
                    opinions[sample.utterance.id] = measure_dnsmos(sample.recorded, synthesizer.sample_rate)
                predicted = measure_dnsmos(waveforms[index], synthesizer.sample_rate)
                of_recording = opinions[sample.utterance.id]
                share = SumAndWeight(predicted.sum, of_recording.sum) if of_recording.weight else NOT_MEASURED
                record.metrics |= {"dnsmos": predicted, "dnsmos_share": share}

            # F0 is compared along the DTW path, all pairs together at the end.
            if sample.utterance.id in f0_ids:
                f0_pairs[sample.utterance.id] = F0Pair(
                    sample.recorded, sample.synthesized.waveform, path, synthesizer.sample_rate,
                    synthesizer.features.hop_length, settings.f0_min, settings.f0_max,
                )  # fmt: skip
            records[sample.utterance.id] = record
            if gallery is not None:
                gallery.offer(sample, record)
        progress.advance(len(batch))

    _add_f0(records, f0_pairs)
    return [records[utterance.id] for utterance in utterances]


def synthesize_samples(
    synthesizer: Synthesizer, utterances: Sequence[Utterance], *, strict: bool = True
) -> list[Sample]:
    """Synthesizes utterances, both autoregressively and, where the voice can, with teacher forcing.

    Args:
      strict: as for `speakers_asked_for`.

    Raises:
      WorkError: a recording cannot be read.
      SettingsError: the model cannot read a text, or does not have a speaker.
    """
    from voxline.audio.features import compute_features

    # Recordings at the model's rate, and features as it was trained on.
    recorded = [read_utterance(utterance, synthesizer.sample_rate) for utterance in utterances]
    features = [compute_features(samples, synthesizer.features) for samples in recorded]
    texts = [utterance.text for utterance in utterances]

    # Checked one by one, so that the message names the utterance.
    for utterance in utterances:
        try:
            synthesizer.text.check_symbols(utterance.text)
        except SettingsError as error:
            raise SettingsError(f"utterance {utterance.id}: {error}") from None

    speakers = speakers_asked_for(synthesizer, utterances, strict=strict)
    forced: Sequence[TeacherForcedResult | None] = [None] * len(texts)
    if not synthesizer.makes_samples:
        forced = synthesizer.teacher_forced(texts, features, speakers)
    synthesized = synthesizer.synthesize_symbols(texts, speakers)
    for utterance, result in zip(utterances, synthesized, strict=True):
        # One frame without a sound is the output of a bad model, and is measured as such; no frame cannot be measured.
        if not len(result.mels):
            raise WorkError(f"utterance {utterance.id}: the model outputs no frame for it; train it again")

    return [Sample(*parts) for parts in zip(utterances, recorded, features, forced, synthesized, strict=True)]


def speakers_asked_for(synthesizer: Synthesizer, utterances: Sequence[Utterance], *, strict: bool) -> list[str]:
    """Who is to speak each utterance: its own speaker, of a voice of several.

    Args:
      strict: whether the voice must have all of them; else its own choice, "", speaks for those whom it has not.

    Raises:
      SettingsError: it must, and does not have one; the message names the utterance.
    """
    names = set(synthesizer.speakers)
    if not names:
        return [""] * len(utterances)
    for utterance in utterances:
        if strict and utterance.speaker not in names:
            raise SettingsError(
                f"utterance {utterance.id}: the voice does not speak as {utterance.speaker or 'nobody'}; it speaks as "
                f"{name_speakers(synthesizer.speakers)}. Split each speaker's utterances (corpus.split.by: utterance)"
            )
    return [utterance.speaker if utterance.speaker in names else "" for utterance in utterances]


def _measure(
    sample: Sample, synthesizer: Synthesizer, settings: TtsEvaluateSettings
) -> tuple[SynthesisRecord, "npt.NDArray[np.int32]"]:
    """All metrics but those of the round trip and of F0; and the DTW path of recorded and synthesized frames."""

    # [frames, mels] each; the path pairs frames of both.
    recorded = sample.features[:, synthesizer.features.mel_columns]
    synthesized = sample.synthesized.mels
    aligned = dtw(recorded, synthesized)
    cepstra = [mel_cepstra(mels, synthesizer.features, settings.cepstra) for mels in (recorded, synthesized)]
    attention = compute_attention_metrics(sample.synthesized.alignment)
    ratio = len(sample.synthesized.waveform) / max(len(sample.recorded), 1)
    metrics = {
        "mel_l1": SumAndWeight(sample.teacher_forced.mel_l1) if sample.teacher_forced else NOT_MEASURED,
        "mel_dtw": SumAndWeight(aligned.distance),
        "mcd": SumAndWeight(mel_cepstral_distortion(*cepstra).distance),
        "sharpness": _share(sharpness(synthesized), sharpness(recorded)),
        "change_over_time": _share(change_over_time(synthesized), change_over_time(recorded)),
        "dnsmos": NOT_MEASURED,
        "dnsmos_share": NOT_MEASURED,
        "f0_spread": NOT_MEASURED,
        "f0_rmse": NOT_MEASURED,
        "f0_rmse_cents": NOT_MEASURED,
        "voicing_error": NOT_MEASURED,
        "duration_ratio": SumAndWeight(ratio),
        "duration_error": SumAndWeight(abs(ratio - 1)),
        "attention_diagonality": SumAndWeight(attention.diagonality),
        "attention_coverage": SumAndWeight(attention.coverage),
        "repeats": SumAndWeight(attention.repeats),
        "skips": SumAndWeight(attention.skips),
        HIT_LIMIT: SumAndWeight(int(sample.synthesized.hit_limit)),
        WRONG_LENGTH: SumAndWeight(int(sample.synthesized.pace_fault != "")),
    }
    seconds = round(len(sample.synthesized.waveform) / synthesizer.sample_rate, 3)

    return SynthesisRecord(metrics, {"text": sample.utterance.text, "seconds": seconds}), aligned.path


def _share(synthesized: float, recorded: float) -> SumAndWeight:
    """Share of the recording's value; not measured for a recording that has none, such as silence."""
    return SumAndWeight(synthesized / recorded) if recorded else NOT_MEASURED


def _transcribe(judges: VoiceJudges, samples: Sequence[Sample], sample_rate: int) -> dict[str, list[str]]:
    """What each recognizer heard, by the key of the utterance's line; the public one hears new recordings too."""
    listening = {"hypothesis": judges.recognizer, "public_hypothesis": judges.public_recognizer}
    if judges.public_recognizer is not None:
        unheard = [sample for sample in samples if sample.utterance.id not in judges.recorded_texts]
        recorded = judges.public_recognizer.transcribe([sample.recorded for sample in unheard], sample_rate)
        judges.recorded_texts.update(zip((sample.utterance.id for sample in unheard), recorded, strict=True))
    waveforms = [sample.synthesized.waveform for sample in samples]
    return {name: heard.transcribe(waveforms, sample_rate) for name, heard in listening.items() if heard is not None}


def _add_round_trip(
    record: SynthesisRecord, judges: VoiceJudges, utterance: Utterance, texts: Mapping[str, str]
) -> None:
    """Adds the words that the recognizers heard, `texts`, with their errors."""
    record.details |= texts
    if judges.recognizer is not None:
        reference = judges.recognizer.reference(utterance)
        hypothesis = texts["hypothesis"]
        (words,) = judges.recognizer.count_errors([reference], [hypothesis])
        (characters,) = count_character_edits([reference], [hypothesis])
        record.metrics |= {"round_trip_wer": words.as_metric, "round_trip_cer": characters.as_metric}
        if syllables := count_syllable_edits([reference], [hypothesis]):
            record.metrics |= syllables[0].metrics("round_trip_")
        record.details["reference"] = reference
    if judges.public_recognizer is not None:
        reference = judges.public_recognizer.reference(utterance)
        heard = [texts["public_hypothesis"], judges.recorded_texts[utterance.id]]
        words, recorded = judges.public_recognizer.count_errors([reference] * 2, heard)
        # A recognizer that writes a loop for one recording must not outweigh all other sentences.
        errors, floor = (min(edits.errors, edits.length) for edits in (words, recorded))
        added = SumAndWeight(errors - floor, words.length)
        record.metrics |= {"public_wer": SumAndWeight(errors, words.length), "public_wer_added": added}
        record.details["public_reference"] = reference
    if judges.both is not None:
        record.metrics |= judges.both.measure(texts["hypothesis"], texts["public_hypothesis"])


def _add_f0(records: dict[str, SynthesisRecord], pairs: dict[str, F0Pair]) -> None:
    progress = Progress("utterances whose F0 was compared", len(pairs))
    for name, compared in zip(pairs, compare_f0(list(pairs.values())), strict=True):
        values = records[name].metrics
        values |= {"voicing_error": SumAndWeight(compared.voicing_error)}
        # A recording without a melody has none that a voice could lose.
        if compared.recorded_spread >= LEAST_SPREAD:
            values |= {"f0_spread": SumAndWeight(compared.synthesized_spread, compared.recorded_spread)}
        if compared.hertz is not None and compared.cents is not None:
            values |= {"f0_rmse": SumAndWeight(compared.hertz), "f0_rmse_cents": SumAndWeight(compared.cents)}
        progress.advance(1)
