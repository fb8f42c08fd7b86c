"""Independent judges of a voice, by what others published: a second recognizer, who speaks, and where there is speech.

A recognizer is a model in the registry. The others are wheels that are read and not installed, Resemblyzer's speaker
encoder and Silero VAD, named by a path or a bucket URI. The digest of each is in the step's key and in metrics.json.
"""

import dataclasses
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxline.audio.speaker_encoder import WHEEL_FAULTS, SpeakerEncoder, of_length_1
from voxline.components.evaluate.champion import ModelVersion
from voxline.components.evaluate.speech import NOT_MEASURED, RoundTripRecognizer, evenly_spaced_ids, read_utterance
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError
from voxline.inference.pauses import SileroFinder
from voxline.metrics.bootstrap import SumAndWeight
from voxline.metrics.wer import count_word_edits, sum_edits
from voxline.progress import Progress
from voxline.store.hashing import hash_file
from voxline.store.localize import localize
from voxline.store.scratch import scratch_root

if TYPE_CHECKING:
    import numpy.typing as npt

    from voxline.inference.waveforms import Waveform

SPEAKER_JUDGE = "speaker_encoder"
VOICE_ACTIVITY = "voice_activity"
"""Settings of evaluate that name a judge's file, and its keys among the auxiliary models."""

_PACKAGES = {SPEAKER_JUDGE: ("Resemblyzer", "0.1.4"), VOICE_ACTIVITY: ("silero-vad", "6.2.3")}
_SILERO_MEMBER = "silero_vad/data/silero_vad.onnx"
_MOST_BYTES = 1 << 25
"""Size of Silero VAD's network that is read, at most; it has 2.3 MB."""
LOW_PERCENTILE = 5.0
"""Of the likeness of a speaker's recordings to each other: what is less alike would be a rare recording of theirs."""
DISAGREEMENT_ADVISED = 0.1
"""Words that two recognizers write otherwise of speech than of recordings, above which the report gives advice."""


def find_judge(setting: str, location: str) -> ModelVersion | None:
    """The file of a judge, as a version 0 that is in no registry; None if the setting is empty.

    Args:
      setting: `SPEAKER_JUDGE` or `VOICE_ACTIVITY`.
      location: its value, a path or a bucket URI.

    Raises:
      SettingsError: the file is absent; the message has the command that gets it.
    """
    if not location:
        return None
    package, release = _PACKAGES[setting]
    file = localize(location)
    if not file.is_file():
        raise SettingsError(f"evaluate.{setting}: {file} is not here; pip download --no-deps {package}=={release}")
    return ModelVersion(package, 0, hash_file(file), file)


def load_silero(file: Path) -> SileroFinder:
    """Silero VAD of its wheel, or of an ONNX file.

    Raises:
      SettingsError: it is another file.
    """
    if file.suffix == ".onnx":
        return SileroFinder(file)
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        network = Path(folder, "silero_vad.onnx")
        try:
            with zipfile.ZipFile(file) as wheel:
                size = wheel.getinfo(_SILERO_MEMBER).file_size
                if size > _MOST_BYTES:
                    raise ValueError(f"{size:,} bytes; {_MOST_BYTES:,} at most are accepted")
                network.write_bytes(wheel.read(_SILERO_MEMBER))
        except WHEEL_FAULTS as error:
            raise SettingsError(
                f"{file}: no wheel of silero-vad with {_SILERO_MEMBER} ({error or type(error).__name__}); "
                "pip download --no-deps silero-vad==6.2.3"
            ) from None
        return SileroFinder(network)


class SpeakerJudge:
    """Says whether synthesized speech is of the speaker whom the recordings are of.

    A likeness is the cosine of two voices' places, 1 for one voice. Speech is compared with the mean of its speaker's
    recordings, but for that of the same sentence, if there are others: so a recording is compared in the same way.

    Args:
      wheel: of Resemblyzer.
      count: recordings of each speaker that are heard, and sentences that are judged, evenly spaced by length.
      sample_rate: of the speech, Hz: recordings are brought to it, so that both lack the same frequencies.

    Attributes:
      recorded_likeness: the mean of the recordings, a ceiling; None where each speaker has one.
      recorded_same_speaker: the share of the recordings that `same_speaker_rate` counts; None likewise.

    Raises:
      SettingsError: it is another wheel.
      WorkError: a recording cannot be read.
    """

    def __init__(self, wheel: Path, utterances: Sequence[Utterance], count: int, sample_rate: int) -> None:
        self._encoder = SpeakerEncoder(wheel)
        by_speaker: dict[str, list[Utterance]] = {}
        for utterance in utterances:
            by_speaker.setdefault(utterance.speaker, []).append(utterance)
        chosen = {id_ for spoken in by_speaker.values() for id_ in evenly_spaced_ids(spoken, count)}

        # Places of length 1, float32 [PLACE_UNITS]; and their sum by speaker.
        self._places: dict[str, npt.NDArray[np.float32]] = {}
        self._sums: dict[str, npt.NDArray[np.float32]] = {}
        progress = Progress("recordings heard by the speaker encoder", len(chosen))
        for utterance in (utterance for utterance in utterances if utterance.id in chosen):
            place = self._encoder.embed(read_utterance(utterance, sample_rate), sample_rate)
            self._places[utterance.id] = place
            self._sums[utterance.speaker] = self._sums.get(utterance.speaker, 0) + place
            progress.advance()

        # Of each recording that is not its speaker's only one.
        judged = [
            utterance
            for utterance in utterances
            if utterance.id in chosen and min(count, len(by_speaker[utterance.speaker])) > 1
        ]
        self._likeness = {
            utterance.id: self._likeness_of(utterance, self._places[utterance.id]) for utterance in judged
        }
        likeness = list(self._likeness.values())
        self._lowest = float(np.percentile(likeness, LOW_PERCENTILE)) if likeness else None
        same = [self._is_same(utterance, self._places[utterance.id]) for utterance in judged]
        self.recorded_likeness = float(np.mean(likeness)) if likeness else None
        self.recorded_same_speaker = float(np.mean(np.array(same, float))) if judged else None

    def measure(self, utterance: Utterance, speech: "Waveform", sample_rate: int) -> dict[str, SumAndWeight]:
        """What synthesized speech, float32 [samples], adds to each metric of this judge."""
        if utterance.id not in self._places:
            return dict.fromkeys(("speaker_likeness", "speaker_likeness_share", "same_speaker_rate"), NOT_MEASURED)
        place = self._encoder.embed(speech, sample_rate)
        likeness = self._likeness_of(utterance, place)
        recorded = self._likeness.get(utterance.id)
        same = self._is_same(utterance, place)
        return {
            "speaker_likeness": SumAndWeight(likeness),
            "speaker_likeness_share": SumAndWeight(likeness, recorded) if recorded else NOT_MEASURED,
            "same_speaker_rate": NOT_MEASURED if same is None else SumAndWeight(int(same)),
        }

    def _likeness_of(self, utterance: Utterance, place: "npt.NDArray[np.float32]") -> float:
        """The cosine with the mean of the speaker's other recordings; with the only one, if there is no other."""
        others = self._sums[utterance.speaker] - self._places[utterance.id]
        # Of one recording nothing but rounding is left.
        reference = others if np.linalg.norm(others) > 1e-3 else self._places[utterance.id]
        return float(place @ of_length_1(reference))

    def _is_same(self, utterance: Utterance, place: "npt.NDArray[np.float32]") -> bool | None:
        """Asks of several speakers whether the own one is nearest, of one whether it is as alike as the recordings are.

        None of one speaker with one recording.
        """
        likeness = self._likeness_of(utterance, place)
        strangers = [of_length_1(total) for speaker, total in self._sums.items() if speaker != utterance.speaker]
        if strangers:
            return likeness > max(float(place @ stranger) for stranger in strangers)
        return None if self._lowest is None else likeness >= self._lowest


@dataclasses.dataclass(frozen=True)
class SpeechExtent:
    """Where there is speech in a waveform.

    Attributes:
      share: of its time, 0 to 1.
      trailing_seconds: after the last speech; all of it, if there is none.
    """

    share: float
    trailing_seconds: float


class VoiceActivityJudge:
    """Compares how much of synthesized speech is speech, and what follows it, with the recordings.

    Args:
      file: Silero VAD's wheel, or its ONNX file.

    Attributes:
      recorded: of each recording that was heard.

    Raises:
      SettingsError: it is another file.
    """

    def __init__(self, file: Path) -> None:
        self._silero = load_silero(file)
        self.recorded: dict[str, SpeechExtent] = {}

    def extent(self, samples: "Waveform", sample_rate: int) -> SpeechExtent:
        """Finds the speech in a waveform, float32 [samples]."""
        seconds = len(samples) / sample_rate
        if not len(samples):
            return SpeechExtent(0.0, 0.0)
        speaking = self._silero.speaking(self._silero.measure(samples, sample_rate))
        (windows,) = np.nonzero(speaking)
        end = (int(windows[-1]) + 1) * SileroFinder.SECONDS if len(windows) else 0.0
        return SpeechExtent(float(np.mean(speaking)), max(seconds - end, 0.0))

    def measure(
        self, utterance: Utterance, recorded: "Waveform", speech: "Waveform", sample_rate: int
    ) -> dict[str, SumAndWeight]:
        """What synthesized speech adds to each metric of this judge; both waveforms are float32 [samples]."""
        if utterance.id not in self.recorded:
            self.recorded[utterance.id] = self.extent(recorded, sample_rate)
        of_recording = self.recorded[utterance.id]
        of_speech = self.extent(speech, sample_rate)
        added = of_speech.trailing_seconds - of_recording.trailing_seconds
        return {
            "speech_share": SumAndWeight(of_speech.share, of_recording.share) if of_recording.share else NOT_MEASURED,
            "trailing_silence": SumAndWeight(of_speech.trailing_seconds),
            "trailing_silence_added": SumAndWeight(added),
        }

    @property
    def recorded_trailing_silence(self) -> float | None:
        """The mean over the recordings that were heard, in seconds."""
        seconds = [extent.trailing_seconds for extent in self.recorded.values()]
        return sum(seconds) / len(seconds) if seconds else None


@dataclasses.dataclass(frozen=True)
class RecognizerAgreement:
    """How alike two recognizers write the same speech.

    Attributes:
      share: of the sentences, written alike by both.
      disagreement: word errors of the own recognizer's texts against the public one's.
    """

    share: float
    disagreement: float


class TwoRecognizers:
    """The own recognizer and the public one, whose texts are compared as words, however each of them spells."""

    def __init__(self, own: RoundTripRecognizer, public: RoundTripRecognizer) -> None:
        self._spellings = (public.spell, own.spell, str.lower)

    def measure(self, own_text: str, public_text: str) -> dict[str, SumAndWeight]:
        """What one sentence adds to each metric of their agreement."""
        own, public = map(self._spelled, (own_text, public_text))
        (edits,) = count_word_edits([public], [own], spacing=False)
        alike = SumAndWeight(int(not edits.errors))
        return {"recognizer_agreement": alike, "recognizer_disagreement": edits.as_metric}

    def agreement(self, own_texts: Sequence[str], public_texts: Sequence[str]) -> RecognizerAgreement:
        """Of several sentences, at least one."""
        own, public = (list(map(self._spelled, texts)) for texts in (own_texts, public_texts))
        edits = count_word_edits(public, own, spacing=False)
        alike = sum(not counts.errors for counts in edits)
        return RecognizerAgreement(alike / len(own), sum_edits(edits).rate)

    def _spelled(self, text: str) -> str:
        for spell in self._spellings:
            text = spell(text)
        return text


@dataclasses.dataclass(frozen=True)
class VoiceJudges:
    """Those that listen to each version of a voice; None of what the settings leave out.

    Attributes:
      recorded_texts: what the public recognizer heard in the recordings, by utterance, which is added to.
    """

    recognizer: RoundTripRecognizer | None = None
    public_recognizer: RoundTripRecognizer | None = None
    speaker: SpeakerJudge | None = None
    voice_activity: VoiceActivityJudge | None = None
    recorded_texts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def both(self) -> TwoRecognizers | None:
        """The two recognizers; None unless both listen."""
        if self.recognizer is None or self.public_recognizer is None:
            return None
        return TwoRecognizers(self.recognizer, self.public_recognizer)


def advise_on_agreement(disagreement: float | None, recorded: float | None) -> str:
    """Advice where two recognizers hear different words; empty where they do so no more than of the recordings.

    Args:
      disagreement: of the synthesized speech.
      recorded: of the recordings.

    >>> advise_on_agreement(0.1, 0.05), advise_on_agreement(None, None)
    ('', '')
    >>> print(advise_on_agreement(0.4, 0.05))
    The two recognizers write 40.00% of the words otherwise, and 5.00% of the recordings': listen to the samples, and \
trust the public one. A recognizer that learned from the same voice, or from few words, may hear what it expects.
    """
    if disagreement is None or recorded is None or disagreement - recorded <= DISAGREEMENT_ADVISED:
        return ""
    return (
        f"The two recognizers write {disagreement:.2%} of the words otherwise, and {recorded:.2%} of the recordings': "
        "listen to the samples, and trust the public one. A recognizer that learned from the same voice, or from few "
        "words, may hear what it expects."
    )
