"""Recordings are cut in pauses, by their own noise; no sound that may be speech is left out."""

import asyncio
import importlib.util
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.errors import SettingsError
from voxline.inference.pauses import (
    LEVEL,
    OFF,
    SILERO,
    Cuts,
    LevelFinder,
    PauseFinder,
    SileroFinder,
    SpeechPause,
    cut_at_pauses,
    find_pauses,
    pause_finder,
)
from voxline.inference.streaming import LONGEST_SECONDS, PauseStream
from voxline.inference.transcript import Transcript
from voxline.serving.realtime import SegmentStream
from voxline.serving.session_stream import SessionStream

RATE = 16_000
SILERO_FILE = os.environ.get("VOXLINE_SILERO", "")
NO_SILERO = "no Silero VAD: pip install --no-deps silero-vad==6.2.3, or set VOXLINE_SILERO to its silero_vad.onnx"


def noise(seconds: float, db: float, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(round(seconds * RATE)) * 10 ** (db / 20)).astype(np.float32)


def speech(seconds: float, db: float = -20.0, seed: int = 0) -> np.ndarray:
    """Noise in syllables of 0.2 s, whose level goes up and down by 20 dB; in a room of -70 dB."""
    time = np.arange(round(seconds * RATE)) / RATE
    level = 10 ** (-0.5 * (1 - np.cos(2 * np.pi * time / 0.2)))
    return noise(seconds, db, seed) * level.astype(np.float32) + noise(seconds, -70, seed + 1)


def recording(*pieces: np.ndarray) -> np.ndarray:
    return np.concatenate(pieces)


def cut(samples: np.ndarray, cuts: Cuts) -> list[tuple[float, float]]:
    pauses, levels = find_pauses(samples, RATE, LevelFinder())
    return [(part.start, part.end) for part in cut_at_pauses(pauses, levels, len(samples) / RATE, cuts)]


@pytest.mark.parametrize("db", [-200.0, -75.0, -60.0, -50.0])
@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.0])
def test_pauses_of_silence_and_noise_are_found_where_they_are(db: float, seconds: float) -> None:
    samples = recording(speech(2.0), noise(seconds, db), speech(1.6, seed=5), noise(seconds, db), speech(2.4, seed=7))
    pauses, _ = find_pauses(samples, RATE, LevelFinder())
    assert [(round(pause.start, 1), round(pause.end, 1)) for pause in pauses] == [
        (2.0, round(2.0 + seconds, 1)),
        (round(3.6 + seconds, 1), round(3.6 + 2 * seconds, 1)),
    ]
    assert all(pause.steady for pause in pauses)


def test_a_long_recording_with_little_speech_is_cut_as_well() -> None:
    samples = recording(noise(120, -60), speech(1.0), noise(100, -60))
    ((start, end),) = cut(samples, Cuts(always=0.6, margin=0.2))
    assert (start, end) == (pytest.approx(119.9, abs=0.05), pytest.approx(121.1, abs=0.05))


def test_speech_from_far_away_is_heard_whole() -> None:
    """It is as quiet as a pause beside a near speaker, but not steady."""
    far = speech(2.0, db=-56, seed=3)
    samples = recording(speech(3.0), far, speech(3.0, seed=9)) + noise(8.0, -66, seed=6)
    pauses, _ = find_pauses(samples, RATE, LevelFinder())
    assert [(round(pause.start, 1), round(pause.end, 1), pause.steady) for pause in pauses] == [(3.0, 5.0, False)]
    parts = cut(samples, Cuts(always=0.6, longest=2.0, margin=0.2))
    assert (parts[0][0], parts[-1][1]) == (0.0, 8.0)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(parts))


def test_speech_in_loud_noise_has_no_pause() -> None:
    samples = recording(speech(2.0), noise(1.0, -90), speech(2.0, seed=3)) + noise(5.0, -32, seed=8)
    assert cut(samples, Cuts(always=0.6, margin=0.2)) == [(0.0, 5.0)]


def test_parts_keep_little_of_digital_silence() -> None:
    """A network that has heard none writes letters into it; what fades out before it is kept."""
    fading = noise(0.15, -60)
    for lead, kept in ((np.zeros(0, np.float32), 0.05), (fading, 0.15)):
        zeros = np.zeros(2 * RATE, np.float32)
        samples = recording(zeros, lead, speech(2.0), lead, zeros, lead, speech(2.0, seed=4), lead, zeros)
        spoken = 2.0 + 2 * len(lead) / RATE
        starts = [2.0, 4.0 + spoken]
        beyond = kept - len(lead) / RATE
        wanted = [(start - beyond, start + spoken + beyond) for start in starts]
        assert cut(samples, Cuts(always=0.6, margin=0.2)) == [pytest.approx(part, abs=0.02) for part in wanted]


@pytest.mark.parametrize("closure", [0.0, 0.05])
@pytest.mark.parametrize("seconds", [0.6, 2.0])
def test_weak_consonants_beside_a_pause_are_kept(closure: float, seconds: float) -> None:
    """The last "s" of "minutes" is nearer to a room's noise than to the vowels, and a stop is closed before it."""
    consonant = noise(0.15, -43, seed=4)
    word = [speech(2.0), noise(closure, -70), consonant]
    samples = recording(*word, noise(seconds, -70), *word[::-1])
    samples += noise(len(samples) / RATE, -52, seed=3)
    (_, end), (start, _) = cut(samples, Cuts(always=0.6, margin=0.2))
    spoken = 2.0 + closure + 0.15
    assert spoken <= end <= spoken + 0.15
    assert spoken + seconds - 0.15 <= start <= spoken + seconds


def test_weak_speech_beyond_the_middle_of_a_pause_is_kept() -> None:
    closure = np.zeros(round(0.09 * RATE), np.float32)
    weak = [piece for seed in (4, 5, 6) for piece in (closure, noise(0.08, -45, seed))]
    samples = recording(speech(2.0), *weak, noise(0.3, -70), speech(2.0, seed=5))
    samples += noise(len(samples) / RATE, -55, seed=9)[: len(samples)]
    spoken = 2.0 + sum(map(len, weak)) / RATE
    parts = cut(samples, Cuts(always=0.6, margin=0.2, shortest=0.3, longest=20.0))
    ends = [end for _, end in parts]
    starts = [start for start, _ in parts[1:]]
    assert all(end >= spoken or start == end for end, start in zip(ends, starts, strict=False))


def test_a_click_in_a_pause_is_no_part() -> None:
    silence = noise(2.0, -60)
    silence[RATE : RATE + 300] = 0.5
    parts = cut(recording(speech(2.0), silence, speech(2.0, seed=4)), Cuts(always=0.6, margin=0.2))
    assert [start for start, _ in parts] == pytest.approx([0.0, 3.95], abs=0.02)


def test_a_recording_without_a_pause_is_cut_at_its_quietest_place_with_context() -> None:
    samples = noise(50.0, -20)
    samples[round(14.9 * RATE) : round(15.1 * RATE)] *= 0.5
    pauses, levels = find_pauses(samples, RATE, LevelFinder())
    assert pauses == []
    first, *others = cut_at_pauses(pauses, levels, 50.0, Cuts(limit=20.0, context=1.0))
    assert (first.start, first.end, first.offset) == (0.0, pytest.approx(15.0, abs=0.02), 0.0)
    assert first.duration == pytest.approx(first.end + 1.0)
    assert others[0].offset == pytest.approx(first.end - 1.0)
    assert others[-1].end == 50.0


_SPANS = st.lists(st.tuples(st.floats(0.05, 4.0), st.floats(0.25, 4.0), st.booleans()), max_size=30)
_CUTS = st.builds(
    Cuts,
    always=st.floats(0.25, 3.0),
    longest=st.floats(1.0, 10.0),
    shortest=st.floats(0.0, 1.0),
    margin=st.one_of(st.floats(0.0, 0.5), st.just(float("inf"))),
    limit=st.floats(2.0, 30.0),
    context=st.floats(0.0, 1.0),
    packed=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(_SPANS, _CUTS, st.floats(0.1, 5.0))
def test_parts_are_in_order_and_leave_out_steady_pauses_alone(
    spans: Sequence[tuple[float, float, bool]], cuts: Cuts, rest: float
) -> None:
    pauses = []
    time = 0.0
    for spoken, quiet, steady in spans:
        pauses.append(SpeechPause(time + spoken, time + spoken + quiet, steady))
        time += spoken + quiet
    seconds = time + rest
    parts = cut_at_pauses(pauses, np.zeros(int(seconds / 0.005) + 1, np.float32), seconds, cuts)

    before = 0.0
    for part in parts:
        assert before - 1e-9 <= part.start < part.end <= seconds + 1e-9
        assert part.offset <= part.start
        assert part.offset + part.duration >= part.end - 1e-9
        if part.start > before + 1e-9:  # what no part has is within a steady pause
            assert any(
                pause.steady and pause.start <= before + 1e-9 and part.start <= pause.end + 1e-9 for pause in pauses
            )
        if cuts.limit and part.duration > cuts.limit + 2 * cuts.context + 1e-6:
            raise AssertionError("longer than the network may hear")
        before = part.end
    assert before >= seconds - 1e-9 or any(pause.steady and pause.end >= seconds - 0.01 for pause in pauses)


def test_settings_of_pauses_are_checked(tmp_path: Path) -> None:
    assert pause_finder(OFF) is None
    assert isinstance(pause_finder(LEVEL), LevelFinder)
    with pytest.raises(SettingsError, match=r"pauses is 'levels'; level, silero, off or the ONNX file"):
        pause_finder("levels")
    with pytest.raises(SettingsError, match=r"none\.onnx: no such file"):
        pause_finder(str(tmp_path / "none.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"no network")
    with pytest.raises(SettingsError, match=r"bad\.onnx: ONNX Runtime does not load it .* give Silero VAD"):
        pause_finder(str(tmp_path / "bad.onnx"))


@pytest.mark.skipif(importlib.util.find_spec("silero_vad") is not None, reason="the package silero-vad is installed")
def test_without_the_package_silero_says_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"pip install --no-deps silero-vad==6\.2\.3"):
        pause_finder(SILERO)


needs_silero = pytest.mark.skipif(not SILERO_FILE and importlib.util.find_spec("silero_vad") is None, reason=NO_SILERO)


@needs_silero
@pytest.mark.parametrize("rate", [RATE, 8_000])
def test_silero_hears_no_speech_in_noise(rate: int) -> None:
    finder = SileroFinder(Path(SILERO_FILE) if SILERO_FILE else None)
    (pause,), _ = find_pauses(noise(3.0, -30)[:: RATE // rate], rate, finder)
    assert (pause.start, pause.end) == (0.0, 3.0)


class Heard:
    """A recognizer that keeps what it hears, and a stream of it."""

    def __init__(self, endpoint_ms: float | None = 500.0, finder: PauseFinder | None = None) -> None:
        self.parts: list[np.ndarray] = []
        self.stream = PauseStream(self.recognize, RATE, finder or LevelFinder(), endpoint_ms)

    def recognize(self, samples: np.ndarray) -> Transcript:
        self.parts.append(samples)
        return Transcript(f"{len(self.parts)}", [], None, len(samples) / RATE)

    def segments(self, samples: np.ndarray, packet: int = 1600) -> list[Transcript]:
        ended = [
            segment
            for begin in range(0, len(samples), packet)
            for segment in self.stream.feed(samples[begin : begin + packet]).segments
        ]
        return [*ended, self.stream.finish()]


@pytest.mark.parametrize("db", [-200.0, -60.0, -50.0])
def test_a_stream_hears_each_utterance_whole_at_the_pause_behind_it(db: float) -> None:
    utterances = [speech(2.0), speech(0.6, seed=5), speech(3.4, seed=7)]
    quiet = [noise(1.2, db, seed) for seed in range(4)]
    samples = recording(*(part for pair in zip(quiet, utterances, strict=False) for part in pair), quiet[-1])
    heard = Heard()
    segments = heard.segments(samples)
    assert len(segments) == len(utterances) + 1, "what follows the last pause is the rest"
    assert len(heard.parts) == len(utterances)
    assert sum(round(segment.seconds * RATE) for segment in segments) == len(samples), "without a gap"
    for utterance, part in zip(utterances, heard.parts, strict=False):
        place = np.correlate(part, utterance[:1600], "valid").argmax()
        assert np.array_equal(part[place : place + len(utterance)], utterance)
        assert len(part) < len(utterance) + 1.3 * RATE


@given(packets=st.lists(st.integers(1, 40_000), min_size=1, max_size=20))
@settings(max_examples=10, deadline=None)
def test_equal_audio_gives_equal_segments_however_it_is_cut(packets: list[int]) -> None:
    samples = recording(noise(0.7, -60), speech(1.0), noise(0.8, -60), speech(0.9, seed=3), noise(1.0, -60))
    whole = Heard()
    expected = whole.segments(samples, len(samples))
    cut_otherwise = Heard()
    segments: list[Transcript] = []
    sizes = itertools.cycle(packets)
    begin = 0
    while begin < len(samples):
        size = next(sizes)
        segments += cut_otherwise.stream.feed(samples[begin : begin + size]).segments
        begin += size
    assert [*segments, cut_otherwise.stream.finish()] == expected
    assert all(np.array_equal(*pair) for pair in zip(whole.parts, cut_otherwise.parts, strict=True))


def test_without_an_endpoint_the_whole_recording_is_heard_at_its_end() -> None:
    samples = recording(noise(1.0, -60), speech(2.0), noise(2.0, -60), speech(1.0))
    heard = Heard(endpoint_ms=None)
    (transcript,) = heard.segments(samples)
    assert np.array_equal(heard.parts[0], samples)
    assert transcript.seconds == len(samples) / RATE


def test_what_never_pauses_is_heard_in_parts_without_a_gap() -> None:
    samples = speech(70.0)
    heard = Heard()
    segments = heard.segments(samples)
    assert len(segments) == 3
    assert np.array_equal(np.concatenate(heard.parts), samples)
    assert max(map(len, heard.parts)) <= LONGEST_SECONDS * RATE


@pytest.mark.parametrize(
    "samples",
    [
        noise(70.0, -40),
        recording(np.zeros(3 * RATE, np.float32), noise(20.0, -50)),
        recording(speech(2.0), noise(150.0, -60)),
    ],
    ids=["noise", "unmuted", "speech two minutes ago"],
)
def test_noise_is_no_speech_however_long_it_lasts(samples: np.ndarray) -> None:
    heard = Heard()
    segments = heard.segments(samples)
    assert len(heard.parts) == len(segments) - 1 <= 1
    assert sum(map(len, heard.parts)) < 4 * RATE


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100])
def test_speech_from_the_first_sample_on_is_known_before_its_first_pause(rate: int) -> None:
    talk = np.interp(np.arange(3 * rate) / rate, np.arange(3 * RATE) / RATE, speech(3.0)).astype(np.float32)
    stream = PauseStream(lambda samples: Transcript("", [], None, 0.0), rate, LevelFinder(), 500.0)
    assert stream.feed(talk[: round(0.8 * rate)]).speech_start == 0.0


def test_silence_is_neither_kept_nor_heard_and_speech_is_told_where_it_begins() -> None:
    heard = Heard()
    starts = []
    samples = recording(speech(1.0), noise(20.0, -60), speech(2.0, seed=2), noise(0.4, -60))
    for begin in range(0, len(samples), 800):
        starts.append(heard.stream.feed(samples[begin : begin + 800]).speech_start)
    begins = sorted({round(start, 2) for start in starts if start is not None})
    assert begins[-1] == pytest.approx(21.0, abs=0.1)
    assert len(heard.parts) == 1, "the second is not over"
    heard.stream.finish()
    assert len(heard.parts[1]) == pytest.approx(2.9 * RATE, abs=0.15 * RATE), "half a second of the silence before it"


def test_an_utterance_after_minutes_of_silence_is_captured_as_it_was_heard() -> None:
    heard = Heard()
    served = SimpleNamespace(version=3, digest="9f")
    kept: list[np.ndarray] = []
    session = SessionStream(cast(Any, served), heard.stream, run_at_once)

    def keep(version: int, digest: str, transcript: Transcript, samples: Any, began: float) -> str:
        assert began <= time.time(), "else a purge would not reach it"
        kept.append(samples)
        return f"clip-{len(kept)}"

    captured = SegmentStream("asr", session, cast(Any, keep))

    async def listen(samples: np.ndarray) -> None:
        for begin in range(0, len(samples), 1600):
            partial = await captured.feed(samples[begin : begin + 1600])
            for segment in partial.segments:
                assert captured.offer(segment, last=False)
            captured.forget_surplus()

    spoken = recording(noise(130.0, -60), speech(2.0), noise(20.0, -60, 1), speech(3.0, seed=2), noise(1.0, -60, 2))
    asyncio.run(listen(np.round(spoken * 32767).astype(np.int16)))
    assert len(kept) == 2
    for clip, part in zip(kept, heard.parts, strict=True):
        np.testing.assert_allclose(clip / 32768, part, atol=1e-6)


async def run_at_once(work: Callable[[], Any]) -> Any:
    return work()


def test_silence_at_the_end_is_given_to_no_network_which_might_write_words_into_it() -> None:
    heard = Heard()
    first, rest = heard.segments(recording(noise(1.0, -60), speech(1.0), noise(3.0, -60)))
    assert len(heard.parts) == 1
    assert (rest.text, rest.words) == ("", [])
    assert first.seconds + rest.seconds == pytest.approx(5.0)


@needs_silero
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_silero_hears_a_stream_as_it_hears_a_recording(rate: int) -> None:
    finder = SileroFinder(Path(SILERO_FILE) if SILERO_FILE else None)
    samples = np.concatenate([noise(0.7, -50), speech(1.3), noise(1.2, -50)])[: rate * 3]
    listen = finder.listener(rate)
    parts = np.concatenate([listen(part) for part in np.array_split(samples, 23)])
    whole = finder.measure(samples, rate)
    assert len(parts) > 0.9 * len(samples) / rate / SileroFinder.SECONDS
    # A resampler in parts begins and ends otherwise.
    assert np.abs(parts - whole[: len(parts)]).max() < (1e-6 if rate == 16_000 else 0.05)


@needs_silero
def test_silero_costs_a_stream_what_the_new_samples_cost() -> None:
    heard = Heard(finder=SileroFinder(Path(SILERO_FILE) if SILERO_FILE else None))
    seen: list[int] = []
    listen = heard.stream._listen
    assert listen

    def count(samples: np.ndarray) -> np.ndarray:
        seen.append(len(samples))
        return listen(samples)

    heard.stream._listen = count
    samples = speech(4.0)
    heard.segments(samples)
    assert sum(seen) == len(samples)
