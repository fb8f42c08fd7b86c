"""Where utterances go: bounded, mixed, and stable when the corpus changes."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.extract.plan import plan_shards, unfit
from components.extract.settings import ExtractSettings
from components.speech.errors import SettingsError
from components.speech.text import Alphabet
from components.speech.utterances import Reason, Utterance

SMALL = ExtractSettings(shard_megabytes=0.5)  # about eight utterances of two seconds


def utterance(number: int, **changes: object) -> Utterance:
    values = {"duration": 2.0, "text": "a word", "speaker": f"s{number // 50}", "audio_hash": f"{number:04}"}
    return Utterance(id=f"s{number // 50}-{number:04}", audio_filepath="u.wav", **{**values, **changes})  # type: ignore[arg-type]


def names(utterances: list[Utterance], how: ExtractSettings = SMALL) -> set[str]:
    return {plan.name(how) for plan in plan_shards(utterances, how)}


@settings(deadline=None, max_examples=50)
@given(
    durations=st.lists(st.floats(0.1, 30), max_size=200),
    megabytes=st.floats(0.01, 20),
    speeds=st.sampled_from([[1.0], [0.9, 1.0, 1.1]]),
)
def test_every_utterance_is_in_one_shard_of_each_speed_and_no_shard_is_too_large(
    durations: list[float], megabytes: float, speeds: list[float]
) -> None:
    how = ExtractSettings(shard_megabytes=megabytes, speeds=speeds)
    given_ = [utterance(n, duration=d, split=("train", "dev")[n % 2]) for n, d in enumerate(durations)]
    plans = list(plan_shards(given_, how))
    for split in ("train", "dev"):
        for speed in speeds if split == "train" else [1.0]:
            placed = [u.id for plan in plans if (plan.split, plan.speed) == (split, speed) for u in plan.utterances]
            assert sorted(placed) == sorted(u.id for u in given_ if u.split == split)
    assert all(plan.utterances for plan in plans)
    for plan in plans:
        size = sum(how.features.frames(round(u.duration * 16_000)) * 320 for u in plan.utterances)
        assert size <= megabytes * 1e6 or len(plan.utterances) == 1


def test_the_order_of_the_manifest_does_not_matter() -> None:
    forward = [utterance(n) for n in range(200)]
    assert names(forward) == names(forward[::-1])


def test_every_large_shard_holds_several_speakers() -> None:
    plans = list(plan_shards([utterance(n) for n in range(1_000)], ExtractSettings(shard_megabytes=4)))
    assert len(plans) > 10
    assert all(len({u.speaker for u in plan.utterances}) > 5 for plan in plans)


def test_one_more_changed_or_removed_utterance_touches_one_place() -> None:
    before = [utterance(n) for n in range(1_000)]
    kept = names(before)
    assert len(kept) > 100
    for after in (
        [*before, utterance(1_000)],
        before[:-1],
        [*before[:500], before[500].replace(text="another word"), *before[501:]],
        [*before[:500], before[500].replace(audio_hash="changed"), *before[501:]],
    ):
        assert len(names(after) - kept) <= 2
        assert len(kept - names(after)) <= 2


def test_what_makes_no_bytes_is_not_in_the_name() -> None:
    before = [utterance(n) for n in range(20)]
    moved = [dataclasses.replace(u, audio_filepath="elsewhere.wav", measured={"peak_db": -3.0}) for u in before]
    assert names(before) == names(moved)
    other_hands = ExtractSettings(shard_megabytes=0.5, runner="multi_process", workers=7, max_reject_share=0.5)
    assert names(before) == names(before, other_hands)


def test_what_makes_bytes_is_in_the_name() -> None:
    before = [utterance(n) for n in range(20)]
    for how in (
        ExtractSettings.of({"shard_megabytes": 0.5, "features": {"log_floor": 1e-6}}),
        ExtractSettings(shard_megabytes=0.5, alphabet="abcdorw e"),
    ):
        assert not names(before) & names(before, how)
    assert not names(before) & names([u.replace(speaker="another") for u in before])


def test_another_speed_leaves_the_shards_that_are_there() -> None:
    before = [utterance(n) for n in range(100)]
    assert names(before) < names(before, ExtractSettings(shard_megabytes=0.5, speeds=[0.9, 1.0]))


def test_what_cannot_be_labelled_is_rejected_by_its_reason() -> None:
    fit, rejects = unfit(
        [utterance(0), utterance(1, text=""), utterance(2, text="naïve"), utterance(0)], Alphabet.named("english")
    )
    assert [u.id for u in fit] == ["s0-0000"]
    assert [(r.id, r.reason) for r in rejects] == [
        ("s0-0001", Reason.TRANSCRIPT_EMPTY),
        ("s0-0002", Reason.OUTSIDE_ALPHABET),
        ("s0-0000", Reason.DUPLICATE_ID),
    ]
    assert "'ï'" in rejects[1].detail


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speeds": [0.9, 1.1]}, "'speeds' is .*1.0 among them"),
        ({"speeds": [1.0, 1.0]}, "'speeds' is .*each once"),
        ({"runner": "DirectRunner"}, "'runner' is 'DirectRunner'; it downloads"),
        ({"runner": "DaskRunner"}, "'runner' is 'DaskRunner'; it loses"),
        ({"alphabet": "aab"}, "'alphabet' is 'aab'; .*repeated: 'a'"),
        ({"features": {"fft_size": 100}}, r"'features\.fft_size' is 100"),
    ],
)
def test_impossible_settings_are_refused_by_their_key(values: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ExtractSettings.of(values, "extract")
