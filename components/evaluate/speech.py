"""Recordings that families read, and measures of generated speech: the round trip through a recognizer, and DNSMOS."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxline.components.evaluate.champion import ModelVersion, find_auxiliary
from voxline.components.evaluate.measurement import EvaluationJob
from voxline.data.manifest import Utterance
from voxline.errors import WorkError
from voxline.inference.recognizer import Recognizer
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.dnsmos import dnsmos, mean_dnsmos
from voxline.metrics.evaluation import OnnxInfo
from voxline.metrics.wer import EditCounts, count_word_edits, sum_edits
from voxline.progress import print_status

if TYPE_CHECKING:
    from voxline.inference.model_info import ModelInfo
    from voxline.inference.waveforms import Waveform
    from voxline.text.alphabet import Alphabet

    Normalizer = Callable[[ModelInfo, Alphabet], Callable[[str], str] | None]


ROUND_TRIP_RECOGNIZER = "round_trip_recognizer"
PUBLIC_RECOGNIZER = "public_recognizer"
"""Settings that name a recognizer which listens, and its keys among the auxiliary models."""


def find_round_trip_recognizer(
    registry: Path | str, name: str, setting: str = ROUND_TRIP_RECOGNIZER
) -> ModelVersion | None:
    """The ASR model in service under a name; None if the name is empty.

    Raises:
      SettingsError: none is in service under it, or a model of another family.
    """
    return find_auxiliary(registry, name, family="asr", setting=setting)


class RoundTripRecognizer:
    """A loaded ASR model for speech of any sample rate.

    It decodes greedily: a language model would guess words that the voice says badly, and refuse those that it lacks.

    Args:
      normalizer: of a model that writes more than words, such as Whisper, spells what it heard and what was to be said
        alike; None, or if it returns None: texts are compared as they are.

    Attributes:
      spell: spells a text so.

    Raises:
      WorkError: the version is damaged.
    """

    def __init__(self, version: ModelVersion, normalizer: "Normalizer | None" = None) -> None:
        try:
            self._recognizer = Recognizer(version.folder, language_model=False)
        except WorkError as error:
            raise version.unusable(error) from None
        spell = normalizer(self._recognizer.info, self._recognizer.alphabet) if normalizer else None
        self.spell: Callable[[str], str] = spell or str

    def reference(self, utterance: Utterance) -> str:
        """The words that it should hear."""
        return self.spell(reference_text(utterance))

    def transcribe(self, waveforms: Sequence["Waveform"], sample_rate: int) -> list[str]:
        """Transcribes waveforms, float32 [samples], spelled as `reference`; samples beyond full scale are clipped."""
        import numpy as np

        from voxline.audio.decoding import resample

        # Resampling overshoots at steep edges, and a recognizer expects samples in [-1, 1].
        rate = self._recognizer.sample_rate
        written = self._recognizer.transcribe_waveforms(
            [np.clip(resample(waveform, sample_rate, rate), -1, 1) for waveform in waveforms]
        )
        return list(map(self.spell, written))

    def recorded_wer(self, utterances: Sequence[Utterance], sample_rate: int) -> float:
        """Its word error rate on the recordings, a floor under that of generated speech.

        Args:
          sample_rate: of the generated speech, so that both are resampled alike.
        """
        return self.error_rate(utterances, self.transcribe_recordings(utterances, sample_rate))

    def transcribe_recordings(self, utterances: Sequence[Utterance], sample_rate: int) -> list[str]:
        """What it hears in the recordings, at the rate of the generated speech."""
        # One at a time: a whole test split of samples need not fit into memory.
        return [self.transcribe([read_utterance(utterance, sample_rate)], sample_rate)[0] for utterance in utterances]

    def error_rate(self, utterances: Sequence[Utterance], hypotheses: Sequence[str]) -> float:
        """The word error rate of what it heard."""
        return sum_edits(self.count_errors(list(map(self.reference, utterances)), hypotheses)).rate

    def count_errors(self, references: Sequence[str], hypotheses: Sequence[str]) -> list[EditCounts]:
        """Counts word errors of what it heard; how a model spells that writes more than words is none of the voice."""
        return count_word_edits(references, hypotheses, spacing=self.spell is str)


def load_round_trip_recognizer(job: EvaluationJob, normalizer: "Normalizer") -> RoundTripRecognizer | None:
    """The recognizer of a job; None, with a line that says so, if the settings name none, nor a public one.

    Args:
      normalizer: as for `RoundTripRecognizer`.

    Raises:
      WorkError: the version is damaged.
    """
    version = job.auxiliary_models[ROUND_TRIP_RECOGNIZER]
    if version is None and job.auxiliary_models.get(PUBLIC_RECOGNIZER) is None:
        print_status("evaluate: no evaluate.round_trip_recognizer is set, so intelligibility is not measured")
    return None if version is None else RoundTripRecognizer(version, normalizer)


def reference_text(utterance: Utterance) -> str:
    """The words that the round trip should return: numbers spelled out, without punctuation."""
    return str(utterance.extra.get("normalized_text") or utterance.text)


NOT_MEASURED = SumAndWeight(0.0, 0.0)


def read_utterance(utterance: Utterance, sample_rate: int) -> "Waveform":
    """The recording of an utterance, float32 [samples].

    Raises:
      WorkError: naming the utterance.
    """
    try:
        return read_waveform(Path(utterance.audio_filepath), sample_rate, utterance.offset, utterance.duration)
    except WorkError as error:
        raise WorkError(f"utterance {utterance.id}: {error}; run convert again") from None


def evenly_spaced_ids(utterances: Sequence[Utterance], count: int) -> set[str]:
    """Ids of that many utterances, evenly spaced by the length of their text."""
    # Sorted by length, and the id breaks ties: every version is measured on the same ones.
    order = sorted(utterances, key=lambda utterance: (len(utterance.text), utterance.id))
    count = min(count, len(order))
    return {order[index * len(order) // count].id for index in range(count)}


def measure_dnsmos(waveform: "Waveform", sample_rate: int) -> SumAndWeight:
    """A waveform's part of the metric `dnsmos`."""
    score = dnsmos(waveform, sample_rate)
    return NOT_MEASURED if score is None else SumAndWeight(score)


def recorded_dnsmos(utterances: Sequence[Utterance], count: int, sample_rate: int) -> float | None:
    """The mean over the recordings of as many utterances as are measured: a ceiling of what synthesis can reach."""
    # The same ids as `measure_dnsmos` is called for, so that both means are over the same utterances.
    ids = evenly_spaced_ids(utterances, count)
    recordings = (read_utterance(utterance, sample_rate) for utterance in utterances if utterance.id in ids)
    return mean_dnsmos(recordings, sample_rate)


def describe_dnsmos(count: int, recorded: float | None) -> str:
    """Says how opinions were predicted, for the report.

    Args:
      count: utterances that they were predicted of.
      recorded: DNSMOS of their recordings; None: not predicted.

    >>> describe_dnsmos(20, 3.21)
    'DNSMOS predicts what listeners would say, from 1 to 5, of 20 utterances; of their recordings it is 3.21.'
    """
    if recorded is None:
        return "What listeners would say was not predicted (evaluate.mos_utterances)."
    return (
        f"DNSMOS predicts what listeners would say, from 1 to 5, of {count:,} utterances; of their recordings it is "
        f"{recorded:.2f}."
    )


def describe_difference(
    utterances: Sequence[Utterance], differences: Sequence[float], unit: str, limit: float, rtf: float
) -> OnnxInfo:
    """The largest difference of a model's two forms, and the utterance that has it.

    Args:
      differences: of each utterance.
      limit: the largest that push accepts.
      rtf: of the ONNX graph.

    Raises:
      WorkError: a difference is no number, since one of the forms made NaN or infinity.
    """
    # The largest of numbers with a NaN among them depends on their order.
    for utterance, difference in zip(utterances, differences, strict=True):
        if not math.isfinite(difference):
            raise WorkError(
                f"evaluate: utterance {utterance.id}: the ONNX graph differs from the SavedModel by {difference} "
                f"{unit}; one of them makes NaN or infinity; set train.export.onnx to none, and report it"
            )
    worst = max(range(len(differences)), key=differences.__getitem__)
    return OnnxInfo(
        rtf=rtf, precision="float32", largest=differences[worst], id=utterances[worst].id, unit=unit, limit=limit
    )
