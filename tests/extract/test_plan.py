"""Planning of shards: each clip once, in mixed shards of bounded size; and utterances that cannot be labelled."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxline.components.extract.manifest_scan import clip_of_line, scan_manifest
from voxline.components.extract.plan import ShardTask, plan_shards
from voxline.components.extract.settings import ExtractSettings
from voxline.data.manifest import Utterance, read_manifest, write_manifest
from voxline.errors import SettingsError
from voxline.rejects import Reason, Reject

SMALL = ExtractSettings(shard_megabytes=0.5)  # about eight utterances of two seconds


def utterance(number: int, **changes: object) -> Utterance:
    values = {"duration": 2.0, "text": "a word", "speaker": f"s{number // 50}", "audio_hash": f"{number:04}"}
    return Utterance(id=f"s{number // 50}-{number:04}", audio_filepath="u.wav", **{**values, **changes})  # type: ignore[arg-type]


def planned(
    utterances: list[Utterance], how: ExtractSettings
) -> tuple[list[tuple[ShardTask, list[Utterance]]], list[Reject]]:
    """The tasks for an empty pool, each with its utterances; and the rejects."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_manifest(folder / "manifest.jsonl", utterances)
        intake = scan_manifest(folder, how, folder, folder / "store")
        tasks = plan_shards(intake, intake.clips != b"", how, folder)
        return [(task, read_manifest(task.manifest)) for task in tasks], intake.rejects


@settings(deadline=None, max_examples=30)
@given(
    durations=st.lists(st.floats(0.1, 30), max_size=60),
    megabytes=st.floats(0.01, 20),
    speeds=st.sampled_from([[1.0], [0.9, 1.0, 1.1]]),
)
def test_every_clip_is_in_one_shard_and_no_shard_is_too_large(
    durations: list[float], megabytes: float, speeds: list[float]
) -> None:
    how = ExtractSettings(shard_megabytes=megabytes, speeds=speeds)
    given_ = [utterance(n, duration=d, split=("train", "dev")[n % 2]) for n, d in enumerate(durations)]
    tasks, _ = planned(given_, how)
    wanted = [(u.id, speed) for u in given_ for speed in (speeds if u.split == "train" else [1.0])]
    assert sorted((u.id, task.speed) for task, members in tasks for u in members) == sorted(wanted)
    for task, members in tasks:
        size = sum(how.features.count_frames(int(u.duration / task.speed * 16_000)) * 320 for u in members)
        assert size <= megabytes * 1e6 or len(members) == 1
        assert task.bytes == pytest.approx(size, abs=1)
        assert len({u.split for u in members}) == 1


def test_the_order_of_the_manifest_does_not_matter() -> None:
    forward = [utterance(n) for n in range(200)]
    one, other = planned(forward, SMALL)[0], planned(forward[::-1], SMALL)[0]
    assert [task.shard for task, _ in one] == [task.shard for task, _ in other]


def test_every_large_shard_holds_several_speakers() -> None:
    tasks, _ = planned([utterance(n) for n in range(1_000)], ExtractSettings(shard_megabytes=4))
    assert len(tasks) > 10
    assert all(len({u.speaker for u in members}) > 5 for _, members in tasks[:-1])


def test_utterances_of_one_recording_share_its_clip() -> None:
    tasks, _ = planned([utterance(n, audio_hash="one") for n in range(20)], SMALL)
    assert [len(members) for _, members in tasks] == [1]


def test_a_clip_is_named_by_its_audio_and_speed_alone() -> None:
    one = utterance(0).as_line()
    for same in (
        {"text": "another"},
        {"speaker": "s9"},
        {"split": "dev"},
        {"id": "x"},
        {"measured": {"peak_db": -3.0}},
    ):
        assert clip_of_line({**one, **same}, 1.0) == clip_of_line(one, 1.0)
    for other in ({"audio_hash": "ff"}, {"duration": 2.5}, {"offset": 0.5}):
        assert clip_of_line({**one, **other}, 1.0) != clip_of_line(one, 1.0)
    assert clip_of_line(one, 0.9) != clip_of_line(one, 1.0)


def test_runner_and_shard_size_are_not_part_of_the_key() -> None:
    other_hands = ExtractSettings(shard_megabytes=0.5, beam_from_megabytes=0, runner="multi_process", workers=7)
    assert other_hands.key_values() == ExtractSettings().key_values()
    assert ExtractSettings(alphabet="abcdorw e").key_values() != ExtractSettings().key_values()


def test_utterances_that_cannot_be_labelled_are_rejected_with_a_reason() -> None:
    tasks, rejects = planned(
        [utterance(0), utterance(1, text=""), utterance(2, text="naïve"), utterance(0)], ExtractSettings()
    )
    assert [u.id for _, members in tasks for u in members] == ["s0-0000"]
    assert [(r.id, r.reason) for r in rejects] == [
        ("s0-0001", Reason.TRANSCRIPT_EMPTY),
        ("s0-0002", Reason.OUTSIDE_ALPHABET),
        ("s0-0000", Reason.DUPLICATE_ID),
    ]
    assert "'ï'" in rejects[1].detail


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speeds": [0.9, 1.1]}, "'speeds' is .*including 1.0"),
        ({"speeds": [1.0, 1.0]}, "'speeds' is .*different numbers"),
        ({"runner": "DirectRunner"}, "'runner' is 'DirectRunner'; it downloads"),
        ({"runner": "DaskRunner"}, "'runner' is 'DaskRunner'; it silently loses"),
        ({"alphabet": "aab"}, "'alphabet' is 'aab'; .*repeated: 'a'"),
        ({"features": {"fft_size": 100}}, r"'features\.fft_size' is 100"),
    ],
)
def test_impossible_settings_are_refused_by_their_key(values: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ExtractSettings.of(values, "extract")
