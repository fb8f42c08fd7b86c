"""`voxline datasets`: what a person sees of published versions."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from voxline.audio.feature_settings import FeatureSettings
from voxline.components.publish.settings import PublishSettings
from voxline.components.publish.step import run as publish
from voxline.data.testing import NewExample, write_dataset
from voxline.pipelines.cli.main import app
from voxline.text.alphabet import Alphabet

FEATURES = FeatureSettings(mels=8)


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    """Two versions of `commands`: of ten utterances in two shards, and of nine."""
    random = np.random.default_rng(0)
    spoken = [
        NewExample(
            f"u{n}", f"{'abc'[n % 3]} word", "dev" if n > 7 else "train", random.random((20, 8), np.float32), "anna"
        )
        for n in range(10)
    ]
    for count in (10, 9):
        folder = tmp_path / "store" / str(count)
        write_dataset(folder, spoken[:count], FEATURES, Alphabet.from_name("english"))
        publish(folder, tmp_path / "store", tmp_path / "datasets", PublishSettings(dataset="commands"))
    return tmp_path / "datasets"


def told(*arguments: str | Path, status: int = 0) -> list[str]:
    result = CliRunner().invoke(app, ["datasets", *map(str, arguments)])
    assert result.exit_code == status or result.exception, result.output
    return [str(result.exception)] if result.exception else result.output.splitlines()


def test_datasets_and_versions_are_listed_and_shown(datasets: Path) -> None:
    (line,) = told("list", "--datasets", datasets)
    assert line.startswith("commands  version 2  20")
    assert line.endswith("8 train, 1 dev  (1 removed)  (of 2 versions)")
    first, second = told("show", "commands", "--datasets", datasets)
    assert (first[:2], second[:2]) == ("  ", "▸ ")
    shown = "\n".join(told("show", "commands", "1", "--datasets", datasets))
    assert "dev          2 utterances, 0.00 h" in shown
    assert "shards       2, 0.0 MB, 100% live" in shown


def test_the_rows_of_a_version_are_printed_one_per_line(datasets: Path) -> None:
    lines = told("show", "commands", "1", "--rows", "--datasets", datasets)
    assert len(lines) == 10
    assert lines[0].split("\t") == ["train", "anna", "u0", "a word"]
    assert len(told("show", "commands", "--rows", "--datasets", datasets)) == 9


def test_nothing_is_compacted_without_dead_bytes(datasets: Path) -> None:
    assert told("compact", "commands", "--datasets", datasets) == [
        "commands: every shard of version 2 is at least 50% live; nothing to do"
    ]


def test_a_missing_name_is_reported_with_the_existing_ones(datasets: Path, tmp_path: Path) -> None:
    assert told("show", "digits", "--datasets", datasets) == [
        f"{datasets}: no dataset 'digits' here; the datasets are: commands"
    ]
    assert told("show", "commands", "7", "--datasets", datasets) == [
        f"{datasets}/commands: no version 7; existing: 1, 2"
    ]
    (absent,) = told("list", "--datasets", tmp_path / "absent")
    assert "absent: there are no datasets here; give the folder that refresh publishes to" in absent


def test_a_dry_run_lists_what_would_be_collected(datasets: Path, tmp_path: Path) -> None:
    arguments = ("--store", tmp_path / "store" / "10", "--datasets", datasets, "--grace-days", "0", "--dry-run")
    assert told("gc", *arguments) == [f"{tmp_path / 'store' / '10'}: 0 shards, 0.0 MB, would be deleted"]


def test_garbage_collection_refuses_a_folder_that_is_no_store_or_holds_no_datasets(
    datasets: Path, tmp_path: Path
) -> None:
    (line,) = told("gc", "--store", tmp_path, "--datasets", datasets)
    assert "this is no store" in line
    (line,) = told("gc", "--store", tmp_path / "store" / "10", "--datasets", tmp_path)
    assert "no dataset is published here" in line
