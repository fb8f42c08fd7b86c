"""validate's statistics by a Beam pipeline: what is found is what one process finds, and so is what is wrong."""

import shutil
from pathlib import Path

import pytest

from tests.validate.takes import SMALL, fit, written
from voxline.components.validate.beam import tally_manifest
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.components.validate.tally import ManifestTally
from voxline.errors import SettingsError, WorkError

RUNNERS = ["FnApiRunner", pytest.param("multi_process", marks=pytest.mark.slow)]
PIECE = 1_500
"""Bytes of a manifest, a few lines; some pieces hold the beginning of none."""


def by(runner: str, **changes: object) -> ValidateSettings:
    return ValidateSettings.of({**SMALL, "runner": runner, "beam_from_megabytes": 0, **changes})


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_pipeline_finds_what_one_process_finds(tmp_path: Path, runner: str) -> None:
    manifest = written(tmp_path / "corpus", fit(), rejects=1)
    alone = run(manifest, tmp_path / "alone", ValidateSettings.of(SMALL))
    spread = run(manifest, tmp_path / "spread", by(runner))
    assert spread.key == alone.key
    assert spread.counts == alone.counts
    for output in ("validation", "report"):
        assert spread.path(output).read_bytes() == alone.path(output).read_bytes()
    in_pieces = tally_manifest(manifest / "manifest.jsonl", by(runner), tmp_path / "spread", PIECE)
    assert in_pieces.to_json() == ManifestTally.read(manifest / "manifest.jsonl").to_json()
    assert list((tmp_path / "spread" / "tallies").iterdir()) == []


@pytest.mark.parametrize("changes", [{}, {"runner": RUNNERS[0], "beam_from_megabytes": 0}])
def test_a_manifest_whose_fingerprint_is_known_is_judged_as_before(tmp_path: Path, changes: dict[str, object]) -> None:
    manifest, settings = written(tmp_path / "corpus", fit(), rejects=1), ValidateSettings.of({**SMALL, **changes})
    first = run(manifest, tmp_path / "store", settings)
    before = {output: first.path(output).read_bytes() for output in ("validation", "report")}
    assert list((tmp_path / "store" / "fingerprints").glob("*.json"))
    shutil.rmtree(first.folder)
    again = run(manifest, tmp_path / "store", settings)
    assert (again.key, again.reused) == (first.key, False)
    assert {output: again.path(output).read_bytes() for output in before} == before


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_error_for_a_damaged_line_is_that_of_one_process(tmp_path: Path, runner: str) -> None:
    manifest = written(tmp_path / "corpus", fit()) / "manifest.jsonl"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([*lines[:30], "no JSON\n", *lines[30:]]))
    with pytest.raises(WorkError) as alone:
        ManifestTally.read(manifest)
    with pytest.raises(WorkError) as spread:
        tally_manifest(manifest, by(runner), tmp_path / "store", PIECE)
    assert str(spread.value) == str(alone.value)
    assert "manifest.jsonl:31: not a JSON line" in str(alone.value)


def test_a_small_manifest_is_read_without_beam(tmp_path: Path) -> None:
    manifest = written(tmp_path / "corpus", fit()) / "manifest.jsonl"
    assert len(tally_manifest(manifest, by("NoRunner", beam_from_megabytes=1), tmp_path / "store")) == 60


def test_the_runner_is_not_part_of_the_key(tmp_path: Path) -> None:
    manifest = written(tmp_path / "corpus", fit())
    run(manifest, tmp_path / "store", ValidateSettings.of(SMALL))
    assert run(manifest, tmp_path / "store", by("multi_process", workers=3, beam_options=["--x=1"])).reused


def test_a_runner_that_beam_does_not_know_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="validate: 'runner' is 'NoRunner'"):
        run(written(tmp_path / "corpus", fit()), tmp_path / "store", by("NoRunner"))
