"""The same search on a cluster, by Kubeflow Pipelines: a graph that prepares the data once, trains trials in parallel,
chooses the best one on dev, and takes it through evaluate and the gate, once.

The settings of the trials are fixed when the graph is compiled: those that `voxline search --method random` with the
same seed draws, or a grid. Data passes through the keyed store, so a trial that was made before is found in it.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from voxline.components.train.trials.component import TrialItem
from voxline.errors import SettingsError
from voxline.pipelines.cluster.compiler import compile_pipeline
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.load import load_config
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.kfp_graph import ParallelTrials
from voxline.pipelines.search.space import Space, with_settings
from voxline.pipelines.search.study import DEFAULT_TRIALS, Study
from voxline.pipelines.search.trials import trial_overlay

METHODS = ("random", "grid")
MAX_TRIALS = 200
MAX_BYTES = 100_000
"""Of all trials. A KFP server gives them to the driver of the loop as one argument, of 128 KiB at most on Linux."""


def compile_trials(
    config: RunConfig,
    space: Space,
    output: Path,
    *,
    metric: str,
    method: str = "random",
    trials: int = 0,
    jobs: int = 1,
    seed: int | None = None,
    kfp_version: tuple[int, ...] = (),
) -> int:
    """Writes the IR YAML of a search, for `kfp run create -f` or the UI.

    Args:
      trials: 0: 12, or the whole grid.
      jobs: trials at a time.
      seed: of random settings, refused for a grid; None: 1, as `voxline search` has it.

    Returns:
      How many trials the graph has.

    Raises:
      SettingsError: the search cannot be compiled so, or a trial's settings are not accepted.
    """
    if method not in METHODS:
        raise SettingsError(f"--method {method!r}: with --compile kfp, accepted: {', '.join(METHODS)}")
    if method == "grid" and seed is not None:
        raise SettingsError(f"--seed {seed}: it has no effect with --method grid, which has no random settings")

    # The graph has one component for a trial, and that is train.
    space.refuse_decoding("--compile kfp")
    if method == "random" and trials > MAX_TRIALS:
        raise SettingsError(f"{trials} trials: at most {MAX_TRIALS} are accepted with --compile kfp")
    drawn = grid(space, trials) if method == "grid" else _draw(config, space, trials, 1 if seed is None else seed)
    base = config.plain()["train"]
    items = tuple(_item(config, base, number, settings) for number, settings in enumerate(drawn))

    # Encoded twice, as the driver gets it: each item is a text of JSON, and so is their list.
    if (size := len(json.dumps(json.dumps(items)))) > MAX_BYTES:
        raise SettingsError(
            f"{len(items)} trials of {space.source} are {size:,} bytes, and at most {MAX_BYTES:,} are accepted with "
            "--compile kfp; give fewer --trials, or shorter choices"
        )

    trials_of_graph = ParallelTrials(items, json.dumps(base, ensure_ascii=False), jobs, metric, config.pipeline)
    compile_pipeline(config, output, kfp_version, trials=trials_of_graph)
    return len(items)


def grid(space: Space, trials: int = 0) -> list[Values]:
    """All combinations of a space of choices and whole numbers, the last setting varying fastest.

    >>> grid(Space({"train.batch_size": [8, 16], "train.epochs": {"integer": [1, 2]}}))[1]
    {'train.batch_size': 8, 'train.epochs': 2}

    Raises:
      SettingsError: a range has no end of values, or there are more combinations than `trials`.
    """
    if endless := [setting.key for setting in space.ranges if setting.kind in ("log", "linear")]:
        raise SettingsError(f"--method grid: {endless[0]}: give its values, as {endless[0]}: [0.001, 0.003, 0.01]")
    if 0 < trials < space.size or space.size > MAX_TRIALS:
        limit = trials or MAX_TRIALS
        raise SettingsError(f"--method grid: {space.source} has {space.size:,} combinations, more than {limit}")
    values = [
        setting.values if setting.kind == "choice" else range(setting.values[0], setting.values[1] + 1)
        for setting in space.ranges
    ]
    keys = [setting.key for setting in space.ranges]
    return [dict(zip(keys, combination, strict=True)) for combination in itertools.product(*values)]


def _draw(config: RunConfig, space: Space, trials: int, seed: int) -> list[Values]:
    # A study without a folder: nothing is trained here, so there is nothing to keep.
    epochs = int(get_key(config.plain(), "train.epochs"))
    study = Study(Path(), space, "random", epochs, seed, space.values_of(config))
    return study.draw(trials or DEFAULT_TRIALS)


def _item(config: RunConfig, base: Values, number: int, settings: Values) -> str:
    """The text that the component `trial` gets of a trial. Settings that the config refuses are refused here.

    Args:
      base: the config's section `train`.
    """
    epochs = int(settings.get("train.epochs", get_key(config.plain(), "train.epochs")))
    trial_config = load_config(with_settings(config, trial_overlay(config, settings, epochs)), pipeline=config.pipeline)
    item = TrialItem(trial=number, settings=settings, train=dict(_changes(base, trial_config.plain()["train"])))
    return json.dumps(msgspec.to_builtins(item), ensure_ascii=False)


def _changes(base: Values, other: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys at which a section differs, with the other one's values. One of other keys differs as a whole."""
    # Differences alone, because the items of all trials must fit into one argument (`MAX_BYTES`).
    for key, value in other.items():
        was = base[key]
        if isinstance(was, dict) and isinstance(value, dict) and was.keys() == value.keys():
            yield from _changes(was, value, f"{prefix}{key}.")
        elif was != value:
            yield f"{prefix}{key}", value
