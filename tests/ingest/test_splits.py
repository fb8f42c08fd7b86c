"""Who is train, dev and test, and that those who stay keep their split when others come and go."""

import collections
import functools
import itertools
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from voxline.components.ingest.settings import CorpusSettings
from voxline.components.ingest.splits import assign_splits, hash_fraction, selection_threshold, within_limits
from voxline.components.ingest.staging import SplitKey
from voxline.errors import SettingsError

NAMES = st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=40)


def entry(id: str, split: str = "train", speaker: str = "") -> SplitKey:
    return SplitKey(id=id, speaker=speaker, split=split, source=f"{id}.txt:1")


def drawn_by_hash(names: set[str], share: float, salt: str, keep: int = 1) -> set[str]:
    last = selection_threshold(names, share, salt, keep)
    return {name for name in names if hash_fraction(name, salt) <= last}


@functools.cache
def anchors_of(salt: str) -> set[str]:
    """Somebody who is drawn, and somebody who is not, by any share from 0.01 to 0.99: then none has to be helped."""
    many = {f"name {number}" for number in range(2000)}
    return {min(drawn_by_hash(many, 0.01, salt)), min(many - drawn_by_hash(many, 0.99, salt))}


def splits(entries: list[SplitKey], **values: Any) -> dict[str, str]:
    found = assign_splits({one.split for one in entries}, lambda: entries, CorpusSettings.of(values, "corpus"))
    return {one.id: found.split_of(one) for one in entries}


@pytest.mark.slow
@given(NAMES, NAMES, st.floats(0.01, 0.99), st.sampled_from(["0 test", "0 dev", "7 dev"]))
def test_those_who_stay_keep_their_side_when_others_come_or_go(
    stay: set[str], others: set[str], share: float, salt: str
) -> None:
    anchors = anchors_of(salt)
    alone = drawn_by_hash(stay | anchors, share, salt)
    together = drawn_by_hash(stay | others | anchors, share, salt)
    assert together & (stay | anchors) == alone


@given(NAMES, st.floats(0.0001, 0.999))
def test_a_share_draws_at_least_one_and_never_all(names: set[str], share: float) -> None:
    drawn = drawn_by_hash(names, share, "0 test")
    assert drawn <= names
    assert len(drawn) >= 1 or len(names) == 1
    assert len(drawn) < len(names)


@given(NAMES, st.floats(0, 0.5), st.floats(0, 0.49), st.integers(0, 3))
def test_by_speaker_every_speaker_is_in_exactly_one_split(
    speakers: set[str], dev: float, test: float, seed: int
) -> None:
    entries = [entry(f"{speaker} {number}", speaker=speaker) for speaker in speakers for number in range(3)]
    out = splits(entries, split={"by": "speaker", "dev": dev, "test": test, "seed": seed})
    assert set(out) == {one.id for one in entries}
    sides = collections.defaultdict(set)
    for one in entries:
        sides[one.speaker].add(out[one.id])
    assert all(len(side) == 1 for side in sides.values())
    found = set(out.values())
    assert "train" in found
    assert "test" in found or not test or len(speakers) < 2
    assert "dev" in found or not dev or len(speakers) < 3


def test_splits_have_their_shares() -> None:
    entries = [entry(str(number)) for number in range(10_000)]
    counts = collections.Counter(splits(entries, split={"by": "utterance", "dev": 0.2, "test": 0.3}).values())
    assert abs(counts["test"] - 3000) < 200
    assert abs(counts["dev"] - 2000) < 200


@given(st.integers(1, 60), st.floats(0.01, 0.5), st.floats(0.01, 0.4), st.integers(0, 3))
def test_small_splits_by_utterance_have_a_minimum(count: int, test: float, dev: float, seed: int) -> None:
    entries = [entry(str(number)) for number in range(count)]
    out = splits(entries, split={"by": "utterance", "dev": dev, "test": test, "seed": seed})
    counts = collections.Counter(out.values())
    assert counts["train"]
    assert counts["test"] or count < 2
    assert counts["dev"] or count < 3
    assert counts["dev"] >= min(5, math.floor(dev * count), count - counts["test"] - 1)
    drawn = {str(number) for number in range(count) if hash_fraction(str(number), f"{seed} test") < test}
    if max(1, math.floor(test * count)) <= len(drawn) <= count - 2:
        assert counts["test"] == len(drawn)  # enough, so none is moved


def test_of_forty_utterances_both_small_splits_have_some() -> None:
    values = {"by": "utterance", "test": 0.2, "dev": 0.1}
    fewest = collections.Counter(dict.fromkeys(("train", "dev", "test"), 40))
    for corpus in range(200):
        entries = [entry(f"{corpus}/{number}.wav") for number in range(40)]
        fewest &= collections.Counter(splits(entries, split=values).values())
    assert fewest["test"] == 5
    assert fewest["dev"] == 4
    assert fewest["train"] > 15


@given(st.integers(10, 50), st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 20))
def test_as_a_small_corpus_grows_nothing_moves_between_train_and_test(count: int, more: list[int], seed: int) -> None:
    values = {"by": "utterance", "test": 0.2, "dev": 0.15, "seed": seed}
    settings = CorpusSettings.of({"split": values}, "corpus")
    names = [f"{number}.wav" for number in range(count)]
    held_out = {"test": 0.2, "dev": 0.15}
    assume(any(hash_fraction(name, f"{seed} {role}") < share for name in names for role, share in held_out.items()))
    ever: dict[str, set[str]] = collections.defaultdict(set)
    for size in itertools.accumulate([count, *more]):
        entries = [entry(f"{number}.wav") for number in range(size)]
        found = assign_splits({"train"}, lambda entries=entries: entries, settings)
        assert ("train", "test") not in found.filled
        for one in entries:
            ever[one.id].add(found.split_of(one))
    assert not [id for id, sides in ever.items() if sides >= {"train", "test"}]


def test_a_test_split_that_lacks_any_takes_one_from_train_and_says_so() -> None:
    entries = [entry("a"), entry("b")]
    settings = CorpusSettings.of({"split": {"by": "utterance", "test": 0.001, "dev": 0.001}}, "corpus")
    found = assign_splits({"train"}, lambda: entries, settings)
    assert found.filled == {("train", "test"): 1}
    assert sorted(map(found.split_of, entries)) == ["test", "train"]


def test_a_seed_decides_the_draw() -> None:
    entries = [entry(str(number)) for number in range(200)]
    zero, again, one = (splits(entries, split={"by": "utterance", "seed": seed}) for seed in (0, 0, 1))
    assert zero == again
    assert zero != one


def test_the_dev_share_does_not_change_test() -> None:
    entries = [entry(str(number)) for number in range(500)]
    few, many = (splits(entries, split={"by": "utterance", "test": 0.2, "dev": dev}) for dev in (0.01, 0.5))
    assert {id for id in few if few[id] == "test"} == {id for id in many if many[id] == "test"}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("train-clean-100", "train"),
        ("train-other-500", "train"),
        ("dev-clean-2", "dev"),
        ("DEV", "dev"),
        ("validation", "dev"),
        ("test-other", "test"),
        ("eval2000", "test"),
    ],
)
def test_the_usual_names_of_splits_are_known(name: str, ours: str) -> None:
    assert splits([entry("a", name)], split={"dev": 0}) == {"a": ours}


def test_dev_is_drawn_from_train_only_where_the_corpus_has_none() -> None:
    entries = [entry(str(number), speaker=str(number % 10)) for number in range(100)] + [entry("t", "test")]
    carved = splits(entries, split={"dev": 0.2})
    assert 5 < list(carved.values()).count("dev") < 40
    assert carved["t"] == "test"
    given_one = splits([*entries, entry("d", "dev")], split={"dev": 0.2})
    assert [id for id, split in given_one.items() if split == "dev"] == ["d"]
    by_speaker = splits(entries, split={"dev": 0.2, "dev_by": "speaker"})
    sides = {(one.speaker, by_speaker[one.id]) for one in entries if one.speaker}
    assert len(sides) == 10


def test_a_split_that_no_pattern_covers_is_refused_unless_it_is_left_out() -> None:
    entries = [entry("a", "train-clean-100"), entry("b", "dev-other"), entry("c", "extra")]
    with pytest.raises(SettingsError, match=r"covers the corpus' split 'extra'.*leave_out"):
        splits(entries)
    chosen = {"train": ["train-clean-100"], "dev": [], "test": [], "leave_out": ["*"]}
    assert splits(entries, splits=chosen, split={"dev": 0}) == {"a": "train", "b": "left_out", "c": "left_out"}


def test_a_split_that_two_patterns_cover_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'train-dev' is covered by train and by dev"):
        splits([entry("a", "train-dev")], splits={"dev": ["*dev"]})


def test_by_utterance_the_names_of_the_corpus_splits_do_not_matter() -> None:
    out = splits([entry("a", "strange"), entry("b", "test")], split={"by": "utterance", "test": 0, "dev": 0})
    assert out == {"a": "train", "b": "train"}


def test_an_utterance_without_speaker_cannot_be_split_by_speaker() -> None:
    with pytest.raises(SettingsError, match=r"name the speaker of b \(b.txt:1\).*utterance"):
        splits([entry("a", speaker="x"), entry("b")], split={"by": "speaker"})


def test_held_out_speakers_are_exactly_the_test_split() -> None:
    entries = [entry(f"{speaker}{number}", "test", speaker) for speaker in ("ann", "bob", "cat") for number in range(9)]
    out = splits(entries, split={"by": "speaker", "test_speakers": ["bob"], "dev": 0.3, "dev_by": "utterance"})
    assert {id for id, split in out.items() if split == "test"} == {f"bob{number}" for number in range(9)}
    with pytest.raises(SettingsError, match=r"no speaker 'bop'; did you mean 'bob'\?"):
        splits(entries, split={"by": "speaker", "test_speakers": ["bop"]})
    with pytest.raises(SettingsError, match="none is left to train on"):
        splits(entries, split={"by": "speaker", "test_speakers": ["ann", "bob", "cat"]})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"split": {"by": "speaker", "dev": 0.6, "test": 0.4}}, "leave nothing to train on"),
        ({"split": {"test_speakers": ["ann"]}}, 'set "by" to "speaker"'),
        ({"split": {"by": "gender"}}, "'corpus', 'speaker' or 'utterance'"),
        ({"format": "libri"}, "librispeech, ljspeech, thchs30, fsdd, manifest, csv, kaldi"),
        ({"splits": {"trian": ["a"]}}, "'splits.train'"),
        ({"max_reject_share": 1.5}, "max_reject_share"),
    ],
)
def test_an_invalid_setting_is_refused_with_what_is_accepted(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        CorpusSettings.of(values, "corpus")
    assert message in str(refused.value)


def limited(entries: list[SplitKey], **limits: int) -> dict[str, str]:
    """The splits of the utterances that the limits leave in."""
    settings = CorpusSettings.of({"split": {"by": "utterance", "test": 0.3, "dev": 0.2}, "limits": limits}, "corpus")
    assignment = assign_splits({"train"}, lambda: entries, settings)
    selects = within_limits(assignment, lambda: entries, settings)
    return {one.id: assignment.split_of(one) for one in entries if selects(one)}


def test_a_limit_keeps_that_many_of_its_split_and_moves_none_to_another() -> None:
    entries = [entry(f"u{number}") for number in range(300)]
    everything = limited(entries)
    few = limited(entries, train=20, test=7)
    counts = collections.Counter(everything.values())
    assert collections.Counter(few.values()) == {"train": 20, "test": 7, "dev": counts["dev"]}
    assert few.items() <= everything.items()
    assert limited(entries, train=1_000) == everything


@given(st.integers(1, 60), st.integers(0, 60))
def test_a_corpus_that_grows_keeps_what_a_limit_selected(limit: int, more: int) -> None:
    before = [entry(f"u{number}") for number in range(100)]
    after = [*before, *(entry(f"new{number}") for number in range(more))]
    selected, later = (
        {id for id, split in limited(entries, train=limit).items() if split == "train"} for entries in (before, after)
    )
    # No utterance comes in but a new one, so as many go out.
    assert {id for id in later - selected if not id.startswith("new")} <= {
        id for id, split in limited(before).items() if split != "train"
    }
    assert len(later) == min(limit, sum(split == "train" for split in limited(after).values()))


def test_a_limit_below_zero_is_refused_by_its_key() -> None:
    with pytest.raises(SettingsError, match=r"corpus.*limits\.test.*-1"):
        CorpusSettings.of({"limits": {"test": -1}}, "corpus")
