"""A version hears what the one in service heard: what callers would have got, before any of them gets it.

Without labels two things are known: where the versions disagree, and what each one's confidences say of its errors.
With labels the word error rates themselves are compared, on the same clips.
"""

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.data.manifest import MANIFEST_FILE, read_manifest
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import ID_PREFIX, CapturedClip, CaptureStore
from voxline.feedback.watch import heard_clip, judged_results
from voxline.inference.recognizer import Recognizer
from voxline.inference.transcript import Transcript
from voxline.inference.waveforms import read_waveform
from voxline.metrics.bootstrap import Bootstrap, Comparison, SumAndWeight
from voxline.metrics.wer import count_word_edits
from voxline.metrics.wer_estimate import HeardClip, WerCurve, clip_of_result
from voxline.registry.journal import PRODUCTION
from voxline.registry.models import resolve_version
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data

_BATCH = 64
_ID = re.compile(ID_PREFIX + "[0-9a-f]{16}")
_NOT_LABELED = (0, 0, None, None, None)


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A clip that two versions hear differently.

    Attributes:
      words: edits between the two texts, per word of the longer one.
    """

    id: str
    in_service: str
    shadow: str
    confidence_in_service: float | None
    confidence_shadow: float | None
    words: float


@dataclasses.dataclass(frozen=True)
class ShadowVerdict:
    """The results of a version on the clips that the one in service heard.

    Attributes:
      model, version, in_service: the model, the version that was tried, and the one in service.
      clips: that both have heard.
      disagreements: the largest and surest first.
      estimated, estimated_in_service: WER by each version's own confidences; None without clips.
      labeled: clips with labels that neither version was trained on.
      trained: clips with labels that one of them was trained on, which are left out.
      wer, wer_in_service: on the labeled ones; None without.
      comparison: of the two, paired; None without.
    """

    model: str
    version: int
    in_service: int
    clips: int
    disagreements: list[Disagreement]
    estimated: float | None
    estimated_in_service: float | None
    labeled: int
    trained: int
    wer: float | None
    wer_in_service: float | None
    comparison: Comparison | None

    @property
    def verdict(self) -> str:
        """ "worse" or "better" if the interval of the difference on labeled clips says so; else "undecided"."""
        if self.comparison is None:
            return "undecided"
        low = self.comparison.interval.low
        high = self.comparison.interval.high
        return "worse" if low > 0 else "better" if high < 0 else "undecided"

    def plain(self) -> dict[str, Any]:
        """Returns plain values for `--json`."""
        return {"verdict": self.verdict, **dataclasses.asdict(self)}


def compare_in_shadow(
    root: Path | str, reference: str, captures: Path | str, *, labeled: Path | None = None, count: int = 500
) -> ShadowVerdict:
    """Lets a version hear captured clips.

    Args:
      root: the registry.
      reference: of the version, such as asr@candidate.
      labeled: a corpus that `collect_labels` wrote.
      count: most clips; the latest count.

    Raises:
      SettingsError, WorkError: the versions, their evaluations or the clips do not exist, or both are one model.
    """
    registry, version = resolve_version(root, reference)

    production = registry.resolve(PRODUCTION)
    if registry.event(version).digest == registry.event(production).digest:
        raise SettingsError(f"{reference} is what serves already; name another version")

    # Verified while it is copied: a damaged version must not be judged.
    recognizer = Recognizer(registry.intact_path(version), threads=1)
    store = CaptureStore(captures)

    # Clips of a version that was replaced under the same number would be another model's.
    digest = registry.event(production).digest
    clips = [item for item in store.clips(registry.model, production) if item.digest == digest]
    clips = sorted(clips, key=lambda item: (item.at, item.id))[-count:]

    if not clips and labeled is None:
        raise WorkError(f"{captures}: no clips of version {production} of {registry.model}, which is in service")

    # What was heard in service is on record; only the shadow hears again.
    transcripts = _hear_captures(recognizer, store, clips)
    estimated = _estimate(registry, version, [_of_transcript(item) for item in transcripts]) if clips else None
    before = _estimate(registry, production, [heard_clip(item) for item in clips]) if clips else None

    counts = _compare_labeled(recognizer, registry, version, production, labeled) if labeled else _NOT_LABELED
    return ShadowVerdict(
        registry.model, version, production, len(clips), _disagreements(clips, transcripts), estimated, before, *counts
    )


def _hear_captures(recognizer: Recognizer, store: CaptureStore, clips: Sequence[CapturedClip]) -> list[Transcript]:
    import soundfile

    from voxline.audio.decoding import resample

    # In batches of clips: memory does not grow with their number.
    transcripts: list[Transcript] = []
    for start in range(0, len(clips), _BATCH):
        waveforms = []
        for clip in clips[start : start + _BATCH]:
            samples, rate = soundfile.read(io.BytesIO(store.audio(clip)), dtype="float32")
            waveforms.append(resample(samples, rate, recognizer.sample_rate))
        transcripts += recognizer.recognize_waveforms(waveforms)
    return transcripts


def _of_transcript(transcript: Transcript) -> HeardClip:
    return HeardClip(len(transcript.text.split()), transcript.confidence)


def _estimate(registry: Registry, version: int, clips: Sequence[HeardClip]) -> float:
    # Each version is judged by its own test split: confidences of two models do not compare.
    judged = [clip for result in judged_results(registry, version) if (clip := clip_of_result(result)) is not None]
    return WerCurve.fit(judged).wer(clips)


def _disagreements(clips: Sequence[CapturedClip], transcripts: Sequence[Transcript]) -> list[Disagreement]:
    disagreements = []
    for clip, item in zip(clips, transcripts, strict=True):
        if clip.text != item.text:
            # Edits per word of the longer text: both directions give the same.
            (edits,) = count_word_edits([clip.text], [item.text])
            longest = max(len(clip.text.split()), len(item.text.split()), 1)
            sure = None if item.confidence is None else round(float(item.confidence), 4)
            disagreements.append(
                Disagreement(clip.id, clip.text, item.text, clip.confidence, sure, round(edits.errors / longest, 4))
            )

    # Both must be sure: a text that neither trusts says little of the versions.
    sureness = {
        item.id: min(item.confidence_in_service or 0.0, item.confidence_shadow or 0.0) for item in disagreements
    }
    return sorted(disagreements, key=lambda item: (-item.words * (0.1 + sureness[item.id]), item.id))


def _compare_labeled(
    recognizer: Recognizer, registry: Registry, version: int, production: int, corpus: Path
) -> tuple[int, int, float | None, float | None, Comparison | None]:
    """Clips, those that one version was trained on, the WERs of both versions, and the paired comparison.

    A version that was trained on a clip repeats its label, so only clips that both do not know show who is better.
    """
    if not (corpus / MANIFEST_FILE).is_file():
        raise SettingsError(f"{corpus}: no {MANIFEST_FILE} here; give the corpus that captures label wrote")

    # A clip that either version was trained on is left out for both.
    trained_ids = _trained_clips(registry, version) | _trained_clips(registry, production)
    every = read_manifest(corpus / MANIFEST_FILE)
    utterances = [utterance for utterance in every if utterance.id not in trained_ids]
    trained = len(every) - len(utterances)
    if not utterances:
        return 0, trained, None, None, None

    # [versions] of [utterances]: errors and words, on the same references.
    texts = [utterance.text for utterance in utterances]
    rates: list[list[SumAndWeight]] = []
    for model in (recognizer, Recognizer(registry.intact_path(production), threads=1)):
        transcripts: list[Transcript] = []
        for start in range(0, len(utterances), _BATCH):
            part = utterances[start : start + _BATCH]
            waveforms = [read_waveform(Path(utterance.audio_filepath), model.sample_rate) for utterance in part]
            transcripts += model.recognize_waveforms(waveforms)
        edits = count_word_edits(texts, [utterance.text for utterance in transcripts])
        rates.append([utterance.as_metric for utterance in edits])

    compared = Bootstrap().compare(rates[0], rates[1], [utterance.speaker for utterance in utterances])
    wers = [
        sum(utterance.sum for utterance in rate) / max(sum(utterance.weight for utterance in rate), 1) for rate in rates
    ]
    return len(utterances), trained, wers[0], wers[1], compared


def _trained_clips(registry: Registry, version: int) -> set[str]:
    """The ids of captured clips in a version's training data, where the name of a corpus may be in front of them."""
    file = registry.path(version) / TRAINED_ON
    if not file.is_file():
        return set()

    # A corpus of several corpora puts its name before the id.
    lines = read_training_data(file.read_bytes(), str(file)).utterances
    return {match[0] for line in lines if (match := _ID.search(str(line["id"])))}
