"""Differences between two datasets, checked against a comparison of all rows in memory."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.publish.conftest import Extract
from voxline.audio.feature_settings import FeatureSettings
from voxline.components.publish.diff import DatasetDiff, count_changes, diff_datasets, feature_drift, format_word_diff
from voxline.components.publish.diff_report import utterance_lists
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.dataset import Dataset
from voxline.data.rows import ROWS_FILE, encode_row
from voxline.data.versions import DatasetVersions
from voxline.pipelines.cli.dataset_views import format_diff
from voxline.pipelines.cli.main import app
from voxline.store.hashing import hash_file
from voxline.text.alphabet import Alphabet

ROW = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["one", "one two", "two"]),
        "split": st.sampled_from(["train", "dev", "test"]),
        "speaker": st.sampled_from(["anna", "bob"]),
        "audio_hash": st.sampled_from(["a", "b"]),
    }
)
ROWS_OF = st.dictionaries(st.text("ab0é", min_size=1, max_size=3), ROW, max_size=8)


def dataset(folder: Path, rows: dict[str, dict[str, Any]]) -> Dataset:
    folder.mkdir()
    lines = [encode_row({"id": name, "duration": 1.0, **rows[name]}) for name in sorted(rows)]
    (folder / ROWS_FILE).write_text("".join(lines), encoding="utf-8")
    return Dataset(
        "k", "f", FeatureSettings(), Alphabet.from_name("english"), [], [], {}, {}, [], folder=folder,
        rows_hash=hash_file(folder / ROWS_FILE),
    )  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(before=ROWS_OF, after=ROWS_OF)
def test_merging_finds_what_a_full_comparison_finds(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        datasets = dataset(Path(name) / "a", before), dataset(Path(name) / "b", after)
        found = diff_datasets(*datasets)
        assert count_changes(*datasets) == found.counts()
    assert [line["id"] for line in found.added] == sorted(after.keys() - before.keys())
    assert [line["id"] for line in found.removed] == sorted(before.keys() - after.keys())
    both = sorted(before.keys() & after.keys())
    for key, kind in (
        ("text", found.text_changed),
        ("split", found.split_changed),
        ("speaker", found.speaker_changed),
        ("audio_hash", found.audio_changed),
    ):
        assert [one.id for one in kind] == [name for name in both if before[name][key] != after[name][key]]

    def test_set(rows: dict[str, dict[str, Any]]) -> set[tuple[str, str, str]]:
        return {(name, row["text"], row["audio_hash"]) for name, row in rows.items() if row["split"] == "test"}

    assert found.test_set_changed() == (test_set(before) != test_set(after))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("the cat sat", "the cat sat", "the cat sat"),
        ("the cat sat", "a cat sat down", "[-the-] {+a+} cat sat {+down+}"),
        ("one", "two three", "[-one-] {+two three+}"),
        ("", "one", "{+one+}"),
        ("ni3 hao3 ma5", "ni3 hao4 ma5", "ni3 [-hao3-] {+hao4+} ma5"),
        ("今天天气很好", "今天天气不好", "今天天气[-很-]{+不+}好"),
    ],
)
def test_texts_are_compared_word_by_word(before: str, after: str, said: str) -> None:
    assert format_word_diff(before, after) == said


def test_the_page_says_before_and_after_and_aligns_words_as_the_terminal_does(tmp_path: Path) -> None:
    row = {"split": "test", "speaker": "anna", "audio_hash": "a"}
    before = dataset(tmp_path / "a", {"u": {**row, "text": "the cat sat on a mat"}})
    after = dataset(tmp_path / "b", {"u": {**row, "text": "cat sat in a mat now"}})
    html = "".join(utterance_lists(diff_datasets(before, after)))
    assert '<span class="reference">before</span><span class="hypothesis">after</span>' in html
    marks = {kind: html.count(f'class="pair {kind}"') for kind in ("delete", "substitute", "insert")}
    assert marks == {"delete": 1, "substitute": 1, "insert": 1}
    shown = format_word_diff("the cat sat on a mat", "cat sat in a mat now")
    assert shown == "[-the-] cat sat [-on-] {+in+} a mat {+now+}"


def test_a_version_counts_its_changes_and_the_diff_lists_them(extracted: Extract, tmp_path: Path) -> None:
    store, datasets = tmp_path / "store", tmp_path / "datasets"
    first = publish(extracted(range(1, 18)), store, datasets, PublishSettings()).folder
    second = publish(extracted(range(15)), store, datasets, PublishSettings()).folder
    versions = DatasetVersions(datasets, "corpus")
    assert versions.info(1).changes == {}
    assert {kind: count for kind, count in versions.info(2).changes.items() if count} == {"added": 1, "removed": 3}
    lines = format_diff(str(first), str(second), limit=1)
    assert lines[0].startswith("1 added, 3 removed, 0 audio changed")
    assert "  u00  train  s0  one" in lines
    assert lines[lines.index("removed: 3") + 2] == "  … and 2 more"
    assert lines[-1].startswith("the test set is the same")
    assert format_diff(str(first), str(first), limit=1) == ["the same utterances, texts, audio, speakers and splits"]


def test_a_removed_speaker_is_listed(tmp_path: Path) -> None:
    row = {"text": "one", "split": "test", "audio_hash": "a"}
    before = dataset(tmp_path / "a", {"1": {**row, "speaker": "anna"}, "2": {**row, "speaker": "bob"}})
    after = dataset(tmp_path / "b", {"1": {**row, "speaker": "anna"}})
    found: DatasetDiff = diff_datasets(before, after)
    assert found.seconds_by_speaker() == {"bob": (1.0, 0.0)}
    assert found.test_set_changed()
    assert json.loads((after.folder / ROWS_FILE).read_text())["speaker"] == "anna"


def test_feature_drift_is_measured_in_standard_deviations(tmp_path: Path) -> None:
    row = {"text": "one", "split": "train", "speaker": "anna", "audio_hash": "a"}
    before, after = (dataset(tmp_path / name, {"1": row}) for name in "ab")
    before = dataclasses.replace(before, mean=[0.0, 10.0, 5.0], deviation=[1.0, 4.0, 0.0])
    after = dataclasses.replace(after, mean=[0.0, 9.0, 6.0], deviation=[1.0, 5.0, 1.0])
    found = feature_drift(before, after)
    assert found
    assert (found.mean_shift, found.deviation_ratio) == ([0.0, -0.25, 0.0], [1.0, 1.25, 1.0])
    description = "means shifted by at most -0.250 deviations (bin 1), deviations changed by at most +25.0% (bin 1)"
    assert found.describe() == f"{description}; that is a lot"
    assert feature_drift(before, before) is None
    assert feature_drift(before, dataclasses.replace(after, features=FeatureSettings(mels=8))) is None


def test_the_html_diff_shows_what_the_command_prints(extracted: Extract, tmp_path: Path) -> None:
    before, after = (Dataset.read(extracted(which)) for which in (range(1, 18), range(15)))
    page = tmp_path / "diff.html"
    result = CliRunner().invoke(app, ["diff", str(before.folder), str(after.folder), "--html", str(page)])
    assert result.exit_code == 0, result.output
    assert "features: means shifted by at most" in result.output
    html = page.read_text(encoding="utf-8")
    for said in ("Added: 1", "Removed: 3", "u00", "The test set is the same", "seconds more", "deviations"):
        assert said in html, said
