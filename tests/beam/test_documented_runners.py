"""The runners of docs/distributed.md: Beam knows each of their options, and Dataflow's client compiles its job."""

# Beam calls itself typed, and these are not:
# mypy: disable-error-code="no-untyped-call"
import operator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.runner import create_runner

from tests.conftest import ROOT
from voxline.beam.run import _options, map_with_beam
from voxline.components.extract.settings import ExtractSettings
from voxline.errors import WorkError


def documented(runner: str) -> ExtractSettings:
    """The settings of the page for this runner."""
    blocks = (ROOT / "docs/distributed.md").read_text(encoding="utf-8").split("\n\n")
    (block,) = (block for block in blocks if block.startswith("    extract:") and f"runner: {runner}" in block)
    return ExtractSettings.of(yaml.safe_load(block)["extract"])


@pytest.mark.parametrize("runner", ["FlinkRunner", "SparkRunner", "DataflowRunner"])
def test_beam_knows_each_option_of_the_page(runner: str) -> None:
    """It drops one that it does not know, with a warning."""
    settings = documented(runner)
    known = _options(settings).get_all_options(drop_default=True)
    options = [option.removeprefix("--").partition("=") for option in settings.beam_options]
    of_page = {name: value for name, _, value in options}
    assert {name: str(known.get(name)) for name in of_page} == of_page


def test_dataflow_accepts_the_options_and_misses_a_project() -> None:
    settings = documented("DataflowRunner")
    assert _refusals(settings) == []
    without = [option for option in settings.beam_options if "--project" not in option]
    assert any("project" in reason for reason in _refusals(settings.model_copy(update={"beam_options": without})))


def _refusals(settings: ExtractSettings) -> list[str]:
    # A dry run, for which Beam does not look the bucket up.
    dry = settings.model_copy(update={"beam_options": [*settings.beam_options, "--dry_run=True"]})
    refusals: list[str] = PipelineOptionsValidator(_options(dry), create_runner(settings.runner)).validate()
    return refusals


def test_dataflows_client_compiles_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run ends where the job would be sent, so its results are missed."""
    pytest.importorskip("google.cloud.dataflow", reason="google-cloud-dataflow-client is not installed")
    jobs: list[Any] = []
    run_pipeline = DataflowRunner.run_pipeline

    def noticed(self: DataflowRunner, *arguments: Any) -> Any:
        result = run_pipeline(self, *arguments)
        jobs.append(result.job)
        return result

    monkeypatch.setattr(DataflowRunner, "run_pipeline", noticed)
    settings = documented("DataflowRunner")
    settings.beam_options.append("--dry_run=True")
    with pytest.raises(WorkError, match="3 of 3 results are not in"):
        list(map_with_beam("negate", operator.neg, [1, 2, 3], settings, tmp_path))

    (job,) = jobs
    components = job.proto_pipeline.components
    (environment,) = components.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    assert b"europe-west4-docker.pkg.dev/my-project/voxline/data:1" in environment.payload
    names = {transform.unique_name for transform in components.transforms.values()}
    assert {"elements", "to all workers", "apply"} <= {name.partition("/")[0] for name in names}
    assert (job.google_cloud_options.project, job.google_cloud_options.region) == ("my-project", "europe-west4")
    assert job.root_staging_location == "gs://my-bucket/beam"
