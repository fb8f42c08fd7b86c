"""Training/serving skew: how far what was captured of a version is from the recordings that it was trained on.

`watch` asks whether the callers' audio is still like the test split. This asks whether the training had audio like
theirs at all, by the distances of TensorFlow Data Validation: both sides are measured alike, recording by recording,
and their distributions are compared.

A distance is never 0: 60 clips are some way from the 10,000 recordings that they were drawn from, and the clips of one
caller further, since a caller has a voice, a microphone and a room. So each feature is allowed its threshold and, on
top of it, what so many callers, drawn from the training's own speakers, are away in 99 of 100 draws.
"""

import dataclasses
import io
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from voxline.audio.profile import BAND_EDGES, audio_profile
from voxline.data.dataset import read_utterances
from voxline.data.manifest import Utterance
from voxline.errors import SettingsError, WorkError
from voxline.feedback.captures import CapturedClip, CaptureStore
from voxline.feedback.watch import MIN_CLIPS
from voxline.inference.waveforms import read_waveform
from voxline.metrics.divergence import divergence_of_numbers, fitting_buckets, largest_share_difference
from voxline.registry.models import resolve_version
from voxline.registry.registry import Registry
from voxline.registry.training_data import TRAINED_ON, read_training_data

TOKENS = "tokens"
"""The feature whose values are texts."""
BANDS = tuple(f"{low}-{high} Hz" for low, high in itertools.pairwise(BAND_EDGES))
UNITS = {
    "duration": "s", "labels": "letters", "speaking_rate": "letters/s", "level": "dB", "snr": "dB",
    "speech": "share", **dict.fromkeys(BANDS, "dB"),
}  # fmt: skip
"""Of the features that are numbers."""
SKEW_THRESHOLDS = {
    "duration": 0.1, "labels": 0.1, "speaking_rate": 0.1, "level": 0.2, "snr": 0.2, "speech": 0.2,
    **dict.fromkeys(BANDS, 0.2), TOKENS: 0.05,
}  # fmt: skip
"""Accepted distance of each feature beyond chance: bits, of tokens the difference between two shares. As the curated
schemas accept for drift."""

MOST_ALLOWED = 0.9
"""Distributions that hardly overlap are skewed, however few speakers the training has."""
_DRAWS = 200
_CHANCE = 0.99
_FRAME_SECONDS = 0.025
_SILENCE_DB = -60.0
_QUIET_DB = -40.0
_DECIMALS = 6
"""Of a number: between 0.7 / 0.07 and 1 / 0.1 there is no room for buckets."""
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclasses.dataclass(frozen=True)
class RecordingFeatures:
    """Features that both sides have of each recording, in columns.

    Attributes:
      numbers: by feature, `[recordings]`.
      tokens: the words of each text, in small letters.
      people: the speaker or caller of each; "" for one that nobody names.
    """

    numbers: dict[str, npt.NDArray[np.float64]]
    tokens: list[list[str]]
    people: list[str]

    def __len__(self) -> int:
        return len(self.tokens)

    def token_counts(self, rows: Sequence[int] | npt.NDArray[np.int64] | None = None) -> Counter[str]:
        """Counts the tokens of some recordings, with repetitions; None for all."""
        texts = self.tokens if rows is None else [self.tokens[row] for row in rows]
        return Counter(token for words in texts for token in words)


@dataclasses.dataclass(frozen=True)
class FeatureSkew:
    """The distance of one feature between training and serving.

    Attributes:
      measure: "Jensen-Shannon", in bits; "L-infinity", of tokens.
      allowed: the largest distance that is no skew: the threshold and `chance`.
      chance: what as many callers of the training's own speakers are away.
      training, serving: medians; NaN for tokens.
    """

    feature: str
    measure: Literal["Jensen-Shannon", "L-infinity"]
    distance: float
    allowed: float
    chance: float
    training: float
    serving: float
    skewed: bool


@dataclasses.dataclass(frozen=True)
class ServingSkew:
    """The distances of a version's captures from its training data.

    Attributes:
      measured_by: "TFDV 1.21.0", or "Voxline" where TFDV does not run.
      clips, recordings: that were measured, of serving and of training.
      trained_on: recordings of the training, of which `recordings` were measured.
      features: what skewed first; [] with too few clips.
      sides: training and serving, for a page.
    """

    model: str
    version: int
    measured_by: str
    clips: int
    recordings: int
    trained_on: int
    features: list[FeatureSkew]
    sides: tuple[RecordingFeatures, RecordingFeatures] | None = None

    @property
    def skewed(self) -> list[str]:
        return [feature.feature for feature in self.features if feature.skewed]

    def plain(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        shown = dataclasses.asdict(dataclasses.replace(self, sides=None))
        del shown["sides"]
        return {"skewed": self.skewed, **shown}


MeasureDistances = Callable[[RecordingFeatures, RecordingFeatures, Mapping[str, float]], dict[str, float]]
"""Takes training, serving, and what is allowed of each feature; returns the distances."""


def measure_skew(
    root: Path | str, reference: str, captures: Path | str, training: Path | str, *, since: str = "",
    thresholds: Mapping[str, float] | None = None, count: int = 2000, measured_by: str = "Voxline",
    measure: MeasureDistances | None = None,
) -> ServingSkew:  # fmt: skip
    """Compares the captures of a version with the recordings that it was trained on.

    Args:
      root: the registry.
      reference: NAME, NAME@candidate or NAME@7.
      training: the manifest that convert wrote for it, or the folder of its dataset's version; what the version was not
        trained on is left out.
      since: the earliest time, as `2026-11-23T18:00:00Z`.
      thresholds: by feature, instead of `SKEW_THRESHOLDS`.
      count: most recordings of each side that are measured, drawn at random; of clips the latest.
      measure: another measure of the same distances, named `measured_by`.

    Raises:
      SettingsError: a threshold is of no feature or out of range, or the version was trained on other recordings.
      WorkError: the version, the captures or a recording does not exist.
    """
    accepted = SKEW_THRESHOLDS | check_thresholds(thresholds or {})
    registry, version = resolve_version(root, reference)
    utterances = trained_utterances(registry, version, training)

    # A version number may have been another model before a registry was rebuilt.
    digest = registry.event(version).digest
    store = CaptureStore(captures)
    clips = [clip for clip in store.clips(registry.model, version, since) if clip.digest == digest]
    clips = sorted(clips, key=lambda clip: clip.at)[-count:]
    if len(clips) < MIN_CLIPS:
        return ServingSkew(registry.model, version, measured_by, len(clips), 0, len(utterances), [])

    # By chance, and the same ones each time: a manifest is often sorted by speaker.
    sample = utterances
    if len(utterances) > count:
        sample = random.Random(0).sample(utterances, count)
    served, rate = features_of_clips(store, clips)
    trained = features_of_utterances(sample, rate)

    # What is allowed comes first: TFDV takes it as the threshold of its comparator.
    compared = within_reach(trained, served)
    chance = chance_distances(*compared)
    allowed = {feature: min(accepted[feature] + chance[feature], MOST_ALLOWED) for feature in chance}
    distances = (measure or measure_distances)(*compared, allowed)
    skews = [
        FeatureSkew(
            feature, "L-infinity" if feature == TOKENS else "Jensen-Shannon", distance, allowed[feature],
            chance[feature], _median(trained, feature), _median(served, feature), distance > allowed[feature],
        )
        for feature, distance in distances.items()
    ]  # fmt: skip
    skews.sort(key=lambda skew: (not skew.skewed, -skew.distance / skew.allowed))
    return ServingSkew(
        registry.model, version, measured_by, len(clips), len(sample), len(utterances), skews, (trained, served)
    )


def check_thresholds(thresholds: Mapping[str, float]) -> dict[str, float]:
    """Returns thresholds as they are, if each is of a feature and above 0, 1 at most.

    Raises:
      SettingsError: names the feature and what is accepted.
    """
    for feature, threshold in thresholds.items():
        if feature not in SKEW_THRESHOLDS:
            raise SettingsError(f"--skew-threshold {feature}: no feature; accepted: {', '.join(SKEW_THRESHOLDS)}")
        if not 0 < threshold <= 1:
            unit = "a difference of shares" if feature == TOKENS else "bits"
            raise SettingsError(f"--skew-threshold {feature}={threshold:g}: above 0 to 1 is accepted ({unit})")
    return dict(thresholds)


def trained_utterances(registry: Registry, version: int, location: Path | str) -> list[Utterance]:
    """The utterances of a manifest or a dataset that a version was trained on, by the list in its folder.

    Raises:
      SettingsError: it was trained on none of them.
    """
    utterances = [utterance for utterance in read_utterances(location) if utterance.split == "train"]
    if not utterances:
        raise SettingsError(f"--train {location}: no utterances of the split train; give the data of the training")

    # A version of another tool, or of an early release, has no list: then the split is believed.
    file = registry.path(version) / TRAINED_ON
    if not file.is_file():
        return utterances
    listed = read_training_data(file.read_bytes(), str(file)).recordings()
    trained = [
        utterance for utterance in utterances if (utterance.audio_hash or utterance.id, utterance.offset) in listed
    ]
    if not trained:
        raise SettingsError(
            f"--train {location}: version {version} of {registry.model} was trained on none of these "
            f"{len(utterances):,} utterances; give the manifest that convert wrote for its training"
        )
    return trained


def features_of_utterances(utterances: Sequence[Utterance], rate: int) -> RecordingFeatures:
    """Measures recordings of a corpus at a sample rate, in Hz.

    Raises:
      WorkError: a recording does not exist or is damaged; names the utterance.
    """
    rows = []
    for utterance in utterances:
        try:
            waveform = read_waveform(Path(utterance.audio_filepath), rate, utterance.offset, utterance.duration)
        except WorkError as error:
            raise WorkError(
                f"--train: utterance {utterance.id}: {error}; give a manifest whose recordings are there"
            ) from None

        # As serving measures a clip before it keeps it.
        profile = audio_profile(waveform, rate)
        sound = (profile.level_db, profile.snr_db, speech_share(waveform, rate), profile.bands_db)
        rows.append((utterance.duration, utterance.text, *sound))
    return _columns(rows, [utterance.speaker for utterance in utterances])


def features_of_clips(store: CaptureStore, clips: Sequence[CapturedClip]) -> tuple[RecordingFeatures, int]:
    """Measures captured clips; returns their sample rate too, which is the model's.

    Raises:
      WorkError: a recording is damaged, has expired or was erased; names the clip.
    """
    import soundfile

    # Level, noise and spectrum are on record, measured as those of the corpus are.
    rows = []
    rate = 0
    for clip in clips:
        try:
            waveform, rate = soundfile.read(io.BytesIO(store.audio(clip)), dtype="float32")
        except soundfile.LibsndfileError as error:
            raise WorkError(
                f"{store.uri}: the recording of {clip.id} is damaged ({error.error_string}); remove it and its record"
            ) from None
        share = speech_share(waveform, rate)
        rows.append((clip.seconds, clip.text, clip.level_db, clip.snr_db, share, clip.bands_db))
    return _columns(rows, [clip.person for clip in clips]), rate


def speech_share(waveform: npt.NDArray[np.float32], rate: int) -> float:
    """The share of a recording's 25 ms that are neither 40 dB below its loudest nor 60 dB below full scale (RMS).

    Args:
      waveform: float32 `[samples]`, full scale 1.
      rate: Hz.

    >>> tone = np.sin(np.arange(16_000) / 4).astype(np.float32)
    >>> round(speech_share(np.concatenate([tone, 1e-4 * tone]), 16_000), 2)
    0.5
    """
    # [frames, samples of 25 ms]; the rest is left out, and a shorter recording is one frame.
    size = max(round(_FRAME_SECONDS * rate), 1)
    padded = np.pad(waveform, (0, max(size - len(waveform), 0)))
    frames = padded[: len(padded) // size * size].reshape(-1, size)

    # [frames] mean squares; a frame counts as speech above both floors.
    power = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / size
    floor = max(float(power.max()) * 10 ** (_QUIET_DB / 10), 10 ** (_SILENCE_DB / 10))
    return float(np.mean(power > floor))


def measure_distances(
    training: RecordingFeatures, serving: RecordingFeatures, allowed: Mapping[str, float]
) -> dict[str, float]:
    """The distance of each feature of `allowed`, as TFDV would measure it from all values."""
    buckets = fitting_buckets(min(len(training), len(serving)))
    return {
        feature: largest_share_difference(training.token_counts(), serving.token_counts())
        if feature == TOKENS
        else divergence_of_numbers(training.numbers[feature], serving.numbers[feature], buckets)
        for feature in allowed
    }


def within_reach(
    training: RecordingFeatures, serving: RecordingFeatures
) -> tuple[RecordingFeatures, RecordingFeatures]:
    """Both sides with their outliers brought near the training's values, and only the numbers that both have.

    A histogram's buckets are of equal width, so a single clip of digital silence, 80 dB from all others, would bring
    these into one bucket. Values beyond half the range of the training's inner 99% are moved to that end.
    """
    numbers: list[dict[str, npt.NDArray[np.float64]]] = [{}, {}]
    for feature in (feature for feature in training.numbers if feature in serving.numbers):
        low, high = np.quantile(training.numbers[feature], [0.005, 0.995])
        reach = max((high - low) / 2, 0.05 * max(abs(low), abs(high)), 1e-3)  # a constant has no range
        for side, clipped in zip((training, serving), numbers, strict=True):
            clipped[feature] = np.clip(side.numbers[feature], low - reach, high + reach).round(_DECIMALS)
    return dataclasses.replace(training, numbers=numbers[0]), dataclasses.replace(serving, numbers=numbers[1])


def chance_distances(training: RecordingFeatures, serving: RecordingFeatures) -> dict[str, float]:
    """The distance of each feature that 99 of 100 draws of callers from the training stay below.

    A draw has as many callers with as many clips each as serving has. Each is a speaker of the training.
    """
    buckets = fitting_buckets(min(len(training), len(serving)))
    random = np.random.default_rng(0)
    clips_by_caller = list(Counter(serving.people).values())

    # Recordings of each speaker; those that nobody names are one, from whom a caller may have any.
    speakers: dict[str, list[int]] = {}
    for row, speaker in enumerate(training.people):
        speakers.setdefault(speaker, []).append(row)
    groups = [np.array(rows) for rows in speakers.values()]

    # The 99th percentile of the distances of 200 draws, feature by feature.
    distances: dict[str, list[float]] = {feature: [] for feature in (*training.numbers, TOKENS)}
    for _ in range(_DRAWS):
        # [callers] the speaker that each is, then [clips] rows of the training
        speaker_of_caller = random.integers(len(groups), size=len(clips_by_caller))
        drawn = np.concatenate(
            [
                random.choice(groups[speaker], clips)
                for speaker, clips in zip(speaker_of_caller, clips_by_caller, strict=True)
            ]
        )

        # The training is a sample itself.
        again = random.integers(len(training), size=len(training))
        for feature, values in training.numbers.items():
            distances[feature].append(divergence_of_numbers(values[again], values[drawn], buckets))
        tokens = [training.token_counts(rows) for rows in (again, drawn)]
        distances[TOKENS].append(largest_share_difference(tokens[0], tokens[1]))
    return {feature: float(np.quantile(drawn, _CHANCE)) for feature, drawn in distances.items()}


def _columns(
    rows: Sequence[tuple[float, str, float, float, float, list[float]]], people: list[str]
) -> RecordingFeatures:
    # duration, text, level, SNR, share of speech, bands: by row, then by column
    letters = [sum(map(str.isalnum, row[1])) for row in rows]
    columns: dict[str, Sequence[float]] = {
        "duration": [row[0] for row in rows],
        "labels": letters,
        "speaking_rate": [count / max(row[0], 0.001) for count, row in zip(letters, rows, strict=True)],
        "level": [row[2] for row in rows],
        "snr": [row[3] for row in rows],
        "speech": [row[4] for row in rows],
    }
    # A model of a lower rate hears fewer bands.
    for band in range(min(len(row[5]) for row in rows)):
        columns[BANDS[band]] = [row[5][band] for row in rows]
    return RecordingFeatures(
        {name: np.round(np.array(values, float), _DECIMALS) for name, values in columns.items()},
        [_TOKEN.findall(row[1].casefold()) for row in rows],
        people,
    )


def _median(side: RecordingFeatures, feature: str) -> float:
    return math.nan if feature == TOKENS else float(np.median(side.numbers[feature]))
