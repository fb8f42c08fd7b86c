"""What needs no client of ML Metadata; tests/tfx/test_ml_metadata.py has the rest."""

import importlib.util
import itertools

import pytest

from tests.notify.conftest import MakeEvent
from voxline.errors import SettingsError
from voxline.notify.deliver import announce_end
from voxline.notify.ml_metadata import inputs_of
from voxline.notify.settings import NotifySettings
from voxline.pipelines.graphs import graph_of, pipeline_names, steps_by_config


@pytest.mark.parametrize("pipeline", pipeline_names())
def test_what_a_step_reads_is_what_the_graph_says(pipeline: str) -> None:
    choices = steps_by_config(pipeline)
    for count in range(len(choices) + 1):
        for chosen in itertools.combinations(choices, count):
            if {"dataset", "forecast"} <= set(chosen):
                continue  # a published version has no validation for a forecast to read
            graph = graph_of(pipeline, chosen)
            assert {step: set(inputs_of(step, graph)) for step in graph} == {
                step: set(inputs.values()) for step, inputs in graph.items()
            }


@pytest.mark.skipif(importlib.util.find_spec("ml_metadata") is not None, reason="ML Metadata's client is installed")
def test_without_the_client_one_line_says_how_to_install_it(
    make_event: MakeEvent, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = NotifySettings.of({"mlmd": {"uri": "sqlite:///tmp/unused.sqlite"}})
    assert announce_end(make_event, settings) == ["mlmd"]
    assert "notify.mlmd: not delivered: WorkError: ML Metadata's client cannot be imported" in capsys.readouterr().out


@pytest.mark.parametrize("uri", ["mysql://root@db/mlmd", "grpc://me:pass@host:8080", "grpc://host", "lineage.sqlite"])
def test_another_address_is_refused(uri: str) -> None:
    with pytest.raises(SettingsError, match=r"mlmd\.uri"):
        NotifySettings.of({"mlmd": {"uri": uri}})
