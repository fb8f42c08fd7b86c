"""Damaged shards: the next refresh makes their clips again, and versions that use them are whole again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from voxline.components.extract.settings import ExtractSettings
from voxline.components.extract.step import run
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.manifest import Utterance, write_manifest
from voxline.data.versions import DatasetVersions
from voxline.errors import WorkError
from voxline.store.step_cache import StepOutput
from voxline.training.batches import Batches

Corpus = Callable[..., list[Utterance]]
HOW = ExtractSettings.of({"features": {"mels": 8}, "shard_megabytes": 0.01})
AGAIN = r"run extract again \(`voxline run refresh` does\)"


def flip(file: Path, at: int, *, unseen: bool = False) -> None:
    """Changes one bit: like a failing disk, which leaves the file's times, or like a write."""
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    if unseen:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def refreshed(folder: Path, how: ExtractSettings = HOW) -> tuple[StepOutput, StepOutput]:
    dataset = run(folder / "converted", folder / "store", how)
    return dataset, publish(dataset.folder, folder / "store", folder / "datasets", PublishSettings(compact_below=0))


def read(folder: Path) -> list[bytes]:
    """All features of a dataset's training split."""
    return [batch.features.tobytes() for batch in Batches(Dataset.read(folder), "train", batch_size=4).epoch(0)]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "written to": lambda records: flip(records, -40),
    "cut short": cut,
    "gone": Path.unlink,
    "its sums written to": lambda records: flip(records.with_suffix(".npy"), -3),
    "its sums cut short": lambda records: cut(records.with_suffix(".npy")),
    "its sums gone": lambda records: records.with_suffix(".npy").unlink(),
    "its index gone": lambda records: (records.parent / "shard.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_made_again_and_its_version_is_whole_again(
    corpus: Corpus, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus(12)
    dataset, version = refreshed(tmp_path)
    expected = read(version.folder)
    DAMAGES[damage](Dataset.read(version.folder).files()[0])
    with pytest.raises(WorkError, match=AGAIN):
        Dataset.read(version.folder)
    again, same = refreshed(tmp_path)
    assert (again.reused, again.key, same.folder) == (False, dataset.key, version.folder)
    assert 0 < again.counts["extracted"] < 12
    assert same.reused
    assert read(version.folder) == expected
    assert capsys.readouterr().out.count("a shard is damaged, and its clips are made again: ") == 1


def test_damage_that_a_reader_reports_is_repaired_by_the_next_refresh(corpus: Corpus, tmp_path: Path) -> None:
    corpus(12)
    _, version = refreshed(tmp_path)
    expected = read(version.folder)
    flip(Dataset.read(version.folder).files()[-1], -40, unseen=True)
    for _ in range(2):  # the second time the note is found before reading
        with pytest.raises(WorkError, match=rf"tfrecord: damaged.* checksum .*{AGAIN}"):
            read(version.folder)
    again, same = refreshed(tmp_path)
    assert (again.reused, same.folder) == (False, version.folder)
    assert read(version.folder) == expected


def test_damaged_sums_are_found_when_they_are_read(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(12)
    before, _ = refreshed(tmp_path)
    for file in Dataset.read(before.folder).files():
        flip(file.with_suffix(".npy"), -3, unseen=True)
    write_manifest(tmp_path / "converted" / "manifest.jsonl", utterances[:-1])
    after = run(tmp_path / "converted", tmp_path / "store", HOW)
    fresh = run(tmp_path / "converted", tmp_path / "fresh", HOW)
    found, expected = (Dataset.read(work.folder) for work in (after, fresh))
    assert (found.mean, found.deviation) == (expected.mean, expected.deviation)
    assert read(after.folder) == read(fresh.folder)


def test_a_version_whose_shard_cannot_be_restored_is_replaced_with_a_message(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(12)
    _, first = refreshed(tmp_path)
    cut(Dataset.read(first.folder).files()[0])
    again = run(tmp_path / "converted", tmp_path / "store", HOW.model_copy(update={"shard_megabytes": 0.001}))
    second = publish(again.folder, tmp_path / "store", tmp_path / "datasets", PublishSettings(compact_below=0))
    assert (second.reused, second.folder.name) == (False, "2")
    assert len(list(Dataset.read(second.folder).rows())) == len(utterances)
    told = DatasetVersions(tmp_path / "datasets", "corpus").info(2)
    assert told.note.startswith("version 1 can no longer be read: ")
    with pytest.raises(WorkError, match=AGAIN):
        Dataset.read(first.folder)


def test_a_copied_store_is_verified_once(corpus: Corpus, tmp_path: Path) -> None:
    corpus(4)
    dataset, _ = refreshed(tmp_path)
    (records, *_) = Dataset.read(dataset.folder).files()
    os.utime(records)
    assert run(tmp_path / "converted", tmp_path / "store", HOW).reused
    assert (records.parent / "shard.json").stat().st_mtime_ns >= records.stat().st_mtime_ns


def test_a_version_without_rows_does_not_block_the_next(corpus: Corpus, tmp_path: Path) -> None:
    utterances = corpus(8)
    _, first = refreshed(tmp_path)
    (first.folder / "rows.jsonl").unlink()
    write_manifest(tmp_path / "converted" / "manifest.jsonl", utterances[:-1])
    _, second = refreshed(tmp_path)
    assert second.folder.name == "2"
    assert DatasetVersions(tmp_path / "datasets", "corpus").info(2).changes == {}


@pytest.mark.parametrize("speeds", [[1.0], [0.9, 1.0]])
def test_a_recording_that_comes_back_is_in_the_next_version(
    corpus: Corpus, tmp_path: Path, speeds: list[float]
) -> None:
    how = HOW.model_copy(update={"speeds": speeds, "max_reject_share": 0.5})
    absent, cut_short, *_ = corpus(12)
    refreshed(tmp_path, HOW.model_copy(update={"speeds": [1.0]}))
    for one in (absent, cut_short):
        shutil.move(one.audio_filepath, f"{one.audio_filepath}.kept")
    Path(cut_short.audio_filepath).write_bytes(Path(f"{cut_short.audio_filepath}.kept").read_bytes()[:-500])
    if speeds == [1.0]:
        shutil.rmtree(tmp_path / "store")
    before, _ = refreshed(tmp_path, how)
    assert before.counts["incomplete"] == 2
    for one in (absent, cut_short):
        shutil.move(f"{one.audio_filepath}.kept", one.audio_filepath)
    after, second = refreshed(tmp_path, how)
    assert (after.key, after.reused) == (before.key, False)
    assert (second.reused, "incomplete" in after.counts) == (False, False)
    fresh = run(tmp_path / "converted", tmp_path / "fresh", how)
    assert read(second.folder) == read(after.folder) == read(fresh.folder)
    assert [work.reused for work in refreshed(tmp_path, how)] == [True, True]
