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
    """What a version does on the clips that the one in service heard.

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
        low, high = self.comparison.interval.low, self.comparison.interval.high
        return "worse" if low > 0 else "better" if high < 0 else "undecided"

    def plain(self) -> dict[str, Any]:
        """For `--json`."""
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
    recognizer = Recognizer(registry.intact_path(version), threads=1)
    store, digest = CaptureStore(captures), registry.event(production).digest
    clips = [one for one in store.clips(registry.model, production) if one.digest == digest]
    clips = sorted(clips, key=lambda one: (one.at, one.id))[-count:]
    if not clips and labeled is None:
        raise WorkError(f"{captures}: no clips of version {production} of {registry.model}, which is in service")
    heard = _hear_captures(recognizer, store, clips)
    estimated = _estimate(registry, version, [_of_transcript(one) for one in heard]) if clips else None
    before = _estimate(registry, production, [heard_clip(one) for one in clips]) if clips else None
    counts = _compare_labeled(recognizer, registry, version, production, labeled) if labeled else _NOT_LABELED
    return ShadowVerdict(
        registry.model, version, production, len(clips), _disagreements(clips, heard), estimated, before, *counts
    )


def _hear_captures(recognizer: Recognizer, store: CaptureStore, clips: Sequence[CapturedClip]) -> list[Transcript]:
    import soundfile

    from voxline.audio.decoding import resample

    heard: list[Transcript] = []
    for start in range(0, len(clips), _BATCH):
        waveforms = []
        for clip in clips[start : start + _BATCH]:
            samples, rate = soundfile.read(io.BytesIO(store.audio(clip)), dtype="float32")
            waveforms.append(resample(samples, rate, recognizer.sample_rate))
        heard += recognizer.recognize_waveforms(waveforms)
    return heard


def _of_transcript(one: Transcript) -> HeardClip:
    return HeardClip(len(one.text.split()), one.confidence)


def _estimate(registry: Registry, version: int, clips: Sequence[HeardClip]) -> float:
    judged = [clip for one in judged_results(registry, version) if (clip := clip_of_result(one)) is not None]
    return WerCurve.fit(judged).wer(clips)


def _disagreements(clips: Sequence[CapturedClip], heard: Sequence[Transcript]) -> list[Disagreement]:
    found = []
    for clip, one in zip(clips, heard, strict=True):
        if clip.text != one.text:
            (edits,) = count_word_edits([clip.text], [one.text])
            longest = max(len(clip.text.split()), len(one.text.split()), 1)
            sure = None if one.confidence is None else round(float(one.confidence), 4)
            found.append(
                Disagreement(clip.id, clip.text, one.text, clip.confidence, sure, round(edits.errors / longest, 4))
            )
    sureness = {one.id: min(one.confidence_in_service or 0.0, one.confidence_shadow or 0.0) for one in found}
    return sorted(found, key=lambda one: (-one.words * (0.1 + sureness[one.id]), one.id))


def _compare_labeled(
    recognizer: Recognizer, registry: Registry, version: int, production: int, corpus: Path
) -> tuple[int, int, float | None, float | None, Comparison | None]:
    """Clips, those that one version was trained on, the WERs of both versions, and the paired comparison.

    A version that was trained on a clip repeats its label, so only clips that both do not know show who is better.
    """
    if not (corpus / MANIFEST_FILE).is_file():
        raise SettingsError(f"{corpus}: no {MANIFEST_FILE} here; give the corpus that captures label wrote")
    known = _trained_clips(registry, version) | _trained_clips(registry, production)
    every = read_manifest(corpus / MANIFEST_FILE)
    utterances = [one for one in every if one.id not in known]
    trained = len(every) - len(utterances)
    if not utterances:
        return 0, trained, None, None, None
    texts = [one.text for one in utterances]
    rates: list[list[SumAndWeight]] = []
    for model in (recognizer, Recognizer(registry.intact_path(production), threads=1)):
        heard: list[Transcript] = []
        for start in range(0, len(utterances), _BATCH):
            part = utterances[start : start + _BATCH]
            waveforms = [read_waveform(Path(one.audio_filepath), model.sample_rate) for one in part]
            heard += model.recognize_waveforms(waveforms)
        edits = count_word_edits(texts, [one.text for one in heard])
        rates.append([one.as_metric for one in edits])
    compared = Bootstrap().compare(rates[0], rates[1], [one.speaker for one in utterances])
    wers = [sum(one.sum for one in rate) / max(sum(one.weight for one in rate), 1) for rate in rates]
    return len(utterances), trained, wers[0], wers[1], compared


def _trained_clips(registry: Registry, version: int) -> set[str]:
    """The ids of captured clips in a version's training data, where the name of a corpus may be in front of them."""
    file = registry.path(version) / TRAINED_ON
    if not file.is_file():
        return set()
    lines = read_training_data(file.read_bytes(), str(file)).utterances
    return {found[0] for line in lines if (found := _ID.search(str(line["id"])))}
