"""How soon `voxline watch` names a shift, how often it alarms for nothing, and how far its error rate is off.

  python -m benchmarks.watch MODEL MANIFEST [--clips 200] [--draws 200]

The test split of the manifest is dealt into halves: one stands for the test split that the model was judged on, the
other one for what callers send. Its recordings are sent as they are, with noise, without the upper half of the band, or
more quietly, and so on; the truth is known. Prints a line for each, also with a curve that was fitted to the first half
under the other shifts too: what it would bring to hear degraded copies of the test split in advance.
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from voxline.audio.profile import audio_profile
from voxline.data.manifest import Utterance, read_manifest
from voxline.feedback.captures import CapturedClip
from voxline.feedback.watch import RATES, statistics_of_clips
from voxline.inference.recognizer import Recognizer
from voxline.inference.waveforms import read_waveform
from voxline.metrics.drift import find_shifts
from voxline.metrics.wer import count_word_edits
from voxline.metrics.wer_estimate import HeardClip, WerCurve, estimate_wer

Samples = np.ndarray


def _noise(samples: Samples, rate: int, random: np.random.Generator) -> Samples:
    noise = random.standard_normal(len(samples)).astype(np.float32)
    power = float(np.mean(samples**2)) / 10
    return np.clip(samples + noise * np.sqrt(power), -1, 1).astype(np.float32)


def _half_band(samples: Samples, rate: int, _: np.random.Generator) -> Samples:
    from scipy.signal import butter, sosfiltfilt

    return np.ascontiguousarray(sosfiltfilt(butter(8, 0.5, output="sos"), samples), np.float32)


def _babble(samples: Samples, rate: int, random: np.random.Generator) -> Samples:
    """Itself four times, backward and from elsewhere: as loud as it, with its spectrum."""
    others = sum(np.roll(samples[::-1], int(random.integers(len(samples)))) for _ in range(4))
    power = float(np.mean(samples**2)) / max(float(np.mean(others**2)), 1e-12) / 2
    return np.clip(samples + others * np.sqrt(power), -1, 1).astype(np.float32)


def _faster(samples: Samples, rate: int, _: np.random.Generator) -> Samples:
    return np.interp(np.arange(0, len(samples) - 1, 1.35), np.arange(len(samples)), samples).astype(np.float32)


def _reverberant(samples: Samples, rate: int, random: np.random.Generator) -> Samples:
    from scipy.signal import fftconvolve

    decay = np.exp(-6.9 * np.arange(round(0.8 * rate)) / (0.8 * rate))
    room = random.standard_normal(len(decay)) * decay
    room[0] = 4.0
    heard = fftconvolve(samples, room)[: len(samples)]
    return (heard * np.abs(samples).max() / max(np.abs(heard).max(), 1e-9)).astype(np.float32)


AS_THEY_ARE = "as they are"
SHIFTS: dict[str, Callable[[Samples, int, np.random.Generator], Samples]] = {
    AS_THEY_ARE: lambda samples, *_: samples,
    "noise at 10 dB": _noise,
    "half the band": _half_band,
    "12 dB more quietly": lambda samples, *_: samples / 4,
    "babble at 3 dB": _babble,
    "1.35 times as fast": _faster,
    "in a hall of 0.8 s": _reverberant,
}


def _hear(model: Recognizer, utterances: list[Utterance], shift: str) -> tuple[list[CapturedClip], list[HeardClip]]:
    random, rate = np.random.default_rng(0), model.sample_rate
    waveforms = [
        SHIFTS[shift](read_waveform(Path(one.audio_filepath), rate, one.offset, one.duration), rate, random)
        for one in utterances
    ]
    heard = model.recognize_waveforms(waveforms)
    edits = count_word_edits([one.text for one in utterances], [one.text for one in heard])
    captured, clips = [], []
    for one, waveform, transcript, edit in zip(utterances, waveforms, heard, edits, strict=True):
        profile = audio_profile(waveform, model.sample_rate)
        nowhere = (one.id, "asr", 1, "", "", "", "", transcript.seconds, transcript.text, transcript.confidence, [], "")
        captured.append(CapturedClip(*nowhere, **dataclasses.asdict(profile)))
        clips.append(
            HeardClip(len(transcript.text.split()), transcript.confidence, float(edit.errors), float(edit.length))
        )
    return captured, clips


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--clips", type=int, default=200, help="of a window of captures")
    parser.add_argument("--draws", type=int, default=200, help="of windows without a shift")
    chosen = parser.parse_args()
    utterances = [one for one in read_manifest(chosen.manifest) if one.split == "test"]
    order = np.random.default_rng(0).permutation(len(utterances))
    half = len(order) // 2
    model = Recognizer(chosen.model)
    old = [utterances[index] for index in order[:half]]
    sent = [utterances[index] for index in order[half:]]
    reference, judged = _hear(model, old, AS_THEY_ARE)
    before, speakers = statistics_of_clips(reference), [one.speaker for one in old]
    slices = [{"speaker": one.speaker, "words": str(len(one.text.split()))} for one in old]
    degraded = {shift: _hear(model, old, shift)[1] for shift in SHIFTS}
    off: dict[str, list[float]] = {"one curve": [], "fitted to the other shifts too": []}
    print(f"{len(old):,} test utterances, windows of {chosen.clips:,} of {len(sent):,} others")
    for shift in SHIFTS:
        captured, clips = _hear(model, sent, shift)
        window = captured[: chosen.clips]
        found = find_shifts(before, statistics_of_clips(window), speakers, rates=RATES)
        estimate = estimate_wer(judged, slices, clips[: chosen.clips])
        part = clips[: chosen.clips]
        actual = sum(one.errors for one in part) / sum(one.reference_words for one in part)
        names = ", ".join(one.name for one in found if one.drifted) or "nothing"
        print(
            f"{shift}: WER {actual:.1%}, estimated {estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%}); "
            f"drifted: {names}"
        )
        others = [one for kind in degraded if kind != shift for one in degraded[kind]]
        fitted = WerCurve.fit(others).wer(part)
        print(f"  fitted to the other shifts too: {fitted:.1%}")
        for name, value in zip(off, (estimate.value, fitted), strict=True):
            off[name].append(abs(value - actual))
        if shift == AS_THEY_ARE:
            tested = estimate.back_test
            print(f"  back-test: {len(tested.slices)} slices, {tested.mean_error * 100:.1f} points off on average")
            random, alarms = np.random.default_rng(1), 0
            for seed in range(chosen.draws):
                drawn = random.choice(len(captured), chosen.clips, replace=False)
                again = find_shifts(
                    before, statistics_of_clips([captured[index] for index in drawn]), speakers, rates=RATES, seed=seed,
                    permutations=500,
                )  # fmt: skip
                alarms += any(one.drifted for one in again)
            print(f"  false alarms: {alarms} of {chosen.draws} windows")
    print("; ".join(f"{name}: {100 * np.mean(values):.1f} points off on average" for name, values in off.items()))


if __name__ == "__main__":
    main()
