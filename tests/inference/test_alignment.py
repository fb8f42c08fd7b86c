"""A long recording is cut by its text; what is not spoken and what is not written is named."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

import voxline
from tests.conftest import ROOT
from tests.tone_asr_model import RATE, WORDS, export_onnx_tones, render_words
from voxline.errors import SettingsError, WorkError
from voxline.inference import alignment, alignment_search
from voxline.inference.alignment import RecordingAlignment, align_recording
from voxline.inference.alignment_kernel import GapCosts, HeardFrames, best_gapped_path
from voxline.inference.alignment_search import Script, find_words
from voxline.inference.heard_recording import HeardRecording, ValuesFile
from voxline.inference.recognizer import Recognizer
from voxline.pipelines.cli.main import main
from voxline.text.public_tokenizer import TOKENIZER_JSON, PublicTokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx_tones(tmp_path_factory.mktemp("tones") / "model")


@pytest.fixture(scope="module")
def recognizer(model: Path) -> Recognizer:
    return Recognizer(model)


class Recording:
    """Lines with pauses between, of which the edges are known."""

    def __init__(self, seed: int, noise: float = 2e-3) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise
        self._parts: list[np.ndarray] = []
        self.edges: dict[int, tuple[float, float]] = {}

    @property
    def seconds(self) -> float:
        return sum(map(len, self._parts)) / RATE

    def pause(self, seconds: float) -> None:
        """Of whole fifths of a second: cut in the middle, it leaves the tones at multiples of their length."""
        self.hiss(round(seconds * 5) / 5, self._noise)

    def hiss(self, seconds: float, peak: float) -> None:
        self._parts.append(peak * self._random.uniform(-1, 1, round(seconds * RATE)).astype(np.float32))

    def say(self, text: str, line: int = 0) -> None:
        start = self.seconds
        self.say_words(text)
        if line:
            self.edges[line] = start, self.seconds
        self.pause(self._random.uniform(0.2, 0.9))

    def say_words(self, text: str) -> None:
        self._parts.append(render_words(text.split()))

    def write(self, file: Path) -> Path:
        soundfile.write(file, np.concatenate(self._parts), RATE)
        return file


def sentences(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(4, 12))) for _ in range(count)]


def furthest(found: RecordingAlignment, edges: dict[int, tuple[float, float]]) -> float:
    """Seconds from an edge to where it was found, at most."""
    assert [one.line for one in found.utterances] == list(edges)
    return max(
        abs(got - true)
        for one in found.utterances
        for got, true in zip((one.start, one.end), edges[one.line], strict=True)
    )


@pytest.mark.slow
def test_lines_are_found_with_their_edges(recognizer: Recognizer, tmp_path: Path) -> None:
    lines = sentences(80, seed=1)
    recording = Recording(seed=2)
    recording.pause(0.8)
    for number, line in enumerate(lines, 1):
        recording.say(line, number)
    found = align_recording(recognizer, recording.write(tmp_path / "a.flac"), [f"“{line.title()}!”" for line in lines])
    assert furthest(found, recording.edges) < 0.02
    assert [one.text for one in found.utterances] == [f"“{line.title()}!”" for line in lines]
    assert (found.missing, found.unwritten) == ([], [])
    assert found.seconds == pytest.approx(recording.seconds)
    assert [word.word for word in found.utterances[3].words] == lines[3].split()
    assert min(one.confidence for one in found.utterances) > 0.8


def test_missing_text_and_audio_without_text_are_named(recognizer: Recognizer, tmp_path: Path) -> None:
    lines = sentences(60, seed=3)
    recording = Recording(seed=4)
    for number, line in enumerate(lines, 1):
        if number == 30:
            recording.say("eight eight one one six two two six")
        if not 20 <= number <= 22:
            recording.say(line, number)
    found = align_recording(recognizer, recording.write(tmp_path / "a.wav"), lines)
    assert furthest(found, recording.edges) < 0.02
    assert [(one.line, one.text) for one in found.missing] == [(number, lines[number - 1]) for number in (20, 21, 22)]
    (extra,) = found.unwritten
    assert extra.hypothesis == "eight eight one one six two two six"
    assert recording.edges[29][1] < extra.start < extra.end < recording.edges[30][0]


@pytest.mark.parametrize("early", [True, False])
def test_an_edge_that_is_heard_beyond_a_pause_moves_back(
    early: bool, recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sentences(30, seed=11)
    recording = Recording(seed=12)
    recording.pause(0.8)
    for number, line in enumerate(lines, 1):
        recording.say(line, number)
    ends = np.cumsum([len(line.split()) for line in lines])[:-1]

    def find_words(*given: Any) -> alignment_search.WordPlaces:
        """A line begins in the last word of the line before, or ends in the first word of the next one."""
        places = alignment_search.find_words(*given)
        half = (places.last - places.first + 1) // 2
        if early:
            places.last[ends - 1] -= half[ends - 1]
            places.first[ends] = places.last[ends - 1] + 1
        else:
            places.first[ends] += half[ends]
            places.last[ends - 1] = places.first[ends] - 1
        return places

    monkeypatch.setattr(alignment, "find_words", find_words)
    found = align_recording(recognizer, recording.write(tmp_path / "a.flac"), lines)
    assert furthest(found, recording.edges) < 0.02


def test_lines_do_not_overlap_where_a_word_is_heard_from_before_a_pause_into_it(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause ends after that word, which its line may not leave out."""
    lines = sentences(30, seed=11)
    recording = Recording(seed=12)
    recording.pause(0.8)
    for line in lines:
        recording.say(line)
        recording.pause(0.6)
    ends = np.cumsum([len(line.split()) for line in lines])[:-1]

    def find_words(*given: Any) -> alignment_search.WordPlaces:
        places = alignment_search.find_words(*given)
        half = (places.last - places.first + 1) // 2
        places.last[ends] = places.last[ends - 1] + 5 * half[ends - 1]
        places.last[ends - 1] -= half[ends - 1]
        places.first[ends] = places.last[ends - 1] + 1
        return places

    monkeypatch.setattr(alignment, "find_words", find_words)
    found = align_recording(recognizer, recording.write(tmp_path / "a.flac"), lines).utterances
    assert [one.text for one in found] == lines
    assert min(other.start - one.end for one, other in itertools.pairwise(found)) > -0.001


def test_soft_sounds_are_told_from_noise_and_from_what_follows_a_sound(recognizer: Recognizer, tmp_path: Path) -> None:
    """In noise, a hiss of 4 dB above it belongs to the line; in silence, one of 40 dB below speech before it alone."""
    lines = sentences(30, seed=13)
    for noise, hiss, tail in ((0.02, 0.0317, True), (1e-5, 0.011, False)):
        recording = Recording(seed=14, noise=noise)
        recording.pause(0.8)
        edges = {}
        for number, line in enumerate(lines, 1):
            recording.hiss(0.1, hiss)
            start = recording.seconds - 0.1
            recording.say_words(line)
            end = recording.seconds
            recording.hiss(0.1, hiss)
            edges[number] = start, end + 0.1 * tail
            recording.pause(0.6)
        found = align_recording(recognizer, recording.write(tmp_path / "a.wav"), lines)
        assert furthest(found, edges) < 0.03, noise


def test_a_line_is_not_torn_for_words_of_something_else(recognizer: Recognizer, tmp_path: Path) -> None:
    """Where a line and audio without text begin alike, or end alike, its words are as probable there."""
    lines = ["one two three four", "five six seven eight eight", "three one six four two"]
    for number, extra in ((1, "five six three one one"), (2, "zero zero four seven eight eight")):
        recording = Recording(seed=15)
        for line, text in enumerate(lines):
            if line == number == 1:
                recording.say(extra)
            recording.say(text, line + 1)
            if line + 1 == number == 2:
                recording.say(extra)
        found = align_recording(recognizer, recording.write(tmp_path / "a.wav"), lines)
        assert [one.text for one in found.utterances] == lines
        assert furthest(found, recording.edges) < 0.02
        assert [one.hypothesis for one in found.unwritten] == [extra]


def test_a_line_that_is_partly_missing_is_what_remains_of_it(recognizer: Recognizer, tmp_path: Path) -> None:
    recording = Recording(seed=5)
    recording.say("one two three four five")
    recording.say("three three one seven")
    recording.say("two four six eight six")
    lines = [
        "one two three four five",
        "three three one seven six zero zero two one eight",
        "* * *",
        "two four six eight six",
    ]
    found = align_recording(recognizer, recording.write(tmp_path / "a.wav"), lines)
    assert [(one.line, one.text) for one in found.utterances] == [
        (1, lines[0]), (2, "three three one seven"), (4, lines[3]),
    ]  # fmt: skip
    assert [(one.line, one.text, one.why) for one in found.missing] == [
        (2, "six zero zero two one eight", "not heard"), (3, "* * *", "no word in it"),
    ]  # fmt: skip


def test_a_long_line_is_cut_at_its_pauses(recognizer: Recognizer, tmp_path: Path) -> None:
    recording = Recording(seed=6)
    for number, line in enumerate(("one two three", "four five", "six seven eight"), 1):
        recording.say(line, number)
        recording.pause(0.4)
    found = align_recording(
        recognizer, recording.write(tmp_path / "a.wav"), ["One two three, four five, six seven eight."], max_seconds=1.1
    )
    assert [one.text for one in found.utterances] == ["One two three,", "four five,", "six seven eight."]
    found.utterances.sort(key=lambda one: one.start)
    assert found.utterances[1].start == pytest.approx(recording.edges[2][0], abs=0.02)


def test_a_text_that_was_not_read_is_all_missing(
    recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(seed=7)
    for line in sentences(10, seed=8):
        recording.say(line)
    file = recording.write(tmp_path / "a.wav")
    lines = ["what a lovely morning it is", "and nobody counts"]
    for cells in (alignment_search.MAX_CELLS, 100):  # searched, or too much to search without an anchor
        monkeypatch.setattr(alignment_search, "MAX_CELLS", cells)
        found = align_recording(recognizer, file, lines)
        assert found.utterances == []
        assert [one.text for one in found.missing] == lines
        assert len(found.unwritten) == 1


def test_the_command_writes_a_manifest_that_can_be_read(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording(seed=10)
    recording.say("one two three", 1)
    recording.say("eight seven six", 3)
    recording.write(tmp_path / "talk é.wav")
    (tmp_path / "text").write_text(
        "\ufeffOne, two, three.\nfour zero four zero four zero\nEight, seven, six.\n", "utf-8"
    )
    command = ["align", str(tmp_path / "talk é.wav"), str(tmp_path / "text"), "--model", str(model), "-o"]
    with pytest.raises(SystemExit) as ended:
        main([*command, str(tmp_path / "out"), "--speaker", "ann"])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert "2 utterances" in printed.out
    assert "text:2: 'four zero four zero four zero': not heard; it would be after 0.2" in printed.err
    first, second = voxline.read_manifest(tmp_path / "out")
    assert (first.id, first.text, first.speaker) == ("talk é-00001", "One, two, three.", "ann")
    assert (second.text, second.extra["line"]) == ("Eight, seven, six.", 3)
    assert second.offset == pytest.approx(recording.edges[3][0], abs=0.02)
    samples = voxline.load_audio(second.audio_filepath, RATE, second.offset, second.duration)
    assert Recognizer(model).transcribe(samples, RATE) == "eight seven six"
    (reject,) = voxline.read_rejects(tmp_path / "out")
    assert (reject.id, str(reject.reason)) == ("talk é-line-2", "text_not_found")
    assert json.loads((tmp_path / "out" / "manifest.jsonl").read_text("utf-8").splitlines()[0])["confidence"] > 0.8


def test_a_soft_word_without_a_pause_is_no_pause(recognizer: Recognizer, tmp_path: Path) -> None:
    for words in (["six", "seven"], ["two", "eight", "three"]):
        soundfile.write(tmp_path / "a.wav", render_words(words), RATE)
        (one,) = align_recording(recognizer, tmp_path / "a.wav", [" ".join(words)]).utterances
        assert one.start < 0.05, words
        assert one.end > one.words[-1].start > 0.05, words


def test_a_folder_of_another_recording_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("six seven", "utf-8")
    for name in ("a.wav", "b.wav"):
        soundfile.write(tmp_path / name, render_words(["six", "seven"]), RATE)
    for name, status in (("a.wav", 0), ("a.wav", 0), ("b.wav", SettingsError("").exit_status)):
        with pytest.raises(SystemExit) as ended:
            main(["align", *map(str, (tmp_path / name, tmp_path / "text", "-o", tmp_path / "o", "--model", model))])
        assert ended.value.code == status
    assert "a.wav; give each recording a folder" in capsys.readouterr().err
    assert [one.id for one in voxline.read_manifest(tmp_path / "o")] == ["a-00001"]


def test_what_cannot_be_aligned_is_refused_in_words(recognizer: Recognizer, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"no audio")
    with pytest.raises(WorkError, match=r"a\.wav: cannot be aligned: "):
        align_recording(recognizer, tmp_path / "a.wav", ["one"])
    with pytest.raises(SettingsError, match="the text has no word"):
        align_recording(recognizer, tmp_path / "a.wav", ["…", ""])
    with pytest.raises(SettingsError, match="max_seconds is 0"):
        align_recording(recognizer, tmp_path / "a.wav", ["one"], max_seconds=0)


BLANK, COSTS = 2, GapCosts(open_audio=1.5, symbol=0.5, open_text=1.0, word=0.25, line=0.4)
State = tuple[int, int]
"""A word, and a place in it: -2 audio without text, -1 boundary, 0 first symbol, 1 blank, 2 second symbol, …"""


def test_words_of_pieces_that_begin_with_a_space_are_found(tmp_path: Path) -> None:
    """Two frames of each piece and a blank behind it, after half a second of something that is not in the text."""
    folder = ROOT / "tests" / "families" / "networks" / "hub" / "fastconformer"
    alphabet = PublicTokenizer.of(TOKENIZER_JSON, (folder / TOKENIZER_JSON).read_bytes(), 48)
    lines = ["the cat", "sat"]
    script = Script.of(lines, alphabet, str)
    assert [word.labels for word in script.words] == [alphabet.encode(word) for word in ("the", "cat", "sat")]

    labels = [label for word in script.words for label in word.labels]
    before = alphabet.encode("zoo moon")
    frames = [label for each in [*before, *labels] for label in (each, each, alphabet.blank)]
    values = np.log(0.98 * np.eye(alphabet.blank + 1)[frames] + 1e-4).astype(np.float32)
    with (tmp_path / "values").open("w+b") as file:
        file.write(values.tobytes())
        file.flush()
        times = 0.08 * np.arange(len(frames))
        best = values.argmax(axis=1).astype(np.int32)
        heard = HeardRecording(ValuesFile(file, alphabet.blank + 1), times, 0.08, best, np.zeros(1, np.float32), 9.0)
        places = find_words(script, heard, alphabet)
    ends = len(before) + np.cumsum([len(word.labels) for word in script.words])
    assert places.first.tolist() == (3 * np.append(len(before), ends[:-1])).tolist()
    assert places.last.tolist() == (3 * ends - 2).tolist()
    assert places.confidence.min() > 0.9


def position(words: list[list[int]], state: State) -> int | None:
    """Before which word a path is in a state; None: within one."""
    word, place = state
    return word if place < 0 else word + 1 if place == 2 * len(words[word]) - 2 else None


def skip(before: int, after: int) -> float:
    """Of words; the second of the text's words is on the line of the first."""
    within = COSTS.line * ((before == 1) + (after == 1))
    return COSTS.open_text + COSTS.word * (after - before) + within if after > before else 0.0


def cost(words: list[list[int]], before: State | None, state: State, joined: bool) -> float:
    """Of a step, infinite where there is none; `before` is None before the first frame."""
    (word, place), at = state, 0 if before is None else position(words, before)
    if before == state:
        return 0.0
    if before is not None and before[0] == word and place > before[1] >= 0:
        skips = place == before[1] + 2 and place % 2 == 0 and words[word][place // 2] != words[word][place // 2 - 1]
        return 0.0 if place == before[1] + 1 or skips else np.inf
    if at is None or word < at:
        return np.inf
    if place < 0:
        return skip(at, word) + (COSTS.open_audio + COSTS.line * (word == 1) if place == -2 else 0.0)
    if place or word != at:
        return np.inf
    apart = before is None or before[1] < 0 or (joined and words[before[0]][-1] != words[word][0])
    return 0.0 if apart else np.inf


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=2), min_size=1, max_size=2),
    st.integers(1, 4),
    st.booleans(),
)
def test_the_path_is_the_best_of_all(seed: int, words: list[list[int]], frames: int, joined: bool) -> None:
    random = np.random.default_rng(seed)
    values = np.log(random.dirichlet(np.full(3, 0.3), frames) + 1e-4).astype(np.float32)
    begins = random.random(frames) < 0.5
    states = [(word, place) for word, one in enumerate([*words, []]) for place in range(-2, max(2 * len(one) - 1, 0))]

    def score(path: Sequence[State]) -> float:
        total = 0.0
        for frame, ((word, place), before) in enumerate(zip(path, [None, *path], strict=False)):
            label = BLANK if place == -1 or place % 2 else words[word][place // 2] if place >= 0 else -1
            heard = values[frame, label] if label >= 0 else values[frame].max() - COSTS.symbol * begins[frame]
            total += float(heard) - cost(words, before, (word, place), joined)
            if total == -np.inf:
                return total
        at = position(words, path[-1])
        return -np.inf if at is None else total - skip(at, len(words))

    best = max(score(path) for path in itertools.product(states, repeat=frames))
    heard = HeardFrames(values, values.max(axis=1), np.ascontiguousarray(values[:, BLANK]), begins)
    labels, first = np.concatenate(words).astype(np.int32), np.cumsum([0, *map(len, words)]).astype(np.int32)
    within = np.arange(len(words) + 1) == 1
    path, word_of, place_of = best_gapped_path(heard, labels, first, within, BLANK, joined, COSTS)
    assert score([states[state] for state in path]) == pytest.approx(best, abs=1e-4)
    assert [states[index][0] for index in range(len(states))] == word_of.tolist()
    symbols = [(place >= 0 and place % 2 == 0, first[word] + place // 2) for word, place in states]
    assert place_of.tolist() == [number if spoken else -1 for spoken, number in symbols]
