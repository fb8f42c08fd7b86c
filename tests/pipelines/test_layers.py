"""Configs in layers: how they are merged, and which layer an error names."""

from pathlib import Path

import pytest

from voxline.errors import SettingsError
from voxline.pipelines.config.load import load_config

RUN = "name: small\ncorpus: {uri: recordings}\nextract: {speeds: [0.9, 1.0], features: {mels: 40}}\n"


def files(folder: Path, overlay: str) -> list[Path]:
    (folder / "team").mkdir()
    (folder / "run.yaml").write_text(RUN, encoding="utf-8")
    (folder / "team" / "cluster.yaml").write_text(overlay, encoding="utf-8")
    return [folder / "run.yaml", folder / "team" / "cluster.yaml"]


def test_mappings_are_merged_and_lists_are_replaced(tmp_path: Path) -> None:
    chosen = load_config(files(tmp_path, "extract: {speeds: [1.0], workers: 5}\n"))
    assert (chosen.extract.features.mels, chosen.extract.speeds, chosen.extract.workers) == (40, [1.0], 5)


def test_assignments_override_all_files(tmp_path: Path) -> None:
    assert load_config(files(tmp_path, "extract: {workers: 5}\n"), ["extract.workers=6"]).extract.workers == 6


def test_a_path_is_relative_to_the_file_that_gives_it(tmp_path: Path) -> None:
    chosen = load_config(files(tmp_path, "store: kept\n"), ["registry=models"])
    assert chosen.corpus.uri == str(tmp_path / "recordings")
    assert chosen.store == str(tmp_path / "team" / "kept")
    assert chosen.registry == str(Path.cwd() / "models")


def test_an_error_names_the_file_with_the_fault(tmp_path: Path) -> None:
    layers = files(tmp_path, "cluster: {steps: {train: {memory: much}}}\nextract: {features: {mells: 3}}\n")
    with pytest.raises(SettingsError) as refused:
        load_config(layers, ["convert.sample_rate=loud"])
    told = str(refused.value).splitlines()
    assert [line.partition(":")[0].replace(str(tmp_path), "") for line in told] == [
        "--set convert.sample_rate",
        "/team/cluster.yaml",
        "/team/cluster.yaml",
    ]


def test_a_missing_key_names_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("corpus: {uri: x}\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("train: {epochs: 3}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"a\.yaml \+ .*b\.yaml: 'name' is missing"):
        load_config([tmp_path / "a.yaml", tmp_path / "b.yaml"])
