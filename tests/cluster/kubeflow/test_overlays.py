"""Every config on every overlay: what goes together, what is refused, and how large a compiled file gets.

`make test-kubeflow` uploads the same files to a real server.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kubeflow.compiled import CONFIGS, OVERLAYS, REFUSED, accepted_runs, compile_run, compile_search
from voxline.errors import SettingsError
from voxline.pipelines.graphs import optional_steps, steps_until

ARGUMENT_BYTES = 128 * 1024
"""Linux' limit for one argument."""
WORKFLOW_BYTES = 1024 * 1024
"""etcd's limit for one object is 1.5 MiB; the status of the nodes needs the rest."""


def executors(text: bytes) -> dict[str, Any]:
    """The containers of a compiled pipeline, by the name of their executor."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    specification = next(iter(yaml.load_all(text, loader)))
    deployment = specification["deploymentSpec"]["executors"]
    return {name: executor["container"] for name, executor in deployment.items()}


@pytest.mark.parametrize("name", accepted_runs())
def test_a_config_compiles_on_an_overlay_with_a_container_for_each_step(name: str) -> None:
    config, overlay, settings = accepted_runs()[name]
    pipeline = compile_run(config, overlay, settings)
    containers = executors(pipeline.text)
    steps = {executor.removeprefix("exec-") for executor in containers}
    optional = steps & set(optional_steps("asr"))

    assert steps == set(steps_until(name.partition("-")[0], optional=optional))
    assert len(pipeline.text) < WORKFLOW_BYTES
    for container in containers.values():
        words = [*container["command"], *container["args"]]
        assert max(len(word.encode()) for word in words) < ARGUMENT_BYTES
    for value in pipeline.parameters.values():
        assert len(json.dumps(value).encode()) < ARGUMENT_BYTES


def test_a_search_with_the_most_trials_fits(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    compile_search(file)
    containers = executors(file.read_bytes())
    assert {"exec-trial", "exec-choose"} <= containers.keys()
    assert file.stat().st_size < WORKFLOW_BYTES


@pytest.mark.parametrize("pair", REFUSED, ids="-".join)
def test_a_config_is_refused_on_an_overlay_that_does_not_suit_it(pair: tuple[str, str]) -> None:
    files = itertools.product(CONFIGS, OVERLAYS)
    (config, overlay) = next(found for found in files if (found[0].stem, found[1].stem) == pair)
    with pytest.raises(SettingsError, match=REFUSED[pair]):
        compile_run(config, overlay)
