"""Builds a KFP pipeline from the components of its steps and the class of its config.

The pipeline's parameters are those of its components, prefixed by the section of the config that holds them:
`train.model.units` is `train__model__units`. A value that several steps need is one parameter. Types and descriptions
come from the components, defaults from the config.
"""

import contextlib
import copy
import dataclasses
import functools
import inspect
import json
from collections.abc import Collection, Sequence
from typing import Any

from voxline.families.family import find_family
from voxline.pipelines.config.keys import Values, get_key
from voxline.pipelines.config.pipeline_configs import config_class_of
from voxline.pipelines.config.run_config import RunConfig
from voxline.pipelines.graphs import DESCRIPTIONS, check_pipeline, steps_of, steps_until
from voxline.pipelines.steps import STEPS

DECIDES = "Output"
"""Output parameter of a step: "yes", or "no" if the steps after it are not to run. kfp.local finds no other name."""

_TOP_LEVEL = {"store": "store", "registry": "registry", "datasets": "datasets", "model_name": "model"}
"""Parameter of a component → the top-level key of the config that it takes its value from."""

_TYPES = {"String": str, "Integer": int, "Float": float}
_REST = "__settings"
"""Ends the name of the parameter that holds the other keys of a section, as JSON."""


@dataclasses.dataclass(frozen=True)
class ParallelTrials:
    """The trials that a search has in place of the step train.

    Attributes:
      items: what the component `trial` is given, a text for each trial.
      base: what all of them are given: the config's section `train` as JSON.
      parallelism: trials at a time.
      metric: of train on dev, by which `choose` ranks them.
      family: of the models.
    """

    items: tuple[str, ...]
    base: str
    parallelism: int
    metric: str
    family: str

    def add(self, parameters: Values, dataset: Any) -> Any:
        """Adds the trials, and what chooses among them, to the graph that is being built.

        Args:
          parameters: those of the pipeline, by name.
          dataset: extract's artifact.

        Returns:
          The artifact of the best trial's model.
        """
        from kfp import dsl

        from voxline.components.train.trials.component import choose, trial

        # KFP runs the body once for each item, and `Collected` waits for all of them.
        with dsl.ParallelFor(items=list(self.items), parallelism=self.parallelism, name="trials") as item:
            task = trial(
                dataset=dataset, base=self.base, given=item, store=parameters["store"],
                registry=parameters["registry"], family=self.family,
            )  # fmt: skip
        best = choose(trials=dsl.Collected(task.outputs["trained"]), store=parameters["store"], metric=self.metric)
        return best.outputs["model"]


def load_pipeline(name: str, until: str = "", optional: Collection[str] = ()) -> Any:
    """The KFP pipeline of a graph of `voxline.pipelines.graphs`.

    Args:
      until: its last step; empty: the whole graph.
      optional: the optional steps that it has.
    """
    return _whole_pipeline(name).until(steps_until(name, until, optional))


@functools.cache
def _whole_pipeline(name: str) -> Any:
    check_pipeline(name)
    description = DESCRIPTIONS.get(name) or find_family(name).description
    components = [STEPS[step].component(name) for step in steps_of(name)]
    return build_pipeline(config_class_of(name), description, *components)


def build_pipeline(
    config: type[RunConfig], description: str, *components: Any, trials: ParallelTrials | None = None
) -> Any:
    """The KFP pipeline of a config's class.

    Args:
      components: KFP components in the order of their steps. An input artifact of one is the output artifact of that
        name of another one before it.
      trials: of a search, in place of train.
    """
    from kfp import dsl

    # The settings of a search's trials are fixed when it is compiled, so train's are no parameters of it.
    configurable = [component for component in components if not (trials and component.name == "train")]
    parameters, descriptions = _parameters(config, configurable)

    # KFP calls this once with placeholders for its parameters, and records the tasks that it creates.
    def graph(*values: Any) -> None:
        placeholders = dict(zip(parameters, values, strict=True))
        tasks: dict[str, Any] = {}
        artifacts: dict[str, Any] = {}
        with contextlib.ExitStack() as conditions:
            for component in components:
                if trials and component.name == "train":
                    artifacts["model"] = trials.add(placeholders, artifacts["dataset"])
                    continue

                inputs = {
                    name: placeholders[_parameter(config, component.name, name)]
                    if spec.type in _TYPES
                    else artifacts[name]
                    for name, spec in component.component_spec.inputs.items()
                }
                task = tasks[component.name] = component(**inputs)
                step = STEPS[component.name]
                if step.after:
                    task.after(tasks[step.after])
                artifacts |= {step.replaces.get(name, name): output for name, output in task.outputs.items()}

                # The condition is left open until the end of the graph: it is over all steps that follow, if any do.
                if DECIDES in task.outputs and component is not components[-1]:
                    conditions.enter_context(dsl.If(task.outputs[DECIDES] == "yes", name="training"))

    # KFP reads name, documentation and parameters from the function, as if it had been written for this pipeline.
    name = config.pipeline_name() + ("-search" if trials else "")
    graph.__name__ = name.replace("-", "_")
    graph.__doc__ = "\n".join(
        [description, "", "Args:", *(f"  {name}: {sentence}" for name, sentence in descriptions.items())]
    )
    graph.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    pipeline = dsl.pipeline(name=name, description=description)(graph)

    def until(steps: list[str]) -> Any:
        return build_pipeline(config, description, *(component for component in components if component.name in steps))

    def with_trials(trials: ParallelTrials) -> Any:
        return build_pipeline(config, description, *components, trials=trials)

    pipeline.until = until  # the same with these steps only
    pipeline.with_trials = with_trials  # the same as a search
    return pipeline


def pipeline_arguments(values: Values, parameters: list[str]) -> Values:
    """An argument for each parameter of a pipeline.

    Args:
      values: a config as JSON values.
      parameters: the names of the pipeline's parameters.

    Raises:
      KeyError: a parameter names no key of the config.

    >>> config = {"name": "demo", "train": {"epochs": 5, "seed": 1, "model": {"units": 96, "layers": 2}}}
    >>> pipeline_arguments(config, ["name", "train__epochs", "train__model__units", "train__settings"])
    {'name': 'demo', 'train__epochs': 5, 'train__model__units': 96,
     'train__settings': '{"model": {"layers": 2}, "seed": 1}'}
    """
    # What has a parameter of its own is taken out first; the remainder of a section is one text.
    remainder = copy.deepcopy(values)
    arguments = {name: _pop(remainder, name) for name in parameters if not name.endswith(_REST)}
    for name in parameters:
        if name.endswith(_REST):
            section = remainder[name.removesuffix(_REST)]
            arguments[name] = json.dumps(section, ensure_ascii=False, sort_keys=True)
    return {name: arguments[name] for name in parameters}


def _parameters(
    config: type[RunConfig], components: Sequence[Any]
) -> tuple[dict[str, inspect.Parameter], dict[str, str]]:
    """The pipeline's parameters, those without a default first, and a sentence for each."""
    defaults = config.example()
    parameters = {}
    descriptions = {}
    for component in components:
        for name, spec in component.component_spec.inputs.items():
            if spec.type not in _TYPES:
                continue
            parameter = _parameter(config, component.name, name)
            if parameter in parameters:
                continue

            # Without a default, the form of KFP's UI requires a value.
            default: Any = inspect.Parameter.empty
            if parameter not in config.required_on_a_cluster:
                default = "{}" if parameter.endswith(_REST) else get_key(defaults, parameter.replace("__", "."))
            parameters[parameter] = inspect.Parameter(
                parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=_TYPES[spec.type], default=default
            )
            field = config.model_fields.get(parameter)
            descriptions[parameter] = f"{field.description}." if field else spec.description

    # As in every signature of Python, parameters with a default come last.
    ordered = sorted(parameters, key=lambda name: parameters[name].default is not inspect.Parameter.empty)
    return {name: parameters[name] for name in ordered}, descriptions


def _parameter(config: type[RunConfig], step: str, name: str) -> str:
    """The pipeline's parameter that a component's parameter takes its value from."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    key = f"{STEPS[step].config_section}.{name.replace('__', '.')}"
    for target, source in config.copied_keys().items():
        if f"{key}.".startswith(f"{target}."):
            key = source + key.removeprefix(target)
    return key.replace(".", "__")


def _pop(values: Values, parameter: str) -> Any:
    *sections, last = parameter.split("__")
    for section in sections:
        values = values[section]
    return values.pop(last)
