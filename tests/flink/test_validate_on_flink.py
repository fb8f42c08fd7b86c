"""validate's statistics on a Flink session cluster: those of one process, byte by byte."""

from pathlib import Path

import pytest

from tests.flink.cluster import Cluster
from tests.validate.takes import SMALL, fit, written
from voxline.components.validate.beam import tally_manifest
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.components.validate.tally import ManifestTally

pytestmark = pytest.mark.timeout(1_800)


def test_two_task_managers_and_one_process_have_equal_results(tmp_path: Path) -> None:
    manifest = written(tmp_path / "corpus", fit(), rejects=1)
    alone = run(manifest, tmp_path / "alone", ValidateSettings.of(SMALL))
    with Cluster(tmp_path / "flink") as cluster:
        runner = {"runner": "FlinkRunner", "beam_options": cluster.beam_options(2), "beam_from_megabytes": 0}
        on_flink = ValidateSettings.of({**SMALL, **runner})
        spread = run(manifest, tmp_path / "spread", on_flink)
        lines = manifest / "manifest.jsonl"
        in_pieces = tally_manifest(lines, on_flink, tmp_path / "spread", range_bytes=2_000)  # a few lines each
        assert [job["state"] for job in cluster.jobs()] == ["FINISHED", "FINISHED"]
    assert in_pieces.to_json() == ManifestTally.read(lines).to_json()
    assert spread.key == alone.key
    assert spread.counts == alone.counts
    for output in ("validation", "report"):
        assert spread.path(output).read_bytes() == alone.path(output).read_bytes()
