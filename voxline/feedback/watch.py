"""Compares what was captured of a version with the test split that it was judged on.

The evaluation in the registry has each test utterance's length, level, noise, spectrum, text, confidence and errors,
all measured as they are measured in service. It is of the version's own corpus, and the model did not train on it: the
confidences of training utterances would be too high.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voxline.audio.profile import BAND_EDGES
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import CapturedClip, CaptureStore
from voxline.metrics.drift import Shift, find_shifts
from voxline.metrics.evaluation import Evaluation, UtteranceResult
from voxline.metrics.wer_estimate import HeardClip, WerEstimate, clip_of_result, estimate_wer
from voxline.registry.models import resolve_version
from voxline.registry.registry import EVALUATION, Registry

MIN_CLIPS = 30
"""Clips of which something is said."""
MIN_ALPHA = 0.001
"""Less cannot be shown by the permutations of `find_shifts`: nothing would ever be an alarm."""
RATES = ("empty",)


@dataclasses.dataclass(frozen=True)
class Watched:
    """The figures of a version in its captures.

    Attributes:
      model, version: that heard them.
      clips: how many were compared.
      reference: utterances of the test split.
      shifts: of each statistic; [] with too few clips.
      wer: estimated, of the clips that were transcribed: silence has no words; None with too few clips.
      test_wer, test_low, test_high: of the test split, as it was judged.
    """

    model: str
    version: int
    clips: int
    reference: int
    shifts: list[Shift]
    wer: WerEstimate | None
    test_wer: float
    test_low: float
    test_high: float

    @property
    def drifted(self) -> list[str]:
        """The statistics that have drifted; `wer` if the estimate is certainly above that of the test split.

        Without a back-test the interval does not hold how far off the estimate is, so then it alarms nobody.
        """
        names = [shift.name for shift in self.shifts if shift.drifted]
        certain = self.wer is not None and self.wer.back_test.slices and self.wer.low > self.test_high
        return [*names, *(["wer"] if certain else [])]

    def plain(self) -> dict[str, Any]:
        """Returns plain values for `--json`."""
        status = "too few" if self.wer is None else "drifted" if self.drifted else "quiet"
        return {"status": status, "drifted": self.drifted, **dataclasses.asdict(self)}


def judged_results(registry: Registry, version: int) -> list[UtteranceResult]:
    """The test split of a version, utterance by utterance.

    Raises:
      WorkError: its evaluation is absent, or of a release that did not measure confidences and spectra.
    """
    evaluation = Evaluation.read(registry.path(version) / EVALUATION)

    if evaluation.info.family != "asr":
        raise SettingsError(f"{registry.uri}: version {version} is no recognizer; captures are of recognizers")
    if any("bands_db" not in result.details for result in evaluation.results):
        raise WorkError(
            f"{registry.uri}: version {version} was evaluated by an earlier release, without confidences and spectra; "
            "run the pipeline again with --force evaluate, and push it"
        )
    return evaluation.results


def compare_captures(
    root: Path | str, reference: str, captures: Path | str, *, since: str = "", alpha: float = 0.01
) -> Watched:
    """Compares the captures of a version with its test split.

    Args:
      root: the registry.
      reference: NAME, NAME@candidate or NAME@7.
      since: the earliest time, as `2026-11-23T18:00:00Z`.
      alpha: share of false alarms, over all statistics together.

    Raises:
      SettingsError, WorkError: the version, its evaluation, or the captures do not exist.
    """
    if not MIN_ALPHA <= alpha < 1:
        raise SettingsError(f"--alpha {alpha:g}: a share from {MIN_ALPHA:g} to less than 1 is accepted")
    registry, version = resolve_version(root, reference)
    results = judged_results(registry, version)

    # A version number may have been another model before a registry was rebuilt.
    digest = registry.event(version).digest
    clips = [value for value in CaptureStore(captures).clips(registry.model, version, since) if value.digest == digest]

    # An unknown end of the interval, as of a test split of one speaker, is taken to be the value itself.
    wer = Evaluation.read(registry.path(version) / EVALUATION).info.measured("wer")
    test_wer = math.nan if wer.value is None else wer.value
    test = [test_wer, *(test_wer if end is None else end for end in (wer.interval.low, wer.interval.high))]

    if len(clips) < MIN_CLIPS:
        return Watched(registry.model, version, len(clips), len(results), [], None, *test)
    shifts = find_shifts(
        statistics_of_results(results), statistics_of_clips(clips), [value.speaker for value in results],
        [value.person for value in clips], rates=RATES, alpha=alpha,
    )  # fmt: skip

    # The curve is fitted to the test split, and applied to clips that have words.
    judged = [clip for value in results if (clip := clip_of_result(value)) is not None]
    spoken = [heard_clip(value) for value in clips if not value.note] or [heard_clip(value) for value in clips]
    estimate = estimate_wer(judged, [value.slices for value in results], spoken)
    return Watched(registry.model, version, len(clips), len(results), shifts, estimate, *test)


def heard_clip(clip: CapturedClip) -> HeardClip:
    return HeardClip(len(clip.text.split()), clip.confidence)


def statistics_of_results(results: Sequence[UtteranceResult]) -> dict[str, list[float]]:
    """Returns by name the value of each utterance."""
    return _table(
        [
            (result.duration, result.details["level_db"], result.details["snr_db"], result.details["hypothesis"],
             result.details["confidence"], result.details["bands_db"])
            for result in results
        ]
    )  # fmt: skip


def statistics_of_clips(clips: Sequence[CapturedClip]) -> dict[str, list[float]]:
    """Like `statistics_of_results`."""
    return _table(
        [(clip.seconds, clip.level_db, clip.snr_db, clip.text, clip.confidence, clip.bands_db) for clip in clips]
    )


def _table(rows: Sequence[tuple[float, float, float, str, float | None, list[float]]]) -> dict[str, list[float]]:
    table = {
        "duration (s)": [row[0] for row in rows],
        "level (dB)": [row[1] for row in rows],
        "SNR (dB)": [row[2] for row in rows],
        "characters/s": [len(row[3]) / max(row[0], 0.001) for row in rows],
        "empty": [float(not row[3]) for row in rows],
        "confidence": [math.nan if row[4] is None else row[4] for row in rows],
    }

    # A recording of a lower rate has fewer bands: those that all have are compared.
    for band in range(min(len(row[5]) for row in rows)):
        low, high = BAND_EDGES[band : band + 2]
        table[f"{low}-{high} Hz (dB)"] = [row[5][band] for row in rows]
    return table
