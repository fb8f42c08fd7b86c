"""From a config to the arguments of a pipeline: by name, so that no list has to be kept.

A pipeline parameter `train_epochs` is the key `epochs` of the section `train`, `train_model_units` its
`model.units`; `train_settings` is a JSON text of all the rest of that section; a parameter without a
section is a key of the top level.
"""

import json
from typing import Any

REST = "settings"

Values = dict[str, Any]


def pipeline_arguments(values: Values, parameters: list[str]) -> Values:
    """An argument for each named parameter.

    Args:
      values: a config as JSON values.
      parameters: the names that a pipeline takes.

    Raises:
      KeyError: a parameter names no key of the config; the graph and the settings have come apart.

    >>> config = {"name": "demo", "train": {"epochs": 5, "seed": 1, "model": {"units": 96, "layers": 2}}}
    >>> pipeline_arguments(config, ["name", "train_epochs", "train_model_units", "train_settings"])
    {'name': 'demo', 'train_epochs': 5, 'train_model_units': 96,
     'train_settings': '{"model": {"layers": 2}, "seed": 1}'}
    """
    left = json.loads(json.dumps(values))
    arguments = {name: _take(left, name) for name in parameters if not name.endswith(f"_{REST}")}
    for name in parameters:
        if name.endswith(f"_{REST}"):
            rest = left[name.removesuffix(f"_{REST}")]
            arguments[name] = json.dumps(rest, ensure_ascii=False, sort_keys=True)
    return {name: arguments[name] for name in parameters}


def _take(values: Values, name: str) -> Any:
    """Takes a value out of nested mappings by the names on the way to it, joined by `_`."""
    if name in values:
        return values.pop(name)
    for section, inner in values.items():
        if isinstance(inner, dict) and name.startswith(f"{section}_"):
            return _take(inner, name.removeprefix(f"{section}_"))
    raise KeyError(f"{name}: no such key; the pipeline's parameters and the config's sections have come apart")
